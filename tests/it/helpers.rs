//! Helpers as only a process can show them: the agent is killed while one works, their commands end with
//! their session, and the command line finds their conversations.

use std::process::Stdio;

use serde_json::{Value, json};
use turnwright_testing::cancellation::assert_valid;
use turnwright_testing::cards::{self, call};
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, assert_gone, eventually, is_alive, says, subcommand};

fn helper(task: &str) -> Value {
    call("agent", &json!({ "description": task, "prompt": task }))
}

/// A reply to a request of the helper with this task. Several are given in their order.
fn when(task: &str, reply: Value) -> Value {
    let mut conditional = json!({ "when": task });
    conditional["steps"] = reply;
    conditional
}

/// Runs the program in this folder, and returns its output.
fn run(agent: &TestAgent, arguments: &[&str]) -> String {
    let mut command = subcommand(agent.home(), arguments);
    command.stdin(Stdio::null()).current_dir(agent.workspace());
    let output = process_waits::output(&mut command).unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn set_mode(agent: &mut TestAgent, mode: &str) {
    let params = json!({ "sessionId": agent.session, "modeId": mode });
    assert!(agent.call("session/set_mode", &params)["result"].is_object());
}

#[test]
fn a_kill_in_the_middle_of_a_helper_leaves_a_session_that_goes_on() {
    let write = |content: &str| call("write_file", &json!({ "path": "a", "content": content }));
    let replies = json!([
        [helper("the task")],
        when("the task", json!([write("2\n")])),
        when("the task", json!([call("write_file", &json!({ "path": "b", "content": "new\n" }))])),
        when("the task", json!([{ "hang": true }])),
        when("Go on", says("And on.")),
    ]);
    let mut agent = TestAgent::builder().model(replies).file("a", "1\n").start();
    set_mode(&mut agent, "full");
    agent.prompt("go");
    eventually("the helper's third request", || agent.model().requests().len() == 4);
    // The answer to this waits for what was written before.
    set_mode(&mut agent, "ask");
    agent.kill();
    let session = agent.session.clone();
    for round in 0..2 {
        agent.restart();
        agent.load(&session);
        let ids = cards::ids(&agent);
        assert_eq!(ids.len(), 1, "{ids:?}");
        let card = cards::card(&agent, 0);
        assert_eq!(card["status"], "failed");
        let shown = cards::card_text(&card);
        assert!(shown.contains("what has come of it is unknown"), "{shown}");
        let prompts = agent.updates().into_iter();
        let prompts = prompts.filter(|it| it["sessionUpdate"] == "user_message_chunk").count();
        assert_eq!(prompts, 1 + round, "a prompt is replayed twice or was lost");
        assert_eq!(agent.turn("Go on"), "end_turn");
        let last = agent.model().requests().len() - 1;
        let body = agent.model_request(last);
        assert_valid(&body);
        let text = body["messages"].to_string();
        assert_eq!(text.matches("what has come of it is unknown").count(), 1, "{text}");
        assert!(!text.contains("You are a helper"), "{text}");
    }
    // The repair has run nothing, and what the helper had changed can be undone.
    assert_eq!((agent.read("a"), agent.read("b")), ("2\n".to_owned(), "new\n".to_owned()));
    assert_eq!(agent.turn("/undo"), "end_turn");
    assert_eq!(agent.read("a"), "1\n", "{}", agent.text());
    assert!(!agent.path("b").exists());
    let listed = run(&agent, &["sessions", "list", "--json"]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
}

#[test]
fn the_commands_of_a_helper_end_with_it_and_with_its_session() {
    let sleep = |time: &str, background: bool| {
        call(
            "exec",
            &json!({ "command": turnwright_testing::command_lines::run_on(time), "background": background }),
        )
    };
    let replies = json!([
        [helper("the first")],
        says("Done."),
        [helper("the second")],
        when("the first", json!([sleep("7391", true)])),
        when("the first", says("It runs.")),
        when("Still running: h", says("Nobody needs it.")),
        when("the second", json!([sleep("7392", false)])),
    ]);
    let mut agent = TestAgent::builder().model(replies).start();
    set_mode(&mut agent, "full");
    let result = cards::turn(&mut agent);
    assert_eq!(result, "It runs.\n\nNobody needs it.");
    assert_gone("7391");
    agent.prompt("again");
    eventually("the command", || is_alive("7392"));
    let session = agent.session.clone();
    let answer = agent.call("session/close", &json!({ "sessionId": session }));
    assert!(answer["result"].is_object(), "{answer}");
    // Killed it is by then, but on a busy machine the kernel may not be done with it.
    assert_gone("7392");
}

#[test]
#[cfg_attr(windows, ignore = "there are no signals")]
fn the_answer_of_a_helper_that_still_ends_its_command_outlives_the_session() {
    let line = "trap 'touch told' TERM; echo begun; while :; do sleep 0.02; done";
    let task = json!({ "description": "try", "prompt": "the task", "background": true });
    let replies = json!([
        [call("agent", &task)],
        says("Started."),
        when("the task", json!([call("exec", &json!({ "command": line, "background": true }))])),
        when("the task", says("The answer is 42.")),
        when("Still running: h", says("The command is not needed.")),
        when("and now", says("I see.")),
    ]);
    let mut agent = TestAgent::builder().model(replies).start();
    set_mode(&mut agent, "full");
    assert_eq!(agent.turn("go"), "end_turn");
    // The command is told to end once the helper has answered, and is killed a little later.
    eventually("the end of the helper's turn", || agent.path("told").exists());
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    assert_eq!(agent.turn("and now"), "end_turn");
    let last = agent.model().requests().len() - 1;
    let told = agent.model_request(last)["messages"].to_string();
    assert!(told.contains("The answer is 42."), "{told}");
    assert!(!told.contains("ended with the session"), "{told}");
}

#[test]
fn the_command_line_finds_the_conversation_of_a_helper_by_its_call() {
    let replies = json!([
        [helper("the task")],
        says("Done."),
        when("the task", json!([call("read_file", &json!({ "path": "a" }))])),
        when("the task", says("a says 1.")),
    ]);
    let mut agent = TestAgent::builder().model(replies).file("a", "1\n").start();
    cards::turn(&mut agent);
    agent.close();
    let rows = run(&agent, &["history", "--json", "--tool", "agent"]);
    let row: Value = serde_json::from_str(rows.trim()).unwrap();
    let task = &row["spawn_task"];
    assert_eq!((&task["description"], &task["type"]), (&json!("the task"), &json!("general")));
    assert_eq!((&task["background"], &row["result"]), (&json!(false), &json!("a says 1.")));
    let id = task["session_id"].as_str().unwrap();
    let listed = run(&agent, &["sessions", "list", "--json", "--all"]);
    assert!(listed.lines().count() == 1 && !listed.contains(id), "{listed}");
    let shown = run(&agent, &["sessions", "show", id]);
    for part in ["general: the task", "read_file", "a says 1."] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let exported = run(&agent, &["sessions", "export", id]);
    assert!(exported.contains("a says 1."), "{exported}");
    let last = run(&agent, &["sessions", "show", "last"]);
    assert!(last.contains("Done."), "{last}");
}

#[test]
fn a_general_helper_has_the_tools_of_mcp_servers_and_asks_under_its_name() {
    let server = json!({ "tools": [{ "name": "t" }], "answers": { "t": [{ "text": "from t" }] } });
    let explore = json!({ "description": "look", "prompt": "the other", "type": "explore" });
    let replies = json!([
        [helper("the task"), call("agent", &explore)],
        says("Done."),
        when("the task", json!([call("mcp__s__t", &json!({}))])),
        when("the task", says("It works.")),
        when("the other", says("Nothing.")),
    ]);
    let mut agent = TestAgent::builder().model(replies).server("s", &server).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    let title = question["params"]["toolCall"]["title"].as_str().unwrap();
    assert!(title.starts_with("general: "), "{title}");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    let bodies = agent.model().requests().into_iter().map(|it| it.body.to_string());
    let bodies: Vec<_> = bodies.filter(|it| it.contains("You are a helper")).collect();
    assert_eq!(bodies.len(), 3);
    assert!(bodies.iter().any(|it| it.contains("from t")), "{bodies:?}");
    for body in &bodies {
        assert_eq!(body.contains("mcp__s__t"), !body.contains("the other"), "{body}");
    }
}
