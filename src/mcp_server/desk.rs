//! Where the calls of the client are known: progress goes back to the one that it is of, and a
//! question to the client's user, in whatever way its revision of the protocol has.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{ElicitRequest, ElicitRequestParams, ProgressToken, ServerRequest};
use rmcp::service::{Peer, PeerRequestOptions};
use serde_json::{Value, json};

use super::reply::plain;
use turnwright_types::client::{Answer, Choice, ChoiceKind, Client, Inquiry, Question, Reply};
use turnwright_types::effect::Content;
use turnwright_types::ids::CallId;
use turnwright_rpc::Outbox;
use crate::undo::{Bounds, Side, unified};
use turnwright_types::update::{CallUpdate, Update};

/// How long the user may think.
const PATIENCE: Duration = Duration::from_secs(600);
/// Characters of a question.
const LONGEST_QUESTION: usize = 8_000;
/// How much of a change is compared and shown.
const BOUNDS: Bounds = Bounds { file: 1024 * 1024, all: LONGEST_QUESTION };
/// Characters of a progress message.
const LONGEST_NEWS: usize = 2_000;
/// The field of the form.
const FIELD: &str = "decision";
/// What is said where nobody can be asked.
const NOBODY: &str = "it has to be asked about, and this client cannot ask its user";

/// All calls.
#[derive(Debug)]
pub(super) struct Desk {
    outbox: Outbox,
    // A std mutex: held to look up one call.
    callers: Mutex<HashMap<CallId, Arc<Caller>>>,
    last: AtomicU64,
}

/// One call, as its client knows it.
#[derive(Debug)]
pub(super) struct Caller {
    /// What the client calls its progress, if it wants to know.
    pub(super) token: Option<ProgressToken>,
    /// How its user can be asked.
    pub(super) way: Way,
    pub(super) told: AtomicU64,
}

/// How the user of a client can be asked.
#[derive(Debug)]
pub(super) enum Way {
    /// Not at all.
    No,
    /// By a request of ours.
    Request(Peer<RoleServer>),
    /// The call ends with the question, and comes again with the answer.
    // A std mutex: held to put in or take out one thing.
    Rounds(Box<Mutex<Round>>),
}

impl Caller {
    /// What is to be asked before the call can run, if that takes another round.
    pub(super) fn question(&self) -> Option<Question> {
        let Way::Rounds(round) = &self.way else { return None };
        round.lock().unwrap_or_else(PoisonError::into_inner).now.take()
    }
}

/// What is known of a question that takes another round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// What was asked before, and answered.
    pub(super) before: Option<(Question, Answer)>,
    /// What is to be asked now.
    pub(super) now: Option<Question>,
}

impl Desk {
    pub(super) fn new(outbox: Outbox) -> Desk {
        Desk { outbox, callers: Mutex::default(), last: AtomicU64::new(0) }
    }

    /// A call begins. It is known until what is returned is dropped.
    pub(super) fn begin(self: &Arc<Desk>, caller: Caller) -> Begun {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let id = CallId::from(format!("mcp-{number}"));
        let caller = Arc::new(caller);
        self.callers().insert(id.clone(), Arc::clone(&caller));
        Begun { desk: Arc::clone(self), id, caller }
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<CallId, Arc<Caller>>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn caller(&self, id: &CallId) -> Option<Arc<Caller>> {
        self.callers().get(id).cloned()
    }

    /// Tells how far a call is. A client that does not read misses news, not the result.
    fn progress(&self, update: &CallUpdate) {
        let Some(caller) = self.caller(&update.id) else { return };
        let Some(token) = &caller.token else { return };
        let Some([Content::Text(text), ..]) = update.content.as_deref() else { return };
        if self.outbox.room().now_or_never().is_none() {
            return;
        }
        let progress = caller.told.fetch_add(1, Ordering::Relaxed) + 1;
        let lines = text.lines().filter(|it| !it.starts_with("```"));
        let lines: Vec<_> = lines.collect();
        let message = tail(&plain(&lines.join("\n")), LONGEST_NEWS).to_owned();
        let news = json!({ "progressToken": token, "progress": progress, "message": message });
        self.outbox.notify("notifications/progress", &news);
    }
}

/// The end of a text.
fn tail(text: &str, most: usize) -> &str {
    let skipped = text.chars().count().saturating_sub(most);
    text.char_indices().nth(skipped).map_or("", |(at, _)| &text[at..])
}

/// A call that has begun.
pub(super) struct Begun {
    desk: Arc<Desk>,
    pub(super) id: CallId,
    pub(super) caller: Arc<Caller>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.desk.callers().remove(&self.id);
    }
}

