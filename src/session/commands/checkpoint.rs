//! The slash commands about earlier states: `/undo`, `/redo`, `/diff` and `/rewind`.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::session::SessionHost;
use crate::session::open::replay::{self, HistoryBuilder};
use crate::session::undo::changes::{ChangeScope, turn_changes};
use crate::session::undo::report::turn_list;
use crate::session::undo::{UndoContext, UndoNews, UndoRequest, one_line_excerpt, undo_news};
use crate::turn::TurnServices;
use crate::undo::{DiffLimits, UndoHistory};
use turnwright_store::file_versions::{self, PromptRow};
use turnwright_store::{Entry, RewoundEntries, StoreError, read};
use turnwright_types::effect::fenced;
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, StopReason};
use turnwright_workspace::checkpoint::NOT_COVERED;

/// The most prompts that `/rewind` lists.
const MAX_LISTED: usize = 10;
/// The number of entries that are read at a time.
const PAGE_SIZE: usize = 64;
/// How much of a diff is shown in a conversation.
const DIFF_BOUNDS: DiffLimits = DiffLimits { file: 256 * 1024, all: 32 * 1024 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum CheckpointCommand {
    Undo,
    Redo,
    Diff,
    Rewind,
}

/// A command with everything that it works on.
pub(in crate::session) struct CheckpointTask {
    pub(in crate::session) host: Arc<SessionHost>,
    pub(in crate::session) services: TurnServices,
    pub(in crate::session) news: UndoNews,
    pub(in crate::session) arguments: String,
    pub(in crate::session) message: MessageId,
    pub(in crate::session) cancel: CancellationToken,
}

/// Runs the command. Returns the history after it.
pub(in crate::session) async fn run_checkpoint_command(
    which: CheckpointCommand,
    task: CheckpointTask,
    history: History,
) -> (History, StopReason) {
    let mut history = history;
    // File changes of the last turn may still be on their way into the store.
    task.services.env.checkpoint.wait_for_late_tasks().await;
    let answer = match which {
        CheckpointCommand::Undo => task.undo().await,
        CheckpointCommand::Redo => task.redo(&mut history).await,
        CheckpointCommand::Diff => task.diff().await,
        CheckpointCommand::Rewind => task.rewind(&mut history).await,
    };
    let text = answer.unwrap_or_else(|error| format!("This failed: {error}."));
    task.services.say(task.message.clone(), text);
    let stop = if task.cancel.is_cancelled() { StopReason::Cancelled } else { StopReason::EndTurn };
    (history, stop)
}

impl CheckpointTask {
    fn context(&self) -> UndoContext {
        let env = &self.services.env;
        UndoContext {
            store: self.host.store().clone(),
            log: self.services.log().clone(),
            files: env.files.clone(),
            session: env.session.clone(),
            cancel: self.cancel.clone(),
        }
    }

    async fn undo(&self) -> Result<String, StoreError> {
        let count = match self.arguments.as_str() {
            "" => Some(1),
            words => words.parse().ok().filter(|count| *count > 0),
        };
        match count {
            Some(count) => self.revert(UndoRequest::Undo(count)).await,
            None => Ok("Nothing was undone. Usage: `/undo` or `/undo N` with the number of turns."
                .to_owned()),
        }
    }

    async fn redo(&self, history: &mut History) -> Result<String, StoreError> {
        if !self.arguments.is_empty() {
            return Ok(
                "Nothing was redone. Usage: `/redo` for the last `/undo` or `/rewind`.".to_owned()
            );
        }
        let context = self.context();
        let found = context.read(|connection, key| {
            let rewound = RewoundEntries::load(connection, key)?;
            let rewind = file_versions::undoable_rewind(connection, key, &rewound)?;
            let turns = file_versions::undoable_turns(connection, key)?;
            Ok((rewind, UndoHistory::from_turns(&turns).last_undo()))
        });
        let (rewind, last_undo) = found.await?;
        // The files that a rewind restores belong to its own turn.
        let Some(rewind) = rewind.filter(|rewind| last_undo.is_none_or(|undo| undo <= rewind.turn))
        else {
            return self.revert(UndoRequest::Redo).await;
        };
        context.log.add_entry(Entry::RewindUndone { rewind: rewind.seq });
        let files = if last_undo == Some(rewind.turn) {
            self.revert(UndoRequest::Redo).await?
        } else {
            "Files were not changed.".to_owned()
        };
        self.reload(history).await?;
        Ok(format!("The conversation is as it was before `/rewind`. {files}"))
    }

    async fn revert(&self, request: UndoRequest) -> Result<String, StoreError> {
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

    async fn diff(&self) -> Result<String, StoreError> {
        let what = match self.arguments.as_str() {
            "" => ChangeScope::Last,
            "all" | "session" => ChangeScope::All,
            _ => {
                return Ok("Usage: `/diff` for the last turn, `/diff all` for the whole session."
                    .to_owned());
            }
        };
        let context = self.context();
        context.log.flush().written().await;
        let roots = context.files.roots().clone();
        let session = context.session.clone();
        let found = context
            .store
            .read(move |connection| turn_changes(connection, &session, what, &roots, DIFF_BOUNDS))
            .await?;
        let uncovered = &found.uncovered;
        if found.files.is_empty() {
            return Ok(format!("No files were changed.\n{uncovered}"));
        }
        let all: String = found.files.iter().map(|file| file.diff.as_str()).collect();
        let turns = turn_list(&found.turns);
        let diff = fenced(&all).replacen('\n', "diff\n", 1);
        Ok(format!("{turns}:\n\n{diff}\n\n{NOT_COVERED}\n{uncovered}"))
    }

    async fn rewind(&self, history: &mut History) -> Result<String, StoreError> {
        let context = self.context();
        let found = context.read(|connection, key| {
            file_versions::prompt_rows(connection, key, &RewoundEntries::load(connection, key)?)
        });
        let prompts = found.await?;
        let mut words = self.arguments.split_whitespace();
        let word = words.next();
        let rest = words.next();
        let Some(word) = word else { return Ok(prompt_list(&prompts)) };
        let count = word.parse::<usize>().ok().filter(|count| *count > 0);
        let has_files = rest == Some("files");
        let index = count.and_then(|count| prompts.len().checked_sub(count));
        let prompt = index.and_then(|index| prompts.get(index));
        let Some(prompt) = prompt.filter(|_| rest.is_none() || has_files) else {
            return Ok(format!("There is no such prompt. {}", prompt_list(&prompts)));
        };
        context.log.add_entry(Entry::Rewound { to: prompt.seq });
        let files = if has_files {
            self.revert(UndoRequest::Since(prompt.turn)).await?
        } else {
            "Files were not changed.".to_owned()
        };
        self.reload(history).await?;
        let words = one_line_excerpt(&prompt.prompt_excerpt);
        Ok(format!(
            "The conversation is back before “{words}”. Everything after it is removed from the \
             context. {files}"
        ))
    }

    /// Rebuilds the history from the stored entries that still count.
    async fn reload(&self, history: &mut History) -> Result<(), StoreError> {
        *history = rebuild_history(&self.context(), history).await?;
        self.services.forget_told_context();
        Ok(())
    }
}

/// The last prompts with the numbers that lead to them.
fn prompt_list(prompts: &[PromptRow]) -> String {
    if prompts.is_empty() {
        return "There are no prompts to go back to.".to_owned();
    }
    let lines: String = (1..)
        .zip(prompts.iter().rev().take(MAX_LISTED))
        .map(|(number, row)| format!("{number}. {}\n", one_line_excerpt(&row.prompt_excerpt)))
        .collect::<Vec<_>>()
        .concat();
    format!(
        "`/rewind N` takes the conversation back to before one of these prompts, `/rewind N files` \
         the files, too:\n\n{lines}"
    )
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
