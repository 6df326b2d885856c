//! `[permissions]`: the rules as text. The policy crate parses them.

use serde::Deserialize;

/// `[permissions]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct PermissionSection {
    /// Patterns of calls that run without a question.
    pub allow: Vec<String>,
    /// Patterns of calls that always need approval.
    pub ask: Vec<String>,
    /// Patterns of calls that are refused.
    pub deny: Vec<String>,
    /// Rules with examples.
    pub rule: Vec<RuleEntry>,
}

/// `[[permissions.rule]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RuleEntry {
    /// `allow`, `ask` or `deny`.
    pub effect: String,
    /// The pattern.
    pub when: String,
    /// Examples that the pattern must match.
    #[serde(rename = "match")]
    pub matches: Vec<String>,
    /// Examples that the pattern must not match.
    pub not: Vec<String>,
    /// The author's reason.
    pub why: Option<String>,
}

impl PermissionSection {
    /// The number of allow rules.
    pub(crate) fn allow_rule_count(&self) -> usize {
        self.allow.len() + self.rule.iter().filter(|rule| rule.effect == "allow").count()
    }
}
