//! A connection: reads requests and plays the reply to each, step by step.

use std::io::{self, BufReader, Write};
use std::iter;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::scenario::{Call, Step};
use super::{LOOK_EVERY, Recorded, Shared, http};

/// The number of events per write if a text is repeated without pauses.
const BATCH: usize = 64;

/// Why a connection ends in the middle of a reply.
enum ConnectionOver {
    /// The client has disconnected.
    HungUp,
    /// The scenario closes the connection, or the server is stopped.
    Closed,
}

impl From<io::Error> for ConnectionOver {
    fn from(_: io::Error) -> ConnectionOver {
        ConnectionOver::HungUp
    }
}

pub(super) struct Connection {
    pub(super) stream: Arc<TcpStream>,
    pub(super) shared: Arc<Shared>,
}

impl Connection {
    pub(super) fn run(&self) {
        if let Err(ConnectionOver::HungUp) = self.serve() {
            self.shared.update(|state| state.hung_up += 1);
        }
    }

    fn serve(&self) -> Result<(), ConnectionOver> {
        // The call fails if the connection is already closed, which the next read reports.
        self.stream.set_nodelay(true).ok();
        let mut reader = BufReader::new(&*self.stream);
        loop {
            match http::read_request(&mut reader) {
                Ok(Some((method, request))) => self.answer(&method, request)?,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return self.send(&http::error_answer(400, &error.to_string()));
                }
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }

    fn answer(&self, method: &str, request: Recorded) -> Result<(), ConnectionOver> {
        let route = request.path.split('?').next().unwrap_or_default();
        let is_chat = method == "POST" && route.ends_with("/chat/completions");
        if method == "GET" && route.ends_with("/models") {
            let model =
                json!({ "id": "scripted", "object": "model", "created": 0, "owned_by": "nobody" });
            let list = json!({ "object": "list", "data": [model] });
            return self.send(&http::json_answer(200, &list));
        }
        let body = request.body.clone();
        let (number, steps) = self.shared.update(|state| {
            state.requests.push(request);
            let steps = (is_chat && body.is_object()).then(|| state.scenario.choose(&body));
            (state.requests.len(), steps)
        });
        if let Some(steps) = steps {
            let id = format!("chatcmpl-{number}");
            let model = body["model"].clone();
            Player { connection: self, id, model, calls: 0, opened: false, finished: false }
                .play(&steps)
        } else if is_chat {
            self.send(&http::error_answer(400, "the body is not a JSON object"))
        } else {
            self.send(&http::error_answer(404, "there is only chat/completions and models here"))
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), ConnectionOver> {
        // The first write to a connection that the client has closed succeeds.
        self.look()?;
        Ok((&*self.stream).write_all(bytes)?)
    }

    fn pause(&self, length: Duration) -> Result<(), ConnectionOver> {
        let start = Instant::now();
        loop {
            self.look()?;
            let remaining = length.saturating_sub(start.elapsed());
            if remaining.is_zero() {
                return Ok(());
            }
            self.shared.sleep(remaining.min(LOOK_EVERY));
        }
    }

    /// Waits until the test lets the reply go on.
    fn hold(&self) -> Result<(), ConnectionOver> {
        loop {
            self.look()?;
            let is_released = self.shared.update(|state| {
                let is_released = state.released > 0;
                state.released -= usize::from(is_released);
                is_released
            });
            if is_released {
                return Ok(());
            }
            self.shared.sleep(LOOK_EVERY);
        }
    }

    /// Checks whether the server is stopped or the client has disconnected. A client that closes only its
    /// sending side counts as disconnected; HTTP clients do not do that.
    fn look(&self) -> Result<(), ConnectionOver> {
        if self.shared.lock().stopped {
            return Err(ConnectionOver::Closed);
        }
        self.stream.set_nonblocking(true)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        match peeked {
            Ok(0) => Err(ConnectionOver::HungUp),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(ConnectionOver::HungUp),
            _ => Ok(()),
        }
    }
}

/// The state of a reply that is being sent.
struct Player<'a> {
    connection: &'a Connection,
    id: String,
    model: Value,
    calls: usize,
    opened: bool,
    finished: bool,
}

impl Player<'_> {
    fn play(mut self, steps: &[Step]) -> Result<(), ConnectionOver> {
        let mut is_done_due = true;
        for step in steps {
            if !step.is_before_head() {
                self.open()?;
            }
            match step {
                Step::StallHeaders(length) | Step::Delay(length) => {
                    self.connection.pause(*length)?;
                }
                Step::Answer(response) => return self.connection.send(response),
                Step::Deltas { key, parts, repeat, every } => {
                    let deltas = parts.iter().map(|part| json!({ *key: part }));
                    self.send_deltas(deltas, *repeat, *every)?;
                }
                Step::Call(call) => self.call(call)?,
                Step::Finish(reason) => self.finish(reason)?,
                Step::Usage(usage) => {
                    self.finish_if_due()?;
                    let mut chunk = self.chunk(&json!([]));
                    chunk["usage"] = usage.clone();
                    self.connection.send(&http::event(&chunk))?;
                }
                Step::Data(data) => self.connection.send(&http::event(data))?,
                // An empty chunk would end the body.
                Step::Raw(text) if text.is_empty() => {}
                Step::Raw(text) => self.connection.send(&http::chunk(text))?,
                Step::Done(is_due) => is_done_due = *is_due,
                Step::EndOfBody => return self.connection.send(http::LAST_CHUNK),
                Step::Hang => self.connection.pause(Duration::MAX)?,
                Step::Hold => self.connection.hold()?,
                Step::Cut | Step::Refuse => return Err(ConnectionOver::Closed),
            }
        }
        self.open()?;
        self.finish_if_due()?;
        // The end is sent in one write, because a client may close the connection when it sees
        // `[DONE]`.
        let mut end = if is_done_due { http::chunk("data: [DONE]\n\n") } else { Vec::new() };
        end.extend(http::LAST_CHUNK);
        self.connection.send(&end)
    }

