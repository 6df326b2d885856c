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
mod decide;
mod decision;
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
pub use decide::decide;
pub use decision::{Decision, Finding, Reason, Verdict};
pub use describe::{
    Explanation, describe_confinement, describe_effect, describe_reason, escape_markdown, explain,
    markdown_code, verdict_name,
};
pub use glob::Glob;
pub use grants::{AccessGrant, Grants};
pub use lasting_grant::suggest_pattern;
pub use mode::{Mode, SharedMode};
pub use policy_rules::{DeniedPaths, PolicyRules};
pub use protected_paths::ProtectedPaths;
pub use protected_paths::files::IDIOMATIC_VERSION_FILES;
pub use rule::parser::RuleError;
pub use rule::store::{ProjectRuleStore, RuleStoreError, StoredRule, StoredRules, project_folder};
pub use rule::{
    LoadedRules, PathBases, Pattern, Rule, RuleAction, RuleContext, RuleSpec, Scope, fallback_rules,
    load_rules,
};

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
                _ => false,
            })
    }

    fn new(policy: &PolicyRules, mode: Mode, decision: Decision, effects: Vec<Effect>) -> Pass {
        let confinement = Confinement::for_call(policy, mode, &decision, &effects);
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
    fn for_call(
        policy: &PolicyRules,
        mode: Mode,
        decision: &Decision,
        effects: &[Effect],
    ) -> Confinement {
        let mut commands = effects.iter().filter_map(Effect::command);
        let is_unsandboxed = commands.any(|command| command.extra_access.unsandboxed);
        if mode == Mode::Full || !policy.can_confine || is_unsandboxed {
            return Confinement::Unconfined;
        }
        let mut extra_writable = Vec::new();
        let mut network = decision.opens_network();
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
        further.sign |= decision.opens_signing();
        // A command that was allowed because it only reads may write nothing but the files that the shell opens for it,
        // so that a wrong classification does no harm.
        let only_reads = decision.is_read_only() || decision.runs_only_readers(effects);
        let workspace_writable = mode != Mode::Plan && !only_reads;
        Confinement::Sandboxed { workspace_writable, network, extra_writable, further }
    }
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
            let refusal = approval::refusal(&decision, mode, policy, &effects);
            Judgement::Denied(Denial { effects, decision, refusal })
        }
    }
}
