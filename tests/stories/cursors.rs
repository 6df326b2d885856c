//! Cursors, the places at which a session can be forked (R-CUR-1 to R-CUR-5), in both versions of the protocol.

use serde_json::{Value, json};
use turnwright_testing::session_requests::{code, result};

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// A client of each version that is told of cursors, and whether it speaks version 2.
fn clients() -> [(TestAgentBuilder, bool); 2] {
    let capabilities = json!({ "session": { "cursors": {}, "compaction": {} } });
    let client = TestAgent::builder().capabilities(capabilities);
    [(client, false), (TestAgent::builder().v2(), true)]
}

/// The cursors that the client was told of, in their order: the id of each, and whether a fork is possible there.
fn cursors(agent: &TestAgent) -> Vec<(String, bool)> {
    let mut known: Vec<(String, bool)> = Vec::new();
    for update in agent.updates_of("cursor_update") {
        let id = update["cursorId"].as_str().unwrap().to_owned();
        let can_fork = update["capabilities"]["fork"].is_object();
        match known.iter_mut().find(|it| it.0 == id) {
            Some(cursor) => cursor.1 = can_fork,
            None => {
                assert!(update["anchor"].is_object(), "the first update has the place: {update}");
                known.push((id, can_fork));
            }
        }
    }
    known
}

fn fork_params(agent: &TestAgent, cursor: &Value) -> Value {
    json!({
        "sessionId": agent.session, "cwd": agent.workspace(), "mcpServers": [], "cursorId": cursor,
    })
}

/// Makes the fork at a cursor the current session.
fn fork(agent: &mut TestAgent, cursor: &str) {
    let params = fork_params(agent, &json!(cursor));
    let opened = result(agent.call("session/fork", &params));
    opened["sessionId"].as_str().unwrap().clone_into(&mut agent.session);
}

fn session_count(agent: &mut TestAgent) -> usize {
    result(agent.call("session/list", &json!({})))["sessions"].as_array().unwrap().len()
}

/// Has the whole conversation of the current session sent by another process.
fn replay(agent: &mut TestAgent, is_v2: bool) {
    let session = agent.session.clone();
    agent.restart();
    if !is_v2 {
        return agent.load(&session);
    }
    let from = json!({ "type": "start" });
    let params = json!({ "sessionId": session, "cwd": agent.workspace(), "replayFrom": from });
    result(agent.call("session/resume", &params));
}

#[test]
fn cur_3_a_fork_at_a_cursor_has_the_history_before_it() {
    for (client, is_v2) in clients() {
        let replies = json!([says("One."), says("Two."), says("Three."), says("4."), says("5.")]);
        let mut agent = client.model(replies).start();
        for prompt in ["first", "second", "third"] {
            assert_eq!(agent.turn(prompt), "end_turn");
        }
        let source = agent.session.clone();
        let told = cursors(&agent);
        let second = told[told.len() - 2].0.clone();
        fork(&mut agent, &second);
        assert_eq!(agent.turn("and now"), "end_turn");
        let history = agent.model_transcript(3).join("\n");
        assert!(["first", "One.", "and now"].iter().all(|it| history.contains(it)), "{history}");
        assert!(!history.contains("second") && !history.contains("Two."), "{history}");
        // The original has all of it, and the copy is stored as it is.
        replay(&mut agent, is_v2);
        let told = agent.updates_of("user_message_chunk");
        let words: Vec<_> = told.iter().map(|it| &it["content"]["text"]).collect();
        assert_eq!(words, ["first", "and now"]);
        agent.session = source;
        replay(&mut agent, is_v2);
        assert_eq!(agent.turn("fourth"), "end_turn");
        let all = agent.model_transcript(4).join("\n");
        assert!(all.contains("third") && all.contains("Three."), "{all}");
        assert!(!all.contains("and now"), "{all}");
    }
}

