//! Clients of an agent that is served on a socket. They read only when the test says so, and know no more of
//! HTTP and WebSockets than the agent's answers need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::LIMIT;

/// The response to a request.
pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Response {
    /// Returns the value of a header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
    }
}

/// Returns a request of the protocol.
pub fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A client of the HTTP transport. Each request has a socket of its own.
pub struct HttpClient {
    host: String,
    token: String,
}

impl HttpClient {
    /// A client for the agent at this address for WebSockets.
    pub fn new(url: &str, token: &str) -> HttpClient {
        let host = url.trim_start_matches("ws://").trim_end_matches("/acp");
        HttpClient { host: host.to_owned(), token: token.to_owned() }
    }

    /// Returns the line of the head that has the token.
    pub fn authorization(&self) -> String {
        format!("authorization: Bearer {}", self.token)
    }

    /// Opens a socket on which nothing is sent.
    pub fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(&self.host).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }

    /// Sends a request with these lines in its head, and reads the response.
    pub fn send(&self, head: &[&str], body: impl AsRef<[u8]>) -> Response {
        let body = body.as_ref();
        let mut socket = self.socket();
        let (head, length) = (head.join("\r\n"), body.len());
        let host = if head.contains("\r\nhost: ") { "" } else { "host: localhost\r\n" };
        let head = format!("{head}\r\n{host}connection: close\r\ncontent-length: {length}\r\n\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        // A body that is refused for its size may not be read.
        socket.write_all(body).ok();
        let mut reader = BufReader::new(socket);
        let (status, headers) = read_head(&mut reader);
        let mut body = String::new();
        reader.read_to_string(&mut body).unwrap();
        Response { status, headers, body }
    }

    /// Sends a message, as it is, on a connection or to open one.
    pub fn post_bytes(&self, connection: Option<&str>, message: impl AsRef<[u8]>) -> Response {
        let authorization = self.authorization();
        let mut head = vec!["POST /acp HTTP/1.1", &authorization, "content-type: application/json"];
        let connection = connection.map(|id| format!("acp-connection-id: {id}"));
        head.extend(connection.as_deref());
        self.send(&head, message)
    }

    /// Sends a message.
    pub fn post(&self, connection: Option<&str>, message: &Value) -> Response {
        self.post_bytes(connection, message.to_string())
    }

    /// Opens a connection, and returns its id.
    pub fn initialize(&self, version: u64) -> String {
        let params = json!({
            "protocolVersion": version, "clientCapabilities": {}, "capabilities": {},
            "info": { "name": "test", "version": "1" },
        });
        let answer = self.post(None, &request(1, "initialize", &params));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let message: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(
            (&message["id"], &message["result"]["protocolVersion"]),
            (&json!(1), &json!(version))
        );
        answer.header("acp-connection-id").unwrap().to_owned()
    }

    /// Opens the stream of events of a session, or of the connection.
    pub fn stream(&self, connection: &str, session: Option<&str>) -> Events {
        self.try_stream(connection, session).expect("a stream of events")
    }

    /// Opens a stream, unless the agent refuses.
    pub fn try_stream(&self, connection: &str, session: Option<&str>) -> Option<Events> {
        let mut socket = self.socket();
        let authorization = self.authorization();
        let session = session.map_or(String::new(), |id| format!("acp-session-id: {id}\r\n"));
        let head = format!(
            "GET /acp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{authorization}\r\n\
             accept: text/event-stream\r\nacp-connection-id: {connection}\r\n{session}\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(socket);
        let (status, headers) = read_head(&mut reader);
        (status == 200).then(|| {
            for (name, value) in [
                ("content-type", "text/event-stream"),
                ("cache-control", "no-store, no-transform"),
                ("x-accel-buffering", "no"),
            ] {
                let header = headers.iter().find(|header| header.0 == name).expect(name);
                assert_eq!(header.1, value);
            }
            Events(reader)
        })
    }

    /// Opens a session in this folder. Its answer comes on the stream of the connection.
    pub fn new_session(&self, connection: &str, cwd: &Value, events: &mut Events) -> String {
        let params = json!({ "cwd": cwd, "mcpServers": [] });
        let answer = self.post(Some(connection), &request(2, "session/new", &params));
        assert_eq!((answer.status, answer.body.as_str()), (202, ""));
        let answer = events.until(|message| message["id"] == 2);
        answer["result"]["sessionId"].as_str().unwrap().to_owned()
    }
}

fn read_head(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut lines = reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty());
    let first = lines.next().expect("the server closes the socket");
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: String| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    (status, lines.map(header).collect())
}

