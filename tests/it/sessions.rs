//! Sessions that are loaded after the process was killed, and running commands of sessions that are
//! closed, deleted and forked (R-LOAD, R-CLOSE, R-DEL, R-FORK).

use serde_json::{Value, json};
use turnwright_testing::cancellation::hangs;
use turnwright_testing::command_lines::{line_for, run_on};
use turnwright_testing::session_requests::{code, conversation, open, result, session_params};

use crate::agent::{TestAgent, assert_gone, calls, eventually, is_alive, says};

#[test]
fn r_load_1_a_session_loads_before_its_first_prompt_and_after_a_kill() {
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
    assert!(
        conversation(&agent).contains(&"user_message_chunk one".to_owned()),
        "{:?}",
        conversation(&agent)
    );
    assert_eq!(agent.turn("two"), "end_turn");
}

#[test]
fn r_close_1_and_2_close_cancels_the_turn_and_an_unknown_session_is_not_found() {
    let run = calls("exec", &json!({ "command": run_on("7331.5") }));
    let mut agent = TestAgent::builder().model(json!([run])).permission("allow_once").start();
    let session = agent.session.clone();
    let id = agent.prompt("wait");
    agent.wait_for_status("in_progress");
    let close = agent.request("session/close", &session_params(&session));
    let answer = agent.answer_to(&close);
    assert_eq!(answer["result"], json!({}));
    assert_eq!(agent.stop_reason(&id), "cancelled");
    let position = |id: &Value| agent.log.iter().position(|it| it["id"] == *id).unwrap();
    assert!(position(&id) < position(&close));
    assert_gone("7331.5");
    for name in [session.as_str(), "nobody"] {
        assert_eq!(code(&agent.call("session/close", &session_params(name))), -32002, "{name}");
        assert_eq!(code(&agent.call("session/prompt", &crate::agent::prompt(name, "x"))), -32002);
    }
}

#[test]
fn r_del_1_and_2_delete_removes_a_session_with_its_files_and_can_be_repeated() {
    let many = format!("for /l %i in (1,1,800) do @echo number %i {}", "x".repeat(150));
    let long = calls("exec", &json!({ "command": line_for("seq 1 200000", &many) }));
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
    result(agent.call("session/delete", &session_params(&session)));
    assert_eq!(agent.stop_reason(&running), "cancelled");
    assert!(folder.is_none_or(|it| !it.exists()), "the session's output files still exist");
    for name in [session.as_str(), "nobody", "../..", ""] {
        result(agent.call("session/delete", &session_params(name)));
    }
    assert!(agent.home().is_dir());
    for method in ["session/load", "session/resume", "session/fork"] {
        assert_eq!(code(&open(&mut agent, method, &session)), -32002, "{method}");
    }
    assert_eq!(result(agent.call("session/list", &json!({})))["sessions"], json!([]));
}

#[test]
fn r_fork_1_a_fork_of_a_running_session_is_active_and_independent() {
    let run = calls("exec", &json!({ "command": run_on("7332.5") }));
    let mut agent = TestAgent::builder()
        .model(json!([says("One."), run, says("Copied."), says("On."), says("Again.")]))
        .permission("allow_once")
        .start();
    let original = agent.session.clone();
    agent.turn("first");
    let running = agent.prompt("wait");
    agent.wait_for_status("in_progress");
    eventually("the command runs", || is_alive("7332.5"));
    let copy = result(open(&mut agent, "session/fork", &original));
    let copy = copy["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(copy, original);
    agent.session.clone_from(&copy);
    assert_eq!(conversation(&agent), [""; 0], "the fork replayed the conversation");
    assert_eq!(agent.turn("in the copy"), "end_turn");
    let transcript = agent.model_transcript(2);
    assert_eq!(transcript[..2], ["user first", "assistant One."]);
    assert!(transcript.iter().any(|it| it.contains("It may or may not")), "{transcript:?}");
    assert_eq!(transcript.last().unwrap(), "user in the copy");
    // The original session goes on unaffected.
    assert!(is_alive("7332.5"));
    agent.session.clone_from(&original);
    agent.cancel();
    assert_eq!(agent.stop_reason(&running), "cancelled");
    agent.turn("in the original");
    let transcript = agent.model_transcript(3);
    assert!(!transcript.iter().any(|it| it.contains("in the copy")), "{transcript:?}");
    // A session that is stored but not open can be forked, too, and a fork outlives its original.
    agent.restart();
    result(agent.call("session/delete", &session_params(&original)));
    let second = result(open(&mut agent, "session/fork", &copy));
    agent.session = second["sessionId"].as_str().unwrap().to_owned();
    agent.turn("again");
    assert!(agent.model_transcript(4).contains(&"assistant Copied.".to_owned()));
}

#[test]
fn output_files_of_a_loaded_session_do_not_overwrite_earlier_ones() {
    let long = |word: &str| {
        let command = if cfg!(windows) {
            let rest = "x".repeat(150);
            format!("echo {word} 1& for /l %i in (2,1,800) do @echo {word} %i {rest}")
        } else {
            format!("for i in $(seq 20000); do echo {word} $i; done")
        };
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
