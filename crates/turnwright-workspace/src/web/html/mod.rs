//! Reads HTML into a small tree of what is for reading, which `markdown` converts.
//!
//! `html5gum` finds the tags and the text, in time that is linear for every page. The tree is built here and not by
//! `html5ever`, whose stack of open elements has no limit: this tree has few elements, is nested little, and has only
//! the attributes that Markdown can express. So no page can make the conversion slow or overflow its stack.

pub(super) mod markdown;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::LazyLock;

use html5ever::{Attribute, LocalName, QualName, ns};
use html5gum::naive_next_state;
use markup5ever_rcdom::{Node, NodeData};
use url::Url;

use crate::markup::{MarkupEvent, read_markup};
use turnwright_types::text;

/// The maximum nesting depth of the tree.
const MAX_DEPTH: usize = 48;
/// The maximum nesting depth of lists and quotes, which are indented.
const MAX_LIST_DEPTH: usize = 12;
/// The maximum number of open elements that are tracked.
const MAX_OPEN_ELEMENTS: usize = 512;
/// The maximum number of tags that are read.
const MAX_TAGS: usize = 500_000;
/// The maximum number of elements of the tree.
const MAX_ELEMENTS: usize = 50_000;
/// The maximum size of its text.
const MAX_BYTES: usize = 3 * 1024 * 1024;
/// About how many bytes an item or a quote adds before each of its lines.
const INDENTATION_BYTES: usize = 4;
/// The maximum length of a link's URL.
const MAX_URL_BYTES: usize = 2_000;
/// The most addresses to which a page leads by itself.
const MAX_TARGETS: usize = 8;
/// The maximum length of the title.
const MAX_TITLE_CHARS: usize = 300;

/// Elements that are left out with everything in them.
const DROPPED_ELEMENTS: &[&str] = &[
    "nav", "svg", "template", "select", "datalist", "canvas", "audio", "video", "object",
    "noframes",
];
const VOID_ELEMENTS: &[&str] = &[
    "area", "base", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta", "param",
    "source", "track", "wbr",
];
/// Blocks that Markdown can express.
const KEPT_BLOCKS: &[&str] =
    &["h1", "h2", "h3", "h4", "h5", "h6", "p", "li", "ul", "ol", "blockquote", "pre", "table"];
/// The parts of a table.
const TABLE_PARTS: &[&str] = &["thead", "tbody", "tfoot", "tr", "td", "th", "caption"];
/// Blocks of which only the line break before and after them matters.
static OTHER_BLOCKS: LazyLock<Vec<&str>> =
    LazyLock::new(|| text::list_entries(include_str!("other_blocks.txt")).collect());

pub(super) struct PageTree {
    pub(super) root: Rc<Node>,
    pub(super) title: Option<String>,
    /// The addresses to which the page leads by itself, and those of its frames.
    pub(super) targets: Vec<String>,
    /// True if the page was longer.
    pub(super) cut: bool,
}

/// The kind of text that an element contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Prose,
    /// Code within a line.
    Code,
    /// Text whose line breaks and spaces count.
    Program,
}

struct OpenElement {
    name: String,
    is_block: bool,
    /// Where its content goes; `None` if nothing in it is for reading.
    node: Option<Rc<Node>>,
    content: Content,
    /// The number of elements of the tree around its content, and how many of them are lists.
    depth: usize,
    lists: usize,
}

struct TreeReader {
    tree: PageTree,
    base: Url,
    /// The tag that is being read.
    tag: StartTag,
    /// The element whose text is no HTML, if one is open.
    raw: Option<String>,
    /// True if the next text is the first of a superscript.
    is_raised: bool,
    /// The page first.
    open: Vec<OpenElement>,
    /// Open elements beyond `MAX_OPEN_ELEMENTS`.
    untracked: usize,
    tags: usize,
    elements: usize,
    bytes: usize,
}

/// Reads a page. Links are made absolute with `base`.
pub(super) fn read_page(html: &str, base: &Url) -> PageTree {
    let root = Node::new(NodeData::Document);
    let page = OpenElement {
        name: String::new(),
        is_block: true,
        node: Some(Rc::clone(&root)),
        content: Content::Prose,
        depth: 0,
        lists: 0,
    };
    let mut reader = TreeReader {
        tree: PageTree { root, title: None, targets: Vec::new(), cut: false },
        base: base.clone(),
        tag: StartTag::default(),
        raw: None,
        is_raised: false,
        open: vec![page],
        untracked: 0,
        tags: 0,
        elements: 0,
        bytes: 0,
    };
    let is_whole = read_markup(html.as_bytes(), true, &mut |event| reader.handle(event));
    reader.tree.cut |= !is_whole;
    reader.tree
}

