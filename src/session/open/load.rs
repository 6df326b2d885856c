//! Loads what a session needs from the disk: folders, settings, rules, the model and the MCP servers. It
//! blocks, so it runs off the runtime's thread; what it returns becomes the conversation without any I/O. That is
//! done here, too.

use std::io;
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use tokio::sync::OnceCell;

use super::{ClientSide, SessionOrigin, WantedSession};
use crate::error::Error;
use crate::session::SessionHost;
use crate::session::servers::ServerLaunch;
use crate::tools::{HelperSet, SessionHooks, SessionShared, SharedValue, ToolEnv, Toolbox};
use crate::turn::{
    CallRunner, CancellableCalls, Conversation, SharedGrants, SharedModelSelection, SharedSpending,
    SpendingLimits, Submissions, Told, system_prompt,
};
use turnwright_config::effective_policy::{
    EffectivePolicy, command_confinement, hook_offer, resolve_policy_with, settings_above,
};
use turnwright_config::project_facts::{project_facts, restore_project, roots_elsewhere};
use turnwright_config::{ConfigFile, SettingsSnapshot};
use turnwright_guard::{ConfinementSettings, report_unfinished};
use turnwright_hooks::HookSet;
use turnwright_llm::{Model, ReasoningEffort};
use turnwright_policy::permission::{Mode, PolicyRules, SharedMode};
use turnwright_store::{SessionLock, SessionLog};
use turnwright_types::client::Client;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_types::ids::SessionId;
use turnwright_types::secret;
use turnwright_types::work_settings::WorkSettings;
use turnwright_workspace::exec::Jobs;
use turnwright_workspace::files::{Files, Roots, SessionTmp};

/// The most folders that a session may have besides its working folder.
const MAX_FOLDERS: usize = 64;
/// The most unknown settings that are told.
const MAX_UNKNOWN: usize = 8;

/// Everything that opening a session reads before the session exists.
#[derive(Debug)]
pub(super) struct LoadedSession {
    pub(super) roots: Roots,
    pub(super) policy: EffectivePolicy,
    pub(super) confinement: ConfinementSettings,
    /// Notices for the user.
    pub(super) notices: Vec<String>,
    pub(super) model: Arc<dyn Model>,
    pub(super) effort: ReasoningEffort,
    pub(super) max_requests: u32,
    pub(super) work: Arc<WorkSettings>,
    pub(super) limits: SpendingLimits,
    pub(super) settings: Arc<ConfigFile>,
    pub(super) servers: ServerLaunch,
    /// The lock of a new session. A stored session's lock is taken when its previous task has ended.
    pub(super) lock: Option<SessionLock>,
}

impl SessionHost {
    /// Loads everything that a session needs. Locks and records nothing unless the session `is_opened`. Blocks.
    pub(super) fn load_session(
        &self,
        wanted: WantedSession,
        is_opened: bool,
    ) -> Result<LoadedSession, Error> {
        let WantedSession { id, cwd, folders, servers, origin, .. } = wanted;
        let is_stored = matches!(origin, SessionOrigin::Stored { .. });
        let mut gone = Vec::new();
        let named = match self.process.outside.project() {
            Some(project) => {
                let others = &folders[..folders.len().min(MAX_FOLDERS)];
                roots_elsewhere(project, &cwd, others)
            }
            None => roots(&cwd, &folders, is_stored, &mut gone)?,
        };
        let roots = self.with_own_folders(&id, named);
        let settings = self.config().snapshot();
        let mut notices = Vec::new();
        let noted = is_opened.then_some(&id);
        let (mut policy, confinement) = self.load_policy(&settings, noted, &roots, &mut notices);
        notices.extend(gone);
        let model = self.model(&settings)?;
        let specs = servers.into_iter().chain(take(&mut policy.servers)).collect();
        let servers = ServerLaunch::load(&settings, specs, roots.real_cwd());
        Ok(LoadedSession {
            effort: settings.effort(),
            max_requests: settings.max_turn_requests(),
            work: Arc::new(settings.work()),
            limits: spending_limits(&settings),
            settings: settings.values,
            // No one else can have the lock of a new identifier.
            lock: (is_opened && !is_stored).then(|| self.store().lock_session(&id)).transpose()?,
            roots,
            policy,
            confinement,
            notices,
            model,
            servers,
        })
    }

