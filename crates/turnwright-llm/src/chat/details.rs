//! `reasoning_details`: reasoning in signed or encrypted pieces, which OpenRouter and MiniMax
//! stream in fragments and want to have back whole (quirk C.3 #4).

use serde_json::Value;

use crate::bulk;

/// The fields that grow from fragment to fragment.
const GROWING: [&str; 2] = ["text", "summary"];

/// Adds fragments to what is there: text that goes on is joined, everything else stands for
/// itself. Returns about how many bytes are kept now that were not before.
pub(super) fn merge(all: &mut Vec<Value>, fragments: Vec<Value>) -> usize {
    let mut new = 0;
    for fragment in fragments {
        match all.last_mut() {
            Some(last) if continues(last, &fragment) => new += join(last, fragment),
            _ => {
                new += bulk::weight(&fragment);
                all.push(fragment);
            }
        }
    }
    new
}

/// The words in them, for people.
pub(super) fn words(fragments: &[Value]) -> String {
    let word =
        |it: &Value| GROWING.iter().find_map(|field| it.get(*field)?.as_str().map(str::to_owned));
    fragments.iter().filter_map(word).collect()
}

fn continues(last: &Value, next: &Value) -> bool {
    let same = |field: &str| {
        let (one, other) = (last.get(field), next.get(field));
        one == other || other.is_none_or(Value::is_null)
    };
    let is_set = |field: &str| next.get(field).is_some_and(Value::is_string);
    let grows = GROWING.into_iter().chain(["signature"]).any(is_set);
    grows && next.is_object() && same("type") && same("index") && same("format")
        // A signature ends its piece.
        && last.get("signature").is_none_or(Value::is_null)
}

fn join(last: &mut Value, next: Value) -> usize {
    let (Value::Object(last), Value::Object(next)) = (last, next) else { return 0 };
    let mut new = 0;
    for (field, value) in next {
        match (last.get_mut(&field), value) {
            (Some(Value::String(text)), Value::String(more)) if GROWING.contains(&&*field) => {
                new += more.len();
                text.push_str(&more);
            }
            (Some(Value::Null) | None, value) => {
                new += bulk::weight(&value) + field.len();
                last.insert(field, value);
            }
            (Some(_), _) => {}
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_joined_and_what_is_encrypted_stands_alone() {
        let mut all = Vec::new();
        let text = |text: &str| json!({ "type": "reasoning.text", "text": text, "index": 0 });
        merge(&mut all, vec![text("a")]);
        merge(&mut all, vec![text("b")]);
        merge(
            &mut all,
            vec![json!({ "type": "reasoning.text", "text": "", "signature": "s", "index": 0 })],
        );
        merge(&mut all, vec![text("c")]);
        let secret = json!({ "type": "reasoning.encrypted", "data": "x", "id": "1" });
        merge(&mut all, vec![secret.clone()]);
        merge(&mut all, vec![secret.clone()]);
        let signed =
            json!({ "type": "reasoning.text", "text": "ab", "index": 0, "signature": "s" });
        assert_eq!(all, [signed, text("c"), secret.clone(), secret]);
        assert_eq!(words(&all), "abc");
    }
}
