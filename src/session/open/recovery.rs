//! Recovers the work that was in progress when the process ended: checks its files once, reports
//! truthfully and stores the result. Also finds out which commands and helpers were running then. Nothing is run
//! again.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::task::spawn_blocking;

use crate::tools::AGENT_TOOL;
use crate::turn::{self, Conversation};
use turnwright_store::recovery::{AnswerDraft, Repairs, UnfinishedWork, find_unfinished};
use turnwright_store::{
    Audience, CallOutcome, CallRow, CallStatus, Entry, Store, StoreError, StoredEntry, read,
};
use turnwright_types::effect::{CallContent, CallView, Effect, ToolKind, escape_hidden_line};
use turnwright_types::file_change::{FileChange, FileState};
use turnwright_types::ids::MessageId;
use turnwright_types::message::{Arguments, AssistantMessage, Message, ProviderState};
use turnwright_types::refusal::ToolRefusal;
use turnwright_undo::is_same_file;
use turnwright_workspace::checkpoint::current_state;
use turnwright_workspace::files::remove_left_files;

/// The identifiers that an interrupted turn may have used without a trace.
const SKIPPED_IDS: u64 = 10_000;

const NEVER_RAN: &str = "The agent ended before this was run. Nothing was done.";
const OUTCOME_UNKNOWN: &str = "The agent ended while this was running, so what has come of it is unknown: it \
                       may have run partly or whole. Look before you repeat it.";
const FILES_CHECKED: &str = "The agent ended while this was running, and the turn did not go on. Its \
                         files were looked at afterwards.";
const INTERRUPTED: &str = "This turn was interrupted: the agent ended in the middle of it.";
/// The words behind the names in a line that tells of an end.
const ENDS: [&str; 4] = [" ended", " is done]", " has failed]", " has crashed"];

/// Completes the records of work that an earlier process left unfinished. Returns the highest number that
/// an identifier uses, and whether a turn was interrupted.
pub(super) async fn recover(
    store: &Store,
    conversation: &Conversation,
) -> Result<(u64, bool), StoreError> {
    let id = conversation.env.session.clone();
    let finding = store
        .read(move |connection| find_unfinished(connection, read::session_key(connection, &id)?));
    let unfinished = finding.await?;
    let log = conversation.log();
    log.resume_after(unfinished.last_numbers);
    if unfinished.is_empty() {
        return Ok((unfinished.last_id_number, false));
    }
    let own_conversation = conversation.clone();
    let repairing = spawn_blocking(move || plan_repairs(unfinished, &own_conversation));
    let repairs = repairing.await.map_err(|_| StoreError::Closed)?;
    let minted = repairs.last_id_number;
    let is_interrupted = !repairs.turns.is_empty();
    log.apply_repairs(repairs).written().await;
    Ok((minted, is_interrupted))
}

/// The entries and outcomes to write.
fn plan_repairs(unfinished: UnfinishedWork, conversation: &Conversation) -> Repairs {
    let UnfinishedWork { calls, drafts, turns, last_id_number: minted, .. } = unfinished;
    let mut repairs = Repairs { last_id_number: minted, ..Repairs::default() };
    if !turns.is_empty() {
        repairs.last_id_number += SKIPPED_IDS;
    }
    for (row, files) in calls {
        remove_left_files(files.iter().map(|file| file.path.as_path()));
        let (view, is_edit) = card_view(&row, conversation);
        let is_checkable = is_edit && row.status == CallStatus::Running;
        let checked = files.iter().filter(|_| is_checkable);
        let now = checked.map(|file| current_state(&file.path)).collect();
        repairs.calls.push((
            row.call.clone(),
            row.turn,
            interrupted_call(&row, files, now, is_edit, view),
        ));
    }
    let drafted: Vec<_> = drafts.iter().map(|draft| draft.turn).collect();
    repairs.entries.extend(drafts.into_iter().map(interrupted_answer));
    for (turn, has_entries) in turns {
        repairs.turns.push(turn);
        if has_entries || drafted.contains(&turn) {
            repairs.last_id_number += 1;
            let id = MessageId::from(format!("msg-{}", repairs.last_id_number));
            let note = Entry::Note { id, text: INTERRUPTED.to_owned() };
            let seq = conversation.log().reserve_seq();
            repairs.entries.push((seq, turn, SystemTime::now(), note));
        }
    }
    repairs
}

/// The entry of an answer that was being received.
fn interrupted_answer(draft: AnswerDraft) -> (u64, u64, SystemTime, Entry) {
    let AnswerDraft { seq, turn, at, id, reasoning: thought, text } = draft;
    let audience = if text.is_empty() { Audience::User } else { Audience::Both };
    let message = Arc::new(Message::Assistant(AssistantMessage {
        id: id.clone(),
        text,
        thought,
        calls: Vec::new(),
        interrupted: true,
        provider_state: ProviderState::default(),
    }));
    (seq, turn, at, Entry::Message { id, message, audience })
}

