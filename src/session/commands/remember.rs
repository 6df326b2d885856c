//! `/remember` writes the note that was offered after a turn, or the user's own words. The user has typed it, so the
//! words are written without a question.

use std::sync::Arc;

use super::{CommandCall, PromptWork, SessionActor, answer_later};
use crate::tools::{KeptNote, ToolEnv, keep_line, mark_failed};
use crate::turn::NoteOffer;
use tokio_util::sync::CancellationToken;

const NOTHING_OFFERED: &str = "Nothing was written: no note is offered now. `/remember TEXT` keeps words of your \
                               own.";

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let message = call.begin(session);
    let env = Arc::clone(&session.conversation.env);
    let words = call.arguments;
    let offer = if words.is_empty() { session.conversation.told.take_offer() } else { None };
    let cancel = call.cancel;
    answer_later(session, message, async move {
        let written = match offer {
            Some(offer) => accept(&env, offer, &cancel).await,
            None if words.is_empty() => return Some(NOTHING_OFFERED.to_owned()),
            None => keep(&env, KeptNote::Corrections, &words, "the user's words", &cancel).await,
        };
        Some(written.unwrap_or_else(|why| format!("Nothing was written. {why}")))
    })
}

/// Writes the note that was offered. Returns the answer for the user.
async fn accept(
    env: &ToolEnv,
    offer: NoteOffer,
    cancel: &CancellationToken,
) -> Result<String, String> {
    match offer {
        NoteOffer::Worked { command, failed } => {
            let words = format!("`{command}`");
            let evidence = format!("exit 0 after `{failed}` failed");
            keep(env, KeptNote::Commands, &words, &evidence, cancel).await
        }
        NoteOffer::Corrected(words) => {
            keep(env, KeptNote::Corrections, &words, "said more than once", cancel).await
        }
        NoteOffer::Failed(command) => {
            let file = mark_failed(env, &command, cancel).await?;
            Ok(format!("Marked in `{file}`: `{command}` has failed."))
        }
    }
}

async fn keep(
    env: &ToolEnv,
    note: KeptNote,
    words: &str,
    evidence: &str,
    cancel: &CancellationToken,
) -> Result<String, String> {
    let (line, file) = keep_line(env, note, words, evidence, cancel).await?;
    Ok(format!(
        "Noted in `{file}`:\n\n{line}\n\nDelete the line there to take it back; `/undo` does not."
    ))
}
