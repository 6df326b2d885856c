//! Converts wire types to domain types.

use std::collections::HashMap;

use super::schema::{BlobResourceContents, ContentBlock, EmbeddedResourceResource};
use crate::error::Error;
use turnwright_types::message::{ATTACHED_PICTURE, Media, PromptPart, UserMessage};
use turnwright_workspace::files::{read_picture, usual_base64};

/// Converts a prompt. An unknown kind of block is refused, because leaving it out would change what the
/// user says (R-TURN-11). The session decides whether it accepts images and audio.
///
/// Some blocks may stand for skills. `skills` has their names by the indexes of these blocks.
pub(super) fn prompt(
    blocks: Vec<ContentBlock>,
    mut skills: HashMap<usize, String>,
) -> Result<UserMessage, Error> {
    let mut parts = Vec::with_capacity(blocks.len());
    for (index, block) in blocks.into_iter().enumerate() {
        match skills.remove(&index) {
            Some(name) => parts.push(PromptPart::Skill(name)),
            None => add_block(&mut parts, block)?,
        }
    }
    if parts.is_empty() {
        return Err(Error::InvalidParams("`prompt` is empty".to_owned()));
    }
    Ok(UserMessage::new(parts))
}

fn add_block(parts: &mut Vec<PromptPart>, block: ContentBlock) -> Result<(), Error> {
    match block {
        ContentBlock::Text(text) if text.text.is_empty() => {}
        ContentBlock::Text(text) => parts.push(PromptPart::Text(text.text)),
        ContentBlock::ResourceLink(link) => {
            parts.push(PromptPart::Link { name: link.name, uri: link.uri });
        }
        ContentBlock::Resource(resource) => match resource.resource {
            EmbeddedResourceResource::TextResourceContents(it) => {
                parts.push(PromptPart::Resource { uri: it.uri, text: it.text });
            }
            EmbeddedResourceResource::BlobResourceContents(it) => add_blob(parts, it),
            _ => return Err(unsupported("this kind of resource")),
        },
        ContentBlock::Image(it) => parts.push(PromptPart::Image(image(it.data)?)),
        ContentBlock::Audio(it) => parts.push(PromptPart::Audio(audio(it.mime_type, it.data)?)),
        _ => return Err(unsupported("this kind of content")),
    }
    Ok(())
}

/// The first bytes of a PDF and of an archive, in base64.
const DOCUMENT_STARTS: [&str; 2] = ["JVBERi0", "UEsDB"];

/// The text of an attached document, which the model gets as the path of a file.
const DOCUMENT: &str =
    "[a document, not shown; if it is a file on the disk, read_file reads its text]";

/// Adds an attached binary file: a picture as such, anything else by a description.
fn add_blob(parts: &mut Vec<PromptPart>, blob: BlobResourceContents) {
    let BlobResourceContents { uri, mime_type, blob: data, .. } = blob;
    let size = data.len();
    if DOCUMENT_STARTS.iter().any(|start| data.starts_with(start)) {
        return parts.push(PromptPart::Resource { uri, text: DOCUMENT.to_owned() });
    }
    if let Ok(picture) = read_picture(data) {
        parts.push(PromptPart::Resource { uri, text: ATTACHED_PICTURE.to_owned() });
        return parts.push(PromptPart::Image(picture));
    }
    let mime = mime_type.as_deref().unwrap_or("unknown type");
    let text = format!("[binary content, {mime}, {size} bytes in base64, not shown]");
    parts.push(PromptPart::Resource { uri, text });
}

/// Reads an image. Its label does not matter.
fn image(data: String) -> Result<Media, Error> {
    read_picture(data).map_err(|fault| {
        Error::InvalidParams(format!("An image of the prompt cannot be used: {fault}"))
    })
}

/// Checks a recording.
fn audio(mime: String, data: String) -> Result<Media, Error> {
    let is_mime =
        mime.chars().all(|letter| letter.is_ascii_alphanumeric() || "/.+-".contains(letter));
    let is_valid = mime.starts_with("audio/") && mime.len() < 100 && is_mime;
    match usual_base64(data).filter(|_| is_valid) {
        Some(data) => Ok(Media { mime, data }),
        None => Err(Error::InvalidParams("A block is not audio/* in base64".to_owned())),
    }
}

fn unsupported(what: &str) -> Error {
    Error::InvalidParams(format!("Prompts cannot contain {what}"))
}
