//! Wrappers for system calls that no dependency wraps, and for passing descriptors on. All may be called between `fork`
//! and `exec`: they do not allocate and take no lock.
#![expect(unsafe_code, reason = "system calls")]

use std::ffi::CStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_char, c_int, c_long, c_uint};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::Pid;
use seccompiler::sock_filter;

/// A flag: return the ABI version instead of a ruleset.
const LANDLOCK_CREATE_RULESET_VERSION: c_uint = 1;
const LANDLOCK_RULE_PATH_BENEATH: c_int = 1;
/// With the type of `ifr_flags`.
const IFF_UP: libc::c_short = 1;
/// The `libc` crate does not have it.
const SECCOMP_ADDFD_FLAG_SETFD: c_uint = 1;
/// With the type of the field.
const SECCOMP_USER_NOTIF_FLAG_CONTINUE: u32 = 1;
/// The longest address of any family, as for the kernel.
pub(super) const MAX_ADDRESS: usize = size_of::<libc::sockaddr_storage>();
/// `getcwd` returns no longer path.
const PATH_MAX: usize = libc::PATH_MAX as usize;

fn check(result: c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns true if a filter of system calls holds for this thread.
pub(super) fn has_filter() -> bool {
    // SAFETY: takes a number. A kernel without filters returns -1.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) > 0 }
}

/// The Landlock ABI version, if Landlock is enabled.
pub(super) fn landlock_abi() -> Option<i32> {
    let null = std::ptr::null::<u8>();
    // SAFETY: with this flag no memory is read.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            null,
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    i32::try_from(version).ok().filter(|version| *version > 0)
}

/// Returns true if the seccomp action `SECCOMP_RET_ERRNO` is available.
pub(super) fn seccomp_can_return_errno() -> bool {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    let operation = libc::SECCOMP_GET_ACTION_AVAIL;
    // SAFETY: reads the four bytes of `action`.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, operation, 0, &raw const action) };
    result == 0
}

/// Restricts the process to the ruleset, for good.
pub(super) fn restrict_self(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
}

/// Grants rights on everything at and below a folder.
pub(super) fn add_rule(
    ruleset: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    rights: u64,
) -> io::Result<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        rights: u64,
        folder: c_int,
    }
    let rule = PathBeneath { rights, folder: folder.as_raw_fd() };
    let ruleset = ruleset.as_raw_fd();
    let rule_type = LANDLOCK_RULE_PATH_BENEATH;
    // SAFETY: reads `rule`, which has the kernel's layout.
    check(unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset, rule_type, &raw const rule, 0)
    })
}

/// Makes a mount and all mounts below it read-only.
pub(super) fn make_read_only(path: &CStr) -> io::Result<()> {
    set_read_only(libc::AT_FDCWD, path, libc::AT_RECURSIVE)
}

/// Makes a mount read-only that need not be anywhere yet.
pub(super) fn make_mount_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    set_read_only(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn set_read_only(folder: RawFd, path: &CStr, flags: c_int) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: reads the path and `attributes`, which has the kernel's layout.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            folder,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
}

/// Moves the process into new namespaces.
pub(super) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: takes a number; no flag is used that unshares the descriptor table.
    check(unsafe { libc::unshare(flags) }.into())
}

/// Clones the process, as `fork` does, but the child gets the parent of the calling process, and this number in its PID
/// namespace, if the kernel allows that. Returns the number of the child, and `None` in the child.
pub(super) fn clone_sibling(number: Option<Pid>) -> io::Result<Option<Pid>> {
    // SAFETY: all zeros is a valid value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = libc::CLONE_PARENT.unsigned_abs().into();
    // The kernel reads the number there. If the provenance was not exposed, the compiler might leave it unwritten.
    arguments.set_tid =
        number.as_ref().map_or(0, |number| std::ptr::from_ref(number).expose_provenance() as u64);
    arguments.set_tid_size = number.is_some().into();
    let size = size_of::<libc::clone_args>();
    // SAFETY: without `CLONE_VM` and with no stack given, the child goes on with a copy of this one. Reads `number`,
    // which is an `i32` like the kernel's, and `arguments`, which has the kernel's layout.
    let mut result = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) };
    if result < 0 {
        let flags = libc::CLONE_PARENT | libc::SIGCHLD;
        // SAFETY: as above.
        result = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    }
    check(result)?;
    Ok(i32::try_from(result).ok().and_then(Pid::from_raw))
}

