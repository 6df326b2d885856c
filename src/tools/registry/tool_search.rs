//! `tool_search`: finds MCP tools, if there are too many of them to advertise all.

use std::collections::HashSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tools::{
    AnyTool, CallPlan, CallSite, OfferContext, PreparedCall, RemoteTools, ShownArgument, Tool,
    ToolAnswer, ToolCtx, ToolIndex, ToolOutcome, TypedCall, arguments,
};
use tokio::task::spawn_blocking;
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallView, ToolKind, escape_hidden_line};
use turnwright_types::message::ToolSpec;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;

/// The number of tools that a search returns by words and by `select:`.
const MAX_FOUND: usize = 5;
const MAX_SELECTED: usize = 10;
/// Only this many words of a query are used.
const MAX_WORDS: usize = 16;
/// Limits on a description and a schema in a result. The next request contains them in full.
const MAX_DESCRIPTION_BYTES: usize = 500;
const MAX_SCHEMA_BYTES: usize = 3 * 1024;
/// Limits on the overview in the tool's description: bytes of names, and servers.
const MAX_OVERVIEW_BYTES: usize = 2 * 1024;
const MAX_SERVERS: usize = 20;
/// Only this many bytes of a description are searched.
const MAX_SEARCHED_BYTES: usize = 4 * 1024;

/// Searches the MCP tools of one session.
#[derive(Debug)]
pub(in crate::tools) struct ToolSearch(pub(in crate::tools) Arc<RemoteTools>);

impl AnyTool for ToolSearch {
    fn name(&self) -> &str {
        ToolSearchCall::NAME
    }

    fn is_read_only(&self) -> bool {
        ToolSearchCall::IS_READ_ONLY
    }

    fn spec(&self, _: &OfferContext) -> Option<Arc<ToolSpec>> {
        let mut spec = arguments::spec::<ToolSearchCall>();
        spec.description.push_str(&overview(&self.0.index()));
        Some(Arc::new(spec))
    }

    fn pending_view(&self) -> Option<CallView> {
        Some(CallView::new(ToolSearchCall::PENDING_TITLE, ToolSearchCall::KIND))
    }

    fn shown_arguments(&self) -> &'static [ShownArgument] {
        ToolSearchCall::SHOWN_ARGUMENTS
    }

    fn prepare(self: Arc<Self>, args: Value) -> Result<Box<dyn PreparedCall>, ToolRefusal> {
        let (mut call, ignored) = arguments::parse_arguments::<ToolSearchCall>(args)?;
        call.remote = Arc::clone(&self.0);
        Ok(Box::new(TypedCall::new(call, ignored)))
    }
}

/// Find tools of the MCP servers. Found tools can be called afterwards.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::tools) struct ToolSearchCall {
    /// Keywords, or `select:name1,name2`
    query: String,
    /// The tools that are searched; set by [`ToolSearch`].
    #[serde(skip)]
    remote: Arc<RemoteTools>,
}

impl Tool for ToolSearchCall {
    const NAME: &'static str = "tool_search";
    const KIND: ToolKind = ToolKind::Search;
    const PENDING_TITLE: &'static str = "Search tools";
    type Preview = ();

    fn plan(&mut self, _: &mut CallSite<'_>) -> CallPlan {
        let what = text::cut(escape_hidden_line(self.query.trim()), 100);
        let title = format!("Search tools: {what}");
        CallPlan::in_session(CallView::new(title, Self::KIND))
    }

    async fn run(self, (): (), _: &Pass, _: &ToolCtx) -> ToolAnswer {
        let index = self.remote.index();
        let finding = spawn_blocking(move || {
            let (found, missing) = find_tools(&index, &self.query);
            (render_tools(&found, &missing), found)
        });
        let Ok((text, found)) = finding.await else {
            return Err("The search has failed.".into());
        };
        let names: Vec<_> = found.iter().map(|tool| tool.name()).collect();
        self.remote.load(names.iter().copied());
        Ok(ToolOutcome::done_as_shown(text, json!({ "tools": names })))
    }
}

