//! Signed or encrypted reasoning that is streamed in fragments and required back unchanged:
//! `reasoning_details` of OpenRouter and MiniMax (quirk C.3 #4), and Anthropic's `thinking_blocks` behind
//! LiteLLM.

use serde_json::Value;

use crate::reply::memory_size;

/// The fields that are streamed in fragments.
const STREAMED_FIELDS: [&str; 3] = ["text", "summary", "thinking"];

/// True for a block from Anthropic.
pub(super) fn is_thinking_block(piece: &Value) -> bool {
    matches!(piece["type"].as_str(), Some("thinking" | "redacted_thinking"))
}

/// True for an item of the Responses API, with which the model may have been asked before.
pub(super) fn is_responses_item(piece: &Value) -> bool {
    matches!(piece["type"].as_str(), Some("reasoning" | "message" | "function_call"))
}

/// True unless the signature of a block is missing, which makes it invalid.
pub(super) fn is_complete_block(piece: &Value) -> bool {
    piece["type"] != "thinking" || !is_unset(piece.get("signature"))
}

/// Fragments have empty signatures up to the last.
fn is_unset(field: Option<&Value>) -> bool {
    field.is_none_or(|value| value.is_null() || value == "")
}

/// Appends fragments: continued text is joined to the last piece, anything else becomes a piece of
/// its own. Returns the approximate number of bytes added.
pub(super) fn merge(all: &mut Vec<Value>, fragments: Vec<Value>) -> usize {
    let mut new = 0;
    for fragment in fragments {
        match all.last_mut() {
            Some(last) if continues(last, &fragment) => new += join(last, fragment),
            _ => {
                new += memory_size(&fragment);
                all.push(fragment);
            }
        }
    }
    new
}

/// The readable text of the fragments.
pub(super) fn detail_text(fragments: &[Value]) -> String {
    let texts = fragments.iter().filter_map(|fragment| {
        STREAMED_FIELDS.iter().find_map(|field| fragment.get(*field)?.as_str())
    });
    texts.collect()
}

fn continues(last: &Value, next: &Value) -> bool {
    let is_same_kind = ["type", "index", "format"].into_iter().all(|field| {
        let value = next.get(field);
        last.get(field) == value || value.is_none_or(Value::is_null)
    });
    let grows = STREAMED_FIELDS
        .into_iter()
        .chain(["signature"])
        .any(|field| next.get(field).is_some_and(Value::is_string));
    grows && next.is_object() && is_same_kind
        // A signature ends its piece.
        && is_unset(last.get("signature"))
}

fn join(last: &mut Value, next: Value) -> usize {
    let is_signed = !is_unset(next.get("signature"));
    let (Value::Object(last), Value::Object(next)) = (last, next) else { return 0 };
    let mut new = 0;
    for (field, value) in next {
        match (last.get_mut(&field), value) {
            (Some(Value::String(text)), Value::String(more))
                if STREAMED_FIELDS.contains(&&*field) =>
            {
                // The signature may come with the whole text once more.
                if is_signed && *text == more {
                    continue;
                }
                new += more.len();
                text.push_str(&more);
            }
            (known, value) if is_unset(known.as_deref()) => {
                new += memory_size(&value) + field.len();
                last.insert(field, value);
            }
            _ => {}
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_joined_and_encrypted_pieces_are_kept_apart() {
        let mut all = Vec::new();
        let text = |text: &str| json!({ "type": "reasoning.text", "text": text, "index": 0 });
        merge(&mut all, vec![text("a")]);
        merge(&mut all, vec![text("b")]);
        merge(
            &mut all,
            vec![json!({ "type": "reasoning.text", "text": "", "signature": "s", "index": 0 })],
        );
        merge(&mut all, vec![text("c")]);
        let secrets = json!({ "type": "reasoning.encrypted", "data": "x", "id": "1" });
        merge(&mut all, vec![secrets.clone()]);
        merge(&mut all, vec![secrets.clone()]);
        let signed =
            json!({ "type": "reasoning.text", "text": "ab", "index": 0, "signature": "s" });
        assert_eq!(all, [signed, text("c"), secrets.clone(), secrets]);
        assert_eq!(detail_text(&all), "abc");
    }

    /// LiteLLM sends a block for each piece, and the signature last.
    #[test]
    fn blocks_of_thinking_are_joined_up_to_their_signature() {
        let block = |text: &str, signature: &str| json!({ "type": "thinking", "thinking": text, "signature": signature });
        let redacted = json!({ "type": "redacted_thinking", "data": "x" });
        let mut all = Vec::new();
        for piece in [
            block("Step 1. ", ""),
            json!({ "type": "thinking", "thinking": "Step 2.", "signature": null }),
            block("", "s"),
            redacted.clone(),
            block("Once ", ""),
            block("more.", ""),
            // With the whole text again.
            block("Once more.", "t"),
        ] {
            merge(&mut all, vec![piece]);
        }
        assert_eq!(all, [block("Step 1. Step 2.", "s"), redacted, block("Once more.", "t")]);
    }
}
