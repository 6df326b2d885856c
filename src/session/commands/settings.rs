//! `/mode` and `/model` show or change a setting, for clients without a menu for it.

use tokio::sync::oneshot;

use super::{CommandCall, PromptWork, SessionActor, finish_after};
use crate::completion::Completion;
use crate::error::{Error, as_sentence};
use crate::session::settings;
use turnwright_policy::permission::Mode;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::message::StopReason;
use turnwright_types::update::{ConfigOption, ConfigOptionId};

/// A program may pass on as a prompt what somebody else has written.
const NOT_BY_MESSAGE: &str = "a message does not set the mode `full`, which has no sandbox. Choose it in the \
                              editor, or start with TURNWRIGHT_MODE=full";

pub(super) fn mode(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    run(session, call, ConfigOptionId::Mode)
}

pub(super) fn model(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    run(session, call, ConfigOptionId::Model)
}

/// Shows the setting, or changes it if there is a value. A cancel ends the wait for a change.
fn run(session: &mut SessionActor, call: CommandCall, setting: ConfigOptionId) -> PromptWork {
    let message = call.begin(session);
    let CommandCall { arguments: value, cancel, .. } = call;
    let (send, changed) = oneshot::channel();
    let is_question = value.is_empty();
    let done = Completion::new(move |result| {
        send.send(result).ok();
    });
    if is_question {
        done.complete(Ok(settings::all(&session.host, &session.services)));
    } else if setting == ConfigOptionId::Mode && value == Mode::Full.id() {
        done.complete(Err(Error::InvalidState(NOT_BY_MESSAGE.to_owned())));
    } else {
        session.set(setting, value, done);
    }
    let services = session.services.clone();
    finish_after(session, async move {
        let text = match cancel.run_until_cancelled(changed).await {
            Some(Ok(Ok(all))) => describe(&all, setting, is_question),
            Some(Ok(Err(error))) => as_sentence(format!("Nothing was changed: {error}")),
            Some(Err(_)) | None => return StopReason::Cancelled,
        };
        services.say(message, text);
        StopReason::EndTurn
    })
}

/// The current value, with the possible ones if that was the question.
fn describe(all: &[ConfigOption], setting: ConfigOptionId, with_choices: bool) -> String {
    let Some(option) = all.iter().find(|option| option.id == setting) else { return String::new() };
    let mut text = format!("{}: `{}`", setting.name(), escape_hidden_line(&option.current));
    if with_choices {
        text.push_str(&format!(". `/{} NAME` changes it:\n\n", setting.id()));
        for choice in &option.choices {
            let about = choice.description.as_ref().map(|description| format!(" – {description}"));
            let value = escape_hidden_line(&choice.value);
            text.push_str(&format!("* `{value}`{}\n", about.unwrap_or_default()));
        }
    }
    text
}
