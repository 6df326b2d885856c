//! The number of files that this process may have open.
#![expect(unsafe_code, reason = "getrlimit(2), which rustix assumes never fails")]

/// As many as several sessions with their commands and servers need.
const WANTED: libc::rlim_t = 4096;

/// Raises the limit of open files as far as the system allows. A program that is started from the desktop has 256 on
/// macOS. Commands inherit the limit. A container may refuse to tell the limit; then it stays.
pub fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: one system call, which writes nothing but the limit.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    let wanted = limit.rlim_max.min(WANTED);
    if is_known && limit.rlim_cur < wanted {
        limit.rlim_cur = wanted;
        // SAFETY: one system call, which only reads the limit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}
