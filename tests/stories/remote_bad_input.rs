//! What bad input gets over WebSocket and over HTTP: a clear refusal, bounded memory, and nobody else is harmed
//! (R-REM-8).

use std::io::{Read, Write};

use serde_json::{Value, json};
use turnwright_testing::socket_clients::{Response, WebSocketClient, request};

use crate::agent::{LIMIT, eventually, prompt, says};
use crate::remote_http::{Served, serve};
use crate::socket_agent::PlainClient;
use crate::socket_server::TOKEN;

#[test]
fn r_rem_8_requests_that_make_no_sense_get_their_status_and_harm_nobody() {
    let served = serve(&json!([says("Hello.")]));
    let connection = served.http.initialize(1);
    let bearer = format!("authorization: Bearer {TOKEN}");
    let of_connection = format!("acp-connection-id: {connection}");
    let (post, get) = ("POST /acp HTTP/1.1", "GET /acp HTTP/1.1");
    let (json_type, events) = ("content-type: application/json", "accept: text/event-stream");
    let websocket = [
        "GET /acp HTTP/1.1\r\nupgrade: websocket\r\nsec-websocket-version: 13",
        "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
    ];
    let upgrade = |header| [&websocket[..], &[header]].concat();
    let ping = request(9, "session/list", &json!({})).to_string();
    let prompt = request(9, "session/prompt", &json!({ "prompt": [] })).to_string();
    let table: Vec<(u16, Vec<&str>, &str)> = vec![
        (401, vec![post, json_type], &ping),
        (401, vec![post, json_type, "authorization: Bearer wrong"], &ping),
        (401, vec![get, events, &of_connection], ""),
        (401, vec!["GET / HTTP/1.1"], ""),
        (401, websocket.to_vec(), ""),
        (401, upgrade("authorization: Bearer wrong"), ""),
        (403, [&upgrade(&bearer)[..], &["origin: https://evil.example"]].concat(), ""),
        (403, vec![get, events, &bearer, &of_connection, "origin: https://evil.example"], ""),
        (403, vec![post, json_type, &bearer, "origin: https://evil.example"], &ping),
        (403, vec!["OPTIONS /acp HTTP/1.1", "origin: https://evil.example"], ""),
        (403, vec!["OPTIONS /acp HTTP/1.1"], ""),
        (204, vec!["OPTIONS /acp HTTP/1.1", "origin: https://allowed.example"], ""),
        (403, vec![post, json_type, &bearer, "host: evil.example:4077"], &ping),
        (403, vec![get, events, &bearer, &of_connection, "host: evil.example"], ""),
        // A page whose name leads here (DNS rebinding) is no page of the agent's own address.
        (
            403,
            [&upgrade(&bearer)[..], &["host: evil.example", "origin: http://evil.example"]]
                .concat(),
            "",
        ),
        (
            403,
            vec!["OPTIONS /acp HTTP/1.1", "origin: https://allowed.example", "host: evil.example"],
            "",
        ),
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
        // Another protocol is not spoken, and the request is judged as if it were not offered.
        (406, vec![get, &bearer, &of_connection, "upgrade: h2c"], ""),
        (404, vec!["DELETE /acp HTTP/1.1", &bearer, "acp-connection-id: unknown"], ""),
        (202, vec![post, &bearer, json_type, &of_connection], &ping),
    ];
    for (status, head, body) in table {
        let response = served.http.send(&head, body);
        assert_eq!(response.status, status, "{head:?} {body}: {}", response.body);
        let is_challenge = response.header("www-authenticate") == Some("Bearer");
        assert_eq!(is_challenge, status == 401);
        let is_allowed = response.header("access-control-allow-origin").is_some();
        let is_of_allowed = head.contains(&"origin: https://allowed.example");
        assert_eq!(is_allowed, is_of_allowed && status != 403, "{head:?}");
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
        served.http.post(None, &request(1, "initialize", &json!({ "protocolVersion": [] })));
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
        "GET /acp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\nconnection: upgrade\r\n\
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
            (b"{\"a\": \xff}", Value::Null, -32700),
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

#[test]
fn r_rem_8_requests_over_http_get_the_answers_of_a_pipe_to_what_makes_no_sense() {
    let served = serve(&json!([says("Hello.")]));
    for version in [1, 2] {
        let connection = served.http.initialize(version);
        let mut events = served.http.stream(&connection, None);
        let no_params = r#"{"jsonrpc":"2.0","id":5,"method":"session/list","params":5}"#;
        let table: [(&[u8], Value, i64); 6] = [
            (b"{oops", Value::Null, -32700),
            (b"{\"a\": \xff}", Value::Null, -32700),
            (b"5", Value::Null, -32600),
            (br#"{"jsonrpc":"1.0","id":3,"method":"session/list"}"#, json!(3), -32600),
            (br#"{"jsonrpc":"2.0","id":4,"method":"session/unknown"}"#, json!(4), -32601),
            (no_params.as_bytes(), json!(5), -32600),
        ];
        for (line, id, code) in table {
            let shown = String::from_utf8_lossy(line).into_owned();
            let sent = served.http.post_bytes(Some(&connection), line);
            assert_eq!(sent.status, 202, "{shown}: {}", sent.body);
            let answer = events.until(|it| it["error"].is_object());
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{shown}");
        }
        // What needs no answer gets none, and the connection is as good as before.
        for line in ["", r#"{"jsonrpc":"2.0","method":"unknown"}"#, r#"{"id":7,"result":1}"#] {
            assert_eq!(served.http.post_bytes(Some(&connection), line).status, 202, "{line}");
        }
        served.http.post(Some(&connection), &request(9, "session/list", &json!({})));
        let answer = events.until(|it| !it["id"].is_null());
        assert_eq!((&answer["id"], answer["result"].is_object()), (&json!(9), true), "{answer}");
    }
}

/// Sends a message of more than 64 MiB: its length in the head, or piece by piece.
fn send_too_much(served: &Served, connection: &str, tells_length: bool) -> u16 {
    let mut socket = served.http.socket();
    let size = (64 << 20) + 1;
    let length = if tells_length {
        format!("content-length: {size}")
    } else {
        "transfer-encoding: chunked".to_owned()
    };
    let head = format!(
        "POST /acp HTTP/1.1\r\nhost: localhost\r\n{}\r\ncontent-type: application/json\r\n\
         acp-connection-id: {connection}\r\n{length}\r\n\r\n",
        served.http.authorization()
    );
    socket.write_all(head.as_bytes()).unwrap();
    if !tells_length {
        let piece = [b"100000\r\n", &vec![b' '; 1 << 20][..], b"\r\n"].concat();
        // The agent does not read more than it takes.
        socket.set_write_timeout(Some(LIMIT)).unwrap();
        assert!((0..200).any(|_| socket.write_all(&piece).is_err()), "all of 200 MiB was read");
    }
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).ok();
    let answer = String::from_utf8(answer).unwrap();
    answer.split(' ').nth(1).map_or(0, |status| status.parse().unwrap())
}

#[test]
fn r_rem_8_a_request_of_more_than_64_mib_is_refused_before_it_is_in_memory() {
    let served = serve(&json!([]));
    let connection = served.http.initialize(1);
    assert_eq!(send_too_much(&served, &connection, true), 413);
    // The refusal may be lost with the rest of what was sent.
    let status = send_too_much(&served, &connection, false);
    assert!(matches!(status, 413 | 0), "{status}");
    let mut events = served.http.stream(&connection, None);
    served.http.post(Some(&connection), &request(9, "session/list", &json!({})));
    events.until(|it| it["id"] == 9 && it["result"].is_object());
}

#[test]
fn r_rem_8_messages_that_do_not_end_keep_nobody_waiting() {
    let served = serve(&json!([says("Hello.")]));
    let connection = served.http.initialize(1);
    let half = br#"{"jsonrpc":"2.0","id":1,"method":"session/li"#;
    let frames: Vec<_> = (0..40)
        .map(|_| {
            let mut client = WebSocketClient::connect(&served.server.url, TOKEN, 1);
            // The first frame of several.
            client.send_frame(0x01, half);
            client
        })
        .collect();
    let requests: Vec<_> = (0..40)
        .map(|_| {
            let mut socket = served.http.socket();
            let head = format!(
                "POST /acp HTTP/1.1\r\nhost: localhost\r\n{}\r\ncontent-type: application/json\r\n\
                 acp-connection-id: {connection}\r\ncontent-length: 1000\r\n\r\n",
                served.http.authorization()
            );
            socket.write_all(&[head.as_bytes(), half].concat()).unwrap();
            socket
        })
        .collect();
    let mut client = PlainClient::connect(&served.server.url, 2);
    let params = json!({ "cwd": served.workspace.path(), "mcpServers": [] });
    let session = client.call("session/new", &params)["sessionId"].as_str().unwrap().to_owned();
    client.call("session/prompt", &prompt(&session, "hi"));
    client.until_idle();
    assert_eq!(client.said(), "Hello.");
    drop((frames, requests));
    client.call("session/list", &json!({}));
    client.close();
}

#[test]
fn r_rem_8_a_version_of_the_protocol_that_does_not_exist_is_refused_over_both() {
    let served = serve(&json!([]));
    let info = json!({ "name": "test", "version": "1" });
    // The highest version up to the requested one is the answer, so only 0 has none.
    let params = |version| json!({ "protocolVersion": version, "info": info, "capabilities": {} });
    for (version, answered) in [(0, None), (1, Some(1)), (2, Some(2)), (9, Some(2))] {
        let mut client = WebSocketClient::open(&served.server.url, TOKEN);
        let answer = client.call("initialize", &params(version));
        let Response { body, .. } =
            served.http.post(None, &request(1, "initialize", &params(version)));
        let over_http: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["error"], over_http["error"]);
        assert_eq!(answer["result"], over_http["result"]);
        assert_eq!(answer["result"]["protocolVersion"].as_u64(), answered, "{answer}");
        let code = answered.is_none().then_some(-32022);
        assert_eq!(answer["error"]["code"].as_i64(), code, "{answer}");
    }
}
