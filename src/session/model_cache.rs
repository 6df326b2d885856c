//! The models of one process: created from the settings when first used, kept while the settings
//! stay the same, listed on request.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;

use crate::error::Error;
use turnwright_config::{EndpointSettings, ModelProfiles, NO_MODEL, Provider};
use turnwright_llm::offline::OfflineModel;
use turnwright_llm::quirks::QuirkPatch;
use turnwright_llm::{
    Endpoint, LlmError, Model, ModelProfile, ModelSettings, Price, RemoteModel, SaveProfile,
    Traffic, known_context_window,
};

/// The most models that a client is offered. OpenRouter alone lists some 450, and several providers may be in use.
const MAX_CHOICES: usize = 2000;
/// The most models that are kept; another one has to connect anew.
const MAX_CACHED: usize = 16;
/// The advice if a server wants a key and none is known for it.
const NO_KEY_SENT: &str = "No key was sent. Run `turnwright login`, or set the variable that holds the key, such as \
                           OPENAI_API_KEY";
/// How long a model list is used before it is fetched again.
const LIST_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long after a failed request for its list a provider is not asked again on our own initiative.
const RETRY_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The models in use and those that can be chosen.
#[derive(Debug)]
pub(super) struct ModelCache {
    // Held only to look through a few entries.
    known: Mutex<KnownModels>,
    profiles: ModelProfiles,
    /// Sees all requests to models.
    traffic: Arc<dyn Traffic>,
    tracker: TaskTracker,
}

#[derive(Debug, Default)]
struct KnownModels {
    in_use: Vec<(Provider, Arc<dyn Model>)>,
    /// The models that each provider has listed, by the provider's own names: several of the user's
    /// names may refer to one.
    lists: BTreeMap<String, ModelList>,
    /// The models that the settings offered when the last session was opened, so that a turn reads no files for it.
    offered: Vec<String>,
    /// True if providers may be asked for their models.
    may_list: bool,
}

/// The known models of a provider.
#[derive(Debug)]
struct ModelList {
    /// Empty if the provider has not answered yet.
    names: Vec<String>,
    /// From when on the provider is to be asked again.
    outdated_at: Instant,
}

impl KnownModels {
    fn find(&self, provider: &Provider) -> Option<Arc<dyn Model>> {
        self.in_use.iter().find(|(from, _)| from == provider).map(|(_, model)| Arc::clone(model))
    }

    /// The models that this model's provider has listed, if it was asked.
    fn listed(&self, model: &dyn Model) -> Option<Vec<String>> {
        let list = self.lists.get(&model.server_id()).filter(|list| !list.names.is_empty())?;
        Some(list.names.iter().map(|name| model.qualified_name(name)).collect())
    }

    fn is_outdated(&self, model: &dyn Model) -> bool {
        let list = self.lists.get(&model.server_id());
        list.is_none_or(|list| list.outdated_at <= Instant::now())
    }
}

impl ModelCache {
    pub(super) fn new(
        profiles: ModelProfiles,
        traffic: Arc<dyn Traffic>,
        tracker: TaskTracker,
    ) -> ModelCache {
        ModelCache { known: Mutex::default(), profiles, traffic, tracker }
    }

    /// Returns the model for these settings. A login or a changed configuration creates another
    /// one.
    pub(super) fn get(&self, provider: Provider, may_list: bool) -> Result<Arc<dyn Model>, Error> {
        if let Some(model) = self.known.lock().find(&provider) {
            return Ok(model);
        }
        let made = self.make(provider.clone(), may_list)?;
        let mut known = self.known.lock();
        if let Some(model) = known.find(&provider) {
            // Another session has created it meanwhile.
            return Ok(model);
        }
        // In the background: `session/new` is answered before the client is built, and the first
        // prompt finds it ready.
        let warm = Arc::clone(&made);
        self.tracker.spawn(async move { warm.warm_up().await });
        known.in_use.insert(0, (provider, Arc::clone(&made)));
        known.in_use.truncate(MAX_CACHED);
        Ok(made)
    }

