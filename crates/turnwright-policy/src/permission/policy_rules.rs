//! Everything a decision depends on besides the mode and the user's answers, and the paths that stay closed below an
//! allowed folder: those that rules deny, or that rules ask about without the user having been asked.

use std::path::{Path, PathBuf};

use super::glob::Glob;
use super::mode::Mode;
use super::protected_paths::ProtectedPaths;
use super::rule::{PathBases, Pattern, Rule, RuleAction};
use crate::shell;
use turnwright_types::effect::{Effect, ShellCommand};
use turnwright_types::shell_script::ShellDialect;

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
    /// Returns true if commands in the sandbox can have a proxy, so that the user is asked about hosts in place of the
    /// whole network. Finding out takes some milliseconds; it is called only when it matters.
    pub asks_about_hosts: fn() -> bool,
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
            asks_about_hosts: || false,
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

    /// Returns true if a command reaches the network through the proxy of its sandbox.
    pub(super) fn has_proxy(&self, command: &ShellCommand) -> bool {
        shell::uses_proxy(command) && (self.asks_about_hosts)()
    }

    /// Returns true if the sandbox bounds what commands may do. Lines for `cmd` are always asked about.
    pub(super) fn bounds_commands(&self) -> bool {
        self.can_confine && self.dialect != ShellDialect::Cmd && !(self.protected_exposed)()
    }
}

/// Paths that a call must not touch although they lie below an allowed folder. It only compares
/// paths and reads no files.
#[derive(Clone, Debug, Default)]
pub struct DeniedPaths {
    rules: Vec<Rule>,
    bases: PathBases,
}

