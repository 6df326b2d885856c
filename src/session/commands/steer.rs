//! `/steer TEXT` gives words to the running turn. The session takes them before the prompt could wait for the
//! turn's end, so the command itself runs only without words.

use super::{CommandCall, PromptWork, SessionActor, is_words, split};
use turnwright_types::message::{PromptPart, UserMessage};

/// The name of the command that precedes such words.
const NAME: &str = "steer";

/// Answers the command without words.
pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let usage = "Nothing was done. Usage: `/steer TEXT` while a turn runs; the model reads it with its next \
                 request.";
    call.answer(session, |_| usage.to_owned())
}

/// The words behind the command, with the attachments.
///
/// # Errors
/// The prompt, if it does not begin with the command or has nothing behind it.
pub(in crate::session) fn steering_words(
    mut prompt: UserMessage,
) -> Result<UserMessage, UserMessage> {
    let is_alone = prompt.parts.len() == 1;
    let found = prompt.parts.iter_mut().find(|part| is_words(part));
    let Some(PromptPart::Text(first)) = found else { return Err(prompt) };
    let words = match split(first) {
        Some((word, rest)) if word.eq_ignore_ascii_case(NAME) => rest.trim().to_owned(),
        _ => return Err(prompt),
    };
    if words.is_empty() && is_alone {
        return Err(prompt);
    }
    *first = words;
    Ok(prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_behind_the_command_are_taken() {
        for (text, expected) in [
            ("/steer use tabs", Some("use tabs")),
            ("  /steer\nuse tabs ", Some("use tabs")),
            ("/Steer use tabs", Some("use tabs")),
            ("／steer　use tabs", Some("use tabs")),
            ("/steer", None),
            ("/steer  ", None),
            ("/steering x", None),
            ("please /steer x", None),
        ] {
            let words = steering_words(UserMessage::text(text)).ok();
            assert_eq!(words, expected.map(UserMessage::text), "{text}");
        }
        let link = PromptPart::Link { name: "a".to_owned(), uri: "file:///a".to_owned() };
        let parts = vec![PromptPart::Text("/steer".to_owned()), link.clone()];
        assert!(steering_words(UserMessage::new(parts)).is_ok());
        let parts = vec![link.clone(), PromptPart::Text("/steer use tabs".to_owned())];
        let words = steering_words(UserMessage::new(parts)).ok();
        let expected = vec![link, PromptPart::Text("use tabs".to_owned())];
        assert_eq!(words, Some(UserMessage::new(expected)));
    }
}
