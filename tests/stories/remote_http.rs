//! The HTTP transport of an agent that is served on a socket, and what bad requests get (R-REM-7, R-REM-8, R-REM-14).

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::model_failures::KEY;
use turnwright_testing::scripted_model::{Scenario, Server};
use turnwright_testing::socket_clients::{Events, HttpClient, request};

use crate::agent::{LIMIT, calls, eventually, prompt, says};
use crate::socket_agent::PlainClient;
use crate::socket_server::{SocketServer, TOKEN};

/// An agent, its model and its files.
struct Served {
    http: HttpClient,
    server: SocketServer,
    model: Server,
    workspace: TempDir,
    _home: TempDir,
}

fn serve(replies: &Value) -> Served {
    let (home, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let scenario = Scenario::from_value(json!({ "replies": replies })).unwrap();
    let model = Server::start(scenario, 0).unwrap();
    let variables = [
        ("OPENAI_BASE_URL", model.base_url()),
        ("OPENAI_API_KEY", KEY.to_owned()),
        ("TURNWRIGHT_MODEL", "scripted".to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let server = SocketServer::start(home.path(), &variables, Duration::from_secs(60));
    let http = HttpClient::new(&server.url, TOKEN);
    Served { http, server, model, workspace, _home: home }
}

impl Served {
    fn new_session(&self, connection: &str, events: &mut Events) -> String {
        self.http.new_session(connection, &json!(self.workspace.path()), events)
    }
}

#[test]
fn r_rem_7_a_turn_with_a_question_goes_over_requests_and_streams() {
    let write = calls("write_file", &json!({ "path": "new.txt", "content": "new\n" }));
    let served = serve(&json!([write, says("Done.")]));
    let connection = served.http.initialize(1);
    let mut events = served.http.stream(&connection, None);
    let session = served.new_session(&connection, &mut events);
    let mut updates = served.http.stream(&connection, Some(&session));
    let sent =
        served.http.post(Some(&connection), &request(3, "session/prompt", &prompt(&session, "go")));
    assert_eq!(sent.status, 202);
    let question = updates.until(|message| message["method"] == "session/request_permission");
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": outcome });
    assert_eq!(served.http.post(Some(&connection), &answer).status, 202);
    let end = updates.until(|message| message["id"] == 3);
    assert_eq!(end["result"]["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(served.workspace.path().join("new.txt")).unwrap(), "new\n");
}

#[test]
fn r_rem_14_a_command_has_a_terminal_over_requests_and_streams() {
    let served =
        serve(&json!([calls("exec", &json!({ "command": "touch x; echo hi" })), says("Done.")]));
    let info = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": 2, "info": info, "capabilities": {} });
    let answer = served.http.post(None, &request(1, "initialize", &params));
    let connection = answer.header("acp-connection-id").unwrap();
    let mut events = served.http.stream(connection, None);
    let session = served.new_session(connection, &mut events);
    let mut updates = served.http.stream(connection, Some(&session));
    let prompt = request(3, "session/prompt", &prompt(&session, "go"));
    assert_eq!(served.http.post(Some(connection), &prompt).status, 202);
    let question = updates.until(|message| message["method"] == "session/request_permission");
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": outcome });
    assert_eq!(served.http.post(Some(connection), &answer).status, 202);
    let of_terminal = |message: &Value| message["params"]["update"]["terminalId"].is_string();
    let [opened, output, ended] = [(); 3].map(|()| updates.until(of_terminal));
    let opened = &opened["params"]["update"];
    assert_eq!(opened["command"], "touch x; echo hi");
    assert_eq!(opened["capabilities"], json!({ "cancel": {} }));
    assert_eq!(output["params"]["update"]["data"], "aGkK");
    assert_eq!(ended["params"]["update"]["exitStatus"]["exitCode"], 0);
    updates.until(|message| message["params"]["update"]["stopReason"] == "end_turn");
}

#[test]
fn r_rem_7_a_stream_goes_on_with_the_next_response_and_nothing_between_is_lost() {
    let held = json!([{ "text": "one " }, { "hold": true }, { "text": "two" }]);
    let served = serve(&json!([held]));
    let connection = served.http.initialize(1);
    let mut events = served.http.stream(&connection, None);
    let session = served.new_session(&connection, &mut events);
    let mut updates = served.http.stream(&connection, Some(&session));
    let taken = served.http.send(
        &[
            "GET /acp HTTP/1.1",
            &format!("authorization: Bearer {TOKEN}"),
            "accept: text/event-stream",
            &format!("acp-connection-id: {connection}"),
            &format!("acp-session-id: {session}"),
        ],
        "",
    );
    assert_eq!(taken.status, 409, "{}", taken.body);
    // The session is named by the header only.
    let mut params = prompt(&session, "go");
    params.as_object_mut().unwrap().remove("sessionId");
    let authorization = format!("authorization: Bearer {TOKEN}");
    let head = [
        "POST /acp HTTP/1.1",
        &authorization,
        "content-type: application/json; charset=utf-8",
        &format!("acp-connection-id: {connection}"),
        &format!("acp-session-id: {session}"),
    ];
    let sent = served.http.send(&head, request(3, "session/prompt", &params).to_string());
    assert_eq!(sent.status, 202, "{}", sent.body);
    let text = |message: &Value| message["params"]["update"]["content"]["text"].clone();
    updates.until(|message| text(message) == "one ");
    drop(updates);
    served.model.release();
    let mut updates = reopened(&served, &connection, &session);
    updates.until(|message| text(message) == "two");
    assert_eq!(updates.until(|message| message["id"] == 3)["result"]["stopReason"], "end_turn");
}

/// Opens a stream again as soon as the server has seen that its last response was given up.
fn reopened(served: &Served, connection: &str, session: &str) -> Events {
    let mut opened = None;
    eventually("the stream is free", || {
        opened = served.http.try_stream(connection, Some(session));
        opened.is_some()
    });
    opened.unwrap()
}

/// Both official clients keep the stream of a session that they close, and read there what follows when they
/// load it again. To the client of the Rust SDK its end is the end of the connection.
#[test]
fn r_rem_7_a_session_that_is_closed_and_loaded_again_has_the_same_stream() {
    let served = serve(&json!([says("one"), says("two")]));
    let connection = served.http.initialize(1);
    let mut events = served.http.stream(&connection, None);
    let session = served.new_session(&connection, &mut events);
    let mut updates = served.http.stream(&connection, Some(&session));
    served.http.post(Some(&connection), &request(3, "session/prompt", &prompt(&session, "go")));
    updates.until(|message| message["id"] == 3);
    served
        .http
        .post(Some(&connection), &request(4, "session/close", &json!({ "sessionId": session })));
    assert_eq!(updates.until(|message| message["id"] == 4)["result"], json!({}));
    let cwd = served.workspace.path();
    let params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] });
    served.http.post(Some(&connection), &request(5, "session/load", &params));
    let text = |message: &Value| message["params"]["update"]["content"]["text"].clone();
    updates.until(|message| text(message) == "one");
    updates.until(|message| message["id"] == 5);
    served.http.post(Some(&connection), &request(6, "session/prompt", &prompt(&session, "go on")));
    updates.until(|message| text(message) == "two");
    updates.until(|message| message["id"] == 6);
}

#[test]
fn r_rem_7_who_does_not_read_a_session_gets_the_answer_that_ends_it_with_those_of_the_connection() {
    let served = serve(&json!([]));
    let connection = served.http.initialize(1);
    let mut events = served.http.stream(&connection, None);
    let session = served.new_session(&connection, &mut events);
    served
        .http
        .post(Some(&connection), &request(3, "session/close", &json!({ "sessionId": session })));
    assert_eq!(events.until(|message| message["id"] == 3)["result"], json!({}));
}

#[test]
fn r_rem_7_deleting_a_connection_ends_its_turns_and_streams() {
    let held = json!([{ "text": "one " }, { "hold": true }]);
    let served = serve(&json!([held]));
    let connection = served.http.initialize(1);
    let mut events = served.http.stream(&connection, None);
    let session = served.new_session(&connection, &mut events);
    let mut updates = served.http.stream(&connection, Some(&session));
    served.http.post(Some(&connection), &request(3, "session/prompt", &prompt(&session, "go")));
    updates.until(|message| message["params"]["update"]["content"]["text"] == "one ");
    let delete = [
        "DELETE /acp HTTP/1.1",
        &format!("authorization: Bearer {TOKEN}"),
        &format!("acp-connection-id: {connection}"),
    ];
    assert_eq!(served.http.send(&delete, "").status, 202);
    served.model.wait_for_hang_ups(1, LIMIT).unwrap();
    assert_eq!(updates.next_where(|message| message["id"] == 3), None);
    assert_eq!(served.http.send(&delete, "").status, 404);
}

#[test]
fn r_rem_8_requests_that_make_no_sense_get_their_status_and_harm_nobody() {
    let served = serve(&json!([says("Hello.")]));
    let connection = served.http.initialize(1);
    let bearer = format!("authorization: Bearer {TOKEN}");
    let of_connection = format!("acp-connection-id: {connection}");
    let (post, get) = ("POST /acp HTTP/1.1", "GET /acp HTTP/1.1");
    let (json_type, events) = ("content-type: application/json", "accept: text/event-stream");
    let ping = request(9, "session/list", &json!({})).to_string();
    let prompt = request(9, "session/prompt", &json!({ "prompt": [] })).to_string();
    let table: Vec<(u16, Vec<&str>, &str)> = vec![
        (401, vec![post, json_type], &ping),
        (401, vec![post, json_type, "authorization: Bearer wrong"], &ping),
        (401, vec![get, events, &of_connection], ""),
        (401, vec!["GET / HTTP/1.1"], ""),
        (403, vec![post, json_type, &bearer, "origin: https://evil.example"], &ping),
        (403, vec!["OPTIONS /acp HTTP/1.1", "origin: https://evil.example"], ""),
        (403, vec!["OPTIONS /acp HTTP/1.1"], ""),
        (204, vec!["OPTIONS /acp HTTP/1.1", "origin: https://allowed.example"], ""),
        (404, vec!["GET /other HTTP/1.1", &bearer], ""),
        (405, vec!["PUT /acp HTTP/1.1", &bearer], ""),
        (415, vec![post, &bearer, &of_connection], &ping),
        (415, vec![post, &bearer, &of_connection, "content-type: text/plain"], &ping),
        (400, vec![post, &bearer, json_type], &ping),
        (404, vec![post, &bearer, json_type, "acp-connection-id: unknown"], &ping),
        (400, vec![post, &bearer, json_type, &of_connection], "[]"),
        (400, vec![post, &bearer, json_type], "[{}]"),
        (400, vec![post, &bearer, json_type, &of_connection], &prompt),
        (202, vec![post, &bearer, json_type, &of_connection], "no JSON"),
        (202, vec![post, &bearer, json_type, &of_connection], ""),
        (406, vec![get, &bearer, &of_connection], ""),
        (400, vec![get, &bearer, events], ""),
        (404, vec![get, &bearer, events, "acp-connection-id: unknown"], ""),
        (400, vec![get, &bearer, "upgrade: websocket"], ""),
        (400, vec![get, &bearer, "upgrade: h2c", "sec-websocket-version: 13"], ""),
        (404, vec!["DELETE /acp HTTP/1.1", &bearer, "acp-connection-id: unknown"], ""),
        (202, vec![post, &bearer, json_type, &of_connection], &ping),
    ];
    for (status, head, body) in table {
        let response = served.http.send(&head, body);
        assert_eq!(response.status, status, "{head:?} {body}: {}", response.body);
        let is_challenge = response.header("www-authenticate") == Some("Bearer");
        assert_eq!(is_challenge, status == 401);
        let is_allowed = response.header("access-control-allow-origin").is_some();
        assert_eq!(is_allowed, head.contains(&"origin: https://allowed.example"), "{head:?}");
    }
    let mut events = served.http.stream(&connection, None);
    let error = events.until(|message| !message["error"].is_null());
    assert_eq!((&error["id"], &error["error"]["code"]), (&Value::Null, &json!(-32700)));
    events.until(|message| message["id"] == 9);
}

#[test]
fn r_rem_8_an_initialize_that_is_refused_opens_no_connection() {
    let served = serve(&json!([]));
    let answer =
        served.http.post(None, &request(1, "initialize", &json!({ "protocolVersion": "x" })));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.body.contains("\"error\""), "{}", answer.body);
    assert_eq!(answer.header("acp-connection-id"), None);
}

#[test]
fn r_rem_8_sockets_that_say_nothing_keep_nobody_out() {
    let served = serve(&json!([says("Hello.")]));
    let silent: Vec<_> = (0..300).map(|_| served.http.socket()).collect();
    for mut socket in &silent {
        socket.write_all(b"GET /acp HTTP/1.1\r\nx: ").unwrap();
    }
    let mut client = PlainClient::connect(&served.server.url, 1);
    let params = json!({ "cwd": served.workspace.path(), "mcpServers": [] });
    let session = client.call("session/new", &params)["sessionId"].as_str().unwrap().to_owned();
    client.call("session/prompt", &prompt(&session, "hi"));
    assert_eq!(client.said(), "Hello.");
    // Those that came first had to make room.
    let mut first = &silent[0];
    assert_eq!(first.read(&mut [0]).unwrap_or(0), 0);
    client.close();
}

#[test]
fn r_rem_8_bytes_that_make_no_sense_close_only_their_own_socket_and_a_websocket_says_why() {
    let served = serve(&json!([]));
    let head = format!(
        "GET /acp HTTP/1.1\r\nhost: agent\r\nauthorization: Bearer {TOKEN}\r\nconnection: upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    let frame = |first: u8| [vec![first, 0x80 | 2, 0, 0, 0, 0], vec![0xff, 0xfe]].concat();
    let huge = [vec![0x81, 0xff], vec![0x7f; 8], vec![0; 4]].concat();
    // With the code of the frame that closes the WebSocket.
    let garbage: [(&str, Vec<u8>, u16); 7] = [
        ("", vec![0; 4096], 0),
        ("", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), 0),
        (&head, vec![0xff; 64], 1002),
        (&head, frame(0x81), 1007),
        (&head, frame(0x82), 1003),
        (&head, huge, 1009),
        (&head, vec![0x81, 5, b'h', b'e', b'l', b'l', b'o'], 1002),
    ];
    for (head, bytes, code) in garbage {
        let mut socket = served.http.socket();
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        // The socket is closed, in whatever way.
        socket.read_to_end(&mut answer).ok();
        let expected: &[u8] = if head.is_empty() { b"" } else { b"HTTP/1.1 101" };
        assert!(answer.starts_with(expected), "{bytes:?}");
        if !head.is_empty() {
            let close = [&[0x88, 2][..], &code.to_be_bytes()].concat();
            assert!(answer.ends_with(&close), "{bytes:?}: {answer:?}");
        }
    }
    PlainClient::connect(&served.server.url, 2).close();
}

#[test]
fn r_rem_8_a_websocket_gets_the_answers_of_a_pipe_to_what_makes_no_sense() {
    let served = serve(&json!([says("Hello.")]));
    for version in [1, 2] {
        let mut client = PlainClient::connect(&served.server.url, version);
        let long = format!(r#"{{"jsonrpc":"1.0","method":"{}"}}"#, "x".repeat(64 << 20));
        let no_params = r#"{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":5}"#;
        let table: [(&[u8], Value, i64); 8] = [
            (b"{oops", Value::Null, -32700),
            (b"{\"a\": \"\xff\"}", Value::Null, -32700),
            (b"[]", Value::Null, -32600),
            (br#"[{"jsonrpc":"2.0","id":1,"method":"session/list"}]"#, Value::Null, -32600),
            (br#"{"jsonrpc":"1.0","id":3,"method":"session/list"}"#, json!(3), -32600),
            (br#"{"jsonrpc":"2.0","id":4,"method":"session/unknown"}"#, json!(4), -32601),
            (no_params.as_bytes(), json!(5), -32600),
            (long.as_bytes(), Value::Null, -32600),
        ];
        // Too long a line is refused before the version matters.
        let rows = if version == 1 { 8 } else { 7 };
        for (line, id, code) in table.into_iter().take(rows) {
            let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
            client.send_line(line);
            let answer = client.until(|it| it["error"].is_object());
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{shown}");
        }
        // What needs no answer gets none, and the connection is as good as before.
        for line in ["", r#"{"jsonrpc":"2.0","method":"unknown"}"#, r#"{"id":7,"result":1}"#] {
            client.send_line(line.as_bytes());
        }
        client.call("session/list", &json!({}));
        client.close();
    }
}

#[test]
fn r_rem_8_one_connection_too_many_is_refused_until_another_one_ends() {
    let served = serve(&json!([]));
    let open: Vec<_> = (0..256).map(|_| served.http.initialize(1)).collect();
    let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
    let refused = served.http.post(None, &request(1, "initialize", &params));
    assert_eq!((refused.status, refused.body.as_str()), (503, "There are too many connections.\n"));
    let answer = served.http.post(Some(&open[0]), &request(2, "session/list", &json!({})));
    assert_eq!(answer.status, 202, "the others are served");
    let bearer = format!("authorization: Bearer {TOKEN}");
    let of_connection = format!("acp-connection-id: {}", open[1]);
    assert_eq!(
        served.http.send(&["DELETE /acp HTTP/1.1", &bearer, &of_connection], "").status,
        202
    );
    eventually("there is room again", || {
        served.http.post(None, &request(1, "initialize", &params)).status == 200
    });
}
