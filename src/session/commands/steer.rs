//! Words for the running turn: `/steer TEXT` typed as a prompt, and the method `_session/steering`.

use super::{CommandCall, PromptWork};
use crate::completion::Completion;
use crate::session::PromptKey;
use crate::session::actor::SessionActor;
use turnwright_types::message::{PromptEnd, PromptPart, StopReason, UserMessage};

/// The command that precedes such words.
const COMMAND: &str = "/steer";

impl SessionActor {
    /// Gives the words of a `/steer` to the running turn and answers the prompt. Any other prompt is
    /// returned, and so are words that no turn takes, without the command: they are a turn of their own
    /// then.
    pub(in crate::session) fn steer_if_asked(
        &mut self,
        key: PromptKey,
        prompt: UserMessage,
        done: Completion<PromptEnd>,
    ) -> Option<(UserMessage, Completion<PromptEnd>)> {
        let words = match steering_words(prompt) {
            Ok(words) => words,
            Err(prompt) => return Some((prompt, done)),
        };
        match self.push_steering(Some(key), words) {
            Ok(()) => {
                self.report_when_saved(done, Ok(StopReason::EndTurn.into()));
                None
            }
            Err(words) => Some((words, done)),
        }
    }

    /// Gives words to the running turn. Reports whether it takes them.
    pub(in crate::session) fn steer(&mut self, words: UserMessage, done: Completion<bool>) {
        let supported = self.services.selection.get().model.modalities();
        let checked = self.announcements.check_media(&words, supported);
        let taken = checked.map(|()| self.push_steering(None, words).is_ok());
        self.report_when_saved(done, taken);
    }

    fn push_steering(
        &mut self,
        key: Option<PromptKey>,
        words: UserMessage,
    ) -> Result<(), UserMessage> {
        match &self.steering {
            Some(steering) if self.running.is_some() => {
                steering.push(self.services.log(), key, words)
            }
            _ => Err(words),
        }
    }

    /// Moves words that a crashed turn has not read into the history.
    pub(in crate::session) fn keep_steering_of_dead_turn(&mut self) {
        if let Some(steering) = self.steering.take() {
            steering.close();
            let joined = steering.move_into(&mut self.history, self.services.log(), None);
            self.services.report_joined(joined);
        }
    }
}

/// The words behind the command, with the attachments.
///
/// # Errors
/// The prompt, if it does not begin with the command or has nothing behind it.
fn steering_words(mut prompt: UserMessage) -> Result<UserMessage, UserMessage> {
    let is_alone = prompt.parts.len() == 1;
    let Some(PromptPart::Text(first)) = prompt.parts.first_mut() else { return Err(prompt) };
    let rest = first.trim_start().strip_prefix(COMMAND);
    let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    else {
        return Err(prompt);
    };
    let words = rest.trim().to_owned();
    if words.is_empty() && is_alone {
        return Err(prompt);
    }
    *first = words;
    Ok(prompt)
}

/// Answers the command without words.
pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let usage = "Nothing was done. Usage: `/steer TEXT` while a turn runs; the model reads it with its next \
                 request.";
    call.answer(session, |_| usage.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_behind_the_command_are_taken() {
        for (text, expected) in [
            ("/steer use tabs", Some("use tabs")),
            ("  /steer\nuse tabs ", Some("use tabs")),
            ("/steer", None),
            ("/steer  ", None),
            ("/steering x", None),
            ("please /steer x", None),
        ] {
            let words = steering_words(UserMessage::text(text)).ok();
            assert_eq!(words, expected.map(UserMessage::text), "{text}");
        }
        let link = PromptPart::Link { name: "a".to_owned(), uri: "file:///a".to_owned() };
        let parts = vec![PromptPart::Text("/steer".to_owned()), link];
        assert!(steering_words(UserMessage { parts }).is_ok());
    }
}
