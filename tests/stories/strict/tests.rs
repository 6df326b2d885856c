//! Tests of the mocks: each accepts a valid conversation and refuses what its provider refuses, with the
//! provider's message. Without these tests a mock could accept invalid requests unnoticed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};

use super::gemini::SENTINEL;
use super::{
    ALL, MockProvider, ProviderDialect, deepseek, gemini, glm, groq, kimi, minimax, mistral, rules,
    schema, script,
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

/// Asserts that the changed body is refused with this status and text.
fn refuses(provider: &'static ProviderDialect, status: u16, text: &str, change: Change) {
    let mock = MockProvider::start(provider);
    let mut body = good(provider);
    change(&mut body);
    let (given, answer) = post(&mock, &body);
    assert!(answer.contains(text), "{}: no {text:?} in {given} {answer}\n{body:#}", provider.name);
    assert_eq!(given, status, "{}: {answer}", provider.name);
    assert_eq!(mock.refusals().len(), 1);
}

/// Asserts that the changed body is accepted.
fn takes(provider: &'static ProviderDialect, change: Change) {
    let mock = MockProvider::start(provider);
    let mut body = good(provider);
    change(&mut body);
    let (status, answer) = post(&mock, &body);
    assert_eq!(status, 200, "{}: {answer}\n{body:#}", provider.name);
    assert!(answer.contains("data: [DONE]"), "{}: {answer}", provider.name);
    assert_eq!(mock.refusals().len(), 0);
}

fn remove(value: &mut Value, key: &str) {
    value.as_object_mut().unwrap().remove(key);
}

fn messages(body: &mut Value) -> &mut Vec<Value> {
    body["messages"].as_array_mut().unwrap()
}

fn set_property(body: &mut Value, schema: Value) {
    body["tools"][0]["function"]["parameters"]["properties"]["path"] = schema;
}

#[test]
fn each_provider_accepts_a_valid_conversation() {
    for provider in ALL {
        takes(provider, |_| {});
        takes(provider, |body| remove(body, "tools"));
        takes(provider, |body| messages(body).truncate(4));
    }
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
fn deepseek_refuses_with_its_own_messages() {
    let provider = &deepseek::PROVIDER;
    let echo = "The `reasoning_content` in the thinking mode must be passed back to the API.";
    // The reasoning is also required on an answer without calls.
    refuses(provider, 400, echo, |body| remove(&mut body["messages"][2], "reasoning_content"));
    refuses(provider, 400, echo, |body| remove(&mut body["messages"][4], "reasoning_content"));
    takes(provider, |body| {
        remove(body, "tools");
        remove(&mut body["messages"][4], "reasoning_content");
    });
    refuses(provider, 400, "unknown variant `developer`", |body| {
        body["messages"][0]["role"] = json!("developer");
    });
    refuses(provider, 400, "max_completion_tokens", |body| {
        body["max_completion_tokens"] = json!(100);
    });
    takes(provider, |body| body["max_tokens"] = json!(100));
    refuses(provider, 400, "does not support this tool_choice", |body| {
        body["tool_choice"] = json!("required");
    });
    takes(provider, |body| body["tool_choice"] = json!("auto"));
    refuses(provider, 400, "messages[2].content: invalid type", |body| {
        body["messages"][2]["content"] = Value::Null;
    });
    refuses(
        provider,
        400,
        "successive user or assistant messages (messages[4] and messages[5]",
        |body| {
            let answer = body["messages"][4].clone();
            messages(body).insert(5, answer);
        },
    );
    refuses(provider, 400, "insufficient tool messages following", |body| {
        messages(body).drain(3..5);
    });
}

#[test]
fn kimi_refuses_with_its_own_messages() {
    let provider = &kimi::PROVIDER;
    let echo = "thinking is enabled but reasoning_content is missing in assistant tool call \
                message at index 2";
    refuses(provider, 400, echo, |body| remove(&mut body["messages"][2], "reasoning_content"));
    takes(provider, |body| remove(&mut body["messages"][4], "reasoning_content"));
    refuses(provider, 400, "reasoning_effort", |body| body["reasoning_effort"] = json!("high"));
    refuses(provider, 400, "max_completion_tokens", |body| {
        body["max_completion_tokens"] = json!(100);
    });
    refuses(provider, 400, "invalid temperature: only 1 is allowed", |body| {
        body["temperature"] = json!(0.2);
    });
    refuses(provider, 400, "did not have response messages: functions.read_file:0", |body| {
        drop(messages(body).remove(3));
    });
    refuses(provider, 400, "strict is not supported", |body| {
        body["tools"][0]["function"]["strict"] = json!(true);
    });
    let at = "is not a valid moonshot flavored json schema, details: <At path 'properties.path': ";
    refuses(provider, 400, &format!("{at}type is not defined>"), |body| {
        set_property(body, json!({ "description": "File" }));
    });
}

#[test]
fn glm_refuses_with_its_own_messages() {
    let provider = &glm::PROVIDER;
    let parameter = r#"{"error":{"code":"1210","message":"Invalid API parameter, please check"#;
    refuses(provider, 400, parameter, |body| body["reasoning_effort"] = json!("high"));
    refuses(provider, 400, parameter, |body| body["max_completion_tokens"] = json!(100));
    refuses(provider, 400, parameter, |body| body["stop"] = json!(["a", "b"]));
    refuses(provider, 400, parameter, |body| body["tool_choice"] = json!("required"));
    takes(provider, |body| {
        body["thinking"] = json!({ "type": "enabled", "clear_thinking": false });
    });
    let message = r#"{"error":{"code":"1214","message":"The messages parameter is illegal."#;
    refuses(provider, 400, message, |body| drop(messages(body).remove(3)));
    takes(provider, |body| body["messages"][4]["reasoning_content"] = json!("Hm."));
}

#[test]
fn minimax_refuses_with_its_own_messages() {
    let provider = &minimax::PROVIDER;
    let start = r#""type":"bad_request_error""#;
    refuses(provider, 400, start, |body| drop(messages(body).remove(3)));
    refuses(provider, 400, "tool call and result not match (2013)", |body| {
        drop(messages(body).remove(3));
    });
    refuses(
        provider,
        400,
        "invalid function arguments json string, tool_call_id: call_function_",
        |body| {
            body["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!("");
        },
    );
    refuses(provider, 400, "function parameters is empty (2013)", |body| {
        remove(&mut body["tools"][0]["function"], "parameters");
    });
    refuses(provider, 400, "tool_choice", |body| body["tool_choice"] = json!("auto"));
    refuses(provider, 400, "reasoning_content", |body| {
        body["messages"][4]["reasoning_content"] = json!("Hm.");
    });
}

#[test]
fn gemini_refuses_with_its_own_messages() {
    let provider = &gemini::PROVIDER;
    let missing =
        r#"[{"error":{"code":400,"message":"Function call is missing a thought_signature"#;
    refuses(provider, 400, missing, |body| {
        remove(&mut body["messages"][2]["tool_calls"][0], "extra_content");
    });
    refuses(provider, 400, "Thought signature is not valid", |body| {
        body["messages"][2]["tool_calls"][0]["extra_content"]["google"]["thought_signature"] =
            json!("of another model");
    });
    refuses(provider, 400, r#"Unknown name \"reasoning_content\" at 'messages[4]'"#, |body| {
        body["messages"][4]["reasoning_content"] = json!("Hm.");
    });
    refuses(provider, 400, r#"Unknown name \"store\""#, |body| body["store"] = json!(true));
    refuses(provider, 400, "number of function response parts is equal", |body| {
        drop(messages(body).remove(3));
    });
    refuses(provider, 400, r#"Unknown name \"const\""#, |body| {
        set_property(body, json!({ "type": "string", "const": "a" }));
    });
}

#[test]
fn mistral_refuses_with_its_own_messages() {
    let provider = &mistral::PROVIDER;
    let extra = r#""loc":["body","messages",4,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted""#;
    refuses(provider, 422, extra, |body| body["messages"][4]["reasoning_content"] = json!("Hm."));
    refuses(provider, 422, r#""loc":["body","stream_options"]"#, |body| {
        body["stream_options"] = json!({ "include_usage": true });
    });
    refuses(provider, 422, r#""loc":["body","tools"]"#, |body| body["tools"] = json!([]));
    refuses(
        provider,
        400,
        "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
        |body| {
            body["messages"][2]["tool_calls"][0]["id"] = json!("call_1");
        },
    );
    refuses(provider, 400, "Unexpected role 'user' after role 'tool'", |body| {
        drop(messages(body).remove(4));
    });
    refuses(provider, 400, "Expected last role User or Tool", |body| drop(messages(body).pop()));
    refuses(provider, 400, r#""object":"error""#, |body| {
        body["messages"][4]["content"] = json!("");
    });
    refuses(provider, 422, "valid string", |body| body["messages"][2]["content"] = Value::Null);
    takes(provider, |body| {
        let thinking =
            json!({ "type": "thinking", "thinking": [{ "type": "text", "text": "Hm." }] });
        body["messages"][4]["content"] = json!([thinking, { "type": "text", "text": "Yes." }]);
    });
}

#[test]
fn groq_refuses_with_its_own_messages() {
    let provider = &groq::PROVIDER;
    let extra = "'messages.4' : for 'role:assistant' the following must be satisfied[('messages.4' \
                 : property 'reasoning_content' is unsupported)]";
    refuses(provider, 400, extra, |body| body["messages"][4]["reasoning_content"] = json!(""));
    takes(provider, |body| body["messages"][4]["reasoning"] = json!("Hm."));
    refuses(provider, 400, "'messages.2.content' : value must be a string", |body| {
        body["messages"][2]["content"] = Value::Null;
    });
    refuses(provider, 400, "'messages.4.content' : value must be a string", |body| {
        body["messages"][4]["content"] = json!([{ "type": "text", "text": "Yes." }]);
    });
    refuses(provider, 400, "property 'store' is unsupported", |body| body["store"] = json!(true));
    refuses(provider, 400, "property 'extra_content' is unsupported", |body| {
        body["messages"][2]["tool_calls"][0]["extra_content"] = json!({});
    });
    refuses(provider, 400, "Unknown name", |body| {
        set_property(body, json!({ "type": "string", "format": "uri" }));
    });
}

#[test]
fn each_schema_subset_accepts_and_refuses_the_right_schemas() {
    let object = |property: Value| json!({ "type": "object", "properties": { "x": property } });
    // Each row has a schema, and whether `moonshot` and `narrow` accept it.
    let table = [
        (object(json!({ "type": "string", "enum": ["a"] })), true, true),
        (object(json!({ "type": "array", "items": { "type": "string" } })), true, true),
        (object(json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] })), true, true),
        (json!({ "properties": {} }), false, false),
        (object(json!({ "$ref": "#/$defs/A" })), false, false),
        (object(json!({ "description": "untyped" })), false, true),
        (object(json!({ "type": "string", "anyOf": [{ "type": "string" }] })), false, true),
        (object(json!({ "type": "array", "items": [{ "type": "string" }] })), false, true),
        (object(json!({ "type": "string", "enum": [1] })), false, false),
        (object(json!({ "type": "integer", "enum": [1] })), true, false),
        (object(json!({ "type": ["string", "null"] })), true, false),
        (object(json!({ "type": "integer", "exclusiveMinimum": 0 })), true, false),
        (object(json!({ "type": "string", "pattern": "^(?!a)" })), true, false),
        (object(json!({ "type": "string", "default": "a" })), true, false),
        (object(json!({ "type": "object", "properties": {} })), true, false),
        (object(json!({ "type": "object", "properties": { "y": {} } })), false, true),
    ];
    for (schema, moonshot, narrow) in table {
        assert_eq!(schema::moonshot(&schema).is_ok(), moonshot, "{schema}");
        assert_eq!(schema::narrow(&schema).is_ok(), narrow, "{schema}");
    }
}

