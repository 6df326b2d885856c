//! A conversation → the body of a request. Minimal, because strict servers refuse what they do
//! not know, and byte-stable from one request to the next, because providers cache prefixes.

use std::borrow::Cow;
use std::sync::Arc;

use async_openai::types::chat::{
    ChatCompletionStreamOptions, ChatCompletionTool, ChatCompletionTools, FunctionObject,
};
use serde::Serialize;

use crate::llm::Request;
use crate::message::{Arguments, AssistantMessage, Message, Part, ToolCall, ToolSpec};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Entry<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ChatCompletionTools>,
    stream: bool,
    stream_options: ChatCompletionStreamOptions,
}

// The messages are ours and not async-openai's: these borrow the history instead of copying it
// for each request, and take the extra fields that some providers ask for.
#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Entry<'a> {
    System { content: &'a str },
    User { content: Cow<'a, str> },
    Assistant(Assistant<'a>),
    Tool { tool_call_id: &'a str, content: &'a str },
}

#[derive(Serialize)]
struct Assistant<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    sort: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    /// JSON in a string, always an object: some templates fail on anything else.
    arguments: String,
}

/// The body of the request.
pub(super) fn render(model: &str, request: &Request) -> Vec<u8> {
    let body = Body {
        model,
        messages: entries(&request.system, &request.messages),
        tools: request.tools.iter().map(tool).collect(),
        stream: true,
        stream_options: ChatCompletionStreamOptions {
            include_usage: Some(true),
            include_obfuscation: None,
        },
    };
    // A long conversation is not copied again and again while the buffer grows.
    let mut bytes =
        Vec::with_capacity(16 * 1024 + request.messages.iter().map(|it| size(it)).sum::<usize>());
    if let Err(error) = serde_json::to_writer(&mut bytes, &body) {
        // Strings, numbers and maps with string keys: there is nothing that could fail.
        tracing::error!(%error, "a request could not be rendered");
    }
    bytes
}

/// About as much as a message takes.
fn size(message: &Message) -> usize {
    let text = match message {
        Message::User(user) => user.parts.iter().map(part_size).sum(),
        Message::Assistant(assistant) => assistant.text.len() + 256 * assistant.calls.len(),
        Message::Tool(tool) => tool.text.len(),
    };
    64 + text + text / 8
}

fn part_size(part: &Part) -> usize {
    match part {
        Part::Text(text) | Part::Context(text) | Part::Resource { text, .. } => text.len(),
        Part::Link { .. } => 128,
    }
}

fn entries<'a>(system: &'a str, messages: &'a [Arc<Message>]) -> Vec<Entry<'a>> {
    let mut entries = vec![Entry::System { content: system }];
    for message in messages {
        match message.as_ref() {
            Message::User(user) => {
                let content = user.render();
                // Many templates refuse two messages of the user in a row.
                if let Some(Entry::User { content: last }) = entries.last_mut() {
                    let last = last.to_mut();
                    last.push_str("\n\n");
                    last.push_str(&content);
                } else {
                    entries.push(Entry::User { content });
                }
            }
            Message::Assistant(assistant) => entries.extend(answer(assistant)),
            Message::Tool(tool) => {
                let (tool_call_id, content) = (&tool.provider_id, &tool.text);
                entries.push(Entry::Tool { tool_call_id, content });
            }
        }
    }
    entries
}

/// An answer without words and calls is left out: servers refuse it.
fn answer(message: &AssistantMessage) -> Option<Entry<'_>> {
    let tool_calls: Vec<_> = message.calls.iter().map(call).collect();
    let content = Some(message.text.as_str()).filter(|it| !it.trim().is_empty());
    if content.is_none() && tool_calls.is_empty() {
        return None;
    }
    Some(Entry::Assistant(Assistant { content, tool_calls }))
}

fn call(call: &ToolCall) -> Call<'_> {
    let arguments = match &call.arguments {
        Arguments::Object(value) if value.is_object() => value.to_string(),
        Arguments::Object(_) | Arguments::Unusable { .. } => "{}".to_owned(),
    };
    let function = Function { name: acceptable(&call.name), arguments };
    Call { id: &call.provider_id, sort: "function", function }
}

/// The name as servers take it, `[A-Za-z0-9_-]{1,64}`: one that the model has made up would
/// make every later request fail.
fn acceptable(name: &str) -> Cow<'_, str> {
    let fits = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    if name.is_empty() {
        return "unknown".into();
    }
    if name.len() <= 64 && name.chars().all(fits) {
        return name.into();
    }
    name.chars().take(64).map(|it| if fits(it) { it } else { '_' }).collect::<String>().into()
}

fn tool(spec: &ToolSpec) -> ChatCompletionTools {
    ChatCompletionTools::Function(ChatCompletionTool {
        function: FunctionObject {
            name: spec.name.to_owned(),
            description: Some(spec.description.clone()),
            parameters: Some(spec.parameters.clone()),
            strict: None,
        },
    })
}