impl TreeReader {
    /// Returns false if nothing more is read, because the page is too large.
    fn handle(&mut self, event: &MarkupEvent<'_>) -> bool {
        match event {
            MarkupEvent::OpenStartTag { name } => self.tag = StartTag::new(name),
            MarkupEvent::AttributeName { name } => self.tag.add_attribute(name),
            MarkupEvent::AttributeValue { value } => self.tag.set_value(value),
            MarkupEvent::CloseStartTag { self_closing } => self.start(*self_closing),
            MarkupEvent::EndTag { name } => self.end(&String::from_utf8_lossy(name)),
            MarkupEvent::String { value } => self.text(&String::from_utf8_lossy(value)),
            _ => {}
        }
        let is_full =
            self.tags > MAX_TAGS || self.elements > MAX_ELEMENTS || self.bytes >= MAX_BYTES;
        !is_full
    }

    fn text(&mut self, text: &str) {
        let around = &self.open[self.open.len() - 1];
        let Some(node) = &around.node else { return };
        match self.raw.as_deref() {
            Some("title") if self.tree.title.is_none() => {
                self.tree.title = Some(text::first_chars(text, MAX_TITLE_CHARS).to_owned());
            }
            Some(_) => {}
            None => {
                let start = text::prefix(text, MAX_BYTES.saturating_sub(self.bytes));
                self.tree.cut |= start.len() < text.len();
                self.bytes += start.len();
                if around.content == Content::Program {
                    // Each line will be indented.
                    let lines = memchr::memchr_iter(b'\n', start.as_bytes()).count();
                    self.bytes += lines * around.lists * INDENTATION_BYTES;
                }
                if let Some(first) = start.trim_start().chars().next()
                    && std::mem::take(&mut self.is_raised)
                    && (first.is_alphanumeric() || "+-−(".contains(first))
                {
                    // Without this mark, a power would read as another number.
                    append_text(node, "^");
                }
                append_text(node, start);
            }
        }
    }

    fn start(&mut self, is_self_closing: bool) {
        let tag = std::mem::take(&mut self.tag);
        let name = tag.name.as_str();
        self.tags += 1;
        if naive_next_state(name.as_bytes()).is_some() {
            self.raw = Some(tag.name);
            return;
        }
        let is_empty = is_self_closing && name == "svg";
        if is_empty || matches!(name, "html" | "head" | "body") {
            return;
        }
        let is_void = VOID_ELEMENTS.contains(&name);
        if self.open.len() >= MAX_OPEN_ELEMENTS && !is_void {
            self.untracked += 1;
            return;
        }
        self.end_before(name);
        if is_void {
            return self.add_void(&tag);
        }
        if matches!(name, "td" | "th") && self.open[self.open.len() - 1].name != "tr" {
            self.push(&StartTag::new(b"tr"));
        }
        self.push(&tag);
    }

    fn push(&mut self, tag: &StartTag) {
        let around = &self.open[self.open.len() - 1];
        let is_tex = tag.attribute("encoding") == Some("application/x-tex");
        let is_hidden = tag.is_hidden()
            || DROPPED_ELEMENTS.contains(&tag.name.as_str())
            || tag.name.starts_with("annotation") && !is_tex;
        let mut element = OpenElement {
            name: tag.name.clone(),
            is_block: is_block(&tag.name),
            node: around.node.clone().filter(|_| !is_hidden),
            content: around.content,
            depth: around.depth,
            lists: around.lists,
        };
        if let Some(node) = element.node.as_ref().filter(|node| is_tex && tag_name(node) == "math")
        {
            // MathML before it says the same, but its powers and fractions would read as other numbers.
            node.children.borrow_mut().clear();
        }
        if let Some(node) = &element.node
            && let Some((kept, attribute)) = self.kept(tag, around)
        {
            let (child, is_new) = append(node, kept);
            if let Some((key, value)) = attribute.filter(|_| is_new) {
                set_attribute(&child, key, value);
            }
            element.node = Some(child);
            element.depth += 1;
            element.lists += usize::from(is_list(kept));
            element.content = match kept {
                "pre" => Content::Program,
                "code" if around.content == Content::Prose => Content::Code,
                _ => around.content,
            };
            self.elements += usize::from(is_new);
        }
        self.is_raised |= tag.name == "sup" && element.node.is_some();
        self.open.push(element);
    }

