//! Notices when the model goes round in circles: the same call with the same result, many calls without
//! anything new, one edit that fails again and again. Then come first a word to the model, in the result of the call,
//! and later a question to the user. A call whose result changes, or that waits for something, never counts, and a
//! change of files starts the count anew.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::checks::edits_files;
use super::hints::Hints;
use super::room::handoff::is_rejected;
use super::{Turn, TurnStep, redacted, stopped_note};
use crate::tools;
use turnwright_types::client::{UserQuestion, UserReply};
use turnwright_types::effect::{ToolKind, escape_hidden_line, shorten_title};
use turnwright_types::hash::std_hash;
use turnwright_types::ids::CallId;
use turnwright_types::message::{
    Arguments, Message, StopReason, ToolCall, ToolMessage, UserMessage,
};
use turnwright_types::text;

/// The answers to the question whether the turn goes on.
const GO_ON: &str = "Go on";
const STOP: &str = "Stop";
const GUIDE: &str = "Tell it what to do instead";
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

impl Turn {
    /// Tells the model in the results if it goes round in circles. Returns the call and the repetition that the
    /// user must be asked about, the latter in words.
    pub(super) async fn check_loops(
        &mut self,
        results: &mut [ToolMessage],
        all_invalid: bool,
    ) -> Option<(CallId, String)> {
        if !self.conversation.limits.stops_loops {
            return None;
        }
        let answer = self.history.messages.last().cloned()?;
        let calls = &answer.as_assistant()?.calls;
        let changes = self.conversation.env.shared.checkpoint.change_count();
        let ran_changes = std::mem::replace(&mut self.loops.known_changes, changes) != changes;
        let mut found = self.loops.begin_answer(all_invalid);
        let mut question = None;
        for (call, result) in calls.iter().zip(results) {
            let kind = self.conversation.tools.find(&call.name).ok().and_then(|tool| tool.kind());
            let edited = match &call.arguments {
                Arguments::Object(args) if kind == Some(ToolKind::Edit) => tools::edited_path(args),
                _ => None,
            };
            let ended = EndedCall {
                tool: &call.name,
                arguments: &call.arguments,
                ok: result.ok,
                result: &result.text,
                edited,
                is_waiting: tools::is_waiting(&self.conversation.env, call),
                has_changed: ran_changes || result.ok && edits_files(kind),
            };
            let Some(finding) = self.loops.add(&ended).or(found.take()) else { continue };
            self.checks.ledger.counts.loops += 1;
            match finding {
                LoopFinding::Remind(repetition) => {
                    let note = self.reminder(repetition, call).await;
                    self.append_note(result, &note);
                    if !result.ok && !is_rejected(result) && !self.is_command(&call.name) {
                        self.leave_out_copies(call);
                    }
                }
                LoopFinding::Ask(repetition) => {
                    question = Some((call.id.clone(), description(repetition, call)));
                }
            }
        }
        question
    }

    /// Leaves out the arguments of all calls that are the same as `call` from the next requests: weak models copy a call
    /// that stands before them, whatever its result says. Not those of commands, which a model may repeat to wait.
    fn leave_out_copies(&mut self, call: &ToolCall) {
        // All messages are replaced, because a message caches what was rendered up to it.
        for message in &mut self.history.messages {
            let mut replacement = Message::clone(message);
            // Signed data goes back as the provider has sent it.
            if let Message::Assistant(answer) = &mut replacement
                && answer.provider_state.blobs.is_empty()
            {
                for other in answer.calls.iter_mut().filter(|other| other.extra.is_none()) {
                    if other.name == call.name && other.arguments == call.arguments {
                        other.arguments = Arguments::default();
                    }
                }
            }
            *message = Arc::new(replacement);
        }
        self.history.meter.forget_count();
    }

    /// Adds a line for the model to a stored result.
    pub(super) fn append_note(&self, result: &mut ToolMessage, note: &str) {
        result.text = format!("{}\n{note}", result.text.trim_end_matches('\n'));
        self.conversation.log().replace_result(&result.call, result.text.clone());
    }

