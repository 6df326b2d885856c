//! The Responses API, OpenAI's second protocol, as spoken by OpenAI, Azure and others. Nothing is stored at the
//! server: each request carries the whole conversation. Its body is rendered here, byte-stable between requests,
//! because providers cache prefixes.

mod streamed;
mod assembler;
mod wire;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::chat::cache_key;
use crate::exchange::{PDF_NAME, RequestStyle, arguments_json, write_json};
use crate::http::request_body::{PrefixCache, RequestBody};
use crate::quirks::{CacheHint, CallIdFormat};
use crate::schema::provider_safe_schema;
use crate::wire_names::{ToolAliases, wire_call_id};
use crate::{ReasoningEffort, Request};
use turnwright_types::ids::CallId;
use turnwright_types::message::{
    AssistantMessage, Media, Message, PromptPart, ToolCall, ToolMessage, ToolSpec, UserMessage,
    omitted_media_note, render_parts,
};

pub(super) use assembler::ResponsesAssembler;

/// The longest call identifier that the API accepts.
const MAX_CALL_ID_BYTES: usize = 64;

// Own types instead of async-openai's: they borrow from the history instead of copying it for each
// request. Items have no identifiers of their own, because nothing is stored that these could refer
// to.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputItem<'a> {
    Message {
        role: &'static str,
        content: Vec<InputContent<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a str>,
    },
    FunctionCall {
        call_id: Cow<'a, str>,
        name: Cow<'a, str>,
        /// A JSON object, encoded as a string.
        arguments: String,
    },
    FunctionCallOutput {
        call_id: Cow<'a, str>,
        output: CallOutput<'a>,
    },
    /// Verbatim reasoning from an earlier reply.
    #[serde(untagged)]
    Reasoning(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputContent<'a> {
    InputText { text: Cow<'a, str> },
    InputImage { image_url: DataUrl<'a>, detail: &'static str },
    InputFile { filename: &'static str, file_data: DataUrl<'a> },
    OutputText { text: &'a str },
}

#[derive(Serialize)]
#[serde(untagged)]
enum CallOutput<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<InputContent<'a>>),
}

/// An image or a PDF file as a data URL, serialised without copying it.
struct DataUrl<'a>(&'a Media);

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("data:{};base64,{}", self.0.mime, self.0.data))
    }
}

/// Renders the request body. It is assembled by hand, because the JSON of earlier messages is
/// reused from the prefix cache.
pub(crate) fn render(
    prefix_cache: &PrefixCache,
    style: &RequestStyle<'_>,
    request: &Request,
) -> RequestBody {
    let quirks = *style.quirks;
    let mut prefix = prefix_cache.lock().take(&request.messages, quirks);
    let mut more = Vec::new();
    for message in &request.messages[prefix.count..] {
        for item in message_items(style, message) {
            more.push(b',');
            write_json(&mut more, &item);
        }
    }
    prefix.json.append(more);
    let mut start = Vec::with_capacity(4 * 1024);
    start.extend_from_slice(b"{\"model\":");
    write_json(&mut start, &style.model);
    start.extend_from_slice(b",\"instructions\":");
    write_json(&mut start, &request.system);
    start.extend_from_slice(b",\"input\":[");
    let mut body = Vec::with_capacity(1024 + style.tools.len());
    style.write_tools(&mut body);
    body.extend_from_slice(b",\"store\":false");
    let mut fields = Map::new();
    if let Some(limit) = style.max_output {
        fields.insert("max_output_tokens".to_owned(), limit.into());
    }
    if quirks.supports_effort() {
        if quirks.encrypted {
            fields.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
        }
        fields.extend(reasoning_field(request.effort, quirks.summary));
    }
    fields.extend(style.file_parser(request));
    if quirks.cache == CacheHint::Key {
        fields.insert("prompt_cache_key".to_owned(), cache_key(request).into());
    }
    style.write_fields(&mut body, fields);
    let body = prefix.json.between(start, body, Some(b','));
    prefix_cache.lock().store(prefix, &request.messages, quirks);
    body
}

pub(crate) fn render_tool(spec: &ToolSpec, aliases: &ToolAliases) -> Value {
    json!({
        "type": "function",
        "name": aliases.to_wire(&spec.name),
        "description": spec.description,
        "parameters": provider_safe_schema(&spec.parameters),
        // Always sent: by default, the API makes the schema strict and every optional argument required.
        "strict": false,
    })
}

fn message_items<'a>(style: &RequestStyle<'_>, message: &'a Arc<Message>) -> Vec<InputItem<'a>> {
    match message.as_ref() {
        Message::User(user) => user_item(style, user).into_iter().collect(),
        Message::Assistant(assistant) => assistant_items(style, assistant),
        Message::Tool(result) => vec![result_item(style, result)],
    }
}

fn user_item<'a>(style: &RequestStyle<'_>, user: &'a UserMessage) -> Option<InputItem<'a>> {
    let is_sent_as_image = |part: &PromptPart| match part {
        PromptPart::Image(media) => style.quirks.takes(media),
        _ => false,
    };
    let mut content = Vec::new();
    // The parts between two images are rendered like a prompt of their own.
    for chunk in user.parts.chunk_by(|one, next| !is_sent_as_image(one) && !is_sent_as_image(next))
    {
        match chunk {
            [PromptPart::Image(media)] if style.quirks.takes(media) => {
                content.push(image_content(media));
            }
            parts => {
                let text = render_parts(parts);
                if !text.is_empty() {
                    content.push(InputContent::InputText { text });
                }
            }
        }
    }
    (!content.is_empty()).then_some(InputItem::Message { role: "user", content, phase: None })
}

