//! A rule: a pattern, and what to do with what matches it. The rules of one settings file are loaded here: each is
//! parsed and checked against its own examples. If anything is wrong, the `allow` rules of the file are dropped, and
//! an invalid rule that may have denied something is replaced by one that denies more. Reads no files itself.

pub(super) mod parser;
pub(super) mod store;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::glob::Glob;
use crate::shell::{self, Script, SimpleCommand, parse};
use turnwright_types::effect::{PathScope, ResolvedPath, escape_hidden_line};
use turnwright_types::shell_script::ShellDialect;
use turnwright_types::text;

use parser::{TOOLS, pattern_for_all};

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
    /// Searches of the web with a service. In its name, `*` stands for any characters.
    Search(String),
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
}

impl Rule {
    /// Creates a rule without an explanation.
    pub fn new(action: RuleAction, pattern: Pattern, scope: Scope) -> Rule {
        Rule { action, pattern, scope, why: None }
    }

    /// True if the rule is about this command. An `allow` rule means exactly its words. A rule that
    /// denies or asks also means the same program by another path, its words after options,
    /// everything that may turn out to be its words, and the wrappers that were taken off.
    pub fn matches_command(&self, command: &SimpleCommand) -> bool {
        let Pattern::Exec { words, exact } = &self.pattern else { return false };
        match self.action {
            RuleAction::Allow => {
                // A danger that only the disk tells is allowed by a rule with all the words.
                let exact = *exact || command.drops_changes;
                parser::starts_with(words, exact, command)
                    && (exact
                        || !shell::exceeds_prefix(command)
                            && !shell::names_more_tasks(command, words.len()))
            }
            RuleAction::Deny | RuleAction::Ask => parser::may_match_whole(words, *exact, command),
        }
    }

    /// True if a rule that denies or asks is also about this command, which another one starts. A rule that only names
    /// Python or Ruby means the one outside the project's environment: `deny exec(python)` is written so that
    /// `uv run python` is used.
    pub(crate) fn matches_hidden(&self, command: &SimpleCommand) -> bool {
        let Pattern::Exec { words, exact } = &self.pattern else { return false };
        parser::may_match(words, *exact, command)
            && !(words.len() == 1 && shell::is_in_environment(command))
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

    /// True if the rule denies reading this file, or all that is in this folder.
    pub(crate) fn denies_reading(&self, path: &Path, bases: &PathBases) -> bool {
        let Pattern::Read(glob) = &self.pattern else { return false };
        let is_denied = self.action == RuleAction::Deny && !glob.is_everything();
        is_denied
            && (glob.matches(path, bases)
                || glob.literal_paths(bases).iter().any(|named| named == path)
                || glob.matches_expansion(path, bases))
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
            RuleAction::Allow => text::fits_wildcard(name, wanted),
            RuleAction::Deny | RuleAction::Ask => {
                text::fits_wildcard(&name.to_lowercase(), &wanted.to_lowercase())
            }
        };
        matches(wanted, server) && wanted_tool.as_ref().is_none_or(|wanted| matches(wanted, tool))
    }

    /// True if the pattern names this secret file, or a folder above it that holds only secrets. A
    /// wider glob that also matches the file does not name it.
    pub(crate) fn names_secret(&self, path: &Path, bases: &PathBases) -> bool {
        matches!(&self.pattern, Pattern::Read(glob) if glob.names_secret(path, bases))
    }

    /// True if the rule is about searches of the web with this service. The names of services are in lower case.
    pub(crate) fn matches_search(&self, backend: &str) -> bool {
        let Pattern::Search(wanted) = &self.pattern else { return false };
        text::fits_wildcard(backend, &wanted.to_lowercase())
    }

    /// True if the rule allows requests to any host. Such a rule was written for pages that the model reads, and not for
    /// commands, which send what they like.
    pub fn allows_any_host(&self) -> bool {
        self.action == RuleAction::Allow
            && matches!(&self.pattern, Pattern::Fetch(domain) if domain == "*")
    }

    /// True if the rule denies requests to this host. A rule about every host is one about the pages that the model
    /// reads: otherwise no command could name a URL, or even `main.py`.
    pub(crate) fn denies_host(&self, host: &str) -> bool {
        let is_about_all = matches!(&self.pattern, Pattern::Fetch(domain) if domain == "*");
        self.action == RuleAction::Deny && !is_about_all && self.matches_host(host)
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

    /// Makes a rule that denies or asks also match the places to which symlinks in its path lead.
    pub fn follow_links(&mut self, bases: &PathBases, resolve_links: &dyn Fn(&Path) -> PathBuf) {
        if let (Pattern::Read(glob) | Pattern::Edit(glob), RuleAction::Deny | RuleAction::Ask) =
            (&mut self.pattern, self.action)
        {
            glob.follow_links(bases, resolve_links);
        }
    }
}

/// Splits a host and its port. An IPv6 address is in brackets.
pub(super) fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if shell::is_number(port) => (name, Some(port)),
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
            Pattern::Search(name) if name == "*" => write!(formatter, "search"),
            Pattern::Search(name) => write!(formatter, "search({name})"),
            Pattern::Mcp { server, tool: Some(tool) } => write!(formatter, "mcp({server}/{tool})"),
            Pattern::Mcp { server, tool: None } => write!(formatter, "mcp({server})"),
            Pattern::Skill(name) => write!(formatter, "skill({name})"),
            Pattern::Agent(name) => write!(formatter, "agent({name})"),
        }
    }
}

