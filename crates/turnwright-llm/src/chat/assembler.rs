//! Assembles chat completion events into deltas and a final reply. Does no I/O: each server quirk
//! is covered by a file in `tests/data/sse`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Map, Value};

use super::arguments::{MAX_CALLS, StreamedArguments, finish_arguments};
use super::reasoning_details;
use super::wire::{CallDelta, ChatChunk, Choice, ChoiceDelta, FunctionDelta, without_list};
use crate::errors::error_body;
use crate::exchange::ReplyContext;
use crate::reply::leaked_calls::{LeakedCall, find_leaked_calls};
use crate::reply::repetition::first_repeat;
use crate::reply::text_pipeline::TextPipeline;
use crate::reply::{ReplyAssembler, memory_size};
use crate::sse;
use crate::{Delta, DeltaBatch, EndReason, ErrorKind, LlmError, Reply, ReplyCall};
use turnwright_types::message::{ProviderState, TokenUsage};

/// Larger than any context window. Sums of counts up to this limit cannot overflow.
const MAX_TOKENS: u64 = 1 << 40;

/// Assembles one reply.
#[derive(Debug)]
pub(crate) struct ChatAssembler {
    context: ReplyContext,
    text_pipeline: TextPipeline,
    slots: Vec<CallSlot>,
    finish_reason: String,
    refusal: String,
    usage: Option<TokenUsage>,
    cost: Option<f64>,
    /// The model as the server names it.
    served: String,
    done: bool,
    /// The stream has ended with `[DONE]`.
    has_end_mark: bool,
    /// Bytes kept so far, here and by the consumer of the deltas.
    size: usize,
    provider_state: ProviderState,
}

/// A tool call that is being assembled.
#[derive(Debug, Default)]
struct CallSlot {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: StreamedArguments,
    /// The fields that the provider requires back.
    signed_fields: Map<String, Value>,
}

impl ReplyAssembler for ChatAssembler {
    fn push_event(
        &mut self,
        event: &sse::Event<'_>,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        let data = event.data.trim();
        if self.done {
            return Ok(());
        }
        if data == "[DONE]" {
            self.has_end_mark = true;
            self.done = true;
            return Ok(());
        }
        if event.name == "error" {
            // llama.cpp may end the stream within the same event.
            return self.handle_failure(data.trim_end_matches("[DONE]"), batch);
        }
        let json = without_list(data);
        match serde_json::from_str::<ChatChunk<'_>>(json) {
            Ok(chunk) if chunk.is_failure() => self.handle_failure(json, batch),
            Ok(chunk) => self.push_chunk(&chunk, batch),
            Err(error) if self.is_complete() => {
                tracing::info!(%error, "not JSON after the end of the answer");
                Ok(())
            }
            Err(error) => Err(self.context.event_error(&error, data, "chunk")),
        }
    }

    fn push_document(&mut self, document: &str, batch: &mut DeltaBatch) -> Result<(), LlmError> {
        let json = without_list(document);
        match serde_json::from_str::<ChatChunk<'_>>(json) {
            Ok(chunk) if chunk.is_failure() => Err(self.context.stream_error(json)),
            Ok(chunk) if chunk.choice.is_none() => {
                Err(self.context.other_document_error(json, "chat completion"))
            }
            Ok(chunk) => {
                self.push_chunk(&chunk, batch)?;
                self.done = true;
                Ok(())
            }
            Err(error) => Err(self.context.document_error(&error, "chat completion")),
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_complete(&self) -> bool {
        self.done || !self.finish_reason.is_empty()
    }

    fn finish(&mut self, batch: &mut DeltaBatch) -> Result<Reply, LlmError> {
        let leaked = self.text_pipeline.finish(batch);
        if !self.is_complete() || self.lacks_finish_reason() {
            return Err(self.context.truncated_error());
        }
        if self.slots.is_empty() {
            self.add_leaked_calls(leaked, batch);
        }
        if self.text_pipeline.is_inline() && self.provider_state.field.is_none() {
            self.provider_state.field = Some("think".to_owned());
        }
        if self.slots.is_empty() && !self.text_pipeline.has_text() {
            self.text_pipeline.answer_with_thought(batch);
        }
        let end = self.end_reason()?;
        if !self.text_pipeline.has_text() && self.slots.is_empty() && end == EndReason::Complete {
            let has_thought = self.text_pipeline.has_thought();
            return Err(self.context.empty_error(has_thought, &self.finish_reason));
        }
        let cut = end == EndReason::Length;
        let reason = self.finish_reason.to_ascii_lowercase();
        self.slots.truncate(self.first_repeat(true).unwrap_or(usize::MAX));
        let calls: Vec<_> = std::mem::take(&mut self.slots)
            .into_iter()
            .enumerate()
            .map(|(position, slot)| ReplyCall {
                slot: position,
                provider_id: slot.id,
                name: slot.name,
                arguments: finish_arguments(position, slot.arguments.into_text(), cut),
                extra: (!slot.signed_fields.is_empty()).then(|| slot.signed_fields.into()),
            })
            .collect();
        Ok(Reply {
            end,
            has_lost_calls: calls.is_empty()
                && ["tool_calls", "tool_use", "function_call"].contains(&reason.as_str()),
            calls,
            usage: self.usage,
            cost: self.cost,
            served: std::mem::take(&mut self.served),
            provider_state: std::mem::take(&mut self.provider_state),
        })
    }

    fn flush(&mut self, batch: &mut DeltaBatch) {
        self.text_pipeline.release(batch);
    }

    fn content_size(&self) -> usize {
        self.size
    }

    fn context(&self) -> &ReplyContext {
        &self.context
    }
}

