//! The models that an endpoint serves, and which of them a wrong name may have meant.

use serde_json::Value;

/// No list that a person can choose from is longer.
const MOST: usize = 1000;
/// No name is longer; finding near ones takes the square of the length.
const LONGEST_NAME: usize = 200;

/// A model in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: String,
    /// How many tokens its window holds, if the server says so.
    pub(super) window: Option<u64>,
}

/// Where servers say how large the window is: llama.cpp, vLLM, OpenRouter and Together, Groq,
/// Mistral, LM Studio.
const WINDOWS: [&str; 6] = [
    "/meta/n_ctx",
    "/max_model_len",
    "/context_length",
    "/context_window",
    "/max_context_length",
    "/loaded_context_length",
];

/// The models in the answer to `GET /models`, in each of the shapes it comes in: a list under
/// `data` or `models`, or bare; of objects with an `id`, `name` or `model`, or of names.
pub(super) fn models(body: &[u8]) -> Vec<Listed> {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let list = ["data", "models"].iter().find_map(|it| value.get(*it)?.as_array());
    let Some(list) = list.or(value.as_array()) else { return Vec::new() };
    let read = |it: &Value| {
        let named = ["id", "name", "model"].iter().find_map(|field| it.get(*field)?.as_str());
        // Gemini puts the collection before it and does not mind its absence.
        let name = named.or(it.as_str())?.trim();
        let name = name.strip_prefix("models/").unwrap_or(name).to_owned();
        let window = WINDOWS.iter().find_map(|place| it.pointer(place)?.as_u64());
        Some(Listed { name, window: window.filter(|it| *it > 0) })
    };
    let mut models: Vec<_> = list.iter().filter_map(read).filter(|it| is_name(&it.name)).collect();
    models.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    models.dedup_by(|one, other| one.name == other.name);
    models.truncate(MOST);
    models
}

/// Whether people can read it and servers mean it.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.contains(is_hidden)
}

/// Control characters, and those that change the direction of writing.
fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Up to five of `names` that `wanted` may have meant, the nearest first.
pub fn near<'a>(wanted: &str, names: &'a [String]) -> Vec<&'a str> {
    if wanted.len() > LONGEST_NAME {
        return Vec::new();
    }
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_', '.', ':', ' '], "");
    let base = plain(wanted.rsplit('/').next().unwrap_or(wanted));
    let score = |name: &str| {
        let other = plain(name.rsplit('/').next().unwrap_or(name));
        let within = other.contains(&base) || base.contains(&other);
        // A part of it is as near as a slip of the pen.
        strsim::jaro_winkler(&base, &other) + if within && !base.is_empty() { 0.3 } else { 0.0 }
    };
    let mut scored: Vec<_> = names.iter().map(|it| (score(it), it.as_str())).collect();
    scored.retain(|(score, _)| *score > 0.75);
    scored.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
    scored.into_iter().take(5).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_each_shape() {
        for body in [
            r#"{"object":"list","data":[{"id":"b"},{"id":"a","object":"model"}]}"#,
            r#"{"models":[{"name":"models/a"},{"name":"b","model":"x"}]}"#,
            r#"[{"id":"a"},{"id":"b"},{"id":"b"},{}]"#,
            r#"{"data":["a","b"," ",null]}"#,
        ] {
            let names: Vec<_> = models(body.as_bytes()).into_iter().map(|it| it.name).collect();
            assert_eq!(names, ["a", "b"], "{body}");
        }
        assert!(models(b"<html>").is_empty());
        assert!(models(b"{}").is_empty());
    }

    #[test]
    fn windows_are_found_where_servers_tell_them() {
        for (model, expected) in [
            (r#"{"id":"a","meta":{"n_ctx":2048,"n_ctx_train":32768}}"#, Some(2048)),
            (r#"{"id":"a","max_model_len":32768}"#, Some(32768)),
            (r#"{"id":"a","context_length":131072}"#, Some(131_072)),
            (r#"{"id":"a","context_window":0}"#, None),
            (r#"{"id":"a"}"#, None),
        ] {
            let body = format!("{{\"data\":[{model}]}}");
            assert_eq!(models(body.as_bytes())[0].window, expected, "{model}");
        }
    }

    #[test]
    fn what_was_meant_comes_first() {
        let names: Vec<_> = ["gpt-4o", "gpt-4o-mini", "gpt-5-mini", "o3", "text-embedding-3"]
            .map(str::to_owned)
            .into();
        assert_eq!(near("gpt5mini", &names)[0], "gpt-5-mini");
        assert_eq!(near("openai/gpt-4-o", &names)[0], "gpt-4o");
        assert!(near("zzz", &names).is_empty());
        assert!(near("x", &[]).is_empty());
    }
}
