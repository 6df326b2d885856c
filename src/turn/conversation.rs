//! A conversation with the model: what the turns of a session, or the turn of a helper, work with. This includes what
//! was told already: the notices that the user gets once, and the context that the model has as long as it is not left
//! out of the conversation.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::cache_guard::CacheGuard;
use super::calls::AdmissionQueue;
use super::calls::runner::CallRunner;
use super::note_offers::NoteOffer;
use super::prompt::project_context::ToldFolders;
use super::submissions::Submissions;
use super::{CancellableCalls, SharedSpending, SpendingLimits};
use crate::error::Error;
use crate::tools::{self, OfferContext, SharedValue, ToolEnv, Toolbox};
use turnwright_llm::{Model, ReasoningEffort};
use turnwright_lsp::LanguageServers;
use turnwright_policy::permission::{Grants, Mode, PolicyRules, SharedMode};
use turnwright_store::{Audience, Entry, SessionLog, SessionRow};
use turnwright_types::client::Client;
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, Message, PromptPart, ToolSpecs};
use turnwright_types::shell_script::Check;
use turnwright_types::update::{CursorPlace, PromptKey, Update};
use turnwright_types::work_settings::WorkSettings;
use turnwright_workspace::helper_types::HelperType;

/// The permission answers that a conversation remembers.
// Held only to judge.
pub(crate) type SharedGrants = Arc<Mutex<Grants>>;

/// Finds the model with a name. Reads files: not for the runtime's thread.
type FindModel = dyn Fn(&str) -> Result<Arc<dyn Model>, Error> + Send + Sync;

/// Everything that a turn works with but the history. The session owns it and clones the handle for each of
/// its turns; a helper has one of its own.
#[derive(Clone)]
pub(crate) struct Conversation {
    /// The model and its effort. A change applies from the next request on.
    pub selection: SharedModelSelection,
    /// The tools that the model can call.
    pub tools: Arc<Toolbox>,
    /// The environment that the tools work in.
    pub env: Arc<ToolEnv>,
    /// The notes that were given already.
    pub told: Told,
    /// The prompts that the client may send again.
    pub submissions: Submissions,
    /// The remembered permission answers. A helper in the background has a copy.
    pub grants: SharedGrants,
    /// The commands that check what the model has edited.
    pub checks: SharedValue<Vec<Check>>,
    /// The instructions for the model.
    pub system_prompt: Arc<str>,
    /// The most requests to the model that one turn may make.
    pub max_requests: u32,
    /// How it works, as the settings say.
    pub work: Arc<WorkSettings>,
    /// The other limits on the spending of a turn and of the session.
    pub limits: SpendingLimits,
    /// The spending of the session, including that of helpers.
    pub spending: SharedSpending,
    /// The calls that wait or run, also those of helpers.
    pub queue: Arc<AdmissionQueue>,
    /// The calls that the user can cancel one by one; those of helpers are not shown as calls.
    pub cancellable: CancellableCalls,
    /// Finds a model by its name.
    pub find_model: Arc<FindModel>,
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Conversation")
            .field("selection", &self.selection)
            .finish_non_exhaustive()
    }
}

/// The instructions of a helper in addition to those of the session.
const HELPER_INSTRUCTIONS: &str = include_str!("helper/instructions.md");
/// The most requests of a helper, without the one for its answer when they are used up.
const MAX_HELPER_REQUESTS: u32 = 30;
/// The prefix of the context line that tells the model the mode.
pub(super) const MODE_PREFIX: &str = "Mode: ";

impl Conversation {
    /// The conversation of a helper. It has its own environment, tools, instructions and limit of requests; the
    /// queue of calls and all spending belong to the session.
    pub(super) fn for_helper(
        &self,
        env: ToolEnv,
        selection: SharedModelSelection,
        kind: &HelperType,
    ) -> Conversation {
        let system_prompt =
            format!("{}\n{HELPER_INSTRUCTIONS}{}", self.system_prompt, kind.instructions);
        Conversation {
            env: Arc::new(env),
            selection,
            tools: Arc::new(self.tools.for_helper(kind.tools.as_deref(), &kind.denied_tools)),
            system_prompt: system_prompt.into(),
            told: self.told.for_helper(),
            // The turn that has asked for the helper checks what it has edited.
            checks: SharedValue::default(),
            cancellable: CancellableCalls::default(),
            max_requests: self.max_requests.min(kind.max_turns.unwrap_or(MAX_HELPER_REQUESTS)),
            work: Arc::new(self.work.for_helper()),
            ..self.clone()
        }
    }

