//! Converts the result of a server's tool for the model, the card and the log: bounded, without control
//! characters, and without base64 data that the receiver cannot use.

use std::path::Path;
use std::slice;

use serde_json::{Map, Value, json};

use crate::tools::ToolOutcome;
use turnwright_mcp::{ResultBlock, SchemaValidator, ToolResult, bounded_text, parse_block};
use turnwright_types::effect::{CallContent, escape_hidden_line, fenced, terminal_safe};
use turnwright_types::look_alike::without_smuggled_text;
use turnwright_types::message::Media;
use turnwright_types::redact;
use turnwright_types::text::{self, format_bytes};
use turnwright_workspace::exec::excerpt;
use turnwright_workspace::files::{PictureFault, read_picture};

/// Maximum number of images in one result.
const MAX_IMAGES: usize = 8;
/// Maximum size of an image in base64.
const MAX_IMAGE_BYTES: usize = 5 * 1024 * 1024;
/// Maximum length of a server's text in one line.
const MAX_LINE_CHARS: usize = 300;
/// Maximum number of blocks that the model reads of one result.
const MAX_BLOCKS: usize = 1_000;
/// Maximum number of blocks in the raw result for clients.
const MAX_RAW_BLOCKS: usize = 100;
/// Maximum size of the text, and of the JSON, in the raw result for clients.
const MAX_RAW_BYTES: usize = 32 * 1024;
/// A result with more blocks or a longer text is not short.
const MAX_SHORT_BLOCKS: usize = 4;
const MAX_SHORT_TEXT: usize = 2 * 1024;
/// JSON of at least this many bytes is split into lines, so that a part of it can be read.
const MIN_PRETTY_JSON_BYTES: usize = 4 * 1024;

/// Returns true if a result is converted at once: a few short texts.
pub(super) fn is_short(result: &ToolResult) -> bool {
    result.structured.is_none()
        && result.blocks.len() <= MAX_SHORT_BLOCKS
        && result
            .blocks
            .iter()
            .all(|block| matches!(block, ResultBlock::Text(text) if text.len() <= MAX_SHORT_TEXT))
}

