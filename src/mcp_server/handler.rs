//! Runs the calls of the client, and limits how many it may make per second and at the same time. A malformed call is
//! a protocol error; a failed one is a result, because a model reads it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::McpServerOptions;
use super::client_calls::{
    AskMethod, ClientCall, ClientCalls, ELICITATION, QuestionRound, call_result, elicitation,
    parse_answer,
};
use super::offered_tools::OfferedTools;
use super::requests::{Answer, ClientRequest};
use crate::session::SessionHost;
use crate::tools::{ToolOutcome, patch_call};
use crate::turn::CallRunner;
use turnwright_rpc::{Outbox, Peer, RpcError};
use turnwright_types::client::PermissionRequest;
use turnwright_types::ids::SessionId;
use turnwright_workspace::files::Roots;

/// The error code of a call that may be made again later.
const BUSY: i32 = -32_000;
/// How long a client may take to list its roots.
const ROOTS_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of roots of a client; further ones are ignored.
const MAX_ROOTS: usize = 64;
/// Maximum number of questions that wait for the next round of their call. The oldest is dropped.
const MAX_PENDING_QUESTIONS: usize = 16;
/// The key of our question among the input requests of a result.
const PERMISSION_KEY: &str = "permission";
/// The sustained rate of calls.
const CALLS_PER_SECOND: f64 = 20.0;
/// Maximum number of calls that may arrive at once after a pause.
const MAX_BURST: f64 = 40.0;
/// Maximum number of calls that wait or run at the same time.
const MAX_CONCURRENT_CALLS: usize = 16;
/// The delay to suggest to a client while too many calls run.
const BUSY_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The MCP server.
pub(super) struct McpHandler {
    host: Arc<SessionHost>,
    options: McpServerOptions,
    pub(super) tools: OfferedTools,
    calls: Arc<ClientCalls>,
    // Held only to look at one field.
    state: Mutex<HandlerState>,
    /// One permit: only one call at a time creates the runner.
    creating_runner: Semaphore,
    /// True if the client has said in its handshake that it has roots.
    has_roots: AtomicBool,
}

#[derive(Default)]
struct HandlerState {
    limits: CallLimits,
    /// Runs the calls. Created for the first call, when the client can list its roots.
    runner: Option<CallRunner>,
    /// Calls whose questions wait for the next round, by `requestState`.
    pending_questions: Vec<(String, ToolCall, PermissionRequest)>,
}

/// The parameters of a call.
struct ToolCall {
    name: String,
    arguments: Map<String, Value>,
    /// The answers to our questions, and our state that came with them.
    responses: Value,
    state: Option<String>,
}

impl ToolCall {
    fn read(params: &mut Value) -> Result<ToolCall, RpcError> {
        let Value::String(name) = params["name"].take() else {
            return Err(RpcError::invalid_params("`name` must be a string"));
        };
        let arguments = match params["arguments"].take() {
            Value::Object(arguments) => arguments,
            Value::Null => Map::new(),
            _ => return Err(RpcError::invalid_params("`arguments` must be an object")),
        };
        let state = params["requestState"].as_str().map(str::to_owned);
        Ok(ToolCall { name, arguments, responses: params["inputResponses"].take(), state })
    }
}

impl McpHandler {
    pub(super) fn new(
        host: Arc<SessionHost>,
        options: McpServerOptions,
        outbox: Outbox,
    ) -> McpHandler {
        McpHandler {
            host,
            options,
            tools: OfferedTools::new(),
            calls: Arc::new(ClientCalls::new(outbox)),
            state: Mutex::default(),
            creating_runner: Semaphore::new(1),
            has_roots: AtomicBool::new(false),
        }
    }

    /// Stores the capabilities from the client's handshake.
    pub(super) fn set_client_capabilities(&self, capabilities: &Value) {
        self.has_roots.store(capabilities["roots"].is_object(), Ordering::Relaxed);
    }

    /// Ends all running commands and waits for their end.
    pub(super) async fn close(&self) {
        let runner = self.state.lock().runner.take();
        if let Some(runner) = runner {
            runner.env.end_hooks().await;
            runner.env.jobs.close().await;
            runner.env.shared.guard.close().await;
        }
    }

