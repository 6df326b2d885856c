//! The decision: a pure function of the rules, the mode, the session's grants and the effects of a
//! call. Its tests are the specification.
//!
//! In order of precedence: catastrophic commands are denied; then `deny` rules; `ask` rules; what
//! is always asked about; the user's answers in this session; `allow` rules; the mode. The order of
//! rules never matters.

use std::sync::Arc;

use super::Grants;
use super::decision::{Decision, Finding, Reason, Verdict};
use super::extra_access::access_of_command;
use super::mode::Mode;
use super::policy_rules::PolicyRules;
use super::rule::{Rule, RuleAction};
use crate::shell::{self, Classification, Ruin, Script, SimpleCommand};
use turnwright_types::effect::{
    Effect, ExtraAccess, PathScope, RemoteCall, ResolvedPath, ShellCommand, is_secret_path,
};

/// Decides about the effects of a call. Each effect, and each simple command of a command line,
/// gets its own finding.
pub fn decide(policy: &PolicyRules, mode: Mode, grants: &Grants, effects: &[Effect]) -> Decision {
    let mut decider = Decider {
        policy,
        mode,
        command_mode: command_mode(policy, mode, grants),
        grants,
        findings: Vec::new(),
        effect_index: 0,
    };
    for (index, effect) in effects.iter().enumerate() {
        decider.effect_index = index;
        decider.decide_effect(effect);
    }
    Decision { findings: decider.findings }
}

/// The mode by which commands are judged.
fn command_mode(policy: &PolicyRules, mode: Mode, grants: &Grants) -> Mode {
    let is_allowed = grants.allows_all_commands() && policy.bounds_commands();
    if is_allowed && matches!(mode, Mode::Ask | Mode::AutoEdit) {
        Mode::Auto.min(policy.max_mode)
    } else {
        mode
    }
}

struct Decider<'a> {
    policy: &'a PolicyRules,
    mode: Mode,
    command_mode: Mode,
    grants: &'a Grants,
    findings: Vec<Finding>,
    /// The index of the effect that is being decided about.
    effect_index: usize,
}

type Ruling = (Verdict, Reason);

