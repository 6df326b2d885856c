//! A conversation with the model: what the turns of a session, or the turn of a helper, work with.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::tools::{OfferContext, SharedValue, ToolEnv, Toolbox};
use turnwright_policy::permission::{Grants, Mode, PolicyRules, SharedMode};
use turnwright_store::{Entry, SessionLog};
use turnwright_types::client::Client;
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, Message, PromptPart, ToolSpecs};
use turnwright_types::update::{PromptKey, Update};
use turnwright_workspace::helper_types::HelperType;

use super::calls::admission_queue::AdmissionQueue;
use super::calls::runner::{CallOrigin, CallRunner};
use super::steering::JoinedMessage;
use super::{
    CacheGuard, CancellableCalls, Check, ModelFinder, SharedModelSelection, SharedSpending,
    SpendingLimits, Told,
};

/// The permission answers that a conversation remembers.
// Held only to judge.
pub(crate) type SharedGrants = Arc<Mutex<Grants>>;

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
    /// The remembered permission answers. A helper in the background has a copy.
    pub grants: SharedGrants,
    /// The commands that check what the model has edited.
    pub checks: SharedValue<Vec<Check>>,
    /// The instructions for the model.
    pub system_prompt: Arc<str>,
    /// The most requests to the model that one turn may make.
    pub max_requests: u32,
    /// Watches over what the provider has in its cache.
    pub cache_guard: CacheGuard,
    /// The other limits on the spending of a turn and of the session.
    pub limits: SpendingLimits,
    /// The spending of the session, including that of helpers.
    pub spending: SharedSpending,
    /// The calls that wait or run, also those of helpers.
    pub queue: Arc<AdmissionQueue>,
    /// The calls that the user can cancel one by one; those of helpers are not shown as calls.
    pub cancellable: CancellableCalls,
    /// Finds the models of helpers.
    pub models: ModelFinder,
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
            tools: Arc::new(self.tools.for_helper(kind.tools.as_deref())),
            system_prompt: system_prompt.into(),
            told: self.told.for_helper(),
            grants: self.grants.clone(),
            cache_guard: CacheGuard::default(),
            // The turn that has asked for the helper checks what it has edited.
            checks: SharedValue::default(),
            cancellable: CancellableCalls::default(),
            max_requests: self.max_requests.min(MAX_HELPER_REQUESTS),
            limits: self.limits,
            spending: self.spending.clone(),
            queue: Arc::clone(&self.queue),
            models: self.models.clone(),
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

    /// Shows a notice to the user.
    pub(crate) fn notify(&self, text: String) {
        self.client().update(Update::Notice(text));
    }

    /// Shows a text to the user that the model does not get.
    pub(crate) fn say(&self, id: MessageId, text: String) {
        self.log().add_entry(Entry::Note { id: id.clone(), text: text.clone() });
        self.client().update(Update::AgentText { message: id, text });
    }

    /// Tells a client that follows prompts that the turn of a prompt begins.
    pub(crate) fn report_turn(&self, prompt: PromptKey) {
        if self.client().follows_prompts() {
            self.client().update(Update::TurnBegan(prompt));
        }
    }

    /// Tells a client that follows prompts that the user's words are a message of the conversation.
    pub(crate) fn report_message(
        &self,
        prompt: Option<PromptKey>,
        id: &MessageId,
        message: &Message,
    ) {
        if let Some(said) = message.as_user()
            && self.client().follows_prompts()
        {
            let message = id.clone();
            let parts = said.parts.clone();
            self.client().update(Update::UserMessage { prompt, message, parts });
        }
    }

    /// The same for words that have joined the conversation during a turn.
    pub(crate) fn report_joined(&self, joined: Vec<JoinedMessage>) {
        for JoinedMessage { prompt, id, message } in joined {
            self.report_message(prompt, &id, &message);
        }
    }

    /// Notes that what earlier prompts and results told the model may no longer be in its context.
    pub(crate) fn forget_told_context(&self) {
        self.told.forget_context();
        self.env.skills.forget_loaded();
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
        let mode = self.mode().get();
        (self.told.tell_mode(mode) != Some(mode)).then(|| self.mode_line())
    }

    pub(super) fn mode_line(&self) -> String {
        let mode = self.mode().get();
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
            self.told.tell_mode(self.mode().get());
        }
    }

    /// The tools that a model with this window is offered.
    pub(crate) fn specs(&self, window: u64) -> ToolSpecs {
        self.tools.specs(&self.offer(), Some(window))
    }

    /// Makes the runner of its calls, with these answers to questions.
    pub(super) fn runner(&self, grants: SharedGrants) -> CallRunner {
        let env = Arc::clone(&self.env);
        CallRunner::new(env, grants, CallOrigin::Conversation, Arc::clone(&self.queue))
    }

    /// The facts that decide which tools the model is offered.
    pub(crate) fn offer(&self) -> OfferContext {
        OfferContext {
            prefers_patches: self.selection.get().model.prefers_apply_patch(),
            skills: self.env.skills.names(),
            is_planning: self.mode().get() == Mode::Plan,
            helpers: self.env.helpers.catalogue(),
        }
    }
}
