//! One tool call in flight: its timeouts, the progress that the server reports of it, the server's input
//! requests, its cancellation, and its result as typed blocks.

pub(crate) mod server_requests;
mod task;

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::features::{ContentBlock, JsonObject, ResourceContents};
use crate::schema::model_schema::bounded_text;
use crate::server::Server;
use crate::server::spec::ServerTransport;
use crate::transport::{Peer, PeerError, Response};
use server_requests::{ServerMessageHandler, WaitingCall};
use turnwright_types::effect::{CallContent, escape_hidden, escape_hidden_line};
use turnwright_types::patience::{sleep_until, timeout};
use turnwright_types::text::escape_markdown;
use turnwright_types::update::{CallUpdate, ToolCallStatus, Update};
use turnwright_workspace::files::{blob_text, read_picture};

/// The minimum delay between the first progress updates of a call.
const FIRST_PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// The minimum delay between its later progress updates.
const LATER_PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// The number of the first progress update that counts as later.
const FIRST_LATER_UPDATE: u32 = 20;
/// The maximum number of times that a call is sent. Each time the server may ask for more input instead of
/// answering.
const MAX_ROUNDS: usize = 10;
/// The delay before a call is sent again if the server has not requested any input.
const ROUND_DELAY: Duration = Duration::from_millis(250);
const MAX_ERROR_CHARS: usize = 2_000;
/// Maximum length of a progress message.
const MAX_MESSAGE_CHARS: usize = 300;

/// Why a call has no result.
#[derive(Debug)]
pub enum CallError {
    /// The connection has ended.
    ConnectionLost,
    /// The call failed; this text tells the model why.
    Failed(String),
}

impl From<String> for CallError {
    fn from(message: String) -> CallError {
        CallError::Failed(message)
    }
}

/// Calls a tool and waits for its result. The peer and the number of its connection are those of
/// [`Server::peer`]. The server may ask the user questions through `caller`.
pub async fn call(
    server: &Server,
    (peer, connection): (&Peer, u64),
    (tool, arguments): (&str, JsonObject),
    caller: &WaitingCall,
) -> Result<ToolResult, CallError> {
    let mut call = CallInFlight::new(server, (peer.clone(), connection), caller);
    let params = JsonObject::from_iter([
        ("name".to_owned(), tool.into()),
        ("arguments".to_owned(), Value::Object(arguments)),
    ]);
    let mut answers = JsonObject::new();
    for _ in 0..MAX_ROUNDS {
        let mut round_params = params.clone();
        round_params.append(&mut answers);
        let mut response = send_once(round_params, &mut call).await?;
        if let Err(PeerError::ErrorResponse(refusal)) = &response
            && server_requests::visit_pages(&server.spec.name, caller, refusal).await
        {
            continue;
        }
        // Some servers list their tools for everyone, but run them only for users who have logged in.
        if let Err(PeerError::Rejected(why)) = &mut response
            && let ServerTransport::Http { headers, .. } = &server.spec.transport
            && headers.is_empty()
            && why.starts_with("HTTP 401")
        {
            *why = format!("{} ({why})", server.spec.login_instructions());
        }
        let answer = response.map_err(|error| call_error(&error))?;
        let mut result: Value =
            serde_json::from_str(answer.get()).map_err(|_| call_error(&PeerError::Malformed))?;
        match result["resultType"].as_str() {
            Some("input_required") => {
                answers = answer_input_requests(result, peer.handler(), caller).await?;
                continue;
            }
            Some("task") => {
                result = task::follow(result, &mut call).await?;
                let kind = &result["resultType"];
                if !kind.is_null() && kind != "complete" {
                    return Err(unusable("the call's task has ended without its result").into());
                }
            }
            _ => {}
        }
        return ToolResult::parse(result).ok_or_else(|| unusable("it is not a tool result").into());
    }
    Err(unusable("it kept asking for more input").into())
}

fn unusable(why: &str) -> String {
    format!("The server has answered, but {why}. What it has done is not known.")
}

