//! Lists folders for snapshots: the stat data of all entries that no ignore rule excludes.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::super::git::FileStat;
#[cfg(target_os = "linux")]
use super::inotify_watch::InotifyWatch as FolderWatch;
use super::listed_entries::ListedEntries;
#[cfg(not(target_os = "linux"))]
use super::no_watch::NoWatch as FolderWatch;
use super::{StatKind, WatchedFolders, stat_kind};
use crate::files::{is_temporary_name, remove_left_file};
use crate::git_repository::repository_in;
use crate::search::{FolderRules, SearchDeadline};
use turnwright_types::git_layout::GitLayout;

/// The most entries of a snapshot. Tests have fewer files.
pub(super) const MAX_ENTRIES: usize = if cfg!(test) { 5_000 } else { 200_000 };
/// At most this many entries of an ignored folder are looked at for files that programs obey.
#[cfg(unix)]
const MAX_OBEYED: usize = 2_000;
/// More threads would only wait for the disk.
const MAX_THREADS: usize = 8;
/// A tree with fewer folders is listed before further threads would have started.
const FOLDERS_OF_ONE_THREAD: usize = 32;
/// How many entries of a folder are listed before the clock is looked at again.
#[cfg(unix)]
const ENTRIES_PER_LOOK: usize = 64;
/// How often a thread that has nothing to do looks whether time is over.
const IDLE_WAIT: Duration = Duration::from_millis(50);
/// The file of virtual environments of Python, which ignore rules nearly always exclude.
pub(super) const ENVIRONMENT_FILE: &str = "pyvenv.cfg";
/// Names of entries that determine which others are listed.
pub(super) const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

pub(in crate::checkpoint) fn is_ignore_file(name: &OsStr) -> bool {
    IGNORE_FILES.iter().any(|file| name == *file)
}

/// The contents of a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::checkpoint) struct FolderListing {
    pub(in crate::checkpoint) entries: ListedEntries,
    /// The inodes of files with another name, through which they can change without an event.
    pub(in crate::checkpoint) hard_linked: Vec<u64>,
    /// An ignore file is a link, or may be, so the rules can change without an event in this folder.
    pub(super) has_linked_rules: bool,
    /// The git repositories here and in ignored folders here: each `.git`, or the folder itself if it
    /// has the layout of one; and the files here and in ignored folders here that programs obey.
    pub(in crate::checkpoint) repositories: Vec<PathBuf>,
    /// The links here, also ignored ones.
    pub(in crate::checkpoint) links: Vec<OsString>,
    /// The ignored folders here.
    pub(in crate::checkpoint) ignored: Vec<PathBuf>,
    /// The ignore rules for what is here; `None` if they are not known.
    pub(in crate::checkpoint) rules: Option<FolderRules>,
    /// The folder cannot be listed.
    pub(in crate::checkpoint) is_unknown: bool,
}

impl FolderListing {
    /// Adds an entry that is not ignored, if its kind is tracked.
    #[cfg(unix)]
    fn add_tracked(&mut self, name: &OsStr, stat: &rustix::fs::Stat, is_folder: bool) {
        let has_other_names = !is_folder && stat.st_nlink > 1;
        if let Some(stat) = FileStat::tracked(stat) {
            self.has_linked_rules |= stat_kind(&stat) == StatKind::Link && is_ignore_file(name);
            self.hard_linked.extend(has_other_names.then_some(stat.ino));
            self.entries.push(name, stat);
        }
    }

    /// The folders among the entries, with their paths.
    pub(in crate::checkpoint) fn subfolders<'a>(
        &'a self,
        folder: &'a Path,
    ) -> impl Iterator<Item = PathBuf> + 'a {
        let folders = self.entries.iter().filter(|(_, stat)| stat_kind(stat) == StatKind::Folder);
        folders.map(|(name, _)| folder.join(name))
    }
}

/// An entry of a folder that is open.
#[cfg(unix)]
struct UnlistedEntry<'a> {
    handle: std::os::fd::BorrowedFd<'a>,
    name: &'a OsStr,
    path: &'a Path,
    /// The path below the root.
    relative: &'a Path,
}

