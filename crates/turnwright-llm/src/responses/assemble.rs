//! Events → deltas and, at the end, one reply. Pure: every oddity of a server is a row in
//! `tests` and needs no network.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::Call;
use super::items::{self, Open};
use super::wire::{self, Event, Item, Place, Response, Sort};
use crate::bulk;
use crate::chat::read_usage;
use crate::chat::wire::mend_surrogates;
use crate::failure;
use crate::manner::Speaker;
use crate::reader::Assemble;
use crate::{Batch, End, LlmError, Reply};
use turnwright_types::message::{Echo, Usage};
use crate::sse;

/// More calls than this in one answer are a model gone wrong, not work.
const MOST_CALLS: usize = 128;
/// And so are more items of any sort,
const MOST_ITEMS: usize = 1024;
/// or more bytes, of all that is kept.
const LARGEST_ANSWER: usize = 32 * 1024 * 1024;

/// Collects one answer.
#[derive(Debug)]
pub(in crate) struct Assembler {
    speaker: Speaker,
    items: Vec<Open>,
    calls: Vec<Call>,
    /// How many bytes of words there have been.
    said: usize,
    /// The message that spoke last.
    speaking: Option<usize>,
    /// The reasoning that came last: its item and part.
    thinking: Option<(usize, u64)>,
    refusal: String,
    usage: Option<Usage>,
    /// How the server has ended the answer, while it has not been told.
    end: Option<End>,
    done: bool,
    /// How many bytes have been kept, here and by who takes the deltas.
    size: usize,
}

/// A piece of text: a part of what has not been heard, or all of it once more.
#[derive(Clone, Copy)]
struct Piece<'a> {
    part: u64,
    text: &'a str,
    is_whole: bool,
}

impl Assemble for Assembler {
    fn event(&mut self, event: &sse::Event<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
        }
        if self.done || data.is_empty() {
            return Ok(());
        }
        if event.name == "error" {
            return Err(self.in_stream(data));
        }
        wire::with_event(data, |parsed, json| match parsed {
            Ok(it) if it.is_failure() => Err(self.in_stream(json)),
            Ok(it) if it.sort.text.is_empty() && event.name.is_empty() => self.nameless(json),
            Ok(it) => {
                let sort = if it.sort.text.is_empty() { event.name } else { &it.sort.text };
                self.take(sort, &it, batch)
            }
            Err(error) if error.is_eof() => Err(self.truncated()),
            Err(_) => {
                let line = failure::shorten(&self.speaker.secret.redact(data));
                let start: String = line.chars().take(80).collect();
                Err(self.malformed(&format!("the stream has a part that is no event: {start}")))
            }
        })
    }

    fn document(&mut self, bytes: &[u8], batch: &mut Batch) -> Result<(), LlmError> {
        let text = mend_surrogates(&String::from_utf8_lossy(bytes));
        wire::with_event(text.trim(), |parsed, json| match parsed {
            Ok(it) if it.is_failure() && !wire::is_response(json) => Err(self.in_stream(json)),
            Ok(_) if wire::is_response(json) => match serde_json::from_str::<&RawValue>(json) {
                Ok(raw) => self.response("", Some(raw), batch),
                Err(_) => Err(self.malformed("the JSON is no response")),
            },
            Ok(_) => match failure::find_message(&read(json)) {
                Some(_) => Err(self.in_stream(json)),
                None => Err(self.malformed("the JSON is no response")),
            },
            Err(error) if error.is_eof() => Err(self.truncated()),
            Err(_) => Err(self.malformed("the body is neither a stream nor a response")),
        })
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_complete(&self) -> bool {
        self.done
    }

    fn finish(&mut self, batch: &mut Batch) -> Result<Reply, LlmError> {
        if !self.done {
            return Err(self.truncated());
        }
        let end = match self.end.take().unwrap_or(End::Complete) {
            End::Complete if !self.refusal.is_empty() && self.calls.is_empty() => self.refused(),
            end => end,
        };
        if self.said == 0 && self.calls.is_empty() && end == End::Complete {
            return Err(self.empty());
        }
        let cut = end == End::Length;
        let calls = std::mem::take(&mut self.calls);
        let calls = calls.into_iter().enumerate();
        let calls = calls.map(|(slot, call)| call.finish(slot, cut, batch)).collect();
        let echo = Echo {
            origin: Arc::clone(&self.speaker.origin),
            field: None,
            blobs: items::record(&self.items),
        };
        Ok(Reply { end, calls, usage: self.usage, echo })
    }

    fn malformed(&self, what: &str) -> LlmError {
        LlmError::Malformed { host: self.speaker.host.clone(), what: what.to_owned() }
    }
}