/// The maximum number of rules of one file.
const MAX_RULES: usize = 300;
/// The maximum number of problems reported about one file.
const MAX_PROBLEMS: usize = 10;
/// The maximum length of a rule in a message in characters.
const MAX_SHOWN_CHARS: usize = 80;

/// A rule as it is written in a settings file.
#[derive(Clone, Copy, Debug)]
pub struct RuleSpec<'a> {
    /// The action on a match; `None` if the file has an unknown word there.
    pub action: Option<RuleAction>,
    /// The text of the pattern.
    pub when: &'a str,
    /// Examples that the rule must match: commands, paths, hosts or tools.
    pub matches: &'a [String],
    /// Examples that the rule must not match.
    pub not: &'a [String],
    /// The author's explanation.
    pub why: Option<&'a str>,
}

/// The context for parsing and checking rules.
#[derive(Clone, Copy)]
pub struct RuleContext<'a> {
    /// The folders that paths are relative to.
    pub bases: &'a PathBases,
    /// The dialect of the shell in examples.
    pub dialect: ShellDialect,
    /// Resolves the symlinks of a path.
    pub resolve_links: &'a dyn Fn(&Path) -> PathBuf,
}

/// The rules of a file, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedRules {
    /// The rules to apply.
    pub rules: Vec<Rule>,
    /// A sentence about each problem, to be shown to the user.
    pub problems: Vec<String>,
    /// A sentence about each rule that has no effect, to be shown to the user.
    pub notes: Vec<String>,
}

