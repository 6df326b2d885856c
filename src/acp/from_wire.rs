//! Parameters → domain.

use super::wire::schema::{ContentBlock, EmbeddedResourceResource};
use crate::error::Error;
use turnwright_types::message::{Media, Part, UserMessage};

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
        ContentBlock::Image(it) => Part::Image(media("image/", it.mime_type, it.data)?),
        ContentBlock::Audio(it) => Part::Audio(media("audio/", it.mime_type, it.data)?),
        _ => return Err(unoffered("this kind of content")),
    })
}

/// A picture or a recording. One that is malformed would be refused with every request to come.
fn media(sort: &str, mime: String, data: String) -> Result<Media, Error> {
    let is_mime = |it: char| it.is_ascii_alphanumeric() || "/.+-".contains(it);
    let is_base64 = |it: u8| it.is_ascii_alphanumeric() || b"+/=".contains(&it);
    let fits = mime.starts_with(sort) && mime.len() < 100 && mime.chars().all(is_mime);
    if !fits || data.is_empty() || !data.bytes().all(is_base64) {
        return Err(Error::Params(format!("A block is no {sort}… in base64")));
    }
    Ok(Media { mime, data })
}

fn unoffered(what: &str) -> Error {
    Error::Params(format!("This agent does not take {what} in prompts"))
}
