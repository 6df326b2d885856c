//! The state that the sessions of one process share: settings, tools, models, MCP servers and the
//! store.

use futures_util::FutureExt;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::model_cache::ModelCache;
use crate::error::Error;
use crate::tools::{ProcessShared, ToolIndex, UserFolders, built_in};
use turnwright_config::trust::TrustStore;
use turnwright_config::{AccountStatus, Config, ModelProfiles, Paths, Provider, SettingsSnapshot};
use turnwright_llm::{LlmError, Modalities, Model};
use turnwright_mcp::ServerPool;
use turnwright_recording::Recording;
use turnwright_store::{RetentionLimits, Store};
use turnwright_types::private_file;
use turnwright_types::redact::{self, TooManyKeys};
use turnwright_workspace::exec::{Environment, default_memory_limit};
use turnwright_workspace::temp_folder;

/// The error when a client opens a session after it has logged out.
const LOGGED_OUT: &str = "You have logged out. Log in again to open a session";
/// The description of a client that sends more is not stored.
const MAX_CLIENT_BYTES: usize = 16 * 1024;

/// The state that all sessions of the process share.
#[derive(Debug)]
pub(crate) struct SessionHost {
    config: Config,
    /// The project files that the user trusts.
    pub(super) trust: TrustStore,
    pub(super) tools: Arc<ToolIndex>,
    /// The environment variables of commands.
    pub(super) environment: Environment,
    pub(super) servers: ServerPool,
    pub(super) process: Arc<ProcessShared>,
    /// Begun and ended by `/record`. A session knows it only as the world outside.
    recording: Recording,
    /// True if the client has chosen the built-in model. It is used as long as no other is configured.
    is_offline: AtomicBool,
    is_logged_out: AtomicBool,
    pub(super) models: ModelCache,
    store: Store,
    stop: CancellationToken,
    tracker: TaskTracker,
    /// The client's description from `initialize`, until it is stored.
    // Held only to exchange the text.
    new_client: Mutex<Option<String>>,
    /// Commands are prepared for once.
    preparation: Once,
}

impl SessionHost {
    /// Creates the shared state. Its sessions end when `stop` is cancelled.
    pub(crate) fn new(config: Config, stop: CancellationToken) -> SessionHost {
        SessionHost::with_recording(config, Recording::default(), stop)
    }

    /// Creates the shared state of sessions that are recorded or played back.
    pub(crate) fn with_recording(
        config: Config,
        recording: Recording,
        stop: CancellationToken,
    ) -> SessionHost {
        let environment = config.snapshot().command_environment();
        turnwright_workspace::exec::launcher_program();
        let tracker = TaskTracker::new();
        let mut process = ProcessShared::new(user_folders(&config.paths));
        process.web.set_proxies(config.proxy_hosts());
        let profiles = ModelProfiles::new(&config.paths);
        let models = ModelCache::new(profiles, Arc::new(recording.clone()), tracker.clone());
        process.outside = recording.outside();
        SessionHost {
            trust: TrustStore::new(&config.paths.state),
            store: Store::new(&config.paths.state),
            config,
            tools: Arc::new(ToolIndex::new(built_in())),
            servers: ServerPool::new(environment.clone(), stop.child_token(), tracker.clone()),
            environment,
            process: Arc::new(process),
            recording,
            is_offline: AtomicBool::default(),
            is_logged_out: AtomicBool::default(),
            models,
            new_client: Mutex::default(),
            stop,
            tracker,
            preparation: Once::new(),
        }
    }

    pub(crate) fn recording(&self) -> &Recording {
        &self.recording
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the accounts that have keys, for the client to show. Reads files.
    pub(crate) fn account_status(&self) -> AccountStatus {
        self.config.snapshot().account_status(self.is_offline.load(Ordering::Relaxed))
    }

    /// Opens no session until the client has logged in again. Stored keys stay.
    pub(crate) fn log_out(&self) {
        self.is_offline.store(false, Ordering::Relaxed);
        self.is_logged_out.store(true, Ordering::Relaxed);
    }

    /// Undoes [`SessionHost::log_out`].
    pub(crate) fn log_in(&self) {
        self.is_logged_out.store(false, Ordering::Relaxed);
    }

    /// Uses the built-in offline model until another one is configured.
    pub(crate) fn use_offline(&self) {
        self.is_offline.store(true, Ordering::Relaxed);
    }

    /// Prepares for commands in the background, so that the first one does not wait: probes the sandbox,
    /// which takes some milliseconds, and removes the folders of processes that were killed.
    pub(super) fn prepare_for_commands(&self) {
        self.preparation.call_once(|| {
            self.tracker.spawn_blocking(|| {
                if turnwright_sandbox::can_confine() {
                    turnwright_sandbox::namespace_support();
                }
                temp_folder::remove_abandoned_folders();
            });
        });
    }

    /// Asks the system in the background for facts that all sessions need, so that the first one does not wait:
    /// the home folder, if the environment does not name it, the memory, and the sandbox.
    pub(crate) fn look_at_system(self: &Arc<Self>) {
        let host = Arc::clone(self);
        self.tracker.spawn_blocking(move || {
            host.config.home();
            default_memory_limit();
            turnwright_sandbox::can_confine();
        });
    }

    /// Waits until all sessions and turns have ended and everything is stored.
    pub(crate) async fn wait_for_sessions(&self) {
        self.tracker.close();
        self.tracker.wait().await;
        drop(self.store.final_flush().await);
    }

    /// Runs a task that is waited for when the process ends. It is boxed, because tokio makes more than a kilobyte
    /// of code for each type of task.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tracker.spawn(task.boxed())
    }

