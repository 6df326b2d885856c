//! A call that the server has turned into a task (the extension `io.modelcontextprotocol/tasks`). The server is asked
//! for the task's state until the task has ended, even after a lost connection.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    CallError, CallInFlight, MAX_ERROR_CHARS, MAX_MESSAGE_CHARS, answer_each, one_line, timeout,
    unusable,
};
use crate::features::JsonObject;
use crate::server::{Server, handshake::ServerInfo};
use crate::transport::PeerError;

/// The delay between two requests for a task's state if the server suggests none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(250);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of times that a request is sent again after a failure in transport. The delay doubles each time.
const MAX_RETRIES: u32 = 8;
/// Maximum number of input requests of one task.
const MAX_INPUT_REQUESTS: usize = 32;
/// Maximum length of a task's id.
const MAX_ID_BYTES: usize = 1024;
/// The time that the cancellation of a task may take, including the wait for the next connection.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// A task of a server. Dropping this cancels the task, unless it has ended.
struct RunningTask<'a, 'b> {
    call: &'a mut CallInFlight<'b>,
    id: String,
    created: Instant,
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
        return Err(unusable("it turned the call into a task that cannot be used").into());
    }
    let mut task = RunningTask { call, id, created: Instant::now(), has_ended: false };
    let mut known = (Value::Null, String::new());
    let mut answered = HashSet::new();
    while !task.has_ended {
        let said = state["statusMessage"].as_str().unwrap_or_default();
        let news = (state["status"].clone(), one_line(said, MAX_MESSAGE_CHARS));
        if known != news {
            task.call.note_progress(news.1.clone());
            known = news;
        }
        let mut requests = state["inputRequests"].as_object().cloned().unwrap_or_default();
        requests.retain(|key, _| !answered.contains(key));
        if answered.len() + requests.len() > MAX_INPUT_REQUESTS {
            return Err(unusable("it kept asking for more input").into());
        }
        let keys: Vec<String> = requests.keys().cloned().collect();
        let handler = task.call.peer.0.handler().clone();
        let mut answering = std::pin::pin!(answer_each(requests, &handler, task.call.caller));
        if !keys.is_empty() {
            // The time that the user takes is not time without progress.
            task.call.idle_deadline = task.call.deadline;
        }
        loop {
            tokio::select! {
                biased;
                answers = &mut answering, if !keys.is_empty() => {
                    task.call.note_progress(String::new());
                    task.request("tasks/update", answers?).await?;
                    answered.extend(keys);
                    break;
                }
                next = task.next_state(&state) => state = next?,
            }
            // Questions of which one is no longer required are withdrawn, and the others asked again.
            if task.has_ended || !requires(&state, &keys) {
                break;
            }
        }
    }
    match state["status"].as_str().unwrap_or_default() {
        "completed" => Ok(state["result"].take()),
        status => Err(why_ended(status, &state).into()),
    }
}

impl RunningTask<'_, '_> {
    /// Waits until it is time to look at the task again, and returns its state. The result of a task that had ended
    /// when it was created comes with this state, too.
    async fn next_state(&mut self, last: &Value) -> Result<Value, CallError> {
        if matches!(last["status"].as_str(), Some("working" | "input_required")) {
            self.call.within_limits(sleep(poll_interval(last))).await?;
        }
        let state = self.request("tasks/get", JsonObject::new()).await?;
        if state["taskId"] != self.id.as_str() {
            return Err(unusable("it reported on another task").into());
        }
        let status = state["status"].as_str().unwrap_or_default();
        self.has_ended = matches!(status, "completed" | "failed" | "cancelled");
        if !self.has_ended && !matches!(status, "working" | "input_required") {
            return Err(unusable("it does not say whether the call's task has ended").into());
        }
        let ttl = state["ttlMs"].as_u64().map(Duration::from_millis);
        if !self.has_ended && ttl.is_some_and(|ttl| self.created.elapsed() > ttl) {
            return Err(unusable("it no longer keeps the call's task, which has not ended").into());
        }
        Ok(state)
    }

    /// Sends a request about the task, again if it was lost. Sending it twice does no harm.
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
                    let next = Server::reconnected(self.call.server.watch(), self.call.peer.1);
                    let found = self.call.within_limits(next).await?;
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
                    let why = format!("it no longer reports on the call's task: {error}");
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
    fn drop(&mut self) {
        if !self.has_ended {
            let params = JsonObject::from_iter([("taskId".to_owned(), self.id.as_str().into())]);
            let reconnected = Server::reconnected(self.call.server.watch(), self.call.peer.1);
            let peer = &self.call.peer.0;
            let mut request = peer.start("tasks/cancel", params.clone());
            peer.tasks().spawn(timeout(CANCEL_TIMEOUT, async move {
                if request.response().await.err() == Some(PeerError::Closed) {
                    let Some((next, _)) = reconnected.await else { return };
                    next.start("tasks/cancel", params).response().await.ok();
                }
            }));
        }
    }
}

/// Returns true if a task in this state requires all inputs with these keys, and there are some. If it requires input
/// and does not say which, it has not withdrawn any.
fn requires(state: &Value, keys: &[String]) -> bool {
    let listed = &state["inputRequests"];
    let is_unclear = listed.is_null() && state["status"] == "input_required";
    !keys.is_empty() && (is_unclear || keys.iter().all(|key| listed.get(key).is_some()))
}

/// The delay before the task is looked at: as the server suggests, within limits.
fn poll_interval(state: &Value) -> Duration {
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
            assert_eq!(requires(&state, &["a".to_owned()]), expected, "{state}");
            assert!(!requires(&state, &[]), "{state}");
        }
    }
}
