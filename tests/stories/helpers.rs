//! Helpers: the tool `agent` gives a task to a conversation of its own. What several of them do at the same
//! time, what the user is shown and asked, how they end, and which types there are.

use std::sync::{Arc, Barrier};

use serde_json::{Value, json};
use turnwright_testing::cancellation::{self, hangs};
use turnwright_testing::cards::{self, call};
use turnwright_testing::raw_server::{RawServer, write_stream};
use turnwright_testing::scripted_model::last_user_text;

use crate::agent::{LIMIT, TestAgent, TestAgentBuilder, eventually, says};
use crate::provider::{self, Answer, Provider, configured, has_result, plain};

/// A call that gives a helper of this type this task.
fn agent_call(kind: &str, task: &str) -> Value {
    call("agent", &json!({ "description": task, "prompt": task, "type": kind }))
}

fn in_background(task: &str) -> Value {
    call("agent", &json!({ "description": task, "prompt": task, "background": true }))
}

/// A reply to a request whose last prompt is this task. Several are given in their order.
fn when(task: &str, reply: Value) -> Value {
    let mut conditional = json!({ "when": task });
    conditional["steps"] = reply;
    conditional
}

fn helpers(replies: Value) -> TestAgentBuilder {
    TestAgent::builder().model(replies)
}

/// Returns the requests to the model whose last prompt contains this task.
fn requests_about(agent: &TestAgent, task: &str) -> Vec<Value> {
    let bodies = agent.model().requests().into_iter().map(|it| it.body);
    bodies.filter(|it| last_user_text(it).contains(task)).collect()
}

fn tool_names(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|it| it["function"]["name"].as_str().unwrap().to_owned()).collect()
}

fn last_results(agent: &TestAgent) -> Vec<String> {
    cards::results(agent, agent.model().requests().len() - 1)
}

#[test]
fn two_read_side_by_side_while_a_third_edits() {
    let replies = json!([
        [
            agent_call("explore", "task one"),
            agent_call("explore", "task two"),
            agent_call("general", "task three")
        ],
        says("All three are done."),
        when("task one", json!([call("read_file", &json!({ "path": "a" }))])),
        when("task one", says("a says 1.")),
        when("task two", json!([call("read_file", &json!({ "path": "b" }))])),
        when("task two", says("b says 2.")),
        when("task three", json!([call("write_file", &json!({ "path": "c", "content": "3\n" }))])),
        when("task three", says("c is written.")),
    ]);
    let mut agent = helpers(replies)
        .file("a", "1\n")
        .file("b", "2\n")
        .capabilities(json!({ "fs": { "readTextFile": true } }))
        .start();
    let id = agent.prompt("go");
    // All three are at work before one of them is answered.
    let (mut reads, mut question) = (Vec::new(), None);
    while reads.len() < 2 || question.is_none() {
        let request =
            agent.wait_for("a request", |it| it["method"].is_string() && it.get("id").is_some());
        match request["method"].as_str().unwrap() {
            "fs/read_text_file" => reads.push(request),
            "session/request_permission" => question = Some(request),
            other => panic!("{other}"),
        }
    }
    let question = question.unwrap();
    assert_eq!(question["params"]["sessionId"], agent.session.as_str());
    let asked = &question["params"]["toolCall"];
    assert_eq!(
        (&asked["toolCallId"], &asked["title"]),
        (&json!(cards::ids(&agent)[2]), &json!("general: Create c"))
    );
    agent.choose(&question, "allow_once");
    for read in &reads {
        agent.respond(read, &json!({ "content": "editor\n" }));
    }
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    assert_eq!(agent.read("c"), "3\n");
    assert_eq!(last_results(&agent), ["a says 1.", "b says 2.", "c is written."]);
    for task in ["task one", "task two", "task three"] {
        let requests = requests_about(&agent, task);
        assert_eq!(requests.len(), 2, "{task}");
        requests.iter().for_each(cancellation::assert_valid);
    }
}

#[test]
fn a_helper_starts_with_its_task_and_without_the_conversation() {
    let replies = json!([
        [agent_call("explore", "find it")],
        says("Found."),
        when("find it", says("It is at src/a.rs:1.")),
    ]);
    let mut agent = helpers(replies).file("AGENTS.md", "Use tabs.\n").start();
    assert_eq!(agent.turn("a secret of the conversation"), "end_turn");
    cards::check(&agent);
    let body = &requests_about(&agent, "find it")[0];
    let text = body["messages"].to_string();
    assert!(!text.contains("a secret of the conversation"), "{text}");
    for part in ["You are a helper", "Use tabs.", "Working folder: ", "Mode: ask"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(tool_names(body), ["find_files", "grep", "list_dir", "read_file", "web_fetch"]);
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["kind"]), (&json!("explore: find it"), &json!("think")));
    let shown = cards::card_text(&card);
    assert!(shown.starts_with("It is at src/a.rs:1.") && shown.contains("0 tool calls"), "{shown}");
}

