//! The scenario: parses JSON into steps, and selects the next reply. The whole scenario is validated here,
//! so that playing it cannot fail because of an invalid step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::http;

/// The replies of the server, and the position of the next one.
#[derive(Clone, Debug)]
pub struct Scenario {
    plain: Vec<Arc<[Step]>>,
    /// Replies to requests whose last prompt contains a word, and whether each was given.
    conditional: Vec<(String, Arc<[Step]>, bool)>,
    starts_over: bool,
    next: usize,
}

impl Scenario {
    pub fn parse(text: &str) -> Result<Scenario, String> {
        Scenario::from_value(serde_json::from_str(text).map_err(|error| error.to_string())?)
    }

    pub fn from_value(value: Value) -> Result<Scenario, String> {
        let mut fields = Fields::of(value)?;
        let replies: Vec<Value> = fields.need("replies")?;
        let starts_over = fields.take("loop")?.unwrap_or(false);
        fields.end()?;
        let mut scenario =
            Scenario { plain: Vec::new(), conditional: Vec::new(), starts_over, next: 0 };
        for (index, reply) in replies.into_iter().enumerate() {
            scenario.add(reply).map_err(|problem| format!("reply {}: {problem}", index + 1))?;
        }
        Ok(scenario)
    }

    pub(super) fn add(&mut self, reply: Value) -> Result<(), String> {
        if let Value::Array(steps) = reply {
            self.plain.push(parse_steps(steps)?);
        } else {
            let mut fields = Fields::of(reply)?;
            let steps = parse_steps(fields.need("steps")?)?;
            self.conditional.push((fields.need("when")?, steps, false));
            fields.end()?;
        }
        Ok(())
    }

    pub(super) fn choose(&mut self, request: &Value) -> Arc<[Step]> {
        let prompt_text = last_user_text(request);
        // Several replies to the same word are given one after the other, the last again and again.
        let fits = |it: &&mut (String, _, bool)| prompt_text.contains(&it.0);
        let mut fitting: Vec<_> = self.conditional.iter_mut().filter(fits).collect();
        let next = fitting.iter().position(|it| !it.2).or(fitting.len().checked_sub(1));
        if let Some((_, steps, is_given)) = next.map(|it| &mut *fitting[it]) {
            *is_given = true;
            return Arc::clone(steps);
        }
        if self.starts_over && self.next == self.plain.len() {
            self.next = 0;
        }
        if let Some(steps) = self.plain.get(self.next) {
            self.next += 1;
            return Arc::clone(steps);
        }
        let parts = vec!["The scenario is over.".to_owned()];
        Arc::new([Step::Deltas { key: "content", parts, repeat: 1, every: Duration::ZERO }])
    }
}

/// The text of the last message of the user in the body of a request. A message that only tells the new date
/// is left out, so that a turn over midnight gets the same replies.
pub fn last_user_text(request: &Value) -> String {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let is_new_date = |it: &Value| {
        it.as_str().is_some_and(|text| text.trim_start().starts_with("<context>\nDate: "))
    };
    let mut prompts = messages.iter().filter(|it| it["role"] == "user").map(|it| &it["content"]);
    let content = prompts.rfind(|it| !is_new_date(it));
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|it| it["text"].as_str()).collect(),
        _ => String::new(),
    }
}

#[derive(Debug)]
pub(super) enum Step {
    StallHeaders(Duration),
    Refuse,
    /// The complete response, head and body.
    Answer(Vec<u8>),
    Deltas {
        key: &'static str,
        parts: Vec<String>,
        repeat: usize,
        every: Duration,
    },
    Call(Call),
    Delay(Duration),
    Finish(String),
    Usage(Value),
    Data(Value),
    Raw(String),
    Done(bool),
    EndOfBody,
    Cut,
    Hang,
    Hold,
}

impl Step {
    pub(super) fn is_before_head(&self) -> bool {
        matches!(self, Step::StallHeaders(_) | Step::Refuse | Step::Answer(_))
    }

    fn is_last(&self) -> bool {
        matches!(self, Step::Refuse | Step::Answer(_) | Step::EndOfBody | Step::Cut | Step::Hang)
    }
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    pub(super) id: Option<String>,
    /// `None` selects the next number, and null omits the index.
    pub(super) index: Option<Value>,
    pub(super) every: Duration,
}

fn parse_steps(values: Vec<Value>) -> Result<Arc<[Step]>, String> {
    let mut steps: Vec<Step> = Vec::new();
    for value in values {
        let number = steps.len() + 1;
        let step = parse_step(value).map_err(|problem| format!("step {number}: {problem}"))?;
        if steps.last().is_some_and(Step::is_last) {
            return Err(format!("step {number}: nothing can follow the step before"));
        }
        let is_too_late = |before: &Step| !matches!(before, Step::StallHeaders(_));
        if step.is_before_head() && steps.last().is_some_and(is_too_late) {
            return Err(format!("step {number}: can only be the first"));
        }
        steps.push(step);
    }
    Ok(steps.into())
}