    /// The element of the tree that stands for an element, if there is one, and its attribute.
    fn kept(
        &self,
        tag: &StartTag,
        around: &OpenElement,
    ) -> Option<(&'static str, Option<(&'static str, String)>)> {
        let name = tag.name.as_str();
        if around.depth >= MAX_DEPTH || is_list(name) && around.lists >= MAX_LIST_DEPTH {
            return None;
        }
        match (around.content, name) {
            (Content::Prose | Content::Code, "pre") => Some(("pre", tag.language())),
            (Content::Prose | Content::Program, "code") => Some(("code", tag.language())),
            (Content::Program, _) => is_block(name).then_some(("div", None)),
            (Content::Code, _) => None,
            (Content::Prose, "a") => {
                Some(("a", Some(("href", self.address(tag.attribute("href")?)?))))
            }
            (Content::Prose, "b" | "strong") => Some(("b", None)),
            (Content::Prose, "i" | "em") => Some(("i", None)),
            (Content::Prose, "del" | "s" | "strike") => Some(("del", None)),
            (Content::Prose, "math") => Some(("math", None)),
            (Content::Prose, "annotation") => Some(("code", None)),
            (Content::Prose, "ol") => Some(("ol", tag.list_start())),
            (Content::Prose, "td" | "th") => self.kept_block(name).map(|part| (part, tag.spans())),
            (Content::Prose, _) => self.kept_block(name).map(|block| (block, None)),
        }
    }

    fn kept_block(&self, name: &str) -> Option<&'static str> {
        let parts = if self.is_within("table") { TABLE_PARTS } else { &[] };
        let same = KEPT_BLOCKS.iter().chain(parts).find(|kept| **kept == name);
        same.copied().or(is_block(name).then_some("div"))
    }

    fn is_within(&self, name: &str) -> bool {
        self.open.iter().any(|open| open.name == name)
    }

    /// The absolute form of an address. Links within the page, scripts and the like are of no use to a model.
    fn address(&self, value: &str) -> Option<String> {
        let value = value.trim();
        if value.starts_with('#') || value.len() > MAX_URL_BYTES {
            return None;
        }
        let url = self.base.join(value).ok()?;
        matches!(url.scheme(), "http" | "https" | "mailto").then(|| url.to_string())
    }

    fn add_void(&mut self, tag: &StartTag) {
        let around = &self.open[self.open.len() - 1];
        let Some(node) = around.node.as_ref().filter(|_| !tag.is_hidden()) else { return };
        match tag.name.as_str() {
            "base" => {
                let new = tag.attribute("href").and_then(|href| self.base.join(href).ok());
                if let Some(base) = new.filter(|base| !base.cannot_be_a_base()) {
                    self.base = base;
                }
            }
            "meta" | "frame" if self.tree.targets.len() < MAX_TARGETS => {
                let target = tag.refresh_target().or_else(|| tag.attribute("src"));
                self.tree.targets.extend(target.map(|target| {
                    self.base.join(target).map_or_else(|_| target.to_owned(), String::from)
                }));
            }
            "br" if around.content != Content::Prose => self.text("\n"),
            name @ ("br" | "hr") if around.content == Content::Prose => {
                append(node, name);
                self.elements += 1;
            }
            "input" if tag.attribute("type") == Some("checkbox") && self.is_within("li") => {
                self.text(if tag.attribute("checked").is_some() { "☑ " } else { "☐ " });
            }
            "img" if around.content == Content::Prose => {
                if let Some((alt, source)) = self.image(tag) {
                    let (image, _) = append(node, "img");
                    set_attribute(&image, "alt", alt);
                    set_attribute(&image, "src", source);
                    self.elements += 1;
                }
            }
            _ => {}
        }
    }

    /// Returns the description and address of an image that has both.
    fn image(&self, tag: &StartTag) -> Option<(String, String)> {
        let alt = tag.attribute("alt")?.trim();
        let source = self.address(tag.attribute("src")?)?;
        (!alt.is_empty() && alt.len() <= 1_000).then(|| (alt.to_owned(), source))
    }

    /// Ends the elements whose end tag may be omitted before this start tag.
    fn end_before(&mut self, name: &str) {
        let ended: &[&str] = match name {
            "li" => &["li"],
            "dt" | "dd" => &["dt", "dd"],
            "td" | "th" => &["td", "th"],
            "tr" => &["tr", "caption"],
            "thead" | "tbody" | "tfoot" | "caption" => {
                &["thead", "tbody", "tfoot", "tr", "caption"]
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => &["h1", "h2", "h3", "h4", "h5", "h6"],
            "a" => &["a"],
            _ => &[],
        };
        while self.end_nearest(ended, limits(name)) {}
        if is_block(name) || name == "hr" {
            // A paragraph contains no blocks.
            let block = self.open.iter().rposition(|open| open.is_block);
            if let Some(at) = block.filter(|at| self.open[*at].name == "p") {
                self.open.truncate(at);
            }
        }
    }

    fn end(&mut self, name: &str) {
        if self.raw.take().is_some() {
            return;
        }
        self.is_raised &= name != "sup";
        match self.untracked.checked_sub(1) {
            Some(fewer) => self.untracked = fewer,
            None => {
                self.end_nearest(&[name], limits(name));
            }
        }
    }

    /// Ends the innermost of the elements, unless it is outside of an open one of `limits`. Returns true if it did.
    fn end_nearest(&mut self, ended: &[&str], limits: &[&str]) -> bool {
        let mut inner = self.open.iter().enumerate().rev();
        let nearest = inner.find_map(|(at, element)| {
            let name = element.name.as_str();
            if ended.contains(&name) {
                return Some(Some(at));
            }
            limits.contains(&name).then_some(None)
        });
        let Some(Some(at)) = nearest else { return false };
        self.open.truncate(at);
        true
    }
}

