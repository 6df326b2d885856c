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

    /// Returns true if it is about exactly this line.
    fn is_for_line(&self, effect: &Effect) -> bool {
        matches!(&self.commands, GrantedCommands::Exactly(allowed) if **allowed == *effect)
    }

    fn is_about(&self, simple: &SimpleCommand) -> bool {
        let GrantedCommands::Matching(pattern) = &self.commands else { return false };
        Rule::new(RuleAction::Allow, pattern.clone(), Scope::Session).matches_command(simple)
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
        let left = self.left_of(needed, |grant| {
            grant.commands == GrantedCommands::All || grant.is_for_line(effect)
        });
        left.is_none() || is_understood(command) && self.gives_each_command(command, &left)
    }

    /// Returns true if the user has allowed all this access to exactly this line.
    pub(crate) fn gives_line_access(&self, effect: &Effect, needed: &ExtraAccess) -> bool {
        self.left_of(needed, |grant| grant.is_for_line(effect)).is_none()
    }

    /// The part of some access that these grants do not give.
    fn left_of(
        &self,
        needed: &ExtraAccess,
        is_meant: impl Fn(&AccessGrant) -> bool,
    ) -> ExtraAccess {
        let grants = self.access().iter().filter(|grant| is_meant(grant));
        grants.fold(needed.clone(), |left, grant| left.beyond(&grant.access))
    }

    fn gives_each_command(&self, command: &ShellCommand, needed: &ExtraAccess) -> bool {
        commands_with_access(command)
            .into_iter()
            .all(|simple| self.left_of(needed, |grant| grant.is_about(simple)).is_none())
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
