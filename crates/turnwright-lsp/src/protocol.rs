//! Reads the parts of the protocol that are used: places in a text, errors, and edits of files. Depending on the
//! server, columns are counted in bytes, UTF-16 code units or characters.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use turnwright_types::text;

/// The most errors of a file that are kept.
pub(crate) const MAX_ERRORS: usize = 200;
/// The most characters of a message.
const MAX_MESSAGE_CHARS: usize = 400;
/// The most files that one rename may change.
const MAX_FILES: usize = 200;
/// The most bytes besides the names that an edit of a rename may insert or remove, as in `x: &mut Self`.
const MAX_AROUND_NAMES: usize = 64;
/// The number of the severity "error".
const ERROR_SEVERITY: u64 = 1;
/// The codes of diagnostics, or parts of their messages, by which rust-analyzer, clangd, gopls and jdtls say that
/// they do not know how a file is built. The other errors that they find in it mean little.
const UNCHECKED: &str = "unlinked-file|pp_file_not_found|No packages found for open file|which is \
                         not included in your workspace|non-project file, only syntax errors are \
                         reported";
/// Parts of the TypeScript compiler's error for a module that it knows only with a plugin.
const PLUGIN_MODULES: [&str; 3] = [".astro' or its ", ".svelte' or its ", ".vue' or its "];

/// The protocol's numbers for the events of files.
pub(crate) const CREATED: u8 = 1;
pub(crate) const CHANGED: u8 = 2;
pub(crate) const DELETED: u8 = 3;

/// A position between two characters, with line and column counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) character: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Range {
    pub(crate) start: Position,
    pub(crate) end: Position,
}

/// The unit of a server's columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    /// The default of the protocol, for servers that name no encoding.
    #[default]
    #[serde(rename = "utf-16")]
    Utf16,
    #[serde(rename = "utf-32")]
    Utf32,
}

impl Encoding {
    fn units(self, char: char) -> usize {
        match self {
            Encoding::Utf8 => char.len_utf8(),
            Encoding::Utf16 => char.len_utf16(),
            Encoding::Utf32 => 1,
        }
    }

    /// Returns the position of a byte offset in the text.
    pub(crate) fn position(self, text: &str, byte: usize) -> Position {
        let before = text::prefix(text, byte);
        let line = before.matches('\n').count();
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let units: usize = before[start..].chars().map(|char| self.units(char)).sum();
        Position { line: saturating_u32(line), character: saturating_u32(units) }
    }

    /// Returns the byte offset of a position. A column beyond the end of the line means that end; `None` if there is no
    /// such line.
    pub(crate) fn byte(self, text: &str, position: Position) -> Option<usize> {
        let mut start = 0;
        for _ in 0..position.line {
            start += text[start..].find('\n')? + 1;
        }
        let rest = text[start..].split('\n').next().unwrap_or_default();
        let line = rest.strip_suffix('\r').unwrap_or(rest);
        let mut units = 0;
        for (at, char) in line.char_indices() {
            if units >= position.character as usize {
                return Some(start + at);
            }
            units += self.units(char);
        }
        Some(start + line.len())
    }
}

/// Converts a number, or returns the largest `u32` if it does not fit.
fn saturating_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// An error that a server has found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) range: Range,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Problem {
    /// Returns true if the server says that it cannot check the file.
    pub(crate) fn says_unchecked(&self) -> bool {
        UNCHECKED.split('|').any(|part| self.code == part || self.message.contains(part))
    }
}

/// Returns the errors among diagnostics, sorted and without duplicates. Malformed entries and lower severities are left
/// out, unless they say that the file cannot be checked. `None` if there is no list of diagnostics, because then the
/// errors are not known.
pub(crate) fn errors_in(diagnostics: &Value) -> Option<Vec<Problem>> {
    let all = diagnostics.as_array()?.iter();
    let found: BTreeSet<_> = all.filter_map(error).take(MAX_ERRORS).collect();
    Some(found.into_iter().collect())
}

/// Does the same for diagnostics in the form of the TypeScript compiler, which counts from 1.
pub(crate) fn compiler_errors(diagnostics: &Value) -> Option<Vec<Problem>> {
    let position = |at: &Value| {
        let number = |name| at[name].as_u64().unwrap_or(1).saturating_sub(1);
        json!({ "line": number("line"), "character": number("offset") })
    };
    let all = diagnostics.as_array()?.iter().filter(|found| found["category"] == "error");
    let converted = all.map(|found| {
        let range = json!({ "start": position(&found["start"]), "end": position(&found["end"]) });
        json!({ "range": range, "code": found["code"], "message": found["text"] })
    });
    errors_in(&converted.collect())
}

