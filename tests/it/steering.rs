//! Words for a turn while it runs a command: the command goes on, and the model reads them with its
//! result.

use serde_json::json;
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, eventually, prompt, says};

#[test]
fn words_during_a_command_do_not_end_it() {
    let wait = "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo finished";
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
