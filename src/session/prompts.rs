//! Handles prompts: starts a turn, or answers a slash command.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::actor::{RunningTurn, SessionActor};
use super::commands::{self, CommandCall, custom};
use super::prompt_queue::QueuedPrompt;
use super::title;
use crate::recording::in_session;
use crate::turn::{
    FinishedTurn, SteeringQueue, Turn, TurnServices, environment_lines, folder_lines, new_date_line,
};
use turnwright_policy::permission::Grants;
use turnwright_store::{Audience, Durability, Entry, SessionLog, StoreError, TurnKind, sessions};
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, Message, PromptPart, StopReason, UserMessage};
use turnwright_types::text;
use turnwright_types::update::Update;

/// The most characters of a command that the turn's record keeps.
const MAX_COMMAND_CHARS: usize = 500;

/// The work that a prompt asks for, to the end of its turn.
pub(super) type PromptWork = BoxFuture<'static, FinishedTurn>;

impl SessionActor {
    /// Starts the next turn unless one is running.
    pub(super) fn start_next(&mut self) {
        while self.running.is_none() {
            let Some(QueuedPrompt { key, prompt, done }) = self.queue.next() else { return };
            let cancel = self.lifecycle.stop.child_token();
            self.services.report_turn(key);
            self.send_notices();
            // Usage of helpers in the background since the last turn is not part of this turn.
            self.services.spending.add_helpers_to(&mut self.history);
            let typed = first_text(&prompt);
            let work = self.prompt_work(prompt, typed, cancel.clone());
            let id = self.services.env.session.clone();
            let task = self.host.tracker().spawn(in_session(id, work));
            self.running = Some(RunningTurn { key, cancel, task, done });
        }
    }

    /// The work that a prompt asks for. A built-in command keeps its name, then come those that files
    /// bring, and then the prompts of servers.
    fn prompt_work(
        &mut self,
        prompt: UserMessage,
        typed: String,
        cancel: CancellationToken,
    ) -> PromptWork {
        if let Some((command, words)) = commands::find(&typed) {
            let arguments = words.to_owned();
            return command.start(self, CommandCall { prompt, typed, arguments, cancel });
        }
        let known = self.find_custom_command(&typed);
        if known.is_none()
            && let Some(asked) = self.find_server_prompt(&typed)
        {
            return self.server_prompt(asked, prompt, typed, cancel);
        }
        match custom::parse(&typed) {
            Some(_) => self.custom_command(known, prompt, &typed, cancel),
            None => self.turn_work(prompt, cancel),
        }
    }

    /// Sends the notices that could not be sent before a prompt.
    pub(super) fn send_notices(&mut self) {
        let recording = self.host.recording().clone();
        let limitation = match recording.playback() {
            Some(playback) => playback.sandbox_limitation(),
            None => turnwright_sandbox::known_limitation(),
        };
        let notices = self.announcements.take_notices(limitation);
        let log_notices = self.services.log().take_notices();
        let news = log_notices.into_iter().chain(recording.recorder().take_notice());
        for notice in notices.into_iter().chain(news) {
            self.services.client().update(Update::Notice(notice));
        }
    }

    fn turn_work(&mut self, mut prompt: UserMessage, cancel: CancellationToken) -> PromptWork {
        let title = if self.has_title { None } else { title::from_prompt(&prompt) };
        report_omissions(&self.services, &prompt);
        self.add_session_context(&mut prompt);
        let history = self.history.clone();
        let grants = self.grants.clone();
        let steering = self.steering.insert(SteeringQueue::default()).clone();
        let turn = Turn::new(self.services.clone(), history, grants, prompt, cancel);
        // Boxed at once, because it has 10 KB, and what holds it is moved.
        let running = Box::pin(turn.steered_by(steering).run());
        let titled = self.suggest_title(title);
        // Both end before the prompt is answered.
        Box::pin(async move { futures_util::future::join(running, titled).await.0 })
    }

