//! Requests in the style that each kind of server expects (quirks C.2 #8–#10, C.3 #4–#15, C.4).

use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::chat;
use crate::exchange::RequestStyle;
use crate::http::request_body::PrefixCache;
use crate::quirks::{
    CacheHint, CallIdFormat, EffortDialect, EmptyContent, OutputLimitField, Quirks, ReasoningEcho,
    SystemRole,
};
use crate::wire_names::ToolAliases;
use crate::{ReasoningEffort, Request};
use turnwright_types::message::{
    Arguments, AssistantMessage, Media, Message, PromptPart, ProviderState, ToolCall, ToolMessage,
    UserMessage, repair,
};

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
        provider_state: ProviderState {
            origin: origin.into(),
            field: Some("reasoning".to_owned()),
            blobs: vec![json!({ "type": "reasoning.text", "text": thought })],
        },
    })
}

fn tool_result(number: u64, id: &str, images: Vec<Media>) -> Message {
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
    prefixes: &PrefixCache,
    quirks: &Quirks,
    effort: ReasoningEffort,
    messages: &[Arc<Message>],
) -> Value {
    let request = Request {
        system: "Be brief.".into(),
        messages: messages.to_vec(),
        tools: Arc::default(),
        effort,
        has_media: true,
    };
    let style = RequestStyle {
        model: "m",
        origin: ORIGIN,
        quirks,
        aliases: &ToolAliases::new(["read_file"]),
        tools: b"[{}]",
        max_output: Some(100),
        extra_body: &Map::new(),
    };
    serde_json::from_slice(&chat::render(prefixes, &style, &request).to_vec()).unwrap()
}

fn body(quirks: &Quirks, effort: ReasoningEffort, messages: &[Message]) -> Value {
    let messages: Vec<_> = messages.iter().cloned().map(Arc::new).collect();
    body_with(&PrefixCache::default(), quirks, effort, &messages)
}

/// Renders `message` after a prompt and returns its rendered form.
fn rendered_reply(quirks: &Quirks, message: Message) -> Value {
    let user = Message::User(UserMessage::text("Hi"));
    body(quirks, ReasoningEffort::Default, &[user, message])["messages"][2].clone()
}

#[test]
fn reasoning_is_sent_back_only_where_required() {
    let quirks = |echo| Quirks { echo, details: false, ..Quirks::default() };
    let own = || answer(ORIGIN, "a", "t", vec![]);
    let foreign = || answer("other/m", "a", "t", vec![]);
    let without_reasoning = || answer(ORIGIN, "a", "", vec![]);
    let plain = json!({ "role": "assistant", "content": "a" });
    let with = |field: &str, text: &str| {
        let mut message = plain.clone();
        message[field] = text.into();
        message
    };
    let table = [
        (ReasoningEcho::Never, own(), plain.clone()),
        (ReasoningEcho::Same, own(), with("reasoning", "t")),
        (ReasoningEcho::Same, without_reasoning(), plain.clone()),
        // C.3 #15.
        (ReasoningEcho::Same, foreign(), plain.clone()),
        // C.3 #8: with each reply, whatever model it came from.
        (ReasoningEcho::Always, own(), with("reasoning", "t")),
        (ReasoningEcho::Always, foreign(), with("reasoning_content", "t")),
        (ReasoningEcho::Always, without_reasoning(), with("reasoning", "")),
    ];
    for (rule, message, expected) in table {
        assert_eq!(rendered_reply(&quirks(rule), message), expected, "{rule:?}");
    }
    let details = Quirks::default();
    let blobs = json!([{ "type": "reasoning.text", "text": "t" }]);
    assert_eq!(rendered_reply(&details, own())["reasoning_details"], blobs);
    assert_eq!(rendered_reply(&details, foreign()), plain);
}

/// Claude behind LiteLLM.
#[test]
fn signed_thinking_goes_back_to_its_origin_alone_and_without_what_is_unsigned() {
    let signed = json!({ "type": "thinking", "thinking": "Hm.", "signature": "s" });
    let redacted = json!({ "type": "redacted_thinking", "data": "x" });
    let unsigned = json!({ "type": "thinking", "thinking": "Hm.", "signature": "" });
    let reply = |origin: &str| {
        let Message::Assistant(mut message) = answer(origin, "a", "Hm.", vec![]) else {
            unreachable!()
        };
        message.provider_state.blobs = vec![signed.clone(), redacted.clone(), unsigned.clone()];
        Message::Assistant(message)
    };
    let own = rendered_reply(&Quirks::default(), reply(ORIGIN));
    assert_eq!(own["thinking_blocks"], json!([signed, redacted]));
    assert_eq!(own.get("reasoning_details"), None);
    let foreign = rendered_reply(&Quirks::default(), reply("other/m"));
    assert_eq!(foreign, json!({ "role": "assistant", "content": "a" }));
}

