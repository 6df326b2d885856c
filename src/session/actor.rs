//! One session's task: the only owner of its state. While a turn runs the turn has the history,
//! so whoever holds it may change it, and there is no lock.

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

use super::mcp::Untold;
use super::trust::Shown;
use super::undo::News;
use super::{Beginning, Host, Msg, Origin, PromptKey, settings};
use crate::done::Done;
use crate::error::Error;
use turnwright_llm::{Effort, Model, Senses};
use crate::mcp::Fleet;
use turnwright_types::message::{History, Part, Stop, UserMessage};
use turnwright_policy::permission::{Grants, Mode};
use turnwright_store::{Entry, Hold};
use crate::turn::{Equipment, Finished};
use turnwright_types::update::{Command, Setting, SettingId, Update};

/// Prompts that may wait behind a running turn.
const LONGEST_QUEUE: usize = 32;

/// How long after the session was answered its commands are announced. Some editors drop what
/// comes for a session they have not registered yet.
const ANNOUNCE_AFTER: Duration = Duration::from_millis(150);

/// Changes of a setting that may wait for a provider's list.
const MOST_CHANGES: usize = 8;

/// How a turn has ended that died.
const DIED: &str = "died";

/// What the client has been told, or is to be.
pub(super) struct Told {
    /// What the user has to know and can be told with the first prompt at the earliest.
    pub(super) notices: Vec<String>,
    /// The user knows of the sandbox's gaps.
    pub(super) shortcoming: bool,
    /// What prompts may hold besides text.
    pub(super) offered: Senses,
}

/// A model that was looked for; or a list that nobody has asked for.
type Choosing = BoxFuture<'static, Option<Chosen>>;

/// A model that was looked for, and who wants to know.
struct Chosen {
    /// Counts the changes. A slow one must not undo a later one.
    number: u64,
    model: Result<Arc<dyn Model>, Error>,
    done: Done<Vec<Setting>>,
}

/// The state of a session.
pub(super) struct Actor {
    pub(super) host: Arc<Host>,
    pub(super) equipment: Equipment,
    /// Without the running turn. If that dies, this is what is left.
    pub(super) history: History,
    pub(super) grants: Grants,
    pub(super) queue: VecDeque<Queued>,
    pub(super) running: Option<Running>,
    /// When the commands are announced; `None` once they are.
    pub(super) announce_at: Option<Instant>,
    pub(super) told: Told,
    /// The last turn had no end, and the model does not know that yet.
    pub(super) was_interrupted: bool,
    choosing: FuturesUnordered<Choosing>,
    /// The number of the last change of the model that was asked for, and of the last that was
    /// made.
    changes: (u64, u64),
    /// The settings that the client knows.
    known: Vec<Setting>,
    /// What the session is kept to have been left with.
    kept: Option<(Mode, String, Effort)>,
    asked_for_list: bool,
    pub(super) shown: Shown,
    /// It has a title, or will have one in a moment.
    pub(super) is_titled: bool,
    /// It works in other folders than the model knows.
    pub(super) has_moved: bool,
    /// What the user has undone and the model does not know yet.
    pub(super) undone: News,
    /// A person has given it a title, and the client knows.
    pub(super) has_last_title: Arc<AtomicBool>,
    cancelling: Arc<AtomicBool>,
    pub(super) stop: CancellationToken,
    /// Who waits for the end.
    closing: Option<Done<()>>,
    /// What keeps others from writing to the session.
    pub(super) hold: Option<Hold>,
    /// Its MCP servers.
    pub(super) fleet: Option<Fleet>,
    /// The commands that the client knows.
    pub(super) announced: Vec<Command>,
    /// What the model was to be told with a prompt that nothing became of.
    pub(super) untold: Untold,
}

pub(super) struct Queued {
    pub(super) key: PromptKey,
    pub(super) prompt: UserMessage,
    pub(super) done: Done<Stop>,
}

pub(super) struct Running {
    pub(super) key: PromptKey,
    pub(super) cancel: CancellationToken,
    pub(super) task: JoinHandle<Finished>,
    pub(super) done: Done<Stop>,
}

