//! Answers the requests of a server and handles its notifications. A question to the user (elicitation) names
//! the server, and is only shown if it is certain whose call it belongs to.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::features::JsonObject;
use crate::schema::first_mismatch;
use crate::transport::{Peer, PeerError};
use turnwright_rpc::RpcError;
use turnwright_types::client::{Client, ElicitationModes, FormOutcome, ServerForm};
use turnwright_types::effect::{escape_hidden_line, terminal_safe};
use turnwright_types::ids::CallId;
use turnwright_types::patience::timeout;
use turnwright_types::{redact, text};

/// Maximum length of a server's log message.
const MAX_LOG_CHARS: usize = 500;
const MAX_QUESTION_CHARS: usize = 4_000;
/// Maximum number of questions during one call. Further ones are declined.
const MAX_QUESTIONS: usize = 20;
/// Maximum length of the address of a page. It is shown as a whole or not at all.
const MAX_ADDRESS_BYTES: usize = 4_000;
/// The error of version 2025-11-25 for a request that requires the user to visit pages first.
const PAGES_REQUIRED: i32 = -32042;

/// Handles what one server sends.
#[derive(Clone, Debug)]
pub(crate) struct ServerMessageHandler {
    pub(crate) roots: Arc<Vec<PathBuf>>,
    /// Notified when the server's tools or prompts have changed.
    pub(crate) changed: Arc<Notify>,
    /// The server's name.
    pub(crate) server: String,
    /// The elicitations that the clients of its sessions can show.
    pub(crate) elicitation: ElicitationModes,
    pub(crate) callers: WaitingCalls,
}

impl ServerMessageHandler {
    /// Answers a request for which the user is not asked.
    pub(crate) fn answer(&self, method: &str) -> Result<Value, RpcError> {
        match method {
            "ping" => Ok(json!({})),
            "roots/list" => Ok(list_roots_result(&self.roots)),
            method => Err(RpcError::method_not_found(method)),
        }
    }

    /// Answers `elicitation/create`: asks the user if it is certain whose call the question belongs to.
    pub(crate) async fn answer_from_user(&self, params: Value) -> Value {
        match self.callers.of_only_client() {
            Some(call) => ask_user(&self.server, &call, params).await,
            None => declined(),
        }
    }

    pub(crate) fn notify(&self, method: &str, params: &Value) {
        match method {
            "notifications/tools/list_changed" | "notifications/prompts/list_changed" => {
                self.changed.notify_one();
            }
            "notifications/message" => {
                let data = params["data"].to_string();
                let text = escape_hidden_line(text::first_chars(&data, MAX_LOG_CHARS));
                tracing::debug!(server = self.server, text, "a server says");
            }
            method => tracing::debug!(server = self.server, method, "an unknown notification"),
        }
    }

    /// A handler without a listener.
    #[cfg(test)]
    pub(crate) fn silent() -> ServerMessageHandler {
        ServerMessageHandler {
            roots: Arc::default(),
            changed: Arc::default(),
            server: "s".to_owned(),
            elicitation: ElicitationModes::default(),
            callers: WaitingCalls::default(),
        }
    }
}

/// The result of `roots/list` for these folders.
pub(crate) fn list_roots_result(folders: &[PathBuf]) -> Value {
    let uris = folders.iter().filter_map(|folder| Url::from_file_path(folder).ok());
    let roots: Value = uris.map(|uri| json!({ "uri": uri.to_string() })).collect();
    json!({ "roots": roots })
}

/// The calls that wait for a server.
// Held only to look at a short list.
#[derive(Clone, Default)]
pub struct WaitingCalls(Arc<Mutex<Vec<WaitingCall>>>);

/// A call that waits for a server, with the client whose user can be asked.
#[derive(Clone)]
pub struct WaitingCall {
    /// `None` if it is the user's prompt that waits.
    pub call: Option<CallId>,
    pub client: Arc<dyn Client>,
    /// Cancelled with the turn and at the end of the call; cancels a pending question.
    pub cancel: CancellationToken,
    question_count: Arc<AtomicUsize>,
}

impl WaitingCall {
    /// Creates a call that waits until `cancel` is cancelled.
    pub fn new(call: CallId, client: Arc<dyn Client>, cancel: &CancellationToken) -> WaitingCall {
        WaitingCall { call: Some(call), ..WaitingCall::of_prompt(client, cancel) }
    }

    /// Creates the call of a prompt that waits until `cancel` is cancelled.
    pub fn of_prompt(client: Arc<dyn Client>, cancel: &CancellationToken) -> WaitingCall {
        let cancel = cancel.child_token();
        WaitingCall { call: None, client, cancel, question_count: Arc::default() }
    }
}

impl std::fmt::Debug for WaitingCalls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("WaitingCalls")
    }
}

