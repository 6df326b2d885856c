//! The cards that the client shows as not ended yet. Each is ended exactly once, also when the
//! turn dies.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::client::Client;
use crate::effect::{CallView, Content};
use crate::ids::CallId;
use crate::update::{CallUpdate, Status, Update};

/// Bytes of arguments that a card gets.
const MOST_INPUT: usize = 64 * 1024;
/// A longer string of longer arguments is a content, and is told by its length.
const CONTENT: usize = 1024;

/// The open cards of a turn.
pub(super) struct Cards {
    client: Arc<dyn Client>,
    open: Vec<CallId>,
}

impl fmt::Debug for Cards {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cards").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Cards {
    pub(super) fn new(client: Arc<dyn Client>) -> Cards {
        Cards { client, open: Vec::new() }
    }

    /// Shows a new card.
    pub(super) fn open(&mut self, id: &CallId, name: String, view: CallView) {
        self.open.push(id.clone());
        self.client.update(Update::Call { id: id.clone(), name, view });
    }

    /// Gives a card its final status. One that has it already, or that never was, is left alone.
    pub(super) fn end(&mut self, last: CallUpdate) {
        if let Some(place) = self.open.iter().position(|it| *it == last.id) {
            self.open.swap_remove(place);
            self.client.update(Update::CallUpdate(Box::new(last)));
        }
    }

    /// Ends a card whose call has not run.
    pub(super) fn fail(&mut self, id: &CallId, why: &str) {
        let mut last = CallUpdate::new(id.clone(), Status::Failed);
        last.content = Some(vec![Content::Text(why.to_owned())]);
        last.raw_output = Some(json!({ "error": why }));
        self.end(last);
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        for id in self.open.clone() {
            self.fail(&id, "The turn broke off.");
        }
    }
}

/// The arguments as a card shows them: of very long ones the contents only by their length, since
/// the diff shows them.
pub(super) fn brief(arguments: &Value) -> Value {
    if bytes(arguments) <= MOST_INPUT {
        return arguments.clone();
    }
    let brief = without_contents(arguments);
    match bytes(&brief) {
        ..=MOST_INPUT => brief,
        left => json!({ "omitted": format!("{left} bytes") }),
    }
}

/// About as many bytes as the value has as text.
fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|it| bytes(it) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(key, it)| key.len() + bytes(it) + 4).sum::<usize>() + 2
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
    }
}

fn without_contents(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() > CONTENT => format!("[{} bytes]", text.len()).into(),
        Value::Array(items) => items.iter().map(without_contents).collect(),
        Value::Object(fields) => {
            let brief = |(key, it): (&String, &Value)| (key.clone(), without_contents(it));
            Value::Object(fields.iter().map(brief).collect())
        }
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_contents_are_told_by_their_length() {
        let short = json!({ "path": "a", "content": "x".repeat(60_000) });
        assert_eq!(brief(&short), short);
        let long = json!({ "path": "a", "edits": [{ "new_text": "x".repeat(70_000) }], "n": 1 });
        let expected = json!({ "path": "a", "edits": [{ "new_text": "[70000 bytes]" }], "n": 1 });
        assert_eq!(brief(&long), expected);
        let endless = json!({ "paths": vec!["some/path"; 10_000] });
        assert_eq!(brief(&endless), json!({ "omitted": "120013 bytes" }));
    }
}
