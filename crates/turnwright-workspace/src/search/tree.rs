//! What a folder holds, as a tree that fits on a page: a level at a time, and of folders that
//! are too full only how many entries they have.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ignore::IncrementalIgnore;

use super::walk::rules;
use super::{Scope, Stop, are_odd};
use crate::pinned;

/// Entries of a tree.
const MOST_ENTRIES: usize = 200;
/// Entries of a folder below the listed one that are shown.
const MOST_BELOW: usize = 60;
/// Entries of a folder that are counted.
const MOST_COUNTED: usize = 100_000;
/// Folders that hold what a tool has made.
const HEAVY: &[&str] = &[".git", "node_modules", "target", "__pycache__", ".venv"];

/// A folder's tree.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Folders before what they hold, in the order of their names.
    pub entries: Vec<Branch>,
    /// Entries of the listed folder that there is no room for.
    pub more: usize,
    /// Entries that are ignored.
    pub ignored: usize,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Relative to the listed folder.
    pub path: PathBuf,
    /// What it is.
    pub sort: Sort,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A file and its bytes.
    File(u64),
    /// A folder whose entries follow, or are deeper than was asked for.
    Folder,
    /// A folder with so many entries that they are not shown.
    Full(usize),
    /// A symbolic link; not followed.
    Link,
    /// A FIFO, a socket or a device.
    Special,
}

/// Lists a folder down to a depth.
///
/// # Errors
/// When it cannot be read.
pub fn list(scope: &Scope, depth: usize, stop: &Stop) -> io::Result<Tree> {
    let matcher = rules(&scope.root, scope.hidden).build_matchers().pop();
    let mut lister = Lister { scope, matcher, ignored: 0 };
    let top = lister.read(Path::new(""), MOST_COUNTED)?;
    let more = top.len().saturating_sub(MOST_ENTRIES);
    let mut nodes: Vec<Node> = Vec::new();
    let mut roots: Vec<usize> = Vec::new();
    let mut waiting = VecDeque::new();
    for branch in top.into_iter().take(MOST_ENTRIES) {
        roots.push(nodes.len());
        waiting.push_back((nodes.len(), 1));
        nodes.push(Node { branch, below: Vec::new() });
    }
    // Level by level, so that one folder cannot take the room of all others.
    while let Some((at, level)) = waiting.pop_front() {
        if level >= depth || nodes[at].branch.sort != Sort::Folder || stop.is_over() {
            continue;
        }
        let path = nodes[at].branch.path.clone();
        let is_heavy = path.file_name().is_some_and(|it| HEAVY.iter().any(|no| it == *no));
        let room = if is_heavy { 0 } else { MOST_BELOW.min(MOST_ENTRIES - nodes.len()) };
        // A folder that may not be read is listed all the same.
        let Ok(below) = lister.read(&path, room) else { continue };
        if below.len() > room {
            nodes[at].branch.sort = Sort::Full(lister.count(&path));
            continue;
        }
        for branch in below {
            let next = nodes.len();
            nodes[at].below.push(next);
            waiting.push_back((next, level + 1));
            nodes.push(Node { branch, below: Vec::new() });
        }
    }
    let mut tree = Tree { entries: Vec::new(), more, ignored: lister.ignored };
    roots.reverse();
    while let Some(at) = roots.pop() {
        tree.entries.push(nodes[at].branch.clone());
        roots.extend(nodes[at].below.iter().rev());
    }
    Ok(tree)
}

struct Node {
    branch: Branch,
    below: Vec<usize>,
}

struct Lister<'a> {
    scope: &'a Scope,
    matcher: Option<IncrementalIgnore>,
    ignored: usize,
}

impl Lister<'_> {
    /// The entries of a folder in order; of one with more than `most`, only some.
    fn read(&mut self, below: &Path, most: usize) -> io::Result<Vec<Branch>> {
        let path = self.scope.root.join(below);
        if !self.scope.hidden && below != Path::new("") && are_odd(&path) {
            return Err(io::Error::other("its ignore rules must not be opened"));
        }
        let (_held, folder) = pinned::folder(&path)?;
        let mut branches = Vec::new();
        let mut ignored = 0;
        for entry in fs::read_dir(folder)?.filter_map(Result::ok) {
            if branches.len() > most || ignored > MOST_COUNTED {
                break;
            }
            let name = entry.file_name();
            if !self.scope.hidden && name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if self.is_ignored(below, &name, metadata.is_dir()) {
                ignored += 1;
                continue;
            }
            let sort = match metadata.file_type() {
                it if it.is_dir() => Sort::Folder,
                it if it.is_symlink() => Sort::Link,
                it if it.is_file() => Sort::File(metadata.len()),
                _ => Sort::Special,
            };
            branches.push(Branch { path: below.join(name), sort });
        }
        if branches.len() <= most {
            self.ignored += ignored;
        }
        branches.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(branches)
    }

    fn is_ignored(&mut self, below: &Path, name: &OsString, is_folder: bool) -> bool {
        let path = below.join(name);
        let matcher = self.matcher.as_mut();
        matcher.is_some_and(|it| it.matched(&path, is_folder).is_ignore())
            || self.scope.except.holds(&self.scope.root.join(&path))
    }

    fn count(&self, below: &Path) -> usize {
        let Ok((_held, folder)) = pinned::folder(&self.scope.root.join(below)) else { return 0 };
        fs::read_dir(folder).map_or(0, |it| it.take(MOST_COUNTED).count())
    }
}
