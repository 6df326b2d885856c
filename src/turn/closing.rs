//! The closing check of a turn: if its model says that it is done and nothing proves its work, the model is asked once.
//! `next_step` decides; here the facts are gathered and the words are found.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::next_step::{ClosingFacts, WorkDone, must_prove};
use super::proof::ProvingRun;
use super::room::handoff::stored_facts;
use super::{Turn, TurnStep, typed_text};
use turnwright_policy::permission::Mode;
use turnwright_recording::outside::AnswerKind;
use turnwright_store::ProofWord;
use turnwright_types::effect::{PathScope, ResolvedPath, escape_hidden, escape_hidden_line};
use turnwright_types::hash::std_hash;
use turnwright_types::message::AssistantMessage;
use turnwright_types::text;
use turnwright_types::update::PlanStatus;
use turnwright_undo::{ChangeScope, DiffLimits, TurnChanges, turn_changes};
use turnwright_workspace::edit::line_changes::LineCounts;

/// The name under which a recording keeps the words at the end of a turn.
const CLOSING: &str = "closing check";
/// The same for the words about commands that are still running.
const RUNNING: &str = "running commands";
/// The most bytes of the user's words that are quoted.
const MAX_QUOTED_BYTES: usize = 400;
/// The most characters of a step or a command line that is quoted.
const MAX_LINE_CHARS: usize = 80;
/// The most files and steps that are named.
const MAX_NAMED: usize = 3;
/// The size of the diff that is counted.
const DIFF_LIMITS: DiffLimits = DiffLimits { file: 256 * 1024, all: 1024 * 1024 };
/// Parts of questions, in small letters, that only the user can answer.
const ASKS_USER: &str = "do you want|like me to|shall i|should i|soll ich|which one?|which option?|would you|\
                         you prefer|しますか|你|您";

/// The words at the end of a turn whose model says that it is done.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct ClosingWords {
    /// The line for the user.
    pub(super) notice: Option<String>,
    /// The message that makes the model go on.
    pub(super) request: Option<String>,
}

/// The names of the files that a turn has changed, sorted, and the number of changed lines.
type ChangedFiles = (Vec<String>, LineCounts);

impl Turn {
    /// Returns the step with which the model proves its work, if it has to. Otherwise the turn may end, and the user is
    /// told what its plan leaves open.
    pub(super) async fn closing(&mut self) -> Option<TurnStep> {
        if let Some(step) = self.mention_running_commands() {
            return Some(step);
        }
        let words = match self.recorded_words(CLOSING) {
            Some(words) => words,
            None => {
                let found = self.closing_words().await;
                self.record_words(CLOSING, found)
            }
        };
        let step = self.say_words(words)?;
        self.checks.ledger.counts.was_closed = true;
        Some(step)
    }

    /// Asks the model about commands that would end with its answer, and returns the step with which it may wait for
    /// them; `None` if there are none.
    fn mention_running_commands(&mut self) -> Option<TurnStep> {
        let recorded = self.recorded_words(RUNNING);
        self.say_words(recorded.unwrap_or_else(|| self.record_words(RUNNING, self.running_words())))
    }

    /// The words, at most once in a session, about commands that would end with it. A command whose output the model
    /// has asked for is left out: it knows that this one still runs.
    fn running_words(&self) -> ClosingWords {
        let is_last = self.conversation.work.one_turn || self.is_helper();
        let may_ask = self.steering.is_empty() && self.budget.has_request();
        let names = self.conversation.env.jobs.neglected().join(", ");
        if names.is_empty() || !is_last || !may_ask || !self.conversation.told.is_news(RUNNING, 0) {
            return ClosingWords::default();
        }
        let request = format!("Still running: {names}\n{}", include_str!("closing/running.md"));
        let notice = format!("{names} would end now: the model is asked once whether to wait.");
        ClosingWords { notice: Some(notice), request: Some(request) }
    }

