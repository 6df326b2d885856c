//! The cards that the client shows as not ended yet. Each is ended exactly once, also when the
//! turn dies.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use turnwright_types::client::Client;
use turnwright_types::effect::{CallView, Content, fenced};
use turnwright_types::ids::CallId;
use turnwright_store::{Entry, Log, Settled};
use crate::tools::Outcome;
use turnwright_types::update::{CallUpdate, Status, Update};

/// Bytes of arguments that a card gets.
const MOST_INPUT: usize = 64 * 1024;
/// A longer string of longer arguments is a content, and is told by its length.
const CONTENT: usize = 1024;

/// What is told of a call whose turn has died.
const BROKE_OFF: &str = "The turn broke off.";

/// The open cards of a turn.
pub(super) struct Cards {
    client: Arc<dyn Client>,
    log: Log,
    open: Vec<Card>,
}

#[derive(Debug)]
struct Card {
    id: CallId,
    name: String,
    /// How it looks now.
    view: CallView,
}

impl fmt::Debug for Cards {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cards").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Cards {
    pub(super) fn new(client: Arc<dyn Client>, log: Log) -> Cards {
        Cards { client, log, open: Vec::new() }
    }

    /// Shows a new card.
    pub(super) fn open(&mut self, id: &CallId, name: String, view: CallView) {
        self.open.push(Card { id: id.clone(), name: name.clone(), view: view.clone() });
        self.client.update(Update::Call { id: id.clone(), name, view });
    }

    /// The client sees a card like this by now.
    pub(super) fn looks(&mut self, id: &CallId, view: &CallView) {
        if let Some(card) = self.open.iter_mut().find(|it| it.id == *id) {
            card.view.clone_from(view);
        }
    }

    /// How the client sees a card; `None` if there is none.
    pub(super) fn view(&self, id: &CallId) -> Option<&CallView> {
        self.open.iter().find(|it| it.id == *id).map(|it| &it.view)
    }

    /// Keeps the card of a call that never was whole.
    pub(super) fn note_lost(&self, id: &CallId, why: &str) {
        if let Some(card) = self.open.iter().find(|it| it.id == *id) {
            let (name, view) = (card.name.clone(), card.view.clone());
            let (call, why) = (id.clone(), why.to_owned());
            self.log.add(Entry::Lost { call, name, view, why });
        }
    }

    /// Gives a card its final status. One that has it already, or that never was, is left alone.
    pub(super) fn end(&mut self, last: CallUpdate) {
        if let Some(place) = self.open.iter().position(|it| it.id == last.id) {
            self.open.swap_remove(place);
            self.client.update(Update::CallUpdate(Box::new(last)));
        }
    }

    /// Ends a card whose call has not run.
    pub(super) fn fail(&mut self, id: &CallId, why: &str) {
        self.end(failed(id, why));
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        while let Some(card) = self.open.last() {
            let (id, name, view) = (card.id.clone(), card.name.clone(), card.view.clone());
            self.log.break_off(&id, name.clone(), not_run(name, Some(view), BROKE_OFF));
            self.fail(&id, BROKE_OFF);
        }
    }
}

/// The last that is told of a card whose call has not run.
pub fn failed(id: &CallId, why: &str) -> CallUpdate {
    let mut last = CallUpdate::new(id.clone(), Status::Failed);
    last.content = Some(vec![Content::Text(why.to_owned())]);
    last.raw_output = Some(json!({ "error": why }));
    last
}

/// What is kept of a call that has come to nothing: the same as [`failed`] tells.
pub fn not_run(tool: String, view: Option<CallView>, why: &str) -> Settled {
    let (content, raw) = (vec![Content::Text(why.to_owned())], json!({ "error": why }));
    Settled { tool, view, content, raw, text: why.to_owned(), ..Settled::default() }
}

/// The last that is told of a card, with everything: some clients show only the last update.
pub fn last(id: &CallId, settled: &Settled) -> CallUpdate {
    let status = if settled.ok { Status::Completed } else { Status::Failed };
    let mut last = CallUpdate::new(id.clone(), status);
    last.view.clone_from(&settled.view);
    last.content = Some(settled.content.clone());
    last.raw_output = Some(settled.raw.clone());
    last
}

/// What is kept of an outcome.
pub(super) fn settled(
    outcome: &Outcome,
    (name, view): (&str, Option<&CallView>),
    took: Option<Duration>,
) -> Settled {
    // A terminal of the client is gone when the conversation comes back.
    let is_terminal = |it: &Content| matches!(it, Content::Terminal(_));
    let mut content: Vec<_> =
        outcome.content.iter().filter(|it| !is_terminal(it)).cloned().collect();
    if content.len() < outcome.content.len() {
        content.push(Content::Text(fenced(&outcome.text)));
    }
    Settled {
        ok: outcome.ok,
        tool: name.to_owned(),
        text: outcome.text.clone(),
        images: outcome.images.clone(),
        view: view.is_some().then(|| outcome.view.as_ref().or(view).cloned()).flatten(),
        content,
        raw: outcome.raw.clone(),
        took,
        files: Vec::new(),
        bytes: Vec::new(),
    }
}

/// The arguments as a card shows them: of very long ones the contents only by their length, since
/// the diff shows them.
pub fn brief(arguments: &Value) -> Value {
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