/// The tools that a search with this result has found.
pub(in crate::tools) fn found_names(raw_output: &Value) -> impl Iterator<Item = &str> {
    raw_output["tools"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The servers with as many tool names as fit, for the description.
fn overview(index: &ToolIndex) -> String {
    let mut servers: Vec<(&str, Vec<&str>)> = Vec::new();
    for tool in index.tools() {
        let lender = tool.server().unwrap_or_default();
        match servers.iter_mut().find(|(name, _)| *name == lender) {
            Some((_, names)) => names.push(tool.name()),
            None => servers.push((lender, vec![tool.name()])),
        }
    }
    let budget = MAX_OVERVIEW_BYTES / servers.len().clamp(1, MAX_SERVERS);
    let mut text = String::new();
    for (server, names) in servers.iter().take(MAX_SERVERS) {
        let prefix = common_prefix(names);
        let server = text::cut(escape_hidden_line(server), 40);
        text.push_str(&format!(" {server}, {} tools {prefix}…:", names.len()));
        let mut left = budget;
        for (number, name) in names.iter().enumerate() {
            let name = &name[prefix.len()..];
            let Some(rest) = left.checked_sub(name.len() + 2) else {
                text.push_str(" …");
                break;
            };
            left = rest;
            text.push_str(if number == 0 { " " } else { ", " });
            text.push_str(name);
        }
        text.push('.');
    }
    if servers.len() > MAX_SERVERS {
        text.push_str(&format!(" And {} servers more.", servers.len() - MAX_SERVERS));
    }
    text
}

/// The longest common prefix that ends with two underscores.
fn common_prefix<'a>(names: &[&'a str]) -> &'a str {
    let Some(first) = names.first() else { return "" };
    let ends = first.match_indices("__").map(|(at, _)| &first[..at + 2]);
    let common = ends.filter(|end| names.iter().all(|name| name.starts_with(end)));
    common.last().unwrap_or_default()
}

/// The best matches, the best first; and the selected names that do not exist.
pub(super) fn find_tools(index: &ToolIndex, query: &str) -> (Vec<Arc<dyn AnyTool>>, Vec<String>) {
    if let Some(names) = query.trim().strip_prefix("select:") {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for name in names.take(MAX_SELECTED) {
            match index.get(name) {
                Some(tool) => found.push(Arc::clone(tool)),
                None => missing.push(text::cut(escape_hidden_line(name), 80)),
            }
        }
        return (found, missing);
    }
    let words = query_words(query);
    let mut found: Vec<_> =
        index.tools().iter().filter_map(|tool| Some((score(tool, &words)?, tool))).collect();
    // The sort is stable: equally good tools keep their order.
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    (found.into_iter().take(MAX_FOUND).map(|(_, tool)| Arc::clone(tool)).collect(), Vec::new())
}

/// The distinct words of a query, without a plural `s`.
fn query_words(query: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let parts = query.split(|char: char| !char.is_alphanumeric()).filter(|part| !part.is_empty());
    let words = parts.map(|part| {
        let word = text::cut(part.to_lowercase(), 40);
        match word.strip_suffix('s') {
            Some(one) if one.len() > 2 => one.to_owned(),
            _ => word,
        }
    });
    words.filter(|word| seen.insert(word.clone())).take(MAX_WORDS).collect()
}

