//! Helpers for requests about stored sessions and for their answers.

use serde_json::{Value, json};

use crate::{TestAgent, Transport, calls, says};

/// Returns the code of an error answer.
pub fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("not an error: {answer}"))
}

/// Returns the result of a request that must succeed.
#[track_caller]
pub fn result(mut answer: Value) -> Value {
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].take()
}

/// Returns the parameters of a request about a session.
pub fn session_params(session: &str) -> Value {
    json!({ "sessionId": session })
}

/// Returns the parameters of a request that opens a stored session.
pub fn opening_params<T: Transport>(agent: &TestAgent<T>, session: &str) -> Value {
    json!({ "sessionId": session, "cwd": agent.workspace(), "mcpServers": [] })
}

/// Calls one of the methods that open a stored session.
pub fn open<T: Transport>(agent: &mut TestAgent<T>, method: &str, session: &str) -> Value {
    let params = opening_params(agent, session);
    agent.call(method, &params)
}

/// Returns the message of the error with which `session/new` must fail.
pub fn opening_refusal<T: Transport>(agent: &mut TestAgent<T>) -> String {
    let answer = agent.call_new_session();
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    answer["error"]["message"].as_str().unwrap().to_owned()
}

/// Opens a session, makes it the current one and returns its initial mode.
pub fn open_with_mode<T: Transport>(agent: &mut TestAgent<T>) -> String {
    let result = result(agent.call_new_session());
    result["sessionId"].as_str().unwrap().clone_into(&mut agent.session);
    result["modes"]["currentModeId"].as_str().unwrap().to_owned()
}

/// Has the model write a file, and returns the number of permission requests.
pub fn questions_of_write<T: Transport>(agent: &mut TestAgent<T>, path: &str) -> usize {
    let arguments = json!({ "path": path, "content": "new\n" });
    agent.model().push(calls("write_file", &arguments)).unwrap();
    agent.model().push(says("Understood.")).unwrap();
    let before = agent.log.len();
    assert_eq!(agent.turn("go"), "end_turn");
    let is_question = |it: &&Value| it["method"] == "session/request_permission";
    agent.log[before..].iter().filter(is_question).count()
}

/// Returns the status of a session, as `session/status` reports it.
pub fn status<T: Transport>(agent: &mut TestAgent<T>, session: &str) -> Value {
    result(agent.call("session/status", &session_params(session)))["status"].clone()
}

/// Returns the updates of the current session that are messages, cards or plans, one line each.
pub fn conversation<T: Transport>(agent: &TestAgent<T>) -> Vec<String> {
    let updates = agent.updates();
    let lines = updates.iter().filter_map(|update| {
        let kind = update["sessionUpdate"].as_str().unwrap();
        let text = update["content"]["text"].as_str().unwrap_or_default();
        match kind {
            "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
                Some(format!("{kind} {text}"))
            }
            "tool_call" | "tool_call_update" => Some(format!("{kind} {}", update["status"])),
            "plan" => Some(kind.to_owned()),
            _ => None,
        }
    });
    lines.collect()
}

/// Returns the beginnings of the user's prompts in a conversation that was loaded.
pub fn replayed_prompts<T: Transport>(agent: &TestAgent<T>) -> Vec<String> {
    let users = agent.updates_of("user_message_chunk");
    let texts = users.iter().filter_map(|it| it["content"]["text"].as_str());
    texts.map(|it| it.chars().take(20).collect()).collect()
}

/// Changes the mode of the current session.
pub fn set_mode<T: Transport>(agent: &mut TestAgent<T>, mode: &str) {
    let params = json!({ "sessionId": agent.session, "modeId": mode });
    assert_eq!(agent.call("session/set_mode", &params)["result"], json!({}));
}

/// Returns the mode that the client was told last: from the last mode update, and from the last
/// update of the options.
pub fn known_mode<T: Transport>(agent: &TestAgent<T>) -> (String, String) {
    let updates = agent.updates();
    let last = |kind: &str| updates.iter().rev().find(|it| it["sessionUpdate"] == kind).cloned();
    let mode = last("current_mode_update").unwrap_or_default();
    let options = last("config_option_update").unwrap_or_default();
    let options = options["configOptions"].as_array().cloned().unwrap_or_default();
    let option = options.iter().find(|it| it["id"] == "mode").cloned().unwrap_or_default();
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    (text(&mode["currentModeId"]), text(&option["currentValue"]))
}
