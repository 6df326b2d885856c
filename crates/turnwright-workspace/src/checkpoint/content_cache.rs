//! A cache of file contents: copies made before a command, and contents that calls have left.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::git::attributes::ConvertedFiles;
use super::git::{FileStat, Repository};
use super::observe::{ObservedState, observe};
use super::snapshot::folder_listing::FolderListing;
use super::snapshot::{StatKind, StatSnapshot, stat_kind};
use turnwright_types::effect::is_secret_path;

/// The largest file that is copied before a command.
pub(super) const MAX_CACHED_FILE: u64 = 256 * 1024;
/// The most bytes of all cached contents.
const MAX_BYTES: usize = 20 * 1024 * 1024;
/// How long files are copied before one command.
pub(super) const COPY_LIMIT: Duration = Duration::from_millis(200);
/// How long before one command, if they were there before the last one, which had no time for them.
const LATE_COPY_LIMIT: Duration = Duration::from_millis(15);
/// This many files are copied even if it takes longer: on a busy machine, the time may be over before the
/// first one is read, and then nothing that a command does in a small project could be undone.
const ALWAYS_COPIED: usize = 32;
/// The number of files that are passed over, because they do not fit beside what is copied already, until no more
/// are looked at.
const MAX_TOO_LARGE: usize = 64;
/// The most cached files.
const MAX_FILES: usize = 50_000;

/// The cached states, each with the stat data that it belongs to.
#[derive(Debug, Default)]
pub(super) struct ContentCache {
    files: HashMap<PathBuf, (FileStat, ObservedState)>,
    bytes: usize,
    /// The files that the last preload had no time or room for, the one that was changed last at the end.
    uncopied: Vec<UncopiedFile>,
}

/// A file of the last snapshot whose content is still to be copied.
#[derive(Debug)]
struct UncopiedFile {
    folder: Arc<Path>,
    listing: Arc<FolderListing>,
    /// Its place in the listing.
    index: usize,
}

impl UncopiedFile {
    fn stat(&self) -> FileStat {
        self.listing.entries.at(self.index).map(|(_, stat)| *stat).unwrap_or_default()
    }

    fn path(&self) -> PathBuf {
        let name = self.listing.entries.at(self.index).map(|(name, _)| name);
        self.folder.join(name.unwrap_or_default())
    }
}

impl ContentCache {
    /// The state of a path for these stat data.
    pub(super) fn get(&self, path: &Path, stat: &FileStat) -> Option<&ObservedState> {
        self.files.get(path).filter(|known| known.0 == *stat).map(|known| &known.1)
    }

    /// Caches the state of a path. Contents that the store has need not be included.
    pub(super) fn insert(&mut self, path: &Path, stat: FileStat, found: ObservedState) {
        self.remove(path);
        let bytes = found.bytes.as_ref().map_or(0, |bytes| bytes.len());
        if self.files.len() < MAX_FILES && self.bytes + bytes <= MAX_BYTES {
            self.bytes += bytes;
            self.files.insert(path.to_path_buf(), (stat, found));
        }
    }

    pub(super) fn remove(&mut self, path: &Path) {
        if let Some((_, found)) = self.files.remove(path) {
            self.bytes -= found.bytes.map_or(0, |bytes| bytes.len());
        }
    }

