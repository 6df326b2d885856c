//! The task of one session, the only owner of its state. While a turn runs, the turn has the
//! history; since only the owner changes it, there is no lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::OptionFuture;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::announcements::Announcements;
use super::attachment::Attachment;
use super::commands::custom::CustomCommands;
use super::commands::trust::ShownPrints;
use super::open::EarlyMessages;
use super::open::lifecycle::Lifecycle;
use super::prompts::{self, MAX_QUEUED_PROMPTS, QueuedPrompt, UnfinishedTurn, cancel_queued};
use super::settings::{self, ChosenModel, ModelChoice, ModelQuery};
use super::title::SessionTitle;
use super::{PromptKey, SessionHost, SessionMessage, TurnPart, commands};
use crate::completion::Completion;
use crate::error::Error;
use crate::mcp::SessionServers;
use crate::turn::{Conversation, FinishedTurn, SteeringQueue};
use turnwright_llm::ReasoningEffort;
use turnwright_policy::permission::{Grants, Mode};
use turnwright_store::Entry;
use turnwright_types::message::{History, Message, PromptEnd, StopReason, TokenUsage, UserMessage};
use turnwright_types::update::{ConfigOption, ConfigOptionId, SlashCommand, Update};

/// The stop reason that is stored for a turn that has died.
const DIED: &str = "died";
/// The words by which other agents call the levels of [`ReasoningEffort::ALL`], as some clients send them to any agent.
const ALIASES: [&str; 6] = ["auto", "off", "minimal", "medium", "high", "max"];

pub(super) struct SessionActor {
    pub(super) host: Arc<SessionHost>,
    pub(super) conversation: Conversation,
    /// The history without the running turn. It stays if the turn dies.
    pub(super) history: History,
    /// The waiting prompts, the next one first.
    pub(super) queue: VecDeque<QueuedPrompt>,
    pub(super) running: Option<RunningTurn>,
    pub(super) announcements: Announcements,
    pub(super) commands: CustomCommands,
    /// How the last turn ended, if it did not finish, until the model is told.
    pub(super) unfinished: Option<UnfinishedTurn>,
    pub(super) lifecycle: Lifecycle,
    model_choice: ModelChoice,
    pub(super) shown_prints: ShownPrints,
    pub(super) title: SessionTitle,
    pub(super) servers: Option<SessionServers>,
    pub(super) attachment: Attachment,
    /// The values that the client wants options to have, until they are applied.
    pub(super) initial: Vec<(ConfigOptionId, String)>,
}

pub(super) struct RunningTurn {
    pub(super) key: PromptKey,
    pub(super) cancel: CancellationToken,
    pub(super) task: JoinHandle<FinishedTurn>,
    /// The permission answers before the turn, which are all that is left if the turn dies.
    pub(super) grants: Grants,
    /// Takes words for the turn, if it is one of the model.
    pub(super) steering: Option<SteeringQueue>,
    pub(super) done: Completion<PromptEnd>,
}

impl SessionActor {
    pub(super) fn new(
        host: Arc<SessionHost>,
        conversation: Conversation,
        announcements: Announcements,
        lifecycle: Lifecycle,
    ) -> SessionActor {
        SessionActor {
            host,
            conversation,
            history: History::default(),
            queue: VecDeque::new(),
            running: None,
            announcements,
            commands: CustomCommands::default(),
            unfinished: None,
            lifecycle,
            model_choice: ModelChoice::default(),
            shown_prints: ShownPrints::default(),
            title: SessionTitle::default(),
            servers: None,
            attachment: Attachment::default(),
            initial: Vec::new(),
        }
    }

