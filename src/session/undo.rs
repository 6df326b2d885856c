//! Undoes and redoes file changes, for `/undo`, `/redo` and the command line: plans the changes,
//! logs them, applies them and reports the result. Asks no question, because the user has typed the
//! command.

use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rusqlite::Connection;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::undo_report::{self, UndoReport};
use crate::turn;
use crate::undo::{
    MAX_KEPT_BYTES, RestoreResult, UndoAction, UndoHistory, UndoStep, apply, file_state,
    is_same_state, net_changes, plan_undo,
};
use tokio::task::spawn_blocking;
use turnwright_store::file_versions::{self, UndoableTurn};
use turnwright_store::{
    Audience, CallOutcome, Durability, Entry, SessionLog, Store, StoreError, TurnKind, read,
};
use turnwright_types::effect::{
    CallContent, CallView, FileFate, Location, PathScope, ResolvedPath, ToolKind,
    escape_hidden_line, shorten_title,
};
use turnwright_types::file_change::{ChangeIntent, FileChange, FileState};
use turnwright_types::ids::{CallId, MessageId, SessionId};
use turnwright_types::message::{AssistantMessage, Message, ToolCall};
use turnwright_types::text;
use turnwright_types::update::{CallUpdate, ToolCallStatus, Update};
use turnwright_workspace::files::{Files, Roots};

/// The bytes of file content after which an intent is written.
const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;
/// The most bytes of text that the card's diffs show.
const MAX_SHOWN_BYTES: usize = 512 * 1024;
/// The most files that are named to the model.
const MAX_NAMED_FILES: usize = 20;

/// What is to be undone or redone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UndoRequest {
    /// Undo the last so many turns that have changed files.
    Undo(usize),
    /// Undo all turns from this number on.
    Since(u64),
    /// Redo what was undone last.
    Redo,
}

/// What an undo works with.
#[derive(Clone, Debug)]
pub(crate) struct UndoContext {
    pub store: Store,
    /// The session's log, in which the turn has begun.
    pub log: SessionLog,
    pub files: Files,
    pub session: SessionId,
    /// Stops the undo between two files.
    pub cancel: CancellationToken,
}

/// The planned changes of an undo or redo.
#[derive(Clone, Debug)]
pub(crate) struct UndoPlan {
    /// The turns concerned, each with the beginning of its prompt.
    pub turns: Vec<(u64, String)>,
    /// Whether the turns are redone.
    pub is_redo: bool,
    /// What is to be done with each file.
    pub steps: Vec<UndoStep>,
    /// The list, for people, of those turns since the first of these that have commands whose changes are
    /// not known.
    pub uncovered: String,
}