/// Keeps a call in [`WaitingCalls`] until it is dropped.
pub struct WaitingCallGuard<'a> {
    calls: &'a WaitingCalls,
    call: WaitingCall,
}

impl Drop for WaitingCallGuard<'_> {
    fn drop(&mut self) {
        // A question of a finished call would block the next question.
        self.call.cancel.cancel();
        // Call ids are unique only within a session.
        let count = &self.call.question_count;
        self.calls.0.lock().retain(|call| !Arc::ptr_eq(&call.question_count, count));
    }
}

impl WaitingCalls {
    /// Adds a call until the returned guard is dropped.
    pub fn add(&self, call: WaitingCall) -> WaitingCallGuard<'_> {
        self.0.lock().push(call.clone());
        WaitingCallGuard { calls: self, call }
    }

    /// Returns one of the calls if all belong to the same client.
    fn of_only_client(&self) -> Option<WaitingCall> {
        let calls = self.0.lock();
        let first = calls.first()?;
        calls.iter().all(|call| Arc::ptr_eq(&call.client, &first.client)).then(|| first.clone())
    }
}

/// The result of a question that was not answered.
fn declined() -> Value {
    json!({ "action": "decline" })
}

/// The beginning of every server's form, so that it is not mistaken for the agent's own.
pub const SERVER_ASKS: &str = "The MCP server ";

/// Asks the user of one call, with the parameters of `elicitation/create`. Returns the result of that request.
pub(crate) async fn ask_user(server: &str, call: &WaitingCall, mut params: Value) -> Value {
    let page = params["url"].as_str().filter(|_| params["mode"] == "url").and_then(web_page);
    let schema = match params["mode"].as_str() {
        None | Some("form") => params.get_mut("requestedSchema").map(Value::take),
        Some(_) => page.as_ref().map(|_| json!({ "type": "object", "properties": {} })),
    };
    let (Some(Value::Object(schema)), Some(message)) = (schema, params["message"].as_str()) else {
        return declined();
    };
    if call.question_count.fetch_add(1, Ordering::Relaxed) >= MAX_QUESTIONS {
        return declined();
    }
    let asked = text::cut(terminal_safe(message.to_owned()), MAX_QUESTION_CHARS);
    let server = escape_hidden_line(server);
    let message = match &page {
        Some(page) => page_message(&server, page, &asked),
        None => format!("{SERVER_ASKS}{server} asks: {asked}"),
    };
    let mut shown = Value::Object(schema.clone());
    make_showable(&mut shown);
    let address = page.as_ref().map(Url::to_string);
    let form = ServerForm {
        call: call.call.clone(),
        message,
        schema: shown,
        page: address,
        in_background: false,
    };
    let outcome = tokio::select! {
        biased;
        // First, so that a question that waited behind another is not shown after the call's end.
        () = call.cancel.cancelled() => FormOutcome::Cancelled,
        outcome = call.client.show_form(form) => outcome,
    };
    match outcome {
        FormOutcome::Accepted(_) if page.is_some() => json!({ "action": "accept" }),
        FormOutcome::Accepted(content)
            if content.is_object() && first_mismatch(&schema, &content).is_none() =>
        {
            json!({ "action": "accept", "content": content })
        }
        FormOutcome::Accepted(_) | FormOutcome::Declined => declined(),
        FormOutcome::Cancelled => json!({ "action": "cancel" }),
    }
}

/// Sends a request other than `tools/call`, and sends it again each time that the user has visited the pages that the
/// server requires first. Returns `None` if the server does not answer within `limit`, which the user may exceed.
pub(crate) async fn request_with_pages<T: DeserializeOwned>(
    peer: &Peer,
    method: &'static str,
    params: JsonObject,
    limit: Duration,
    caller: &WaitingCall,
) -> Option<Result<T, PeerError>> {
    loop {
        let answer = timeout(limit, peer.request(method, params.clone())).await.ok()?;
        let Err(PeerError::ErrorResponse(refusal)) = &answer else { return Some(answer) };
        // It ends: only so many questions are asked during one call.
        if !visit_pages(&peer.handler().server, caller, refusal).await {
            return Some(answer);
        }
    }
}

/// Asks the user to visit pages, if a request was refused because the server requires that first. Returns true if the
/// user has visited all of them, so that the request can be sent again.
pub(crate) async fn visit_pages(server: &str, call: &WaitingCall, refusal: &RpcError) -> bool {
    let data = refusal.data.as_ref().filter(|_| refusal.code == PAGES_REQUIRED);
    let pages = data.and_then(|data| data["elicitations"].as_array());
    for page in pages.into_iter().flatten() {
        let is_page = page["mode"] == "url";
        if !is_page || ask_user(server, call, page.clone()).await["action"] != "accept" {
            return false;
        }
    }
    pages.is_some_and(|pages| !pages.is_empty())
}

