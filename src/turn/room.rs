//! Keeps the conversation within the model's window: leaves out old results, and replaces the oldest
//! part with a summary, before each request of a turn and after one that did not fit.
//!
//! Old results are left out without a request, but the provider has to read what follows anew, so it is done rarely
//! and only if it gains much. A result that the model has asked for again after it was left out stays.

pub(super) mod budget;
pub(super) mod compaction;
pub(super) mod handoff;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::tools::{self, AGENT_TOOL, SMALL_WINDOW};
use crate::turn::answer::failures::{Nudge, nudge_message};
use crate::turn::conversation::OnceNotice;
use crate::turn::next_step::ShownSoFar;
use crate::turn::prompt::project_context::ToldFolders;
use crate::turn::{ModelSelection, Turn, TurnStep};
use turnwright_llm::{ErrorKind, LlmError, Model, Request};
use turnwright_store::Entry;
use turnwright_types::ids::CallId;
use turnwright_types::message::{Message, StopReason, TokenUsage, ToolMessage};
use turnwright_types::patience::timeout;
use turnwright_types::token_meter::{
    CountFinding, LearnedWindow, TokenMeter, message_weight, part_weight, text_weight,
};

use budget::{WindowBudget, window_beside_answer};
use compaction::{CompactionOutcome, CompactionReason, Compactor, request_weight};
use handoff::{PLAN_TOOL, QUESTION_TOOL, SKILL_TOOL};

/// How often in a row a request may be too long before the turn gives up.
const MAX_OVERFLOWS: u32 = 3;
/// The end of a result that was cut.
const RESULT_WAS_CUT: &str =
    "\n[The result is too long for the context window. Ask for a smaller part if you need more.]";
/// The notice about an answer that reached a limit before its first word.
const NO_WORDS: &str = "The answer reached a length limit before its first word. If the model thinks, lower its \
                        reasoning effort, or allow longer answers: `max_output` in the settings, or a longer \
                        context where the model is served.";
/// The fewest tokens of a request that can fill a window.
const SMALLEST_FULL_WINDOW: u64 = 3_500;
/// How long the first request waits for the server to say how large the window is.
const WINDOW_TIMEOUT: Duration = Duration::from_secs(3);
/// The percentage of an assumed window in use at which the user is told of it.
const TELL_ASSUMED_AT: u64 = 50;

/// The facts that a turn knows about the room in the window.
#[derive(Debug, Default)]
pub(super) struct RoomState {
    /// The conversation was compacted, and the model has not answered since.
    is_compacted: bool,
    /// The requests that were too long since the last answer.
    overflows: u32,
    /// An answer without a word was taken for a sign that the window is full.
    has_guessed: bool,
    /// The user was told that what the model needs together does not fit.
    is_crowding_told: bool,
}

impl RoomState {
    /// Takes note of an answer.
    pub(super) fn on_answer(&mut self, has_words: bool) {
        let has_guessed = self.has_guessed && !has_words;
        let is_crowding_told = self.is_crowding_told;
        *self = RoomState { has_guessed, is_crowding_told, ..RoomState::default() };
    }
}

