//! The shapes that servers send, as tolerant structs: every field may be absent, null, empty or
//! of an odd type. Nothing here decides what they mean.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::failure::number;

/// No list of a sane answer is longer; a hostile one would cost a hundred times its size.
const LONGEST_LIST: usize = 1024;

/// One chunk of a stream, or a whole answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Chunk<'a> {
    /// The first choice. We ask for one; the others of a server that sends more are skipped.
    #[serde(borrow, default, rename = "choices", deserialize_with = "first")]
    pub(super) choice: Option<Choice<'a>>,
    #[serde(default)]
    pub(super) usage: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
    /// MiniMax reports its errors here, with HTTP 200.
    #[serde(default)]
    base_resp: Option<Value>,
    /// Mistral marks an error object so.
    #[serde(borrow, default)]
    object: Words<'a>,
}

impl Chunk<'_> {
    /// Whether it reports a failure, in any of the places where one can stand.
    pub(super) fn is_failure(&self) -> bool {
        let code = self.base_resp.as_ref().and_then(|it| it.get("status_code")).and_then(number);
        self.error.as_ref().is_some_and(says_something)
            || self.choice.as_ref().and_then(|it| it.error.as_ref()).is_some_and(says_something)
            || code.is_some_and(|it| it != 0)
            || self.object.text == "error"
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow, default)]
    pub(super) delta: Option<Delta<'a>>,
    /// Instead of `delta` when the server does not stream.
    #[serde(borrow, default)]
    pub(super) message: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Words<'a>,
    /// Gemini's own spelling, which its older builds let through.
    #[serde(borrow, default, rename = "finishReason")]
    finish_reason_camel: Words<'a>,
    #[serde(default)]
    error: Option<Value>,
    /// Azure says here what its filter has found.
    #[serde(default, rename = "content_filter_results")]
    pub(super) filter: Option<Value>,
    /// Moonshot counts here.
    #[serde(default)]
    pub(super) usage: Option<Value>,
}

impl Choice<'_> {
    /// Why the answer ended, empty while it has not.
    pub(super) fn finish(&self) -> &str {
        match self.finish_reason.text.trim() {
            "" | "null" => self.finish_reason_camel.text.trim(),
            reason => reason,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow, default)]
    pub(super) content: Words<'a>,
    #[serde(borrow, default)]
    reasoning_content: Words<'a>,
    #[serde(borrow, default)]
    reasoning: Words<'a>,
    #[serde(borrow, default)]
    reasoning_text: Words<'a>,
    #[serde(borrow, default)]
    thinking: Words<'a>,
    #[serde(borrow, default)]
    reasoning_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) refusal: Words<'a>,
    #[serde(borrow, default, deserialize_with = "list")]
    pub(super) tool_calls: Vec<CallDelta<'a>>,
    /// The one call that a server from before `tool_calls` can make.
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) function_call: FunctionDelta<'a>,
}

impl Delta<'_> {
    /// The reasoning and the name of its field; some servers send it under two. The name is empty
    /// where it comes within the content.
    pub(super) fn thought(&self) -> (&'static str, &str) {
        [
            ("reasoning_content", &self.reasoning_content),
            ("reasoning", &self.reasoning),
            ("reasoning_text", &self.reasoning_text),
            ("thinking", &self.thinking),
        ]
        .into_iter()
        .map(|(name, words)| (name, words.text.as_ref()))
        .find(|(_, text)| !text.is_empty())
        .unwrap_or(("", &self.content.thought))
    }

    /// The signed or encrypted pieces of the reasoning.
    pub(super) fn details(&self) -> Vec<Value> {
        let raw = self.reasoning_details.map(RawValue::get);
        match raw.and_then(|it| serde_json::from_str(it).ok()) {
            Some(Value::Array(pieces)) => pieces.into_iter().filter(Value::is_object).collect(),
            _ => Vec::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct CallDelta<'a> {
    #[serde(default)]
    index: Option<Value>,
    #[serde(borrow, default)]
    pub(super) id: Words<'a>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) function: FunctionDelta<'a>,
    /// Gemini's signature; its compatibility layer wants it back where it stood.
    #[serde(default)]
    pub(super) extra_content: Option<Value>,
}

impl CallDelta<'_> {
    /// Absent is not 0: parallel calls would be merged.
    pub(super) fn index(&self) -> Option<u64> {
        self.index.as_ref().and_then(number)
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct FunctionDelta<'a> {
    #[serde(borrow, default)]
    name: Words<'a>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl FunctionDelta<'_> {
    pub(super) fn name(&self) -> &str {
        self.name.text.trim()
    }

    /// The arguments as text. They should be a string; some servers send the object itself.
    pub(super) fn arguments(&self) -> Cow<'_, str> {
        self.arguments.map(arguments_text).unwrap_or_default()
    }
}

/// Arguments as text, also where they are no string.
pub(in crate) fn arguments_text(raw: &RawValue) -> Cow<'_, str> {
    let raw = raw.get();
    if !raw.starts_with('"') {
        return Cow::Borrowed(raw);
    }
    match serde_json::from_str::<Words<'_>>(raw) {
        Ok(words) => words.text,
        // A raw value is checked for its end only, so half a surrogate pair shows up here.
        Err(_) => Cow::Owned(serde_json::from_str(&mend_surrogates(raw)).unwrap_or_default()),
    }
}

