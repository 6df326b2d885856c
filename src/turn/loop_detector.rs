//! Notices when the model goes round in circles: the same call with the same result, many calls without
//! anything new, one edit that fails again and again. A call whose result
//! changes, or that waits for something, never counts, and a change of files starts the count anew. Pure.

use std::collections::{HashSet, VecDeque};

use turnwright_types::hash::std_hash;
use turnwright_types::message::Arguments;
use turnwright_types::text;

/// How many of the last calls are compared with a new one.
const WINDOW: usize = 12;
/// How often the same call may have the same result before the model is told, and before the user
/// is asked.
const SAME_REMINDER: usize = 3;
const SAME_QUESTION: usize = 5;
/// The same for calls in a row that have all had these results before.
const STALE_REMINDER: usize = 12;
const STALE_QUESTION: usize = 20;
/// How many results and changes are remembered.
const MAX_KNOWN: usize = 1_000;
/// The same for failures of one tool at one file.
const FAILURE_REMINDER: usize = 4;
const FAILURE_QUESTION: usize = 8;
/// The same for answers with nothing but calls that cannot run.
const INVALID_REMINDER: usize = 4;
const INVALID_QUESTION: usize = 6;

/// A call that has ended.
pub(super) struct EndedCall<'a> {
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Arguments,
    pub(super) ok: bool,
    /// The result as the model reads it.
    pub(super) result: &'a str,
    /// The file that it was supposed to edit.
    pub(super) edited: Option<&'a str>,
    /// It only waits for something that goes on.
    pub(super) is_waiting: bool,
    /// It has changed files.
    pub(super) has_changed: bool,
}

/// A repetition, and how often it has occurred so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repetition {
    SameCall {
        times: usize,
    },
    /// Calls in a row that have brought nothing new.
    Stale {
        calls: usize,
    },
    FailedEdit {
        times: usize,
    },
    /// Answers whose calls name unknown tools or have invalid arguments.
    InvalidCalls {
        answers: usize,
    },
}

/// The action that follows from a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopFinding {
    /// Remind the model.
    Remind(Repetition),
    /// Ask the user.
    Ask(Repetition),
}

/// Watches the calls of a turn.
#[derive(Debug, Default)]
pub(super) struct LoopDetector {
    /// Hashes of the last calls with their results.
    recent: VecDeque<u64>,
    /// The calls that the model was reminded of: it is reminded of each once.
    reminded: Vec<u64>,
    /// Hashes of all calls with their results since something was new.
    known: HashSet<u64>,
    /// How many of the last calls were known.
    stale: usize,
    /// Hashes of the calls that have changed files. One that is made again changes nothing new.
    changes: HashSet<u64>,
    /// How many answers in a row had a failure of a tool at a file.
    failures: Vec<FailedEdits>,
    /// The number of the current answer.
    answer: usize,
    /// How many answers in a row had only calls that cannot run.
    invalid_answers: usize,
}

#[derive(Debug)]
struct FailedEdits {
    tool: String,
    path: String,
    times: usize,
    /// The number of the answer with the last failure.
    answer: usize,
}

impl LoopDetector {
    /// Begins a new answer, to which the calls that are added next belong. `all_invalid` means that none of
    /// them can run, because the tool is unknown or the arguments are invalid.
    pub(super) fn begin_answer(&mut self, all_invalid: bool) -> Option<LoopFinding> {
        self.answer += 1;
        self.invalid_answers = if all_invalid { self.invalid_answers + 1 } else { 0 };
        let found = Repetition::InvalidCalls { answers: self.invalid_answers };
        match self.invalid_answers {
            INVALID_REMINDER => Some(LoopFinding::Remind(found)),
            INVALID_QUESTION.. => Some(LoopFinding::Ask(found)),
            _ => None,
        }
    }

    /// Forgets everything, because the user has said something new.
    pub(super) fn reset(&mut self) {
        *self = LoopDetector::default();
    }

