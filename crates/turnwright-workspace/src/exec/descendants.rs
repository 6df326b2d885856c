//! The processes below this one, from `/proc`. So that all of them stay below it, this process becomes
//! the parent of those whose own parent has ended.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, set_child_subreaper,
    waitpid,
};

/// How long to wait for killed processes to end. One that waits for a device may take for ever.
const END_TIMEOUT: Duration = Duration::from_millis(50);

/// Makes this process the parent of descendants whose parent ends. Call it before the first command
/// is started.
pub(super) fn adopt_orphans() {
    adopts_orphans();
}

fn adopts_orphans() -> bool {
    static ADOPTS: OnceLock<bool> = OnceLock::new();
    *ADOPTS.get_or_init(|| set_child_subreaper(Some(getpid())).is_ok())
}

/// The children of this process, zombies included; `None` if the kernel does not list them, or if
/// not all descendants stay below it.
pub(super) fn of_this_process() -> Option<Vec<Pid>> {
    adopts_orphans().then(|| children("self")).flatten()
}

/// The children of another process.
pub(super) fn of(process: Pid) -> Vec<Pid> {
    children(&process.to_string()).unwrap_or_default()
}

/// Each thread of a process has a list of the children that it has.
fn children(process: &str) -> Option<Vec<Pid>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
        // A thread may have ended since; its children have gone to another one.
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(parse_pid)),
            Err(_) if thread.path().exists() => return None,
            Err(_) => {}
        }
    }
    Some(found)
}

/// All processes that this one can see.
pub(super) fn all_processes() -> impl Iterator<Item = Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|it| parse_pid(it.file_name().to_str()?))
}

fn parse_pid(number: &str) -> Option<Pid> {
    Pid::from_raw(number.parse().ok()?)
}

/// Kills the processes and waits until they have ended.
pub(super) fn kill(processes: &[Pid]) {
    let handles: Vec<OwnedFd> = processes
        .iter()
        .filter_map(|it| {
            let handle = pidfd_open(*it, PidfdFlags::empty()).ok();
            kill_process(*it, Signal::KILL).ok();
            handle
        })
        .collect();
    let begun = Instant::now();
    for handle in &handles {
        let left = END_TIMEOUT.saturating_sub(begun.elapsed());
        let limit = Timespec::try_from(left).unwrap_or_default();
        poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&limit)).ok();
    }
}

/// Removes a child that has ended. Returns whether it had.
pub(super) fn reap(child: Pid) -> bool {
    matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(Some(_)))
}
