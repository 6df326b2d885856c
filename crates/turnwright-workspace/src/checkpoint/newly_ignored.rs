//! Finds files that a command has created and hidden with its own ignore rules: the rules from before the command
//! decide which files count as changed.

use std::path::{Path, PathBuf};

use super::content_cache::lstat;
use super::snapshot::{StatChange, StatSnapshot, WatchedFolders};
use crate::search::FolderRules;

/// The most entries that are looked at.
const MAX_ENTRIES: usize = 50_000;
/// The most new entries of a hidden folder that are recorded. Larger ones, such as environments and caches, which
/// bring their own rules along, are only counted: undo leaves them whole.
const MAX_RECORDED: usize = 200;

/// The files that the old ignore rules would have shown.
#[derive(Debug, Default)]
pub(super) struct NewlyIgnored {
    /// All of them are new.
    pub(super) files: Vec<StatChange>,
    /// The number of further ones.
    pub(super) omitted: usize,
    /// The new folders, none below another.
    pub(super) folders: Vec<PathBuf>,
}

/// Looks where the rules differ between two snapshots. Blocks.
pub(super) fn find(
    before: &StatSnapshot,
    now: &StatSnapshot,
    watched: &WatchedFolders,
) -> NewlyIgnored {
    let mut search = Search { before, now, watched, left: MAX_ENTRIES, new: Vec::new() };
    let mut found = NewlyIgnored::default();
    for (folder, listing) in now.folders_since(Some(before)) {
        let Some(old) = before.rules_at(folder) else { continue };
        if listing.rules.as_ref() != Some(old) {
            search.look(folder, old, &mut found);
        }
    }
    found
}

struct Search<'a> {
    before: &'a StatSnapshot,
    now: &'a StatSnapshot,
    watched: &'a WatchedFolders,
    left: usize,
    /// The new entries at and below the entry that is looked at.
    new: Vec<StatChange>,
}

impl Search<'_> {
    /// Looks at the entries of a folder that are not listed any more, or were not before.
    fn look(&mut self, folder: &Path, old: &FolderRules, found: &mut NewlyIgnored) {
        for (path, is_folder) in self.hidden_entries(folder, old) {
            let is_new = self.before.get(&path).is_none();
            if is_folder && !is_new {
                let old = self.before.rules_at(&path).unwrap_or(old).clone();
                self.look(&path, &old, found);
                continue;
            }
            if !is_new {
                continue;
            }
            self.add(path.clone(), is_folder, old);
            if self.new.len() > MAX_RECORDED {
                found.omitted += self.new.len();
                self.new.clear();
            }
            found.files.append(&mut self.new);
            found.folders.extend(is_folder.then_some(path));
        }
    }

    /// Adds a new entry and what is below it.
    fn add(&mut self, path: PathBuf, is_folder: bool, old: &FolderRules) {
        let mut pending = vec![(path, is_folder)];
        while let Some((path, is_folder)) = pending.pop() {
            if is_folder {
                pending.extend(self.hidden_entries(&path, old));
            }
            let after = lstat(&path);
            self.new.push(StatChange { path, before: None, after });
        }
    }

    /// The entries of a folder that are not listed now and that the old rules do not hide, each with a flag that says
    /// whether it is a folder.
    fn hidden_entries(&mut self, folder: &Path, old: &FolderRules) -> Vec<(PathBuf, bool)> {
        let mut hidden = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten().take(self.left) {
            self.left -= 1;
            let path = entry.path();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_left_out = entry.file_name() == ".git"
                || self.watched.private.contains(&path)
                || self.now.get(&path).is_some()
                || self.before.get(&path).is_none() && old.ignores(&path, is_folder);
            if !is_left_out {
                hidden.push((path, is_folder));
            }
        }
        hidden
    }
}