    /// Copies files that a command could change and that no repository has. Those of `previous` have been copied
    /// already, or are still to be copied. Blocks.
    pub(super) fn preload(
        &mut self,
        limit: Duration,
        previous: Option<&StatSnapshot>,
        snapshot: &StatSnapshot,
        repositories: &[Arc<Repository>],
        converted: &ConvertedFiles,
    ) {
        let start = Instant::now();
        self.remove_stale(previous, snapshot);
        let mut wanted = wanted(previous, snapshot, repositories, converted);
        // Files that were changed last are most likely to be changed again. What has changed since the previous
        // snapshot was changed after what is still to be copied.
        wanted.sort_unstable_by_key(|file| file.stat().mtime);
        let late_files = self.uncopied.len();
        self.uncopied.append(&mut wanted);
        let mut count = 0;
        let mut too_large = Vec::new();
        while let Some(file) = self.uncopied.pop() {
            let is_late = self.uncopied.len() < late_files;
            let limit = if is_late { limit.min(LATE_COPY_LIMIT) } else { limit };
            let stat = file.stat();
            let is_full = self.files.len() >= MAX_FILES || too_large.len() >= MAX_TOO_LARGE;
            if is_full || count >= ALWAYS_COPIED && start.elapsed() > limit {
                self.uncopied.push(file);
                break;
            }
            if usize::try_from(stat.size).map_or(true, |size| self.bytes + size > MAX_BYTES) {
                too_large.push(file);
                continue;
            }
            let path = file.path();
            let is_link = stat_kind(&stat) == StatKind::Link;
            if self.get(&path, &stat).is_some() || !is_link && is_secret_path(&path) {
                continue;
            }
            count += 1;
            let found = observe(&path, true);
            // The file must not have changed since the snapshot.
            if lstat(&path) == Some(stat) {
                self.insert(&path, stat, found);
            }
        }
        self.uncopied.extend(too_large.into_iter().rev());
    }

    /// Removes the states of files that have changed, and what is still to be copied of changed folders.
    fn remove_stale(&mut self, previous: Option<&StatSnapshot>, snapshot: &StatSnapshot) {
        let Some(previous) = previous else {
            self.files.retain(|path, known| snapshot.get(path) == Some(known.0));
            let bytes = self.files.values().filter_map(|known| known.1.bytes.as_ref());
            self.bytes = bytes.map(|bytes| bytes.len()).sum();
            self.uncopied.clear();
            return;
        };
        let mut outdated = HashSet::new();
        for (folder, listing) in previous.folders_since(Some(snapshot)) {
            outdated.insert(Arc::as_ptr(listing));
            for (name, _) in listing.entries.iter() {
                let path = folder.join(name);
                if self.files.get(&path).is_some_and(|known| snapshot.get(&path) != Some(known.0)) {
                    self.remove(&path);
                }
            }
        }
        if !outdated.is_empty() {
            self.uncopied.retain(|file| !outdated.contains(&Arc::as_ptr(&file.listing)));
        }
    }
}

/// The files in changed folders that are small enough to be copied and that no repository has.
fn wanted(
    previous: Option<&StatSnapshot>,
    snapshot: &StatSnapshot,
    repositories: &[Arc<Repository>],
    converted: &ConvertedFiles,
) -> Vec<UncopiedFile> {
    let mut wanted = Vec::new();
    for (folder, listing) in snapshot.folders_since(previous) {
        let mut indexed: Vec<_> =
            repositories.iter().filter_map(|repository| repository.folder(folder)).collect();
        for (index, (name, stat)) in listing.entries.iter().enumerate() {
            let is_wanted = match stat_kind(stat) {
                StatKind::Folder => false,
                StatKind::Link => true,
                StatKind::File if stat.size > MAX_CACHED_FILE => false,
                StatKind::File => {
                    let is_stored =
                        indexed.iter_mut().any(|index| index.next_clean_blob(name, stat).is_some())
                            && (converted.is_empty() || !converted.contains(&folder.join(name)));
                    !is_stored
                }
            };
            if is_wanted {
                let folder = Arc::clone(folder);
                let listing = Arc::clone(listing);
                wanted.push(UncopiedFile { folder, listing, index });
            }
        }
    }
    wanted
}

/// The current stat data.
#[cfg(unix)]
pub(super) fn lstat(path: &Path) -> Option<FileStat> {
    FileStat::tracked(&rustix::fs::lstat(path).ok()?)
}

/// The current stat data of what a path leads to.
#[cfg(unix)]
pub(super) fn target_stat(path: &Path) -> Option<FileStat> {
    Some(FileStat::new(&rustix::fs::stat(path).ok()?))
}

