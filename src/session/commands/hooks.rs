//! `/hooks` lists the hooks of the session, and how each has ended last.

use super::{CommandCall, PromptWork, SessionActor};
use crate::turn::Conversation;
use turnwright_types::effect::{escape_hidden_line, fenced};

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    call.answer(session, |session| list(&session.conversation))
}

fn list(conversation: &Conversation) -> String {
    let set = conversation.env.shared.hooks.set.get();
    if set.is_empty() {
        return "No hooks run here. `/trust` shows those of the project that wait for your trust."
            .to_owned();
    }
    let mut rows = String::new();
    for (handler, last) in set.list() {
        let last = last.map_or("has not run yet".to_owned(), |last| format!("last time: {last}"));
        let file = escape_hidden_line(&handler.file);
        rows.push_str(&format!("{}\n    {file}; {}\n", handler.line(), escape_hidden_line(&last)));
    }
    format!("{}\n`/trust` shows those of the project that wait for your trust.", fenced(&rows))
}
