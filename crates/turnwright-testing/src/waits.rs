//! Waits for conditions, and marks the processes of this test run so that they can be told from the
//! processes of other runs.

use std::ffi::OsString;
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
/// the script has come to a command, name the command too: `sleep\x00600`.
pub fn is_alive(word: &str) -> bool {
    if cfg!(not(target_os = "linux")) {
        let output = process_waits::output(Command::new("ps").args(["-axo", "command"])).unwrap();
        return String::from_utf8_lossy(&output.stdout).contains(word);
    }
    let (name, own) = run_mark();
    let (begin, mark) = (format!("{name}="), format!("{name}={own}"));
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter(|process| process.file_name().to_string_lossy() != own).any(|process| {
        let read = |file: &str| {
            let bytes = std::fs::read(process.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        // A process without the variable may belong to this run, because its environment may have
        // been cleared.
        let is_foreign = |it: &str| it.starts_with(&begin) && it != mark;
        // The environment of another user's process cannot be read, and a zombie has none.
        let is_readable = std::fs::read(process.path().join("environ")).is_ok();
        is_readable
            && has_word(&read("cmdline"), word)
            && !read("environ").split('\0').any(is_foreign)
    })
}

/// Whether the text has this word with neither a letter nor a part of a number beside it.
fn has_word(text: &str, word: &str) -> bool {
    let continues = |it: Option<char>| it.is_some_and(|it| it.is_alphanumeric() || it == '.');
    text.match_indices(word).any(|(start, _)| {
        let (before, after) = (&text[..start], &text[start + word.len()..]);
        !continues(before.chars().next_back()) && !continues(after.chars().next())
    })
}

#[test]
fn a_word_is_not_found_in_a_longer_one() {
    for (text, word, is_there) in [
        ("sleep\x007391\0", "7391", true),
        ("sh\0-c\0sleep 7391; true\0", "7391", true),
        ("sleep\x0073910391\0", "7391", false),
        ("sleep\x0027391\0", "7391", false),
        ("sleep\x00607.41\0", "sleep\x00607.4", false),
        ("sleep\x00613.1\0", "sleep\x00613", false),
        ("sleep 73910391; sleep 7391", "7391", true),
    ] {
        assert_eq!(has_word(text, word), is_there, "{word} in {text:?}");
    }
}
