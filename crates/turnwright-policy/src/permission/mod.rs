//! Permission rules and the decisions that follow from them.
//!
//! A caller describes what a tool call would do as a list of [`Effect`]s. [`judge`] compares them
//! with the [`PolicyRules`], the [`Mode`] and the user's earlier answers in this session
//! ([`Grants`]), and says whether the call is allowed, denied, or needs the user's approval.
//! Whoever may run it gets a [`Pass`], which names what was allowed and how a command must be
//! confined. Deciding is pure: it reads no files.
//!
//! [`ProjectRuleStore`] keeps the rules that a user has granted for a project, and [`AuditLog`]
//! records decisions.

mod approval;
mod audit_log;
mod check_book;
mod decide;
mod describe;
#[cfg(test)]
mod decide_tests;
#[cfg(test)]
mod everyday_tests;
mod glob;
mod grants;
mod lasting_grant;
mod mode;
mod policy_rules;
mod protected_paths;
mod rule;
#[cfg(test)]
mod ruinous_tests;
#[cfg(test)]
mod session_access_tests;

use std::path::PathBuf;

use turnwright_types::effect::{Effect, ExtraAccess, PathScope};
use turnwright_types::refusal::ToolRefusal;

pub use approval::ApprovalRequest;
pub use audit_log::{ALLOW_ONCE_ANSWER, AuditEntry, AuditEvent, AuditLog, AuditLoss};
pub use check_book::{CheckBook, KnownCheck};
pub use decide::decide;
pub use describe::{Explanation, describe_effect, describe_reason, markdown_code, verdict_name};
pub use glob::Glob;
pub use grants::{AccessGrant, Grants};
pub use lasting_grant::suggest_pattern;
pub use mode::{Mode, SharedMode};
pub use policy_rules::{DeniedPaths, PolicyRules};
pub use protected_paths::ProtectedPaths;
pub use protected_paths::files::IDIOMATIC_VERSION_FILES;
pub use rule::store::{ProjectRuleStore, RuleStoreError, StoredRule, StoredRules, project_folder};
pub use rule::{
    LoadedRules, PathBases, Pattern, Rule, RuleAction, RuleContext, RuleSpec, Scope,
    fallback_rules, load_rules,
};

/// The verdict on something that is to be done. Later ones are stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It may be done.
    Allow,
    /// The user has to be asked first.
    Ask,
    /// It must not be done.
    Deny,
}

/// The reason for a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It affects nothing outside the session.
    SessionOnly,
    /// It would destroy the system. The text completes a sentence that begins with "it".
    Catastrophic(&'static str),
    /// The user has rejected exactly this in this session.
    Rejected,
    /// A rule matches.
    Rule(Rule),
    /// The user has allowed it in this session. The text is the pattern.
    Granted(String),
    /// The user has allowed this access for the session.
    GrantedAccess(String),
    /// It only reads, in the session's folders.
    ReadOnly,
    /// The default of the mode.
    Mode,
    /// The command line is too long to be judged.
    TooLong,
    /// The words of the command line do not say everything that it does. The text says why.
    Ambiguous(String),
    /// It destroys something irrecoverably, or publishes something. The text completes a sentence
    /// that begins with "it".
    Destructive(&'static str),
    /// It asks for more access than the sandbox gives.
    Escalation,
    /// It fails without the network, which it gets if the user allows it.
    Network,
    /// It may sign, as the user has allowed for the session.
    Signing,
    /// It changes a file that other programs run or obey. The text says which.
    ProtectedPath(&'static str),
    /// It reads a file that is likely to hold keys or passwords, or its output overwrites one.
    SecretPath,
    /// It touches a path outside the session's folders.
    OutsideWorkspace,
    /// The mode would allow it in the sandbox, but there is none.
    NoSandbox,
    /// The tool has changed since the user allowed it.
    ToolChanged,
}

/// The verdict on one effect, or on one simple command of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The index of the effect.
    pub effect_index: usize,
    /// The index of the simple command in the line, if the finding is about one.
    pub command_index: Option<usize>,
    /// The file of a command that the finding is about.
    pub path: Option<PathBuf>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for it.
    pub reason: Reason,
}

impl Finding {
    /// Returns true if it gives a command more access than the sandbox, and does not permit it to run.
    fn gives_access(&self) -> bool {
        self.verdict == Verdict::Allow
            && matches!(self.reason, Reason::Network | Reason::Signing | Reason::GrantedAccess(_))
    }
}

/// The decision about a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// A verdict on everything that was looked at.
    pub findings: Vec<Finding>,
}

