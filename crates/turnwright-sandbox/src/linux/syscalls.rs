//! Wrappers for system calls that no dependency wraps. All may be called between `fork` and `exec`:
//! they do not allocate and take no lock.
#![expect(unsafe_code, reason = "system calls")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use libc::{c_char, c_int, c_long, c_uint};
use rustix::process::Pid;

/// A flag: return the ABI version instead of a ruleset.
const LANDLOCK_CREATE_RULESET_VERSION: c_uint = 1;
const LANDLOCK_RULE_PATH_BENEATH: c_int = 1;
/// With the type of `ifr_flags`.
const IFF_UP: libc::c_short = 1;
/// `getcwd` returns no longer path.
const PATH_MAX: usize = libc::PATH_MAX as usize;

fn check(result: c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
    i32::try_from(version).ok().filter(|it| *it > 0)
}

/// Whether the seccomp action `SECCOMP_RET_ERRNO` is available.
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
    let (ruleset, rule_type) = (ruleset.as_raw_fd(), LANDLOCK_RULE_PATH_BENEATH);
    // SAFETY: reads `rule`, which has the kernel's layout.
    check(unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset, rule_type, &raw const rule, 0)
    })
}

/// Makes a mount and all mounts below it read-only.
pub(super) fn make_read_only(path: &CStr) -> io::Result<()> {
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
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
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

/// The process in which a clone returns.
pub(super) enum Cloned {
    Child,
    /// With the number of the child.
    Parent(Pid),
}

/// Clones the process, as `fork` does, but the child's parent is that of the calling process.
pub(super) fn clone_sibling() -> io::Result<Cloned> {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: without `CLONE_VM` and with no stack given, the child goes on with a copy of this one.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    check(result)?;
    Ok(i32::try_from(result).ok().and_then(Pid::from_raw).map_or(Cloned::Child, Cloned::Parent))
}

/// Ends the process without running what the parent has registered for its own end.
pub(super) fn exit_now(code: c_int) -> ! {
    // SAFETY: takes a number.
    unsafe { libc::_exit(code) }
}

/// Waits for a signal.
pub(super) fn pause() {
    // SAFETY: takes nothing.
    unsafe { libc::pause() };
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
    for kept in kept.iter().filter_map(|it| c_uint::try_from(*it).ok()) {
        if kept > first {
            close(first, kept - 1)?;
        }
        first = kept + 1;
    }
    close(first, c_uint::MAX)
}

/// Marks every descriptor but the first three to be closed by `exec`.
pub(super) fn set_close_on_exec() -> io::Result<()> {
    let (first, last) = (3 as c_uint, c_uint::MAX);
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

/// Drops a capability from the bounding set, so that no executed program can have it. `None` if the
/// kernel does not have this capability.
pub(super) fn drop_bounding_capability(capability: c_int) -> Option<io::Result<()>> {
    // SAFETY: takes numbers.
    let result = check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }.into());
    let is_unknown = result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL));
    (!is_unknown).then_some(result)
}

/// Brings up the loopback interface of this network namespace.
pub(super) fn bring_up_loopback() -> io::Result<()> {
    // SAFETY: takes numbers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(socket.into())?;
    // SAFETY: all zeros is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (target, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        // Signed on some processors only.
        *target = c_char::from_ne_bytes([*byte]);
    }
    request.ifr_ifru.ifru_flags = IFF_UP;
    // SAFETY: reads `request`; the descriptor was opened above and is closed once.
    unsafe {
        let result = libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &raw const request);
        let result = check(result.into());
        libc::close(socket);
        result
    }
}
