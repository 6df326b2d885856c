//! Reads the text of PDF pages in the order in which each page draws it. The position of the next text shows where
//! words and lines end. Only this file and `encoding` use `lopdf`.

mod encoding;

use std::collections::HashMap;
use std::rc::Rc;
use std::{array, iter};

use lopdf::content::Content;
use lopdf::{Dictionary, Document, LoadOptions, Object, ObjectId, Stream, decode_text_string};

use self::encoding::Encoding;
use crate::{MAX_TEXT_BYTES, MAX_UNPACKED_BYTES, OpenedDocument};

/// Replaces the text of a page that has none but draws a picture.
pub(crate) const PICTURE: &str = "[no text: this page is a picture, probably scanned. To read it, make an image of it, for example with \
                                  `pdftoppm -r 150 -png`, and read that.]";
const TOO_LARGE: &str = "[this page cannot be read: it unpacks to more than 64 MiB]";
const UNREADABLE: &str =
    "\n[Text shown as \u{fffd} cannot be read: its font does not say which characters it has.]";

/// The deepest nesting of forms, which are pages within pages.
const MAX_FORM_DEPTH: usize = 4;
/// The most fields and remarks of a page, and the most fields above a field.
const MAX_ANNOTATIONS: usize = 1_000;
const MAX_PARENTS: usize = 8;
/// The gaps that mark a new paragraph, a new line and a new word, relative to the text's height.
const PARAGRAPH_GAP: f32 = 1.9;
const LINE_GAP: f32 = 0.5;
const WORD_GAP: f32 = 0.16;
/// The gap for a new word in fonts with several bytes for a character, whose widths are not read.
const WIDE_WORD_GAP: f32 = 1.0;

/// Opens a document. A document that is encrypted with an empty password is decrypted, and a broken object table is
/// rebuilt.
pub(crate) fn open(bytes: &[u8]) -> Result<OpenedDocument<'static>, String> {
    let limit = Some(MAX_UNPACKED_BYTES);
    let options = LoadOptions { max_decompressed_size: limit, ..LoadOptions::default() };
    let document = Document::load_mem_with_options(bytes, options)
        .map_err(|error| format!("is a PDF that cannot be read: {error}"))?;
    if document.trailer.has(b"Encrypt") {
        return Err(crate::PASSWORD.to_owned());
    }
    let pages: Vec<_> = document.page_iter().collect();
    let labels = vec![String::new(); pages.len()];
    let part = Box::new(move |index: usize| page_text(&document, pages[index]));
    Ok(OpenedDocument { format: "PDF", unit: "page", labels, part })
}

fn page_text(document: &Document, page: ObjectId) -> String {
    let Ok(content) = document.get_page_content_with_limit(page, MAX_UNPACKED_BYTES) else {
        return TOO_LARGE.to_owned();
    };
    let (own, inherited) = document.get_page_resources(page).unwrap_or_default();
    let inherited = inherited.into_iter().filter_map(|id| document.get_dictionary(id).ok());
    let resources: Vec<_> = own.into_iter().chain(inherited).collect();
    let mut reader = PageReader {
        document,
        to_page: IDENTITY,
        saved: Vec::new(),
        font: None,
        size: 1.0,
        leading: 0.0,
        line: IDENTITY,
        pen: IDENTITY,
        end: None,
        text: String::new(),
        has_picture: false,
    };
    reader.run(&content, &resources, 0);
    let text = match reader.text.trim() {
        "" if reader.has_picture => PICTURE.to_owned(),
        "" => "[an empty page]".to_owned(),
        text if text.contains('\u{fffd}') => format!("{text}{UNREADABLE}"),
        text => text.to_owned(),
    };
    let all = document.get_page_annotations(page).unwrap_or_default();
    let lines = all.into_iter().take(MAX_ANNOTATIONS).filter_map(|one| annotation(document, one));
    let filled: String = lines.collect();
    if filled.is_empty() { text } else { format!("{text}\n\n[fields and remarks]\n{filled}") }
}

/// Returns a line for a form's field that is filled in, and for a remark. Neither is drawn by the page itself.
fn annotation(document: &Document, annotation: &Dictionary) -> Option<String> {
    let subtype = annotation.get_deref(b"Subtype", document).and_then(Object::as_name);
    let value = match subtype.unwrap_or_default() {
        b"Link" | b"Popup" => None,
        b"Widget" => field_value(document, annotation),
        _ => decode_text_string(annotation.get_deref(b"Contents", document).ok()?).ok(),
    };
    let value = value?.replace(['\r', '\n'], " ");
    let described = inherited(document, annotation, b"TU");
    let name = described.or_else(|| inherited(document, annotation, b"T"));
    let name = name.and_then(|name| decode_text_string(name).ok()).unwrap_or_default();
    (!value.trim().is_empty()).then(|| format!("{}: {}\n", name.trim(), value.trim()))
}

