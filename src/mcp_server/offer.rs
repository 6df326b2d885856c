//! What is offered: the built-in tools that make sense without an editor and a conversation, page by
//! page, each with what it says of itself.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{ListToolsResult, Tool, ToolAnnotations};
use serde_json::Value;

use crate::tools::{AnyTool, Offer, built_in};

/// Tools of one page. Many clients only ever ask for the first one: all of ours are on it.
pub(super) const PAGE: usize = 50;
/// What a cursor begins with. It means nothing to a client.
const CURSOR: &str = "after:";

/// Those that are offered, and what each may do besides reading. The others are about a session: the
/// plan, its history, questions, notes and skills of ours.
const OFFERED: &[(&str, Nature)] = &[
    ("read_file", Nature { destroys: false, same_again: true, open: false }),
    ("list_dir", Nature { destroys: false, same_again: true, open: false }),
    ("find_files", Nature { destroys: false, same_again: true, open: false }),
    ("grep", Nature { destroys: false, same_again: true, open: false }),
    ("write_file", Nature { destroys: true, same_again: true, open: false }),
    ("edit_file", Nature { destroys: true, same_again: false, open: false }),
    ("apply_patch", Nature { destroys: true, same_again: false, open: false }),
    ("move_path", Nature { destroys: true, same_again: false, open: false }),
    ("delete_path", Nature { destroys: true, same_again: true, open: false }),
    ("exec", Nature { destroys: true, same_again: false, open: true }),
    ("exec_output", Nature { destroys: true, same_again: false, open: true }),
    ("web_fetch", Nature { destroys: false, same_again: true, open: true }),
];

/// What a tool does, for clients that want to know before they ask their user.
#[derive(Clone, Copy, Debug)]
struct Nature {
    /// Something may be gone afterwards.
    destroys: bool,
    /// The same call again changes nothing more.
    same_again: bool,
    /// It deals with more than the files of this machine.
    open: bool,
}

/// The tools, in the order in which they are listed.
#[derive(Debug)]
pub(super) struct Shelf(Vec<(Arc<dyn AnyTool>, Tool)>);

impl Shelf {
    pub(super) fn new() -> Shelf {
        let all = built_in();
        let told = Offer { patches: true, ..Offer::default() };
        let found = OFFERED.iter().filter_map(|(name, nature)| {
            let tool = all.iter().find(|it| it.name() == *name)?;
            let told = describe(tool.as_ref(), *nature, &told)?;
            Some((Arc::clone(tool), told))
        });
        Shelf(found.collect())
    }

    /// The tool of exactly that name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<dyn AnyTool>> {
        self.0.iter().find(|(it, _)| it.name() == name).map(|(it, _)| Arc::clone(it))
    }

    /// What is told of the tool of that name.
    pub(super) fn told(&self, name: &str) -> Option<&Tool> {
        self.0.iter().find(|(it, _)| it.name() == name).map(|(_, it)| it)
    }

    /// The names, for whoever has asked for another.
    pub(super) fn names(&self) -> String {
        let names: Vec<_> = self.0.iter().map(|(it, _)| it.name()).collect();
        names.join(", ")
    }

    /// One page of so many.
    pub(super) fn page(
        &self,
        cursor: Option<&str>,
        size: usize,
    ) -> Result<ListToolsResult, ErrorData> {
        let begin = match cursor {
            None => 0,
            Some(cursor) => self.after(cursor).ok_or_else(|| {
                ErrorData::invalid_params("Unknown cursor: begin again without one", None)
            })?,
        };
        let page: Vec<_> = self.0.iter().skip(begin).take(size).map(|(_, it)| it.clone()).collect();
        let last = page.last().filter(|_| begin + page.len() < self.0.len());
        let next_cursor = last.map(|it| format!("{CURSOR}{}", it.name));
        Ok(ListToolsResult { next_cursor, ..ListToolsResult::with_all_items(page) })
    }

    fn after(&self, cursor: &str) -> Option<usize> {
        let name = cursor.strip_prefix(CURSOR)?;
        let place = self.0.iter().position(|(it, _)| it.name() == name)? + 1;
        (place < self.0.len()).then_some(place)
    }
}

fn describe(tool: &dyn AnyTool, nature: Nature, offer: &Offer) -> Option<Tool> {
    let spec = tool.spec(offer)?;
    let Value::Object(schema) = spec.parameters.clone() else { return None };
    let title = tool.first_view().map_or_else(|| tool.name().to_owned(), |it| it.title);
    let reads = tool.reads();
    let annotations = ToolAnnotations::with_title(title.clone())
        .read_only(reads)
        .destructive(nature.destroys && !reads)
        .idempotent(nature.same_again)
        .open_world(nature.open);
    let told = Tool::new(spec.name.clone(), spec.description.clone(), Arc::new(schema));
    Some(told.with_title(title).with_annotations(annotations))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_is_on_exactly_one_page() {
        let (shelf, mut names, mut cursor) = (Shelf::new(), Vec::new(), None);
        loop {
            let page = shelf.page(cursor.as_deref(), 5).unwrap();
            assert!(page.tools.len() <= 5 && !page.tools.is_empty());
            names.extend(page.tools.into_iter().map(|it| it.name));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        let offered: Vec<_> = OFFERED.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, offered);
        let first = shelf.page(None, PAGE).unwrap();
        assert_eq!((first.tools.len(), first.next_cursor), (offered.len(), None));
        for bad in ["", "after:", "after:plan", "after:web_fetch", "5"] {
            assert!(shelf.page(Some(bad), 5).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_only_reads_says_so_and_destroys_nothing() {
        for (tool, told) in &Shelf::new().0 {
            let hints = told.annotations.clone().unwrap();
            assert_eq!(hints.read_only_hint, Some(tool.reads()), "{}", tool.name());
            assert!(!(tool.reads() && hints.destructive_hint == Some(true)), "{}", tool.name());
            assert!(tool.reads() || hints.destructive_hint == Some(true), "{}", tool.name());
            assert!(told.title.is_some() && told.input_schema.contains_key("properties"));
        }
    }
}
