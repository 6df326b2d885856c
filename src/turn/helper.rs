//! Runs helpers. A helper is a turn of its own with a fresh conversation, some of the session's tools, and
//! the session's policy, mode, grants and queue of calls. Its conversation is stored as a session that
//! lists leave out; what it changes is recorded in the turn that has started it.

mod client;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::MissedTickBehavior;

use super::prompt;
use super::room::handoff::is_rejected;
use super::{Conversation, FinishedTurn, SharedModelSelection, Turn};
use crate::error::{as_sentence, error_chain};
use crate::tools::{
    HelperFacts, HelperRunner, HelperTask, ToolAnswer, ToolCtx, ToolOutcome, command_limits,
    gives_tool,
};
use client::{HelperClient, work_done};
use tokio::task::spawn_blocking;
use turnwright_policy::permission::markdown_code;
use turnwright_recording::outside::in_same_session;
use turnwright_store::{PendingWrite, SessionLog, SessionRow};
use turnwright_types::effect::CallContent;
use turnwright_types::ids::{CallId, SessionId};
use turnwright_types::message::{History, PromptPart, StopReason, UserMessage};
use turnwright_types::private_file;
use turnwright_types::redact;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::text;

/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 8 * 1024;
/// An answer with fewer bytes may only point to a report.
const MAX_POINTER_BYTES: usize = 250;
/// Added to the answer of a helper that the user has refused something.
const REJECTED: &str =
    "[The user rejected a call of this helper. Do not repeat it or work around it.]";
/// Added to the answer of a helper that was stopped, and of one that had no room left.
const INCOMPLETE: &str =
    "\n[incomplete: the helper had to stop at a limit, or because it repeated itself]";
const FULL: &str =
    "\n[the helper could not go on: a limit is reached, or its context or answer was full]";
/// The least time between two updates of a card.
const CARD_INTERVAL: Duration = Duration::from_millis(250);

/// Where the conversation of a helper is stored.
struct HelperRecord {
    session: SessionId,
    log: SessionLog,
    /// The note that the call has started a helper.
    written: PendingWrite,
}

/// Runs the helpers of a turn of this conversation.
impl HelperRunner for Conversation {
    fn run(&self, mut task: HelperTask, ctx: &ToolCtx) -> BoxFuture<'static, ToolOutcome> {
        let conversation = self.clone();
        let kind = &task.kind.name;
        for entry in task.kind.tools.iter().flatten().filter(|entry| !gives_tool(entry)) {
            let shown = markdown_code(entry);
            self.notify_once(format!("Helper {kind} lacks {shown}: its pattern cannot be kept."));
        }
        // After the only turn the helper would be ended, and nobody would be told its answer.
        task.in_background &= !self.work.one_turn;
        // The start of the helper is stored before it can do anything, and before the call ends.
        let record = self.create_helper_session(&task, &ctx.call);
        if task.in_background {
            let outcome = conversation.start_in_background(task, ctx.clone(), record);
            return Box::pin(std::future::ready(outcome));
        }
        let client = HelperClient::new(ctx.clone(), &task, record.session.clone());
        Box::pin(async move {
            let ended = conversation.run_helper(task, record, Arc::new(client)).await;
            ended.unwrap_or_else(ToolOutcome::failed)
        })
    }
}

impl Conversation {
    fn start_in_background(
        mut self,
        task: HelperTask,
        ctx: ToolCtx,
        record: HelperRecord,
    ) -> ToolOutcome {
        // It shares no later answers.
        let grants = self.grants.lock().clone();
        self.grants = Arc::new(Mutex::new(grants));
        let env = Arc::clone(&self.env);
        let id = short_id(&ctx.call);
        let what = format!("helper {id} ({})", task.view.title);
        let session = Arc::clone(&env);
        let started = what.clone();
        let mut shown = vec![CallContent::Text(format!("Works in the background as {id}"))];
        let shown_helper = &mut shown;
        let is_started = env.helpers.spawn(move |cancel| {
            let ctx = ToolCtx { cancel: cancel.clone(), turn: cancel, ..ctx };
            let client = HelperClient::new(ctx, &task, record.session.clone());
            shown_helper.push(client.reference());
            in_same_session(async move {
                let work = AssertUnwindSafe(self.run_helper(task, record, Arc::new(client)));
                let ended = work.catch_unwind().await;
                let outcome = ended.map(|end| end.unwrap_or_else(ToolOutcome::failed));
                let is_answer = outcome.as_ref().is_ok_and(|outcome| outcome.ok);
                let news = match outcome {
                    Ok(ToolOutcome { ok: true, text, .. }) => format!("[{what} is done]\n{text}\n"),
                    Ok(ToolOutcome { text, .. }) => format!("[{what} has failed] {text}\n"),
                    Err(_) => format!("[{what} has crashed: this is a bug in turnwright]\n"),
                };
                session.helpers.add_news(news, is_answer);
            })
        });
        if !is_started {
            return ToolOutcome::failed(
                "Too many helpers are in the background. No helper was started. Wait for one.",
            );
        }
        let text = format!(
            "The {started} works in the background. You are told its answer once, when it is done: go \
             on with something else, or end your turn."
        );
        ToolOutcome::done(text, shown, json!({ "id": id }))
    }