impl ChatAssembler {
    pub(crate) fn new(context: ReplyContext) -> ChatAssembler {
        let text_pipeline = TextPipeline::new(&context.quirks, context.tools.clone());
        ChatAssembler {
            provider_state: ProviderState {
                origin: Arc::clone(&context.origin),
                ..ProviderState::default()
            },
            context,
            text_pipeline,
            slots: Vec::new(),
            finish_reason: String::new(),
            refusal: String::new(),
            usage: None,
            cost: None,
            served: String::new(),
            done: false,
            has_end_mark: false,
            size: 0,
        }
    }

    /// Returns the error that the server reported, unless it contains the model's output and that
    /// output can be parsed (quirk C.1 #23).
    fn handle_failure(&mut self, json: &str, batch: &mut DeltaBatch) -> Result<(), LlmError> {
        let value = serde_json::from_str::<Value>(json).unwrap_or_default();
        if let Some(text) = value.pointer("/error/failed_generation").and_then(Value::as_str)
            && self.slots.is_empty()
            && self.recover_failed_generation(&self.context.secrets.redact(text), batch)
        {
            return Ok(());
        }
        Err(self.context.stream_error(json))
    }

    /// Parses model output that the server itself failed to parse. Returns true if it contains tool
    /// calls.
    pub(crate) fn recover_failed_generation(&mut self, text: &str, batch: &mut DeltaBatch) -> bool {
        let Some(tools) = &self.context.tools else { return false };
        let found = find_leaked_calls(text, &tools.declared());
        let Some((start, calls)) = found else { return false };
        // The output repeats text that has been shown already.
        if !self.text_pipeline.has_text() {
            self.text_pipeline.push_text(text[..start].trim_end(), batch);
        }
        self.text_pipeline.release(batch);
        self.add_leaked_calls(calls, batch);
        "tool_calls".clone_into(&mut self.finish_reason);
        self.done = true;
        true
    }

    fn push_chunk(
        &mut self,
        chunk: &ChatChunk<'_>,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        let choice = chunk.choice.as_ref();
        let own_usage = chunk.usage.as_ref().and_then(parse_usage);
        let usage = own_usage.or_else(|| choice?.usage.as_ref().and_then(parse_usage));
        // Repeated counts are running totals, so the last one is used.
        self.usage = usage.or(self.usage);
        self.cost = chunk.cost().or(self.cost);
        batch.reported = (self.usage, self.cost);
        if self.served.is_empty() {
            self.served = self.context.served_model(&chunk.model.text);
        }
        choice.map_or(Ok(()), |choice| self.push_choice(choice, batch))
    }

