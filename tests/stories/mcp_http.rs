//! MCP servers over streamable HTTP: the requests that they receive, and how a session behaves when
//! they refuse, fail, flood or disappear.

use std::io::Write;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use turnwright_testing::mcp_http_stub::{McpHttpStub, answer, answer_json, event, tools};
use turnwright_testing::raw_server::{wait_for_the_end, write_head, write_stream};

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, says};

const KEY: &str = "sk-canary-7-of-a-server";

/// Returns an agent whose model calls the tool `echo` of the server `far` once.
fn calling(stub: &McpHttpStub) -> TestAgentBuilder {
    let call = calls("mcp__far__echo", &json!({ "text": "hi" }));
    TestAgent::builder()
        .model(json!([call, says("done"), says("more")]))
        .permission("allow_once")
        .server_as(stub.server("far", &[]))
}

/// Returns the result of the call that the model received.
fn call_result(agent: &TestAgent) -> String {
    agent.model_transcript(1).pop().unwrap()
}

/// Opens a session with this server, and returns the notice that the user gets.
fn notice(server: Value) -> String {
    let mut agent = TestAgent::builder().model(json!([says("one")])).server_as(server).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let text: Vec<_> = agent.log.iter().map(Value::to_string).collect();
    let words = text.iter().find(|it| it.contains("The MCP server far is unavailable"));
    words.unwrap_or_else(|| panic!("the user got no notice: {text:#?}")).clone()
}

#[test]
fn r_mcp_2_a_tool_over_http_may_answer_with_json_or_a_stream_and_gets_all_headers() {
    for streams in [false, true] {
        let stub = McpHttpStub::start(move |request, stream| {
            let is_call = request.method() == "tools/call";
            if is_call && streams {
                let text = json!({ "content": [{ "type": "text", "text": "{\"text\":\"hi\"}" }] });
                let progress = json!({ "jsonrpc": "2.0", "method": "notifications/message",
                    "params": { "level": "info", "data": "on it" } });
                let events = event(&progress) + &event(&request.result(&text));
                write_stream(stream, &events);
            }
            is_call && streams
        });
        let headers = [("X-Team", "blue"), ("Authorization", "Bearer sk-canary-7-of-a-server")];
        let call = calls("mcp__far__echo", &json!({ "text": "hi" }));
        let mut agent = TestAgent::builder()
            .model(json!([call, says("done")]))
            .permission("allow_once")
            .server_as(stub.server("far", &headers))
            .start();
        assert_eq!(agent.turn("go"), "end_turn");
        assert!(call_result(&agent).contains(r#"{"text":"hi"}"#), "{}", call_result(&agent));
        let session = agent.session.clone();
        agent.call("session/close", &json!({ "sessionId": session }));
        stub.wait_for("the end of the session", |it| it.verb == "DELETE");
        for request in stub.requests() {
            assert_eq!(request.header("x-team"), Some("blue"), "{request:?}");
            let key = request.header("authorization").unwrap();
            assert_eq!(key, format!("Bearer {KEY}"), "{request:?}");
            if request.method() != "initialize" {
                assert_eq!(request.header("mcp-protocol-version"), Some("2025-11-25"));
                assert_eq!(request.header("mcp-session-id"), Some("session-1"), "{request:?}");
            }
        }
    }
}

#[test]
fn m_2_a_server_without_a_handshake_is_supported() {
    let stub = McpHttpStub::start(|request, stream| {
        let version = "2026-07-28";
        match request.method() {
            "initialize" => {
                let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": {
                    "code": -32022, "message": "no such version",
                    "data": { "supported": [version] } } });
                let head = "content-type: application/json\r\n";
                answer(stream, "400 Bad Request", head, &body.to_string());
            }
            "server/discover" => {
                let result = json!({ "resultType": "complete", "supportedVersions": [version],
                    "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "private",
                    "_meta": { "io.modelcontextprotocol/serverInfo":
                        { "name": "stub", "version": "2" } } });
                answer_json(stream, "", &request.result(&result));
            }
            _ => return false,
        }
        true
    });
    let mut agent = calling(&stub).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent).contains(r#"{"text":"hi"}"#), "{}", call_result(&agent));
    let seen = stub.requests();
    let call = seen.iter().find(|it| it.method() == "tools/call").unwrap();
    assert_eq!(call.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(call.header("mcp-method"), Some("tools/call"));
    assert_eq!(call.header("mcp-name"), Some("echo"));
    assert_eq!(call.header("mcp-session-id"), None);
}

/// As servers do that were written by hand: the version is in an error, a notification is answered, the content
/// type is another one, and an answer is a batch.
#[test]
fn a_server_that_takes_the_protocol_lightly_is_used_all_the_same() {
    let stub = McpHttpStub::start(|request, stream| {
        let plain = "Content-Type: Text/Plain\r\n";
        match request.method() {
            "initialize" if request.body["params"]["protocolVersion"] != "2024-11-05" => {
                let error = json!({ "code": -32602, "message": "Unsupported protocol version",
                    "data": { "supported": ["2024-11-05"] } });
                let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
                answer_json(stream, "", &body);
            }
            "notifications/initialized" => answer(stream, "200 OK", plain, "OK"),
            "tools/list" => {
                let list = request.result(&tools(&["echo"])).to_string();
                answer(stream, "200 OK", plain, &format!("\u{feff}{list}"));
            }
            "tools/call" => {
                let text = json!({ "content": ["from a batch"] });
                let batch = json!([{ "jsonrpc": "2.0", "method": "notifications/message" },
                    request.result(&text)]);
                let head = "Content-Type: Application/JSON\r\n";
                answer(stream, "200 OK", head, &batch.to_string());
            }
            _ => return false,
        }
        true
    });
    let mut agent = calling(&stub).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent).contains("from a batch"), "{}", call_result(&agent));
    let requests = stub.requests();
    let call = requests.iter().find(|request| request.method() == "tools/call").unwrap();
    assert_eq!(call.header("mcp-protocol-version"), Some("2024-11-05"));
}

