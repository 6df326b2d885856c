//! Tools of MCP servers (M-3 to M-11, S3-2 to S3-9): how they are offered to the model, how arguments are
//! checked, and how results are shown and given to the model.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

const PNG: &str = "iVBORw0KGgpub3QgbXVjaCBvZiBhIHBpY3R1cmU=";

/// A server with a tool `t` that answers with these steps.
fn answering(steps: &Value) -> Value {
    json!({ "tools": [{ "name": "t" }], "answers": { "t": steps } })
}

/// Calls the tool once and returns the result that the model gets.
fn call(steps: &Value) -> (TestAgent, String) {
    let builder = TestAgent::builder().server("s", &answering(steps));
    cards::run(builder, "mcp__s__t", &json!({}))
}

/// The functions of MCP servers that a model request offers. Requests are numbered from 0.
fn offered(agent: &TestAgent, number: usize) -> Vec<Value> {
    let body = agent.model_request(number);
    let all = body["tools"].as_array().unwrap().iter().map(|it| it["function"].clone());
    all.filter(|it| it["name"].as_str().unwrap().starts_with("mcp__")).collect()
}

fn names(functions: &[Value]) -> Vec<&str> {
    functions.iter().map(|it| it["name"].as_str().unwrap()).collect()
}

/// The functions of a server with this scenario in the first model request.
fn offered_first(scenario: &Value) -> Vec<Value> {
    let mut agent =
        TestAgent::builder().model(json!([says("Hello.")])).server("s", scenario).start();
    assert_eq!(agent.turn("go"), "end_turn");
    offered(&agent, 0)
}

/// The messages with this method in the log of a scripted server.
fn logged_messages(log: &str, method: &str) -> Vec<Value> {
    // The server may be writing the last line.
    let lines = log.rsplit_once('\n').map_or("", |it| it.0).lines();
    let all = lines.map(|it| serde_json::from_str::<Value>(it).unwrap());
    all.filter(|it| it["method"] == method).collect()
}

#[test]
fn m_3_all_pages_are_listed_and_a_list_without_end_is_cut() {
    let tools: Vec<_> = (0..7).map(|it| json!({ "name": format!("t{it}") })).collect();
    let functions = offered_first(&json!({ "tools": tools, "page": 3 }));
    let expected: Vec<_> = (0..7).map(|it| format!("mcp__s__t{it}")).collect();
    assert_eq!(names(&functions), expected);
    assert_eq!(offered_first(&json!({ "tools": tools, "page": 3, "endless": true })).len(), 7);
}

#[test]
fn m_4_names_are_valid_and_unique_and_calls_reach_the_right_tools() {
    let scenario = |says: &str| {
        let tools = json!([{ "name": "a.b" }, { "name": "a_b" }, { "name": "a_b" }]);
        let answer = |it: &str| json!([{ "text": format!("{says} {it}") }]);
        json!({ "tools": tools, "answers": { "a.b": answer("dot"), "a_b": answer("line") } })
    };
    let mut agent = TestAgent::builder()
        .model(json!([says("Hello."), says("Hello.")]))
        .permission("allow_once")
        .server("one", &scenario("one"))
        .server("t wo", &scenario("two"))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let functions = offered(&agent, 0);
    let names: Vec<_> = names(&functions).into_iter().map(str::to_owned).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.contains(&"mcp__one__a_b".to_owned()), "{names:?}");
    let fits = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    assert!(names.iter().all(|it| it.len() <= 64 && it.chars().all(fits)), "{names:?}");

    let dotted = names.iter().find(|it| it.starts_with("mcp__t_wo__a_b_")).unwrap();
    let builder = TestAgent::builder().server("t wo", &scenario("two"));
    let dot = cards::run(builder, dotted, &json!({})).1;
    assert!(["two dot", "two line"].contains(&dot.as_str()), "{dot}");
}

#[test]
fn d10_descriptions_and_schemas_of_tools_are_cleaned() {
    let schema = json!({
        "type": "object",
        "properties": { "a": { "$ref": "#/$defs/a" } },
        "$defs": { "a": { "type": "string", "description": "x\u{200b}y" } },
    });
    let description = format!("Reads\u{202e}.{}", " long".repeat(2_000));
    let scenario = json!({ "tools": [
        { "name": "t", "description": description, "inputSchema": schema },
        { "name": "cyclic", "inputSchema": { "properties": { "a": { "$ref": "#" } } } },
        { "name": "odd", "inputSchema": "no schema", "description": 5 },
    ] });
    let functions = offered_first(&scenario);
    assert_eq!(functions.len(), 3);
    let tool = functions.iter().find(|it| it["name"] == "mcp__s__t").unwrap();
    let text = tool["description"].as_str().unwrap();
    assert!(text.starts_with("Reads\\u{202e}. long") && text.len() < 2_100, "{text}");
    let parameters = &tool["parameters"];
    assert_eq!(parameters["properties"]["a"]["description"], "x\\u{200b}y");
    for function in &functions {
        assert_eq!(function["parameters"]["type"], "object");
        assert!(!function.to_string().contains("$ref"));
    }
}

