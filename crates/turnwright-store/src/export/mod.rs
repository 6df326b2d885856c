//! Exports a stored session as a document for people, or as JSON for programs. It is read and
//! written page by page, so that a long session takes no more memory than a short one.
//!
//! Text of a model or a project never becomes markup: see `html`.

mod html;
mod markdown;
mod fragments;

use std::io::{self, Write};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{
    Audience, CallRow, Entry, GoalStatus, RewoundEntries, SessionRow, StoreError, StoredEntry,
    TurnRow, read, turn_rows,
};
pub use fragments::TimeSpent;
use fragments::TurnClock;
use turnwright_types::ids::SessionId;
use turnwright_types::message::Arguments;
use turnwright_types::timestamp::rfc3339;

/// The format of an exported document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    Markdown,
    /// A single page without external resources.
    Html,
    /// A single object.
    Json,
}

/// Why the export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The session cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The document cannot be written.
    #[error("the export cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// A document format. The methods are called in this order, with `begin_turn` to `end_turn` for
/// each turn.
trait Document {
    fn begin(&mut self, session: &SessionRow) -> io::Result<()>;
    fn begin_turn(&mut self, turn: &TurnRow) -> io::Result<()>;
    fn entry(&mut self, entry_row: &StoredEntry) -> io::Result<()>;
    fn end_turn(&mut self, turn: &TurnRow, time_spent: TimeSpent) -> io::Result<()>;
    fn end(&mut self) -> io::Result<()>;
}

/// Writes a session. Rewound entries and messages that are only for the model are left out.
pub fn export(
    connection: &Connection,
    id: &SessionId,
    format: ExportFormat,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let session = read::session(connection, id)?;
    let key = read::session_key(connection, id)?;
    let rewound = RewoundEntries::load(connection, key)?;
    let mut document = document(format, out);
    let mut writer = DocumentWriter {
        document: document.as_mut(),
        turns: turn_rows(connection, key)?,
        last_plan: rewound.last_plan,
        current: None,
        clock: TurnClock::default(),
    };
    writer.document.begin(&session)?;
    read::each_entry(connection, key, &rewound, |entry_row| {
        writer.add(&entry_row).map_err(ExportError::from)
    })?;
    writer.end_turn()?;
    Ok(document.end()?)
}

fn document<'a>(format: ExportFormat, out: &'a mut dyn Write) -> Box<dyn Document + 'a> {
    match format {
        ExportFormat::Markdown => Box::new(markdown::MarkdownDocument { out }),
        ExportFormat::Html => Box::new(html::HtmlDocument { out, turns: Vec::new() }),
        ExportFormat::Json => Box::new(JsonDocument { out, comma: "" }),
    }
}

/// Groups entries by turn and measures where the time of each turn went.
struct DocumentWriter<'a> {
    document: &'a mut dyn Document,
    turns: Vec<TurnRow>,
    last_plan: Option<u64>,
    /// The index of the current turn in `turns`.
    current: Option<usize>,
    clock: TurnClock,
}

impl DocumentWriter<'_> {
    fn add(&mut self, entry_row: &StoredEntry) -> io::Result<()> {
        let turn = self.turns.binary_search_by_key(&entry_row.turn, |turn| turn.number).ok();
        if turn != self.current {
            self.end_turn()?;
            self.current = turn;
            if let Some(turn) = turn.and_then(|index| self.turns.get(index)) {
                self.document.begin_turn(turn)?;
            }
        }
        self.clock.note(entry_row);
        if self.is_shown(entry_row) { self.document.entry(entry_row) } else { Ok(()) }
    }

    fn is_shown(&self, entry_row: &StoredEntry) -> bool {
        match &entry_row.entry {
            Entry::Message { audience, .. } => *audience != Audience::Model,
            // Each plan entry holds the whole plan, so only the last one is shown.
            Entry::Plan { .. } => self.last_plan == Some(entry_row.seq),
            // The slices of work on a goal have their messages.
            Entry::Goal { goal } => {
                goal.as_ref().is_some_and(|goal| goal.status != GoalStatus::Active)
            }
            Entry::Note { .. }
            | Entry::IncompleteCall { .. }
            | Entry::Cleared
            | Entry::Compacted { .. } => true,
            Entry::Refused
            | Entry::Pruned { .. }
            | Entry::ImagesLeftOut
            | Entry::SomeImagesLeftOut { .. }
            | Entry::Rewound { .. }
            | Entry::RewindUndone { .. }
            | Entry::Unknown => false,
        }
    }

    fn end_turn(&mut self) -> io::Result<()> {
        let clock = std::mem::take(&mut self.clock);
        let ended = self.current.take().and_then(|index| self.turns.get(index));
        ended.map_or(Ok(()), |turn| self.document.end_turn(turn, clock.time_spent(turn)))
    }
}

struct JsonDocument<'a> {
    out: &'a mut dyn Write,
    /// The separator before the next element.
    comma: &'static str,
}

impl JsonDocument<'_> {
    fn element(&mut self, value: &Value) -> io::Result<()> {
        write!(self.out, "{}\n{value}", self.comma)?;
        self.comma = ",";
        Ok(())
    }
}

impl Document for JsonDocument<'_> {
    fn begin(&mut self, session: &SessionRow) -> io::Result<()> {
        let folders: Vec<_> =
            session.additional_folders.iter().map(|folder| folder.to_string_lossy()).collect();
        let about = json!({
            "id": session.id.as_str(),
            "title": session.title,
            "cwd": session.cwd.to_string_lossy(),
            "additionalDirectories": folders,
            "created": rfc3339(session.created_at),
            "updated": rfc3339(session.updated_at),
            "parent": session.parent.as_ref().map(SessionId::as_str),
            "mode": session.mode,
            "model": session.model,
            "cost": session.cost_usd,
        });
        write!(self.out, "{{\"session\":{about},\n\"entries\":[")
    }

    fn begin_turn(&mut self, turn: &TurnRow) -> io::Result<()> {
        self.element(&json!({
            "turn": turn.number,
            "kind": turn.kind.as_str(),
            "begun": rfc3339(turn.started_at),
        }))
    }

    fn entry(&mut self, entry_row: &StoredEntry) -> io::Result<()> {
        self.element(&json!({
            "turn": entry_row.turn,
            "seq": entry_row.seq,
            "at": rfc3339(entry_row.at),
            "entry": entry_row.entry,
            "tool_calls": entry_row.calls.iter().map(call).collect::<Vec<_>>(),
        }))
    }

    fn end_turn(&mut self, turn: &TurnRow, time_spent: TimeSpent) -> io::Result<()> {
        self.element(&json!({
            "turn": turn.number,
            "ended": turn.ended_at.map(rfc3339),
            "stop": turn.stop,
            "modelMs": millis(time_spent.model),
            "toolsMs": millis(time_spent.tools),
            "waitingMs": millis(time_spent.waiting),
        }))
    }

    fn end(&mut self) -> io::Result<()> {
        writeln!(self.out, "\n]}}")?;
        self.out.flush()
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn call(call: &CallRow) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(value) => value.clone(),
        Arguments::Unusable { text, .. } => text.as_str().into(),
    };
    json!({
        "id": call.call.as_str(),
        "name": call.tool,
        "arguments": arguments,
        "status": call.status.as_str(),
        "result": call.outcome.text,
        "content": &call.outcome.content,
        "asked": rfc3339(call.requested_at),
        "ended": call.ended_at.map(rfc3339),
        "durationMs": call.outcome.duration.map(millis),
    })
}

#[cfg(test)]
mod tests;
