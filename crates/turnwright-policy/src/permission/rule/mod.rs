//! A rule: a pattern, and what to do with what matches it.

pub(super) mod loader;
pub(super) mod parser;
pub(super) mod store;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::glob::Glob;
use crate::shell::{self, SimpleCommand};
use turnwright_types::effect::{PathScope, ResolvedPath};

/// The action of a rule. Ordered by strictness, the strictest first: the strictest rule that matches wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    /// It must not be done.
    Deny,
    /// The user is asked each time, whatever was granted before.
    Ask,
    /// It may be done without a question.
    Allow,
}

/// The origin of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The administrator of the machine.
    Managed,
    /// The user, for all projects.
    User,
    /// The user, for this project.
    Local,
    /// A file in the project.
    Project,
    /// The user, for this session.
    Session,
}

impl RuleAction {
    /// The name in settings and output.
    pub fn as_str(self) -> &'static str {
        match self {
            RuleAction::Deny => "deny",
            RuleAction::Ask => "ask",
            RuleAction::Allow => "allow",
        }
    }
}

impl Scope {
    /// The name in settings and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Managed => "managed",
            Scope::User => "user",
            Scope::Local => "local",
            Scope::Project => "project",
            Scope::Session => "session",
        }
    }
}

/// The subject of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Commands that begin with these words. Without words, every command.
    Exec {
        /// The program and its first arguments.
        words: Vec<String>,
        /// True if the command must have no further arguments.
        exact: bool,
    },
    /// Reading files that match a glob.
    Read(Glob),
    /// Changing files that match a glob.
    Edit(Glob),
    /// Requests to a host, to the hosts below a domain (`*.rust-lang.org`), or to any host (`*`).
    Fetch(String),
    /// The tools of an MCP server. In names, `*` stands for any characters.
    Mcp {
        /// The name of the server.
        server: String,
        /// The name of the tool; `None` for all of them.
        tool: Option<String>,
    },
    /// A skill. Rules about skills have no effect yet.
    Skill(String),
    /// A sub-agent. Rules about sub-agents have no effect yet.
    Agent(String),
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The action on a match.
    pub action: RuleAction,
    /// The subject of the rule.
    pub pattern: Pattern,
    /// Where the rule comes from.
    pub scope: Scope,
    /// The author's explanation.
    pub why: Option<String>,
}

/// The folders that paths in patterns are relative to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathBases {
    /// The session's folders, with symlinks resolved. The first is the project.
    pub roots: Vec<PathBuf>,
    /// The user's home folder.
    pub home: Option<PathBuf>,
}

impl Pattern {
    /// True if it matches every command.
    pub(crate) fn is_every_command(&self) -> bool {
        matches!(self, Pattern::Exec { words, exact: false } if words.is_empty())
    }

    /// True if rules with this pattern have an effect in this version.
    pub(crate) fn has_effect(&self) -> bool {
        !matches!(self, Pattern::Skill(_) | Pattern::Agent(_))
    }
}

impl Rule {
    /// Creates a rule without an explanation.
    pub fn new(action: RuleAction, pattern: Pattern, scope: Scope) -> Rule {
        Rule { action, pattern, scope, why: None }
    }

    /// True if the rule is about this command. An `allow` rule means exactly its words. A rule that
    /// denies or asks also means the same program by another path, its words after options, and
    /// everything that may turn out to be its words.
    pub fn matches_command(&self, command: &SimpleCommand) -> bool {
        let Pattern::Exec { words, exact } = &self.pattern else { return false };
        match self.action {
            RuleAction::Allow => {
                parser::starts_with(words, *exact, command)
                    && (*exact
                        || !shell::exceeds_prefix(command)
                            && !shell::names_more_tasks(command, words.len()))
            }
            RuleAction::Deny | RuleAction::Ask => parser::may_match(words, *exact, command),
        }
    }

    /// True if the rule is about reading or changing this path, which must have symlinks resolved.
    /// A rule that denies reading a file also denies changing it, because an edit shows the
    /// content; a rule that allows reading does not allow changing.
    pub fn matches_path(&self, path: &Path, is_write: bool, bases: &PathBases) -> bool {
        match &self.pattern {
            Pattern::Read(glob) if !is_write || self.action != RuleAction::Allow => {
                glob.matches(path, bases)
            }
            Pattern::Edit(glob) if is_write => glob.matches(path, bases),
            _ => false,
        }
    }