#[test]
fn a_helper_starts_no_helpers_and_ends_no_turn_with_a_question() {
    let replies = json!([
        [agent_call("general", "the task")],
        says("Done."),
        when(
            "the task",
            json!([
                agent_call("general", "deeper"),
                call("ask_user", &json!({ "question": "Why?" }))
            ])
        ),
        when("the task", says("I cannot.")),
    ]);
    let mut agent = helpers(replies).start();
    assert_eq!(cards::turn(&mut agent), "I cannot.");
    let requests = requests_about(&agent, "the task");
    let names = tool_names(&requests[0]);
    for tool in ["agent", "ask_user", "exit_plan", "plan"] {
        assert!(!names.iter().any(|it| it == tool), "{tool}: {names:?}");
    }
    assert!(names.iter().any(|it| it == "exec"), "{names:?}");
    let text = requests[1]["messages"].to_string();
    assert_eq!(text.matches("is not allowed in this session").count(), 2, "{text}");
}

#[test]
fn an_answer_for_the_session_covers_the_helper_and_its_session() {
    let append = |line: &str| {
        let content = format!("{line}\n");
        call("write_file", &json!({ "path": "log", "content": content, "mode": "append" }))
    };
    let replies = json!([
        [agent_call("general", "the task")],
        [append("z")],
        says("Done."),
        when("the task", json!([append("x")])),
        when("the task", json!([append("y")])),
        when("the task", says("Written twice.")),
    ]);
    let mut agent = helpers(replies).permission("allow_always").start();
    cards::turn(&mut agent);
    assert_eq!((agent.read("log").as_str(), cards::questions(&agent)), ("x\ny\nz\n", 1));
}

#[test]
fn the_model_is_told_that_the_user_has_rejected_a_call_of_its_helper() {
    let write = call("write_file", &json!({ "path": "a", "content": "1" }));
    let read = call("read_file", &json!({ "path": "a" }));
    for (step, is_rejected) in [(write, true), (read, false)] {
        let replies = json!([
            [agent_call("general", "the task")],
            says("I leave it."),
            when("the task", json!([step])),
            when("the task", says("All is done.")),
        ]);
        let mut agent = helpers(replies).file("a", "0\n").permission("reject_once").start();
        let result = cards::turn(&mut agent);
        assert!(result.starts_with("All is done."), "{result}");
        assert_eq!(result.contains("The user rejected a call"), is_rejected, "{result}");
    }
}

#[test]
fn a_cancel_ends_the_helper_with_its_turn() {
    let replies = json!([
        [agent_call("general", "the task"), agent_call("explore", "the other")],
        cancellation::next_reply(),
        when("the task", hangs()),
        when("the other", hangs()),
    ]);
    let mut agent = helpers(replies).start();
    let id = agent.prompt("go");
    agent.model().wait_for_requests(3, LIMIT).unwrap();
    cancellation::cancel_and_go_on(&mut agent, &id);
    agent.model().wait_for_hang_ups(2, LIMIT).unwrap();
    assert_eq!(cards::card_text(&cards::card(&agent, 0)).lines().next(), Some("Cancelled"));
}

#[test]
fn a_cancel_during_a_question_of_a_helper_withdraws_it() {
    let replies = json!([
        [agent_call("general", "the task")],
        cancellation::next_reply(),
        when("the task", json!([call("write_file", &json!({ "path": "a", "content": "x" }))])),
    ]);
    let mut agent = helpers(replies).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    agent.cancel();
    agent.respond(&question, &json!({ "outcome": { "outcome": "cancelled" } }));
    cancellation::expect_cancelled(&mut agent, &id);
    cancellation::go_on(&mut agent);
    assert!(!agent.path("a").exists());
}

#[test]
fn the_card_of_a_helper_does_not_change_while_it_shows_a_question() {
    let read = |path: &str| when("the other", json!([call("read_file", &json!({ "path": path }))]));
    let replies = json!([
        [agent_call("general", "the task"), agent_call("general", "the other")],
        says("Done."),
        when("the task", json!([call("write_file", &json!({ "path": "a", "content": "x" }))])),
        when("the task", says("Written.")),
        read("b"),
        read("c"),
        read("d"),
        when("the other", says("Read.")),
    ]);
    let files = helpers(replies).file("b", "1\n").file("c", "2\n").file("d", "3\n");
    let mut agent = files.capabilities(json!({ "fs": { "readTextFile": true } })).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    // The steps of the other helper are shown at two times, between which the first could have shown its own.
    for (path, shown) in [("/b", "2 tool calls"), ("/c", "3 tool calls")] {
        let request = wait_for_read(&mut agent, path);
        agent.respond(&request, &json!({ "content": "0\n" }));
        agent.wait_for(shown, |message| message["params"]["update"].to_string().contains(shown));
    }
    let call = &question["params"]["toolCall"]["toolCallId"];
    let later = agent.log.iter().skip_while(|message| **message != question);
    let of_card = later.filter(|message| message["params"]["update"]["toolCallId"] == *call);
    assert_eq!(of_card.count(), 0);
    agent.choose(&question, "allow_once");
    let request = wait_for_read(&mut agent, "/d");
    agent.respond(&request, &json!({ "content": "0\n" }));
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    assert_eq!(agent.read("a"), "x");
}

#[test]
fn no_helper_is_left_when_its_session_is_closed() {
    let replies = json!([
        [in_background("the task"), agent_call("explore", "the other")],
        when("the task", hangs()),
        when("the other", hangs()),
    ]);
    let mut agent = helpers(replies).start();
    agent.prompt("go");
    agent.model().wait_for_requests(3, LIMIT).unwrap();
    let session = agent.session.clone();
    let answer = agent.call("session/close", &json!({ "sessionId": session }));
    assert!(answer["result"].is_object(), "{answer}");
    agent.model().wait_for_hang_ups(2, LIMIT).unwrap();
    assert_eq!(agent.model().requests().len(), 3);
}

