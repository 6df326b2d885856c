//! Finds what an answer "allow for longer" would cover: patterns that mean no more than what was
//! asked about. There is none where an approval can only be for one call. Pure.

use std::path::Path;

use super::decide::decide;
use super::decision::{Decision, Finding, Reason, Verdict};
use super::rule::{PathBases, Pattern, Rule, RuleAction, Scope};
use super::{Grants, Mode, PolicyRules};
use crate::shell::{self, SimpleCommand};
use turnwright_types::effect::{
    Effect, PathScope, RemoteCall, ResolvedPath, ShellCommand, escape_hidden_line, is_secret_path,
};

/// The maximum length of a server's or tool's name in a rule, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// What a lasting approval would cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LastingGrant {
    /// The patterns of the rules. For the session, patterns about paths are not needed: their
    /// effects are in `exact`.
    patterns: Vec<Pattern>,
    /// The effects to allow exactly, for the session.
    exact: Vec<Effect>,
    /// All of it, as shown to the user.
    pub(super) names: Vec<String>,
    /// Whether it can be stored as rules for the project.
    pub(super) for_project: bool,
}

/// The lasting approval of everything that is asked about; `None` if there must be none.
pub(super) fn find_lasting_grant(
    policy: &PolicyRules,
    mode: Mode,
    grants: &Grants,
    effects: &[Effect],
    decision: &Decision,
) -> Option<LastingGrant> {
    let mut lasting = LastingGrant { for_project: true, ..LastingGrant::default() };
    for finding in decision.findings.iter().filter(|it| it.verdict == Verdict::Ask) {
        lasting.cover(policy, effects.get(finding.effect_index)?, finding)?;
    }
    // Only offer what will work: an "always" that asks again would be worse than none.
    let mut session = grants.clone();
    lasting.grant(&mut session);
    if decide(policy, mode, &session, effects).verdict() != Verdict::Allow {
        return None;
    }
    let mut project = policy.clone();
    project.rules.extend(lasting.rules());
    let is_sufficient = || decide(&project, mode, grants, effects).verdict() == Verdict::Allow;
    lasting.for_project = lasting.for_project && is_sufficient();
    Some(lasting)
}

impl LastingGrant {
    /// The rules to store for the project.
    pub(super) fn rules(&self) -> impl Iterator<Item = Rule> {
        let rule = |pattern: &Pattern| Rule {
            action: RuleAction::Allow,
            pattern: pattern.clone(),
            scope: Scope::Local,
            why: None,
        };
        self.patterns.iter().map(rule)
    }

    /// The effects that are allowed exactly.
    pub(super) fn exact_effects(&self) -> &[Effect] {
        &self.exact
    }

    /// Adds it to the grants of the session.
    pub(super) fn grant(&self, grants: &mut Grants) {
        let is_needed = |it: &Rule| {
            matches!(it.pattern, Pattern::Exec { .. } | Pattern::Fetch(_) | Pattern::Mcp { .. })
        };
        for rule in self.rules().filter(is_needed) {
            grants.allow(Rule { scope: Scope::Session, ..rule });
        }
        for effect in &self.exact {
            grants.allow_exactly(effect.clone());
        }
    }