    /// Returns the runner of calls, and creates it if there is none.
    async fn runner(self: &Arc<Self>, peer: &Peer) -> Result<CallRunner, String> {
        let _permit = self.creating_runner.acquire().await;
        if let Some(runner) = &self.state.lock().runner {
            return Ok(runner.clone());
        }
        let folders = match self.options.roots.as_slice() {
            [] if self.has_roots.load(Ordering::Relaxed) => client_roots(peer).await,
            roots => roots.to_vec(),
        };
        let own = Arc::clone(self);
        // Creating the runner reads rule files.
        let created = spawn_blocking(move || {
            let roots = checked_roots(&folders, &own.options.cwd)?;
            let client = Arc::clone(&own.calls);
            Ok::<_, String>(own.host.standalone_calls(roots, client, own.options.mode))
        });
        let (runner, notices) = created.await.map_err(|error| error.to_string())??;
        for notice in notices {
            tracing::warn!("{notice}");
        }
        self.state.lock().runner = Some(runner.clone());
        Ok(runner)
    }

    /// Decides how the client's user can be asked. Includes the answer of the previous round if this
    /// call is the next one.
    fn ask_method(
        &self,
        call: &ToolCall,
        request: &ClientRequest,
        peer: Peer,
    ) -> Result<AskMethod, RpcError> {
        Ok(match (supports_forms(&request.capabilities), request.is_of_newest_version()) {
            (false, _) => AskMethod::Unsupported,
            (true, false) => AskMethod::Request(peer),
            (true, true) => AskMethod::MultiRoundTrip(Box::new(self.take_previous_round(call)?)),
        })
    }

    /// Takes the question and answer of the previous round, if this call is the next one.
    fn take_previous_round(&self, call: &ToolCall) -> Result<QuestionRound, RpcError> {
        let Some(state) = &call.state else { return Ok(QuestionRound::default()) };
        let pending = &mut self.state.lock().pending_questions;
        let index =
            pending.iter().position(|(entry, ..)| entry == state).ok_or_else(unknown_state)?;
        let (_, previous, question) = pending.remove(index);
        if previous.name != call.name || previous.arguments != call.arguments {
            return Err(unknown_state());
        }
        let answer = parse_answer(&call.responses[PERMISSION_KEY], &question);
        Ok(QuestionRound { previous: Some((question, answer)), pending: None })
    }

    /// Makes the result that lets the client ask its user and call again.
    async fn input_required(&self, call: ToolCall, question: PermissionRequest) -> Option<Value> {
        let form = elicitation(&question).await?;
        let state = SessionId::random().as_str().to_owned();
        let pending = &mut self.state.lock().pending_questions;
        if pending.len() >= MAX_PENDING_QUESTIONS {
            pending.remove(0);
        }
        pending.push((state.clone(), call, question));
        Some(json!({
            "resultType": "input_required",
            "inputRequests": { PERMISSION_KEY: { "method": ELICITATION, "params": form } },
            "requestState": state,
        }))
    }

    pub(super) async fn call_tool(
        self: &Arc<Self>,
        mut request: ClientRequest,
        peer: Peer,
    ) -> Answer {
        let call = ToolCall::read(&mut request.params)?;
        let Some(tool) = self.tools.find(&call.name) else {
            let text = format!("Unknown tool. There are: {}", self.tools.names());
            return Err(RpcError::invalid_params(&text));
        };
        let _slot = self.state.lock().limits.acquire()?;
        let ask_method = self.ask_method(&call, &request, peer.clone())?;
        let runner = match self.runner(&peer).await {
            Ok(runner) => runner,
            Err(why) => return Ok(call_result(ToolOutcome::failed(why).settle())),
        };
        let token = Some(request.params["_meta"]["progressToken"].take())
            .filter(|token| token.is_string() || token.is_number());
        let guard = self.calls.register(ClientCall { token, ask_method, progress_count: 0 });
        let arguments = tool.understood(Value::Object(call.arguments.clone()));
        let (tool, arguments) = match patch_call(tool.name(), &arguments) {
            Some(patch) => (self.tools.find("apply_patch").unwrap_or(tool), patch),
            None => (tool, arguments),
        };
        let outcome = runner.run_alone(guard.id.clone(), tool, arguments, request.cancel).await;
        if let Some(question) = guard.take_pending_question()
            && let Some(input_required) = self.input_required(call, question).await
        {
            return Ok(input_required);
        }
        Ok(call_result(outcome))
    }

    /// Ends all commands, which were started under the old roots. The next call lists the roots again.
    pub(super) async fn forget_roots(&self) {
        if self.options.roots.is_empty() {
            self.close().await;
        }
    }
}

/// True if the client can show a form to its user. An empty capability comes from older protocol
/// versions, which had only forms.
fn supports_forms(capabilities: &Value) -> bool {
    let elicitation = &capabilities["elicitation"];
    elicitation.is_object() && (elicitation["form"].is_object() || elicitation["url"].is_null())
}

