//! What the clients of both versions have in common: what has arrived from the agent, and typed calls.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::{Agent, BoxFuture, ConnectionTo, Error};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The project, and what the connection goes through.
pub struct Setting {
    pub project: PathBuf,
    pub has_proxies: bool,
}

impl Setting {
    pub fn new(project: PathBuf, has_proxies: bool) -> Result<Setting, Error> {
        std::fs::write(project.join("note.txt"), "The word is PELICAN.\n")
            .map_err(Error::into_internal_error)?;
        Ok(Setting { project, has_proxies })
    }
}

/// What has arrived from the agent.
#[derive(Clone, Default)]
pub struct Inbox(Arc<Contents>);

#[derive(Default)]
struct Contents {
    /// The parameters of all `session/update`, after the SDK has parsed and written them.
    updates: Mutex<Vec<Value>>,
    has_arrived: Notify,
    questions: AtomicUsize,
    forms: AtomicUsize,
    /// The kind of the option that is chosen in every permission request.
    choice: Mutex<String>,
}

impl Inbox {
    pub fn add(&self, update: &impl serde::Serialize) -> Result<(), Error> {
        let update = serde_json::to_value(update).map_err(Error::into_internal_error)?;
        self.0.updates.lock().unwrap_or_else(PoisonError::into_inner).push(update);
        self.0.has_arrived.notify_waiters();
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.0.updates.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The updates of a session from this place on.
    pub fn updates(&self, session_id: &str, start: usize) -> Vec<Value> {
        let updates = self.0.updates.lock().unwrap_or_else(PoisonError::into_inner);
        let own = updates[start..].iter().filter(|it| it["sessionId"] == session_id);
        own.map(|it| it["update"].clone()).collect()
    }

    /// Waits until this function of the updates of a session returns a value.
    pub async fn until<T>(
        &self,
        session_id: &str,
        start: usize,
        find: impl Fn(&[Value]) -> Option<T>,
    ) -> T {
        loop {
            let arrival = self.0.has_arrived.notified();
            tokio::pin!(arrival);
            // From here on an arrival is noticed.
            arrival.as_mut().enable();
            if let Some(found) = find(&self.updates(session_id, start)) {
                return found;
            }
            arrival.await;
        }
    }

    pub fn choose(&self, kind: &str) {
        kind.clone_into(&mut self.0.choice.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The answer to a permission request.
    pub fn outcome(&self, request: &impl serde::Serialize) -> Result<Value, Error> {
        self.0.questions.fetch_add(1, Ordering::SeqCst);
        let request = serde_json::to_value(request).map_err(Error::into_internal_error)?;
        let choice = self.0.choice.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let options = request["options"].as_array().into_iter().flatten();
        let option = options.into_iter().find(|it| it["kind"] == *choice);
        let option = option.ok_or_else(|| Error::invalid_params().data(request.clone()))?;
        Ok(json!({ "outcome": { "outcome": "selected", "optionId": option["optionId"] } }))
    }

    /// The answer to a form with one choice.
    pub fn filled(&self, request: &impl serde::Serialize) -> Result<Value, Error> {
        self.0.forms.fetch_add(1, Ordering::SeqCst);
        let request = serde_json::to_value(request).map_err(Error::into_internal_error)?;
        let properties = request["requestedSchema"]["properties"].as_object();
        let (name, schema) = properties
            .and_then(|it| it.iter().next())
            .ok_or_else(|| Error::invalid_params().data(request.clone()))?;
        let choices = [&schema["enum"][0], &schema["oneOf"][0]["const"]];
        let choice = choices.into_iter().find(|it| it.is_string()).cloned();
        Ok(json!({ "action": "accept", "content": { name: choice.unwrap_or(json!("yes")) } }))
    }

    pub fn questions(&self) -> usize {
        self.0.questions.load(Ordering::SeqCst)
    }

    pub fn forms(&self) -> usize {
        self.0.forms.load(Ordering::SeqCst)
    }
}

/// Sends a request with the type that the SDK has for this method, and returns the parsed answer as JSON.
pub type Call = fn(ConnectionTo<Agent>, String, Value) -> BoxFuture<'static, Result<Value, Error>>;

/// Defines such a function for the types of one version.
macro_rules! typed_calls {
    ($schema:path { $($method:literal => $request:ident,)* }) => {
        fn call(
            connection: agent_client_protocol::ConnectionTo<agent_client_protocol::Agent>,
            method: String,
            params: serde_json::Value,
        ) -> agent_client_protocol::BoxFuture<'static, Result<serde_json::Value, agent_client_protocol::Error>> {
            use $schema as schema;
            use agent_client_protocol::{Error, UntypedMessage};
            Box::pin(async move {
                match method.as_str() {
                    $($method => {
                        let request: schema::$request =
                            serde_json::from_value(params).map_err(Error::into_internal_error)?;
                        let answer = connection.send_request(request).block_task().await?;
                        serde_json::to_value(answer).map_err(Error::into_internal_error)
                    })*
                    _ => {
                        let request = UntypedMessage::new(&method, params)?;
                        connection.send_request(request).block_task().await
                    }
                }
            })
        }
    };
}
pub(crate) use typed_calls;

/// The agent, as the conversation sees it in both versions.
pub struct Peer {
    pub connection: ConnectionTo<Agent>,
    pub call: Call,
    pub inbox: Inbox,
    pub is_v2: bool,
    pub setting: Setting,
    /// The capabilities for sessions.
    pub capabilities: Value,
}

/// What a client would show of a turn.
#[derive(Debug, Default)]
pub struct Turn {
    pub stop: String,
    pub chunks: Vec<String>,
    pub thoughts: String,
    pub cards: Vec<Value>,
    pub updates: Vec<Value>,
}

impl Peer {
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, Error> {
        (self.call)(self.connection.clone(), method.to_owned(), params).await
    }

    pub fn cwd(&self) -> &str {
        self.setting.project.to_str().unwrap_or_default()
    }

    pub async fn turn(&self, session_id: &str, text: &str) -> Result<Turn, Error> {
        let start = self.inbox.len();
        let prompt = json!([{ "type": "text", "text": text }]);
        let params = json!({ "sessionId": session_id, "prompt": prompt });
        let answer = self.call("session/prompt", params).await?;
        let stop = if self.is_v2 {
            let idle = self.inbox.until(session_id, start, idle_after_running).await;
            idle["stopReason"].clone()
        } else {
            answer["stopReason"].clone()
        };
        let mut turn = shown(self.inbox.updates(session_id, start));
        turn.stop = stop.as_str().unwrap_or_default().to_owned();
        Ok(turn)
    }

    /// A turn that ends by itself.
    pub async fn whole_turn(&self, session_id: &str, text: &str) -> Result<Turn, Error> {
        let turn = self.turn(session_id, text).await?;
        check(turn.stop == "end_turn", &format!("the turn ended with {}", turn.stop))?;
        Ok(turn)
    }
}

fn idle_after_running(updates: &[Value]) -> Option<Value> {
    let began = updates.iter().position(|it| it["state"] == "running")?;
    updates[began..].iter().find(|it| it["state"] == "idle").cloned()
}

pub fn shown(updates: Vec<Value>) -> Turn {
    let mut turn = Turn::default();
    for update in &updates {
        let text = update["content"]["text"].as_str().unwrap_or_default();
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => turn.chunks.push(text.to_owned()),
            "agent_message" => {
                let text = update["content"][0]["text"].as_str().unwrap_or_default();
                turn.chunks.push(text.to_owned());
            }
            "agent_thought_chunk" => turn.thoughts.push_str(text),
            "tool_call" | "tool_call_update" => fold_card(&mut turn.cards, update),
            _ => {}
        }
    }
    turn.updates = updates;
    turn
}

fn fold_card(cards: &mut Vec<Value>, update: &Value) {
    let card = cards.iter_mut().find(|it| it["toolCallId"] == update["toolCallId"]);
    let Some(card) = card else { return cards.push(update.clone()) };
    for (key, value) in update.as_object().into_iter().flatten() {
        card[key] = value.clone();
    }
}

pub fn check(holds: bool, problem: &str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::internal_error().data(problem)) }
}
