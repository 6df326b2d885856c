//! A server for what the scripted model is too well-behaved to do: it reads a request, and then a
//! closure has the naked connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::agent::eventually;

/// A running server. Its threads end with their connections.
pub struct RawServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    ended: Arc<Mutex<usize>>,
}

impl RawServer {
    /// Calls `play` with the number of each request, counted from 0, and its connection, which is
    /// closed afterwards.
    pub fn start(play: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> RawServer {
        RawServer::reading(move |number, _, stream| play(number, stream))
    }

    /// The same for a `play` that wants to know what the request says, head and body.
    pub fn reading(
        play: impl Fn(usize, &str, &mut TcpStream) + Send + Sync + 'static,
    ) -> RawServer {
        RawServer::on(TcpListener::bind("127.0.0.1:0").unwrap(), play)
    }

    /// The same on that port.
    pub fn on(
        listener: TcpListener,
        play: impl Fn(usize, &str, &mut TcpStream) + Send + Sync + 'static,
    ) -> RawServer {
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let ended = Arc::<Mutex<usize>>::default();
        let server = RawServer { address, requests, ended };
        let (requests, ended) = (Arc::clone(&server.requests), Arc::clone(&server.ended));
        let play = Arc::new(play);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let play = Arc::clone(&play);
                let (requests, ended) = (Arc::clone(&requests), Arc::clone(&ended));
                std::thread::spawn(move || {
                    if let Some(request) = read_request(&stream) {
                        let number = {
                            let mut requests = requests.lock().unwrap();
                            requests.push(request.clone());
                            requests.len() - 1
                        };
                        play(number, &request, &mut stream);
                        *ended.lock().unwrap() += 1;
                    }
                });
            }
        });
        server
    }

    /// Calls `play` with each request, head and body.
    pub fn start_with(play: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> RawServer {
        let seen = Arc::new(Mutex::new(None::<Arc<Mutex<Vec<String>>>>));
        let known = Arc::clone(&seen);
        let server = RawServer::start(move |number, stream| {
            let requests = known.lock().unwrap().clone();
            let request = requests.map(|it| it.lock().unwrap()[number].clone());
            play(&request.unwrap_or_default(), stream);
        });
        *seen.lock().unwrap() = Some(Arc::clone(&server.requests));
        server
    }

    /// What goes into `OPENAI_BASE_URL`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Host and port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Every request so far, head and body.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// The body of a request.
    pub fn body(&self, number: usize) -> Value {
        let requests = self.requests();
        let (_, body) = requests[number].split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// Waits until so many requests have come.
    pub fn wait_for_requests(&self, count: usize) {
        eventually("a request", || self.requests.lock().unwrap().len() >= count);
    }

    /// Whether so many connections have been played to their end.
    pub fn has_ended(&self, count: usize) -> bool {
        *self.ended.lock().unwrap() >= count
    }
}

/// The request, or nothing if the client has gone away without one.
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

/// Blocks until the client has closed the connection.
pub fn wait_for_the_end(stream: &mut TcpStream) {
    while stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {}
}

/// Writes the head of a stream whose body ends with the connection.
pub fn write_head(stream: &mut TcpStream) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    // It fails if the client has gone away, which is its right.
    stream.write_all(head.as_bytes()).ok();
}

/// Answers with a stream of just this text.
pub fn write_stream(stream: &mut TcpStream, text: &str) {
    write_head(stream);
    stream.write_all(text.as_bytes()).ok();
}

/// One event with a piece of text in it.
pub fn text_event(text: &str) -> String {
    let choice = json!({ "index": 0, "delta": { "content": text }, "finish_reason": null });
    format!("data: {}\n\n", json!({ "choices": [choice] }))
}

/// A whole answer that says this.
pub fn text_stream(text: &str) -> String {
    let finish = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    format!("{}data: {finish}\n\ndata: [DONE]\n\n", text_event(text))
}
