//! Finds what an answer "allow for longer" would cover: patterns that mean no more than what was
//! asked about. There is none where an approval can only be for one call. Pure.

use std::path::Path;

use super::decide::decide;
use super::describe::{access_nouns, access_of_command, listed};
use super::grants::{AccessGrant, GrantedCommands, commands_with_access, is_understood};
use super::rule::{PathBases, Pattern, Rule, RuleAction, Scope};
use super::{Finding, Grants, JudgedCall, Mode, PolicyRules, Reason, Verdict};
use crate::shell::{self, SimpleCommand};
use turnwright_types::client::ChoiceKind;
use turnwright_types::effect::{
    Effect, ExtraAccess, PathScope, RemoteCall, ResolvedPath, ShellCommand, escape_hidden_line,
    is_secret_path,
};
use turnwright_types::text::with_backslashes;

/// The maximum length of a server's or tool's name in a rule, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// The extent of a lasting approval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LastingGrant {
    /// The patterns of the rules. For the session, patterns about paths are not needed: their
    /// effects are in `exact`.
    patterns: Vec<Pattern>,
    /// The effects to allow exactly, for the session.
    pub(super) exact: Vec<Effect>,
    /// Access beyond the sandbox, for the session.
    access: Vec<AccessGrant>,
    /// The access in words; empty if there is none.
    access_text: String,
    /// True for every command that the mode `auto` would run in the sandbox without a question.
    all_commands: bool,
    /// The names shown to the user, without the access and its commands.
    names: Vec<String>,
    /// True if no rule in the settings can allow a part of it.
    exceeds_rules: bool,
    /// True if it can be stored as rules for the project.
    pub(super) for_project: bool,
}

/// The commands of a line that get the access beyond the sandbox which is asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Those that begin like the commands of this line.
    Alike,
    /// This very line.
    Exact,
    All,
}

