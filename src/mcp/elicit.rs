//! What a server wants to know of the user in the middle of a call. It is asked of the user whose call
//! it is, with the server's name, and only if it is clear whose call that is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use turnwright_types::client::{Client, Filled, Form};
use turnwright_types::effect::{plain, visible_line};
use turnwright_types::ids::CallId;

/// Characters of a question.
const LONGEST: usize = 4_000;
/// Questions in one call. More than that nobody answers.
const MOST: usize = 20;

/// The calls that a server works at.
#[derive(Clone, Default)]
// A std mutex: held to look at a short list.
pub(super) struct Callers(Arc<Mutex<List>>);

#[derive(Default)]
struct List {
    /// Sessions count their calls each for itself: here they are counted together.
    entered: u64,
    callers: Vec<(u64, Caller)>,
}

/// Somebody who waits for a call.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) call: CallId,
    pub(super) client: Arc<dyn Client>,
    /// Cancelled with the turn and at the end of the call, and the question with it.
    pub(super) cancel: CancellationToken,
    /// Questions so far.
    asked: Arc<AtomicUsize>,
}

impl Caller {
    /// Somebody who waits until the token is cancelled, or the call is over.
    pub(super) fn new(call: CallId, client: Arc<dyn Client>, cancel: &CancellationToken) -> Caller {
        Caller { call, client, cancel: cancel.child_token(), asked: Arc::default() }
    }
}

impl std::fmt::Debug for Callers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Callers")
    }
}

/// As long as this is held the call counts as under way.
pub(super) struct Calling<'a> {
    callers: &'a Callers,
    number: u64,
    over: CancellationToken,
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        // What is asked for a call that is over would stand in the way of the next question.
        self.over.cancel();
        let mut list = self.callers.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.callers.retain(|it| it.0 != self.number);
    }
}

impl Callers {
    /// A call begins.
    pub(super) fn enter(&self, caller: Caller) -> Calling<'_> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.entered += 1;
        let (number, over) = (list.entered, caller.cancel.clone());
        list.callers.push((number, caller));
        Calling { callers: self, number, over }
    }

    /// Whose call it must be, if there is only one user.
    fn only(&self) -> Option<Caller> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, first) = list.callers.first()?;
        let is_same = |it: &(u64, Caller)| Arc::ptr_eq(&it.1.client, &first.client);
        list.callers.iter().all(is_same).then(|| first.clone())
    }
}

/// Asks the user for a server. What cannot be asked is declined.
pub(super) async fn ask(
    server: &str,
    callers: &Callers,
    params: ElicitRequestParams,
) -> ElicitResult {
    match callers.only() {
        Some(caller) => ask_caller(server, &caller, params).await,
        None => ElicitResult::new(ElicitationAction::Decline),
    }
}

/// Asks the user whose call it is.
pub(super) async fn ask_caller(
    server: &str,
    caller: &Caller,
    params: ElicitRequestParams,
) -> ElicitResult {
    let declined = ElicitResult::new(ElicitationAction::Decline);
    // A page to open is no form: who shows it as one would send the user somewhere.
    let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = params
    else {
        return declined;
    };
    if caller.asked.fetch_add(1, Ordering::Relaxed) >= MOST {
        return declined;
    }
    let Ok(schema) = serde_json::to_value(&requested_schema) else { return declined };
    let message: String = plain(message).chars().take(LONGEST).collect();
    let message = format!("The MCP server {} asks: {message}", visible_line(server));
    let mut shown = schema.clone();
    clean(&mut shown);
    let form = Form { call: caller.call.clone(), message, schema: shown };
    let filled = tokio::select! {
        biased;
        // Before a question that has waited for its turn is asked.
        () = caller.cancel.cancelled() => Filled::Cancelled,
        filled = caller.client.fill(form) => filled,
    };
    match filled {
        Filled::Accepted(content) if fits(&schema, &content) => {
            ElicitResult::new(ElicitationAction::Accept).with_content(content)
        }
        Filled::Accepted(_) | Filled::Declined => declined,
        Filled::Cancelled => ElicitResult::new(ElicitationAction::Cancel),
    }
}

/// What a form says in words hides nothing. Names and values stay what they are: answers have them.
fn clean(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(words) if name == "title" || name == "description" => {
                        *words = visible_line(words);
                    }
                    value => clean(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        _ => {}
    }
}

/// Whether the answer is one that was asked for. By a schema that is none nothing was asked for, and
/// nothing is fetched for one.
fn fits(schema: &Value, content: &Value) -> bool {
    let check = jsonschema::options().offline().build(schema);
    content.is_object() && check.is_ok_and(|it| it.is_valid(content))
}
