//! Runs tool calls. The calls of a turn and those of MCP clients take the same steps; only the caller
//! differs (`CallRunner::is_for_mcp_client`):
//!
//! 1. Parse the arguments.
//! 2. Plan the call: how it is shown, and what it may touch.
//! 3. Queue it behind the calls that came before.
//! 4. Wait until no earlier call can affect it. If it had to wait, plan it again.
//! 5. Judge the plan. What is denied ends here. Hooks may deny it too, or change it; then it is judged anew.
//! 6. Preview the change that it would make.
//! 7. Ask the user, if it needs a yes.
//! 8. After a yes, plan it again. It runs only if the plan still has the effects that were allowed.
//! 9. Run it, and record the files that it changes.
//! 10. Settle it: its outcome is stored before anybody sees it.

mod host_consent;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::edit_errors::EditedFiles;
use super::file_change_recorder::FileChangeRecorder;
use super::hidden_secrets::{self, FoundPlaceholders};
use super::hooks::{HookedCall, add_verdict};
use super::records::{RecordedCall, abridged_arguments};
use super::stopping::{unless_cancelled, wait_for_outcome};
use super::{AdmissionQueue, AdmissionTicket};
use crate::tools::{
    AnyTool, CallPlan, HAS_CHANGED, HelperRunner, PreparedCall, ToolCtx, ToolEnv, ToolOutcome,
};
use crate::turn::SharedGrants;
use tokio::task::spawn_blocking;
use turnwright_hooks::HookVerdict;
use turnwright_policy::permission::{self, ApprovalRequest, Judgement, Mode, Pass, PolicyRules};
use turnwright_store::CallOutcome;
use turnwright_types::client::{PermissionAnswer, PermissionRequest};
use turnwright_types::effect::{CallContent, CallView, Effect, ToolKind};
use turnwright_types::ids::CallId;
use turnwright_types::refusal::ToolRefusal;
use turnwright_workspace::checkpoint::CallChanges;

/// The result of a call that did not run because the user cancelled.
pub(super) const CANCELLED: &str = "Cancelled by the user before it was executed.";
/// The result when only this call was cancelled.
const CALL_CANCELLED: &str = "Nothing was executed: the user has cancelled this call, and not your turn. Do not repeat it or \
     work around it unless the user asks for that.";
/// The line that is added to the result of such a call that had begun.
const CALL_STOPPED: &str = "[the user has cancelled this call, and not your turn: do not repeat it unless the user \
                            asks for that]";
/// The result of a call that needs a permission which nobody can give.
const REJECTED_ALONE: &str = "Nobody can answer, so this call was rejected. Do not repeat it or work around it: choose \
                              another way.";
/// The result of a call whose paths resolve differently than when the user was asked.
const TARGETS_CHANGED: &str = "A path of this call was moved or replaced while permission was asked, so \
                               nothing was done. Look again and repeat the call if it is still right.";
/// The result of a call whose tool panicked.
const CRASHED: &str = "The tool crashed. This is a bug in turnwright.";

/// A call that is planned and has not run yet.
pub(in crate::turn) struct PendingCall {
    pub(super) name: String,
    pub(super) raw_input: Value,
    /// By these and the name, a recording finds the answers to the call; null where nothing is recorded or replayed.
    pub(super) arguments: Value,
    pub(super) placeholders: FoundPlaceholders,
    /// The call as hooks see it; `None` if there are none for it.
    pub(super) hooked: Option<HookedCall>,
    pub(super) prepared: Box<dyn PreparedCall>,
    /// How it is shown and what it may touch.
    pub(in crate::turn) plan: CallPlan,
    pub(super) ctx: ToolCtx,
    /// The card's view before the call runs; `None` if there is no card.
    pub(in crate::turn) view: Option<CallView>,
    /// Set for a call that the model has not made: told when it begins to run. The question about it looks like its
    /// card, which says why it is made.
    pub(in crate::turn) begins: Option<oneshot::Sender<()>>,
}

