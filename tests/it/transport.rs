//! The transport (R-TR): newline-delimited JSON-RPC, with invalid lines, stray answers, odd identifiers
//! and very long lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};
use turnwright_testing::command_lines::line_for;

use crate::agent::{TestAgent, calls, piped, prompt, says, subcommand};

/// The agent's answers to a line, up to its answer to the next request.
fn answers(agent: &mut TestAgent, line: &[u8]) -> Vec<Value> {
    let before = agent.log.len();
    agent.send_bytes(line);
    agent.send_bytes(b"\n");
    agent.sync();
    let last = agent.log.len() - 1;
    agent.log[before..last].iter().filter(|it| it.get("method").is_none()).cloned().collect()
}

/// The identifiers and the error codes of answers.
fn codes(answers: &[Value]) -> Vec<(Value, i64)> {
    let code = |it: &Value| it["error"]["code"].as_i64().unwrap_or_else(|| panic!("{it}"));
    answers.iter().map(|it| (it["id"].clone(), code(it))).collect()
}

#[test]
fn r_tr_1_text_that_is_split_in_the_middle_of_a_character_arrives_whole() {
    let text = "漢字, 👩‍👩‍👧, e\u{301} und ß";
    let base_url = byte_by_byte(text);
    let mut agent = TestAgent::unconfigured()
        .variable("OPENAI_BASE_URL", &base_url)
        .variable("TURNWRIGHT_MODEL", "slow")
        .start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.text(), text);
}

