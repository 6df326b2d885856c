//! Converts a server's response to text for a model: decodes the characters, turns HTML into
//! Markdown, and removes hidden or deceptive characters.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8};
use memchr::memmem;
use turnwright_types::look_alike::without_invisible;
use turnwright_types::text;

use super::FetchedBody;
use super::html::markdown::to_markdown;
use super::html::read_page;
use crate::files::is_utf8;

/// The most bytes of a page's text that are kept.
const MAX_TEXT_BYTES: usize = 2 * 1024 * 1024;
/// The most bytes of a text other than HTML that are decoded.
const MAX_PLAIN_BYTES: usize = 5 * 1024 * 1024;
/// How many bytes at the start of a page are searched for its declared encoding.
const DECLARATION_BYTES: usize = 1_024;
/// A page with less text that speaks of JavaScript has no other.
const MAX_PLACEHOLDER_BYTES: usize = 400;
/// How many bytes are examined to tell text from binary data.
const SAMPLE_BYTES: usize = 8 * 1_024;
/// The most pages that a session keeps.
const MAX_PAGES: usize = 8;
/// The most bytes of all kept pages.
const MAX_CACHE_BYTES: usize = 4 * 1024 * 1024;

/// A page as text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WebPage {
    /// The URL after redirects.
    pub url: String,
    pub status: u16,
    /// The media type without parameters; `unknown` if the server sends none.
    pub media_type: String,
    pub title: Option<String>,
    /// The text, or a note about what is there instead.
    pub text: String,
    /// The number of bytes received.
    pub bytes: usize,
    /// True if there was more than what is kept.
    pub is_truncated: bool,
    /// True if there is hardly any text because scripts would make it.
    pub needs_scripts: bool,
}

/// How a body is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyKind {
    Html,
    Text,
    Opaque,
    /// The type does not tell, so the content has to.
    Undeclared,
}

/// True if a body of this type is not worth reading.
pub(super) fn is_opaque(kind: &str) -> bool {
    body_kind(&essence(kind)) == BodyKind::Opaque
}

