//! Where the parts of long work meet: compactions, helpers, steering, limits, commands and rewinds.

use serde_json::{Value, json};
use turnwright_testing::cards::call;

use crate::agent::{TestAgent, TestAgentBuilder, prompt, says};

/// The window of the model, in tokens.
const WINDOW: &str = "32000";

/// A prompt of about 18 000 tokens.
fn long_prompt(start: &str) -> String {
    format!("{start} {}", "word ".repeat(18_000 * 4 / 5))
}

/// An answer after which the window is nearly full.
fn nearly_full(text: &str) -> Value {
    json!([{ "text": text }, { "usage": { "prompt_tokens": 22_000, "completion_tokens": 9 } }])
}

/// A text that goes on when the test has released the model.
fn held(text: &str) -> Value {
    json!([{ "text": text }, { "hold": true }])
}

/// An answer that the server has counted.
fn counted(text: &str, tokens: u64) -> Value {
    json!([{ "text": text }, { "usage": { "prompt_tokens": tokens, "completion_tokens": 0 } }])
}

fn helper_call(task: &str) -> Value {
    call("agent", &json!({ "description": task, "prompt": task, "type": "explore" }))
}

/// A reply to a request whose last prompt is this task.
fn when(task: &str, reply: Value) -> Value {
    let mut conditional = json!({ "when": task });
    conditional["steps"] = reply;
    conditional
}

fn agent(script: Value) -> TestAgentBuilder {
    let shown = json!({ "session": { "compaction": {}, "notices": {} } });
    TestAgent::builder()
        .model(script)
        .capabilities(shown)
        .variable("TURNWRIGHT_CONTEXT_WINDOW", WINDOW)
}

fn limited(limits: &str, script: Value) -> TestAgent {
    agent(script).own_file("config/config.toml", &format!("[limits]\n{limits}\n")).start()
}

fn steer(agent: &mut TestAgent, text: &str) {
    let params = prompt(&agent.session, text);
    let outcome = agent.call("_session/steering", &params)["result"]["outcome"].clone();
    assert_eq!(outcome, "injected", "{text}");
}

/// Restarts the agent, opens the session again and has one more turn. The request of that turn must begin
/// with the messages of the last request before.
fn assert_same_after_load(agent: &mut TestAgent) {
    let before = agent.model().requests().pop().unwrap().body;
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    agent.turn("after the load");
    let after = agent.model().requests().pop().unwrap().body;
    let before = before["messages"].as_array().unwrap();
    let after = after["messages"].as_array().unwrap();
    for (number, (one, other)) in before.iter().zip(after).enumerate() {
        assert_eq!(one, other, "message {number}");
    }
    assert!(after.len() > before.len());
}

#[test]
fn words_during_a_compaction_are_in_the_request_after_it() {
    let script = json!([nearly_full("One."), held("# Goal "), says("Two."), says("Three.")]);
    let mut agent = agent(script).start();
    assert_eq!(agent.turn(&long_prompt("first words")), "end_turn");
    let id = agent.prompt("second words");
    agent.wait_for_update("compaction_summary_chunk");
    steer(&mut agent, "use tabs");
    steer(&mut agent, "and no spaces");
    agent.model().release();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(agent.model().requests().len(), 3);
    let body = agent.model_request(2).to_string();
    let at = |words: &str| body.find(words).unwrap_or_else(|| panic!("{words}: {body}"));
    assert!(at("second words") < at("use tabs") && at("use tabs") < at("and no spaces"));
    assert_same_after_load(&mut agent);
}

#[test]
fn a_turn_of_a_command_takes_words() {
    let mut agent = agent(json!([held("Looking "), says("With tabs.")])).start();
    let id = agent.prompt("/review");
    agent.wait_for_update("agent_message_chunk");
    steer(&mut agent, "use tabs");
    agent.model().release();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(agent.model_request(1).to_string().contains("use tabs"));
}

