//! The schema of a tool's arguments as the model is told it: small, without references, and with
//! nothing in it that hides. Pure; nothing is ever fetched. What providers do not take of it is
//! left out where requests are made.

use serde_json::{Map, Value, json};

use turnwright_types::effect::{hides, visible};

/// How deep it may nest. One that is too large is cut at the next of these.
const DEPTHS: [usize; 4] = [16, 6, 3, 1];
/// Bytes of what the model is told.
const LARGEST: usize = 32 * 1024;
/// Characters of the description of an argument.
const LONGEST_DESCRIPTION: usize = 1_000;
/// Characters of another text, such as a value to choose.
const LONGEST_TEXT: usize = 400;
/// Values of a list, and alternatives.
const MOST: usize = 200;
/// Parts of a reference.
const MOST_STEPS: usize = 16;
/// References that lead to nothing but the next.
const LONGEST_CHAIN: usize = 8;

const ENDLESS: &str = "its arguments nest without end, and are described a part of the way";

/// Whether a value is what a keyword takes.
pub(super) type Fit = fn(&Value) -> bool;

/// What is told as it is, if it is of that sort.
const PLAIN: [(&str, Fit); 14] = [
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
    ("default", |it| !it.is_array() && !it.is_object()),
];

/// What the model is told.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    /// An object's schema.
    pub(super) schema: Value,
    /// Why it is not all that the server has said, in words for people.
    pub(super) lacks: Option<&'static str>,
}

/// What to tell of a schema.
pub(super) fn told(schema: &Map<String, Value>) -> Told {
    for depth in DEPTHS {
        let mut walk = Walk { root: schema, depth, room: LARGEST, open: vec![schema], cut: None };
        if let Some(schema) = walk.object() {
            return Told { schema, lacks: walk.cut };
        }
    }
    let lacks = Some("the description of its arguments is too large and was left out");
    Told { schema: json!({ "type": "object", "properties": {} }), lacks }
}

/// One way through a schema. `None` from any of its methods: it is too large for this depth.
struct Walk<'a> {
    root: &'a Map<String, Value>,
    depth: usize,
    room: usize,
    /// What each reference on the way here has led to.
    open: Vec<&'a Map<String, Value>>,
    cut: Option<&'static str>,
}

