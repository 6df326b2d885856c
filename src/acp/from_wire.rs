//! Converts wire types to domain types.

use super::wire::schema::{ContentBlock, EmbeddedResourceResource};
use crate::error::Error;
use turnwright_types::message::{Media, PromptPart, UserMessage};

/// Converts a prompt. An unknown kind of block is refused, because leaving it out would change what the
/// user says (R-TURN-11). The session decides whether it accepts images and audio.
pub(super) fn prompt(blocks: Vec<ContentBlock>) -> Result<UserMessage, Error> {
    if blocks.is_empty() {
        return Err(Error::InvalidParams("`prompt` is empty".to_owned()));
    }
    let parts = blocks.into_iter().map(prompt_part).collect::<Result<_, _>>()?;
    Ok(UserMessage { parts })
}

fn prompt_part(block: ContentBlock) -> Result<PromptPart, Error> {
    Ok(match block {
        ContentBlock::Text(text) => PromptPart::Text(text.text),
        ContentBlock::ResourceLink(link) => PromptPart::Link { name: link.name, uri: link.uri },
        ContentBlock::Resource(resource) => match resource.resource {
            EmbeddedResourceResource::TextResourceContents(it) => {
                PromptPart::Resource { uri: it.uri, text: it.text }
            }
            EmbeddedResourceResource::BlobResourceContents(it) => PromptPart::Resource {
                text: format!(
                    "[binary content, {}, {} bytes in base64, not shown]",
                    it.mime_type.as_deref().unwrap_or("unknown type"),
                    it.blob.len()
                ),
                uri: it.uri,
            },
            _ => return Err(unsupported("this kind of resource")),
        },
        ContentBlock::Image(it) => PromptPart::Image(media("image/", it.mime_type, it.data)?),
        ContentBlock::Audio(it) => PromptPart::Audio(media("audio/", it.mime_type, it.data)?),
        _ => return Err(unsupported("this kind of content")),
    })
}

/// Checks an image or a recording. The provider would refuse every later request that contains a
/// malformed one.
fn media(mime_prefix: &str, mime: String, data: String) -> Result<Media, Error> {
    let is_mime = |it: char| it.is_ascii_alphanumeric() || "/.+-".contains(it);
    let is_base64 = |it: u8| it.is_ascii_alphanumeric() || b"+/=".contains(&it);
    let is_valid = mime.starts_with(mime_prefix) && mime.len() < 100 && mime.chars().all(is_mime);
    if !is_valid || data.is_empty() || !data.bytes().all(is_base64) {
        return Err(Error::InvalidParams(format!("A block is not {mime_prefix}* in base64")));
    }
    Ok(Media { mime, data })
}

fn unsupported(what: &str) -> Error {
    Error::InvalidParams(format!("Prompts cannot contain {what}"))
}
