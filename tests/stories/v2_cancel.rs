//! `tool_call/cancel` and `terminal/cancel` of version 2 (R-TWO-18, R-TWO-19): one call or one command ends, and
//! the turn goes on.

use std::time::Duration;

use serde_json::{Value, json};
use turnwright_testing::cancellation::hangs;
use turnwright_testing::cards;
use turnwright_testing::mcp_http_stub::McpHttpStub;
use turnwright_testing::raw_server::wait_for_the_end;
use turnwright_testing::session_requests::{code, result};
use turnwright_testing::{assert_gone, is_alive};

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, runs, says};

fn v2(replies: Value) -> TestAgentBuilder {
    TestAgent::builder().v2().model(replies)
}

/// The requests that cancel a part of the turn.
fn cancel_call(agent: &mut TestAgent, call: &Value) -> Value {
    let params = json!({ "sessionId": agent.session, "toolCallId": call });
    agent.call("tool_call/cancel", &params)
}

fn cancel_terminal(agent: &mut TestAgent, terminal: &Value) -> Value {
    let params = json!({ "sessionId": agent.session, "terminalId": terminal });
    agent.call("terminal/cancel", &params)
}

/// The updates of a call, in their order.
fn updates_of(agent: &TestAgent, call: &Value) -> Vec<Value> {
    agent.updates().into_iter().filter(|it| it["toolCallId"] == *call).collect()
}

fn statuses(agent: &TestAgent, call: &Value) -> Vec<String> {
    let updates = updates_of(agent, call).into_iter();
    let mut statuses: Vec<_> =
        updates.filter_map(|it| it["status"].as_str().map(str::to_owned)).collect();
    statuses.dedup();
    statuses
}

/// A command line that says that it has begun, and then sleeps.
fn begin_and_sleep(time: &str) -> String {
    if cfg!(windows) {
        "echo begun& type nul >started& ping -n 600 127.0.0.1 >nul".to_owned()
    } else {
        format!("echo begun; sleep {time}")
    }
}

/// Waits until `sleep` with this time runs. What the command did before it, has then happened: the time alone is on
/// the command line of the shell too, which exists before the command begins. No program of Windows lists the
/// command lines of processes, so there the command makes a file.
fn wait_for_sleep(agent: &TestAgent, time: &str) {
    let is_begun = || {
        if cfg!(windows) {
            agent.path("started").exists()
        } else {
            is_alive(&format!("sleep\0{time}"))
        }
    };
    eventually("the command sleeps", is_begun);
}

fn assert_not_asleep(time: &str) {
    if !cfg!(windows) {
        assert_gone(time);
    }
}

#[test]
fn v2_cancel_call_ends_a_command_and_the_turn_goes_on() {
    let command = &begin_and_sleep("608.1");
    let mut agent = v2(json!([runs(command), says("Then not.")])).permission("allow_once").start();
    let id = agent.prompt("go");
    let call = agent.wait_for_status("in_progress")["toolCallId"].clone();
    wait_for_sleep(&agent, "608.1");
    let offered = updates_of(&agent, &call);
    assert!(offered.iter().any(|it| it["capabilities"] == json!({ "cancel": {} })), "{offered:?}");
    assert_eq!(cancel_call(&mut agent, &call)["result"], json!({}));
    let last = agent.wait_for_status("cancelled");
    assert_eq!(last["capabilities"], Value::Null);
    assert!(last.as_object().unwrap().contains_key("capabilities"), "it is withdrawn");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_not_asleep("608.1");
    assert_eq!(statuses(&agent, &call), ["pending", "in_progress", "cancelled"]);
    let told = &cards::results(&agent, 1)[0];
    assert!(told.contains("begun") && told.contains("cancelled this call, and not your"), "{told}");
    assert_eq!(code(&cancel_call(&mut agent, &call)), -32602, "it is final");
    assert_eq!(agent.turn("and now?"), "end_turn");
}

