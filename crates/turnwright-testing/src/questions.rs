//! Helpers for tool calls that require permission, and for the rules that are stored from the
//! user's answers.

use serde_json::Value;

use crate::replies::{calls, says};
use crate::{TestAgent, Transport, cards};

/// Runs a turn with one call that requires permission, answers with this option and returns the
/// permission request.
pub fn ask_and_answer<T: Transport>(agent: &mut TestAgent<T>, reply: Value, option: &str) -> Value {
    agent.model().push(reply).unwrap();
    agent.model().push(says("Understood.")).unwrap();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    agent.choose(&question, option);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(agent);
    question
}

/// Allows a call for the session, and keeps that for the project. Returns the permission request.
pub fn ask_and_keep<T: Transport>(agent: &mut TestAgent<T>, reply: Value) -> Value {
    let question = ask_and_answer(agent, reply, "allow_always");
    assert_eq!(agent.turn("/permissions keep"), "end_turn");
    question
}

/// Runs a turn with one call that must run without a permission request.
pub fn run_without_question<T: Transport>(agent: &mut TestAgent<T>, reply: Value) {
    let before = cards::questions(agent);
    agent.model().push(reply).unwrap();
    agent.model().push(says("Done.")).unwrap();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(cards::questions(agent), before, "the agent asked for permission");
    cards::check(agent);
}

/// Returns the option names of a permission request.
pub fn option_names(question: &Value) -> Vec<String> {
    cards::options(question).into_iter().map(|it| it.1).collect()
}

/// Returns the contents of the files that store the rules of projects.
pub fn project_rules<T: Transport>(agent: &TestAgent<T>) -> Vec<Value> {
    let projects = agent.home().join("state/projects");
    let folders = std::fs::read_dir(projects).into_iter().flatten().flatten();
    let text = |it: std::fs::DirEntry| std::fs::read_to_string(it.path().join("permissions.json"));
    folders.filter_map(|it| serde_json::from_str(&text(it).ok()?).ok()).collect()
}

/// Sends a prompt for which the model makes this call, and waits for the permission request.
/// Returns the id of the prompt and the permission request.
pub fn ask<T: Transport>(agent: &mut TestAgent<T>, reply: Value) -> (Value, Value) {
    agent.model().push(reply).unwrap();
    agent.model().push(says("Understood.")).unwrap();
    let id = agent.prompt("go");
    (id, agent.wait_for_request("session/request_permission"))
}

/// Returns the last tool result that the model received.
pub fn last_result<T: Transport>(agent: &TestAgent<T>) -> String {
    cards::results(agent, agent.model().requests().len() - 1).pop().unwrap()
}

/// Runs a turn with one call. The client must answer permission requests by itself. Returns the
/// number of permission requests and the result that the model received.
pub fn attempt<T: Transport>(
    agent: &mut TestAgent<T>,
    name: &str,
    arguments: &Value,
) -> (usize, String) {
    agent.model().push(calls(name, arguments)).unwrap();
    agent.model().push(says("Understood.")).unwrap();
    let before = agent.log.len();
    assert_eq!(agent.turn("go"), "end_turn");
    let is_permission_request = |it: &&Value| it["method"] == "session/request_permission";
    let questions = agent.log[before..].iter().filter(is_permission_request).count();
    let last = agent.model().requests().len() - 1;
    (questions, agent.model_transcript(last).pop().unwrap())
}
