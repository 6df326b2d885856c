//! Opens a session: loads what it needs off the runtime's thread, starts or restores it, and then runs it.
//! Meanwhile cancels, the end of the opening request and the end of the process are handled at once.
//!
//! An [`OpenRequest`] is everything that comes from the client, a [`load::LoadedSession`] everything that is
//! read from the disk for it. Their parts are moved as they are.

pub(super) mod client_options;
pub(super) mod lifecycle;
mod load;
mod recovery;
pub(super) mod restore;
mod start;

use std::mem::take;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::actor::SessionActor;
use super::announcements::Announcements;
use super::prompts::{MAX_QUEUED_PROMPTS, too_many};
use super::servers::ServerLaunch;
use super::{
    MAILBOX_CAPACITY, PromptKey, SessionHost, SessionMessage, TOO_MANY_REQUESTS, settings,
};
use crate::completion::Completion;
use crate::error::Error;
use crate::tools::ToolEnv;
use turnwright_guard::ServerWatch;
use turnwright_llm::Modalities;
use turnwright_mcp::{ServerEnv, ServerSpec};
use turnwright_types::client::{Client, ClientTerminals, EditorBuffers};
use turnwright_types::ids::SessionId;
use turnwright_types::message::StopReason;
use turnwright_types::update::{ConfigOption, ConfigOptionId, SlashCommand};
use turnwright_workspace::real_path;

use client_options::ClientOptions;
use lifecycle::{CancelFlag, Lifecycle};
use restore::read_row;

/// A request to open a session.
pub(crate) struct OpenRequest {
    pub wanted: WantedSession,
    pub client: ClientSide,
    /// The kinds of prompt content that were advertised to the client, once that is known. The session
    /// is loaded then.
    pub advertised_modalities: BoxFuture<'static, Modalities>,
    /// Cancelled when the previous task of the same session has ended; the session starts only
    /// then.
    pub start_after: CancellationToken,
    /// Cancels the opening. It has no effect once the session is open.
    pub cancel: CancellationToken,
    /// Reported when the session can be prompted, after all updates about its past.
    pub opened: Completion<Vec<ConfigOption>>,
}

/// The session that a client wants opened.
#[derive(Debug)]
pub(crate) struct WantedSession {
    pub id: SessionId,
    /// The working folder, as the client names it.
    pub cwd: PathBuf,
    /// The additional folders of the workspace, as the client names them.
    pub folders: Vec<PathBuf>,
    /// The MCP servers that the client requests.
    pub servers: Vec<ServerSpec>,
    /// The client's wishes besides the protocol, if any.
    pub options: Option<ClientOptions>,
    /// The values that the client wants options to have, in their order.
    pub settings: Vec<(ConfigOptionId, String)>,
    /// The origin of the session: new, stored or a copy.
    pub origin: SessionOrigin,
}

/// Where a session's conversation comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionOrigin {
    /// A new, empty conversation.
    New,
    /// The stored conversation of this session.
    Stored {
        /// True if the whole conversation is replayed to the client.
        replay: bool,
    },
    /// A copy of another session as it is now, or as it was before a cursor.
    Fork {
        /// The session to copy.
        source: SessionId,
        /// The cursor at which the copy ends.
        cursor: Option<String>,
    },
}

/// How a session reaches its client.
pub(crate) struct ClientSide {
    /// The client that gets the updates.
    pub client: Arc<dyn Client>,
    /// Access to the client's open buffers, if it provides any.
    pub buffers: Option<Arc<dyn EditorBuffers>>,
    /// The terminals in which the client runs commands, if it has any.
    pub terminals: Option<Arc<dyn ClientTerminals>>,
}

/// A session that is opening.
pub(super) struct Opening {
    inbox: mpsc::Receiver<SessionMessage>,
    early: EarlyMessages,
    cancelling: CancelFlag,
    /// Stops the session.
    stop: CancellationToken,
    /// Cancels the opening.
    cancel: CancellationToken,
    /// Cancelled when the previous task of the same session has ended.
    start_after: CancellationToken,
}

