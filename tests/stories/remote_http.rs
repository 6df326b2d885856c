//! The HTTP transport of an agent that is served on a socket (R-REM-7, R-REM-14).

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::model_failures::KEY;
use turnwright_testing::scripted_model::{Scenario, Server};
use turnwright_testing::socket_clients::{Events, HttpClient, request};

use crate::agent::{LIMIT, calls, eventually, prompt, says};
use crate::socket_server::{SocketServer, TOKEN};

/// An agent, its model and its files.
pub struct Served {
    pub http: HttpClient,
    pub server: SocketServer,
    pub model: Server,
    pub workspace: TempDir,
    _home: TempDir,
}

pub fn serve(replies: &Value) -> Served {
    let (home, workspace) =
        (turnwright_testing::temporary_folder(), turnwright_testing::temporary_folder());
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
    let command = if cfg!(windows) { "type nul >x& echo hi" } else { "touch x; echo hi" };
    let served = serve(&json!([calls("exec", &json!({ "command": command })), says("Done.")]));
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
    let mut next = || updates.until(of_terminal)["params"]["update"].clone();
    let (opened, output) = (next(), next());
    let mut ended = next();
    if cfg!(windows) {
        // `cmd` may write the end of the line by itself.
        assert!(output["data"] == "aGkNCg==" || output["data"] == "aGk=", "{output}");
        while ended["data"].is_string() {
            ended = next();
        }
    } else {
        assert_eq!(output["data"], "aGkK");
    }
    assert_eq!(opened["command"], command);
    assert_eq!(opened["capabilities"], json!({ "cancel": {} }));
    assert_eq!(ended["exitStatus"]["exitCode"], 0);
    updates.until(|message| message["params"]["update"]["stopReason"] == "end_turn");
}

#[test]
fn v2_subagents_come_with_the_stream_of_the_session_that_has_started_them() {
    let task = json!({ "description": "look", "prompt": "the task", "type": "explore" });
    let found = json!({ "when": "the task", "steps": says("Found.") });
    let served = serve(&json!([calls("agent", &task), says("Done."), found]));
    let info = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": 2, "info": info, "capabilities": {} });
    let answer = served.http.post(None, &request(1, "initialize", &params));
    let connection = answer.header("acp-connection-id").unwrap();
    let mut events = served.http.stream(connection, None);
    let session = served.new_session(connection, &mut events);
    let mut updates = served.http.stream(connection, Some(&session));
    let sent =
        served.http.post(Some(connection), &request(3, "session/prompt", &prompt(&session, "go")));
    assert_eq!(sent.status, 202);
    let answer = updates.until(|message| message["params"]["update"]["messageId"] == "answer");
    assert_ne!(answer["params"]["sessionId"], session.as_str());
    updates.until(|message| {
        message["params"]["update"]["stopReason"] == "end_turn"
            && message["params"]["sessionId"] == session.as_str()
    });
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
    // Until the server has seen that, it may send to the response that nobody reads.
    let mut updates = reopened(&served, &connection, &session);
    served.model.release();
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
fn r_rem_9_a_web_page_opens_a_websocket_with_the_token_as_a_subprotocol() {
    let served = serve(&json!([]));
    let mut socket = served.http.socket();
    let handshake = format!(
        "GET /acp HTTP/1.1\r\nhost: localhost\r\norigin: https://allowed.example\r\n\
         connection: keep-alive\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         sec-websocket-protocol: acp.v1, bearer.{TOKEN}\r\n\r\n"
    );
    socket.write_all(handshake.as_bytes()).unwrap();
    let lines = BufReader::new(socket).lines().map(Result::unwrap);
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    assert!(head[0].contains(" 101 "), "{head:?}");
    assert!(head.contains(&"sec-websocket-protocol: acp.v1".to_owned()), "{head:?}");
}

#[test]
fn r_rem_7_a_web_page_may_send_the_headers_of_its_client() {
    let served = serve(&json!([]));
    let names = "authorization,acp-protocol-version,last-event-id";
    let preflight = [
        "OPTIONS /acp HTTP/1.1",
        "origin: https://allowed.example",
        &format!("access-control-request-headers: {names}"),
    ];
    let response = served.http.send(&preflight, "");
    assert_eq!(response.status, 204, "{}", response.body);
    assert_eq!(response.header("access-control-allow-headers"), Some(names));
}