/// Answers a result that requires input. Returns the parameters that are added when the call is sent again: the
/// answers, and the server's own state.
async fn answer_input_requests(
    mut required: Value,
    handler: &ServerMessageHandler,
    caller: &WaitingCall,
) -> Result<JsonObject, String> {
    let state = required.get_mut("requestState").map(Value::take).filter(Value::is_string);
    let mut answers = match required.get_mut("inputRequests").map(Value::take) {
        Some(Value::Object(requests)) if !requests.is_empty() => {
            answer_each(requests, handler, caller).await?
        }
        _ if state.is_none() => return Err(unusable("it wants more input and does not say what")),
        _ => {
            let pause = tokio::time::sleep(ROUND_DELAY);
            caller.cancel.run_until_cancelled(pause).await.ok_or_else(cancelled)?;
            JsonObject::new()
        }
    };
    answers.extend(state.map(|state| ("requestState".to_owned(), state)));
    Ok(answers)
}

/// Answers input requests, by their keys. Returns the parameter with the answers.
async fn answer_each(
    requests: JsonObject,
    handler: &ServerMessageHandler,
    caller: &WaitingCall,
) -> Result<JsonObject, String> {
    let mut responses = JsonObject::new();
    for (key, mut request) in requests {
        let params = request.get_mut("params").map(Value::take).unwrap_or_default();
        let response = match request["method"].as_str() {
            Some("elicitation/create") => {
                server_requests::ask_user(&handler.server, caller, params).await
            }
            Some("roots/list") => server_requests::list_roots_result(&handler.roots),
            _ => return Err(unusable("it asks for something that is not supported")),
        };
        responses.insert(key, response);
    }
    Ok(JsonObject::from_iter([("inputResponses".to_owned(), Value::Object(responses))]))
}

/// Sends the call once and waits for the response.
async fn send_once(params: JsonObject, call: &mut CallInFlight<'_>) -> Result<Response, CallError> {
    let waiting = timeout(call.server.spec.timeouts.call, call.peer.0.wait_for_capacity());
    let waited = call.caller.cancel.run_until_cancelled(waiting).await.ok_or_else(cancelled)?;
    waited.map_err(|_| "The server does not read calls. Nothing was done.".to_owned())?;
    let mut running = call.peer.0.start("tools/call", params);
    call.latest = running.progress();
    call.note_progress(String::new());
    let answered = call.within_limits(running.response()).await;
    answered.inspect_err(|why| running.give_up(why)).map_err(CallError::from)
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

/// Converts an error of the protocol. A failure of the tool itself arrives as a result.
pub(crate) fn call_error(error: &PeerError) -> CallError {
    let message = match error {
        PeerError::ErrorResponse(error) => {
            let data = error.data.as_ref().map(|data| match data.as_str() {
                Some(text) => format!(" {text}"),
                None => format!(" {data}"),
            });
            let said = format!("{}{}", error.message, data.unwrap_or_default());
            let text = bounded_text(&escape_hidden(&said), MAX_ERROR_CHARS);
            format!("The server refused the call (error {}): {text}", error.code)
        }
        PeerError::Closed => return CallError::ConnectionLost,
        PeerError::Transport(why) => {
            let why = bounded_text(&escape_hidden(why), MAX_ERROR_CHARS);
            format!("The call failed in transport: {why}\nIt may have been partly executed.")
        }
        PeerError::Rejected(why) => {
            let why = bounded_text(&escape_hidden(why), MAX_ERROR_CHARS);
            format!("The server turned the call away: {why}\nIt was not executed.")
        }
        PeerError::Malformed => format!("The call failed: {error}"),
    };
    CallError::Failed(message)
}

/// A call in flight: its time limits, and its progress, which is shown on its card at a readable rate.
struct CallInFlight<'a> {
    server: &'a Server,
    /// The server's peer, with the number of its connection.
    peer: (Peer, u64),
    caller: &'a WaitingCall,
    deadline: Instant,
    /// Moved each time there is progress.
    idle_deadline: Instant,
    /// Receives the progress that the server reports.
    latest: watch::Receiver<Progress>,
    /// The progress to show next. Only the latest is shown.
    unshown: Option<String>,
    next_update: Instant,
    update_count: u32,
}

