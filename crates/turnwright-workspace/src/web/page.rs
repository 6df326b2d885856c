//! What a server has sent → text that a model can read: characters out of bytes, Markdown out of
//! HTML, nothing that hides or pretends.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8};
use htmd::element_handler::Handlers;
use htmd::options::{BulletListMarker, HrStyle, Options};
use htmd::{Element, HtmlToMarkdown};

use super::Fetched;
use super::clean::{Cleaned, clean, floor};

/// Bytes that are kept of a page's text.
const MOST_TEXT: usize = 2 * 1024 * 1024;
/// Bytes of text that is no HTML that are looked at.
const MOST_PLAIN: usize = 5 * 1024 * 1024;
/// How far a page's own word about its characters may be from its beginning.
const META: usize = 1_024;
/// What decides whether bytes are text when nobody says so.
const SAMPLE: usize = 8 * 1_024;
/// For the conversion, whose functions call each other for each level of the page.
const STACK: usize = 32 * 1024 * 1024;
/// Pages that a session keeps.
const MOST_PAGES: usize = 8;
/// Bytes of all of them.
const MOST_KEPT: usize = 4 * 1024 * 1024;

/// A page as text.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// Where it came from in the end.
    pub url: String,
    /// The status.
    pub status: u16,
    /// The type without its parameters; `unknown` if the server does not say.
    pub kind: String,
    /// What the page calls itself.
    pub title: Option<String>,
    /// The text, or a sentence about what is there instead.
    pub text: String,
    /// Bytes that came.
    pub bytes: usize,
    /// There was more than what is kept.
    pub cut: bool,
}

/// The type of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Html,
    Text,
    Opaque,
    /// The bytes have to say.
    Open,
}

/// Whether a body of this type is not worth reading.
pub(super) fn is_opaque(kind: &str) -> bool {
    sort(&essence(kind)) == Sort::Opaque
}