impl Actor {
    pub(super) fn new(
        host: Arc<Host>,
        equipment: Equipment,
        known: Vec<Setting>,
        told: Told,
        cancelling: Arc<AtomicBool>,
        stop: CancellationToken,
    ) -> Actor {
        Actor {
            known,
            kept: None,
            choosing: FuturesUnordered::new(),
            changes: (0, 0),
            asked_for_list: false,
            shown: Shown::default(),
            is_titled: false,
            has_moved: false,
            undone: News::default(),
            host,
            equipment,
            history: History::default(),
            grants: Grants::default(),
            queue: VecDeque::new(),
            running: None,
            announce_at: Some(Instant::now() + ANNOUNCE_AFTER),
            told,
            was_interrupted: false,
            has_last_title: Arc::default(),
            cancelling,
            stop,
            closing: None,
            hold: None,
            fleet: None,
            announced: Vec::new(),
            untold: Untold::default(),
        }
    }

    /// Lives until the last handle is dropped or the host stops.
    pub(super) async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Msg>,
        Beginning { origin, servers, after, cancel }: Beginning,
        opened: Done<Vec<Setting>>,
    ) {
        let (stop, is_copy) = (self.stop.clone(), matches!(origin, Origin::Copy { .. }));
        let begun = stop.run_until_cancelled(cancel.run_until_cancelled(async {
            after.cancelled().await;
            self.begin(origin).await
        }));
        match begun.await.flatten().unwrap_or(Err(Error::Cancelled)) {
            Ok(()) => opened.report(Ok(self.known.clone())),
            Err(error) => {
                if is_copy {
                    self.vanish().await;
                }
                opened.report(Err(error));
                // Whoever waits for the end of this one waits for the end of that as well.
                after.cancelled().await;
                return self.close(inbox).await;
            }
        }
        // The answer is on its way: no server holds it up.
        let offers = self.launch(&servers);
        self.announce_at = self.announce_at.map(|_| Instant::now() + ANNOUNCE_AFTER);
        let (stop, mode) = (self.stop.clone(), self.equipment.mode.clone());
        let lent = self.equipment.tools.lent().clone();
        loop {
            let announce_at = self.announce_at;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                msg = inbox.recv() => match msg {
                    Some(msg) => self.on_message(msg),
                    None => break,
                },
                // Before the end of its turn: the client is told in time.
                () = mode.chosen() => drop(self.set_mode_and_tell(mode.get())),
                end = turn_end(&mut self.running) => self.on_turn_end(end).await,
                // While nobody works the next turn tells it.
                () = lent.has_news(), if self.running.is_some() => self.equipment.tell_news(),
                Some(chosen) = self.choosing.next(), if !self.choosing.is_empty() => {
                    match chosen {
                        Some(chosen) => self.on_chosen(chosen),
                        None => self.tell_settings(),
                    }
                }
                () = offers.notified() => self.announce_again(),
                () = wait_until(announce_at) => {
                    self.announce();
                    // The client has its answer, and the user has not typed yet.
                    self.host.warm_up();
                }
            }
        }
        self.close(inbox).await;
    }

    fn on_message(&mut self, msg: Msg) {
        match msg {
            Msg::Prompt { key, prompt, done } => {
                if self.queue.len() >= LONGEST_QUEUE {
                    done.report(Err(Error::BadMoment(format!(
                        "{LONGEST_QUEUE} prompts are waiting already. Wait, or cancel"
                    ))));
                    return;
                }
                if let Err(error) = self.check(&prompt) {
                    return done.report(Err(error));
                }
                self.announce();
                self.queue.push_back(Queued { key, prompt, done });
                self.start_next();
            }
            Msg::Cancel => {
                self.cancelling.store(false, Ordering::Relaxed);
                self.cancel();
            }
            Msg::CancelPrompt(key) => self.cancel_prompt(key),
            Msg::SetMode { mode, done } => {
                let set = self.set_mode_and_tell(mode);
                self.report_when_kept(done, set);
            }
            Msg::Set { setting, value, done } => self.set(setting, value, done),
            Msg::Titled(title) => {
                self.is_titled = true;
                self.has_last_title.store(true, Ordering::Relaxed);
                let updated = SystemTime::now();
                self.equipment.client().update(Update::Info { title: Some(title), updated });
            }
            Msg::Close { done } => {
                self.closing = Some(done);
                self.stop.cancel();
            }
        }
    }

    /// Pictures and recordings are taken if that was said, or if the model takes them now
    /// (R-TURN-11).
    fn check(&self, prompt: &UserMessage) -> Result<(), Error> {
        let (offered, senses) = (self.told.offered, self.equipment.thinker.get().model.senses());
        let refused = prompt.parts.iter().find_map(|it| match it {
            Part::Image(_) if !offered.images && !senses.images => Some("images"),
            Part::Audio(_) if !offered.audio && !senses.audio => Some("audio"),
            _ => None,
        });
        match refused {
            Some(what) => Err(Error::Params(format!("This agent does not take {what} in prompts"))),
            None => Ok(()),
        }
    }

    fn set(&mut self, setting: SettingId, value: String, done: Done<Vec<Setting>>) {
        match setting {
            SettingId::Model if self.choosing.len() >= MOST_CHANGES => {
                let busy = "The provider has not answered the changes before this one yet";
                return done.report(Err(Error::BadMoment(busy.to_owned())));
            }
            SettingId::Model => return self.choose(value, done),
            SettingId::Effort if !self.equipment.thinker.get().model.has_effort() => {
                let no_effort = "This model has no effort that can be chosen";
                return done.report(Err(Error::Params(no_effort.to_owned())));
            }
            SettingId::Effort => match Effort::parse(&value) {
                Some(effort) => self.equipment.thinker.set_effort(effort),
                None => {
                    let known: Vec<_> = Effort::ALL.iter().map(|it| it.id()).collect();
                    return done.report(Err(settings::no_such("effort", &value, &known)));
                }
            },
            SettingId::Mode => match Mode::parse(&value) {
                Some(mode) => {
                    if let Err(error) = self.set_mode(mode) {
                        return done.report(Err(error));
                    }
                }
                None => {
                    let known: Vec<_> = Mode::ALL.iter().map(|it| it.id()).collect();
                    return done.report(Err(settings::no_such("mode", &value, &known)));
                }
            },
        }
        self.tell_settings();
        self.report_when_kept(done, Ok(self.known.clone()));
    }

    /// Answers when what was written so far is there.
    fn report_when_kept<T: Send + 'static>(&self, done: Done<T>, result: Result<T, Error>) {
        let written = self.equipment.log().flush().written();
        self.host.tracker().spawn(async move {
            written.await;
            done.report(result);
        });
    }

    fn choose(&mut self, name: String, done: Done<Vec<Setting>>) {
        self.changes.0 += 1;
        let (number, stop) = (self.changes.0, self.stop.clone());
        let looking = settings::choose(Arc::clone(&self.host), name);
        // In a task of its own: if it dies, the session does not.
        let looking =
            self.host.tracker().spawn(async move { stop.run_until_cancelled(looking).await });
        self.choosing.push(Box::pin(async move {
            let model = match looking.await {
                Ok(model) => model.unwrap_or(Err(Error::Cancelled)),
                Err(_) => Err(Error::Bug { place: "the choice of a model" }),
            };
            Some(Chosen { number, model, done })
        }));
    }

    fn on_chosen(&mut self, Chosen { number, model, done }: Chosen) {
        match model {
            Ok(model) => {
                if number > self.changes.1 {
                    self.changes.1 = number;
                    self.equipment.thinker.set_model(model);
                    self.tell_settings();
                }
                self.report_when_kept(done, Ok(self.known.clone()));
            }
            Err(error) => done.report(Err(error)),
        }
    }

    fn set_mode_and_tell(&mut self, mode: Mode) -> Result<(), Error> {
        let set = self.set_mode(mode);
        self.tell_settings();
        set
    }

    pub(super) fn set_mode(&mut self, mode: Mode) -> Result<(), Error> {
        let most = self.equipment.mode.most();
        if mode > most {
            return Err(Error::Params(format!(
                "The mode `{}` is not to be had: whoever manages this machine lets none go beyond \
                 `{}`",
                mode.id(),
                most.id()
            )));
        }
        self.equipment.mode.set(mode);
        self.equipment.client().update(Update::Mode(mode.id()));
        Ok(())
    }

    /// The client gets the settings with the answer that it waits for.
    pub(super) fn renew_settings(&mut self) {
        self.known = settings::all(&self.host, &self.equipment);
    }

    /// Tells the settings if they are not what the client knows, and keeps them.
    pub(super) fn tell_settings(&mut self) {
        let settings = settings::all(&self.host, &self.equipment);
        let (mode, thinker) = (self.equipment.mode.get(), self.equipment.thinker.get());
        let left = (mode, thinker.model.name().to_owned(), thinker.effort);
        if self.kept.as_ref() != Some(&left) {
            let (mode, model, effort) = left.clone();
            drop(self.equipment.log().settings(mode.id(), model, effort.id()));
            self.kept = Some(left);
        }
        if settings != self.known {
            self.known.clone_from(&settings);
            self.equipment.client().update(Update::Settings(settings));
        }
    }

    /// Cancels the work that exists now: what waits is answered at once, what runs when it has
    /// stopped.
    fn cancel(&mut self) {
        if let Some(turn) = &self.running {
            turn.cancel.cancel();
        }
        for queued in self.queue.drain(..) {
            queued.done.report(Ok(Stop::Cancelled));
        }
    }

    fn cancel_prompt(&mut self, key: PromptKey) {
        if let Some(turn) = self.running.as_ref().filter(|it| it.key == key) {
            turn.cancel.cancel();
        } else if let Some(position) = self.queue.iter().position(|it| it.key == key)
            && let Some(queued) = self.queue.remove(position)
        {
            queued.done.report(Ok(Stop::Cancelled));
        }
    }

    async fn on_turn_end(&mut self, end: Result<Finished, JoinError>) {
        let Some(turn) = self.running.take() else { return };
        let result = match end {
            Ok(finished) => {
                self.history = finished.history;
                self.grants = finished.grants;
                if matches!(finished.result, Ok(Stop::Refusal)) {
                    // The prompt that told the model is gone.
                    self.equipment.told_mode.forget();
                }
                finished.result
            }
            Err(error) => {
                tracing::error!(%error, "a turn died");
                // Identifiers that the dead turn has used must not come again, and what its prompt
                // has told the model is gone.
                self.history.minted += 10_000;
                self.equipment.told_mode.forget();
                self.equipment.bench.skills.forget_loaded();
                self.equipment.log().add(Entry::Refused);
                let ended = self.equipment.log().end(DIED, self.history.minted, self.history.cost);
                // What the client has seen of it is there before the prompt is answered.
                ended.written().await;
                Err(Error::Bug { place: "the turn" })
            }
        };
        let has_answered = matches!(result, Ok(Stop::EndTurn));
        // The answer is in the lane before the next turn can put an update there.
        turn.done.report(result);
        // A list of models, or a lesson about this one.
        self.tell_settings();
        if has_answered && !self.asked_for_list {
            self.list_by_the_way();
        }
        self.start_next();
    }

    /// Fills the client's list of models, once the provider has shown that it answers.
    fn list_by_the_way(&mut self) {
        self.asked_for_list = true;
        let model = self.equipment.thinker.get().model;
        if self.host.wants_list(&model) {
            let (host, stop) = (Arc::clone(&self.host), self.stop.clone());
            self.choosing.push(Box::pin(async move {
                if let Some(Err(error)) = stop.run_until_cancelled(host.list(&model)).await {
                    tracing::debug!(%error, "the models could not be listed");
                }
                None
            }));
        }
    }

    pub(super) fn announce(&mut self) {
        if self.announce_at.take().is_some() {
            self.announced = self.commands();
            self.equipment.client().update(Update::Commands(self.announced.clone()));
        }
    }

    /// Ends what runs, and waits for it: its children have to be dead when we are gone. What is
    /// still in the mailbox is answered like what waits.
    async fn close(mut self, mut inbox: mpsc::Receiver<Msg>) {
        inbox.close();
        while let Ok(msg) = inbox.try_recv() {
            match msg {
                Msg::Prompt { done, .. } => done.report(Ok(Stop::Cancelled)),
                Msg::SetMode { done, .. } => done.report(Err(Error::Cancelled)),
                Msg::Set { done, .. } => done.report(Err(Error::Cancelled)),
                Msg::Close { done } => drop(self.closing.replace(done)),
                Msg::Cancel | Msg::CancelPrompt(_) | Msg::Titled(_) => {}
            }
        }
        // Whoever looks for a model ends that now.
        self.stop.cancel();
        while let Some(chosen) = self.choosing.next().await {
            if let Some(chosen) = chosen {
                self.on_chosen(chosen);
            }
        }
        self.cancel();
        if self.running.is_some() {
            let end = turn_end(&mut self.running).await;
            self.on_turn_end(end).await;
        }
        if let Some(fleet) = self.fleet.take() {
            fleet.close().await;
        }
        self.equipment.bench.jobs.close().await;
        self.equipment.bench.cells.close().await;
        self.equipment.log().flush().written().await;
        drop(self.hold.take());
        if let Some(done) = self.closing {
            done.report(Ok(()));
        }
    }
}

async fn turn_end(running: &mut Option<Running>) -> Result<Finished, JoinError> {
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
