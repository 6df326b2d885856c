//! Converts domain types to the wire types of version 2. What has the same shape in version 1 is converted by
//! its encoder.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::diffs;
use crate::acp::capabilities::ClientCaps;
use crate::acp::cursors;
use crate::acp::schema;
use crate::acp::to_wire;
use turnwright_rpc::Outbox;
use turnwright_types::client::PermissionRequest;
use turnwright_types::effect::{CallContent, escape_hidden_line, terminal_safe};
use turnwright_types::ids::{MessageId, SessionId};
use turnwright_types::message::PromptPart;
use turnwright_types::update::{
    CallUpdate, ConfigChoice, ConfigOption, ConfigOptionId, SlashCommand, ToolCallStatus, Update,
};

/// Sends an update that is not about prompts or tool calls.
pub(super) fn send(outbox: &Outbox, session: &SessionId, update: Update, caps: ClientCaps) {
    let changed = match update {
        Update::UserChunk { message, part: part @ PromptPart::Skill(_) } => json!({
            "sessionUpdate": "user_message_chunk", "messageId": message.as_str(),
            "content": prompt_block(part),
        }),
        Update::Commands(all) => json!({
            "sessionUpdate": "available_commands_update", "availableCommands": commands(all, caps),
        }),
        Update::ConfigOptions(all) => json!({
            "sessionUpdate": "config_option_update", "configOptions": settings(all),
        }),
        // The mode is one of the options, which are sent as well.
        Update::Mode(_) => return,
        Update::Cursor { place, at, can_fork } => {
            let anchor = cursors::anchor(place, &at);
            let update = cursors::cursor_update(&at, can_fork, Some(anchor));
            return send_update(outbox, session, &update);
        }
        same => {
            if let Some(update) = to_wire::update(same, caps, Path::new("")) {
                send_update(outbox, session, &update);
            }
            return;
        }
    };
    send_update(outbox, session, &changed);
}

/// The parameters of `session/update`. Long texts are not copied, as they would be by `json!`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateParams<'a, T: Serialize> {
    session_id: &'a str,
    update: &'a T,
}

/// Sends an update of a session.
pub(in crate::acp) fn send_update(outbox: &Outbox, session: &SessionId, update: &impl Serialize) {
    let params = UpdateParams { session_id: session.as_str(), update };
    outbox.notify("session/update", &params);
}

fn value(item: &impl Serialize) -> Value {
    serde_json::to_value(item).unwrap_or_default()
}

pub(super) fn user_message(id: &MessageId, parts: impl Iterator<Item = PromptPart>) -> Value {
    let content: Vec<_> = parts.map(prompt_block).collect();
    json!({ "sessionUpdate": "user_message", "messageId": id.as_str(), "content": content })
}

/// A block of a prompt. Version 1 has no skills.
fn prompt_block(part: PromptPart) -> Value {
    match part {
        PromptPart::Skill(name) => json!({ "type": "skill", "name": name }),
        same => value(&to_wire::prompt_block(same)),
    }
}

/// The capabilities of a call that can be cancelled. When it no longer can, they are null.
pub(super) fn cancel_capability() -> Value {
    json!({ "cancel": {} })
}

/// An update of a call, with what version 1 does not have.
#[derive(Serialize)]
struct ChangedCall {
    #[serde(flatten)]
    update: schema::SessionUpdate,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capabilities: Option<Value>,
}

/// Sends the card of a new call, with its capabilities if it has any. In version 2 it is an update like all others.
pub(super) fn send_new_call(
    outbox: &Outbox,
    session: &SessionId,
    call: Update,
    capabilities: Option<Value>,
) {
    let call = to_wire::update(call, ClientCaps::default(), Path::new(""));
    let Some(schema::SessionUpdate::ToolCall(call)) = call else { return };
    let mut card = schema::ToolCallUpdate::from(call);
    // It has none yet.
    card.fields.content = None;
    card.fields.locations = card.fields.locations.filter(|locations| !locations.is_empty());
    let update = schema::SessionUpdate::ToolCallUpdate(card);
    let changed = ChangedCall { update, content: None, status: None, capabilities };
    send_update(outbox, session, &changed);
}

