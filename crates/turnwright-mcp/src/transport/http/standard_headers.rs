//! The headers that repeat what a message says, which the newest version of the protocol requires over HTTP:
//! the method, the name, and the arguments that a tool's schema marks with `x-mcp-header`.

use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::features::JsonObject;

/// The keyword in the schema of an argument.
const KEYWORD: &str = "x-mcp-header";
/// The marks around a value that a header cannot carry as it is.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// The marked arguments of tools, by the tool's name.
pub(crate) type HeaderArguments = HashMap<String, Vec<HeaderArgument>>;

/// An argument of a tool that is sent as a header too.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeaderArgument {
    /// The names of the properties that lead to it.
    path: Vec<String>,
    /// The end of the header's name.
    header: String,
}

/// The headers of a message.
pub(crate) fn of(method: &str, params: &JsonObject, tools: &HeaderArguments) -> HeaderMap {
    let mut headers = HeaderMap::new();
    add_header(&mut headers, "mcp-method", method);
    let key = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return headers,
    };
    let Some(name) = params.get(key).and_then(Value::as_str) else { return headers };
    add_header(&mut headers, "mcp-name", name);
    if method == "tools/call"
        && let (Some(marked), Some(arguments)) = (tools.get(name), params.get("arguments"))
    {
        for HeaderArgument { path, header } in marked {
            let argument = path.iter().try_fold(arguments, |value, key| value.get(key));
            let value = match argument {
                Some(Value::String(text)) => text.clone(),
                Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
                _ => continue,
            };
            add_header(&mut headers, &format!("mcp-param-{header}"), &value);
        }
    }
    headers
}

/// Adds a header, unless its name is invalid.
fn add_header(headers: &mut HeaderMap, name: &str, value: &str) {
    let name = HeaderName::from_bytes(name.as_bytes());
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&encoded(value))) {
        headers.insert(name, value);
    }
}

/// The value, encoded if a header could not carry it as it is.
fn encoded(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && value.trim_matches([' ', '\t']).len() == value.len()
        && !(value.starts_with(ENCODED.0) && value.ends_with(ENCODED.1));
    if is_plain {
        return value.to_owned();
    }
    format!("{}{}{}", ENCODED.0, STANDARD.encode(value), ENCODED.1)
}

/// Finds the marked arguments in the schema of a tool. A tool with an invalid mark must not be used.
pub(crate) fn header_arguments(schema: &JsonObject) -> Result<Vec<HeaderArgument>, &'static str> {
    let mut marked = Vec::new();
    find_marks(schema, Some(&[]), &mut marked)?;
    let mut names = HashSet::new();
    let mut headers = marked.iter().map(|argument| argument.header.to_ascii_lowercase());
    let is_clear = headers.all(|header| names.insert(header));
    if is_clear { Ok(marked) } else { Err("two arguments have the same header") }
}

/// Looks for marks in a schema. `path` leads to it through properties alone, if that is how it is reached.
fn find_marks<'a>(
    schema: &'a JsonObject,
    path: Option<&[&'a str]>,
    marked: &mut Vec<HeaderArgument>,
) -> Result<(), &'static str> {
    for (key, value) in schema {
        match (key.as_str(), value) {
            (KEYWORD, mark) => {
                let names = path
                    .filter(|path| !path.is_empty())
                    .ok_or("a header belongs to no argument")?;
                let header = mark
                    .as_str()
                    .filter(|name| is_token(name))
                    .ok_or("the name of a header is invalid")?;
                let kind = schema.get("type").and_then(Value::as_str);
                if !matches!(kind, Some("string" | "integer" | "boolean")) {
                    return Err("a header needs a text, an integer or a boolean");
                }
                let path = names.iter().map(|name| (*name).to_owned()).collect();
                marked.push(HeaderArgument { path, header: header.to_owned() });
            }
            ("properties", Value::Object(properties)) => {
                for (name, schema) in properties {
                    let Value::Object(schema) = schema else { continue };
                    let inner = path.map(|path| [path, &[name.as_str()]].concat());
                    find_marks(schema, inner.as_deref(), marked)?;
                }
            }
            (
                "$defs" | "definitions" | "dependentSchemas" | "patternProperties",
                Value::Object(all),
            ) => {
                for schema in all.values().filter_map(Value::as_object) {
                    find_marks(schema, None, marked)?;
                }
            }
            // Values, not schemas.
            ("default" | "const" | "enum" | "examples", _) => {}
            (_, Value::Object(schema)) => find_marks(schema, None, marked)?,
            (_, Value::Array(items)) => {
                for schema in items.iter().filter_map(Value::as_object) {
                    find_marks(schema, None, marked)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns true if the name is a token of HTTP.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: &Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn the_marked_arguments_of_a_call_are_sent_as_headers() {
        let schema = json!({ "properties": {
            "place": { "type": "string", KEYWORD: "Place" },
            "more": { "properties": { "count": { "type": "integer", KEYWORD: "Count" } } },
        } });
        let marked = header_arguments(&object(&schema)).unwrap();
        let tools = HeaderArguments::from([("look".to_owned(), marked)]);
        let params =
            json!({ "name": "look", "arguments": { "place": " ñ", "more": { "count": 3 } } });
        let headers = of("tools/call", &object(&params), &tools);
        let expected = [
            ("mcp-method", "tools/call"),
            ("mcp-name", "look"),
            ("mcp-param-place", "=?base64?IMOx?="),
            ("mcp-param-count", "3"),
        ];
        assert_eq!(headers.len(), expected.len());
        for (name, value) in expected {
            assert_eq!(headers[name], value);
        }
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let headers = of(method, &object(&json!({ "taskId": "t-1" })), &tools);
            assert_eq!(headers["mcp-method"], method);
            assert_eq!(headers["mcp-name"], "t-1");
        }
    }

    #[test]
    fn an_invalid_mark_is_an_error() {
        let argument = |schema: Value| json!({ "properties": { "a": schema } });
        let table = [
            (json!({ KEYWORD: "A" }), false),
            (argument(json!({ "type": "string", KEYWORD: "A" })), true),
            (argument(json!({ "type": "string", KEYWORD: "A b" })), false),
            (argument(json!({ "type": "string", KEYWORD: "" })), false),
            (argument(json!({ "type": "object", KEYWORD: "A" })), false),
            (json!({ "items": argument(json!({ "type": "string", KEYWORD: "A" })) }), false),
            (argument(json!({ "default": { KEYWORD: "A" } })), true),
            (
                json!({ "properties": { "a": { "type": "string", KEYWORD: "A" },
                    "b": { "type": "string", KEYWORD: "a" } } }),
                false,
            ),
        ];
        for (schema, is_valid) in table {
            assert_eq!(header_arguments(&object(&schema)).is_ok(), is_valid, "{schema}");
        }
    }
}
