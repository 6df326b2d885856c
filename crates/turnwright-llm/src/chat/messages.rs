//! Renders conversation messages as chat completion messages, in the style that a server expects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::reasoning_details::{is_complete_block, is_responses_item, is_thinking_block};
use super::wire::SIGNED_FIELDS;
use crate::exchange::{PDF_NAME, RequestStyle, arguments_json};
use crate::quirks::{CacheHint, EmptyContent, Quirks, ReasoningEcho, SystemRole};
use crate::wire_names::wire_call_id;
use turnwright_types::message::{
    AssistantMessage, Media, Message, PromptPart, ToolCall, ToolMessage, UserMessage,
    omitted_media_note, render_parts,
};

// Own types instead of async-openai's: they borrow from the history instead of copying it for each
// request, and they have the extra fields that some providers require.
#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum ChatMessage<'a> {
    System {
        content: ChatContent<'a>,
    },
    Developer {
        content: ChatContent<'a>,
    },
    User {
        content: ChatContent<'a>,
    },
    Assistant(AssistantEntry<'a>),
    Tool {
        tool_call_id: Cow<'a, str>,
        /// For gateways to Gemini, which do not look up the tool of the call.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<Cow<'a, str>>,
        content: ChatContent<'a>,
        /// For LiteLLM.
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Value>,
    },
}

/// Plain text wherever it suffices: content parts make some models imitate them (C.4 #13).
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ChatContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Value>),
}

#[derive(Debug, Default, Serialize)]
pub(super) struct AssistantEntry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<Vec<&'a Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_blocks: Option<Vec<&'a Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_opaque: Option<&'a Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChatToolCall<'a>>,
}

#[derive(Debug, Serialize)]
struct ChatToolCall<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    function: ChatFunction<'a>,
    /// Fields that came with the call.
    #[serde(flatten)]
    signed_fields: BTreeMap<&'a str, Cow<'a, Value>>,
}

#[derive(Debug, Serialize)]
struct ChatFunction<'a> {
    name: Cow<'a, str>,
    /// A JSON object, encoded as a string. Some chat templates fail on anything but an object.
    arguments: String,
}

/// Accepted by Gemini instead of a signature for a call that it has not made itself (C.3 #11).
const SIGNATURE_PLACEHOLDER: &str = "skip_thought_signature_validator";
/// The assistant message inserted between a tool result and a prompt where these must not be
/// adjacent.
const BRIDGE_TEXT: &str = "Understood.";
/// Introduces images of tool results that cannot be part of the results themselves.
const IMAGES_INTRO: &str = "The pictures of the results above:";

pub(super) fn system_message<'a>(prompt: &'a str, style: &RequestStyle<'_>) -> ChatMessage<'a> {
    let mut content = ChatContent::Text(prompt.into());
    if style.quirks.cache == CacheHint::Marks {
        mark_cacheable(&mut content);
    }
    match style.quirks.role {
        SystemRole::System => ChatMessage::System { content },
        SystemRole::Developer => ChatMessage::Developer { content },
    }
}

/// Sets an Anthropic cache marker: everything up to this content is sent again with the next
/// request.
pub(super) fn mark_cacheable(content: &mut ChatContent<'_>) {
    if let ChatContent::Text(text) = content {
        if text.trim().is_empty() {
            return;
        }
        *content = ChatContent::Parts(vec![text_part(text)]);
    }
    if let ChatContent::Parts(parts) = content
        && let Some(last) = parts.last_mut()
    {
        last["cache_control"] = json!({ "type": "ephemeral" });
    }
}

/// Renders `messages`; `before` is the message that precedes them.
pub(super) fn render_messages<'a>(
    before: Option<&Message>,
    messages: &'a [Arc<Message>],
    style: &RequestStyle<'a>,
) -> Vec<ChatMessage<'a>> {
    let mut entries = Vec::with_capacity(messages.len() + 1);
    let mut follows_tool = matches!(before, Some(Message::Tool(_)));
    let mut pictures: Vec<&Media> = Vec::new();
    for message in messages {
        if !matches!(message.as_ref(), Message::Tool(_)) && !pictures.is_empty() {
            let shown = tool_images_content(std::mem::take(&mut pictures));
            push_user(&mut entries, shown, follows_tool, style);
            follows_tool = false;
        }
        match message.as_ref() {
            Message::User(user) => {
                push_user(&mut entries, user_content(user, style), follows_tool, style);
                follows_tool = false;
            }
            Message::Assistant(assistant) => {
                let answer = assistant_message(assistant, style);
                follows_tool &= answer.is_none();
                entries.extend(answer);
            }
            Message::Tool(tool) => {
                pictures.extend(tool.images.iter().filter(|image| style.quirks.moves(image)));
                entries.push(tool_message(tool, style));
                follows_tool = true;
            }
        }
    }
    if !pictures.is_empty() {
        push_user(&mut entries, tool_images_content(pictures), true, style);
    }
    entries
}

