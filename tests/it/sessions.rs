//! Sessions that come back, close, go away, become two and are put away (R-LOAD, R-RES, R-CLOSE,
//! R-DEL, R-FORK, R-ARCH, R-STAT).

use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, is_alive, says};
use crate::cancel::hangs;

pub fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("not an error: {answer}"))
}

#[track_caller]
pub fn result(mut answer: Value) -> Value {
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].take()
}

fn of(session: &str) -> Value {
    json!({ "sessionId": session })
}

fn opening(agent: &TestAgent, session: &str) -> Value {
    json!({ "sessionId": session, "cwd": agent.workspace(), "mcpServers": [] })
}

/// Calls one of the methods that open a session which there is.
pub fn open(agent: &mut TestAgent, method: &str, session: &str) -> Value {
    let params = opening(agent, session);
    agent.call(method, &params)
}

pub fn status(agent: &mut TestAgent, session: &str) -> Value {
    result(agent.call("session/status", &of(session)))["status"].clone()
}

/// The updates of a session that are messages or cards, in a line each.
fn told(agent: &TestAgent) -> Vec<String> {
    let updates = agent.updates();
    let lines = updates.iter().filter_map(|it| {
        let kind = it["sessionUpdate"].as_str().unwrap();
        let text = it["content"]["text"].as_str().unwrap_or_default();
        match kind {
            "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
                Some(format!("{kind} {text}"))
            }
            "tool_call" | "tool_call_update" => Some(format!("{kind} {}", it["status"])),
            "plan" => Some(kind.to_owned()),
            _ => None,
        }
    });
    lines.collect()
}

#[test]
fn r_load_1_to_7_a_conversation_comes_back_whole_before_the_answer_and_goes_on() {
    let think = json!([{ "thought": "Hm." }, { "text": "One." }]);
    let read = calls("read_file", &json!({ "path": "a.txt" }));
    let mut agent = TestAgent::builder()
        .file("a.txt", "content\n")
        .model(json!([think, read, says("Two."), says("Three.")]))
        .start();
    agent.turn("first");
    agent.turn("second");
    let live = told(&agent);
    agent.restart();
    let session = agent.session.clone();
    let id = agent.request("session/load", &opening(&agent, &session));
    result(agent.answer_to(&id));
    let replayed = told(&agent);
    let heard =
        |it: &&String| !it.starts_with("user_message") && !it.starts_with("tool_call_update");
    let settled = |all: &[String]| all.iter().filter(heard).cloned().collect::<String>();
    assert_eq!(
        settled(&replayed).replace("agent_message_chunk ", ""),
        settled(&live).replace("agent_message_chunk ", "")
    );
    assert!(replayed.contains(&"user_message_chunk first".to_owned()), "{replayed:?}");
    assert!(replayed.contains(&"tool_call_update \"completed\"".to_owned()), "{replayed:?}");
    let answer = agent.log.iter().position(|it| it["id"] == id).unwrap();
    agent.settle(Duration::from_millis(300));
    let after: Vec<_> = agent.log[answer + 1..]
        .iter()
        .map(|it| it["params"]["update"]["sessionUpdate"].clone())
        .collect();
    assert!(after.iter().all(|it| it == "available_commands_update"), "{after:?}");
    let asked = agent.log.iter().filter(|it| it.get("id").is_some() && it.get("method").is_some());
    assert_eq!(asked.count(), 0, "nothing is asked while it comes back");
    assert_eq!(agent.turn("third"), "end_turn");
    let transcript = agent.model_transcript(3);
    assert_eq!(transcript[0], "user first");
    assert_eq!(transcript.last().unwrap(), "user third");
}

#[test]
fn r_load_4_identifiers_of_messages_are_the_same_again() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    agent.turn("first");
    let ids = |agent: &TestAgent, kind: &str| -> Vec<Value> {
        let updates = agent.updates();
        let of_kind = updates.iter().filter(|it| it["sessionUpdate"] == kind);
        of_kind.map(|it| it["messageId"].clone()).collect()
    };
    let live = ids(&agent, "agent_message_chunk");
    agent.restart();
    let session = agent.session.clone();
    result(open(&mut agent, "session/load", &session));
    let again = ids(&agent, "agent_message_chunk");
    assert!(live[0].is_string() && again.iter().all(|it| *it == live[0]), "{live:?} {again:?}");
    assert!(ids(&agent, "user_message_chunk")[0].is_string());
}

