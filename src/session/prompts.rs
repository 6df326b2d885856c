//! Handles prompts: starts a turn, or answers a slash command. Those that come meanwhile wait in a queue.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::actor::{RunningTurn, SessionActor};
use super::commands::custom::{self, CommandText};
use super::commands::steer::steering_words;
use super::commands::{self, CommandCall};
use super::{PromptKey, title};
use crate::completion::Completion;
use crate::error::Error;
use crate::turn::{
    Conversation, FinishedTurn, SteeringQueue, Turn, environment_lines, new_date_line,
};
use turnwright_mcp::{PromptRequest, WaitingCall};
use turnwright_recording::outside::in_session;
use turnwright_store::{Audience, Entry, SessionLog, TurnKind};
use turnwright_types::message::{History, Message, PromptEnd, PromptPart, StopReason, UserMessage};
use turnwright_types::text;

/// The most characters of a command that the turn's record keeps.
const MAX_COMMAND_CHARS: usize = 500;
/// The most prompts that may wait behind a running turn.
pub(super) const MAX_QUEUED_PROMPTS: usize = 32;

/// Tells the model about an interrupted turn.
const INTERRUPTED: &str = "The last turn was interrupted: the agent ended in the middle of it. What \
                           was under way then may be done in part.\n";

/// Tells the model about an answer that the user has cancelled.
const CANCELLED: &str = "[Your last answer is incomplete: the user cancelled it.]\n";
/// Tells the model about an answer that an error has ended.
const FAILED: &str = "[Your last answer is incomplete: it was cut off by an error.]\n";

/// The work that a prompt asks for.
pub(super) struct PromptWork {
    /// Goes on to the end of the prompt's turn.
    turn: BoxFuture<'static, FinishedTurn>,
    /// Takes words for the turn, if it is one of the model.
    steering: Option<SteeringQueue>,
}

impl PromptWork {
    /// The work of a command. It takes no further words.
    pub(super) fn of_command(
        turn: impl Future<Output = FinishedTurn> + Send + 'static,
    ) -> PromptWork {
        PromptWork { turn: Box::pin(turn), steering: None }
    }
}

impl SessionActor {
    /// Starts the next turn unless one is running.
    pub(super) fn start_next(&mut self) {
        while self.running.is_none() {
            let Some(QueuedPrompt { key, prompt, done }) = self.queue.pop_front() else { return };
            let cancel = self.lifecycle.stop.child_token();
            self.conversation.report_turn(key);
            self.conversation.suggest(Vec::new());
            self.send_notices();
            // Usage of helpers in the background since the last turn is not part of this turn.
            self.conversation.spending.add_helpers_to(&mut self.history);
            let grants = self.conversation.grants.lock().clone();
            let typed = commands::typed_text(&prompt);
            let PromptWork { turn, steering } = self.prompt_work(prompt, typed, cancel.clone());
            let id = self.conversation.env.session.clone();
            let task = self.host.tracker().spawn(in_session(id, turn));
            self.running = Some(RunningTurn { key, cancel, task, grants, steering, done });
        }
        let steering = self.running.as_ref().and_then(|turn| turn.steering.as_ref());
        if let Some(steering) = steering {
            steering.set_waiting_prompt(!self.queue.is_empty());
        }
    }