/// The outcome of a call that was denied, impossible or cancelled. Its card keeps the change that was planned.
pub(in crate::turn) fn refused(why: ToolRefusal, planned: Vec<CallContent>) -> CallOutcome {
    let mut outcome = ToolOutcome::failed(why);
    hidden_secrets::hide(&mut outcome);
    outcome.content.splice(..0, planned);
    outcome.settle()
}

/// A judgement, and what it depends on besides the plan.
struct Judged {
    judgement: Judgement,
    rules: Arc<PolicyRules>,
    mode: Mode,
    /// The revision of the grants.
    grants: u64,
}

/// A call that did not run because the user cancelled.
pub(in crate::turn) fn cancelled() -> ToolRefusal {
    ToolRefusal::cancelled(CANCELLED)
}

/// Runs calls under one policy and one set of grants. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct CallRunner {
    pub(crate) env: Arc<ToolEnv>,
    pub(in crate::turn) grants: SharedGrants,
    /// True for the calls of the model of an MCP client, of which only the audit log keeps a record. The others are
    /// calls of a session's model.
    pub(super) is_for_mcp_client: bool,
    queue: Arc<AdmissionQueue>,
    /// Runs the helpers that calls start; `None` in a helper and outside of a conversation.
    pub(in crate::turn) helpers: Option<Arc<dyn HelperRunner>>,
    /// Set for a helper, whose file changes belong to this turn of its session. It differs from the helper's own turn
    /// if a call waits for the helper.
    pub(in crate::turn) session_turn: Option<CancellationToken>,
}

impl CallRunner {
    pub(in crate::turn) fn new(
        env: Arc<ToolEnv>,
        grants: SharedGrants,
        queue: Arc<AdmissionQueue>,
    ) -> CallRunner {
        CallRunner {
            env,
            grants,
            is_for_mcp_client: false,
            queue,
            helpers: None,
            session_turn: None,
        }
    }

    /// The context of a call. `cancel` is cancelled with the call alone, and with its turn.
    pub(in crate::turn) fn ctx(
        &self,
        call: CallId,
        cancel: CancellationToken,
        turn: CancellationToken,
    ) -> ToolCtx {
        let env = Arc::clone(&self.env);
        let hosts = Arc::new(self.clone());
        let turn = self.session_turn.clone().unwrap_or(turn);
        let helpers = self.helpers.clone();
        ToolCtx { env, call, cancel, turn, helpers, hosts, takes_files: false }
    }

    /// Takes a call through steps 1 to 3: parses and plans it, and adds it to the end of the queue.
    pub(in crate::turn) async fn enqueue(
        &self,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        ctx: ToolCtx,
    ) -> Result<(PendingCall, AdmissionTicket), ToolRefusal> {
        let call = self.plan_call(tool, arguments, ctx).await?;
        // 3. Queue.
        let ticket = self.queue.enqueue(call.plan.effects.clone());
        Ok((call, ticket))
    }

    /// Takes a call through steps 1 and 2.
    pub(super) async fn plan_call(
        &self,
        tool: Arc<dyn AnyTool>,
        arguments: Value,
        ctx: ToolCtx,
    ) -> Result<PendingCall, ToolRefusal> {
        // 1. Parse.
        let name = tool.name().to_owned();
        let view = tool.pending_view();
        let raw_input = abridged_arguments(&arguments);
        let placeholders = FoundPlaceholders::find(&arguments);
        let hooked = HookedCall::of(&self.env, &tool, &arguments);
        let outside = &self.env.shared.process.outside;
        let kept = if outside.is_deterministic() { arguments.clone() } else { Value::Null };
        let prepared = catch_panic(async { tool.prepare(arguments) }).await??;
        // 2. Plan.
        let (prepared, plan) = make_plan(prepared, &ctx).await?;
        Ok(PendingCall {
            name,
            raw_input,
            arguments: kept,
            placeholders,
            hooked,
            prepared,
            plan,
            ctx,
            view,
            begins: None,
        })
    }

