//! The model server of the benchmark: a minimal HTTP server that records when each request was
//! complete and when each write of its response began. The first words of the last message select
//! the response.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How the agent asks for a summary of the conversation.
const SUMMARY_REQUEST: &str = "Write a summary that lets you go on";

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\n\r\n";
/// The number of events per write in a burst.
const BURST_EVENTS_PER_WRITE: usize = 64;

/// A request, and the times of its response.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// The number of its connection, counted from 0.
    pub(crate) connection: usize,
    /// The size of the request body.
    pub(crate) bytes: usize,
    /// The time when the request had been read completely.
    pub(crate) received: Instant,
    /// The time right before each write of the response. The first write contains the head.
    pub(crate) writes: Vec<Instant>,
}

/// The running server. Its threads run until the process exits.
#[derive(Debug)]
pub(crate) struct Model {
    address: SocketAddr,
    log: Arc<Mutex<Vec<Exchange>>>,
}

impl Model {
    pub(crate) fn start() -> io::Result<Model> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let log = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&log);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { break };
                let connection = Connection { number, stream, log: Arc::clone(&shared) };
                // An error means that the agent has closed the connection.
                thread::spawn(move || drop(connection.serve()));
            }
        });
        Ok(Model { address, log })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Removes and returns the exchanges since the last call.
    pub(crate) fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut lock(&self.log))
    }
}

fn lock(log: &Mutex<Vec<Exchange>>) -> MutexGuard<'_, Vec<Exchange>> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Connection {
    number: usize,
    stream: TcpStream,
    log: Arc<Mutex<Vec<Exchange>>>,
}

/// A step of a response.
enum Part {
    /// Writes the text in one write.
    Write(String),
    /// Waits.
    Pause(Duration),
    /// Waits until the agent has closed the connection.
    Hang,
}

impl Connection {
    fn serve(&self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let mut reader = BufReader::new(&self.stream);
        while let Some(body) = read_request(&mut reader)? {
            let received = Instant::now();
            let Ok(request) = serde_json::from_slice::<Value>(&body) else {
                (&self.stream).write_all(list_of_models().as_bytes())?;
                continue;
            };
            let (connection, bytes) = (self.number, body.len());
            let exchange = Exchange { connection, bytes, received, writes: Vec::new() };
            lock(&self.log).push(exchange);
            let uses_responses_api = request["input"].is_array();
            for part in if uses_responses_api { response() } else { answer(&request) } {
                self.play(part, received, &mut reader)?;
            }
        }
        self.stream.shutdown(Shutdown::Both)
    }

    fn play(&self, part: Part, received: Instant, reader: &mut impl Read) -> io::Result<()> {
        match part {
            Part::Write(text) => {
                self.record_write(received);
                (&self.stream).write_all(text.as_bytes())
            }
            Part::Pause(length) => {
                thread::sleep(length);
                Ok(())
            }
            Part::Hang => io::copy(reader, &mut io::sink()).map(drop),
        }
    }

    /// Records the time of a write in the exchange of the request received at `received`, unless
    /// [`Model::take`] has already removed it.
    fn record_write(&self, received: Instant) {
        let mut log = lock(&self.log);
        let ours = |it: &&mut Exchange| it.received == received && it.connection == self.number;
        if let Some(exchange) = log.iter_mut().rev().find(ours) {
            exchange.writes.push(Instant::now());
        }
    }
}

/// The response to the only request without a body.
fn list_of_models() -> String {
    let list = r#"{"object":"list","data":[{"id":"one"},{"id":"two"}]}"#;
    let length = list.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{list}"
    )
}

/// Reads the body of the next request. Returns `None` if the agent has closed the connection.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(body))
}

/// Selects the response to a request by the first words of its last message. A tool result and the request
/// for a summary get the response to `say`.
fn answer(request: &Value) -> Vec<Part> {
    let last = request["messages"].as_array().and_then(|it| it.last());
    // Other agents send the content in parts.
    let content = |it: &'_ Value| match it["content"].as_array() {
        Some(parts) => parts.last().map(|it| it["text"].clone()).unwrap_or_default(),
        None => it["content"].clone(),
    };
    let content = last.map(content).unwrap_or_default();
    let text = content.as_str().unwrap_or_default();
    let is_result = last.is_some_and(|it| it["role"] == "tool");
    // The request for a summary may be a part of the message with the prompt.
    let is_summary = text.contains(SUMMARY_REQUEST);
    let mut words = if is_result || is_summary { "say" } else { text }.split_whitespace();
    let word = words.next().unwrap_or_default();
    let number = words.next().and_then(|it| it.parse().ok()).unwrap_or(0);
    match word {
        "burst" => burst(number, BURST_EVENTS_PER_WRITE),
        "drip" => burst(number, 1),
        "stream" => stream(number),
        "slow" => slow(),
        "read" => call("read_file", &json!({ "path": "small.txt" })),
        "run" => call("exec", &json!({ "command": "sleep 777; true" })),
        "look" => call("read_file", &json!({ "path": "long.rs" })),
        "edit" => call("edit_file", &edit(number)),
        "write" => write(number),
        "count" => call("exec", &json!({ "command": "seq 1 1000000" })),
        "remote" => call("mcp__bench0__echo", &json!({ "field_0": "a" })),
        "change" => call("mcp__bench0__tool_1", &json!({ "field_0": "a" })),
        "true" => call("exec", &json!({ "command": "true" })),
        "hang" => vec![Part::Write(format!("{HEAD}{}", delta("begun"))), Part::Hang],
        _ => with_end(vec![Part::Write(format!("{HEAD}{}", delta("Good.")))], "stop"),
    }
}

