//! Removes from a text whatever may be a secret, so that it can be given away: also keys that this process
//! does not know, such as an old one in the log. Too much is removed rather than too little.

use std::io;

use crate::write_stdout;
use turnwright_types::redact;

/// Stands for what was removed.
const REMOVED: &str = "[…]";
/// The ends of names whose value is a secret.
const SECRET_NAMES: &str = "key token secret password passwd pwd authorization auth credential credentials \
    cookie signature";
/// The words before a key in a header.
const SCHEMES: &[&str] = &["bearer", "basic"];
/// The beginnings of the keys of well-known services.
const KEY_PREFIXES: &[&str] =
    &["sk-", "sk_", "gsk_", "xai-", "nvapi-", "hf_", "ghp_", "gho_", "github_pat_", "AIza", "eyJ"];
/// Stands for what certainly is a key.
const KEY: &str = "[key]";
/// In a report, a word with a known beginning is a key from this length.
const MIN_PREFIXED_LENGTH: usize = 8;
/// A word that begins like a key and has a digit is one from this length.
const MIN_CERTAIN_LENGTH: usize = 16;
/// Letters and digits in a row that are neither a word nor a number.
const MIN_RANDOM_LENGTH: usize = 16;

/// The text without keys, in any form, and with `~` in place of the home folder.
pub(crate) fn scrub(text: &str, home: Option<&str>) -> String {
    let redacted = redact::text(text);
    let text = match home.filter(|home| home.len() > 1) {
        Some(home) => redacted.replace(home, "~"),
        None => redacted.into_owned(),
    };
    text.split_inclusive('\n')
        .map(|line| {
            let clean = without_values(&without_url_secrets(line));
            with_words_replaced(&clean, looks_like_key, REMOVED)
        })
        .collect()
}

/// The text without words that certainly are keys, such as one that was typed as the name of a model.
fn without_certain_keys(text: &str) -> String {
    with_words_replaced(text, is_certain_key, KEY)
}

/// Writes a text to stdout, without keys and without words that certainly are keys.
pub(crate) fn write_without_keys(text: &str) -> io::Result<()> {
    write_stdout(&without_certain_keys(&redact::text(text)))
}

/// Removes user info and queries of URLs.
fn without_url_secrets(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, url) = rest.split_at(at + 3);
        clean.push_str(before);
        let end = url.find(|letter: char| letter.is_whitespace() || "\"'`<>|\\".contains(letter));
        let (url, after) = url.split_at(end.unwrap_or(url.len()));
        let host_end = url.find(['/', '?', '#']).unwrap_or(url.len());
        let host = match url[..host_end].rfind('@') {
            Some(at) => {
                clean.push_str(REMOVED);
                &url[at..]
            }
            None => url,
        };
        let query = host.find(['?', '#']);
        clean.push_str(&host[..query.unwrap_or(host.len())]);
        if query.is_some() {
            clean.push('?');
            clean.push_str(REMOVED);
        }
        rest = after;
    }
    clean + rest
}

fn is_name_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}

/// Removes what follows the name of a secret, as in `API_KEY=…`, `"token": "…"` and `Bearer …`.
fn without_values(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(is_name_char) {
        let (before, from_name) = rest.split_at(start);
        let length = from_name.find(|letter| !is_name_char(letter)).unwrap_or(from_name.len());
        let (name, after) = from_name.split_at(length);
        clean.push_str(before);
        clean.push_str(name);
        rest = after;
        let name = name.to_ascii_lowercase();
        let gap = if SCHEMES.contains(&name.as_str()) {
            after.len() - after.trim_start_matches(' ').len()
        } else if SECRET_NAMES.split_whitespace().any(|ending| name.ends_with(ending)) {
            assignment(after).unwrap_or(0)
        } else {
            0
        };
        let value = value_length(&after[gap..]);
        if gap > 0 && value > 0 {
            clean.push_str(&after[..gap]);
            clean.push_str(REMOVED);
            rest = &after[gap + value..];
        }
    }
    clean + rest
}

/// The length of `=` or `:`, with blanks and quotes around it.
fn assignment(text: &str) -> Option<usize> {
    let around = [' ', '"', '\'', '\\'];
    let sign = text.trim_start_matches(around);
    let value = sign.strip_prefix([':', '=']).map(|value| value.trim_start_matches(['>', '=']))?;
    Some(text.len() - value.trim_start_matches(around).len())
}

