//! A project on a file system that never answers, such as a network disk whose server is gone. Only what
//! needs that folder waits for it.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwright_testing::cancellation::hangs;

use crate::agent::{TestAgent, calls, prompt, says};
use crate::store::can_mount;

/// Mounts a FUSE file system that nobody serves, for the agent alone: it holds the device open, so the
/// file system ends with it.
const STALL: &str = "exec 9<>/dev/fuse && mount -i -t fuse \
                     -o fd=9,rootmode=40000,user_id=0,group_id=0 stalled /mnt";
/// A folder there.
const STALLED: &str = "/mnt/project";
/// How long anything else may take. It takes some milliseconds; the other folder would take for ever.
const BOUND: Duration = Duration::from_secs(30);

fn can_stall() -> bool {
    let is_possible = can_mount()
        && File::options().read(true).write(true).open("/dev/fuse").is_ok()
        && Path::new("/mnt").is_dir();
    if !is_possible {
        eprintln!("NOT TESTED: only root can mount a FUSE file system, and there may be none here");
    }
    is_possible
}

/// Measures what must not wait for the stalled folder.
fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    let took = begun.elapsed();
    eprintln!("{what}: {:.1} ms", took.as_secs_f64() * 1e3);
    assert!(took < BOUND, "{what} took {took:?}");
    result
}

fn params(agent: &TestAgent, session: Option<&str>) -> Value {
    let mut params = json!({ "cwd": STALLED, "mcpServers": agent.servers });
    if let Some(session) = session {
        params["sessionId"] = session.into();
    }
    params
}

fn is_answered(agent: &mut TestAgent, id: &Value) -> bool {
    agent.sync();
    agent.log.iter().any(|it| it.get("method").is_none() && it["id"] == *id)
}

#[test]
fn a_folder_that_never_answers_holds_up_no_other_session() {
    if !can_stall() {
        return;
    }
    let echo = calls("exec", &json!({ "command": "echo there" }));
    let replies = json!([says("Stored."), hangs(), echo, says("Fine.")]);
    let mut agent =
        TestAgent::builder().model(replies).permission("allow_once").inside(STALL).start();
    let stored = agent.session.clone();
    assert_eq!(agent.turn("remember"), "end_turn");
    let stalled = params(&agent, None);
    let opening = agent.request("session/new", &stalled);
    let listing = agent.request("session/list", &json!({ "cwd": STALLED }));

    agent.session = timed("session/new elsewhere", || agent.new_session());
    let running = agent.prompt("think");
    agent.wait_for_update("agent_message_chunk");
    agent.cancel();
    let reason = timed("session/cancel of a turn elsewhere", || agent.stop_reason(&running));
    assert_eq!(reason, "cancelled");
    assert_eq!(timed("a turn with a command elsewhere", || agent.turn("run")), "end_turn");
    let all = timed("session/list of all folders", || agent.call("session/list", &json!({})));
    assert!(all["result"]["sessions"].as_array().unwrap().len() >= 2, "{all}");

    // The same session opens in the stalled folder.
    let load = params(&agent, Some(&stored));
    let loading = agent.request("session/load", &load);
    let waiting = agent.request("session/prompt", &prompt(&stored, "too early"));
    assert!(!is_answered(&mut agent, &waiting));
    agent.notify("session/cancel", &json!({ "sessionId": stored }));
    let reason = timed("session/cancel of the opening", || agent.stop_reason(&waiting));
    assert_eq!(reason, "cancelled");
    assert!(!is_answered(&mut agent, &loading));
    agent.notify("$/cancel_request", &json!({ "requestId": loading }));
    let answer = timed("$/cancel_request of the opening", || agent.answer_to(&loading));
    assert_eq!(answer["error"]["code"], -32800, "{answer}");

    let loading = agent.request("session/resume", &load);
    let close = json!({ "sessionId": stored });
    let answer = timed("session/close of the opening", || agent.call("session/close", &close));
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(agent.answer_to(&loading)["error"]["code"], -32800);
    // Nothing of it is left: where the folder answers, it opens.
    timed("session/load elsewhere", || agent.load(&stored));

    assert!(!is_answered(&mut agent, &opening) && !is_answered(&mut agent, &listing));
    let (status, stderr) = timed("the end of stdin", || agent.close());
    assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
}

#[test]
fn a_path_in_an_output_that_never_answers_holds_up_no_turn() {
    if !can_stall() {
        return;
    }
    // No word of the line is the path, because those are looked at before it runs.
    let line = "printf 'dial unix /%s/docker.sock: connect\\n' mnt; exit 1";
    let fails = calls("exec", &json!({ "command": line }));
    let agent = TestAgent::builder().model(json!([fails, says("Fine.")]));
    let mut agent = agent.permission("allow_once").inside(STALL).start();
    assert_eq!(timed("a turn with a command that fails", || agent.turn("run")), "end_turn");
    let result = agent.model_request(1).to_string();
    assert!(result.contains("dial unix /mnt/docker.sock"), "{result}");
    let (status, stderr) = timed("the end of stdin", || agent.close());
    assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
}

#[test]
fn instructions_that_cannot_be_read_in_time_are_reported_to_the_user_once_and_to_the_model() {
    if !can_stall() {
        return;
    }
    // They are read together with the skills, and one of the skills' folders never answers.
    let stall = "mkdir -p $TURNWRIGHT_HOME/config/skills && exec 9<>/dev/fuse && mount -i -t fuse \
                 -o fd=9,rootmode=40000,user_id=0,group_id=0 stalled $TURNWRIGHT_HOME/config/skills";
    let replies = json!([says("One."), says("Two."), says("Three.")]);
    let agent = TestAgent::builder().model(replies).file("AGENTS.md", "Use tabs.\n");
    let mut agent = agent.inside(stall).start();
    for text in ["first", "second", "/clear", "third"] {
        assert_eq!(agent.turn(text), "end_turn");
    }
    let notices = agent.thoughts();
    let expected = "instructions, notes and skills could not be read in time";
    assert_eq!(notices.matches(expected).count(), 1, "{notices}");
    for (number, count) in [(0, 1), (1, 1), (2, 1)] {
        let request = agent.model_request(number).to_string();
        assert_eq!(request.matches("they are missing here").count(), count, "{request}");
        assert!(!request.contains("Use tabs."), "{request}");
    }
}

#[test]
fn a_folder_of_programs_that_never_answers_costs_only_what_needs_the_programs() {
    if !can_stall() {
        return;
    }
    let agent = TestAgent::builder().model(json!([says("Fine.")])).surroundings();
    let mut agent = agent.variable("PATH", "/mnt/bin:/usr/bin:/bin").inside(STALL).start();
    assert_eq!(timed("the first turn", || agent.turn("hi")), "end_turn");
    let request = agent.model_request(0).to_string();
    assert!(request.contains("\\nshell: ") && !request.contains("\\ntools: "), "{request}");
    let (status, stderr) = timed("the end of stdin", || agent.close());
    assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
}
