//! Remembers which files had unsaved changes in the editor when they were last read through it.
//! Searches and commands see only the disk, so the model has to be told.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Files;
use super::text::with_lf;
use turnwright_types::effect::{PathScope, ResolvedPath};

const MAX_REMEMBERED: usize = 256;
/// How many files a note names.
const MAX_NAMED: usize = 3;

/// The paths of files with unsaved changes.
// Held only to access the set.
#[derive(Debug, Default)]
pub(super) struct UnsavedFiles(Mutex<BTreeSet<PathBuf>>);

impl UnsavedFiles {
    /// Updates the entry of a file by comparing the editor's text with the disk's.
    pub(super) fn update(&self, path: &Path, on_disk: Option<&str>, shown: &str) {
        let is_saved = on_disk.is_some_and(|it| it == shown || with_lf(it) == with_lf(shown));
        let mut files = self.0.lock();
        if is_saved {
            files.remove(path);
        } else if files.len() < MAX_REMEMBERED {
            files.insert(path.to_path_buf());
        }
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.0.lock().contains(path)
    }

    fn below(&self, folder: Option<&Path>) -> Vec<PathBuf> {
        let files = self.0.lock();
        let is_below = |it: &&PathBuf| folder.is_none_or(|folder| it.starts_with(folder));
        files.iter().filter(is_below).cloned().collect()
    }
}

impl Files {
    /// A line for the model that names the files below `folder` (or anywhere) with unsaved changes;
    /// empty if there are none. `who` is the subject and auxiliary verb of the sentence, such as
    /// `commands do`.
    pub fn unsaved_note(&self, folder: Option<&Path>, who: &str) -> String {
        let files = self.unsaved.below(folder);
        if files.is_empty() {
            return String::new();
        }
        let name = |path: &PathBuf| {
            self.roots
                .display_path(&ResolvedPath { path: path.clone(), scope: PathScope::Workspace })
        };
        let mut names: Vec<_> = files.iter().take(MAX_NAMED).map(name).collect();
        if files.len() > MAX_NAMED {
            names.push(format!("{} more", files.len() - MAX_NAMED));
        }
        format!("[unsaved changes in the editor, which {who} not see: {}]\n", names.join(", "))
    }
}