impl Turn {
    /// Makes room before a request if the conversation has nearly filled the window.
    pub(super) async fn make_room(&mut self) {
        let selection = self.conversation.selection.get();
        if self.history.meter.last_count().is_none() {
            // The server may just be saying how large the window is. A deterministic session does not ask for the list
            // of models, which arrives at an unpredictable time.
            let asking = if self.conversation.env.shared.process.outside.is_deterministic() {
                selection.model.warm_up()
            } else {
                selection.model.find_window()
            };
            self.cancel.run_until_cancelled(timeout(WINDOW_TIMEOUT, asking)).await;
        }
        let window = compaction::window(selection.model.as_ref(), &self.history);
        let conversation = self.conversation.clone();
        let fixed = || compaction::fixed_weight(&conversation, &conversation.specs(window));
        let estimate = self.history.meter.estimate(&self.history.messages, fixed);
        // Far below each limit nothing has to be counted.
        if estimate < window / 10 * 4 && window >= SMALL_WINDOW {
            return;
        }
        self.report_prompt().await;
        self.tell_window(selection.model.as_ref(), window, estimate);
        let max_output = selection.model.max_output();
        let fixed_tokens = self.history.meter.tokens(fixed());
        let budget = WindowBudget::new(window, max_output, fixed_tokens);
        if estimate < budget.compact_at() {
            return;
        }
        self.prune(&budget, estimate);
        let estimate = self.history.meter.estimate(&self.history.messages, fixed);
        // Files that the model reads again and again are needed together, so they may fill the window.
        let is_crowded = !repeated_results(&self.history.messages).is_empty();
        let limit = if is_crowded { budget.usable } else { budget.compact_at() };
        // A compaction could not make the conversation besides its prompt much smaller.
        let prompt = self.prompt_tokens();
        let is_small = estimate.saturating_sub(fixed_tokens + prompt)
            < budget.room().saturating_sub(prompt) / 10 * 6;
        if estimate < limit || is_small || self.room.is_compacted {
            return;
        }
        if is_crowded && !std::mem::replace(&mut self.room.is_crowding_told, true) {
            let name = selection.model.name();
            self.conversation.notify(format!(
                "{name} reads the same again and again, because what it needs at the same time does not \
                 fit into its window of {window} tokens. Give it a smaller task, or choose a model with a \
                 larger window."
            ));
        }
        let selection = summarising_model(selection, estimate);
        self.compact(selection, CompactionReason::NearlyFull).await;
    }

    /// Cuts results that leave no room for what the model says about them. Returns which.
    pub(super) fn cut_long_results(&self, results: &mut [ToolMessage]) -> Vec<CallId> {
        let weight: u64 = results.iter().map(|result| text_weight(&result.text)).sum();
        let selection = self.conversation.selection.get();
        let window = compaction::window(selection.model.as_ref(), &self.history);
        let meter = &self.history.meter;
        // The room is never more than the window. Most results are far below it.
        if meter.tokens(weight) < window / 16 {
            return Vec::new();
        }
        let fixed = compaction::fixed_weight(&self.conversation, &self.conversation.specs(window));
        let max_output = selection.model.max_output();
        let budget = WindowBudget::new(window, max_output, meter.tokens(fixed));
        let mut left = meter.weight(budget.results_room());
        // The short ones leave more to the others.
        let mut by_length: Vec<_> = results.iter_mut().collect();
        by_length.sort_by_key(|result| text_weight(&result.text));
        let mut cut = Vec::new();
        let mut count = by_length.len() as u64;
        for result in by_length {
            let share = left / count;
            if text_weight(&result.text) > share {
                result.text = handoff::cut_to_weight(&result.text, share);
                result.text.push_str(RESULT_WAS_CUT);
                cut.push(result.call.clone());
            }
            left = left.saturating_sub(text_weight(&result.text));
            count -= 1;
        }
        cut
    }

    fn prune(&mut self, budget: &WindowBudget, tokens: u64) {
        let history = &mut self.history;
        let kept = messages_to_keep(&history.messages, budget, &history.meter, tokens);
        let Some(kept) = kept else { return };
        prune(&mut history.messages, kept);
        history.meter.forget_count();
        // They may have been part of a result.
        self.conversation.told.lock().folders = ToldFolders::default();
        self.conversation.log().add_entry(Entry::Pruned { kept });
        tracing::info!(kept, "old results were left out of the conversation");
    }

