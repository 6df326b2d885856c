//! The work that `/undo`, `/redo`, `/diff` and `/rewind` have in common.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{CommandCall, PromptWork, SessionActor, finish_command};
use crate::session::SessionHost;
use crate::session::open::restore::{HistoryBuilder, add_entry};
use crate::session::pending_context::UnsentContext;
use crate::turn::Conversation;
use turnwright_store::{RewoundEntries, StoreError, TurnKind, read};
use turnwright_types::message::{History, StopReason};
use turnwright_undo::{UndoContext, UndoRequest, undo_news};

/// The number of entries that are read at a time.
const PAGE_SIZE: usize = 64;

/// A command with what it works on.
pub(super) struct CheckpointTask {
    host: Arc<SessionHost>,
    conversation: Conversation,
    unsent: UnsentContext,
    history: History,
    pub(super) arguments: String,
    cancel: CancellationToken,
}

/// Does the work of a command and returns its answer.
type CheckpointWork =
    for<'a> fn(&'a mut CheckpointTask) -> BoxFuture<'a, Result<String, StoreError>>;

/// Starts a command, whose turn is of this kind.
pub(super) fn start(
    session: &mut SessionActor,
    call: CommandCall,
    kind: TurnKind,
    work: CheckpointWork,
) -> PromptWork {
    let message = call.begin_turn(session, kind);
    let mut task = CheckpointTask {
        host: Arc::clone(&session.host),
        conversation: session.conversation.clone(),
        unsent: session.context.unsent.clone(),
        history: session.history.clone(),
        arguments: call.arguments,
        cancel: call.cancel,
    };
    PromptWork::of_command(async move {
        // File changes of the last turn may still be on their way into the store.
        task.conversation.env.shared.checkpoint.wait_for_late_tasks().await;
        let answer = work(&mut task).await;
        let text = answer.unwrap_or_else(|error| format!("This failed: {error}."));
        task.conversation.say(message, text);
        let is_cancelled = task.cancel.is_cancelled();
        let stop = if is_cancelled { StopReason::Cancelled } else { StopReason::EndTurn };
        finish_command(task.conversation.log(), task.history, stop).await
    })
}

impl CheckpointTask {
    pub(super) fn context(&self) -> UndoContext {
        let env = &self.conversation.env;
        UndoContext {
            store: self.host.store().clone(),
            log: self.conversation.log().clone(),
            files: env.files.clone(),
            session: env.session.clone(),
            cancel: self.cancel.clone(),
        }
    }

    /// Plans and applies an undo or a redo. Returns the report.
    pub(super) async fn revert(&self, request: UndoRequest) -> Result<String, StoreError> {
        let context = self.context();
        let Some(planned) = context.plan(request).await? else {
            if request == UndoRequest::Redo {
                return Ok("Nothing to redo.".to_owned());
            }
            let uncovered = context.uncovered().await?;
            return Ok(format!(
                "Nothing to undo: no turn of this session has file changes that are not undone \
                 already.\n{uncovered}"
            ));
        };
        let missing = match request {
            UndoRequest::Undo(count) => count.saturating_sub(planned.turns.len()),
            UndoRequest::Since(_) | UndoRequest::Redo => 0,
        };
        let client = Arc::clone(self.conversation.client());
        let report = context.execute(planned, move |update| client.update(update)).await;
        self.unsent.set_undo_news(undo_news(&context.store, &context.session).await);
        let mut text = report.text(context.files.roots());
        if missing > 0 {
            text.push_str("\nNo earlier turn has file changes to undo.\n");
        }
        Ok(text)
    }

    /// Rebuilds the history from the stored entries that still count.
    pub(super) async fn reload(&mut self) -> Result<(), StoreError> {
        self.history = rebuild_history(&self.context(), &self.history).await?;
        self.conversation.forget_told_context();
        Ok(())
    }
}

/// Rebuilds the model's history from the store, as after a restart.
async fn rebuild_history(context: &UndoContext, history: &History) -> Result<History, StoreError> {
    let reading = context.read(|connection, key| {
        let rewound = RewoundEntries::load(connection, key)?;
        let mut builder = HistoryBuilder::default();
        read::each_entry::<StoreError>(connection, key, PAGE_SIZE, &rewound, |stored| {
            add_entry(&mut builder, stored);
            Ok(())
        })?;
        Ok(builder)
    });
    let builder = reading.await?;
    let rebuilt = builder.build(history.minted, history.cost);
    // Spending is not given back, and the window is no larger than before.
    let learned_window = history.learned_window.clone();
    Ok(History { spent: history.spent, learned_window, ..rebuilt })
}
