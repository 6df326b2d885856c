//! The decision: a pure function of the rules, the mode, the session's grants and the effects of a
//! call. Its tests are the specification.
//!
//! In order of precedence: catastrophic commands are denied; then `deny` rules; `ask` rules; what
//! is always asked about; the user's answers in this session; `allow` rules; the mode. The order of
//! rules never matters.

use std::sync::Arc;

use super::describe::access_of_command;
use super::mode::Mode;
use super::policy_rules::PolicyRules;
use super::rule::{Rule, RuleAction};
use super::{Decision, Finding, Grants, Reason, Verdict};
use crate::shell::{self, Classification, Ruin, Script, SimpleCommand};
use turnwright_types::effect::{
    Effect, ExtraAccess, PathScope, RemoteCall, ResolvedPath, ShellCommand, is_secret_path,
};

/// Decides about the effects of a call. Each effect, and each simple command of a command line,
/// gets its own finding. A command that may run in several folders gets one for each different ruling.
pub fn decide(policy: &PolicyRules, mode: Mode, grants: &Grants, effects: &[Effect]) -> Decision {
    let mut decider = Decider {
        policy,
        mode,
        command_mode: command_mode(policy, mode, grants),
        grants,
        command: effects.iter().find_map(Effect::command),
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
    /// The command that the call runs. The call's other effects are then those of the shell.
    command: Option<&'a ShellCommand>,
    findings: Vec<Finding>,
    /// The index of the effect that is being decided about.
    effect_index: usize,
}

type Ruling = (Verdict, Reason);

/// Of secrets, `/undo` keeps no copy.
const REPLACES_SECRET: &str = "replaces a file that may hold keys, which /undo cannot bring back";
/// The answers without a pattern that hold for the session.
const EXACTLY_THIS: &str = "exactly this";
const ALL_COMMANDS: &str = "all commands in the sandbox";

impl Decider<'_> {
    fn add(&mut self, command_index: Option<usize>, (verdict, reason): Ruling) {
        let effect_index = self.effect_index;
        self.findings.push(Finding { effect_index, command_index, path: None, verdict, reason });
    }

    /// Returns true if the last finding is the same ruling on this command in another folder.
    fn repeats_last(&self, script: &Script, simple: &SimpleCommand, ruling: &Ruling) -> bool {
        let Some(last) = self.findings.last().filter(|last| {
            last.effect_index == self.effect_index
                && (last.verdict, &last.reason) == (ruling.0, &ruling.1)
        }) else {
            return false;
        };
        let before = last.command_index.and_then(|index| script.commands.get(index));
        before.is_some_and(|before| {
            let moved = SimpleCommand { folder: simple.folder.clone(), ..before.clone() };
            before.folder != simple.folder && moved == *simple
        })
    }

    /// Adds a finding about a file of a command.
    fn add_file(&mut self, target: &ResolvedPath, (verdict, reason): Ruling) {
        let effect_index = self.effect_index;
        let path = Some(target.path.clone());
        self.findings.push(Finding { effect_index, command_index: None, path, verdict, reason });
    }

    fn decide_effect(&mut self, effect: &Effect) {
        if self.grants.is_rejected(effect) {
            return self.add(None, (Verdict::Deny, Reason::Rejected));
        }
        let ruling = match effect {
            Effect::SessionState => (Verdict::Allow, Reason::SessionOnly),
            Effect::Read(target) => self.read(target, effect),
            Effect::Write(target) | Effect::Delete(target) => self.change(target, effect),
            Effect::Exec(command) => return self.command(command, effect),
            Effect::Input { is_unsandboxed, has_extra_access, .. } => {
                self.input(effect, *is_unsandboxed, *has_extra_access)
            }
            Effect::Signal { .. } if self.mode == Mode::Plan => (Verdict::Deny, Reason::Mode),
            Effect::Signal { .. } => (Verdict::Allow, Reason::SessionOnly),
            Effect::Fetch { host } => {
                let is_for_command = self.command.is_some();
                self.request(
                    |rule| rule.matches_host(host) && !(is_for_command && rule.allows_any_host()),
                    effect,
                )
            }
            Effect::Search { backend } => self.request(|rule| rule.matches_search(backend), effect),
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
        let matching = self.policy.rules.iter().filter(|rule| matches(rule));
        let rule = matching.min_by_key(|rule| rule.action);
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
                let granted = self.grants.rules().iter().find(|rule| matches(rule));
                if let Some(rule) = granted {
                    allowed_for_session(&rule.pattern.to_string())
                } else if exact.is_some_and(|effect| self.grants.allows_exactly(effect)) {
                    allowed_for_session(EXACTLY_THIS)
                } else if let Some(rule) = rule {
                    (Verdict::Allow, Reason::Rule(rule.clone()))
                } else {
                    default
                }
            }
        }
    }

    /// A request tells somebody something, so every mode but `full` asks.
    fn request(&self, matches: impl Fn(&Rule) -> bool, effect: &Effect) -> Ruling {
        let verdict = if self.mode == Mode::Full { Verdict::Allow } else { Verdict::Ask };
        self.apply_rules(matches, Some(effect), None, (verdict, Reason::Mode))
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
        self.apply_rules(
            |rule| rule.matches_remote(&call.server, &call.tool),
            Some(effect),
            always_ask,
            (verdict, Reason::Mode),
        )
    }

    fn input(&self, effect: &Effect, is_unsandboxed: bool, has_extra_access: bool) -> Ruling {
        // The answer for all commands is about what they may do in the sandbox, and about nothing beyond.
        let mode = if has_extra_access { self.mode } else { self.command_mode };
        let default = match self.default_in(mode) {
            // No sandbox limits what the input may do.
            (Verdict::Allow, _) if is_unsandboxed && self.mode != Mode::Full => {
                (Verdict::Ask, Reason::Escalation)
            }
            default => default,
        };
        self.apply_rules(
            |rule| rule.action != RuleAction::Allow && rule.pattern.is_every_command(),
            Some(effect),
            None,
            default,
        )
    }

    fn read(&self, target: &ResolvedPath, effect: &Effect) -> Ruling {
        let default = if is_secret_path(&target.path) {
            (Verdict::Ask, Reason::SecretPath)
        } else if self.mode == Mode::Full {
            (Verdict::Allow, Reason::Mode)
        } else if target.scope == PathScope::Outside {
            (Verdict::Ask, Reason::OutsideWorkspace)
        } else {
            (Verdict::Allow, Reason::ReadOnly)
        };
        let bases = &self.policy.bases;
        // A rule that allows reading a whole home was not written with the keys in it in mind.
        let covers_secret = |rule: &Rule| {
            rule.action != RuleAction::Allow
                || default.1 != Reason::SecretPath
                || rule.names_secret(&target.path, bases)
        };
        self.apply_rules(
            |rule| rule.matches_target(target, false, bases) && covers_secret(rule),
            Some(effect),
            None,
            default.clone(),
        )
    }

    fn change(&self, target: &ResolvedPath, effect: &Effect) -> Ruling {
        let is_inside = matches!(target.scope, PathScope::Workspace | PathScope::PrivateTmp { .. });
        let is_redirect = self.command.is_some() && matches!(effect, Effect::Write(_));
        let default = match self.mode {
            Mode::Plan => (Verdict::Deny, Reason::Mode),
            Mode::Full => (Verdict::Allow, Reason::Mode),
            _ if !is_inside => (Verdict::Ask, Reason::OutsideWorkspace),
            // `/undo` keeps no copy of secrets that a command overwrites.
            _ if self.command.is_some_and(|command| command.overwrites.contains(target)) => {
                (Verdict::Ask, Reason::SecretPath)
            }
            Mode::Auto => (Verdict::Allow, Reason::Mode),
            // A deletion cannot be undone by editing, so auto-edit mode asks.
            Mode::AutoEdit if matches!(effect, Effect::Write(_)) => (Verdict::Allow, Reason::Mode),
            // The command could write there by itself.
            _ if is_redirect && self.command_mode == Mode::Auto => {
                allowed_for_session(ALL_COMMANDS)
            }
            Mode::AutoEdit | Mode::Ask => (Verdict::Ask, Reason::Mode),
        };
        let always_ask = self.policy.protected.reason(&target.path).map(Reason::ProtectedPath);
        self.apply_rules(
            |rule| rule.matches_target(target, true, &self.policy.bases),
            Some(effect),
            always_ask,
            default,
        )
    }

    /// The ruling of a mode on a command that nothing else is known about.
    fn default_in(&self, mode: Mode) -> Ruling {
        match mode {
            Mode::Plan => (Verdict::Deny, Reason::Mode),
            Mode::Ask | Mode::AutoEdit => (Verdict::Ask, Reason::Mode),
            Mode::Auto if !self.policy.can_confine || (self.policy.protected_exposed)() => {
                (Verdict::Ask, Reason::NoSandbox)
            }
            Mode::Auto if self.mode != Mode::Auto => allowed_for_session(ALL_COMMANDS),
            Mode::Auto | Mode::Full => (Verdict::Allow, Reason::Mode),
        }
    }

    fn command(&mut self, command: &ShellCommand, effect: &Effect) {
        if command.line.len() > shell::MAX_LINE_BYTES || command.script.is_cut {
            // A denied command could be anywhere in it, and searching so long a line would block everything else.
            return self.add(None, (Verdict::Deny, Reason::TooLong));
        }
        let script = Arc::clone(&command.script);
        let is_granted = self.grants.allows_exactly(effect);
        self.extra_access(command);
        self.network_need(command);
        self.signing_need(command);
        let covers_access = is_granted && !self.has_access_of_other_answers(command);
        // A rule against every command also applies to lines that are not understood.
        if let Some(ruling) = self.restriction(|rule| rule.pattern.is_every_command()) {
            self.add(None, ruling);
        }
        if let Some(ambiguity) = ambiguity(&script) {
            self.ambiguous_line(ambiguity, is_granted);
        }
        for (index, simple) in script.commands.iter().enumerate() {
            let home = self.policy.bases.home.as_deref();
            let ruling = match shell::ruin(&script, index, &command.workdir, home) {
                Some(Ruin::Certain(what)) => (Verdict::Deny, Reason::Catastrophic(what)),
                Some(Ruin::Possible(what)) => self.possible_ruin(what, simple),
                None => self.simple_command(simple, command, is_granted, covers_access),
            };
            // In a line that is not understood, the commands that were found can only make it worse.
            let is_worse = script.ambiguity.is_none() || ruling.0 != Verdict::Allow;
            if is_worse && !self.repeats_last(&script, simple, &ruling) {
                self.add(Some(index), ruling);
            }
        }
        self.hidden_commands(&script);
        let multiplies = shell::is_fork_bomb(&command.line)
            .then_some("starts itself again and again until the system stops");
        let is_unasked = self.command_mode == Mode::Auto && !is_granted;
        let replaces = (is_unasked && command.replaces_secret).then_some(REPLACES_SECRET);
        if let Some(what) = shell::find_ruinous_text(&script).or(multiplies).or(replaces) {
            let verdict =
                if self.command_mode == Mode::Plan { Verdict::Deny } else { Verdict::Ask };
            self.add(None, (verdict, Reason::Destructive(what)));
        }
        for target in &command.reads {
            let exact = Effect::Read(target.clone());
            let ruling = match self.read(target, &exact) {
                (Verdict::Ask, reason) if is_granted && !matches!(reason, Reason::Rule(_)) => {
                    continue;
                }
                // In auto mode a command may read whatever the sandbox lets it read.
                (Verdict::Ask, Reason::OutsideWorkspace) if self.command_mode == Mode::Auto => {
                    continue;
                }
                // An allowed read needs no finding: it must not hide that the command does more than read.
                (Verdict::Allow, _) => continue,
                ruling => ruling,
            };
            self.add_file(target, ruling);
        }
        self.restricted_changes(&command.changes);
        self.denied_names(command, &script);
    }

    /// Rules that deny or ask also hold for what runners and aliases start, and for what a shell reads from its input.
    fn hidden_commands(&mut self, script: &Script) {
        let Some(hidden) = shell::hidden_commands(script) else {
            return self.add(None, (Verdict::Deny, Reason::TooLong));
        };
        for command in hidden {
            if let Some(ruling) = self.restriction(|rule| rule.matches_hidden(&command)) {
                self.add(None, ruling);
            }
        }
    }

    /// The sandbox hides files that may not be read, and its proxy refuses hosts. Without them, a command may not name
    /// them either.
    fn denied_names(&mut self, command: &ShellCommand, script: &Script) {
        let access = &command.extra_access;
        let has_sandbox =
            self.policy.can_confine && self.command_mode != Mode::Full && !access.unsandboxed;
        let has_proxy = has_sandbox && !self.policy.has_network && !access.network;
        let is_denied = self.findings.iter().any(|finding| finding.verdict == Verdict::Deny);
        let file = (!has_sandbox && !is_denied).then(|| self.denied_file(command, script));
        let host = (!has_proxy && !is_denied).then(|| self.denied_host(script));
        if let Some(ruling) = file.flatten().or(host.flatten()) {
            self.add(None, ruling);
        }
    }

    fn denied_file(&self, command: &ShellCommand, script: &Script) -> Option<Ruling> {
        let bases = &self.policy.bases;
        let named = shell::all_named_paths(script, &command.workdir, bases.home.as_deref());
        named.iter().find_map(|path| self.restriction(|rule| rule.denies_reading(path, bases)))
    }

    fn denied_host(&self, script: &Script) -> Option<Ruling> {
        let named = shell::all_named_hosts(script);
        named.iter().find_map(|host| self.restriction(|rule| rule.denies_host(host)))
    }

    /// Access that the model has asked for beyond the sandbox.
    fn extra_access(&mut self, command: &ShellCommand) {
        let access = &command.extra_access;
        if access.is_none() || self.command_mode == Mode::Full {
            return;
        }
        let verdict = if self.command_mode == Mode::Plan { Verdict::Deny } else { Verdict::Ask };
        if verdict == Verdict::Ask && self.grants.gives_access(command, access) {
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
            if let Some(ruling) =
                self.restriction(|rule| rule.matches_path(&target.path, true, bases))
            {
                self.add_file(target, ruling);
            }
        }
    }

    /// A line that fails without the network gets it if the user has allowed that for the session, and is asked about
    /// otherwise: it gets the network with a yes. With a proxy it is asked about when it wants a host.
    fn network_need(&mut self, command: &ShellCommand) {
        let access = &command.extra_access;
        let has_network = self.policy.has_network || access.network || access.unsandboxed;
        if has_network || !self.confines_commands() || !shell::fails_offline(&command.script) {
            return;
        }
        if self.grants.gives_access(command, &ExtraAccess::network()) {
            self.add(None, (Verdict::Allow, Reason::Network));
        } else if self.command_mode == Mode::Auto
            && !self.policy.has_proxy(command)
            && self.fails_unasked(command)
        {
            self.add(None, (Verdict::Ask, Reason::Network));
        }
    }

    /// git may sign if the user has allowed that for the session: its settings say whether it does.
    fn signing_need(&mut self, command: &ShellCommand) {
        let access = &command.extra_access;
        if access.sign
            || access.unsandboxed
            || !self.confines_commands()
            || !self.grants.gives_access(command, &ExtraAccess::sign())
        {
            return;
        }
        let mut classes = command.script.commands.iter().map(shell::classify);
        if classes.any(|class| class.is_git && !class.is_read_only) {
            self.add(None, (Verdict::Allow, Reason::Signing));
        }
    }

    /// Returns true if commands run in the sandbox and may write.
    fn confines_commands(&self) -> bool {
        self.policy.can_confine && !matches!(self.command_mode, Mode::Plan | Mode::Full)
    }

    /// Returns true if the command gets more access than the sandbox gives, because it asks for that or because it needs
    /// the network or may sign.
    fn has_further_access(&self, command: &ShellCommand) -> bool {
        !command.extra_access.is_none() || self.added_access().next().is_some()
    }

    /// Returns true if the command gets the network, or may sign, because of an answer that was not about exactly this
    /// line.
    fn has_access_of_other_answers(&self, command: &ShellCommand) -> bool {
        self.added_access().any(|access| !self.grants.gives_line_access(command, &access))
    }

    /// The access that the command gets although it does not ask for it.
    fn added_access(&self) -> impl Iterator<Item = ExtraAccess> {
        let own = self.findings.iter().filter(|finding| finding.effect_index == self.effect_index);
        own.filter_map(|finding| match finding.reason {
            Reason::Network => Some(ExtraAccess::network()),
            Reason::Signing => Some(ExtraAccess::sign()),
            _ => None,
        })
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

    /// The strictest ruling of these rules that denies or asks; `None` if there is none.
    fn restriction(&self, matches: impl Fn(&Rule) -> bool) -> Option<Ruling> {
        let ruling = self.apply_rules(
            |rule| rule.action != RuleAction::Allow && matches(rule),
            None,
            None,
            (Verdict::Allow, Reason::Mode),
        );
        (ruling.0 != Verdict::Allow).then_some(ruling)
    }

    /// A line that is not understood is asked about, unless this very line was allowed.
    fn ambiguous_line(&mut self, ambiguity: String, is_granted: bool) {
        let ruling = match self.default_in(self.command_mode) {
            (Verdict::Ask, _) if is_granted => allowed_for_session(EXACTLY_THIS),
            (Verdict::Ask, Reason::Mode) => (Verdict::Ask, Reason::Ambiguous(ambiguity)),
            (Verdict::Deny, _) => (Verdict::Deny, Reason::Ambiguous(ambiguity)),
            default => default,
        };
        self.add(None, ruling);
    }

    /// The ruling on a command of a line. `is_granted` is true if the user has allowed exactly this line, and
    /// `covers_access` if that was about all access that the line gets, so that it also holds for programs of a
    /// repository.
    fn simple_command(
        &self,
        simple: &SimpleCommand,
        command: &ShellCommand,
        is_granted: bool,
        covers_access: bool,
    ) -> Ruling {
        let class = shell::classify(simple);
        let default = self.default_in(self.command_mode);
        // The settings of the repository, or a toolchain file, may make it run another program.
        let is_unasked = class.is_read_only || command.edits.is_some();
        let is_chosen =
            class.is_git || class.uses_rustup || is_unasked && class.may_be_version_managed;
        let uncertain = command.uncertainty.as_ref().filter(|_| is_chosen);
        // In the sandbox these programs may do no more than those that the project's scripts run in this mode.
        let is_confined = self.command_mode == Mode::Auto
            && default.0 == Verdict::Allow
            // The user has to know of further access that they get.
            && !self.has_further_access(command)
            && !class.fails_offline
            && uncertain.is_some_and(|uncertainty| uncertainty.only_runs_programs);
        let always_ask = uncertain
            .filter(|uncertainty| {
                // An answer about this line holds for no more than the sandbox bounds, and for no access that other
                // answers have added.
                let is_answered = covers_access && uncertainty.only_runs_programs;
                self.command_mode != Mode::Full && !is_answered && !is_confined
            })
            .map(|uncertainty| Reason::Ambiguous(uncertainty.reason.clone()))
            .or_else(|| self.unbounded_read(&class).filter(|_| !is_granted));
        let default = match shell::danger(simple) {
            // A reader may run programs that do more than read.
            _ if class.is_read_only && !is_confined => (Verdict::Allow, Reason::ReadOnly),
            Some(danger) if self.command_mode == Mode::Auto => {
                (Verdict::Ask, Reason::Destructive(danger))
            }
            _ if self.only_edits(command) => (Verdict::Allow, Reason::Mode),
            _ => default,
        };
        let default = match default {
            (Verdict::Ask, _) if is_granted => allowed_for_session(EXACTLY_THIS),
            default => default,
        };
        self.apply_rules(|rule| rule.matches_command(simple), None, always_ask, default)
    }

    /// Returns true if a command does nothing that the file tools may not do in this mode without a question, and if it
    /// can do nothing else.
    fn only_edits(&self, command: &ShellCommand) -> bool {
        let policy = self.policy;
        self.mode == Mode::AutoEdit
            && policy.can_confine
            && !(policy.protected_exposed)()
            && command.extra_access.is_none()
            && command
                .edits
                .as_ref()
                .is_some_and(|edits| edits.iter().all(|target| self.is_freely_editable(target)))
    }

    fn is_freely_editable(&self, target: &ResolvedPath) -> bool {
        let policy = self.policy;
        matches!(target.scope, PathScope::Workspace | PathScope::PrivateTmp { .. })
            && !is_secret_path(&target.path)
            && policy.protected.reason(&target.path).is_none()
            && !policy.rules.iter().any(|rule| {
                rule.action != RuleAction::Allow
                    && rule.matches_path(&target.path, true, &policy.bases)
            })
    }

    /// A command that could ruin the system is asked about, whatever was allowed.
    fn possible_ruin(&self, what: &'static str, simple: &SimpleCommand) -> Ruling {
        let reason = Some(Reason::Destructive(what));
        let default = self.default_in(self.command_mode);
        self.apply_rules(|rule| rule.matches_command(simple), None, reason, default)
    }

    /// Without a sandbox, a command may read any file that its words do not name.
    fn unbounded_read(&self, class: &Classification) -> Option<Reason> {
        let is_bounded = self.policy.can_confine || self.command_mode == Mode::Full;
        (class.reads_unknown_files && !is_bounded).then_some(Reason::OutsideWorkspace)
    }
}

/// The ruling on what the user has allowed in this session, with a pattern or one of the two names above.
fn allowed_for_session(what: &str) -> Ruling {
    (Verdict::Allow, Reason::Granted(what.to_owned()))
}

/// Why a line may do more than the list of its commands says.
fn ambiguity(script: &Script) -> Option<String> {
    let nothing = script.commands.is_empty().then_some("it contains no command");
    script.ambiguity.clone().or(nothing.map(str::to_owned))
}
