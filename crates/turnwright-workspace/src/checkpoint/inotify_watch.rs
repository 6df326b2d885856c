//! Reports which folders have changed since a snapshot, so that the next one lists only those. Uses
//! inotify: a change by a process of this machine is reported when the call that makes it returns; one
//! through a memory mapping, when the mapping ends. What happens to a file through another name (a hard
//! link) is reported for the folder with that name only.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
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

use super::folder_listing::ENVIRONMENT_FILE;
use super::snapshot::ChangedFolders;

/// The limits of the system for one user, whose editors need them as well: the number of watched
/// folders, and of descriptors like the one of [`InotifyWatch`].
const FOLDERS_LIMIT: &str = "/proc/sys/fs/inotify/max_user_watches";
const DESCRIPTORS_LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";
/// The shares of these limits that this process may take.
const FOLDERS_SHARE: usize = 8;
const DESCRIPTORS_SHARE: usize = 16;
/// What all sessions of this process have taken.
static FOLDERS: AtomicUsize = AtomicUsize::new(0);
static DESCRIPTORS: AtomicUsize = AtomicUsize::new(0);
/// More events than this are not read at once, which is more than the system queues by default: a
/// process that goes on writing must not keep the reader busy.
const MAX_EVENTS: usize = 32 * 1024;
/// The size of the buffer for events. The longest event has 272 bytes.
const BUFFER_SIZE: usize = 16 * 1024;

/// A watch on a set of folders.
#[derive(Debug)]
pub(super) struct InotifyWatch {
    descriptor: OwnedFd,
    // Held by blocking threads only.
    state: Mutex<WatchState>,
    _share: DescriptorShare,
}

/// One of the descriptors that this process may have.
#[derive(Debug)]
struct DescriptorShare;

impl DescriptorShare {
    fn take(most: usize) -> Option<DescriptorShare> {
        let share = DescriptorShare;
        (DESCRIPTORS.fetch_add(1, Ordering::Relaxed) < most).then_some(share)
    }
}

impl Drop for DescriptorShare {
    fn drop(&mut self) {
        DESCRIPTORS.fetch_sub(1, Ordering::Relaxed);
    }
}

fn system_limit(path: &str) -> Option<usize> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[derive(Debug)]
struct WatchState {
    paths: HashMap<i32, Arc<Path>>,
    /// Those of the folders that are not listed, because they are ignored.
    ignored: HashMap<i32, IgnoredFolder>,
    most: usize,
    /// Something may have changed without an event.
    has_failed: bool,
}

/// What an event in an ignored folder means.
#[derive(Debug)]
struct IgnoredFolder {
    /// The folder that has to be listed again.
    listed: Arc<Path>,
    /// Every entry matters, not just a `.git`.
    is_obeyed: bool,
}

impl InotifyWatch {
    /// A watch for folders below these, of which it has none yet; `None` if the system offers none, or
    /// if others than the processes of this machine may change the folders.
    pub(super) fn new(roots: &[PathBuf]) -> Option<InotifyWatch> {
        if !roots.iter().all(|it| is_local(it)) {
            return None;
        }
        let most = system_limit(FOLDERS_LIMIT)? / FOLDERS_SHARE;
        let share = DescriptorShare::take(system_limit(DESCRIPTORS_LIMIT)? / DESCRIPTORS_SHARE)?;
        let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let (paths, ignored) = (HashMap::new(), HashMap::new());
        let state = WatchState { paths, ignored, most, has_failed: false };
        Some(InotifyWatch { descriptor, state: Mutex::new(state), _share: share })
    }

    /// Watches one more folder. Call it before its entries are listed.
    pub(super) fn add(&self, folder: &Arc<Path>) {
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

    fn add_for(&self, folder: &Arc<Path>, events: WatchFlags, ignored: Option<IgnoredFolder>) {
        let mut state = self.state.lock();
        if state.has_failed || FOLDERS.load(Ordering::Relaxed) >= state.most {
            state.has_failed = true;
            return;
        }
        let events = events | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        match inotify::add_watch(&self.descriptor, &**folder, events) {
            Ok(number) => {
                match ignored {
                    Some(ignored) => drop(state.ignored.insert(number, ignored)),
                    None => drop(state.ignored.remove(&number)),
                }
                if state.paths.insert(number, Arc::clone(folder)).is_none() {
                    FOLDERS.fetch_add(1, Ordering::Relaxed);
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

    /// Whether not every change is reported.
    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().has_failed
    }

    /// What has changed since the last call; `None` if that is not known.
    pub(super) fn take_changes(&self) -> Option<ChangedFolders> {
        let mut state = self.state.lock();
        let mut changes = ChangedFolders::default();
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_SIZE];
        let mut events = Reader::new(&self.descriptor, &mut buffer);
        for _ in 0..MAX_EVENTS {
            if state.has_failed {
                break;
            }
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => return Some(changes),
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            let flags = event.events();
            if flags.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
                break;
            }
            let number = event.wd();
            if flags.contains(ReadFlags::IGNORED) {
                if state.paths.remove(&number).is_some() {
                    FOLDERS.fetch_sub(1, Ordering::Relaxed);
                }
                state.ignored.remove(&number);
                continue;
            }
            let Some(folder) = state.paths.get(&number) else { continue };
            if let Some(ignored) = state.ignored.get(&number) {
                let is_searched =
                    |it: &CStr| it == c".git" || it.to_bytes() == ENVIRONMENT_FILE.as_bytes();
                if ignored.is_obeyed || event.file_name().is_some_and(is_searched) {
                    changes.listed.insert(ignored.listed.to_path_buf());
                }
                continue;
            }
            match event.file_name() {
                Some(name) if flags.contains(ReadFlags::ISDIR) => {
                    changes.replaced.insert(folder.join(OsStr::from_bytes(name.to_bytes())));
                    changes.listed.insert(folder.to_path_buf());
                }
                Some(_) => drop(changes.listed.insert(folder.to_path_buf())),
                // The folder itself, which may be somewhere else by now.
                None => drop(changes.replaced.insert(folder.to_path_buf())),
            }
        }
        state.has_failed = true;
        None
    }
}

impl Drop for InotifyWatch {
    fn drop(&mut self) {
        FOLDERS.fetch_sub(self.state.get_mut().paths.len(), Ordering::Relaxed);
    }
}

/// Whether a folder is in a file system that only this machine writes.
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
        .is_ok_and(|it| u64::try_from(it.f_type).is_ok_and(|it| LOCAL.contains(&it)))
}
