//! All that decides besides the mode and the answers of this session: rules, places, and what the
//! machine can enforce.

use super::protected::Protected;
use super::rule::{Ground, Rule};
use turnwright_types::dialect::Dialect;

/// The rules of a session.
#[derive(Clone, Debug)]
pub struct Law {
    /// From every scope, in no order: the strictest that matches counts.
    pub rules: Vec<Rule>,
    /// What their paths are relative to.
    pub ground: Ground,
    /// What lies in the project and acts outside of it.
    pub protected: Protected,
    /// The shell that runs commands.
    pub dialect: Dialect,
    /// Whether the machine can confine a command. Where it cannot, no mode runs one unasked because
    /// of its sandbox.
    pub can_confine: bool,
    /// Whether what the user has allowed and trusted lies in a folder of the session, and the machine
    /// cannot keep it from commands that may write there. Then none runs unasked because of its
    /// sandbox. Asked when it counts: to find it out takes some milliseconds, once.
    pub is_exposed: fn() -> bool,
}

impl Default for Law {
    fn default() -> Law {
        Law {
            rules: Vec::new(),
            ground: Ground::default(),
            protected: Protected::default(),
            dialect: Dialect::Bash,
            can_confine: false,
            is_exposed: || false,
        }
    }
}
