//! Helpers as child sessions (R-SUB-2 to R-SUB-6, R-TWO-23 to R-TWO-26): what a client is told of each, and what it may
//! ask for. In version 1 it has the capability `subagents`; version 2 needs none.

use serde_json::{Value, json};
use turnwright_testing::cancellation::hangs;
use turnwright_testing::cards::{self, call};
use turnwright_testing::session_requests::{code, result};

use crate::agent::{LIMIT, TestAgent, TestAgentBuilder, eventually, prompt, says};

fn v1(replies: Value) -> TestAgentBuilder {
    TestAgent::builder().model(replies).capabilities(json!({ "subagents": {} }))
}

fn v2(replies: Value) -> TestAgentBuilder {
    TestAgent::builder().v2().model(replies)
}

/// Version 1 and version 2.
const BOTH: [fn(Value) -> TestAgentBuilder; 2] = [v1, v2];

fn helper(task: &str) -> Value {
    call("agent", &json!({ "description": task, "prompt": task, "type": "explore" }))
}

fn in_background(task: &str) -> Value {
    call("agent", &json!({ "description": task, "prompt": task, "background": true }))
}

/// A reply to a request whose last prompt is this task.
fn when(task: &str, reply: Value) -> Value {
    let mut conditional = json!({ "when": task });
    conditional["steps"] = reply;
    conditional
}

/// The replies of a turn with a helper that reads a file.
fn reads() -> Value {
    json!([
        [helper("the task")],
        says("Done."),
        when("the task", json!([call("read_file", &json!({ "path": "a" }))])),
        when("the task", says("a says 1.")),
    ])
}

/// An agent whose only turn has had a helper, and the session of the helper.
fn after_a_helper(builder: TestAgentBuilder) -> (TestAgent, Value) {
    let mut agent = builder.file("a", "1\n").start();
    assert_eq!(agent.turn("go"), "end_turn");
    let child = agent.updates_of("subagent_update")[0]["sessionId"].clone();
    (agent, child)
}

/// The updates of the parent about a helper.
fn about(agent: &TestAgent, child: &Value) -> Vec<Value> {
    let updates = agent.updates_of("subagent_update");
    updates.into_iter().filter(|it| it["sessionId"] == *child).collect()
}

/// The updates of a helper's session.
fn updates_of_child(agent: &TestAgent, child: &Value) -> Vec<Value> {
    let messages = agent.log.iter().filter(|it| it["params"]["sessionId"] == *child);
    messages.map(|it| it["params"]["update"].clone()).collect()
}

/// Waits for the announcement of a helper and returns its session.
fn announced(agent: &mut TestAgent, title: &str) -> Value {
    let told = agent.wait_for("the announcement", |it| {
        let update = &it["params"]["update"];
        update["sessionUpdate"] == "subagent_update" && update["title"] == title
    });
    told["params"]["update"]["sessionId"].clone()
}

fn cancel(agent: &mut TestAgent, child: &Value) {
    agent.notify("session/cancel", &json!({ "sessionId": child }));
}

/// A state as the client is told it: in version 2 with the work in the background, of which there is none.
fn state(mut fields: Value, is_v2: bool) -> Value {
    if is_v2 {
        fields["background"] = json!([]);
    }
    fields
}

/// What a client is told of a helper that has done its task.
fn expect_patches(agent: &TestAgent, child: &Value, is_v2: bool) {
    let kind = "subagent_update";
    let expected = [
        json!({
            "sessionUpdate": kind, "sessionId": child, "title": "explore: the task",
            "description": "the task", "capabilities": { "cancel": {} },
            "state": state(json!({ "state": "running" }), is_v2),
        }),
        json!({
            "sessionUpdate": kind, "sessionId": child, "capabilities": null,
            "state": state(json!({ "state": "idle", "stopReason": "end_turn" }), is_v2),
        }),
    ];
    assert_eq!(about(agent, child), expected);
    let named = |it: &Value| it.to_string().contains(child.as_str().unwrap());
    let first = agent.log.iter().find(|it| named(it)).unwrap();
    assert_eq!(first["params"]["update"]["sessionUpdate"], kind, "nothing names it before");
}

