//! The result of a tool call, as typed blocks.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::features::{ContentBlock, ResourceContents};

/// The result of a tool call.
#[derive(Debug, Default, PartialEq)]
pub struct ToolResult {
    pub blocks: Vec<ResultBlock>,
    pub structured: Option<Value>,
    /// The tool reports a failure.
    pub is_error: bool,
}

/// One block of a result. Base64 data is not validated.
#[derive(Debug, PartialEq)]
pub enum ResultBlock {
    Text(String),
    Image {
        mime: String,
        data: String,
    },
    Audio {
        mime: String,
        data: String,
    },
    /// The text of a resource.
    Embedded {
        uri: String,
        text: String,
    },
    /// The bytes of a resource.
    Blob {
        uri: String,
        mime: String,
        data: String,
    },
    /// A link to a resource.
    Link {
        uri: String,
        name: String,
        mime: String,
        description: String,
        size: Option<u64>,
    },
    /// With the name of a type that is not supported.
    Unknown(String),
}

impl ToolResult {
    /// Reads a result, block by block, however malformed it is. Returns `None` if it is not a result at all.
    pub(crate) fn parse(mut result: Value) -> Option<ToolResult> {
        if result.is_string() || result.is_array() {
            result = json!({ "content": result });
        }
        let fields = result.as_object_mut()?;
        fields.retain(|name, _| !matches!(name.as_str(), "_meta" | "resultType"));
        if fields.is_empty() {
            return Some(ToolResult::default());
        }
        let is_error = fields.remove("isError") == Some(Value::Bool(true));
        let mut structured = fields.remove("structuredContent").filter(|value| !value.is_null());
        let blocks = match fields.remove("content") {
            Some(Value::Array(blocks)) => blocks.iter().map(parse_block).collect(),
            // Some servers send this instead of a list.
            Some(Value::String(text)) => vec![ResultBlock::Text(text)],
            Some(one @ Value::Object(_)) => vec![parse_block(&one)],
            _ => Vec::new(),
        };
        if (is_error || blocks.is_empty()) && structured.is_none() && !fields.is_empty() {
            // Some servers say the details of a failure, or all that they say, in fields of their own.
            structured = Some(result);
        }
        Some(ToolResult { blocks, structured, is_error })
    }
}

/// Reads a block. A value that is not a block of the protocol becomes its text, unless it has fewer than two
/// fields or brings a file.
fn parse_block(value: &Value) -> ResultBlock {
    let known = ContentBlock::deserialize(value).ok().and_then(ResultBlock::of);
    if let Some(block) = known {
        return block;
    }
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    let is_text = kind.is_empty() || kind == "text";
    match value.get("text").filter(|_| is_text).unwrap_or(value) {
        Value::String(text) => ResultBlock::Text(text.clone()),
        Value::Object(fields) if fields.contains_key("data") || fields.len() < 2 => {
            ResultBlock::Unknown(kind.to_owned())
        }
        other => ResultBlock::Text(other.to_string()),
    }
}

impl ResultBlock {
    /// Converts a block; `None` if its type is unknown.
    fn of(block: ContentBlock) -> Option<ResultBlock> {
        Some(match block {
            ContentBlock::Text { text } => ResultBlock::Text(text),
            ContentBlock::Image { data, mime_type } => ResultBlock::Image { mime: mime_type, data },
            ContentBlock::Audio { data, mime_type } => ResultBlock::Audio { mime: mime_type, data },
            ContentBlock::Resource { resource } => resource.into(),
            ContentBlock::ResourceLink(link) => ResultBlock::Link {
                uri: link.uri,
                name: link.title.unwrap_or(link.name),
                mime: link.mime_type.unwrap_or_default(),
                description: link.description.unwrap_or_default(),
                size: link.size,
            },
            ContentBlock::Unknown => return None,
        })
    }
}

impl From<ResourceContents> for ResultBlock {
    fn from(contents: ResourceContents) -> ResultBlock {
        let ResourceContents { uri, mime_type, text, blob } = contents;
        let mime = mime_type.unwrap_or_default();
        match (text, blob) {
            (Some(text), _) => ResultBlock::Embedded { uri, text },
            (None, Some(data)) if mime.starts_with("image/") => ResultBlock::Image { mime, data },
            (None, Some(data)) => ResultBlock::Blob { uri, mime, data },
            (None, None) => ResultBlock::Unknown("resource".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_malformed_block_does_not_hide_the_others() {
        let text = || ResultBlock::Text("a".to_owned());
        let table = [
            (json!({ "content": [{ "type": "text", "text": "a" }] }), vec![text()]),
            (
                json!({ "content": [{ "type": "text", "text": "a" }, { "type": "video", "data": "" }] }),
                vec![text(), ResultBlock::Unknown("video".to_owned())],
            ),
            (
                json!({ "content": [{ "type": "text" }, 7, { "type": "text", "text": "a" }] }),
                vec![
                    ResultBlock::Unknown("text".to_owned()),
                    ResultBlock::Text("7".to_owned()),
                    text(),
                ],
            ),
            (json!({ "content": ["a", { "text": "a" }] }), vec![text(), text()]),
            (
                json!({ "content": [{ "type": "json", "json": [1] }, { "type": "text", "text": 42 }] }),
                vec![
                    ResultBlock::Text(r#"{"type":"json","json":[1]}"#.to_owned()),
                    ResultBlock::Text("42".to_owned()),
                ],
            ),
            (json!("a"), vec![text()]),
            (json!([{ "type": "text", "text": "a" }]), vec![text()]),
            (json!({ "content": "a" }), vec![text()]),
            (json!({ "content": { "type": "text", "text": "a" } }), vec![text()]),
        ];
        for (result, blocks) in table {
            assert_eq!(ToolResult::parse(result.clone()).unwrap().blocks, blocks, "{result}");
        }
        let bare = ToolResult::parse(json!({ "toolResult": 1 })).unwrap();
        assert_eq!(bare.structured, Some(json!({ "toolResult": 1 })));
        assert_eq!(ToolResult::parse(json!(7)), None);
        assert_eq!(ToolResult::parse(json!({ "_meta": {} })), Some(ToolResult::default()));
        let failed = ToolResult::parse(json!({ "isError": true, "content": null })).unwrap();
        assert!(failed.is_error && failed.blocks.is_empty() && failed.structured.is_none());
        let failed = ToolResult::parse(json!({ "isError": true, "details": [1], "content": "a" }));
        assert_eq!(failed.unwrap().structured, Some(json!({ "details": [1] })));
    }
}
