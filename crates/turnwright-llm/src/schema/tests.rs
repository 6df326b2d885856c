//! Schemas of all kinds and what they are converted to.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{MAX_SCHEMA_BYTES, json_size, provider_safe_schema, with_safe_names};
use checker::is_provider_safe;
use turnwright_types::message::ToolSpec;

mod checker;

/// Converts a schema with the single property `p` and returns that property.
fn property(schema: &Value) -> Value {
    let mut result =
        provider_safe_schema(&json!({ "type": "object", "properties": { "p": schema } }));
    assert!(is_provider_safe(&result), "{result:#}");
    result["properties"]["p"].take()
}

/// Checks rows of a name, a property and the expected result.
fn check(rows: impl IntoIterator<Item = (&'static str, Value, Value)>) {
    for (name, schema, expected) in rows {
        assert_eq!(property(&schema), expected, "{name}");
    }
}

fn any() -> Value {
    json!({ "anyOf": [
        { "type": "string" }, { "type": "number" }, { "type": "boolean" }, { "type": "object" },
        { "type": "array", "items": { "type": "string" } },
    ]})
}

#[test]
fn properties_are_reduced_to_the_portable_subset() {
    check([
        (
            "what is fine stays as it is",
            json!({ "type": "integer", "description": "How many.", "minimum": 1, "maximum": 9 }),
            json!({ "type": "integer", "description": "How many.", "minimum": 1, "maximum": 9 }),
        ),
        (
            "noise goes",
            json!({ "type": "string", "title": "P", "$id": "x", "$comment": "y", "minLength": 2 }),
            json!({ "type": "string", "minLength": 2 }),
        ),
        (
            "format, pattern and default go into the description",
            json!({ "type": "string", "description": "When", "format": "date", "pattern": "^(?!a)",
                "default": "now" }),
            json!({ "type": "string",
                "description": "When. Format: date. Pattern: ^(?!a). Default: now." }),
        ),
        (
            "an open bound goes into the description unless there is another",
            json!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 5, "maximum": 5 }),
            json!({ "type": "number", "maximum": 5, "description": "Greater than 0." }),
        ),
        (
            "a list of types without null is one type",
            json!({ "type": ["null", "string"] }),
            json!({ "type": "string" }),
        ),
        (
            "or a choice of them",
            json!({ "type": ["string", "null", "integer"], "minimum": 1 }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer", "minimum": 1 }] }),
        ),
        (
            "an optional value is the value",
            json!({ "anyOf": [{ "type": "integer", "title": "x" }, { "type": "null" }],
                "default": null, "description": "Lines." }),
            json!({ "type": "integer", "description": "Lines." }),
        ),
        (
            "a type beside branches moves into them",
            json!({ "type": "string", "description": "d", "oneOf": [
                { "enum": ["a"] }, { "minLength": 3, "type": "string" }] }),
            json!({ "description": "d", "anyOf": [
                { "type": "string", "enum": ["a"] }, { "type": "string", "minLength": 3 }] }),
        ),
        (
            "branches that only narrow go",
            json!({ "type": "string", "anyOf": [{ "format": "ipv4" }, { "format": "ipv6" }] }),
            json!({ "type": "string" }),
        ),
        (
            "branches that ask for properties leave the properties alone",
            json!({ "type": "object", "properties": { "a": { "type": "string" } },
                "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] }),
            json!({ "type": "object", "properties": { "a": { "type": "string" } } }),
        ),
        (
            "parts are laid over one another",
            json!({ "description": "d", "allOf": [
                { "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] },
                { "properties": { "b": { "type": "integer" } }, "required": ["b", "c"] }] }),
            json!({ "type": "object", "description": "d", "required": ["a", "b"],
                "properties": { "a": { "type": "string" }, "b": { "type": "integer" } } }),
        ),
    ]);
}

#[test]
fn arrays_get_items_and_values_get_a_type() {
    check([
        (
            "a tuple is a list of any of its items",
            json!({ "type": "array", "items": [{ "type": "string" }, { "type": "integer" }],
                "minItems": 2, "maxItems": 2 }),
            json!({ "type": "array", "minItems": 2, "maxItems": 2,
                "items": { "anyOf": [{ "type": "string" }, { "type": "integer" }] } }),
        ),
        (
            "in its new spelling too",
            json!({ "prefixItems": [{ "type": "string" }, { "type": "string" }], "items": false }),
            json!({ "type": "array", "items": { "type": "string" } }),
        ),
        (
            "a list without items has items",
            json!({ "type": "array" }),
            json!({ "type": "array", "items": any() }),
        ),
        ("nothing said is anything", json!({}), any()),
        ("so is true", json!(true), any()),
        ("and a type that does not exist", json!({ "type": "any" }), any()),
        ("a type in capitals is a type", json!({ "type": "STRING" }), json!({ "type": "string" })),
        (
            "a missing type is read off the rest",
            json!({ "minLength": 1 }),
            json!({ "type": "string", "minLength": 1 }),
        ),
    ]);
}

/// llama.cpp makes `char{0,10000}` of it and answers 400, whatever the prompt: "failed to parse grammar".
#[test]
fn large_lengths_are_described_and_no_rules_of_a_grammar() {
    check([
        (
            "a long text",
            json!({ "type": "string", "maxLength": 10_000, "minLength": 1 }),
            json!({ "type": "string", "minLength": 1, "description": "Maximum length: 10000." }),
        ),
        (
            "a long list",
            json!({ "type": "array", "description": "Lines", "minItems": 300, "maxItems": 400,
                "items": { "type": "string", "minLength": 257, "maxLength": 256 } }),
            json!({ "type": "array", "items": { "type": "string", "maxLength": 256,
                    "description": "Minimum length: 257." },
                "description": "Lines. Minimum number of items: 300. Maximum number of items: 400." }),
        ),
    ]);
}

/// Names of Twilio, OData and others, for which every request failed.
#[test]
fn arguments_with_names_that_a_server_refuses_are_described() {
    let filter = json!({ "type": "object", "properties": { "$filter": { "type": "string" } } });
    let tool = ToolSpec {
        name: "list_calls".into(),
        description: "Lists calls".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "To": { "type": "string" },
                "StartTime<": { "type": "string", "description": "Started before this date." },
                "ids[]": { "type": "array", "items": { "type": "string" } },
                "in": filter,
            },
            "required": ["To", "ids[]"],
        }),
    };
    let safe = with_safe_names(&tool);
    let expected = "Lists calls. \
        Also takes `StartTime<`: {\"type\":\"string\",\"description\":\"Started before this date.\"} \
        Also requires `ids[]`: {\"type\":\"array\",\"items\":{\"type\":\"string\"}}";
    assert_eq!(safe.description, expected);
    let expected = json!({
        "type": "object",
        "properties": { "To": { "type": "string" }, "in": filter },
        "required": ["To"],
    });
    assert_eq!(provider_safe_schema(&safe.parameters), expected);
}

