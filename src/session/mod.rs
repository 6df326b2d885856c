//! Sessions: each is one task that owns its history, its queue and its settings, and starts its
//! turns one after the other. Everybody else holds a handle and sends messages.

mod actor;
mod commands;
mod history;
mod host;
mod begin;
pub mod kept;
mod changes;
mod mcp;
mod models;
mod permissions;
mod project_servers;
mod prompts;
mod recover;
mod replay;
mod report;
mod revive;
mod rewind;
mod settings;
mod servers;
mod standing;
mod title;
mod trust;
mod undo;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use turnwright_types::client::{Buffers, Client, Display};
use crate::done::Done;
use crate::error::Error;
use turnwright_workspace::files::Roots;
use turnwright_types::ids::SessionId;
use turnwright_types::message::{Stop, UserMessage};
use turnwright_policy::permission::Mode;
use turnwright_types::update::{Setting, SettingId};

pub use turnwright_llm::Senses;
pub use crate::mcp::{Hidden, Reach, ServerSpec, Source};
pub use turnwright_store::history::{Page, Said};
pub use changes::{Changed, Changes, What, changes};
pub use history::history;
pub use host::Host;
pub use mcp::{ServerCheck, ServerFacts};
pub use project_servers::SERVERS_FILE;
pub use report::Report;
pub use standing::{PROJECT_FILE, ProjectFile, Standing, rule_problems, stand};
pub use undo::{Desk, Planned, Wish};

/// Folders that a session may have besides its working folder.
const MOST_FOLDERS: usize = 64;
/// Messages that may wait for a session that is busy for a moment.
const MAILBOX: usize = 256;
/// Of these, kept free for cancels.
const RESERVE: usize = 32;

/// Which prompt, among those of one connection.
pub type PromptKey = u64;

/// What a session is opened with.
pub struct Opening {
    /// Its name.
    pub id: SessionId,
    /// The working folder, absolute.
    pub cwd: PathBuf,
    /// The folders that belong to it besides, absolute.
    pub folders: Vec<PathBuf>,
    /// Who listens.
    pub client: Arc<dyn Client>,
    /// The client's open files, if it serves any.
    pub buffers: Option<Arc<dyn Buffers>>,
    /// How it shows commands.
    pub display: Display,
    /// The MCP servers that the client wants it to have.
    pub servers: Vec<ServerSpec>,
    /// What the client was told that prompts may hold.
    pub offered: Senses,
    /// What there is of it already.
    pub origin: Origin,
    /// Cancelled when what has to end first has ended: it may be open already.
    pub after: CancellationToken,
    /// Whoever waits has changed their mind. Nothing any more once it is open.
    pub cancel: CancellationToken,
    /// Who waits for it. Reported when it can be prompted, after all that there was to be told.
    pub opened: Done<Vec<Setting>>,
}

/// What there is of a session when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing.
    New,
    /// A conversation that is kept.
    Kept {
        /// The client is told all of it.
        replays: bool,
    },
    /// A copy of another one as it is now.
    Copy {
        /// The other one.
        of: SessionId,
    },
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Opening").field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

enum Msg {
    Prompt {
        key: PromptKey,
        prompt: UserMessage,
        done: Done<Stop>,
    },
    Cancel,
    CancelPrompt(PromptKey),
    SetMode {
        mode: Mode,
        done: Done<()>,
    },
    Set {
        setting: SettingId,
        value: String,
        done: Done<Vec<Setting>>,
    },
    /// A person has chosen this title.
    Titled(String),
    Close {
        done: Done<()>,
    },
}

/// A session, to those who talk to it. Dropping the last handle closes it.
#[derive(Debug)]
pub struct SessionHandle {
    mailbox: mpsc::Sender<Msg>,
    /// A cancel is on its way and nothing was sent after it: another one would change nothing.
    /// So a client that sends nothing but cancels cannot fill the mailbox.
    cancelling: Arc<AtomicBool>,
    /// Ends its opening.
    opening: CancellationToken,
}

/// Opens a session. Its task runs on the host's tracker until the handle is dropped or the host
/// is told to stop. Whoever waits is told when it is open; or why it is not, when the working
/// folder cannot be used, say, or no model is configured.
pub fn open(host: &Arc<Host>, opening: Opening) -> Option<SessionHandle> {
    let Opening { id, cwd, folders, client, buffers, display, servers, offered, .. } = opening;
    let Opening { origin, after, cancel, opened, .. } = opening;
    let roots = roots(&cwd, &folders);
    let equipped = roots.and_then(|it| host.equip(id, it, client, buffers, display));
    let (equipment, notices, own) = match equipped {
        Ok(equipped) => equipped,
        Err(error) => {
            opened.report(Err(error));
            return None;
        }
    };
    let (mailbox, inbox) = mpsc::channel(MAILBOX);
    let cancelling = Arc::new(AtomicBool::new(false));
    let stop: CancellationToken = host.stop_token();
    let shared = Arc::clone(&cancelling);
    let settings = settings::all(host, &equipment);
    let told = actor::Told { notices, shortcoming: false, offered };
    let actor = actor::Actor::new(Arc::clone(host), equipment, settings, told, shared, stop);
    let opening = cancel.clone();
    let servers = servers.into_iter().chain(own).collect();
    host.spawn(actor.run(inbox, Beginning { origin, servers, after, cancel }, opened));
    Some(SessionHandle { mailbox, cancelling, opening })
}

