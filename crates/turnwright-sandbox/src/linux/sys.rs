//! System calls that no library wraps, each as a function. All may be called between fork and exec:
//! they allocate nothing and take no lock.
#![expect(unsafe_code, reason = "system calls")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_long, c_uint};

/// Asks for the version instead of a ruleset.
const LANDLOCK_VERSION: c_uint = 1;
const LANDLOCK_PATH_BENEATH: c_int = 1;
/// `IFF_UP`, as wide as it is used.
const UP: libc::c_short = 1;
/// Longer paths are nobody's folder.
const LONGEST_PATH: usize = libc::PATH_MAX as usize;

fn done(result: c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The version of Landlock, if it is there and on.
pub(super) fn landlock_abi() -> Option<i32> {
    let none = std::ptr::null::<u8>();
    // SAFETY: with this flag no memory is read.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, LANDLOCK_VERSION)
    };
    i32::try_from(version).ok().filter(|it| *it > 0)
}

/// Whether a filter of system calls can answer with an error.
pub(super) fn has_seccomp() -> bool {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    let question = libc::SECCOMP_GET_ACTION_AVAIL;
    // SAFETY: reads the four bytes of `action`.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, question, 0, &raw const action) };
    answer == 0
}

/// Binds the process to the ruleset, for good.
pub(super) fn restrict_self(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes numbers.
    done(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
}

/// Grants rights on what lies below a folder.
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
    let (ruleset, sort) = (ruleset.as_raw_fd(), LANDLOCK_PATH_BENEATH);
    // SAFETY: reads `rule`, which has the kernel's layout.
    done(unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset, sort, &raw const rule, 0) })
}

/// Makes a mount, and what is mounted below it, read-only.
pub(super) fn make_read_only(path: &CStr) -> io::Result<()> {
    let change = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: reads the path and `change`, which has the kernel's layout.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    })
}

/// Leaves the namespaces that are named.
pub(super) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: takes a number; no flag is used that parts descriptors.
    done(unsafe { libc::unshare(flags) }.into())
}

/// No descriptor but the first three outlives the exec.
pub(super) fn close_on_exec() -> io::Result<()> {
    let (first, last) = (3 as c_uint, c_uint::MAX);
    // SAFETY: takes numbers; nothing is closed yet.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) })
}

/// Goes where the process is, by name: to what is mounted there now.
pub(super) fn come_back() -> io::Result<()> {
    let mut path = [0_u8; LONGEST_PATH];
    // SAFETY: writes at most as much as there is room.
    done(unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) })?;
    // SAFETY: the kernel has put a zero byte at the end.
    done(unsafe { libc::chdir(path.as_ptr().cast()) }.into())
}

/// Takes a capability away from what this process will ever execute. `None` when there is no
/// capability of that number.
pub(super) fn forget_capability(number: c_int) -> Option<io::Result<()>> {
    // SAFETY: takes numbers.
    let result = done(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) }.into());
    let is_none = result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL));
    (!is_none).then_some(result)
}

/// Makes the loopback interface of this network work.
pub(super) fn raise_loopback() -> io::Result<()> {
    // SAFETY: a number is returned, or -1.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    done(socket.into())?;
    // SAFETY: all zeros is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = UP;
    // SAFETY: reads `request`; the descriptor was opened above and is closed once.
    unsafe {
        let result = libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &raw const request);
        let result = done(result.into());
        libc::close(socket);
        result
    }
}
