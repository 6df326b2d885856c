//! The questions of the probe, which are short and expect short replies. [`ask`] sends one and observes how the
//! reply arrives.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::{Delta, DeltaBatch, LlmError, Model, Reply, ReplyCall, Request};
use turnwright_types::ids::CallId;
use turnwright_types::message::{
    AssistantMessage, Media, Message, PromptPart, ReasoningEffort, ToolCall, ToolMessage, ToolSpec,
    ToolSpecs, UserMessage,
};

/// The timeout for one reply.
const ASK_TIMEOUT: Duration = Duration::from_secs(60);
/// A model that writes more than this has ignored the request to be brief.
const MAX_TEXT_BYTES: usize = 1000;
/// The same limit for reasoning.
const MAX_THOUGHT_BYTES: usize = 16_000;
const SYSTEM_PROMPT: &str = "You are being tested by a program. Do exactly what you are asked, as \
                      briefly as you can.";
/// The only declared function.
pub(super) const TOOL_NAME: &str = "get_weather";
/// The result of the function.
const TOOL_RESULT: &str = "17 °C, light rain";
/// The part of the result that a model cannot guess.
pub(super) const EXPECTED_FACT: &str = "17";
/// An orange square of 64 × 64 pixels: some servers reject smaller images.
const TEST_IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAATElEQVR42u3PQQkAAAgEsItucy+Cb2GwAst\
                       OXouAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAwKX5gfFaZ4bdf\
                       wAAAABJRU5ErkJggg==";
pub(super) const EXPECTED_COLOUR: &str = "orange";

/// The point up to which a reply is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadUntil {
    /// Up to the first delta.
    FirstDelta,
    /// Up to the end.
    Complete,
}

/// A reply and how it arrived.
#[derive(Debug, Default)]
pub(super) struct ObservedReply {
    /// The time until the head of the response was received.
    pub(super) first_byte: Duration,
    /// The time until the first text or reasoning was received.
    pub(super) first_delta: Option<Duration>,
    /// The number of reads that brought deltas.
    pub(super) pieces: usize,
    /// The number of reads that brought arguments.
    pub(super) argument_pieces: usize,
    pub(super) text: String,
    pub(super) thought: String,
    /// The end of the reply; `None` if it was not read up to the end.
    pub(super) reply: Option<Reply>,
}

/// Sends the request and reads the reply as far as `until`, but not beyond `end`. Without a complete reply in time, the
/// model counts as silent.
pub(super) async fn ask(
    model: &dyn Model,
    request: &Request,
    until: ReadUntil,
    end: Instant,
) -> Result<ObservedReply, LlmError> {
    let started = Instant::now();
    let limit = ASK_TIMEOUT.min(end.saturating_duration_since(started));
    let reading = async {
        match read_reply(model, request, until).await {
            // The server asks for a retry without a delay.
            Err(error) if error.retry_after() == Some(Duration::ZERO) => {
                read_reply(model, request, until).await
            }
            outcome => outcome,
        }
    };
    timeout_at(started + limit, reading)
        .await
        .unwrap_or_else(|_| Err(LlmError::Silent { host: model.host(), limit }))
}

async fn read_reply(
    model: &dyn Model,
    request: &Request,
    until: ReadUntil,
) -> Result<ObservedReply, LlmError> {
    let started = Instant::now();
    let mut stream = model.open_stream(request).await?;
    let mut observed = ObservedReply { first_byte: started.elapsed(), ..ObservedReply::default() };
    let mut batch = DeltaBatch::default();
    loop {
        observed.reply = stream.next(&mut batch).await?;
        if !batch.deltas.is_empty() {
            observed.first_delta.get_or_insert(started.elapsed());
            observed.add(&mut batch);
        }
        let has_enough = match until {
            ReadUntil::FirstDelta => observed.pieces > 0,
            ReadUntil::Complete => {
                observed.text.len() > MAX_TEXT_BYTES || observed.thought.len() > MAX_THOUGHT_BYTES
            }
        };
        if has_enough || observed.reply.is_some() {
            return Ok(observed);
        }
    }
}

impl ObservedReply {
    /// Moves the deltas of one read into the reply.
    fn add(&mut self, batch: &mut DeltaBatch) {
        self.pieces += 1;
        let has_arguments =
            batch.deltas.iter().any(|delta| matches!(delta, Delta::CallArguments { .. }));
        self.argument_pieces += usize::from(has_arguments);
        for delta in batch.deltas.drain(..) {
            match delta {
                Delta::Text(text) => self.text.push_str(&text),
                Delta::Thought(text) => self.thought.push_str(&text),
                Delta::CallNamed { .. } | Delta::CallArguments { .. } => {}
            }
        }
    }
}

/// Asks for a reply of several words, which shows if the server streams.
pub(super) fn count_to_ten() -> Request {
    let text = "Count from 1 to 10, in one line, and say nothing else.";
    request(vec![PromptPart::Text(text.to_owned())])
}

pub(super) fn weather() -> Request {
    let text = "What is the weather in Paris? Call get_weather to find out.";
    Request { tools: tools(), ..request(vec![PromptPart::Text(text.to_owned())]) }
}

pub(super) fn two_cities() -> Request {
    let text = "What is the weather in Paris, and what is it in Oslo? Call get_weather for both \
                cities at once, with two calls in one answer.";
    Request { tools: tools(), ..request(vec![PromptPart::Text(text.to_owned())]) }
}

pub(super) fn picture() -> Request {
    let media = Media { mime: "image/png".to_owned(), data: TEST_IMAGE.to_owned() };
    let text = "What colour is this picture? Answer with one word.";
    request(vec![PromptPart::Text(text.to_owned()), PromptPart::Image(media)])
}

/// Continues the conversation with the reply and the results of its calls.
pub(super) fn with_results(mut request: Request, observed: &ObservedReply) -> Request {
    let Some(reply) = &observed.reply else { return request };
    let calls: Vec<_> = reply.calls.iter().map(tool_call).collect();
    let results: Vec<_> = calls.iter().map(tool_result).collect();
    request.messages.push(Arc::new(Message::Assistant(AssistantMessage {
        id: "msg-1".into(),
        text: observed.text.clone(),
        thought: observed.thought.clone(),
        calls,
        interrupted: false,
        provider_state: reply.provider_state.clone(),
    })));
    request.messages.extend(results);
    request
}

fn tool_call(call: &ReplyCall) -> ToolCall {
    let id = CallId::from(format!("call-{}", call.slot));
    let provider_id = match call.provider_id.as_str() {
        "" => id.as_str().to_owned(),
        given => given.to_owned(),
    };
    ToolCall {
        id,
        provider_id,
        name: call.name.clone(),
        arguments: call.arguments.clone(),
        extra: call.extra.clone(),
    }
}

fn tool_result(call: &ToolCall) -> Arc<Message> {
    Arc::new(Message::Tool(ToolMessage::new(call, TOOL_RESULT, true)))
}

fn request(parts: Vec<PromptPart>) -> Request {
    Request {
        system: SYSTEM_PROMPT.into(),
        messages: vec![Arc::new(Message::User(UserMessage::new(parts)))],
        tools: Arc::default(),
        effort: ReasoningEffort::Default,
        has_media: true,
    }
}

fn tools() -> ToolSpecs {
    Arc::new(vec![Arc::new(ToolSpec {
        name: TOOL_NAME.into(),
        description: "The weather in a city, now.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": { "city": { "type": "string", "description": "The city's name." } },
            "required": ["city"],
        }),
    })])
}
