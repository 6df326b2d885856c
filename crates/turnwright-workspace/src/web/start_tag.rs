//! Parses the attributes of an HTML start tag.

use memchr::memchr;

/// The longest element name that is recognised.
const MAX_NAME_BYTES: usize = 32;

/// The attributes of a start tag, and where it ends.
pub(super) struct StartTag<'a> {
    attributes: Vec<(&'a str, &'a str)>,
    /// Where the tag ends, counted from behind its name.
    pub(super) end: usize,
}

/// The attributes that matter; all others are skipped.
const KNOWN_ATTRIBUTES: &[&str] =
    &["href", "src", "alt", "class", "start", "hidden", "style", "aria-hidden"];

impl<'a> StartTag<'a> {
    /// Parses what follows a tag's name.
    pub(super) fn parse_attributes(text: &'a str) -> StartTag<'a> {
        let bytes = text.as_bytes();
        let mut tag = StartTag { attributes: Vec::new(), end: text.len() };
        let mut at = 0;
        let is_end = |it: u8| it.is_ascii_whitespace() || matches!(it, b'>' | b'/' | b'=');
        loop {
            let skipped =
                bytes[at..].iter().position(|it| !it.is_ascii_whitespace() && *it != b'/');
            let Some(skipped) = skipped else { return tag };
            at += skipped;
            if bytes[at] == b'>' {
                tag.end = at + 1;
                return tag;
            }
            let start = at;
            // A leading equals sign belongs to the name.
            at += 1;
            at += bytes[at..].iter().position(|it| is_end(*it)).unwrap_or(bytes.len() - at);
            let name = &text[start..at];
            let (value, end) = parse_value(text, at);
            at = end;
            let known = find_ignoring_case(KNOWN_ATTRIBUTES, name);
            if let Some(known) =
                known.filter(|it| tag.attributes.iter().all(|(name, _)| name != it))
            {
                tag.attributes.push((known, value));
            }
        }
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|it| it.0 == name).map(|it| it.1)
    }

    pub(super) fn is_hidden(&self) -> bool {
        let is_hidden_by_style = || {
            let style = self.attribute("style").filter(|it| it.len() < 4_096).unwrap_or_default();
            let compact: String = style.chars().filter(|it| !it.is_whitespace()).collect();
            let compact = compact.to_ascii_lowercase();
            ["display:none", "visibility:hidden"].iter().any(|it| compact.contains(it))
        };
        self.attribute("hidden").is_some_and(|it| !it.eq_ignore_ascii_case("until-found"))
            || self.attribute("aria-hidden").is_some_and(|it| it.eq_ignore_ascii_case("true"))
            || is_hidden_by_style()
    }
}

/// The value of the attribute whose name ends at `at`, and where the value ends.
fn parse_value(text: &str, at: usize) -> (&str, usize) {
    let bytes = text.as_bytes();
    let skip_whitespace = |from: usize| {
        let found = bytes[from..].iter().position(|it| !it.is_ascii_whitespace());
        found.map_or(bytes.len(), |it| from + it)
    };
    let equals = skip_whitespace(at);
    if bytes.get(equals) != Some(&b'=') {
        return ("", at);
    }
    let start = skip_whitespace(equals + 1);
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
pub(super) fn find_ignoring_case(list: &[&'static str], name: &str) -> Option<&'static str> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    list.iter().find(|it| it.eq_ignore_ascii_case(name)).copied()
}