    pub(crate) fn tracker(&self) -> TaskTracker {
        self.tracker.clone()
    }

    pub(super) fn stop_token(&self) -> CancellationToken {
        self.stop.child_token()
    }

    /// The kinds of prompt content that the default model accepts besides text.
    pub(crate) fn default_modalities(&self, settings: &SettingsSnapshot<'_>) -> Modalities {
        self.model(settings).map(|model| model.modalities()).unwrap_or_default()
    }

    /// Takes over the settings that may change while the process runs.
    ///
    /// # Errors
    /// If there are too many keys; the models of the settings cannot be used then.
    pub(super) fn adopt_settings(
        &self,
        settings: &SettingsSnapshot<'_>,
    ) -> Result<(), TooManyKeys> {
        let values = &settings.values;
        self.process.web.set_allowed(&values.web.allow);
        self.store.set_limits(RetentionLimits {
            days: values.sessions.keep_days,
            bytes: values.sessions.max_size.saturating_mul(1024 * 1024),
        });
        self.models.set_offered(settings.offered_models(), settings.list_models());
        redact::register_keys(settings.secrets())?;
        self.process.search.set(settings.search().map(|(service, _)| Arc::new(service)));
        Ok(())
    }

    /// Returns the model with this name. Reads files, so it must not run on the runtime's thread.
    pub(super) fn model_named(&self, name: &str) -> Result<Arc<dyn Model>, Error> {
        let settings = self.config.snapshot();
        redact::register_keys(settings.secrets()).map_err(settings_error)?;
        let provider = settings.provider_for(name).map_err(settings_error)?;
        self.models.get(provider, settings.list_models())
    }

    /// The default model, with which sessions start. Reads the files with its key and its profile.
    pub(crate) fn model(&self, settings: &SettingsSnapshot<'_>) -> Result<Arc<dyn Model>, Error> {
        if self.is_logged_out.load(Ordering::Relaxed) {
            return Err(Error::NoModelConfigured(LOGGED_OUT.to_owned()));
        }
        redact::register_keys(settings.secrets()).map_err(settings_error)?;
        let provider = match settings.provider().map_err(settings_error)? {
            Provider::Unconfigured if self.is_offline.load(Ordering::Relaxed) => Provider::Offline,
            Provider::Unconfigured => {
                return Err(Error::NoModelConfigured(settings.missing_model()));
            }
            provider => provider,
        };
        self.models.get(provider, settings.list_models())
    }

    /// Tells other processes the name of a client, and keeps what it has sent with `initialize` until it opens a
    /// session. `info` and `capabilities` are the names of the fields in its version.
    pub(crate) fn set_client(&self, params: &Value, info: &str, capabilities: &str) {
        let client = &params[info];
        if let Some(name) = client["title"].as_str().or_else(|| client["name"].as_str()) {
            self.store.set_client_name(name);
        }
        if client["name"] == "turnwright run" {
            return;
        }
        let shown = json!({
            "clientInfo": params.get(info),
            "protocolVersion": params.get("protocolVersion"),
            "clientCapabilities": params.get(capabilities),
        });
        let text = redact::text(&shown.to_string()).into_owned();
        *self.new_client.lock() = (text.len() < MAX_CLIENT_BYTES).then_some(text);
    }

    /// Stores the new client, unless the same is stored already. Only the end of the process waits until it is
    /// on the disk.
    pub(super) fn store_client(&self) {
        let Some(text) = self.new_client.lock().take() else { return };
        let path = client_file(&self.config.paths.state);
        self.tracker().spawn_blocking(move || {
            let stored = private_file::read(&path, MAX_CLIENT_BYTES as u64);
            if stored.is_ok_and(|stored| stored == text) {
                return;
            }
            if let Err(error) = private_file::write(&path, text.as_bytes()) {
                tracing::debug!("{}: {error}", path.display());
            }
        });
    }
}

/// The user's own folders, as tools know them.
pub(crate) fn user_folders(paths: &Paths) -> UserFolders {
    UserFolders {
        config: paths.config.clone(),
        state: paths.state.clone(),
        home: paths.home.clone(),
    }
}

fn settings_error(error: impl std::error::Error) -> Error {
    Error::Llm(LlmError::Config(error.to_string()))
}

/// Where the client is described that has opened a session last: its name, its version and what it can do.
/// `turnwright run` does not count.
fn client_file(state: &Path) -> PathBuf {
    state.join("last_client.json")
}

/// Returns what the last client sent with `initialize`; `None` if there was none.
pub(crate) fn last_client(state: &Path) -> Option<Value> {
    let text = private_file::read(&client_file(state), MAX_CLIENT_BYTES as u64).ok()?;
    serde_json::from_str(&text).ok()
}
