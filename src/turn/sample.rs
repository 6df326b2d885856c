//! Makes one request to the model. The stream becomes updates as it arrives, and one entry of the
//! history at its end, however it ends.

use std::cmp::min;
use std::mem::take;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep_until};

use super::cards::OpenCards;
use super::coalesce::{TextCoalescer, TextKind};
use super::draft_writer::DraftWriter;
use super::model_failures::{empty_reply_as_overflow, omission_notice};
use super::next_step::{self, SampleOutcome, ShownSoFar};
use super::silence::SilenceWatch;
use super::streaming_call::StreamingCall;
use super::{Turn, TurnStep, context};
use crate::tools::{COMMON_ARGUMENTS, Toolbox};
use turnwright_llm::{
    Delta, DeltaBatch, EndReason, LlmError, Modalities, Model, Reply, Request,
    looks_like_leaked_call,
};
use turnwright_store::{Audience, Entry, PendingWrite};
use turnwright_types::client::Client;
use turnwright_types::effect::{CallView, ToolKind, escape_hidden_line};
use turnwright_types::ids::{CallId, MessageId};
use turnwright_types::message::{
    AssistantMessage, History, Message, ProviderState, StopReason, TokenUsage, ToolCall,
};
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::update::Update;

/// How long a card waits for complete arguments before it is shown without them. Few arguments
/// arrive in less, and their card then appears once, with its final title.
const SHOW_CARD_AFTER: Duration = Duration::from_millis(150);
/// The most characters of a tool name that are kept.
const MAX_NAME_CHARS: usize = 200;

impl Turn {
    pub(super) async fn sample(&mut self) -> TurnStep {
        let services = self.services.clone();
        // While the client does not read the last round's updates, no new request is made.
        self.cancel.run_until_cancelled(services.client().wait_for_capacity()).await;
        let selection = services.selection.get();
        let request = context::request(
            &self.history,
            services.tools.specs(&services.offer(), selection.model.window()),
            selection.effort,
        );
        let message = MessageId::from(format!("msg-{}", self.history.mint()));
        let mut listener = AnswerListener {
            client: services.client(),
            tools: &services.tools,
            cwd: services.env.files.roots().cwd(),
            history: &mut self.history,
            open: &mut self.cards,
            coalescer: TextCoalescer::new(message.clone()),
            draft_writer: DraftWriter::new(services.log().clone(), message.clone()),
            text: String::new(),
            thought: String::new(),
            cards: Vec::new(),
            senses: selection.model.modalities(),
            silence: SilenceWatch::new(selection.model.as_ref(), self.silence),
        };
        // Dropping a half-read stream is safe because no call has run yet, and it aborts the
        // request at the server (R-CANCEL-1).
        let written = services.log().flush();
        let listening = listener.listen(selection.model.as_ref(), &request, written);
        let outcome = self.cancel.run_until_cancelled(listening).await;
        // That the server does not accept images may also come to light in the stream.
        let omits = listener.report_omission(selection.model.as_ref(), &request);
        self.silence = match outcome {
            Some(Err(_)) => listener.silence.length(),
            Some(Ok(_)) | None => Duration::ZERO,
        };
        let answer = listener.finish();
        self.report_missing_effort(&selection);
        let reply = outcome.as_ref().and_then(|it| it.as_ref().ok());
        let calls = self.take_answer(message, &answer, reply).await;
        let sampled = match outcome {
            // The caller turns a cancelled token into the stop reason.
            None => return TurnStep::End(Ok(StopReason::Cancelled)),
            Some(Err(error)) => {
                if answer.shown() == ShownSoFar::Nothing
                    && !omits
                    && let Some(notice) = self.drop_images(&error)
                {
                    return TurnStep::Wait(Duration::ZERO, Some(notice));
                }
                let error = empty_reply_as_overflow(error, &request, selection.model.window());
                self.report_failure(selection.model.as_ref(), &error);
                SampleOutcome::Failed { error, shown: answer.shown() }
            }
            Some(Ok(reply)) => {
                let model = selection.model.as_ref();
                self.report_usage(model, reply.usage);
                self.report_truncated_prompt(reply.usage, &request);
                self.evaluate_reply(model, reply, &calls, &answer.text)
            }
        };
        let jitter = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        let step = next_step::after_sample(sampled, &mut self.budget, jitter);
        if !matches!(step, TurnStep::RunCalls(_) | TurnStep::SkipCalls(_)) {
            let why = "Not executed: the turn ended here.";
            self.abandon_calls(calls, ToolRefusal::new(why, why)).await;
        }
        step
    }

