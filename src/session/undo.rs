//! `/undo`, `/redo`: what is to go back is looked up, written down, done, and told; the same for the
//! command line. The user has typed it: there is no question.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::report::Report;
use turnwright_types::effect::{CallView, Content, Kind, Location, Place, Target, short_title, visible_line};
use turnwright_workspace::files::{Files, Patience, Roots};
use turnwright_types::ids::{CallId, MessageId, SessionId};
use turnwright_types::message::{Arguments, AssistantMessage, Echo, Message, ToolCall};
use turnwright_store::versions::{self, TurnRow};
use turnwright_store::{Audience, Durability, Entry, Log, Settled, Store, StoreError, TurnKind, read};
use turnwright_types::file_change::{Change, FileState, Intent};
use crate::turn;
use crate::undo::{Action, Ledger, MOST_KEPT, Outcome, Step, apply, fold, plan, state};
use turnwright_types::update::{CallUpdate, Status, Update};

/// Bytes that are held until they are written down.
const BATCH: usize = 8 * 1024 * 1024;
/// Bytes of texts that the card shows.
const MOST_SHOWN: usize = 512 * 1024;
/// Files that the model is told by name.
const MOST_TOLD: usize = 20;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The last so many turns that have changed files are undone.
    Undo(usize),
    /// All turns from that number on are undone.
    Since(u64),
    /// What was undone last is done again.
    Redo,
}

/// Whose files, and where it is written down.
#[derive(Clone, Debug)]
pub struct Desk {
    /// What is kept.
    pub store: Store,
    /// The session's pen; the turn has begun.
    pub log: Log,
    /// The session's files.
    pub files: Files,
    /// The session.
    pub session: SessionId,
    /// Ends it between two files.
    pub cancel: CancellationToken,
}

/// What is going to be done.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The turns that it is about, each with its words.
    pub turns: Vec<(u64, String)>,
    /// Whether they are done again.
    pub is_redo: bool,
    /// What is to be done about each file.
    pub steps: Vec<Step>,
}

