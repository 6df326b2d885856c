//! The context that a call gets, and the outcome that it gives. The context has the state that calls share: that of a
//! conversation (`ToolEnv`), that of a session and its helpers, and that of the process.

use std::fmt::{self, Debug};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;

use super::{HelperFacts, HelperRunner, HelperSet, HostConsent, SessionHooks};
use turnwright_config::ConfigFile;
use turnwright_guard::command_network::CommandNetwork;
use turnwright_guard::{CommandSite, ConfinementGuard, ConfinementSettings};
use turnwright_lsp::LanguageServers;
use turnwright_policy::permission::{AuditLog, Mode, PolicyRules, SharedMode};
use turnwright_recording::outside::{Outside, RealMachine};
use turnwright_store::{CallOutcome, SessionLog};
use turnwright_types::client::{Client, ClientTerminals};
use turnwright_types::effect::{CallContent, CallView, fenced};
use turnwright_types::ids::{CallId, SessionId};
use turnwright_types::message::Media;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_types::update::{CallUpdate, ToolCallStatus, Update};
use turnwright_workspace::checkpoint::ChangeTracker;
use turnwright_workspace::exec::{Environment, Jobs};
use turnwright_workspace::files::Files;
use turnwright_workspace::fixed_places::OpenedPlaces;
use turnwright_workspace::skills::SkillSet;
use turnwright_workspace::web::search::SearchService;
use turnwright_workspace::web::{PageCache, WebFetcher};

/// The most resources of MCP servers that one conversation follows: those that it has read last.
const MAX_FOLLOWED_RESOURCES: usize = 32;

/// The context of one call.
#[derive(Clone, Debug)]
pub struct ToolCtx {
    /// The environment of the conversation.
    pub env: Arc<ToolEnv>,
    pub call: CallId,
    /// Cancelled together with the turn, or alone. A tool with side effects stops them before it returns.
    pub cancel: CancellationToken,
    /// The turn of the session that the call belongs to, also if a helper has made it.
    pub turn: CancellationToken,
    /// Runs helpers, if the call may start any.
    pub helpers: Option<Arc<dyn HelperRunner>>,
    /// Decides about the hosts that a command wants to reach while it runs.
    pub(crate) hosts: Arc<dyn HostConsent>,
    /// True if the model that has made the call takes PDF files.
    pub takes_files: bool,
}

impl ToolCtx {
    /// Runs work until it ends or the user cancels the call.
    pub(super) async fn until_cancelled<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, ToolRefusal> {
        let done = self.cancel.run_until_cancelled(work).await;
        done.ok_or_else(|| ToolRefusal::cancelled("Cancelled by the user."))
    }

    /// Sends an update of the card of the call, which is in progress. `change` sets what is new.
    pub(crate) fn update_card(&self, change: impl FnOnce(&mut CallUpdate)) {
        let mut update = CallUpdate::new(self.call.clone(), ToolCallStatus::InProgress);
        change(&mut update);
        self.env.client.update(update.into());
    }
}

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
    /// Nobody can answer a question.
    pub is_alone: bool,
    /// The helper that has the conversation, if one has.
    pub(crate) helper: Option<HelperFacts>,
    /// The terminals in which the client runs commands. Without them it is sent their output: for a terminal that it
    /// draws, if it does so when the command starts, and otherwise as text in the call's card.
    pub terminals: Option<Arc<dyn ClientTerminals>>,
    pub skills: SkillSet,
    /// The web pages that were fetched last.
    pub pages: PageCache,
    /// The helpers that the conversation may start.
    pub helpers: HelperSet,
    /// The stored log of the conversation.
    pub log: SessionLog,
    /// The resources of MCP servers that the model has read, each with a description, and whether it has changed since.
    resources: watch::Sender<Vec<(String, watch::Receiver<bool>)>>,
    pub(super) traces: CallTraces,
    /// Made for the first command.
    site: OnceLock<CommandSite>,
}

impl Debug for ToolEnv {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ToolEnv").finish_non_exhaustive()
    }
}

