//! `/undo` takes back the file changes of the last turns, `/redo` restores what the last `/undo` or `/rewind` has
//! taken back, `/rewind` goes back to before an earlier prompt, and `/diff` shows file changes.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{CommandCall, CommandTask, PromptWork, SessionActor, finish_command};
use crate::session::open::restore::{HistoryBuilder, add_entry};
use turnwright_store::file_versions::{self, PromptRow};
use turnwright_store::{Entry, RewoundEntries, StoreError, TurnKind, read};
use turnwright_types::effect::fenced;
use turnwright_types::look_alike::narrow;
use turnwright_types::message::{History, StopReason};
use turnwright_undo::{
    ChangeScope, DiffLimits, UndoContext, UndoHistory, UndoRequest, one_line_excerpt, turn_changes,
    turn_list, undo_news,
};
use turnwright_workspace::checkpoint::NOT_COVERED;

/// The most prompts that `/rewind` lists.
const MAX_PROMPTS: usize = 10;

/// How much of a diff is shown in a conversation.
const DIFF_LIMITS: DiffLimits = DiffLimits { file: 256 * 1024, all: 32 * 1024 };

pub(super) fn undo(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    start(session, call, TurnKind::Undo, |task| Box::pin(undo_turns(task)))
}

async fn undo_turns(task: &CommandTask) -> Result<String, StoreError> {
    let words = narrow(&task.arguments);
    let wanted: Option<usize> = if words.is_empty() { Some(1) } else { words.parse().ok() };
    let Some(count @ 1..) = wanted else {
        let usage = "Nothing was undone. Usage: `/undo` or `/undo N` with the number of turns.";
        return Ok(usage.to_owned());
    };
    task.revert(UndoRequest::Undo(count)).await
}

pub(super) fn redo(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    start(session, call, TurnKind::Redo, |task| Box::pin(redo_last(task)))
}

async fn redo_last(task: &mut CommandTask) -> Result<String, StoreError> {
    if !task.arguments.is_empty() {
        return Ok(
            "Nothing was redone. Usage: `/redo` for the last `/undo` or `/rewind`.".to_owned()
        );
    }
    let context = task.context();
    let found = context.read(|connection, key| {
        let rewound = RewoundEntries::load(connection, key)?;
        let rewind = file_versions::undoable_rewind(connection, key, &rewound)?;
        let turns = file_versions::undoable_turns(connection, key)?;
        Ok((rewind, UndoHistory::from_turns(&turns).last_undo(), rewound))
    });
    let (rewind, last_undo, rewound) = found.await?;
    // The files that a rewind restores belong to its own turn.
    let Some(rewind) = rewind.filter(|rewind| last_undo.is_none_or(|undo| undo <= rewind.turn))
    else {
        return task.revert(UndoRequest::Redo).await;
    };
    context.log.add_entry(Entry::RewindUndone { rewind: rewind.seq });
    let files = if last_undo == Some(rewind.turn) {
        task.revert(UndoRequest::Redo).await?
    } else {
        "Files were not changed.".to_owned()
    };
    task.reload(rewound).await?;
    Ok(format!("The conversation is as it was before `/rewind`. {files}"))
}

pub(super) fn rewind(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    start(session, call, TurnKind::Undo, |task| Box::pin(rewind_to(task)))
}

async fn rewind_to(task: &mut CommandTask) -> Result<String, StoreError> {
    let context = task.context();
    let found = context.read(|connection, key| {
        let rewound = RewoundEntries::load(connection, key)?;
        Ok((file_versions::prompt_rows(connection, key, &rewound)?, rewound))
    });
    let (prompts, rewound) = found.await?;
    let mut words = task.arguments.split_whitespace();
    let Some(word) = words.next() else { return Ok(prompt_list(&prompts)) };
    let rest = words.next();
    let count = narrow(word).parse::<usize>().ok();
    let has_files = rest == Some("files");
    let prompt = count.and_then(|count| prompts.get(prompts.len().checked_sub(count)?));
    let Some(prompt) = prompt.filter(|_| rest.is_none() || has_files) else {
        return Ok(format!("There is no such prompt. {}", prompt_list(&prompts)));
    };
    context.log.add_entry(Entry::Rewound { to: prompt.seq });
    let files = if has_files {
        task.revert(UndoRequest::Since(prompt.turn)).await?
    } else {
        "Files were not changed.".to_owned()
    };
    task.reload(rewound).await?;
    let words = one_line_excerpt(&prompt.prompt_excerpt);
    Ok(format!(
        "The conversation is back before “{words}”. Everything after it is removed from the \
         context. {files}"
    ))
}