    fn make(&self, provider: Provider, may_list: bool) -> Result<Arc<dyn Model>, Error> {
        let endpoint = match provider {
            Provider::Unconfigured => return Err(Error::NoModelConfigured(NO_MODEL.to_owned())),
            Provider::Offline => return Ok(Arc::new(OfflineModel)),
            Provider::Endpoint(endpoint) => *endpoint,
        };
        let protocol = endpoint.api.unwrap_or_default();
        let base_url = endpoint.base_url.clone();
        let headers = endpoint.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        let key = endpoint.key.clone();
        let advice = match &key {
            Some(key) => Some(key.origin.advice()),
            None => endpoint.headers.is_empty().then(|| NO_KEY_SENT.to_owned()),
        };
        let server = Endpoint::new(&base_url, key.map(|key| key.secret))?
            .with_key_advice(advice)
            .with_traffic(Arc::clone(&self.traffic))
            .with_headers(headers)?;
        let stored = self.profiles.load_model_list(&base_url).map(|(names, asked_at)| {
            (names, LIST_AGE.saturating_sub(asked_at.elapsed().unwrap_or(LIST_AGE)))
        });
        let is_list_recent = stored.as_ref().is_some_and(|(_, valid_for)| !valid_for.is_zero());
        let mut settings =
            ModelSettings { listing_disabled: !may_list, ..self.settings(endpoint)? };
        settings.was_listed &= is_list_recent;
        let model = RemoteModel::new(protocol, server, settings);
        if let Some((names, valid_for)) = stored {
            // An old list is better than none until the provider has answered.
            self.remember(&model, names, valid_for);
        }
        Ok(Arc::new(model))
    }

    fn settings(&self, endpoint: EndpointSettings) -> Result<ModelSettings, Error> {
        let name = endpoint.full_name();
        let shown = endpoint.redacted_url();
        let silence_limit = Some(endpoint.silence_limit());
        let assumed_window = endpoint.assumed_window;
        let EndpointSettings {
            name: provider, base_url, model, window, mut quirks, request, ..
        } = endpoint;
        let (Some(name), Some(model)) = (name, model) else {
            return Err(Error::Llm(LlmError::Config(format!(
                "No model is named for {shown}. Set TURNWRIGHT_MODEL to one that it serves"
            ))));
        };
        let mut body = match quirks.remove("body") {
            Some(Value::Object(body)) => body,
            _ => Map::new(),
        };
        body.extend(request);
        let (wishes, wrong) = QuirkPatch::parse(&quirks);
        for wrong in wrong {
            tracing::warn!(model = name, wrong, "a quirk in the configuration has no effect");
        }
        let price = endpoint.price.and_then(plausible_price);
        let window = window.filter(|window| *window > 0);
        let learned = self.profiles.load(&base_url, &model);
        let was_listed = learned.is_some();
        let mut learned = learned.map(|profile| read_learned(&profile)).unwrap_or_default();
        if window.is_some() {
            // The user may have enlarged the window since it was learned. If not, the server will
            // report it again.
            learned.window = None;
        }
        let save_profile = Some(self.profile_writer(base_url, model.clone()));
        Ok(ModelSettings {
            has_named_api: endpoint.api.is_some(),
            provider,
            window,
            usual_window: known_context_window(&model),
            assumed_window,
            max_output: endpoint.max_output,
            price,
            profile: learned,
            overrides: wishes,
            extra_body: body,
            listing_disabled: false,
            was_listed,
            silence_limit,
            save_profile,
            name,
            model,
        })
    }

    /// Stores what is learned about a model. The last note wins, whichever thread is the fastest.
    fn profile_writer(&self, base_url: String, model: String) -> SaveProfile {
        let profiles = self.profiles.clone();
        let tracker = self.tracker.clone();
        // The number of the last note.
        let last = Arc::new(AtomicU64::new(0));
        // Held while writing, on a blocking thread.
        let writing = Arc::new(Mutex::new(()));
        Arc::new(move |learned: &ModelProfile| {
            let Ok(value) = serde_json::to_value(learned) else { return };
            let number = last.fetch_add(1, Ordering::Relaxed) + 1;
            let profiles = profiles.clone();
            let base_url = base_url.clone();
            let model = model.clone();
            let last = Arc::clone(&last);
            let writing = Arc::clone(&writing);
            tracker.spawn_blocking(move || {
                let _writing = writing.lock();
                // A later note follows.
                if last.load(Ordering::Relaxed) != number {
                    return;
                }
                if let Err(error) = profiles.store(&base_url, &model, &value) {
                    tracing::warn!(%error, "what was learned could not be stored");
                }
            });
        })
    }

