//! The nodes of a page's tree: how they are added and looked at.

use std::cell::RefCell;
use std::rc::Rc;

use html5ever::{Attribute, LocalName, QualName, ns};
use markup5ever_rcdom::{Node, NodeData};

/// Inline elements that go on where the same one ended just before.
const JOINED_ELEMENTS: &[&str] = &["b", "i", "code"];

/// Adds an element at the end of a node. Returns it, and true if it is new: emphasis that follows the same emphasis
/// continues it.
pub(super) fn append(parent: &Rc<Node>, name: &str) -> (Rc<Node>, bool) {
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
pub(super) fn language(node: &Node) -> Option<String> {
    let NodeData::Element { attrs, .. } = &node.data else { return None };
    attrs.borrow().first().map(|attribute| attribute.value.to_string())
}

pub(super) fn parent(node: &Node) -> Option<Rc<Node>> {
    let parent = node.parent.take();
    node.parent.set(parent.clone());
    parent?.upgrade()
}
