//! `/rewind` goes back to before an earlier prompt.

use super::checkpoint::{self, CheckpointTask};
use super::{CommandCall, PromptWork, SessionActor};
use turnwright_store::file_versions::{self, PromptRow};
use turnwright_store::{Entry, RewoundEntries, StoreError, TurnKind};
use turnwright_undo::{UndoRequest, one_line_excerpt};

/// The most prompts that are listed.
const MAX_LISTED: usize = 10;

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    checkpoint::start(session, call, TurnKind::Undo, |task| Box::pin(rewind(task)))
}

async fn rewind(task: &mut CheckpointTask) -> Result<String, StoreError> {
    let context = task.context();
    let found = context.read(|connection, key| {
        file_versions::prompt_rows(connection, key, &RewoundEntries::load(connection, key)?)
    });
    let prompts = found.await?;
    let mut words = task.arguments.split_whitespace();
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
        task.revert(UndoRequest::Since(prompt.turn)).await?
    } else {
        "Files were not changed.".to_owned()
    };
    task.reload().await?;
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
        .zip(prompts.iter().rev().take(MAX_LISTED))
        .map(|(number, row)| format!("{number}. {}\n", one_line_excerpt(&row.prompt_excerpt)))
        .collect::<Vec<_>>()
        .concat();
    format!(
        "`/rewind N` takes the conversation back to before one of these prompts, `/rewind N files` \
         the files, too:\n\n{lines}"
    )
}
