//! What a session knows before its first word: notes from earlier sessions in plain Markdown
//! files, and the instructions that project and user have written down. Reads; writing is the
//! tool's, because it is asked about.

pub mod instructions;
mod secrets;

use std::fs;
use std::path::{Path, PathBuf};

use turnwright_types::effect::visible_line;
use crate::files::{Glance, glance};
use turnwright_types::ids::{LONGEST_SLUG, is_slug};

pub use secrets::secret_in;

/// Bytes of one note.
pub const LONGEST_NOTE: usize = 16 * 1024;
/// Notes of one folder.
pub const MOST_NOTES: usize = 100;
/// Bytes that are read of a note: somebody may have written a longer one by hand.
const READ_LIMIT: usize = 64 * 1024;
/// Bytes in which a note's title is looked for.
const TITLE_LIMIT: usize = 1024;
/// Characters of a line of the index.
const LONGEST_LINE: usize = 120;
/// Lines of the index.
const MOST_LINES: usize = 200;
/// Bytes of the index.
const LONGEST_INDEX: usize = 8 * 1024;
/// Entries of a folder that are looked at.
const MOST_ENTRIES: usize = 10_000;

/// Whose notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The project's.
    Project,
    /// The user's, for every project.
    User,
}

impl Scope {
    /// The word for it.
    pub fn id(self) -> &'static str {
        match self {
            Scope::Project => "project",
            Scope::User => "user",
        }
    }
}

/// A folder of notes.
#[derive(Clone, Debug)]
pub struct Notes {
    /// Whose they are.
    pub scope: Scope,
    /// Where they lie.
    pub folder: PathBuf,
}

/// One note, as the index has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whose it is.
    pub scope: Scope,
    /// Its name, which is its file's without `.md`.
    pub name: String,
    /// Its first heading or line.
    pub title: String,
}

impl Notes {
    /// Those of a project; `cwd` is a real path.
    pub fn of_project(cwd: &Path) -> Notes {
        Notes { scope: Scope::Project, folder: cwd.join(".turnwright").join("memory") }
    }

    /// Those of the user, below our folder of settings.
    pub fn of_user(config: &Path) -> Notes {
        Notes { scope: Scope::User, folder: config.join("memory") }
    }

    /// The file of a note.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.md"))
    }

    /// Whether a real path lies where this folder's notes belong. A project may be anybody's: no
    /// link in it makes another file a note. The user's own links are the user's business.
    pub fn holds(&self, real: &Path) -> bool {
        self.scope == Scope::User || real.starts_with(&self.folder)
    }

    /// A note. Not for the runtime's thread.
    pub fn get(&self, name: &str) -> Option<Glance> {
        self.glance(name, READ_LIMIT)
    }

    /// All notes in the order of their names. Not for the runtime's thread.
    pub fn list(&self) -> Vec<Note> {
        // Most projects have none.
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let name =
            |it: fs::DirEntry| it.file_name().to_str()?.strip_suffix(".md").map(str::to_owned);
        let entries = entries.take(MOST_ENTRIES).filter_map(Result::ok);
        let mut names: Vec<String> = entries.filter_map(name).filter(|it| is_slug(it)).collect();
        names.sort();
        let note = |name: String| {
            let title = title(&self.glance(&name, TITLE_LIMIT)?.text);
            Some(Note { scope: self.scope, name, title })
        };
        names.into_iter().filter_map(note).take(MOST_NOTES).collect()
    }

    fn glance(&self, name: &str, limit: usize) -> Option<Glance> {
        let within = (self.scope == Scope::Project).then_some(self.folder.as_path());
        glance(&self.path(name), within, limit)
    }
}

/// The nearest name to something that is none.
pub fn name_from(text: &str) -> String {
    let text = text.trim().to_lowercase();
    let words = text.trim_end_matches(".md").split(|it: char| !it.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|it| !it.is_empty()).collect();
    let name: String = words.join("-").chars().take(LONGEST_SLUG).collect();
    let name = name.trim_end_matches('-');
    if name.is_empty() { "build-commands".to_owned() } else { name.to_owned() }
}

/// The first heading, or else the first line.
fn title(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|it| !it.is_empty());
    let heading = lines().find_map(|it| {
        let rest = it.trim_start_matches('#');
        (rest.len() < it.len() && rest.starts_with(' ')).then(|| rest.trim())
    });
    visible_line(heading.or_else(|| lines().next()).unwrap_or("(empty)"))
}

/// A line for each note, as many as fit, or nothing where there are none.
pub fn index(notes: &[Note]) -> Option<String> {
    if notes.is_empty() {
        return None;
    }
    let mut text = String::new();
    for (number, note) in notes.iter().enumerate() {
        let line = clipped(&format!("{}/{} – {}", note.scope.id(), note.name, note.title));
        if number + 1 >= MOST_LINES || text.len() + line.len() + 100 > LONGEST_INDEX {
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

fn clipped(line: &str) -> String {
    if line.chars().count() <= LONGEST_LINE {
        return line.to_owned();
    }
    let mut text: String = line.chars().take(LONGEST_LINE - 1).collect();
    text.push('…');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_with_hyphens_and_others_have_a_nearest_one() {
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
            assert_eq!(name_from(text), name);
        }
        assert!(!is_slug(&"a".repeat(65)));
        assert!(is_slug(&name_from(&"a ".repeat(65))));
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
            scope: Scope::Project,
            name: format!("n{number}"),
            title: title.to_owned(),
        };
        assert_eq!(index(&[]), None);
        assert_eq!(index(&[note(1, "One")]).unwrap(), "project/n1 – One\n");
        let short: Vec<_> = (0..201).map(|it| note(it, "x")).collect();
        let text = index(&short).unwrap();
        assert_eq!(text.lines().count(), 200);
        assert!(text.ends_with("… and 2 more: `memory` with action `list` has them all\n"));
        let long: Vec<_> = (0..150).map(|it| note(it, &"é".repeat(500))).collect();
        let text = index(&long).unwrap();
        assert!(text.len() <= LONGEST_INDEX, "{}", text.len());
        assert!(text.lines().all(|it| it.chars().count() <= LONGEST_LINE));
        assert!(text.contains("more: `memory`"), "{text}");
    }
}
