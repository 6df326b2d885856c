//! Makes room in a conversation: the model summarises it, and the summary takes the place of
//! everything but the newest messages. The user keeps the whole conversation.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::budget::{HandoffLimits, WindowBudget};
use super::handoff::{self, KeptTail};
use super::prune;
use crate::error::error_chain;
use crate::turn::answer::failures::renew_model;
use crate::turn::answer::silence::SilenceWatch;
use crate::turn::hooks::{note_compaction, refuse_compaction};
use crate::turn::limits::used_up_limit;
use crate::turn::next_step::{ShownSoFar, TurnBudget, after_failure};
use crate::turn::{Conversation, ModelSelection, TurnStep};
use turnwright_llm::{Delta, DeltaBatch, EndReason, ErrorKind, LlmError, Model, Reply, Request};
use turnwright_store::Entry;
use turnwright_types::ids::MessageId;
use turnwright_types::message::{History, Message, PromptPart, ToolSpecs, UserMessage, repair};
use turnwright_types::patience::{sleep_until, timeout};
use turnwright_types::text;
use turnwright_types::token_meter::{FailedSummaries, message_weight, text_weight, weight_of};
use turnwright_types::update::{CompactionState, CursorPlace, Update};

/// The request for a summary. It comes after the conversation, so that the provider has that in its
/// cache.
const SUMMARY_REQUEST: &str = include_str!("summary_request.md");
/// The same where the window has no room for a long summary.
const SHORT_SUMMARY_REQUEST: &str = include_str!("short_summary_request.md");
/// Stands in the requests for the maximum number of words of a summary.
const MAX_WORDS_PLACEHOLDER: &str = "WORDS";
/// A summary that may have at least this many words is asked for with headings.
const MIN_WORDS_WITH_HEADINGS: u64 = 300;
/// The maximum number of words that are asked for.
const MAX_SUMMARY_WORDS: u64 = 1_500;
/// How often a summary is asked for if the conversation turns out to be too long for that, too.
const MAX_ATTEMPTS: u32 = 3;
/// The interval at which new parts of a summary are sent to the client.
const SHOW_INTERVAL: Duration = Duration::from_millis(16);
/// If a summary was cut off, the limit of its words is divided by this, and it is asked for again.
const SHORTER: u64 = 3;
/// Ends a summary that was cut off.
const SUMMARY_WAS_CUT: &str = "\n[The summary was cut off here.]";
/// A shorter text before calls is no summary: it only says what the model is about to do.
const MIN_BYTES_BEFORE_CALLS: usize = 400;
/// The newest messages, whose results are left out last.
const NEWEST: usize = 8;

/// The size of a model's window in tokens, known or assumed. It is smaller if a refusal in this conversation
/// has shown that.
pub(crate) fn window(model: &dyn Model, history: &History) -> u64 {
    let window = model.window().unwrap_or_else(|| model.assumed_window());
    history.learned_window.limit(model.name()).map_or(window, |limit| limit.min(window))
}

/// The estimated size of the next request in tokens.
pub(crate) fn estimated_size(conversation: &Conversation, history: &History) -> u64 {
    let window = window(conversation.selection.get().model.as_ref(), history);
    let size = history
        .meter
        .estimate(&history.messages, || fixed_weight(conversation, &conversation.specs(window)));
    size.min(window)
}

/// True if the size that [`window`] returns is only assumed.
pub(crate) fn is_window_assumed(model: &dyn Model, history: &History) -> bool {
    model.window().is_none() && history.learned_window.limit(model.name()).is_none()
}

/// The weight of the system prompt and the tools.
pub(in crate::turn) fn fixed_weight(conversation: &Conversation, tools: &ToolSpecs) -> u64 {
    text_weight(&conversation.system_prompt) + conversation.tools.weight(tools)
}

/// Why a conversation is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompactionReason<'a> {
    /// It has nearly filled the window.
    NearlyFull,
    /// A request was too long. Afterwards it must fit, even without a summary.
    Overflow,
    /// The user asked for it, and named what must be kept.
    Asked(&'a str),
}

impl CompactionReason<'_> {
    /// The user's wish of what to keep; `None` if the user has not asked for the compaction.
    fn focus(&self) -> Option<&str> {
        match self {
            CompactionReason::Asked(focus) => Some(focus),
            CompactionReason::NearlyFull | CompactionReason::Overflow => None,
        }
    }
}

