//! The settings that the user can choose in a session: model, effort and mode.

use std::sync::Arc;

use super::SessionHost;
use crate::error::{Error, error_chain};
use crate::turn::Conversation;
use tokio::task::spawn_blocking;
use turnwright_llm::{Model, ReasoningEffort, closest_names};
use turnwright_policy::permission::Mode;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::update::{ConfigChoice, ConfigOption, ConfigOptionId};

/// All settings of a session, the most important first.
pub(super) fn all(host: &SessionHost, conversation: &Conversation) -> Vec<ConfigOption> {
    let selection = conversation.selection.get();
    let mut all = vec![model(host, selection.model.name())];
    if selection.model.supports_effort() {
        all.push(effort(selection.effort));
    }
    let policy = conversation.rules().get();
    all.push(mode(conversation.mode().get(), conversation.mode().max_mode(), policy.can_confine));
    all
}

fn model(host: &SessionHost, current: &str) -> ConfigOption {
    let mut names = host.model_choices();
    if !names.iter().any(|name| name == current) {
        names.insert(0, current.to_owned());
    }
    let choices =
        names.into_iter().map(|name| ConfigChoice { value: name.clone(), name, description: None });
    ConfigOption {
        id: ConfigOptionId::Model,
        current: current.to_owned(),
        choices: choices.collect(),
    }
}

fn effort(current: ReasoningEffort) -> ConfigOption {
    let choices = ReasoningEffort::ALL.into_iter().map(|effort| ConfigChoice {
        value: effort.id().to_owned(),
        name: match effort {
            ReasoningEffort::Default => "Default",
            ReasoningEffort::None => "None",
            ReasoningEffort::Low => "Low",
            ReasoningEffort::Medium => "Medium",
            ReasoningEffort::High => "High",
        }
        .to_owned(),
        description: (effort == ReasoningEffort::Default)
            .then(|| "Chosen by the provider".to_owned()),
    });
    ConfigOption {
        id: ConfigOptionId::Effort,
        current: current.id().to_owned(),
        choices: choices.collect(),
    }
}

fn mode(current: Mode, most: Mode, can_confine: bool) -> ConfigOption {
    let allowed = Mode::ALL.into_iter().filter(|mode| *mode <= most);
    let choices = allowed.map(|mode| ConfigChoice {
        value: mode.id().to_owned(),
        name: mode.name().to_owned(),
        description: Some(mode.description(can_confine).to_owned()),
    });
    ConfigOption {
        id: ConfigOptionId::Mode,
        current: current.id().to_owned(),
        choices: choices.collect(),
    }
}

/// The error for an invalid value of a setting.
pub(super) fn unknown_value(what: &str, value: &str, known: &[&str]) -> Error {
    Error::InvalidParams(format!("Unknown {what} `{value}`. Valid: {}", known.join(", ")))
}

/// A model that the user has chosen.
#[derive(Debug)]
pub(super) struct ChosenModel {
    pub(super) model: Arc<dyn Model>,
    /// For the user, if the provider does not list the model.
    pub(super) doubt: Option<String>,
}

/// Returns the model with this name. The provider need not list it, because many lists are
/// incomplete: the first request will show whether it exists.
pub(super) async fn choose(host: Arc<SessionHost>, name: String) -> Result<ChosenModel, Error> {
    if name.len() > 500 {
        return Err(Error::InvalidParams("The name of the model is too long".to_owned()));
    }
    // The session can continue with its current model, so the error must not ask the client to sign
    // in.
    let finder = Arc::clone(&host);
    let wanted = name.clone();
    let finding = spawn_blocking(move || finder.model_named(&wanted));
    let found = finding.await.map_err(|_| Error::Internal { place: "the choice of a model" })?;
    let model = found.map_err(|error| Error::InvalidParams(error_chain(&error)))?;
    if host.model_choices().contains(&name) || !host.may_list_models() {
        return Ok(ChosenModel { model, doubt: None });
    }
    let names = match host.models.refresh(model.as_ref()).await {
        Ok(names) => names,
        Err(error) => {
            tracing::info!(%error, "the models could not be listed");
            return Ok(ChosenModel { model, doubt: None });
        }
    };
    let is_unlisted = !names.is_empty() && !names.contains(&name);
    let doubt = is_unlisted.then(|| {
        let hint = match closest_names(&name, &names).as_slice() {
            [] => "`/models` shows its list.".to_owned(),
            meant => format!("Did you mean {}?", meant.join(", ")),
        };
        format!("The provider does not list the model `{}`. {hint}", escape_hidden_line(&name))
    });
    Ok(ChosenModel { model, doubt })
}
