//! Writes a recording: a line for each event, in the order of their numbers as far as a line is one event.
//! A reply of a model is one line, with the number and the time of each of its pieces. Of a request, the messages are
//! kept that earlier requests did not have, without the instructions, which every version of this program words in its
//! own way.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::line_filter::LineFilter;
use crate::playback::RecordedReply;
use crate::recorder::{DROPPED, PROJECT, RawEvent, RawKind, RecordedSession, STORED};
use crate::scrub::{NumberedLine, release_text, scrub_message, scrub_reply, text_without_keys};
use crate::{FORMAT, FORMAT_FIELD};
use turnwright_llm::ConnectionFault;
use turnwright_rpc::LineDirection;
use turnwright_types::hash::std_hash;
use turnwright_types::ids::SessionId;

/// The most bytes of a recording.
const MAX_BYTES: usize = 128 * 1024 * 1024;
/// The numbers before this one are those of a prelude.
const FIRST_NUMBER: u64 = 10;
/// How long an event may stay in memory while nothing else happens.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// Writes the events of one recording.
pub(crate) struct RecordingWriter {
    file: BufWriter<File>,
    written: usize,
    filter: LineFilter,
    /// The replies that have not ended, by the number of the exchange, each with its bytes so far.
    replies: HashMap<u64, (RecordedReply, Vec<u8>)>,
    /// The messages of the last request, as digests.
    sent: Vec<u64>,
    /// The end of a message's text that may be the beginning of a key.
    held: Option<NumberedLine>,
    /// The beginnings of sessions that are being opened.
    beginnings: HashMap<SessionId, Vec<Value>>,
}

impl RecordingWriter {
    /// Writes the events until the last one.
    ///
    /// # Errors
    /// Those of the disk, or if the recording becomes too long.
    pub(crate) fn write(
        file: File,
        facts: impl FnOnce() -> Value,
        prelude: Option<(RecordedSession, Vec<u8>)>,
        events: &Receiver<RawEvent>,
        queued_bytes: &AtomicUsize,
    ) -> io::Result<()> {
        let session = prelude.as_ref().map(|(session, _)| session);
        let filter = session.map(|session| LineFilter::of_session(session.id.as_str()));
        let mut writer = RecordingWriter {
            file: BufWriter::new(file),
            written: 0,
            filter: filter.unwrap_or_default(),
            replies: HashMap::new(),
            sent: Vec::new(),
            held: None,
            beginnings: HashMap::new(),
        };
        let mut head = json!({
            FORMAT_FIELD: FORMAT,
            "version": env!("CARGO_PKG_VERSION"),
            "os": std::env::consts::FAMILY,
            "sandbox": sandbox_facts(session.is_some_and(|session| session.are_gaps_reported)),
        });
        if let (Value::Object(head), Value::Object(facts)) = (&mut head, facts()) {
            head.extend(facts);
        }
        writer.line(&head)?;
        if let Some((session, first_line)) = prelude {
            writer.write_prelude(&session, &first_line)?;
        }
        loop {
            match events.recv_timeout(FLUSH_INTERVAL) {
                Ok(RawEvent { kind: RawKind::Finish, number, milliseconds, .. }) => {
                    let open: Vec<_> = writer.replies.keys().copied().collect();
                    for exchange in open {
                        writer.end_reply(exchange, (number, milliseconds), Some(DROPPED), None)?;
                    }
                    if let Some((number, milliseconds, held)) = writer.held.take() {
                        writer.event(number, milliseconds, json!({ "out": held }))?;
                    }
                    writer.event(number, milliseconds, json!({ "end": true }))?;
                    return writer.file.flush();
                }
                Ok(event) => {
                    let size = event.kind.size();
                    writer.write_event(event)?;
                    queued_bytes.fetch_sub(size, Ordering::Relaxed);
                }
                // Whoever kills the process finds what has happened before.
                Err(RecvTimeoutError::Timeout) => writer.file.flush()?,
                Err(RecvTimeoutError::Disconnected) => return writer.file.flush(),
            }
        }
    }

