//! What a server has answered, as the model, the card and the log get it. Everything has an end,
//! nothing in it is obeyed by a terminal, and contents in base64 go to nobody who cannot see them.

use std::path::Path;

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value, json};

use super::check::Check;
use super::content::{Answer, Block};
use super::schema::words;
use turnwright_types::effect::{Content, fenced, plain, visible_line};
use turnwright_workspace::exec::shortened;
use turnwright_types::message::Media;
use turnwright_types::redact;
use crate::tools::Outcome;

/// Pictures of one answer.
const MOST_IMAGES: usize = 8;
/// Bytes of a picture in base64.
const LARGEST_IMAGE: usize = 5 * 1024 * 1024;
/// What providers take.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Characters of a name, an address or a type.
const LONGEST_NAME: usize = 300;
/// Blocks of one answer.
const MOST_BLOCKS: usize = 1_000;
/// Bytes of text, and of JSON, in what clients get as the raw result.
const MOST_RAW: usize = 32 * 1024;
/// From so many bytes on JSON is told in lines, so that a part of it can be read.
const LONG_JSON: usize = 4 * 1024;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What came of a call. A long text is kept in the file. May take its time: not for the runtime's
/// thread.
pub(super) fn outcome(answer: Answer, results: Option<&Check>, file: &Path) -> Outcome {
    let Answer { mut blocks, structured, is_error } = answer;
    let raw = raw(&blocks, structured.as_ref(), is_error);
    let violation = results
        .filter(|_| !is_error)
        .zip(structured.as_ref())
        .and_then(|(check, value)| check.complaint(value));
    let lost = blocks.len().saturating_sub(MOST_BLOCKS);
    blocks.truncate(MOST_BLOCKS);
    let mut shown = Shown::default();
    let has_text =
        blocks.iter().any(|it| matches!(it, Block::Text(text) if !text.trim().is_empty()));
    for block in blocks {
        shown.block(block);
    }
    if let Some(value) = structured.filter(|_| !has_text) {
        shown.text(json(&value));
    }
    if lost > 0 {
        shown.note(format!("[{lost} more blocks left out]"));
    }
    if let Some(violation) = violation {
        shown.note(format!("[this is not what the server's own schema promises: {violation}]"));
    }
    shown.finish(is_error, raw, file)
}

/// What is to be shown, as it is gathered.
#[derive(Default)]
struct Shown {
    text: String,
    images: Vec<Media>,
}

impl Shown {
    fn block(&mut self, block: Block) {
        match block {
            Block::Text(text) => self.text(text),
            Block::Image { mime, data } => self.image(&mime, &data),
            Block::Audio { mime, data } => {
                let (mime, size) = (line(&mime), size(data.len() / 4 * 3));
                self.note(format!("[a recording, {mime}, {size}: it cannot be heard here]"));
            }
            Block::Embedded { uri, text } => {
                self.note(format!("[resource {}]", line(&uri)));
                self.text(text);
            }
            Block::Blob { uri, mime, data } => {
                let (uri, size) = (line(&uri), size(data.len() / 4 * 3));
                self.note(format!("[resource {uri}: {}{size}, not shown]", before(&mime)));
            }
            Block::Link { uri, name, mime, description, size: bytes } => {
                let size = bytes.map(|it| size(usize::try_from(it).unwrap_or(usize::MAX)));
                let about: Vec<_> = [line(&mime), size.unwrap_or_default(), line(&description)]
                    .into_iter()
                    .filter(|it| !it.is_empty())
                    .collect();
                let about = if about.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", about.join(", "))
                };
                let (name, uri) = (line(&name), line(&uri));
                self.note(format!(
                    "[resource \"{name}\" at {uri}{about}: not included, can be read]"
                ));
            }
            Block::Unknown(kind) => {
                let kind = line(&kind);
                self.note(format!("[a block of the unknown type \"{kind}\" was left out]"));
            }
        }
    }

    fn image(&mut self, mime: &str, data: &str) {
        let mime = mime.trim().to_ascii_lowercase();
        let data: String = data.split_ascii_whitespace().collect();
        let bytes = size(data.len() / 4 * 3);
        let trouble = if !IMAGES.contains(&&*mime) {
            Some("of a type that is not shown")
        } else if self.images.len() >= MOST_IMAGES {
            Some("one too many")
        } else if data.len() > LARGEST_IMAGE {
            Some("too large")
        } else {
            match BASE64.decode(&data) {
                Ok(bytes) if !bytes.is_empty() => None,
                _ => Some("not readable"),
            }
        };
        match trouble {
            Some(trouble) => {
                self.note(format!("[a picture, {}, {bytes}: {trouble}]", line(&mime)));
            }
            None => {
                self.note(format!("[a picture, {mime}, {bytes}]"));
                self.images.push(Media { mime, data });
            }
        }
    }

    /// Words of the server.
    fn text(&mut self, text: String) {
        if self.text.is_empty() {
            self.text = text;
            return;
        }
        self.note(text);
    }

    /// Something on a line of its own.
    fn note(&mut self, note: impl AsRef<str>) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(note.as_ref());
    }

    fn finish(mut self, is_error: bool, raw: Value, file: &Path) -> Outcome {
        redact::clean(&mut self.text);
        let whole = plain(self.text);
        let mut text = match whole.trim() {
            "" if is_error => "(it does not say why)".to_owned(),
            "" => "(done; nothing was answered)".to_owned(),
            _ => shortened(&whole, file).text,
        };
        let mut content = vec![Content::Text(fenced(&text))];
        content.extend(self.images.iter().cloned().map(Content::Image));
        if is_error {
            text.insert_str(0, "The tool says that it failed:\n");
        }
        Outcome { ok: !is_error, text, view: None, content, raw, images: self.images }
    }
}

