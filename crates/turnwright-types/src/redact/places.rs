//! Keys that are recognised by their place in a URL or a header, whether they are loaded or not.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, Input};

use super::{MIN_WORDLIKE_KEY_BYTES, is_key, is_placeholder, placeholder};

/// Returns a URL without user info, query and fragment, which may contain a secret.
pub fn url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = place.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => url.to_owned(),
    }
}

/// Returns the part of a header's value that may be a key: the last word, as in `Bearer KEY`.
pub fn header_key(value: &str) -> Option<&str> {
    value.split_whitespace().next_back()
}

/// The text before a key that is recognised by its place: a scheme, or the name of a header.
const PLACES: [&str; 2] = ["://", "authorization:"];
/// A longer text behind a place holds no key.
const MAX_PLACED_BYTES: usize = 4_096;

fn find_place(bytes: &[u8], from: usize) -> Option<aho_corasick::Match> {
    static FINDER: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let finder = FINDER
        .get_or_init(|| AhoCorasick::builder().ascii_case_insensitive(true).build(PLACES).ok());
    finder.as_ref()?.find(Input::new(bytes).range(from..))
}

/// Redacts keys that are recognised by their place. `held` are the bytes that are held back until the next ones come.
pub(super) fn redact_placed<'a>(
    held: &mut Vec<u8>,
    bytes: Cow<'a, [u8]>,
    is_last: bool,
) -> Cow<'a, [u8]> {
    let bytes = if held.is_empty() {
        bytes
    } else {
        Cow::Owned([std::mem::take(held), bytes.into_owned()].concat())
    };
    let (keys, certain) = placed_keys(&bytes, is_last);
    if keys.is_empty() && certain == bytes.len() {
        return bytes;
    }
    *held = bytes[certain..].to_vec();
    let mut clean = Vec::with_capacity(certain);
    let mut from = 0;
    for key in keys {
        clean.extend_from_slice(&bytes[from..key.start]);
        clean.extend_from_slice(placeholder(&bytes[key.clone()]).as_bytes());
        from = key.end;
    }
    clean.extend_from_slice(&bytes[from..certain]);
    Cow::Owned(clean)
}

/// The keys in a text, and the length of the part in which all of them are known.
pub(super) fn placed_keys(bytes: &[u8], is_last: bool) -> (Vec<Range<usize>>, usize) {
    let mut keys = Vec::new();
    let mut from = 0;
    while let Some(place) = find_place(bytes, from) {
        let start = place.end();
        let is_url = place.pattern().as_usize() == 0;
        let rest = &bytes[start..];
        let is_end: fn(&u8) -> bool = if is_url {
            |byte| *byte <= b' ' || b"/?#\"'<>`|\\^{}".contains(byte)
        } else {
            |byte| b"\r\n\"'<>`|\\".contains(byte)
        };
        let found = rest.iter().take(MAX_PLACED_BYTES).position(is_end);
        let length = match found {
            Some(length) => length,
            None if rest.len() < MAX_PLACED_BYTES && !is_last => return (keys, place.start()),
            None => rest.len().min(MAX_PLACED_BYTES),
        };
        let text = with_equal_places(&rest[..length]);
        let key = if is_url { key_in_authority(&text) } else { key_in_header(&text) };
        keys.extend(key.map(|key| start + key.start..start + key.end));
        from = start + length;
    }
    // A place may go on in the next chunk.
    let longest = (bytes.len() - from).min(PLACES[1].len() - 1);
    let partial = (1..=longest).rev().find(|length| {
        let end = &bytes[bytes.len() - length..];
        let mut starts = PLACES.iter().filter_map(|place| place.as_bytes().get(..*length));
        starts.any(|start| start.eq_ignore_ascii_case(end))
    });
    (keys, bytes.len() - partial.filter(|_| !is_last).unwrap_or_default())
}

/// A text in which everything is at the same place as in the bytes.
fn with_equal_places(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => {
            let chars =
                bytes.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' });
            Cow::Owned(chars.collect())
        }
    }
}