    /// The recorded words, or other facts, at this place of the conversation: a replay changes no files and reads none,
    /// so it cannot find them. `None` if this is no replay.
    pub(super) fn recorded_words<T: Default + DeserializeOwned>(&self, key: &str) -> Option<T> {
        let answers = &self.conversation.env.shared.process.outside;
        if !answers.is_played(key) {
            return None;
        }
        let kept = answers.recorded_answer(AnswerKind::View, key, &self.place());
        Some(kept.and_then(|kept| serde_json::from_value(kept).ok()).unwrap_or_default())
    }

    /// Records words, or other facts, for a replay, and returns them.
    pub(super) fn record_words<T: Default + PartialEq + Serialize>(&self, key: &str, kept: T) -> T {
        if kept != T::default() {
            let answers = &self.conversation.env.shared.process.outside;
            answers.record_answer(AnswerKind::View, key, &self.place(), &|| json!(kept));
        }
        kept
    }

    fn place(&self) -> Value {
        json!({ "messages": self.history.messages.len() })
    }

    /// Says the words. Returns the next step if the model has to go on.
    pub(super) fn say_words(&mut self, words: ClosingWords) -> Option<TurnStep> {
        if let Some(notice) = words.notice {
            self.conversation.notify(notice);
        }
        let request = words.request.filter(|_| self.budget.take_request().is_ok())?;
        self.push_context(request);
        Some(TurnStep::Sample)
    }

    async fn closing_words(&mut self) -> ClosingWords {
        let ledger = self.settled_ledger();
        let proof = ledger.proof();
        let work = match (ledger.has_changed, ledger.has_planned) {
            (true, _) => WorkDone::Files,
            (false, true) => WorkDone::OnlyPlan,
            (false, false) if !ledger.has_called => WorkDone::OnlyWords,
            (false, false) => WorkDone::Nothing,
        };
        let is_small = self.conversation.offer().is_small;
        // A plain answer costs nothing. The turn that has asked for a helper proves its work.
        let may_end = work == WorkDone::Nothing
            || work == WorkDone::OnlyWords && !is_small
            || self.is_helper();
        if may_end {
            return ClosingWords::default();
        }
        let (plan, ..) = stored_facts(&self.conversation).await;
        let open = plan.iter().filter(|step| step.status != PlanStatus::Completed);
        let open_steps: Vec<_> = open.map(|step| quoted(&step.content)).collect();
        // In plan mode nothing is changed, and the user's words come first.
        let is_over = self.conversation.mode().get() != Mode::Plan && self.steering.is_empty();
        let may_ask =
            self.says_done() && !self.checks.ledger.counts.was_closed && self.budget.has_request();
        let facts = ClosingFacts {
            verify: self.conversation.work.verify,
            work,
            proof,
            open_steps: open_steps.len(),
            has_unrun_check: self.has_unrun_check(),
            is_small,
            is_excused: !is_over || !may_ask,
        };
        if must_prove(&facts) {
            let changes = self.changed_files().await;
            let hash = std_hash((&changes.0, &open_steps, proof as u8));
            // Never twice for the same facts.
            if self.conversation.told.is_news("closing facts", hash) {
                return self.ask_for_proof(work, &changes, &open_steps);
            }
        }
        let told = &self.conversation.told;
        let is_new = is_over && told.is_news("open steps", std_hash(&open_steps));
        let notice = open_steps.first().filter(|_| is_new).map(|first| match open_steps.len() {
            1 => format!("The plan has 1 open step: {first}."),
            count => format!("The plan has {count} open steps: {first}, and others."),
        });
        ClosingWords { notice, request: None }
    }

    /// Returns true if the last answer says that the work is done. Without an answer the user was asked something.
    /// Alone, a question is no way out.
    pub(super) fn says_done(&self) -> bool {
        let is_alone = self.conversation.work.alone;
        self.final_answer().is_some_and(|answer| is_alone || !ends_with_question(&answer.text))
    }

    /// The last message, if it is an answer without calls.
    pub(super) fn final_answer(&self) -> Option<&AssistantMessage> {
        let last = self.history.messages.last().and_then(|message| message.as_assistant());
        last.filter(|answer| answer.calls.is_empty())
    }

