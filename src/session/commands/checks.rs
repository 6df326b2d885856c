//! `/checks` shows the checks of the project: those of the settings, and those that its files name. `/checks forget`
//! clears what is known of the latter.

use super::{CommandCall, PromptWork, SessionActor, answer_from_files};
use crate::turn::{Conversation, check_book, proposed_commands};
use turnwright_types::effect::{escape_hidden_line, fenced};
use turnwright_types::error_text::io_error_text;

const USAGE: &str = "`/checks forget` asks about refused ones again and measures all anew. Checks of \
                     your own belong in `[checks]` of the settings.";

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let conversation = session.conversation.clone();
    answer_from_files(session, call, move |arguments| match arguments {
        "" => show(&conversation),
        "forget" => forget(&conversation),
        _ => format!("Nothing was done. {USAGE}"),
    })
}

fn show(conversation: &Conversation) -> String {
    let configured = conversation.checks.get();
    let mut rows = String::new();
    for check in configured.iter() {
        let line = escape_hidden_line(&format!("{}: {}", check.name, check.command));
        rows.push_str(&format!("{line} (settings)\n"));
    }
    let known = check_book(&conversation.env).map(|book| book.load()).unwrap_or_default();
    if conversation.work.find_checks {
        for check in proposed_commands(&conversation.env, &configured) {
            let is_refused = known.get(&check.command).is_some_and(|known| known.is_refused);
            let state = if is_refused { ", refused" } else { "" };
            let line = format!("{} (found by {}{state})", check.command, check.marker);
            rows.push_str(&format!("{}\n", escape_hidden_line(&line)));
        }
    }
    let list = if rows.is_empty() { "No checks are known here.".to_owned() } else { fenced(&rows) };
    format!("{list}\n{USAGE}")
}

fn forget(conversation: &Conversation) -> String {
    conversation.told.lock().dropped_checks.clear();
    let Some(book) = check_book(&conversation.env) else {
        return "There is no state folder, so nothing is known of the checks.".to_owned();
    };
    match book.forget() {
        Ok(true) => {
            "The checks of this project are forgotten and will be proposed again.".to_owned()
        }
        Ok(false) => "Nothing was known of this project's checks.".to_owned(),
        Err(error) => format!("That could not be removed: {}.", io_error_text(&error)),
    }
}
