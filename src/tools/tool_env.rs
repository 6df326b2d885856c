//! State that calls share: that of a conversation (`ToolEnv`, which each call gets in its context), that of a session and
//! its helpers, and that of the process.

use std::fmt::{self, Debug};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::HelperSet;
use turnwright_guard::command_network::CommandNetwork;
use turnwright_guard::{CommandSite, ConfinementGuard, ConfinementSettings};
use turnwright_policy::permission::{AuditLog, PolicyRules, SharedMode};
use turnwright_recording::outside::{Outside, RealMachine};
use turnwright_store::SessionLog;
use turnwright_types::client::{Client, CommandDisplay};
use turnwright_types::ids::SessionId;
use turnwright_types::update::Update;
use turnwright_workspace::checkpoint::ChangeTracker;
use turnwright_workspace::exec::{Environment, Jobs};
use turnwright_workspace::files::Files;
use turnwright_workspace::fixed_places::OpenedPlaces;
use turnwright_workspace::skills::SkillSet;
use turnwright_workspace::web::{PageCache, WebFetcher};

/// The environment in which the tools of one conversation run.
pub struct ToolEnv {
    /// The state that all conversations of the session share.
    pub shared: Arc<SessionShared>,
    /// The session that stores the conversation. A helper has one of its own.
    pub session: SessionId,
    pub files: Files,
    /// The commands of the conversation that were started and not forgotten.
    pub jobs: Jobs,
    pub client: Arc<dyn Client>,
    /// How the client shows the output of running commands.
    pub display: CommandDisplay,
    pub skills: SkillSet,
    /// The web pages that were fetched last.
    pub pages: PageCache,
    /// The helpers that the conversation may start.
    pub helpers: HelperSet,
    /// The stored log of the conversation.
    pub log: SessionLog,
    /// Questions to ask in the conversation, which end the turn.
    open_questions: Mutex<Vec<String>>,
    has_reported_audit_loss: AtomicBool,
    /// Made for the first command.
    site: OnceLock<CommandSite>,
}

impl Debug for ToolEnv {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ToolEnv").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ToolEnv {
    pub fn new(
        shared: Arc<SessionShared>,
        session: SessionId,
        files: Files,
        client: Arc<dyn Client>,
        display: CommandDisplay,
    ) -> ToolEnv {
        let jobs = Jobs::new(Jobs::output_folder(&shared.process.folders.state, &session));
        ToolEnv {
            shared,
            session,
            files,
            jobs,
            client,
            display,
            skills: SkillSet::default(),
            pages: PageCache::default(),
            helpers: HelperSet::default(),
            log: SessionLog::default(),
            open_questions: Mutex::default(),
            has_reported_audit_loss: AtomicBool::new(false),
            site: OnceLock::new(),
        }
    }