impl<'a> CallInFlight<'a> {
    /// Creates a call that begins now.
    fn new(server: &'a Server, peer: (Peer, u64), caller: &'a WaitingCall) -> CallInFlight<'a> {
        let now = Instant::now();
        CallInFlight {
            server,
            peer,
            caller,
            deadline: now + server.spec.timeouts.call_total,
            idle_deadline: now + server.spec.timeouts.call,
            latest: watch::Sender::default().subscribe(),
            unshown: None,
            next_update: now,
            update_count: 0,
        }
    }

    /// Shows this progress soon, if it has a text, and gives the call more time.
    fn note_progress(&mut self, progress: String) {
        if !progress.is_empty() {
            self.unshown = Some(progress);
        }
        self.idle_deadline = Instant::now() + self.server.spec.timeouts.call;
    }

    /// Waits for a future until the call is cancelled or has taken too long, and shows progress meanwhile.
    ///
    /// # Errors
    /// If the call must end; the text is for the model.
    async fn within_limits<T>(&mut self, future: impl Future<Output = T>) -> Result<T, String> {
        let caller = self.caller;
        let deadline = self.deadline;
        let limits = self.server.spec.timeouts;
        let mut waiting = pin!(future);
        let why = loop {
            let idle = self.idle_deadline;
            tokio::select! {
                biased;
                output = &mut waiting => return Ok(output),
                () = caller.cancel.cancelled() => break cancelled(),
                () = sleep_until(deadline) => break timed_out(limits.call_total, "it ran for"),
                () = sleep_until(idle) => break timed_out(limits.call, "there was no progress for"),
                () = self.next_progress() => {}
            }
        };
        Err(why)
    }

    /// Waits for new progress, and shows earlier progress as soon as the rate allows it.
    async fn next_progress(&mut self) {
        loop {
            // A sleep until a time in the past would end only at the next tick of the runtime's timer.
            let next_update = self.next_update.max(Instant::now());
            tokio::select! {
                biased;
                // An error means that the sender is gone: there will be no more progress.
                Ok(()) = self.latest.changed() => {
                    let text = self.latest.borrow_and_update().1.clone();
                    return self.note_progress(text);
                }
                () = sleep_until(next_update), if self.unshown.is_some() => self.show(),
                else => std::future::pending::<()>().await,
            }
        }
    }

    fn show(&mut self) {
        let Some(text) = self.unshown.take() else { return };
        self.update_count += 1;
        let is_early = self.update_count < FIRST_LATER_UPDATE;
        let interval = if is_early { FIRST_PROGRESS_INTERVAL } else { LATER_PROGRESS_INTERVAL };
        self.next_update = Instant::now() + interval;
        // A client that does not read misses progress, but not the result.
        if let Some(call) = self.caller.call.clone()
            && self.caller.client.wait_for_capacity().now_or_never().is_some()
        {
            let mut update = CallUpdate::new(call, ToolCallStatus::InProgress);
            let server = escape_hidden_line(&self.server.spec.name);
            let said = escape_markdown(&format!("{server}: {text}"));
            update.content = Some(vec![CallContent::Text(said)]);
            self.caller.client.update(Update::CallUpdate(Box::new(update)));
        }
    }
}

impl Drop for CallInFlight<'_> {
    fn drop(&mut self) {
        // The tool may have changed what the server's resources say.
        self.peer.0.forget_results("resources/");
    }
}

/// The part of a call that is done, as a number and as text.
pub(crate) type Progress = (f64, String);

/// Reads the parameters of a progress notification: the token of the call that they are about, and its progress.
pub(crate) fn read_progress(params: &Value) -> Option<(u64, Progress)> {
    let sent = &params["progressToken"];
    // Some servers turn the number into a string.
    let token = sent.as_u64().or_else(|| sent.as_str()?.parse().ok())?;
    let done = params["progress"].as_f64()?;
    let message = one_line(params["message"].as_str().unwrap_or_default(), MAX_MESSAGE_CHARS);
    Some((token, (done, progress_text(done, params["total"].as_f64(), &message))))
}

/// A server's text as one line.
fn one_line(said: &str, max_chars: usize) -> String {
    bounded_text(&escape_hidden_line(said), max_chars)
}

/// Formats progress for the card of its call.
fn progress_text(done: f64, total: Option<f64>, message: &str) -> String {
    let number = match total {
        Some(total) if total > 0.0 => format!("{done} of {total}"),
        _ => done.to_string(),
    };
    if message.is_empty() { number } else { format!("{message} ({number})") }
}

/// The result of a tool call.
#[derive(Debug, Default, PartialEq)]
pub struct ToolResult {
    pub blocks: Vec<ResultBlock>,
    pub structured: Option<Value>,
    /// The tool reports a failure.
    pub is_error: bool,
}