/// How a session begins.
struct Beginning {
    origin: Origin,
    servers: Vec<ServerSpec>,
    after: CancellationToken,
    cancel: CancellationToken,
}

fn roots(cwd: &Path, folders: &[PathBuf]) -> Result<Roots, Error> {
    if !cwd.is_absolute() {
        let text = format!("`cwd` must be an absolute path, not `{}`", cwd.display());
        return Err(Error::Params(text));
    }
    let mut roots = Roots::new(cwd)
        .map_err(|error| Error::BadFolder { path: cwd.to_path_buf(), why: error.to_string() })?;
    let refused = |folder: &Path, why: &str| {
        let text = format!("`additionalDirectories`: `{}` cannot be used: {why}", folder.display());
        Error::Params(text)
    };
    if folders.len() > MOST_FOLDERS {
        let text = format!("`additionalDirectories` are more than {MOST_FOLDERS}");
        return Err(Error::Params(text));
    }
    for folder in folders {
        if !folder.is_absolute() {
            return Err(refused(folder, "it is no absolute path"));
        }
        roots = roots.and(folder).map_err(|error| refused(folder, &error.to_string()))?;
    }
    Ok(roots)
}

/// Tells a session's client what a person has chosen, once that is kept.
#[derive(Debug)]
pub struct Teller(mpsc::WeakSender<Msg>);

impl Teller {
    /// The title that it has now.
    pub fn titled(self, title: String) {
        if let Some(mailbox) = self.0.upgrade() {
            // One that is busy or gone is none whose title anybody looks at.
            drop(mailbox.try_send(Msg::Titled(title)));
        }
    }
}

impl SessionHandle {
    /// Starts a turn, or queues the prompt behind the one that runs.
    pub fn prompt(&self, key: PromptKey, prompt: UserMessage, done: Done<Stop>) {
        if self.mailbox.capacity() <= RESERVE {
            return done.report(Err(Error::BadMoment(
                "Too many requests are waiting for this session. Wait, or cancel".to_owned(),
            )));
        }
        self.send(Msg::Prompt { key, prompt, done });
    }

    /// Cancels the turn that runs and all that wait. With nothing to cancel it does nothing; it
    /// is not remembered, because it would abort a prompt that the user has not sent yet.
    pub fn cancel(&self) {
        if !self.cancelling.swap(true, Ordering::Relaxed)
            && self.mailbox.try_send(Msg::Cancel).is_err()
        {
            self.cancelling.store(false, Ordering::Relaxed);
            tracing::error!("a session does not read its mailbox");
        }
    }

    /// Cancels one prompt, running or waiting.
    pub fn cancel_prompt(&self, key: PromptKey) {
        self.send(Msg::CancelPrompt(key));
    }

    /// Changes the mode, from the next effect on.
    pub fn set_mode(&self, mode: Mode, done: Done<()>) {
        self.send(Msg::SetMode { mode, done });
    }

    /// Changes a setting.
    pub fn set(&self, setting: SettingId, value: String, done: Done<Vec<Setting>>) {
        self.send(Msg::Set { setting, value, done });
    }

    /// Who can tell the client a title later on. It does not keep the session open.
    pub fn teller(&self) -> Teller {
        Teller(self.mailbox.downgrade())
    }

    /// Ends it: what runs is cancelled, its commands are stopped. Reported when all that is done.
    pub fn close(self, done: Done<()>) {
        // If there is no room for it, dropping the handle does the same.
        drop(self.mailbox.try_send(Msg::Close { done }));
        self.opening.cancel();
    }

    /// Whether it can still be prompted.
    pub fn is_open(&self) -> bool {
        !self.mailbox.is_closed()
    }

    /// A message that finds no place is dropped, and with it the duty to answer, which answers.
    fn send(&self, msg: Msg) {
        self.cancelling.store(false, Ordering::Relaxed);
        let has_room = self.mailbox.capacity() > RESERVE;
        if !has_room || self.mailbox.try_send(msg).is_err() {
            tracing::error!("a session does not read its mailbox");
        }
    }
}