#[test]
fn a_rewind_gives_back_no_spending() {
    let script = json!([says("One."), says("Two."), says("Three.")]);
    let mut agent = limited("session_requests = 2", script);
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(agent.turn("two"), "end_turn");
    assert_eq!(agent.turn("/rewind 1"), "end_turn");
    assert_eq!(agent.turn("three"), "max_turn_requests");
    assert_eq!(agent.model().requests().len(), 2);
}

#[test]
fn the_gauge_of_a_loaded_session_knows_of_its_compaction() {
    let script = json!([nearly_full("One."), says("The summary.")]);
    let mut agent = agent(script).start();
    assert_eq!(agent.turn(&long_prompt("first words")), "end_turn");
    assert_eq!(agent.turn("/compact"), "end_turn");
    let used = |agent: &TestAgent| {
        let gauge = agent.updates_of("usage_update").pop().unwrap();
        gauge["used"].as_u64().unwrap()
    };
    assert!(used(&agent) < 12_000, "{}", used(&agent));
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    assert!(used(&agent) < 12_000, "{}", used(&agent));
}

#[test]
fn what_helpers_use_counts_for_the_limits_of_their_session() {
    let script = json!([
        [helper_call("the task"), { "usage": { "prompt_tokens": 100 } }],
        counted("The end.", 50),
        when("the task", counted("Found.", 900)),
    ]);
    let mut agent = limited("session_tokens = 1000", script);
    assert_eq!(agent.turn("go"), "max_tokens");
    assert!(agent.text().contains("The end."), "{}", agent.text());
    assert_eq!(agent.model().requests().len(), 3);
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    assert_eq!(agent.turn("more"), "max_tokens");
    assert_eq!(agent.model().requests().len(), 3);
}

#[test]
fn a_helper_stops_at_the_limits_of_its_session() {
    let list = || json!([call("list_dir", &json!({})), { "usage": { "prompt_tokens": 300 } }]);
    let script = json!([
        [helper_call("the task"), { "usage": { "prompt_tokens": 500 } }],
        counted("The end.", 50),
        when("the task", list()),
        when("the task", list()),
        when("the task", list()),
        when("Answer now with what", counted("I have listed it.", 10)),
    ]);
    let mut agent = limited("session_tokens = 1000", script);
    assert_eq!(agent.turn("go"), "max_tokens");
    assert!(agent.text().contains("The end."), "{}", agent.text());
    let requests = agent.model().requests();
    assert_eq!(requests.len(), 5, "two of the session, two and the answer of the helper");
    assert!(requests[4].body.to_string().contains("I have listed it."));
}

#[test]
fn a_helper_that_goes_round_in_circles_is_asked_for_its_answer() {
    let script = json!([
        [helper_call("the task")],
        says("Done."),
        when("the task", json!([call("list_dir", &json!({}))])),
        when("Answer now with what", says("I have listed it.")),
    ]);
    let mut agent = agent(script).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let requests = agent.model().requests();
    assert_eq!(requests.len(), 2 + 5 + 1);
    let last = requests[7].body.to_string();
    assert!(last.contains("I have listed it.") && !last.contains("Stopped here"), "{last}");
}

#[test]
fn a_note_of_ours_is_no_answer_of_a_helper() {
    let script = json!([
        [helper_call("the task")],
        says("Done."),
        when("the task", json!([call("list_dir", &json!({}))])),
        when("Answer now with what", json!([call("list_dir", &json!({}))])),
    ]);
    let mut agent = agent(script).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let last = agent.model().requests().pop().unwrap().body.to_string();
    assert!(last.contains("The helper failed") && !last.contains("Stopped here"), "{last}");
}

/// A turn with everything that it asks the model for.
struct Turn {
    replies: Vec<Value>,
    run: fn(&mut TestAgent),
}