impl Desk {
    /// What a wish comes to, if there is anything. Looks at the files.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn look(&self, wish: Wish) -> Result<Option<Planned>, StoreError> {
        self.log.flush().written().await;
        let session = self.session.clone();
        let look = move |connection: &rusqlite::Connection| {
            let key = read::key(connection, &session)?;
            let turns = versions::turns(connection, key)?;
            let Some((about, read)) = chosen(&turns, wish) else { return Ok(None) };
            let folded = fold(&versions::versions(connection, key, &read)?);
            let steps = plan(folded, state, |it| versions::has_bytes(connection, it))?;
            let words = turns.into_iter().filter(|it| about.contains(&it.number));
            let turns = words.map(|it| (it.number, it.words)).collect();
            Ok(Some(Planned { turns, is_redo: wish == Wish::Redo, steps }))
        };
        let mut planned = self.store.read(look).await?;
        for step in planned.iter_mut().flat_map(|it| &mut it.steps) {
            self.ask_editor(step).await;
        }
        Ok(planned)
    }

    /// What is right on the disk is not, if the editor shows something else.
    async fn ask_editor(&self, step: &mut Step) {
        let is_file = matches!(step.now, FileState::File { .. } | FileState::Absent);
        if step.action != Action::Already || !is_file {
            return;
        }
        let Ok(target) = self.files.resolve(&step.path).await else { return };
        let unsaved = self.files.expect_no_unsaved(&target, &Patience::default()).await;
        if unsaved.is_err() {
            let why = "it has unsaved changes in the editor".to_owned();
            step.action = Action::Conflict { why };
        }
    }

    /// Does it. What is going to happen is written down before, what has happened after, and the
    /// client sees a card meanwhile.
    pub async fn carry_out(&self, planned: Planned, tell: impl Fn(Update)) -> Report {
        let to_restore = |it: &&Step| matches!(it.action, Action::Restore { .. });
        let wanted: Vec<_> = planned.steps.iter().filter(to_restore).cloned().collect();
        let numbers: Vec<_> = planned.turns.iter().map(|it| it.0).collect();
        if wanted.is_empty() {
            let has_nothing_left = planned.steps.iter().all(|it| it.action == Action::Already);
            if has_nothing_left {
                self.log.about(&numbers).written().await;
            }
            return Report::new(planned, Vec::new());
        }
        let (begun, card) = (Instant::now(), self.card(&planned, &wanted));
        self.log.add(card.entry());
        tell(Update::Call { id: card.id.clone(), name: card.name.into(), view: card.view.clone() });
        let mut under_way = CallUpdate::new(card.id.clone(), Status::InProgress);
        under_way.raw_input = Some(card.arguments.clone());
        tell(Update::CallUpdate(Box::new(under_way)));
        let diffs = self.write_down(&card.id, &wanted).await;
        self.log.about(&numbers).written().await;
        let (wanted, stays) = self.kept(wanted).await;
        let mut outcomes = apply(&self.files, &self.store, &wanted, &self.cancel).await;
        outcomes.extend(stays);
        if !outcomes.iter().any(|it| it.result.is_ok()) {
            // It can be tried again.
            self.log.about(&[]).written().await;
        }
        let files = self.changes(&outcomes).await;
        let is_done = |it: &Path| outcomes.iter().any(|of| of.path == it && of.result.is_ok());
        let mut content: Vec<_> =
            diffs.into_iter().filter(|it| is_done(&it.0)).map(|it| it.1).collect();
        let report = Report::new(planned, outcomes);
        let text = report.text(self.files.roots());
        content.push(Content::Text(text.clone()));
        let settled = Settled {
            ok: report.failed.is_empty(),
            tool: card.name.to_owned(),
            raw: json!({ "result": text }),
            text,
            view: Some(card.view),
            content,
            took: Some(begun.elapsed()),
            files,
            ..Settled::default()
        };
        self.log.settle(&card.id, settled.clone()).written().await;
        tell(Update::CallUpdate(Box::new(turn::last(&card.id, &settled))));
        report
    }

    /// Notes what is going to happen, with the bytes that go. Returns what the card can show.
    async fn write_down(
        &self,
        call: &CallId,
        steps: &[Step],
    ) -> Vec<(std::path::PathBuf, Content)> {
        let (mut diffs, mut room) = (Vec::new(), MOST_SHOWN);
        let (mut intent, mut held) = (Intent::default(), 0);
        for step in steps {
            let Action::Restore { to } = &step.action else { continue };
            let bytes = going(step).await;
            diffs.extend(self.diff(step, to, bytes.as_deref(), &mut room).await);
            let mut before = step.now.clone();
            if let FileState::File { is_kept, .. } = &mut before {
                *is_kept = bytes.is_some();
            }
            let after = Some(to.clone());
            intent.files.push(Change { path: step.path.clone(), before, after });
            held += bytes.as_ref().map_or(0, |it| it.len());
            intent.bytes.extend(bytes);
            if held > BATCH {
                held = 0;
                let intent = std::mem::take(&mut intent);
                self.log.intend(call, intent, Durability::Process).written().await;
            }
        }
        self.log.intend(call, intent, Durability::Machine).written().await;
        diffs
    }

    /// The steps that can be undone again, and what becomes of the others: where the bytes that
    /// would go are not in the store, they stay.
    async fn kept(&self, wanted: Vec<Step>) -> (Vec<Step>, Vec<Outcome>) {
        let (mut safe, mut stays) = (Vec::new(), Vec::new());
        for step in wanted {
            let Action::Restore { to } = &step.action else { continue };
            let is_kept = match (&step.now, to) {
                (FileState::File { hash, .. }, FileState::File { hash: other, .. })
                    if hash == other =>
                {
                    true
                }
                (FileState::File { hash, .. }, _) => self.has(hash.clone()).await,
                _ => true,
            };
            if is_kept {
                safe.push(step);
                continue;
            }
            let result = Err("what is there now could not be kept, so it stays".to_owned());
            let to = to.clone();
            stays.push(Outcome { path: step.path, was: step.now, to, result });
        }
        (safe, stays)
    }

    async fn has(&self, hash: String) -> bool {
        self.store.read(move |it| versions::has_bytes(it, &hash)).await.unwrap_or(false)
    }

    /// The change of a text that is short enough to be shown.
    async fn diff(
        &self,
        step: &Step,
        to: &FileState,
        now: Option<&[u8]>,
        room: &mut usize,
    ) -> Option<(std::path::PathBuf, Content)> {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).ok();
        let old = match (&step.now, now) {
            (FileState::Absent, _) => None,
            (_, now) => Some(text(now.filter(|it| it.len() <= *room)?)?),
        };
        let new = match to {
            FileState::Absent => String::new(),
            FileState::File { hash, size, .. } if *size <= *room as u64 => {
                let hash = hash.clone();
                let found = self.store.read(move |connection| read::bytes(connection, &hash)).await;
                text(&found.ok()??)?
            }
            _ => return None,
        };
        if old.as_ref() == Some(&new) {
            return None;
        }
        *room = room.checked_sub(old.as_ref().map_or(0, String::len) + new.len())?;
        let path = shown(self.files.roots(), &step.path);
        Some((step.path.clone(), Content::Diff { path, old, new }))
    }

    /// What has really become of each file.
    async fn changes(&self, outcomes: &[Outcome]) -> Vec<Change> {
        let mut changes = Vec::new();
        for one in outcomes {
            let (path, mut before) = (one.path.clone(), one.was.clone());
            let kept = match &before {
                FileState::File { hash, .. } => self.has(hash.clone()).await,
                _ => false,
            };
            if let FileState::File { is_kept, .. } = &mut before {
                *is_kept = kept;
            }
            let after = if one.result.is_ok() {
                one.to.clone()
            } else {
                let at = path.clone();
                let looked = tokio::task::spawn_blocking(move || state(&at)).await;
                looked.unwrap_or_else(|it| FileState::Unknown { why: it.to_string() })
            };
            changes.push(Change { path, before, after: Some(after) });
        }
        changes
    }

    fn card(&self, planned: &Planned, wanted: &[Step]) -> Card {
        let name = if planned.is_redo { "redo" } else { "undo" };
        let numbers: Vec<_> = planned.turns.iter().map(|it| it.0).collect();
        let (verb, roots) = (if planned.is_redo { "Redo" } else { "Undo" }, self.files.roots());
        let title = match wanted {
            [one] => format!("{verb} {}", short(roots, &one.path)),
            all => format!("{verb} {} files", all.len()),
        };
        let locations = wanted.iter().take(MOST_TOLD);
        let locations =
            locations.map(|it| Location { path: shown(roots, &it.path), line: None }).collect();
        Card {
            id: CallId::from(format!("undo-{}", self.log.turn())),
            name,
            arguments: json!({ "turns": numbers }),
            view: CallView { title: short_title(title), kind: Kind::Edit, locations },
        }
    }
}

