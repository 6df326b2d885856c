//! Messages of the history → entries of the request, in the manner of one server.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::ids::wire_id;
use crate::manner::Manner;
use crate::quirks::{Cache, Echo, Role, Wordless};
use turnwright_types::message::{
    Arguments, AssistantMessage, Media, Message, Part, ToolCall, ToolMessage, UserMessage, omitted,
    render_part,
};

// The messages are ours and not async-openai's: these borrow the history instead of copying it
// for each request, and take the extra fields that some providers ask for.
#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum Entry<'a> {
    System { content: Content<'a> },
    Developer { content: Content<'a> },
    User { content: Content<'a> },
    Assistant(Assistant<'a>),
    Tool { tool_call_id: Cow<'a, str>, content: Content<'a> },
}

/// Plain text wherever that is enough: parts make some models imitate them (C.4 #13).
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Value>),
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Assistant<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a [Value]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Debug, Serialize)]
struct Call<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    sort: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Cow<'a, Value>>,
}

#[derive(Debug, Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    /// JSON in a string, always an object: some templates fail on anything else.
    arguments: String,
}

/// What Gemini takes instead of a signature for a call that it has not made (C.3 #11).
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// What stands between a result and a prompt where they must not be neighbours.
const BRIDGE: &str = "Understood.";
/// What introduces the pictures of results that cannot stand in the results.
const PICTURES: &str = "The pictures of the results above:";

/// The system prompt.
pub(super) fn system<'a>(prompt: &'a str, manner: &Manner<'_>) -> Entry<'a> {
    let mut content = Content::Text(prompt.into());
    if manner.quirks.cache == Cache::Marks {
        mark(&mut content);
    }
    match manner.quirks.role {
        Role::System => Entry::System { content },
        Role::Developer => Entry::Developer { content },
    }
}

/// Tells Anthropic's models that everything up to here will come again.
pub(super) fn mark(content: &mut Content<'_>) {
    if let Content::Text(text) = content {
        if text.trim().is_empty() {
            return;
        }
        *content = Content::Parts(vec![text_part(text)]);
    }
    if let Content::Parts(parts) = content
        && let Some(last) = parts.last_mut()
    {
        last["cache_control"] = json!({ "type": "ephemeral" });
    }
}

/// The entries of `messages`; `before` is the message before the first of them.
pub(super) fn entries<'a>(
    before: Option<&Message>,
    messages: &'a [Arc<Message>],
    manner: &Manner<'a>,
) -> Vec<Entry<'a>> {
    let mut entries = Vec::with_capacity(messages.len() + 1);
    let mut follows_tool = matches!(before, Some(Message::Tool(_)));
    let mut pictures: Vec<&Media> = Vec::new();
    for message in messages {
        if !matches!(message.as_ref(), Message::Tool(_)) && !pictures.is_empty() {
            let shown = pictures_of_results(std::mem::take(&mut pictures));
            push_user(&mut entries, shown, follows_tool, manner);
            follows_tool = false;
        }
        match message.as_ref() {
            Message::User(user) => {
                push_user(&mut entries, user_content(user, manner), follows_tool, manner);
                follows_tool = false;
            }
            Message::Assistant(it) => {
                let answer = answer(it, manner);
                follows_tool &= answer.is_none();
                entries.extend(answer);
            }
            Message::Tool(tool) => {
                if manner.quirks.images && !manner.quirks.tool_images {
                    pictures.extend(&tool.images);
                }
                entries.push(result(tool, manner));
                follows_tool = true;
            }
        }
    }
    if !pictures.is_empty() {
        push_user(&mut entries, pictures_of_results(pictures), true, manner);
    }
    entries
}

/// Many templates refuse two messages of the user in a row, some one that follows a result.
fn push_user<'a>(
    entries: &mut Vec<Entry<'a>>,
    content: Content<'a>,
    follows_tool: bool,
    manner: &Manner<'_>,
) {
    if let Some(Entry::User { content: last }) = entries.last_mut() {
        return join(last, content);
    }
    if follows_tool && manner.quirks.bridge {
        let thought = (manner.quirks.echo == Echo::Always).then_some("");
        entries.push(Entry::Assistant(Assistant {
            content: Some(BRIDGE.into()),
            reasoning_content: thought,
            ..Assistant::default()
        }));
    }
    entries.push(Entry::User { content });
}

