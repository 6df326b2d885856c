//! Simplifies the schema of a tool's arguments for the model: bounded, without references, and without
//! hidden characters. Pure; remote references are never fetched. Keywords that a provider rejects are
//! removed later, where requests are made.

use serde_json::{Map, Value, json};

use crate::features::JsonObject;
use turnwright_types::effect::{escape_hidden, is_hidden_char};
use turnwright_types::text;

/// The depths at which a schema is cut, one after the other, until it is small enough.
const DEPTHS: [usize; 4] = [16, 6, 3, 1];
/// Maximum size of the simplified schema.
const MAX_BYTES: usize = 32 * 1024;
/// Maximum length of an argument's description.
const MAX_DESCRIPTION_CHARS: usize = 1_000;
/// Maximum length of any other string, such as an enum value.
const MAX_STRING_BYTES: usize = 400;
/// Maximum length of a list, such as enum values or alternatives.
const MAX_ITEMS: usize = 200;
/// Maximum number of references that lead directly to another reference.
const MAX_REFERENCE_CHAIN: usize = 8;

/// Tests whether a value is valid for a keyword.
type IsFit = fn(&Value) -> bool;

/// Keywords that are copied if their value is valid.
const COPIED_KEYWORDS: [(&str, IsFit); 14] = [
    ("minimum", Value::is_number),
    ("maximum", Value::is_number),
    ("exclusiveMinimum", Value::is_number),
    ("exclusiveMaximum", Value::is_number),
    ("multipleOf", Value::is_number),
    ("minLength", Value::is_u64),
    ("maxLength", Value::is_u64),
    ("minItems", Value::is_u64),
    ("maxItems", Value::is_u64),
    ("uniqueItems", Value::is_boolean),
    ("nullable", Value::is_boolean),
    ("pattern", Value::is_string),
    ("format", Value::is_string),
    ("default", |value| !value.is_array() && !value.is_object()),
];

/// Keywords with schemas as their values.
const NESTED_KEYWORDS: [&str; 7] =
    ["properties", "items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"];

/// A schema as the model is shown it.
#[derive(Debug, PartialEq)]
pub(crate) struct ModelSchema {
    /// The schema of an object.
    pub schema: Value,
    /// False if something was left out.
    pub is_whole: bool,
}

/// Simplifies a schema for the model.
pub(crate) fn model_schema(schema: &JsonObject) -> ModelSchema {
    for depth in DEPTHS {
        let mut walk = SchemaWalk {
            root: schema,
            depth,
            budget: MAX_BYTES,
            open: vec![schema],
            is_whole: true,
        };
        if let Some(schema) = walk.object() {
            return ModelSchema { schema, is_whole: walk.is_whole };
        }
    }
    ModelSchema { schema: json!({ "type": "object", "properties": {} }), is_whole: false }
}

/// One traversal of a schema. Any method returns `None` if the schema is too large at this depth.
struct SchemaWalk<'a> {
    root: &'a JsonObject,
    depth: usize,
    /// Bytes that are left.
    budget: usize,
    /// The targets of the references on the path to the current node.
    open: Vec<&'a JsonObject>,
    is_whole: bool,
}

