//! Helpers as child sessions. The client is told of each on the session that has started it, gets the conversation
//! under an id of its own, and may cancel the helper and do nothing else to it (R-SUB-1 to R-SUB-6, R-TWO-23 to
//! R-TWO-25). In version 1 only clients with the capability `subagents` are told of any. In version 2 the states of
//! sessions list helpers in the background, and other work that goes on beside the turns (R-TWO-26).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::error::invalid;
use super::methods::FOR_HELPERS;
use super::schema;
use super::schema::{
    ErrorStopReason, IdleStateUpdate, IdleStopReason, MessageId, RequiresActionStateUpdate,
    RunningStateUpdate, SessionCancelCapabilities, SessionMessage, SessionUpdate, StateUpdate,
    SubagentSessionCapabilities, SubagentUpdate,
};
use super::to_wire;
use super::v2::send_update;
use super::versions::Version;
use crate::error::Error;
use turnwright_rpc::{Outbox, Params, Peer};
use turnwright_types::client::{Client, HelperView, StartedHelper};
use turnwright_types::effect::{CallContent, escape_hidden_line};
use turnwright_types::ids::{CallId, SessionId};
use turnwright_types::message::{PromptPart, StopReason};
use turnwright_types::update::Update;

/// The code of the error with which a helper has failed.
const INTERNAL_ERROR: i32 = -32603;

/// The sessions that the client of a connection was told of. Clones share them.
// Held only to look something up, and while a state is queued.
#[derive(Clone, Debug, Default)]
pub(super) struct ToldSessions(Arc<Mutex<SessionStates>>);

#[derive(Debug, Default)]
struct SessionStates {
    /// The sessions of helpers, each with its parent while it can be cancelled.
    helpers: HashMap<SessionId, Option<SessionId>>,
    /// The last states in version 2, with the work in the background. An idle session without any has none.
    states: HashMap<SessionId, Value>,
}

impl SessionStates {
    /// The last state of a session. If the client was told none yet, it has only the work in the background.
    fn state(&mut self, session: &SessionId) -> &mut Value {
        self.states.entry(session.clone()).or_insert_with(|| json!({ "background": [] }))
    }

    /// Notes the state of a session, and adds the list of work that goes on beside the turn.
    fn note_state(&mut self, session: &SessionId, mut state: Value) -> Value {
        let last = self.state(session);
        last["state"] = state["state"].clone();
        state["background"] = last["background"].clone();
        if state["state"] == "idle" && state["background"] == json!([]) {
            self.states.remove(session);
        }
        state
    }

    fn send_state(&mut self, outbox: &Outbox, session: &SessionId, state: Value) {
        let mut update = self.note_state(session, state);
        update["sessionUpdate"] = "state_update".into();
        send_update(outbox, session, &update);
    }
}

impl ToldSessions {
    /// The session that has started a helper; `None` if the helper can no longer be cancelled, or is unknown.
    pub(super) fn parent_of(&self, helper: &SessionId) -> Option<SessionId> {
        self.0.lock().helpers.get(helper).cloned().flatten()
    }

