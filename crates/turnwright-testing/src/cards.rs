//! Checks of the tool cards in a log that hold for every test (R-TOOL, R-PERM-2), and helpers for
//! tests about tools. A card is what a client shows for a tool call.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::{TestAgent, TestAgentBuilder, Transport, calls, says};

/// The state of a card: its latest status, and the name of its function.
struct Card {
    status: String,
    name: String,
}

impl Card {
    fn is_final(&self) -> bool {
        self.status == "completed" || self.status == "failed"
    }
}

/// Panics unless every card was reported once, its status only advanced, it got exactly one final
/// status before its prompt was answered, and every permission request was about a pending card.
pub fn check<T: Transport>(agent: &TestAgent<T>) {
    let mut cards: HashMap<String, Card> = HashMap::new();
    // A helper in the background may go on after the answer.
    let mut helpers: Vec<String> = Vec::new();
    for message in &agent.log {
        let params = &message["params"];
        let update = &params["update"];
        match (message["method"].as_str(), update["sessionUpdate"].as_str()) {
            (Some("session/update"), Some("tool_call")) => {
                let id = key(params, update);
                // A missing status means `pending`.
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
                let card =
                    card.unwrap_or_else(|| panic!("an update of an unknown card: {message}"));
                assert!(!card.is_final(), "an update after the final status: {message}");
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
            (Some("session/update"), Some("subagent_update")) => {
                helpers.extend(update["sessionId"].as_str().map(str::to_owned));
            }
            (Some("session/request_permission"), _) if is_asked_by_running(params, &cards) => {}
            (Some("session/request_permission"), _) => check_permission_request(params, &cards),
            (None, _) if message["result"]["stopReason"].is_string() => {
                for (id, card) in cards.iter().filter(|(id, _)| !is_of_any(id, &helpers)) {
                    assert!(card.is_final(), "{id} is still {} at the answer", card.status);
                }
            }
            _ => {}
        }
    }
    for (id, card) in cards.iter().filter(|(id, _)| !is_of_any(id, &helpers)) {
        assert!(card.is_final(), "{id} is still {}", card.status);
    }
}

/// Returns true for a question while its call runs: those of `ask_user` and `exit_plan`, about the calls of a helper,
/// and about the hosts that a command wants.
fn is_asked_by_running(params: &Value, cards: &HashMap<String, Card>) -> bool {
    let card = cards.get(&key(params, &params["toolCall"]));
    card.is_some_and(|card| {
        ["ask_user", "exit_plan", "agent"].contains(&card.name.as_str())
            || card.name == "exec" && params["toolCall"]["kind"] == "fetch"
    })
}

/// Returns true if a card with this key belongs to one of these sessions.
fn is_of_any(key: &str, sessions: &[String]) -> bool {
    sessions.iter().any(|session| key.ends_with(session.as_str()))
}

fn key(params: &Value, update: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} of {}", text(&update["toolCallId"]), text(&params["sessionId"]))
}

/// Checks that titles are not blank, that paths are absolute and that lines are counted from 1.
fn check_view(update: &Value, message: &Value) {
    if let Some(title) = update["title"].as_str() {
        assert!(!title.trim().is_empty(), "a blank title: {message}");
    }
    let list = |key: &str| update[key].as_array().cloned().unwrap_or_default();
    let is_absolute = |path: &Value| path.as_str().is_some_and(|it| Path::new(it).is_absolute());
    for location in list("locations") {
        assert!(is_absolute(&location["path"]), "a location with a relative path: {message}");
        let line = location["line"].as_u64();
        assert!(line.is_none_or(|it| it >= 1), "lines are counted from 1: {message}");
    }
    for content in list("content").iter().filter(|it| it["type"] == "diff") {
        assert!(is_absolute(&content["path"]), "a diff with a relative path: {message}");
    }
}

