//! Words for a turn while it runs a command: the command goes on, and the model reads them with its
//! result.

use serde_json::json;
use turnwright_testing::cards;
use turnwright_testing::command_lines::{then, touch, wait_for_file};

use crate::agent::{TestAgent, calls, eventually, prompt, says};

#[test]
fn words_during_a_command_do_not_end_it() {
    let wait = then(&then(&touch("begun"), &wait_for_file("go")), "echo finished");
    let mut agent = TestAgent::builder()
        .model(json!([calls("exec", &json!({ "command": wait })), says("Done.")]))
        .permission("allow_once")
        .start();
    let id = agent.prompt("go");
    let begun = agent.path("begun");
    agent.wait_for_status("in_progress");
    eventually("the command runs", || begun.exists());
    let words = prompt(&agent.session, "then stop");
    assert_eq!(agent.call("_session/steering", &words)["result"]["outcome"], "injected");
    std::fs::write(agent.path("go"), "").unwrap();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(cards::results(&agent, 1)[0].contains("finished"));
    let transcript = agent.model_transcript(1);
    assert_eq!(transcript.last().unwrap(), "user then stop");
}

#[test]
fn words_that_were_taken_survive_the_death_of_the_agent() {
    let write = calls("write_file", &json!({ "path": "x", "content": "x" }));
    let mut agent = TestAgent::builder().model(json!([write, says("Yes.")])).start();
    agent.prompt("go");
    agent.wait_for_request("session/request_permission");
    let words = prompt(&agent.session, "use tabs");
    assert_eq!(agent.call("_session/steering", &words)["result"]["outcome"], "injected");
    agent.kill();
    agent.restart();
    let session = agent.session.clone();
    agent.load(&session);
    assert_eq!(agent.turn("go on"), "end_turn");
    let body = agent.model_request(1).to_string();
    assert_eq!(body.matches("use tabs").count(), 1, "{body}");
}