    /// The environment of a helper, whose conversation is stored by `log`. Its commands have names that begin
    /// with `job_prefix`.
    pub(crate) fn for_helper(
        &self,
        session: SessionId,
        job_prefix: String,
        log: SessionLog,
        client: Arc<dyn Client>,
    ) -> ToolEnv {
        // The model may read what is in the folder of its session.
        let shared = Arc::clone(&self.shared);
        let display = CommandDisplay::default();
        ToolEnv {
            jobs: Jobs::new(self.output_folder()).with_prefix(job_prefix),
            log,
            ..ToolEnv::new(shared, session, self.files.unseen(), client, display)
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
        let protected = self.shared.guard.take_reports(&self.jobs);
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
        let Some(loss) = self.shared.process.audit.loss() else { return };
        if !self.has_reported_audit_loss.swap(true, Ordering::Relaxed) {
            let text = format!("The log of permission decisions is incomplete: {loss}.");
            self.client.update(Update::Notice(text));
        }
    }

    /// The place where the commands of the conversation run.
    pub(crate) fn command_site(&self) -> &CommandSite {
        let shared = &self.shared;
        self.site.get_or_init(|| CommandSite {
            roots: self.files.shared_roots(),
            environment: Arc::clone(&shared.command_environment),
            settings: Arc::clone(&shared.confinement),
            guard: Arc::clone(&shared.guard),
            network: Arc::clone(&shared.network),
            tracker: shared.checkpoint.clone(),
            opened_places: Arc::clone(&shared.process.opened_places),
            state_folder: shared.process.folders.state.clone(),
            outputs: self.output_folder(),
            client: Arc::clone(&self.client),
        })
    }

    /// The folder of the session's long outputs.
    pub(crate) fn output_folder(&self) -> PathBuf {
        Jobs::output_folder(&self.shared.process.folders.state, &self.session)
    }
}

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

impl UserFolders {
    /// Our configuration folder, if there is one.
    pub(crate) fn config_folder(&self) -> Option<&Path> {
        Some(self.config.as_path()).filter(|path| path.is_absolute())
    }
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
    /// The world outside of the sessions: the machine that they depend on, and the keeper of their tools' answers.
    pub(crate) outside: Arc<dyn Outside>,
}

impl Default for ProcessShared {
    fn default() -> ProcessShared {
        ProcessShared {
            folders: UserFolders::default(),
            audit: AuditLog::default(),
            web: WebFetcher::default(),
            opened_places: Arc::default(),
            outside: Arc::new(RealMachine),
        }
    }
}

impl ProcessShared {
    pub fn new(folders: UserFolders) -> ProcessShared {
        let audit = AuditLog::new(&folders.state);
        ProcessShared { folders, audit, ..ProcessShared::default() }
    }
}

/// A value that the session sets and its turns read. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedValue<T>(watch::Sender<Arc<T>>);

impl<T> SharedValue<T> {
    pub(crate) fn new(value: T) -> SharedValue<T> {
        SharedValue(watch::Sender::new(Arc::new(value)))
    }

    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.borrow())
    }

    /// Sets the value. Returns the one before.
    pub(crate) fn set(&self, value: T) -> Arc<T> {
        self.0.send_replace(Arc::new(value))
    }

    /// Changes the value. Whoever has it already keeps what it was.
    pub(crate) fn update(&self, change: impl FnOnce(&mut T))
    where
        T: Clone,
    {
        self.0.send_modify(|value| change(Arc::make_mut(value)));
    }
}

/// The state that a session shares with its helpers: the rules by which calls are judged, and the state that confines and
/// watches commands.
#[derive(Debug, Default)]
pub struct SessionShared {
    pub process: Arc<ProcessShared>,
    /// The environment variables of commands.
    pub command_environment: Arc<Environment>,
    /// The permission mode, which says how much may be done without asking. A change applies from the next
    /// effect on.
    pub mode: SharedMode,
    /// The permission rules, by which a call is judged. A tool needs them for what it shows without naming it. A
    /// change applies from the next effect on.
    pub(crate) rules: SharedValue<PolicyRules>,
    pub confinement: Arc<ConfinementSettings>,
    /// Watches the protected paths while commands run. It is one for all conversations, because what one of
    /// them was allowed to change is no intrusion for the other.
    pub guard: Arc<ConfinementGuard>,
    /// The private network of the commands.
    pub(crate) network: Arc<CommandNetwork>,
    /// Records the file changes of calls, so that they can be undone.
    pub checkpoint: ChangeTracker,
}

impl SessionShared {
    pub(crate) fn new(
        process: Arc<ProcessShared>,
        command_environment: Environment,
        mode: SharedMode,
        rules: SharedValue<PolicyRules>,
        confinement: ConfinementSettings,
    ) -> SessionShared {
        SessionShared {
            process,
            command_environment: Arc::new(command_environment),
            mode,
            rules,
            confinement: Arc::new(confinement),
            guard: Arc::default(),
            network: Arc::default(),
            checkpoint: ChangeTracker::default(),
        }
    }
}