/// Ends the process without running what the parent has registered for its own end.
pub(super) fn exit_now(code: c_int) -> ! {
    // SAFETY: takes a number.
    unsafe { libc::_exit(code) }
}

/// Blocks all signals and returns the mask before.
pub(super) fn block_all_signals() -> io::Result<libc::sigset_t> {
    // SAFETY: all zeros is a valid set, which both calls then fill.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        check(libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before).into())?;
        Ok(before)
    }
}

pub(super) fn set_signal_mask(mask: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: reads the set.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) }.into())
}

/// Makes the kernel reap children when they end, so that the parent need not wait for them.
pub(super) fn ignore_ended_children() -> io::Result<()> {
    // SAFETY: no handler is installed.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes every descriptor but these, which are sorted. Only for a process that uses none of them again.
pub(super) fn close_all_but(kept: &[RawFd]) -> io::Result<()> {
    // SAFETY: takes numbers; the caller uses no descriptor again.
    let close = |first: c_uint, last: c_uint| {
        check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })
    };
    let mut first = 0;
    for kept in kept.iter().filter_map(|kept| c_uint::try_from(*kept).ok()) {
        if kept > first {
            close(first, kept - 1)?;
        }
        first = kept + 1;
    }
    close(first, c_uint::MAX)
}

/// Marks every descriptor but the first three to be closed by `exec`.
pub(super) fn set_close_on_exec() -> io::Result<()> {
    let first: c_uint = 3;
    let last = c_uint::MAX;
    // SAFETY: takes numbers; nothing is closed yet.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) })
}

/// Changes to the working directory by its name, so that it refers to what is mounted there now.
pub(super) fn reenter_working_directory() -> io::Result<()> {
    let mut path = [0_u8; PATH_MAX];
    // SAFETY: writes at most `path.len()` bytes.
    check(unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) })?;
    // SAFETY: the kernel has terminated the path with a zero byte.
    check(unsafe { libc::chdir(path.as_ptr().cast()) }.into())
}

/// Brings up the loopback interface of this network namespace.
pub(super) fn bring_up_loopback() -> io::Result<()> {
    let socket = open_socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut request = interface_request(b"lo");
    request.ifr_ifru.ifru_flags = IFF_UP;
    // SAFETY: reads the request.
    check(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request).into()
    })
}

/// A request about the interface with this name.
fn interface_request(name: &[u8]) -> libc::ifreq {
    // SAFETY: all zeros is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    copy_signed(&mut request.ifr_name, name);
    request
}

/// Copies bytes to characters, which are signed on some processors only.
fn copy_signed(to: &mut [c_char], bytes: &[u8]) {
    for (character, byte) in to.iter_mut().zip(bytes) {
        *character = c_char::from_ne_bytes([*byte]);
    }
}

/// Gives the loopback interface of this network namespace further addresses. Resolvers look up names only for families
/// with another address than loopback.
pub(super) fn add_addresses(ipv4: Ipv4Addr, ipv6: Ipv6Addr) -> io::Result<()> {
    const LOOPBACK_INDEX: c_int = 1;
    let socket = open_socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut request = interface_request(b"lo:1");
    let family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default();
    let mut address = libc::sockaddr { sa_family: family, sa_data: [0; 14] };
    // They follow the port, two bytes.
    copy_signed(&mut address.sa_data[2..], &ipv4.octets());
    request.ifr_ifru.ifru_addr = address;
    // SAFETY: reads the request.
    check(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR as _, &raw const request).into()
    })?;
    // A machine without IPv6 needs none.
    let Ok(socket) = open_socket(libc::AF_INET6, libc::SOCK_DGRAM, 0) else { return Ok(()) };
    let request = libc::in6_ifreq {
        ifr6_addr: libc::in6_addr { s6_addr: ipv6.octets() },
        ifr6_prefixlen: 128,
        ifr6_ifindex: LOOPBACK_INDEX,
    };
    // SAFETY: reads the request, which has the kernel's layout.
    unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR as _, &raw const request) };
    Ok(())
}

/// Installs a filter and returns the descriptor on which its notifications arrive.
pub(super) fn install_filter_with_listener(program: &[sock_filter]) -> io::Result<OwnedFd> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
    let operation = libc::SECCOMP_SET_MODE_FILTER;
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: reads the instructions, which have the kernel's layout.
    owned(unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, &raw const program) })
}