    async fn compact(
        &mut self,
        selection: ModelSelection,
        reason: CompactionReason<'_>,
    ) -> CompactionOutcome {
        let messages = self.history.messages.len();
        let conversation = self.conversation.clone();
        let compactor = Compactor {
            conversation: &conversation,
            cancel: &self.cancel,
            history: &mut self.history,
            selection,
            prompt: Some(self.prompt.index),
        };
        let compacted = compactor.run(reason).await;
        if let CompactionOutcome::Done { kept, .. } = compacted {
            self.prompt.index = (self.prompt.index + kept + 1).saturating_sub(messages);
            // The messages of this turn are at the end. If its prompt is among those that the
            // summary stands for, all that is left belongs to it.
            let own = messages - self.prompt.first_message;
            self.prompt.first_message = self.history.messages.len() - own.min(kept);
            self.repeat_goal();
            let said_by_hooks = self.conversation.told.take_unsent(false);
            if !said_by_hooks.is_empty() {
                self.push_context(said_by_hooks);
            }
        }
        self.room.is_compacted = true;
        compacted
    }

    /// Recovers from a request that was too long: learns the size of the window, compacts the
    /// conversation and asks again.
    pub(super) async fn recover_from_overflow(
        &mut self,
        error: LlmError,
        shown: ShownSoFar,
    ) -> TurnStep {
        let selection = self.conversation.selection.get();
        self.room.overflows += 1;
        if self.room.overflows > MAX_OVERFLOWS {
            return self.give_up_room(selection.model.as_ref(), &error);
        }
        // It quotes the end of the answer, for which the summary may stand afterwards.
        let nudge =
            (shown == ShownSoFar::AnswerText).then(|| nudge_message(Nudge::Full, &self.history));
        let compacted = self.compact(selection.clone(), CompactionReason::Overflow).await;
        match compacted {
            CompactionOutcome::Done { .. } => {
                if let Some(nudge) = nudge {
                    self.push_hidden_message(Message::User(nudge));
                }
                TurnStep::Sample
            }
            CompactionOutcome::Cancelled => TurnStep::Sample,
            CompactionOutcome::Nothing => self.give_up_room(selection.model.as_ref(), &error),
            CompactionOutcome::Failed(error) => TurnStep::End(Err(error.into())),
        }
    }

    /// The tokens of the prompt that waits for its answer, without the context that a summary takes from it.
    pub(super) fn prompt_tokens(&self) -> u64 {
        let message = self.history.messages.get(self.prompt.index);
        let prompt = message.and_then(|message| message.as_user());
        let own = prompt.into_iter().flat_map(handoff::lasting_parts);
        self.history.meter.tokens(own.map(part_weight).sum())
    }

    fn give_up_room(&mut self, model: &dyn Model, error: &LlmError) -> TurnStep {
        if std::mem::take(&mut self.room.has_guessed) {
            // It was not the window, or there is nothing that could be left out.
            self.history.learned_window = LearnedWindow::default();
            let hint = full_window_hint(model);
            if let LlmError::EmptyReply { host, what } = error {
                let host = host.clone();
                let what = format!("{what}. {hint}");
                return TurnStep::End(Err(LlmError::EmptyReply { host, what }.into()));
            }
            self.say(hint);
        } else {
            self.report_overflow(model, error);
        }
        TurnStep::End(Ok(StopReason::MaxTokens))
    }

    /// Replaces the end of a turn whose last answer has not a word, although the request was accepted. If the
    /// size of the window is only assumed, perhaps the request has filled it: the conversation is summarised
    /// and the model asked again, once.
    pub(super) fn recover_from_no_words(
        &mut self,
        step: TurnStep,
        model: &dyn Model,
        request: &Request,
        shown: ShownSoFar,
    ) -> TurnStep {
        let size = self.history.meter.tokens(request_weight(&self.conversation, request));
        let may_be_full =
            size >= SMALLEST_FULL_WINDOW && compaction::is_window_assumed(model, &self.history);
        if shown != ShownSoFar::Nothing || !may_be_full && !self.room.has_guessed {
            if matches!(step, TurnStep::End(Ok(StopReason::MaxTokens))) {
                self.say(NO_WORDS.to_owned());
            }
            return step;
        }
        let error = match step {
            TurnStep::End(Err(Error::Llm(error @ LlmError::EmptyReply { .. }))) => error,
            TurnStep::End(Ok(StopReason::MaxTokens)) => {
                let kind = ErrorKind::ContextOverflow { limit: None, used: None };
                let message = "it ended the answer at a limit before the first word".to_owned();
                LlmError::in_stream(model.host(), message, kind)
            }
            step => return step,
        };
        if self.room.has_guessed {
            return self.give_up_room(model, &error);
        }
        self.room.has_guessed = true;
        self.learn_window(model, &error, request);
        TurnStep::MakeRoom(error, ShownSoFar::Nothing)
    }

