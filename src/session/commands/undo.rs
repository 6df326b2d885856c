//! `/undo` takes back the file changes of the last turns.

use super::checkpoint::CheckpointTask;
use super::{CommandCall, PromptWork, SessionActor};
use crate::session::undo::UndoRequest;
use turnwright_store::{StoreError, TurnKind};

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let task = CheckpointTask::begin(session, TurnKind::Undo, call);
    PromptWork::of_command(async move {
        task.wait_for_changes().await;
        let answer = undo(&task).await;
        task.finish(answer).await
    })
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
