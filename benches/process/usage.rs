//! What a process has used, from `/proc`.

use std::fs;
use std::io;
use std::time::Duration;

/// The CPU time of all threads of a process that are alive. To the nanosecond, unlike
/// `/proc/PID/stat`, which counts in hundredths of a second and is taken only if this is missing.
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
    // The name in parentheses may have spaces.
    let rest = text.rsplit(')').next().unwrap_or_default();
    Ok(Duration::from_millis((field(rest, 11) + field(rest, 12)) * 10))
}

fn field(text: &str, position: usize) -> u64 {
    text.split_whitespace().nth(position).and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// What a process has in memory, in MB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Its own pages and its share of the shared ones.
    pub(crate) pss: f64,
    /// All its pages.
    pub(crate) rss: f64,
}

/// Reads the memory of a process. Needs root, because the agent makes itself unreadable.
pub(crate) fn memory(pid: u32) -> io::Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let megabytes = |name: &str| {
        let line = text.lines().find_map(|it| it.strip_prefix(name)).unwrap_or_default();
        let kilobytes = u32::try_from(field(line, 0)).unwrap_or(u32::MAX);
        f64::from(kilobytes) * 1024.0 / 1e6
    };
    Ok(Memory { pss: megabytes("Pss:"), rss: megabytes("Rss:") })
}

/// The most that a process has had in memory, in MB: all its pages.
pub(crate) fn peak(pid: u32) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|it| it.strip_prefix("VmHWM:")).unwrap_or_default();
    let kilobytes = u32::try_from(field(line, 0)).unwrap_or(u32::MAX);
    Ok(f64::from(kilobytes) * 1024.0 / 1e6)
}

/// Makes the most that it has had what it has now.
pub(crate) fn forget_peak(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}
