//! A scripted model: an OpenAI-compatible HTTP server on loopback that plays a scenario file.
//! For tests, demos and bug reports. A `POST` to `…/chat/completions` is answered with the next
//! reply, always as a stream and whatever else the request asks for; a `GET` of `…/models` lists
//! one model, `scripted`; all else is a 404.
//!
//! ```text
//! cargo run --example scripted_model -- examples/scenarios/tools.json [--port N]
//! ```
//!
//! prints `listening on http://127.0.0.1:PORT/v1` on stdout, then a line per request on stderr.
//! Tests and benches take this file in as a module and use [`Scenario`] and [`Server`].
//!
//! A scenario is `{"replies": [REPLY, …], "loop": false}`. A reply is a list of steps. Each chat
//! request uses up the next one; after the last comes the text "The scenario is over.", or with
//! `"loop": true` the first again. `{"when": "substring", "steps": […]}` is a reply for every
//! request whose last user message contains the substring, and is never used up.
//!
//! A step is an object with one of these keys, here with all its options:
//!
//! - `{"text": "…", "chunks": 3, "repeat": 2, "every_ms": 5}`: content in that many deltas, all of
//!   them so many times over, with a pause between two deltas.
//! - `{"thought": "…"}`: the same as `reasoning_content`.
//! - `{"call": {"name": "…", "arguments": {…}, "id": "call_1", "index": 0, "pieces": 2,
//!   "every_ms": 5}}`: a tool call, its arguments in so many deltas. Arguments given as a string are
//!   sent as they are. Ids count up within the server and indices within the reply; `"index": null`
//!   leaves the index out.
//! - `{"finish": "stop"}`: the finish reason. Without this step the reply ends with `tool_calls` if
//!   it called a tool, else with `stop`.
//! - `{"usage": {…}}`: a chunk without choices. The finish reason goes first if it is still due.
//! - `{"delay_ms": 100}`: silence.
//! - `{"data": JSON}`: one event of your own. `{"error": {…}}`: one that holds an error; the reply
//!   goes on after it. `{"raw": "…"}`: text that goes into the body as it is.
//! - `{"done": false}`: no `data: [DONE]` at the end.
//! - `{"end": "eof"}`: the body ends here, in good order, but with neither a finish reason nor
//!   `[DONE]`.
//! - `{"cut": true}`: the connection is closed in the middle of the body.
//! - `{"hang": true}`: silence until the client goes away.
//!
//! Three more can only stand first, the first of them also in front of the other two:
//!
//! - `{"stall_headers_ms": 100}`: silence before the response head.
//! - `{"status": 429, "headers": {"Retry-After": "1"}, "body": JSON, "content_type": "…"}`: a plain
//!   response. A body given as a string is sent as it is.
//! - `{"refuse": true}`: the connection is closed without a response.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::missing_errors_doc,
    reason = "as an example only `main` is used, as a module of a test only what that test needs"
)]

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{env, fs};

use serde_json::Value;

use play::Connection;
pub use scenario::Scenario;

// The paths are written out because Cargo would take `examples/http.rs` for an example.
#[path = "scripted_model/http.rs"]
pub(crate) mod http;
#[path = "scripted_model/play.rs"]
mod play;
#[path = "scripted_model/scenario.rs"]
mod scenario;