    /// Takes a queued call to its end. The outcome is stored if the call has run.
    pub(in crate::turn) async fn run(
        self,
        call: PendingCall,
        ticket: AdmissionTicket,
    ) -> CallOutcome {
        let cancel = call.ctx.cancel.clone();
        let turn = call.ctx.turn.clone();
        let mut planned = Vec::new();
        match self.attempt(call, ticket, &mut planned).await {
            Ok(outcome) => outcome,
            // The text of a cancelled step about itself is of no interest.
            Err(_) if cancel.is_cancelled() => {
                let text = if turn.is_cancelled() { CANCELLED } else { CALL_CANCELLED };
                let outcome = refused(ToolRefusal::cancelled(text), planned);
                CallOutcome { is_cancelled: true, ..outcome }
            }
            Err(why) => refused(why, planned),
        }
    }

    /// Takes a queued call through steps 4 to 10. `planned` becomes the change that its card keeps if it is not made.
    async fn attempt(
        &self,
        call: PendingCall,
        ticket: AdmissionTicket,
        planned: &mut Vec<CallContent>,
    ) -> Result<CallOutcome, ToolRefusal> {
        let cancel = call.ctx.cancel.clone();
        // 4. Wait.
        let mut call = self.admit(call, &ticket).await?;
        // 5. Judge.
        let mut judged = self.judge_undenied(&call.plan)?;
        let mut verdict = HookVerdict::default();
        if call.hooked.is_some() {
            (call, verdict) = Box::pin(self.ask_hooks(call, &ticket)).await?;
            judged = self.judge_undenied(&call.plan)?;
        }
        // 6. Preview.
        let preview = call.preview().await?;
        // 7. Ask.
        let authorised = self.authorise(&call, judged, &verdict, &preview, &ticket).await;
        *planned = call.planned_change(preview);
        let (pass, was_asked) = authorised?;
        ticket.start_running(call.prepared.runs_calls());
        // A call that has not started by now never runs, even if a yes arrives late (R-CANCEL-5).
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        self.audit_run(&pass);
        // 8. and 9. Plan again, and run.
        let started = Instant::now();
        if let Some(begins) = call.begins.take() {
            begins.send(()).ok();
        }
        let id = call.ctx.call.clone();
        let name = call.name.clone();
        let view = call.view.clone();
        let executed = call.execute(pass, was_asked).await;
        let (mut outcome, changes) =
            executed.unwrap_or_else(|why| (ToolOutcome::failed(why), CallChanges::default()));
        let duration = Some(started.elapsed());
        add_verdict(&mut outcome, verdict, "before");
        let has_diff = outcome.content.iter().any(|part| matches!(part, CallContent::Diff { .. }));
        if !outcome.ok && !has_diff {
            outcome.content.splice(..0, planned.drain(..));
        }
        // 10. Settle.
        let is_cancelled = cancel.is_cancelled() && !outcome.ok;
        let settled = CallOutcome { is_cancelled, duration, ..outcome.settle() };
        let stored = CallOutcome {
            file_changes: changes.files,
            file_contents: changes.contents,
            ..settled.to_stored(&name, view.as_ref())
        };
        self.env.log.finish_call(&id, stored).written().await;
        Ok(settled)
    }

    /// Waits until the call may start. It is planned again if it had to wait.
    pub(super) async fn admit(
        &self,
        mut call: PendingCall,
        ticket: &AdmissionTicket,
    ) -> Result<PendingCall, ToolRefusal> {
        let cancel = call.ctx.cancel.clone();
        loop {
            let admission = unless_cancelled(&cancel, ticket.wait_for_admission());
            let has_waited = admission.await.ok_or_else(cancelled)?;
            // A diff is as large as its file, and an answer may have many calls: while the client
            // does not read, no further call starts.
            let room = unless_cancelled(&cancel, self.env.client.wait_for_capacity());
            room.await.ok_or_else(cancelled)?;
            if !has_waited {
                return Ok(call);
            }
            call = call.plan_again().await?;
            if ticket.readmit(&call.plan.effects) {
                return Ok(call);
            }
        }
    }

    /// Judges a call. One that is denied ends.
    fn judge_undenied(&self, plan: &CallPlan) -> Result<Judged, ToolRefusal> {
        let judged = self.judge(plan);
        match judged.judgement {
            Judgement::Denied(denial) => Err(self.deny(denial)),
            _ => Ok(judged),
        }
    }

