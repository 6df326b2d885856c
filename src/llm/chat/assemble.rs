//! Events → deltas and, at the end, one reply. Pure: every oddity of a server is a row in the
//! tests of this file and needs no network.

use serde_json::Value;

use super::wire::{self, CallDelta, Choice, Chunk};
use crate::llm::{Batch, Delta, End, LlmError, Reply, ReplyCall};
use crate::message::{Arguments, Usage};
use crate::sse;

/// More calls than this in one answer are a model gone wrong, not work.
const MOST_CALLS: usize = 128;

/// Collects one answer.
#[derive(Debug)]
pub(super) struct Assembler {
    host: String,
    slots: Vec<Slot>,
    finish: String,
    refusal: String,
    usage: Option<Usage>,
    done: bool,
    has_text: bool,
    has_thought: bool,
}

/// One tool call on its way.
#[derive(Debug, Default)]
struct Slot {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Assembler {
    pub(super) fn new(host: String) -> Assembler {
        Assembler {
            host,
            slots: Vec::new(),
            finish: String::new(),
            refusal: String::new(),
            usage: None,
            done: false,
            has_text: false,
            has_thought: false,
        }
    }

    /// Whether the server has said that nothing more will come.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Whether the answer is whole even if the connection breaks now.
    pub(super) fn is_complete(&self) -> bool {
        self.done || !self.finish.is_empty()
    }

    pub(super) fn malformed(&self, what: &str) -> LlmError {
        LlmError::Malformed { host: self.host.clone(), what: what.to_owned() }
    }

    pub(super) fn got_html(&self) -> LlmError {
        self.malformed("an HTML page came instead of a stream")
    }