#[test]
fn r_load_5_the_folder_of_the_request_counts_and_what_is_open_is_closed_first() {
    let mut agent = TestAgent::builder()
        .file("other/b.txt", "there\n")
        .model(json!([hangs(), calls("read_file", &json!({ "path": "b.txt" })), says("Read.")]))
        .start();
    let session = agent.session.clone();
    let running = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    // Without `mcpServers`, which some clients leave out.
    let params = json!({ "sessionId": session, "cwd": agent.path("other") });
    let id = agent.request("session/load", &params);
    assert_eq!(agent.stop_reason(&running), "cancelled");
    result(agent.answer_to(&id));
    assert_eq!(agent.turn("two"), "end_turn");
    assert!(agent.model_transcript(2).pop().unwrap().contains("there"));
    let page = result(agent.call("session/list", &json!({ "cwd": agent.path("other") })));
    assert_eq!(page["sessions"][0]["sessionId"], session.as_str());
}

#[test]
fn r_load_1_of_two_that_come_at_once_the_last_one_counts() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    agent.turn("first");
    agent.restart();
    let session = agent.session.clone();
    let params = opening(&agent, &session);
    let ids: Vec<_> = (0..5).map(|_| agent.request("session/load", &params)).collect();
    let answers: Vec<_> = ids.iter().map(|it| agent.answer_to(it)).collect();
    for answer in &answers[..4] {
        assert!(answer["result"].is_object() || code(answer) == -32800, "{answer}");
    }
    assert!(answers[4]["result"].is_object(), "{}", answers[4]);
    assert_eq!(agent.turn("second"), "end_turn");
    assert_eq!(agent.model_transcript(1), ["user first", "assistant One.", "user second"]);
}

#[test]
fn r_load_1_before_the_first_prompt_after_a_kill_and_of_nobody() {
    let mut agent = TestAgent::builder().model(json!([hangs(), says("On.")])).start();
    let session = agent.session.clone();
    for method in ["session/load", "session/resume", "session/fork"] {
        assert_eq!(code(&open(&mut agent, method, "nobody")), -32002, "{method}");
    }
    result(open(&mut agent, "session/load", &session));
    agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    agent.kill();
    agent.restart();
    result(open(&mut agent, "session/load", &session));
    assert!(told(&agent).contains(&"user_message_chunk one".to_owned()), "{:?}", told(&agent));
    assert_eq!(agent.turn("two"), "end_turn");
}

#[test]
fn r_load_7_the_model_is_told_nothing_again_after_a_load() {
    let mut agent = TestAgent::builder().model(json!([says("1"), says("2"), says("3")])).start();
    let session = agent.session.clone();
    agent.turn("first");
    agent.restart();
    result(open(&mut agent, "session/load", &session));
    agent.turn("second");
    let second = agent.model_request(1)["messages"][3]["content"].clone();
    assert_eq!(second, "second");
    // Of what it does not know it is told.
    agent.call("session/set_mode", &json!({ "sessionId": session, "modeId": "full" }));
    agent.restart();
    result(open(&mut agent, "session/load", &session));
    agent.turn("third");
    let third = agent.model_request(2)["messages"][5]["content"].to_string();
    assert!(third.contains("Mode: full"), "{third}");
}

#[test]
fn r_res_1_and_2_nothing_is_told_and_the_model_knows() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    agent.turn("first");
    agent.restart();
    let session = agent.session.clone();
    let answer = result(open(&mut agent, "session/resume", &session));
    assert_eq!(answer["modes"]["currentModeId"], "ask");
    assert_eq!(told(&agent), [""; 0]);
    agent.turn("second");
    assert_eq!(agent.model_transcript(1), ["user first", "assistant One.", "user second"]);
}

#[test]
fn r_cxl_2_an_opening_that_is_cancelled_is_answered_once() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    agent.turn("first");
    let session = agent.session.clone();
    for method in ["session/load", "session/resume", "session/fork", "session/list"] {
        let params = opening(&agent, &session);
        let params = if method == "session/list" { json!({}) } else { params };
        let id = agent.request(method, &params);
        agent.notify("$/cancel_request", &json!({ "requestId": id }));
        let answer = agent.answer_to(&id);
        assert!(answer["result"].is_object() || code(&answer) == -32800, "{method}: {answer}");
        agent.settle(Duration::from_millis(100));
        let answers = agent.log.iter().filter(|it| it.get("method").is_none() && it["id"] == id);
        assert_eq!(answers.count(), 1, "{method}");
    }
    result(open(&mut agent, "session/load", &session));
    assert_eq!(agent.turn("second"), "end_turn");
}