/// Requests the client's roots. Returns none if the client does not answer in time.
async fn client_roots(peer: &Peer) -> Vec<PathBuf> {
    let Ok(listed) = peer.request("roots/list", &json!({}), ROOTS_TIMEOUT).await else {
        return Vec::new();
    };
    let listed: Value = serde_json::from_str(listed.get()).unwrap_or_default();
    let roots = listed["roots"].as_array().into_iter().flatten();
    roots.filter_map(root_path).take(MAX_ROOTS).collect()
}

fn root_path(root: &Value) -> Option<PathBuf> {
    url::Url::parse(root["uri"].as_str()?).ok()?.to_file_path().ok()
}

fn unusable_folder(folder: &Path, why: &dyn std::fmt::Display) -> String {
    format!(
        "The folder {} cannot be used: {why}. Name the folder that the tools may work in with \
         `turnwright mcp-server --root DIR`.",
        folder.display()
    )
}

fn checked_roots(folders: &[PathBuf], cwd: &Path) -> Result<Roots, String> {
    let (first, more) =
        folders.split_first().map_or((cwd, folders), |(root, more)| (&**root, more));
    let mut roots = Roots::new(first).map_err(|error| unusable_folder(first, &error))?;
    for folder in more {
        roots = roots.with_folder(folder).map_err(|error| unusable_folder(folder, &error))?;
    }
    // Checked on the resolved paths: `/tmp/..` or a symbolic link may name the root folder as well.
    if let Some(all) = roots.folders().find(|folder| folder.parent().is_none()) {
        return Err(unusable_folder(all, &"it is the whole machine"));
    }
    Ok(roots)
}

fn unknown_state() -> RpcError {
    let text = "Unknown requestState: it was used, or is too old. Call again without it";
    RpcError::invalid_params(text)
}

/// The error of a call that exceeds a limit and may be made again after `wait`.
fn limit_error(limit: &str, wait: Duration) -> RpcError {
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    let text = format!("Too many calls{limit}. Try again in {millis} ms");
    RpcError::application(BUSY, text, json!({ "retryAfterMs": millis }))
}

/// A token bucket for the rate, and a semaphore for the number of concurrent calls.
#[derive(Debug)]
struct CallLimits {
    /// Calls that may be made now.
    calls: f64,
    refilled_at: Instant,
    slots: Arc<Semaphore>,
}

impl Default for CallLimits {
    fn default() -> CallLimits {
        let slots = Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS));
        CallLimits { calls: MAX_BURST, refilled_at: Instant::now(), slots }
    }
}

impl CallLimits {
    /// Admits one call, which counts as running until the permit is dropped.
    fn acquire(&mut self) -> Result<OwnedSemaphorePermit, RpcError> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| {
            let limit = format!(" at the same time: at most {MAX_CONCURRENT_CALLS}");
            limit_error(&limit, BUSY_RETRY_DELAY)
        })?;
        self.take(Instant::now())
            .map_err(|wait| limit_error(&format!(": at most {CALLS_PER_SECOND} a second"), wait))?;
        Ok(permit)
    }

    /// Takes a token of the bucket. If it is empty, returns the time until there is one.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let elapsed = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.calls = (self.calls + elapsed * CALLS_PER_SECOND).min(MAX_BURST);
        self.refilled_at = now;
        if self.calls < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.calls) / CALLS_PER_SECOND));
        }
        self.calls -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_calls_are_limited_to_the_rate() {
        let begin = Instant::now();
        let mut bucket = CallLimits { refilled_at: begin, ..CallLimits::default() };
        let taken = (0..100).filter(|_| bucket.take(begin).is_ok()).count();
        assert_eq!(taken, 40);
        assert_eq!(bucket.take(begin), Err(Duration::from_millis(50)));
        let later = begin + Duration::from_secs(1);
        assert_eq!((0..100).filter(|_| bucket.take(later).is_ok()).count(), 20);
    }

    #[test]
    fn concurrent_calls_are_limited() {
        let mut limits = CallLimits::default();
        let permits: Vec<_> =
            (0..MAX_CONCURRENT_CALLS).map(|_| limits.acquire().unwrap()).collect();
        let error = limits.acquire().unwrap_err();
        let text = "Too many calls at the same time: at most 16. Try again in 1000 ms";
        assert_eq!((error.code, error.message.as_str()), (BUSY, text));
        drop(permits);
        drop(limits.acquire().unwrap());
    }
}
