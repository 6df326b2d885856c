//! The content blocks of a prompt (R-CONT, R-TURN-11): what the model receives, and which blocks
//! are refused.

use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, says};

/// Sends a prompt with these blocks, and returns its answer.
fn send(agent: &mut TestAgent, blocks: &Value) -> Value {
    let params = json!({ "sessionId": agent.session, "prompt": blocks });
    agent.call("session/prompt", &params)
}

/// Runs a turn with these blocks, and returns what the model receives.
fn read_by_model(blocks: &Value) -> String {
    let mut agent = TestAgent::builder().model(json!([says("Yes.")])).start();
    let answer = send(&mut agent, blocks);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    agent.model_transcript(0).remove(0)
}

#[test]
fn r_cont_1_text_blocks_are_sent_in_order() {
    let blocks = json!([
        { "type": "text", "text": "one " },
        { "type": "text", "text": "zwei äöü 🦀" },
    ]);
    assert_eq!(read_by_model(&blocks), "user one zwei äöü 🦀");
}

#[test]
fn r_cont_1_empty_text_is_no_part_of_a_prompt() {
    let mut agent = TestAgent::builder().model(json!([says("Yes.")])).start();
    let empty = json!({ "type": "text", "text": "" });
    assert_eq!(send(&mut agent, &json!([empty, empty]))["error"]["code"], -32602);
    let blocks = json!([empty, { "type": "text", "text": "hi" }, empty]);
    assert_eq!(send(&mut agent, &blocks)["result"]["stopReason"], "end_turn");
    assert_eq!(agent.model_transcript(0), ["user hi"]);
    let session = agent.session.clone();
    agent.load(&session);
    let shown = agent.updates_of("user_message_chunk");
    let shown: Vec<_> = shown.iter().map(|it| &it["content"]["text"]).collect();
    assert_eq!(shown, ["hi"]);
}

#[test]
fn a_prompt_of_blanks_is_refused_as_an_empty_one() {
    let mut agent = TestAgent::builder().model(json!([says("Yes.")])).start();
    let blank = json!({ "type": "text", "text": " \n" });
    assert_eq!(send(&mut agent, &json!([blank]))["error"]["code"], -32602);
    assert_eq!(send(&mut agent, &json!([blank, blank]))["error"]["code"], -32602);
    let file = json!({ "type": "resource_link", "name": "n", "uri": "file:///n" });
    let answer = send(&mut agent, &json!([blank, file, blank]));
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert_eq!(agent.model().requests().len(), 1);
}

#[test]
fn r_cont_2_the_model_can_read_a_linked_file() {
    let mut agent = TestAgent::builder().file("src/lib.rs", "fn main() {}\n").start();
    let path = agent.path("src/lib.rs").display().to_string();
    let link =
        json!({ "type": "resource_link", "name": "lib.rs", "uri": format!("file://{path}") });
    agent.model().push(calls("read_file", &json!({ "path": path }))).unwrap();
    agent.model().push(says("Empty.")).unwrap();
    let answer = send(&mut agent, &json!([{ "type": "text", "text": "See " }, link]));
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let transcript = agent.model_transcript(1);
    assert!(transcript[0].contains(&path), "the path is missing: {transcript:?}");
    assert!(transcript[2].ends_with("    1| fn main() {}"), "{transcript:?}");
}

#[test]
fn r_cont_2_lines_and_symbols_of_links_are_words_and_not_part_of_the_path() {
    let link = |uri: &str| json!({ "type": "resource_link", "name": "n", "uri": uri });
    // An editor on Windows may have its agent in WSL.
    let drive = if cfg!(target_os = "linux") { "/mnt/c/" } else { "C:/" };
    let on_drive = format!("[n]({drive}Users/me/a.txt)");
    for (uri, expected) in [
        ("file:///p/a%20b.rs?symbol=run#L10:20", "[n](/p/a b.rs) (run, lines 10-20)"),
        ("file:///p/plain.txt#L2-3", "[n](/p/plain.txt) (lines 2-3)"),
        ("file:///p/plain.txt?column=5#L2:2", "[n](/p/plain.txt) (lines 2)"),
        ("file:///C:/Users/me/a.txt", on_drive.as_str()),
        ("file://server/share/a.txt", "[n](//server/share/a.txt)"),
        ("https://h/a#L2", "[n](https://h/a#L2)"),
    ] {
        assert_eq!(read_by_model(&json!([link(uri)])), format!("user {expected}"));
    }
    let attached = json!([{ "type": "resource", "resource": {
        "uri": "file:///p/a.rs#L2:3", "mimeType": "text/x-rust", "text": "fn a() {}" } }]);
    let read = read_by_model(&attached);
    assert!(read.contains("<attachment source=\"/p/a.rs\" part=\"lines 2-3\">"), "{read}");
}