struct Card {
    id: CallId,
    name: &'static str,
    arguments: Value,
    view: CallView,
}

impl Card {
    /// The call stands in an answer like any other, which the model does not hear of.
    fn entry(&self) -> Entry {
        let id = MessageId::from(self.id.as_str());
        let call = ToolCall {
            id: self.id.clone(),
            provider_id: self.id.to_string(),
            name: self.name.to_owned(),
            arguments: Arguments::Object(self.arguments.clone()),
            extra: None,
        };
        let message = AssistantMessage {
            id: id.clone(),
            text: String::new(),
            thought: String::new(),
            calls: vec![call],
            interrupted: false,
            echo: Echo::default(),
        };
        let message = Arc::new(Message::Assistant(message));
        Entry::Message { id, message, audience: Audience::User }
    }
}

/// The turns that a wish is about, and those whose changes are to be turned back.
fn chosen(turns: &[TurnRow], wish: Wish) -> Option<(Vec<u64>, Vec<u64>)> {
    let mut ledger = Ledger::of(turns);
    let chosen: Vec<u64> = match wish {
        Wish::Undo(count) => ledger.last(count).to_vec(),
        Wish::Since(first) => ledger.standing.iter().copied().filter(|it| *it >= first).collect(),
        Wish::Redo => {
            let undone = ledger.undone.pop()?;
            return Some((undone.about, undone.by));
        }
    };
    (!chosen.is_empty()).then(|| (chosen.clone(), chosen))
}

