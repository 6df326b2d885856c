//! Reports which folders have changed since a snapshot, so that the next one lists only those. Uses
//! inotify: a change by a process of this machine is reported when the call that makes it returns; one
//! through a memory mapping, when the mapping ends. What happens to a file through another name (a hard
//! link) is reported for the folder with that name only.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::ChangedFolders;
use super::folder_listing::ENVIRONMENT_FILE;

/// The limits of the system for one user, whose editors need them as well: the number of watched
/// folders, and of descriptors like the one of [`InotifyWatch`].
const FOLDERS_LIMIT: &str = "/proc/sys/fs/inotify/max_user_watches";
const DESCRIPTORS_LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";
/// The shares of these limits that this process may take.
const FOLDERS_SHARE: usize = 8;
const DESCRIPTORS_SHARE: usize = 16;
/// The watched folders and descriptors of all sessions of this process.
static FOLDERS: AtomicUsize = AtomicUsize::new(0);
static DESCRIPTORS: AtomicUsize = AtomicUsize::new(0);
/// The settings of at most this many submodules of a repository are followed.
const MAX_SUBMODULES: usize = 64;
/// More events than this are not read at once, which is more than the system queues by default: a
/// process that goes on writing must not keep the reader busy.
const MAX_EVENTS: usize = 32 * 1024;
/// The size of the buffer for events. The longest event has 272 bytes.
const BUFFER_SIZE: usize = 16 * 1024;

/// A watch on a set of folders.
#[derive(Debug)]
pub(in crate::checkpoint) struct InotifyWatch {
    descriptor: OwnedFd,
    // Held by blocking threads only.
    state: Mutex<WatchState>,
}

fn system_limit(path: &str) -> Option<usize> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[derive(Debug)]
struct WatchState {
    paths: HashMap<i32, Arc<Path>>,
    /// Those of the folders that are not listed, because they are ignored.
    ignored: HashMap<i32, IgnoredFolder>,
    most: usize,
    /// Something may have changed without an event.
    has_failed: bool,
    /// The changes that each reader has not taken yet; `None` if there are too many.
    unread: HashMap<u64, Option<ChangedFolders>>,
    last_reader: u64,
}

/// The reader that every watch has: the snapshots of commands.
const SNAPSHOTS: u64 = 0;

/// A further reader of a watch, which gets all changes, too.
#[derive(Debug)]
pub(in crate::checkpoint) struct WatchReader {
    watch: Arc<InotifyWatch>,
    number: u64,
    /// Made when it is first waited for, because that needs a runtime.
    descriptor: Option<AsyncFd<OwnedFd>>,
}

impl WatchReader {
    /// The new reader also gets what the snapshots have not taken yet.
    pub(in crate::checkpoint) fn of(watch: &Arc<InotifyWatch>) -> WatchReader {
        let mut state = watch.state.lock();
        state.last_reader += 1;
        let number = state.last_reader;
        let unread = state.unread.get(&SNAPSHOTS).cloned().flatten();
        state.unread.insert(number, unread);
        WatchReader { watch: Arc::clone(watch), number, descriptor: None }
    }

    pub(in crate::checkpoint) fn is_of(&self, watch: &Arc<InotifyWatch>) -> bool {
        Arc::ptr_eq(&self.watch, watch)
    }

    /// Follows the settings and hooks of a repository and of its submodules, too. After a change `listed` is listed again.
    pub(in crate::checkpoint) fn follow_repository(&self, repository: &Path, listed: &Path) {
        let modules = repository.join("modules");
        let entries = fs::read_dir(&modules).into_iter().flatten().flatten();
        let submodules = entries.take(MAX_SUBMODULES).map(|entry| entry.path());
        let with_settings = submodules.chain([repository.to_path_buf()]);
        let folders = with_settings.flat_map(|folder| [folder.join("hooks"), folder]);
        for folder in folders.chain([modules, repository.join("worktrees")]) {
            self.watch.add_repository(&folder.into(), &listed.into());
        }
    }

    /// Returns the changes since the last call; `None` if they are not known.
    pub(in crate::checkpoint) fn take_changes(&self) -> Option<ChangedFolders> {
        self.watch.take_changes_for(self.number)
    }