/// Sends new values for some fields of a call. Version 1 has other diffs, and neither the status of a call
/// that was cancelled nor capabilities.
pub(super) fn send_call_update(
    outbox: &Outbox,
    session: &SessionId,
    mut update: CallUpdate,
    capabilities: Option<Value>,
) {
    let has_diff =
        update.content.iter().flatten().any(|content| matches!(content, CallContent::Diff { .. }));
    let changed = if has_diff { update.content.take() } else { None };
    let is_cancelled = update.status == ToolCallStatus::Cancelled;
    let update = Update::CallUpdate(Box::new(update));
    let update = to_wire::update(update, ClientCaps::default(), Path::new(""));
    let Some(mut update) = update else { return };
    if is_cancelled && let schema::SessionUpdate::ToolCallUpdate(card) = &mut update {
        card.fields.status = None;
    }
    let content = changed.map(contents);
    let status = is_cancelled.then_some("cancelled");
    send_update(outbox, session, &ChangedCall { update, content, status, capabilities });
}

fn contents(contents: Vec<CallContent>) -> Value {
    let converted = contents.into_iter().map(|content| match content {
        CallContent::Diff { path, old, new, fate } => {
            diffs::diff(&path, old.as_deref(), &new, &fate)
        }
        same => value(&to_wire::call_content(same)),
    });
    converted.collect()
}

/// A question whether a call may run. The text of its content says why it is asked.
pub(super) fn permission_request(
    session: schema::SessionId,
    mut request: PermissionRequest,
) -> Value {
    let content = std::mem::take(&mut request.content);
    let words = content.iter().filter_map(|item| match item {
        CallContent::Text(text) => Some(terminal_safe(text.clone())),
        _ => None,
    });
    let description = words.collect::<Vec<_>>().join("\n\n");
    let mut params = value(&to_wire::permission_request(session, request));
    let mut call = params["toolCall"].take();
    call["content"] = contents(content);
    let mut asked = json!({
        "sessionId": params["sessionId"].take(),
        "title": call["title"].clone(),
        "subject": { "type": "tool_call", "toolCall": call },
        "options": params["options"].take(),
    });
    if !description.is_empty() {
        asked["description"] = description.into();
    }
    if params["_meta"].is_object() {
        asked["_meta"] = params["_meta"].take();
    }
    asked
}

/// The slash commands for the client's menu.
pub(in crate::acp) fn commands(all: Vec<SlashCommand>, caps: ClientCaps) -> Value {
    all.into_iter().map(|one| command(one, caps)).collect()
}

fn command(it: SlashCommand, caps: ClientCaps) -> Value {
    let mut command = json!({ "type": "command", "name": it.name, "description": it.description });
    if let Some(file) = it.skill.filter(|_| caps.skills) {
        command["type"] = "skill".into();
        command["path"] = file.to_str().into();
    } else if let Some(hint) = it.hint {
        command["input"] = json!({ "type": "text", "hint": hint });
    }
    command
}

/// The settings of a session as configuration options.
pub(in crate::acp) fn settings(all: Vec<ConfigOption>) -> Value {
    all.into_iter().map(|option| config_option(&option)).collect()
}

fn config_option(option: &ConfigOption) -> Value {
    let category = match option.id {
        ConfigOptionId::Model => "model",
        ConfigOptionId::Effort => "thought_level",
        ConfigOptionId::Mode => "mode",
    };
    json!({
        "type": "select", "configId": option.id.id(), "name": option.id.name(), "category": category,
        "currentValue": option.current,
        "options": option.choices.iter().map(config_choice).collect::<Vec<_>>(),
    })
}

fn config_choice(choice: &ConfigChoice) -> Value {
    let name = escape_hidden_line(&choice.name);
    json!({ "value": choice.value, "name": name, "description": choice.description })
}
