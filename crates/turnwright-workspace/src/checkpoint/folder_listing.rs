//! Lists folders for snapshots: the stat data of all entries that no ignore rule excludes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::git::FileStat;
#[cfg(target_os = "linux")]
use super::inotify_watch::InotifyWatch as FolderWatch;
#[cfg(not(target_os = "linux"))]
use super::no_watch::NoWatch as FolderWatch;
use super::snapshot::{ObeyedFiles, StatKind, WatchedFolders, stat_kind};
use crate::search::{IgnoreRules, SearchDeadline, has_unsafe_ignore_files, ignore_matcher};

/// The most entries of a snapshot.
const MAX_ENTRIES: usize = 200_000;
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
/// The entries of a folder that git takes for a repository without `.git`.
pub(super) const BARE_LAYOUT: [&str; 3] = ["HEAD", "objects", "refs"];
/// The file of virtual environments of Python, which ignore rules nearly always exclude.
pub(super) const ENVIRONMENT_FILE: &str = "pyvenv.cfg";
/// Names of entries that determine which others are listed.
pub(super) const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedEntry {
    pub(super) name: Box<OsStr>,
    pub(super) stat: FileStat,
}

/// The entries of a folder, sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FolderListing {
    pub(super) entries: Vec<ListedEntry>,
    /// The inodes of files with another name, through which they can change without an event.
    pub(super) hard_linked: Vec<u64>,
    /// An ignore file is a link, so the rules can change without an event in this folder.
    pub(super) has_linked_rules: bool,
    /// The git repositories here and in ignored folders here: each `.git`, or the folder itself if it
    /// has the layout of one; and the files here and in ignored folders here that programs obey.
    pub(super) repositories: Vec<PathBuf>,
    /// The ignored folders here.
    pub(super) ignored: Vec<PathBuf>,
    /// The folder cannot be listed.
    pub(super) is_unknown: bool,
}

impl FolderListing {
    /// Adds an entry that is not ignored, if its kind is tracked.
    #[cfg(unix)]
    fn add_tracked(&mut self, name: &OsStr, stat: &rustix::fs::Stat, is_folder: bool) {
        let has_other_names = !is_folder && stat.st_nlink > 1;
        if let Some(stat) = FileStat::tracked(stat) {
            self.has_linked_rules |=
                stat_kind(&stat) == StatKind::Link && IGNORE_FILES.iter().any(|it| name == *it);
            self.hard_linked.extend(has_other_names.then_some(stat.ino));
            self.entries.push(ListedEntry { name: name.into(), stat });
        }
    }

    pub(super) fn get(&self, name: &OsStr) -> Option<FileStat> {
        let found = self.entries.binary_search_by(|it| (*it.name).cmp(name)).ok()?;
        self.entries.get(found).map(|it| it.stat)
    }

    /// Sets or removes an entry.
    pub(super) fn set(&mut self, name: &OsStr, stat: Option<FileStat>) {
        match (self.entries.binary_search_by(|it| (*it.name).cmp(name)), stat) {
            (Ok(at), Some(stat)) => self.entries[at].stat = stat,
            (Ok(at), None) => drop(self.entries.remove(at)),
            (Err(at), Some(stat)) => {
                self.entries.insert(at, ListedEntry { name: name.into(), stat });
            }
            (Err(_), None) => {}
        }
    }

    /// The folders among the entries, with their paths.
    pub(super) fn subfolders<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
        let is_folder = |it: &&ListedEntry| stat_kind(&it.stat) == StatKind::Folder;
        self.entries.iter().filter(is_folder).map(|it| folder.join(&*it.name))
    }
}

pub(super) type ListedFolder = (Arc<Path>, Arc<FolderListing>);

/// Lists folders below one root, whose ignore rules apply.
pub(super) struct FolderLister<'a> {
    root: &'a Path,
    private: &'a [PathBuf],
    obeyed: ObeyedFiles,
    #[cfg_attr(not(unix), expect(dead_code, reason = "no folder is watched there"))]
    watch: Option<&'a FolderWatch>,
    stop: &'a SearchDeadline,
    /// The entries that were listed, for all roots.
    count: &'a AtomicUsize,
    rules: IgnoreRules,
    /// The device of the root.
    #[cfg(unix)]
    device: Option<rustix::fs::Dev>,
}

#[cfg(unix)]
fn device_of(folder: impl std::os::fd::AsFd) -> Option<rustix::fs::Dev> {
    Some(rustix::fs::fstat(folder).ok()?.st_dev)
}

