//! The connections of a program that failed because of its sandbox. The supervisor notes them in a pipe; the
//! process that has started the program reads them when it has ended.

use std::io::{self, PipeReader, PipeWriter};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::outside_connections::NAMESERVER_PORT;
use super::syscalls;
use crate::refused_connections::encode;

/// At most this many addresses are noted, which a pipe always holds.
const MAX_NOTED: usize = 16;

/// The pipe between the two processes.
#[derive(Debug)]
pub(super) struct ConnectionNotes {
    reader: PipeReader,
    writer: PipeWriter,
}

/// The addresses that the supervisor has noted already.
#[derive(Default)]
pub(super) struct NotedConnections([Option<SocketAddr>; MAX_NOTED]);

impl ConnectionNotes {
    pub(super) fn new() -> io::Result<ConnectionNotes> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok(ConnectionNotes { reader, writer })
    }

    /// The end to read from.
    pub(super) fn reader(&self) -> io::Result<PipeReader> {
        self.reader.try_clone()
    }

    /// The descriptor that the supervisor keeps open.
    pub(super) fn kept_descriptor(&self) -> RawFd {
        self.writer.as_raw_fd()
    }

    /// Notes an address, once. Makes system calls only.
    pub(super) fn note(&self, address: SocketAddr, noted: &mut NotedConnections) {
        if noted.0.contains(&Some(address)) {
            return;
        }
        let Some(free) = noted.0.iter_mut().find(|place| place.is_none()) else { return };
        *free = Some(address);
        // Without it, the user is told less.
        rustix::io::write(&self.writer, &encode(address)).ok();
    }
}

/// Returns true if a socket is one for connections, or for a look-up of a name.
pub(super) fn is_worth_noting(socket: BorrowedFd<'_>, address: SocketAddr) -> bool {
    let kind = syscalls::socket_option(socket, libc::SO_TYPE);
    let is_stream = kind.is_ok_and(|kind| kind == libc::SOCK_STREAM);
    address.port() == NAMESERVER_PORT || is_stream && address.port() > 0
}