/// The view of a call's card, if it had one, and whether the call could only touch files.
fn card_view(row: &CallRow, conversation: &Conversation) -> (Option<CallView>, bool) {
    let Ok(tool) = conversation.tools.find(&row.tool) else {
        let title = escape_hidden_line(&row.tool);
        return (Some(CallView::new(title, ToolKind::Other)), false);
    };
    let first = tool.pending_view();
    let Arguments::Object(arguments) = row.arguments.clone() else { return (first, false) };
    // A panic in a tool must not lose the conversation.
    let looking = AssertUnwindSafe(|| {
        let mut prepared = tool.prepare(arguments).ok()?;
        let plan = prepared.plan(&conversation.env);
        let is_edit = plan.effects.iter().all(|effect| {
            matches!(
                effect,
                Effect::Read(_) | Effect::Write(_) | Effect::Delete(_) | Effect::SessionState
            )
        });
        Some((plan.view, is_edit))
    });
    match std::panic::catch_unwind(looking).ok().flatten() {
        Some((view, is_edit)) => (first.map(|_| view), is_edit),
        None => (first, false),
    }
}

/// The outcome of a call without a result. `now` is the current state of each of its files.
fn interrupted_call(
    row: &CallRow,
    files: Vec<FileChange>,
    now: Vec<FileState>,
    is_edit: bool,
    view: Option<CallView>,
) -> CallOutcome {
    if row.status != CallStatus::Running {
        return turn::not_run(&row.tool, view.as_ref(), NEVER_RAN.into());
    }
    if !is_edit || files.is_empty() {
        return CallOutcome {
            file_changes: files,
            ..turn::not_run(&row.tool, view.as_ref(), OUTCOME_UNKNOWN.into())
        };
    }
    let mut text = FILES_CHECKED.to_owned();
    let mut known = Vec::new();
    let mut ok = true;
    for (mut change, now) in files.into_iter().zip(now) {
        let found = file_outcome(&change, &now);
        text.push_str(&format!("\n{}: {}", change.path.display(), found.description()));
        ok &= found == FileOutcome::Applied;
        if found == FileOutcome::NotApplied {
            change.after = Some(change.before.clone());
        }
        known.push(change);
    }
    if !ok {
        let why = ToolRefusal::new(text.clone(), text);
        let outcome = turn::not_run(&row.tool, view.as_ref(), why);
        return CallOutcome { file_changes: known, ..outcome };
    }
    CallOutcome {
        is_success: true,
        tool: row.tool.clone(),
        content: vec![CallContent::Text(text.clone())],
        text,
        view,
        raw_output: serde_json::json!({ "applied": known.len() }),
        file_changes: known,
        ..CallOutcome::default()
    }
}

/// The state of the change to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileOutcome {
    Applied,
    NotApplied,
    Changed,
    Unreadable,
}

impl FileOutcome {
    fn description(self) -> &'static str {
        match self {
            FileOutcome::Applied => "applied. It is what this call was going to make of it.",
            FileOutcome::NotApplied => "not applied. It is as it was before this call.",
            FileOutcome::Changed => {
                "changed. It is neither what it was before nor what it was going to be: look at it."
            }
            FileOutcome::Unreadable => {
                "unknown. It cannot be read now: look at it before you go on."
            }
        }
    }
}

fn file_outcome(change: &FileChange, now: &FileState) -> FileOutcome {
    let FileChange { before, after, .. } = change;
    // If only the file mode was to change, the mode decides.
    let compares_mode = after.as_ref().is_some_and(|after| is_same_file(after, before, false));
    if matches!(now, FileState::Unknown { .. }) {
        FileOutcome::Unreadable
    } else if after.as_ref().is_some_and(|after| is_same_file(after, now, compares_mode)) {
        FileOutcome::Applied
    } else if is_same_file(before, now, compares_mode) {
        FileOutcome::NotApplied
    } else {
        FileOutcome::Changed
    }
}

/// The names of the commands and helpers that the model believes to be running.
#[derive(Debug, Default)]
pub(super) struct RunningWork(Vec<String>);

impl RunningWork {
    /// Adds what an entry has started, and removes what the model was told to have ended.
    pub(super) fn note(&mut self, stored: &StoredEntry) {
        if let Entry::Message { message, .. } = &stored.entry {
            for text in turn::context_parts(message) {
                self.remove_ended(text);
            }
        }
        for row in &stored.calls {
            let raw = &row.outcome.raw_output;
            let helper = raw["id"].as_str().filter(|_| row.tool == AGENT_TOOL);
            if let Some(helper) = helper {
                self.0.push(format!("helper {helper}"));
            } else if let Some(job) = raw["job"].as_str() {
                self.0.retain(|running| running != job);
                if raw["ended"].as_str().is_some_and(|ended| ended.contains("running")) {
                    self.0.push(job.to_owned());
                }
            }
            self.remove_ended(&row.outcome.text);
        }
    }

