//! Loading, resuming, closing, deleting, forking and archiving sessions, and their status (R-LOAD,
//! R-RES, R-CLOSE, R-DEL, R-FORK, R-ARCH, R-STAT).

use std::time::Duration;

use serde_json::{Value, json};
use turnwright_testing::cancellation::hangs;
use turnwright_testing::session_requests::{
    code, conversation, open, opening_params, replayed_prompts, result, session_params, status,
};

use crate::agent::{TestAgent, calls, says};

#[test]
fn r_load_1_to_7_a_load_replays_the_whole_conversation_before_its_answer() {
    let think = json!([{ "thought": "Hm." }, { "text": "One." }]);
    let read = calls("read_file", &json!({ "path": "a.txt" }));
    let mut agent = TestAgent::builder()
        .file("a.txt", "content\n")
        .model(json!([think, read, says("Two."), says("Three.")]))
        .start();
    agent.turn("first");
    agent.turn("second");
    let live = conversation(&agent);
    agent.restart();
    let session = agent.session.clone();
    let id = agent.request("session/load", &opening_params(&agent, &session));
    result(agent.answer_to(&id));
    let replayed = conversation(&agent);
    let is_compared =
        |it: &&String| !it.starts_with("user_message") && !it.starts_with("tool_call_update");
    let comparable = |all: &[String]| all.iter().filter(is_compared).cloned().collect::<String>();
    assert_eq!(
        comparable(&replayed).replace("agent_message_chunk ", ""),
        comparable(&live).replace("agent_message_chunk ", "")
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
    let requests =
        agent.log.iter().filter(|it| it.get("id").is_some() && it.get("method").is_some());
    assert_eq!(requests.count(), 0, "a load must send no request to the client");
    assert_eq!(agent.turn("third"), "end_turn");
    let transcript = agent.model_transcript(3);
    assert_eq!(transcript[0], "user first");
    assert_eq!(transcript.last().unwrap(), "user third");
}

#[test]
fn r_load_4_a_load_keeps_the_ids_of_messages() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    agent.turn("first");
    let ids = |agent: &TestAgent, kind: &str| -> Vec<Value> {
        agent.updates_of(kind).iter().map(|it| it["messageId"].clone()).collect()
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
fn r_load_5_a_load_uses_the_folder_of_its_request_and_closes_an_open_session_first() {
    let mut agent = TestAgent::builder()
        .file("other/b.txt", "there\n")
        .model(json!([hangs(), calls("read_file", &json!({ "path": "b.txt" })), says("Read.")]))
        .start();
    let session = agent.session.clone();
    let running = agent.prompt("one");
    agent.wait_for_update("agent_message_chunk");
    // The request has no `mcpServers`, because some clients leave it out.
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
fn r_load_1_the_last_of_several_concurrent_loads_wins() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    agent.turn("first");
    agent.restart();
    let session = agent.session.clone();
    let params = opening_params(&agent, &session);
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
fn r_load_7_after_a_load_the_model_is_told_only_what_has_changed() {
    let mut agent = TestAgent::builder().model(json!([says("1"), says("2"), says("3")])).start();
    let session = agent.session.clone();
    agent.turn("first");
    agent.restart();
    result(open(&mut agent, "session/load", &session));
    agent.turn("second");
    let second = agent.model_request(1)["messages"][3]["content"].clone();
    assert_eq!(second, "second");
    // The model is told of changes that it does not know.
    agent.call("session/set_mode", &json!({ "sessionId": session, "modeId": "full" }));
    agent.restart();
    result(open(&mut agent, "session/load", &session));
    agent.turn("third");
    let third = agent.model_request(2)["messages"][5]["content"].to_string();
    assert!(third.contains("Mode: full"), "{third}");
}

#[test]
fn r_res_1_and_2_a_resume_replays_nothing_but_keeps_the_history() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    agent.turn("first");
    agent.restart();
    let session = agent.session.clone();
    let answer = result(open(&mut agent, "session/resume", &session));
    assert_eq!(answer["modes"]["currentModeId"], "ask");
    assert_eq!(conversation(&agent), [""; 0]);
    agent.turn("second");
    assert_eq!(agent.model_transcript(1), ["user first", "assistant One.", "user second"]);
}

#[test]
fn r_cxl_2_a_cancelled_request_about_stored_sessions_is_answered_once() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).start();
    agent.turn("first");
    let session = agent.session.clone();
    for method in ["session/load", "session/resume", "session/fork", "session/list"] {
        let params = opening_params(&agent, &session);
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
fn r_del_2_a_load_right_after_a_delete_finds_nothing() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    let session = agent.session.clone();
    agent.turn("one");
    let delete = agent.request("session/delete", &session_params(&session));
    let load = agent.request("session/load", &opening_params(&agent, &session));
    result(agent.answer_to(&delete));
    assert_eq!(code(&agent.answer_to(&load)), -32002);
}

#[test]
fn r_fork_1_a_copy_that_cannot_be_opened_is_not_left_behind() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    let original = agent.session.clone();
    agent.turn("first");
    let store = rusqlite::Connection::open(agent.home().join("state/sessions.db")).unwrap();
    // A reference that leads nowhere.
    store.execute("UPDATE entries SET refs = '[[\"$.nowhere\", 1]]'", []).unwrap();
    assert_eq!(code(&open(&mut agent, "session/fork", &original)), -32603);
    let listed = result(agent.call("session/list", &json!({})));
    let ids: Vec<_> =
        listed["sessions"].as_array().unwrap().iter().map(|it| &it["sessionId"]).collect();
    assert_eq!(ids, [&original]);
}