/// Returns an entry of a field, or of the fields above it.
fn inherited<'a>(document: &'a Document, field: &'a Dictionary, key: &[u8]) -> Option<&'a Object> {
    let fields = iter::successors(Some(field), |below| {
        below.get_deref(b"Parent", document).and_then(Object::as_dict).ok()
    });
    fields.take(MAX_PARENTS).find_map(|field| field.get_deref(key, document).ok())
}

/// Returns the value of a field, or the state of one button of it; `None` if it is empty or switched off.
fn field_value(document: &Document, field: &Dictionary) -> Option<String> {
    let state = field.get_deref(b"AS", document).ok();
    match state.or_else(|| inherited(document, field, b"V"))? {
        Object::Name(state) if state.as_slice() != b"Off" => {
            Some(String::from_utf8_lossy(state).into_owned())
        }
        Object::Array(chosen) => {
            let texts = chosen.iter().filter_map(|text| decode_text_string(text).ok());
            Some(texts.collect::<Vec<_>>().join(", "))
        }
        text => decode_text_string(text).ok(),
    }
}

/// An affine transformation in the notation of PDF.
type Matrix = [f32; 6];

const IDENTITY: Matrix = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0];

/// Combines two transformations: `first` is applied before `second`.
fn times(first: Matrix, second: Matrix) -> Matrix {
    array::from_fn(|index| {
        let column = index % 2;
        let row = index - column;
        let moved = if row == 4 { second[4 + column] } else { 0.0 };
        first[row] * second[column] + first[row + 1] * second[2 + column] + moved
    })
}

/// Reads the first numbers of a list, with 0 for missing ones.
fn numbers<const COUNT: usize>(list: &[Object]) -> [f32; COUNT] {
    array::from_fn(|at| list.get(at).and_then(|number| number.as_float().ok()).unwrap_or(0.0))
}

struct Font<'a> {
    encoding: Encoding,
    /// A character may have several bytes.
    is_wide: bool,
    first_code: usize,
    /// The widths of the characters, in thousandths of an em.
    widths: &'a [Object],
}

impl<'a> Font<'a> {
    fn new(font: &'a Dictionary, document: &'a Document) -> Font<'a> {
        let subtype = font.get_deref(b"Subtype", document).and_then(Object::as_name);
        let is_wide = subtype.is_ok_and(|name| name == b"Type0");
        let first = font.get_deref(b"FirstChar", document).and_then(Object::as_i64);
        let widths = font.get_deref(b"Widths", document).and_then(Object::as_array);
        Font {
            encoding: Encoding::new(font, is_wide, document),
            is_wide,
            first_code: usize::try_from(first.unwrap_or(0)).unwrap_or(0),
            widths: widths.map(Vec::as_slice).unwrap_or_default(),
        }
    }

    /// Returns the width of a string in ems, estimated if the font has no widths.
    fn width(&self, bytes: &[u8], text: &str) -> f32 {
        if self.widths.is_empty() {
            return text.chars().map(|char| if char < '\u{2e80}' { 0.5 } else { 1.0 }).sum();
        }
        let widths = bytes.iter().map(|byte| {
            let index = usize::from(*byte).checked_sub(self.first_code);
            let width = index.and_then(|index| self.widths.get(index)?.as_float().ok());
            width.unwrap_or(500.0) / 1000.0
        });
        widths.sum()
    }
}

/// Reads the text of one page.
struct PageReader<'a> {
    document: &'a Document,
    to_page: Matrix,
    /// The transformations that `q` has saved and `Q` restores.
    saved: Vec<Matrix>,
    font: Option<Rc<Font<'a>>>,
    size: f32,
    leading: f32,
    /// The beginning of the current line.
    line: Matrix,
    /// The position of the next text.
    pen: Matrix,
    /// The position on the page where the text so far ends.
    end: Option<[f32; 2]>,
    text: String,
    has_picture: bool,
}