impl Decision {
    /// The strictest verdict of all findings. A call without effects is allowed.
    pub fn verdict(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Allow)
    }

    /// The findings that need approval.
    fn findings_to_ask(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.verdict == Verdict::Ask)
    }

    /// The first finding with the strictest verdict.
    pub fn strictest(&self) -> Option<&Finding> {
        let verdict = self.verdict();
        self.findings.iter().find(|finding| finding.verdict == verdict)
    }

    /// Returns true if a finding has this reason: that a command gets the network that it needs, because the user is
    /// asked about that or has allowed it for the session, or that git may sign although it does not ask for that.
    fn has(&self, reason: &Reason) -> bool {
        self.findings.iter().any(|finding| finding.reason == *reason)
    }

    /// Returns true if everything is allowed without a question, and the command because it only reads. What it prints may
    /// go to files.
    fn runs_only_readers(&self, effects: &[Effect]) -> bool {
        let mut of_command = self
            .findings
            .iter()
            .filter(|finding| matches!(effects.get(finding.effect_index), Some(Effect::Exec(_))));
        self.verdict() == Verdict::Allow
            && of_command.clone().next().is_some()
            && of_command.all(|finding| {
                // More access does not make a reader do more.
                matches!(finding.reason, Reason::ReadOnly | Reason::GrantedAccess(_))
            })
    }

    /// True if everything is allowed because it only reads.
    pub fn is_read_only(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.verdict == Verdict::Allow && finding.reason == Reason::ReadOnly)
    }
}

/// A call, and the decision about it by these rules in this mode.
#[derive(Clone, Copy, Debug)]
pub struct JudgedCall<'a> {
    /// The rules.
    pub policy: &'a PolicyRules,
    /// The mode.
    pub mode: Mode,
    /// The effects of the call.
    pub effects: &'a [Effect],
    /// The decision about them.
    pub decision: &'a Decision,
}

/// Proof that a call was judged and allowed. Only this module creates one, so a tool that demands a
/// `Pass` cannot run without a decision. It holds what was allowed, and the tool must touch nothing
/// else.
#[derive(Debug)]
pub struct Pass {
    effects: Vec<Effect>,
    decision: Decision,
    confinement: Confinement,
    denied_paths: DeniedPaths,
}

impl Pass {
    /// The allowed effects.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// Why they were allowed.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// How a command of this call must be confined.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// The paths below an allowed folder that stay closed to this call.
    pub fn denied_paths(&self) -> &DeniedPaths {
        &self.denied_paths
    }

    /// True if the call was allowed without a question because it only reads.
    pub fn is_read_only(&self) -> bool {
        self.decision.is_read_only()
    }

    /// Returns true if the call was allowed without a question and runs a command that only reads. What it prints may go
    /// to files.
    pub fn runs_only_readers(&self) -> bool {
        self.is_read_only() || self.decision.runs_only_readers(&self.effects)
    }

    /// Returns true if a command of the call has more access than the sandbox gives, or runs without one.
    pub fn has_extra_access(&self) -> bool {
        let Confinement::Sandboxed { network, further, .. } = &self.confinement else {
            return true;
        };
        *network
            || !further.is_none()
            || self.effects.iter().any(|effect| match effect {
                Effect::Exec(command) => !command.extra_access.writes.is_empty(),
                Effect::Write(target) => target.scope == PathScope::Outside,
                Effect::Fetch { .. } => true,
                _ => false,
            })
    }

    fn new(policy: &PolicyRules, mode: Mode, decision: Decision, effects: Vec<Effect>) -> Pass {
        let call = JudgedCall { policy, mode, effects: &effects, decision: &decision };
        let confinement = Confinement::for_call(call);
        let denied_paths = DeniedPaths::for_effects(policy, &effects);
        Pass { effects, decision, confinement, denied_paths }
    }
}