    /// Waits until something has changed. Safe to drop and call again.
    ///
    /// # Errors
    /// If the system cannot wait for it.
    pub(in crate::checkpoint) async fn changed(&mut self) -> std::io::Result<()> {
        let descriptor = match &mut self.descriptor {
            Some(descriptor) => descriptor,
            none => none.insert(poll_for_reading(self.watch.descriptor.try_clone()?)?),
        };
        descriptor.readable().await?.clear_ready();
        Ok(())
    }
}

#[expect(unsafe_code, reason = "the descriptor is owned by what polls it")]
fn poll_for_reading(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` refers to the same open file until it is dropped, after it was deregistered.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

impl Drop for WatchReader {
    fn drop(&mut self) {
        self.watch.state.lock().unread.remove(&self.number);
    }
}

/// The meaning of an event in an ignored folder.
#[derive(Debug)]
struct IgnoredFolder {
    /// The folder that has to be listed again.
    listed: Arc<Path>,
    /// Every entry matters, not just a `.git`.
    is_obeyed: bool,
}

impl InotifyWatch {
    /// Creates a watch for folders below these, still without any folder; `None` if the system has no watches, or
    /// if other machines may change the folders.
    pub(in crate::checkpoint) fn new(roots: &[PathBuf]) -> Option<InotifyWatch> {
        if !roots.iter().all(|root| is_local(root)) {
            return None;
        }
        let most = system_limit(FOLDERS_LIMIT)? / FOLDERS_SHARE;
        let most_descriptors = system_limit(DESCRIPTORS_LIMIT)? / DESCRIPTORS_SHARE;
        let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let paths = HashMap::new();
        let ignored = HashMap::new();
        let unread = HashMap::from([(SNAPSHOTS, Some(ChangedFolders::default()))]);
        let state =
            WatchState { paths, ignored, most, has_failed: false, unread, last_reader: SNAPSHOTS };
        // Dropping the watch gives the descriptor back.
        let watch = InotifyWatch { descriptor, state: Mutex::new(state) };
        (DESCRIPTORS.fetch_add(1, Ordering::Relaxed) < most_descriptors).then_some(watch)
    }

    /// Watches one more folder. Call it before its entries are listed.
    pub(in crate::checkpoint) fn add(&self, folder: &Arc<Path>) {
        let events = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        self.add_for(folder, events, None);
    }

    /// Watches an ignored folder, of which only a `.git` matters, or every entry if programs obey what is
    /// in it. The folder `listed` is reported as changed then.
    pub(super) fn add_ignored(&self, folder: &Arc<Path>, listed: &Arc<Path>, is_obeyed: bool) {
        let events = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
        let ignored = IgnoredFolder { listed: Arc::clone(listed), is_obeyed };
        self.add_for(folder, events, Some(ignored));
    }

    /// Watches the folder of a repository: if it is not listed itself, every change in it is one of `listed`.
    fn add_repository(&self, folder: &Arc<Path>, listed: &Arc<Path>) {
        let events =
            WatchFlags::CREATE | WatchFlags::MOVE | WatchFlags::CLOSE_WRITE | WatchFlags::MASK_ADD;
        let inside = IgnoredFolder { listed: Arc::clone(listed), is_obeyed: true };
        self.add_for(folder, events, Some(inside));
    }

    fn add_for(&self, folder: &Arc<Path>, events: WatchFlags, ignored: Option<IgnoredFolder>) {
        let mut state = self.state.lock();
        if state.has_failed || FOLDERS.load(Ordering::Relaxed) >= state.most {
            state.has_failed = true;
            return;
        }
        let events = events | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        match inotify::add_watch(&self.descriptor, &**folder, events) {
            Ok(number) => {
                let is_new = state.paths.insert(number, Arc::clone(folder)).is_none();
                FOLDERS.fetch_add(usize::from(is_new), Ordering::Relaxed);
                let is_listed = !is_new && !state.ignored.contains_key(&number);
                match ignored {
                    Some(_) if is_listed && events.contains(WatchFlags::MASK_ADD) => {}
                    Some(ignored) => drop(state.ignored.insert(number, ignored)),
                    None => drop(state.ignored.remove(&number)),
                }
            }
            // Such a folder has no entries that could be listed.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(Errno::ACCESS) if access(&**folder, Access::READ_OK).is_err() => {}
            Err(_) => state.has_failed = true,
        }
    }

    /// Gives up: not every change will be reported.
    pub(super) fn give_up(&self) {
        self.state.lock().has_failed = true;
    }

    /// Returns true if some changes are not reported.
    pub(in crate::checkpoint) fn has_failed(&self) -> bool {
        self.state.lock().has_failed
    }

    /// Returns the changes since the last call; `None` if they are not known.
    pub(in crate::checkpoint) fn take_changes(&self) -> Option<ChangedFolders> {
        self.take_changes_for(SNAPSHOTS)
    }

    fn take_changes_for(&self, reader: u64) -> Option<ChangedFolders> {
        let mut state = self.state.lock();
        if !state.has_failed {
            state.has_failed = !state.read_events(&self.descriptor);
        }
        if state.has_failed {
            return None;
        }
        state.unread.get_mut(&reader)?.as_mut().map(std::mem::take)
    }
}

impl WatchState {
    /// Passes all events on to the readers. Returns false if there may be others.
    fn read_events(&mut self, descriptor: &OwnedFd) -> bool {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_SIZE];
        let mut events = Reader::new(descriptor, &mut buffer);
        for _ in 0..MAX_EVENTS {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => return true,
                Err(Errno::INTR) => continue,
                Err(_) => return false,
            };
            let flags = event.events();
            if flags.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
                return false;
            }
            let number = event.wd();
            if flags.contains(ReadFlags::IGNORED) {
                if self.paths.remove(&number).is_some() {
                    FOLDERS.fetch_sub(1, Ordering::Relaxed);
                }
                self.ignored.remove(&number);
                continue;
            }
            let Some(folder) = self.paths.get(&number).cloned() else { continue };
            if let Some(ignored) = self.ignored.get(&number) {
                let is_searched = event.file_name().is_some_and(|name: &CStr| {
                    name == c".git" || name.to_bytes() == ENVIRONMENT_FILE.as_bytes()
                });
                if ignored.is_obeyed || is_searched {
                    let listed = Arc::clone(&ignored.listed);
                    self.note(Some(&listed), None);
                }
                continue;
            }
            match event.file_name() {
                Some(name) if flags.contains(ReadFlags::ISDIR) => {
                    let replaced = folder.join(OsStr::from_bytes(name.to_bytes()));
                    self.note(Some(&folder), Some(&replaced));
                }
                Some(_) => self.note(Some(&folder), None),
                // The folder itself, which may be somewhere else by now.
                None => self.note(None, Some(&folder)),
            }
        }
        false
    }

    /// Adds a change to those that the readers have not taken yet.
    fn note(&mut self, listed: Option<&Path>, replaced: Option<&Path>) {
        for unread in self.unread.values_mut() {
            if let Some(changes) = unread {
                changes.listed.extend(listed.map(Path::to_path_buf));
                changes.replaced.extend(replaced.map(Path::to_path_buf));
                if changes.are_too_many() {
                    *unread = None;
                }
            }
        }
    }
}

impl Drop for InotifyWatch {
    fn drop(&mut self) {
        FOLDERS.fetch_sub(self.state.get_mut().paths.len(), Ordering::Relaxed);
        DESCRIPTORS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns true if a folder is in a file system that only this machine writes.
fn is_local(folder: &Path) -> bool {
    /// The numbers of ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS and Bcachefs.
    const LOCAL: [u64; 8] = [
        0xEF53,
        0x5846_5342,
        0x9123_683E,
        0x0102_1994,
        0x794C_7630,
        0xF2F5_2010,
        0x2FC1_2FC1,
        0xCA45_1A4E,
    ];
    rustix::fs::statfs(folder)
        .is_ok_and(|stat| u64::try_from(stat.f_type).is_ok_and(|kind| LOCAL.contains(&kind)))
}
