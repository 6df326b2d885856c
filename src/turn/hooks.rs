//! Runs the hooks of a turn: at the start of the session, for the prompt, for a compaction, and at the turn's end.

use std::sync::Arc;

use serde_json::json;

use super::{Conversation, Turn, TurnStep, typed_parts};
use tokio_util::sync::CancellationToken;
use turnwright_hooks::HookEvent;
use turnwright_store::Entry;

/// The most times that hooks may keep one turn from ending.
const MAX_STOPS: u32 = 8;

impl Turn {
    /// Runs the hooks before the first request. Returns true if they refuse the prompt, which ends the turn.
    pub(super) async fn run_first_hooks(&mut self) -> bool {
        let env = Arc::clone(&self.conversation.env);
        if let Some(helper) = &env.helper {
            let event = HookEvent::SubagentStart;
            let verdict = env.raise_hooks(event, &helper.kind, json!({}), &self.cancel).await;
            self.tell_context(&verdict.context);
            return false;
        }
        env.shared.hooks.end_idle_time();
        if env.shared.hooks.mark_started() {
            let source = if self.prompt.first_message == 0 { "startup" } else { "resume" };
            let context = start_context(&self.conversation, source, &self.cancel).await;
            self.tell_context(&context);
        }
        let prompt = self.history.messages.get(self.prompt.first_message);
        let typed = prompt.and_then(|message| message.as_user()).into_iter().flat_map(typed_parts);
        let fields = json!({ "prompt": typed.collect::<Vec<_>>().join("\n") });
        let verdict = env.raise_hooks(HookEvent::UserPromptSubmit, "", fields, &self.cancel).await;
        if let Some(why) = verdict.block.or(verdict.stop) {
            self.refuse_prompt(&why).await;
            return true;
        }
        self.tell_context(&verdict.context);
        false
    }

    /// Removes the refused prompt from the conversation.
    async fn refuse_prompt(&mut self, why: &str) {
        self.report_prompt().await;
        self.say(format!("A hook has refused this prompt, so the model does not get it. {why}"));
        self.history.messages.truncate(self.prompt.first_message);
        self.conversation.log().add_entry(Entry::Refused);
        self.conversation.forget_told_context();
        // The context from the session's start was removed with the prompt, so those hooks must run again.
        self.conversation.env.shared.hooks.rerun_start_hooks();
    }

    fn tell_context(&mut self, context: &str) {
        if !context.is_empty() {
            self.push_context(said_by_hook(context));
        }
    }

    /// Asks the hooks whether the turn may end once the model says that it is done. Returns the next step if not.
    pub(super) async fn stop_step(&mut self) -> Option<TurnStep> {
        let env = Arc::clone(&self.conversation.env);
        let event = if self.is_helper() { HookEvent::SubagentStop } else { HookEvent::Stop };
        if self.cancel.is_cancelled() {
            return None;
        }
        let answer = self.final_answer()?.text.clone();
        let kind = env.helper.as_ref().map_or("", |helper| helper.kind.as_str());
        let fields = json!({
            "stop_hook_active": self.hook_stops > 0,
            "last_assistant_message": answer,
            "background_tasks": [],
        });
        let verdict = env.raise_hooks(event, kind, fields, &self.cancel).await;
        if let Some(why) = verdict.stop {
            self.conversation.notify(format!("A hook ends the turn: {why}"));
            return None;
        }
        let context = Some(verdict.context).filter(|context| !context.is_empty());
        let why = verdict.block.or(context)?;
        if self.cancel.is_cancelled() {
            return None;
        }
        let limit = if self.hook_stops >= MAX_STOPS {
            Some(format!("hooks have kept it from ending {MAX_STOPS} times"))
        } else {
            self.budget.take_request().err().map(|_| "a limit is reached".to_owned())
        };
        if let Some(limit) = limit {
            self.conversation.notify(format!("A hook wants the turn to go on, but {limit}: {why}"));
            return None;
        }
        self.hook_stops += 1;
        self.conversation.notify(format!("A hook wants the turn to go on: {why}"));
        let told = format!("A hook of the user keeps you from ending your turn here:\n{why}\n");
        self.push_context(told);
        Some(TurnStep::Sample)
    }
}

fn said_by_hook(context: &str) -> String {
    format!("A hook of the user says:\n{context}\n")
}

/// Runs the hooks for the start of a session. Returns their context for the model.
async fn start_context(
    conversation: &Conversation,
    source: &str,
    cancel: &CancellationToken,
) -> String {
    let fields = json!({ "source": source, "model": conversation.selection.get().model.name() });
    let event = HookEvent::SessionStart;
    conversation.env.raise_hooks(event, source, fields, cancel).await.context
}

/// Returns the trigger of a compaction. `focus` is the user's instruction for it; `None` if the user did not ask.
fn trigger(focus: Option<&str>) -> &'static str {
    if focus.is_some() { "manual" } else { "auto" }
}

/// Returns true if hooks prevent the compaction, and tells the user if they refuse. If `must_compact` is set, a refusal
/// has no effect.
pub(super) async fn refuse_compaction(
    conversation: &Conversation,
    focus: Option<&str>,
    must_compact: bool,
    cancel: &CancellationToken,
) -> bool {
    let subject = trigger(focus);
    let fields = json!({ "trigger": subject, "custom_instructions": focus.unwrap_or_default() });
    let event = HookEvent::PreCompact;
    let verdict = conversation.env.raise_hooks(event, subject, fields, cancel).await;
    let Some(why) = verdict.block.or(verdict.stop) else { return false };
    let end = if must_compact { ", but the window is full" } else { "" };
    conversation.notify(format!("A hook refuses to have the conversation compacted{end}. {why}"));
    !must_compact
}

/// Tells the hooks that the conversation was compacted. Their context goes to the model with the next request of a turn
/// in progress, or with the next prompt.
pub(super) async fn note_compaction(
    conversation: &Conversation,
    focus: Option<&str>,
    summary: &str,
    cancel: &CancellationToken,
) {
    let subject = trigger(focus);
    let fields = json!({ "trigger": subject, "compact_summary": summary });
    conversation.env.raise_hooks(HookEvent::PostCompact, subject, fields, cancel).await;
    let context = start_context(conversation, "compact", cancel).await;
    if !context.is_empty() {
        conversation.told.add_unsent([said_by_hook(&context)]);
    }
}
