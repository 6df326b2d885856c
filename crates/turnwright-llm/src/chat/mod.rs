//! The chat completions protocol, as spoken by OpenAI and compatible servers. The body of a request is rendered
//! here. It is minimal, because strict servers reject unknown fields, and byte-stable between requests, because
//! providers cache prefixes.

pub(super) mod arguments;
mod assembler;
mod reasoning_details;
mod messages;
pub(super) mod wire;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_openai::types::chat::{
    ChatCompletionStreamOptions, ChatCompletionTool, ChatCompletionTools, FunctionObject,
};
use serde_json::{Map, Value, json};

use crate::exchange::{RenderedTools, ReplyContext, RequestStyle, write_json};
use crate::http::request_body::{PrefixCache, RequestBody};
use crate::quirks::{CacheHint, EffortDialect, OutputLimitField, Quirks};
use crate::schema::provider_safe_schema;
use crate::wire_names::ToolAliases;
use crate::{ReasoningEffort, Request};
use messages::{ChatMessage, is_blank, mark_cacheable, render_messages, system_message};
use turnwright_types::hash::std_hash;
use turnwright_types::message::{AssistantMessage, Message, PromptPart, ToolCall, ToolSpec};

pub(super) use assembler::{ChatAssembler, parse_usage};

/// The context in which a recorded reply of a model that was offered these tools is read.
pub(super) fn recorded_context(model: &str, tools: &[String]) -> ReplyContext {
    let declared = tools.iter().map(|name| {
        Arc::new(ToolSpec {
            name: name.clone().into(),
            description: String::new(),
            parameters: Value::Object(Map::new()),
        })
    });
    let specs = Arc::new(declared.collect::<Vec<_>>());
    let tools = (!specs.is_empty()).then(|| Arc::new(RenderedTools::new(&specs, render_tool)));
    ReplyContext {
        host: "host".to_owned(),
        origin: "host/m".into(),
        quirks: Quirks::lookup("", model),
        tools,
        ..ReplyContext::default()
    }
}

/// Renders the request body. It is assembled by hand, because the JSON of earlier messages is
/// reused from the prefix cache.
pub(crate) fn render(
    prefix_cache: &PrefixCache,
    style: &RequestStyle<'_>,
    request: &Request,
) -> RequestBody {
    let apart = (!style.quirks.parallel).then(|| one_call_each(&request.messages));
    let messages = apart.as_ref().unwrap_or(&request.messages);
    let (stable, rest) = messages.split_at(stable_len(messages, style.quirks));
    let mut prefix = prefix_cache.lock().take(stable, *style.quirks);
    let before = prefix.count.checked_sub(1).map(|index| stable[index].as_ref());
    let mut more = Vec::new();
    write_messages(&mut more, &render_messages(before, &stable[prefix.count..], style));
    prefix.json.append(more);

    let mut start = Vec::with_capacity(4 * 1024);
    start.extend_from_slice(b"{\"model\":");
    write_json(&mut start, &style.model);
    start.extend_from_slice(b",\"messages\":[");
    write_json(&mut start, &system_message(&request.system, style));
    let room = rest.iter().map(|message| estimated_size(message)).sum::<usize>();
    let mut body = Vec::with_capacity(1024 + room + style.tools.len());
    let mut last = render_messages(stable.last().map(AsRef::as_ref), rest, style);
    if style.quirks.cache == CacheHint::Marks {
        // Claude's cache is searched only in the 20 blocks before each marker, and an answer with its results
        // may have more, so the end of the previous request keeps its marker.
        let answer = last.iter().rposition(|entry| matches!(entry, ChatMessage::Assistant(_)));
        for end in [answer.unwrap_or(0), last.len()] {
            match last[..end].last_mut() {
                Some(ChatMessage::Tool { cache_control, .. }) if style.quirks.outer_marks => {
                    *cache_control = Some(json!({ "type": "ephemeral" }));
                }
                Some(ChatMessage::User { content } | ChatMessage::Tool { content, .. }) => {
                    mark_cacheable(content);
                }
                _ => {}
            }
        }
    }
    write_messages(&mut body, &last);
    write_parameters(&mut body, style, request);
    let body = prefix.json.between(start, body, None);
    prefix_cache.lock().store(prefix, stable, *style.quirks);
    body
}

