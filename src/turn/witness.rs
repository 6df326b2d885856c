//! Sees to it that what a call does to files is known: before it runs, in its intent; after it, in
//! what is kept of it. Off the runtime's thread, and a cancel waits for it only for a moment.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Equipment;
use turnwright_workspace::checkpoint::{Before, Changes, Checkpoint, Edit};
use turnwright_types::effect::{Content, Effect};
use turnwright_types::ids::CallId;
use turnwright_policy::permission::Pass;
use turnwright_store::{Durability, Log};
use turnwright_types::file_change::Intent;
use crate::tools::{Outcome, Prepared, ToolCtx};

/// How long a cancel waits. What is found later goes into the store when it is found.
const MOMENT: Duration = Duration::from_millis(20);

/// Who watches a call.
#[derive(Debug, Default)]
pub(super) struct Witness(Kind);

#[derive(Debug, Default)]
enum Kind {
    #[default]
    Nothing,
    Edit(Box<Edit>),
    Command {
        /// `None` if that was too much to look at.
        before: Option<Before>,
        /// The commands that ran already.
        jobs: Vec<String>,
    },
}

impl Witness {
    /// Looks at what is there and notes the intent, before a call that does more than read.
    pub(super) async fn begin(
        prepared: Box<dyn Prepared>,
        pass: &Pass,
        ctx: &ToolCtx,
    ) -> Option<(Box<dyn Prepared>, Witness)> {
        let bench = &ctx.bench;
        let durability = if pass.only_reads() { Durability::Process } else { Durability::Machine };
        let note = |intent| bench.log.intend(&ctx.call, intent, durability);
        let is_command = |it: &Effect| matches!(it, Effect::Exec(_) | Effect::Input { .. });
        if !bench.log.is_on() || pass.only_reads() {
            note(Intent::default()).written().await;
            return Some((prepared, Witness::default()));
        }
        bench.checkpoint.watch(bench.files.roots());
        // Soon over: it is bounded.
        ctx.cancel.run_until_cancelled(bench.checkpoint.rest()).await;
        if pass.effects().iter().any(is_command) {
            let ticket = note(Intent::default());
            // What is given input does what it does because of that.
            let is_input = pass.effects().iter().any(|it| matches!(it, Effect::Input { .. }));
            let jobs = if is_input { Vec::new() } else { bench.jobs.running() };
            let before = before(bench.checkpoint.clone(), &ctx.cancel).await;
            ticket.written().await;
            return Some((prepared, Witness(Kind::Command { before, jobs })));
        }
        let (written, deleted) = touched(pass.effects());
        if written.is_empty() && deleted.is_empty() {
            note(Intent::default()).written().await;
            return Some((prepared, Witness::default()));
        }
        drop(bench.files.take_written(&written));
        let looking = tokio::task::spawn_blocking(move || {
            let edit = Edit::look(&written, deleted, &prepared.foresees());
            (edit.intent(), edit, prepared)
        });
        let (intent, edit, prepared) = looking.await.ok()?;
        note(intent).written().await;
        Some((prepared, Witness(Kind::Edit(Box::new(edit)))))
    }

    /// Finds out what has changed, and tells the user what of it cannot be undone.
    pub(super) async fn end(self, ctx: &ToolCtx, outcome: &mut Outcome) -> Changes {
        let (bench, checkpoint) = (&ctx.bench, ctx.bench.checkpoint.clone());
        let changes = match self.0 {
            Kind::Nothing => Changes::default(),
            Kind::Edit(edit) => {
                let written = bench.files.take_written(edit.targets());
                let work = move || edit.changes(&checkpoint, written);
                tokio::task::spawn_blocking(work).await.unwrap_or_default()
            }
            Kind::Command { before: None, .. } => {
                Changes { is_unseen: !ctx.cancel.is_cancelled(), ..Changes::default() }
            }
            Kind::Command { before: Some(before), jobs } => {
                if bench.jobs.running().iter().any(|it| !jobs.contains(it)) {
                    checkpoint.goes_on(&ctx.call);
                }
                after(&checkpoint, before, (&bench.log, &ctx.call), &ctx.cancel).await
            }
        };
        let warning = bench.checkpoint.warning(&changes, bench.files.roots());
        outcome.content.extend(warning.map(Content::Text));
        changes
    }
}

/// The turn ends: what commands that went on have done until now is added to their call.
pub(super) async fn end_turn(equipment: &Equipment, cancel: &CancellationToken) {
    let (checkpoint, log) = (&equipment.bench.checkpoint, equipment.log());
    if let Some((call, before)) = checkpoint.end_turn() {
        let turn = log.turn();
        let changes = after(checkpoint, before, (log, &call), cancel).await;
        // The end of the turn is waited for, and comes after it.
        if !changes.files.is_empty() {
            drop(log.changes(turn, &call, changes.files, changes.bytes));
        }
    }
    checkpoint.forget_map();
}

async fn before(checkpoint: Checkpoint, cancel: &CancellationToken) -> Option<Before> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancelled);
    let looking = tokio::task::spawn_blocking(move || checkpoint.before(&flag));
    let before = cancel.run_until_cancelled(looking).await;
    cancelled.store(before.is_none(), Ordering::Relaxed);
    before?.ok()?
}

async fn after(
    checkpoint: &Checkpoint,
    before: Before,
    (log, call): (&Log, &CallId),
    cancel: &CancellationToken,
) -> Changes {
    let (found, mut waiting) = oneshot::channel();
    let (own, log, call, turn) = (checkpoint.clone(), log.clone(), call.clone(), log.turn());
    let was_cancelled = cancel.is_cancelled();
    checkpoint.late().spawn_blocking(move || {
        if let Err(changes) = found.send(own.after(&before, was_cancelled)) {
            own.forget_map();
            drop(log.changes(turn, &call, changes.files, changes.bytes));
        }
    });
    let out_of_time = async {
        cancel.cancelled().await;
        tokio::time::sleep(MOMENT).await;
    };
    tokio::select! {
        biased;
        changes = &mut waiting => return changes.unwrap_or_default(),
        () = out_of_time => {}
    }
    // Either it is there now, or it finds out that nobody waits.
    waiting.close();
    waiting.try_recv().unwrap_or_default()
}

/// What is written, and what goes.
fn touched(effects: &[Effect]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut written, mut deleted) = (Vec::new(), Vec::new());
    for effect in effects {
        match effect {
            Effect::Write(target) => written.push(target.path.clone()),
            Effect::Delete(target) => deleted.push(target.path.clone()),
            _ => {}
        }
    }
    (written, deleted)
}
