//! The environment that all tools of a session share; each call gets it in its context.

use std::fmt::{self, Debug};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::command_network::CommandNetwork;
use super::confinement::ConfinementSettings;
use super::confinement_guard::ConfinementGuard;
use super::helper_set::HelperSet;
use super::open_terminals::OpenTerminals;
use super::repository;
use crate::recording::Recording;
use turnwright_policy::permission::{AuditLog, PolicyRules, ProtectedPaths, SharedMode};
use turnwright_store::SessionLog;
use turnwright_types::client::{Client, CommandDisplay};
use turnwright_types::ids::SessionId;
use turnwright_types::update::Update;
use turnwright_workspace::checkpoint::{ChangeTracker, GitSettings, ObeyedFiles};
use turnwright_workspace::exec::{Environment, Jobs};
use turnwright_workspace::files::Files;
use turnwright_workspace::fixed_places::OpenedPlaces;
use turnwright_workspace::real_path;
use turnwright_workspace::skills::SkillSet;
use turnwright_workspace::temp_folder::temp_place;
use turnwright_workspace::web::{PageCache, WebFetcher};

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

/// The environment that the tools of all sessions of a process share.
#[derive(Debug, Default)]
pub struct SharedToolEnv {
    pub folders: UserFolders,
    /// The log of permission decisions.
    pub audit: AuditLog,
    /// Access to the web.
    pub web: WebFetcher,
    /// The places that commands and servers in the sandbox could write since this process was started.
    pub opened_places: Arc<OpenedPlaces>,
    /// Records the data that calls bring from outside, or plays it back.
    pub(crate) recording: Recording,
}

impl SharedToolEnv {
    pub fn new(folders: UserFolders) -> SharedToolEnv {
        let audit = AuditLog::new(&folders.state);
        SharedToolEnv { folders, audit, ..SharedToolEnv::default() }
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

/// The environment in which the tools of one session run.
pub struct ToolEnv {
    pub session: SessionId,
    pub files: Files,
    /// The environment variables of commands.
    pub command_environment: Environment,
    /// The commands of the session that were started and not forgotten.
    pub jobs: Jobs,
    /// The terminals that the client draws.
    pub(crate) terminals: OpenTerminals,
    /// The client of the session.
    pub client: Arc<dyn Client>,
    /// How the client shows the output of running commands.
    pub display: CommandDisplay,
    pub shared: Arc<SharedToolEnv>,
    pub skills: SkillSet,
    /// The web pages that were fetched last.
    pub pages: PageCache,
    /// The permission mode, which says how much may be done without asking.
    pub mode: SharedMode,
    /// The permission rules, by which a call is judged. A tool needs them for what it shows without naming it.
    pub(crate) rules: SharedRules,
    pub confinement: ConfinementSettings,
    /// Watches the protected paths while commands run. Helpers share it with their session, because what
    /// one of them was allowed to change is no intrusion for the other.
    pub guard: Arc<ConfinementGuard>,
    /// The private network of the session's commands, which helpers share.
    pub(crate) network: Arc<CommandNetwork>,
    /// The helpers of the session.
    pub helpers: HelperSet,
    /// The stored log of the session.
    pub log: SessionLog,
    /// Records the file changes of calls, so that they can be undone.
    pub checkpoint: ChangeTracker,
    /// Questions to ask in the conversation, which end the turn.
    open_questions: Mutex<Vec<String>>,
    has_reported_audit_loss: AtomicBool,
}

impl Debug for ToolEnv {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ToolEnv").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ToolEnv {
    pub fn new(
        session: SessionId,
        files: Files,
        command_environment: Environment,
        client: Arc<dyn Client>,
        display: CommandDisplay,
        shared: Arc<SharedToolEnv>,
    ) -> ToolEnv {
        let jobs = Jobs::new(Jobs::output_folder(&shared.folders.state, &session));
        ToolEnv {
            session,
            files,
            command_environment,
            jobs,
            terminals: OpenTerminals::default(),
            client,
            display,
            shared,
            skills: SkillSet::default(),
            pages: PageCache::default(),
            mode: SharedMode::default(),
            rules: SharedRules::default(),
            confinement: ConfinementSettings::default(),
            guard: Arc::default(),
            network: Arc::default(),
            helpers: HelperSet::default(),
            log: SessionLog::default(),
            checkpoint: ChangeTracker::default(),
            open_questions: Mutex::default(),
            has_reported_audit_loss: AtomicBool::new(false),
        }
    }

    /// Asks this in the conversation once the running calls have ended, and ends the turn with it.
    pub(super) fn ask_in_conversation(&self, question: String) {
        self.open_questions.lock().push(question);
    }

    /// The questions to ask now, each returned once.
    pub fn take_open_questions(&self) -> Vec<String> {
        std::mem::take(&mut *self.open_questions.lock())
    }

    /// News of commands and helpers that no call waits for, each returned once: their output and end, and
    /// their changes in protected places. The user is notified of the latter, so call this only for
    /// a turn that runs or begins.
    pub fn command_news(&self) -> Option<String> {
        self.report_audit_loss();
        let protected = self.guard.take_reports(&self.jobs);
        if let Some(protected) = &protected {
            self.client.update(Update::Notice(protected.trim_end().to_owned()));
        }
        let (helpers, notices) = self.helpers.take_news();
        for notice in notices {
            self.client.update(Update::Notice(notice));
        }
        let ended = self.jobs.take_end_notices();
        let text: String = ended.into_iter().chain(protected).chain([helpers]).collect();
        (!text.is_empty()).then_some(text)
    }

    /// Tells the user once if entries of the audit log could not be written.
    pub fn report_audit_loss(&self) {
        let Some(loss) = self.shared.audit.loss() else { return };
        if !self.has_reported_audit_loss.swap(true, Ordering::Relaxed) {
            let text = format!("The log of permission decisions is incomplete: {loss}.");
            self.client.update(Update::Notice(text));
        }
    }

    /// Tracks the effects of commands on the session's folders from now on.
    pub fn watch_files(&self) {
        let obeyed = ObeyedFiles {
            is_obeyed: ProtectedPaths::is_obeyed_in_subfolder,
            may_hold: ProtectedPaths::may_hold_obeyed,
        };
        let home = self.command_environment.get("HOME").map(PathBuf::from);
        let config = self
            .command_environment
            .get("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(home.as_ref()?.join(".config")));
        let git = GitSettings { home, config, attribute_files: repository::attribute_files };
        let ConfinementSettings { writable, private_caches, protected, .. } = &self.confinement;
        let places = writable.iter().chain([private_caches]).chain(protected.roots());
        let temporary = real_path(temp_place()).into_iter();
        let writable = temporary.chain(places.cloned()).collect();
        self.checkpoint.watch(self.files.roots(), obeyed, git, writable);
    }

    /// The folder that keeps a copy of what commands wrote into protected places.
    pub fn quarantine_folder(&self) -> PathBuf {
        Jobs::output_folder(&self.shared.folders.state, &self.session).join("protected")
    }
}