fn error(diagnostic: &Value) -> Option<Problem> {
    let range = Range::deserialize(&diagnostic["range"]).ok()?;
    let said = &diagnostic["message"];
    let whole = said.as_str().or_else(|| said["value"].as_str())?;
    let code = match &diagnostic["code"] {
        Value::String(code) => text::one_line(text::first_chars(code, MAX_MESSAGE_CHARS)),
        Value::Number(code) => code.to_string(),
        _ => String::new(),
    };
    let message = text::one_line(text::first_chars(whole, MAX_MESSAGE_CHARS));
    let found = Problem { range, code, message };
    let is_error = diagnostic["severity"].as_u64().unwrap_or(ERROR_SEVERITY) == ERROR_SEVERITY
        && !PLUGIN_MODULES.iter().any(|part| found.message.contains(part));
    (is_error || found.says_unchecked()).then_some(found)
}

/// Returns the URI of a file.
pub(crate) fn uri(path: &Path) -> String {
    Url::from_file_path(path).map_or_else(|()| String::new(), String::from)
}

/// Returns the path of a file URI, however the server spells it; `None` if it is not a file URI.
pub(crate) fn path_of(uri: &str) -> Option<PathBuf> {
    Url::parse(uri).ok().filter(|address| address.scheme() == "file")?.to_file_path().ok()
}

/// An edit that renames a symbol. Servers send it in one of two forms.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkspaceEdit {
    changes: Option<BTreeMap<String, Vec<TextEdit>>>,
    document_changes: Option<Vec<DocumentEdit>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DocumentEdit {
    text_document: TextDocument,
    edits: Vec<TextEdit>,
}

#[derive(Deserialize)]
struct TextDocument {
    uri: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TextEdit {
    range: Range,
    new_text: String,
}

/// The edits of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEdits {
    pub path: PathBuf,
    edits: Vec<TextEdit>,
    encoding: Encoding,
    /// The name that the edits replace.
    name: String,
}

impl FileEdits {
    /// Returns true if every edit inserts the new name or a part of it and little else, and replaces no more than that.
    pub(crate) fn only_names(&self, new_name: &str) -> bool {
        let most = self.name.len() + new_name.len() + MAX_AROUND_NAMES;
        self.edits.iter().all(|TextEdit { range: Range { start, end }, new_text }| {
            let is_name = new_text.contains(new_name) || new_name.contains(new_text.as_str());
            let replaced = end.character.saturating_sub(start.character) as usize;
            let is_short = new_text.len().max(replaced) <= most && start.line == end.line;
            is_name && is_short && !new_text.contains(['\n', '\r'])
        })
    }

    /// Returns the text after the edits; `None` if they do not fit the text, for example because the text has changed
    /// and the name is no longer where the server saw it.
    pub fn apply(&self, text: &str) -> Option<String> {
        let mut after = String::with_capacity(text.len());
        let mut at = 0;
        for TextEdit { range, new_text } in &self.edits {
            let start = self.encoding.byte(text, range.start)?;
            let end = self.encoding.byte(text, range.end)?;
            if start < at || end < start {
                return None;
            }
            let old = &text[start..end];
            if !old.is_empty() && !old.contains(&self.name) {
                return None;
            }
            after.push_str(&text[at..start]);
            after.push_str(new_text);
            at = end;
        }
        after.push_str(&text[at..]);
        Some(after)
    }
}

/// Reads the edits of a `WorkspaceEdit` that renames a symbol, sorted by path.
///
/// # Errors
/// Fails if the edit does more than change existing files, changes too many, or is malformed.
pub(crate) fn file_edits(
    edit: &Value,
    encoding: Encoding,
    name: &str,
) -> Result<Vec<FileEdits>, String> {
    let edit = Option::<WorkspaceEdit>::deserialize(edit)
        .map_err(|error| format!("the server would do more than edit files: {error}"))?
        .unwrap_or_default();
    let documents = edit.document_changes.into_iter().flatten();
    let versioned = documents.map(|change| (change.text_document.uri, change.edits));
    let mut files: BTreeMap<PathBuf, Vec<TextEdit>> = BTreeMap::new();
    for (uri, edits) in edit.changes.into_iter().flatten().chain(versioned) {
        let path = path_of(&uri).ok_or("the server names something that is no file")?;
        files.entry(path).or_default().extend(edits);
    }
    files.retain(|_, edits| !edits.is_empty());
    if files.len() > MAX_FILES {
        return Err(format!("the server would change {} files", files.len()));
    }
    let sorted = files.into_iter().map(|(path, mut edits)| {
        // The sort is stable, so insertions at the same place keep their order.
        edits.sort_by_key(|edit| edit.range);
        edits.dedup();
        FileEdits { path, edits, encoding, name: name.to_owned() }
    });
    Ok(sorted.collect())
}