    /// Takes one event of the stream.
    pub(super) fn event(
        &mut self,
        event: &sse::Event<'_>,
        batch: &mut Batch,
    ) -> Result<(), LlmError> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        if event.name == "error" {
            return Err(self.in_stream(&Value::String(wire::error_text(data)), None));
        }
        let chunk = serde_json::from_str::<Chunk<'_>>(data).map_err(|error| {
            tracing::info!(%error, "a chunk that is not JSON");
            LlmError::Truncated { host: self.host.clone() }
        })?;
        self.chunk(&chunk, batch)
    }

    /// Takes a whole answer from a server that does not stream.
    pub(super) fn document(&mut self, bytes: &[u8], batch: &mut Batch) -> Result<(), LlmError> {
        let text = String::from_utf8_lossy(bytes);
        let value: Value = serde_json::from_str(&text)
            .map_err(|_| self.malformed("the body is neither a stream nor JSON"))?;
        let object = match &value {
            // Gemini wraps its errors in a list.
            Value::Array(items) => items.first().unwrap_or(&value),
            _ => &value,
        };
        let text = object.to_string();
        let chunk: Chunk<'_> = serde_json::from_str(&text)
            .map_err(|_| self.malformed("the JSON is no chat completion"))?;
        if chunk.choices.is_empty() && chunk.error.is_none() {
            return Err(self.in_stream(&value, None));
        }
        self.chunk(&chunk, batch)?;
        self.done = true;
        Ok(())
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        if let Some(error) = chunk.error.as_ref().filter(|it| !it.is_null()) {
            return Err(self.in_stream(error, None));
        }
        if let Some(status) = chunk.base_resp.as_ref()
            && status.get("status_code").and_then(Value::as_i64).is_some_and(|it| it != 0)
        {
            return Err(self.in_stream(status, None));
        }
        if chunk.object.text == "error" {
            return Err(self.in_stream(&Value::String("unknown error".to_owned()), None));
        }
        if let Some(usage) = chunk.usage.as_ref().and_then(read_usage) {
            // Several counts are running totals: the last one stands.
            self.usage = Some(usage);
        }
        // We ask for one choice; a server that sends more gets the first one heard.
        chunk.choices.first().map_or(Ok(()), |choice| self.choice(choice, batch))
    }

    fn choice(&mut self, choice: &Choice<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        if let Some(error) = choice.error.as_ref().filter(|it| !it.is_null()) {
            return Err(self.in_stream(error, None));
        }
        if self.usage.is_none() {
            self.usage = choice.usage.as_ref().and_then(read_usage);
        }
        for delta in [&choice.message, &choice.delta] {
            let thought = delta.thought();
            self.has_thought |= !thought.is_empty();
            batch.thought(thought);
            self.has_text |= !delta.content.text.is_empty();
            batch.text(&delta.content.text);
            self.refusal.push_str(&delta.refusal.text);
            for call in &delta.tool_calls {
                self.call(call, batch)?;
            }
        }
        if !choice.finish_reason.text.is_empty() {
            choice.finish_reason.text.as_ref().clone_into(&mut self.finish);
        }
        match self.finish.as_str() {
            "error" => Err(self.in_stream(&Value::String("unknown error".to_owned()), None)),
            "network_error" | "insufficient_system_resource" => {
                Err(self.in_stream(&Value::String(self.finish.clone()), Some(503)))
            }
            _ => Ok(()),
        }
    }

    fn call(&mut self, call: &CallDelta<'_>, batch: &mut Batch) -> Result<(), LlmError> {
        let position = self.resolve(call);
        if position >= MOST_CALLS {
            return Err(self.malformed("more than 128 tool calls in one answer"));
        }
        if position == self.slots.len() {
            self.slots.push(Slot::default());
        }
        let slot = &mut self.slots[position];
        if slot.index.is_none() {
            slot.index = call.index.as_ref().and_then(Value::as_u64);
        }
        if slot.id.is_empty() {
            call.id.text.as_ref().clone_into(&mut slot.id);
        }
        let name = call.function.name.text.trim();
        // A name may be repeated, or grow: a longer one with the same beginning replaces it.
        if !name.is_empty()
            && slot.arguments.is_empty()
            && name.len() > slot.name.len()
            && name.starts_with(slot.name.as_str())
        {
            name.clone_into(&mut slot.name);
            batch.deltas.push(Delta::CallNamed { slot: position, name: name.to_owned() });
        }
        let arguments = call.function.arguments();
        if arguments.is_empty() || arguments == "null" {
            return Ok(());
        }
        let all = &mut slot.arguments;
        if arguments.len() > all.len() && !all.is_empty() && arguments.starts_with(all.as_str()) {
            // The server repeats what it has sent and adds to it.
            let new = arguments[all.len()..].to_owned();
            all.push_str(&new);
            batch.arguments(position, &new);
        } else if all.is_empty() || !call.function.is_object() {
            all.push_str(&arguments);
            batch.arguments(position, &arguments);
        }
        Ok(())
    }

    /// Which slot a delta belongs to. The index alone cannot tell: some servers leave it out,
    /// some send 0 for every call, some change it between the name and the arguments.
    fn resolve(&self, call: &CallDelta<'_>) -> usize {
        let id = call.id.text.as_ref();
        let name = call.function.name.text.trim();
        let index = call.index.as_ref().and_then(Value::as_u64);
        let by_index = index.and_then(|it| self.slots.iter().rposition(|s| s.index == Some(it)));
        if let Some(position) = by_index {
            let slot = &self.slots[position];
            let other_call = !id.is_empty() && !slot.id.is_empty() && id != slot.id;
            let next_call = !name.is_empty() && id.is_empty() && is_object(&slot.arguments);
            if !other_call && !next_call {
                return position;
            }
        }
        if !id.is_empty() {
            let known = self.slots.iter().rposition(|it| it.id == id);
            // A name under a new index, after complete arguments, begins another call: some
            // servers give all calls the same id.
            let begins = |slot: &Slot| {
                !name.is_empty()
                    && index.is_some()
                    && by_index.is_none()
                    && is_object(&slot.arguments)
            };
            return known.filter(|it| !begins(&self.slots[*it])).unwrap_or(self.slots.len());
        }
        let last = self.slots.len().checked_sub(1);
        match last {
            None => 0,
            // Arguments under an index nobody has named yet belong to the call that waits for
            // some, if there is just one.
            Some(last) if name.is_empty() => {
                let mut waiting =
                    self.slots.iter().enumerate().filter(|(_, it)| it.arguments.is_empty());
                match (index.is_some() && by_index.is_none(), waiting.next(), waiting.next()) {
                    (true, Some((only, _)), None) => only,
                    _ => last,
                }
            }
            Some(last) if self.slots[last].arguments.is_empty() && index.is_none() => {
                // A name that grows, or one that comes after the id.
                let known = &self.slots[last].name;
                if known.is_empty() || name.starts_with(known.as_str()) && name != known {
                    last
                } else {
                    self.slots.len()
                }
            }
            Some(_) => self.slots.len(),
        }
    }

    /// The end of the answer.
    pub(super) fn finish(&mut self) -> Result<Reply, LlmError> {
        if !self.is_complete() {
            return Err(LlmError::Truncated { host: self.host.clone() });
        }
        let end = self.end();
        if !self.has_text && self.slots.is_empty() && end == End::Complete {
            return Err(LlmError::Empty { host: self.host.clone() });
        }
        let cut = end == End::Length;
        let calls = std::mem::take(&mut self.slots)
            .into_iter()
            .enumerate()
            .map(|(position, slot)| ReplyCall {
                slot: position,
                provider_id: slot.id,
                name: slot.name,
                arguments: understand(slot.arguments, cut),
            })
            .collect();
        Ok(Reply { end, calls, usage: self.usage })
    }

    fn end(&self) -> End {
        match self.finish.to_ascii_lowercase().as_str() {
            "length" | "max_tokens" | "model_context_window_exceeded" => End::Length,
            "content_filter" | "refusal" | "safety" | "recitation" | "sensitive" => {
                End::Refused(self.refusal.clone())
            }
            _ if !self.refusal.is_empty() && self.slots.is_empty() => {
                End::Refused(self.refusal.clone())
            }
            _ => End::Complete,
        }
    }

    fn in_stream(&self, error: &Value, status: Option<u16>) -> LlmError {
        let code = error.get("code").or_else(|| error.get("status_code"));
        let status = status.or_else(|| {
            let number = code.and_then(|it| match it {
                Value::String(text) => text.parse().ok(),
                other => other.as_u64(),
            })?;
            u16::try_from(number).ok().filter(|it| (400..600).contains(it))
        });
        LlmError::InStream {
            host: self.host.clone(),
            message: wire::error_text(&error.to_string()),
            status,
        }
    }
}