    fn ask_for_proof(
        &self,
        work: WorkDone,
        changes: &ChangedFiles,
        open_steps: &[String],
    ) -> ClosingWords {
        let (notice, context) = match work {
            WorkDone::Files => (
                "Not proven yet: the model is asked once to check its work.",
                self.proof_request(changes, open_steps),
            ),
            WorkDone::OnlyPlan => (
                "Only planned so far: the model is asked once to begin.",
                format!(
                    "You have only made a plan. Carry it out now, beginning with: {}\n",
                    open_steps.first().map_or("", String::as_str)
                ),
            ),
            WorkDone::OnlyWords | WorkDone::Nothing => (
                "Nothing is done yet: the model is asked once to begin.",
                format!(
                    "The user asked:\n{}\n{}",
                    self.words_of_user(),
                    include_str!("closing/begin.md")
                ),
            ),
        };
        ClosingWords { notice: Some(notice.to_owned()), request: Some(super::redacted(&context)) }
    }

    /// The words with which the model is asked for a proof.
    fn proof_request(&self, (files, lines): &ChangedFiles, open_steps: &[String]) -> String {
        let mut request = String::from("You say that you are done.");
        match self.words_of_user() {
            words if words.is_empty() => request.push('\n'),
            words => request.push_str(&format!(" The user asked:\n{words}\n")),
        }
        let LineCounts { added, removed } = lines;
        let names = text::join_first(files, MAX_NAMED);
        let changed = match files.len() {
            0 => "files".to_owned(),
            1 => format!("1 file (+{added} −{removed}): {names}"),
            count => format!("{count} files (+{added} −{removed}): {names}"),
        };
        let run = last_run(self.checks.ledger.last_run.as_ref());
        request.push_str(&format!("You changed {changed}. {run}\n"));
        if !open_steps.is_empty() {
            let steps = open_steps[..open_steps.len().min(MAX_NAMED)].join("; ");
            request.push_str(&format!("Open steps of your plan: {steps}.\n"));
        }
        request + include_str!("closing/prove.md")
    }

    /// The beginning of the user's prompt; empty if a summary stands for it.
    fn words_of_user(&self) -> String {
        let prompt = self.history.messages.get(self.prompt.index);
        let words = prompt.and_then(|message| message.as_user()).map(typed_text);
        text::clip_bytes(escape_hidden(&words.unwrap_or_default()), MAX_QUOTED_BYTES, "…")
    }

    /// Reads from the store what this turn has changed.
    async fn changed_files(&self) -> ChangedFiles {
        let mut files = Vec::new();
        let mut lines = LineCounts::default();
        let log = self.conversation.log();
        let Some(store) = log.store().cloned() else { return (files, lines) };
        let session = self.conversation.env.session.clone();
        let roots = self.conversation.env.files.roots();
        let read_roots = roots.clone();
        let scope = ChangeScope::Turn(log.turn());
        let reading = store.read(move |connection| {
            turn_changes(connection, &session, scope, &read_roots, DIFF_LIMITS)
        });
        let found = reading.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the changes of the turn could not be read");
            TurnChanges::default()
        });
        for file in found.files {
            let path = ResolvedPath { path: file.path, scope: PathScope::Workspace };
            files.push(escape_hidden_line(&roots.display_path(&path)));
            // The first two lines name the file.
            for line in file.diff.lines().skip(2) {
                lines.added += usize::from(line.starts_with('+'));
                lines.removed += usize::from(line.starts_with('-'));
            }
        }
        (files, lines)
    }
}

/// The sentence about the last run since the last change.
fn last_run(run: Option<&ProvingRun>) -> String {
    let line = run.map(|run| quoted(&run.line)).unwrap_or_default();
    match run.map(|run| &run.word) {
        Some(ProofWord::Red) => format!("The last run failed: `{line}`."),
        Some(ProofWord::Thin) => format!("`{line}` proves little."),
        _ => "Nothing that you ran since then proves it.".to_owned(),
    }
}