    fn judge(&self, plan: &CallPlan) -> Judged {
        let rules = self.env.shared.rules.get();
        let mode = self.env.mode();
        let grants = self.grants.lock();
        let judgement = permission::judge(&rules, mode, &grants, plan.effects.clone());
        Judged { judgement, rules, mode, grants: grants.revision() }
    }

    /// Judges a call again if that may come to something else by now.
    fn judge_again(&self, judged: Judged, plan: &CallPlan) -> Judged {
        let is_current = Arc::ptr_eq(&judged.rules, &self.env.shared.rules.get())
            && judged.mode == self.env.mode()
            && judged.grants == self.grants.lock().revision();
        if is_current { judged } else { self.judge(plan) }
    }

    /// Gets the pass of a call now that its preview is known, and asks the user if need be. Returns the
    /// pass and whether the user was asked.
    async fn authorise(
        &self,
        call: &PendingCall,
        mut judged: Judged,
        hooks: &HookVerdict,
        preview: &[CallContent],
        ticket: &AdmissionTicket,
    ) -> Result<(Pass, bool), ToolRefusal> {
        if matches!(judged.judgement, Judgement::Allowed(_)) {
            // The rules may have become stricter during the preview.
            judged = self.judge_again(judged, &call.plan);
        }
        if matches!(judged.judgement, Judgement::NeedsApproval(_)) || hooks.asks() {
            let turn = unless_cancelled(&call.ctx.cancel, ticket.wait_to_ask());
            turn.await.ok_or_else(cancelled)?;
            // The answer to an earlier question may decide this call.
            judged = self.judge_again(judged, &call.plan);
        }
        let request = match judged.judgement {
            Judgement::Denied(denial) => return Err(self.deny(denial)),
            // While hooks run, the files may change.
            Judgement::Allowed(pass) if !hooks.asks() => return Ok((pass, hooks.has_run)),
            Judgement::Allowed(pass) => ApprovalRequest::on_demand(pass),
            Judgement::NeedsApproval(request) => request,
        };
        if hooks.allows() && self.may_hook_allow(&request) {
            return Ok((self.allow_for_hook(request)?, true));
        }
        let asked = format!("A hook wants you to be asked. {}", hooks.reason);
        let reason = hooks.asks().then_some(CallContent::Text(asked));
        let content = preview.iter().cloned().chain(reason).collect();
        Ok((self.ask(call, request, content).await?, true))
    }

    /// Returns true if mode `auto` would not ask.
    pub(super) fn is_bounded(&self, request: &ApprovalRequest) -> bool {
        let policy = self.env.shared.rules.get();
        let max_mode = self.env.shared.mode.max_mode();
        request.auto_mode_allows(&policy, max_mode, &self.grants.lock())
    }

    /// Asks the user about a call.
    async fn ask(
        &self,
        call: &PendingCall,
        request: ApprovalRequest,
        content: Vec<CallContent>,
    ) -> Result<Pass, ToolRefusal> {
        let cancel = &call.ctx.cancel;
        if call.hooked.is_some() && Box::pin(self.hooks_allow(call, &request)).await? {
            return self.allow_for_hook(request);
        }
        let policy = self.env.shared.rules.get();
        let mode = self.env.mode();
        let is_bounded = self.is_bounded(&request);
        let question = call.question(&request, content, &policy, mode);
        self.env.notify_hooks("permission_prompt", &question.view.title, Duration::ZERO);
        let question = PermissionRequest { is_bounded, ..question };
        let answer = self.ask_client(question, &call.ctx).await;
        if cancel.is_cancelled() && !self.is_for_mcp_client {
            return Err(cancelled());
        }
        self.resolve(request, answer)
    }

