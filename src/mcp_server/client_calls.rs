//! The running calls of an MCP client. Sends progress for the right call, asks the client's user for permission in the
//! way that the client's protocol version supports, and makes results, which are bounded and free of control
//! characters that a terminal would interpret.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use turnwright_rpc::{Outbox, Peer};
use turnwright_store::CallOutcome;
use turnwright_types::client::{
    ChoiceKind, Client, PermissionAnswer, PermissionRequest, UserQuestion, UserReply,
};
use turnwright_types::effect::{self, CallContent};
use turnwright_types::ids::CallId;
use turnwright_types::text;
use turnwright_types::update::{CallUpdate, Update};
use turnwright_undo::{DiffLimits, DiffSide, unified_diff};

/// How long the user may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum length of a question.
const MAX_QUESTION_CHARS: usize = 8_000;
/// The limits of the diffs in a question.
const DIFF_LIMITS: DiffLimits = DiffLimits { file: 1024 * 1024, all: MAX_QUESTION_CHARS };
/// Maximum length of a progress message.
const MAX_PROGRESS_CHARS: usize = 2_000;
/// The method that asks the client's user a question.
pub(super) const ELICITATION: &str = "elicitation/create";
/// The field of the form that holds the decision.
const DECISION_FIELD: &str = "decision";
/// The reason given to the model if the client does not support elicitation.
const CANNOT_ASK: &str = "it needs the user's permission, and this client cannot ask for it";
/// Maximum size of the text in one result. Tools bound their own output and put the rest into a file;
/// this is the limit for anything that is not bounded otherwise.
const MAX_TEXT_BYTES: usize = 512 * 1024;

/// All running calls of a client.
#[derive(Debug)]
pub(super) struct ClientCalls {
    outbox: Outbox,
    // Held only to look at one call.
    by_id: Mutex<HashMap<CallId, ClientCall>>,
    next_number: AtomicU64,
}

/// A running call, with what is needed to send the client progress and questions about it.
#[derive(Debug)]
pub(super) struct ClientCall {
    /// The client's progress token, if it wants progress notifications.
    pub(super) token: Option<Value>,
    pub(super) ask_method: AskMethod,
    /// The number of progress notifications sent.
    pub(super) progress_count: u64,
}

/// The way to ask the client's user.
#[derive(Debug)]
pub(super) enum AskMethod {
    Unsupported,
    /// With an elicitation request to the client.
    Request(Peer),
    /// By returning the question as the result of the call; the client calls again with the answer.
    MultiRoundTrip(Box<QuestionRound>),
}

/// The state of a question that is asked over several rounds of the same call.
#[derive(Debug, Default)]
pub(super) struct QuestionRound {
    /// The question of the previous round, and its answer.
    pub(super) previous: Option<(PermissionRequest, PermissionAnswer)>,
    /// The question to ask in the next round.
    pub(super) pending: Option<PermissionRequest>,
}

impl ClientCalls {
    pub(super) fn new(outbox: Outbox) -> ClientCalls {
        ClientCalls { outbox, by_id: Mutex::default(), next_number: AtomicU64::new(0) }
    }

    /// Registers a call until the returned guard is dropped.
    pub(super) fn register(self: &Arc<ClientCalls>, call: ClientCall) -> CallGuard {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let id = CallId::from(format!("mcp-{number}"));
        self.by_id.lock().insert(id.clone(), call);
        CallGuard { calls: Arc::clone(self), id }
    }

    /// Sends the progress of a call. A client that reads too slowly misses progress, but not the result.
    fn send_progress(&self, update: &CallUpdate) {
        let Some([CallContent::Text(text), ..]) = update.content.as_deref() else { return };
        if self.outbox.wait_for_capacity().now_or_never().is_none() {
            return;
        }
        let mut calls = self.by_id.lock();
        let Some(call) = calls.get_mut(&update.id) else { return };
        let Some(token) = call.token.clone() else { return };
        call.progress_count += 1;
        let progress = call.progress_count;
        drop(calls);
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("```")).collect();
        let message =
            text::last_chars(&to_safe_text(&lines.join("\n")), MAX_PROGRESS_CHARS).to_owned();
        let params = json!({ "progressToken": token, "progress": progress, "message": message });
        self.outbox.notify("notifications/progress", &params);
    }
}

