//! The settings that the user can choose in a session: model, effort and mode. A change of the model may wait for
//! the provider's list of models, and a slow one must not undo a later one.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::SessionHost;
use crate::completion::Completion;
use crate::error::{Error, error_chain};
use crate::turn::Conversation;
use turnwright_llm::{Model, ReasoningEffort, closest_names};
use turnwright_policy::permission::Mode;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::update::{ConfigChoice, ConfigOption, ConfigOptionId};

/// The most model changes that may wait for a provider's list.
const MAX_PENDING: usize = 8;

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
    let mut names = host.models.choices();
    if !names.iter().any(|name| name == current) {
        names.insert(0, current.to_owned());
    }
    let choices =
        names.into_iter().map(|name| ConfigChoice { value: name.clone(), name, description: None });
    option(ConfigOptionId::Model, current, choices)
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
            ReasoningEffort::ExtraHigh => "Extra high",
        }
        .to_owned(),
        description: (effort == ReasoningEffort::Default)
            .then(|| "Chosen by the provider".to_owned()),
    });
    option(ConfigOptionId::Effort, current.id(), choices)
}

fn mode(current: Mode, most: Mode, can_confine: bool) -> ConfigOption {
    let allowed = Mode::ALL.into_iter().filter(|mode| *mode <= most);
    let choices = allowed.map(|mode| ConfigChoice {
        value: mode.id().to_owned(),
        name: mode.name().to_owned(),
        description: Some(mode.description(can_confine).to_owned()),
    });
    option(ConfigOptionId::Mode, current.id(), choices)
}

fn option(
    id: ConfigOptionId,
    current: &str,
    choices: impl Iterator<Item = ConfigChoice>,
) -> ConfigOption {
    ConfigOption { id, current: current.to_owned(), choices: choices.collect() }
}

/// The error for an invalid value of a setting.
pub(super) fn unknown_value(what: &str, value: &str, known: &[&str]) -> Error {
    Error::InvalidParams(format!("Unknown {what} `{value}`. Valid: {}", known.join(", ")))
}

/// A model that the user has chosen, and a notice if its provider does not list it.
pub(super) type ChosenModel = (Arc<dyn Model>, Option<String>);