#[test]
fn enums_are_string_enums_or_descriptions() {
    check([
        (
            "a constant is a list of one",
            json!({ "const": "a" }),
            json!({ "type": "string", "enum": ["a"] }),
        ),
        (
            "a list of strings stays, each once, without null",
            json!({ "enum": ["b", "a", "b", null] }),
            json!({ "type": "string", "enum": ["b", "a"] }),
        ),
        (
            "an empty string goes into the description",
            json!({ "type": "string", "enum": ["", "a"] }),
            json!({ "type": "string", "enum": ["a"], "description": "May also be empty." }),
        ),
        (
            "other values go into the description",
            json!({ "enum": [1, 2], "description": "Level" }),
            json!({ "type": "integer", "description": "Level. One of: 1, 2." }),
        ),
        (
            "mixed values are a choice",
            json!({ "enum": ["a", 1] }),
            json!({ "anyOf": [
                { "type": "string", "enum": ["a"] },
                { "type": "integer", "description": "One of: 1." }] }),
        ),
        (
            "constants with a meaning each are one list with the meanings",
            json!({ "oneOf": [
                { "const": "r", "description": "Read." }, { "const": "w", "description": "Write." }] }),
            json!({ "type": "string", "enum": ["r", "w"], "description": "\"r\": Read. \"w\": Write." }),
        ),
    ]);
}

