//! The environment that the calls of one conversation share: a session's, or a helper's. Each call gets it in its
//! context.

use std::fmt::{self, Debug};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::confinement::ConfinementSettings;
use super::helper_set::HelperSet;
use super::open_terminals::OpenTerminals;
use super::repository;
use super::session_shared::SessionShared;
use turnwright_policy::permission::ProtectedPaths;
use turnwright_store::SessionLog;
use turnwright_types::client::{Client, CommandDisplay};
use turnwright_types::ids::SessionId;
use turnwright_types::update::Update;
use turnwright_workspace::checkpoint::{GitSettings, ObeyedFiles};
use turnwright_workspace::exec::Jobs;
use turnwright_workspace::files::Files;
use turnwright_workspace::real_path;
use turnwright_workspace::skills::SkillSet;
use turnwright_workspace::temp_folder::temp_place;
use turnwright_workspace::web::PageCache;

/// The environment in which the tools of one conversation run.
pub struct ToolEnv {
    /// The state that all conversations of the session share.
    pub shared: Arc<SessionShared>,
    /// The session that stores the conversation. A helper has one of its own.
    pub session: SessionId,
    pub files: Files,
    /// The commands of the conversation that were started and not forgotten.
    pub jobs: Jobs,
    /// The terminals that the client draws.
    pub(crate) terminals: OpenTerminals,
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
            terminals: OpenTerminals::default(),
            client,
            display,
            skills: SkillSet::default(),
            pages: PageCache::default(),
            helpers: HelperSet::default(),
            log: SessionLog::default(),
            open_questions: Mutex::default(),
            has_reported_audit_loss: AtomicBool::new(false),
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

    /// Tracks the effects of commands on the session's folders from now on.
    pub fn watch_files(&self) {
        let obeyed = ObeyedFiles {
            is_obeyed: ProtectedPaths::is_obeyed_in_subfolder,
            may_hold: ProtectedPaths::may_hold_obeyed,
        };
        let environment = &self.shared.command_environment;
        let home = environment.get("HOME").map(PathBuf::from);
        let config = environment
            .get("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(home.as_ref()?.join(".config")));
        let git = GitSettings { home, config, attribute_files: repository::attribute_files };
        let ConfinementSettings { writable, private_caches, protected, .. } =
            &self.shared.confinement;
        let places = writable.iter().chain([private_caches]).chain(protected.roots());
        let temporary = real_path(temp_place()).into_iter();
        let writable = temporary.chain(places.cloned()).collect();
        self.shared.checkpoint.watch(self.files.roots(), obeyed, git, writable);
    }

    /// The folder of the session's long outputs.
    pub(crate) fn output_folder(&self) -> PathBuf {
        Jobs::output_folder(&self.shared.process.folders.state, &self.session)
    }

    /// The folder that keeps a copy of what commands wrote into protected places.
    pub fn quarantine_folder(&self) -> PathBuf {
        self.output_folder().join("protected")
    }
}
