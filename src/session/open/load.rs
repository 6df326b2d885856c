//! Loads what a session needs from the disk: folders, settings, rules, the model and the MCP servers. It
//! blocks, so it runs off the runtime's thread; what it returns is turned into services without any I/O.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::session::effective_policy::project_servers::unique_by_name;
use crate::session::recorded_project::{recorded_project, recorded_roots, restore_project};
use crate::session::servers::sandbox::ServerSite;
use crate::session::{SessionHost, SessionOrigin, WantedSession, effective_policy, servers};
use crate::tools::{ConfinementSettings, report_unfinished};
use crate::turn::{Check, SpendingLimits, TurnServices, system_prompt};
use turnwright_llm::{Model, ReasoningEffort};
use turnwright_mcp::{LoginStore, ServerEnv, ServerSpec};
use turnwright_policy::permission::{Mode, PolicyRules};
use turnwright_store::SessionLock;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::ids::SessionId;
use turnwright_types::io_error_text::io_error_text;
use turnwright_types::secret_file;
use turnwright_workspace::exec::Jobs;
use turnwright_workspace::files::Roots;
use turnwright_workspace::helper_types::HelperType;

/// The most folders that a session may have besides its working folder.
const MAX_FOLDERS: usize = 64;

/// The content of a workspace's files and of the settings.
#[derive(Debug)]
pub(in crate::session) struct LoadedProject {
    pub(in crate::session) roots: Roots,
    pub(in crate::session) policy: PolicyRules,
    pub(in crate::session) confinement: ConfinementSettings,
    pub(in crate::session) mode: Mode,
    pub(in crate::session) max_mode: Mode,
    /// Notices for the user.
    pub(in crate::session) notices: Vec<String>,
    /// The project's MCP servers that the user trusts.
    pub(in crate::session) servers: Vec<ServerSpec>,
    pub(in crate::session) checks: Vec<Check>,
    /// The types of helpers that the user and the project define.
    pub(in crate::session) helper_types: Vec<HelperType>,
}

/// Everything that opening a session reads.
#[derive(Debug)]
pub(in crate::session) struct LoadedSession {
    pub(in crate::session) project: LoadedProject,
    pub(in crate::session) model: Arc<dyn Model>,
    pub(in crate::session) effort: ReasoningEffort,
    pub(in crate::session) max_requests: u32,
    pub(in crate::session) limits: SpendingLimits,
    /// The instructions for the model without those of the client.
    pub(in crate::session) system_prompt: Arc<str>,
    pub(in crate::session) servers: ServerLaunch,
    /// The lock of a new session. A stored session's lock is taken when its previous task has ended.
    pub(in crate::session) lock: Option<SessionLock>,
}

/// The MCP servers of a session.
#[derive(Debug, Default)]
pub(in crate::session) struct ServerLaunch {
    pub(in crate::session) specs: Vec<ServerSpec>,
    /// How long the first turn waits for them.
    pub(in crate::session) wait: Duration,
    /// Notices about invalid servers of the settings.
    pub(in crate::session) notices: Vec<String>,
}

impl SessionHost {
    /// Loads everything that a session needs. Blocks.
    pub(in crate::session) fn load_session(
        &self,
        wanted: WantedSession,
    ) -> Result<LoadedSession, Error> {
        let WantedSession { id, cwd, folders, servers, origin, .. } = wanted;
        let is_stored = matches!(origin, SessionOrigin::Stored { .. });
        let mut gone = Vec::new();
        let roots = match self.recording().playback() {
            Some(playback) => {
                let others = &folders[..folders.len().min(MAX_FOLDERS)];
                recorded_roots(playback.project(), &cwd, others)
            }
            None => roots(&cwd, &folders, is_stored, &mut gone)?,
        };
        let mut project = self.load_project(&id, roots);
        project.notices.extend(gone);
        let model = self.model()?;
        let own = std::mem::take(&mut project.servers);
        let specs = servers.into_iter().chain(own).collect();
        let servers = self.load_servers(specs, project.roots.real_cwd());
        let effort = self.config().effort();
        let max_requests = self.config().max_turn_requests();
        let agent = self.config().agent();
        let system_prompt = system_prompt(agent.usable_name(), agent.system_prompt.as_deref());
        // No one else can have the lock of a new identifier.
        let lock = (!is_stored).then(|| self.store().lock_session(&id)).transpose()?;
        let limits = self.spending_limits();
        Ok(LoadedSession {
            project,
            model,
            effort,
            max_requests,
            limits,
            system_prompt,
            servers,
            lock,
        })
    }

    /// The limits of the settings and of the command line. Reads files.
    fn spending_limits(&self) -> SpendingLimits {
        let settings = self.config().limits();
        let mut limits = SpendingLimits::new(settings.stop_loops);
        for (name, number) in &settings.numbers {
            limits.set(name, *number);
        }
        limits
    }

