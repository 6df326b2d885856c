//! Assembles events of the Responses API into deltas and a final reply. Does no I/O. Each quirk of
//! a server is a row in `tests`.

mod complete_items;

use std::sync::Arc;

use serde_json::value::RawValue;

use super::streamed::{self, PieceKind, StreamedCall, StreamedItem, TextPiece};
use super::wire::{self, ItemKind, ItemLocation, OutputItem, ResponsesEvent};
use crate::chat::arguments::MAX_CALLS;
use crate::chat::wire::without_list;
use crate::errors::error_body;
use crate::exchange::ReplyContext;
use crate::reply::ReplyAssembler;
use crate::reply::text_pipeline::TextPipeline;
use crate::sse;
use crate::{DeltaBatch, EndReason, LlmError, Reply};
use turnwright_types::message::{ProviderState, TokenUsage};

/// A reply with more output items than this is a malfunction of the model.
const MAX_ITEMS: usize = 1024;

/// Assembles one reply.
#[derive(Debug)]
pub(crate) struct ResponsesAssembler {
    context: ReplyContext,
    items: Vec<StreamedItem>,
    calls: Vec<StreamedCall>,
    text_pipeline: TextPipeline,
    /// The message that the last text belonged to.
    text_item: Option<usize>,
    /// The item and part that the last reasoning belonged to.
    thought_part: Option<(usize, u64)>,
    refusal: String,
    usage: Option<TokenUsage>,
    cost: Option<f64>,
    /// The model as the server names it.
    served: String,
    /// Why the reply ended, once the server has said so.
    end: Option<EndReason>,
    done: bool,
    /// Bytes kept so far, here and by the consumer of the deltas.
    size: usize,
}

