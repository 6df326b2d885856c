//! Reads a recording, and says what is wrong with one that cannot be played back.

use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{FORMAT, FORMAT_FIELD};
use turnwright_types::error_text::{io_error_text, json_error_text};

/// The most bytes that are read of a recording.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// Why a recording cannot be played back. Each is a sentence without its full stop.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("It cannot be read: {}", io_error_text(.0))]
    Io(#[from] io::Error),
    #[error("It is no recording: its first line does not say so")]
    NotARecording,
    #[error("It is empty")]
    Empty,
    #[error(
        "Its format is version {0}, and this program reads version {FORMAT}. Play it back with the \
         version of turnwright that has made it{1}"
    )]
    OtherFormat(Value, String),
    #[error("It was made on another kind of system ({0}), whose paths mean nothing here")]
    OtherSystem(String),
    #[error("Its first line is cut off, so there is nothing to play back")]
    NothingWhole,
    #[error("Line {0} is cut off. Remove that line to play back what is before it")]
    CutOff(usize),
    #[error("Line {line} is damaged: {why}")]
    Damaged { line: usize, why: String },
    #[error("It ends before a session was opened, so there is nothing to play back")]
    NoSession,
}

/// An event of a recording, which [`load_recording`] has read.
#[derive(Debug)]
pub struct RecordedEvent {
    /// Its line in the file, from 1.
    pub(crate) line: usize,
    /// Its place among all events.
    pub(crate) number: u64,
    pub(crate) milliseconds: u64,
    pub(crate) kind: EventKind,
}

/// Something that has happened.
#[derive(Debug)]
pub(crate) enum EventKind {
    /// The client has sent a message.
    In(Value),
    /// The agent has sent a message.
    Out(Value),
    /// The agent has asked the model.
    Request { id: u64, messages: Vec<Value> },
    /// All of the model's answer, at the time of its end.
    Reply(RecordedReply),
    /// The known facts about the session's MCP servers have changed.
    Servers(Vec<Value>),
    /// The project's settings about questions.
    Project(Value),
    /// The conversation that the session has from the store.
    Stored(Value),
    /// A tool has said how its call is shown.
    View(RecordedAnswer),
    /// A tool has said what it would do.
    Preview(RecordedAnswer),
    /// A tool has done it.
    Result(RecordedAnswer),
    /// The recording was ended properly.
    End,
}

/// The answer to a request to a model.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RecordedReply {
    /// The number of the request that it answers.
    pub(crate) to: u64,
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) headers: Map<String, Value>,
    #[serde(default)]
    pub(crate) body: String,
    /// Number, milliseconds and length of each piece, the head first.
    #[serde(default)]
    pub(crate) pieces: Vec<(u64, u64, usize)>,
    /// How it has ended, unless it is whole.
    #[serde(default)]
    pub(crate) end: Option<String>,
    /// Why the server was not reached.
    #[serde(default)]
    pub(crate) fault: Option<String>,
}

/// A tool's answer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RecordedAnswer {
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    pub(crate) answer: Value,
}

/// Reads a recording: its first line, and the events.
pub fn load_recording(path: &Path) -> Result<(Value, Vec<RecordedEvent>), RecordingError> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let is_cut = !text.ends_with('\n');
    let count = text.lines().count();
    let mut lines = text.lines().enumerate();
    let (_, first) = lines.next().ok_or(RecordingError::Empty)?;
    let head = check_head(first, is_cut && count == 1)?;
    let mut events = Vec::with_capacity(count);
    for (index, text) in lines {
        let line = index + 1;
        let event = serde_json::from_str(text)
            .map_err(|error| json_error_text(text, &error))
            .and_then(|value| read_event(line, value).ok_or_else(|| "it is no event".to_owned()));
        match event {
            Ok(event) => {
                if let Some(method) = foreign_method(&event) {
                    let why = format!("{method:?} is no request about a session");
                    return Err(RecordingError::Damaged { line, why });
                }
                events.push(event);
            }
            Err(_) if is_cut && line == count => return Err(RecordingError::CutOff(line)),
            Err(why) => return Err(RecordingError::Damaged { line, why }),
        }
    }
    let has_session = events.iter().any(|event| match &event.kind {
        EventKind::Out(message) => message["result"]["sessionId"].is_string(),
        kind => matches!(kind, EventKind::Stored(_)),
    });
    if !has_session {
        return Err(RecordingError::NoSession);
    }
    events.sort_by_key(|event| event.number);
    Ok((head, events))
}

/// The method of a client's message that no recording has, because it is not about a session: it could
/// change where a replay sends what it knows.
fn foreign_method(event: &RecordedEvent) -> Option<&str> {
    let EventKind::In(message) = &event.kind else { return None };
    let method = message["method"].as_str()?;
    let is_known = ["initialize", "authenticate", "$/cancel_request"].contains(&method)
        || ["session/", "_session/", "_turnwright/"]
            .iter()
            .any(|prefix| method.starts_with(prefix));
    (!is_known).then_some(method)
}

fn check_head(line: &str, is_cut: bool) -> Result<Value, RecordingError> {
    let head: Value = match serde_json::from_str(line) {
        Ok(head) => head,
        Err(_) if is_cut && line.contains(FORMAT_FIELD) => {
            return Err(RecordingError::NothingWhole);
        }
        Err(_) => return Err(RecordingError::NotARecording),
    };
    let format = head.get(FORMAT_FIELD).ok_or(RecordingError::NotARecording)?;
    if format != FORMAT {
        let maker = head["version"].as_str().map(|version| format!(", {version}"));
        return Err(RecordingError::OtherFormat(format.clone(), maker.unwrap_or_default()));
    }
    match head["os"].as_str() {
        Some(os) if os != std::env::consts::FAMILY => {
            Err(RecordingError::OtherSystem(os.to_owned()))
        }
        _ => Ok(head),
    }
}

fn read_event(line: usize, mut event: Value) -> Option<RecordedEvent> {
    let fields = event.as_object_mut()?;
    let number = fields.get("n")?.as_u64()?;
    let milliseconds = fields.get("ms")?.as_u64()?;
    let (name, what) = fields.into_iter().find(|field| field.0 != "n" && field.0 != "ms")?;
    let what = what.take();
    let kind = match name.as_str() {
        "in" => EventKind::In(what),
        "out" => EventKind::Out(what),
        "request" => {
            let id = what["id"].as_u64()?;
            EventKind::Request { id, messages: what["messages"].as_array()?.clone() }
        }
        "reply" => EventKind::Reply(RecordedReply::deserialize(what).ok().filter(fits)?),
        "view" => EventKind::View(RecordedAnswer::deserialize(what).ok()?),
        "preview" => EventKind::Preview(RecordedAnswer::deserialize(what).ok()?),
        "result" => EventKind::Result(RecordedAnswer::deserialize(what).ok()?),
        "servers" => EventKind::Servers(what.as_array().cloned().unwrap_or_default()),
        "project" => EventKind::Project(what),
        "stored" => EventKind::Stored(what),
        "end" => EventKind::End,
        _ => return None,
    };
    Some(RecordedEvent { line, number, milliseconds, kind })
}

/// Returns true if the pieces of a reply are those of its body.
fn fits(reply: &RecordedReply) -> bool {
    let length = reply.pieces.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.2));
    length == Some(reply.body.len())
}
