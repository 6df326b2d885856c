//! Slash commands (R-CMD), which are answered without the model, and their announcement (R-SESS-8),
//! which is sent once, after the client knows the session.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent::{TestAgent, prompt, says};

const ANNOUNCEMENT: &str = "available_commands_update";

fn announcements(agent: &TestAgent) -> usize {
    agent.updates_of(ANNOUNCEMENT).len()
}

#[test]
fn r_sess_8_commands_are_announced_shortly_after_the_answer_and_only_once() {
    let mut agent = TestAgent::builder().model(json!([says("Hello.")])).initialize();
    let started = Instant::now();
    agent.session = agent.new_session();
    // No update of the session may come before the answer to `session/new`.
    assert!(!agent.log.iter().any(|it| it["method"] == "session/update"), "{:?}", agent.log);
    agent.wait_for_update(ANNOUNCEMENT);
    // An editor that has not registered the session yet would drop the update.
    assert!(started.elapsed() >= Duration::from_millis(100), "after {:?}", started.elapsed());
    assert_eq!(agent.turn("hi"), "end_turn");
    agent.settle(Duration::from_millis(300));
    assert_eq!(announcements(&agent), 1);
}

#[test]
fn p0_3_a_prompt_before_the_announcement_triggers_it_and_no_timer_repeats_it() {
    let slow = json!([{ "delay_ms": 400 }, { "text": "Hello." }]);
    let mut agent = TestAgent::builder().model(json!([slow, says("Again.")])).start();
    let session = agent.session.clone();
    assert_eq!(agent.turn("hi"), "end_turn");
    // By now, a timer that was still set would have announced the commands again.
    assert_eq!(announcements(&agent), 1);
    let first = agent.log.iter().find(|it| it["params"]["sessionId"] == session.as_str()).unwrap();
    assert_eq!(first["params"]["update"]["sessionUpdate"], ANNOUNCEMENT, "{first}");
    let end = agent.log.len();
    assert_eq!(agent.turn("again"), "end_turn");
    agent.settle(Duration::from_millis(200));
    let later = agent.log[end..].iter();
    let is_announcement = |it: &&Value| it["params"]["update"]["sessionUpdate"] == ANNOUNCEMENT;
    assert_eq!(later.filter(is_announcement).count(), 0);
}

#[test]
fn p0_3_every_session_has_its_own_announcement() {
    let mut agent = TestAgent::builder().initialize();
    let sessions: Vec<_> = (0..5).map(|_| agent.new_session()).collect();
    // Some announcements may have come while the next session was opened.
    let is_announcement = |it: &&Value| it["params"]["update"]["sessionUpdate"] == ANNOUNCEMENT;
    while agent.log.iter().filter(is_announcement).count() < sessions.len() {
        agent.wait_for_update(ANNOUNCEMENT);
    }
    for session in &sessions {
        let is_of_session = |it: &&Value| it["params"]["sessionId"] == session.as_str();
        assert_eq!(agent.log.iter().filter(is_of_session).count(), 1);
        let answered =
            agent.log.iter().position(|it| it["result"]["sessionId"] == session.as_str());
        let announced = agent.log.iter().position(|it| is_of_session(&it));
        assert!(answered < announced, "{:?}", agent.log);
    }
}

#[test]
fn r_cmd_1_every_command_has_a_name_and_a_description() {
    let mut agent = TestAgent::builder().start();
    let update = agent.wait_for_update(ANNOUNCEMENT);
    let commands = update["availableCommands"].as_array().unwrap();
    let names: Vec<_> = commands.iter().map(|it| it["name"].as_str().unwrap()).collect();
    for name in ["help", "status", "clear"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for (name, hint) in [
        ("mode", json!("plan, ask, auto-edit, auto or full")),
        ("undo", json!("number of turns")),
        ("status", Value::Null),
    ] {
        let command = commands.iter().find(|it| it["name"] == name).unwrap();
        assert_eq!(command["input"]["hint"], hint, "{command}");
    }
    for command in commands {
        assert!(!command["name"].as_str().unwrap().starts_with('/'), "{command}");
        assert!(!command["description"].as_str().unwrap().is_empty(), "{command}");
    }
}

#[test]
fn r_cmd_2_status_help_and_clear_are_answered_without_the_model() {
    let mut agent = TestAgent::builder().model(json!([says("Hello.")])).start();
    let workspace = agent.workspace().to_string_lossy().into_owned();
    let table = [
        ("/status", vec!["scripted", "Ask", workspace.as_str()]),
        ("  /status  ", vec!["scripted"]),
        ("/help", vec!["/status", "/clear", "read_file", "exec"]),
        ("/help me please", vec!["/status"]),
        ("/clear", vec!["Conversation cleared"]),
    ];
    for (text, expected) in table {
        let output = agent.turn_text(text);
        for word in expected {
            assert!(output.contains(word), "{text}: no `{word}` in {output}");
        }
    }
    assert_eq!(agent.model().requests().len(), 0);
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.model_transcript(0), ["user hi"], "a command must not be in the history");
}

