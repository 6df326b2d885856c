//! An MCP server on HTTP, written without any library: well-behaved where a test says nothing else.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::agent::eventually;
use crate::raw_server::RawServer;

/// A request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `POST`, `GET` or `DELETE`.
    pub verb: String,
    /// The path with what follows the question mark.
    pub path: String,
    /// All lines of the head.
    pub head: String,
    /// What follows it.
    pub text: String,
    /// The same as JSON, if it is any.
    pub body: Value,
}

impl Seen {
    fn read(request: &str) -> Seen {
        let (head, text) = request.split_once("\r\n\r\n").unwrap();
        let mut words = head.split(' ');
        Seen {
            verb: words.next().unwrap().to_owned(),
            path: words.next().unwrap().to_owned(),
            head: head.to_owned(),
            text: text.to_owned(),
            body: serde_json::from_str(text).unwrap_or_default(),
        }
    }

    /// The method that is called; empty for GET and DELETE.
    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|it| it.split_once(':'));
        let (_, value) = lines.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }

    /// The answer with this result.
    pub fn result(&self, result: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result })
    }
}

/// A running server.
pub struct Stub {
    server: RawServer,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Stub {
    /// `play` has each request first, and says whether it has answered.
    pub fn start(play: impl Fn(&Seen, &mut TcpStream) -> bool + Send + Sync + 'static) -> Stub {
        Stub::on(TcpListener::bind("127.0.0.1:0").unwrap(), play)
    }

    /// The same on that port.
    pub fn on(
        listener: TcpListener,
        play: impl Fn(&Seen, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Stub {
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let all = Arc::clone(&seen);
        let server = RawServer::on(listener, move |_, request, stream| {
            let request = Seen::read(request);
            all.lock().unwrap().push(request.clone());
            if !play(&request, stream) {
                behave(&request, stream);
            }
        });
        Stub { server, seen }
    }

    /// One that does all as it should.
    pub fn good() -> Stub {
        Stub::start(|_, _| false)
    }

    /// Host and port.
    pub fn host(&self) -> String {
        self.server.host()
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.host())
    }

    /// As a client gives it to a session.
    pub fn server(&self, name: &str, headers: &[(&str, &str)]) -> Value {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        json!({ "type": "http", "name": name, "url": self.url(), "headers": headers })
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits for a request.
    pub fn wait_for(&self, what: &str, fits: impl Fn(&Seen) -> bool) {
        eventually(what, || self.seen().iter().any(&fits));
    }
}

/// What a good server does.
pub fn behave(request: &Seen, stream: &mut TcpStream) {
    let result = match (request.verb.as_str(), request.method()) {
        ("DELETE", _) => return answer(stream, "200 OK", "", ""),
        ("POST", "initialize") => {
            let hello = request.result(&json!({
                "protocolVersion": request.body["params"]["protocolVersion"],
                "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": "stub", "version": "1" },
            }));
            return answer_json(stream, "mcp-session-id: session-1\r\n", &hello);
        }
        ("POST", method) if method.starts_with("notifications/") => {
            return answer(stream, "202 Accepted", "", "");
        }
        ("POST", "tools/list") => tools(&["echo"]),
        ("POST", "tools/call") => {
            let text = request.body["params"]["arguments"].to_string();
            json!({ "content": [{ "type": "text", "text": text }] })
        }
        _ => return answer(stream, "405 Method Not Allowed", "", ""),
    };
    answer_json(stream, "", &request.result(&result));
}

/// The result of `tools/list`.
pub fn tools(names: &[&str]) -> Value {
    let tool = |it: &&str| json!({ "name": it, "inputSchema": { "type": "object" } });
    json!({ "tools": names.iter().map(tool).collect::<Vec<_>>() })
}

/// Answers with JSON, and these lines in the head.
pub fn answer_json(stream: &mut TcpStream, head: &str, body: &Value) {
    let head = format!("content-type: application/json\r\n{head}");
    answer(stream, "200 OK", &head, &body.to_string());
}

/// Answers, and closes the connection.
pub fn answer(stream: &mut TcpStream, status: &str, head: &str, body: &str) {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\n{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    // It fails if the client has gone away, which is its right.
    stream.write_all(text.as_bytes()).ok();
}

/// One event of a stream.
pub fn event(body: &Value) -> String {
    format!("event: message\ndata: {body}\n\n")
}
