//! Registers the socket that takes the place of another one wherever a program waits for events of that one: some event
//! loops register a socket before they connect it. The kernel tells in `/proc` what an epoll instance waits for. An entry
//! belongs to a file and a number, so it is made under the number that the program uses.
//!
//! Everything here makes system calls only and allocates nothing.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{OFlags, RawDir};
use rustix::process::{Pid, PidfdGetfdFlags, pidfd_getfd};

use super::supervised_call::open_in_proc;
use super::syscalls;

/// The target of links in `/proc` to epoll instances.
const EPOLL: &[u8] = b"anon_inode:[eventpoll]";
/// At most this many descriptors of a program are looked at.
const MAX_DESCRIPTORS: usize = 4_096;

/// An entry in the interest list of an epoll instance.
#[derive(Debug, PartialEq, Eq)]
struct EpollEntry {
    descriptor: RawFd,
    events: u32,
    data: u64,
}

/// Registers `socket` for the events that the process waits for at `descriptor`, in all its epoll instances. Where this
/// is not possible, the program has to register it itself.
pub(super) fn transfer(
    thread: Pid,
    process: BorrowedFd<'_>,
    descriptor: RawFd,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    let folder = open_in_proc(thread, "fd", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut buffer = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(&folder, &mut buffer);
    let mut count = 0;
    while let Some(entry) = entries.next() {
        count += 1;
        if count > MAX_DESCRIPTORS {
            break;
        }
        let Some(number) = epoll_number(folder.as_fd(), entry?.file_name()) else { continue };
        // If it is not possible for one instance, it may be for the next.
        if let Ok(Some(registered)) = EpollEntry::find(thread, number, descriptor)
            && let Ok(epoll) = pidfd_getfd(process, number, PidfdGetfdFlags::empty())
        {
            registered.add(&epoll, socket).ok();
        }
    }
    Ok(())
}

/// The number of a descriptor, if it refers to an epoll instance.
fn epoll_number(folder: BorrowedFd<'_>, name: &CStr) -> Option<RawFd> {
    let mut target = [0; EPOLL.len() + 1];
    let length = rustix::fs::readlinkat_raw(folder, name, &mut target[..]).ok()?;
    (target[..length] == *EPOLL).then(|| name.to_str().ok()?.parse().ok())?
}

impl EpollEntry {
    /// The entry for a descriptor in an epoll instance of a thread.
    fn find(thread: Pid, epoll: RawFd, descriptor: RawFd) -> io::Result<Option<EpollEntry>> {
        let file = open_in_proc(thread, format_args!("fdinfo/{epoll}"), OFlags::RDONLY)?;
        let mut buffer = [0; 4096];
        let mut length = 0;
        loop {
            let read = rustix::io::read(&file, &mut buffer[length..])?;
            length += read;
            let mut begin = 0;
            while let Some(end) = buffer[begin..length].iter().position(|byte| *byte == b'\n') {
                let entry = EpollEntry::parse(&buffer[begin..begin + end]);
                if let Some(entry) = entry.filter(|entry| entry.descriptor == descriptor) {
                    return Ok(Some(entry));
                }
                begin += end + 1;
            }
            if read == 0 {
                return Ok(None);
            }
            buffer.copy_within(begin..length, 0);
            length -= begin;
        }
    }

    /// Reads a line such as `tfd:        5 events:       1d data:                5  pos:0 ino:61af sdev:7`.
    fn parse(line: &[u8]) -> Option<EpollEntry> {
        let mut words = str::from_utf8(line).ok()?.split_ascii_whitespace();
        let mut value = |name: &str| (words.next()? == name).then(|| words.next())?;
        Some(EpollEntry {
            descriptor: value("tfd:")?.parse().ok()?,
            events: u32::from_str_radix(value("events:")?, 16).ok()?,
            data: u64::from_str_radix(value("data:")?, 16).ok()?,
        })
    }

    /// Fails only if no process can be started for it.
    fn add(&self, epoll: &OwnedFd, socket: BorrowedFd<'_>) -> io::Result<()> {
        // The number may be in use here, but not in a process that ends at once. The entry stays for as long as the file.
        syscalls::succeeds_in_fork(|| {
            let lowest = self.descriptor.saturating_add(1);
            let epoll = rustix::io::fcntl_dupfd_cloexec(epoll, lowest)?;
            let socket = rustix::io::fcntl_dupfd_cloexec(socket, lowest)?;
            syscalls::duplicate_as(socket.as_fd(), self.descriptor)?;
            syscalls::watch(epoll.as_fd(), self.descriptor, self.events, self.data)
        })
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_the_kernel_writes_them() {
        let line = b"tfd:        5 events: 8000201d data:  5ffffffff  pos:0 ino:61af sdev:7";
        let expected = EpollEntry { descriptor: 5, events: 0x8000_201d, data: 0x5_ffff_ffff };
        assert_eq!(EpollEntry::parse(line), Some(expected));
        for line in [&b"pos:\t0"[..], b"", b"tfd: x events: 1 data: 1", b"\xff"] {
            assert_eq!(EpollEntry::parse(line), None, "{line:?}");
        }
    }
}
