//! The hooks of a call. Hooks that run before a call may refuse it, require or skip the question to the user, or change
//! the arguments. Hooks that run after it may change the files that it wrote and comment on it. A hook can never allow
//! more than mode `auto` would.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::AdmissionTicket;
use super::runner::{CallRunner, PendingCall, cancelled};
use crate::tools::{AnyTool, ToolCtx, ToolEnv, ToolOutcome};
use turnwright_hooks::{
    HookDecision, HookEvent, HookVerdict, HookedTool, Occasion, ToolUse, tool_response,
};
use turnwright_policy::permission::{ApprovalRequest, Decision, Mode, Pass};
use turnwright_types::client::{ChoiceKind, PermissionAnswer};
use turnwright_types::effect::{CallContent, Effect};
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_types::update::{CallUpdate, ToolCallStatus};

/// A call for which hooks may run.
pub(super) struct HookedCall {
    tool: Arc<dyn AnyTool>,
    arguments: Value,
}

impl HookedCall {
    /// Returns the call of a tool if there are any hooks.
    pub(super) fn of(
        env: &ToolEnv,
        tool: &Arc<dyn AnyTool>,
        arguments: &Value,
    ) -> Option<HookedCall> {
        env.has_any_hooks().then(|| HookedCall {
            tool: Arc::clone(tool),
            arguments: tool.understood(arguments.clone()),
        })
    }

    /// Translates the call for handlers.
    fn translated(&self, env: &ToolEnv, effects: &[Effect]) -> HookedTool<'_> {
        let roots = env.files.roots();
        let mut call = HookedTool {
            name: self.tool.name(),
            is_remote: self.tool.server().is_some(),
            arguments: &self.arguments,
            changed: Vec::new(),
            read: Vec::new(),
        };
        for effect in effects {
            match effect {
                Effect::Write(target) | Effect::Delete(target) => {
                    call.changed.push(roots.client_path(target));
                }
                Effect::Read(target) => call.read.push(roots.client_path(target)),
                _ => {}
            }
        }
        call
    }

    fn occasion(&self, event: HookEvent, of: &ToolUse, ctx: &ToolCtx, further: Value) -> Occasion {
        let mut fields = json!({
            "tool_name": of.names.first(),
            "tool_input": of.input,
            "tool_use_id": ctx.call.as_str(),
            "tw_tool_name": self.tool.name(),
            "tw_tool_input": self.arguments,
        });
        if let (Value::Object(fields), Value::Object(further)) = (&mut fields, further) {
            fields.extend(further);
        }
        Occasion { event, subjects: of.names.clone(), fields: redact::json(fields) }
    }

    /// Runs the hooks of an event for each use that the call corresponds to, and combines their verdicts. `further` has
    /// the event's own fields for a use.
    async fn run_hooks(
        &self,
        event: HookEvent,
        ctx: &ToolCtx,
        effects: &[Effect],
        further: impl Fn(&ToolUse) -> Value + Send,
    ) -> HookVerdict {
        let mut combined = HookVerdict::default();
        let mut is_all_allowed = true;
        let folder = ctx.env.files.roots().real_cwd();
        let command = effects.iter().find_map(Effect::command);
        let elsewhere = command.filter(|command| command.workdir != folder);
        for of in self.translated(&ctx.env, effects).uses() {
            if ctx.cancel.is_cancelled() {
                break;
            }
            let mut occasion = self.occasion(event, &of, ctx, further(&of));
            if let Some(command) = elsewhere {
                occasion.fields["cwd"] = json!(command.workdir.to_string_lossy());
            }
            let verdict = ctx.env.run_hooks(&occasion, &ctx.cancel).await;
            is_all_allowed &= verdict.allows();
            combined.add(verdict);
        }
        if combined.allows() && !is_all_allowed {
            combined.decision = None;
        }
        if let Some(why) = &combined.stop {
            ctx.env.ask_in_conversation(format!("A hook has ended this turn: {why}"));
        }
        combined
    }

    /// Runs the hooks after a call, before its result is stored.
    pub(super) async fn run_hooks_after(
        self,
        ctx: &ToolCtx,
        effects: &[Effect],
        outcome: &mut ToolOutcome,
        took: Duration,
    ) {
        let event = if outcome.ok { HookEvent::PostToolUse } else { HookEvent::PostToolUseFailure };
        if ctx.cancel.is_cancelled() || !ctx.env.has_hooks(event) {
            return;
        }
        let texts = ctx.env.texts_before_hooks(effects).await;
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let further = |of: &ToolUse| {
            if outcome.ok {
                let response = tool_response(of, &outcome.text, &outcome.raw);
                json!({ "tool_response": response, "duration_ms": millis })
            } else {
                json!({ "error": outcome.text, "is_interrupt": false })
            }
        };
        let mut verdict = self.run_hooks(event, ctx, effects, further).await;
        if let Some(why) = verdict.block.take() {
            outcome.append_note(format!("[hook] {why}"));
        }
        add_verdict(outcome, verdict, "after");
        ctx.env.note_changed_by_hooks(texts, outcome).await;
    }
}

