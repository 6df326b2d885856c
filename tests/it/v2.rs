//! Version 2 of the protocol where it takes a process: commands and their terminals (R-TWO-11), and cancelled calls and
//! prompts with keys after a kill (R-TWO-18, R-TWO-22).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use turnwright_testing::command_lines::{line_for, run_on};
use turnwright_testing::session_requests::result;

use crate::agent::{LIMIT, TestAgent, calls, prompt, says};

#[test]
fn v2_terminals_are_the_agents_and_have_bytes_and_an_exit_status() {
    let command = line_for("printf 'one\\033[1mtwo\\n'; exit 3", "echo onetwo& exit 3");
    let run = calls("exec", &json!({ "command": command }));
    let mut agent = TestAgent::builder()
        .v2()
        .model(json!([run, says("Done.")]))
        .permission("allow_once")
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let card = agent.updates_of("tool_call_update").pop().unwrap();
    let terminal = &card["toolCallId"];
    assert_eq!(card["content"], json!([{ "type": "terminal", "terminalId": terminal }]));
    let states = agent.updates_of("terminal_update");
    let (first, last) = (&states[0], &states[states.len() - 1]);
    assert_eq!((&first["terminalId"], &first["command"]), (terminal, &json!(command)));
    assert_eq!(first["cwd"], json!(agent.workspace()));
    assert_eq!(last["exitStatus"]["exitCode"], 3);
    let bytes: Vec<u8> = agent
        .updates_of("terminal_output_chunk")
        .iter()
        .flat_map(|it| BASE64.decode(it["data"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(
        String::from_utf8(bytes).unwrap().replace("\r\n", "\n"),
        line_for("one\u{1b}[1mtwo\n", "onetwo\n")
    );
    let kinds: Vec<_> = agent.updates().iter().map(|it| it["sessionUpdate"].clone()).collect();
    let shown = agent.updates().iter().position(|it| it["content"][0]["type"] == "terminal");
    let announced = kinds.iter().position(|it| it == "terminal_update");
    assert!(announced < shown, "{kinds:?}");
}

#[test]
fn v2_terminals_show_no_key() {
    let run = calls("exec", &json!({ "command": "echo sk-test-secret-0123456789" }));
    let mut agent = TestAgent::builder()
        .v2()
        .variable("DEEPSEEK_API_KEY", "sk-test-secret-0123456789")
        .model(json!([run, says("Done.")]))
        .permission("allow_once")
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let chunks = agent.updates_of("terminal_output_chunk");
    let bytes = chunks.iter().flat_map(|it| BASE64.decode(it["data"].as_str().unwrap()).unwrap());
    let text = String::from_utf8(bytes.collect()).unwrap();
    assert!(!text.is_empty() && !text.contains("0123456789"), "{text}");
}

#[test]
fn v2_cancel_call_is_in_the_history_once_after_a_kill() {
    let run = calls("exec", &json!({ "command": run_on("608.7") }));
    let hangs = json!([{ "text": "Hm" }, { "hang": true }]);
    let mut agent = TestAgent::builder()
        .v2()
        .model(json!([run, hangs, says("Now?")]))
        .permission("allow_once")
        .start();
    agent.prompt("go");
    let call = agent.wait_for_status("in_progress")["toolCallId"].clone();
    let params = json!({ "sessionId": agent.session, "toolCallId": call });
    result(agent.call("tool_call/cancel", &params));
    agent.wait_for_status("cancelled");
    // The answer that hangs is for this turn.
    agent.model().wait_for_requests(2, LIMIT).unwrap();
    agent.kill();
    agent.restart();
    let params = json!({
        "sessionId": agent.session, "cwd": agent.workspace(), "replayFrom": { "type": "start" },
    });
    result(agent.call("session/resume", &params));
    let updates = agent.updates_of("tool_call_update");
    let states: Vec<_> = updates.iter().map(|it| (&it["toolCallId"], &it["status"])).collect();
    assert_eq!(states, [(&call, &json!("pending")), (&call, &json!("cancelled"))]);
    assert_eq!(agent.turn("and now?"), "end_turn");
    let body = agent.model().requests().last().unwrap().body.to_string();
    assert_eq!(body.matches("has cancelled this call").count(), 1, "{body}");
}

/// Kills the agent, starts it again and resumes the session.
fn resume_after_kill(agent: &mut TestAgent) {
    agent.kill();
    agent.restart();
    let params = json!({ "sessionId": agent.session, "cwd": agent.workspace() });
    result(agent.call("session/resume", &params));
}

/// The prompts of the user that the session has.
fn prompts(agent: &mut TestAgent) -> Vec<Value> {
    let params = json!({ "sessionId": agent.session });
    let history = result(agent.call("_turnwright/history", &params));
    let messages = history["messages"].as_array().unwrap().iter();
    messages.filter(|it| it["role"] == "user").map(|it| it["id"].clone()).collect()
}

#[test]
fn v2_prompt_with_a_key_is_run_once_if_the_agent_is_killed_during_its_turn() {
    let hangs = json!([{ "text": "Hm" }, { "hang": true }]);
    let mut agent = TestAgent::builder().v2().model(json!([hangs, says("Now.")])).start();
    let mut params = prompt(&agent.session, "go");
    params["idempotencyKey"] = "k".into();
    let message = result(agent.call("session/prompt", &params))["messageId"].clone();
    agent.model().wait_for_requests(1, LIMIT).unwrap();
    for _ in 0..2 {
        resume_after_kill(&mut agent);
        let state = agent.updates_of("state_update").pop().unwrap();
        assert_eq!(state["state"], "idle", "nothing of a stored session runs again by itself");
        assert_eq!(result(agent.call("session/prompt", &params))["messageId"], message);
        assert_eq!(prompts(&mut agent), std::slice::from_ref(&message));
    }
    assert_eq!(agent.model().requests().len(), 1);
    assert_eq!(agent.turn("and now?"), "end_turn");
    assert_eq!(agent.model().requests().len(), 2);
}

#[test]
fn v2_prompt_with_a_key_is_run_once_if_the_agent_is_killed_before_its_answer() {
    let done = json!({ "when": "go", "steps": says("Done.") });
    let mut agent = TestAgent::builder().v2().model(json!([says("Hello."), done, done])).start();
    assert_eq!(agent.turn("hello"), "end_turn", "the session is stored");
    let mut params = prompt(&agent.session, "go");
    params["idempotencyKey"] = "k".into();
    agent.request("session/prompt", &params);
    // It may be stored by now, or not.
    resume_after_kill(&mut agent);
    let attempts = [0, 1].map(|_| agent.request("session/prompt", &params));
    let [one, other] = attempts.map(|attempt| result(agent.answer_to(&attempt)));
    assert!(one["messageId"].is_string() && one == other, "{one} {other}");
    resume_after_kill(&mut agent);
    assert_eq!(result(agent.call("session/prompt", &params)), one);
    assert_eq!(prompts(&mut agent)[1..], [one["messageId"].clone()]);
}