impl ToolEnv {
    pub fn new(
        shared: Arc<SessionShared>,
        session: SessionId,
        files: Files,
        client: Arc<dyn Client>,
        terminals: Option<Arc<dyn ClientTerminals>>,
    ) -> ToolEnv {
        let jobs = Jobs::new(Jobs::output_folder(&shared.process.folders.state, &session));
        ToolEnv {
            shared,
            session,
            files,
            jobs,
            client,
            is_alone: false,
            helper: None,
            terminals,
            skills: SkillSet::default(),
            pages: PageCache::default(),
            helpers: HelperSet::default(),
            log: SessionLog::default(),
            resources: watch::Sender::default(),
            traces: CallTraces::default(),
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
        ToolEnv {
            jobs: Jobs::new(self.output_folder()).within(&self.jobs, job_prefix),
            is_alone: self.is_alone,
            log,
            ..ToolEnv::new(shared, session, self.files.unseen(), client, None)
        }
    }

    /// The mode by which calls are judged: that of the session, or plan mode in a helper that may change nothing.
    pub(crate) fn mode(&self) -> Mode {
        let is_read_only = self.helper.as_ref().is_some_and(|helper| helper.is_read_only);
        if is_read_only { Mode::Plan } else { self.shared.mode.get() }
    }

    /// Asks this in the conversation once the running calls have ended, and ends the turn with it.
    pub(crate) fn ask_in_conversation(&self, question: String) {
        self.traces.questions.lock().push(question);
    }

    /// The questions to ask now, each returned once.
    pub fn take_open_questions(&self) -> Vec<String> {
        std::mem::take(&mut *self.traces.questions.lock())
    }

    /// Tells the model, once and with its next request, when this resource has changed. `None` forgets all of them.
    pub(crate) fn follow_resource(&self, resource: Option<(String, watch::Receiver<bool>)>) {
        self.resources.send_modify(|all| match resource {
            Some(resource) => {
                all.retain(|(name, _)| *name != resource.0);
                all.truncate(MAX_FOLLOWED_RESOURCES - 1);
                all.insert(0, resource);
            }
            None => all.clear(),
        });
    }

    /// Names the resources that have changed since the model read them, each once.
    pub(crate) fn resource_news(&self) -> Option<String> {
        let mut news = String::new();
        self.resources.send_modify(|all| {
            for (name, _) in all.extract_if(.., |(_, changed)| *changed.borrow()) {
                news.push_str(&format!("{name} has changed since you read it.\n"));
            }
        });
        (!news.is_empty()).then_some(news)
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
        if !self.shared.has_reported_audit_loss.swap(true, Ordering::Relaxed) {
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
            tracker: Arc::clone(&shared.checkpoint),
            opened_places: Arc::clone(&shared.process.opened_places),
            state_folder: shared.process.folders.state.clone(),
            outputs: self.output_folder(),
            client: Arc::clone(&self.client),
        })
    }

    /// The language servers of the session, if it uses any.
    pub(crate) fn languages(&self) -> Option<&LanguageServers> {
        self.shared.languages.get()
    }

    /// The folder of the session's long outputs.
    pub(crate) fn output_folder(&self) -> PathBuf {
        Jobs::output_folder(&self.shared.process.folders.state, &self.session)
    }
}

/// Facts that the calls of a conversation leave behind, for later calls and for the end of the turn.
#[derive(Debug, Default)]
pub(super) struct CallTraces {
    /// The hash of the last call that has written a whole file or appended to one. A repetition is answered in another
    /// way.
    pub(super) last_write: AtomicU64,
    /// Questions to ask in the conversation, which end the turn.
    questions: Mutex<Vec<String>>,
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
    /// The service that searches the web, for sessions that are opened from now on.
    pub(crate) search: SharedValue<Option<Arc<SearchService>>>,
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
            search: SharedValue::default(),
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
    /// The user's settings, as they were when the session was opened.
    pub settings: Arc<ConfigFile>,
    /// The service that searches the web, if there was one when the session was opened.
    pub search: Option<Arc<SearchService>>,
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
    pub checkpoint: Arc<ChangeTracker>,
    /// The hooks of the user and of the project.
    pub(crate) hooks: SessionHooks,
    /// The surroundings, of which the model is told, as soon as they are gathered; not set if it is told nothing.
    pub(crate) surroundings: OnceLock<GatheredSurroundings>,
    /// Set when the state of the project before the first change is kept, or cannot be.
    pub(crate) start: OnceCell<()>,
    /// The user was told that entries of the audit log could not be written.
    pub(crate) has_reported_audit_loss: AtomicBool,
    /// The language servers, unless there are none.
    pub(crate) languages: OnceLock<LanguageServers>,
}

