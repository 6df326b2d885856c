//! Events → deltas and, at the end, one reply. Pure: every oddity of a server is a file
//! in `tests/data/sse` and needs no network.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::arguments::{Growing, cut_off, understand};
use super::details;
use super::speech::Speech;
use super::wire::{self, CallDelta, Choice, Chunk, Delta as Said, FunctionDelta};
use crate::bulk;
use crate::failure;
use crate::leaked::LeakedCall;
use crate::manner::Speaker;
use crate::reader::Assemble;
use crate::{Batch, Delta, End, Kind, LlmError, Reply, ReplyCall};
use turnwright_types::message::{Echo, Usage};
use crate::sse;

/// More calls than this in one answer are a model gone wrong, not work.
const MOST_CALLS: usize = 128;
/// And so are more bytes than this, of all that is kept.
const LARGEST_ANSWER: usize = 32 * 1024 * 1024;
/// No window is as large; sums of counts below it cannot overflow.
const MOST_TOKENS: u64 = 1 << 40;

/// Collects one answer.
#[derive(Debug)]
pub(in crate) struct Assembler {
    speaker: Speaker,
    speech: Speech,
    slots: Vec<Slot>,
    finish: String,
    refusal: String,
    usage: Option<Usage>,
    done: bool,
    /// How many bytes have been kept, here and by who takes the deltas.
    size: usize,
    echo: Echo,
}

/// One tool call on its way.
#[derive(Debug, Default)]
struct Slot {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Growing,
    extra: Option<Value>,
}

impl Assemble for Assembler {
    fn event(&mut self, event: &sse::Event<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
        }
        if self.done {
            return Ok(());
        }
        if event.name == "error" {
            // llama.cpp may end the stream within the same event.
            return self.failure(data.trim_end_matches("[DONE]"), batch);
        }
        with_chunk(data, |chunk, json| match chunk {
            Ok(chunk) if chunk.is_failure() => self.failure(json, batch),
            Ok(chunk) => self.chunk(&chunk, batch),
            Err(error) if self.is_complete() => {
                tracing::info!(%error, "not JSON after the end of the answer");
                Ok(())
            }
            Err(error) if error.is_eof() => Err(self.truncated()),
            Err(_) => {
                let line = failure::shorten(&self.speaker.secret.redact(data));
                let start: String = line.chars().take(80).collect();
                Err(self.malformed(&format!("the stream has a part that is no chunk: {start}")))
            }
        })
    }

    fn document(&mut self, bytes: &[u8], batch: &mut Batch) -> Result<(), LlmError> {
        let text = String::from_utf8_lossy(bytes);
        with_chunk(text.trim(), |chunk, json| match chunk {
            Ok(chunk) if chunk.is_failure() => Err(self.in_stream(json)),
            Ok(chunk) if chunk.choice.is_none() => {
                let value = serde_json::from_str::<Value>(json).unwrap_or_default();
                match failure::find_message(&value) {
                    Some(_) => Err(self.in_stream(json)),
                    None => Err(self.malformed("the JSON is no chat completion")),
                }
            }
            Ok(chunk) => {
                self.chunk(&chunk, batch)?;
                self.done = true;
                Ok(())
            }
            Err(error) if error.is_eof() => Err(self.truncated()),
            Err(_) => Err(self.malformed("the body is neither a stream nor a chat completion")),
        })
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_complete(&self) -> bool {
        self.done || !self.finish.is_empty()
    }

    fn finish(&mut self, batch: &mut Batch) -> Result<Reply, LlmError> {
        let leaked = self.speech.finish(batch);
        if !self.is_complete() {
            return Err(self.truncated());
        }
        if self.slots.is_empty() {
            self.take_leaked(leaked, batch);
        }
        if self.speech.is_inline() && self.echo.field.is_none() {
            self.echo.field = Some("think".to_owned());
        }
        if self.slots.is_empty() && !self.speech.has_text() {
            self.speech.answer_with_thought(batch);
        }
        let end = self.end()?;
        if !self.speech.has_text() && self.slots.is_empty() && end == End::Complete {
            return Err(self.empty());
        }
        let cut = end == End::Length;
        let calls = std::mem::take(&mut self.slots)
            .into_iter()
            .enumerate()
            .map(|(position, slot)| ReplyCall {
                slot: position,
                provider_id: slot.id,
                name: slot.name,
                arguments: if cut { cut_off } else { understand }(slot.arguments.into_text()),
                extra: slot.extra,
            })
            .collect();
        Ok(Reply { end, calls, usage: self.usage, echo: std::mem::take(&mut self.echo) })
    }

    fn flush(&mut self, batch: &mut Batch) {
        self.speech.release(batch);
    }

    fn malformed(&self, what: &str) -> LlmError {
        LlmError::Malformed { host: self.speaker.host.clone(), what: what.to_owned() }
    }
}

