//! The environment and sandbox profile of a session's MCP servers.

use std::path::Path;

use crate::tools::{
    ConfinementSettings, KnownFolders, ProgramAccess, SessionAccess, denied_below, hidden_below,
    linked_packages,
};
use turnwright_mcp::{LoginStore, ServerEnv};
use turnwright_policy::permission::{DeniedPaths, PolicyRules};
use turnwright_sandbox::SandboxProfile;
use turnwright_types::effect::build_credential_paths;
use turnwright_workspace::RealPaths;
use turnwright_workspace::files::Roots;

/// The part of a session that decides where its servers run.
pub(in crate::session) struct ServerSite<'a> {
    pub(in crate::session) confinement: &'a ConfinementSettings,
    pub(in crate::session) roots: &'a Roots,
    pub(in crate::session) policy: &'a PolicyRules,
    pub(in crate::session) home: Option<&'a Path>,
    /// Without servers no file is looked up for a profile.
    pub(in crate::session) has_servers: bool,
    /// True if the user can be shown forms.
    pub(in crate::session) supports_forms: bool,
}

impl ServerSite<'_> {
    /// The environment of the session's servers. Looks files up: not for the runtime's thread.
    pub(in crate::session) fn server_env(&self, logins: LoginStore) -> ServerEnv {
        ServerEnv {
            cwd: self.roots.real_cwd().to_path_buf(),
            roots: self.roots.folders().map(Path::to_path_buf).collect(),
            supports_forms: self.supports_forms,
            profile: turnwright_sandbox::can_confine().then(|| self.sandbox_profile()),
            logins,
            memory: self.confinement.memory,
            package_caches: self.confinement.download_caches.clone(),
            private_caches: self.confinement.private_caches.join("servers"),
        }
    }

    /// The sandbox profile of a server. Like a command it may write to the session's folders and
    /// the caches, but a server runs beside all calls, so it never gets access to protected files,
    /// nor to permission rules, pins, notes and other sessions. Unless its settings name them, it does
    /// not read secrets of the project, nor settings with credentials that builds need.
    fn sandbox_profile(&self) -> SandboxProfile {
        if !self.has_servers {
            return SandboxProfile::default();
        }
        let confinement = self.confinement;
        let roots = self.roots;
        let denied_paths = &DeniedPaths::from_rules(self.policy);
        let real_paths = &RealPaths::default();
        let session = SessionAccess { confinement, roots, denied_paths, real_paths };
        let mut hidden = confinement.read_only.clone();
        hidden.extend(self.home.map(build_credential_paths).unwrap_or_default());
        let folders: Vec<_> = roots.folders().map(Path::to_path_buf).collect();
        hidden.extend(hidden_below(&folders, denied_paths, &[], &KnownFolders::default()).paths);
        let mut read_only = denied_below(&folders, denied_paths).unwritable;
        read_only.extend(linked_packages(roots.folders()));
        // Sessions share a server only if their profiles are equal.
        hidden.sort();
        session.profile(ProgramAccess {
            writable: session.writable_folders(),
            has_caches: true,
            network: confinement.network,
            machine_addresses: Vec::new(),
            debug: false,
            sockets: Vec::new(),
            may_write_protected: &|_| false,
            may_read_hidden: &|_| false,
            hidden: &hidden,
            read_only,
            layers: Vec::new(),
            private_tmp: None,
            unhidden: Vec::new(),
        })
    }
}