/// One block of a result. Base64 data is not validated.
#[derive(Debug, PartialEq)]
pub enum ResultBlock {
    Text(String),
    Image {
        mime: String,
        data: String,
    },
    Audio {
        mime: String,
        data: String,
    },
    /// The text of a resource.
    Embedded {
        uri: String,
        text: String,
    },
    /// The bytes of a resource.
    Blob {
        uri: String,
        mime: String,
        data: String,
    },
    /// A link to a resource.
    Link {
        uri: String,
        name: String,
        mime: String,
        description: String,
        size: Option<u64>,
    },
    /// A block whose type, which is named here, is not supported.
    Unknown(String),
}

impl ToolResult {
    /// Reads a result, block by block, however malformed it is. Returns `None` if it is not a result at all.
    pub(crate) fn parse(mut result: Value) -> Option<ToolResult> {
        if result.is_string() || result.is_array() {
            result = json!({ "content": result });
        }
        let fields = result.as_object_mut()?;
        fields.retain(|name, _| !matches!(name.as_str(), "_meta" | "resultType"));
        if fields.is_empty() {
            return Some(ToolResult::default());
        }
        let is_error = fields.remove("isError") == Some(Value::Bool(true));
        let mut structured = fields.remove("structuredContent").filter(|value| !value.is_null());
        let blocks = match fields.remove("content") {
            Some(Value::Array(blocks)) => blocks.iter().map(parse_block).collect(),
            // Some servers send this instead of a list.
            Some(Value::String(text)) => vec![ResultBlock::Text(text)],
            Some(one @ Value::Object(_)) => vec![parse_block(&one)],
            _ => Vec::new(),
        };
        if (is_error || blocks.is_empty()) && structured.is_none() && !fields.is_empty() {
            // Some servers put the details of a failure, or their whole answer, in fields of their own.
            structured = Some(result);
        }
        Some(ToolResult { blocks, structured, is_error })
    }
}

/// Reads a block. A value that is not a block of the protocol becomes its text, unless it has fewer than two
/// fields or contains the data of a file.
pub fn parse_block(value: &Value) -> ResultBlock {
    let known = ContentBlock::deserialize(value).ok().and_then(ResultBlock::of);
    if let Some(block) = known {
        return block;
    }
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    let is_text = kind.is_empty() || kind == "text";
    match value.get("text").filter(|_| is_text).unwrap_or(value) {
        Value::String(text) => ResultBlock::Text(text.clone()),
        Value::Object(fields) if fields.contains_key("data") || fields.len() < 2 => {
            ResultBlock::Unknown(kind.to_owned())
        }
        other => ResultBlock::Text(other.to_string()),
    }
}

impl ResultBlock {
    /// Decodes a resource in base64, whose media type may be wrong: text or a picture becomes a block of that kind. It
    /// may be large, so this must run on a blocking thread.
    #[must_use]
    pub fn decoded(self) -> ResultBlock {
        match self {
            ResultBlock::Blob { uri, mime, data } => match blob_text(&data) {
                Some(text) => ResultBlock::Embedded { uri, text },
                None if mime.starts_with("image/") || read_picture(data.clone()).is_ok() => {
                    ResultBlock::Image { mime, data }
                }
                None => ResultBlock::Blob { uri, mime, data },
            },
            other => other,
        }
    }

    /// Converts a block; `None` if its type is unknown.
    fn of(block: ContentBlock) -> Option<ResultBlock> {
        Some(match block {
            ContentBlock::Text { text } => ResultBlock::Text(text),
            ContentBlock::Image { data, mime_type } => ResultBlock::Image { mime: mime_type, data },
            ContentBlock::Audio { data, mime_type } => ResultBlock::Audio { mime: mime_type, data },
            ContentBlock::Resource { resource } => resource.into(),
            ContentBlock::ResourceLink(link) => ResultBlock::Link {
                uri: link.uri,
                name: link.title.unwrap_or(link.name),
                mime: link.mime_type.unwrap_or_default(),
                description: link.description.unwrap_or_default(),
                size: link.size,
            },
            ContentBlock::Unknown => return None,
        })
    }
}