/// Parses the address of a page that a user may be sent to. Returns `None` for any other address, and for one that
/// contains an API key, however often it is percent-encoded.
fn web_page(address: &str) -> Option<Url> {
    let page = Url::parse(address).ok().filter(|page| matches!(page.scheme(), "http" | "https"))?;
    let is_short = page.as_str().len() <= MAX_ADDRESS_BYTES;
    (is_short && !contains_key(page.as_str())).then_some(page)
}

/// Returns true if an address contains an API key, as it is or decoded.
fn contains_key(address: &str) -> bool {
    let mut bytes = address.as_bytes().to_vec();
    loop {
        if redact::bytes(&bytes).is_some() {
            return true;
        }
        let decoded = text::percent_decoded(&bytes);
        if decoded == bytes {
            return false;
        }
        bytes = decoded;
    }
}

/// The question whether the user wants to visit a page. The host comes first, with warnings of whatever in the address
/// may mislead. The server's text follows on the same line, so that it cannot pass for a line of ours.
fn page_message(server: &str, page: &Url, asked: &str) -> String {
    let host = page.host_str().unwrap_or_default();
    let port = page.port().map(|port| format!(":{port}")).unwrap_or_default();
    let has_user = !page.username().is_empty() || page.password().is_some();
    let possible = [
        (page.scheme() == "http", " The connection to it is not encrypted."),
        (has_user, " The user name before the host says nothing about where the page is."),
        (host.contains("xn--"), " What is written as `xn--…` can look like another name."),
    ];
    let warnings: String =
        possible.into_iter().filter_map(|(applies, warning)| applies.then_some(warning)).collect();
    let asked = escape_hidden_line(asked);
    format!(
        "{SERVER_ASKS}{server} asks you to visit a page on {host}{port}.{warnings} The server \
         says: {asked}"
    )
}

/// Escapes hidden characters in titles and descriptions. Names and values stay as they are, because the
/// answer contains them. A field that pydantic declares as a type or null gets that type: forms have no alternatives.
fn make_showable(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let types = fields.get_mut("anyOf").filter(|types| types[1]["type"] == "null");
            // Taken and not cloned: copies within copies would grow without bound.
            if let Some(Value::Object(given)) = types.map(|types| types[0].take()) {
                fields.extend(given);
            }
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "title" || name == "description" => {
                        *text = escape_hidden_line(text);
                    }
                    value => make_showable(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_showable),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_about_a_page_names_the_real_host_and_what_may_mislead() {
        let plain = "asks you to visit a page on ";
        let table = [
            ("https://example.org/a?b#c", "example.org. The server says"),
            ("HTTPS://EXAMPLE.ORG:443", "example.org. The server says"),
            ("https://example.org:8443/", "example.org:8443. The server says"),
            (
                "http://example.org/",
                "example.org. The connection to it is not encrypted. The server says",
            ),
            ("https://good.example@evil.example/", "evil.example. The user name before the host"),
            ("https://good.example:x@evil.example/", "evil.example. The user name before the host"),
            ("https://good.example\\@evil.example/", "good.example. The server says"),
            (
                "https://\u{430}pple.com/",
                "xn--pple-43d.com. What is written as `xn--…` can look like another name.",
            ),
            ("https://0x7f.1/", "127.0.0.1. The server says"),
            ("https://[::1]:9/", "[::1]:9. The server says"),
        ];
        for (address, expected) in table {
            let page = web_page(address).unwrap();
            assert!(page.as_str().is_ascii(), "{page}");
            let message = page_message("s", &page, "a\nAddress: https://good.example");
            assert!(message.contains(&format!("{plain}{expected}")), "{address}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
        for address in ["", "/a", "ftp://example.org/", "javascript:x", "data:,x", "https://a b/"] {
            assert_eq!(web_page(address), None, "{address}");
        }
    }

    #[test]
    fn types_within_optional_types_are_not_multiplied() {
        let mut schema = json!({ "type": "string" });
        for _ in 0..16 {
            let given = json!({ "type": "object", "a": schema });
            schema = json!({ "anyOf": [given, { "type": "null" }] });
        }
        make_showable(&mut schema);
        assert_eq!(schema["a"]["a"]["type"], "object");
        assert!(schema.to_string().len() < 2_000, "{schema}");
    }

    #[test]
    fn a_page_whose_address_contains_a_key_is_declined_however_it_is_encoded() {
        let key = "Hidden-4127-in-an-address";
        redact::register_keys([key.to_owned()]).unwrap();
        let mut encoded = key.to_owned();
        for _ in 0..4 {
            let address = format!("https://example.org/%ff?a={encoded}&b=%");
            assert_eq!(web_page(&address), None, "{address}");
            encoded =
                encoded.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
        }
        assert!(web_page("https://example.org/%ff?a=%2548idden-4127&b=%").is_some());
    }
}
