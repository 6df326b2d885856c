//! `tool_search`: finds tools of servers, where there are too many to tell the model of all.

use std::collections::HashSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AnyTool, Lent, Offer, Outcome, Stock, Tool, ToolCtx};
use turnwright_types::effect::{CallView, Content, Effect, Kind, Target, visible_line};
use turnwright_workspace::files::Roots;
use turnwright_types::message::ToolSpec;
use turnwright_policy::permission::Pass;

/// Tools that a search brings; and one by names.
const MOST_FOUND: usize = 5;
const MOST_SELECTED: usize = 10;
/// Words of a query that count.
const MOST_WORDS: usize = 16;
/// Bytes of a description and of the schema in a result. The whole of it comes with the next request.
const LONGEST_DESCRIPTION: usize = 500;
const LONGEST_SCHEMA: usize = 3 * 1024;
/// Bytes of names in the description, and servers there.
const MOST_NAMES: usize = 2 * 1024;
const MOST_SERVERS: usize = 20;
/// Bytes of a description that are searched.
const LONGEST_SEARCHED: usize = 4 * 1024;

/// Searches what is lent to one session.
#[derive(Debug)]
pub(super) struct ToolSearch(pub(super) Lent);

/// Find tools of the MCP servers. What is found can be called from then on.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Args {
    /// Words about what it is to do, or `select:name1,name2`
    query: String,
}

impl Tool for ToolSearch {
    const NAME: &'static str = "tool_search";
    const KIND: Kind = Kind::Search;
    const VERB: &'static str = "Search tools";
    type Args = Args;
    type Seen = ();

    fn adapt(&self, spec: &mut ToolSpec, _: &Offer) {
        spec.description.push_str(&overview(&self.0.stock()));
    }

    fn view(&self, args: &Args, _: &[Target], _: &Roots) -> CallView {
        let what: String = visible_line(args.query.trim()).chars().take(100).collect();
        CallView { title: format!("Search tools: {what}"), kind: Self::KIND, locations: Vec::new() }
    }

    fn effects(&self, _: &Args, _: &[Target]) -> Vec<Effect> {
        vec![Effect::Session]
    }

    async fn run(&self, args: Args, (): (), _: &Pass, _: &ToolCtx) -> Outcome {
        let stock = self.0.stock();
        let finding = tokio::task::spawn_blocking(move || {
            let (found, missing) = find(&stock, &args.query);
            (told(&found, &missing), found)
        });
        let Ok((text, found)) = finding.await else {
            return Outcome::failed("The search has failed.");
        };
        let names: Vec<_> = found.iter().map(|it| it.name()).collect();
        self.0.want(names.iter().copied());
        Outcome {
            ok: true,
            content: vec![Content::Text(text.clone())],
            raw: json!({ "tools": names }),
            text,
            view: None,
            images: Vec::new(),
        }
    }
}

/// The servers, with as many names as fit.
fn overview(stock: &Stock) -> String {
    let mut servers: Vec<(&str, Vec<&str>)> = Vec::new();
    for tool in stock.tools() {
        let lender = tool.lender().unwrap_or_default();
        match servers.iter_mut().find(|(name, _)| *name == lender) {
            Some((_, names)) => names.push(tool.name()),
            None => servers.push((lender, vec![tool.name()])),
        }
    }
    let budget = MOST_NAMES / servers.len().clamp(1, MOST_SERVERS);
    let mut text = String::new();
    for (server, names) in servers.iter().take(MOST_SERVERS) {
        let prefix = prefix(names);
        let server: String = visible_line(server).chars().take(40).collect();
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
    if servers.len() > MOST_SERVERS {
        text.push_str(&format!(" And {} servers more.", servers.len() - MOST_SERVERS));
    }
    text
}

/// What all these names begin with, up to two underscores.
fn prefix<'a>(names: &[&'a str]) -> &'a str {
    let Some(first) = names.first() else { return "" };
    let ends = first.match_indices("__").map(|(at, _)| &first[..at + 2]);
    let is_common = |it: &&str| names.iter().all(|name| name.starts_with(it));
    ends.filter(is_common).last().unwrap_or_default()
}

