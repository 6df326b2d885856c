//! The changes of a session's model and their order. A change may wait for the provider's list of models, and a
//! slow one must not undo a later one.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::SessionHost;
use super::settings::{self, ChosenModel};
use crate::completion::Completion;
use crate::error::Error;
use turnwright_llm::Model;
use turnwright_types::update::ConfigOption;

/// The most model changes that may wait for a provider's list.
const MAX_PENDING: usize = 8;

/// Looks for the models that are chosen, and numbers these changes.
#[derive(Default)]
pub(super) struct ModelChoice {
    /// The number of the last change that was requested.
    requested: u64,
    /// The number of the last change that was applied.
    applied: u64,
    /// How many queries of the provider have not ended, for changes and for its list.
    pending: usize,
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
    pub(super) fn is_idle(&self) -> bool {
        self.queries.is_empty()
    }

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
        let choosing = settings::choose(Arc::clone(host), name);
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
        self.pending += 1;
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
        if self.pending >= MAX_PENDING {
            let busy = "Earlier changes of the model are still waiting for the provider";
            return Err(Error::InvalidState(busy.to_owned()));
        }
        self.pending += 1;
        self.requested += 1;
        Ok(self.requested)
    }

    /// Ends a change. Returns whether its model is to be used: it was found, and no later change was
    /// applied meanwhile.
    pub(super) fn end_change(&mut self, number: u64, is_found: bool) -> bool {
        self.pending -= 1;
        let is_newer = is_found && number > self.applied;
        if is_newer {
            self.applied = number;
        }
        is_newer
    }

    pub(super) fn end_list(&mut self) {
        self.pending -= 1;
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

    #[test]
    fn the_number_of_pending_queries_is_limited() {
        let mut choice = ModelChoice::default();
        choice.pending += 1;
        while choice.begin_change().is_ok() {}
        assert_eq!((choice.requested, choice.pending), (7, MAX_PENDING));
        choice.end_list();
        assert_eq!(choice.begin_change().unwrap(), 8);
    }
}
