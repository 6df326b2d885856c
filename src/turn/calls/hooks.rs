//! The hooks of a call: those before it may refuse it, want a question, spare one or change its arguments; those after it
//! may change the files that it has written, and say something about it. An allow of a hook never gives more than mode
//! `auto` would.

use std::pin::pin;
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

/// The time after which a card says that its call waits for a hook.
const PATIENCE: Duration = Duration::from_secs(1);

/// A call for which there are hooks.
#[derive(Clone)]
pub(super) struct HookedCall {
    tool: Arc<dyn AnyTool>,
    arguments: Value,
}

/// The wishes of hooks about a call that they do not refuse.
#[derive(Debug, Default)]
pub(super) struct HookWish {
    decision: Option<HookDecision>,
    reason: String,
    /// True if any have run.
    has_run: bool,
    /// A text for the model, beside the result.
    context: String,
    /// Lines for the card.
    notes: Vec<String>,
}

impl HookWish {
    /// The user is to be asked, whatever the rules say.
    pub(super) fn asks(&self) -> bool {
        self.decision == Some(HookDecision::Ask)
    }

    pub(super) fn allows(&self) -> bool {
        self.decision == Some(HookDecision::Allow)
    }

    pub(super) fn has_run(&self) -> bool {
        self.has_run
    }

    /// Why the user is asked, for the question.
    pub(super) fn question(&self) -> Option<String> {
        self.asks().then(|| format!("A hook wants you to be asked. {}", self.reason))
    }

    /// Adds what the user and the model have to know to the outcome of the call.
    pub(super) fn add_to(self, outcome: &mut ToolOutcome) {
        if !self.context.is_empty() {
            outcome.add_line(&format!("[hook before the call] {}", self.context));
        }
        outcome.content.extend(self.notes.into_iter().map(CallContent::Text));
    }
}

impl HookedCall {
    /// The call of a tool, if there are hooks for calls.
    pub(super) fn of(
        env: &ToolEnv,
        tool: &Arc<dyn AnyTool>,
        arguments: &Value,
    ) -> Option<HookedCall> {
        let mut events = HookEvent::ALL.into_iter().filter(|event| event.is_about_tool());
        let is_hooked = events.any(|event| env.has_hooks(event));
        is_hooked.then(|| HookedCall { tool: Arc::clone(tool), arguments: arguments.clone() })
    }

