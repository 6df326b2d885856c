//! The user's answers that hold for the rest of the session, including those about access beyond the sandbox and the
//! command lines that get it. Pure.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::describe::access_of_command;
use super::rule::{PathBases, Pattern, Rule, RuleAction, Scope};
use crate::shell::{self, SimpleCommand};
use turnwright_types::effect::{Effect, ExtraAccess, ShellCommand};
use turnwright_types::lists::add_new;

/// The user's answers that hold for this session.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// Patterns that the user has allowed.
    allowed: Vec<Rule>,
    /// Effects that the user has allowed exactly, without a pattern.
    exact: HashSet<Effect>,
    /// Access beyond the sandbox that the user has allowed.
    access: Vec<AccessGrant>,
    /// True if commands in the sandbox are judged as in mode `auto`.
    all_commands: bool,
    rejected: HashSet<Effect>,
    /// The rules that allow the same in later sessions of the project, with what was asked.
    project_rules: Vec<(Rule, String)>,
    /// The exact effects that these rules allow too.
    covered: Vec<Effect>,
    /// A number that belongs to no other set of answers in this process; 0 if there are none.
    revision: u64,
}

/// The last revision that was given to any set of answers.
static LAST_REVISION: AtomicU64 = AtomicU64::new(0);

impl Grants {
    /// Returns a number that changes with every answer, so whatever is judged at the same revision is judged by the
    /// same answers.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn note_change(&mut self) {
        self.revision = LAST_REVISION.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// Allows a pattern.
    pub fn allow(&mut self, rule: Rule) {
        self.note_change();
        add_new(&mut self.allowed, rule);
    }

    /// Allows exactly this effect.
    pub fn allow_exactly(&mut self, effect: Effect) {
        self.note_change();
        self.exact.insert(effect);
    }

    /// Allows access beyond the sandbox.
    pub(crate) fn allow_access(&mut self, grant: AccessGrant) {
        self.note_change();
        add_new(&mut self.access, grant);
    }

    /// Allows every command that the mode `auto` would run in the sandbox without a question.
    pub(crate) fn allow_all_commands(&mut self) {
        self.note_change();
        self.all_commands = true;
    }

    /// Rejects exactly these effects.
    pub fn reject(&mut self, effects: &[Effect]) {
        self.note_change();
        self.rejected.extend(effects.iter().map(without_claims));
    }

    /// Notes rules that would allow these effects for the project. `origin` is what was asked.
    pub(crate) fn note_project_rules(
        &mut self,
        rules: impl Iterator<Item = Rule>,
        covered: &[Effect],
        origin: &str,
    ) {
        self.note_change();
        for rule in rules {
            if !self.project_rules.iter().any(|entry| entry.0 == rule) {
                self.project_rules.push((rule, origin.to_owned()));
            }
        }
        self.covered.extend_from_slice(covered);
    }

    /// Forgets the answers that have become rules of the project, so that they end when those rules are revoked.
    pub fn forget_kept(&mut self) {
        self.note_change();
        let kept = std::mem::take(&mut self.project_rules);
        self.allowed
            .retain(|rule| !kept.iter().any(|(kept_rule, _)| kept_rule.pattern == rule.pattern));
        for effect in std::mem::take(&mut self.covered) {
            self.exact.remove(&effect);
        }
    }

    /// The rules that the user may keep for the project, with what was asked when they were allowed.
    pub fn project_rules(&self) -> &[(Rule, String)] {
        &self.project_rules
    }

    /// The allowed patterns.
    pub fn rules(&self) -> &[Rule] {
        &self.allowed
    }

    /// The effects that were allowed exactly.
    pub fn exact_effects(&self) -> impl Iterator<Item = &Effect> {
        self.exact.iter()
    }

    /// The access beyond the sandbox that was allowed.
    pub fn access(&self) -> &[AccessGrant] {
        &self.access
    }

    /// Returns true if every command was allowed that the mode `auto` would run in the sandbox without a question.
    pub fn allows_all_commands(&self) -> bool {
        self.all_commands
    }

    /// The rejected effects.
    pub fn rejected_effects(&self) -> impl Iterator<Item = &Effect> {
        self.rejected.iter()
    }

