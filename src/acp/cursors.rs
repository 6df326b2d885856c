//! Cursors, the places at which a client may fork a session (R-CUR-1 to R-CUR-5). In version 2 the anchor of each is
//! the user's message or the compaction next to it. A client of version 1 does not learn the ids of the user's
//! messages, so there a cursor before a prompt is placed after the agent's last text.

use std::collections::HashSet;

use super::capabilities::ClientCaps;
use super::schema::CursorAnchorPosition::{After, Before};
use super::schema::{
    CursorAnchor, CursorCapabilities, CursorCompactionAnchor, CursorForkCapabilities,
    CursorMessageAnchor, CursorUpdate, SessionUpdate,
};
use turnwright_types::ids::MessageId;
use turnwright_types::update::{CompactionState, CursorPlace, Update};

/// Makes an update of a cursor. The first one has an anchor.
pub(super) fn cursor_update(
    at: &MessageId,
    can_fork: bool,
    anchor: Option<CursorAnchor>,
) -> SessionUpdate {
    let fork = CursorForkCapabilities::new();
    let capabilities = can_fork.then(|| CursorCapabilities::new().fork(fork));
    let update = CursorUpdate::new(at.cursor_id()).capabilities(capabilities).anchor(anchor);
    SessionUpdate::CursorUpdate(update)
}

pub(super) fn anchor(place: CursorPlace, at: &MessageId) -> CursorAnchor {
    let id = at.to_arc();
    match place {
        CursorPlace::BeforePrompt => {
            CursorAnchor::UserMessage(CursorMessageAnchor::new(id, Before))
        }
        CursorPlace::AfterCompaction => {
            CursorAnchor::Compaction(CursorCompactionAnchor::new(id, After))
        }
    }
}

/// The cursors of a session that a client of version 1 knows.
#[derive(Debug, Default)]
pub(super) struct KnownCursors {
    /// The anchor for a new cursor, if the client knows the id of a message or compaction there.
    here: Option<CursorAnchor>,
    announced: HashSet<MessageId>,
}

impl KnownCursors {
    /// Notes an update. If it is about a cursor that the client knows or can place, returns what to send.
    pub(super) fn note(&mut self, update: &Update, caps: ClientCaps) -> Option<SessionUpdate> {
        if !caps.cursors {
            return None;
        }
        match update {
            Update::AgentText { message, .. } => {
                let after = CursorMessageAnchor::new(message.to_arc(), After);
                self.here = Some(CursorAnchor::AgentMessage(after));
            }
            Update::UserChunk { message, .. } if !message.is_waiting() => {
                self.here.get_or_insert_with(|| anchor(CursorPlace::BeforePrompt, message));
            }
            Update::AgentThought { .. } | Update::ToolCall { .. } | Update::UserChunk { .. } => {
                self.here = None;
            }
            Update::Compaction { id, state: CompactionState::Completed(_), .. } => {
                self.here = caps.compactions.then(|| anchor(CursorPlace::AfterCompaction, id));
            }
            Update::Cursor { at, can_fork, .. } if self.announced.contains(at) => {
                return Some(cursor_update(at, *can_fork, None));
            }
            Update::Cursor { at, can_fork: true, .. } => {
                let here = self.here.take()?;
                self.announced.insert(at.clone());
                return Some(cursor_update(at, true, Some(here)));
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use turnwright_types::message::PromptPart;

    fn said(message: &str) -> Update {
        Update::AgentText { message: message.into(), text: "x".to_owned() }
    }

    fn shown(message: &str) -> Update {
        let part = PromptPart::Text("x".to_owned());
        Update::UserChunk { message: message.into(), part }
    }

    fn cursor(at: &str) -> Update {
        Update::Cursor { place: CursorPlace::BeforePrompt, at: at.into(), can_fork: true }
    }

    fn gone(at: &str) -> Update {
        Update::Cursor { place: CursorPlace::BeforePrompt, at: at.into(), can_fork: false }
    }

    /// Returns the cursors that a client of version 1 is sent for these updates.
    fn sent(updates: &[Update], compactions: bool) -> Vec<Value> {
        let mut known = KnownCursors::default();
        let caps = ClientCaps { cursors: true, compactions, ..ClientCaps::default() };
        let sent = updates.iter().filter_map(|update| known.note(update, caps));
        sent.map(|update| serde_json::to_value(update).unwrap()).collect()
    }

    fn announced(at: &str, anchor: &Value) -> Value {
        json!({
            "sessionUpdate": "cursor_update", "cursorId": format!("cursor-{at}"),
            "capabilities": { "fork": {} }, "anchor": anchor,
        })
    }

    #[test]
    fn version_1_is_told_of_a_cursor_where_it_can_find_the_place() {
        let after = json!({ "type": "agent_message", "messageId": "2", "position": "after" });
        let before = json!({ "type": "user_message", "messageId": "1", "position": "before" });
        assert_eq!(sent(&[cursor("1"), said("2"), cursor("3")], true), [announced("3", &after)]);
        // There is no text of the agent between the two cursors.
        assert_eq!(sent(&[said("2"), cursor("3"), cursor("4")], true), [announced("3", &after)]);
        assert_eq!(sent(&[shown("1"), cursor("1")], true), [announced("1", &before)]);
        // A replay gives the same anchor as the turn did.
        assert_eq!(sent(&[said("2"), shown("3"), cursor("3")], true), [announced("3", &after)]);
        // A message that no turn has read has no cursor, and is no anchor for the next one.
        let unread = [said("2"), shown("steering-7"), shown("1"), cursor("1")];
        assert_eq!(sent(&unread, true), [announced("1", &before)]);
    }

    #[test]
    fn version_1_is_told_of_a_compaction_only_if_it_shows_compactions() {
        let id = MessageId::from("sum-4");
        let state = CompactionState::Completed(None);
        let done = Update::Compaction { id: id.clone(), state, notice: None };
        let place = CursorPlace::AfterCompaction;
        let updates = [said("2"), done, Update::Cursor { place, at: id, can_fork: true }];
        let after = json!({ "type": "compaction", "compactionId": "sum-4", "position": "after" });
        assert_eq!(sent(&updates, true), [announced("sum-4", &after)]);
        assert!(sent(&updates, false).is_empty());
    }

    #[test]
    fn version_1_is_told_of_a_change_only_if_it_knows_the_cursor() {
        let before = [said("2"), gone("3"), cursor("3")];
        let after = [gone("3"), gone("4"), cursor("4"), cursor("3")];
        let told = sent(&[&before[..], &after[..]].concat(), true).split_off(1);
        let change = |capabilities: Value| {
            json!({
                "sessionUpdate": "cursor_update", "cursorId": "cursor-3",
                "capabilities": capabilities,
            })
        };
        assert_eq!(told, [change(Value::Null), change(json!({ "fork": {} }))]);
    }
}