/// Appends a user message, merging adjacent ones and adding a bridge after a tool result where
/// required: many chat templates reject two user messages in a row, some reject one that follows a
/// tool result.
fn push_user<'a>(
    entries: &mut Vec<ChatMessage<'a>>,
    content: ChatContent<'a>,
    follows_tool: bool,
    style: &RequestStyle<'_>,
) {
    if let Some(ChatMessage::User { content: last }) = entries.last_mut() {
        return append_content(last, content);
    }
    if follows_tool && style.quirks.bridge {
        let thought = (style.quirks.echo == ReasoningEcho::Always).then_some("");
        entries.push(ChatMessage::Assistant(AssistantEntry {
            content: Some(BRIDGE_TEXT.into()),
            reasoning_content: thought,
            ..AssistantEntry::default()
        }));
    }
    entries.push(ChatMessage::User { content });
}

fn append_content<'a>(last: &mut ChatContent<'a>, content: ChatContent<'a>) {
    match (&mut *last, content) {
        (ChatContent::Text(last), ChatContent::Text(more)) => {
            let last = last.to_mut();
            last.push_str("\n\n");
            last.push_str(&more);
        }
        (ChatContent::Text(text), ChatContent::Parts(more)) => {
            let mut parts = vec![text_part(text)];
            parts.extend(more);
            *last = ChatContent::Parts(parts);
        }
        (ChatContent::Parts(parts), ChatContent::Text(more)) => parts.push(text_part(&more)),
        (ChatContent::Parts(parts), ChatContent::Parts(more)) => parts.extend(more),
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn image_part(media: &Media) -> Value {
    let url = format!("data:{};base64,{}", media.mime, media.data);
    if media.is_pdf() {
        return json!({ "type": "file", "file": { "filename": PDF_NAME, "file_data": url } });
    }
    json!({ "type": "image_url", "image_url": { "url": url } })
}

fn audio_part(media: &Media) -> Value {
    let format = match media.mime.as_str() {
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => "wav",
        other => other.rsplit('/').next().unwrap_or(other),
    };
    json!({ "type": "input_audio", "input_audio": { "data": media.data, "format": format } })
}

fn user_content<'a>(user: &'a UserMessage, style: &RequestStyle<'_>) -> ChatContent<'a> {
    let is_media = |part: &PromptPart| is_accepted_media(part, style.quirks);
    if !user.parts.iter().any(is_media) {
        return ChatContent::Text(user.render());
    }
    let mut parts = Vec::new();
    // The parts between two media are rendered like a prompt of their own.
    for chunk in user.parts.chunk_by(|one, next| !is_media(one) && !is_media(next)) {
        match chunk {
            [PromptPart::Image(media)] if style.quirks.takes(media) => {
                parts.push(image_part(media));
            }
            [PromptPart::Audio(media)] if style.quirks.audio => parts.push(audio_part(media)),
            others => {
                let text = render_parts(others);
                if !text.trim().is_empty() {
                    parts.push(text_part(&text));
                }
            }
        }
    }
    ChatContent::Parts(parts)
}

fn is_accepted_media(part: &PromptPart, quirks: &Quirks) -> bool {
    match part {
        PromptPart::Image(media) => quirks.takes(media),
        PromptPart::Audio(_) => quirks.audio,
        _ => false,
    }
}

fn tool_images_content<'a>(pictures: Vec<&Media>) -> ChatContent<'a> {
    let mut parts = vec![text_part(IMAGES_INTRO)];
    parts.extend(pictures.into_iter().map(image_part));
    ChatContent::Parts(parts)
}

fn tool_message<'a>(tool: &'a ToolMessage, style: &RequestStyle<'a>) -> ChatMessage<'a> {
    let quirks = style.quirks;
    let name = style.aliases.to_wire(&tool.name);
    let tool_call_id = wire_call_id(quirks.ids, &tool.provider_id, &tool.call, &name);
    let mut text = Cow::from(tool.text.as_str());
    let mut parts = Vec::new();
    for image in &tool.images {
        if !quirks.takes(image) {
            let note = omitted_media_note(image.kind(), &image.mime);
            text.to_mut().push_str(&format!("\n{note}"));
        } else if !quirks.moves(image) {
            parts.push(image_part(image));
        }
    }
    let content = if parts.is_empty() {
        ChatContent::Text(text)
    } else {
        parts.insert(0, text_part(&text));
        ChatContent::Parts(parts)
    };
    let name = quirks.signature.then_some(name);
    ChatMessage::Tool { tool_call_id, name, content, cache_control: None }
}

/// Renders a reply of the model. A reply without text and calls is omitted, because servers reject
/// it.
pub(super) fn assistant_message<'a>(
    message: &'a AssistantMessage,
    style: &RequestStyle<'a>,
) -> Option<ChatMessage<'a>> {
    if is_blank(message) {
        return None;
    }
    let quirks = style.quirks;
    let state = &message.provider_state;
    let is_own = !state.origin.is_empty() && *state.origin == *style.origin;
    let field = state.field.as_deref().filter(|_| is_own);
    let thought = message.thought.as_str();
    let kept = state.blobs.iter().filter(|piece| is_own && !is_responses_item(piece));
    let mut details: Vec<_> = kept.filter(|_| quirks.details).collect();
    let opaque = details.extract_if(.., |piece| piece.is_string()).last();
    let thinking = details.extract_if(.., |piece| is_thinking_block(piece));
    let blocks: Vec<_> = thinking.filter(|block| is_complete_block(block)).collect();
    let mut entry = AssistantEntry {
        reasoning_details: (!details.is_empty()).then_some(details),
        thinking_blocks: (!blocks.is_empty()).then_some(blocks),
        reasoning_opaque: opaque,
        ..AssistantEntry::default()
    };
    let has_signed = entry.reasoning_details.is_some() || entry.thinking_blocks.is_some();
    match quirks.echo {
        ReasoningEcho::Never | ReasoningEcho::Inline => {}
        ReasoningEcho::Same if thought.is_empty() || has_signed => {}
        ReasoningEcho::Same => match field {
            Some("reasoning_content") => entry.reasoning_content = Some(thought),
            Some("reasoning") => entry.reasoning = Some(thought),
            Some("reasoning_text") => entry.reasoning_text = Some(thought),
            _ => {}
        },
        ReasoningEcho::Always => match field {
            Some("reasoning") => entry.reasoning = Some(thought),
            _ => entry.reasoning_content = Some(thought),
        },
    }
    let text = message.text.as_str();
    let is_inline = quirks.echo == ReasoningEcho::Inline && field == Some("think");
    entry.content = if is_inline && !thought.is_empty() {
        Some(format!("<think>\n{}\n</think>\n\n{text}", thought.trim()).into())
    } else if !text.trim().is_empty() {
        Some(text.into())
    } else {
        match quirks.wordless {
            EmptyContent::Omit => None,
            EmptyContent::Empty => Some("".into()),
            EmptyContent::Null => Some(Value::Null),
        }
    };
    // With several calls, the first carries the signature for all of them.
    let is_signed = is_own && message.calls.iter().any(|call| call.extra.is_some());
    let substitute = quirks.signature && !is_signed;
    let calls = message.calls.iter().enumerate();
    entry.tool_calls = calls
        .map(|(position, call)| tool_call(call, style, is_own, substitute && position == 0))
        .collect();
    Some(ChatMessage::Assistant(entry))
}

