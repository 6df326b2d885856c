//! Character references of HTML: `&eacute;`, `&#233;` and `&#xe9;`.
//!
//! The names are a text that is searched, because a table of strings has an address for each of them, which the
//! loader would have to write at each start of the program.

use std::borrow::Cow;

use encoding_rs::WINDOWS_1252;
use memchr::memchr;

/// The names in the order of their bytes, a line each: the name, a question mark if its semicolon may be missing,
/// and one or two code points.
const NAMES: &str = include_str!("entities.txt");
/// The longest name whose semicolon may be missing.
const MAX_LEGACY_BYTES: usize = 6;
/// The longest name.
const MAX_NAME_BYTES: usize = 32;

/// Where a reference stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Text,
    /// There `&copy=1` is a part of a URL.
    Attribute,
}

/// Replaces the character references of a text. What is none stays as it is.
pub(super) fn decode_entities(text: &str, place: Place) -> Cow<'_, str> {
    let Some(mut at) = memchr(b'&', text.as_bytes()) else { return Cow::Borrowed(text) };
    let (mut decoded, mut rest) = (String::with_capacity(text.len()), text);
    loop {
        decoded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let reference = match rest.strip_prefix('#') {
            Some(number) => numeric(number).map(|(text, length)| (text, length + 1)),
            None => named(rest, place),
        };
        match reference {
            Some((characters, length)) => {
                decoded.push_str(&characters);
                rest = &rest[length..];
            }
            None => decoded.push('&'),
        }
        match memchr(b'&', rest.as_bytes()) {
            Some(next) => at = next,
            None => break,
        }
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

/// The character of a number, and how many bytes it takes.
fn numeric(text: &str) -> Option<(String, usize)> {
    let (digits, radix) = match text.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let count = digits.bytes().take_while(|it| char::from(*it).is_digit(radix)).count();
    if count == 0 {
        return None;
    }
    let end = text.len() - digits.len() + count;
    let end = end + usize::from(text.as_bytes().get(end) == Some(&b';'));
    // Pages mean the characters of this code page by the numbers of control characters.
    let character = match u32::from_str_radix(&digits[..count], radix).unwrap_or(u32::MAX) {
        0 => "\u{fffd}".to_owned(),
        code @ 0x80..0xa0 => {
            let byte = u8::try_from(code).unwrap_or_default();
            WINDOWS_1252.decode_without_bom_handling(&[byte]).0.into_owned()
        }
        code => char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER).to_string(),
    };
    Some((character, end))
}

/// The characters of a name, and how many bytes it takes.
fn named(text: &str, place: Place) -> Option<(String, usize)> {
    let bytes = text.as_bytes();
    let is_part = |it: &&u8| it.is_ascii_alphanumeric();
    let count = bytes.iter().take(MAX_NAME_BYTES + 1).take_while(is_part).count();
    if bytes.get(count) == Some(&b';')
        && let Some(entry) = find(&text[..count])
    {
        return Some((entry.characters(), count + 1));
    }
    (2..=count.min(MAX_LEGACY_BYTES)).rev().find_map(|length| {
        let entry = find(&text[..length]).filter(|it| it.is_legacy)?;
        let continues = bytes.get(length).is_some_and(|it| *it == b'=' || is_part(&it));
        (place == Place::Text || !continues).then(|| (entry.characters(), length))
    })
}

struct Entry {
    is_legacy: bool,
    code_points: &'static str,
}

impl Entry {
    fn characters(&self) -> String {
        let codes = self.code_points.split(' ').filter_map(|it| u32::from_str_radix(it, 16).ok());
        codes.filter_map(char::from_u32).collect()
    }
}

fn find(name: &str) -> Option<Entry> {
    let mut lines = NAMES;
    while !lines.is_empty() {
        let half = lines.len() / 2;
        let start = lines[..half].rfind('\n').map_or(0, |it| it + 1);
        let (before, from) = lines.split_at(start);
        let (line, after) = from.split_once('\n').unwrap_or((from, ""));
        let (own, value) = line.split_once(' ')?;
        match own.cmp(name) {
            std::cmp::Ordering::Less => lines = after,
            std::cmp::Ordering::Greater => lines = before,
            std::cmp::Ordering::Equal => {
                let code_points = value.trim_start_matches('?');
                return Some(Entry { is_legacy: code_points != value, code_points });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_found_and_fits() {
        let mut count = 0;
        for line in NAMES.lines() {
            let (name, value) = line.split_once(' ').unwrap();
            let found = find(name).unwrap();
            assert_eq!(value.trim_start_matches('?'), found.code_points, "{name}");
            let points = found.code_points.split(' ').count();
            assert_eq!(found.characters().chars().count(), points, "{name}");
            assert!(name.len() <= MAX_NAME_BYTES, "{name}");
            assert!(!found.is_legacy || name.len() <= MAX_LEGACY_BYTES, "{name}");
            count += 1;
        }
        assert_eq!(count, 2_125);
        assert!(NAMES.lines().is_sorted_by_key(|it| it.split_once(' ').unwrap().0));
        assert!(
            ["", "A", "zzz", "eacut", "eacutes", "CounterClockwiseContourIntegrals"]
                .iter()
                .all(|it| find(it).is_none())
        );
    }

    #[test]
    fn references_are_decoded_as_browsers_do() {
        for (text, expected) in [
            ("a &amp; b &lt;c&gt; &quot;d&quot;", "a & b <c> \"d\""),
            ("&eacute;&Eacute;&nbsp;&mdash;", "éÉ\u{a0}—"),
            ("&#233;&#xe9;&#XE9 &#233x", "ééé éx"),
            ("&bne;&NewLine;&CounterClockwiseContourIntegral;", "=\u{20e5}\n∳"),
            ("&ampx &notit; &notin; &copy", "&x ¬it; ∉ ©"),
            ("&#0;&#x110000;&#xd800;&#99999999999;", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            ("&#128;&#x92;&#129;", "€’\u{81}"),
            ("& &; &# &#; &#x; &#xg &nosuch; &&amp;é&é;", "& &; &# &#; &#x; &#xg &nosuch; &&é&é;"),
        ] {
            assert_eq!(decode_entities(text, Place::Text), expected, "{text}");
        }
        for (text, expected) in
            [("?a=1&amp;b=2&copy=3&copyx&copy;&copy", "?a=1&b=2&copy=3&copyx©©"), ("?a&lt", "?a<")]
        {
            assert_eq!(decode_entities(text, Place::Attribute), expected, "{text}");
        }
    }
}