    /// Runs the open session until the last handle is dropped or the host stops. `early` are the
    /// messages that have arrived while it was opening, and `offers` reports changes of its MCP servers.
    pub(super) async fn run(
        mut self,
        mut inbox: mpsc::Receiver<SessionMessage>,
        offers: Arc<Notify>,
        mut early: EarlyMessages,
    ) {
        for message in early.take() {
            self.on_message(message);
        }
        let stop = self.lifecycle.stop.clone();
        let mode = self.conversation.mode().clone();
        let remote_tools = Arc::clone(self.conversation.tools.remote_tools());
        // A client that is about to take over has its message in the mailbox.
        while !self.is_abandoned() || !inbox.is_empty() {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                msg = inbox.recv() => match msg {
                    Some(msg) => self.on_message(msg),
                    None => break,
                },
                // Checked before the end of the turn, so that the client is told in time.
                () = mode.wait_for_choice() => {
                    self.set_mode(mode.get()).ok();
                    self.send_settings();
                }
                Some(end) = OptionFuture::from(self.running.as_mut().map(|turn| &mut turn.task)) => {
                    self.on_turn_end(end).await;
                }
                // While no turn runs, the next turn sends these.
                () = remote_tools.notice_arrived(), if self.running.is_some() => self.conversation.send_notices(),
                Some(ended) = self.model_choice.next() => match ended {
                    ModelQuery::Change { number, model, done } => {
                        self.on_model_change(number, model, done);
                    }
                    ModelQuery::List => self.send_settings(),
                },
                () = offers.notified() => self.update_commands(),
                change = self.attachment.changed() => match change {
                    Some(step) => self.continue_takeover(step).await,
                    None => break,
                },
                Some(()) = OptionFuture::from(self.announcements.announce_at.map(sleep_until)) => {
                    self.announce_commands();
                    // The client has its answer, and the user is not typing yet.
                    self.host.prepare_for_commands();
                    self.prefetch_model_list();
                }
            }
        }
        self.close(inbox, EarlyMessages::default()).await;
    }

    fn on_message(&mut self, msg: SessionMessage) {
        match msg {
            SessionMessage::Prompt { key, mut prompt, done } => {
                let submission = prompt.submission.as_ref();
                let known = &self.conversation.submissions;
                let client = self.conversation.client().as_ref();
                let Some(done) = known.admit(submission, key, done, client) else { return };
                let supported = self.conversation.selection.get().model.modalities();
                let checked = self.announcements.check_media(&mut prompt, supported);
                if let Err(error) = checked.and_then(|()| self.check_skills(&prompt)) {
                    return done.complete(Err(error));
                }
                let Some((prompt, done)) = self.steer_if_asked(key, prompt, done) else { return };
                if self.queue.len() >= MAX_QUEUED_PROMPTS {
                    return done.complete(Err(prompts::too_many()));
                }
                self.announce_commands();
                // The model takes a while to call its first command.
                self.host.prepare_for_commands();
                self.queue.push_back(QueuedPrompt { key, prompt, done });
                self.start_next();
            }
            SessionMessage::Steer { words, done } => self.steer(words, done),
            SessionMessage::Cancel => {
                self.lifecycle.cancelling.clear();
                self.cancel();
            }
            SessionMessage::CancelPrompt(key) => self.cancel_prompt(key),
            SessionMessage::CancelPart { part, done } => done.complete(self.cancel_part(part)),
            SessionMessage::Set { setting, value, done } => self.set(setting, value, done),
            SessionMessage::TitleChosen(title) => {
                self.title.choose();
                let updated = SystemTime::now();
                self.conversation
                    .client()
                    .update(Update::SessionInfo { title: Some(title), updated });
            }
            SessionMessage::Detach { keep } => self.detach(keep),
            SessionMessage::TakeOver(takeover) => self.take_over(*takeover),
            SessionMessage::Close { done } => self.lifecycle.close(done),
        }
    }

    pub(super) fn set(
        &mut self,
        setting: ConfigOptionId,
        value: String,
        done: Completion<Vec<ConfigOption>>,
    ) {
        let set = match setting {
            ConfigOptionId::Model => {
                let stop = self.lifecycle.stop.clone();
                return self.model_choice.choose(&self.host, value, stop, done);
            }
            ConfigOptionId::Effort => self.set_effort(&value),
            ConfigOptionId::Mode => {
                let named = self.conversation.mode().named(&value);
                let known = Mode::ALL.map(Mode::id);
                named
                    .ok_or_else(|| settings::unknown_value("mode", &value, &known))
                    .and_then(|mode| self.set_mode(mode))
            }
        };
        if let Err(error) = set {
            return done.complete(Err(error));
        }
        self.send_settings();
        self.report_when_saved(done, Ok(self.announcements.settings.clone()));
    }

    /// Gives options the values that the client wants from the start, in the order of its list and without an update.
    /// A value that is refused has no effect: the answer to the opening request shows what is set (R-OPT-2).
    pub(super) async fn apply_initial(&mut self, mut model: Option<ChosenModel>) {
        let initial = std::mem::take(&mut self.initial);
        if initial.is_empty() {
            return;
        }
        for (setting, value) in initial {
            match setting {
                ConfigOptionId::Model => {
                    if let Some((found, doubt)) = model.take() {
                        self.model_choice.supersede();
                        self.conversation.selection.set_model(found);
                        self.announcements.notices.extend(doubt);
                    }
                }
                ConfigOptionId::Effort => {
                    self.set_effort(&value).ok();
                }
                ConfigOptionId::Mode => {
                    if let Some(mode) = self.conversation.mode().named(&value) {
                        self.change_mode(mode).ok();
                    }
                }
            }
        }
        // After this, `send_settings` only stores them.
        self.refresh_settings();
        self.send_settings();
        self.conversation.log().flush().written().await;
    }

    fn set_effort(&self, value: &str) -> Result<(), Error> {
        if !self.conversation.selection.get().model.supports_effort() {
            let no_effort = "This model has no reasoning effort to choose";
            return Err(Error::InvalidParams(no_effort.to_owned()));
        }
        let same = ALIASES.iter().position(|word| *word == value).map(|i| ReasoningEffort::ALL[i]);
        let Some(effort) = ReasoningEffort::parse(value).or(same) else {
            let valid = ReasoningEffort::ALL.map(ReasoningEffort::id);
            return Err(settings::unknown_value("effort", value, &valid));
        };
        self.conversation.selection.set_effort(effort);
        Ok(())
    }

    /// Reports the result once everything that was logged so far is stored.
    pub(super) fn report_when_saved<T: Send + 'static>(
        &self,
        done: Completion<T>,
        result: Result<T, Error>,
    ) {
        let written = self.conversation.log().flush().written();
        self.host.tracker().spawn(async move {
            written.await;
            done.complete(result);
        });
    }

    fn on_model_change(
        &mut self,
        number: u64,
        model: Result<ChosenModel, Error>,
        done: Completion<Vec<ConfigOption>>,
    ) {
        let is_applied = self.model_choice.end_change(number, model.is_ok());
        match model {
            Ok((model, doubt)) => {
                if is_applied {
                    self.conversation.selection.set_model(model);
                    self.send_settings();
                    self.announcements.notices.extend(doubt);
                    if self.running.is_some() {
                        self.send_notices();
                    }
                }
                self.report_when_saved(done, Ok(self.announcements.settings.clone()));
            }
            Err(error) => done.complete(Err(error)),
        }
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Error> {
        self.change_mode(mode)?;
        self.conversation.client().update(Update::Mode(mode.id()));
        Ok(())
    }

    /// Changes the mode without an update.
    fn change_mode(&self, mode: Mode) -> Result<(), Error> {
        let max_mode = self.conversation.mode().max_mode();
        if mode > max_mode {
            return Err(Error::InvalidParams(format!(
                "The mode `{}` is not available: the managed settings of this machine allow at most \
                 `{}`",
                mode.id(),
                max_mode.id()
            )));
        }
        self.conversation.mode().set(mode);
        Ok(())
    }

    /// Refreshes the known settings without an update: the client gets them with the answer that it
    /// waits for.
    pub(super) fn refresh_settings(&mut self) {
        self.announcements.settings = settings::all(&self.host, &self.conversation);
    }

    /// Stores the settings if they have changed, and sends them to the client if it does not know
    /// them.
    pub(super) fn send_settings(&mut self) {
        let mode = self.conversation.mode().get();
        let selection = self.conversation.selection.get();
        let current = (mode, selection.model.name().to_owned(), selection.effort);
        if self.announcements.must_save(&current) {
            let (mode, model, effort) = current;
            self.conversation.log().save_settings(mode.id(), model, effort.id()).in_background();
        }
        let settings = settings::all(&self.host, &self.conversation);
        self.send(|announcements| announcements.update_settings(settings));
    }

    /// Sends the client what it has to be told, if anything.
    pub(super) fn send(&mut self, announce: impl FnOnce(&mut Announcements) -> Option<Update>) {
        if let Some(update) = announce(&mut self.announcements) {
            self.conversation.client().update(update);
        }
    }

    /// Cancels the current work: queued prompts are answered at once, the running one when it has
    /// stopped.
    fn cancel(&mut self) {
        if let Some(turn) = &self.running {
            turn.cancel.cancel();
        }
        self.conversation.env.helpers.cancel_background();
        cancel_queued(&mut self.queue, |_| true);
    }

    /// Cancels a call, a command or a helper, and nothing else of the turn.
    fn cancel_part(&self, part: TurnPart) -> Result<(), Error> {
        let (is_cancelled, what, id) = match part {
            TurnPart::Call(id) => {
                (self.conversation.cancellable.cancel(&id), "tool call", id.to_string())
            }
            TurnPart::Terminal(id) => {
                (self.conversation.env.jobs.stop_in_terminal(&id), "terminal", id.to_string())
            }
            TurnPart::Helper(id) => {
                (self.conversation.env.helpers.cancel(&id), "helper", id.to_string())
            }
        };
        if is_cancelled {
            return Ok(());
        }
        Err(Error::InvalidParams(format!("No {what} `{id}` runs in this session")))
    }

    fn cancel_prompt(&mut self, key: PromptKey) {
        if let Some(turn) = self.running.as_ref().filter(|turn| turn.key == key) {
            turn.cancel.cancel();
        } else {
            cancel_queued(&mut self.queue, |queued| queued == key);
            // The work on a goal is not paused for it any more.
            self.start_next();
            self.conversation.submissions.cancel(key);
        }
    }

    async fn on_turn_end(&mut self, end: Result<FinishedTurn, JoinError>) {
        let Some(turn) = self.running.take() else { return };
        let mut usage = TokenUsage::default();
        let result = match end {
            Ok(finished) => {
                usage = finished.history.spent.usage.since(&self.history.spent.usage);
                self.history = finished.history;
                finished.result
            }
            Err(error) => {
                tracing::error!(%error, "a turn died");
                turn.cancel.cancel();
                let client = self.conversation.client().as_ref();
                Box::pin(self.conversation.env.helpers.close_questions(client)).await;
                // The identifiers that the dead turn has used must not be used again, and what its
                // prompt told the model is gone.
                self.history.minted += 10_000;
                self.conversation.forget_told_context();
                *self.conversation.grants.lock() = turn.grants;
                self.conversation.log().add_entry(Entry::Refused);
                if let Some(steering) = &turn.steering {
                    steering.close_into(&mut self.history, &self.conversation);
                }
                let History { minted, cost, .. } = self.history;
                let ended = self.conversation.log().end_turn(DIED, minted, cost, None);
                // The turn is stored as far as the client has seen it before the prompt is answered.
                ended.written().await;
                Err(Error::Internal { place: "the turn" })
            }
        };
        self.unfinished = UnfinishedTurn::from_result(&result).or(self.unfinished);
        let has_answered = matches!(result, Ok(StopReason::EndTurn));
        if self.commands.take_news() {
            self.update_commands();
        }
        // The answer is queued before the next turn can send an update.
        let suggestions = self.conversation.told.lock().suggestions.clone();
        turn.done.complete(result.map(|stop| PromptEnd { stop, usage, suggestions }));
        // The model list or the model's capabilities may have changed.
        self.send_settings();
        if has_answered {
            self.prefetch_model_list();
            let model = self.conversation.selection.get().model;
            self.host.tracker().spawn(async move { model.refresh_window().await });
        }
        self.start_next();
    }

    /// Fetches the provider's model list for the client if it is not known. It never delays an
    /// answer.
    fn prefetch_model_list(&mut self) {
        let model = self.conversation.selection.get().model;
        if self.host.models.should_prefetch(model.as_ref()) {
            let stop = self.lifecycle.stop.clone();
            self.model_choice.fetch_list(Arc::clone(&self.host), model, stop);
        }
    }

    /// The commands for the client's menu: the built-in ones that the user has not replaced, those that files
    /// bring, and the prompts that the servers offer now.
    pub(super) fn menu(&self) -> Vec<SlashCommand> {
        let theirs = self.servers.iter().flat_map(SessionServers::commands);
        let mut menu = commands::all();
        menu.retain(|command| self.commands.in_place_of(&command.name).is_none());
        menu.extend(self.commands.for_menu(&menu));
        let theirs: Vec<_> =
            theirs.filter(|command| menu.iter().all(|known| known.name != command.name)).collect();
        menu.extend(theirs);
        menu
    }

    /// Sends the commands to the client if they have changed.
    pub(super) fn update_commands(&mut self) {
        let commands = self.menu();
        self.send(|announcements| announcements.update_commands(commands));
    }

    pub(super) fn announce_commands(&mut self) {
        if self.announcements.announce_at.is_some() {
            let commands = self.menu();
            self.send(|announcements| announcements.announce_commands(commands));
        }
    }

    /// Stops the running work and waits for it: child processes must not outlive the session.
    /// Messages left in the mailbox are answered like queued prompts.
    pub(super) async fn close(
        mut self,
        mut inbox: mpsc::Receiver<SessionMessage>,
        early: EarlyMessages,
    ) {
        for done in early.end(&mut inbox) {
            self.lifecycle.close(done);
        }
        // Pending model changes end now.
        self.lifecycle.stop.cancel();
        while let Some(ended) = self.model_choice.next().await {
            if let ModelQuery::Change { number, model, done } = ended {
                self.on_model_change(number, model, done);
            }
        }
        let env = Arc::clone(&self.conversation.env);
        env.jobs.stop();
        let helpers_end = env.helpers.close();
        self.cancel();
        if let Some(turn) = &mut self.running {
            let end = (&mut turn.task).await;
            self.on_turn_end(end).await;
        }
        // The next owner tells the model that helpers without an answer ended with the session.
        helpers_end.await;
        let (news, _) = env.helpers.take_news();
        // The first message of a conversation is a prompt, and only the last is seen to be cut off.
        if let Some(last) = self.history.messages.last().filter(|_| !news.is_empty()) {
            let cut = self.unfinished.and_then(|unfinished| unfinished.note(last));
            let context = cut.unwrap_or_default().to_owned() + &news;
            let message = Message::User(UserMessage::context(context));
            self.conversation.push_hidden(&mut self.history, message);
        }
        Box::pin(env.end_hooks()).await;
        // Subscriptions end before their connections, which would wait for them.
        env.follow_resource(None);
        if let Some(servers) = self.servers.take() {
            servers.close().await;
        }
        if let Some(languages) = env.languages() {
            languages.close().await;
        }
        env.jobs.close().await;
        env.shared.guard.close().await;
        self.conversation.log().flush().written().await;
        self.lifecycle.end().await;
    }
}