/// Copilot, whose Gemini 3 refuses calls without it (opencode PR#8900).
#[test]
fn an_opaque_signature_goes_back_with_its_reasoning_and_to_its_origin_alone() {
    let reply = |origin: &str| {
        let Message::Assistant(mut message) = answer(origin, "a", "Hm.", vec![]) else {
            unreachable!()
        };
        message.provider_state.field = Some("reasoning_text".to_owned());
        message.provider_state.blobs = vec![json!("s")];
        Message::Assistant(message)
    };
    let quirks = Quirks::lookup("api.githubcopilot.com", "gemini-3-pro-preview");
    let plain = json!({ "role": "assistant", "content": "a" });
    let mut own = plain.clone();
    own["reasoning_text"] = json!("Hm.");
    own["reasoning_opaque"] = json!("s");
    assert_eq!(rendered_reply(&quirks, reply(ORIGIN)), own);
    assert_eq!(rendered_reply(&quirks, reply("other/m")), plain);
}

#[test]
fn signed_fields_of_a_call_go_back_as_they_came_and_to_their_origin_alone() {
    for fields in [
        json!({ "extra_content": { "google": { "thought_signature": "s" } } }),
        json!({ "extra_content": { "thought_signature": "s" } }),
        json!({ "extra_content": "s" }),
        json!({ "thought_signature": "s" }),
        json!({ "provider_specific_fields": { "thought_signature": "s" }, "extra_content": {} }),
    ] {
        let sent = |origin: &str| {
            let calls = vec![call(1, "a", Some(fields.clone()))];
            let reply = rendered_reply(&Quirks::default(), answer(origin, "", "", calls));
            let Value::Object(mut call) = reply["tool_calls"][0].clone() else { unreachable!() };
            call.retain(|name, _| !["id", "type", "function"].contains(&name.as_str()));
            Value::Object(call)
        };
        assert_eq!(sent(ORIGIN), fields);
        assert_eq!(sent("other/m"), json!({}), "{fields}");
    }
}

/// C.3 #6: reasoning that arrived inside the text is sent back inside the text.
#[test]
fn inline_reasoning_goes_back_inline() {
    let quirks = Quirks { echo: ReasoningEcho::Inline, ..Quirks::default() };
    let Message::Assistant(mut message) = answer(ORIGIN, "a", "t", vec![]) else { unreachable!() };
    message.provider_state.field = Some("think".to_owned());
    let rendered_reply = rendered_reply(&quirks, Message::Assistant(message));
    assert_eq!(rendered_reply["content"], "<think>\nt\n</think>\n\na");
}

/// C.3 #11.
#[test]
fn a_call_without_a_signature_gets_the_placeholder() {
    let quirks = Quirks { signature: true, ..Quirks::default() };
    let signature = json!({ "google": { "thought_signature": "s" } });
    let calls = || vec![call(1, "a", Some(signature.clone())), call(2, "b", None)];
    let extras = |message: Value| {
        let calls = message["tool_calls"].as_array().unwrap().clone();
        calls.iter().map(|call| call["extra_content"].clone()).collect::<Vec<_>>()
    };
    let substitute =
        json!({ "google": { "thought_signature": "skip_thought_signature_validator" } });
    let own = rendered_reply(&quirks, answer(ORIGIN, "", "", calls()));
    assert_eq!(extras(own), [signature.clone(), Value::Null]);
    let foreign = rendered_reply(&quirks, answer("other/m", "", "", calls()));
    assert_eq!(extras(foreign), [substitute, Value::Null], "as Gemini itself signs them");
    let unsigned = rendered_reply(&Quirks::default(), answer("other/m", "", "", calls()));
    assert_eq!(extras(unsigned), [Value::Null, Value::Null]);
}

