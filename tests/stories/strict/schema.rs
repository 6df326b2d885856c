//! The subsets of JSON Schema that providers accept for a tool's parameters.

use serde_json::Value;

type CheckResult = Result<(), (String, String)>;

/// Accepts every schema whose root is an object.
pub fn any(schema: &Value) -> CheckResult {
    let is_object = schema["type"] == "object";
    if is_object { Ok(()) } else { Err(violation("root", "type must be \"object\"")) }
}

/// Accepts "moonshot flavored" schemas: there are no references, every property has a type, a union has
/// types only in its branches, and all items of a list have the same schema.
pub fn moonshot(schema: &Value) -> CheckResult {
    any(schema)?;
    walk(schema, "root", &|schema, path| {
        let has = |key: &str| schema.get(key).is_some();
        if has("$ref") {
            return Err(violation(path, "$ref is not supported"));
        }
        if has("anyOf") && has("type") {
            return Err(violation(
                path,
                "when using anyOf, type should be defined in anyOf items instead of the parent schema",
            ));
        }
        if !has("type") && !has("anyOf") {
            return Err(violation(path, "type is not defined"));
        }
        if schema["items"].is_array() {
            return Err(violation(path, "items must be a schema object"));
        }
        let values = schema["enum"].as_array().into_iter().flatten();
        match values.into_iter().find(|it| !is_of(it, &schema["type"])) {
            Some(value) => {
                Err(violation(path, &format!("enum value ({value}) does not match any type")))
            }
            None => Ok(()),
        }
    })
}

/// Accepts what Gemini, Groq and the grammars of local servers support.
pub fn narrow(schema: &Value) -> CheckResult {
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
            return Err(violation(path, &format!("Unknown name \"{key}\"")));
        }
        if schema["type"].is_array() {
            return Err(violation(path, "Proto field is not repeating, cannot start list (type)"));
        }
        if schema["pattern"].as_str().is_some_and(|it| it.contains("(?")) {
            return Err(violation(path, "look-around is not supported in a pattern"));
        }
        let properties = schema["properties"].as_object();
        if properties.is_some_and(serde_json::Map::is_empty) {
            return Err(violation(path, "should be non-empty for OBJECT type (properties)"));
        }
        let mut values = schema["enum"].as_array().into_iter().flatten();
        if values.any(|it| !it.is_string()) {
            return Err(violation(path, "enum: only strings are allowed"));
        }
        Ok(())
    })
}

/// Calls `check` for the schema and all nested ones.
fn walk(schema: &Value, path: &str, check: &dyn Fn(&Value, &str) -> CheckResult) -> CheckResult {
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

fn is_of(value: &Value, kind: &Value) -> bool {
    let fits = |kind: &Value| match kind.as_str() {
        Some("string") => value.is_string(),
        Some("integer" | "number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("null") => value.is_null(),
        _ => false,
    };
    kind.as_array().map_or_else(|| fits(kind), |kinds| kinds.iter().any(fits))
}

fn violation(path: &str, why: &str) -> (String, String) {
    (path.to_owned(), why.to_owned())
}
