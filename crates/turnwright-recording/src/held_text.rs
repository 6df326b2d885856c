//! Keys that the agent says in pieces. Each piece of a message is a line of its own, in which nobody could
//! recognise the half of a key.

use serde_json::Value;

use turnwright_types::redact;

/// The place of a piece's text.
const TEXT: &str = "/params/update/content/text";

/// A line with its number and its milliseconds.
pub(crate) type NumberedLine = (u64, u64, Value);

/// The end of a message's text that may be the beginning of a key. It waits for what follows.
#[derive(Default)]
pub(crate) struct HeldText(Option<NumberedLine>);

impl HeldText {
    /// The lines that are written when the agent has sent this one.
    pub(crate) fn pass(&mut self, line: NumberedLine) -> Vec<NumberedLine> {
        let (number, milliseconds, mut message) = line;
        let Some(text) = text_of_piece(&message) else {
            return vec![(number, milliseconds, message)];
        };
        let mut passed = Vec::new();
        let text = match self.0.take() {
            Some((_, _, held)) if is_of_same_message(&held, &message) => {
                text_of_piece(&held).unwrap_or_default() + &text
            }
            other => {
                passed.extend(other);
                text
            }
        };
        let text = redact::text(&text).into_owned();
        let (text, rest) = text.split_at(redact::without_partial_key(&text).len());
        if !rest.is_empty() {
            self.0 = Some((number, milliseconds, with_text(message.clone(), rest)));
        }
        if !text.is_empty() {
            message = with_text(message, text);
            passed.push((number, milliseconds, message));
        }
        passed
    }

    /// The text that is still held, when nothing follows.
    pub(crate) fn release(&mut self) -> Option<NumberedLine> {
        self.0.take()
    }
}

fn text_of_piece(message: &Value) -> Option<String> {
    let kind = message["params"]["update"]["sessionUpdate"].as_str()?;
    let is_piece = kind == "agent_message_chunk" || kind == "agent_thought_chunk";
    message.pointer(TEXT).filter(|_| is_piece)?.as_str().map(str::to_owned)
}

fn with_text(mut message: Value, text: &str) -> Value {
    if let Some(place) = message.pointer_mut(TEXT) {
        *place = text.into();
    }
    message
}

fn is_of_same_message(one: &Value, other: &Value) -> bool {
    ["sessionUpdate", "messageId"]
        .iter()
        .all(|field| one["params"]["update"][field] == other["params"]["update"][field])
}