/// The password in `user:password@host`, or a key in its place. A plain word is a placeholder or the password of
/// a test database.
fn key_in_authority(text: &str) -> Option<Range<usize>> {
    let end = text.rfind('@')?;
    let key = match text[..end].find(':') {
        // `https://KEY:x-oauth-basic@host`.
        Some(colon) if !is_key(&text[colon + 1..end]) => 0..colon,
        Some(colon) => colon + 1..end,
        None => 0..end,
    };
    let value = &text[key.clone()];
    let is_name = key.start == 0 && value.len() < MIN_WORDLIKE_KEY_BYTES;
    let is_hidden = is_placeholder(value);
    (is_key(value) && !is_name && !is_hidden && !value.starts_with('$')).then_some(key)
}

/// The last word of `basic KEY`, unless it looks like code or an example: `authHeader,`, `Bearer ${apiKey}`, or a word
/// without a digit. After `basic` no digit is needed, because a short login in Base64 may have none.
fn key_in_header(text: &str) -> Option<Range<usize>> {
    let end = text.trim_end().trim_end_matches([',', ';', ')', ']', '}']).len();
    let start = text[..end].rfind(' ').map_or(0, |space| space + 1);
    let value = &text[start..end];
    let is_basic = text[..start].trim().eq_ignore_ascii_case("basic");
    let is_random = is_basic || value.contains(|char: char| char.is_ascii_digit());
    (is_random && is_key(value) && !value.contains(['$', '(', '[', '{'])).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_loses_what_may_contain_a_secret() {
        for (address, expected) in [
            ("", ""),
            ("h", "h"),
            ("h/v1?key=k", "h/v1"),
            ("https://", "https://"),
            ("https://h", "https://h"),
            ("https://h:8080/v1/", "https://h:8080/v1/"),
            ("https://me:password@h/v1?key=k#f", "https://h/v1"),
            ("https://key@h", "https://h"),
            ("https://a@b@h/x", "https://h/x"),
            ("https://h/a@b", "https://h/a@b"),
            ("https://h?a=b@c/d", "https://h"),
            ("https://h#?f", "https://h"),
            ("https://@", "https://"),
            ("http://é:ü@ö/ä?ß", "http://ö/ä"),
        ] {
            assert_eq!(url(address), expected, "{address}");
        }
    }

    #[test]
    fn the_key_in_a_header_is_the_last_word() {
        for (value, expected) in [
            ("", None),
            (" \t", None),
            ("key", Some("key")),
            ("Bearer key", Some("key")),
            (" Basic  a\tb ", Some("b")),
            ("Bearer ", Some("Bearer")),
        ] {
            assert_eq!(header_key(value), expected, "{value:?}");
        }
    }

    #[test]
    fn code_and_examples_in_the_place_of_a_key_are_shown() {
        for (text, expected) in [
            ("Authorization: authHeader,", None),
            ("authorization: this.headers.forUser(id1),", None),
            ("authorization: config.authorizationToken", None),
            ("Authorization: Bearer ${apiKey}", None),
            ("Authorization: Bearer $API_TOKEN_2", None),
            ("Authorization: Bearer {{accessToken1}}", None),
            ("Authorization: Bearer {self.settings.api_key_2}", None),
            ("Authorization: Bearer YOUR_ACCESS_TOKEN_HERE", None),
            ("Authorization: Bearer [hidden:03fb]", None),
            ("Authorization: lin_api_a1b2c3d4", Some("lin_api_a1b2c3d4")),
            ("authorization: Bearer a1b2c3d4,", Some("a1b2c3d4")),
            ("authorization: basic dXNlcjpwYXNz", Some("dXNlcjpwYXNz")),
        ] {
            let (keys, _) = placed_keys(text.as_bytes(), true);
            let found: Vec<_> = keys.into_iter().map(|key| &text[key]).collect();
            assert_eq!(found, Vec::from_iter(expected), "{text}");
        }
    }
}
