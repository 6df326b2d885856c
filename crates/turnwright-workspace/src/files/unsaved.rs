//! Remembers which files had unsaved changes in the editor when they were last read through it.
//! Searches and commands see only the disk, so the model has to be told.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Files;
use super::text::{ContentHash, FileText, with_lf};
use turnwright_types::effect::{PathScope, ResolvedPath};

const MAX_REMEMBERED: usize = 256;
/// How many files a note names.
const MAX_NAMED: usize = 3;

/// The paths of files with unsaved changes.
// Held only to access the sets.
#[derive(Debug, Default)]
pub(super) struct UnsavedFiles(Mutex<BufferStates>);

#[derive(Debug, Default)]
struct BufferStates {
    unsaved: BTreeSet<PathBuf>,
    /// What the editor showed and what was on the disk after it had converted a text on saving it.
    converted: BTreeMap<PathBuf, (ContentHash, ContentHash)>,
}

impl UnsavedFiles {
    /// Updates the entry of a file by comparing the editor's text with the disk's.
    pub(super) fn update(&self, path: &Path, on_disk: Option<&str>, shown: &str) {
        let is_saved = on_disk.is_some_and(|it| it == shown || with_lf(it) == with_lf(shown));
        let files = &mut self.0.lock().unsaved;
        if is_saved {
            files.remove(path);
        } else if files.len() < MAX_REMEMBERED {
            files.insert(path.to_path_buf());
        }
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.0.lock().unsaved.contains(path)
    }

    /// Records that the editor has saved a text that it shows as another one.
    pub(super) fn note_converted(&self, path: &Path, shown: &FileText, on_disk: &FileText) {
        let converted = &mut self.0.lock().converted;
        if converted.len() >= MAX_REMEMBERED {
            converted.clear();
        }
        converted.insert(path.to_path_buf(), (shown.hash(), on_disk.hash()));
    }

    /// Returns true if the two texts are the same, or are what was recorded so.
    pub(super) fn is_saved(&self, path: &Path, shown: &FileText, on_disk: &FileText) -> bool {
        let both = (shown.hash(), on_disk.hash());
        both.0 == both.1 || self.0.lock().converted.get(path) == Some(&both)
    }

    fn below(&self, folder: Option<&Path>) -> Vec<PathBuf> {
        let files = &self.0.lock().unsaved;
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
