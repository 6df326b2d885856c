//! Turns with a model that uses the Responses API, against a small mock server.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};
use turnwright_testing::raw_server::{RawServer, wait_for_the_end, write_head, write_stream};

use crate::agent::TestAgent;

/// Returns an agent whose only provider is this server.
fn start(server: &RawServer) -> TestAgent {
    start_with(server, "api = \"responses\"")
}

/// Returns an agent whose only provider is this server, with this setting.
fn start_with(server: &RawServer, setting: &str) -> TestAgent {
    let config = format!(
        "model = \"local/gpt-5\"\nlist_models = false\n[providers.local]\nbase_url = \"{}\"\n{setting}\n",
        server.base_url()
    );
    TestAgent::unconfigured().own_file("config/config.toml", &config).file("a.txt", "one\n").start()
}

fn event(kind: &str, fields: Value) -> String {
    let mut event = fields;
    event["type"] = json!(format!("response.{kind}"));
    format!("event: response.{kind}\ndata: {event}\n\n")
}

fn says(text: &str) -> String {
    event("output_text.delta", json!({ "output_index": 0, "delta": text })) + &completed()
}

fn completed() -> String {
    let usage = json!({ "input_tokens": 5, "output_tokens": 6 });
    event("completed", json!({ "response": { "status": "completed", "usage": usage } }))
}

/// Returns an answer that reasons and then reads a file.
fn reads(path: &str) -> String {
    let arguments = json!({ "path": path }).to_string();
    let thought = json!({
        "type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA",
        "summary": [{ "type": "summary_text", "text": "I should look." }],
    });
    let call = json!({
        "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read_file",
        "arguments": arguments,
    });
    let mut added = call.clone();
    added["arguments"] = json!("");
    [
        event("output_item.done", json!({ "output_index": 0, "item": thought })),
        event("output_item.added", json!({ "output_index": 1, "item": added })),
        event("function_call_arguments.delta", json!({ "output_index": 1, "delta": arguments })),
        event("output_item.done", json!({ "output_index": 1, "item": call })),
        completed(),
    ]
    .concat()
}

#[test]
fn the_cost_that_the_server_reports_is_shown() {
    let server = RawServer::start(|_, stream| {
        let usage = json!({ "input_tokens": 5, "output_tokens": 6, "cost": "0.25" });
        let end = json!({ "response": { "status": "completed", "usage": usage } });
        let text = event("output_text.delta", json!({ "output_index": 0, "delta": "Hello." }));
        write_stream(stream, &(text + &event("completed", end)));
    });
    let mut agent = start(&server);
    assert_eq!(agent.turn("hi"), "end_turn");
    let gauges = agent.updates_of("usage_update");
    let costs: Vec<_> = gauges.iter().map(|update| &update["cost"]["amount"]).collect();
    assert_eq!(costs, [0.25]);
}

/// OpenAI's models for coding (tmuxai#82), and its newer ones with tools (openai-openapi#541).
#[test]
fn a_model_that_is_refused_in_chat_completions_is_asked_here_from_then_on() {
    for refusal in [
        "This model is only supported in v1/responses and not in v1/chat/completions.",
        "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To \
         use function tools, use /v1/responses or set reasoning_effort to 'none'.",
    ] {
        let server = RawServer::reading(move |_, request, stream| {
            if request.starts_with("POST /v1/responses ") {
                return write_stream(stream, &says("Hello."));
            }
            let body = json!({ "error": { "message": refusal, "param": "model" } });
            let head = "HTTP/1.1 404 No\r\ncontent-type: application/json\r\nconnection: close";
            stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
        });
        let mut agent = start_with(&server, "");
        assert_eq!(agent.turn("hi"), "end_turn");
        assert_eq!(agent.turn("again"), "end_turn");
        assert_eq!(agent.text(), "Hello.Hello.");
        assert_eq!(server.requests().len(), 3, "{refusal}");
        assert!(server.body(1)["tools"][0]["name"].is_string(), "{refusal}");
    }
}

