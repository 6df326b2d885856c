//! A supervised system call: the thread that makes it, and the calls that were done for a program already. All runs
//! in a forked process, so it only makes system calls and allocates nothing.

use std::fmt::Display;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use super::socket_address::format_path;
use super::syscalls;

/// The process that a thread belongs to, and the user and group that it acts as.
#[derive(Clone, Copy)]
pub(super) struct ThreadIdentity {
    pub(super) process: Pid,
    user: u32,
    group: u32,
}

impl ThreadIdentity {
    pub(super) fn of(thread: Pid) -> io::Result<ThreadIdentity> {
        let file = open_in_proc(thread, "status", OFlags::RDONLY)?;
        let mut buffer = [0; 1024];
        let length = rustix::io::read(file, &mut buffer)?;
        Self::parse(&buffer[..length]).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Parses `/proc/…/status`.
    fn parse(status: &[u8]) -> Option<ThreadIdentity> {
        let process = Pid::from_raw(i32::try_from(status_number(status, "Tgid:", 1)?).ok()?)?;
        // The first id is the real one, the second the effective one.
        let user = status_number(status, "Uid:", 2)?;
        let group = status_number(status, "Gid:", 2)?;
        Some(ThreadIdentity { process, user, group })
    }

    /// Runs `work` as the user and group of the thread. They can differ from those of this process only if it
    /// is root.
    pub(super) fn run_as_user<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !rustix::process::geteuid().is_root() || (self.user, self.group) == (0, 0) {
            return work();
        }
        syscalls::set_effective_ids(self.user, self.group)?;
        let result = work();
        syscalls::set_effective_ids(0, 0)?;
        result
    }
}

/// Returns a number from the line that begins with `name`. Position 1 is the first word after the name.
fn status_number(status: &[u8], name: &str, position: usize) -> Option<u32> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let values = lines.find_map(|line| line.strip_prefix(name.as_bytes()))?;
    let value = values.split(u8::is_ascii_whitespace).nth(position)?;
    str::from_utf8(value).ok()?.parse().ok()
}

/// Opens a file or folder in a thread's part of `/proc`.
pub(super) fn open_in_proc(thread: Pid, name: impl Display, how: OFlags) -> io::Result<OwnedFd> {
    let mut path_bytes = [0; 48];
    let path = format_path(&mut path_bytes, format_args!("/proc/{}/{name}", thread.as_raw_pid()))?;
    Ok(rustix::fs::open(path, how | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns `O_CLOEXEC` if `exec` closes this descriptor of a thread, otherwise 0.
pub(super) fn close_on_exec_flag(thread: Pid, descriptor: i32) -> io::Result<u32> {
    let file = open_in_proc(thread, format_args!("fdinfo/{descriptor}"), OFlags::RDONLY)?;
    let mut buffer = [0; 256];
    let length = rustix::io::read(file, &mut buffer)?;
    let mut lines = buffer[..length].split(|byte| *byte == b'\n');
    lines
        .find_map(|line| line.strip_prefix(b"flags:"))
        .and_then(|digits| str::from_utf8(digits).ok())
        .and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok())
        .map(|flags| flags & libc::O_CLOEXEC.cast_unsigned())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// At most this many calls that have succeeded are remembered.
const MAX_DONE: usize = 16;

/// The errors of a call that has done its work before, and the results that were lost.
pub(super) const REPEATED_CONNECT: &[(i32, i32)] =
    &[(libc::EISCONN, 0), (libc::EALREADY, libc::EINPROGRESS)];
pub(super) const REPEATED_BIND: &[(i32, i32)] = &[(libc::EINVAL, 0)];

/// The properties that identify a call when it is made again after a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) thread: Pid,
    /// The inode of the socket.
    pub(super) socket: u64,
    /// Where the address lies in the memory of the thread.
    pub(super) pointer: u64,
    /// The [fingerprint](super::socket_address::Address::fingerprint) of the address.
    pub(super) address: u64,
}

/// The last calls that have succeeded. If a signal interrupts the program when its call was done, the kernel loses the
/// result, and the program makes the call again.
#[derive(Default)]
pub(super) struct DoneCalls {
    calls: [Option<Call>; MAX_DONE],
    next: usize,
}

impl DoneCalls {
    /// Answers the notification of a call with an error number, or 0. A call whose result was lost gets that.
    pub(super) fn answer(
        &mut self,
        listener: BorrowedFd<'_>,
        (id, call): (u64, Call),
        number: i32,
        repeated: &[(i32, i32)],
    ) {
        let done = self.calls.iter_mut().find(|done| **done == Some(call));
        let was_done = done.map(Option::take).is_some();
        let lost = repeated.iter().find(|(error, _)| was_done && *error == number);
        let answer = lost.map_or(number, |(_, result)| *result);
        let is_accepted = syscalls::answer_notification(listener, id, 0, answer);
        // Once is enough for an answer that was accepted: a program may make the call twice on purpose.
        if [0, libc::EINPROGRESS].contains(&answer) && !(is_accepted && answer != number) {
            self.calls[self.next] = Some(call);
            self.next = (self.next + 1) % MAX_DONE;
        }
    }
}