#[test]
fn r_close_1_and_2_what_runs_is_cancelled_and_stopped_and_unknown_is_not_found() {
    let run = calls("exec", &json!({ "command": "sleep 7331.5" }));
    let mut agent = TestAgent::builder().model(json!([run])).permission("allow_once").start();
    let session = agent.session.clone();
    let id = agent.prompt("wait");
    agent.wait_for_status("in_progress");
    let close = agent.request("session/close", &of(&session));
    let answer = agent.answer_to(&close);
    assert_eq!(answer["result"], json!({}));
    assert_eq!(agent.stop_reason(&id), "cancelled");
    let place = |id: &Value| agent.log.iter().position(|it| it["id"] == *id).unwrap();
    assert!(place(&id) < place(&close));
    assert!(!is_alive("7331.5"));
    for name in [session.as_str(), "nobody"] {
        assert_eq!(code(&agent.call("session/close", &of(name))), -32002, "{name}");
        assert_eq!(code(&agent.call("session/prompt", &crate::agent::prompt(name, "x"))), -32002);
    }
}

#[test]
fn r_del_1_and_2_a_session_goes_away_with_all_it_has_and_again() {
    let long = calls("exec", &json!({ "command": "seq 1 200000" }));
    let mut agent = TestAgent::builder()
        .model(json!([long, says("Done."), hangs()]))
        .permission("allow_once")
        .start();
    let session = agent.session.clone();
    agent.turn("one");
    let running = agent.prompt("two");
    agent.wait_for("words", |it| it["params"]["update"]["content"]["text"] == "I think");
    let outputs = agent.home().join("state/outputs").join(&session);
    let folder = if outputs.exists() { Some(outputs) } else { None };
    result(agent.call("session/delete", &of(&session)));
    assert_eq!(agent.stop_reason(&running), "cancelled");
    assert!(folder.is_none_or(|it| !it.exists()), "its outputs are gone");
    for name in [session.as_str(), "nobody", "../..", ""] {
        result(agent.call("session/delete", &of(name)));
    }
    assert!(agent.home().is_dir());
    for method in ["session/load", "session/resume", "session/fork"] {
        assert_eq!(code(&open(&mut agent, method, &session)), -32002, "{method}");
    }
    assert_eq!(result(agent.call("session/list", &json!({})))["sessions"], json!([]));
}

#[test]
fn r_del_2_a_load_right_behind_a_delete_finds_nothing() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    let session = agent.session.clone();
    agent.turn("one");
    let delete = agent.request("session/delete", &of(&session));
    let load = agent.request("session/load", &opening(&agent, &session));
    result(agent.answer_to(&delete));
    assert_eq!(code(&agent.answer_to(&load)), -32002);
}

#[test]
fn r_fork_1_a_copy_of_a_running_session_is_active_and_stands_alone() {
    let run = calls("exec", &json!({ "command": "sleep 7332.5" }));
    let mut agent = TestAgent::builder()
        .model(json!([says("One."), run, says("Copied."), says("On."), says("Again.")]))
        .permission("allow_once")
        .start();
    let original = agent.session.clone();
    agent.turn("first");
    let running = agent.prompt("wait");
    agent.wait_for_status("in_progress");
    let copy = result(open(&mut agent, "session/fork", &original));
    let copy = copy["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(copy, original);
    agent.session.clone_from(&copy);
    assert_eq!(told(&agent), [""; 0], "nothing is replayed");
    assert_eq!(agent.turn("in the copy"), "end_turn");
    let transcript = agent.model_transcript(2);
    assert_eq!(transcript[..2], ["user first", "assistant One."]);
    assert!(transcript.iter().any(|it| it.contains("It may or may not")), "{transcript:?}");
    assert_eq!(transcript.last().unwrap(), "user in the copy");
    // The original knows nothing of that, and runs on.
    assert!(is_alive("7332.5"));
    agent.session.clone_from(&original);
    agent.cancel();
    assert_eq!(agent.stop_reason(&running), "cancelled");
    agent.turn("in the original");
    let transcript = agent.model_transcript(3);
    assert!(!transcript.iter().any(|it| it.contains("in the copy")), "{transcript:?}");
    // One that is only kept is copied as well, and a copy outlives its original.
    agent.restart();
    result(agent.call("session/delete", &of(&original)));
    let second = result(open(&mut agent, "session/fork", &copy));
    agent.session = second["sessionId"].as_str().unwrap().to_owned();
    agent.turn("again");
    assert!(agent.model_transcript(4).contains(&"assistant Copied.".to_owned()));
}

#[test]
fn r_fork_1_a_copy_that_cannot_be_opened_is_not_left_behind() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    let original = agent.session.clone();
    agent.turn("first");
    let store = rusqlite::Connection::open(agent.home().join("state/sessions.db")).unwrap();
    store.execute("UPDATE entries SET body = '{'", []).unwrap();
    assert_eq!(code(&open(&mut agent, "session/fork", &original)), -32603);
    let listed = result(agent.call("session/list", &json!({})));
    let ids: Vec<_> =
        listed["sessions"].as_array().unwrap().iter().map(|it| &it["sessionId"]).collect();
    assert_eq!(ids, [&original]);
}