/// The bytes of a file that goes, if it is still there and not too long.
async fn going(step: &Step) -> Option<Arc<[u8]>> {
    let path = step.path.clone();
    match &step.now {
        FileState::File { size, .. } if *size <= MOST_KEPT => {}
        _ => return None,
    }
    let read = tokio::task::spawn_blocking(move || {
        use std::io::Read;
        let mut bytes = Vec::new();
        let file = turnwright_workspace::pinned::file(&path).ok()?;
        file.take(MOST_KEPT + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= MOST_KEPT).then(|| Arc::from(bytes))
    });
    read.await.ok().flatten()
}

/// The path for people.
pub(super) fn short(roots: &Roots, path: &Path) -> String {
    roots.short(&Target { path: path.to_path_buf(), place: Place::Inside })
}

/// The path as the client knows it.
fn shown(roots: &Roots, path: &Path) -> std::path::PathBuf {
    roots.shown(&Target { path: path.to_path_buf(), place: Place::Inside })
}

/// What the model is to be told with the next prompt: set by commands, taken by the prompt.
#[derive(Clone, Debug, Default)]
// A std mutex: held to move a text.
pub(super) struct News(Arc<Mutex<Option<String>>>);

impl News {
    pub(super) fn set(&self, news: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = news;
    }

    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What the user has undone since the last prompt, for the model. Known from what is kept, so it is
/// the same after a restart.
pub(super) async fn news(store: &Store, session: &SessionId) -> Option<String> {
    let session = session.clone();
    let found = store.read(move |connection| {
        let key = read::key(connection, &session)?;
        let turns = versions::turns(connection, key)?;
        let last = turns.iter().rposition(|it| it.kind == TurnKind::Prompt).map_or(0, |it| it + 1);
        let mut text = String::new();
        for turn in turns[last..].iter().filter(|it| !it.about.is_empty()) {
            let changed = fold(&versions::versions(connection, key, &[turn.number])?);
            let names: Vec<_> = changed.iter().map(|it| it.path.to_string_lossy()).collect();
            text.push_str(&told(turn, &turns, &names));
        }
        Ok((!text.is_empty()).then_some(text))
    });
    found.await.ok().flatten()
}

fn told(turn: &TurnRow, turns: &[TurnRow], names: &[std::borrow::Cow<'_, str>]) -> String {
    let words = turns.iter().filter(|it| turn.about.contains(&it.number));
    let words: Vec<_> = words.map(|it| format!("{} ({})", it.number, brief(&it.words))).collect();
    let mut files: Vec<_> = names.iter().take(MOST_TOLD).map(|it| visible_line(it)).collect();
    if names.len() > MOST_TOLD {
        files.push(format!("{} more", names.len() - MOST_TOLD));
    }
    let verb = if turn.kind == TurnKind::Redo { "has redone" } else { "undid" };
    let plural = if words.len() == 1 { "" } else { "s" };
    let files = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
    let words = words.join(", ");
    format!("The user {verb} turn{plural} {words}: files changed: {files}\n")
}

/// The beginning of a prompt, in one line.
pub(super) fn brief(words: &str) -> String {
    let line: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut line = visible_line(&line);
    if let Some((end, _)) = line.char_indices().nth(60) {
        line.truncate(end);
        line.push('…');
    }
    line
}
