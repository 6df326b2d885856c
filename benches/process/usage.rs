//! The CPU time and memory of a process, read from `/proc`.

use std::fs;
use std::io;
use std::time::Duration;

/// Returns the CPU time of all live threads of a process. It is read from `schedstat`, which counts
/// nanoseconds, or if that fails from `/proc/PID/stat`, which counts hundredths of a second.
pub(crate) fn cpu(pid: u32) -> io::Result<Duration> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        match fs::read_to_string(task?.path().join("schedstat")) {
            Ok(text) => nanoseconds += field(&text, 0),
            Err(_) => return cpu_of_stat(pid),
        }
    }
    Ok(Duration::from_nanos(nanoseconds))
}

fn cpu_of_stat(pid: u32) -> io::Result<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The program name, in parentheses, may contain spaces.
    let rest = text.rsplit(')').next().unwrap_or_default();
    Ok(Duration::from_millis((field(rest, 11) + field(rest, 12)) * 10))
}

fn field(text: &str, position: usize) -> u64 {
    text.split_whitespace().nth(position).and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// The memory of a process in MB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// The proportional set size: private pages, and a share of each shared page.
    pub(crate) pss: f64,
    /// The resident set size: all resident pages.
    pub(crate) rss: f64,
}

/// Reads the memory of a process. This needs root, because the agent is not dumpable and its
/// `smaps_rollup` is readable by root only.
pub(crate) fn memory(pid: u32) -> io::Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let megabytes = |name: &str| {
        let line = text.lines().find_map(|it| it.strip_prefix(name)).unwrap_or_default();
        let kilobytes = u32::try_from(field(line, 0)).unwrap_or(u32::MAX);
        f64::from(kilobytes) * 1024.0 / 1e6
    };
    Ok(Memory { pss: megabytes("Pss:"), rss: megabytes("Rss:") })
}

/// The proportional set size of a process and all below it, in MB.
pub(crate) fn memory_of_tree(pid: u32) -> io::Result<f64> {
    let mut total = memory(pid)?.pss;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|it| it.parse().ok()) {
            // It may have ended.
            total += memory_of_tree(child).unwrap_or_default();
        }
    }
    Ok(total)
}

/// Returns the peak resident set size of a process in MB.
pub(crate) fn peak(pid: u32) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|it| it.strip_prefix("VmHWM:")).unwrap_or_default();
    let kilobytes = u32::try_from(field(line, 0)).unwrap_or(u32::MAX);
    Ok(f64::from(kilobytes) * 1024.0 / 1e6)
}

/// Resets the peak resident set size of a process to the current size.
pub(crate) fn reset_peak(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}