impl Assembler {
    /// An assembler of one answer of that speaker.
    pub(in crate) fn new(speaker: Speaker) -> Assembler {
        let speech = Speech::new(&speaker.quirks, speaker.tools.clone());
        Assembler {
            echo: Echo { origin: Arc::clone(&speaker.origin), ..Echo::default() },
            speaker,
            speech,
            slots: Vec::new(),
            finish: String::new(),
            refusal: String::new(),
            usage: None,
            done: false,
            size: 0,
        }
    }

    /// A failure, unless the call that the server could not read can be read (quirk C.1 #23).
    fn failure(&mut self, json: &str, batch: &mut Batch) -> Result<(), LlmError> {
        let value = serde_json::from_str::<Value>(json).unwrap_or_default();
        match value.pointer("/error/failed_generation").and_then(Value::as_str) {
            Some(text) if self.slots.is_empty() => {
                let text = self.speaker.secret.redact(text);
                if self.rescue(&text, batch) { Ok(()) } else { Err(self.in_stream(json)) }
            }
            _ => Err(self.in_stream(json)),
        }
    }

    /// Reads an answer that the server could not read; returns whether there are calls in it.
    pub(in crate) fn rescue(&mut self, text: &str, batch: &mut Batch) -> bool {
        let Some(tools) = &self.speaker.tools else { return false };
        let Some((start, calls)) = tools.find_leaked(text) else { return false };
        // Words that were shown already stand in it once more.
        if !self.speech.has_text() {
            self.speech.words(text[..start].trim_end(), batch);
        }
        self.speech.release(batch);
        self.take_leaked(calls, batch);
        "tool_calls".clone_into(&mut self.finish);
        self.done = true;
        true
    }

    fn in_stream(&self, body: &str) -> LlmError {
        let mut error = failure::in_stream(&self.speaker.host, &self.speaker.secret.redact(body));
        // In the JSON the key may have been escaped, as in `\/`.
        if let LlmError::InStream { message, .. } = &mut error {
            *message = self.speaker.secret.redact(message);
        }
        error
    }

    fn truncated(&self) -> LlmError {
        LlmError::Truncated { host: self.speaker.host.clone() }
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        let choice = chunk.choice.as_ref();
        let usage = chunk.usage.as_ref().and_then(read_usage);
        let usage = usage.or_else(|| choice?.usage.as_ref().and_then(read_usage));
        // Several counts are running totals: the last one stands.
        self.usage = usage.or(self.usage);
        choice.map_or(Ok(()), |choice| self.choice(choice, batch))
    }

    fn choice(&mut self, choice: &Choice<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        // Some servers add all they have said so far as `message` to each `delta`.
        if let Some(said) = choice.delta.as_ref().or(choice.message.as_ref()) {
            self.said(said, batch)?;
        }
        let finish = choice.finish();
        if finish == "content_filter"
            && let Some(why) = choice.filter.as_ref().and_then(failure::categories)
        {
            self.refusal = why;
        }
        // Some servers end twice; the second time must not hide that the answer was cut.
        let is_plain = matches!(finish, "stop" | "tool_calls" | "function_call");
        if !finish.is_empty() && (self.finish.is_empty() || !is_plain) {
            finish.clone_into(&mut self.finish);
        }
        Ok(())
    }

