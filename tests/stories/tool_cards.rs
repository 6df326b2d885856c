//! What a card tells the user. The model reads a text of its own, which says what to do next.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says, writes};

/// The card after a turn with this call, of a client that gives this answer to each question.
fn card_of(call: &Value, answer: &'static str) -> (TestAgent, Value) {
    let mut agent = TestAgent::builder()
        .file("a.txt", "old\n")
        .permission(answer)
        .model(json!([call, says("Done.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    let card = cards::card(&agent, 0);
    (agent, card)
}

fn first_update(agent: &TestAgent) -> Value {
    let is_call = |it: &Value| it["sessionUpdate"] == "tool_call";
    agent.updates().into_iter().find(is_call).expect("a card")
}

/// The diff of `a.txt` and a text, as a card shows them.
fn diff_and(agent: &TestAgent, text: &str) -> Value {
    let diff = json!({ "type": "diff", "path": agent.path("a.txt"), "oldText": "old\n", "newText": "new\n" });
    json!([diff, { "type": "content", "content": { "type": "text", "text": text } }])
}

#[test]
fn a_rejected_edit_says_so_and_keeps_its_diff() {
    let (mut agent, card) = card_of(&writes("a.txt", "new\n"), "reject_once");
    assert_eq!(card["status"], "failed");
    assert_eq!(card["content"], diff_and(&agent, "Rejected"));
    assert_eq!(card["rawOutput"], json!({ "message": "Rejected" }));
    assert!(cards::results(&agent, 1)[0].starts_with("The user rejected this call. Do not"));
    let session = agent.session.clone();
    agent.restart();
    agent.load(&session);
    assert_eq!(cards::card(&agent, 0)["content"], diff_and(&agent, "Rejected"));
}

#[test]
fn a_cancelled_edit_says_so_and_keeps_its_diff() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "old\n")
        .model(json!([writes("a.txt", "new\n")]))
        .start();
    let id = agent.prompt("go");
    agent.wait_for_request("session/request_permission");
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    assert_eq!(cards::card(&agent, 0)["content"], diff_and(&agent, "Cancelled"));
}

#[test]
fn an_edit_that_fails_says_why_and_keeps_its_diff() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "old\n")
        .model(json!([writes("a.txt", "new\n"), says("Done.")]))
        .start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    std::fs::write(agent.path("a.txt"), "changed by somebody\n").unwrap();
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let card = cards::card(&agent, 0);
    assert_eq!(card["content"][0]["newText"], "new\n", "{card}");
    let text = cards::card_text(&card);
    assert!(text.starts_with("Failed: a.txt ") && !text.contains("Read it"), "{text}");
}

#[test]
fn a_card_shows_what_was_read_and_the_raw_output_holds_the_result() {
    for (name, arguments, shown) in [
        ("read_file", json!({ "path": "a.txt" }), "    1| old\n"),
        ("list_dir", json!({}), "a.txt (4 B)\n"),
        ("grep", json!({ "pattern": "ol" }), "a.txt:1: old\n"),
        ("find_files", json!({ "glob": "*.txt" }), "a.txt\n"),
    ] {
        let (_, card) = card_of(&calls(name, &arguments), "allow_once");
        assert!(cards::card_text(&card).contains(shown), "{card}");
        assert!(card["rawOutput"]["result"].as_str().unwrap().contains(shown), "{card}");
    }
}

#[test]
fn a_card_shows_sixteen_kibibytes_of_a_long_file() {
    let long = "a line of the file\n".repeat(2_500);
    let read = calls("read_file", &json!({ "path": "long.txt", "show_line_numbers": false }));
    let mut agent =
        TestAgent::builder().file("long.txt", &long).model(json!([read, says("Done.")])).start();
    agent.turn("go");
    let card = cards::card(&agent, 0);
    let raw = card["rawOutput"]["result"].as_str().unwrap().to_owned();
    for text in [cards::card_text(&card), raw] {
        assert!((15_000..17_000).contains(&text.len()), "{}", text.len());
        assert!(text.contains(" more bytes]\n"), "{text}");
    }
    assert!(cards::results(&agent, 1)[0].len() > 30_000);
}

#[test]
fn a_file_that_cannot_be_read_fails_with_a_sentence() {
    let (_, card) = card_of(&calls("read_file", &json!({ "path": "b.txt" })), "allow_once");
    assert_eq!(cards::card_text(&card), "Failed: b.txt does not exist");
}

#[test]
fn a_card_begins_with_everything_that_complete_arguments_tell() {
    for (path, title) in [("b.txt", "Create b.txt"), ("a.txt", "Edit a.txt")] {
        let (agent, card) = card_of(&writes(path, "new\n"), "allow_once");
        let first = first_update(&agent);
        let location = json!([{ "path": agent.path(path), "line": 1 }]);
        assert_eq!((&first["title"], &card["title"]), (&json!(title), &json!(title)));
        assert_eq!(first["locations"], location);
        assert_eq!(first["rawInput"], json!({ "path": path, "content": "new\n" }));
    }
}

#[test]
fn a_card_does_not_wait_for_arguments_that_take_long() {
    let delta = |call: Value| {
        let choice = json!({ "index": 0, "delta": { "tool_calls": [call] } });
        json!({ "data": { "choices": [choice] } })
    };
    let slow = json!([
        delta(json!({ "index": 0, "id": "slow", "type": "function",
            "function": { "name": "write_file", "arguments": r#"{"path": "b."# } })),
        { "hold": true },
        delta(json!({ "index": 0,
            "function": { "arguments": r#"txt", "content": "new\n"}"# } })),
        { "finish": "tool_calls" },
    ]);
    let mut agent =
        TestAgent::builder().permission("allow_once").model(json!([slow, says("Done.")])).start();
    let id = agent.prompt("go");
    agent.wait_for_update("tool_call");
    agent.model().release();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let first = first_update(&agent);
    assert_eq!((&first["title"], &first["rawInput"]), (&json!("Write file"), &Value::Null));
    let card = cards::card(&agent, 0);
    assert_eq!(card["title"], "Create b.txt");
    assert_eq!(card["rawInput"], json!({ "path": "b.txt", "content": "new\n" }));
}

#[test]
fn the_question_about_a_plan_is_one_about_the_mode() {
    let mut agent = TestAgent::builder()
        .permission("reject_once")
        .model(json!([calls("exit_plan", &json!({ "plan": "1. Look" })), says("Fine.")]))
        .start();
    let session = agent.session.clone();
    agent.call("session/set_mode", &json!({ "sessionId": session, "modeId": "plan" }));
    assert_eq!(agent.turn("go"), "end_turn");
    let card = cards::card(&agent, 0);
    assert_eq!(card["kind"], "switch_mode");
    assert!(!cards::card_text(&card).contains("Ask what to change"), "{card}");
}
