//! `/redo` restores what the last `/undo` or `/rewind` has taken back.

use super::checkpoint::{self, CheckpointTask};
use super::{CommandCall, PromptWork, SessionActor};
use turnwright_store::{Entry, RewoundEntries, StoreError, TurnKind, file_versions};
use turnwright_undo::{UndoHistory, UndoRequest};

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    checkpoint::start(session, call, TurnKind::Redo, |task| Box::pin(redo(task)))
}

async fn redo(task: &mut CheckpointTask) -> Result<String, StoreError> {
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
        Ok((rewind, UndoHistory::from_turns(&turns).last_undo()))
    });
    let (rewind, last_undo) = found.await?;
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
    task.reload().await?;
    Ok(format!("The conversation is as it was before `/rewind`. {files}"))
}
