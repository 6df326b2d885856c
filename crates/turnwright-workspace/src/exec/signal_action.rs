//! Signal dispositions of this process. All functions may be called between fork and exec.
#![expect(unsafe_code, reason = "signal(2), which is async-signal-safe")]

use std::ffi::c_int;

use rustix::process::Signal;

unsafe extern "C" {
    fn signal(number: c_int, action: usize) -> usize;
}

const DEFAULT: usize = 0;
const IGNORE: usize = 1;
const FAILED: usize = usize::MAX;

/// The signals whose default action a program expects. A signal that this process has inherited as ignored
/// would be ignored by the program as well.
const RESET: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::CHILD, Signal::XFSZ];

/// Returns the action that was in place before.
pub(super) fn ignore(which: Signal) -> usize {
    // SAFETY: one system call; no handler is installed.
    unsafe { signal(which.as_raw(), IGNORE) }
}

/// Restores what [`ignore()`] has changed.
pub(super) fn restore(which: Signal, before: usize) {
    if before != FAILED {
        // SAFETY: one system call, with an action that was in place before.
        unsafe { signal(which.as_raw(), before) };
    }
}

/// Lets a write beyond the limit on file sizes fail, as one on a full disk does, instead of ending this
/// process.
pub fn ignore_file_size_signal() {
    ignore(Signal::XFSZ);
}

/// Restores the default actions of SIGCHLD and of the signals that end a program.
pub(super) fn reset_for_program() {
    for which in RESET {
        // SAFETY: one system call; no handler is installed.
        unsafe { signal(which.as_raw(), DEFAULT) };
    }
}
