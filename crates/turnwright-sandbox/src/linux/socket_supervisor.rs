//! Decides about every `connect` of the programs in a PID namespace. Before its ABI 9 Landlock cannot deny
//! connections to Unix sockets, and mounts hide only sockets that are known when the program starts.
//!
//! The seccomp filter suspends each `connect` and notifies the first process of the namespace. That one
//! copies the address once, takes a copy of the socket, and makes the connection itself, so nothing
//! that the program changes meanwhile counts. It opens a path as the program would, asks the kernel where
//! the result lies, and connects to exactly that through `/proc/self/fd`. No such call is ever
//! let through (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`): the kernel would read the address again.
//!
//! * What a program can create lies in folders that it may write to, so these and the sockets that the
//!   profile names are all that is open. Whose socket it is need not be known.
//! * Abstract sockets are open if they belong to a private network: Landlock's scope does not include the first process.
//!   They are looked up in the network of the program's socket, so that one must not be of the machine.
//! * Addresses of the internet that lie outside of the program's network are the matter of [`OutsideConnections`]. So
//!   each `sendto` with an address is supervised, too, and each `listen`: nothing listens in the network of the machine.
//! * In a private network, each `bind` is supervised, too: a socket of the machine's network takes no port there. A
//!   socket that is not of the internet is bound by the program itself, in its folder and with its rights. If one of its
//!   threads puts a socket of the machine in its place at that moment, it can hold a port, on which nothing listens.
//! * A socket may have come from another program of the session, which may reach more. It grants nothing beyond this
//!   program's own rights, except over a connection that exists already.
//! * The first process has the rights of the program on files: its user, and no other capability than the one
//!   to inspect processes.
//! * A server sees the first process as its peer, with the user and group of the program.
//! * A connection that has to wait is interrupted by an alarm and tried again, beside the others.
//! * If a signal interrupts the program when the connection is made already, the kernel loses the result, even one
//!   that it has accepted. The program, or the kernel for it, then makes the same call again and gets the result.
//!   So does a program that connects a second time on purpose, which would otherwise learn that it is connected
//!   already.
//! * The first process never closes the listener, and when it ends the kernel ends all others. So the program
//!   cannot install a supervisor of its own that would lift this one.
//! * The filter also suspends some calls that it denies, so that the user learns of them. They are noted and always get
//!   the error that the filter would give; nothing that they point to is read. If a signal arrives at that moment, a
//!   program may see `EINTR` in its place.
//! * Paths that lead through links of `/proc` (`/proc/self/fd/3/socket`) are refused, because they would refer
//!   to the first process.
//!
//! All runs in a process that was forked without `exec`: it makes system calls only and allocates nothing.

use std::io::{self, PipeReader, PipeWriter};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use seccompiler::sock_filter;

use super::outside_connections::{
    Destination, OutsideConnections, connect_timeout, is_closed, is_worth_noting, network_of,
    open_similar, own_network,
};
use super::socket_address::Address;
use super::supervised_call::{
    Call, DoneCalls, REPEATED_BIND, REPEATED_CONNECT, ThreadIdentity, close_on_exec_flag,
    open_in_proc,
};
use super::unix_sockets::OpenSockets;
use super::{capabilities, epoll_transfer, seccomp_filter, syscalls};
use crate::refusals::{NotedRefusals, Refusal};

/// The longest message that is sent for a program at once.
const MAX_MESSAGE: usize = 64 * 1024;
/// The longest time for one attempt. A server that has room answers at once.
const ATTEMPT: Duration = Duration::from_millis(1);
/// The interval at which waiting connections are tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// At most this many connections wait at the same time.
const MAX_WAITING: usize = 64;

/// The supervisor that runs in the first process.
#[derive(Debug)]
pub(super) struct SocketSupervisor {
    sockets: OpenSockets,
    outside: OutsideConnections,
    /// The notes of what the sandbox refuses, which the first process writes.
    refusals: (PipeReader, PipeWriter),
    /// The ends of the program and of the first process.
    channel: (UnixStream, UnixStream),
}

/// The work of the first process, and its state.
struct Supervision<'a> {
    listener: BorrowedFd<'a>,
    sockets: &'a OpenSockets,
    outside: &'a OutsideConnections,
    /// The notes of what the sandbox refuses.
    notes: &'a PipeWriter,
    /// The number of the network of this process.
    own_network: u64,
    done_connects: DoneCalls,
    done_binds: DoneCalls,
    noted: NotedRefusals,
}