    /// The lines that bring a session to where the recorded one is.
    fn write_prelude(&mut self, session: &RecordedSession, first_line: &[u8]) -> io::Result<()> {
        let mut first: Value = serde_json::from_slice(first_line)?;
        scrub_message(&mut first);
        let id = session.id.as_str();
        let cwd = &session.cwd;
        let (set_mode, mode) = if session.connection.is_v2 {
            let mode =
                json!({ "sessionId": id, "configId": "mode", "type": "id", "value": session.mode });
            ("session/set_config_option", mode)
        } else {
            ("session/set_mode", json!({ "sessionId": id, "modeId": session.mode }))
        };
        let mut lines = vec![json!({ "in": first })];
        if let Some(stored) = &session.stored {
            let params = json!({ "sessionId": id, "cwd": cwd, "mcpServers": [] });
            lines.push(json!({ "stored": stored }));
            lines.push(recorded_call("record-1", "session/resume", &params));
            if session.connection.is_v2 {
                let update = json!({ "sessionUpdate": "state_update", "state": "idle" });
                let params = json!({ "sessionId": id, "update": update });
                let idle =
                    json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
                lines.push(json!({ "out": idle }));
            }
            lines.push(recorded_answer("record-1", &json!({})));
        } else {
            let params = json!({ "cwd": cwd, "mcpServers": [] });
            lines.push(recorded_call("record-1", "session/new", &params));
            lines.push(recorded_answer("record-1", &json!({ "sessionId": id })));
        }
        lines.extend([
            recorded_call("record-2", set_mode, &mode),
            recorded_answer("record-2", &json!({})),
            json!({ "servers": session.servers }),
            json!({ "project": session.project }),
        ]);
        let first = FIRST_NUMBER - lines.len() as u64;
        (first..).zip(lines).try_for_each(|(number, line)| self.write_line(number, 0, line))
    }

    fn write_event(&mut self, event: RawEvent) -> io::Result<()> {
        let RawEvent { number, milliseconds, session, kind } = event;
        if self.filter.session().is_none()
            && let (RawKind::Fact { what: what @ (PROJECT | STORED), value }, Some(session)) =
                (&kind, &session)
        {
            self.beginnings.entry(session.clone()).or_default().push(json!({ *what: value }));
            return Ok(());
        }
        let is_line = matches!(kind, RawKind::Line(..));
        if !is_line && session.as_ref().map(SessionId::as_str) != self.filter.session() {
            return Ok(());
        }
        match kind {
            RawKind::Line(direction, line) => {
                self.write_message(number, milliseconds, direction, &line)
            }
            RawKind::Request { path, body } => {
                let to = number + FIRST_NUMBER;
                let reply = RecordedReply { to, ..RecordedReply::default() };
                self.replies.insert(number, (reply, Vec::new()));
                let mut request = describe_request(&mut self.sent, &body);
                request["id"] = to.into();
                request["path"] = path.into();
                self.event(number, milliseconds, json!({ "request": request }))
            }
            RawKind::Head { exchange, status, headers } => {
                let Some((reply, _)) = self.replies.get_mut(&exchange) else { return Ok(()) };
                reply.status = status;
                reply.headers =
                    headers.into_iter().map(|(name, value)| (name, value.into())).collect();
                reply.pieces.push((number + FIRST_NUMBER, milliseconds, 0));
                Ok(())
            }
            RawKind::Bytes { exchange, bytes } => {
                let Some((reply, body)) = self.replies.get_mut(&exchange) else { return Ok(()) };
                reply.pieces.push((number + FIRST_NUMBER, milliseconds, bytes.len()));
                body.extend_from_slice(&bytes);
                if body.len() > MAX_BYTES { Err(too_long()) } else { Ok(()) }
            }
            RawKind::End { exchange, end, fault } => {
                self.end_reply(exchange, (number, milliseconds), end, fault.as_ref())
            }
            RawKind::Fact { what, value } => {
                self.event(number, milliseconds, json!({ what: value }))
            }
            RawKind::Finish => Ok(()),
        }
    }

    /// Writes a message, and after the one that opens the session what it begins with.
    fn write_message(
        &mut self,
        number: u64,
        milliseconds: u64,
        direction: LineDirection,
        line: &[u8],
    ) -> io::Result<()> {
        let Ok(mut message) = serde_json::from_str(&text_without_keys(line)) else {
            // No replay needs a line that is not JSON, and the filter cannot judge it.
            return Ok(());
        };
        if !self.filter.should_record(direction, &message) {
            return Ok(());
        }
        scrub_message(&mut message);
        if direction == LineDirection::In {
            self.event(number, milliseconds, json!({ "in": message }))?;
        } else {
            let sent = (number, milliseconds, message);
            for (number, milliseconds, message) in release_text(&mut self.held, sent) {
                self.event(number, milliseconds, json!({ "out": message }))?;
            }
        }
        if self.beginnings.is_empty() {
            return Ok(());
        }
        let Some(opened) = self.filter.session().map(SessionId::from) else { return Ok(()) };
        let beginning = std::mem::take(&mut self.beginnings).remove(&opened).unwrap_or_default();
        beginning.into_iter().try_for_each(|event| self.event(number, milliseconds, event))
    }

