//! Records the state of files before and after a tool call, so that the turn can be undone. Works
//! on blocking threads; a cancel waits for it only briefly.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::stopping::grace_elapsed;
use crate::tools::{PreparedCall, ToolCtx, ToolOutcome};
use crate::turn::Conversation;
use crate::turn::start_state::keep_start;
use tokio::task::spawn_blocking;
use turnwright_guard::{CommandSite, makes_environments};
use turnwright_policy::permission::{Confinement, Pass};
use turnwright_store::{Durability, PendingWrite, SessionLog};
use turnwright_types::effect::{CallContent, Effect};
use turnwright_types::file_change::ChangeIntent;
use turnwright_types::ids::CallId;
use turnwright_types::update::Update;
use turnwright_workspace::checkpoint::{CallChanges, ChangeTracker, CommandBaseline, TrackedEdit};

/// How long a cancel waits for the changes to be found. Changes that are found later are added to
/// the store then.
const CANCEL_GRACE: Duration = Duration::from_millis(20);

/// Records the file changes of one call.
#[derive(Default)]
pub(super) enum FileChangeRecorder {
    #[default]
    Nothing,
    /// Only the note that a call to a server has begun, which is written while the call runs.
    Remote(PendingWrite),
    Edit(Box<TrackedEdit>),
    Command {
        /// The folders before the command; `None` if they were too large to scan or the scan was
        /// cancelled.
        before: Option<CommandBaseline>,
        /// The background jobs that were running already.
        jobs: Vec<String>,
        /// `None` if the command is not confined.
        check: Option<Box<RepositoryCheck>>,
    },
}

/// Records the state of the files before a command.
async fn begin_command(pass: &Pass, ctx: &ToolCtx, begun: PendingWrite) -> FileChangeRecorder {
    let env = &ctx.env;
    // The changes of a running job that gets input are due to that input.
    let is_input = pass.effects().iter().any(|effect| matches!(effect, Effect::Input { .. }));
    let jobs = if is_input { Vec::new() } else { env.jobs.running().ids() };
    let before = before(Arc::clone(&env.shared.checkpoint), &ctx.cancel).await;
    begun.written().await;
    let check = RepositoryCheck::of(pass, ctx).map(Box::new);
    FileChangeRecorder::Command { before, jobs, check }
}

impl FileChangeRecorder {
    /// Records the state of the files and the intent, before a call that does more than read.
    /// Returns `None` if a tool panicked.
    pub(super) async fn begin(
        prepared: Box<dyn PreparedCall>,
        pass: &Pass,
        ctx: &ToolCtx,
    ) -> Option<(Box<dyn PreparedCall>, FileChangeRecorder)> {
        let env = &ctx.env;
        let only_reads = pass.is_read_only();
        let durability = if only_reads || pass.effects().iter().all(only_reads_remotely) {
            Durability::ProcessCrash
        } else {
            Durability::PowerLoss
        };
        let note = |intent| env.log.record_intent(&ctx.call, intent, durability);
        if only_reads {
            // Nobody waits: if the write is lost, the history says that the call had not begun, which
            // makes no difference, because its sandbox lets it change nothing.
            note(ChangeIntent::default()).in_background();
            return Some((prepared, FileChangeRecorder::Nothing));
        }
        if pass.effects().iter().all(|effect| matches!(effect, Effect::Remote(_))) {
            // The server is called while this is written. What it has answered is shown only afterwards; for a
            // tool that reads by the user's word, nobody waits.
            let begun = note(ChangeIntent::default());
            let is_awaited = durability == Durability::PowerLoss;
            let recorder = Some(begun).filter(|_| is_awaited).map(FileChangeRecorder::Remote);
            return Some((prepared, recorder.unwrap_or_default()));
        }
        let runs_command = pass
            .effects()
            .iter()
            .any(|effect| matches!(effect, Effect::Exec(_) | Effect::Input { .. }));
        // Without a log nothing can be undone, but what a command leaves behind is checked all the same.
        if !env.log.is_enabled() && !runs_command {
            note(ChangeIntent::default()).written().await;
            return Some((prepared, FileChangeRecorder::Nothing));
        }
        keep_start(env).await;
        env.command_site().watch_files();
        // This wait is bounded.
        ctx.cancel.run_until_cancelled(env.shared.checkpoint.wait_for_late_tasks()).await;
        if runs_command {
            let files = vec![CallChanges::of_running_command()];
            let begun = note(ChangeIntent { files, bytes: Vec::new() });
            return Some((prepared, begin_command(pass, ctx, begun).await));
        }
        let (written, deleted) = written_and_deleted(pass.effects());
        if written.is_empty() && deleted.is_empty() {
            note(ChangeIntent::default()).written().await;
            return Some((prepared, FileChangeRecorder::Nothing));
        }
        let (intent, edit, prepared) = begin_edit(prepared, written, deleted, ctx).await?;
        note(intent).written().await;
        Some((prepared, FileChangeRecorder::Edit(Box::new(edit))))
    }