    /// Loads the settings and rules for these folders. Blocks.
    pub(in crate::session) fn load_project(&self, id: &SessionId, roots: Roots) -> LoadedProject {
        let refused = self.reload_settings().err();
        secret_file::learn_shared(&self.config().paths.state);
        // Opening a session in the home folder must not give the model access to the keys or the
        // permission rules.
        let paths = &self.config().paths;
        let roots = roots
            .with_private_folder(&paths.config)
            .with_private_folder(&paths.state)
            .with_readable_folder(&Jobs::output_folder(&paths.state, id));
        let playback = self.recording().playback();
        // A replay reads nothing of the project, even if there is one.
        let nowhere = paths.state.join("project");
        let project_folder = playback.map_or(roots.real_cwd(), |_| &nowhere);
        self.record_or_restore_project(id, &roots, project_folder);
        let mut effective = effective_policy::resolve_policy_with(
            self.config(),
            &self.trust,
            &roots,
            project_folder,
        );
        let missing = match playback {
            Some(playback) => {
                effective.rules.can_confine = playback.could_confine();
                // It may have been so where the recording was made, and its answers tell.
                effective.rules.protected_exposed = || false;
                playback.missing_sandbox().to_owned()
            }
            None => missing_sandbox(),
        };
        let is_missing = !effective.rules.can_confine && effective.mode != Mode::Full;
        let sandbox_notice = is_missing.then(|| sandbox_notice(&missing));
        let misplaced = paths.note.as_ref().map(|note| format!("{note}."));
        let notices = misplaced.into_iter().chain(effective.notice()).chain(sandbox_notice);
        let refused =
            refused.map(|error| format!("The models of the settings cannot be used: {error}."));
        let confinement = effective_policy::command_confinement(
            self.config(),
            effective.sandbox,
            &effective.rules,
            roots.real_cwd(),
        );
        let unfinished = playback.is_none().then(|| report_unfinished(&confinement, &roots));
        LoadedProject {
            notices: notices.chain(refused).chain(unfinished.flatten()).collect(),
            confinement,
            roots,
            policy: effective.rules,
            mode: effective.mode,
            max_mode: effective.max_mode,
            servers: effective.servers,
            checks: effective.checks,
            helper_types: effective.helper_types,
        }
    }

    /// Records the facts that decide about the project's questions, or takes them from the recording.
    fn record_or_restore_project(&self, id: &SessionId, roots: &Roots, project_folder: &Path) {
        let config = self.config();
        let recorder = self.recording().recorder();
        if recorder.is_on() {
            let project = recorded_project(config, &self.trust, roots);
            recorder.record_project(id, project);
        }
        if let Some(playback) = self.recording().playback() {
            let project = playback.project();
            let cwd = roots.real_cwd();
            let restored = restore_project(config, &self.trust, project, cwd, project_folder);
            if let Err(error) = restored {
                tracing::error!(%error, "the recorded project could not be restored");
            }
        }
    }

    /// Adds the servers of the settings that have other names. Blocks.
    pub(in crate::session) fn load_servers(
        &self,
        servers: Vec<ServerSpec>,
        folder: &Path,
    ) -> ServerLaunch {
        let (settings, notices) = servers::settings(self.config());
        let specs = unique_by_name(servers::with_configured(servers, &settings, folder));
        ServerLaunch { specs, wait: settings.wait, notices }
    }

    /// The environment of a session's servers. Looks up which of our own files exist, so it comes after
    /// the session is stored. Blocks.
    pub(in crate::session) fn server_env(
        &self,
        services: &TurnServices,
        has_servers: bool,
    ) -> ServerEnv {
        let env = &services.env;
        let policy = services.policy.get();
        let site = ServerSite {
            confinement: &env.confinement,
            roots: env.files.roots(),
            policy: &policy,
            home: self.config().paths.home.as_deref(),
            has_servers,
            supports_forms: env.client.supports_forms(),
        };
        site.server_env(LoginStore::new(&self.config().paths.config))
    }
}

/// Names what the sandbox lacks here; empty if it lacks nothing.
pub(in crate::session) fn missing_sandbox() -> String {
    if turnwright_sandbox::can_confine() {
        return String::new();
    }
    turnwright_sandbox::sandbox_support().missing.join(" ")
}

/// The notice for a session that starts without a sandbox.
fn sandbox_notice(why: &str) -> String {
    format!(
        "The sandbox is not available here. {why} In `auto` mode you are asked about commands as in `auto-edit`."
    )
}

fn gone_notice(folder: &Path) -> String {
    format!(
        "The folder `{}` does not exist any more. The conversation can be read, and nothing can be done there.",
        escape_hidden_line(&folder.to_string_lossy())
    )
}

/// The folders of a session. Folders of a stored session may be gone; notices about them are added to `gone`.
fn roots(
    cwd: &Path,
    folders: &[PathBuf],
    is_stored: bool,
    gone: &mut Vec<String>,
) -> Result<Roots, Error> {
    if !cwd.is_absolute() {
        let text = format!("`cwd` must be an absolute path, not `{}`", cwd.display());
        return Err(Error::InvalidParams(text));
    }
    let is_gone = |error: &io::Error| is_stored && error.kind() == io::ErrorKind::NotFound;
    let mut roots = match Roots::new(cwd) {
        Err(error) if is_gone(&error) => {
            gone.push(gone_notice(cwd));
            Roots::gone(cwd)
        }
        roots => roots.map_err(|error| Error::InvalidFolder {
            path: cwd.to_path_buf(),
            why: io_error_text(&error),
        })?,
    };
    if folders.len() > MAX_FOLDERS {
        let text = format!("`additionalDirectories` has more than {MAX_FOLDERS} entries");
        return Err(Error::InvalidParams(text));
    }
    for folder in folders {
        if !folder.is_absolute() {
            return Err(unusable_folder(folder, "it is not an absolute path"));
        }
        roots = match roots.clone().with_folder(folder) {
            Err(error) if is_gone(&error) => {
                gone.push(gone_notice(folder));
                roots
            }
            more => more.map_err(|error| unusable_folder(folder, &error.to_string()))?,
        };
    }
    Ok(roots)
}

fn unusable_folder(folder: &Path, why: &str) -> Error {
    let text = format!("`additionalDirectories`: `{}` cannot be used: {why}", folder.display());
    Error::InvalidParams(text)
}
