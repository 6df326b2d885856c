//! The conversation as data: what the user said, what the model answered, what its tools gave
//! back. No I/O, and nothing of any wire format.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{CallId, MessageId};

/// One entry of a conversation.
///
/// What is kept of a session is these types as JSON, so a field that is added needs a default.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// What the user said.
    User(UserMessage),
    /// What the model said, with the tool calls it asked for.
    Assistant(AssistantMessage),
    /// The result of one of those calls.
    Tool(ToolMessage),
}

/// A prompt, in the order of its blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct UserMessage {
    /// The blocks of the prompt.
    pub parts: Vec<Part>,
}

/// One block of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text(String),
    /// A picture.
    Image(Media),
    /// A recording.
    Audio(Media),
    /// A reference that the model may follow with a tool.
    Link {
        /// What it is called.
        name: String,
        /// Where it is; `file://` links are shown to the model as paths.
        uri: String,
    },
    /// Text that the client has attached, such as an open file or a selection.
    Resource {
        /// Where it comes from.
        uri: String,
        /// Its content.
        text: String,
    },
    /// What we add for the model, such as the date; it is no word of the user's.
    Context(String),
}

/// A picture or a recording.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Media {
    /// Its MIME type, such as `image/png`.
    pub mime: String,
    /// Its bytes in base64.
    pub data: String,
}

impl fmt::Debug for Media {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Media({}, {} bytes of base64)", self.mime, self.data.len())
    }
}

/// What a provider wants to have back with the next request, and nobody else understands.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Echo {
    /// Which model of which provider said it. Another one gets nothing of this: it would refuse
    /// it (quirk C.3 #15). Empty where nobody knows.
    pub origin: Arc<str>,
    /// The name of the field that the reasoning came in.
    pub field: Option<String>,
    /// Signed or encrypted reasoning, verbatim and in order.
    pub blobs: Vec<Value>,
}

/// One answer of the model.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct AssistantMessage {
    /// The identifier under which the client has seen it.
    pub id: MessageId,
    /// The text, possibly empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The reasoning that came with it, possibly empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thought: String,
    /// The tool calls, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// Whether the stream was stopped before its end, by the user or by an error.
    #[serde(default)]
    pub interrupted: bool,
    /// What its provider wants to have back.
    #[serde(default)]
    pub echo: Echo,
}

/// A tool call as the model has asked for it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ToolCall {
    /// Our identifier, unique in the session.
    pub id: CallId,
    /// The model's identifier, verbatim: some models break when it is rewritten.
    pub provider_id: String,
    /// The function's name as the model wrote it.
    pub name: String,
    /// The arguments: an object when they could be understood, else the text as it came. They are
    /// kept beside the message.
    #[serde(skip)]
    pub arguments: Arguments,
    /// What its provider has attached and wants to have back, such as a signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arguments {
    /// A complete JSON object.
    Object(Value),
    /// Not runnable; the reason is for the model.
    Unusable {
        /// What the model sent.
        text: String,
        /// Why it cannot run.
        reason: String,
    },
}

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments::Object(Value::Object(serde_json::Map::default()))
    }
}

/// What a tool gave back.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ToolMessage {
    /// The call it answers.
    pub call: CallId,
    /// The model's identifier of that call.
    pub provider_id: String,
    /// The function's name.
    pub name: String,
    /// What the model reads.
    pub text: String,
    /// Whether the tool did what was asked.
    pub ok: bool,
    /// Pictures that belong to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Media>,
}

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its name; what providers do not take is replaced on the way out.
    pub name: Cow<'static, str>,
    /// What it does, for the model.
    pub description: String,
    /// A flat JSON Schema of the arguments.
    pub parameters: Value,
}

/// The functions that the model may call, in the order in which it is told. A new list is a list of
/// pointers to what is the same.
pub type Specs = Arc<Vec<Arc<ToolSpec>>>;

/// Tokens, as the server has counted them for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the request.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// How many of those of the request were in the provider's cache.
    pub cached: u64,
}

/// How long a model should think before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// As its provider thinks best: nothing is sent.
    #[default]
    Default,
    /// Not at all, where that can be chosen.
    None,
    /// A little.
    Low,
    /// More.
    Medium,
    /// Long.
    High,
}

impl Effort {
    /// All of them, in order.
    pub const ALL: [Effort; 5] =
        [Effort::Default, Effort::None, Effort::Low, Effort::Medium, Effort::High];

    /// A stable word for settings and clients.
    pub fn id(self) -> &'static str {
        match self {
            Effort::Default => "default",
            Effort::None => "none",
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        }
    }

    /// The effort of that name.
    pub fn parse(id: &str) -> Option<Effort> {
        Effort::ALL.into_iter().find(|it| it.id() == id)
    }
}