/// Whether anything is at a path.
#[cfg(unix)]
fn exists(path: &Path) -> bool {
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::statat(rustix::fs::CWD, path, flags).is_ok()
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
            private: &watched.private,
            obeyed: watched.obeyed,
            watch,
            stop,
            count,
            rules: ignore_matcher(root),
            #[cfg(unix)]
            device: std::fs::File::open(root).ok().and_then(device_of),
        }
    }

    /// Lists a folder and all below it. Blocks.
    pub(super) fn list_tree(&self, folder: PathBuf) -> Vec<ListedFolder> {
        let queue = FolderQueue::default();
        queue.state.lock().folders.push(folder);
        let mut found = self.work(&queue, FOLDERS_OF_ONE_THREAD);
        if queue.state.lock().folders.is_empty() {
            return found;
        }
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let others = thread::scope(|scope| {
            // If the system starts no more threads, this one does all of it.
            let start = |_| {
                let work = || self.work(&queue, usize::MAX);
                thread::Builder::new().spawn_scoped(scope, work).ok()
            };
            let started: Vec<_> = (1..threads).map_while(start).collect();
            found.extend(self.work(&queue, usize::MAX));
            started.into_iter().filter_map(|it| it.join().ok()).flatten().collect::<Vec<_>>()
        });
        found.extend(others);
        found
    }

    fn work(&self, queue: &FolderQueue, most: usize) -> Vec<ListedFolder> {
        let (mut rules, mut found) = (self.rules.clone(), Vec::new());
        while found.len() < most
            && let Some(folder) = queue.next(self.stop)
        {
            let folder: Arc<Path> = folder.into();
            let listing = self.list_with(&folder, &mut rules);
            queue.done(listing.subfolders(&folder));
            found.push((folder, Arc::new(listing)));
        }
        found
    }

    pub(super) fn list_one(&self, folder: &Arc<Path>) -> FolderListing {
        self.list_with(folder, &mut self.rules.clone())
    }

    fn list_with(&self, folder: &Arc<Path>, rules: &mut IgnoreRules) -> FolderListing {
        let unknown = || FolderListing { is_unknown: true, ..FolderListing::default() };
        self.list(folder, rules).unwrap_or_else(unknown)
    }

    #[cfg(unix)]
    fn list(&self, folder: &Arc<Path>, rules: &mut IgnoreRules) -> Option<FolderListing> {
        use rustix::fs::{AtFlags, Dir, FileType, statat};
        use std::os::unix::ffi::OsStrExt;

        let handle = self.open_and_watch(folder)?;
        // The ignore library opens the ignore files of a folder when it sees the first entry.
        if has_unsafe_ignore_files(folder) {
            return None;
        }
        let mut relative = folder.strip_prefix(self.root).ok()?.to_path_buf();
        let mut listing = FolderListing::default();
        let mut layout = 0;
        let private: Vec<_> = self.private_names(folder).collect();
        let mut entries = Dir::read_from(&handle).ok()?;
        let mut seen = 0_usize;
        while let Some(Ok(entry)) = entries.read() {
            if seen.is_multiple_of(ENTRIES_PER_LOOK) && self.stop.is_expired() {
                return None;
            }
            seen += 1;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || private.contains(&name) {
                continue;
            }
            if name == ".git" {
                listing.repositories.push(folder.join(name));
                continue;
            }
            layout += usize::from(BARE_LAYOUT.iter().any(|it| name == *it));
            let stat = || statat(&handle, name, AtFlags::SYMLINK_NOFOLLOW).ok();
            let is_folder = match entry.file_type() {
                FileType::Unknown => stat()
                    .is_some_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Directory),
                kind => kind == FileType::Directory,
            };
            relative.push(name);
            let is_ignored = rules.matched(&relative, is_folder).is_ignore();
            let is_link = entry.file_type() == FileType::Symlink;
            if !is_folder && (self.obeyed.is_obeyed)(&relative, is_link) {
                listing.repositories.push(folder.join(name));
            }
            if is_ignored && is_folder {
                self.add_ignored(&mut listing, folder, name, &relative);
            }
            relative.pop();
            let Some(stat) = (!is_ignored).then(stat).flatten() else { continue };
            if self.count.fetch_add(1, Ordering::Relaxed) >= MAX_ENTRIES {
                self.stop.stop_early();
            }
            listing.add_tracked(name, &stat, is_folder);
        }
        if layout == BARE_LAYOUT.len() {
            listing.repositories.push(folder.to_path_buf());
        }
        listing.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        listing.repositories.sort_unstable();
        listing.ignored.sort_unstable();
        Some(listing)
    }

    /// Adds an ignored folder, with the repositories and the files that programs obey in it.
    #[cfg(unix)]
    fn add_ignored(
        &self,
        listing: &mut FolderListing,
        folder: &Arc<Path>,
        name: &OsStr,
        relative: &Path,
    ) {
        let path = folder.join(name);
        listing.repositories.extend(self.repository_in_ignored(&path, folder));
        let environment = path.join(ENVIRONMENT_FILE);
        if (self.obeyed.is_obeyed)(&relative.join(ENVIRONMENT_FILE), false) && exists(&environment)
        {
            listing.repositories.push(environment);
        }
        if (self.obeyed.may_hold)(relative) {
            listing.repositories.extend(self.obeyed_in_ignored(&path, folder));
        }
        listing.ignored.push(path);
    }

    /// The names of our own folders that are in a folder.
    #[cfg(unix)]
    fn private_names(&self, folder: &Path) -> impl Iterator<Item = &'a OsStr> {
        let own = self.private.iter().filter(move |it| it.parent() == Some(folder));
        own.filter_map(|it| it.file_name())
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
        let (mut found, mut pending) = (Vec::new(), vec![folder.to_path_buf()]);
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
                let (path, kind) = (entry.path(), entry.file_type());
                let Ok(relative) = path.strip_prefix(self.root) else { continue };
                let is_link = kind.as_ref().is_ok_and(std::fs::FileType::is_symlink);
                if kind.is_ok_and(|it| it.is_dir()) {
                    if (self.obeyed.may_hold)(relative) {
                        pending.push(path);
                    }
                } else if (self.obeyed.is_obeyed)(relative, is_link) {
                    found.push(path);
                }
            }
        }
        found
    }

    /// The repository of an ignored folder, which is not listed otherwise, if it has one or is one.
    #[cfg(unix)]
    fn repository_in_ignored(&self, folder: &Path, listed: &Arc<Path>) -> Option<PathBuf> {
        if let Some(watch) = self.watch {
            watch.add_ignored(&folder.into(), listed, false);
        }
        let git = folder.join(".git");
        if exists(&git) {
            return Some(git);
        }
        BARE_LAYOUT.iter().all(|it| exists(&folder.join(it))).then(|| folder.to_path_buf())
    }

    /// The file of an environment in an ignored folder.
    #[cfg(not(unix))]
    fn environment_in_ignored(&self, path: &Path, is_folder: bool) -> Option<PathBuf> {
        let file = path.join(ENVIRONMENT_FILE);
        let relative = file.strip_prefix(self.root).ok()?;
        (is_folder && file.exists() && (self.obeyed.is_obeyed)(relative, false)).then_some(file)
    }

    /// The same without open folders, inodes and other file systems below the root.
    #[cfg(not(unix))]
    fn list(&self, folder: &Arc<Path>, rules: &mut IgnoreRules) -> Option<FolderListing> {
        if has_unsafe_ignore_files(folder) {
            return None;
        }
        let mut relative = folder.strip_prefix(self.root).ok()?.to_path_buf();
        let mut listing = FolderListing::default();
        let mut layout = 0;
        for entry in std::fs::read_dir(folder).ok()?.flatten() {
            if self.stop.is_expired() {
                return None;
            }
            let (name, path) = (entry.file_name(), entry.path());
            if self.private.contains(&path) {
                continue;
            }
            if name == ".git" {
                listing.repositories.push(path);
                continue;
            }
            layout += usize::from(BARE_LAYOUT.iter().any(|it| name == *it));
            let Ok(metadata) = entry.metadata() else { continue };
            let stat = FileStat::tracked(&metadata);
            let (is_folder, is_link) =
                (stat_kind(&stat) == StatKind::Folder, stat_kind(&stat) == StatKind::Link);
            relative.push(&name);
            let is_ignored = rules.matched(&relative, is_folder).is_ignore();
            if !is_folder && (self.obeyed.is_obeyed)(&relative, is_link) {
                listing.repositories.push(path.clone());
            }
            relative.pop();
            if is_ignored {
                if is_folder {
                    listing.ignored.push(path.clone());
                }
                let is_bare = || BARE_LAYOUT.iter().all(|it| path.join(it).exists());
                let git = path.join(".git");
                listing.repositories.extend(self.environment_in_ignored(&path, is_folder));
                if is_folder && git.exists() {
                    listing.repositories.push(git);
                } else if is_folder && is_bare() {
                    listing.repositories.push(path);
                }
                continue;
            }
            if self.count.fetch_add(1, Ordering::Relaxed) >= MAX_ENTRIES {
                self.stop.stop_early();
            }
            listing.has_linked_rules |= is_link && IGNORE_FILES.iter().any(|it| name == *it);
            listing.entries.push(ListedEntry { name: name.into(), stat });
        }
        if layout == BARE_LAYOUT.len() {
            listing.repositories.push(folder.to_path_buf());
        }
        listing.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        listing.repositories.sort_unstable();
        Some(listing)
    }
}

/// Whether more entries were listed than a snapshot may have.
pub(super) fn are_too_many(count: usize) -> bool {
    count > MAX_ENTRIES
}

/// The folders that are still to be listed, shared by several threads.
#[derive(Default)]
struct FolderQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    folders: Vec<PathBuf>,
    /// How many folders are being listed, each of which may have more below it.
    in_progress: usize,
}

impl FolderQueue {
    /// The next folder; `None` if there are no more or time is over.
    fn next(&self, stop: &SearchDeadline) -> Option<PathBuf> {
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
    fn done(&self, subfolders: impl Iterator<Item = PathBuf>) {
        let mut state = self.state.lock();
        state.folders.extend(subfolders);
        state.in_progress -= 1;
        self.changed.notify_all();
    }
}