impl From<ResourceContents> for ResultBlock {
    fn from(contents: ResourceContents) -> ResultBlock {
        let ResourceContents { uri, mime_type, text, blob } = contents;
        let mime = mime_type.unwrap_or_default();
        match (text, blob) {
            (Some(text), _) => ResultBlock::Embedded { uri, text },
            (None, Some(data)) => ResultBlock::Blob { uri, mime, data },
            (None, None) => ResultBlock::Unknown("resource".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_in_base64_is_what_its_bytes_are() {
        let table = [
            ("text/plain", "cG9ydCA9IDgwODAK", Some("port = 8080\n"), false),
            ("image/svg+xml", "PHN2Zy8+", Some("<svg/>"), false),
            ("application/png", "iVBORw0KGgoA", None, true),
            ("", "iVBORw0KGgoA", None, true),
            ("text/plain", "AAAA", None, false),
        ];
        for (mime, data, text, is_picture) in table {
            let resource = json!({ "uri": "x://y", "mimeType": mime, "blob": data });
            let block = json!({ "type": "resource", "resource": resource });
            match parse_block(&block).decoded() {
                ResultBlock::Embedded { text: read, .. } => assert_eq!(Some(&*read), text),
                ResultBlock::Image { .. } => assert!(is_picture, "{mime}"),
                _ => assert!(text.is_none() && !is_picture, "{mime}"),
            }
        }
    }

    #[test]
    fn progress_is_formatted() {
        let table = [
            (3.0, Some(10.0), "reading", "reading (3 of 10)"),
            (0.5, None, "", "0.5"),
            (1.0, Some(0.0), "a", "a (1)"),
        ];
        for (done, total, message, expected) in table {
            assert_eq!(progress_text(done, total, message), expected);
        }
    }

    #[test]
    fn one_malformed_block_does_not_hide_the_others() {
        let text = || ResultBlock::Text("a".to_owned());
        let table = [
            (json!({ "content": [{ "type": "text", "text": "a" }] }), vec![text()]),
            (
                json!({ "content": [{ "type": "text", "text": "a" }, { "type": "video", "data": "" }] }),
                vec![text(), ResultBlock::Unknown("video".to_owned())],
            ),
            (
                json!({ "content": [{ "type": "text" }, 7, { "type": "text", "text": "a" }] }),
                vec![
                    ResultBlock::Unknown("text".to_owned()),
                    ResultBlock::Text("7".to_owned()),
                    text(),
                ],
            ),
            (json!({ "content": ["a", { "text": "a" }] }), vec![text(), text()]),
            (
                json!({ "content": [{ "type": "json", "json": [1] }, { "type": "text", "text": 42 }] }),
                vec![
                    ResultBlock::Text(r#"{"type":"json","json":[1]}"#.to_owned()),
                    ResultBlock::Text("42".to_owned()),
                ],
            ),
            (json!("a"), vec![text()]),
            (json!([{ "type": "text", "text": "a" }]), vec![text()]),
            (json!({ "content": "a" }), vec![text()]),
            (json!({ "content": { "type": "text", "text": "a" } }), vec![text()]),
        ];
        for (result, blocks) in table {
            assert_eq!(ToolResult::parse(result.clone()).unwrap().blocks, blocks, "{result}");
        }
        let bare = ToolResult::parse(json!({ "toolResult": 1 })).unwrap();
        assert_eq!(bare.structured, Some(json!({ "toolResult": 1 })));
        assert_eq!(ToolResult::parse(json!(7)), None);
        for empty in [
            json!({}),
            json!({ "_meta": {} }),
            json!({ "_meta": { "replica": "r1" }, "resultType": "complete" }),
            json!({ "isError": false }),
            json!({ "structuredContent": null }),
        ] {
            assert_eq!(ToolResult::parse(empty.clone()), Some(ToolResult::default()), "{empty}");
        }
        let sum = ToolResult::parse(json!({ "structuredContent": { "sum": 12 } })).unwrap();
        assert_eq!((sum.structured, sum.blocks), (Some(json!({ "sum": 12 })), Vec::new()));
        let failed = ToolResult::parse(json!({ "isError": true, "content": null })).unwrap();
        assert!(failed.is_error && failed.blocks.is_empty() && failed.structured.is_none());
        let failed = ToolResult::parse(json!({ "isError": true, "details": [1], "content": "a" }));
        assert_eq!(failed.unwrap().structured, Some(json!({ "details": [1] })));
    }
}
