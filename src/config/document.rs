//! The text of a TOML file in which single values change. Every other byte stays as it is, comments and the
//! order of the entries included. Does no I/O.
//!
//! A change is tried in the places where it reads best, and made in the first in which the changed text has
//! exactly the wanted content.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A parsed file with its text.
pub(super) struct TomlDocument<'a> {
    text: &'a str,
    root: DeTable<'a>,
    content: toml::Table,
}

/// Why a value cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnchangeableValue {
    /// It has a header of its own, or entries that begin with its key.
    IsSection,
    /// No place in the text would give it the wanted value and leave all others as they are.
    NoPlace,
}

/// The lines of one table below its header; those before the first header belong to the root.
struct Section {
    path: Vec<String>,
    body: Range<usize>,
}

/// The parts of a dotted key, of which some may be quoted; `None` if it is not one.
pub(super) fn parse_key(text: &str) -> Option<Vec<String>> {
    let line = format!("{text} = 0");
    let root = DeTable::parse(&line).ok()?.into_inner();
    let (path, value) = only_entry(&root)?;
    // Otherwise the text has a value or a comment of its own.
    (value.span().start == text.len() + 3).then_some(path)
}

/// A key as it is written in the file.
pub(super) fn key_text(path: &[impl AsRef<str>]) -> String {
    let is_bare = |it: char| it.is_ascii_alphanumeric() || ['_', '-'].contains(&it);
    let part = |it: &str| {
        if !it.is_empty() && it.chars().all(is_bare) { it.to_owned() } else { string_text(it) }
    };
    path.iter().map(|it| part(it.as_ref())).collect::<Vec<_>>().join(".")
}

/// A text as it is written in the file.
pub(super) fn string_text(text: &str) -> String {
    // TOML knows the escapes of JSON, and needs one more.
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// The path to the only value of a table, and that value.
fn only_entry<'t, 'a>(table: &'t DeTable<'a>) -> Option<(Vec<String>, &'t Spanned<DeValue<'a>>)> {
    let mut path = Vec::new();
    let mut at = table;
    loop {
        let (key, value) = at.iter().next().filter(|_| at.len() == 1)?;
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) if !inner.is_empty() => at = inner,
            _ => return Some((path, value)),
        }
    }
}

impl<'a> TomlDocument<'a> {
    pub(super) fn parse(text: &'a str) -> Result<TomlDocument<'a>, toml::de::Error> {
        let root = DeTable::parse(text)?.into_inner();
        Ok(TomlDocument { text, root, content: toml::from_str(text)? })
    }

    /// The text of a value; `None` if it is not set or has no text of its own.
    pub(super) fn value(&self, path: &[String]) -> Option<&'a str> {
        let (_, value) = self.find(path)?;
        if self.is_section(value) { None } else { self.text.get(value.span()) }
    }

    /// Whether there is a value or a section.
    pub(super) fn contains(&self, path: &[String]) -> bool {
        self.find(path).is_some()
    }

    /// The number of the line with the key, from 1.
    pub(super) fn line(&self, path: &[String]) -> Option<usize> {
        let (key, _) = self.find(path)?;
        Some(self.text.get(..key.start)?.matches('\n').count() + 1)
    }

    /// The text with this value, which is TOML. Adds the entry and its section if they are missing.
    pub(super) fn with_value(
        &self,
        path: &[String],
        value: &str,
    ) -> Result<String, UnchangeableValue> {
        let parsed: toml::Table =
            toml::from_str(&format!("a = {value}")).map_err(|_| UnchangeableValue::NoPlace)?;
        let mut wanted = self.content.clone();
        insert(&mut wanted, path, parsed["a"].clone()).ok_or(UnchangeableValue::NoPlace)?;
        let is_right =
            |text: &String| toml::from_str::<toml::Table>(text).is_ok_and(|it| it == wanted);
        if let Some((_, old)) = self.find(path) {
            if self.is_section(old) {
                return Err(UnchangeableValue::IsSection);
            }
            let changed = self.replaced(old.span(), value);
            return Some(changed).filter(is_right).ok_or(UnchangeableValue::NoPlace);
        }
        self.with_new_entry(path, value, is_right).ok_or(UnchangeableValue::NoPlace)
    }

    /// The text without this entry.
    pub(super) fn without(&self, path: &[String]) -> Result<String, UnchangeableValue> {
        let (key, value) = self.find(path).ok_or(UnchangeableValue::NoPlace)?;
        if self.is_section(value) {
            return Err(UnchangeableValue::IsSection);
        }
        let mut wanted = self.content.clone();
        remove(&mut wanted, path);
        prune(&mut wanted);
        let is_right = |text: &String| {
            toml::from_str(text).is_ok_and(|mut it: toml::Table| {
                prune(&mut it);
                it == wanted
            })
        };
        let entry = match self.inline_table(path) {
            Some((_, table)) => self.inline_entry(&table.span(), &key, &value.span()),
            None => self.lines_of(&(key.start..value.span().end)),
        };
        let removed = without_empty_tables(self.replaced(entry, ""), path);
        Some(removed).filter(is_right).ok_or(UnchangeableValue::NoPlace)
    }