    fn open(&mut self) -> Result<(), ConnectionOver> {
        if self.opened {
            return Ok(());
        }
        self.opened = true;
        self.connection.send(http::STREAM_HEAD)
    }

    fn call(&mut self, call: &Call) -> Result<(), ConnectionOver> {
        let index = call.index.clone().unwrap_or_else(|| json!(self.calls));
        self.calls += 1;
        let number = self.connection.shared.update(|state| {
            state.calls += 1;
            state.calls
        });
        let id = call.id.clone().unwrap_or_else(|| format!("call_{number}"));
        let function = json!({ "name": call.name, "arguments": "" });
        let head = json!({ "id": id, "type": "function", "function": function });
        let pieces = call.arguments.iter().map(|it| json!({ "function": { "arguments": it } }));
        let deltas = iter::once(head).chain(pieces).map(|mut delta| {
            if !index.is_null() {
                delta["index"] = index.clone();
            }
            json!({ "tool_calls": [delta] })
        });
        self.send_deltas(deltas, 1, call.every)
    }

    fn send_deltas(
        &self,
        deltas: impl Iterator<Item = Value>,
        repeat: usize,
        every: Duration,
    ) -> Result<(), ConnectionOver> {
        let events: Vec<Vec<u8>> = deltas.map(|it| self.event(&it, &Value::Null)).collect();
        let batch = if repeat > 1 && every.is_zero() { BATCH } else { 1 };
        let total = events.len().saturating_mul(repeat);
        let mut waiting = Vec::new();
        for (number, event) in events.iter().cycle().take(total).enumerate() {
            if number > 0 && number % batch == 0 {
                self.connection.send(&waiting)?;
                self.connection.pause(every)?;
                waiting.clear();
            }
            waiting.extend(event);
        }
        self.connection.send(&waiting)
    }

    fn finish_if_due(&mut self) -> Result<(), ConnectionOver> {
        match (self.finished, self.calls) {
            (true, _) => Ok(()),
            (false, 0) => self.finish("stop"),
            (false, _) => self.finish("tool_calls"),
        }
    }

    fn finish(&mut self, reason: &str) -> Result<(), ConnectionOver> {
        self.finished = true;
        self.connection.send(&self.event(&json!({}), &json!(reason)))
    }

    fn event(&self, delta: &Value, finish_reason: &Value) -> Vec<u8> {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish_reason });
        http::event(&self.chunk(&json!([choice])))
    }

    fn chunk(&self, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": 0,
            "model": self.model,
            "choices": choices,
        })
    }
}
