//! Estimates the tokens of a conversation without a tokenizer. What the server counts corrects the
//! estimate.

use std::sync::Arc;

use serde_json::Value;

use crate::message::{Arguments, Message, PromptPart, TokenUsage, ToolSpec};

/// The bytes of a token until the server has counted some.
const USUAL_BYTES_PER_TOKEN: f64 = 4.0;
/// The plausible bytes of a token. A server that counts fewer tokens has not read everything.
const PLAUSIBLE_BYTES_PER_TOKEN: std::ops::RangeInclusive<f64> = 1.5..=8.0;
/// What an image or a recording weighs, in bytes: about a thousand tokens.
const MEDIA_WEIGHT: u64 = 4_000;
/// What the frame of a message or a call weighs.
const FRAME_WEIGHT: u64 = 16;

/// Estimates how many tokens the messages of one conversation take.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenMeter {
    counted: Option<CountedRequest>,
    /// What the last plausible count says about the bytes of a token.
    bytes_per_token: Option<f64>,
}

/// A request as the server has counted it, with its answer.
#[derive(Clone, Copy, Debug)]
struct CountedRequest {
    tokens: u64,
    /// The number of messages in it.
    messages: usize,
}

impl TokenMeter {
    /// Records the server's count of a request of this weight. The request and its answer are the first
    /// `messages` messages of the conversation.
    pub fn record(&mut self, usage: &TokenUsage, weight: u64, messages: usize) {
        if usage.input == 0 {
            return;
        }
        self.calibrate(weight, usage.input);
        self.counted = Some(CountedRequest { tokens: usage.input + usage.output, messages });
    }

    /// Adapts the estimate to a text of this weight that the server has counted.
    #[expect(clippy::cast_precision_loss, reason = "no weight needs 52 bits")]
    pub fn calibrate(&mut self, weight: u64, tokens: u64) {
        let measured = weight as f64 / tokens.max(1) as f64;
        if PLAUSIBLE_BYTES_PER_TOKEN.contains(&measured) {
            self.bytes_per_token = Some(measured);
        }
    }

    /// Forgets the last count, because the conversation is another one now or the server has not
    /// read all of it.
    pub fn forget_count(&mut self) {
        self.counted = None;
    }

    /// The tokens of the last request and its answer, if they were counted.
    pub fn last_count(&self) -> Option<u64> {
        self.counted.map(|it| it.tokens)
    }

    /// Estimates the tokens of a request with these messages. `fixed_weight` returns the weight of
    /// everything else in it: the system prompt and the tools.
    pub fn estimate(&self, messages: &[Arc<Message>], fixed_weight: impl FnOnce() -> u64) -> u64 {
        match self.counted.and_then(|it| Some((it.tokens, messages.get(it.messages..)?))) {
            Some((tokens, new)) => tokens + self.tokens(weight_of(new)),
            None => self.tokens(fixed_weight() + weight_of(messages)),
        }
    }

    /// The tokens of something of this weight.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a weight is positive and needs fewer than 52 bits"
    )]
    pub fn tokens(&self, weight: u64) -> u64 {
        (weight as f64 / self.bytes_per_token.unwrap_or(USUAL_BYTES_PER_TOKEN)).ceil() as u64
    }

    /// The weight of this many tokens.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of tokens is positive and needs fewer than 52 bits"
    )]
    pub fn weight(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.bytes_per_token.unwrap_or(USUAL_BYTES_PER_TOKEN)) as u64
    }
}

pub fn weight_of(messages: &[Arc<Message>]) -> u64 {
    messages.iter().map(|it| message_weight(it)).sum()
}

/// The bytes of a text, where each character outside ASCII counts for about a token, because that
/// is what tokenizers make of Chinese or Japanese.
pub fn text_weight(text: &str) -> u64 {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    // The highest bit of each byte. Most words have none, and no bits to count.
    let high_bits = |it: &[u8; 8]| u64::from_ne_bytes(*it) & 0x8080_8080_8080_8080;
    let mut others = rest.iter().filter(|it| !it.is_ascii()).count() as u64;
    for word in words {
        let bits = high_bits(word);
        if bits != 0 {
            others += u64::from(bits.count_ones());
        }
    }
    text.len() as u64 + others / 3
}

