//! Undoes and redoes file changes, for `/undo`, `/redo` and the command line: plans the changes,
//! logs them, applies them and reports the result. Asks no question, because the user has typed the
//! command.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::UndoContext;
use crate::apply::{RestoreResult, file_state};
use crate::plan::{
    MAX_KEPT_BYTES, NetChange, UndoAction, UndoHistory, UndoPlan, UndoStep, has_hash,
    is_same_state, net_changes, plan_undo,
};
use crate::report::{UndoReport, one_line_excerpt, short_path, uncovered_turns};
use tokio::task::spawn_blocking;
use turnwright_store::file_versions::{self, UndoableTurn};
use turnwright_store::{
    Audience, CallOutcome, Durability, Entry, Store, StoreError, TurnKind, read,
};
use turnwright_types::bounded_read::read_at_most;
use turnwright_types::effect::{
    CallContent, CallView, FileFate, Location, PathScope, ResolvedPath, ToolKind,
    escape_hidden_line, shorten_title,
};
use turnwright_types::file_change::{ChangeIntent, FileChange, FileState};
use turnwright_types::ids::{CallId, MessageId, SessionId};
use turnwright_types::message::{AssistantMessage, Message, ToolCall};
use turnwright_types::text::join_first;
use turnwright_types::update::{CallUpdate, ToolCallStatus, Update};
use turnwright_workspace::files::Roots;

/// The bytes of file content after which an intent is written.
const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;
/// The most bytes of text that the card's diffs show.
const MAX_SHOWN_BYTES: usize = 512 * 1024;
/// The most files that are named to the model.
const MAX_NAMED_FILES: usize = 20;

/// The request to undo or redo something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoRequest {
    /// Undo this many of the last turns that have changed files.
    Undo(usize),
    /// Undo all turns from this number on.
    Since(u64),
    /// Redo what was undone last.
    Redo,
}

