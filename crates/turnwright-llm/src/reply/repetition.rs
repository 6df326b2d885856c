//! Detects a model that repeats itself endlessly (quirk C.1 #28b), in its text or with the same call again and
//! again. Some models never stop by themselves, and the answer would fail at its limits. Does no I/O, and the
//! result does not depend on how the stream is cut. Only exact repetition counts: lines that differ in a number
//! may be legitimate.

use std::ops::Range;

/// The number of bytes between two checks.
const CHECK_INTERVAL: usize = 512;
/// The longest repeated unit in bytes: a long paragraph.
const MAX_UNIT: usize = 1024;
/// The least number of copies of a unit…
const MIN_COPIES: usize = 12;
/// … and the least number of bytes they cover, which is 40 lines of 100 characters. Rulers, tables
/// and rows of zeros are shorter.
const MIN_BYTES: usize = 4096;
const WINDOW: usize = MAX_UNIT * MIN_COPIES;
/// The least length of a unit for a model that is not known to repeat itself: shorter ones may be data
/// that the user has asked for.
pub(crate) const LONG_UNIT: usize = 60;

/// The number of consecutive checks that must find a repetition in a code block or a table, where a line may
/// well recur: it covers four times as many bytes.
const QUOTED_CHECKS: usize = 3 * MIN_BYTES / CHECK_INTERVAL;

/// Identical consecutive calls that count as a loop.
const MAX_IN_ROW: usize = 3;
/// Identical calls that count as a loop if there are others between them.
const MAX_IN_ALL: usize = 6;

/// Watches one stream.
#[derive(Debug, Default)]
pub(crate) struct RepetitionDetector {
    /// The end of the stream, up to twice [`WINDOW`].
    recent: Vec<u8>,
    /// The number of bytes since the last check.
    unchecked: usize,
    is_found: bool,
    /// How many checks in a row have found a repetition.
    found_checks: usize,
    lines: LineWatch,
    /// The least length of a repeated unit.
    min_unit: usize,
    /// Kept for the next check.
    borders: Vec<usize>,
}

impl RepetitionDetector {
    /// Finds units of at least this length.
    pub(crate) fn new(min_unit: usize) -> RepetitionDetector {
        RepetitionDetector { min_unit, ..RepetitionDetector::default() }
    }

    /// Adds text; returns true once the repetition has gone on for too long.
    pub(crate) fn push(&mut self, text: &str) -> bool {
        let mut bytes = text.as_bytes();
        while !self.is_found && self.unchecked + bytes.len() >= CHECK_INTERVAL {
            let (now, later) = bytes.split_at(CHECK_INTERVAL - self.unchecked);
            self.recent.extend_from_slice(now);
            self.unchecked = 0;
            bytes = later;
            self.check();
        }
        if !self.is_found {
            self.recent.extend_from_slice(bytes);
            self.unchecked += bytes.len();
        }
        self.is_found
    }

    fn check(&mut self) {
        self.lines.push(&self.recent[self.recent.len() - CHECK_INTERVAL..]);
        if self.recent.len() >= 2 * WINDOW {
            self.recent.drain(..self.recent.len() - WINDOW);
        }
        let start = self.recent.len().saturating_sub(WINDOW);
        let window = &self.recent[start..];
        let is_repeated = window.len() >= MIN_BYTES
            && repeated_unit(window, &mut self.borders).is_some_and(|unit| unit >= self.min_unit);
        self.found_checks = if is_repeated { self.found_checks + 1 } else { 0 };
        let needed = if self.lines.is_quoted() { QUOTED_CHECKS } else { 1 };
        self.is_found = self.found_checks >= needed;
    }
}

/// Tracks whether the end of a Markdown text is in a code block or a table.
#[derive(Debug, Default)]
struct LineWatch {
    /// The first byte of the current line that is not a space, or of the last line.
    start: u8,
    /// How many of these bytes the current line begins with, and whether they have ended.
    run: usize,
    is_run_over: bool,
    /// True if anything else has followed.
    has_more: bool,
    /// The byte and the length of the fence that has opened the code block.
    fence: Option<(u8, usize)>,
}

impl LineWatch {
    fn push(&mut self, text: &[u8]) {
        for &byte in text {
            match byte {
                b'\n' => self.end_line(),
                _ if byte.is_ascii_whitespace() => self.is_run_over = self.run > 0,
                _ if self.run == 0 => (self.start, self.run) = (byte, 1),
                _ if byte == self.start && !self.is_run_over => self.run += 1,
                _ => (self.is_run_over, self.has_more) = (true, true),
            }
        }
    }