    /// Runs a helper to its end.
    async fn run_helper(
        self,
        task: HelperTask,
        record: HelperRecord,
        client: Arc<HelperClient>,
    ) -> ToolAnswer {
        let HelperRecord { session, log, written } = record;
        let selected = self.helper_selection(&task).await;
        let selection = selected.inspect_err(|why| client.end(Err(why.for_user.clone()), None))?;
        // With more helpers than slots, the server would drop one's conversation from its cache for another.
        let waiting = self.env.helpers.slot(selection.get().model.concurrent_requests());
        let _slot = client.cancel.run_until_cancelled(waiting).await.ok_or_else(cancelled)?;
        // Keeps other processes from writing to its session.
        let mut lock = None;
        if let Some(store) = self.log().store() {
            let locking = store.lock_session_when_released(&session);
            let locked = client.cancel.run_until_cancelled(locking).await;
            lock = locked.ok_or_else(cancelled)?.ok();
        }
        written.written().await;
        let prefix = format!("{}p", short_id(&client.call));
        let mut env = self.env.for_helper(session.clone(), prefix, log, Arc::clone(&client) as _);
        env.helper = Some(HelperFacts {
            session: self.env.session.to_string(),
            kind: task.kind.name.clone(),
            commands: command_limits(task.kind.tools.as_deref().unwrap_or_default()),
            is_read_only: task.kind.is_read_only,
        });
        let conversation = self.for_helper(env, selection, &task.kind);
        let finished = converse(conversation.clone(), &client, &task).await;
        // Nothing that the helper has left running goes on.
        conversation.env.jobs.close().await;
        let calls = client.calls();
        let tokens = conversation.env.helpers.tokens();
        // Releasing the lock removes a file.
        spawn_blocking(move || drop(lock)).await.ok();
        let end = finished.result.as_ref().copied().map_err(|error| error_chain(error));
        let mut results = finished.history.messages.iter().filter_map(|message| message.as_tool());
        let was_rejected = results.any(is_rejected);
        let mut result = answer(finished);
        if let Ok(text) = &mut result {
            shorten(text, self.env.output_folder().join(format!("{}.md", client.call))).await;
            if was_rejected {
                text::add_line(text, REJECTED);
            }
        }
        client.end(end, result.as_deref().ok());
        let mut outcome = outcome(result, calls, tokens, &session);
        outcome.content.push(client.reference());
        Ok(outcome)
    }

    async fn helper_selection(
        &self,
        task: &HelperTask,
    ) -> Result<SharedModelSelection, ToolRefusal> {
        let Some(name) = task.kind.model.clone() else { return Ok(self.selection.clone()) };
        let find = Arc::clone(&self.find_model);
        let wanted = name.clone();
        let why = match spawn_blocking(move || find(&wanted)).await {
            Ok(Ok(model)) => {
                let effort = self.selection.get().effort;
                return Ok(SharedModelSelection::new(model, effort));
            }
            Ok(Err(error)) => error_chain(&error),
            Err(error) => error.to_string(),
        };
        let kind = &task.kind.name;
        Err(format!(
            "The model {name} of the helper {kind} is not available: {why}. No helper was started."
        )
        .into())
    }

    /// Creates the session that keeps the helper's conversation, and records that this call starts it.
    fn create_helper_session(&self, task: &HelperTask, call: &CallId) -> HelperRecord {
        let session = SessionId::random();
        let log = self.log().for_helper(session.clone(), call);
        let usual = self.session_row();
        let row = SessionRow {
            id: session.clone(),
            title: Some(redact::text(&task.view.title).into_owned()),
            helper_of: Some(usual.id),
            model: task.kind.model.clone().or(usual.model),
            ..usual
        };
        log.create_session(row).in_background();
        let record = json!({ "description": task.title, "type": task.kind.name,
            "session_id": session.as_str(), "background": task.in_background });
        let written = self.log().record_helper(call, record.to_string());
        HelperRecord { session, log, written }
    }
}