impl Assembler {
    /// An assembler of one answer of that speaker.
    pub(in crate) fn new(speaker: Speaker) -> Assembler {
        Assembler {
            speaker,
            items: Vec::new(),
            calls: Vec::new(),
            said: 0,
            speaking: None,
            thinking: None,
            refusal: String::new(),
            usage: None,
            end: None,
            done: false,
            size: 0,
        }
    }

    fn take(&mut self, sort: &str, it: &Event<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        let place = it.place();
        let delta = Piece { part: it.part(), text: &it.delta.text, is_whole: false };
        let whole = Piece { part: it.part(), text: &it.text.text, is_whole: true };
        match sort {
            "response.output_text.delta" => self.words(place, delta, batch),
            "response.output_text.done" => self.words(place, whole, batch),
            "response.function_call_arguments.delta" => {
                self.more_arguments(place, &it.delta.text, batch)
            }
            "response.function_call_arguments.done" => {
                self.all_arguments(place, &it.arguments(), batch)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_summary.delta" => {
                self.thought(place, true, delta, batch)
            }
            "response.reasoning_summary_text.done" => self.thought(place, true, whole, batch),
            "response.reasoning_text.delta" | "response.reasoning.delta" => {
                self.thought(place, false, delta, batch)
            }
            "response.reasoning_text.done" => self.thought(place, false, whole, batch),
            "response.refusal.delta" => self.refuse(place, delta),
            "response.refusal.done" => {
                self.refuse(place, Piece { text: &it.refusal.text, ..whole })
            }
            "response.output_item.added" => self.described(place, it.item, true, batch),
            "response.output_item.done" => self.described(place, it.item, false, batch),
            "response.completed"
            | "response.done"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                self.response(sort.trim_start_matches("response."), it.response, batch)
            }
            _ => Ok(()),
        }
    }

    /// JSON that does not say what it is. An error is worth more than a stream that breaks off.
    fn nameless(&self, json: &str) -> Result<(), LlmError> {
        let is_error = failure::find_message(&read(json)).is_some();
        if is_error { Err(self.in_stream(json)) } else { Ok(()) }
    }

    /// The item that a delta is about; a new one if the server has not described it.
    fn item(&mut self, sort: Sort, place: Place<'_>) -> Result<usize, LlmError> {
        match items::of_delta(&self.items, sort, place) {
            Some(at) => Ok(at),
            None => self.open(sort, place),
        }
    }

    fn open(&mut self, sort: Sort, place: Place<'_>) -> Result<usize, LlmError> {
        let slot = self.calls.len();
        if sort == Sort::Call {
            if slot == MOST_CALLS {
                return Err(self.malformed("the answer has more than 128 tool calls"));
            }
            self.calls.push(Call::default());
        }
        if self.items.len() == MOST_ITEMS {
            return Err(self.malformed("the answer has more than 1024 items"));
        }
        self.items.push(Open::new(sort, place, slot));
        self.keep(place.id.len())?;
        Ok(self.items.len() - 1)
    }

    fn words(
        &mut self,
        place: Place<'_>,
        piece: Piece<'_>,
        batch: &mut Batch,
    ) -> Result<(), LlmError> {
        if piece.text.is_empty()
            || piece.is_whole && items::is_over(&self.items, Sort::Message, place)
        {
            return Ok(());
        }
        let at = self.item(Sort::Message, place)?;
        self.say(at, piece, batch)
    }

    fn say(&mut self, at: usize, piece: Piece<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        if piece.text.is_empty() || !self.items[at].hears(piece) {
            return Ok(());
        }
        self.keep(piece.text.len())?;
        // Two messages are not one sentence.
        if self.said > 0 && self.speaking != Some(at) {
            self.said += 2;
            batch.text("\n\n");
        }
        self.speaking = Some(at);
        let span = &mut self.items[at].span;
        if span.start == span.end {
            span.start = self.said;
        }
        self.said += piece.text.len();
        span.end = self.said;
        batch.text(piece.text);
        Ok(())
    }

    fn thought(
        &mut self,
        place: Place<'_>,
        is_summary: bool,
        piece: Piece<'_>,
        batch: &mut Batch,
    ) -> Result<(), LlmError> {
        if piece.text.is_empty()
            || piece.is_whole && items::is_over(&self.items, Sort::Reasoning, place)
        {
            return Ok(());
        }
        let at = self.item(Sort::Reasoning, place)?;
        self.think(at, is_summary, piece, batch)
    }

    fn think(
        &mut self,
        at: usize,
        is_summary: bool,
        piece: Piece<'_>,
        batch: &mut Batch,
    ) -> Result<(), LlmError> {
        let item = &mut self.items[at];
        // Some servers send the same under both names.
        if piece.text.is_empty() || *item.is_summary.get_or_insert(is_summary) != is_summary {
            return Ok(());
        }
        if !item.hears(piece) {
            return Ok(());
        }
        self.keep(piece.text.len())?;
        let paragraph = Some((at, piece.part));
        if self.thinking.is_some() && self.thinking != paragraph {
            batch.thought("\n\n");
        }
        self.thinking = paragraph;
        batch.thought(piece.text);
        Ok(())
    }

    fn refuse(&mut self, place: Place<'_>, piece: Piece<'_>) -> Result<(), LlmError> {
        if piece.text.is_empty()
            || piece.is_whole && items::is_over(&self.items, Sort::Message, place)
        {
            return Ok(());
        }
        let at = self.item(Sort::Message, place)?;
        self.refuse_at(at, piece)
    }

    fn refuse_at(&mut self, at: usize, piece: Piece<'_>) -> Result<(), LlmError> {
        if !piece.text.is_empty() && self.items[at].hears(piece) {
            self.keep(piece.text.len())?;
            self.refusal.push_str(piece.text);
        }
        Ok(())
    }

    fn more_arguments(
        &mut self,
        place: Place<'_>,
        text: &str,
        batch: &mut Batch,
    ) -> Result<(), LlmError> {
        if text.is_empty() || items::is_over(&self.items, Sort::Call, place) {
            return Ok(());
        }
        let at = self.item(Sort::Call, place)?;
        let slot = self.items[at].slot;
        let new = self.calls[slot].more(slot, text, batch);
        self.keep(new)
    }

    fn all_arguments(
        &mut self,
        place: Place<'_>,
        text: &str,
        batch: &mut Batch,
    ) -> Result<(), LlmError> {
        if text.is_empty() || items::is_over(&self.items, Sort::Call, place) {
            return Ok(());
        }
        let at = self.item(Sort::Call, place)?;
        let slot = self.items[at].slot;
        let new = self.calls[slot].complete(slot, text, batch);
        self.keep(new)
    }

    /// An item begins or is whole.
    fn described(
        &mut self,
        place: Place<'_>,
        raw: Option<&RawValue>,
        begins: bool,
        batch: &mut Batch,
    ) -> Result<(), LlmError> {
        let Some((sort, item)) = raw.and_then(Item::read) else { return Ok(()) };
        let id = if item.id.text.is_empty() { place.id } else { &item.id.text };
        let place = Place { id, ..place };
        let call_id = item.call_id.text.as_ref();
        let known = items::of_description(&self.items, sort, place, call_id, begins);
        let at = match known {
            Some(at) if self.items[at].done => return Ok(()),
            Some(at) => at,
            None => self.open(sort, place)?,
        };
        let new = self.items[at].announce(place, call_id);
        self.keep(new)?;
        if !begins {
            return self.settle(at, &item, batch);
        }
        if sort != Sort::Call {
            return Ok(());
        }
        let slot = self.items[at].slot;
        let call = &mut self.calls[slot];
        let new = call.name(slot, &item, &self.speaker, batch) + call.begin(&item);
        self.keep(new)
    }

    /// Takes of a whole item what has not been heard.
    fn settle(&mut self, at: usize, item: &Item<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        match self.items[at].sort {
            Sort::Message => {
                for (part, it) in (0..).zip(item.content()) {
                    let said = Piece { part, text: &it.text.text, is_whole: true };
                    if it.refusal.text.is_empty() {
                        self.say(at, said, batch)?;
                    } else {
                        self.refuse_at(at, Piece { text: &it.refusal.text, ..said })?;
                    }
                }
                self.keep(item.phase.text.len())?;
                self.items[at].phase = item.phase.text.to_string();
            }
            Sort::Reasoning => {
                for (is_summary, parts) in [(true, item.summary()), (false, item.content())] {
                    for (part, it) in (0..).zip(parts) {
                        let piece = Piece { part, text: &it.text.text, is_whole: true };
                        self.think(at, is_summary, piece, batch)?;
                    }
                }
                let blob = item.blob();
                self.keep(blob.as_ref().map_or(0, bulk::weight))?;
                self.items[at].blob = blob;
            }
            Sort::Call => {
                let slot = self.items[at].slot;
                let call = &mut self.calls[slot];
                let named = call.name(slot, item, &self.speaker, batch);
                let completed = call.complete(slot, &item.arguments(), batch);
                self.keep(named + completed)?;
            }
        }
        self.items[at].done = true;
        Ok(())
    }

    /// The end of the answer, with all of it once more.
    fn response(
        &mut self,
        how: &str,
        raw: Option<&RawValue>,
        batch: &mut Batch,
    ) -> Result<(), LlmError> {
        let response = raw.and_then(|it| serde_json::from_str::<Response<'_>>(it.get()).ok());
        let response = response.unwrap_or_default();
        let status = match response.status.text.as_ref() {
            status @ ("incomplete" | "failed" | "cancelled") => status,
            _ => how,
        };
        match response.error() {
            Some(error) => return Err(self.in_stream(error)),
            None if matches!(status, "failed" | "cancelled") => return Err(self.failed(status)),
            None => {}
        }
        self.usage = response.usage.as_ref().and_then(read_usage);
        self.output(&response, batch)?;
        self.end = Some(match (status, response.reason()) {
            ("incomplete", "content_filter" | "safety") => self.refused(),
            ("incomplete", _) => End::Length,
            _ => End::Complete,
        });
        self.done = true;
        Ok(())
    }

    /// Takes of a whole answer what has not been heard. Sorts of which nothing has been heard
    /// come from here; of the others only what their items lack, because a call that is taken
    /// for another one would run twice.
    fn output(&mut self, response: &Response<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        let sorts = [Sort::Message, Sort::Reasoning, Sort::Call];
        let known = sorts.map(|it| items::of_sort(&self.items, it));
        let has_words = self.said > 0 || !self.refusal.is_empty();
        let mut seen = [0_usize; 3];
        for (index, raw) in (0..).zip(response.output()) {
            let Some((sort, item)) = Item::read(raw) else { continue };
            let known = &known[sort as usize];
            let number = seen[sort as usize];
            seen[sort as usize] += 1;
            let at = match known.get(number) {
                Some(at)
                    if sort == Sort::Call && self.items[*at].is_other_call(&item.call_id.text) =>
                {
                    continue;
                }
                Some(at) => *at,
                None if known.is_empty() => {
                    self.open(sort, Place { index: Some(index), id: &item.id.text })?
                }
                None => continue,
            };
            if !(self.items[at].done || sort == Sort::Message && has_words) {
                self.settle(at, &item, batch)?;
            }
        }
        Ok(())
    }

    /// Accounts for what is kept of the answer.
    fn keep(&mut self, bytes: usize) -> Result<(), LlmError> {
        self.size += bytes;
        if self.size > LARGEST_ANSWER {
            return Err(self.malformed("the answer has more than 32 MiB"));
        }
        Ok(())
    }

    fn refused(&self) -> End {
        End::Refused(self.speaker.secret.redact(&self.refusal))
    }

    fn in_stream(&self, body: &str) -> LlmError {
        let mut error = failure::in_stream(&self.speaker.host, &self.speaker.secret.redact(body));
        // In the JSON the key may have been escaped, as in `\/`.
        if let LlmError::InStream { message, .. } = &mut error {
            *message = self.speaker.secret.redact(message);
        }
        error
    }

    /// The server has failed and said no more than that.
    fn failed(&self, status: &str) -> LlmError {
        let message = format!("it ended with `{status}`");
        self.in_stream(&json!({ "code": 503, "message": message }).to_string())
    }

    fn truncated(&self) -> LlmError {
        LlmError::Truncated { host: self.speaker.host.clone() }
    }

    fn empty(&self) -> LlmError {
        let has_thought = self.thinking.is_some();
        let what = if has_thought { "reasoning but no answer" } else { "an empty answer" };
        LlmError::Empty { host: self.speaker.host.clone(), what: what.to_owned() }
    }
}

impl Open {
    /// Whether a piece is new, which it then no longer is.
    fn hears(&mut self, piece: Piece<'_>) -> bool {
        let is_new = !piece.is_whole || piece.part >= self.heard;
        self.heard = self.heard.max(piece.part.saturating_add(1));
        is_new
    }
}

fn read(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}
