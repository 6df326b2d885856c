//! One tool call in flight: its timeouts, its progress, the server's input requests, and its
//! cancellation.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ElicitResult, ElicitationAction,
    ErrorData, InputRequest, InputRequiredResult, InputResponses, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::elicitation::{self, WaitingCall};
use super::handler;
use super::model_schema::bounded_text;
use super::progress::{CallProgress, ProgressRouter};
use super::spec::ServerTimeouts;
use super::tool_result::ToolResult;
use turnwright_types::client::Client;
use turnwright_types::effect::{CallContent, escape_hidden};
use turnwright_types::ids::CallId;
use turnwright_types::update::{CallUpdate, ToolCallStatus, Update};

/// How long it may take to tell a server that a call is cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(500);
/// The delay between two progress updates: at first, later, and the number of updates until then.
const PROGRESS_INTERVAL: (Duration, Duration, u32) =
    (Duration::from_millis(500), Duration::from_secs(2), 20);
/// How often a server may ask for more input before it answers.
const MAX_ROUNDS: usize = 10;
/// The delay before the next round if the server has not requested any input.
const ROUND_DELAY: Duration = Duration::from_millis(250);
const MAX_ERROR_CHARS: usize = 2_000;

/// Why a call has no result.
#[derive(Debug)]
pub enum CallError {
    /// The connection has ended.
    ConnectionLost,
    /// With the explanation for the model.
    Failed(String),
}

impl From<String> for CallError {
    fn from(message: String) -> CallError {
        CallError::Failed(message)
    }
}

/// The tool call of a turn that waits for the server's answer.
#[derive(Clone, Copy)]
pub struct CallContext<'a> {
    /// The user's editor, which is shown the progress.
    pub client: &'a dyn Client,
    /// The call whose card shows the progress.
    pub call: &'a CallId,
    /// Cancelled with the turn.
    pub cancel: &'a CancellationToken,
}

/// What is needed to answer a server's input requests during a call.
#[derive(Clone, Copy, Default)]
pub struct InputRequestContext<'a> {
    /// The server's name.
    pub server: &'a str,
    /// The roots that the server is told.
    pub roots: &'a [PathBuf],
    /// The call, whose user can be asked.
    pub caller: Option<&'a WaitingCall>,
}

/// Calls a tool and waits for its result.
pub async fn call(
    peer: &Peer<RoleClient>,
    progress: &ProgressRouter,
    mut params: CallToolRequestParams,
    timeouts: ServerTimeouts,
    input_context: InputRequestContext<'_>,
    ctx: &CallContext<'_>,
) -> Result<ToolResult, CallError> {
    let deadline = Instant::now() + timeouts.call_total;
    for _ in 0..MAX_ROUNDS {
        let result = send_once(peer, progress, params.clone(), (timeouts, deadline), ctx).await?;
        match result {
            ServerResult::CallToolResult(result) => return Ok(result.into()),
            ServerResult::CustomResult(result) => {
                return ToolResult::parse_lenient(result.0)
                    .ok_or_else(|| unusable("it is not a tool result").into());
            }
            ServerResult::EmptyResult(_) => return Ok(ToolResult::default()),
            ServerResult::InputRequiredResult(required) => {
                (params.input_responses, params.request_state) =
                    answer_input_requests(required, input_context, ctx).await?;
            }
            ServerResult::CreateTaskResult(_) => {
                return Err(
                    unusable("it made a task of the call, and tasks are not supported").into()
                );
            }
            _ => return Err(unusable("it is the result of another method").into()),
        }
    }
    Err(unusable("it kept asking for more input").into())
}

fn unusable(why: &str) -> String {
    format!("The server has answered, but {why}. What it has done is not known.")
}

/// Answers the server's input requests. Returns the answers and the server's own state.
async fn answer_input_requests(
    required: InputRequiredResult,
    input_context: InputRequestContext<'_>,
    ctx: &CallContext<'_>,
) -> Result<(Option<InputResponses>, Option<String>), String> {
    let requests = required.input_requests.unwrap_or_default();
    if requests.is_empty() && required.request_state.is_none() {
        return Err(unusable("it wants more input and does not say what"));
    }
    if requests.is_empty() {
        let pause = tokio::time::sleep(ROUND_DELAY);
        ctx.cancel.run_until_cancelled(pause).await.ok_or_else(cancelled)?;
        return Ok((None, required.request_state));
    }
    let mut responses = InputResponses::new();
    for (key, request) in requests {
        let response = match request {
            InputRequest::Elicitation(request) => {
                let answer = match input_context.caller {
                    Some(caller) => {
                        elicitation::ask_user_of(input_context.server, caller, request.params).await
                    }
                    None => ElicitResult::new(ElicitationAction::Decline),
                };
                serde_json::to_value(answer)
            }
            InputRequest::ListRoots(_) => {
                serde_json::to_value(handler::list_roots_result(input_context.roots))
            }
            _ => return Err(unusable("it asks for something that is not supported")),
        };
        responses.insert(key, response.map_err(|error| unusable(&error.to_string()))?);
    }
    Ok((Some(responses), required.request_state))
}

