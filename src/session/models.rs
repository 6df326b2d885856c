//! The models of one process: made from the settings when they are first wanted, kept while the
//! settings stay the same, listed when somebody asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;

use crate::config::{Api, EndpointSettings, Profiles, Provider, Secret};
use crate::error::Error;
use turnwright_llm::offline::Offline;
use turnwright_llm::quirks::Patch;
use turnwright_llm::{
    Endpoint, Learned, LlmError, Model, Notebook, Price, Protocol, Remote, Settings, context_window,
};

/// Models that are kept; one that is not has to connect anew.
const MOST_KEPT: usize = 16;
/// How long a list of models is good.
const LIST_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The models.
#[derive(Debug)]
pub(super) struct Models {
    // Both are std mutexes: held to look through a few entries, never across an await.
    kept: Mutex<Vec<(Provider, Arc<dyn Model>)>>,
    /// What each server serves, as far as it was asked, by its own names: it may be there under
    /// several of the user's.
    lists: Mutex<BTreeMap<String, Vec<String>>>,
    profiles: Profiles,
    tracker: TaskTracker,
}

impl Models {
    pub(super) fn new(profiles: Profiles, tracker: TaskTracker) -> Models {
        Models { kept: Mutex::default(), lists: Mutex::default(), profiles, tracker }
    }

    /// The model that these settings stand for. A login in the meantime, or a change of the
    /// configuration, makes another one.
    pub(super) fn get(&self, provider: Provider, may_list: bool) -> Result<Arc<dyn Model>, Error> {
        let find = |kept: &[(Provider, Arc<dyn Model>)]| {
            kept.iter().find(|(from, _)| *from == provider).map(|(_, model)| Arc::clone(model))
        };
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = find(&kept()) {
            return Ok(model);
        }
        let made = self.make(provider.clone(), may_list)?;
        let mut kept = kept();
        if let Some(model) = find(&kept) {
            // Somebody else has made it meanwhile.
            return Ok(model);
        }
        // Off the way: `session/new` is answered before the client is built, and the first
        // prompt finds it ready.
        let warm = Arc::clone(&made);
        self.tracker.spawn(async move { warm.warm_up().await });
        kept.insert(0, (provider, Arc::clone(&made)));
        kept.truncate(MOST_KEPT);
        Ok(made)
    }

