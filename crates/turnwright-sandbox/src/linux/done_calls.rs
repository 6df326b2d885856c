//! The supervised calls that were done for a program. If a signal interrupts the program then, the kernel loses the result,
//! and the program makes the call again.

use std::os::fd::BorrowedFd;

use rustix::process::Pid;

use super::syscalls;

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

/// The last calls that have succeeded.
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