impl<'a> SchemaWalk<'a> {
    fn object(&mut self) -> Option<Value> {
        let mut fields = self.fields(self.root, 0)?;
        fields.insert("type".to_owned(), "object".into());
        if !fields.get("properties").is_some_and(Value::is_object) {
            fields.insert("properties".to_owned(), json!({}));
        }
        Some(Value::Object(fields))
    }

    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.budget = self.budget.checked_sub(bytes)?;
        Some(())
    }

    fn node(&mut self, schema: &'a Value, level: usize) -> Option<Value> {
        // `true` and `false` are schemas too, but tell the model nothing.
        let Value::Object(schema) = schema else { return self.spend(2).map(|()| json!({})) };
        Some(Value::Object(self.fields(schema, level)?))
    }

    fn fields(&mut self, schema: &'a JsonObject, level: usize) -> Option<JsonObject> {
        self.spend(4)?;
        let open = self.open.len();
        let mut fields = Map::new();
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            match self.target(reference) {
                // A chain of references adds no depth, so it needs a limit of its own.
                Some(_) if self.open.len() > level + MAX_REFERENCE_CHAIN => self.is_whole = false,
                Some(target) => {
                    self.open.push(target);
                    fields = self.fields(target, level)?;
                }
                None => {
                    self.is_whole = false;
                    fields.insert("type".to_owned(), "object".into());
                }
            }
        }
        let own = self.own(schema, level);
        self.open.truncate(open);
        // Properties of the reference and of the schema itself are merged; for other keywords, those
        // beside the reference take precedence.
        for (key, value) in own? {
            match (fields.get_mut(&key), value) {
                (Some(Value::Object(known)), Value::Object(more)) if key == "properties" => {
                    known.extend(more);
                }
                (Some(Value::Array(known)), Value::Array(more)) if key == "required" => {
                    known.extend(more);
                }
                (_, value) => drop(fields.insert(key, value)),
            }
        }
        Some(fields)
    }

    /// Resolves a reference, unless it leads out of the schema or back to where it is used.
    fn target(&self, reference: &str) -> Option<&'a JsonObject> {
        let found = resolve(self.root, reference)?;
        let is_open = self.open.iter().any(|schema| std::ptr::eq(*schema, found));
        (!is_open).then_some(found)
    }

    /// The keywords of the schema itself, without its reference.
    fn own(&mut self, schema: &'a JsonObject, level: usize) -> Option<JsonObject> {
        let mut fields = Map::new();
        for (key, is_fit) in COPIED_KEYWORDS {
            let Some(value) = schema.get(key).filter(|value| is_fit(value)) else { continue };
            if let Some(value) = self.value(value)? {
                fields.insert(key.to_owned(), value);
            }
        }
        for key in ["type", "enum", "const", "required"] {
            match schema.get(key) {
                Some(Value::Array(all)) if key != "const" => {
                    let all: Option<Vec<_>> =
                        all.iter().take(MAX_ITEMS).map(|item| self.value(item)).collect();
                    let all: Vec<_> = all?.into_iter().flatten().collect();
                    fields.insert(key.to_owned(), all.into());
                }
                Some(one) if key == "const" || key == "type" && one.is_string() => {
                    if let Some(value) = self.value(one)? {
                        fields.insert(key.to_owned(), value);
                    }
                }
                _ => {}
            }
        }
        if let Some(Value::String(text)) = schema.get("description") {
            let text = bounded_text(text, MAX_DESCRIPTION_CHARS);
            self.spend(text.len() + 20)?;
            fields.insert("description".to_owned(), text.into());
        }
        self.inner(schema, level, &mut fields)?;
        Some(fields)
    }

    /// The nested schemas.
    fn inner(
        &mut self,
        schema: &'a JsonObject,
        level: usize,
        fields: &mut JsonObject,
    ) -> Option<()> {
        for key in NESTED_KEYWORDS {
            let Some(inner) = schema.get(key) else { continue };
            self.spend(key.len() + 4)?;
            let is_list = matches!(key, "prefixItems" | "anyOf" | "oneOf" | "allOf" | "items");
            if level >= self.depth && (inner.is_object() || inner.is_array()) {
                self.is_whole = false;
                continue;
            }
            let simplified = match inner {
                Value::Object(properties) if key == "properties" => {
                    self.properties(properties, level)?
                }
                Value::Array(all) if is_list => {
                    let all = all.iter().take(MAX_ITEMS).map(|item| self.node(item, level + 1));
                    all.collect::<Option<Vec<_>>>()?.into()
                }
                Value::Bool(_) if key == "additionalProperties" => inner.clone(),
                Value::Object(_) if key == "items" || key == "additionalProperties" => {
                    self.node(inner, level + 1)?
                }
                _ => continue,
            };
            fields.insert(key.to_owned(), simplified);
        }
        Some(())
    }

    fn properties(&mut self, properties: &'a JsonObject, level: usize) -> Option<Value> {
        let mut simplified = Map::new();
        for (name, schema) in properties {
            // The name cannot be escaped: the server would not recognise it.
            if name.chars().any(is_hidden_char) || name.len() > MAX_STRING_BYTES {
                self.is_whole = false;
                continue;
            }
            self.spend(name.len() + 6)?;
            simplified.insert(name.clone(), self.node(schema, level + 1)?);
        }
        Some(Value::Object(simplified))
    }

    /// Returns a value if it can be shown.
    #[expect(clippy::option_option, reason = "too large, cannot be shown, or shown")]
    fn value(&mut self, value: &Value) -> Option<Option<Value>> {
        let (bytes, is_shown) = match value {
            Value::String(text) => {
                (text.len(), text.len() <= MAX_STRING_BYTES && !text.chars().any(is_hidden_char))
            }
            Value::Array(_) | Value::Object(_) => (0, false),
            _ => (5, true),
        };
        if !is_shown {
            return Some(None);
        }
        self.spend(bytes + 12)?;
        Some(Some(value.clone()))
    }
}

/// Resolves a reference within the schema to an object.
pub(crate) fn resolve<'a>(root: &'a JsonObject, reference: &str) -> Option<&'a JsonObject> {
    if reference == "#" { Some(root) } else { resolve_below(root, reference)?.as_object() }
}

/// Resolves a reference to a part of the schema.
pub(crate) fn resolve_below<'a>(root: &'a JsonObject, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix("#/")?.replace("%24", "$");
    let (first, rest) = pointer.split_at(pointer.find('/').unwrap_or(pointer.len()));
    root.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
}