    /// Extends it to one finding. `None` if that can only be approved once.
    fn cover(&mut self, policy: &PolicyRules, effect: &Effect, finding: &Finding) -> Option<()> {
        // Every other reason asks each time: a rule, an ambiguous line, destruction, an escalation,
        // a protected path.
        if !matches!(
            finding.reason,
            Reason::Mode | Reason::OutsideWorkspace | Reason::NoSandbox | Reason::SecretPath
        ) {
            return None;
        }
        let shown = |it: &ResolvedPath| rule_path(&it.path, &policy.bases);
        match effect {
            Effect::Exec(command) => self.cover_command(policy, effect, command, finding)?,
            // If the path is a folder, a pattern would include everything below it, which may be
            // secret.
            Effect::Read(target) => self.add_exact(effect, &format!("read({})", shown(target)?)),
            Effect::Write(target) => {
                let text = format!("edit({})", shown(target)?);
                if target.scope == PathScope::Workspace {
                    self.add_pattern(Pattern::parse(&text, RuleAction::Allow).ok()?);
                    self.exact.push(effect.clone());
                } else {
                    self.add_exact(effect, &text);
                }
            }
            Effect::Delete(target) => {
                self.add_exact(effect, &format!("deleting {}", shown(target)?));
            }
            // No sandbox limits what the input may do.
            Effect::Input { is_unsandboxed: true, .. } => return None,
            Effect::Input { job, .. } => self.add_exact(effect, &format!("input to {job}")),
            Effect::Fetch { host } => {
                let text = format!("fetch(domain:{host})");
                match Pattern::parse(&text, RuleAction::Allow) {
                    Ok(pattern) => self.add_pattern(pattern),
                    Err(_) => self.add_exact(effect, &text),
                }
            }
            Effect::Remote(call) => match remote_pattern(call) {
                Some(pattern) => self.add_pattern(pattern),
                None => {
                    let text = format!("{} of {}", call.tool, call.server);
                    self.add_exact(effect, &text);
                }
            },
            Effect::Signal { .. } | Effect::SessionState => {}
        }
        Some(())
    }

    /// Extends it to one finding about a command. `None` if that can only be approved once.
    fn cover_command(
        &mut self,
        policy: &PolicyRules,
        effect: &Effect,
        command: &ShellCommand,
        finding: &Finding,
    ) -> Option<()> {
        match finding.command_index {
            Some(index) => {
                let script = &command.script;
                let simple = script.commands.get(index).filter(|_| script.ambiguity.is_none())?;
                self.add_pattern(suggest_pattern(simple)?);
            }
            // A pattern would let the program read there forever, which is more than was asked.
            None if finding.reason == Reason::OutsideWorkspace => {
                self.add_exact(effect, "exactly this command");
            }
            // The files that it reads, whatever command does so.
            None if finding.reason == Reason::SecretPath => {
                for target in command.reads.iter().filter(|it| is_secret_path(&it.path)) {
                    let name = format!("read({})", rule_path(&target.path, &policy.bases)?);
                    self.add_exact(&Effect::Read(target.clone()), &name);
                }
            }
            None => return None,
        }
        Some(())
    }

    fn add_pattern(&mut self, pattern: Pattern) {
        if !self.patterns.contains(&pattern) {
            self.names.push(escape_hidden_line(&pattern.to_string()));
            self.patterns.push(pattern);
        }
    }

    fn add_exact(&mut self, effect: &Effect, name: &str) {
        self.for_project = false;
        let name = escape_hidden_line(name);
        if !self.names.contains(&name) {
            self.exact.push(effect.clone());
            self.names.push(name);
        }
    }
}

/// The pattern that means exactly this tool; `None` if its name or the server's could mean or look
/// like something else.
pub(super) fn remote_pattern(call: &RemoteCall) -> Option<Pattern> {
    let (server, tool) = (call.server.clone(), call.tool.clone());
    let is_plain =
        |it: &str| !it.contains('*') && escape_hidden_line(it) == it && it.len() <= MAX_NAME_BYTES;
    if !is_plain(&server) || !is_plain(&tool) {
        return None;
    }
    let pattern = Pattern::Mcp { server, tool: Some(tool) };
    // The pattern must survive being written and parsed again.
    let round_trips =
        Pattern::parse(&pattern.to_string(), RuleAction::Allow).as_ref() == Ok(&pattern);
    round_trips.then_some(pattern)
}

/// The pattern that a lasting approval of a command would get; `None` if it must not have one.
pub fn suggest_pattern(simple: &SimpleCommand) -> Option<Pattern> {
    if simple.has_unknown_args
        || !simple.wrappers.is_empty()
        || shell::classify(simple).danger.is_some()
    {
        return None;
    }
    let shell::SuggestedWords { words, is_exact } = shell::suggest_prefix(simple)?;
    let pattern = Pattern::Exec { words, exact: is_exact };
    // The pattern must survive being written and parsed again.
    let round_trips =
        Pattern::parse(&pattern.to_string(), RuleAction::Allow).as_ref() == Ok(&pattern);
    round_trips.then_some(pattern)
}

