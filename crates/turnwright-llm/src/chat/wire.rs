//! Chunks as servers send them, as tolerant structs: every field may be absent, null, empty or of
//! an unexpected type. Nothing here interprets them.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::errors::error_body::number;
use crate::exchange::{cost_beside_usage, cost_in_usage};

/// Longer than any legitimate list. A hostile list could cost a hundred times its size in memory.
const MAX_LIST_ITEMS: usize = 1024;

/// One chunk of a stream, or a complete reply.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatChunk<'a> {
    /// The first choice. Only one is requested; further choices are ignored.
    #[serde(borrow, rename = "choices", deserialize_with = "first_item")]
    pub(super) choice: Option<Choice<'a>>,
    pub(super) usage: Option<Value>,
    #[serde(borrow)]
    pub(super) model: TolerantText<'a>,
    /// The cost, as OpenCode reports it.
    cost: Option<Value>,
    /// Holds the cost at Vercel.
    provider_metadata: Option<Value>,
    error: Option<Value>,
    /// MiniMax reports errors here, with HTTP status 200.
    base_resp: Option<Value>,
    /// Mistral marks an error object with `"object": "error"`.
    #[serde(borrow)]
    object: TolerantText<'a>,
}

impl ChatChunk<'_> {
    /// The cost of the reply, if the server reports it.
    pub(super) fn cost(&self) -> Option<f64> {
        let in_usage = self.usage.as_ref().and_then(cost_in_usage);
        in_usage.or_else(|| cost_beside_usage(self.cost.as_ref(), self.provider_metadata.as_ref()))
    }

    /// True if the chunk reports an error in any of the known places.
    pub(super) fn is_failure(&self) -> bool {
        let code = self.base_resp.as_ref().and_then(|report| number(report.get("status_code")?));
        let of_choice = self.choice.as_ref().and_then(|choice| choice.error.as_ref());
        self.error.iter().chain(of_choice).any(holds_error)
            || code.is_some_and(|code| code != 0)
            || self.object.text == "error"
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    #[serde(borrow, deserialize_with = "object_or_none")]
    pub(super) delta: Option<ChoiceDelta<'a>>,
    /// Used instead of `delta` by servers that do not stream.
    #[serde(borrow, deserialize_with = "object_or_none")]
    pub(super) message: Option<ChoiceDelta<'a>>,
    #[serde(borrow)]
    finish_reason: TolerantText<'a>,
    /// Gemini's native spelling, which older versions of its compatibility layer pass through.
    #[serde(borrow, rename = "finishReason")]
    finish_reason_camel: TolerantText<'a>,
    /// The provider's own word at OpenRouter.
    #[serde(borrow)]
    native_finish_reason: TolerantText<'a>,
    error: Option<Value>,
    /// Azure reports the results of its content filter here.
    #[serde(rename = "content_filter_results")]
    pub(super) filter: Option<Value>,
    /// Moonshot reports token counts here.
    pub(super) usage: Option<Value>,
}