    /// True if the rule is about this path, or the name that commands have for it.
    pub(crate) fn matches_target(
        &self,
        target: &ResolvedPath,
        is_write: bool,
        bases: &PathBases,
    ) -> bool {
        self.matches_path(&target.path, is_write, bases)
            || matches!(target.scope, PathScope::PrivateTmp { .. })
                && self.matches_path(&target.name_for_commands(), is_write, bases)
    }

    /// True if the rule is about this tool of an MCP server. Only `allow` rules are case-sensitive.
    pub(crate) fn matches_remote(&self, server: &str, tool: &str) -> bool {
        let Pattern::Mcp { server: wanted, tool: wanted_tool } = &self.pattern else {
            return false;
        };
        let matches = |wanted: &str, name: &str| match self.action {
            RuleAction::Allow => matches_name(wanted, name),
            RuleAction::Deny | RuleAction::Ask => {
                matches_name(&wanted.to_lowercase(), &name.to_lowercase())
            }
        };
        matches(wanted, server) && wanted_tool.as_ref().is_none_or(|wanted| matches(wanted, tool))
    }

    /// True if the pattern names this secret file, or a folder above it that holds only secrets. A
    /// wider glob that also matches the file does not name it.
    pub(crate) fn names_secret(&self, path: &Path, bases: &PathBases) -> bool {
        matches!(&self.pattern, Pattern::Read(glob) if glob.names_secret(path, bases))
    }

    /// True if the rule is about requests to this host (`name` or `name:port`). A pattern without a
    /// port means every port.
    pub fn matches_host(&self, host: &str) -> bool {
        let Pattern::Fetch(domain) = &self.pattern else { return false };
        let (name, port) = split_port(host);
        let name = name.trim_end_matches('.');
        let (wanted, wanted_port) = split_port(domain);
        let port_matches = match wanted_port {
            None => true,
            // An address omits the default ports.
            Some("80" | "443") => port.is_none(),
            wanted => port == wanted,
        };
        port_matches
            && match wanted.strip_prefix("*.") {
                _ if wanted == "*" => true,
                Some(parent) => {
                    name.strip_suffix(parent).is_some_and(|prefix| prefix.ends_with('.'))
                }
                None => name == wanted,
            }
    }
}

/// True if a name matches a pattern in which `*` stands for any characters. Takes at most the
/// product of both lengths.
fn matches_name(wanted: &str, name: &str) -> bool {
    let Some((start, rest)) = wanted.split_once('*') else { return wanted == name };
    let Some(mut left) = name.strip_prefix(start) else { return false };
    let mut parts: Vec<_> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match left.split_once(part) {
            Some((_, behind)) => left = behind,
            None => return false,
        }
    }
    left.ends_with(end)
}

/// Splits a host and its port. An IPv6 address is in brackets.
pub(super) fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port))
            if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            (name, Some(port))
        }
        _ => (host, None),
    }
}

