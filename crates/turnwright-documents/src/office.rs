//! Office files, which are archives of XML. The HTML tokenizer of web pages reads the XML: it accepts any input, knows
//! the entities of XML, and makes names lower case.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;

use zip::ZipArchive;

use crate::{MAX_TEXT_BYTES, MAX_UNPACKED_BYTES, OpenedDocument};
use turnwright_types::bounded_read::read_at_most;
use turnwright_types::text;
use turnwright_workspace::markup::{MarkupEvent, read_markup};

/// The highest column to which a cell is aligned. Cells further right directly follow the one before them.
const MAX_COLUMNS: usize = 256;
/// The most copies of a cell or a row that is there several times, and of blanks.
const MAX_COPIES: usize = 1_000;
/// Parts of the paths of files whose text belongs to a document, sheet or slide. Their first words are headings.
const BESIDE: &str =
    "header footer footnotes endnotes comments notes diagrams/data charts/chart drawings/drawing";
/// The names of a workbook's format. Excel for Mac counts the days of dates from 1904.
const WORKBOOKS: [&str; 2] = [
    "Excel workbook; its dates are numbers of days since 1899-12-30",
    "Excel workbook; its dates are numbers of days since 1904-01-01",
];
/// The elements of the formats of Microsoft that contain text.
const TEXTS: [&[u8]; 3] = [b"t", b"v", b"text"];
/// Ends each of the shared texts to which the cells of a workbook refer.
const END_OF_STRING: char = '\u{1e}';

type Archive<'a> = ZipArchive<Cursor<&'a [u8]>>;

/// Opens an office file; `None` if it is some other archive.
pub(crate) fn open(bytes: &[u8]) -> Result<Option<OpenedDocument<'_>>, String> {
    let Ok(mut archive) = ZipArchive::new(Cursor::new(bytes)) else { return Ok(None) };
    let manifest = read(&mut archive, "META-INF/manifest.xml").unwrap_or_default();
    if String::from_utf8_lossy(&manifest).contains("encryption-data") {
        return Err(crate::PASSWORD.to_owned());
    }
    let is_word = index_of(&archive, "word/document.xml").is_some();
    let is_open = !manifest.is_empty() && index_of(&archive, "content.xml").is_some();
    let (format, unit, parts) = if is_word || is_open {
        let path = if is_word { "word/document.xml" } else { "content.xml" };
        ("office document", "", vec![(String::new(), path.to_owned())])
    } else if index_of(&archive, "xl/workbook.xml").is_some() {
        let sheets = listed_parts(&mut archive, "xl/workbook.xml")?;
        let book = String::from_utf8_lossy(&read(&mut archive, "xl/workbook.xml")?).into_owned();
        let is_of_1904 = book.contains("date1904=\"1") || book.contains("date1904=\"t");
        (WORKBOOKS[usize::from(is_of_1904)], "sheet", sheets)
    } else if index_of(&archive, "ppt/presentation.xml").is_some() {
        let slides = listed_parts(&mut archive, "ppt/presentation.xml")?;
        ("PowerPoint presentation", "slide", slides)
    } else {
        return Ok(None);
    };
    let strings = read(&mut archive, "xl/sharedStrings.xml").unwrap_or_default();
    let strings = extract_text(&strings, &[b"t"], &[]).replace('\n', " ");
    let labels = parts.iter().map(|(name, _)| name.clone()).collect();
    let part = Box::new(move |index: usize| match read(&mut archive, &parts[index].1) {
        Ok(xml) if is_open => extract_text(&xml, &[b"p", b"h"], &[]),
        Ok(xml) => {
            let shared: Vec<_> = strings.split(END_OF_STRING).collect();
            extract_text(&xml, &TEXTS, &shared) + &text_beside(&mut archive, &parts[index].1)
        }
        Err(why) => format!("[cannot be read: {why}]"),
    });
    Ok(Some(OpenedDocument { format, unit, labels, part }))
}

