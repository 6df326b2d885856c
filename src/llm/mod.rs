//! Language models: one request goes out, an answer streams back. Knows the conversation and
//! nothing else of ours.

pub mod chat;
mod error;
mod http;
pub mod offline;
pub mod quirks;
mod reader;
mod stream;
mod window;

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::message::{Arguments, Echo, Message, ToolSpec, Usage};

pub use error::LlmError;
pub use http::Endpoint;
pub use window::context_window;

/// What the model is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The system prompt.
    pub system: Arc<str>,
    /// The conversation, valid as it stands: each call has its result.
    pub messages: Vec<Arc<Message>>,
    /// The functions it may call.
    pub tools: Arc<Vec<ToolSpec>>,
    /// How long it should think.
    pub effort: Effort,
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

/// What a model takes besides text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Senses {
    /// Pictures.
    pub images: bool,
    /// Recordings.
    pub audio: bool,
}

/// A language model.
pub trait Model: Debug + Send + Sync + 'static {
    /// What people call it.
    fn name(&self) -> &str;

    /// How many tokens its window holds, if known.
    fn window(&self) -> Option<u64>;

    /// What it takes besides text, as far as is known now.
    fn senses(&self) -> Senses {
        Senses::default()
    }

    /// Whether an effort can be chosen.
    fn has_effort(&self) -> bool {
        false
    }

    /// Gets ready what is slow to make, such as a TLS client. May be called any number of times.
    fn warm_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Sends the request and returns when the answer begins. Dropping the future or the stream
    /// aborts the request at the server.
    fn open<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>>;
}

/// An answer on its way.
pub trait ReplyStream: Send {
    /// Waits for more and puts it into `batch`; returns the end of the answer when it has come.
    /// Safe to cancel: what has not been returned comes with the next call.
    fn next<'a>(
        &'a mut self,
        batch: &'a mut Batch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>>;
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// Words.
    Text(String),
    /// Reasoning.
    Thought(String),
    /// A tool call has a name now.
    CallNamed {
        /// Which call of this answer, counted from 0.
        slot: usize,
        /// The function's name.
        name: String,
    },
    /// More of a call's arguments.
    CallArguments {
        /// Which call of this answer.
        slot: usize,
        /// The raw text.
        text: String,
    },
}

/// The pieces that one read from the network has brought. Neighbours of the same sort are
/// merged as they come in, so that a burst costs one string and not thousands.
#[derive(Debug, Default)]
pub struct Batch {
    /// In order.
    pub deltas: Vec<Delta>,
}

impl Batch {
    /// Adds words.
    pub fn text(&mut self, text: &str) {
        match self.deltas.last_mut() {
            _ if text.is_empty() => {}
            Some(Delta::Text(last)) => last.push_str(text),
            _ => self.deltas.push(Delta::Text(text.to_owned())),
        }
    }

    /// Adds reasoning.
    pub fn thought(&mut self, text: &str) {
        match self.deltas.last_mut() {
            _ if text.is_empty() => {}
            Some(Delta::Thought(last)) => last.push_str(text),
            _ => self.deltas.push(Delta::Thought(text.to_owned())),
        }
    }

    /// Adds arguments.
    pub fn arguments(&mut self, slot: usize, text: &str) {
        match self.deltas.last_mut() {
            _ if text.is_empty() => {}
            Some(Delta::CallArguments { slot: last, text: all }) if *last == slot => {
                all.push_str(text);
            }
            _ => self.deltas.push(Delta::CallArguments { slot, text: text.to_owned() }),
        }
    }
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Why.
    pub end: End,
    /// The complete tool calls, in the order of their slots.
    pub calls: Vec<ReplyCall>,
    /// What the server has counted.
    pub usage: Option<Usage>,
    /// What it wants to have back.
    pub echo: Echo,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It is complete. Whether tools are to run is decided by the calls, never by this.
    Complete,
    /// It was cut off by the output limit: the last call may be half a call.
    Length,
    /// The model or its provider refused; the text is the provider's, possibly empty.
    Refused(String),
}

/// A tool call of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyCall {
    /// Where it stands among the calls, as in [`Delta::CallNamed`].
    pub slot: usize,
    /// The model's identifier, possibly empty.
    pub provider_id: String,
    /// The function's name, possibly empty.
    pub name: String,
    /// The arguments.
    pub arguments: Arguments,
    /// What the provider wants to have back with it.
    pub extra: Option<Value>,
}