/// ollama#14214.
#[test]
fn a_result_names_its_tool_to_gemini_alone() {
    let gemini = Quirks { signature: true, ..Quirks::default() };
    for (quirks, name) in [(gemini, json!("read_file")), (Quirks::default(), Value::Null)] {
        let prompt = Message::User(UserMessage::text("Hi"));
        let reply = answer("other/m", "", "", vec![call(1, "a", None)]);
        let history = [prompt, reply, tool_result(1, "a", vec![])].map(Arc::new);
        let prefixes = PrefixCache::default();
        let body = body_with(&prefixes, &quirks, ReasoningEffort::Default, &history);
        assert_eq!(body["messages"][3]["name"], name);
    }
}

#[test]
fn fields_are_named_as_the_server_expects() {
    let user = [Message::User(UserMessage::text("Hi"))];
    let table = [
        (EffortDialect::None, ReasoningEffort::High, json!(null), "reasoning"),
        (EffortDialect::ReasoningEffort, ReasoningEffort::Low, json!("low"), "reasoning_effort"),
        (EffortDialect::ReasoningEffort, ReasoningEffort::None, json!("none"), "reasoning_effort"),
        (EffortDialect::Reasoning, ReasoningEffort::High, json!({ "effort": "high" }), "reasoning"),
        (EffortDialect::Reasoning, ReasoningEffort::None, json!({ "enabled": false }), "reasoning"),
        (
            EffortDialect::ReasoningEnabled,
            ReasoningEffort::Low,
            json!({ "enabled": true }),
            "reasoning",
        ),
        (EffortDialect::Thinking, ReasoningEffort::None, json!({ "type": "disabled" }), "thinking"),
        (EffortDialect::Thinking, ReasoningEffort::Default, json!(null), "thinking"),
        (
            EffortDialect::ThinkingKept,
            ReasoningEffort::Default,
            json!({ "type": "enabled", "clear_thinking": false }),
            "thinking",
        ),
        (EffortDialect::ThinkingKept, ReasoningEffort::Low, json!(null), "reasoning_effort"),
        (EffortDialect::ThinkingLevels, ReasoningEffort::Default, json!(null), "reasoning_effort"),
        (EffortDialect::ThinkingLevels, ReasoningEffort::None, json!(null), "reasoning_effort"),
        (EffortDialect::ThinkingLevels, ReasoningEffort::Low, json!("low"), "reasoning_effort"),
        (
            EffortDialect::ThinkingLevels,
            ReasoningEffort::Low,
            json!({ "type": "enabled", "clear_thinking": false }),
            "thinking",
        ),
        (
            EffortDialect::ThinkingAdaptive,
            ReasoningEffort::High,
            json!({ "type": "adaptive" }),
            "thinking",
        ),
        (EffortDialect::EnableThinking, ReasoningEffort::None, json!(false), "enable_thinking"),
        (EffortDialect::EnableLevels, ReasoningEffort::None, json!(false), "enable_thinking"),
        (EffortDialect::EnableLevels, ReasoningEffort::High, json!("high"), "reasoning_effort"),
        (
            EffortDialect::TemplateThinking,
            ReasoningEffort::High,
            json!({ "enable_thinking": true }),
            "chat_template_kwargs",
        ),
    ];
    for (dialect, effort, expected, field) in table {
        let quirks = Quirks { effort: dialect, ..Quirks::default() };
        assert_eq!(body(&quirks, effort, &user)[field], expected, "{dialect:?} {effort:?}");
    }
    let quirks = Quirks {
        limit: OutputLimitField::MaxCompletionTokens,
        role: SystemRole::Developer,
        stream_options: false,
        tool_stream: true,
        reasoning_split: true,
        cache: CacheHint::Key,
        ..Quirks::default()
    };
    let body = body(&quirks, ReasoningEffort::Default, &user);
    assert_eq!(body["max_completion_tokens"], 100);
    assert_eq!(body["messages"][0]["role"], "developer");
    assert_eq!(body["tool_stream"], true);
    assert_eq!(body["reasoning_split"], true);
    assert!(body["prompt_cache_key"].is_string());
    assert!(body["stream_options"].is_null() && body["max_tokens"].is_null());
}