#[test]
fn objects_unions_and_references_keep_what_is_portable() {
    check([
        (
            "a map is an object and its values go into the description",
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            json!({ "type": "object", "description": "Any keys, each with a value of type string." }),
        ),
        (
            "an empty object has no list of properties, and nothing unknown is required",
            json!({ "type": "object", "properties": {}, "required": ["a"],
                "additionalProperties": false }),
            json!({ "type": "object" }),
        ),
        (
            "choices within choices are choices",
            json!({ "anyOf": [{ "anyOf": [{ "type": "string" }, { "type": "integer" }] },
                { "type": "string" }] }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
        ),
        (
            "a reference to elsewhere is an object",
            json!({ "$ref": "https://a.b/c.json" }),
            json!({ "type": "object" }),
        ),
        ("so is one to nothing", json!({ "$ref": "#/$defs/no" }), json!({ "type": "object" })),
        (
            "what stands beside it stays",
            json!({ "$ref": "#/$defs/no", "type": "string", "description": "d" }),
            json!({ "type": "string", "description": "d" }),
        ),
    ]);
}

#[test]
fn references_are_expanded_and_a_cycle_becomes_an_object() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "first": { "$ref": "#/$defs/Node", "description": "Where to begin." },
            "by_name": { "$ref": "#/definitions/A%20B" },
        },
        "required": ["first"],
        "$defs": { "Node": { "type": "object", "description": "A node.", "properties": {
            "name": { "type": "string" },
            "children": { "type": "array", "items": { "$ref": "#/$defs/Node" } },
            "all": { "$ref": "#" },
        } } },
        "definitions": { "A B": { "enum": ["a"] } },
    });
    let expected = json!({
        "type": "object",
        "properties": {
            "first": { "type": "object", "description": "Where to begin.", "properties": {
                "name": { "type": "string" },
                "children": { "type": "array", "items": { "type": "object" } },
                "all": { "type": "object" },
            } },
            "by_name": { "type": "string", "enum": ["a"] },
        },
        "required": ["first"],
    });
    assert_eq!(provider_safe_schema(&schema), expected);
}

#[test]
fn the_root_is_an_object_with_properties() {
    let empty = json!({ "type": "object", "properties": {} });
    for schema in [json!({}), json!(null), json!(true), json!({ "type": "string" }), json!([1])] {
        assert_eq!(provider_safe_schema(&schema), empty, "{schema}");
    }
    let choice = json!({ "oneOf": [
        { "properties": { "op": { "const": "add" }, "n": { "type": "integer" } }, "required": ["op", "n"] },
        { "properties": { "op": { "const": "clear" } }, "required": ["op"] },
    ]});
    let merged = json!({
        "type": "object",
        "properties": { "op": { "type": "string", "enum": ["add", "clear"] }, "n": { "type": "integer" } },
        "required": ["op"],
    });
    assert_eq!(provider_safe_schema(&choice), merged, "branches of the root become its properties");
}

#[test]
fn properties_keep_their_order() {
    let text = r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"string"}},"required":["z","a"]}"#;
    let schema: Value = serde_json::from_str(text).unwrap();
    assert_eq!(provider_safe_schema(&schema).to_string(), text);
}

