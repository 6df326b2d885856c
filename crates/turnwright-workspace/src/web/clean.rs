//! HTML → less HTML, in one pass over the text, before anything builds a tree of it. What comes
//! out is balanced, nowhere deep, not large, and has only the elements and attributes that
//! Markdown has words for; so no page can make the conversion slow or its stack overflow.

use memchr::{memchr, memmem};
use url::Url;

use super::tag::{Tag, find, name};

/// How deep elements are nested in the result.
const DEEPEST: usize = 48;
/// The same for lists and quotes, which are indented.
const DEEPEST_LIST: usize = 12;
/// How many open elements are remembered.
const MOST_OPEN: usize = 512;
/// Elements of the result.
const MOST_ELEMENTS: usize = 50_000;
/// Bytes of the result.
const MOST_BYTES: usize = 3 * 1024 * 1024;
/// The longest address of a link.
const LONGEST_LINK: usize = 2_000;

/// Their content is no HTML and not for reading.
const RAW: &[&str] = &[
    "script",
    "style",
    "noscript",
    "iframe",
    "xmp",
    "noembed",
    "noframes",
    "textarea",
    "title",
    "plaintext",
];
/// Left out with all that is in them.
const DROPPED: &[&str] =
    &["nav", "svg", "template", "select", "datalist", "canvas", "audio", "video", "object"];
const VOID: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
];
/// Their end tags are often left out.
const LOOSE: &[&str] =
    &["p", "li", "td", "th", "tr", "dt", "dd", "thead", "tbody", "tfoot", "html", "head", "body"];
/// Kept as they are.
const KEPT: &[&str] = &[
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "p",
    "li",
    "ul",
    "ol",
    "blockquote",
    "pre",
    "code",
    "kbd",
    "b",
    "strong",
    "i",
    "em",
    "del",
    "s",
    "table",
    "thead",
    "tbody",
    "tfoot",
    "tr",
    "td",
    "th",
    "caption",
];
/// Only the break before and after them matters.
const BLOCKS: &[&str] = &[
    "div",
    "section",
    "article",
    "main",
    "header",
    "footer",
    "aside",
    "figure",
    "figcaption",
    "details",
    "summary",
    "address",
    "form",
    "fieldset",
    "legend",
    "dialog",
    "center",
    "dl",
    "hgroup",
    "search",
    "option",
];

/// What is left of a page.
#[derive(Debug, Default)]
pub(super) struct Cleaned {
    pub(super) html: String,
    /// As it stands there, entities and all.
    pub(super) title: Option<String>,
    /// There was more.
    pub(super) cut: bool,
}

/// An element that is open.
struct Open<'a> {
    name: &'a str,
    /// What was written for it, if anything was.
    written: Option<&'static str>,
    /// Nothing in it is for reading.
    hidden: bool,
    /// It stands in `tables`.
    is_table: bool,
}

struct Cleaner<'a> {
    rest: &'a str,
    base: Url,
    out: Cleaned,
    open: Vec<Open<'a>>,
    /// Elements above `MOST_OPEN`.
    uncounted: usize,
    /// How many of the open ones are hidden, written, or written lists.
    hidden: usize,
    written: usize,
    lists: usize,
    elements: usize,
    /// For each open table, whether its cells are data.
    tables: Vec<bool>,
}

/// Cleans a page. Links are made absolute with `base`.
pub(super) fn clean(html: &str, base: &Url) -> Cleaned {
    let mut cleaner = Cleaner {
        rest: html,
        base: base.clone(),
        out: Cleaned::default(),
        open: Vec::new(),
        uncounted: 0,
        hidden: 0,
        written: 0,
        lists: 0,
        elements: 0,
        tables: Vec::new(),
    };
    while cleaner.step() {
        if cleaner.elements > MOST_ELEMENTS || cleaner.out.html.len() > MOST_BYTES {
            cleaner.out.cut = true;
            break;
        }
    }
    while !cleaner.open.is_empty() {
        cleaner.pop();
    }
    cleaner.out
}

impl<'a> Cleaner<'a> {
    /// Takes the text up to the next tag, and the tag. Returns whether there is more.
    fn step(&mut self) -> bool {
        let Some(at) = memchr(b'<', self.rest.as_bytes()) else {
            self.text(self.rest);
            return false;
        };
        self.text(&self.rest[..at]);
        self.rest = &self.rest[at + 1..];
        match self.rest.as_bytes().first() {
            Some(b'!') if self.rest.starts_with("!--") => self.skip_after(3, "-->"),
            Some(b'!' | b'?') => self.skip_after(1, ">"),
            Some(b'/') if self.rest.as_bytes().get(1).is_some_and(u8::is_ascii_alphabetic) => {
                let name = name(&self.rest[1..]);
                self.skip_after(1, ">");
                self.end(name);
            }
            Some(first) if first.is_ascii_alphabetic() => {
                let name = name(self.rest);
                let tag = Tag::read(&self.rest[name.len()..]);
                self.rest = &self.rest[name.len() + tag.length..];
                self.start(name, &tag);
            }
            _ => self.text("&lt;"),
        }
        !self.rest.is_empty()
    }

