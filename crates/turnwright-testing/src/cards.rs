//! What must be true of the tool cards of every log, whatever a test is about (R-TOOL, R-PERM-2),
//! and the few helpers that tests about tools share.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::{TestAgent, TestAgentBuilder, Transport, calls, says};

/// How far a card is, its name, and whether it has its final status.
struct Card {
    status: String,
    name: String,
}

impl Card {
    fn is_final(&self) -> bool {
        self.status == "completed" || self.status == "failed"
    }
}

/// Panics unless every card was reported once, then went forward only, and had exactly one final
/// status before its prompt was answered; and every question was about an open card.
pub fn check<T: Transport>(agent: &TestAgent<T>) {
    let mut cards: HashMap<String, Card> = HashMap::new();
    for message in &agent.log {
        let params = &message["params"];
        let update = &params["update"];
        match (message["method"].as_str(), update["sessionUpdate"].as_str()) {
            (Some("session/update"), Some("tool_call")) => {
                let id = key(params, update);
                // Not said means pending.
                let status = update["status"].as_str().unwrap_or("pending");
                assert_eq!(status, "pending", "a card begins as pending: {message}");
                check_view(update, message);
                let name = update["name"].as_str().unwrap_or_default().to_owned();
                assert!(!name.is_empty(), "a card without the function's name: {message}");
                let card = Card { status: "pending".to_owned(), name };
                assert!(cards.insert(id, card).is_none(), "this id was used before: {message}");
            }
            (Some("session/update"), Some("tool_call_update")) => {
                let id = key(params, update);
                let card = cards.get_mut(&id);
                let card = card.unwrap_or_else(|| panic!("news before the card: {message}"));
                assert!(!card.is_final(), "news after the final status: {message}");
                check_view(update, message);
                if let Some(name) = update["name"].as_str() {
                    assert_eq!(name, card.name, "the name has changed: {message}");
                }
                let Some(status) = update["status"].as_str() else { continue };
                let forward = matches!(
                    (card.status.as_str(), status),
                    ("pending", "pending" | "in_progress" | "failed")
                        | ("in_progress", "in_progress" | "completed" | "failed")
                );
                assert!(forward, "from {} to {status}: {message}", card.status);
                status.clone_into(&mut card.status);
            }
            // A choice of the user's that is no permission: it is about a call that runs.
            (Some("session/request_permission"), _)
                if cards
                    .get(&key(params, &params["toolCall"]))
                    .is_some_and(|it| ["ask_user", "exit_plan"].contains(&it.name.as_str())) => {}
            (Some("session/request_permission"), _) => check_question(params, &cards),
            (None, _) if message["result"]["stopReason"].is_string() => {
                for (id, card) in &cards {
                    assert!(card.is_final(), "{id} is still {} at the answer", card.status);
                }
            }
            _ => {}
        }
    }
    for (id, card) in &cards {
        assert!(card.is_final(), "{id} is still {}", card.status);
    }
}

fn key(params: &Value, update: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} of {}", text(&update["toolCallId"]), text(&params["sessionId"]))
}

/// Titles are readable, paths absolute and lines counted from 1.
fn check_view(update: &Value, message: &Value) {
    if let Some(title) = update["title"].as_str() {
        assert!(!title.trim().is_empty(), "a title of nothing: {message}");
    }
    let list = |key: &str| update[key].as_array().cloned().unwrap_or_default();
    let is_absolute = |path: &Value| path.as_str().is_some_and(|it| it.starts_with('/'));
    for location in list("locations") {
        assert!(is_absolute(&location["path"]), "a relative location: {message}");
        let line = location["line"].as_u64();
        assert!(line.is_none_or(|it| it >= 1), "lines are counted from 1: {message}");
    }
    for content in list("content").iter().filter(|it| it["type"] == "diff") {
        assert!(is_absolute(&content["path"]), "a diff of a relative path: {message}");
    }
}

