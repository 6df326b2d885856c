//! The text of a TOML file in which single values change. Every other byte stays as it is, comments and the
//! order of the entries included. Does no I/O.

use std::ops::Range;

use toml_edit::{Document, InlineTable, Item, Key, Table, TomlError, Value};

/// A parsed file with its text.
pub(crate) struct TomlDocument<'a> {
    text: &'a str,
    document: Document<&'a str>,
}

/// The error for a key that has a header of its own, or entries that begin with it.
const IS_SECTION: &str =
    "is a section of the file. Name one of its settings, or use `turnwright config edit`";
/// The error if no place in the text would give the key the wanted value.
const NO_PLACE: &str = "cannot be changed here. Use `turnwright config edit`";

/// The parts of a dotted key, of which some may be quoted; `None` if it is not one.
pub(crate) fn parse_key(text: &str) -> Option<Vec<String>> {
    let keys = Key::parse(text).ok()?;
    Some(keys.iter().map(|key| key.get().to_owned()).collect())
}

/// A key as it is written in the file.
pub(crate) fn key_text(path: &[impl AsRef<str>]) -> String {
    let keys = path.iter().map(|key| Key::new(key.as_ref()).display_repr().into_owned());
    keys.collect::<Vec<_>>().join(".")
}

/// A text as it is written in a TOML file.
pub fn string_text(text: &str) -> String {
    // TOML knows the escapes of JSON, and needs one more.
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// The line ending of a text.
pub(crate) fn line_end(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Returns where a value is written; `None` for a section and for the beginning of dotted keys.
fn value_span(item: &Item) -> Option<Range<usize>> {
    let value = item.as_value()?;
    if value.as_inline_table().is_some_and(InlineTable::is_dotted) { None } else { value.span() }
}

/// Adds the positions of the headers below a table.
fn add_headers(table: &Table, found: &mut Vec<usize>) {
    for (_, item) in table {
        let inner: Vec<&Table> = match item {
            Item::Table(one) => vec![one],
            Item::ArrayOfTables(all) => all.iter().collect(),
            _ => continue,
        };
        for table in inner {
            let header = table.span().filter(|_| !table.is_implicit());
            found.extend(header.map(|span| span.start));
            add_headers(table, found);
        }
    }
}

impl<'a> TomlDocument<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<TomlDocument<'a>, TomlError> {
        Ok(TomlDocument { text, document: Document::parse(text)? })
    }

    /// The text of a value; `None` if it is not set or has no text of its own.
    pub(crate) fn value(&self, path: &[String]) -> Option<&'a str> {
        self.text.get(value_span(self.find(path)?.1)?)
    }

    /// Returns true if there is a value or a section.
    pub(crate) fn contains(&self, path: &[String]) -> bool {
        self.find(path).is_some()
    }

    /// The number of the line with the key, from 1.
    pub(crate) fn line(&self, path: &[String]) -> Option<usize> {
        let key = self.find(path)?.0.span()?;
        Some(self.text.get(..key.start)?.matches('\n').count() + 1)
    }

    /// The text with this value, which is TOML. Adds the entry and its section if they are missing.
    ///
    /// # Errors
    /// Why that is impossible, as a phrase that follows the key.
    pub(crate) fn with_value(&self, path: &[String], value: &str) -> Result<String, &'static str> {
        value.parse::<Value>().map_err(|_| NO_PLACE)?;
        let changed = match self.find(path) {
            Some((_, item)) => {
                let span = value_span(item).ok_or(IS_SECTION)?;
                self.replaced(span, value)
            }
            None => self.with_new_entry(path, value).ok_or(NO_PLACE)?,
        };
        let is_right =
            TomlDocument::parse(&changed).is_ok_and(|new| new.value(path) == Some(value));
        if is_right { Ok(changed) } else { Err(NO_PLACE) }
    }

    /// The text without this entry. Fails like [`TomlDocument::with_value`].
    pub(crate) fn without(&self, path: &[String]) -> Result<String, &'static str> {
        let (key, item) = self.find(path).ok_or(NO_PLACE)?;
        let value = value_span(item).ok_or(IS_SECTION)?;
        let key = key.span().ok_or(NO_PLACE)?;
        let is_inline = (1..path.len()).any(|depth| {
            self.find(&path[..depth]).is_some_and(|(_, parent)| parent.is_inline_table())
        });
        let entry = if is_inline {
            self.inline_entry(&key, &value)
        } else {
            self.lines_of(&(key.start..value.end))
        };
        let removed = without_empty_tables(self.replaced(entry, ""), path);
        let is_right = TomlDocument::parse(&removed).is_ok_and(|new| !new.contains(path));
        if is_right { Ok(removed) } else { Err(NO_PLACE) }
    }

    /// Where the header of a table is, if the table has become empty.
    fn empty_header(&self, path: &[String]) -> Option<Range<usize>> {
        let table = self.find(path)?.1.as_table().filter(|table| table.is_empty())?;
        Some(self.lines_of(&table.span()?))
    }

    /// Adds an entry to its section, which is appended if it is missing. The keys of a section that others write
    /// as dotted keys are written so, too.
    fn with_new_entry(&self, path: &[String], value: &str) -> Option<String> {
        let parent = path.len().checked_sub(1)?;
        let mut table = self.document.as_table();
        let mut section = table;
        let mut section_depth = 0;
        for (depth, key) in path[..parent].iter().enumerate() {
            match table.get(key) {
                None => break,
                Some(Item::Table(inner)) => table = inner,
                Some(Item::Value(Value::InlineTable(inner))) => {
                    return self.inserted_inline(inner, &key_text(&path[depth + 1..]), value);
                }
                Some(_) => return None,
            }
            if !table.is_implicit() {
                section = table;
                section_depth = depth + 1;
            }
        }
        if section_depth == parent || table.is_dotted() {
            return Some(self.inserted(section, &key_text(&path[section_depth..]), value));
        }
        Some(self.appended(&path[..parent], &path[parent..], value))
    }

    fn find(&self, path: &[String]) -> Option<(&Key, &Item)> {
        let (last, parents) = path.split_last()?;
        let root = self.document.as_item();
        let parent = parents.iter().try_fold(root, |item, key| item.get(key.as_str()))?;
        parent.as_table_like()?.get_key_value(last)
    }

    /// The lines below the header of a section; those before the first header belong to the root.
    fn body(&self, section: &Table) -> Range<usize> {
        let root = self.document.as_table();
        let header = section.span().filter(|_| !std::ptr::eq(section, root));
        let start = header.map_or(self.start(), |span| self.lines_of(&span).end);
        let mut headers = Vec::new();
        add_headers(root, &mut headers);
        let next = headers.into_iter().filter(|header| *header >= start).min();
        let end = next.map_or(self.text.len(), |header| self.lines_of(&(header..header)).start);
        start..end
    }

    /// The lines of a range with their ends.
    fn lines(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut at = range.start;
        self.text[range].split_inclusive('\n').map(move |line| {
            let start = at;
            at += line.len();
            start..at
        })
    }

    fn start(&self) -> usize {
        if self.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 }
    }

    fn replaced(&self, range: Range<usize>, with: &str) -> String {
        let mut changed = self.text.to_owned();
        changed.replace_range(range, with);
        changed
    }

    /// Adds an entry below the commented-out entry of the same key, else below the last entry of the section,
    /// else at its beginning.
    fn inserted(&self, section: &Table, key: &str, value: &str) -> String {
        let end = line_end(self.text);
        let body = self.body(section);
        let values: Vec<_> =
            section.get_values().into_iter().filter_map(|(_, value)| value.span()).collect();
        let is_commented = |line: &Range<usize>| {
            let is_inside_value =
                values.iter().any(|value| value.start < line.start && line.start < value.end);
            let comment = self.text[line.clone()].trim().strip_prefix('#');
            let rest =
                comment.and_then(|rest| rest.trim_start_matches(['#', ' ']).strip_prefix(key));
            !is_inside_value && rest.is_some_and(|rest| rest.trim_start().starts_with('='))
        };
        let commented = self.lines(body.clone()).filter(is_commented).last().map(|line| line.end);
        let last = values.iter().map(|value| self.lines_of(value).end).max();
        let at = commented.or(last).unwrap_or_else(|| self.first_place(&body));
        let before = if at > self.start() && !self.text[..at].ends_with('\n') { end } else { "" };
        let is_apart =
            last.is_none() && body.start == self.start() && self.text[at..].starts_with('[');
        let after = if is_apart { end } else { "" };
        self.replaced(at..at, &format!("{before}{key} = {value}{end}{after}"))
    }

    /// Where the first entry of a section goes: below its header, or below the comment at the beginning of
    /// the file.
    fn first_place(&self, body: &Range<usize>) -> usize {
        if body.start != self.start() {
            return body.start;
        }
        let comment = self
            .lines(body.clone())
            .take_while(|line| self.text[line.clone()].starts_with('#'))
            .last();
        let Some(comment) = comment else { return body.start };
        // Directly above a header, it is about that.
        if self.text[comment.end..].starts_with('[') { body.start } else { comment.end }
    }

    /// Adds a section at the end of the file.
    fn appended(&self, section: &[String], path: &[String], value: &str) -> String {
        let text = self.text;
        let end = line_end(text);
        let before = match () {
            () if text.len() == self.start() => String::new(),
            () if text.ends_with('\n') => end.to_owned(),
            () => end.repeat(2),
        };
        let header = key_text(section);
        let key = key_text(path);
        format!("{text}{before}[{header}]{end}{key} = {value}{end}")
    }

    fn inserted_inline(&self, table: &InlineTable, key: &str, value: &str) -> Option<String> {
        let values = table.get_values().into_iter().filter_map(|(_, value)| value.span());
        Some(match values.map(|span| span.end).max() {
            Some(at) => self.replaced(at..at, &format!(", {key} = {value}")),
            None => self.replaced(table.span()?, &format!("{{ {key} = {value} }}")),
        })
    }

    /// The text of an entry of an inline table with the comma after it, or before it if it is the last.
    fn inline_entry(&self, key: &Range<usize>, value: &Range<usize>) -> Range<usize> {
        let start = self.text[..key.start].rfind(['{', ',']).unwrap_or_default();
        let after = &self.text[value.end..];
        let space = after.len() - after.trim_start().len();
        let is_last = !after.trim_start().starts_with(',');
        match is_last && self.text[start..].starts_with(',') {
            true => start..value.end,
            false if is_last => start + 1..value.end,
            false => start + 1..value.end + space + 1,
        }
    }

    /// The whole lines that a range touches.
    fn lines_of(&self, range: &Range<usize>) -> Range<usize> {
        let start =
            self.text[..range.start].rfind('\n').map_or(self.start(), |newline| newline + 1);
        let end = self.text[range.end..]
            .find('\n')
            .map_or(self.text.len(), |newline| range.end + newline + 1);
        start..end
    }
}

/// Removes the headers of the tables on the way to a removed entry that have become empty, if a table
/// without entries would be wrong there: a provider or a server needs some.
fn without_empty_tables(mut text: String, path: &[String]) -> String {
    let depths =
        if ["providers", "mcp"].contains(&path[0].as_str()) { 1..path.len() } else { 0..0 };
    for depth in depths.rev() {
        let document = TomlDocument::parse(&text).ok();
        if let Some(header) = document.and_then(|document| document.empty_header(&path[..depth])) {
            text.replace_range(header, "");
        }
    }
    text
}

#[cfg(test)]
mod tests;