#[test]
fn v2_cancel_call_withdraws_the_question_of_a_call_that_waits_for_it() {
    let mut agent = v2(json!([runs("touch x"), says("Then not.")])).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    let call = question["params"]["subject"]["toolCall"]["toolCallId"].clone();
    assert_eq!(cancel_call(&mut agent, &call)["result"], json!({}));
    let withdrawn = agent.wait_for("the withdrawal", |it| it["method"] == "$/cancel_request");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    agent.respond(&question, &json!({ "outcome": { "outcome": "cancelled" } }));
    assert_eq!(agent.stop_reason(&id), "end_turn", "only the call is cancelled");
    agent.choose(&question, "allow_once");
    assert_eq!(statuses(&agent, &call), ["pending", "cancelled"]);
    let told = &cards::results(&agent, 1)[0];
    assert!(told.contains("Nothing was executed: the user has cancelled this call"), "{told}");
    agent.sync();
    assert!(!agent.path("x").exists());
}

#[test]
fn v2_cancel_call_leaves_the_other_calls_of_the_answer_alone() {
    let both = json!([
        cards::call("exec", &json!({ "command": begin_and_sleep("608.2") })),
        cards::call("write_file", &json!({ "path": "x", "content": "written\n" })),
        cards::call("read_file", &json!({ "path": "x" })),
    ]);
    let mut agent = v2(json!([both, says("Done.")])).permission("allow_once").start();
    let id = agent.prompt("go");
    let call = agent.wait_for_status("in_progress")["toolCallId"].clone();
    wait_for_sleep(&agent, "608.2");
    assert_eq!(cancel_call(&mut agent, &call)["result"], json!({}));
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(agent.read("x"), "written\n");
    let told = cards::results(&agent, 1);
    assert!(told[0].contains("cancelled this call"), "{told:?}");
    assert!(told[2].contains("written"), "{told:?}");
    assert!(told[1..].iter().all(|it| !it.contains("cancelled")), "{told:?}");
}

#[test]
fn v2_cancel_call_ends_one_of_two_that_run_at_the_same_time() {
    let helper = |task: &str| {
        let task = json!({ "description": task, "prompt": task, "type": "explore" });
        cards::call("agent", &task)
    };
    let replies = json!([
        { "when": "task one", "steps": hangs() },
        { "when": "task two", "steps": says("Found.") },
        [helper("task one"), helper("task two")],
        says("Done."),
    ]);
    let mut agent = v2(replies).start();
    let id = agent.prompt("go");
    let call = agent.wait_for_status("in_progress")["toolCallId"].clone();
    agent.wait_for_status("completed");
    assert_eq!(cancel_call(&mut agent, &call)["result"], json!({}));
    agent.wait_for_status("cancelled");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let told = cards::results(&agent, agent.model().requests().len() - 1);
    assert!(told[0].contains("cancelled this call"), "{told:?}");
    assert!(told[1].contains("Found.") && !told[1].contains("cancelled"), "{told:?}");
}

#[test]
fn v2_cancel_call_ends_a_call_of_an_mcp_server() {
    let stub = McpHttpStub::start(|request, stream| {
        let is_call = request.method() == "tools/call";
        if is_call {
            wait_for_the_end(stream);
        }
        is_call
    });
    let call = calls("mcp__far__echo", &json!({ "text": "hi" }));
    let agent = v2(json!([call, says("Then not.")])).server_as(stub.server("far", &[]));
    let mut agent = agent.permission("allow_once").start();
    let id = agent.prompt("go");
    let call = agent.wait_for_status("in_progress")["toolCallId"].clone();
    stub.wait_for("the call", |it| it.method() == "tools/call");
    assert_eq!(cancel_call(&mut agent, &call)["result"], json!({}));
    agent.wait_for_status("cancelled");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    stub.wait_for("that the server is told", |it| it.method() == "notifications/cancelled");
    assert!(cards::results(&agent, 1)[0].contains("cancelled this call"));
}

#[test]
fn v2_cancel_call_of_a_helper_ends_what_the_helper_does_and_asks() {
    let task = json!({ "description": "try", "prompt": "the task", "type": "general" });
    let replies = json!([
        { "when": "the task", "steps": runs("touch x") },
        calls("agent", &task),
        says("Then not."),
    ]);
    let mut agent = v2(replies).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    let call = question["params"]["subject"]["toolCall"]["toolCallId"].clone();
    assert_eq!(cancel_call(&mut agent, &call)["result"], json!({}));
    agent.wait_for("the withdrawal", |it| it["method"] == "$/cancel_request");
    agent.wait_for_status("cancelled");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(!agent.path("x").exists());
}