    /// All models of this model's provider, by the names under which they can be chosen. The provider is asked
    /// at most once a day.
    pub(super) async fn list(&self, model: &dyn Model) -> Result<Vec<String>, LlmError> {
        let recent = {
            let known = self.known.lock();
            known.listed(model).filter(|_| !known.is_outdated(model))
        };
        match recent {
            Some(names) => Ok(names),
            None => self.refresh(model).await,
        }
    }

    /// Returns true if the provider's list should be fetched unasked. If so, it returns false for some minutes
    /// afterwards.
    pub(super) fn should_prefetch(&self, model: &dyn Model) -> bool {
        let mut known = self.known.lock();
        let is_outdated = model.has_model_list() && known.is_outdated(model);
        if is_outdated {
            let outdated_at = Instant::now() + RETRY_INTERVAL;
            let unknown = ModelList { names: Vec::new(), outdated_at };
            known.lists.entry(model.server_id()).or_insert(unknown).outdated_at = outdated_at;
        }
        is_outdated
    }

    /// Like [`ModelCache::list`], but always asks the provider: there may be new models.
    pub(super) async fn refresh(&self, model: &dyn Model) -> Result<Vec<String>, LlmError> {
        let names = model.list_models().await?;
        let full = names.iter().map(|name| model.qualified_name(name)).collect();
        // An empty list may be a mistake of the provider.
        if !names.is_empty() {
            self.remember(model, names.clone(), LIST_AGE);
            let profiles = self.profiles.clone();
            let provider = model.server_id();
            self.tracker.spawn_blocking(move || {
                if let Err(error) = profiles.store_model_list(&provider, &names) {
                    tracing::warn!(%error, "the list of models could not be stored");
                }
            });
        }
        Ok(full)
    }

    fn remember(&self, model: &dyn Model, names: Vec<String>, valid_for: Duration) {
        let list = ModelList { names, outdated_at: Instant::now() + valid_for };
        self.known.lock().lists.insert(model.server_id(), list);
    }

    /// Takes note of the models that the settings offer, and whether providers may be asked for theirs.
    pub(super) fn set_offered(&self, names: Vec<String>, may_list: bool) {
        let mut known = self.known.lock();
        known.offered = names;
        known.may_list = may_list;
    }

    /// Returns true if providers may be asked for their models.
    pub(super) fn may_list(&self) -> bool {
        self.known.lock().may_list
    }

    /// The names of the models that can be chosen, as far as they are known: those of the settings, and all that the
    /// providers in use have listed.
    pub(super) fn choices(&self) -> Vec<String> {
        let known = self.known.lock();
        let mut names = known.offered.clone();
        // One model of each provider, in an order that does not depend on the current model.
        let providers: BTreeMap<_, _> =
            known.in_use.iter().map(|(_, model)| (model.qualified_name(""), model)).collect();
        names.extend(providers.values().filter_map(|model| known.listed(model.as_ref())).flatten());
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names.truncate(MAX_CHOICES);
        names
    }
}

/// The price of a model, unless a number is absurd.
fn plausible_price(configured: turnwright_config::Price) -> Option<Price> {
    let turnwright_config::Price { input, cached, output } = configured;
    let price = Price { input, cached: cached.unwrap_or(input), output };
    let numbers = [price.input, price.cached, price.output];
    numbers.iter().all(|number| number.is_finite() && (0.0..1e6).contains(number)).then_some(price)
}

/// Reads a stored profile as far as it is valid: a newer version may have written it.
fn read_learned(profile: &Value) -> ModelProfile {
    let quirks = profile.get("quirks").and_then(Value::as_object);
    let window = profile.get("window").and_then(Value::as_u64).filter(|window| *window > 0);
    let price = profile.get("price").and_then(|price| Price::deserialize(price).ok());
    ModelProfile {
        quirks: quirks.map(|quirks| QuirkPatch::parse(quirks).0).unwrap_or_default(),
        window,
        price,
    }
}
