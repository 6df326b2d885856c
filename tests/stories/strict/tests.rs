//! Shows that the mocks are strict: the stories about providers say nothing if a mock takes whatever it is sent.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};

use super::gemini::SENTINEL;
use super::{
    ALL, MockProvider, ProviderDialect, deepseek, gemini, glm, groq, kimi, minimax, mistral,
};

/// Changes the body of a request.
type Change = fn(&mut Value);

/// Sends a request and returns the status and the raw body of the response.
fn post(mock: &MockProvider, body: &Value) -> (u16, String) {
    let mut stream = TcpStream::connect(mock.address()).unwrap();
    let body = body.to_string();
    let length = body.len();
    let head = format!("POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Returns a conversation that this provider accepts: the system message, a prompt, a call, its
/// result, text, and a prompt. Messages 2 and 4 are the model's.
fn good(provider: &ProviderDialect) -> Value {
    let id = (provider.call_id)(99, 0);
    let function = json!({ "name": "read_file", "arguments": "{\"path\":\"a.txt\"}" });
    let mut call = json!({ "id": id, "type": "function", "function": function });
    if provider.name == "gemini" {
        call["extra_content"] = json!({ "google": { "thought_signature": SENTINEL } });
    }
    let mut calls = json!({ "role": "assistant", "tool_calls": [call] });
    let mut words = json!({ "role": "assistant", "content": "It says alpha." });
    if ["deepseek", "kimi"].contains(&provider.name) {
        calls["reasoning_content"] = json!("");
        words["reasoning_content"] = json!("");
    }
    let path = json!({ "type": "string", "description": "File" });
    let parameters = json!({ "type": "object", "properties": { "path": path } });
    let function = json!({ "name": "read_file", "description": "Reads", "parameters": parameters });
    json!({
        "model": provider.model,
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "Turn 1: read" },
            calls,
            { "role": "tool", "tool_call_id": id, "content": "alpha" },
            words,
            { "role": "user", "content": "Turn 2: read" },
        ],
        "tools": [{ "type": "function", "function": function }],
        "stream": true,
    })
}

fn remove(value: &mut Value, key: &str) {
    value.as_object_mut().unwrap().remove(key);
}

fn messages(body: &mut Value) -> &mut Vec<Value> {
    body["messages"].as_array_mut().unwrap()
}

#[test]
fn every_provider_refuses_what_all_strict_servers_refuse() {
    let table: [(&str, Change); 15] = [
        ("a result is missing", |body| drop(messages(body).remove(3))),
        ("a result comes late", |body| messages(body).swap(3, 4)),
        ("a result belongs to no call", |body| {
            body["messages"][3]["tool_call_id"] = json!("other0000");
        }),
        ("a result comes twice", |body| {
            let result = body["messages"][3].clone();
            messages(body).insert(4, result);
        }),
        ("an id comes twice", |body| {
            let call = body["messages"][2]["tool_calls"][0].clone();
            body["messages"][2]["tool_calls"].as_array_mut().unwrap().push(call);
            let result = body["messages"][3].clone();
            messages(body).insert(4, result);
        }),
        ("arguments are no object", |body| {
            body["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!("[]");
        }),
        ("arguments are cut", |body| {
            body["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!("{\"path\":");
        }),
        ("an answer is empty", |body| body["messages"][4]["content"] = json!("")),
        ("a list of calls is empty", |body| body["messages"][4]["tool_calls"] = json!([])),
        ("two prompts in a row", |body| {
            messages(body).push(json!({ "role": "user", "content": "And?" }));
        }),
        ("the last message is the model's", |body| drop(messages(body).pop())),
        ("an empty list of tools", |body| body["tools"] = json!([])),
        ("a name with a dot", |body| {
            body["tools"][0]["function"]["name"] = json!("files.read");
        }),
        ("an unknown key", |body| body["store"] = json!(false)),
        ("a role that only OpenAI knows", |body| {
            body["messages"][0]["role"] = json!("developer");
        }),
    ];
    for provider in ALL {
        let (status, answer) = post(&MockProvider::start(provider), &good(provider));
        assert_eq!(status, 200, "{}: {answer}", provider.name);
        for (what, change) in table {
            let mock = MockProvider::start(provider);
            let mut body = good(provider);
            change(&mut body);
            let (status, answer) = post(&mock, &body);
            assert!([400, 422].contains(&status), "{}: {what}: {status} {answer}", provider.name);
        }
    }
}

#[test]
fn each_provider_refuses_what_only_it_refuses() {
    let table: [(&'static ProviderDialect, &str, Change); 7] = [
        (&deepseek::PROVIDER, "must be passed back to the API", |body| {
            remove(&mut body["messages"][4], "reasoning_content");
        }),
        (&kimi::PROVIDER, "missing in assistant tool call message at index 2", |body| {
            remove(&mut body["messages"][2], "reasoning_content");
        }),
        (&glm::PROVIDER, "Invalid API parameter", |body| body["reasoning_effort"] = json!("high")),
        (&minimax::PROVIDER, "reasoning_content", |body| {
            body["messages"][4]["reasoning_content"] = json!("Hm.");
        }),
        (&gemini::PROVIDER, "missing a thought_signature", |body| {
            remove(&mut body["messages"][2]["tool_calls"][0], "extra_content");
        }),
        (&mistral::PROVIDER, "Extra inputs are not permitted", |body| {
            body["messages"][4]["reasoning_content"] = json!("Hm.");
        }),
        (&groq::PROVIDER, "property 'reasoning_content' is unsupported", |body| {
            body["messages"][4]["reasoning_content"] = json!("");
        }),
    ];
    for (provider, text, change) in table {
        let mut body = good(provider);
        change(&mut body);
        let (status, answer) = post(&MockProvider::start(provider), &body);
        assert!([400, 422].contains(&status), "{}: {status} {answer}", provider.name);
        assert!(answer.contains(text), "{}: {answer}", provider.name);
    }
}