/// How a compaction ended.
#[derive(Debug)]
pub(super) enum CompactionOutcome {
    Done {
        /// The number of messages that were kept beside the summary.
        kept: usize,
    },
    /// There is nothing that could be summarised.
    Nothing,
    Failed(LlmError),
    Cancelled,
}

/// Compacts one conversation.
pub(super) struct Compactor<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) cancel: &'a CancellationToken,
    pub(super) history: &'a mut History,
    /// The model that writes the summary.
    pub(super) selection: ModelSelection,
    /// The index of the message with the prompt that waits for its answer.
    pub(super) prompt: Option<usize>,
}

impl Compactor<'_> {
    /// Compacts the conversation. Unless it succeeds, nothing is changed.
    pub(in crate::turn) async fn run(mut self, reason: CompactionReason<'_>) -> CompactionOutcome {
        let id = MessageId::from(format!("sum-{}", self.history.mint()));
        let size = window(self.selection.model.as_ref(), self.history);
        let tools = self.conversation.specs(size);
        let fixed = fixed_weight(self.conversation, &tools);
        let meter = self.history.meter;
        let max_output = self.selection.model.max_output();
        let budget = WindowBudget::new(size, max_output, meter.tokens(fixed));
        let mut limits = HandoffLimits::new(&budget, &meter);
        // Most of a short conversation is summarised, too.
        limits.tail = limits.tail.min(weight_of(&self.history.messages) / 4);
        let before = meter.estimate(&self.history.messages, || fixed);
        let mut tail = KeptTail::choose(&self.history.messages, &limits);
        let old = self.history.messages.len() - tail.count;
        // The prompt goes on as it is, and before it only instructions can be made shorter.
        let is_only_prompt = old == 1 && self.prompt == Some(0);
        let is_worth_it = old > 1
            || old == 1
                && !self.is_spent(reason, is_only_prompt)
                && (!is_only_prompt || reason == CompactionReason::Overflow);
        if !is_worth_it {
            return CompactionOutcome::Nothing;
        }
        if self.is_refused(reason).await {
            return CompactionOutcome::Nothing;
        }
        self.show(&id, CompactionState::InProgress, None);
        let summary = match self.summary(&id, reason, tools, &budget, is_only_prompt).await {
            None => {
                self.show(&id, CompactionState::Cancelled, None);
                return CompactionOutcome::Cancelled;
            }
            Some(Ok(summary)) => summary,
            Some(Err(error)) => {
                let why = error_chain(&error);
                let notice = format!("The conversation could not be compacted: {why}.");
                self.show(&id, CompactionState::Failed(why), Some(notice));
                return CompactionOutcome::Failed(error);
            }
        };
        let (old, kept) = self.history.messages.split_at(old);
        let facts = handoff::gather_facts(self.conversation, old, kept).await;
        let replacement =
            handoff::replacement(old, &limits, self.prompt, summary.as_deref(), &facts);
        let replacement = Arc::new(Message::User(replacement));
        let room = meter.weight(budget.compacted_room());
        tail.widen(&self.history.messages, room.saturating_sub(message_weight(&replacement)));
        self.replace(id.clone(), replacement, tail);
        let after = self.history.meter.estimate(&self.history.messages, || fixed);
        let done = what_was_done(summary.is_some(), is_only_prompt);
        let notice = format!("{done}: about {before} tokens became {after}.");
        let text = summary.clone().unwrap_or_default();
        self.report(&id, notice, after, summary);
        let telling = note_compaction(self.conversation, reason.focus(), &text, self.cancel);
        Box::pin(telling).await;
        CompactionOutcome::Done { kept: tail.count }
    }

    /// Returns true if the first message is a replacement that cannot be made shorter. A prompt that it carries on can,
    /// once another one waits: perhaps it did not fit into the window.
    fn is_spent(&self, reason: CompactionReason<'_>, is_only_prompt: bool) -> bool {
        let first = self.history.messages.first().and_then(|first| first.as_user());
        let has_prompt = first.is_some_and(|first| handoff::lasting_parts(first).next().is_some());
        let is_needed = reason != CompactionReason::NearlyFull && !is_only_prompt;
        handoff::is_compacted(&self.history.messages) && !(has_prompt && is_needed)
    }

    /// Returns true if hooks want the conversation to stay as it is, and it can.
    async fn is_refused(&self, reason: CompactionReason<'_>) -> bool {
        let is_needed = reason == CompactionReason::Overflow;
        let asking = refuse_compaction(self.conversation, reason.focus(), is_needed, self.cancel);
        Box::pin(asking).await
    }

    /// Makes the change in the history and in the log.
    fn replace(&mut self, id: MessageId, replacement: Arc<Message>, tail: KeptTail) {
        let kept = tail.count;
        let max_result = tail.max_result;
        self.conversation.log().add_entry(Entry::Compacted {
            id,
            replacement: Arc::clone(&replacement),
            kept,
            max_result,
        });
        handoff::compact(&mut self.history.messages, replacement, kept, max_result);
        self.history.meter.forget_count();
        self.conversation.forget_told_context();
        // The facts name the mode.
        self.conversation.told.lock().mode = Some(self.conversation.env.mode());
    }

    fn report(&self, id: &MessageId, notice: String, after: u64, summary: Option<String>) {
        self.show(id, CompactionState::Completed(summary), Some(notice));
        let place = CursorPlace::AfterCompaction;
        let cursor = Update::Cursor { place, at: id.clone(), can_fork: true };
        self.conversation.client().update(cursor);
        let size = window(self.conversation.selection.get().model.as_ref(), self.history);
        self.conversation.report_context(self.history, after, size, 0);
    }

    fn show(&self, id: &MessageId, state: CompactionState, notice: Option<String>) {
        self.conversation.client().update(Update::Compaction { id: id.clone(), state, notice });
    }

    /// The summary, or none if there is nothing to summarise, or the conversation can only go on without one.
    /// `None` if it was cancelled.
    async fn summary(
        &mut self,
        id: &MessageId,
        reason: CompactionReason<'_>,
        tools: ToolSpecs,
        budget: &WindowBudget,
        is_only_prompt: bool,
    ) -> Option<Result<Option<String>, LlmError>> {
        let model = Arc::clone(&self.selection.model);
        let is_asked_for = matches!(reason, CompactionReason::Asked(_));
        let is_hopeless =
            |summaries: &FailedSummaries| !is_asked_for && summaries.is_hopeless(model.name());
        let failed = &mut self.history.failed_summaries;
        if is_only_prompt || is_hopeless(failed) && !failed.is_due() {
            return Some(Ok(None));
        }
        Some(match self.summarise(id, reason, tools, budget).await? {
            Ok(summary) => {
                self.history.failed_summaries = FailedSummaries::default();
                Ok(Some(summary))
            }
            // Without a summary the conversation could not go on at all.
            Err(error) if reason == CompactionReason::Overflow && would_fail_again(&error) => {
                Ok(None)
            }
            Err(_) if is_hopeless(&self.history.failed_summaries) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// Asks the model for a summary. `None` if it was cancelled.
    async fn summarise(
        &mut self,
        id: &MessageId,
        reason: CompactionReason<'_>,
        tools: ToolSpecs,
        budget: &WindowBudget,
    ) -> Option<Result<String, LlmError>> {
        let is_compacted = handoff::is_compacted(&self.history.messages);
        // A word has at most two tokens in most languages.
        let mut words = (budget.summary_tokens() / 2).min(MAX_SUMMARY_WORDS);
        let mut room = budget.summary_room();
        let mut cut_off = None;
        let mut tries = TurnBudget::new(0);
        let mut attempts = 1;
        let cancel = self.cancel;
        loop {
            let request = self.request(room, summary_request(reason, is_compacted, words), &tools);
            let mut is_cut = false;
            let checked = match cancel.run_until_cancelled(self.ask(id, &request)).await? {
                Ok((summary, reply)) => {
                    let model = self.selection.model.as_ref();
                    let used = (reply.usage, reply.cost);
                    self.conversation.add_request(self.history, model, &reply.served, used, None);
                    is_cut = reply.end == EndReason::Length;
                    checked_summary(model.host(), summary, reply)
                }
                Err(error) => Err(error),
            };
            let error = match (checked, cut_off.take()) {
                // The end, which says what comes next, is missing.
                (Ok(summary), None) if is_cut => {
                    cut_off = Some(summary);
                    words /= SHORTER;
                    continue;
                }
                (Ok(summary), _) | (Err(_), Some(summary)) => return Some(Ok(summary)),
                (Err(error), None) => error,
            };
            let kind = error.kind();
            if matches!(kind, ErrorKind::ContextOverflow { .. }) && attempts < MAX_ATTEMPTS {
                attempts += 1;
                let limit = error.context_window();
                // Bytes or messages may be too many, far below the room for tokens.
                let sent = self.history.meter.tokens(weight_of(&request.messages));
                room = limit.map_or(room.min(sent) / 2, |limit| (limit / 4 * 3).min(room / 2));
                continue;
            }
            if kind == ErrorKind::Auth && TurnBudget::take(&mut tries.retries) {
                let renewing = renew_model(self.conversation, &self.selection.model);
                if let Some(found) = self.cancel.run_until_cancelled(renewing).await? {
                    self.selection.model = found;
                    continue;
                }
            }
            let Some(delay) = self.retry_delay(&error, reason, &mut tries) else {
                return Some(Err(error));
            };
            self.cancel.run_until_cancelled(tokio::time::sleep(delay)).await?;
        }
    }

    /// Returns the delay before a summary is asked for again, which is the same as for an answer; `None` if it is not
    /// asked for again. Counts the failure, unless the server is only waited for: that says nothing about its summaries.
    fn retry_delay(
        &mut self,
        error: &LlmError,
        reason: CompactionReason<'_>,
        tries: &mut TurnBudget,
    ) -> Option<Duration> {
        let kind = error.kind();
        let jitter = self.conversation.env.shared.process.outside.random_fraction();
        let step = after_failure(error.clone(), ShownSoFar::Nothing, tries, jitter);
        let is_waited_for = kind == ErrorKind::RateLimit || error.is_outage();
        if !is_waited_for || !matches!(step, TurnStep::Wait(..)) {
            let name = self.selection.model.name();
            let failed = &mut self.history.failed_summaries;
            failed.add(name, matches!(kind, ErrorKind::EmptyReply | ErrorKind::Refused));
            if !matches!(reason, CompactionReason::Asked(_)) && !failed.may_retry(name) {
                return None;
            }
        }
        let TurnStep::Wait(delay, why) = step else { return None };
        if let Some(why) = why {
            self.conversation.notify(why);
        }
        Some(delay)
    }

    /// The request with this message, and as much of the conversation as fits into this many tokens.
    fn request(&self, room: u64, message: UserMessage, tools: &ToolSpecs) -> Request {
        let message = Arc::new(Message::User(message));
        let mut messages = self.history.messages.clone();
        let max_weight = self.history.meter.weight(room);
        fit(&mut messages, max_weight.saturating_sub(message_weight(&message)));
        messages.push(message);
        Request {
            system: Arc::clone(&self.conversation.system_prompt),
            messages: repair(&messages),
            tools: Arc::clone(tools),
            effort: self.selection.effort,
            has_media: self.history.has_media,
        }
    }

    /// Makes one request and shows the summary as it arrives.
    async fn ask(
        &mut self,
        id: &MessageId,
        request: &Request,
    ) -> Result<(String, Reply), LlmError> {
        let model = self.selection.model.as_ref();
        let client = self.conversation.client();
        let mut silence = SilenceWatch::new(model, Duration::ZERO);
        let opening = model.open_stream(request);
        let mut stream = timeout(model.silence_limit(), opening)
            .await
            .map_err(|_| LlmError::Silent { host: model.host(), limit: model.silence_limit() })??;
        let mut batch = DeltaBatch::default();
        let mut summary = String::new();
        // The length of the summary that was shown, and when the next part may be shown.
        let mut shown = 0;
        let mut due = Instant::now();
        loop {
            let is_behind = shown < summary.len();
            let wake = if is_behind { due.min(silence.due()) } else { silence.due() };
            let received = tokio::select! {
                biased;
                reply = stream.next(&mut batch) => reply,
                () = sleep_until(wake) => Ok(None),
            };
            if received.is_err() && batch.reported != (None, None) {
                self.conversation.add_request(self.history, model, "", batch.reported, None);
            }
            let reply = received?;
            if batch.take_progress() {
                silence.restart();
            } else if reply.is_none()
                && let Some(notice) = silence.check()?
            {
                self.conversation.notify(notice);
            }
            // Calls and reasoning are no part of a summary.
            let text = batch.deltas.drain(..).filter_map(|delta| match delta {
                Delta::Text(text) => Some(text),
                _ => None,
            });
            summary.extend(text);
            if reply.is_none() {
                client.wait_for_capacity().await;
            }
            if shown < summary.len() && (reply.is_some() || due <= Instant::now()) {
                let text = summary[shown..].to_owned();
                client.update(Update::CompactionSummary { id: id.clone(), text });
                shown = summary.len();
                due = Instant::now() + SHOW_INTERVAL;
            }
            if let Some(reply) = reply {
                return Ok((summary, reply));
            }
        }
    }
}

/// Tells the user how the conversation was made shorter.
fn what_was_done(has_summary: bool, is_only_prompt: bool) -> &'static str {
    if has_summary {
        "The conversation was compacted"
    } else if is_only_prompt {
        "What the model is told besides the prompt was shortened"
    } else {
        "The older part of the conversation was left out, because it could not be summarised"
    }
}

/// The request for a summary of at most this many words, as a message of the user.
fn summary_request(reason: CompactionReason<'_>, is_compacted: bool, words: u64) -> UserMessage {
    let request =
        if words < MIN_WORDS_WITH_HEADINGS { SHORT_SUMMARY_REQUEST } else { SUMMARY_REQUEST };
    let mut text = request.trim_end().replace(MAX_WORDS_PLACEHOLDER, &words.to_string());
    if is_compacted {
        text.push_str("\nUpdate the earlier summary in the context instead of starting anew.");
    }
    if let CompactionReason::Asked(focus) = reason
        && !focus.is_empty()
    {
        text.push_str("\nThe user wants this to be kept above all: ");
        text.push_str(focus);
    }
    UserMessage::context(text)
}

/// Returns the summary that a reply of this server brings.
///
/// # Errors
/// If it brings none.
fn checked_summary(host: String, summary: String, reply: Reply) -> Result<String, LlmError> {
    let is_missing = summary.trim().is_empty()
        || !reply.calls.is_empty() && summary.len() < MIN_BYTES_BEFORE_CALLS;
    match reply.end {
        EndReason::Refused(why) => {
            let message = format!("a refusal instead of a summary. {why}");
            Err(LlmError::in_stream(host, message.trim_end().to_owned(), ErrorKind::Refused))
        }
        _ if is_missing => Err(LlmError::EmptyReply { host, what: "no summary".to_owned() }),
        EndReason::Length => Ok(summary + SUMMARY_WAS_CUT),
        EndReason::Complete => Ok(summary),
    }
}

/// True if another request for a summary would fail as well.
fn would_fail_again(error: &LlmError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ContextOverflow { .. } | ErrorKind::EmptyReply | ErrorKind::Refused
    )
}