/// The last prompts with the numbers that lead to them.
fn prompt_list(prompts: &[PromptRow]) -> String {
    if prompts.is_empty() {
        return "There are no prompts to go back to.".to_owned();
    }
    let lines: String = (1..)
        .zip(prompts.iter().rev().take(MAX_PROMPTS))
        .map(|(number, row)| format!("{number}. {}\n", one_line_excerpt(&row.prompt_excerpt)))
        .collect::<Vec<_>>()
        .concat();
    format!(
        "`/rewind N` takes the conversation back to before one of these prompts, `/rewind N files` \
         the files, too:\n\n{lines}"
    )
}

pub(super) fn diff(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    start(session, call, TurnKind::Command, |task| Box::pin(show_changes(task)))
}

async fn show_changes(task: &CommandTask) -> Result<String, StoreError> {
    let what = match task.arguments.as_str() {
        "" => ChangeScope::Last,
        "all" | "session" => ChangeScope::All,
        _ => {
            return Ok(
                "Usage: `/diff` for the last turn, `/diff all` for the whole session.".to_owned()
            );
        }
    };
    let context = task.context();
    context.log.flush().written().await;
    let roots = context.files.roots().clone();
    let session = context.session.clone();
    let found = context
        .store
        .read(move |connection| turn_changes(connection, &session, what, &roots, DIFF_LIMITS))
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

/// Starts a command, whose turn is of this kind. `work` returns its answer.
fn start(
    session: &mut SessionActor,
    call: CommandCall,
    kind: TurnKind,
    work: for<'a> fn(&'a mut CommandTask) -> BoxFuture<'a, Result<String, StoreError>>,
) -> PromptWork {
    let message = call.begin_turn(session, kind);
    let mut task = call.into_task(session);
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

impl CommandTask {
    fn context(&self) -> UndoContext {
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
        let client = Arc::clone(self.conversation.client());
        let report = context.execute(planned, move |update| client.update(update)).await;
        let news = undo_news(&context.store, &context.session).await;
        self.conversation.told.lock().undo_news = news;
        let mut text = report.text(context.files.roots());
        if missing > 0 {
            text.push_str("\nNo earlier turn has file changes to undo.\n");
        }
        Ok(text)
    }

    /// Rebuilds the model's history from the stored entries that still count, as after a restart. Tells the client at
    /// which cursors the session can no longer be forked, and at which it can be again. `before` has the entries that
    /// were rewound until now.
    async fn reload(&mut self, before: RewoundEntries) -> Result<(), StoreError> {
        let context = self.context();
        let reading = context.read(move |connection, key| {
            let rewound = RewoundEntries::load(connection, key)?;
            let mut builder = HistoryBuilder::default();
            let mut cursors = Vec::new();
            let all = RewoundEntries::default();
            read::each_entry::<StoreError>(connection, key, &all, |stored| {
                let is_rewound = rewound.contains(stored.seq);
                if is_rewound != before.contains(stored.seq) {
                    cursors.extend(stored.cursor(!is_rewound));
                }
                if !is_rewound {
                    add_entry(&mut builder, stored);
                }
                Ok(())
            })?;
            Ok((builder, cursors))
        });
        let (builder, cursors) = reading.await?;
        let rebuilt = builder.build(self.history.minted, self.history.cost);
        // Spending is not given back, and the window is no larger than before.
        let learned_window = self.history.learned_window.clone();
        self.history = History { spent: self.history.spent, learned_window, ..rebuilt };
        self.conversation.forget_told_context();
        for update in cursors {
            self.conversation.client().wait_for_capacity().await;
            self.conversation.client().update(update);
        }
        Ok(())
    }
}