    /// Takes note of how large the window is, as a request that was too long shows it.
    pub(super) fn learn_window(&mut self, model: &dyn Model, error: &LlmError, request: &Request) {
        let weight = request_weight(&self.conversation, request);
        let least = self.least_window(request);
        let meter = &mut self.history.meter;
        let fits = meter.last_count().unwrap_or_default();
        meter.forget_count();
        if let ErrorKind::ContextOverflow { limit: Some(limit), used } = error.kind()
            && self.room.overflows == 0
        {
            model.record_window(limit.max(least));
            match window_beside_answer(limit, model.max_output(), meter.tokens(weight), used) {
                Some(left) => {
                    self.history.learned_window.refuse(model.name(), left.max(least));
                }
                None => meter.calibrate(weight, used.unwrap_or(limit)),
            }
            return;
        }
        // One such refusal proves nothing against what the user has set or the server has told.
        if self.room.overflows == 0 && model.told_window().is_some() {
            return;
        }
        // The server does not say how much it takes, or what it says is wrong. What it has taken
        // last does fit.
        let sent = meter.tokens(weight);
        let fits = if fits < sent { fits } else { 0 };
        let known = compaction::window(model, &self.history);
        let limit = (sent / 2).max(fits).max(least).min(known);
        self.history.learned_window.refuse(model.name(), limit);
    }

    /// The window below which the system prompt and the tools without which no work can be done would leave
    /// too little room for a conversation.
    fn least_window(&self, request: &Request) -> u64 {
        let tools = tools::essential_weight(&request.tools);
        self.history.meter.tokens(text_weight(&request.system) + tools) * 3 / 2
    }

    /// Draws conclusions from the server's count of a request, which some servers cut silently (C.1 #12).
    pub(super) fn check_count(
        &mut self,
        model: &dyn Model,
        usage: TokenUsage,
        finding: CountFinding,
        request: &Request,
    ) {
        if finding == CountFinding::LooksCut && usage.total() < self.least_window(request) {
            return;
        }
        let told = model.told_window();
        let learned = &mut self.history.learned_window;
        if !learned.add_count(model.name(), usage.total(), finding, told.is_none()) {
            return;
        }
        self.history.meter.forget_count();
        if !self.conversation.told.first_time(OnceNotice::Truncation) {
            return;
        }
        let sent = self.history.meter.tokens(request_weight(&self.conversation, request));
        let consequence = told.map_or_else(
            || "The conversation is kept shorter for now".to_owned(),
            |tokens| format!("Its window is known to have {tokens} tokens, so nothing is changed"),
        );
        self.conversation.notify(format!(
            "The server seems to have cut the prompt: it counts {} tokens where about {sent} were sent. \
             {consequence}. With Ollama, set num_ctx or OLLAMA_CONTEXT_LENGTH for more.",
            usage.input
        ));
    }

