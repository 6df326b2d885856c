//! The book of a project's checks that were found in its files: which of them the user has refused, how long each last
//! ran, and what it said when it last succeeded. It is kept outside of the project. Reads and writes block. A lost book
//! costs a question and a slow run, so its faults are only logged.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::project_folder;
use turnwright_types::private_file::{self, FileLock};

/// The name of the file, in the project's folder below the state folder.
const FILE_NAME: &str = "checks.json";
/// The largest size of the file in bytes, which is more than its content may have.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The most lines that are kept of one run.
const MAX_LINES: usize = 2_000;

/// The book of one project.
#[derive(Clone, Debug)]
pub struct CheckBook {
    folder: PathBuf,
    /// The project's folder, with symlinks resolved.
    project: PathBuf,
}

/// The facts about one check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownCheck {
    /// True if the user does not want it.
    pub is_refused: bool,
    /// The duration of its last run in milliseconds.
    pub last_ms: Option<u64>,
    /// The lines that it printed when it last succeeded, as hashes; `None` if it never did.
    pub lines: Option<Vec<u32>>,
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct BookFile {
    /// Checked on reading, because the names of two projects' folders may collide.
    project: PathBuf,
    /// By their command lines.
    checks: BTreeMap<String, KnownCheck>,
}

impl CheckBook {
    /// The book of a project, below the folder `state`. `project` must be a path with symlinks resolved.
    pub fn new(state: &Path, project: &Path) -> CheckBook {
        CheckBook { folder: project_folder(state, project), project: project.to_path_buf() }
    }

    /// The known checks by their command lines.
    pub fn load(&self) -> BTreeMap<String, KnownCheck> {
        let text = private_file::read(&self.path(), MAX_FILE_BYTES).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(%error, "the book of checks cannot be read");
            }
            String::new()
        });
        let file: BookFile = serde_json::from_str(&text).unwrap_or_default();
        if file.project == self.project { file.checks } else { BTreeMap::new() }
    }

    /// Adds what a proposal or a run has shown of a check to what is known of it.
    pub fn note(&self, command: &str, news: KnownCheck) {
        if let Err(error) = self.try_note(command, news) {
            tracing::warn!(%error, "the book of checks cannot be written");
        }
    }

    /// Forgets everything. Returns true if there was something.
    pub fn forget(&self) -> io::Result<bool> {
        private_file::remove(&self.path())
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    fn try_note(&self, command: &str, news: KnownCheck) -> io::Result<()> {
        let _lock = FileLock::acquire(&self.folder.join("checks.lock"))?;
        let mut checks = self.load();
        let known = checks.entry(command.to_owned()).or_default();
        known.is_refused |= news.is_refused;
        known.last_ms = news.last_ms.or(known.last_ms);
        if let Some(mut lines) = news.lines {
            lines.truncate(MAX_LINES);
            known.lines = Some(lines);
        }
        let file = BookFile { project: self.project.clone(), checks };
        let text = serde_json::to_string(&file)?;
        private_file::write(&self.path(), text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_keeps_refusals_times_and_the_lines_of_the_last_success() {
        let state = tempfile::tempdir().unwrap();
        let book = CheckBook::new(state.path(), Path::new("/ws"));
        assert!(book.load().is_empty() && !book.forget().unwrap());
        let first =
            KnownCheck { last_ms: Some(1_500), lines: Some(vec![1, 2]), ..KnownCheck::default() };
        book.note("make", first);
        book.note("make", KnownCheck { last_ms: Some(2_500), ..KnownCheck::default() });
        book.note("ruff check", KnownCheck { is_refused: true, ..KnownCheck::default() });
        let known = book.load();
        let expected =
            KnownCheck { is_refused: false, last_ms: Some(2_500), lines: Some(vec![1, 2]) };
        assert_eq!(known["make"], expected);
        assert!(known["ruff check"].is_refused);
        // Another project with a folder of the same name has none of it.
        let other = CheckBook { project: "/other".into(), ..book.clone() };
        assert!(other.load().is_empty());
        assert!(book.forget().unwrap() && book.load().is_empty());
    }

    #[test]
    fn a_book_stays_small() {
        let state = tempfile::tempdir().unwrap();
        let book = CheckBook::new(state.path(), Path::new("/ws"));
        for number in 0..9 {
            let lines = Some(vec![u32::MAX; 9_000]);
            book.note(&format!("check-{number}"), KnownCheck { lines, ..KnownCheck::default() });
        }
        let known = book.load();
        assert_eq!(known.len(), 9);
        assert_eq!(known["check-8"].lines.as_ref().map(Vec::len), Some(MAX_LINES));
    }
}
