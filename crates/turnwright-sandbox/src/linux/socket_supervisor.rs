//! Decides about every `connect` of the programs in a PID namespace. Before its ABI 9 Landlock cannot deny
//! connections to Unix sockets, and mounts hide only those that are known when the program starts.
//!
//! The seccomp filter suspends each `connect` and notifies the first process of the namespace. That one
//! copies the address once, takes a copy of the socket, and makes the connection itself, so nothing
//! that the program changes meanwhile counts. It opens a path as the program would, asks the kernel where
//! the result lies, and connects to exactly that through `/proc/self/fd`. No call is ever
//! let through (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`): the kernel would read the address again.
//!
//! * What a program can create lies in folders that it may write to, so these and the sockets that the
//!   profile names are all that is open. Whose socket it is need not be known.
//! * Of abstract sockets, those of processes in the namespace are open: Landlock's scope does not include the
//!   first process. Addresses of other families are passed on.
//! * The first process has the rights of the program on files: its user, and no capability besides but that
//!   to look at processes.
//! * A server sees the first process as its peer, with the user and group of the program.
//! * A connection that has to wait is interrupted by an alarm and tried again, beside the others.
//! * If a signal interrupts the program when the connection is made already, the kernel loses the result, even one
//!   that it has accepted. The program, or the kernel for it, then makes the same call again and gets the result.
//!   So does a program that connects a second time on purpose, which would otherwise learn that it is connected
//!   already.
//! * The first process never closes the listener, and when it ends the kernel ends all others. So the program
//!   cannot install a supervisor of its own that would lift this one.
//! * Paths that lead through links of `/proc` (`/proc/self/fd/3/socket`) are refused, because they would be
//!   those of the first process.
//!
//! All runs in a process that was forked without `exec`: it makes system calls only and allocates nothing.

use std::ffi::CStr;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use seccompiler::sock_filter;

use super::hidden_sockets::NAME_SERVICES;
use super::{abstract_sockets, capabilities, syscalls};

/// The private shared memory, where a program can make sockets, too.
const SHARED_MEMORY: &str = "/dev/shm";
/// The longest address of any family, as for the kernel.
const MAX_ADDRESS: usize = size_of::<libc::sockaddr_storage>();
/// `AF_UNIX` in an address.
const UNIX: libc::sa_family_t = 1;
/// Where the path begins in the address of a Unix socket.
const PATH_OFFSET: usize = size_of::<libc::sa_family_t>();
/// The longest name in the address of a Unix socket.
const MAX_NAME: usize = size_of::<libc::sockaddr_un>() - PATH_OFFSET;
/// How long one attempt may take. A server that has room answers at once.
const ATTEMPT: Duration = Duration::from_millis(1);
/// How often connections that wait are tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// At most this many connections wait at the same time.
const MAX_WAITING: usize = 64;
/// At most this many calls that have succeeded are remembered.
const MAX_DONE: usize = 16;

/// What the first process needs in order to supervise.
#[derive(Debug)]
pub(super) struct SocketSupervisor {
    /// The folders and sockets to which the program may connect, as real paths.
    open: Vec<PathBuf>,
    /// The caches that have a private layer, or else are read-only.
    caches: Vec<PathBuf>,
    /// The ends of the program and of the first process.
    channel: (UnixStream, UnixStream),
}

/// A connection that is to be made for a thread.
struct Connection {
    /// The number of the notification.
    id: u64,
    call: Call,
    socket: OwnedFd,
    address: Address,
    /// What the address leads to.
    _target: Option<OwnedFd>,
    user: ThreadIdentity,
    /// When the attempt has taken as long as the socket allows. Set when it has to wait.
    deadline: Option<Instant>,
}

/// An address, as bytes of the kernel's layout.
struct Address {
    bytes: [u8; MAX_ADDRESS],
    length: usize,
}

/// The process that a thread belongs to, and in whose name it acts.
#[derive(Clone, Copy)]
struct ThreadIdentity {
    process: Pid,
    user: u32,
    group: u32,
}

