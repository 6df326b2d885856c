//! The environment and sandbox profile of a session's MCP servers.

use std::path::Path;

use crate::session::SessionHost;
use turnwright_guard::{
    ConfinementSettings, KnownFolders, ProgramAccess, SessionAccess, denied_below, hidden_below,
    linked_packages,
};
use turnwright_mcp::{LoginStore, ServerEnv};
use turnwright_policy::permission::{DeniedPaths, PolicyRules};
use turnwright_sandbox::SandboxProfile;
use turnwright_types::effect::build_credential_paths;
use turnwright_workspace::RealPaths;
use turnwright_workspace::files::Roots;

impl SessionHost {
    /// The environment of a session's servers. Looks up which files exist, also our own, so it comes after the
    /// session is stored. Without servers no file is looked up for the sandbox profile. Blocks.
    pub(in crate::session) fn server_env(
        &self,
        confinement: &ConfinementSettings,
        roots: &Roots,
        policy: &PolicyRules,
        has_servers: bool,
    ) -> ServerEnv {
        let paths = &self.config().paths;
        let profile = turnwright_sandbox::can_confine().then(|| {
            if has_servers {
                sandbox_profile(confinement, roots, policy, paths.home.as_deref())
            } else {
                SandboxProfile::default()
            }
        });
        ServerEnv {
            cwd: roots.real_cwd().to_path_buf(),
            roots: roots.folders().map(Path::to_path_buf).collect(),
            supports_forms: false,
            profile,
            logins: LoginStore::new(&paths.config),
            memory: confinement.memory,
            package_caches: confinement.download_caches.clone(),
            private_caches: confinement.private_caches.join("servers"),
        }
    }
}

/// The sandbox profile of a server. Like a command it may write to the session's folders and
/// the caches, but a server runs beside all calls, so it never gets access to protected files,
/// nor to permission rules, pins, notes and other sessions. Unless its settings name them, it does
/// not read secrets of the project, nor settings with credentials that builds need.
fn sandbox_profile(
    confinement: &ConfinementSettings,
    roots: &Roots,
    policy: &PolicyRules,
    home: Option<&Path>,
) -> SandboxProfile {
    let denied_paths = &DeniedPaths::from_rules(policy);
    let real_paths = &RealPaths::default();
    let session = SessionAccess { confinement, roots, denied_paths, real_paths };
    let mut hidden = confinement.read_only.clone();
    hidden.extend(home.map(build_credential_paths).unwrap_or_default());
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
