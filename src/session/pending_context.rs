//! What the model has yet to be told: the next prompt takes it.

use std::mem::take;
use std::sync::Arc;

use parking_lot::Mutex;

use super::undo::UndoNews;
use turnwright_types::message::{PromptPart, UserMessage};

/// What the model is told after an interrupted turn.
const INTERRUPTED: &str = "The last turn was interrupted: the agent ended in the middle of it. What \
                           was under way then may be done in part.\n";

/// What the model has yet to be told.
#[derive(Debug, Default)]
pub(super) struct PendingContext {
    /// The last turn was interrupted by the end of the process.
    pub(super) was_interrupted: bool,
    /// The session's folders differ from those that the model was told.
    pub(super) folders_changed: bool,
    /// What the user has undone.
    pub(super) undo_news: UndoNews,
    pub(super) unsent: UnsentContext,
}

impl PendingContext {
    /// Takes the beginning of the context for a prompt. The first prompt of a conversation gets its
    /// whole context anew, so nothing older is left for it.
    pub(super) fn take_lead(&mut self, is_first: bool, folders: &str) -> String {
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

    /// Takes the note about an interrupted turn.
    pub(super) fn take_interruption(&mut self) -> Option<&'static str> {
        take(&mut self.was_interrupted).then_some(INTERRUPTED)
    }
}

/// Context for the model from a prompt that led to no turn.
// Held only to move a short text.
#[derive(Clone, Debug, Default)]
pub(super) struct UnsentContext(Arc<Mutex<String>>);

impl UnsentContext {
    fn take(&self) -> String {
        take(&mut self.0.lock())
    }

    pub(super) fn keep(&self, message: UserMessage) {
        let context = message.parts.into_iter().filter_map(|it| match it {
            PromptPart::Context(text) => Some(text),
            _ => None,
        });
        self.0.lock().extend(context);
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
            assert_eq!(pending.take_lead(is_first, "F\n"), expected);
            assert_eq!(pending.take_lead(false, "F\n"), "");
        }
        let mut pending = PendingContext { was_interrupted: true, ..PendingContext::default() };
        assert!(pending.take_interruption().is_some() && pending.take_interruption().is_none());
    }
}
