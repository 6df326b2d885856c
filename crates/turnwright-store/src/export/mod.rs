//! A session that is kept → a document for people, or JSON for programs. It is read page by page
//! and written as it comes, so that a long session takes no more memory than a short one.
//!
//! What a model or a project has written is text here and nothing else: see `html`.

mod html;
mod json;
mod markdown;
mod parts;
#[cfg(test)]
mod tests;
mod time;

use std::io::{self, Write};

use rusqlite::Connection;

use turnwright_types::ids::SessionId;
use crate::{
    Audience, Entry, Gone, SessionRow, StoreError, Stored, TurnRow, read, turns_of,
};
use time::Clock;
pub use time::Spent;

/// Entries that are read at a time: each may be a long one.
const PAGE: usize = 8;

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text with marks.
    Markdown,
    /// One page that needs nothing else.
    Html,
    /// One object.
    Json,
}

/// Why there is no whole document.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The session cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The document cannot be written.
    #[error("the export cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// One sort of document. What is called in this order makes a whole one.
trait Document {
    fn begin(&mut self, session: &SessionRow) -> io::Result<()>;
    fn turn(&mut self, turn: &TurnRow) -> io::Result<()>;
    fn entry(&mut self, stored: &Stored) -> io::Result<()>;
    /// The turn that was begun last is over.
    fn turn_over(&mut self, turn: &TurnRow, spent: Spent) -> io::Result<()>;
    fn end(&mut self) -> io::Result<()>;
}

/// Writes a session. What was rewound is left out, and so is what only the model was told.
///
/// # Errors
/// When the session is not there, or the document cannot be written.
pub fn export(
    connection: &Connection,
    id: &SessionId,
    form: Form,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let session = read::session(connection, id)?;
    let key = read::key(connection, id)?;
    let gone = Gone::find(connection, key)?;
    let mut document = document(form, out);
    let mut writer = Writer {
        document: document.as_mut(),
        turns: turns_of(connection, key)?,
        last_plan: gone.last_plan,
        current: None,
        clock: Clock::default(),
    };
    writer.document.begin(&session)?;
    let mut after = 0;
    loop {
        let (page, last) = read::page(connection, key, (after, PAGE), &gone)?;
        for stored in &page {
            writer.add(stored)?;
        }
        let Some(last) = last else { break };
        after = last;
    }
    writer.turn_over()?;
    Ok(document.end()?)
}

fn document<'a>(form: Form, out: &'a mut dyn Write) -> Box<dyn Document + 'a> {
    match form {
        Form::Markdown => Box::new(markdown::Markdown::new(out)),
        Form::Html => Box::new(html::Html::new(out)),
        Form::Json => Box::new(json::Json::new(out)),
    }
}

/// Entries → entries in their turns, with the time that each turn has taken.
struct Writer<'a> {
    document: &'a mut dyn Document,
    turns: Vec<TurnRow>,
    last_plan: Option<u64>,
    /// The place of the turn in `turns`.
    current: Option<usize>,
    clock: Clock,
}

impl Writer<'_> {
    fn add(&mut self, stored: &Stored) -> io::Result<()> {
        let turn = self.turns.binary_search_by_key(&stored.turn, |it| it.number).ok();
        if turn != self.current {
            self.turn_over()?;
            self.current = turn;
            if let Some(turn) = turn.and_then(|it| self.turns.get(it)) {
                self.document.turn(turn)?;
            }
        }
        self.clock.note(stored);
        if self.is_shown(stored) { self.document.entry(stored) } else { Ok(()) }
    }

    fn is_shown(&self, stored: &Stored) -> bool {
        match &stored.entry {
            Entry::Message { audience, .. } => *audience != Audience::Model,
            // A plan is kept as a whole each time.
            Entry::Plan { .. } => self.last_plan == Some(stored.seq),
            Entry::Note { .. } | Entry::Lost { .. } | Entry::Cleared => true,
            Entry::Refused | Entry::Rewound { .. } | Entry::Unknown => false,
        }
    }

    fn turn_over(&mut self) -> io::Result<()> {
        let clock = std::mem::take(&mut self.clock);
        match self.current.take().and_then(|it| self.turns.get(it)) {
            Some(turn) => self.document.turn_over(turn, clock.spent(turn)),
            None => Ok(()),
        }
    }
}
