//! Cursors, the places at which a client may fork a session (R-CUR-1 to R-CUR-5). In version 2 each names the user's
//! message or the compaction that it is at. A client of version 1 does not learn the ids of what its user says, so
//! there a cursor before a prompt is after what the agent has shown last.

use std::collections::HashSet;

use super::schema::{
    CursorAnchor, CursorAnchorPosition, CursorCapabilities, CursorCompactionAnchor,
    CursorForkCapabilities, CursorMessageAnchor, CursorToolCallAnchor, CursorUpdate, SessionUpdate,
};
use turnwright_types::ids::MessageId;
use turnwright_types::update::{CompactionState, CursorPlace, Update};

/// Converts an update of a cursor for a client of version 2. `None` if it is another update.
pub(super) fn update(update: &Update) -> Option<SessionUpdate> {
    let (place, at, can_fork) = match update {
        Update::Cursor { place, at } => (*place, at, true),
        Update::CursorChanged { place, at, can_fork } => (*place, at, *can_fork),
        _ => return None,
    };
    Some(cursor_update(place, at, can_fork, Some(own_anchor(place, at))))
}

fn cursor_update(
    place: CursorPlace,
    at: &MessageId,
    can_fork: bool,
    anchor: Option<CursorAnchor>,
) -> SessionUpdate {
    let capabilities =
        can_fork.then(|| CursorCapabilities::new().fork(CursorForkCapabilities::new()));
    let update = CursorUpdate::new(place.cursor_id(at)).capabilities(capabilities).anchor(anchor);
    SessionUpdate::CursorUpdate(update)
}

fn own_anchor(place: CursorPlace, at: &MessageId) -> CursorAnchor {
    match place {
        CursorPlace::BeforePrompt => {
            let before = CursorAnchorPosition::Before;
            CursorAnchor::UserMessage(CursorMessageAnchor::new(at.to_arc(), before))
        }
        CursorPlace::AfterCompaction => {
            let after = CursorAnchorPosition::After;
            CursorAnchor::Compaction(CursorCompactionAnchor::new(at.to_arc(), after))
        }
    }
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
    pub(super) fn note(&mut self, update: &Update, has_compactions: bool) -> Option<SessionUpdate> {
        match update {
            Update::AgentText { message, .. } => {
                self.last = Some(CursorAnchor::AgentMessage(after(message)));
            }
            Update::AgentThought { message, .. } => {
                self.last = Some(CursorAnchor::AgentThought(after(message)));
            }
            Update::ToolCall { id, .. } => {
                let anchor = CursorToolCallAnchor::new(id.to_arc(), CursorAnchorPosition::After);
                self.last = Some(CursorAnchor::ToolCall(anchor));
            }
            Update::Compaction { id, state: CompactionState::Completed(_), .. }
                if has_compactions =>
            {
                self.last = Some(own_anchor(CursorPlace::AfterCompaction, id));
            }
            Update::UserChunk { message, .. } => self.replayed = Some(message.clone()),
            Update::Cursor { place, at } => {
                let is_held = match place {
                    CursorPlace::BeforePrompt => self.replayed.as_ref() == Some(at),
                    CursorPlace::AfterCompaction => has_compactions,
                };
                let before = match place {
                    CursorPlace::BeforePrompt => self.last.take(),
                    CursorPlace::AfterCompaction => None,
                };
                let anchor = before.or_else(|| is_held.then(|| own_anchor(*place, at)))?;
                self.announced.insert(at.clone());
                return Some(cursor_update(*place, at, true, Some(anchor)));
            }
            Update::CursorChanged { place, at, can_fork } if self.announced.contains(at) => {
                return Some(cursor_update(*place, at, *can_fork, None));
            }
            _ => {}
        }
        None
    }
}

fn after(message: &MessageId) -> CursorMessageAnchor {
    CursorMessageAnchor::new(message.to_arc(), CursorAnchorPosition::After)
}