/// The answer as clients get it that show nothing else: without what is long.
fn raw(blocks: &[Block], structured: Option<&Value>, is_error: bool) -> Value {
    let mut room = MOST_RAW;
    let mut cut = |text: &str| {
        let end = (0..=room.min(text.len())).rev().find(|it| text.is_char_boundary(*it));
        let part = &text[..end.unwrap_or(0)];
        room -= part.len();
        let rest = text.len() - part.len();
        if rest == 0 { part.to_owned() } else { format!("{part}[… {rest} bytes]") }
    };
    let block = |it: &Block| match it {
        Block::Text(text) => json!({ "type": "text", "text": cut(text) }),
        Block::Image { mime, data } => media("image", mime, data),
        Block::Audio { mime, data } => media("audio", mime, data),
        Block::Embedded { uri, text } => {
            json!({ "type": "resource", "uri": line(uri), "text": cut(text) })
        }
        Block::Blob { uri, mime, data } => {
            let mut block = media("resource", mime, data);
            block["uri"] = line(uri).into();
            block
        }
        Block::Link { uri, name, .. } => {
            json!({ "type": "resource_link", "uri": line(uri), "name": line(name) })
        }
        Block::Unknown(kind) => json!({ "type": line(kind) }),
    };
    let content: Vec<_> = blocks.iter().take(MOST_BLOCKS / 10).map(block).collect();
    let mut raw = Map::from_iter([("content".to_owned(), Value::Array(content))]);
    if let Some(value) = structured {
        let text = value.to_string();
        let value = match text.len() {
            ..=MOST_RAW => value.clone(),
            bytes => json!({ "omitted": format!("{bytes} bytes") }),
        };
        raw.insert("structuredContent".to_owned(), value);
    }
    if is_error {
        raw.insert("isError".to_owned(), true.into());
    }
    without_keys(Value::Object(raw))
}

fn media(kind: &str, mime: &str, data: &str) -> Value {
    json!({ "type": kind, "mimeType": line(mime), "bytes": data.len() / 4 * 3 })
}

fn without_keys(value: Value) -> Value {
    match value {
        Value::String(mut text) => {
            redact::clean(&mut text);
            text.into()
        }
        Value::Array(items) => items.into_iter().map(without_keys).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, it)| (key, without_keys(it))).collect()
        }
        value => value,
    }
}

fn json(value: &Value) -> String {
    let text = value.to_string();
    if text.len() < LONG_JSON { text } else { serde_json::to_string_pretty(value).unwrap_or(text) }
}

/// A name or an address of the server's in one line.
fn line(text: &str) -> String {
    words(&visible_line(text), LONGEST_NAME)
}

fn before(mime: &str) -> String {
    if mime.is_empty() { String::new() } else { format!("{}, ", line(mime)) }
}

fn size(bytes: usize) -> String {
    if bytes < 1024 { format!("{bytes} bytes") } else { format!("{} KB", bytes / 1024) }
}