impl Choice<'_> {
    /// The finish reason, empty while the reply is incomplete.
    pub(super) fn finish(&self) -> &str {
        match (self.finish_reason.text.trim(), self.native_finish_reason.text.trim()) {
            ("" | "null", _) => self.finish_reason_camel.text.trim(),
            // OpenRouter itself says `error` or `stop`.
            (_, native @ ("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL")) => native,
            (reason, _) => reason,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChoiceDelta<'a> {
    #[serde(borrow)]
    pub(super) content: TolerantText<'a>,
    #[serde(borrow)]
    reasoning_content: TolerantText<'a>,
    #[serde(borrow)]
    reasoning: TolerantText<'a>,
    #[serde(borrow)]
    reasoning_text: TolerantText<'a>,
    #[serde(borrow)]
    thinking: TolerantText<'a>,
    #[serde(borrow)]
    reasoning_details: Option<&'a RawValue>,
    /// Anthropic's blocks, as LiteLLM passes them on.
    #[serde(borrow)]
    thinking_blocks: Option<&'a RawValue>,
    /// The signature of Copilot.
    #[serde(borrow)]
    reasoning_opaque: TolerantText<'a>,
    #[serde(borrow)]
    pub(super) refusal: TolerantText<'a>,
    #[serde(borrow, deserialize_with = "bounded_list")]
    pub(super) tool_calls: Vec<CallDelta<'a>>,
    /// The single call of the API before `tool_calls`.
    #[serde(borrow, deserialize_with = "object_or_default")]
    pub(super) function_call: FunctionDelta<'a>,
}

impl ChoiceDelta<'_> {
    /// The reasoning and the name of its field. Some servers send it under two names. The name is
    /// empty if the reasoning came inside the content.
    pub(super) fn thought(&self) -> (&'static str, &str) {
        [
            ("reasoning_content", &self.reasoning_content),
            ("reasoning", &self.reasoning),
            ("reasoning_text", &self.reasoning_text),
            ("thinking", &self.thinking),
        ]
        .into_iter()
        .map(|(name, text_parts)| (name, text_parts.text.as_ref()))
        .find(|(_, text)| !text.is_empty())
        .unwrap_or(("", &self.content.thought))
    }

    /// The signed or encrypted reasoning pieces: objects, and Copilot's signature as text.
    pub(super) fn detail_pieces(&self) -> Vec<Value> {
        let lists = self.reasoning_details.into_iter().chain(self.thinking_blocks);
        let pieces = lists.filter_map(|raw| serde_json::from_str::<Vec<Value>>(raw.get()).ok());
        let opaque: &str = &self.reasoning_opaque.text;
        let signature = (!opaque.is_empty()).then(|| Value::from(opaque));
        pieces.flatten().filter(Value::is_object).chain(signature).collect()
    }
}

/// The fields of a call that are sent back to their origin.
pub(super) const SIGNED_FIELDS: [&str; 3] =
    ["extra_content", "thought_signature", "provider_specific_fields"];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallDelta<'a> {
    index: Option<Value>,
    #[serde(borrow)]
    pub(super) id: TolerantText<'a>,
    #[serde(borrow, deserialize_with = "object_or_default")]
    pub(super) function: FunctionDelta<'a>,
    /// Holds Gemini's signature, which its compatibility layer requires back unchanged.
    extra_content: Option<Value>,
    /// The signature, as some gateways pass it on.
    thought_signature: Option<Value>,
    /// Holds the signature at LiteLLM.
    provider_specific_fields: Option<Value>,
}

impl CallDelta<'_> {
    /// An absent index is not 0: parallel calls would be merged.
    pub(super) fn index(&self) -> Option<u64> {
        self.index.as_ref().and_then(number)
    }

    /// The fields that the provider requires back with the call.
    pub(super) fn signed_fields(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        let specific = self.provider_specific_fields.as_ref();
        let values = [
            self.extra_content.as_ref(),
            self.thought_signature.as_ref(),
            specific.filter(|fields| fields.get(SIGNED_FIELDS[1]).is_some()),
        ];
        SIGNED_FIELDS.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?)))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionDelta<'a> {
    #[serde(borrow)]
    name: TolerantText<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl FunctionDelta<'_> {
    pub(super) fn name(&self) -> &str {
        // Servers leave marks in the name, as in `exec<|channel|>commentary` of gpt-oss and `plan</arg_value>` of GLM.
        self.name.text.split('<').next().unwrap_or_default().trim()
    }

    /// The arguments as text. They should be a string, but some servers send the object itself.
    pub(super) fn arguments(&self) -> Cow<'_, str> {
        self.arguments.map(raw_arguments_text).unwrap_or_default()
    }
}

/// The arguments as text, even if they are not a JSON string.
pub(crate) fn raw_arguments_text(raw: &RawValue) -> Cow<'_, str> {
    let raw = raw.get();
    if !raw.starts_with('"') {
        return Cow::Borrowed(raw);
    }
    serde_json::from_str::<TolerantText<'_>>(raw).unwrap_or_default().text
}

