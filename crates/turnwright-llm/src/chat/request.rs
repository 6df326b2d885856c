//! A conversation → the body of a request. Minimal, because strict servers refuse what they do
//! not know, and byte-stable from one request to the next, because providers cache prefixes.

use std::sync::Arc;

use async_openai::types::chat::{
    ChatCompletionStreamOptions, ChatCompletionTool, ChatCompletionTools, FunctionObject,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::entries::{Entry, entries, is_nothing, mark, system};
use crate::manner::Manner;
use crate::names::Aliases;
use crate::prefix::Prefixes;
use crate::quirks::{Cache, Dialect, Limit, Quirks};
use crate::schema::portable;
use crate::{Effort, Request};
use turnwright_types::message::{Message, Part, ToolSpec};

/// The body of the request. Written by hand around its parts, because the beginning of the
/// conversation is there already.
pub(in crate) fn render(
    prefixes: &Prefixes,
    manner: &Manner<'_>,
    request: &Request,
) -> Vec<u8> {
    let (settled, rest) = request.messages.split_at(settled(&request.messages, manner.quirks));
    let mut prefix = prefixes.take(settled, *manner.quirks);
    let before = prefix.count.checked_sub(1).map(|it| settled[it].as_ref());
    write_entries(&mut prefix.json, &entries(before, &settled[prefix.count..], manner));

    let room = prefix.json.len() + rest.iter().map(|it| size(it)).sum::<usize>();
    let mut body = Vec::with_capacity(4 * 1024 + room + manner.tools.len());
    body.extend_from_slice(b"{\"model\":");
    write(&mut body, &manner.model);
    body.extend_from_slice(b",\"messages\":[");
    write(&mut body, &system(&request.system, manner));
    body.extend_from_slice(&prefix.json);
    let mut last = entries(settled.last().map(AsRef::as_ref), rest, manner);
    if manner.quirks.cache == Cache::Marks
        && let Some(Entry::User { content } | Entry::Tool { content, .. }) = last.last_mut()
    {
        mark(content);
    }
    write_entries(&mut body, &last);
    body.push(b']');
    if !manner.tools.is_empty() {
        body.extend_from_slice(b",\"tools\":");
        body.extend_from_slice(manner.tools);
    }
    write_rest(&mut body, manner, request);
    body.push(b'}');
    prefixes.keep(prefix, settled, *manner.quirks);
    body
}

/// What stands behind the messages and the tools.
fn write_rest(body: &mut Vec<u8>, manner: &Manner<'_>, request: &Request) {
    let quirks = manner.quirks;
    body.extend_from_slice(b",\"stream\":true");
    if quirks.stream_options {
        body.extend_from_slice(b",\"stream_options\":");
        let usage =
            ChatCompletionStreamOptions { include_usage: Some(true), include_obfuscation: None };
        write(body, &usage);
    }
    let mut fields = Map::new();
    if let Some(limit) = manner.max_output {
        let name = match quirks.limit {
            Limit::MaxTokens => "max_tokens",
            Limit::MaxCompletionTokens => "max_completion_tokens",
        };
        fields.insert(name.to_owned(), limit.into());
    }
    fields.extend(effort(quirks.effort, request.effort));
    if quirks.tool_stream && !manner.tools.is_empty() {
        fields.insert("tool_stream".to_owned(), true.into());
    }
    if quirks.reasoning_split {
        fields.insert("reasoning_split".to_owned(), true.into());
    }
    if quirks.cache == Cache::Key {
        fields.insert("prompt_cache_key".to_owned(), cache_key(request).into());
    }
    // What the user has written down stands above all.
    fields.extend(manner.body.iter().map(|(name, value)| (name.clone(), value.clone())));
    for (name, value) in &fields {
        body.push(b',');
        write(body, name);
        body.push(b':');
        write(body, value);
    }
}

/// The effort in the words of the server (C.4 #4). Those that know only on and off take every
/// effort but none for on.
fn effort(dialect: Dialect, effort: Effort) -> Option<(String, Value)> {
    let field = |name: &str, value: Value| Some((name.to_owned(), value));
    let is_on = effort != Effort::None;
    let on_off = |on: &str| json!({ "type": if is_on { on } else { "disabled" } });
    match (dialect, effort) {
        (Dialect::ThinkingKept, _) => {
            let mut thinking = on_off("enabled");
            if is_on {
                // Thoughts of earlier turns are kept: they are sent back (C.3 #10).
                thinking["clear_thinking"] = false.into();
            }
            field("thinking", thinking)
        }
        (Dialect::None, _) | (_, Effort::Default) => None,
        (Dialect::ReasoningEffort, effort) => field("reasoning_effort", effort.id().into()),
        (Dialect::Reasoning, Effort::None) => field("reasoning", json!({ "enabled": false })),
        (Dialect::Reasoning, effort) => field("reasoning", json!({ "effort": effort.id() })),
        (Dialect::ReasoningEnabled, _) => field("reasoning", json!({ "enabled": is_on })),
        (Dialect::Thinking, _) => field("thinking", on_off("enabled")),
        (Dialect::ThinkingAdaptive, _) => field("thinking", on_off("adaptive")),
        (Dialect::EnableThinking, _) => field("enable_thinking", is_on.into()),
        (Dialect::TemplateThinking, _) => {
            field("chat_template_kwargs", json!({ "enable_thinking": is_on }))
        }
    }
}

/// The same for all requests of a conversation: made from what it begins with.
fn cache_key(request: &Request) -> String {
    let mut hash = std::hash::DefaultHasher::new();
    if let Some(Message::User(first)) = request.messages.first().map(AsRef::as_ref) {
        std::hash::Hash::hash(&first.render(), &mut hash);
    }
    format!("turnwright-{:016x}", std::hash::Hasher::finish(&hash))
}

/// How many messages are rendered for good. A message of the user at the end is not: the next
/// one may be joined to it. Nor are results whose pictures become such a message.
fn settled(messages: &[Arc<Message>], quirks: &Quirks) -> usize {
    let is_settled = |it: &Arc<Message>| match it.as_ref() {
        Message::User(_) => false,
        Message::Assistant(assistant) => !is_nothing(assistant),
        Message::Tool(_) => true,
    };
    let mut end = messages.iter().rposition(is_settled).map_or(0, |it| it + 1);
    if quirks.cache == Cache::Marks {
        // The last one bears a mark that it does not keep.
        end = end.min(messages.len().saturating_sub(1));
    }
    let results = messages[..end].iter().rev().map_while(|it| match it.as_ref() {
        Message::Tool(tool) => Some(tool.images.is_empty()),
        Message::User(_) | Message::Assistant(_) => None,
    });
    let moves = quirks.images && !quirks.tool_images;
    let (count, has_pictures) =
        results.fold((0, false), |(count, any), is_plain| (count + 1, any || !is_plain));
    if moves && has_pictures { end - count } else { end }
}

fn write_entries(json: &mut Vec<u8>, entries: &[Entry<'_>]) {
    for entry in entries {
        json.push(b',');
        write(json, entry);
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
        Message::Assistant(assistant) => {
            assistant.text.len() + assistant.thought.len() + 256 * assistant.calls.len()
        }
        Message::Tool(tool) => {
            tool.text.len() + tool.images.iter().map(|it| it.data.len()).sum::<usize>()
        }
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

/// The tools in JSON, in their order: what comes later leaves the bytes before it as they are.
pub(in crate) fn render_tools(specs: &[Arc<ToolSpec>], aliases: &Aliases) -> Vec<u8> {
    if specs.is_empty() {
        return Vec::new();
    }
    let tool = |spec: &Arc<ToolSpec>| {
        ChatCompletionTools::Function(ChatCompletionTool {
            function: FunctionObject {
                name: aliases.to_wire(&spec.name).into_owned(),
                description: Some(spec.description.clone()),
                parameters: Some(portable(&spec.parameters)),
                strict: None,
            },
        })
    };
    let mut json = Vec::with_capacity(8 * 1024);
    write(&mut json, &specs.iter().map(tool).collect::<Vec<_>>());
    json
}