#[test]
fn cur_4_an_id_that_is_no_cursor_makes_nothing() {
    for (client, _) in clients() {
        let read = calls("read_file", &json!({ "path": "a.txt" }));
        let replies = json!([read, says("One."), says("Two."), says("Other.")]);
        let mut agent = client.model(replies).file("a.txt", "a\n").start();
        assert_eq!(agent.turn("first"), "end_turn");
        assert_eq!(agent.turn("second"), "end_turn");
        let of_another = cursors(&agent).pop().unwrap().0;
        let answer = agent.updates_of("agent_message_chunk").pop().unwrap()["messageId"].clone();
        let call = agent.updates().iter().find_map(|it| it.get("toolCallId").cloned()).unwrap();
        let named = format!("cursor-{}", answer.as_str().unwrap());
        let before = session_count(&mut agent);
        let bad = ["", "cursor-", "cursor-msg-999", "cursor-msg-01", " ", named.as_str()];
        let types = [json!(7), json!([]), json!({}), json!(true), answer, call];
        for cursor in bad.map(Value::from).into_iter().chain(types) {
            let params = fork_params(&agent, &cursor);
            assert_eq!(code(&agent.call("session/fork", &params)), -32602, "{cursor}");
        }
        assert_eq!(session_count(&mut agent), before);
        // Null is the whole session.
        let params = fork_params(&agent, &Value::Null);
        result(agent.call("session/fork", &params));
        let mut params = fork_params(&agent, &json!(of_another));
        params["sessionId"] = "00000000-0000-4000-8000-000000000000".into();
        assert_eq!(code(&agent.call("session/fork", &params)), -32002);
        agent.session = agent.new_session();
        assert_eq!(agent.turn("other"), "end_turn");
        let before = session_count(&mut agent);
        let params = fork_params(&agent, &json!(of_another));
        assert_eq!(code(&agent.call("session/fork", &params)), -32602, "of another session");
        assert_eq!(session_count(&mut agent), before);
    }
}

#[test]
fn cur_5_what_was_rewound_has_no_capabilities_until_that_is_undone() {
    for (client, _) in clients() {
        let replies = json!([says("One."), says("Two."), says("Three.")]);
        let mut agent = client.model(replies).start();
        for prompt in ["first", "second", "third"] {
            assert_eq!(agent.turn(prompt), "end_turn");
        }
        let told = cursors(&agent);
        let second = told[told.len() - 2].0.clone();
        let third = told[told.len() - 1].0.clone();
        let can_fork = |agent: &TestAgent, id: &str| {
            cursors(agent).iter().any(|cursor| cursor.0 == id && cursor.1)
        };
        agent.turn_text("/rewind 1");
        assert!(can_fork(&agent, &second) && !can_fork(&agent, &third));
        let last = agent.updates_of("cursor_update");
        let last = last.iter().rfind(|it| it["cursorId"] == third.as_str()).unwrap();
        assert_eq!(last.get("capabilities"), Some(&Value::Null));
        let params = fork_params(&agent, &json!(third));
        assert_eq!(code(&agent.call("session/fork", &params)), -32602);
        agent.turn_text("/redo");
        assert!(can_fork(&agent, &second) && can_fork(&agent, &third));
        fork(&mut agent, &third);
    }
}

#[test]
fn cur_2_a_replay_announces_the_cursors_in_their_place_under_the_same_ids() {
    for (client, is_v2) in clients() {
        let replies = json!([says("One."), says("Two."), says("The summary."), says("Three.")]);
        let mut agent = client.model(replies).start();
        assert_eq!(agent.turn("first"), "end_turn");
        assert_eq!(agent.turn("second"), "end_turn");
        assert_eq!(agent.turn("/compact"), "end_turn");
        let live = agent.updates_of("cursor_update");
        let is_after_compaction = |it: &&Value| {
            it["anchor"]["type"] == "compaction" && it["anchor"]["position"] == "after"
        };
        let compaction = live.iter().find(is_after_compaction).expect("one after the compaction");
        let compacted = compaction["cursorId"].as_str().unwrap().to_owned();
        replay(&mut agent, is_v2);
        let again = agent.updates_of("cursor_update");
        for cursor in &live {
            assert!(again.contains(cursor), "{cursor}: {again:?}");
        }
        // Version 1 has one more: the client knows the id of the first prompt now.
        assert_eq!(cursors(&agent).len(), 4, "{again:?}");
        let updates = agent.updates();
        for cursor in &again {
            let is_anchor = |it: &Value| {
                let anchor = &cursor["anchor"];
                let is_same = |id: &str| anchor[id].is_string() && it[id] == anchor[id];
                is_same("messageId") || is_same("compactionId")
            };
            let at = updates.iter().position(|it| it == cursor).unwrap();
            let anchor = updates.iter().position(is_anchor).expect("the client knows the anchor");
            assert!(anchor < at, "{cursor}");
        }
        fork(&mut agent, &compacted);
        assert_eq!(agent.turn("go on"), "end_turn");
        let messages = agent.model_request(3)["messages"].to_string();
        assert!(messages.contains("The summary.") && messages.contains("go on"), "{messages}");
    }
}

