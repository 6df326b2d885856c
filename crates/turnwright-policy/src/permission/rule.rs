//! One rule: what it is about, and what it says.

use std::fmt;
use std::path::{Path, PathBuf};

use super::glob::Glob;
use super::words;
use crate::shell::{self, Simple};

/// What a rule says about what it matches. The order is that of the tiers: the strictest that
/// matches counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Never.
    Deny,
    /// Only after a question, whatever was granted.
    Ask,
    /// Without a question.
    Allow,
}

/// Who has made a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Whoever manages the machine.
    Managed,
    /// The user, for all projects.
    User,
    /// The user, for this project.
    Local,
    /// The project's own files.
    Project,
    /// The user, for this session.
    Session,
}

impl Tier {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Tier::Deny => "deny",
            Tier::Ask => "ask",
            Tier::Allow => "allow",
        }
    }
}

impl Scope {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Scope::Managed => "managed",
            Scope::User => "user",
            Scope::Local => "local",
            Scope::Project => "project",
            Scope::Session => "session",
        }
    }
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Commands that begin with these words, or that are exactly these; with no word, every one.
    Exec {
        /// The words.
        words: Vec<String>,
        /// No further ones.
        exact: bool,
    },
    /// Reading what matches a glob.
    Read(Glob),
    /// Changing what matches a glob.
    Edit(Glob),
    /// Asking a host, one below it (`*.rust-lang.org`), or any (`*`).
    Fetch(String),
    /// A tool of an MCP server, or all of them. `*` is every server.
    Mcp {
        /// The server.
        server: String,
        /// The tool.
        tool: Option<String>,
    },
    /// A skill. Has no effect yet.
    Skill(String),
    /// A sub-agent. Has no effect yet.
    Agent(String),
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// What it says.
    pub tier: Tier,
    /// About what.
    pub pattern: Pattern,
    /// Whose it is.
    pub scope: Scope,
    /// What its author says about it.
    pub why: Option<String>,
}

/// What paths in patterns are relative to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ground {
    /// The session's folders as they really are; the first is the project.
    pub roots: Vec<PathBuf>,
    /// The user's home.
    pub home: Option<PathBuf>,
}

impl Pattern {
    /// Whether it is about every command.
    pub fn is_every_command(&self) -> bool {
        matches!(self, Pattern::Exec { words, exact: false } if words.is_empty())
    }

    /// Whether rules about it have an effect in this version.
    pub fn has_effect(&self) -> bool {
        !matches!(self, Pattern::Skill(_) | Pattern::Agent(_))
    }
}

impl Rule {
    /// Whether this is one of its commands. A permission means exactly its words; a ban also means
    /// the same program by another path, behind options, and what may turn out to be its words.
    pub fn matches_command(&self, command: &Simple) -> bool {
        let Pattern::Exec { words, exact } = &self.pattern else { return false };
        match self.tier {
            Tier::Allow => {
                let is_wide = || shell::widens(command) || shell::adds_tasks(command, words.len());
                words::begins(words, *exact, command) && (*exact || !is_wide())
            }
            Tier::Deny | Tier::Ask => words::may_be(words, *exact, command),
        }
    }

    /// Whether reading or changing this real path is one of its acts. What must not be read must
    /// not be changed either, because who changes a file sees what is in it; but who may read it
    /// may not change it.
    pub fn matches_path(&self, path: &Path, is_write: bool, ground: &Ground) -> bool {
        match &self.pattern {
            Pattern::Read(glob) if !is_write || self.tier != Tier::Allow => {
                glob.matches(path, ground)
            }
            Pattern::Edit(glob) if is_write => glob.matches(path, ground),
            _ => false,
        }
    }

    /// Whether a tool of a server is one that it is about. A permission means names as they are
    /// written; a ban means them in upper and lower case.
    pub fn matches_remote(&self, server: &str, tool: &str) -> bool {
        let Pattern::Mcp { server: wanted, tool: wanted_tool } = &self.pattern else {
            return false;
        };
        let is_it = |wanted: &str, name: &str| match self.tier {
            Tier::Allow => is_named(wanted, name),
            Tier::Deny | Tier::Ask => is_named(&wanted.to_lowercase(), &name.to_lowercase()),
        };
        is_it(wanted, server) && wanted_tool.as_ref().is_none_or(|it| is_it(it, tool))
    }

