//! What the user can choose in a session: the model, its effort, the mode.

use std::sync::Arc;

use super::Host;
use crate::error::{Error, chain};
use turnwright_llm::{Effort, Model, near};
use turnwright_policy::permission::Mode;
use crate::turn::Equipment;
use turnwright_types::update::{Setting, SettingChoice, SettingId};

/// All settings of a session, the most important first.
pub(super) fn all(host: &Host, equipment: &Equipment) -> Vec<Setting> {
    let thinker = equipment.thinker.get();
    let mut all = vec![model(host, thinker.model.name())];
    if thinker.model.has_effort() {
        all.push(effort(thinker.effort));
    }
    let law = equipment.law.get();
    all.push(mode(equipment.mode.get(), equipment.mode.most(), law.can_confine));
    all
}

fn model(host: &Host, current: &str) -> Setting {
    let mut names = host.choices();
    if !names.iter().any(|it| it == current) {
        names.insert(0, current.to_owned());
    }
    let choice = |name: String| SettingChoice { value: name.clone(), name, description: None };
    Setting {
        id: SettingId::Model,
        current: current.to_owned(),
        choices: names.into_iter().map(choice).collect(),
    }
}

fn effort(current: Effort) -> Setting {
    let choice = |it: Effort| SettingChoice {
        value: it.id().to_owned(),
        name: match it {
            Effort::Default => "Default",
            Effort::None => "None",
            Effort::Low => "Low",
            Effort::Medium => "Medium",
            Effort::High => "High",
        }
        .to_owned(),
        description: (it == Effort::Default).then(|| "As the provider thinks best".to_owned()),
    };
    Setting {
        id: SettingId::Effort,
        current: current.id().to_owned(),
        choices: Effort::ALL.into_iter().map(choice).collect(),
    }
}

fn mode(current: Mode, most: Mode, can_confine: bool) -> Setting {
    let choice = |it: Mode| SettingChoice {
        value: it.id().to_owned(),
        name: it.name().to_owned(),
        description: Some(it.description(can_confine).to_owned()),
    };
    Setting {
        id: SettingId::Mode,
        current: current.id().to_owned(),
        choices: Mode::ALL.into_iter().filter(|it| *it <= most).map(choice).collect(),
    }
}

/// The error for a value that a setting cannot have.
pub(super) fn no_such(what: &str, value: &str, known: &[&str]) -> Error {
    Error::Params(format!("There is no {what} `{value}`; there are: {}", known.join(", ")))
}

/// The model of that name. One that its provider does not list is refused, with those that may
/// have been meant; where there is no list, the first request will tell.
pub(super) async fn choose(host: Arc<Host>, name: String) -> Result<Arc<dyn Model>, Error> {
    if name.len() > 500 {
        return Err(Error::Params("No model has so long a name".to_owned()));
    }
    // The session has a model that it can go on with: this is no reason to sign in.
    let (finder, wanted) = (Arc::clone(&host), name.clone());
    let found = tokio::task::spawn_blocking(move || finder.model_named(&wanted)).await;
    let found = found.map_err(|_| Error::Bug { place: "the choice of a model" })?;
    let model = found.map_err(|it| Error::Params(chain(&it)))?;
    if host.choices().contains(&name) || !host.may_list() {
        return Ok(model);
    }
    let names = match host.list_anew(&model).await {
        Ok(names) => names,
        Err(error) => {
            tracing::info!(%error, "the models could not be listed");
            return Ok(model);
        }
    };
    if names.is_empty() || names.contains(&name) {
        return Ok(model);
    }
    let meant = near(&name, &names);
    let hint = match meant.as_slice() {
        [] => "`/models` lists what there is".to_owned(),
        meant => format!("did you mean {}?", meant.join(", ")),
    };
    Err(Error::Params(format!("The provider has no model `{name}`; {hint}")))
}