impl Client for Desk {
    fn update(&self, update: Update) {
        match update {
            Update::CallUpdate(update) => self.progress(&update),
            Update::Notice(text) => tracing::warn!("{text}"),
            _ => {}
        }
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.outbox.room())
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        let caller = self.caller(&question.call);
        async move {
            let Some(caller) = caller else { return Answer::Cancelled };
            let question = offered(question);
            match &caller.way {
                Way::No => Answer::Unclear(NOBODY.to_owned()),
                Way::Request(peer) => request(peer, &question).await,
                Way::Rounds(round) => {
                    let mut round = round.lock().unwrap_or_else(PoisonError::into_inner);
                    match round.before.take() {
                        Some((before, answer)) if before == question => answer,
                        _ => {
                            round.now = Some(question);
                            Answer::Cancelled
                        }
                    }
                }
            }
        }
        .boxed()
    }

    fn inquire(&self, _: Inquiry) -> BoxFuture<'_, Reply> {
        std::future::ready(Reply::Impossible).boxed()
    }
}

/// The question as it is asked here. The same call has another name when it comes again, and what is
/// for the project is said in its settings.
fn offered(mut question: Question) -> Question {
    question.call = CallId::from("");
    question.choices.retain(|it| it.kind != ChoiceKind::AllowProject);
    question
}

async fn request(peer: &Peer<RoleServer>, question: &Question) -> Answer {
    let unclear = |why: String| Answer::Unclear(why);
    let Some(request) = elicitation(question).await else {
        return unclear("the question could not be put into words".to_owned());
    };
    let request = ServerRequest::ElicitRequest(request);
    let options = PeerRequestOptions::with_timeout(PATIENCE);
    let handle = match peer.send_request_with_option(request, options).await {
        Ok(handle) => handle,
        Err(error) => return unclear(format!("the client could not be asked: {error}")),
    };
    match handle.await_response().await {
        Ok(result) => answer(&serde_json::to_value(&result).unwrap_or_default(), question),
        Err(error) => unclear(format!("the client has not answered: {error}")),
    }
}

/// The form, made off the runtime's thread: the change may be a long one.
pub(super) async fn elicitation(question: &Question) -> Option<ElicitRequest> {
    let question = question.clone();
    tokio::task::spawn_blocking(move || form(&question)).await.ok()?
}

fn form(question: &Question) -> Option<ElicitRequest> {
    let names: Vec<_> = question.choices.iter().map(|it| it.name.as_str()).collect();
    let params = json!({
        "mode": "form",
        "message": words(question),
        "requestedSchema": {
            "type": "object",
            "properties": {
                FIELD: { "type": "string", "title": "Your decision", "enum": names },
            },
            "required": [FIELD],
        },
    });
    let params: ElicitRequestParams = serde_json::from_value(params).ok()?;
    Some(ElicitRequest::new(params))
}