impl Decider<'_> {
    fn add(&mut self, command_index: Option<usize>, (verdict, reason): Ruling) {
        let effect_index = self.effect_index;
        self.findings.push(Finding { effect_index, command_index, path: None, verdict, reason });
    }

    /// Adds a finding about a file of a command.
    fn add_file(&mut self, target: &ResolvedPath, (verdict, reason): Ruling) {
        let (effect_index, path) = (self.effect_index, Some(target.path.clone()));
        self.findings.push(Finding { effect_index, command_index: None, path, verdict, reason });
    }

    fn decide_effect(&mut self, effect: &Effect) {
        if self.grants.is_rejected(effect) {
            return self.add(None, (Verdict::Deny, Reason::Rejected));
        }
        let ruling = match effect {
            Effect::SessionState => (Verdict::Allow, Reason::SessionOnly),
            Effect::Read(target) => self.read(target, Some(effect)),
            Effect::Write(target) | Effect::Delete(target) => self.change(target, effect),
            Effect::Exec(command) => return self.command(command, effect),
            Effect::Input { is_unsandboxed, .. } => {
                let default = match self.default_for_command() {
                    // No sandbox limits what the input may do.
                    (Verdict::Allow, _) if *is_unsandboxed && self.mode != Mode::Full => {
                        (Verdict::Ask, Reason::Escalation)
                    }
                    default => default,
                };
                let is_restriction =
                    |it: &Rule| it.action != RuleAction::Allow && it.pattern.is_every_command();
                self.apply_rules(is_restriction, Some(effect), None, default)
            }
            Effect::Signal { .. } if self.mode == Mode::Plan => (Verdict::Deny, Reason::Mode),
            Effect::Signal { .. } => (Verdict::Allow, Reason::SessionOnly),
            Effect::Fetch { host } => {
                let verdict = if self.mode == Mode::Full { Verdict::Allow } else { Verdict::Ask };
                let matches = |it: &Rule| it.matches_host(host);
                self.apply_rules(matches, Some(effect), None, (verdict, Reason::Mode))
            }
            Effect::Remote(call) => self.remote(call, effect),
        };
        self.add(None, ruling);
    }

    /// Applies the rules and grants. `exact` is the effect that the user may have allowed exactly.
    /// With `always_ask`, no grant and no `allow` rule spares the question. `default` is what the
    /// mode says.
    fn apply_rules(
        &self,
        matches: impl Fn(&Rule) -> bool,
        exact: Option<&Effect>,
        always_ask: Option<Reason>,
        default: Ruling,
    ) -> Ruling {
        let matching = self.policy.rules.iter().filter(|it| matches(it));
        let rule = matching.min_by_key(|it| it.action);
        match rule {
            Some(rule) if rule.action == RuleAction::Deny => {
                (Verdict::Deny, Reason::Rule(rule.clone()))
            }
            _ if default.0 == Verdict::Deny => default,
            Some(rule) if rule.action == RuleAction::Ask => {
                (Verdict::Ask, Reason::Rule(rule.clone()))
            }
            _ if always_ask.is_some() => (Verdict::Ask, always_ask.unwrap_or(Reason::Mode)),
            _ if default.0 == Verdict::Allow => default,
            rule => {
                let granted = self.grants.rules().iter().find(|it| matches(it));
                if let Some(granted) = granted {
                    (Verdict::Allow, Reason::Granted(granted.pattern.to_string()))
                } else if exact.is_some_and(|it| self.grants.allows_exactly(it)) {
                    (Verdict::Allow, Reason::Granted("exactly this".to_owned()))
                } else if let Some(rule) = rule {
                    (Verdict::Allow, Reason::Rule(rule.clone()))
                } else {
                    default
                }
            }
        }
    }

    /// Only the server knows what its tool does, so every mode but `full` asks. A tool that claims
    /// to be read-only is asked about in plan mode instead of being denied; the claim
    /// changes no other verdict.
    fn remote(&self, call: &RemoteCall, effect: &Effect) -> Ruling {
        let verdict = match self.mode {
            Mode::Plan if !call.claims_read_only => Verdict::Deny,
            Mode::Full => Verdict::Allow,
            Mode::Plan | Mode::Ask | Mode::AutoEdit | Mode::Auto => Verdict::Ask,
        };
        // In full mode nothing is asked; the user is notified of the change instead.
        let is_changed = call.change_since_approval.is_some() && self.mode != Mode::Full;
        let always_ask = is_changed.then_some(Reason::ToolChanged);
        let matches = |it: &Rule| it.matches_remote(&call.server, &call.tool);
        self.apply_rules(matches, Some(effect), always_ask, (verdict, Reason::Mode))
    }

    fn read(&self, target: &ResolvedPath, exact: Option<&Effect>) -> Ruling {
        let default = if self.mode == Mode::Full && !is_secret_path(&target.path) {
            (Verdict::Allow, Reason::Mode)
        } else if is_secret_path(&target.path) {
            (Verdict::Ask, Reason::SecretPath)
        } else if target.scope == PathScope::Outside {
            (Verdict::Ask, Reason::OutsideWorkspace)
        } else {
            (Verdict::Allow, Reason::ReadOnly)
        };
        let bases = &self.policy.bases;
        // A rule that allows reading a whole home was not written with the keys in it in mind.
        let covers_secret = |it: &Rule| {
            it.action != RuleAction::Allow
                || default.1 != Reason::SecretPath
                || it.names_secret(&target.path, bases)
        };
        let matches = |it: &Rule| it.matches_target(target, false, bases) && covers_secret(it);
        self.apply_rules(matches, exact, None, default.clone())
    }

    fn change(&self, target: &ResolvedPath, effect: &Effect) -> Ruling {
        let is_inside = matches!(target.scope, PathScope::Workspace | PathScope::PrivateTmp { .. });
        let is_deletion = matches!(effect, Effect::Delete(_));
        let default = match self.mode {
            Mode::Plan => (Verdict::Deny, Reason::Mode),
            Mode::Full => (Verdict::Allow, Reason::Mode),
            _ if !is_inside => (Verdict::Ask, Reason::OutsideWorkspace),
            Mode::Auto => (Verdict::Allow, Reason::Mode),
            // A deletion cannot be undone by editing, so auto-edit mode asks.
            Mode::AutoEdit if !is_deletion => (Verdict::Allow, Reason::Mode),
            Mode::AutoEdit | Mode::Ask => (Verdict::Ask, Reason::Mode),
        };
        let always_ask = self.policy.protected.reason(&target.path).map(Reason::ProtectedPath);
        let matches = |it: &Rule| it.matches_target(target, true, &self.policy.bases);
        self.apply_rules(matches, Some(effect), always_ask, default)
    }

    /// What the mode says about a command that nothing else is known about.
    fn default_for_command(&self) -> Ruling {
        match self.command_mode {
            Mode::Plan => (Verdict::Deny, Reason::Mode),
            Mode::Ask | Mode::AutoEdit => (Verdict::Ask, Reason::Mode),
            Mode::Auto if !self.policy.can_confine || (self.policy.protected_exposed)() => {
                (Verdict::Ask, Reason::NoSandbox)
            }
            Mode::Auto | Mode::Full => (Verdict::Allow, Reason::Mode),
        }
    }

    fn command(&mut self, command: &ShellCommand, effect: &Effect) {
        if command.line.len() > shell::MAX_LINE_BYTES {
            // A denied command could be anywhere in it, and searching so long a line would block
            // everything else.
            return self.add(None, (Verdict::Deny, Reason::TooLong));
        }
        let script = Arc::clone(&command.script);
        let is_granted = self.grants.allows_exactly(effect);
        self.extra_access(command, effect);
        self.network_need(command, effect);
        self.signing_need(command, effect);
        self.every_command_rule();
        if let Some(ambiguity) = ambiguity(&script) {
            self.ambiguous_line(ambiguity, is_granted);
        }
        for (index, simple) in script.commands.iter().enumerate() {
            let class = shell::classify(simple);
            let home = self.policy.bases.home.as_deref();
            let ruling = match shell::ruin(&script, index, &command.workdir, home) {
                Some(Ruin::Certain(what)) => (Verdict::Deny, Reason::Catastrophic(what)),
                Some(Ruin::Possible(what)) => self.possible_ruin(what, simple),
                None => self.simple_command(simple, &class, command, is_granted),
            };
            // In a line that is not understood, the commands that were found can only make it
            // worse.
            if script.ambiguity.is_none() || ruling.0 != Verdict::Allow {
                self.add(Some(index), ruling);
            }
        }
        let multiplies = shell::is_fork_bomb(&command.line);
        let multiplies =
            multiplies.then_some("starts itself again and again until the system stops");
        if let Some(what) = shell::find_ruinous_text(&script).or(multiplies) {
            let verdict =
                if self.command_mode == Mode::Plan { Verdict::Deny } else { Verdict::Ask };
            self.add(None, (verdict, Reason::Destructive(what)));
        }
        for target in &command.reads {
            let exact = Effect::Read(target.clone());
            let ruling = match self.read(target, Some(&exact)) {
                (Verdict::Ask, _) if is_granted => continue,
                // In auto mode a command may read whatever the sandbox lets it read.
                (Verdict::Ask, Reason::OutsideWorkspace) if self.command_mode == Mode::Auto => {
                    continue;
                }
                // An allowed read needs no finding: it must not hide that the command does more
                // than read.
                (Verdict::Allow, _) => continue,
                ruling => ruling,
            };
            self.add_file(target, ruling);
        }
        self.restricted_changes(&command.changes);
    }

    /// Access that the model has asked for beyond the sandbox.
    fn extra_access(&mut self, command: &ShellCommand, effect: &Effect) {
        let access = &command.extra_access;
        if access.is_none() || self.command_mode == Mode::Full {
            return;
        }
        let verdict = if self.command_mode == Mode::Plan { Verdict::Deny } else { Verdict::Ask };
        if verdict == Verdict::Ask && self.grants.gives_access(effect, access) {
            let access = access_of_command(access, &self.policy.bases);
            self.add(None, (Verdict::Allow, Reason::GrantedAccess(access)));
        } else {
            self.add(None, (verdict, Reason::Escalation));
        }
        for target in &access.writes {
            if let Some(what) = self.policy.protected.reason(&target.path) {
                self.add(None, (verdict, Reason::ProtectedPath(what)));
            }
        }
        self.restricted_changes(&access.writes);
    }

    /// Rules that deny or ask about changing files hold for commands, too.
    fn restricted_changes(&mut self, targets: &[ResolvedPath]) {
        for target in targets {
            let bases = &self.policy.bases;
            let restricts = |rule: &Rule| {
                rule.action != RuleAction::Allow && rule.matches_path(&target.path, true, bases)
            };
            match self.apply_rules(restricts, None, None, (Verdict::Allow, Reason::Mode)) {
                (Verdict::Allow, _) => {}
                ruling => self.add_file(target, ruling),
            }
        }
    }

    /// A line that fails without the network gets it if the user has allowed that for the session, and is asked about
    /// otherwise: it gets the network with a yes.
    fn network_need(&mut self, command: &ShellCommand, effect: &Effect) {
        let access = &command.extra_access;
        let has_network = self.policy.has_network || access.network || access.unsandboxed;
        let is_confined =
            self.policy.can_confine && !matches!(self.command_mode, Mode::Plan | Mode::Full);
        if has_network || !is_confined || !fails_offline(command) {
            return;
        }
        if self.grants.gives_access(effect, &ExtraAccess::network()) {
            self.add(None, (Verdict::Allow, Reason::Network));
        } else if self.command_mode == Mode::Auto && self.fails_unasked(command) {
            self.add(None, (Verdict::Ask, Reason::Network));
        }
    }

    /// git may sign if the user has allowed that for the session: its settings say whether it does.
    fn signing_need(&mut self, command: &ShellCommand, effect: &Effect) {
        let is_git = |simple: &SimpleCommand| shell::classify(simple).is_git;
        if !command.extra_access.sign
            && command.script.commands.iter().any(is_git)
            && self.grants.gives_access(effect, &ExtraAccess::sign())
        {
            self.add(None, (Verdict::Allow, Reason::Signing));
        }
    }

    /// Returns true if a line would run in the sandbox without a question although it fails there. What a rule allows
    /// runs as the rule says.
    fn fails_unasked(&self, command: &ShellCommand) -> bool {
        let script = &command.script;
        script.commands.iter().filter(|simple| shell::classify(simple).fails_offline).any(
            |simple| {
                let default = (Verdict::Ask, Reason::Mode);
                let (verdict, _) =
                    self.apply_rules(|rule| rule.matches_command(simple), None, None, default);
                verdict != Verdict::Allow || script.ambiguity.is_some()
            },
        )
    }

    /// A rule against every command also applies to lines that are not understood.
    fn every_command_rule(&mut self) {
        let every_command_rules =
            self.policy.rules.iter().filter(|it| it.pattern.is_every_command());
        if let Some(rule) = every_command_rules
            .filter(|it| it.action != RuleAction::Allow)
            .min_by_key(|it| it.action)
        {
            let verdict =
                if rule.action == RuleAction::Deny { Verdict::Deny } else { Verdict::Ask };
            self.add(None, (verdict, Reason::Rule(rule.clone())));
        }
    }

    /// A line that is not understood is asked about, unless this very line was allowed.
    fn ambiguous_line(&mut self, ambiguity: String, is_granted: bool) {
        let ruling = match self.default_for_command() {
            (Verdict::Ask, _) if is_granted => {
                (Verdict::Allow, Reason::Granted("exactly this".into()))
            }
            (Verdict::Ask, Reason::Mode) => (Verdict::Ask, Reason::Ambiguous(ambiguity)),
            (Verdict::Deny, _) => (Verdict::Deny, Reason::Ambiguous(ambiguity)),
            default => default,
        };
        self.add(None, ruling);
    }

    fn simple_command(
        &self,
        simple: &SimpleCommand,
        class: &Classification,
        command: &ShellCommand,
        is_granted: bool,
    ) -> Ruling {
        let default = self.default_for_command();
        // The settings of the repository, or a toolchain file, may make it run another program.
        let is_unasked = class.is_read_only || command.edits.is_some();
        let is_chosen =
            class.is_git || class.uses_rustup || is_unasked && class.may_be_version_managed;
        let uncertain = command.uncertainty.as_ref().filter(|_| is_chosen);
        // In the sandbox these programs may do no more than those that the project's scripts run in this mode.
        let is_confined = self.command_mode == Mode::Auto
            && default.0 == Verdict::Allow
            // The user has to know of further access that they get.
            && command.extra_access.is_none()
            && !class.fails_offline
            && uncertain.is_some_and(|it| it.only_runs_programs);
        let always_ask = uncertain
            .filter(|_| self.command_mode != Mode::Full && !is_granted && !is_confined)
            .map(|it| Reason::Ambiguous(it.reason.clone()))
            .or_else(|| self.unbounded_read(class).filter(|_| !is_granted));
        let default = match class.danger {
            // What a reader may run is not limited to reading.
            _ if class.is_read_only && !is_confined => (Verdict::Allow, Reason::ReadOnly),
            Some(danger) if self.command_mode == Mode::Auto => {
                (Verdict::Ask, Reason::Destructive(danger))
            }
            _ if self.only_edits(command) => (Verdict::Allow, Reason::Mode),
            _ => default,
        };
        let default = match default {
            (Verdict::Ask, _) if is_granted => {
                (Verdict::Allow, Reason::Granted("exactly this".into()))
            }
            default => default,
        };
        self.apply_rules(|it| it.matches_command(simple), None, always_ask, default)
    }

    /// Returns true if a command does nothing that the file tools may not do in this mode without a question, and if it
    /// can do nothing else.
    fn only_edits(&self, command: &ShellCommand) -> bool {
        let policy = self.policy;
        let is_free = |target: &ResolvedPath| {
            matches!(target.scope, PathScope::Workspace | PathScope::PrivateTmp { .. })
                && !is_secret_path(&target.path)
                && policy.protected.reason(&target.path).is_none()
                && !policy.rules.iter().any(|rule| {
                    rule.action != RuleAction::Allow
                        && rule.matches_path(&target.path, true, &policy.bases)
                })
        };
        self.mode == Mode::AutoEdit
            && policy.can_confine
            && !(policy.protected_exposed)()
            && command.extra_access.is_none()
            && command.edits.as_ref().is_some_and(|edits| edits.iter().all(is_free))
    }

    /// A command that could ruin the system is asked about, whatever was allowed.
    fn possible_ruin(&self, what: &'static str, simple: &SimpleCommand) -> Ruling {
        let reason = Some(Reason::Destructive(what));
        let default = self.default_for_command();
        self.apply_rules(|it| it.matches_command(simple), None, reason, default)
    }

    /// Without a sandbox, a command may read any file that its words do not name.
    fn unbounded_read(&self, class: &Classification) -> Option<Reason> {
        let is_bounded = self.policy.can_confine || self.command_mode == Mode::Full;
        (class.reads_unknown_files && !is_bounded).then_some(Reason::OutsideWorkspace)
    }
}