    /// The work that a prompt asks for. A built-in command keeps its name, unless it is a mere prompt in whose
    /// place the user has another one; then come those that files bring, and then the prompts of servers.
    fn prompt_work(
        &mut self,
        prompt: UserMessage,
        typed: String,
        cancel: CancellationToken,
    ) -> PromptWork {
        if let Some(skills) = self.commands.invoked(&prompt) {
            return self.custom_command(Some(skills), prompt, "", cancel);
        }
        let parsed = custom::parse(&typed);
        let known = parsed.and_then(|(name, _)| self.commands.find(name));
        if let Some((command, words)) = commands::find(&typed) {
            if let (Some((name, _)), Some(_)) = (parsed, known)
                && self.commands.in_place_of(name).is_none()
            {
                self.conversation.notify_once(format!(
                    "`/{name}` is a built-in command. To run the command or skill of that name in your \
                     files, give it another name."
                ));
            }
            let arguments = words.to_owned();
            return command.start(self, CommandCall { prompt, typed, arguments, cancel });
        }
        if known.is_none()
            && let Some(asked) = self.find_server_prompt(&typed)
        {
            return self.server_prompt(asked, prompt, typed, cancel);
        }
        match parsed {
            Some(_) => self.custom_command(known, prompt, &typed, cancel),
            None => {
                let title = if self.title.is_set { None } else { title::from_prompt(&prompt) };
                self.turn_work(prompt, title, cancel, |turn| turn)
            }
        }
    }

    /// Sends the notices that could not be sent before a prompt.
    pub(super) fn send_notices(&mut self) {
        let facts = &self.host.process.outside;
        let notices = self.announcements.take_notices(facts.sandbox_limitation());
        let log_notices = self.conversation.log().take_notices();
        let news = log_notices.into_iter().chain(facts.take_notice());
        for notice in notices.into_iter().chain(news) {
            self.conversation.notify(notice);
        }
    }

    /// Starts a turn of the model, once `prepare` has changed it.
    pub(super) fn turn_work(
        &mut self,
        mut prompt: UserMessage,
        title: Option<String>,
        cancel: CancellationToken,
        prepare: impl FnOnce(Turn) -> Turn,
    ) -> PromptWork {
        report_omissions(&self.conversation, &prompt);
        prompt.parts.extend(self.session_context().map(PromptPart::Context));
        let history = self.history.clone();
        let steering = SteeringQueue::default();
        let turn = prepare(Turn::new(self.conversation.clone(), history, prompt, cancel));
        // Boxed at once, because it has 10 KB, and what holds it is moved.
        let running = Box::pin(turn.steered_by(steering.clone()).run());
        let titled = self.title.suggest(title, self.host.store(), &self.conversation);
        // Both end before the prompt is answered.
        let work = async move { join(running, titled).await.0 };
        PromptWork { turn: Box::pin(work), steering: Some(steering) }
    }

    /// Starts a turn with the text that a command stands for. If it is not given, it is looked for in the files,
    /// and a prompt that is no command is ordinary text.
    pub(super) fn custom_command(
        &mut self,
        text: Option<CommandText>,
        mut prompt: UserMessage,
        typed: &str,
        cancel: CancellationToken,
    ) -> PromptWork {
        let (word, rest) = custom::parse(typed).unwrap_or_default();
        let name = word.to_owned();
        let args = rest.to_owned();
        // The words behind the command say more than its name.
        let words = text.as_ref().and_then(|_| title::from_text(&args));
        let title = words.or_else(|| title::from_prompt(&prompt));
        let titled = self.title.suggest(title, self.host.store(), &self.conversation);
        report_omissions(&self.conversation, &prompt);
        prompt.parts.extend(self.session_context().map(PromptPart::Context));
        let conversation = self.conversation.clone();
        let commands = self.commands.clone();
        let history = self.history.clone();
        let steering = SteeringQueue::default();
        let queue = steering.clone();
        let turn = async move {
            let loading = async {
                let text = match text {
                    Some(ours @ CommandText::BuiltIn(_)) => {
                        commands.rescan(&conversation.env).await;
                        commands.in_place_of(&name).or(Some(ours))
                    }
                    Some(text) => Some(text),
                    None => {
                        commands.rescan(&conversation.env).await;
                        commands.find(&name)
                    }
                };
                let text = text?;
                let env = Arc::clone(&conversation.env);
                spawn_blocking(move || text.load(&name, &args, &env)).await.ok()?
            };
            // Without it, the turn ends before its first request.
            if let Some(Some(context)) = cancel.run_until_cancelled(loading).await {
                prompt.parts.push(PromptPart::Context(context));
            }
            let turn = Turn::new(conversation, history, prompt, cancel).steered_by(queue);
            join(turn.run(), titled).await.0
        };
        PromptWork { turn: Box::pin(turn), steering: Some(steering) }
    }