#[test]
fn cache_markers_are_set_for_anthropic_models_at_the_end_of_this_and_the_last_request() {
    let quirks = Quirks { cache: CacheHint::Marks, ..Quirks::default() };
    let history = [
        Message::User(UserMessage::text("Hi")),
        answer(ORIGIN, "", "", vec![call(1, "a", None)]),
        tool_result(1, "a", vec![]),
        answer(ORIGIN, "", "", vec![call(2, "b", None), call(3, "c", None)]),
        tool_result(2, "b", vec![]),
        tool_result(3, "c", vec![]),
    ];
    // The system prompt, the end of the last request, and the end of this one.
    for (length, expected) in [(1, vec![0, 1]), (3, vec![0, 1, 3]), (6, vec![0, 3, 6])] {
        let body = body(&quirks, ReasoningEffort::Default, &history[..length]);
        let messages = body["messages"].as_array().unwrap();
        let marked = (0..).zip(messages).filter(|(_, message)| {
            message["content"].get(0).is_some_and(|part| !part["cache_control"].is_null())
        });
        assert_eq!(marked.map(|(at, _)| at).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_marker_of_a_result_may_be_on_its_message() {
    let quirks = Quirks { cache: CacheHint::Marks, outer_marks: true, ..Quirks::default() };
    let history = [
        Message::User(UserMessage::text("Hi")),
        answer(ORIGIN, "", "", vec![call(1, "a", None)]),
        tool_result(1, "a", vec![]),
    ];
    let body = body(&quirks, ReasoningEffort::Default, &history);
    assert!(!body["messages"][1]["content"][0]["cache_control"].is_null());
    let result = &body["messages"][3];
    assert!(result["content"].is_string(), "{result}");
    assert_eq!(result["cache_control"], json!({ "type": "ephemeral" }));
}

/// A word of the user may join the prompt that the last request has ended with.
#[test]
fn prompts_that_are_joined_are_marked_as_one() {
    let quirks = Quirks { cache: CacheHint::Marks, ..Quirks::default() };
    let user = |text: &str| Message::User(UserMessage::text(text));
    let history = [user("Hi"), user("and"), answer(ORIGIN, "words", "", vec![]), user("more")];
    let body = body(&quirks, ReasoningEffort::Default, &history);
    let roles: Vec<_> =
        body["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    assert!(!body["messages"][1]["content"][0]["cache_control"].is_null());
}

#[test]
fn images_are_placed_where_allowed_and_named_elsewhere() {
    let prompt = Message::User(UserMessage::new(vec![
        PromptPart::Text("Look: ".to_owned()),
        PromptPart::Image(media("image/png")),
        PromptPart::Audio(media("audio/mpeg")),
    ]));
    let history = [
        prompt,
        answer(ORIGIN, "", "", vec![call(1, "a", None), call(2, "b", None)]),
        tool_result(1, "a", vec![media("image/png")]),
        tool_result(2, "b", vec![]),
    ];
    let text_only = Quirks { images: false, ..Quirks::default() };
    let without_media = body(&text_only, ReasoningEffort::Default, &history);
    let text = without_media["messages"][1]["content"].as_str().unwrap();
    assert!(text.contains("image omitted") && text.contains("audio omitted"), "{text}");
    assert!(without_media["messages"][3]["content"].as_str().unwrap().contains("image omitted"));

    let accepting_media = Quirks { images: true, audio: true, ..Quirks::default() };
    let body = body(&accepting_media, ReasoningEffort::Default, &history);
    let parts = &body["messages"][1]["content"];
    assert_eq!(parts[1]["image_url"]["url"], "data:image/png;base64,AAAA");
    assert_eq!(parts[2]["input_audio"], json!({ "data": "AAAA", "format": "mp3" }));
    // C.4 #17: after all results, never between them.
    let roles: Vec<_> =
        body["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!(body["messages"][5]["content"][1]["type"], "image_url");
}

#[test]
fn pdf_files_follow_the_results_and_are_named_where_they_are_not_taken() {
    let parts = vec![PromptPart::Text("Read: ".to_owned()), PromptPart::Image(media(Media::PDF))];
    let history = [
        Message::User(UserMessage::new(parts)),
        answer(ORIGIN, "", "", vec![call(1, "a", None)]),
        tool_result(1, "a", vec![media("image/png"), media(Media::PDF)]),
    ];
    let data = "data:application/pdf;base64,AAAA";
    let file = json!({ "type": "file", "file": { "filename": "document.pdf", "file_data": data } });
    let taking_both = Quirks { files: true, tool_images: true, ..Quirks::default() };
    let taken = body(&taking_both, ReasoningEffort::Default, &history);
    assert_eq!(taken["messages"][1]["content"][1], file);
    let result = taken["messages"][3]["content"].as_array().unwrap();
    assert_eq!(result.len(), 2, "{taken}");
    assert_eq!(result[1]["type"], "image_url");
    assert_eq!(taken["messages"][4]["content"][1], file);
    assert_eq!(taken["plugins"], Value::Null);

    let named = body(&Quirks::default(), ReasoningEffort::Default, &history);
    let note = "[PDF omitted (application/pdf): this model does not accept PDF input]";
    for index in [1_usize, 3] {
        let text = named["messages"][index]["content"].as_str().unwrap();
        assert!(text.contains(note), "{text}");
    }
    assert_eq!(named["messages"][4]["content"][1]["type"], "image_url");
    assert!(!named.to_string().contains(data), "{named}");
}

#[test]
fn openrouter_is_told_to_pass_a_file_to_nobody_but_the_model() {
    let parts = vec![PromptPart::Image(media(Media::PDF))];
    let request = Request {
        system: "Be brief.".into(),
        messages: vec![Arc::new(Message::User(UserMessage::new(parts)))],
        tools: Arc::default(),
        effort: ReasoningEffort::Default,
        has_media: true,
    };
    for (origin, files, expected) in
        [("openrouter.ai/m", true, true), ("openrouter.ai/m", false, false), (ORIGIN, true, false)]
    {
        let style = RequestStyle {
            model: "m",
            origin,
            quirks: &Quirks { files, ..Quirks::default() },
            aliases: &ToolAliases::new(["read_file"]),
            tools: b"",
            max_output: None,
            extra_body: &Map::new(),
        };
        let body = chat::render(&PrefixCache::default(), &style, &request).to_vec();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["plugins"][0]["pdf"]["engine"] == "native", expected, "{body}");
    }
}

/// The template of Llama 3, and Databricks.
#[test]
fn each_call_is_sent_with_its_result_where_several_in_an_answer_are_refused() {
    let history = [
        Message::User(UserMessage::text("Hi")),
        answer(ORIGIN, "I look.", "Hm.", vec![call(1, "a", None), call(2, "b", None)]),
        tool_result(1, "a", vec![]),
        tool_result(2, "b", vec![]),
        answer(ORIGIN, "Done.", "", vec![]),
    ];
    for (parallel, expected) in [
        (true, vec!["system", "user", "I look. a b", "result a", "result b", "Done."]),
        (false, vec!["system", "user", "I look. a", "result a", " b", "result b", "Done."]),
    ] {
        let quirks = Quirks { parallel, ..Quirks::default() };
        let sent = body(&quirks, ReasoningEffort::Default, &history);
        let shapes: Vec<_> = sent["messages"].as_array().unwrap().iter().map(shape).collect();
        assert_eq!(shapes, expected);
    }
}

/// The text of an answer or result with the identifiers of its calls, or else the role.
fn shape(message: &Value) -> String {
    let text = message["content"].as_str().unwrap_or_default();
    match message["role"].as_str().unwrap() {
        "assistant" => {
            let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
            let ids = calls.iter().map(|call| format!(" {}", call["id"].as_str().unwrap()));
            format!("{text}{}", ids.collect::<String>())
        }
        "tool" => format!("{text} {}", message["tool_call_id"].as_str().unwrap()),
        role => role.to_owned(),
    }
}

/// The first violation of what strict servers check, apart from unknown fields.
fn first_violation(body: &Value, quirks: &Quirks) -> Option<String> {
    let mut seen = HashSet::new();
    let mut open_calls: Vec<String> = Vec::new();
    let mut last = String::new();
    for (number, message) in body["messages"].as_array()?.iter().enumerate() {
        let role = message["role"].as_str()?.to_owned();
        let blank = match &message["content"] {
            Value::String(text) => text.trim().is_empty(),
            Value::Array(parts) => parts.is_empty(),
            _ => true,
        };
        if role != "tool" && !open_calls.is_empty() {
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
            if open_calls.first().is_none_or(|call| call != id) {
                return Some(format!("{number}: a result without a call"));
            }
            open_calls.remove(0);
        }
        if role == "assistant" {
            let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
            if calls.len() > 1 && !quirks.parallel {
                return Some(format!("{number}: several calls"));
            }
            if blank && calls.is_empty() {
                return Some(format!("{number}: an empty answer"));
            }
            if quirks.echo == ReasoningEcho::Always
                && message["reasoning_content"].is_null()
                && message["reasoning"].is_null()
            {
                return Some(format!("{number}: reasoning is missing"));
            }
            if quirks.echo == ReasoningEcho::Never && !message["reasoning_content"].is_null() {
                return Some(format!("{number}: extra fields"));
            }
            for (position, call) in calls.iter().enumerate() {
                let id = call["id"].as_str()?.to_owned();
                let fits = match quirks.ids {
                    CallIdFormat::Nine => {
                        id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric())
                    }
                    CallIdFormat::Safe => id.len() <= 40 && !id.contains(['.', ':']),
                    CallIdFormat::Functions => id.starts_with("functions."),
                    CallIdFormat::Verbatim => true,
                };
                if !fits || !seen.insert(id.clone()) {
                    return Some(format!("{number}: the identifier {id}"));
                }
                if quirks.signature && position == 0 && call["extra_content"].is_null() {
                    return Some(format!("{number}: no signature"));
                }
                let arguments = call["function"]["arguments"].as_str()?;
                if !serde_json::from_str::<Value>(arguments).ok()?.is_object() {
                    return Some(format!("{number}: the arguments {arguments}"));
                }
                open_calls.push(id);
            }
        }
        last = role;
    }
    let valid_end = open_calls.is_empty() && (last == "user" || last == "tool" || last == "system");
    (!valid_end && last != "assistant").then(|| format!("ends with {last}"))
}

proptest! {
    /// Any prefix of any history, with any quirks, renders to a request that a strict server
    /// accepts, and to the same bytes with and without the prefix cache.
    #[test]
    fn strict_servers_accept_every_prefix_of_every_history(
        script in proptest::collection::vec((0..5_u8, 0..3_usize, 0..3_u8, any::<bool>()), 1..16),
        ids in prop::sample::select(vec![CallIdFormat::Verbatim, CallIdFormat::Safe, CallIdFormat::Nine, CallIdFormat::Functions]),
        echo in prop::sample::select(vec![ReasoningEcho::Never, ReasoningEcho::Same, ReasoningEcho::Always]),
        wordless in prop::sample::select(vec![EmptyContent::Omit, EmptyContent::Empty, EmptyContent::Null]),
        (bridge, signature, images, tool_images) in any::<(bool, bool, bool, bool)>(),
        (marks, parallel) in any::<(bool, bool)>(),
    ) {
        let cache = if marks { CacheHint::Marks } else { CacheHint::Auto };
        let quirks = Quirks {
            echo, ids, wordless, bridge, signature, images, tool_images, cache, parallel,
            ..Quirks::default()
        };
        let mut next = 0;
        let mut messages = vec![Message::User(UserMessage::text("Hi"))];
        for (sort, calls, origin, pictures) in script {
            let origin = [ORIGIN, "other/m", ""][usize::from(origin)];
            match sort {
                0 => messages.push(Message::User(UserMessage::text("more"))),
                1 => messages.push(Message::User(UserMessage::new(vec![
                    PromptPart::Image(media("image/png")),
                ]))),
                2 => messages.push(answer(origin, "words", "thought", vec![])),
                3 => messages.push(answer(origin, " ", "", vec![])),
                _ => {
                    let numbers: Vec<u64> = (0..=calls as u64).map(|offset| next + offset).collect();
                    next += 3;
                    let id = |number: &u64| match number % 4 {
                        0 => format!("functions.read_file:{number}"),
                        1 => format!("D{number:08}"),
                        2 => format!("call_{number}"),
                        _ => format!("call-{number}"),
                    };
                    let made = numbers.iter().map(|number| call(*number, &id(number), None)).collect();
                    messages.push(answer(origin, "", "", made));
                    for number in &numbers {
                        let images = if pictures { vec![media("image/png")] } else { vec![] };
                        messages.push(tool_result(*number, &id(number), images));
                    }
                }
            }
        }
        let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
        let prefixes = PrefixCache::default();
        for end in 0..=messages.len() {
            // The process may die, and the user may cancel, at any point.
            let messages = repair(&messages[..end]);
            let fresh = body_with(&PrefixCache::default(), &quirks, ReasoningEffort::Default, &messages);
            prop_assert_eq!(first_violation(&fresh, &quirks), None, "{}", fresh);
            let remembered = body_with(&prefixes, &quirks, ReasoningEffort::Default, &messages);
            prop_assert_eq!(&remembered, &fresh);
        }
    }
}