/// Writes everything that follows the messages.
fn write_parameters(body: &mut Vec<u8>, style: &RequestStyle<'_>, request: &Request) {
    let quirks = style.quirks;
    style.write_tools(body);
    if quirks.stream && quirks.stream_options {
        body.extend_from_slice(b",\"stream_options\":");
        let usage =
            ChatCompletionStreamOptions { include_usage: Some(true), include_obfuscation: None };
        write_json(body, &usage);
    }
    let mut fields = Map::new();
    if let Some(limit) = style.max_output {
        let name = match quirks.limit {
            OutputLimitField::MaxTokens => "max_tokens",
            OutputLimitField::MaxCompletionTokens => "max_completion_tokens",
        };
        fields.insert(name.to_owned(), limit.into());
    }
    fields.extend(effort_field(quirks.effort, request.effort));
    let with_levels = [EffortDialect::ThinkingLevels, EffortDialect::EnableLevels];
    if with_levels.contains(&quirks.effort) && request.effort != ReasoningEffort::None {
        fields.extend(effort_field(EffortDialect::ReasoningEffort, request.effort));
    }
    fields.extend(style.file_parser(request));
    if quirks.tool_stream && !style.tools.is_empty() {
        fields.insert("tool_stream".to_owned(), true.into());
    }
    if quirks.reasoning_split {
        fields.insert("reasoning_split".to_owned(), true.into());
    }
    if quirks.cache == CacheHint::Key {
        fields.insert("prompt_cache_key".to_owned(), cache_key(request).into());
    }
    style.write_fields(body, fields);
}

/// The reasoning effort as a field of the request (C.4 #4). Dialects that only know on and off
/// treat every effort but `none` as on.
fn effort_field(dialect: EffortDialect, effort: ReasoningEffort) -> Option<(String, Value)> {
    let field = |name: &str, value: Value| Some((name.to_owned(), value));
    let is_on = effort != ReasoningEffort::None;
    let on_off = |on: &str| json!({ "type": if is_on { on } else { "disabled" } });
    match (dialect, effort) {
        (EffortDialect::ThinkingKept | EffortDialect::ThinkingLevels, _) => {
            let mut thinking = on_off("enabled");
            if is_on {
                // Reasoning of earlier turns is kept, because it is sent back (C.3 #10).
                thinking["clear_thinking"] = false.into();
            }
            field("thinking", thinking)
        }
        (EffortDialect::None, _) | (_, ReasoningEffort::Default) => None,
        (EffortDialect::ReasoningEffort, effort) => field("reasoning_effort", effort.id().into()),
        (EffortDialect::Reasoning, ReasoningEffort::None) => {
            field("reasoning", json!({ "enabled": false }))
        }
        (EffortDialect::Reasoning, effort) => field("reasoning", json!({ "effort": effort.id() })),
        (EffortDialect::ReasoningEnabled, _) => field("reasoning", json!({ "enabled": is_on })),
        (EffortDialect::Thinking, _) => field("thinking", on_off("enabled")),
        (EffortDialect::ThinkingAdaptive, _) => field("thinking", on_off("adaptive")),
        (EffortDialect::EnableThinking | EffortDialect::EnableLevels, _) => {
            field("enable_thinking", is_on.into())
        }
        (EffortDialect::TemplateThinking, _) => {
            field("chat_template_kwargs", json!({ "enable_thinking": is_on }))
        }
    }
}