    /// A fence opens a code block. Only another one of the same bytes that is as long and stands alone
    /// closes it.
    fn end_line(&mut self) {
        let run = std::mem::take(&mut self.run);
        let has_more = std::mem::take(&mut self.has_more);
        self.is_run_over = false;
        if run < 3 || !matches!(self.start, b'`' | b'~') {
            return;
        }
        match self.fence {
            None => self.fence = Some((self.start, run)),
            Some((byte, length)) if byte == self.start && run >= length && !has_more => {
                self.fence = None;
            }
            Some(_) => {}
        }
    }

    fn is_quoted(&self) -> bool {
        self.fence.is_some() || self.start == b'|'
    }
}

/// The length of the unit of which the window ends with enough copies. Runs the Knuth–Morris–Pratt border
/// computation backwards from the end: the longest border of each suffix gives its shortest unit.
/// The unit never gets shorter for a longer suffix, so most text is rejected after little more than
/// `MAX_UNIT` bytes.
fn repeated_unit(window: &[u8], borders: &mut Vec<usize>) -> Option<usize> {
    let last = window.len() - 1;
    let at = |position: usize| window[last - position];
    borders.clear();
    borders.push(0);
    let mut border = 0;
    for position in 1..window.len() {
        while border > 0 && at(position) != at(border) {
            border = borders[border - 1];
        }
        border += usize::from(at(position) == at(border));
        borders.push(border);
        let length = position + 1;
        let unit = length - border;
        if unit > MAX_UNIT {
            return None;
        }
        if length >= MIN_BYTES && length >= unit * MIN_COPIES {
            return Some(unit);
        }
    }
    None
}