#[test]
fn s3_9_arguments_are_checked_and_repaired_before_the_call() {
    let schema = json!({
        "type": "object",
        "properties": {
            "n": { "type": "integer" },
            "where": { "type": "object", "properties": { "x": { "type": "integer" } } },
            "note": { "type": "string" },
        },
        "required": ["n"],
        "additionalProperties": false,
    });
    let scenario = json!({ "tools": [{ "name": "t", "inputSchema": schema }] });
    let run = |arguments: Value| {
        let builder = TestAgent::builder().server("s", &scenario);
        cards::run(builder, "mcp__s__t", &arguments)
    };
    let (_, result) = run(json!({ "n": "5", "where": "{\"x\": 1}", "note": null }));
    assert_eq!(result, r#"{"n":5,"where":{"x":1}}"#);
    let (agent, result) = run(json!({ "n": 5, "where": { "x": "one" } }));
    assert!(result.contains("`/where/x`: the value is not of type \"integer\""), "{result}");
    assert!(result.contains("The server was not called") && result.contains("n (required)"));
    let card = cards::card(&agent, 0);
    assert_eq!(card["status"], "failed");
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn m_6_tool_failures_and_server_errors_have_different_results() {
    let failed = json!([{ "text": "no such note" }, { "result": { "isError": true } }]);
    let refused = json!([{ "error": { "code": -32602, "message": "bad\u{1b}[31m", "data": "x" } }]);
    let table = [
        (failed, "The tool failed:\nno such note"),
        (json!([{ "result": { "isError": true } }]), "The tool failed:\n(no reason given)"),
        (refused, "The server refused the call (error -32602): bad\\u{1b}[31m x"),
        (json!([{ "die": 3 }]), "The connection to the server s was lost during the call: "),
    ];
    for (steps, expected) in table {
        let (agent, result) = call(&steps);
        assert!(result.starts_with(expected), "{result}");
        assert_eq!(cards::card(&agent, 0)["status"], "failed");
    }
}

#[test]
fn m_7_the_model_and_the_card_get_each_type_of_content() {
    let blocks = json!([
        { "type": "text", "text": "one" },
        { "type": "image", "mimeType": "image/jpg", "data": PNG },
        { "type": "audio", "mimeType": "audio/wav", "data": "UklGRg==" },
        { "type": "resource", "resource": { "uri": "note://1", "text": "two" } },
        { "type": "resource", "resource": { "uri": "note://2", "blob": "AAAA" } },
        { "type": "resource_link", "uri": "note://3", "name": "third", "description": "the rest" },
        { "type": "hologram", "data": 1 },
    ]);
    let (agent, result) = call(&json!([{ "content": blocks }]));
    let expected = [
        "one",
        "[an image, image/png, 30 bytes]",
        "[audio, audio/wav, 6 bytes: not supported]",
        "[resource note://1]",
        "two",
        "[resource note://2: 3 bytes, not shown]",
        "[resource \"third\" at note://3 (the rest): not included; read it by its URI]",
        "[a block of the unknown type \"hologram\" was left out]",
    ];
    for line in expected {
        assert!(result.contains(line), "{line} is not in {result}");
    }
    assert!(!result.contains("UklGRg"), "{result}");
    let card = cards::card(&agent, 0);
    let content = card["content"].as_array().unwrap();
    let picture = content.iter().find(|it| it["content"]["type"] == "image").unwrap();
    assert_eq!(picture["content"]["data"], PNG);
    assert!(!card["rawOutput"].to_string().contains(PNG));
}

#[test]
fn m_8_a_structured_result_is_given_to_the_model_unless_a_text_says_the_same() {
    let structured = json!({ "result": { "structuredContent": { "n": 1 } } });
    let (agent, result) = call(&json!([structured]));
    assert_eq!(result, r#"{"n":1}"#);
    assert_eq!(cards::card(&agent, 0)["rawOutput"]["structuredContent"]["n"], 1);
    let both = |text: &str| {
        let content = json!([{ "type": "text", "text": text }]);
        json!({ "result": { "content": content, "structuredContent": { "n": 1 } } })
    };
    let (agent, result) = call(&json!([both("one")]));
    assert_eq!(result, "one\n{\"n\":1}");
    assert_eq!(cards::card(&agent, 0)["rawOutput"]["structuredContent"]["n"], 1);
    assert_eq!(call(&json!([both("{ \"n\": 1 }")])).1, "{ \"n\": 1 }");

    let schema = json!({ "type": "object", "properties": { "n": { "type": "string" } } });
    let mut scenario = answering(&json!([structured]));
    scenario["tools"][0]["outputSchema"] = schema;
    let builder = TestAgent::builder().server("s", &scenario);
    let (agent, result) = cards::run(builder, "mcp__s__t", &json!({}));
    assert!(result.starts_with(
        "{\"n\":1}\n[the structured content does not match the tool's output schema: `/n`"
    ));
    assert_eq!(cards::card(&agent, 0)["status"], "completed");
    let (_, result) = call(&json!([]));
    assert_eq!(result, "(done; the result is empty)");
}

#[test]
fn m_10_a_cancel_is_forwarded_and_the_late_answer_ignored() {
    let mut scenario = answering(&json!([{ "never": true }]));
    scenario["log"] = "log".into();
    let mut agent = TestAgent::builder()
        .model(json!([calls("mcp__s__t", &json!({})), says("Done.")]))
        .permission("allow_once")
        .server("s", &scenario)
        .start();
    let id = agent.prompt("go");
    agent.wait_for_status("in_progress");
    let log = agent.path("log");
    let log_text = || std::fs::read_to_string(&log).unwrap_or_default();
    crate::agent::eventually("the call arrives", || {
        !logged_messages(&log_text(), "tools/call").is_empty()
    });
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    crate::agent::eventually("the cancellation arrives", || {
        !logged_messages(&log_text(), "notifications/cancelled").is_empty()
    });
    let call = &logged_messages(&log_text(), "tools/call")[0];
    let cancelled = &logged_messages(&log_text(), "notifications/cancelled")[0];
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
    cards::check(&agent);
}

#[test]
fn m_11_progress_is_shown_while_the_tool_works() {
    let step =
        |it: u64| json!({ "progress": { "progress": it, "total": 2, "message": "reading" } });
    let steps = [
        step(1),
        json!({ "until": "1" }),
        step(2),
        json!({ "until": "2" }),
        json!({ "text": "read" }),
    ];
    let mut agent = TestAgent::builder()
        .model(json!([calls("mcp__s__t", &json!({})), says("Done.")]))
        .permission("allow_once")
        .server("s", &answering(&json!(steps)))
        .start();
    let id = agent.prompt("go");
    for number in ["1", "2"] {
        let expected = format!("s: reading ({number} of 2)");
        agent.wait_for("the progress", |message| {
            let update = &message["params"]["update"];
            update["status"] == "in_progress" && cards::card_text(update) == expected
        });
        std::fs::write(agent.path(number), "").unwrap();
    }
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(cards::results(&agent, 1), ["read"]);
}

#[test]
fn a_long_result_is_shortened_and_stored_in_a_file_that_the_model_can_read() {
    let (agent, result) = call(&json!([{ "text": "a line of it\n", "repeat": 1_600_000 }]));
    assert!(result.len() < 32 * 1024, "{}", result.len());
    let (_, rest) = result.split_once("; full output: ").unwrap();
    let (path, _) = rest.split_once(". Use grep or read_file on it.]").unwrap();
    assert_eq!(std::fs::metadata(path).unwrap().len(), 13 * 1_600_000);
    let card = cards::card(&agent, 0);
    assert!(card.to_string().len() < 100 * 1024);
}

#[test]
fn control_characters_and_keys_are_removed_from_results() {
    let (agent, result) = call(&json!([{ "text": "\u{1b}[31mred sk-test-0123456789" }]));
    assert!(result.starts_with("␛[31mred [hidden:"), "{result}");
    let card = cards::card(&agent, 0);
    assert!(!card.to_string().contains("sk-test-0123456789"));
}

#[test]
fn the_card_shows_the_arguments_and_the_permission_request_the_annotations() {
    let hints = json!({ "readOnlyHint": true });
    let scenario = json!({ "tools": [{ "name": "look", "annotations": hints }] });
    let builder = TestAgent::builder().server("s", &scenario);
    let (agent, _) = cards::run(builder, "mcp__s__look", &json!({ "what": "a\nb\u{202e}" }));
    let card = cards::card(&agent, 0);
    assert_eq!(card["title"], "s: look (a\\nb\\u{202e})");
    assert_eq!(card["kind"], "read");
    let question =
        agent.log.iter().find(|it| it["method"] == "session/request_permission").unwrap();
    let text = cards::card_text(&question["params"]["toolCall"]);
    assert!(text.contains("the server claims that it only reads (not verified)"), "{text}");
}