#[test]
fn a_path_argument_that_is_a_link_means_the_file_and_its_lines() {
    let mut agent =
        TestAgent::builder().file("plain.txt", "1\n2\n3\n4\n").permission("allow_once").start();
    let file = agent.path("plain.txt").display().to_string().replace('\\', "/");
    let uri = format!("file://{}{file}", if cfg!(windows) { "/" } else { "" });
    for path in ["plain.txt#L2:3", "plain.txt?symbol=x#L2-3", &format!("{uri}#L2:3")] {
        let result = result_of(&mut agent, "read_file", &json!({ "path": path }));
        assert!(result.ends_with("| Lines: 4]\n    2| 2\n    3| 3"), "{path}: {result}");
    }
    let own_range = json!({ "path": uri, "start_line": 4 });
    let result = result_of(&mut agent, "read_file", &own_range);
    assert!(result.ends_with("    4| 4"), "{result}");
    let result = result_of(&mut agent, "read_file", &json!({ "paths": [uri, "plain.txt#L1"] }));
    assert_eq!(result.matches("    1| 1\n").count(), 2, "{result}");
    let edit = json!({ "path": "plain.txt#L2", "old_text": "2\n", "new_text": "two\n" });
    result_of(&mut agent, "edit_file", &edit);
    assert_eq!(agent.read("plain.txt"), "1\ntwo\n3\n4\n");
    // A file may have such a name.
    std::fs::write(agent.path("plain.txt#L2"), "odd\n").unwrap();
    let result = result_of(&mut agent, "read_file", &json!({ "path": "plain.txt#L2" }));
    assert!(result.ends_with("    1| odd"), "{result}");
}

/// Runs a turn with one call, and returns its result.
fn result_of(agent: &mut TestAgent, tool: &str, arguments: &Value) -> String {
    agent.model().push(calls(tool, arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    assert_eq!(agent.turn("go"), "end_turn");
    let last = agent.model().requests().pop().unwrap();
    let messages = last.body["messages"].as_array().unwrap();
    messages.last().unwrap()["content"].as_str().unwrap().trim_end().to_owned()
}

#[test]
fn embedded_text_is_sent_with_its_path() {
    let blocks = json!([
        { "type": "text", "text": "Explain" },
        { "type": "resource", "resource": {
            "uri": "file:///p/a.rs", "mimeType": "text/x-rust", "text": "fn a() {}" } },
    ]);
    let read = read_by_model(&blocks);
    assert!(read.starts_with("user Explain"), "{read}");
    assert!(read.contains("/p/a.rs") && read.contains("fn a() {}"), "{read}");
}

#[test]
fn r_cont_4_annotations_do_not_break_parsing() {
    let annotations = json!({ "priority": 0.5, "audience": ["user", "somebody"], "new": [1] });
    let blocks = json!([
        { "type": "text", "text": "hi", "annotations": annotations, "_meta": { "a": 1 } },
        { "type": "resource_link", "name": "n", "uri": "file:///n", "annotations": annotations },
    ]);
    assert!(read_by_model(&blocks).starts_with("user hi"));
}

#[test]
fn r_turn_11_unsupported_and_malformed_blocks_are_refused_and_the_session_goes_on() {
    let mut agent = TestAgent::builder().model(json!([says("Hello.")])).start();
    for block in [
        json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" }),
        json!({ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" }),
        json!({ "type": "text" }),
        json!({ "type": "text", "text": 5 }),
        json!({ "type": "smell", "data": "AAAA" }),
        json!({ "text": "no type" }),
        json!("a string"),
        json!(null),
    ] {
        let answer = send(&mut agent, &json!([{ "type": "text", "text": "Look" }, block]));
        assert_eq!(answer["error"]["code"], -32602, "{block}: {answer}");
    }
    let params = json!({ "sessionId": agent.session, "prompt": "a string" });
    assert_eq!(agent.call("session/prompt", &params)["error"]["code"], -32602);
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(
        agent.model_transcript(0),
        ["user hi"],
        "a refused prompt must not be in the history"
    );
}
