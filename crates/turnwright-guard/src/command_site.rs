//! The place where the commands of a conversation run.

use std::fmt::{self, Debug};
use std::path::PathBuf;
use std::sync::Arc;

use turnwright_policy::permission::ProtectedPaths;
use turnwright_types::client::Client;
use turnwright_workspace::checkpoint::{ChangeTracker, GitSettings, ObeyedFiles};
use turnwright_workspace::exec::Environment;
use turnwright_workspace::files::Roots;
use turnwright_workspace::fixed_places::OpenedPlaces;
use turnwright_workspace::real_path;
use turnwright_workspace::temp_folder::temp_place;

use crate::command_network::CommandNetwork;
use crate::confinement::ConfinementSettings;
use crate::repository;
use crate::watch::ConfinementGuard;

/// The files in subfolders that programs of the user obey.
pub(crate) const OBEYED: ObeyedFiles = ObeyedFiles {
    is_obeyed: ProtectedPaths::is_obeyed_in_subfolder,
    may_hold: ProtectedPaths::may_hold_obeyed,
};

/// The surroundings on which the bounds of a conversation's commands depend. Cloning is cheap.
#[derive(Clone)]
pub struct CommandSite {
    /// The folders of the session.
    pub roots: Arc<Roots>,
    /// The environment variables of commands.
    pub environment: Arc<Environment>,
    /// The sandbox settings.
    pub settings: Arc<ConfinementSettings>,
    /// Watches the protected paths while commands run.
    pub guard: Arc<ConfinementGuard>,
    /// The private network of the commands.
    pub network: Arc<CommandNetwork>,
    /// Records the changes of files.
    pub tracker: Arc<ChangeTracker>,
    /// The places that commands and servers in the sandbox could write since this process was started.
    pub opened_places: Arc<OpenedPlaces>,
    /// The agent's own folder, which has the sockets of the signing service.
    pub state_folder: PathBuf,
    /// The folder of the conversation's long outputs, which commands may read.
    pub outputs: PathBuf,
    pub client: Arc<dyn Client>,
}

impl Debug for CommandSite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CommandSite").field("roots", &self.roots).finish_non_exhaustive()
    }
}

impl CommandSite {
    /// Tracks the effects of commands on the session's folders from now on.
    pub fn watch_files(&self) {
        let home = self.environment.get("HOME").map(PathBuf::from);
        let config = self
            .environment
            .get("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(home.as_ref()?.join(".config")));
        let git = GitSettings { home, config, attribute_files: repository::attribute_files };
        let ConfinementSettings { writable, private_caches, protected, .. } = &*self.settings;
        let places = writable.iter().chain([private_caches]).chain(protected.roots());
        let temporary = real_path(temp_place()).into_iter();
        let writable = temporary.chain(places.cloned()).collect();
        self.tracker.watch(&self.roots, OBEYED, git, writable);
    }

    /// The folder that keeps a copy of what commands wrote into protected places.
    pub(crate) fn quarantine_folder(&self) -> PathBuf {
        self.outputs.join("protected")
    }
}
