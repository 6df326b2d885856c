//! Persistent context of a session: notes from earlier sessions in Markdown files, and the
//! instructions of project and user. Only reads: writing needs permission, or the word of the user.

pub mod instructions;
mod secrets;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::files::{FileHead, read_head};
use crate::skills::hyphenated;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::file_id::file_id;
use turnwright_types::ids::{MAX_SLUG_LEN, is_slug};
use turnwright_types::text;

pub use secrets::find_secret;

/// The most bytes of a note.
pub const MAX_NOTE_BYTES: usize = 16 * 1024;
/// The most notes of a folder.
pub const MAX_NOTES: usize = 100;
/// The most bytes that are read of a note, which may have been written by hand and be longer.
const READ_LIMIT: usize = 64 * 1024;
/// How many bytes are searched for the title of a note.
const TITLE_BYTES: usize = 1024;
/// The most characters of an index line.
const MAX_LINE_CHARS: usize = 120;
/// The most lines of the index.
const MAX_INDEX_LINES: usize = 200;
/// The most bytes of the index.
const MAX_INDEX_BYTES: usize = 4 * 1024;
/// The most entries of a folder that are examined.
const MAX_ENTRIES: usize = 10_000;

/// Whom notes belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoteOwner {
    #[default]
    Project,
    /// The user, for all projects.
    User,
}

impl NoteOwner {
    /// The name as used in the index.
    pub fn id(self) -> &'static str {
        match self {
            NoteOwner::Project => "project",
            NoteOwner::User => "user",
        }
    }
}

#[derive(Clone, Debug)]
pub struct NoteFolder {
    pub scope: NoteOwner,
    pub folder: PathBuf,
}

/// A note as listed in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub scope: NoteOwner,
    /// The file name without `.md`.
    pub name: String,
    /// The first heading or line.
    pub title: String,
}

impl NoteFolder {
    /// The notes of a project; `cwd` has no links.
    pub fn of_project(cwd: &Path) -> NoteFolder {
        NoteFolder { scope: NoteOwner::Project, folder: cwd.join(".turnwright").join("memory") }
    }

    /// The notes of the user, in our configuration folder.
    pub fn of_user(config: &Path) -> NoteFolder {
        NoteFolder { scope: NoteOwner::User, folder: config.join("memory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.md"))
    }

    /// Returns true if a resolved path may be a note of this folder. A project is not trusted: no link in it, of
    /// either kind, can make another file a note. The links of the user are the user's decision. Blocks.
    pub fn allows(&self, real: &Path) -> bool {
        self.scope == NoteOwner::User
            || real.starts_with(&self.folder) && file_id(real).is_none_or(|(_, names)| names <= 1)
    }

    /// Reads a note. Blocks.
    pub fn read(&self, name: &str) -> Option<FileHead> {
        self.read_limited(name, READ_LIMIT)
    }

    /// All notes, ordered by name. Blocks.
    pub fn list(&self) -> Vec<Note> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .take(MAX_ENTRIES)
            .filter_map(Result::ok)
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".md").map(str::to_owned))
            .filter(|name| is_slug(name))
            .collect();
        names.sort();
        let notes = names.into_iter().filter_map(|name| {
            let title = title(&self.read_limited(&name, TITLE_BYTES)?.text);
            Some(Note { scope: self.scope, name, title })
        });
        notes.take(MAX_NOTES).collect()
    }

    fn read_limited(&self, name: &str, limit: usize) -> Option<FileHead> {
        let within = (self.scope == NoteOwner::Project).then_some(self.folder.as_path());
        read_head(&self.path(name), within, limit).filter(|head| self.allows(&head.real_path))
    }
}

/// Suggests a valid name for an invalid one.
pub fn suggest_name(text: &str) -> String {
    let text = text.trim().to_lowercase();
    let joined = hyphenated(text.trim_end_matches(".md"), |c| c.is_ascii_alphanumeric());
    let name = text::first_chars(&joined, MAX_SLUG_LEN).trim_end_matches('-');
    if name.is_empty() { "build-commands".to_owned() } else { name.to_owned() }
}

/// The first heading, or the first line if there is none.
fn title(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let heading = lines.clone().find_map(|line| {
        let rest = line.trim_start_matches('#');
        (rest.len() < line.len() && rest.starts_with(' ')).then(|| rest.trim())
    });
    escape_hidden_line(heading.or_else(|| lines.next()).unwrap_or("(empty)"))
}

/// The index with a line for each note, as many as fit; `None` if there are none.
pub fn index(notes: &[Note]) -> Option<String> {
    if notes.is_empty() {
        return None;
    }
    let mut text = String::new();
    for (number, note) in notes.iter().enumerate() {
        let whole = format!("{}/{} – {}", note.scope.id(), note.name, note.title);
        let line = text::clip_within(whole, MAX_LINE_CHARS);
        if number + 1 >= MAX_INDEX_LINES || text.len() + line.len() + 100 > MAX_INDEX_BYTES {
            let left = notes.len() - number;
            text.push_str(&format!(
                "… and {left} more: `memory` with action `list` has them all\n"
            ));
            break;
        }
        text.push_str(&format!("{line}\n"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_get_a_valid_suggestion() {
        for name in ["build-commands", "a", "2", "x86-64"] {
            assert!(is_slug(name), "{name}");
        }
        let table = [
            ("", "build-commands"),
            ("Build Commands", "build-commands"),
            ("build_commands.md", "build-commands"),
            ("../../etc/passwd", "etc-passwd"),
            ("a/b", "a-b"),
            ("-", "build-commands"),
            ("a--b", "a-b"),
            ("a.b", "a-b"),
            ("ä", "build-commands"),
            ("a\0", "a"),
        ];
        for (text, name) in table {
            assert!(!is_slug(text), "{text}");
            assert_eq!(suggest_name(text), name);
        }
        assert!(!is_slug(&"a".repeat(65)));
        assert!(is_slug(&suggest_name(&"a ".repeat(65))));
    }

    #[test]
    fn the_title_is_the_first_heading_or_line_in_one_line() {
        let table = [
            ("# Build\nx", "Build"),
            ("intro\n## Build  \n", "Build"),
            ("\n  first\nsecond", "first"),
            ("#hashtag", "#hashtag"),
            ("# a\u{202e}b", "a\\u{202e}b"),
            ("", "(empty)"),
        ];
        for (text, expected) in table {
            assert_eq!(title(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_index_has_its_limits_and_says_so() {
        let note = |number: usize, title: &str| Note {
            scope: NoteOwner::Project,
            name: format!("n{number}"),
            title: title.to_owned(),
        };
        assert_eq!(index(&[]), None);
        assert_eq!(index(&[note(1, "One")]).unwrap(), "project/n1 – One\n");
        let short: Vec<_> = (0..201).map(|number| note(number, "x")).collect();
        let text = index(&short).unwrap();
        assert_eq!(text.lines().count(), 200);
        assert!(text.ends_with("… and 2 more: `memory` with action `list` has them all\n"));
        let long: Vec<_> = (0..150).map(|number| note(number, &"é".repeat(500))).collect();
        let text = index(&long).unwrap();
        assert!(text.len() <= MAX_INDEX_BYTES, "{}", text.len());
        assert!(text.lines().all(|line| line.chars().count() <= MAX_LINE_CHARS));
        assert!(text.contains("more: `memory`"), "{text}");
    }
}
