//! The client of a helper. What the helper does becomes the content of the card of its call, and its
//! questions come to the user under the session and the call that have started it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::tools::{HelperTask, QuestionTurn, ToolCtx, ToolEnv};
use turnwright_types::client::{
    ChoiceKind, Client, ElicitationModes, FormOutcome, PermissionAnswer, PermissionRequest,
    ServerForm, StartedHelper, UserQuestion, UserReply,
};
use turnwright_types::effect::{CallContent, CallView, escape_hidden_line};
use turnwright_types::ids::{CallId, SessionId};
use turnwright_types::message::StopReason;
use turnwright_types::text;
use turnwright_types::update::{CallUpdate, ToolCallStatus, Update};

/// The most characters of a helper's step.
const MAX_STEP_CHARS: usize = 120;

/// The reason why a call that needs a permission does not run in a helper in the background.
const NOBODY_TO_ASK: &str = "a helper in the background cannot ask the user when no turn runs; do without \
                             it, and say so in your answer";

pub(super) struct HelperClient {
    /// The environment of the session that it belongs to.
    session: Arc<ToolEnv>,
    /// The session of its conversation.
    id: SessionId,
    /// Cancelled with this helper alone, and with all that ends it.
    pub(super) cancel: CancellationToken,
    /// The turn of the session.
    pub(super) turn: CancellationToken,
    /// The call that has started it, and its card.
    pub(super) call: CallId,
    view: CallView,
    /// The type of the helper.
    name: String,
    in_background: bool,
    /// The cards of questions so far.
    questions: AtomicU32,
    // Held only to copy a few values.
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The current step of the helper.
    step: String,
    /// Its tool calls so far.
    calls: u32,
    tokens: u64,
    /// True if the card shows something else.
    is_new: bool,
    /// The questions that the user has not answered yet.
    open_questions: u32,
}

impl HelperClient {
    /// `id` is the session of the helper's conversation, and `ctx` belongs to the call that has started it. With a
    /// helper in the background, the conversation goes on after the answer to the prompt; no other session sends
    /// updates then.
    pub(in crate::turn) fn new(ctx: ToolCtx, task: &HelperTask, id: SessionId) -> HelperClient {
        let ToolCtx { env: session, call, turn, .. } = ctx;
        let cancel = ctx.cancel.child_token();
        let purpose = &task.kind.description;
        let description = if purpose.is_empty() { &task.title } else { purpose };
        let started = StartedHelper {
            session: id.clone(),
            title: task.view.title.clone(),
            description: description.clone(),
            task: task.prompt.clone(),
            in_background: task.in_background,
        };
        session.helpers.add(started, cancel.clone(), session.client.as_ref());
        HelperClient {
            session,
            id,
            cancel,
            turn,
            call,
            view: task.view.clone(),
            name: task.kind.name.clone(),
            in_background: task.in_background,
            questions: AtomicU32::new(0),
            progress: Mutex::default(),
        }
    }

    /// The helper has ended, with an answer if there is one, or has failed for the reason given.
    pub(super) fn end(&self, end: Result<StopReason, String>, answer: Option<&str>) {
        if let Some(shown) = self.session.helpers.remove(&self.id) {
            shown.end(end, answer);
        }
    }

    /// Refers to the conversation on the card, for a client that shows it.
    pub(super) fn reference(&self) -> CallContent {
        CallContent::Session(self.id.clone())
    }

    /// The tool calls so far.
    pub(super) fn calls(&self) -> u32 {
        self.progress.lock().calls
    }

    /// Shows what has changed since the last call on the card. `tokens` are those used so far.
    pub(super) fn show_progress(&self, tokens: u64) {
        let mut progress = self.progress.lock();
        progress.is_new |= progress.tokens != tokens;
        progress.tokens = tokens;
        // The card of a helper in the background has its final state. A client that shows a question on the card takes
        // it for answered once the card changes.
        let is_fixed = self.in_background || progress.open_questions > 0;
        if is_fixed || !std::mem::take(&mut progress.is_new) {
            return;
        }
        let Progress { step, calls, .. } = &*progress;
        let text = format!("{step}\n\n{}", work_done(*calls, tokens));
        drop(progress);
        let mut update = CallUpdate::new(self.call.clone(), ToolCallStatus::InProgress);
        update.view = Some(self.view.clone());
        update.content = Some(vec![CallContent::Text(text), self.reference()]);
        self.session.client.update(update.into());
    }

    /// Asks while a turn of the session runs. The card of the call that has started the helper has its
    /// final state, so the question gets one of its own.
    async fn ask_in_background(&self, mut request: PermissionRequest) -> PermissionAnswer {
        let Some(turn) = self.session.helpers.join_turn() else { return nobody_to_ask() };
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        request.call = CallId::from(format!("{}-question-{number}", self.call));
        request.in_background = true;
        let client = &self.session.client;
        client.update(Update::ToolCall {
            id: request.call.clone(),
            name: request.name.clone(),
            view: request.view.clone(),
            raw_input: Some(request.raw_input.clone()),
            can_cancel: false,
        });
        let mut card = QuestionCard { client, call: request.call.clone(), is_allowed: false, turn };
        let asking = self.wait_for_user(client.request_permission(request));
        let answer = card.turn.cancel.run_until_cancelled(asking).await;
        card.is_allowed = matches!(
            answer,
            Some(PermissionAnswer::Chosen(
                ChoiceKind::AllowOnce
                    | ChoiceKind::AllowSession
                    | ChoiceKind::AllowSessionForAll
                    | ChoiceKind::AllowAllCommands
            ))
        );
        answer.unwrap_or_else(nobody_to_ask)
    }