#[test]
fn v2_cancel_call_twice_is_accepted_twice_until_the_call_is_final() {
    // It ends only when it is killed, as every command on Windows.
    let command = if cfg!(windows) {
        begin_and_sleep("608.3")
    } else {
        "trap '' TERM; while true; do sleep 608.3; done".to_owned()
    };
    let mut agent = v2(json!([runs(&command), says("Done.")])).permission("allow_once").start();
    let id = agent.prompt("go");
    let call = agent.wait_for_status("in_progress")["toolCallId"].clone();
    wait_for_sleep(&agent, "608.3");
    let params = json!({ "sessionId": agent.session, "toolCallId": call });
    let both = [(); 2].map(|()| agent.request("tool_call/cancel", &params));
    for request in both {
        assert_eq!(agent.answer_to(&request)["result"], json!({}));
    }
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(statuses(&agent, &call), ["pending", "in_progress", "cancelled"]);
}

#[test]
fn v2_cancel_of_what_does_not_run_is_refused() {
    let command = if cfg!(windows) { "type nul >x" } else { "touch x" };
    let mut agent = v2(json!([runs(command), says("Done.")])).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    assert_eq!(code(&cancel_call(&mut agent, &json!("call-77"))), -32602);
    assert_eq!(code(&cancel_terminal(&mut agent, &json!("call-77"))), -32602);
    let call = question["params"]["subject"]["toolCall"]["toolCallId"].clone();
    assert_eq!(code(&cancel_terminal(&mut agent, &call)), -32602, "it has no terminal yet");
    for method in ["tool_call/cancel", "terminal/cancel"] {
        let nobody = json!({ "sessionId": "x", "toolCallId": call, "terminalId": call });
        assert_eq!(code(&agent.call(method, &nobody)), -32002);
        for bad in [json!({}), json!({ "sessionId": agent.session }), json!([])] {
            assert_eq!(code(&agent.call(method, &bad)), -32602, "{bad}");
        }
    }
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn", "nothing was cancelled");
    assert!(agent.path("x").exists());
    assert_eq!(code(&cancel_terminal(&mut agent, &call)), -32602, "it has ended");
}

#[test]
fn v2_cancel_call_that_races_with_its_end_gets_one_result() {
    let command = if cfg!(windows) { "ping -n 1 127.0.0.1 >nul" } else { "sleep 0.02" };
    for delay in [0, 2, 5, 10, 20, 40] {
        let mut agent = v2(json!([runs(command), says("Done.")])).permission("allow_once").start();
        let id = agent.prompt("go");
        let call = agent.wait_for_status("in_progress")["toolCallId"].clone();
        std::thread::sleep(Duration::from_millis(delay));
        let params = json!({ "sessionId": agent.session, "toolCallId": call });
        let request = agent.request("tool_call/cancel", &params);
        assert_eq!(agent.stop_reason(&id), "end_turn");
        // It may come after the end of the turn.
        let answer = agent.answer_to(&request);
        let told = cards::results(&agent, 1);
        assert_eq!(told.len(), 1);
        let shown = statuses(&agent, &call);
        match shown.last().unwrap().as_str() {
            "cancelled" => assert!(told[0].contains("cancelled this call"), "{told:?}"),
            "completed" => assert!(!told[0].contains("cancelled"), "{told:?}"),
            other => panic!("{other}: {told:?}"),
        }
        if answer.get("error").is_some() {
            assert_eq!(code(&answer), -32602);
            assert_eq!(shown.last().unwrap(), "completed");
        }
        assert_eq!(agent.turn("and now?"), "end_turn");
    }
}

#[test]
fn v2_cancel_call_is_replayed_once_as_cancelled() {
    let command = &begin_and_sleep("608.4");
    let mut agent = v2(json!([runs(command), says("Then not.")])).permission("allow_once").start();
    let id = agent.prompt("go");
    let call = agent.wait_for_status("in_progress")["toolCallId"].clone();
    wait_for_sleep(&agent, "608.4");
    result(cancel_call(&mut agent, &call));
    assert_eq!(agent.stop_reason(&id), "end_turn");
    agent.restart();
    let params = json!({
        "sessionId": agent.session, "cwd": agent.workspace(), "replayFrom": { "type": "start" },
    });
    result(agent.call("session/resume", &params));
    assert_eq!(statuses(&agent, &call), ["pending", "cancelled"]);
    let replayed = updates_of(&agent, &call);
    assert!(replayed.iter().all(|it| it.get("capabilities").is_none()), "{replayed:?}");
    assert_eq!(code(&cancel_call(&mut agent, &call)), -32602);
    assert_eq!(agent.turn("and now?"), "end_turn");
    let body = agent.model().requests().last().unwrap().body.to_string();
    assert_eq!(body.matches("has cancelled this call").count(), 1, "{body}");
}

