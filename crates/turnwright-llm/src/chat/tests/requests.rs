//! Rendered requests are minimal, valid and byte-stable.

use std::sync::Arc;

use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::chat;
use crate::exchange::{RenderedTools, RequestStyle};
use crate::http::request_body::PrefixCache;
use crate::quirks::Quirks;
use crate::{ReasoningEffort, Request};
use turnwright_types::message::{
    Arguments, AssistantMessage, Message, PromptPart, ProviderState, ToolCall, ToolMessage,
    ToolSpec, UserMessage,
};

fn render_with(prefixes: &PrefixCache, quirks: &Quirks, request: &Request) -> Vec<u8> {
    let tools = RenderedTools::new(&request.tools, chat::render_tool);
    let style = RequestStyle {
        model: "m",
        origin: "host/m",
        quirks,
        aliases: &tools.aliases,
        tools: &tools.json,
        max_output: None,
        extra_body: &Map::new(),
    };
    chat::render(prefixes, &style, request).to_vec()
}

fn render(messages: &[Message], tools: &[ToolSpec]) -> String {
    let request = Request {
        system: "Be brief.".into(),
        messages: messages.iter().cloned().map(Arc::new).collect(),
        tools: Arc::new(tools.iter().cloned().map(Arc::new).collect()),
        effort: ReasoningEffort::Default,
        has_media: true,
    };
    String::from_utf8(render_with(&PrefixCache::default(), &Quirks::default(), &request)).unwrap()
}

/// The rendered messages without the system prompt, one per line.
fn messages(messages: &[Message]) -> String {
    let body: Value = serde_json::from_str(&render(messages, &[])).unwrap();
    let all = body["messages"].as_array().unwrap();
    all.iter().skip(1).fold(String::new(), |text, message| format!("{text}{message}\n"))
}

fn user(text: &str) -> Message {
    Message::User(UserMessage::text(text))
}

fn assistant(text: &str, calls: &[(&str, &str, Arguments)]) -> Message {
    let calls = calls.iter().map(|(id, name, arguments)| ToolCall {
        id: format!("call-{id}").into(),
        provider_id: (*id).to_owned(),
        name: (*name).to_owned(),
        arguments: arguments.clone(),
        extra: None,
    });
    Message::Assistant(AssistantMessage {
        id: "msg".into(),
        text: text.to_owned(),
        thought: "not sent".to_owned(),
        calls: calls.collect(),
        interrupted: false,
        provider_state: ProviderState::default(),
    })
}

fn result(id: &str, text: &str) -> Message {
    Message::Tool(ToolMessage {
        call: format!("call-{id}").into(),
        provider_id: id.to_owned(),
        name: "f".to_owned(),
        text: text.to_owned(),
        ok: true,
        images: Vec::new(),
    })
}

fn object(value: Value) -> Arguments {
    Arguments::Object(value)
}

fn spec(name: &'static str) -> ToolSpec {
    let parameters = json!({ "properties": { "a": {} }, "type": "object" });
    ToolSpec { name: name.into(), description: "It does.".to_owned(), parameters }
}