/// A system call that waits for its answer, with the socket that it is for.
struct SuspendedCall {
    /// The number of the notification.
    id: u64,
    user: ThreadIdentity,
    process: OwnedFd,
    call: Call,
    /// The number of the socket in the program.
    descriptor: RawFd,
    socket: OwnedFd,
    address: Address,
}

/// A connection that is to be made for a thread.
struct Connection {
    call: SuspendedCall,
    /// True if the socket is to replace the program's own.
    is_replacement: bool,
    /// The file at the address.
    _target: Option<OwnedFd>,
    /// The end of the time that the socket allows. Set when it has to wait.
    deadline: Option<Instant>,
}

impl SocketSupervisor {
    pub(super) fn new(sockets: OpenSockets, outside: OutsideConnections) -> io::Result<Self> {
        let refusals = io::pipe()?;
        rustix::io::ioctl_fionbio(&refusals.0, true)?;
        Ok(SocketSupervisor { sockets, outside, refusals, channel: UnixStream::pair()? })
    }

    /// The descriptors that the first process keeps open.
    pub(super) fn kept_descriptors(&self) -> [RawFd; 2] {
        [self.channel.1.as_raw_fd(), self.refusals.1.as_raw_fd()]
    }

    /// The notes of what the sandbox refuses.
    pub(super) fn refusals(&self) -> io::Result<PipeReader> {
        self.refusals.0.try_clone()
    }

    /// Installs the filter of the program and hands its listener to the first process.
    pub(super) fn install_filter(&self, program: &[sock_filter]) -> io::Result<()> {
        let listener = syscalls::install_filter_with_listener(program)?;
        syscalls::send_descriptor(self.channel.0.as_fd(), listener.as_fd())
    }

    /// Makes the connections of the program, in the first process. Returns when no process of the program is left,
    /// and at once if it does not start.
    pub(super) fn supervise(&self) -> io::Result<()> {
        capabilities::keep_tracing()?;
        let received = syscalls::receive_descriptor(self.channel.1.as_fd());
        let Ok(listener) = received.map(ManuallyDrop::new) else { return Ok(()) };
        syscalls::let_alarms_interrupt()?;
        let mut supervision = Supervision {
            listener: listener.as_fd(),
            sockets: &self.sockets,
            outside: &self.outside,
            notes: &self.refusals.1,
            own_network: own_network()?,
            done_connects: DoneCalls::default(),
            done_binds: DoneCalls::default(),
            noted: NotedRefusals::default(),
        };
        supervision.serve()
    }
}

