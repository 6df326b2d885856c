//! `/clear` forgets the conversation.

use super::{CommandCall, PromptWork, SessionActor};
use turnwright_store::Entry;
use turnwright_types::token_meter::LearnedWindow;

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    call.answer(session, clear)
}

fn clear(session: &mut SessionActor) -> String {
    let SessionActor { history, conversation, .. } = session;
    history.messages.clear();
    history.meter.forget_count();
    history.learned_window = LearnedWindow::default();
    conversation.forget_told_context();
    conversation.log().add_entry(Entry::Cleared);
    "Conversation cleared. Files were not changed.".to_owned()
}