/// What a call has in common with the one that is made again after a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Call {
    thread: Pid,
    /// The inode of the socket.
    socket: u64,
    /// Where the address lies in the memory of the thread.
    pointer: u64,
}

/// The last calls that have succeeded.
#[derive(Default)]
struct DoneCalls {
    calls: [Option<Call>; MAX_DONE],
    next: usize,
}

impl SocketSupervisor {
    /// `open` are the places of the profile.
    pub(super) fn new(
        mut open: Vec<PathBuf>,
        caches: Vec<PathBuf>,
    ) -> io::Result<SocketSupervisor> {
        open.extend(NAME_SERVICES.iter().chain([&SHARED_MEMORY]).map(PathBuf::from));
        Ok(SocketSupervisor { open, caches, channel: UnixStream::pair()? })
    }

    /// The descriptor that the first process keeps open.
    pub(super) fn kept_descriptor(&self) -> RawFd {
        self.channel.1.as_raw_fd()
    }

    /// Installs the filter of the program and hands its listener to the first process.
    pub(super) fn install_filter(&self, program: &[sock_filter]) -> io::Result<()> {
        let listener = syscalls::install_filter_with_listener(program)?;
        syscalls::send_descriptor(self.channel.0.as_fd(), listener.as_fd())
    }

    /// Makes the connections of the program, in the first process. Returns when no process of the program is left,
    /// and at once if it does not start.
    pub(super) fn supervise(&self, is_root: bool) -> io::Result<()> {
        capabilities::keep_tracing(is_root)?;
        let received = syscalls::receive_descriptor(self.channel.1.as_fd());
        let Ok(listener) = received.map(ManuallyDrop::new) else { return Ok(()) };
        syscalls::let_alarms_interrupt()?;
        self.serve(listener.as_fd())
    }

    fn serve(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        let mut done_calls = DoneCalls::default();
        let mut waiting = [const { None }; MAX_WAITING];
        let mut next_retry = Instant::now();
        loop {
            let is_any_waiting = waiting.iter().any(Option::is_some);
            let until_retry = next_retry.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: 0, tv_nsec: until_retry.subsec_nanos().into() };
            let mut polled = [PollFd::new(&listener, PollFlags::IN)];
            match poll(&mut polled, is_any_waiting.then_some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let events = polled[0].revents();
            if events.contains(PollFlags::IN) {
                if let Some(notification) = syscalls::receive_notification(listener)? {
                    let free = waiting.iter_mut().find(|it| it.is_none());
                    let blocked = self.handle(listener, &notification, &mut done_calls);
                    match (blocked, free) {
                        (Some(connection), Some(place)) => *place = Some(connection),
                        (Some(connection), None) => {
                            done_calls.answer(listener, connection, libc::EAGAIN);
                        }
                        (None, _) => {}
                    }
                }
            } else if events.contains(PollFlags::HUP) {
                return Ok(());
            }
            if Instant::now() >= next_retry {
                for place in &mut waiting {
                    *place = place.take().and_then(|it| it.advance(listener, &mut done_calls));
                }
                next_retry = Instant::now() + RETRY_INTERVAL;
            }
        }
    }

    /// Makes a connection and answers. Returns it if it has to wait.
    fn handle(
        &self,
        listener: BorrowedFd<'_>,
        notification: &libc::seccomp_notif,
        done_calls: &mut DoneCalls,
    ) -> Option<Connection> {
        match self.open_connection(listener, notification) {
            Ok(connection) => connection?.advance(listener, done_calls),
            Err(error) => {
                let number = error.raw_os_error().unwrap_or(libc::EACCES);
                syscalls::answer_notification(listener, notification.id, number);
                None
            }
        }
    }