    fn text(&mut self, text: &str) {
        if self.hidden == 0 {
            let room = MOST_BYTES.saturating_sub(self.out.html.len());
            let end = floor(text, room);
            self.out.cut |= end < text.len();
            self.out.html.push_str(&text[..end]);
        }
    }

    fn skip_after(&mut self, from: usize, end: &str) {
        let rest = &self.rest.as_bytes()[from..];
        let found = memmem::find(rest, end.as_bytes());
        self.rest = found.map_or("", |it| &self.rest[from + it + end.len()..]);
    }

    fn start(&mut self, name: &'a str, tag: &Tag<'a>) {
        if let Some(raw) = find(RAW, name) {
            let content = self.raw(raw);
            if raw == "title" && self.out.title.is_none() {
                self.out.title = Some(content.chars().take(300).collect());
            }
            return;
        }
        self.close_hidden(name);
        if find(VOID, name).is_some() {
            return self.void(name, tag);
        }
        let hides =
            tag.hides() && !name.eq_ignore_ascii_case("body") && !name.eq_ignore_ascii_case("html");
        let hidden = hides || find(DROPPED, name).is_some();
        let loose = find(LOOSE, name);
        if let Some(loose) = loose.filter(|_| !hidden) {
            return self.loose(loose);
        }
        if self.open.len() >= MOST_OPEN {
            self.uncounted += 1;
            return;
        }
        let is_seen = !hidden && self.hidden == 0;
        let is_table = is_seen && name.eq_ignore_ascii_case("table");
        let written = if is_seen { self.write(name, tag) } else { None };
        self.hidden += usize::from(hidden);
        self.written += usize::from(written.is_some());
        self.lists += usize::from(written.is_some_and(is_list));
        self.open.push(Open { name, written, hidden, is_table });
    }

