//! The subsets of JSON Schema that providers take for a tool's parameters.

use serde_json::Value;

type Checked = Result<(), (String, String)>;

/// All that parses is fine; the root is an object.
pub fn any(schema: &Value) -> Checked {
    let is_object = schema["type"] == "object";
    if is_object { Ok(()) } else { Err(found("root", "type must be \"object\"")) }
}

/// "Moonshot flavored": no references, every property has a type, a union has it in its
/// branches only, and lists are of one sort of item.
pub fn moonshot(schema: &Value) -> Checked {
    any(schema)?;
    walk(schema, "root", &|schema, path| {
        let has = |key: &str| schema.get(key).is_some();
        if has("$ref") {
            return Err(found(path, "$ref is not supported"));
        }
        if has("anyOf") && has("type") {
            return Err(found(
                path,
                "when using anyOf, type should be defined in anyOf items instead of the parent schema",
            ));
        }
        if !has("type") && !has("anyOf") {
            return Err(found(path, "type is not defined"));
        }
        if schema["items"].is_array() {
            return Err(found(path, "items must be a schema object"));
        }
        let values = schema["enum"].as_array().into_iter().flatten();
        match values.into_iter().find(|it| !is_of(it, &schema["type"])) {
            Some(value) => {
                Err(found(path, &format!("enum value ({value}) does not match any type")))
            }
            None => Ok(()),
        }
    })
}

/// What Gemini, Groq and the grammars of local servers can express.
pub fn narrow(schema: &Value) -> Checked {
    const UNKNOWN: [&str; 8] = [
        "$ref",
        "$defs",
        "const",
        "default",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "format",
        "patternProperties",
    ];
    any(schema)?;
    walk(schema, "root", &|schema, path| {
        if let Some(key) = UNKNOWN.iter().find(|it| schema.get(**it).is_some()) {
            return Err(found(path, &format!("Unknown name \"{key}\"")));
        }
        if schema["type"].is_array() {
            return Err(found(path, "Proto field is not repeating, cannot start list (type)"));
        }
        if schema["pattern"].as_str().is_some_and(|it| it.contains("(?")) {
            return Err(found(path, "look-around is not supported in a pattern"));
        }
        let properties = schema["properties"].as_object();
        if properties.is_some_and(serde_json::Map::is_empty) {
            return Err(found(path, "should be non-empty for OBJECT type (properties)"));
        }
        let mut values = schema["enum"].as_array().into_iter().flatten();
        if values.any(|it| !it.is_string()) {
            return Err(found(path, "enum: only strings are allowed"));
        }
        Ok(())
    })
}

/// Calls `check` for the schema and all below it.
fn walk(schema: &Value, path: &str, check: &dyn Fn(&Value, &str) -> Checked) -> Checked {
    check(schema, path)?;
    let below = |key: &str| if path == "root" { key.to_owned() } else { format!("{path}.{key}") };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, &below(&format!("properties.{name}")), check)?;
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            walk(&schema[key], &below(key), check)?;
        }
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        for (number, branch) in schema[key].as_array().into_iter().flatten().enumerate() {
            walk(branch, &below(&format!("{key}.{number}")), check)?;
        }
    }
    Ok(())
}

fn is_of(value: &Value, sort: &Value) -> bool {
    let fits = |sort: &Value| match sort.as_str() {
        Some("string") => value.is_string(),
        Some("integer" | "number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("null") => value.is_null(),
        _ => false,
    };
    sort.as_array().map_or_else(|| fits(sort), |sorts| sorts.iter().any(fits))
}

fn found(path: &str, why: &str) -> (String, String) {
    (path.to_owned(), why.to_owned())
}
