//! `/memory` and `/skills` show what the model can read in files.

use std::sync::Arc;

use super::{CommandCall, PromptWork, SessionActor, answer_from_files};
use crate::tools::ToolEnv;
use crate::turn::{describe_notes, describe_skills};

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
    let message = call.begin(session);
    let env = Arc::clone(&session.conversation.env);
    answer_from_files(session, message, call.cancel, move || describe(&env))
}
