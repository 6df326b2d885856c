//! A newtype for each kind of id, so that they cannot be confused, and helpers for names.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the shared text, for wire types that own their ids.
            pub fn to_arc(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl<T: Into<Arc<str>>> From<T> for $name {
            fn from(text: T) -> Self {
                $name(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

id! {
    /// The id of a session. Unique across processes (R-SESS-1): a version 4 UUID.
    SessionId
}

id! {
    /// The id of a tool call as the client sees it. Unique in its session, unlike the provider's id,
    /// which models reuse from turn to turn (R-TOOL-2).
    CallId
}

id! {
    /// The id of one message of the model. A turn starts a new one after each batch of tool calls
    /// (R-TURN-8).
    MessageId
}

id! {
    /// The id of a terminal that the client shows: one in which it runs a command itself, or one that
    /// displays a command that we run.
    TerminalId
}

impl SessionId {
    pub fn random() -> SessionId {
        SessionId::from(uuid::Uuid::new_v4().to_string())
    }
}

impl MessageId {
    /// The temporary id of a message that waits for the running turn, at this place in the log. The message gets its
    /// final id when the turn reads it.
    pub fn waiting(seq: u64) -> MessageId {
        MessageId::from(format!("steering-{seq}"))
    }

    pub fn is_waiting(&self) -> bool {
        self.as_str().starts_with("steering-")
    }

    /// The name of the cursor at this message or compaction. It is the same after a restart.
    pub fn cursor_id(&self) -> String {
        format!("cursor-{self}")
    }

    /// The message or compaction at the cursor with this name, if there is such a cursor.
    pub fn at_cursor(name: &str) -> Option<MessageId> {
        name.strip_prefix("cursor-").map(MessageId::from)
    }
}

/// The length in bytes of the longest slug.
pub const MAX_SLUG_LEN: usize = 64;

/// True if `name` can be the name of a note or a skill, such as `build-commands`. A slug is a valid
/// file name on every system and cannot be a path.
pub fn is_slug(name: &str) -> bool {
    name.len() <= MAX_SLUG_LEN && name.split('-').all(is_slug_part)
}

fn is_slug_part(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}
