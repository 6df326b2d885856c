//! One request to the model: its stream, what of it is shown at once, and what its failures mean. Its answer
//! becomes one entry of the history, however it ends.

pub(super) mod failures;
pub(super) mod listener;
pub(super) mod refused_images;
pub(super) mod silence;
pub(super) mod streaming_call;

use std::sync::Arc;
use std::time::Duration;

use crate::tools::take_editor_command;
use crate::turn::next_step::{self, SampleOutcome, ShownSoFar, TurnBudget};
use crate::turn::room::compaction::{fixed_weight, request_weight, window};
use crate::turn::{ModelSelection, Turn, TurnStep, prompt};
use failures::{announces_call, empty_reply_as_overflow, fills_window, renew_model};
use listener::{AnswerListener, DraftWriter, StreamedAnswer, TextCoalescer, clip_name, open_card};
use refused_images::{leave_out_images, suspected_images};
use silence::SilenceWatch;
use streaming_call::StreamingCall;
use turnwright_llm::{EndReason, ErrorKind, Model, Reply, Request, looks_like_leaked_call};
use turnwright_store::{Audience, Entry};
use turnwright_types::ids::MessageId;
use turnwright_types::message::{
    Arguments, AssistantMessage, Message, ProviderState, StopReason, ToolCall, repair,
};
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::token_meter::TokenMeter;

/// Why a call of an answer after which the turn ends is not executed.
const ENDED: &str = "Not executed: the turn ended here.";
/// Tells the user that the window was full again when the model went on after room was made.
const FULL_AGAIN: &str = "The answer was cut off, because the model's window is full. The \
                          conversation is compacted before the next request: say \"go on\".";

impl Turn {
    pub(super) async fn sample(&mut self) -> TurnStep {
        // While the client does not read the last round's updates, no new request is made.
        self.cancel.run_until_cancelled(self.conversation.client().wait_for_capacity()).await;
        let selection = self.conversation.selection.get();
        let mut request = self.next_request(&selection);
        let message = self.history.mint_message_id();
        let received = self.receive_without_refused_images(&selection, &mut request, &message);
        let mut answer = received.await;
        let outcome = answer.outcome.take();
        self.report_missing_effort(&selection);
        self.report_corrected_base_url(selection.model.as_ref());
        let reply = outcome.as_ref().and_then(|result| result.as_ref().ok());
        let calls = self.take_answer(message, &answer, reply).await;
        let has_words = !answer.text.trim().is_empty() || !calls.is_empty();
        let wordless = (!has_words).then(|| request.clone());
        let sampled = match outcome {
            // The caller turns a cancelled token into the stop reason.
            None => return TurnStep::End(Ok(StopReason::Cancelled)),
            Some(Err(error)) => {
                if error.kind() == ErrorKind::Auth && answer.shown() == ShownSoFar::Nothing {
                    let renewing = renew_model(&self.conversation, &selection.model);
                    let renewed = self.cancel.run_until_cancelled(renewing).await.flatten();
                    if renewed.is_some() && TurnBudget::take(&mut self.budget.retries) {
                        return TurnStep::Wait(Duration::ZERO, None);
                    }
                }
                if answer.shown() == ShownSoFar::Nothing
                    && !answer.omits_media
                    && let Some(notice) = self.drop_images(&error)
                {
                    return TurnStep::Wait(Duration::ZERO, Some(notice));
                }
                let error = empty_reply_as_overflow(error, &request, selection.model.window());
                if matches!(error.kind(), ErrorKind::ContextOverflow { .. }) {
                    self.learn_window(selection.model.as_ref(), &error, &request);
                    self.abandon_calls(calls, ToolRefusal::new(ENDED, ENDED)).await;
                    return TurnStep::MakeRoom(error, answer.shown());
                }
                // A refusal ends the turn without being an error.
                if error.kind() == ErrorKind::Refused {
                    self.report_refusal(error.message().unwrap_or_default());
                }
                SampleOutcome::Failed { error, shown: answer.shown() }
            }
            Some(Ok(reply)) => {
                let model = selection.model.as_ref();
                self.room.on_answer(has_words);
                self.accept_reply(model, request, &reply);
                self.evaluate_reply(model, reply, &calls, &answer.text)
            }
        };
        let is_full = matches!(sampled, SampleOutcome::Reply { fills_window: true, .. });
        let step = self.step_after_sample(sampled, calls).await;
        match wordless.filter(|_| !is_full && self.budget.ending.is_none()) {
            Some(request) => {
                self.recover_from_no_words(step, selection.model.as_ref(), &request, answer.shown())
            }
            None => step,
        }
    }

