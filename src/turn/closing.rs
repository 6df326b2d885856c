//! The closing check of a turn: if its model says that it is done and nothing proves its work, the model is asked once.
//! `next_step` decides; here the facts are gathered and the words are found.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::next_step::{Closing, ClosingFacts, ClosingReason, Excuse, WorkDone, closing_step};
use super::proof::ProvingRun;
use super::{Turn, TurnStep};
use turnwright_policy::permission::Mode;
use turnwright_recording::outside::{AnswerKind, AnswerSource};
use turnwright_store::{ProofWord, file_versions, read};
use turnwright_types::effect::{PathScope, ResolvedPath, escape_hidden, escape_hidden_line};
use turnwright_types::hash::std_hash;
use turnwright_types::message::{PromptPart, within_context};
use turnwright_types::text;
use turnwright_types::update::PlanStatus;
use turnwright_undo::{ChangeScope, DiffLimits, turn_changes};

/// The name under which a recording keeps the work of a turn.
const CLOSING: &str = "closing check";
/// The most bytes of the user's words that are quoted.
const MAX_QUOTED_BYTES: usize = 400;
/// The most characters of a step or a command line that is quoted.
const MAX_LINE_CHARS: usize = 80;
/// The most files and steps that are named.
const MAX_NAMED: usize = 3;
/// The size of the diff that is counted.
const DIFF_LIMITS: DiffLimits = DiffLimits { file: 256 * 1024, all: 1024 * 1024 };

/// The work of a turn when its model says that it is done.
#[derive(Debug, Default, Deserialize, Serialize)]
struct TurnWork {
    has_changed: bool,
    has_planned: bool,
    proof: ProofWord,
    /// The steps of the plan that are not completed.
    open_steps: Vec<String>,
    /// The names of the files that the turn has changed, sorted.
    files: Vec<String>,
}

/// The changes of a turn in numbers.
#[derive(Debug, Default, Deserialize, Serialize)]
struct DiffNumbers {
    added: usize,
    removed: usize,
}

impl Turn {
    /// Returns the step with which the model proves its work, if it has to. Otherwise the turn may end, and the user is
    /// told what its plan leaves open.
    pub(super) async fn closing(&mut self) -> Option<TurnStep> {
        let ledger = self.settled_ledger();
        let seen = TurnWork {
            has_changed: ledger.has_changed,
            has_planned: ledger.has_planned,
            proof: ledger.proof(),
            ..TurnWork::default()
        };
        let work = self.turn_work(seen).await?;
        let hash = std_hash((&work.files, &work.open_steps, work.proof as u8));
        let facts = ClosingFacts {
            verify: self.conversation.work.verify,
            work: match (work.has_changed, work.has_planned) {
                (true, _) => WorkDone::Files,
                (false, true) => WorkDone::OnlyPlan,
                (false, false) => WorkDone::Nothing,
            },
            proof: work.proof,
            open_steps: work.open_steps.len(),
            has_unrun_check: self.has_unrun_check(),
            is_small: self.conversation.offer().is_small,
            excuse: self.excuse(hash),
        };
        if let Closing::Ask(reason) = closing_step(&facts)
            && self.budget.take_request().is_ok()
        {
            self.conversation.told.set_closing_facts(hash);
            self.checks.ledger.counts.was_closed = true;
            return Some(self.ask_for_proof(reason, &work).await);
        }
        let is_over =
            !matches!(facts.excuse, Some(Excuse::Helper | Excuse::Planning | Excuse::Steering));
        if is_over {
            self.tell_open_steps(&work.open_steps);
        }
        None
    }

