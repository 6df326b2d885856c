//! A client that reaches its agent over a WebSocket, whose connection may be lost.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
#[cfg(unix)]
use std::os::fd::OwnedFd as OwnedEnd;
#[cfg(windows)]
use std::os::windows::io::OwnedHandle as OwnedEnd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use turnwright_testing::process_waits::Input;
use turnwright_testing::{AgentPipes, LIMIT, Launch, Transport, read_messages};

use crate::socket_server::SocketServer;

/// How many seconds a session goes on when its connection is lost, as a variable of the agent.
pub const KEEP: &str = "TEST_KEEP_SECONDS";

/// The agents that are served now, by their homes: a client that comes again finds its agent.
static SERVERS: LazyLock<Mutex<HashMap<PathBuf, Weak<SocketServer>>>> =
    LazyLock::new(Mutex::default);

/// An agent that is served on a socket, and the connection of a client with it.
pub struct SocketAgent {
    server: Arc<SocketServer>,
    connection: Connection,
}

impl SocketAgent {
    /// The address of the agent for WebSockets.
    pub fn url(&self) -> &str {
        &self.server.url
    }

    /// Breaks the connection without a word.
    pub fn lose(&mut self) {
        self.connection.lost.cancel();
        drop(self.connection.ended.recv_timeout(LIMIT));
    }
}

impl Transport for SocketAgent {
    type Ended = io::Result<()>;

    fn start(launch: &Launch) -> (Self, AgentPipes) {
        let mut servers = SERVERS.lock().unwrap();
        let running = servers.get(&launch.home).and_then(Weak::upgrade);
        let server = running.unwrap_or_else(|| {
            let keep = launch.variables.iter().find(|(name, _)| name == KEEP);
            let keep = keep.map_or(60, |(_, seconds)| seconds.parse().unwrap());
            let keep = Duration::from_secs(keep);
            Arc::new(SocketServer::start(&launch.home, &launch.variables, keep))
        });
        servers.insert(launch.home.clone(), Arc::downgrade(&server));
        drop(servers);
        let (connection, stdin, stdout) = Connection::open(&server.url);
        let pipes = AgentPipes { stdin: Input::to(stdin), messages: read_messages(stdout) };
        (SocketAgent { server, connection }, pipes)
    }

    fn wait_for_end(&mut self) -> io::Result<()> {
        self.connection.ended.recv_timeout(LIMIT).expect("the connection does not end")
    }

    fn check_end(ended: io::Result<()>, _: bool) {
        ended.unwrap();
    }

    fn abandon(&mut self) {
        self.connection.lost.cancel();
    }
}

/// A connection on a thread of its own.
struct Connection {
    lost: CancellationToken,
    ended: Receiver<io::Result<()>>,
}

impl Connection {
    /// Opens a connection; it is closed when the returned writer is dropped.
    fn open(url: &str) -> (Connection, PipeWriter, PipeReader) {
        let ((input, stdin), (stdout, output)) = (pipe().unwrap(), pipe().unwrap());
        let (sender, ended) = channel();
        let (url, lost) = (url.to_owned(), CancellationToken::new());
        let breaks = lost.clone();
        thread::spawn(move || {
            let (input, output) =
                (File::from(OwnedEnd::from(input)), File::from(OwnedEnd::from(output)));
            let result = SocketServer::bridge(&url, input, output, &breaks);
            // If the test has failed, the receiver may be gone.
            sender.send(result).ok();
        });
        (Connection { lost, ended }, stdin, stdout)
    }
}

/// A client that sends requests one by one and looks only at their answers and at updates.
pub struct PlainClient {
    connection: Connection,
    stdin: PipeWriter,
    messages: BufReader<PipeReader>,
    next_id: u64,
    /// The updates so far.
    pub updates: Vec<Value>,
}

impl PlainClient {
    /// Connects and initializes, in this version of the protocol.
    pub fn connect(url: &str, version: u64) -> PlainClient {
        let (connection, stdin, stdout) = Connection::open(url);
        let messages = BufReader::new(stdout);
        let mut client =
            PlainClient { connection, stdin, messages, next_id: 0, updates: Vec::new() };
        let params = json!({
            "protocolVersion": version, "clientCapabilities": {}, "capabilities": {},
            "info": { "name": "test", "version": "1" },
        });
        assert_eq!(client.call("initialize", &params)["protocolVersion"], version);
        client
    }

    /// Sends a request, and returns its result.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        let mut answer = self.until(|message| message["id"] == id && message["method"].is_null());
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Sends a request, and returns its id.
    pub fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.next_id += 1;
        let request =
            json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params });
        writeln!(self.stdin, "{request}").unwrap();
        self.next_id
    }

    /// Sends a line as it is.
    pub fn send_line(&mut self, line: &[u8]) {
        self.stdin.write_all(line).unwrap();
        self.stdin.write_all(b"\n").unwrap();
    }

    /// Reads messages until one fits. Updates are kept.
    pub fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.messages.read_line(&mut line).unwrap(), 0, "the connection is closed");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["method"] == "session/update" {
                self.updates.push(message["params"]["update"].clone());
            }
            if fits(&message) {
                return message;
            }
        }
    }

    /// Closes the connection in due form, and waits until it is closed.
    pub fn close(self) {
        drop(self.stdin);
        self.connection.ended.recv_timeout(LIMIT).unwrap().unwrap();
    }
}

impl PlainClient {
    /// The words of the model so far.
    pub fn said(&self) -> String {
        let chunks = self.updates.iter().filter(|it| it["sessionUpdate"] == "agent_message_chunk");
        chunks.filter_map(|it| it["content"]["text"].as_str()).collect()
    }

    /// Reads messages until the turn has ended, in version 2.
    pub fn until_idle(&mut self) {
        self.until(|message| message["params"]["update"]["state"] == "idle");
    }
}
