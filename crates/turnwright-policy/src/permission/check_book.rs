//! The book of a project's checks that were found in its files: which of them the user has refused, how long each last
//! ran, and what it said when it last succeeded. It is kept outside of the project. Reads and writes block. A lost book
//! costs a question and a slow run, so its faults are only logged.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
        let text = match private_file::read(&self.path(), MAX_FILE_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
            Err(error) => {
                tracing::warn!(%error, "the book of checks cannot be read");
                return BTreeMap::new();
            }
        };
        let file: BookFile = serde_json::from_str(&text).unwrap_or_default();
        if file.project == self.project { file.checks } else { BTreeMap::new() }
    }

    /// Notes that a check has run for this time. `lines` are those of a run that has succeeded.
    pub fn note_run(&self, command: &str, took: Duration, lines: Option<Vec<u32>>) {
        self.update(command, |known| {
            known.last_ms = u64::try_from(took.as_millis()).ok();
            if let Some(mut lines) = lines {
                lines.truncate(MAX_LINES);
                known.lines = Some(lines);
            }
        });
    }

    /// Notes that the user does not want a check.
    pub fn refuse(&self, command: &str) {
        self.update(command, |known| known.is_refused = true);
    }

    /// Forgets everything. Returns true if there was something.
    pub fn forget(&self) -> io::Result<bool> {
        private_file::remove(&self.path())
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    fn update(&self, command: &str, change: impl FnOnce(&mut KnownCheck)) {
        if let Err(error) = self.try_update(command, change) {
            tracing::warn!(%error, "the book of checks cannot be written");
        }
    }

    fn try_update(&self, command: &str, change: impl FnOnce(&mut KnownCheck)) -> io::Result<()> {
        let _lock = FileLock::acquire(&self.folder.join("checks.lock"))?;
        let mut checks = self.load();
        change(checks.entry(command.to_owned()).or_default());
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
        book.note_run("make", Duration::from_millis(1_500), Some(vec![1, 2]));
        book.note_run("make", Duration::from_millis(2_500), None);
        book.refuse("ruff check");
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
            book.note_run(&format!("check-{number}"), Duration::from_secs(1), lines);
        }
        let known = book.load();
        assert_eq!(known.len(), 9);
        assert_eq!(known["check-8"].lines.as_ref().map(Vec::len), Some(MAX_LINES));
    }
}
