//! What the model is asked. Pure. Each question is short, and so is its answer.

use std::sync::Arc;

use serde_json::json;

use super::ask::Heard;
use turnwright_types::ids::CallId;
use crate::{ReplyCall, Request};
use turnwright_types::message::{
    AssistantMessage, Effort, Media, Message, Part, Specs, ToolCall, ToolMessage, ToolSpec,
    UserMessage,
};

const SYSTEM: &str = "You are being tested by a program. Do exactly what you are asked, as \
                      briefly as you can.";
/// The one function there is.
pub(super) const TOOL: &str = "get_weather";
/// What it gives, and what in it cannot be guessed.
const RESULT: &str = "17 °C, light rain";
pub(super) const MARK: &str = "17";
/// 64 × 64 pixels, all of them orange: some servers refuse pictures that are smaller.
const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAATElEQVR42u3PQQkAAAgEsItucy+Cb2GwAst\
                       OXouAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAwKX5gfFaZ4bdf\
                       wAAAABJRU5ErkJggg==";
pub(super) const COLOUR: &str = "orange";

/// A few words, so that it can be seen whether they come one by one.
pub(super) fn count() -> Request {
    request(vec![Part::Text("Count from 1 to 10, in one line, and say nothing else.".to_owned())])
}

pub(super) fn weather() -> Request {
    let text = "What is the weather in Paris? Call get_weather to find out.";
    Request { tools: tools(), ..request(vec![Part::Text(text.to_owned())]) }
}

pub(super) fn two_cities() -> Request {
    let text = "What is the weather in Paris, and what is it in Oslo? Call get_weather for both \
                cities at once, with two calls in one answer.";
    Request { tools: tools(), ..request(vec![Part::Text(text.to_owned())]) }
}

pub(super) fn picture() -> Request {
    let media = Media { mime: "image/png".to_owned(), data: PICTURE.to_owned() };
    let text = "What colour is this picture? Answer with one word.";
    request(vec![Part::Text(text.to_owned()), Part::Image(media)])
}

/// The same conversation, with the answer and what its calls gave.
pub(super) fn with_results(mut request: Request, heard: &Heard) -> Request {
    let Some(reply) = &heard.reply else { return request };
    let calls: Vec<_> = reply.calls.iter().map(call).collect();
    let results: Vec<_> = calls.iter().map(result).collect();
    request.messages.push(Arc::new(Message::Assistant(AssistantMessage {
        id: "msg-1".into(),
        text: heard.text.clone(),
        thought: heard.thought.clone(),
        calls,
        interrupted: false,
        echo: reply.echo.clone(),
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
        text: RESULT.to_owned(),
        ok: true,
        images: Vec::new(),
    }))
}

fn request(parts: Vec<Part>) -> Request {
    Request {
        system: SYSTEM.into(),
        messages: vec![Arc::new(Message::User(UserMessage { parts }))],
        tools: Arc::default(),
        effort: Effort::Default,
        has_media: true,
    }
}

fn tools() -> Specs {
    Arc::new(vec![Arc::new(ToolSpec {
        name: TOOL.into(),
        description: "The weather in a city, now.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": { "city": { "type": "string", "description": "The city's name." } },
            "required": ["city"],
        }),
    })])
}