    /// Records the answer and its complete calls, and closes the cards of the others.
    async fn take_answer(
        &mut self,
        message: MessageId,
        answer: &StreamedAnswer,
        reply: Option<&Reply>,
    ) -> Vec<ToolCall> {
        for draft in answer.cards.iter().flatten() {
            if let Some(view) = &draft.view {
                self.cards.set_view(&draft.id, view);
            }
        }
        let calls = reply.map(|it| self.identify_calls(it, &answer.cards)).unwrap_or_default();
        self.record_answer(message, answer, &calls, reply.map(|it| it.provider_state.clone()));
        self.close_incomplete_cards(&answer.cards, &calls).await;
        calls
    }

    /// Reports what the reply says about itself, and gathers what the next step depends on.
    fn evaluate_reply(
        &mut self,
        model: &dyn Model,
        reply: Reply,
        calls: &[ToolCall],
        text: &str,
    ) -> SampleOutcome {
        if let EndReason::Refused(why) = &reply.end {
            self.report_refusal(why);
        }
        if reply.end == EndReason::Length {
            self.report_full_window(model, reply.usage);
        }
        let reads = calls.iter().all(|it| self.services.tools.is_read_only(&it.name));
        let max_repeats = next_step::max_repeats(model.is_loop_prone(), reads);
        let has_leaked_call =
            calls.is_empty() && model.nudges_leaked_calls() && looks_like_leaked_call(text);
        SampleOutcome::Reply { end: reply.end, calls: calls.to_vec(), max_repeats, has_leaked_call }
    }

    /// Gives each call of the answer its identifiers. A call without a card, because its name
    /// arrived only at the end, gets one now.
    fn identify_calls(&mut self, reply: &Reply, cards: &[Option<StreamingCall>]) -> Vec<ToolCall> {
        let mut calls = Vec::with_capacity(reply.calls.len());
        for call in &reply.calls {
            let id = match cards.get(call.slot).and_then(Option::as_ref) {
                Some(card) => card.id.clone(),
                None => {
                    let tools = &self.services.tools;
                    open_card(&mut self.cards, tools, &mut self.history, &call.name).id
                }
            };
            let mut provider_id =
                context::unique_provider_id(&self.history, &call.provider_id, id.as_str());
            if calls.iter().any(|it: &ToolCall| it.provider_id == provider_id) {
                id.as_str().clone_into(&mut provider_id);
            }
            calls.push(ToolCall {
                id,
                provider_id,
                name: clip_name(&call.name),
                arguments: call.arguments.clone(),
                extra: call.extra.clone(),
            });
        }
        calls
    }

    /// Closes the cards of calls that were never complete. Their end is stored before the client
    /// sees it.
    async fn close_incomplete_cards(
        &mut self,
        cards: &[Option<StreamingCall>],
        calls: &[ToolCall],
    ) {
        let why = if self.cancel.is_cancelled() {
            "Cancelled"
        } else {
            "Failed: the answer broke off before the call was complete"
        };
        let left = |card: &&StreamingCall| !calls.iter().any(|it| it.id == card.id);
        let lost: Vec<_> = cards.iter().flatten().filter(left).collect();
        if lost.is_empty() {
            return;
        }
        for card in &lost {
            self.cards.log_incomplete(&card.id, why);
        }
        self.services.log().flush().written().await;
        for card in lost {
            self.cards.fail(&card.id, why);
        }
    }

    fn record_answer(
        &mut self,
        id: MessageId,
        answer: &StreamedAnswer,
        calls: &[ToolCall],
        echo: Option<ProviderState>,
    ) {
        if answer.text.is_empty() && answer.thought.is_empty() && calls.is_empty() {
            return;
        }
        let message = Arc::new(Message::Assistant(AssistantMessage {
            id: id.clone(),
            text: answer.text.clone(),
            thought: answer.thought.clone(),
            calls: calls.to_vec(),
            interrupted: echo.is_none(),
            provider_state: echo.unwrap_or_default(),
        }));
        // Reasoning alone is of no use to the model.
        let is_answer = !answer.text.is_empty() || !calls.is_empty();
        let audience = if is_answer { Audience::Both } else { Audience::User };
        let entry = Entry::Message { id, message: Arc::clone(&message), audience };
        let log = self.services.log();
        let seq = answer.seq.unwrap_or_else(|| log.reserve_seq());
        log.replace_entries(self.cards.take_announced(calls), seq, entry);
        if is_answer {
            self.history.messages.push(message);
        }
    }

