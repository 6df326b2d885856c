//! Access beyond the sandbox that the user has allowed for the session, and the command lines that get it. Pure.

use super::Grants;
use super::extra_access::access_of_command;
use super::rule::{PathBases, Pattern, Rule, RuleAction, Scope};
use crate::shell::{self, SimpleCommand};
use turnwright_types::effect::{Effect, ExtraAccess, ShellCommand};

/// Access beyond the sandbox that holds for the rest of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessGrant {
    pub(crate) commands: GrantedCommands,
    pub(crate) access: ExtraAccess,
}

/// The commands that a grant is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GrantedCommands {
    /// Every command, also in lines that are not understood.
    All,
    /// Commands with these words, in lines that are understood.
    Matching(Pattern),
    /// This very line, in its folder.
    Exactly(Box<Effect>),
}

impl AccessGrant {
    /// Says what is allowed to which commands, as a line of a list.
    pub fn describe(&self, bases: &PathBases) -> String {
        let access = access_of_command(&self.access, bases);
        match &self.commands {
            GrantedCommands::All => format!("every command {access}"),
            GrantedCommands::Matching(pattern) => format!("{pattern} {access}"),
            GrantedCommands::Exactly(effect) => match &**effect {
                Effect::Exec(command) => format!("exactly {} {access}", command.line),
                _ => access,
            },
        }
    }

    fn is_about(&self, simple: &SimpleCommand) -> bool {
        let GrantedCommands::Matching(pattern) = &self.commands else { return false };
        let rule = Rule {
            action: RuleAction::Allow,
            pattern: pattern.clone(),
            scope: Scope::Session,
            why: None,
        };
        rule.matches_command(simple)
    }
}

impl Grants {
    /// Returns true if the user has allowed a command all this access for the session. A part of the line that only
    /// reads needs no grant of its own beside others that have one.
    pub(crate) fn gives_access(&self, effect: &Effect, needed: &ExtraAccess) -> bool {
        let Effect::Exec(command) = effect else { return false };
        if self.access().is_empty() {
            return needed.is_none();
        }
        let mut left = needed.clone();
        for grant in self.access() {
            let is_for_line = match &grant.commands {
                GrantedCommands::All => true,
                GrantedCommands::Exactly(allowed) => **allowed == *effect,
                GrantedCommands::Matching(_) => false,
            };
            if is_for_line {
                left = left.beyond(&grant.access);
            }
        }
        left.is_none() || is_understood(command) && self.gives_each_command(command, &left)
    }

    /// Returns true if the user has allowed all this access to exactly this line.
    pub(crate) fn gives_line_access(&self, effect: &Effect, needed: &ExtraAccess) -> bool {
        let mut left = needed.clone();
        for grant in self.access() {
            if matches!(&grant.commands, GrantedCommands::Exactly(allowed) if **allowed == *effect)
            {
                left = left.beyond(&grant.access);
            }
        }
        left.is_none()
    }

    fn gives_each_command(&self, command: &ShellCommand, needed: &ExtraAccess) -> bool {
        commands_with_access(command).into_iter().all(|simple| {
            let mut left = needed.clone();
            for grant in self.access().iter().filter(|grant| grant.is_about(simple)) {
                left = left.beyond(&grant.access);
            }
            left.is_none()
        })
    }
}

/// Returns true if the words of a line say everything that it does.
pub(super) fn is_understood(command: &ShellCommand) -> bool {
    let script = &command.script;
    script.ambiguity.is_none() && !script.commands.is_empty() && command.uncertainty.is_none()
}

/// The commands of a line that its access is meant for: those that do more than read, or all if all only read.
pub(super) fn commands_with_access(command: &ShellCommand) -> Vec<&SimpleCommand> {
    let all = &command.script.commands;
    let acting: Vec<_> =
        all.iter().filter(|simple| !shell::classify(simple).is_read_only).collect();
    if acting.is_empty() { all.iter().collect() } else { acting }
}