impl UndoContext {
    /// Reads from the store, with the key of the session, once everything of the session is written.
    pub async fn read<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&Connection, i64) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.log.flush().written().await;
        let session = self.session.clone();
        self.store
            .read(move |connection| work(connection, read::session_key(connection, &session)?))
            .await
    }

    /// Plans the changes for a request; `None` if there is nothing to undo. Checks the current
    /// files.
    pub async fn plan(&self, request: UndoRequest) -> Result<Option<UndoPlan>, StoreError> {
        let planning = self.read(move |connection, key| {
            let turns = file_versions::undoable_turns(connection, key)?;
            let Some((about, read)) = select_turns(&turns, request) else { return Ok(None) };
            let folded = net_changes(file_versions::file_versions(connection, key, &read)?);
            let steps =
                plan_undo(folded, file_state, |hash| file_versions::has_blob(connection, hash))?;
            let is_redo = request == UndoRequest::Redo;
            let since = turns.iter().filter(|turn| !is_redo && about.first() <= Some(&turn.number));
            let uncovered = uncovered_turns(since);
            let chosen = turns.iter().filter(|turn| about.contains(&turn.number));
            let turns = chosen.map(|turn| (turn.number, turn.prompt_excerpt.clone())).collect();
            Ok(Some(UndoPlan { turns, is_redo, steps, uncovered }))
        });
        let mut planned = planning.await?;
        for step in planned.iter_mut().flat_map(|plan| &mut plan.steps) {
            self.check_unsaved(step).await;
        }
        Ok(planned)
    }

    /// Lists the turns with commands whose changes are not known.
    pub async fn uncovered(&self) -> Result<String, StoreError> {
        let listing = self.read(|connection, key| {
            let turns = file_versions::undoable_turns(connection, key)?;
            Ok(uncovered_turns(turns.iter()))
        });
        listing.await
    }

    /// Marks a file as a conflict if the editor has unsaved changes to it.
    async fn check_unsaved(&self, step: &mut UndoStep) {
        let is_file = matches!(step.now, FileState::File { .. } | FileState::Absent);
        if step.action != UndoAction::AlreadyRestored || !is_file {
            return;
        }
        let Ok(target) = self.files.resolve(&step.path).await else { return };
        let unsaved = self.files.ensure_no_unsaved(&target).await;
        if unsaved.is_err() {
            step.action = UndoAction::Conflict("it has unsaved changes in the editor".to_owned());
        }
    }

    /// Applies the plan. The intent is logged before and the result after; the client sees a card
    /// meanwhile.
    pub async fn execute(&self, plan: UndoPlan, tell: impl Fn(Update)) -> UndoReport {
        let wanted: Vec<_> = plan.steps.iter().filter_map(RestoreResult::of).collect();
        let numbers: Vec<_> = plan.turns.iter().map(|(number, _)| *number).collect();
        if wanted.is_empty() {
            if plan.steps.iter().all(|step| step.action == UndoAction::AlreadyRestored) {
                self.log.set_target_turns(&numbers).written().await;
            }
            return UndoReport::new(plan, Vec::new());
        }
        let begun = Instant::now();
        let name = if plan.is_redo { "redo" } else { "undo" };
        let id = CallId::from(format!("undo-{}", self.log.turn()));
        let arguments = json!({ "turns": numbers });
        let view = self.view(plan.is_redo, &wanted);
        self.log.add_entry(call_entry(&id, name, arguments.clone()));
        tell(Update::ToolCall {
            id: id.clone(),
            name: name.into(),
            view: view.clone(),
            raw_input: Some(arguments),
            can_cancel: false,
        });
        tell(CallUpdate::new(id.clone(), ToolCallStatus::InProgress).into());
        let diffs = self.log_intent(&id, &wanted).await;
        self.log.set_target_turns(&numbers).written().await;
        let (wanted, unsaved) = self.split_saved(wanted).await;
        let mut outcomes = self.apply(wanted).await;
        outcomes.extend(unsaved);
        let files = self.changes(&outcomes).await;
        let has_changed = files.iter().any(|file| {
            file.after.as_ref().is_some_and(|after| !is_same_state(after, &file.before))
        });
        if !has_changed {
            // Nothing was undone, so it can be tried again.
            self.log.set_target_turns(&[]).written().await;
        }
        let done = diffs.into_iter().filter(|(path, _)| {
            outcomes.iter().any(|outcome| outcome.path == *path && outcome.result.is_ok())
        });
        let mut content: Vec<_> = done.map(|(_, diff)| diff).collect();
        let report = UndoReport::new(plan, outcomes);
        let text = report.text(self.files.roots());
        content.push(CallContent::Text(text.clone()));
        let settled = CallOutcome {
            is_success: report.failed.is_empty(),
            tool: name.to_owned(),
            raw_output: json!({ "result": text }),
            text,
            view: Some(view),
            content,
            duration: Some(begun.elapsed()),
            file_changes: files,
            ..CallOutcome::default()
        };
        self.log.finish_call(&id, settled.clone()).written().await;
        tell(settled.final_update(&id).into());
        report
    }

    /// Logs the intent with the current content of the files. Returns the diffs that the card can
    /// show.
    async fn log_intent(
        &self,
        call: &CallId,
        wanted: &[RestoreResult],
    ) -> Vec<(std::path::PathBuf, CallContent)> {
        let mut diffs = Vec::new();
        let mut room = MAX_SHOWN_BYTES;
        let mut intent = ChangeIntent::default();
        let mut held = 0;
        for restore in wanted {
            let bytes = current_bytes(restore).await;
            diffs.extend(self.diff(restore, bytes.as_deref(), &mut room).await);
            let mut before = restore.was.clone();
            if let FileState::File { is_kept, .. } = &mut before {
                *is_kept = bytes.is_some();
            }
            let after = Some(restore.to.clone());
            intent.files.push(FileChange { path: restore.path.clone(), before, after });
            held += bytes.as_ref().map_or(0, |bytes| bytes.len());
            intent.bytes.extend(bytes);
            if held > MAX_BATCH_BYTES {
                held = 0;
                let intent = std::mem::take(&mut intent);
                self.log.record_intent(call, intent, Durability::ProcessCrash).written().await;
            }
        }
        self.log.record_intent(call, intent, Durability::PowerLoss).written().await;
        diffs
    }

    /// Splits off the files whose current content is not in the store: they could not be redone, so
    /// they are left as they are.
    async fn split_saved(
        &self,
        mut wanted: Vec<RestoreResult>,
    ) -> (Vec<RestoreResult>, Vec<RestoreResult>) {
        for restore in &mut wanted {
            let is_kept = match &restore.was {
                FileState::File { hash, .. } if !has_hash(&restore.to, hash) => {
                    self.has_bytes(hash.clone()).await
                }
                _ => true,
            };
            if !is_kept {
                restore.result =
                    Err("its current content could not be saved, so it was left as it is".into());
            }
        }
        wanted.into_iter().partition(|restore| restore.result.is_ok())
    }

    async fn has_bytes(&self, hash: String) -> bool {
        self.store
            .read(move |connection| file_versions::has_blob(connection, &hash))
            .await
            .unwrap_or(false)
    }

    /// The diff of a text that is short enough to be shown.
    async fn diff(
        &self,
        restore: &RestoreResult,
        now: Option<&[u8]>,
        room: &mut usize,
    ) -> Option<(std::path::PathBuf, CallContent)> {
        let old = match (&restore.was, now) {
            (FileState::Absent, _) => None,
            (_, now) => Some(as_text(now.filter(|bytes| bytes.len() <= *room)?)?),
        };
        let new = match &restore.to {
            FileState::Absent => String::new(),
            FileState::File { hash, size, .. } if *size <= *room as u64 => {
                as_text(&self.bytes(hash.clone()).await.ok()?)?
            }
            _ => return None,
        };
        let is_deleted = restore.to == FileState::Absent;
        let fate = if is_deleted { FileFate::Deleted } else { FileFate::Kept };
        if old.as_ref() == Some(&new) {
            return None;
        }
        *room = room.checked_sub(old.as_ref().map_or(0, String::len) + new.len())?;
        let path = client_path(self.files.roots(), &restore.path);
        Some((restore.path.clone(), CallContent::Diff { path, old, new, fate }))
    }

    /// The actual change of each file.
    async fn changes(&self, outcomes: &[RestoreResult]) -> Vec<FileChange> {
        let mut changes = Vec::new();
        for one in outcomes {
            let path = one.path.clone();
            let mut before = one.was.clone();
            if let FileState::File { hash, is_kept, .. } = &mut before {
                *is_kept = self.has_bytes(hash.clone()).await;
            }
            let after = if one.result.is_ok() {
                one.to.clone()
            } else {
                let at = path.clone();
                let looked = spawn_blocking(move || file_state(&at)).await;
                looked.unwrap_or_else(|error| FileState::Unknown { why: error.to_string() })
            };
            changes.push(FileChange { path, before, after: Some(after) });
        }
        changes
    }

    /// The card of the undo.
    fn view(&self, is_redo: bool, wanted: &[RestoreResult]) -> CallView {
        let verb = if is_redo { "Redo" } else { "Undo" };
        let roots = self.files.roots();
        let title = match wanted {
            [one] => format!("{verb} {}", short_path(roots, &one.path)),
            all => format!("{verb} {} files", all.len()),
        };
        let locations = wanted
            .iter()
            .take(MAX_NAMED_FILES)
            .map(|restore| Location { path: client_path(roots, &restore.path), line: None })
            .collect();
        CallView { title: shorten_title(title), kind: ToolKind::Edit, locations }
    }
}