    /// Waits for the answer to a question, and ends the turn if that is the answer.
    async fn ask_client(&self, question: PermissionRequest, ctx: &ToolCtx) -> PermissionAnswer {
        let asking = self.env.client.request_permission(question);
        let answered = unless_cancelled(&ctx.cancel, asking).await;
        let answer = answered.unwrap_or(PermissionAnswer::Cancelled);
        // The client says that the user has ended the turn. Its `session/cancel` may come later.
        if matches!(answer, PermissionAnswer::Cancelled)
            && !ctx.cancel.is_cancelled()
            && !self.is_for_mcp_client
        {
            ctx.turn.cancel();
        }
        answer
    }

    fn resolve(
        &self,
        request: ApprovalRequest,
        answer: PermissionAnswer,
    ) -> Result<Pass, ToolRefusal> {
        self.audit_answer(&request, &answer);
        let hint = match answer {
            PermissionAnswer::Unclear(_) if self.is_for_mcp_client => self.allow_hint(&request),
            _ => String::new(),
        };
        let policy = self.env.shared.rules.get();
        let mode = self.env.mode();
        let resolved = request.resolve(answer, &policy, mode, &mut self.grants.lock());
        resolved.map_err(|refusal| {
            if self.env.is_alone && refusal == ToolRefusal::rejected() {
                return ToolRefusal { for_model: REJECTED_ALONE.to_owned(), ..refusal };
            }
            ToolRefusal { for_model: refusal.for_model + &hint, for_user: refusal.for_user + &hint }
        })
    }
}

impl PendingCall {
    /// The view for the card of the call, now that it is planned.
    pub(super) fn card_view(&self) -> CallView {
        self.recorded().view(self.plan.view.clone())
    }