/// A media type without its parameters.
fn essence(kind: &str) -> String {
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn body_kind(essence: &str) -> BodyKind {
    let (family, name) = essence.split_once('/').unwrap_or(("", ""));
    match (family, name) {
        ("text", "html") | ("application", "xhtml+xml") => BodyKind::Html,
        ("text" | "message", _) => BodyKind::Text,
        ("image", "svg+xml") => BodyKind::Text,
        ("image" | "audio" | "video" | "font" | "model", _) => BodyKind::Opaque,
        ("application", "pdf" | "zip" | "gzip" | "x-tar" | "wasm" | "msword") => BodyKind::Opaque,
        _ if name.ends_with("json") || name.ends_with("xml") || name.ends_with("javascript") => {
            BodyKind::Text
        }
        _ => BodyKind::Undeclared,
    }
}

/// Converts a response to a page; `raw` leaves HTML unchanged. Takes long, so it must not run on
/// the runtime's thread.
pub fn to_page(fetched: &FetchedBody, raw: bool) -> WebPage {
    let kind = essence(&fetched.content_type);
    let bytes = &fetched.bytes;
    let sample = &bytes[..bytes.len().min(SAMPLE_BYTES)];
    let sort = match body_kind(&kind) {
        BodyKind::Undeclared => kind_by_content(sample),
        // Many servers call every file of an unknown kind text.
        BodyKind::Html | BodyKind::Text if is_binary(&decode(sample, &fetched.content_type)) => {
            BodyKind::Opaque
        }
        sort => sort,
    };
    let mut page = WebPage {
        url: fetched.url.to_string(),
        status: fetched.status,
        media_type: if is_plain_media_type(&kind) { kind } else { "unknown".to_owned() },
        bytes: bytes.len(),
        is_truncated: fetched.is_truncated,
        ..WebPage::default()
    };
    match sort {
        BodyKind::Opaque | BodyKind::Undeclared => page.set_placeholder(fetched.length),
        BodyKind::Text => page
            .set_text(&decode(&bytes[..bytes.len().min(MAX_PLAIN_BYTES)], &fetched.content_type)),
        BodyKind::Html => {
            let html = decode(bytes, &fetched.content_type);
            let tree = read_page(&html, &fetched.url);
            page.title = tree.title.as_deref().map(clean_title).filter(|title| !title.is_empty());
            page.is_truncated |= tree.cut && !raw;
            if raw {
                page.set_text(&html);
                return page;
            }
            page.set_text(&to_markdown(&tree.root));
            if page.text.trim().is_empty() && !tree.targets.is_empty() {
                let targets = tree.targets.join(" and ");
                page.set_text(&format!("(This page only leads to {targets})"));
            }
            page.needs_scripts = html.contains("<script") && is_placeholder(&page.text);
            if page.needs_scripts && page.text.trim().is_empty() {
                page.text = page.title.clone().unwrap_or_default();
            }
        }
    }
    page
}

impl WebPage {
    fn set_text(&mut self, text: &str) {
        let start = text::prefix(text, MAX_TEXT_BYTES);
        self.is_truncated |= start.len() < text.len();
        self.text = remove_invisible(start);
    }

    fn set_placeholder(&mut self, length: Option<u64>) {
        let size = length.map_or("unknown size".to_owned(), |length| format!("{length} bytes"));
        self.text = format!(
            "(not shown, because it is not text: {}, {size}; if you need it, download it with exec: read_file shows \
             pictures, PDF and office files)",
            self.media_type
        );
    }
}

/// True if a page says nothing, or only that it needs JavaScript.
fn is_placeholder(text: &str) -> bool {
    let text = text.trim();
    text.is_empty()
        || text.len() < MAX_PLACEHOLDER_BYTES && text.to_ascii_lowercase().contains("javascript")
}

/// True if a server's media type is harmless enough to appear outside of the `<untrusted>` marks.
fn is_plain_media_type(kind: &str) -> bool {
    (1..=100).contains(&kind.len())
        && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/+.-_".contains(&byte))
}

/// Returns true if a text has the control characters of binary data. NUL alone may be a mistake, or half of a character
/// in UTF-16 that nothing declares.
fn is_binary(sample: &str) -> bool {
    sample.contains('\0')
        && sample.contains(|char: char| {
            char.is_control() && !char.is_whitespace() && !"\0\x08\x1b".contains(char)
        })
}

fn kind_by_content(sample: &[u8]) -> BodyKind {
    let is_wide = Encoding::for_bom(sample).is_some();
    if sample.contains(&0) && !is_wide {
        return BodyKind::Opaque;
    }
    let start = sample.trim_ascii_start();
    for mark in ["<!doctype html", "<html"] {
        let begins = start.get(..mark.len());
        if begins.is_some_and(|begins| begins.eq_ignore_ascii_case(mark.as_bytes())) {
            return BodyKind::Html;
        }
    }
    // The end of the sample may cut a character.
    if is_wide || is_utf8(sample, true) { BodyKind::Text } else { BodyKind::Opaque }
}

/// Decodes a body by its byte order mark, its header, its own declaration, or a guess.
fn decode(bytes: &[u8], kind: &str) -> String {
    let mut parameters = kind.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let charset = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    let label = charset.map(|parameter| parameter.1.trim().trim_matches(['"', '\'']).as_bytes());
    let said = label.and_then(Encoding::for_label).or_else(|| {
        declared_charset(bytes)
            .and_then(Encoding::for_label)
            .filter(|encoding| encoding.is_ascii_compatible())
    });
    let encoding = match said {
        Some(encoding) => encoding,
        None if std::str::from_utf8(bytes).is_ok() => UTF_8,
        None => {
            let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
            detector.feed(&bytes[..bytes.len().min(64 * 1024)], true);
            detector.guess(None, Utf8Detection::Allow)
        }
    };
    // A byte order mark takes precedence over declarations.
    encoding.decode(bytes).0.into_owned()
}

/// The encoding that an HTML page declares at its beginning as `charset=…`, and XML as `encoding="…"`.
fn declared_charset(bytes: &[u8]) -> Option<&[u8]> {
    let start = bytes[..bytes.len().min(DECLARATION_BYTES)].to_ascii_lowercase();
    if !start.trim_ascii_start().starts_with(b"<") {
        return None;
    }
    let is_xml = start.trim_ascii_start().starts_with(b"<?xml");
    let declaration = memmem::find(&start, b"?>").filter(|_| is_xml).map(|end| &start[..end]);
    let at = declaration
        .and_then(|declaration| end_of(b"encoding=", declaration))
        .or_else(|| end_of(b"charset=", &start))?;
    let rest = &bytes[at..bytes.len().min(DECLARATION_BYTES)];
    let name = rest.strip_prefix(b"\"").or(rest.strip_prefix(b"'")).unwrap_or(rest);
    let end = name
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'-' | b'_' | b':'))
        .unwrap_or(name.len());
    Some(&name[..end])
}