/// A descriptor that a system call has just made.
fn owned(descriptor: c_long) -> io::Result<OwnedFd> {
    check(descriptor)?;
    let descriptor = RawFd::try_from(descriptor).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: it is new, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Sends a copy of a descriptor over a socket.
pub(super) fn send_descriptor(socket: BorrowedFd<'_>, sent: BorrowedFd<'_>) -> io::Result<()> {
    let descriptors = [sent];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a descriptor to arrive.
pub(super) fn receive_descriptor(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// The next notification of a filter. `None` if its thread is gone already.
pub(super) fn receive_notification(
    listener: BorrowedFd<'_>,
) -> io::Result<Option<libc::seccomp_notif>> {
    // SAFETY: all zeros is a valid value, and what the kernel asks for.
    let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
    // SAFETY: writes the notification.
    match check(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut notification).into() })
    {
        Ok(()) => Ok(Some(notification)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if the thread of a notification still waits for the answer.
pub(super) fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    let request = libc::SECCOMP_IOCTL_NOTIF_ID_VALID;
    // SAFETY: reads the number.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw const id).into() }).is_ok()
}

/// Puts a copy of a descriptor in the place of another one of the process that a notification comes from.
pub(super) fn replace_descriptor(
    listener: BorrowedFd<'_>,
    id: u64,
    (replaced, flags): (RawFd, u32),
    source: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut request = libc::seccomp_notif_addfd {
        id,
        flags: SECCOMP_ADDFD_FLAG_SETFD,
        srcfd: descriptor_number(source.as_raw_fd()),
        newfd: descriptor_number(replaced),
        newfd_flags: flags,
    };
    let operation = libc::SECCOMP_IOCTL_NOTIF_ADDFD;
    // SAFETY: reads the request.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), operation, &raw mut request).into() })
}

fn descriptor_number(descriptor: RawFd) -> u32 {
    u32::try_from(descriptor).unwrap_or(u32::MAX)
}

/// Lets the system call of a notification return this value or this error number. Returns true if it still waited.
pub(super) fn answer_notification(
    listener: BorrowedFd<'_>,
    id: u64,
    value: i64,
    errno: c_int,
) -> bool {
    send_answer(listener, libc::seccomp_notif_resp { id, val: value, error: -errno, flags: 0 })
}

/// Lets the thread of a notification make its system call. The kernel reads the arguments again.
pub(super) fn let_through(listener: BorrowedFd<'_>, id: u64) {
    let flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    send_answer(listener, libc::seccomp_notif_resp { id, val: 0, error: 0, flags });
}

/// Returns true if the thread still waited.
fn send_answer(listener: BorrowedFd<'_>, mut answer: libc::seccomp_notif_resp) -> bool {
    let request = libc::SECCOMP_IOCTL_NOTIF_SEND;
    // SAFETY: reads the answer.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut answer).into() }).is_ok()
}

/// Copies memory of another process. All of it must be readable.
pub(super) fn read_memory(thread: Pid, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    if buffer.is_empty() {
        return Ok(());
    }
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let address = usize::try_from(address).map_err(|_| io::ErrorKind::InvalidInput)?;
    let target = std::ptr::without_provenance_mut(address);
    let remote = libc::iovec { iov_base: target, iov_len: buffer.len() };
    // As wide as the registers, because the last argument is passed in memory.
    let thread: c_long = thread.as_raw_pid().into();
    let count: c_long = 1;
    let flags: c_long = 0;
    let call = libc::SYS_process_vm_readv;
    // SAFETY: writes at most `buffer.len()` bytes to `buffer`.
    let read = unsafe {
        libc::syscall(call, thread, &raw const local, count, &raw const remote, count, flags)
    };
    check(read)?;
    let is_all = usize::try_from(read) == Ok(buffer.len());
    if is_all { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EFAULT)) }
}

fn length_of(bytes: &[u8]) -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Connects a socket to an address of any family.
pub(super) fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let length = length_of(address)?;
    // SAFETY: reads the address, which the kernel copies byte by byte.
    let result = unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) };
    check(result.into())
}

/// Opens a socket.
pub(super) fn open_socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers.
    owned(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) }.into())
}

/// Sends one message to an address, without waiting. Returns how many bytes were sent.
pub(super) fn send_to(
    socket: BorrowedFd<'_>,
    message: &[u8],
    flags: c_int,
    address: &[u8],
) -> io::Result<usize> {
    let length = length_of(address)?;
    let target = if address.is_empty() { std::ptr::null() } else { address.as_ptr() };
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: reads the message and the address, which the kernel copies byte by byte.
    let sent = unsafe {
        let bytes = message.as_ptr().cast();
        libc::sendto(socket.as_raw_fd(), bytes, message.len(), flags, target.cast(), length)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Binds a socket to an address.
pub(super) fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let length = length_of(address)?;
    // SAFETY: reads the address, which the kernel copies byte by byte.
    check(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), length) }.into())
}

