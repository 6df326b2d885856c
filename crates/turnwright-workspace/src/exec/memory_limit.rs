//! The memory that a command holds. A command is stopped before it takes all memory of the machine.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::task::spawn_blocking;

/// The shortest and the longest time between two measurements.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// More bytes than a command can fill in a second: the kernel clears each page first.
const GROWTH_PER_SECOND: u64 = 8 << 30;

/// The processes of a command.
#[derive(Clone, Debug)]
pub struct MemoryMeter {
    pub(super) roots: Vec<rustix::process::Pid>,
}

/// Waits until a command holds more than `limit` bytes, and returns how many it holds. Waits for ever without a
/// limit, or if it cannot be measured.
pub(super) async fn wait_until_above(meter: Option<MemoryMeter>, limit: Option<u64>) -> u64 {
    let Some((meter, limit)) = meter.zip(limit) else { return std::future::pending().await };
    let mut pause = PAUSES.0;
    loop {
        tokio::time::sleep(pause).await;
        let meter = meter.clone();
        let measuring = spawn_blocking(move || meter.measure(limit));
        match measuring.await {
            Ok(Some(ControlFlow::Break(bytes))) => return bytes,
            Ok(Some(ControlFlow::Continue(free))) => pause = pause_before(free),
            // Fails for now, for example because too many files are open.
            Ok(None) => pause = PAUSES.0,
            // The process is ending.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Measures rarely while a command is far below its limit, so that the processor need not wake up often.
fn pause_before(free: u64) -> Duration {
    let until_full = Duration::from_millis(free / (GROWTH_PER_SECOND / 1000));
    until_full.clamp(PAUSES.0, PAUSES.1)
}

/// The default limit: three quarters of the machine's memory, or of the container's. Read once: the kernel
/// counts the free memory for each reader.
pub fn default_memory_limit() -> Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    *LIMIT.get_or_init(read_memory_limit)
}

fn read_memory_limit() -> Option<u64> {
    let setting = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container = setting.and_then(|text| text.trim().parse::<u64>().ok());
    let machine = meminfo().map(|(total, _)| total);
    let all = container.into_iter().chain(machine).min()?;
    Some(all / 4 * 3)
}

/// The memory of the machine, and how much of it is available.
fn meminfo() -> Option<(u64, u64)> {
    // The kernel generates the text for each read, and does not say how long it is.
    let mut text = String::with_capacity(4096);
    File::open("/proc/meminfo").ok()?.read_to_string(&mut text).ok()?;
    Some((bytes_of(&text, "MemTotal:")?, bytes_of(&text, "MemAvailable:")?))
}

/// The number of bytes in a line `NAME NUMBER kB`.
fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

impl MemoryMeter {
    /// Measures the memory in bytes. Breaks with what the command holds if that is more than the limit, and otherwise
    /// continues with what is left, at least.
    fn measure(&self, limit: u64) -> Option<ControlFlow<u64, u64>> {
        let (total, available) = meminfo()?;
        // The whole machine uses less than the limit.
        let used = total.saturating_sub(available);
        if used < limit {
            return Some(ControlFlow::Continue(limit - used));
        }
        let mut own = 0;
        let mut mapped = 0;
        let mut files = HashMap::new();
        for process in super::descendants::with_descendants(self.roots.clone()) {
            let path = format!("/proc/{process}/status");
            let status = std::fs::read_to_string(path).unwrap_or_default();
            own += bytes_of(&status, "RssAnon:").unwrap_or_default();
            mapped += bytes_of(&status, "RssShmem:").unwrap_or_default();
            count_memory_files(process, &mut files);
        }
        // A mapped file is counted in both.
        let held = own + mapped.max(files.values().sum());
        let free = limit.checked_sub(held);
        Some(free.map_or(ControlFlow::Break(held), ControlFlow::Continue))
    }
}

/// Adds the bytes of the files that a process has open and that exist only in memory: from `memfd_create`, or unlinked
/// on a file system in memory. They are counted nowhere else until a process maps them. `counted` has the files by
/// device and inode, at most as many as a command can open.
fn count_memory_files(process: rustix::process::Pid, counted: &mut HashMap<(u64, u64), u64>) {
    let open = std::fs::read_dir(format!("/proc/{process}/fd"));
    for file in open.into_iter().flatten().flatten() {
        let path = file.path();
        // All of them are unlinked. Others may be on a file system that does not answer, and are not asked.
        let name = std::fs::read_link(&path).unwrap_or_default();
        if !name.as_os_str().as_encoded_bytes().ends_with(b" (deleted)") {
            continue;
        }
        // These links lead to the open file itself, whatever its name says.
        let Ok(found) = rustix::fs::stat(&path) else { continue };
        let is_file = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
        if !is_file || found.st_nlink > 0 || found.st_blocks <= 0 || !is_in_memory(&path) {
            continue;
        }
        let bytes = u64::try_from(found.st_blocks).unwrap_or_default() * 512;
        counted.entry((found.st_dev, found.st_ino)).or_insert(bytes);
    }
}

/// Returns true if a file is on a file system in memory.
fn is_in_memory(path: &std::path::Path) -> bool {
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    const HUGETLBFS: rustix::fs::FsWord = 0x9584_58f6;
    rustix::fs::statfs(path).is_ok_and(|stat| [TMPFS, HUGETLBFS].contains(&stat.f_type))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_memory_of_a_process_counts() {
        let held = vec![1_u8; 64 << 20];
        let meter = MemoryMeter { roots: vec![rustix::process::getpid()] };
        let measured = meter.measure(16 << 20).unwrap();
        assert!(measured.break_value().is_some_and(|held| held > 64 << 20), "{measured:?}");
        let measured = meter.measure(u64::MAX / 2).unwrap();
        assert!(measured.continue_value().is_some_and(|left| left > u64::MAX / 4), "{measured:?}");
        assert!(held.iter().all(|byte| *byte == 1));
        assert!(default_memory_limit().is_some_and(|limit| limit > 64 << 20));
    }

    #[test]
    fn the_next_look_is_before_the_limit_can_be_reached() {
        let [short, long] = [PAUSES.0, PAUSES.1];
        for (free, pause) in [
            (0, short),
            (GROWTH_PER_SECOND / 10, short),
            (GROWTH_PER_SECOND, Duration::from_secs(1)),
            (GROWTH_PER_SECOND / 2, Duration::from_millis(500)),
            (u64::MAX, long),
        ] {
            assert_eq!(pause_before(free).as_millis(), pause.as_millis(), "{free}");
        }
    }

    #[test]
    fn files_in_memory_count_once_although_nobody_maps_them() {
        use rustix::fs::{MemfdFlags, memfd_create};

        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        let _second = file.try_clone().unwrap();
        (&file).write_all(&vec![1; 64 << 20]).unwrap();
        let mut files = HashMap::new();
        count_memory_files(rustix::process::getpid(), &mut files);
        // Other tests of this process may have some, too.
        let found = rustix::fs::fstat(&file).unwrap();
        assert!(files.contains_key(&(found.st_dev, found.st_ino)));
        let bytes: u64 = files.values().sum();
        assert!((64 << 20..128 << 20).contains(&bytes), "{bytes}");
        let unnamed = tempfile::tempfile().unwrap();
        let found = rustix::fs::fstat(&unnamed).unwrap();
        assert!(!files.contains_key(&(found.st_dev, found.st_ino)));
    }
}