    /// Copies all that a call consists of. `None` if its thread is gone.
    fn open_connection(
        &self,
        listener: BorrowedFd<'_>,
        notification: &libc::seccomp_notif,
    ) -> io::Result<Option<Connection>> {
        let [socket, pointer, length, ..] = notification.data.args;
        let (socket, length) = (lower_half(socket), lower_half(length));
        let id = notification.id;
        let thread = Pid::from_raw(notification.pid.cast_signed());
        let thread = thread.ok_or(io::ErrorKind::PermissionDenied)?;
        let user = ThreadIdentity::of(thread)?;
        // A thread may have descriptors of its own, but before Linux 6.9 it cannot be asked for them.
        let process = pidfd_open(thread, PidfdFlags::from_bits_retain(libc::PIDFD_THREAD))
            .or_else(|_| pidfd_open(user.process, PidfdFlags::empty()))?;
        let socket = pidfd_getfd(process, socket, PidfdGetfdFlags::empty())?;
        let call = Call { thread, socket: rustix::fs::fstat(&socket)?.st_ino, pointer };
        let mut address = Address::read(thread, pointer, length)?;
        let mut path = [0; MAX_ADDRESS + 1];
        let path = address.path(&mut path);
        let folder = match path {
            Some(path) if !path.to_bytes().starts_with(b"/") => Some(open_folder_of(thread)?),
            _ => None,
        };
        // Until here, another thread could have got the number of one that has ended.
        if !syscalls::is_waiting(listener, id) {
            return Ok(None);
        }
        let target = path.map(|path| user.run_as_user(|| self.resolve(folder.as_ref(), path)));
        let target = target.transpose()?;
        if let Some(target) = &target {
            address = Address::of_descriptor(target)?;
        }
        Ok(Some(Connection { id, call, socket, address, _target: target, user, deadline: None }))
    }

    /// Opens what a path leads to, if the program may connect to it.
    fn resolve(&self, folder: Option<&OwnedFd>, path: &CStr) -> io::Result<OwnedFd> {
        let folder = folder.map_or(CWD, AsFd::as_fd);
        let (how, resolve) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_MAGICLINKS);
        let target = rustix::fs::openat2(folder, path, how, Mode::empty(), resolve)?;
        let mut buffer = [0; libc::PATH_MAX as usize];
        let mut link = [0; 32];
        let link = format_path(&mut link, format_args!("/proc/self/fd/{}", target.as_raw_fd()))?;
        let length = rustix::fs::readlinkat_raw(CWD, link, &mut buffer[..])?;
        let place = Path::new(std::ffi::OsStr::from_bytes(&buffer[..length]));
        let is_below = |folders: &[PathBuf]| folders.iter().any(|it| place.starts_with(it));
        if is_below(&self.open) || is_below(&self.caches) && is_writable(&target)? {
            Ok(target)
        } else {
            Err(io::Error::from_raw_os_error(libc::EACCES))
        }
    }
}

impl Connection {
    /// Tries to connect and answers. Returns it if it has to wait.
    fn advance(
        mut self,
        listener: BorrowedFd<'_>,
        done_calls: &mut DoneCalls,
    ) -> Option<Connection> {
        if !syscalls::is_waiting(listener, self.id) {
            return None;
        }
        let result = self.attempt();
        let number = match result {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EACCES),
        };
        if number != libc::EINTR {
            done_calls.answer(listener, self, number);
            return None;
        }
        let timeout = || syscalls::connect_timeout(self.socket.as_fd()).unwrap_or(Duration::MAX);
        let deadline = match self.deadline {
            Some(deadline) => Some(deadline),
            None => Instant::now().checked_add(timeout()),
        };
        if deadline.is_some_and(|it| it <= Instant::now()) {
            let is_unix = self.address.family() == Some(UNIX);
            let number = if is_unix { libc::EAGAIN } else { libc::EINPROGRESS };
            done_calls.answer(listener, self, number);
            return None;
        }
        self.deadline = deadline;
        Some(self)
    }

    fn attempt(&self) -> io::Result<()> {
        // Looked up anew each time, and not kept while this waits: a server that ends has to refuse those who wait.
        let find = |_| abstract_sockets::find_own(self.socket.as_fd(), self.address.bytes());
        let _server = self.address.abstract_name().map(find).transpose()?;
        syscalls::set_alarm(ATTEMPT);
        let connect = || syscalls::connect(self.socket.as_fd(), self.address.bytes());
        let result = self.user.run_as_user(connect);
        syscalls::set_alarm(Duration::ZERO);
        result
    }
}