/// Turns that leave something else in the conversation than a prompt and its answer.
fn odd_turns() -> Vec<Turn> {
    let write = call("write_file", &json!({ "path": "x", "content": "x" }));
    let filter = json!([{ "status": 400, "body": { "error": { "code": "data_inspection_failed",
        "message": "Input data may contain inappropriate content." } } }]);
    let image_refused = json!([{ "status": 400, "body": { "error": {
        "message": "image_url is only supported by certain models" } } }]);
    vec![
        Turn {
            replies: vec![json!([{ "thought": "Only thoughts." }]), says("One.")],
            run: |agent| drop(agent.turn("reasoning")),
        },
        Turn {
            replies: vec![json!([{ "text": "Half " }, { "cut": true }]), says("and half.")],
            run: |agent| drop(agent.turn("a cut answer")),
        },
        Turn {
            replies: vec![json!([{ "text": "Half " }, { "hang": true }])],
            run: |agent| {
                let id = agent.prompt("a cancelled answer");
                agent.wait_for_update("agent_message_chunk");
                agent.cancel();
                agent.stop_reason(&id);
            },
        },
        Turn { replies: vec![filter], run: |agent| drop(agent.turn("refused words")) },
        Turn {
            replies: vec![json!([write, write]), says("Written.")],
            run: |agent| {
                let id = agent.prompt("steered");
                let question = agent.wait_for_request("session/request_permission");
                steer(agent, "use tabs");
                agent.choose(&question, "reject_once");
                let question = agent.wait_for_request("session/request_permission");
                agent.choose(&question, "reject_once");
                agent.stop_reason(&id);
            },
        },
        Turn {
            replies: vec![json!([helper_call("the task")]), says("Helped.")],
            run: |agent| drop(agent.turn("a helper")),
        },
        Turn {
            replies: vec![
                json!([{ "call": { "name": "read_file", "arguments": "{\"path\": " } },
                { "call": { "name": "nonsense", "arguments": {} } }]),
                says("Oops."),
            ],
            run: |agent| drop(agent.turn("calls that cannot run")),
        },
        Turn {
            replies: vec![
                json!([
                    call("read_file", &json!({ "path": "empty" })),
                    call("read_file", &json!({ "path": "long" }))
                ]),
                says("Read."),
            ],
            run: |agent| drop(agent.turn("files")),
        },
        Turn { replies: Vec::new(), run: |agent| drop(agent.turn("/status")) },
        Turn {
            replies: vec![image_refused, says("No image.")],
            run: |agent| {
                let image = json!({ "type": "image", "mimeType": "image/png",
                    "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==" });
                let text = json!({ "type": "text", "text": "an image" });
                let params = json!({ "sessionId": agent.session, "prompt": [text, image] });
                agent.call("session/prompt", &params);
            },
        },
    ]
}

#[test]
fn a_load_rebuilds_what_the_model_had_wherever_a_compaction_was() {
    for place in 0..=odd_turns().len() {
        eprintln!("compacted before turn {place}");
        let mut script = vec![says("Hello."), when("the task", says("Found."))];
        for (number, turn) in odd_turns().into_iter().enumerate() {
            if number == place {
                script.push(says("The summary."));
            }
            script.extend(turn.replies);
        }
        if place == odd_turns().len() {
            script.push(says("The summary."));
        }
        script.extend([says("The end."), says("After it.")]);
        let long = "a line\n".repeat(400);
        let mut agent = agent(json!(script)).file("empty", "").file("long", &long).start();
        agent.turn(&format!("first words {}", "word ".repeat(500)));
        for (number, turn) in odd_turns().into_iter().enumerate() {
            if number == place {
                agent.turn("/compact");
            }
            (turn.run)(&mut agent);
        }
        if place == odd_turns().len() {
            agent.turn("/compact");
        }
        assert_eq!(agent.turn("the end"), "end_turn");
        assert!(agent.text().contains("The end."), "{}", agent.text());
        assert!(agent.text().contains("The model has a summary"), "{}", agent.text());
        assert_same_after_load(&mut agent);
    }
}
