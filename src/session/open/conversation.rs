//! Makes the conversation of a session from what was loaded for it.

use std::mem::take;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::ClientSide;
use super::load::LoadedSession;
use crate::session::SessionHost;
use crate::tools::{HelperSet, SessionShared, SharedValue, ToolEnv, Toolbox};
use crate::turn::{
    CacheGuard, CancellableCalls, Conversation, ModelFinder, SharedGrants, SharedModelSelection,
    SharedSpending, StandaloneCalls, Told,
};
use turnwright_config::effective_policy::EffectivePolicy;
use turnwright_guard::ConfinementSettings;
use turnwright_policy::permission::{Mode, PolicyRules, SharedMode};
use turnwright_store::SessionLog;
use turnwright_types::client::{Client, CommandDisplay};
use turnwright_types::ids::SessionId;
use turnwright_workspace::files::{Files, Roots, SessionTmp};

impl SessionHost {
    /// Creates the conversation of a session.
    pub(super) fn conversation(
        self: &Arc<Self>,
        id: SessionId,
        loaded: LoadedSession,
        client: ClientSide,
    ) -> Conversation {
        let LoadedSession { roots, mut policy, confinement, model, effort, .. } = loaded;
        let checks = SharedValue::new(take(&mut policy.checks));
        let log = SessionLog::new(self.store().clone(), id.clone());
        let mut env = self.tool_env(id, roots, policy, confinement, client);
        env.log = log;
        let host = Arc::clone(self);
        Conversation {
            spending: SharedSpending::default(),
            queue: Arc::default(),
            cancellable: CancellableCalls::default(),
            models: ModelFinder::new(move |name| host.model_named(name)),
            system_prompt: loaded.system_prompt,
            selection: SharedModelSelection::new(model, effort),
            tools: Arc::new(Toolbox::new(Arc::clone(&self.tools))),
            env: Arc::new(env),
            told: Told::default(),
            grants: SharedGrants::default(),
            checks,
            max_requests: loaded.max_requests,
            cache_guard: CacheGuard::default(),
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
    ) -> (StandaloneCalls, Vec<String>) {
        self.prepare_for_commands();
        let id = SessionId::random();
        let own_roots = self.with_own_folders(&id, roots);
        let mut notices = Vec::new();
        let (policy, confinement) =
            self.load_policy(&self.config().snapshot(), &id, &own_roots, &mut notices);
        let client = ClientSide { client, buffers: None, display: CommandDisplay::default() };
        let env = self.tool_env(id, own_roots, policy, confinement, client);
        if let Some(mode) = mode {
            env.shared.mode.set(mode);
        }
        (StandaloneCalls::new(env), notices)
    }

    /// Creates the environment of the tools in these folders.
    fn tool_env(
        &self,
        id: SessionId,
        roots: Roots,
        policy: EffectivePolicy,
        confinement: ConfinementSettings,
        ClientSide { client, buffers, display }: ClientSide,
    ) -> ToolEnv {
        let mode = SharedMode::new(policy.mode, policy.max_mode);
        let rules = SharedValue::new(policy.rules);
        let files = Files::new(with_session_tmp(roots, &confinement, &mode, &rules), buffers);
        let process = Arc::clone(&self.process);
        let environment = self.environment.clone();
        let shared = SessionShared::new(process, environment, mode, rules, confinement);
        let mut env = ToolEnv::new(Arc::new(shared), id, files, client, display);
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