#[test]
fn without_tools_the_body_is_minimal() {
    expect![[r#"{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true}}"#]].assert_eq(&render(&[user("Hi")], &[]));
}

#[test]
fn tools_come_without_fields_that_strict_servers_refuse() {
    expect![[r#"{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f","description":"It does.","parameters":{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"},{"type":"object"},{"type":"array","items":{"type":"string"}}]}}}}},{"type":"function","function":{"name":"g","description":"It does.","parameters":{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"},{"type":"object"},{"type":"array","items":{"type":"string"}}]}}}}}],"stream":true,"stream_options":{"include_usage":true}}"#]].assert_eq(&render(&[user("Hi")], &[spec("f"), spec("g")]));
}

#[test]
fn each_role_has_its_shape() {
    let history = [
        user("Hi"),
        assistant("I look.", &[("a", "f", object(json!({ "x": "\"ä\"\n" })))]),
        result("a", ""),
        assistant("", &[("b", "f", object(json!({}))), ("c", "g", object(json!({ "y": [1] })))]),
        result("b", "one\ntwo"),
        result("c", "three"),
        assistant("Done.", &[]),
    ];
    expect![[r#"
        {"role":"user","content":"Hi"}
        {"role":"assistant","content":"I look.","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":\"\\\"ä\\\"\\n\"}"}}]}
        {"role":"tool","tool_call_id":"a","content":""}
        {"role":"assistant","tool_calls":[{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c","type":"function","function":{"name":"g","arguments":"{\"y\":[1]}"}}]}
        {"role":"tool","tool_call_id":"b","content":"one\ntwo"}
        {"role":"tool","tool_call_id":"c","content":"three"}
        {"role":"assistant","content":"Done."}
    "#]].assert_eq(&messages(&history));
}

#[test]
fn arguments_are_always_an_object() {
    let unusable = Arguments::Unusable { text: "{\"x".to_owned(), reason: "cut".to_owned() };
    let calls =
        [("a", "", unusable), ("b", "f", object(Value::Null)), ("c", "f", object(json!([1])))];
    expect![[r#"
        {"role":"user","content":"Hi"}
        {"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"unknown","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}
    "#]].assert_eq(&messages(&[user("Hi"), assistant("", &calls)]));
}

#[test]
fn an_empty_reply_is_omitted_and_its_neighbours_are_merged() {
    let link = PromptPart::Link { name: "a".to_owned(), uri: "file:///a".to_owned() };
    let history = [
        user("One"),
        assistant("", &[]),
        assistant(" \n", &[]),
        Message::User(UserMessage::new(vec![PromptPart::Text("Two ".to_owned()), link])),
        user("Three"),
    ];
    expect![[r#"
        {"role":"user","content":"One\n\nTwo [a](/a)\n\nThree"}
    "#]]
    .assert_eq(&messages(&history));
}

/// Providers cache by prefix: bytes that have been sent must be sent again unchanged.
#[test]
fn each_request_starts_like_the_previous_one() {
    let history = [
        user("One"),
        assistant("I look.", &[("a", "f", object(json!({ "b": 1, "a": { "d": 1, "c": 2 } })))]),
        result("a", "x"),
        assistant("", &[("b", "f", object(json!({})))]),
        result("b", "y"),
        assistant("Done.", &[]),
        user("Two"),
        // The reply to this was empty, so the two prompts are merged into one message that grows.
        assistant("", &[]),
        user("Three"),
    ];
    let mut before = String::new();
    for length in 1..=history.len() {
        let body = render(&history[..length], &[spec("f")]);
        let (start, _) =
            body.rsplit_once("\"}],\"tools\":").or(body.rsplit_once("}],\"tools\":")).unwrap();
        assert!(body.starts_with(&before), "{before}\n{body}");
        assert_eq!(body, render(&history[..length], &[spec("f")]));
        start.clone_into(&mut before);
    }
}

proptest! {
    /// Conversations that grow, are truncated and alternate, through one prefix cache.
    #[test]
    fn the_prefix_cache_changes_no_byte(
        steps in proptest::collection::vec((0..3_usize, 0..6_u8), 0..40),
    ) {
        let prefixes = PrefixCache::default();
        let mut conversations: [Vec<Arc<Message>>; 3] = Default::default();
        for (number, step) in steps {
            let conversation = &mut conversations[number];
            match step {
                0 => conversation.push(Arc::new(user(&format!("User {number}")))),
                1 => conversation.push(Arc::new(assistant("", &[]))),
                2 => conversation.push(Arc::new(assistant("Answer.", &[]))),
                3 => {
                    let call = ("a", "f", object(json!({})));
                    conversation.push(Arc::new(assistant("", &[call])));
                    conversation.push(Arc::new(result("a", "x")));
                }
                4 => conversation.truncate(conversation.len() / 2),
                _ => conversation.clear(),
            }
            let request = Request {
                system: "Be brief.".into(),
                messages: conversation.clone(),
                tools: Arc::default(),
                effort: ReasoningEffort::Default,
has_media: true,
            };
            let remembered = render_with(&prefixes, &Quirks::default(), &request);
            let fresh = render_with(&PrefixCache::default(), &Quirks::default(), &request);
            prop_assert_eq!(String::from_utf8(remembered), String::from_utf8(fresh));
        }
    }
}