    /// Waits for the user's answer to a question.
    async fn wait_for_user<T>(&self, answer: BoxFuture<'_, T>) -> T {
        self.session.helpers.count_question(&self.id, true);
        self.progress.lock().open_questions += 1;
        let _open = OpenQuestion(self);
        answer.await
    }

    fn set_step(&self, step: &str, new_calls: u32) {
        let line = text::cut(escape_hidden_line(text::first_line(step)), MAX_STEP_CHARS);
        let mut progress = self.progress.lock();
        progress.is_new |= progress.step != line || new_calls > 0;
        progress.step = line;
        progress.calls += new_calls;
    }
}

fn nobody_to_ask() -> PermissionAnswer {
    PermissionAnswer::Unclear(NOBODY_TO_ASK.to_owned())
}

/// The tool calls and tokens of a helper in words.
pub(super) fn work_done(calls: u32, tokens: u64) -> String {
    format!("{}, {tokens} tokens", text::counted(calls as usize, "tool call"))
}

/// The card of a question, which gets its final state however the question ends.
struct QuestionCard<'a> {
    client: &'a Arc<dyn Client>,
    call: CallId,
    is_allowed: bool,
    /// The turn goes on until the card is closed.
    turn: QuestionTurn,
}

impl Drop for QuestionCard<'_> {
    fn drop(&mut self) {
        let states: &[_] = if self.is_allowed {
            &[ToolCallStatus::InProgress, ToolCallStatus::Completed]
        } else {
            &[ToolCallStatus::Failed]
        };
        for state in states {
            let mut update = CallUpdate::new(self.call.clone(), *state);
            let text = if self.is_allowed { "Allowed" } else { "Not allowed" };
            update.content = Some(vec![CallContent::Text(text.to_owned())]);
            self.client.update(update.into());
        }
    }
}

/// A question of a helper, which is open until this is dropped.
struct OpenQuestion<'a>(&'a HelperClient);

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.0.session.helpers.count_question(&self.0.id, false);
        let mut progress = self.0.progress.lock();
        progress.open_questions -= 1;
        progress.is_new = true;
    }
}

impl Drop for HelperClient {
    /// A helper that was dropped or has panicked must not seem to run.
    fn drop(&mut self) {
        let end = if self.cancel.is_cancelled() {
            Ok(StopReason::Cancelled)
        } else {
            Err("The helper has ended unexpectedly.".to_owned())
        };
        self.end(end, None);
    }
}

impl Client for HelperClient {
    fn update(&self, update: Update) {
        if !matches!(update, Update::Notice(_) | Update::Cursor { .. }) {
            self.session.helpers.show(&self.id, &update);
        }
        match update {
            Update::ToolCall { view, .. } => self.set_step(&view.title, 1),
            Update::CallUpdate(call) => {
                if let Some(view) = &call.view {
                    self.set_step(&view.title, 0);
                }
            }
            Update::AgentThought { .. } => self.set_step("Thinking", 0),
            Update::AgentText { .. } => self.set_step("Writing", 0),
            Update::Notice(text) => {
                let text = format!("{}: {text}", self.name);
                if self.in_background {
                    self.session.helpers.add_notice(text);
                } else {
                    self.session.client.update(Update::Notice(text));
                }
            }
            // All other updates are about the session, or about the helper's own plan and context window.
            _ => {}
        }
    }

    fn wait_for_capacity(&self) -> BoxFuture<'_, ()> {
        self.session.client.wait_for_capacity()
    }

    fn request_permission(
        &self,
        mut request: PermissionRequest,
    ) -> BoxFuture<'_, PermissionAnswer> {
        request.view.title = format!("{}: {}", self.name, request.view.title);
        if self.in_background {
            return Box::pin(self.ask_in_background(request));
        }
        request.call = self.call.clone();
        Box::pin(self.wait_for_user(self.session.client.request_permission(request)))
    }

    fn ask_user(&self, _: UserQuestion) -> BoxFuture<'_, UserReply> {
        Box::pin(std::future::ready(UserReply::Unsupported))
    }

    fn elicitation_modes(&self) -> ElicitationModes {
        self.session.client.elicitation_modes()
    }

    fn show_form(&self, mut form: ServerForm) -> BoxFuture<'_, FormOutcome> {
        form.call = Some(self.call.clone());
        form.message = format!("{}: {}", self.name, form.message);
        if !self.in_background {
            return Box::pin(self.wait_for_user(self.session.client.show_form(form)));
        }
        form.in_background = true;
        Box::pin(async {
            let Some(turn) = self.session.helpers.join_turn() else { return FormOutcome::Declined };
            let showing = self.wait_for_user(self.session.client.show_form(form));
            turn.cancel.run_until_cancelled(showing).await.unwrap_or(FormOutcome::Cancelled)
        })
    }
}
