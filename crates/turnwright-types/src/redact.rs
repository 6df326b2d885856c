//! Removes the loaded API keys from text: from the log, from messages to the client, from command
//! output and from what is stored. Keys are found by their value, wherever the text comes from, and some by
//! their place.
//!
//! A secret is replaced by a placeholder that no other program writes, so that a text which contains one
//! is known to come from a redacted text. The same secret has the same placeholder until the process
//! ends, so that a changed secret is visible as changed.

mod places;

use aho_corasick::{AhoCorasick, Input, MatchKind};
use base64::Engine;
use base64::prelude::{
    BASE64_STANDARD_NO_PAD as STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD,
};
use parking_lot::RwLock;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::hash::hex;
use places::{placed_keys, redact_placed};

pub use places::{header_key, url};

/// The beginning of a placeholder. Four hexadecimal digits and a bracket follow.
pub const PLACEHOLDER_START: &str = "[hidden:";
/// The placeholder of earlier versions for any secret. Stored conversations have it, and many files have it for
/// other reasons.
pub const FORMER_PLACEHOLDER: &str = "[key]";
/// The length of a placeholder in bytes.
const PLACEHOLDER_LENGTH: usize = PLACEHOLDER_START.len() + 5;
/// Shorter keys are not searched for.
const MIN_KEY_BYTES: usize = 8;
/// A value of at least this length is a key even if it looks like a word.
const MIN_WORDLIKE_KEY_BYTES: usize = 20;
/// All that URLs have only percent-encoded: the characters that RFC 3986 does not call unreserved.
const ENCODED_CHARS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Shorter keys are not searched for in other encodings.
const MIN_ENCODED_KEY_BYTES: usize = 16;
/// The number of key forms that can be searched for.
const MAX_KEY_FORMS: usize = 4096;
/// The number of bytes of each form that the automaton knows; the others are compared. Building it from long
/// keys would take seconds.
const INDEXED_BYTES: usize = 16;

/// The keys of this process. Locked to copy the pointer, or to replace the set.
static LOADED: RwLock<Option<Arc<KeySet>>> = RwLock::new(None);

/// There is no room for more keys.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("more keys are loaded than can be kept out of logs and messages ({MAX_KEY_FORMS})")]
pub struct TooManyKeys;

/// Adds keys, which are redacted from now on.
///
/// # Errors
/// If there is no room for them. Then none of them is redacted, so none of them may be used.
pub fn register_keys(keys: impl IntoIterator<Item = String>) -> Result<(), TooManyKeys> {
    let keys: Vec<_> = keys.into_iter().collect();
    let mut loaded = LOADED.write();
    if let Some(all) = loaded.clone().unwrap_or_default().with(&keys)? {
        *loaded = Some(Arc::new(all));
    }
    Ok(())
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

/// Replaces all keys in the texts of a JSON value and in the names of its fields.
pub fn json(value: Value) -> Value {
    match value {
        Value::String(mut string) => {
            redact_in_place(&mut string);
            string.into()
        }
        Value::Array(items) => items.into_iter().map(json).collect(),
        Value::Object(fields) => {
            let entries = fields.into_iter();
            entries.map(|(name, value)| (text(&name).into_owned(), json(value))).collect()
        }
        value => value,
    }
}

/// Returns the text without what may be the beginning of a key at its end.
pub fn without_partial_key(text: &str) -> &str {
    crate::text::prefix(text, text.len() - loaded().partial_key_len(text.as_bytes()))
}

/// Returns the text with all keys replaced, also keys that are recognised by their place, as in the output of a
/// command.
pub fn text_with_placed_keys(text: &str) -> Cow<'_, str> {
    let hidden = bytes(text.as_bytes()).map_or(Cow::Borrowed(text.as_bytes()), Cow::Owned);
    match redact_placed(&mut Vec::new(), hidden, true) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Returns the bytes with all keys replaced, or `None` if they contain no key.
pub fn bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    loaded().redact(bytes)
}

