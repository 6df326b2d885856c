//! `/resume` continues the conversation of another session of the same folder here, as a copy, for clients that
//! cannot open an earlier session.

use std::sync::Arc;
use std::time::SystemTime;

use tokio_util::sync::CancellationToken;

use super::{CommandCall, PromptWork, SessionActor, finish_command};
use crate::error::{Error, as_sentence, error_chain};
use crate::session::SessionHost;
use crate::session::open::restore::restore_session;
use crate::session::pending_context::UnsentContext;
use crate::session::stored_sessions::{ListRequest, find_page};
use crate::turn::{Conversation, FinishedTurn};
use turnwright_store::{Durability, SessionRow, sessions};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::message::{History, StopReason};
use turnwright_types::timestamp::local_time;
use turnwright_types::update::Update;

/// The most sessions that are listed.
const MAX_LISTED: usize = 20;
const NOT_EMPTY: &str = "Nothing was done: this session already has a conversation. Start a new session, and \
                         type `/resume` first.";

const UNKNOWN: &str = "Nothing was done: there is no such session. `/resume` lists them.";

/// The answer to the user.
enum Answer {
    /// The session now has the conversation of another one.
    Copied(String),
    Unchanged(String),
}

/// Everything that the command needs.
struct ResumeTask {
    host: Arc<SessionHost>,
    conversation: Conversation,
    unsent: UnsentContext,
    /// The number or identifier of a session; empty for the list.
    wanted: String,
    cancel: CancellationToken,
}

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    // The answer gets its identifier later, because it may have to follow those of a copied conversation.
    call.begin(session);
    let task = ResumeTask {
        host: Arc::clone(&session.host),
        conversation: session.conversation.clone(),
        unsent: session.context.unsent.clone(),
        wanted: call.arguments,
        cancel: call.cancel,
    };
    PromptWork::of_command(task.run(session.history.clone()))
}

impl ResumeTask {
    /// Lists the sessions, or continues one.
    async fn run(self, mut history: History) -> FinishedTurn {
        let answer = self.answer(&mut history).await;
        let log = self.conversation.log();
        let stop = StopReason::EndTurn;
        let message = history.mint_message_id();
        let (text, stop) = match answer {
            Ok(Answer::Copied(text)) => {
                self.conversation.say(message, text);
                // The turn of this command is gone; the last one is now the copy's.
                log.flush().written().await;
                return FinishedTurn { history, result: Ok(stop) };
            }
            Ok(Answer::Unchanged(text)) => (Some(text), stop),
            Err(Error::Cancelled) => (None, StopReason::Cancelled),
            Err(error) => {
                (Some(as_sentence(format!("Nothing was done: {}", error_chain(&error)))), stop)
            }
        };
        if let Some(text) = text {
            self.conversation.say(message, text);
        }
        finish_command(log, history, stop).await
    }

    async fn answer(&self, history: &mut History) -> Result<Answer, Error> {
        let listed = self.cancel.run_until_cancelled(self.find()).await;
        let found = listed.ok_or(Error::Cancelled)??;
        if self.wanted.is_empty() {
            return Ok(Answer::Unchanged(list(&found)));
        }
        let Some(source) = choose(&found, &self.wanted) else {
            return Ok(Answer::Unchanged(UNKNOWN.to_owned()));
        };
        match self.copy(source).await? {
            Some(copied) => {
                *history = copied;
                Ok(Answer::Copied(continued(source)))
            }
            None => Ok(Answer::Unchanged(NOT_EMPTY.to_owned())),
        }
    }

    /// The other sessions of this folder, the newest first.
    async fn find(&self) -> Result<Vec<SessionRow>, Error> {
        let cwd = self.conversation.env.files.roots().cwd().to_path_buf();
        let request = ListRequest { cwd: Some(cwd), ..ListRequest::default() };
        let mut found = find_page(self.host.store(), request).await?.sessions;
        found.retain(|session| session.id != self.conversation.env.session);
        found.truncate(MAX_LISTED);
        Ok(found)
    }

    /// Copies the conversation into this session and shows it. `None` if this session has one already.
    async fn copy(&self, source: &SessionRow) -> Result<Option<History>, Error> {
        let store = self.host.store();
        let conversation = &self.conversation;
        let from = source.id.clone();
        let to = conversation.env.session.clone();
        conversation.log().flush().written().await;
        let copying = store.write(Durability::ProcessCrash, move |connection| {
            sessions::copy_into_empty(connection, &from, &to)
        });
        if !copying.await? {
            return Ok(None);
        }
        let id = &conversation.env.session;
        let restored = match restore_session(store, conversation, id, true, &self.cancel).await {
            Ok(restored) => restored,
            Err(error) => {
                // Otherwise the next turn would be written into the conversation that nobody sees.
                let id = id.clone();
                let removing = store.write(Durability::ProcessCrash, move |connection| {
                    sessions::remove_copy(connection, &id)
                });
                removing.await?;
                return Err(error);
            }
        };
        conversation.env.jobs.continue_numbering_after(restored.history.minted);
        self.unsent.add(restored.ended_work);
        conversation.told.forget_mode();
        conversation.restore_announced_mode(&restored.history);
        let updated = SystemTime::now();
        conversation.client().update(Update::SessionInfo { title: restored.row.title, updated });
        Ok(Some(restored.history))
    }
}

fn list(found: &[SessionRow]) -> String {
    if found.is_empty() {
        return "There are no other sessions of this folder.".to_owned();
    }
    let lines: String = (1..)
        .zip(found)
        .map(|(number, session)| {
            let time = local_time(session.updated_at);
            format!("{number}. {} – {time} – `{}`\n", title(session), session.id)
        })
        .collect::<Vec<_>>()
        .concat();
    format!(
        "Sessions of this folder, the newest first:\n\n{lines}\n`/resume 1` continues a copy of the first."
    )
}

fn choose<'a>(found: &'a [SessionRow], wanted: &str) -> Option<&'a SessionRow> {
    let by_number =
        wanted.parse::<usize>().ok().and_then(|number| found.get(number.checked_sub(1)?));
    by_number.or_else(|| found.iter().find(|session| session.id.as_str() == wanted))
}

fn title(session: &SessionRow) -> String {
    session.title.as_deref().map_or("(no title)".to_owned(), escape_hidden_line)
}

fn continued(source: &SessionRow) -> String {
    format!(
        "This session continues a copy of “{}”. The original is unchanged. Files are as they are now.",
        title(source)
    )
}
