//! The questions of the probe. Each is short, and so is its expected reply.

use std::sync::Arc;

use serde_json::json;

use super::ask::ObservedReply;
use crate::{ReplyCall, Request};
use turnwright_types::ids::CallId;
use turnwright_types::message::{
    AssistantMessage, Media, Message, PromptPart, ReasoningEffort, ToolCall, ToolMessage, ToolSpec,
    ToolSpecs, UserMessage,
};

const SYSTEM_PROMPT: &str = "You are being tested by a program. Do exactly what you are asked, as \
                      briefly as you can.";
/// The only declared function.
pub(super) const TOOL_NAME: &str = "get_weather";
/// The result of the function, and the part of it that cannot be guessed.
const TOOL_RESULT: &str = "17 °C, light rain";
pub(super) const EXPECTED_FACT: &str = "17";
/// An orange square of 64 × 64 pixels: some servers reject smaller images.
const TEST_IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAATElEQVR42u3PQQkAAAgEsItucy+Cb2GwAst\
                       OXouAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAwKX5gfFaZ4bdf\
                       wAAAABJRU5ErkJggg==";
pub(super) const EXPECTED_COLOUR: &str = "orange";

/// A reply of several words, to see whether it is streamed.
pub(super) fn count_to_ten() -> Request {
    request(vec![PromptPart::Text(
        "Count from 1 to 10, in one line, and say nothing else.".to_owned(),
    )])
}

pub(super) fn weather() -> Request {
    let text = "What is the weather in Paris? Call get_weather to find out.";
    Request { tools: tools(), ..request(vec![PromptPart::Text(text.to_owned())]) }
}

pub(super) fn two_cities() -> Request {
    let text = "What is the weather in Paris, and what is it in Oslo? Call get_weather for both \
                cities at once, with two calls in one answer.";
    Request { tools: tools(), ..request(vec![PromptPart::Text(text.to_owned())]) }
}

pub(super) fn picture() -> Request {
    let media = Media { mime: "image/png".to_owned(), data: TEST_IMAGE.to_owned() };
    let text = "What colour is this picture? Answer with one word.";
    request(vec![PromptPart::Text(text.to_owned()), PromptPart::Image(media)])
}

/// The conversation, continued with the reply and the results of its calls.
pub(super) fn with_results(mut request: Request, observed: &ObservedReply) -> Request {
    let Some(reply) = &observed.reply else { return request };
    let calls: Vec<_> = reply.calls.iter().map(call).collect();
    let results: Vec<_> = calls.iter().map(result).collect();
    request.messages.push(Arc::new(Message::Assistant(AssistantMessage {
        id: "msg-1".into(),
        text: observed.text.clone(),
        thought: observed.thought.clone(),
        calls,
        interrupted: false,
        provider_state: reply.provider_state.clone(),
    })));
    request.messages.extend(results);
    request
}

fn call(call: &ReplyCall) -> ToolCall {
    let id = CallId::from(format!("call-{}", call.slot));
    let provider_id = match call.provider_id.as_str() {
        "" => id.as_str().to_owned(),
        given => given.to_owned(),
    };
    ToolCall {
        id,
        provider_id,
        name: call.name.clone(),
        arguments: call.arguments.clone(),
        extra: call.extra.clone(),
    }
}

fn result(call: &ToolCall) -> Arc<Message> {
    Arc::new(Message::Tool(ToolMessage {
        call: call.id.clone(),
        provider_id: call.provider_id.clone(),
        name: call.name.clone(),
        text: TOOL_RESULT.to_owned(),
        ok: true,
        images: Vec::new(),
    }))
}

fn request(parts: Vec<PromptPart>) -> Request {
    Request {
        system: SYSTEM_PROMPT.into(),
        messages: vec![Arc::new(Message::User(UserMessage { parts }))],
        tools: Arc::default(),
        effort: ReasoningEffort::Default,
        has_media: true,
    }
}

fn tools() -> ToolSpecs {
    Arc::new(vec![Arc::new(ToolSpec {
        name: TOOL_NAME.into(),
        description: "The weather in a city, now.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": { "city": { "type": "string", "description": "The city's name." } },
            "required": ["city"],
        }),
    })])
}
