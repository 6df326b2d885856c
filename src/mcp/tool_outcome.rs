//! Converts the result of a server's tool for the model, the card and the log: bounded, without control
//! characters, and without base64 data that the receiver cannot use.

use std::path::Path;

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value, json};

use crate::tools::ToolOutcome;
use turnwright_mcp::SchemaValidator;
use turnwright_mcp::bounded_text;
use turnwright_mcp::{ResultBlock, ToolResult};
use turnwright_types::effect::{CallContent, escape_hidden_line, fenced, terminal_safe};
use turnwright_types::message::Media;
use turnwright_types::redact;
use turnwright_workspace::exec::excerpt;

/// Images of one result.
const MAX_IMAGES: usize = 8;
/// Bytes of an image in base64.
const MAX_IMAGE_BYTES: usize = 5 * 1024 * 1024;
/// The image types that all providers accept.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Characters of a name, an address or a type.
const MAX_NAME_CHARS: usize = 300;
/// Blocks of one result.
const MAX_BLOCKS: usize = 1_000;
/// Bytes of text, and of JSON, in the raw result for clients.
const MAX_RAW_BYTES: usize = 32 * 1024;
/// JSON of at least this many bytes is split into lines, so that a part of it can be read.
const MIN_PRETTY_JSON_BYTES: usize = 4 * 1024;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Converts the result of a call. A long text is written to `file`. May take long, so it must run on a
/// blocking thread.
pub(super) fn outcome(
    result: ToolResult,
    results: Option<&SchemaValidator>,
    file: &Path,
) -> ToolOutcome {
    let ToolResult { mut blocks, structured, is_error } = result;
    let raw = raw(&blocks, structured.as_ref(), is_error);
    let violation = results
        .filter(|_| !is_error)
        .zip(structured.as_ref())
        .and_then(|(validator, value)| validator.first_error(value));
    let omitted = blocks.len().saturating_sub(MAX_BLOCKS);
    blocks.truncate(MAX_BLOCKS);
    let mut builder = OutcomeBuilder::default();
    let has_text =
        blocks.iter().any(|it| matches!(it, ResultBlock::Text(text) if !text.trim().is_empty()));
    for block in blocks {
        builder.block(block);
    }
    if let Some(value) = structured.filter(|_| !has_text) {
        builder.text(json(&value));
    }
    if omitted > 0 {
        builder.note(format!("[{omitted} more blocks left out]"));
    }
    if let Some(violation) = violation {
        builder.note(format!("[this is not what the server's own schema promises: {violation}]"));
    }
    builder.finish(is_error, raw, file)
}

/// Collects the text and images of a result.
#[derive(Default)]
struct OutcomeBuilder {
    text: String,
    images: Vec<Media>,
}

impl OutcomeBuilder {
    fn block(&mut self, block: ResultBlock) {
        match block {
            ResultBlock::Text(text) => self.text(text),
            ResultBlock::Image { mime, data } => self.image(&mime, &data),
            ResultBlock::Audio { mime, data } => {
                let (mime, size) = (line(&mime), size(data.len() / 4 * 3));
                self.note(format!("[audio, {mime}, {size}: not supported]"));
            }
            ResultBlock::Embedded { uri, text } => {
                self.note(format!("[resource {}]", line(&uri)));
                self.text(text);
            }
            ResultBlock::Blob { uri, mime, data } => {
                let (uri, size) = (line(&uri), size(data.len() / 4 * 3));
                self.note(format!("[resource {uri}: {}{size}, not shown]", mime_prefix(&mime)));
            }
            ResultBlock::Link { uri, name, mime, description, size: bytes } => {
                let size = bytes.map(|it| size(usize::try_from(it).unwrap_or(usize::MAX)));
                let details: Vec<_> = [line(&mime), size.unwrap_or_default(), line(&description)]
                    .into_iter()
                    .filter(|it| !it.is_empty())
                    .collect();
                let details = if details.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", details.join(", "))
                };
                let (name, uri) = (line(&name), line(&uri));
                self.note(format!(
                    "[resource \"{name}\" at {uri}{details}: not included, can be read]"
                ));
            }
            ResultBlock::Unknown(kind) => {
                let kind = line(&kind);
                self.note(format!("[a block of the unknown type \"{kind}\" was left out]"));
            }
        }
    }

    fn image(&mut self, mime: &str, data: &str) {
        let mime = mime.trim().to_ascii_lowercase();
        let data: String = data.split_ascii_whitespace().collect();
        let bytes = size(data.len() / 4 * 3);
        let problem = if !IMAGE_TYPES.contains(&&*mime) {
            Some("of an unsupported type")
        } else if self.images.len() >= MAX_IMAGES {
            Some("one too many")
        } else if data.len() > MAX_IMAGE_BYTES {
            Some("too large")
        } else {
            match BASE64.decode(&data) {
                Ok(bytes) if !bytes.is_empty() => None,
                _ => Some("not readable"),
            }
        };
        match problem {
            Some(problem) => {
                self.note(format!("[an image, {}, {bytes}: {problem}]", line(&mime)));
            }
            None => {
                self.note(format!("[an image, {mime}, {bytes}]"));
                self.images.push(Media { mime, data });
            }
        }
    }

    /// Adds text of the server.
    fn text(&mut self, text: String) {
        if self.text.is_empty() {
            self.text = text;
            return;
        }
        self.note(text);
    }

    /// Adds a line of its own.
    fn note(&mut self, note: impl AsRef<str>) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(note.as_ref());
    }

    fn finish(mut self, is_error: bool, raw: Value, file: &Path) -> ToolOutcome {
        redact::redact_in_place(&mut self.text);
        let whole = terminal_safe(self.text);
        let mut text = match whole.trim() {
            "" if is_error => "(no reason given)".to_owned(),
            "" => "(done; the result is empty)".to_owned(),
            _ => excerpt(&whole, file).text,
        };
        let mut content = vec![CallContent::Text(fenced(&text))];
        content.extend(self.images.iter().cloned().map(CallContent::Image));
        if is_error {
            text.insert_str(0, "The tool failed:\n");
        }
        ToolOutcome { ok: !is_error, text, view: None, content, raw, images: self.images }
    }
}

