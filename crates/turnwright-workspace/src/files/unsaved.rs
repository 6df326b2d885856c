//! Remembers the state of the editor's buffers: which files had unsaved changes when they were last read
//! through it, and which were changed behind its back. Searches and commands see only the disk, so the model
//! has to be told; and an editor may go on showing what was there before.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::text::{ContentHash, FileText, with_crlf, with_lf};
use super::{FileError, Files};
use turnwright_types::effect::{PathScope, ResolvedPath};
use turnwright_types::file_change::{FileChange, FileState};
use turnwright_types::hash::sha256_hex;

const MAX_REMEMBERED: usize = 256;
/// The most files that were changed on the disk alone, and the most earlier contents of each.
const MAX_REPLACED: usize = 4_096;
const MAX_CONTENTS: usize = 32;
/// How many files a note names.
const MAX_NAMED: usize = 3;

/// The files whose buffers differ from the disk.
// Held only to access the sets.
#[derive(Debug, Default)]
pub(super) struct UnsavedFiles(Mutex<KnownBuffers>);

#[derive(Debug, Default)]
struct KnownBuffers {
    unsaved: BTreeSet<PathBuf>,
    /// The editor's text and the disk's after the editor had converted it on saving.
    converted: BTreeMap<PathBuf, (ContentHash, ContentHash)>,
    /// The files that a call has changed on the disk since the editor last showed the disk's text, with the
    /// SHA-256 of the contents before.
    replaced: BTreeMap<PathBuf, Vec<String>>,
}

/// How the editor's text of a file compares with the disk's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferState {
    Saved,
    Unsaved,
    /// It is the text from before one of our calls changed the file: the editor has not reloaded it.
    Stale,
    /// The user has changed it, and one of our calls has changed the file on the disk.
    Conflict,
}

impl UnsavedFiles {
    /// Compares the editor's text with the disk's, and remembers the result. Hashes the text if the file was
    /// changed on the disk.
    pub(super) fn compare(&self, path: &Path, on_disk: Option<&str>, shown: &str) -> BufferState {
        let forms = if self.is_replaced(path) { forms(shown) } else { Vec::new() };
        let mut buffers = self.0.lock();
        let KnownBuffers { unsaved, replaced, .. } = &mut *buffers;
        let state = match replaced.get(path) {
            _ if on_disk
                .is_some_and(|saved| saved == shown || with_lf(saved) == with_lf(shown)) =>
            {
                replaced.remove(path);
                BufferState::Saved
            }
            None => BufferState::Unsaved,
            Some(before) if forms.iter().any(|form| before.contains(form)) => BufferState::Stale,
            Some(_) => BufferState::Conflict,
        };
        if matches!(state, BufferState::Saved | BufferState::Stale) {
            unsaved.remove(path);
        } else if unsaved.len() < MAX_REMEMBERED {
            unsaved.insert(path.to_path_buf());
        }
        state
    }

    /// Records that a file is being changed on the disk and not in the editor. `before` is the SHA-256 of its
    /// content in hexadecimal.
    pub(super) fn note_replaced(&self, path: &Path, before: String) {
        let mut buffers = self.0.lock();
        if buffers.replaced.len() < MAX_REPLACED || buffers.replaced.contains_key(path) {
            let contents = buffers.replaced.entry(path.to_path_buf()).or_default();
            if contents.len() < MAX_CONTENTS {
                contents.push(before);
            }
        }
    }

    pub(super) fn is_replaced(&self, path: &Path) -> bool {
        self.0.lock().replaced.contains_key(path)
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

    /// Returns true if the two texts are the same, or were recorded as such.
    pub(super) fn is_saved(&self, path: &Path, shown: &FileText, on_disk: &FileText) -> bool {
        let both = (shown.hash(), on_disk.hash());
        both.0 == both.1 || self.0.lock().converted.get(path) == Some(&both)
    }

    fn below(&self, folder: Option<&Path>) -> Vec<PathBuf> {
        let buffers = self.0.lock();
        let below = buffers
            .unsaved
            .iter()
            .filter(|path| folder.is_none_or(|folder| path.starts_with(folder)));
        below.cloned().collect()
    }
}

/// The hashes of the forms in which an editor may show this text: with other line ends, or without the last one.
fn forms(shown: &str) -> Vec<String> {
    let lines = with_lf(shown);
    let open = lines.strip_suffix('\n').unwrap_or(&lines);
    let texts = [open.to_owned(), format!("{open}\n")];
    let forms = texts
        .iter()
        .flat_map(|text| [sha256_hex(text.as_bytes()), sha256_hex(with_crlf(text).as_bytes())]);
    forms.collect()
}

impl Files {
    /// Records what a command has changed on the disk, where an editor may not see it.
    pub fn note_changed_on_disk(&self, changes: &[FileChange]) {
        if !self.buffers.as_ref().is_some_and(|editor| editor.can_read()) {
            return;
        }
        for FileChange { path, before, .. } in changes {
            match before {
                FileState::File { hash, .. } => self.unsaved.note_replaced(path, hash.clone()),
                FileState::Absent => self.unsaved.note_replaced(path, sha256_hex(b"")),
                _ => {}
            }
        }
    }

    /// A line for the model about a file of which it reads the editor's text; empty if it may be changed.
    pub fn conflict_note(&self, target: &ResolvedPath) -> String {
        let path = &target.path;
        if !self.unsaved.is_replaced(path) || !self.unsaved.contains(path) {
            return String::new();
        }
        format!("[this is the editor's text; the file {}]\n", FileError::Conflict)
    }

    /// A line for the model that names the files below `folder` (or anywhere) with unsaved changes;
    /// empty if there are none. `who` is the subject and auxiliary verb of the sentence, such as
    /// `commands do`.
    pub fn unsaved_note(&self, folder: Option<&Path>, who: &str) -> String {
        let files = self.unsaved.below(folder);
        if files.is_empty() {
            return String::new();
        }
        let shown = files.iter().take(MAX_NAMED).map(|path| {
            self.roots
                .display_path(&ResolvedPath { path: path.clone(), scope: PathScope::Workspace })
        });
        let mut names: Vec<_> = shown.collect();
        if files.len() > MAX_NAMED {
            names.push(format!("{} more", files.len() - MAX_NAMED));
        }
        format!("[unsaved changes in the editor, which {who} not see: {}]\n", names.join(", "))
    }
}
