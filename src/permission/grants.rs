//! What the user has said "always" to, for this session and for exactly that.

use std::collections::HashSet;

use crate::effect::Effect;

/// Remembered answers.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    allowed: HashSet<Effect>,
    rejected: HashSet<Effect>,
}

impl Grants {
    /// Remembers a yes.
    pub fn allow(&mut self, effects: &[Effect]) {
        self.allowed.extend(effects.iter().cloned());
    }

    /// Remembers a no.
    pub fn reject(&mut self, effects: &[Effect]) {
        self.rejected.extend(effects.iter().cloned());
    }

    /// Whether exactly this was allowed.
    pub fn is_allowed(&self, effect: &Effect) -> bool {
        self.allowed.contains(effect)
    }

    /// Whether exactly this was rejected.
    pub fn is_rejected(&self, effect: &Effect) -> bool {
        self.rejected.contains(effect)
    }
}
