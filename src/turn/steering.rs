//! The words of the user to a turn that is running. They reach the model with its next request, and cancel
//! nothing.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use super::{Conversation, Turn, TurnStep};
use turnwright_store::{Audience, Entry, SessionLog};
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, Message, PromptPart, UserMessage};
use turnwright_types::update::PromptKey;

/// The most messages that may wait for the next request.
const MAX_WAITING: usize = 32;
/// The context that the model gets with such a message.
const CONTEXT: &str = "The user has sent this while you were working.";
/// The notice for the user if the model has not read it in this turn.
const UNREAD_NOTICE: &str = "Your last words came too late for this turn. The model reads them with your next \
                      prompt.";

/// The messages that wait for the next request of one turn. Clones share them.
// Held only to move a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct SteeringQueue(Arc<Mutex<WaitingMessages>>);

#[derive(Debug, Default)]
struct WaitingMessages {
    /// The turn makes no further request.
    is_closed: bool,
    /// A prompt waits for the end of the turn.
    has_waiting_prompt: bool,
    messages: VecDeque<WaitingMessage>,
}

#[derive(Debug)]
struct WaitingMessage {
    /// The number of its log entry.
    seq: u64,
    /// The prompt that it came with.
    prompt: Option<PromptKey>,
    message: UserMessage,
}

impl SteeringQueue {
    /// Adds a message, which is logged before it is taken. Returns it if the turn takes no more.
    pub(crate) fn push(
        &self,
        log: &SessionLog,
        prompt: Option<PromptKey>,
        message: UserMessage,
    ) -> Result<(), UserMessage> {
        let mut waiting = self.0.lock();
        if waiting.is_closed || waiting.messages.len() >= MAX_WAITING {
            return Err(message);
        }
        // The entry is replaced once the message has its place in the conversation.
        let seq = log.reserve_seq();
        let entry = Entry::Message {
            id: MessageId::waiting(seq),
            message: Arc::new(Message::User(message.clone())),
            audience: Audience::Both,
        };
        log.write_entry(seq, entry);
        waiting.messages.push_back(WaitingMessage { seq, prompt, message });
        Ok(())
    }

    /// Moves the waiting messages to the end of the conversation. Returns each with its prompt and identifier.
    fn move_into(
        &self,
        history: &mut History,
        log: &SessionLog,
        context: Option<&str>,
    ) -> Vec<(Option<PromptKey>, MessageId, Arc<Message>)> {
        let waiting = std::mem::take(&mut self.0.lock().messages);
        let mut joined = Vec::new();
        for WaitingMessage { seq, prompt, mut message } in waiting {
            message.parts.extend(context.map(|text| PromptPart::Context(text.to_owned())));
            history.push(Message::User(message));
            let Some(message) = history.messages.last().cloned() else { continue };
            let id = history.mint_message_id();
            joined.push((prompt, id.clone(), Arc::clone(&message)));
            let entry = Entry::Message { id, message, audience: Audience::Both };
            log.replace_entries(vec![seq], log.reserve_seq(), entry);
        }
        joined
    }

    /// Takes no further messages, and keeps those that wait for the next prompt. Returns true if there were any.
    pub(crate) fn close_into(&self, history: &mut History, conversation: &Conversation) -> bool {
        self.0.lock().is_closed = true;
        let joined = self.move_into(history, conversation.log(), None);
        for (prompt, id, message) in &joined {
            conversation.report_message(*prompt, id, message);
        }
        !joined.is_empty()
    }

    /// Returns true if no message waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().messages.is_empty()
    }

    /// Takes no further messages, unless one is waiting.
    fn close_if_empty(&self) -> bool {
        let mut waiting = self.0.lock();
        waiting.is_closed = waiting.messages.is_empty();
        waiting.is_closed
    }

    /// Notes if a prompt waits for the end of the turn.
    pub(crate) fn set_waiting_prompt(&self, waits: bool) {
        self.0.lock().has_waiting_prompt = waits;
    }

    /// Returns true if a prompt waits for the end of the turn.
    pub(super) fn has_waiting_prompt(&self) -> bool {
        self.0.lock().has_waiting_prompt
    }
}

impl Turn {
    /// Makes the turn take the user's words from this queue.
    pub(crate) fn steered_by(mut self, steering: SteeringQueue) -> Turn {
        self.steering = steering;
        self
    }

    /// Adds what the user has said to the conversation, before the next request.
    pub(super) async fn add_steering(&mut self) {
        let log = self.conversation.log().clone();
        let joined = self.steering.move_into(&mut self.history, &log, Some(CONTEXT));
        if joined.is_empty() {
            return;
        }
        self.loops.reset();
        self.report_prompt().await;
        if self.conversation.client().follows_prompts() {
            // The words are stored before the client is told of them.
            log.flush().written().await;
        }
        for (prompt, id, message) in joined {
            self.conversation.report_message(prompt, &id, &message);
        }
    }

    /// The step after an answer that needs none: one more request if the user has said something since
    /// the last one, and otherwise if there is a goal that is not reached.
    pub(super) async fn step_after_answer(&mut self) -> Option<TurnStep> {
        if self.goal.is_some()
            && self.steering.is_empty()
            && let Some(step) = Box::pin(self.goal_step()).await
        {
            return Some(step);
        }
        if self.steering.close_if_empty() {
            return None;
        }
        Some(match self.budget.take_request() {
            Ok(()) => TurnStep::Sample,
            Err(limit) => TurnStep::Summarize(Vec::new(), limit),
        })
    }

    /// Keeps what the user has said for the next prompt, because this turn makes no further request.
    pub(super) fn keep_unread_steering(&mut self) {
        if self.steering.close_into(&mut self.history, &self.conversation) {
            self.conversation.notify(UNREAD_NOTICE.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_in_order_until_the_turn_ends() {
        let log = SessionLog::default();
        let queue = SteeringQueue::default();
        let mut history = History::default();
        let push = |text: &str| queue.push(&log, None, UserMessage::text(text)).is_ok();
        assert!(push("a") && push("b"));
        assert!(!queue.close_if_empty(), "they wait");
        assert!(push("c"));
        assert_eq!(queue.move_into(&mut history, &log, None).len(), 3);
        let texts: Vec<_> = history.messages.iter().map(|message| format!("{message:?}")).collect();
        assert_eq!(texts.len(), 3);
        for (text, word) in texts.iter().zip(["\"a\"", "\"b\"", "\"c\""]) {
            assert!(text.contains(word), "{text}");
        }
        assert!(queue.close_if_empty() && !push("d"));
        assert!(queue.move_into(&mut history, &log, None).is_empty(), "it was returned");
    }

    #[test]
    fn not_more_wait_than_the_limit() {
        let log = SessionLog::default();
        let queue = SteeringQueue::default();
        let taken = (0..100).filter(|_| queue.push(&log, None, UserMessage::text("x")).is_ok());
        assert_eq!(taken.count(), MAX_WAITING);
    }
}