    fn said(&mut self, said: &Said<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        let (field, thought) = said.thought();
        let text = said.content.text.as_ref();
        self.keep(thought.len() + text.len() + said.refusal.text.len())?;
        if !field.is_empty() && self.echo.field.is_none() {
            self.echo.field = Some(field.to_owned());
        }
        self.details(said, thought.is_empty(), batch)?;
        self.speech.thought(thought, batch);
        self.speech.words(text, batch);
        if self.speech.is_stuck() {
            return Err(LlmError::Stuck { host: self.speaker.host.clone() });
        }
        self.refusal.push_str(&said.refusal.text);
        for call in &said.tool_calls {
            self.call(call, batch)?;
        }
        // Some servers send the one call in the old way and in the new way.
        if self.slots.iter().all(|it| it.index.is_none() && it.id.is_empty()) {
            self.function(None, "", &said.function_call, batch)?;
        }
        Ok(())
    }

    /// Signed pieces of the reasoning. Their words are shown if they come nowhere else.
    fn details(&mut self, said: &Said<'_>, alone: bool, batch: &mut Batch) -> Result<(), LlmError> {
        let pieces = said.details();
        if pieces.is_empty() {
            return Ok(());
        }
        if alone {
            let words = details::words(&pieces);
            self.speech.thought(&words, batch);
        }
        let kept = details::merge(&mut self.echo.blobs, pieces);
        self.keep(kept)
    }

    /// Accounts for what is kept of the answer.
    fn keep(&mut self, bytes: usize) -> Result<(), LlmError> {
        self.size += bytes;
        if self.size > LARGEST_ANSWER {
            return Err(self.malformed("the answer has more than 32 MiB"));
        }
        Ok(())
    }

    fn call(&mut self, call: &CallDelta<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        let slot = self.function(call.index(), &call.id.text, &call.function, batch)?;
        let Some(extra) = call.extra_content.as_ref().filter(|it| !it.is_null()) else {
            return Ok(());
        };
        // What is attached may come in a piece of its own.
        let by_index = || self.slots.iter().position(|it| it.index == call.index());
        let slot = slot.or_else(by_index).or(self.slots.len().checked_sub(1));
        if let Some(slot) = slot.filter(|it| self.slots[*it].extra.is_none()) {
            self.keep(bulk::weight(extra))?;
            self.slots[slot].extra = Some(extra.clone());
        }
        Ok(())
    }

    /// Returns which slot it was for.
    fn function(
        &mut self,
        index: Option<u64>,
        id: &str,
        function: &FunctionDelta<'_>,
        batch: &mut Batch,
    ) -> Result<Option<usize>, LlmError> {
        let name = self.speaker.tool_name(function.name()).to_owned();
        let name = name.as_str();
        let arguments = function.arguments();
        if id.is_empty() && name.is_empty() && arguments.is_empty() {
            return Ok(None);
        }
        let position = self.resolve(index, id, name, &arguments);
        if position >= MOST_CALLS {
            return Err(self.malformed("the answer has more than 128 tool calls"));
        }
        if position == self.slots.len() {
            if position == 0 {
                self.speech.release(batch);
            }
            self.slots.push(Slot::default());
        }
        let slot = &mut self.slots[position];
        let mut kept = 0;
        slot.index = slot.index.or(index);
        if slot.id.is_empty() {
            id.clone_into(&mut slot.id);
            kept += id.len();
        }
        // A name may be repeated, or grow: a longer one with the same beginning replaces it.
        let grows = slot.arguments.is_empty() && name.starts_with(slot.name.as_str());
        if name.len() > slot.name.len() && (slot.name.is_empty() || grows) {
            kept += name.len();
            name.clone_into(&mut slot.name);
            batch.deltas.push(Delta::CallNamed { slot: position, name: name.to_owned() });
        }
        let new = match arguments.strip_prefix(slot.arguments.as_str()) {
            // All of it once more, and nothing new.
            Some("") if slot.arguments.is_object() => "",
            // The server repeats what it has sent and adds to it.
            Some(new) if !new.is_empty() => new,
            _ => &arguments,
        };
        slot.arguments.push(new);
        batch.arguments(position, new);
        kept += new.len();
        self.keep(kept)?;
        Ok(Some(position))
    }

