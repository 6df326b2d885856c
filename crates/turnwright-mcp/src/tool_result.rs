//! The result of a tool call, as typed blocks.

use rmcp::model::{ContentBlock, ResourceContents};
use serde_json::Value;

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
        let fields = result.as_object_mut()?;
        fields.retain(|name, _| !matches!(name.as_str(), "_meta" | "resultType"));
        if fields.is_empty() {
            return Some(ToolResult::default());
        }
        let is_error = fields.get("isError") == Some(&Value::Bool(true));
        let structured = fields.remove("structuredContent").filter(|it| !it.is_null());
        let blocks = match fields.remove("content") {
            Some(Value::Array(blocks)) => blocks.into_iter().map(parse_block).collect(),
            // Some servers send this instead of a list.
            Some(Value::String(text)) => vec![ResultBlock::Text(text)],
            Some(one @ Value::Object(_)) => vec![parse_block(one)],
            _ if structured.is_none() && !is_error => return None,
            _ => Vec::new(),
        };
        Some(ToolResult { blocks, structured, is_error })
    }
}

fn parse_block(value: Value) -> ResultBlock {
    let kind = value.get("type").and_then(Value::as_str).map(str::to_owned);
    match (serde_json::from_value::<ContentBlock>(value), kind) {
        (Ok(block), _) => block.into(),
        (Err(_), kind) => ResultBlock::Unknown(kind.unwrap_or_default()),
    }
}

impl From<ContentBlock> for ResultBlock {
    fn from(block: ContentBlock) -> ResultBlock {
        match block {
            ContentBlock::Text(it) => ResultBlock::Text(it.text),
            ContentBlock::Image(it) => ResultBlock::Image { mime: it.mime_type, data: it.data },
            ContentBlock::Audio(it) => ResultBlock::Audio { mime: it.mime_type, data: it.data },
            ContentBlock::Resource(it) => it.resource.into(),
            ContentBlock::ResourceLink(it) => ResultBlock::Link {
                uri: it.uri,
                name: it.title.unwrap_or(it.name),
                mime: it.mime_type.unwrap_or_default(),
                description: it.description.unwrap_or_default(),
                size: it.size,
            },
            _ => ResultBlock::Unknown(String::new()),
        }
    }
}

impl From<ResourceContents> for ResultBlock {
    fn from(contents: ResourceContents) -> ResultBlock {
        match contents {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                ResultBlock::Embedded { uri, text }
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let mime = mime_type.unwrap_or_default();
                if mime.starts_with("image/") {
                    ResultBlock::Image { mime, data: blob }
                } else {
                    ResultBlock::Blob { uri, mime, data: blob }
                }
            }
            _ => ResultBlock::Unknown("resource".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_malformed_block_does_not_hide_the_others() {
        let text = || ResultBlock::Text("a".to_owned());
        let table = [
            (json!({ "content": [{ "type": "text", "text": "a" }] }), vec![text()]),
            (
                json!({ "content": [{ "type": "text", "text": "a" }, { "type": "video", "x": 1 }] }),
                vec![text(), ResultBlock::Unknown("video".to_owned())],
            ),
            (
                json!({ "content": [{ "type": "text" }, 7, { "type": "text", "text": "a" }] }),
                vec![
                    ResultBlock::Unknown("text".to_owned()),
                    ResultBlock::Unknown(String::new()),
                    text(),
                ],
            ),
            (json!({ "content": "a" }), vec![text()]),
            (json!({ "content": { "type": "text", "text": "a" } }), vec![text()]),
        ];
        for (result, blocks) in table {
            assert_eq!(ToolResult::parse(result.clone()).unwrap().blocks, blocks, "{result}");
        }
        assert_eq!(ToolResult::parse(json!({ "something": 1 })), None);
        assert_eq!(ToolResult::parse(json!({ "_meta": {} })), Some(ToolResult::default()));
        let failed = ToolResult::parse(json!({ "isError": true, "content": null })).unwrap();
        assert!(failed.is_error && failed.blocks.is_empty());
    }
}