#[test]
fn r_arch_1_an_archived_session_is_closed_first_and_listed_only_on_request() {
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
        result(agent.call("session/archive", &session_params(&session)));
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
        result(agent.call("session/unarchive", &session_params(&session)));
        assert_eq!(listed(&mut agent, json!("only")), [Value::Null; 0]);
        assert_eq!(listed(&mut agent, Value::Null), [false]);
    }
    for method in ["session/archive", "session/unarchive"] {
        assert_eq!(code(&agent.call(method, &session_params("nobody"))), -32002, "{method}");
    }
}

#[test]
fn r_stat_1_the_status_says_whether_a_session_is_open_and_changes_nothing() {
    let mut agent = TestAgent::builder().model(json!([says("One.")])).start();
    let session = agent.session.clone();
    assert_eq!(status(&mut agent, &session), "open");
    agent.turn("one");
    agent.restart();
    assert_eq!(status(&mut agent, &session), "saved");
    assert_eq!(status(&mut agent, &session), "saved");
    assert_eq!(code(&agent.call("session/prompt", &crate::agent::prompt(&session, "x"))), -32002);
    assert_eq!(code(&agent.call("session/status", &session_params("nobody"))), -32002);
    result(open(&mut agent, "session/resume", &session));
    assert_eq!(status(&mut agent, &session), "open");
}

#[test]
fn the_resume_command_lists_the_sessions_of_the_folder_and_continues_a_copy() {
    let read = calls("read_file", &json!({ "path": "a.txt" }));
    let mut agent = TestAgent::builder()
        .file("a.txt", "content\n")
        .model(json!([read, says("It says content."), says("Yes.")]))
        .start();
    agent.turn("Read a.txt");
    let first = agent.session.clone();
    agent.session = agent.new_session();
    let second = agent.session.clone();
    assert_eq!(agent.turn("/resume"), "end_turn");
    let list = agent.text();
    assert!(list.contains("1. Read a.txt") && list.contains(&first), "{list}");
    assert!(!list.contains(&second), "{list}");
    let shown = agent.updates().len();
    assert_eq!(agent.turn("/resume 1"), "end_turn");
    let replayed = agent.updates()[shown..].to_vec();
    let has = |kind: &str, text: &str| {
        replayed.iter().any(|it| it["sessionUpdate"] == kind && it.to_string().contains(text))
    };
    assert!(has("user_message_chunk", "Read a.txt"), "{replayed:?}");
    assert!(has("tool_call", "a.txt"), "{replayed:?}");
    assert!(has("agent_message_chunk", "It says content."), "{replayed:?}");
    assert!(has("session_info_update", "Read a.txt"), "{replayed:?}");
    assert!(agent.text().contains("continues a copy of “Read a.txt”"), "{}", agent.text());

    assert_eq!(agent.turn("Is it so?"), "end_turn");
    let transcript = agent.model_transcript(2);
    assert_eq!(transcript[0], "user Read a.txt");
    assert!(transcript.join("\n").contains("It says content."), "{transcript:?}");
    assert_eq!(transcript.last().unwrap(), "user Is it so?");

    // The copy is stored as a whole, and the original is as it was.
    agent.restart();
    for (session, last) in [(&second, "Is it so?"), (&first, "Read a.txt")] {
        agent.session.clone_from(session);
        let id = agent.request("session/load", &opening_params(&agent, session));
        result(agent.answer_to(&id));
        let words = replayed_prompts(&agent);
        assert_eq!(words.last().unwrap(), last, "{words:?}");
        assert!(words.len() <= 2, "{words:?}");
    }
}

#[test]
fn the_resume_command_replaces_no_conversation() {
    let mut agent = TestAgent::builder().start();
    agent.turn("first");
    agent.session = agent.new_session();
    agent.turn("second");
    for wanted in ["1", "9", "nothing"] {
        assert_eq!(agent.turn(&format!("/resume {wanted}")), "end_turn");
        assert!(agent.text().contains("Nothing was done"), "{wanted}: {}", agent.text());
    }
    agent.turn("/clear");
    agent.turn("/resume 1");
    assert!(agent.text().matches("already has a conversation").count() == 2, "{}", agent.text());
}