impl Address {
    /// Reads an address from the memory of a thread, once.
    fn read(thread: Pid, pointer: u64, length: i32) -> io::Result<Address> {
        let length = usize::try_from(length).ok().filter(|it| *it <= MAX_ADDRESS);
        let length = length.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let mut bytes = [0; MAX_ADDRESS];
        syscalls::read_memory(thread, pointer, &mut bytes[..length])?;
        let address = Address { bytes, length };
        let is_too_long = address.name().is_some_and(|it| it.len() > MAX_NAME);
        if is_too_long { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(address) }
    }

    /// The address that leads to what a descriptor of this process refers to.
    fn of_descriptor(target: &OwnedFd) -> io::Result<Address> {
        let mut bytes = [0; MAX_ADDRESS];
        bytes[..PATH_OFFSET].copy_from_slice(&UNIX.to_ne_bytes());
        let place = &mut bytes[PATH_OFFSET..];
        let path = format_path(place, format_args!("/proc/self/fd/{}", target.as_raw_fd()))?;
        let length = path.count_bytes();
        Ok(Address { bytes, length: PATH_OFFSET + length + 1 })
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn family(&self) -> Option<libc::sa_family_t> {
        let bytes = [self.bytes[0], self.bytes[1]];
        (self.length >= PATH_OFFSET).then(|| libc::sa_family_t::from_ne_bytes(bytes))
    }

    /// The name of a Unix socket.
    fn name(&self) -> Option<&[u8]> {
        let name = self.bytes().get(PATH_OFFSET..)?;
        (self.family() == Some(UNIX) && !name.is_empty()).then_some(name)
    }

    fn abstract_name(&self) -> Option<&[u8]> {
        self.name().filter(|it| it[0] == 0)
    }

    /// The path of a Unix socket that has one, copied into a buffer.
    fn path<'a>(&self, buffer: &'a mut [u8; MAX_ADDRESS + 1]) -> Option<&'a CStr> {
        let path = self.name().filter(|it| it[0] != 0)?;
        // It need not end with a zero.
        buffer[..path.len()].copy_from_slice(path);
        CStr::from_bytes_until_nul(buffer).ok()
    }
}

impl ThreadIdentity {
    fn of(thread: Pid) -> io::Result<ThreadIdentity> {
        let mut name = [0; 32];
        let name = format_path(&mut name, format_args!("/proc/{}/status", thread.as_raw_pid()))?;
        let file = rustix::fs::open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut buffer = [0; 1024];
        let length = rustix::io::read(file, &mut buffer)?;
        let field = |name: &str, position: usize| {
            let lines = buffer[..length].split(|it| *it == b'\n');
            let mut values = lines.filter_map(|it| it.strip_prefix(name.as_bytes()));
            let value = values.next()?.split(u8::is_ascii_whitespace).nth(position)?;
            std::str::from_utf8(value).ok()?.parse().ok()
        };
        // After the name: the real number, then the effective one.
        let read = || {
            let process = Pid::from_raw(i32::try_from(field("Tgid:", 1)?).ok()?)?;
            Some(ThreadIdentity { process, user: field("Uid:", 2)?, group: field("Gid:", 2)? })
        };
        read().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Does something as the user of the thread. Only root can have become another one.
    fn run_as_user<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !rustix::process::geteuid().is_root() || (self.user, self.group) == (0, 0) {
            return work();
        }
        syscalls::set_effective_ids(self.user, self.group)?;
        let result = work();
        syscalls::set_effective_ids(0, 0)?;
        result
    }
}