/// Makes a server's text safe to show: hidden characters are escaped, and it is cut after `max_chars`.
pub fn bounded_text(text: &str, max_chars: usize) -> String {
    let text = text.trim();
    let start = text::first_chars(text, max_chars);
    let ellipsis = if start.len() < text.len() { "…" } else { "" };
    escape_hidden(start.trim_end()) + ellipsis
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(schema: Value) -> ModelSchema {
        let Value::Object(schema) = schema else { panic!("no object") };
        model_schema(&schema)
    }

    #[test]
    fn references_are_resolved() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "title": "Args",
            "properties": {
                "at": { "$ref": "#/$defs/Point", "description": "Where" },
                "all": { "type": "array", "items": { "$ref": "#/$defs/Point" } },
                "any": true,
                "kind": { "type": ["string", "null"], "enum": ["a", "b", null], "x-own": 1 },
                "n": { "anyOf": [{ "type": "integer", "format": "made-up" }, { "const": "all" }] },
            },
            "required": ["at"],
            "additionalProperties": false,
            "$defs": { "Point": { "type": "object", "properties": { "x": { "type": "number" } } } },
        });
        let point = json!({ "type": "object", "properties": { "x": { "type": "number" } } });
        let mut at = point.clone();
        at["description"] = "Where".into();
        let expected = json!({
            "type": "object",
            "properties": {
                "at": at,
                "all": { "type": "array", "items": point },
                "any": {},
                "kind": { "type": ["string", "null"], "enum": ["a", "b", null] },
                "n": { "anyOf": [{ "type": "integer", "format": "made-up" }, { "const": "all" }] },
            },
            "required": ["at"],
            "additionalProperties": false,
        });
        assert_eq!(of(schema), ModelSchema { schema: expected, is_whole: true });
    }

    #[test]
    fn what_cannot_be_shown_is_left_out_and_reported() {
        let open = json!({ "type": "object" });
        let cyclic = json!({
            "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#/$defs/a" } },
            "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } },
        });
        let remote =
            json!({ "properties": { "a": { "$ref": "https://evil.example/schema.json" } } });
        let hidden =
            json!({ "properties": { "a\u{200b}": {}, "b": { "enum": ["\u{202e}x", "y"] } } });
        let table = [
            (cyclic, json!({ "left": open, "right": open })),
            (remote, json!({ "a": open })),
            (hidden, json!({ "b": { "enum": ["y"] } })),
        ];
        for (schema, properties) in table {
            let simplified = of(schema);
            assert_eq!(simplified.schema["properties"], properties);
            assert!(!simplified.is_whole, "{properties}");
        }
    }

    #[test]
    fn a_schema_that_is_too_large_is_an_open_object() {
        let many: Map<_, _> =
            (0..5_000).map(|number| (format!("argument_{number}"), json!({}))).collect();
        let simplified = of(json!({ "type": "object", "properties": many }));
        assert_eq!(simplified.schema, json!({ "type": "object", "properties": {} }));
        assert!(!simplified.is_whole);
        // Each definition names the next one many times.
        let mut defs = Map::new();
        for number in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/d{}", number + 1) });
            defs.insert(format!("d{number}"), json!({ "anyOf": vec![next; 100] }));
        }
        let simplified =
            of(json!({ "properties": { "a": { "$ref": "#/$defs/d0" } }, "$defs": defs }));
        assert!(!simplified.is_whole && simplified.schema.to_string().len() <= MAX_BYTES);
    }

    #[test]
    fn descriptions_are_escaped_and_bounded() {
        let simplified = of(json!({ "properties": {
            "a": { "description": format!(" do\u{200b}\u{e0041}\u{202e} it {} ", "x".repeat(9_000)) },
        } }));
        let text = simplified.schema["properties"]["a"]["description"].as_str().unwrap();
        assert!(text.starts_with("do\\u{200b}\\u{e0041}\\u{202e} it xxx") && text.ends_with("x…"));
        assert!(text.len() < 1_100);
    }

    /// Arbitrary JSON, rich in schema keywords.
    fn any_schema() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({ "$ref": "#" })),
            Just(json!({ "$ref": "#/properties/a" })),
            Just(json!({ "$ref": "#/anyOf/0/items" })),
            Just(json!({ "$ref": "#/$defs/a" })),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
            Just(json!("object")),
            Just(Value::Null),
        ];
        let key = prop_oneof![
            Just("properties"),
            Just("items"),
            Just("anyOf"),
            Just("allOf"),
            Just("type"),
            Just("enum"),
            Just("required"),
            Just("$defs"),
            Just("a"),
            Just("description"),
            Just("additionalProperties"),
            Just("$ref"),
            Just("prefixItems"),
            Just("const"),
        ]
        .prop_map(str::to_owned);
        leaf.prop_recursive(6, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(key.clone(), inner, 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_schema_becomes_a_bounded_object_schema(schema in any_schema()) {
            let Value::Object(schema) = schema else { return Ok(()) };
            let simplified = model_schema(&schema);
            prop_assert_eq!(&simplified.schema["type"], "object");
            prop_assert!(simplified.schema["properties"].is_object());
            let text = simplified.schema.to_string();
            prop_assert!(text.len() <= MAX_BYTES + 200 && !text.contains("$ref\":\""), "{}", text);
        }
    }
}