#[test]
fn a_person_who_pipes_a_prompt_into_the_agent_is_told_once_how_to_ask() {
    let home = turnwright_testing::temporary_folder();
    let output = piped(&mut subcommand(home.path(), &[]), "What is 1+1?\nHello?\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches("use `turnwright run").count(), 1, "{said}");
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.matches("-32700").count(), 2, "{answers}");
}

/// Starts a model server that sends its reply one byte at a time, and returns its base URL.
fn byte_by_byte(text: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    let body = format!("data: {chunk}\n\ndata: {last}\n\ndata: [DONE]\n\n");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let body = body.clone();
            std::thread::spawn(move || serve_slowly(&stream.unwrap(), &body));
        }
    });
    base_url
}

fn serve_slowly(mut stream: &TcpStream, body: &str) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    stream.set_nodelay(true).unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    for byte in body.as_bytes() {
        stream.write_all(&[*byte]).unwrap();
    }
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn r_tr_2_line_breaks_in_a_text_do_not_split_a_message() {
    let text = "one\ntwo\r\nthree\u{2028}four\u{2029}five\u{85}six\u{0}seven";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .model(json!([
            calls("exec", &json!({ "command": "printf 'a\\nb\\r\\nc\\r'" })),
            says(text)
        ]))
        .start();
    // The test client fails on a line that is not exactly one message.
    assert_eq!(agent.turn("hi"), "end_turn");
    // Control characters are replaced by visible ones.
    let shown = "one\ntwo\nthree\u{2028}four\u{2029}five\u{fffd}six\u{2400}seven";
    assert_eq!(agent.text(), shown);
    let result = agent.model_transcript(1).pop().unwrap();
    assert!(result.contains("a\nb"), "{result}");
}

#[test]
fn r_tr_3_only_protocol_messages_go_to_stdout() {
    let command = line_for(
        "echo on stdout; echo on stderr >&2; (sleep 0.05; echo late) & wait",
        "echo on stdout& echo on stderr>&2& echo late",
    );
    let mut agent = TestAgent::builder()
        .variable("TURNWRIGHT_LOG", "trace")
        .permission("allow_once")
        .model(json!([calls("exec", &json!({ "command": command })), says("Done.")]))
        .noisy()
        .start();
    assert_eq!(agent.turn("print"), "end_turn");
    agent.send_line("{oops");
    agent.sync();
    // The test client checks every line of stdout against the schema. The other output is in the
    // command's result and on stderr.
    let result = agent.model_transcript(1).pop().unwrap();
    for word in ["on stdout", "on stderr", "late"] {
        assert!(result.contains(word), "{result}");
    }
    let (status, stderr) = agent.close();
    assert!(status.success(), "{status}");
    assert!(stderr.contains("TRACE"), "the log is empty: {stderr}");
}

#[test]
fn p0_1_stderr_is_empty_even_after_errors() {
    let mut agent = TestAgent::builder()
        .model(json!([[{ "status": 500, "body": "no" }], [{ "status": 400, "body": "no" }]]))
        .start();
    agent.send_line("{oops");
    agent.notify("_no/such", &json!({}));
    let id = agent.prompt("hi");
    agent.answer_to(&id);
    let (status, stderr) = agent.close();
    assert!(status.success(), "{status}");
    assert_eq!(stderr, "");
}

#[test]
fn r_tr_6_a_batch_gets_one_error_and_none_of_its_requests_run() {
    let mut agent = TestAgent::builder().initialize();
    let new = json!({ "jsonrpc": "2.0", "id": "in the batch", "method": "session/new",
        "params": { "cwd": agent.workspace(), "mcpServers": [] } });
    let notification = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": {} });
    let batches = [json!([]), json!([1]), json!([new, new]), json!([notification]), json!([[new]])];
    for batch in batches {
        let answers = answers(&mut agent, batch.to_string().as_bytes());
        assert_eq!(codes(&answers), [(Value::Null, -32600)], "{batch}");
    }
    agent.new_session();
}

#[test]
fn r_tr_7_invalid_json_gets_a_parse_error_and_the_connection_stays_open() {
    let mut agent = TestAgent::builder().noisy().spawn();
    let deep = "[".repeat(200_000);
    let deep_object = "{\"a\":".repeat(200_000);
    let lines: [&[u8]; 9] = [
        b"{oops",
        b"oops",
        b"[1,",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"",
        b"{} {}",
        b"Content-Length: 2",
        b"\xc3\x28",
        deep.as_bytes(),
        deep_object.as_bytes(),
    ];
    for line in lines {
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        let answers = answers(&mut agent, line);
        assert_eq!(codes(&answers), [(Value::Null, -32700)], "{shown}");
    }
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
}

#[test]
fn r_tr_7_blank_lines_and_carriage_returns_are_ignored() {
    let mut agent = TestAgent::builder().spawn();
    for line in ["", "   ", "\t", "\r"] {
        assert_eq!(answers(&mut agent, line.as_bytes()), [Value::Null; 0], "{line:?}");
    }
    agent.send_request(&json!(7), "initialize", &json!({ "protocolVersion": 1 }));
    agent.send_bytes(b"\r\n\r\n");
    assert_eq!(agent.answer_to(&json!(7))["result"]["protocolVersion"], 1);
}

#[test]
fn r_tr_8_invalid_requests_are_refused() {
    let mut agent = TestAgent::builder().initialize();
    let refused = [
        (json!({ "jsonrpc": "2.0", "id": 70, "method": "session/new", "params": 5 }), json!(70)),
        (json!({ "id": "7", "method": "session/new" }), json!("7")),
        (json!({ "jsonrpc": "2.0", "id": true, "method": "session/new" }), json!(null)),
        (json!(null), json!(null)),
    ];
    for (line, id) in refused {
        let answers = answers(&mut agent, line.to_string().as_bytes());
        assert_eq!(codes(&answers), [(id, -32600)], "{line}");
    }
}

#[test]
fn r_tr_8_invalid_notifications_and_answers_are_ignored() {
    let mut agent = TestAgent::builder().initialize();
    let dropped = [
        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": 5 }),
        json!({ "jsonrpc": "2.0", "method": 5 }),
        json!({ "jsonrpc": "1.0", "method": "session/cancel" }),
        json!({ "jsonrpc": "2.0", "id": 0, "result": {}, "error": { "code": 1, "message": "" } }),
        json!({ "jsonrpc": "2.0", "result": {} }),
    ];
    for line in dropped {
        let answers = answers(&mut agent, line.to_string().as_bytes());
        assert_eq!(answers, [Value::Null; 0], "{line}");
    }
}

#[test]
fn r_tr_9_an_answer_carries_the_identifier_of_its_request_unchanged() {
    let mut agent = TestAgent::builder().initialize();
    let long = "x".repeat(5_000);
    let ids = [
        json!(0),
        json!(-1),
        json!(9_007_199_254_740_993_i64),
        json!(i64::MAX),
        json!(i64::MIN),
        json!("abc"),
        json!(""),
        json!("1"),
        json!("ünï \" \\ \n 👍"),
        json!(long),
        json!(null),
    ];
    for id in ids {
        let before = agent.log.len();
        agent.send_request(&id, "session/set_mode", &json!({ "sessionId": "x", "modeId": "ask" }));
        agent.sync();
        assert_eq!(codes(&agent.log[before..=before]), [(id.clone(), -32002)]);
        agent.send_request(&id, "initialize", &json!({ "protocolVersion": 1 }));
        let answer = agent.wait_for("initialize", |it| it.get("result").is_some());
        assert_eq!(answer["id"], id);
    }
}

#[test]
fn r_tr_10_the_same_identifier_may_be_in_flight_both_ways() {
    let write = |name: &str| calls("write_file", &json!({ "path": name, "content": "x" }));
    let mut agent = TestAgent::builder()
        .model(json!([write("a"), says("One."), write("b"), write("c")]))
        .start();
    agent.prompt("write a");
    let question = agent.wait_for_request("session/request_permission");
    agent.choose(&question, "allow_once");
    agent.wait_for("the answer", |it| it["result"]["stopReason"] == "end_turn");

    // The agent numbers its requests consecutively, so the next identifier is known.
    let id = json!(question["id"].as_u64().unwrap() + 1);
    let params = prompt(&agent.session, "write b and c");
    agent.send_request(&id, "session/prompt", &params);
    let question = agent.wait_for_request("session/request_permission");
    assert_eq!(question["id"], id, "the identifiers must be the same for this test");
    // An answer to the agent's request does not answer the prompt with the same identifier.
    agent.choose(&question, "allow_once");
    agent.wait_for_request("session/request_permission");
    assert_eq!(agent.read("b"), "x");
    // `$/cancel_request` refers to the request of its sender, which is the prompt.
    agent.notify("$/cancel_request", &json!({ "requestId": id }));
    let end = agent.wait_for("the answer", |it| it["id"] == id && it.get("method").is_none());
    assert_eq!(end["result"]["stopReason"], "cancelled", "{end}");
    assert!(!agent.path("c").exists());
}

#[test]
fn r_tr_11_answers_without_a_request_are_ignored() {
    let write = calls("write_file", &json!({ "path": "a", "content": "x" }));
    let mut agent = TestAgent::builder().model(json!([write, says("Done.")])).start();
    let id = agent.prompt("write");
    let question = agent.wait_for_request("session/request_permission");
    let yes = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
    let answers_without_request = [
        json!({ "jsonrpc": "2.0", "id": 999, "result": yes }),
        json!({ "jsonrpc": "2.0", "id": "999", "result": yes }),
        json!({ "jsonrpc": "2.0", "id": -1, "result": yes }),
        json!({ "jsonrpc": "2.0", "id": null, "result": yes }),
        json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32700, "message": "what?" } }),
        json!({ "id": null, "error": { "code": -32600, "message": "what?" } }),
        json!({ "jsonrpc": "2.0", "id": 999, "error": "not even an object" }),
    ];
    for stray_answer in answers_without_request {
        assert_eq!(
            answers(&mut agent, stray_answer.to_string().as_bytes()),
            [Value::Null; 0],
            "{stray_answer}"
        );
    }
    assert!(!agent.path("a").exists(), "a stray answer was taken for permission");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(agent.read("a"), "x");
    // A second answer to the same request is ignored.
    agent.refuse(&question, -32603, "late");
    agent.sync();
}

#[test]
fn r_tr_8_an_answer_that_lacks_its_result_or_has_an_error_too_ends_the_question() {
    let error = json!({ "code": -32603, "message": "no" });
    let yes = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
    for fields in [json!({}), json!({ "result": yes, "error": error })] {
        let write = calls("write_file", &json!({ "path": "a", "content": "x" }));
        let mut agent = TestAgent::builder().model(json!([write, says("Done.")])).start();
        let id = agent.prompt("write");
        let question = agent.wait_for_request("session/request_permission");
        let mut answer = fields.clone();
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = question["id"].clone();
        agent.send_line(&answer.to_string());
        assert_eq!(agent.stop_reason(&id), "end_turn", "{fields}");
        assert!(!agent.path("a").exists(), "{fields}");
    }
}

#[test]
fn r_tr_13_a_prompt_of_20_megabytes_reaches_the_model() {
    let mut agent = TestAgent::builder()
        .model(json!([says("Long.")]))
        .variable("TURNWRIGHT_CONTEXT_WINDOW", "100000000")
        .start();
    let text = "0123456789abcdef".repeat(20 * 1024 * 1024 / 16);
    assert_eq!(agent.turn(&text), "end_turn");
    let body = agent.model_request(0);
    let sent = body["messages"][1]["content"].as_str().unwrap();
    assert!(sent.starts_with(&text), "{} bytes arrived", sent.len());
}

#[test]
fn r_tr_13_a_line_over_64_mib_is_refused_and_the_connection_stays_open() {
    let mut agent = TestAgent::builder().start();
    let mib = vec![b'x'; 1024 * 1024];
    agent.send_bytes(br#"{"jsonrpc":"2.0","id":1,"method":""#);
    for _ in 0..65 {
        agent.send_bytes(&mib);
    }
    let answers = answers(&mut agent, br#""}"#);
    assert_eq!(codes(&answers), [(json!(1), -32600)]);
    let text = answers[0]["error"]["message"].as_str().unwrap();
    assert!(text.contains("64 MiB"), "{text}");
    agent.new_session();
}
