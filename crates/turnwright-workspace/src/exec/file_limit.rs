//! The number of files that this process may have open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// As many as several sessions with their commands and servers need.
const WANTED: u64 = 4096;

/// Raises the limit of open files as far as the system allows. A program that is started from the desktop has 256 on
/// macOS. Commands inherit the limit.
pub fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        setrlimit(Resource::Nofile, limit).ok();
    }
}
