//! `/hooks` lists the hooks of the session, and how each has ended last.

use super::{CommandCall, PromptWork, SessionActor};
use crate::turn::Conversation;
use turnwright_types::effect::{escape_hidden_line, fenced};

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    call.answer(session, |session| list(&session.conversation))
}

fn list(conversation: &Conversation) -> String {
    let set = conversation.env.shared.hooks.set.get();
    if set.0.is_empty() {
        return "No hooks run here. `/trust` shows those of the project that wait for your trust."
            .to_owned();
    }
    let mut rows = String::new();
    for handler in &set.0 {
        let last = match handler.last_result() {
            Some(result) => format!("last time: {result}"),
            None => "has not run yet".to_owned(),
        };
        let file = escape_hidden_line(&handler.file);
        rows.push_str(&format!("{}\n    {file}; {}\n", handler.line, escape_hidden_line(&last)));
    }
    format!("{}\n`/trust` shows those of the project that wait for your trust.", fenced(&rows))
}
