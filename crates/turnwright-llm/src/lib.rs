//! Streaming clients for language models: a request is rendered and sent, the reply is streamed
//! back. The only part of turnwright that this crate knows is the conversation.
//!
//!   remote        a model at an endpoint, in either protocol
//!   chat          the chat completions protocol: requests, events, the assembler of a reply
//!   responses     the same for the Responses API
//!   exchange      what both protocols share to render a request and to read a reply
//!   reply         bytes → reply: reasoning in tags, leaked calls, repetition, limits, the reported cost
//!   http          the endpoint: bodies of requests, and the traffic, which others may observe or play
//!   errors        what servers report: bodies, kinds, refusals, how long to wait
//!   quirks        differences of servers and models: the table, and what refusals teach
//!   schema        schemas of tools in the subset that the strictest servers accept
//!   wire_names    names of tools and ids of calls as servers accept them
//!   model_list    the models of a server; `local_server` asks how one was started
//!   probe         finds out what a model can do
//!   offline       the model without a network
//!   internals     for benchmarks, fuzz targets and the corpus of recorded streams

mod chat;
mod errors;
mod exchange;
mod http;
#[doc(hidden)]
pub mod internals;
mod local_server;
mod model_list;
pub mod offline;
pub mod probe;
pub mod quirks;
mod remote;
mod reply;
mod responses;
mod schema;
mod wire_names;

pub use turnwright_http::sse;

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use quirks::QuirkPatch;

pub use turnwright_types::message::ReasoningEffort;
use turnwright_types::message::{Arguments, Media, Message, ProviderState, TokenUsage, ToolSpecs};

pub use errors::LlmError;
pub use errors::error_kind::ErrorKind;
pub use errors::retry_after::MAX_RETRY_WAIT;
pub use exchange::Protocol;
pub use http::Endpoint;
pub use http::traffic::{Exchange, ExchangeObserver, PlayedResponse, Traffic};
pub use model_list::{closest_names, known_context_window};
pub use quirks::learned_quirks::{ModelProfile, SaveProfile};
pub use remote::RemoteModel;
pub use reply::leaked_calls::looks_like_leaked_call;
pub use reply::text_pipeline::split_unopened_thought;
pub use turnwright_http::ConnectionFault;

/// The default for how long a model may stay silent.
pub const DEFAULT_SILENCE_LIMIT: Duration = Duration::from_secs(300);

/// The size of a context window in tokens that is assumed by default.
pub const DEFAULT_ASSUMED_WINDOW: u64 = 128_000;

/// A request to a model.
#[derive(Clone, Debug)]
pub struct Request {
    pub system: Arc<str>,
    /// The conversation. It must be valid: each call has its result.
    pub messages: Vec<Arc<Message>>,
    /// The functions that the model may call.
    pub tools: ToolSpecs,
    pub effort: ReasoningEffort,
    /// False if the conversation certainly contains no images or audio.
    pub has_media: bool,
}

impl Request {
    fn images(&self) -> impl Iterator<Item = &Media> {
        self.messages.iter().flat_map(|message| message.images())
    }

    /// The media that the conversation contains.
    pub fn media(&self) -> Modalities {
        let has_media = self.has_media;
        Modalities {
            images: has_media && self.images().any(|media| !media.is_pdf()),
            files: has_media && self.images().any(Media::is_pdf),
            audio: has_media && self.messages.iter().any(|message| message.has_audio()),
        }
    }
}

/// A model and what is known about it before the first request.
#[derive(Clone, Default)]
pub struct ModelSettings {
    /// The name shown to users.
    pub name: String,
    /// The name at the server.
    pub model: String,
    /// True if the user has named the protocol, so that only a refusal changes it.
    pub has_named_api: bool,
    /// The name of the provider, if several are configured.
    pub provider: Option<String>,
    /// The size of the context window in tokens, if the user has set it.
    pub window: Option<u64>,
    /// The size that models of this name usually have.
    pub usual_window: Option<u64>,
    /// The size to assume while it is not known; `None` for [`DEFAULT_ASSUMED_WINDOW`].
    pub assumed_window: Option<u64>,
    /// The limit of a reply in tokens.
    pub max_output: Option<u64>,
    pub price: Option<Price>,
    /// The facts that earlier processes have learned about the model.
    pub profile: ModelProfile,
    /// The user's quirks.
    pub overrides: QuirkPatch,
    /// The user's own request fields.
    pub extra_body: Map<String, Value>,
    /// Forbids listing the server's models.
    pub listing_disabled: bool,
    /// True if the server has listed this model lately, so the profile has the facts from the list.
    pub was_listed: bool,
    /// The longest silence of the model; `None` for [`DEFAULT_SILENCE_LIMIT`].
    pub silence_limit: Option<Duration>,
    /// Saves the profile when something is learned.
    pub save_profile: Option<SaveProfile>,
}

