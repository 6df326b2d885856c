//! One prompt turn: asks the model, runs the tool calls of its answer, and repeats until there is
//! exactly one stop reason. Methods have the side effects; what to do next is decided in
//! `next_step`.

mod answer;
mod cache_guard;
mod calls;
mod checks;
mod closing;
mod edit_review;
pub(crate) mod fuzzing;
mod goal;
mod helper;
mod hints;
mod hooks;
mod limits;
mod loop_guard;
mod next_step;
mod note_offers;
mod own_calls;
mod prompt;
mod proof;
mod room;
mod conversation;
mod start_state;
mod steering;
mod submissions;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::Error;
use turnwright_llm::LlmError;
use turnwright_store::{Audience, Entry, TurnKind};
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, Message, PromptPart, StopReason, ToolCall, UserMessage};

use answer::failures::{Nudge, nudge_message, unanswered_note};
use calls::records::OpenCards;
use calls::runner;
use checks::TurnChecks;
use goal::GoalRun;
use limits::{ReachedLimit, SpendingMeter};
use loop_guard::LoopDetector;
use next_step::{ShownSoFar, TurnBudget};
use room::RoomState;

pub(crate) use answer::failures::stopped_note;
pub(crate) use answer::refused_images::leave_out_images;
pub(crate) use calls::CancellableCalls;
pub(crate) use calls::records::{abridged_arguments, failed_update, not_run};
pub(crate) use calls::runner::CallRunner;
pub(crate) use checks::{check_book, proposed_commands};
pub(crate) use conversation::{
    Conversation, ModelSelection, SharedGrants, SharedModelSelection, Told,
};
pub(crate) use goal::{paused_line, stored_goal};
pub(crate) use limits::{SharedSpending, SpendingLimits};
pub(crate) use note_offers::NoteOffer;
pub(crate) use prompt::{
    PROJECT_READ_TIMEOUT, custom_commands, describe_notes, describe_skills, environment_lines,
    folder_lines, new_date_line, project_sources, system_prompt,
};
pub(crate) use room::compaction::{compact_on_request, estimated_size, is_window_assumed, window};
pub(crate) use room::handoff::{COMMAND_HEAD, compact, context_parts, summary_of};
pub(crate) use room::prune;
pub(crate) use steering::SteeringQueue;
pub(crate) use submissions::Submissions;

/// A turn that has not started yet. It takes the history by value and returns it in [`FinishedTurn`].
#[derive(Debug)]
pub(crate) struct Turn {
    conversation: Conversation,
    cancel: CancellationToken,
    history: History,
    runner: CallRunner,
    budget: TurnBudget,
    prompt: TurnPrompt,
    room: RoomState,
    cards: OpenCards,
    loops: LoopDetector,
    meter: SpendingMeter,
    steering: SteeringQueue,
    checks: TurnChecks,
    /// The number of times that hooks have kept the turn from ending.
    hook_stops: u32,
    /// The goal that the turn works towards.
    goal: Option<Box<GoalRun>>,
    /// The log entry of the last message that only the model gets.
    last_hidden: Option<u64>,
}

/// The place of a turn's prompt in the conversation.
#[derive(Debug)]
struct TurnPrompt {
    /// The index of this turn's first message: the prompt, unless a summary stands for it.
    first_message: usize,
    /// The index of the message with the prompt. After a compaction that is the one with the summary.
    index: usize,
    /// The prompt, until a client that follows prompts is told that it is part of the conversation.
    unreported: Option<(MessageId, Arc<Message>)>,
}

/// The result of a turn.
#[derive(Debug)]
pub(crate) struct FinishedTurn {
    /// The conversation including this turn.
    pub history: History,
    pub result: Result<StopReason, Error>,
}

/// The most characters of a prompt that the turn's record keeps beside the prompt itself, for lists.
const MAX_EXCERPT_CHARS: usize = 64;

/// The texts that the user has typed, with the names of skills.
fn typed_parts(prompt: &UserMessage) -> impl Iterator<Item = &str> {
    prompt.parts.iter().filter_map(|part| match part {
        PromptPart::Text(text) | PromptPart::Skill(text) => Some(text.as_str()),
        _ => None,
    })
}