/// The names of what a query finds.
pub(super) fn names(stock: &Stock, query: &str) -> Vec<String> {
    find(stock, query).0.iter().map(|it| it.name().to_owned()).collect()
}

/// The best, the best first; and names that are not there.
fn find(stock: &Stock, query: &str) -> (Vec<Arc<dyn AnyTool>>, Vec<String>) {
    if let Some(names) = query.trim().strip_prefix("select:") {
        let names = names.split(',').map(str::trim).filter(|it| !it.is_empty());
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for name in names.take(MOST_SELECTED) {
            match stock.get(name) {
                Some(tool) => found.push(Arc::clone(tool)),
                None => missing.push(visible_line(name).chars().take(80).collect()),
            }
        }
        return (found, missing);
    }
    let words = words(query);
    let mut found: Vec<_> = stock
        .tools()
        .iter()
        .filter_map(|tool| Some((score(&Texts::of(tool)?, &words)?, tool)))
        .collect();
    // A stable sort: of what is equally good the first is the first.
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    (found.into_iter().take(MOST_FOUND).map(|(_, it)| Arc::clone(it)).collect(), Vec::new())
}

/// The different words of a query, without the end that only says that there are several.
fn words(query: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let words = query.split(|it: char| !it.is_alphanumeric()).filter(|it| !it.is_empty());
    let words = words.map(|it| {
        let word: String = it.to_lowercase().chars().take(40).collect();
        match word.strip_suffix('s') {
            Some(one) if one.len() > 2 => one.to_owned(),
            _ => word,
        }
    });
    words.filter(|it| seen.insert(it.clone())).take(MOST_WORDS).collect()
}

/// What of a tool is searched, in small letters.
struct Texts {
    name: Vec<String>,
    whole_name: String,
    title: String,
    arguments: String,
    description: String,
}

impl Texts {
    fn of(tool: &Arc<dyn AnyTool>) -> Option<Texts> {
        let spec = tool.spec(&Offer::default())?;
        let arguments = spec.parameters["properties"].as_object().into_iter().flatten();
        let arguments: Vec<_> = arguments.map(|(name, _)| name.to_lowercase()).collect();
        Some(Texts {
            name: parts(&spec.name),
            whole_name: spec.name.to_lowercase(),
            title: [tool.title(), tool.lender()]
                .map(Option::unwrap_or_default)
                .join(" ")
                .to_lowercase(),
            arguments: arguments.join(" "),
            description: cut(&spec.description, LONGEST_SEARCHED).to_lowercase(),
        })
    }
}

/// The words of a name: `listPages` and `list_pages` have the same.
fn parts(name: &str) -> Vec<String> {
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
    parts.retain(|it| !it.is_empty());
    parts
}

/// How well a tool fits: how many of the words it has, and then where.
fn score(texts: &Texts, words: &[String]) -> Option<(usize, usize)> {
    let worth = |word: &String| {
        let is_part = |it: &String| it == word || it.strip_suffix('s') == Some(word);
        if texts.name.iter().any(is_part) {
            10
        } else if texts.whole_name.contains(word) {
            6
        } else if texts.title.contains(word) {
            4
        } else if texts.arguments.contains(word) {
            3
        } else {
            2 * usize::from(texts.description.contains(word))
        }
    };
    let worths: Vec<_> = words.iter().map(worth).filter(|it| *it > 0).collect();
    (!worths.is_empty()).then(|| (worths.len(), worths.iter().sum()))
}

fn told(found: &[Arc<dyn AnyTool>], missing: &[String]) -> String {
    let mut text = String::new();
    for tool in found {
        let Some(spec) = tool.spec(&Offer::default()) else { continue };
        let description = visible_line(cut(&spec.description, LONGEST_DESCRIPTION));
        text.push_str(&format!("{}: {description}\n{}\n", spec.name, schema(&spec.parameters)));
    }
    for name in missing {
        text.push_str(&format!("There is no tool {name}.\n"));
    }
    match found {
        [] if missing.is_empty() => "No tool fits. Try other words.".to_owned(),
        [] => text,
        _ => text + "These can be called now.",
    }
}