/// A path in the syntax of rules, where it means exactly this path; `None` if the text could mean
/// or look like something else.
pub(super) fn rule_path(path: &Path, bases: &PathBases) -> Option<String> {
    // With several folders, `/x` would mean a path in each of them.
    let inside = match bases.roots.as_slice() {
        [root] => path.strip_prefix(root).ok(),
        _ => None,
    };
    let (prefix, rest) = match inside {
        Some(rest) => ("/", rest),
        // A drive of Windows stays.
        None if cfg!(windows) => ("//", path.strip_prefix("/").unwrap_or(path)),
        None => ("//", path.strip_prefix("/").ok()?),
    };
    let rest = rest.to_str().map(|_| super::glob::slashed(rest));
    let rest = rest.as_deref().filter(|it| !it.is_empty() && escape_hidden_line(it) == **it)?;
    let mut text = prefix.to_owned();
    for char in rest.chars() {
        if matches!(char, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            text.push('\\');
        }
        text.push(char);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_rule_cannot_mean_exactly_has_no_rule() {
        for (server, tool, expected) in [
            ("notes", "read", Some("mcp(notes/read)")),
            ("my notes", "read.all-v2", Some("mcp(my notes/read.all-v2)")),
            ("notes", "f(x)", Some("mcp(notes/f(x))")),
            ("Notes", "Read", Some("mcp(Notes/Read)")),
            ("notes", "*", None),
            ("*", "read", None),
            ("notes", "re*d", None),
            ("a/b", "c", None),
            ("a", "b/c", None),
            (" notes", "read", None),
            ("notes", "read ", None),
            ("notes", "", None),
            ("notes", "re\nad", None),
            ("no\u{ad}tes", "read", None),
            ("notes", "read\u{200b}", None),
        ] {
            let call = RemoteCall {
                server: server.to_owned(),
                tool: tool.to_owned(),
                server_digest: String::new(),
                tool_digest: String::new(),
                claims_read_only: false,
                change_since_approval: None,
            };
            let pattern = remote_pattern(&call).map(|it| it.to_string());
            assert_eq!(pattern.as_deref(), expected, "{server:?} {tool:?}");
        }
    }

    #[test]
    fn the_pattern_of_a_path_means_that_path() {
        let one = PathBases { roots: vec!["/ws".into()], home: None };
        #[cfg(unix)]
        let two = PathBases { roots: vec!["/ws".into(), "/more".into()], home: None };
        for (bases, path, expected) in [
            (&one, "/ws/src/a.rs", Some("/src/a.rs")),
            #[cfg(windows)]
            (&one, r"C:\a\b", Some("//C:/a/b")),
            #[cfg(windows)]
            (&one, r"/ws\a\b", Some("/a/b")),
            #[cfg(unix)]
            (&one, "/etc/hosts", Some("//etc/hosts")),
            #[cfg(unix)]
            (&one, "/wsx/a", Some("//wsx/a")),
            #[cfg(unix)]
            (&two, "/ws/a", Some("//ws/a")),
            #[cfg(unix)]
            (&two, "/more/a", Some("//more/a")),
            (&one, "/ws/a b(c)!.rs", Some("/a b(c)!.rs")),
            #[cfg(unix)]
            (&one, "/ws/[id]/*.{a,b}?\\", Some("/\\[id\\]/\\*.\\{a,b\\}\\?\\\\")),
            (&one, "/ws/a\nb", None),
            (&one, "/ws/\u{202e}a", None),
            (&one, "/ws", None),
            #[cfg(unix)]
            (&one, "/", None),
        ] {
            assert_eq!(rule_path(Path::new(path), bases).as_deref(), expected, "{path}");
        }
    }
}
