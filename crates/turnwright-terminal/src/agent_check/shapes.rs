//! The shape that an agent's messages must have: the part of the protocol's JSON Schema that is needed, in
//! `shapes.json`. The types of the protocol's crate would take 600 KB of the program, and they forgive wrong
//! values, which a check must not.

use serde_json::{Map, Value};
use turnwright_types::text;

/// The definitions that are needed, with all that they refer to. The test makes the file from them.
#[cfg(test)]
const ROOTS: &[&str] = &[
    "SessionNotification",
    "RequestPermissionRequest",
    "InitializeResponse",
    "NewSessionResponse",
    "LoadSessionResponse",
    "ListSessionsResponse",
    "PromptResponse",
    "Error",
];

pub(super) struct MessageShapes(Map<String, Value>);

impl MessageShapes {
    pub(super) fn load() -> MessageShapes {
        MessageShapes(serde_json::from_str(include_str!("shapes.json")).unwrap_or_default())
    }

    /// Checks a value against its definition. The error describes the first difference.
    pub(super) fn check(&self, definition: &str, value: &Value) -> Result<(), String> {
        match self.0.get(definition) {
            Some(shape) => self.fits(shape, value, ""),
            None => Err(format!("no definition of {definition}")),
        }
    }

    fn fits(&self, shape: &Value, value: &Value, path: &str) -> Result<(), String> {
        let list = |name: &str| shape[name].as_array().into_iter().flatten();
        if let Some(name) = shape["$ref"].as_str() {
            self.fits(&self.0[name], value, path)?;
        }
        if !has_type(&shape["type"], value) {
            return Err(format!("{}: {value} is not of type {}", name(path), shape["type"]));
        }
        if shape.get("const").is_some_and(|wanted| wanted != value) {
            return Err(format!("{}: {value} is not {}", name(path), shape["const"]));
        }
        if let (Some(least), Some(number)) = (shape["minimum"].as_f64(), value.as_f64())
            && number < least
        {
            return Err(format!("{}: {value} is less than {least}", name(path)));
        }
        for key in list("required").filter_map(Value::as_str) {
            if value.get(key).is_none() {
                return Err(format!("{}: `{key}` is missing", name(path)));
            }
        }
        for (key, inner) in shape["properties"].as_object().into_iter().flatten() {
            if let Some(part) = value.get(key) {
                self.fits(inner, part, &format!("{path}.{key}"))?;
            }
        }
        if let (Some(inner), Value::Array(elements)) = (shape.get("items"), value) {
            for (number, element) in elements.iter().enumerate() {
                self.fits(inner, element, &format!("{path}[{number}]"))?;
            }
        }
        for part in list("allOf") {
            self.fits(part, value, path)?;
        }
        let forms: Vec<&Value> = list("anyOf").chain(list("oneOf")).collect();
        if forms.is_empty() { Ok(()) } else { self.fits_one(shape, &forms, value, path) }
    }

    fn fits_one(
        &self,
        shape: &Value,
        forms: &[&Value],
        value: &Value,
        path: &str,
    ) -> Result<(), String> {
        // With the name of a form only that one can be meant, which makes for a better message.
        let key = shape["discriminator"]["propertyName"].as_str();
        let chosen = key.and_then(|key| {
            forms.iter().find(|form| Some(&form["properties"][key]["const"]) == value.get(key))
        });
        if let Some(form) = chosen {
            return self.fits(form, value, path);
        }
        let mut problems = Vec::new();
        for form in forms {
            match self.fits(form, value, path) {
                Ok(()) => return Ok(()),
                Err(_) if form["type"] == "null" => {}
                Err(problem) => problems.push(problem),
            }
        }
        match problems.as_slice() {
            [only] => Err(only.clone()),
            _ => {
                let found = key.and_then(|key| value.get(key)).unwrap_or(value).to_string();
                let shown = text::first_chars(&found, 80);
                Err(format!("{}: {shown} is none of what it may be", name(path)))
            }
        }
    }
}

