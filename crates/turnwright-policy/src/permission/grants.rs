//! The user's answers that hold for the rest of the session.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::access_grant::AccessGrant;
use super::rule::Rule;
use turnwright_types::effect::Effect;

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
    /// A number that no other content of the answers has had in this process; 0 if there are none.
    revision: u64,
}

/// The last revision of any answers.
static LAST_REVISION: AtomicU64 = AtomicU64::new(0);

impl Grants {
    /// Returns a number that changes with every answer: what was judged by answers of the same revision is judged
    /// by the same answers.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn note_change(&mut self) {
        self.revision = LAST_REVISION.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// Allows a pattern.
    pub fn allow(&mut self, rule: Rule) {
        self.note_change();
        if !self.allowed.contains(&rule) {
            self.allowed.push(rule);
        }
    }

    /// Allows exactly this effect.
    pub fn allow_exactly(&mut self, effect: Effect) {
        self.note_change();
        self.exact.insert(effect);
    }

    /// Allows access beyond the sandbox.
    pub(crate) fn allow_access(&mut self, grant: AccessGrant) {
        self.note_change();
        if !self.access.contains(&grant) {
            self.access.push(grant);
        }
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

    /// Forgets the answers that have become rules of the project, which can be revoked.
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
