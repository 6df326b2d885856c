//! Requests in the manner of each kind of server (quirks C.2 #8–#10, C.3 #4–#15, C.4).

use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::chat::request;
use crate::manner::Manner;
use crate::names::Aliases;
use crate::prefix::Prefixes;
use crate::quirks::{Cache, Dialect, Echo as EchoRule, Ids, Limit, Quirks, Role, Wordless};
use crate::{Effort, Request};
use turnwright_types::message::{
    Arguments, AssistantMessage, Echo, Media, Message, Part, ToolCall, ToolMessage, UserMessage,
};
use turnwright_types::repair::repair;

const ORIGIN: &str = "host/m";

fn media(mime: &str) -> Media {
    Media { mime: mime.to_owned(), data: "AAAA".to_owned() }
}

fn call(number: u64, id: &str, extra: Option<Value>) -> ToolCall {
    ToolCall {
        id: format!("call-{number}").into(),
        provider_id: id.to_owned(),
        name: "read_file".to_owned(),
        arguments: Arguments::Object(json!({ "path": "x" })),
        extra,
    }
}

fn answer(origin: &str, text: &str, thought: &str, calls: Vec<ToolCall>) -> Message {
    Message::Assistant(AssistantMessage {
        id: "msg".into(),
        text: text.to_owned(),
        thought: thought.to_owned(),
        calls,
        interrupted: false,
        echo: Echo {
            origin: origin.into(),
            field: Some("reasoning".to_owned()),
            blobs: vec![json!({ "type": "reasoning.text", "text": thought })],
        },
    })
}

fn result(number: u64, id: &str, images: Vec<Media>) -> Message {
    Message::Tool(ToolMessage {
        call: format!("call-{number}").into(),
        provider_id: id.to_owned(),
        name: "read_file".to_owned(),
        text: "result".to_owned(),
        ok: true,
        images,
    })
}

fn body_with(
    prefixes: &Prefixes,
    quirks: &Quirks,
    effort: Effort,
    messages: &[Arc<Message>],
) -> Value {
    let request = Request {
        system: "Be brief.".into(),
        messages: messages.to_vec(),
        tools: Arc::default(),
        effort,
        has_media: true,
    };
    let manner = Manner {
        model: "m",
        origin: ORIGIN,
        quirks,
        aliases: &Aliases::new(["read_file"]),
        tools: b"[{}]",
        max_output: Some(100),
        body: &Map::new(),
    };
    serde_json::from_slice(&request::render(prefixes, &manner, &request)).unwrap()
}

fn body(quirks: &Quirks, effort: Effort, messages: &[Message]) -> Value {
    let messages: Vec<_> = messages.iter().cloned().map(Arc::new).collect();
    body_with(&Prefixes::default(), quirks, effort, &messages)
}

/// The second message, which is the answer.
fn echoed(quirks: &Quirks, message: Message) -> Value {
    let user = Message::User(UserMessage::text("Hi"));
    body(quirks, Effort::Default, &[user, message])["messages"][2].clone()
}

#[test]
fn reasoning_goes_back_only_where_it_is_wanted() {
    let quirks = |echo| Quirks { echo, ..Quirks::default() };
    let own = || answer(ORIGIN, "a", "t", vec![]);
    let foreign = || answer("other/m", "a", "t", vec![]);
    let silent = || answer(ORIGIN, "a", "", vec![]);
    let plain = json!({ "role": "assistant", "content": "a" });
    let with = |field: &str, text: &str| {
        let mut message = plain.clone();
        message[field] = text.into();
        message
    };
    let table = [
        (EchoRule::Never, own(), plain.clone()),
        (EchoRule::Same, own(), with("reasoning", "t")),
        (EchoRule::Same, silent(), plain.clone()),
        // C.3 #15.
        (EchoRule::Same, foreign(), plain.clone()),
        // C.3 #8: in each answer, whoever it came from.
        (EchoRule::Always, own(), with("reasoning", "t")),
        (EchoRule::Always, foreign(), with("reasoning_content", "t")),
        (EchoRule::Always, silent(), with("reasoning", "")),
    ];
    for (rule, message, expected) in table {
        assert_eq!(echoed(&quirks(rule), message), expected, "{rule:?}");
    }
    let details = Quirks { details: true, ..Quirks::default() };
    let blobs = json!([{ "type": "reasoning.text", "text": "t" }]);
    assert_eq!(echoed(&details, own())["reasoning_details"], blobs);
    assert_eq!(echoed(&details, foreign()), plain);
}