#[test]
fn sub_2_only_what_changes_is_sent() {
    let (agent, child) = after_a_helper(v1(reads()));
    cards::check(&agent);
    expect_patches(&agent, &child, false);
}

#[test]
fn sub_2_a_helper_that_fails_is_idle_with_an_error() {
    let refuses = json!([{ "status": 400, "body": { "error": { "message": "no such thing" } } }]);
    let replies = json!([[helper("the task")], says("Done."), when("the task", refuses)]);
    for builder in [v1(replies.clone()), v2(replies.clone())] {
        let (agent, child) = after_a_helper(builder);
        let end = about(&agent, &child).pop().unwrap();
        let state = &end["state"];
        assert_eq!((&state["state"], &state["stopReason"]), (&json!("idle"), &json!("error")));
        assert_eq!(state["error"]["code"], -32603);
        let why = state["error"]["message"].as_str().unwrap();
        assert!(why.contains("no such thing"), "{why}");
    }
}

/// Cancels one of two helpers, whose parent goes on.
fn cancel_one_of_two(builder: fn(Value) -> TestAgentBuilder, is_v2: bool) {
    let replies = json!([
        [helper("task one"), helper("task two")],
        when("and now", says("Still here.")),
        when("task one", hangs()),
        when("task two", says("Found.")),
        says("Done."),
    ]);
    let mut agent = builder(replies).start();
    let id = agent.prompt("go");
    let child = announced(&mut agent, "explore: task one");
    agent.model().wait_for_requests(3, LIMIT).unwrap();
    cancel(&mut agent, &child);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
    let told = cards::results(&agent, agent.model().requests().len() - 1);
    assert!(told[0].contains("The user has cancelled the helper"), "{told:?}");
    assert!(told[1].contains("Found.") && !told[1].contains("cancelled"), "{told:?}");
    let last = about(&agent, &child).pop().unwrap();
    let cancelled = json!({ "state": "idle", "stopReason": "cancelled" });
    assert_eq!(last["state"], state(cancelled, is_v2));
    assert!(last["capabilities"].is_null() && last.get("capabilities").is_some(), "{last}");
    // It has ended, so this cancels nothing.
    cancel(&mut agent, &child);
    assert_eq!(agent.turn("and now"), "end_turn");
}

#[test]
fn sub_3_one_helper_can_be_cancelled_and_the_turn_goes_on() {
    cancel_one_of_two(v1, false);
}

#[test]
fn sub_3_the_findings_of_a_cancelled_helper_are_not_lost() {
    let looks = json!([{ "text": "The bug is in a.rs:7." }, call("list_dir", &json!({}))]);
    let replies = json!([
        [helper("task one")],
        says("Done."),
        when("task one", looks),
        when("task one", hangs()),
    ]);
    let mut agent = v1(replies).start();
    let id = agent.prompt("go");
    let child = announced(&mut agent, "explore: task one");
    agent.model().wait_for_requests(3, LIMIT).unwrap();
    cancel(&mut agent, &child);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let told = cards::results(&agent, agent.model().requests().len() - 1);
    let expected = "Its changes stay. Its last words were: The bug is in a.rs:7.";
    assert!(told[0].contains(expected), "{told:?}");
}

#[test]
fn v2_subagents_one_can_be_cancelled_and_the_turn_goes_on() {
    cancel_one_of_two(v2, true);
}

