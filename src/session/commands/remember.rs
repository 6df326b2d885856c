//! `/remember` writes the note that was offered after a turn, or the user's own words. The user has typed it, so the
//! words are written without a question.

use std::sync::Arc;

use super::{CommandCall, PromptWork, SessionActor, answer_later};
use crate::tools::{KEPT_COMMANDS, KEPT_CORRECTIONS, keep_line};
use crate::turn::NoteOffer;

const NOTHING_OFFERED: &str = "Nothing was written: no note is offered now. `/remember TEXT` keeps words of your \
                               own.";

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let message = call.begin(session);
    let env = Arc::clone(&session.conversation.env);
    let words = call.arguments;
    let told = &session.conversation.told;
    let offer = if words.is_empty() { told.lock().open_offer.take() } else { None };
    let cancel = call.cancel;
    answer_later(session, message, async move {
        let (note, words, evidence) = match offer {
            Some(NoteOffer::Worked { command, failed }) => {
                (KEPT_COMMANDS, format!("`{command}`"), format!("exit 0 after `{failed}` failed"))
            }
            Some(NoteOffer::Corrected(words)) => {
                (KEPT_CORRECTIONS, words, "said more than once".to_owned())
            }
            None if words.is_empty() => return Some(NOTHING_OFFERED.to_owned()),
            None => (KEPT_CORRECTIONS, words, "the user's words".to_owned()),
        };
        let writing = keep_line(&env, note, &words, &evidence, &cancel);
        let written = cancel.run_until_cancelled(writing).await?;
        Some(written.unwrap_or_else(|why| format!("Nothing was written. {why}")))
    })
}