/// The first characters of what the user has typed.
fn excerpt(prompt: &UserMessage) -> String {
    typed_parts(prompt).flat_map(str::chars).take(MAX_EXCERPT_CHARS).collect()
}

/// The texts that the user has typed.
fn typed_text(prompt: &UserMessage) -> String {
    let texts = prompt.parts.iter().filter_map(|part| match part {
        PromptPart::Text(text) => Some(text.trim()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn redacted(text: &str) -> String {
    turnwright_types::redact::text(text).into_owned()
}

enum TurnStep {
    Sample,
    RunCalls(Vec<ToolCall>),
    /// Wait before asking again. The text, if any, tells the user why.
    Wait(Duration, Option<String>),
    /// Wait, tell the user why, and ask the model to continue its answer.
    Continue(Duration, String, Nudge),
    /// Make room, because the request was too long, and ask again, or ask to go on with an answer of
    /// which the user has seen this much.
    MakeRoom(LlmError, ShownSoFar),
    /// A limit is reached: ask the model for a last summary instead of running these calls.
    Summarize(Vec<ToolCall>, ReachedLimit),
    End(Result<StopReason, Error>),
}

impl Turn {
    pub(crate) fn new(
        conversation: Conversation,
        history: History,
        prompt: UserMessage,
        cancel: CancellationToken,
    ) -> Turn {
        let mut turn = Turn::without_helpers(conversation.clone(), history, prompt, cancel);
        if conversation.env.helpers.catalogue().is_some() {
            turn.runner.helpers = Some(Arc::new(conversation));
        }
        turn
    }

    /// A turn of a helper.
    fn of_helper(
        conversation: Conversation,
        prompt: UserMessage,
        cancel: CancellationToken,
        session_turn: CancellationToken,
    ) -> Turn {
        // All its limits but that of requests are shared with the session.
        let meter = SpendingMeter::new(conversation.limits, &History::default());
        let mut turn = Turn::without_helpers(conversation, History::default(), prompt, cancel);
        turn.runner.session_turn = Some(session_turn);
        Turn { meter, ..turn }
    }

    fn without_helpers(
        conversation: Conversation,
        mut history: History,
        prompt: UserMessage,
        cancel: CancellationToken,
    ) -> Turn {
        let first_message = history.messages.len();
        let excerpt = excerpt(&prompt);
        history.push(Message::User(prompt));
        let budget = TurnBudget::new(conversation.max_requests);
        let mut limits = conversation.limits;
        limits.set("turn_requests", f64::from(conversation.max_requests));
        let meter = SpendingMeter::new(limits, &history);
        let cards = OpenCards::new(
            Arc::clone(conversation.client()),
            conversation.log().clone(),
            conversation.cancellable.clone(),
        );
        conversation.log().begin_turn(TurnKind::Prompt, redacted(&excerpt));
        let known_changes = conversation.env.shared.checkpoint.change_count();
        let mut checks = TurnChecks::default();
        checks.ledger.ignore_changes(known_changes);
        let runner = conversation.runner(conversation.grants.clone());
        Turn {
            conversation,
            cancel,
            history,
            runner,
            budget,
            prompt: TurnPrompt { first_message, index: first_message, unreported: None },
            room: RoomState::default(),
            cards,
            loops: LoopDetector::new(known_changes),
            meter,
            steering: SteeringQueue::default(),
            checks,
            hook_stops: 0,
            goal: None,
            last_hidden: None,
        }
    }

    fn is_helper(&self) -> bool {
        self.runner.session_turn.is_some()
    }

    /// Runs the turn to its end. On return every card has its final status and every call its
    /// result.
    pub(crate) async fn run(mut self) -> FinishedTurn {
        if !self.is_helper() {
            self.conversation.env.shared.checkpoint.drop_costly_baseline();
            self.conversation.env.helpers.open_questions(&self.cancel);
            if let Some(languages) = self.conversation.env.languages() {
                languages.begin_turn();
            }
        }
        self.wait_for_servers().await;
        self.add_project_context().await;
        self.log_prompt();
        if self.conversation.env.has_any_hooks() && Box::pin(self.run_first_hooks()).await {
            return self.finish(Ok(StopReason::EndTurn)).await;
        }
        let mut step = match self.first_step() {
            TurnStep::Sample if self.goal.is_some() => Box::pin(self.begin_goal()).await,
            step => step,
        };
        let result = loop {
            self.conversation.send_notices();
            step = match self.take_step(step).await {
                ControlFlow::Continue(next) => next,
                ControlFlow::Break(result) => break result,
            };
            // The one place where a cancelled token becomes a stop reason, whatever error the
            // interrupted work has returned (R-CANCEL-2).
            if self.cancel.is_cancelled() {
                if let TurnStep::RunCalls(calls) | TurnStep::Summarize(calls, _) = step {
                    self.abandon_calls(calls, runner::cancelled()).await;
                }
                break Ok(StopReason::Cancelled);
            }
        };
        self.finish(result).await
    }

    /// Takes one step. Returns the next one, or the result of the turn.
    async fn take_step(
        &mut self,
        step: TurnStep,
    ) -> ControlFlow<Result<StopReason, Error>, TurnStep> {
        ControlFlow::Continue(match step {
            TurnStep::Sample => {
                self.add_steering().await;
                self.announce_mode_change();
                self.announce_date();
                if let Some(news) = self.conversation.env.resource_news() {
                    self.push_context(news);
                }
                self.make_room().await;
                // A compaction takes a while.
                if !self.cancel.is_cancelled() {
                    self.add_steering().await;
                }
                self.sample().await
            }
            TurnStep::MakeRoom(error, shown) => self.recover_from_overflow(error, shown).await,
            TurnStep::RunCalls(calls) => {
                self.check_before_edits(&calls).await;
                self.run_calls(calls).await
            }
            TurnStep::Wait(delay, why) => self.wait(delay, why).await,
            TurnStep::Continue(delay, why, nudge) => {
                let message = nudge_message(nudge, &self.history);
                self.push_hidden_message(Message::User(message));
                self.wait(delay, Some(why)).await
            }
            TurnStep::Summarize(calls, limit) => self.ask_for_summary(calls, limit).await,
            TurnStep::End(Ok(StopReason::EndTurn)) if self.must_check() => {
                self.check_after_edits().await
            }
            TurnStep::End(Ok(StopReason::EndTurn)) => {
                if let Some(step) = Box::pin(self.review_edits()).await {
                    return ControlFlow::Continue(step);
                }
                // A goal asks for its own proof.
                let mut next = None;
                if self.goal_status().is_none() {
                    next = Box::pin(self.closing()).await;
                    if next.is_none() && self.conversation.env.has_any_hooks() {
                        next = Box::pin(self.stop_step()).await;
                    }
                }
                if next.is_none() {
                    next = self.step_after_answer().await;
                }
                match next {
                    Some(step) => step,
                    None => return ControlFlow::Break(Ok(StopReason::EndTurn)),
                }
            }
            TurnStep::End(result) => return ControlFlow::Break(result),
        })
    }

    /// Records the end of the turn in the history and in the log.
    async fn finish(mut self, mut result: Result<StopReason, Error>) -> FinishedTurn {
        self.report_prompt().await;
        if !self.is_helper() {
            let client = self.conversation.client().as_ref();
            self.conversation.env.helpers.close_questions(client).await;
        }
        if self.cancel.is_cancelled() {
            result = Ok(StopReason::Cancelled);
        }
        self.close_goal(&result);
        if result.is_ok() && !self.cancel.is_cancelled() {
            self.report_limit();
        }
        self.remove_trailing_nudge();
        self.history.spent.time += self.meter.elapsed();
        if matches!(result, Ok(StopReason::Refusal)) {
            // The prompt and everything after it are left out of the next request (R-TURN-7).
            self.history.messages.truncate(self.prompt.first_message);
            self.conversation.log().add_entry(Entry::Refused);
            self.conversation.forget_told_context();
        } else if let Some(note) = unanswered_note(&self.history, &result) {
            self.push_hidden_message(note);
        }
        self.keep_unread_steering();
        if !self.is_helper() {
            calls::file_change_recorder::end_turn(&self.conversation, &self.cancel).await;
        }
        self.share_spending();
        let why = result.as_ref().map_or("error", |stop| stop.as_str());
        let facts = Some(self.settled_ledger().facts());
        let History { minted, cost, .. } = self.history;
        let written = self.conversation.log().end_turn(why, minted, cost, facts);
        // The end of the turn must be stored before the prompt is answered.
        written.written().await;
        self.conversation.send_notices();
        if !self.is_helper() {
            self.conversation.env.begin_idle_time();
        }
        if result.as_ref().is_ok_and(|stop| *stop != StopReason::Cancelled) {
            let offers_note = self.offer_note().await;
            self.suggest_prompts(offers_note).await;
        }
        FinishedTurn { history: self.history, result }
    }

    /// Waits a few seconds for MCP servers that are still connecting, so that the session's first
    /// turn has their tools.
    async fn wait_for_servers(&mut self) {
        let remote_tools = self.conversation.tools.remote_tools();
        let Some(limit) = remote_tools.take_wait_limit() else { return };
        let settled = self.cancel.run_until_cancelled(remote_tools.servers_settled());
        tokio::time::timeout(limit, settled).await.ok();
        if self.cancel.is_cancelled() {
            return;
        }
        let late = remote_tools.take_late_servers();
        if !late.is_empty() {
            self.conversation.notify(format!(
                "Not connected yet: {}. The turn starts without these MCP servers; their tools are \
                 added as soon as they connect.",
                late.join(", ")
            ));
        }
    }

    /// Writes the prompt to the log. The model gets it meanwhile; the user sees nothing of the answer before
    /// it is stored.
    fn log_prompt(&mut self) {
        let Some(message) = self.history.messages.get(self.prompt.first_message).cloned() else {
            return;
        };
        let id = self.history.mint_message_id();
        self.conversation.log().add_entry(Entry::Message {
            id: id.clone(),
            message: Arc::clone(&message),
            audience: Audience::Both,
        });
        self.prompt.unreported = Some((id, message));
    }

    /// Tells the client that the prompt is part of the conversation, before anything that follows from it. A
    /// request tells it while it waits for the model.
    async fn report_prompt(&mut self) {
        let Some((id, message)) = self.prompt.unreported.take() else { return };
        if self.conversation.client().follows_prompts() {
            // The prompt is stored before the client is told of it.
            self.conversation.log().flush().written().await;
        }
        self.conversation.report_message(None, &id, &message);
    }

    /// Tells the model something that the user does not see.
    fn push_context(&mut self, text: String) {
        self.push_hidden_message(Message::User(UserMessage::context(text)));
    }

    /// The same for a text that may contain the output of commands.
    fn push_outside_context(&mut self, text: &str) {
        self.push_context(redacted(text));
    }

    /// Adds a message that the model gets and the user does not see.
    fn push_hidden_message(&mut self, message: Message) {
        self.last_hidden = self.conversation.push_hidden(&mut self.history, message);
    }

    /// Tells the model that the user has changed the mode during the turn.
    fn announce_mode_change(&mut self) {
        let knows_mode = self.conversation.told.lock().mode.is_some();
        if knows_mode && let Some(line) = self.conversation.mode_context() {
            self.push_context(format!("The user has changed the mode.\n{line}"));
        }
    }

    /// Tells the model that it is another day than it knows.
    fn announce_date(&mut self) {
        if let Some(line) = new_date_line(&self.history) {
            self.push_context(line);
        }
    }

    async fn wait(&mut self, delay: Duration, why: Option<String>) -> TurnStep {
        if let Some(why) = why {
            self.conversation.notify(why);
        }
        let mut left = delay;
        loop {
            let next = next_step::next_countdown(left);
            // Dropping a sleep undoes nothing.
            let sleep = tokio::time::sleep(left.saturating_sub(next.unwrap_or_default()));
            let is_over = self.cancel.run_until_cancelled(sleep).await.is_none();
            let Some(next) = next.filter(|_| !is_over) else { return TurnStep::Sample };
            self.conversation.notify(format!("{} s left.", next.as_secs()));
            left = next;
        }
    }
}