    /// The call that arguments are for when the one under their index has all of its own: some
    /// servers count the names from 1 and the arguments from 0 (quirk C.2 #3).
    fn shifted(&self, at: usize, id: &str, name: &str, arguments: &str) -> Option<usize> {
        if !id.is_empty() || !name.is_empty() || arguments.is_empty() {
            return None;
        }
        let is_open = |it: &usize| !self.slots[*it].arguments.is_object();
        let mut open = (at + 1..self.slots.len()).filter(is_open);
        let only = open.next().filter(|_| open.next().is_none())?;
        let own = &self.slots[at].arguments;
        (own.is_object() && !arguments.starts_with(own.as_str())).then_some(only)
    }

    /// Which slot a delta belongs to. The index alone cannot tell: some servers leave it out,
    /// some send 0 for every call, some change it between the name and the arguments
    /// (quirks C.2). Where that stays open, the arguments of two calls end up in one slot
    /// and are no JSON then: nothing runs that the model has not asked for.
    fn resolve(&self, index: Option<u64>, id: &str, name: &str, arguments: &str) -> usize {
        let new = self.slots.len();
        let Some(last) = new.checked_sub(1) else { return 0 };
        let by_index = index.and_then(|it| self.slots.iter().rposition(|s| s.index == Some(it)));
        if let Some(position) = by_index {
            let slot = &self.slots[position];
            let is_other = !id.is_empty() && !slot.id.is_empty() && id != slot.id;
            let is_next = slot.is_left_by(name, arguments) && slot.arguments.is_object();
            if let Some(waiting) = self.shifted(position, id, name, arguments) {
                return waiting;
            }
            if !is_other && !is_next {
                return position;
            }
        }
        if !id.is_empty() {
            let Some(known) = self.slots.iter().rposition(|it| it.id == id) else {
                // The identifier of a call may come after its name.
                let is_late = name.is_empty() && self.slots[last].id.is_empty();
                return if is_late && index.is_none() { last } else { new };
            };
            // A name under a new index, after whole arguments, begins another call: some servers
            // give all calls the same identifier.
            let slot = &self.slots[known];
            let is_new_index = index.is_some() && index != slot.index;
            let is_next = !name.is_empty() && is_new_index && slot.arguments.is_object();
            return if is_next { new } else { known };
        }
        if !name.is_empty() {
            let is_next = index.is_some() || self.slots[last].is_left_by(name, arguments);
            return if is_next { new } else { last };
        }
        // Arguments under an index that nobody has named belong to the call that waits for some,
        // if there is just one.
        let mut waiting = (0..new).filter(|it| self.slots[*it].arguments.is_empty());
        match (waiting.next(), waiting.next()) {
            (Some(only), None) if index.is_some() => only,
            _ => last,
        }
    }

    /// Calls that stood among the words, as if they had been made.
    fn take_leaked(&mut self, calls: Vec<LeakedCall>, batch: &mut Batch) {
        for call in calls {
            let name = self.speaker.tool_name(&call.name).to_owned();
            let text = call.arguments.to_string();
            let slot = self.slots.len();
            batch.deltas.push(Delta::CallNamed { slot, name: name.clone() });
            batch.arguments(slot, &text);
            let mut arguments = Growing::default();
            arguments.push(&text);
            self.slots.push(Slot { name, arguments, ..Slot::default() });
        }
    }