/// Opens the session and runs it to its end.
pub(super) async fn open_and_run(
    host: Arc<SessionHost>,
    request: OpenRequest,
    inbox: mpsc::Receiver<SessionMessage>,
    cancelling: CancelFlag,
) {
    let OpenRequest { mut wanted, client, advertised_modalities, start_after, cancel, opened } =
        request;
    let mut opening =
        Opening::new(inbox, cancelling.clone(), host.stop_token(), start_after, cancel);
    let id = wanted.id.clone();
    let origin = wanted.origin.clone();
    let options = wanted.options.take();
    let initial = take(&mut wanted.settings);
    let reader = Arc::clone(&host);
    let loading = async {
        let advertised = advertised_modalities.await;
        let loaded = spawn_blocking(move || reader.load_session(wanted, true)).await;
        Ok((advertised, loaded.map_err(|_| Error::Internal { place: "opening a session" })??))
    };
    let (advertised, mut loaded) = match opening.wait_while(loading, || ()).await {
        Ok(loaded) => loaded,
        Err(error) => return opening.fail(error, opened).await,
    };
    let notices = take(&mut loaded.notices);
    let servers = take(&mut loaded.servers);
    let lock = loaded.lock.take();
    let conversation = host.conversation(id, loaded, client);
    let announcements =
        Announcements::new(notices, advertised, settings::all(&host, &conversation));
    let lifecycle = Lifecycle::new(opening.stop.clone(), cancelling, lock);
    let mut actor = SessionActor::new(host, conversation, announcements, lifecycle);
    actor.initial = initial;
    // A large future: it is moved into its task as a pointer.
    Box::pin(opening.start_and_run(actor, origin, options, servers, opened)).await;
}

/// The options of a session, and its slash commands except those of MCP servers.
pub(crate) type SessionOptions = (Vec<ConfigOption>, Vec<SlashCommand>);

/// Reports the options with which a session would be opened. Nothing is opened, stored or sent to the client
/// (R-OPT-1).
pub(crate) fn preview(
    host: &Arc<SessionHost>,
    wanted: WantedSession,
    client: ClientSide,
    cancel: CancellationToken,
    done: Completion<SessionOptions>,
) {
    let looking = look_at_options(Arc::clone(host), wanted, client);
    let stop = host.stop_token();
    host.spawn(async move {
        let found = stop.run_until_cancelled(cancel.run_until_cancelled(looking)).await;
        done.complete(found.flatten().unwrap_or(Err(Error::Cancelled)));
    });
}

async fn look_at_options(
    host: Arc<SessionHost>,
    wanted: WantedSession,
    client: ClientSide,
) -> Result<SessionOptions, Error> {
    let id = wanted.id.clone();
    let is_stored = matches!(wanted.origin, SessionOrigin::Stored { .. });
    let reader = Arc::clone(&host);
    let loading = spawn_blocking(move || reader.load_session(wanted, false));
    let place = "the options of a session";
    let loaded = loading.await.map_err(|_| Error::Internal { place })??;
    let conversation = host.conversation(id.clone(), loaded, client);
    let announcements = Announcements::new(Vec::new(), Modalities::default(), Vec::new());
    let lifecycle = Lifecycle::new(host.stop_token(), CancelFlag::default(), None);
    let mut actor = SessionActor::new(Arc::clone(&host), conversation, announcements, lifecycle);
    if is_stored {
        let (row, _) = read_row(host.store(), &id).await?;
        actor.restore_settings(&row).await;
    }
    actor.commands.rescan(&actor.conversation.env).await;
    Ok((settings::all(&host, &actor.conversation), actor.menu()))
}