/// True if an error field holds an error: some servers send an empty one with each chunk.
pub(crate) fn holds_error(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Deserialises the first item of a list or null and ignores the others.
fn first_item<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let items = Option::<BoundedList<T, 1>>::deserialize(deserializer)?;
    Ok(items.and_then(|list| list.0.into_iter().next()))
}

/// Deserialises a list without the nulls in it, an only item without its list, or nothing.
pub(crate) fn bounded_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let items = deserializer.deserialize_any(BoundedList::<T, MAX_LIST_ITEMS>(Vec::new()))?.0;
    if items.len() < MAX_LIST_ITEMS {
        Ok(items)
    } else {
        Err(D::Error::custom("the list has too many items"))
    }
}

/// The first `MAX` items of a list.
struct BoundedList<T, const MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BoundedList(Vec::new()))
    }
}

/// Collects the items into itself.
impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedList<T, MAX> {
    type Value = BoundedList<T, MAX>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(self)
    }

    // Such as `""` for nothing.
    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, item: A) -> Result<Self::Value, A::Error> {
        self.0.push(T::deserialize(MapAccessDeserializer::new(item))?);
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Self::Value, A::Error> {
        while self.0.len() < MAX {
            let Some(item) = list.next_element::<Option<T>>()? else { return Ok(self) };
            self.0.extend(item);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self)
    }
}

/// Deserialises an object, and anything else that servers send in place of one as none.
fn object_or_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(deserializer.deserialize_any(TolerantObject::<T>(None))?.0)
}

fn object_or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(object_or_none(deserializer)?.unwrap_or_default())
}

/// Collects the object into itself.
struct TolerantObject<T>(Option<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TolerantObject<T> {
    type Value = TolerantObject<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(self)
    }

    // PHP writes an empty object as `[]`.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        Ok(TolerantObject(Some(T::deserialize(MapAccessDeserializer::new(object))?)))
    }
}

/// Text in any of the forms that servers use: a string, null, or a list of text and thinking parts.
/// Anything else counts as no text. Borrowed where possible.
#[derive(Debug, Default)]
pub(crate) struct TolerantText<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(super) thought: String,
}

impl<'de: 'a, 'a> Deserialize<'de> for TolerantText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TolerantText::default())
    }
}

/// Collects the text into itself.
impl<'de> Visitor<'de> for TolerantText<'de> {
    type Value = TolerantText<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(TolerantText { text: Cow::Borrowed(text), ..self })
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TolerantText { text: Cow::Owned(text.to_owned()), ..self })
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(TolerantText { text: Cow::Owned(number.to_string()), ..self })
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(TolerantText { text: Cow::Owned(number.to_string()), ..self })
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut parts: A) -> Result<Self::Value, A::Error> {
        while let Some(part) = parts.next_element::<Value>()? {
            collect_text(&part, false, &mut self);
        }
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, part: A) -> Result<Self::Value, A::Error> {
        let part = Value::deserialize(MapAccessDeserializer::new(part))?;
        collect_text(&part, false, &mut self);
        Ok(self)
    }
}

fn collect_text(part: &Value, thinking: bool, collected: &mut TolerantText<'_>) {
    match part {
        Value::String(text) if thinking => collected.thought.push_str(text),
        Value::String(text) => collected.text.to_mut().push_str(text),
        Value::Array(parts) => {
            for inner in parts {
                collect_text(inner, thinking, collected);
            }
        }
        Value::Object(fields) => {
            let thinking = thinking
                || fields.get("type").is_some_and(|kind| kind == "thinking" || kind == "reasoning");
            for key in ["text", "thinking", "summary"] {
                if let Some(inner) = fields.get(key) {
                    collect_text(inner, thinking, collected);
                }
            }
        }
        _ => {}
    }
}

/// Takes an error out of the list in which Gemini wraps it. Nothing else starts with `[`, and this is the hot path.
pub(crate) fn without_list(json: &str) -> &str {
    let list = json.starts_with('[').then(|| serde_json::from_str::<[&RawValue; 1]>(json));
    match list {
        Some(Ok([only])) => only.get(),
        _ => json,
    }
}
