//! `/init` and `/review`: tasks for the model, whose texts are beside this file.

use super::custom::CommandText;
use super::{CommandCall, PromptWork, SessionActor};

pub(super) fn init(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    start(session, call, include_str!("init_prompt.md"))
}

pub(super) fn review(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    start(session, call, include_str!("review_prompt.md"))
}

fn start(session: &mut SessionActor, call: CommandCall, task: &'static str) -> PromptWork {
    let CommandCall { prompt, typed, cancel, .. } = call;
    session.custom_command(Some(CommandText::BuiltIn(task)), prompt, &typed, cancel)
}