    /// True if an edit has failed, so that a success counts as well.
    pub(super) fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Adds a call, and says what follows if it is part of a repetition.
    pub(super) fn add(&mut self, call: &EndedCall<'_>) -> Option<LoopFinding> {
        let has_changed =
            call.has_changed && self.changes.insert(std_hash((call.tool, call.arguments)));
        if has_changed || call.is_waiting {
            self.recent.clear();
            self.reminded.clear();
            self.known.clear();
            self.stale = 0;
        }
        if call.is_waiting {
            return None;
        }
        let key = std_hash((call.tool, call.arguments, call.ok, mask_volatile(call.result)));
        if self.known.len() + self.changes.len() > MAX_KNOWN {
            self.known.clear();
            self.changes.clear();
        }
        self.stale = if self.known.insert(key) { 0 } else { self.stale + 1 };
        self.recent.truncate(WINDOW - 1);
        self.recent.push_front(key);
        let same = self.recent.iter().filter(|recent| **recent == key).count();
        let failures = self.count_failures(call);
        let repetition = Repetition::SameCall { times: same };
        let failed = Repetition::FailedEdit { times: failures };
        let stale = Repetition::Stale { calls: self.stale };
        let asks = [
            (same >= SAME_QUESTION, repetition),
            (self.stale >= STALE_QUESTION, stale),
            (failures >= FAILURE_QUESTION, failed),
        ];
        if let Some((_, what)) = asks.into_iter().find(|(is_due, _)| *is_due) {
            return Some(LoopFinding::Ask(what));
        }
        let reminders = [
            (failures == FAILURE_REMINDER, failed),
            (same == SAME_REMINDER && !self.reminded.contains(&key), repetition),
            (self.stale == STALE_REMINDER, stale),
        ];
        let (_, what) = reminders.into_iter().find(|(is_due, _)| *is_due)?;
        self.reminded.push(key);
        Some(LoopFinding::Remind(what))
    }

    fn count_failures(&mut self, call: &EndedCall<'_>) -> usize {
        let Some(path) = call.edited else { return 0 };
        if call.ok {
            self.failures.retain(|failure| failure.path != path);
            return 0;
        }
        let answer = self.answer;
        let mut failures = self.failures.iter_mut();
        let known = failures.find(|failure| failure.tool == call.tool && failure.path == path);
        if let Some(failed) = known {
            // When an answer has several edits, the model has not seen the first fail.
            if failed.answer == answer {
                return 0;
            }
            failed.answer = answer;
            failed.times += 1;
            return failed.times;
        }
        let tool = call.tool.to_owned();
        let path = path.to_owned();
        self.failures.push(FailedEdits { tool, path, times: 1, answer });
        1
    }
}

/// Units of time that may follow a number.
const TIME_UNITS: [&str; 14] = [
    "ns", "us", "µs", "ms", "s", "sec", "secs", "second", "seconds", "m", "min", "mins", "minutes",
    "h",
];
/// The length of the shortest time of day.
const MIN_TIME_LEN: usize = "0:00".len();
/// Words after which a number names a process or a thread.
const PROCESS_WORDS: [&str; 4] = ["pid", "process", "thread", "tid"];

/// Masks what differs between two runs with the same result: durations, times of day, dates, addresses and
/// identifiers of processes. All of them are words that begin with a digit.
fn mask_volatile(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut copied = 0;
    let mut from = 0;
    while let Some(found) = text.as_bytes()[from..].iter().position(u8::is_ascii_digit) {
        let start = from + found;
        let (before, rest) = text.split_at(start);
        let (word, after) = rest.split_at(word_length(rest));
        from = start + word.len();
        if !ends_in_word(before) && is_volatile(before, word, after) {
            masked.push_str(&text[copied..start]);
            masked.push('#');
            copied = from;
        }
    }
    masked.push_str(&text[copied..]);
    masked
}

/// Returns true if the last character is a letter or a digit.
fn ends_in_word(text: &str) -> bool {
    match text.as_bytes().last() {
        Some(last) if last.is_ascii() => last.is_ascii_alphanumeric(),
        _ => text.ends_with(char::is_alphanumeric),
    }
}