    async fn reminder(&self, repetition: Repetition, call: &ToolCall) -> String {
        match repetition {
            Repetition::SameCall(times) => format!(
                "[You have made this call {times} times, always with this result. Do something else, \
                 say what is missing, or let a command sleep before you look again.]"
            ),
            Repetition::Stale(calls) => format!(
                "[Your last {calls} calls have had only results that you had before. What does not fit \
                 into your context at once, work through in parts, and note what you find. Or say what \
                 is missing.]"
            ),
            Repetition::InvalidCalls(answers) => format!(
                "[{answers} answers in a row had only calls that cannot run. Call a tool that you were \
                 given, with arguments that fit its schema, or answer in words.]"
            ),
            Repetition::FailedEdit(times) => {
                let Arguments::Object(arguments) = &call.arguments else { return String::new() };
                let place = tools::current_place(&self.conversation.env, arguments).await;
                let advice =
                    place.map_or("Read the file before the next one.".to_owned(), |text| {
                        format!(
                            "Copy what you quote exactly from the text that is there now:\n{text}\n"
                        )
                    });
                format!("[{times} edits of this file have failed in a row. {advice}]")
            }
        }
    }

    /// Asks the user whether the turn goes on.
    pub(super) async fn ask_about_loop(&mut self, (call, what): (CallId, String)) -> TurnStep {
        if self.is_helper() {
            return self.ask_for_report();
        }
        let options = [GO_ON, STOP, GUIDE].map(str::to_owned).to_vec();
        let Some(reply) = self.ask(&call, format!("{what} Shall it go on?"), options).await else {
            return TurnStep::End(Ok(StopReason::Cancelled));
        };
        let reason = match reply {
            UserReply::Answered(words) if words.first().is_some_and(|word| word == GO_ON) => {
                self.loops.reset();
                return TurnStep::Sample;
            }
            UserReply::Answered(words) if words.first().is_some_and(|word| word == GUIDE) => {
                match self.ask_for_guidance(&call).await {
                    Some(step) => return step,
                    None => StopReason::EndTurn,
                }
            }
            UserReply::Answered(_) => StopReason::EndTurn,
            UserReply::InConversation => {
                self.say(format!("{what} Shall it go on? Say so, or what it should do instead."));
                StopReason::Repetition
            }
            UserReply::Declined | UserReply::Cancelled | UserReply::Unsupported => {
                self.say(format!(
                    "Stopped: {what} Say what it should do differently, or choose another model."
                ));
                StopReason::MaxTurnRequests
            }
        };
        if let Some(note) = stopped_note(&self.history, "the same was done again and again") {
            self.push_hidden_message(note);
        }
        TurnStep::End(Ok(reason))
    }

    /// Asks the user something about a call. Returns `None` if the turn was cancelled.
    async fn ask(
        &self,
        call: &CallId,
        question: String,
        options: Vec<String>,
    ) -> Option<UserReply> {
        if self.conversation.work.alone {
            return Some(UserReply::Unsupported);
        }
        let call = call.clone();
        let question =
            UserQuestion { call, question, options, allows_multiple: false, allows_text: false };
        let asking = self.conversation.client().ask_user(question);
        self.cancel.run_until_cancelled(asking).await
    }

    /// Asks the user what the model should do instead, which it reads before its next request. `None` if
    /// the user does not say it now.
    async fn ask_for_guidance(&mut self, call: &CallId) -> Option<TurnStep> {
        let question = "What should the model do instead?".to_owned();
        let Some(reply) = self.ask(call, question, Vec::new()).await else {
            return Some(TurnStep::End(Ok(StopReason::Cancelled)));
        };
        if let UserReply::Answered(words) = reply
            && self
                .steering
                .push(self.conversation.log(), None, UserMessage::text(words.join("\n")))
                .is_ok()
        {
            return Some(TurnStep::Sample);
        }
        self.say("Stopped. Your next prompt tells it what to do instead.".to_owned());
        None
    }
}

