//! Sessions. Each is one task that owns its history, queue and settings and runs its turns one
//! after the other. Everything else holds a handle and sends messages.

mod actor;
mod announcements;
mod attachment;
mod commands;
mod host;
mod language_servers;
mod model_cache;
mod open;
mod prompts;
mod servers;
mod settings;
pub(crate) mod stored_sessions;
mod surroundings;
mod title;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::completion::Completion;
use crate::error::Error;
use open::lifecycle::CancelFlag;
use turnwright_types::ids::{CallId, SessionId};
use turnwright_types::message::{PromptEnd, UserMessage};
use turnwright_types::update::{ConfigOption, ConfigOptionId};

pub(crate) use attachment::{Replayed, Takeover};
pub(crate) use host::{SessionHost, last_client, user_folders};
pub(crate) use open::client_options::{ClientOptions, SystemPrompt};
pub(crate) use open::{
    ClientSide, OpenRequest, SessionOptions, SessionOrigin, WantedSession, preview,
};
pub(crate) use servers::ServerCheck;
pub(crate) use stored_sessions::history;
pub(crate) use turnwright_llm::Modalities;
pub(crate) use turnwright_mcp::{
    LinkError, LinkEvent, LinkedServer, ServerLink, ServerSource, ServerSpec, ServerTransport,
};
pub(crate) use turnwright_store::SessionRow;
pub(crate) use turnwright_store::history::{HistoryPage, MessageRecord};
pub(crate) use turnwright_types::update::PromptKey;

/// The most messages that may wait for a busy session.
const MAILBOX_CAPACITY: usize = 256;
/// The part of the mailbox that is reserved for cancels.
const RESERVED_FOR_CANCELS: usize = 32;
const TOO_MANY_REQUESTS: &str = "Too many requests are waiting for this session. Wait or cancel";

enum SessionMessage {
    Prompt {
        key: PromptKey,
        prompt: UserMessage,
        done: Completion<PromptEnd>,
    },
    /// Words for the running turn. Reports whether it takes them.
    Steer {
        words: UserMessage,
        done: Completion<bool>,
    },
    Cancel,
    CancelPrompt(PromptKey),
    /// Fails if nothing of that kind and identifier runs.
    CancelPart {
        part: TurnPart,
        done: Completion<()>,
    },
    Set {
        setting: ConfigOptionId,
        value: String,
        done: Completion<Vec<ConfigOption>>,
    },
    /// The user has chosen this title.
    TitleChosen(String),
    /// The connection of the client is lost.
    Detach {
        keep: Duration,
    },
    TakeOver(Box<Takeover>),
    Close {
        done: Completion<()>,
    },
}

/// A part of a turn that can be cancelled while the turn goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TurnPart {
    /// A tool call.
    Call(CallId),
    /// The command in the terminal that this call has opened.
    Terminal(CallId),
    /// The helper whose conversation this session keeps.
    Helper(SessionId),
}

/// The handle of a session. Dropping the last one closes the session.
#[derive(Debug)]
pub(crate) struct SessionHandle {
    mailbox: mpsc::Sender<SessionMessage>,
    cancelling: CancelFlag,
    /// Cancels the opening.
    opening: CancellationToken,
}

/// Opens a session. Its task runs on the host's tracker until the handle is dropped or the host is
/// stopped. `opened` of the request is told when the session is open, or why it cannot be opened: the
/// working folder is unusable, no model is configured.
pub(crate) fn open(host: &Arc<SessionHost>, request: OpenRequest) -> SessionHandle {
    let (mailbox, inbox) = mpsc::channel(MAILBOX_CAPACITY);
    let cancelling = CancelFlag::default();
    let opening = request.cancel.clone();
    let task = open::open_and_run(Arc::clone(host), request, inbox, cancelling.clone());
    host.spawn(task);
    SessionHandle { mailbox, cancelling, opening }
}

/// A session that this does not keep open.
#[derive(Debug)]
pub(crate) struct SessionProbe(mpsc::WeakSender<SessionMessage>);