/// What the user has said. Only one of the offered answers, taken with "accept", can be a yes.
pub(super) fn answer(result: &Value, question: &Question) -> Answer {
    let said = |it: &&Choice| result["content"][FIELD].as_str() == Some(it.name.as_str());
    match result["action"].as_str() {
        Some("accept") => match question.choices.iter().find(said) {
            Some(choice) => Answer::Chosen(choice.kind),
            None => Answer::Unclear("the answer is none of those that were offered".to_owned()),
        },
        Some("decline") => Answer::Chosen(ChoiceKind::RejectOnce),
        Some("cancel") => Answer::Cancelled,
        _ => Answer::Unclear("the answer makes no sense".to_owned()),
    }
}

/// The question in words: what would be done, and what is thought of it.
fn words(question: &Question) -> String {
    let mut text = format!("Allow this call of {}?\n\n{}", question.name, question.view.title);
    let mut room = BOUNDS.all;
    for content in &question.content {
        text.push_str("\n\n");
        text.push_str(&shown(content, &mut room));
    }
    let text = plain(&text);
    match text.char_indices().nth(LONGEST_QUESTION) {
        Some((end, _)) => format!("{}\n[… the question is longer than can be shown]", &text[..end]),
        None => text,
    }
}

fn shown(content: &Content, room: &mut usize) -> String {
    match content {
        Content::Text(text) => text.clone(),
        Content::Diff { path, old, new } => {
            let side = |it: &String| Side::Bytes(it.clone().into_bytes());
            let old = old.as_ref().map_or(Side::Nothing, side);
            unified(
                path.display().to_string().trim_start_matches('/'),
                &old,
                &side(new),
                BOUNDS,
                room,
            )
        }
        Content::Image(media) => format!("[a picture, {}]", media.mime),
        Content::Terminal(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::effect::{CallView, Kind};

    fn question() -> Question {
        let choice = |kind, name: &str| Choice { kind, name: name.to_owned() };
        Question {
            call: CallId::from("1"),
            name: "write_file".to_owned(),
            view: CallView { title: "Write a".to_owned(), kind: Kind::Edit, locations: Vec::new() },
            content: vec![Content::Text("why".to_owned())],
            raw_input: Value::Null,
            choices: vec![
                choice(ChoiceKind::AllowOnce, "Allow once"),
                choice(ChoiceKind::RejectOnce, "Reject"),
            ],
        }
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        let yes = Answer::Chosen(ChoiceKind::AllowOnce);
        for (result, expected) in [
            (json!({ "action": "accept", "content": { "decision": "Allow once" } }), Some(yes)),
            (json!({ "action": "decline" }), Some(Answer::Chosen(ChoiceKind::RejectOnce))),
            (json!({ "action": "cancel" }), Some(Answer::Cancelled)),
            (json!({ "action": "accept" }), None),
            (json!({ "action": "accept", "content": {} }), None),
            (json!({ "action": "accept", "content": { "decision": "allow once" } }), None),
            (json!({ "action": "accept", "content": { "decision": true } }), None),
            (json!({ "action": "yes", "content": { "decision": "Allow once" } }), None),
            (json!({ "content": { "decision": "Allow once" } }), None),
            (json!(null), None),
        ] {
            let answer = answer(&result, &question());
            match expected {
                Some(expected) => assert_eq!(answer, expected, "{result}"),
                None => assert!(matches!(answer, Answer::Unclear(_)), "{result}: {answer:?}"),
            }
        }
    }

    #[test]
    fn the_form_says_what_would_be_done_and_offers_the_answers() {
        let form = serde_json::to_value(form(&question()).unwrap()).unwrap();
        let params = &form["params"];
        assert_eq!(params["message"], "Allow this call of write_file?\n\nWrite a\n\nwhy");
        let field = &params["requestedSchema"]["properties"]["decision"];
        assert_eq!(field["enum"], json!(["Allow once", "Reject"]));
    }

    #[test]
    fn the_end_of_a_text_is_cut_at_a_character() {
        assert_eq!((tail("añb", 2), tail("añb", 9), tail("", 3)), ("ñb", "añb", ""));
    }
}
