//! `/mode` and `/model` show or change a setting, for clients without a menu for it. `/models` lists the models that
//! can be chosen.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{CommandCall, PromptWork, SessionActor, answer_later};
use crate::completion::Completion;
use crate::error::{Error, as_sentence, error_chain};
use crate::session::{SessionHost, settings};
use turnwright_llm::Model;
use turnwright_policy::permission::Mode;
use turnwright_types::effect::escape_hidden_line;
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
        done.complete(Ok(settings::all(&session.host, &session.conversation)));
    } else if setting == ConfigOptionId::Mode && value == Mode::Full.id() {
        done.complete(Err(Error::InvalidState(NOT_BY_MESSAGE.to_owned())));
    } else {
        session.set(setting, value, done);
    }
    answer_later(session, message, async move {
        Some(match cancel.run_until_cancelled(changed).await?.ok()? {
            Ok(all) => describe(&all, setting, is_question),
            Err(error) => as_sentence(format!("Nothing was changed: {error}")),
        })
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

pub(super) fn models(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let message = call.begin(session);
    let host = Arc::clone(&session.host);
    let conversation = session.conversation.clone();
    answer_later(session, message, async move {
        let model = conversation.selection.get().model;
        call.cancel.run_until_cancelled(list(&host, &model)).await
    })
}

/// Lists the models of this model's provider, and the others of the settings.
async fn list(host: &SessionHost, model: &Arc<dyn Model>) -> String {
    let may_list = host.models.may_list();
    let listed = if may_list { host.models.list(model.as_ref()).await } else { Ok(Vec::new()) };
    let mut names = match listed {
        Ok(names) => names,
        Err(error) => {
            let why = error_chain(&error);
            return as_sentence(format!("The models could not be listed: {why}"));
        }
    };
    let current = model.name();
    let mut others = host.models.choices();
    others.retain(|name| name != current && !names.contains(name));
    names.extend(others);
    if !names.iter().any(|name| name == current) {
        names.insert(0, current.to_owned());
    }
    let lines = names.iter().map(|name| {
        let mark = if name == current { " (in use)" } else { "" };
        format!("* `{name}`{mark}\n")
    });
    let mut text: String = lines.collect();
    if !may_list {
        text.push_str("\nThe provider was not asked, because `list_models` is off.");
    }
    text
}