/// Answers `/compact`. Returns the text for the user.
pub(crate) async fn compact_on_request(
    conversation: &Conversation,
    history: &mut History,
    focus: &str,
    cancel: &CancellationToken,
) -> Option<String> {
    if let Some(limit) = used_up_limit(conversation.limits, history) {
        return Some(format!("Nothing was compacted. {}", limit.advice()));
    }
    let selection = conversation.selection.get();
    let compactor = Compactor { conversation, cancel, history, selection, prompt: None };
    Some(match compactor.run(CompactionReason::Asked(focus)).await {
        CompactionOutcome::Done { .. } => {
            "The model has a summary of the conversation now. You still see all of it.".to_owned()
        }
        CompactionOutcome::Nothing => "There is nothing to compact.".to_owned(),
        CompactionOutcome::Failed(error) => {
            format!("The conversation is as it was: {}.", error_chain(&error))
        }
        CompactionOutcome::Cancelled => return None,
    })
}

/// The weight of a request of this session.
pub(in crate::turn) fn request_weight(conversation: &Conversation, request: &Request) -> u64 {
    fixed_weight(conversation, &request.tools) + weight_of(&request.messages)
}

/// Leaves out as much as needed, the least important first: old results, the middle of long texts, then
/// the oldest messages but the first.
fn fit(messages: &mut Vec<Arc<Message>>, max_weight: u64) {
    if weight_of(messages) <= max_weight {
        return;
    }
    prune(messages, NEWEST);
    if weight_of(messages) <= max_weight {
        return;
    }
    let longest = usize::try_from(max_weight / 8).unwrap_or(usize::MAX);
    for message in messages.iter_mut() {
        *message = Arc::new(shortened(message, longest));
    }
    let mut excess = weight_of(messages).saturating_sub(max_weight);
    let mut dropped = 0;
    // The last message says what is to be done.
    let droppable = messages.len().saturating_sub(2);
    for message in messages.iter().skip(1).take(droppable) {
        if excess == 0 {
            break;
        }
        excess = excess.saturating_sub(message_weight(message));
        dropped += 1;
    }
    // The rest must not begin with results of a call that is gone.
    let rest = messages.iter().skip(1 + dropped).take(droppable - dropped);
    dropped += rest.take_while(|message| message.as_tool().is_some()).count();
    messages.drain(1..=dropped);
}