/// Whether an error field holds an error: some servers send it empty with each chunk.
pub(in crate) fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// `\ud83d` and the like without their other half, which no string of ours can hold, as
/// `\ufffd`. Cut pairs come from servers that count in UTF-16 (quirk C.4 #24).
pub(in crate) fn mend_surrogates(json: &str) -> String {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut result = String::with_capacity(json.len());
    let mut rest = 0;
    while let Some(at) = json[rest..].find('\\').map(|it| rest + it) {
        result.push_str(&json[rest..at]);
        let length = match (unit(at), unit(at + 6)) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => 12,
            (Some(0xD800..0xE000), _) => {
                result.push_str("\\ufffd");
                rest = at + 6;
                continue;
            }
            (Some(_), _) => 6,
            // An escape of one character, perhaps `\\\\`: what follows it begins anew.
            (None, _) => 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
        result.push_str(&json[at..at + length]);
        rest = at + length;
    }
    result.push_str(&json[rest..]);
    result
}

/// The first item of a list or null; the others are not looked at.
fn first<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let items = Option::<Items<T, 1>>::deserialize(deserializer)?;
    Ok(items.and_then(|it| it.0.into_iter().next()))
}

/// A list or null, without the nulls in it.
pub(in crate) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let items = Option::<Items<T, LONGEST_LIST>>::deserialize(deserializer)?;
    let items = items.map(|it| it.0).unwrap_or_default();
    if items.len() < LONGEST_LIST { Ok(items) } else { Err(D::Error::custom("an endless list")) }
}

/// The first items of a list.
struct Items<T, const MOST: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Items<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemsVisitor(PhantomData))
    }
}

struct ItemsVisitor<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for ItemsVisitor<T, MOST> {
    type Value = Items<T, MOST>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < MOST {
            let Some(item) = list.next_element::<Option<T>>()? else { return Ok(Items(items)) };
            items.extend(item);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Items(items))
    }
}

/// Accepts null for the default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Text in any of the forms it comes in: a string, null, or a list of parts of which some are
/// text and some are thinking. Anything else counts as no text. Borrowed where possible.
#[derive(Debug, Default)]
pub(in crate) struct Words<'a> {
    pub(in crate) text: Cow<'a, str>,
    pub(super) thought: String,
}

impl<'de: 'a, 'a> Deserialize<'de> for Words<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordsVisitor)
    }
}

struct WordsVisitor;

impl<'de> Visitor<'de> for WordsVisitor {
    type Value = Words<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Words { text: Cow::Borrowed(text), thought: String::new() })
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Words { text: Cow::Owned(text.to_owned()), thought: String::new() })
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Words::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Words::default())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Words { text: Cow::Owned(number.to_string()), thought: String::new() })
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Words { text: Cow::Owned(number.to_string()), thought: String::new() })
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Words::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut words = Words::default();
        while let Some(part) = parts.next_element::<Value>()? {
            collect(&part, false, &mut words);
        }
        Ok(words)
    }

    fn visit_map<A: MapAccess<'de>>(self, part: A) -> Result<Self::Value, A::Error> {
        let part = Value::deserialize(MapAccessDeserializer::new(part))?;
        let mut words = Words::default();
        collect(&part, false, &mut words);
        Ok(words)
    }
}

fn collect(part: &Value, thinking: bool, words: &mut Words<'_>) {
    match part {
        Value::String(text) if thinking => words.thought.push_str(text),
        Value::String(text) => words.text.to_mut().push_str(text),
        Value::Array(parts) => parts.iter().for_each(|it| collect(it, thinking, words)),
        Value::Object(fields) => {
            let thinking = thinking || fields.get("type").is_some_and(|it| it == "thinking");
            for key in ["text", "thinking", "summary"] {
                if let Some(inner) = fields.get(key) {
                    collect(inner, thinking, words);
                }
            }
        }
        _ => {}
    }
}
