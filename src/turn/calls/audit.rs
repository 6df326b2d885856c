//! Records what was decided about calls: lines in the audit log, and rules for the project.

use super::runner::{CallRunner, sandboxed_command};
use turnwright_policy::permission::{
    self, ApprovalRequest, AuditEntry, AuditEvent, Decision, Denial, Mode, Pass, Verdict, decide,
};
use turnwright_types::client::{ChoiceKind, PermissionAnswer};
use turnwright_types::effect::Effect;
use turnwright_types::refusal::ToolRefusal;

impl CallRunner {
    /// Records a denial.
    pub(super) fn deny(&self, denial: Denial) -> ToolRefusal {
        self.record(AuditEvent::Denied, &denial.effects, &denial.decision, |_| {});
        denial.refusal
    }

    /// Records a call that is about to run. Of a conversation's calls only commands and remote tools are
    /// recorded; the store has the others.
    pub(super) fn audit_run(&self, pass: &Pass) {
        let sandbox = sandboxed_command(pass);
        let is_remote = pass.effects().iter().any(|effect| matches!(effect, Effect::Remote(_)));
        if self.is_for_mcp_client || sandbox.is_some() || is_remote {
            self.record(AuditEvent::Ran, pass.effects(), pass.decision(), |entry| {
                entry.sandbox = sandbox;
            });
        }
    }

    pub(super) fn audit_answer(&self, request: &ApprovalRequest, answer: &PermissionAnswer) {
        self.record(AuditEvent::Asked, request.effects(), request.decision(), |entry| {
            entry.answer = Some(answer_word(answer).to_owned());
        });
    }

    fn record(
        &self,
        event: AuditEvent,
        effects: &[Effect],
        decision: &Decision,
        complete: impl FnOnce(&mut AuditEntry),
    ) {
        let policy = self.env.shared.rules.get();
        let mode = self.env.shared.mode.get();
        let session = self.env.session.as_str();
        let mut entry = AuditEntry::new(event, session, (&policy, mode), effects, decision);
        complete(&mut entry);
        self.env.log.record_permission(entry.to_json());
        self.env.shared.process.audit.record(entry);
        self.env.report_audit_loss();
    }

    /// The mode or rule that would have allowed the call, as a hint for the user of an MCP client that cannot ask.
    pub(super) fn allow_hint(&self, request: &ApprovalRequest) -> String {
        let policy = self.env.shared.rules.get();
        let now = self.env.shared.mode.get();
        let allowing = Mode::ALL.into_iter().find(|mode| {
            *mode > now
                && *mode <= self.env.shared.mode.max_mode()
                && decide(&policy, *mode, &self.grants.lock(), request.effects()).verdict()
                    == Verdict::Allow
        });
        let mode = allowing
            .map(|mode| format!("the mode `{}` allows it (`--mode {}`)", mode.id(), mode.id()));
        match (mode, request.lasting_rules()) {
            (Some(mode), Some(rule)) => {
                format!(" For the user: {mode}, so does the rule {rule} in the settings.")
            }
            (Some(mode), None) => format!(" For the user: {mode}."),
            (None, Some(rule)) => {
                format!(" For the user: allow it by {rule} in the settings.")
            }
            (None, None) => " No mode and no rule allows it unasked.".to_owned(),
        }
    }
}

fn answer_word(answer: &PermissionAnswer) -> &'static str {
    match answer {
        PermissionAnswer::Chosen(ChoiceKind::AllowOnce) => permission::ALLOW_ONCE_ANSWER,
        PermissionAnswer::Chosen(ChoiceKind::AllowSession) => "allow in this session",
        PermissionAnswer::Chosen(ChoiceKind::AllowSessionForAll) => {
            "allow for all commands in this session"
        }
        PermissionAnswer::Chosen(ChoiceKind::AllowAllCommands) => {
            "allow all commands in the sandbox in this session"
        }
        PermissionAnswer::Chosen(ChoiceKind::RejectOnce) => "reject",
        PermissionAnswer::Chosen(ChoiceKind::RejectSession) => "reject in this session",
        PermissionAnswer::Cancelled => "withdrawn",
        PermissionAnswer::Unclear(_) => "unclear",
    }
}
