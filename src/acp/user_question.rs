//! Questions to the user: whether a call may run, and as elicitation forms those of the model and of MCP
//! servers. For these a permission request would be no substitute: clients answer some by themselves, and
//! show several options of one kind alike.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::schema::{
    CreateElicitationRequest, ElicitationFormMode, ElicitationMode, ElicitationSchema,
    ElicitationSessionScope, ElicitationUrlMode, MultiSelectPropertySchema, SessionId,
    StringPropertySchema,
};
use super::to_wire;
use super::versions::Version;
use turnwright_rpc::{Peer, RequestError};
use turnwright_types::client::{
    ChoiceKind, ElicitationModes, FormOutcome, PermissionAnswer, ServerForm, UserQuestion,
    UserReply,
};
use turnwright_types::effect::terminal_safe;
use turnwright_types::ids;

/// The user may be away for a long time; a day is as good as no limit.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// The name of the form's field.
const ANSWER_FIELD: &str = "answer";
/// The name of the field, below the options, for the user's own words.
const TEXT_FIELD: &str = "answer_custom";
/// Follows the address of a page in a form. A client with the mode `url` opens the page itself.
const OPEN_YOURSELF: &str = "It is not opened for you: accept when you have opened it yourself.";
const NOT_OFFERED: &str = "the client chose an option that was not offered";

/// The questions of a session to its user. Each method calls `begin` when its question can be shown, and
/// keeps what that returns until the answer.
#[derive(Debug)]
pub(super) struct UserQuestions {
    peer: Peer,
    session: SessionId,
    version: Version,
    /// The elicitations that the client shows (R-EL-1).
    pub(super) modes: ElicitationModes,
    /// One permit: the user is shown one question at a time, of whatever kind. The queue of calls orders only
    /// those about permissions.
    slot: Semaphore,
}

impl UserQuestions {
    pub(super) fn new(
        peer: Peer,
        session: SessionId,
        version: Version,
        modes: ElicitationModes,
    ) -> UserQuestions {
        UserQuestions { peer, session, version, modes, slot: Semaphore::new(1) }
    }

    /// Asks which of the offered choices the user makes.
    pub(super) async fn permission<W>(
        &self,
        params: &impl Serialize,
        offered: &[ChoiceKind],
        begin: impl FnOnce() -> W,
    ) -> PermissionAnswer {
        let Ok(_slot) = self.slot.acquire().await else { return PermissionAnswer::Cancelled };
        let _waiting = begin();
        match self.peer.request("session/request_permission", params, QUESTION_TIMEOUT).await {
            Ok(result) => permission_answer(&result, offered),
            Err(error) => PermissionAnswer::Unclear(error.to_string()),
        }
    }

    /// Asks the user in the best way that the client supports: with a form if it has any.
    pub(super) async fn ask<W>(
        &self,
        question: UserQuestion,
        begin: impl FnOnce() -> W,
    ) -> UserReply {
        let Ok(_slot) = self.slot.acquire().await else { return UserReply::Cancelled };
        if !self.modes.form {
            return UserReply::InConversation;
        }
        let _waiting = begin();
        let params = form_request(self.session.clone(), &question);
        match self.peer.request("elicitation/create", &params, QUESTION_TIMEOUT).await {
            Ok(result) => form_reply(&result, &question, self.version),
            Err(RequestError::ErrorResponse(error)) => {
                tracing::warn!(%error.message, "the client refused a form");
                UserReply::InConversation
            }
            Err(_) => UserReply::Cancelled,
        }
    }

    /// Shows the form or the page of an MCP server (R-EL-1). What the client cannot show counts as declined.
    pub(super) async fn show_form<W>(
        &self,
        form: ServerForm,
        begin: impl FnOnce() -> W,
    ) -> FormOutcome {
        let Some(params) = self.server_request(form) else { return FormOutcome::Declined };
        let Ok(_slot) = self.slot.acquire().await else { return FormOutcome::Cancelled };
        let _waiting = begin();
        match self.peer.request("elicitation/create", &params, QUESTION_TIMEOUT).await {
            Ok(result) => form_outcome(&result),
            Err(RequestError::ErrorResponse(_)) => FormOutcome::Declined,
            Err(_) => FormOutcome::Cancelled,
        }
    }