impl UndoContext {
    /// Reads from the store, with the key of the session, once everything of the session is written.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&Connection, i64) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.log.flush().written().await;
        let session = self.session.clone();
        self.store.read(move |it| work(it, read::session_key(it, &session)?)).await
    }

    /// Plans the changes for a request; `None` if there is nothing to undo. Checks the current
    /// files.
    pub(crate) async fn plan(&self, request: UndoRequest) -> Result<Option<UndoPlan>, StoreError> {
        let look = move |connection: &Connection, key| {
            let turns = file_versions::undoable_turns(connection, key)?;
            let Some((about, read)) = select_turns(&turns, request) else { return Ok(None) };
            let folded = net_changes(&file_versions::file_versions(connection, key, &read)?);
            let steps =
                plan_undo(folded, file_state, |it| file_versions::has_blob(connection, it))?;
            let is_redo = request == UndoRequest::Redo;
            let since = turns.iter().filter(|it| !is_redo && about.first() <= Some(&it.number));
            let uncovered = undo_report::uncovered_turns(since);
            let words = turns.iter().filter(|it| about.contains(&it.number));
            let turns = words.map(|it| (it.number, it.prompt_excerpt.clone())).collect();
            Ok(Some(UndoPlan { turns, is_redo, steps, uncovered }))
        };
        let mut planned = self.read(look).await?;
        for step in planned.iter_mut().flat_map(|it| &mut it.steps) {
            self.check_unsaved(step).await;
        }
        Ok(planned)
    }

    /// Lists the turns with commands whose changes are not known.
    pub(crate) async fn uncovered(&self) -> Result<String, StoreError> {
        let look = |connection: &Connection, key| {
            let turns = file_versions::undoable_turns(connection, key)?;
            Ok(undo_report::uncovered_turns(turns.iter()))
        };
        self.read(look).await
    }

    /// Marks a file as a conflict if the editor has unsaved changes of it.
    async fn check_unsaved(&self, step: &mut UndoStep) {
        let is_file = matches!(step.now, FileState::File { .. } | FileState::Absent);
        if step.action != UndoAction::AlreadyRestored || !is_file {
            return;
        }
        let Ok(target) = self.files.resolve(&step.path).await else { return };
        let unsaved = self.files.ensure_no_unsaved(&target).await;
        if unsaved.is_err() {
            let why = "it has unsaved changes in the editor".to_owned();
            step.action = UndoAction::Conflict { why };
        }
    }

    /// Applies the plan. The intent is logged before and the result after; the client sees a card
    /// meanwhile.
    pub(crate) async fn execute(&self, plan: UndoPlan, tell: impl Fn(Update)) -> UndoReport {
        let to_restore = |it: &&UndoStep| matches!(it.action, UndoAction::Restore { .. });
        let wanted: Vec<_> = plan.steps.iter().filter(to_restore).cloned().collect();
        let numbers: Vec<_> = plan.turns.iter().map(|it| it.0).collect();
        if wanted.is_empty() {
            let has_nothing_left =
                plan.steps.iter().all(|it| it.action == UndoAction::AlreadyRestored);
            if has_nothing_left {
                self.log.set_target_turns(&numbers).written().await;
            }
            return UndoReport::new(plan, Vec::new());
        }
        let (begun, card) = (Instant::now(), self.card(&plan, &wanted));
        self.log.add_entry(card.entry());
        tell(Update::ToolCall {
            id: card.id.clone(),
            name: card.name.into(),
            view: card.view.clone(),
            raw_input: Some(card.arguments.clone()),
            can_cancel: false,
        });
        let under_way = CallUpdate::new(card.id.clone(), ToolCallStatus::InProgress);
        tell(Update::CallUpdate(Box::new(under_way)));
        let diffs = self.log_intent(&card.id, &wanted).await;
        self.log.set_target_turns(&numbers).written().await;
        let (wanted, unsaved) = self.split_saved(wanted).await;
        let mut outcomes = apply(&self.files, &self.store, &wanted, &self.cancel).await;
        outcomes.extend(unsaved);
        let files = self.changes(&outcomes).await;
        let is_changed = |it: &FileChange| {
            it.after.as_ref().is_some_and(|after| !is_same_state(after, &it.before))
        };
        if !files.iter().any(is_changed) {
            // Nothing was undone, so it can be tried again.
            self.log.set_target_turns(&[]).written().await;
        }
        let is_done = |it: &Path| outcomes.iter().any(|of| of.path == it && of.result.is_ok());
        let mut content: Vec<_> =
            diffs.into_iter().filter(|it| is_done(&it.0)).map(|it| it.1).collect();
        let report = UndoReport::new(plan, outcomes);
        let text = report.text(self.files.roots());
        content.push(CallContent::Text(text.clone()));
        let settled = CallOutcome {
            is_success: report.failed.is_empty(),
            tool: card.name.to_owned(),
            raw_output: json!({ "result": text }),
            text,
            view: Some(card.view),
            content,
            duration: Some(begun.elapsed()),
            file_changes: files,
            ..CallOutcome::default()
        };
        self.log.finish_call(&card.id, settled.clone()).written().await;
        tell(Update::CallUpdate(Box::new(turn::final_update(&card.id, &settled))));
        report
    }

    /// Logs the intent with the current content of the files. Returns the diffs that the card can
    /// show.
    async fn log_intent(
        &self,
        call: &CallId,
        steps: &[UndoStep],
    ) -> Vec<(std::path::PathBuf, CallContent)> {
        let (mut diffs, mut room) = (Vec::new(), MAX_SHOWN_BYTES);
        let (mut intent, mut held) = (ChangeIntent::default(), 0);
        for step in steps {
            let UndoAction::Restore { to } = &step.action else { continue };
            let bytes = current_bytes(step).await;
            diffs.extend(self.diff(step, to, bytes.as_deref(), &mut room).await);
            let mut before = step.now.clone();
            if let FileState::File { is_kept, .. } = &mut before {
                *is_kept = bytes.is_some();
            }
            let after = Some(to.clone());
            intent.files.push(FileChange { path: step.path.clone(), before, after });
            held += bytes.as_ref().map_or(0, |it| it.len());
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

    /// Splits off the steps whose current content is not in the store: they could not be redone, so
    /// these files are left as they are.
    async fn split_saved(&self, wanted: Vec<UndoStep>) -> (Vec<UndoStep>, Vec<RestoreResult>) {
        let (mut safe, mut unsaved) = (Vec::new(), Vec::new());
        for step in wanted {
            let UndoAction::Restore { to } = &step.action else { continue };
            let is_kept = match (&step.now, to) {
                (FileState::File { hash, .. }, FileState::File { hash: other, .. })
                    if hash == other =>
                {
                    true
                }
                (FileState::File { hash, .. }, _) => self.has_bytes(hash.clone()).await,
                _ => true,
            };
            if is_kept {
                safe.push(step);
                continue;
            }
            let result =
                Err("its current content could not be saved, so it was left as it is".into());
            let to = to.clone();
            unsaved.push(RestoreResult { path: step.path, was: step.now, to, result });
        }
        (safe, unsaved)
    }

    async fn has_bytes(&self, hash: String) -> bool {
        self.store.read(move |it| file_versions::has_blob(it, &hash)).await.unwrap_or(false)
    }

    /// The diff of a text that is short enough to be shown.
    async fn diff(
        &self,
        step: &UndoStep,
        to: &FileState,
        now: Option<&[u8]>,
        room: &mut usize,
    ) -> Option<(std::path::PathBuf, CallContent)> {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).ok();
        let old = match (&step.now, now) {
            (FileState::Absent, _) => None,
            (_, now) => Some(text(now.filter(|it| it.len() <= *room)?)?),
        };
        let new = match to {
            FileState::Absent => String::new(),
            FileState::File { hash, size, .. } if *size <= *room as u64 => {
                let hash = hash.clone();
                let found =
                    self.store.read(move |connection| read::blob_by_hash(connection, &hash)).await;
                text(&found.ok()??)?
            }
            _ => return None,
        };
        let fate = match to {
            FileState::Absent => FileFate::Deleted,
            _ => FileFate::Kept,
        };
        if old.as_ref() == Some(&new) {
            return None;
        }
        *room = room.checked_sub(old.as_ref().map_or(0, String::len) + new.len())?;
        let path = client_path(self.files.roots(), &step.path);
        Some((step.path.clone(), CallContent::Diff { path, old, new, fate }))
    }

    /// The actual change of each file.
    async fn changes(&self, outcomes: &[RestoreResult]) -> Vec<FileChange> {
        let mut changes = Vec::new();
        for one in outcomes {
            let (path, mut before) = (one.path.clone(), one.was.clone());
            let kept = match &before {
                FileState::File { hash, .. } => self.has_bytes(hash.clone()).await,
                _ => false,
            };
            if let FileState::File { is_kept, .. } = &mut before {
                *is_kept = kept;
            }
            let after = if one.result.is_ok() {
                one.to.clone()
            } else {
                let at = path.clone();
                let looked = spawn_blocking(move || file_state(&at)).await;
                looked.unwrap_or_else(|it| FileState::Unknown { why: it.to_string() })
            };
            changes.push(FileChange { path, before, after: Some(after) });
        }
        changes
    }

    fn card(&self, plan: &UndoPlan, wanted: &[UndoStep]) -> UndoCard {
        let name = if plan.is_redo { "redo" } else { "undo" };
        let numbers: Vec<_> = plan.turns.iter().map(|it| it.0).collect();
        let (verb, roots) = (if plan.is_redo { "Redo" } else { "Undo" }, self.files.roots());
        let title = match wanted {
            [one] => format!("{verb} {}", short_path(roots, &one.path)),
            all => format!("{verb} {} files", all.len()),
        };
        let locations = wanted.iter().take(MAX_NAMED_FILES);
        let locations = locations
            .map(|it| Location { path: client_path(roots, &it.path), line: None })
            .collect();
        UndoCard {
            id: CallId::from(format!("undo-{}", self.log.turn())),
            name,
            arguments: json!({ "turns": numbers }),
            view: CallView { title: shorten_title(title), kind: ToolKind::Edit, locations },
        }
    }
}