fn name(path: &str) -> &str {
    let path = path.trim_start_matches('.');
    if path.is_empty() { "the message" } else { path }
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    wanted.as_array().map_or_else(
        || has_one_type(wanted, value),
        |all| all.iter().any(|kind| has_one_type(kind, value)),
    )
}

fn has_one_type(wanted: &Value, value: &Value) -> bool {
    match wanted.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("null") => value.is_null(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use serde_json::json;

    use super::*;

    const OFFICIAL: &str = include_str!("../../../../tests/data/schema/schema.v1.json");

    /// A definition without descriptions and whatever else is not checked.
    fn checked_parts(shape: &Value) -> Value {
        match shape {
            Value::Object(members) => {
                let mut kept = Map::new();
                for (key, value) in members {
                    match key.as_str() {
                        "$ref" => {
                            let name = value.as_str().unwrap().trim_start_matches("#/$defs/");
                            kept.insert(key.clone(), name.into());
                        }
                        "properties" => {
                            let of = value.as_object().unwrap().iter();
                            let of = of.filter(|it| *it.0 != "_meta");
                            let of: Map<_, _> =
                                of.map(|it| (it.0.clone(), checked_parts(it.1))).collect();
                            kept.insert(key.clone(), of.into());
                        }
                        "type" | "const" | "required" | "items" | "minimum" | "allOf" | "anyOf"
                        | "oneOf" | "discriminator" | "propertyName" => {
                            kept.insert(key.clone(), checked_parts(value));
                        }
                        _ => {}
                    }
                }
                Value::Object(kept)
            }
            Value::Array(all) => all.iter().map(checked_parts).collect(),
            other => other.clone(),
        }
    }

    fn references(shape: &Value, found: &mut Vec<String>) {
        match shape {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(all) => all.iter().for_each(|element| references(element, found)),
            _ => {}
        }
    }

    /// Run the test with `UPDATE_EXPECT=1` to renew the file.
    #[test]
    fn the_file_is_a_part_of_the_official_schema() {
        let official: Value = serde_json::from_str(OFFICIAL).unwrap();
        let mut wanted: Vec<String> = ROOTS.iter().map(|root| (*root).to_owned()).collect();
        let mut shapes = std::collections::BTreeMap::new();
        while let Some(name) = wanted.pop() {
            let shape = checked_parts(&official["$defs"][&name]);
            let mut more = Vec::new();
            references(&shape, &mut more);
            if shapes.insert(name, shape).is_none() {
                wanted.append(&mut more);
            }
        }
        let lines: Vec<_> =
            shapes.iter().map(|shape| format!("\"{}\":{}", shape.0, shape.1)).collect();
        expect_file!["shapes.json"].assert_eq(&format!("{{\n{}\n}}\n", lines.join(",\n")));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let shapes = MessageShapes::load();
        let update = |update: Value| {
            let update = json!({ "sessionId": "s", "update": update });
            shapes.check("SessionNotification", &update)
        };
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "t",
            "kind": "read", "status": "pending", "content": [], "x": 1 });
        assert_eq!(update(call.clone()), Ok(()));
        for (key, value, expected) in [
            ("status", json!("finished"), "update.status: \"finished\" is none of what it may be"),
            ("title", json!(1), "update.title: 1 is not of type \"string\""),
            ("sessionUpdate", json!("call"), "update: \"call\" is none of what it may be"),
            ("locations", json!([{}]), "update.locations[0]: `path` is missing"),
            (
                "content",
                json!([{ "type": "content", "content": { "type": "text" } }]),
                "update.content[0].content: `text` is missing",
            ),
        ] {
            let mut wrong = call.clone();
            wrong[key] = value;
            assert_eq!(update(wrong), Err(expected.to_owned()));
        }
        let error = shapes.check("Error", &json!({ "code": "x", "message": "" })).unwrap_err();
        assert!(error.starts_with("code: "), "{error}");
        assert_eq!(shapes.check("Error", &json!({ "code": -32099, "message": "" })), Ok(()));
        let initialized =
            json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": 1 } });
        assert!(shapes.check("InitializeResponse", &initialized).is_err());
    }
}
