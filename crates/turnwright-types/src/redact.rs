//! Removes the loaded API keys from text: from the log, from messages to the client, from command
//! output and from what is stored. Keys are found by their value, wherever the text comes from.

use parking_lot::RwLock;
use std::borrow::Cow;
use std::sync::Arc;

use memchr::memmem;
use secrecy::{ExposeSecret, SecretString};

/// Replaces a key.
const PLACEHOLDER: &str = "[key]";
/// Shorter keys are not searched for.
const MIN_KEY_BYTES: usize = 8;
/// A value of at least this length is a key even if it looks like a word.
const MIN_WORDLIKE_KEY_BYTES: usize = 20;
/// The number of key forms that are searched for. Further ones are ignored.
const MAX_KEY_FORMS: usize = 256;

/// The keys of this process. A std lock: held to copy a pointer.
static LOADED: RwLock<Option<Arc<KeySet>>> = RwLock::new(None);

/// Adds keys to those that are redacted from now on.
pub fn register_keys(keys: impl IntoIterator<Item = String>) {
    let mut loaded = LOADED.write();
    let mut all = loaded.as_deref().cloned().unwrap_or_default();
    keys.into_iter().for_each(|it| all.add(&it));
    *loaded = Some(Arc::new(all));
}

fn loaded() -> Arc<KeySet> {
    let loaded = LOADED.read();
    loaded.clone().unwrap_or_default()
}

/// Returns the text with all keys replaced.
pub fn text(text: &str) -> Cow<'_, str> {
    match loaded().redact(text.as_bytes()) {
        Some(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        None => Cow::Borrowed(text),
    }
}

/// Replaces all keys in `value`.
pub fn redact_in_place(value: &mut String) {
    if let Cow::Owned(clean) = text(value) {
        *value = clean;
    }
}

/// Returns the length in bytes of the longest suffix of `text` that may be the beginning of a key.
pub fn partial_key_len(text: &str) -> usize {
    loaded().partial_key_len(text.as_bytes())
}

/// Returns the bytes with all keys replaced, or `None` if they contain no key.
pub fn bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    loaded().redact(bytes)
}

/// The keys to redact, in every form in which they may appear, the longest first.
#[derive(Clone, Debug, Default)]
struct KeySet(Vec<SecretString>);

impl KeySet {
    fn add(&mut self, key: &str) {
        let mut forms = vec![key.to_owned()];
        // Also as escaped in JSON and by Rust's `Debug`.
        if let Ok(json) = serde_json::to_string(key) {
            forms.push(json.trim_matches('"').to_owned());
        }
        forms.push(key.escape_debug().to_string());
        for form in forms {
            let is_new = !self.0.iter().any(|it| it.expose_secret() == form);
            if is_new && is_key(&form) && self.0.len() < MAX_KEY_FORMS {
                self.0.push(form.into());
            }
        }
        // The longest first: a key that is a prefix of another must not leave the other's rest.
        self.0.sort_by_key(|it| std::cmp::Reverse(it.expose_secret().len()));
    }

    fn partial_key_len(&self, text: &[u8]) -> usize {
        let prefix_len = |key: &[u8]| {
            let longest = text.len().min(key.len().saturating_sub(1));
            (1..=longest).rev().find(|len| text.ends_with(&key[..*len]))
        };
        self.forms().filter_map(prefix_len).max().unwrap_or_default()
    }

    fn forms(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|it| it.expose_secret().as_bytes())
    }

    fn redact(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut clean: Option<Vec<u8>> = None;
        for key in self.forms() {
            let now = clean.as_deref().unwrap_or(bytes);
            if memmem::find(now, key).is_some() {
                clean = Some(replace_all(now, key));
            }
        }
        clean
    }

    /// Returns the length of the longest suffix of `bytes` that may be the beginning of a key.
    fn ambiguous_suffix_len(&self, bytes: &[u8]) -> usize {
        let prefix_len =
            |key: &[u8]| (1..key.len()).rev().find(|len| bytes.ends_with(&key[..*len]));
        self.forms().filter_map(prefix_len).max().unwrap_or(0)
    }
}

