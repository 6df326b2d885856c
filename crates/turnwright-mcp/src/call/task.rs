//! A call of which the server has made a task (the extension `io.modelcontextprotocol/tasks`). The server is asked
//! for the task's state until the task has ended, also after its connection was lost.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    CallError, CallInFlight, MAX_ERROR_CHARS, answer_requests, cancelled, error_text, message_text,
    unusable,
};
use crate::features::JsonObject;
use crate::schema::model_schema::bounded_text;
use crate::server::Server;
use crate::transport::{Peer, PeerError};
use turnwright_rpc::RpcError;
use turnwright_types::effect::escape_hidden;

/// The delay before a task is looked at if the server suggests none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(250);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// The delay before a request that failed in transport is sent again. It doubles each time.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// The maximum number of times that it is sent again.
const MAX_RETRIES: u32 = 8;
/// Maximum number of input requests of one task.
const MAX_INPUT_REQUESTS: usize = 32;
/// Maximum length of a task's id.
const MAX_ID_BYTES: usize = 1024;
/// The error code of a server that does not know a task: its parameters are invalid.
const UNKNOWN_TASK: i32 = -32602;

/// A task of a server. Dropping this cancels the task, unless it has ended.
struct RunningTask<'a> {
    server: &'a Server,
    peer: Peer,
    /// The number of the peer's connection.
    connection: u64,
    id: String,
    has_ended: bool,
}

/// Follows a task until it has ended, and returns the result of its call. The server has answered the call with
/// `state`.
pub(super) async fn follow(
    server: &Server,
    (peer, connection): (&Peer, u64),
    mut state: Value,
    call: &mut CallInFlight<'_>,
) -> Result<Value, CallError> {
    let id = state["taskId"].as_str().filter(|id| (1..=MAX_ID_BYTES).contains(&id.len()));
    let Some(id) = id.map(str::to_owned) else {
        return Err(unusable("it made a task of the call whose id cannot be used").into());
    };
    let mut task = RunningTask { server, peer: peer.clone(), connection, id, has_ended: false };
    let created = Instant::now();
    let mut known = (Value::Null, String::new());
    let mut answered = HashSet::new();
    loop {
        let current = (state["status"].clone(), message_text(&state["statusMessage"]));
        if current != known {
            call.tell(current.1.clone());
            known = current;
        }
        if state["status"] == "input_required" {
            task.answer(state["inputRequests"].take(), &mut answered, call).await?;
        }
        call.within_limits(sleep(poll_interval(&state))).await?;
        state = task.request("tasks/get", task.params(), call).await?;
        if state["taskId"] != task.id.as_str() {
            return Err(unusable("it spoke of another task than that of the call").into());
        }
        if let Some(result) = task.result(&mut state) {
            return Ok(result?);
        }
        if state["ttlMs"].as_u64().is_some_and(|ttl| created.elapsed() > Duration::from_millis(ttl))
        {
            let why = "The time for which the server keeps the call's task has passed before the task ended. \
                       The call may have been partly executed.";
            return Err(why.to_owned().into());
        }
    }
}

impl RunningTask<'_> {
    /// The parameters of a request about the task.
    fn params(&self) -> JsonObject {
        JsonObject::from_iter([("taskId".to_owned(), self.id.as_str().into())])
    }

    /// Sends a request about the task. It is sent again if it was lost, which does no harm.
    async fn request(
        &mut self,
        method: &'static str,
        params: JsonObject,
        call: &mut CallInFlight<'_>,
    ) -> Result<Value, CallError> {
        let mut retries = 0;
        loop {
            let peer = self.peer.clone();
            let request = async {
                peer.wait_for_capacity().await;
                peer.request::<Value>(method, params.clone()).await
            };
            let error = match call.within_limits(request).await? {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            match error {
                PeerError::Closed => {
                    let connecting = self.server.reconnected(self.connection);
                    let connected = call.within_limits(connecting).await?;
                    (self.peer, self.connection) = connected.ok_or(CallError::ConnectionLost)?;
                }
                PeerError::Transport(_) | PeerError::Rejected(_) if retries < MAX_RETRIES => {
                    call.within_limits(sleep(RETRY_DELAY * 2_u32.pow(retries))).await?;
                    retries += 1;
                }
                PeerError::ErrorResponse(error)
                    if error.code == UNKNOWN_TASK && method == "tasks/get" =>
                {
                    self.has_ended = true;
                    let why = error_text(&error);
                    return Err(format!(
                        "The server does not know the call's task any more, so the result is lost: {why}\nThe call \
                         may have been executed."
                    )
                    .into());
                }
                error => {
                    let why = bounded_text(&escape_hidden(&error.to_string()), MAX_ERROR_CHARS);
                    return Err(format!(
                        "The server does not say how the call's task goes on: {why}\nThe call may have been partly \
                         executed."
                    )
                    .into());
                }
            }
        }
    }

    /// Answers the input requests of the task whose keys are new.
    async fn answer(
        &mut self,
        requests: Value,
        answered: &mut HashSet<String>,
        call: &mut CallInFlight<'_>,
    ) -> Result<(), CallError> {
        let Value::Object(mut requests) = requests else { return Ok(()) };
        requests.retain(|key, _| !answered.contains(key));
        if requests.is_empty() {
            return Ok(());
        }
        if answered.len() + requests.len() > MAX_INPUT_REQUESTS {
            return Err(unusable("it kept asking for more input").into());
        }
        answered.extend(requests.keys().cloned());
        let responses = answer_requests(requests, self.peer.handler(), call.caller).await?;
        if call.caller.cancel.is_cancelled() {
            return Err(cancelled().into());
        }
        // The time that the user took does not count.
        call.tell(String::new());
        let mut params = self.params();
        params.insert("inputResponses".to_owned(), Value::Object(responses));
        self.request("tasks/update", params, call).await.map(drop)
    }

    /// Returns the result of the call, or why it has none, if the task has ended or its state is unknown.
    fn result(&mut self, state: &mut Value) -> Option<Result<Value, String>> {
        let said = message_text(&state["statusMessage"]);
        let result = match state["status"].as_str() {
            Some("working" | "input_required") => return None,
            Some("completed") => Ok(state["result"].take()),
            Some("failed") => {
                let error = serde_json::from_value::<RpcError>(state["error"].take());
                let error =
                    error.map(|error| format!("error {}: {}", error.code, error_text(&error)));
                let why = [error.unwrap_or_default(), said].join(" ");
                Err(format!("The task that the server made of the call has failed: {}", why.trim()))
            }
            Some("cancelled") => Err(format!(
                "The server has cancelled the task that it made of the call: {said}\nThe call may have been \
                 partly executed."
            )),
            _ => return Some(Err(unusable("the state of the call's task is none of the protocol"))),
        };
        self.has_ended = true;
        Some(result)
    }
}

impl Drop for RunningTask<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.peer.send_unanswered("tasks/cancel", self.params());
        }
    }
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
}