/// Looks for commands, and prepares the environment of MCP servers and the watch over their writes.
fn prepare_servers(
    actor: &SessionActor,
    servers: &ServerLaunch,
    is_stored: bool,
) -> impl Future<Output = Result<(ServerEnv, Option<ServerWatch>), Error>> + use<> {
    let host = Arc::clone(&actor.host);
    let conversation = actor.conversation.clone();
    let has_servers = !servers.specs.is_empty();
    let has_programs = turnwright_sandbox::can_confine()
        && servers.specs.iter().any(ServerSpec::is_confined_program);
    let opened: Vec<_> = servers.specs.iter().flat_map(|spec| spec.sandbox.write.clone()).collect();
    let commands = actor.commands.clone();
    async move {
        // A stored session has announced its commands already.
        if !is_stored {
            commands.rescan(&conversation.env).await;
        }
        // The servers must not read the database, which is only hidden once it exists.
        if has_servers {
            conversation.log().flush().written().await;
        }
        let preparing = spawn_blocking(move || {
            let watch = has_programs.then(|| {
                let env = &conversation.env;
                ServerWatch::begin(env.command_site().clone(), env.jobs.running())
            });
            let ToolEnv { shared, files, client, .. } = conversation.env.as_ref();
            let rules = shared.rules.get();
            let env = host.server_env(&shared.confinement, files.roots(), &rules, has_servers);
            let written = env.profile.iter().flat_map(|profile| profile.writable.clone());
            let also_written = opened.iter().filter_map(|path| real_path(path).ok());
            shared.process.opened_places.add(written.chain(also_written));
            (ServerEnv { elicitation: client.elicitation_modes(), ..env }, watch)
        });
        preparing.await.map_err(|_| Error::Internal { place: "starting MCP servers" })
    }
}

impl Opening {
    pub(super) fn new(
        inbox: mpsc::Receiver<SessionMessage>,
        cancelling: CancelFlag,
        stop: CancellationToken,
        start_after: CancellationToken,
        cancel: CancellationToken,
    ) -> Opening {
        let early = EarlyMessages::default();
        Opening { inbox, early, cancelling, stop, cancel, start_after }
    }

    /// Starts or restores the session, answers the opening request, and runs the session to its end.
    pub(super) async fn start_and_run(
        mut self,
        mut actor: SessionActor,
        origin: SessionOrigin,
        options: Option<ClientOptions>,
        servers: ServerLaunch,
        opened: Completion<Vec<ConfigOption>>,
    ) {
        let is_copy = matches!(origin, SessionOrigin::Fork { .. });
        let is_stored = matches!(origin, SessionOrigin::Stored { .. });
        let start_after = self.start_after.clone();
        let starting = async {
            start_after.cancelled().await;
            actor.start(origin, options).await
        };
        if let Err(error) = self.wait_while(starting, || ()).await {
            // From now on the session is not found.
            self.inbox.close();
            if is_copy {
                actor.delete_copy().await;
            }
            opened.complete(Err(error));
            // Whoever waits for this session's end also waits for the end of the previous task.
            start_after.cancelled().await;
            return actor.close(self.inbox, self.early).await;
        }
        opened.complete(Ok(actor.announcements.settings.clone()));
        actor.gather_surroundings();
        actor.host.store_client();
        // The servers start after the answer, so that none delays it.
        actor.announcements.delay_commands();
        let preparing = prepare_servers(&actor, &servers, is_stored);
        // A prompt that is cancelled here gets its answer after the commands, like every other prompt.
        let prepared = self.wait_while(preparing, || actor.announce_commands()).await;
        match prepared {
            Ok((env, watch)) => {
                let offers = actor.start_servers(servers, &env, watch);
                if self.early.has_cancelled_prompt {
                    // Only the first turn waits for the servers, and that one was cancelled.
                    actor.conversation.tools.remote_tools().take_wait_limit();
                }
                actor.run(self.inbox, offers, self.early).await;
            }
            Err(_) => actor.close(self.inbox, self.early).await,
        }
    }