/// C.3 #6: what came within the words goes back within them.
#[test]
fn inline_reasoning_goes_back_inline() {
    let quirks = Quirks { echo: EchoRule::Inline, ..Quirks::default() };
    let Message::Assistant(mut message) = answer(ORIGIN, "a", "t", vec![]) else { unreachable!() };
    message.echo.field = Some("think".to_owned());
    let echoed = echoed(&quirks, Message::Assistant(message));
    assert_eq!(echoed["content"], "<think>\nt\n</think>\n\na");
}

/// C.3 #11.
#[test]
fn a_call_without_a_signature_gets_the_substitute() {
    let quirks = Quirks { signature: true, ..Quirks::default() };
    let signature = json!({ "google": { "thought_signature": "s" } });
    let calls = || vec![call(1, "a", Some(signature.clone())), call(2, "b", None)];
    let extras = |message: Value| {
        let calls = message["tool_calls"].as_array().unwrap().clone();
        calls.iter().map(|it| it["extra_content"].clone()).collect::<Vec<_>>()
    };
    let substitute =
        json!({ "google": { "thought_signature": "skip_thought_signature_validator" } });
    let own = echoed(&quirks, answer(ORIGIN, "", "", calls()));
    assert_eq!(extras(own), [signature.clone(), Value::Null]);
    let foreign = echoed(&quirks, answer("other/m", "", "", calls()));
    assert_eq!(extras(foreign), [substitute.clone(), substitute]);
    let unsigned = echoed(&Quirks::default(), answer("other/m", "", "", calls()));
    assert_eq!(extras(unsigned), [Value::Null, Value::Null]);
}

#[test]
fn fields_have_the_server_s_names() {
    let user = [Message::User(UserMessage::text("Hi"))];
    let table = [
        (Dialect::None, Effort::High, json!(null), "reasoning"),
        (Dialect::ReasoningEffort, Effort::Low, json!("low"), "reasoning_effort"),
        (Dialect::ReasoningEffort, Effort::None, json!("none"), "reasoning_effort"),
        (Dialect::Reasoning, Effort::High, json!({ "effort": "high" }), "reasoning"),
        (Dialect::Reasoning, Effort::None, json!({ "enabled": false }), "reasoning"),
        (Dialect::ReasoningEnabled, Effort::Low, json!({ "enabled": true }), "reasoning"),
        (Dialect::Thinking, Effort::None, json!({ "type": "disabled" }), "thinking"),
        (Dialect::Thinking, Effort::Default, json!(null), "thinking"),
        (
            Dialect::ThinkingKept,
            Effort::Default,
            json!({ "type": "enabled", "clear_thinking": false }),
            "thinking",
        ),
        (Dialect::ThinkingAdaptive, Effort::High, json!({ "type": "adaptive" }), "thinking"),
        (Dialect::EnableThinking, Effort::None, json!(false), "enable_thinking"),
        (
            Dialect::TemplateThinking,
            Effort::High,
            json!({ "enable_thinking": true }),
            "chat_template_kwargs",
        ),
    ];
    for (dialect, effort, expected, field) in table {
        let quirks = Quirks { effort: dialect, ..Quirks::default() };
        assert_eq!(body(&quirks, effort, &user)[field], expected, "{dialect:?} {effort:?}");
    }
    let quirks = Quirks {
        limit: Limit::MaxCompletionTokens,
        role: Role::Developer,
        stream_options: false,
        tool_stream: true,
        reasoning_split: true,
        cache: Cache::Key,
        ..Quirks::default()
    };
    let body = body(&quirks, Effort::Default, &user);
    assert_eq!(body["max_completion_tokens"], 100);
    assert_eq!(body["messages"][0]["role"], "developer");
    assert_eq!(body["tool_stream"], true);
    assert_eq!(body["reasoning_split"], true);
    assert!(body["prompt_cache_key"].is_string());
    assert!(body["stream_options"].is_null() && body["max_tokens"].is_null());
}