fn schema(parameters: &Value) -> String {
    let schema = parameters.to_string();
    if schema.len() <= LONGEST_SCHEMA {
        return schema;
    }
    let names = parameters["properties"].as_object().into_iter().flatten();
    let names: Vec<_> = names.map(|(name, _)| name.as_str()).collect();
    cut(&format!("arguments: {}", names.join(", ")), LONGEST_SCHEMA).to_owned()
}

/// The beginning of a text.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Prepared;

    #[derive(Debug)]
    struct Fake(Arc<ToolSpec>, &'static str);

    impl AnyTool for Fake {
        fn name(&self) -> &str {
            &self.0.name
        }

        fn reads(&self) -> bool {
            false
        }

        fn spec(&self, _: &Offer) -> Option<Arc<ToolSpec>> {
            Some(Arc::clone(&self.0))
        }

        fn title(&self) -> Option<&str> {
            Some(self.1)
        }

        fn lender(&self) -> Option<&str> {
            self.0.name.split("__").nth(1)
        }

        fn first_view(&self) -> Option<CallView> {
            None
        }

        fn prepare(self: Arc<Self>, _: Value) -> Result<Box<dyn Prepared>, String> {
            Err("no".to_owned())
        }
    }

    fn tool(name: &str, title: &'static str, about: &str, arg: &str) -> Arc<dyn AnyTool> {
        let parameters = json!({ "type": "object", "properties": { arg: { "type": "string" } } });
        let (name, description) = (name.to_owned().into(), about.to_owned());
        Arc::new(Fake(Arc::new(ToolSpec { name, description, parameters }), title))
    }

    fn stock() -> Stock {
        Stock::new(vec![
            tool("mcp__notes__delete_page", "", "Removes a page for good.", "page"),
            tool("mcp__notes__listPages", "", "All that there are.", "folder"),
            tool("mcp__notes__find", "Look for words", "Where a word stands in a page.", "text"),
            tool("mcp__mail__send", "", "Sends a letter.", "recipient"),
            tool("mcp__mail__inbox", "", "Letters that have come.", "folder"),
        ])
    }

    fn found(query: &str) -> Vec<String> {
        let names = names(&stock(), query).into_iter();
        names.map(|it| it.rsplit("__").next().unwrap_or_default().to_owned()).collect()
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
        let many = (0..50).map(|it| tool(&format!("mcp__a__word{it}"), "", &long, &long));
        let stock = Stock::new(many.collect());
        let (found, _) = find(&stock, &"word ".repeat(1_000));
        let text = told(&found, &[]);
        assert!(text.len() < 20 * 1024, "{}", text.len());
        assert!(text.starts_with("mcp__a__word0: word"));
        let (found, missing) = find(&stock, "select:mcp__a__word3,mcp__a__none");
        let text = told(&found, &missing);
        assert!(
            text.ends_with("There is no tool mcp__a__none.\nThese can be called now."),
            "{text}"
        );
        assert_eq!(told(&[], &[]), "No tool fits. Try other words.");
    }

    #[test]
    fn the_overview_is_bounded_and_fair() {
        let text = overview(&stock());
        assert_eq!(
            text,
            " notes, 3 tools mcp__notes__…: delete_page, listPages, find. mail, 2 tools \
             mcp__mail__…: send, inbox."
        );
        let of = |server: usize| {
            (0..50).map(move |it| tool(&format!("mcp__server{server}__tool_{it}"), "", "", "x"))
        };
        let text = overview(&Stock::new((0..30).flat_map(of).collect()));
        assert!(text.len() < 4 * 1024, "{}", text.len());
        assert!(text.contains("server19, 50 tools"), "{text}");
        assert!(text.ends_with("And 10 servers more."), "{text}");
    }
}
