//! An MCP server over HTTP, written without any library. It is well-behaved unless a test overrides it.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::eventually;
use crate::raw_server::RawServer;

/// A received request.
#[derive(Clone, Debug)]
pub struct McpRequest {
    /// `POST`, `GET` or `DELETE`.
    pub verb: String,
    /// The path and query.
    pub path: String,
    /// The request line and headers.
    pub head: String,
    /// The body as text.
    pub text: String,
    /// The body as JSON, or null.
    pub body: Value,
}

impl McpRequest {
    fn read(request: &str) -> McpRequest {
        let (head, text) = request.split_once("\r\n\r\n").unwrap();
        let mut words = head.split(' ');
        McpRequest {
            verb: words.next().unwrap().to_owned(),
            path: words.next().unwrap().to_owned(),
            head: head.to_owned(),
            text: text.to_owned(),
            body: serde_json::from_str(text).unwrap_or_default(),
        }
    }

    /// Returns the JSON-RPC method, which is empty for GET and DELETE.
    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|it| it.split_once(':'));
        let (_, value) = lines.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }

    /// Returns the JSON-RPC answer with this result.
    pub fn result(&self, result: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result })
    }
}

/// A running server.
pub struct McpHttpStub {
    server: RawServer,
    requests: Arc<Mutex<Vec<McpRequest>>>,
}

impl McpHttpStub {
    /// Starts a server. `handle` gets each request first and returns whether it has answered the
    /// request.
    pub fn start(
        handle: impl Fn(&McpRequest, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> McpHttpStub {
        McpHttpStub::on(TcpListener::bind("127.0.0.1:0").unwrap(), handle)
    }

    /// Starts a server like [`McpHttpStub::start`], on this listener.
    pub fn on(
        listener: TcpListener,
        handle: impl Fn(&McpRequest, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> McpHttpStub {
        let requests = Arc::<Mutex<Vec<McpRequest>>>::default();
        let all = Arc::clone(&requests);
        let server = RawServer::on(listener, move |_, request, stream| {
            let request = McpRequest::read(request);
            all.lock().unwrap().push(request.clone());
            if !handle(&request, stream) {
                answer_well(&request, stream);
            }
        });
        McpHttpStub { server, requests }
    }

    /// Starts a well-behaved server.
    pub fn good() -> McpHttpStub {
        McpHttpStub::start(|_, _| false)
    }

    /// Returns host and port.
    pub fn host(&self) -> String {
        self.server.host()
    }

    /// Returns the URL of the endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.host())
    }

    /// Returns the server in the format of `session/new`.
    pub fn server(&self, name: &str, headers: &[(&str, &str)]) -> Value {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        json!({ "type": "http", "name": name, "url": self.url(), "headers": headers })
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<McpRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub fn wait_for(&self, what: &str, fits: impl Fn(&McpRequest) -> bool) {
        eventually(what, || self.requests().iter().any(&fits));
    }
}

/// Answers as a well-behaved server.
pub fn answer_well(request: &McpRequest, stream: &mut TcpStream) {
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

/// Returns the result of `tools/list`.
pub fn tools(names: &[&str]) -> Value {
    let tool = |it: &&str| json!({ "name": it, "inputSchema": { "type": "object" } });
    json!({ "tools": names.iter().map(tool).collect::<Vec<_>>() })
}

/// Answers with JSON and these additional headers.
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
    // The write fails if the client has disconnected, which is allowed.
    stream.write_all(text.as_bytes()).ok();
}

/// Returns an event of an event stream.
pub fn event(body: &Value) -> String {
    format!("event: message\ndata: {body}\n\n")
}
