//! A conversation → the body of a request. Byte-stable from one request to the next, because
//! providers cache prefixes.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use turnwright_types::ids::CallId;
use crate::ids::wire_id;
use crate::manner::Manner;
use crate::names::Aliases;
use crate::prefix::Prefixes;
use crate::quirks::Ids;
use crate::schema::portable;
use crate::{Effort, Request};
use turnwright_types::message::{
    Arguments, AssistantMessage, Media, Message, Part, ToolCall, ToolMessage, ToolSpec,
    UserMessage, omitted,
};

/// The longest identifier of a call that the API takes.
const LONGEST_ID: usize = 64;

// These are ours and not async-openai's: they borrow the history instead of copying it for each
// request. Items carry no identifiers of their own: nothing is stored, so nothing can be found.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: &'static str,
        content: Vec<Content<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a str>,
    },
    FunctionCall {
        call_id: Cow<'a, str>,
        name: Cow<'a, str>,
        /// JSON in a string, always an object.
        arguments: String,
    },
    FunctionCallOutput {
        call_id: Cow<'a, str>,
        output: Output<'a>,
    },
    /// Reasoning, verbatim.
    #[serde(untagged)]
    Reasoning(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    InputText { text: Cow<'a, str> },
    InputImage { image_url: DataUrl<'a>, detail: &'static str },
    OutputText { text: &'a str },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Content<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct Tool {
    name: String,
    description: String,
    parameters: Value,
    /// Without it, the API makes the schema strict and every optional argument required.
    strict: bool,
}

/// A picture as a URL, written without a copy of it.
struct DataUrl<'a>(&'a Media);

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("data:{};base64,{}", self.0.mime, self.0.data))
    }
}

/// The body of the request. Written by hand around its parts, because the beginning of the
/// conversation is there already.
pub(in crate) fn render(
    prefixes: &Prefixes,
    manner: &Manner<'_>,
    request: &Request,
) -> Vec<u8> {
    Writer { manner }.render(prefixes, request)
}

/// The tools in JSON, in their order.
pub(in crate) fn render_tools(specs: &[Arc<ToolSpec>], aliases: &Aliases) -> Vec<u8> {
    if specs.is_empty() {
        return Vec::new();
    }
    let tool = |spec: &Arc<ToolSpec>| Tool {
        name: aliases.to_wire(&spec.name).into_owned(),
        description: spec.description.clone(),
        parameters: portable(&spec.parameters),
        strict: false,
    };
    let mut json = Vec::with_capacity(8 * 1024);
    write(&mut json, &specs.iter().map(tool).collect::<Vec<_>>());
    json
}

struct Writer<'m> {
    manner: &'m Manner<'m>,
}