    /// Removes what a line such as `[p1, helper h3 (explore: look) ended …]` names.
    fn remove_ended(&mut self, text: &str) {
        for line in text.lines() {
            let Some(told) = line.strip_prefix('[') else { continue };
            let Some(end) = ENDS.iter().filter_map(|end| told.find(end)).min() else { continue };
            for part in told[..end].split(", ") {
                let name = part.split(" (").next().unwrap_or(part);
                self.0.retain(|running| running != name);
            }
        }
    }

    /// The line for the model; `None` if nothing was running.
    pub(super) fn end_line(&self) -> Option<String> {
        let names = self.0.join(", ");
        (!names.is_empty()).then(|| {
            format!("[{names} ended with the session when the agent closed it or ended]\n")
        })
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets its files up")]
mod tests {
    use super::*;

    fn row(status: CallStatus) -> CallRow {
        let asked = SystemTime::now();
        CallRow {
            call: "call-1".into(),
            turn: 1,
            tool: "write_file".to_owned(),
            arguments: Arguments::default(),
            status,
            outcome: CallOutcome::default(),
            started_at: None,
            requested_at: asked,
            ended_at: None,
        }
    }

    #[test]
    fn the_outcome_of_a_call_is_derived_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let base = turnwright_workspace::real_path(folder.path()).unwrap();
        let at = |name: &str, content: &str| {
            let path = base.join(name);
            std::fs::write(&path, content).unwrap();
            current_state(&path)
        };
        let old = at("old", "1");
        let new = at("new", "2");
        let gone = FileState::Absent;
        let pipe = FileState::Unknown { why: "a pipe".to_owned() };
        let table = [
            (&old, Some(&new), &new, "applied", true),
            (&old, Some(&new), &old, "not applied", false),
            (&old, Some(&new), &gone, "changed", false),
            (&old, Some(&gone), &gone, "applied", true),
            (&gone, Some(&new), &gone, "not applied", false),
            (&old, None, &old, "not applied", false),
            (&old, None, &new, "changed", false),
            (&old, Some(&new), &pipe, "unknown", false),
        ];
        for (before, after, now, word, ok) in table {
            let before = before.clone();
            let after = after.cloned();
            let change = FileChange { path: "/w/a".into(), before, after };
            let row = row(CallStatus::Running);
            let settled = interrupted_call(&row, vec![change], vec![now.clone()], true, None);
            let line = settled.text.lines().last().unwrap().to_owned();
            assert!(line.starts_with(&format!("/w/a: {word}.")), "{line} {word}");
            assert_eq!(settled.is_success, ok, "{word}");
        }
        let text =
            |status, is_edit| interrupted_call(&row(status), vec![], vec![], is_edit, None).text;
        assert_eq!(text(CallStatus::Pending, true), NEVER_RAN);
        assert_eq!(text(CallStatus::Running, true), OUTCOME_UNKNOWN);
        assert_eq!(text(CallStatus::Running, false), OUTCOME_UNKNOWN);
    }

    #[test]
    fn a_change_of_the_mode_alone_is_detected() {
        let file = |mode| FileState::File { hash: "h".to_owned(), size: 1, mode, is_kept: false };
        let change = FileChange { path: "a".into(), before: file(0o644), after: Some(file(0o755)) };
        assert_eq!(file_outcome(&change, &file(0o755)), FileOutcome::Applied);
        assert_eq!(file_outcome(&change, &file(0o644)), FileOutcome::NotApplied);
    }

    #[test]
    fn what_the_model_was_told_to_have_ended_is_not_running() {
        for (told, expected) in [
            ("", "[p1, p12, helper h3 ended"),
            ("[p1 ended: exit 0; exec_output id=p1 has its output]\n", "[p12, helper h3 ended"),
            ("text\n[helper h3 (explore: look) is done]\nFound.", "[p1, p12 ended"),
            ("[helper h3 (explore: look) has failed] It is full.", "[p1, p12 ended"),
            ("[p1 running for 2.0 s]\np12 has ended", "[p1, p12, helper h3 ended"),
            ("[INFO] p1 has ended\n[step p12 ended]\n[h3 ended]", "[p1, p12, helper h3 ended"),
            ("[helper h3 (explore: p1, p12) is done]\nFound.", "[p1, p12 ended"),
            ("[helper h33 (explore: h3) is done]\nFound.", "[p1, p12, helper h3 ended"),
        ] {
            let mut work = RunningWork(["p1", "p12", "helper h3"].map(str::to_owned).to_vec());
            work.remove_ended(told);
            let line = work.end_line().unwrap();
            assert!(line.starts_with(expected), "{told}: {line}");
            work.remove_ended(&line);
            assert_eq!(work.end_line(), None, "{line}");
        }
    }
}