/// Servers with a library that is older than the protocol do so: Java's refuses unknown fields, and Go's names its
/// versions in the body of an HTTP error.
#[test]
fn a_server_that_cannot_read_the_handshake_is_asked_with_less() {
    for way in ["error", "status", "version"] {
        let stub = McpHttpStub::start(move |request, stream| {
            let params = &request.body["params"];
            let is_unreadable = match way {
                "version" => params["protocolVersion"] == "2025-11-25",
                _ => params["capabilities"]["elicitation"]["form"].is_object(),
            };
            match way {
                _ if !is_unreadable => return false,
                "error" => {
                    let error = json!({ "code": -32603, "message": "Unrecognized field \"form\"" });
                    let id = &request.body["id"];
                    let body = json!({ "jsonrpc": "2.0", "id": id, "error": error });
                    answer_json(stream, "", &body);
                }
                "status" => answer(stream, "400 Bad Request", "", "Invalid message format"),
                _ => answer(stream, "400 Bad Request", "", "supported: 2025-06-18, 2025-03-26"),
            }
            true
        });
        let forms = json!({ "elicitation": { "form": {} } });
        let mut agent = calling(&stub).capabilities(forms).start();
        assert_eq!(agent.turn("go"), "end_turn");
        let result = call_result(&agent);
        assert!(result.contains(r#"{"text":"hi"}"#), "{way}: {result}");
    }
}

#[test]
fn m_44_any_success_is_enough_for_a_notification() {
    let table = [
        ("200 OK", "", ""),
        ("201 Created", "content-type: text/html\r\n", "<html>"),
        ("200 OK", "content-type: application/json\r\n", "{"),
        ("206 Partial Content", "content-type: text/event-stream\r\n", "data: {}\n\n"),
        ("204 No Content", "", ""),
    ];
    for (status, head, body) in table {
        let stub = McpHttpStub::start(move |request, stream| {
            let is_notification = request.method().starts_with("notifications/");
            if is_notification {
                answer(stream, status, head, body);
            }
            is_notification
        });
        let mut agent = calling(&stub).start();
        assert_eq!(agent.turn("go"), "end_turn");
        let result = call_result(&agent);
        assert!(result.contains(r#"{"text":"hi"}"#), "{status} {head}: {result}");
        let count =
            |method: &str| stub.requests().iter().filter(|it| it.method() == method).count();
        assert_eq!((count("initialize"), count("notifications/initialized")), (1, 1), "{status}");
    }
}

#[test]
fn a_server_that_refuses_the_first_notification_is_used_all_the_same() {
    for status in ["400 Bad Request", "404 Not Found", "405 Method Not Allowed", "500 Oh No"] {
        let stub = McpHttpStub::start(move |request, stream| {
            let is_notification = request.method() == "notifications/initialized";
            if is_notification {
                answer(stream, status, "", "");
            }
            is_notification
        });
        let mut agent = calling(&stub).start();
        assert_eq!(agent.turn("go"), "end_turn");
        let result = call_result(&agent);
        assert!(result.contains(r#"{"text":"hi"}"#), "{status}: {result}");
    }
}

#[test]
fn m_45_a_result_may_lack_its_content() {
    let table = [
        (json!({}), "completed", "(done; the result is empty)"),
        (json!({ "_meta": { "example.com/replica": "r1" } }), "completed", "the result is empty"),
        (json!({ "resultType": "complete", "_meta": {} }), "completed", "the result is empty"),
        (json!({ "content": null, "isError": false }), "completed", "the result is empty"),
        (json!({ "structuredContent": { "sum": 12 } }), "completed", r#"{"sum":12}"#),
        (json!({ "isError": true }), "failed", "(no reason given)"),
        (json!(null), "failed", ""),
        (json!(7), "failed", ""),
    ];
    for (result, status, expected) in table {
        let shown = result.to_string();
        let stub = McpHttpStub::start(move |request, stream| {
            let is_call = request.method() == "tools/call";
            if is_call {
                answer_json(stream, "", &request.result(&result));
            }
            is_call
        });
        let mut agent = calling(&stub).start();
        assert_eq!(agent.turn("go"), "end_turn", "{shown}");
        assert!(call_result(&agent).contains(expected), "{shown}: {}", call_result(&agent));
        let statuses: Vec<_> = agent.updates().iter().map(|it| it["status"].clone()).collect();
        assert!(statuses.contains(&json!(status)), "{shown}: {statuses:?}");
    }
}

#[test]
fn a_call_that_a_server_turns_away_unread_is_not_said_to_be_executed_in_part() {
    let stub = McpHttpStub::start(|request, stream| {
        let is_call = request.method() == "tools/call";
        if is_call {
            answer(stream, "429 Too Many Requests", "", "");
        }
        is_call
    });
    let mut agent = calling(&stub).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let result = call_result(&agent);
    assert!(result.contains("HTTP 429") && result.contains("was not executed"), "{result}");
    assert!(!result.contains("partly"), "{result}");
}

/// Google's servers are open to everyone until a tool is called, and others until the tools are listed.
#[test]
fn a_server_that_is_open_to_everyone_at_first_says_later_that_it_requires_a_login() {
    let refusing = |method: &'static str, status: &'static str| {
        McpHttpStub::start(move |request, stream| {
            let is_refused = request.method() == method;
            if is_refused {
                answer(stream, status, "", "");
            }
            is_refused
        })
    };
    let stub = refusing("tools/call", "401 Unauthorized");
    let mut agent = calling(&stub).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let result = call_result(&agent);
    let is_told = result.contains("turnwright mcp login http://");
    assert!(is_told && result.contains("was not executed"), "{result}");
    let stub = refusing("tools/list", "401 Unauthorized");
    let text = notice(stub.server("far", &[]));
    assert!(text.contains("turnwright mcp login http://"), "{text}");
    let text = notice(refusing("tools/list", "403 Forbidden").server("far", &[]));
    assert!(text.contains("it denies access"), "{text}");
}

#[test]
fn r_mcp_3_and_5_an_unsupported_server_is_refused_without_showing_header_values() {
    let mut agent = TestAgent::builder().spawn();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let capabilities = &answer["result"]["agentCapabilities"]["mcpCapabilities"];
    assert_eq!(capabilities["http"], true);
    assert_eq!(capabilities["acp"], true);
    assert_ne!(capabilities["sse"], true);
    let secret = "sk-canary-8\u{7f}";
    let header = |name: &str, value: &str| json!([{ "name": name, "value": value }]);
    let servers = [
        json!({ "type": "sse", "name": "far", "url": "http://127.0.0.1:9/sse", "headers": [] }),
        json!({ "type": "http", "name": "far", "url": "no address", "headers": [] }),
        json!({ "type": "http", "name": "far", "url": "file:///etc/passwd", "headers": [] }),
        json!({ "type": "http", "name": "far", "url": "https://me:sk-canary-8@h/", "headers": [] }),
        json!({ "type": "http", "name": "far", "url": "http://h/", "headers": header("A B", secret) }),
        json!({ "type": "http", "name": "far", "url": "http://h/", "headers": header("A", secret) }),
        json!({ "type": "http", "name": "far", "url": "http://h/",
            "headers": header("Mcp-Session-Id", "sk-canary-8") }),
        json!({ "type": "http", "name": "far", "url": "http://h/",
            "headers": header("host", "sk-canary-8") }),
    ];
    for server in servers {
        let params = json!({ "cwd": agent.workspace(), "mcpServers": [server] });
        let answer = agent.call("session/new", &params);
        assert_eq!(answer["error"]["code"], -32602, "{server}: {answer}");
        assert!(!answer.to_string().contains("canary"), "{answer}");
    }
}

#[test]
fn headers_of_the_protocol_that_users_copy_from_examples_are_left_out() {
    let stub = McpHttpStub::good();
    let headers = [
        ("Accept", "application/json"),
        ("content-type", "text/plain"),
        ("MCP-Protocol-Version", "2024-11-05"),
    ];
    let call = calls("mcp__far__echo", &json!({ "text": "hi" }));
    let mut agent = TestAgent::builder()
        .model(json!([call, says("done")]))
        .permission("allow_once")
        .server_as(stub.server("far", &headers))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent).contains(r#"{"text":"hi"}"#), "{}", call_result(&agent));
    let requests = stub.requests();
    let call = requests.iter().find(|request| request.method() == "tools/call").unwrap();
    assert_eq!(call.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(call.header("content-type"), Some("application/json"));
    assert_eq!(call.header("mcp-protocol-version"), Some("2025-11-25"));
}

#[test]
fn m_22_a_notice_about_a_refusing_server_says_what_to_do() {
    let key = [("Authorization", "Bearer sk-canary-7-of-a-server")];
    let elsewhere = McpHttpStub::good();
    let target = elsewhere.url();
    let other = format!("location: {target}\r\n");
    let challenge = "www-authenticate: Bearer realm=\"x\"\r\n";
    let scope = "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"notes:read\"\r\n";
    let refusals = [
        ("401 Unauthorized", "", "", false, "turnwright mcp login http://"),
        ("401 Unauthorized", challenge, "", false, "turnwright mcp login http://"),
        ("401 Unauthorized", challenge, "", true, "rejects the key in its `Authorization` header"),
        ("403 Forbidden", "", "not sk-canary-7-of-a-server", true, "HTTP 403"),
        ("403 Forbidden", scope, "", false, "notes:read"),
        ("500 Oh No", "", "", false, "HTTP 500"),
        ("429 Slow Down", "", "", false, "HTTP 429"),
        ("404 Not Found", "", "", false, "404"),
        (
            "200 OK",
            "content-type: text/html\r\n",
            "<html>",
            false,
            "did not answer like an MCP server",
        ),
        ("307 Temporary Redirect", &other, "", true, &target),
        ("302 Found", &other, "", true, &target),
    ];
    for (status, head, body, has_key, expected) in refusals {
        let (status, head, body) = (status.to_owned(), head.to_owned(), body.to_owned());
        let stub = McpHttpStub::start(move |_, stream| {
            answer(stream, &status, &head, &body);
            true
        });
        let text = notice(stub.server("far", if has_key { &key } else { &[] }));
        assert!(text.contains(expected), "{expected}: {text}");
        assert!(!text.contains("canary"), "{text}");
    }
    assert_eq!(elsewhere.requests().len(), 0, "the headers were sent to another server");
}

#[test]
fn a_redirect_within_the_same_server_is_followed() {
    let stub = McpHttpStub::start(|request, stream| {
        let is_short = request.path == "/mcp";
        if is_short {
            answer(stream, "307 Temporary Redirect", "location: /mcp/\r\n", "");
        }
        is_short
    });
    let mut agent = calling(&stub).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent).contains(r#"{"text":"hi"}"#), "{}", call_result(&agent));
}

/// Load balancers lead the requests of a session to one instance of a server by a cookie.
#[test]
fn cookies_of_a_server_are_sent_back_to_it() {
    let stub = McpHttpStub::start(|request, stream| {
        if request.method() == "initialize" {
            let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "stub", "version": "1" } });
            let head = "mcp-session-id: session-1\r\nset-cookie: lb=pod-7; Path=/; HttpOnly\r\n\
                        set-cookie: sticky=1\r\n";
            answer_json(stream, head, &request.result(&hello));
            return true;
        }
        let is_elsewhere = request.header("cookie") != Some("lb=pod-7; sticky=1");
        if is_elsewhere {
            answer(stream, "404 Not Found", "", "");
        }
        is_elsewhere
    });
    let mut agent = calling(&stub).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent).contains(r#"{"text":"hi"}"#), "{}", call_result(&agent));
}

#[test]
fn a_server_that_has_forgotten_the_session_is_initialized_again_and_called_again() {
    let forgot = AtomicBool::new(false);
    let stub = McpHttpStub::start(move |request, stream| {
        let forgets = request.method() == "tools/call" && !forgot.swap(true, Ordering::Relaxed);
        if forgets {
            answer(stream, "404 Not Found", "", "");
        }
        forgets
    });
    let mut agent = calling(&stub).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(call_result(&agent).contains(r#"{"text":"hi"}"#), "{}", call_result(&agent));
    let initializations = stub.requests().iter().filter(|it| it.method() == "initialize").count();
    assert_eq!(initializations, 2);
}

#[test]
fn a_server_that_says_in_its_own_words_that_the_session_is_lost_is_initialized_once_anew() {
    let json_error = |code: i32, message: &str| {
        json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } })
            .to_string()
    };
    let with_json = "content-type: application/json\r\n";
    let refused = "www-authenticate: Bearer error=\"invalid_token\"\r\n";
    let not_found = json_error(-32001, "Session not found");
    let stream = format!("event: message\ndata: {not_found}\n\n");
    // Status, headers and body, and whether that is a lost session.
    let refusals = [
        ("404 Not Found", "", String::new(), true),
        ("410 Gone", "", String::new(), true),
        (
            "400 Bad Request",
            with_json,
            json_error(-32000, "Bad Request: No valid session ID provided"),
            true,
        ),
        (
            "400 Bad Request",
            with_json,
            json_error(-32000, "Bad Request: Server not initialized"),
            true,
        ),
        ("400 Bad Request", with_json, json_error(-32603, "Mcp-Session-Id is unknown"), true),
        (
            "400 Bad Request",
            "content-type: text/plain\r\n",
            "Invalid session ID\n".to_owned(),
            true,
        ),
        ("400 Bad Request", with_json, "{\"error\":\"No active session\"}".to_owned(), true),
        ("401 Unauthorized", "", "Unauthorized: Session not found".to_owned(), true),
        ("401 Unauthorized", refused, "Session has expired".to_owned(), true),
        // The server may have begun with the call.
        ("500 Oh No", with_json, json_error(-32603, "Session terminated"), false),
        ("200 OK", with_json, not_found, true),
        ("200 OK", "content-type: text/event-stream\r\n", stream, true),
        ("400 Bad Request", with_json, json_error(-32602, "Invalid params"), false),
        ("200 OK", with_json, json_error(-32001, "Request timed out"), false),
        ("200 OK", with_json, json_error(-32000, "Browser session not found"), false),
    ];
    for (status, head, body, is_lost) in refusals {
        // It refuses the first call, or every call.
        for refuses_all in [false, true] {
            let (status, head, body) = (status.to_owned(), head.to_owned(), body.clone());
            let shown = format!("{status} {body}");
            let has_refused = AtomicBool::new(false);
            let stub = McpHttpStub::start(move |request, stream| {
                let refuses = request.method() == "tools/call"
                    && (!has_refused.swap(true, Ordering::Relaxed) || refuses_all);
                if refuses {
                    // The id of the request belongs to an answer with the status 200.
                    let id = format!("\"id\":{}", request.body["id"]);
                    answer(stream, &status, &head, &body.replace("\"id\":null", &id));
                }
                refuses
            });
            let mut agent = calling(&stub).start();
            assert_eq!(agent.turn("go"), "end_turn");
            let worked = call_result(&agent).contains(r#"{"text":"hi"}"#);
            assert_eq!(worked, is_lost && !refuses_all, "{shown}: {}", call_result(&agent));
            let count =
                |method: &str| stub.requests().iter().filter(|it| it.method() == method).count();
            let attempts = if is_lost { 2 } else { 1 };
            assert_eq!((count("initialize"), count("tools/call")), (attempts, attempts), "{shown}");
        }
    }
}

#[test]
fn m_17_a_call_fails_cleanly_whatever_the_server_does_and_the_turn_goes_on() {
    type Play = fn(&mut std::net::TcpStream);
    let troubles: [(&str, Play); 5] = [
        ("hangs up", |_| {}),
        ("hangs up amid a stream", |stream| write_stream(stream, "event: message\ndata: {")),
        ("fails", |stream| answer(stream, "500 Oh No", "", "")),
        ("says something else", |stream| answer(stream, "200 OK", "", "what?")),
        ("sends an event without end", |stream| {
            write_head(stream);
            let piece = vec![b'x'; 1024 * 1024];
            stream.write_all(b"data: ").ok();
            for _ in 0..17 {
                if stream.write_all(&piece).is_err() {
                    break;
                }
            }
            wait_for_the_end(stream);
        }),
    ];
    for (what, play) in troubles {
        let stub = McpHttpStub::start(move |request, stream| {
            let is_call = request.method() == "tools/call";
            if is_call {
                play(stream);
            }
            is_call
        });
        let mut agent = calling(&stub).start();
        assert_eq!(agent.turn("go"), "end_turn", "{what}");
        let call_result = call_result(&agent);
        assert!(!call_result.contains(r#"{"text":"hi"}"#), "{what}: {call_result}");
        assert!(!call_result.contains("127.0.0.1"), "{what}: {call_result}");
        let failed = agent.updates().iter().any(|it| it["status"] == "failed");
        assert!(failed, "{what}");
    }
}

#[test]
fn a_cancel_ends_a_call_whose_stream_never_ends() {
    let stub = McpHttpStub::start(|request, stream| {
        let is_call = request.method() == "tools/call";
        if is_call {
            write_head(stream);
            let ping = event(&json!({ "jsonrpc": "2.0", "method": "notifications/message",
                "params": { "level": "info", "data": "still on it" } }));
            while stream.write_all(ping.as_bytes()).is_ok() {}
        }
        is_call
    });
    let mut agent = calling(&stub).start();
    let id = agent.prompt("go");
    agent.wait_for_status("in_progress");
    stub.wait_for("the call", |it| it.method() == "tools/call");
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
}

#[test]
fn m_12_a_server_can_announce_on_its_stream_that_its_tools_have_changed() {
    static LISTS: AtomicUsize = AtomicUsize::new(0);
    let stub = McpHttpStub::start(|request, stream| {
        match (request.verb.as_str(), request.method()) {
            ("GET", _) => {
                write_head(stream);
                let news =
                    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
                stream.write_all(event(&news).as_bytes()).ok();
                wait_for_the_end(stream);
            }
            ("POST", "tools/list") if LISTS.fetch_add(1, Ordering::Relaxed) > 0 => {
                answer_json(stream, "", &request.result(&tools(&["echo", "late"])));
            }
            _ => return false,
        }
        true
    });
    let mut agent = TestAgent::builder()
        .model(json!(vec![says("one"); 50]))
        .server_as(stub.server("far", &[]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    stub.wait_for("the second list", |_| LISTS.load(Ordering::Relaxed) > 1);
    let mut turns = 1;
    eventually("the new tool", || {
        agent.turn("again");
        turns += 1;
        agent.offered_tools(turns - 1).contains(&"mcp__far__late".to_owned())
    });
}

/// Servers need not have the stream, and some refuse it as if the login were missing.
#[test]
fn a_server_that_refuses_its_stream_is_used_all_the_same() {
    for status in ["401 Unauthorized", "403 Forbidden", "400 Bad Request", "500 Oh No"] {
        let stub = McpHttpStub::start(move |request, stream| {
            let is_stream = request.verb == "GET";
            if is_stream {
                answer(stream, status, "", "");
            }
            is_stream
        });
        let call = calls("mcp__far__echo", &json!({ "text": "hi" }));
        let mut agent = TestAgent::builder()
            .model(json!([says("one"), call, says("done")]))
            .permission("allow_once")
            .server_as(stub.server("far", &[]))
            .start();
        assert_eq!(agent.turn("go"), "end_turn");
        stub.wait_for("the stream", |request| request.verb == "GET");
        assert_eq!(agent.turn("again"), "end_turn");
        let result = agent.model_transcript(2).pop().unwrap();
        assert!(result.contains(r#"{"text":"hi"}"#), "{status}: {result}");
    }
}

#[test]
fn m_17_an_unreachable_server_is_connected_when_it_starts() {
    // No server listens on this port until the test starts one.
    let address = ("127.0.0.1", turnwright_testing::closed_port());
    let url = format!("http://127.0.0.1:{}/mcp", address.1);
    let server = json!({ "type": "http", "name": "far", "url": url, "headers": [] });
    let mut agent =
        TestAgent::builder().model(json!(vec![says("one"); 50])).server_as(server).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let text: Vec<_> = agent.log.iter().map(Value::to_string).collect();
    assert!(text.iter().any(|it| it.contains("cannot be reached")), "{text:#?}");
    let stub = McpHttpStub::on(TcpListener::bind(address).unwrap(), |_, _| false);
    stub.wait_for("the list", |it| it.method() == "tools/list");
    let mut turns = 1;
    eventually("the tool", || {
        agent.turn("again");
        turns += 1;
        agent.offered_tools(turns - 1).contains(&"mcp__far__echo".to_owned())
    });
}

#[test]
fn tools_that_a_search_has_found_before_a_compaction_are_offered_after_a_load() {
    let stub = McpHttpStub::start(|request, stream| {
        let is_list = request.method() == "tools/list";
        if is_list {
            let names: Vec<_> = (0..50).map(|it| format!("tool_{it}")).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            answer_json(stream, "", &request.result(&tools(&names)));
        }
        is_list
    });
    let search = calls("tool_search", &json!({ "query": "select:mcp__far__tool_7" }));
    let replies = json!([search, says("Found."), says("A summary."), says("Again.")]);
    let mut agent = TestAgent::builder().model(replies).server_as(stub.server("far", &[])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.turn("/compact"), "end_turn");
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    assert_eq!(agent.turn("again"), "end_turn");
    let last = agent.model().requests().len() - 1;
    assert!(!agent.model_request(last)["messages"].to_string().contains("select:mcp__far"));
    let names = agent.offered_tools(last);
    assert_eq!(names[names.len() - 2..], ["tool_search", "mcp__far__tool_7"]);
}