/// A short line without hidden characters and without a full stop at its end.
fn quoted(words: &str) -> String {
    let line = escape_hidden_line(&text::one_line(words));
    text::clip_within(line.trim_end_matches('.'), MAX_LINE_CHARS)
}

/// Returns true if the last sentence of an answer is a question. Code at its end does not count, and neither does a
/// list of the choices that the user has.
pub(super) fn ends_with_question(answer: &str) -> bool {
    let mut prose = "";
    let mut is_code = false;
    for line in answer.lines().map(str::trim) {
        if line.starts_with("```") || line.starts_with("~~~") {
            is_code = !is_code;
        } else if !is_code && line.contains(char::is_alphanumeric) && !is_choice(prose, line) {
            prose = line;
        }
    }
    is_question(prose)
}

/// Returns true if a line is an item of a list below a question to the user. Below another one, such as "What
/// changed?", it is the answer.
fn is_choice(question: &str, line: &str) -> bool {
    let mark = line.split(' ').next().unwrap_or_default();
    let is_item = matches!(mark.trim_start_matches(char::is_numeric), "-" | "*" | "•" | "." | ")");
    if !is_item || !is_question(question) {
        return false;
    }
    // However long the line is.
    let asked = text::last_chars(question, 400).to_lowercase();
    ASKS_USER.split('|').any(|part| asked.contains(part))
}

/// Returns true if a line is no heading and ends with a question, whatever decorates its end, except for a mark that
/// answers it.
fn is_question(line: &str) -> bool {
    let end = line.trim_end_matches(|char: char| {
        !char.is_alphanumeric() && !"?？؟.。:：|✅✔✓❌✗".contains(char)
    });
    let is_japanese = line.ends_with("すか。") || line.ends_with("しょうか。");
    !line.starts_with('#') && (end.ends_with(['?', '？', '؟']) || is_japanese)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_asks_back_if_its_last_sentence_outside_of_code_is_a_question() {
        let asks = [
            "Done. Shall I go on?",
            "Which one?\n\n```\na?\nb\n```\n",
            "要继续吗？",
            "**Is that right?**",
            "Is it (a)?\n",
            "Shall I go on? 😊",
            "Really?!",
            "هل أتابع؟",
            "続けてもよろしいですか。",
            "Which one do you want?\n\n1. The first\n2. The second, with a test",
            "Which one?\n- **A**: fast\n- **B**: small",
            "Questions:\n1. Which one?\n2. And when?",
            "How would you like me to go on?\n* a\n* b\n\n---\n",
            "你想用哪一个？\n1. 第一个\n2. 第二个",
        ];
        let tells = [
            "Done.",
            "Why? It was wrong.",
            "",
            "```\nwhat?\n```",
            "Done:\n```\nx?",
            "It is `done?`.",
            "## What changed?\n- a",
            "Which?\n1. a\n\nI took the first.",
            "Why did it fail? - the cache …",
            "Why did it fail?\n\n- The cache was old.\n- It is empty now.",
            "**What changed?**\n1. a\n2. b",
            "Why?\n**Cause**: the cache",
            "Open questions:\n- Does it work on Windows?\n- I have not tried macOS.",
            "Should I go on?\n3 tests pass.",
            "Does it build? ✅",
            "| a | b? |",
            "原因はなぜか。",
        ];
        for (answers, expected) in [(&asks[..], true), (&tells[..], false)] {
            for answer in answers {
                assert_eq!(ends_with_question(answer), expected, "{answer}");
            }
        }
    }

    #[test]
    fn the_last_run_is_named_in_one_line() {
        let table = [
            (None, "Nothing that you ran since then proves it."),
            (Some(ProofWord::Red), "The last run failed: `cargo test`."),
            (Some(ProofWord::Thin), "`cargo test` proves little."),
        ];
        for (word, expected) in table {
            let run = word.map(|word| ProvingRun { line: "cargo\ntest".to_owned(), word });
            assert_eq!(last_run(run.as_ref()), expected);
        }
    }
}
