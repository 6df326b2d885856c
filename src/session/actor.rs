//! The task of one session, the only owner of its state. While a turn runs, the turn has the
//! history; since only the owner changes it, there is no lock.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::mcp_servers::UnsentContext;
use super::trust::ShownPrints;
use super::undo::UndoNews;
use super::{PromptKey, SessionHost, SessionMessage, SessionOrigin, StartParams, settings};
use crate::completion::Completion;
use crate::error::Error;
use crate::mcp::SessionServers;
use crate::turn::{FinishedTurn, TurnServices};
use turnwright_llm::{Modalities, Model, ReasoningEffort};
use turnwright_policy::permission::{Grants, Mode};
use turnwright_store::{Entry, SessionLock};
use turnwright_types::message::{History, PromptPart, StopReason, UserMessage};
use turnwright_types::update::{Setting, SettingId, SlashCommand, Update};

/// The most prompts that may wait behind a running turn.
const MAX_QUEUED_PROMPTS: usize = 32;

/// The delay between the answer to the session's opening and the list of commands. Some editors
/// drop updates for a session that they have not registered yet.
const ANNOUNCE_AFTER: Duration = Duration::from_millis(150);

/// The most model changes that may wait for a provider's list.
const MAX_MODEL_CHANGES: usize = 8;

/// The stop reason that is stored for a turn that has died.
const DIED: &str = "died";

/// What the client knows or has yet to be told.
pub(super) struct ClientState {
    /// Notices for the user, which are sent with the first prompt at the earliest.
    pub(super) notices: Vec<String>,
    /// Whether the user was told about the sandbox's gaps.
    pub(super) sandbox_gaps_reported: bool,
    /// The kinds of content that were advertised for prompts.
    pub(super) advertised_modalities: Modalities,
}

/// A pending model change; it ends with `None` if it only listed the provider's models.
type PendingModelChange = BoxFuture<'static, Option<ModelChange>>;

/// The result of a model change, and the request that waits for it.
struct ModelChange {
    /// The number of the change: a slow one must not undo a later one.
    number: u64,
    model: Result<Arc<dyn Model>, Error>,
    done: Completion<Vec<Setting>>,
}

pub(super) struct SessionActor {
    pub(super) host: Arc<SessionHost>,
    pub(super) services: TurnServices,
    /// The history without the running turn. It stays if the turn dies.
    pub(super) history: History,
    pub(super) grants: Grants,
    pub(super) queue: VecDeque<QueuedPrompt>,
    pub(super) running: Option<RunningTurn>,
    /// When the commands will be announced; `None` once they are.
    pub(super) announce_at: Option<Instant>,
    pub(super) client_state: ClientState,
    /// The last turn was interrupted by the end of the process, and the model does not know yet.
    pub(super) was_interrupted: bool,
    pending_model_changes: FuturesUnordered<PendingModelChange>,
    /// The number of the last model change that was requested, and of the last that was applied.
    model_changes: (u64, u64),
    known_settings: Vec<Setting>,
    /// The settings that were stored last.
    saved_settings: Option<(Mode, String, ReasoningEffort)>,
    model_list_requested: bool,
    pub(super) shown_prints: ShownPrints,
    /// Whether the session has a title, or will have one in a moment.
    pub(super) has_title: bool,
    /// Whether the session's folders differ from those that the model was told.
    pub(super) folders_changed: bool,
    /// What the user has undone and the model does not know yet.
    pub(super) undo_news: UndoNews,
    /// Whether the user has chosen a title, which a generated one must not replace.
    pub(super) has_chosen_title: Arc<AtomicBool>,
    cancelling: Arc<AtomicBool>,
    pub(super) stop: CancellationToken,
    /// The request that waits for the session to close.
    close_done: Option<Completion<()>>,
    /// The lock that keeps other processes from writing to the session.
    pub(super) lock: Option<SessionLock>,
    pub(super) servers: Option<SessionServers>,
    pub(super) announced_commands: Vec<SlashCommand>,
    /// Context for the model from a prompt that led to no turn.
    pub(super) unsent_context: UnsentContext,
}

pub(super) struct QueuedPrompt {
    pub(super) key: PromptKey,
    pub(super) prompt: UserMessage,
    pub(super) done: Completion<StopReason>,
}

pub(super) struct RunningTurn {
    pub(super) key: PromptKey,
    pub(super) cancel: CancellationToken,
    pub(super) task: JoinHandle<FinishedTurn>,
    pub(super) done: Completion<StopReason>,
}

