//! The records of calls: lines in the audit log about what was decided, and the answers that a recording keeps. If kept
//! answers are given, no part of the tool runs that could touch a file, a command or a server.

use serde_json::Value;

use super::runner::{CallRunner, sandboxed_command};
use crate::tools::{
    ToolCtx, ToolOutcome, outcome_json, preview_json, read_outcome, read_preview, read_view,
    view_json,
};
use turnwright_policy::permission::{
    self, ApprovalRequest, AuditEntry, AuditEvent, Decision, Denial, Mode, Pass, Verdict, decide,
};
use turnwright_recording::outside::{AnswerKind, Keeping, KeptAnswers};
use turnwright_types::client::{ChoiceKind, PermissionAnswer};
use turnwright_types::effect::{CallContent, CallView, Effect};
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

/// A call and its kept answers.
pub(super) struct KeptCall<'a> {
    answers: &'a dyn KeptAnswers,
    tool: &'a str,
    arguments: &'a Value,
}

impl<'a> KeptCall<'a> {
    /// The call, if it has arguments to find it by.
    pub(super) fn of(
        ctx: &'a ToolCtx,
        tool: &'a str,
        arguments: Option<&'a Value>,
    ) -> Option<KeptCall<'a>> {
        let answers = ctx.env.shared.process.answers.as_ref();
        arguments.map(|arguments| KeptCall { answers, tool, arguments })
    }

    /// Returns true if kept answers take the place of the tool.
    pub(super) fn is_played(&self) -> bool {
        self.answers.keeping(self.tool) == Keeping::Given
    }

    /// The view of the call: the kept one if it is given, else this one, which is kept.
    pub(super) fn view(&self, now: CallView) -> CallView {
        if self.is_played() {
            return self.given(AnswerKind::View).map_or(now, |given| read_view(&given));
        }
        self.note(AnswerKind::View, &|| view_json(&now));
        now
    }

    /// The kept preview of the call; `None` if the tool gives it.
    pub(super) fn recorded_preview(&self) -> Option<Result<Vec<CallContent>, ToolRefusal>> {
        if !self.is_played() {
            return None;
        }
        let given = self.given(AnswerKind::Preview);
        Some(given.map_or(Ok(Vec::new()), |preview| read_preview(&preview)))
    }

    /// The kept answer of the tool.
    pub(super) async fn recorded_outcome(&self) -> ToolOutcome {
        match self.answers.given_result(self.tool, self.arguments).await {
            Ok(outcome) => read_outcome(&outcome),
            Err(why) => ToolOutcome::failed(why),
        }
    }

    pub(super) fn record_preview(&self, preview: &Result<Vec<CallContent>, ToolRefusal>) {
        // Most tools have nothing to show before they run.
        if preview.as_ref().map_or(true, |content| !content.is_empty()) {
            self.note(AnswerKind::Preview, &|| preview_json(preview));
        }
    }

    pub(super) fn record_outcome(&self, outcome: &ToolOutcome) {
        self.note(AnswerKind::Result, &|| outcome_json(outcome));
    }

    fn given(&self, kind: AnswerKind) -> Option<Value> {
        self.answers.given(kind, self.tool, self.arguments)
    }

    fn note(&self, kind: AnswerKind, answer: &dyn Fn() -> Value) {
        self.answers.note(kind, self.tool, self.arguments, answer);
    }
}