/// Returns true if a word that begins with a digit differs between two runs.
fn is_volatile(before: &str, word: &str, after: &str) -> bool {
    word.len() >= MIN_TIME_LEN && is_time(word) && !before.ends_with(':')
        || is_duration(word, after)
        || word.len() > 2 && word.starts_with("0x")
        || follows_process_word(before)
}

/// Returns true if the last word of the text is one of [`PROCESS_WORDS`].
fn follows_process_word(text: &str) -> bool {
    let mut letters =
        text.bytes().rev().skip_while(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric());
    // Long results have thousands of numbers, and few of them follow a word that ends so.
    let may_end = letters
        .next()
        .is_some_and(|byte| !byte.is_ascii() || matches!(byte, b'd' | b's' | b'D' | b'S'));
    if !may_end {
        return false;
    }
    let text = text.trim_end_matches(|character: char| !character.is_alphanumeric());
    PROCESS_WORDS.iter().any(|word| {
        text::strip_suffix_ignore_case(text, word).is_some_and(|before| !ends_in_word(before))
    })
}

/// The length of the first word. A dot, a colon or a dash between digits belongs to it.
fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut end = 0;
    while let Some(byte) = bytes.get(end) {
        let joins = matches!(byte, b'.' | b':' | b'-')
            && is_digit(end.wrapping_sub(1))
            && is_digit(end + 1);
        if byte.is_ascii_alphanumeric() || joins {
            end += 1;
            continue;
        }
        let next = text[end..].chars().next();
        match next.filter(|letter| !byte.is_ascii() && letter.is_alphanumeric()) {
            Some(letter) => end += letter.len_utf8(),
            None => break,
        }
    }
    end
}

/// A date, with or without a time, or a time of day.
fn is_time(word: &str) -> bool {
    let shapes = ["0000-00-00", "00:00:00", "0:00:00", "00:00", "0:00"];
    shapes.into_iter().any(|shape| {
        word.len() >= shape.len()
            && word.bytes().zip(shape.bytes()).all(|(byte, shape)| match shape {
                b'0' => byte.is_ascii_digit(),
                other => byte == other,
            })
    })
}

