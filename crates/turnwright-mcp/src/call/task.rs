//! A call of which the server has made a task (the extension `io.modelcontextprotocol/tasks`). The server is asked
//! for the task's state until the task has ended, also after its connection was lost.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::server_requests::{ServerMessageHandler, WaitingCall};
use super::{
    CallError, CallInFlight, MAX_ERROR_CHARS, MAX_MESSAGE_CHARS, answer_one, one_line, timeout,
    unusable,
};
use crate::features::JsonObject;
use crate::server::handshake::ServerInfo;
use crate::transport::PeerError;

/// The delay before a task is looked at if the server suggests none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(250);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How often a request that failed in transport is sent again. The delay doubles each time.
const MAX_RETRIES: u32 = 8;
/// Maximum number of input requests of one task.
const MAX_INPUT_REQUESTS: usize = 32;
/// Maximum length of a task's id.
const MAX_ID_BYTES: usize = 1024;
/// How long the cancellation of a task may take, and how long it waits for the next connection.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// A task of a server. Dropping this cancels the task, unless it has ended.
struct RunningTask<'a, 'b> {
    call: &'a mut CallInFlight<'b>,
    id: String,
    created: Instant,
    /// The status and the message that were told last.
    known: (Value, String),
    has_ended: bool,
}

/// Follows a task until it has ended, and returns the result of its call. The server has answered the call with
/// `state`.
pub(super) async fn follow(
    mut state: Value,
    call: &mut CallInFlight<'_>,
) -> Result<Value, CallError> {
    let is_declared = call.peer.0.info().is_some_and(ServerInfo::has_tasks);
    let id = state["taskId"].as_str().unwrap_or_default().to_owned();
    if !is_declared || id.is_empty() || id.len() > MAX_ID_BYTES {
        return Err(unusable("it made a task of the call that cannot be used").into());
    }
    let known = (Value::Null, String::new());
    let mut task = RunningTask { call, id, created: Instant::now(), known, has_ended: false };
    task.tell_news(&state);
    let mut answered = HashSet::new();
    while !task.has_ended {
        let mut requests = state["inputRequests"].as_object().cloned().unwrap_or_default();
        requests.retain(|key, _| !answered.contains(key));
        if answered.len() + requests.len() > MAX_INPUT_REQUESTS {
            return Err(unusable("it kept asking for more input").into());
        }
        if requests.is_empty() {
            state = task.next_state(&state).await?;
            continue;
        }
        let answers = task.answer(requests, &mut state).await?;
        if !answers.is_empty() {
            answered.extend(answers.keys().cloned());
            let answers = Value::Object(answers);
            let params = JsonObject::from_iter([("inputResponses".to_owned(), answers)]);
            task.request("tasks/update", params).await?;
        }
    }
    match state["status"].as_str().unwrap_or_default() {
        "completed" => Ok(state["result"].take()),
        status => Err(why_ended(status, &state).into()),
    }
}

impl RunningTask<'_, '_> {
    /// Shows the message of a state, unless it was shown already.
    fn tell_news(&mut self, state: &Value) {
        let said = state["statusMessage"].as_str().unwrap_or_default();
        let news = (state["status"].clone(), one_line(said, MAX_MESSAGE_CHARS));
        if self.known != news {
            self.call.tell(news.1.clone());
            self.known = news;
        }
    }

    /// Waits until it is time to look at the task again, and returns its state.
    async fn next_state(&mut self, last: &Value) -> Result<Value, CallError> {
        self.call.within_limits(sleep(poll_interval(last))).await?;
        let state = self.request("tasks/get", JsonObject::new()).await?;
        if state["taskId"] != self.id.as_str() {
            return Err(unusable("it spoke of another task than that of the call").into());
        }
        self.has_ended = is_over(&state);
        if self.has_ended {
            return Ok(state);
        }
        if !matches!(state["status"].as_str(), Some("working" | "input_required")) {
            return Err(unusable("it does not say whether the call's task has ended").into());
        }
        let ttl = state["ttlMs"].as_u64().map(Duration::from_millis);
        if ttl.is_some_and(|ttl| self.created.elapsed() > ttl) {
            return Err(unusable("it no longer keeps the call's task, which has not ended").into());
        }
        self.tell_news(&state);
        Ok(state)
    }

    /// Answers input requests while the task requires them, and looks at the task meanwhile: `state` becomes its
    /// latest state. Returns the answers by their keys.
    async fn answer(
        &mut self,
        requests: JsonObject,
        state: &mut Value,
    ) -> Result<JsonObject, CallError> {
        let handler = self.call.peer.0.handler().clone();
        let latest = watch::Sender::new(state.clone());
        let answering = answer_required(requests, latest.subscribe(), &handler, self.call.caller);
        let mut waiting = pin!(answering);
        let answers = loop {
            // The time that the user takes is not time without progress.
            self.call.idle_deadline = self.call.deadline;
            tokio::select! {
                biased;
                answers = &mut waiting => break answers?,
                next = self.next_state(state) => *state = next?,
            }
            if self.has_ended {
                break JsonObject::new();
            }
            latest.send_replace(state.clone());
        };
        self.call.tell(String::new());
        Ok(answers)
    }

