//! How large a model's window is, as an error tells it. Pure.

use serde_json::Value;

use super::Kind;
use super::failure::number;

/// What stands in front of the size of the window. The first match counts.
const LIMITS: &[&str] = &[
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

/// What stands in front of the size of the request.
const USED: &[&str] = &[
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

/// No window is smaller or larger.
const SANE: std::ops::RangeInclusive<u64> = 256..=1 << 40;

/// An overflow with the sizes that the error's document or its words, in lower case, tell.
pub(super) fn read(body: &Value, words: &str) -> Kind {
    let find = |name: &str, phrases: &[&str]| {
        let found = field(body, name).or_else(|| phrases.iter().find_map(|it| after(words, it)));
        found.filter(|it| SANE.contains(it))
    };
    // A limit of tokens a minute is no window.
    let is_rate = ["tokens per min", "(tpm)", "tokens/min"].iter().any(|it| words.contains(it));
    let limit = if is_rate { None } else { find("n_ctx", LIMITS) };
    Kind::Overflow { limit, used: find("n_prompt_tokens", USED) }
}

fn field(body: &Value, name: &str) -> Option<u64> {
    let error = body.get("error").unwrap_or(body);
    error.get(name).or_else(|| body.get(name)).and_then(number)
}

/// The number right behind a phrase.
fn after(words: &str, phrase: &str) -> Option<u64> {
    let is_gap = |it: char| it == ' ' || it == '`' || it == '=';
    words.match_indices(phrase).find_map(|(at, _)| {
        let rest = words[at + phrase.len()..].trim_start_matches(is_gap);
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
