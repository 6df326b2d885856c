//! A session as one JSON object: what is kept of it, in its own words.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{Document, Spent};
use turnwright_types::ids::SessionId;
use turnwright_types::message::Arguments;
use turnwright_types::moment::rfc3339;
use crate::{CallRow, SessionRow, Stored, TurnRow};

pub(super) struct Json<'a> {
    out: &'a mut dyn Write,
    /// What stands before the next element.
    comma: &'static str,
}

impl<'a> Json<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Json<'a> {
        Json { out, comma: "" }
    }

    fn element(&mut self, value: &Value) -> io::Result<()> {
        write!(self.out, "{}\n{value}", self.comma)?;
        self.comma = ",";
        Ok(())
    }
}

impl Document for Json<'_> {
    fn begin(&mut self, session: &SessionRow) -> io::Result<()> {
        let folders: Vec<_> = session.folders.iter().map(|it| it.to_string_lossy()).collect();
        let about = json!({
            "id": session.id.as_str(),
            "title": session.title,
            "cwd": session.cwd.to_string_lossy(),
            "additionalDirectories": folders,
            "created": rfc3339(session.created),
            "updated": rfc3339(session.updated),
            "parent": session.parent.as_ref().map(SessionId::as_str),
            "mode": session.mode,
            "model": session.model,
            "cost": session.cost,
        });
        write!(self.out, "{{\"session\":{about},\n\"entries\":[")
    }

    fn turn(&mut self, turn: &TurnRow) -> io::Result<()> {
        self.element(&json!({
            "turn": turn.number,
            "kind": turn.kind.word(),
            "begun": rfc3339(turn.begun),
        }))
    }

    fn entry(&mut self, stored: &Stored) -> io::Result<()> {
        self.element(&json!({
            "turn": stored.turn,
            "seq": stored.seq,
            "at": rfc3339(stored.at),
            "entry": serde_json::to_value(&stored.entry)?,
            "tool_calls": stored.calls.iter().map(call).collect::<Vec<_>>(),
        }))
    }

    fn turn_over(&mut self, turn: &TurnRow, spent: Spent) -> io::Result<()> {
        self.element(&json!({
            "turn": turn.number,
            "ended": turn.ended.map(rfc3339),
            "stop": turn.stop,
            "modelMs": millis(spent.model),
            "toolsMs": millis(spent.tools),
            "waitingMs": millis(spent.waiting),
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
        "status": call.status.word(),
        "result": call.settled.text,
        "content": call.settled.content,
        "asked": rfc3339(call.asked),
        "ended": call.ended.map(rfc3339),
        "durationMs": call.settled.took.map(millis),
    })
}
