//! Cursors, the places at which a client may fork a session (R-CUR-1 to R-CUR-5). In version 2 each names the user's
//! message or the compaction that it is at. A client of version 1 does not learn the ids of what its user says, so
//! there a cursor before a prompt is after what the agent has shown last.

use std::collections::HashSet;

use super::schema::CursorAnchorPosition::{self, After, Before};
use super::schema::{
    CursorAnchor, CursorCapabilities, CursorCompactionAnchor, CursorForkCapabilities,
    CursorMessageAnchor, CursorToolCallAnchor, CursorUpdate,
};
use turnwright_types::ids::MessageId;
use turnwright_types::update::{CompactionState, CursorPlace, Update};

/// Converts an update of a cursor for a client of version 2. `None` if it is another update.
pub(super) fn update(update: &Update) -> Option<CursorUpdate> {
    let (place, at, can_fork) = match update {
        Update::Cursor { place, at } => (*place, at, true),
        Update::CursorChanged { place, at, can_fork } => (*place, at, *can_fork),
        _ => return None,
    };
    Some(cursor_update(place, at, can_fork).anchor(own_anchor(place, at)))
}

fn cursor_update(place: CursorPlace, at: &MessageId, can_fork: bool) -> CursorUpdate {
    let fork = CursorForkCapabilities::new();
    let capabilities = can_fork.then(|| CursorCapabilities::new().fork(fork));
    CursorUpdate::new(place.cursor_id(at)).capabilities(capabilities)
}

fn own_anchor(place: CursorPlace, at: &MessageId) -> CursorAnchor {
    match place {
        CursorPlace::BeforePrompt => CursorAnchor::UserMessage(message_anchor(at, Before)),
        CursorPlace::AfterCompaction => {
            CursorAnchor::Compaction(CursorCompactionAnchor::new(at.to_arc(), After))
        }
    }
}

fn message_anchor(message: &MessageId, position: CursorAnchorPosition) -> CursorMessageAnchor {
    CursorMessageAnchor::new(message.to_arc(), position)
}

/// The cursors of a session that a client of version 1 knows.
#[derive(Debug, Default)]
pub(super) struct KnownCursors {
    /// The place after what the agent has shown since the user's last message.
    last: Option<CursorAnchor>,
    /// The user's message that was replayed last.
    replayed: Option<MessageId>,
    announced: HashSet<MessageId>,
}

impl KnownCursors {
    /// Takes note of an update. Returns the one of its cursor if the client can find the place.
    pub(super) fn note(&mut self, update: &Update, has_compactions: bool) -> Option<CursorUpdate> {
        self.last = Some(match update {
            Update::AgentText { message, .. } => {
                CursorAnchor::AgentMessage(message_anchor(message, After))
            }
            Update::AgentThought { message, .. } => {
                CursorAnchor::AgentThought(message_anchor(message, After))
            }
            Update::ToolCall { id, .. } => {
                CursorAnchor::ToolCall(CursorToolCallAnchor::new(id.to_arc(), After))
            }
            Update::Compaction { id, state: CompactionState::Completed(_), .. }
                if has_compactions =>
            {
                own_anchor(CursorPlace::AfterCompaction, id)
            }
            Update::UserChunk { message, .. } => {
                self.replayed = Some(message.clone());
                return None;
            }
            Update::Cursor { place, at } => {
                let own = Some(own_anchor(*place, at));
                let anchor = match place {
                    CursorPlace::BeforePrompt => {
                        let is_held = self.replayed.as_ref() == Some(at);
                        self.last.take().or(own.filter(|_| is_held))
                    }
                    CursorPlace::AfterCompaction => own.filter(|_| has_compactions),
                }?;
                self.announced.insert(at.clone());
                return Some(cursor_update(*place, at, true).anchor(anchor));
            }
            Update::CursorChanged { place, at, can_fork } if self.announced.contains(at) => {
                return Some(cursor_update(*place, at, *can_fork));
            }
            _ => return None,
        });
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

    fn cursor(at: &str) -> Update {
        Update::Cursor { place: CursorPlace::BeforePrompt, at: at.into() }
    }

    fn changed(at: &str, can_fork: bool) -> Update {
        Update::CursorChanged { place: CursorPlace::BeforePrompt, at: at.into(), can_fork }
    }

    /// What a client of version 1 is sent for these updates.
    fn sent(updates: &[Update]) -> Vec<Value> {
        let mut known = KnownCursors::default();
        let placed = updates.iter().filter_map(|update| known.note(update, true));
        placed.map(|update| serde_json::to_value(update).unwrap()).collect()
    }

    #[test]
    fn version_1_is_told_of_a_cursor_only_where_it_can_find_the_place() {
        let after = |message: &str, at: &str| {
            json!({
                "cursorId": format!("before-{at}"), "capabilities": { "fork": {} },
                "anchor": { "type": "agent_message", "messageId": message, "position": "after" },
            })
        };
        assert_eq!(sent(&[cursor("1"), said("2"), cursor("3")]), [after("2", "3")]);
        // What the agent has shown is before the words between.
        assert_eq!(sent(&[said("2"), cursor("3"), cursor("4")]), [after("2", "3")]);
        let part = PromptPart::Text("x".to_owned());
        let shown = Update::UserChunk { message: "1".into(), part };
        let own = json!({ "type": "user_message", "messageId": "1", "position": "before" });
        assert_eq!(sent(&[shown.clone(), cursor("1")])[0]["anchor"], own);
        assert_eq!(sent(&[said("0"), shown, cursor("1")]), [after("0", "1")]);
    }

    #[test]
    fn a_change_is_told_of_what_was_announced() {
        let told = sent(&[said("2"), changed("3", true), cursor("3"), changed("3", false)]);
        assert_eq!(told.len(), 2);
        assert_eq!(told[1], json!({ "cursorId": "before-3", "capabilities": null }));
        assert_eq!(sent(&[changed("3", false), said("2"), changed("3", true)]), [Value::Null; 0]);
    }

    #[test]
    fn version_2_has_the_place_in_each_update() {
        let place = CursorPlace::AfterCompaction;
        let update = update(&Update::CursorChanged { place, at: "sum-4".into(), can_fork: false });
        let anchor = json!({ "type": "compaction", "compactionId": "sum-4", "position": "after" });
        let expected = json!({ "cursorId": "after-sum-4", "capabilities": null, "anchor": anchor });
        assert_eq!(serde_json::to_value(update).unwrap(), expected);
        assert_eq!(super::update(&said("1")), None);
    }
}
