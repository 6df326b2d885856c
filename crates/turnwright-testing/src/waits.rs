//! Waits for conditions, and marks the processes of this test run so that they can be told from the
//! processes of other runs.

use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::command_lines::word_program;
use crate::process_report::{all_processes, describe};
use crate::process_waits::{self, LIMIT};

/// Waits until the condition holds.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the name and value of the variable that marks the processes of this test run, so that
/// the processes of a concurrent run can be ignored.
pub fn run_mark() -> (&'static str, String) {
    ("TEST_RUN", std::process::id().to_string())
}

/// Returns the variables without which a program cannot look for others, or use the network on Windows.
pub fn basic_variables() -> impl Iterator<Item = (&'static str, OsString)> {
    ["PATH", "SystemRoot"].into_iter().filter_map(|it| Some((it, std::env::var_os(it)?)))
}

/// Returns whether a process with this word on its command line is alive. Processes of other test
/// runs and of other users are ignored, and so are words of which this is only a part: `7391` is not in
/// `sleep 73910391`.
///
/// A word of a shell's script is on the command line of the shell as soon as that exists. To wait until
/// the script has come to a command, name the command too: `sleep\x00600`. While a process starts a program,
/// its command line is empty for an instant, so a test waits for this rather than to assert it.
///
/// On Windows it finds only what [`run_on`](crate::command_lines::run_on) has started: the file of a running
/// program cannot be opened for writing.
pub fn is_alive(word: &str) -> bool {
    if cfg!(windows) {
        let program = word_program(word);
        return program.exists() && std::fs::File::options().write(true).open(program).is_err();
    }
    !processes_with(word).is_empty()
}

/// Waits until no process with this word on its command line is alive, as [`is_alive`] finds them. If one
/// stays, the test fails with a report of what it is.
#[track_caller]
pub fn assert_gone(word: &str) {
    if cfg!(windows) {
        eventually(&format!("the end of {word}"), || !is_alive(word));
        std::fs::remove_file(word_program(word)).ok();
        return;
    }
    let end = Instant::now() + LIMIT;
    loop {
        let left = processes_with(word);
        if left.is_empty() {
            return;
        }
        if Instant::now() > end {
            let report: String = left.into_iter().map(describe).collect();
            panic!("{word:?} is still on the command line of\n{report}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The processes with this word on their command line.
fn processes_with(word: &str) -> Vec<u32> {
    if cfg!(not(target_os = "linux")) {
        let output = process_waits::output(Command::new("ps").args(["-axo", "pid=,command="]));
        let listed = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
        let found = listed.lines().filter(|it| it.contains(word));
        return found.filter_map(|it| it.split_whitespace().next()?.parse().ok()).collect();
    }
    let (name, own) = run_mark();
    let (begin, mark) = (format!("{name}="), format!("{name}={own}"));
    // A process without the variable may belong to this run, because its environment may have been cleared.
    let is_foreign = |it: &str| it.starts_with(&begin) && it != mark;
    all_processes()
        .filter(|process| *process != std::process::id())
        .filter(|process| {
            let read = |file: &str| {
                let bytes = std::fs::read(format!("/proc/{process}/{file}"));
                bytes.map(|it| String::from_utf8_lossy(&it).into_owned())
            };
            let has_word = || read("cmdline").is_ok_and(|it| has_word(&it, word));
            if !has_word() {
                return false;
            }
            match read("environ") {
                // It may have ended since, or has an empty environment.
                Ok(environment) if environment.is_empty() => has_word(),
                Ok(environment) => !environment.split('\0').any(is_foreign),
                // That of another user's process cannot be read.
                Err(_) => false,
            }
        })
        .collect()
}

/// Whether the text has this word with neither a letter nor a part of a number beside it.
fn has_word(text: &str, word: &str) -> bool {
    let continues = |it: Option<char>| it.is_some_and(|it| it.is_alphanumeric() || it == '.');
    text.match_indices(word).any(|(start, _)| {
        let (before, after) = (&text[..start], &text[start + word.len()..]);
        !continues(before.chars().next_back()) && !continues(after.chars().next())
    })
}