/// Converts the result of a call. A long text is written to `file`. Unless the result is short, this
/// may take long, so it must run on a blocking thread.
pub(super) fn outcome(
    result: ToolResult,
    output_schema: Option<&SchemaValidator>,
    file: &Path,
) -> ToolOutcome {
    let ToolResult { blocks, structured, is_error } = result;
    let omitted = blocks.len().saturating_sub(MAX_BLOCKS);
    let blocks: Vec<_> = blocks.into_iter().take(MAX_BLOCKS).map(ResultBlock::decoded).collect();
    let raw = raw(&blocks, structured.as_ref(), is_error);
    let violation = output_schema
        .filter(|_| !is_error)
        .zip(structured.as_ref())
        .and_then(|(validator, value)| validator.first_error(value));
    let mut builder = OutcomeBuilder::default();
    let structured = structured.filter(|value| !is_told_in(value, &blocks));
    for block in blocks {
        builder.add_block(block);
    }
    if let Some(value) = structured {
        builder.add_line(json_text(&value));
    }
    if omitted > 0 {
        builder.add_line(format!("[{omitted} more blocks left out]"));
    }
    if let Some(violation) = violation {
        builder.add_line(format!(
            "[the structured content does not match the tool's output schema: {violation}]"
        ));
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
    fn add_block(&mut self, block: ResultBlock) {
        match block {
            ResultBlock::Text(text) => self.add_line(text),
            ResultBlock::Image { mime, data } => self.add_image(&mime, data),
            ResultBlock::Audio { mime, data } => {
                let mime = one_line(&mime);
                let size = format_bytes(data.len() as u64 / 4 * 3);
                self.add_line(format!("[audio, {mime}, {size}: not supported]"));
            }
            ResultBlock::Embedded { uri, text } => {
                self.add_line(format!("[resource {}]", one_line(&uri)));
                self.add_line(text);
            }
            ResultBlock::Blob { uri, mime, data } => {
                let uri = one_line(&uri);
                let size = format_bytes(data.len() as u64 / 4 * 3);
                self.add_line(format!("[resource {uri}: {}{size}, not shown]", mime_prefix(&mime)));
            }
            ResultBlock::Link { uri, name, mime, description, size: bytes } => {
                let size = bytes.map(format_bytes).unwrap_or_default();
                let mut facts = vec![one_line(&mime), size, one_line(&description)];
                facts.retain(|fact| !fact.is_empty());
                let details = match facts.join(", ") {
                    none if none.is_empty() => none,
                    some => format!(" ({some})"),
                };
                let name = one_line(&name);
                let uri = one_line(&uri);
                self.add_line(format!(
                    "[resource \"{name}\" at {uri}{details}: not included; read it by its URI]"
                ));
            }
            ResultBlock::Unknown(kind) => {
                let kind = one_line(&kind);
                self.add_line(format!("[a block of the unknown type \"{kind}\" was left out]"));
            }
        }
    }

    fn add_image(&mut self, label: &str, data: String) {
        let label = one_line(&label.trim().to_ascii_lowercase());
        let bytes = format_bytes(data.len() as u64 / 4 * 3);
        let problem = match read_picture(data) {
            Err(PictureFault::NotBase64) => "invalid base64".to_owned(),
            Err(PictureFault::UnknownFormat) => "unsupported type".to_owned(),
            Ok(_) if self.images.len() >= MAX_IMAGES => format!("more than {MAX_IMAGES} images"),
            Ok(picture) if picture.data.len() > MAX_IMAGE_BYTES => "too large".to_owned(),
            Ok(picture) => {
                self.add_line(format!("[an image, {}, {bytes}]", picture.mime));
                return self.images.push(picture);
            }
        };
        self.add_line(format!("[an image, {label}, {bytes}: {problem}]"));
    }

    /// Adds text that begins a line.
    fn add_line(&mut self, line: impl AsRef<str>) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(line.as_ref());
    }

    fn finish(self, is_error: bool, raw: Value, file: &Path) -> ToolOutcome {
        // First, because a key may be written with such characters.
        let seen = without_smuggled_text(&self.text);
        let whole = terminal_safe(redact::text_with_placed_keys(&seen).into_owned());
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
    let mut remaining = MAX_RAW_BYTES;
    let shown = blocks.iter().take(MAX_RAW_BLOCKS);
    let content: Vec<_> = shown.map(|block| raw_block(block, &mut remaining)).collect();
    let mut raw = Map::from_iter([("content".to_owned(), Value::Array(content))]);
    if let Some(value) = structured {
        let text = value.to_string();
        let value: Value = match text.len() {
            ..=MAX_RAW_BYTES => redact::text_with_placed_keys(&text).parse().unwrap_or_default(),
            bytes => json!({ "omitted": format!("{bytes} bytes") }),
        };
        raw.insert("structuredContent".to_owned(), value);
    }
    if is_error {
        raw.insert("isError".to_owned(), true.into());
    }
    redact::json(Value::Object(raw))
}

fn raw_block(block: &ResultBlock, remaining: &mut usize) -> Value {
    match block {
        ResultBlock::Text(text) => json!({ "type": "text", "text": take_text(text, remaining) }),
        ResultBlock::Image { mime, data } => media_summary("image", mime, data),
        ResultBlock::Audio { mime, data } => media_summary("audio", mime, data),
        ResultBlock::Embedded { uri, text } => {
            let text = take_text(text, remaining);
            json!({ "type": "resource", "uri": one_line(uri), "text": text })
        }
        ResultBlock::Blob { uri, mime, data } => {
            let mut block = media_summary("resource", mime, data);
            block["uri"] = one_line(uri).into();
            block
        }
        ResultBlock::Link { uri, name, .. } => {
            json!({ "type": "resource_link", "uri": one_line(uri), "name": one_line(name) })
        }
        ResultBlock::Unknown(kind) => json!({ "type": one_line(kind) }),
    }
}

/// Cuts a text to the bytes that are `remaining`.
fn take_text(text: &str, remaining: &mut usize) -> String {
    let part = text::prefix(text, *remaining);
    *remaining -= part.len();
    let clean = redact::text_with_placed_keys(part);
    let rest = text.len() - part.len();
    if rest == 0 { clean.into_owned() } else { format!("{clean}[… {rest} more bytes]") }
}

fn media_summary(kind: &str, mime: &str, data: &str) -> Value {
    json!({ "type": kind, "mimeType": one_line(mime), "bytes": data.len() / 4 * 3 })
}

/// Returns true if the blocks of a result repeat all of its structured content. A server wraps a value that is not
/// an object as `{"result": …}`, and may give each item of a list a block of its own.
fn is_told_in(structured: &Value, blocks: &[ResultBlock]) -> bool {
    let inner = match structured.as_object() {
        Some(fields) if fields.len() == 1 => fields.get("result").unwrap_or(structured),
        _ => structured,
    };
    let mut texts = blocks.iter().filter_map(block_text).map(str::trim);
    let compact = structured.to_string();
    let items = inner.as_array().map_or(slice::from_ref(inner), Vec::as_slice);
    compact == "{}"
        || texts.any(|text| says(text, structured) || says(text, inner) || text.contains(&compact))
        || items.len() == blocks.len()
            && items.iter().zip(blocks).all(|(item, block)| repeats(item, block))
}

/// Returns true if an item of structured content is the block, as FastMCP lists it there, or says the same. An item
/// with fields that no such block has says more.
fn repeats(item: &Value, block: &ResultBlock) -> bool {
    let known = match item["type"].as_str() {
        Some("resource_link") => "type uri name title description mimeType size annotations _meta",
        _ => "type text data mimeType resource annotations _meta",
    };
    let is_block = item.as_object().is_some_and(|fields| {
        fields.iter().all(|(key, value)| value.is_null() || known.split(' ').any(|own| own == key))
    });
    is_block && parse_block(item).decoded() == *block
        || block_text(block).is_some_and(|text| says(text.trim(), item))
}

/// Returns true if the text is the value, as it is or as JSON.
fn says(text: &str, value: &Value) -> bool {
    value.as_str() == Some(text)
        || serde_json::from_str(text).is_ok_and(|told: Value| told == *value)
}

fn block_text(block: &ResultBlock) -> Option<&str> {
    match block {
        ResultBlock::Text(text) | ResultBlock::Embedded { text, .. } => Some(text),
        _ => None,
    }
}

fn json_text(value: &Value) -> String {
    let text = value.to_string();
    if text.len() < MIN_PRETTY_JSON_BYTES { text } else { format!("{value:#}") }
}

/// Makes one short line of a server's name or address.
fn one_line(text: &str) -> String {
    bounded_text(&escape_hidden_line(text), MAX_LINE_CHARS)
}

fn mime_prefix(mime: &str) -> String {
    if mime.is_empty() { String::new() } else { format!("{}, ", one_line(mime)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_people_do_not_see_is_left_out_of_a_result() {
        let blocks = vec![ResultBlock::Text("Done\u{e0041}\u{fe01}. ❤\u{fe0f}".to_owned())];
        let result = ToolResult { blocks, structured: None, is_error: false };
        assert_eq!(outcome(result, None, Path::new("unused")).text.trim_end(), "Done. ❤\u{fe0f}");
    }

    #[test]
    fn a_password_in_a_url_and_a_key_in_a_header_are_hidden_in_a_result() {
        for secret in ["postgres://app:Zk39xQ71vvLm@db", "AUTHORIZATION: basic Zk39xQ71vvLm"] {
            let blocks = vec![ResultBlock::Text(format!("url = {secret}\n"))];
            let structured = Some(json!({ "said": secret }));
            let result = ToolResult { blocks, structured, is_error: true };
            let told = outcome(result, None, Path::new("unused"));
            for shown in [told.text.clone(), format!("{:?}", told.content), told.raw.to_string()] {
                assert!(shown.contains("[hidden:") && !shown.contains("Zk39xQ71"), "{shown}");
            }
        }
    }

    #[test]
    fn a_text_in_base64_is_part_of_the_result() {
        let [uri, mime, data] = ["x://y", "", "cG9ydCA9IDgwODAK"].map(str::to_owned);
        let result = ToolResult {
            blocks: vec![ResultBlock::Blob { uri, mime, data }],
            ..ToolResult::default()
        };
        let outcome = outcome(result, None, Path::new("unused"));
        assert_eq!(outcome.text.trim_end(), "[resource x://y]\nport = 8080");
        assert_eq!(outcome.raw["content"][0]["text"], "port = 8080\n");
    }

    #[test]
    fn structured_content_that_lists_the_blocks_is_not_repeated() {
        let data = "iVBORw0KGgo=";
        let image =
            json!({ "type": "image", "data": data, "mimeType": "image/png", "_meta": null });
        let text = json!({ "type": "text", "text": "Shot", "annotations": null });
        let other = json!({ "type": "image", "data": "AAAA" });
        let line = json!({ "type": "text", "text": "Shot", "line": 3 });
        let caption =
            json!({ "type": "image", "data": data, "mimeType": "image/png", "caption": "Shot" });
        let link = json!({ "type": "resource_link", "uri": "x://y", "name": "y", "title": null });
        let linked = || ResultBlock::Link {
            uri: "x://y".to_owned(),
            name: "y".to_owned(),
            mime: String::new(),
            description: String::new(),
            size: None,
        };
        let picture = || ResultBlock::Image { mime: "image/png".to_owned(), data: data.to_owned() };
        for (structured, blocks, is_shown) in [
            (
                json!({ "result": [&text, &image] }),
                vec![ResultBlock::Text("Shot".to_owned()), picture()],
                false,
            ),
            (
                json!({ "result": [&line, &image] }),
                vec![ResultBlock::Text("Shot".to_owned()), picture()],
                true,
            ),
            (json!({ "result": [&image, &link] }), vec![picture(), linked()], false),
            (json!({ "result": [&image] }), vec![picture()], false),
            (caption.clone(), vec![picture()], true),
            (image.clone(), vec![picture()], false),
            (json!({ "result": [&image, &other] }), vec![picture()], true),
            (json!({ "result": [&other] }), vec![picture()], true),
            (json!({ "data": data, "width": 640 }), vec![picture()], true),
        ] {
            let result =
                ToolResult { blocks, structured: Some(structured.clone()), is_error: false };
            let told = outcome(result, None, Path::new("unused"));
            assert_eq!(told.text.contains("\"data\""), is_shown, "{structured}: {}", told.text);
            assert_eq!(told.images.len(), 1);
        }
    }

    #[test]
    fn structured_content_is_appended_unless_a_text_says_the_same() {
        let table = [
            (json!({ "id": 7, "ok": true }), vec!["Found 1 issue."], true),
            (json!({ "id": 7, "ok": true }), vec!["{\n \"ok\": true, \"id\": 7\n}"], false),
            (json!({ "id": 7 }), vec!["Issue:", "{\"id\": 7}"], false),
            (json!({ "id": 7 }), vec!["It is {\"id\":7}."], false),
            (json!({ "id": 7 }), vec!["{\"id\": 8}"], true),
            (json!({ "id": 7 }), vec![], true),
            (json!({}), vec!["Done."], false),
            (json!({ "result": 7 }), vec!["7"], false),
            (json!({ "result": "seven" }), vec!["seven\n"], false),
            (json!({ "result": [{ "id": 1 }, "b"] }), vec!["{\"id\":1}", "b"], false),
            (json!({ "result": [{ "id": 1 }, "b"] }), vec!["{\"id\":1}"], true),
            (json!({ "result": "eight" }), vec!["seven"], true),
        ];
        for (structured, texts, is_appended) in table {
            for is_error in [false, true] {
                let blocks =
                    texts.iter().map(|text| ResultBlock::Text((*text).to_owned())).collect();
                let result = ToolResult { blocks, structured: Some(structured.clone()), is_error };
                let text = outcome(result, None, Path::new("unused")).text;
                let shown = text.strip_prefix("The tool failed:\n").unwrap_or(&text);
                let mut expected = texts.clone();
                let json = structured.to_string();
                expected.extend(is_appended.then_some(json.as_str()));
                assert_eq!(shown.trim_end(), expected.join("\n").trim_end(), "{structured}");
            }
        }
    }
}