impl SessionProbe {
    pub(crate) fn is_open(&self) -> bool {
        self.0.upgrade().is_some_and(|mailbox| !mailbox.is_closed())
    }

    /// Tells the session's client about a title that the user has chosen, once it is stored.
    pub(crate) fn report_title(&self, title: String) {
        if let Some(mailbox) = self.0.upgrade() {
            // If the session is busy or gone, the client does not need its title now.
            mailbox.try_send(SessionMessage::TitleChosen(title)).ok();
        }
    }
}

impl SessionHandle {
    /// Starts a turn, or queues the prompt behind the running one.
    pub(crate) fn prompt(&self, key: PromptKey, prompt: UserMessage, done: Completion<PromptEnd>) {
        if self.mailbox.capacity() <= RESERVED_FOR_CANCELS {
            return done.complete(Err(Error::InvalidState(TOO_MANY_REQUESTS.to_owned())));
        }
        self.send(SessionMessage::Prompt { key, prompt, done });
    }

    /// Gives words to the running turn, which the model reads with its next request. Reports whether
    /// there is a turn that takes them.
    pub(crate) fn steer(&self, words: UserMessage, done: Completion<bool>) {
        self.send(SessionMessage::Steer { words, done });
    }

    /// Cancels the running turn and all queued prompts. A cancel with nothing to cancel is not
    /// remembered, because it would abort a prompt that the user has not sent yet.
    pub(crate) fn cancel(&self) {
        if self.cancelling.raise() && self.mailbox.try_send(SessionMessage::Cancel).is_err() {
            self.cancelling.clear();
            tracing::error!("a session does not read its mailbox");
        }
    }

    /// Cancels one prompt, running or queued.
    pub(crate) fn cancel_prompt(&self, key: PromptKey) {
        self.send(SessionMessage::CancelPrompt(key));
    }

    /// Cancels a part of the running turn. A command or a helper may also go on after its turn.
    pub(crate) fn cancel_part(&self, part: TurnPart, done: Completion<()>) {
        self.send(SessionMessage::CancelPart { part, done });
    }

    /// Changes a setting: the mode from the next effect on, the others from the next request to the model on.
    pub(crate) fn set(
        &self,
        setting: ConfigOptionId,
        value: String,
        done: Completion<Vec<ConfigOption>>,
    ) {
        self.send(SessionMessage::Set { setting, value, done });
    }

    pub(crate) fn probe(&self) -> SessionProbe {
        SessionProbe(self.mailbox.downgrade())
    }

    /// Closes the session: the running turn is cancelled and its commands are stopped. Reported
    /// when all of that is done.
    pub(crate) fn close(self, done: Completion<()>) {
        // If the mailbox is full, dropping the handle has the same effect.
        self.mailbox.try_send(SessionMessage::Close { done }).ok();
        self.opening.cancel();
    }

    /// The connection of the client is lost. The session ends when its turn has ended, and after `keep` at
    /// the latest, unless a client takes it over. Returns false if the session cannot be told.
    #[must_use]
    pub(crate) fn detach(&self, keep: Duration) -> bool {
        self.cancelling.clear();
        self.mailbox.try_send(SessionMessage::Detach { keep }).is_ok()
    }

    /// Gives a detached session to another client.
    pub(crate) fn take_over(&self, takeover: Takeover) {
        self.send(SessionMessage::TakeOver(Box::new(takeover)));
    }

    /// Returns true if the session can still be prompted.
    pub(crate) fn is_open(&self) -> bool {
        !self.mailbox.is_closed()
    }

    /// Sends a message. If the mailbox is full, the message is dropped, and its `Completion` answers on
    /// drop.
    fn send(&self, msg: SessionMessage) {
        self.cancelling.clear();
        let has_room = self.mailbox.capacity() > RESERVED_FOR_CANCELS;
        if !has_room || self.mailbox.try_send(msg).is_err() {
            tracing::error!("a session does not read its mailbox");
        }
    }
}