/// A stream of events that is being read.
pub struct Events(BufReader<TcpStream>);

impl Events {
    /// Reads messages until one fits.
    pub fn until(&mut self, fits: impl FnMut(&Value) -> bool) -> Value {
        self.next_where(fits).expect("the stream has ended")
    }

    /// The next message that fits. `None` at the end of the stream.
    pub fn next_where(&mut self, mut fits: impl FnMut(&Value) -> bool) -> Option<Value> {
        // The lengths of chunks are lines that are no data.
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let Some(data) = line.strip_prefix("data: ") else { continue };
            let message = serde_json::from_str(data).unwrap();
            if fits(&message) {
                return Some(message);
            }
        }
    }
}

/// A client of the WebSocket transport. Dropping it breaks the connection without a word.
pub struct WebSocketClient {
    socket: BufReader<TcpStream>,
    next_id: u64,
}

impl WebSocketClient {
    /// Opens a WebSocket.
    pub fn open(url: &str, token: &str) -> WebSocketClient {
        let http = HttpClient::new(url, token);
        let mut socket = http.socket();
        let head = format!(
            "GET /acp HTTP/1.1\r\nhost: localhost\r\n{}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
            http.authorization()
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut socket = BufReader::new(socket);
        assert_eq!(read_head(&mut socket).0, 101);
        WebSocketClient { socket, next_id: 0 }
    }

    /// Opens a WebSocket and initializes, in this version of the protocol.
    pub fn connect(url: &str, token: &str, version: u64) -> WebSocketClient {
        let mut client = WebSocketClient::open(url, token);
        let params = json!({
            "protocolVersion": version, "clientCapabilities": {}, "capabilities": {},
            "info": { "name": "test", "version": "1" },
        });
        assert_eq!(client.call("initialize", &params)["result"]["protocolVersion"], version);
        client
    }

    /// Opens a session in this folder.
    pub fn new_session(&mut self, cwd: &Value) -> String {
        let opened = self.call("session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned()
    }

    /// Sends a request, and returns its id.
    pub fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.next_id += 1;
        self.send_frame(0x81, request(self.next_id, method, params).to_string().as_bytes());
        self.next_id
    }

    /// Sends a request, and returns its answer. What comes before it is left out.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        self.until(|message| message["id"] == id && message["method"].is_null())
    }

    /// Sends a frame with this first byte. All zeros as the mask leave the payload as it is.
    pub fn send_frame(&mut self, first: u8, payload: &[u8]) {
        let length = match u8::try_from(payload.len()) {
            Ok(length @ ..126) => vec![0x80 | length],
            _ => [&[0xff], &(payload.len() as u64).to_be_bytes()[..]].concat(),
        };
        let frame = [&[first], &length[..], &[0; 4], payload].concat();
        self.socket.get_mut().write_all(&frame).unwrap();
    }

    /// Reads messages until one fits.
    pub fn until(&mut self, mut fits: impl FnMut(&Value) -> bool) -> Value {
        loop {
            let message = self.read();
            if fits(&message) {
                return message;
            }
        }
    }

    /// Reads the next message. Pings are answered.
    pub fn read(&mut self) -> Value {
        loop {
            let (first, payload) = self.read_frame();
            match first {
                0x81 => return serde_json::from_slice(&payload).unwrap(),
                0x89 => self.send_frame(0x8a, &payload),
                _ => panic!("a frame of the kind {first:#x}: {payload:?}"),
            }
        }
    }

    /// Reads a frame: its first byte and its payload.
    pub fn read_frame(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.socket.read_exact(&mut head).unwrap();
        let mut length = vec![
            0;
            match head[1] {
                126 => 2,
                127 => 8,
                _ => 0,
            }
        ];
        self.socket.read_exact(&mut length).unwrap();
        let read = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
        let length =
            if length.is_empty() { u64::from(head[1]) } else { length.iter().fold(0, read) };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.socket.read_exact(&mut payload).unwrap();
        (head[0], payload)
    }
}
