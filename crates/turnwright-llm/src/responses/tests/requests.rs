//! Rendered requests are minimal, valid and byte-stable.

use std::sync::Arc;

use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::exchange::{RenderedTools, RequestStyle};
use crate::http::request_body::PrefixCache;
use crate::quirks::{CacheHint, EffortDialect, Quirks};
use crate::responses;
use crate::{ReasoningEffort, Request};
use turnwright_types::message::{
    Arguments, AssistantMessage, Media, Message, PromptPart, ProviderState, ToolCall, ToolMessage,
    ToolSpec, UserMessage,
};

const ORIGIN: &str = "host/m";

fn thinking() -> Quirks {
    Quirks { effort: EffortDialect::ReasoningEffort, images: true, ..Quirks::default() }
}

fn request(messages: &[Message], tools: &[ToolSpec], effort: ReasoningEffort) -> Request {
    Request {
        system: "Be brief.".into(),
        messages: messages.iter().cloned().map(Arc::new).collect(),
        tools: Arc::new(tools.iter().cloned().map(Arc::new).collect()),
        effort,
        has_media: true,
    }
}

fn render_with(prefixes: &PrefixCache, request: &Request, quirks: &Quirks) -> Vec<u8> {
    let tools = RenderedTools::new(&request.tools, responses::render_tool);
    let style = RequestStyle {
        model: "m",
        origin: ORIGIN,
        quirks,
        aliases: &tools.aliases,
        tools: &tools.json,
        max_output: None,
        extra_body: &serde_json::Map::new(),
    };
    responses::render(prefixes, &style, request).to_vec()
}

fn render(request: &Request, quirks: &Quirks) -> String {
    String::from_utf8(render_with(&PrefixCache::default(), request, quirks)).unwrap()
}

/// The rendered items, one per line.
fn items(messages: &[Message], quirks: &Quirks) -> String {
    let rendered = render(&request(messages, &[], ReasoningEffort::Default), quirks);
    let body: Value = serde_json::from_str(&rendered).unwrap();
    body["input"]
        .as_array()
        .unwrap()
        .iter()
        .fold(String::new(), |text, item| format!("{text}{item}\n"))
}

fn user(text: &str) -> Message {
    Message::User(UserMessage::text(text))
}

fn assistant(text: &str, calls: &[(&str, &str, Arguments)]) -> AssistantMessage {
    let calls = calls.iter().map(|(id, name, arguments)| ToolCall {
        id: format!("call-{id}").into(),
        provider_id: (*id).to_owned(),
        name: (*name).to_owned(),
        arguments: arguments.clone(),
        extra: None,
    });
    AssistantMessage {
        id: "msg".into(),
        text: text.to_owned(),
        thought: "not sent".to_owned(),
        calls: calls.collect(),
        interrupted: false,
        provider_state: ProviderState::default(),
    }
}

fn assistant_text(text: &str) -> Message {
    Message::Assistant(assistant(text, &[]))
}

fn with_provider_state(message: AssistantMessage, origin: &str, blobs: Value) -> Message {
    let Value::Array(blobs) = blobs else { panic!("{blobs}") };
    let echo = ProviderState { origin: origin.into(), field: None, blobs };
    Message::Assistant(AssistantMessage { provider_state: echo, ..message })
}

fn result(id: &str, text: &str, images: &[Media]) -> Message {
    Message::Tool(ToolMessage {
        call: format!("call-{id}").into(),
        provider_id: id.to_owned(),
        name: "f".to_owned(),
        text: text.to_owned(),
        ok: true,
        images: images.to_vec(),
    })
}

fn object(value: Value) -> Arguments {
    Arguments::Object(value)
}

fn media(mime: &str) -> Media {
    Media { mime: mime.to_owned(), data: "AAAA".to_owned() }
}

fn spec(name: &'static str) -> ToolSpec {
    let parameters = json!({ "properties": { "a": {} }, "type": "object" });
    ToolSpec { name: name.into(), description: "It does.".to_owned(), parameters }
}