#[test]
fn a_long_output_after_a_load_takes_no_others_place_and_name() {
    let long = |it: &str| {
        let command = format!("for i in $(seq 20000); do echo {it} $i; done");
        calls("exec", &json!({ "command": command }))
    };
    let mut agent = TestAgent::builder()
        .model(json!([long("one"), says("One."), long("two"), says("Two.")]))
        .permission("allow_once")
        .start();
    agent.turn("first");
    agent.restart();
    let session = agent.session.clone();
    result(open(&mut agent, "session/load", &session));
    agent.turn("second");
    let files = std::fs::read_dir(agent.home().join("state/outputs").join(&session)).unwrap();
    let files = files.map(|it| std::fs::read_to_string(it.unwrap().path()).unwrap());
    let mut first: Vec<_> = files.map(|it| it.lines().next().unwrap().to_owned()).collect();
    first.sort();
    assert_eq!(first, ["one 1", "two 1"]);
}

#[test]
fn r_arch_1_what_is_put_away_is_closed_first_and_listed_only_where_wanted() {
    let mut agent = TestAgent::builder().model(json!([hangs()])).start();
    let session = agent.session.clone();
    let running = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    let listed = |agent: &mut TestAgent, filter: Value| -> Vec<Value> {
        let page = result(agent.call("session/list", &json!({ "archived": filter })));
        page["sessions"].as_array().unwrap().iter().map(|it| it["archived"].clone()).collect()
    };
    assert_eq!(listed(&mut agent, json!("include")), [false]);
    for _ in 0..2 {
        result(agent.call("session/archive", &of(&session)));
        assert_eq!(status(&mut agent, &session), "saved");
        assert_eq!(listed(&mut agent, Value::Null), [Value::Null; 0]);
        assert_eq!(listed(&mut agent, json!("exclude")), [Value::Null; 0]);
        assert_eq!(listed(&mut agent, json!("only")), [true]);
        assert_eq!(listed(&mut agent, json!("include")), [true]);
    }
    assert_eq!(agent.stop_reason(&running), "cancelled");
    for filter in [json!("all"), json!(""), json!("Only"), json!(true)] {
        let answer = agent.call("session/list", &json!({ "archived": filter }));
        assert_eq!(code(&answer), -32602, "{filter}");
    }
    for _ in 0..2 {
        result(agent.call("session/unarchive", &of(&session)));
        assert_eq!(listed(&mut agent, json!("only")), [Value::Null; 0]);
        assert_eq!(listed(&mut agent, Value::Null), [false]);
    }
    for method in ["session/archive", "session/unarchive"] {
        assert_eq!(code(&agent.call(method, &of("nobody"))), -32002, "{method}");
    }
}

#[test]
fn r_stat_1_whether_a_session_is_open_is_told_and_nothing_else_happens() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    let session = agent.session.clone();
    assert_eq!(status(&mut agent, &session), "open");
    agent.turn("one");
    agent.restart();
    assert_eq!(status(&mut agent, &session), "saved");
    assert_eq!(status(&mut agent, &session), "saved");
    assert_eq!(code(&agent.call("session/prompt", &crate::agent::prompt(&session, "x"))), -32002);
    assert_eq!(code(&agent.call("session/status", &of("nobody"))), -32002);
    result(open(&mut agent, "session/resume", &session));
    assert_eq!(status(&mut agent, &session), "open");
}