impl ReplyAssembler for ResponsesAssembler {
    fn push_event(
        &mut self,
        event: &sse::Event<'_>,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
        }
        if self.done || data.is_empty() {
            return Ok(());
        }
        if event.name == "error" {
            return Err(self.context.stream_error(data));
        }
        let json = without_list(data);
        match serde_json::from_str::<ResponsesEvent<'_>>(json) {
            Ok(typed) if typed.is_failure() => Err(self.context.stream_error(json)),
            Ok(typed) if typed.kind.text.is_empty() && event.name.is_empty() => {
                self.push_untyped_event(json)
            }
            Ok(typed) => {
                let kind = if typed.kind.text.is_empty() { event.name } else { &typed.kind.text };
                self.push_typed_event(kind, &typed, batch)
            }
            Err(error) => Err(self.context.event_error(&error, data, "event")),
        }
    }

    fn push_document(&mut self, document: &str, batch: &mut DeltaBatch) -> Result<(), LlmError> {
        let json = without_list(document);
        match serde_json::from_str::<ResponsesEvent<'_>>(json) {
            Ok(typed) if typed.is_failure() && !wire::is_response(json) => {
                Err(self.context.stream_error(json))
            }
            Ok(_) if wire::is_response(json) => match serde_json::from_str::<&RawValue>(json) {
                Ok(raw) => self.push_response("", Some(raw), batch),
                Err(_) => Err(self.context.malformed_error("the JSON is not a response")),
            },
            Ok(_) => Err(self.context.other_document_error(json, "response")),
            Err(error) => Err(self.context.document_error(&error, "response")),
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_complete(&self) -> bool {
        self.done
    }

    fn finish(&mut self, batch: &mut DeltaBatch) -> Result<Reply, LlmError> {
        let shown = self.text_pipeline.text_len();
        self.text_pipeline.finish(batch);
        self.extend_span(shown);
        // An end mark without the event that says how the reply has ended comes from somewhere else.
        let Some(end) = self.end.take() else { return Err(self.context.truncated_error()) };
        let end = match end {
            EndReason::Complete if !self.refusal.is_empty() && self.calls.is_empty() => {
                self.refused()
            }
            end => end,
        };
        if !self.text_pipeline.has_text() && self.calls.is_empty() && end == EndReason::Complete {
            return Err(self.context.empty_error(self.text_pipeline.has_thought(), ""));
        }
        if let Some(repeat) = streamed::first_repeat(&self.calls, &self.context) {
            self.calls.truncate(repeat);
            self.items.retain(|item| item.kind != ItemKind::Call || item.slot < repeat);
        }
        let cut = end == EndReason::Length;
        let last_words = streamed::of_kind(&self.items, ItemKind::Message).pop();
        let calls: Vec<_> = std::mem::take(&mut self.calls)
            .into_iter()
            .enumerate()
            .map(|(slot, call)| call.finish(slot, cut, batch))
            .collect();
        let provider_state = ProviderState {
            origin: Arc::clone(&self.context.origin),
            field: None,
            blobs: streamed::provider_state(&self.items),
        };
        let served = std::mem::take(&mut self.served);
        Ok(Reply {
            end,
            // A comment comes before a call, and never ends the work.
            has_lost_calls: calls.is_empty()
                && last_words.is_some_and(|at| self.items[at].phase == "commentary"),
            calls,
            usage: self.usage,
            cost: self.cost,
            served,
            provider_state,
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

impl ResponsesAssembler {
    pub(crate) fn new(context: ReplyContext) -> ResponsesAssembler {
        // Calls in the text are not looked for, so the tools are not needed.
        let text_pipeline = TextPipeline::new(&context.quirks, None);
        ResponsesAssembler {
            context,
            items: Vec::new(),
            calls: Vec::new(),
            text_pipeline,
            text_item: None,
            thought_part: None,
            refusal: String::new(),
            usage: None,
            cost: None,
            served: String::new(),
            end: None,
            done: false,
            size: 0,
        }
    }

    fn push_typed_event(
        &mut self,
        kind: &str,
        event: &ResponsesEvent<'_>,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        let location = event.location();
        if let Some(piece) = TextPiece::of_event(kind, event) {
            return self.push_piece(location, piece, batch);
        }
        match kind {
            "response.function_call_arguments.delta" => {
                self.add_arguments(location, &event.delta.text, false, batch)
            }
            "response.function_call_arguments.done" => {
                self.add_arguments(location, &event.arguments(), true, batch)
            }
            "response.output_item.added" => self.push_item_event(location, event.item, true, batch),
            "response.output_item.done" => self.push_item_event(location, event.item, false, batch),
            "response.completed"
            | "response.done"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                self.push_response(kind.trim_start_matches("response."), event.response, batch)
            }
            _ => Ok(()),
        }
    }

    /// Processes JSON without a type. Only errors count, because they say more than a stream that
    /// breaks off.
    fn push_untyped_event(&self, json: &str) -> Result<(), LlmError> {
        let value = serde_json::from_str(json).unwrap_or_default();
        let is_error = error_body::find_message(&value).is_some();
        if is_error { Err(self.context.stream_error(json)) } else { Ok(()) }
    }

    /// The item that a delta belongs to; a new one if the server has not announced it.
    fn find_or_open_item(
        &mut self,
        kind: ItemKind,
        location: ItemLocation<'_>,
    ) -> Result<usize, LlmError> {
        match streamed::find_for_delta(&self.items, kind, location) {
            Some(at) => Ok(at),
            None => self.open_item(kind, location),
        }
    }

    fn open_item(&mut self, kind: ItemKind, location: ItemLocation<'_>) -> Result<usize, LlmError> {
        let slot = self.calls.len();
        if kind == ItemKind::Call {
            self.calls.push(StreamedCall::default());
            if slot == MAX_CALLS {
                self.stop();
            }
        }
        if self.items.len() == MAX_ITEMS {
            return Err(self.context.malformed_error("the answer has more than 1024 items"));
        }
        self.items.push(StreamedItem::new(kind, location, slot));
        self.count_kept_bytes(location.id.len())?;
        Ok(self.items.len() - 1)
    }

    /// Adds a piece, unless it repeats an item that is complete.
    fn push_piece(
        &mut self,
        location: ItemLocation<'_>,
        piece: TextPiece<'_>,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        let kind = match piece.kind {
            PieceKind::Text | PieceKind::Refusal => ItemKind::Message,
            PieceKind::Summary | PieceKind::Thought => ItemKind::Reasoning,
        };
        let is_repeat = piece.is_whole && streamed::is_repeat(&self.items, kind, location);
        if piece.text.is_empty() || is_repeat {
            return Ok(());
        }
        let at = self.find_or_open_item(kind, location)?;
        self.push_item_piece(at, piece, batch)
    }

    /// Adds a piece to its item, unless the item has it.
    fn push_item_piece(
        &mut self,
        at: usize,
        piece: TextPiece<'_>,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        if !self.items[at].mark_seen(piece) {
            return Ok(());
        }
        self.count_kept_bytes(piece.text.len())?;
        match piece.kind {
            PieceKind::Text => self.push_text(at, piece.text, batch),
            PieceKind::Refusal => self.refusal.push_str(piece.text),
            PieceKind::Summary | PieceKind::Thought => {
                let paragraph = Some((at, piece.part));
                if self.thought_part.is_some() && self.thought_part != paragraph {
                    batch.push_thought("\n\n");
                }
                self.thought_part = paragraph;
                self.text_pipeline.push_thought(piece.text, batch);
            }
        }
        Ok(())
    }

    fn push_text(&mut self, at: usize, text: &str, batch: &mut DeltaBatch) {
        if self.text_item.is_some_and(|last| last != at) {
            self.release_text(batch);
            // Separates two messages.
            if self.text_pipeline.has_text() {
                self.text_pipeline.push_text("\n\n", batch);
            }
        }
        self.text_item = Some(at);
        let shown = self.text_pipeline.text_len();
        self.text_pipeline.push_text(text, batch);
        self.extend_span(shown);
    }

    /// Emits text that is held back because it looks like the beginning of reasoning.
    fn release_text(&mut self, batch: &mut DeltaBatch) {
        let shown = self.text_pipeline.text_len();
        self.text_pipeline.release(batch);
        self.extend_span(shown);
    }

    /// Records that the text from there on belongs to the last message.
    fn extend_span(&mut self, start: usize) {
        let end = self.text_pipeline.text_len();
        if let Some(at) = self.text_item.filter(|_| start < end) {
            let span = &mut self.items[at].span;
            *span = if span.start == span.end { start..end } else { span.start..end };
        }
    }

    /// Ends the reply, because the rest would only be more of the same.
    fn stop(&mut self) {
        self.end = Some(EndReason::Complete);
        self.done = true;
    }

    /// Adds a piece of the arguments of a call, or sets all of them.
    fn add_arguments(
        &mut self,
        location: ItemLocation<'_>,
        text: &str,
        is_whole: bool,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        if text.is_empty() || streamed::is_repeat(&self.items, ItemKind::Call, location) {
            return Ok(());
        }
        self.release_text(batch);
        let at = self.find_or_open_item(ItemKind::Call, location)?;
        let slot = self.items[at].slot;
        let call = &mut self.calls[slot];
        let new = if is_whole {
            call.set_arguments(slot, text, batch)
        } else {
            call.push_arguments(slot, text, batch)
        };
        self.count_kept_bytes(new)
    }

    /// Processes the start or the end of an item.
    fn push_item_event(
        &mut self,
        location: ItemLocation<'_>,
        raw: Option<&RawValue>,
        is_start: bool,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        let Some((kind, item)) = raw.and_then(OutputItem::parse) else { return Ok(()) };
        if kind == ItemKind::Call {
            self.release_text(batch);
        }
        let id = if item.id.text.is_empty() { location.id } else { &item.id.text };
        let location = ItemLocation { id, ..location };
        let call_id = item.call_id.text.as_ref();
        let known = streamed::find_for_item_event(&self.items, kind, location, call_id, is_start);
        let at = match known {
            Some(at) if self.items[at].done => return Ok(()),
            Some(at) => at,
            None => self.open_item(kind, location)?,
        };
        let new = self.items[at].announce(location, call_id);
        self.count_kept_bytes(new)?;
        if !is_start {
            return self.complete_item(at, &item, batch);
        }
        if kind != ItemKind::Call {
            return Ok(());
        }
        let slot = self.items[at].slot;
        let call = &mut self.calls[slot];
        let new =
            call.set_name(slot, &item, &self.context, batch) + call.set_early_arguments(&item);
        self.count_kept_bytes(new)
    }

    /// Counts bytes that are kept of the reply and enforces the limit. Also ends a reply whose text or
    /// reasoning so far goes round in circles.
    fn count_kept_bytes(&mut self, bytes: usize) -> Result<(), LlmError> {
        if self.text_pipeline.is_stuck() {
            return Err(LlmError::EndlessRepetition { host: self.context.host.clone() });
        }
        self.size += bytes;
        self.context.check_kept_bytes(self.size)
    }

    fn refused(&self) -> EndReason {
        EndReason::Refused(self.context.secrets.redact(&self.refusal))
    }
}
