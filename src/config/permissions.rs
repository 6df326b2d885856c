//! `[permissions]`: the texts of rules, as a file has them. What they mean is not known here.

use serde::Deserialize;

/// `[permissions]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PermissionTexts {
    /// What needs no question.
    pub allow: Vec<String>,
    /// What is always asked about.
    pub ask: Vec<String>,
    /// What is never done.
    pub deny: Vec<String>,
    /// Rules with examples of their own.
    pub rule: Vec<RuleText>,
}

/// `[[permissions.rule]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RuleText {
    /// `allow`, `ask` or `deny`.
    pub effect: String,
    /// The rule.
    pub when: String,
    /// What it has to match.
    #[serde(rename = "match")]
    pub matches: Vec<String>,
    /// What it must not match.
    pub not: Vec<String>,
    /// What its author says about it.
    pub why: Option<String>,
}

pub(super) const PERMISSIONS: &[&str] = &["allow", "ask", "deny", "rule"];
pub(super) const RULE: &[&str] = &["effect", "when", "match", "not", "why"];

impl PermissionTexts {
    /// How many rules would give permissions.
    pub fn allowing(&self) -> usize {
        self.allow.len() + self.rule.iter().filter(|it| it.effect == "allow").count()
    }
}