/// The place of the first call that only repeats an earlier one, once an answer goes round in
/// circles. The calls before it are what the model meant.
pub(crate) fn first_repeat<T: PartialEq>(calls: &[T]) -> Option<usize> {
    (0..calls.len()).find_map(|last| {
        let is_same = |index: &usize| calls[*index] == calls[last];
        let earlier: Range<usize> = 0..last;
        let in_row = earlier.clone().rev().take_while(is_same).count() + 1;
        let mut same = earlier.filter(is_same);
        if in_row >= MAX_IN_ROW {
            return Some(last + 2 - in_row);
        }
        let second = same.nth(1)?;
        (same.count() + 3 >= MAX_IN_ALL).then_some(second)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fires(text: &str) -> bool {
        RepetitionDetector::default().push(text)
    }

    /// Hexadecimal digits that never repeat, like base64 or a key.
    fn noise(count: u64) -> String {
        let mut text = String::new();
        for number in 1..=count {
            text.push_str(&format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        }
        text
    }

    #[test]
    fn a_repeating_stream_is_detected() {
        let paragraph = noise(50) + "\n\n";
        for (name, unit) in [
            ("a character", "!"),
            ("a word", "no no "),
            ("a sentence", "I will now read the file to see what it has. "),
            ("a line", "    self.assertEqual(result.status_code, 200)\n"),
            ("signs of several bytes", "我来看看这个文件。"),
            ("lines that take turns", "Wait, let me check.\nActually, I should look again.\n"),
            ("a paragraph", &paragraph),
        ] {
            let times = (MIN_BYTES + CHECK_INTERVAL + 60)
                .max(unit.len() * MIN_COPIES + CHECK_INTERVAL)
                / unit.len();
            assert!(fires(&unit.repeat(times + 1)), "{name}");
            assert!(fires(&(noise(2000) + &unit.repeat(times + 2))), "{name}, late");
            assert!(!fires(&unit.repeat(1500 / unit.len() + 2)), "{name}, a few times");
        }
    }

    #[test]
    fn legitimate_text_is_not_reported() {
        let numbered = |line: fn(usize) -> String| (0..1000).map(line).collect::<String>();
        let table = format!("|{}|\n", "-".repeat(78))
            + &numbered(|number| format!("| row {number:4} | {} |\n", "x".repeat(60)));
        let code = numbered(|number| {
            format!("    case {number}:\n        return handle(it);\n        break;\n")
        });
        for (name, text) in [
            ("a numbered list", numbered(|number| format!("{number}. Check the next file.\n"))),
            (
                "records",
                numbered(|number| {
                    format!("{{\"id\": {number}, \"name\": \"x\", \"ok\": true}},\n")
                }),
            ),
            ("a table", table),
            ("code with a pattern", code),
            ("rulers", numbered(|number| format!("{}\n{number}\n", "=".repeat(300)))),
            ("a long ruler", "-".repeat(2000)),
            ("a key", noise(4000)),
            ("boilerplate a few times", ("fn main() {\n}\n".repeat(20) + &noise(100)).repeat(30)),
            ("nothing", String::new()),
        ] {
            assert!(!fires(&text), "{name}");
        }
    }

    #[test]
    fn in_code_and_tables_more_is_needed() {
        let row = "| the same again | and once more the same | and the last column |\n";
        let line = "    assert_eq!(result.status_code, 200, \"{message}\", message = it);\n";
        for (before, unit, after) in [
            ("```rust\n", line, "```\n"),
            ("\t~~~\n```\n", line, "~~~~\n"),
            // A fence with a language, or a shorter one, is text of the block.
            ("````markdown\n```rust\nx\n```\n", line, "````\n"),
            ("```\n```rust\n", line, "  ``` \n"),
            ("| a | b | c |\n", row, "\nText.\n"),
        ] {
            let text = |bytes: usize| format!("Here:\n{before}{}", unit.repeat(bytes / unit.len()));
            assert!(!fires(&text(3 * MIN_BYTES)), "{before}");
            assert!(fires(&text(5 * MIN_BYTES)), "{before}: endless");
            let later = format!("{}{after}\n{}", text(MIN_BYTES), line.trim().repeat(100));
            assert!(fires(&later), "{before}: after it");
        }
    }

    #[test]
    fn similar_lines_are_no_repetition_wherever_they_stand() {
        let line = |number: usize| {
            format!(
                "    assert_eq!(response.status({number}), 200, \"request {number} of the series failed\");\n"
            )
        };
        let row = |number: usize| {
            format!("| request {number} of the series | 200 | no difference was found |\n")
        };
        for (before, text) in [
            ("```rust\n", (0..400).map(line).collect::<String>()),
            ("", (0..400).map(line).collect()),
            ("| request | status | note |\n|---|---|---|\n", (0..400).map(row).collect()),
            // Forty equal lines in a block are code as well.
            ("```\n", "        self.assertEqual(response.status_code, 200)\n".repeat(40)),
        ] {
            let text = format!("Here:\n{before}{text}");
            assert!(!RepetitionDetector::new(LONG_UNIT).push(&text) && !fires(&text), "{text}");
        }
    }

    #[test]
    fn short_units_count_only_if_they_are_asked_for() {
        let line = "    self.assertEqual(result.status_code, 200, message=response)\n";
        for (unit, expected) in [("no no ", false), ("0123456789abcdef", false), (line, true)] {
            let text = unit.repeat(20_000 / unit.len());
            assert!(fires(&text), "{unit}");
            assert_eq!(RepetitionDetector::new(LONG_UNIT).push(&text), expected, "{unit}");
        }
    }

    #[test]
    fn memory_is_bounded_and_detection_is_final() {
        let mut detector = RepetitionDetector::default();
        detector.push(&noise(100_000));
        assert!(detector.recent.capacity() <= 4 * WINDOW, "{}", detector.recent.capacity());
        assert!(detector.push(&"again ".repeat(2000)));
        assert!(detector.push("something else"));
    }

    proptest! {
        #[test]
        fn how_the_stream_is_cut_does_not_matter(
            unit in "[a-c]{1,40}",
            times in 1_usize..500,
            before in 0_u64..200,
            cut in 1_usize..700,
        ) {
            let text = noise(before) + &unit.repeat(times);
            let mut detector = RepetitionDetector::default();
            let mut found = false;
            for piece in text.as_bytes().chunks(cut) {
                found = detector.push(std::str::from_utf8(piece).unwrap());
            }
            prop_assert_eq!(found, fires(&text));
        }
    }

    #[test]
    fn what_only_repeats_is_found() {
        for (calls, expected) in [
            ("", None),
            ("a", None),
            ("aa", None),
            ("aaa", Some(1)),
            ("aaaa", Some(1)),
            ("abaa", None),
            ("abaaa", Some(3)),
            ("baaac", Some(2)),
            ("abababab", None),
            ("abacadaeaf", None),
            ("ababababab", None),
            ("ababababaca", Some(2)),
            ("ababababababab", Some(2)),
            ("abcdefghijklmnop", None),
        ] {
            let calls: Vec<_> = calls.chars().collect();
            assert_eq!(first_repeat(&calls), expected, "{calls:?}");
        }
    }
}