    /// Whether it names what is secret about this path: the file itself, or a folder of which
    /// everything is. What only happens to be meant by a wider glob is not named.
    pub fn names_secret(&self, path: &Path, ground: &Ground) -> bool {
        matches!(&self.pattern, Pattern::Read(glob) if glob.names_secret(path, ground))
    }

    /// Whether asking that host (`name` or `name:port`) is one of its acts. Without a port it
    /// means any.
    pub fn matches_host(&self, host: &str) -> bool {
        let Pattern::Fetch(domain) = &self.pattern else { return false };
        let (name, port) = with_port(host);
        let name = name.trim_end_matches('.');
        let (wanted, wanted_port) = with_port(domain);
        let is_port = match wanted_port {
            None => true,
            // Of the usual ports an address says nothing.
            Some("80" | "443") => port.is_none(),
            wanted => port == wanted,
        };
        is_port
            && match wanted.strip_prefix("*.") {
                _ if wanted == "*" => true,
                Some(parent) => name.strip_suffix(parent).is_some_and(|it| it.ends_with('.')),
                None => name == wanted,
            }
    }
}

/// Whether a name is meant by one in which `*` stands for any characters. Never slower than the one
/// length times the other.
fn is_named(wanted: &str, name: &str) -> bool {
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

/// A host and its port. An address of version 6 stands in brackets.
pub(super) fn with_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit()) => {
            (name, Some(port))
        }
        _ => (host, None),
    }
}

/// As it stands in a file.
impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let glob = |formatter: &mut fmt::Formatter<'_>, tool, glob: &Glob| match glob {
            glob if glob.is_everything() => write!(formatter, "{tool}"),
            glob => write!(formatter, "{tool}({glob})"),
        };
        match self {
            Pattern::Exec { words, .. } if words.is_empty() => write!(formatter, "exec"),
            Pattern::Exec { words, exact } => {
                let sign = if *exact { "=" } else { "" };
                let words: Vec<_> = words.iter().map(|it| words::quoted(it)).collect();
                write!(formatter, "exec({sign}{})", words.join(" "))
            }
            Pattern::Read(it) => glob(formatter, "read", it),
            Pattern::Edit(it) => glob(formatter, "edit", it),
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

    fn rule(tier: Tier, text: &str) -> Rule {
        Rule::parse(text, tier, Scope::User).unwrap()
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
            let rule = rule(Tier::Allow, &format!("fetch(domain:{domain})"));
            for host in meant.split_whitespace() {
                assert!(rule.matches_host(host), "{domain}: {host}");
            }
            for host in other.split_whitespace() {
                assert!(!rule.matches_host(host), "{domain}: {host}");
            }
        }
    }

    #[test]
    fn a_tool_is_meant_by_its_name_and_a_ban_does_not_care_for_case() {
        let table = [
            // rule, what an allowing one means, what only a ban means besides, what none means
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
            let holds = |tier: Tier, name: &str| {
                let (server, tool) = name.split_once('/').unwrap();
                rule(tier, text).matches_remote(server, tool)
            };
            for name in allowed.split_whitespace() {
                assert!(holds(Tier::Allow, name) && holds(Tier::Deny, name), "{text}: {name}");
            }
            for name in banned.split_whitespace() {
                assert!(!holds(Tier::Allow, name) && holds(Tier::Ask, name), "{text}: {name}");
            }
            for name in other.split_whitespace() {
                assert!(!holds(Tier::Allow, name) && !holds(Tier::Deny, name), "{text}: {name}");
            }
        }
    }

    #[test]
    fn a_ban_on_reading_bans_changing_and_a_permission_is_for_one_of_both() {
        let ground = Ground { roots: vec!["/ws".into()], home: None };
        let table = [
            // rule, whether it means reading and changing
            (Tier::Allow, "read(a)", true, false),
            (Tier::Allow, "edit(a)", false, true),
            (Tier::Deny, "read(a)", true, true),
            (Tier::Ask, "read(A)", true, true),
            (Tier::Deny, "edit(a)", false, true),
            (Tier::Allow, "read(A)", false, false),
            (Tier::Deny, "edit", false, true),
            (Tier::Allow, "exec(a)", false, false),
        ];
        for (tier, text, read, change) in table {
            let rule = rule(tier, text);
            let matches = |is_write| rule.matches_path(Path::new("/ws/a"), is_write, &ground);
            assert_eq!((matches(false), matches(true)), (read, change), "{tier:?} {text}");
        }
    }
}