fn shortened(message: &Message, longest: usize) -> Message {
    let mut message = message.clone();
    match &mut message {
        Message::User(user) => {
            for part in &mut user.parts {
                match part {
                    PromptPart::Text(text)
                    | PromptPart::Context(text)
                    | PromptPart::Resource { text, .. } => *text = text::clip_middle(text, longest),
                    PromptPart::Image(media) => {
                        *part = PromptPart::Text(format!("[{}]", media.kind()));
                    }
                    PromptPart::Audio(_) => *part = PromptPart::Text("[recording]".to_owned()),
                    PromptPart::Link { .. } | PromptPart::Skill(_) => {}
                }
            }
        }
        Message::Assistant(answer) => {
            answer.text = text::clip_middle(&answer.text, longest);
            answer.provider_state.blobs.clear();
        }
        Message::Tool(tool) => {
            tool.text = text::clip_middle(&tool.text, longest);
            tool.images.clear();
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_llm::ReplyCall;
    use turnwright_types::message::{Arguments, ProviderState, ToolMessage, UserMessage};

    #[test]
    fn a_summary_is_asked_for_in_the_language_of_the_user() {
        for words in [MIN_WORDS_WITH_HEADINGS - 1, MIN_WORDS_WITH_HEADINGS] {
            let request = summary_request(CompactionReason::NearlyFull, false, words);
            let asked = format!("At most {words} words, in the user's language");
            assert!(format!("{request:?}").contains(&asked), "{request:?}");
        }
    }

    #[test]
    fn a_refusal_and_a_few_words_before_a_call_are_no_summary() {
        let call = ReplyCall {
            slot: 0,
            provider_id: String::new(),
            name: "exec".to_owned(),
            arguments: Arguments::default(),
            extra: None,
        };
        let long = "x".repeat(MIN_BYTES_BEFORE_CALLS);
        let refused = EndReason::Refused("not this".to_owned());
        for (text, end, has_calls, expected) in [
            ("# Goal", EndReason::Complete, false, Some("# Goal")),
            ("# Goal", EndReason::Length, false, Some("# Goal\n[The summary was cut off here.]")),
            (" ", EndReason::Complete, false, None),
            ("I look first.", EndReason::Complete, true, None),
            (long.as_str(), EndReason::Complete, true, Some(long.as_str())),
            ("I cannot help with that.", refused, false, None),
        ] {
            let reply = Reply {
                end,
                calls: has_calls.then(|| call.clone()).into_iter().collect(),
                usage: None,
                cost: None,
                served: String::new(),
                provider_state: ProviderState::default(),
                has_lost_calls: false,
            };
            let found = checked_summary("h".to_owned(), text.to_owned(), reply).ok();
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_too_long_fits_afterwards_and_the_first_and_the_last_message_stay() {
        let prompt = |text: &str| Arc::new(Message::User(UserMessage::text(text)));
        let result = || {
            Arc::new(Message::Tool(ToolMessage {
                call: "c".into(),
                provider_id: "p".to_owned(),
                name: "exec".to_owned(),
                text: "x".repeat(50_000),
                ok: true,
                images: Vec::new(),
            }))
        };
        for max_weight in [4_000, 10_000, 100_000, 400_000] {
            let mut messages = vec![prompt("the task")];
            for number in 0..30 {
                messages.push(prompt(&format!("step {number} {}", "word ".repeat(3_000))));
                messages.push(result());
            }
            messages.push(prompt("the end"));
            fit(&mut messages, max_weight);
            assert!(weight_of(&messages) <= max_weight, "{max_weight}");
            assert_eq!(messages.first(), Some(&prompt("the task")), "{max_weight}");
            assert_eq!(messages.last(), Some(&prompt("the end")), "{max_weight}");
            assert!(!matches!(messages[1].as_ref(), Message::Tool(_)), "{max_weight}");
        }
    }

    #[test]
    fn a_conversation_that_fits_is_not_touched() {
        let mut messages = vec![Arc::new(Message::User(UserMessage::text("hi")))];
        let before = messages.clone();
        fit(&mut messages, 1_000);
        assert!(Arc::ptr_eq(&messages[0], &before[0]));
    }
}