#[cfg(not(unix))]
pub(super) fn lstat(path: &Path) -> Option<FileStat> {
    Some(FileStat::tracked(&std::fs::symlink_metadata(path).ok()?))
}

#[cfg(not(unix))]
pub(super) fn target_stat(path: &Path) -> Option<FileStat> {
    Some(FileStat::new(&std::fs::metadata(path).ok()?))
}

#[cfg(test)]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    /// A folder, and its path without links.
    fn real_folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let top = crate::real_path(folder.path()).unwrap();
        (folder, top)
    }

    fn snapshot_of(folder: &Path, names: &[String]) -> StatSnapshot {
        let entries = names.iter().map(|name| (name.as_str(), lstat(&folder.join(name)).unwrap()));
        StatSnapshot::of_folder(folder, entries)
    }

    /// Names of files with their names as contents.
    fn write_files(folder: &Path, count: usize) -> Vec<String> {
        let names: Vec<_> = (0..count).map(|number| format!("file{number}")).collect();
        for name in &names {
            std::fs::write(folder.join(name), name).unwrap();
        }
        names
    }

    #[test]
    fn a_few_files_are_copied_however_long_it_takes_and_the_rest_before_later_commands() {
        let (_folder, top) = real_folder();
        let names = write_files(&top, ALWAYS_COPIED * 2 + 1);
        let snapshot = snapshot_of(&top, &names);
        let mut contents = ContentCache::default();
        let mut previous = None;
        for copied in [ALWAYS_COPIED, ALWAYS_COPIED * 2, names.len(), names.len()] {
            contents.preload(Duration::ZERO, previous, &snapshot, &[], &ConvertedFiles::default());
            assert_eq!(contents.files.len(), copied);
            previous = Some(&snapshot);
        }
        for name in &names {
            let path = top.join(name);
            let copy = contents.get(&path, &lstat(&path).unwrap()).unwrap();
            assert_eq!(copy.bytes.as_deref(), Some(name.as_bytes()));
        }
    }

    #[test]
    fn a_file_for_which_there_is_no_room_does_not_keep_others_out() {
        let (_folder, top) = real_folder();
        let mut names = write_files(&top, 2);
        let mut contents = ContentCache::default();
        contents.preload(
            Duration::MAX,
            None,
            &snapshot_of(&top, &names[..1]),
            &[],
            &ConvertedFiles::default(),
        );
        let room = 100;
        contents.bytes = MAX_BYTES - room;
        names.push("large".to_owned());
        std::fs::write(top.join("large"), vec![b'x'; room + 1]).unwrap();
        let before = snapshot_of(&top, &names[..1]);
        contents.preload(
            Duration::MAX,
            Some(&before),
            &snapshot_of(&top, &names),
            &[],
            &ConvertedFiles::default(),
        );
        let copied = names.iter().map(|name| contents.files.contains_key(&top.join(name)));
        assert_eq!(copied.collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(contents.uncopied.len(), 1);
    }

    #[test]
    fn what_has_changed_meanwhile_is_copied_as_it_is_now() {
        let (_folder, top) = real_folder();
        let mut names = write_files(&top, ALWAYS_COPIED + 3);
        let before = snapshot_of(&top, &names);
        let mut contents = ContentCache::default();
        contents.preload(Duration::ZERO, None, &before, &[], &ConvertedFiles::default());
        assert_eq!(contents.uncopied.len(), 3);
        let gone = names.pop().unwrap();
        std::fs::remove_file(top.join(gone)).unwrap();
        for name in &names {
            std::fs::write(top.join(name), "changed").unwrap();
        }
        let after = snapshot_of(&top, &names);
        contents.preload(Duration::MAX, Some(&before), &after, &[], &ConvertedFiles::default());
        assert_eq!((contents.files.len(), contents.uncopied.len()), (names.len(), 0));
        let copies: Vec<_> = contents.files.values().map(|file| file.1.bytes.as_deref()).collect();
        assert!(copies.iter().all(|copy| *copy == Some(b"changed")));
        assert_eq!(contents.bytes, "changed".len() * names.len());
    }
}
