//! Reduces HTML to simpler HTML in one pass over the text, before `markdown` converts that. The
//! result is balanced, shallow and small, and has only the elements and attributes that Markdown
//! can express, so no page can make the conversion slow or overflow its stack.

use memchr::{memchr, memmem};
use url::Url;

use super::entities::{Place, decode_entities};
use super::start_tag::{StartTag, find_ignoring_case, tag_name};
use turnwright_types::text;

/// The maximum nesting depth of the result.
const MAX_DEPTH: usize = 48;
/// The maximum nesting depth of lists and quotes, which are indented.
const MAX_LIST_DEPTH: usize = 12;
/// The maximum number of open elements that are tracked.
const MAX_OPEN_ELEMENTS: usize = 512;
/// The maximum number of elements in the result.
const MAX_ELEMENTS: usize = 50_000;
/// The maximum size of the result.
const MAX_BYTES: usize = 3 * 1024 * 1024;
/// The maximum length of a link's URL.
const MAX_URL_BYTES: usize = 2_000;

/// Elements whose content is not HTML and not for reading.
const RAW_TEXT_ELEMENTS: &[&str] = &[
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
/// Elements that are left out with everything in them.
const DROPPED_ELEMENTS: &[&str] =
    &["nav", "svg", "template", "select", "datalist", "canvas", "audio", "video", "object"];
const VOID_ELEMENTS: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
];
/// Elements whose end tags are often left out.
const OPTIONAL_END_ELEMENTS: &[&str] =
    &["p", "li", "td", "th", "tr", "dt", "dd", "thead", "tbody", "tfoot", "html", "head", "body"];
/// Elements that are kept.
const KEPT_ELEMENTS: &[&str] = &[
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
/// Elements of which only the line break before and after them matters.
const BLOCK_ELEMENTS: &[&str] = &[
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

/// The reduced page.
#[derive(Debug, Default)]
pub(super) struct CleanedHtml {
    pub(super) html: String,
    /// The title as it is written in the page, with entities.
    pub(super) title: Option<String>,
    /// True if the page was longer.
    pub(super) cut: bool,
}

struct OpenElement<'a> {
    name: &'a str,
    /// The element that was written for it, if any.
    written: Option<&'static str>,
    /// True if nothing in it is for reading.
    hidden: bool,
    /// True if it has an entry in `tables`.
    is_table: bool,
}

struct HtmlCleaner<'a> {
    rest: &'a str,
    base: Url,
    out: CleanedHtml,
    open: Vec<OpenElement<'a>>,
    /// Open elements beyond `MAX_OPEN_ELEMENTS`.
    untracked: usize,
    /// How many of the open elements are hidden, are written, and are written lists.
    hidden: usize,
    written: usize,
    lists: usize,
    elements: usize,
    /// For each open table, true if it is a data table rather than layout.
    tables: Vec<bool>,
}

/// Reduces a page. Links are made absolute with `base`.
pub(super) fn simplify(html: &str, base: &Url) -> CleanedHtml {
    let mut cleaner = HtmlCleaner {
        rest: html,
        base: base.clone(),
        out: CleanedHtml::default(),
        open: Vec::new(),
        untracked: 0,
        hidden: 0,
        written: 0,
        lists: 0,
        elements: 0,
        tables: Vec::new(),
    };
    while cleaner.step() {
        if cleaner.elements > MAX_ELEMENTS || cleaner.out.html.len() > MAX_BYTES {
            cleaner.out.cut = true;
            break;
        }
    }
    while !cleaner.open.is_empty() {
        cleaner.pop();
    }
    cleaner.out
}

