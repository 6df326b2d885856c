//! The language servers of a session: which of them may be started, and in which sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SessionHost;
use crate::tools::{SharedValue, ToolEnv};
use turnwright_config::effective_policy::trusts_language_servers;
use turnwright_config::trust::TrustStore;
use turnwright_guard::{ConfinementSettings, server_profile};
use turnwright_lsp::{
    LanguageGate, LanguageServer, LanguageServers, LanguageSite, find_program, known_servers,
};
use turnwright_policy::permission::PolicyRules;
use turnwright_sandbox::SandboxProfile;
use turnwright_types::work_settings::LspMode;
use turnwright_workspace::files::Roots;

/// Lets the servers of a session start.
#[derive(Debug)]
struct SessionGate {
    mode: LspMode,
    trust: TrustStore,
    confinement: Arc<ConfinementSettings>,
    roots: Arc<Roots>,
    rules: SharedValue<PolicyRules>,
    home: Option<PathBuf>,
}

impl LanguageGate for SessionGate {
    fn profile(&self, server: &LanguageServer, folder: &Path) -> Option<SandboxProfile> {
        // A server that a file of the project names is there only if the file is trusted, which says nothing of the
        // other folders of the session.
        let is_trusted = server.is_configured && folder == self.roots.real_cwd()
            || self.mode == LspMode::On
            || trusts_language_servers(&self.trust, folder);
        let may_start = is_trusted && turnwright_sandbox::can_confine();
        let rules = self.rules.get();
        let home = self.home.as_deref();
        may_start.then(|| server_profile(&self.confinement, &self.roots, &rules, home))
    }
}

impl SessionHost {
    /// The language servers of a session in this environment; `None` if it uses none. Starts and reads nothing.
    pub(super) fn language_servers(
        &self,
        env: &ToolEnv,
        configured: Vec<LanguageServer>,
    ) -> Option<LanguageServers> {
        let shared = &env.shared;
        let settings = &shared.settings.lsp;
        // A replay has the answers of the servers, and not the files.
        if settings.mode() == LspMode::Off || self.process.outside.project().is_some() {
            return None;
        }
        let roots = env.files.shared_roots();
        Some(LanguageServers::new(LanguageSite {
            folders: roots.folders().map(Path::to_path_buf).collect(),
            environment: self.environment.clone(),
            cache: shared.confinement.private_caches.join("language-servers"),
            memory: settings.memory(),
            configured,
            gate: Arc::new(SessionGate {
                mode: settings.mode(),
                trust: self.trust.clone(),
                confinement: Arc::clone(&shared.confinement),
                roots,
                rules: shared.rules.clone(),
                home: self.config().paths.home.clone(),
            }),
            stop: self.stop_token(),
            tracker: self.tracker(),
        }))
    }

    /// The mode of the settings, and the known servers that are installed. Blocks.
    pub(crate) fn installed_language_servers(&self) -> (LspMode, Vec<String>) {
        let mode = self.config().snapshot().values.lsp.mode();
        let known = known_servers().iter();
        let found = known.filter(|server| find_program(server, &self.environment).is_some());
        (mode, found.map(|server| server.name.clone()).collect())
    }
}