    fn end(&self) -> Result<End, LlmError> {
        let refused = || Ok(End::Refused(self.speaker.secret.redact(&self.refusal)));
        match self.finish.to_ascii_lowercase().as_str() {
            "length" | "max_tokens" | "max_output_tokens" | "model_length" => Ok(End::Length),
            "model_context_window_exceeded" => {
                Err(self.failed(Kind::Overflow { limit: None, used: None }))
            }
            "content_filter" | "refusal" | "safety" | "recitation" | "sensitive" | "blocklist"
            | "prohibited_content" | "spii" => refused(),
            "error" | "network_error" | "insufficient_system_resource" => {
                Err(self.failed(Kind::Unavailable))
            }
            // The server has dropped the call; without it, the answer is not what was meant.
            "malformed_function_call" | "unexpected_tool_call" if self.slots.is_empty() => {
                Err(self.failed(Kind::Unavailable))
            }
            _ if !self.refusal.is_empty() && self.slots.is_empty() => refused(),
            _ => Ok(End::Complete),
        }
    }

    /// The server has failed and said so in nothing but the reason of the end.
    fn failed(&self, kind: Kind) -> LlmError {
        LlmError::InStream {
            host: self.speaker.host.clone(),
            message: format!(
                "it ended with `{}`",
                failure::shorten(&self.speaker.secret.redact(&self.finish))
            ),
            status: (kind == Kind::Unavailable).then_some(503),
            retry_after: None,
            kind,
        }
    }

    fn empty(&self) -> LlmError {
        let what =
            if self.speech.has_thought() { "reasoning but no answer" } else { "an empty answer" };
        let what = match self.finish.as_str() {
            "" => what.to_owned(),
            finish => {
                format!(
                    "{what} (finish_reason: {})",
                    failure::shorten(&self.speaker.secret.redact(finish))
                )
            }
        };
        LlmError::Empty { host: self.speaker.host.clone(), what }
    }
}

impl Slot {
    /// Whether a delta with this name and these arguments begins another call. A name alone may
    /// also be a repetition.
    fn is_left_by(&self, name: &str, arguments: &str) -> bool {
        if name.is_empty() {
            false
        } else if self.arguments.is_empty() {
            !name.starts_with(self.name.as_str())
        } else {
            let is_other = !self.name.is_empty() && name != self.name;
            is_other || !arguments.is_empty() && self.arguments.is_object()
        }
    }
}

/// Reads a chunk and passes it on with its JSON.
fn with_chunk<T>(json: &str, then: impl FnOnce(serde_json::Result<Chunk<'_>>, &str) -> T) -> T {
    // Gemini wraps its errors in a list. Nothing else begins so, and this is the hot path.
    let list = json.starts_with('[').then(|| serde_json::from_str::<[&RawValue; 1]>(json));
    let json = match list {
        Some(Ok([only])) => only.get(),
        _ => json,
    };
    match serde_json::from_str(json) {
        Ok(chunk) => then(Ok(chunk), json),
        Err(error) => {
            let mended = wire::mend_surrogates(json);
            let chunk = serde_json::from_str(&mended);
            then(chunk.map_err(|_| error), &mended)
        }
    }
}

/// Tokens that were in the provider's cache, under each of the names that they have (C.4 #25).
fn cached(usage: &Value) -> u64 {
    let places = [
        "/prompt_tokens_details/cached_tokens",
        "/input_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
        "/cached_tokens",
        "/cache_read_input_tokens",
    ];
    // Under one of them there may stand a 0 for what nobody has counted.
    let counts = places.iter().filter_map(|it| usage.pointer(it)?.as_u64());
    counts.max().unwrap_or(0).min(MOST_TOKENS)
}

pub(in crate) fn read_usage(value: &Value) -> Option<Usage> {
    let count = |key: &str| value.get(key).and_then(Value::as_u64).map(|it| it.min(MOST_TOKENS));
    let input = count("prompt_tokens").or_else(|| count("input_tokens"))?;
    let output = count("completion_tokens").or_else(|| count("output_tokens")).unwrap_or(0);
    let cached = cached(value);
    // Anthropic counts what it reads from its cache and writes there apart. Gateways that pass
    // that on rename the fields or do not; what is more than the whole is no part of it.
    let written = count("cache_creation_input_tokens").unwrap_or(0);
    let is_apart = value.get("cache_read_input_tokens").is_some()
        && value.get("prompt_tokens").is_none_or(Value::is_null);
    let input = if is_apart || cached > input { input + cached + written } else { input };
    Some(Usage { input, output, cached })
}