/// Returns the text that belongs to a part of the document and is in other files, such as comments, under headings. The
/// addresses of its links are in another file, too.
fn text_beside(archive: &mut Archive<'_>, part: &str) -> String {
    let related = relations(archive, part).unwrap_or_default();
    let mut paths: BTreeSet<_> = related.values().map(|path| plain_path(path.as_bytes())).collect();
    if part == "word/document.xml" {
        paths.extend(archive.file_names_raw().map(plain_path));
    }
    let mut text = String::new();
    for kind in BESIDE.split(' ') {
        let heading = kind.split('/').next().unwrap_or_default();
        for path in paths.iter().filter(|path| path.contains(&format!("/{kind}"))) {
            let file = path.strip_suffix(".xml").and_then(|_| read(archive, path).ok());
            let found = extract_text(&file.unwrap_or_default(), &TEXTS, &[]);
            push_section(&mut text, heading, found.lines().map(str::trim));
        }
    }
    let targets = related.values().map(String::as_str);
    let links: BTreeSet<_> = targets.filter(|target| target.starts_with("http")).collect();
    push_section(&mut text, "links", links.into_iter());
    text
}

/// Appends the lines that are not empty under a heading, if there are any, and unless there is too much text already.
fn push_section<'a>(text: &mut String, heading: &str, lines: impl Iterator<Item = &'a str>) {
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    if !lines.is_empty() && text.len() <= MAX_TEXT_BYTES {
        text.push_str(&format!("\n--- {heading} ---\n{}\n", lines.join("\n")));
    }
}

/// Returns a path in lower case, with slashes.
fn plain_path(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).replace('\\', "/").to_ascii_lowercase()
}

/// Finds a file of the archive. Some programs write its name with other capitals, with backslashes or, as Word Online
/// does, with a number at the end.
fn index_of(archive: &Archive<'_>, name: &str) -> Option<usize> {
    archive.index_for_name(name).or_else(|| {
        archive.file_names_raw().position(|raw| {
            let other = plain_path(raw);
            let (stem, end) = other.split_once(".xml").unwrap_or((other.as_str(), ""));
            let plain = format!("{}.xml{end}", stem.trim_end_matches(char::is_numeric));
            // The relations of `sheet2.xml` are not those of a `sheet.xml`, but a text has a single main file.
            let may_differ = end.is_empty() || stem.starts_with("word/");
            name.eq_ignore_ascii_case(&other) || may_differ && name.eq_ignore_ascii_case(&plain)
        })
    })
}

/// Unpacks a file of the archive.
fn read(archive: &mut Archive<'_>, name: &str) -> Result<Vec<u8>, String> {
    let index = index_of(archive, name).ok_or_else(|| format!("{name} is missing"))?;
    let file = archive.by_index(index).map_err(|error| format!("{name}: {error}"))?;
    let read = read_at_most(file, MAX_UNPACKED_BYTES as u64);
    let whole = read.map_err(|error| format!("{name}: {error}"))?;
    whole.ok_or_else(|| format!("{name} unpacks to more than 64 MiB"))
}

/// Returns the paths and web addresses to which a file of the archive refers, by the ids that it has for them.
fn relations(archive: &mut Archive<'_>, part: &str) -> Result<BTreeMap<String, String>, String> {
    let (folder, name) = part.rsplit_once('/').unwrap_or_default();
    let xml = read(archive, &format!("{folder}/_rels/{name}.rels"))?;
    let detour = format!("{}/../", folder.rsplit('/').next().unwrap_or_default());
    let mut paths = BTreeMap::new();
    read_xml(&xml, &mut |part| {
        if let XmlPart::Start(tag) = part
            && let (Some(id), Some(target)) = (attribute(tag, b"id"), attribute(tag, b"target"))
        {
            let path = match target.strip_prefix('/') {
                Some(path) => path.to_owned(),
                None if target.starts_with("http") => target,
                None => format!("{folder}/{target}").replace(&detour, ""),
            };
            paths.insert(id, path);
        }
        true
    });
    Ok(paths)
}

/// Returns the name and path of each sheet or slide, in order. The main file refers to them by relations.
fn listed_parts(archive: &mut Archive<'_>, main: &str) -> Result<Vec<(String, String)>, String> {
    let paths = relations(archive, main)?;
    let list = read(archive, main)?;
    let mut found = Vec::new();
    read_xml(&list, &mut |part| {
        if let XmlPart::Start(tag) = part
            && matches!(local_name(&tag.name), b"sheet" | b"sldid")
            && let Some(path) = attribute(tag, b":id").and_then(|id| paths.get(&id))
        {
            let name = attribute(tag, b"name").unwrap_or_default();
            let is_hidden = attribute(tag, b"state").is_some_and(|state| state != "visible");
            found.push((name + if is_hidden { " (hidden)" } else { "" }, path.clone()));
        }
        true
    });
    Ok(found)
}