    /// True if exactly this effect was allowed.
    pub(crate) fn allows_exactly(&self, effect: &Effect) -> bool {
        self.exact.contains(effect)
    }

    /// True if exactly this effect was rejected.
    pub fn is_rejected(&self, effect: &Effect) -> bool {
        self.rejected.contains(&without_claims(effect))
    }
}

/// The effect without what the tool says about itself. A rejected tool stays rejected when its
/// description changes; otherwise a server could ask again by changing it.
fn without_claims(effect: &Effect) -> Effect {
    let mut effect = effect.clone();
    if let Effect::Remote(call) = &mut effect {
        call.tool_digest.clear();
        call.claims_read_only = false;
        call.change_since_approval = None;
    }
    effect
}

/// Access beyond the sandbox that holds for the rest of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessGrant {
    pub(crate) commands: GrantedCommands,
    pub(crate) access: ExtraAccess,
}

/// The commands that a grant is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GrantedCommands {
    /// Every command, even in lines that are not understood.
    All,
    /// Commands with these words, in lines that are understood.
    Matching(Pattern),
    /// This very line, in its folder.
    Exactly(Box<ShellCommand>),
}

impl AccessGrant {
    /// Says what is allowed to which commands, as a line of a list.
    pub fn describe(&self, bases: &PathBases) -> String {
        let access = access_of_command(&self.access, bases);
        match &self.commands {
            GrantedCommands::All => format!("every command {access}"),
            GrantedCommands::Matching(pattern) => format!("{pattern} {access}"),
            GrantedCommands::Exactly(command) => format!("exactly {} {access}", command.line),
        }
    }

    /// Returns true if it is about exactly this line.
    fn is_for_line(&self, command: &ShellCommand) -> bool {
        matches!(&self.commands, GrantedCommands::Exactly(allowed) if **allowed == *command)
    }

    fn is_about(&self, simple: &SimpleCommand) -> bool {
        let GrantedCommands::Matching(pattern) = &self.commands else { return false };
        Rule::new(RuleAction::Allow, pattern.clone(), Scope::Session).matches_command(simple)
    }
}

impl Grants {
    /// Returns true if the user has allowed a command all this access for the session. A part of the line that only
    /// reads needs no grant of its own beside others that have one.
    pub(crate) fn gives_access(&self, command: &ShellCommand, needed: &ExtraAccess) -> bool {
        if self.access().is_empty() {
            return needed.is_none();
        }
        let left = self.missing_access(needed, |grant| {
            grant.commands == GrantedCommands::All || grant.is_for_line(command)
        });
        left.is_none() || is_understood(command) && self.gives_each_command(command, &left)
    }

    /// Returns true if the user has allowed all this access to exactly this line.
    pub(crate) fn gives_line_access(&self, command: &ShellCommand, needed: &ExtraAccess) -> bool {
        self.missing_access(needed, |grant| grant.is_for_line(command)).is_none()
    }

    /// Returns the part of the needed access that is given by none of the grants for which `applies` is true.
    fn missing_access(
        &self,
        needed: &ExtraAccess,
        applies: impl Fn(&AccessGrant) -> bool,
    ) -> ExtraAccess {
        let grants = self.access().iter().filter(|grant| applies(grant));
        grants.fold(needed.clone(), |left, grant| left.beyond(&grant.access))
    }

    fn gives_each_command(&self, command: &ShellCommand, needed: &ExtraAccess) -> bool {
        commands_with_access(command)
            .into_iter()
            .all(|simple| self.missing_access(needed, |grant| grant.is_about(simple)).is_none())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_gives_a_revision_that_no_others_have() {
        let none = Grants::default();
        assert_eq!(none.revision(), Grants::default().revision());
        let mut one = none.clone();
        one.allow_exactly(Effect::SessionState);
        let mut other = none.clone();
        other.reject(&[Effect::SessionState]);
        let copy = one.clone();
        one.allow_all_commands();
        let all = [none, one, other, copy].map(|grants| grants.revision());
        assert_eq!(HashSet::from(all).len(), all.len());
    }
}
