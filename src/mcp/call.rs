//! One call on its way: how long it may take, what is told of it meanwhile, and how it is called
//! off. What comes after that nobody hears.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ElicitResult, ElicitationAction,
    ErrorData, InputRequest, InputRequiredResult, InputResponses, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use tokio::time::{Instant, sleep_until, timeout};

use super::content::Answer;
use super::elicit::{self, Caller};
use super::handler;
use super::progress::{Progress, Step};
use super::schema::words;
use super::spec::Limits;
use turnwright_types::effect::{Content, visible};
use crate::tools::ToolCtx;
use turnwright_types::update::{CallUpdate, Status, Update};

/// How long a server may take to be told that a call is off.
const FAREWELL: Duration = Duration::from_millis(500);
/// How often progress is shown, at first and after so many times.
const NEWS: (Duration, Duration, u32) = (Duration::from_millis(500), Duration::from_secs(2), 20);
/// Times that a server may ask for more before it answers.
const MOST_ROUNDS: usize = 10;
/// How long to wait before a server is asked again that has asked for nothing.
const ROUND: Duration = Duration::from_millis(250);
/// Characters of an error.
const LONGEST_ERROR: usize = 2_000;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The connection has ended.
    Lost,
    /// For the model.
    Told(String),
}

impl From<String> for Trouble {
    fn from(words: String) -> Trouble {
        Trouble::Told(words)
    }
}

/// The server, as far as it may ask for something in the middle of a call.
#[derive(Clone, Copy, Default)]
pub(super) struct Asker<'a> {
    /// Its name.
    pub(super) server: &'a str,
    /// The folders of the session.
    pub(super) roots: &'a [PathBuf],
    /// Who waits for the call.
    pub(super) caller: Option<&'a Caller>,
}

/// Calls, and has the answer or what to tell the model instead.
pub(super) async fn call(
    peer: &Peer<RoleClient>,
    progress: &Progress,
    mut params: CallToolRequestParams,
    limits: Limits,
    asker: Asker<'_>,
    ctx: &ToolCtx,
) -> Result<Answer, Trouble> {
    let end = Instant::now() + limits.most;
    for _ in 0..MOST_ROUNDS {
        let result = once(peer, progress, params.clone(), (limits, end), ctx).await?;
        match result {
            ServerResult::CallToolResult(result) => return Ok(result.into()),
            ServerResult::CustomResult(result) => {
                return Answer::read(result.0)
                    .ok_or_else(|| odd("it is no result of a tool").into());
            }
            ServerResult::EmptyResult(_) => return Ok(Answer::default()),
            ServerResult::InputRequiredResult(more) => {
                (params.input_responses, params.request_state) = given(more, asker, ctx).await?;
            }
            ServerResult::CreateTaskResult(_) => {
                return Err(
                    odd("it made a task of the call, and tasks are not followed here").into()
                );
            }
            _ => return Err(odd("it is the result of something else").into()),
        }
    }
    Err(odd("it asked for more again and again").into())
}

fn odd(why: &str) -> String {
    format!("The server has answered, but {why}. What it has done is not known.")
}

/// What the server needs to go on: the answers to its questions, and its own state.
async fn given(
    more: InputRequiredResult,
    asker: Asker<'_>,
    ctx: &ToolCtx,
) -> Result<(Option<InputResponses>, Option<String>), String> {
    let requests = more.input_requests.unwrap_or_default();
    if requests.is_empty() && more.request_state.is_none() {
        return Err(odd("it wants more and does not say what"));
    }
    if requests.is_empty() {
        let pause = tokio::time::sleep(ROUND);
        ctx.cancel.run_until_cancelled(pause).await.ok_or_else(cancelled)?;
        return Ok((None, more.request_state));
    }
    let mut responses = InputResponses::new();
    for (key, request) in requests {
        let response = match request {
            InputRequest::Elicitation(request) => {
                let filled = match asker.caller {
                    Some(caller) => elicit::ask_caller(asker.server, caller, request.params).await,
                    None => ElicitResult::new(ElicitationAction::Decline),
                };
                serde_json::to_value(filled)
            }
            InputRequest::ListRoots(_) => serde_json::to_value(handler::roots(asker.roots)),
            _ => return Err(odd("it asks for something that it cannot be given here")),
        };
        responses.insert(key, response.map_err(|error| odd(&error.to_string()))?);
    }
    Ok((Some(responses), more.request_state))
}

