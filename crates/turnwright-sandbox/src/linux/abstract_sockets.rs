//! Finds the abstract Unix socket of a process of this PID namespace. Such sockets have no place in
//! the file system, and Landlock's scope (ABI 6) does not include the process that connects for a
//! program.
//!
//! The kernel's table only says where to look: it does not tell the types of sockets nor a zero from an `@`,
//! a name may hold what looks like another line, and while sockets come and go it may leave one out. A socket is found
//! if it is open in a process of the namespace, and has exactly the name and the type that are asked for. There
//! is no other such socket as long as it is open.
//!
//! Everything here makes system calls only and allocates nothing.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::syscalls;

/// The kernel's table of the Unix sockets of this network namespace.
const TABLE: &CStr = c"/proc/self/net/unix";
/// The flags of a socket that accepts connections.
const LISTENS: &[u8] = b"00010000";
/// `socket:[` and `]` around a number.
const MAX_LINK: usize = 32;
/// Where the name begins in an address.
const NAME_OFFSET: usize = size_of::<libc::sa_family_t>();

/// The socket of this namespace to which `client` would connect at this address. Fails if a process outside has
/// it, or nobody does.
pub(super) fn find_own(client: BorrowedFd<'_>, address: &[u8]) -> io::Result<OwnedFd> {
    let kind = syscalls::socket_option(client, libc::SO_TYPE)?;
    let name = address.get(NAME_OFFSET..).unwrap_or_default();
    let table = rustix::fs::open(TABLE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [0; 4096];
    let (mut length, mut error) = (0, libc::ECONNREFUSED);
    loop {
        let read = rustix::io::read(&table, &mut buffer[length..])?;
        length += read;
        let mut begin = 0;
        while let Some(end) = buffer[begin..length].iter().position(|it| *it == b'\n') {
            if let Some(inode) = listener_inode(&buffer[begin..begin + end], name) {
                let found = open_socket(inode)?.filter(|it| is_at(it.as_fd(), kind, address));
                if let Some(found) = found {
                    return Ok(found);
                }
                error = libc::EPERM;
            }
            begin += end + 1;
        }
        if read == 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        buffer.copy_within(begin..length, 0);
        length -= begin;
    }
}

/// Whether a socket has this type and address.
fn is_at(socket: BorrowedFd<'_>, kind: libc::c_int, address: &[u8]) -> bool {
    let mut buffer = [0; size_of::<libc::sockaddr_storage>()];
    syscalls::socket_option(socket, libc::SO_TYPE).is_ok_and(|it| it == kind)
        && syscalls::socket_address(socket, &mut buffer).is_ok_and(|it| it == address)
}

/// The number of the socket in a line of the table, if it listens at this name: `number: count protocol
/// flags type state inode name`. The kernel writes `@` for each zero.
fn listener_inode<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let name_begin = line.len().checked_sub(name.len())?;
    let (fields, listed) = line.split_at(name_begin);
    let is_same = listed.iter().zip(name).all(|(a, b)| *a == if *b == 0 { b'@' } else { *b });
    let fields = fields.strip_suffix(b" ").filter(|_| is_same)?;
    let mut fields = fields.split(|it| *it == b' ').filter(|it| !it.is_empty());
    let (flags, inode, rest) = (fields.nth(3)?, fields.nth(2)?, fields.next());
    (flags == LISTENS && rest.is_none()).then_some(inode)
}

/// A copy of a socket that a process of this namespace has open.
fn open_socket(inode: &[u8]) -> io::Result<Option<OwnedFd>> {
    let mut link = [0; MAX_LINK];
    let length = b"socket:[]".len() + inode.len();
    let parts = [b"socket:[".as_slice(), inode, b"]"];
    let link = link.get_mut(..length).ok_or(io::ErrorKind::InvalidData)?;
    for (to, from) in link.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    let processes = open_folder(CWD, c"/proc")?;
    let mut found = None;
    visit(processes.as_fd(), |process| {
        let Some(number) = number(process).and_then(Pid::from_raw) else { return };
        if found.is_some() {
            return;
        }
        // It may have ended.
        let files =
            open_folder(processes.as_fd(), process).and_then(|it| open_folder(it.as_fd(), c"fd"));
        let Ok(files) = files else { return };
        let is_it = |file: &CStr| {
            let mut target = [0; MAX_LINK];
            rustix::fs::readlinkat_raw(&files, file, &mut target[..])
                .is_ok_and(|length| target[..length] == *link)
        };
        drop(visit(files.as_fd(), |file| {
            if found.is_none() && is_it(file) {
                let process = pidfd_open(number, PidfdFlags::empty()).ok();
                let file = process.zip(self::number(file));
                found = file.and_then(|(process, file)| {
                    pidfd_getfd(process, file, PidfdGetfdFlags::empty()).ok()
                });
            }
        }));
    })?;
    Ok(found)
}

fn number(name: &CStr) -> Option<i32> {
    name.to_str().ok()?.parse().ok()
}

fn open_folder(above: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(above, name, how, Mode::empty())?)
}

/// Calls something with the name of each entry of a folder.
fn visit(folder: BorrowedFd<'_>, mut work: impl FnMut(&CStr)) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        work(entry?.file_name());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_at_a_name_are_found_in_the_table() {
        let line = b"0000000000000000: 00000002 00000000 00010000 0001 01 4711 @a b@c";
        for (line, name, expected) in [
            (line.as_slice(), b"\0a b\0c".as_slice(), Some(b"4711".as_slice())),
            (line, b"@a b@c", Some(b"4711")),
            (line, b"\0c", None),
            (line, b"b\0c", None),
            (b"0000000000000000: 00000003 00000000 00000000 0001 03 4712 @a", b"\0a", None),
            (
                b"0000000000000000: 00000002 00000000 00010000 0005 01  4713 @a",
                b"\0a",
                Some(b"4713"),
            ),
            (b"Num       RefCount Protocol Flags    Type St Inode Path", b"Path", None),
            (b"", b"\0a", None),
        ] {
            assert_eq!(listener_inode(line, name), expected, "{line:?} {name:?}");
        }
    }
}
