//! Reads a recording, says what is wrong with one that cannot be played back, and answers from it in place of the
//! outside world. It never answers earlier than the replay has come: pieces of the model's answers and results of
//! tools keep their places among the client's lines.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, StreamExt, unfold};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::bytes::Bytes;

use crate::outside::{AnswerKind, Outside, current_session};
use crate::{FORMAT, FORMAT_FIELD, PLAYED_LIVE};
use turnwright_llm::{ConnectionFault, Exchange, PlayedResponse};
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
    /// A tool has answered.
    Answer(AnswerKind, RecordedAnswer),
    /// The recording was ended properly.
    End,
}

/// The answer to a request to a model.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<String>,
    /// Why the server was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
        "view" => EventKind::Answer(AnswerKind::View, RecordedAnswer::deserialize(what).ok()?),
        "preview" => {
            EventKind::Answer(AnswerKind::Preview, RecordedAnswer::deserialize(what).ok()?)
        }
        "result" => EventKind::Answer(AnswerKind::Result, RecordedAnswer::deserialize(what).ok()?),
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

/// The result of a call that a recording does not have.
const UNRECORDED: &str =
    "This call is not in the recording, and nothing is done while one is played back.";

/// An event that the driver of a replay must know about.
#[derive(Debug)]
pub(crate) enum PlaybackEvent {
    /// The agent has sent a message.
    Message(Value),
    /// The agent has made the recorded request of this number, with the same or another content.
    ModelRequested { request: u64, body: Vec<u8> },
    /// The agent has taken the piece of an answer that has this number.
    PieceTaken(u64),
    /// The agent does something that the recording does not have.
    Unrecorded(String),
    /// The agent has ended.
    Ended,
}

/// The outside world as a recording has it.
#[derive(Debug)]
pub(crate) struct Playback {
    /// The answers of the model, in the order of the requests.
    replies: Vec<RecordedReply>,
    /// The index of the reply that the next request gets.
    next_reply: AtomicUsize,
    calls: Vec<PlayedCall>,
    /// How far the replay has come: everything up to this number may be known.
    position: watch::Sender<u64>,
    event_sender: SyncSender<PlaybackEvent>,
    /// True if another model is asked, so that its requests go out and no order is kept.
    asks_model: bool,
    /// The abilities of the sandbox where the recording was made.
    sandbox: Value,
    servers: Vec<Value>,
    /// The project's settings about questions.
    project: Value,
}

#[derive(Debug)]
struct PlayedCall {
    number: u64,
    kind: AnswerKind,
    call: RecordedAnswer,
    is_taken: AtomicBool,
}

impl Playback {
    pub(crate) fn new(
        head: &Value,
        events: &[RecordedEvent],
        asks_model: bool,
        event_sender: SyncSender<PlaybackEvent>,
    ) -> Playback {
        let mut replies: Vec<RecordedReply> = Vec::new();
        let mut calls = Vec::new();
        let mut servers: Vec<Value> = Vec::new();
        let mut project: Option<Value> = None;
        for event in events {
            match &event.kind {
                EventKind::Reply(reply) => {
                    let mut reply = reply.clone();
                    if reply.pieces.is_empty() {
                        reply.pieces.push((event.number, event.milliseconds, 0));
                    }
                    replies.push(reply);
                }
                EventKind::Answer(kind, call) => calls.push(PlayedCall {
                    number: event.number,
                    kind: *kind,
                    call: call.clone(),
                    is_taken: AtomicBool::new(false),
                }),
                EventKind::Servers(known) => servers.clone_from(known),
                EventKind::Project(known) if project.is_none() => project = Some(known.clone()),
                _ => {}
            }
        }
        replies.sort_by_key(|reply| reply.to);
        Playback {
            project: project.unwrap_or_default(),
            replies,
            next_reply: AtomicUsize::new(0),
            calls,
            position: watch::Sender::new(if asks_model { u64::MAX } else { 0 }),
            event_sender,
            asks_model,
            sandbox: head["sandbox"].clone(),
            servers,
        }
    }

    /// Lets everything up to this number be known.
    pub(crate) fn advance(&self, number: u64) {
        self.position.send_if_modified(|position| {
            let is_further = number > *position;
            *position = number.max(*position);
            is_further
        });
    }

    fn take(&self, kind: AnswerKind, tool: &str, arguments: &Value) -> Option<(u64, Value)> {
        let mut same = self.calls.iter().filter(|played| {
            played.kind == kind && played.call.tool == tool && played.call.arguments == *arguments
        });
        let first = same.clone().next();
        let not_taken = same.find(|played| !played.is_taken.swap(true, Ordering::Relaxed));
        // Another model may ask twice.
        let Some(call) = not_taken.or(first.filter(|_| self.asks_model)) else {
            if kind == AnswerKind::Result {
                let what = format!("a call of {tool} with the arguments {arguments}");
                self.event_sender.send(PlaybackEvent::Unrecorded(what)).ok();
            }
            return None;
        };
        Some((call.number, call.call.answer.clone()))
    }

