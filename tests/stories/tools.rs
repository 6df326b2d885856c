//! Tool calls as the client and the model see them (R-TOOL), independent of the tool.

use std::collections::HashSet;

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};

use crate::agent::{TestAgent, calls, says};

/// Returns the tool calls in the messages of the n-th request to the model.
fn own_calls(agent: &TestAgent, number: usize) -> Vec<Value> {
    let body = agent.model_request(number);
    let messages = body["messages"].as_array().unwrap();
    let calls = messages.iter().filter_map(|it| it["tool_calls"].as_array());
    calls.flatten().cloned().collect()
}

#[test]
fn r_tool_1_and_4_a_card_is_shown_while_its_arguments_stream() {
    let arguments = json!({ "path": "a.txt", "content": "never complete" });
    let step = json!({ "call": { "name": "write_file", "arguments": arguments,
        "pieces": 2, "every_ms": 60_000 } });
    let mut agent = TestAgent::builder().model(json!([[step]])).permission("allow_once").start();
    let id = agent.prompt("write");
    // The second half of the arguments would come after a minute.
    let card = agent.wait_for_update("tool_call");
    assert_eq!(card["title"], "Write file");
    assert!(card["status"].is_null() || card["status"] == "pending", "{card}");
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    cards::check(&agent);
    assert!(!agent.path("a.txt").exists());
}

#[test]
fn a_card_names_the_file_before_the_content_is_complete() {
    let arguments = format!("{{\"path\": \"src/a.txt\", \"content\": \"{}", "x".repeat(400));
    let step = json!({ "call": { "name": "write_file", "arguments": arguments } });
    let replies = json!([[step, { "hang": true }]]);
    let mut agent = TestAgent::builder().model(replies).permission("allow_once").start();
    let id = agent.prompt("write");
    let titled = |it: &Value| it["params"]["update"]["title"] == "Write src/a.txt";
    let card = agent.wait_for("the title", titled)["params"]["update"].clone();
    assert_eq!(card["locations"][0]["path"], json!(agent.path("src/a.txt")));
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    cards::check(&agent);
    assert!(!agent.path("src").exists());
}

#[test]
fn arguments_in_many_pieces_are_put_together() {
    let arguments = json!({ "path": "a.txt", "content": "äöü \"quoted\"\n\ttab \\ 🦀" });
    let step = json!({ "call": { "name": "write_file", "arguments": arguments,
        "pieces": 30, "every_ms": 1 } });
    let mut agent =
        TestAgent::builder().model(json!([[step], says("Done.")])).permission("allow_once").start();
    cards::turn(&mut agent);
    assert_eq!(agent.read("a.txt"), "äöü \"quoted\"\n\ttab \\ 🦀");
    assert_eq!(cards::card(&agent, 0)["rawInput"], arguments);
}

#[test]
fn r_tool_2_call_ids_are_unique_when_the_model_reuses_its_own() {
    let reused = json!([{ "call": { "name": "list_dir", "arguments": {}, "id": "call_0" } }]);
    let mut agent = TestAgent::builder()
        .model(json!([reused, reused, says("One."), reused, says("Two.")]))
        .start();
    agent.turn("one");
    agent.turn("two");
    cards::check(&agent);
    assert_eq!(cards::ids(&agent).iter().collect::<HashSet<_>>().len(), 3);
    let calls = own_calls(&agent, 4);
    let ids: HashSet<_> = calls.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3, "the ids must be unique: {calls:?}");
    assert!(ids.contains("call_0"), "the first id of the model must be kept: {calls:?}");
}