    /// Reports the tokens in use, which are those of the last request, whatever earlier ones have
    /// used. Without a known window nothing is reported: a wrong gauge is worse than none.
    fn report_usage(&mut self, model: &dyn Model, usage: Option<TokenUsage>) {
        // Zero tokens means that the server does not count.
        let Some(usage) = usage.filter(|it| it.input + it.output > 0) else { return };
        self.history.tokens = Some(usage.input + usage.output);
        if let Some(price) = model.price() {
            *self.history.cost.get_or_insert_default() += price.cost(&usage);
        }
        let log = self.services.log();
        let cost = model.price().map(|it| it.cost(&usage));
        log.record_usage(model.name(), usage, model.window(), cost);
        if let Some(size) = model.window() {
            let used = (usage.input + usage.output).min(size);
            let (cached, cost) = (usage.cached, self.history.cost);
            self.services.client().update(Update::ContextUsage { used, size, cached, cost });
        }
    }

    /// Shows the provider's text about a refusal as a message, because some editors remove the
    /// prompt on a refusal.
    pub(super) fn report_refusal(&mut self, why: &str) {
        let text = match why.trim() {
            "" => "The model's provider refused to answer this.".to_owned(),
            why => why.to_owned(),
        };
        self.say(text);
    }

    /// Shows a text to the user that the model does not get.
    pub(super) fn say(&mut self, text: String) {
        let message = MessageId::from(format!("msg-{}", self.history.mint()));
        self.services.say(message, text);
    }
}

/// An answer as far as it was received.
struct StreamedAnswer {
    text: String,
    thought: String,
    cards: Vec<Option<StreamingCall>>,
    /// The number of its log entry, if it has one.
    seq: Option<u64>,
}

impl StreamedAnswer {
    fn shown(&self) -> ShownSoFar {
        let has_card = self.cards.iter().flatten().any(|it| it.view.is_some());
        if !self.text.trim().is_empty() {
            ShownSoFar::AnswerText
        } else if !self.text.is_empty() || !self.thought.is_empty() || has_card {
            ShownSoFar::ReasoningOrCards
        } else {
            ShownSoFar::Nothing
        }
    }
}

struct AnswerListener<'a> {
    client: &'a Arc<dyn Client>,
    tools: &'a Toolbox,
    cwd: &'a Path,
    history: &'a mut History,
    open: &'a mut OpenCards,
    coalescer: TextCoalescer,
    draft_writer: DraftWriter,
    text: String,
    thought: String,
    /// The card of each call slot.
    cards: Vec<Option<StreamingCall>>,
    /// The input kinds that the model accepts, as far as the user knows.
    senses: Modalities,
    silence: SilenceWatch,
}

