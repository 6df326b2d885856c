//! Tool calls with `exec` among them, as the client and the model see them (R-TOOL).

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};
use turnwright_testing::command_lines::{run_on, then, touch, wait_for_file};

use crate::agent::{TestAgent, assert_gone, calls, says, writes};

/// The tool calls in the history that a model request contains. Requests are numbered from 0.
fn own_calls(agent: &TestAgent, number: usize) -> Vec<Value> {
    let body = agent.model_request(number);
    let messages = body["messages"].as_array().unwrap();
    let calls = messages.iter().filter_map(|it| it["tool_calls"].as_array());
    calls.flatten().cloned().collect()
}

#[test]
fn r_tool_2_two_calls_of_one_answer_with_the_same_id_are_two_calls() {
    let same = |command: &str, index: u32| {
        let arguments = json!({ "command": command });
        json!({ "call": { "name": "exec", "arguments": arguments, "id": "x", "index": index } })
    };
    let mut agent = TestAgent::builder()
        .model(json!([[same(&touch("a"), 0), same(&touch("b"), 1)], says("Done.")]))
        .permission("allow_once")
        .start();
    cards::turn(&mut agent);
    assert!(agent.path("a").exists() && agent.path("b").exists());
    let calls = own_calls(&agent, 1);
    assert_ne!(calls[0]["id"], calls[1]["id"], "{calls:?}");
}

#[test]
fn r_tool_3_and_8_a_card_has_the_kind_and_the_name_of_its_tool() {
    let table = [
        ("read_file", "read", json!({ "path": "a.txt" })),
        ("list_dir", "read", json!({})),
        ("write_file", "edit", json!({ "path": "b.txt", "content": "" })),
        ("exec", "execute", json!({ "command": "echo ok" })),
    ];
    let reply: Vec<_> = table.iter().map(|(name, _, arguments)| call(name, arguments)).collect();
    let mut agent = TestAgent::builder()
        .file("a.txt", "a\n")
        .model(json!([reply, says("Done.")]))
        .permission("allow_once")
        .start();
    cards::turn(&mut agent);
    for (number, (name, kind, arguments)) in table.iter().enumerate() {
        let card = cards::card(&agent, number);
        assert_eq!((&card["name"], &card["kind"]), (&json!(name), &json!(kind)));
        assert_eq!((&card["status"], &card["rawInput"]), (&json!("completed"), arguments));
        assert!(card["rawOutput"].is_object(), "no result: {card}");
    }
}

#[test]
fn r_tool_5_a_call_is_in_progress_after_the_permission_and_before_it_runs() {
    let replies = json!([calls("exec", &json!({ "command": "echo hi > x" })), says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).permission("allow_once").start();
    cards::turn(&mut agent);
    let mut transcript: Vec<_> = agent
        .transcript()
        .into_iter()
        .filter(|it| it.contains("call") || it.contains("perm"))
        .collect();
    // Updates without news are allowed.
    transcript.dedup();
    let id = &cards::ids(&agent)[0];
    assert_eq!(
        transcript,
        [
            format!("tool_call {id} execute echo hi > x"),
            "session/request_permission echo hi > x".to_owned(),
            format!("tool_call_update {id} in_progress"),
            format!("tool_call_update {id} completed"),
        ]
    );
}

#[test]
fn r_tool_6_a_long_command_shows_its_output_while_it_runs() {
    let command = then(&then("echo begun", &wait_for_file("go")), "echo over");
    let replies = json!([calls("exec", &json!({ "command": command })), says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).permission("allow_once").start();
    let id = agent.prompt("go");
    let shows = |message: &Value| {
        let update = &message["params"]["update"];
        update["status"] == "in_progress" && cards::card_text(update).contains("begun")
    };
    agent.wait_for("the output of the running command", shows);
    std::fs::write(agent.path("go"), "").unwrap();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    assert!(cards::card_text(&cards::card(&agent, 0)).replace('\r', "").contains("begun\nover\n"));
}

#[test]
fn r_tool_13_a_cancel_ends_all_cards_as_failed_before_the_answer() {
    let reply = json!([
        call("exec", &json!({ "command": then(&touch("begun"), &run_on("603.7")) })),
        call("exec", &json!({ "command": touch("second") }))
    ]);
    let mut agent = TestAgent::builder()
        .model(json!([reply, says("Stopped.")]))
        .permission("allow_once")
        .start();
    let id = agent.prompt("sleep");
    agent.wait_for_status("in_progress");
    let marker = agent.path("begun");
    crate::agent::eventually("the command has started", || marker.exists());
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    cards::check(&agent);
    for number in [0, 1] {
        assert_eq!(cards::card(&agent, number)["status"], "failed");
    }
    assert_gone("603.7");
    // Both calls need a result in the history: providers refuse a call without one.
    assert_eq!(agent.turn("what happened?"), "end_turn");
    assert_eq!(cards::results(&agent, 1).len(), 2);
    assert!(!agent.path("second").exists());
}

#[test]
fn a_call_is_planned_again_only_if_a_hook_has_run_for_it() {
    for (matcher, plans) in [("Bash", 1), ("Write", 2)] {
        let settings = format!(
            "mode = 'auto-edit'\n[hooks]\n\
             PreToolUse = [{{ matcher = '{matcher}', hooks = [{{ command = 'exit 0' }}] }}]\n"
        );
        let mut agent = TestAgent::builder()
            .own_file("config/config.toml", &settings)
            .variable("TURNWRIGHT_LOG", "turnwright::plan=trace")
            .noisy()
            .model(json!([writes("a.txt", "a"), says("Done.")]))
            .start();
        assert_eq!(agent.turn("write"), "end_turn");
        assert!(agent.path("a.txt").exists());
        let (_, stderr) = agent.close();
        assert_eq!(stderr.matches("turnwright::plan").count(), plans, "{matcher}: {stderr}");
    }
}