    /// Waits for a part of the opening. Receives messages meanwhile, and calls `before_cancel` before a
    /// prompt may be cancelled.
    async fn wait_while<T>(
        &mut self,
        work: impl Future<Output = Result<T, Error>>,
        mut before_cancel: impl FnMut(),
    ) -> Result<T, Error> {
        let mut work = std::pin::pin!(work);
        loop {
            let message = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Error::Cancelled),
                () = self.cancel.cancelled() => return Err(Error::Cancelled),
                result = &mut work => return result,
                message = self.inbox.recv() => message.ok_or(Error::Cancelled)?,
            };
            if matches!(message, SessionMessage::Cancel) {
                self.cancelling.clear();
            }
            let is_cancel =
                matches!(message, SessionMessage::Cancel | SessionMessage::CancelPrompt(_));
            if is_cancel && self.early.prompt_count() > 0 {
                before_cancel();
            }
            self.early.receive(message);
        }
    }

    /// Answers everything, because the session cannot be loaded.
    async fn fail(self, error: Error, opened: Completion<Vec<ConfigOption>>) {
        let Opening { mut inbox, early, start_after, .. } = self;
        inbox.close();
        opened.complete(Err(error));
        let closings = early.end(&mut inbox);
        // Whoever waits for this session's end also waits for the end of the previous task.
        start_after.cancelled().await;
        for done in closings {
            done.complete(Ok(()));
        }
    }
}

/// The messages that arrive while a session is still opening, in the order of their arrival. Most wait until it is
/// open; cancels act at once, because opening may take for ever, for example on a folder that never answers.
#[derive(Default)]
pub(in crate::session) struct EarlyMessages {
    messages: Vec<SessionMessage>,
    /// A prompt was cancelled before it could become a turn.
    has_cancelled_prompt: bool,
}

impl EarlyMessages {
    fn receive(&mut self, message: SessionMessage) {
        match message {
            SessionMessage::Cancel => self.cancel_prompts(|_| true),
            SessionMessage::CancelPrompt(key) => self.cancel_prompts(|queued| queued == key),
            // One more than the queue may hold, because the first will run.
            SessionMessage::Prompt { done, .. } if self.prompt_count() > MAX_QUEUED_PROMPTS => {
                done.complete(Err(too_many()));
            }
            SessionMessage::Close { .. } => self.messages.push(message),
            message if self.messages.len() < MAILBOX_CAPACITY => self.messages.push(message),
            message => refuse(message, Error::InvalidState(TOO_MANY_REQUESTS.to_owned())),
        }
    }

    /// Returns the messages for the session, which is open now.
    pub(in crate::session) fn take(&mut self) -> Vec<SessionMessage> {
        take(&mut self.messages)
    }

    /// Closes the mailbox and answers everything, because the session does not open or is closing. Returns
    /// the requests that wait for it to be closed.
    pub(in crate::session) fn end(
        mut self,
        inbox: &mut mpsc::Receiver<SessionMessage>,
    ) -> Vec<Completion<()>> {
        inbox.close();
        self.messages.extend(std::iter::from_fn(|| inbox.try_recv().ok()));
        let mut closings = Vec::new();
        for message in self.messages {
            match message {
                SessionMessage::Prompt { done, .. } => {
                    done.complete(Ok(StopReason::Cancelled.into()));
                }
                SessionMessage::Steer { done, .. } => done.complete(Ok(false)),
                SessionMessage::TakeOver(takeover) => {
                    let ended = "The session has just ended. Open it again".to_owned();
                    takeover.done.complete(Err(Error::InvalidState(ended)));
                }
                SessionMessage::Close { done } => closings.push(done),
                message => refuse(message, Error::Cancelled),
            }
        }
        closings
    }

    fn prompt_count(&self) -> usize {
        self.messages
            .iter()
            .filter(|message| matches!(message, SessionMessage::Prompt { .. }))
            .count()
    }