/// Loads the rules of one file.
pub fn load_rules(specs: &[RuleSpec<'_>], scope: Scope, context: RuleContext<'_>) -> LoadedRules {
    let mut loaded = LoadedRules::default();
    for (index, spec) in specs.iter().enumerate() {
        let parsed = match spec.action {
            _ if index >= MAX_RULES => Err(format!("a file holds at most {MAX_RULES} rules")),
            None => Err("`effect` must be allow, ask or deny".to_owned()),
            Some(action) => Rule::parse(spec.when, action, scope),
        };
        match parsed {
            Ok(rule) => loaded.add(rule, spec, context),
            Err(problem) => loaded.add_fallback(spec, scope, &problem, index < MAX_RULES),
        }
    }
    if !loaded.problems.is_empty() {
        let all = loaded.rules.len();
        loaded.rules.retain(|rule| rule.action != RuleAction::Allow);
        let dropped = all - loaded.rules.len();
        let left = loaded.problems.len().saturating_sub(MAX_PROBLEMS);
        if left > 0 {
            loaded.problems.truncate(MAX_PROBLEMS);
            loaded.problems.push(format!("and {left} more problems"));
        }
        if dropped > 0 {
            let rules =
                if dropped == 1 { "its other allow rule is" } else { "its allow rules are" };
            loaded.problems.push(format!("{rules} ignored; ask and deny still apply"));
        }
    }
    loaded
}

/// Rules that stand in for a file that cannot be read: they apply `action` to everything that its
/// rules may have been about.
pub fn fallback_rules(action: RuleAction, scope: Scope, why: &str) -> Vec<Rule> {
    broad_rules(action).map(|(action, tool)| rule_for_all(tool, action, scope, why)).collect()
}

fn rule_for_all(tool: &str, action: RuleAction, scope: Scope, why: &str) -> Rule {
    Rule { action, pattern: pattern_for_all(tool), scope, why: Some(why.to_owned()) }
}

/// The actions and tools that a rule that cannot be parsed may have been about. Reading is asked about
/// rather than denied: without reading, nothing could be fixed.
fn broad_rules(action: RuleAction) -> impl Iterator<Item = (RuleAction, &'static str)> {
    let read = (action.max(RuleAction::Ask), "read");
    ["exec", "edit", "fetch", "search", "mcp"].map(|tool| (action, tool)).into_iter().chain([read])
}

impl LoadedRules {
    fn add(&mut self, mut rule: Rule, spec: &RuleSpec<'_>, context: RuleContext<'_>) {
        rule.why = spec.why.map(shorten);
        rule.follow_links(context.bases, context.resolve_links);
        if matches!(rule.pattern, Pattern::Skill(_) | Pattern::Agent(_)) {
            self.notes.push(format!("`{}` has no effect yet", shorten(spec.when)));
        }
        let check = |samples: &[String], expected: bool, verb: &str| {
            let wrong =
                samples.iter().find(|sample| matches_example(&rule, sample, context) != expected);
            wrong.map(|sample| format!("`{}` {verb} `{}`", shorten(spec.when), shorten(sample)))
        };
        self.problems.extend(check(spec.matches, true, "does not match its example"));
        self.problems.extend(check(spec.not, false, "matches the counterexample"));
        self.rules.push(rule);
    }

    /// Reports a rule that cannot be parsed. If it may have denied something, adds rules that deny
    /// everything that it can have been about. `tool_known` is whether the tool named by the rule
    /// can be relied on.
    fn add_fallback(&mut self, spec: &RuleSpec<'_>, scope: Scope, problem: &str, tool_known: bool) {
        let action = spec.action.unwrap_or(RuleAction::Deny);
        let tool = spec.when.trim().split('(').next().unwrap_or_default();
        let known = TOOLS.iter().find(|known| **known == tool && tool_known);
        let mut problem = format!("`{}` is not a valid rule: {problem}", shorten(spec.when));
        if action != RuleAction::Allow {
            let fallback: Vec<_> = match known {
                Some(tool) => vec![(action, *tool)],
                None => broad_rules(action).collect(),
            };
            let verb = if action == RuleAction::Deny { "is denied" } else { "is asked about" };
            let subject = known
                .map_or("everything that changes, runs or requests something".to_owned(), |tool| {
                    format!("every `{tool}`")
                });
            problem.push_str(&format!("; until it is fixed, {subject} {verb}"));
            let rules = fallback.into_iter().map(|(action, tool)| {
                rule_for_all(tool, action, scope, "stands in for a rule that is not valid")
            });
            let missing: Vec<_> = rules.filter(|rule| !self.rules.contains(rule)).collect();
            self.rules.extend(missing);
        }
        self.problems.push(problem);
    }
}

/// True if a rule matches an example.
fn matches_example(rule: &Rule, sample: &str, context: RuleContext<'_>) -> bool {
    match &rule.pattern {
        Pattern::Exec { .. } => {
            // An example shows the words of a rule. Of a line for cmd no words are certain.
            let dialect = match context.dialect {
                ShellDialect::Cmd => ShellDialect::Posix,
                dialect => dialect,
            };
            matches_line(rule, &parse(sample, dialect))
        }
        Pattern::Read(_) | Pattern::Edit(_) => {
            let home = sample.strip_prefix("~/").zip(context.bases.home.as_ref());
            let path = match (home, context.bases.roots.first()) {
                (Some((rest, home)), _) => home.join(rest),
                (None, Some(root)) => root.join(sample),
                (None, None) => PathBuf::from(sample),
            };
            rule.matches_path(&path, matches!(rule.pattern, Pattern::Edit(_)), context.bases)
        }
        Pattern::Fetch(_) => rule.matches_host(&sample.to_lowercase()),
        Pattern::Search(_) => rule.matches_search(&sample.to_lowercase()),
        Pattern::Mcp { .. } => {
            sample.split_once('/').is_some_and(|(server, tool)| rule.matches_remote(server, tool))
        }
        Pattern::Skill(_) | Pattern::Agent(_) => false,
    }
}

/// An `allow` rule has to match the whole line, any other rule anything in it.
fn matches_line(rule: &Rule, script: &Script) -> bool {
    let mut commands = script.commands.iter();
    if rule.action != RuleAction::Allow {
        return rule.pattern.is_every_command()
            || commands.any(|command| rule.matches_command(command))
            || shell::hidden_commands(script)
                .is_none_or(|hidden| hidden.iter().any(|command| rule.matches_hidden(command)));
    }
    let is_understood = script.ambiguity.is_none() && !script.commands.is_empty();
    let writes = script.commands.iter().any(SimpleCommand::writes_file);
    is_understood && !writes && commands.all(|command| rule.matches_command(command))
}

/// Foreign text, shortened for a message.
fn shorten(text: &str) -> String {
    text::clip(escape_hidden_line(text), MAX_SHOWN_CHARS)
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

    fn load_sample(specs: &[RuleSpec<'_>]) -> (Vec<String>, Vec<String>) {
        let bases = PathBases { roots: vec!["/ws".into()], home: Some("/home/me".into()) };
        let context = RuleContext {
            bases: &bases,
            dialect: ShellDialect::Posix,
            resolve_links: &|path| path.to_path_buf(),
        };
        let loaded = load_rules(specs, Scope::User, context);
        let text = |rule: &Rule| format!("{:?} {}", rule.action, rule.pattern).to_lowercase();
        (loaded.rules.iter().map(text).collect(), loaded.problems)
    }

    fn spec(action: RuleAction, when: &str) -> RuleSpec<'_> {
        RuleSpec { action: Some(action), when, matches: &[], not: &[], why: None }
    }

    #[test]
    fn one_mistake_disables_the_allow_rules_of_the_file_only() {
        let (allow, deny, ask) = (
            spec(RuleAction::Allow, "exec(cargo test)"),
            spec(RuleAction::Deny, "read(.env)"),
            spec(RuleAction::Ask, "exec(git push)"),
        );
        let (rules, problems) = load_sample(&[allow, deny, ask]);
        assert_eq!(rules, ["allow exec(cargo test)", "deny read(.env)", "ask exec(git push)"]);
        assert_eq!(problems, Vec::<String>::new());
        let table: &[(RuleSpec<'_>, &[&str])] = &[
            (spec(RuleAction::Allow, "exec(npm:*)"), &[]),
            (spec(RuleAction::Deny, "exec(rm"), &["deny exec"]),
            (spec(RuleAction::Deny, "read([)"), &["deny read"]),
            (spec(RuleAction::Ask, "fetch(x)"), &["ask fetch"]),
            (
                spec(RuleAction::Deny, "bash(rm)"),
                &["deny exec", "deny edit", "deny fetch", "deny search", "deny mcp(*)", "ask read"],
            ),
            (
                spec(RuleAction::Ask, "bash(rm)"),
                &["ask exec", "ask edit", "ask fetch", "ask search", "ask mcp(*)", "ask read"],
            ),
            (RuleSpec { action: None, ..allow }, &["deny exec"]),
        ];
        for (wrong, instead) in table {
            let (rules, problems) = load_sample(&[allow, deny, *wrong, ask]);
            let expected = [&["deny read(.env)"], *instead, &["ask exec(git push)"]].concat();
            assert_eq!(rules, expected, "{wrong:?}");
            assert_eq!(problems.len(), 2, "{problems:?}");
        }
    }

    #[test]
    fn a_rule_is_checked_against_its_own_examples() {
        let table = [
            // rule, what it must match, what it must not match, whether that is so
            (
                "allow exec(cargo test)",
                "cargo test -p core",
                "cargo test && rm x|cargo test >/etc/x|cargo testx|cargo test $x",
                true,
            ),
            ("allow exec(cargo test)", "cargo test && rm x", "", false),
            ("allow exec(cargo)", "", "cargo build", false),
            ("deny exec(git push)", "git push|git -C x push|ls && git push", "git status", true),
            ("deny exec(git push)", "uv run git push|npx -c 'git push'", "echo git push", true),
            ("deny exec(python)", "python x.py|npx python", "uv run python x.py", true),
            ("deny exec(git push)", "git status", "", false),
            ("allow edit(/src/**)", "src/a.rs|/ws/src/b", "Cargo.toml|~/src/x|/etc/src/x", true),
            ("allow edit(/src/**)", "src", "", false),
            ("deny read(~/.ssh)", "~/.ssh/id", "id", true),
            ("allow fetch(domain:*.rs)", "docs.rs|Docs.RS", "rs", true),
            ("allow fetch(domain:docs.rs)", "a.docs.rs", "", false),
            ("allow search(brave)", "brave|Brave", "exa", true),
        ];
        let list = |text: &str| -> Vec<String> {
            text.split('|').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        for (rule, matches, not, is_fine) in table {
            let (effect, when) = rule.split_once(' ').unwrap();
            let action = if effect == "allow" { RuleAction::Allow } else { RuleAction::Deny };
            let matches = list(matches);
            let not = list(not);
            let spec = RuleSpec { matches: &matches, not: &not, ..spec(action, when) };
            let (rules, problems) = load_sample(&[spec]);
            assert_eq!(problems.is_empty(), is_fine, "{rule}: {problems:?}");
            assert_eq!(rules.is_empty(), !is_fine && action == RuleAction::Allow, "{rule}");
        }
    }

    #[test]
    fn the_number_of_rules_and_problems_is_bounded() {
        let texts: Vec<_> = (0..=MAX_RULES).map(|index| format!("exec(a{index})")).collect();
        let specs: Vec<_> = texts.iter().map(|text| spec(RuleAction::Deny, text)).collect();
        let (rules, problems) = load_sample(&specs);
        assert_eq!(rules.len(), MAX_RULES + 6);
        assert_eq!(problems.len(), 1);
        let wrong: Vec<_> = (0..100).map(|_| spec(RuleAction::Deny, "\u{1b}[2Knonsense")).collect();
        let (rules, problems) = load_sample(&wrong);
        assert_eq!((rules.len(), problems.len()), (6, MAX_PROBLEMS + 1));
        assert!(!problems.concat().contains('\u{1b}'), "{problems:?}");
    }
}