    /// Writes a start tag, if the element has one in the result.
    fn write(&mut self, name: &str, tag: &Tag) -> Option<&'static str> {
        if name.eq_ignore_ascii_case("table") {
            // A table within a cell has no words of its own in Markdown.
            let is_data = !self.tables.contains(&true) && is_data(self.rest);
            self.tables.push(is_data);
            let written = if is_data { "table" } else { "div" };
            return self.write_plain(written);
        }
        if name.eq_ignore_ascii_case("a") {
            return self.link(tag);
        }
        let kept = find(KEPT, name).or_else(|| find(BLOCKS, name).map(|_| "div"))?;
        if self.written >= DEEPEST || is_list(kept) && self.lists >= DEEPEST_LIST {
            return None;
        }
        let attribute = match kept {
            "code" | "pre" => {
                tag.get("class").filter(|it| it.contains("lang")).map(|it| ("class", it))
            }
            "ol" => tag.get("start").map(|it| ("start", it)),
            _ => None,
        };
        match attribute.filter(|(_, value)| value.len() <= 200) {
            Some((key, value)) => {
                self.out.html.push_str(&format!("<{kept} {key}=\"{}\">", quoted(value)));
                self.elements += 1;
            }
            None => return self.write_plain(kept),
        }
        Some(kept)
    }

    fn write_plain(&mut self, name: &'static str) -> Option<&'static str> {
        if self.written >= DEEPEST {
            return None;
        }
        self.out.html.push_str(&format!("<{name}>"));
        self.elements += 1;
        Some(name)
    }

    /// Links within the page, scripts and the like are no use to a model.
    fn link(&mut self, tag: &Tag) -> Option<&'static str> {
        let target = self.address(tag.get("href")?)?;
        if self.written >= DEEPEST {
            return None;
        }
        self.out.html.push_str(&format!("<a href=\"{}\">", quoted(&target)));
        self.elements += 1;
        Some("a")
    }

    fn address(&self, value: &str) -> Option<String> {
        let value = plain(value.trim());
        if value.starts_with('#') || value.len() > LONGEST_LINK {
            return None;
        }
        let url = self.base.join(&value).ok()?;
        matches!(url.scheme(), "http" | "https" | "mailto").then(|| url.to_string())
    }

    /// What may stand open for long: the parser closes these by itself, and never nests them.
    fn loose(&mut self, name: &'static str) {
        if self.hidden > 0 {
            return;
        }
        let is_layout = self.tables.last() == Some(&false);
        match name {
            "html" | "head" | "body" => {}
            "tr" if is_layout => self.out.html.push_str("<p>"),
            "td" | "th" if is_layout => {
                if !self.out.html.trim_end().ends_with("<p>") {
                    self.out.html.push_str(" | ");
                }
            }
            "thead" | "tbody" | "tfoot" if is_layout => {}
            "td" | "th" | "tr" | "thead" | "tbody" | "tfoot" if self.tables.is_empty() => {}
            "dt" | "dd" => self.out.html.push_str("<p>"),
            _ => self.out.html.push_str(&format!("<{name}>")),
        }
        self.elements += 1;
    }

    fn void(&mut self, name: &str, tag: &Tag) {
        if self.hidden > 0 || tag.hides() {
            return;
        }
        self.elements += 1;
        match find(VOID, name) {
            Some("br") => self.out.html.push_str("<br>"),
            Some("hr") => self.out.html.push_str("<hr>"),
            Some("base") => {
                let new = tag.get("href").and_then(|it| self.base.join(&plain(it)).ok());
                self.base = new.filter(|it| !it.cannot_be_a_base()).unwrap_or(self.base.clone());
            }
            Some("img") => {
                let alt = tag.get("alt").map(str::trim).filter(|it| !it.is_empty());
                let source = tag.get("src").filter(|it| !it.trim_start().starts_with("data:"));
                let source = source.and_then(|it| self.address(it));
                if let (Some(alt), Some(source)) = (alt.filter(|it| it.len() <= 1_000), source) {
                    let (alt, source) = (quoted(alt), quoted(&source));
                    self.out.html.push_str(&format!("<img alt=\"{alt}\" src=\"{source}\">"));
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if self.uncounted > 0 {
            self.uncounted -= 1;
            return;
        }
        if let Some(at) = self.open.iter().rposition(|it| it.name.eq_ignore_ascii_case(name)) {
            while self.open.len() > at {
                self.pop();
            }
            return;
        }
        let is_layout = self.tables.last() == Some(&false);
        match find(LOOSE, name) {
            Some("dt" | "dd") if self.hidden == 0 => self.out.html.push_str("</p>"),
            Some("tr") if is_layout && self.hidden == 0 => self.out.html.push_str("</p>"),
            Some(loose @ ("p" | "li")) if self.hidden == 0 => {
                self.out.html.push_str(&format!("</{loose}>"));
            }
            // The parser knows where rows and cells end.
            _ => {}
        }
    }

    fn pop(&mut self) {
        let Some(open) = self.open.pop() else { return };
        self.hidden -= usize::from(open.hidden);
        if let Some(written) = open.written {
            self.written -= 1;
            self.lists -= usize::from(is_list(written));
            self.out.html.push_str(&format!("</{written}>"));
        }
        if open.is_table {
            self.tables.pop();
        }
    }

    /// A hidden element without an end tag ends where the parser would end it.
    fn close_hidden(&mut self, next: &str) {
        let Some(top) = self.open.last().filter(|it| it.hidden) else { return };
        let ends = match find(LOOSE, top.name) {
            Some("p") => find(BLOCKS, next).is_some() || find(KEPT, next).is_some_and(is_block),
            Some("td" | "th") => find(&["td", "th", "tr"], next).is_some(),
            Some("dt" | "dd") => find(&["dt", "dd"], next).is_some(),
            Some(same) => same.eq_ignore_ascii_case(next),
            None => false,
        };
        if ends {
            self.pop();
        }
    }

    /// The content of an element that holds no elements, which is passed over.
    fn raw(&mut self, name: &str) -> &'a str {
        let all = self.rest;
        let mut from = 0;
        while let Some(at) = memmem::find(&all.as_bytes()[from..], b"</") {
            let start = from + at;
            let after = &all.as_bytes()[start + 2..];
            if after.len() >= name.len()
                && after[..name.len()].eq_ignore_ascii_case(name.as_bytes())
            {
                self.rest = &all[start + 1..];
                self.skip_after(0, ">");
                return &all[..start];
            }
            from = start + 2;
        }
        self.rest = "";
        all
    }
}

fn is_list(name: &str) -> bool {
    matches!(name, "ul" | "ol" | "blockquote")
}

fn is_block(name: &str) -> bool {
    !matches!(name, "code" | "kbd" | "b" | "strong" | "i" | "em" | "del" | "s")
}

/// Whether a table that begins here has heads, before it or another one ends or begins.
fn is_data(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = memchr(b'<', rest.as_bytes()) {
        rest = &rest[at + 1..];
        let starts = |word: &str| {
            let bytes = rest.as_bytes();
            bytes.len() > word.len()
                && bytes[..word.len()].eq_ignore_ascii_case(word.as_bytes())
                && !bytes[word.len()].is_ascii_alphanumeric()
        };
        if starts("th") || starts("thead") {
            return true;
        }
        if starts("table") || starts("/table") {
            return false;
        }
    }
    false
}

/// The few entities that addresses have.
fn plain(value: &str) -> String {
    value.replace("&quot;", "\"").replace("&#39;", "'").replace("&amp;", "&")
}

fn quoted(value: &str) -> String {
    value.replace('"', "&quot;").replace('<', "&lt;")
}

/// The last end of a character up to `at`.
pub fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0)
}