#[cfg(unix)]
impl UnlistedEntry<'_> {
    fn stat(&self) -> Option<rustix::fs::Stat> {
        rustix::fs::statat(self.handle, self.name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// The kind of the entry. Not every file system names it with the entries of a folder.
    fn kind(&self, named: rustix::fs::FileType) -> rustix::fs::FileType {
        match named {
            rustix::fs::FileType::Unknown => {
                self.stat().map_or(named, |stat| rustix::fs::FileType::from_raw_mode(stat.st_mode))
            }
            named => named,
        }
    }
}

fn unknown() -> FolderListing {
    FolderListing { is_unknown: true, ..FolderListing::default() }
}

/// A folder whose ignore files cannot be used. One that is a link may come to lead to a usable one without
/// an event in this folder.
fn without_rules(above: &FolderRules) -> (FolderListing, FolderRules) {
    (FolderListing { has_linked_rules: true, ..unknown() }, above.clone())
}

/// The names in a folder, in memory that is used again for the next one.
#[cfg(unix)]
type FolderNames = ListedEntries<rustix::fs::FileType>;
#[cfg(not(unix))]
type FolderNames = ();

pub(super) type ListedFolder = (Arc<Path>, Arc<FolderListing>);

/// The rules in folders that are not listed themselves, below one root.
pub(super) type KnownRules = HashMap<PathBuf, FolderRules>;

/// Lists folders below one root, whose ignore rules apply.
pub(super) struct FolderLister<'a> {
    root: &'a Path,
    watched: &'a WatchedFolders,
    #[cfg_attr(not(unix), expect(dead_code, reason = "no folder is watched there"))]
    watch: Option<&'a FolderWatch>,
    stop: &'a SearchDeadline,
    /// The entries that were listed, for all roots.
    count: &'a AtomicUsize,
    /// The rules from above the root.
    rules: FolderRules,
    /// The device of the root.
    #[cfg(unix)]
    device: Option<rustix::fs::Dev>,
}

#[cfg(unix)]
fn device_of(folder: impl std::os::fd::AsFd) -> Option<rustix::fs::Dev> {
    Some(rustix::fs::fstat(folder).ok()?.st_dev)
}

