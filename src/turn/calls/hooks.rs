//! The hooks of a call. Hooks that run before a call may refuse it, require or skip the question to the user, or change
//! the arguments. Hooks that run after it may change the files that it wrote and comment on it. A hook can never allow
//! more than mode `auto` would.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::admission_queue::AdmissionTicket;
use super::hidden_secrets::FoundPlaceholders;
use super::records::abridged_arguments;
use super::runner::{CallRunner, PendingCall, cancelled, catch_panic, make_plan};
use crate::tools::{AnyTool, ToolCtx, ToolEnv, ToolOutcome};
use turnwright_hooks::{
    HookDecision, HookEvent, HookVerdict, HookedTool, Occasion, ToolUse, TouchedFile, tool_response,
};
use turnwright_policy::permission::{ApprovalRequest, Decision, Mode, Pass};
use turnwright_types::client::{ChoiceKind, PermissionAnswer};
use turnwright_types::effect::{CallContent, Effect};
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;
use turnwright_types::update::{CallUpdate, ToolCallStatus};

/// A call for which hooks may run.
#[derive(Clone)]
pub(super) struct HookedCall {
    tool: Arc<dyn AnyTool>,
    arguments: Value,
}

/// The combined replies of the hooks to one call.
#[derive(Debug, Default)]
pub(super) struct HookWish {
    decision: Option<HookDecision>,
    reason: String,
    /// The input that replaces the whole input of the call, with the name of the hook.
    updated_input: Option<(Value, String)>,
    /// True if the hooks have run for at least one use.
    has_run: bool,
    /// Texts for the model in addition to the result.
    context: Vec<String>,
    /// Lines for the call's card.
    notes: Vec<String>,
}

impl HookWish {
    /// Returns true if the user must be asked whatever the rules say.
    pub(super) fn asks(&self) -> bool {
        self.decision == Some(HookDecision::Ask)
    }

    pub(super) fn allows(&self) -> bool {
        self.decision == Some(HookDecision::Allow)
    }

    pub(super) fn has_run(&self) -> bool {
        self.has_run
    }

    /// Returns the text that tells the user why they are asked.
    pub(super) fn question(&self) -> Option<String> {
        self.asks().then(|| format!("A hook wants you to be asked. {}", self.reason))
    }

    /// Adds the verdict about one use of the call.
    fn add(&mut self, ctx: &ToolCtx, verdict: HookVerdict) {
        self.context.extend(Some(verdict.context).filter(|context| !context.is_empty()));
        if verdict.decision > self.decision {
            self.reason = verdict.reason;
        }
        self.decision = match (self.decision, verdict.decision) {
            // An allow counts only if the hooks allow every use.
            (None, Some(HookDecision::Allow)) if self.has_run => None,
            (Some(HookDecision::Allow), None) => None,
            (before, now) => before.max(now),
        };
        self.has_run = true;
        if verdict.updated_input.is_some() {
            self.updated_input = verdict.updated_input;
        }
        self.notes.extend(verdict.messages);
        self.notes.extend(verdict.problems);
        if let Some(why) = verdict.stop {
            ctx.env.ask_in_conversation(format!("A hook has ended this turn: {why}"));
        }
    }

    /// Adds the texts for the user and the model to the outcome of the call.
    pub(super) fn add_to(self, outcome: &mut ToolOutcome, when: &str) {
        if !self.context.is_empty() {
            outcome.add_line(&format!("[hook {when} the call] {}", self.context.join("\n")));
        }
        outcome.content.extend(self.notes.into_iter().map(CallContent::Text));
    }
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
        let touched = effects.iter().filter_map(|effect| match effect {
            Effect::Write(target) | Effect::Delete(target) => Some((target, true)),
            Effect::Read(target) => Some((target, false)),
            _ => None,
        });
        let roots = env.files.roots();
        let files = touched
            .map(|(target, is_changed)| TouchedFile { path: roots.client_path(target), is_changed })
            .collect();
        HookedTool {
            name: self.tool.name(),
            is_remote: self.tool.server().is_some(),
            arguments: &self.arguments,
            files,
        }
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