/// Replaces each key by what `replace` returns for it. Returns `None` if keys overlap.
pub fn replace_keys(bytes: &[u8], replace: impl Fn(&[u8]) -> Vec<u8>) -> Option<Vec<u8>> {
    let keys = loaded();
    let mut replaced = Vec::with_capacity(bytes.len());
    let mut from = 0;
    while let Some(found) = keys.find(bytes, from) {
        if found.first.end != found.end {
            return None;
        }
        replaced.extend_from_slice(&bytes[from..found.first.start]);
        replaced.extend(replace(&bytes[found.first]));
        from = found.end;
    }
    replaced.extend_from_slice(&bytes[from..]);
    Some(replaced)
}

/// Returns the places of the secrets that would be hidden in the output of a command.
pub fn secrets(text: &str) -> Vec<Range<usize>> {
    let keys = loaded();
    let bytes = text.as_bytes();
    let loaded = std::iter::successors(keys.find(bytes, 0), |found| keys.find(bytes, found.end));
    loaded.map(|found| found.first).chain(placed_keys(bytes, true).0).collect()
}

/// Finds a loaded key, or another form of one.
pub fn find_key(is_wanted: impl Fn(&[u8]) -> bool) -> Option<SecretString> {
    let keys = loaded();
    keys.forms.iter().find(|form| is_wanted(form.expose_secret().as_bytes())).cloned()
}

/// Returns the placeholder of a secret. The random state of this process keeps it from revealing anything about
/// the secret.
fn placeholder(secret: &[u8]) -> String {
    static STATE: OnceLock<RandomState> = OnceLock::new();
    let hash = STATE.get_or_init(RandomState::new).hash_one(secret);
    format!("{PLACEHOLDER_START}{:04x}]", hash & 0xffff)
}

/// Finds the placeholders in a text.
pub fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(PLACEHOLDER_START).filter_map(|(start, _)| {
        let placeholder = text.get(start..start + PLACEHOLDER_LENGTH)?;
        is_placeholder(placeholder).then_some(placeholder)
    })
}

