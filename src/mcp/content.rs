//! What a server answers to a call, block by block.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// An answer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) blocks: Vec<Block>,
    pub(super) structured: Option<Value>,
    /// The tool says that it has failed.
    pub(super) is_error: bool,
}

/// A block of it. Contents in base64 are as they came.
#[derive(Debug, PartialEq)]
pub(super) enum Block {
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
    /// Where something is.
    Link {
        uri: String,
        name: String,
        mime: String,
        description: String,
        size: Option<u64>,
    },
    /// Of a type that is not known here.
    Unknown(String),
}

impl From<CallToolResult> for Answer {
    fn from(result: CallToolResult) -> Answer {
        Answer {
            blocks: result.content.into_iter().map(Block::from).collect(),
            structured: result.structured_content,
            is_error: result.is_error == Some(true),
        }
    }
}

impl Answer {
    /// An answer of which something is not as it should be: each block is read by itself. `None` if
    /// it is no answer at all.
    pub(super) fn read(mut result: Value) -> Option<Answer> {
        let fields = result.as_object_mut()?;
        let is_error = fields.get("isError") == Some(&Value::Bool(true));
        let structured = fields.remove("structuredContent");
        let blocks = match fields.remove("content") {
            Some(Value::Array(blocks)) => blocks.into_iter().map(block).collect(),
            // What some servers send instead of a list.
            Some(Value::String(text)) => vec![Block::Text(text)],
            Some(one @ Value::Object(_)) => vec![block(one)],
            _ if structured.is_none() && !is_error => return None,
            _ => Vec::new(),
        };
        Some(Answer { blocks, structured, is_error })
    }
}

fn block(said: Value) -> Block {
    let kind = said.get("type").and_then(Value::as_str).map(str::to_owned);
    match (serde_json::from_value::<ContentBlock>(said), kind) {
        (Ok(block), _) => block.into(),
        (Err(_), kind) => Block::Unknown(kind.unwrap_or_default()),
    }
}

impl From<ContentBlock> for Block {
    fn from(block: ContentBlock) -> Block {
        match block {
            ContentBlock::Text(it) => Block::Text(it.text),
            ContentBlock::Image(it) => Block::Image { mime: it.mime_type, data: it.data },
            ContentBlock::Audio(it) => Block::Audio { mime: it.mime_type, data: it.data },
            ContentBlock::Resource(it) => it.resource.into(),
            ContentBlock::ResourceLink(it) => Block::Link {
                uri: it.uri,
                name: it.title.unwrap_or(it.name),
                mime: it.mime_type.unwrap_or_default(),
                description: it.description.unwrap_or_default(),
                size: it.size,
            },
            _ => Block::Unknown(String::new()),
        }
    }
}

impl From<ResourceContents> for Block {
    fn from(contents: ResourceContents) -> Block {
        match contents {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                Block::Embedded { uri, text }
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let mime = mime_type.unwrap_or_default();
                if mime.starts_with("image/") {
                    Block::Image { mime, data: blob }
                } else {
                    Block::Blob { uri, mime, data: blob }
                }
            }
            _ => Block::Unknown("resource".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ServerResult;
    use serde_json::json;

    use super::*;

    /// As it comes over the wire.
    fn answer(result: Value) -> Option<Answer> {
        match serde_json::from_value(result).unwrap() {
            ServerResult::CallToolResult(result) => Some(result.into()),
            ServerResult::CustomResult(result) => Answer::read(result.0),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_wrong_with_one_block_does_not_take_away_the_others() {
        let text = || Block::Text("a".to_owned());
        let table = [
            (json!({ "content": [{ "type": "text", "text": "a" }] }), vec![text()]),
            (
                json!({ "content": [{ "type": "text", "text": "a" }, { "type": "video", "x": 1 }] }),
                vec![text(), Block::Unknown("video".to_owned())],
            ),
            (
                json!({ "content": [{ "type": "text" }, 7, { "type": "text", "text": "a" }] }),
                vec![Block::Unknown("text".to_owned()), Block::Unknown(String::new()), text()],
            ),
            (json!({ "content": "a" }), vec![text()]),
            (json!({ "content": { "type": "text", "text": "a" } }), vec![text()]),
        ];
        for (result, blocks) in table {
            assert_eq!(answer(result.clone()).unwrap().blocks, blocks, "{result}");
        }
        assert_eq!(answer(json!({ "something": 1 })), None);
        let failed = answer(json!({ "isError": true, "content": null })).unwrap();
        assert!(failed.is_error && failed.blocks.is_empty());
    }
}
