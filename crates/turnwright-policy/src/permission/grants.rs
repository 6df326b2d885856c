//! The user's answers that hold for the rest of the session.

use std::collections::HashSet;

use super::access_grant::AccessGrant;
use super::rule::Rule;
use turnwright_types::effect::{Effect, RemoteCall};

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
}

impl Grants {
    /// Allows a pattern.
    pub fn allow(&mut self, rule: Rule) {
        if !self.allowed.contains(&rule) {
            self.allowed.push(rule);
        }
    }

    /// Allows exactly this effect.
    pub fn allow_exactly(&mut self, effect: Effect) {
        self.exact.insert(effect);
    }

    /// Allows access beyond the sandbox.
    pub(crate) fn allow_access(&mut self, grant: AccessGrant) {
        if !self.access.contains(&grant) {
            self.access.push(grant);
        }
    }

    /// Allows every command that the mode `auto` would run in the sandbox without a question.
    pub(crate) fn allow_all_commands(&mut self) {
        self.all_commands = true;
    }

    /// Rejects exactly these effects.
    pub fn reject(&mut self, effects: &[Effect]) {
        self.rejected.extend(effects.iter().map(without_claims));
    }

    /// Notes rules that would allow these effects for the project. `origin` is what was asked.
    pub(crate) fn note_project_rules(
        &mut self,
        rules: impl Iterator<Item = Rule>,
        covered: &[Effect],
        origin: &str,
    ) {
        for rule in rules {
            if !self.project_rules.iter().any(|entry| entry.0 == rule) {
                self.project_rules.push((rule, origin.to_owned()));
            }
        }
        self.covered.extend_from_slice(covered);
    }

    /// Forgets the answers that have become rules of the project, which can be revoked.
    pub fn forget_kept(&mut self) {
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
    let Effect::Remote(call) = effect else { return effect.clone() };
    Effect::Remote(Box::new(RemoteCall {
        server: call.server.clone(),
        tool: call.tool.clone(),
        server_digest: call.server_digest.clone(),
        tool_digest: String::new(),
        claims_read_only: false,
        change_since_approval: None,
    }))
}