    /// Sends a request about the task. It is sent again if it was lost, which does no harm.
    async fn request(
        &mut self,
        method: &'static str,
        mut params: JsonObject,
    ) -> Result<Value, CallError> {
        params.insert("taskId".to_owned(), self.id.as_str().into());
        let mut retries = 0;
        loop {
            let peer = self.call.peer.0.clone();
            let request = async {
                peer.wait_for_capacity().await;
                peer.request::<Value>(method, params.clone()).await
            };
            match self.call.within_limits(request).await? {
                Ok(result) => return Ok(result),
                Err(PeerError::Closed) if peer.closed().now_or_never().is_some() => {
                    let reconnected = self.call.server.reconnected(self.call.peer.1);
                    let found = self.call.within_limits(reconnected).await?;
                    self.call.peer = found.ok_or(CallError::ConnectionLost)?;
                }
                // A stream may also end without an answer while its connection goes on.
                Err(PeerError::Closed | PeerError::Transport(_) | PeerError::Rejected(_))
                    if retries < MAX_RETRIES =>
                {
                    self.call.within_limits(sleep(MIN_POLL_INTERVAL * 2_u32.pow(retries))).await?;
                    retries += 1;
                }
                Err(error) => {
                    let error = one_line(&error.to_string(), MAX_ERROR_CHARS);
                    let why = format!("it says nothing of the call's task any more: {error}");
                    return Err(unusable(&why).into());
                }
            }
        }
    }
}

/// Explains why a task has ended without a result.
fn why_ended(status: &str, state: &Value) -> String {
    let error = state.get("error").map(Value::to_string).unwrap_or_default();
    let said = state["statusMessage"].as_str().unwrap_or_default();
    let why = one_line(&format!("{said} {error}"), MAX_ERROR_CHARS);
    unusable(&format!("the call's task has ended as {status}: {why}"))
}

impl Drop for RunningTask<'_, '_> {
    #[expect(clippy::disallowed_methods, reason = "it outlives its connection by seconds at most")]
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let params = JsonObject::from_iter([("taskId".to_owned(), self.id.as_str().into())]);
        let peer = &self.call.peer.0;
        let reconnected = self.call.server.reconnected(self.call.peer.1);
        let mut request = peer.start("tasks/cancel", params.clone());
        peer.tasks().spawn(async move {
            let sent = timeout(CANCEL_TIMEOUT, request.response()).await;
            if matches!(sent, Ok(Err(PeerError::Closed))) {
                // Not among the tasks of the old connection, whose end waits for them.
                tokio::spawn(async move {
                    if let Ok(Some((peer, _))) = timeout(CANCEL_TIMEOUT, reconnected).await {
                        let mut request = peer.start("tasks/cancel", params);
                        timeout(CANCEL_TIMEOUT, request.response()).await.ok();
                    }
                });
            }
        });
    }
}

/// Answers these input requests, but for those that the task no longer requires before they are answered.
async fn answer_required(
    requests: JsonObject,
    mut latest: watch::Receiver<Value>,
    handler: &ServerMessageHandler,
    caller: &WaitingCall,
) -> Result<JsonObject, String> {
    let mut answers = JsonObject::new();
    for (key, request) in requests {
        let withdrawn = async {
            latest.wait_for(|state| !requires(state, &key)).await.ok();
        };
        let answer = tokio::select! {
            biased;
            () = withdrawn => continue,
            answer = answer_one(request, handler, caller) => answer?,
        };
        answers.insert(key, answer);
    }
    Ok(answers)
}

/// Returns true if a task in this state requires the input with this key. If it requires input and does not say which,
/// it has not withdrawn any.
fn requires(state: &Value, key: &str) -> bool {
    match &state["inputRequests"] {
        Value::Object(requests) => requests.contains_key(key),
        _ => state["status"] == "input_required",
    }
}

fn is_over(state: &Value) -> bool {
    matches!(state["status"].as_str(), Some("completed" | "failed" | "cancelled"))
}

/// The delay before the task is looked at: as the server suggests, within limits. The result of a task that has ended
/// with the answer to its call is asked for at once.
fn poll_interval(state: &Value) -> Duration {
    if is_over(state) {
        return Duration::ZERO;
    }
    let suggested = state["pollIntervalMs"].as_u64().map(Duration::from_millis);
    suggested.unwrap_or(POLL_INTERVAL).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_interval_is_that_of_the_server_within_limits() {
        let table = [
            (json!(2_000), 2_000),
            (json!(0), 250),
            (json!(u64::MAX), 30_000),
            (json!(-1), 1_000),
            (json!("5000"), 1_000),
            (json!(null), 1_000),
        ];
        for (suggested, expected) in table {
            let state = json!({ "pollIntervalMs": suggested });
            assert_eq!(poll_interval(&state), Duration::from_millis(expected), "{suggested}");
        }
        let over = json!({ "status": "completed", "pollIntervalMs": 30_000 });
        assert_eq!(poll_interval(&over), Duration::ZERO);
    }

    #[test]
    fn an_input_is_required_until_a_state_says_otherwise() {
        let table = [
            (json!({ "status": "input_required", "inputRequests": { "a": {} } }), true),
            (json!({ "status": "working", "inputRequests": { "a": {} } }), true),
            (json!({ "status": "input_required" }), true),
            (json!({ "status": "input_required", "inputRequests": { "b": {} } }), false),
            (json!({ "status": "input_required", "inputRequests": {} }), false),
            (json!({ "status": "working" }), false),
        ];
        for (state, expected) in table {
            assert_eq!(requires(&state, "a"), expected, "{state}");
        }
    }
}