/// Sends the call once and waits for the response.
async fn send_once(
    peer: &Peer<RoleClient>,
    progress: &ProgressRouter,
    params: CallToolRequestParams,
    (timeouts, deadline): (ServerTimeouts, Instant),
    ctx: &CallContext<'_>,
) -> Result<ServerResult, CallError> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let sending = peer.send_request_with_option(request, PeerRequestOptions::no_options());
    let sending = timeout(timeouts.call, sending);
    let mut handle = match ctx.cancel.run_until_cancelled(sending).await {
        Some(Ok(Ok(handle))) => handle,
        Some(Ok(Err(error))) => return Err(call_error(&error)),
        Some(Err(_)) => {
            return Err("The server does not read calls. Nothing was done.".to_owned().into());
        }
        None => return Err(cancelled().into()),
    };
    let mut progress = progress.subscribe(handle.progress_token.clone());
    let mut idle_deadline = Instant::now() + timeouts.call;
    let mut card = ProgressCard::new(ctx);
    let why = loop {
        tokio::select! {
            biased;
            answer = &mut handle.rx => return match answer {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(error)) => Err(call_error(&error)),
                Err(_) => Err(CallError::ConnectionLost),
            },
            () = ctx.cancel.cancelled() => break cancelled(),
            () = sleep_until(deadline) => break timed_out(timeouts.call_total, "it ran for"),
            () = sleep_until(idle_deadline) => {
                break timed_out(timeouts.call, "there was no progress for");
            }
            update = progress.changed() => {
                idle_deadline = Instant::now() + timeouts.call;
                card.set(update);
            }
            () = card.show() => {}
        }
    };
    cancel_call(handle, &why).await;
    Err(why.into())
}

async fn cancel_call(handle: RequestHandle<RoleClient>, why: &str) {
    let sent = timeout(CANCEL_TIMEOUT, handle.cancel(Some(why.to_owned()))).await;
    if !matches!(sent, Ok(Ok(()))) {
        tracing::debug!("could not tell a server that a call is cancelled");
    }
}

pub(crate) fn cancelled() -> String {
    "Cancelled by the user. The server was told; the call may have been partly executed.".to_owned()
}

fn timed_out(limit: Duration, what: &str) -> String {
    let limit = match limit.as_secs() {
        0 => format!("{} ms", limit.as_millis()),
        seconds => format!("{seconds} s"),
    };
    format!(
        "The call timed out: {what} {limit}. The server was told; the call may have been partly \
         executed."
    )
}

/// Converts a protocol error, which is not the same as the failure of a tool.
pub(crate) fn call_error(error: &ServiceError) -> CallError {
    let message = match error {
        ServiceError::McpError(ErrorData { code, message, data, .. }) => {
            let data = data.as_ref().map(|it| match it.as_str() {
                Some(text) => format!(" {text}"),
                None => format!(" {it}"),
            });
            let text = bounded_text(
                &escape_hidden(&format!("{message}{}", data.unwrap_or_default())),
                MAX_ERROR_CHARS,
            );
            format!("The server refused the call (error {}): {text}", code.0)
        }
        ServiceError::TransportClosed | ServiceError::Cancelled { .. } => {
            return CallError::ConnectionLost;
        }
        ServiceError::TransportSend(error) => {
            // The text before it names types of the client library.
            let why = error.to_string();
            let why = why.split_once(" error: ").map_or(why.as_str(), |it| it.1);
            let why = bounded_text(&escape_hidden(why), MAX_ERROR_CHARS);
            format!("The call failed in transport: {why}\nIt may have been partly executed.")
        }
        error => format!("The call failed: {}", bounded_text(&error.to_string(), MAX_ERROR_CHARS)),
    };
    CallError::Failed(message)
}

/// Shows the progress of a call on its card, at a readable rate.
struct ProgressCard<'a> {
    ctx: &'a CallContext<'a>,
    next_update: Instant,
    update_count: u32,
    progress: Option<CallProgress>,
}

impl<'a> ProgressCard<'a> {
    fn new(ctx: &'a CallContext<'a>) -> ProgressCard<'a> {
        ProgressCard { ctx, next_update: Instant::now(), update_count: 0, progress: None }
    }

    /// Sets the progress to show next. Only the latest is shown.
    fn set(&mut self, progress: CallProgress) {
        self.progress = Some(progress);
    }

    /// Shows new progress as soon as the rate allows it.
    async fn show(&mut self) {
        if self.progress.is_none() {
            return std::future::pending().await;
        }
        sleep_until(self.next_update).await;
        let Some(progress) = self.progress.take() else { return };
        let (first, later, count) = PROGRESS_INTERVAL;
        self.update_count += 1;
        self.next_update = Instant::now() + if self.update_count < count { first } else { later };
        // A client that does not read misses progress, but not the result.
        if self.ctx.client.wait_for_capacity().now_or_never().is_some() {
            let mut update = CallUpdate::new(self.ctx.call.clone(), ToolCallStatus::InProgress);
            update.content = Some(vec![CallContent::Text(progress.display_text())]);
            self.ctx.client.update(Update::CallUpdate(Box::new(update)));
        }
    }
}