impl<'a> FolderLister<'a> {
    /// A lister that leaves out our own folders and adds the others to `watch`.
    pub(super) fn new(
        root: &'a Path,
        watched: &'a WatchedFolders,
        watch: Option<&'a FolderWatch>,
        stop: &'a SearchDeadline,
        count: &'a AtomicUsize,
    ) -> FolderLister<'a> {
        FolderLister {
            root,
            watched,
            watch,
            stop,
            count,
            rules: FolderRules::above(root),
            #[cfg(unix)]
            device: std::fs::File::open(root).ok().and_then(device_of),
        }
    }

    /// Lists a folder and all below it. Blocks.
    pub(super) fn list_tree(&self, folder: PathBuf, known: &mut KnownRules) -> Vec<ListedFolder> {
        let queue = FolderQueue::default();
        let rules = self.rules_above(&folder, known);
        queue.state.lock().folders.push((folder, rules));
        let mut found = self.work(&queue, FOLDERS_OF_ONE_THREAD);
        if queue.state.lock().folders.is_empty() {
            return found;
        }
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let others = thread::scope(|scope| {
            // If the system starts no more threads, this one does all of it.
            let started: Vec<_> = (1..threads)
                .map_while(|_| {
                    thread::Builder::new()
                        .spawn_scoped(scope, || self.work(&queue, usize::MAX))
                        .ok()
                })
                .collect();
            found.extend(self.work(&queue, usize::MAX));
            started
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .flatten()
                .collect::<Vec<_>>()
        });
        found.extend(others);
        found
    }

    fn work(&self, queue: &FolderQueue, most: usize) -> Vec<ListedFolder> {
        let mut names = FolderNames::default();
        let mut found = Vec::new();
        while found.len() < most
            && let Some((folder, rules)) = queue.next(self.stop)
        {
            let folder: Arc<Path> = folder.into();
            let (listing, rules) =
                self.list(&folder, &rules, &mut names).unwrap_or_else(|| (unknown(), rules));
            queue.done(listing.subfolders(&folder).map(|subfolder| (subfolder, rules.clone())));
            found.push((folder, Arc::new(listing)));
        }
        found
    }

    pub(super) fn list_one(&self, folder: &Arc<Path>, known: &mut KnownRules) -> FolderListing {
        let rules = self.rules_above(folder, known);
        self.list(folder, &rules, &mut FolderNames::default()).map_or_else(unknown, |found| found.0)
    }

    /// The rules from above a folder that is the root or below it.
    fn rules_above(&self, folder: &Path, known: &mut KnownRules) -> FolderRules {
        let above = folder.parent().filter(|parent| parent.starts_with(self.root));
        let Some(above) = above else { return self.rules.clone() };
        if let Some(rules) = known.get(above) {
            return rules.clone();
        }
        let inherited = self.rules_above(above, known);
        let rules = self.rules_in(above, &inherited, |_| true).unwrap_or(inherited);
        known.insert(above.to_path_buf(), rules.clone());
        rules
    }

    /// The rules in a folder, given those of the one above it. In an ignored folder that leads to one of the session,
    /// everything else is ignored, too.
    fn rules_in(
        &self,
        folder: &Path,
        above: &FolderRules,
        has: impl Fn(&str) -> bool,
    ) -> Option<FolderRules> {
        let is_own = self.watched.all.iter().any(|own| own == folder);
        if !is_own && self.watched.leads_to_folder(folder) && above.ignores(folder, true) {
            return Some(above.below_ignored(folder));
        }
        above.below(folder, has)
    }

    /// Lists a folder. `above` are the rules of the one above it; those in the folder are returned.
    #[cfg(unix)]
    fn list(
        &self,
        folder: &Arc<Path>,
        above: &FolderRules,
        names: &mut FolderNames,
    ) -> Option<(FolderListing, FolderRules)> {
        use rustix::fs::FileType;

        let mut handle = rustix::fs::Dir::new(self.open_and_watch(folder)?).ok()?;
        self.read_names(&mut handle, names)?;
        let handle = handle.fd().ok()?;
        let found = self.rules_in(folder, above, |name| names.get(name.as_ref()).is_some());
        let Some(rules) = found else { return Some(without_rules(above)) };
        let mut path = folder.to_path_buf();
        let mut relative = folder.strip_prefix(self.root).ok()?.to_path_buf();
        let mut listing = FolderListing {
            entries: ListedEntries::with_room_for(names),
            rules: Some(rules.clone()),
            ..FolderListing::default()
        };
        let mut layout = GitLayout::default();
        let private: Vec<_> = self.private_names(folder).collect();
        for (index, (name, file_type)) in names.iter().enumerate() {
            if index.is_multiple_of(ENTRIES_PER_LOOK) && self.stop.is_expired() {
                return None;
            }
            if private.contains(&name) {
                continue;
            }
            if name == ".git" {
                listing.repositories.push(folder.join(name));
                continue;
            }
            layout.note(name);
            path.push(name);
            relative.push(name);
            let entry = UnlistedEntry { handle, name, path: &path, relative: &relative };
            if is_temporary_name(name) && entry.kind(*file_type) == FileType::RegularFile {
                remove_left_file(&path);
            } else {
                self.add(&mut listing, folder, &entry, *file_type, |is_folder| {
                    rules.ignores(&path, is_folder) && !self.watched.leads_to_folder(&path)
                });
            }
            path.pop();
            relative.pop();
        }
        if layout.is_repository() {
            listing.repositories.push(folder.to_path_buf());
        }
        listing.entries.shrink_to_fit();
        listing.repositories.sort();
        Some((listing, rules))
    }

    /// Adds an entry to the listing of a folder, unless it is ignored.
    #[cfg(unix)]
    fn add(
        &self,
        listing: &mut FolderListing,
        folder: &Arc<Path>,
        entry: &UnlistedEntry<'_>,
        file_type: rustix::fs::FileType,
        is_ignored: impl FnOnce(bool) -> bool,
    ) {
        use rustix::fs::FileType;

        let UnlistedEntry { name, path, relative, .. } = entry;
        let file_type = entry.kind(file_type);
        let is_folder = file_type == FileType::Directory;
        if !is_folder && (self.watched.obeyed.is_obeyed)(relative, file_type == FileType::Symlink) {
            listing.repositories.push(path.to_path_buf());
        }
        if file_type == FileType::Symlink {
            listing.links.push(name.to_os_string());
        }
        if self.watched.omits_files && !is_folder && !is_ignore_file(name) {
            return;
        }
        if is_ignored(is_folder) {
            if is_folder {
                if let Some(watch) = self.watch {
                    watch.add_ignored(&(*path).into(), folder, false);
                }
                self.add_ignored(listing, path, relative);
                if (self.watched.obeyed.may_hold)(relative) {
                    listing.repositories.extend(self.obeyed_in_ignored(path, folder));
                }
            }
            return;
        }
        let Some(stat) = entry.stat() else { return };
        if self.count.fetch_add(1, Ordering::Relaxed) >= MAX_ENTRIES {
            self.stop.stop_early();
        }
        listing.add_tracked(name, &stat, is_folder);
    }

    /// Reads the names of all entries of a folder, and sorts them.
    #[cfg(unix)]
    fn read_names(&self, handle: &mut rustix::fs::Dir, names: &mut FolderNames) -> Option<()> {
        use std::os::unix::ffi::OsStrExt;

        names.clear();
        while let Some(Ok(entry)) = handle.read() {
            if names.len().is_multiple_of(ENTRIES_PER_LOOK) && self.stop.is_expired() {
                return None;
            }
            let name = entry.file_name().to_bytes();
            if ![b".".as_slice(), b".."].contains(&name) {
                names.push(OsStr::from_bytes(name), entry.file_type());
            }
        }
        names.sort();
        Some(())
    }

    /// Adds an ignored folder, with its repository and the file of its environment.
    fn add_ignored(&self, listing: &mut FolderListing, path: &Path, relative: &Path) {
        listing.repositories.extend(repository_in(path));
        let environment = path.join(ENVIRONMENT_FILE);
        if (self.watched.obeyed.is_obeyed)(&relative.join(ENVIRONMENT_FILE), false)
            && std::fs::symlink_metadata(&environment).is_ok()
        {
            listing.repositories.push(environment);
        }
        listing.ignored.push(path.to_path_buf());
    }

    /// The names of our own folders that are in a folder.
    #[cfg(unix)]
    fn private_names(&self, folder: &Path) -> impl Iterator<Item = &'a OsStr> {
        let own = self.watched.private.iter().filter(move |path| path.parent() == Some(folder));
        own.filter_map(|path| path.file_name())
    }

    /// Opens a folder. It is watched before that, so that no change after the listing is missed.
    #[cfg(unix)]
    fn open_and_watch(&self, folder: &Arc<Path>) -> Option<std::os::fd::OwnedFd> {
        use rustix::fs::{Mode, OFlags, open};

        if let Some(watch) = self.watch {
            watch.add(folder);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = open(&**folder, flags, Mode::empty()).ok()?;
        // Another file system below the root, which other machines may write.
        if let Some(watch) = self.watch
            && self.device != device_of(&handle)
        {
            watch.give_up();
        }
        Some(handle)
    }

    /// The files in an ignored folder that programs obey, if it is one of the few that may hold such.
    #[cfg(unix)]
    fn obeyed_in_ignored(&self, folder: &Path, listed: &Arc<Path>) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut pending = vec![folder.to_path_buf()];
        let mut left = MAX_OBEYED;
        while let Some(folder) = pending.pop() {
            if let Some(watch) = self.watch {
                watch.add_ignored(&folder.as_path().into(), listed, true);
            }
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                left -= 1;
                if left == 0 {
                    return found;
                }
                let path = entry.path();
                let kind = entry.file_type();
                let Ok(relative) = path.strip_prefix(self.root) else { continue };
                let is_link = kind.as_ref().is_ok_and(std::fs::FileType::is_symlink);
                if kind.is_ok_and(|kind| kind.is_dir()) {
                    if (self.watched.obeyed.may_hold)(relative) {
                        pending.push(path);
                    }
                } else if (self.watched.obeyed.is_obeyed)(relative, is_link) {
                    found.push(path);
                }
            }
        }
        found
    }

    /// The same without open folders, inodes and other file systems below the root.
    #[cfg(not(unix))]
    fn list(
        &self,
        folder: &Arc<Path>,
        above: &FolderRules,
        (): &mut FolderNames,
    ) -> Option<(FolderListing, FolderRules)> {
        let found = self.rules_in(folder, above, |_| true);
        let Some(rules) = found else { return Some(without_rules(above)) };
        let below_root = folder.strip_prefix(self.root).ok()?;
        let mut listing = FolderListing { rules: Some(rules.clone()), ..FolderListing::default() };
        let mut layout = GitLayout::default();
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            if self.stop.is_expired() {
                return None;
            }
            let name = entry.file_name();
            let path = entry.path();
            if self.watched.private.contains(&path) {
                continue;
            }
            if is_temporary_name(&name) && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                remove_left_file(&path);
                continue;
            }
            if name == ".git" {
                listing.repositories.push(path);
                continue;
            }
            layout.note(&name);
            let Ok(metadata) = entry.metadata() else { continue };
            let stat = FileStat::tracked(&metadata);
            let is_folder = stat_kind(&stat) == StatKind::Folder;
            let is_link = stat_kind(&stat) == StatKind::Link;
            let relative = below_root.join(&name);
            if !is_folder && (self.watched.obeyed.is_obeyed)(&relative, is_link) {
                listing.repositories.push(path.clone());
            }
            if is_link {
                listing.links.push(name.clone());
            }
            if rules.ignores(&path, is_folder) && !self.watched.leads_to_folder(&path) {
                if is_folder {
                    self.add_ignored(&mut listing, &path, &relative);
                }
                continue;
            }
            if self.watched.omits_files && !is_folder && !is_ignore_file(&name) {
                continue;
            }
            if self.count.fetch_add(1, Ordering::Relaxed) >= MAX_ENTRIES {
                self.stop.stop_early();
            }
            listing.has_linked_rules |= is_link && is_ignore_file(&name);
            listing.entries.push(&name, stat);
        }
        listing.repositories.extend(layout.is_repository().then(|| folder.to_path_buf()));
        listing.entries.sort();
        listing.repositories.sort();
        Some((listing, rules))
    }
}

/// The folders that are still to be listed, shared by several threads.
#[derive(Default)]
struct FolderQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// Each with the rules of the one above it.
    folders: Vec<(PathBuf, FolderRules)>,
    /// How many folders are being listed, each of which may have more below it.
    in_progress: usize,
}

impl FolderQueue {
    /// The next folder; `None` if there are no more or time is over.
    fn next(&self, stop: &SearchDeadline) -> Option<(PathBuf, FolderRules)> {
        let mut state = self.state.lock();
        while !stop.is_expired() {
            if let Some(folder) = state.folders.pop() {
                state.in_progress += 1;
                return Some(folder);
            }
            if state.in_progress == 0 {
                return None;
            }
            self.changed.wait_for(&mut state, IDLE_WAIT);
        }
        None
    }

    /// Ends the work on a folder.
    fn done(&self, subfolders: impl Iterator<Item = (PathBuf, FolderRules)>) {
        let mut state = self.state.lock();
        state.folders.extend(subfolders);
        state.in_progress -= 1;
        self.changed.notify_all();
    }
}