/// The elements that an end tag does not reach out of.
fn limits(name: &str) -> &'static [&'static str] {
    match name {
        "table" => &[],
        "li" => &["ul", "ol", "td", "th"],
        "dt" | "dd" => &["dl", "td", "th"],
        _ if TABLE_PARTS.contains(&name) => &["table"],
        _ if is_block(name) => &["td", "th"],
        _ => &["ul", "ol", "li", "blockquote", "caption", "td", "th", "table"],
    }
}

fn is_list(name: &str) -> bool {
    matches!(name, "ul" | "ol" | "blockquote")
}

fn is_block(name: &str) -> bool {
    [KEPT_BLOCKS, TABLE_PARTS, &**OTHER_BLOCKS].iter().any(|names| names.contains(&name))
}

/// Inline elements that go on where the same one ended just before.
const JOINED_ELEMENTS: &[&str] = &["b", "i", "code"];

/// Adds an element at the end of a node. Returns it, and true if it is new: emphasis that follows the same emphasis
/// continues it.
fn append(parent: &Rc<Node>, name: &str) -> (Rc<Node>, bool) {
    let last = parent.children.borrow().last().cloned();
    let joined = last.filter(|last| JOINED_ELEMENTS.contains(&name) && tag_name(last) == name);
    if let Some(joined) = joined.filter(|_| tag_name(parent) != "pre") {
        return (joined, false);
    }
    let element = Node::new(NodeData::Element {
        name: QualName::new(None, ns!(html), LocalName::from(name)),
        attrs: RefCell::default(),
        template_contents: RefCell::default(),
        mathml_annotation_xml_integration_point: false,
    });
    push(parent, Rc::clone(&element));
    (element, true)
}

/// Adds text at the end of a node.
fn append_text(parent: &Rc<Node>, text: &str) {
    if let Some(last) = parent.children.borrow().last()
        && let NodeData::Text { contents } = &last.data
    {
        contents.borrow_mut().push_slice(text);
        return;
    }
    push(parent, Node::new(NodeData::Text { contents: RefCell::new(text.into()) }));
}

fn push(parent: &Rc<Node>, child: Rc<Node>) {
    child.parent.set(Some(Rc::downgrade(parent)));
    parent.children.borrow_mut().push(child);
}

fn set_attribute(element: &Node, name: &str, value: String) {
    if let NodeData::Element { attrs, .. } = &element.data {
        let name = QualName::new(None, ns!(), LocalName::from(name));
        attrs.borrow_mut().push(Attribute { name, value: value.into() });
    }
}

/// The name of an element; empty for all other nodes.
fn tag_name(node: &Node) -> &str {
    match &node.data {
        NodeData::Element { name, .. } => &name.local,
        _ => "",
    }
}

