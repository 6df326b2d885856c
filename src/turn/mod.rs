//! One prompt turn: ask the model, run the tools it calls, and again, until there is exactly one
//! reason to stop. Effects are in methods, decisions in `decide`.

mod act;
mod cards;
mod coalesce;
mod context;
mod decide;
mod errand;
mod floor;
mod gather;
mod draft;
mod glimpse;
pub mod inside;
mod keep;
mod ledger;
mod sample;
mod schedule;
mod scribe;
mod trouble;
mod witness;

#[cfg(test)]
pub(crate) mod stage;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use turnwright_types::client::Client;
use crate::error::Error;
use turnwright_types::ids::MessageId;
use turnwright_llm::{Effort, Model};
use turnwright_types::message::{History, Message, Part, Stop, ToolCall, UserMessage};
pub use turnwright_policy::permission::SharedMode;
use turnwright_policy::permission::{Grants, Law, Mode};
use turnwright_store::{Audience, Entry, Log, TurnKind};
use crate::tools::{Bench, Offer, Toolbox};
use turnwright_types::update::Update;

use cards::Cards;
use decide::Budget;
use trouble::Nudge;

pub use cards::{brief, failed, last, not_run};
pub use context::SYSTEM_PROMPT;
pub use errand::Errands;

/// What a turn works with. The session owns it and lends it to each of its turns.
#[derive(Clone)]
pub struct Equipment {
    /// Who thinks, and how long; a change counts from the next request on.
    pub thinker: SharedThinker,
    /// What it can do.
    pub tools: Arc<Toolbox>,
    /// What the tools work with.
    pub bench: Arc<Bench>,
    /// How much may be done without asking; a change counts from the next effect on.
    pub mode: SharedMode,
    /// The mode that the model knows.
    pub told_mode: ToldMode,
    /// What may be done at all; a change counts from the next effect on.
    pub law: SharedLaw,
    /// Requests to the model that one turn may make.
    pub max_requests: u32,
    /// Whether the user knows that the server cuts what it is sent.
    pub knows_of_cuts: Arc<AtomicBool>,
}

impl std::fmt::Debug for Equipment {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Equipment").field("thinker", &self.thinker).finish_non_exhaustive()
    }
}

/// What the line about the mode begins with.
const MODE: &str = "Mode: ";

impl Equipment {
    /// Who listens.
    pub fn client(&self) -> &Arc<dyn Client> {
        &self.bench.client
    }

    /// What is kept of the session.
    pub fn log(&self) -> &Log {
        &self.bench.log
    }

    /// Says something to the user that the model does not hear.
    pub fn say(&self, id: MessageId, text: String) {
        self.log().add(Entry::Note { id: id.clone(), text: text.clone() });
        self.client().update(Update::Text { message: id, text });
    }

    /// Tells the user what there is to know about how the session is kept.
    pub fn tell_news(&self) {
        for news in self.log().news().into_iter().chain(self.tools.lent().news()) {
            self.client().update(Update::Notice(news));
        }
    }

    /// What the model has to be told about the mode, unless it knows.
    pub fn mode_news(&self) -> Option<String> {
        let mode = self.mode.get();
        (self.told_mode.tell(mode) != Some(mode)).then(|| self.mode_line())
    }

    fn mode_line(&self) -> String {
        let (mode, can_confine) = (self.mode.get(), self.law.get().can_confine);
        format!("{MODE}{} ({})\n", mode.id(), mode.description(can_confine))
    }

    /// What the conversation says of the mode last, the model knows: it need not be told again.
    pub fn recall_mode(&self, history: &History) {
        let users = history.messages.iter().rev().filter_map(|it| match it.as_ref() {
            Message::User(it) => Some(it),
            _ => None,
        });
        let parts = users.flat_map(|it| it.parts.iter().rev());
        let mut lines = parts.filter_map(|it| match it {
            Part::Context(text) => text.lines().rfind(|it| it.starts_with(MODE)),
            _ => None,
        });
        if lines.next() == Some(self.mode_line().trim_end()) {
            self.told_mode.tell(self.mode.get());
        }
    }

    /// What the model is to be told about the tools.
    pub fn offer(&self) -> Offer {
        Offer {
            patches: self.thinker.get().model.takes_patches(),
            skills: self.bench.skills.names(),
            plans: self.mode.get() == Mode::Plan,
        }
    }
}