/// Removes a call from [`ClientCalls`] when it is dropped.
pub(super) struct CallGuard {
    calls: Arc<ClientCalls>,
    pub(super) id: CallId,
}

impl CallGuard {
    /// Takes the question that the client has to answer in another round before the call can run.
    pub(super) fn take_pending_question(&self) -> Option<PermissionRequest> {
        let mut calls = self.calls.by_id.lock();
        let AskMethod::MultiRoundTrip(round) = &mut calls.get_mut(&self.id)?.ask_method else {
            return None;
        };
        round.pending.take()
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.calls.by_id.lock().remove(&self.id);
    }
}

impl Client for ClientCalls {
    fn update(&self, update: Update) {
        match update {
            Update::CallUpdate(update) => self.send_progress(&update),
            Update::Notice(text) => tracing::warn!("{text}"),
            _ => {}
        }
    }

    fn wait_for_capacity(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.outbox.wait_for_capacity())
    }

    fn request_permission(
        &self,
        mut question: PermissionRequest,
    ) -> BoxFuture<'_, PermissionAnswer> {
        let mut calls = self.by_id.lock();
        let call = calls.get_mut(&question.call);
        // It differs between rounds, whose questions are compared.
        question.call = CallId::from("");
        let answer = match call.map(|call| &mut call.ask_method) {
            None => PermissionAnswer::Cancelled,
            Some(AskMethod::Unsupported) => PermissionAnswer::Unclear(CANNOT_ASK.to_owned()),
            Some(AskMethod::Request(peer)) => return elicit(peer.clone(), question).boxed(),
            Some(AskMethod::MultiRoundTrip(round)) => match round.previous.take() {
                Some((previous, answer)) if previous == question => answer,
                _ => {
                    round.pending = Some(question);
                    PermissionAnswer::Cancelled
                }
            },
        };
        std::future::ready(answer).boxed()
    }

    fn ask_user(&self, _: UserQuestion) -> BoxFuture<'_, UserReply> {
        std::future::ready(UserReply::Unsupported).boxed()
    }
}

async fn elicit(peer: Peer, question: PermissionRequest) -> PermissionAnswer {
    let Some(form) = elicitation(&question).await else {
        return PermissionAnswer::Unclear("the question could not be shown".to_owned());
    };
    match peer.request(ELICITATION, &form, ANSWER_TIMEOUT).await {
        Ok(result) => {
            parse_answer(&serde_json::from_str(result.get()).unwrap_or_default(), &question)
        }
        Err(error) => PermissionAnswer::Unclear(format!("the client did not answer: {error}")),
    }
}

/// Makes the parameters of the elicitation request, on a blocking thread because the diff may be long.
pub(super) async fn elicitation(question: &PermissionRequest) -> Option<Value> {
    let question = question.clone();
    spawn_blocking(move || form(&question)).await.ok()
}

fn form(question: &PermissionRequest) -> Value {
    let names: Vec<_> = question.choices.iter().map(|choice| choice.name.as_str()).collect();
    json!({
        "mode": "form",
        "message": question_text(question),
        "requestedSchema": {
            "type": "object",
            "properties": {
                DECISION_FIELD: { "type": "string", "title": "Your decision", "enum": names },
            },
            "required": [DECISION_FIELD],
        },
    })
}

/// Reads the user's decision. Only an offered choice that comes with the action "accept" can grant permission.
pub(super) fn parse_answer(result: &Value, question: &PermissionRequest) -> PermissionAnswer {
    match result["action"].as_str() {
        Some("accept") => {
            let decision = result["content"][DECISION_FIELD].as_str();
            let mut choices = question.choices.iter();
            match choices.find(|choice| decision == Some(choice.name.as_str())) {
                Some(choice) => PermissionAnswer::Chosen(choice.kind),
                None => {
                    PermissionAnswer::Unclear("the answer is not one of the choices".to_owned())
                }
            }
        }
        Some("decline") => PermissionAnswer::Chosen(ChoiceKind::RejectOnce),
        Some("cancel") => PermissionAnswer::Cancelled,
        _ => PermissionAnswer::Unclear("the answer is malformed".to_owned()),
    }
}