/// The log entry of a card's call: an answer that the model does not get.
fn call_entry(call: &CallId, name: &str, arguments: Value) -> Entry {
    let id = MessageId::from(call.as_str());
    let call = ToolCall::new(call.clone(), call.to_string(), name, arguments);
    let answer = AssistantMessage::new(id.clone(), "", vec![call]);
    let message = Arc::new(Message::Assistant(answer));
    Entry::Message { id, message, audience: Audience::User }
}

/// The turns that a request is about, and the turns whose changes are to be reverted.
fn select_turns(turns: &[UndoableTurn], request: UndoRequest) -> Option<(Vec<u64>, Vec<u64>)> {
    let mut history = UndoHistory::from_turns(turns);
    let chosen: Vec<u64> = match request {
        UndoRequest::Undo(count) => history.last_undoable(count).to_vec(),
        UndoRequest::Since(first) => {
            history.undoable.iter().copied().filter(|number| *number >= first).collect()
        }
        UndoRequest::Redo => {
            let undone = history.undone.pop()?;
            return Some((undone.turns, undone.undo_turns));
        }
    };
    (!chosen.is_empty()).then(|| (chosen.clone(), chosen))
}

fn as_text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).map(str::to_owned).ok()
}

/// The current content of a file that will be replaced, if it is readable and not too long.
async fn current_bytes(restore: &RestoreResult) -> Option<Arc<[u8]>> {
    let path = restore.path.clone();
    if !matches!(restore.was, FileState::File { size, .. } if size <= MAX_KEPT_BYTES) {
        return None;
    }
    let read = spawn_blocking(move || {
        let file = turnwright_workspace::nofollow::open_file(&path).ok()?;
        read_at_most(file, MAX_KEPT_BYTES).ok()?.map(Arc::from)
    });
    read.await.ok().flatten()
}