fn replace_all(bytes: &[u8], key: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(place) = memmem::find(rest, key) {
        clean.extend_from_slice(&rest[..place]);
        clean.extend_from_slice(PLACEHOLDER.as_bytes());
        rest = &rest[place + key.len()..];
    }
    clean.extend_from_slice(rest);
    clean
}

/// True if a value looks like a key. Servers that need no key are configured with placeholder words
/// such as `lm-studio`; redacting those would damage ordinary text.
fn is_key(text: &str) -> bool {
    let has = |is_class: fn(&char) -> bool| text.chars().any(|char| is_class(&char));
    let is_mixed =
        has(char::is_ascii_digit) || has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase);
    text.len() >= MIN_WORDLIKE_KEY_BYTES || text.len() >= MIN_KEY_BYTES && is_mixed
}

/// Redacts keys in a stream of chunks, also where a key is split between chunks. Bytes that may be the
/// beginning of a key are held back until the following bytes decide.
#[derive(Debug, Default)]
pub struct StreamRedactor {
    held: Vec<u8>,
}

impl StreamRedactor {
    /// Takes the next chunk and returns the redacted bytes that are certain so far.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.take(&loaded(), bytes)
    }

    /// Returns the bytes that were held back, at the end of the stream.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    fn take<'a>(&mut self, keys: &KeySet, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut all = if self.held.is_empty() {
            Cow::Borrowed(bytes)
        } else {
            self.held.extend_from_slice(bytes);
            Cow::Owned(self.finish())
        };
        if let Some(clean) = keys.redact(&all) {
            all = Cow::Owned(clean);
        }
        let shown = all.len() - keys.ambiguous_suffix_len(&all);
        self.held = all[shown..].to_vec();
        match all {
            Cow::Borrowed(all) => Cow::Borrowed(&all[..shown]),
            Cow::Owned(mut all) => {
                all.truncate(shown);
                Cow::Owned(all)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(all: &[&str]) -> KeySet {
        let mut keys = KeySet::default();
        for key in all {
            keys.add(key);
        }
        keys
    }

    fn hidden(keys: &KeySet, text: &str) -> String {
        let clean = keys.redact(text.as_bytes());
        clean.map_or_else(|| text.to_owned(), |it| String::from_utf8(it).unwrap())
    }

    #[test]
    fn only_a_suffix_can_be_a_partial_key() {
        let keys = keys(&["sk-12345678", "k-1234xyz"]);
        let table = [("", 0), ("sk-1 is", 1), ("it is sk-1", 4), ("a k-1234", 6), ("sk-1234", 7)];
        for (text, expected) in table {
            assert_eq!(keys.partial_key_len(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_key_is_redacted_in_each_of_its_forms() {
        let keys =
            keys(&["sk-12345678", "sk-12345678-long", "a\"b\\c\u{e9}12345", "lm-studio", "k1"]);
        let table = [
            ("nothing", "nothing"),
            ("sk-12345678, sk-12345678", "[key], [key]"),
            ("xsk-12345678-longy", "x[key]y"),
            (r#"{"a":"a\"b\\cé12345"}"#, r#"{"a":"[key]"}"#),
            ("a\"b\\cé12345", "[key]"),
            ("lm-studio and k1", "lm-studio and k1"),
            ("sk-1234567", "sk-1234567"),
        ];
        for (text, expected) in table {
            assert_eq!(hidden(&keys, text), expected);
        }
    }

    #[test]
    fn a_word_is_no_key() {
        let table = [
            ("lm-studio", false),
            ("not-needed", false),
            ("short1", false),
            ("sk-123456", true),
            ("abcdEFGH", true),
            ("a-rather-long-sentence", true),
        ];
        for (text, expected) in table {
            assert_eq!(is_key(text), expected, "{text}");
        }
    }

    #[test]
    fn chunk_boundaries_do_not_change_the_redacted_stream() {
        let keys = keys(&["sk-12345678", "678-abcdef"]);
        let text = "s sk sk-12345678-abcdef sk-1sk-12345678 678-abcdefsk-123";
        let whole = hidden(&keys, text);
        for size in 1..text.len() {
            let mut stream = StreamRedactor::default();
            let mut shown = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                shown.extend_from_slice(&stream.take(&keys, piece));
            }
            shown.extend_from_slice(&stream.finish());
            assert_eq!(String::from_utf8(shown).unwrap(), whole, "{size}");
        }
    }
}
