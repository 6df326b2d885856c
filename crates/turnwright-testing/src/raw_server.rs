//! A raw HTTP server for misbehaviour that the scripted model does not offer. The server reads a
//! request and then passes the connection to a closure.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::eventually;

/// Returns a port on which no server listens until the test starts one. It is below the ports that the
/// system chooses, so that the system gives it to no other test, and each call returns another one.
pub fn closed_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + u16::try_from(std::process::id() % 1_000).unwrap() * 10;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = (0..1_000).map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed));
    ports.find(is_free).unwrap()
}

/// A running server. Its threads end with their connections.
pub struct RawServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    /// The number of connections whose closure has returned.
    finished: Arc<Mutex<usize>>,
}

impl RawServer {
    /// Starts a server. It calls `handle` with the number of each request, counted from 0, and with
    /// the connection, which is closed afterwards. A request for the list of models, which the agent
    /// may send at any time, is answered with 404 and not counted.
    pub fn start(handle: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> RawServer {
        RawServer::reading(move |number, _, stream| handle(number, stream))
    }

    /// Starts a server like [`RawServer::start`], with the request (head and body) as another
    /// argument of `handle`.
    pub fn reading(
        handle: impl Fn(usize, &str, &mut TcpStream) + Send + Sync + 'static,
    ) -> RawServer {
        RawServer::on(TcpListener::bind("127.0.0.1:0").unwrap(), handle)
    }

    /// Starts a server like [`RawServer::reading`], whose `handle` also answers requests for the list of
    /// models.
    pub fn with_models(
        handle: impl Fn(usize, &str, &mut TcpStream) + Send + Sync + 'static,
    ) -> RawServer {
        RawServer::run(TcpListener::bind("127.0.0.1:0").unwrap(), true, handle)
    }

    /// Starts a server like [`RawServer::reading`], on this listener.
    pub fn on(
        listener: TcpListener,
        handle: impl Fn(usize, &str, &mut TcpStream) + Send + Sync + 'static,
    ) -> RawServer {
        RawServer::run(listener, false, handle)
    }

    fn run(
        listener: TcpListener,
        lists_models: bool,
        handle: impl Fn(usize, &str, &mut TcpStream) + Send + Sync + 'static,
    ) -> RawServer {
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let finished = Arc::<Mutex<usize>>::default();
        let server = RawServer { address, requests, finished };
        let (requests, finished) = (Arc::clone(&server.requests), Arc::clone(&server.finished));
        let handle = Arc::new(handle);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let handle = Arc::clone(&handle);
                let (requests, finished) = (Arc::clone(&requests), Arc::clone(&finished));
                std::thread::spawn(move || {
                    if let Some(request) = read_request(&stream) {
                        if !lists_models && request.starts_with("GET /v1/models ") {
                            return write_no_list(&mut stream);
                        }
                        let number = {
                            let mut requests = requests.lock().unwrap();
                            requests.push(request.clone());
                            requests.len() - 1
                        };
                        handle(number, &request, &mut stream);
                        *finished.lock().unwrap() += 1;
                    }
                });
            }
        });
        server
    }

    /// Returns the value for `OPENAI_BASE_URL`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns host and port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns every request so far, head and body.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the body of a request.
    pub fn body(&self, number: usize) -> Value {
        let requests = self.requests();
        let (_, body) = requests[number].split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// Waits for this number of requests.
    pub fn wait_for_requests(&self, count: usize) {
        eventually("a request", || self.requests.lock().unwrap().len() >= count);
    }

    /// Returns whether this number of connections has been handled completely.
    pub fn has_finished(&self, count: usize) -> bool {
        *self.finished.lock().unwrap() >= count
    }
}

/// Reads a request. Returns `None` if the client disconnects without one.
fn read_request(stream: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        if reader.read_line(&mut text).ok()? == 0 {
            return None;
        }
    }
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    text.push_str(&String::from_utf8(body).unwrap());
    Some(text)
}

fn write_no_list(stream: &mut TcpStream) {
    let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    // The write fails if the client has disconnected, which is allowed.
    stream.write_all(answer.as_bytes()).ok();
}

/// Blocks until the client has closed the connection.
pub fn wait_for_the_end(stream: &mut TcpStream) {
    while stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {}
}

/// Writes the head of an event stream whose body ends with the connection.
pub fn write_head(stream: &mut TcpStream) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    // The write fails if the client has disconnected, which is allowed.
    stream.write_all(head.as_bytes()).ok();
}

/// Answers with an event stream of this text.
pub fn write_stream(stream: &mut TcpStream, text: &str) {
    write_head(stream);
    stream.write_all(text.as_bytes()).ok();
}

/// Returns an event with a text delta.
pub fn text_event(text: &str) -> String {
    let choice = json!({ "index": 0, "delta": { "content": text }, "finish_reason": null });
    format!("data: {}\n\n", json!({ "choices": [choice] }))
}

/// Returns the event stream of a complete answer with this text.
pub fn text_stream(text: &str) -> String {
    let finish = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    format!("{}data: {finish}\n\ndata: [DONE]\n\n", text_event(text))
}