    pub(crate) fn client(&self) -> &Arc<dyn Client> {
        &self.env.client
    }

    /// How much is done without asking.
    pub(crate) fn mode(&self) -> &SharedMode {
        &self.env.shared.mode
    }

    /// The permission rules.
    pub(crate) fn rules(&self) -> &SharedValue<PolicyRules> {
        &self.env.shared.rules
    }

    pub(crate) fn log(&self) -> &SessionLog {
        &self.env.log
    }

    /// The stored row of a session that begins now in the folders and with the settings of this one.
    pub(crate) fn session_row(&self) -> SessionRow {
        let roots = self.env.files.roots();
        let selection = self.selection.get();
        SessionRow {
            real_cwd: roots.real_cwd().to_path_buf(),
            additional_folders: roots.additional_folders().map(Into::into).collect(),
            mode: Some(self.mode().get().id().to_owned()),
            model: Some(selection.model.name().to_owned()),
            effort: Some(selection.effort.id().to_owned()),
            ..SessionRow::new(self.env.session.clone(), roots.cwd().to_path_buf())
        }
    }

    /// Shows a notice to the user.
    pub(crate) fn notify(&self, text: String) {
        self.client().update(Update::Notice(text));
    }

    /// Shows a notice to the user, unless the session has shown the same one before.
    pub(crate) fn notify_once(&self, text: String) {
        if self.told.lock().shown_notices.insert(text.clone()) {
            self.notify(text);
        }
    }

    /// Shows prompts that the user may want to send next. They replace the previous ones. If there are none now and
    /// were none before, nothing is sent.
    pub(crate) fn suggest(&self, prompts: Vec<String>) {
        let before = std::mem::replace(&mut self.told.lock().suggestions, prompts.clone());
        if !prompts.is_empty() || !before.is_empty() {
            self.client().update(Update::Suggestions(prompts));
        }
    }

    /// Shows a text to the user that the model does not get.
    pub(crate) fn say(&self, id: MessageId, text: String) {
        self.log().add_entry(Entry::Note { id: id.clone(), text: text.clone() });
        self.client().update(Update::AgentText { message: id, text });
    }

    /// Tells the client how many tokens of the window are in use, its size, how many of them came from the provider's
    /// cache, and what the session has cost.
    pub(crate) fn report_context(&self, history: &History, used: u64, size: u64, cached: u64) {
        let used = used.min(size);
        let cost = history.cost;
        self.client().update(Update::ContextUsage { used, size, cached, cost });
    }

    /// Tells a client that follows prompts that the turn of a prompt begins.
    pub(crate) fn report_turn(&self, prompt: PromptKey) {
        if self.client().follows_prompts() {
            self.client().update(Update::TurnBegan(prompt));
        }
    }

    /// Tells a client that follows prompts that the user's message is now part of the conversation, and every client
    /// that the session can be forked before it.
    pub(crate) fn report_message(
        &self,
        prompt: Option<PromptKey>,
        id: &MessageId,
        message: &Message,
    ) {
        let Some(said) = message.as_user() else { return };
        let client = self.client();
        if client.follows_prompts() {
            let message = id.clone();
            let parts = said.parts.clone();
            client.update(Update::UserMessage { prompt, message, parts });
        }
        if said.own_parts().next().is_some() {
            let place = CursorPlace::BeforePrompt;
            client.update(Update::Cursor { place, at: id.clone(), can_fork: true });
        }
        if let Some(submission) = &said.submission {
            self.submissions.insert(submission, id, client.as_ref());
        }
    }

    /// Adds a message to the history and to the log that the model gets and the user does not see. Returns the number
    /// of its entry.
    pub(crate) fn push_hidden(&self, history: &mut History, message: Message) -> Option<u64> {
        history.push(message);
        let message = history.messages.last().cloned()?;
        let id = history.mint_message_id();
        let audience = Audience::Model;
        Some(self.log().add_entry(Entry::Message { id, message, audience }))
    }

    /// Notes that what earlier prompts and results told the model may no longer be in its context.
    pub(crate) fn forget_told_context(&self) {
        self.told.forget_context();
        self.env.skills.forget_loaded();
        self.env.follow_resource(None);
    }