    /// The folders of a session together with our own. Opening a session in the home folder must not give the
    /// model access to the keys or the permission rules.
    fn with_own_folders(&self, id: &SessionId, roots: Roots) -> Roots {
        let paths = &self.config().paths;
        roots
            .with_private_folder(&paths.config)
            .with_private_folder(&paths.state)
            .with_readable_folder(&Jobs::output_folder(&paths.state, id))
    }

    /// Loads the rules for these folders, and adds what the user has to know about them and about the settings
    /// to `notices`. `opened` is the session that is being opened, if one is. Blocks.
    fn load_policy(
        &self,
        settings: &SettingsSnapshot<'_>,
        opened: Option<&SessionId>,
        roots: &Roots,
        notices: &mut Vec<String>,
    ) -> (EffectivePolicy, ConfinementSettings) {
        let refused = self.adopt_settings(settings).err();
        let paths = &self.config().paths;
        secret::learn_shared(&paths.state);
        let facts = &self.process.outside;
        let is_elsewhere = facts.project().is_some();
        // Nothing is read of what is here in the place of a project on another machine.
        let nowhere = paths.state.join("project");
        let project_folder = if is_elsewhere { nowhere.as_path() } else { roots.real_cwd() };
        self.note_or_restore_project(opened, roots, project_folder);
        let mut policy = resolve_policy_with(settings, &self.trust, roots, project_folder);
        policy.rules.can_confine = facts.can_confine();
        if facts.is_deterministic() {
            // Not every machine has a proxy for its commands, and a recording has no questions while a tool runs.
            policy.rules.asks_about_hosts = || false;
        }
        if is_elsewhere {
            // It may be so there, and the answers of the tools tell.
            policy.rules.protected_exposed = || false;
        }
        let is_missing = !policy.rules.can_confine && policy.mode != Mode::Full;
        notices.extend(paths.note.as_ref().map(|note| format!("{note}.")));
        let unknown = settings.unknown_settings().take(MAX_UNKNOWN);
        notices.extend(unknown.map(|warning| format!("{warning}.")));
        notices.extend(policy.notice());
        notices.extend(is_missing.then(|| sandbox_notice(&facts.missing_sandbox())));
        notices.extend(
            refused.map(|error| format!("The models of the settings cannot be used: {error}.")),
        );
        let confinement = command_confinement(self.config(), &policy, roots.real_cwd());
        if !is_elsewhere && opened.is_some() {
            notices.extend(hook_offer(settings, project_folder));
            let home = policy.rules.bases.home.as_deref();
            notices.extend(settings_above(settings, project_folder, home));
            notices.extend(report_unfinished(&confinement, roots));
        }
        (policy, confinement)
    }

    /// Lets others take note of the facts that decide about the project's questions, or writes those of a project
    /// that is elsewhere into the folder that stands for it.
    fn note_or_restore_project(&self, opened: Option<&SessionId>, roots: &Roots, folder: &Path) {
        let config = self.config();
        let facts = &self.process.outside;
        if let Some(id) = opened {
            facts.record_project(id, &|| project_facts(config, &self.trust, roots));
        }
        if let Some(project) = facts.project() {
            let cwd = roots.real_cwd();
            let restored = restore_project(config, &self.trust, project, cwd, folder);
            if let Err(error) = restored {
                tracing::error!(%error, "the facts of the project could not be restored");
            }
        }
    }
}

