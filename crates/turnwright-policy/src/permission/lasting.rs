//! What a yes for longer would cover: patterns that mean no more than what was asked about, and
//! none where a yes can only be about this once. Pure.

use std::path::Path;

use super::decision::{Decision, Finding, Verdict, Why};
use super::policy::decide;
use super::rule::{Ground, Pattern, Rule, Scope, Tier};
use super::{Grants, Law, Mode};
use turnwright_types::effect::{Effect, Place, RemoteCall, Target, visible_line};
use crate::shell::{self, Simple};

/// Bytes of a server's or a tool's name that a rule can have.
const LONGEST_NAME: usize = 200;

/// What would be remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lasting {
    /// As rules. In the session those about paths are not needed, because they are among `exact`.
    patterns: Vec<Pattern>,
    /// Exactly these effects, in this session.
    exact: Vec<Effect>,
    /// All of it, as the user reads it.
    pub(super) names: Vec<String>,
    /// Whether it may outlive the session.
    pub(super) for_project: bool,
}

/// What a lasting yes to all that is asked about would be; `None` where there is no such yes.
pub(super) fn find(
    law: &Law,
    mode: Mode,
    grants: &Grants,
    effects: &[Effect],
    decision: &Decision,
) -> Option<Lasting> {
    let mut lasting = Lasting { for_project: true, ..Lasting::default() };
    for finding in decision.findings.iter().filter(|it| it.verdict == Verdict::Ask) {
        lasting.cover(law, effects.get(finding.effect)?, finding)?;
    }
    // What is offered has to hold: a promise that asks again tomorrow is worse than none.
    let mut session = grants.clone();
    lasting.grant(&mut session);
    if decide(law, mode, &session, effects).verdict() != Verdict::Allow {
        return None;
    }
    let mut project = law.clone();
    project.rules.extend(lasting.rules());
    let is_spared = || decide(&project, mode, grants, effects).verdict() == Verdict::Allow;
    lasting.for_project = lasting.for_project && is_spared();
    Some(lasting)
}

impl Lasting {
    /// Its rules.
    pub(super) fn rules(&self) -> impl Iterator<Item = Rule> {
        let rule = |pattern: &Pattern| Rule {
            tier: Tier::Allow,
            pattern: pattern.clone(),
            scope: Scope::Local,
            why: None,
        };
        self.patterns.iter().map(rule)
    }

    /// Has it hold in the session.
    pub(super) fn grant(&self, grants: &mut Grants) {
        let needed = |it: &Rule| {
            matches!(it.pattern, Pattern::Exec { .. } | Pattern::Fetch(_) | Pattern::Mcp { .. })
        };
        for rule in self.rules().filter(needed) {
            grants.allow(Rule { scope: Scope::Session, ..rule });
        }
        for effect in &self.exact {
            grants.allow_exactly(effect.clone());
        }
    }

    /// Covers one thing that is asked about.
    fn cover(&mut self, law: &Law, effect: &Effect, finding: &Finding) -> Option<()> {
        // Whatever else makes it a question does so each time: a rule, a doubt, a danger, more than
        // the sandbox leaves it, a protected place.
        if !matches!(finding.why, Why::Mode | Why::Outside | Why::NoSandbox | Why::Secret) {
            return None;
        }
        let shown = |it: &Target| rule_path(&it.path, &law.ground);
        match effect {
            Effect::Exec(command) => match finding.simple {
                Some(place) => {
                    let script = shell::read(&command.line, law.dialect);
                    let simple = script.commands.get(place).filter(|_| script.doubt.is_none())?;
                    self.name(pattern_of(simple)?);
                }
                // Which programs may read there for ever is more than was asked.
                None if finding.why == Why::Outside => {
                    self.exactly(effect, "exactly this command");
                }
                None => return None,
            },
            // A pattern would mean all that lies below, which may be secret, should it be a folder.
            Effect::Read(target) => self.exactly(effect, &format!("read({})", shown(target)?)),
            Effect::Write(target) => {
                let text = format!("edit({})", shown(target)?);
                if target.place == Place::Inside {
                    self.name(Pattern::parse(&text, Tier::Allow).ok()?);
                    self.exact.push(effect.clone());
                } else {
                    self.exactly(effect, &text);
                }
            }
            Effect::Delete(target) => self.exactly(effect, &format!("removing {}", shown(target)?)),
            // What it does there nothing keeps in.
            Effect::Input { is_open: true, .. } => return None,
            Effect::Input { job, .. } => self.exactly(effect, &format!("input to {job}")),
            Effect::Fetch { host } => {
                let text = format!("fetch(domain:{host})");
                match Pattern::parse(&text, Tier::Allow) {
                    Ok(pattern) => self.name(pattern),
                    Err(_) => self.exactly(effect, &text),
                }
            }
            Effect::Remote(call) => match remote_pattern(call) {
                Some(pattern) => self.name(pattern),
                None => {
                    let text = format!("{} of {}", call.tool, call.server);
                    self.exactly(effect, &text);
                }
            },
            Effect::Signal { .. } | Effect::Session => {}
        }
        Some(())
    }

