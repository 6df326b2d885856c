//! Stories about the prompt that waits for its answer: however little room there is, the model gets all of it.

use serde_json::{Value, json};
use turnwright_testing::scripted_model::Recorded;

use crate::agent::{TestAgent, TestAgentBuilder, says};
use crate::provider::SUMMARY_REQUEST;
/// A PNG that ends with a few zeros.
const PNG_BASE64: &str = "iVBORw0KGgoAAAAA";

/// A prompt of about so many tokens, each of whose words is different.
fn prompt(tokens: usize) -> String {
    let words: Vec<_> = (0..tokens / 2).map(|it| format!("word{it:04} ")).collect();
    words.concat()
}

fn text(request: &Recorded) -> String {
    request.body["messages"].to_string()
}

fn is_summary_request(request: &Recorded) -> bool {
    text(request).contains(SUMMARY_REQUEST)
}

/// Asserts that each request but those for summaries has all of the prompt. Returns the number of summaries.
fn assert_whole(agent: &TestAgent, prompt: &str) -> usize {
    let requests = agent.model().requests();
    let (summaries, own): (Vec<_>, Vec<_>) = requests.iter().partition(|it| is_summary_request(it));
    for request in own {
        assert!(text(request).contains(prompt.trim_end()), "{}", text(request));
    }
    summaries.len()
}

fn read(first: usize) -> Value {
    let lines = json!({ "path": "big.txt", "start_line": first, "end_line": first + 39 });
    let words: Vec<_> = (0..600).map(|it| format!("w{it}")).collect();
    json!([{ "text": words.join(" ") }, { "call": { "name": "read_file", "arguments": lines } }])
}

/// An agent with a window of so many tokens, whose model reads twelve long parts of a file, with a summary
/// wherever one is asked for.
fn reader(window: &str) -> TestAgentBuilder {
    let summary = json!({ "when": SUMMARY_REQUEST, "steps": [{ "text": "Some were read." }] });
    let mut script = vec![summary];
    script.extend((1..=12).map(|it| read(it * 40)));
    script.push(says("All read."));
    TestAgent::builder()
        .model(json!(script))
        .file("big.txt", &format!("{}\n", "x".repeat(400)).repeat(600))
        .variable("TURNWRIGHT_CONTEXT_WINDOW", window)
}

#[test]
fn a_prompt_that_is_longer_than_the_window_is_thought_to_be_is_sent_whole() {
    for before in [None, Some("hi")] {
        let mut agent = TestAgent::builder()
            .model(json!(vec![says("Yes."); 4]))
            .variable("TURNWRIGHT_CONTEXT_WINDOW", "8000")
            .start();
        if let Some(before) = before {
            assert_eq!(agent.turn(before), "end_turn");
        }
        let long = prompt(12_000);
        assert_eq!(agent.turn(&long), "end_turn");
        let last = agent.model().requests().pop().unwrap();
        assert!(text(&last).contains(long.trim_end()), "{before:?}");
    }
}

#[test]
fn a_summary_within_the_turn_leaves_its_prompt_whole() {
    for tokens in [4_000, 8_000] {
        let long = prompt(tokens);
        let mut agent = reader("20000").start();
        assert_eq!(agent.turn(&long), "end_turn");
        assert!(agent.text().ends_with("All read."), "{}", agent.text());
        assert!(assert_whole(&agent, &long) > 1, "{tokens}");
        // Afterwards it is a prompt like any other.
        let session = agent.session.clone();
        let before = agent.model().requests().pop().unwrap().body;
        agent.restart();
        agent.load(&session);
        agent.model().push(says("Well.")).unwrap();
        assert_eq!(agent.turn("And now?"), "end_turn");
        let after = agent.model().requests().pop().unwrap().body;
        let before = before["messages"].as_array().unwrap();
        assert_eq!(&after["messages"].as_array().unwrap()[..before.len()], before);
    }
}

#[test]
fn words_that_join_a_turn_are_sent_whole() {
    let long = prompt(12_000);
    let waiting = json!([{ "text": "I wait." }, { "hold": true },
        { "call": { "name": "list_dir", "arguments": {} } }]);
    let mut agent = TestAgent::builder()
        .model(json!([waiting, says("Yes."), says("Yes.")]))
        .variable("TURNWRIGHT_CONTEXT_WINDOW", "8000")
        .start();
    let id = agent.prompt("hi");
    agent.wait_for_update("agent_message_chunk");
    let steered = agent.prompt(&format!("/steer {long}"));
    assert_eq!(agent.stop_reason(&steered), "end_turn");
    agent.model().release();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let last = agent.model().requests().pop().unwrap();
    assert!(text(&last).contains(long.trim_end()), "{}", text(&last));
}

#[test]
fn a_prompt_that_the_server_refuses_by_itself_is_not_cut() {
    let full = json!({ "error": { "message":
        "This model's maximum context length is 32000 tokens. However, you requested 60000 tokens." } });
    let refused = json!([{ "status": 400, "body": full }]);
    let mut agent =
        TestAgent::builder().model(json!([refused, refused, refused, says("Fine.")])).start();
    let long = prompt(60_000);
    assert_eq!(agent.turn(&long), "max_tokens");
    assert_whole(&agent, &long);
    let told = agent.text();
    assert!(told.contains("does not fit") && told.contains("prompt alone"), "{told}");
    assert!(
        !agent.model().requests().iter().any(is_summary_request),
        "there is nothing to summarise"
    );
}

/// Sends a prompt with pictures, and returns how many pictures each later request had.
fn pictures(agent: &mut TestAgent, count: usize) -> Vec<usize> {
    let picture = json!({ "type": "image", "data": PNG_BASE64, "mimeType": "image/png" });
    let mut blocks = vec![json!({ "type": "text", "text": "Read big.txt, and compare." })];
    blocks.extend(vec![picture; count]);
    let params = json!({ "sessionId": agent.session, "prompt": blocks });
    let answer = agent.call("session/prompt", &params);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let requests = agent.model().requests();
    assert!(requests.iter().any(is_summary_request));
    let own = requests.iter().filter(|it| !is_summary_request(it));
    own.map(|it| text(it).matches("data:image/png;base64,").count()).collect()
}

#[test]
fn a_summary_within_the_turn_keeps_the_pictures_of_its_prompt() {
    let mut agent = reader("20000").start();
    let counts = pictures(&mut agent, 2);
    assert!(counts.iter().all(|it| *it == 2), "{counts:?}");
    let last = agent.model().requests().pop().unwrap();
    assert!(!text(&last).contains("does not accept"), "{}", text(&last));
    // A later summary says that they are gone.
    agent.model().push(says("Pictures were compared.")).unwrap();
    agent.model().push(says("Well.")).unwrap();
    assert_eq!(agent.turn("/compact"), "end_turn");
    assert_eq!(agent.turn("And now?"), "end_turn");
    let last = text(&agent.model().requests().pop().unwrap());
    assert!(last.contains("[image left out to save room]"), "{last}");
    assert!(!last.contains("does not accept") && !last.contains("data:image"), "{last}");
}

#[test]
fn pictures_for_which_there_is_no_room_are_said_to_be_left_out() {
    let mut agent = reader("20000").start();
    let counts = pictures(&mut agent, 9);
    assert_eq!(counts[0], 9);
    let left = *counts.last().unwrap();
    assert!((1..9).contains(&left), "{counts:?}");
    let last = text(&agent.model().requests().pop().unwrap());
    assert_eq!(last.matches("[image left out to save room]").count(), 9 - left, "{last}");
}
