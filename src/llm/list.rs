//! The models that an endpoint serves, and which of them a wrong name may have meant.

use serde_json::Value;

/// No list that a person can choose from is longer.
const MOST: usize = 1000;

/// The names in the answer to `GET /models`, in each of the shapes it comes in: a list under
/// `data` or `models`, or bare; of objects with an `id`, `name` or `model`, or of names.
pub(super) fn names(body: &[u8]) -> Vec<String> {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let list = ["data", "models"].iter().find_map(|it| value.get(*it)?.as_array());
    let Some(list) = list.or(value.as_array()) else { return Vec::new() };
    let name = |it: &Value| {
        let named = ["id", "name", "model"].iter().find_map(|field| it.get(*field)?.as_str());
        // Gemini puts the collection before it and does not mind its absence.
        let name = named.or(it.as_str())?.trim();
        Some(name.strip_prefix("models/").unwrap_or(name).to_owned())
    };
    let mut names: Vec<_> = list.iter().filter_map(name).filter(|it| !it.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(MOST);
    names
}

/// Up to five of `names` that `wanted` may have meant, the nearest first.
pub fn near<'a>(wanted: &str, names: &'a [String]) -> Vec<&'a str> {
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
            assert_eq!(names(body.as_bytes()), ["a", "b"], "{body}");
        }
        assert!(names(b"<html>").is_empty());
        assert!(names(b"{}").is_empty());
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
