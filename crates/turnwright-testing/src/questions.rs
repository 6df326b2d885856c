//! Calls that the user may be asked about, and what is kept of the answers.

use serde_json::Value;

use crate::replies::{calls, says};
use crate::{TestAgent, Transport, cards};

/// Makes one call that the user is asked about, and answers with this option. Returns the question.
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

/// Makes one call that must run without a question.
pub fn run_without_question<T: Transport>(agent: &mut TestAgent<T>, reply: Value) {
    let before = cards::questions(agent);
    agent.model().push(reply).unwrap();
    agent.model().push(says("Done.")).unwrap();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(cards::questions(agent), before, "it asks again");
    cards::check(agent);
}

/// The names of the options of a question.
pub fn option_names(question: &Value) -> Vec<String> {
    cards::options(question).into_iter().map(|it| it.1).collect()
}

/// The contents of the files that hold the rules of projects.
pub fn project_rules<T: Transport>(agent: &TestAgent<T>) -> Vec<Value> {
    let projects = agent.home().join("state/projects");
    let folders = std::fs::read_dir(projects).into_iter().flatten().flatten();
    let text = |it: std::fs::DirEntry| std::fs::read_to_string(it.path().join("permissions.json"));
    folders.filter_map(|it| serde_json::from_str(&text(it).ok()?).ok()).collect()
}

/// Sends a prompt for which the model makes this call, and waits for the question.
pub fn ask<T: Transport>(agent: &mut TestAgent<T>, reply: Value) -> (Value, Value) {
    agent.model().push(reply).unwrap();
    agent.model().push(says("Understood.")).unwrap();
    let id = agent.prompt("go");
    (id, agent.wait_for_request("session/request_permission"))
}

/// What the model was told of its last call.
pub fn last_result<T: Transport>(agent: &TestAgent<T>) -> String {
    cards::results(agent, agent.model().requests().len() - 1).pop().unwrap()
}

/// Lets the model make a call. Returns how many questions were asked (each is answered with no)
/// and what the model was told.
pub fn attempt<T: Transport>(
    agent: &mut TestAgent<T>,
    name: &str,
    arguments: &Value,
) -> (usize, String) {
    agent.model().push(calls(name, arguments)).unwrap();
    agent.model().push(says("Understood.")).unwrap();
    let before = agent.log.len();
    assert_eq!(agent.turn("go"), "end_turn");
    let asks = |it: &&Value| it["method"] == "session/request_permission";
    let questions = agent.log[before..].iter().filter(asks).count();
    let last = agent.model().requests().len() - 1;
    (questions, agent.model_transcript(last).pop().unwrap())
}
