//! The news in the output of a check: the lines that an earlier run did not have.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::turn::proof::is_in;
use turnwright_types::hash::fnv1a_32;
use turnwright_types::text;

/// The most lines of one report.
const MAX_LINES: usize = 20;
/// The most characters of a line.
const MAX_LINE_CHARS: usize = 400;

/// The words with which build tools begin lines about their progress, which differ from run to run.
const PROGRESS: &str = "Adding Blocking Building Checking Compiling Dirty Documenting Downloaded Downloading Finished \
                        Fresh Locking Running Updating";
/// Parts of words that mark a line as a problem if the check has succeeded.
const PROBLEM_WORDS: &[&str] = &["error", "fail", "panic", "warning"];

/// A run of a check that later ones are compared with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Baseline {
    /// The lines that it has printed, as hashes, with the number of times.
    lines: HashMap<u32, usize>,
    is_success: bool,
}

impl Baseline {
    pub(super) fn new(hashes: &[u32], is_success: bool) -> Baseline {
        let mut lines = HashMap::new();
        for hash in hashes {
            *lines.entry(*hash).or_default() += 1;
        }
        Baseline { lines, is_success }
    }
}

/// The lines of an output without their numbers, as hashes.
pub(super) fn line_hashes(output: &str) -> Vec<u32> {
    output.lines().map(line_hash).collect()
}

/// The new lines of the second run, at most twenty; `None` if nothing is new.
pub(super) fn find_news(
    before: Option<&Baseline>,
    output: &str,
    is_success: bool,
) -> Option<String> {
    let mut known = before.map(|run| run.lines.clone()).unwrap_or_default();
    let mut new = Vec::new();
    for line in output.lines() {
        let left = known.entry(line_hash(line)).or_default();
        let is_told = *left > 0;
        *left = left.saturating_sub(1);
        if !is_told && !is_noise(line) && (!is_success || is_problem(line)) {
            new.push(line);
        }
    }
    if new.is_empty() {
        let fails_only_now = !is_success && before.is_none_or(|run| run.is_success);
        return fails_only_now.then(|| "(it fails now, and says nothing about why)".to_owned());
    }
    let more = new.len().saturating_sub(MAX_LINES);
    // The last line is needed to say that there is more.
    new.truncate(if more > 0 { MAX_LINES - 1 } else { MAX_LINES });
    let mut text: Vec<String> =
        new.iter().map(|line| text::cut(line.trim_end(), MAX_LINE_CHARS)).collect();
    if more > 0 {
        text.push(format!("… and {} more new lines", more + 1));
    }
    Some(text.join("\n"))
}

/// The hash of a line with every number replaced: an edit moves the lines below it, and times and addresses differ.
fn line_hash(line: &str) -> u32 {
    let mut text = String::with_capacity(line.len());
    for letter in line.trim().chars() {
        let is_in_address = text.ends_with("#x") || text.ends_with("#x#");
        let is_number = letter.is_ascii_digit() || is_in_address && letter.is_ascii_hexdigit();
        if !is_number {
            text.push(letter);
        } else if !text.ends_with('#') {
            text.push('#');
        }
    }
    fnv1a_32(text.as_bytes())
}

fn is_noise(line: &str) -> bool {
    line.split_whitespace().next().is_none_or(|word| is_in(PROGRESS, word))
}

/// Returns true if a line of a check that has succeeded is about a problem: it has a place such as `a.rs:3`,
/// or says so.
fn is_problem(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let mut behind_colons = line.split(':').skip(1);
    let has_place = behind_colons.any(|part| part.starts_with(|char: char| char.is_ascii_digit()));
    has_place || PROBLEM_WORDS.iter().any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_told() {
        let old = "a.rs:3:5: warning: unused\nb.rs:7:1: error: bad\n";
        let table: &[(&str, bool, &str, bool, Option<&str>)] = &[
            ("", true, "", true, None),
            ("", true, "   Compiling x v0.1.0\n    Finished in 0.5s\nok\n", true, None),
            (old, false, "a.rs:13:5: warning: unused\nb.rs:17:1: error: bad\n", false, None),
            (old, false, "b.rs:7:1: error: bad\n", false, None),
            (old, false, &format!("{old}c.rs:1: error: new\n"), false, Some("c.rs:1: error: new")),
            ("", true, "c.rs:1:2: unused\n", true, Some("c.rs:1:2: unused")),
            ("", true, "warning: x\nfine\n", true, Some("warning: x")),
            ("", true, "Checking x\nodd\n", false, Some("odd")),
            ("x\n", true, "x\nx\n", false, Some("x")),
            ("x\n", true, "x\n", false, Some("(it fails now, and says nothing about why)")),
            ("x\n", false, "x\n", false, None),
            ("<A at 0x7f3a2c>\n", false, "<A at 0xbeef01>\n", false, None),
            ("<A at 0x1>\n", false, "<B at 0x1>\n", false, Some("<B at 0x1>")),
        ];
        for (before, was_success, now, is_success, expected) in table {
            let baseline = Baseline::new(&line_hashes(before), *was_success);
            let found = find_news(Some(&baseline), now, *is_success);
            assert_eq!(found.as_deref(), *expected, "{before:?} {now:?}");
        }
    }

    #[test]
    fn it_is_at_most_twenty_lines_of_bounded_length() {
        let lines = |count: usize| {
            let all: Vec<_> =
                (1..=count).map(|length| format!("error {}", "x".repeat(length))).collect();
            all.join("\n")
        };
        let text = find_news(None, &lines(20), false).unwrap();
        assert_eq!(text.lines().count(), 20);
        let text = find_news(None, &lines(1_000), false).unwrap();
        assert_eq!(text.lines().count(), 20);
        assert!(text.ends_with("… and 981 more new lines"), "{text}");
        let long = find_news(None, &"é".repeat(9_000), false).unwrap();
        assert_eq!(long.chars().count(), MAX_LINE_CHARS);
    }
}