#[test]
fn what_anthropic_s_models_are_to_cache_is_marked() {
    let quirks = Quirks { cache: Cache::Marks, ..Quirks::default() };
    let history = [
        Message::User(UserMessage::text("Hi")),
        answer(ORIGIN, "", "", vec![call(1, "a", None)]),
        result(1, "a", vec![]),
    ];
    for length in [1, 3] {
        let body = body(&quirks, Effort::Default, &history[..length]);
        let messages = body["messages"].as_array().unwrap();
        let marked = |it: &Value| !it["content"][0]["cache_control"].is_null();
        let marks: Vec<_> = messages.iter().map(marked).collect();
        assert!(marks[0] && *marks.last().unwrap(), "{marks:?}");
        assert_eq!(marks.iter().filter(|it| **it).count(), 2);
    }
}

#[test]
fn pictures_stand_where_they_may_and_are_named_where_they_may_not() {
    let prompt = Message::User(UserMessage {
        parts: vec![
            Part::Text("Look: ".to_owned()),
            Part::Image(media("image/png")),
            Part::Audio(media("audio/mpeg")),
        ],
    });
    let history = [
        prompt,
        answer(ORIGIN, "", "", vec![call(1, "a", None), call(2, "b", None)]),
        result(1, "a", vec![media("image/png")]),
        result(2, "b", vec![]),
    ];
    let blind = body(&Quirks::default(), Effort::Default, &history);
    let text = blind["messages"][1]["content"].as_str().unwrap();
    assert!(text.contains("image omitted") && text.contains("recording omitted"), "{text}");
    assert!(blind["messages"][3]["content"].as_str().unwrap().contains("image omitted"));

    let seeing = Quirks { images: true, audio: true, ..Quirks::default() };
    let body = body(&seeing, Effort::Default, &history);
    let parts = &body["messages"][1]["content"];
    assert_eq!(parts[1]["image_url"]["url"], "data:image/png;base64,AAAA");
    assert_eq!(parts[2]["input_audio"], json!({ "data": "AAAA", "format": "mp3" }));
    // C.4 #17: behind all results, never between them.
    let roles: Vec<_> = body["messages"].as_array().unwrap().iter().map(|it| &it["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!(body["messages"][5]["content"][1]["type"], "image_url");
}

/// What the strictest servers check, as far as it does not depend on their fields.
fn complaint(body: &Value, quirks: &Quirks) -> Option<String> {
    let mut seen = HashSet::new();
    let mut owed: Vec<String> = Vec::new();
    let mut last = String::new();
    for (number, message) in body["messages"].as_array()?.iter().enumerate() {
        let role = message["role"].as_str()?.to_owned();
        let blank = match &message["content"] {
            Value::String(text) => text.trim().is_empty(),
            Value::Array(parts) => parts.is_empty(),
            _ => true,
        };
        if role != "tool" && !owed.is_empty() {
            return Some(format!("{number}: calls without results"));
        }
        if role == "user" && last == "user" {
            return Some(format!("{number}: two of the user"));
        }
        if role == "user" && last == "tool" && quirks.bridge {
            return Some(format!("{number}: user after tool"));
        }
        if role == "tool" {
            let id = message["tool_call_id"].as_str()?;
            if owed.first().is_none_or(|it| it != id) {
                return Some(format!("{number}: a result of nobody"));
            }
            owed.remove(0);
        }
        if role == "assistant" {
            let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
            if blank && calls.is_empty() {
                return Some(format!("{number}: an empty answer"));
            }
            if quirks.echo == EchoRule::Always
                && message["reasoning_content"].is_null()
                && message["reasoning"].is_null()
            {
                return Some(format!("{number}: reasoning is missing"));
            }
            if quirks.echo == EchoRule::Never && !message["reasoning_content"].is_null() {
                return Some(format!("{number}: extra fields"));
            }
            for call in calls {
                let id = call["id"].as_str()?.to_owned();
                let fits = match quirks.ids {
                    Ids::Nine => id.len() == 9 && id.chars().all(|it| it.is_ascii_alphanumeric()),
                    Ids::Safe => id.len() <= 40 && !id.contains(['.', ':']),
                    Ids::Functions => id.starts_with("functions."),
                    Ids::Verbatim => true,
                };
                if !fits || !seen.insert(id.clone()) {
                    return Some(format!("{number}: the identifier {id}"));
                }
                if quirks.signature && call["extra_content"].is_null() {
                    return Some(format!("{number}: no signature"));
                }
                let arguments = call["function"]["arguments"].as_str()?;
                if !serde_json::from_str::<Value>(arguments).ok()?.is_object() {
                    return Some(format!("{number}: the arguments {arguments}"));
                }
                owed.push(id);
            }
        }
        last = role;
    }
    let valid_end = owed.is_empty() && (last == "user" || last == "tool" || last == "system");
    (!valid_end && last != "assistant").then(|| format!("ends with {last}"))
}

proptest! {
    /// Any beginning of any history, in any manner: one that a strict server takes, and the same
    /// bytes whether its beginning was remembered or not.
    #[test]
    fn every_prefix_of_every_history_is_taken_by_a_strict_server(
        script in proptest::collection::vec((0..5_u8, 0..3_usize, 0..3_u8, any::<bool>()), 1..16),
        ids in prop::sample::select(vec![Ids::Verbatim, Ids::Safe, Ids::Nine, Ids::Functions]),
        echo in prop::sample::select(vec![EchoRule::Never, EchoRule::Same, EchoRule::Always]),
        wordless in prop::sample::select(vec![Wordless::Omit, Wordless::Empty, Wordless::Null]),
        (bridge, signature, images, tool_images, marks) in any::<(bool, bool, bool, bool, bool)>(),
    ) {
        let cache = if marks { Cache::Marks } else { Cache::Auto };
        let quirks = Quirks {
            echo, ids, wordless, bridge, signature, images, tool_images, cache,
            ..Quirks::default()
        };
        let mut next = 0;
        let mut messages = vec![Message::User(UserMessage::text("Hi"))];
        for (sort, calls, origin, pictures) in script {
            let origin = [ORIGIN, "other/m", ""][usize::from(origin)];
            match sort {
                0 => messages.push(Message::User(UserMessage::text("more"))),
                1 => messages.push(Message::User(UserMessage {
                    parts: vec![Part::Image(media("image/png"))],
                })),
                2 => messages.push(answer(origin, "words", "thought", vec![])),
                3 => messages.push(answer(origin, " ", "", vec![])),
                _ => {
                    let numbers: Vec<u64> = (0..=calls as u64).map(|it| next + it).collect();
                    next += 3;
                    let id = |it: &u64| match it % 4 {
                        0 => format!("functions.read_file:{it}"),
                        1 => format!("D{it:08}"),
                        2 => format!("call_{it}"),
                        _ => format!("call-{it}"),
                    };
                    let made = numbers.iter().map(|it| call(*it, &id(it), None)).collect();
                    messages.push(answer(origin, "", "", made));
                    for number in &numbers {
                        let images = if pictures { vec![media("image/png")] } else { vec![] };
                        messages.push(result(*number, &id(number), images));
                    }
                }
            }
        }
        let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
        let prefixes = Prefixes::default();
        for end in 0..=messages.len() {
            // A process may die, and a user cancel, anywhere.
            let messages = repair(&messages[..end]);
            let fresh = body_with(&Prefixes::default(), &quirks, Effort::Default, &messages);
            prop_assert_eq!(complaint(&fresh, &quirks), None, "{}", fresh);
            let remembered = body_with(&prefixes, &quirks, Effort::Default, &messages);
            prop_assert_eq!(&remembered, &fresh);
        }
    }
}