    /// Returns the server prompt that the user has typed, if it is one.
    fn find_server_prompt(&self, typed: &str) -> Option<PromptRequest> {
        let (word, words) = commands::split(typed)?;
        self.servers.as_ref()?.find_prompt(word, words)
    }

    /// Starts a turn with the text that a server makes of its prompt, or says why there is none.
    fn server_prompt(
        &mut self,
        asked: PromptRequest,
        mut prompt: UserMessage,
        typed: String,
        cancel: CancellationToken,
    ) -> PromptWork {
        let context = self.session_context();
        // The words behind the command say more than its name.
        let words = typed.trim().split_once(char::is_whitespace).map_or("", |(_, words)| words);
        let title = title::from_text(words).or_else(|| title::from_prompt(&prompt));
        let titled = self.title.suggest(title, self.host.store(), &self.conversation);
        let conversation = self.conversation.clone();
        let mut history = self.history.clone();
        let steering = SteeringQueue::default();
        let queue = steering.clone();
        let turn = async move {
            let client = Arc::clone(conversation.client());
            let caller = WaitingCall::of_prompt(client, &cancel);
            let mut parts = match cancel.run_until_cancelled(asked.get(&caller)).await {
                Some(Ok(parts)) => parts,
                refused => {
                    conversation.told.add_unsent(context);
                    log_command(&conversation, &mut history, TurnKind::Command, &typed, &prompt);
                    let stop = match refused {
                        Some(Err(why)) => {
                            let message = history.mint_message_id();
                            // It contains words of the server.
                            conversation.say(message, text::escape_markdown(&why));
                            StopReason::EndTurn
                        }
                        _ => StopReason::Cancelled,
                    };
                    titled.await;
                    queue.close_into(&mut history, &conversation);
                    return finish_command(conversation.log(), history, stop).await;
                }
            };
            // The server's text replaces the typed command, whose words may be in several parts, and precedes the
            // attachments.
            prompt.parts.retain(
                |part| !matches!(part, PromptPart::Text(text) if typed.contains(text.as_str())),
            );
            parts.extend(prompt.parts);
            parts.extend(context.map(PromptPart::Context));
            let prompt = UserMessage { parts, submission: prompt.submission };
            report_omissions(&conversation, &prompt);
            let turn = Turn::new(conversation, history, prompt, cancel).steered_by(queue);
            join(turn.run(), titled).await.0
        };
        PromptWork { turn: Box::pin(turn), steering: Some(steering) }
    }

    /// Checks the skills that a prompt invokes. The menu must have them, and no command may be typed with them.
    pub(super) fn check_skills(&self, prompt: &UserMessage) -> Result<(), Error> {
        if prompt.skills().next().is_none() {
            return Ok(());
        }
        let menu = self.menu();
        let typed = commands::typed_text(prompt);
        let word = commands::split(&typed).map_or("", |(word, _)| word);
        let skills = menu.iter().filter(|entry| entry.skill.is_some());
        let names: Vec<_> = skills.map(|entry| entry.name.as_str()).collect();
        let why = match prompt.skills().find(|name| !names.contains(name)) {
            Some(name) => format!("There is no skill `{name}` here"),
            None if menu.iter().any(|entry| entry.name == word) => {
                format!("A skill cannot be invoked together with `/{word}`")
            }
            None => return Ok(()),
        };
        Err(Error::InvalidParams(why))
    }

    /// Gives the words of a `/steer` to the running turn and answers the prompt. Any other prompt is
    /// returned, and so are words that no turn takes, without the command: they are a turn of their own
    /// then.
    pub(super) fn steer_if_asked(
        &self,
        key: PromptKey,
        prompt: UserMessage,
        done: Completion<PromptEnd>,
    ) -> Option<(UserMessage, Completion<PromptEnd>)> {
        let words = match steering_words(prompt) {
            Ok(words) => words,
            Err(prompt) => return Some((prompt, done)),
        };
        match self.push_steering(Some(key), words) {
            Ok(()) => {
                self.report_when_saved(done, Ok(StopReason::EndTurn.into()));
                None
            }
            Err(words) => Some((words, done)),
        }
    }