/// Who thinks, and how long.
#[derive(Clone, Debug)]
pub struct Thinker {
    /// The model.
    pub model: Arc<dyn Model>,
    /// Its effort, where that can be chosen.
    pub effort: Effort,
}

/// The thinker, set by the session and read by its turn.
#[derive(Clone, Debug)]
// A std mutex: held to copy a pointer, never across an await.
pub struct SharedThinker(Arc<Mutex<Thinker>>);

impl SharedThinker {
    /// A model that thinks as long as its provider finds best.
    pub fn new(model: Arc<dyn Model>, effort: Effort) -> SharedThinker {
        SharedThinker(Arc::new(Mutex::new(Thinker { model, effort })))
    }

    /// The thinker now.
    pub fn get(&self) -> Thinker {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the model.
    pub fn set_model(&self, model: Arc<dyn Model>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).model = model;
    }

    /// Changes the effort.
    pub fn set_effort(&self, effort: Effort) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).effort = effort;
    }
}

/// The mode that the model was last told, as long as it can know that.
#[derive(Clone, Debug, Default)]
// A std mutex: held to copy a value.
pub struct ToldMode(Arc<Mutex<Option<Mode>>>);

impl ToldMode {
    /// The model does not know any more.
    pub fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether it knows one.
    fn knows(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// It is told this one. Returns what it knew.
    fn tell(&self, mode: Mode) -> Option<Mode> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(mode)
    }
}

/// The rules of a session, set by it and read by its turn.
#[derive(Clone, Debug, Default)]
// A std mutex: held to copy a pointer, never across an await.
pub struct SharedLaw(Arc<Mutex<Arc<Law>>>);

impl SharedLaw {
    /// With these rules.
    pub fn new(law: Law) -> SharedLaw {
        SharedLaw(Arc::new(Mutex::new(Arc::new(law))))
    }

    /// The rules now.
    pub fn get(&self) -> Arc<Law> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes them.
    pub fn set(&self, law: Law) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(law);
    }
}

/// A turn that has not begun. It takes what it changes by value and gives it back at its end.
#[derive(Debug)]
pub struct Turn {
    equipment: Equipment,
    cancel: CancellationToken,
    history: History,
    grants: Grants,
    budget: Budget,
    /// Where this turn's messages begin.
    begin: usize,
    cards: Cards,
    /// The entry of what the model was told last.
    last_told: Option<u64>,
}

/// What a turn leaves behind.
#[derive(Debug)]
pub struct Finished {
    /// The conversation with this turn in it.
    pub history: History,
    /// The remembered answers.
    pub grants: Grants,
    /// Why it ended.
    pub result: Result<Stop, Error>,
}

/// Characters of a prompt that the record keeps.
const LONGEST_WORDS: usize = 500;

