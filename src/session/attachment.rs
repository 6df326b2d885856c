//! A session whose client has lost its connection: it goes on with its turn for a while, and another client
//! may take it over.

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use super::PromptKey;
use super::actor::SessionActor;
use super::open::restore::replay_session;
use super::settings::{ChosenModel, initial_model};
use crate::completion::Completion;
use crate::error::Error;
use turnwright_mcp::ServerSpec;
use turnwright_store::StoreError;
use turnwright_types::client::Client;
use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::message::PromptEnd;
use turnwright_types::update::{ConfigOption, ConfigOptionId, Update};

/// How long a session goes on after its conversation could not be replayed.
const RETRY_TIME: Duration = Duration::from_secs(60);

/// A client that takes over a session whose own client is gone.
pub(crate) struct Takeover {
    /// The new client.
    pub(crate) client: Arc<dyn Client>,
    /// True if the client gets the stored conversation.
    pub(crate) replay: bool,
    /// Called once that is done. From then on the client gets the session's updates, beginning with those
    /// that were not replayed.
    pub(crate) attach: Box<dyn FnOnce(&Replayed) + Send>,
    /// Makes the completion of a prompt whose own client is gone. It is told whether the prompt's turn has
    /// begun.
    pub(crate) follow: Box<dyn FnMut(PromptKey, bool) -> Completion<PromptEnd> + Send>,
    /// The MCP servers that the client names. Servers within it replace those of the last client.
    pub(crate) servers: Vec<ServerSpec>,
    /// The values that the client wants options to have.
    pub(crate) settings: Vec<(ConfigOptionId, String)>,
    /// Reported when the client has everything.
    pub(crate) done: Completion<Vec<ConfigOption>>,
}

/// The parts of the conversation that a client has received with a replay.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) messages: HashSet<MessageId>,
    pub(crate) calls: HashSet<CallId>,
    /// The prompt whose turn is running.
    pub(crate) running: Option<PromptKey>,
}

impl Replayed {
    /// Notes an update that was sent.
    pub(super) fn note(&mut self, update: &Update) {
        match update {
            Update::UserChunk { message, .. }
            | Update::AgentText { message, .. }
            | Update::AgentThought { message, .. }
            | Update::Compaction { id: message, .. } => {
                self.messages.insert(message.clone());
            }
            Update::ToolCall { id, .. } => {
                self.calls.insert(id.clone());
            }
            _ => {}
        }
    }
}

/// A step of a takeover that has ended.
pub(super) enum TakeoverStep {
    /// The initial model that the client wants was looked for.
    ModelFound(Option<ChosenModel>),
    /// The client has the stored conversation, or it could not be read.
    Replayed(Result<Replayed, StoreError>),
}

/// The connection of a session to its client.
#[derive(Default)]
pub(super) enum Attachment {
    #[default]
    Attached,
    /// The client is gone. The session ends when nothing runs any more, or at this moment.
    Detached { until: Instant },
    /// A client is taking over the session.
    TakenOver { takeover: Takeover, step: BoxFuture<'static, TakeoverStep> },
}

impl Attachment {
    /// Waits until something has to be done: the time of a detached session is over (`None`), or a step of a
    /// takeover has ended.
    pub(super) async fn changed(&mut self) -> Option<TakeoverStep> {
        match self {
            Attachment::Attached => pending().await,
            Attachment::Detached { until } => {
                sleep_until(*until).await;
                None
            }
            Attachment::TakenOver { step, .. } => Some(step.await),
        }
    }
}

impl SessionActor {
    /// The client is gone. Running work continues for `keep`.
    pub(super) fn detach(&mut self, keep: Duration) {
        self.attachment = Attachment::Detached { until: Instant::now() + keep };
    }

    /// Returns true if nobody waits for anything that the session does.
    pub(super) fn is_abandoned(&self) -> bool {
        let is_detached = matches!(self.attachment, Attachment::Detached { .. });
        is_detached && self.running.is_none() && self.queue.is_empty()
    }

    /// Begins a takeover by looking for the model that the session's new client wants.
    pub(super) fn take_over(&mut self, mut takeover: Takeover) {
        self.initial = std::mem::take(&mut takeover.settings);
        let initial = self.initial.clone();
        let host = Arc::clone(&self.host);
        let step = async move { TakeoverStep::ModelFound(initial_model(&host, &initial).await) };
        self.attachment = Attachment::TakenOver { takeover, step: Box::pin(step) };
    }

    /// Takes the next step of a takeover: the options get the values that the client wants before it is sent the
    /// stored conversation (R-OPT-2).
    pub(super) async fn continue_takeover(&mut self, ended: TakeoverStep) {
        let Attachment::TakenOver { takeover, .. } = std::mem::take(&mut self.attachment) else {
            return;
        };
        match ended {
            TakeoverStep::ModelFound(model) => {
                self.apply_initial(model).await;
                let host = Arc::clone(&self.host);
                let id = self.conversation.env.session.clone();
                let client = takeover.replay.then(|| Arc::clone(&takeover.client));
                let step = async move {
                    let Some(client) = client else {
                        return TakeoverStep::Replayed(Ok(Replayed::default()));
                    };
                    let replayed = replay_session(host.store(), &id, client.as_ref()).await;
                    if replayed.is_ok() {
                        client.update(Update::ReplayComplete);
                    }
                    TakeoverStep::Replayed(replayed)
                };
                self.attachment = Attachment::TakenOver { takeover, step: Box::pin(step) };
            }
            TakeoverStep::Replayed(replayed) => self.finish_takeover(takeover, replayed),
        }
    }

    /// The new client has the stored conversation, and gets everything else from now on.
    fn finish_takeover(&mut self, takeover: Takeover, result: Result<Replayed, StoreError>) {
        let Takeover { client, attach, mut follow, servers, done, .. } = takeover;
        let mut replayed = match result {
            Ok(replayed) => replayed,
            Err(error) => {
                // As if it had been lost again: another attempt may succeed.
                self.detach(RETRY_TIME);
                return done.complete(Err(Error::Store(error)));
            }
        };
        if let Some(turn) = &mut self.running {
            replayed.running = Some(turn.key);
            turn.done = self.conversation.submissions.watch(turn.key, follow(turn.key, true));
        }
        for queued in &mut self.queue {
            queued.done =
                self.conversation.submissions.watch(queued.key, follow(queued.key, false));
        }
        self.conversation.env.helpers.show_in(client.as_ref());
        attach(&replayed);
        self.conversation.told.lock().suggestions.clear();
        let commands = self.menu();
        self.conversation.client().update(Update::Commands(commands));
        self.refresh_settings();
        done.complete(Ok(self.announcements.settings.clone()));
        // No server is asked before the session is answered.
        if let Some(own) = &self.servers {
            own.use_links_of(&servers);
        }
    }
}