#[test]
fn without_tools_and_reasoning_the_body_is_minimal() {
    let request = request(&[user("Hi")], &[], ReasoningEffort::High);
    expect![[r#"{"model":"m","instructions":"Be brief.","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}],"stream":true,"store":false}"#]].assert_eq(&render(&request, &Quirks::default()));
}

#[test]
fn tools_are_flat_and_not_strict() {
    let request = request(&[user("Hi")], &[spec("f"), spec("my.tool")], ReasoningEffort::Default);
    expect![[r#"{"model":"m","instructions":"Be brief.","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}],"tools":[{"type":"function","name":"f","description":"It does.","parameters":{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"},{"type":"object"},{"type":"array","items":{"type":"string"}}]}}},"strict":false},{"type":"function","name":"my_tool","description":"It does.","parameters":{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"},{"type":"object"},{"type":"array","items":{"type":"string"}}]}}},"strict":false}],"stream":true,"store":false}"#]].assert_eq(&render(&request, &Quirks::default()));
}

#[test]
fn reasoning_models_are_asked_for_encrypted_reasoning() {
    let body = |effort| {
        let body: Value =
            serde_json::from_str(&render(&request(&[user("Hi")], &[], effort), &thinking()))
                .unwrap();
        format!("{} {}\n", body["include"], body["reasoning"])
    };
    expect![[r#"
        ["reasoning.encrypted_content"] {"summary":"auto"}
        ["reasoning.encrypted_content"] {"effort":"none","summary":"auto"}
        ["reasoning.encrypted_content"] {"effort":"low","summary":"auto"}
        ["reasoning.encrypted_content"] {"effort":"medium","summary":"auto"}
        ["reasoning.encrypted_content"] {"effort":"high","summary":"auto"}
        ["reasoning.encrypted_content"] {"effort":"xhigh","summary":"auto"}
    "#]]
    .assert_eq(&ReasoningEffort::ALL.map(body).concat());
}

/// Without a key, requests of a conversation miss the cache, and GPT-5.6 is matched less reliably.
#[test]
fn a_conversation_keeps_its_cache_key() {
    let quirks = Quirks { cache: CacheHint::Key, ..Quirks::default() };
    let key = |messages: &[Message]| {
        let rendered = render(&request(messages, &[], ReasoningEffort::Default), &quirks);
        serde_json::from_str::<Value>(&rendered).unwrap()["prompt_cache_key"].clone()
    };
    let first = key(&[user("Hi")]);
    assert!(first.is_string());
    assert_eq!(key(&[user("Hi"), assistant_text("Yes?"), user("Bye")]), first);
    assert_ne!(key(&[user("Bye")]), first);
}

#[test]
fn each_role_has_its_shape() {
    let history = [
        user("Hi"),
        Message::Assistant(assistant("I look.", &[("a", "f", object(json!({ "x": "\"ä\"\n" })))])),
        result("a", "", &[]),
        Message::Assistant(assistant(
            "",
            &[("b", "f", object(json!({}))), ("c", "g", object(json!({ "y": [1] })))],
        )),
        result("b", "one\ntwo", &[]),
        result("c", "three", &[]),
        assistant_text(" \n"),
        assistant_text("Done."),
        user("Thanks"),
        user("Bye"),
    ];
    expect![[r#"
        {"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}]}
        {"type":"function_call","call_id":"a","name":"f","arguments":"{\"x\":\"\\\"ä\\\"\\n\"}"}
        {"type":"function_call_output","call_id":"a","output":""}
        {"type":"function_call","call_id":"b","name":"f","arguments":"{}"}
        {"type":"function_call","call_id":"c","name":"g","arguments":"{\"y\":[1]}"}
        {"type":"function_call_output","call_id":"b","output":"one\ntwo"}
        {"type":"function_call_output","call_id":"c","output":"three"}
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Done."}]}
        {"type":"message","role":"user","content":[{"type":"input_text","text":"Thanks"}]}
        {"type":"message","role":"user","content":[{"type":"input_text","text":"Bye"}]}
    "#]]
    .assert_eq(&items(&history, &Quirks::default()));
}

#[test]
fn pdf_files_are_sent_or_named() {
    let parts = vec![PromptPart::Text("Read ".to_owned()), PromptPart::Image(media(Media::PDF))];
    let history = [
        Message::User(UserMessage::new(parts)),
        Message::Assistant(assistant("", &[("a", "f", object(json!({})))])),
        result("a", "Here.", &[media("image/png"), media(Media::PDF)]),
    ];
    let data = "data:application/pdf;base64,AAAA";
    let file = format!(r#"{{"type":"input_file","filename":"document.pdf","file_data":"{data}"}}"#);
    let taken = items(&history, &Quirks { files: true, ..thinking() });
    assert_eq!(taken.matches(&file).count(), 2, "{taken}");
    let named = items(&history, &thinking());
    assert_eq!(named.matches("[PDF omitted (application/pdf): ").count(), 2, "{named}");
    assert!(named.contains("input_image") && !named.contains(data), "{named}");
}

#[test]
fn images_are_placed_where_allowed_or_named() {
    let parts = vec![
        PromptPart::Text("Compare ".to_owned()),
        PromptPart::Image(media("image/png")),
        PromptPart::Image(media("image/jpeg")),
        PromptPart::Text(" with this".to_owned()),
        PromptPart::Audio(media("audio/wav")),
    ];
    let call = [("a", "f", object(json!({}))), ("b", "f", object(json!({})))];
    let history = [
        Message::User(UserMessage::new(parts)),
        Message::Assistant(assistant("", &call)),
        result("a", "Here.", &[media("image/png")]),
        result("b", "", &[media("image/png")]),
    ];
    expect![[r#"
        {"type":"message","role":"user","content":[{"type":"input_text","text":"Compare "},{"type":"input_image","image_url":"data:image/png;base64,AAAA","detail":"auto"},{"type":"input_image","image_url":"data:image/jpeg;base64,AAAA","detail":"auto"},{"type":"input_text","text":" with this[audio omitted (audio/wav): this model does not accept audio input]"}]}
        {"type":"function_call","call_id":"a","name":"f","arguments":"{}"}
        {"type":"function_call","call_id":"b","name":"f","arguments":"{}"}
        {"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"Here."},{"type":"input_image","image_url":"data:image/png;base64,AAAA","detail":"auto"}]}
        {"type":"function_call_output","call_id":"b","output":[{"type":"input_image","image_url":"data:image/png;base64,AAAA","detail":"auto"}]}
    "#]].assert_eq(&items(&history, &thinking()));
    expect![[r#"
        {"type":"message","role":"user","content":[{"type":"input_text","text":"Compare [image omitted (image/png): this model does not accept image input][image omitted (image/jpeg): this model does not accept image input] with this[audio omitted (audio/wav): this model does not accept audio input]"}]}
        {"type":"function_call","call_id":"a","name":"f","arguments":"{}"}
        {"type":"function_call","call_id":"b","name":"f","arguments":"{}"}
        {"type":"function_call_output","call_id":"a","output":"Here.\n[image omitted (image/png): this model does not accept image input]"}
        {"type":"function_call_output","call_id":"b","output":"[image omitted (image/png): this model does not accept image input]"}
    "#]].assert_eq(&items(&history, &Quirks { images: false, ..Quirks::default() }));
}

#[test]
fn reasoning_precedes_what_it_led_to() {
    let message = assistant(
        "I look.\n\nAnd run.",
        &[("a", "f", object(json!({}))), ("b", "g", object(json!({})))],
    );
    let blobs = json!([
        { "type": "reasoning", "summary": [], "encrypted_content": "one" },
        { "type": "message", "start": 0, "end": 7, "phase": "commentary" },
        { "type": "reasoning", "summary": [], "encrypted_content": "two" },
        { "type": "function_call", "slot": 1 },
        { "type": "message", "start": 9, "end": 17 },
        { "type": "function_call", "slot": 0 },
        { "type": "reasoning", "summary": [], "encrypted_content": "nothing follows" },
    ]);
    expect![[r#"
        {"type":"reasoning","summary":[],"encrypted_content":"one"}
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}],"phase":"commentary"}
        {"type":"reasoning","summary":[],"encrypted_content":"two"}
        {"type":"function_call","call_id":"b","name":"g","arguments":"{}"}
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"And run."}]}
        {"type":"function_call","call_id":"a","name":"f","arguments":"{}"}
    "#]].assert_eq(&items(&[with_provider_state(message, ORIGIN, blobs)], &thinking()));
}

/// C.3 #15, and what an earlier version or the other protocol may have stored.
#[test]
fn foreign_reasoning_and_mismatched_records_are_omitted() {
    let one = || assistant("Ä.", &[("a", "f", object(json!({})))]);
    let reasoning = json!({ "type": "reasoning", "summary": [], "encrypted_content": "x" });
    let message = json!({ "type": "message", "start": 0, "end": 3 });
    let call = json!({ "type": "function_call", "slot": 0 });
    let whole = json!([reasoning, message, call]);
    let plain = items(&[Message::Assistant(one())], &thinking());
    assert!(
        items(&[with_provider_state(one(), ORIGIN, whole.clone())], &thinking())
            .contains("encrypted")
    );
    let table = [
        ("host/other", whole),
        (ORIGIN, json!([])),
        (ORIGIN, json!([reasoning, message])),
        (ORIGIN, json!([reasoning, call])),
        (ORIGIN, json!([reasoning, message, call, call])),
        (ORIGIN, json!([message, reasoning, { "type": "function_call", "slot": 1 }])),
        (ORIGIN, json!([reasoning, { "type": "message", "start": 0, "end": 1 }, call])),
        (ORIGIN, json!([reasoning, { "type": "message", "start": 0, "end": 99 }, call])),
        (ORIGIN, json!([reasoning, { "type": "message", "start": 3, "end": 0 }, call])),
        (ORIGIN, json!([reasoning, message, message, call])),
        (ORIGIN, json!([{ "type": "reasoning.encrypted", "data": "x" }, message, call])),
        (ORIGIN, json!(["odd", message, call])),
    ];
    for (origin, blobs) in table {
        let text = format!("{origin} {blobs}");
        assert_eq!(
            items(&[with_provider_state(one(), origin, blobs)], &thinking()),
            plain,
            "{text}"
        );
    }
}

#[test]
fn names_arguments_and_identifiers_are_valid() {
    let unusable = Arguments::Unusable { text: "{\"x".to_owned(), reason: "cut".to_owned() };
    let long = format!("functions.f:{}", "0".repeat(80));
    let other = format!("{long}1");
    let calls = [
        (long.as_str(), "", unusable),
        (other.as_str(), "f", object(Value::Null)),
        ("functions.f:1", "f", object(json!([1]))),
    ];
    let results = [result(&long, "x", &[]), result(&other, "y", &[])];
    let mut history = vec![Message::Assistant(assistant("", &calls))];
    history.extend(results);
    expect![[r#"
        {"type":"function_call","call_id":"twjrag2zh","name":"unknown","arguments":"{}"}
        {"type":"function_call","call_id":"tw2p196s","name":"f","arguments":"{}"}
        {"type":"function_call","call_id":"functions.f:1","name":"f","arguments":"{}"}
        {"type":"function_call_output","call_id":"twjrag2zh","output":"x"}
        {"type":"function_call_output","call_id":"tw2p196s","output":"y"}
    "#]]
    .assert_eq(&items(&history, &Quirks::default()));
}

/// Providers cache by prefix: bytes that have been sent must be sent again unchanged.
#[test]
fn each_request_starts_like_the_previous_one() {
    let reasoning = json!([
        { "type": "reasoning", "summary": [], "encrypted_content": "x" },
        { "type": "function_call", "slot": 0 },
    ]);
    let thought = assistant("", &[("b", "f", object(json!({})))]);
    let history = [
        user("One"),
        Message::Assistant(assistant(
            "I look.",
            &[("a", "f", object(json!({ "b": 1, "a": { "d": 1, "c": 2 } })))],
        )),
        result("a", "x", &[]),
        with_provider_state(thought, ORIGIN, reasoning),
        result("b", "y", &[media("image/png")]),
        assistant_text("Done."),
        user("Two"),
        assistant_text(""),
        user("Three"),
    ];
    let mut before = String::new();
    for length in 1..=history.len() {
        let body =
            render(&request(&history[..length], &[spec("f")], ReasoningEffort::Low), &thinking());
        let (start, _) = body.rsplit_once("],\"tools\":").unwrap();
        assert!(start.starts_with(&before), "{before}\n{body}");
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
        let quirks = thinking();
        let mut conversations: [Vec<Arc<Message>>; 3] = Default::default();
        for (number, step) in steps {
            let conversation = &mut conversations[number];
            match step {
                0 => conversation.push(Arc::new(user(&format!("User {number}")))),
                1 => conversation.push(Arc::new(assistant_text(""))),
                2 => conversation.push(Arc::new(assistant_text("Answer."))),
                3 => {
                    let call = ("a", "f", object(json!({})));
                    conversation.push(Arc::new(Message::Assistant(assistant("", &[call]))));
                    conversation.push(Arc::new(result("a", "x", &[])));
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
            let remembered = render_with(&prefixes, &request, &quirks);
            let fresh = render_with(&PrefixCache::default(), &request, &quirks);
            prop_assert_eq!(String::from_utf8(remembered), String::from_utf8(fresh));
        }
    }
}

/// `The encrypted content … could not be verified`: it belongs to another key or organisation.
#[test]
fn rejected_encrypted_reasoning_is_not_sent_again() {
    let mut answer = assistant("It is.", &[]);
    answer.provider_state = ProviderState {
        origin: ORIGIN.into(),
        field: None,
        blobs: vec![
            json!({ "type": "reasoning", "summary": [], "encrypted_content": "secret" }),
            json!({ "type": "message", "start": 0, "end": 6 }),
        ],
    };
    let messages = [user("Is it?"), Message::Assistant(answer), user("Sure?")];
    let taught = Quirks { encrypted: false, ..thinking() };
    assert!(!items(&messages, &taught).contains("secret"));
}
