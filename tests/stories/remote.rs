//! Sessions that are served on a socket: what becomes of them when the connection is lost or closed, and
//! that many clients do not disturb each other (R-REM-1 to R-REM-6, R-REM-14).

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use turnwright_testing::cards::call;
use turnwright_testing::session_requests::{opening_params, result, session_params};

use crate::agent::{LIMIT, calls, eventually, prompt, says};
use crate::socket_agent::{KEEP, PlainClient, SocketAgent};
use crate::socket_server::SocketServer;

pub type TestAgent = turnwright_testing::TestAgent<SocketAgent>;

/// A reply with two parts. The second one comes when the model is released.
fn two_parts() -> Value {
    json!([{ "text": "first half, " }, { "hold": true }, { "text": "second half" }])
}

/// Loses the connection, and comes back with another one.
pub fn reconnect(agent: &mut TestAgent) {
    agent.break_off(SocketAgent::lose);
    agent.restart();
}

/// Opens the session of a lost connection. The agent may notice a moment later that it is lost.
pub fn take_over(agent: &mut TestAgent, method: &str, params: &Value) {
    eventually("the session is taken over", || {
        let answer = agent.call(method, params);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(answer["result"].is_object() || message.contains("Another"), "{answer}");
        answer["result"].is_object()
    });
}

fn load(agent: &mut TestAgent, session: &str) {
    let params = opening_params(agent, session);
    take_over(agent, "session/load", &params);
}

pub fn wait_for_text(agent: &mut TestAgent, text: &str) {
    agent.wait_for(text, |message| {
        let content = &message["params"]["update"]["content"]["text"];
        content.as_str().is_some_and(|it| it.contains(text))
    });
}

/// The words of `kind` that the client was told.
fn told(agent: &TestAgent, kind: &str, field: &str) -> Vec<Value> {
    let updates = agent.updates().into_iter();
    updates.filter(|it| it["sessionUpdate"] == kind).map(|it| it[field].clone()).collect()
}

#[test]
fn r_rem_1_a_turn_outlives_its_connection_and_who_loads_the_session_gets_all_of_it_once() {
    let mut agent = TestAgent::builder().model(json!([two_parts(), says("Next.")])).start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_text(&mut agent, "first");
    reconnect(&mut agent);
    load(&mut agent, &session);
    assert_eq!(agent.text(), "first half, ");
    assert_eq!(told(&agent, "user_message_chunk", "content")[0]["text"], "go");
    agent.model().release();
    wait_for_text(&mut agent, "second");
    assert_eq!(agent.text(), "first half, second half");
    assert_eq!(agent.turn("and now"), "end_turn");
    assert_eq!(agent.text(), "first half, second halfNext.");
    assert_eq!(agent.model().hung_up(), 0);
}

#[test]
fn r_rem_1_a_turn_is_not_lost_to_a_client_that_names_other_folders() {
    let mut agent = TestAgent::builder().model(json!([two_parts()])).start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_text(&mut agent, "first");
    reconnect(&mut agent);
    let mut elsewhere = opening_params(&agent, &session);
    elsewhere["cwd"] = json!(agent.workspace().parent());
    eventually("the loss of the connection is noticed", || {
        let answer = agent.call("session/load", &elsewhere);
        let message = answer["error"]["message"].as_str().expect("the session is refused");
        message.contains("still runs in ")
    });
    load(&mut agent, &session);
    agent.model().release();
    wait_for_text(&mut agent, "second");
    assert_eq!(agent.model().hung_up(), 0);
}

#[test]
fn r_rem_1_a_prompt_that_waited_when_the_connection_was_lost_is_shown_to_the_next_client() {
    let mut agent = TestAgent::builder().model(json!([two_parts(), says("Next.")])).start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_text(&mut agent, "first");
    agent.prompt("and now");
    // Once this is answered, the agent has the prompt.
    agent.call("session/list", &json!({}));
    reconnect(&mut agent);
    load(&mut agent, &session);
    agent.model().release();
    wait_for_text(&mut agent, "Next.");
    let words = |it: &Value| it["text"].as_str().unwrap().to_owned();
    let asked: Vec<_> = told(&agent, "user_message_chunk", "content").iter().map(words).collect();
    assert_eq!(asked, ["go", "and now"]);
    assert_eq!(agent.text(), "first half, second halfNext.");
}