/// A type without its parameters.
fn essence(kind: &str) -> String {
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn sort(essence: &str) -> Sort {
    let (family, name) = essence.split_once('/').unwrap_or(("", ""));
    match (family, name) {
        ("text", "html") | ("application", "xhtml+xml") => Sort::Html,
        ("text" | "message", _) => Sort::Text,
        ("image", "svg+xml") => Sort::Text,
        ("image" | "audio" | "video" | "font" | "model", _) => Sort::Opaque,
        ("application", "pdf" | "zip" | "gzip" | "x-tar" | "wasm" | "msword") => Sort::Opaque,
        _ if name.ends_with("json") || name.ends_with("xml") || name.ends_with("javascript") => {
            Sort::Text
        }
        _ => Sort::Open,
    }
}

/// Makes a page of an answer; `raw` leaves HTML as it is. Takes its time: not for the runtime's
/// thread.
pub fn unfold(fetched: &Fetched, raw: bool) -> Page {
    let kind = essence(&fetched.kind);
    let bytes = &fetched.bytes;
    let sort = match sort(&kind) {
        Sort::Open => by_content(bytes),
        sort => sort,
    };
    let mut page = Page {
        url: fetched.url.to_string(),
        status: fetched.status,
        kind: if is_word(&kind) { kind } else { "unknown".to_owned() },
        title: None,
        text: String::new(),
        bytes: bytes.len(),
        cut: fetched.cut,
    };
    match sort {
        Sort::Opaque | Sort::Open => page.describe(fetched.length),
        Sort::Text => page.fill(&decode(&bytes[..bytes.len().min(MOST_PLAIN)], &fetched.kind)),
        Sort::Html => {
            let html = decode(bytes, &fetched.kind);
            let cleaned = clean(&html, &fetched.url);
            page.title = cleaned.title.as_deref().map(title).filter(|it| !it.is_empty());
            page.cut |= cleaned.cut && !raw;
            let converted = if raw { None } else { markdown(cleaned) };
            page.fill(converted.as_deref().unwrap_or(&html));
        }
    }
    page
}

impl Page {
    fn fill(&mut self, text: &str) {
        let end = floor(text, MOST_TEXT);
        self.cut |= end < text.len();
        self.text = harmless(&text[..end]);
    }

    fn describe(&mut self, length: Option<u64>) {
        let size = match length {
            Some(length) => format!("{length} bytes"),
            None => "unknown size".to_owned(),
        };
        self.text = format!("(not shown: this is no text but {}, {size})", self.kind);
    }
}

/// Whether a server's word for a type may be repeated outside of the marks.
fn is_word(kind: &str) -> bool {
    let fits = |it: u8| it.is_ascii_alphanumeric() || b"/+.-_".contains(&it);
    (1..=100).contains(&kind.len()) && kind.bytes().all(fits)
}

fn by_content(bytes: &[u8]) -> Sort {
    let sample = &bytes[..bytes.len().min(SAMPLE)];
    let is_wide = Encoding::for_bom(sample).is_some();
    if sample.contains(&0) && !is_wide {
        return Sort::Opaque;
    }
    let begins = |word: &str| {
        let start = sample.trim_ascii_start();
        start.len() >= word.len() && start[..word.len()].eq_ignore_ascii_case(word.as_bytes())
    };
    if begins("<!doctype html") || begins("<html") {
        return Sort::Html;
    }
    let is_text = match std::str::from_utf8(sample) {
        Ok(_) => true,
        // A character may be cut off by the end of the sample.
        Err(error) => error.error_len().is_none() || is_wide,
    };
    if is_text { Sort::Text } else { Sort::Opaque }
}

/// The characters of a body: by its mark, its header, its own word, or by what it looks like.
fn decode(bytes: &[u8], kind: &str) -> String {
    let mut parameters = kind.split(';').skip(1).filter_map(|it| it.split_once('='));
    let charset = parameters.find(|it| it.0.trim().eq_ignore_ascii_case("charset"));
    let label = charset.map(|it| it.1.trim().trim_matches(['"', '\'']).as_bytes());
    let own = || meta(bytes).and_then(Encoding::for_label).filter(|it| it.is_ascii_compatible());
    let said = label.and_then(Encoding::for_label).or_else(own);
    let encoding = match said {
        Some(encoding) => encoding,
        None if std::str::from_utf8(bytes).is_ok() => UTF_8,
        None => {
            let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
            detector.feed(&bytes[..bytes.len().min(64 * 1024)], true);
            detector.guess(None, Utf8Detection::Allow)
        }
    };
    // A byte order mark counts more than what is said.
    encoding.decode(bytes).0.into_owned()
}

/// `charset=…` at the beginning of an HTML page.
fn meta(bytes: &[u8]) -> Option<&[u8]> {
    let start = bytes[..bytes.len().min(META)].to_ascii_lowercase();
    if !start.trim_ascii_start().starts_with(b"<") {
        return None;
    }
    let word = b"charset=";
    let at = memchr::memmem::find(&start, word)? + word.len();
    let rest = &bytes[at..bytes.len().min(META)];
    let rest = rest.strip_prefix(b"\"").or(rest.strip_prefix(b"'")).unwrap_or(rest);
    let is_part = |it: &u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b':');
    let end = rest.iter().position(|it| !is_part(it)).unwrap_or(rest.len());
    Some(&rest[..end])
}

fn title(text: &str) -> String {
    let plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    let plain = plain.replace("&#39;", "'").replace("&amp;", "&");
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    harmless(&line).chars().take(200).collect()
}

/// Markdown, or nothing if the conversion fails, which would be a bug.
fn markdown(cleaned: Cleaned) -> Option<String> {
    let thread = std::thread::Builder::new().name("page".to_owned()).stack_size(STACK);
    let converting = thread.spawn(move || converter().convert(&cleaned.html).ok());
    converting.ok()?.join().ok()?
}

