//! What the sessions of one process share: the settings, the tools and the model.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::models::Models;
use super::project_servers::one_of_each_name;
use super::servers::Site;
use super::{mcp, standing};
use turnwright_types::client::{Buffers, Client, Display};
use crate::config::{Config, Profiles, Provider, is_well_known};
use crate::error::Error;
use turnwright_workspace::exec::{Environment, Jobs};
use turnwright_workspace::files::{Files, Roots};
use turnwright_types::ids::SessionId;
use turnwright_llm::{LlmError, Model, Senses};
use crate::mcp::{Fleet, Hub, Logins, ServerSpec};
use turnwright_policy::permission::{Law, Mode, SharedMode};
use turnwright_types::redact;
use turnwright_store::{Limits, Log, Store};
use crate::tools::{Bench, Commons, Folders, Lent, Registry, Toolbox, built_in};
use crate::trust::Trust;
use crate::turn::{Equipment, Errands, SharedLaw, SharedThinker, ToldMode};

/// The most models that a client is offered.
const MOST_CHOICES: usize = 500;

/// The process's side of all sessions.
#[derive(Debug)]
pub struct Host {
    config: Config,
    /// What the user trusts of what projects bring along.
    pub(super) trust: Trust,
    tools: Arc<Registry>,
    environment: Environment,
    servers: Hub,
    commons: Arc<Commons>,
    /// The built-in model was chosen; it is used as long as no other is configured.
    offline: AtomicBool,
    models: Models,
    store: Store,
    /// What the settings offered when the last session was opened: a turn reads no files for it.
    // A std mutex: held to copy a few names.
    offered: Mutex<Offered>,
    stop: CancellationToken,
    tracker: TaskTracker,
    /// Finds out what the sandbox can do here, once.
    warming: Once,
}

/// What the settings offer.
#[derive(Clone, Debug, Default)]
struct Offered {
    names: Vec<String>,
    /// Whether providers may be asked for their models.
    may_list: bool,
}

/// What there is for a folder.
struct Furnished {
    bench: Bench,
    law: Law,
    /// What the user has to know.
    notices: Vec<String>,
    /// The servers of the project that are trusted.
    servers: Vec<ServerSpec>,
}

impl Host {
    /// A host with these settings. Its sessions end when `stop` is cancelled.
    pub fn new(config: Config, stop: CancellationToken) -> Host {
        let secrets = config.secrets();
        let secrets: Vec<_> = secrets.iter().map(String::as_str).collect();
        let environment = Environment::scrubbed(config.inherited.iter().cloned(), &secrets);
        #[cfg(unix)]
        turnwright_workspace::exec::launcher();
        let tracker = TaskTracker::new();
        let folders = Folders {
            config: config.paths.config.clone(),
            state: config.paths.state.clone(),
            home: config.paths.home.clone(),
        };
        let mut commons = Commons::new(folders);
        commons.web.set_proxies(config.proxies());
        let models = Models::new(Profiles::new(&config.paths), tracker.clone());
        Host {
            trust: Trust::new(&config.paths.state),
            store: Store::new(&config.paths.state),
            config,
            tools: Arc::new(Registry::new(built_in())),
            servers: Hub::new(environment.clone(), stop.child_token(), tracker.clone()),
            environment,
            commons: Arc::new(commons),
            offline: AtomicBool::new(false),
            models,
            offered: Mutex::default(),
            stop,
            tracker,
            warming: Once::new(),
        }
    }

    /// What is kept of all sessions.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether sessions can be opened without choosing a model first.
    pub fn is_configured(&self) -> bool {
        // Settings that cannot be used are told by `session/new`, where the user sees them.
        !matches!(self.config.provider(), Ok(Provider::None))
    }

    /// Uses the built-in model until another one is configured.
    pub fn use_offline(&self) {
        self.offline.store(true, Ordering::Relaxed);
    }