    /// Tells the user once that the window is small, or that its size is not known when that begins to
    /// matter.
    fn tell_window(&self, model: &dyn Model, window: u64, estimate: u64) {
        let name = model.name();
        let is_assumed = compaction::is_window_assumed(model, &self.history);
        let is_guessed =
            self.history.learned_window.is_guessed(name) && model.window() != Some(window);
        let (kind, notice) = if is_guessed && window < SMALL_WINDOW {
            let notice = format!(
                "The server has refused a request as too long without saying how much {name} takes. For now \
                 {window} tokens are assumed, so it gets just the tools that are needed most."
            );
            (OnceNotice::SmallWindow, notice)
        } else if window < SMALL_WINDOW && !is_assumed {
            let notice = format!(
                "{name} has a window of only {window} tokens. It gets just the tools that are needed \
                 most, and the conversation is compacted often. If it can have a larger one, set that \
                 where the model is served: `num_ctx` of Ollama, `-c` of llama.cpp."
            );
            (OnceNotice::SmallWindow, notice)
        } else if is_assumed && estimate >= window / 100 * TELL_ASSUMED_AT {
            let notice = format!(
                "How much {name} can hold is not known, so {window} tokens are assumed. If that is \
                 wrong, set `window` for the model in the settings, or TURNWRIGHT_CONTEXT_WINDOW."
            );
            (OnceNotice::AssumedWindow, notice)
        } else {
            return;
        };
        if self.conversation.told.first_time(kind) {
            self.conversation.notify(notice);
        }
    }
}

/// The model that writes the summary: the one before if the conversation does not fit into the
/// window of the new one.
fn summarising_model(selection: ModelSelection, estimate: u64) -> ModelSelection {
    let fits = |model: &dyn Model| {
        let window = model.window().unwrap_or_else(|| model.assumed_window());
        estimate < WindowBudget::new(window, model.max_output(), 0).usable
    };
    match selection.previous.clone() {
        Some(model) if !fits(selection.model.as_ref()) && fits(model.as_ref()) => {
            ModelSelection { model, ..selection }
        }
        _ => selection,
    }
}

/// Tells the user what to do if a window whose size is only assumed may be full.
fn full_window_hint(model: &dyn Model) -> String {
    format!(
        "Perhaps the conversation fills the window of {}: its size is not known, and {} tokens are assumed. \
         Give the model a longer context where it is served (`num_ctx` of Ollama, Context Length of LM \
         Studio), or set `window` for it in the settings",
        model.name(),
        model.assumed_window()
    )
}

/// The tokens of the newest results that are never left out.
const KEPT_TOKENS: u64 = 40_000;
/// The fewest tokens for which pruning is worth it.
const MIN_GAIN: u64 = 20_000;
/// A result that is not longer than this stays.
const SHORT_RESULT: usize = 400;
/// The text that the model reads in place of a result.
const STUB: &str = "[This result was left out to save room. Make the call again if you need it, unless it \
                    changes something.]";
/// The tools whose results stay: instructions, the work of helpers, and what the user has answered.
const KEPT_TOOLS: [&str; 4] = [SKILL_TOOL, AGENT_TOOL, QUESTION_TOOL, PLAN_TOOL];
/// The start of the news of a helper in the background, which come once, with any result.
const HELPER_NEWS: &str = "[helper h";

/// The number of messages at the end that stay as they are if the conversation, which takes so many tokens
/// now, is pruned; `None` if that would gain too little. Only as many of the oldest results go as must.
pub(in crate::turn) fn messages_to_keep(
    messages: &[Arc<Message>],
    budget: &WindowBudget,
    meter: &TokenMeter,
    tokens: u64,
) -> Option<usize> {
    let room = budget.room();
    let min_gain = meter.weight(MIN_GAIN.min(room / 5)).max(1);
    let wanted = meter.weight(tokens.saturating_sub(budget.prune_to())).max(min_gain);
    let old = messages.len() - newest(messages, meter.weight(KEPT_TOKENS.min(room / 3)));
    let repeated = repeated_results(messages);
    let mut kept = messages.len();
    let mut gain = 0;
    for (index, message) in messages[..old].iter().enumerate() {
        if gain >= wanted {
            break;
        }
        if is_prunable(message) && !repeated.contains(&index) {
            gain += message_weight(message).saturating_sub(STUB.len() as u64);
            kept = messages.len() - index - 1;
        }
    }
    (gain >= min_gain).then_some(kept)
}

