//! Everything a decision depends on besides the mode and the user's answers.

use super::mode::Mode;
use super::protected_paths::ProtectedPaths;
use super::rule::{PathBases, Rule};
use turnwright_types::dialect::ShellDialect;

/// The rules of a session, and the facts about the machine that decisions depend on. The default
/// has no rules and assumes that there is no sandbox.
#[derive(Clone, Debug)]
pub struct PolicyRules {
    /// The rules of every scope. Their order does not matter: the strictest that matches wins.
    pub rules: Vec<Rule>,
    /// The folders that paths in rules are relative to.
    pub bases: PathBases,
    /// Files of the project that have effects outside of it.
    pub protected: ProtectedPaths,
    /// The dialect of the shell that runs commands.
    pub dialect: ShellDialect,
    /// True if this system can confine a command. If not, no mode runs a command unasked because it
    /// would be sandboxed.
    pub can_confine: bool,
    /// The least strict mode that the machine's administrator allows.
    pub max_mode: Mode,
    /// True if the settings give commands in the sandbox the network.
    pub has_network: bool,
    /// Returns true if a sandboxed command could write protected files, because the system cannot
    /// exclude parts of a folder. If so, no command that may write runs unasked because it would be
    /// sandboxed. This is a function because finding out takes some milliseconds; it is called only
    /// when it matters.
    pub protected_exposed: fn() -> bool,
}

impl Default for PolicyRules {
    fn default() -> PolicyRules {
        PolicyRules {
            rules: Vec::new(),
            bases: PathBases::default(),
            protected: ProtectedPaths::default(),
            dialect: ShellDialect::Bash,
            can_confine: false,
            max_mode: Mode::Full,
            has_network: false,
            protected_exposed: || false,
        }
    }
}

impl PolicyRules {
    /// Finds out what decisions about commands depend on, so that they do not wait for it. Blocks: not for the
    /// runtime's thread.
    pub fn look_at_sandbox(&self) {
        (self.protected_exposed)();
    }

    /// Returns true if the sandbox bounds what commands may do. Lines for `cmd` are always asked about.
    pub(super) fn bounds_commands(&self) -> bool {
        self.can_confine && self.dialect != ShellDialect::Cmd && !(self.protected_exposed)()
    }
}