    /// Where the header of a table is, if the table has become empty.
    fn empty_header(&self, path: &[String]) -> Option<Range<usize>> {
        let (_, value) = self.find(path)?;
        let section = self.sections().into_iter().find(|section| section.path == path)?;
        let is_empty = value.get_ref().as_table().is_some_and(DeTable::is_empty);
        let header = section.body.start.saturating_sub(1);
        is_empty.then(|| self.lines_of(&(header..header)))
    }

    fn with_new_entry(
        &self,
        path: &[String],
        value: &str,
        is_right: impl Fn(&String) -> bool,
    ) -> Option<String> {
        if let Some((depth, table)) = self.inline_table(path) {
            let changed = self.inserted_inline(table, &key_text(&path[depth..]), value);
            return Some(changed).filter(is_right);
        }
        let sections = self.sections();
        let in_section = |depth: usize| {
            let section = sections.iter().find(|it| it.path == path[..depth])?;
            let entry = (key_text(&path[depth..]), value);
            Some(self.inserted(section, &entry.0, entry.1)).filter(&is_right)
        };
        let parent = path.len() - 1;
        in_section(parent)
            .or_else(|| {
                Some(self.appended(&path[..parent], &path[parent..], value)).filter(&is_right)
            })
            .or_else(|| (0..parent).rev().find_map(in_section))
    }

    fn find(&self, path: &[String]) -> Option<(Range<usize>, &Spanned<DeValue<'a>>)> {
        let (last, parents) = path.split_last()?;
        let mut table = &self.root;
        for key in parents {
            table = table.get(key.as_str())?.get_ref().as_table()?;
        }
        let (key, value) = table.get_key_value(last.as_str())?;
        Some((key.span(), value))
    }

    /// The outermost inline table on the way to this path, with its depth.
    fn inline_table(&self, path: &[String]) -> Option<(usize, &Spanned<DeValue<'a>>)> {
        (1..path.len()).find_map(|depth| {
            let (_, value) = self.find(&path[..depth])?;
            (value.get_ref().is_table() && !self.is_section(value)).then_some((depth, value))
        })
    }

