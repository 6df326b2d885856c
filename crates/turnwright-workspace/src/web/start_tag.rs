//! Parses one start tag of HTML: its name and the attributes that matter.

use memchr::memchr;

/// The longest element name that is recognized.
const MAX_NAME_BYTES: usize = 32;

/// The attributes of a start tag, and its length.
pub(super) struct StartTag<'a> {
    attributes: Vec<(&'a str, &'a str)>,
    pub(super) length: usize,
}

/// The attributes that matter; all others are skipped.
const KNOWN_ATTRIBUTES: &[&str] =
    &["href", "src", "alt", "class", "start", "hidden", "style", "aria-hidden"];

impl<'a> StartTag<'a> {
    /// Parses what follows a tag's name.
    pub(super) fn read(text: &'a str) -> StartTag<'a> {
        let bytes = text.as_bytes();
        let mut tag = StartTag { attributes: Vec::new(), length: text.len() };
        let mut at = 0;
        let is_end = |it: u8| it.is_ascii_whitespace() || matches!(it, b'>' | b'/' | b'=');
        loop {
            let skipped =
                bytes[at..].iter().position(|it| !it.is_ascii_whitespace() && *it != b'/');
            let Some(skipped) = skipped else { return tag };
            at += skipped;
            if bytes[at] == b'>' {
                tag.length = at + 1;
                return tag;
            }
            let start = at;
            // A leading equals sign belongs to the name.
            at += 1;
            at += bytes[at..].iter().position(|it| is_end(*it)).unwrap_or(bytes.len() - at);
            let name = &text[start..at];
            let (value, end) = value(text, at);
            at = end;
            let known = find_name(KNOWN_ATTRIBUTES, name);
            if let Some(known) =
                known.filter(|it| tag.attributes.iter().all(|(name, _)| name != it))
            {
                tag.attributes.push((known, value));
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|it| it.0 == name).map(|it| it.1)
    }

    pub(super) fn is_hidden(&self) -> bool {
        let style = || {
            let style = self.get("style").filter(|it| it.len() < 4_096).unwrap_or_default();
            let bare: String = style.chars().filter(|it| !it.is_whitespace()).collect();
            let bare = bare.to_ascii_lowercase();
            ["display:none", "visibility:hidden"].iter().any(|it| bare.contains(it))
        };
        self.get("hidden").is_some_and(|it| !it.eq_ignore_ascii_case("until-found"))
            || self.get("aria-hidden").is_some_and(|it| it.eq_ignore_ascii_case("true"))
            || style()
    }
}

/// The value of the attribute whose name ends at `at`, and where the value ends.
fn value(text: &str, at: usize) -> (&str, usize) {
    let bytes = text.as_bytes();
    let past_space = |from: usize| {
        let found = bytes[from..].iter().position(|it| !it.is_ascii_whitespace());
        found.map_or(bytes.len(), |it| from + it)
    };
    let equals = past_space(at);
    if bytes.get(equals) != Some(&b'=') {
        return ("", at);
    }
    let start = past_space(equals + 1);
    match bytes.get(start) {
        Some(quote @ (b'"' | b'\'')) => {
            let start = start + 1;
            let end = memchr(*quote, &bytes[start..]).map_or(bytes.len(), |it| start + it);
            (&text[start..end], (end + 1).min(bytes.len()))
        }
        _ => {
            let is_end = |it: &u8| it.is_ascii_whitespace() || *it == b'>';
            let end = bytes[start..].iter().position(is_end).map_or(bytes.len(), |it| start + it);
            (&text[start..end], end)
        }
    }
}

/// The name at the beginning of a tag.
pub(super) fn tag_name(text: &str) -> &str {
    let is_end = |it: u8| it.is_ascii_whitespace() || matches!(it, b'/' | b'>');
    let end = text.bytes().position(is_end).unwrap_or(text.len());
    &text[..end]
}

/// The entry of `list` that equals `name`, ignoring case.
pub(super) fn find_name(list: &[&'static str], name: &str) -> Option<&'static str> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    list.iter().find(|it| it.eq_ignore_ascii_case(name)).copied()
}
