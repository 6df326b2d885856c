//! `/diff` shows file changes of the last turn or of the session.

use super::checkpoint::{self, CheckpointTask};
use super::{CommandCall, PromptWork, SessionActor};
use turnwright_store::{StoreError, TurnKind};
use turnwright_types::effect::fenced;
use turnwright_undo::{ChangeScope, DiffLimits, turn_changes, turn_list};
use turnwright_workspace::checkpoint::NOT_COVERED;

/// How much of a diff is shown in a conversation.
const DIFF_BOUNDS: DiffLimits = DiffLimits { file: 256 * 1024, all: 32 * 1024 };

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    checkpoint::start(session, call, TurnKind::Command, |task| Box::pin(diff(task)))
}

async fn diff(task: &CheckpointTask) -> Result<String, StoreError> {
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
