//! The closing check of a turn: if its model says that it is done and nothing proves its work, the model is asked once.
//! `next_step` decides; here the facts are gathered and the words are found.

use std::path::PathBuf;

use super::next_step::{Closing, ClosingFacts, ClosingReason, Excuse, WorkDone, closing_step};
use super::proof::ProvingRun;
use super::{Turn, TurnStep};
use turnwright_policy::permission::Mode;
use turnwright_store::{ProofWord, file_versions, read};
use turnwright_types::effect::{PathScope, ResolvedPath, escape_hidden, escape_hidden_line};
use turnwright_types::hash::std_hash;
use turnwright_types::message::{PromptPart, within_context};
use turnwright_types::text;
use turnwright_types::update::PlanStatus;
use turnwright_undo::{ChangeScope, DiffLimits, turn_changes};

/// The most bytes of the user's words that are quoted.
const MAX_QUOTED_BYTES: usize = 400;
/// The most characters of a step or a command line that is quoted.
const MAX_LINE_CHARS: usize = 80;
/// The most files and steps that are named.
const MAX_NAMED: usize = 3;
/// The size of the diff that is counted.
const DIFF_LIMITS: DiffLimits = DiffLimits { file: 256 * 1024, all: 1024 * 1024 };

/// The part of a turn's work that is stored.
#[derive(Debug, Default)]
struct StoredWork {
    /// The steps of the plan that are not completed.
    open_steps: Vec<String>,
    /// The files that the turn has changed, sorted.
    files: Vec<PathBuf>,
}

/// The changes of a turn in numbers.
#[derive(Debug, Default)]
struct DiffNumbers {
    files: usize,
    added: usize,
    removed: usize,
}

impl Turn {
    /// Returns the step with which the model proves its work, if it has to. Otherwise the turn may end, and the user is
    /// told what its plan leaves open.
    pub(super) async fn closing(&mut self) -> Option<TurnStep> {
        let ledger = self.settled_ledger();
        let work = match (ledger.has_changed(), ledger.has_planned()) {
            (true, _) => WorkDone::Files,
            (false, true) => WorkDone::OnlyPlan,
            // A plain answer costs nothing.
            (false, false) => return None,
        };
        let proof = ledger.proof();
        let stored = self.stored_work().await;
        let hash = std_hash((&stored.files, &stored.open_steps, proof as u8));
        let facts = ClosingFacts {
            verify: self.conversation.work.verify,
            work,
            proof,
            open_steps: stored.open_steps.len(),
            has_unrun_check: self.has_unrun_check(),
            is_small: self.conversation.offer().is_small,
            excuse: self.excuse(hash),
        };
        if let Closing::Ask(reason) = closing_step(&facts)
            && self.budget.take_request().is_ok()
        {
            self.conversation.told.set_closing_facts(hash);
            self.ledger.note_closing();
            return Some(self.ask_for_proof(reason, &stored).await);
        }
        let is_over =
            !matches!(facts.excuse, Some(Excuse::Helper | Excuse::Planning | Excuse::Steering));
        if is_over {
            self.tell_open_steps(&stored.open_steps);
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
            (self.ledger.was_closed(), Excuse::Asked),
            (!self.budget.has_request(), Excuse::NoRequestLeft),
            (self.conversation.told.closing_facts() == Some(hash), Excuse::SameFacts),
        ];
        excuses.into_iter().find(|(holds, _)| *holds).map(|(_, excuse)| excuse)
    }

    async fn ask_for_proof(&mut self, reason: ClosingReason, stored: &StoredWork) -> TurnStep {
        let (notice, context) = match reason {
            ClosingReason::Unproven => {
                let numbers = self.diff_numbers(stored.files.len()).await;
                let notice = "Not proven yet: the model is asked once to check its work.";
                (notice, self.proof_request(stored, &numbers))
            }
            ClosingReason::OnlyPlanned => {
                let step = stored.open_steps.first().map_or("", String::as_str);
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
    fn proof_request(&self, stored: &StoredWork, numbers: &DiffNumbers) -> String {
        let mut text = String::from("You say that you are done.");
        let words = self.words_of_user();
        if words.is_empty() {
            text.push('\n');
        } else {
            text.push_str(&format!(" The user asked:\n{words}\n"));
        }
        let names = self.names(&stored.files);
        match numbers.files {
            0 => text.push_str("You changed files."),
            1 => text.push_str(&format!(
                "You changed 1 file (+{} −{}): {names}.",
                numbers.added, numbers.removed
            )),
            files => text.push_str(&format!(
                "You changed {files} files (+{} −{}): {names}.",
                numbers.added, numbers.removed
            )),
        }
        text.push_str(&format!(" {}\n", last_run(self.ledger.last_run())));
        if !stored.open_steps.is_empty() {
            let steps: Vec<_> =
                stored.open_steps.iter().take(MAX_NAMED).map(|step| quoted(step)).collect();
            text.push_str(&format!("Open steps of your plan: {}.\n", steps.join("; ")));
        }
        text.push_str(include_str!("closing/prove.md"));
        text
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

    fn names(&self, files: &[PathBuf]) -> String {
        let roots = self.conversation.env.files.roots();
        let names: Vec<_> = files
            .iter()
            .map(|path| ResolvedPath { path: path.clone(), scope: PathScope::Workspace })
            .map(|path| roots.display_path(&path))
            .collect();
        text::join_first(&names, MAX_NAMED)
    }

    /// Reads the work of this turn from the store.
    async fn stored_work(&self) -> StoredWork {
        let log = self.conversation.log();
        let Some(store) = log.store().cloned() else { return StoredWork::default() };
        // The plan and the changes by the last calls may still be on their way into the store.
        log.flush().written().await;
        let session = self.conversation.env.session.clone();
        let turn = log.turn();
        let reading = store.read(move |connection| {
            let key = read::session_key(connection, &session)?;
            let plan = read::current_plan(connection, key)?;
            let open = plan.into_iter().filter(|step| step.status != PlanStatus::Completed);
            let versions = file_versions::file_versions(connection, key, &[turn])?;
            let mut files: Vec<_> =
                versions.into_iter().map(|version| version.change.path).collect();
            files.sort_unstable();
            files.dedup();
            Ok(StoredWork { open_steps: open.map(|step| step.content).collect(), files })
        });
        reading.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the work of the turn could not be read");
            StoredWork::default()
        })
    }

    /// Counts the changed lines of this turn.
    async fn diff_numbers(&self, files: usize) -> DiffNumbers {
        let log = self.conversation.log();
        let Some(store) = log.store().cloned() else { return DiffNumbers::default() };
        let session = self.conversation.env.session.clone();
        let roots = self.conversation.env.files.roots().clone();
        let scope = ChangeScope::Turn(log.turn());
        let found = store
            .read(move |connection| turn_changes(connection, &session, scope, &roots, DIFF_LIMITS))
            .await;
        let mut numbers = DiffNumbers { files, ..DiffNumbers::default() };
        for file in found.map(|changes| changes.files).unwrap_or_default() {
            // The first two lines name the file.
            for line in file.diff.lines().skip(2) {
                numbers.added += usize::from(line.starts_with('+'));
                numbers.removed += usize::from(line.starts_with('-'));
            }
        }
        numbers
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
fn ends_with_question(answer: &str) -> bool {
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
        let tells = ["Done.", "Why? Because it was wrong.", "", "```\nwhat?\n```", "Done:\n```\nx?"];
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