    /// Does something with the call in the words that handlers know.
    fn translated<T>(
        &self,
        env: &ToolEnv,
        effects: &[Effect],
        translate: impl FnOnce(HookedTool<'_>) -> T,
    ) -> T {
        let roots = env.files.roots();
        let touched = effects.iter().filter_map(|effect| match effect {
            Effect::Write(target) | Effect::Delete(target) => Some((target, true)),
            Effect::Read(target) => Some((target, false)),
            _ => None,
        });
        let files: Vec<_> = touched
            .map(|(target, is_changed)| TouchedFile { path: roots.client_path(target), is_changed })
            .collect();
        translate(HookedTool {
            name: self.tool.name(),
            is_remote: self.tool.server().is_some(),
            arguments: &self.arguments,
            files: &files,
        })
    }

    fn uses(&self, env: &ToolEnv, effects: &[Effect]) -> Vec<ToolUse> {
        self.translated(env, effects, |tool| tool.uses())
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

    /// Runs the hooks after a call that has run, before its result is stored.
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
        let mut notes = HookWish::default();
        for of in self.uses(env, effects) {
            let further = if outcome.ok {
                json!({
                    "tool_response": tool_response(&of, &outcome.text, &outcome.raw, false),
                    "duration_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                })
            } else {
                json!({ "error": outcome.text, "is_interrupt": false })
            };
            let occasion = self.occasion(event, &of, ctx, further);
            let status = has_card.then_some(ToolCallStatus::InProgress);
            let verdict = run_visibly(ctx, &occasion, status).await;
            if let Some(why) = &verdict.block {
                outcome.append_note(format!("[hook] {why}"));
            }
            notes.take_notes(ctx, verdict);
        }
        if !notes.context.is_empty() {
            outcome.add_line(&format!("[hook after the call] {}", notes.context));
        }
        outcome.content.extend(notes.notes.into_iter().map(CallContent::Text));
        env.note_changed_by_hooks(texts, outcome).await;
    }
}

impl HookWish {
    /// Takes over all of a verdict but its change of the input.
    fn take_notes(&mut self, ctx: &ToolCtx, verdict: HookVerdict) {
        if !verdict.context.is_empty() {
            text::add_line(&mut self.context, &verdict.context);
        }
        if verdict.decision > self.decision {
            self.decision = verdict.decision;
            self.reason = verdict.reason;
        }
        self.notes.extend(verdict.messages);
        self.notes.extend(verdict.problems);
        if let Some(why) = verdict.stop {
            ctx.env.ask_in_conversation(format!("A hook has ended this turn: {why}"));
        }
    }
}

/// Runs the hooks of a call. If they take long, its card, which has this status, says so.
async fn run_visibly(
    ctx: &ToolCtx,
    occasion: &Occasion,
    status: Option<ToolCallStatus>,
) -> HookVerdict {
    let mut running = pin!(ctx.env.run_hooks(occasion, &ctx.cancel));
    tokio::select! {
        biased;
        verdict = &mut running => return verdict,
        () = tokio::time::sleep(PATIENCE) => {}
    }
    if let Some(status) = status {
        let names = ctx.env.shared.hooks.set.get().names(occasion).join(", ");
        let mut update = CallUpdate::new(ctx.call.clone(), status);
        update.content = Some(vec![CallContent::Text(format!("Waiting for the hook {names}"))]);
        ctx.env.client.update(update.into());
    }
    running.await
}

impl CallRunner {
    /// Runs the hooks before a call. Returns the call as they have changed it, and what they want.
    pub(super) async fn ask_hooks(
        &self,
        call: PendingCall,
        ticket: &AdmissionTicket,
    ) -> Result<(PendingCall, HookWish), ToolRefusal> {
        let mut wish = HookWish::default();
        let Some(hooked) = call.hooked.clone().filter(|_| self.has_pre_hooks()) else {
            return Ok((call, wish));
        };
        let uses = hooked.uses(&self.env, &call.plan.effects);
        let status = call.view.is_some().then_some(ToolCallStatus::Pending);
        let mut update = None;
        let mut allows_all = true;
        for of in &uses {
            let occasion = hooked.occasion(HookEvent::PreToolUse, of, &call.ctx, Value::Null);
            let mut verdict = run_visibly(&call.ctx, &occasion, status).await;
            if call.ctx.cancel.is_cancelled() {
                return Err(cancelled());
            }
            wish.has_run = true;
            allows_all &= verdict.decision == Some(HookDecision::Allow);
            update = verdict.updated_input.take().or(update);
            wish.take_notes(&call.ctx, verdict);
        }
        if wish.allows() && !allows_all {
            wish.decision = None;
        }
        if wish.decision == Some(HookDecision::Deny) {
            self.audit_hook(&call.plan.effects, &Decision::default(), false);
            return Err(refused_by_hook(&wish));
        }
        let Some((input, by)) = update else { return Ok((call, wish)) };
        let translated = match uses.as_slice() {
            [of] => hooked.translated(&self.env, &call.plan.effects, |tool| {
                tool.updated_arguments(of, &input)
            }),
            _ => Err("it touches several files".to_owned()),
        };
        let arguments = translated.map_err(|why| {
            let what =
                format!("The hook `{by}` wants to change this call, which is not possible: {why}");
            ToolRefusal::new(format!("{what}. It was not executed."), what)
        })?;
        wish.notes.push(format!("The hook `{by}` has changed this call before it ran."));
        let told = "The arguments of this call were changed by a hook of the user before it ran.";
        text::add_line(&mut wish.context, told);
        Ok((self.with_arguments(call, hooked.tool, arguments, ticket).await?, wish))
    }

    fn has_pre_hooks(&self) -> bool {
        self.env.has_hooks(HookEvent::PreToolUse)
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
        let hooked = HookedCall { tool: Arc::clone(&tool), arguments: arguments.clone() };
        let prepared = catch_panic(async { tool.prepare(arguments) }).await??;
        let (prepared, plan) = make_plan(prepared, &call.ctx).await?;
        let mut call = PendingCall {
            raw_input,
            arguments: recorded,
            placeholders,
            hooked: Some(hooked),
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

    /// Returns true if hooks answer the question about a call with a yes that counts.
    pub(super) async fn hooks_allow(
        &self,
        call: &PendingCall,
        may_allow: bool,
    ) -> Result<bool, ToolRefusal> {
        let Some(hooked) =
            call.hooked.as_ref().filter(|_| self.env.has_hooks(HookEvent::PermissionRequest))
        else {
            return Ok(false);
        };
        let mut wish = HookWish::default();
        let mut allows_all = true;
        let mut must_end = false;
        let status = call.view.is_some().then_some(ToolCallStatus::Pending);
        for of in hooked.uses(&self.env, &call.plan.effects) {
            let event = HookEvent::PermissionRequest;
            let occasion = hooked.occasion(event, &of, &call.ctx, Value::Null);
            let mut verdict = run_visibly(&call.ctx, &occasion, status).await;
            if call.ctx.cancel.is_cancelled() {
                return Err(cancelled());
            }
            allows_all &= verdict.decision == Some(HookDecision::Allow);
            must_end |= verdict.stop.take().is_some();
            wish.take_notes(&call.ctx, verdict);
        }
        if wish.decision == Some(HookDecision::Deny) {
            self.audit_hook(&call.plan.effects, &Decision::default(), false);
            if must_end {
                call.ctx.turn.cancel();
            }
            return Err(refused_by_hook(&wish));
        }
        Ok(allows_all && may_allow)
    }

    /// Returns true if a hook may answer this question with yes: mode `auto` would not ask it.
    pub(super) fn may_hook_allow(&self, request: &ApprovalRequest) -> bool {
        self.env.shared.mode.get() != Mode::Plan && self.is_bounded(request)
    }

    /// Gets the pass of a call that hooks allow.
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
        text::add_line(&mut told, &wish.context);
    }
    let shown: Vec<_> = std::iter::once(format!("Refused by the hook {}", wish.reason))
        .chain(wish.notes.iter().cloned())
        .collect();
    ToolRefusal::new(told, shown.join("\n"))
}