/// True if a reply has neither text nor calls.
pub(super) fn is_blank(message: &AssistantMessage) -> bool {
    message.calls.is_empty() && message.text.trim().is_empty()
}

fn tool_call<'a>(
    call: &'a ToolCall,
    style: &RequestStyle<'a>,
    is_own: bool,
    substitute: bool,
) -> ChatToolCall<'a> {
    let arguments = arguments_json(&call.arguments);
    let name = style.aliases.to_wire(&call.name);
    let id = wire_call_id(style.quirks.ids, &call.provider_id, &call.id, &name);
    let signed_fields = match &call.extra {
        Some(Value::Object(fields))
            if is_own && fields.keys().all(|name| SIGNED_FIELDS.contains(&name.as_str())) =>
        {
            fields.iter().map(|(name, value)| (name.as_str(), Cow::Borrowed(value))).collect()
        }
        // Earlier versions stored only the extra content.
        Some(content) if is_own => BTreeMap::from([(SIGNED_FIELDS[0], Cow::Borrowed(content))]),
        _ if substitute => {
            let content = json!({ "google": { "thought_signature": SIGNATURE_PLACEHOLDER } });
            BTreeMap::from([(SIGNED_FIELDS[0], Cow::Owned(content))])
        }
        _ => BTreeMap::new(),
    };
    ChatToolCall { id, kind: "function", function: ChatFunction { name, arguments }, signed_fields }
}