impl Supervision<'_> {
    fn serve(&mut self) -> io::Result<()> {
        let listener = self.listener;
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
                    let free = waiting.iter_mut().find(|place| place.is_none());
                    match (self.handle(&notification), free) {
                        (Some(connection), Some(place)) => *place = Some(connection),
                        (Some(connection), None) => {
                            let is_unix = connection.call.address.is_unix();
                            let number = if is_unix { libc::EAGAIN } else { libc::ETIMEDOUT };
                            self.answer(connection, number);
                        }
                        (None, _) => {}
                    }
                }
            } else if events.contains(PollFlags::HUP) {
                return Ok(());
            }
            if Instant::now() >= next_retry {
                for place in &mut waiting {
                    *place = place.take().and_then(|connection| self.advance(connection));
                }
                next_retry = Instant::now() + RETRY_INTERVAL;
            }
        }
    }

    /// Does what a call asks for and answers. Returns a connection that has to wait.
    fn handle(&mut self, notification: &libc::seccomp_notif) -> Option<Connection> {
        let id = notification.id;
        let done = match libc::c_long::from(notification.data.nr) {
            libc::SYS_sendto => self.send(notification),
            libc::SYS_listen => self.listen(notification),
            libc::SYS_bind => match self.socket_to_bind(notification) {
                Ok(Some(call)) => {
                    self.bind(call);
                    return None;
                }
                Ok(None) => {
                    syscalls::let_through(self.listener, id);
                    return None;
                }
                Err(error) => Err(error),
            },
            libc::SYS_connect => match self.open_connection(notification) {
                Ok(connection) => return self.advance(connection),
                Err(error) => Err(error),
            },
            _ => Err(self.refuse(&notification.data)),
        };
        let (value, error) = done.map_or_else(|why| (0, error_number(&why)), |value| (value, 0));
        syscalls::answer_notification(self.listener, id, value, error);
        None
    }

    /// Notes a call that is denied. Returns the error that the filter itself would give.
    fn refuse(&mut self, call: &libc::seccomp_data) -> io::Error {
        if let Some(kind) = seccomp_filter::refused_call(call) {
            self.noted.note(Refusal::Call(kind), self.notes);
        }
        io::Error::from_raw_os_error(libc::EPERM)
    }

    /// Copies all that a connection consists of.
    fn open_connection(&mut self, notification: &libc::seccomp_notif) -> io::Result<Connection> {
        let [descriptor, pointer, length, ..] = notification.data.args;
        let mut call = SuspendedCall::read(notification, descriptor, (pointer, length))?;
        let mut buffer = [0; syscalls::MAX_ADDRESS + 1];
        let path = call.address.path(&mut buffer);
        let folder = match path {
            Some(path) if !path.to_bytes().starts_with(b"/") => {
                Some(open_in_proc(call.call.thread, "cwd", OFlags::PATH)?)
            }
            _ => None,
        };
        call.check(self.listener)?;
        if call.address.abstract_name().is_some() {
            self.sockets.check_abstract()?;
            self.check_network(call.socket.as_fd())?;
        }
        let target = path
            .map(|path| call.user.run_as_user(|| self.sockets.resolve(folder.as_ref(), path)))
            .transpose()?;
        if let Some(target) = &target {
            call.address = Address::of_descriptor(target)?;
        }
        let outside = if self.sockets.has_private_network {
            let opened = self.outside_socket(&call);
            opened.inspect_err(|error| self.note(&call, error_number(error)))?
        } else {
            None
        };
        let is_replacement = outside.is_some();
        call.socket = outside.unwrap_or(call.socket);
        Ok(Connection { call, is_replacement, _target: target, deadline: None })
    }

    /// Fails for a socket of the machine's network, unless that is the program's.
    fn check_network(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let is_private =
            !self.sockets.has_private_network || network_of(socket)? != self.own_network;
        if is_private { Ok(()) } else { Err(access_denied()) }
    }

    /// Notes a connection that failed because of the sandbox.
    fn note(&mut self, call: &SuspendedCall, error: i32) {
        // Whoever does not wait learns it later.
        let error = match error {
            libc::EINPROGRESS if is_closed(call.socket.as_fd()) => libc::ECONNREFUSED,
            error => error,
        };
        if let Some(address) = call.address.internet()
            && self.outside.is_out_of_reach(address, error)
            && is_worth_noting(call.socket.as_fd(), address)
        {
            self.noted.note(Refusal::Connection(address), self.notes);
        }
    }

    /// The socket that the program needs for an address outside of its network; `None` if its own is right.
    fn outside_socket(&self, call: &SuspendedCall) -> io::Result<Option<OwnedFd>> {
        let socket = call.socket.as_fd();
        let Some(address) = call.address.internet() else {
            // Once disconnected, a socket of the machine could be bound elsewhere, and a datagram socket would receive
            // from everyone.
            let is_unix_stream = syscalls::socket_option(socket, libc::SO_DOMAIN)? == libc::AF_UNIX
                && syscalls::socket_option(socket, libc::SO_TYPE)? != libc::SOCK_DGRAM;
            let is_kept = is_unix_stream || network_of(socket)? != self.own_network;
            return if is_kept { Ok(None) } else { Err(access_denied()) };
        };
        let is_outside = network_of(socket)? == self.own_network;
        match self.outside.destination(address) {
            Destination::Outside if is_outside => Ok(None),
            Destination::Outside
                if self.outside.has_datagrams()
                    || syscalls::socket_option(socket, libc::SO_TYPE)? == libc::SOCK_STREAM =>
            {
                open_similar(socket).map(Some)
            }
            Destination::OwnNetwork if !is_outside => Ok(None),
            Destination::Outside | Destination::OwnNetwork | Destination::Refused => {
                Err(access_denied())
            }
        }
    }

    /// Prepares the socket for a message to an address outside, which is always connected.
    fn prepare_to_send(&self, call: &mut SuspendedCall) -> io::Result<()> {
        if let Some(outside) = self.outside_socket(call)? {
            call.socket = outside;
            syscalls::connect(call.socket.as_fd(), call.address.bytes())?;
            return call.replace(self.listener);
        }
        let socket = call.socket.as_fd();
        if network_of(socket)? != self.own_network {
            return Ok(());
        }
        // A resolver asks all nameservers with one socket. The first has to answer.
        let peer = syscalls::peer_address(socket);
        let is_from_nameserver = peer.is_ok_and(|peer| self.outside.is_named(peer));
        let target = call.address.internet();
        if is_from_nameserver && target.is_some_and(|target| self.outside.is_named(target)) {
            return Ok(());
        }
        syscalls::connect(socket, call.address.bytes())
    }

    /// Makes a socket accept connections, unless it belongs to the network of the machine.
    fn listen(&self, notification: &libc::seccomp_notif) -> io::Result<i64> {
        let [descriptor, backlog, ..] = notification.data.args;
        let call = SuspendedCall::read(notification, descriptor, (0, 0))?;
        call.check(self.listener)?;
        let socket = call.socket.as_fd();
        self.check_network(socket)?;
        // A client sees the user that made it.
        call.user.run_as_user(|| Ok(rustix::net::listen(socket, lower_half(backlog))?))?;
        Ok(0)
    }

    /// The socket that is to be bound for the program; `None` if the program may do so itself.
    fn socket_to_bind(
        &self,
        notification: &libc::seccomp_notif,
    ) -> io::Result<Option<SuspendedCall>> {
        let [descriptor, pointer, length, ..] = notification.data.args;
        let call = SuspendedCall::read(notification, descriptor, (pointer, length))?;
        call.check(self.listener)?;
        let socket = call.socket.as_fd();
        self.check_network(socket)?;
        let domain = syscalls::socket_option(socket, libc::SO_DOMAIN)?;
        Ok([libc::AF_INET, libc::AF_INET6].contains(&domain).then_some(call))
    }

    /// Tries to connect and answers. Returns the connection if it has to wait.
    fn advance(&mut self, mut connection: Connection) -> Option<Connection> {
        if !syscalls::is_waiting(self.listener, connection.call.id) {
            return None;
        }
        let number = connection.attempt().map_or_else(|error| error_number(&error), |()| 0);
        if number != libc::EINTR {
            self.note(&connection.call, number);
            self.answer(connection, number);
            return None;
        }
        // If a signal interrupts the program, it goes on with the socket that connects.
        if connection.is_replacement {
            if let Err(error) = connection.call.replace(self.listener) {
                self.answer(connection, error_number(&error));
                return None;
            }
            connection.is_replacement = false;
        }
        let deadline = connection.deadline.or_else(|| {
            let timeout = connect_timeout(connection.call.socket.as_fd());
            Instant::now().checked_add(timeout.unwrap_or(Duration::MAX))
        });
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            let is_unix = connection.call.address.is_unix();
            let number = if is_unix { libc::EAGAIN } else { libc::EINPROGRESS };
            self.answer(connection, number);
            return None;
        }
        connection.deadline = deadline;
        Some(connection)
    }

    /// Sends a message to an address for the program. Returns how many bytes were sent.
    #[expect(clippy::large_stack_arrays, reason = "nothing is allocated here, and there is room")]
    fn send(&self, notification: &libc::seccomp_notif) -> io::Result<i64> {
        let [descriptor, message, size, flags, pointer, length] = notification.data.args;
        let mut call = SuspendedCall::read(notification, descriptor, (pointer, length))?;
        let mut buffer = [0; MAX_MESSAGE];
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let is_stream =
            syscalls::socket_option(call.socket.as_fd(), libc::SO_TYPE)? == libc::SOCK_STREAM;
        let buffer = match buffer.get_mut(..size) {
            Some(part) => part,
            // The program sends the rest with the next call.
            None if is_stream => &mut buffer[..],
            None => return Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
        };
        syscalls::read_memory(call.call.thread, message, buffer)?;
        call.check(self.listener)?;
        let flags = lower_half(flags);
        if call.address.is_unix() || flags & libc::MSG_FASTOPEN != 0 {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        // The address says nothing for a connected stream, and another one sends nothing.
        if !is_stream && self.sockets.has_private_network {
            self.prepare_to_send(&mut call)?;
        }
        let sent = syscalls::send_to(call.socket.as_fd(), buffer, flags, call.address.bytes())?;
        i64::try_from(sent).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Answers the call of a connection with an error number, or 0.
    fn answer(&mut self, mut connection: Connection, number: i32) {
        let is_begun = [0, libc::EINPROGRESS].contains(&number) && connection.is_replacement;
        let replaced = is_begun.then(|| connection.call.replace(self.listener));
        let failed = replaced.and_then(Result::err);
        let answer = failed.map_or(number, |error| error_number(&error));
        let SuspendedCall { id, call, .. } = connection.call;
        // If the program closes the socket next, nothing else keeps it open.
        drop(connection);
        self.done_connects.answer(self.listener, (id, call), answer, REPEATED_CONNECT);
    }

    /// Binds a socket for the program and answers.
    fn bind(&mut self, suspended: SuspendedCall) {
        let SuspendedCall { id, call, user, .. } = suspended;
        let address = suspended.address.bytes();
        let bound = user.run_as_user(|| syscalls::bind(suspended.socket.as_fd(), address));
        let number = bound.map_or_else(|error| error_number(&error), |()| 0);
        // If the program closes the socket next, nothing else keeps it open.
        drop(suspended);
        self.done_binds.answer(self.listener, (id, call), number, REPEATED_BIND);
    }
}

impl SuspendedCall {
    /// Copies the socket of a call, and the address with this pointer and length, once.
    fn read(
        notification: &libc::seccomp_notif,
        descriptor: u64,
        (pointer, length): (u64, u64),
    ) -> io::Result<SuspendedCall> {
        let descriptor = lower_half(descriptor);
        let thread =
            Pid::from_raw(notification.pid.cast_signed()).ok_or(io::ErrorKind::PermissionDenied)?;
        let user = ThreadIdentity::of(thread)?;
        // A thread may have descriptors of its own, but before Linux 6.9 it cannot be asked for them.
        let process = pidfd_open(thread, PidfdFlags::from_bits_retain(libc::PIDFD_THREAD))
            .or_else(|_| pidfd_open(user.process, PidfdFlags::empty()))?;
        let socket = pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty())?;
        let inode = rustix::fs::fstat(&socket)?.st_ino;
        let address = Address::read(thread, pointer, lower_half(length))?;
        let call = Call { thread, socket: inode, pointer, address: address.fingerprint() };
        Ok(SuspendedCall { id: notification.id, user, process, call, descriptor, socket, address })
    }

    /// Fails if the thread is gone. Until then, another one could have got its number.
    fn check(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        let is_waiting = syscalls::is_waiting(listener, self.id);
        if is_waiting { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    }

    /// Puts the socket in the place of the program's.
    fn replace(&mut self, listener: BorrowedFd<'_>) -> io::Result<()> {
        let thread = self.call.thread;
        let flags = close_on_exec_flag(thread, self.descriptor)?;
        let process = self.process.as_fd();
        // The program may register itself what cannot be transferred.
        epoll_transfer::transfer(thread, process, self.descriptor, self.socket.as_fd()).ok();
        let place = (self.descriptor, flags);
        syscalls::replace_descriptor(listener, self.id, place, self.socket.as_fd())?;
        self.call.socket = rustix::fs::fstat(&self.socket)?.st_ino;
        Ok(())
    }
}

impl Connection {
    fn attempt(&self) -> io::Result<()> {
        let SuspendedCall { user, socket, address, .. } = &self.call;
        syscalls::set_alarm(ATTEMPT);
        let result = user.run_as_user(|| syscalls::connect(socket.as_fd(), address.bytes()));
        syscalls::set_alarm(Duration::ZERO);
        result
    }
}

/// The error number that the program gets for an error.
fn error_number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EACCES)
}

fn access_denied() -> io::Error {
    io::Error::from_raw_os_error(libc::EACCES)
}

/// A number as the kernel takes it from a register.
fn lower_half(register: u64) -> i32 {
    let [a, b, c, d, ..] = register.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// Fails if supervision is not possible. To be called in a child that has entered the namespaces and will not
/// become a command.
pub(super) fn try_out() -> io::Result<()> {
    let process = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let number = process.as_raw_fd();
    drop(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?);
    let own = [1_u8];
    let mut copy = [0];
    syscalls::read_memory(rustix::process::getpid(), own.as_ptr().addr() as u64, &mut copy)?;
    // The first process finds the threads of the namespace there.
    let has_proc = syscalls::succeeds_in_fork(|| {
        let flags = rustix::mount::MountFlags::RDONLY;
        Ok(rustix::mount::mount(c"proc", c"/proc", c"proc", flags, None)?)
    })?;
    if has_proc != Some(true) || !capabilities::can_trace()? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    rustix::thread::set_no_new_privs(true)?;
    let allow = sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    syscalls::install_filter_with_listener(&[allow]).map(drop)
}
