//! Tool calls of a reply that are being received.

use super::wire::OutputItem;
use crate::chat::arguments::{StreamedArguments, finish_arguments};
use crate::exchange::ReplyContext;
use crate::repeated_calls;
use crate::{Delta, DeltaBatch, ReplyCall};

/// A tool call. Each method returns the number of bytes that it added to what is kept.
#[derive(Debug, Default)]
pub(super) struct StreamedCall {
    id: String,
    name: String,
    arguments: StreamedArguments,
    /// Arguments that came with the name, used if no others arrive.
    early: String,
}

impl StreamedCall {
    /// Sets the name and the identifier unless they are known.
    pub(super) fn set_name(
        &mut self,
        slot: usize,
        item: &OutputItem<'_>,
        context: &ReplyContext,
        batch: &mut DeltaBatch,
    ) -> usize {
        let mut new = 0;
        if self.id.is_empty() {
            item.call_id_or_id().clone_into(&mut self.id);
            new += self.id.len();
        }
        if self.name.is_empty() && !item.name().is_empty() {
            context.tool_name(item.name()).clone_into(&mut self.name);
            new += self.name.len();
            batch.deltas.push(Delta::CallNamed { slot, name: self.name.clone() });
        }
        new
    }

    /// Keeps arguments that came with the name. Some servers send them there and again as deltas.
    pub(super) fn set_early_arguments(&mut self, item: &OutputItem<'_>) -> usize {
        self.early = item.arguments().into_owned();
        self.early.len()
    }

    /// Adds arguments.
    pub(super) fn push_arguments(
        &mut self,
        slot: usize,
        text: &str,
        batch: &mut DeltaBatch,
    ) -> usize {
        let new = self.arguments.new_part(text);
        self.arguments.push(new);
        batch.push_arguments(slot, new);
        new.len()
    }

    /// Sets the complete arguments, which have usually been received as deltas.
    pub(super) fn set_arguments(
        &mut self,
        slot: usize,
        text: &str,
        batch: &mut DeltaBatch,
    ) -> usize {
        if let Some(rest) = text.strip_prefix(self.arguments.as_str()) {
            self.arguments.push(rest);
            batch.push_arguments(slot, rest);
            rest.len()
        } else if text.is_empty() || self.arguments.is_json_object() {
            0
        } else {
            // Deltas were lost or repeated: the final arguments count.
            self.arguments = StreamedArguments::default();
            self.arguments.push(text);
            text.len()
        }
    }

    /// The complete call.
    pub(super) fn finish(mut self, slot: usize, cut: bool, batch: &mut DeltaBatch) -> ReplyCall {
        if self.arguments.is_empty() {
            self.arguments.push(&self.early);
            batch.push_arguments(slot, &self.early);
        }
        let arguments = finish_arguments(slot, self.arguments.into_text(), cut);
        ReplyCall { slot, provider_id: self.id, name: self.name, arguments, extra: None }
    }
}

/// The first slot from which the calls only repeat earlier ones. With the first repetition the reply ends,
/// because the rest would only be more of the same.
pub(super) fn first_repeat(calls: &[StreamedCall], context: &ReplyContext) -> Option<usize> {
    let calls: Vec<_> = calls
        .iter()
        .filter(|_| context.quirks.loops)
        .map(|call| (&call.name, call.arguments.as_str()))
        .collect();
    repeated_calls::first_repeat(&calls)
}
