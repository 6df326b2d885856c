//! Changes of the mode, and their effect on jobs, open permission requests and later commands.

use serde_json::json;
use turnwright_testing::cards;
use turnwright_testing::command_lines::{line_for, run_on};
use turnwright_testing::session_requests::{known_mode, set_mode};

use crate::agent::{TestAgent, calls, says};

#[test]
fn a_job_gets_neither_input_nor_a_signal_in_plan_mode() {
    let start = json!({ "command": run_on("609.35"), "background": true });
    let control = |key: &str, value: &str| {
        let mut arguments = json!({ "id": "p1", "wait": 0 });
        arguments[key] = json!(value);
        calls("exec_output", &arguments)
    };
    let mut agent = TestAgent::builder()
        .model(json!([
            calls("exec", &start),
            says("It runs."),
            control("input", "hello"),
            control("signal", "kill"),
            calls("exec_output", &json!({ "id": "p1", "wait": 0 })),
            says("So be it."),
        ]))
        .permission("allow_once")
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    set_mode(&mut agent, "plan");
    assert_eq!(agent.turn("on"), "end_turn");
    cards::check(&agent);
    let results = cards::results(&agent, 5);
    for denied in &results[1..3] {
        assert!(denied.contains("Plan mode"), "{denied}");
    }
    assert!(results[3].contains("p1 running"), "{}", results[3]);
}

#[test]
fn a_mode_that_changes_during_a_permission_request_applies_to_its_command() {
    for (mode, runs) in [("plan", false), ("auto-edit", true), ("full", true)] {
        let replies = json!([
            calls("exec", &json!({ "command": line_for("$(echo touch) mark", "type nul > mark") })),
            says("Ok.")
        ]);
        let mut agent = TestAgent::builder().model(replies).start();
        let id = agent.prompt("go");
        let question = agent.wait_for_request("session/request_permission");
        set_mode(&mut agent, mode);
        assert!(!agent.path("mark").exists(), "the command ran before the answer");
        agent.choose(&question, "allow_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
        cards::check(&agent);
        assert_eq!(agent.path("mark").exists(), runs, "{mode}");
        assert_eq!(known_mode(&agent), (mode.to_owned(), mode.to_owned()));
    }
}

#[test]
fn a_new_mode_applies_from_the_next_command_on_and_the_model_is_told_once() {
    let exec = |name: &str| {
        calls(
            "exec",
            &json!({ "command": line_for("$(echo touch) NAME", "type nul > NAME").replace("NAME", name) }),
        )
    };
    let mut agent = TestAgent::builder().model(json!([exec("a"), exec("b"), says("Ok.")])).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    set_mode(&mut agent, "full");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(cards::questions(&agent), 1);
    assert!(agent.path("a").exists() && agent.path("b").exists());
    let messages = agent.model_request(1)["messages"].to_string();
    assert!(messages.contains("Mode: full ("), "{messages}");
    let later_messages = agent.model_request(2)["messages"].to_string();
    assert_eq!(
        later_messages.matches("Mode: full (").count(),
        1,
        "the model is told more than once"
    );
}
