//! Checks messages against the JSON Schema of ACP, in the version that the connection speaks. Every line
//! that the agent writes must be a message that the schema allows.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, OnceLock};

use jsonschema::Validator;
use serde_json::{Value, json};

/// Panics unless the message fits the schema of version 1. For a response, `method` is the method of its
/// request.
pub fn check(message: &Value, method: Option<&str>) {
    check_version(1, message, method);
}

/// Panics unless the message fits the schema of this version.
pub fn check_version(version: usize, message: &Value, method: Option<&str>) {
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    let keys: Vec<_> = message.as_object().expect("an object").keys().map(String::as_str).collect();
    let known = ["jsonrpc", "id", "method", "params", "result", "error"];
    assert!(keys.iter().all(|it| known.contains(it)), "unknown keys: {message}");
    if let Some(error) = message.get("error") {
        assert!(message.get("result").is_none(), "result and error: {message}");
        return against(version, "Error", error, message);
    }
    // The schema has no definition for methods of our own and for one that it no longer has. Their results
    // are objects.
    let is_unknown = |it: &str| it.starts_with('_') || it == "session/set_model";
    if method.is_some_and(is_unknown) && message.get("method").is_none() {
        return assert!(message["result"].is_object(), "{message}");
    }
    let (name, body) = match message.get("method").and_then(Value::as_str) {
        Some(method) => {
            let suffix = if message.get("id").is_some() { "Request" } else { "Notification" };
            (definition(version, method, suffix), &message["params"])
        }
        None => {
            let method =
                method.unwrap_or_else(|| panic!("a response to an unknown request: {message}"));
            if method == "session/cancel" {
                // The protocol has no such request, but some clients send one.
                return assert_eq!(message["result"], json!({}), "{message}");
            }
            (definition(version, method, "Response"), &message["result"])
        }
    };
    against(version, &name, body, message);
    // What is in a message to an MCP server is not of this protocol.
    if version == 2 && message["method"] != "mcp/message" {
        refuse_unknown_kinds(body, message);
    }
}

/// Returns the stable schema, and the schema with the unstable methods.
fn documents(version: usize) -> [&'static Value; 2] {
    static DOCUMENTS: [OnceLock<[Value; 2]>; 2] = [OnceLock::new(), OnceLock::new()];
    let texts = [
        [
            include_str!("../../../tests/data/schema/schema.v1.json"),
            include_str!("../../../tests/data/schema/schema.v1.unstable.json"),
        ],
        [
            include_str!("../../../tests/data/schema/schema.v2.json"),
            include_str!("../../../tests/data/schema/schema.v2.unstable.json"),
        ],
    ];
    let parse = || texts[version - 1].map(|it| serde_json::from_str(it).expect("a schema"));
    DOCUMENTS[version - 1].get_or_init(parse).each_ref()
}

/// Version 2 allows kinds of updates and contents that it does not know, for later versions. Ours are all
/// known: a misspelt one would be shown by nobody.
fn refuse_unknown_kinds(body: &Value, message: &Value) {
    static KINDS: OnceLock<HashSet<String>> = OnceLock::new();
    let kinds = KINDS.get_or_init(|| {
        let mut kinds = HashSet::new();
        walk(&documents(2)[1]["$defs"], &mut |key, value| {
            if key == "const" {
                kinds.extend(value.as_str().map(str::to_owned));
            }
        });
        kinds
    });
    walk(body, &mut |key, value| {
        let is_kind =
            ["sessionUpdate", "type", "state", "stopReason", "status", "kind"].contains(&key);
        if let Some(kind) = value.as_str().filter(|_| is_kind) {
            assert!(kinds.contains(kind), "`{key}` is {kind}, which nobody knows: {message}");
        }
    });
}

/// Returns the name of the definition for a method. The stable schema takes precedence.
fn definition(version: usize, method: &str, suffix: &str) -> String {
    let fits = |(name, it): &(&String, &Value)| it["x-method"] == method && name.ends_with(suffix);
    let found = documents(version).into_iter().find_map(|document| {
        let definitions = document["$defs"].as_object().expect("definitions");
        definitions.iter().find(fits)
    });
    found.unwrap_or_else(|| panic!("{method} has no {suffix} in the schema")).0.clone()
}

fn against(version: usize, name: &str, body: &Value, message: &Value) {
    static VALIDATORS: OnceLock<Mutex<HashMap<String, &'static Validator>>> = OnceLock::new();
    let mut validators = VALIDATORS.get_or_init(Mutex::default).lock().unwrap();
    // Only the unstable schema has these updates, skills, this field and this kind of server, in definitions
    // that both have.
    let update = body["update"]["sessionUpdate"].as_str().unwrap_or_default();
    let mut servers = body["mcpServers"].as_array().into_iter().flatten();
    let mut has_skill = false;
    walk(body, &mut |key, value| has_skill |= key == "type" && value == "skill");
    let is_unstable = ["plan_update", "cursor_update", "prompt_suggestions_update"]
        .contains(&update)
        || has_skill
        || name == "PromptResponse" && body.get("usage").is_some()
        || servers.any(|it| it["type"] == "acp");
    let key = format!("{version} {name} {is_unstable}");
    let validator: &'static Validator = validators.entry(key).or_insert_with(|| {
        let holds = |it: &&Value| it["$defs"].get(name).is_some();
        let mut documents = documents(version).into_iter().skip(usize::from(is_unstable));
        let document = documents.find(holds).expect("a definition");
        let mut schema = json!({ "$ref": format!("#/$defs/{name}") });
        schema["$schema"] = document["$schema"].clone();
        schema["$defs"] = document["$defs"].clone();
        Box::leak(Box::new(jsonschema::validator_for(&schema).expect("a valid schema")))
    });
    drop(validators);
    let problems: Vec<_> = validator.iter_errors(body).map(|it| it.to_string()).collect();
    assert!(problems.is_empty(), "not a valid {name}: {problems:?}\n{message}");
}

/// Calls `look` for every key and value, except below the keys whose values the protocol does not
/// define.
pub fn walk(value: &Value, look: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                look(key, value);
                if !["rawInput", "rawOutput", "_meta", "data"].contains(&key.as_str()) {
                    walk(value, look);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|it| walk(it, look)),
        _ => {}
    }
}