    fn make(&self, provider: Provider, may_list: bool) -> Result<Arc<dyn Model>, Error> {
        let endpoint = match provider {
            Provider::None => return Err(Error::NotSignedIn),
            Provider::Offline => return Ok(Arc::new(Offline)),
            Provider::Endpoint(endpoint) => *endpoint,
        };
        let (api, base_url) = (endpoint.api, endpoint.base_url.clone());
        let headers =
            endpoint.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_inner()));
        let server = Endpoint::new(&base_url, endpoint.key.clone().map(Secret::into_inner))?
            .with_headers(headers)?;
        let settings = Settings { asks_nothing: !may_list, ..self.settings(endpoint)? };
        let protocol = match api {
            Api::Chat => Protocol::Chat,
            Api::Responses => Protocol::Responses,
        };
        let model = Remote::new(protocol, server, settings);
        if let Some((names, asked_at)) = self.profiles.models_list(&base_url)
            && asked_at.elapsed().is_ok_and(|it| it < LIST_AGE)
        {
            self.remember(&model, names);
        }
        Ok(Arc::new(model))
    }

    fn settings(&self, endpoint: EndpointSettings) -> Result<Settings, Error> {
        let (name, shown) = (endpoint.full_name(), endpoint.shown_url());
        let EndpointSettings { name: provider, base_url, model, window, mut quirks, .. } = endpoint;
        let (Some(name), Some(model)) = (name, model) else {
            return Err(Error::Llm(LlmError::Settings(format!(
                "No model is named for {shown}. Set TURNWRIGHT_MODEL to one that it serves"
            ))));
        };
        let body = match quirks.remove("body") {
            Some(Value::Object(body)) => body,
            _ => Map::new(),
        };
        let (wishes, wrong) = Patch::read(&quirks);
        for wrong in wrong {
            tracing::warn!(model = name, wrong, "a quirk in the configuration has no effect");
        }
        let price = endpoint.price.map(|it| Price {
            input: it.input,
            cached: it.cached.unwrap_or(it.input),
            output: it.output,
        });
        let is_price = |it: &Price| {
            [it.input, it.cached, it.output]
                .iter()
                .all(|it| it.is_finite() && (0.0..1e6).contains(it))
        };
        let price = price.filter(is_price);
        let window = window.filter(|it| *it > 0);
        let learned = self.profiles.load(&base_url, &model);
        let mut learned = learned.map(|it| read_learned(&it)).unwrap_or_default();
        if window.is_some() {
            // The user may have enlarged it since. If not, the server will say so again.
            learned.window = None;
        }
        let notebook = ProfileWriter {
            profiles: self.profiles.clone(),
            tracker: self.tracker.clone(),
            base_url,
            model: model.clone(),
            due: Arc::default(),
        };
        Ok(Settings {
            provider,
            window: window.or_else(|| context_window(&model)),
            max_output: endpoint.max_output,
            price,
            learned,
            wishes,
            body,
            asks_nothing: false,
            notebook: Some(Arc::new(notebook)),
            name,
            model,
        })
    }

    /// All models of that one's provider, with the name under which each can be chosen.
    pub(super) async fn list(&self, model: &dyn Model) -> Result<Vec<String>, LlmError> {
        match self.listed(model) {
            Some(names) => Ok(names),
            None => self.ask(model).await,
        }
    }

    /// The same, as they are now.
    pub(super) async fn ask(&self, model: &dyn Model) -> Result<Vec<String>, LlmError> {
        let names = model.list().await?;
        let full = names.iter().map(|it| model.full_name(it)).collect();
        // Whoever lists nothing may do so by mistake.
        if !names.is_empty() {
            self.remember(model, names.clone());
            let (profiles, provider) = (self.profiles.clone(), model.provider());
            self.tracker.spawn_blocking(move || {
                if let Err(error) = profiles.store_models_list(&provider, &names) {
                    tracing::warn!(%error, "the list of models could not be kept");
                }
            });
        }
        Ok(full)
    }

    /// What the provider of that model has listed, if it was asked.
    pub(super) fn listed(&self, model: &dyn Model) -> Option<Vec<String>> {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let names = lists.get(&model.provider())?;
        Some(names.iter().map(|it| model.full_name(it)).collect())
    }

    fn remember(&self, model: &dyn Model, names: Vec<String>) {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.insert(model.provider(), names);
    }

    /// All that any provider in use has listed.
    pub(super) fn all_listed(&self) -> Vec<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // One model of each provider, in an order that a change of the model does not change.
        let providers: BTreeMap<_, _> =
            kept.iter().map(|(_, model)| (model.full_name(""), model)).collect();
        providers.values().filter_map(|it| self.listed(it.as_ref())).flatten().collect()
    }
}

/// A profile as far as it makes sense: a newer version may have written it.
fn read_learned(profile: &Value) -> Learned {
    let quirks = profile.get("quirks").and_then(Value::as_object);
    let window = profile.get("window").and_then(Value::as_u64).filter(|it| *it > 0);
    Learned { quirks: quirks.map(|it| Patch::read(it).0).unwrap_or_default(), window }
}

/// Keeps what a model has been found out about.
#[derive(Debug)]
struct ProfileWriter {
    profiles: Profiles,
    tracker: TaskTracker,
    base_url: String,
    model: String,
    due: Arc<Due>,
}

/// What is to be written. The last note is the one that stays, whichever thread is the quickest.
#[derive(Debug, Default)]
struct Due {
    /// `None` when it has been written.
    // A std mutex: held to move a value.
    note: Mutex<Option<Value>>,
    /// Held by who writes, on a blocking thread.
    writing: Mutex<()>,
}

impl Notebook for ProfileWriter {
    fn note(&self, learned: &Learned) {
        let Ok(value) = serde_json::to_value(learned) else { return };
        *self.due.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        let (profiles, base_url) = (self.profiles.clone(), self.base_url.clone());
        let (model, due) = (self.model.clone(), Arc::clone(&self.due));
        self.tracker.spawn_blocking(move || {
            let _writing = due.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let note = due.note.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(value) = note else { return };
            if let Err(error) = profiles.store(&base_url, &model, &value) {
                tracing::warn!(%error, "what was learned could not be kept");
            }
        });
    }
}