#[test]
fn a_hostile_schema_stays_small() {
    // Each level refers to the next one ten times: fully expanded, this has 10³⁰ nodes.
    let mut levels = serde_json::Map::new();
    for level in 0..30 {
        let next =
            json!({ "$ref": format!("#/$defs/{}", level + 1), "description": "d".repeat(500) });
        let properties: serde_json::Map<String, Value> =
            (0..10).map(|number| (format!("p{number}"), next.clone())).collect();
        levels.insert(level.to_string(), json!({ "properties": properties }));
    }
    let wide: serde_json::Map<String, Value> =
        (0..20_000).map(|number| (format!("p{number}"), json!({ "type": "string" }))).collect();
    let mut deep = json!({ "type": "string" });
    for _ in 0..100 {
        deep = json!({ "type": "array", "items": deep });
    }
    for schema in [
        json!({ "$ref": "#/$defs/0", "$defs": levels }),
        json!({ "properties": wide }),
        json!({ "properties": { "p": deep } }),
        json!({ "description": "d".repeat(MAX_SCHEMA_BYTES * 2) }),
        json!({ "allOf": vec![json!({ "anyOf": vec![json!({ "$ref": "#" }); 100] }); 1000] }),
    ] {
        let result = provider_safe_schema(&schema);
        assert!(is_provider_safe(&result));
        assert!(json_size(&result) <= MAX_SCHEMA_BYTES);
        assert_eq!(provider_safe_schema(&result), result);
    }
}

#[test]
fn non_portable_schemas_are_detected() {
    for property in [
        json!({}),
        json!({ "type": ["string"] }),
        json!({ "type": "null" }),
        json!({ "type": "string", "format": "date" }),
        json!({ "type": "string", "enum": [] }),
        json!({ "type": "string", "enum": ["a", "a"] }),
        json!({ "type": "integer", "enum": [1] }),
        json!({ "type": "array" }),
        json!({ "type": "object", "properties": {} }),
        json!({ "type": "object", "required": ["a"] }),
        json!({ "type": "string", "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
        json!({ "anyOf": [{ "type": "string" }] }),
        json!({ "$ref": "#" }),
    ] {
        let schema = json!({ "type": "object", "properties": { "p": property } });
        assert!(!is_provider_safe(&schema), "{schema}");
    }
    assert!(!is_provider_safe(&json!({ "type": "object" })));
    assert!(is_provider_safe(&json!({ "type": "object", "properties": {} })));
}

/// Every keyword with valid and invalid values.
fn schema() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        json!("string"),
        json!("object"),
        json!("array"),
        json!("null"),
        json!("integer"),
        json!("any"),
        json!("#"),
        json!("#/$defs/a"),
        json!("#/properties/a"),
        json!("x:y"),
        json!(null),
        json!(true),
        json!(false),
        json!(1),
        json!(-0.5),
        json!(""),
        json!({}),
        json!([]),
        json!(["a", "b"]),
        json!(["string", "null"]),
        json!([1, "a", {}, [2], true]),
    ]);
    let key = prop::sample::select(vec![
        "type",
        "$ref",
        "enum",
        "const",
        "description",
        "default",
        "format",
        "required",
        "minimum",
        "maxItems",
        "exclusiveMinimum",
        "additionalProperties",
        "$defs",
        "minLength",
    ]);
    word.prop_recursive(6, 48, 5, move |inner| {
        let names = prop::sample::select(vec!["a", "b", "c"]);
        let properties = prop::collection::vec((names, inner.clone()), 0..4)
            .prop_map(|all| all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
        let several = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array);
        let lists = prop::sample::select(vec!["anyOf", "oneOf", "allOf", "prefixItems", "items"]);
        let maps = prop::sample::select(vec!["properties", "$defs", "definitions"]);
        let entry = prop_oneof![
            (key.clone(), inner.clone()),
            (key.clone(), inner.clone()),
            (lists, several),
            (maps, properties.prop_map(Value::Object)),
            (Just("items"), inner),
        ];
        prop::collection::vec(entry, 0..6).prop_map(|all| {
            Value::Object(all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        })
    })
}

proptest! {
    #[test]
    fn any_schema_becomes_portable_and_stays_so(schema in schema()) {
        let result = provider_safe_schema(&schema);
        prop_assert!(is_provider_safe(&result), "{result:#}");
        prop_assert!(json_size(&result) <= MAX_SCHEMA_BYTES);
        prop_assert_eq!(provider_safe_schema(&result).to_string(), result.to_string());
    }
}