    /// Gives words to the running turn. Reports whether it takes them.
    pub(super) fn steer(&self, mut words: UserMessage, done: Completion<bool>) {
        let supported = self.conversation.selection.get().model.modalities();
        let checked = self.announcements.check_media(&mut words, supported);
        let taken = checked.map(|()| self.push_steering(None, words).is_ok());
        self.report_when_saved(done, taken);
    }

    fn push_steering(&self, key: Option<PromptKey>, words: UserMessage) -> Result<(), UserMessage> {
        match self.running.as_ref().and_then(|turn| turn.steering.as_ref()) {
            Some(steering) => steering.push(self.conversation.log(), key, words),
            None => Err(words),
        }
    }

    /// Returns the context that the model needs with a prompt and the system prompt cannot contain because it
    /// changes.
    pub(super) fn session_context(&mut self) -> Option<String> {
        let is_first = self.history.messages.is_empty();
        let env = Arc::clone(&self.conversation.env);
        let roots = env.files.roots();
        let mut context = self.conversation.told.take_unsent(is_first);
        if is_first {
            context = environment_lines(roots);
            self.learn_tool_versions();
            self.conversation.told.lock().mode = None;
        } else {
            context.extend(new_date_line(&self.history));
        }
        if let Some(last) = self.history.messages.last() {
            context.extend(self.unfinished.take().and_then(|unfinished| unfinished.note(last)));
        }
        context.extend(self.conversation.mode_context());
        context.extend(self.conversation.env.command_news());
        context.extend(self.conversation.told.lock().undo_news.take());
        Some(context).filter(|context| !context.is_empty())
    }
}

/// How an unfinished turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnfinishedTurn {
    /// The process ended in the middle of it.
    Interrupted,
    Cancelled,
    Failed,
}

impl UnfinishedTurn {
    pub(super) fn from_result(result: &Result<StopReason, Error>) -> Option<UnfinishedTurn> {
        match result {
            Ok(StopReason::Cancelled) => Some(UnfinishedTurn::Cancelled),
            Ok(_) => None,
            Err(_) => Some(UnfinishedTurn::Failed),
        }
    }

    /// Reads the stop reason that is stored for a turn.
    pub(super) fn from_stored(stop: &str) -> Option<UnfinishedTurn> {
        match stop {
            "interrupted" => Some(UnfinishedTurn::Interrupted),
            "cancelled" => Some(UnfinishedTurn::Cancelled),
            "error" => Some(UnfinishedTurn::Failed),
            _ => None,
        }
    }

    /// The note for the model. `last` is the conversation's last message. After a cancel or an error only an
    /// answer without its end needs the note: anything else the turn itself has already reported.
    pub(super) fn note(self, last: &Message) -> Option<&'static str> {
        let is_cut = matches!(last, Message::Assistant(answer) if answer.interrupted);
        match self {
            UnfinishedTurn::Interrupted => Some(INTERRUPTED),
            UnfinishedTurn::Cancelled => is_cut.then_some(CANCELLED),
            UnfinishedTurn::Failed => is_cut.then_some(FAILED),
        }
    }
}

/// Logs that the user has typed a command. The model does not get it.
pub(super) fn log_command(
    conversation: &Conversation,
    history: &mut History,
    kind: TurnKind,
    typed: &str,
    prompt: &UserMessage,
) {
    let mut words = text::first_chars(typed, MAX_COMMAND_CHARS).to_owned();
    turnwright_types::redact::redact_in_place(&mut words);
    let log = conversation.log();
    log.begin_turn(kind, words);
    let id = history.mint_message_id();
    let message = Arc::new(Message::User(prompt.clone()));
    let entry =
        Entry::Message { id: id.clone(), message: Arc::clone(&message), audience: Audience::User };
    log.add_entry(entry);
    conversation.report_message(None, &id, &message);
}

