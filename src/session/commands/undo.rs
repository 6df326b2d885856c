//! `/undo` takes back the file changes of the last turns.

use super::checkpoint::{self, CheckpointTask};
use super::{CommandCall, PromptWork, SessionActor};
use turnwright_store::{StoreError, TurnKind};
use turnwright_undo::UndoRequest;

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    checkpoint::start(session, call, TurnKind::Undo, |task| Box::pin(undo(task)))
}

async fn undo(task: &CheckpointTask) -> Result<String, StoreError> {
    let count = match task.arguments.as_str() {
        "" => Some(1),
        words => words.parse().ok().filter(|count| *count > 0),
    };
    match count {
        Some(count) => task.revert(UndoRequest::Undo(count)).await,
        None => {
            Ok("Nothing was undone. Usage: `/undo` or `/undo N` with the number of turns."
                .to_owned())
        }
    }
}
