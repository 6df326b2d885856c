//! Converts wire types to domain types.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::wire::schema::{BlobResourceContents, ContentBlock, EmbeddedResourceResource};
use crate::error::Error;
use turnwright_types::message::{ATTACHED_PICTURE, Media, PromptPart, UserMessage};
use turnwright_workspace::files::image_mime;

/// How many characters of base64 the beginning of an image has that tells its format.
const SIGNATURE_CHARS: usize = 64;

/// Converts a prompt. An unknown kind of block is refused, because leaving it out would change what the
/// user says (R-TURN-11). The session decides whether it accepts images and audio.
pub(super) fn prompt(blocks: Vec<ContentBlock>) -> Result<UserMessage, Error> {
    let mut parts = Vec::with_capacity(blocks.len());
    for block in blocks {
        add_block(&mut parts, block)?;
    }
    if parts.is_empty() {
        return Err(Error::InvalidParams("`prompt` is empty".to_owned()));
    }
    Ok(UserMessage { parts })
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
        ContentBlock::Image(it) => parts.push(PromptPart::Image(image(&it.mime_type, it.data)?)),
        ContentBlock::Audio(it) => parts.push(PromptPart::Audio(audio(it.mime_type, it.data)?)),
        _ => return Err(unsupported("this kind of content")),
    }
    Ok(())
}

/// Adds an attached binary file: a picture as such, anything else by a description.
fn add_blob(parts: &mut Vec<PromptPart>, blob: BlobResourceContents) {
    let BlobResourceContents { uri, mime_type, blob: data, .. } = blob;
    if let Some(mime) = image_format(&data) {
        parts.push(PromptPart::Resource { uri, text: ATTACHED_PICTURE.to_owned() });
        return parts.push(PromptPart::Image(Media { mime: mime.to_owned(), data }));
    }
    let mime = mime_type.as_deref().unwrap_or("unknown type");
    let text = format!("[binary content, {mime}, {} bytes in base64, not shown]", data.len());
    parts.push(PromptPart::Resource { uri, text });
}

/// Checks an image. The provider would refuse every later request that contains a malformed one.
fn image(mime: &str, data: String) -> Result<Media, Error> {
    let refused = |why: &str| {
        Err(Error::InvalidParams(format!("An image of the prompt cannot be used: {why}")))
    };
    if !is_base64(&data) {
        return refused("its data is not base64");
    }
    match image_format(&data) {
        None => refused("its data is not PNG, JPEG, GIF or WebP"),
        // A name for JPEG that is not registered, and common.
        Some("image/jpeg") if mime.eq_ignore_ascii_case("image/jpg") => {
            Ok(Media { mime: "image/jpeg".to_owned(), data })
        }
        Some(format) if mime.eq_ignore_ascii_case(format) => {
            Ok(Media { mime: format.to_owned(), data })
        }
        Some(format) => {
            let labelled: String = mime.chars().filter(char::is_ascii_graphic).take(50).collect();
            refused(&format!("it is labelled `{labelled}`, but its data is {format}"))
        }
    }
}

/// Checks a recording.
fn audio(mime: String, data: String) -> Result<Media, Error> {
    let is_mime = |it: char| it.is_ascii_alphanumeric() || "/.+-".contains(it);
    let is_valid = mime.starts_with("audio/") && mime.len() < 100 && mime.chars().all(is_mime);
    if !is_valid || !is_base64(&data) {
        return Err(Error::InvalidParams("A block is not audio/* in base64".to_owned()));
    }
    Ok(Media { mime, data })
}

fn is_base64(data: &str) -> bool {
    let digits = data.trim_end_matches('=');
    let is_digit = |it: u8| it.is_ascii_alphanumeric() || b"+/".contains(&it);
    let is_padded = data.len().is_multiple_of(4) && data.len() - digits.len() <= 2;
    !digits.is_empty() && is_padded && digits.bytes().all(is_digit)
}

/// The MIME type of an image in base64, if models accept its format.
fn image_format(data: &str) -> Option<&'static str> {
    let head = data.get(..data.len().min(SIGNATURE_CHARS)).filter(|_| is_base64(data))?;
    image_mime(&BASE64.decode(head).ok()?)
}

fn unsupported(what: &str) -> Error {
    Error::InvalidParams(format!("Prompts cannot contain {what}"))
}
