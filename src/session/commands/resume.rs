//! `/resume` continues the conversation of another session of the same folder here, as a copy, for clients that
//! cannot open an earlier session.

use std::time::SystemTime;

use super::{CommandCall, CommandTask, PromptWork, SessionActor, say_and_finish};
use crate::error::{Error, as_sentence, error_chain};
use crate::session::open::restore::restore_session;
use crate::session::stored_sessions::{ListRequest, find_page};
use crate::turn::FinishedTurn;
use turnwright_store::{Durability, SessionRow, sessions};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::look_alike::narrow;
use turnwright_types::message::{History, StopReason};
use turnwright_types::timestamp::local_time;
use turnwright_types::update::Update;

/// The most sessions that are listed.
const MAX_LISTED: usize = 20;
const NOT_EMPTY: &str = "Nothing was done: this session already has a conversation. Start a new session, and \
                         type `/resume` first.";

const UNKNOWN: &str = "Nothing was done: there is no such session. `/resume` lists them.";

pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    // The answer gets its identifier later, because it may have to follow those of a copied conversation.
    call.begin(session);
    let task = call.into_task(session);
    PromptWork::of_command(task.resume())
}

impl CommandTask {
    /// Lists the sessions, or continues the one with the number or identifier that the user has named.
    async fn resume(mut self) -> FinishedTurn {
        let answer = self.list_or_copy().await;
        let message = self.history.mint_message_id();
        let text = match answer {
            Ok((text, true)) => {
                self.conversation.say(message, text);
                // The turn of this command is gone; the last one is now the copy's.
                self.conversation.log().flush().written().await;
                return FinishedTurn { history: self.history, result: Ok(StopReason::EndTurn) };
            }
            Ok((text, false)) => Some(text),
            Err(Error::Cancelled) => None,
            Err(error) => Some(as_sentence(format!("Nothing was done: {}", error_chain(&error)))),
        };
        say_and_finish(&self.conversation, self.history, message, text).await
    }

    /// Returns the answer, and true if the session now has the conversation of another one.
    async fn list_or_copy(&mut self) -> Result<(String, bool), Error> {
        let listed = self.cancel.run_until_cancelled(self.find()).await;
        let found = listed.ok_or(Error::Cancelled)??;
        if self.arguments.is_empty() {
            return Ok((list(&found), false));
        }
        let Some(source) = choose(&found, &self.arguments) else {
            return Ok((UNKNOWN.to_owned(), false));
        };
        match self.copy(source).await? {
            Some(copied) => {
                self.history = copied;
                Ok((continued(source), true))
            }
            None => Ok((NOT_EMPTY.to_owned(), false)),
        }
    }

    /// The other sessions of this folder, the newest first.
    async fn find(&self) -> Result<Vec<SessionRow>, Error> {
        let cwd = self.conversation.env.files.roots().cwd().to_path_buf();
        let request = ListRequest { cwd: Some(cwd), ..ListRequest::default() };
        let (mut found, _) = find_page(self.host.store(), request).await?;
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
        let minted = self.history.minted;
        conversation.log().flush().written().await;
        let copying = store.write(Durability::ProcessCrash, move |connection| {
            sessions::copy_into_empty(connection, &from, &to, minted)
        });
        let Some(withdrawn) = copying.await? else { return Ok(None) };
        for cursor in withdrawn {
            conversation.client().update(cursor);
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
        conversation.told.add_unsent(restored.ended_work);
        conversation.told.lock().mode = None;
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
    let rows = (1..).zip(found).map(|(number, session)| {
        let time = local_time(session.updated_at);
        format!("{number}. {} – {time} – `{}`\n", title(session), session.id)
    });
    let lines: String = rows.collect();
    format!(
        "Sessions of this folder, the newest first:\n\n{lines}\n`/resume 1` continues a copy of the first."
    )
}

fn choose<'a>(found: &'a [SessionRow], wanted: &str) -> Option<&'a SessionRow> {
    let number = narrow(wanted).parse::<usize>().ok();
    let by_number = number.and_then(|number| found.get(number.checked_sub(1)?));
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