/// Returns the model with this name. The provider need not list it, because many lists are
/// incomplete: the first request will show whether it exists. Some clients call the default model of any agent
/// `default`; one that a server really lists by this name comes first.
async fn choose(host: Arc<SessionHost>, name: String) -> Result<ChosenModel, Error> {
    if name.trim().is_empty() || name.len() > 500 {
        return Err(Error::InvalidParams("The name of the model is empty or too long".to_owned()));
    }
    // The session can continue with its current model, so the error must not ask the client to sign
    // in.
    let finder = Arc::clone(&host);
    let is_usual = name == "default" && !host.models.choices().contains(&name);
    let finding = spawn_blocking(move || {
        if is_usual { finder.model(&finder.config().snapshot()) } else { finder.model_named(&name) }
    });
    let found = finding.await.map_err(|_| Error::Internal { place: "the choice of a model" })?;
    let model = found.map_err(|error| Error::InvalidParams(error_chain(&error)))?;
    let name = model.name().to_owned();
    if host.models.choices().contains(&name) || !host.models.may_list() {
        return Ok((model, None));
    }
    let names = match host.models.refresh(model.as_ref()).await {
        Ok(names) => names,
        Err(error) => {
            tracing::info!(%error, "the models could not be listed");
            return Ok((model, None));
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
    Ok((model, doubt))
}

/// Returns the initial model that the client wants, if it names one that is found.
pub(super) async fn initial_model(
    host: &Arc<SessionHost>,
    initial: &[(ConfigOptionId, String)],
) -> Option<ChosenModel> {
    let (_, name) = initial.iter().find(|(id, _)| *id == ConfigOptionId::Model)?;
    choose(Arc::clone(host), name.clone()).await.ok()
}

/// Looks for the models that are chosen, and numbers these changes.
#[derive(Default)]
pub(super) struct ModelChoice {
    /// The number of the last change that was requested.
    requested: u64,
    /// The number of the last change that was applied.
    applied: u64,
    /// The queries of providers that have not ended, for changes and for their lists.
    queries: FuturesUnordered<BoxFuture<'static, ModelQuery>>,
}

/// A query of a provider that has ended.
pub(super) enum ModelQuery {
    /// The provider has listed its models, or has failed to.
    List,
    /// A change, and the request that waits for it.
    Change { number: u64, model: Result<ChosenModel, Error>, done: Completion<Vec<ConfigOption>> },
}

impl ModelChoice {
    /// Waits for the next query that ends; `None` if there is none.
    pub(super) async fn next(&mut self) -> Option<ModelQuery> {
        self.queries.next().await
    }

    /// Looks for the model of this name, until `stop` is cancelled.
    pub(super) fn choose(
        &mut self,
        host: &Arc<SessionHost>,
        name: String,
        stop: CancellationToken,
        done: Completion<Vec<ConfigOption>>,
    ) {
        let number = match self.begin_change() {
            Ok(number) => number,
            Err(busy) => return done.complete(Err(busy)),
        };
        let choosing = choose(Arc::clone(host), name);
        // In a separate task: if it dies, the session does not.
        let task = host.tracker().spawn(async move { stop.run_until_cancelled(choosing).await });
        self.queries.push(Box::pin(async move {
            let model = match task.await {
                Ok(model) => model.unwrap_or(Err(Error::Cancelled)),
                Err(_) => Err(Error::Internal { place: "the choice of a model" }),
            };
            ModelQuery::Change { number, model, done }
        }));
    }

    /// Fetches the list of this model's provider, until `stop` is cancelled.
    pub(super) fn fetch_list(
        &mut self,
        host: Arc<SessionHost>,
        model: Arc<dyn Model>,
        stop: CancellationToken,
    ) {
        self.queries.push(Box::pin(async move {
            if let Some(Err(error)) =
                stop.run_until_cancelled(host.models.refresh(model.as_ref())).await
            {
                tracing::debug!(%error, "the models could not be listed");
            }
            ModelQuery::List
        }));
    }

    /// Begins a change and returns its number.
    fn begin_change(&mut self) -> Result<u64, Error> {
        if self.queries.len() >= MAX_PENDING {
            let busy = "Earlier changes of the model are still waiting for the provider";
            return Err(Error::InvalidState(busy.to_owned()));
        }
        self.requested += 1;
        Ok(self.requested)
    }

    /// A model was chosen without waiting: changes that still wait for the provider have no effect.
    pub(super) fn supersede(&mut self) {
        self.requested += 1;
        self.applied = self.requested;
    }

    /// Ends a change. Returns whether its model is to be used: it was found, and no later change was
    /// applied meanwhile.
    pub(super) fn end_change(&mut self, number: u64, is_found: bool) -> bool {
        let is_newer = is_found && number > self.applied;
        if is_newer {
            self.applied = number;
        }
        is_newer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_change_does_not_undo_a_later_one() {
        // The order in which three changes end, whether each found its model, and which are applied.
        let table = [
            ([(1, true), (2, true), (3, true)], [true, true, true]),
            ([(3, true), (1, true), (2, true)], [true, false, false]),
            ([(2, true), (3, false), (1, true)], [true, false, false]),
            ([(3, false), (2, true), (1, true)], [false, true, false]),
        ];
        for (ends, expected) in table {
            let mut choice = ModelChoice::default();
            let numbers: Vec<_> = (0..3).map(|_| choice.begin_change().unwrap()).collect();
            assert_eq!(numbers, [1, 2, 3]);
            assert_eq!(ends.map(|(number, found)| choice.end_change(number, found)), expected);
        }
    }

    #[tokio::test]
    async fn the_number_of_pending_queries_is_limited() {
        let mut choice = ModelChoice::default();
        choice.queries.push(Box::pin(async { ModelQuery::List }));
        while choice.begin_change().is_ok() {
            choice.queries.push(Box::pin(async { ModelQuery::List }));
        }
        assert_eq!((choice.requested, choice.queries.len()), (7, MAX_PENDING));
        choice.next().await;
        assert_eq!(choice.begin_change().unwrap(), 8);
    }
}