impl DoneCalls {
    /// Answers with an error number, or 0. A call whose result was lost has done its work before.
    fn answer(&mut self, listener: BorrowedFd<'_>, connection: Connection, number: i32) {
        let Connection { id, call, .. } = connection;
        // If the program closes the socket next, nothing else keeps it open.
        drop(connection);
        let done = self.calls.iter_mut().find(|it| **it == Some(call));
        let was_done = done.map(Option::take).is_some();
        let answer = match number {
            libc::EISCONN if was_done => 0,
            libc::EALREADY if was_done => libc::EINPROGRESS,
            number => number,
        };
        let is_accepted = syscalls::answer_notification(listener, id, answer);
        // Once is enough for an answer that was accepted: a program may connect twice on purpose.
        if [0, libc::EINPROGRESS].contains(&answer) && !(is_accepted && answer != number) {
            self.calls[self.next] = Some(call);
            self.next = (self.next + 1) % MAX_DONE;
        }
    }
}

/// A number as the kernel takes it from a register.
fn lower_half(register: u64) -> i32 {
    let [a, b, c, d, ..] = register.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// Whether a file is on a mount that is not read-only.
fn is_writable(file: &OwnedFd) -> io::Result<bool> {
    let flags = rustix::fs::fstatvfs(file)?.f_flag;
    Ok(!flags.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

fn open_folder_of(thread: Pid) -> io::Result<OwnedFd> {
    let mut name = [0; 32];
    let name = format_path(&mut name, format_args!("/proc/{}/cwd", thread.as_raw_pid()))?;
    Ok(rustix::fs::open(name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Writes a short path into a buffer of zeros.
fn format_path<'a>(buffer: &'a mut [u8], path: std::fmt::Arguments<'_>) -> io::Result<&'a CStr> {
    (&mut *buffer).write_fmt(path)?;
    CStr::from_bytes_until_nul(buffer).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Whether supervision is possible. To be called in a child that has entered the namespaces and will not
/// become a command.
pub(super) fn try_out() -> io::Result<()> {
    let process = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let number = process.as_raw_fd();
    drop(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?);
    let (own, mut copy) = ([1_u8], [0]);
    syscalls::read_memory(rustix::process::getpid(), own.as_ptr().addr() as u64, &mut copy)?;
    // The first process finds the threads of the namespace there.
    let has_proc = syscalls::succeeds_in_fork(|| {
        let flags = rustix::mount::MountFlags::RDONLY;
        Ok(rustix::mount::mount(c"proc", c"/proc", c"proc", flags, None)?)
    })?;
    if !has_proc || !capabilities::can_trace()? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    rustix::thread::set_no_new_privs(true)?;
    let allow = sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    syscalls::install_filter_with_listener(&[allow]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn addresses_are_names_paths_or_neither() {
        let unix = UNIX.to_ne_bytes();
        let other = 2_u16.to_ne_bytes();
        let long = [b'x'; MAX_NAME];
        for (family, rest, path, name) in [
            (unix, b"/run/a\0rest".as_slice(), Some(c"/run/a"), None),
            (unix, b"a", Some(c"a"), None),
            (unix, &long, Some(CString::new(long).unwrap().as_c_str()), None),
            (unix, b"\0name\0", None, Some(b"\0name\0".as_slice())),
            (unix, b"\0", None, Some(b"\0")),
            (unix, b"", None, None),
            (other, b"/run/a", None, None),
        ] {
            let mut bytes = [0; MAX_ADDRESS];
            let length = PATH_OFFSET + rest.len();
            bytes[..length].copy_from_slice(&[&family, rest].concat());
            let address = Address { bytes, length };
            assert_eq!(address.path(&mut [0; MAX_ADDRESS + 1]), path);
            assert_eq!(address.abstract_name(), name);
        }
        let cut = Address { bytes: [1; MAX_ADDRESS], length: 1 };
        assert_eq!((cut.family(), cut.path(&mut [0; MAX_ADDRESS + 1])), (None, None));
    }
}