/// A place in the answer to a request for definitions or references: a `Location` or a `LocationLink`.
#[derive(Deserialize)]
struct Place {
    #[serde(alias = "targetUri")]
    uri: String,
    #[serde(alias = "targetSelectionRange")]
    range: Range,
}

/// Returns the places in such an answer: files and lines, counted from 1.
pub(crate) fn places(answer: &Value) -> Vec<(PathBuf, u32)> {
    let all = answer.as_array().map_or(std::slice::from_ref(answer), Vec::as_slice);
    let found = all.iter().filter_map(|place| {
        let Place { uri, range } = Place::deserialize(place).ok()?;
        Some((path_of(&uri)?, range.start.line.saturating_add(1)))
    });
    found.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "a\u{e4}\u{1f600}b\r\nsecond\n";

    #[test]
    fn a_position_is_the_same_place_in_each_encoding() {
        for (encoding, columns) in [
            (Encoding::Utf8, [0, 1, 3, 7, 8]),
            (Encoding::Utf16, [0, 1, 2, 4, 5]),
            (Encoding::Utf32, [0, 1, 2, 3, 4]),
        ] {
            for (byte, character) in [0, 1, 3, 7, 8].into_iter().zip(columns) {
                let position = Position { line: 0, character };
                assert_eq!(encoding.position(TEXT, byte), position, "{encoding:?}");
                assert_eq!(encoding.byte(TEXT, position), Some(byte), "{encoding:?}");
            }
            let place = |line, character| encoding.byte(TEXT, Position { line, character });
            assert_eq!(place(0, 99), Some(8));
            assert_eq!((place(1, 3), place(2, 0), place(3, 0)), (Some(13), Some(17), None));
            assert_eq!(encoding.position(TEXT, 13), Position { line: 1, character: 3 });
        }
    }

    fn range(line: u32, from: u32, to: u32) -> Value {
        json!({
            "start": { "line": line, "character": from },
            "end": { "line": line, "character": to }
        })
    }

    #[test]
    fn only_errors_are_kept_and_what_is_malformed_is_left_out() {
        let found = errors_in(&json!([
            { "range": range(2, 0, 1), "severity": 1, "code": 2304, "message": "no\n  name" },
            { "range": range(1, 0, 1), "code": "E0308\n", "message": { "kind": "x", "value": "m" } },
            { "range": range(1, 0, 1), "code": "E0308", "message": "m" },
            { "range": range(1, 0, 1), "severity": 2, "message": "a warning" },
            { "range": 7, "message": "m" },
            { "range": range(1, 0, 1) },
            "x"
        ]))
        .unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|problem| (problem.range.start.line, problem.code.as_str(), &*problem.message))
            .collect();
        assert_eq!(shown, [(1, "E0308", "m"), (2, "2304", "no name")]);
        let flood: Value = (0..1_000)
            .map(|number| json!({ "range": range(number, 0, 1), "message": "m" }))
            .collect();
        assert_eq!(errors_in(&flood).unwrap().len(), MAX_ERRORS);
        assert_eq!(errors_in(&json!([])), Some(Vec::new()));
        assert_eq!(errors_in(&Value::Null), None);
    }

    #[test]
    fn a_component_that_the_compiler_does_not_know_is_no_error() {
        for (module, count) in [("./App.vue", 0), ("@/a/B.svelte", 0), ("./vue", 1), ("vue", 1)] {
            let message =
                format!("Cannot find module '{module}' or its corresponding type declarations.");
            let start = json!({ "line": 1, "offset": 1 });
            let found = json!([{ "start": start, "end": start, "text": message, "code": 2307,
                "category": "error" }]);
            assert_eq!(compiler_errors(&found).unwrap().len(), count, "{module}");
            let published = json!([{ "range": range(0, 0, 1), "message": message }]);
            assert_eq!(errors_in(&published).unwrap().len(), count, "{module}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn edits_of_both_forms_are_applied_and_others_are_refused() {
        let edit = |from, to| json!({ "range": range(0, from, to), "newText": "new" });
        let simple = json!({ "changes": { "file:///w/a%20b.rs": [edit(4, 5), edit(0, 1)] } });
        let versioned = json!({ "documentChanges": [
            { "textDocument": { "uri": "file:///w/a b.rs", "version": 3 }, "edits": [edit(0, 1)] },
            { "textDocument": { "uri": "file:///w/a%20b.rs" }, "edits": [edit(4, 5)] }
        ] });
        let text = TEXT.replacen('a', "b", 1);
        for edit in [simple, versioned] {
            let files = file_edits(&edit, Encoding::Utf16, "b").unwrap();
            assert_eq!((files.len(), files[0].path.as_path()), (1, Path::new("/w/a b.rs")));
            assert_eq!(files[0].apply(&text).unwrap(), "new\u{e4}\u{1f600}new\r\nsecond\n");
        }
        let overlapping = json!({ "changes": { "file:///w/a": [edit(0, 2), edit(1, 3)] } });
        let beyond = json!({ "changes": { "file:///w/a": [
            { "range": range(9, 0, 0), "newText": "" }
        ] } });
        let misplaced = json!({ "changes": { "file:///w/a": [edit(1, 2)] } });
        for edit in [overlapping, beyond, misplaced] {
            assert_eq!(file_edits(&edit, Encoding::Utf16, "b").unwrap()[0].apply(&text), None);
        }
        let created = json!({ "documentChanges": [{ "kind": "create", "uri": "file:///w/x" }] });
        let elsewhere = json!({ "changes": { "untitled:x": [edit(0, 1)] } });
        for edit in [created, elsewhere] {
            assert!(file_edits(&edit, Encoding::Utf16, "b").is_err(), "{edit}");
        }
        assert_eq!(file_edits(&Value::Null, Encoding::Utf16, "b"), Ok(Vec::new()));
    }

    #[cfg(unix)]
    #[test]
    fn an_edit_of_a_rename_puts_in_little_more_than_the_name() {
        for (new, expected) in [
            ("new", true),
            ("old: new", true),
            ("new: &mut Self", true),
            ("ew", true),
            ("", true),
            ("evil()", false),
            ("new\nevil()", false),
            (&*format!("new{}", "x".repeat(MAX_AROUND_NAMES + 9)), false),
        ] {
            let edit = json!({ "range": range(0, 0, 0), "newText": new });
            let edits = json!({ "changes": { "file:///w/a.rs": [edit] } });
            let files = file_edits(&edits, Encoding::Utf16, "old").unwrap();
            assert_eq!(files[0].only_names("new"), expected, "{new}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_edit_of_a_rename_takes_away_little_more_than_the_name() {
        // These replace `old`, `old: old` and longer passages.
        for (line, character, expected) in
            [(0, 3, true), (0, 8, true), (0, 99, false), (1, 0, false)]
        {
            let range = json!({
                "start": { "line": 0, "character": 0 },
                "end": { "line": line, "character": character }
            });
            let edits =
                json!({ "changes": { "file:///w/a": [{ "range": range, "newText": "new" }] } });
            let files = file_edits(&edits, Encoding::Utf16, "old").unwrap();
            assert_eq!(files[0].only_names("new"), expected, "{line} {character}");
        }
    }

    #[test]
    fn the_address_of_a_file_leads_back_to_it() {
        let folder = Path::new(if cfg!(windows) { "C:\\w" } else { "/w" });
        for name in ["a b.rs", "a%20b.rs", "a#b.rs", "\u{e4}\u{1f600}.rs", "[x]@+&.rs", "%.rs"] {
            let path = folder.join(name);
            let address = uri(&path);
            assert!(!address.contains([' ', '#', '\u{e4}']), "{address}");
            assert_eq!(path_of(&address), Some(path), "{name}");
        }
        for other in ["", "a.rs", "zip:/a.rs", "http://localhost/a.rs"] {
            assert_eq!(path_of(other), None, "{other}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn places_of_all_forms_are_read() {
        let one = json!({ "uri": "file:///w/a.rs", "range": range(2, 0, 1) });
        let link = json!({
            "targetUri": "file:///w/b.rs",
            "targetRange": range(1, 0, 9),
            "targetSelectionRange": range(4, 0, 1)
        });
        let odd = json!({ "uri": "zip:/x", "range": range(2, 0, 1) });
        let table = [
            (Value::Null, vec![]),
            (one.clone(), vec![("/w/a.rs", 3)]),
            (json!([link, one, one, odd]), vec![("/w/a.rs", 3), ("/w/b.rs", 5)]),
        ];
        for (answer, expected) in table {
            let expected: Vec<_> =
                expected.into_iter().map(|(path, line)| (PathBuf::from(path), line)).collect();
            assert_eq!(places(&answer), expected, "{answer}");
        }
    }
}
