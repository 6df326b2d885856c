//! Whether an abstract Unix socket belongs to a process of this PID namespace. Such sockets have no place in
//! the file system, and Landlock's scope (ABI 6) does not include the process that connects for a
//! program.
//!
//! Everything here makes system calls only and allocates nothing.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, RawDir};

/// The kernel's table of the Unix sockets of this network namespace.
const TABLE: &CStr = c"/proc/self/net/unix";
/// The flags of a socket that accepts connections.
const LISTENS: &[u8] = b"00010000";
/// `socket:[` and `]` around a number.
const MAX_LINK: usize = 32;

/// Fails if a process outside listens at this name, or nobody does. A name may be in the table twice, for
/// two types of sockets.
pub(super) fn check_is_own(name: &[u8]) -> io::Result<()> {
    let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
    // It could look like another line of the table.
    if name.contains(&b'\n') {
        return Err(refused);
    }
    let table = rustix::fs::open(TABLE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [0; 4096];
    let (mut length, mut result) = (0, Err(refused));
    loop {
        let read = rustix::io::read(&table, &mut buffer[length..])?;
        length += read;
        let mut begin = 0;
        while let Some(end) = buffer[begin..length].iter().position(|it| *it == b'\n') {
            if let Some(inode) = listener_inode(&buffer[begin..begin + end], name) {
                if !has_socket(inode)? {
                    return Err(io::Error::from_raw_os_error(libc::EPERM));
                }
                result = Ok(());
            }
            begin += end + 1;
        }
        if read == 0 {
            return result;
        }
        buffer.copy_within(begin..length, 0);
        length -= begin;
    }
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

/// Whether a process of this namespace has a socket open.
fn has_socket(inode: &[u8]) -> io::Result<bool> {
    let mut link = [0; MAX_LINK];
    let length = b"socket:[]".len() + inode.len();
    let parts = [b"socket:[".as_slice(), inode, b"]"];
    let link = link.get_mut(..length).ok_or(io::ErrorKind::InvalidData)?;
    for (to, from) in link.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    let processes = open_folder(CWD, c"/proc")?;
    let mut found = false;
    visit(processes.as_fd(), |process| {
        if found || !process.to_bytes()[0].is_ascii_digit() {
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
        drop(visit(files.as_fd(), |file| found = found || is_it(file)));
    })?;
    Ok(found)
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
