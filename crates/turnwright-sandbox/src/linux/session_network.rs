//! The network of a session: a network namespace with nothing but a loopback interface. The programs of the session
//! run in it, so they reach each other's servers and nothing else. Its descriptors keep it alive; no process has to.
//!
//! As programs of one machine do, they also have shared memory in common: a file system that each of them has at
//! `/dev/shm`, in its own mount namespace. Nobody keeps a mount namespace alive for it, and Linux copies a mount only
//! for a process in whose namespace it is. So mounts that are nowhere yet wait in a socket. A program takes one, mounts
//! it, and gives back a copy of it for the next one. The file system ends with its last mount. If all mounts were lost,
//! a program makes its own memory the session's; mounts of an older one that turn up later are dropped.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags};
use rustix::mount::{MountPropagationFlags, OpenTreeFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::mount_namespace::{id_maps, is_root, map_ids};
use super::outside_connections::{PRIVATE_IPV4, PRIVATE_IPV6};
use super::support::run_in_child;
use super::{mounts, syscalls};

const USER_NAMESPACE: &CStr = c"/proc/self/ns/user";
const NETWORK_NAMESPACE: &CStr = c"/proc/self/ns/net";

/// A private network that several sandboxed programs can share, with their shared memory (`/dev/shm`).
#[derive(Debug)]
pub struct SessionNetwork {
    network_namespace: OwnedFd,
    /// The user namespace that owns it; `None` if root has made it, who needs none.
    user_namespace: Option<OwnedFd>,
    pub(super) memory: Arc<SessionMemory>,
}

impl SessionNetwork {
    /// Creates a network with a loopback interface. Blocks for about a millisecond.
    ///
    /// # Errors
    /// When the system refuses it: see [`NamespaceSupport::network`](crate::NamespaceSupport::network).
    pub fn create() -> io::Result<SessionNetwork> {
        Self::create_within(None)
    }

    /// Creates one whose shared memory takes no more than this many bytes, and no more than a quarter of the machine's.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_within(memory_limit: Option<u64>) -> io::Result<SessionNetwork> {
        let size = size_within(memory_limit);
        let id_maps = id_maps();
        let has_user_namespace = id_maps.is_some();
        let (receiver, sender) = UnixStream::pair()?;
        let memory = Arc::new(SessionMemory::new()?);
        let filled = Arc::clone(&memory);
        run_in_child(move || {
            let user_flag = if id_maps.is_some() { libc::CLONE_NEWUSER } else { 0 };
            syscalls::unshare(libc::CLONE_NEWNET | user_flag)?;
            map_ids(id_maps.as_ref())?;
            syscalls::bring_up_loopback()?;
            syscalls::add_addresses(PRIVATE_IPV4, PRIVATE_IPV6)?;
            send_namespace(&sender, NETWORK_NAMESPACE)?;
            if id_maps.is_some() {
                send_namespace(&sender, USER_NAMESPACE)?;
            }
            // Without it, each program has memory of its own.
            filled.fill(&size).ok();
            Ok(())
        })?;
        let network_namespace = syscalls::receive_descriptor(receiver.as_fd())?;
        let received = has_user_namespace.then(|| syscalls::receive_descriptor(receiver.as_fd()));
        let user_namespace = received.transpose()?;
        memory.close_if_empty()?;
        Ok(SessionNetwork { network_namespace, user_namespace, memory })
    }

    /// Sends the network to another process of the user, which [receives](Self::receive) it. Does not wait if
    /// nothing else was sent before.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn send(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let user_namespace = self.user_namespace.as_ref().unwrap_or(&self.network_namespace);
        let namespaces = [self.network_namespace.as_fd(), user_namespace.as_fd()];
        let mut sent = namespaces.into_iter().chain(self.memory.descriptors());
        sent.try_for_each(|descriptor| syscalls::send_descriptor(socket, descriptor))
    }

    /// Receives a network, with calls of `receive` that each wait for one descriptor.
    ///
    /// # Errors
    /// When `receive` fails.
    pub async fn receive(
        mut receive: impl AsyncFnMut(fn(BorrowedFd<'_>) -> io::Result<OwnedFd>) -> io::Result<OwnedFd>,
    ) -> io::Result<SessionNetwork> {
        let network_namespace = receive(syscalls::receive_descriptor).await?;
        let user_namespace = receive(syscalls::receive_descriptor).await?;
        let user_namespace = Some(user_namespace).filter(|_| !is_root());
        let memory = Arc::new(SessionMemory {
            taken: receive(syscalls::receive_descriptor).await?.into(),
            given: receive(syscalls::receive_descriptor).await?.into(),
            current: receive(syscalls::receive_descriptor).await?.into(),
        });
        Ok(SessionNetwork { network_namespace, user_namespace, memory })
    }

    /// Opens a TCP socket that connects within this network, for IPv6 or IPv4. Blocks for about a millisecond.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn open_socket(self: &Arc<Self>, is_ipv6: bool) -> io::Result<OwnedFd> {
        let domain = if is_ipv6 { libc::AF_INET6 } else { libc::AF_INET };
        let (receiver, sender) = UnixStream::pair()?;
        let network = Arc::clone(self);
        run_in_child(move || {
            network.join_user_namespace()?;
            network.join()?;
            let socket = syscalls::open_socket(domain, libc::SOCK_STREAM, 0)?;
            syscalls::send_descriptor(sender.as_fd(), socket.as_fd())
        })?;
        syscalls::receive_descriptor(receiver.as_fd())
    }

    pub(super) fn has_user_namespace(&self) -> bool {
        self.user_namespace.is_some()
    }

    /// Moves this process into the user namespace, if there is one. Makes only system calls.
    pub(super) fn join_user_namespace(&self) -> io::Result<()> {
        let Some(namespace) = &self.user_namespace else { return Ok(()) };
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?)
    }

    /// Moves this process into the network. Makes only system calls.
    pub(super) fn join(&self) -> io::Result<()> {
        let namespace = self.network_namespace.as_fd();
        Ok(move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
    }
}