/// Writes the pattern as it is written in settings.
impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exec { words, .. } if words.is_empty() => write!(formatter, "exec"),
            Pattern::Exec { words, exact } => {
                let sign = if *exact { "=" } else { "" };
                let words: Vec<_> = words.iter().map(|word| parser::quoted(word)).collect();
                write!(formatter, "exec({sign}{})", words.join(" "))
            }
            Pattern::Read(glob) if glob.is_everything() => write!(formatter, "read"),
            Pattern::Read(glob) => write!(formatter, "read({glob})"),
            Pattern::Edit(glob) if glob.is_everything() => write!(formatter, "edit"),
            Pattern::Edit(glob) => write!(formatter, "edit({glob})"),
            Pattern::Fetch(domain) if domain == "*" => write!(formatter, "fetch"),
            Pattern::Fetch(domain) => write!(formatter, "fetch(domain:{domain})"),
            Pattern::Mcp { server, tool: Some(tool) } => write!(formatter, "mcp({server}/{tool})"),
            Pattern::Mcp { server, tool: None } => write!(formatter, "mcp({server})"),
            Pattern::Skill(name) => write!(formatter, "skill({name})"),
            Pattern::Agent(name) => write!(formatter, "agent({name})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: RuleAction, text: &str) -> Rule {
        Rule::parse(text, action, Scope::User).unwrap()
    }

    #[test]
    fn hosts_match_by_their_labels_and_a_port_only_if_it_is_named() {
        let table = [
            ("docs.rs", "docs.rs docs.rs. docs.rs:8080", "xdocs.rs docs.rs.evil.com a.docs.rs"),
            ("DOCS.rs", "docs.rs", "docs"),
            (
                "*.rust-lang.org",
                "doc.rust-lang.org a.b.rust-lang.org",
                "rust-lang.org xrust-lang.org",
            ),
            ("localhost:3000", "localhost:3000", "localhost localhost:3001"),
            ("docs.rs:443", "docs.rs", "docs.rs:8443"),
            ("[::1]", "[::1] [::1]:80", "[::2]"),
            ("bücher.example", "xn--bcher-kva.example", "bucher.example"),
            ("*", "anything.example localhost:1", ""),
        ];
        for (domain, meant, other) in table {
            let rule = rule(RuleAction::Allow, &format!("fetch(domain:{domain})"));
            for host in meant.split_whitespace() {
                assert!(rule.matches_host(host), "{domain}: {host}");
            }
            for host in other.split_whitespace() {
                assert!(!rule.matches_host(host), "{domain}: {host}");
            }
        }
    }

    #[test]
    fn tools_match_by_name_and_only_allow_rules_are_case_sensitive() {
        let table = [
            // rule, what an allow rule means, what only a deny rule means, what neither means
            ("mcp", "a/b *//", "", ""),
            ("mcp(notes)", "notes/a notes/b/c", "NOTES/a", "note/a notes2/a"),
            ("mcp(notes/read)", "notes/read", "Notes/READ", "notes/reads notes/rea x/read"),
            (
                "mcp(notes/read_*)",
                "notes/read_a notes/read_",
                "notes/READ_a",
                "notes/read x/read_a",
            ),
            ("mcp(*/delete*all)", "x/delete_all y/deleteall", "x/Delete_All", "x/delete_al"),
            ("mcp(notes/*a*b*)", "notes/xaxbx notes/ab", "notes/AB", "notes/ba notes/a"),
        ];
        for (text, allowed, banned, other) in table {
            let holds = |action: RuleAction, name: &str| {
                let (server, tool) = name.split_once('/').unwrap();
                rule(action, text).matches_remote(server, tool)
            };
            for name in allowed.split_whitespace() {
                assert!(
                    holds(RuleAction::Allow, name) && holds(RuleAction::Deny, name),
                    "{text}: {name}"
                );
            }
            for name in banned.split_whitespace() {
                assert!(
                    !holds(RuleAction::Allow, name) && holds(RuleAction::Ask, name),
                    "{text}: {name}"
                );
            }
            for name in other.split_whitespace() {
                assert!(
                    !holds(RuleAction::Allow, name) && !holds(RuleAction::Deny, name),
                    "{text}: {name}"
                );
            }
        }
    }

    #[test]
    fn a_deny_rule_for_reading_denies_changing_but_allow_rules_are_separate() {
        let bases = PathBases { roots: vec!["/ws".into()], home: None };
        let table = [
            // rule, whether it is about reading and about changing
            (RuleAction::Allow, "read(a)", true, false),
            (RuleAction::Allow, "edit(a)", false, true),
            (RuleAction::Deny, "read(a)", true, true),
            (RuleAction::Ask, "read(A)", true, true),
            (RuleAction::Deny, "edit(a)", false, true),
            (RuleAction::Allow, "read(A)", false, false),
            (RuleAction::Deny, "edit", false, true),
            (RuleAction::Allow, "exec(a)", false, false),
        ];
        for (action, text, read, change) in table {
            let rule = rule(action, text);
            let matches = |is_write| rule.matches_path(Path::new("/ws/a"), is_write, &bases);
            assert_eq!((matches(false), matches(true)), (read, change), "{action:?} {text}");
        }
    }
}