#[test]
fn cur_1_a_client_of_version_1_is_told_of_none_without_the_capability() {
    for capabilities in [json!({}), json!({ "session": { "cursors": null } })] {
        let builder = TestAgent::builder().capabilities(capabilities);
        let mut agent = builder.model(json!([says("One."), says("Two.")])).start();
        assert_eq!(agent.turn("first"), "end_turn");
        assert_eq!(agent.turn("second"), "end_turn");
        agent.turn_text("/rewind 1");
        replay(&mut agent, false);
        assert!(agent.updates_of("cursor_update").is_empty());
    }
}

#[test]
fn cur_5_what_a_client_does_not_know_is_not_gone_for_it() {
    for (client, is_v2) in clients() {
        let mut agent = client.model(json!([says("One."), says("Two.")])).start();
        assert_eq!(agent.turn("first"), "end_turn");
        assert_eq!(agent.turn("second"), "end_turn");
        let second = cursors(&agent).pop().unwrap().0;
        agent.turn_text("/rewind 1");
        // The replay is without the second prompt, and the next rewind goes back to before it.
        replay(&mut agent, is_v2);
        agent.turn_text("/rewind 1");
        let told = cursors(&agent);
        assert!(told.iter().any(|cursor| !cursor.1), "{told:?}");
        assert!(told.iter().all(|cursor| cursor.0 != second), "{told:?}");
    }
}

#[test]
fn cur_5_what_the_resume_command_copies_has_ids_and_cursors_that_the_client_does_not_know() {
    for (client, is_v2) in clients() {
        let mut agent = client.model(json!([says("One."), says("Two."), says("Three.")])).start();
        assert_eq!(agent.turn("first"), "end_turn");
        assert_eq!(agent.turn("second"), "end_turn");
        agent.session = agent.new_session();
        assert_eq!(agent.turn("/help"), "end_turn");
        assert_eq!(agent.turn("/help"), "end_turn");
        let before = agent.updates();
        let gone = cursors(&agent);
        assert!(!gone.is_empty());
        assert_eq!(agent.turn("/resume 1"), "end_turn");
        let copied = agent.updates().split_off(before.len());
        let chunks: Vec<_> = copied
            .iter()
            .filter(|it| it["content"]["text"].is_string() && it["messageId"].is_string())
            .collect();
        assert!(chunks.iter().any(|it| it["content"]["text"] == "Two."), "{copied:?}");
        for chunk in chunks {
            let is_known = before.iter().any(|it| it["messageId"] == chunk["messageId"]);
            assert!(!is_known, "{chunk}");
        }
        let (own, withdrawn): (Vec<_>, Vec<_>) =
            cursors(&agent).into_iter().partition(|cursor| cursor.1);
        assert!(gone.iter().all(|cursor| withdrawn.iter().any(|it| it.0 == cursor.0)), "{gone:?}");
        let params = fork_params(&agent, &json!(gone[0].0));
        assert_eq!(code(&agent.call("session/fork", &params)), -32602);
        replay(&mut agent, is_v2);
        let again = cursors(&agent);
        assert!(own.iter().all(|cursor| again.contains(cursor)), "{own:?}: {again:?}");
        fork(&mut agent, &own.last().unwrap().0);
        assert_eq!(agent.turn("and now"), "end_turn");
        let history = agent.model_transcript(2).join("\n");
        assert!(history.contains("first") && !history.contains("second"), "{history}");
    }
}