pub fn json_weight(value: &Value) -> u64 {
    match value {
        Value::String(text) => text_weight(text) + 2,
        Value::Array(all) => all.iter().map(|it| json_weight(it) + 1).sum::<u64>() + 2,
        Value::Object(all) => {
            all.iter().map(|(key, value)| key.len() as u64 + json_weight(value) + 4).sum::<u64>()
                + 2
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
    }
}

/// The weight of the descriptions of tools.
pub fn specs_weight(specs: &[Arc<ToolSpec>]) -> u64 {
    let weight = |it: &Arc<ToolSpec>| {
        text_weight(&it.name) + text_weight(&it.description) + json_weight(&it.parameters)
    };
    specs.iter().map(weight).sum()
}

pub fn message_weight(message: &Message) -> u64 {
    FRAME_WEIGHT
        + match message {
            Message::User(user) => user.parts.iter().map(part_weight).sum(),
            Message::Tool(tool) => {
                text_weight(&tool.text) + tool.images.len() as u64 * MEDIA_WEIGHT
            }
            Message::Assistant(answer) => {
                let calls = answer.calls.iter().map(|it| {
                    let arguments = match &it.arguments {
                        Arguments::Object(value) => json_weight(value),
                        Arguments::Unusable { text, .. } => text_weight(text),
                    };
                    FRAME_WEIGHT + it.name.len() as u64 + arguments
                });
                let state: u64 = answer.provider_state.blobs.iter().map(json_weight).sum();
                text_weight(&answer.text) + calls.sum::<u64>() + state
            }
        }
}

fn part_weight(part: &PromptPart) -> u64 {
    match part {
        PromptPart::Text(text) | PromptPart::Context(text) => text_weight(text),
        PromptPart::Resource { uri, text } => text_weight(uri) + text_weight(text),
        PromptPart::Link { name, uri } => text_weight(name) + text_weight(uri),
        PromptPart::Image(_) | PromptPart::Audio(_) => MEDIA_WEIGHT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::UserMessage;

    fn prompt(text: &str) -> Arc<Message> {
        Arc::new(Message::User(UserMessage::text(text)))
    }

    #[test]
    fn a_count_corrects_the_estimate_and_only_what_is_new_is_estimated() {
        let mut messages = vec![prompt(&"a".repeat(4_000 - 16))];
        let mut meter = TokenMeter::default();
        assert_eq!(meter.estimate(&messages, || 400), 1_100);
        let usage = TokenUsage { input: 2_200, output: 100, ..TokenUsage::default() };
        meter.record(&usage, 4_400, 1);
        assert_eq!(meter.estimate(&messages, || panic!("the system prompt is counted")), 2_300);
        messages.push(prompt(&"b".repeat(200 - 16)));
        assert_eq!(meter.estimate(&messages, || 400), 2_400);
        assert_eq!((meter.tokens(200), meter.weight(100)), (100, 200));
        meter.forget_count();
        assert_eq!(meter.estimate(&messages[..1], || 400), 2_200);
    }

    #[test]
    fn a_shorter_conversation_is_not_what_was_counted() {
        let mut meter = TokenMeter::default();
        meter.record(&TokenUsage { input: 900, ..TokenUsage::default() }, 3_600, 3);
        assert_eq!(meter.estimate(&[prompt(&"a".repeat(384))], || 0), 100);
    }

    #[test]
    fn an_implausible_count_does_not_change_the_size_of_a_token() {
        for input in [1, 100_000] {
            let mut meter = TokenMeter::default();
            meter.record(&TokenUsage { input, ..TokenUsage::default() }, 40_000, 1);
            assert_eq!(meter.tokens(400), 100, "{input}");
        }
    }

    #[test]
    fn each_character_outside_ascii_is_about_a_token() {
        let meter = TokenMeter::default();
        assert_eq!(meter.tokens(text_weight("语言模型")), 4);
        assert_eq!(meter.tokens(text_weight("word")), 1);
    }
}