    /// Asks the model, and again without those images and PDF files of the request that the server refuses.
    async fn receive_without_refused_images(
        &mut self,
        selection: &ModelSelection,
        request: &mut Request,
        message: &MessageId,
    ) -> StreamedAnswer {
        let mut received = self.receive_answer(selection, request, message.clone()).await;
        let mut suspected = None;
        let takes = selection.model.modalities();
        while let Some(error) = received.refused_image(takes) {
            let sets =
                suspected.get_or_insert_with(|| suspected_images(&request.messages, error, takes));
            let Some(images) = sets.pop() else { break };
            let mut attempt = request.clone();
            leave_out_images(&mut attempt.messages, Some(&images));
            let next = self.receive_answer(selection, &attempt, message.clone()).await;
            if let Some(Ok(_)) = next.outcome {
                self.leave_out(images, error);
                *request = attempt;
            }
            received = next;
        }
        received
    }

    fn next_request(&self, selection: &ModelSelection) -> Request {
        let conversation = &self.conversation;
        let window = window(selection.model.as_ref(), &self.history);
        let request = Request {
            system: Arc::clone(&conversation.system_prompt),
            messages: repair(&self.history.messages),
            tools: conversation.specs(window),
            effort: selection.effort,
            has_media: self.history.has_media,
        };
        conversation.told.lock().cache_guard.check(selection.model.name(), &request);
        request
    }

    /// Sends a request and shows the answer as it arrives.
    async fn receive_answer(
        &mut self,
        selection: &ModelSelection,
        request: &Request,
        message: MessageId,
    ) -> StreamedAnswer {
        let conversation = self.conversation.clone();
        let mut listener = AnswerListener {
            client: conversation.client(),
            tools: &conversation.tools,
            cwd: conversation.env.files.roots().cwd(),
            history: &mut self.history,
            open: &mut self.cards,
            coalescer: TextCoalescer::new(message.clone()),
            draft_writer: DraftWriter::new(conversation.log().clone(), message.clone()),
            answer: StreamedAnswer::default(),
            modalities: selection.model.modalities(),
            silence: SilenceWatch::new(selection.model.as_ref(), self.budget.silence),
        };
        // Dropping a half-read stream is safe because no call has run yet, and it aborts the
        // request at the server (R-CANCEL-1).
        let written = conversation.log().flush();
        let unreported = &mut self.prompt.unreported;
        let stored = async {
            written.written().await;
            if let Some((id, message)) = unreported.take() {
                conversation.report_message(None, &id, &message);
            }
        };
        let listening = listener.listen(selection.model.as_ref(), request, stored);
        let outcome = self.cancel.run_until_cancelled(listening).await;
        // That the server does not accept images may also come to light in the stream.
        let omits_media = listener.report_omission(selection.model.as_ref(), request);
        self.budget.silence = match outcome {
            Some(Err(_)) => listener.silence.length(),
            Some(Ok(_)) | None => Duration::ZERO,
        };
        let mut answer = StreamedAnswer { outcome, omits_media, ..listener.finish() };
        answer.separate_thought(selection.model.as_ref());
        // The request was paid for, although it has no complete answer.
        if !matches!(answer.outcome, Some(Ok(_))) && answer.reported != (None, None) {
            let model = selection.model.as_ref();
            conversation.add_request(&mut self.history, model, "", answer.reported, None);
        }
        answer
    }

    /// Updates what depends on the request of a complete reply.
    fn accept_reply(&mut self, model: &dyn Model, request: Request, reply: &Reply) {
        self.history.failed_summaries.note_answer(model.name());
        if !self.is_helper() {
            self.conversation.selection.forget_previous();
        }
        self.report_usage(model, reply, &request);
        self.conversation.told.lock().cache_guard.remember(model.name(), request, reply.usage);
    }