/// How a command must be confined while it runs. This holds whatever was concluded from its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// It runs without a sandbox, because the user allowed that or the system has none.
    Unconfined,
    /// It runs in the sandbox.
    Sandboxed {
        /// True if it may change the session's folders.
        workspace_writable: bool,
        /// True if it may use the network.
        network: bool,
        /// Other paths that it may change, with symlinks resolved.
        extra_writable: Vec<PathBuf>,
        /// Its access beyond that.
        further: ExtraAccess,
    },
}

impl Confinement {
    fn for_call(JudgedCall { policy, mode, effects, decision }: JudgedCall<'_>) -> Confinement {
        let mut commands = effects.iter().filter_map(Effect::command);
        let is_unsandboxed = commands.any(|command| command.extra_access.unsandboxed);
        if mode == Mode::Full || !policy.can_confine || is_unsandboxed {
            return Confinement::Unconfined;
        }
        let mut extra_writable = Vec::new();
        let mut network = decision.has(&Reason::Network);
        let mut further = ExtraAccess::default();
        for effect in effects {
            match effect {
                Effect::Write(target) => extra_writable.push(target.path.clone()),
                Effect::Exec(command) => {
                    let access = &command.extra_access;
                    network |= access.network;
                    extra_writable.extend(access.writes.iter().map(|target| target.path.clone()));
                    further = ExtraAccess { network: false, writes: Vec::new(), ..access.clone() };
                }
                _ => {}
            }
        }
        further.sign |= decision.has(&Reason::Signing);
        // A command that was allowed because it only reads may write nothing but the files that the shell opens for it,
        // so that a wrong classification does no harm.
        let only_reads = decision.is_read_only()
            || decision.runs_only_readers(effects) && !edits_by_redirects(policy, mode, effects);
        let workspace_writable = mode != Mode::Plan && !only_reads;
        Confinement::Sandboxed { workspace_writable, network, extra_writable, further }
    }
}

/// Returns true if the shell makes a file of the project only while the line runs, or perhaps not at all, and the mode
/// allows editing all files there. The sandbox could allow that file alone only if it was made before the line runs.
fn edits_by_redirects(policy: &PolicyRules, mode: Mode, effects: &[Effect]) -> bool {
    let mut written = effects.iter().filter_map(Effect::written);
    let lines = effects.iter().filter_map(Effect::command);
    let mut late =
        lines.flat_map(|line| &line.script.commands).filter(|command| command.opens_later);
    matches!(mode, Mode::AutoEdit | Mode::Auto)
        && written.any(|target| target.scope == PathScope::Workspace)
        && late.any(crate::shell::SimpleCommand::writes_file)
        && policy.bounds_commands()
}

/// The consequence of a decision for a call.
#[derive(Debug)]
pub enum Judgement {
    /// It may run.
    Allowed(Pass),
    /// The user has to be asked. The answer goes to [`ApprovalRequest::resolve`].
    NeedsApproval(ApprovalRequest),
    /// It must not run.
    Denied(Denial),
}

/// A call that must not run.
#[derive(Debug)]
pub struct Denial {
    /// The effects that the call would have.
    pub effects: Vec<Effect>,
    /// The findings, at least one of which denies it.
    pub decision: Decision,
    /// Why, for the model and for the user.
    pub refusal: ToolRefusal,
}

/// Judges a call by its effects.
pub fn judge(policy: &PolicyRules, mode: Mode, grants: &Grants, effects: Vec<Effect>) -> Judgement {
    tracing::trace!(target: "turnwright::judge", effects = effects.len());
    let decision = decide(policy, mode, grants, &effects);
    match decision.verdict() {
        Verdict::Allow => Judgement::Allowed(Pass::new(policy, mode, decision, effects)),
        Verdict::Ask => {
            Judgement::NeedsApproval(ApprovalRequest::new(policy, mode, grants, effects, decision))
        }
        Verdict::Deny => {
            let call = JudgedCall { policy, mode, effects: &effects, decision: &decision };
            let refusal = approval::refusal(call);
            Judgement::Denied(Denial { effects, decision, refusal })
        }
    }
}