    /// Finds out what has changed, and adds a warning to the outcome about changes that cannot be
    /// undone.
    pub(super) async fn end(self, ctx: &ToolCtx, outcome: &mut ToolOutcome) -> CallChanges {
        let env = &ctx.env;
        let checkpoint = Arc::clone(&ctx.env.shared.checkpoint);
        let mut is_settled_command = false;
        let mut changes = match self {
            FileChangeRecorder::Nothing => CallChanges::default(),
            FileChangeRecorder::Remote(begun) => {
                begun.written().await;
                CallChanges::default()
            }
            FileChangeRecorder::Edit(edit) => {
                let written = env.files.take_written(&edit.targets);
                let finding = spawn_blocking(move || edit.changes(&checkpoint, written));
                finding.await.unwrap_or_default()
            }
            FileChangeRecorder::Command { before: None, .. } => {
                is_settled_command = true;
                CallChanges { is_unknown: !ctx.cancel.is_cancelled(), ..CallChanges::default() }
            }
            FileChangeRecorder::Command { before: Some(before), jobs, check } => {
                let goes_on = env.jobs.running().ids().iter().any(|job| !jobs.contains(job));
                if goes_on {
                    checkpoint.note_background_command(&env.log.recorded_call(&ctx.call));
                }
                let log = (&env.log, &ctx.call);
                let found = after(&checkpoint, before, check, log, &ctx.cancel).await;
                is_settled_command = found.is_some() && !goes_on;
                let (changes, report) = found.unwrap_or_default();
                env.files.note_changed_on_disk(&changes.files);
                if let Some(report) = report {
                    outcome.ok = false;
                    outcome.append_note(report);
                }
                changes
            }
        };
        env.shared.checkpoint.note_changes(&changes);
        let can_undo = env.log.is_enabled();
        let warning =
            can_undo.then(|| env.shared.checkpoint.warning(&changes, env.files.roots())).flatten();
        outcome.content.extend(warning.map(CallContent::Text));
        if is_settled_command {
            changes.settle_command();
        }
        changes
    }
}

/// Looks at the files that a call is going to write and delete. Returns `None` if its tool panicked.
async fn begin_edit(
    prepared: Box<dyn PreparedCall>,
    written: Vec<PathBuf>,
    deleted: Vec<PathBuf>,
    ctx: &ToolCtx,
) -> Option<(ChangeIntent, TrackedEdit, Box<dyn PreparedCall>)> {
    drop(ctx.env.files.take_written(&written));
    let looking = spawn_blocking(move || {
        let edit = TrackedEdit::begin(&written, deleted, &prepared.expected_changes());
        (edit.intent(), edit, prepared)
    });
    looking.await.ok()
}

/// The check of the repositories that a confined command has made.
pub(super) struct RepositoryCheck {
    /// Where the command may write beyond its sandbox.
    allowed: Vec<PathBuf>,
    /// True if it may make virtual environments of Python.
    makes_environments: bool,
    site: CommandSite,
}

impl RepositoryCheck {
    /// The check after a command of this pass; `None` if it is not confined.
    fn of(pass: &Pass, ctx: &ToolCtx) -> Option<RepositoryCheck> {
        let Confinement::Sandboxed { extra_writable, .. } = pass.confinement() else { return None };
        Some(RepositoryCheck {
            allowed: extra_writable.clone(),
            makes_environments: pass.effects().iter().any(makes_environments),
            site: ctx.env.command_site().clone(),
        })
    }