/// The number of messages at the end whose results have this weight together, or which the model has not
/// read yet.
fn newest(messages: &[Arc<Message>], weight: u64) -> usize {
    let newest = messages.iter().rev();
    let unread = newest.clone().take_while(|message| message.as_tool().is_some()).count();
    let mut results = 0;
    let fitting = newest.take_while(|message| {
        results += if message.as_tool().is_some() { message_weight(message) } else { 0 };
        results <= weight
    });
    fitting.count().max(unread)
}

/// The indices of results that the model has asked for again after they were left out, the newest of each
/// call.
fn repeated_results(messages: &[Arc<Message>]) -> HashSet<usize> {
    let mut calls = HashMap::new();
    let mut left_out = HashSet::new();
    let mut newest = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        match message.as_ref() {
            Message::Assistant(answer) => {
                calls.extend(
                    answer.calls.iter().map(|call| (&call.id, (&call.name, &call.arguments))),
                );
            }
            Message::Tool(tool) => {
                let Some(call) = calls.get(&tool.call).copied() else { continue };
                if tool.text == STUB {
                    left_out.insert(call);
                } else if left_out.contains(&call) {
                    newest.insert(call, index);
                }
            }
            Message::User(_) => {}
        }
    }
    newest.into_values().collect()
}

/// Leaves out the results before the last `kept` messages.
pub(crate) fn prune(messages: &mut [Arc<Message>], kept: usize) {
    let old = messages.len().saturating_sub(kept);
    let repeated = repeated_results(messages);
    let is_left_out = |index: usize, message: &Message| {
        index < old && is_prunable(message) && !repeated.contains(&index)
    };
    let Some(first) = (0..old).find(|index| is_left_out(*index, &messages[*index])) else { return };
    for (index, message) in messages.iter_mut().enumerate().skip(first) {
        let pruned = match message.as_ref() {
            Message::Tool(tool) if is_left_out(index, message) => Message::Tool(ToolMessage {
                text: STUB.to_owned(),
                images: Vec::new(),
                ..tool.clone()
            }),
            // All later messages are replaced too: a message caches what was rendered up to it.
            other => other.clone(),
        };
        *message = Arc::new(pruned);
    }
}

