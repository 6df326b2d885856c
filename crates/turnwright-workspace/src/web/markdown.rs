//! Turns the HTML that `html::simplify` has made into Markdown, in one pass: each open element has the Markdown of
//! what it contains so far, which is added to that of the element around it when it ends.
//!
//! `simplify` writes few elements in one form, nests them little, and leaves out only the end tags of paragraphs, items
//! and the parts of tables. So nothing here recurses, and no page is too deep.

use memchr::memchr;

use super::entities::{Place, decode_entities};
use super::markdown_text::{code_fence, compress_whitespace, escape, indent, inline_code};
use turnwright_types::text;

/// Elements that go on in the next paragraph if they are not closed in this one.
const INLINE_ELEMENTS: &[&str] = &["a", "b", "strong", "i", "em", "code", "kbd", "del", "s"];
/// The parts of a table that contain cells only.
const TABLE_PARTS: &[&str] = &["table", "thead", "tbody", "tfoot", "tr"];
/// An emphasis of more than this is not joined with the next one: a page may have thousands in a row, and each is copied.
const MAX_JOINED_BYTES: usize = 1_024;

struct MarkdownElement<'a> {
    name: &'a str,
    /// The target of a link, the language of a program, or the first number of a list.
    attribute: String,
    /// The Markdown of its content.
    content: String,
    /// Whether a program text has more than blanks so far.
    has_text: bool,
    /// True at the beginning of a line, where spaces say nothing and some characters are marks.
    is_line_start: bool,
    /// How many items it has, if it is a list.
    items: u32,
    /// The emphasis at the end of the content: its mark, and where it begins.
    emphasis: Option<(&'static str, usize)>,
}

impl<'a> MarkdownElement<'a> {
    fn new(name: &'a str, attribute: String) -> MarkdownElement<'a> {
        let is_line_start = !INLINE_ELEMENTS.contains(&name);
        MarkdownElement {
            name,
            attribute,
            content: String::new(),
            has_text: false,
            is_line_start,
            items: 0,
            emphasis: None,
        }
    }
}

struct MarkdownWriter<'a> {
    rest: &'a str,
    /// The page first.
    open: Vec<MarkdownElement<'a>>,
    /// Inline elements that ended with their paragraph, and begin again with the next text.
    suspended: Vec<(&'a str, String)>,
}

/// Converts HTML that `simplify` has made.
pub(super) fn to_markdown(html: &str) -> String {
    let page = MarkdownElement::new("page", String::new());
    let mut writer = MarkdownWriter { rest: html, open: vec![page], suspended: Vec::new() };
    while writer.step().is_some() {}
    writer.close(1, false);
    writer.open.pop().map(|it| it.content.trim().to_owned()).unwrap_or_default()
}

impl<'a> MarkdownWriter<'a> {
    /// Handles the text up to the next tag, and the tag. `None` at the end.
    fn step(&mut self) -> Option<()> {
        let Some(at) = memchr(b'<', self.rest.as_bytes()) else {
            self.text(self.rest);
            return None;
        };
        self.text(&self.rest[..at]);
        self.rest = &self.rest[at + 1..];
        if let Some(rest) = self.rest.strip_prefix('/') {
            let (name, rest) = rest.split_once('>')?;
            self.rest = rest;
            self.end(name);
            return Some(());
        }
        let name = &self.rest[..self.rest.find([' ', '>'])?];
        self.rest = &self.rest[name.len()..];
        let mut attributes = Vec::new();
        while let Some(rest) = self.rest.strip_prefix(' ') {
            let (key, rest) = rest.split_once("=\"")?;
            let (value, rest) = rest.split_once('"')?;
            attributes.push((key, value));
            self.rest = rest;
        }
        self.rest = self.rest.strip_prefix('>')?;
        let attribute = |key: &str| {
            let found = attributes.iter().find(|it| it.0 == key);
            found.map(|it| decode_entities(it.1, Place::Attribute).into_owned()).unwrap_or_default()
        };
        match name {
            "br" => self.line_break(),
            "hr" => {
                self.prepare_block();
                self.append("\n\n- - -\n\n", true);
            }
            "img" => self.image(&attribute("alt"), &attribute("src")),
            "a" => self.start_inline(name, attribute("href")),
            "code" | "pre" => {
                let class = attribute("class");
                let language = class.split(' ').find_map(|it| {
                    it.strip_prefix("language-").or_else(|| it.strip_prefix("lang-"))
                });
                self.start_code(name, language.unwrap_or_default());
            }
            "ol" => self.start_block(name, attribute("start")),
            _ if INLINE_ELEMENTS.contains(&name) => self.start_inline(name, String::new()),
            _ => self.start_block(name, String::new()),
        }
        Some(())
    }

