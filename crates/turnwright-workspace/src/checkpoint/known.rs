//! Contents that are at hand without reading a file: what was copied before a command, and what a
//! call has left.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::git::{Repository, Stat};
use super::look::{Found, look};
use super::map::{Map, Sort, sort, stat};
use turnwright_types::effect::is_secret;

/// Bytes of a file that is copied before a command.
pub(super) const MOST_OF_ONE: u64 = 256 * 1024;
/// Bytes of all copies.
const MOST_BYTES: usize = 20 * 1024 * 1024;
/// How long files are copied before one command.
const LONGEST: Duration = Duration::from_millis(200);
/// Files of which something is known.
const MOST_FILES: usize = 50_000;

/// The contents.
#[derive(Debug, Default)]
pub(super) struct Known {
    files: HashMap<PathBuf, (Stat, Found)>,
    bytes: usize,
}

impl Known {
    /// What there was at a path when `lstat` said this.
    pub(super) fn get(&self, path: &Path, stat: &Stat) -> Option<&Found> {
        self.files.get(path).filter(|it| it.0 == *stat).map(|it| &it.1)
    }

    /// What there is at a path now. Bytes that are kept elsewhere need not come along.
    pub(super) fn learn(&mut self, path: &Path, stat: Stat, found: Found) {
        self.forget(path);
        let bytes = found.bytes.as_ref().map_or(0, |it| it.len());
        if self.files.len() < MOST_FILES && self.bytes + bytes <= MOST_BYTES {
            self.bytes += bytes;
            self.files.insert(path.to_path_buf(), (stat, found));
        }
    }

    pub(super) fn forget(&mut self, path: &Path) {
        if let Some((_, found)) = self.files.remove(path) {
            self.bytes -= found.bytes.map_or(0, |it| it.len());
        }
    }

    /// Copies what a command could change and nobody else has. Reads the disk.
    pub(super) fn copy(&mut self, map: &Map, repositories: &[Repository]) {
        let begun = Instant::now();
        let is_old = |path: &PathBuf, stat: &Stat| map.entries.get(path) != Some(stat);
        let old: Vec<_> =
            self.files.iter().filter(|it| is_old(it.0, &it.1.0)).map(|it| it.0.clone()).collect();
        for path in old {
            self.forget(&path);
        }
        let is_wanted = |path: &Path, stat: &Stat| match sort(stat) {
            Sort::Folder => false,
            Sort::Link => self.get(path, stat).is_none(),
            Sort::File => {
                stat.size <= MOST_OF_ONE
                    && self.get(path, stat).is_none()
                    && !repositories.iter().any(|it| it.clean(path, stat).is_some())
                    && !is_secret(path)
            }
        };
        let mut wanted: Vec<_> = map.entries.iter().filter(|it| is_wanted(it.0, it.1)).collect();
        // What was changed last is most likely to be changed again.
        wanted.sort_unstable_by_key(|it| std::cmp::Reverse(it.1.mtime));
        for (path, before) in wanted {
            if begun.elapsed() > LONGEST || self.bytes >= MOST_BYTES {
                break;
            }
            let found = look(path, true);
            // It must be what the map knows.
            if now(path) == Some(*before) {
                self.learn(path, *before, found);
            }
        }
    }
}

/// What `lstat` says now.
pub(super) fn now(path: &Path) -> Option<Stat> {
    stat(&std::fs::symlink_metadata(path).ok()?)
}
