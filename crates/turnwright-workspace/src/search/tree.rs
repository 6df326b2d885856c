//! Lists a folder as a tree that fits on a page: level by level, and of folders with too many
//! entries only their number.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ignore::IncrementalIgnore;

use super::walk::ignore_rules;
use super::{SearchDeadline, SearchScope, has_unsafe_ignore_files};
use crate::files::is_temporary_name;
use crate::nofollow;

/// The most entries of a tree.
const MAX_ENTRIES: usize = 200;
/// The most entries shown of a folder below the listed one.
const MAX_NESTED_ENTRIES: usize = 60;
/// The most entries that are counted in a folder.
const MAX_COUNTED: usize = 100_000;
/// Folders with generated content, which are never expanded.
const GENERATED_FOLDERS: &[&str] = &[".git", "node_modules", "target", "__pycache__", ".venv"];

#[derive(Clone, Debug, Default)]
pub struct FolderTree {
    /// The entries, each folder before its content, ordered by name.
    pub entries: Vec<TreeEntry>,
    /// How many entries of the listed folder did not fit.
    pub omitted: usize,
    /// The number of entries left out because they are hidden, apart from `.git`, or because of ignore rules.
    pub ignored: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// The path relative to the listed folder.
    pub path: PathBuf,
    pub kind: TreeEntryKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeEntryKind {
    /// A file of this size in bytes.
    File(u64),
    /// A folder whose entries follow, or that is at the maximal depth.
    Folder,
    /// A folder with this many entries, which are not shown.
    Collapsed(usize),
    /// A symbolic link, which is not followed.
    Link,
    /// A FIFO, a socket or a device.
    Special,
}

/// Lists a folder down to a depth.
pub fn list_tree(
    scope: &SearchScope,
    depth: usize,
    stop: &SearchDeadline,
) -> io::Result<FolderTree> {
    let matcher = ignore_rules(&scope.root, scope.include_hidden).build_matchers().pop();
    let mut lister = TreeLister { scope, matcher, ignored: 0 };
    let mut entries = lister.read(Path::new(""), MAX_COUNTED)?;
    let omitted = entries.len().saturating_sub(MAX_ENTRIES);
    entries.truncate(MAX_ENTRIES);
    // Level by level, so that one folder cannot take the space of all others.
    let mut next = 0;
    while let Some(TreeEntry { path, kind }) = entries.get(next).cloned() {
        let at = next;
        next += 1;
        if path.iter().count() >= depth || kind != TreeEntryKind::Folder || stop.is_expired() {
            continue;
        }
        let is_generated =
            path.file_name().is_some_and(|name| GENERATED_FOLDERS.iter().any(|no| name == *no));
        let most = MAX_NESTED_ENTRIES.min(MAX_ENTRIES - entries.len());
        let room = if is_generated { 0 } else { most };
        // A folder that cannot be read is listed without its content.
        let Ok(below) = lister.read(&path, room) else { continue };
        if below.len() > room {
            entries[at].kind = TreeEntryKind::Collapsed(lister.count(&path));
        } else {
            entries.extend(below);
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(FolderTree { entries, omitted, ignored: lister.ignored })
}

struct TreeLister<'a> {
    scope: &'a SearchScope,
    matcher: Option<IncrementalIgnore>,
    ignored: usize,
}

impl TreeLister<'_> {
    /// The entries of a folder, ordered by name. If there are more than `most`, only some of them
    /// are returned.
    fn read(&mut self, below: &Path, max_entries: usize) -> io::Result<Vec<TreeEntry>> {
        let path = self.scope.root.join(below);
        if !self.scope.include_hidden && below != Path::new("") && has_unsafe_ignore_files(&path) {
            return Err(io::Error::other("its ignore files are not safe to read"));
        }
        let (_held, folder) = nofollow::open_folder(&path)?;
        let mut entries = Vec::new();
        let mut ignored = 0;
        for entry in fs::read_dir(folder)?.filter_map(Result::ok) {
            if entries.len() > max_entries || ignored > MAX_COUNTED {
                break;
            }
            let name = entry.file_name();
            let is_hidden = name.as_encoded_bytes().starts_with(b".");
            if is_hidden && (!self.scope.include_hidden || is_temporary_name(&name)) {
                // A folder of which nothing is shown may not be empty.
                ignored += usize::from(name != ".git" && !is_temporary_name(&name));
                continue;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if self.is_ignored(below, &name, metadata.is_dir()) {
                ignored += 1;
                continue;
            }
            let kind = match metadata.file_type() {
                kind if kind.is_dir() => TreeEntryKind::Folder,
                kind if kind.is_symlink() => TreeEntryKind::Link,
                kind if kind.is_file() => TreeEntryKind::File(metadata.len()),
                _ => TreeEntryKind::Special,
            };
            entries.push(TreeEntry { path: below.join(name), kind });
        }
        if entries.len() <= max_entries {
            self.ignored += ignored;
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    fn is_ignored(&mut self, below: &Path, name: &OsString, is_folder: bool) -> bool {
        let path = below.join(name);
        let matcher = self.matcher.as_mut();
        matcher.is_some_and(|matcher| matcher.matched(&path, is_folder).is_ignore())
            || (self.scope.excluded)(&self.scope.root.join(&path))
    }

    fn count(&self, below: &Path) -> usize {
        let Ok((_held, folder)) = nofollow::open_folder(&self.scope.root.join(below)) else {
            return 0;
        };
        fs::read_dir(folder).map_or(0, |entries| entries.take(MAX_COUNTED).count())
    }
}
