//! Parses the size of the context window from an error. Does no I/O.

use serde_json::Value;

use super::ErrorKind;
use super::error_body::number;

/// Phrases that precede the size of the window. The first match counts.
const LIMIT_PHRASES: &[&str] = &[
    "context length is",
    "context length of only",
    "context length of",
    "context length:",
    "context length (",
    "prompt length is",
    "model length of",
    "context size (",
    "input length should be [1,",
    "number of tokens allowed (",
    "token limit:",
    "exceeds the limit of",
    "must be <=",
    "tokens > ",
    " > ",
    "): limit",
    "too large for model with",
];

/// Phrases that precede the size of the request.
const USED_PHRASES: &[&str] = &[
    "requested a total of",
    "you requested",
    "requested:",
    "requested",
    "request contains",
    "resulted in",
    "prompt contains",
    "token count (",
    "token count of",
    "prompt is too long:",
    "the input (",
    "request (",
    "(length",
    "context limit:",
    "given:",
];

/// The plausible sizes of a window.
const PLAUSIBLE_TOKENS: std::ops::RangeInclusive<u64> = 256..=1 << 40;

/// The overflow error with the sizes found in the error's body or in its lower-case message.
pub(super) fn parse_overflow(body: &Value, text: &str) -> ErrorKind {
    let limit =
        if is_minute_limit(text) { None } else { find_tokens(body, text, "n_ctx", LIMIT_PHRASES) };
    let used = find_tokens(body, text, "n_prompt_tokens", USED_PHRASES);
    ErrorKind::ContextOverflow { limit, used }
}

/// The number in this field of the body, or else after one of the phrases in the text.
fn find_tokens(body: &Value, text: &str, field: &str, phrases: &[&str]) -> Option<u64> {
    let found = number_field(body, field)
        .or_else(|| phrases.iter().find_map(|phrase| number_after(text, phrase)));
    found.filter(|tokens| PLAUSIBLE_TOKENS.contains(tokens))
}

/// True for a limit of tokens per minute, which is not the context window.
pub(super) fn is_minute_limit(text: &str) -> bool {
    ["tokens per min", "(tpm)", "tokens/min"].iter().any(|phrase| text.contains(phrase))
}

fn number_field(body: &Value, name: &str) -> Option<u64> {
    let error = body.get("error").unwrap_or(body);
    error.get(name).or_else(|| body.get(name)).and_then(number)
}

/// The number that follows a phrase.
fn number_after(text: &str, phrase: &str) -> Option<u64> {
    text.match_indices(phrase).find_map(|(at, _)| {
        let rest = text[at + phrase.len()..].trim_start_matches([' ', '`', '=']);
        let mut digits = String::new();
        let mut rest = rest.chars().peekable();
        while let Some(next) = rest.next() {
            match next {
                '0'..='9' => digits.push(next),
                ',' | '_' if rest.peek().is_some_and(char::is_ascii_digit) => {}
                _ => break,
            }
        }
        digits.parse().ok()
    })
}
