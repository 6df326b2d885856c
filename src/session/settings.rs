//! The settings that the user can choose in a session: model, effort and mode.

use std::sync::Arc;

use super::SessionHost;
use crate::error::{Error, error_chain};
use crate::turn::TurnServices;
use turnwright_llm::{Model, ReasoningEffort, closest_names};
use turnwright_policy::permission::Mode;
use turnwright_types::update::{ConfigChoice, ConfigOption, ConfigOptionId};

/// All settings of a session, the most important first.
pub(super) fn all(host: &SessionHost, services: &TurnServices) -> Vec<ConfigOption> {
    let selection = services.selection.get();
    let mut all = vec![model(host, selection.model.name())];
    if selection.model.supports_effort() {
        all.push(effort(selection.effort));
    }
    let policy = services.policy.get();
    all.push(mode(services.mode.get(), services.mode.max_mode(), policy.can_confine));
    all
}

fn model(host: &SessionHost, current: &str) -> ConfigOption {
    let mut names = host.model_choices();
    if !names.iter().any(|it| it == current) {
        names.insert(0, current.to_owned());
    }
    let choice = |name: String| ConfigChoice { value: name.clone(), name, description: None };
    ConfigOption {
        id: ConfigOptionId::Model,
        current: current.to_owned(),
        choices: names.into_iter().map(choice).collect(),
    }
}

fn effort(current: ReasoningEffort) -> ConfigOption {
    let choice = |it: ReasoningEffort| ConfigChoice {
        value: it.id().to_owned(),
        name: match it {
            ReasoningEffort::Default => "Default",
            ReasoningEffort::None => "None",
            ReasoningEffort::Low => "Low",
            ReasoningEffort::Medium => "Medium",
            ReasoningEffort::High => "High",
        }
        .to_owned(),
        description: (it == ReasoningEffort::Default).then(|| "Chosen by the provider".to_owned()),
    };
    ConfigOption {
        id: ConfigOptionId::Effort,
        current: current.id().to_owned(),
        choices: ReasoningEffort::ALL.into_iter().map(choice).collect(),
    }
}

fn mode(current: Mode, most: Mode, can_confine: bool) -> ConfigOption {
    let choice = |it: Mode| ConfigChoice {
        value: it.id().to_owned(),
        name: it.name().to_owned(),
        description: Some(it.description(can_confine).to_owned()),
    };
    ConfigOption {
        id: ConfigOptionId::Mode,
        current: current.id().to_owned(),
        choices: Mode::ALL.into_iter().filter(|it| *it <= most).map(choice).collect(),
    }
}

/// The error for an invalid value of a setting.
pub(super) fn unknown_value(what: &str, value: &str, known: &[&str]) -> Error {
    Error::InvalidParams(format!("Unknown {what} `{value}`. Valid: {}", known.join(", ")))
}

/// Returns the model with this name. A model that its provider does not list is refused with
/// similar names as a hint; where there is no list, the first request will show whether it exists.
pub(super) async fn choose(host: Arc<SessionHost>, name: String) -> Result<Arc<dyn Model>, Error> {
    if name.len() > 500 {
        return Err(Error::InvalidParams("The name of the model is too long".to_owned()));
    }
    // The session can continue with its current model, so the error must not ask the client to sign
    // in.
    let (finder, wanted) = (Arc::clone(&host), name.clone());
    let found = tokio::task::spawn_blocking(move || finder.model_named(&wanted)).await;
    let found = found.map_err(|_| Error::Internal { place: "the choice of a model" })?;
    let model = found.map_err(|it| Error::InvalidParams(error_chain(&it)))?;
    if host.model_choices().contains(&name) || !host.may_list_models() {
        return Ok(model);
    }
    let names = match host.refresh_model_list(&model).await {
        Ok(names) => names,
        Err(error) => {
            tracing::info!(%error, "the models could not be listed");
            return Ok(model);
        }
    };
    if names.is_empty() || names.contains(&name) {
        return Ok(model);
    }
    let meant = closest_names(&name, &names);
    let hint = match meant.as_slice() {
        [] => "`/models` lists them".to_owned(),
        meant => format!("did you mean {}?", meant.join(", ")),
    };
    Err(Error::InvalidParams(format!("The provider has no model `{name}`; {hint}")))
}