/// Adds the hooks' texts for the user and the model to the outcome of the call.
pub(super) fn add_verdict(outcome: &mut ToolOutcome, verdict: HookVerdict, when: &str) {
    if !verdict.context.is_empty() {
        outcome.add_line(&format!("[hook {when} the call] {}", verdict.context));
    }
    let notes = verdict.messages.into_iter().chain(verdict.problems);
    outcome.content.extend(notes.map(CallContent::Text));
}

impl CallRunner {
    /// Runs the hooks of an event before the call runs. Returns an error if they refuse the call.
    async fn ask_about(
        &self,
        event: HookEvent,
        call: &PendingCall,
    ) -> Result<HookVerdict, ToolRefusal> {
        let Some(hooked) = call.hooked.as_ref().filter(|_| self.env.has_hooks(event)) else {
            return Ok(HookVerdict::default());
        };
        let effects = &call.plan.effects;
        let verdict = hooked.run_hooks(event, &call.ctx, effects, |_| Value::Null).await;
        if call.ctx.cancel.is_cancelled() {
            return Err(cancelled());
        }
        if verdict.decision == Some(HookDecision::Deny) {
            self.audit_hook(effects, &Decision::default(), false);
            return Err(refused_by_hook(&verdict));
        }
        Ok(verdict)
    }

    /// Runs the hooks before a call. Returns the call with their changes applied, and their combined verdict.
    pub(super) async fn ask_hooks(
        &self,
        call: PendingCall,
        ticket: &AdmissionTicket,
    ) -> Result<(PendingCall, HookVerdict), ToolRefusal> {
        let mut verdict = self.ask_about(HookEvent::PreToolUse, &call).await?;
        let Some((hooked, (input, by))) = call.hooked.as_ref().zip(verdict.updated_input.take())
        else {
            return Ok((call, verdict));
        };
        let changed = hooked.translated(&self.env, &call.plan.effects).updated_arguments(&input);
        let arguments = changed.map_err(|why| {
            let what =
                format!("The hook `{by}` wants to change this call, which is not possible: {why}");
            ToolRefusal::new(format!("{what}. It was not executed."), what)
        })?;
        verdict.messages.push(format!("The hook `{by}` has changed this call before it ran."));
        let told = "The arguments of this call were changed by a hook of the user before it ran.";
        verdict.add_context(told);
        let tool = Arc::clone(&hooked.tool);
        Ok((self.with_arguments(call, tool, arguments, ticket).await?, verdict))
    }

    /// Plans the call with other arguments, and shows them on its card.
    async fn with_arguments(
        &self,
        call: PendingCall,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        ticket: &AdmissionTicket,
    ) -> Result<PendingCall, ToolRefusal> {
        let PendingCall { ctx, view, begins, .. } = call;
        let mut call = PendingCall { begins, ..self.plan_call(tool, arguments, ctx).await? };
        call.view = view.map(|_| call.card_view());
        if let Some(view) = &call.view {
            let mut update = CallUpdate::new(call.ctx.call.clone(), ToolCallStatus::Pending);
            update.view = Some(view.clone());
            update.raw_input = Some(call.raw_input.clone());
            self.env.client.update(update.into());
        }
        if !ticket.readmit(&call.plan.effects) {
            call = self.admit(call, ticket).await?;
        }
        Ok(call)
    }

    /// Returns true if hooks answer the question about a call with yes and may do so.
    pub(super) async fn hooks_allow(
        &self,
        call: &PendingCall,
        request: &ApprovalRequest,
    ) -> Result<bool, ToolRefusal> {
        let verdict = self.ask_about(HookEvent::PermissionRequest, call).await?;
        // The mode and the rules may have become stricter while the hooks ran.
        Ok(verdict.allows() && self.may_hook_allow(request))
    }

    /// Returns true if a hook may answer this question with yes, because mode `auto` would not ask it either.
    pub(super) fn may_hook_allow(&self, request: &ApprovalRequest) -> bool {
        self.env.mode() != Mode::Plan && self.is_bounded(request)
    }

    /// Returns the pass for a call that hooks allow.
    pub(super) fn allow_for_hook(&self, request: ApprovalRequest) -> Result<Pass, ToolRefusal> {
        self.audit_hook(request.effects(), request.decision(), true);
        let policy = self.env.shared.rules.get();
        let mode = self.env.mode();
        let answer = PermissionAnswer::Chosen(ChoiceKind::AllowOnce);
        request.resolve(answer, &policy, mode, &mut self.grants.lock())
    }
}

fn refused_by_hook(verdict: &HookVerdict) -> ToolRefusal {
    let reason = &verdict.reason;
    let mut told = format!(
        "A hook of the user refuses this. {}. It was not executed. Do not work around it.",
        reason.trim_end_matches('.')
    );
    if !verdict.context.is_empty() {
        text::add_line(&mut told, &verdict.context);
    }
    let notes = [&verdict.messages[..], &verdict.problems].concat().join("\n");
    ToolRefusal::new(told, format!("Refused by the hook {reason}\n{notes}").trim_end())
}
