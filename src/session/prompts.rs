//! What becomes of a prompt: a turn, or the answer of a slash command.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::actor::{Actor, Queued, Running};
use super::commands::{self, Run};
use super::rewind::{Back, Task, back};
use super::trust::trust;
use super::{permissions, title};
use turnwright_types::effect::visible_line;
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, Message, Part, Stop, UserMessage};
use turnwright_policy::permission::Grants;
use turnwright_store::{Audience, Durability, Entry, Log, StoreError, TurnKind, sessions};
use crate::turn::{Equipment, Finished, Turn};
use turnwright_types::update::Update;

/// What the model is told after a turn without an end.
const INTERRUPTED: &str = "The last turn was interrupted: the agent ended in the middle of it. What \
                           was under way then may be done in part.\n";
/// Characters of a command that its turn is called by.
const LONGEST_WORDS: usize = 500;

impl Actor {
    /// Starts the next turn, unless one runs.
    pub(super) fn start_next(&mut self) {
        while self.running.is_none() {
            let Some(Queued { key, prompt, done }) = self.queue.pop_front() else { return };
            let cancel = self.stop.child_token();
            self.tell_notices();
            let typed = first_text(&prompt);
            let work = match commands::find(&typed) {
                Some((run, words)) => {
                    self.note_command(kind(run), &typed, &prompt);
                    self.command(run, words.to_owned(), cancel.clone())
                }
                None => match self.asked_of_server(&typed) {
                    Some(asked) => self.server_prompt(asked, prompt, typed, cancel.clone()),
                    None => self.turn(prompt, cancel.clone()),
                },
            };
            let task = self.host.tracker().spawn(work);
            self.running = Some(Running { key, cancel, task, done });
        }
    }

    /// Tells what the user has to know and could not be told before.
    fn tell_notices(&mut self) {
        let shortcoming = turnwright_sandbox::known_shortcoming();
        if let Some(what) = shortcoming.filter(|_| !self.told.shortcoming) {
            self.told.shortcoming = true;
            self.told.notices.push(format!("The sandbox has gaps here. {what}"));
        }
        let news = self.equipment.log().news();
        for notice in self.told.notices.drain(..).chain(news) {
            self.equipment.client().update(Update::Notice(notice));
        }
    }