/// A provider accepts defects that degrade the model's answers, so the mock reports them.
#[test]
fn accepted_defects_are_reported() {
    let mock = MockProvider::start(&kimi::PROVIDER);
    let mut body = good(&kimi::PROVIDER);
    body["messages"][2]["tool_calls"][0]["id"] = json!("call_1");
    body["messages"][3]["tool_call_id"] = json!("call_1");
    assert_eq!(post(&mock, &body).0, 200);
    assert_eq!(mock.complaints(), ["kimi: the id call_1 is not like functions.NAME:N"]);

    for provider in [&glm::PROVIDER, &minimax::PROVIDER] {
        let mock = MockProvider::start(provider);
        let mut body = good(provider);
        let marker = format!("({} 1)", provider.name);
        post(&mock, &body);
        // The test sends the provider's own answer back, first without its reasoning and then with it.
        body["messages"][4]["content"] = json!(format!("I look at it. {marker}"));
        post(&mock, &body);
        assert_eq!(mock.harms().len(), 1, "{}", provider.name);
        let thought = format!("Let me think. {marker}");
        if provider.name == "glm" {
            body["messages"][4]["reasoning_content"] = json!(thought);
        } else {
            let words = format!("<think>\n{thought}\n</think>\n\nI look at it. {marker}");
            body["messages"][4]["content"] = json!(words);
        }
        post(&mock, &body);
        assert_eq!(mock.harms().len(), 1, "{}: {:?}", provider.name, mock.harms());
    }
}