fn check_question(params: &Value, cards: &HashMap<String, Card>) {
    let call = &params["toolCall"];
    let card = cards.get(&key(params, call));
    let card = card.unwrap_or_else(|| panic!("a question about an unknown call: {params}"));
    assert_eq!(card.status, "pending", "a question about a call that runs: {params}");
    assert!(call["title"].is_string() && call["kind"].is_string(), "about what? {params}");
    assert!(call["rawInput"].is_object(), "no arguments to decide by: {params}");
    let options = params["options"].as_array().unwrap();
    let texts = |key: &str| -> Vec<&str> {
        options.iter().map(|it| it[key].as_str().unwrap_or_default()).collect()
    };
    let kinds = texts("kind");
    let always = kinds.iter().filter(|it| **it == "allow_always").count();
    assert!(always <= 2, "{kinds:?}");
    assert_eq!(kinds[0], "allow_once", "some clients take the first: {params}");
    assert!(kinds[1..=always].iter().all(|it| *it == "allow_always"), "{kinds:?}");
    assert_eq!(kinds[always + 1..], ["reject_once", "reject_always"]);
    let ids: HashSet<_> = texts("optionId").into_iter().collect();
    assert_eq!(ids.len(), options.len(), "two options with the same id: {params}");
    let names = texts("name");
    assert!(names.iter().all(|it| (4..=80).contains(&it.chars().count())), "{names:?}");
}

/// The ids of the cards, in the order of their appearance.
pub fn ids<T: Transport>(agent: &TestAgent<T>) -> Vec<String> {
    let updates = agent.updates();
    let cards = updates.iter().filter(|it| it["sessionUpdate"] == "tool_call");
    cards.map(|it| it["toolCallId"].as_str().unwrap().to_owned()).collect()
}

/// The n-th card as a client has it in the end: every update replaces the fields it names.
pub fn card<T: Transport>(agent: &TestAgent<T>, number: usize) -> Value {
    let ids = ids(agent);
    let id = ids.get(number).unwrap_or_else(|| panic!("there are {} cards", ids.len()));
    let mut card = json!({});
    for update in agent.updates().iter().filter(|it| it["toolCallId"] == id.as_str()) {
        for (key, value) in update.as_object().unwrap() {
            card[key] = value.clone();
        }
    }
    card
}

/// What a question offers, by identifier and name.
pub fn options(question: &Value) -> Vec<(String, String)> {
    let options = question["params"]["options"].as_array().cloned().unwrap_or_default();
    let text = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
    options.iter().map(|it| (text(it, "optionId"), text(it, "name"))).collect()
}

/// All text that a card shows.
pub fn card_text(card: &Value) -> String {
    let content = card["content"].as_array().cloned().unwrap_or_default();
    content.iter().filter_map(|it| it["content"]["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// A step of a reply: one call of several.
pub fn call(name: &str, arguments: &Value) -> Value {
    json!({ "call": { "name": name, "arguments": arguments } })
}

/// What the n-th request to the model holds as results of tools, in order.
pub fn results<T: Transport>(agent: &TestAgent<T>, number: usize) -> Vec<String> {
    let body = agent.model_request(number);
    let messages = body["messages"].as_array().unwrap();
    let results = messages.iter().filter(|it| it["role"] == "tool");
    results.map(|it| it["content"].as_str().unwrap().to_owned()).collect()
}

/// How often the client was asked for permission.
pub fn questions<T: Transport>(agent: &TestAgent<T>) -> usize {
    requests(agent).iter().filter(|it| *it == "session/request_permission").count()
}

/// The methods that the agent has called, in order.
pub fn requests<T: Transport>(agent: &TestAgent<T>) -> Vec<String> {
    let asked = agent.log.iter().filter(|it| it.get("id").is_some());
    asked.filter_map(|it| it["method"].as_str()).map(str::to_owned).collect()
}

/// One call in one turn that is allowed; returns what the model was told. The turn has to go on.
pub fn run<T: Transport>(
    builder: TestAgentBuilder<T>,
    name: &str,
    arguments: &Value,
) -> (TestAgent<T>, String) {
    let replies = json!([[call(name, arguments)], says("Done.")]);
    let mut agent = builder.model(replies).permission("allow_once").start();
    let result = turn(&mut agent);
    (agent, result)
}

/// A turn of an agent that answers questions by itself; returns the last result of a tool.
pub fn turn<T: Transport>(agent: &mut TestAgent<T>) -> String {
    assert_eq!(agent.turn("go"), "end_turn");
    check(agent);
    let last = agent.model().requests().len() - 1;
    results(agent, last).pop().expect("a result")
}

/// Makes a turn with one call for each of these arguments; returns what the model was told of each.
pub fn run_each<T: Transport>(agent: &mut TestAgent<T>, tool: &str, all: &[Value]) -> Vec<String> {
    let read = |arguments: &Value| {
        agent.model().push(calls(tool, arguments)).unwrap();
        agent.model().push(says("Read.")).unwrap();
        turn(agent)
    };
    all.iter().map(read).collect()
}