impl Debug for ModelSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ModelSettings").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The price of a million tokens, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    pub input: f64,
    /// Input tokens served from the provider's cache.
    pub cached: f64,
    pub output: f64,
}

impl Price {
    /// Anthropic, OpenAI and Alibaba charge a quarter more for what they store in the cache.
    #[expect(clippy::cast_precision_loss, reason = "no count of tokens needs 52 bits")]
    pub fn cost(&self, usage: &TokenUsage) -> f64 {
        let fresh = usage.input.saturating_sub(usage.cached);
        let parts = [
            (fresh as f64 + usage.written.min(fresh) as f64 / 4.0) * self.input,
            usage.cached.min(usage.input) as f64 * self.cached,
            usage.output as f64 * self.output,
        ];
        parts.iter().sum::<f64>() / 1e6
    }
}

/// The kinds of media that a model accepts, or that a request contains, besides text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modalities {
    pub images: bool,
    /// PDF files.
    pub files: bool,
    pub audio: bool,
}

/// A language model.
pub trait Model: Debug + Send + Sync + 'static {
    /// The name shown to users.
    fn name(&self) -> &str;

    /// The size of the context window in tokens.
    fn window(&self) -> Option<u64>;

    /// The size of the context window that the user has set or the server has reported, in tokens.
    fn told_window(&self) -> Option<u64> {
        self.window()
    }

    /// The size of the context window in tokens to assume while it is not known.
    fn assumed_window(&self) -> u64 {
        DEFAULT_ASSUMED_WINDOW
    }

    /// How many requests the server works on at the same time, if it says so.
    fn concurrent_requests(&self) -> Option<u32> {
        None
    }

    /// Asks a local server for the size of the window, which it may know only now that it has loaded the model. The
    /// server may also have been restarted with another size.
    fn refresh_window(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The limit of a reply in tokens, if one is set.
    fn max_output(&self) -> Option<u64> {
        None
    }

    /// Records the actual size of the context window in tokens.
    fn record_window(&self, _tokens: u64) {}

    /// The facts learned about the model.
    fn profile(&self) -> ModelProfile {
        ModelProfile::default()
    }

    /// Records quirks that were found out by a probe or an answer. Returns true if they apply now, and false if the
    /// user's settings override them.
    fn record_quirks(&self, _patch: QuirkPatch) -> bool {
        false
    }

    /// A copy of the model with other quirks, for trying them out. Whatever the copy learns is not
    /// saved. `None` if the model does not support this.
    fn with_trial_quirks(&self, _patch: QuirkPatch) -> Option<Box<dyn Model>> {
        None
    }

    /// The price, if it is configured or the server has listed it.
    fn price(&self) -> Option<Price> {
        None
    }

    /// The host and port of the server, for messages.
    fn host(&self) -> String {
        self.name().to_owned()
    }

    /// The base URL that works in place of the configured one, if that lacks its version.
    fn corrected_base_url(&self) -> Option<String> {
        None
    }

    /// The time for which the model may send nothing before its reply is given up. The caller enforces this.
    fn silence_limit(&self) -> Duration {
        DEFAULT_SILENCE_LIMIT
    }

    /// The media that the model accepts besides text, as far as is known.
    fn modalities(&self) -> Modalities {
        Modalities::default()
    }

    /// True if the model should be told when it writes a call into its text.
    fn nudges_leaked_calls(&self) -> bool {
        false
    }

    /// True if the model is trained to edit files with patches.
    fn prefers_apply_patch(&self) -> bool {
        false
    }

    /// This effort, or if the model has rejected it, the one to ask for in its place.
    fn accepted_effort(&self, wanted: ReasoningEffort) -> ReasoningEffort {
        wanted
    }

    /// True if the model's effort can be chosen.
    fn supports_effort(&self) -> bool {
        false
    }

    /// Identifies the server; the same for all models of a server.
    fn server_id(&self) -> String {
        self.name().to_owned()
    }

    /// The name shown to users of another model of the same server.
    fn qualified_name(&self, model: &str) -> String {
        model.to_owned()
    }

    /// Lists the models of the server by the server's names for them.
    fn list_models(&self) -> BoxFuture<'_, Result<Vec<String>, LlmError>> {
        Box::pin(std::future::ready(Ok(vec![self.name().to_owned()])))
    }

    /// Returns true if there is a server that may be asked for its models.
    fn has_model_list(&self) -> bool {
        false
    }

    /// Creates slow parts such as the TLS client ahead of time, and asks a local server how it was started.
    /// May be called repeatedly.
    fn warm_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Asks the server for the size of the window before the first request, if nobody knows it. The caller
    /// enforces a limit.
    fn find_window(&self) -> BoxFuture<'_, ()> {
        self.warm_up()
    }

    /// Sends the request and returns once the reply starts. Dropping the future or the stream
    /// aborts the request; neither ends by itself if the server is silent.
    fn open_stream<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Box<dyn ReplyStream>, LlmError>>;
}

