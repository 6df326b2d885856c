//! One look at the protected places: what stands where, with copies of what is short enough.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Tripwire;
use turnwright_policy::permission::Protected;
use turnwright_workspace::pinned;

/// Files of which a copy is kept, bytes of each, and of all.
pub(super) const MOST_COPIES: usize = 64;
pub(super) const LONGEST_COPY: u64 = 256 * 1024;
const MOST_BYTES: u64 = 2 * 1024 * 1024;
/// Files and folders that are looked at in each place.
pub(super) const MOST_ENTRIES: usize = 2_000;
/// What tells that a file is no more the one it was, without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) length: u64,
    pub(super) mode: u32,
    inode: u64,
    changed: (i64, i64),
}

/// What stood at a path.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Folder,
    Link(PathBuf),
    /// Its content, if it was short enough to keep.
    File(Stamp, Option<Arc<[u8]>>),
    /// A socket and the like.
    Other,
}

impl Entry {
    /// Whether it cannot be put back.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Entry::File(_, None))
    }
}

/// One look at everything.
#[derive(Default)]
pub(super) struct Look<'a> {
    pub(super) entries: BTreeMap<PathBuf, Entry>,
    /// Whether contents are read.
    pub(super) reads: bool,
    /// Who may know them already.
    pub(super) last: Option<&'a Tripwire>,
    pub(super) copies: usize,
    pub(super) bytes: u64,
    pub(super) full: Vec<PathBuf>,
}

impl Look<'_> {
    pub(super) fn at_all(&mut self, protected: &Protected) {
        // Git's own first: there are not copies of everything.
        let git_first = |mut places: Vec<PathBuf>| {
            places.sort_by_key(|it| !it.iter().any(|part| part == ".git"));
            places
        };
        for place in git_first(protected.places()) {
            self.at(&place);
        }
        for place in git_first(protected.ends()) {
            let mut left = MOST_ENTRIES;
            self.below(&place, &mut left);
            if left == 0 {
                tracing::warn!(?place, "there are too many protected files to watch all of them");
                self.full.push(place);
            }
        }
    }

    /// Looks at one thing, and says whether it is a folder.
    pub(super) fn at(&mut self, path: &Path) -> bool {
        let Ok(metadata) = fs::symlink_metadata(path) else { return false };
        let kind = metadata.file_type();
        if self.entries.contains_key(path) {
            return kind.is_dir();
        }
        let entry = if kind.is_dir() {
            Entry::Folder
        } else if kind.is_symlink() {
            Entry::Link(fs::read_link(path).unwrap_or_default())
        } else if kind.is_file() {
            let stamp = stamp(&metadata);
            let content = self.content(path, &stamp);
            Entry::File(stamp, content)
        } else {
            Entry::Other
        };
        self.entries.insert(path.to_path_buf(), entry);
        kind.is_dir()
    }

    fn below(&mut self, folder: &Path, left: &mut usize) {
        if !fs::symlink_metadata(folder).is_ok_and(|it| it.is_dir()) {
            return;
        }
        let Ok(entries) = fs::read_dir(folder) else { return };
        // Closed before the next one is opened: folders may lie very deep.
        let paths: Vec<_> = entries.flatten().take(*left).map(|it| it.path()).collect();
        *left -= paths.len();
        for path in paths {
            if self.at(&path) {
                self.below(&path, left);
            }
        }
    }

    fn content(&mut self, path: &Path, stamp: &Stamp) -> Option<Arc<[u8]>> {
        let has_room = self.copies < MOST_COPIES && self.bytes + stamp.length <= MOST_BYTES;
        if !self.reads || !has_room || stamp.length > LONGEST_COPY {
            return None;
        }
        self.copies += 1;
        self.bytes += stamp.length;
        match self.last.and_then(|it| it.entries.get(path)) {
            Some(Entry::File(known, Some(content))) if known == stamp => Some(Arc::clone(content)),
            _ => read(path, stamp.length),
        }
    }
}

/// All of a file, unless it has grown meanwhile.
pub(super) fn read(path: &Path, length: u64) -> Option<Arc<[u8]>> {
    if length > LONGEST_COPY {
        return None;
    }
    // A folder on the way may be the user's link; what is read is only compared and put back.
    let file = pinned::file(&fs::canonicalize(path).ok()?).ok()?;
    let mut bytes = Vec::new();
    file.take(length + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 == length).then(|| bytes.into())
}

#[cfg(unix)]
fn stamp(metadata: &Metadata) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    Stamp {
        length: metadata.len(),
        mode: metadata.mode(),
        inode: metadata.ino(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    }
}

#[cfg(not(unix))]
fn stamp(metadata: &Metadata) -> Stamp {
    let changed =
        metadata.modified().ok().and_then(|it| it.duration_since(std::time::UNIX_EPOCH).ok());
    let changed = changed.unwrap_or_default();
    let seconds = i64::try_from(changed.as_secs()).unwrap_or_default();
    let mode = u32::from(metadata.permissions().readonly());
    Stamp {
        length: metadata.len(),
        mode,
        inode: 0,
        changed: (seconds, changed.subsec_nanos().into()),
    }
}