impl JudgedCall<'_> {
    /// The lasting approvals of everything that is asked about, with the answers that give them: first that of what is
    /// asked about, and then that for all commands, of the access beyond the sandbox that is asked about or to run in
    /// the sandbox.
    pub(super) fn lasting_grants(&self, grants: &Grants) -> Vec<(ChoiceKind, LastingGrant)> {
        let (narrow, wide) = match self.asked_access() {
            None => (
                self.find(grants, None).or_else(|| self.find_exact(grants)),
                self.find_all_commands(grants).map(|wide| (ChoiceKind::AllowAllCommands, wide)),
            ),
            Some((_, _, access)) => (
                self.find(grants, Some(Reach::Alike))
                    .or_else(|| self.find(grants, Some(Reach::Exact))),
                self.find_wide(grants, &access).map(|wide| (ChoiceKind::AllowSessionForAll, wide)),
            ),
        };
        let narrow = narrow.map(|lasting| (ChoiceKind::AllowSession, lasting));
        narrow.into_iter().chain(wide).collect()
    }

    /// The lasting approval of this access for all commands; `None` if there must be none.
    fn find_wide(&self, grants: &Grants, access: &ExtraAccess) -> Option<LastingGrant> {
        // To write all of the home folder is nearly to run without the sandbox.
        let home = self.policy.bases.home.as_deref();
        let may_be_wide = !access.writes.iter().any(|target| {
            home.is_some_and(|home| home.starts_with(&target.path)) || is_secret_path(&target.path)
        });
        may_be_wide.then(|| self.find(grants, Some(Reach::All)))?
    }

    /// The access beyond the sandbox that is asked about, with the command that gets it.
    fn asked_access(&self) -> Option<(&Effect, &ShellCommand, ExtraAccess)> {
        let mut asked = self.decision.findings_to_ask();
        let finding =
            asked.find(|finding| matches!(finding.reason, Reason::Escalation | Reason::Network))?;
        let effect = self.effects.get(finding.effect_index)?;
        let Effect::Exec(command) = effect else { return None };
        let mut asked = self.decision.findings_to_ask();
        let mut access = command.extra_access.clone();
        access.network |= asked.any(|finding| finding.reason == Reason::Network);
        Some((effect, command, access))
    }

    /// The lasting approval of everything that is asked about; `None` if there must be none. `reach` says which commands
    /// get the access beyond the sandbox.
    fn find(&self, grants: &Grants, reach: Option<Reach>) -> Option<LastingGrant> {
        let mut lasting = LastingGrant { for_project: true, ..LastingGrant::default() };
        if let Some(reach) = reach {
            let (effect, command, access) = self.asked_access()?;
            lasting.add_access(self.policy, (effect, command), &access, reach)?;
        }
        for finding in self.decision.findings_to_ask() {
            let effect = self.effects.get(finding.effect_index)?;
            lasting.cover(self.policy, effect, finding, reach)?;
        }
        if !self.is_sufficient(grants, &lasting) {
            return None;
        }
        let mut project = self.policy.clone();
        project.rules.extend(lasting.rules());
        lasting.for_project = lasting.for_project
            && decide(&project, self.mode, grants, self.effects).verdict() == Verdict::Allow;
        Some(lasting)
    }

    /// The lasting approval of exactly this line, which the sandbox bounds; `None` if there must be none.
    fn find_exact(&self, grants: &Grants) -> Option<LastingGrant> {
        let mut lasting = LastingGrant::default();
        for finding in self.decision.findings_to_ask() {
            let effect = self.effects.get(finding.effect_index)?;
            match (effect, &finding.reason) {
                (Effect::Exec(command), Reason::Mode | Reason::Ambiguous(_))
                    if self.is_bounded(command) && !self.lacks_network(command) =>
                {
                    lasting.add_exact(effect, "exactly this command");
                }
                _ => lasting.cover(self.policy, effect, finding, None)?,
            }
        }
        self.is_sufficient(grants, &lasting).then_some(lasting)
    }

    /// Returns true if the sandbox bounds whatever a line may do, and none of its commands destroys or publishes something.
    fn is_bounded(&self, command: &ShellCommand) -> bool {
        let uncertainty = command.uncertainty.as_ref();
        self.policy.bounds_commands()
            && !has_dangerous_command(command)
            && uncertainty.is_none_or(|uncertainty| uncertainty.only_runs_programs)
    }

    /// Returns true if a line fails without the network, and would not get it.
    fn lacks_network(&self, command: &ShellCommand) -> bool {
        let access = &command.extra_access;
        let has_network = self.policy.has_network || access.network || access.unsandboxed;
        !has_network
            && !self.decision.has(&Reason::Network)
            && shell::fails_offline(&command.script)
            && !self.policy.has_proxy(command)
    }

    /// The lasting approval of all commands that the mode `auto` would run in the sandbox; `None` if it would ask, too.
    fn find_all_commands(&self, grants: &Grants) -> Option<LastingGrant> {
        let is_stricter = matches!(self.mode, Mode::Ask | Mode::AutoEdit);
        let is_about_commands = self
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Exec(_) | Effect::Input { .. }));
        let lasting = LastingGrant { all_commands: true, ..LastingGrant::default() };
        (is_stricter && is_about_commands && self.is_sufficient(grants, &lasting))
            .then_some(lasting)
    }

    /// Returns true if nothing is left to ask with this approval: an "always" that asks again would be worse than none.
    fn is_sufficient(&self, grants: &Grants, lasting: &LastingGrant) -> bool {
        let mut session = grants.clone();
        lasting.grant(&mut session);
        let decided = decide(self.policy, self.mode, &session, self.effects);
        decided.verdict() == Verdict::Allow
    }
}

impl LastingGrant {
    /// The rules to store for the project.
    pub(super) fn rules(&self) -> impl Iterator<Item = Rule> {
        let patterns = self.patterns.iter().cloned();
        patterns.map(|pattern| Rule::new(RuleAction::Allow, pattern, Scope::Local))
    }

    /// Adds it to the grants of the session.
    pub(super) fn grant(&self, grants: &mut Grants) {
        for rule in self.rules() {
            let is_needed = matches!(
                rule.pattern,
                Pattern::Exec { .. } | Pattern::Fetch(_) | Pattern::Search(_) | Pattern::Mcp { .. }
            );
            if is_needed {
                grants.allow(Rule { scope: Scope::Session, ..rule });
            }
        }
        for effect in &self.exact {
            grants.allow_exactly(effect.clone());
        }
        for access in &self.access {
            grants.allow_access(access.clone());
        }
        if self.all_commands {
            grants.allow_all_commands();
        }
    }

    /// The rules in the settings that would allow the same; `None` if none can.
    pub(super) fn rule_names(&self) -> Option<String> {
        let are_rules = self.access.is_empty() && !self.all_commands && !self.exceeds_rules;
        are_rules.then(|| self.names.join(" and "))
    }