/// The lines about the project and the machine that were gathered in time; `None` if there are none.
pub(crate) type GatheredSurroundings = Shared<BoxFuture<'static, Option<Arc<str>>>>;

/// The most bytes of a result that a card shows.
const MAX_BYTES: usize = 16 * 1024;
/// The fields of a raw output that hold the result.
const RESULT_FIELDS: [&str; 7] =
    ["answer", "content", "error", "message", "mode", "output", "result"];

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutcome {
    /// True if the call did what was asked.
    pub ok: bool,
    /// The text for the model.
    pub text: String,
    /// Replaces the view of the call, now that its result is known.
    pub view: Option<CallView>,
    /// The content of the card.
    pub content: Vec<CallContent>,
    /// The result as a few JSON fields, for clients that show nothing else. [`ToolOutcome::settle`] adds the
    /// text unless a field holds the result.
    pub raw: Value,
    /// Pictures and PDF files, for models that accept them.
    pub images: Vec<Media>,
}

/// The end of a call that ran: the outcome, or why it failed. The user reads the first sentence of a reason.
pub(crate) type ToolAnswer = Result<ToolOutcome, ToolRefusal>;

impl ToolOutcome {
    /// A call that did what was asked.
    pub(crate) fn done(
        text: impl Into<String>,
        content: Vec<CallContent>,
        raw: Value,
    ) -> ToolOutcome {
        ToolOutcome { ok: true, text: text.into(), view: None, content, raw, images: Vec::new() }
    }

    /// The same, with a card that shows the text for the model.
    pub(super) fn done_as_shown(text: String, raw: Value) -> ToolOutcome {
        let content = vec![CallContent::Text(text.clone())];
        ToolOutcome::done(text, content, raw)
    }

    /// A call that has failed or was not executed. Of a text for the model the user reads the first sentence.
    pub fn failed(reason: impl Into<ToolRefusal>) -> ToolOutcome {
        let ToolRefusal { for_model, for_user } = reason.into();
        ToolOutcome {
            ok: false,
            view: None,
            content: vec![CallContent::Text(for_user.clone())],
            raw: json!({ "message": for_user }),
            text: for_model,
            images: Vec::new(),
        }
    }

    /// Adds a line for the model.
    pub(crate) fn add_line(&mut self, line: &str) {
        text::add_line(&mut self.text, line);
    }

    /// Adds a line for the model and the user.
    pub fn append_note(&mut self, note: String) {
        self.add_line(&note);
        self.content.push(CallContent::Text(note));
    }

    /// The beginning of a result as the content of a card.
    pub(super) fn card_content(text: &str) -> Vec<CallContent> {
        vec![CallContent::Text(fenced(&beginning(text)))]
    }

    /// Settles the outcome, as that of a call that has not run. Clients that show nothing but the raw output need the
    /// result in it, too.
    pub(crate) fn settle(self) -> CallOutcome {
        let ToolOutcome { ok: is_success, text, view, content, raw: mut raw_output, images } = self;
        if let Value::Object(fields) = &mut raw_output
            && !RESULT_FIELDS.iter().any(|field| fields.contains_key(*field))
        {
            fields.insert("result".to_owned(), beginning(&text).into());
        }
        let unset = CallOutcome::default();
        CallOutcome { is_success, text, images, view, content, raw_output, ..unset }
    }
}

/// The beginning of a result, cut at the end of a line.
fn beginning(text: &str) -> String {
    if text.len() <= MAX_BYTES {
        return text.to_owned();
    }
    let start = text::prefix(text, MAX_BYTES);
    let lines = text::whole_lines(start);
    let (shown, line_end) = if lines.is_empty() { (start, "\n") } else { (lines, "") };
    format!("{shown}{line_end}[… {} more bytes]\n", text.len() - shown.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_result_is_cut_at_the_end_of_a_line_and_says_so() {
        assert_eq!(beginning("a\nb"), "a\nb");
        let long = beginning(&"0123456789abcde\n".repeat(2_000));
        assert!(long.ends_with("0123456789abcde\n[… 15616 more bytes]\n"), "{long}");
        let line = beginning(&"é".repeat(10_000));
        assert!(line.ends_with("é\n[… 3616 more bytes]\n") && line.len() < MAX_BYTES + 30);
    }
}
