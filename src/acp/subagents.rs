//! Helpers as child sessions. The client is told of each on the session that has started it, gets the conversation
//! under an id of its own, and may cancel the helper and do nothing else to it (R-SUB-1 to R-SUB-6, R-TWO-23 to
//! R-TWO-25). In version 1 only clients with the capability `subagents` are told of any.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::methods::READING;
use super::schema;
use super::schema::{
    ErrorStopReason, IdleStateUpdate, IdleStopReason, MessageId, RunningStateUpdate,
    SessionCancelCapabilities, SessionMessage, SessionNotification, SessionUpdate, StateUpdate,
    SubagentSessionCapabilities, SubagentUpdate,
};
use super::to_wire;
use super::versions::Version;
use crate::error::Error;
use turnwright_rpc::{Params, Peer};
use turnwright_types::client::{Client, HelperView, StartedHelper};
use turnwright_types::effect::{CallContent, escape_hidden_line};
use turnwright_types::ids::SessionId;
use turnwright_types::message::{PromptPart, StopReason};
use turnwright_types::update::Update;

/// The code of the error with which a helper has failed.
const INTERNAL_ERROR: i32 = -32603;

/// The sessions of helpers that the client of a connection was told of, each with its parent while it can be
/// cancelled. Clones share them.
// Held only to look something up.
#[derive(Clone, Debug, Default)]
pub(super) struct AnnouncedHelpers(Arc<Mutex<HashMap<SessionId, Option<SessionId>>>>);

impl AnnouncedHelpers {
    fn set(&self, helper: &SessionId, parent: Option<&SessionId>) {
        self.0.lock().insert(helper.clone(), parent.cloned());
    }

    /// The session that has started a helper; `None` if the helper can no longer be cancelled, or is unknown.
    pub(super) fn parent_of(&self, helper: &SessionId) -> Option<SessionId> {
        self.0.lock().get(helper).cloned().flatten()
    }

    /// Refuses a request that would do something to the session of a helper. No capability of a child allows any.
    ///
    /// # Errors
    /// If the request names such a session and does more than read it.
    pub(super) fn check_request(&self, method: &str, params: &Params) -> Result<(), Error> {
        if self.0.lock().is_empty() || READING.contains(&method) {
            return Ok(());
        }
        // Parameters that do not fit are the handler's to refuse.
        let Ok(params) = params.read::<Value>() else { return Ok(()) };
        let Some(id) = params["sessionId"].as_str().map(SessionId::from) else { return Ok(()) };
        if !self.0.lock().contains_key(&id) {
            return Ok(());
        }
        Err(Error::InvalidParams(format!(
            "`{method}` is not possible in the session of a helper. Only `session/cancel` is, while \
             the helper works"
        )))
    }

    /// Removes references to helpers from a card if the client was not told of them.
    pub(super) fn leave_out_unknown(&self, update: &mut Update) {
        let Update::CallUpdate(changed) = update else { return };
        let Some(content) = &mut changed.content else { return };
        let known = self.0.lock();
        content.retain(|part| match part {
            CallContent::Session(id) => known.contains_key(id),
            _ => true,
        });
    }
}

/// The session of a helper, as the client shows it.
pub(super) struct ChildSession {
    peer: Peer,
    version: Version,
    announced: AnnouncedHelpers,
    parent: SessionId,
    id: SessionId,
    /// Sends what the helper does. Questions are asked by the client of the parent.
    client: Box<dyn Client>,
}

impl ChildSession {
    /// Announces a helper of this session, before anything else that names it.
    pub(super) fn announce(
        helper: &StartedHelper<'_>,
        parent: SessionId,
        peer: Peer,
        version: Version,
        announced: AnnouncedHelpers,
        client: Box<dyn Client>,
    ) -> Box<dyn HelperView> {
        let id = helper.session.clone();
        let child = ChildSession { peer, version, announced, parent, id, client };
        child.announced.set(&child.id, Some(&child.parent));
        let running = StateUpdate::Running(RunningStateUpdate::new());
        let cancel = SessionCancelCapabilities::new();
        let update = SubagentUpdate::new(wire_id(&child.id))
            .title(escape_hidden_line(helper.title))
            .description(escape_hidden_line(helper.description))
            .capabilities(SubagentSessionCapabilities::new().cancel(cancel))
            .state(running.clone());
        child.send(&child.parent, SessionUpdate::SubagentUpdate(update));
        child.send_state(&running);
        child.send_message("task", &child.parent, &child.id, helper.task);
        Box::new(child)
    }

    fn send(&self, session: &SessionId, update: SessionUpdate) {
        let params = SessionNotification::new(wire_id(session), update);
        self.peer.outbox().notify("session/update", &params);
    }

    /// Sends a state to the child. In version 1 only the parent is told of it.
    fn send_state(&self, state: &StateUpdate) {
        if self.version == Version::V1 {
            return;
        }
        let mut update = serde_json::to_value(state).unwrap_or_default();
        update["sessionUpdate"] = "state_update".into();
        let params = json!({ "sessionId": self.id.as_str(), "update": update });
        self.peer.outbox().notify("session/update", &params);
    }

    /// Sends a message between the sessions, as the child has it.
    fn send_message(&self, id: &'static str, from: &SessionId, to: &SessionId, text: &str) {
        let message = SessionMessage::new(MessageId::new(id))
            .sender_session_id(wire_id(from))
            .recipient_session_id(wire_id(to))
            .content(vec![to_wire::prompt_block(PromptPart::Text(text.to_owned()))]);
        self.send(&self.id, SessionUpdate::SessionMessage(message));
    }
}

impl HelperView for ChildSession {
    fn update(&self, mut update: Update) {
        // The calls of a child cannot be cancelled one by one.
        match &mut update {
            Update::ToolCall { can_cancel, .. } => *can_cancel = false,
            Update::CallUpdate(changed) => changed.can_cancel = false,
            _ => {}
        }
        self.client.update(update);
    }

    fn answer(&self, text: &str) {
        self.send_message("answer", &self.id, &self.parent, text);
    }

    fn end(&self, end: Result<StopReason, String>) {
        self.announced.set(&self.id, None);
        let idle = StateUpdate::Idle(IdleStateUpdate::new().stop_reason(stop_reason(end)));
        self.send_state(&idle);
        let update = SubagentUpdate::new(wire_id(&self.id))
            .capabilities(None::<SubagentSessionCapabilities>)
            .state(idle);
        self.send(&self.parent, SessionUpdate::SubagentUpdate(update));
    }
}

fn wire_id(id: &SessionId) -> schema::SessionId {
    schema::SessionId::new(id.to_arc())
}

fn stop_reason(end: Result<StopReason, String>) -> IdleStopReason {
    match end {
        Ok(StopReason::EndTurn | StopReason::Repetition) => IdleStopReason::EndTurn,
        Ok(StopReason::MaxTokens) => IdleStopReason::MaxTokens,
        Ok(StopReason::MaxTurnRequests) => IdleStopReason::MaxTurnRequests,
        Ok(StopReason::Refusal) => IdleStopReason::Refusal,
        Ok(StopReason::Cancelled) => IdleStopReason::Cancelled,
        Err(why) => {
            let error = schema::Error::new(INTERNAL_ERROR, why);
            IdleStopReason::Error(ErrorStopReason::new().error(error))
        }
    }
}