    async fn step_after_sample(
        &mut self,
        sampled: SampleOutcome,
        calls: Vec<ToolCall>,
    ) -> TurnStep {
        self.check_limits();
        let jitter = self.conversation.env.shared.process.outside.random_fraction();
        let is_full = matches!(sampled, SampleOutcome::Reply { fills_window: true, .. });
        let step = next_step::after_sample(sampled, &mut self.budget, jitter);
        if is_full && matches!(step, TurnStep::End(Ok(StopReason::MaxTokens))) {
            self.say(FULL_AGAIN.to_owned());
        }
        if !matches!(step, TurnStep::RunCalls(_) | TurnStep::Summarize(..)) {
            self.abandon_calls(calls, ToolRefusal::new(ENDED, ENDED)).await;
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
        let calls =
            reply.map(|reply| self.identify_calls(reply, &answer.cards)).unwrap_or_default();
        let echo = reply.map(|reply| reply.provider_state.clone());
        self.record_answer(message, answer, &calls, echo);
        self.close_unmade_cards(&answer.cards, &calls, reply.is_some()).await;
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
        let fills_window = reply.end == EndReason::Length && fills_window(model, reply.usage);
        if reply.end == EndReason::Length && !fills_window {
            self.outgrow_limit(model, reply.usage);
        }
        let has_leaked_call = calls.is_empty()
            && (announces_call(text)
                || model.nudges_leaked_calls()
                    && (reply.has_lost_calls || looks_like_leaked_call(text)));
        SampleOutcome::Reply {
            end: reply.end,
            calls: calls.to_vec(),
            has_leaked_call,
            fills_window,
        }
    }

    /// Gives each call of the answer its identifiers, and the arguments as its tool understands them: everything that
    /// looks at a call sees those. A call without a card, because its name arrived only at the end, gets one now.
    fn identify_calls(&mut self, reply: &Reply, cards: &[Option<StreamingCall>]) -> Vec<ToolCall> {
        let tools = &self.conversation.tools;
        let mut calls = Vec::with_capacity(reply.calls.len());
        for call in &reply.calls {
            let id = match cards.get(call.slot).and_then(Option::as_ref) {
                Some(card) => card.id.clone(),
                None => open_card(&mut self.cards, tools, &mut self.history, &call.name).id,
            };
            let mut provider_id =
                prompt::unique_provider_id(&self.history, &call.provider_id, id.as_str());
            if calls.iter().any(|other: &ToolCall| other.provider_id == provider_id) {
                id.as_str().clone_into(&mut provider_id);
            }
            let mut name: &str = &call.name;
            let mut sent = call.arguments.clone();
            if let Arguments::Object(fields) = &mut sent
                && tools.find(name).is_err()
                && let Some(tool) = take_editor_command(name, fields)
            {
                name = tool;
            }
            let arguments = match (tools.find(name), sent) {
                (Ok(tool), Arguments::Object(sent)) if tool.server().is_none() => {
                    Arguments::Object(tool.understood(sent))
                }
                (_, sent) => sent,
            };
            calls.push(ToolCall {
                id,
                provider_id,
                name: clip_name(name),
                arguments,
                extra: call.extra.clone(),
            });
        }
        calls
    }

    /// Closes the cards of calls that were never complete or that only repeat another. Their end is
    /// stored before the client sees it.
    async fn close_unmade_cards(
        &mut self,
        cards: &[Option<StreamingCall>],
        calls: &[ToolCall],
        is_whole: bool,
    ) {
        let why = if self.cancel.is_cancelled() {
            "Cancelled"
        } else if is_whole {
            "Skipped: the model repeats this call"
        } else {
            "Failed: the answer broke off before the call was complete"
        };
        let lost: Vec<_> = cards
            .iter()
            .flatten()
            .filter(|card| !calls.iter().any(|call| call.id == card.id))
            .collect();
        if lost.is_empty() {
            return;
        }
        for card in &lost {
            self.cards.log_incomplete(&card.id, why);
        }
        self.conversation.log().flush().written().await;
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
        let log = self.conversation.log();
        let seq = answer.seq.unwrap_or_else(|| log.reserve_seq());
        log.replace_entries(self.cards.take_announced(calls), seq, entry);
        if is_answer {
            self.history.messages.push(message);
        }
    }

    /// Reports the tokens in use, which are those of the last request, whatever earlier ones have
    /// used.
    fn report_usage(&mut self, model: &dyn Model, reply: &Reply, request: &Request) {
        let weight = request_weight(&self.conversation, request);
        // Zero tokens means that the server does not count.
        let counted = reply
            .usage
            .filter(|usage| usage.total() > 0 && !TokenMeter::is_impossible(usage.input, weight));
        let gauge = counted.map(|usage| {
            let finding = self.history.meter.record(&usage, weight, &self.history.messages);
            self.check_count(model, usage, finding, request);
            window(model, &self.history)
        });
        let used = (counted, reply.cost);
        self.conversation.add_request(&mut self.history, model, &reply.served, used, gauge);
        let size = window(model, &self.history);
        let meter = self.history.meter;
        let tokens = match counted {
            Some(usage) if meter.is_coarse(weight) => usage.total(),
            _ => meter.estimate(&self.history.messages, || {
                fixed_weight(&self.conversation, &request.tools)
            }),
        };
        let cached = counted.map_or(0, |usage| usage.cached);
        self.conversation.report_context(&self.history, tokens, size, cached);
    }

    /// Shows the provider's text about a refusal as a message, because some editors remove the
    /// prompt on a refusal.
    fn report_refusal(&mut self, why: &str) {
        let text = match why.trim() {
            "" => "The model's provider refused to answer this.".to_owned(),
            why => why.to_owned(),
        };
        self.say(text);
    }

    /// Shows a text to the user that the model does not get.
    pub(super) fn say(&mut self, text: String) {
        let message = self.history.mint_message_id();
        self.conversation.say(message, text);
    }
}
