//! `[permissions]`: the rules as text. The policy crate parses them.

use serde::Deserialize;

use crate::table::settings;

settings! {
    /// `[permissions]`.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default)]
    pub section PermissionSection {
        pub allow: Vec<String> {
            default: [],
            examples: [["exec(cargo test)", "fetch(domain:docs.rs)"]],
        }
            "Patterns of calls that run without a question.";
        pub ask: Vec<String> { default: [], examples: [["exec(git push)"]] }
            "Patterns of calls that always need your approval.";
        pub deny: Vec<String> { default: [], examples: [["read(.env)"]] } "Patterns of calls that are refused.";
        pub rule: Vec<RuleEntry> {
            examples: [[{
                "effect": "allow",
                "when": "exec(npm run build)",
                "match": ["npm run build"],
                "not": ["npm publish"],
                "why": "it is harmless"
            }]],
        }
            "Rules with examples, which are checked whenever the file is read.";
    }
}

settings! {
    /// `[[permissions.rule]]`.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default)]
    pub section RuleEntry {
        pub effect: String { words: ["allow", "ask", "deny"], required: true }
            "What happens to a call that the pattern matches.";
        pub when: String { required: true } "The pattern of calls.";
        #[serde(rename = "match")]
        pub matches: Vec<String> { key: "match" } "Commands, paths or hosts that the pattern must match.";
        pub not: Vec<String> {} "Commands, paths or hosts that the pattern must not match.";
        pub why: Option<String> {} "The reason of the rule, which is shown with its decisions.";
    }
}

impl PermissionSection {
    /// The number of allow rules.
    pub fn allow_rule_count(&self) -> usize {
        self.allow.len() + self.rule.iter().filter(|rule| rule.effect == "allow").count()
    }
}