#[test]
fn r_cmd_2_clear_discards_the_conversation_and_status_shows_it() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    let status = |agent: &mut TestAgent| {
        let before = agent.text().len();
        agent.turn("/status");
        agent.text()[before..].to_owned()
    };
    agent.turn("remember the number 7");
    assert!(status(&mut agent).contains("Prompts so far: 1"));
    agent.turn("/clear");
    assert!(status(&mut agent).contains("Prompts so far: 0"));
    agent.turn("which number?");
    assert_eq!(agent.model_transcript(1), ["user which number?"]);
    // The first prompt after `/clear` gets the same context as the first prompt of a session.
    let body = agent.model_request(1).to_string();
    assert!(body.contains("Working folder"), "{body}");
}

#[test]
fn an_argument_that_a_command_does_not_take_is_not_ignored() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    agent.turn("remember the number 7");
    for command in ["memory add x", "clear all", "status now", "models gpt"] {
        let name = command.split(' ').next().unwrap();
        let expected = format!("Nothing was done: `/{name}` takes no argument.");
        assert_eq!(agent.turn_text(&format!("/{command}")), expected);
    }
    assert!(agent.turn_text("/status").contains("Prompts so far: 1"));
}

#[test]
fn status_shows_the_session_its_tokens_its_cost_and_the_sandbox() {
    let counted = json!([{ "text": "One." },
        { "usage": { "prompt_tokens": 1200, "completion_tokens": 34 } }]);
    let mut agent = TestAgent::builder().model(json!([counted])).start();
    assert!(agent.turn_text("/cost").contains("not counted yet"));
    agent.turn("hi");
    let status = agent.turn_text("/status");
    let session = format!("* Session: `{}`", agent.session);
    for line in [session.as_str(), "* Sandbox: ", "* Context: 1234 ", "* Cost: not known"] {
        assert!(status.contains(line), "{line}: {status}");
    }
}

#[test]
fn mode_and_model_are_commands_for_clients_without_a_menu() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    let shown = agent.turn_text("/mode");
    assert!(shown.starts_with("Mode: `ask`. `/mode NAME` changes it:"), "{shown}");
    assert_eq!(agent.turn_text("/mode auto"), "Mode: `auto`");
    let is_mode = |it: &Value| it["currentModeId"] == "auto";
    assert!(agent.updates().iter().any(is_mode), "the client was not told");
    let full = agent.turn_text("/mode full");
    assert!(full.starts_with("Nothing was changed: a message does not set"), "{full}");
    let params = json!({ "sessionId": agent.session, "modeId": "full" });
    agent.call("session/set_mode", &params);
    assert!(agent.turn_text("/permissions").contains("* Sandbox: off in this mode"));
    let wrong = agent.turn_text("/mode fast");
    assert!(wrong.starts_with("Nothing was changed: Unknown mode `fast`"), "{wrong}");
    assert!(agent.turn_text("/model").starts_with("Model: `scripted`"));
    assert_eq!(agent.turn_text("/model scripted"), "Model: `scripted`");
}

#[test]
fn r_cmd_2_other_blocks_may_accompany_a_command() {
    let mut agent = TestAgent::builder().start();
    let params = json!({ "sessionId": agent.session, "prompt": [
        { "type": "text", "text": "/status" },
        { "type": "resource_link", "uri": "file:///tmp/x", "name": "x" },
    ] });
    let answer = agent.call("session/prompt", &params);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(agent.text().contains("scripted"));
    assert_eq!(agent.model().requests().len(), 0);
}

#[test]
fn r_cmd_2_an_unknown_command_is_ordinary_text() {
    let texts = ["/unknown thing", "/", "/usr/bin/env", "/statusbar", "say /status"];
    for text in texts {
        let mut agent = TestAgent::builder().model(json!([says("A path?")])).start();
        assert_eq!(agent.turn(text), "end_turn", "{text}");
        assert_eq!(agent.model_transcript(0), [format!("user {text}").trim_end()], "{text}");
        assert_eq!(agent.text(), "A path?", "{text}");
    }
}

#[test]
fn r_cmd_2_a_command_waits_for_the_running_turn_and_does_not_disturb_it() {
    let slow = json!([{ "text": "Working" }, { "delay_ms": 100 }, { "text": " done." }]);
    let mut agent = TestAgent::builder().model(json!([slow])).start();
    let session = agent.session.clone();
    let first = agent.prompt("work");
    agent.wait_for_update("agent_message_chunk");
    let second = agent.request("session/prompt", &prompt(&session, "/status"));
    assert_eq!(agent.stop_reason(&second), "end_turn");
    assert_eq!(agent.stop_reason(&first), "end_turn");
    let position = |id: &Value| {
        agent.log.iter().position(|it| it["id"] == *id && it.get("method").is_none()).unwrap()
    };
    assert!(position(&first) < position(&second));
    assert!(agent.text().starts_with("Working done."), "{}", agent.text());
}
