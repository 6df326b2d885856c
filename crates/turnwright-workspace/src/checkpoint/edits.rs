//! What a tool that says which files it changes has done to them: all of them are looked at before
//! and after. What counts is what the session reads: of a file with unsaved changes in the editor
//! that is the editor's text, which would be lost if undo brought back what is on the disk.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use super::look::{Found, in_words, is_nothing, look};
use super::{Changes, Checkpoint};
use crate::files::{Form, Source, Text};
use turnwright_types::file_change::{Change, FileState, Intent};

/// Entries of folders that go or get another place.
const MOST_ENTRIES: usize = 2_000;
/// Bytes of theirs.
const MOST_BYTES: u64 = 20 * 1024 * 1024;
/// The mode of a file of which only the editor knows.
const USUAL_MODE: u32 = 0o644;

/// What a call is going to make of a file.
#[derive(Clone, Copy, Debug)]
pub struct Foreseen<'a> {
    /// The real path.
    pub path: &'a Path,
    /// What the session has read there.
    pub before: Option<&'a Text>,
    /// What it writes.
    pub after: Option<(&'a str, Form)>,
}

/// What a call touches, as it was before.
#[derive(Debug)]
pub struct Edit {
    targets: Vec<PathBuf>,
    deleted: Vec<PathBuf>,
    before: BTreeMap<PathBuf, Found>,
    /// What is going to be there.
    planned: HashMap<PathBuf, FileState>,
    /// Those of which the editor's text counts.
    in_editor: Vec<PathBuf>,
}

impl Edit {
    /// Looks at what is going to be written or deleted, real paths. Reads the disk.
    pub fn look(written: &[PathBuf], deleted: Vec<PathBuf>, foreseen: &[Foreseen<'_>]) -> Edit {
        let targets: Vec<_> = written.iter().chain(&deleted).cloned().collect();
        let mut before = snapshot(&targets);
        for folder in written.iter().flat_map(|it| missing(it)) {
            before.insert(folder, FileState::Absent.into());
        }
        let mut edit =
            Edit { targets, deleted, before, planned: HashMap::new(), in_editor: Vec::new() };
        for one in foreseen {
            edit.foresee(one);
        }
        edit
    }

    fn foresee(&mut self, one: &Foreseen<'_>) {
        let mode = self.before.get(one.path).and_then(mode_of).unwrap_or(USUAL_MODE);
        if let Some(text) = one.before.filter(|it| it.source == Source::Editor) {
            self.before.insert(one.path.to_path_buf(), as_file(text, mode));
            self.in_editor.push(one.path.to_path_buf());
        }
        if let Some((text, form)) = one.after
            && let Ok(bytes) = form.encode(text)
            && let FileState::File { hash, size, .. } = Found::file(bytes, mode).state
        {
            let state = FileState::File { hash, size, mode, is_kept: false };
            self.planned.insert(one.path.to_path_buf(), state);
        }
    }

    /// What is noted before the call runs. The mode of a new file is a guess.
    pub fn intent(&self) -> Intent {
        let goes = |path: &Path| self.deleted.iter().any(|it| path.starts_with(it));
        let change = |(path, found): (&PathBuf, &Found)| Change {
            path: path.clone(),
            before: found.state.clone(),
            after: self.planned.get(path).cloned().or(goes(path).then_some(FileState::Absent)),
        };
        Intent {
            files: self.before.iter().map(change).collect(),
            bytes: self.before.values().filter_map(|it| it.bytes.clone()).collect(),
        }
    }

    /// What the call may have written.
    pub fn targets(&self) -> &[PathBuf] {
        &self.targets
    }

    /// What has become of it, and of what has not changed that it has not. `written` are the texts that the session has written meanwhile;
    /// nothing for one that went to the disk. Reads the disk.
    pub fn changes(
        self,
        checkpoint: &Checkpoint,
        mut written: HashMap<PathBuf, Option<Text>>,
    ) -> Changes {
        let mut after = snapshot(&self.targets);
        for path in self.before.keys().filter(|it| !self.targets.contains(it)) {
            after.entry(path.clone()).or_insert_with(|| look(path, true));
        }
        let mut unsaved = Vec::new();
        for path in &self.targets {
            let Some(there) = after.get(path) else { continue };
            let shown = match written.remove(path) {
                Some(Some(text)) => as_file(&text, mode_of(there).unwrap_or(USUAL_MODE)),
                Some(None) => continue,
                // Nothing was written, so nothing has changed that the session sees.
                None if self.in_editor.contains(path)
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
        checkpoint.touched(&after, &unsaved);
        let mut changes = Changes::default();
        let mut all: Vec<_> = self.before.keys().chain(after.keys()).cloned().collect();
        all.sort_unstable();
        all.dedup();
        for path in all {
            let before = self.before.get(&path).map_or(FileState::Absent, |it| it.state.clone());
            let now = after.remove(&path).unwrap_or_else(|| FileState::Absent.into());
            changes.bytes.extend(now.bytes.filter(|_| before != now.state));
            changes.files.push(Change { path, before, after: Some(now.state) });
        }
        changes
    }
}

/// The text as the file that it would be.
fn as_file(text: &Text, mode: u32) -> Found {
    match text.form.encode(&text.text) {
        Ok(bytes) => Found::file(bytes, mode),
        Err(_) => Found::unknown("cannot be written in its encoding"),
    }
}

fn mode_of(found: &Found) -> Option<u32> {
    match found.state {
        FileState::File { mode, .. } => Some(mode),
        _ => None,
    }
}

/// The folders that a file still lacks.
fn missing(path: &Path) -> Vec<PathBuf> {
    let is_missing = |it: &&Path| fs::symlink_metadata(it).is_err_and(|it| is_nothing(&it));
    path.ancestors().skip(1).take_while(is_missing).map(Path::to_path_buf).collect()
}

/// What there is at these paths and below them.
fn snapshot(targets: &[PathBuf]) -> BTreeMap<PathBuf, Found> {
    let mut all = BTreeMap::new();
    for target in targets {
        let found = look(target, true);
        if let FileState::Folder { .. } = found.state {
            match below(target) {
                Ok(entries) => all.extend(entries),
                Err(why) => {
                    all.insert(target.clone(), Found::unknown(why));
                    continue;
                }
            }
        }
        all.insert(target.clone(), found);
    }
    all
}

/// Everything below a folder, or why that is too much.
fn below(folder: &Path) -> Result<Vec<(PathBuf, Found)>, String> {
    let mut all = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    let mut left = MOST_BYTES;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).map_err(|it| it.to_string())? {
            let entry = entry.map_err(|it| it.to_string())?;
            if all.len() == MOST_ENTRIES {
                return Err(format!("more than {MOST_ENTRIES} files"));
            }
            let metadata = entry.metadata().map_err(|it| it.to_string())?;
            let size = if metadata.is_file() { metadata.len() } else { 0 };
            left = left
                .checked_sub(size)
                .ok_or_else(|| format!("more than {}", in_words(MOST_BYTES)))?;
            if metadata.is_dir() {
                open.push(entry.path());
            }
            all.push((entry.path(), look(&entry.path(), true)));
        }
    }
    Ok(all)
}