#[test]
fn the_model_is_told_once_when_a_helper_in_the_background_is_done() {
    let replies = json!([
        [in_background("the task")],
        says("Started."),
        when("the task", says("The answer is 42.")),
        when("and now", says("I see.")),
    ]);
    let mut agent = helpers(replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    assert!(last_results(&agent).is_empty() || agent.text().contains("Started."));
    let card = cards::card(&agent, 0);
    assert!(cards::card_text(&card).starts_with("Works in the background as h"), "{card}");
    let told = |agent: &TestAgent| {
        let last = agent.model().requests().len() - 1;
        agent.model_request(last)["messages"].to_string().matches("The answer is 42.").count()
    };
    eventually("the end of the helper", || {
        assert_eq!(agent.turn("and now"), "end_turn");
        told(&agent) > 0
    });
    assert_eq!(agent.turn("and now"), "end_turn");
    assert_eq!(told(&agent), 1);
    let history = agent.call("_turnwright/history", &json!({ "sessionId": agent.session }));
    let call = history.pointer("/result/messages/1/tool_calls/0").cloned().unwrap_or_default();
    assert_eq!(
        (&call["status"], &call["spawn_task"]["background"]),
        (&json!("success"), &json!(true))
    );
    let last = agent.model().requests().len() - 1;
    assert!(
        agent.model_request(last)["messages"].to_string().contains("(general: the task) is done]")
    );
}

#[test]
fn after_a_summary_the_model_knows_which_helpers_are_in_the_background() {
    let task = json!({ "description": "look", "prompt": "the task", "background": true });
    let replies = json!([
        [call("agent", &task)],
        says("Started."),
        says("A summary."),
        says("It goes on."),
        when("the task", hangs()),
    ]);
    let mut agent = helpers(replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    agent.model().wait_for_requests(3, LIMIT).unwrap();
    assert_eq!(agent.turn("/compact"), "end_turn");
    assert_eq!(agent.turn("What now?"), "end_turn");
    let last = agent.model_request(agent.model().requests().len() - 1)["messages"].to_string();
    assert!(last.contains("in the background, whose answers you get: general: look"), "{last}");
}

/// Starts a turn with a helper in the background that reads a file of the editor and then writes `a`.
/// Returns the request for that file, too.
fn writes_in_background(replies: &[Value]) -> (TestAgent, Value, Value) {
    let write = call("write_file", &json!({ "path": "a", "content": "x" }));
    let mut all = vec![
        json!([in_background("the task")]),
        when("the task", json!([call("read_file", &json!({ "path": "b" }))])),
        when("the task", json!([write])),
    ];
    all.extend_from_slice(replies);
    let capabilities = json!({ "fs": { "readTextFile": true } });
    let files = helpers(all.into()).file("b", "2\n").file("c", "3\n");
    let mut agent = files.capabilities(capabilities).start();
    let id = agent.prompt("go");
    let read = wait_for_read(&mut agent, "/b");
    (agent, id, read)
}

/// Waits for a request for this file of the editor.
fn wait_for_read(agent: &mut TestAgent, path: &str) -> Value {
    let is_of = |it: &Value| {
        it["params"]["path"].as_str().is_some_and(|it| it.replace('\\', "/").ends_with(path))
    };
    let fits = |it: &Value| it["method"] == "fs/read_text_file" && is_of(it);
    if let Some(request) = agent.log.iter().find(|it| fits(it)) {
        return request.clone();
    }
    agent.wait_for("the request for a file", fits)
}

#[test]
fn a_helper_in_the_background_asks_while_a_turn_runs_which_waits_for_the_answer() {
    let replies = [
        json!([agent_call("explore", "the other")]),
        says("Both are at work."),
        when("the other", json!([call("read_file", &json!({ "path": "c" }))])),
        when("the other", says("c says 3.")),
        when("the task", says("Written.")),
    ];
    for allowed in [true, false] {
        let (mut agent, id, read) = writes_in_background(&replies);
        let other = wait_for_read(&mut agent, "/c");
        agent.respond(&read, &json!({ "content": "2\n" }));
        let question = agent.wait_for_request("session/request_permission");
        assert_eq!(question["params"]["toolCall"]["title"], "general: Create a");
        agent.respond(&other, &json!({ "content": "3\n" }));
        agent.wait_for("the answer", |it| it.to_string().contains("Both are at work."));
        agent.sync();
        assert!(agent.log.iter().all(|it| it["result"]["stopReason"].is_null()));
        agent.choose(&question, if allowed { "allow_once" } else { "reject_once" });
        assert_eq!(agent.stop_reason(&id), "end_turn");
        cards::check(&agent);
        let card = cards::card(&agent, 2);
        let end = if allowed { ("Allowed", "completed") } else { ("Not allowed", "failed") };
        assert_eq!((cards::card_text(&card).as_str(), card["status"].as_str().unwrap()), end);
        eventually("the end", || requests_about(&agent, "the task").len() == 3);
        assert_eq!(agent.path("a").exists(), allowed);
    }
}

#[test]
fn a_cancel_withdraws_the_question_of_a_helper_in_the_background() {
    let (mut agent, id, read) = writes_in_background(&[hangs(), cancellation::next_reply()]);
    agent.respond(&read, &json!({ "content": "2\n" }));
    let question = agent.wait_for_request("session/request_permission");
    agent.cancel();
    agent.respond(&question, &json!({ "outcome": { "outcome": "cancelled" } }));
    cancellation::expect_cancelled(&mut agent, &id);
    cards::check(&agent);
    cancellation::go_on(&mut agent);
    assert!(!agent.path("a").exists());
}

#[test]
fn a_helper_in_the_background_asks_nobody_when_no_turn_runs_and_a_cancel_ends_it() {
    let replies = [says("Started."), when("the task", hangs()), when("and now", says("I see."))];
    let (mut agent, id, read) = writes_in_background(&replies);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    agent.respond(&read, &json!({ "content": "2\n" }));
    eventually("the refusal", || requests_about(&agent, "the task").len() == 3);
    let text = requests_about(&agent, "the task")[2]["messages"].to_string();
    assert!(text.contains("cannot ask the user when no turn runs"), "{text}");
    assert!(!agent.path("a").exists() && cards::questions(&agent) == 0);
    agent.cancel();
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
    eventually("the news", || {
        assert_eq!(agent.turn("and now"), "end_turn");
        let last = agent.model().requests().len() - 1;
        agent.model_request(last)["messages"]
            .to_string()
            .contains("has failed] The user has cancelled")
    });
}

#[test]
fn a_helper_without_requests_left_is_asked_for_its_answer() {
    // Equal calls would end it earlier.
    let read = |line: usize| {
        let arguments = json!({ "path": "a", "start_line": line, "end_line": line });
        when("the task", json!([call("read_file", &arguments)]))
    };
    let mut replies = vec![json!([agent_call("explore", "the task")]), says("Done.")];
    replies.extend((1..=40).map(read));
    replies.push(when("Answer now with what you", says("I have read a.")));
    let mut agent = helpers(json!(replies)).file("a", &"1\n".repeat(40)).start();
    let answer = cards::turn(&mut agent);
    assert!(answer.starts_with("I have read a.\n[incomplete: "), "{answer}");
    assert_eq!(requests_about(&agent, "the task").len(), 30);
    let last = requests_about(&agent, "Answer now with what you");
    assert_eq!(last.len(), 1);
    assert_eq!(agent.model().requests().len(), 30 + 1 + 2);
    // Otherwise the provider would not have the list in its cache.
    assert!(!tool_names(&last[0]).is_empty());
    cancellation::assert_valid(&last[0]);
    let shown = cards::card_text(&cards::card(&agent, 0));
    assert!(shown.contains("30 tool calls") || shown.contains("29 tool calls"), "{shown}");
}

#[test]
fn a_report_before_the_last_call_of_a_helper_is_not_lost() {
    let report = "A finding of many words. ".repeat(50);
    let read = call("read_file", &json!({ "path": "a" }));
    let replies = json!([
        [agent_call("explore", "the task")],
        says("Done."),
        when("the task", json!([{ "text": "I look around." }, read])),
        when("the task", json!([{ "text": report }, read])),
        when("the task", says("My report is above.")),
    ]);
    let mut agent = helpers(replies).file("a", "1\n").start();
    let result = cards::turn(&mut agent);
    assert_eq!(result, format!("{}\n\nMy report is above.", report.trim()));
}

#[test]
fn a_long_answer_is_cut_and_the_rest_can_be_read() {
    let long = "An answer of many words. ".repeat(1_000);
    let replies =
        json!([[agent_call("explore", "the task")], says("Done."), when("the task", says(&long)),]);
    let mut agent = helpers(replies).start();
    let result = cards::turn(&mut agent);
    assert!(result.len() <= 8 * 1024 && result.len() > 8_000, "{}", result.len());
    let path = result.rsplit("read_file ").next().unwrap().trim_end_matches(']').to_owned();
    agent.model().push(json!([call("read_file", &json!({ "path": path }))])).unwrap();
    agent.model().push(says("Read.")).unwrap();
    let whole = cards::turn(&mut agent);
    assert!(whole.contains("An answer of many words. An answer"), "{whole}");
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn what_helpers_change_is_undone_with_the_turn() {
    let write = |content: &str| call("write_file", &json!({ "path": "a", "content": content }));
    let replies = json!([
        [agent_call("general", "the task")],
        says("Done."),
        when("the task", json!([write("2\n")])),
        when("the task", json!([write("3\n")])),
        when("the task", json!([call("write_file", &json!({ "path": "b", "content": "new\n" }))])),
        when("the task", says("Written.")),
    ]);
    let mut agent = helpers(replies).file("a", "1\n").permission("allow_once").start();
    cards::turn(&mut agent);
    assert_eq!(agent.read("a"), "3\n");
    assert_eq!(agent.turn("/undo"), "end_turn");
    assert_eq!(agent.read("a"), "1\n", "{}", agent.text());
    assert!(!agent.path("b").exists());
    assert_eq!(agent.turn("/redo"), "end_turn");
    assert_eq!((agent.read("a"), agent.read("b")), ("3\n".to_owned(), "new\n".to_owned()));
}

#[test]
fn a_loaded_session_has_the_answer_of_a_helper_and_not_its_conversation() {
    let replies = json!([
        [agent_call("explore", "the task")],
        says("Done."),
        when("the task", json!([call("read_file", &json!({ "path": "a" }))])),
        when("the task", says("a says 1.")),
        when("and now", says("I see.")),
    ]);
    let mut agent = helpers(replies).file("a", "1\n").start();
    cards::turn(&mut agent);
    let session = agent.session.clone();
    let history = agent.call("_turnwright/history", &json!({ "sessionId": session }));
    let task =
        history.pointer("/result/messages/1/tool_calls/0/spawn_task").cloned().unwrap_or_default();
    assert_eq!((&task["description"], &task["type"]), (&json!("the task"), &json!("explore")));
    let helper = task["session_id"].as_str().unwrap().to_owned();
    let listed = agent.call("session/list", &json!({}));
    let ids: Vec<_> = listed["result"]["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["sessionId"].clone())
        .collect();
    assert_eq!(ids, [json!(session)]);

    agent.restart();
    agent.load(&session);
    assert_eq!(cards::ids(&agent).len(), 1);
    assert_eq!(agent.turn("and now"), "end_turn");
    assert_eq!(last_results(&agent), ["a says 1."]);
    // Its conversation is a session that can be read.
    let history = agent.call("_turnwright/history", &json!({ "sessionId": helper }));
    let messages = history["result"]["messages"].to_string();
    assert!(messages.contains("the task") && messages.contains("read_file"), "{messages}");
    let deleted = agent.call("session/close", &json!({ "sessionId": session }));
    assert!(deleted["result"].is_object(), "{deleted}");
    // Such as the whole result of an MCP tool.
    let outputs = agent.home().join("state/outputs").join(&helper);
    std::fs::create_dir_all(&outputs).unwrap();
    agent.call("session/delete", &json!({ "sessionId": session }));
    let history = agent.call("_turnwright/history", &json!({ "sessionId": helper }));
    assert!(history["error"].is_object(), "{history}");
    assert!(!outputs.exists(), "the outputs of a helper outlive it");
}

#[test]
fn a_client_with_subagents_sees_each_helper_as_a_session_below_its_own() {
    let replies = json!([
        [agent_call("explore", "the task"), in_background("the other")],
        says("Done."),
        when("the task", json!([call("read_file", &json!({ "path": "a" }))])),
        when("the task", says("a says 1.")),
        when("the other", says("Nothing.")),
    ]);
    let capabilities = json!({ "subagents": {} });
    let mut agent = helpers(replies).file("a", "1\n").capabilities(capabilities).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    // The one in the background may end after the turn.
    let end = json!({ "state": "idle", "stopReason": "end_turn" });
    while agent.updates().iter().filter(|it| it["state"] == end).count() < 2 {
        agent.wait_for_update("subagent_update");
    }
    let updates = || agent.log.iter().filter(|it| it["method"] == "session/update");
    let states = agent.updates_of("subagent_update");
    assert_eq!(states.len(), 4, "{states:?}");
    let first = states.iter().find(|it| it["title"] == "explore: the task").unwrap();
    let titles: Vec<_> = states.iter().filter_map(|it| it["title"].as_str()).collect();
    assert!(titles.contains(&"general: the other"), "{titles:?}");
    let of_first = |it: &Value| it["sessionId"] == first["sessionId"];
    let states: Vec<_> = states.iter().filter(|it| of_first(it)).collect();
    assert_eq!(states[0]["state"], json!({ "state": "running" }));
    assert_eq!(states[1]["state"], json!({ "state": "idle", "stopReason": "end_turn" }));
    let child = &states[0]["sessionId"];
    assert!(states[1]["sessionId"] == *child && *child != json!(agent.session));
    // It is announced before its first update and ends after the last.
    let place = |fits: &dyn Fn(&Value) -> bool| -> Vec<usize> {
        updates().enumerate().filter(|(_, it)| fits(it)).map(|it| it.0).collect()
    };
    let is_state = |it: &Value| it["params"]["update"]["sessionUpdate"] == "subagent_update";
    let announced = place(&|it| is_state(it) && it["params"]["update"]["sessionId"] == *child);
    let shown = place(&|it| it["params"]["sessionId"] == *child);
    assert!(
        announced[0] < shown[0] && shown[shown.len() - 1] < announced[1],
        "{announced:?} {shown:?}"
    );
    let of_child = updates().filter(|it| it["params"]["sessionId"] == *child);
    let kinds: Vec<_> =
        of_child.map(|it| it["params"]["update"]["sessionUpdate"].clone()).collect();
    assert_eq!(kinds[0], "session_message");
    for kind in ["tool_call", "tool_call_update", "agent_message_chunk"] {
        assert!(kinds.contains(&json!(kind)), "{kind}: {kinds:?}");
    }
    assert_eq!(cards::ids(&agent).len(), 2);
}

#[test]
fn more_helpers_than_calls_can_run_do_not_wait_for_each_other() {
    let tasks: Vec<_> = (0..12).map(|it| agent_call("explore", &format!("task {it}."))).collect();
    let mut replies = vec![json!(tasks), says("Done.")];
    for number in 0..12 {
        let task = format!("task {number}.");
        replies.push(when(&task, json!([call("read_file", &json!({ "path": "a" }))])));
        replies.push(when(&task, says(&format!("answer {number}"))));
    }
    let mut agent = helpers(replies.into()).file("a", "1\n").start();
    cards::turn(&mut agent);
    let expected: Vec<_> = (0..12).map(|it| format!("answer {it}")).collect();
    assert_eq!(last_results(&agent), expected);
}

#[test]
fn helpers_of_a_server_with_one_slot_work_one_after_the_other() {
    let server = RawServer::with_models(|_, request, stream| {
        let body = request.split_once("\r\n\r\n").map_or("", |it| it.1);
        let Ok(body) = serde_json::from_str::<Value>(body) else {
            let props =
                json!({ "default_generation_settings": { "n_ctx": 8_192 }, "total_slots": 1 });
            let model = json!({ "id": "m", "object": "model", "owned_by": "llamacpp" });
            let models = json!({ "object": "list", "data": [model] });
            return plain(stream, 200, if request.contains("/props ") { &props } else { &models });
        };
        let prompt = last_user_text(&body);
        // The first prompt of a session is followed by its context.
        let said = prompt.lines().next().unwrap();
        let events = match (said.starts_with("task "), has_result(&body)) {
            (true, false) => vec![calls_event(&[("list_dir", json!({}))])],
            (false, false) if said == "go" => {
                let task = |it: u8| json!({ "description": "t", "prompt": format!("task {it}.") });
                vec![calls_event(&[1, 2, 3].map(|it| ("agent", task(it))))]
            }
            _ => vec![json!({ "choices": [
                { "index": 0, "delta": { "content": "Done." }, "finish_reason": "stop" }
            ] })],
        };
        let lines: Vec<_> = events.iter().map(|it| format!("data: {it}\n\n")).collect();
        write_stream(stream, &format!("{}data: [DONE]\n\n", lines.concat()));
    });
    let settings = format!("model = 'p/m'\n[providers.p]\nbase_url = '{}'", server.base_url());
    let mut agent = configured(&settings).start();
    eventually("the server is asked", || {
        assert_eq!(agent.turn("hi"), "end_turn");
        let shown = agent.updates();
        shown.iter().any(|it| it["sessionUpdate"] == "usage_update" && it["size"] == 8_192)
    });
    assert_eq!(agent.turn("go"), "end_turn");
    let tasks: Vec<_> = server
        .requests()
        .iter()
        .filter_map(|it| serde_json::from_str(it.split_once("\r\n\r\n")?.1).ok())
        .filter_map(|it| Some(last_user_text(&it).strip_prefix("task ")?.as_bytes()[0]))
        .collect();
    assert_eq!(tasks.len(), 6, "{tasks:?}");
    assert!(tasks.chunks(2).all(|it| it[0] == it[1]), "{tasks:?}");
}

/// An event with these calls.
fn calls_event(calls: &[(&str, Value)]) -> Value {
    let call = |(number, (name, arguments)): (usize, &(&str, Value))| {
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        json!({ "index": number, "id": format!("c{number}"), "function": function })
    };
    let calls: Vec<_> = calls.iter().enumerate().map(call).collect();
    json!({ "choices": [
        { "index": 0, "delta": { "tool_calls": calls }, "finish_reason": "tool_calls" }
    ] })
}

/// An answer with these words, to which events can be added.
fn events(words: &str) -> Answer {
    let words = json!({ "index": 0, "delta": { "content": words } });
    let finish = json!({ "index": 0, "delta": {}, "finish_reason": "stop" });
    Answer::Events([words, finish].map(|it| json!({ "choices": [it] })).to_vec())
}

#[test]
fn what_a_helper_costs_is_added_to_its_session() {
    let provider = Provider::answering(move |request| {
        let is_helper = request["messages"][0].to_string().contains("You are a helper");
        let (answer, input) = match (is_helper, has_result(request)) {
            (true, _) => (events("Found."), 500),
            (false, true) => (events("Done."), 3000),
            (false, false) => {
                let task =
                    json!({ "description": "look", "prompt": "the task", "type": "explore" });
                (provider::calls("agent", &task), 1000)
            }
        };
        let Answer::Events(mut events) = answer else { return answer };
        let counted =
            json!({ "prompt_tokens": input, "completion_tokens": 0, "total_tokens": input });
        events.push(json!({ "choices": [], "usage": counted }));
        Answer::Events(events)
    });
    let price = "[providers.p.model.m]\nwindow = 10000\nprice = { input = 1.0, output = 1.0 }";
    let settings = format!("model = 'p/m'\n{}", provider.section("p", price));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let gauges = agent.updates_of("usage_update");
    let used: Vec<_> = gauges.iter().map(|it| it["used"].as_u64().unwrap()).collect();
    assert_eq!(used, [1000, 3000], "the gauge is about the session's own window");
    let cost = gauges[1]["cost"]["amount"].as_f64().unwrap();
    assert!((cost - 0.0045).abs() < 1e-9, "{cost}");
    let shown = cards::card_text(&cards::card(&agent, 0));
    assert!(shown.contains("0 tool calls, 500 tokens"), "{shown}");
}

#[test]
fn what_a_helper_costs_that_ends_after_the_last_turn_is_kept_over_a_restart() {
    let turn_has_ended = Arc::new(Barrier::new(2));
    let waiting = Arc::clone(&turn_has_ended);
    let provider = Provider::answering(move |request| {
        let is_helper = request["messages"][0].to_string().contains("You are a helper");
        let (answer, input) = match (is_helper, has_result(request)) {
            (true, _) => {
                waiting.wait();
                (events("Found."), 500)
            }
            (false, true) => (events("Started."), 3000),
            (false, false) => {
                let task = json!({ "description": "look", "prompt": "the task",
                    "type": "explore", "background": true });
                (provider::calls("agent", &task), 1000)
            }
        };
        let Answer::Events(mut events) = answer else { return answer };
        let counted = json!({ "prompt_tokens": input, "completion_tokens": 0 });
        events.push(json!({ "choices": [], "usage": counted }));
        Answer::Events(events)
    });
    let price = "[providers.p.model.m]\nwindow = 10000\nprice = { input = 1.0, output = 1.0 }";
    let settings = format!("model = 'p/m'\n{}", provider.section("p", price));
    let capabilities = json!({ "subagents": {} });
    let mut agent = configured(&settings).capabilities(capabilities).start();
    assert_eq!(agent.turn("go"), "end_turn");
    turn_has_ended.wait();
    agent
        .wait_for("the end of the helper", |it| it["params"]["update"]["state"]["state"] == "idle");
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    let gauge = agent.updates_of("usage_update").pop().unwrap();
    let cost = gauge["cost"]["amount"].as_f64().unwrap();
    assert!((cost - 0.0045).abs() < 1e-9, "{cost}");
}

#[test]
fn an_answer_that_the_model_has_not_read_outlives_its_session() {
    let read = call("read_file", &json!({ "path": "b" }));
    let replies = json!([
        [in_background("the task")],
        says("Started."),
        when("the task", json!([read])),
        when("the task", says("The answer is 42.")),
        when("and now", says("I see.")),
    ]);
    let capabilities = json!({ "subagents": {}, "fs": { "readTextFile": true } });
    let mut agent = helpers(replies).file("b", "2\n").capabilities(capabilities).start();
    let id = agent.prompt("go");
    let request = wait_for_read(&mut agent, "/b");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    agent.respond(&request, &json!({ "content": "2\n" }));
    agent.wait_for("the end of the helper", |message| {
        message["params"]["update"]["state"]["state"] == "idle"
    });
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    assert_eq!(agent.turn("and now"), "end_turn");
    let last = agent.model().requests().len() - 1;
    let told = agent.model_request(last)["messages"].to_string();
    assert!(told.contains("is done]") && told.contains("The answer is 42."), "{told}");
    assert!(!told.contains("ended with the session"), "{told}");
}

#[test]
fn a_helper_that_is_compacted_knows_which_files_it_has_changed() {
    let write = |path: &str| call("write_file", &json!({ "path": path, "content": "x\n" }));
    let replies = json!([
        [write("b")],
        [call("agent", &json!({ "description": "write", "prompt": "the task" }))],
        says("Done."),
        when("Write a summary that lets you go on", says("# Goal")),
        when("the task", json!([{ "text": "word ".repeat(22_000) }, call("list_dir", &json!({}))])),
        when("the task", json!([write("a")])),
        when("the task", says("Written.")),
    ]);
    let mut agent = helpers(replies)
        .permission("allow_once")
        .variable("TURNWRIGHT_CONTEXT_WINDOW", "32000")
        .start();
    cards::turn(&mut agent);
    let requests = agent.model().requests();
    let told = "Files changed in this session, with the number of calls: ";
    let facts: Vec<_> = requests
        .iter()
        .filter_map(|it| Some(it.body["messages"].to_string().split_once(told)?.1.to_owned()))
        .collect();
    assert!(!facts.is_empty() && facts.iter().all(|it| it.starts_with("a (1)\\n")), "{facts:?}");
}

const REVIEWER: &str = "---\nname: reviewer\ndescription: Reviews changes\ntools: Read, Grep\nmodel: strict-one\n---\n\
                        Be strict with every line.\n";

#[test]
fn the_user_defines_types_with_tools_a_model_and_instructions() {
    let replies = json!([
        [agent_call("reviewer", "the task"), agent_call("nobody", "the other")],
        says("Done."),
        when("the task", says("Fine.")),
    ]);
    let mut agent = helpers(replies).own_file("config/agents/reviewer.md", REVIEWER).start();
    cards::turn(&mut agent);
    let results = last_results(&agent);
    assert_eq!(results[0], "Fine.");
    assert!(
        results[1].contains("There is no helper `nobody`")
            && results[1].contains("reviewer, explore, general"),
        "{results:?}"
    );
    let request = &requests_about(&agent, "the task")[0];
    assert_eq!(
        (request["model"].as_str(), tool_names(request)),
        (Some("strict-one"), vec!["grep".to_owned(), "read_file".to_owned()])
    );
    assert!(request["messages"][0].to_string().contains("Be strict with every line."));
    let tools = agent.model_request(0)["tools"].to_string();
    assert!(
        tools.contains("explore (reads only) or general; reviewer: Reviews changes"),
        "{tools}"
    );
}

#[test]
#[cfg_attr(windows, ignore = "a line of cmd is never analysed whole, so the helper may run none")]
fn a_helper_runs_only_the_commands_that_the_patterns_of_its_tools_name() {
    let limited = REVIEWER.replace("Read, Grep", "Bash(git --version), Bash(echo:*), Bash(a * b)");
    let run = |line: &str| call("exec", &json!({ "command": line }));
    let replies = json!([
        [agent_call("reviewer", "the task")],
        says("Done."),
        when("the task", json!([run("echo one"), run("echo two > file"), run("mkdir three")])),
        when("the task", says("Fine.")),
    ]);
    let mut agent = helpers(replies).own_file("config/agents/reviewer.md", &limited).start();
    cards::turn(&mut agent);
    assert_eq!(last_results(&agent)[0], "Fine.");
    let request = requests_about(&agent, "the task").pop().unwrap();
    let messages = request["messages"].as_array().unwrap().iter();
    let of_tools = messages.filter(|message| message["role"] == "tool");
    let results: Vec<_> = of_tools.map(Value::to_string).collect();
    assert!(results[0].contains("one"), "{results:?}");
    for result in &results[1..] {
        assert!(result.contains("may run only exec(=git --version), exec(echo)"), "{results:?}");
    }
    assert!(!agent.path("file").exists() && !agent.path("three").exists());
    let told = agent.thoughts();
    assert!(told.contains("Helper reviewer lacks `Bash(a * b)`"), "{told}");
}

#[test]
fn a_helper_ends_after_the_requests_that_its_file_allows() {
    let replies = json!([
        [agent_call("reviewer", "the task")],
        says("Done."),
        when("the task", json!([call("read_file", &json!({ "path": "a" }))])),
        when("the task", json!([call("read_file", &json!({ "path": "b" }))])),
        when("No tool runs any more", says("Half of it is done.")),
    ]);
    let file = REVIEWER.replace("tools:", "maxTurns: 2\ntools:");
    let builder = helpers(replies).own_file("config/agents/reviewer.md", &file);
    let mut agent = builder.file("a", "1\n").file("b", "2\n").start();
    let result = cards::turn(&mut agent);
    assert!(result.starts_with("Half of it is done.\n[incomplete"), "{result}");
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn a_helper_is_told_once_of_a_command_that_would_end_with_its_answer() {
    let tests = json!({ "command": "sleep 659", "background": true });
    let replies = json!([
        [agent_call("general", "the task")],
        says("Done."),
        when("the task", json!([call("exec", &tests)])),
        when("the task", says("I wait for the tests.")),
        when("Still running: h", says("They are not needed.")),
    ]);
    let mut agent = helpers(replies).variable("TURNWRIGHT_MODE", "full").start();
    let result = cards::turn(&mut agent);
    assert!(result.ends_with("They are not needed."), "{result}");
    let told = requests_about(&agent, "Still running: h")[0]["messages"].to_string();
    assert!(told.contains("if you are a helper, give your whole answer"), "{told}");
}

#[test]
fn a_helper_whose_file_says_so_changes_nothing_in_any_mode() {
    for line in ["permissionMode: plan", "readonly: true"] {
        let replies = json!([
            [agent_call("reviewer", "the task")],
            says("Done."),
            when("the task", json!([call("write_file", &json!({ "path": "a", "content": "x" }))])),
            when("the task", says("Fine.")),
        ]);
        let file = REVIEWER.replace("tools: Read, Grep", line);
        let builder = helpers(replies).own_file("config/agents/reviewer.md", &file);
        let mut agent = builder.variable("TURNWRIGHT_MODE", "auto-edit").start();
        assert_eq!(cards::turn(&mut agent), "Fine.", "{line}");
        assert!(!agent.path("a").exists(), "{line}");
        let told = requests_about(&agent, "the task").pop().unwrap()["messages"].to_string();
        assert!(told.contains("Mode: plan") && told.contains("nothing is changed"), "{told}");
    }
}

#[test]
fn types_of_a_project_are_ignored_until_they_are_trusted() {
    let mut agent = helpers(json!([])).file(".claude/agents/reviewer.md", REVIEWER).start();
    let ask = |agent: &mut TestAgent| {
        agent.model().push(json!([agent_call("reviewer", "the task")])).unwrap();
        agent.model().push(says("Done.")).unwrap();
        cards::turn(agent)
    };
    let result = ask(&mut agent);
    assert!(result.starts_with("There is no helper `reviewer`"), "{result}");
    assert!(
        agent.thoughts().contains("the helper `reviewer`. Run `/trust`"),
        "{}",
        agent.thoughts()
    );
    let before = agent.text().len();
    agent.turn("/trust");
    let shown = agent.text()[before..].to_owned();
    assert!(shown.contains("Be strict with every line."), "{shown}");
    let code = shown.rsplit("`/trust ").next().unwrap().split('`').next().unwrap().to_owned();
    agent.turn(&format!("/trust {code}"));
    agent.session = agent.new_session();
    agent.model().push(when("the task", says("Fine."))).unwrap();
    assert_eq!(ask(&mut agent), "Fine.");
}

#[test]
fn what_a_helper_in_the_background_answers_at_its_limit_is_marked_as_incomplete() {
    let replies = [
        json!([in_background("the task")]),
        says("Started."),
        when("the task", json!([call("list_dir", &json!({}))])),
        when("the task", json!([call("list_dir", &json!({ "path": "." }))])),
        when("No tool runs any more", says("Half of it is done.")),
        when("and now", says("I see.")),
    ];
    let limit = "max_turn_requests = 2\n";
    let mut agent = helpers(json!(replies)).own_file("config/config.toml", limit).start();
    assert_eq!(agent.turn("go"), "end_turn");
    eventually("the answer of the helper", || {
        assert_eq!(agent.turn("and now"), "end_turn");
        let requests = agent.model().requests();
        let told = r"Half of it is done.\n[incomplete: the helper had to stop";
        requests.iter().any(|request| request.body["messages"].to_string().contains(told))
    });
}