fn is_placeholder(text: &str) -> bool {
    let digits = text.strip_prefix(PLACEHOLDER_START).and_then(|rest| rest.strip_suffix(']'));
    digits.is_some_and(|digits| {
        digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Keys that were found in a text.
struct FoundKeys {
    first: Range<usize>,
    /// The end of the keys that overlap the first one.
    end: usize,
}

/// The keys to redact, in every form in which they may appear.
#[derive(Clone, Default)]
struct KeySet {
    /// The keys as they are loaded. Each session loads them again, and their forms are known then.
    keys: Vec<SecretString>,
    /// Sorted and without duplicates.
    forms: Vec<SecretString>,
    /// The length of the longest form.
    longest: usize,
    /// Finds the beginnings of the forms.
    finder: Option<AhoCorasick>,
}

impl KeySet {
    /// Returns these keys with more, or `None` if all of them are known.
    fn with(&self, keys: &[String]) -> Result<Option<KeySet>, TooManyKeys> {
        let unknown: Vec<_> = keys.iter().filter(|key| !self.has_key(key)).collect();
        let new = unknown
            .iter()
            .flat_map(|key| forms(key))
            .filter(|form| is_key(form) && !self.has_form(form));
        let mut all: Vec<_> = new.map(SecretString::from).collect();
        if all.is_empty() {
            return Ok(None);
        }
        all.extend_from_slice(&self.forms);
        all.sort_by(|one, other| one.expose_secret().cmp(other.expose_secret()));
        all.dedup_by(|one, other| one.expose_secret() == other.expose_secret());
        if all.len() > MAX_KEY_FORMS {
            return Err(TooManyKeys);
        }
        let longest = all.iter().map(|form| form.expose_secret().len()).max().unwrap_or_default();
        let mut beginnings: Vec<_> = all.iter().map(beginning).collect();
        beginnings.dedup();
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(beginnings);
        let finder = Some(built.map_err(|_| TooManyKeys)?);
        let added = unknown.into_iter().map(|key| SecretString::from(key.clone()));
        let keys = self.keys.iter().cloned().chain(added).collect();
        Ok(Some(KeySet { keys, forms: all, longest, finder }))
    }

    fn has_key(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known.expose_secret() == key)
    }

    fn has_form(&self, form: &str) -> bool {
        self.forms.binary_search_by(|known| known.expose_secret().cmp(form)).is_ok()
    }

    fn partial_key_len(&self, text: &[u8]) -> usize {
        let (Some(low), Some(high)) = (self.forms.first(), self.forms.last()) else { return 0 };
        let first_bytes = first_byte(low)..=first_byte(high);
        let longest = text.len().min(self.longest.saturating_sub(1));
        let partial = (1..=longest).rev().find(|length| {
            let suffix = &text[text.len() - length..];
            first_bytes.contains(&suffix[0]) && self.has_form_longer_than(suffix)
        });
        partial.unwrap_or_default()
    }

    /// Returns true if a form begins with `bytes` and goes on.
    fn has_form_longer_than(&self, bytes: &[u8]) -> bool {
        let next = self.forms.get(self.forms_up_to(bytes).len());
        next.is_some_and(|form| form.expose_secret().as_bytes().starts_with(bytes))
    }

    /// Returns the forms that sort before `bytes` or are equal.
    fn forms_up_to(&self, bytes: &[u8]) -> &[SecretString] {
        let end = self.forms.partition_point(|form| form.expose_secret().as_bytes() <= bytes);
        &self.forms[..end]
    }

    fn redact(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.redact_part(bytes, 0..bytes.len()).map(|(clean, _)| clean)
    }

    /// Returns `part` of the bytes with the keys that start in it or before it replaced, and the end
    /// of the last one. What is before `part` belongs to a key that is replaced already. `None` if
    /// there is no key.
    fn redact_part(&self, bytes: &[u8], part: Range<usize>) -> Option<(Vec<u8>, usize)> {
        let mut clean = None;
        let mut from = part.start;
        let mut next = 0;
        while let Some(keys) = self.find(bytes, next)
            && keys.first.start < part.end
        {
            let clean = clean.get_or_insert_with(|| Vec::with_capacity(bytes.len()));
            if keys.first.start >= from {
                clean.extend_from_slice(&bytes[from..keys.first.start]);
                clean.extend_from_slice(placeholder(&bytes[keys.first]).as_bytes());
            }
            from = from.max(keys.end);
            next = keys.end;
        }
        let mut clean: Vec<u8> = clean?;
        clean.extend_from_slice(&bytes[from.min(part.end)..part.end]);
        Some((clean, from))
    }

    /// Finds the first key from `from` on, together with the keys that overlap it: to replace only
    /// one of them would leave a part of another.
    fn find(&self, bytes: &[u8], from: usize) -> Option<FoundKeys> {
        let first = self.find_one(bytes, from)?;
        let mut last = first.start;
        let mut end = first.end;
        while let Some(found) = self.find_one(bytes, last + 1)
            && found.start < end
        {
            end = end.max(found.end);
            last = found.start;
        }
        Some(FoundKeys { first, end })
    }

    /// Finds the first key from `from` on; of several there, the longest.
    fn find_one(&self, bytes: &[u8], mut from: usize) -> Option<Range<usize>> {
        let finder = self.finder.as_ref()?;
        while let Some(beginning) = finder.find(Input::new(bytes).range(from..)) {
            let start = beginning.start();
            let rest = &bytes[start..];
            let forms =
                self.forms_up_to(rest).iter().rev().map(|form| form.expose_secret().as_bytes());
            let mut similar = forms.take_while(|form| rest.starts_with(&form[..MIN_KEY_BYTES]));
            if let Some(key) = similar.find(|form| rest.starts_with(form)) {
                return Some(start..start + key.len());
            }
            from = start + 1;
        }
        None
    }
}

/// The part of a form that the automaton knows.
fn beginning(form: &SecretString) -> Vec<u8> {
    let bytes = form.expose_secret().as_bytes();
    bytes[..bytes.len().min(INDEXED_BYTES)].to_vec()
}

fn first_byte(form: &SecretString) -> u8 {
    form.expose_secret().as_bytes()[0]
}

/// The key as it is, as escaped in JSON and by Rust's `Debug`, and as it is written in headers and URLs.
fn forms(key: &str) -> Vec<String> {
    let mut forms = vec![key.to_owned(), key.escape_debug().to_string()];
    if let Ok(json) = serde_json::to_string(key) {
        forms.push(json.trim_matches('"').to_owned());
    }
    if key.len() >= MIN_ENCODED_KEY_BYTES {
        forms.extend(base64_forms(key.as_bytes()));
        let hex = hex(key.as_bytes());
        forms.extend([hex.to_uppercase(), hex, percent_encoded(key)]);
    }
    forms
}

/// The key in Base64, in both alphabets, for each place where it may begin in the encoded text.
fn base64_forms(key: &[u8]) -> impl Iterator<Item = String> {
    [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD].into_iter().flat_map(move |engine| {
        (0..3).map(move |before| {
            let all = [&[0; 2][..before], key].concat();
            // The characters that hold bits of the key and no others.
            let start = (before * 8).div_ceil(6);
            let end = all.len() * 8 / 6;
            engine.encode(all)[start..end].to_owned()
        })
    })
}

fn percent_encoded(key: &str) -> String {
    utf8_percent_encode(key, ENCODED_CHARS).to_string()
}

/// True if a value looks like a key. Servers that need no key are configured with placeholder words
/// such as `lm-studio`; redacting those would damage ordinary text.
fn is_key(text: &str) -> bool {
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let has_upper = text.bytes().any(|byte| byte.is_ascii_uppercase());
    let has_lower = text.bytes().any(|byte| byte.is_ascii_lowercase());
    let is_mixed = has_digit || has_upper && has_lower;
    text.len() >= MIN_WORDLIKE_KEY_BYTES || text.len() >= MIN_KEY_BYTES && is_mixed
}

/// Redacts keys in a stream of chunks, also keys that are split between chunks, and keys that are recognised
/// by their place: in URLs (`scheme://user:password@`) and `Authorization` headers. Bytes that may be
/// the beginning of a key are held back until the following bytes decide.
#[derive(Debug, Default)]
pub struct StreamRedactor {
    held: Vec<u8>,
    /// The number of held bytes that also belong to a key that is replaced already.
    covered: usize,
    /// The bytes that are held back because a place of a key may begin there.
    held_places: Vec<u8>,
}

impl StreamRedactor {
    /// Takes the next chunk and returns the redacted bytes that are certain so far.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let bytes = self.take(&loaded(), bytes);
        redact_placed(&mut self.held_places, bytes, false)
    }

    /// Returns the bytes that were held back, redacted, at the end of the stream.
    pub fn finish(&mut self) -> Vec<u8> {
        let rest = self.take_rest(&loaded());
        redact_placed(&mut self.held_places, Cow::Owned(rest), true).into_owned()
    }

    fn take<'a>(&mut self, keys: &KeySet, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if !self.held.is_empty() {
            self.held.extend_from_slice(bytes);
            let all = std::mem::take(&mut self.held);
            let end = all.len() - keys.partial_key_len(&all);
            return Cow::Owned(self.split(keys, &all, end).into_owned());
        }
        let end = bytes.len() - keys.partial_key_len(bytes);
        self.split(keys, bytes, end)
    }

    fn take_rest(&mut self, keys: &KeySet) -> Vec<u8> {
        let all = std::mem::take(&mut self.held);
        self.split(keys, &all, all.len()).into_owned()
    }

    /// Returns the bytes before `end`, redacted, and holds back the others.
    fn split<'a>(&mut self, keys: &KeySet, bytes: &'a [u8], end: usize) -> Cow<'a, [u8]> {
        let start = self.covered.min(end);
        self.held = bytes[end..].to_vec();
        let (clean, covered) = match keys.redact_part(bytes, self.covered..end) {
            Some((clean, last)) => (Cow::Owned(clean), last),
            None => (Cow::Borrowed(&bytes[start..end]), self.covered),
        };
        self.covered = covered.saturating_sub(end);
        clean
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn keys(all: &[&str]) -> KeySet {
        let all: Vec<_> = all.iter().map(|key| (*key).to_owned()).collect();
        KeySet::default().with(&all).unwrap().unwrap()
    }

    fn hidden(keys: &KeySet, text: &str) -> String {
        let clean = keys.redact(text.as_bytes());
        clean.map_or_else(|| text.to_owned(), |bytes| String::from_utf8(bytes).unwrap())
    }

    /// Writes `[key]` for each placeholder, whose digits are random.
    fn plain(text: &str) -> String {
        let found: Vec<_> = placeholders(text).map(str::to_owned).collect();
        found.iter().fold(text.to_owned(), |text, placeholder| text.replace(placeholder, "[key]"))
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
            assert_eq!(plain(&hidden(&keys, text)), expected);
        }
    }

    #[test]
    fn a_key_is_redacted_in_other_encodings() {
        let key = "sk-proj+12345678?abc/def=";
        let keys = keys(&[key]);
        for before in ["", "u", "me", "me:", "user:"] {
            let text = format!("{before}{key} and more");
            for encoded in [STANDARD_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
                let clean = plain(&hidden(&keys, &encoded));
                let left = clean.split_once("[key]").unwrap_or_else(|| panic!("{clean}"));
                // At most the bits that it shares with its neighbours.
                assert!(left.0.len() <= before.len() * 8 / 6 + 1, "{clean}");
            }
        }
        for text in [
            hex(key.as_bytes()).to_uppercase(),
            hex(key.as_bytes()),
            "sk-proj%2B12345678%3Fabc%2Fdef%3D".to_owned(),
        ] {
            assert_eq!(plain(&hidden(&keys, &format!("a={text}&b"))), "a=[key]&b");
        }
    }

    #[test]
    fn a_key_is_recognised_by_its_place_however_the_stream_is_cut() {
        let key = "glpat-Ab3dEf6hIj";
        for (text, expected) in [
            (
                "url = https://me:glpat-Ab3dEf6hIj@host/x.git\n",
                "url = https://me:[key]@host/x.git\n",
            ),
            ("https://ghp_0123456789abcdefghij@host/x", "https://[key]@host/x"),
            ("https://ghp_0123456789abcdefghij:x-oauth@h", "https://[key]:x-oauth@h"),
            ("AUTHORIZATION: basic eDp5Z2hwXzEyMzQ=\n", "AUTHORIZATION: basic [key]\n"),
            ("-H 'Authorization: Bearer sk-12345678' x", "-H 'Authorization: Bearer [key]' x"),
            (
                "postgres://postgres:postgres@localhost/db",
                "postgres://postgres:postgres@localhost/db",
            ),
            ("https://user:$GITLAB_TOKEN_1@host", "https://user:$GITLAB_TOKEN_1@host"),
            ("git@host:a/b http://localhost:3000/@a", "git@host:a/b http://localhost:3000/@a"),
            ("a: b", "a: b"),
        ] {
            for cut in 0..=text.len() {
                let mut redactor = StreamRedactor::default();
                let mut clean = redactor.push(&text.as_bytes()[..cut]).into_owned();
                clean.extend_from_slice(&redactor.push(&text.as_bytes()[cut..]));
                clean.extend(redactor.finish());
                assert_eq!(plain(&String::from_utf8(clean).unwrap()), expected, "{cut}");
            }
        }
        assert!(is_key(key));
    }

    #[test]
    fn a_key_among_bytes_that_are_no_text_is_hidden_in_its_place() {
        let whole = b"x http://\xff\xff\xffu:Secret123456789@h/y \n";
        let long = b"http://a:Abc123456789\xff\xff\xff\xff\xff\xff\xff\xff@h";
        for (bytes, expected) in [
            (&whole[..], "x http://\u{fffd}\u{fffd}\u{fffd}u:[key]@h/y \n"),
            (&long[..], "http://a:[key]@h"),
        ] {
            let mut redactor = StreamRedactor::default();
            let mut clean = redactor.push(bytes).into_owned();
            clean.extend(redactor.finish());
            assert_eq!(plain(&String::from_utf8_lossy(&clean)), expected);
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
    fn of_keys_that_overlap_nothing_is_left() {
        let keys = keys(&["abc12345", "12345-long-key"]);
        assert_eq!(plain(&hidden(&keys, "x abc12345-long-key y")), "x [key] y");
        assert_eq!(plain(&hidden(&keys, "abc12345abc12345")), "[key][key]");
    }

    #[test]
    fn the_same_secret_has_the_same_placeholder_and_another_one_has_another() {
        let keys = keys(&["sk-12345678", "sk-87654321"]);
        let text = hidden(&keys, "a sk-12345678 b sk-87654321 c sk-12345678");
        let found: Vec<_> = placeholders(&text).collect();
        assert_eq!(found.len(), 3, "{text}");
        assert!(found[0] == found[2] && found[0] != found[1], "{text}");
    }

    #[test]
    fn what_is_hidden_is_not_hidden_again() {
        for text in [
            "postgres://app:[hidden:3fa2]@db/app",
            "https://[hidden:3fa2]@host/x",
            "Authorization: Bearer [hidden:03fb]\n",
        ] {
            let mut redactor = StreamRedactor::default();
            let mut clean = redactor.push(text.as_bytes()).into_owned();
            clean.extend(redactor.finish());
            assert_eq!(String::from_utf8(clean).unwrap(), text);
        }
    }

    #[test]
    fn nothing_but_a_placeholder_is_taken_for_one() {
        let text = "[key] map[key] [hidden] [hidden:…] [hidden:12345] [hidden:xyz1] [hidden:é12]";
        assert_eq!(placeholders(text).count(), 0);
        let found: Vec<_> = placeholders("[hidden:[hidden:0aF9]][hidden:1234").collect();
        assert_eq!(found, ["[hidden:0aF9]"]);
    }

    #[test]
    fn keys_are_refused_when_there_is_no_room() {
        let all: Vec<_> = (0..MAX_KEY_FORMS).map(|number| format!("sk-{number:06}")).collect();
        let full = KeySet::default().with(&all).unwrap().unwrap();
        assert!(full.with(&all[..9]).unwrap().is_none(), "they are known");
        assert!(full.with(&["sk-12345678".to_owned()]).is_err());
        assert_eq!(plain(&hidden(&full, "sk-000000 sk-004095 sk-004096")), "[key] [key] sk-004096");
    }

    proptest! {
        #[test]
        fn a_stream_is_redacted_like_the_whole_text(
            all in vec("[ab]{4}1[ab1]{3,30}", 1..5),
            words in vec((any::<prop::sample::Index>(), "[ab1]{0,9}", 0..30_usize), 0..9),
            size in 1..20_usize,
        ) {
            let all: Vec<_> = all.iter().map(String::as_str).collect();
            let mut text = String::new();
            for (index, between, start) in words {
                let key = all[index.index(all.len())];
                text.push_str(&format!("{}{between}", &key[start.min(key.len())..]));
            }
            let keys = keys(&all);
            let whole = hidden(&keys, &text);
            prop_assert!(all.iter().all(|key| !whole.contains(*key)), "{whole}");
            let mut stream = StreamRedactor::default();
            let mut shown = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                shown.extend_from_slice(&stream.take(&keys, piece));
            }
            shown.extend_from_slice(&stream.take_rest(&keys));
            prop_assert_eq!(String::from_utf8(shown).unwrap(), whole);
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
            shown.extend_from_slice(&stream.take_rest(&keys));
            assert_eq!(String::from_utf8(shown).unwrap(), whole, "{size}");
        }
    }
}