fn assistant_items<'a>(
    style: &RequestStyle<'_>,
    message: &'a AssistantMessage,
) -> Vec<InputItem<'a>> {
    let is_same_origin = *message.provider_state.origin == *style.origin;
    let replayed = if is_same_origin { items_in_original_order(style, message) } else { None };
    replayed.unwrap_or_else(|| {
        let text = message.text.as_str();
        let text_item = (!text.trim().is_empty()).then(|| assistant_message(text, None));
        text_item
            .into_iter()
            .chain(message.calls.iter().map(|call| call_item(style, call)))
            .collect()
    })
}

fn result_item<'a>(style: &RequestStyle<'_>, result: &'a ToolMessage) -> InputItem<'a> {
    let mut text = Cow::from(result.text.as_str());
    let mut parts = Vec::new();
    for image in &result.images {
        if style.quirks.takes(image) {
            parts.push(image_content(image));
        } else {
            let between = if text.is_empty() { "" } else { "\n" };
            let note = omitted_media_note(image.kind(), &image.mime);
            text.to_mut().push_str(&format!("{between}{note}"));
        }
    }
    if !parts.is_empty() && !text.is_empty() {
        parts.insert(0, InputContent::InputText { text: std::mem::take(&mut text) });
    }
    let output = if parts.is_empty() { CallOutput::Text(text) } else { CallOutput::Parts(parts) };
    InputItem::FunctionCallOutput {
        call_id: call_id(style, &result.provider_id, &result.call, &result.name),
        output,
    }
}

/// The items of the reply as they came, so that reasoning precedes what it led to. `None` if
/// they were not recorded or the record does not match the message.
fn items_in_original_order<'a>(
    style: &RequestStyle<'_>,
    message: &'a AssistantMessage,
) -> Option<Vec<InputItem<'a>>> {
    let mut items = Vec::with_capacity(message.provider_state.blobs.len());
    let mut text_end = 0;
    let mut seen_calls = vec![false; message.calls.len()];
    for blob in &message.provider_state.blobs {
        match blob.get("type")?.as_str()? {
            // Encrypted reasoning was rejected once and would be rejected again.
            "reasoning" if !style.quirks.encrypted => {}
            "reasoning" => items.push(InputItem::Reasoning(blob)),
            "message" => {
                let start = index_in(blob, "start")?;
                let end = index_in(blob, "end")?;
                let text = message.text.get(start..end).filter(|_| text_end <= start)?;
                text_end = end;
                items.push(assistant_message(text, blob.get("phase").and_then(Value::as_str)));
            }
            "function_call" => {
                let slot = index_in(blob, "slot")?;
                if std::mem::replace(seen_calls.get_mut(slot)?, true) {
                    return None;
                }
                items.push(call_item(style, &message.calls[slot]));
            }
            _ => return None,
        }
    }
    if items.is_empty() || text_end != message.text.len() || seen_calls.contains(&false) {
        return None;
    }
    // Reasoning without a following item is rejected.
    while matches!(items.last(), Some(InputItem::Reasoning(_))) {
        items.pop();
    }
    Some(items)
}

fn call_item<'a>(style: &RequestStyle<'_>, call: &'a ToolCall) -> InputItem<'a> {
    let arguments = arguments_json(&call.arguments);
    let name = style.aliases.to_wire(&call.name).into_owned();
    let call_id = call_id(style, &call.provider_id, &call.id, &call.name);
    InputItem::FunctionCall { call_id, name: name.into(), arguments }
}

fn call_id<'a>(
    style: &RequestStyle<'_>,
    provider_id: &'a str,
    own_id: &CallId,
    name: &str,
) -> Cow<'a, str> {
    let format = match style.quirks.ids {
        CallIdFormat::Verbatim if provider_id.len() > MAX_CALL_ID_BYTES => CallIdFormat::Safe,
        format => format,
    };
    wire_call_id(format, provider_id, own_id, name)
}

/// A position in a recorded item.
fn index_in(blob: &Value, key: &str) -> Option<usize> {
    blob.get(key)?.as_u64().and_then(|number| usize::try_from(number).ok())
}

fn assistant_message<'a>(text: &'a str, phase: Option<&'a str>) -> InputItem<'a> {
    InputItem::Message {
        role: "assistant",
        content: vec![InputContent::OutputText { text }],
        phase,
    }
}

fn image_content(media: &Media) -> InputContent<'_> {
    if media.is_pdf() {
        return InputContent::InputFile { filename: PDF_NAME, file_data: DataUrl(media) };
    }
    InputContent::InputImage { image_url: DataUrl(media), detail: "auto" }
}

fn reasoning_field(effort: ReasoningEffort, summary: bool) -> Option<(String, Value)> {
    let mut fields = Map::new();
    if effort != ReasoningEffort::Default {
        fields.insert("effort".to_owned(), effort.id().into());
    }
    if summary {
        fields.insert("summary".to_owned(), "auto".into());
    }
    (!fields.is_empty()).then(|| ("reasoning".to_owned(), fields.into()))
}
