//! A tool as a server lists it, made ready once for all sessions that have the server.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde_json::{Map, Value, json};

use super::check::Check;
use super::schema::{Fit, told, words};
use turnwright_types::effect::{Kind, visible_line};

/// Characters of a description.
const LONGEST_DESCRIPTION: usize = 2_000;
/// Characters of a title.
const LONGEST_TITLE: usize = 80;
/// Characters of a name. The protocol has 128.
const LONGEST_NAME: usize = 256;
/// Bytes of a schema that is kept as it came.
const LARGEST: usize = 256 * 1024;

/// A tool.
#[derive(Debug)]
pub struct Listed {
    /// As the server says it. Nothing in it is fit to be shown.
    pub tool: Tool,
    /// What it does, for the model and for people.
    pub description: String,
    /// The schema of its arguments, for the model.
    pub parameters: Value,
    /// What is odd about it, for people.
    pub remarks: Vec<String>,
    /// It is not the server's: it reads the resources of it.
    pub(super) reads_resources: bool,
    pub(super) arguments: Check,
    pub(super) results: Option<Check>,
    /// About as many bytes as it takes.
    pub(super) weight: usize,
}

impl Listed {
    /// Makes a tool ready. May take its time: not for the runtime's thread.
    pub(super) fn new(mut tool: Tool) -> Listed {
        let mut remarks = Vec::new();
        let mut weight = weight(&tool.input_schema);
        if weight > LARGEST {
            tool.input_schema = open_object();
            remarks.push("its schema is too large and was left out".to_owned());
            weight = 0;
        }
        if let Some(schema) = tool.output_schema.take_if(|it| self::weight(it) > LARGEST) {
            remarks.push("the schema of its results is too large and was left out".to_owned());
            drop(schema);
        }
        let said = tool.description.as_deref().unwrap_or_default();
        let description = words(said, LONGEST_DESCRIPTION);
        if said.chars().count() > LONGEST_DESCRIPTION {
            remarks.push("its description is too long and was cut".to_owned());
        }
        if said.chars().any(turnwright_types::effect::hides) {
            remarks.push("its description has hidden characters, which are shown".to_owned());
        }
        let told = told(&tool.input_schema);
        remarks.extend(told.lacks.map(str::to_owned));
        // Nobody is shown these.
        (tool.icons, tool.meta) = (None, None);
        let hint = tool.annotations.as_ref().and_then(|it| it.title.as_ref());
        weight += tool.title.iter().chain(hint).map(String::len).sum::<usize>();
        weight += said.len() + tool.output_schema.as_ref().map_or(0, |it| self::weight(it));
        Listed {
            reads_resources: false,
            arguments: Check::new(Arc::clone(&tool.input_schema)),
            results: tool.output_schema.clone().map(Check::new),
            parameters: told.schema,
            description,
            remarks,
            weight,
            tool,
        }
    }

    /// Its name, for people.
    pub fn shown_name(&self) -> String {
        visible_line(&self.tool.name)
    }

    /// What it calls itself, if that is something else than its name.
    pub fn title(&self) -> Option<String> {
        let hint = || self.tool.annotations.as_ref()?.title.as_ref();
        let title = self.tool.title.as_ref().or_else(hint)?;
        let title = words(&visible_line(title), LONGEST_TITLE);
        (!title.is_empty() && title != self.tool.name).then_some(title)
    }

    /// Whether it says of itself that it only reads. Nobody has to believe that.
    pub fn claims_to_read(&self) -> bool {
        self.tool.annotations.as_ref().and_then(|it| it.read_only_hint).unwrap_or(false)
    }

    /// The sort of icon that goes with what it says of itself.
    pub(super) fn kind(&self) -> Kind {
        let hints = self.tool.annotations.as_ref();
        match hints.and_then(|it| it.destructive_hint) {
            _ if self.claims_to_read() => Kind::Read,
            Some(true) => Kind::Edit,
            _ => Kind::Other,
        }
    }
}

fn open_object() -> Arc<JsonObject> {
    Arc::new(Map::from_iter([("type".to_owned(), json!("object"))]))
}

/// About as many bytes as it has as text.
fn weight(fields: &Map<String, Value>) -> usize {
    fields.iter().map(|(key, it)| key.len() + 4 + weight_of(it)).sum::<usize>() + 2
}

fn weight_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 3,
        Value::Object(fields) => weight(fields),
        Value::Array(items) => items.iter().map(weight_of).sum::<usize>() + 2,
        _ => 5,
    }
}