#[test]
fn r_tool_7_the_updates_of_a_card_form_the_complete_card() {
    let arguments = json!({ "path": "a.txt", "content": "new\n" });
    let (agent, _) =
        cards::run(TestAgent::builder().file("a.txt", "old\n"), "write_file", &arguments);
    let card = cards::card(&agent, 0);
    let path = agent.path("a.txt");
    assert_eq!(card["title"], "Edit a.txt");
    assert_eq!(card["locations"], json!([{ "path": path, "line": 1 }]));
    let diff = json!({ "type": "diff", "path": path, "oldText": "old\n", "newText": "new\n" });
    assert_eq!(card["content"], json!([diff]));
    assert_eq!(card["rawInput"], arguments);
}

#[test]
fn r_tool_10_locations_are_absolute_and_lines_count_from_1() {
    let mut agent = TestAgent::builder().file("a.txt", "1\n2\n3\n").start();
    let starts = [(json!(2), json!(2)), (json!(-1), Value::Null), (json!(0), Value::Null)];
    for (number, (start, shown)) in starts.iter().enumerate() {
        let arguments = json!({ "path": "a.txt", "start_line": start });
        agent.model().push(calls("read_file", &arguments)).unwrap();
        agent.model().push(says("Done.")).unwrap();
        cards::turn(&mut agent);
        let location = &cards::card(&agent, number)["locations"][0];
        assert_eq!(location["path"], json!(agent.path("a.txt")));
        assert_eq!(location["line"], *shown, "start_line {start}");
    }
}

#[test]
fn r_tool_14_an_invalid_call_fails_and_the_turn_goes_on() {
    let table = [
        ("fly", json!({}), "No tool \"fly\""),
        ("exec", json!("{\"command\": \"touch x\""), "not valid JSON"),
        ("exec", json!("touch x"), "not valid JSON"),
        ("exec", json!("[\"touch x\"]"), "must be a JSON object"),
        ("exec", json!({ "cmnd": "touch x" }), "Invalid arguments for exec"),
        ("exec", json!({ "command": " " }), "needs a `command`"),
        ("exec", json!({ "command": "touch x", "timeout": -1 }), "Invalid arguments for exec"),
        ("write_file", json!({ "path": "x" }), "Invalid arguments for write_file"),
        ("write_file", json!({ "path": "x", "content": "", "mode": "prepend" }), "Invalid arg"),
        ("read_file", json!({}), "needs `path` or `paths`"),
        ("read_file", json!({ "path": ["x", "y"] }), "Invalid arguments for read_file"),
    ];
    let mut agent = TestAgent::builder().permission("allow_once").start();
    for (number, (name, arguments, reason)) in table.iter().enumerate() {
        agent.model().push(calls(name, arguments)).unwrap();
        agent.model().push(says("Sorry.")).unwrap();
        let result = cards::turn(&mut agent);
        assert!(result.contains(reason), "{name} {arguments}: {result}");
        if *arguments == json!("touch x") {
            assert!(result.contains("It takes: command (required), "), "{result}");
        }
        let card = cards::card(&agent, number);
        assert_eq!(card["status"], "failed", "{name} {arguments}");
        assert!(
            cards::card_text(&card).contains(reason),
            "the card does not show the reason: {card}"
        );
    }
    assert_eq!(cards::questions(&agent), 0, "permission was requested for a call that cannot run");
    assert!(!agent.path("x").exists());
}

#[test]
fn a_valid_call_beside_an_invalid_one_runs() {
    let reply = json!([call("exec", &json!("{oops")), call("list_dir", &json!({}))]);
    let mut agent = TestAgent::builder().file("a", "").model(json!([reply, says("Done.")])).start();
    cards::turn(&mut agent);
    let results = cards::results(&agent, 1);
    assert!(results[0].contains("not valid JSON") && results[1] == "a (0 B)\n", "{results:?}");
}