    /// Sends the pending notices of the session log and of the MCP tools to the client.
    pub(crate) fn send_notices(&self) {
        let of_servers = self.tools.remote_tools().take_notices();
        for notice in self.log().take_notices().into_iter().chain(of_servers) {
            self.notify(notice);
        }
    }

    /// Returns the context line about the mode, unless the model was already told this mode.
    pub(crate) fn mode_context(&self) -> Option<String> {
        let mode = self.env.mode();
        let before = self.told.lock().mode.replace(mode);
        (before != Some(mode)).then(|| self.mode_line())
    }

    pub(super) fn mode_line(&self) -> String {
        let mode = self.env.mode();
        let can_confine = self.rules().get().can_confine;
        format!("{MODE_PREFIX}{} ({})\n", mode.id(), mode.description(can_confine))
    }

    /// If the conversation's last line about the mode is still correct, marks it as told, so that
    /// it is not repeated.
    pub(crate) fn restore_announced_mode(&self, history: &History) {
        let users = history.messages.iter().rev().filter_map(|message| message.as_user());
        let parts = users.flat_map(|user| user.parts.iter().rev());
        let mut lines = parts.filter_map(|part| match part {
            PromptPart::Context(text) => text.lines().rfind(|line| line.starts_with(MODE_PREFIX)),
            _ => None,
        });
        if lines.next() == Some(self.mode_line().trim_end()) {
            self.told.lock().mode = Some(self.mode().get());
        }
    }

    /// The tools that a model with this window is offered.
    pub(crate) fn specs(&self, window: u64) -> ToolSpecs {
        self.tools.specs(&self.offer(), Some(window))
    }

    /// Makes the runner of its calls, with these answers to questions.
    pub(super) fn runner(&self, grants: SharedGrants) -> CallRunner {
        CallRunner::new(Arc::clone(&self.env), grants, Arc::clone(&self.queue))
    }

    /// The facts that decide which tools the model is offered.
    pub(crate) fn offer(&self) -> OfferContext {
        let model = self.selection.get().model;
        OfferContext {
            prefers_patches: model.prefers_apply_patch(),
            skills: self.env.skills.names(),
            is_planning: self.mode().get() == Mode::Plan,
            helpers: self.env.helpers.catalogue(),
            has_search: self.env.shared.search.is_some(),
            is_alone: self.work.alone,
            can_find_symbols: self.env.languages().is_some_and(LanguageServers::can_find_symbols),
            is_small: tools::is_small(self.work.tools, model.name(), model.window()),
        }
    }
}

/// A notice that the user gets once in a session, be it about the session itself or about a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnceNotice {
    /// The server truncates prompts.
    Truncation,
    /// The window is small.
    SmallWindow,
    /// The size of the window is only assumed.
    AssumedWindow,
    /// The base URL lacks its version.
    BaseUrl,
    /// The cost of an answer is not known, although a limit is set.
    UnknownCost,
    /// The same for its tokens.
    UnknownTokens,
}

/// The notes that the user, the model and its provider have been given, and those that the model has yet to be told.
/// Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// A bit for each [`OnceNotice`], which a session shares with its helpers.
    notices: Arc<AtomicU8>,
    // Held only to look at a few values.
    context: Arc<Mutex<ToldContext>>,
}

/// The part of [`Told`] that each conversation has for itself.
#[derive(Debug, Default)]
pub(crate) struct ToldContext {
    /// The mode that the model was last told; `None` if that message is no longer in its context.
    pub(crate) mode: Option<Mode>,
    /// The folders whose instructions the model has.
    pub(super) folders: ToldFolders,
    /// True if the user was told that instructions, notes and skills could not be read.
    pub(super) lacks_instructions: bool,
    /// Watches over what the provider has in its cache.
    pub(crate) cache_guard: CacheGuard,
    /// Context for the model that no prompt has brought yet.
    unsent: String,
    /// News of what the user has undone, for the next prompt.
    pub(crate) undo_news: Option<String>,
    /// The notes that were offered to the user.
    pub(super) offers: Vec<NoteOffer>,
    /// The last one of them, until the user has it written.
    pub(crate) open_offer: Option<NoteOffer>,
    /// The suggested prompts that the client shows.
    pub(crate) suggestions: Vec<String>,
    /// Hashes of what was last told at the end of a turn, by its subject.
    news: HashMap<&'static str, u64>,
    /// The command lines of the found checks that do not run in this session.
    pub(crate) dropped_checks: HashSet<String>,
    /// The notices that are shown only once.
    shown_notices: HashSet<String>,
}