/// The keys of xAI may be restricted to some endpoints.
#[test]
fn a_key_that_is_refused_here_is_used_with_chat_completions_from_then_on() {
    let refuse = |stream: &mut TcpStream, status: u16, message: &str| {
        let head = "content-type: application/json\r\nconnection: close";
        let body = json!({ "error": message });
        stream
            .write_all(format!("HTTP/1.1 {status} No\r\n{head}\r\n\r\n{body}").as_bytes())
            .unwrap();
    };
    let server = RawServer::reading(move |number, request, stream| {
        match (number, request.starts_with("POST /v1/responses ")) {
            (0, _) => refuse(stream, 400, "This model is only supported in v1/responses."),
            (1, true) => {
                let thought =
                    json!({ "type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA" });
                let thinks = json!({ "output_index": 1, "item": thought });
                write_stream(stream, &(event("output_item.done", thinks) + &says("Hello.")));
            }
            (_, true) => refuse(stream, 403, "This key may not use this endpoint."),
            (_, false) => {
                let choice = json!({ "delta": { "content": "Hello." }, "finish_reason": "stop" });
                let chunk = json!({ "choices": [choice] });
                write_stream(stream, &format!("data: {chunk}\n\ndata: [DONE]\n\n"));
            }
        }
    });
    let mut agent = start_with(&server, "");
    for _ in 0..3 {
        assert_eq!(agent.turn("hi"), "end_turn");
    }
    assert_eq!(agent.text(), "Hello.Hello.Hello.");
    let requests = server.requests();
    let asked_here: Vec<_> = requests.iter().map(|one| one.contains("/v1/responses ")).collect();
    assert_eq!(asked_here, [false, true, true, false, false]);
    assert!(!requests[3].contains("reasoning_details"), "{}", requests[3]);
}

#[test]
fn a_turn_with_a_call_sends_the_reasoning_back() {
    let server = RawServer::start(|number, stream| {
        let answer = if number == 0 { reads("a.txt") } else { says("It says one.") };
        write_stream(stream, &answer);
    });
    let mut agent = start(&server);
    assert_eq!(agent.turn("What does a.txt say?"), "end_turn");
    assert_eq!(agent.text(), "It says one.");
    assert_eq!(agent.thoughts(), "I should look.");
    let (first, body) = (server.body(0), server.body(1));
    assert!(server.requests()[0].starts_with("POST /v1/responses "), "{:?}", server.requests());
    assert_eq!(first["store"], false, "{first}");
    let input = body["input"].as_array().unwrap();
    let kinds: Vec<_> = input.iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "reasoning", "function_call", "function_call_output"]);
    assert_eq!(input[1]["encrypted_content"], "gAAA");
    assert!(input[3]["output"].as_str().unwrap().contains("one"), "{body}");
}

#[test]
fn a_cancel_ends_the_answer_and_the_session_goes_on() {
    let server = RawServer::start(|number, stream: &mut TcpStream| {
        if number > 0 {
            return write_stream(stream, &says("All is well."));
        }
        write_head(stream);
        let delta = json!({ "output_index": 0, "delta": "I think" });
        stream.write_all(event("output_text.delta", delta).as_bytes()).unwrap();
        wait_for_the_end(stream);
    });
    let mut agent = start(&server);
    let id = agent.prompt("Think");
    agent.wait_for_update("agent_message_chunk");
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    assert_eq!(agent.turn("and now?"), "end_turn");
    assert!(agent.text().ends_with("All is well."), "{}", agent.text());
}

#[test]
fn a_refusal_ends_the_turn_with_refusal() {
    let server = RawServer::start(|_, stream| {
        let refusal = event("refusal.delta", json!({ "output_index": 0, "delta": "I will not." }));
        write_stream(stream, &(refusal + &completed()));
    });
    let mut agent = start(&server);
    assert_eq!(agent.turn("Do harm"), "refusal");
    assert_eq!(agent.text(), "I will not.");
}