fn join<'a>(last: &mut Content<'a>, content: Content<'a>) {
    match (&mut *last, content) {
        (Content::Text(last), Content::Text(more)) => {
            let last = last.to_mut();
            last.push_str("\n\n");
            last.push_str(&more);
        }
        (Content::Text(text), Content::Parts(more)) => {
            let mut parts = vec![text_part(text)];
            parts.extend(more);
            *last = Content::Parts(parts);
        }
        (Content::Parts(parts), Content::Text(more)) => parts.push(text_part(&more)),
        (Content::Parts(parts), Content::Parts(more)) => parts.extend(more),
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn image_part(media: &Media) -> Value {
    json!({
        "type": "image_url",
        "image_url": { "url": format!("data:{};base64,{}", media.mime, media.data) },
    })
}

fn audio_part(media: &Media) -> Value {
    let format = match media.mime.as_str() {
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => "wav",
        other => other.rsplit('/').next().unwrap_or(other),
    };
    json!({ "type": "input_audio", "input_audio": { "data": media.data, "format": format } })
}

fn user_content<'a>(user: &'a UserMessage, manner: &Manner<'_>) -> Content<'a> {
    let is_media = |part: &Part| match part {
        Part::Image(_) => manner.quirks.images,
        Part::Audio(_) => manner.quirks.audio,
        _ => false,
    };
    if !user.parts.iter().any(is_media) {
        return Content::Text(user.render());
    }
    let mut parts = Vec::new();
    let mut text = String::new();
    for part in &user.parts {
        let media = match part {
            Part::Image(media) if is_media(part) => image_part(media),
            Part::Audio(media) if is_media(part) => audio_part(media),
            other => {
                render_part(other, &mut text);
                continue;
            }
        };
        if !text.trim().is_empty() {
            parts.push(text_part(&text));
        }
        text.clear();
        parts.push(media);
    }
    if !text.trim().is_empty() {
        parts.push(text_part(&text));
    }
    Content::Parts(parts)
}

fn pictures_of_results<'a>(pictures: Vec<&Media>) -> Content<'a> {
    let mut parts = vec![text_part(PICTURES)];
    parts.extend(pictures.into_iter().map(image_part));
    Content::Parts(parts)
}

fn result<'a>(tool: &'a ToolMessage, manner: &Manner<'_>) -> Entry<'a> {
    let quirks = manner.quirks;
    let name = manner.aliases.to_wire(&tool.name);
    let tool_call_id = wire_id(quirks.ids, &tool.provider_id, &tool.call, &name);
    let content = if tool.images.is_empty() {
        Content::Text(tool.text.as_str().into())
    } else if quirks.images && quirks.tool_images {
        let mut parts = vec![text_part(&tool.text)];
        parts.extend(tool.images.iter().map(image_part));
        Content::Parts(parts)
    } else if quirks.images {
        Content::Text(tool.text.as_str().into())
    } else {
        let notes: Vec<_> = tool.images.iter().map(|it| omitted("image", &it.mime)).collect();
        Content::Text(format!("{}\n{}", tool.text, notes.join("\n")).into())
    };
    Entry::Tool { tool_call_id, content }
}

/// An answer without words and calls is left out: servers refuse it.
pub(super) fn answer<'a>(message: &'a AssistantMessage, manner: &Manner<'a>) -> Option<Entry<'a>> {
    if is_nothing(message) {
        return None;
    }
    let quirks = manner.quirks;
    let is_own = !message.echo.origin.is_empty() && *message.echo.origin == *manner.origin;
    let field = message.echo.field.as_deref().filter(|_| is_own);
    let thought = message.thought.as_str();
    let has_thought = !thought.is_empty();
    let details =
        Some(message.echo.blobs.as_slice()).filter(|it| quirks.details && is_own && !it.is_empty());
    let mut entry = Assistant { reasoning_details: details, ..Assistant::default() };
    match quirks.echo {
        Echo::Never | Echo::Inline => {}
        Echo::Same if !has_thought || details.is_some() => {}
        Echo::Same => match field {
            Some("reasoning_content") => entry.reasoning_content = Some(thought),
            Some("reasoning") => entry.reasoning = Some(thought),
            Some("reasoning_text") => entry.reasoning_text = Some(thought),
            _ => {}
        },
        Echo::Always => match field {
            Some("reasoning") => entry.reasoning = Some(thought),
            _ => entry.reasoning_content = Some(thought),
        },
    }
    let text = message.text.as_str();
    let is_inline = quirks.echo == Echo::Inline && field == Some("think") && has_thought;
    entry.content = if is_inline {
        Some(format!("<think>\n{}\n</think>\n\n{text}", thought.trim()).into())
    } else if !text.trim().is_empty() {
        Some(text.into())
    } else {
        match quirks.wordless {
            Wordless::Omit => None,
            Wordless::Empty => Some("".into()),
            Wordless::Null => Some(Value::Null),
        }
    };
    // The first of several calls carries the signature of all.
    let is_signed = is_own && message.calls.iter().any(|it| it.extra.is_some());
    let substitute = quirks.signature && !is_signed;
    entry.tool_calls =
        message.calls.iter().map(|it| call(it, manner, is_own, substitute)).collect();
    Some(Entry::Assistant(entry))
}

/// Whether an answer has neither words nor calls.
pub(super) fn is_nothing(message: &AssistantMessage) -> bool {
    message.calls.is_empty() && message.text.trim().is_empty()
}

fn call<'a>(call: &'a ToolCall, manner: &Manner<'a>, is_own: bool, substitute: bool) -> Call<'a> {
    let arguments = match &call.arguments {
        Arguments::Object(value) if value.is_object() => value.to_string(),
        Arguments::Object(_) | Arguments::Unusable { .. } => "{}".to_owned(),
    };
    let name = manner.aliases.to_wire(&call.name);
    let id = wire_id(manner.quirks.ids, &call.provider_id, &call.id, &name);
    let extra_content = match &call.extra {
        Some(extra) if is_own => Some(Cow::Borrowed(extra)),
        _ if substitute => {
            Some(Cow::Owned(json!({ "google": { "thought_signature": NO_SIGNATURE } })))
        }
        _ => None,
    };
    Call { id, sort: "function", function: Function { name, arguments }, extra_content }
}