/// One request and its response.
async fn once(
    peer: &Peer<RoleClient>,
    progress: &Progress,
    params: CallToolRequestParams,
    (limits, end): (Limits, Instant),
    ctx: &ToolCtx,
) -> Result<ServerResult, Trouble> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let sending = peer.send_request_with_option(request, PeerRequestOptions::no_options());
    let sending = timeout(limits.call, sending);
    let mut handle = match ctx.cancel.run_until_cancelled(sending).await {
        Some(Ok(Ok(handle))) => handle,
        Some(Ok(Err(error))) => return Err(refused(&error)),
        Some(Err(_)) => {
            return Err("The server takes no calls. Nothing was done.".to_owned().into());
        }
        None => return Err(cancelled().into()),
    };
    let mut ear = progress.listen(handle.progress_token.clone());
    let mut idle = Instant::now() + limits.call;
    let mut card = Card::new(ctx);
    let why = loop {
        tokio::select! {
            biased;
            answer = &mut handle.rx => return match answer {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(error)) => Err(refused(&error)),
                Err(_) => Err(Trouble::Lost),
            },
            () = ctx.cancel.cancelled() => break cancelled(),
            () = sleep_until(end) => break late(limits.most, "it went on for"),
            () = sleep_until(idle) => break late(limits.call, "nothing was heard of it for"),
            step = ear.news() => {
                idle = Instant::now() + limits.call;
                card.take(step);
            }
            () = card.show() => {}
        }
    };
    call_off(handle, &why).await;
    Err(why.into())
}

async fn call_off(handle: RequestHandle<RoleClient>, why: &str) {
    let told = timeout(FAREWELL, handle.cancel(Some(why.to_owned()))).await;
    if !matches!(told, Ok(Ok(()))) {
        tracing::debug!("a server could not be told that a call is off");
    }
}

pub(super) fn cancelled() -> String {
    "Cancelled by the user. The server was told; it may have done a part of it.".to_owned()
}

fn late(limit: Duration, what: &str) -> String {
    let limit = match limit.as_secs() {
        0 => format!("{} ms", limit.as_millis()),
        seconds => format!("{seconds} s"),
    };
    format!(
        "The call was given up: {what} {limit}. The server was told; it may have done a part of it."
    )
}

/// An error of the protocol, which is not the same as a tool that has failed.
pub(super) fn refused(error: &ServiceError) -> Trouble {
    let words = match error {
        ServiceError::McpError(ErrorData { code, message, data, .. }) => {
            let data = data.as_ref().map(|it| match it.as_str() {
                Some(text) => format!(" {text}"),
                None => format!(" {it}"),
            });
            let words =
                words(&visible(&format!("{message}{}", data.unwrap_or_default())), LONGEST_ERROR);
            format!("The server refused the call (error {}): {words}", code.0)
        }
        ServiceError::TransportClosed | ServiceError::Cancelled { .. } => return Trouble::Lost,
        ServiceError::TransportSend(error) => {
            // Before it stands which of our types have met with it.
            let why = error.to_string();
            let why = why.split_once(" error: ").map_or(why.as_str(), |it| it.1);
            let why = words(&visible(why), LONGEST_ERROR);
            format!(
                "The call has failed on the way there or back: {why}\nA part of it may be done."
            )
        }
        error => format!("The call failed: {}", words(&error.to_string(), LONGEST_ERROR)),
    };
    Trouble::Told(words)
}

/// The card of a call that runs. It is not painted more often than one can read.
struct Card<'a> {
    ctx: &'a ToolCtx,
    next: Instant,
    count: u32,
    step: Option<Step>,
}

impl<'a> Card<'a> {
    fn new(ctx: &'a ToolCtx) -> Card<'a> {
        Card { ctx, next: Instant::now(), count: 0, step: None }
    }

    /// Of what comes faster than it is shown the last counts.
    fn take(&mut self, step: Step) {
        self.step = Some(step);
    }

    /// Shows what is new, when it is time.
    async fn show(&mut self) {
        if self.step.is_none() {
            return std::future::pending().await;
        }
        sleep_until(self.next).await;
        let Some(step) = self.step.take() else { return };
        let (often, seldom, many) = NEWS;
        self.count += 1;
        self.next = Instant::now() + if self.count < many { often } else { seldom };
        // A client that does not read misses news of what is going on, not the result.
        if self.ctx.bench.client.room().now_or_never().is_some() {
            let mut update = CallUpdate::new(self.ctx.call.clone(), Status::InProgress);
            update.content = Some(vec![Content::Text(step.shown())]);
            self.ctx.bench.client.update(Update::CallUpdate(Box::new(update)));
        }
    }
}