fn send_namespace(sender: &UnixStream, path: &CStr) -> io::Result<()> {
    let namespace = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    syscalls::send_descriptor(sender.as_fd(), namespace.as_fd())
}

/// The limit for its content, which does not count as memory of any process.
const USUAL_SIZE: &CStr = c"25%";
/// It is not made smaller than this: no size would be no limit.
const LEAST_SIZE: u64 = 1 << 20;
/// A folder that every machine has.
const FIRST_PLACE: &CStr = c"/dev";
/// How many mounts wait at first. A program that is killed while it has one does not give it back.
const COPIES: usize = 4;
/// How long a program waits for others that begin at the same moment.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The shared memory of a session.
#[derive(Debug)]
pub(super) struct SessionMemory {
    /// The end from which programs take a mount.
    taken: UnixStream,
    /// The end into which they give one back.
    given: UnixStream,
    /// A file with the device number of the file system that is the session's now.
    current: File,
}

impl SessionMemory {
    /// Shared memory that is to be [filled](Self::fill).
    fn new() -> io::Result<SessionMemory> {
        let (taken, given) = UnixStream::pair()?;
        taken.set_read_timeout(Some(LONGEST_WAIT))?;
        given.set_nonblocking(true)?;
        let current = rustix::fs::memfd_create(c"session-memory", MemfdFlags::CLOEXEC)?.into();
        Ok(SessionMemory { taken, given, current })
    }

    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.taken.as_fd(), self.given.as_fd(), self.current.as_fd()]
    }

    /// Makes the file system of a [size](size_within) and its first mounts, in a process of the session's user namespace that does nothing else.
    /// Makes only system calls.
    fn fill(&self, size: &CStr) -> io::Result<()> {
        syscalls::unshare(libc::CLONE_NEWNS)?;
        let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", propagation)?;
        let mount = mounts::new_tmpfs(c"1777", size)?;
        mounts::put(mount.as_fd(), CWD, FIRST_PLACE)?;
        self.make_current(FIRST_PLACE)
    }

    /// Makes all programs have memory of their own, at once, if it could not be filled.
    fn close_if_empty(&self) -> io::Result<()> {
        let mut polled = [PollFd::new(&self.taken, PollFlags::IN)];
        let is_empty = poll(&mut polled, Some(&Timespec::default()))? == 0;
        if is_empty { self.given.shutdown(Shutdown::Write) } else { Ok(()) }
    }

    /// Mounts it over the program's own memory at `place`. Returns false if the program keeps its own. Makes only
    /// system calls.
    pub(super) fn attach(&self, place: &CStr) -> bool {
        match self.take() {
            Ok(mount) if mounts::put(mount.as_fd(), CWD, place).is_ok() => {
                // Another program may have waited for too long in the meantime.
                if self.is_current(mount.as_fd()) {
                    self.give_copies(place, 1).ok();
                }
                true
            }
            Ok(mount) => {
                syscalls::send_descriptor(self.given.as_fd(), mount.as_fd()).ok();
                false
            }
            // All are lost: from now on it is this program's.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.make_current(place).is_ok()
            }
            Err(_) => false,
        }
    }

    /// The next mount that waits. Those of older file systems are dropped.
    fn take(&self) -> io::Result<OwnedFd> {
        loop {
            let mount = syscalls::receive_descriptor(self.taken.as_fd())?;
            if self.is_current(mount.as_fd()) {
                return Ok(mount);
            }
        }
    }

    /// Makes the file system at `place` the session's.
    fn make_current(&self, place: &CStr) -> io::Result<()> {
        let device: u64 = rustix::fs::stat(place)?.st_dev;
        self.current.write_all_at(&device.to_ne_bytes(), 0)?;
        self.give_copies(place, COPIES)
    }

    /// Returns true if a mount is one of the file system that is the session's now.
    fn is_current(&self, mount: BorrowedFd<'_>) -> bool {
        let mut current = [0; size_of::<u64>()];
        let Ok(found) = rustix::fs::fstat(mount) else { return false };
        self.current.read_exact_at(&mut current, 0).is_ok()
            && u64::from_ne_bytes(current) == found.st_dev
    }

    fn give_copies(&self, place: &CStr, count: usize) -> io::Result<()> {
        let how = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        for _ in 0..count {
            let copy = rustix::mount::open_tree(CWD, place, how)?;
            syscalls::send_descriptor(self.given.as_fd(), copy.as_fd())?;
        }
        Ok(())
    }
}

/// The size of the file system if programs may hold this many bytes of memory.
fn size_within(limit: Option<u64>) -> CString {
    let quarter = machine_memory().map(|total| total / 4);
    match limit.filter(|limit| quarter.is_some_and(|quarter| *limit < quarter)) {
        Some(limit) => CString::new(limit.max(LEAST_SIZE).to_string()).unwrap_or_default(),
        None => USUAL_SIZE.to_owned(),
    }
}

/// The bytes of the machine's memory.
fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}
