//! Exports a session as one JSON object.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{Document, TimeSpent};
use crate::rows::AsStored;
use crate::{CallRow, SessionRow, StoredEntry, TurnRow};
use turnwright_types::ids::SessionId;
use turnwright_types::message::Arguments;
use turnwright_types::timestamp::rfc3339;

pub(super) struct JsonDocument<'a> {
    out: &'a mut dyn Write,
    /// The separator before the next element.
    comma: &'static str,
}

impl<'a> JsonDocument<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> JsonDocument<'a> {
        JsonDocument { out, comma: "" }
    }

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
        "content": AsStored(&call.outcome.content),
        "asked": rfc3339(call.requested_at),
        "ended": call.ended_at.map(rfc3339),
        "durationMs": call.outcome.duration.map(millis),
    })
}