    /// Makes the request for a form or a page, if the client can show it. A client without the mode `url` is shown
    /// the address in a form without fields, in which nothing can be entered (R-EL-2).
    fn server_request(&self, form: ServerForm) -> Option<CreateElicitationRequest> {
        let call = form.call.map(|call| call.to_arc().into());
        let scope = ElicitationSessionScope::new(self.session.clone()).tool_call_id(call);
        let mut message = terminal_safe(form.message);
        let mode: ElicitationMode = match form.page {
            Some(page) if self.modes.url => {
                let id = ids::SessionId::random().to_arc();
                ElicitationUrlMode::new(scope, id, page).into()
            }
            page if self.modes.form => {
                message.extend(page.map(|page| format!("\n\nAddress: {page}\n{OPEN_YOURSELF}")));
                let schema = serde_json::from_value::<ElicitationSchema>(form.schema).ok()?;
                ElicitationFormMode::new(scope, schema).into()
            }
            _ => return None,
        };
        Some(CreateElicitationRequest::new(mode, message))
    }
}

/// Reads the user's decision. Only the exact form of an offered choice counts (R-PERM-6), with or without the object
/// around the outcome, which some clients leave out.
pub(super) fn permission_answer(result: &RawValue, offered: &[ChoiceKind]) -> PermissionAnswer {
    let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
    let outcome = if value["outcome"].is_string() { &value } else { &value["outcome"] };
    let id = outcome["optionId"].as_str().unwrap_or_default();
    match outcome["outcome"].as_str() {
        Some("cancelled") => PermissionAnswer::Cancelled,
        // One client has a word of its own for a choice that rejects.
        Some(word) if word == "selected" || word == "rejected" && id.starts_with("reject_") => {
            match offered.iter().find(|choice| to_wire::option_id(**choice) == id) {
                Some(choice) => PermissionAnswer::Chosen(*choice),
                None => PermissionAnswer::Unclear(NOT_OFFERED.to_owned()),
            }
        }
        _ => PermissionAnswer::Unclear("the client's answer is malformed".to_owned()),
    }
}

/// Reads the user's decision. Only exactly `accept` counts as acceptance. An action that is not known counts as
/// `cancel`: version 2 demands that, and version 1 only that it counts as no choice of the user.
fn form_outcome(result: &RawValue) -> FormOutcome {
    let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
    match value.get("action").and_then(Value::as_str) {
        // A form in which nothing must be entered may be accepted without content.
        Some("accept") if value["content"].is_null() => FormOutcome::Accepted(json!({})),
        Some("accept") => FormOutcome::Accepted(value["content"].clone()),
        Some("decline") | None => FormOutcome::Declined,
        Some(_) => FormOutcome::Cancelled,
    }
}

fn form_request(session: SessionId, question: &UserQuestion) -> CreateElicitationRequest {
    let scope =
        ElicitationSessionScope::new(session).tool_call_id(Some(question.call.to_arc().into()));
    let options = question.options.clone();
    let is_required = !question.allows_text;
    let text = StringPropertySchema::new().title("Answer".to_owned());
    let mut schema = ElicitationSchema::new();
    schema = if options.is_empty() {
        schema.property(ANSWER_FIELD, text, true)
    } else if question.allows_multiple {
        let field = MultiSelectPropertySchema::new(options).title("Answer".to_owned());
        schema.property(ANSWER_FIELD, field, is_required)
    } else {
        schema.property(ANSWER_FIELD, text.enum_values(options), is_required)
    };
    if question.allows_text {
        let hint = "An answer of your own, or a note on your choice (optional)".to_owned();
        let text = StringPropertySchema::new().title("Other".to_owned()).description(hint);
        schema = schema.property(TEXT_FIELD, text, false);
    }
    CreateElicitationRequest::new(
        ElicitationFormMode::new(scope, schema),
        terminal_safe(question.question.clone()),
    )
}