fn check_permission_request(params: &Value, cards: &HashMap<String, Card>) {
    let call = &params["toolCall"];
    let card = cards.get(&key(params, call));
    let card = card.unwrap_or_else(|| panic!("a permission request for an unknown call: {params}"));
    assert_eq!(
        card.status, "pending",
        "a permission request for a call that already runs: {params}"
    );
    assert!(
        call["title"].is_string() && call["kind"].is_string(),
        "the title or the kind is missing: {params}"
    );
    assert!(call["rawInput"].is_object(), "the arguments are missing: {params}");
    let options = params["options"].as_array().unwrap();
    let texts = |key: &str| -> Vec<&str> {
        options.iter().map(|it| it[key].as_str().unwrap_or_default()).collect()
    };
    let kinds = texts("kind");
    let always = kinds.iter().filter(|it| **it == "allow_always").count();
    assert!(always <= 2, "{kinds:?}");
    assert_eq!(kinds[0], "allow_once", "some clients choose the first option: {params}");
    assert!(kinds[1..=always].iter().all(|it| *it == "allow_always"), "{kinds:?}");
    assert_eq!(kinds[always + 1..], ["reject_once", "reject_always"]);
    let ids: HashSet<_> = texts("optionId").into_iter().collect();
    assert_eq!(ids.len(), options.len(), "two options with the same id: {params}");
    let names = texts("name");
    assert!(names.iter().all(|it| (4..=80).contains(&it.chars().count())), "{names:?}");
}

/// Returns the ids of the cards, in the order of their appearance.
pub fn ids<T: Transport>(agent: &TestAgent<T>) -> Vec<String> {
    let updates = agent.updates();
    let cards = updates.iter().filter(|it| it["sessionUpdate"] == "tool_call");
    cards.map(|it| it["toolCallId"].as_str().unwrap().to_owned()).collect()
}

/// Returns the n-th card as a client shows it in the end: each update replaces the fields that it
/// contains.
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

/// Returns the id and the name of each option of a permission request.
pub fn options(question: &Value) -> Vec<(String, String)> {
    let options = question["params"]["options"].as_array().cloned().unwrap_or_default();
    let text = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
    options.iter().map(|it| (text(it, "optionId"), text(it, "name"))).collect()
}

/// Returns all text that a card shows.
pub fn card_text(card: &Value) -> String {
    let content = card["content"].as_array().cloned().unwrap_or_default();
    content.iter().filter_map(|it| it["content"]["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Returns a step with a tool call, for replies that make several calls.
pub fn call(name: &str, arguments: &Value) -> Value {
    json!({ "call": { "name": name, "arguments": arguments } })
}

/// Returns the tool results in the n-th request to the model, in order.
pub fn results<T: Transport>(agent: &TestAgent<T>, number: usize) -> Vec<String> {
    let body = agent.model_request(number);
    let messages = body["messages"].as_array().unwrap();
    let results = messages.iter().filter(|it| it["role"] == "tool");
    results.map(|it| it["content"].as_str().unwrap().to_owned()).collect()
}

/// Returns the number of permission requests so far.
pub fn questions<T: Transport>(agent: &TestAgent<T>) -> usize {
    requests(agent).iter().filter(|it| *it == "session/request_permission").count()
}

/// Returns the methods of all requests that the agent has sent to the client, in order.
pub fn requests<T: Transport>(agent: &TestAgent<T>) -> Vec<String> {
    let sent = agent.log.iter().filter(|it| it.get("id").is_some());
    sent.filter_map(|it| it["method"].as_str()).map(str::to_owned).collect()
}

/// Runs a turn with one tool call, which is allowed. Returns the agent and the tool result that the
/// model received.
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

/// Runs a turn of an agent whose client answers permission requests by itself, and returns the last
/// tool result.
pub fn turn<T: Transport>(agent: &mut TestAgent<T>) -> String {
    assert_eq!(agent.turn("go"), "end_turn");
    check(agent);
    let last = agent.model().requests().len() - 1;
    results(agent, last).pop().expect("a result")
}

/// Runs a turn with one call for each of these arguments, and returns the result of each call.
pub fn run_each<T: Transport>(agent: &mut TestAgent<T>, tool: &str, all: &[Value]) -> Vec<String> {
    let run_one = |arguments: &Value| {
        agent.model().push(calls(tool, arguments)).unwrap();
        agent.model().push(says("Read.")).unwrap();
        turn(agent)
    };
    all.iter().map(run_one).collect()
}
