//! Determines what a tool has done to the files that it announced: they are recorded before and
//! after the call. What counts is what the session reads: for a file with unsaved changes in the
//! editor that is the editor's text, which would be lost if undo restored the content of the disk.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::observe::{ObservedState, observe};
use super::{CallChanges, ChangeTracker};
use crate::files::{FileText, TextEncoding, TextSource, missing_parents};
use turnwright_types::error_text::io_error_text;
use turnwright_types::file_change::{ChangeIntent, FileChange, FileState};
use turnwright_types::hash::sha256_hex;
use turnwright_types::text::format_bytes;

/// The most entries recorded of folders that are deleted or moved.
const MAX_ENTRIES: usize = 2_000;
/// The most bytes of their contents.
const MAX_BYTES: u64 = 20 * 1024 * 1024;
/// The assumed mode of a file that only the editor knows.
const DEFAULT_MODE: u32 = 0o644;

/// The state in which a call is going to leave a file.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedChange<'a> {
    /// The path with links resolved.
    pub path: &'a Path,
    /// The text that the session has read.
    pub before: Option<&'a FileText>,
    /// The text and encoding that the call writes.
    pub after: Option<(&'a str, TextEncoding)>,
}

/// The files that a call announced, with their state before it.
#[derive(Debug)]
pub struct TrackedEdit {
    /// The paths that the call may have written.
    pub targets: Vec<PathBuf>,
    deleted: Vec<PathBuf>,
    before: BTreeMap<PathBuf, ObservedState>,
    /// The expected states after the call.
    expected: HashMap<PathBuf, FileState>,
    /// The paths of which the editor's text counts, with the state on the disk.
    in_editor: HashMap<PathBuf, FileState>,
}