impl AnswerListener<'_> {
    /// Sends the request and shows the reply as it arrives. The request need not wait for the commit
    /// of the prompt and the results in it, but the user sees nothing before that.
    async fn listen(
        &mut self,
        model: &dyn Model,
        request: &Request,
        written: PendingWrite,
    ) -> Result<Reply, LlmError> {
        let opening = self.until_silent(model.open_stream(request));
        let (stream, ()) = tokio::join!(opening, written.written());
        let mut stream = stream??;
        self.report_omission(model, request);
        let mut batch = DeltaBatch::default();
        loop {
            let kept = self.draft_writer.due(&self.text, &self.thought);
            let card = self.next_card();
            let due = self.coalescer.due().into_iter().chain(kept).chain(card);
            let due = due.fold(self.silence.due(), min);
            let reply = tokio::select! {
                biased;
                reply = stream.next(&mut batch) => reply?,
                () = sleep_until(due) => None,
            };
            if batch.take_progress() {
                self.silence.restart();
            } else if reply.is_none() {
                self.check_silence()?;
            }
            for delta in batch.deltas.drain(..) {
                self.on_delta(delta);
            }
            // With the rest of the answer come the complete arguments, with which the card begins.
            if reply.is_none() {
                self.show_due_cards(Instant::now());
            }
            self.draft_writer.write_due(&self.text, &self.thought, Instant::now());
            if self.coalescer.due().is_some_and(|it| it <= Instant::now()) {
                // While the client does not read, neither do we read the model's stream. The
                // pending text is taken only after the wait: a cancel during the wait must not lose
                // it.
                self.client.wait_for_capacity().await;
                self.silence.restart();
                if let Some(update) = self.coalescer.take_due(Instant::now()) {
                    self.client.update(update);
                }
            }
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
    }

    /// Waits for the future, at most until the model's silence reaches its limit.
    async fn until_silent<T>(&mut self, future: impl Future<Output = T>) -> Result<T, LlmError> {
        tokio::pin!(future);
        loop {
            tokio::select! {
                biased;
                outcome = &mut future => return Ok(outcome),
                () = sleep_until(self.silence.due()) => self.check_silence()?,
            }
        }
    }

    /// Tells the user if the model has been silent for a while.
    fn check_silence(&mut self) -> Result<(), LlmError> {
        if let Some(notice) = self.silence.check()? {
            self.client.update(Update::Notice(notice));
        }
        Ok(())
    }

    /// Tells the client if the server has turned out not to accept images or recordings of this
    /// request. Returns whether that is so.
    fn report_omission(&mut self, model: &dyn Model, request: &Request) -> bool {
        let before = std::mem::replace(&mut self.senses, model.modalities());
        let notice = omission_notice(model.name(), request, before, self.senses);
        let omits = notice.is_some();
        if let Some(notice) = notice {
            self.client.update(Update::Notice(notice));
        }
        omits
    }

    fn on_delta(&mut self, delta: Delta) {
        match delta {
            Delta::Text(words) => {
                self.text.push_str(&words);
                self.queue_text(TextKind::Text, words);
            }
            Delta::Thought(words) => {
                self.thought.push_str(&words);
                self.queue_text(TextKind::Thought, words);
            }
            Delta::CallNamed { slot, name } => self.open_card(slot, &name),
            Delta::CallArguments { slot, text } => self.on_arguments(slot, &text),
        }
    }

    /// Updates a card's title as soon as the path or command is known, not only when a long value
    /// is complete.
    fn on_arguments(&mut self, slot: usize, text: &str) {
        let Some(card) = self.cards.get_mut(slot).and_then(Option::as_mut) else { return };
        let mut update = card.push(text, self.cwd);
        if !card.is_shown {
            return;
        }
        let now = Instant::now();
        // A client that does not read misses progress, but no complete value.
        if update.is_none()
            && card.is_due(now)
            && self.client.wait_for_capacity().now_or_never().is_some()
        {
            update = card.progress(now, self.cwd);
        }
        if let Some(update) = update {
            self.client.update(Update::CallUpdate(Box::new(update)));
        }
    }

    fn queue_text(&mut self, kind: TextKind, words: String) {
        if let Some(before) = self.coalescer.push(kind, words) {
            self.client.update(before);
        }
    }

    /// Opens the card of a call whose name is known. A later piece of the same name changes
    /// nothing.
    fn open_card(&mut self, slot: usize, name: &str) {
        if let Some(words) = self.coalescer.take() {
            self.client.update(words);
        }
        if self.cards.len() <= slot {
            self.cards.resize_with(slot + 1, || None);
        }
        if self.cards[slot].is_none() && self.tools.find(name).is_ok() {
            self.cards[slot] = Some(open_card(self.open, self.tools, self.history, name));
        }
    }

    /// When the next card is shown although its arguments are not complete.
    fn next_card(&self) -> Option<Instant> {
        let hidden = self.cards.iter().flatten().filter(|it| !it.is_shown);
        hidden.map(|it| it.opened + SHOW_CARD_AFTER).min()
    }

    fn show_due_cards(&mut self, now: Instant) {
        if self.next_card().is_none_or(|it| it > now) {
            return;
        }
        for card in self.cards.iter_mut().flatten().filter(|it| !it.is_shown) {
            card.is_shown = true;
            if let Some(view) = &card.view {
                self.open.set_view(&card.id, view);
                self.open.show(&card.id);
                self.draft_writer.reserve_seq();
                self.open.log_announced(&card.id);
            }
        }
    }

    fn finish(mut self) -> StreamedAnswer {
        if let Some(words) = self.coalescer.take() {
            self.client.update(words);
        }
        StreamedAnswer {
            text: take(&mut self.text),
            thought: take(&mut self.thought),
            cards: take(&mut self.cards),
            seq: self.draft_writer.seq(),
        }
    }
}

impl Drop for AnswerListener<'_> {
    fn drop(&mut self) {
        // If the turn dies, the text that the user has seen is stored all the same.
        self.draft_writer.write_all(&self.text, &self.thought);
    }
}

/// Bounds a name, which the model may have made up.
fn clip_name(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}

/// Opens a card for a call. The plan is displayed differently and gets none.
fn open_card(
    cards: &mut OpenCards,
    tools: &Toolbox,
    history: &mut History,
    name: &str,
) -> StreamingCall {
    let id = CallId::from(format!("call-{}", history.mint()));
    let (name, view, shown) = match tools.find(name) {
        // The tool's real name, not the model's spelling of it (R-TOOL-8).
        Ok(tool) => (tool.name().to_owned(), tool.pending_view(), tool.shown_arguments()),
        Err(_) => {
            let title = match name {
                "" => "A call without a name".to_owned(),
                name => clip_name(&escape_hidden_line(name)),
            };
            let view = CallView { title, kind: ToolKind::Other, locations: Vec::new() };
            (clip_name(&escape_hidden_line(name)), Some(view), COMMON_ARGUMENTS)
        }
    };
    if let Some(view) = view.clone() {
        cards.open(&id, name, view);
    }
    StreamingCall::new(id, view, shown, Instant::now())
}