/// The response to `slow` by the Responses API, for agents that know no other.
fn response() -> Vec<Part> {
    let event = |kind: &str, mut body: Value| {
        body["type"] = kind.into();
        chunk(&format!("event: {kind}\ndata: {body}\n\n"))
    };
    let message = |content: Value| json!({ "type": "message", "role": "assistant", "id": "m1", "content": content });
    let text = json!([{ "type": "output_text", "text": "begun" }]);
    let usage = json!({ "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 });
    let item = |content| json!({ "output_index": 0, "item": message(content) });
    let start = event("response.created", json!({ "response": { "id": "r1" } }))
        + &event("response.output_item.added", item(json!([])));
    let word = event(
        "response.output_text.delta",
        json!({ "item_id": "m1", "output_index": 0, "content_index": 0, "delta": "begun" }),
    );
    let end = event("response.output_item.done", item(text))
        + &event("response.completed", json!({ "response": { "id": "r1", "usage": usage } }));
    let pause = || Part::Pause(Duration::from_millis(20));
    let write = |it| Part::Write(it);
    vec![
        write(format!("{HEAD}{start}")),
        pause(),
        write(word),
        pause(),
        write(format!("{end}0\r\n\r\n")),
    ]
}

/// A response of `count` deltas.
fn burst(count: usize, events_per_write: usize) -> Vec<Part> {
    let all: Vec<_> = (0..count).map(|it| delta(&format!(" word {it}"))).collect();
    let mut parts = vec![Part::Write(HEAD.to_owned())];
    parts.extend(all.chunks(events_per_write).map(|it| Part::Write(it.concat())));
    with_end(parts, "stop")
}

/// A response that repeats the number 40 times in two seconds.
fn stream(number: usize) -> Vec<Part> {
    let mut parts = vec![Part::Write(HEAD.to_owned())];
    for _ in 0..40 {
        parts.push(Part::Pause(Duration::from_millis(50)));
        parts.push(Part::Write(delta(&format!("{number} "))));
    }
    with_end(parts, "stop")
}

/// A response of one word, with a pause before and after it so that it is not delayed by other writes.
fn slow() -> Vec<Part> {
    let pause = || Part::Pause(Duration::from_millis(20));
    let word = Part::Write(delta("begun"));
    with_end(vec![Part::Write(HEAD.to_owned()), pause(), word, pause()], "stop")
}

fn call(name: &str, arguments: &Value) -> Vec<Part> {
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": function });
    let event = event(&json!({ "tool_calls": [call] }), &Value::Null);
    with_end(vec![Part::Write(format!("{HEAD}{event}"))], "tool_calls")
}

/// The arguments for an edit of one line.
fn edit(line: usize) -> Value {
    let old = format!("let value_{line} = compute({line});");
    let new = format!("let edited_{line} = compute({line});");
    json!({ "path": "longer.rs", "edits": [{ "old_text": old, "new_text": new }] })
}

/// A call that writes a file of 7 MB, in deltas of 16 KiB.
fn write(number: usize) -> Vec<Part> {
    let line = "a line of a large file that the model has written at once\n";
    let content = line.repeat(7_000_000 / line.len());
    let arguments =
        json!({ "path": format!("large-{number}.txt"), "content": content }).to_string();
    let function = json!({ "name": "write_file", "arguments": "" });
    let first = json!({ "index": 0, "id": "call_1", "type": "function", "function": function });
    let mut parts = vec![Part::Write(HEAD.to_owned())];
    let mut push = |call: Value| {
        let delta = event(&json!({ "tool_calls": [call] }), &Value::Null);
        parts.push(Part::Write(delta));
    };
    push(first);
    for piece in arguments.as_bytes().chunks(16 * 1024) {
        let piece = String::from_utf8_lossy(piece);
        push(json!({ "index": 0, "function": { "arguments": piece } }));
    }
    with_end(parts, "tool_calls")
}

/// Adds the end of the response. The last chunk is a separate write, as most servers send it.
fn with_end(mut parts: Vec<Part>, finish: &str) -> Vec<Part> {
    let last = event(&json!({}), &json!(finish));
    parts.push(Part::Write(format!("{last}{}", chunk("data: [DONE]\n\n"))));
    parts.push(Part::Write("0\r\n\r\n".to_owned()));
    parts
}

fn delta(text: &str) -> String {
    event(&json!({ "content": text }), &Value::Null)
}

fn event(delta: &Value, finish: &Value) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    let object = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000,
        "model": "bench", "choices": [choice]
    });
    chunk(&format!("data: {object}\n\n"))
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}