#[test]
fn an_unknown_tool_name_is_sent_back_in_a_form_that_servers_accept() {
    let long = "x".repeat(100);
    for name in ["multi_tool_use.parallel", "functions.list_dir", "a b/c", long.as_str()] {
        let (agent, _) = cards::run(TestAgent::builder(), name, &json!({}));
        let calls = own_calls(&agent, 1);
        let sent = calls[0]["function"]["name"].as_str().unwrap();
        let is_valid = sent.len() <= 64
            && sent.chars().all(|it| it.is_ascii_alphanumeric() || it == '_' || it == '-');
        assert!(
            is_valid && !sent.is_empty(),
            "{name} is sent back as {sent}, which servers refuse"
        );
    }
}

#[test]
fn a_call_that_was_cut_at_the_output_limit_never_runs() {
    for arguments in [
        json!("{\"path\": \"a.txt\", \"content\": \"half"),
        json!({ "path": "a.txt", "content": "" }),
    ] {
        let cut = json!([call("write_file", &arguments), { "finish": "length" }]);
        let mut agent = TestAgent::builder()
            .model(json!([cut, says("I will send less.")]))
            .permission("allow_once")
            .start();
        let result = cards::turn(&mut agent);
        assert!(result.contains("cut off at the output limit"), "{result}");
        assert!(result.contains("append"), "the result does not say how to continue: {result}");
        assert_eq!(cards::card(&agent, 0)["status"], "failed");
        assert!(!agent.path("a.txt").exists() && cards::questions(&agent) == 0);
    }
}

#[test]
fn harmless_mistakes_in_arguments_are_corrected() {
    for (name, arguments, expected) in [
        ("read_file", json!({ "file_path": "a" }), "[File: a | Lines: 2]\n    1| 1\n    2| 2\n"),
        ("read_file", json!({ "paths": "a" }), "[File: a | Lines: 2]\n    1| 1\n    2| 2\n"),
        ("read_file", json!({ "paths": "[\"a\"]" }), "[File: a | Lines: 2]\n    1| 1\n    2| 2\n"),
        (
            "read_file",
            json!({ "path": "a", "start_line": "2" }),
            "[File: a | Lines: 2]\n    2| 2\n",
        ),
        (
            "read_file",
            json!({ "path": "a", "start_line": 2.0 }),
            "[File: a | Lines: 2]\n    2| 2\n",
        ),
        (
            "read_file",
            json!({ "path": "a", "show_line_numbers": "false" }),
            "[File: a | Lines: 2]\n1\n2\n",
        ),
        (
            "read_file",
            json!("\"{\\\"path\\\": \\\"a\\\"}\""),
            "[File: a | Lines: 2]\n    1| 1\n    2| 2\n",
        ),
        ("list_dir", json!(""), "a (4 B)\n"),
        ("list_dir", json!({ "path": "", "depth": null }), "a (4 B)\n"),
    ] {
        let (_, result) = cards::run(TestAgent::builder().file("a", "1\n2\n"), name, &arguments);
        assert_eq!(result, expected, "{name} {arguments}");
    }
}

#[test]
fn calls_that_only_read_run_in_parallel_and_their_results_keep_the_order() {
    let read = |path: &str| call("read_file", &json!({ "path": path }));
    let mut agent = TestAgent::builder()
        .file("a", "disk\n")
        .file("b", "disk\n")
        .capabilities(json!({ "fs": { "readTextFile": true } }))
        .model(json!([[read("a"), read("b")], says("Done.")]))
        .start();
    let id = agent.prompt("read both");
    // The client receives both requests before it answers either, and it answers the second one
    // first.
    let first = agent.wait_for_request("fs/read_text_file");
    let second = agent.wait_for_request("fs/read_text_file");
    for question in [&second, &first] {
        let path = question["params"]["path"].as_str().unwrap();
        let name = path.rsplit(['/', '\\']).next().unwrap().to_owned();
        agent.respond(question, &json!({ "content": format!("buffer {name}") }));
    }
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    let results = cards::results(&agent, 1);
    assert_eq!(results[0], "[File: a | Lines: 1]\n    1| buffer a\n");
    assert_eq!(results[1], "[File: b | Lines: 1]\n    1| buffer b\n");
}