    fn push_choice(&mut self, choice: &Choice<'_>, batch: &mut DeltaBatch) -> Result<(), LlmError> {
        // Some servers add the whole text so far as `message` to each `delta`.
        if let Some(delta) = choice.delta.as_ref().or(choice.message.as_ref()) {
            self.push_delta(delta, batch)?;
        }
        let finish = choice.finish();
        if finish == "content_filter"
            && let Some(why) = choice.filter.as_ref().and_then(error_body::filter_categories)
        {
            self.refusal = why;
        }
        // Some servers send a finish reason twice; the second must not hide that the reply was
        // truncated.
        let is_plain = matches!(finish, "stop" | "tool_calls" | "function_call");
        if !finish.is_empty() && (self.finish_reason.is_empty() || !is_plain) {
            finish.clone_into(&mut self.finish_reason);
            self.context.sends_finish_reasons.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// True if a reply with calls has ended exactly at a limit. vLLM then reports no cut, and may close the braces of
    /// the arguments.
    fn hides_limit(&self) -> bool {
        let Some(usage) = self.usage.filter(|_| !self.slots.is_empty()) else { return false };
        let ReplyContext { max_output, window, .. } = self.context;
        max_output == Some(usage.output) || window == Some(usage.total())
    }

    /// True if the server usually sends a finish reason and has sent none with this reply, which therefore broke
    /// off somewhere behind it. Complete calls are what the model meant.
    fn lacks_finish_reason(&self) -> bool {
        let has_content = self.text_pipeline.has_text() || self.text_pipeline.has_thought();
        let are_calls_whole = self.slots.iter().all(|slot| slot.arguments.is_json_object());
        let is_whole = if self.slots.is_empty() { !has_content } else { are_calls_whole };
        self.has_end_mark
            && self.finish_reason.is_empty()
            && !is_whole
            && self.context.sends_finish_reasons.load(Ordering::Relaxed)
    }

    fn push_delta(
        &mut self,
        delta: &ChoiceDelta<'_>,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        let (field, thought) = delta.thought();
        let text = delta.content.text.as_ref();
        self.count_kept_bytes(thought.len() + text.len() + delta.refusal.text.len())?;
        if !field.is_empty() && self.provider_state.field.is_none() {
            self.provider_state.field = Some(field.to_owned());
        }
        self.push_details(delta, thought.is_empty(), batch)?;
        self.text_pipeline.push_thought(thought, batch);
        self.text_pipeline.push_text(text, batch);
        if self.text_pipeline.is_stuck() {
            return Err(LlmError::EndlessRepetition { host: self.context.host.clone() });
        }
        self.refusal.push_str(&delta.refusal.text);
        for call in &delta.tool_calls {
            if self.done {
                break;
            }
            self.push_call(call, batch)?;
        }
        // Some servers send a call both as `function_call` and in `tool_calls`.
        if self.slots.iter().all(|slot| slot.index.is_none() && slot.id.is_empty()) {
            self.push_function(None, "", &delta.function_call, batch)?;
        }
        Ok(())
    }

    /// Keeps signed reasoning pieces. Their text is shown only if the reasoning arrives in no other
    /// field.
    fn push_details(
        &mut self,
        delta: &ChoiceDelta<'_>,
        show_text: bool,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        let pieces = delta.detail_pieces();
        if pieces.is_empty() {
            return Ok(());
        }
        if show_text {
            let detail_text = reasoning_details::detail_text(&pieces);
            self.text_pipeline.push_thought(&detail_text, batch);
        }
        let kept = reasoning_details::merge(&mut self.provider_state.blobs, pieces);
        self.count_kept_bytes(kept)
    }

    /// Counts bytes that are kept of the reply and enforces the limit.
    fn count_kept_bytes(&mut self, bytes: usize) -> Result<(), LlmError> {
        self.size += bytes;
        self.context.check_kept_bytes(self.size)
    }

    fn push_call(&mut self, call: &CallDelta<'_>, batch: &mut DeltaBatch) -> Result<(), LlmError> {
        let slot = self.push_function(call.index(), &call.id.text, &call.function, batch)?;
        for (name, value) in call.signed_fields() {
            // They may arrive in a delta of their own.
            let slot = slot
                .or_else(|| self.slots.iter().position(|known| known.index == call.index()))
                .or(self.slots.len().checked_sub(1));
            if let Some(slot) =
                slot.filter(|index| !self.slots[*index].signed_fields.contains_key(name))
            {
                self.count_kept_bytes(memory_size(value))?;
                self.slots[slot].signed_fields.insert(name.to_owned(), value.clone());
            }
        }
        Ok(())
    }

    /// Adds to a call and returns its slot.
    fn push_function(
        &mut self,
        index: Option<u64>,
        id: &str,
        function: &FunctionDelta<'_>,
        batch: &mut DeltaBatch,
    ) -> Result<Option<usize>, LlmError> {
        let declared_name = self.context.tool_name(function.name()).to_owned();
        let name = declared_name.as_str();
        let arguments = function.arguments();
        if id.is_empty() && name.is_empty() && arguments.is_empty() {
            return Ok(None);
        }
        let position = self.resolve_slot(index, id, name, &arguments);
        let is_new = position == self.slots.len();
        if is_new {
            if position == 0 {
                self.text_pipeline.release(batch);
            }
            self.slots.push(CallSlot::default());
        }
        let slot = &mut self.slots[position];
        let mut kept = 0;
        slot.index = slot.index.or(index);
        if slot.id.is_empty() {
            id.clone_into(&mut slot.id);
            kept += id.len();
        }
        // A name may be repeated or may grow: a longer name with the same beginning replaces it.
        // Gemini and gateways may also send it in pieces.
        let joined = format!("{}{name}", slot.name);
        let is_piece = slot.arguments.is_empty() && self.context.begins_tool_name(&joined);
        let name = if is_piece { self.context.tool_name(&joined) } else { name };
        let grows = is_piece || slot.arguments.is_empty() && name.starts_with(slot.name.as_str());
        if name.len() > slot.name.len() && (slot.name.is_empty() || grows) {
            kept += name.len();
            name.clone_into(&mut slot.name);
            batch.deltas.push(Delta::CallNamed { slot: position, name: name.to_owned() });
        }
        let new = slot.arguments.new_part(&arguments);
        slot.arguments.push(new);
        batch.push_arguments(position, new);
        kept += new.len();
        let is_complete = slot.arguments.is_json_object() && !new.is_empty();
        self.count_kept_bytes(kept)?;
        if (is_new || is_complete) && self.first_repeat(false).is_some() || position == MAX_CALLS {
            // The rest would only be more of the same.
            self.done = true;
        }
        Ok(Some(position))
    }

    /// The first slot from which the calls only repeat earlier ones. The last call counts once its arguments
    /// are complete.
    fn first_repeat(&self, is_end: bool) -> Option<usize> {
        let last = self.slots.last().filter(|_| self.context.quirks.loops)?;
        let is_complete = is_end || last.arguments.is_json_object();
        let count = self.slots.len() - usize::from(!is_complete);
        let calls = self.slots.iter().take(count).map(|slot| (&slot.name, slot.arguments.as_str()));
        first_repeat(&calls.collect::<Vec<_>>())
    }

    /// Finds the slot for arguments whose index points to a call that is already complete. Some
    /// servers number the names from 1 and the arguments from 0 (quirk C.2 #3).
    fn shifted_slot(&self, at: usize, id: &str, name: &str, arguments: &str) -> Option<usize> {
        if !id.is_empty() || !name.is_empty() || arguments.is_empty() {
            return None;
        }
        let mut open =
            (at + 1..self.slots.len()).filter(|slot| !self.slots[*slot].arguments.is_json_object());
        let only = open.next().filter(|_| open.next().is_none())?;
        let complete = &self.slots[at].arguments;
        let is_repeat =
            arguments.starts_with(complete.as_str()) || complete.is_repeated_by(arguments);
        (complete.is_json_object() && !is_repeat).then_some(only)
    }

    /// Finds the slot that a delta belongs to. The index alone is not reliable: some servers omit
    /// it, some send 0 for every call, some change it between the name and the arguments (quirks
    /// C.2). If the assignment remains ambiguous, the arguments of two calls end up in one slot and
    /// are then invalid JSON, so nothing runs that the model has not asked for.
    fn resolve_slot(&self, index: Option<u64>, id: &str, name: &str, arguments: &str) -> usize {
        let new = self.slots.len();
        let Some(last) = new.checked_sub(1) else { return 0 };
        let by_index =
            index.and_then(|index| self.slots.iter().rposition(|slot| slot.index == Some(index)));
        if let Some(position) = by_index {
            let slot = &self.slots[position];
            let is_other = !id.is_empty() && !slot.id.is_empty() && id != slot.id;
            let is_next =
                slot.is_followed_by_new_call(name, arguments) && slot.arguments.is_json_object();
            if let Some(waiting) = self.shifted_slot(position, id, name, arguments) {
                return waiting;
            }
            if !is_other && !is_next {
                return position;
            }
        }
        if !id.is_empty() {
            let Some(known) = self.slots.iter().rposition(|slot| slot.id == id) else {
                // The identifier of a call may follow its name.
                let is_late = name.is_empty() && self.slots[last].id.is_empty();
                return if is_late && index.is_none() { last } else { new };
            };
            // A name under a new index, after complete arguments, starts another call: some servers
            // give all calls the same identifier.
            let slot = &self.slots[known];
            let is_new_index = index.is_some() && index != slot.index;
            let is_next = !name.is_empty() && is_new_index && slot.arguments.is_json_object();
            return if is_next { new } else { known };
        }
        if !name.is_empty() {
            let is_next =
                index.is_some() || self.slots[last].is_followed_by_new_call(name, arguments);
            return if is_next { new } else { last };
        }
        // Arguments under an unknown index belong to the only call that has none yet, if there is
        // exactly one.
        let mut waiting = (0..new).filter(|slot| self.slots[*slot].arguments.is_empty());
        match (waiting.next(), waiting.next()) {
            (Some(only), None) if index.is_some() => only,
            _ => last,
        }
    }

    /// Adds calls that were found in the text as if they had been regular tool calls.
    fn add_leaked_calls(&mut self, calls: Vec<LeakedCall>, batch: &mut DeltaBatch) {
        for (called, object) in calls {
            let name = self.context.tool_name(&called).to_owned();
            let text = object.to_string();
            let slot = self.slots.len();
            batch.deltas.push(Delta::CallNamed { slot, name: name.clone() });
            batch.push_arguments(slot, &text);
            let mut arguments = StreamedArguments::default();
            arguments.push(&text);
            self.slots.push(CallSlot { name, arguments, ..CallSlot::default() });
        }
    }

    fn end_reason(&self) -> Result<EndReason, LlmError> {
        let refused = || Ok(EndReason::Refused(self.context.secrets.redact(&self.refusal)));
        let reason = self.finish_reason.to_ascii_lowercase();
        // Gemini names its filter first, as in `function_call_filter: MALFORMED_FUNCTION_CALL`.
        match reason.trim_start_matches("function_call_filter: ") {
            "length" | "max_tokens" | "max_output_tokens" | "model_length" => Ok(EndReason::Length),
            "model_context_window_exceeded" => Err(self.context.ended_with_error(
                &self.finish_reason,
                ErrorKind::ContextOverflow { limit: None, used: None },
            )),
            "refusal" | "safety" | "recitation" | "sensitive" | "blocklist"
            | "prohibited_content" | "spii" => refused(),
            filter if filter.starts_with("content_filter") => refused(),
            // vLLM and SGLang end answers with `abort` when they shut down, for example.
            "error" | "network_error" | "insufficient_system_resource" | "abort" => {
                Err(self.context.ended_with_error(&self.finish_reason, ErrorKind::Unavailable))
            }
            // The server has dropped the call; without it the reply is not what the model meant.
            "malformed_function_call" | "unexpected_tool_call" if self.slots.is_empty() => {
                Err(self.context.ended_with_error(&self.finish_reason, ErrorKind::Unavailable))
            }
            _ if !self.refusal.is_empty() && self.slots.is_empty() => refused(),
            _ if self.hides_limit() => Ok(EndReason::Length),
            _ => Ok(EndReason::Complete),
        }
    }
}

impl CallSlot {
    /// True if a delta with this name and these arguments starts another call. A name alone may be
    /// a repetition.
    fn is_followed_by_new_call(&self, name: &str, arguments: &str) -> bool {
        if name.is_empty() {
            false
        } else if self.arguments.is_empty() {
            !name.starts_with(self.name.as_str())
        } else {
            let is_other = !self.name.is_empty() && name != self.name;
            is_other || !arguments.is_empty() && self.arguments.is_json_object()
        }
    }
}

/// Tokens served from the provider's cache, under each of the field names in use (C.4 #25).
const CACHED: [&str; 5] = [
    "/prompt_tokens_details/cached_tokens",
    "/input_tokens_details/cached_tokens",
    "/prompt_cache_hit_tokens",
    "/cached_tokens",
    "/cache_read_input_tokens",
];

/// Tokens that were stored in the provider's cache, under each of the field names in use.
const WRITTEN: [&str; 4] = [
    "/cache_creation_input_tokens",
    "/prompt_tokens_details/cache_creation_input_tokens",
    "/prompt_tokens_details/cache_write_tokens",
    "/input_tokens_details/cache_write_tokens",
];

/// The largest count in any of the fields, because a server may send 0 in one that it does not fill.
fn largest_count(usage: &Value, fields: &[&str]) -> u64 {
    let counts = fields.iter().filter_map(|field| usage.pointer(field)?.as_u64());
    counts.max().unwrap_or(0).min(MAX_TOKENS)
}

pub(crate) fn parse_usage(value: &Value) -> Option<TokenUsage> {
    let input =
        token_count(value, "prompt_tokens").or_else(|| token_count(value, "input_tokens"))?;
    let stated = largest_count(value, &["/completion_tokens", "/output_tokens"]);
    let cached = largest_count(value, &CACHED);
    // Anthropic reports tokens read from and written to its cache separately from `input_tokens`.
    // Gateways may or may not rename these fields. A cached count larger than the input cannot be
    // part of it.
    let written = largest_count(value, &WRITTEN);
    let is_apart = value.get("cache_read_input_tokens").is_some()
        && value.get("prompt_tokens").is_none_or(Value::is_null);
    let input = if is_apart || cached > input { input + cached + written } else { input };
    // Gemini and xAI leave the reasoning out of the answer's count: only the total has it. Bedrock leaves the
    // tokens that were read from the cache or written to it out of the request's count.
    let total = token_count(value, "total_tokens").unwrap_or(0);
    let unstated = total.saturating_sub(input + stated);
    let is_cache = [cached, written, cached + written].contains(&unstated);
    let (input, output) =
        if is_cache { (input + unstated, stated) } else { (input, stated + unstated) };
    let details = ["/completion_tokens_details", "/output_tokens_details"];
    let thought = details.iter().find_map(|at| token_count(value.pointer(at)?, "reasoning_tokens"));
    Some(TokenUsage { input, output, cached, written, thought: thought.unwrap_or(0).min(output) })
}

fn token_count(usage: &Value, key: &str) -> Option<u64> {
    usage.get(key).and_then(Value::as_u64).map(|count| count.min(MAX_TOKENS))
}
