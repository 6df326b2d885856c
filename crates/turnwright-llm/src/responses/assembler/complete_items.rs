//! Adds what complete items, and the response at its end, contain beyond the events before.

use serde_json::value::RawValue;

use super::ResponsesAssembler;
use crate::chat::arguments::MAX_CALLS;
use crate::chat::parse_usage;
use crate::reply::memory_size;
use crate::responses::streamed::{self, PieceKind, TextPiece};
use crate::responses::wire::{ItemKind, ItemLocation, OutputItem, ResponseObject};
use crate::{DeltaBatch, EndReason, ErrorKind, LlmError};

impl ResponsesAssembler {
    /// Adds what a complete item contains beyond its deltas.
    pub(super) fn complete_item(
        &mut self,
        at: usize,
        item: &OutputItem<'_>,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        match self.items[at].kind {
            ItemKind::Message => {
                for (part, content) in (0..).zip(item.content()) {
                    let (kind, source) = if content.refusal.text.is_empty() {
                        (PieceKind::Text, &content.text)
                    } else {
                        (PieceKind::Refusal, &content.refusal)
                    };
                    let piece = TextPiece { kind, part, text: &source.text, is_whole: true };
                    self.push_item_piece(at, piece, batch)?;
                }
                self.count_kept_bytes(item.phase.text.len())?;
                self.items[at].phase = item.phase.text.to_string();
            }
            ItemKind::Reasoning => {
                let summary = (PieceKind::Summary, item.summary());
                for (kind, parts) in [summary, (PieceKind::Thought, item.content())] {
                    for (part, content) in (0..).zip(parts) {
                        let text = &content.text.text;
                        let piece = TextPiece { kind, part, text, is_whole: true };
                        self.push_item_piece(at, piece, batch)?;
                    }
                }
                let reasoning = item.reasoning_to_resend();
                self.count_kept_bytes(reasoning.as_ref().map_or(0, memory_size))?;
                self.items[at].reasoning = reasoning;
            }
            ItemKind::Call => {
                let slot = self.items[at].slot;
                let call = &mut self.calls[slot];
                let named = call.set_name(slot, item, &self.context, batch);
                let completed = call.set_arguments(slot, &item.arguments(), batch);
                self.count_kept_bytes(named + completed)?;
                if streamed::first_repeat(&self.calls, &self.context).is_some() {
                    self.stop();
                }
            }
        }
        self.items[at].done = true;
        Ok(())
    }

    /// Processes the end of the reply, which repeats all of it.
    pub(super) fn push_response(
        &mut self,
        event_status: &str,
        raw: Option<&RawValue>,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        let response = raw
            .and_then(|raw| serde_json::from_str::<ResponseObject<'_>>(raw.get()).ok())
            .unwrap_or_default();
        let status = match response.status.text.as_ref() {
            status @ ("incomplete" | "failed" | "cancelled") => status,
            _ => event_status,
        };
        self.usage = response.usage.as_ref().and_then(parse_usage);
        self.cost = response.cost();
        batch.reported = (self.usage, self.cost);
        match response.error() {
            Some(error) => return Err(self.context.stream_error(error)),
            None if matches!(status, "failed" | "cancelled") => {
                return Err(self.context.ended_with_error(status, ErrorKind::Unavailable));
            }
            None => {}
        }
        self.served = self.context.served_model(&response.model.text);
        self.push_output(&response, batch)?;
        self.end = Some(match (status, response.incomplete_reason()) {
            ("incomplete", "content_filter" | "safety") => self.refused(),
            ("incomplete", _) => EndReason::Length,
            _ => EndReason::Complete,
        });
        self.done = true;
        Ok(())
    }

    /// Adds what a complete response contains beyond its events. Items of a kind without any events
    /// are taken from here; known items are only completed, because a call that is mistaken for
    /// another one would run twice.
    fn push_output(
        &mut self,
        response: &ResponseObject<'_>,
        batch: &mut DeltaBatch,
    ) -> Result<(), LlmError> {
        let kinds = [ItemKind::Message, ItemKind::Reasoning, ItemKind::Call];
        let known = kinds.map(|kind| streamed::of_kind(&self.items, kind));
        let has_words = self.text_pipeline.has_text() || !self.refusal.is_empty();
        let mut seen = [0_usize; 3];
        for (index, raw) in (0..).zip(response.output()) {
            let Some((kind, item)) = OutputItem::parse(raw) else { continue };
            let known = &known[kind as usize];
            let number = seen[kind as usize];
            seen[kind as usize] += 1;
            let at = match known.get(number) {
                Some(at)
                    if kind == ItemKind::Call
                        && self.items[*at].is_other_call(&item.call_id.text) =>
                {
                    continue;
                }
                Some(at) => *at,
                None if known.is_empty() && self.calls.len() <= MAX_CALLS => {
                    self.open_item(kind, ItemLocation { index: Some(index), id: &item.id.text })?
                }
                None => continue,
            };
            if !(self.items[at].done || kind == ItemKind::Message && has_words) {
                self.complete_item(at, &item, batch)?;
            }
        }
        Ok(())
    }
}
