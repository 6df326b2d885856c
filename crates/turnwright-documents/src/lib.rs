//! Reads the text of documents: PDF, the files of office programs, and notebooks. The first bytes decide, not the name.
//!
//! A hostile document can make this panic, hang or use all memory, so only a process with limits of its own calls it.

mod office;
mod pdf;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most pages, slides, sheets or cells that are read at once.
const MAX_PARTS: usize = 20;
/// The most bytes of text that are read at once.
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;
/// The most bytes to which a stream of a document may unpack.
const MAX_UNPACKED_BYTES: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };
const MAX_TITLE_CHARS: usize = 100;

const PASSWORD: &str = "has a password; ask the user for a copy without it";

/// Follows pages without text.
const SCAN_HINT: &str = "[To read a page that is a picture, make an image of it, for example with \
                         `pdftoppm -r 150 -png`, and read that.]\n";

/// The text of a document, or of some pages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct DocumentText {
    /// The format, the number of pages, those that follow, and the title, in one line.
    pub about: String,
    /// The text of the pages, each below a line with its number.
    pub text: String,
}

/// An opened document.
struct OpenedDocument<'a> {
    /// The name of the format.
    format: &'static str,
    /// The word for its parts, such as "page"; empty if it is read as a whole.
    unit: &'static str,
    title: Option<String>,
    /// For each part the name that is shown beside its number, if it has one.
    labels: Vec<String>,
    /// Reads the text of a part.
    part: Box<dyn FnMut(usize) -> String + 'a>,
}

/// Reads the text of a document, or of a range of its pages such as `3`, `1-5` or `7-`. `None` if it is no document.
///
/// # Errors
/// The fault of a document and the remedy, in words that follow its name.
pub fn extract(bytes: &[u8], pages: Option<&str>) -> Result<Option<DocumentText>, String> {
    let opened = if bytes.starts_with(b"%PDF-") {
        Some(pdf::open(bytes)?)
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
    let OpenedDocument { format, unit, title, labels, mut part } = document;
    let count = labels.len();
    let first = if unit.is_empty() { 1 } else { *range.start() };
    if first > count {
        return Err(format!("has no {unit} {first}; it has {count}"));
    }
    let last = (*range.end()).min(count).min(first + MAX_PARTS - 1);
    let mut about = format.to_owned();
    let mut text = String::new();
    if !unit.is_empty() {
        about.push_str(&format!(", {count} {unit}{}", if count == 1 { "" } else { "s" }));
    }
    if last - first + 1 < count {
        about.push_str(&format!(", here {first}–{last}; for others set `pages`"));
    }
    for number in first..=last {
        if !unit.is_empty() {
            let heading = format!("{unit} {number} {}", clipped(&labels[number - 1]));
            text.push_str(&format!("--- {} ---\n", heading.trim_end()));
        }
        text.push_str(part(number - 1).trim_end());
        text.push_str("\n\n");
        if text.len() > MAX_TEXT_BYTES {
            break;
        }
    }
    if let Some(title) = title.filter(|title| !title.trim().is_empty()) {
        about.push_str(&format!(", titled “{}”", clipped(&title)));
    }
    Ok(DocumentText { about, text: tidy(&text) })
}

/// A title on one line.
fn clipped(title: &str) -> String {
    title.chars().filter(|char| !char.is_control()).take(MAX_TITLE_CHARS).collect()
}

/// Opens a notebook of Jupyter; `None` if it is something else.
fn notebook(bytes: &[u8]) -> Option<OpenedDocument<'static>> {
    let mut notebook: Value = serde_json::from_slice(bytes).ok()?;
    notebook.get("nbformat")?;
    let Value::Array(cells) = notebook["cells"].take() else { return None };
    let kinds = cells.iter().map(|cell| cell["cell_type"].as_str().unwrap_or_default());
    let labels = kinds.map(str::to_owned).collect();
    let part = Box::new(move |index: usize| {
        let mut text = joined(&cells[index]["source"]);
        for output in cells[index]["outputs"].as_array().into_iter().flatten() {
            let printed = [&output["text"], &output["data"]["text/plain"], &output["evalue"]];
            text.push_str("\n[output]\n");
            text.extend(printed.map(joined));
        }
        text
    });
    Some(OpenedDocument { format: "notebook", unit: "cell", title: None, labels, part })
}

/// A text that may be written as a list of lines.
fn joined(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

/// The text without control characters and spaces at the ends of lines, cut if it is too long.
fn tidy(text: &str) -> String {
    let mut tidied = String::new();
    for line in text.lines() {
        tidied.extend(line.trim_end().chars().filter(|char| *char == '\t' || !char.is_control()));
        tidied.push('\n');
        if tidied.len() > MAX_TEXT_BYTES {
            tidied.push_str("[cut here: there is more text than 4 MiB]\n");
            break;
        }
    }
    if tidied.contains(pdf::PICTURE) {
        tidied.push_str(SCAN_HINT);
    }
    tidied
}

/// Reads a range of pages. An error says how it is written.
fn parse_range(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (first, last) = text.split_once(['-', '–']).unwrap_or((text, text));
    let first = if first.trim().is_empty() { Ok(1) } else { first.trim().parse() };
    let last = if last.trim().is_empty() { Ok(usize::MAX) } else { last.trim().parse() };
    match (first, last) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err("`pages` is a page or a range, such as \"3\" or \"1-5\"".to_owned()),
    }
}

#[cfg(test)]
mod tests;
