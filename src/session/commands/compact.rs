//! `/compact` has the model summarise the conversation.

use super::{CommandCall, PromptWork, SessionActor, finish_command};
use crate::turn::compact_on_request;
use turnwright_types::message::StopReason;

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let message = call.begin(session);
    let CommandCall { arguments, cancel, .. } = call;
    let services = session.services.clone();
    let mut history = session.history.clone();
    let grants = session.grants.clone();
    PromptWork::of_command(async move {
        let compacting = compact_on_request(&services, &mut history, &arguments, &cancel);
        let stop = match compacting.await {
            Some(text) => {
                services.say(message, text);
                StopReason::EndTurn
            }
            None => StopReason::Cancelled,
        };
        finish_command(services.log(), history, grants, stop).await
    })
}
