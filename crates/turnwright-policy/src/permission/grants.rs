//! What the user has answered in this session, beyond the one call.

use std::collections::HashSet;

use super::rule::Rule;
use turnwright_types::effect::{Effect, RemoteCall};

/// Remembered answers.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// Each says yes to a pattern.
    allowed: Vec<Rule>,
    /// Effects that need no pattern: exactly these.
    exact: HashSet<Effect>,
    rejected: HashSet<Effect>,
}

impl Grants {
    /// Remembers a yes to a pattern.
    pub fn allow(&mut self, rule: Rule) {
        if !self.allowed.contains(&rule) {
            self.allowed.push(rule);
        }
    }

    /// Remembers a yes to exactly this.
    pub fn allow_exactly(&mut self, effect: Effect) {
        self.exact.insert(effect);
    }

    /// Remembers a no to exactly these.
    pub fn reject(&mut self, effects: &[Effect]) {
        self.rejected.extend(effects.iter().map(whatever_it_says));
    }

    /// The patterns that were said yes to.
    pub fn rules(&self) -> &[Rule] {
        &self.allowed
    }

    /// What was said yes to without a pattern.
    pub fn exactly(&self) -> impl Iterator<Item = &Effect> {
        self.exact.iter()
    }

    /// What was said no to.
    pub fn rejected(&self) -> impl Iterator<Item = &Effect> {
        self.rejected.iter()
    }

    /// Whether exactly this was said yes to.
    pub fn holds(&self, effect: &Effect) -> bool {
        self.exact.contains(effect)
    }

    /// Whether exactly this was rejected.
    pub fn is_rejected(&self, effect: &Effect) -> bool {
        self.rejected.contains(&whatever_it_says(effect))
    }
}

/// A no to a tool of a server holds whatever the tool says of itself later: else a server could ask
/// again by another description.
fn whatever_it_says(effect: &Effect) -> Effect {
    let Effect::Remote(call) = effect else { return effect.clone() };
    Effect::Remote(Box::new(RemoteCall {
        server: call.server.clone(),
        tool: call.tool.clone(),
        identity: call.identity.clone(),
        content: String::new(),
        claims_to_read: false,
        change: None,
    }))
}