    fn text(&mut self, raw: &str) {
        let text = decode_entities(raw, Place::Text);
        if self.is_open("pre") {
            let top = self.top();
            top.has_text |= !text.trim().is_empty();
            top.content.push_str(&text);
            return;
        }
        let text = compress_whitespace(&text);
        if text.trim_matches(' ').is_empty() {
            if TABLE_PARTS.contains(&self.top().name) {
                return;
            }
        } else {
            self.enter_cell();
            self.resume();
        }
        let is_code = self.is_open("code");
        let top = self.top();
        let is_first = top.is_line_start || top.content.ends_with([' ', '\n']);
        let text = if is_first { text.trim_start_matches(' ') } else { &text };
        if !text.is_empty() {
            let is_line_start = top.is_line_start;
            let escaped = if is_code { text.into() } else { escape(text, is_line_start) };
            top.content.push_str(&escaped);
            top.is_line_start = false;
            top.emphasis = None;
        }
    }

    fn line_break(&mut self) {
        if self.is_open("pre") {
            self.top().content.push('\n');
            return;
        }
        self.enter_cell();
        let top = self.top();
        top.content.truncate(top.content.trim_end_matches(' ').len());
        let breaks = ["  \n", "\n", ""];
        let lines = top.content.len() - top.content.trim_end_matches('\n').len();
        let is_first = top.content.is_empty();
        self.append(if is_first { "" } else { breaks[lines.min(2)] }, false);
        self.top().is_line_start = true;
    }

    fn image(&mut self, alt: &str, source: &str) {
        self.enter_cell();
        self.resume();
        let alt = text::one_line(alt).replace('[', "\\[").replace(']', "\\]");
        self.append(&format!("![{alt}]({})", escape_target(source)), false);
    }

    fn start_inline(&mut self, name: &'a str, attribute: String) {
        self.enter_cell();
        // A link ends where the next one begins.
        if name == "a" {
            if let Some(at) = self.position(name) {
                self.close(at, true);
            }
            self.suspended.retain(|it| it.0 != name);
        }
        self.resume();
        let mut element = MarkdownElement::new(name, attribute);
        // `<b>one</b><b>two</b>` is one emphasis.
        let top = self.top();
        if let Some((mark, start)) = top.emphasis.take()
            && emphasis_mark(name) == Some(mark)
            && top.content.len() - start <= MAX_JOINED_BYTES
        {
            let last = top.content.split_off(start);
            let (blanks, last) = last.split_at(last.len() - last.trim_start().len());
            let inner = last.strip_prefix(mark).and_then(|it| it.strip_suffix(mark));
            element.content = format!("{blanks}{}", inner.unwrap_or(last));
        }
        self.open.push(element);
    }

    fn start_code(&mut self, name: &'a str, language: &str) {
        let is_word = |it: char| it.is_alphanumeric() || "+-#._".contains(it);
        let language: String = language.chars().take_while(|it| is_word(*it)).collect();
        if name == "pre" {
            return self.start_block(name, language);
        }
        let is_other = self.top().name == "pre" && self.top().has_text;
        if is_other && !language.is_empty() {
            // The same program in another language.
            self.close(self.open.len() - 1, false);
            self.open.push(MarkdownElement::new("pre", String::new()));
        }
        if let Some(program) = self.open.iter_mut().rfind(|it| it.name == "pre")
            && program.attribute.is_empty()
        {
            program.attribute.clone_from(&language);
        }
        self.start_inline(name, language);
    }

    fn start_block(&mut self, name: &'a str, attribute: String) {
        match name {
            "li" => {
                self.enter_cell();
                self.close_item();
                self.close_paragraph();
            }
            "td" | "th" => return self.start_cell(name),
            "tr" | "thead" | "tbody" | "tfoot" | "caption" => {
                let Some(table) = self.position("table") else { return };
                let section = (name == "tr")
                    .then(|| {
                        (table + 1..self.open.len()).find(|it| is_section(self.open[*it].name))
                    })
                    .flatten();
                self.close(section.unwrap_or(table) + 1, false);
            }
            _ if is_heading(name) && is_heading(self.top().name) => {
                self.close(self.open.len() - 1, true);
            }
            _ => self.prepare_block(),
        }
        self.open.push(MarkdownElement::new(name, attribute));
    }