impl TrackedEdit {
    /// Records the state of the paths that are going to be written or deleted, with links resolved.
    /// Blocks.
    pub fn begin(
        written: &[PathBuf],
        deleted: Vec<PathBuf>,
        expected_changes: &[ExpectedChange<'_>],
    ) -> TrackedEdit {
        let targets: Vec<_> = written.iter().chain(&deleted).cloned().collect();
        let mut before = observe_all(&targets);
        for folder in written.iter().flat_map(|path| missing_parents(path)) {
            before.insert(folder, FileState::Absent.into());
        }
        let mut edit = TrackedEdit {
            targets,
            deleted,
            before,
            expected: HashMap::new(),
            in_editor: HashMap::new(),
        };
        for change in expected_changes {
            edit.add_expected(change);
        }
        edit
    }

    fn add_expected(&mut self, change: &ExpectedChange<'_>) {
        let mode = self.before.get(change.path).and_then(mode_of).unwrap_or(DEFAULT_MODE);
        if let Some(text) = change.before.filter(|text| text.source == TextSource::Editor) {
            let old = self.before.insert(change.path.to_path_buf(), state_of_text(text, mode));
            let on_disk = old.map_or(FileState::Absent, |file| file.state);
            self.in_editor.insert(change.path.to_path_buf(), on_disk);
        }
        if let Some((text, form)) = change.after
            && let Ok(bytes) = form.encode(text)
        {
            let size = bytes.len() as u64;
            let state = FileState::File { hash: sha256_hex(&bytes), size, mode, is_kept: false };
            self.expected.insert(change.path.to_path_buf(), state);
        }
    }

    /// The intent that is stored before the call runs. The mode of a new file is a guess.
    pub fn intent(&self) -> ChangeIntent {
        let mut intent = ChangeIntent { files: Vec::new(), bytes: Vec::new() };
        for (path, found) in &self.before {
            let is_deleted = self.deleted.iter().any(|deleted| path.starts_with(deleted));
            let expected = self.expected.get(path).cloned();
            intent.files.push(FileChange {
                path: path.clone(),
                before: found.state.clone(),
                after: expected.or(is_deleted.then_some(FileState::Absent)),
            });
            intent.bytes.extend(found.bytes.clone());
        }
        intent
    }

    /// Compares the announced files, including those that turn out unchanged. `written` has the
    /// texts that the session has written meanwhile, with `None` for a file that was written to the
    /// disk. Blocks.
    pub fn changes(
        self,
        checkpoint: &ChangeTracker,
        mut written: HashMap<PathBuf, Option<FileText>>,
    ) -> CallChanges {
        let mut after = observe_all(&self.targets);
        for path in self.before.keys().filter(|path| !self.targets.contains(path)) {
            after.entry(path.clone()).or_insert_with(|| observe(path, true));
        }
        let mut unsaved = Vec::new();
        for path in &self.targets {
            let Some(there) = after.get(path) else { continue };
            let on_disk = self
                .in_editor
                .get(path)
                .or_else(|| self.before.get(path).map(|before| &before.state));
            let shown = match written.remove(path) {
                // The editor has saved it, and may have converted it.
                Some(Some(_)) if on_disk != Some(&there.state) => continue,
                Some(Some(text)) => state_of_text(&text, mode_of(there).unwrap_or(DEFAULT_MODE)),
                Some(None) => continue,
                // Nothing was written, so nothing has changed in what the session sees.
                None if self.in_editor.contains_key(path)
                    && (mode_of(there).is_some() || !self.deleted.contains(path)) =>
                {
                    self.before.get(path).cloned().unwrap_or_else(|| there.clone())
                }
                None => continue,
            };
            if shown.state != there.state {
                unsaved.push(path.clone());
            }
            after.insert(path.clone(), shown);
        }
        checkpoint.note_written(&after, &unsaved);
        let mut changes = CallChanges::default();
        let all: BTreeSet<_> = self.before.keys().chain(after.keys()).cloned().collect();
        for path in all {
            let before =
                self.before.get(&path).map_or(FileState::Absent, |before| before.state.clone());
            let now = after.remove(&path).unwrap_or_else(|| FileState::Absent.into());
            changes.contents.extend(now.bytes.filter(|_| before != now.state));
            changes.files.push(FileChange { path, before, after: Some(now.state) });
        }
        changes
    }
}

fn state_of_text(text: &FileText, mode: u32) -> ObservedState {
    match text.encoding.encode(&text.text) {
        Ok(bytes) => ObservedState::file(bytes, mode),
        Err(_) => ObservedState::unknown("cannot be written in its encoding"),
    }
}

fn mode_of(found: &ObservedState) -> Option<u32> {
    match found.state {
        FileState::File { mode, .. } => Some(mode),
        _ => None,
    }
}

/// The states of these paths and of everything below them.
fn observe_all(targets: &[PathBuf]) -> BTreeMap<PathBuf, ObservedState> {
    let mut all = BTreeMap::new();
    for target in targets {
        let found = observe(target, true);
        if let FileState::Folder { .. } = found.state {
            match observe_below(target) {
                Ok(entries) => all.extend(entries),
                Err(why) => {
                    all.insert(target.clone(), ObservedState::unknown(io_error_text(&why)));
                    continue;
                }
            }
        }
        all.insert(target.clone(), found);
    }
    all
}

/// The states of everything below a folder, unless it is too much.
fn observe_below(folder: &Path) -> io::Result<Vec<(PathBuf, ObservedState)>> {
    let mut all = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    let mut left = MAX_BYTES;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if all.len() == MAX_ENTRIES {
                return Err(io::Error::other(format!("more than {MAX_ENTRIES} files")));
            }
            let metadata = entry.metadata()?;
            let size = if metadata.is_file() { metadata.len() } else { 0 };
            let Some(rest) = left.checked_sub(size) else {
                return Err(io::Error::other(format!("more than {}", format_bytes(MAX_BYTES))));
            };
            left = rest;
            if metadata.is_dir() {
                open.push(entry.path());
            }
            all.push((entry.path(), observe(&entry.path(), true)));
        }
    }
    Ok(all)
}
