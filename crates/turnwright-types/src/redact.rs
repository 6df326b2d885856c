//! The keys that were loaded are not repeated: not in the log, not to the client, not in what a
//! command prints, not in what is kept. They are found by what they are, wherever they come from.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use memchr::memmem;
use secrecy::{ExposeSecret, SecretString};

/// What stands in place of a key.
const INSTEAD: &str = "[key]";
/// Bytes of the shortest key that is looked for.
const SHORTEST: usize = 8;
/// Bytes from which on a text of letters alone is a key and no word.
const LONGER_THAN_WORDS: usize = 20;
/// Keys that are looked for.
const MOST: usize = 256;

/// The keys of this process. A std lock: held to copy a pointer.
static LOADED: RwLock<Option<Arc<Keys>>> = RwLock::new(None);

/// Has these keys hidden from now on, as well as those before.
pub fn learn(keys: impl IntoIterator<Item = String>) {
    let mut loaded = LOADED.write().unwrap_or_else(PoisonError::into_inner);
    let mut all = loaded.as_deref().cloned().unwrap_or_default();
    keys.into_iter().for_each(|it| all.add(&it));
    *loaded = Some(Arc::new(all));
}

fn loaded() -> Arc<Keys> {
    let loaded = LOADED.read().unwrap_or_else(PoisonError::into_inner);
    loaded.clone().unwrap_or_default()
}

/// A text without the keys.
pub fn text(text: &str) -> Cow<'_, str> {
    match loaded().hide(text.as_bytes()) {
        Some(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        None => Cow::Borrowed(text),
    }
}

/// The same in place.
pub fn clean(value: &mut String) {
    if let Cow::Owned(clean) = text(value) {
        *value = clean;
    }
}

/// How many bytes at the end of a text may be the beginning of a key.
pub fn unfinished(text: &str) -> usize {
    loaded().unfinished(text.as_bytes())
}

/// Bytes without the keys; `None` if there are none in them.
pub fn bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    loaded().hide(bytes)
}

/// Keys.
#[derive(Clone, Debug, Default)]
struct Keys(Vec<SecretString>);

impl Keys {
    fn add(&mut self, key: &str) {
        let mut forms = vec![key.to_owned()];
        // As it stands in JSON, and in a text that is quoted for programmers.
        if let Ok(json) = serde_json::to_string(key) {
            forms.push(json.trim_matches('"').to_owned());
        }
        forms.push(key.escape_debug().to_string());
        for form in forms {
            let is_new = !self.0.iter().any(|it| it.expose_secret() == form);
            if is_new && is_key(&form) && self.0.len() < MOST {
                self.0.push(form.into());
            }
        }
        // A key that is the beginning of another must not leave the other's end.
        self.0.sort_by_key(|it| std::cmp::Reverse(it.expose_secret().len()));
    }

    fn unfinished(&self, text: &[u8]) -> usize {
        let begun = |key: &[u8]| {
            let most = text.len().min(key.len().saturating_sub(1));
            (1..=most).rev().find(|it| text.ends_with(&key[..*it]))
        };
        self.each().filter_map(begun).max().unwrap_or_default()
    }

    fn each(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|it| it.expose_secret().as_bytes())
    }

    fn hide(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut clean: Option<Vec<u8>> = None;
        for key in self.each() {
            let now = clean.as_deref().unwrap_or(bytes);
            if memmem::find(now, key).is_some() {
                clean = Some(without(now, key));
            }
        }
        clean
    }

    /// How many of the last bytes may be the beginning of a key.
    fn begun(&self, bytes: &[u8]) -> usize {
        let begun = |key: &[u8]| (1..key.len()).rev().find(|it| bytes.ends_with(&key[..*it]));
        self.each().filter_map(begun).max().unwrap_or(0)
    }
}

fn without(bytes: &[u8], key: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(place) = memmem::find(rest, key) {
        clean.extend_from_slice(&rest[..place]);
        clean.extend_from_slice(INSTEAD.as_bytes());
        rest = &rest[place + key.len()..];
    }
    clean.extend_from_slice(rest);
    clean
}

/// Servers that need no key are given words such as `lm-studio`, which would be missing everywhere.
fn is_key(text: &str) -> bool {
    let has = |sort: fn(&char) -> bool| text.chars().any(|it| sort(&it));
    let is_mixed =
        has(char::is_ascii_digit) || has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase);
    text.len() >= LONGER_THAN_WORDS || text.len() >= SHORTEST && is_mixed
}

/// Hides keys in bytes that come in pieces, however they are cut. What may be the beginning of one
/// is held back until it is known what it is.
#[derive(Debug, Default)]
pub struct Stream {
    held: Vec<u8>,
}

impl Stream {
    /// Takes more; returns what may be shown.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.take(&loaded(), bytes)
    }

    /// What was held back, as there is no more.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    fn take<'a>(&mut self, keys: &Keys, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut all = if self.held.is_empty() {
            Cow::Borrowed(bytes)
        } else {
            self.held.extend_from_slice(bytes);
            Cow::Owned(self.finish())
        };
        if let Some(clean) = keys.hide(&all) {
            all = Cow::Owned(clean);
        }
        let shown = all.len() - keys.begun(&all);
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

    fn keys(all: &[&str]) -> Keys {
        let mut keys = Keys::default();
        for key in all {
            keys.add(key);
        }
        keys
    }

    fn hidden(keys: &Keys, text: &str) -> String {
        let clean = keys.hide(text.as_bytes());
        clean.map_or_else(|| text.to_owned(), |it| String::from_utf8(it).unwrap())
    }

    #[test]
    fn what_may_become_a_key_is_seen_at_the_end_alone() {
        let keys = keys(&["sk-12345678", "k-1234xyz"]);
        let table = [("", 0), ("sk-1 is", 1), ("it is sk-1", 4), ("a k-1234", 6), ("sk-1234", 7)];
        for (text, expected) in table {
            assert_eq!(keys.unfinished(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_key_is_hidden_in_whatever_form_it_stands() {
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
    fn how_a_stream_is_cut_changes_nothing() {
        let keys = keys(&["sk-12345678", "678-abcdef"]);
        let text = "s sk sk-12345678-abcdef sk-1sk-12345678 678-abcdefsk-123";
        let whole = hidden(&keys, text);
        for size in 1..text.len() {
            let mut stream = Stream::default();
            let mut shown = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                shown.extend_from_slice(&stream.take(&keys, piece));
            }
            shown.extend_from_slice(&stream.finish());
            assert_eq!(String::from_utf8(shown).unwrap(), whole, "{size}");
        }
    }
}