/// A part of an XML file.
enum XmlPart<'a> {
    Start(&'a StartTag),
    /// The end of an element of this name.
    End(&'a [u8]),
    Text(&'a [u8]),
}

#[derive(Default)]
struct StartTag {
    name: Vec<u8>,
    /// The names and values.
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    self_closing: bool,
}

/// Passes the parts of an XML file to a function, until that returns false.
fn read_xml(xml: &[u8], handle: &mut dyn FnMut(XmlPart<'_>) -> bool) {
    let mut tag = StartTag::default();
    read_markup(without_sections(xml).as_bytes(), false, &mut |event| {
        match event {
            MarkupEvent::OpenStartTag { name } => {
                tag = StartTag { name: name.to_vec(), ..StartTag::default() };
            }
            MarkupEvent::AttributeName { name } => {
                tag.attributes.push((name.to_vec(), Vec::new()));
            }
            MarkupEvent::AttributeValue { value } => {
                if let Some((_, last)) = tag.attributes.last_mut() {
                    *last = value.to_vec();
                }
            }
            MarkupEvent::CloseStartTag { self_closing } => {
                tag.self_closing = *self_closing;
                return handle(XmlPart::Start(&tag));
            }
            MarkupEvent::EndTag { name } => return handle(XmlPart::End(name)),
            MarkupEvent::String { value } => return handle(XmlPart::Text(value)),
            _ => {}
        }
        true
    });
}

/// Writes CDATA sections as ordinary text: in HTML, they would be comments.
fn without_sections(xml: &[u8]) -> String {
    let text = String::from_utf8_lossy(xml);
    let mut plain = String::new();
    for part in text.split("]]>") {
        let (before, section) = part.split_once("<![CDATA[").unwrap_or((part, ""));
        plain.extend([before, &section.replace('&', "&amp;").replace('<', "&lt;")]);
    }
    plain
}

/// Removes the namespace prefix from a name.
fn local_name(name: &[u8]) -> &[u8] {
    name.rsplit(|byte| *byte == b':').next().unwrap_or(name)
}

/// Returns true for tab stops, fallback content for older programs, text that is deleted or was moved away, and
/// phonetic guides.
fn is_left_out(name: &[u8]) -> bool {
    matches!(
        local_name(name),
        b"tabs" | b"fallback" | b"tracked-changes" | b"movefrom" | b"rph" | b"rt" | b"ruby-text"
    )
}

/// Returns the value of the first attribute whose name has this ending.
fn attribute(tag: &StartTag, end: &[u8]) -> Option<String> {
    let (_, value) = tag.attributes.iter().find(|(name, _)| name.ends_with(end))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Returns the number in an attribute, such as that of equal cells; 1 if there is none.
fn count_in(tag: &StartTag, name: &[u8]) -> usize {
    let number = attribute(tag, name).and_then(|number| number.parse::<usize>().ok());
    number.unwrap_or(1).min(MAX_COPIES)
}

/// Returns the text, a line for each paragraph and table row, with tabs between cells. Only text in `elements` counts.
/// `shared` has the texts to which cells of a workbook refer.
fn extract_text(xml: &[u8], elements: &[&[u8]], shared: &[&str]) -> String {
    let mut writer = TextWriter::default();
    let mut open = 0_usize;
    let mut hidden = 0_usize;
    read_xml(xml, &mut |part| {
        match part {
            XmlPart::Start(tag) if is_left_out(&tag.name) => {
                hidden += usize::from(!tag.self_closing);
            }
            XmlPart::End(name) if is_left_out(name) => hidden = hidden.saturating_sub(1),
            _ if hidden > 0 => {}
            XmlPart::Start(tag) => {
                let name = local_name(&tag.name);
                open += usize::from(!tag.self_closing && elements.contains(&name));
                writer.begin(name, tag);
            }
            XmlPart::End(name) => {
                let local = local_name(name);
                open = open.saturating_sub(usize::from(elements.contains(&local)));
                writer.end(local);
            }
            XmlPart::Text(words) if writer.in_formula => {
                let words = String::from_utf8_lossy(words);
                writer.formula.push_str(text::prefix(&words, MAX_TEXT_BYTES));
            }
            XmlPart::Text(words) if open > 0 => {
                let words = String::from_utf8_lossy(words);
                let shown: &str = match (writer.kind.as_str(), words.trim()) {
                    ("s", index) => shared_text(shared, index),
                    ("b", "1" | "true") => "TRUE",
                    ("b", _) => "FALSE",
                    _ => &words,
                };
                // One text may be as large as its file.
                writer.text.push_str(text::prefix(shown, MAX_TEXT_BYTES));
            }
            XmlPart::Text(_) => {}
        }
        writer.text.len() <= MAX_TEXT_BYTES
    });
    writer.text
}

/// The text so far, and where in a table it is.
#[derive(Default)]
struct TextWriter {
    text: String,
    /// The number of open cells of tables.
    table_cells: usize,
    column: usize,
    /// The number of the last row of a workbook's sheet.
    rows: usize,
    /// The type of a workbook's cell: `s` if it refers to a shared text, `b` for a truth value.
    kind: String,
    /// The formula of the cell of a workbook, which is shown if its result is not stored.
    formula: String,
    in_formula: bool,
    in_cell: bool,
    /// The mark before the next text of the run: `^` if it is superscript, as a power is.
    mark: &'static str,
    cell: Repeated,
    row: Repeated,
}

/// A cell or row of a table that stands for several equal ones.
#[derive(Default)]
struct Repeated {
    /// The length of the text before it.
    start: usize,
    /// The number of equal ones, if this one is not complete yet.
    count: usize,
}

impl Repeated {
    /// Adds the other ones behind the first, as far as there is room.
    fn finish(&mut self, text: &mut String) {
        // In a malformed table, the text before it may be shorter now.
        let first = text.get(self.start..).unwrap_or_default();
        let most = MAX_TEXT_BYTES / first.len().max(1);
        let others = first.repeat(std::mem::take(&mut self.count).min(most).saturating_sub(1));
        text.push_str(&others);
    }
}

impl TextWriter {
    fn begin(&mut self, name: &[u8], tag: &StartTag) {
        let start = self.text.len();
        match name {
            b"tab" | b"ptab" => self.text.push('\t'),
            b"br" | b"cr" | b"line-break" => self.text.push('\n'),
            b"nobreakhyphen" => self.text.push('-'),
            b"r" => self.mark = "",
            b"vertalign" | b"rpr" => {
                let places = [attribute(tag, b"val"), attribute(tag, b"baseline")];
                let is_raised = places.iter().flatten().any(|place| {
                    place == "superscript" || place.parse().is_ok_and(|height: i32| height > 0)
                });
                self.mark = if is_raised { "^" } else { self.mark };
            }
            b"t" => self.text.push_str(std::mem::take(&mut self.mark)),
            b"sld" if attribute(tag, b"show").as_deref() == Some("0") => self.text += "(hidden)\n",
            b"table" | b"page" => self.push_attribute(tag, b":name", ["--- ", " ---\n"]),
            b"a" if attribute(tag, b"href").is_some_and(|target| target.starts_with("http")) => {
                self.push_attribute(tag, b"href", ["<", "> "]);
            }
            b"pic" | b"image" => self.text.push_str("[picture] "),
            b"annotation" if !tag.self_closing => self.text.push_str("[note: "),
            b"comment" => self.push_attribute(tag, b"ref", ["", ": "]),
            b"mergecells" => self.text.push_str("merged cells:"),
            b"mergecell" => self.push_attribute(tag, b"ref", [" ", ""]),
            b"s" => self.text.push_str(&" ".repeat(count_in(tag, b":c"))),
            b"tc" | b"table-cell" | b"covered-table-cell" => {
                let count = count_in(tag, b"number-columns-repeated");
                if tag.self_closing {
                    return self.text.push_str(&"\t".repeat(count));
                }
                self.table_cells += 1;
                self.cell = Repeated { start, count };
            }
            b"table-row" => {
                self.row = Repeated { start, count: count_in(tag, b"number-rows-repeated") };
            }
            b"row" => {
                let number = attribute(tag, b"r").and_then(|number| number.parse::<usize>().ok());
                // Empty rows are not in the file, or have no end tag.
                let missing = number.unwrap_or(0).saturating_sub(self.rows).saturating_sub(1);
                self.text.push_str(&"\n".repeat(missing.min(MAX_COPIES)));
                self.rows = self.rows.saturating_add(missing + usize::from(!tag.self_closing));
            }
            b"c" if !tag.self_closing => {
                let missing = column_of(tag).saturating_sub(self.column);
                self.text.push_str(&"\t".repeat(missing));
                self.column += missing;
                self.kind = attribute(tag, b"t").unwrap_or_default();
                self.cell = Repeated { start: self.text.len(), count: 1 };
                self.formula.clear();
                self.in_cell = true;
            }
            b"f" => self.in_formula = self.in_cell && !tag.self_closing,
            _ if !tag.self_closing => self.text.push_str(opening(name).unwrap_or_default()),
            _ => {}
        }
    }

    /// Appends the value of an attribute, if it is there, between two texts.
    fn push_attribute(&mut self, tag: &StartTag, name: &[u8], [before, after]: [&str; 2]) {
        self.text.extend(attribute(tag, name).map(|value| format!("{before}{value}{after}")));
    }

    fn end(&mut self, name: &[u8]) {
        match name {
            b"p" | b"h" => self.text.push(if self.table_cells > 0 { ' ' } else { '\n' }),
            b"si" => self.text.push(END_OF_STRING),
            b"pt" => self.text.push(' '),
            b"cm" | b"comment" | b"tx" | b"cat" | b"xval" | b"numcache" | b"numlit" => {
                self.text.push('\n');
            }
            b"annotation" => {
                self.text.truncate(self.text.trim_end().len());
                self.text.push_str("] ");
            }
            b"f" => self.in_formula = false,
            b"tc" | b"table-cell" | b"covered-table-cell" | b"c" => {
                if self.in_cell && self.text.len() == self.cell.start && !self.formula.is_empty() {
                    self.text.push_str(&format!("={}", self.formula));
                }
                self.in_cell = false;
                self.text.push('\t');
                self.table_cells = self.table_cells.saturating_sub(1);
                self.column += 1;
                self.cell.finish(&mut self.text);
            }
            b"tr" | b"table-row" | b"row" => {
                // Hundreds of empty cells follow the last one of a row, and many empty rows the last one of a sheet.
                let start = text::prefix(&self.text, self.row.start).len();
                let end = self.text[start..].trim_end_matches('\t').len();
                self.text.truncate(start + end);
                self.text.push('\n');
                self.column = 0;
                if end == 0 {
                    self.row.count = 1;
                }
                self.row.finish(&mut self.text);
            }
            _ => self.end_term(name),
        }
    }

    /// Ends a part of a formula, if this is one. A single number or word needs no brackets.
    fn end_term(&mut self, name: &[u8]) {
        let Some(first) = opening(name) else { return };
        let bracket = self.text.rfind('(').filter(|at| {
            let term = &self.text[at + 1..];
            term.chars().all(char::is_numeric) || term.chars().all(char::is_alphabetic)
        });
        match bracket {
            _ if self.text.ends_with(first) => self.text.truncate(self.text.len() - first.len()),
            Some(at) if name != b"d" => self.text.replace_range(at..=at, ""),
            _ => self.text.push(')'),
        }
    }
}

/// Returns the sign and the bracket before a part of a formula; `None` if this is no such part.
fn opening(name: &[u8]) -> Option<&'static str> {
    match name {
        b"d" | b"num" => Some("("),
        b"den" => Some("/("),
        b"sup" => Some("^("),
        b"sub" => Some("_("),
        b"rad" => Some("√("),
        _ => None,
    }
}

/// Returns the shared text to which a cell refers by its index.
fn shared_text<'a>(shared: &[&'a str], index: &str) -> &'a str {
    let index = index.parse::<usize>().ok();
    index.and_then(|index| shared.get(index).copied()).unwrap_or("[not read]")
}

/// Returns the index of a cell's column, such as 27 for `AB12`; 0 if the cell has no reference.
fn column_of(cell: &StartTag) -> usize {
    let place = attribute(cell, b"r").unwrap_or_default();
    let letters = place.bytes().take_while(u8::is_ascii_uppercase);
    let number = letters.fold(0_usize, |sum, letter| {
        sum.saturating_mul(26).saturating_add(usize::from(letter - b'A') + 1)
    });
    number.saturating_sub(1).min(MAX_COLUMNS)
}