/// The beginning of what the user has typed.
fn words(prompt: &UserMessage) -> String {
    let typed = prompt.parts.iter().filter_map(|it| match it {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    typed.flat_map(str::chars).take(LONGEST_WORDS).collect()
}

fn redacted(text: &str) -> String {
    turnwright_types::redact::text(text).into_owned()
}

enum Step {
    /// Ask the model.
    Sample,
    /// Run its calls.
    Act(Vec<ToolCall>),
    /// Wait before asking again, and tell the user why if it is worth a word.
    Pause(Duration, Option<String>),
    /// Wait, tell the user why, and have the model go on.
    Continue(Duration, String, Nudge),
    /// Ask again without running the calls: they have been made too often.
    Spare(Vec<ToolCall>),
    /// Stop.
    End(Result<Stop, Error>),
}

impl Turn {
    /// A turn about a prompt.
    pub fn new(
        equipment: Equipment,
        mut history: History,
        grants: Grants,
        prompt: UserMessage,
        cancel: CancellationToken,
    ) -> Turn {
        let begin = history.messages.len();
        let words = words(&prompt);
        history.push(Message::User(prompt));
        let budget = Budget::new(equipment.max_requests);
        let cards = Cards::new(Arc::clone(equipment.client()), equipment.log().clone());
        equipment.log().begin(TurnKind::Prompt, redacted(&words));
        let last_told = None;
        Turn { equipment, cancel, history, grants, budget, begin, cards, last_told }
    }

    /// Runs it to its end. Every card has its final status and every call its result then.
    pub async fn run(mut self) -> Finished {
        self.equipment.bench.checkpoint.forget_map();
        self.equipment.tools.recall(&self.history);
        self.await_servers().await;
        self.gather().await;
        self.note_prompt();
        let mut step = Step::Sample;
        let mut result = loop {
            self.equipment.tell_news();
            step = match step {
                Step::Sample => {
                    self.tell_mode();
                    self.sample().await
                }
                Step::Act(calls) => self.act(calls).await,
                Step::Pause(delay, why) => self.pause(delay, why).await,
                Step::Continue(delay, why, nudge) => {
                    self.tell_model(trouble::nudge(nudge));
                    self.pause(delay, Some(why)).await
                }
                Step::Spare(calls) => {
                    self.abandon(calls, decide::SAME_AGAIN).await;
                    Step::Sample
                }
                Step::End(result) => break result,
            };
            // The one place where a cancelled token becomes a stop reason, whatever error the
            // interrupted work has returned (R-CANCEL-2).
            if self.cancel.is_cancelled() {
                if let Step::Act(calls) | Step::Spare(calls) = step {
                    self.abandon(calls, "cancelled by the user").await;
                }
                break Ok(Stop::Cancelled);
            }
        };
        if self.cancel.is_cancelled() {
            result = Ok(Stop::Cancelled);
        }
        self.take_back_nudge();
        if matches!(result, Ok(Stop::Refusal)) {
            // The prompt and all that followed is left out of the next request (R-TURN-7).
            self.history.messages.truncate(self.begin);
            self.equipment.log().add(Entry::Refused);
            self.equipment.bench.skills.forget_loaded();
        }
        witness::end_turn(&self.equipment, &self.cancel).await;
        let why = result.as_ref().map_or("error", |it| it.word());
        let written = self.equipment.log().end(why, self.history.minted, self.history.cost);
        // Before the prompt is answered.
        written.written().await;
        self.equipment.tell_news();
        Finished { history: self.history, grants: self.grants, result }
    }

    /// The first turn waits a moment for servers that are on their way, so that it has their tools.
    async fn await_servers(&mut self) {
        let lent = self.equipment.tools.lent();
        let Some(patience) = lent.patience() else { return };
        let settled = self.cancel.run_until_cancelled(lent.settled());
        drop(tokio::time::timeout(patience, settled).await);
        if self.cancel.is_cancelled() {
            return;
        }
        let late = lent.late();
        if !late.is_empty() {
            let text = format!(
                "Not connected yet: {}. The turn begins without; what they offer joins it as soon \
                 as it is there.",
                late.join(", ")
            );
            self.equipment.client().update(Update::Notice(text));
        }
    }

    /// Writes down what the turn is about, before the model hears of it.
    fn note_prompt(&mut self) {
        let Some(message) = self.history.messages.get(self.begin).cloned() else { return };
        let id = MessageId::from(format!("msg-{}", self.history.mint()));
        let audience = Audience::Both;
        self.equipment.log().add(Entry::Message { id, message, audience });
    }

    /// Tells the model something that is no word of the user's.
    fn tell_model(&mut self, message: UserMessage) {
        self.history.push(Message::User(message));
        let Some(message) = self.history.messages.last().cloned() else { return };
        let id = MessageId::from(format!("msg-{}", self.history.mint()));
        let audience = Audience::Model;
        let entry = Entry::Message { id, message, audience };
        self.last_told = Some(self.equipment.log().add(entry));
    }

    /// The user has changed the mode in the middle of the work.
    fn tell_mode(&mut self) {
        if self.equipment.told_mode.knows()
            && let Some(line) = self.equipment.mode_news()
        {
            let text = format!("The user has changed the mode.\n{line}");
            self.tell_model(UserMessage { parts: vec![Part::Context(text)] });
        }
    }

    async fn pause(&mut self, delay: Duration, why: Option<String>) -> Step {
        if let Some(why) = why {
            self.equipment.client().update(Update::Notice(why));
        }
        let mut left = delay;
        loop {
            let next = decide::next_word(left);
            // Dropping a sleep undoes nothing.
            let sleep = tokio::time::sleep(left.saturating_sub(next.unwrap_or_default()));
            let is_over = self.cancel.run_until_cancelled(sleep).await.is_none();
            let Some(next) = next.filter(|_| !is_over) else { return Step::Sample };
            self.equipment.client().update(Update::Notice(format!("{} s left.", next.as_secs())));
            left = next;
        }
    }
}