/// The attribute of a node that has one: the language of a program, or the columns and rows that a cell covers.
fn only_attribute(node: &Node) -> Option<String> {
    let NodeData::Element { attrs, .. } = &node.data else { return None };
    attrs.borrow().first().map(|attribute| attribute.value.to_string())
}

fn parent(node: &Node) -> Option<Rc<Node>> {
    let parent = node.parent.take();
    node.parent.set(parent.clone());
    parent?.upgrade()
}

/// The attributes that matter; all others are skipped.
const KNOWN_ATTRIBUTES: &str = "href src alt class start hidden style aria-hidden colspan rowspan \
                                http-equiv content role encoding type checked";
/// The longest name of a language.
const MAX_LANGUAGE_BYTES: usize = 50;

#[derive(Default)]
struct StartTag {
    name: String,
    attributes: Vec<(&'static str, String)>,
    /// True if the value that comes next belongs to the last attribute.
    expects_value: bool,
}

impl StartTag {
    fn new(name: &[u8]) -> StartTag {
        let name = String::from_utf8_lossy(name).into_owned();
        StartTag { name, ..StartTag::default() }
    }

    /// Adds an attribute without a value. The first of several with the same name counts.
    fn add_attribute(&mut self, name: &[u8]) {
        let known = KNOWN_ATTRIBUTES.split(' ').find(|known| known.as_bytes() == name);
        let new = known.filter(|known| self.attribute(known).is_none());
        self.expects_value = new.is_some();
        self.attributes.extend(new.map(|name| (name, String::new())));
    }

    /// Sets the value of the attribute that was added last.
    fn set_value(&mut self, value: &[u8]) {
        if let Some((_, last)) = self.attributes.last_mut().filter(|_| self.expects_value) {
            *last = String::from_utf8_lossy(value).into_owned();
        }
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|attribute| attribute.0 == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns true for what people do not see. They see the panel of a tab with a click, and Wikipedia shows a picture
    /// in place of a formula.
    fn is_hidden(&self) -> bool {
        let hidden = self.attribute("hidden");
        let aria = self.attribute("aria-hidden");
        let is_hidden = hidden.is_some_and(|value| !value.eq_ignore_ascii_case("until-found"))
            || aria.is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || self.is_hidden_by_style();
        is_hidden
            && self.attribute("role") != Some("tabpanel")
            && self.attribute("class").is_none_or(|class| !class.contains("mwe-math-mathml"))
    }

    fn is_hidden_by_style(&self) -> bool {
        let style = self.attribute("style").filter(|style| style.len() < 4_096).unwrap_or_default();
        let mut compact = style.to_ascii_lowercase();
        compact.retain(|character| !character.is_whitespace());
        ["display:none", "visibility:hidden"].iter().any(|hides| compact.contains(hides))
    }

    /// The programming language of a program, as an attribute.
    fn language(&self) -> Option<(&'static str, String)> {
        let language = self.attribute("class")?.split_ascii_whitespace().find_map(|class| {
            class.strip_prefix("language-").or_else(|| class.strip_prefix("lang-"))
        })?;
        let is_plain = language.len() <= MAX_LANGUAGE_BYTES && !language.contains('`');
        is_plain.then(|| ("class", language.to_owned()))
    }

    /// The numbers of columns and rows that a cell of a table covers, as an attribute.
    fn spans(&self) -> Option<(&'static str, String)> {
        let [columns, rows] = ["colspan", "rowspan"]
            .map(|name| self.attribute(name).and_then(|text| text.parse().ok()).unwrap_or(1_u16));
        let spans = format!("{columns} {rows}");
        (spans != "1 1").then_some(("span", spans))
    }

    /// The first number of a list, as an attribute.
    fn list_start(&self) -> Option<(&'static str, String)> {
        let number: u16 = self.attribute("start")?.parse().ok()?;
        Some(("start", number.to_string()))
    }

    /// The address to which `<meta http-equiv="refresh" content="0; url=…">` leads.
    fn refresh_target(&self) -> Option<&str> {
        let kind = self.attribute("http-equiv")?;
        let content = self.attribute("content").filter(|_| kind.eq_ignore_ascii_case("refresh"))?;
        let start = content.to_ascii_lowercase().find("url=")? + "url=".len();
        let target = content[start..].trim_matches([' ', '\'', '"']);
        Some(target).filter(|target| !target.is_empty())
    }
}