    /// Refuses a request that would do something to the session of a helper. No capability of a child allows any.
    ///
    /// # Errors
    /// If the request names such a session and does more than read or cancel it.
    pub(super) fn check_request(&self, method: &str, params: &Params) -> Result<(), Error> {
        if self.0.lock().helpers.is_empty() || FOR_HELPERS.contains(&method) {
            return Ok(());
        }
        // Parameters that do not fit are the handler's to refuse.
        let session: Option<SessionId> =
            params.field("sessionId").and_then(|id| serde_json::from_str(id.get()).ok());
        if session.is_none_or(|id| !self.0.lock().helpers.contains_key(&id)) {
            return Ok(());
        }
        Err(invalid(format!(
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
            CallContent::Session(id) => known.helpers.contains_key(id),
            _ => true,
        });
    }

    /// Sends a state of a session to a client of version 2.
    pub(super) fn send_state(&self, outbox: &Outbox, session: &SessionId, state: Value) {
        self.0.lock().send_state(outbox, session, state);
    }

    /// Notes that work goes on beside the turns of a session, or that it has ended. The client gets the state again.
    pub(super) fn set_background(
        &self,
        outbox: &Outbox,
        session: &SessionId,
        work: Value,
        goes_on: bool,
    ) {
        let mut known = self.0.lock();
        let last = known.state(session);
        let state = json!({ "state": last["state"] });
        let Some(all) = last["background"].as_array_mut() else { return };
        let before = all.len();
        all.retain(|other| *other != work);
        all.extend(goes_on.then_some(work));
        let is_changed = all.len() != before;
        // A client that takes over the session gets the state later.
        if is_changed && !state["state"].is_null() {
            known.send_state(outbox, session, state);
        }
    }
}

/// The session of a helper, as the client shows it.
pub(super) struct ChildSession {
    peer: Peer,
    version: Version,
    told: ToldSessions,
    parent: SessionId,
    id: SessionId,
    /// True if the states of the parent list it, because no call waits for it.
    is_listed: bool,
    /// The calls that the client knows.
    calls: HashSet<CallId>,
    /// Sends what the helper does. Questions are asked by the client of the parent.
    client: Box<dyn Client>,
}

impl ChildSession {
    /// Announces a helper of this session, before anything else that names it.
    pub(super) fn announce(
        helper: &StartedHelper,
        parent: SessionId,
        peer: Peer,
        version: Version,
        told: ToldSessions,
        client: Box<dyn Client>,
    ) -> Box<dyn HelperView> {
        let id = helper.session.clone();
        let is_listed = helper.in_background && version == Version::V2;
        let calls = HashSet::new();
        let child = ChildSession { peer, version, told, parent, id, is_listed, calls, client };
        child.told.0.lock().helpers.insert(child.id.clone(), Some(child.parent.clone()));
        let cancel = SessionCancelCapabilities::new();
        let update = SubagentUpdate::new(wire_id(&child.id))
            .title(escape_hidden_line(&helper.title))
            .description(escape_hidden_line(&helper.description))
            .capabilities(SubagentSessionCapabilities::new().cancel(cancel));
        child.change_state(StateUpdate::Running(RunningStateUpdate::new()), update);
        child.send_message("task", &child.parent, &child.id, &helper.task);
        child.list(true);
        Box::new(child)
    }

    /// Tells the parent what has changed, with the new state of the child. In version 2 the child gets its state, too.
    fn change_state(&self, state: StateUpdate, change: SubagentUpdate) {
        let outbox = self.peer.outbox();
        let update = SessionUpdate::SubagentUpdate(change.state(state.clone()));
        if self.version == Version::V1 {
            return send_update(outbox, &self.parent, &update);
        }
        let mut known = self.told.0.lock();
        let state = serde_json::to_value(state).unwrap_or_default();
        let mut update = serde_json::to_value(update).unwrap_or_default();
        update["state"] = known.note_state(&self.id, state.clone());
        send_update(outbox, &self.parent, &update);
        known.send_state(outbox, &self.id, state);
    }

    /// Adds the helper to the work in the background of its parent, or removes it.
    fn list(&self, goes_on: bool) {
        if self.is_listed {
            let work = json!({ "type": "subagent", "sessionId": self.id.as_str() });
            self.told.set_background(self.peer.outbox(), &self.parent, work, goes_on);
        }
    }

    /// Sends a message between the sessions, as the child has it.
    fn send_message(&self, id: &'static str, from: &SessionId, to: &SessionId, text: &str) {
        let message = SessionMessage::new(MessageId::new(id))
            .sender_session_id(wire_id(from))
            .recipient_session_id(wire_id(to))
            .content(vec![to_wire::prompt_block(PromptPart::Text(text.to_owned()))]);
        send_update(self.peer.outbox(), &self.id, &SessionUpdate::SessionMessage(message));
    }
}

impl HelperView for ChildSession {
    fn update(&mut self, mut update: Update) {
        // The calls of a child cannot be cancelled one by one.
        match &mut update {
            Update::ToolCall { id, can_cancel, .. } => {
                self.calls.insert(id.clone());
                *can_cancel = false;
            }
            // It began before this client took over the session.
            Update::CallUpdate(changed) if !self.calls.contains(&changed.id) => return,
            Update::CallUpdate(changed) => changed.can_cancel = false,
            _ => {}
        }
        self.client.update(update);
    }

    fn set_waiting(&self, is_waiting: bool) {
        let state = if is_waiting {
            StateUpdate::RequiresAction(RequiresActionStateUpdate::new())
        } else {
            StateUpdate::Running(RunningStateUpdate::new())
        };
        self.change_state(state, SubagentUpdate::new(wire_id(&self.id)));
    }

    fn end(&self, end: Result<StopReason, String>, answer: Option<&str>) {
        if let Some(text) = answer {
            self.send_message("answer", &self.id, &self.parent, text);
        }
        self.told.0.lock().helpers.insert(self.id.clone(), None);
        let idle = StateUpdate::Idle(IdleStateUpdate::new().stop_reason(stop_reason(end)));
        let update = SubagentUpdate::new(wire_id(&self.id))
            .capabilities(None::<SubagentSessionCapabilities>);
        self.change_state(idle, update);
        self.list(false);
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