/// The level and the name of an option of a socket.
pub(super) type SocketOption = (c_int, c_int);

/// Reads an option of a socket into a buffer and returns its part of it.
pub(super) fn get_option<'a>(
    socket: BorrowedFd<'_>,
    (level, name): SocketOption,
    buffer: &'a mut [u8],
) -> io::Result<&'a [u8]> {
    let mut length = length_of(buffer)?;
    let target = buffer.as_mut_ptr().cast();
    // SAFETY: writes at most `length` bytes to the buffer.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, target, &raw mut length) };
    check(result.into())?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    buffer.get(..length).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Sets an option of a socket.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    (level, name): SocketOption,
    value: &[u8],
) -> io::Result<()> {
    let length = length_of(value)?;
    let value = value.as_ptr().cast();
    // SAFETY: reads `length` bytes of the value.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) }.into())
}

/// The value of an option at the level of sockets, a number.
pub(super) fn socket_option(socket: BorrowedFd<'_>, option: c_int) -> io::Result<c_int> {
    let mut value = [0; size_of::<c_int>()];
    get_option(socket, (libc::SOL_SOCKET, option), &mut value)?;
    Ok(c_int::from_ne_bytes(value))
}

/// The address that a socket is connected to, if it is one of the internet.
pub(super) fn peer_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    UdpSocket::from(socket.try_clone_to_owned()?).peer_addr()
}

/// Puts a copy of a descriptor at this number. Only for a process that ends at once: nothing owns the copy, and what was
/// there is closed.
pub(super) fn duplicate_as(descriptor: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: takes numbers; the caller uses no other descriptor with this number again.
    check(unsafe { libc::dup2(descriptor.as_raw_fd(), number) }.into())
}

/// Makes an epoll instance wait for events of the descriptor with this number.
pub(super) fn watch(
    epoll: BorrowedFd<'_>,
    number: RawFd,
    events: u32,
    data: u64,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: data };
    let epoll = epoll.as_raw_fd();
    // SAFETY: reads the event.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, number, &raw mut event) }.into())
}

extern "C" fn do_nothing(_: c_int) {}

/// Makes `SIGALRM` interrupt system calls, and blocks all other signals.
pub(super) fn let_alarms_interrupt() -> io::Result<()> {
    // SAFETY: all zeros is a valid value of both; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = do_nothing as extern "C" fn(c_int) as libc::sighandler_t;
        check(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()).into())?;
        let mut others: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut others);
        libc::sigdelset(&raw mut others, libc::SIGALRM);
        set_signal_mask(&others)
    }
}

/// Sends `SIGALRM` to this process every so often; never if the interval is zero.
pub(super) fn set_alarm(interval: Duration) {
    let interval = libc::timeval { tv_sec: 0, tv_usec: interval.subsec_micros().into() };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: reads the timer.
    unsafe { libc::syscall(libc::SYS_setitimer, libc::ITIMER_REAL, &raw const timer, 0) };
}

/// Sets the effective user and group of this thread.
pub(super) fn set_effective_ids(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: takes numbers. The order allows root to become another user and to come back.
    let set = |call, id: u32| check(unsafe { libc::syscall(call, -1, id, -1) });
    if user == 0 {
        set(libc::SYS_setresuid, user)?;
        return set(libc::SYS_setresgid, group);
    }
    set(libc::SYS_setresgid, group)?;
    set(libc::SYS_setresuid, user)
}

/// Runs `work` in a child process, which ends with it. Returns true if it succeeded, and `None` if this process ignores
/// how its children end.
pub(super) fn succeeds_in_fork(work: impl FnOnce() -> io::Result<()>) -> io::Result<Option<bool>> {
    // SAFETY: without `CLONE_VM` and with no stack given, the child goes on with a copy of this one.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    check(child)?;
    let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) else {
        exit_now(i32::from(work().is_err()));
    };
    match rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()) {
        // The kernel says so when it has ended.
        Err(rustix::io::Errno::CHILD) => Ok(None),
        ended => Ok(ended?.map(|(_, status)| status.exit_status() == Some(0))),
    }
}