#[test]
fn v2_cancel_terminal_stops_its_command_and_leaves_the_call_to_the_result() {
    let command = &begin_and_sleep("608.5");
    let mut agent = v2(json!([runs(command), says("Then not.")])).permission("allow_once").start();
    let id = agent.prompt("go");
    let opened = agent.wait_for_update("terminal_update");
    assert_eq!(opened["capabilities"], json!({ "cancel": {} }));
    let terminal = opened["terminalId"].clone();
    wait_for_sleep(&agent, "608.5");
    assert_eq!(cancel_terminal(&mut agent, &terminal)["result"], json!({}));
    let is_ended = |it: &Value| {
        let update = &it["params"]["update"];
        update["terminalId"] == terminal && update["exitStatus"].is_object()
    };
    let ended = agent.wait_for("the end", is_ended)["params"]["update"].take();
    assert_eq!(ended["capabilities"], Value::Null);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(code(&cancel_terminal(&mut agent, &terminal)), -32602);
    assert_not_asleep("608.5");
    assert_eq!(statuses(&agent, &terminal), ["pending", "in_progress", "failed"]);
    let told = &cards::results(&agent, 1)[0];
    assert!(told.contains("stopped by the user") && told.contains("begun"), "{told}");
}

#[test]
fn v2_cancel_terminal_stops_a_command_in_the_background_after_its_turn() {
    let server = json!({ "command": begin_and_sleep("608.6"), "background": true });
    let replies = json!([calls("exec", &server), says("It runs."), says("It has ended.")]);
    let mut agent = v2(replies).permission("allow_once").start();
    assert_eq!(agent.turn("go"), "end_turn");
    let terminal = agent.updates().into_iter().find(|it| it["terminalId"].is_string()).unwrap();
    let terminal = terminal["terminalId"].clone();
    wait_for_sleep(&agent, "608.6");
    assert_eq!(cancel_terminal(&mut agent, &terminal)["result"], json!({}));
    let is_ended = |it: &Value| {
        let update = &it["params"]["update"];
        update["terminalId"] == terminal && update["exitStatus"].is_object()
    };
    agent.wait_for("the end", is_ended);
    assert_not_asleep("608.6");
    assert_eq!(agent.turn("and now?"), "end_turn");
    let body = agent.model_request(2).to_string();
    assert!(body.contains("ended: stopped by the user"), "{body}");
}

#[test]
fn v2_background_a_command_that_outlives_its_call_is_in_the_states_until_it_has_ended() {
    let server = json!({ "command": begin_and_sleep("608.9"), "background": true });
    let replies = json!([calls("exec", &server), says("It runs.")]);
    let mut agent = v2(replies).permission("allow_once").start();
    assert_eq!(agent.turn("go"), "end_turn");
    let terminal = agent.updates().into_iter().find(|it| it["terminalId"].is_string()).unwrap();
    let work = json!([{ "type": "terminal", "terminalId": terminal["terminalId"] }]);
    let idle = agent.updates_of("state_update").pop().unwrap();
    assert_eq!((&idle["state"], &idle["background"]), (&json!("idle"), &work));
    wait_for_sleep(&agent, "608.9");
    assert_eq!(cancel_terminal(&mut agent, &terminal["terminalId"])["result"], json!({}));
    let is_over = |it: &Value| it["params"]["update"]["background"] == json!([]);
    let told = agent.wait_for("the end of the work", is_over);
    let expected = json!({ "sessionUpdate": "state_update", "state": "idle", "background": [] });
    assert_eq!(told["params"]["update"], expected);
    let before = &agent.updates_of("terminal_update").pop().unwrap();
    assert!(before["exitStatus"].is_object(), "the end is told first: {before}");
    assert_not_asleep("608.9");
}
