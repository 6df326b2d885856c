//! The messages that arrive while a session is still opening. Most wait until it is open; cancels act at
//! once, because opening may take for ever, for example on a folder that never answers.

use tokio::sync::mpsc;

use crate::completion::Completion;
use crate::error::Error;
use crate::session::prompts::{MAX_QUEUED_PROMPTS, too_many};
use crate::session::{MAILBOX_CAPACITY, PromptKey, SessionMessage, TOO_MANY_REQUESTS};
use turnwright_types::message::StopReason;

/// The messages, in the order of their arrival.
#[derive(Default)]
pub(in crate::session) struct EarlyMessages {
    messages: Vec<SessionMessage>,
    /// A prompt was cancelled before it could become a turn.
    pub(super) has_cancelled_prompt: bool,
}

impl EarlyMessages {
    pub(super) fn receive(&mut self, message: SessionMessage) {
        match message {
            SessionMessage::Cancel => self.cancel_prompts(|_| true),
            SessionMessage::CancelPrompt(key) => self.cancel_prompts(|queued| queued == key),
            // One more than the queue may hold, because the first will run.
            SessionMessage::Prompt { done, .. } if self.prompt_count() > MAX_QUEUED_PROMPTS => {
                done.complete(Err(too_many()));
            }
            SessionMessage::Close { .. } => self.messages.push(message),
            message if self.messages.len() < MAILBOX_CAPACITY => self.messages.push(message),
            message => refuse(message, Error::InvalidState(TOO_MANY_REQUESTS.to_owned())),
        }
    }

    /// Returns the messages for the session, which is open now.
    pub(in crate::session) fn take(&mut self) -> Vec<SessionMessage> {
        std::mem::take(&mut self.messages)
    }

    /// Closes the mailbox and answers everything, because the session does not open or is closing. Returns
    /// the requests that wait for it to be closed.
    pub(in crate::session) fn end(
        mut self,
        inbox: &mut mpsc::Receiver<SessionMessage>,
    ) -> Vec<Completion<()>> {
        inbox.close();
        self.messages.extend(std::iter::from_fn(|| inbox.try_recv().ok()));
        let mut closings = Vec::new();
        for message in self.messages {
            match message {
                SessionMessage::Prompt { done, .. } => {
                    done.complete(Ok(StopReason::Cancelled.into()));
                }
                SessionMessage::Steer { done, .. } => done.complete(Ok(false)),
                SessionMessage::TakeOver(takeover) => {
                    let ended = "The session has just ended. Open it again".to_owned();
                    takeover.done.complete(Err(Error::InvalidState(ended)));
                }
                SessionMessage::Close { done } => closings.push(done),
                message => refuse(message, Error::Cancelled),
            }
        }
        closings
    }

    pub(super) fn has_prompts(&self) -> bool {
        self.prompt_count() > 0
    }

    fn prompt_count(&self) -> usize {
        self.messages
            .iter()
            .filter(|message| matches!(message, SessionMessage::Prompt { .. }))
            .count()
    }

    fn cancel_prompts(&mut self, is_cancelled: impl Fn(PromptKey) -> bool) {
        for message in std::mem::take(&mut self.messages) {
            match message {
                SessionMessage::Prompt { key, done, .. } if is_cancelled(key) => {
                    self.has_cancelled_prompt = true;
                    done.complete(Ok(StopReason::Cancelled.into()));
                }
                other => self.messages.push(other),
            }
        }
    }
}

/// Answers a message with this error, if somebody waits for its answer.
fn refuse(message: SessionMessage, why: Error) {
    match message {
        SessionMessage::CancelPart { done, .. } => done.complete(Err(why)),
        SessionMessage::SetMode { done, .. } => done.complete(Err(why)),
        SessionMessage::Set { done, .. } => done.complete(Err(why)),
        SessionMessage::Prompt { done, .. } => done.complete(Err(why)),
        SessionMessage::Steer { done, .. } => done.complete(Err(why)),
        SessionMessage::TakeOver(takeover) => takeover.done.complete(Err(why)),
        SessionMessage::Close { .. }
        | SessionMessage::Cancel
        | SessionMessage::CancelPrompt(_)
        | SessionMessage::Detach { .. }
        | SessionMessage::TitleChosen(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use turnwright_policy::permission::Mode;
    use turnwright_types::message::{PromptEnd, UserMessage};

    type Answers = Arc<Mutex<Vec<String>>>;

    fn prompt(key: PromptKey, answers: &Answers) -> SessionMessage {
        let answers = Arc::clone(answers);
        let done = Completion::new(move |result: Result<PromptEnd, Error>| {
            let result =
                result.map_or_else(|error| error.to_string(), |end| format!("{:?}", end.stop));
            answers.lock().push(format!("{key}: {result}"));
        });
        SessionMessage::Prompt { key, prompt: UserMessage::text("x"), done }
    }

    #[test]
    fn a_cancel_answers_the_prompts_before_it_and_no_other_message() {
        let table: &[(&str, &[&str], usize)] = &[
            ("1 2", &[], 2),
            ("1 C 2", &["1: Cancelled"], 1),
            ("C 1", &[], 1),
            ("1 2 -2 -3", &["2: Cancelled"], 1),
            ("1 M C 2", &["1: Cancelled"], 2),
        ];
        for (input, expected, left) in table {
            let answers = Answers::default();
            let mut early = EarlyMessages::default();
            for word in input.split(' ') {
                early.receive(match (word, word.parse::<i64>()) {
                    ("C", _) => SessionMessage::Cancel,
                    (_, Ok(number)) if number < 0 => {
                        SessionMessage::CancelPrompt(number.unsigned_abs())
                    }
                    (_, Ok(number)) => prompt(number.unsigned_abs(), &answers),
                    _ => SessionMessage::SetMode { mode: Mode::Plan, done: Completion::new(drop) },
                });
            }
            assert_eq!(*answers.lock(), *expected, "{input}");
            assert_eq!(early.has_cancelled_prompt, !expected.is_empty(), "{input}");
            assert_eq!(early.take().len(), *left, "{input}");
        }
    }

    #[test]
    fn there_is_a_limit_and_the_end_answers_each() {
        let answers = Answers::default();
        let mut early = EarlyMessages::default();
        for key in 0..40 {
            early.receive(prompt(key, &answers));
        }
        assert_eq!(answers.lock().len(), 40 - MAX_QUEUED_PROMPTS - 1);
        for _ in 0..2 * MAILBOX_CAPACITY {
            early.receive(SessionMessage::TitleChosen("t".to_owned()));
        }
        early.receive(SessionMessage::Close { done: Completion::new(drop) });
        assert_eq!(early.messages.len(), MAILBOX_CAPACITY + 1);
        let (mailbox, mut inbox) = mpsc::channel(2);
        mailbox.try_send(prompt(40, &answers)).unwrap();
        assert_eq!(early.end(&mut inbox).len(), 1);
        assert!(mailbox.is_closed());
        assert_eq!(answers.lock().len(), 41);
    }
}
