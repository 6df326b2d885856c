//! `/memory` and `/skills` show what the model can read in files.

use std::sync::Arc;

use super::{CommandCall, PromptWork, finish_after, read_files};
use crate::session::actor::SessionActor;
use crate::tools::{ToolEnv, describe_notes, describe_skills};
use turnwright_store::TurnKind;

pub(super) fn memory(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    show(session, call, describe_notes)
}

pub(super) fn skills(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    show(session, call, describe_skills)
}

fn show(
    session: &mut SessionActor,
    call: CommandCall,
    describe: fn(&ToolEnv) -> String,
) -> PromptWork {
    let message = call.begin(session, TurnKind::Command);
    let services = session.services.clone();
    let env = Arc::clone(&services.env);
    finish_after(session, read_files(move || describe(&env), services, message, call.cancel))
}