impl<'a> HtmlCleaner<'a> {
    /// Handles the text up to the next tag, and the tag. Returns false at the end.
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
                let name = tag_name(&self.rest[1..]);
                self.skip_after(1, ">");
                self.end(name);
            }
            Some(first) if first.is_ascii_alphabetic() => {
                let name = tag_name(self.rest);
                let tag = StartTag::parse_attributes(&self.rest[name.len()..]);
                self.rest = &self.rest[name.len() + tag.end..];
                self.start(name, &tag);
            }
            _ => self.text("&lt;"),
        }
        !self.rest.is_empty()
    }

    fn text(&mut self, text: &str) {
        if self.hidden == 0 {
            let room = MAX_BYTES.saturating_sub(self.out.html.len());
            let start = text::prefix(text, room);
            self.out.cut |= start.len() < text.len();
            self.out.html.push_str(start);
        }
    }

    fn skip_after(&mut self, from: usize, end: &str) {
        let rest = &self.rest.as_bytes()[from..];
        let found = memmem::find(rest, end.as_bytes());
        self.rest = found.map_or("", |it| &self.rest[from + it + end.len()..]);
    }

    fn start(&mut self, name: &'a str, tag: &StartTag<'a>) {
        if let Some(raw) = find_ignoring_case(RAW_TEXT_ELEMENTS, name) {
            let content = self.skip_raw_text(raw);
            if raw == "title" && self.out.title.is_none() {
                self.out.title = Some(content.chars().take(300).collect());
            }
            return;
        }
        self.close_hidden(name);
        if find_ignoring_case(VOID_ELEMENTS, name).is_some() {
            return self.write_void(name, tag);
        }
        let hides = tag.is_hidden()
            && !name.eq_ignore_ascii_case("body")
            && !name.eq_ignore_ascii_case("html");
        let hidden = hides || find_ignoring_case(DROPPED_ELEMENTS, name).is_some();
        let loose = find_ignoring_case(OPTIONAL_END_ELEMENTS, name);
        if let Some(loose) = loose.filter(|_| !hidden) {
            return self.write_optional_end(loose);
        }
        if self.open.len() >= MAX_OPEN_ELEMENTS {
            self.untracked += 1;
            return;
        }
        let is_seen = !hidden && self.hidden == 0;
        let is_table = is_seen && name.eq_ignore_ascii_case("table");
        let written = if is_seen { self.write(name, tag) } else { None };
        self.hidden += usize::from(hidden);
        self.written += usize::from(written.is_some());
        self.lists += usize::from(written.is_some_and(is_list));
        self.open.push(OpenElement { name, written, hidden, is_table });
    }

    /// Writes the start tag, if the element is kept.
    fn write(&mut self, name: &str, tag: &StartTag) -> Option<&'static str> {
        if name.eq_ignore_ascii_case("table") {
            // Markdown cannot express a table within a cell.
            let is_data = !self.tables.contains(&true) && is_data_table(self.rest);
            self.tables.push(is_data);
            let written = if is_data { "table" } else { "div" };
            return self.write_plain(written);
        }
        if name.eq_ignore_ascii_case("a") {
            return self.link(tag);
        }
        let kept = find_ignoring_case(KEPT_ELEMENTS, name)
            .or_else(|| find_ignoring_case(BLOCK_ELEMENTS, name).map(|_| "div"))?;
        if self.written >= MAX_DEPTH || is_list(kept) && self.lists >= MAX_LIST_DEPTH {
            return None;
        }
        let attribute = match kept {
            "code" | "pre" => {
                tag.attribute("class").filter(|it| it.contains("lang")).map(|it| ("class", it))
            }
            "ol" => tag.attribute("start").map(|it| ("start", it)),
            _ => None,
        };
        match attribute.filter(|(_, value)| value.len() <= 200) {
            Some((key, value)) => {
                self.out.html.push_str(&format!("<{kept} {key}=\"{}\">", escape_attribute(value)));
                self.elements += 1;
            }
            None => return self.write_plain(kept),
        }
        Some(kept)
    }

    fn write_plain(&mut self, name: &'static str) -> Option<&'static str> {
        if self.written >= MAX_DEPTH {
            return None;
        }
        self.out.html.push_str(&format!("<{name}>"));
        self.elements += 1;
        Some(name)
    }

    /// Links within the page, scripts and the like are of no use to a model.
    fn link(&mut self, tag: &StartTag) -> Option<&'static str> {
        let target = self.address(tag.attribute("href")?)?;
        if self.written >= MAX_DEPTH {
            return None;
        }
        self.out
            .html
            .push_str(&format!("<a href=\"{}\">", escape_attribute(&target.replace('&', "&amp;"))));
        self.elements += 1;
        Some("a")
    }

    fn address(&self, value: &str) -> Option<String> {
        let value = decode_entities(value.trim(), Place::Attribute);
        if value.starts_with('#') || value.len() > MAX_URL_BYTES {
            return None;
        }
        let url = self.base.join(&value).ok()?;
        matches!(url.scheme(), "http" | "https" | "mailto").then(|| url.to_string())
    }

    /// Writes an element whose end tag may be missing: `markdown` closes it by itself and never
    /// nests it.
    fn write_optional_end(&mut self, name: &'static str) {
        if self.hidden > 0 {
            return;
        }
        let is_layout = self.tables.last() == Some(&false);
        match name {
            "html" | "head" | "body" => {}
            "tr" if is_layout => self.out.html.push_str("<p>"),
            "td" | "th" if is_layout => {
                // Only the end is looked at, because blanks may be many.
                if !text::suffix(&self.out.html, 256).trim_end().ends_with("<p>") {
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

    fn write_void(&mut self, name: &str, tag: &StartTag) {
        if self.hidden > 0 || tag.is_hidden() {
            return;
        }
        self.elements += 1;
        match find_ignoring_case(VOID_ELEMENTS, name) {
            Some("br") => self.out.html.push_str("<br>"),
            Some("hr") => self.out.html.push_str("<hr>"),
            Some("base") => {
                let href = tag.attribute("href").map(|it| decode_entities(it, Place::Attribute));
                let new = href.and_then(|it| self.base.join(&it).ok());
                self.base = new.filter(|it| !it.cannot_be_a_base()).unwrap_or(self.base.clone());
            }
            Some("img") => {
                let alt = tag.attribute("alt").map(str::trim).filter(|it| !it.is_empty());
                let source =
                    tag.attribute("src").filter(|it| !it.trim_start().starts_with("data:"));
                let source = source.and_then(|it| self.address(it));
                if let (Some(alt), Some(source)) = (alt.filter(|it| it.len() <= 1_000), source) {
                    let (alt, source) =
                        (escape_attribute(alt), escape_attribute(&source.replace('&', "&amp;")));
                    self.out.html.push_str(&format!("<img alt=\"{alt}\" src=\"{source}\">"));
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if self.untracked > 0 {
            self.untracked -= 1;
            return;
        }
        if let Some(at) = self.open.iter().rposition(|it| it.name.eq_ignore_ascii_case(name)) {
            while self.open.len() > at {
                self.pop();
            }
            return;
        }
        let is_layout = self.tables.last() == Some(&false);
        match find_ignoring_case(OPTIONAL_END_ELEMENTS, name) {
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

    /// Ends a hidden element without an end tag where the parser would end it.
    fn close_hidden(&mut self, next: &str) {
        let Some(top) = self.open.last().filter(|it| it.hidden) else { return };
        let ends = match find_ignoring_case(OPTIONAL_END_ELEMENTS, top.name) {
            Some("p") => {
                find_ignoring_case(BLOCK_ELEMENTS, next).is_some()
                    || find_ignoring_case(KEPT_ELEMENTS, next).is_some_and(is_block)
            }
            Some("td" | "th") => find_ignoring_case(&["td", "th", "tr"], next).is_some(),
            Some("dt" | "dd") => find_ignoring_case(&["dt", "dd"], next).is_some(),
            Some(same) => same.eq_ignore_ascii_case(next),
            None => false,
        };
        if ends {
            self.pop();
        }
    }

    /// Skips and returns the content of an element that contains no elements.
    fn skip_raw_text(&mut self, name: &str) -> &'a str {
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

/// True if the table that begins here has header cells.
fn is_data_table(text: &str) -> bool {
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

fn escape_attribute(value: &str) -> String {
    value.replace('"', "&quot;").replace('<', "&lt;")
}