/// Reads the answer from a submitted form. In version 2, an action that is not known counts as `cancel`; in
/// version 1 it counts as none that is known.
fn form_reply(result: &RawValue, question: &UserQuestion, version: Version) -> UserReply {
    let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
    match value.get("action").and_then(Value::as_str) {
        Some("accept") => {}
        Some("decline") => return UserReply::Declined,
        Some("cancel") => return UserReply::Cancelled,
        Some(_) if version == Version::V2 => return UserReply::Cancelled,
        _ => return UserReply::InConversation,
    }
    let content = &value["content"];
    let mut words: Vec<&str> = match &content[ANSWER_FIELD] {
        Value::String(text) => vec![text.trim()],
        Value::Array(all) if question.allows_multiple => {
            all.iter().filter_map(Value::as_str).collect()
        }
        // The form was submitted without an answer.
        Value::Null => Vec::new(),
        _ => return UserReply::InConversation,
    };
    words.retain(|word| !word.is_empty());
    // Some clients send the user's own words in the place of an option.
    let is_closed = !question.options.is_empty() && !question.allows_text;
    if is_closed && words.iter().any(|word| question.options.iter().all(|one| one != word)) {
        return UserReply::InConversation;
    }
    let text = content[TEXT_FIELD].as_str().filter(|_| question.allows_text).map(str::trim);
    words.extend(text.filter(|text| !text.is_empty()));
    if words.is_empty() {
        return UserReply::Declined;
    }
    UserReply::Answered(words.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;
    use turnwright_types::ids::CallId;

    fn answered(words: &[&str]) -> UserReply {
        UserReply::Answered(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn question(options: &[&str], multiple: bool) -> UserQuestion {
        let options = options.iter().map(|word| (*word).to_owned()).collect();
        UserQuestion {
            call: CallId::from("call-1"),
            question: "Which?".to_owned(),
            options,
            allows_multiple: multiple,
            allows_text: false,
        }
    }

    #[test]
    fn only_offered_options_and_free_text_count_as_answers() {
        let accept = |answer: Value| json!({ "action": "accept", "content": { "answer": answer } });
        let (free, one, multiple) =
            (question(&[], false), question(&["a", "b"], false), question(&["a", "b"], true));
        let open = UserQuestion { allows_text: true, ..one.clone() };
        let with_text = |answer: &str, text: &str| {
            let content = json!({ "answer": answer, "answer_custom": text });
            json!({ "action": "accept", "content": content })
        };
        let table = [
            (&free, accept(json!(" yes ")), answered(&["yes"])),
            (&free, accept(json!("")), UserReply::Declined),
            (&free, accept(json!(null)), UserReply::Declined),
            (&free, accept(json!(3)), UserReply::InConversation),
            (&free, accept(json!(["a"])), UserReply::InConversation),
            (&free, json!({ "action": "accept" }), UserReply::Declined),
            (&free, json!({ "action": "decline" }), UserReply::Declined),
            (&free, json!({ "action": "cancel" }), UserReply::Cancelled),
            (&free, json!({ "action": "shrug" }), UserReply::InConversation),
            (&free, json!({ "content": { "answer": "yes" } }), UserReply::InConversation),
            (&free, json!("yes"), UserReply::InConversation),
            (&one, accept(json!("a")), answered(&["a"])),
            (&one, accept(json!("c")), UserReply::InConversation),
            (&multiple, accept(json!(["a", "b"])), answered(&["a", "b"])),
            (&multiple, accept(json!("b")), answered(&["b"])),
            (&multiple, accept(json!([])), UserReply::Declined),
            (&multiple, accept(json!(["a", "c"])), UserReply::InConversation),
            (&one, with_text("a", "b, later"), answered(&["a"])),
            (&open, with_text("a", " b, later "), answered(&["a", "b, later"])),
            (&open, with_text("", "c"), answered(&["c"])),
            (&open, with_text("", " "), UserReply::Declined),
            (&open, accept(json!("c")), answered(&["c"])),
            (&open, with_text("c", "d"), answered(&["c", "d"])),
        ];
        for (question, result, expected) in table {
            let raw = to_raw_value(&result).unwrap();
            assert_eq!(form_reply(&raw, question, Version::V1), expected, "{result}");
            let is_unknown = result["action"] == "shrug";
            let expected = if is_unknown { UserReply::Cancelled } else { expected };
            assert_eq!(form_reply(&raw, question, Version::V2), expected, "{result}");
        }
    }
}