    fn turn(
        &mut self,
        mut prompt: UserMessage,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Finished> {
        let title = title::of_prompt(&prompt);
        tell_omissions(&self.equipment, &prompt);
        self.add_context(&mut prompt);
        let (history, grants) = (self.history.clone(), self.grants.clone());
        let turn = Turn::new(self.equipment.clone(), history, grants, prompt, cancel);
        let titled = self.suggest_title(title);
        // Both end before the prompt is answered.
        Box::pin(async move { futures_util::future::join(turn.run(), titled).await.0 })
    }

    fn command(
        &mut self,
        run: Run,
        words: String,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Finished> {
        let message = MessageId::from(format!("msg-{}", self.history.mint()));
        let (host, equipment) = (Arc::clone(&self.host), self.equipment.clone());
        let log = self.equipment.log().clone();
        let grants = self.grants.clone();
        let answering: BoxFuture<'static, Stop> = match run {
            Run::Now(command) => {
                let text = command(&mut self.history, &self.equipment);
                equipment.say(message, text);
                Box::pin(std::future::ready(Stop::EndTurn))
            }
            Run::Permissions => {
                let history = self.history.clone();
                return Box::pin(async move {
                    let (grants, stop) =
                        permissions::run(equipment, grants, words, message, cancel).await;
                    ended(&log, history, grants, stop).await
                });
            }
            Run::Back(which) => {
                let history = self.history.clone();
                let news = self.undone.clone();
                let task = Task { host, equipment, news, words, message, cancel };
                return Box::pin(async move {
                    let (history, stop) = back(which, task, history).await;
                    ended(&log, history, grants, stop).await
                });
            }
            Run::Look(look) => Box::pin(commands::look(look, equipment, message, cancel)),
            Run::Trust => {
                let shown = Arc::clone(&self.shown);
                Box::pin(trust(host, equipment, shown, words, message, cancel))
            }
            Run::Servers => Box::pin(self.tell_servers(words, message, cancel)),
            Run::Models => Box::pin(commands::models(host, equipment, message, cancel)),
        };
        let history = self.history.clone();
        Box::pin(async move {
            let stop = answering.await;
            ended(&log, history, grants, stop).await
        })
    }

    /// Gives the session a title, unless it has one, and tells the client once that is kept.
    pub(super) fn suggest_title(
        &mut self,
        title: Option<String>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let title = title.filter(|_| !self.is_titled);
        self.is_titled |= title.is_some();
        let (id, words) = (self.equipment.bench.session.clone(), title.clone());
        let kept = title.is_some().then(|| {
            self.host.store().post(Durability::Process, move |connection| {
                let words = words.as_deref().unwrap_or_default();
                sessions::suggest_title(connection, &id, words)
            })
        });
        let client = Arc::clone(self.equipment.client());
        let has_last = Arc::clone(&self.has_last_title);
        async move {
            let Some(kept) = kept else { return };
            // A store that cannot be used is no reason to leave the user without.
            let is_kept = kept.await.unwrap_or(Err(StoreError::Closed)) != Ok(false);
            if is_kept && !has_last.load(Ordering::Relaxed) {
                client.update(Update::Info { title, updated: SystemTime::now() });
            }
        }
    }

    /// What the model has to know and the system prompt must not hold, because it changes.
    pub(super) fn add_context(&mut self, prompt: &mut UserMessage) {
        let mut context = self.untold.take();
        let is_first = self.history.messages.is_empty();
        if take(&mut self.has_moved) && !is_first {
            context.push_str("The user has opened this conversation in other folders.\n");
            context.push_str(&self.places());
        }
        if is_first {
            // What was left of a prompt before this one is all told anew.
            context = format!(
                "{}System: {}\nDate: {}\n",
                self.places(),
                std::env::consts::OS,
                &httpdate::fmt_http_date(SystemTime::now())[..16],
            );
            self.equipment.told_mode.forget();
        }
        if take(&mut self.was_interrupted) {
            context.push_str(INTERRUPTED);
        }
        context.extend(self.equipment.mode_news());
        context.extend(self.equipment.bench.news());
        context.extend(self.undone.take());
        if !context.is_empty() {
            prompt.parts.push(Part::Context(context));
        }
    }

    /// Where the session works, for the model.
    fn places(&self) -> String {
        let roots = self.equipment.bench.files.roots();
        let mut text = format!("Project folder: {}\n", roots.cwd().display());
        for folder in roots.others() {
            let folder = visible_line(&folder.to_string_lossy());
            text.push_str(&format!("Another folder of the project: {folder}\n"));
        }
        text
    }

    fn note_command(&mut self, kind: TurnKind, typed: &str, prompt: &UserMessage) {
        note_command(self.equipment.log(), &mut self.history, kind, typed, prompt);
    }
}

/// Writes down that the user has typed a command. The model does not hear of it.
pub(super) fn note_command(
    log: &Log,
    history: &mut History,
    kind: TurnKind,
    typed: &str,
    prompt: &UserMessage,
) {
    let mut words: String = typed.chars().take(LONGEST_WORDS).collect();
    turnwright_types::redact::clean(&mut words);
    log.begin(kind, words);
    let id = MessageId::from(format!("msg-{}", history.mint()));
    let message = Arc::new(Message::User(prompt.clone()));
    log.add(Entry::Message { id, message, audience: Audience::User });
}

/// A text-only model does not see what the user has attached; the user has to know.
pub(super) fn tell_omissions(equipment: &Equipment, prompt: &UserMessage) {
    let model = equipment.thinker.get().model;
    let senses = model.senses();
    let omitted = prompt.parts.iter().find_map(|it| match it {
        Part::Image(_) if !senses.images => Some("image"),
        Part::Audio(_) if !senses.audio => Some("recording"),
        _ => None,
    });
    if let Some(what) = omitted {
        let name = model.name();
        let text = format!("{name} takes no {what}s: it is told that one was left out.");
        equipment.client().update(Update::Notice(text));
    }
}

/// The sort of turn that a command is.
fn kind(run: Run) -> TurnKind {
    match run {
        Run::Back(Back::Undo | Back::Rewind) => TurnKind::Undo,
        Run::Back(Back::Redo) => TurnKind::Redo,
        _ => TurnKind::Command,
    }
}

/// A command has been answered. That is written down before the client hears of it.
pub(super) async fn ended(log: &Log, history: History, grants: Grants, stop: Stop) -> Finished {
    log.end(stop.word(), history.minted, history.cost).written().await;
    Finished { history, grants, result: Ok(stop) }
}

fn first_text(prompt: &UserMessage) -> String {
    match prompt.parts.first() {
        Some(Part::Text(text)) => text.clone(),
        _ => String::new(),
    }
}