fn read_usage(value: &Value) -> Option<Usage> {
    let count = |key: &str| value.get(key).and_then(Value::as_u64);
    let input = count("prompt_tokens").or_else(|| count("input_tokens"))?;
    let output = count("completion_tokens").or_else(|| count("output_tokens")).unwrap_or(0);
    Some(Usage { input, output })
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, Value>>(text).is_ok()
}

/// Arguments that parse as they are run; the repairs below are those that cannot change what
/// the model meant. Missing quotes or braces are never completed: that would run half a command
/// or write half a file.
fn understand(text: String, cut: bool) -> Arguments {
    if cut {
        let reason = format!(
            "The arguments were cut off at the output limit after {} bytes. Nothing was \
             executed. Send less at once: write the first part with write_file, then append.",
            text.len()
        );
        return Arguments::Unusable { text, reason };
    }
    if text.trim().is_empty() {
        return Arguments::Object(Value::Object(serde_json::Map::new()));
    }
    let parsed = serde_json::from_str::<Value>(&text)
        .or_else(|error| serde_json::from_str(&escape_controls(&text)).map_err(|_| error));
    match parsed {
        Ok(value @ Value::Object(_)) => Arguments::Object(value),
        // Encoded twice.
        Ok(Value::String(inner)) if is_object(&inner) => match serde_json::from_str(&inner) {
            Ok(value) => Arguments::Object(value),
            Err(error) => not_json(text, &error),
        },
        Ok(_) => Arguments::Unusable {
            text,
            reason: "The arguments must be a JSON object. Nothing was executed.".to_owned(),
        },
        Err(error) => not_json(text, &error),
    }
}

fn not_json(text: String, error: &serde_json::Error) -> Arguments {
    let reason = format!("The arguments are not valid JSON ({error}). Nothing was executed.");
    Arguments::Unusable { text, reason }
}

/// Raw control characters inside strings, which JSON forbids and models write, as escapes.
fn escape_controls(text: &str) -> String {
    let mut result = String::with_capacity(text.len() + 16);
    let (mut inside, mut escaped) = (false, false);
    for char in text.chars() {
        match char {
            '"' if !escaped => inside = !inside,
            _ if inside && char.is_control() => {
                result.push_str(&format!("\\u{:04x}", u32::from(char)));
                escaped = false;
                continue;
            }
            _ => {}
        }
        escaped = inside && char == '\\' && !escaped;
        result.push(char);
    }
    result
}