    /// What comes now is not a part of the last paragraph.
    fn prepare_block(&mut self) {
        self.enter_cell();
        self.close_paragraph();
    }

    fn close_paragraph(&mut self) {
        let is_limit = |it: &&str| matches!(*it, "p" | "td" | "th" | "caption" | "table");
        self.close_nearest("p", is_limit);
    }

    fn close_item(&mut self) {
        let is_limit =
            |it: &&str| matches!(*it, "li" | "ul" | "ol" | "blockquote" | "td" | "th" | "table");
        self.close_nearest("li", is_limit);
    }

    /// Closes the innermost of the elements that `is_limit` names, if it is a `name`.
    fn close_nearest(&mut self, name: &str, is_limit: impl Fn(&&str) -> bool) {
        let found = self.open.iter().rposition(|it| is_limit(&it.name));
        if let Some(at) = found.filter(|it| self.open[*it].name == name) {
            self.close(at, true);
        }
    }

    /// What a table contains is in a cell.
    fn enter_cell(&mut self) {
        if TABLE_PARTS.contains(&self.top().name) {
            self.start_cell("td");
        }
    }

    fn start_cell(&mut self, name: &'a str) {
        let Some(table) = self.position("table") else { return };
        let place = (table + 1..self.open.len()).rev();
        let row = place.clone().find(|it| self.open[*it].name == "tr");
        let row = row.or_else(|| place.clone().find(|it| is_section(self.open[*it].name)));
        self.close(row.unwrap_or(table) + 1, false);
        if self.top().name != "tr" {
            self.open.push(MarkdownElement::new("tr", String::new()));
        }
        self.open.push(MarkdownElement::new(name, String::new()));
        self.suspended.clear();
    }

    fn end(&mut self, name: &str) {
        match name {
            "p" => self.close_paragraph(),
            "li" => self.close_item(),
            _ => match self.position(name) {
                Some(at) => self.close(at, false),
                None => {
                    if let Some(at) = self.suspended.iter().rposition(|it| it.0 == name) {
                        self.suspended.remove(at);
                    }
                }
            },
        }
    }

    /// Opens the inline elements again that ended with their paragraph.
    fn resume(&mut self) {
        for (name, attribute) in std::mem::take(&mut self.suspended) {
            self.open.push(MarkdownElement::new(name, attribute));
        }
    }

    /// Ends all elements from this one on.
    fn close(&mut self, from: usize, suspends: bool) {
        let first = self.suspended.len();
        while self.open.len() > from.max(1) {
            let Some(element) = self.open.pop() else { return };
            let is_inline = INLINE_ELEMENTS.contains(&element.name);
            let content = self.markdown_of(&element);
            // In programs nothing is emphasised.
            let is_text = !self.is_open("pre") && !self.is_open("code");
            let before = self.top().content.len();
            self.append(&content, !is_inline);
            let mark = emphasis_mark(element.name).filter(|it| is_text && content.ends_with(it));
            if let Some(mark) = mark {
                self.top().emphasis = Some((mark, before));
            }
            if suspends && is_inline {
                self.suspended.insert(first, (element.name, element.attribute));
            }
        }
    }

    /// The Markdown of an element that was the innermost.
    fn markdown_of(&mut self, element: &MarkdownElement) -> String {
        let content = element.content.as_str();
        let trimmed = content.trim_matches('\n');
        let is_code = self.is_open("pre") || self.is_open("code");
        match element.name {
            _ if is_code && INLINE_ELEMENTS.contains(&element.name) => content.to_owned(),
            "pre" if self.is_open("td") || self.is_open("th") => inline_code(content),
            "pre" => code_fence(trimmed, &element.attribute),
            "code" => inline_code(content),
            "kbd" | "del" | "s" => content.to_owned(),
            "a" => {
                let text = content.trim();
                let after = &content[content.trim_end().len()..];
                format!("[{text}]({}){after}", escape_target(&element.attribute))
            }
            "td" | "th" => cell(content),
            "tr" if content.trim().is_empty() => String::new(),
            "tr" => format!("\n| {}\n", content.trim()),
            "table" => table(content),
            "ul" | "ol" | "blockquote" if trimmed.trim().is_empty() => String::new(),
            "ul" | "ol" if self.top().name == "li" => format!("\n{trimmed}\n"),
            "blockquote" => {
                let lines: Vec<_> =
                    trimmed.trim_end().lines().map(|it| format!("> {it}")).collect();
                format!("\n\n{}\n\n", lines.join("\n"))
            }
            "li" => self.item(content),
            name => match (emphasis_mark(name), name.strip_prefix('h')) {
                (Some(mark), _) => emphasis(content, mark),
                (_, Some(level)) => heading(content, level),
                _ => format!("\n\n{trimmed}\n\n"),
            },
        }
    }