/// The length of a value up to the end of the line or of what encloses it.
fn value_length(text: &str) -> usize {
    let end = text.find(|letter: char| "\"'`,;)}]\r\n".contains(letter));
    let value = &text[..end.unwrap_or(text.len())];
    let first = value.split(' ').next().unwrap_or_default();
    // After the name of a scheme comes the key.
    if SCHEMES.iter().any(|scheme| first.eq_ignore_ascii_case(scheme)) {
        value.len()
    } else {
        first.len()
    }
}

fn is_word_char(letter: char) -> bool {
    is_name_char(letter) || "+=~%".contains(letter)
}

fn with_words_replaced(line: &str, is_key: fn(&str) -> bool, replacement: &str) -> String {
    let words = line.split_inclusive(|letter| !is_word_char(letter));
    let clean = words.map(|part| {
        let word = part.trim_end_matches(|letter| !is_word_char(letter));
        if is_key(word) { part.replacen(word, replacement, 1) } else { part.to_owned() }
    });
    clean.collect()
}

fn is_certain_key(word: &str) -> bool {
    KEY_PREFIXES.iter().any(|prefix| {
        let mut starts = word.match_indices(prefix).map(|found| found.0);
        starts.any(|start| {
            let is_start = !word[..start].ends_with(|before: char| before.is_ascii_alphanumeric());
            let key = &word[start..];
            is_start
                && key.len() >= MIN_CERTAIN_LENGTH
                && key.contains(|letter: char| letter.is_ascii_digit())
        })
    })
}

fn looks_like_key(word: &str) -> bool {
    let has_prefix = KEY_PREFIXES.iter().any(|prefix| word.contains(prefix));
    (has_prefix && word.len() >= MIN_PREFIXED_LENGTH)
        || word.split(|letter: char| !letter.is_ascii_alphanumeric()).any(is_random)
}

fn is_random(part: &str) -> bool {
    part.len() >= MIN_RANDOM_LENGTH
        && part.contains(|letter: char| letter.is_ascii_digit())
        && part.contains(|letter: char| letter.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_may_be_a_key_is_removed() {
        for (text, expected) in [
            ("OPENAI_API_KEY=hunter2 model=gpt-5", "OPENAI_API_KEY=[…] model=gpt-5"),
            ("{\"token\": \"hunter2\", \"a\": 1}", "{\"token\": \"[…]\", \"a\": 1}"),
            ("Authorization: Bearer hunter2\n", "Authorization: […]\n"),
            ("with bearer hunter2 in it", "with bearer […] in it"),
            ("env NOTES_TOKEN => 'hunter2'", "env NOTES_TOKEN => '[…]'"),
            ("https://me:hunter2@h.org/v1?key=hunter2 x", "https://[…]@h.org/v1?[…] x"),
            ("(http://h:80/v1)", "(http://h:80/v1)"),
            ("old key sk-hunter2 refused", "old key […] refused"),
            ("a0b1c2d3e4f5a6b7c8, then", "[…], then"),
            // Helpful words are kept.
            ("model claude-sonnet-4-20250514 at qwen2.5-coder-1.5b-instruct-q4_k_m", ""),
            ("session 0198c4e2-7d6a-7bb2-a1f3-1c2d3e4f5a6b", ""),
            ("     key        set, from OPENAI_API_KEY", ""),
            ("2026-11-24T02:00:00.123456Z  WARN turnwright_llm: 429 Too Many Requests", ""),
        ] {
            let expected = if expected.is_empty() { text } else { expected };
            assert_eq!(scrub(text, None), expected);
        }
        assert_eq!(scrub("/home/me/x", Some("/home/me")), "~/x");
    }

    #[test]
    fn only_what_certainly_is_a_key_is_removed_from_the_output() {
        for (text, expected) in [
            ("model = sk-proj-abcdef0123456789 (--model)", "model = [key] (--model)"),
            ("groq/gsk_abcdef0123456789", "groq/[key]"),
            ("no model TURNWRIGHT_MODEL=sk-abcdef0123456789", "no model [key]"),
            // Models, paths and identifiers.
            ("risk-model-2026-11-24-large, sk-learn, hf_model", ""),
            ("/tmp/task-0123456789abcdef/0198c4e27d6a7bb2.json", ""),
        ] {
            let expected = if expected.is_empty() { text } else { expected };
            assert_eq!(without_certain_keys(text), expected);
        }
    }
}
