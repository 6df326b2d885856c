//! Which files the editor had unsaved changes in when they were last read through it. Searches
//! and commands see the disk: who asks them has to know.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::Files;
use super::text::with_lf;
use turnwright_types::effect::{Place, Target};

/// Files that are remembered.
const MOST_FILES: usize = 256;
/// Files that are named.
const MOST_NAMES: usize = 3;

/// The files.
#[derive(Debug, Default)]
// A std mutex: held to look into a set.
pub(super) struct Unsaved(Mutex<BTreeSet<PathBuf>>);

impl Unsaved {
    /// Compares what the editor shows with what the disk has.
    pub(super) fn compare(&self, path: &Path, on_disk: Option<&str>, shown: &str) {
        let is_saved = on_disk.is_some_and(|it| it == shown || with_lf(it) == with_lf(shown));
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_saved {
            files.remove(path);
        } else if files.len() < MOST_FILES {
            files.insert(path.to_path_buf());
        }
    }

    fn below(&self, folder: Option<&Path>) -> Vec<PathBuf> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_below = |it: &&PathBuf| folder.is_none_or(|folder| it.starts_with(folder));
        files.iter().filter(is_below).cloned().collect()
    }
}

impl Files {
    /// A line for the model about files, below a folder or anywhere, of which the editor has shown
    /// what the disk has not; nothing, if there are none.
    pub fn unsaved_note(&self, folder: Option<&Path>, who: &str) -> String {
        let files = self.unsaved.below(folder);
        if files.is_empty() {
            return String::new();
        }
        let name =
            |path: &PathBuf| self.roots.short(&Target { path: path.clone(), place: Place::Inside });
        let mut names: Vec<_> = files.iter().take(MOST_NAMES).map(name).collect();
        if files.len() > MOST_NAMES {
            names.push(format!("{} more", files.len() - MOST_NAMES));
        }
        format!("[unsaved changes in the editor, which {who} not see: {}]\n", names.join(", "))
    }
}