/// The path as the client knows it.
fn client_path(roots: &Roots, path: &Path) -> std::path::PathBuf {
    roots.client_path(&ResolvedPath { path: path.to_path_buf(), scope: PathScope::Workspace })
}

/// The text that tells the model what the user has undone since the last prompt. Derived from the store, so it is
/// the same after a restart.
pub async fn undo_news(store: &Store, session: &SessionId) -> Option<String> {
    let session = session.clone();
    let found = store.read(move |connection| {
        let key = read::session_key(connection, &session)?;
        let turns = file_versions::undoable_turns(connection, key)?;
        let mut between_prompts = turns.rsplit(|turn| turn.kind == TurnKind::Prompt);
        let latest = between_prompts.next().unwrap_or_default();
        let mut text = String::new();
        for turn in latest.iter().filter(|turn| !turn.target_turns.is_empty()) {
            let changed =
                net_changes(file_versions::file_versions(connection, key, &[turn.number])?);
            text.push_str(&turn_line(turn, &turns, &changed));
        }
        Ok((!text.is_empty()).then_some(text))
    });
    found.await.ok().flatten()
}

fn turn_line(turn: &UndoableTurn, turns: &[UndoableTurn], changed: &[NetChange]) -> String {
    let words: Vec<_> = turns
        .iter()
        .filter(|other| turn.target_turns.contains(&other.number))
        .map(|other| format!("{} ({})", other.number, one_line_excerpt(&other.prompt_excerpt)))
        .collect();
    let verb = if turn.kind == TurnKind::Redo { "has redone" } else { "undid" };
    let plural = if words.len() == 1 { "" } else { "s" };
    let paths = changed.iter().map(|change| change.path.to_string_lossy());
    let names: Vec<_> = paths.map(|path| escape_hidden_line(&path)).collect();
    let files =
        if names.is_empty() { "none".to_owned() } else { join_first(&names, MAX_NAMED_FILES) };
    let words = words.join(", ");
    format!("The user {verb} turn{plural} {words}: files changed: {files}\n")
}