struct UndoCard {
    id: CallId,
    name: &'static str,
    arguments: Value,
    view: CallView,
}

impl UndoCard {
    /// The log entry of the card's call: an answer that the model does not get.
    fn entry(&self) -> Entry {
        let id = MessageId::from(self.id.as_str());
        let call =
            ToolCall::new(self.id.clone(), self.id.to_string(), self.name, self.arguments.clone());
        let message = AssistantMessage::new(id.clone(), "", vec![call]);
        let message = Arc::new(Message::Assistant(message));
        Entry::Message { id, message, audience: Audience::User }
    }
}

/// The turns that a request is about, and the turns whose changes are to be reverted.
fn select_turns(turns: &[UndoableTurn], request: UndoRequest) -> Option<(Vec<u64>, Vec<u64>)> {
    let mut history = UndoHistory::from_turns(turns);
    let chosen: Vec<u64> = match request {
        UndoRequest::Undo(count) => history.last_undoable(count).to_vec(),
        UndoRequest::Since(first) => {
            history.undoable.iter().copied().filter(|it| *it >= first).collect()
        }
        UndoRequest::Redo => {
            let undone = history.undone.pop()?;
            return Some((undone.turns, undone.undo_turns));
        }
    };
    (!chosen.is_empty()).then(|| (chosen.clone(), chosen))
}