impl<'a> PageReader<'a> {
    /// Interprets the operations of a page or form.
    fn run(&mut self, content: &[u8], resources: &[&'a Dictionary], depth: usize) {
        let mut fonts: HashMap<Vec<u8>, Option<Rc<Font<'a>>>> = HashMap::new();
        for operation in Content::decode_iter(content).map_while(Result::ok) {
            if self.text.len() > MAX_TEXT_BYTES {
                return;
            }
            let operands = operation.operands.as_slice();
            match (operation.operator.as_str(), operands) {
                ("Tf", [Object::Name(name), ..]) => {
                    let font = fonts.entry(name.clone()).or_insert_with(|| {
                        let font = self.resource(resources, b"Font", name)?.as_dict().ok()?;
                        Some(Rc::new(Font::new(font, self.document)))
                    });
                    self.font.clone_from(font);
                    [_, self.size] = numbers(operands);
                }
                ("Do", [Object::Name(name), ..]) => {
                    let object = self.resource(resources, b"XObject", name);
                    if let Some(Object::Stream(stream)) = object {
                        self.draw(stream, resources, depth);
                    }
                }
                ("BI", _) => self.has_picture = true,
                ("q", _) => self.saved.push(self.to_page),
                ("Q", _) => self.to_page = self.saved.pop().unwrap_or(self.to_page),
                ("cm", _) => self.to_page = times(numbers(operands), self.to_page),
                ("BT", _) => self.move_to(IDENTITY),
                ("Tm", _) => self.move_to(numbers(operands)),
                ("TL", _) => [self.leading] = numbers(operands),
                ("Td", _) => self.next_line(numbers(operands)),
                ("TD", _) => {
                    let [x, y] = numbers(operands);
                    self.leading = -y;
                    self.next_line([x, y]);
                }
                ("T*", _) => self.next_line([0.0, -self.leading]),
                ("Tj" | "TJ", _) => self.show_all(operands),
                ("'" | "\"", _) => {
                    self.next_line([0.0, -self.leading]);
                    self.show_all(operands);
                }
                _ => {}
            }
        }
    }

    fn resource(&self, all: &[&'a Dictionary], kind: &[u8], name: &[u8]) -> Option<&'a Object> {
        let document = self.document;
        let mut of_kind = all.iter().filter_map(|all| all.get_deref(kind, document).ok());
        of_kind.find_map(|found| found.as_dict().ok()?.get_deref(name, document).ok())
    }

    /// Draws a picture or a form.
    fn draw(&mut self, stream: &'a Stream, resources: &[&'a Dictionary], depth: usize) {
        let document = self.document;
        let subtype = stream.dict.get_deref(b"Subtype", document).and_then(Object::as_name);
        let is_form = subtype.is_ok_and(|name| name == b"Form");
        self.has_picture |= !is_form;
        if !is_form || depth == MAX_FORM_DEPTH {
            return;
        }
        let content = stream.decompressed_content_with_limit(MAX_UNPACKED_BYTES);
        let own = stream.dict.get_deref(b"Resources", document).and_then(Object::as_dict).ok();
        let resources: Vec<_> = own.into_iter().chain(resources.iter().copied()).collect();
        let before = self.to_page;
        if let Ok(Object::Array(matrix)) = stream.dict.get_deref(b"Matrix", document) {
            self.to_page = times(numbers(matrix), before);
        }
        self.run(&content.unwrap_or_default(), &resources, depth + 1);
        self.to_page = before;
    }

    fn move_to(&mut self, place: Matrix) {
        self.line = place;
        self.pen = place;
    }

    fn next_line(&mut self, [x, y]: [f32; 2]) {
        self.move_to(times([1.0, 0.0, 0.0, 1.0, x, y], self.line));
    }

    fn move_pen(&mut self, ems: f32) {
        self.pen = times([1.0, 0.0, 0.0, 1.0, ems * self.size, 0.0], self.pen);
    }

    /// Adds strings to the text. Numbers between them move the pen back by thousandths of an em.
    fn show_all(&mut self, items: &[Object]) {
        for item in items {
            match item {
                Object::Array(items) => self.show_all(items),
                Object::String(bytes, _) => self.show(bytes),
                number => {
                    let ems = -number.as_float().unwrap_or(0.0) / 1000.0;
                    self.move_pen(ems);
                    if ems > WORD_GAP && !self.text.ends_with(char::is_whitespace) {
                        self.text.push(' ');
                    }
                }
            }
        }
    }

    fn show(&mut self, bytes: &[u8]) {
        let Some(font) = self.font.clone() else { return };
        self.separate(times(self.pen, self.to_page), font.is_wide);
        let text = font.encoding.decode(bytes);
        self.text.push_str(&text);
        self.move_pen(font.width(bytes, &text));
        let end = times(self.pen, self.to_page);
        self.end = Some([end[4], end[5]]);
    }

    /// Separates the next text from the preceding text, depending on the gap between them.
    fn separate(&mut self, place: Matrix, is_wide: bool) {
        let Some([x, y]) = self.end else { return };
        let height = self.size.abs() * place[2].hypot(place[3]);
        let length = place[0].hypot(place[1]);
        let right = place[4] - x;
        let up = place[5] - y;
        let along = (right * place[0] + up * place[1]) / length;
        let across = ((right * place[1] - up * place[0]) / length).abs();
        let word_gap = height * if is_wide { WIDE_WORD_GAP } else { WORD_GAP };
        let is_elsewhere = along > word_gap || along < -8.0 * word_gap;
        if across > PARAGRAPH_GAP * height {
            self.text.push_str("\n\n");
        } else if across > LINE_GAP * height {
            self.text.push('\n');
        } else if is_elsewhere && !self.text.ends_with(char::is_whitespace) {
            self.text.push(' ');
        }
    }
}