#[test]
fn r_rem_1_what_a_turn_says_while_nobody_listens_is_stored() {
    let mut agent = TestAgent::builder().model(json!([two_parts()])).start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_text(&mut agent, "first");
    agent.break_off(SocketAgent::lose);
    agent.model().release();
    agent.restart();
    load(&mut agent, &session);
    // Either the turn has ended, and the text comes from the store, or it is still running.
    if !agent.text().contains("second") {
        wait_for_text(&mut agent, "second");
    }
    assert_eq!(agent.text(), "first half, second half");
}

#[test]
fn r_rem_1_a_resumed_session_goes_on_with_what_was_not_told() {
    let mut agent = TestAgent::builder().model(json!([two_parts()])).start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_text(&mut agent, "first");
    reconnect(&mut agent);
    let params = opening_params(&agent, &session);
    take_over(&mut agent, "session/resume", &params);
    agent.model().release();
    wait_for_text(&mut agent, "second");
    assert_eq!(agent.text(), "second half");
}

#[test]
fn r_rem_1_a_client_of_version_2_is_told_the_state_of_the_turn_that_it_takes_over() {
    let mut agent = TestAgent::builder().v2().model(json!([two_parts()])).start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_text(&mut agent, "first");
    reconnect(&mut agent);
    let mut params = opening_params(&agent, &session);
    params["replayFrom"] = json!({ "type": "start" });
    take_over(&mut agent, "session/resume", &params);
    assert_eq!(told(&agent, "state_update", "state"), ["running"]);
    agent.model().release();
    agent.wait_for("the end of the turn", |it| it["params"]["update"]["state"] == "idle");
    assert_eq!(told(&agent, "state_update", "stopReason"), [Value::Null, json!("end_turn")]);
    let texts: String = ["agent_message_chunk"]
        .iter()
        .flat_map(|kind| told(&agent, kind, "content"))
        .filter_map(|it| it["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(texts, "first half, second half");
}

#[test]
fn r_opt_2_who_takes_a_session_over_may_set_its_options_while_its_turn_runs() {
    let mut agent = TestAgent::builder().model(json!([two_parts()])).start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_text(&mut agent, "first");
    reconnect(&mut agent);
    let mut params = opening_params(&agent, &session);
    params["configOptions"] = json!([{ "configId": "mode", "value": "plan" }]);
    let mut opened = Value::Null;
    eventually("the session is taken over", || {
        opened = agent.call("session/load", &params);
        opened["result"].is_object()
    });
    assert_eq!(opened["result"]["modes"]["currentModeId"], "plan", "{opened}");
    agent.model().release();
    wait_for_text(&mut agent, "second");
    assert_eq!(agent.text(), "first half, second half");
}

#[test]
fn r_opt_2_the_options_are_set_before_who_takes_a_session_over_has_read_the_conversation() {
    let write = call("write_file", &json!({ "path": "a", "content": "x" }));
    let replies = json!([[{ "text": "Hm" }, { "hold": true }, write], says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).start();
    // More than a connection takes that nobody reads.
    let long = format!("/clear {}", "x".repeat(1 << 20));
    for _ in 0..12 {
        assert_eq!(agent.turn(&long), "end_turn");
    }
    agent.prompt("go");
    wait_for_text(&mut agent, "Hm");
    agent.break_off(SocketAgent::lose);
    let url = agent.transport().url().to_owned();
    let mut client = PlainClient::connect(&url, 1);
    let mut params = opening_params(&agent, &agent.session);
    params["configOptions"] = json!([{ "configId": "mode", "value": "auto-edit" }]);
    let mut id = 0;
    eventually("the replay begins", || {
        id = client.request("session/load", &params);
        client.until(|it| it["id"] == id || it["method"] == "session/update")["id"].is_null()
    });
    agent.model().release();
    eventually("the turn edits without a question", || agent.path("a").exists());
    let opened = client.until(|it| it["id"] == id && it["method"].is_null());
    assert_eq!(opened["result"]["modes"]["currentModeId"], "auto-edit", "{opened}");
}

#[test]
fn v2_prompt_with_a_key_that_is_sent_again_with_the_takeover_is_answered_and_run_once() {
    let mut agent = TestAgent::builder().v2().model(json!([two_parts()])).start();
    let mut keyed = prompt(&agent.session, "go");
    keyed["idempotencyKey"] = "k".into();
    let first = agent.request("session/prompt", &keyed);
    let message = result(agent.answer_to(&first))["messageId"].clone();
    wait_for_text(&mut agent, "first");
    let resume = opening_params(&agent, &agent.session);
    reconnect(&mut agent);
    eventually("the session is taken over", || {
        let opening = agent.request("session/resume", &resume);
        let again = agent.request("session/prompt", &keyed);
        let opened = agent.answer_to(&opening)["result"].is_object();
        let answer = agent.answer_to(&again);
        assert!(!opened || answer["result"]["messageId"] == message, "{answer}");
        opened
    });
    agent.model().release();
    agent.wait_for("the end of the turn", |it| it["params"]["update"]["state"] == "idle");
    assert_eq!(agent.model().requests().len(), 1);
}

#[test]
fn v2_prompt_with_a_key_that_was_lost_with_its_connection_is_run_once() {
    let mut agent = TestAgent::builder().v2().model(json!([says("Done.")])).start();
    let mut keyed = prompt(&agent.session, "go");
    keyed["idempotencyKey"] = "k".into();
    // Nobody waits for its answer, and the agent may not even have it.
    agent.request("session/prompt", &keyed);
    let resume = opening_params(&agent, &agent.session);
    reconnect(&mut agent);
    let mut message = Value::Null;
    eventually("the session is taken over", || {
        let opening = agent.request("session/resume", &resume);
        let again = agent.request("session/prompt", &keyed);
        agent.answer_to(&opening);
        message = agent.answer_to(&again)["result"]["messageId"].clone();
        message.is_string()
    });
    assert_eq!(result(agent.call("session/prompt", &keyed))["messageId"], message);
    agent.model().wait_for_requests(1, LIMIT).unwrap();
    agent.sync();
    assert_eq!(agent.model().requests().len(), 1);
}

#[test]
fn r_rem_2_a_question_that_is_lost_with_its_connection_is_asked_again() {
    let write = calls("write_file", &json!({ "path": "new.txt", "content": "new\n" }));
    let mut agent = TestAgent::builder().model(json!([write, says("Done.")])).start();
    let session = agent.session.clone();
    agent.prompt("go");
    let first = agent.wait_for_request("session/request_permission");
    reconnect(&mut agent);
    load(&mut agent, &session);
    let second = agent.wait_for_request("session/request_permission");
    assert_eq!(first["params"], second["params"]);
    assert!(!agent.path("new.txt").exists());
    agent.choose(&second, "allow_once");
    wait_for_text(&mut agent, "Done.");
    assert_eq!(agent.read("new.txt"), "new\n");
    let cards = told(&agent, "tool_call_update", "status");
    assert_eq!(cards.last(), Some(&json!("completed")));
}

#[test]
fn r_rem_2_who_takes_over_a_turn_can_cancel_it() {
    let mut agent = TestAgent::builder().model(json!([two_parts(), says("Next.")])).start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_text(&mut agent, "first");
    reconnect(&mut agent);
    load(&mut agent, &session);
    agent.cancel();
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
    assert_eq!(agent.turn("and now"), "end_turn");
}

#[test]
fn r_rem_3_a_session_without_a_connection_ends_when_its_time_is_over() {
    let replies = json!([two_parts(), says("Next.")]);
    let mut agent = TestAgent::builder().variable(KEEP, "0").model(replies).start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_text(&mut agent, "first");
    agent.break_off(SocketAgent::lose);
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
    agent.restart();
    load(&mut agent, &session);
    assert_eq!(agent.text(), "first half, ");
    assert_eq!(agent.turn("and now"), "end_turn");
}

#[test]
fn r_rem_4_a_connection_that_is_closed_ends_its_turn_at_once() {
    let mut agent = TestAgent::builder().model(json!([two_parts()])).start();
    agent.prompt("go");
    wait_for_text(&mut agent, "first");
    agent.close().unwrap();
    agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
}

#[test]
fn r_rem_4_an_open_session_of_another_connection_is_not_taken_over() {
    let mut agent = TestAgent::builder().model(json!([two_parts()])).start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_text(&mut agent, "first");
    let url = agent.transport().url().to_owned();
    let mut other = PlainClient::connect(&url, 1);
    for method in ["session/load", "session/resume", "session/delete", "session/archive"] {
        let id = other.request(method, &opening_params(&agent, &session));
        let answer = other.until(|message| message["id"] == id);
        let text = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(text.contains("Another connection"), "{method}: {answer}");
    }
    agent.model().release();
    wait_for_text(&mut agent, "second");
}

#[test]
fn r_rem_5_a_session_begun_over_a_pipe_in_version_1_goes_on_over_a_socket_in_version_2() {
    let write = calls("write_file", &json!({ "path": "a.txt", "content": "new\n" }));
    let mut pipe = crate::agent::TestAgent::builder()
        .file("a.txt", "old\n")
        .permission("allow_once")
        .model(json!([write, says("Written."), says("Forked.")]))
        .start();
    assert_eq!(pipe.turn("write"), "end_turn");
    let (session, params) = (pipe.session.clone(), opening_params(&pipe, &pipe.session));
    pipe.close();
    let variables = variables(&pipe.model().base_url());
    let server = SocketServer::start(pipe.home(), &variables, Duration::from_secs(60));
    let mut client = PlainClient::connect(&server.url, 2);
    let mut replayed = params.clone();
    replayed["replayFrom"] = json!({ "type": "start" });
    client.call("session/resume", &replayed);
    assert!(client.said().contains("Written."), "{:?}", client.updates);
    let fork = client.call("session/fork", &params)["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(fork, session);
    client.call("session/prompt", &prompt(&fork, "go on"));
    client.until_idle();
    client.call("session/close", &session_params(&fork));
    assert_eq!(pipe.read("a.txt"), "new\n");
    client.call("session/prompt", &prompt(&session, "/undo"));
    client.until_idle();
    assert_eq!(pipe.read("a.txt"), "old\n");
    client.close();
}

#[test]
fn r_rem_6_a_connection_has_so_many_sessions_and_another_one_its_own() {
    let mut agent = TestAgent::builder().model(json!([])).start();
    let params = json!({ "cwd": agent.workspace(), "mcpServers": [] });
    let requests: Vec<_> = (1..=256).map(|_| agent.request("session/new", &params)).collect();
    let answers: Vec<_> = requests.iter().map(|id| agent.answer_to(id)).collect();
    // The agent of the story has one session already.
    let (last, opened) = answers.split_last().unwrap();
    assert!(opened.iter().all(|it| it["result"].is_object()));
    let message = last["error"]["message"].as_str().unwrap();
    assert!(message.contains("256 sessions"), "{message}");
    let mut other = PlainClient::connect(agent.transport().url(), 2);
    other.call("session/new", &params);
    other.close();
    let session = opened[0]["result"]["sessionId"].as_str().unwrap();
    result(agent.call("session/close", &session_params(session)));
    result(agent.call("session/new", &params));
}

/// A command that prints a line and another one when there is a file `go`, and the updates of its terminal.
fn waiting_command() -> Value {
    calls("exec", &json!({ "command": WAITING_LINE }))
}

const WAITING_LINE: &str = if cfg!(windows) {
    "echo begun& (for /l %i in (1,1,600) do @if not exist go ping -n 2 127.0.0.1 >nul)& echo ended"
} else {
    "echo begun; until [ -e go ]; do sleep 0.02; done; echo ended"
};

#[expect(clippy::disallowed_methods, reason = "the command waits for this file")]
fn end_command(agent: &TestAgent) {
    std::fs::write(agent.path("go"), "").unwrap();
}

/// The bytes that a client of version 2 was shown of the one terminal: a snapshot replaces what was before.
fn terminal_output(agent: &TestAgent) -> String {
    let mut output = Vec::new();
    let decode = |data: &Value| STANDARD.decode(data.as_str().unwrap()).unwrap();
    for update in agent.updates() {
        match update["sessionUpdate"].as_str().unwrap() {
            "terminal_update" if update["output"].is_object() => {
                output = decode(&update["output"]["data"]);
            }
            "terminal_output_chunk" => output.extend(decode(&update["data"])),
            _ => {}
        }
    }
    String::from_utf8(output).unwrap().replace("\r\n", "\n")
}

/// Waits until the terminal has shown a line. `cmd` writes the end of it by itself.
fn wait_for_output(agent: &mut TestAgent) {
    agent.wait_for("output", |it| {
        let update = &it["params"]["update"];
        let data = update["data"].as_str().and_then(|it| STANDARD.decode(it).ok());
        update["sessionUpdate"] == "terminal_output_chunk"
            && data.is_some_and(|it| it.ends_with(b"\n"))
    });
}

fn resume_v2(agent: &mut TestAgent, session: &str, replay: bool) {
    let mut params = opening_params(agent, session);
    if replay {
        params["replayFrom"] = json!({ "type": "start" });
    }
    take_over(agent, "session/resume", &params);
}

#[test]
fn r_rem_14_a_terminal_goes_on_in_the_client_that_takes_over() {
    for replay in [true, false] {
        let agent = TestAgent::builder().v2().model(json!([waiting_command(), says("Done.")]));
        let mut agent = agent.permission("allow_once").start();
        let session = agent.session.clone();
        agent.prompt("go");
        wait_for_output(&mut agent);
        reconnect(&mut agent);
        resume_v2(&mut agent, &session, replay);
        let shown = if replay { "begun\n" } else { "" };
        assert_eq!(terminal_output(&agent), shown);
        end_command(&agent);
        agent.wait_for_status("completed");
        let shown = if replay { "begun\nended\n" } else { "ended\n" };
        assert_eq!(terminal_output(&agent), shown);
        let ended = agent.updates().into_iter().filter(|it| it["exitStatus"].is_object());
        assert_eq!(ended.map(|it| it["exitStatus"]["exitCode"].clone()).collect::<Vec<_>>(), [0]);
    }
}

#[test]
fn r_rem_14_what_a_terminal_shows_without_a_client_is_shown_to_the_next_one() {
    // What the agent tells before it notices the loss is gone with the connection. So this is tried again if the
    // command has ended sooner.
    eventually("the agent notices the loss before the command has ended", || {
        let held = json!([{ "hold": true }, { "text": "Done." }]);
        let agent = TestAgent::builder().v2().model(json!([waiting_command(), held]));
        let mut agent = agent.permission("allow_once").start();
        let session = agent.session.clone();
        agent.prompt("go");
        wait_for_output(&mut agent);
        agent.break_off(SocketAgent::lose);
        // The turn goes on with its second request when the command has ended, and lasts until the model is released.
        end_command(&agent);
        agent.model().wait_for_requests(2, LIMIT).unwrap();
        agent.restart();
        resume_v2(&mut agent, &session, false);
        let output = terminal_output(&agent);
        agent.model().release();
        agent.wait_for("the end of the turn", |it| it["params"]["update"]["state"] == "idle");
        // It is told from the beginning, whatever the last client was told.
        assert!(["", "begun\nended\n"].contains(&output.as_str()), "{output}");
        !output.is_empty()
    });
}

#[test]
fn r_rem_14_a_client_without_terminals_that_takes_over_gets_the_output_as_text() {
    let agent = TestAgent::builder().v2().model(json!([waiting_command(), says("Done.")]));
    let mut agent = agent.permission("allow_once").start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_output(&mut agent);
    agent.break_off(SocketAgent::lose);
    let url = agent.transport().url().to_owned();
    let mut client = PlainClient::connect(&url, 1);
    eventually("the session has no connection", || {
        let id = client.request("session/load", &opening_params(&agent, &session));
        client.until(|it| it["id"] == id && it["method"].is_null())["error"].is_null()
    });
    end_command(&agent);
    client.until(|it| it["params"]["update"]["status"] == "completed");
    let cards: Vec<_> =
        client.updates.iter().filter(|it| it["sessionUpdate"] == "tool_call_update").collect();
    assert!(cards.iter().all(|it| !it["content"].to_string().contains("terminal")), "{cards:?}");
    let content = cards.last().unwrap()["content"].to_string();
    assert!(content.replace("\\r\\n", "\\n").contains("begun\\nended"), "{content}");
}

#[test]
fn v2_background_a_command_goes_on_in_the_states_of_the_client_that_takes_over() {
    for replay in [true, false] {
        let run = calls("exec", &json!({ "command": WAITING_LINE, "background": true }));
        let held = json!([{ "text": "It runs." }, { "hold": true }, { "text": "Done." }]);
        let agent = TestAgent::builder().v2().model(json!([run, held]));
        let mut agent = agent.permission("allow_once").start();
        let session = agent.session.clone();
        agent.prompt("go");
        wait_for_text(&mut agent, "It runs.");
        reconnect(&mut agent);
        resume_v2(&mut agent, &session, replay);
        let terminals = told(&agent, "terminal_update", "terminalId");
        let work = json!([{ "type": "terminal", "terminalId": terminals[0] }]);
        assert_eq!(told(&agent, "state_update", "background"), [work]);
        let kinds: Vec<_> = agent.updates().iter().map(|it| it["sessionUpdate"].clone()).collect();
        let place = |kind: &str| kinds.iter().position(|it| it == kind);
        assert!(place("terminal_update") < place("state_update"), "{kinds:?}");
        end_command(&agent);
        let is_over = |it: &Value| it["params"]["update"]["background"] == json!([]);
        agent.wait_for("the end of the work", is_over);
        let ends = told(&agent, "terminal_update", "exitStatus");
        assert!(ends.last().unwrap().is_object(), "{ends:?}");
        agent.model().release();
        agent.wait_for("the end of the turn", |it| it["params"]["update"]["state"] == "idle");
    }
}

#[test]
fn v2_subagents_who_takes_over_a_session_is_told_of_the_helpers_that_work_first() {
    let task = json!({ "description": "look", "prompt": "the task", "background": true });
    let hangs = json!([{ "text": "Hm" }, { "hang": true }]);
    let held = json!([{ "text": "Started." }, { "hold": true }, { "text": "Done." }]);
    let replies = json!([calls("agent", &task), held, { "when": "the task", "steps": hangs }]);
    for (is_v2, replay) in [(true, true), (true, false), (false, true)] {
        let builder = TestAgent::builder().model(replies.clone());
        let subagents = json!({ "subagents": {} });
        let builder = if is_v2 { builder.v2() } else { builder.capabilities(subagents) };
        let mut agent = builder.start();
        let session = agent.session.clone();
        agent.prompt("go");
        wait_for_text(&mut agent, "Started.");
        agent.model().wait_for_requests(3, LIMIT).unwrap();
        let child = agent.updates_of("subagent_update")[0]["sessionId"].clone();
        reconnect(&mut agent);
        if is_v2 {
            resume_v2(&mut agent, &session, replay);
            let work = json!([{ "type": "subagent", "sessionId": child }]);
            assert_eq!(told(&agent, "state_update", "background"), [work]);
        } else {
            load(&mut agent, &session);
        }
        let first = agent.log.iter().find(|it| it.to_string().contains(child.as_str().unwrap()));
        let first = &first.expect("the client is told of the helper")["params"]["update"];
        assert_eq!(first["sessionUpdate"], "subagent_update", "{first}");
        assert_eq!((&first["title"], &first["sessionId"]), (&json!("general: look"), &child));
        assert_eq!(first["state"]["state"], "running");
        assert_eq!(first["capabilities"], json!({ "cancel": {} }));
        agent.notify("session/cancel", &json!({ "sessionId": child }));
        let end = agent.wait_for("the end of the helper", |it| {
            it["params"]["update"]["state"]["state"] == "idle"
        });
        assert_eq!(end["params"]["update"]["sessionId"], child);
        agent.model().wait_for_hang_ups(1, LIMIT).unwrap();
        agent.model().release();
        wait_for_text(&mut agent, "Done.");
    }
}

#[test]
fn v2_subagents_the_card_of_a_helper_that_begins_without_a_client_refers_to_it() {
    let task = calls("agent", &json!({ "description": "look", "prompt": "the task" }));
    let starts = json!([{ "text": "Now" }, { "hold": true }, task[0]]);
    let hangs = json!([{ "text": "Hm" }, { "hang": true }]);
    let replies = json!([starts, says("Done."), { "when": "the task", "steps": hangs }]);
    let mut agent = TestAgent::builder().v2().model(replies).start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_text(&mut agent, "Now");
    agent.break_off(SocketAgent::lose);
    agent.model().release();
    agent.model().wait_for_requests(2, LIMIT).unwrap();
    agent.restart();
    resume_v2(&mut agent, &session, false);
    let child = agent.updates_of("subagent_update")[0]["sessionId"].clone();
    agent.notify("session/cancel", &json!({ "sessionId": child }));
    wait_for_text(&mut agent, "Done.");
    let contents = told(&agent, "tool_call_update", "content");
    let reference = json!({ "type": "session", "sessionId": child });
    let mut parts = contents.iter().filter_map(Value::as_array).flatten();
    assert!(parts.any(|part| *part == reference), "{contents:?}");
}

#[test]
fn r_rem_14_who_resumes_a_session_can_cancel_the_call_that_runs() {
    let agent = TestAgent::builder().v2().model(json!([waiting_command(), says("Done.")]));
    let mut agent = agent.permission("allow_once").start();
    let session = agent.session.clone();
    agent.prompt("go");
    wait_for_output(&mut agent);
    reconnect(&mut agent);
    resume_v2(&mut agent, &session, false);
    let offered = agent.updates().into_iter().find(|it| it["capabilities"]["cancel"].is_object());
    let offered = offered.expect("the client is told that the call can be cancelled");
    let call = offered["toolCallId"].clone();
    let params = json!({ "sessionId": session, "toolCallId": call });
    assert_eq!(agent.call("tool_call/cancel", &params)["result"], json!({}));
    let last = agent.wait_for_status("cancelled");
    assert_eq!((&last["toolCallId"], last.get("capabilities")), (&call, Some(&Value::Null)));
    agent.wait_for("the end of the turn", |it| it["params"]["update"]["state"] == "idle");
}

#[test]
fn r_rem_6_a_client_with_too_many_open_requests_is_refused_and_the_others_are_answered() {
    let home = turnwright_testing::temporary_folder();
    let replies = json!({ "replies": [{ "when": "go", "steps": [{ "hold": true }] }] });
    let scenario = turnwright_testing::scripted_model::Scenario::from_value(replies).unwrap();
    let model = turnwright_testing::scripted_model::Server::start(scenario, 0).unwrap();
    let server = SocketServer::start(home.path(), &variables(&model.base_url()), LIMIT);
    let mut greedy = PlainClient::connect(&server.url, 1);
    let mut other = PlainClient::connect(&server.url, 1);
    let new = json!({ "cwd": home.path(), "mcpServers": [] });
    // A session takes 33 prompts, and the connection 1024 requests.
    for _ in 0..32 {
        let opened = greedy.call("session/new", &new);
        let session = opened["sessionId"].as_str().unwrap();
        for _ in 0..33 {
            greedy.request("session/prompt", &prompt(session, "go"));
        }
    }
    let refused = greedy.until(|message| !message["error"].is_null());
    let text = refused["error"]["message"].as_str().unwrap();
    assert!(text.starts_with("1024 requests are not answered"), "{text}");
    other.call("session/new", &new);
    greedy.close();
    other.close();
}

/// The variables of an agent with this model.
fn variables(base_url: &str) -> Vec<(String, String)> {
    let variables = [
        ("OPENAI_BASE_URL", base_url),
        ("OPENAI_API_KEY", turnwright_testing::model_failures::KEY),
        ("TURNWRIGHT_MODEL", "scripted"),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

#[test]
fn r_rem_6_many_clients_at_once_get_their_own_answers() {
    let clients = 40;
    let home = turnwright_testing::temporary_folder();
    let replies: Vec<_> = (0..clients)
        .map(|number| {
            let steps = json!([{ "text": format!("[{number}]"), "repeat": 50, "every_ms": 1 }]);
            json!({ "when": format!("client {number}."), "steps": steps })
        })
        .collect();
    let scenario =
        turnwright_testing::scripted_model::Scenario::from_value(json!({ "replies": replies }));
    let model = turnwright_testing::scripted_model::Server::start(scenario.unwrap(), 0).unwrap();
    let server = SocketServer::start(home.path(), &variables(&model.base_url()), LIMIT);
    std::thread::scope(|scope| {
        for number in 0..clients {
            let (url, home) = (&server.url, home.path());
            scope.spawn(move || stream_alone(url, home, number));
        }
    });
}

/// Has a conversation in which only the words of this client may occur.
fn stream_alone(url: &str, cwd: &Path, number: usize) {
    let mut client = PlainClient::connect(url, 1 + number as u64 % 2);
    let opened = client.call("session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
    let session = opened["sessionId"].as_str().unwrap();
    let request = prompt(session, &format!("client {number}."));
    client.call("session/prompt", &request);
    if number % 2 == 1 {
        client.until_idle();
    }
    assert_eq!(client.said(), format!("[{number}]").repeat(50));
    client.close();
}
