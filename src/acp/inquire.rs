//! Questions of the model to the user: as a form where the client shows forms, else as a choice
//! among buttons. What is no clear answer is none.

use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::wire::schema::{
    Content, ContentBlock, CreateElicitationRequest, ElicitationFormMode, ElicitationSchema,
    ElicitationSessionScope, MultiSelectPropertySchema, PermissionOption, PermissionOptionKind,
    RequestPermissionRequest, SessionId, StringPropertySchema, TextContent, ToolCallContent,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use turnwright_types::client::{Filled, Form, Inquiry, Reply};
use turnwright_types::effect::{plain, short_title, visible};
use turnwright_rpc::{Peer, RequestFailed};

/// The name of the form's only field.
const FIELD: &str = "answer";
/// The identifier of the button that chooses nothing.
const NONE: &str = "none";

/// Asks, in the best way the client has.
pub(super) async fn inquire(
    peer: &Peer,
    session: SessionId,
    has_forms: bool,
    inquiry: Inquiry,
    limit: Duration,
) -> Reply {
    if has_forms {
        let params = form(session.clone(), &inquiry);
        match peer.request("elicitation/create", &params, limit).await {
            Ok(result) => return form_reply(&result, &inquiry),
            Err(RequestFailed::Refused(error)) => {
                tracing::warn!(%error.message, "the client refused a form");
            }
            Err(_) => return Reply::Cancelled,
        }
    }
    if inquiry.options.is_empty() {
        return Reply::Impossible;
    }
    let params = buttons(session, &inquiry);
    match peer.request("session/request_permission", &params, limit).await {
        Ok(result) => button_reply(&result, &inquiry),
        Err(RequestFailed::Refused(_)) => Reply::Impossible,
        Err(_) => Reply::Cancelled,
    }
}

/// Shows the form of a server (R-EL-1). One that the client could not show is declined.
pub(super) async fn fill(peer: &Peer, session: SessionId, form: Form, limit: Duration) -> Filled {
    let Ok(schema) = serde_json::from_value::<ElicitationSchema>(form.schema) else {
        return Filled::Declined;
    };
    let scope = ElicitationSessionScope::new(session).tool_call_id(Some(form.call.to_arc().into()));
    let mode = ElicitationFormMode::new(scope, schema);
    let params = CreateElicitationRequest::new(mode, plain(form.message));
    match peer.request("elicitation/create", &params, limit).await {
        Ok(result) => filled(&result),
        Err(RequestFailed::Refused(_)) => Filled::Declined,
        Err(_) => Filled::Cancelled,
    }
}

/// What came back. Only the exact word is a yes.
fn filled(result: &RawValue) -> Filled {
    let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
    match value.get("action").and_then(Value::as_str) {
        Some("accept") => Filled::Accepted(value.get("content").cloned().unwrap_or_default()),
        Some("cancel") => Filled::Cancelled,
        _ => Filled::Declined,
    }
}

fn form(session: SessionId, inquiry: &Inquiry) -> CreateElicitationRequest {
    let scope =
        ElicitationSessionScope::new(session).tool_call_id(Some(inquiry.call.to_arc().into()));
    let schema = ElicitationSchema::new();
    let options = inquiry.options.clone();
    let schema = if options.is_empty() {
        schema.property(FIELD, StringPropertySchema::new().title("Answer".to_owned()), true)
    } else if inquiry.several {
        let field = MultiSelectPropertySchema::new(options).title("Answer".to_owned()).min_items(1);
        schema.property(FIELD, field, true)
    } else {
        let field = StringPropertySchema::new().title("Answer".to_owned()).enum_values(options);
        schema.property(FIELD, field, true)
    };
    CreateElicitationRequest::new(
        ElicitationFormMode::new(scope, schema),
        plain(inquiry.question.clone()),
    )
}

/// What a filled form says.
pub(super) fn form_reply(result: &RawValue, inquiry: &Inquiry) -> Reply {
    let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
    match value.get("action").and_then(Value::as_str) {
        Some("accept") => {}
        Some("decline") => return Reply::Declined,
        Some("cancel") => return Reply::Cancelled,
        _ => return Reply::Impossible,
    }
    let words: Vec<String> = match value.pointer(&format!("/content/{FIELD}")) {
        Some(Value::String(text)) => vec![text.trim().to_owned()],
        Some(Value::Array(all)) if inquiry.several => {
            all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        // A form that was sent off without an answer.
        None | Some(Value::Null) => Vec::new(),
        Some(_) => return Reply::Impossible,
    };
    let words: Vec<_> = words.into_iter().filter(|it| !it.is_empty()).collect();
    if words.is_empty() {
        return Reply::Declined;
    }
    let is_offered = |it: &String| inquiry.options.is_empty() || inquiry.options.contains(it);
    if words.iter().all(is_offered) { Reply::Said(words) } else { Reply::Impossible }
}

fn buttons(session: SessionId, inquiry: &Inquiry) -> RequestPermissionRequest {
    let title: String = inquiry.question.split_whitespace().collect::<Vec<_>>().join(" ");
    let title = short_title(visible(&title));
    let text = ContentBlock::Text(TextContent::new(plain(inquiry.question.clone())));
    let fields = ToolCallUpdateFields::new()
        .title(title)
        .kind(ToolKind::Think)
        .status(ToolCallStatus::InProgress)
        .content(vec![ToolCallContent::Content(Content::new(text))])
        .raw_input(serde_json::json!({ "question": inquiry.question, "options": inquiry.options }));
    let option = |(number, name): (usize, &String)| {
        PermissionOption::new(id(number), name.clone(), PermissionOptionKind::AllowOnce)
    };
    let none = PermissionOption::new(NONE, "None of these", PermissionOptionKind::RejectOnce);
    let options = inquiry.options.iter().enumerate().map(option).chain([none]).collect();
    let call = ToolCallUpdate::new(inquiry.call.to_arc(), fields);
    RequestPermissionRequest::new(session, call, options)
}

fn id(number: usize) -> String {
    format!("option_{}", number + 1)
}

/// What a pressed button says.
pub(super) fn button_reply(result: &RawValue, inquiry: &Inquiry) -> Reply {
    let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    match (text("/outcome/outcome"), text("/outcome/optionId")) {
        (Some("cancelled"), _) => Reply::Cancelled,
        (Some("selected"), Some(NONE)) => Reply::Declined,
        (Some("selected"), Some(chosen)) => {
            let found = inquiry.options.iter().enumerate().find(|(it, _)| id(*it) == chosen);
            found.map_or(Reply::Impossible, |(_, it)| Reply::Said(vec![it.clone()]))
        }
        _ => Reply::Impossible,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;
    use turnwright_types::ids::CallId;

    fn said(words: &[&str]) -> Reply {
        Reply::Said(words.iter().map(|it| (*it).to_owned()).collect())
    }

    fn inquiry(options: &[&str], several: bool) -> Inquiry {
        let options = options.iter().map(|it| (*it).to_owned()).collect();
        Inquiry { call: CallId::from("call-1"), question: "Which?".to_owned(), options, several }
    }

    #[test]
    fn only_an_offered_or_a_spoken_answer_is_one() {
        let accept = |it: Value| json!({ "action": "accept", "content": { "answer": it } });
        let (free, one, several) =
            (inquiry(&[], false), inquiry(&["a", "b"], false), inquiry(&["a", "b"], true));
        let table = [
            (&free, accept(json!(" yes ")), said(&["yes"])),
            (&free, accept(json!("")), Reply::Declined),
            (&free, accept(json!(null)), Reply::Declined),
            (&free, accept(json!(3)), Reply::Impossible),
            (&free, accept(json!(["a"])), Reply::Impossible),
            (&free, json!({ "action": "accept" }), Reply::Declined),
            (&free, json!({ "action": "decline" }), Reply::Declined),
            (&free, json!({ "action": "cancel" }), Reply::Cancelled),
            (&free, json!({ "action": "shrug" }), Reply::Impossible),
            (&free, json!("yes"), Reply::Impossible),
            (&one, accept(json!("a")), said(&["a"])),
            (&one, accept(json!("c")), Reply::Impossible),
            (&several, accept(json!(["a", "b"])), said(&["a", "b"])),
            (&several, accept(json!("b")), said(&["b"])),
            (&several, accept(json!([])), Reply::Declined),
            (&several, accept(json!(["a", "c"])), Reply::Impossible),
        ];
        for (inquiry, result, expected) in table {
            assert_eq!(form_reply(&to_raw_value(&result).unwrap(), inquiry), expected, "{result}");
        }
        let pressed = |id: &str| json!({ "outcome": { "outcome": "selected", "optionId": id } });
        let table = [
            (pressed("option_2"), said(&["b"])),
            (pressed("option_3"), Reply::Impossible),
            (pressed("allow_once"), Reply::Impossible),
            (pressed("none"), Reply::Declined),
            (json!({ "outcome": { "outcome": "cancelled" } }), Reply::Cancelled),
            (json!({}), Reply::Impossible),
        ];
        for (result, expected) in table {
            assert_eq!(button_reply(&to_raw_value(&result).unwrap(), &one), expected, "{result}");
        }
    }
}
