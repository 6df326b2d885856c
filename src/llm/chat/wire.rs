//! The shapes that servers send, as tolerant structs: every field may be absent, null, empty or
//! odd (`docs`: the ten rules of provider tolerance). Nothing here decides what they mean.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// One chunk of a stream, or a whole answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) choices: Vec<Choice<'a>>,
    #[serde(default)]
    pub(super) usage: Option<Value>,
    #[serde(default)]
    pub(super) error: Option<Value>,
    /// MiniMax reports its errors here, with HTTP 200.
    #[serde(default)]
    pub(super) base_resp: Option<Value>,
    /// Mistral marks an error object so.
    #[serde(borrow, default)]
    pub(super) object: Words<'a>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) delta: Delta<'a>,
    /// Instead of `delta` when the server does not stream.
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) message: Delta<'a>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Words<'a>,
    #[serde(default)]
    pub(super) error: Option<Value>,
    /// Moonshot counts here.
    #[serde(default)]
    pub(super) usage: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow, default)]
    pub(super) content: Words<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: Words<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning: Words<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_text: Words<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: Words<'a>,
    #[serde(borrow, default)]
    pub(super) refusal: Words<'a>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) tool_calls: Vec<CallDelta<'a>>,
}

impl Delta<'_> {
    /// The reasoning under whichever name it comes; some servers send it under two.
    pub(super) fn thought(&self) -> &str {
        [&self.reasoning_content, &self.reasoning, &self.reasoning_text, &self.thinking]
            .into_iter()
            .map(|it| it.text.as_ref())
            .find(|it| !it.is_empty())
            .unwrap_or(&self.content.thought)
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct CallDelta<'a> {
    /// Absent is not 0: parallel calls would be merged.
    #[serde(default)]
    pub(super) index: Option<Value>,
    #[serde(borrow, default)]
    pub(super) id: Words<'a>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) function: FunctionDelta<'a>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct FunctionDelta<'a> {
    #[serde(borrow, default)]
    pub(super) name: Words<'a>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl FunctionDelta<'_> {
    /// The arguments as text. They should be a string; some servers send the object itself.
    pub(super) fn arguments(&self) -> Cow<'_, str> {
        let Some(raw) = self.arguments else { return Cow::Borrowed("") };
        if raw.get().starts_with('"') {
            serde_json::from_str::<Words<'_>>(raw.get()).map(|it| it.text).unwrap_or_default()
        } else {
            Cow::Borrowed(raw.get())
        }
    }

    /// Whether the arguments came whole, as an object instead of a string.
    pub(super) fn is_object(&self) -> bool {
        self.arguments.is_some_and(|it| it.get().starts_with('{'))
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
pub(super) struct Words<'a> {
    pub(super) text: Cow<'a, str>,
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

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Words::default())
    }
}

fn collect(part: &Value, thinking: bool, words: &mut Words<'_>) {
    match part {
        Value::String(text) if thinking => words.thought.push_str(text),
        Value::String(text) => words.text.to_mut().push_str(text),
        Value::Array(parts) => parts.iter().for_each(|it| collect(it, thinking, words)),
        Value::Object(fields) => {
            let thinking = thinking || fields.get("type").is_some_and(|it| it == "thinking");
            for key in ["text", "thinking"] {
                if let Some(inner) = fields.get(key) {
                    collect(inner, thinking, words);
                }
            }
        }
        _ => {}
    }
}

/// The sentence in an error's body, whatever its shape: `error.message`, `error` as a string,
/// `message`, `detail[].msg`, a list with one of these, plain text, or an HTML page.
pub(in crate::llm) fn error_text(body: &str) -> String {
    let trimmed = body.trim();
    if trimmed.starts_with('<') {
        return format!("an HTML page instead of JSON ({})", title(trimmed));
    }
    let text = serde_json::from_str::<Value>(trimmed)
        .ok()
        .and_then(|it| find_message(&it))
        .unwrap_or_else(|| trimmed.to_owned());
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(500) {
        _ if line.is_empty() => "no explanation".to_owned(),
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn title(page: &str) -> &str {
    let start = page.find("<title>").map_or(0, |it| it + "<title>".len());
    let end = page[start..].find("</title>").map_or(start, |it| start + it);
    match page[start..end].trim() {
        "" => "no title",
        title => title,
    }
}

pub(super) fn find_message(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => items.iter().find_map(find_message),
        Value::Object(fields) => ["error", "message", "detail", "msg", "status_msg", "base_resp"]
            .iter()
            .filter_map(|key| fields.get(*key))
            .find_map(find_message),
        _ => None,
    }
}
