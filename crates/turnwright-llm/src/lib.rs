//! Language models: one request goes out, an answer streams back. Knows the conversation and
//! nothing else of ours.

mod bulk;
pub mod chat;
mod error;
mod failure;
mod http;
mod ids;
#[doc(hidden)]
pub mod inside;
mod kind;
mod leaked;
mod lessons;
mod list;
mod manner;
mod names;
pub mod offline;
mod overflow;
mod pictures;
mod prefix;
pub mod probe;
pub mod quirks;
mod reader;
mod remote;
mod repetition;
pub mod responses;
mod schema;
pub mod sse;
mod stream;
mod think;
mod transcript;
mod wait;
mod window;

#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use lessons::Lessons;
use quirks::{Patch, Quirks};

pub use turnwright_types::message::Effort;
use turnwright_types::message::{Arguments, Echo, Message, Specs, Usage};

pub use error::LlmError;
pub use http::Endpoint;
pub use kind::Kind;
pub use leaked::looks_leaked;
pub use lessons::{Learned, Notebook};
pub use list::near;
pub use remote::{Protocol, Remote};
pub use wait::LONGEST_WAIT;
pub use window::context_window;

/// What the model is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The system prompt.
    pub system: Arc<str>,
    /// The conversation, valid as it stands: each call has its result.
    pub messages: Vec<Arc<Message>>,
    /// The functions it may call.
    pub tools: Specs,
    /// How long it should think.
    pub effort: Effort,
    /// Whether there may be pictures or recordings in the conversation.
    pub has_media: bool,
}

impl Request {
    /// What it holds besides text.
    pub fn media(&self) -> Senses {
        let any =
            |has: fn(&Message) -> bool| self.has_media && self.messages.iter().any(|it| has(it));
        Senses { images: any(Message::has_images), audio: any(Message::has_audio) }
    }
}

/// Who a model is and what is known about it before it has been asked.
#[derive(Clone, Default)]
pub struct Settings {
    /// What people call it.
    pub name: String,
    /// What its server calls it.
    pub model: String,
    /// What its provider is called among several, if it has a name.
    pub provider: Option<String>,
    /// How many tokens its window holds, if known.
    pub window: Option<u64>,
    /// The longest answer in tokens, if that is to be limited.
    pub max_output: Option<u64>,
    /// What it costs.
    pub price: Option<Price>,
    /// What its server has taught us in earlier days.
    pub learned: Learned,
    /// What the user wants done differently.
    pub wishes: Patch,
    /// Fields that the user wants in each request.
    pub body: Map<String, Value>,
    /// Whether its server must not be asked what it has not been asked for.
    pub asks_nothing: bool,
    /// Where new lessons are noted.
    pub notebook: Option<Arc<dyn Notebook>>,
}

impl Debug for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Settings").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Settings {
    /// A model of which nothing is known but its name.
    pub fn named(model: impl Into<String>) -> Settings {
        let model = model.into();
        Settings { name: model.clone(), model, ..Settings::default() }
    }

    fn lessons(&self, host: &str) -> Lessons {
        let table = Quirks::of(host, &self.model);
        Lessons::new(table, self.learned.clone(), self.wishes, self.notebook.clone())
    }
}

/// What a million tokens cost, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// Those of a request.
    pub input: f64,
    /// Those of a request that the provider had in its cache.
    pub cached: f64,
    /// Those of an answer.
    pub output: f64,
}

impl Price {
    /// The cost of one request.
    #[expect(clippy::cast_precision_loss, reason = "no count of tokens needs 52 bits")]
    pub fn of(&self, usage: &Usage) -> f64 {
        let fresh = usage.input.saturating_sub(usage.cached) as f64;
        let parts = [
            fresh * self.input,
            usage.cached.min(usage.input) as f64 * self.cached,
            usage.output as f64 * self.output,
        ];
        parts.iter().sum::<f64>() / 1e6
    }
}

/// What a model takes, or a request holds, besides text.
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

    /// Hears how many tokens the window really holds.
    fn learned_window(&self, _tokens: u64) {}

    /// What is known about it by experience.
    fn learned(&self) -> Learned {
        Learned::default()
    }

    /// Hears what was found out about it.
    fn teach(&self, _patch: Patch) {}

    /// The same model, as if it had these quirks, to try something out; what that one learns it
    /// keeps to itself. `None` if nothing can be tried out.
    fn trial(&self, _patch: Patch) -> Option<Box<dyn Model>> {
        None
    }

    /// What it costs, if that is configured.
    fn price(&self) -> Option<Price> {
        None
    }

    /// What it takes besides text, as far as is known now.
    fn senses(&self) -> Senses {
        Senses::default()
    }

    /// Whether it is to be told when a call has leaked into its words.
    fn is_nudged(&self) -> bool {
        false
    }

    /// Whether it is used to changing files by patches.
    fn takes_patches(&self) -> bool {
        false
    }

    /// Whether it is known to go round in circles.
    fn is_watched(&self) -> bool {
        false
    }

    /// Whether it has turned out not to have that effort.
    fn lacks(&self, _effort: Effort) -> bool {
        false
    }

    /// Whether an effort can be chosen.
    fn has_effort(&self) -> bool {
        false
    }

    /// A word for its server, the same for all models there.
    fn provider(&self) -> String {
        self.name().to_owned()
    }

    /// What people call another model of its server, by the server's name for it.
    fn full_name(&self, model: &str) -> String {
        model.to_owned()
    }

    /// The names of all models that its server serves, as the server has them.
    fn list(&self) -> BoxFuture<'_, Result<Vec<String>, LlmError>> {
        Box::pin(std::future::ready(Ok(vec![self.name().to_owned()])))
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
