//! `/clear` forgets the conversation.

use super::{CommandCall, PromptWork, SessionActor};
use turnwright_store::Entry;
use turnwright_types::learned_window::LearnedWindow;

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    call.answer(session, clear)
}

fn clear(session: &mut SessionActor) -> String {
    let SessionActor { history, services, .. } = session;
    history.messages.clear();
    history.meter.forget_count();
    history.learned_window = LearnedWindow::default();
    services.forget_told_context();
    services.log().add_entry(Entry::Cleared);
    "Conversation cleared. Files were not changed.".to_owned()
}