    pub(crate) fn begin_exchange(&self, body: &dyn Fn() -> Vec<u8>) -> Exchange {
        if self.asks_model {
            return Exchange::Live;
        }
        // Nothing else is asked of the network, such as the list of models.
        let played = current_session()
            .and_then(|_| self.replies.get(self.next_reply.fetch_add(1, Ordering::Relaxed)));
        let Some(reply) = played.cloned() else {
            if current_session().is_some() {
                let what = "a request to the model".to_owned();
                self.event_sender.send(PlaybackEvent::Unrecorded(what)).ok();
            }
            let why = "it is not in the recording".to_owned();
            return Exchange::Played(std::future::ready(Err(ConnectionFault::Other(why))).boxed());
        };
        let request = PlaybackEvent::ModelRequested { request: reply.to, body: body() };
        self.event_sender.send(request).ok();
        Exchange::Played(self.play(reply))
    }

    fn play(
        &self,
        reply: RecordedReply,
    ) -> BoxFuture<'static, Result<PlayedResponse, ConnectionFault>> {
        let position = self.position.clone();
        let event_sender = self.event_sender.clone();
        let first = reply.pieces.first().map(|piece| piece.0).unwrap_or_default();
        async move {
            wait_for(&position, first).await;
            event_sender.send(PlaybackEvent::PieceTaken(first)).ok();
            if let Some(fault) = &reply.fault {
                return Err(fault_named(fault));
            }
            if reply.status == 0 {
                // It was given up before the server had answered.
                return std::future::pending().await;
            }
            let headers = reply
                .headers
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect();
            let status = reply.status;
            Ok(PlayedResponse { status, headers, body: body(reply, position, event_sender) })
        }
        .boxed()
    }
}

impl Outside for Playback {
    fn is_deterministic(&self) -> bool {
        true
    }

    fn can_confine(&self) -> bool {
        self.sandbox["confines"] == true
    }

    fn missing_sandbox(&self) -> String {
        self.sandbox["missing"].as_str().unwrap_or_default().to_owned()
    }

    fn sandbox_limitation(&self) -> Option<&str> {
        self.sandbox["limitation"].as_str()
    }

    fn project(&self) -> Option<&Value> {
        Some(&self.project)
    }

    /// The facts as they were known at the end of the recorded session.
    fn servers(&self) -> Option<&[Value]> {
        Some(&self.servers)
    }

    fn is_played(&self, tool: &str) -> bool {
        !PLAYED_LIVE.contains(&tool)
    }

    fn recorded_answer(&self, kind: AnswerKind, tool: &str, arguments: &Value) -> Option<Value> {
        self.take(kind, tool, arguments).map(|(_, answer)| answer)
    }

    fn recorded_result<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Value,
    ) -> BoxFuture<'a, Result<Value, &'static str>> {
        async move {
            let Some((number, answer)) = self.take(AnswerKind::Result, tool, arguments) else {
                return Err(UNRECORDED);
            };
            wait_for(&self.position, number).await;
            Ok(answer)
        }
        .boxed()
    }
}

/// The pieces of an answer, each once the replay has reached it.
fn body(
    reply: RecordedReply,
    position: watch::Sender<u64>,
    event_sender: SyncSender<PlaybackEvent>,
) -> BoxStream<'static, io::Result<Bytes>> {
    let bytes = Bytes::from(reply.body);
    let mut pieces: VecDeque<_> = reply.pieces.into_iter().skip(1).collect();
    let mut end = reply.end;
    let mut at = 0;
    unfold((), move |()| {
        let piece = pieces.pop_front();
        let end = if piece.is_none() { end.take() } else { None };
        let position = position.clone();
        let event_sender = event_sender.clone();
        let bytes = bytes.clone();
        let start = at;
        at += piece.map_or(0, |(_, _, length)| length);
        async move {
            match (piece, end.as_deref()) {
                (Some((number, _, length)), _) => {
                    wait_for(&position, number).await;
                    event_sender.send(PlaybackEvent::PieceTaken(number)).ok();
                    Some((Ok(bytes.slice(start..start + length)), ()))
                }
                (None, Some("broken")) => Some((Err(io::ErrorKind::ConnectionReset.into()), ())),
                // Nobody has seen how it would have gone on.
                (None, Some(_)) => std::future::pending().await,
                (None, None) => None,
            }
        }
    })
    .boxed()
}

async fn wait_for(position: &watch::Sender<u64>, number: u64) {
    // Fails only if the sender is gone, and this is one.
    position.subscribe().wait_for(|reached| *reached >= number).await.ok();
}

fn fault_named(name: &str) -> ConnectionFault {
    match name {
        "Refused" => ConnectionFault::Refused,
        "UnknownHost" => ConnectionFault::UnknownHost,
        "Unreachable" => ConnectionFault::Unreachable,
        "TimedOut" => ConnectionFault::TimedOut,
        "Closed" => ConnectionFault::Closed,
        words => match words.strip_prefix(ConnectionFault::CERTIFICATE_WORDS) {
            Some(reason) => ConnectionFault::Certificate(reason.to_owned()),
            None => ConnectionFault::Other(words.to_owned()),
        },
    }
}