    fn end_reply(
        &mut self,
        exchange: u64,
        (number, milliseconds): (u64, u64),
        end: Option<&str>,
        fault: Option<&ConnectionFault>,
    ) -> io::Result<()> {
        let Some((mut reply, bytes)) = self.replies.remove(&exchange) else { return Ok(()) };
        let number = number + FIRST_NUMBER;
        let (body, is_changed) = scrub_reply(&bytes);
        if is_changed {
            // The lengths are those of other bytes. All comes with the first piece, or what the agent
            // has said of it would come too early.
            let first = reply.pieces.get(1).copied().unwrap_or((number, milliseconds, 0));
            reply.pieces.truncate(1);
            reply.pieces.push((first.0, first.1, body.len()));
        }
        reply.body = body;
        reply.end = end.map(str::to_owned);
        reply.fault = fault.map(fault_name);
        // It is without keys already, and its pieces have the lengths of exactly these bytes.
        self.append(&json!({ "n": number, "ms": milliseconds, "reply": reply }).to_string())
    }

    fn event(&mut self, number: u64, milliseconds: u64, what: Value) -> io::Result<()> {
        self.write_line(number + FIRST_NUMBER, milliseconds, what)
    }

    fn write_line(&mut self, number: u64, milliseconds: u64, what: Value) -> io::Result<()> {
        let mut event = json!({ "n": number, "ms": milliseconds });
        if let (Value::Object(event), Value::Object(what)) = (&mut event, what) {
            event.extend(what);
        }
        self.line(&event)
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        self.append(&text_without_keys(value.to_string().as_bytes()))
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        self.written += text.len() + 1;
        if self.written > MAX_BYTES {
            return Err(too_long());
        }
        self.file.write_all(text.as_bytes())?;
        self.file.write_all(b"\n")
    }
}

fn recorded_call(id: &str, method: &str, params: &Value) -> Value {
    json!({ "in": { "jsonrpc": "2.0", "id": id, "method": method, "params": params } })
}

fn recorded_answer(id: &str, result: &Value) -> Value {
    json!({ "out": { "jsonrpc": "2.0", "id": id, "result": result } })
}

/// The abilities of the sandbox here, which decide about questions, and the text that will be shown about its
/// gaps.
fn sandbox_facts(are_gaps_reported: bool) -> Value {
    let confines = turnwright_sandbox::can_confine();
    // Otherwise a part that is not known yet would be told later in the session.
    turnwright_sandbox::namespace_support();
    let missing = (!confines).then(|| turnwright_sandbox::sandbox_support().missing.join("; "));
    let limitation = turnwright_sandbox::known_limitation().filter(|_| !are_gaps_reported);
    json!({ "confines": confines, "missing": missing, "limitation": limitation })
}

/// The name of a fault, or its words if it has some of its own.
fn fault_name(fault: &ConnectionFault) -> String {
    match fault {
        ConnectionFault::Tls(_) | ConnectionFault::Certificate(_) | ConnectionFault::Other(_) => {
            fault.to_string()
        }
        named => format!("{named:?}"),
    }
}

fn too_long() -> io::Error {
    io::Error::other(format!("it would be longer than {} MiB", MAX_BYTES / 1024 / 1024))
}

/// The part of a request that is new: how many of the last request's messages stay, and those that
/// follow them. `sent` has the messages of the last request, as digests.
pub(crate) fn describe_request(sent: &mut Vec<u64>, body: &[u8]) -> Value {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let messages = body.get("messages").or_else(|| body.get("input"));
    let all = messages.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let messages: Vec<_> = all
        .iter()
        .filter(|message| !matches!(message["role"].as_str(), Some("system" | "developer")))
        .collect();
    let digests: Vec<_> = messages.iter().map(|message| std_hash(message.to_string())).collect();
    let kept = digests.iter().zip(&*sent).take_while(|(new, old)| new == old).count();
    *sent = digests;
    json!({ "model": body["model"], "kept": kept, "messages": &messages[kept..] })
}