    /// Describes what is allowed, after "allow". `write_rule` says how a rule is written.
    pub(super) fn describe(&self, write_rule: fn(&str) -> String) -> String {
        if self.all_commands {
            return "all commands in the sandbox".to_owned();
        }
        let mut commands = Vec::new();
        let mut is_for_all = false;
        for grant in &self.access {
            match &grant.commands {
                GrantedCommands::All => is_for_all = true,
                GrantedCommands::Matching(pattern) => commands.push(rule_text(pattern)),
                GrantedCommands::Exactly(_) => commands.push("exactly this command".to_owned()),
            }
        }
        let others = self.names.iter().filter(|name| !commands.contains(name));
        let mut parts: Vec<_> = others.map(|name| write_rule(name)).collect();
        if !commands.is_empty() {
            let commands: Vec<_> = commands.iter().map(|command| write_rule(command)).collect();
            parts.insert(0, format!("{} {}", commands.join(" and "), self.access_text));
        }
        let parts = parts.join(" and ");
        match is_for_all {
            true if parts.is_empty() => self.access_text.clone(),
            true => format!("{parts}, and {},", self.access_text),
            false => parts,
        }
    }

    /// Gives the commands of a line the access beyond the sandbox that is asked about. `None` if that can only be approved
    /// once.
    fn add_access(
        &mut self,
        policy: &PolicyRules,
        (effect, command): (&Effect, &ShellCommand),
        access: &ExtraAccess,
        reach: Reach,
    ) -> Option<()> {
        // A button cannot grant what it cannot show.
        for target in &access.writes {
            rule_path(&target.path, &policy.bases)?;
        }
        if has_dangerous_command(command) {
            return None;
        }
        let is_understood = is_understood(command);
        // Where no sandbox bounds what it does, a line that is not understood is asked about each time.
        if !is_understood && !policy.can_confine {
            return None;
        }
        // Without the sandbox nothing bounds what other commands could do.
        if reach != Reach::Exact && (access.unsandboxed || !is_understood) {
            return None;
        }
        let commands = match reach {
            Reach::All => vec![GrantedCommands::All],
            Reach::Exact => {
                self.exact.push(effect.clone());
                vec![GrantedCommands::Exactly(Box::new(command.clone()))]
            }
            Reach::Alike => {
                let mut commands = Vec::new();
                for simple in commands_with_access(command) {
                    let granted = GrantedCommands::Matching(pattern_with_access(simple)?);
                    turnwright_types::lists::add_new(&mut commands, granted);
                }
                commands
            }
        };
        self.for_project = false;
        self.access_text = match reach {
            Reach::All => {
                format!("{} for all commands", listed(&access_nouns(access, &policy.bases)))
            }
            Reach::Alike | Reach::Exact => access_of_command(access, &policy.bases),
        };
        let grants = commands.into_iter();
        self.access.extend(grants.map(|commands| AccessGrant { commands, access: access.clone() }));
        Some(())
    }

