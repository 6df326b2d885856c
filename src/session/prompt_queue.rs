//! The prompts that wait behind a running turn.

use std::collections::VecDeque;

use super::PromptKey;
use crate::completion::Completion;
use crate::error::Error;
use turnwright_types::message::{PromptEnd, StopReason, UserMessage};

/// The most prompts that may wait behind a running turn.
pub(super) const MAX_QUEUED_PROMPTS: usize = 32;

/// The error for a prompt that may not wait.
pub(super) fn too_many() -> Error {
    Error::InvalidState(format!("{MAX_QUEUED_PROMPTS} prompts are already waiting. Wait or cancel"))
}

pub(super) struct QueuedPrompt {
    pub(super) key: PromptKey,
    pub(super) prompt: UserMessage,
    pub(super) done: Completion<PromptEnd>,
}

/// The waiting prompts, the next one first.
#[derive(Default)]
pub(super) struct PromptQueue(VecDeque<QueuedPrompt>);

impl PromptQueue {
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX_QUEUED_PROMPTS
    }

    pub(super) fn push(&mut self, prompt: QueuedPrompt) {
        self.0.push_back(prompt);
    }

    pub(super) fn next(&mut self) -> Option<QueuedPrompt> {
        self.0.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut QueuedPrompt> {
        self.0.iter_mut()
    }

    /// Answers this prompt if it is waiting.
    pub(super) fn cancel(&mut self, key: PromptKey) {
        let position = self.0.iter().position(|queued| queued.key == key);
        if let Some(queued) = position.and_then(|index| self.0.remove(index)) {
            queued.done.complete(Ok(StopReason::Cancelled.into()));
        }
    }

    /// Answers all waiting prompts.
    pub(super) fn cancel_all(&mut self) {
        for queued in self.0.drain(..) {
            queued.done.complete(Ok(StopReason::Cancelled.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn prompts_run_in_order_and_a_cancelled_one_is_answered_once() {
        let table: &[(&str, &[PromptKey], &[PromptKey])] = &[
            ("+1 +2 +3 n n", &[], &[1, 2]),
            ("+1 +2 -1 n n", &[1], &[2]),
            ("+1 -1 -1 -7 n", &[1], &[]),
            ("+1 +2 n c c n", &[2], &[1]),
            ("c +1 n", &[], &[1]),
        ];
        for (steps, cancelled, run) in table {
            let answers = Arc::new(Mutex::new(Vec::new()));
            let mut started = Vec::new();
            let mut queue = PromptQueue::default();
            for step in steps.split(' ') {
                let (kind, key) = step.split_at(1);
                let key = key.parse().unwrap_or_default();
                match kind {
                    "+" => {
                        let answers = Arc::clone(&answers);
                        let done = Completion::new(move |result: Result<PromptEnd, Error>| {
                            assert_eq!(result.unwrap().stop, StopReason::Cancelled);
                            answers.lock().push(key);
                        });
                        queue.push(QueuedPrompt { key, prompt: UserMessage::text("x"), done });
                    }
                    "-" => queue.cancel(key),
                    "n" => started.extend(queue.next().map(|queued| queued.key)),
                    _ => queue.cancel_all(),
                }
            }
            assert_eq!((&**answers.lock(), &*started), (*cancelled, *run), "{steps}");
        }
    }
}
