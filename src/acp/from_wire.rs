//! Parameters → domain.

use super::wire::schema::{ContentBlock, EmbeddedResourceResource};
use crate::error::Error;
use crate::message::{Media, Part, UserMessage};

/// The blocks of a prompt. A kind that is unknown is refused: to leave it out would change what the
/// user says (R-TURN-11). Whether pictures and recordings are taken is for the session to say.
pub(super) fn prompt(blocks: Vec<ContentBlock>) -> Result<UserMessage, Error> {
    if blocks.is_empty() {
        return Err(Error::Params("`prompt` is empty".to_owned()));
    }
    let parts = blocks.into_iter().map(part).collect::<Result<_, _>>()?;
    Ok(UserMessage { parts })
}

fn part(block: ContentBlock) -> Result<Part, Error> {
    Ok(match block {
        ContentBlock::Text(text) => Part::Text(text.text),
        ContentBlock::ResourceLink(link) => Part::Link { name: link.name, uri: link.uri },
        ContentBlock::Resource(resource) => match resource.resource {
            EmbeddedResourceResource::TextResourceContents(it) => {
                Part::Resource { uri: it.uri, text: it.text }
            }
            EmbeddedResourceResource::BlobResourceContents(it) => Part::Resource {
                text: format!(
                    "[binary content, {}, {} bytes in base64, not shown]",
                    it.mime_type.as_deref().unwrap_or("unknown type"),
                    it.blob.len()
                ),
                uri: it.uri,
            },
            _ => return Err(unoffered("this kind of resource")),
        },
        ContentBlock::Image(it) => Part::Image(Media { mime: it.mime_type, data: it.data }),
        ContentBlock::Audio(it) => Part::Audio(Media { mime: it.mime_type, data: it.data }),
        _ => return Err(unoffered("this kind of content")),
    })
}

fn unoffered(what: &str) -> Error {
    Error::Params(format!("This agent does not take {what} in prompts"))
}