impl Told {
    /// The state of a new helper: its model knows nothing yet, but its user is the one of the session.
    pub(super) fn for_helper(&self) -> Told {
        Told { notices: Arc::clone(&self.notices), context: Arc::default() }
    }

    /// Marks the notice as told. Returns true if it was not told before.
    pub(super) fn first_time(&self, notice: OnceNotice) -> bool {
        let bit = 1 << notice as u8;
        self.notices.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Locks what was told, for a look at a few values.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ToldContext> {
        self.context.lock()
    }

    /// Forgets everything that was told to the model, because it may no longer be in its context.
    fn forget_context(&self) {
        let mut context = self.lock();
        context.mode = None;
        context.folders = ToldFolders::default();
    }

    /// Keeps a note that the user is told of.
    pub(super) fn add_offer(&self, offer: NoteOffer) {
        let mut context = self.lock();
        context.offers.push(offer.clone());
        context.open_offer = Some(offer);
    }

    /// Leaves context for the next prompt.
    pub(crate) fn add_unsent(&self, context: impl IntoIterator<Item = String>) {
        self.lock().unsent.extend(context);
    }

    /// Takes the context that no prompt has brought yet. The first prompt of a conversation gets its whole context
    /// anew, so nothing older is left for it.
    pub(crate) fn take_unsent(&self, is_first: bool) -> String {
        let unsent = std::mem::take(&mut self.lock().unsent);
        if is_first { String::new() } else { unsent }
    }

    /// Marks this as the last that was told about a subject, by a hash. Returns true if it was not.
    pub(super) fn is_news(&self, subject: &'static str, hash: u64) -> bool {
        self.lock().news.insert(subject, hash) != Some(hash)
    }
}

/// The model of a session and its reasoning effort.
#[derive(Clone, Debug)]
pub(crate) struct ModelSelection {
    pub model: Arc<dyn Model>,
    /// The reasoning effort; ignored by models that have none to choose.
    pub effort: ReasoningEffort,
    /// The model before the current one, until that has answered: it has the conversation so far in its cache.
    pub(super) previous: Option<Arc<dyn Model>>,
}

/// The model selection, set by the session and read by its turn.
#[derive(Clone, Debug)]
pub(crate) struct SharedModelSelection(SharedValue<ModelSelection>);

impl SharedModelSelection {
    pub(crate) fn new(model: Arc<dyn Model>, effort: ReasoningEffort) -> SharedModelSelection {
        let selection = ModelSelection { model, effort, previous: None };
        SharedModelSelection(SharedValue::new(selection))
    }

    pub(crate) fn get(&self) -> ModelSelection {
        ModelSelection::clone(&self.0.get())
    }

    pub(crate) fn set_model(&self, model: Arc<dyn Model>) {
        self.0.update(|selection| {
            let previous = std::mem::replace(&mut selection.model, model);
            selection.previous.get_or_insert(previous);
        });
    }

    /// Sets the model of a stored session, or the same model with another key. The one before has nothing of the
    /// conversation, or cannot be used any more.
    pub(crate) fn restore_model(&self, model: Arc<dyn Model>) {
        self.0.update(|selection| selection.model = model);
    }

    pub(crate) fn set_effort(&self, effort: ReasoningEffort) {
        self.0.update(|selection| selection.effort = effort);
    }

    /// Takes note that the current model has answered.
    pub(super) fn forget_previous(&self) {
        self.0.update(|selection| selection.previous = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_news_once_for_a_session_and_its_helpers_together() {
        let session = Told::default();
        let helper = session.for_helper();
        assert!(helper.first_time(OnceNotice::BaseUrl));
        assert!(
            !session.first_time(OnceNotice::BaseUrl) && session.first_time(OnceNotice::SmallWindow)
        );
    }

    #[test]
    fn the_model_of_a_helper_is_told_everything_itself() {
        let session = Told::default();
        session.lock().mode = Some(Mode::Plan);
        assert_eq!(session.for_helper().lock().mode, None);
    }

    #[test]
    fn unsent_context_is_told_once_and_a_first_prompt_gets_no_older_one() {
        let told = Told::default();
        for (is_first, expected) in [(false, "old\nmoved\n"), (true, "")] {
            told.add_unsent(["old\n".to_owned()]);
            told.add_unsent(Some("moved\n".to_owned()));
            assert_eq!(told.take_unsent(is_first), expected);
            assert_eq!(told.take_unsent(false), "");
        }
    }
}