#[test]
fn each_mock_streams_in_its_own_dialect() {
    let table: [(&ProviderDialect, &[&str]); 7] = [
        (&deepseek::PROVIDER, &[": keep-alive", "reasoning_content", "prompt_cache_hit_tokens"]),
        (&kimi::PROVIDER, &["reasoning_content", "functions.read_file:1", "cached_tokens"]),
        (&glm::PROVIDER, &["reasoning_content", r#""finish_reason":"tool_calls""#]),
        (&minimax::PROVIDER, &["<thi", r#""usage":{}"#, "base_resp"]),
        (&gemini::PROVIDER, &["thought_signature", r#""finish_reason":"stop""#]),
        (&mistral::PROVIDER, &[r#""type":"thinking""#, r#""text":"I ""#]),
        (&groq::PROVIDER, &[r#""reasoning":"Let ""#, "x_groq"]),
    ];
    for (provider, features) in table {
        let mock =
            MockProvider::start(ALL.into_iter().find(|it| it.name == provider.name).unwrap());
        let (_, answer) = post(&mock, &good(provider));
        for feature in features {
            assert!(answer.contains(feature), "{}: no {feature} in {answer}", provider.name);
        }
    }
}

#[test]
fn gemini_numbers_no_call_and_signs_only_the_first() {
    let mock = MockProvider::start(&gemini::PROVIDER);
    let mut body = good(&gemini::PROVIDER);
    body["messages"][5]["content"] = json!("Turn 2: both");
    let (_, answer) = post(&mock, &body);
    let events =
        answer.lines().filter_map(|it| serde_json::from_str(it.strip_prefix("data: ")?).ok());
    let calls = events.filter_map(|it: Value| it.pointer("/choices/0/delta/tool_calls/0").cloned());
    let calls: Vec<Value> = calls.collect();
    assert_eq!(calls.len(), 2, "{answer}");
    assert!(calls.iter().all(|it| it.get("index").is_none()), "{answer}");
    assert!(calls[0].get("extra_content").is_some() && calls[1].get("extra_content").is_none());
}

#[test]
fn minimax_streams_its_reasoning_in_a_separate_field_on_request() {
    let mock = MockProvider::start(&minimax::PROVIDER);
    let mut body = good(&minimax::PROVIDER);
    body["reasoning_split"] = json!(true);
    let (_, answer) = post(&mock, &body);
    assert!(answer.contains("reasoning_details") && !answer.contains("<thi"), "{answer}");
}

#[test]
fn groq_and_glm_fail_once_although_the_request_is_valid() {
    for (provider, sign) in
        [(&groq::PROVIDER, "failed_generation"), (&glm::PROVIDER, "network_error")]
    {
        let mock = MockProvider::start(provider);
        let signs = (0..6).filter(|_| post(&mock, &good(provider)).1.contains(sign)).count();
        assert_eq!(signs, 1, "{}", provider.name);
        assert_eq!(mock.refusals().len(), 0, "the failure must not be a refusal");
    }
}

#[test]
fn a_fault_that_is_refused_twice_is_a_complaint() {
    let mock = MockProvider::start(&mistral::PROVIDER);
    let mut body = good(&mistral::PROVIDER);
    body["stream_options"] = json!({});
    post(&mock, &body);
    assert_eq!(mock.complaints(), [""; 0]);
    post(&mock, &body);
    assert!(mock.complaints()[0].starts_with("refused again, Key stream_options"));
}

#[test]
fn the_scripted_answer_reports_the_results() {
    let mut body = good(&groq::PROVIDER);
    messages(&mut body).truncate(4);
    assert!(rules::check(&groq::PROVIDER, &body).is_ok());
    assert_eq!(script::answer(&groq::PROVIDER, &body, &[]).words, "It says alpha. (groq 1)");
}
