//! The built-in tools that are offered to MCP clients: the ones that make sense without an editor and a
//! conversation.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::tools::{AnyTool, OfferContext, built_in};
use turnwright_rpc::RpcError;

/// Tools of one page. Many clients request only the first page, so all of ours fit on it.
pub(super) const PAGE_SIZE: usize = 50;
/// The prefix of a cursor, before the name of the last tool of the page.
const CURSOR_PREFIX: &str = "after:";

/// The offered tools. All other tools are about a session: its plan, history, questions, notes and skills.
const OFFERED_TOOLS: [&str; 12] = [
    "read_file",
    "list_dir",
    "find_files",
    "grep",
    "write_file",
    "edit_file",
    "apply_patch",
    "move_path",
    "delete_path",
    "exec",
    "exec_output",
    "web_fetch",
];
/// The tools of which repeating the same call has a further effect.
const NOT_IDEMPOTENT: [&str; 5] = ["edit_file", "apply_patch", "move_path", "exec", "exec_output"];
/// The tools that may reach beyond the files of this machine.
const OPEN_WORLD: [&str; 3] = ["exec", "exec_output", "web_fetch"];

/// The offered tools with their MCP definitions, in the order in which they are listed.
#[derive(Debug)]
pub(super) struct OfferedTools(Vec<(Arc<dyn AnyTool>, Value)>);

impl OfferedTools {
    pub(super) fn new() -> OfferedTools {
        let all = built_in();
        let context = OfferContext { prefers_patches: true, ..OfferContext::default() };
        let offered = OFFERED_TOOLS.iter().filter_map(|name| {
            let tool = all.iter().find(|tool| tool.name() == *name)?;
            Some((Arc::clone(tool), definition(tool.as_ref(), &context)?))
        });
        OfferedTools(offered.collect())
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<dyn AnyTool>> {
        self.0.iter().find(|(tool, _)| tool.name() == name).map(|(tool, _)| Arc::clone(tool))
    }

    /// All names, for the error about an unknown tool.
    pub(super) fn names(&self) -> String {
        let names: Vec<_> = self.0.iter().map(|(tool, _)| tool.name()).collect();
        names.join(", ")
    }

    /// Returns the page of `size` tools after `cursor`, as the result of `tools/list`.
    pub(super) fn page(&self, cursor: Option<&str>, size: usize) -> Result<Value, RpcError> {
        let start = match cursor {
            None => 0,
            Some(cursor) => self.index_after(cursor).ok_or_else(|| {
                RpcError::invalid_params("Unknown cursor: start again without one")
            })?,
        };
        let page: Vec<_> = self.0.iter().skip(start).take(size).collect();
        let mut result =
            json!({ "tools": page.iter().map(|(_, listed)| listed).collect::<Vec<_>>() });
        if start + page.len() < self.0.len()
            && let Some((last, _)) = page.last()
        {
            result["nextCursor"] = format!("{CURSOR_PREFIX}{}", last.name()).into();
        }
        Ok(result)
    }

    fn index_after(&self, cursor: &str) -> Option<usize> {
        let name = cursor.strip_prefix(CURSOR_PREFIX)?;
        let index = self.0.iter().position(|(tool, _)| tool.name() == name)? + 1;
        (index < self.0.len()).then_some(index)
    }
}

/// The definition of a tool, with the annotations that some clients base their own questions on.
fn definition(tool: &dyn AnyTool, context: &OfferContext) -> Option<Value> {
    let spec = tool.spec(context)?;
    let title = tool.pending_view().map_or_else(|| tool.name().to_owned(), |view| view.title);
    let is_read_only = tool.is_read_only();
    Some(json!({
        "name": spec.name,
        "title": title,
        "description": spec.description,
        "inputSchema": spec.parameters,
        "annotations": {
            "title": title,
            "readOnlyHint": is_read_only,
            "destructiveHint": !is_read_only,
            "idempotentHint": !NOT_IDEMPOTENT.contains(&tool.name()),
            "openWorldHint": OPEN_WORLD.contains(&tool.name()),
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_is_on_exactly_one_page() {
        let names_of = |page: &Value| -> Vec<String> {
            let tools = page["tools"].as_array().unwrap();
            tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
        };
        let tools = OfferedTools::new();
        let mut names = Vec::new();
        let mut cursor = None;
        loop {
            let page = tools.page(cursor.as_deref(), 5).unwrap();
            let found = names_of(&page);
            assert!(found.len() <= 5 && !found.is_empty());
            names.extend(found);
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(names, OFFERED_TOOLS);
        let first = tools.page(None, PAGE_SIZE).unwrap();
        assert_eq!((names_of(&first).len(), first.get("nextCursor")), (OFFERED_TOOLS.len(), None));
        for bad in ["", "after:", "after:plan", "after:web_fetch", "5"] {
            assert!(tools.page(Some(bad), 5).is_err(), "{bad}");
        }
    }

    #[test]
    fn read_only_tools_are_annotated_as_such_and_not_as_destructive() {
        for (tool, definition) in &OfferedTools::new().0 {
            let hints = &definition["annotations"];
            assert_eq!(hints["readOnlyHint"], tool.is_read_only(), "{}", tool.name());
            assert_eq!(hints["destructiveHint"] == true, !tool.is_read_only(), "{}", tool.name());
            assert!(
                definition["title"].is_string()
                    && definition["inputSchema"]["properties"].is_object()
            );
        }
    }
}