impl<'a> Walk<'a> {
    fn object(&mut self) -> Option<Value> {
        let mut fields = self.fields(self.root, 0)?;
        fields.insert("type".to_owned(), "object".into());
        if !fields.get("properties").is_some_and(Value::is_object) {
            fields.insert("properties".to_owned(), json!({}));
        }
        Some(Value::Object(fields))
    }

    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.room = self.room.checked_sub(bytes)?;
        Some(())
    }

    fn node(&mut self, schema: &'a Value, level: usize) -> Option<Value> {
        // `true` and `false` are schemas, too; the model learns nothing by them.
        let Value::Object(schema) = schema else { return self.spend(2).map(|()| json!({})) };
        Some(Value::Object(self.fields(schema, level)?))
    }

    fn fields(
        &mut self,
        schema: &'a Map<String, Value>,
        level: usize,
    ) -> Option<Map<String, Value>> {
        self.spend(4)?;
        let open = self.open.len();
        let mut fields = Map::new();
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            match self.target(reference) {
                // A chain of them is not deep, but it has to end.
                Ok(_) if self.open.len() > level + LONGEST_CHAIN => self.cut = Some(ENDLESS),
                Ok(target) => {
                    self.open.push(target);
                    fields = self.fields(target, level)?;
                }
                Err(why) => {
                    self.cut = Some(why);
                    fields.insert("type".to_owned(), "object".into());
                }
            }
        }
        let own = self.own(schema, level);
        self.open.truncate(open);
        // Both lists of properties count, and what stands beside a reference is the nearer word.
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

    /// What a reference leads to, unless it leads out of the schema or back to where it stands.
    fn target(&self, reference: &str) -> Result<&'a Map<String, Value>, &'static str> {
        let found = resolve(self.root, reference)
            .ok_or("its arguments are described elsewhere, which is not looked up")?;
        if self.open.iter().any(|it| std::ptr::eq(*it, found)) {
            return Err(ENDLESS);
        }
        Ok(found)
    }

    /// What the schema says itself.
    fn own(&mut self, schema: &'a Map<String, Value>, level: usize) -> Option<Map<String, Value>> {
        let mut fields = Map::new();
        for (key, is_fit) in PLAIN {
            let Some(value) = schema.get(key).filter(|it| is_fit(it)) else { continue };
            if let Some(value) = self.value(value)? {
                fields.insert(key.to_owned(), value);
            }
        }
        for key in ["type", "enum", "const", "required"] {
            match schema.get(key) {
                Some(Value::Array(all)) if key != "const" => {
                    let all: Option<Vec<_>> =
                        all.iter().take(MOST).map(|it| self.value(it)).collect();
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
            let text = words(text, LONGEST_DESCRIPTION);
            self.spend(text.len() + 20)?;
            fields.insert("description".to_owned(), text.into());
        }
        self.inner(schema, level, &mut fields)?;
        Some(fields)
    }

    /// The schemas within it.
    fn inner(
        &mut self,
        schema: &'a Map<String, Value>,
        level: usize,
        fields: &mut Map<String, Value>,
    ) -> Option<()> {
        let keys = [
            "properties",
            "items",
            "prefixItems",
            "anyOf",
            "oneOf",
            "allOf",
            "additionalProperties",
        ];
        for key in keys {
            let Some(inner) = schema.get(key) else { continue };
            self.spend(key.len() + 4)?;
            let is_list = matches!(key, "prefixItems" | "anyOf" | "oneOf" | "allOf" | "items");
            if level >= self.depth && (inner.is_object() || inner.is_array()) {
                self.cut = Some("its arguments nest deeper than is described");
                continue;
            }
            let told = match inner {
                Value::Object(properties) if key == "properties" => {
                    self.properties(properties, level)?
                }
                Value::Array(all) if is_list => {
                    let all = all.iter().take(MOST).map(|it| self.node(it, level + 1));
                    all.collect::<Option<Vec<_>>>()?.into()
                }
                Value::Bool(_) if key == "additionalProperties" => inner.clone(),
                Value::Object(_) if key == "items" || key == "additionalProperties" => {
                    self.node(inner, level + 1)?
                }
                _ => continue,
            };
            fields.insert(key.to_owned(), told);
        }
        Some(())
    }

    fn properties(&mut self, properties: &'a Map<String, Value>, level: usize) -> Option<Value> {
        let mut told = Map::new();
        for (name, schema) in properties {
            // A name cannot be shown in another way: the server would not know it.
            if name.chars().any(hides) || name.len() > LONGEST_TEXT {
                self.cut = Some("an argument has a name that cannot be shown");
                continue;
            }
            self.spend(name.len() + 6)?;
            told.insert(name.clone(), self.node(schema, level + 1)?);
        }
        Some(Value::Object(told))
    }

    /// A value, if it can be shown.
    #[expect(clippy::option_option, reason = "too large, not to be shown, or shown")]
    fn value(&mut self, value: &Value) -> Option<Option<Value>> {
        let (bytes, is_shown) = match value {
            Value::String(text) => {
                (text.len(), text.len() <= LONGEST_TEXT && !text.chars().any(hides))
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

/// What a reference within the schema leads to.
fn resolve<'a>(root: &'a Map<String, Value>, reference: &str) -> Option<&'a Map<String, Value>> {
    let pointer = reference.strip_prefix('#')?;
    let Some(pointer) = pointer.strip_prefix('/') else {
        return pointer.is_empty().then_some(root);
    };
    let mut steps = pointer.split('/').take(MOST_STEPS);
    let step = |it: &str| it.replace("%24", "$").replace("~1", "/").replace("~0", "~");
    let mut found = root.get(&step(steps.next()?))?;
    for name in steps {
        found = match found {
            Value::Object(fields) => fields.get(&step(name))?,
            Value::Array(items) => items.get(name.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    found.as_object()
}

/// A text that a server has written: what hides in it is seen, and it has an end.
pub(super) fn words(text: &str, longest: usize) -> String {
    let text = text.trim();
    let mut end = text.char_indices().skip(longest).map(|it| it.0);
    match end.next() {
        Some(end) => format!("{}…", visible(text[..end].trim_end())),
        None => visible(text),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(schema: Value) -> Told {
        let Value::Object(schema) = schema else { panic!("no object") };
        told(&schema)
    }

    #[test]
    fn what_a_schema_says_is_told_without_references() {
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
        assert_eq!(of(schema), Told { schema: expected, lacks: None });
    }

    #[test]
    fn what_cannot_be_told_is_cut_and_said() {
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
            (cyclic, json!({ "left": open, "right": open }), "nest without end"),
            (remote, json!({ "a": open }), "not looked up"),
            (hidden, json!({ "b": { "enum": ["y"] } }), "cannot be shown"),
        ];
        for (schema, properties, lacks) in table {
            let told = of(schema);
            assert_eq!(told.schema["properties"], properties);
            assert!(told.lacks.unwrap().contains(lacks), "{:?}", told.lacks);
        }
    }

    #[test]
    fn a_schema_that_is_too_large_is_an_open_object() {
        let many: Map<_, _> = (0..5_000).map(|it| (format!("argument_{it}"), json!({}))).collect();
        let told = of(json!({ "type": "object", "properties": many }));
        assert_eq!(told.schema, json!({ "type": "object", "properties": {} }));
        assert!(told.lacks.unwrap().contains("too large"));
        // Each definition names the next one many times.
        let mut defs = Map::new();
        for number in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/d{}", number + 1) });
            defs.insert(format!("d{number}"), json!({ "anyOf": vec![next; 100] }));
        }
        let told = of(json!({ "properties": { "a": { "$ref": "#/$defs/d0" } }, "$defs": defs }));
        assert!(told.lacks.is_some() && told.schema.to_string().len() <= LARGEST);
    }

    #[test]
    fn nothing_hides_in_a_description() {
        let told = of(json!({ "properties": {
            "a": { "description": format!(" do\u{200b}\u{e0041}\u{202e} it {} ", "x".repeat(9_000)) },
        } }));
        let text = told.schema["properties"]["a"]["description"].as_str().unwrap();
        assert!(text.starts_with("do\\u{200b}\\u{e0041}\\u{202e} it xxx") && text.ends_with("x…"));
        assert!(text.len() < 1_100);
    }

    /// Any JSON, rich in what schemas are made of.
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
                    .prop_map(|it| Value::Object(it.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_comes_an_object_of_a_bounded_size_is_told(schema in any_schema()) {
            let Value::Object(schema) = schema else { return Ok(()) };
            let told = told(&schema);
            prop_assert_eq!(&told.schema["type"], "object");
            prop_assert!(told.schema["properties"].is_object());
            let text = told.schema.to_string();
            prop_assert!(text.len() <= LARGEST + 200 && !text.contains("$ref\":\""), "{}", text);
        }
    }
}
