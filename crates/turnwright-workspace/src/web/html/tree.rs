//! The parts of a page: its start tags with the attributes that matter, and the nodes of its tree, how they are added
//! and looked at.

use std::cell::RefCell;
use std::rc::Rc;

use html5ever::{Attribute, LocalName, QualName, ns};
use markup5ever_rcdom::{Node, NodeData};

/// Inline elements that go on where the same one ended just before.
const JOINED_ELEMENTS: &[&str] = &["b", "i", "code"];

/// Adds an element at the end of a node. Returns it, and true if it is new: emphasis that follows the same emphasis
/// continues it.
pub(in crate::web) fn append(parent: &Rc<Node>, name: &str) -> (Rc<Node>, bool) {
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
pub(super) fn append_text(parent: &Rc<Node>, text: &str) {
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

pub(super) fn set_attribute(element: &Node, name: &str, value: String) {
    if let NodeData::Element { attrs, .. } = &element.data {
        let name = QualName::new(None, ns!(), LocalName::from(name));
        attrs.borrow_mut().push(Attribute { name, value: value.into() });
    }
}

/// The name of an element; empty for all other nodes.
pub(super) fn tag_name(node: &Node) -> &str {
    match &node.data {
        NodeData::Element { name, .. } => &name.local,
        _ => "",
    }
}

/// The language of a program.
pub(in crate::web) fn language(node: &Node) -> Option<String> {
    let NodeData::Element { attrs, .. } = &node.data else { return None };
    attrs.borrow().first().map(|attribute| attribute.value.to_string())
}

pub(in crate::web) fn parent(node: &Node) -> Option<Rc<Node>> {
    let parent = node.parent.take();
    node.parent.set(parent.clone());
    parent?.upgrade()
}

/// The attributes that matter; all others are skipped.
const KNOWN_ATTRIBUTES: &[&str] = &[
    "href",
    "src",
    "alt",
    "class",
    "start",
    "hidden",
    "style",
    "aria-hidden",
    "http-equiv",
    "content",
];
/// The longest name of a language.
const MAX_LANGUAGE_BYTES: usize = 50;

#[derive(Default)]
pub(super) struct StartTag {
    pub(super) name: String,
    attributes: Vec<(&'static str, String)>,
    /// True if the value that comes next belongs to the last attribute.
    expects_value: bool,
}

impl StartTag {
    pub(super) fn new(name: &[u8]) -> StartTag {
        let name = String::from_utf8_lossy(name).into_owned();
        StartTag { name, ..StartTag::default() }
    }

    /// Adds an attribute without a value. The first of several with the same name counts.
    pub(super) fn add_attribute(&mut self, name: &[u8]) {
        let known = KNOWN_ATTRIBUTES.iter().find(|known| known.as_bytes() == name);
        let new = known.filter(|known| self.attribute(known).is_none());
        self.expects_value = new.is_some();
        self.attributes.extend(new.map(|name| (*name, String::new())));
    }

    /// Sets the value of the attribute that was added last.
    pub(super) fn set_value(&mut self, value: &[u8]) {
        if let Some((_, last)) = self.attributes.last_mut().filter(|_| self.expects_value) {
            *last = String::from_utf8_lossy(value).into_owned();
        }
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|attribute| attribute.0 == name)
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn is_hidden(&self) -> bool {
        self.attribute("hidden").is_some_and(|value| !value.eq_ignore_ascii_case("until-found"))
            || self.attribute("aria-hidden").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || self.is_hidden_by_style()
    }

    fn is_hidden_by_style(&self) -> bool {
        let style = self.attribute("style").filter(|style| style.len() < 4_096).unwrap_or_default();
        let mut compact = style.to_ascii_lowercase();
        compact.retain(|character| !character.is_whitespace());
        ["display:none", "visibility:hidden"].iter().any(|hides| compact.contains(hides))
    }

    /// The programming language of a program, as an attribute.
    pub(super) fn language(&self) -> Option<(&'static str, String)> {
        let language = self.attribute("class")?.split_ascii_whitespace().find_map(|class| {
            class.strip_prefix("language-").or_else(|| class.strip_prefix("lang-"))
        })?;
        let is_plain = language.len() <= MAX_LANGUAGE_BYTES && !language.contains('`');
        is_plain.then(|| ("class", language.to_owned()))
    }

    /// The first number of a list, as an attribute.
    pub(super) fn list_start(&self) -> Option<(&'static str, String)> {
        let number: u16 = self.attribute("start")?.parse().ok()?;
        Some(("start", number.to_string()))
    }

    /// The address to which `<meta http-equiv="refresh" content="0; url=…">` leads.
    pub(super) fn refresh_target(&self) -> Option<&str> {
        let kind = self.attribute("http-equiv")?;
        let content = self.attribute("content").filter(|_| kind.eq_ignore_ascii_case("refresh"))?;
        let start = content.to_ascii_lowercase().find("url=")? + "url=".len();
        let target = content[start..].trim_matches([' ', '\'', '"']);
        Some(target).filter(|target| !target.is_empty())
    }
}