/// A page of a list, read so that what is wrong with one tool does not take away the others: its
/// tools, and where the next page is.
pub(super) fn page(mut page: Value) -> Option<(Vec<Tool>, Option<String>)> {
    let Value::Array(tools) = page.get_mut("tools")?.take() else { return None };
    let cursor = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
    Some((tools.into_iter().filter_map(tool).collect(), cursor))
}

/// A tool of which only the name has to be right.
fn tool(mut said: Value) -> Option<Tool> {
    if !said.get("inputSchema").is_some_and(Value::is_object) {
        said.as_object_mut()?.insert("inputSchema".to_owned(), json!({ "type": "object" }));
    }
    if let Ok(tool) = serde_json::from_value(said.clone()) {
        return Some(tool);
    }
    let mut kept = Map::new();
    let kinds: [(&str, Fit); 5] = [
        ("name", Value::is_string),
        ("title", Value::is_string),
        ("description", Value::is_string),
        ("inputSchema", Value::is_object),
        ("outputSchema", Value::is_object),
    ];
    for (key, is_fit) in kinds {
        if let Some(value) = said.get_mut(key).map(Value::take).filter(is_fit) {
            kept.insert(key.to_owned(), value);
        }
    }
    serde_json::from_value(Value::Object(kept)).ok()
}

/// Whether a tool can be called by that name.
pub(super) fn has_name(tool: &Tool) -> bool {
    (1..=LONGEST_NAME).contains(&tool.name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(tool: Value) -> Listed {
        Listed::new(self::tool(tool).unwrap())
    }

    #[test]
    fn one_bad_tool_does_not_take_away_the_others() {
        let (tools, cursor) = page(json!({
            "tools": [
                { "name": "a", "inputSchema": { "type": "object" } },
                { "name": "b" },
                { "name": "c", "inputSchema": "none", "description": 5 },
                { "name": "d", "inputSchema": null, "annotations": "odd", "title": "D" },
                { "name": 7, "inputSchema": {} },
                "e",
            ],
            "nextCursor": 9,
        }))
        .unwrap();
        let names: Vec<_> = tools.iter().map(|it| it.name.as_ref()).collect();
        assert_eq!((names.as_slice(), cursor), (&["a", "b", "c", "d"][..], None));
        assert_eq!(tools[3].title.as_deref(), Some("D"));
        assert!(page(json!({ "tools": {} })).is_none() && page(json!([])).is_none());
    }

    #[test]
    fn a_description_hides_nothing_and_has_an_end() {
        let description = format!("Reads.\u{200b}\u{e0001} {}", "long ".repeat(1_000));
        let listed = listed(json!({ "name": "a\u{202e}b", "description": description }));
        assert!(listed.description.starts_with("Reads.\\u{200b}\\u{e0001} long"));
        assert!(listed.description.chars().count() < LONGEST_DESCRIPTION + 40);
        assert_eq!(listed.remarks.len(), 2, "{:?}", listed.remarks);
        assert_eq!(listed.shown_name(), "a\\u{202e}b");
    }

    #[test]
    fn hints_are_shown_as_what_they_are() {
        let table = [
            (json!({}), Kind::Other),
            (json!({ "readOnlyHint": true }), Kind::Read),
            (json!({ "readOnlyHint": true, "destructiveHint": true }), Kind::Read),
            (json!({ "destructiveHint": true }), Kind::Edit),
            (json!({ "destructiveHint": false }), Kind::Other),
        ];
        for (hints, kind) in table {
            let listed = listed(json!({ "name": "a", "annotations": hints }));
            assert_eq!(listed.kind(), kind, "{hints}");
        }
    }

    #[test]
    fn all_that_is_kept_has_its_weight() {
        let (long, hint) = ("x".repeat(500_000), json!({ "title": "x".repeat(500_000) }));
        let icons = json!([{ "src": long }]);
        let tool = json!({ "name": "a", "title": long, "annotations": hint, "icons": icons,
            "_meta": { "a": long }, "inputSchema": {} });
        let listed = listed(tool);
        assert!(listed.weight > 1_000_000 && listed.tool.icons.is_none());
        assert!(listed.tool.meta.is_none());
    }

    #[test]
    fn a_huge_schema_is_not_kept() {
        let schema = json!({ "type": "object", "$comment": "x".repeat(300_000) });
        let listed = listed(json!({ "name": "a", "inputSchema": schema }));
        assert_eq!(listed.parameters, json!({ "type": "object", "properties": {} }));
        assert!(listed.weight < 1_000 && !listed.remarks.is_empty());
    }
}