#[test]
fn v2_subagents_one_in_the_background_can_be_cancelled() {
    let replies = json!([
        [in_background("task one"), in_background("task two")],
        says("Started."),
        when("task one", hangs()),
        when("task two", hangs()),
        when("and now", says("I see.")),
    ]);
    let mut agent = v2(replies).start();
    let id = agent.prompt("go");
    let child = announced(&mut agent, "general: task one");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    agent.model().wait_for_requests(4, LIMIT).unwrap();
    cancel(&mut agent, &child);
    let is_over = |it: &Value| it["params"]["update"]["state"]["stopReason"] == "cancelled";
    let ended = agent.wait_for("the end of the helper", is_over);
    assert_eq!(ended["params"]["update"]["sessionId"], child);
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
    eventually("the news", || {
        assert_eq!(agent.turn("and now"), "end_turn");
        let last = agent.model().requests().len() - 1;
        let told = agent.model_request(last)["messages"].to_string();
        told.contains("(general: task one) has failed] The user has cancelled")
    });
    agent.cancel();
    let other = agent.wait_for("the end of the other helper", is_over);
    assert_ne!(other["params"]["update"]["sessionId"], child);
}

/// What a client asks for in the session of a helper.
fn expect_restrictions(agent: &mut TestAgent, child: &Value, methods: &[&str]) {
    for method in methods {
        let answer = agent.call(method, &json!({ "sessionId": child }));
        assert_eq!(code(&answer), -32602, "{method}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("in the session of a helper"), "{method}: {message}");
    }
    result(agent.call("session/status", &json!({ "sessionId": child })));
    let history = result(agent.call("_turnwright/history", &json!({ "sessionId": child })));
    assert!(history["messages"].to_string().contains("a says 1."), "{history}");
    assert_eq!(code(&agent.call("session/prompt", &prompt("nobody", "hi"))), -32002);
}

/// The requests of both versions that do something to a session.
const MUTATIONS: [&str; 10] = [
    "session/prompt",
    "session/set_config_option",
    "session/close",
    "session/delete",
    "session/archive",
    "session/unarchive",
    "session/set_title",
    "session/fork",
    "session/resume",
    "_session/steering",
];

#[test]
fn sub_4_nothing_else_is_possible_in_the_session_of_a_helper() {
    let (mut agent, child) = after_a_helper(v1(reads()));
    expect_restrictions(&mut agent, &child, &MUTATIONS);
    expect_restrictions(&mut agent, &child, &["session/load", "session/set_mode"]);
    agent.sync();
    assert_eq!(about(&agent, &child).len(), 2, "it was not touched");
}

#[test]
fn v2_subagents_nothing_else_is_possible_in_their_sessions() {
    let (mut agent, child) = after_a_helper(v2(reads()));
    expect_restrictions(&mut agent, &child, &MUTATIONS);
    expect_restrictions(&mut agent, &child, &["tool_call/cancel", "terminal/cancel"]);
}

/// The last update of the call of a helper.
fn expect_reference(agent: &TestAgent, child: &Value) {
    let card = agent.updates().into_iter().rfind(|it| it["status"] == "completed").unwrap();
    let content = card["content"].as_array().unwrap();
    let reference = json!({ "type": "session", "sessionId": child });
    assert!(content.len() == 2 && content[1] == reference, "{card}");
}

#[test]
fn sub_5_the_card_refers_to_the_session_of_the_helper_while_the_client_knows_it() {
    let (mut agent, child) = after_a_helper(v1(reads()));
    expect_reference(&agent, &child);
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    let card = cards::card(&agent, 0);
    assert_eq!(card["content"].as_array().unwrap().len(), 1, "{card}");
    assert!(cards::card_text(&card).starts_with("a says 1."), "{card}");
}

#[test]
fn v2_subagents_the_card_refers_to_the_session_of_the_helper() {
    let (agent, child) = after_a_helper(v2(reads()));
    expect_reference(&agent, &child);
}

/// The task and the answer of a helper.
fn expect_messages(agent: &TestAgent, child: &Value) {
    let message = |id: &str, from: &Value, to: &Value, text: &str| {
        json!({
            "sessionUpdate": "session_message", "messageId": id, "senderSessionId": from,
            "recipientSessionId": to, "content": [{ "type": "text", "text": text }],
        })
    };
    let parent = json!(agent.session);
    let expected = [
        message("task", &parent, child, "the task"),
        message("answer", child, &parent, "a says 1."),
    ];
    let updates = updates_of_child(agent, child).into_iter();
    let messages: Vec<_> = updates.filter(|it| it["sessionUpdate"] == "session_message").collect();
    assert_eq!(messages, expected);
}

#[test]
fn sub_6_the_task_and_the_answer_are_messages_between_the_sessions() {
    let (agent, child) = after_a_helper(v1(reads()));
    expect_messages(&agent, &child);
}

#[test]
fn v2_subagents_the_task_and_the_answer_are_messages_between_the_sessions() {
    let (agent, child) = after_a_helper(v2(reads()));
    expect_messages(&agent, &child);
}

#[test]
fn v2_subagents_every_client_is_told_of_each_and_sees_its_work() {
    let (agent, child) = after_a_helper(v2(reads()));
    expect_patches(&agent, &child, true);
    let updates = updates_of_child(&agent, &child);
    let of_kind = |kind: &str| -> Vec<Value> {
        updates.iter().filter(|it| it["sessionUpdate"] == kind).cloned().collect()
    };
    let kind = "state_update";
    let states = [
        state(json!({ "sessionUpdate": kind, "state": "running" }), true),
        state(json!({ "sessionUpdate": kind, "state": "idle", "stopReason": "end_turn" }), true),
    ];
    assert_eq!(of_kind(kind), states);
    assert!(updates[0] == states[0] && updates[updates.len() - 1] == states[1], "{updates:?}");
    let text: String = of_kind("agent_message_chunk")
        .iter()
        .map(|it| it["content"]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(text, "a says 1.");
    let calls = of_kind("tool_call_update");
    assert_eq!(calls.last().unwrap()["status"], "completed");
    assert!(calls.iter().all(|it| it.get("capabilities").is_none()), "{calls:?}");
}

/// The states of a helper as its parent was told them.
fn states(agent: &TestAgent, child: &Value) -> Vec<Value> {
    about(agent, child).iter().map(|it| it["state"]["state"].clone()).collect()
}

/// A helper whose call asks for permission, its session, the prompt and the question.
fn asks(builder: fn(Value) -> TestAgentBuilder) -> (TestAgent, Value, Value, Value) {
    let task = json!({ "description": "the task", "prompt": "the task" });
    let replies = json!([
        [call("agent", &task)],
        says("Done."),
        when("the task", json!([call("write_file", &json!({ "path": "a", "content": "x" }))])),
        when("the task", says("Written.")),
    ]);
    let mut agent = builder(replies).start();
    let id = agent.prompt("go");
    let child = announced(&mut agent, "general: the task");
    let question = agent.wait_for_request("session/request_permission");
    assert_eq!(states(&agent, &child), ["running", "requires_action"]);
    (agent, child, id, question)
}

#[test]
fn sub_2_a_helper_that_asks_requires_action_until_it_is_answered() {
    for (builder, is_v2) in BOTH.into_iter().zip([false, true]) {
        let (mut agent, child, id, question) = asks(builder);
        agent.choose(&question, "allow_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
        let all = ["running", "requires_action", "running", "idle"];
        assert_eq!(states(&agent, &child), all);
        let own = updates_of_child(&agent, &child).into_iter();
        let own = own.filter(|it| it["sessionUpdate"] == "state_update");
        let told: Vec<_> = own.map(|it| it["state"].clone()).collect();
        let expected: &[&str] = if is_v2 { &all } else { &[] };
        assert_eq!(told, expected);
    }
}

#[test]
fn sub_2_a_helper_whose_question_is_withdrawn_requires_no_action() {
    for builder in BOTH {
        let (mut agent, child, id, question) = asks(builder);
        cancel(&mut agent, &child);
        agent.respond(&question, &json!({ "outcome": { "outcome": "cancelled" } }));
        assert_eq!(agent.stop_reason(&id), "end_turn");
        assert_eq!(states(&agent, &child), ["running", "requires_action", "running", "idle"]);
        assert_eq!(about(&agent, &child).pop().unwrap()["state"]["stopReason"], "cancelled");
        assert!(!agent.path("a").exists());
    }
}

#[test]
fn v2_background_a_turn_goes_on_while_a_helper_that_no_call_waits_for_asks() {
    let replies = json!([
        [in_background("the task")],
        [{ "text": "Hm" }, { "hold": true }, { "text": "." }],
        when("the task", json!([call("write_file", &json!({ "path": "a", "content": "x" }))])),
        when("the task", says("Written.")),
    ]);
    let mut agent = v2(replies).start();
    let id = agent.prompt("go");
    let child = announced(&mut agent, "general: the task");
    let question = agent.wait_for_request("session/request_permission");
    assert_eq!(states(&agent, &child), ["running", "requires_action"]);
    agent.choose(&question, "allow_once");
    let is_done = |it: &Value| it["params"]["update"]["state"]["state"] == "idle";
    agent.wait_for("the end of the helper", is_done);
    assert_eq!(states(&agent, &child), ["running", "requires_action", "running", "idle"]);
    agent.model().release();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(agent.read("a"), "x");
    let told = agent.updates_of("state_update");
    assert!(told.iter().all(|it| it["state"] != "requires_action"), "{told:?}");
}

#[test]
fn v2_background_a_turn_of_which_only_a_question_of_a_helper_is_left_requires_action() {
    let replies = json!([
        [in_background("the task")],
        [{ "text": "Hm" }, { "hold": true }, { "text": "." }],
        when("the task", json!([call("write_file", &json!({ "path": "a", "content": "x" }))])),
        when("the task", says("Written.")),
    ]);
    let mut agent = v2(replies).start();
    let parent = agent.session.clone();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    agent.model().release();
    agent.wait_for("the end of the rest of the turn", |it| {
        it["params"]["sessionId"] == parent.as_str()
            && it["params"]["update"]["state"] == "requires_action"
    });
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let told = agent.updates_of("state_update");
    let mut states: Vec<_> = told.iter().map(|it| it["state"].clone()).collect();
    states.dedup();
    assert_eq!(states, ["running", "requires_action", "idle"]);
}

#[test]
fn v2_background_a_cancelled_turn_does_not_wait_for_the_question_of_a_helper() {
    let replies = json!([
        [in_background("the task")],
        [{ "text": "Hm" }, { "hold": true }, { "text": "." }],
        when("the task", json!([call("write_file", &json!({ "path": "a", "content": "x" }))])),
        when("the task", says("Written.")),
    ]);
    let mut agent = v2(replies).start();
    let id = agent.prompt("go");
    agent.wait_for_request("session/request_permission");
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    let told = agent.updates_of("state_update");
    assert!(told.iter().all(|it| it["state"] != "requires_action"), "{told:?}");
}

#[test]
fn v2_background_a_helper_that_no_call_waits_for_is_in_the_states_until_it_is_idle() {
    let held = json!([{ "text": "Hm" }, { "hold": true }, { "text": "." }]);
    let replies = json!([
        [helper("task one"), in_background("task two")],
        says("Started."),
        when("task one", says("Found.")),
        when("task two", held),
    ]);
    let mut agent = v2(replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let parent = agent.session.clone();
    let children = agent.updates_of("subagent_update");
    let child = children.iter().find(|it| it["title"] == "general: task two").unwrap();
    let work = json!([{ "type": "subagent", "sessionId": child["sessionId"] }]);
    let idle = agent.updates_of("state_update").pop().unwrap();
    assert_eq!((&idle["state"], &idle["background"]), (&json!("idle"), &work));
    agent.model().release();
    let is_over = |it: &Value| {
        it["params"]["sessionId"] == parent.as_str()
            && it["params"]["update"]["background"] == json!([])
    };
    let told = agent.wait_for("the end of the work", is_over);
    let expected = json!({ "sessionUpdate": "state_update", "state": "idle", "background": [] });
    assert_eq!(told["params"]["update"], expected, "it ends no turn");
    assert_eq!(about(&agent, &child["sessionId"]).pop().unwrap()["state"]["state"], "idle");
    let states = agent.updates_of("state_update");
    let mut lists: Vec<_> = states.iter().map(|it| it["background"].clone()).collect();
    lists.dedup();
    assert_eq!(lists, [json!([]), work, json!([])]);
}
