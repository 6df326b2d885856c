//! Waits for conditions, and the mark that tells the processes of this test run from those of others.

use std::process::Command;
use std::time::Instant;

use crate::process_waits::{self, LIMIT};

/// Waits until the condition holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "timed out waiting for {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The name and value of the variable that marks the processes of this test run, to tell them from those
/// of a concurrent run.
pub fn run_mark() -> (&'static str, String) {
    ("TEST_RUN", std::process::id().to_string())
}

/// Whether a process with this word on its command line is alive, ignoring those of other test runs.
pub fn is_alive(word: &str) -> bool {
    if cfg!(not(target_os = "linux")) {
        let output = process_waits::output(Command::new("ps").args(["-axo", "command"])).unwrap();
        return String::from_utf8_lossy(&output.stdout).contains(word);
    }
    let (name, own) = run_mark();
    let (begin, mark) = (format!("{name}="), format!("{name}={own}"));
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter(|it| it.file_name().to_string_lossy() != own).any(|it| {
        let read = |file: &str| {
            let bytes = std::fs::read(it.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        // A process with a cleared environment may be ours.
        let is_foreign = |it: &str| it.starts_with(&begin) && it != mark;
        read("cmdline").contains(word) && !read("environ").split('\0').any(is_foreign)
    })
}
