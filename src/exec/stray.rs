//! What a command has started and what has left its group, by `setsid`, job control or a double
//! fork: found by a mark in the environment that every descendant inherits. One that clears its
//! environment as well is not found.

#[cfg(target_os = "linux")]
use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that carries the mark.
const NAME: &str = "TURNWRIGHT_COMMAND";
/// Rounds of looking and killing; a process may fork while it is being looked for.
#[cfg(target_os = "linux")]
const ROUNDS: usize = 5;

/// How every mark of this process begins: a name that no other has, not even in another container
/// where processes are counted anew.
fn own() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| format!("{}-", uuid::Uuid::new_v4().simple()))
}

/// What the environment of every command of this process holds, as far as all of them have it.
pub(super) fn common() -> String {
    format!("{NAME}={}", own())
}

/// The mark of one command. Nobody else has it: it holds a name of our process, and a count.
#[derive(Clone, Debug)]
pub(super) struct Mark(String);

impl Mark {
    pub(super) fn new() -> Mark {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Mark(format!("{}{number}", own()))
    }

    /// What the command's environment is to hold.
    pub(super) fn variable(&self) -> (&'static str, &str) {
        (NAME, &self.0)
    }

    /// Kills every process that has the mark, and says whether there was one. Takes a few
    /// milliseconds: not for the runtime's thread.
    #[cfg(target_os = "linux")]
    pub(super) fn end_all(&self) -> bool {
        let entry = format!("{NAME}={}", self.0);
        for round in 0..ROUNDS {
            let found = marked(entry.as_bytes());
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

#[cfg(target_os = "linux")]
fn marked(entry: &[u8]) -> Vec<rustix::process::Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let number = |it: fs::DirEntry| it.file_name().to_str()?.parse::<i32>().ok();
    let has_mark = |number: &i32| {
        fs::read(format!("/proc/{number}/environ"))
            .is_ok_and(|it| it.split(|byte| *byte == 0).any(|it| it == entry))
    };
    let numbers = processes.filter_map(Result::ok).filter_map(number).filter(has_mark);
    numbers.filter_map(rustix::process::Pid::from_raw).collect()
}