/// A key that stays the same for all requests of a conversation, derived from its first message.
pub(super) fn cache_key(request: &Request) -> String {
    let hash = match request.messages.first().map(AsRef::as_ref) {
        Some(Message::User(first)) => std_hash(first.render()),
        _ => std_hash(()),
    };
    format!("turnwright-{hash:016x}")
}

/// The number of messages whose rendered form can no longer change. A trailing user message may
/// still be merged with the next one, and trailing tool results may be followed by a message with
/// their images.
fn stable_len(messages: &[Arc<Message>], quirks: &Quirks) -> usize {
    // The last message and the one before the last answer carry cache markers, which later requests move on.
    let answer = messages.iter().rposition(|message| message.as_assistant().is_some());
    let first_marked = answer.unwrap_or(messages.len()).saturating_sub(1);
    let unmarked = if quirks.cache == CacheHint::Marks { first_marked } else { messages.len() };
    let last_settled = messages[..unmarked].iter().rposition(|message| match message.as_ref() {
        Message::User(_) => false,
        Message::Assistant(assistant) => !is_blank(assistant),
        Message::Tool(_) => true,
    });
    let end = last_settled.map_or(0, |last| last + 1);
    let results = messages[..end].iter().rev().map_while(|message| match message.as_ref() {
        Message::Tool(tool) => Some(tool.images.iter().any(|image| quirks.moves(image))),
        Message::User(_) | Message::Assistant(_) => None,
    });
    let (count, has_pictures) =
        results.fold((0, false), |(count, any), has_some| (count + 1, any || has_some));
    if has_pictures { end - count } else { end }
}

/// Gives each call an answer of its own, which its result follows: some servers refuse several calls in one answer.
fn one_call_each(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut apart = Vec::with_capacity(messages.len());
    let mut waiting: Vec<ToolCall> = Vec::new();
    for message in messages {
        match message.as_ref() {
            Message::Assistant(answer) if answer.calls.len() > 1 => {
                let mut first = answer.clone();
                waiting = first.calls.split_off(1);
                apart.push(Arc::new(Message::Assistant(first)));
                continue;
            }
            Message::Tool(result) => {
                let own = waiting.extract_if(.., |call| call.id == result.call);
                apart.extend(own.map(|call| {
                    Arc::new(Message::Assistant(AssistantMessage::new("", "", vec![call])))
                }));
            }
            Message::Assistant(_) | Message::User(_) => {}
        }
        apart.push(Arc::clone(message));
    }
    apart
}

fn write_messages(json: &mut Vec<u8>, entries: &[ChatMessage<'_>]) {
    for entry in entries {
        json.push(b',');
        write_json(json, entry);
    }
}

/// The approximate size of a rendered message.
fn estimated_size(message: &Message) -> usize {
    let text = match message {
        Message::User(user) => user.parts.iter().map(estimated_part_size).sum(),
        Message::Assistant(assistant) => {
            assistant.text.len() + assistant.thought.len() + 256 * assistant.calls.len()
        }
        Message::Tool(tool) => {
            tool.text.len() + tool.images.iter().map(|image| image.data.len()).sum::<usize>()
        }
    };
    64 + text + text / 8
}

fn estimated_part_size(part: &PromptPart) -> usize {
    match part {
        PromptPart::Text(text) | PromptPart::Context(text) | PromptPart::Resource { text, .. } => {
            text.len()
        }
        PromptPart::Link { .. } | PromptPart::Skill(_) => 128,
        PromptPart::Image(media) | PromptPart::Audio(media) => media.data.len(),
    }
}

pub(crate) fn render_tool(spec: &ToolSpec, aliases: &ToolAliases) -> ChatCompletionTools {
    ChatCompletionTools::Function(ChatCompletionTool {
        function: FunctionObject {
            name: aliases.to_wire(&spec.name).into_owned(),
            description: Some(spec.description.clone()),
            parameters: Some(provider_safe_schema(&spec.parameters)),
            strict: None,
        },
    })
}
