//! One rule: what it is about, and what it says.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::shell::Simple;

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

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Commands that begin with these words, or that are exactly these.
    Exec {
        /// The words.
        words: Vec<String>,
        /// No further ones.
        exact: bool,
    },
    /// Reading what matches a glob.
    Read(String),
    /// Changing what matches a glob.
    Edit(String),
    /// Asking a host, or one below it (`*.rust-lang.org`).
    Fetch(String),
    /// A tool of an MCP server, or all of them.
    Mcp {
        /// The server.
        server: String,
        /// The tool.
        tool: Option<String>,
    },
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
    /// Whether a command is one of these. A command that gets more words than are known matches no
    /// pattern that is exact.
    pub fn matches_command(&self, command: &Simple) -> bool {
        let Pattern::Exec { words, exact } = self else { return false };
        let mut argv = command.argv();
        let begins = words.iter().all(|word| argv.next() == Some(word.as_str()));
        begins && !(*exact && (argv.next().is_some() || command.is_open))
    }

    /// Whether reading or changing this real path is one of these.
    pub fn matches_path(&self, _path: &Path, _is_write: bool, _ground: &Ground) -> bool {
        false
    }

    /// Whether asking that host (`name` or `name:port`) is one of these.
    pub fn matches_host(&self, host: &str) -> bool {
        let Pattern::Fetch(domain) = self else { return false };
        match domain.strip_prefix("*.") {
            Some(parent) => host.strip_suffix(parent).is_some_and(|it| it.ends_with('.')),
            None => host == domain,
        }
    }
}

/// As it stands in a file.
impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exec { words, exact } => {
                let sign = if *exact { "=" } else { "" };
                write!(formatter, "exec({sign}{})", words.join(" "))
            }
            Pattern::Read(glob) => write!(formatter, "read({glob})"),
            Pattern::Edit(glob) => write!(formatter, "edit({glob})"),
            Pattern::Fetch(domain) => write!(formatter, "fetch(domain:{domain})"),
            Pattern::Mcp { server, tool: Some(tool) } => write!(formatter, "mcp({server}/{tool})"),
            Pattern::Mcp { server, tool: None } => write!(formatter, "mcp({server})"),
        }
    }
}
