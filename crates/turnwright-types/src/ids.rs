//! One newtype for each kind of identifier, so that none can stand in for another.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The identifier as it goes over the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The shared text, for wire types that want to own it.
            pub fn to_arc(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
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
    /// A conversation. Unique across processes (R-SESS-1): a version 4 UUID.
    SessionId
}

id! {
    /// A tool call as the client sees it. Unique in its session whatever the model's own id is,
    /// because models reuse theirs from turn to turn (R-TOOL-2).
    CallId
}

id! {
    /// One message of the model. It changes after each batch of tool calls (R-TURN-8).
    MessageId
}

id! {
    /// A terminal that the client shows: one that it runs itself, or the display of a command of
    /// ours.
    TerminalId
}

impl SessionId {
    /// A new, random identifier.
    pub fn random() -> SessionId {
        SessionId::from(uuid::Uuid::new_v4().to_string())
    }
}

/// Bytes, such as a hash, as a name: two digits each.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Characters of a slug.
pub const LONGEST_SLUG: usize = 64;

/// Whether that can be the name of a note or a skill, such as `build-commands`: it is a file's
/// name on every system, and nothing else.
pub fn is_slug(name: &str) -> bool {
    let fits = |it: &str| {
        !it.is_empty() && it.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
    };
    name.len() <= LONGEST_SLUG && name.split('-').all(fits)
}