impl SessionActor {
    pub(super) fn new(
        host: Arc<SessionHost>,
        services: TurnServices,
        known_settings: Vec<Setting>,
        client_state: ClientState,
        cancelling: Arc<AtomicBool>,
        stop: CancellationToken,
    ) -> SessionActor {
        SessionActor {
            known_settings,
            saved_settings: None,
            pending_model_changes: FuturesUnordered::new(),
            model_changes: (0, 0),
            model_list_requested: false,
            shown_prints: ShownPrints::default(),
            has_title: false,
            folders_changed: false,
            undo_news: UndoNews::default(),
            host,
            services,
            history: History::default(),
            grants: Grants::default(),
            queue: VecDeque::new(),
            running: None,
            announce_at: Some(Instant::now() + ANNOUNCE_AFTER),
            client_state,
            was_interrupted: false,
            has_chosen_title: Arc::default(),
            cancelling,
            stop,
            close_done: None,
            lock: None,
            servers: None,
            announced_commands: Vec::new(),
            unsent_context: UnsentContext::default(),
        }
    }

    /// Runs until the last handle is dropped or the host stops.
    pub(super) async fn run(
        mut self,
        mut inbox: mpsc::Receiver<SessionMessage>,
        StartParams { origin, servers, start_after, cancel }: StartParams,
        opened: Completion<Vec<Setting>>,
    ) {
        let (stop, is_copy) = (self.stop.clone(), matches!(origin, SessionOrigin::Fork { .. }));
        let begun = stop.run_until_cancelled(cancel.run_until_cancelled(async {
            start_after.cancelled().await;
            self.start(origin).await
        }));
        match begun.await.flatten().unwrap_or(Err(Error::Cancelled)) {
            Ok(()) => opened.complete(Ok(self.known_settings.clone())),
            Err(error) => {
                if is_copy {
                    self.delete_copy().await;
                }
                opened.complete(Err(error));
                // Whoever waits for this session's end also waits for the end of the previous task.
                start_after.cancelled().await;
                return self.close(inbox).await;
            }
        }
        // The servers start after the answer, so that none delays it.
        let offers = self.start_servers(&servers);
        self.announce_at = self.announce_at.map(|_| Instant::now() + ANNOUNCE_AFTER);
        let (stop, mode) = (self.stop.clone(), self.services.mode.clone());
        let remote_tools = self.services.tools.remote_tools().clone();
        loop {
            let announce_at = self.announce_at;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                msg = inbox.recv() => match msg {
                    Some(msg) => self.on_message(msg),
                    None => break,
                },
                // Checked before the end of the turn, so that the client is told in time.
                () = mode.wait_for_choice() => drop(self.set_mode_and_send(mode.get())),
                end = turn_end(&mut self.running) => self.on_turn_end(end).await,
                // While no turn runs, the next turn sends these.
                () = remote_tools.notice_arrived(), if self.running.is_some() => self.services.send_notices(),
                Some(change) = self.pending_model_changes.next(), if !self.pending_model_changes.is_empty() => {
                    match change {
                        Some(change) => self.on_model_change(change),
                        None => self.send_settings(),
                    }
                }
                () = offers.notified() => self.update_commands(),
                () = wait_until(announce_at) => {
                    self.announce_commands();
                    // The client has its answer, and the user is not typing yet.
                    self.host.probe_sandbox();
                }
            }
        }
        self.close(inbox).await;
    }

    fn on_message(&mut self, msg: SessionMessage) {
        match msg {
            SessionMessage::Prompt { key, prompt, done } => {
                if self.queue.len() >= MAX_QUEUED_PROMPTS {
                    done.complete(Err(Error::InvalidState(format!(
                        "{MAX_QUEUED_PROMPTS} prompts are already waiting. Wait or cancel"
                    ))));
                    return;
                }
                if let Err(error) = self.check_media(&prompt) {
                    return done.complete(Err(error));
                }
                self.announce_commands();
                self.queue.push_back(QueuedPrompt { key, prompt, done });
                self.start_next();
            }
            SessionMessage::Cancel => {
                self.cancelling.store(false, Ordering::Relaxed);
                self.cancel();
            }
            SessionMessage::CancelPrompt(key) => self.cancel_prompt(key),
            SessionMessage::SetMode { mode, done } => {
                let set = self.set_mode_and_send(mode);
                self.report_when_saved(done, set);
            }
            SessionMessage::Set { setting, value, done } => self.set(setting, value, done),
            SessionMessage::TitleChosen(title) => {
                self.has_title = true;
                self.has_chosen_title.store(true, Ordering::Relaxed);
                let updated = SystemTime::now();
                self.services.client().update(Update::SessionInfo { title: Some(title), updated });
            }
            SessionMessage::Close { done } => {
                self.close_done = Some(done);
                self.stop.cancel();
            }
        }
    }

    /// Accepts images and recordings if they were advertised or if the current model takes them
    /// (R-TURN-11).
    fn check_media(&self, prompt: &UserMessage) -> Result<(), Error> {
        let (advertised, supported) = (
            self.client_state.advertised_modalities,
            self.services.selection.get().model.modalities(),
        );
        let refused = prompt.parts.iter().find_map(|it| match it {
            PromptPart::Image(_) if !advertised.images && !supported.images => Some("images"),
            PromptPart::Audio(_) if !advertised.audio && !supported.audio => Some("audio"),
            _ => None,
        });
        match refused {
            Some(what) => {
                Err(Error::InvalidParams(format!("This agent does not take {what} in prompts")))
            }
            None => Ok(()),
        }
    }

    fn set(&mut self, setting: SettingId, value: String, done: Completion<Vec<Setting>>) {
        match setting {
            SettingId::Model if self.pending_model_changes.len() >= MAX_MODEL_CHANGES => {
                let busy = "Earlier changes of the model are still waiting for the provider";
                return done.complete(Err(Error::InvalidState(busy.to_owned())));
            }
            SettingId::Model => return self.choose_model(value, done),
            SettingId::Effort if !self.services.selection.get().model.supports_effort() => {
                let no_effort = "This model has no reasoning effort to choose";
                return done.complete(Err(Error::InvalidParams(no_effort.to_owned())));
            }
            SettingId::Effort => match ReasoningEffort::parse(&value) {
                Some(effort) => self.services.selection.set_effort(effort),
                None => {
                    let valid: Vec<_> = ReasoningEffort::ALL.iter().map(|it| it.id()).collect();
                    return done.complete(Err(settings::unknown_value("effort", &value, &valid)));
                }
            },
            SettingId::Mode => match Mode::parse(&value) {
                Some(mode) => {
                    if let Err(error) = self.set_mode(mode) {
                        return done.complete(Err(error));
                    }
                }
                None => {
                    let valid: Vec<_> = Mode::ALL.iter().map(|it| it.id()).collect();
                    return done.complete(Err(settings::unknown_value("mode", &value, &valid)));
                }
            },
        }
        self.send_settings();
        self.report_when_saved(done, Ok(self.known_settings.clone()));
    }

    /// Reports the result once everything that was logged so far is stored.
    fn report_when_saved<T: Send + 'static>(&self, done: Completion<T>, result: Result<T, Error>) {
        let written = self.services.log().flush().written();
        self.host.tracker().spawn(async move {
            written.await;
            done.complete(result);
        });
    }

    fn choose_model(&mut self, name: String, done: Completion<Vec<Setting>>) {
        self.model_changes.0 += 1;
        let (number, stop) = (self.model_changes.0, self.stop.clone());
        let looking = settings::choose(Arc::clone(&self.host), name);
        // In a separate task: if it dies, the session does not.
        let looking =
            self.host.tracker().spawn(async move { stop.run_until_cancelled(looking).await });
        self.pending_model_changes.push(Box::pin(async move {
            let model = match looking.await {
                Ok(model) => model.unwrap_or(Err(Error::Cancelled)),
                Err(_) => Err(Error::Internal { place: "the choice of a model" }),
            };
            Some(ModelChange { number, model, done })
        }));
    }

    fn on_model_change(&mut self, ModelChange { number, model, done }: ModelChange) {
        match model {
            Ok(model) => {
                if number > self.model_changes.1 {
                    self.model_changes.1 = number;
                    self.services.selection.set_model(model);
                    self.send_settings();
                }
                self.report_when_saved(done, Ok(self.known_settings.clone()));
            }
            Err(error) => done.complete(Err(error)),
        }
    }

    fn set_mode_and_send(&mut self, mode: Mode) -> Result<(), Error> {
        let set = self.set_mode(mode);
        self.send_settings();
        set
    }

    pub(super) fn set_mode(&mut self, mode: Mode) -> Result<(), Error> {
        let max_mode = self.services.mode.max_mode();
        if mode > max_mode {
            return Err(Error::InvalidParams(format!(
                "The mode `{}` is not available: the managed settings of this machine allow at most \
                 `{}`",
                mode.id(),
                max_mode.id()
            )));
        }
        self.services.mode.set(mode);
        self.services.client().update(Update::Mode(mode.id()));
        Ok(())
    }

    /// Refreshes the known settings without an update: the client gets them with the answer that it
    /// waits for.
    pub(super) fn refresh_settings(&mut self) {
        self.known_settings = settings::all(&self.host, &self.services);
    }

    /// Stores the settings if they have changed, and sends them to the client if it does not know
    /// them.
    pub(super) fn send_settings(&mut self) {
        let settings = settings::all(&self.host, &self.services);
        let (mode, selection) = (self.services.mode.get(), self.services.selection.get());
        let current = (mode, selection.model.name().to_owned(), selection.effort);
        if self.saved_settings.as_ref() != Some(&current) {
            let (mode, model, effort) = current.clone();
            drop(self.services.log().save_settings(mode.id(), model, effort.id()));
            self.saved_settings = Some(current);
        }
        if settings != self.known_settings {
            self.known_settings.clone_from(&settings);
            self.services.client().update(Update::Settings(settings));
        }
    }

    /// Cancels the current work: queued prompts are answered at once, the running one when it has
    /// stopped.
    fn cancel(&mut self) {
        if let Some(turn) = &self.running {
            turn.cancel.cancel();
        }
        for queued in self.queue.drain(..) {
            queued.done.complete(Ok(StopReason::Cancelled));
        }
    }

    fn cancel_prompt(&mut self, key: PromptKey) {
        if let Some(turn) = self.running.as_ref().filter(|it| it.key == key) {
            turn.cancel.cancel();
        } else if let Some(position) = self.queue.iter().position(|it| it.key == key)
            && let Some(queued) = self.queue.remove(position)
        {
            queued.done.complete(Ok(StopReason::Cancelled));
        }
    }

    async fn on_turn_end(&mut self, end: Result<FinishedTurn, JoinError>) {
        let Some(turn) = self.running.take() else { return };
        let result = match end {
            Ok(finished) => {
                self.history = finished.history;
                self.grants = finished.grants;
                if matches!(finished.result, Ok(StopReason::Refusal)) {
                    // The prompt that told the model is gone.
                    self.services.announced_mode.forget();
                }
                finished.result
            }
            Err(error) => {
                tracing::error!(%error, "a turn died");
                // The identifiers that the dead turn has used must not be used again, and what its
                // prompt told the model is gone.
                self.history.minted += 10_000;
                self.services.announced_mode.forget();
                self.services.env.skills.forget_loaded();
                self.services.log().add_entry(Entry::Refused);
                let ended =
                    self.services.log().end_turn(DIED, self.history.minted, self.history.cost);
                // What the client has seen of the turn is stored before the prompt is answered.
                ended.written().await;
                Err(Error::Internal { place: "the turn" })
            }
        };
        let has_answered = matches!(result, Ok(StopReason::EndTurn));
        // The answer is queued before the next turn can send an update.
        turn.done.complete(result);
        // The model list or the model's capabilities may have changed.
        self.send_settings();
        if has_answered && !self.model_list_requested {
            self.prefetch_model_list();
        }
        self.start_next();
    }

    /// Fetches the provider's model list for the client, once the provider has answered a prompt.
    fn prefetch_model_list(&mut self) {
        self.model_list_requested = true;
        let model = self.services.selection.get().model;
        if self.host.should_prefetch_list(&model) {
            let (host, stop) = (Arc::clone(&self.host), self.stop.clone());
            self.pending_model_changes.push(Box::pin(async move {
                if let Some(Err(error)) = stop.run_until_cancelled(host.list_models(&model)).await {
                    tracing::debug!(%error, "the models could not be listed");
                }
                None
            }));
        }
    }

    pub(super) fn announce_commands(&mut self) {
        if self.announce_at.take().is_some() {
            self.announced_commands = self.commands();
            self.services.client().update(Update::Commands(self.announced_commands.clone()));
        }
    }

    /// Stops the running work and waits for it: child processes must not outlive the session.
    /// Messages left in the mailbox are answered like queued prompts.
    async fn close(mut self, mut inbox: mpsc::Receiver<SessionMessage>) {
        inbox.close();
        while let Ok(msg) = inbox.try_recv() {
            match msg {
                SessionMessage::Prompt { done, .. } => done.complete(Ok(StopReason::Cancelled)),
                SessionMessage::SetMode { done, .. } => done.complete(Err(Error::Cancelled)),
                SessionMessage::Set { done, .. } => done.complete(Err(Error::Cancelled)),
                SessionMessage::Close { done } => drop(self.close_done.replace(done)),
                SessionMessage::Cancel
                | SessionMessage::CancelPrompt(_)
                | SessionMessage::TitleChosen(_) => {}
            }
        }
        // Pending model changes end now.
        self.stop.cancel();
        while let Some(change) = self.pending_model_changes.next().await {
            if let Some(change) = change {
                self.on_model_change(change);
            }
        }
        self.cancel();
        if self.running.is_some() {
            let end = turn_end(&mut self.running).await;
            self.on_turn_end(end).await;
        }
        if let Some(servers) = self.servers.take() {
            servers.close().await;
        }
        self.services.env.jobs.close().await;
        self.services.env.guard.close().await;
        self.services.log().flush().written().await;
        drop(self.lock.take());
        if let Some(done) = self.close_done {
            done.complete(Ok(()));
        }
    }
}

async fn turn_end(running: &mut Option<RunningTurn>) -> Result<FinishedTurn, JoinError> {
    match running {
        Some(turn) => (&mut turn.task).await,
        None => pending().await,
    }
}

async fn wait_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}
