//! Shows helpers as child sessions to clients with the unstable capability `subagents` (R-SUB-1). Our build
//! of the schema has no types for that, so the few fields are written here.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::capabilities::ClientCaps;
use super::client::AcpClient;
use super::schema::{SessionId, SessionNotification};
use super::to_wire;
use turnwright_rpc::Peer;
use turnwright_types::client::{HelperSession, HelperView};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::message::StopReason;
use turnwright_types::update::Update;

/// A helper as the client shows it.
#[derive(Debug)]
struct ChildSession {
    peer: Peer,
    caps: ClientCaps,
    cwd: PathBuf,
    parent: SessionId,
    id: SessionId,
}

/// Announces a helper, before any update of its conversation. Permissions are asked for by the parent, and
/// the client can change nothing about the child.
pub(super) fn announce(client: &AcpClient, helper: &HelperSession) -> Option<Box<dyn HelperView>> {
    if !client.caps.subagents {
        return None;
    }
    let child = ChildSession {
        peer: client.peer.clone(),
        // The output of a helper's commands is text.
        caps: ClientCaps { terminal: false, terminal_output: false, ..client.caps },
        cwd: client.cwd.clone(),
        parent: client.session.clone(),
        id: SessionId::new(helper.id.to_arc()),
    };
    let title = escape_hidden_line(&helper.title);
    child.send_state(json!({ "title": title, "state": { "state": "running" } }));
    Some(Box::new(child))
}

impl ChildSession {
    /// Sends these fields of the child, as an update of its parent.
    fn send_state(&self, mut fields: Value) {
        fields["sessionUpdate"] = "subagent_update".into();
        fields["sessionId"] = self.id.0.as_ref().into();
        let params = json!({ "sessionId": self.parent.0.as_ref(), "update": fields });
        self.peer.outbox().notify("session/update", &params);
    }
}

impl HelperView for ChildSession {
    fn update(&self, update: Update) {
        if let Some(update) = to_wire::update(update, self.caps, &self.cwd) {
            let params = SessionNotification::new(self.id.clone(), update);
            self.peer.outbox().notify("session/update", &params);
        }
    }

    fn end(&self, stop: Option<StopReason>) {
        let stop = stop.map_or("error", StopReason::as_str);
        self.send_state(json!({ "state": { "state": "idle", "stopReason": stop } }));
    }
}
