//! Reads the text of documents: PDF, office files, and notebooks. The content determines the format, not the name.
//!
//! A hostile document can make this code panic, hang or use all memory, so call it only in a separate, limited process.

mod office;
mod pdf;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use turnwright_types::look_alike::without_invisible;
use turnwright_types::text;

/// The most pages, slides, sheets or cells that are read at once.
const MAX_PARTS: usize = 20;
/// The most bytes of text that are read at once.
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;
/// The most bytes that a compressed stream of a document may unpack to.
const MAX_UNPACKED_BYTES: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// The problem of an encrypted document, in words that follow its name.
const PASSWORD: &str = "has a password; ask the user for a copy without it";

/// The text of a document, or of some of its pages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct DocumentText {
    /// The format, the number of pages, and which pages `text` contains, on one line.
    pub about: String,
    /// The text of the pages, each after a line with its number.
    pub text: String,
    /// True if these are the first pages, and each is a picture without text, as in a scan.
    pub is_scan: bool,
}

/// An opened document.
struct OpenedDocument<'a> {
    /// The name of the format.
    format: &'static str,
    /// The word for a part of the document, such as "page"; empty if the document is read as a whole.
    unit: &'static str,
    /// The name of each part, which is shown beside its number; empty if the part has no name.
    labels: Vec<String>,
    /// Reads the text of the part with this index.
    part: Box<dyn FnMut(usize) -> String + 'a>,
}

/// Reads the text of a document, or of a range of pages such as `3`, `1-5` or `7-`; `None` if it is not a document.
///
/// # Errors
/// Returns the problem and the remedy, in words that follow the document's name.
pub fn extract(bytes: &[u8], pages: Option<&str>) -> Result<Option<DocumentText>, String> {
    // Some programs write a byte order mark or empty lines before the PDF.
    let start = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let opened = if start.starts_with(b"%PDF-") {
        Some(pdf::open(start)?)
    } else if bytes.starts_with(b"PK") {
        office::open(bytes)?
    } else {
        notebook(bytes)
    };
    let Some(document) = opened else { return Ok(None) };
    let range = pages.map_or(Ok(1..=usize::MAX), parse_range)?;
    read(document, &range).map(Some)
}

fn read(
    document: OpenedDocument<'_>,
    range: &RangeInclusive<usize>,
) -> Result<DocumentText, String> {
    let OpenedDocument { format, unit, labels, part: mut read_part } = document;
    let count = labels.len();
    let first = if unit.is_empty() { 1 } else { *range.start() };
    if first > count {
        return Err(format!("has no {unit} {first}; it has {count}"));
    }
    let last = (*range.end()).min(count).min(first + MAX_PARTS - 1);
    let mut about = format.to_owned();
    let mut text = String::new();
    // Only the PDF reader adds the sentence about a picture; in other formats it would be the document's own.
    let mut is_scan = first == 1 && format == "PDF";
    if !unit.is_empty() {
        about.push_str(&format!(", {count} {unit}{}", if count == 1 { "" } else { "s" }));
    }
    if last - first + 1 < count {
        about.push_str(&format!(", here {first}–{last}; for others set `pages`"));
    }
    for number in first..=last {
        if !unit.is_empty() {
            let heading = format!("{unit} {number} {}", labels[number - 1]);
            text.push_str(&format!("--- {} ---\n", heading.trim_end()));
        }
        let page = read_part(number - 1);
        is_scan &= page.starts_with(pdf::PICTURE);
        text.push_str(page.trim_end());
        if text.len() > MAX_TEXT_BYTES {
            text.truncate(text::prefix(&text, MAX_TEXT_BYTES).len());
            text.push_str("\n\n[cut here: there is more text than 4 MiB]\n");
            break;
        }
        text.push_str("\n\n");
    }
    let mut shown = String::new();
    for line in text.lines() {
        shown.push_str(&without_invisible(line.trim_end()));
        shown.push('\n');
    }
    Ok(DocumentText { about, text: shown, is_scan })
}

/// Opens a Jupyter notebook; `None` if the bytes are something else.
fn notebook(bytes: &[u8]) -> Option<OpenedDocument<'static>> {
    let mut notebook: Value = serde_json::from_slice(bytes).ok()?;
    notebook.get("nbformat")?;
    let Value::Array(cells) = notebook["cells"].take() else { return None };
    let kinds = cells.iter().map(|cell| cell["cell_type"].as_str().unwrap_or_default());
    let labels = kinds.map(str::to_owned).collect();
    let part = Box::new(move |index: usize| {
        let mut text = joined(&cells[index]["source"]);
        for output in cells[index]["outputs"].as_array().into_iter().flatten() {
            text.push_str("\n[output]\n");
            text.push_str(&printed(output));
        }
        text
    });
    Some(OpenedDocument { format: "notebook", unit: "cell", labels, part })
}

/// Returns what a cell has printed: its error, a text, or the most readable form of a value.
fn printed(output: &Value) -> String {
    let data = &output["data"];
    let forms = [&output["text"], &data["text/markdown"], &data["text/plain"], &data["text/html"]];
    let mut texts = forms.into_iter().map(joined);
    let kind = output["ename"].as_str();
    let error = kind.map(|name| format!("{name}: {}", joined(&output["evalue"])));
    error.or_else(|| texts.find(|text| !text.is_empty())).unwrap_or_default()
}

/// Returns a text that may be stored as a list of lines.
fn joined(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

/// Parses a range of pages. An error explains the notation.
fn parse_range(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let last = if last.trim().is_empty() { Ok(usize::MAX) } else { last.trim().parse() };
    match (first.trim().parse(), last) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err("`pages` is a page or a range, such as \"3\" or \"1-5\"".to_owned()),
    }
}

#[cfg(test)]
mod tests;
