//! A conversation → the body of a request. Minimal, because strict servers refuse what they do
//! not know, and byte-stable from one request to the next, because providers cache prefixes.

use std::borrow::Cow;
use std::sync::Arc;

use async_openai::types::chat::{
    ChatCompletionStreamOptions, ChatCompletionTool, ChatCompletionTools, FunctionObject,
};
use serde::Serialize;

use super::prefix::Prefixes;
use crate::llm::Request;
use crate::message::{Arguments, AssistantMessage, Message, Part, ToolCall, ToolSpec};

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

/// The body of the request. Written by hand around its parts, because the beginning of the
/// conversation is there already.
pub(super) fn render(prefixes: &Prefixes, model: &str, request: &Request) -> Vec<u8> {
    let (settled, rest) = request.messages.split_at(settled(&request.messages));
    let mut prefix = prefixes.take(settled);
    write_entries(&mut prefix.json, &settled[prefix.count..]);

    let room = prefix.json.len() + rest.iter().map(|it| size(it)).sum::<usize>();
    let mut body = Vec::with_capacity(16 * 1024 + room);
    body.extend_from_slice(b"{\"model\":");
    write(&mut body, &model);
    body.extend_from_slice(b",\"messages\":[");
    write(&mut body, &Entry::System { content: &request.system });
    body.extend_from_slice(&prefix.json);
    write_entries(&mut body, rest);
    body.push(b']');
    if !request.tools.is_empty() {
        body.extend_from_slice(b",\"tools\":");
        write(&mut body, &request.tools.iter().map(tool).collect::<Vec<_>>());
    }
    body.extend_from_slice(b",\"stream\":true,\"stream_options\":");
    write(
        &mut body,
        &ChatCompletionStreamOptions { include_usage: Some(true), include_obfuscation: None },
    );
    body.push(b'}');
    prefixes.keep(prefix, settled);
    body
}

/// How many messages are rendered for good. A message of the user at the end is not: the next
/// one may be joined to it.
fn settled(messages: &[Arc<Message>]) -> usize {
    let is_settled = |it: &Arc<Message>| match it.as_ref() {
        Message::User(_) => false,
        Message::Assistant(assistant) => answer(assistant).is_some(),
        Message::Tool(_) => true,
    };
    messages.iter().rposition(is_settled).map_or(0, |it| it + 1)
}

fn write_entries(json: &mut Vec<u8>, messages: &[Arc<Message>]) {
    for entry in entries(messages) {
        json.push(b',');
        write(json, &entry);
    }
}

fn write(json: &mut Vec<u8>, value: &impl Serialize) {
    if let Err(error) = serde_json::to_writer(json, value) {
        // Strings, numbers and maps with string keys: there is nothing that could fail.
        tracing::error!(%error, "a request could not be rendered");
    }
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
        Part::Image(media) | Part::Audio(media) => media.data.len(),
    }
}

fn entries(messages: &[Arc<Message>]) -> Vec<Entry<'_>> {
    let mut entries = Vec::with_capacity(messages.len());
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
            name: spec.name.to_string(),
            description: Some(spec.description.clone()),
            parameters: Some(spec.parameters.clone()),
            strict: None,
        },
    })
}