    /// Gives the session a title unless it has one, and tells the client once the title is stored.
    pub(super) fn suggest_title(
        &mut self,
        title: Option<String>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let title = title.filter(|_| !self.has_title);
        self.has_title |= title.is_some();
        let id = self.services.env.session.clone();
        let words = title.clone();
        let stored = title.is_some().then(|| {
            self.host.store().submit(Durability::ProcessCrash, move |connection| {
                let words = words.as_deref().unwrap_or_default();
                sessions::suggest_title(connection, &id, words)
            })
        });
        let client = Arc::clone(self.services.client());
        let has_chosen = Arc::clone(&self.has_chosen_title);
        async move {
            let Some(stored) = stored else { return };
            // The title is shown even if the store is unusable.
            let is_stored = stored.await.unwrap_or(Err(StoreError::Closed)) != Ok(false);
            if is_stored && !has_chosen.load(Ordering::Relaxed) {
                client.update(Update::SessionInfo { title, updated: SystemTime::now() });
            }
        }
    }

    /// Adds the context that the model needs and the system prompt cannot contain because it
    /// changes.
    pub(super) fn add_session_context(&mut self, prompt: &mut UserMessage) {
        let is_first = self.history.messages.is_empty();
        let env = Arc::clone(&self.services.env);
        let roots = env.files.roots();
        let mut context = self.context.take_opening(is_first, &folder_lines(roots));
        if is_first {
            context = environment_lines(roots);
            self.services.told.forget_mode();
        } else {
            context.extend(new_date_line(&self.history));
        }
        let last = self.history.messages.last().map(AsRef::as_ref);
        context.extend(self.context.take_unfinished(last));
        context.extend(self.services.mode_context());
        context.extend(self.services.env.command_news());
        context.extend(self.context.undo_news.take());
        if !context.is_empty() {
            prompt.parts.push(PromptPart::Context(context));
        }
    }
}

/// Logs that the user has typed a command. The model does not get it.
pub(super) fn log_command(
    services: &TurnServices,
    history: &mut History,
    kind: TurnKind,
    typed: &str,
    prompt: &UserMessage,
) {
    let mut words = text::first_chars(typed, MAX_COMMAND_CHARS).to_owned();
    turnwright_types::redact::redact_in_place(&mut words);
    let log = services.log();
    log.begin_turn(kind, words);
    let id = MessageId::from(format!("msg-{}", history.mint()));
    let message = Arc::new(Message::User(prompt.clone()));
    services.report_message(None, &id, &message);
    log.add_entry(Entry::Message { id, message, audience: Audience::User });
}

/// Tells the user if the model does not accept an attachment.
pub(super) fn report_omissions(services: &TurnServices, prompt: &UserMessage) {
    let model = services.selection.get().model;
    let modalities = model.modalities();
    let omitted = prompt.parts.iter().find_map(|part| match part {
        PromptPart::Image(_) if !modalities.images => Some("image"),
        PromptPart::Audio(_) if !modalities.audio => Some("recording"),
        _ => None,
    });
    if let Some(what) = omitted {
        let name = model.name();
        let text = format!("{name} does not accept {what}s; one was left out.");
        services.client().update(Update::Notice(text));
    }
}

/// Ends the turn of a command. Its end is stored before the prompt is answered.
pub(super) async fn finish_command(
    log: &SessionLog,
    history: History,
    grants: Grants,
    stop: StopReason,
) -> FinishedTurn {
    log.end_turn(stop.as_str(), history.minted, history.cost).written().await;
    FinishedTurn { history, grants, result: Ok(stop) }
}

fn first_text(prompt: &UserMessage) -> String {
    let texts = prompt.parts.iter().filter_map(|part| match part {
        PromptPart::Text(text) if !text.trim().is_empty() => Some(text.clone()),
        _ => None,
    });
    texts.take(1).collect()
}
