//! Context that the model has yet to be told: the next prompt takes it.

use std::mem::take;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Error;
use turnwright_types::message::{Message, PromptPart, StopReason, UserMessage};

/// Tells the model about an interrupted turn.
const INTERRUPTED: &str = "The last turn was interrupted: the agent ended in the middle of it. What \
                           was under way then may be done in part.\n";

/// Tells the model about an answer that the user has cancelled.
const CANCELLED: &str = "[Your last answer is incomplete: the user cancelled it.]\n";
/// Tells the model about an answer that an error has ended.
const FAILED: &str = "[Your last answer is incomplete: it was cut off by an error.]\n";

/// How an unfinished turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnfinishedTurn {
    /// The process ended in the middle of it.
    Interrupted,
    Cancelled,
    Failed,
}

impl UnfinishedTurn {
    pub(super) fn from_result(result: &Result<StopReason, Error>) -> Option<UnfinishedTurn> {
        match result {
            Ok(StopReason::Cancelled) => Some(UnfinishedTurn::Cancelled),
            Ok(_) => None,
            Err(_) => Some(UnfinishedTurn::Failed),
        }
    }

    /// Reads the stop reason that is stored for a turn.
    pub(super) fn from_stored(stop: &str) -> Option<UnfinishedTurn> {
        match stop {
            "interrupted" => Some(UnfinishedTurn::Interrupted),
            "cancelled" => Some(UnfinishedTurn::Cancelled),
            "error" => Some(UnfinishedTurn::Failed),
            _ => None,
        }
    }
}

/// Context that the model has yet to be told.
#[derive(Debug, Default)]
pub(super) struct PendingContext {
    /// How the last turn ended, if it did not finish.
    pub(super) unfinished: Option<UnfinishedTurn>,
    /// The session's folders differ from those that the model was told.
    pub(super) folders_changed: bool,
    pub(super) unsent: UnsentContext,
}

impl PendingContext {
    /// Takes the beginning of the context for a prompt. The first prompt of a conversation gets its
    /// whole context anew, so nothing older is left for it.
    pub(super) fn take_opening(&mut self, is_first: bool, folders: &str) -> String {
        let mut context = self.unsent.take();
        let changed = take(&mut self.folders_changed);
        if is_first {
            context.clear();
        } else if changed {
            context.push_str("The user has opened this conversation in other folders.\n");
            context.push_str(folders);
        }
        context
    }

    /// Takes the note about the last turn if it did not finish. `last` is the conversation's last
    /// message. After a cancel or an error only an answer without its end needs the note: anything
    /// else the turn itself has already reported.
    pub(super) fn take_unfinished(&mut self, last: Option<&Message>) -> Option<&'static str> {
        let is_cut = matches!(last?, Message::Assistant(answer) if answer.interrupted);
        match self.unfinished.take()? {
            UnfinishedTurn::Interrupted => Some(INTERRUPTED),
            UnfinishedTurn::Cancelled => is_cut.then_some(CANCELLED),
            UnfinishedTurn::Failed => is_cut.then_some(FAILED),
        }
    }
}

/// Context for the model that the work of a command leaves behind. Clones share it.
// Held only to move a short text.
#[derive(Clone, Debug, Default)]
pub(super) struct UnsentContext(Arc<Mutex<UnsentTexts>>);

#[derive(Debug, Default)]
struct UnsentTexts {
    /// The context of prompts that led to no turn.
    of_prompts: String,
    /// News of what the user has undone.
    undo_news: Option<String>,
}

impl UnsentContext {
    fn take(&self) -> String {
        take(&mut self.0.lock().of_prompts)
    }

    pub(super) fn set_undo_news(&self, news: Option<String>) {
        self.0.lock().undo_news = news;
    }

    pub(super) fn take_undo_news(&self) -> Option<String> {
        self.0.lock().undo_news.take()
    }

    pub(super) fn keep(&self, message: UserMessage) {
        self.add(message.parts.into_iter().filter_map(|part| match part {
            PromptPart::Context(text) => Some(text),
            _ => None,
        }));
    }

    pub(super) fn add(&self, context: impl IntoIterator<Item = String>) {
        self.0.lock().of_prompts.extend(context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_told_once_and_a_first_prompt_gets_no_older_one() {
        let moved = "The user has opened this conversation in other folders.\nF\n";
        let table = [
            ((false, false, ""), ""),
            ((false, true, ""), moved),
            ((false, true, "old\n"), &format!("old\n{moved}")),
            ((true, true, "old\n"), ""),
        ];
        for ((is_first, folders_changed, unsent), expected) in table {
            let mut pending = PendingContext { folders_changed, ..PendingContext::default() };
            let parts = vec![PromptPart::Context(unsent.to_owned())];
            pending.unsent.keep(UserMessage { parts });
            assert_eq!(pending.take_opening(is_first, "F\n"), expected);
            assert_eq!(pending.take_opening(false, "F\n"), "");
        }
        let unfinished = Some(UnfinishedTurn::Interrupted);
        let mut pending = PendingContext { unfinished, ..PendingContext::default() };
        let prompt = Message::User(UserMessage::text("hi"));
        assert!(pending.take_unfinished(None).is_none());
        assert_eq!(pending.take_unfinished(Some(&prompt)), Some(INTERRUPTED));
        assert!(pending.take_unfinished(Some(&prompt)).is_none());
    }
}