    fn item(&mut self, content: &str) -> String {
        let list = self.top();
        let mark = if list.name == "ol" {
            let first: u32 = list.attribute.parse().unwrap_or(1);
            list.items += 1;
            format!("{}. ", first.saturating_add(list.items - 1))
        } else {
            "- ".to_owned()
        };
        format!("\n{mark}{}", indent(content.trim_start(), mark.len()))
    }

    /// Adds the Markdown of an element to that of the innermost that is open.
    fn append(&mut self, markdown: &str, is_block: bool) {
        let is_program = self.is_open("pre");
        let top = self.top();
        top.emphasis = None;
        if markdown.is_empty() || is_program {
            top.has_text |= !markdown.trim().is_empty();
            return top.content.push_str(markdown);
        }
        if is_block {
            top.content.truncate(top.content.trim_end_matches(' ').len());
        }
        let newlines = top.content.len() - top.content.trim_end_matches('\n').len();
        let more = markdown.len() - markdown.trim_start_matches('\n').len();
        // An empty line is enough.
        let surplus =
            if top.content.is_empty() { 0 } else { more.min((newlines + more).saturating_sub(2)) };
        let is_spaced = newlines == 0 && top.content.ends_with(' ');
        let markdown = &markdown[surplus..];
        top.content.push_str(if is_spaced { markdown.trim_start_matches(' ') } else { markdown });
        top.is_line_start = is_block;
    }

    fn top(&mut self) -> &mut MarkdownElement<'a> {
        if self.open.is_empty() {
            self.open.push(MarkdownElement::new("page", String::new()));
        }
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    fn is_open(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.open.iter().rposition(|it| it.name == name)
    }
}

fn is_section(name: &str) -> bool {
    matches!(name, "thead" | "tbody" | "tfoot")
}

fn is_heading(name: &str) -> bool {
    matches!(name, "h1" | "h2" | "h3" | "h4" | "h5" | "h6")
}

fn emphasis_mark(name: &str) -> Option<&'static str> {
    match name {
        "b" | "strong" => Some("**"),
        "i" | "em" => Some("*"),
        _ => None,
    }
}

/// Emphasis must not begin or end with a space, nor go on in another paragraph.
fn emphasis(content: &str, mark: &str) -> String {
    let inner = content.trim();
    if inner.is_empty() || inner.contains("\n\n") {
        return content.to_owned();
    }
    let start = content.len() - content.trim_start().len();
    format!("{}{mark}{inner}{mark}{}", &content[..start], &content[start + inner.len()..])
}

fn heading(content: &str, level: &str) -> String {
    let lines: Vec<_> = content.lines().map(str::trim).filter(|it| !it.is_empty()).collect();
    if lines.is_empty() {
        return String::new();
    }
    let marks = "#".repeat(level.parse().unwrap_or(1));
    format!("\n\n{marks} {}\n\n", lines.join(" "))
}

fn escape_target(url: &str) -> String {
    url.replace('(', "\\(").replace(')', "\\)")
}

fn cell(content: &str) -> String {
    let line = text::one_line(content);
    format!(" {} |", line.replace('|', "\\|"))
}

/// Writes the rows with a separator line after the first, and an empty line after what is before them.
fn table(content: &str) -> String {
    let lines: Vec<_> = content.lines().filter(|it| !it.trim().is_empty()).collect();
    let head = lines.iter().position(|it| it.starts_with('|')).unwrap_or(lines.len());
    let mut text = format!("\n\n{}\n\n", lines[..head].join("\n"));
    for (index, line) in lines[head..].iter().enumerate() {
        text.push_str(line);
        text.push('\n');
        if index == 0 {
            let cells = line.replace("\\|", "").matches('|').count().saturating_sub(1);
            text.push_str(&format!("|{}\n", " --- |".repeat(cells)));
        }
    }
    format!("\n\n{}\n\n", text.trim_matches('\n'))
}

#[cfg(test)]
mod tests;
