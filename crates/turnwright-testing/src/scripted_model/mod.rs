//! A scripted model: an OpenAI-compatible HTTP server on loopback that plays a scenario. A `POST` to
//! `…/chat/completions` is answered with the next reply, always as a stream, whatever else the request
//! contains. A `GET` of `…/models` lists one model, `scripted`, and is not recorded. All other requests get a 404.
//!
//! A scenario is `{"replies": [REPLY, …], "loop": false}`. A reply is a list of steps. Each chat request
//! consumes the next reply. After the last one, every reply is the text "The scenario is over."; with
//! `"loop": true` the replies start again. `{"when": "substring", "steps": […]}` is a reply to every
//! request whose last user message contains the substring, and is never consumed.
//!
//! A step is an object with one of these keys, here with all its options:
//!
//! - `{"text": "…", "chunks": 3, "repeat": 2, "every_ms": 5}`: the content, split into `chunks` deltas.
//!   The deltas are sent `repeat` times, with a pause of `every_ms` between two deltas.
//! - `{"thought": "…"}`: like `text`, but as `reasoning_content`.
//! - `{"call": {"name": "…", "arguments": {…}, "id": "call_1", "index": 0, "pieces": 2,
//!   "every_ms": 5}}`: a tool call whose arguments are split into `pieces` deltas. Arguments given as a
//!   string are sent unchanged. By default, ids are numbered within the server and indices within the
//!   reply; `"index": null` omits the index.
//! - `{"finish": "stop"}`: the finish reason. Without this step the reply ends with `tool_calls` if it
//!   contains a call, else with `stop`.
//! - `{"usage": {…}}`: a chunk without choices. It is preceded by the finish reason if that has not been
//!   sent.
//! - `{"delay_ms": 100}`: a pause.
//! - `{"data": JSON}`: an event with this data. `{"error": {…}}`: an event with an error, after which the
//!   reply continues. `{"raw": "…"}`: text that is added to the body unchanged.
//! - `{"done": false}`: omits `data: [DONE]` at the end.
//! - `{"end": "eof"}`: ends the body properly, but without a finish reason and `[DONE]`.
//! - `{"cut": true}`: closes the connection in the middle of the body.
//! - `{"hold": true}`: sends nothing until [`Server::release`] is called, once for each such step.
//! - `{"hang": true}`: sends nothing more until the client disconnects.
//!
//! The following steps can only be the first; `stall_headers_ms` can also precede one of the others:
//!
//! - `{"stall_headers_ms": 100}`: a pause before the response head.
//! - `{"status": 429, "headers": {"Retry-After": "1"}, "body": JSON, "content_type": "…"}`: a plain
//!   response. A body given as a string is sent unchanged.
//! - `{"refuse": true}`: closes the connection without a response.

pub mod http;
mod play;
mod scenario;

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use play::Connection;
pub use scenario::{Scenario, last_user_text};

/// The interval at which a connection checks whether the server was stopped or the client has
/// disconnected.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A received request.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// The body as JSON: null if it is empty, and a string with its text if it is not JSON.
    pub body: Value,
}

/// A running server. Dropping it closes all connections and waits for its threads, but on Windows.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server on loopback. Port 0 selects a free port.
    pub fn start(scenario: Scenario, port: u16) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let state = State {
            scenario,
            requests: Vec::new(),
            calls: 0,
            hung_up: 0,
            released: 0,
            stopped: false,
        };
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

    /// Returns all requests so far in order of arrival, including those that consume no reply.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.lock().requests.clone()
    }

    pub fn wait_for_requests(
        &self,
        count: usize,
        timeout: Duration,
    ) -> Result<Vec<Recorded>, String> {
        let state = self.shared.wait(timeout, |state| state.requests.len() >= count);
        let received = state.requests.len();
        if received < count {
            return Err(format!("{received} of {count} requests came within {timeout:?}"));
        }
        Ok(state.requests.clone())
    }

    /// Returns the number of replies during which the client disconnected.
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

    /// Lets a reply go on that is held, or the next one that will be.
    pub fn release(&self) {
        self.shared.update(|state| state.released += 1);
    }

    /// Adds a reply to the running scenario.
    pub fn push(&self, reply: Value) -> Result<(), String> {
        self.shared.lock().scenario.add(reply)
    }

    /// Waits for the request with this index, counted from 0, without a limit.
    pub fn request(&self, index: usize) -> Recorded {
        let state = self.shared.wait(Duration::MAX, |state| state.requests.len() > index);
        state.requests[index].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.update(|state| state.stopped = true);
        // Connecting is the only portable way to wake up `accept`. If the connection fails, joining
        // could block.
        let connected = TcpStream::connect(self.address);
        // A join error means that the thread panicked, and the panic has been printed already.
        if let Some(acceptor) = self.acceptor.take().filter(|_| connected.is_ok()) {
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
    /// How many replies that are held, or will be, may go on.
    released: usize,
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

    fn wait(&self, timeout: Duration, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |state| !holds(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sleeps. Returns early when the server is stopped.
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
            // The process is probably out of file descriptors, and some may be closed soon.
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
            // The call fails if the client has already disconnected, which is allowed.
            stream.shutdown(Shutdown::Both).ok();
        }
        // Under Wine a thread that writes to a client which was killed may never be woken up.
        if cfg!(not(windows)) {
            thread.join().ok();
        }
    }
}