/// The current content of a file that will be replaced, if it is readable and not too long.
async fn current_bytes(step: &UndoStep) -> Option<Arc<[u8]>> {
    let path = step.path.clone();
    match &step.now {
        FileState::File { size, .. } if *size <= MAX_KEPT_BYTES => {}
        _ => return None,
    }
    let read = spawn_blocking(move || {
        use std::io::Read;
        let mut bytes = Vec::new();
        let file = turnwright_workspace::nofollow::open_file(&path).ok()?;
        file.take(MAX_KEPT_BYTES + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= MAX_KEPT_BYTES).then(|| Arc::from(bytes))
    });
    read.await.ok().flatten()
}

/// The path as the user sees it.
pub(super) fn short_path(roots: &Roots, path: &Path) -> String {
    roots.display_path(&ResolvedPath { path: path.to_path_buf(), scope: PathScope::Workspace })
}

/// The path as the client knows it.
fn client_path(roots: &Roots, path: &Path) -> std::path::PathBuf {
    roots.client_path(&ResolvedPath { path: path.to_path_buf(), scope: PathScope::Workspace })
}

/// Text about undone turns for the model: set by the commands, taken by the next prompt.
// Held only to move a text.
#[derive(Clone, Debug, Default)]
pub(super) struct UndoNews(Arc<Mutex<Option<String>>>);

impl UndoNews {
    pub(super) fn set(&self, news: Option<String>) {
        *self.0.lock() = news;
    }

    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().take()
    }
}

/// What the user has undone since the last prompt, for the model. Derived from the store, so it is
/// the same after a restart.
pub(super) async fn undo_news(store: &Store, session: &SessionId) -> Option<String> {
    let session = session.clone();
    let found = store.read(move |connection| {
        let key = read::session_key(connection, &session)?;
        let turns = file_versions::undoable_turns(connection, key)?;
        let last = turns.iter().rposition(|it| it.kind == TurnKind::Prompt).map_or(0, |it| it + 1);
        let mut text = String::new();
        for turn in turns[last..].iter().filter(|it| !it.target_turns.is_empty()) {
            let changed =
                net_changes(&file_versions::file_versions(connection, key, &[turn.number])?);
            let names: Vec<_> = changed.iter().map(|it| it.path.to_string_lossy()).collect();
            text.push_str(&turn_line(turn, &turns, &names));
        }
        Ok((!text.is_empty()).then_some(text))
    });
    found.await.ok().flatten()
}

fn turn_line(
    turn: &UndoableTurn,
    turns: &[UndoableTurn],
    names: &[std::borrow::Cow<'_, str>],
) -> String {
    let words = turns.iter().filter(|it| turn.target_turns.contains(&it.number));
    let words: Vec<_> = words
        .map(|it| format!("{} ({})", it.number, one_line_excerpt(&it.prompt_excerpt)))
        .collect();
    let mut files: Vec<_> =
        names.iter().take(MAX_NAMED_FILES).map(|it| escape_hidden_line(it)).collect();
    if names.len() > MAX_NAMED_FILES {
        files.push(format!("{} more", names.len() - MAX_NAMED_FILES));
    }
    let verb = if turn.kind == TurnKind::Redo { "has redone" } else { "undid" };
    let plural = if words.len() == 1 { "" } else { "s" };
    let files = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
    let words = words.join(", ");
    format!("The user {verb} turn{plural} {words}: files changed: {files}\n")
}

/// The beginning of a prompt as one line.
pub(super) fn one_line_excerpt(words: &str) -> String {
    text::clip(escape_hidden_line(&text::one_line(words)), 60)
}