    fn name(&mut self, pattern: Pattern) {
        if !self.patterns.contains(&pattern) {
            self.names.push(visible_line(&pattern.to_string()));
            self.patterns.push(pattern);
        }
    }

    fn exactly(&mut self, effect: &Effect, name: &str) {
        self.for_project = false;
        let name = visible_line(name);
        if !self.names.contains(&name) {
            self.exact.push(effect.clone());
            self.names.push(name);
        }
    }
}

/// The pattern that means this tool and no other; `None` where its name or the server's could mean
/// or look like something else.
pub(super) fn remote_pattern(call: &RemoteCall) -> Option<Pattern> {
    let (server, tool) = (call.server.clone(), call.tool.clone());
    let is_plain =
        |it: &str| !it.contains('*') && visible_line(it) == it && it.len() <= LONGEST_NAME;
    if !is_plain(&server) || !is_plain(&tool) {
        return None;
    }
    let pattern = Pattern::Mcp { server, tool: Some(tool) };
    // What could not be read back is no pattern.
    let is_sound = Pattern::parse(&pattern.to_string(), Tier::Allow).as_ref() == Ok(&pattern);
    is_sound.then_some(pattern)
}

/// The pattern that a lasting yes to a command would have, if it may have one.
pub fn pattern_of(simple: &Simple) -> Option<Pattern> {
    if simple.is_open || !simple.wrappers.is_empty() || shell::nature(simple).danger.is_some() {
        return None;
    }
    let pattern = Pattern::Exec { words: shell::pattern(simple)?, exact: false };
    // What could not be read back is no pattern.
    let is_sound = Pattern::parse(&pattern.to_string(), Tier::Allow).as_ref() == Ok(&pattern);
    is_sound.then_some(pattern)
}

/// A path as a rule has it, which then means this path and no other; `None` where the text could
/// mean or look like something else.
pub(super) fn rule_path(path: &Path, ground: &Ground) -> Option<String> {
    // With several folders `/x` would mean one in each of them.
    let inside = match ground.roots.as_slice() {
        [root] => path.strip_prefix(root).ok(),
        _ => None,
    };
    let (start, rest) = match inside {
        Some(rest) => ("/", rest),
        None => ("//", path.strip_prefix("/").ok()?),
    };
    let rest = rest.to_str().filter(|it| !it.is_empty() && visible_line(it) == **it)?;
    let mut text = start.to_owned();
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
                identity: String::new(),
                content: String::new(),
                claims_to_read: false,
                change: None,
            };
            let pattern = remote_pattern(&call).map(|it| it.to_string());
            assert_eq!(pattern.as_deref(), expected, "{server:?} {tool:?}");
        }
    }

    #[test]
    fn the_pattern_of_a_path_means_that_path() {
        let one = Ground { roots: vec!["/ws".into()], home: None };
        let two = Ground { roots: vec!["/ws".into(), "/more".into()], home: None };
        for (ground, path, expected) in [
            (&one, "/ws/src/a.rs", Some("/src/a.rs")),
            (&one, "/etc/hosts", Some("//etc/hosts")),
            (&one, "/wsx/a", Some("//wsx/a")),
            (&two, "/ws/a", Some("//ws/a")),
            (&two, "/more/a", Some("//more/a")),
            (&one, "/ws/a b(c)!.rs", Some("/a b(c)!.rs")),
            (&one, "/ws/[id]/*.{a,b}?\\", Some("/\\[id\\]/\\*.\\{a,b\\}\\?\\\\")),
            (&one, "/ws/a\nb", None),
            (&one, "/ws/\u{202e}a", None),
            (&one, "/ws", None),
            (&one, "/", None),
        ] {
            assert_eq!(rule_path(Path::new(path), ground).as_deref(), expected, "{path}");
        }
    }
}
