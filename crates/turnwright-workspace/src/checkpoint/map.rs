//! Which files there are in the session's folders and what `lstat` says of them, by the project's
//! ignore rules; and what differs between two such maps.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::git::Stat;
use crate::files::Roots;
use crate::search::{Except, Scope, Stop, each};

/// Entries of a map.
const MOST_ENTRIES: usize = 200_000;

/// What is looked at.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    /// Real paths, none below another.
    folders: Vec<PathBuf>,
    /// What belongs to us.
    private: Vec<PathBuf>,
}

impl Ground {
    pub(super) fn of(roots: &Roots) -> Ground {
        let all: Vec<_> = roots.folders().map(Path::to_path_buf).collect();
        let is_first = |it: &PathBuf| !all.iter().any(|other| it != other && it.starts_with(other));
        let mut folders: Vec<_> = all.iter().filter(|it| is_first(it)).cloned().collect();
        folders.sort_unstable();
        folders.dedup();
        Ground { folders, private: roots.private().map(Path::to_path_buf).collect() }
    }

    pub(super) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }
}

/// Why there is no map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    TooMany,
    TooLong,
}

/// The files at one time.
#[derive(Clone, Debug)]
pub(super) struct Map {
    /// When it was begun.
    pub(super) at: SystemTime,
    /// How long it took.
    pub(super) took: Duration,
    pub(super) entries: HashMap<PathBuf, Stat>,
}

/// A path that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Differs {
    pub(super) path: PathBuf,
    pub(super) before: Option<Stat>,
    pub(super) after: Option<Stat>,
}

impl Map {
    /// Makes one. Reads the disk; ends early when the flag is set.
    pub(super) fn draw(
        ground: &Ground,
        limit: Duration,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<Map, Cut> {
        let (at, begun) = (SystemTime::now(), Instant::now());
        let stop = Stop::new(Arc::clone(cancelled), limit);
        let count = AtomicUsize::new(0);
        let mut entries = HashMap::new();
        for folder in &ground.folders {
            let private = ground.private.clone();
            let except = Except::new(move |it| private.iter().any(|own| own == it));
            let scope = Scope { except, hidden: true, ..Scope::of(folder) };
            let visit = |found: &mut Vec<(PathBuf, Stat)>, path: &Path, about: &Metadata| {
                if count.fetch_add(1, Ordering::Relaxed) >= MOST_ENTRIES {
                    stop.end();
                }
                found.extend(stat(about).map(|it| (path.to_path_buf(), it)));
            };
            for found in each(&scope, &stop, &visit) {
                entries.extend(found);
            }
        }
        if count.into_inner() > MOST_ENTRIES {
            return Err(Cut::TooMany);
        }
        if stop.has_cut() {
            return Err(Cut::TooLong);
        }
        Ok(Map { at, took: begun.elapsed(), entries })
    }

    /// We have changed this ourselves.
    pub(super) fn touched(&mut self, path: &Path) {
        match std::fs::symlink_metadata(path).ok().and_then(|it| stat(&it)) {
            Some(stat) => drop(self.entries.insert(path.to_path_buf(), stat)),
            None => drop(self.entries.remove(path)),
        }
    }

    /// What is not the same in a later map, in order.
    pub(super) fn compare(&self, later: &Map) -> Vec<Differs> {
        let mut all = Vec::new();
        for (path, before) in &self.entries {
            let after = later.entries.get(path).copied();
            if after != Some(*before) {
                all.push(Differs { path: path.clone(), before: Some(*before), after });
            }
        }
        let is_new = |it: &(&PathBuf, &Stat)| !self.entries.contains_key(it.0);
        for (path, after) in later.entries.iter().filter(is_new) {
            all.push(Differs { path: path.clone(), before: None, after: Some(*after) });
        }
        all.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        all
    }
}

/// The bits of a mode that say what it is.
const SORT: u32 = 0o170_000;

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    File,
    Link,
    Folder,
}

pub(super) fn sort(stat: &Stat) -> Sort {
    match stat.mode & SORT {
        0o040_000 => Sort::Folder,
        0o120_000 => Sort::Link,
        _ => Sort::File,
    }
}

/// What is to be known of a file, a link or a folder.
#[cfg(unix)]
pub(super) fn stat(about: &Metadata) -> Option<Stat> {
    let all = Stat::of(about);
    if about.is_dir() {
        // The rest changes with each file that comes or goes in it.
        let nothing = (0, 0);
        return Some(Stat { size: 0, mtime: nothing, ctime: nothing, ino: 0, mode: all.mode });
    }
    (about.is_file() || about.is_symlink()).then_some(all)
}

#[cfg(not(unix))]
pub(super) fn stat(_: &Metadata) -> Option<Stat> {
    None
}