    /// Extends it to one finding. `None` if that can only be approved once.
    fn cover(
        &mut self,
        policy: &PolicyRules,
        effect: &Effect,
        finding: &Finding,
        reach: Option<Reach>,
    ) -> Option<()> {
        match finding.reason {
            Reason::Mode | Reason::OutsideWorkspace | Reason::NoSandbox | Reason::SecretPath => {}
            // The access covers it.
            Reason::Escalation | Reason::Network => return Some(()),
            Reason::Ambiguous(_) if reach == Some(Reach::Exact) => return Some(()),
            // Every other reason asks each time: a rule, an ambiguous line, destruction, a protected path.
            _ => return None,
        }
        let shown = |target: &ResolvedPath| rule_path(&target.name_for_commands(), &policy.bases);
        match effect {
            Effect::Exec(command) => self.cover_command(policy, effect, command, finding, reach)?,
            // If the path is a folder, a pattern would include everything below it, which may be
            // secret.
            Effect::Read(target) => self.add_file(effect, &format!("read({})", shown(target)?)),
            Effect::Write(target) => {
                let text = format!("edit({})", shown(target)?);
                if target.scope == PathScope::Workspace {
                    self.add_pattern(Pattern::parse(&text, RuleAction::Allow).ok()?);
                    self.exact.push(effect.clone());
                } else {
                    self.add_file(effect, &text);
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
            Effect::Search { backend } => self.add_pattern(Pattern::Search(backend.clone())),
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
        reach: Option<Reach>,
    ) -> Option<()> {
        match finding.command_index {
            Some(_) if reach == Some(Reach::Exact) => {}
            Some(index) => {
                let script = &command.script;
                let simple = script.commands.get(index).filter(|_| script.ambiguity.is_none())?;
                let pattern = match reach {
                    Some(_) => pattern_with_access(simple)?,
                    None => suggest_pattern(simple)?,
                };
                self.add_pattern(pattern);
            }
            // A pattern would let the program read there forever, which is more than was asked.
            None if finding.reason == Reason::OutsideWorkspace && reach == Some(Reach::Exact) => {}
            None if finding.reason == Reason::OutsideWorkspace => {
                self.add_exact(effect, "exactly this command");
            }
            // The files that it reads, whatever command does so.
            None if finding.reason == Reason::SecretPath => {
                for target in command.reads.iter().filter(|read| is_secret_path(&read.path)) {
                    let name = format!("read({})", rule_path(&target.path, &policy.bases)?);
                    self.add_file(&Effect::Read(target.clone()), &name);
                }
            }
            None => return None,
        }
        Some(())
    }

    fn add_pattern(&mut self, pattern: Pattern) {
        if !self.patterns.contains(&pattern) {
            self.names.push(rule_text(&pattern));
            self.patterns.push(pattern);
        }
    }

    /// Allows exactly this effect, which no rule in the settings can allow.
    fn add_exact(&mut self, effect: &Effect, name: &str) {
        self.exceeds_rules = true;
        self.add_file(effect, name);
    }

    /// Allows exactly this effect, whose name is the rule that would allow it.
    fn add_file(&mut self, effect: &Effect, name: &str) {
        self.for_project = false;
        let name = escape_hidden_line(name);
        if !self.names.contains(&name) {
            self.exact.push(effect.clone());
            self.names.push(name);
        }
    }
}

/// Returns true if a command of the line could irreversibly destroy work.
fn has_dangerous_command(command: &ShellCommand) -> bool {
    command.script.commands.iter().any(|simple| shell::danger(simple).is_some())
}

/// The pattern that means exactly this tool; `None` if its name or the server's could mean or look
/// like something else.
pub(super) fn remote_pattern(call: &RemoteCall) -> Option<Pattern> {
    let is_plain = |name: &str| {
        !name.contains('*') && escape_hidden_line(name) == name && name.len() <= MAX_NAME_BYTES
    };
    if !is_plain(&call.server) || !is_plain(&call.tool) {
        return None;
    }
    let pattern = Pattern::Mcp { server: call.server.clone(), tool: Some(call.tool.clone()) };
    survives_writing(&pattern).then_some(pattern)
}

/// Returns true if a pattern is the same after being written and parsed again.
fn survives_writing(pattern: &Pattern) -> bool {
    Pattern::parse(&pattern.to_string(), RuleAction::Allow).as_ref() == Ok(pattern)
}

/// The pattern that a lasting approval of a command would get; `None` if it must not have one.
pub fn suggest_pattern(simple: &SimpleCommand) -> Option<Pattern> {
    let mut simple = simple.clone();
    // A rule also covers the command with any limit of time.
    if simple.wrappers == ["timeout"] {
        simple.wrappers.clear();
    }
    pattern_of(&simple, shell::suggest_prefix(&simple))
}

/// The pattern for commands that get access beyond the sandbox; `None` if there must be none.
fn pattern_with_access(simple: &SimpleCommand) -> Option<Pattern> {
    pattern_of(simple, shell::suggest_prefix_with_access(simple))
}

fn pattern_of(simple: &SimpleCommand, suggested: Option<(Vec<String>, bool)>) -> Option<Pattern> {
    if simple.has_unknown_args || !simple.wrappers.is_empty() || shell::danger(simple).is_some() {
        return None;
    }
    let (words, exact) = suggested?;
    let pattern = Pattern::Exec { words, exact };
    survives_writing(&pattern).then_some(pattern)
}

/// A pattern as it is shown.
fn rule_text(pattern: &Pattern) -> String {
    escape_hidden_line(&pattern.to_string())
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
    let slashed = rest.to_str().map(|_| super::glob::slashed(rest));
    let rest =
        slashed.as_deref().filter(|rest| !rest.is_empty() && escape_hidden_line(rest) == **rest)?;
    Some(format!("{prefix}{}", with_backslashes(rest, "*?[]{}\\")))
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
            let pattern = remote_pattern(&call).map(|pattern| pattern.to_string());
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
