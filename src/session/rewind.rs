//! The commands about what was: `/undo`, `/redo`, `/diff` and `/rewind`.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Host;
use super::changes::{What, changes};
use super::replay::{self, Recalled};
use super::report;
use super::undo::{Desk, News, Wish, brief, news};
use turnwright_workspace::checkpoint::NOT_COVERED;
use turnwright_types::effect::fenced;
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, Stop};
use turnwright_store::versions::{self, PromptRow};
use turnwright_store::{Entry, Gone, StoreError, read};
use crate::turn::Equipment;
use crate::undo::Bounds;

/// Prompts that are listed.
const MOST_LISTED: usize = 10;
/// Entries that are read at a time.
const PAGE: usize = 64;
/// How much of a diff is shown in a conversation.
const SHOWN: Bounds = Bounds { file: 256 * 1024, all: 32 * 1024 };

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Back {
    Undo,
    Redo,
    Diff,
    Rewind,
}

/// What they work with.
pub(super) struct Task {
    pub(super) host: Arc<Host>,
    pub(super) equipment: Equipment,
    pub(super) news: News,
    pub(super) words: String,
    pub(super) message: MessageId,
    pub(super) cancel: CancellationToken,
}

/// Does what was typed. Returns the conversation as it is then.
pub(super) async fn back(which: Back, task: Task, history: History) -> (History, Stop) {
    let mut history = history;
    // What the last turn has done may still be on its way into the store.
    task.equipment.bench.checkpoint.rest().await;
    let done = match which {
        Back::Undo => task.undo().await,
        Back::Redo => task.turn_back(Wish::Redo).await,
        Back::Diff => task.diff().await,
        Back::Rewind => task.rewind(&mut history).await,
    };
    let text = done.unwrap_or_else(|error| format!("That could not be done: {error}."));
    task.equipment.say(task.message.clone(), text);
    let stop = if task.cancel.is_cancelled() { Stop::Cancelled } else { Stop::EndTurn };
    (history, stop)
}

impl Task {
    fn desk(&self) -> Desk {
        let bench = &self.equipment.bench;
        Desk {
            store: self.host.store().clone(),
            log: self.equipment.log().clone(),
            files: bench.files.clone(),
            session: bench.session.clone(),
            cancel: self.cancel.clone(),
        }
    }

    async fn undo(&self) -> Result<String, StoreError> {
        let count = match self.words.as_str() {
            "" => Some(1),
            words => words.parse().ok().filter(|it| *it > 0),
        };
        match count {
            Some(count) => self.turn_back(Wish::Undo(count)).await,
            None => Ok("Say how many turns: `/undo 2`. Nothing was undone.".to_owned()),
        }
    }

    async fn turn_back(&self, wish: Wish) -> Result<String, StoreError> {
        let desk = self.desk();
        let Some(planned) = desk.look(wish).await? else {
            return Ok(match wish {
                Wish::Redo => "There is nothing to redo.".to_owned(),
                _ => "There is nothing to undo: no turn of this session has changed files that \
                      are not undone already."
                    .to_owned(),
            });
        };
        let client = Arc::clone(self.equipment.client());
        let report = desk.carry_out(planned, move |it| client.update(it)).await;
        self.news.set(news(&desk.store, &desk.session).await);
        Ok(report.text(desk.files.roots()))
    }

    async fn diff(&self) -> Result<String, StoreError> {
        let what = match self.words.as_str() {
            "" => What::Last,
            "all" | "session" => What::All,
            _ => return Ok("`/diff` is about the last turn, `/diff all` about all.".to_owned()),
        };
        let desk = self.desk();
        desk.log.flush().written().await;
        let (roots, session) = (desk.files.roots().clone(), desk.session.clone());
        let read = move |connection: &_| changes(connection, &session, what, &roots, SHOWN);
        let found = desk.store.read(read).await?;
        if found.files.is_empty() {
            return Ok("No files were changed.".to_owned());
        }
        let all: String = found.files.iter().map(|it| it.diff.as_str()).collect();
        let turns = report::turns(&found.turns);
        let diff = fenced(&all).replacen('\n', "diff\n", 1);
        Ok(format!("{turns}:\n\n{diff}\n\n{NOT_COVERED}"))
    }

    async fn rewind(&self, history: &mut History) -> Result<String, StoreError> {
        let desk = self.desk();
        desk.log.flush().written().await;
        let session = desk.session.clone();
        let found = desk.store.read(move |connection| {
            let key = read::key(connection, &session)?;
            versions::prompts(connection, key, &Gone::find(connection, key)?)
        });
        let prompts = found.await?;
        let mut words = self.words.split_whitespace();
        let (count, rest) = (words.next(), words.next());
        let Some(count) = count else { return Ok(listed(&prompts)) };
        let count = count.parse::<usize>().ok().filter(|it| *it > 0);
        let has_files = rest == Some("files");
        let place = count.and_then(|it| prompts.len().checked_sub(it));
        let prompt = place.and_then(|it| prompts.get(it));
        let Some(prompt) = prompt.filter(|_| rest.is_none() || has_files) else {
            return Ok(format!("There is no such prompt. {}", listed(&prompts)));
        };
        desk.log.add(Entry::Rewound { to: prompt.seq });
        let files = if has_files {
            self.turn_back(Wish::Since(prompt.turn)).await?
        } else {
            "Files are as they are.".to_owned()
        };
        *history = recalled(&desk, history).await?;
        self.equipment.told_mode.forget();
        self.equipment.bench.skills.forget_loaded();
        let words = brief(&prompt.words);
        Ok(format!(
            "The conversation is back before “{words}”: I know nothing of it any more. {files}"
        ))
    }
}

/// The last prompts, with the numbers that lead there.
fn listed(prompts: &[PromptRow]) -> String {
    if prompts.is_empty() {
        return "There are no prompts to go back to.".to_owned();
    }
    let line = |(number, it): (usize, &PromptRow)| format!("{number}. {}\n", brief(&it.words));
    let lines: String = (1..).zip(prompts.iter().rev().take(MOST_LISTED)).map(line).collect();
    format!(
        "`/rewind N` takes the conversation back to before one of these prompts, `/rewind N files` \
         the files, too:\n\n{lines}"
    )
}

/// What the model knows by what is kept: the same as after a restart.
async fn recalled(desk: &Desk, history: &History) -> Result<History, StoreError> {
    desk.log.flush().written().await;
    let session = desk.session.clone();
    let read = move |connection: &_| {
        let key = read::key(connection, &session)?;
        let gone = Gone::find(connection, key)?;
        let (mut after, mut recalled) = (0, Recalled::default());
        loop {
            let (page, last) = read::page(connection, key, (after, PAGE), &gone)?;
            for stored in page {
                replay::recall(&mut recalled, stored);
            }
            let Some(last) = last else { return Ok(recalled) };
            after = last;
        }
    };
    let recalled = desk.store.read(read).await?;
    Ok(recalled.history(history.minted, history.cost))
}