/// Why a turn ended. The five reasons of ACP v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model had nothing more to do.
    EndTurn,
    /// The answer hit the output limit.
    MaxTokens,
    /// The turn used up its model requests.
    MaxTurnRequests,
    /// The model or its provider refused.
    Refusal,
    /// The user cancelled.
    Cancelled,
}

impl Stop {
    /// A stable word, the one that ACP has.
    pub fn word(self) -> &'static str {
        match self {
            Stop::EndTurn => "end_turn",
            Stop::MaxTokens => "max_tokens",
            Stop::MaxTurnRequests => "max_turn_requests",
            Stop::Refusal => "refusal",
            Stop::Cancelled => "cancelled",
        }
    }
}

/// The messages of a session. Cloning copies pointers, so a turn can work on its own copy and
/// the session keeps what was there before, for the case that the turn dies.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In order.
    pub messages: Vec<Arc<Message>>,
    /// How many identifiers have been given out.
    pub minted: u64,
    /// What it has cost so far, in US dollars, where prices are known.
    pub cost: Option<f64>,
    /// Whether there ever was a picture or a recording in it. Known without a look at all of it,
    /// which late in a session is what a request takes longest for.
    pub has_media: bool,
}

impl History {
    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        self.has_media |= message.has_images() || message.has_audio();
        self.messages.push(Arc::new(message));
    }

    /// A number that no other identifier of this session has.
    pub fn mint(&mut self) -> u64 {
        self.minted += 1;
        self.minted
    }
}

impl Message {
    /// Whether there is a picture in it.
    pub fn has_images(&self) -> bool {
        match self {
            Message::User(user) => user.parts.iter().any(|it| matches!(it, Part::Image(_))),
            Message::Tool(tool) => !tool.images.is_empty(),
            Message::Assistant(_) => false,
        }
    }

    /// Whether there is a recording in it.
    pub fn has_audio(&self) -> bool {
        match self {
            Message::User(user) => user.parts.iter().any(|it| matches!(it, Part::Audio(_))),
            Message::Tool(_) | Message::Assistant(_) => false,
        }
    }
}

impl UserMessage {
    /// A prompt of one text block.
    pub fn text(text: impl Into<String>) -> UserMessage {
        UserMessage { parts: vec![Part::Text(text.into())] }
    }

    /// The prompt as the model reads it: links as names with their place, attachments fenced
    /// so that the model can tell them from the user's own words.
    pub fn render(&self) -> Cow<'_, str> {
        if let [Part::Text(text)] = self.parts.as_slice() {
            return Cow::Borrowed(text);
        }
        let mut text = String::new();
        self.parts.iter().for_each(|it| render_part(it, &mut text));
        Cow::Owned(text)
    }
}

/// One block as the model reads it, at the end of `text`.
pub fn render_part(part: &Part, text: &mut String) {
    match part {
        Part::Text(it) => text.push_str(it),
        Part::Context(it) => {
            text.push_str(&format!("\n\n<context>\n{}\n</context>", it.trim_end()));
        }
        Part::Image(media) => text.push_str(&omitted("image", &media.mime)),
        Part::Audio(media) => text.push_str(&omitted("recording", &media.mime)),
        Part::Link { name, uri } => text.push_str(&format!("[{name}]({})", place(uri))),
        Part::Resource { uri, text: content } => {
            let place = place(uri);
            text.push_str(&format!(
                "\n<attachment source=\"{place}\">\n{content}\n</attachment>\n"
            ));
        }
    }
}

/// What stands for a picture or a recording where the model takes none.
pub fn omitted(what: &str, mime: &str) -> String {
    format!("[{what} omitted ({mime}): this model takes none]")
}

/// A `file://` link as the path that a tool can open, with its `%20` undone; any other as it is.
fn place(uri: &str) -> Cow<'_, str> {
    let Some(path) = uri.strip_prefix("file://") else { return uri.into() };
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|it| u8::from_str_radix(std::str::from_utf8(it).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = &tail[if code.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8(bytes).map_or(path.into(), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_file_is_a_path_that_a_tool_can_open() {
        let table = [
            ("file:///ws/my%20notes%C3%A9.md", "/ws/my notesé.md"),
            ("file:///ws/100%.md", "/ws/100%.md"),
            ("file:///ws/%ff", "/ws/%ff"),
            ("https://h/a%20b", "https://h/a%20b"),
        ];
        for (uri, path) in table {
            let part = Part::Link { name: "n".to_owned(), uri: uri.to_owned() };
            assert_eq!(UserMessage { parts: vec![part] }.render(), format!("[n]({path})"));
        }
    }
}