/// How long a stopped server or a client that is gone can stay unnoticed.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[expect(clippy::print_stderr, reason = "a program's way to say what is wrong")]
fn main() -> ExitCode {
    let Err(problem) = run();
    eprintln!("scripted_model: {problem}");
    ExitCode::FAILURE
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "what the program is there for")]
fn run() -> Result<Infallible, String> {
    const USAGE: &str = "usage: scripted_model SCENARIO [--port N]";
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (file, port) = match arguments[..] {
        [file] => (file, "0"),
        [file, "--port", port] | ["--port", port, file] => (file, port),
        _ => return Err(USAGE.to_owned()),
    };
    let port = port.parse().map_err(|_| USAGE)?;
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let scenario = Scenario::parse(&text).map_err(|problem| format!("{file}: {problem}"))?;
    let server = Server::start(scenario, port).map_err(|error| format!("port {port}: {error}"))?;
    println!("listening on {}", server.base_url());
    let mut number = 0;
    loop {
        let Recorded { path, body, .. } = server.request(number);
        number += 1;
        let messages = body["messages"].as_array().map_or(0, Vec::len);
        eprintln!("request {number}: {path}, model {}, {messages} messages", body["model"]);
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// Null without a body, and the text as a string if it is not JSON.
    pub body: Value,
}

/// The running server. Dropping it closes all connections and waits for its threads.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Port 0 is any free port.
    pub fn start(scenario: Scenario, port: u16) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let state = State { scenario, requests: Vec::new(), calls: 0, hung_up: 0, stopped: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Ok(Server { address, shared, acceptor: Some(acceptor) })
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Every request so far, also those the scenario has nothing to do with, in order of arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.lock().requests.clone()
    }

    pub fn wait_for_requests(
        &self,
        count: usize,
        timeout: Duration,
    ) -> Result<Vec<Recorded>, String> {
        let state = self.shared.wait(timeout, |state| state.requests.len() >= count);
        let came = state.requests.len();
        if came < count {
            return Err(format!("{came} of {count} requests came within {timeout:?}"));
        }
        Ok(state.requests.clone())
    }

    /// How many replies the client did not wait to the end of.
    pub fn hung_up(&self) -> usize {
        self.shared.lock().hung_up
    }

    pub fn wait_for_hang_ups(&self, count: usize, timeout: Duration) -> Result<(), String> {
        let hung_up = self.shared.wait(timeout, |state| state.hung_up >= count).hung_up;
        if hung_up < count {
            return Err(format!("the client hung up {hung_up} of {count} times in {timeout:?}"));
        }
        Ok(())
    }

    /// Adds a reply to the running scenario.
    pub fn push(&self, reply: Value) -> Result<(), String> {
        self.shared.lock().scenario.add(reply)
    }

    fn request(&self, index: usize) -> Recorded {
        let state = self.shared.wait(Duration::MAX, |state| state.requests.len() > index);
        state.requests[index].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.update(|state| state.stopped = true);
        // There is no other portable way out of `accept`. Without it the thread is not waited for.
        let called = TcpStream::connect(self.address);
        // A thread that panicked has said so already.
        if let Some(acceptor) = self.acceptor.take().filter(|_| called.is_ok()) {
            acceptor.join().ok();
        }
    }
}

#[derive(Debug)]
struct State {
    scenario: Scenario,
    requests: Vec<Recorded>,
    calls: usize,
    hung_up: usize,
    stopped: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    fn wait(&self, timeout: Duration, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |state| !is_so(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Ends early when the server is stopped.
    fn sleep(&self, length: Duration) {
        drop(self.wait(length, |state| state.stopped));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut connections: Vec<(Weak<TcpStream>, JoinHandle<()>)> = Vec::new();
    loop {
        let accepted = listener.accept();
        if shared.lock().stopped {
            break;
        }
        let Ok((stream, _)) = accepted else {
            // Out of file descriptors, most likely: some may be free in a moment.
            shared.sleep(LOOK_EVERY);
            continue;
        };
        let stream = Arc::new(stream);
        let connection = Connection { stream: Arc::clone(&stream), shared: Arc::clone(shared) };
        connections.retain(|(_, thread)| !thread.is_finished());
        connections.push((Arc::downgrade(&stream), thread::spawn(move || connection.run())));
    }
    for (stream, thread) in connections {
        if let Some(stream) = stream.upgrade() {
            // It fails if the client was faster, which is as good.
            stream.shutdown(Shutdown::Both).ok();
        }
        thread.join().ok();
    }
}