/// Describes the repetition in a sentence for the user.
fn description(repetition: Repetition, call: &ToolCall) -> String {
    let arguments = match &call.arguments {
        Arguments::Object(value) => value.to_string(),
        Arguments::Unusable { text, .. } => text.clone(),
    };
    let line = redacted(&format!("{} {arguments}", call.name));
    let shown = shorten_title(escape_hidden_line(&line));
    match repetition {
        Repetition::SameCall(times) => format!(
            "The model has made the same call {times} times, always with the same result: `{shown}`."
        ),
        Repetition::Stale(calls) => format!(
            "The last {calls} calls of the model have had only results that it had before. The last was \
             `{shown}`."
        ),
        Repetition::InvalidCalls(answers) => format!(
            "The model has given {answers} answers in a row with only calls that cannot run. The last \
             was `{shown}`."
        ),
        Repetition::FailedEdit(times) => {
            format!("{times} edits of the same file have failed in a row. The last was `{shown}`.")
        }
    }
}

/// A call that has ended.
struct EndedCall<'a> {
    tool: &'a str,
    arguments: &'a Arguments,
    ok: bool,
    /// The result as the model reads it.
    result: &'a str,
    /// The file that it was supposed to edit.
    edited: Option<&'a str>,
    /// It only waits for something that goes on.
    is_waiting: bool,
    /// It has changed files.
    has_changed: bool,
}

/// A repetition, and how often it has occurred so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repetition {
    SameCall(usize),
    /// Calls in a row that have brought nothing new.
    Stale(usize),
    FailedEdit(usize),
    /// Answers whose calls name unknown tools or have invalid arguments.
    InvalidCalls(usize),
}

/// The action that follows from a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopFinding {
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
    /// The number of changes of files that it knows of.
    known_changes: u64,
    /// The hints of the turn, which new words of the user do not begin anew.
    pub(super) hints: Hints,
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
    /// Begins after this number of changes of files.
    pub(super) fn new(known_changes: u64) -> LoopDetector {
        LoopDetector { known_changes, ..LoopDetector::default() }
    }

    /// Begins a new answer, to which the calls that are added next belong. `all_invalid` means that none of
    /// them can run, because the tool is unknown or the arguments are invalid.
    fn begin_answer(&mut self, all_invalid: bool) -> Option<LoopFinding> {
        self.answer += 1;
        self.invalid_answers = if all_invalid { self.invalid_answers + 1 } else { 0 };
        let found = Repetition::InvalidCalls(self.invalid_answers);
        match self.invalid_answers {
            INVALID_REMINDER => Some(LoopFinding::Remind(found)),
            INVALID_QUESTION.. => Some(LoopFinding::Ask(found)),
            _ => None,
        }
    }

    /// Forgets everything, because the user has said something new.
    pub(super) fn reset(&mut self) {
        let hints = std::mem::take(&mut self.hints);
        *self = LoopDetector { hints, ..LoopDetector::new(self.known_changes) };
    }

    /// Adds a call, and says what follows if it is part of a repetition.
    fn add(&mut self, call: &EndedCall<'_>) -> Option<LoopFinding> {
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
        let repetition = Repetition::SameCall(same);
        let failed = Repetition::FailedEdit(failures);
        let stale = Repetition::Stale(self.stale);
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
    while let Some(letter) = text[end..].chars().next() {
        let joins =
            matches!(letter, '.' | ':' | '-') && is_digit(end.wrapping_sub(1)) && is_digit(end + 1);
        if !joins && !letter.is_alphanumeric() {
            break;
        }
        end += letter.len_utf8();
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
        let same = Repetition::SameCall;
        let stale = Repetition::Stale;
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
        let stale = Repetition::Stale;
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
        let failed = Repetition::FailedEdit;
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