    /// Whether this is a table or an array of tables that is not written between brackets.
    fn is_section(&self, value: &Spanned<DeValue<'a>>) -> bool {
        let begins = |value: &Spanned<DeValue<'a>>| {
            self.text.get(value.span()).is_some_and(|it| it.starts_with('{'))
        };
        match value.get_ref() {
            DeValue::Table(_) => !begins(value),
            DeValue::Array(all) => {
                all.first().is_some_and(|it| it.get_ref().is_table() && !begins(it))
            }
            _ => false,
        }
    }

    /// Where the values of a table are written.
    fn value_spans(&self, table: &DeTable<'a>, found: &mut Vec<Range<usize>>) {
        for value in table.values() {
            match value.get_ref() {
                DeValue::Table(inner) if self.is_section(value) => self.value_spans(inner, found),
                DeValue::Array(all) if self.is_section(value) => {
                    let inner = all.iter().filter_map(|it| it.get_ref().as_table());
                    inner.for_each(|it| self.value_spans(it, found));
                }
                _ => found.push(value.span()),
            }
        }
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections = vec![Section { path: Vec::new(), body: self.start()..self.text.len() }];
        for line in self.lines(self.start()..self.text.len()) {
            let text = self.text[line.clone()].trim();
            if !text.starts_with('[') || self.is_inside_value(line.start) {
                continue;
            }
            if let Some(last) = sections.last_mut() {
                last.body.end = line.start;
            }
            let header = DeTable::parse(text).ok();
            let entry = header.as_ref().and_then(|it| only_entry(it.get_ref()));
            // The tables of an array are not looked for.
            let entry = entry.filter(|it| it.1.get_ref().is_table());
            let path = entry.map_or_else(|| vec![text.to_owned()], |it| it.0);
            sections.push(Section { path, body: line.end..self.text.len() });
        }
        sections
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

    /// Whether a value begins before this position and ends after it.
    fn is_inside_value(&self, position: usize) -> bool {
        let mut spans = Vec::new();
        self.value_spans(&self.root, &mut spans);
        spans.iter().any(|it| it.start < position && position < it.end)
    }

    fn start(&self) -> usize {
        if self.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 }
    }

    fn line_end(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }

    fn replaced(&self, range: Range<usize>, with: &str) -> String {
        let mut changed = self.text.to_owned();
        changed.replace_range(range, with);
        changed
    }

    /// Adds an entry below the commented-out entry of the same key, else below the last entry of the section,
    /// else at its beginning.
    fn inserted(&self, section: &Section, key: &str, value: &str) -> String {
        let end = self.line_end();
        let is_commented = |line: &str| {
            let rest = line.strip_prefix('#').map(|it| it.trim_start_matches(['#', ' ']));
            let rest = rest.and_then(|it| it.strip_prefix(key));
            rest.is_some_and(|it| it.trim_start().starts_with('='))
        };
        let (mut last, mut commented) = (None, None);
        for line in self.lines(section.body.clone()) {
            let text = self.text[line.clone()].trim();
            if self.is_inside_value(line.start) || !text.is_empty() && !text.starts_with('#') {
                last = Some(line.end);
            } else if is_commented(text) {
                commented = Some(line.end);
            }
        }
        let at = commented.or(last).unwrap_or_else(|| self.first_place(section));
        let before = if at > self.start() && !self.text[..at].ends_with('\n') { end } else { "" };
        let is_apart =
            last.is_none() && section.path.is_empty() && self.text[at..].starts_with('[');
        let after = if is_apart { end } else { "" };
        self.replaced(at..at, &format!("{before}{key} = {value}{end}{after}"))
    }

    /// Where the first entry of a section goes: below its header, or below the comment at the beginning of
    /// the file.
    fn first_place(&self, section: &Section) -> usize {
        if !section.path.is_empty() {
            return section.body.start;
        }
        let is_comment = |line: &Range<usize>| self.text[line.clone()].starts_with('#');
        let comment = self.lines(section.body.clone()).take_while(is_comment).last();
        let Some(comment) = comment else { return section.body.start };
        // Directly above a header, it is about that.
        if self.text[comment.end..].starts_with('[') { section.body.start } else { comment.end }
    }

    /// Adds a section at the end of the file.
    fn appended(&self, section: &[String], path: &[String], value: &str) -> String {
        let end = self.line_end();
        let text = self.text;
        let before = match () {
            () if text.len() == self.start() => String::new(),
            () if text.ends_with('\n') => end.to_owned(),
            () => end.repeat(2),
        };
        let (header, key) = (key_text(section), key_text(path));
        format!("{text}{before}[{header}]{end}{key} = {value}{end}")
    }

    fn inserted_inline(&self, table: &Spanned<DeValue<'a>>, key: &str, value: &str) -> String {
        let mut spans = Vec::new();
        if let DeValue::Table(inner) = table.get_ref() {
            self.value_spans(inner, &mut spans);
        }
        match spans.iter().map(|it| it.end).max() {
            Some(at) => self.replaced(at..at, &format!(", {key} = {value}")),
            None => self.replaced(table.span(), &format!("{{ {key} = {value} }}")),
        }
    }

    /// The text of an entry of an inline table with the comma after it, or before it if it is the last.
    fn inline_entry(
        &self,
        table: &Range<usize>,
        key: &Range<usize>,
        value: &Range<usize>,
    ) -> Range<usize> {
        let before = &self.text[table.start..key.start];
        let start = table.start + before.rfind(['{', ',']).unwrap_or_default();
        let after = &self.text[value.end..table.end];
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
        let start = self.text[..range.start].rfind('\n').map_or(self.start(), |it| it + 1);
        let end =
            self.text[range.end..].find('\n').map_or(self.text.len(), |it| range.end + it + 1);
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

fn insert(table: &mut toml::Table, path: &[String], value: toml::Value) -> Option<()> {
    let (last, parents) = path.split_last()?;
    let mut at = table;
    for key in parents {
        let empty = || toml::Value::Table(toml::Table::new());
        at = at.entry(key).or_insert_with(empty).as_table_mut()?;
    }
    at.insert(last.clone(), value);
    Some(())
}

fn remove(table: &mut toml::Table, path: &[String]) {
    match path {
        [] => {}
        [last] => drop(table.remove(last)),
        [first, rest @ ..] => {
            if let Some(inner) = table.get_mut(first).and_then(toml::Value::as_table_mut) {
                remove(inner, rest);
            }
        }
    }
}

/// Removes empty tables: a table exists without entries only if it has a header.
fn prune(table: &mut toml::Table) {
    table.iter_mut().filter_map(|it| it.1.as_table_mut()).for_each(prune);
    table.retain(|_, it| it.as_table().is_none_or(|it| !it.is_empty()));
}

#[cfg(test)]
mod tests;