/// Returns true if a command of the line fails without the network.
fn fails_offline(command: &ShellCommand) -> bool {
    command.script.commands.iter().any(|simple| shell::classify(simple).fails_offline)
}

/// Why a line may do more than the list of its commands says.
fn ambiguity(script: &Script) -> Option<String> {
    match &script.ambiguity {
        Some(ambiguity) => Some(ambiguity.clone()),
        None if script.commands.is_empty() => Some("it contains no command".to_owned()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::lasting_grant::{LastingGrants, find_lasting_grants};
    use crate::permission::{PathBases, ProtectedPaths, Scope};
    use turnwright_types::dialect::ShellDialect;
    use turnwright_types::effect::Uncertainty;

    fn effect(text: &str) -> Effect {
        let (verb, object) = text.split_once(' ').unwrap_or((text, ""));
        let place =
            if object.starts_with("/ws/") { PathScope::Workspace } else { PathScope::Outside };
        let target = ResolvedPath { path: object.into(), scope: place };
        match verb {
            "read" => Effect::Read(target),
            "write" => Effect::Write(target),
            "delete" => Effect::Delete(target),
            "exec" => Effect::Exec(Box::new(shell::command(object, "/ws", ShellDialect::Bash))),
            "cmd" => Effect::Exec(Box::new(shell::command(object, "/ws", ShellDialect::Cmd))),
            "fetch" => Effect::Fetch { host: object.to_owned() },
            "input" => Effect::Input { job: object.to_owned(), is_unsandboxed: object == "open" },
            "signal" => Effect::Signal { job: object.to_owned() },
            // `server/tool`, then `?` for one that claims to be read-only and `!` for a changed
            // one.
            "call" => {
                let (server, tool) = object.trim_end_matches(['?', '!']).split_once('/').unwrap();
                Effect::Remote(Box::new(RemoteCall {
                    server: server.to_owned(),
                    tool: tool.to_owned(),
                    server_digest: String::new(),
                    tool_digest: String::new(),
                    claims_read_only: object.contains('?'),
                    change_since_approval: object.contains('!').then(|| "new words".to_owned()),
                }))
            }
            _ => Effect::SessionState,
        }
    }

    fn effects(text: &str) -> Vec<Effect> {
        text.split("; ").filter(|it| !it.is_empty()).map(effect).collect()
    }

    #[track_caller]
    fn check(mode: Mode, allowed: &str, rejected: &str, tried: &str, expected: &str) {
        let mut grants = Grants::default();
        for effect in effects(allowed) {
            grants.allow_exactly(effect);
        }
        grants.reject(&effects(rejected));
        let protected = ProtectedPaths::new(vec!["/ws".into()], Vec::new());
        let policy = PolicyRules { can_confine: true, protected, ..PolicyRules::default() };
        let got = decide(&policy, mode, &grants, &effects(tried)).verdict();
        let got = format!("{got:?}").to_lowercase();
        assert_eq!(got, expected, "{mode:?}, allowed {allowed}, rejected {rejected}: {tried}");
    }

    #[test]
    fn each_mode_does_what_its_name_says() {
        let table = [
            // what, then plan, ask, auto-edit, auto, full
            ("read /ws/a", "allow allow allow allow allow"),
            ("read /etc/a", "ask ask ask ask allow"),
            ("read /ws/.env", "ask ask ask ask ask"),
            ("write /ws/a", "deny ask allow allow allow"),
            ("write /etc/a", "deny ask ask ask allow"),
            ("delete /ws/a", "deny ask ask allow allow"),
            ("exec make all", "deny ask ask allow allow"),
            ("exec git reset --hard", "deny ask ask ask allow"),
            ("exec rm -rf .", "deny ask ask ask allow"),
            ("exec rm -rf /", "deny deny deny deny deny"),
            ("input p1", "deny ask ask allow allow"),
            ("input open", "deny ask ask ask allow"),
            ("signal p1", "deny allow allow allow allow"),
            // Even full mode asks about these, and a yes is for once.
            ("write /ws/.git/hooks/pre-commit", "deny ask ask ask ask"),
            ("write /ws/.vscode/tasks.json", "deny ask ask ask ask"),
            ("write /home/u/.bashrc", "deny ask ask ask ask"),
            ("delete /ws/.git", "deny ask ask ask ask"),
            ("delete /ws", "deny ask ask ask ask"),
            ("exec make all > x; write /ws/.envrc", "deny ask ask ask ask"),
            ("fetch docs.rs", "ask ask ask ask allow"),
            ("call notes/add", "deny ask ask ask allow"),
            ("call notes/add!", "deny ask ask ask allow"),
            // The claim of a server to be read-only is not believed.
            ("call notes/get?", "ask ask ask ask allow"),
            ("call notes/get?!", "ask ask ask ask allow"),
            ("read /ws/a; call notes/add", "deny ask ask ask allow"),
            ("session", "allow allow allow allow allow"),
        ];
        let modes = [Mode::Plan, Mode::Ask, Mode::AutoEdit, Mode::Auto, Mode::Full];
        for (tried, expected) in table {
            for (mode, expected) in modes.into_iter().zip(expected.split(' ')) {
                check(mode, "", "", tried, expected);
            }
        }
    }

    /// Without a sandbox, as on Windows.
    #[test]
    fn a_line_for_cmd_is_always_asked_about_unless_the_mode_asks_nothing() {
        let rule = |action, text: &str| Rule::parse(text, action, Scope::User).unwrap();
        let policy = PolicyRules {
            rules: vec![
                rule(RuleAction::Allow, "exec(echo)"),
                rule(RuleAction::Allow, "exec(dir)"),
                rule(RuleAction::Deny, "exec(git push)"),
                rule(RuleAction::Deny, "exec(del)"),
            ],
            ..PolicyRules::default()
        };
        let table = [
            // line, then plan, ask, auto-edit, auto, full
            ("dir", "deny ask ask ask allow"),
            ("echo 'x & copy a.txt stolen.txt & rem '", "deny ask ask ask allow"),
            ("git status", "deny ask ask ask allow"),
            ("type C:\\a.txt", "deny ask ask ask allow"),
            ("echo x & git push", "deny deny deny deny deny"),
            ("\"C:\\git\\git.EXE\" push", "deny deny deny deny deny"),
            ("echo 'x' & DEL/q a", "deny deny deny deny deny"),
        ];
        let modes = [Mode::Plan, Mode::Ask, Mode::AutoEdit, Mode::Auto, Mode::Full];
        for (line, expected) in table {
            let effects = effects(&format!("cmd {line}"));
            for (mode, expected) in modes.into_iter().zip(expected.split(' ')) {
                let got = decide(&policy, mode, &Grants::default(), &effects).verdict();
                assert_eq!(format!("{got:?}").to_lowercase(), expected, "{mode:?}: {line}");
            }
        }
        // No rule and no earlier answer about its words lets a line through, and none is offered.
        let allow = |it: &str| Rule::parse(it, RuleAction::Allow, Scope::User).unwrap();
        let allowed =
            ["exec", "exec(dir)", "exec(git)", "exec(=git status)", "exec(cmd)", "exec(echo)"];
        let allowed = allowed.map(allow);
        let mut grants = Grants::default();
        for rule in &allowed {
            grants.allow(rule.clone());
        }
        let policy = PolicyRules {
            rules: allowed.to_vec(),
            can_confine: true,
            dialect: ShellDialect::Cmd,
            ..policy
        };
        for line in ["dir", "git status", "echo a", "cmd /c dir", "echo a > b.txt", ""] {
            let effects = effects(&format!("cmd {line}"));
            for mode in [Mode::Ask, Mode::AutoEdit] {
                let decision = decide(&policy, mode, &grants, &effects);
                assert_eq!(decision.verdict(), Verdict::Ask, "{mode:?}: {line}");
                let lasting = find_lasting_grants(&policy, mode, &grants, &effects, &decision);
                assert_eq!(lasting, LastingGrants::default(), "{mode:?}: {line}");
            }
        }
        // The user may allow exactly this line.
        let mut grants = Grants::default();
        let effects = effects("cmd echo a & echo b");
        grants.allow_exactly(effects[0].clone());
        assert_eq!(decide(&policy, Mode::Ask, &grants, &effects).verdict(), Verdict::Allow);
    }

    #[test]
    fn a_program_that_the_project_may_provide_is_asked_about() {
        for (line, expected) in [
            ("git status", Verdict::Ask),
            ("cargo --version", Verdict::Ask),
            ("node --version", Verdict::Ask),
            ("ls", Verdict::Allow),
        ] {
            let mut command = shell::command(line, "/ws", ShellDialect::Bash);
            command.uncertainty = Some("the project may provide it".to_owned().into());
            let effects = [Effect::Exec(Box::new(command))];
            let policy = PolicyRules::default();
            let decision = decide(&policy, Mode::Ask, &Grants::default(), &effects);
            assert_eq!(decision.verdict(), expected, "{line}");
        }
    }

    #[test]
    fn what_settings_of_git_start_is_confined_in_auto_mode_and_asked_about_elsewhere() {
        for (line, mode, only_runs_programs, can_confine, expected) in [
            ("git status", Mode::Auto, true, true, (Verdict::Allow, false)),
            ("git commit -m x", Mode::Auto, true, true, (Verdict::Allow, false)),
            ("git reset --hard", Mode::Auto, true, true, (Verdict::Ask, false)),
            ("git status", Mode::Auto, false, true, (Verdict::Ask, false)),
            ("git status", Mode::Auto, true, false, (Verdict::Ask, false)),
            ("git status", Mode::AutoEdit, true, true, (Verdict::Ask, false)),
            ("git status", Mode::Plan, true, true, (Verdict::Ask, false)),
            ("git status; cat a", Mode::Auto, true, true, (Verdict::Allow, false)),
            ("cat a", Mode::Auto, true, true, (Verdict::Allow, true)),
        ] {
            let mut command = shell::command(line, "/ws", ShellDialect::Bash);
            let reason = "the settings start programs".to_owned();
            command.uncertainty = Some(Uncertainty { reason, only_runs_programs });
            let mut effects = [Effect::Exec(Box::new(command.clone()))];
            let policy = PolicyRules { can_confine, ..PolicyRules::default() };
            let decision = decide(&policy, mode, &Grants::default(), &effects);
            let found = (decision.verdict(), decision.runs_only_readers(&effects));
            assert_eq!(found, expected, "{line}, {mode:?}");
            command.extra_access = ExtraAccess::unsandboxed();
            effects = [Effect::Exec(Box::new(command))];
            let decision = decide(&policy, mode, &Grants::default(), &effects);
            assert_ne!(decision.verdict(), Verdict::Allow, "{line}, {mode:?}");
        }
    }

    #[test]
    fn a_remembered_yes_spares_exactly_that_question() {
        check(Mode::Ask, "exec make", "", "exec make", "allow");
        check(Mode::Ask, "exec make", "", "exec make all", "ask");
        check(Mode::Ask, "write /ws/a", "", "write /ws/a", "allow");
        check(Mode::Ask, "write /ws/a", "", "write /ws/b", "ask");
        check(Mode::Ask, "read /etc/a", "", "write /etc/a", "ask");
    }

    #[test]
    fn no_remembered_yes_spares_the_question_about_a_protected_place() {
        for mode in [Mode::Ask, Mode::AutoEdit, Mode::Auto, Mode::Full] {
            check(mode, "write /ws/.git/config", "", "write /ws/.git/config", "ask");
        }
    }

    #[test]
    fn a_remembered_yes_does_not_lift_plan_mode_and_a_no_beats_it() {
        check(Mode::Plan, "exec make", "", "exec make", "deny");
        check(Mode::Ask, "exec make", "exec make", "exec make", "deny");
    }

    #[test]
    fn the_strictest_effect_decides() {
        check(Mode::Ask, "", "", "read /ws/a; exec make", "ask");
        check(Mode::Plan, "", "", "read /etc/a; write /ws/a", "deny");
    }

    #[test]
    fn the_strictest_rule_counts_in_every_mode_and_no_permission_lifts_plan_mode() {
        let table = [
            // rules, mode, effects, verdict
            ("allow edit(/a)", Mode::Ask, "write /ws/a", "allow"),
            ("allow edit(/a)", Mode::Plan, "write /ws/a", "deny"),
            ("allow edit; ask edit(a)", Mode::Full, "write /ws/a", "ask"),
            ("allow edit; ask edit(a); deny edit(/A)", Mode::Full, "write /ws/a", "deny"),
            ("allow read(//etc)", Mode::Ask, "read /etc/a", "allow"),
            ("allow read(//etc)", Mode::Ask, "write /etc/a", "ask"),
            ("allow read(//home/me)", Mode::Ask, "read /home/me/a", "allow"),
            ("allow read(//home/me)", Mode::Ask, "read /home/me/.ssh/id_rsa", "ask"),
            ("allow read(//home/me/**)", Mode::Ask, "read /home/me/.ssh/config", "ask"),
            ("allow read(//home/me/.ssh)", Mode::Ask, "read /home/me/.ssh/id_rsa", "allow"),
            ("allow read(//home/*/.ssh/*)", Mode::Ask, "read /home/me/.ssh/id_rsa", "allow"),
            ("allow read(//home/me/.ssh/config)", Mode::Ask, "read /home/me/.ssh/config", "allow"),
            ("allow read(//home/me/.ssh/config)", Mode::Ask, "read /home/me/.ssh/id_rsa", "ask"),
            ("allow read", Mode::Ask, "read /ws/.env", "ask"),
            ("allow read(/)", Mode::Full, "read /ws/.env", "ask"),
            ("allow read(*)", Mode::Ask, "read /ws/.env", "ask"),
            ("allow read(certs)", Mode::Ask, "read /ws/certs/a.pem", "ask"),
            ("allow read(.env)", Mode::Ask, "read /ws/app/.env", "allow"),
            ("deny read(x)", Mode::Full, "write /ws/x", "deny"),
            ("ask exec", Mode::Full, "exec anything", "ask"),
            ("deny exec", Mode::Full, "exec anything", "deny"),
            ("deny exec", Mode::Full, "input p1", "deny"),
            ("allow exec", Mode::Ask, "exec what $is not understood", "ask"),
            ("allow exec", Mode::Ask, "input p1", "ask"),
            ("allow fetch(domain:docs.rs)", Mode::Ask, "fetch docs.rs", "allow"),
            ("allow fetch; deny fetch(domain:docs.rs)", Mode::Full, "fetch docs.rs", "deny"),
            ("allow mcp(notes/get)", Mode::Ask, "call notes/get", "allow"),
            ("allow mcp(notes/get)", Mode::Ask, "call notes/get!", "ask"),
            ("allow mcp(notes/get)", Mode::Ask, "call notes/GET", "ask"),
            ("allow mcp(notes/get)", Mode::Ask, "call notes/add", "ask"),
            ("allow mcp(notes/get)", Mode::Plan, "call notes/get", "deny"),
            ("allow mcp(notes/get)", Mode::Plan, "call notes/get?", "allow"),
            ("allow mcp(notes/get)", Mode::Plan, "call notes/get?!", "ask"),
            ("allow mcp(notes)", Mode::Auto, "call notes/add", "allow"),
            ("allow mcp", Mode::AutoEdit, "call any/thing", "allow"),
            ("allow mcp(notes/g*)", Mode::Ask, "call notes/get", "allow"),
            ("allow mcp; ask mcp(notes)", Mode::Full, "call notes/add", "ask"),
            ("allow mcp; deny mcp(*/ADD)", Mode::Full, "call notes/add", "deny"),
            ("allow mcp; deny mcp(notes)", Mode::Full, "call Notes/add!", "deny"),
            ("allow exec; allow fetch; allow edit", Mode::Ask, "call notes/add", "ask"),
        ];
        for (rules, mode, tried, expected) in table {
            let rule = |it: &str| {
                let (action, text) = it.split_once(' ').unwrap();
                let tiers = [
                    ("deny", RuleAction::Deny),
                    ("ask", RuleAction::Ask),
                    ("allow", RuleAction::Allow),
                ];
                let (_, action) = tiers.into_iter().find(|it| it.0 == action).unwrap();
                Rule::parse(text, action, Scope::User).unwrap()
            };
            let policy = PolicyRules {
                rules: rules.split("; ").map(rule).collect(),
                bases: PathBases { roots: vec!["/ws".into()], home: None },
                can_confine: true,
                ..PolicyRules::default()
            };
            let got = decide(&policy, mode, &Grants::default(), &effects(tried)).verdict();
            assert_eq!(format!("{got:?}").to_lowercase(), expected, "{rules}, {mode:?}: {tried}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_to_be_judged_does_not_run_in_any_mode() {
        let line = format!("true {}", "a ".repeat(shell::MAX_LINE_BYTES / 2));
        for mode in Mode::ALL {
            check(mode, &format!("exec {line}"), "", &format!("exec {line}"), "deny");
        }
    }

    #[test]
    fn an_escalation_to_a_protected_place_is_asked_about_with_that_word() {
        let protected = ProtectedPaths::new(vec!["/ws".into()], Vec::new());
        let policy = PolicyRules { can_confine: true, protected, ..PolicyRules::default() };
        for (path, expected) in [("/ws/.git/hooks", true), ("/ws", true), ("/ws/a", false)] {
            let mut command = shell::command("make", "/ws", ShellDialect::Bash);
            command.extra_access =
                ExtraAccess::write(ResolvedPath { path: path.into(), scope: PathScope::Workspace });
            let effects = [Effect::Exec(Box::new(command))];
            let decision = decide(&policy, Mode::Auto, &Grants::default(), &effects);
            assert_eq!(decision.verdict(), Verdict::Ask, "{path}");
            let is_protected = |it: &Finding| matches!(it.reason, Reason::ProtectedPath(_));
            assert_eq!(decision.findings.iter().any(is_protected), expected, "{path}");
        }
    }

    #[test]
    fn a_formatter_that_the_project_may_provide_and_a_file_that_a_rule_names_ask_in_auto_edit() {
        let rule = Rule::parse("edit(/asked/**)", RuleAction::Ask, Scope::User).unwrap();
        let policy = PolicyRules {
            rules: vec![rule],
            bases: PathBases { roots: vec!["/ws".into()], home: None },
            can_confine: true,
            ..PolicyRules::default()
        };
        for (path, uncertainty, expected) in [
            ("/ws/a.go", None, Verdict::Allow),
            ("/ws/asked/a.go", None, Verdict::Ask),
            ("/ws/a.go", Some("a version manager may run the project's"), Verdict::Ask),
        ] {
            let mut command = shell::command("gofmt -w a.go", "/ws", ShellDialect::Bash);
            command.uncertainty = uncertainty.map(|it| it.to_owned().into());
            let edited = ResolvedPath { path: path.into(), scope: PathScope::Workspace };
            command.edits = Some(vec![edited]);
            let effects = [Effect::Exec(Box::new(command))];
            let decision = decide(&policy, Mode::AutoEdit, &Grants::default(), &effects);
            assert_eq!(decision.verdict(), expected, "{path}, {uncertainty:?}");
        }
    }

    #[test]
    fn a_read_that_is_fine_is_no_reason_and_does_not_make_a_reader_a_writer() {
        let policy = PolicyRules { can_confine: true, ..PolicyRules::default() };
        let mut command = shell::command("cat a", "/ws", ShellDialect::Bash);
        command.reads.push(ResolvedPath { path: "/ws/a".into(), scope: PathScope::Workspace });
        let effects = [Effect::Exec(Box::new(command))];
        let decision = decide(&policy, Mode::Ask, &Grants::default(), &effects);
        assert_eq!(decision.findings.len(), 1, "{decision:?}");
        assert!(decision.is_read_only());
    }

    #[test]
    fn without_a_sandbox_that_holds_no_command_runs_because_of_it() {
        let exposed =
            PolicyRules { can_confine: true, protected_exposed: || true, ..PolicyRules::default() };
        for policy in [PolicyRules::default(), exposed] {
            let decision = decide(&policy, Mode::Auto, &Grants::default(), &effects("exec make"));
            assert_eq!(decision.verdict(), Verdict::Ask);
        }
    }
}
