//! State that conversations share: that of the process, and that of a session and its helpers.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::command_network::CommandNetwork;
use super::confinement::ConfinementSettings;
use super::confinement_guard::ConfinementGuard;
use crate::outside::{KeptAnswers, MachineFacts, RealMachine};
use turnwright_policy::permission::{AuditLog, PolicyRules, SharedMode};
use turnwright_workspace::checkpoint::ChangeTracker;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::fixed_places::OpenedPlaces;
use turnwright_workspace::web::WebFetcher;

/// The user's own folders, as opposed to a project's.
#[derive(Clone, Debug, Default)]
pub struct UserFolders {
    /// Settings, notes and skills of turnwright.
    pub config: PathBuf,
    /// Data that is kept for a while, such as long outputs.
    pub state: PathBuf,
    /// The home folder, if there is one.
    pub home: Option<PathBuf>,
}

/// The state that all sessions of a process share.
#[derive(Debug)]
pub struct ProcessShared {
    pub folders: UserFolders,
    /// The log of permission decisions.
    pub audit: AuditLog,
    /// Access to the web.
    pub web: WebFetcher,
    /// The places that commands and servers in the sandbox could write since this process was started.
    pub opened_places: Arc<OpenedPlaces>,
    /// The machine that the sessions depend on.
    pub(crate) facts: Arc<dyn MachineFacts>,
    /// Keeps the answers of tools, or gives them.
    pub(crate) answers: Arc<dyn KeptAnswers>,
}

impl Default for ProcessShared {
    fn default() -> ProcessShared {
        ProcessShared {
            folders: UserFolders::default(),
            audit: AuditLog::default(),
            web: WebFetcher::default(),
            opened_places: Arc::default(),
            facts: Arc::new(RealMachine),
            answers: Arc::new(RealMachine),
        }
    }
}

impl ProcessShared {
    pub fn new(folders: UserFolders) -> ProcessShared {
        let audit = AuditLog::new(&folders.state);
        ProcessShared { folders, audit, ..ProcessShared::default() }
    }
}

/// The permission rules of a session, set by the session and read by its turn.
// Held only to copy a pointer.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedRules(Arc<Mutex<Arc<PolicyRules>>>);

impl SharedRules {
    pub(crate) fn get(&self) -> Arc<PolicyRules> {
        Arc::clone(&self.0.lock())
    }

    pub(crate) fn set(&self, policy: PolicyRules) {
        *self.0.lock() = Arc::new(policy);
    }
}

/// The state that a session shares with its helpers: the rules by which calls are judged, and the state that confines and
/// watches commands.
#[derive(Debug, Default)]
pub struct SessionShared {
    pub process: Arc<ProcessShared>,
    /// The environment variables of commands.
    pub command_environment: Environment,
    /// The permission mode, which says how much may be done without asking. A change applies from the next
    /// effect on.
    pub mode: SharedMode,
    /// The permission rules, by which a call is judged. A tool needs them for what it shows without naming it. A
    /// change applies from the next effect on.
    pub(crate) rules: SharedRules,
    pub confinement: ConfinementSettings,
    /// Watches the protected paths while commands run. It is one for all conversations, because what one of
    /// them was allowed to change is no intrusion for the other.
    pub guard: ConfinementGuard,
    /// The private network of the commands.
    pub(crate) network: CommandNetwork,
    /// Records the file changes of calls, so that they can be undone.
    pub checkpoint: ChangeTracker,
}

impl SessionShared {
    pub(crate) fn new(
        process: Arc<ProcessShared>,
        command_environment: Environment,
        mode: SharedMode,
        rules: SharedRules,
        confinement: ConfinementSettings,
    ) -> SessionShared {
        SessionShared {
            process,
            command_environment,
            mode,
            rules,
            confinement,
            guard: ConfinementGuard::default(),
            network: CommandNetwork::default(),
            checkpoint: ChangeTracker::default(),
        }
    }
}