impl Writer<'_> {
    fn render(&self, prefixes: &Prefixes, request: &Request) -> Vec<u8> {
        let quirks = *self.manner.quirks;
        let mut prefix = prefixes.take(&request.messages, quirks);
        for message in &request.messages[prefix.count..] {
            for item in self.items(message) {
                prefix.json.push(b',');
                write(&mut prefix.json, &item);
            }
        }
        let mut body = Vec::with_capacity(16 * 1024 + prefix.json.len());
        body.extend_from_slice(b"{\"model\":");
        write(&mut body, &self.manner.model);
        body.extend_from_slice(b",\"instructions\":");
        write(&mut body, &request.system);
        body.extend_from_slice(b",\"input\":[");
        body.extend_from_slice(prefix.json.strip_prefix(b",").unwrap_or_default());
        body.push(b']');
        if !self.manner.tools.is_empty() {
            body.extend_from_slice(b",\"tools\":");
            body.extend_from_slice(self.manner.tools);
        }
        body.extend_from_slice(b",\"stream\":true,\"store\":false");
        let mut fields = Map::new();
        if let Some(limit) = self.manner.max_output {
            fields.insert("max_output_tokens".to_owned(), limit.into());
        }
        if quirks.has_effort() {
            if quirks.encrypted {
                fields.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
            }
            fields.extend(reasoning(request.effort, quirks.summary));
        }
        // What the user has written down stands above all.
        fields.extend(self.manner.body.iter().map(|(name, value)| (name.clone(), value.clone())));
        for (name, value) in &fields {
            body.push(b',');
            write(&mut body, name);
            body.push(b':');
            write(&mut body, value);
        }
        body.push(b'}');
        prefixes.keep(prefix, &request.messages, quirks);
        body
    }

    fn items<'a>(&self, message: &'a Arc<Message>) -> Vec<Item<'a>> {
        match message.as_ref() {
            Message::User(user) => self.user(user).into_iter().collect(),
            Message::Assistant(assistant) => self.assistant(assistant),
            Message::Tool(result) => vec![self.result(result)],
        }
    }

    fn user<'a>(&self, user: &'a UserMessage) -> Option<Item<'a>> {
        let mut content = Vec::new();
        let mut say = |text: Cow<'a, str>| {
            if !text.is_empty() {
                content.push(Content::InputText { text });
            }
        };
        let is_shown = |it: &Part| self.manner.quirks.images && matches!(it, Part::Image(_));
        if !user.parts.iter().any(is_shown) {
            say(user.render());
            return (!content.is_empty()).then_some(Item::Message {
                role: "user",
                content,
                phase: None,
            });
        }
        // The words between two pictures are rendered like a prompt of their own.
        for run in user.parts.chunk_by(|one, next| !is_shown(one) && !is_shown(next)) {
            match run {
                [Part::Image(media)] => content.push(picture(media)),
                words => {
                    let text = UserMessage { parts: words.to_vec() }.render().into_owned();
                    if !text.is_empty() {
                        content.push(Content::InputText { text: text.into() });
                    }
                }
            }
        }
        Some(Item::Message { role: "user", content, phase: None })
    }

    fn assistant<'a>(&self, message: &'a AssistantMessage) -> Vec<Item<'a>> {
        let is_ours = *message.echo.origin == *self.manner.origin;
        let replayed = if is_ours { self.replay(message) } else { None };
        replayed.unwrap_or_else(|| {
            let text = message.text.as_str();
            let words = (!text.trim().is_empty()).then(|| answer(text, None));
            words.into_iter().chain(message.calls.iter().map(|it| self.call(it))).collect()
        })
    }

    fn result<'a>(&self, result: &'a ToolMessage) -> Item<'a> {
        let text = || Content::InputText { text: result.text.as_str().into() };
        let output = if result.images.is_empty() {
            Output::Text(result.text.as_str().into())
        } else if self.manner.quirks.images {
            let words = (!result.text.is_empty()).then(text);
            Output::Parts(words.into_iter().chain(result.images.iter().map(picture)).collect())
        } else {
            let notes = result.images.iter().map(|it| omitted("image", &it.mime));
            let lines = std::iter::once(result.text.clone()).chain(notes);
            Output::Text(lines.filter(|it| !it.is_empty()).collect::<Vec<_>>().join("\n").into())
        };
        Item::FunctionCallOutput {
            call_id: self.call_id(&result.provider_id, &result.call, &result.name),
            output,
        }
    }

    /// The answer as it came, item by item, so that each piece of reasoning stands right before what
    /// it led to. `None` if there is no such record, or it does not fit the message.
    fn replay<'a>(&self, message: &'a AssistantMessage) -> Option<Vec<Item<'a>>> {
        let mut items = Vec::with_capacity(message.echo.blobs.len());
        let mut said = 0;
        let mut called = vec![false; message.calls.len()];
        for blob in &message.echo.blobs {
            let number =
                |key: &str| blob.get(key)?.as_u64().and_then(|it| usize::try_from(it).ok());
            match blob.get("type")?.as_str()? {
                // Refused once, it would be refused again.
                "reasoning" if !self.manner.quirks.encrypted => {}
                "reasoning" => items.push(Item::Reasoning(blob)),
                "message" => {
                    let (start, end) = (number("start")?, number("end")?);
                    let text = message.text.get(start..end).filter(|_| said <= start)?;
                    said = end;
                    items.push(answer(text, blob.get("phase").and_then(Value::as_str)));
                }
                "function_call" => {
                    let slot = number("slot")?;
                    if std::mem::replace(called.get_mut(slot)?, true) {
                        return None;
                    }
                    items.push(self.call(&message.calls[slot]));
                }
                _ => return None,
            }
        }
        if items.is_empty() || said != message.text.len() || called.contains(&false) {
            return None;
        }
        // Reasoning that nothing follows is refused.
        while matches!(items.last(), Some(Item::Reasoning(_))) {
            items.pop();
        }
        Some(items)
    }

    fn call<'a>(&self, call: &'a ToolCall) -> Item<'a> {
        let arguments = match &call.arguments {
            Arguments::Object(value) if value.is_object() => value.to_string(),
            Arguments::Object(_) | Arguments::Unusable { .. } => "{}".to_owned(),
        };
        let name = self.manner.aliases.to_wire(&call.name).into_owned();
        let call_id = self.call_id(&call.provider_id, &call.id, &call.name);
        Item::FunctionCall { call_id, name: name.into(), arguments }
    }

    fn call_id<'a>(&self, provider_id: &'a str, call: &CallId, name: &str) -> Cow<'a, str> {
        let form = match self.manner.quirks.ids {
            Ids::Verbatim if provider_id.len() > LONGEST_ID => Ids::Safe,
            form => form,
        };
        wire_id(form, provider_id, call, name)
    }
}

fn answer<'a>(text: &'a str, phase: Option<&'a str>) -> Item<'a> {
    Item::Message { role: "assistant", content: vec![Content::OutputText { text }], phase }
}

fn picture(media: &Media) -> Content<'_> {
    Content::InputImage { image_url: DataUrl(media), detail: "auto" }
}

fn reasoning(effort: Effort, summary: bool) -> Option<(String, Value)> {
    let mut fields = Map::new();
    if effort != Effort::Default {
        fields.insert("effort".to_owned(), effort.id().into());
    }
    if summary {
        fields.insert("summary".to_owned(), "auto".into());
    }
    (!fields.is_empty()).then(|| ("reasoning".to_owned(), fields.into()))
}

fn write(json: &mut Vec<u8>, value: &impl Serialize) {
    if let Err(error) = serde_json::to_writer(json, value) {
        // Strings, numbers and maps with string keys: there is nothing that could fail.
        tracing::error!(%error, "a request could not be rendered");
    }
}
