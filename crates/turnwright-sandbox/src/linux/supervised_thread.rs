//! The thread whose system call is supervised. It makes system calls only and allocates nothing.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use super::socket_address::format_path;
use super::syscalls;

/// The process that a thread belongs to, and in whose name it acts.
#[derive(Clone, Copy)]
pub(super) struct ThreadIdentity {
    pub(super) process: Pid,
    user: u32,
    group: u32,
}

impl ThreadIdentity {
    pub(super) fn of(thread: Pid) -> io::Result<ThreadIdentity> {
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

/// The working folder of a thread.
pub(super) fn open_folder_of(thread: Pid) -> io::Result<OwnedFd> {
    let mut name = [0; 32];
    let name = format_path(&mut name, format_args!("/proc/{}/cwd", thread.as_raw_pid()))?;
    Ok(rustix::fs::open(name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// The flags of a thread's descriptor that `exec` obeys.
pub(super) fn descriptor_flags(thread: Pid, descriptor: i32) -> io::Result<u32> {
    let mut name = [0; 48];
    let path = format_args!("/proc/{}/fdinfo/{descriptor}", thread.as_raw_pid());
    let file = rustix::fs::open(
        format_path(&mut name, path)?,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut buffer = [0; 256];
    let length = rustix::io::read(file, &mut buffer)?;
    let mut lines = buffer[..length].split(|it| *it == b'\n');
    let flags = lines.find_map(|line| line.strip_prefix(b"flags:"));
    let flags = flags.and_then(|digits| str::from_utf8(digits).ok());
    let flags = flags.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok());
    flags
        .map(|it| it & libc::O_CLOEXEC.cast_unsigned())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
