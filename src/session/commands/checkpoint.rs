//! The work that `/undo`, `/redo`, `/diff` and `/rewind` have in common.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{CommandCall, SessionActor, finish_command};
use crate::session::SessionHost;
use crate::session::open::replay::{self, HistoryBuilder};
use crate::session::undo::{UndoContext, UndoNews, UndoRequest, undo_news};
use crate::turn::{FinishedTurn, TurnServices};
use turnwright_policy::permission::Grants;
use turnwright_store::{RewoundEntries, StoreError, TurnKind, read};
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, StopReason};

/// The number of entries that are read at a time.
const PAGE_SIZE: usize = 64;

/// A command with everything that it works on.
pub(super) struct CheckpointTask {
    host: Arc<SessionHost>,
    services: TurnServices,
    news: UndoNews,
    history: History,
    grants: Grants,
    pub(super) arguments: String,
    message: MessageId,
    cancel: CancellationToken,
}

impl CheckpointTask {
    /// Begins the turn of the command.
    pub(super) fn begin(
        session: &mut SessionActor,
        kind: TurnKind,
        call: CommandCall,
    ) -> CheckpointTask {
        let message = call.begin_turn(session, kind);
        CheckpointTask {
            host: Arc::clone(&session.host),
            services: session.services.clone(),
            news: session.context.undo_news.clone(),
            history: session.history.clone(),
            grants: session.grants.clone(),
            arguments: call.arguments,
            message,
            cancel: call.cancel,
        }
    }

    /// Waits for file changes of the last turn that are still on their way into the store.
    pub(super) async fn wait_for_changes(&self) {
        self.services.env.checkpoint.wait_for_late_tasks().await;
    }

    /// Shows the answer and ends the turn.
    pub(super) async fn finish(self, answer: Result<String, StoreError>) -> FinishedTurn {
        let text = answer.unwrap_or_else(|error| format!("This failed: {error}."));
        self.services.say(self.message, text);
        let is_cancelled = self.cancel.is_cancelled();
        let stop = if is_cancelled { StopReason::Cancelled } else { StopReason::EndTurn };
        finish_command(self.services.log(), self.history, self.grants, stop).await
    }

    pub(super) fn context(&self) -> UndoContext {
        let env = &self.services.env;
        UndoContext {
            store: self.host.store().clone(),
            log: self.services.log().clone(),
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
        let client = Arc::clone(self.services.client());
        let report = context.execute(planned, move |update| client.update(update)).await;
        self.news.set(undo_news(&context.store, &context.session).await);
        let mut text = report.text(context.files.roots());
        if missing > 0 {
            text.push_str("\nNo earlier turn has file changes to undo.\n");
        }
        Ok(text)
    }

    /// Rebuilds the history from the stored entries that still count.
    pub(super) async fn reload(&mut self) -> Result<(), StoreError> {
        self.history = rebuild_history(&self.context(), &self.history).await?;
        self.services.forget_told_context();
        Ok(())
    }
}

/// Rebuilds the model's history from the store, as after a restart.
async fn rebuild_history(context: &UndoContext, history: &History) -> Result<History, StoreError> {
    let reading = context.read(|connection, key| {
        let rewound = RewoundEntries::load(connection, key)?;
        let mut builder = HistoryBuilder::default();
        read::each_entry::<StoreError>(connection, key, PAGE_SIZE, &rewound, |stored| {
            replay::add_entry(&mut builder, stored);
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