    /// What the user has to know about the sandbox when a session begins in that mode.
    fn sandbox_notice(mode: Mode) -> Option<String> {
        let is_worth_it = !turnwright_sandbox::can_confine() && mode != Mode::Full;
        is_worth_it.then(|| {
            let why = turnwright_sandbox::capabilities().missing.join("; ");
            format!(
                "The sandbox is not available here ({why}): commands are asked about one by one."
            )
        })
    }

    /// Has the sandbox ready for the first command: finding out what it can do takes some
    /// milliseconds, which nobody shall wait for.
    pub(super) fn warm_up(&self) {
        self.warming.call_once(|| {
            self.tracker.spawn_blocking(|| turnwright_sandbox::can_confine().then(turnwright_sandbox::rooms));
        });
    }

    /// Waits until all sessions and turns have ended, and until what they have said is kept.
    pub async fn finished(&self) {
        self.tracker.close();
        self.tracker.wait().await;
        drop(self.store.flush_for_good().await);
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

    /// What a session works with, what its user has to know, and the servers of its project that
    /// are trusted.
    pub(super) fn equip(
        &self,
        id: SessionId,
        roots: Roots,
        client: Arc<dyn Client>,
        buffers: Option<Arc<dyn Buffers>>,
        display: Display,
    ) -> Result<(Equipment, Vec<String>, Vec<ServerSpec>), Error> {
        let log = Log::new(self.store.clone(), id.clone());
        let furnished = self.furnish(id, roots, client, buffers, display);
        let Furnished { mut bench, law, notices, servers } = furnished;
        bench.log = log;
        let equipment = Equipment {
            thinker: SharedThinker::new(self.model()?, self.config.effort()),
            tools: Arc::new(Toolbox::new(Arc::clone(&self.tools), Lent::default())),
            mode: bench.mode.clone(),
            bench: Arc::new(bench),
            told_mode: ToldMode::default(),
            law: SharedLaw::new(law),
            max_requests: self.config.max_turn_requests(),
            knows_of_cuts: Arc::default(),
        };
        Ok((equipment, notices, servers))
    }

    /// Calls without a conversation, for clients of our own server: they are under the law of these
    /// folders, and nothing of them is kept. Returns what there is to know about that too.
    pub fn errands(
        &self,
        roots: Roots,
        client: Arc<dyn Client>,
        mode: Option<Mode>,
    ) -> (Errands, Vec<String>) {
        self.warm_up();
        let id = SessionId::random();
        let furnished = self.furnish(id, roots, client, None, Display::Text);
        let Furnished { bench, law, notices, .. } = furnished;
        let shared = bench.mode.clone();
        if let Some(mode) = mode {
            shared.set(mode);
        }
        (Errands::new(bench, shared, SharedLaw::new(law)), notices)
    }

    /// The bench for these folders, the law that holds there, and what the user has to know.
    fn furnish(
        &self,
        id: SessionId,
        roots: Roots,
        client: Arc<dyn Client>,
        buffers: Option<Arc<dyn Buffers>>,
        display: Display,
    ) -> Furnished {
        self.refresh();
        // Who opens a session in their home folder has not given the model the key, or the book of
        // what it may do.
        let paths = &self.config.paths;
        let roots = roots.without(&paths.config).without(&paths.state);
        let roots = roots.and_readable(&Jobs::folder(&paths.state, &id));
        let standing = standing::stand(&self.config, &self.trust, &roots);
        let notices = standing.notice().into_iter().chain(Host::sandbox_notice(standing.mode));
        let notices: Vec<_> = notices.collect();
        let mut bench = Bench::new(
            id,
            Files::new(roots, buffers),
            self.environment.clone(),
            client,
            display,
            Arc::clone(&self.commons),
        );
        bench.mode = SharedMode::new(standing.mode, standing.most);
        bench.walls = standing::walls(&self.config, standing.sandbox, &standing.law);
        Furnished { bench, law: standing.law, notices, servers: standing.servers }
    }

    /// Has the servers connected that a session is to have: those that its client wants, and those
    /// of the settings that are none of these. Returns what the user has to know, too.
    pub(super) fn launch(
        &self,
        servers: &[ServerSpec],
        equipment: &Equipment,
    ) -> (Fleet, Vec<String>) {
        let (bench, law) = (&equipment.bench, equipment.law.get());
        let site = Site {
            walls: &bench.walls,
            roots: bench.files.roots(),
            law: &law,
            forms: bench.client.has_forms(),
        };
        self.launch_for(servers, &site, equipment.tools.lent().clone())
    }

    /// The same, for whoever has no session.
    pub(super) fn launch_for(
        &self,
        servers: &[ServerSpec],
        site: &Site<'_>,
        lent: Lent,
    ) -> (Fleet, Vec<String>) {
        let ground = site.ground(Logins::new(&self.config.paths.config));
        let (settings, notices) = mcp::settings(&self.config);
        let servers = mcp::with_configured(servers, &settings, site.roots.real_cwd());
        let servers = one_of_each_name(servers);
        (Fleet::launch(&self.servers, &servers, &ground, lent, settings.wait), notices)
    }

    /// What prompts may hold besides text, as far as it depends on the model that sessions
    /// begin with.
    pub fn senses(&self) -> Senses {
        self.model().map(|it| it.senses()).unwrap_or_default()
    }

    /// The names of the models that can be chosen, as far as they are known now.
    pub(super) fn choices(&self) -> Vec<String> {
        let mut names = self.offered().names;
        for name in self.models.all_listed() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.truncate(MOST_CHOICES);
        names
    }

    /// All models of that one's provider. It is asked once a day.
    pub(super) async fn list(&self, model: &Arc<dyn Model>) -> Result<Vec<String>, LlmError> {
        self.models.list(model.as_ref()).await
    }

    /// The same, asked for now: there may be more than yesterday.
    pub(super) async fn list_anew(&self, model: &Arc<dyn Model>) -> Result<Vec<String>, LlmError> {
        self.models.ask(model.as_ref()).await
    }

    /// Whether providers may be asked for their models.
    pub(super) fn may_list(&self) -> bool {
        self.offered().may_list
    }

    /// Looks up what the settings offer now.
    fn refresh(&self) {
        redact::learn(self.config.secrets());
        self.commons.web.set_allowed(&self.config.web_allow());
        let kept = self.config.sessions();
        self.store.keep_to(Limits {
            days: kept.keep_days,
            bytes: kept.max_size.saturating_mul(1024 * 1024),
        });
        let may_list = self.config.list_models();
        let offered = Offered { names: self.config.choices(), may_list };
        *self.offered.lock().unwrap_or_else(PoisonError::into_inner) = offered;
    }

    fn offered(&self) -> Offered {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether that model's provider should be asked for its list by the way. Only those that are
    /// known to have one are: for any other server, a request that nobody has made is a surprise.
    pub(super) fn wants_list(&self, model: &Arc<dyn Model>) -> bool {
        is_well_known(&model.provider())
            && self.may_list()
            && self.models.listed(model.as_ref()).is_none()
    }

    /// The model of that name. Reads files: not for the runtime's thread.
    pub(super) fn model_named(&self, name: &str) -> Result<Arc<dyn Model>, Error> {
        redact::learn(self.config.secrets());
        let provider = self.config.provider_for(name).map_err(settings_error)?;
        self.models.get(provider, self.config.list_models())
    }

    /// The model that sessions begin with.
    ///
    /// # Errors
    /// When none is configured, or the settings for it cannot be used.
    pub fn model(&self) -> Result<Arc<dyn Model>, Error> {
        redact::learn(self.config.secrets());
        let provider = match self.config.provider().map_err(settings_error)? {
            Provider::None if self.offline.load(Ordering::Relaxed) => Provider::Offline,
            provider => provider,
        };
        self.models.get(provider, self.config.list_models())
    }
}

fn settings_error(error: impl std::error::Error) -> Error {
    Error::Llm(LlmError::Settings(error.to_string()))
}