fn converter() -> HtmlToMarkdown {
    let options = Options {
        hr_style: HrStyle::Dashes,
        bullet_list_marker: BulletListMarker::Dash,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    // The tables of the library are padded to their widest cell, which costs tokens and can be
    // made to cost all memory.
    HtmlToMarkdown::builder()
        .options(options)
        .add_handler(vec!["td", "th"], |handlers: &dyn Handlers, element: Element| {
            Some(cell(&handlers.walk_children(element.node).content).into())
        })
        .add_handler(vec!["tr"], |handlers: &dyn Handlers, element: Element| {
            let cells = handlers.walk_children(element.node).content;
            let cells = cells.trim();
            (!cells.is_empty()).then(|| format!("\n| {cells}\n").into())
        })
        .add_handler(vec!["table"], |handlers: &dyn Handlers, element: Element| {
            Some(table(&handlers.walk_children(element.node).content).into())
        })
        .build()
}

fn cell(content: &str) -> String {
    let line = content.split_whitespace().collect::<Vec<_>>().join(" ");
    format!(" {} |", line.replace('|', "\\|"))
}

/// The rows, with a line under the first.
fn table(content: &str) -> String {
    let (mut text, mut has_head) = (String::from("\n\n"), false);
    for line in content.lines().filter(|it| !it.trim().is_empty()) {
        text.push_str(line);
        text.push('\n');
        if !has_head && line.starts_with('|') {
            has_head = true;
            let cells = line.replace("\\|", "").matches('|').count().saturating_sub(1);
            text.push_str(&format!("|{}\n", " --- |".repeat(cells)));
        }
    }
    text.push('\n');
    text
}

/// The text without what is not seen: a page could say to the model what no person reads.
fn harmless(text: &str) -> String {
    let is_seen = |it: &char| match *it {
        '\n' | '\t' => true,
        it if it.is_control() => false,
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}' => false,
        _ => true,
    };
    text.chars().filter(is_seen).collect()
}

/// Text of others, between marks that it cannot imitate.
pub fn wrap(source: &str, text: &str) -> String {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let source = source.replace(['"', '<', '>', '\n'], "");
    let text = disarmed(text);
    format!("<untrusted source=\"{source}\">\n{text}{end}</untrusted>\n")
}

/// The text without tags like ours, however they are spaced.
fn disarmed(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'<', rest.as_bytes()) {
        let (before, tag) = rest.split_at(at);
        result.push_str(before);
        let word = tag[1..].trim_start_matches(|it: char| it == '/' || it.is_whitespace());
        let name = word.get(..9).is_some_and(|it| it.eq_ignore_ascii_case("untrusted"));
        result.push_str(if name { "&lt;" } else { "<" });
        rest = &tag[1..];
    }
    result.push_str(rest);
    result
}

/// The last pages of a session, so that reading on does not fetch again.
#[derive(Debug, Default)]
// A std mutex: held to look at a short list.
pub struct Pages(Mutex<VecDeque<(String, bool, Arc<Page>)>>);

impl Pages {
    /// Keeps a page under the address that was asked for, in place of an older one.
    pub fn keep(&self, url: &str, raw: bool, page: &Arc<Page>) {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.retain(|it| it.0 != url || it.1 != raw);
        pages.push_back((url.to_owned(), raw, Arc::clone(page)));
        let bytes = |all: &VecDeque<(String, bool, Arc<Page>)>| -> usize {
            all.iter().map(|it| it.0.len() + it.2.text.len()).sum()
        };
        while pages.len() > MOST_PAGES || pages.len() > 1 && bytes(&pages) > MOST_KEPT {
            pages.pop_front();
        }
    }

    /// The page that came from there.
    pub fn get(&self, url: &str, raw: bool) -> Option<Arc<Page>> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.iter().find(|it| it.0 == url && it.1 == raw).map(|it| Arc::clone(&it.2))
    }
}