    fn recorded(&self) -> RecordedCall<'_> {
        RecordedCall::of(&self.ctx, &self.name, &self.arguments)
    }

    /// Plans the call by what is on the disk now.
    async fn plan_again(self) -> Result<PendingCall, ToolRefusal> {
        let (prepared, plan) = make_plan(self.prepared, &self.ctx).await?;
        Ok(PendingCall { prepared, plan, ..self })
    }

    /// Plans the call again and fails if the effects are no longer those that the user has allowed.
    async fn plan_unchanged(self, pass: &Pass) -> Result<PendingCall, ToolRefusal> {
        let call = self.plan_again().await?;
        if call.plan.effects == pass.effects() {
            return Ok(call);
        }
        let is_remote = call.plan.effects.iter().any(|effect| matches!(effect, Effect::Remote(_)));
        Err(if is_remote { HAS_CHANGED } else { TARGETS_CHANGED }.into())
    }

    /// The change that the call was going to make, which its card keeps if it is not made.
    fn planned_change(&self, preview: Vec<CallContent>) -> Vec<CallContent> {
        let kind = self.view.as_ref().map(|view| view.kind);
        let is_change = matches!(kind, Some(ToolKind::Edit | ToolKind::Delete | ToolKind::Move));
        if is_change { preview } else { Vec::new() }
    }

    /// Asks the tool what the call would do. Changes nothing.
    async fn preview(&mut self) -> Result<Vec<CallContent>, ToolRefusal> {
        if let Some(preview) = self.recorded().recorded_preview() {
            return preview;
        }
        let cancel = self.ctx.cancel.clone();
        let previewing = async { self.prepared.preview(&self.ctx).await };
        let mut preview = match cancel.run_until_cancelled(catch_panic(previewing)).await {
            Some(content) => content?,
            None => return Err(cancelled()),
        };
        let changes = if preview.is_ok() { self.prepared.expected_changes() } else { Vec::new() };
        let is_misplaced = self.placeholders.are_misplaced(&changes);
        if is_misplaced && !self.plan.effects.iter().all(is_droppable) {
            preview = Err(hidden_secrets::refusal());
        }
        self.recorded().record_preview(&preview);
        preview
    }

    /// Builds the permission question: the actual diff or command, and the assessment of its
    /// effects.
    fn question(
        &self,
        request: &ApprovalRequest,
        mut content: Vec<CallContent>,
        policy: &PolicyRules,
        mode: Mode,
    ) -> PermissionRequest {
        let is_deterministic = self.ctx.env.shared.process.outside.is_deterministic();
        let mut view = match &self.view {
            Some(shown) if is_deterministic || self.begins.is_some() => shown.clone(),
            _ => self.plan.view.clone(),
        };
        view.title = request.title(policy, view.title);
        let description = request.description(policy, mode);
        if !description.is_empty() {
            content.push(CallContent::Text(description));
        }
        PermissionRequest {
            call: self.ctx.call.clone(),
            name: self.name.clone(),
            view,
            content,
            raw_input: self.raw_input.clone(),
            choices: request.choices(),
            is_bounded: false,
            in_background: false,
        }
    }

    /// Runs the call to its outcome, also if it panics or is cancelled. Returns the outcome and the
    /// file changes.
    async fn execute(
        mut self,
        pass: Pass,
        was_asked: bool,
    ) -> Result<(ToolOutcome, CallChanges), ToolRefusal> {
        // 8. Plan again.
        if was_asked {
            self = self.plan_unchanged(&pass).await?;
        }
        // 9. Run.
        let PendingCall { name, arguments, mut prepared, ctx, view, hooked, .. } = self;
        let call = RecordedCall::of(&ctx, &name, &arguments);
        let is_played = call.is_played();
        let effects = pass.effects().to_vec();
        let reads_only = effects.iter().all(is_droppable);
        let mut recorder = FileChangeRecorder::default();
        let mut edited = EditedFiles::default();
        if !reads_only && !is_played {
            edited = EditedFiles::begin(&ctx, view.as_ref(), &effects).await;
            let begun = FileChangeRecorder::begin(prepared, &pass, &ctx).await;
            (prepared, recorder) = begun.ok_or(CRASHED)?;
        }
        if view.is_some() {
            ctx.update_card(|_| ());
        }
        let runs_calls = prepared.runs_calls();
        let started = Instant::now();
        let running = catch_panic(async {
            if is_played { call.recorded_outcome().await } else { prepared.run(pass, &ctx).await }
        });
        let mut outcome = wait_for_outcome(running, &ctx, reads_only, runs_calls).await;
        if !outcome.ok && ctx.cancel.is_cancelled() && !ctx.turn.is_cancelled() {
            outcome.add_line(CALL_STOPPED);
        }
        if let Some(hooked) = hooked.filter(|_| !is_played) {
            // Their changes in the files of the call belong to its change.
            let took = started.elapsed();
            Box::pin(hooked.run_hooks_after(&ctx, &effects, &mut outcome, took)).await;
        }
        let changes = recorder.end(&ctx, &mut outcome).await;
        edited.report_errors(&ctx, &mut outcome, &changes).await;
        hidden_secrets::hide_placed_keys(&mut outcome, &effects);
        call.record_outcome(&outcome);
        hidden_secrets::hide(&mut outcome);
        Ok((outcome, changes))
    }
}

/// Plans a call on a blocking thread. A cancel does not wait for a disk that does not answer.
async fn make_plan(
    mut prepared: Box<dyn PreparedCall>,
    ctx: &ToolCtx,
) -> Result<(Box<dyn PreparedCall>, CallPlan), ToolRefusal> {
    tracing::trace!(target: "turnwright::plan", call = ctx.call.as_str());
    let env = Arc::clone(&ctx.env);
    let planning = spawn_blocking(move || {
        let plan = prepared.plan(&env);
        (prepared, plan)
    });
    match ctx.cancel.run_until_cancelled(planning).await {
        Some(Ok(planned)) => Ok(planned),
        Some(Err(_)) => Err(CRASHED.into()),
        None => Err(cancelled()),
    }
}

/// Catches a panic of the tool: a bug in a tool must not end the turn.
async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, ToolRefusal> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|_| CRASHED.into())
}

fn is_droppable(effect: &Effect) -> bool {
    match effect {
        Effect::Read(_) | Effect::Signal { .. } | Effect::SessionState => true,
        Effect::Write(_)
        | Effect::Delete(_)
        | Effect::Exec(_)
        | Effect::Input { .. }
        | Effect::Fetch { .. }
        | Effect::Search { .. }
        | Effect::Remote(_) => false,
    }
}
