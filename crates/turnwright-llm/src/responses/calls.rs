//! The tool calls of an answer on their way.

use super::wire::Item;
use crate::chat::arguments::{cut_off, is_object, understand};
use crate::manner::Speaker;
use crate::{Batch, Delta, ReplyCall};

/// One tool call. What each method returns is how many bytes are kept now that were not before.
#[derive(Debug, Default)]
pub(super) struct Call {
    id: String,
    name: String,
    arguments: String,
    /// Arguments that came with the name, in case that they never come otherwise.
    early: String,
}

impl Call {
    /// Takes the name and the identifier; what was known before stays.
    pub(super) fn name(
        &mut self,
        slot: usize,
        item: &Item<'_>,
        speaker: &Speaker,
        batch: &mut Batch,
    ) -> usize {
        let mut new = 0;
        if self.id.is_empty() {
            item.result_id().clone_into(&mut self.id);
            new += self.id.len();
        }
        if self.name.is_empty() && !item.name().is_empty() {
            speaker.tool_name(item.name()).clone_into(&mut self.name);
            new += self.name.len();
            batch.deltas.push(Delta::CallNamed { slot, name: self.name.clone() });
        }
        new
    }

    /// Takes what came with the name. Some servers send the arguments there and then once more.
    pub(super) fn begin(&mut self, item: &Item<'_>) -> usize {
        self.early = item.arguments().into_owned();
        self.early.len()
    }

    /// Takes more of the arguments.
    pub(super) fn more(&mut self, slot: usize, text: &str, batch: &mut Batch) -> usize {
        let new = match text.strip_prefix(self.arguments.as_str()) {
            // All of it once more, and nothing new.
            Some("") if is_object(&self.arguments) => "",
            // The server repeats what it has sent and adds to it.
            Some(new) if !new.is_empty() => new,
            _ => text,
        };
        self.arguments.push_str(new);
        batch.arguments(slot, new);
        new.len()
    }

    /// Takes all arguments; most of the time they have been heard.
    pub(super) fn complete(&mut self, slot: usize, text: &str, batch: &mut Batch) -> usize {
        if let Some(rest) = text.strip_prefix(self.arguments.as_str()) {
            self.arguments.push_str(rest);
            batch.arguments(slot, rest);
            rest.len()
        } else if text.is_empty() || is_object(&self.arguments) {
            0
        } else {
            // Deltas were lost or came twice: what the server says at the end counts.
            text.clone_into(&mut self.arguments);
            text.len()
        }
    }

    /// The whole call.
    pub(super) fn finish(mut self, slot: usize, cut: bool, batch: &mut Batch) -> ReplyCall {
        if self.arguments.is_empty() {
            self.arguments = self.early;
            batch.arguments(slot, &self.arguments);
        }
        let arguments = if cut { cut_off(self.arguments) } else { understand(self.arguments) };
        ReplyCall { slot, provider_id: self.id, name: self.name, arguments, extra: None }
    }
}