fn parse_step(value: Value) -> Result<Step, String> {
    const OPTIONS: [&str; 6] = ["chunks", "repeat", "every_ms", "headers", "body", "content_type"];
    let mut fields = Fields::of(value)?;
    let kind = fields.0.keys().find(|key| !OPTIONS.contains(&key.as_str()));
    let kind = kind.cloned().ok_or("a step without its main key")?;
    let step = match kind.as_str() {
        "text" => parse_deltas("content", &kind, &mut fields)?,
        "thought" => parse_deltas("reasoning_content", &kind, &mut fields)?,
        "call" => Step::Call(parse_call(fields.need("call")?)?),
        "delay_ms" => Step::Delay(Duration::from_millis(fields.need("delay_ms")?)),
        "finish" => Step::Finish(fields.need("finish")?),
        "usage" => Step::Usage(fields.need("usage")?),
        "data" => Step::Data(fields.need("data")?),
        "error" => Step::Data(json!({ "error": fields.need::<Value>("error")? })),
        "raw" => Step::Raw(fields.need("raw")?),
        "status" => parse_answer(&mut fields)?,
        "done" => Step::Done(fields.need("done")?),
        "end" => fields.constant("end", &json!("eof"), Step::EndOfBody)?,
        "cut" => fields.constant("cut", &json!(true), Step::Cut)?,
        "hang" => fields.constant("hang", &json!(true), Step::Hang)?,
        "hold" => fields.constant("hold", &json!(true), Step::Hold)?,
        "refuse" => fields.constant("refuse", &json!(true), Step::Refuse)?,
        "stall_headers_ms" => Step::StallHeaders(Duration::from_millis(fields.need(&kind)?)),
        _ => return Err(format!("there is no step {kind:?}")),
    };
    fields.end()?;
    Ok(step)
}

fn parse_deltas(key: &'static str, kind: &str, fields: &mut Fields) -> Result<Step, String> {
    let text: String = fields.need(kind)?;
    let parts = split(&text, fields.take("chunks")?.unwrap_or(1));
    let repeat = fields.take("repeat")?.unwrap_or(1);
    Ok(Step::Deltas { key, parts, repeat, every: fields.take_pause()? })
}

fn parse_call(value: Value) -> Result<Call, String> {
    let mut fields = Fields::of(value)?;
    let arguments = match fields.take("arguments")? {
        Some(Value::String(text)) => text,
        Some(arguments) => arguments.to_string(),
        None => "{}".to_owned(),
    };
    let call = Call {
        name: fields.need("name")?,
        arguments: split(&arguments, fields.take("pieces")?.unwrap_or(1)),
        id: fields.take("id")?,
        index: fields.0.remove("index"),
        every: fields.take_pause()?,
    };
    fields.end()?;
    Ok(call)
}

fn parse_answer(fields: &mut Fields) -> Result<Step, String> {
    let status: u16 = fields.need("status")?;
    if !(200..600).contains(&status) {
        return Err(format!("{status} is not the status of a final response"));
    }
    let (default_type, body) = match fields.take("body")? {
        None => ("text/plain", String::new()),
        Some(Value::String(text)) => ("text/plain; charset=utf-8", text),
        Some(json) => ("application/json", json.to_string()),
    };
    let content_type = fields.take("content_type")?.unwrap_or_else(|| default_type.to_owned());
    let headers: BTreeMap<String, String> = fields.take("headers")?.unwrap_or_default();
    Ok(Step::Answer(http::answer(status, &content_type, &headers, &body)))
}

/// Splits a text between characters into at most `parts` parts.
fn split(text: &str, parts: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let length = characters.len();
    let parts = parts.clamp(1, length.max(1));
    let part = |index| characters[index * length / parts..(index + 1) * length / parts].iter();
    (0..parts).map(|index| part(index).collect()).collect()
}

/// An object of which every key must be taken, so that a misspelled key is an error.
struct Fields(Map<String, Value>);

impl Fields {
    fn of(value: Value) -> Result<Fields, String> {
        match value {
            Value::Object(map) => Ok(Fields(map)),
            other => Err(format!("wanted an object, not {other}")),
        }
    }

    fn take<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>, String> {
        let parse = |value| serde_json::from_value(value).map_err(|it| format!("{key:?}: {it}"));
        self.0.remove(key).map(parse).transpose()
    }

    fn need<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, String> {
        self.take(key)?.ok_or_else(|| format!("{key:?} is missing"))
    }

    fn take_pause(&mut self) -> Result<Duration, String> {
        Ok(Duration::from_millis(self.take("every_ms")?.unwrap_or(0)))
    }

    fn constant(&mut self, key: &str, wanted: &Value, step: Step) -> Result<Step, String> {
        let given: Value = self.need(key)?;
        if given == *wanted { Ok(step) } else { Err(format!("{key:?} can only be {wanted}")) }
    }

    fn end(self) -> Result<(), String> {
        match self.0.keys().next() {
            Some(key) => Err(format!("{key:?} does not belong here")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_date_in_the_middle_of_a_turn_is_no_prompt() {
        let date = "\n\n<context>\nDate: Tue, 01 Dec 2026\n</context>";
        let users = ["the task", date].map(|text| json!({ "role": "user", "content": text }));
        assert_eq!(last_user_text(&json!({ "messages": users })), "the task");
    }
}