/// A number with a unit of time, which may be the next word.
fn is_duration(word: &str, after: &str) -> bool {
    let number = word.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let unit = &word[number..];
    if !unit.is_empty() {
        // `1m30.5s` has several.
        let mut parts =
            unit.split(|character: char| character.is_ascii_digit() || character == '.');
        return parts.all(|part| part.is_empty() || TIME_UNITS.contains(&part));
    }
    if after.as_bytes().first() != Some(&b' ') {
        return false;
    }
    let rest = &after[1..];
    let next = &rest[..word_length(rest)];
    !next.is_empty() && TIME_UNITS.contains(&next)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The findings after each call; a letter is a call, a capital one changes a file, `w` waits, and a digit
    /// behind it is its result.
    fn findings(script: &str) -> Vec<(usize, LoopFinding)> {
        let mut detector = LoopDetector::default();
        let mut found = Vec::new();
        for (number, call) in (1..).zip(script.split(' ')) {
            if call == "!" {
                detector.reset();
                continue;
            }
            let name = &call[..1];
            let arguments = Arguments::Object(json!({ "x": name }));
            let ended = EndedCall {
                tool: "t",
                arguments: &arguments,
                ok: true,
                result: &call[1..],
                edited: None,
                is_waiting: name == "w",
                has_changed: name.starts_with(char::is_uppercase),
            };
            found.extend(detector.add(&ended).map(|finding| (number, finding)));
        }
        found
    }

    #[test]
    fn the_same_call_with_the_same_result_is_told_and_then_asked_about() {
        use LoopFinding::{Ask, Remind};
        let same = |times| Repetition::SameCall { times };
        let stale = |calls| Repetition::Stale { calls };
        for (script, expected) in [
            ("a a b", vec![]),
            ("a a a a", vec![(3, Remind(same(3)))]),
            ("a a a a a", vec![(3, Remind(same(3))), (5, Ask(same(5)))]),
            // A change is progress.
            ("a1 a2 a3 a4 a5 a6 a7 a8", vec![]),
            ("a b c a d e a", vec![(7, Remind(same(3)))]),
            // Too far apart.
            ("a b c d e f a g h i j k a", vec![]),
            ("a a ! a a ! a a", vec![]),
            (
                "a b c d a b c d a b c d a b c d a b c d a b c d",
                vec![
                    (9, Remind(same(3))),
                    (10, Remind(same(3))),
                    (11, Remind(same(3))),
                    (12, Remind(same(3))),
                    (16, Remind(stale(12))),
                    (24, Ask(stale(20))),
                ],
            ),
            // A change of files starts the count anew; changing them back and forth does not.
            ("a a A a a B a a C a a D a a", vec![]),
            ("a a A a a A a", vec![(7, Remind(same(3)))]),
            // Nor does what is waited for count, or what is looked at in between.
            ("w w w w w w w w", vec![]),
            ("a a w a a w a a w a a", vec![]),
        ] {
            assert_eq!(findings(script), expected, "{script}");
        }
    }

    #[test]
    fn many_calls_that_bring_nothing_new_are_told_and_then_asked_about() {
        let rounds = |calls: &str, times: usize| vec![calls; times].join(" ");
        let stale = |calls| Repetition::Stale { calls };
        let seven = findings(&rounds("a b c d e f g", 5));
        let found: Vec<_> =
            seven.iter().filter(|(_, finding)| matches!(finding, LoopFinding::Ask(_))).collect();
        assert_eq!(found.first(), Some(&&(27, LoopFinding::Ask(stale(20)))));
        assert!(seven.contains(&(19, LoopFinding::Remind(stale(12)))), "{seven:?}");
        // Each round has something new.
        let new =
            (0..9).map(|number| format!("a b c d e f g{number}")).collect::<Vec<_>>().join(" ");
        assert_eq!(findings(&new), []);
    }

    #[test]
    fn an_edit_that_fails_again_and_again_is_told_and_then_asked_about() {
        let mut detector = LoopDetector::default();
        let mut edit = |ok: bool, number: usize| {
            let arguments = Arguments::Object(json!({ "old_text": number }));
            let result = &number.to_string();
            let tool = "edit_file";
            if number != 6 {
                detector.begin_answer(false);
            }
            detector.add(&EndedCall {
                tool,
                arguments: &arguments,
                ok,
                result,
                edited: Some("a"),
                is_waiting: false,
                has_changed: ok,
            })
        };
        let found: Vec<_> = (0..3).map(|number| edit(false, number)).collect();
        assert_eq!(found, [None; 3]);
        edit(true, 3);
        let found: Vec<_> = (4..13).map(|number| edit(false, number)).collect();
        let failed = |times| Repetition::FailedEdit { times };
        // The second and the third are in the same answer.
        assert_eq!(found[4], Some(LoopFinding::Remind(failed(4))));
        assert_eq!(found[8], Some(LoopFinding::Ask(failed(8))));
        assert_eq!(found.iter().flatten().count(), 2);
    }

    #[test]
    fn what_changes_in_every_run_is_masked_and_nothing_else() {
        for (text, expected) in [
            ("finished in 0.53s", "finished in #"),
            ("took 12 ms, 1.5 seconds, 1m30.5s", "took # ms, # seconds, #"),
            ("2026-11-23T19:40:03.123Z INFO", "# INFO"),
            ("at 19:40:03, on 2026-11-23", "at #, on #"),
            ("pid 4711, Process 12, thread 3", "pid #, Process #, thread #"),
            ("at 0x7ffd12ab in main", "at # in main"),
            ("src/a.rs:12:15: 3 errors", "src/a.rs:12:15: 3 errors"),
            ("line 12: x = 5; v1.2.3", "line 12: x = 5; v1.2.3"),
            ("12| text", "12| text"),
            ("7 passed; 1 failed", "7 passed; 1 failed"),
            ("größer als 5 µs", "größer als # µs"),
            ("ä5 µs, 5é ms 1.2.é, PID — 7; épid 8", "ä5 µs, 5é ms 1.2.é, PID — #; épid 8"),
        ] {
            assert_eq!(mask_volatile(text), expected);
        }
    }
}