/// A reply that is being received.
pub trait ReplyStream: Send {
    /// Waits for more of the reply and appends it to `batch`. Returns the reply's end once it has been
    /// received. Cancel safe: anything not returned comes with the next call.
    fn next<'a>(
        &'a mut self,
        batch: &'a mut DeltaBatch,
    ) -> BoxFuture<'a, Result<Option<Reply>, LlmError>>;
}

/// A piece of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    Text(String),
    /// Reasoning.
    Thought(String),
    /// A tool call has been named.
    CallNamed {
        /// The index of the call in the reply, from 0.
        slot: usize,
        name: String,
    },
    /// A piece of a call's arguments.
    CallArguments {
        /// The index of the call in the reply.
        slot: usize,
        /// The raw JSON text.
        text: String,
    },
}

/// The deltas of one read from the network. Adjacent deltas of the same kind are merged, so that a
/// burst costs one string instead of thousands.
#[derive(Debug, Default)]
pub struct DeltaBatch {
    pub deltas: Vec<Delta>,
    /// The server's latest counts. For a reply that fails, nothing else tells what it has cost.
    pub reported: ReportedUsage,
    /// True once content has arrived, even if it is held back and no delta shows it yet.
    has_content: bool,
}

/// The tokens of a request with its reply and their cost in US dollars, as far as the server reports them.
pub type ReportedUsage = (Option<TokenUsage>, Option<f64>);

impl DeltaBatch {
    /// Returns true if the model has sent anything since the last call: text, reasoning or a part of
    /// a call. Comments and empty deltas only show that the connection is alive.
    pub fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_content) || !self.deltas.is_empty()
    }

    pub fn push_text(&mut self, text: &str) {
        match self.deltas.last_mut() {
            _ if text.is_empty() => {}
            Some(Delta::Text(last)) => last.push_str(text),
            _ => self.deltas.push(Delta::Text(text.to_owned())),
        }
    }

    pub(crate) fn push_thought(&mut self, text: &str) {
        match self.deltas.last_mut() {
            _ if text.is_empty() => {}
            Some(Delta::Thought(last)) => last.push_str(text),
            _ => self.deltas.push(Delta::Thought(text.to_owned())),
        }
    }

    pub(crate) fn push_arguments(&mut self, slot: usize, text: &str) {
        match self.deltas.last_mut() {
            _ if text.is_empty() => {}
            Some(Delta::CallArguments { slot: last, text: all }) if *last == slot => {
                all.push_str(text);
            }
            _ => self.deltas.push(Delta::CallArguments { slot, text: text.to_owned() }),
        }
    }
}

/// The end of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub end: EndReason,
    /// The complete tool calls, in the order of their slots.
    pub calls: Vec<ReplyCall>,
    /// True if the server has announced calls, or the model has only commented on one, and none came.
    pub has_lost_calls: bool,
    /// The token counts reported by the server.
    pub usage: Option<TokenUsage>,
    /// The cost reported by the server, in US dollars.
    pub cost: Option<f64>,
    /// The model as the server names it; empty if it does not.
    pub served: String,
    /// Data that the provider requires back with the next request.
    pub provider_state: ProviderState,
}

/// Why a reply ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The reply is complete. Whether tools run depends on the calls alone, never on this.
    Complete,
    /// The reply hit the output limit: the last call may be truncated.
    Length,
    /// The model or its provider refused. Holds the provider's explanation, possibly empty.
    Refused(String),
}

/// A tool call of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyCall {
    /// The index among the calls, as in [`Delta::CallNamed`].
    pub slot: usize,
    /// The model's identifier for the call, possibly empty.
    pub provider_id: String,
    /// The function's name, possibly empty.
    pub name: String,
    pub arguments: Arguments,
    /// Data that the provider requires back with the call.
    pub extra: Option<Value>,
}