    /// Takes away what git would run in them. Returns the report for the model and the user. Blocks.
    fn run(&self, changes: &CallChanges) -> Option<String> {
        let new = (changes.new_repositories.clone(), changes.may_have_more_repositories);
        let allowed = (self.allowed.as_slice(), self.makes_environments);
        self.site.check_repositories(new, allowed)
    }
}

/// At the end of the turn, adds the changes of commands that went on in the background to their
/// call.
pub(in crate::turn) async fn end_turn(conversation: &Conversation, cancel: &CancellationToken) {
    let checkpoint = &conversation.env.shared.checkpoint;
    let log = conversation.log();
    let (calls, before) = checkpoint.end_turn();
    if let Some((before, (last, others))) = before.zip(calls.split_last()) {
        let turn = log.turn();
        // The end of the turn is awaited and written after this.
        if let Some((changes, _)) = after(checkpoint, before, None, (log, last), cancel).await {
            store_late(log, turn, last, changes);
        }
        for call in others {
            store_late(log, turn, call, CallChanges::default());
        }
    } else {
        for call in &calls {
            let changes = CallChanges { is_unknown: true, ..CallChanges::default() };
            store_late(log, log.turn(), call, changes);
        }
    }
    checkpoint.drop_costly_baseline();
}

/// Adds the changes of a command to its call, which has ended already.
fn store_late(log: &SessionLog, turn: u64, call: &CallId, mut changes: CallChanges) {
    changes.settle_command();
    log.record_changes(turn, call, changes.files, changes.contents).in_background();
}

async fn before(
    checkpoint: Arc<ChangeTracker>,
    cancel: &CancellationToken,
) -> Option<CommandBaseline> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancelled);
    let looking = spawn_blocking(move || checkpoint.baseline(&flag));
    let before = cancel.run_until_cancelled(looking).await;
    cancelled.store(before.is_none(), Ordering::Relaxed);
    before?.ok()?
}

/// Finds out what a command has changed. Returns `None` if it takes too long after a cancel; the changes are
/// then stored when they are known.
async fn after(
    checkpoint: &Arc<ChangeTracker>,
    before: CommandBaseline,
    check: Option<Box<RepositoryCheck>>,
    (log, call): (&SessionLog, &CallId),
    cancel: &CancellationToken,
) -> Option<(CallChanges, Option<String>)> {
    let (found, mut waiting) = oneshot::channel();
    let turn = log.turn();
    let own = Arc::clone(checkpoint);
    let log = log.clone();
    let call = call.clone();
    let was_cancelled = cancel.is_cancelled();
    checkpoint.late_tasks().spawn_blocking(move || {
        let changes = own.changes_since(&before, was_cancelled);
        let report = check.as_ref().and_then(|check| check.run(&changes));
        if let Err((changes, report)) = found.send((changes, report)) {
            own.drop_baseline();
            store_late(&log, turn, &call, changes);
            if let Some((check, report)) = check.zip(report) {
                check.site.client.update(Update::Notice(report));
            }
        }
    });
    tokio::select! {
        biased;
        changes = &mut waiting => return changes.ok(),
        () = grace_elapsed(cancel, CANCEL_GRACE) => {}
    }
    // Either the result has arrived by now, or the sender finds the channel closed and stores it
    // itself.
    waiting.close();
    waiting.try_recv().ok()
}

/// True for a call of an MCP tool that says it only reads and has not changed since the user allowed it.
/// The claim is not verified. If it is false, the history does not tell after a loss of power that the
/// call had begun.
fn only_reads_remotely(effect: &Effect) -> bool {
    matches!(effect, Effect::Remote(call)
        if call.claims_read_only && call.change_since_approval.is_none())
}

/// The paths that the effects write, and those that they delete, without those in a folder among them.
fn written_and_deleted(effects: &[Effect]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut written: Vec<PathBuf> = Vec::new();
    let mut deleted: Vec<PathBuf> = Vec::new();
    for effect in effects {
        let (list, target) = match effect {
            Effect::Write(target) => (&mut written, target),
            Effect::Delete(target) => (&mut deleted, target),
            _ => continue,
        };
        if !list.iter().any(|folder| target.path.starts_with(folder)) {
            list.push(target.path.clone());
        }
    }
    (written, deleted)
}