/// The words of a name: `listPages` and `list_pages` have the same ones.
fn name_words(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_small = false;
    for letter in name.chars() {
        let begins = letter.is_uppercase() && was_small;
        was_small = letter.is_lowercase();
        if !letter.is_alphanumeric() || begins {
            parts.push(String::new());
        }
        if let Some(last) = parts.last_mut().filter(|_| letter.is_alphanumeric()) {
            last.extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The score of a tool: first the number of words that it contains, then the worth of the places that contain
/// them. `None` if it contains none.
fn score(tool: &Arc<dyn AnyTool>, words: &[String]) -> Option<(usize, usize)> {
    let spec = tool.spec(&OfferContext::default())?;
    let name = name_words(&spec.name);
    let titles = [tool.title(), tool.server()].map(Option::unwrap_or_default).join(" ");
    let properties = spec.parameters["properties"].as_object().into_iter().flatten();
    let arguments: Vec<_> = properties.map(|(name, _)| name.as_str()).collect();
    let places = [
        (6, spec.name.to_lowercase()),
        (4, titles.to_lowercase()),
        (3, arguments.join(" ").to_lowercase()),
        (2, text::prefix(&spec.description, MAX_SEARCHED_BYTES).to_lowercase()),
    ];
    let worths = words.iter().map(String::as_str).filter_map(|word| {
        if name.iter().any(|part| part == word || part.strip_suffix('s') == Some(word)) {
            return Some(10);
        }
        places.iter().find(|(_, text)| text.contains(word)).map(|(worth, _)| *worth)
    });
    let worths: Vec<usize> = worths.collect();
    (!worths.is_empty()).then(|| (worths.len(), worths.iter().sum()))
}

fn render_tools(found: &[Arc<dyn AnyTool>], missing: &[String]) -> String {
    let mut text = String::new();
    for tool in found {
        let Some(spec) = tool.spec(&OfferContext::default()) else { continue };
        let description =
            escape_hidden_line(text::prefix(&spec.description, MAX_DESCRIPTION_BYTES));
        text.push_str(&format!(
            "{}: {description}\n{}\n",
            spec.name,
            schema_text(&spec.parameters)
        ));
    }
    text.extend(missing.iter().map(|name| format!("There is no tool {name}.\n")));
    match found {
        [] if missing.is_empty() => "No tool fits. Try other words.".to_owned(),
        [] => text,
        _ => text + "These can be called now.",
    }
}

fn schema_text(parameters: &Value) -> String {
    let schema = parameters.to_string();
    if schema.len() <= MAX_SCHEMA_BYTES {
        return schema;
    }
    let properties = parameters["properties"].as_object().into_iter().flatten();
    let names: Vec<_> = properties.map(|(name, _)| name.as_str()).collect();
    text::prefix(&format!("arguments: {}", names.join(", ")), MAX_SCHEMA_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct FakeSearchableTool(Arc<ToolSpec>, &'static str);

    impl AnyTool for FakeSearchableTool {
        fn name(&self) -> &str {
            &self.0.name
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn spec(&self, _: &OfferContext) -> Option<Arc<ToolSpec>> {
            Some(Arc::clone(&self.0))
        }

        fn title(&self) -> Option<&str> {
            Some(self.1)
        }

        fn server(&self) -> Option<&str> {
            self.0.name.split("__").nth(1)
        }

        fn pending_view(&self) -> Option<CallView> {
            None
        }

        fn prepare(self: Arc<Self>, _: Value) -> Result<Box<dyn PreparedCall>, ToolRefusal> {
            Err("no".into())
        }
    }

    fn tool(name: &str, title: &'static str, about: &str, arg: &str) -> Arc<dyn AnyTool> {
        let parameters = json!({ "type": "object", "properties": { arg: { "type": "string" } } });
        let name = name.to_owned().into();
        let description = about.to_owned();
        Arc::new(FakeSearchableTool(Arc::new(ToolSpec { name, description, parameters }), title))
    }

    fn index() -> ToolIndex {
        ToolIndex::new(vec![
            tool("mcp__notes__delete_page", "", "Removes a page for good.", "page"),
            tool("mcp__notes__listPages", "", "All that there are.", "folder"),
            tool("mcp__notes__find", "Look for words", "Where a word stands in a page.", "text"),
            tool("mcp__mail__send", "", "Sends a letter.", "recipient"),
            tool("mcp__mail__inbox", "", "Letters that have come.", "folder"),
        ])
    }

    fn found(query: &str) -> Vec<String> {
        let (found, _) = find_tools(&index(), query);
        let names = found.iter().map(|tool| tool.name().rsplit("__").next().unwrap_or_default());
        names.map(str::to_owned).collect()
    }

    #[test]
    fn words_are_looked_for_in_names_titles_descriptions_and_arguments() {
        for (query, expected) in [
            ("list pages", vec!["listPages", "delete_page", "find"]),
            ("LISTPAGES", vec!["listPages"]),
            ("recipient", vec!["send"]),
            ("look", vec!["find"]),
            ("mail", vec!["send", "inbox"]),
            ("letters", vec!["send", "inbox"]),
            ("folder, letter", vec!["inbox", "listPages", "send"]),
            ("nothing-of-this-xyz", vec![]),
            ("", vec![]),
            ("select:mcp__mail__send, mcp__notes__find", vec!["send", "find"]),
        ] {
            assert_eq!(found(query), expected, "{query}");
        }
    }

    #[test]
    fn a_result_is_bounded_and_says_what_is_missing() {
        let long = "word ".repeat(10_000);
        let many = (0..50).map(|number| tool(&format!("mcp__a__word{number}"), "", &long, &long));
        let index = ToolIndex::new(many.collect());
        let (found, _) = find_tools(&index, &"word ".repeat(1_000));
        let text = render_tools(&found, &[]);
        assert!(text.len() < 20 * 1024, "{}", text.len());
        assert!(text.starts_with("mcp__a__word0: word"));
        let (found, missing) = find_tools(&index, "select:mcp__a__word3,mcp__a__none");
        let text = render_tools(&found, &missing);
        assert!(
            text.ends_with("There is no tool mcp__a__none.\nThese can be called now."),
            "{text}"
        );
        assert_eq!(render_tools(&[], &[]), "No tool fits. Try other words.");
    }

    #[test]
    fn the_overview_is_bounded_and_fair() {
        let text = overview(&index());
        assert_eq!(
            text,
            " notes, 3 tools mcp__notes__…: delete_page, listPages, find. mail, 2 tools \
             mcp__mail__…: send, inbox."
        );
        let of = |server: usize| {
            (0..50).map(move |number| {
                tool(&format!("mcp__server{server}__tool_{number}"), "", "", "x")
            })
        };
        let text = overview(&ToolIndex::new((0..30).flat_map(of).collect()));
        assert!(text.len() < 4 * 1024, "{}", text.len());
        assert!(text.contains("server19, 50 tools"), "{text}");
        assert!(text.ends_with("And 10 servers more."), "{text}");
    }
}