/// Holds the conversation of a helper, and shows its progress on the card.
async fn converse(
    conversation: Conversation,
    client: &HelperClient,
    task: &HelperTask,
) -> FinishedTurn {
    let mut context = prompt::environment_lines(conversation.env.files.roots());
    context.extend(conversation.mode_context());
    let parts = vec![PromptPart::Text(task.prompt.clone()), PromptPart::Context(context)];
    let env = Arc::clone(&conversation.env);
    let words = UserMessage::new(parts);
    let turn = Turn::of_helper(conversation, words, client.cancel.clone(), client.turn.clone());
    let mut running = pin!(turn.run());
    let mut due = tokio::time::interval(CARD_INTERVAL);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            finished = &mut running => return finished,
            _ = due.tick() => client.show_progress(env.helpers.tokens()),
        }
    }
}

/// The outcome of a call whose helper has worked in this session.
fn outcome(
    result: Result<String, ToolRefusal>,
    calls: u32,
    tokens: u64,
    session: &SessionId,
) -> ToolOutcome {
    let used = work_done(calls, tokens);
    let transcript =
        format!("{used}. `turnwright sessions show {session}` shows its conversation.");
    match result {
        Ok(text) => {
            let shown = format!("{text}\n\n{transcript}");
            let raw = json!({ "session_id": session.as_str(), "tool_calls": calls,
                "tokens": tokens });
            ToolOutcome::done(text, vec![CallContent::Text(shown)], raw)
        }
        Err(refusal) => {
            let mut outcome = ToolOutcome::failed(refusal);
            outcome.content.push(CallContent::Text(transcript));
            outcome
        }
    }
}

fn cancelled() -> ToolRefusal {
    ToolRefusal::cancelled("The user has cancelled the helper. Its changes stay.")
}

fn failed(why: &str) -> ToolRefusal {
    as_sentence(format!("The helper failed: {why}")).into()
}

/// A short name for the helper of a call.
fn short_id(call: &CallId) -> String {
    format!("h{}", call.as_str().trim_start_matches(|character: char| !character.is_ascii_digit()))
}

/// The last words of a helper. If they only say that the report is above, or may be cut off, those before come first:
/// their reader sees nothing else of the conversation.
fn last_words(history: &History, may_be_cut: bool) -> String {
    let answers = history.messages.iter().rev().filter_map(|message| message.as_assistant());
    // A note of ours about the end of the turn has no identifier.
    let mut texts = answers
        .filter(|answer| !answer.id.as_str().is_empty())
        .map(|answer| (answer.text.trim(), answer.calls.is_empty()))
        .filter(|(text, _)| !text.is_empty());
    let (last, _) = texts.next().unwrap_or_default();
    match texts.next() {
        // A text without calls was a report, after which the model was asked for more.
        Some((report, is_report))
            if last.len() < MAX_POINTER_BYTES
                && (may_be_cut || is_report || report.len() > 4 * MAX_POINTER_BYTES) =>
        {
            format!("{report}\n\n{last}")
        }
        _ => last.to_owned(),
    }
}

/// The answer of a helper, or why there is none.
fn answer(finished: FinishedTurn) -> Result<String, ToolRefusal> {
    let may_be_cut = matches!(finished.result, Ok(StopReason::Cancelled) | Err(_));
    let text = last_words(&finished.history, may_be_cut);
    let mut refusal = match finished.result {
        Ok(StopReason::EndTurn) if !text.is_empty() => return Ok(text),
        Ok(StopReason::MaxTurnRequests) if !text.is_empty() => return Ok(text + INCOMPLETE),
        Ok(StopReason::MaxTokens) if !text.is_empty() => return Ok(text + FULL),
        Ok(StopReason::Cancelled) => cancelled(),
        Ok(StopReason::Refusal) => failed("the model's provider refused"),
        Ok(StopReason::MaxTokens | StopReason::MaxTurnRequests) => {
            failed("a limit is reached, or its context was full")
        }
        Ok(_) => failed("it gave no answer"),
        Err(error) => failed(&error_chain(&error)),
    };
    if !text.is_empty() {
        let words = text::prefix(&text, MAX_ANSWER_BYTES / 2);
        refusal.for_model.push_str(&format!(" Its last words were: {words}"));
    }
    Err(refusal)
}

/// Cuts an answer that is too long, and keeps the whole of it in a file.
async fn shorten(text: &mut String, path: PathBuf) {
    if text.len() <= MAX_ANSWER_BYTES {
        return;
    }
    let whole = redact::text(text).into_owned();
    let place = path.clone();
    let written = spawn_blocking(move || private_file::write(&place, whole.as_bytes())).await;
    let rest = match written {
        Ok(Ok(())) => format!("\n[cut: {} bytes in all; read_file {}]", text.len(), path.display()),
        _ => format!("\n[cut: {} bytes in all]", text.len()),
    };
    // The last words may be the verdict.
    let room = MAX_ANSWER_BYTES.saturating_sub(rest.len() + 64);
    *text = format!("{}{rest}", text::clip_middle(text, room));
}
