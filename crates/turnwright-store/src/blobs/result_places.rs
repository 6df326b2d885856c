//! Leaves the result of a call out of its card. Most cards show the result, or its beginning, and so
//! does the raw output; it is stored only once, in the call's row.

use std::collections::BTreeMap;

use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use turnwright_types::redact;
use turnwright_types::text;

/// The field of a card that says where the result belongs: the JSON pointers of strings, with the place in
/// each. Older versions of the program ignore it.
const FIELD: &str = "result_at";
/// The beginning of a pointer to a field of the raw output.
const RAW: &str = "/raw/";
/// Fewer bytes of a result are not worth an entry in that field.
const MIN_LENGTH: usize = 64;

/// Where the result belongs in a string of a card: the offset in bytes, and for a part the number of bytes
/// of the result.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum ResultPlace {
    Whole(usize),
    Part(usize, usize),
}

/// Takes the result, or as much of its beginning as they show, out of the strings of a card.
pub(crate) fn take_out(card: &mut Value, result: &str) {
    if result.len() < MIN_LENGTH {
        return;
    }
    let start = &result[..text::ceil(result, MIN_LENGTH)];
    if would_be_redacted(result) {
        return;
    }
    let finder = Finder::new(start);
    let mut places = BTreeMap::new();
    let mut take = |pointer: String, text: &mut Value| {
        let Value::String(text) = text else { return };
        let Some(at) = finder.find(text.as_bytes()) else { return };
        if would_be_redacted(text) {
            return;
        }
        let length = common_length(&text[at..], result);
        text.replace_range(at..at + length, "");
        let place = if length == result.len() {
            ResultPlace::Whole(at)
        } else {
            ResultPlace::Part(at, length)
        };
        places.insert(pointer, place);
    };
    let contents = card.get_mut("content").and_then(Value::as_array_mut);
    for (number, content) in contents.into_iter().flatten().enumerate() {
        if let Some(text) = content.get_mut("text") {
            take(format!("/content/{number}/text"), text);
        }
    }
    if let Some(raw) = card.get_mut("raw").and_then(Value::as_object_mut) {
        for (name, value) in raw.iter_mut().filter(|field| !field.0.contains(['~', '/'])) {
            take(format!("{RAW}{name}"), value);
        }
        // Leaves out fields that held nothing but the result.
        raw.retain(|name, value| value != "" || !places.contains_key(&format!("{RAW}{name}")));
    }
    if !places.is_empty() {
        card[FIELD] = json!(places);
    }
}

/// Returns true if the text contains a key. Redaction changes the length of such a text.
fn would_be_redacted(text: &str) -> bool {
    redact::bytes(text.as_bytes()).is_some()
}

/// Puts the result back into the card.
pub(crate) fn put_back(card: &mut Value, result: &str) {
    let stored = card.as_object_mut().and_then(|fields| fields.remove(FIELD)).unwrap_or_default();
    let places: BTreeMap<String, ResultPlace> = serde_json::from_value(stored).unwrap_or_default();
    for (pointer, place) in places {
        let (at, part) = match place {
            ResultPlace::Whole(at) => (at, result),
            // The result is shorter if it was lost with a damaged database.
            ResultPlace::Part(at, length) => (at, result.get(..length).unwrap_or(result)),
        };
        if let Some(Value::String(text)) = card.pointer_mut(&pointer) {
            if text.is_char_boundary(at) {
                text.insert_str(at, part);
            }
        } else if let Some(name) = pointer.strip_prefix(RAW)
            && let Some(raw) = card.get_mut("raw").and_then(Value::as_object_mut)
        {
            raw.insert(name.to_owned(), part.into());
        }
    }
}

/// Returns the length of the longest common prefix of two texts, in bytes. It ends at a character boundary.
fn common_length(one: &str, other: &str) -> usize {
    let pairs = one.bytes().zip(other.bytes());
    let length = pairs.take_while(|(one, other)| one == other).count();
    text::floor(one, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> String {
        "a line — é\n".repeat(20)
    }

    fn check(card: &Value, result: &str, expected: &Value) {
        let mut stored = card.clone();
        take_out(&mut stored, result);
        assert_eq!(&stored, expected);
        put_back(&mut stored, result);
        assert_eq!(&stored, card);
    }

    #[test]
    fn a_card_refers_to_the_result_wherever_it_shows_it() {
        let result = result();
        check(
            &json!({
                "content": [{ "text": "above" }, { "text": format!("```\n{result}```") }],
                "raw": { "files": 1, "result": result },
            }),
            &result,
            &json!({
                "content": [{ "text": "above" }, { "text": "```\n```" }],
                "raw": { "files": 1 },
                "result_at": { "/content/1/text": 4, "/raw/result": 0 },
            }),
        );
    }

    #[test]
    fn the_beginning_of_a_result_is_left_out_too() {
        let result = result();
        check(
            &json!({ "raw": { "output": format!("{}ê and more", &result[..100]) } }),
            &result,
            &json!({
                "raw": { "output": "ê and more" },
                "result_at": { "/raw/output": [0, 100] },
            }),
        );
    }

    #[test]
    fn other_cards_stay_as_they_are() {
        for card in [json!({}), json!({ "content": [{ "text": "other" }], "raw": "text" })] {
            check(&card, &result(), &card);
            check(&card, "short", &card);
        }
    }

    #[test]
    fn a_lost_result_is_said_to_be_lost() {
        let mut card = json!({ "raw": { "result": result() } });
        let result = result();
        take_out(&mut card, &result);
        put_back(&mut card, "lost");
        assert_eq!(card["raw"]["result"], "lost");
    }
}