/// The raw result for clients that show nothing else, without long content.
fn raw(blocks: &[ResultBlock], structured: Option<&Value>, is_error: bool) -> Value {
    let mut room = MAX_RAW_BYTES;
    let mut cut = |text: &str| {
        let end = (0..=room.min(text.len())).rev().find(|it| text.is_char_boundary(*it));
        let part = &text[..end.unwrap_or(0)];
        room -= part.len();
        let rest = text.len() - part.len();
        if rest == 0 { part.to_owned() } else { format!("{part}[… {rest} bytes]") }
    };
    let block = |it: &ResultBlock| match it {
        ResultBlock::Text(text) => json!({ "type": "text", "text": cut(text) }),
        ResultBlock::Image { mime, data } => media("image", mime, data),
        ResultBlock::Audio { mime, data } => media("audio", mime, data),
        ResultBlock::Embedded { uri, text } => {
            json!({ "type": "resource", "uri": line(uri), "text": cut(text) })
        }
        ResultBlock::Blob { uri, mime, data } => {
            let mut block = media("resource", mime, data);
            block["uri"] = line(uri).into();
            block
        }
        ResultBlock::Link { uri, name, .. } => {
            json!({ "type": "resource_link", "uri": line(uri), "name": line(name) })
        }
        ResultBlock::Unknown(kind) => json!({ "type": line(kind) }),
    };
    let content: Vec<_> = blocks.iter().take(MAX_BLOCKS / 10).map(block).collect();
    let mut raw = Map::from_iter([("content".to_owned(), Value::Array(content))]);
    if let Some(value) = structured {
        let text = value.to_string();
        let value = match text.len() {
            ..=MAX_RAW_BYTES => value.clone(),
            bytes => json!({ "omitted": format!("{bytes} bytes") }),
        };
        raw.insert("structuredContent".to_owned(), value);
    }
    if is_error {
        raw.insert("isError".to_owned(), true.into());
    }
    redacted(Value::Object(raw))
}

fn media(kind: &str, mime: &str, data: &str) -> Value {
    json!({ "type": kind, "mimeType": line(mime), "bytes": data.len() / 4 * 3 })
}

fn redacted(value: Value) -> Value {
    match value {
        Value::String(mut text) => {
            redact::redact_in_place(&mut text);
            text.into()
        }
        Value::Array(items) => items.into_iter().map(redacted).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, it)| (key, redacted(it))).collect(),
        value => value,
    }
}

fn json(value: &Value) -> String {
    let text = value.to_string();
    if text.len() < MIN_PRETTY_JSON_BYTES {
        text
    } else {
        serde_json::to_string_pretty(value).unwrap_or(text)
    }
}

/// Makes one short line of a server's name or address.
fn line(text: &str) -> String {
    bounded_text(&escape_hidden_line(text), MAX_NAME_CHARS)
}

fn mime_prefix(mime: &str) -> String {
    if mime.is_empty() { String::new() } else { format!("{}, ", line(mime)) }
}

fn size(bytes: usize) -> String {
    if bytes < 1024 { format!("{bytes} bytes") } else { format!("{} KB", bytes / 1024) }
}