/// The limits of the settings and of the command line.
fn spending_limits(settings: &SettingsSnapshot<'_>) -> SpendingLimits {
    let mut limits = SpendingLimits::new(settings.values.limits.stop_loops != Some(false));
    for (name, number) in settings.limits() {
        limits.set(&name, number);
    }
    limits
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

impl SessionHost {
    /// Creates the conversation of a session.
    pub(super) fn conversation(
        self: &Arc<Self>,
        id: SessionId,
        loaded: LoadedSession,
        client: ClientSide,
    ) -> Conversation {
        let LoadedSession { roots, mut policy, confinement, model, effort, settings, .. } = loaded;
        let checks = SharedValue::new(take(&mut policy.checks));
        let configured = take(&mut policy.language_servers);
        let log = SessionLog::new(self.store().clone(), id.clone());
        let mut env = self.tool_env(id, roots, policy, confinement, settings, client);
        env.log = log;
        env.is_alone = loaded.work.alone;
        if let Some(languages) = self.language_servers(&env, configured) {
            env.shared.languages.set(languages).ok();
        }
        let agent = &env.shared.settings.agent;
        let name = agent.usable_name();
        let host = Arc::clone(self);
        Conversation {
            spending: SharedSpending::default(),
            queue: Arc::default(),
            cancellable: CancellableCalls::default(),
            find_model: Arc::new(move |name: &str| host.model_named(name)),
            system_prompt: system_prompt(name, agent.system_prompt.as_deref(), loaded.work.alone),
            selection: SharedModelSelection::new(model, effort),
            tools: Arc::new(Toolbox::new(Arc::clone(&self.tools))),
            env: Arc::new(env),
            told: Told::default(),
            submissions: Submissions::default(),
            grants: SharedGrants::default(),
            checks,
            max_requests: loaded.max_requests,
            work: loaded.work,
            limits: loaded.limits,
        }
    }

    /// Creates a runner for calls without a conversation, for clients of our own MCP server. It
    /// follows the policy of these folders and stores nothing. Also returns the notices for the
    /// user. Blocks.
    pub(crate) fn standalone_calls(
        &self,
        roots: Roots,
        client: Arc<dyn Client>,
        mode: Option<Mode>,
    ) -> (CallRunner, Vec<String>) {
        self.prepare_for_commands();
        let id = SessionId::random();
        let own_roots = self.with_own_folders(&id, roots);
        let mut notices = Vec::new();
        let settings = self.config().snapshot();
        let (policy, confinement) =
            self.load_policy(&settings, Some(&id), &own_roots, &mut notices);
        let client = ClientSide { client, buffers: None, terminals: None };
        let env = self.tool_env(id, own_roots, policy, confinement, settings.values, client);
        if let Some(mode) = mode {
            env.shared.mode.set(mode);
        }
        (CallRunner::for_mcp_client(env), notices)
    }

    /// Creates the environment of the tools in these folders.
    fn tool_env(
        &self,
        id: SessionId,
        roots: Roots,
        policy: EffectivePolicy,
        confinement: ConfinementSettings,
        settings: Arc<ConfigFile>,
        ClientSide { client, buffers, terminals }: ClientSide,
    ) -> ToolEnv {
        let hooks = SessionHooks::new(HookSet::new(policy.hooks));
        let mode = SharedMode::new(policy.mode, policy.max_mode);
        let rules = SharedValue::new(policy.rules);
        let files = Files::new(with_session_tmp(roots, &confinement, &mode, &rules), buffers);
        let shared = SessionShared {
            process: Arc::clone(&self.process),
            settings,
            search: (*self.process.search.get()).clone(),
            command_environment: Arc::new(self.environment.clone()),
            mode,
            rules,
            confinement: Arc::new(confinement),
            guard: Arc::default(),
            network: Arc::default(),
            checkpoint: Arc::default(),
            hooks,
            surroundings: OnceLock::new(),
            start: OnceCell::new(),
            has_reported_audit_loss: AtomicBool::new(false),
            languages: OnceLock::new(),
        };
        let mut env = ToolEnv::new(Arc::new(shared), id, files, client, terminals);
        env.helpers = HelperSet::new(policy.helper_types);
        env
    }
}

/// The folders of a session. Its commands get their own `/tmp` where the sandbox can provide one.
fn with_session_tmp(
    roots: Roots,
    confinement: &ConfinementSettings,
    mode: &SharedMode,
    rules: &SharedValue<PolicyRules>,
) -> Roots {
    let tmp = Path::new("/tmp");
    if confinement.writable.iter().any(|path| tmp.starts_with(path)) {
        return roots;
    }
    let mode = mode.clone();
    let rules = rules.clone();
    roots.with_session_tmp(SessionTmp::new(move || {
        mode.get() != Mode::Full
            && rules.get().can_confine
            && turnwright_sandbox::namespace_support().mounts
            && !is_tmp_a_link()
    }))
}

/// Returns true if `/tmp` is a link, where nothing can be mounted. Looked up once, when it is needed first.
fn is_tmp_a_link() -> bool {
    static IS_LINK: OnceLock<bool> = OnceLock::new();
    *IS_LINK.get_or_init(|| Path::new("/tmp").is_symlink())
}