impl DeniedPaths {
    /// The paths that stay closed when these effects are allowed: those that rules deny, and those that
    /// rules ask about unless the effects name them.
    pub(super) fn for_effects(policy: &PolicyRules, effects: &[Effect]) -> DeniedPaths {
        let read: Vec<_> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Read(target) => Some(target.path.as_path()),
                _ => None,
            })
            .collect();
        if read.is_empty() && !effects.iter().any(|effect| matches!(effect, Effect::Exec(_))) {
            return DeniedPaths::default();
        }
        DeniedPaths::with_rules(policy, |rule| match rule.action {
            _ if !matches!(rule.pattern, Pattern::Read(_) | Pattern::Edit(_)) => false,
            RuleAction::Deny => true,
            RuleAction::Ask => {
                !read.iter().any(|path| rule.matches_path(path, false, &policy.bases))
            }
            RuleAction::Allow => false,
        })
    }

    fn with_rules(policy: &PolicyRules, is_wanted: impl Fn(&Rule) -> bool) -> DeniedPaths {
        let rules = policy.rules.iter().filter(|rule| is_wanted(rule));
        DeniedPaths { rules: rules.cloned().collect(), bases: policy.bases.clone() }
    }

    /// Returns true if no rule closes any path.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The paths that the rules deny regardless of any call, for a program that is started outside of calls.
    pub fn from_rules(policy: &PolicyRules) -> DeniedPaths {
        DeniedPaths::with_rules(policy, |rule| rule.action == RuleAction::Deny)
    }

    /// The paths that rules deny or ask about, for content that a call may show although it does not name it.
    pub fn restricted(policy: &PolicyRules) -> DeniedPaths {
        DeniedPaths::with_rules(policy, |rule| {
            matches!(rule.pattern, Pattern::Read(_)) && rule.action != RuleAction::Allow
        })
    }

    /// Everything about files that rules deny or ask about, for calls that may touch more files than they
    /// name.
    pub fn all_restricted(policy: &PolicyRules) -> DeniedPaths {
        DeniedPaths::with_rules(policy, |rule| {
            rule.action != RuleAction::Allow
                && matches!(rule.pattern, Pattern::Read(_) | Pattern::Edit(_))
        })
    }

    /// Returns the action of the strictest rule about changing this path, or about reading it; `None` without one.
    pub fn restriction(&self, path: &Path, is_change: bool) -> Option<RuleAction> {
        let matching =
            self.rules.iter().filter(|rule| rule.matches_path(path, is_change, &self.bases));
        matching.map(|rule| rule.action).min()
    }

    /// Returns the denials whose paths are not all known without looking at the disk: the part about reading,
    /// and the part about changing. Each is empty if there is no such rule.
    pub fn denied_patterns(&self) -> (DeniedPaths, DeniedPaths) {
        let mut reads = self.clone();
        reads.rules.retain(|rule| rule.action == RuleAction::Deny);
        let mut edits = reads.clone();
        reads
            .rules
            .retain(|rule| matches!(&rule.pattern, Pattern::Read(glob) if !glob.is_literal()));
        edits
            .rules
            .retain(|rule| matches!(&rule.pattern, Pattern::Edit(glob) if !glob.is_literal()));
        (reads, edits)
    }

    /// The paths that must not be read, of rules without wildcards. A sandbox can hide them from a
    /// command.
    pub fn unreadable_paths(&self) -> Vec<PathBuf> {
        self.denied(|pattern| if let Pattern::Read(glob) = pattern { Some(glob) } else { None })
    }

    /// The paths that must not be changed, of rules without wildcards.
    pub fn unwritable_paths(&self) -> Vec<PathBuf> {
        self.denied(|pattern| if let Pattern::Edit(glob) = pattern { Some(glob) } else { None })
    }

    fn denied(&self, glob: impl Fn(&Pattern) -> Option<&Glob>) -> Vec<PathBuf> {
        let denied = self.rules.iter().filter(|rule| rule.action == RuleAction::Deny);
        let globs = denied.filter_map(|rule| glob(&rule.pattern));
        globs.flat_map(|glob| glob.literal_paths(&self.bases)).collect()
    }

    /// True if this path, with symlinks resolved, is closed.
    pub fn contains(&self, path: &Path) -> bool {
        self.rules.iter().any(|rule| rule.matches_path(path, false, &self.bases))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::Scope;
    use turnwright_types::effect::{PathScope, ResolvedPath};

    #[test]
    fn an_allowed_folder_opens_neither_what_is_denied_nor_what_was_not_asked_about() {
        let bases = PathBases { roots: vec!["/ws".into()], home: None };
        let table = [
            // rule, the path that is read, a path below it, whether that is closed
            ("deny read(/secret)", "/ws", "/ws/secret/key", true),
            ("deny read(*.key)", "/ws", "/ws/a/b.key", true),
            ("deny read(*.key)", "/ws", "/ws/a/b", false),
            ("deny edit(/secret)", "/ws", "/ws/secret/key", false),
            ("allow read(/secret)", "/ws", "/ws/secret/key", false),
            ("ask read(/notes)", "/ws", "/ws/notes/a", true),
            ("ask read(/notes)", "/ws/notes", "/ws/notes/a", false),
            ("ask read", "/ws", "/ws/notes/a", false),
        ];
        for (rule, read, below, expected) in table {
            let (action, text) = rule.split_once(' ').unwrap();
            let action = match action {
                "deny" => RuleAction::Deny,
                "ask" => RuleAction::Ask,
                _ => RuleAction::Allow,
            };
            let rules = vec![Rule::parse(text, action, Scope::User).unwrap()];
            let policy = PolicyRules { rules, bases: bases.clone(), ..PolicyRules::default() };
            let target = ResolvedPath { path: read.into(), scope: PathScope::Workspace };
            let denied = DeniedPaths::for_effects(&policy, &[Effect::Read(target)]);
            assert_eq!(denied.contains(Path::new(below)), expected, "{rule}: {read}: {below}");
        }
    }

    #[test]
    fn paths_are_known_of_rules_without_wildcards() {
        let bases = PathBases { roots: vec!["/ws".into()], home: Some("/home/u".into()) };
        let table = [
            ("read(/secret)", "/ws/secret"),
            ("read(/secret/**)", "/ws/secret"),
            ("read(.env)", "/ws/.env"),
            ("read(~/notes)", "/home/u/notes"),
            ("read(//srv/keys/)", "/srv/keys"),
            ("read(*.key)", ""),
            ("read(/a/*/b)", ""),
            ("read", ""),
        ];
        for (text, expected) in table {
            let rules = vec![Rule::parse(text, RuleAction::Deny, Scope::User).unwrap()];
            let policy = PolicyRules { rules, bases: bases.clone(), ..PolicyRules::default() };
            let run = Effect::Exec(Box::new(shell::command("make", "/ws", ShellDialect::Bash)));
            let places = DeniedPaths::for_effects(&policy, &[run]).unreadable_paths();
            let places = places.iter().map(|place| place.to_string_lossy());
            let places: Vec<_> =
                places.map(|place| place.replace(std::path::MAIN_SEPARATOR, "/")).collect();
            assert_eq!(places.join(" "), expected, "{text}");
        }
    }
}
