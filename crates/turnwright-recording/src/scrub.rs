//! Removes secrets from what is recorded, beyond the loaded keys that [`redact`] finds by their value: what
//! a client hands over for MCP servers, and keys that a model or the agent says in pieces. Each piece of a message is a
//! line of its own, in which nobody could recognise the half of a key.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use turnwright_types::redact;

pub(crate) fn text_without_keys(bytes: &[u8]) -> String {
    let clean = redact::bytes(bytes);
    String::from_utf8_lossy(clean.as_deref().unwrap_or(bytes)).into_owned()
}

/// Leaves of a message only what a replay needs: neither the programs, addresses and secrets of MCP servers
/// nor what an authentication says.
pub(crate) fn scrub_message(message: &mut Value) {
    let is_authentication = message["method"] == "authenticate";
    let Some(params) = message.get_mut("params").and_then(Value::as_object_mut) else { return };
    if let Some(Value::Array(servers)) = params.get_mut("mcpServers") {
        for server in servers {
            *server = json!({ "name": server["name"] });
        }
    }
    if is_authentication {
        params.retain(|name, _| name == "methodId");
    }
}

/// The text of a reply without the keys in it. Returns with it whether anything was changed. A model says
/// a key in pieces, each in an event of its own: the string fields of all events are looked at together,
/// and if they hold a key, the first event gets all that is left of them.
pub(crate) fn scrub_reply(body: &[u8]) -> (String, bool) {
    let text = text_without_keys(body);
    let is_clean = text.as_bytes() == body;
    let mut joined = BTreeMap::<String, String>::new();
    for mut event in text.lines().filter_map(event_of) {
        each_string(&mut event, &mut String::new(), &mut |path, leaf| {
            joined.entry(path.to_owned()).or_default().push_str(leaf);
        });
    }
    joined.retain(|_, whole| match redact::text(whole) {
        std::borrow::Cow::Owned(clean) => {
            *whole = clean;
            true
        }
        std::borrow::Cow::Borrowed(_) => false,
    });
    if joined.is_empty() {
        return (text, !is_clean);
    }
    let mut clean = String::with_capacity(text.len());
    for line in text.lines() {
        match event_of(line) {
            Some(mut event) => {
                // The text is put in the place of the first string at its path, and the others there are emptied.
                each_string(&mut event, &mut String::new(), &mut |path, leaf| {
                    if let Some(clean) = joined.get_mut(path) {
                        *leaf = std::mem::take(clean);
                    }
                });
                clean.push_str(&format!("data: {event}\n"));
            }
            None => clean.push_str(&format!("{line}\n")),
        }
    }
    (clean, true)
}

fn event_of(line: &str) -> Option<Value> {
    let data = line.strip_prefix("data:")?.trim_start();
    serde_json::from_str(data).ok().filter(Value::is_object)
}

/// Calls `visit` with each string of the value, after the path to it.
fn each_string(value: &mut Value, path: &mut String, visit: &mut dyn FnMut(&str, &mut String)) {
    let length = path.len();
    let mut below = |name: &str, value: &mut Value| {
        path.push('/');
        path.push_str(name);
        each_string(value, path, visit);
        path.truncate(length);
    };
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, field)| below(name, field)),
        Value::Array(items) => items.iter_mut().for_each(|item| below("", item)),
        Value::String(text) => visit(path, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The place of a piece's text.
const TEXT: &str = "/params/update/content/text";

/// A line with its number and its milliseconds.
pub(crate) type NumberedLine = (u64, u64, Value);

/// The lines that are written when the agent has sent this one. The end of a message's text that may be the
/// beginning of a key is `held` until it is known what follows.
pub(crate) fn release_text(
    held: &mut Option<NumberedLine>,
    line: NumberedLine,
) -> Vec<NumberedLine> {
    let (number, milliseconds, mut message) = line;
    let Some(text) = text_of_piece(&message) else {
        return vec![(number, milliseconds, message)];
    };
    let mut passed = Vec::new();
    let text = match held.take() {
        Some((_, _, before)) if is_of_same_message(&before, &message) => {
            text_of_piece(&before).unwrap_or_default() + &text
        }
        other => {
            passed.extend(other);
            text
        }
    };
    let text = redact::text(&text).into_owned();
    let (text, rest) = text.split_at(redact::without_partial_key(&text).len());
    if !rest.is_empty() {
        *held = Some((number, milliseconds, with_text(message.clone(), rest)));
    }
    if !text.is_empty() {
        message = with_text(message, text);
        passed.push((number, milliseconds, message));
    }
    passed
}

fn text_of_piece(message: &Value) -> Option<String> {
    let kind = message["params"]["update"]["sessionUpdate"].as_str()?;
    let is_piece = kind == "agent_message_chunk" || kind == "agent_thought_chunk";
    message.pointer(TEXT).filter(|_| is_piece)?.as_str().map(str::to_owned)
}

fn with_text(mut message: Value, text: &str) -> Value {
    if let Some(place) = message.pointer_mut(TEXT) {
        *place = text.into();
    }
    message
}

fn is_of_same_message(one: &Value, other: &Value) -> bool {
    ["sessionUpdate", "messageId"]
        .iter()
        .all(|field| one["params"]["update"][field] == other["params"]["update"][field])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_in_pieces_is_found() {
        let key = "canary-in-pieces-0123456789";
        redact::register_keys([key.to_owned()]).unwrap();
        let event = |text: &str| {
            format!("data: {}\n\n", json!({ "choices": [{ "delta": { "content": text } }] }))
        };
        let pieces = [event("It is canary-in-"), event("pieces-0123"), event("456789.")].concat();
        let (clean, is_changed) = scrub_reply(pieces.as_bytes());
        assert!(is_changed);
        let hidden = redact::text(key);
        assert_eq!(clean, [event(&format!("It is {hidden}.")), event(""), event("")].concat());
        let (same, is_changed) = scrub_reply(event("nothing").as_bytes());
        assert_eq!((same, is_changed), (event("nothing"), false));
    }

    #[test]
    fn what_a_client_hands_over_for_servers_is_left_out() {
        let servers =
            json!([{ "name": "s", "command": "c", "env": [{ "name": "T", "value": "v" }] }]);
        let mut message =
            json!({ "method": "session/new", "params": { "cwd": "/w", "mcpServers": servers } });
        scrub_message(&mut message);
        assert_eq!(message["params"], json!({ "cwd": "/w", "mcpServers": [{ "name": "s" }] }));
    }
}