fn is_prunable(message: &Message) -> bool {
    matches!(message, Message::Tool(tool)
        if !KEPT_TOOLS.iter().any(|kept| tools::means(&tool.name, kept))
            && !tool.text.lines().any(|line| line.starts_with(HELPER_NEWS))
            && (tool.text.len() > SHORT_RESULT || !tool.images.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::message::{Arguments, AssistantMessage, ToolCall, UserMessage};

    /// A call of a tool with its result of this length. Calls of the same name are equal.
    fn step(messages: &mut Vec<Arc<Message>>, tool: &str, length: usize) {
        let call = ToolCall {
            id: format!("call-{}", messages.len()).into(),
            provider_id: "p".to_owned(),
            name: tool.to_owned(),
            arguments: Arguments::default(),
            extra: None,
        };
        let id = call.id.clone();
        messages.push(Arc::new(Message::Assistant(AssistantMessage::new("m", "", vec![call]))));
        messages.push(Arc::new(Message::Tool(ToolMessage {
            call: id,
            provider_id: "p".to_owned(),
            name: tool.to_owned(),
            text: "x".repeat(length),
            ok: true,
            images: Vec::new(),
        })));
    }

    fn conversation(steps: &[(&str, usize)]) -> Vec<Arc<Message>> {
        let mut messages = Vec::new();
        for (tool, length) in steps {
            step(&mut messages, tool, *length);
        }
        messages
    }

    fn prompt() -> Arc<Message> {
        Arc::new(Message::User(UserMessage::text("hi")))
    }

    /// Prunes a conversation in a window of 200 000 tokens, of which 180 000 are usable. Returns whether it was
    /// changed.
    fn make_room(messages: &mut [Arc<Message>]) -> bool {
        let budget = WindowBudget::new(200_000, None, 0);
        let meter = TokenMeter::default();
        let tokens = meter.estimate(messages, || 0);
        let kept = messages_to_keep(messages, &budget, &meter, tokens);
        if let Some(kept) = kept {
            prune(messages, kept);
        }
        kept.is_some()
    }

    /// The lengths of the results; 0 for one that was left out.
    fn lengths(messages: &[Arc<Message>]) -> Vec<usize> {
        let length = |message: &Arc<Message>| match message.as_ref() {
            Message::Tool(tool) if tool.text == STUB => Some(0),
            Message::Tool(tool) => Some(tool.text.len()),
            _ => None,
        };
        messages.iter().filter_map(length).collect()
    }

    #[test]
    fn only_as_many_of_the_oldest_results_go_as_must_and_short_ones_and_skills_stay() {
        let mut messages = conversation(&[
            ("a", 100_000),
            ("skill", 100_000),
            ("b", 400),
            ("c", 150_000),
            ("d", 150_000),
            ("e", 150_000),
        ]);
        messages.push(prompt());
        let before = messages.clone();
        assert!(make_room(&mut messages));
        assert_eq!(lengths(&messages), [0, 100_000, 400, 0, 150_000, 150_000]);
        // A shared message would stand for what was rendered before it.
        assert!(
            messages[1..].iter().zip(&before[1..]).all(|(one, other)| !Arc::ptr_eq(one, other))
        );
    }

    #[test]
    fn what_was_read_again_stays_and_what_was_read_twice_stays_once() {
        let files = [("a", 150_000), ("b", 150_000), ("c", 150_000), ("d", 200_000)];
        let mut messages = conversation(&files);
        messages.push(prompt());
        assert!(make_room(&mut messages));
        assert_eq!(lengths(&messages), [0, 0, 150_000, 200_000]);
        assert!(repeated_results(&messages).is_empty());
        step(&mut messages, "a", 160_000);
        assert!(!repeated_results(&messages).is_empty());
        step(&mut messages, "e", 200_000);
        messages.push(prompt());
        assert!(make_room(&mut messages));
        assert_eq!(lengths(&messages), [0, 0, 0, 0, 160_000, 200_000]);
        step(&mut messages, "a", 170_000);
        step(&mut messages, "f", 60_000);
        messages.push(prompt());
        assert!(make_room(&mut messages));
        assert_eq!(lengths(&messages), [0, 0, 0, 0, 0, 200_000, 170_000, 60_000]);
    }

    #[test]
    fn answers_of_helpers_and_of_the_user_stay() {
        let mut messages = conversation(&[
            ("agent", 8_000),
            ("ask_user", 1_000),
            ("read_file", 5_000),
            ("a", 300_000),
            ("b", 300_000),
        ]);
        let Message::Tool(tool) = Arc::make_mut(&mut messages[5]) else { panic!("no result") };
        tool.text.push_str("\n[helper h3 (explore: x) is done]\nIt is in a.rs.\n");
        let with_news = tool.text.len();
        messages.push(prompt());
        assert!(make_room(&mut messages));
        assert_eq!(lengths(&messages), [8_000, 1_000, with_news, 0, 300_000]);
        let Message::Tool(left_out) = messages[7].as_ref() else { panic!("no result") };
        assert!(left_out.text.contains("unless it changes something"), "{}", left_out.text);
    }

    #[test]
    fn a_small_gain_is_not_worth_it() {
        let mut messages = conversation(&[("exec", 30_000), ("exec", 130_000)]);
        messages.push(prompt());
        assert!(!make_room(&mut messages));
        // The model has not read this one yet.
        assert!(!make_room(&mut conversation(&[("exec", 400_000)])));
        assert!(!make_room(&mut []));
    }
}