    fn cancel_prompts(&mut self, is_cancelled: impl Fn(PromptKey) -> bool) {
        for message in take(&mut self.messages) {
            match message {
                SessionMessage::Prompt { key, done, .. } if is_cancelled(key) => {
                    self.has_cancelled_prompt = true;
                    done.complete(Ok(StopReason::Cancelled.into()));
                }
                other => self.messages.push(other),
            }
        }
    }
}

/// Answers a message with this error, if somebody waits for its answer.
fn refuse(message: SessionMessage, why: Error) {
    match message {
        SessionMessage::CancelPart { done, .. } => done.complete(Err(why)),
        SessionMessage::Set { done, .. } => done.complete(Err(why)),
        SessionMessage::Prompt { done, .. } => done.complete(Err(why)),
        SessionMessage::Steer { done, .. } => done.complete(Err(why)),
        SessionMessage::TakeOver(takeover) => takeover.done.complete(Err(why)),
        SessionMessage::Close { .. }
        | SessionMessage::Cancel
        | SessionMessage::CancelPrompt(_)
        | SessionMessage::Detach { .. }
        | SessionMessage::TitleChosen(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use turnwright_types::message::{PromptEnd, UserMessage};

    type Answers = Arc<Mutex<Vec<String>>>;

    fn prompt(key: PromptKey, answers: &Answers) -> SessionMessage {
        let answers = Arc::clone(answers);
        let done = Completion::new(move |result: Result<PromptEnd, Error>| {
            let result =
                result.map_or_else(|error| error.to_string(), |end| format!("{:?}", end.stop));
            answers.lock().push(format!("{key}: {result}"));
        });
        SessionMessage::Prompt { key, prompt: UserMessage::text("x"), done }
    }

    #[test]
    fn a_cancel_answers_the_prompts_before_it_and_no_other_message() {
        let table: &[(&str, &[&str], usize)] = &[
            ("1 2", &[], 2),
            ("1 C 2", &["1: Cancelled"], 1),
            ("C 1", &[], 1),
            ("1 2 -2 -3", &["2: Cancelled"], 1),
            ("1 M C 2", &["1: Cancelled"], 2),
        ];
        for (input, expected, left) in table {
            let answers = Answers::default();
            let mut early = EarlyMessages::default();
            for word in input.split(' ') {
                early.receive(match (word, word.parse::<i64>()) {
                    ("C", _) => SessionMessage::Cancel,
                    (_, Ok(number)) if number < 0 => {
                        SessionMessage::CancelPrompt(number.unsigned_abs())
                    }
                    (_, Ok(number)) => prompt(number.unsigned_abs(), &answers),
                    _ => SessionMessage::TitleChosen(String::new()),
                });
            }
            assert_eq!(*answers.lock(), *expected, "{input}");
            assert_eq!(early.has_cancelled_prompt, !expected.is_empty(), "{input}");
            assert_eq!(early.take().len(), *left, "{input}");
        }
    }

    #[test]
    fn there_is_a_limit_and_the_end_answers_each() {
        let answers = Answers::default();
        let mut early = EarlyMessages::default();
        for key in 0..40 {
            early.receive(prompt(key, &answers));
        }
        assert_eq!(answers.lock().len(), 40 - MAX_QUEUED_PROMPTS - 1);
        for _ in 0..2 * MAILBOX_CAPACITY {
            early.receive(SessionMessage::TitleChosen("t".to_owned()));
        }
        early.receive(SessionMessage::Close { done: Completion::new(drop) });
        assert_eq!(early.messages.len(), MAILBOX_CAPACITY + 1);
        let (mailbox, mut inbox) = mpsc::channel(2);
        mailbox.try_send(prompt(40, &answers)).unwrap();
        assert_eq!(early.end(&mut inbox).len(), 1);
        assert!(mailbox.is_closed());
        assert_eq!(answers.lock().len(), 41);
    }
}
