//! What the sessions of one process share: the settings, the tools and the model.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{Buffers, Client};
use crate::config::{Config, Provider};
use crate::error::Error;
use crate::exec::Environment;
use crate::files::{Files, Roots};
use crate::llm::chat::Chat;
use crate::llm::offline::Offline;
use crate::llm::{Effort, Endpoint, LlmError, Model, Senses, Settings, context_window};
use crate::permission::Mode;
use crate::tools::{Registry, built_in};
use crate::turn::{Equipment, SharedMode, SharedThinker};

/// The process's side of all sessions.
#[derive(Debug)]
pub struct Host {
    config: Config,
    tools: Arc<Registry>,
    environment: Environment,
    /// The built-in model was chosen; it is used as long as no other is configured.
    offline: AtomicBool,
    /// The model of the last session and what it was made from: a login in the meantime, or a
    /// logout, counts for the next one.
    // A std mutex: set once or twice in the life of a process, never held across an await.
    model: Mutex<Option<(Provider, Arc<dyn Model>)>>,
    /// The models that each provider serves, as far as it was asked.
    lists: Mutex<BTreeMap<String, Vec<String>>>,
    stop: CancellationToken,
    tracker: TaskTracker,
}

impl Host {
    /// A host with these settings. Its sessions end when `stop` is cancelled.
    pub fn new(config: Config, stop: CancellationToken) -> Host {
        let secrets = config.secrets();
        let secrets: Vec<_> = secrets.iter().map(String::as_str).collect();
        let environment = Environment::scrubbed(config.inherited.iter().cloned(), &secrets);
        Host {
            config,
            tools: Arc::new(Registry::new(built_in())),
            environment,
            offline: AtomicBool::new(false),
            model: Mutex::new(None),
            lists: Mutex::default(),
            stop,
            tracker: TaskTracker::new(),
        }
    }

    /// Whether sessions can be opened without choosing a model first.
    pub fn is_configured(&self) -> bool {
        !matches!(self.config.provider(), Provider::None)
    }

    /// Uses the built-in model until another one is configured.
    pub fn use_offline(&self) {
        self.offline.store(true, Ordering::Relaxed);
    }

    /// The mode that sessions begin in.
    pub fn default_mode(&self) -> Mode {
        let set = self.config.mode.as_deref();
        let mode = set.map(|it| (it, Mode::parse(it)));
        if let Some((unknown, None)) = mode {
            // Never more than was asked for: the usual mode asks before it does anything.
            tracing::warn!(unknown, "TURNWRIGHT_MODE is none of ask, plan; ask is used");
        }
        mode.and_then(|(_, it)| it).unwrap_or_default()
    }

    /// Waits until all sessions and turns have ended.
    pub async fn finished(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    pub(super) fn tracker(&self) -> TaskTracker {
        self.tracker.clone()
    }

    pub(super) fn stop_token(&self) -> CancellationToken {
        self.stop.child_token()
    }

    pub(super) fn equip(
        &self,
        roots: Roots,
        client: Arc<dyn Client>,
        buffers: Option<Arc<dyn Buffers>>,
    ) -> Result<Equipment, Error> {
        let mode = SharedMode::default();
        mode.set(self.default_mode());
        // Who opens a session in their home folder has not given the key to the model.
        let roots = roots.without(&self.config.paths.config);
        Ok(Equipment {
            thinker: SharedThinker::new(self.model()?, Effort::Default),
            tools: Arc::clone(&self.tools),
            files: Files::new(roots, buffers),
            environment: self.environment.clone(),
            client,
            mode,
            max_requests: self.config.max_turn_requests,
        })
    }

    /// What prompts may hold besides text, as far as it depends on the model that sessions
    /// begin with.
    pub fn senses(&self) -> Senses {
        self.model().map(|it| it.senses()).unwrap_or_default()
    }

    /// The names of the models that can be chosen without asking anybody.
    pub(super) fn choices(&self) -> Vec<String> {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.values().flatten().cloned().collect()
    }

    /// All models of that one's provider. Asked for once in the life of the process.
    pub(super) async fn list(&self, model: &Arc<dyn Model>) -> Result<Vec<String>, LlmError> {
        let provider = model.provider();
        let known = || self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(names) = known().get(&provider) {
            return Ok(names.clone());
        }
        let names = model.list().await?;
        known().insert(provider, names.clone());
        Ok(names)
    }

    /// The model of that name.
    pub(super) fn model_named(&self, name: &str) -> Result<Arc<dyn Model>, Error> {
        let _ = name;
        self.model()
    }

    fn model(&self) -> Result<Arc<dyn Model>, Error> {
        let provider = match self.config.provider() {
            Provider::None if self.offline.load(Ordering::Relaxed) => Provider::Offline,
            provider => provider,
        };
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((from, model)) = model.as_ref()
            && *from == provider
        {
            return Ok(Arc::clone(model));
        }
        let made: Arc<dyn Model> = match provider.clone() {
            Provider::None => return Err(Error::NotSignedIn),
            Provider::Offline => Arc::new(Offline),
            Provider::Endpoint { base_url, key, model, window } => {
                let Some(name) = model else {
                    return Err(Error::Llm(LlmError::Settings(format!(
                        "No model is named for {base_url}. Set TURNWRIGHT_MODEL to one that it \
                         serves"
                    ))));
                };
                let window = window.or_else(|| context_window(&name));
                let settings = Settings { window, ..Settings::named(name) };
                Arc::new(Chat::new(Endpoint::new(&base_url, key)?, settings))
            }
        };
        // Off the way: `session/new` is answered before the client is built, and the first
        // prompt finds it ready.
        let warm = Arc::clone(&made);
        self.tracker.spawn(async move { warm.warm_up().await });
        *model = Some((provider, Arc::clone(&made)));
        Ok(made)
    }
}