/// Tells the user if the model does not accept an attachment.
pub(super) fn report_omissions(conversation: &Conversation, prompt: &UserMessage) {
    let model = conversation.selection.get().model;
    let modalities = model.modalities();
    let omitted = prompt.parts.iter().find_map(|part| match part {
        PromptPart::Image(media) if media.is_pdf() => (!modalities.files).then_some("PDF"),
        PromptPart::Image(_) if !modalities.images => Some("image"),
        PromptPart::Audio(_) if !modalities.audio => Some("recording"),
        _ => None,
    });
    if let Some(what) = omitted {
        let name = model.name();
        conversation.notify(format!("{name} does not accept {what}s; one was left out."));
    }
}

/// Ends the turn of a command. Its end is stored before the prompt is answered.
pub(super) async fn finish_command(
    log: &SessionLog,
    history: History,
    stop: StopReason,
) -> FinishedTurn {
    log.end_turn(stop.as_str(), history.minted, history.cost, None).written().await;
    FinishedTurn { history, result: Ok(stop) }
}

/// The error for a prompt that may not wait.
pub(super) fn too_many() -> Error {
    Error::InvalidState(format!("{MAX_QUEUED_PROMPTS} prompts are already waiting. Wait or cancel"))
}

pub(super) struct QueuedPrompt {
    pub(super) key: PromptKey,
    pub(super) prompt: UserMessage,
    pub(super) done: Completion<PromptEnd>,
}

/// Answers the waiting prompts that are cancelled.
pub(super) fn cancel_queued(
    queue: &mut VecDeque<QueuedPrompt>,
    is_cancelled: impl Fn(PromptKey) -> bool,
) {
    for queued in take(queue) {
        if is_cancelled(queued.key) {
            queued.done.complete(Ok(StopReason::Cancelled.into()));
        } else {
            queue.push_back(queued);
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn an_interrupted_turn_is_told_always_and_another_only_with_a_cut_answer() {
        let prompt = Message::User(UserMessage::text("hi"));
        assert_eq!(UnfinishedTurn::Interrupted.note(&prompt), Some(INTERRUPTED));
        assert_eq!(UnfinishedTurn::Cancelled.note(&prompt), None);
    }

    #[test]
    fn prompts_run_in_order_and_a_cancelled_one_is_answered_once() {
        let table: &[(&str, &[PromptKey], &[PromptKey])] = &[
            ("+1 +2 +3 n n", &[], &[1, 2]),
            ("+1 +2 -1 n n", &[1], &[2]),
            ("+1 -1 -1 -7 n", &[1], &[]),
            ("+1 +2 n c c n", &[2], &[1]),
            ("c +1 n", &[], &[1]),
        ];
        for (steps, cancelled, run) in table {
            let answers = Arc::new(Mutex::new(Vec::new()));
            let mut started = Vec::new();
            let mut queue = VecDeque::new();
            for step in steps.split(' ') {
                let (kind, key) = step.split_at(1);
                let key = key.parse().unwrap_or_default();
                match kind {
                    "+" => {
                        let answers = Arc::clone(&answers);
                        let done = Completion::new(move |result: Result<PromptEnd, Error>| {
                            assert_eq!(result.unwrap().stop, StopReason::Cancelled);
                            answers.lock().push(key);
                        });
                        queue.push_back(QueuedPrompt { key, prompt: UserMessage::text("x"), done });
                    }
                    "-" => cancel_queued(&mut queue, |queued| queued == key),
                    "n" => started.extend(queue.pop_front().map(|queued| queued.key)),
                    _ => cancel_queued(&mut queue, |_| true),
                }
            }
            assert_eq!((&**answers.lock(), &*started), (*cancelled, *run), "{steps}");
        }
    }
}