/// Returns the position in a text where a word that it contains ends.
fn end_of(word: &[u8], text: &[u8]) -> Option<usize> {
    Some(memmem::find(text, word)? + word.len())
}

fn clean_title(text: &str) -> String {
    text::cut(remove_invisible(&text::one_line(text)), 200)
}

/// Removes invisible characters, with which a page could tell the model something that people do not
/// see.
fn remove_invisible(text: &str) -> String {
    // The selectors that say whether an emoji is drawn in colour are invisible, too. They go first, so that none of
    // them keeps a joiner within one of our marks.
    without_invisible(&text.replace(['\u{fe0e}', '\u{fe0f}'], ""))
}

/// Wraps foreign text in `<untrusted>` marks that it cannot imitate.
pub fn wrap_untrusted(source: &str, text: &str) -> String {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let source = source.replace(['"', '<', '>', '\n'], "");
    let text = escape_marks(text);
    format!("<untrusted source=\"{source}\">\n{text}{end}</untrusted>\n")
}

/// Escapes tags that look like our marks, whatever their spacing.
fn escape_marks(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'<', rest.as_bytes()) {
        let (before, tag) = rest.split_at(at);
        result.push_str(before);
        let word = tag[1..].trim_start_matches(|c: char| c == '/' || c.is_whitespace());
        let is_mark = text::strip_prefix_ignore_case(word, "untrusted").is_some();
        result.push_str(if is_mark { "&lt;" } else { "<" });
        rest = &tag[1..];
    }
    result.push_str(rest);
    result
}

fn total_bytes(pages: &VecDeque<(String, bool, Arc<WebPage>)>) -> usize {
    pages.iter().map(|(url, _, page)| url.len() + page.text.len()).sum()
}

/// The last pages of a session, so that reading on does not fetch again.
// Held only to look at a short list.
#[derive(Debug, Default)]
pub struct PageCache(Mutex<VecDeque<(String, bool, Arc<WebPage>)>>);

impl PageCache {
    /// Keeps a page under the URL that was requested, in place of an older one.
    pub fn insert(&self, url: &str, raw: bool, page: &Arc<WebPage>) {
        let mut pages = self.0.lock();
        pages.retain(|cached| cached.0 != url || cached.1 != raw);
        pages.push_back((url.to_owned(), raw, Arc::clone(page)));
        while pages.len() > MAX_PAGES || pages.len() > 1 && total_bytes(&pages) > MAX_CACHE_BYTES {
            pages.pop_front();
        }
    }

    /// The page that was fetched from this URL.
    pub fn get(&self, url: &str, raw: bool) -> Option<Arc<WebPage>> {
        let pages = self.0.lock();
        pages
            .iter()
            .find(|cached| cached.0 == url && cached.1 == raw)
            .map(|cached| Arc::clone(&cached.2))
    }
}