/// Formats the question as text: the effects of the call, and the reason for asking.
fn question_text(question: &PermissionRequest) -> String {
    let mut text = format!("Allow this call of {}?\n\n{}", question.name, question.view.title);
    let mut budget = DIFF_LIMITS.all;
    for content in &question.content {
        text.push_str("\n\n");
        text.push_str(&content_text(content, &mut budget));
    }
    let mark = "\n[… the rest of the question is too long to show]";
    text::clip_with(to_safe_text(&text), MAX_QUESTION_CHARS, mark)
}

fn content_text(content: &CallContent, budget: &mut usize) -> String {
    match content {
        CallContent::Text(text) => text.clone(),
        CallContent::Diff { path, old, new, .. } => {
            let old = match old {
                Some(text) => DiffSide::Bytes(text.clone().into_bytes()),
                None => DiffSide::Absent,
            };
            unified_diff(
                path.display().to_string().trim_start_matches('/'),
                &old,
                &DiffSide::Bytes(new.clone().into_bytes()),
                DIFF_LIMITS,
                budget,
            )
        }
        CallContent::Image(media) => format!("[an image, {}]", media.mime),
        CallContent::Terminal(_) | CallContent::Session(_) => String::new(),
    }
}

pub(super) fn call_result(outcome: CallOutcome) -> Value {
    let mut content = vec![json!({ "type": "text", "text": to_safe_text(&outcome.text) })];
    let images = outcome.images.into_iter();
    content.extend(
        images.map(|image| json!({ "type": "image", "data": image.data, "mimeType": image.mime })),
    );
    json!({ "content": content, "isError": !outcome.is_success })
}

/// Truncates a text and replaces its control characters with control pictures.
fn to_safe_text(text: &str) -> String {
    text::clip_bytes(effect::terminal_safe(text.to_owned()), MAX_TEXT_BYTES, "\n[truncated]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::client::PermissionChoice;
    use turnwright_types::effect::{CallView, ToolKind};

    fn question() -> PermissionRequest {
        let choice = |kind, name: &str| PermissionChoice { kind, name: name.to_owned() };
        PermissionRequest {
            call: CallId::from("1"),
            name: "write_file".to_owned(),
            view: CallView::new("Write a", ToolKind::Edit),
            content: vec![CallContent::Text("why".to_owned())],
            raw_input: Value::Null,
            choices: vec![
                choice(ChoiceKind::AllowOnce, "Allow once"),
                choice(ChoiceKind::RejectOnce, "Reject"),
            ],
            is_bounded: false,
            in_background: false,
        }
    }

    #[test]
    fn only_an_offered_choice_with_accept_is_a_permission() {
        let yes = PermissionAnswer::Chosen(ChoiceKind::AllowOnce);
        for (result, expected) in [
            (json!({ "action": "accept", "content": { "decision": "Allow once" } }), Some(yes)),
            (
                json!({ "action": "decline" }),
                Some(PermissionAnswer::Chosen(ChoiceKind::RejectOnce)),
            ),
            (json!({ "action": "cancel" }), Some(PermissionAnswer::Cancelled)),
            (json!({ "action": "accept" }), None),
            (json!({ "action": "accept", "content": {} }), None),
            (json!({ "action": "accept", "content": { "decision": "allow once" } }), None),
            (json!({ "action": "accept", "content": { "decision": true } }), None),
            (json!({ "action": "yes", "content": { "decision": "Allow once" } }), None),
            (json!({ "content": { "decision": "Allow once" } }), None),
            (json!(null), None),
        ] {
            let answer = parse_answer(&result, &question());
            match expected {
                Some(expected) => assert_eq!(answer, expected, "{result}"),
                None => {
                    assert!(matches!(answer, PermissionAnswer::Unclear(_)), "{result}: {answer:?}");
                }
            }
        }
    }

    #[test]
    fn the_form_describes_the_call_and_offers_the_choices() {
        let params = form(&question());
        assert_eq!(params["message"], "Allow this call of write_file?\n\nWrite a\n\nwhy");
        let field = &params["requestedSchema"]["properties"]["decision"];
        assert_eq!(field["enum"], json!(["Allow once", "Reject"]));
    }

    #[test]
    fn a_result_is_truncated_and_its_control_characters_become_pictures() {
        assert_eq!(to_safe_text("a\tb\n\u{1b}[2Jé"), "a\tb\n␛[2Jé");
        assert!(to_safe_text(&"é".repeat(MAX_TEXT_BYTES)).len() < MAX_TEXT_BYTES + 100);
    }
}