    /// Why the turn may end without a proof.
    fn excuse(&self, hash: u64) -> Option<Excuse> {
        let answer = self.history.messages.last().and_then(|message| message.as_assistant());
        let is_done = answer
            .is_some_and(|answer| answer.calls.is_empty() && !ends_with_question(&answer.text));
        let excuses = [
            (self.is_helper(), Excuse::Helper),
            (self.conversation.mode().get() == Mode::Plan, Excuse::Planning),
            (!self.steering.is_empty(), Excuse::Steering),
            // Without an answer the user was asked something.
            (!is_done, Excuse::AsksBack),
            (self.checks.ledger.counts.was_closed, Excuse::Asked),
            (!self.budget.has_request(), Excuse::NoRequestLeft),
            (self.conversation.told.closing_facts() == Some(hash), Excuse::SameFacts),
        ];
        excuses.into_iter().find(|(holds, _)| *holds).map(|(_, excuse)| excuse)
    }

    async fn ask_for_proof(&mut self, reason: ClosingReason, work: &TurnWork) -> TurnStep {
        let (notice, context) = match reason {
            ClosingReason::Unproven => {
                let numbers = self.diff_numbers().await;
                let notice = "Not proven yet: the model is asked once to check its work.";
                (notice, self.proof_request(work, &numbers))
            }
            ClosingReason::OnlyPlanned => {
                let step = work.open_steps.first().map_or("", String::as_str);
                let context = format!(
                    "You have only made a plan. Carry it out now, beginning with: {}\n",
                    quoted(step)
                );
                ("Only planned so far: the model is asked once to begin.", context)
            }
        };
        self.conversation.notify(notice.to_owned());
        self.push_context(within_context(&super::redacted(&context)));
        TurnStep::Sample
    }

    /// The words with which the model is asked for a proof.
    fn proof_request(&self, work: &TurnWork, numbers: &DiffNumbers) -> String {
        let mut request = String::from("You say that you are done.");
        let words = self.words_of_user();
        if words.is_empty() {
            request.push('\n');
        } else {
            request.push_str(&format!(" The user asked:\n{words}\n"));
        }
        let names = text::join_first(&work.files, MAX_NAMED);
        let lines = format!("(+{} −{})", numbers.added, numbers.removed);
        match work.files.len() {
            0 => request.push_str("You changed files."),
            1 => request.push_str(&format!("You changed 1 file {lines}: {names}.")),
            count => request.push_str(&format!("You changed {count} files {lines}: {names}.")),
        }
        request.push_str(&format!(" {}\n", last_run(self.checks.ledger.last_run.as_ref())));
        if !work.open_steps.is_empty() {
            let steps: Vec<_> =
                work.open_steps.iter().take(MAX_NAMED).map(|step| quoted(step)).collect();
            request.push_str(&format!("Open steps of your plan: {}.\n", steps.join("; ")));
        }
        request.push_str(include_str!("closing/prove.md"));
        request
    }

    /// The beginning of the user's prompt; empty if a summary stands for it.
    fn words_of_user(&self) -> String {
        let prompt = self.history.messages.get(self.prompt.index);
        let parts = prompt.and_then(|message| message.as_user()).map(|user| user.parts.as_slice());
        let typed = parts.unwrap_or_default().iter().filter_map(|part| match part {
            PromptPart::Text(text) => Some(text.trim()),
            _ => None,
        });
        let words = typed.collect::<Vec<_>>().join(" ");
        text::clip_bytes(escape_hidden(&words), MAX_QUOTED_BYTES, "…")
    }

    /// Adds to the work what is stored of it. `None` if there is none: a plain answer costs nothing.
    async fn turn_work(&self, seen: TurnWork) -> Option<TurnWork> {
        if let Some(work) = self.kept_work(AnswerKind::View) {
            return Some(work);
        }
        if !seen.has_changed && !seen.has_planned {
            return None;
        }
        let (open_steps, files) = self.stored_work().await;
        let work = TurnWork { open_steps, files, ..seen };
        self.keep_work(AnswerKind::View, &work);
        Some(work)
    }

