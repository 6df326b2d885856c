//! The environment and sandbox profile of a session's MCP servers.

use std::fs;
use std::path::{Path, PathBuf};

use crate::tools::ConfinementSettings;
use turnwright_mcp::{LoginStore, ServerEnv};
use turnwright_policy::permission::{DeniedPaths, PolicyRules};
use turnwright_sandbox::SandboxProfile;
use turnwright_workspace::files::Roots;

/// The part of a session that decides where its servers run.
pub(super) struct ServerSite<'a> {
    pub(super) confinement: &'a ConfinementSettings,
    pub(super) roots: &'a Roots,
    pub(super) policy: &'a PolicyRules,
    /// Whether the user can be shown forms.
    pub(super) supports_forms: bool,
}

impl ServerSite<'_> {
    /// The environment of the session's servers. Looks files up: not for the runtime's thread.
    pub(super) fn server_env(&self, logins: LoginStore) -> ServerEnv {
        ServerEnv {
            cwd: self.roots.real_cwd().to_path_buf(),
            roots: self.roots.folders().map(Path::to_path_buf).collect(),
            supports_forms: self.supports_forms,
            profile: turnwright_sandbox::can_confine().then(|| self.sandbox_profile()),
            logins,
            package_caches: self.confinement.download_caches.clone(),
        }
    }

    /// The sandbox profile of a server. Like a command it may write to the session's folders and
    /// the caches, but a server runs beside all calls, so it never gets access to protected files.
    fn sandbox_profile(&self) -> SandboxProfile {
        let (confinement, roots) = (self.confinement, self.roots);
        let closed = DeniedPaths::from_rules(self.policy);
        let folders: Vec<_> = roots.folders().map(Path::to_path_buf).collect();
        let is_inside = |it: &PathBuf| folders.iter().any(|root| it.starts_with(root));
        let is_opened = |it: &PathBuf| {
            folders.iter().any(|root| root.starts_with(it))
                && !roots.private_folders().any(|own| own == it)
        };
        let write = folders
            .iter()
            .cloned()
            .chain(existing(confinement.writable.iter().chain(&confinement.caches)));
        let ours = existing(confinement.read_only.iter().chain(&closed.unwritable_paths()))
            .filter(is_inside);
        let protected = confinement.protected.leaf_paths().into_iter();
        let protected = protected
            .filter(|it| fs::symlink_metadata(it).is_ok_and(|it| it.is_file() || it.is_dir()));
        // A server has no access to permission rules, pins, notes and other sessions either.
        let hide = existing(
            confinement
                .hidden
                .iter()
                .chain(&confinement.read_only)
                .chain(&closed.unreadable_paths()),
        );
        SandboxProfile {
            read_only: ours.chain(protected).collect(),
            hidden: hide.filter(|it| !is_opened(it)).collect(),
            readable: confinement.readable.clone(),
            network: confinement.network,
            writable: write.collect(),
        }
    }
}

/// The paths that exist, with symlinks resolved.
fn existing<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> std::vec::IntoIter<PathBuf> {
    paths.filter_map(|it| fs::canonicalize(it).ok()).collect::<Vec<_>>().into_iter()
}