    /// Runs the hooks after a call, before its result is stored.
    pub(super) async fn after(
        self,
        ctx: &ToolCtx,
        effects: &[Effect],
        outcome: &mut ToolOutcome,
        (took, has_card): (Duration, bool),
    ) {
        let env = &ctx.env;
        let event = if outcome.ok { HookEvent::PostToolUse } else { HookEvent::PostToolUseFailure };
        if ctx.cancel.is_cancelled() || !env.has_hooks(event) {
            return;
        }
        let texts = env.texts_before_hooks(effects).await;
        let mut wish = HookWish::default();
        let status = has_card.then_some(ToolCallStatus::InProgress);
        for of in self.translated(env, effects).uses() {
            let further = if outcome.ok {
                json!({
                    "tool_response": tool_response(&of, &outcome.text, &outcome.raw),
                    "duration_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                })
            } else {
                json!({ "error": outcome.text, "is_interrupt": false })
            };
            let mut verdict =
                run_visibly(ctx, &self.occasion(event, &of, ctx, further), status).await;
            if let Some(why) = verdict.block.take() {
                outcome.append_note(format!("[hook] {why}"));
            }
            wish.add(ctx, verdict);
        }
        wish.add_to(outcome, "after");
        env.note_changed_by_hooks(texts, outcome).await;
    }
}

/// Runs the hooks of a call. If they take long, the call's card says so. `status` is the card's status, if it has one.
async fn run_visibly(
    ctx: &ToolCtx,
    occasion: &Occasion,
    status: Option<ToolCallStatus>,
) -> HookVerdict {
    let waiting = ctx.env.run_hooks_showing(occasion, &ctx.cancel, |waits: String| {
        if let Some(status) = status {
            let mut update = CallUpdate::new(ctx.call.clone(), status);
            update.content = Some(vec![CallContent::Text(waits)]);
            ctx.env.client.update(update.into());
        }
    });
    waiting.await
}

impl CallRunner {
    /// Runs the hooks of an event for each use that a call corresponds to, before the call runs. Returns an error if
    /// they refuse the call.
    async fn ask_about(
        &self,
        event: HookEvent,
        call: &PendingCall,
    ) -> Result<HookWish, ToolRefusal> {
        let mut wish = HookWish::default();
        let Some(hooked) = call.hooked.as_ref().filter(|_| self.env.has_hooks(event)) else {
            return Ok(wish);
        };
        let status = call.view.is_some().then_some(ToolCallStatus::Pending);
        for of in hooked.translated(&self.env, &call.plan.effects).uses() {
            let occasion = hooked.occasion(event, &of, &call.ctx, Value::Null);
            let verdict = run_visibly(&call.ctx, &occasion, status).await;
            if call.ctx.cancel.is_cancelled() {
                return Err(cancelled());
            }
            wish.add(&call.ctx, verdict);
        }
        if wish.decision == Some(HookDecision::Deny) {
            self.audit_hook(&call.plan.effects, &Decision::default(), false);
            return Err(refused_by_hook(&wish));
        }
        Ok(wish)
    }

    /// Runs the hooks before a call. Returns the call with their changes applied, and their combined replies.
    pub(super) async fn ask_hooks(
        &self,
        call: PendingCall,
        ticket: &AdmissionTicket,
    ) -> Result<(PendingCall, HookWish), ToolRefusal> {
        let mut wish = self.ask_about(HookEvent::PreToolUse, &call).await?;
        let Some((hooked, (input, by))) = call.hooked.as_ref().zip(wish.updated_input.take())
        else {
            return Ok((call, wish));
        };
        let changed = hooked.translated(&self.env, &call.plan.effects).updated_arguments(&input);
        let arguments = changed.map_err(|why| {
            let what =
                format!("The hook `{by}` wants to change this call, which is not possible: {why}");
            ToolRefusal::new(format!("{what}. It was not executed."), what)
        })?;
        wish.notes.push(format!("The hook `{by}` has changed this call before it ran."));
        let told = "The arguments of this call were changed by a hook of the user before it ran.";
        wish.context.push(told.to_owned());
        let tool = Arc::clone(&hooked.tool);
        Ok((self.with_arguments(call, tool, arguments, ticket).await?, wish))
    }

    /// Plans the call with other arguments, and shows them on its card.
    async fn with_arguments(
        &self,
        call: PendingCall,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        ticket: &AdmissionTicket,
    ) -> Result<PendingCall, ToolRefusal> {
        let raw_input = abridged_arguments(&arguments);
        let placeholders = FoundPlaceholders::find(&arguments);
        let recorded = call.arguments.is_some().then(|| arguments.clone());
        let hooked = HookedCall::of(&self.env, &tool, &arguments);
        let prepared = catch_panic(async { tool.prepare(arguments) }).await??;
        let (prepared, plan) = make_plan(prepared, &call.ctx).await?;
        let mut call = PendingCall {
            raw_input,
            arguments: recorded,
            placeholders,
            hooked,
            prepared,
            plan,
            ..call
        };
        if call.view.is_some() {
            let view = call.card_view();
            let mut update = CallUpdate::new(call.ctx.call.clone(), ToolCallStatus::Pending);
            update.view = Some(view.clone());
            update.raw_input = Some(call.raw_input.clone());
            self.env.client.update(update.into());
            call.view = Some(view);
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
        let wish = self.ask_about(HookEvent::PermissionRequest, call).await?;
        // The mode and the rules may have become stricter while the hooks ran.
        Ok(wish.allows() && self.may_hook_allow(request))
    }

    /// Returns true if a hook may answer this question with yes, because mode `auto` would not ask it either.
    pub(super) fn may_hook_allow(&self, request: &ApprovalRequest) -> bool {
        self.env.shared.mode.get() != Mode::Plan && self.is_bounded(request)
    }

    /// Returns the pass for a call that hooks allow.
    pub(super) fn allow_for_hook(&self, request: ApprovalRequest) -> Result<Pass, ToolRefusal> {
        self.audit_hook(request.effects(), request.decision(), true);
        let policy = self.env.shared.rules.get();
        let mode = self.env.shared.mode.get();
        let answer = PermissionAnswer::Chosen(ChoiceKind::AllowOnce);
        request.resolve(answer, &policy, mode, &mut self.grants.lock())
    }
}

fn refused_by_hook(wish: &HookWish) -> ToolRefusal {
    let mut told = format!(
        "A hook of the user refuses this. {}. It was not executed. Do not work around it.",
        wish.reason.trim_end_matches('.')
    );
    if !wish.context.is_empty() {
        text::add_line(&mut told, &wish.context.join("\n"));
    }
    let shown: Vec<_> = std::iter::once(format!("Refused by the hook {}", wish.reason))
        .chain(wish.notes.iter().cloned())
        .collect();
    ToolRefusal::new(told, shown.join("\n"))
}