    /// Reads the open steps of the plan and the changed files of this turn from the store.
    async fn stored_work(&self) -> (Vec<String>, Vec<String>) {
        let log = self.conversation.log();
        let Some(store) = log.store().cloned() else { return Default::default() };
        // The plan and the changes by the last calls may still be on their way into the store.
        log.flush().written().await;
        let session = self.conversation.env.session.clone();
        let roots = self.conversation.env.files.roots().clone();
        let turn = log.turn();
        let reading = store.read(move |connection| {
            let key = read::session_key(connection, &session)?;
            let plan = read::current_plan(connection, key)?;
            let open = plan.into_iter().filter(|step| step.status != PlanStatus::Completed);
            let mut files = Vec::new();
            for version in file_versions::file_versions(connection, key, &[turn])? {
                let path = version.change.path;
                files.push(roots.display_path(&ResolvedPath { path, scope: PathScope::Workspace }));
            }
            files.sort_unstable();
            files.dedup();
            Ok((open.map(|step| step.content).collect(), files))
        });
        reading.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the work of the turn could not be read");
            Default::default()
        })
    }

    /// Counts the changed lines of this turn.
    async fn diff_numbers(&self) -> DiffNumbers {
        if let Some(numbers) = self.kept_work(AnswerKind::Preview) {
            return numbers;
        }
        let log = self.conversation.log();
        let Some(store) = log.store().cloned() else { return DiffNumbers::default() };
        let session = self.conversation.env.session.clone();
        let roots = self.conversation.env.files.roots().clone();
        let scope = ChangeScope::Turn(log.turn());
        let found = store
            .read(move |connection| turn_changes(connection, &session, scope, &roots, DIFF_LIMITS))
            .await;
        let mut numbers = DiffNumbers::default();
        for file in found.map(|changes| changes.files).unwrap_or_default() {
            // The first two lines name the file.
            for line in file.diff.lines().skip(2) {
                numbers.added += usize::from(line.starts_with('+'));
                numbers.removed += usize::from(line.starts_with('-'));
            }
        }
        self.keep_work(AnswerKind::Preview, &numbers);
        numbers
    }

    /// The place of the closing check in the conversation, by which a recording keeps it.
    fn closing_place(&self) -> Value {
        json!({ "messages": self.history.messages.len() })
    }

    /// Returns the answer of the recording in a replay, which changes no files and so cannot see the work.
    fn kept_work<T: DeserializeOwned>(&self, kind: AnswerKind) -> Option<T> {
        let answers = &self.conversation.env.shared.process.outside;
        if answers.answer_source(CLOSING) != AnswerSource::Recording {
            return None;
        }
        let kept = answers.recorded_answer(kind, CLOSING, &self.closing_place())?;
        serde_json::from_value(kept).ok()
    }

    fn keep_work(&self, kind: AnswerKind, answer: &impl Serialize) {
        let answers = &self.conversation.env.shared.process.outside;
        answers.record_answer(kind, CLOSING, &self.closing_place(), &|| json!(answer));
    }

    /// Tells the user once that the plan has open steps. The plan itself stays as it is.
    fn tell_open_steps(&self, steps: &[String]) {
        if !self.conversation.told.tell_open_steps(std_hash(steps)) {
            return;
        }
        let Some(first) = steps.first().map(|step| quoted(step)) else { return };
        self.conversation.notify(match steps.len() {
            1 => format!("The plan has 1 open step: {first}."),
            count => format!("The plan has {count} open steps: {first}, and others."),
        });
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

/// Returns true if the last sentence of an answer is a question. Code at its end does not count.
pub(super) fn ends_with_question(answer: &str) -> bool {
    let mut prose = "";
    let mut is_code = false;
    for line in answer.lines().map(str::trim) {
        if line.starts_with("```") || line.starts_with("~~~") {
            is_code = !is_code;
        } else if !is_code && !line.is_empty() {
            prose = line;
        }
    }
    let closing = ['*', '_', '`', ')', '"', '”', '」', ' '];
    prose.trim_end_matches(closing).ends_with(['?', '？'])
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
        ];
        let tells = ["Done.", "Why? It was wrong.", "", "```\nwhat?\n```", "Done:\n```\nx?"];
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
