//! What a command has started and what has left its group, by `setsid`, job control or a double
//! fork: found by a mark that every descendant inherits. It stands in the environment and, on Linux,
//! in a limit that the kernel has long ceased to use and that no command in the sandbox can change.

#[cfg(target_os = "linux")]
use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that carries the mark.
const NAME: &str = "TURNWRIGHT_COMMAND";
/// So many commands of one process can be told apart by their limits.
#[cfg(target_os = "linux")]
const COUNT: u64 = 100_000_000;
/// Rounds of looking and killing; a process may fork while it is being looked for.
#[cfg(target_os = "linux")]
const ROUNDS: usize = 5;

/// How every mark of this process begins: a name that no other has, not even in another container
/// where processes are counted anew.
fn own() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| format!("{}-", uuid::Uuid::new_v4().simple()))
}

/// The first digits of the limits of all commands of this process.
#[cfg(target_os = "linux")]
fn own_digits() -> u64 {
    static OWN: OnceLock<u64> = OnceLock::new();
    *OWN.get_or_init(|| 1_000_000_000 + uuid::Uuid::new_v4().as_u64_pair().1 % 8_000_000_000)
}

/// What the environment of every command of this process holds, as far as all of them have it.
pub(super) fn common() -> String {
    format!("{NAME}={}", own())
}

/// The same of their limits, as `/proc` shows it.
#[cfg(target_os = "linux")]
pub(super) fn common_limit() -> String {
    shown(own_digits())
}

/// No limits are looked at elsewhere.
#[cfg(not(target_os = "linux"))]
pub(super) fn common_limit() -> String {
    common()
}

#[cfg(target_os = "linux")]
fn shown(limit: u64) -> String {
    format!("{:<25} {limit}", "Max file locks")
}

/// The mark of one command. Nobody else has it: it holds a name of our process, and a count.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    name: String,
    #[cfg(target_os = "linux")]
    limit: u64,
}

impl Mark {
    pub(super) fn new() -> Mark {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Mark {
            name: format!("{}{number}", own()),
            #[cfg(target_os = "linux")]
            limit: own_digits() * COUNT + number % COUNT,
        }
    }

    /// What the command's environment is to hold.
    pub(super) fn variable(&self) -> (&'static str, &str) {
        (NAME, &self.name)
    }

    /// What limits the file locks of the command: so much that it limits nothing.
    #[cfg(target_os = "linux")]
    pub(super) fn limit(&self) -> rustix::process::Rlimit {
        rustix::process::Rlimit { current: Some(self.limit), maximum: Some(self.limit) }
    }

    /// Kills every process that has the mark, and says whether there was one. Takes a few
    /// milliseconds: not for the runtime's thread.
    #[cfg(target_os = "linux")]
    pub(super) fn end_all(&self) -> bool {
        let entry = format!("{NAME}={}", self.name);
        let limit = format!("{} ", shown(self.limit));
        for round in 0..ROUNDS {
            let found = marked(entry.as_bytes(), &limit);
            if found.is_empty() {
                return round > 0;
            }
            for process in found {
                rustix::process::kill_process(process, rustix::process::Signal::KILL).ok();
            }
        }
        true
    }

    /// Elsewhere the environment of other processes cannot be read so simply.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn end_all(&self) -> bool {
        false
    }
}

/// The dead keep their limits until somebody has asked about them.
#[cfg(target_os = "linux")]
fn is_dead(number: i32) -> bool {
    let stat = fs::read(format!("/proc/{number}/stat")).unwrap_or_default();
    let name_end = stat.iter().rposition(|it| *it == b')').unwrap_or_default();
    matches!(stat.get(name_end + 2), None | Some(b'Z' | b'X' | b'x'))
}

#[cfg(target_os = "linux")]
fn marked(entry: &[u8], limit: &str) -> Vec<rustix::process::Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let number = |it: fs::DirEntry| it.file_name().to_str()?.parse::<i32>().ok();
    let has_mark = |number: &i32| {
        fs::read(format!("/proc/{number}/environ"))
            .is_ok_and(|it| it.split(|byte| *byte == 0).any(|it| it == entry))
            || fs::read_to_string(format!("/proc/{number}/limits"))
                .is_ok_and(|it| it.contains(limit) && !is_dead(*number))
    };
    let numbers = processes.filter_map(Result::ok).filter_map(number).filter(has_mark);
    numbers.filter_map(rustix::process::Pid::from_raw).collect()
}
