//! MCP servers that connect late: tools that stay keep their places in the model request, so that the
//! provider's cache remains valid, and the user is told once.

use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, says};

/// The tools in a model request. Requests are numbered from 0.
fn tools(agent: &TestAgent, number: usize) -> Vec<Value> {
    agent.model_request(number)["tools"].as_array().unwrap().clone()
}

/// How often the user was told `words`.
fn times(agent: &TestAgent, words: &str) -> usize {
    agent.thoughts().matches(words).count()
}

#[test]
fn tools_of_a_server_that_connects_during_a_turn_are_appended_in_the_next_turn() {
    let file = json!({ "path": "a", "content": "a" });
    let early =
        json!({ "tools": [{ "name": "b" }, { "name": "a" }], "prompts": [{ "name": "greet" }] });
    let mut agent = TestAgent::builder()
        .model(json!([calls("write_file", &file), says("done"), says("more")]))
        .own_file("config/config.toml", "[mcp]\nwait_seconds = 0\n")
        .server("early", &early)
        .server("aaa", &json!({ "start_file": "connect", "tools": [{ "name": "late" }] }))
        .variable("TURNWRIGHT_LOG", "turnwright=info")
        .noisy()
        .start();
    agent.wait_for("the prompt of the first server", |it| it.to_string().contains("early:greet"));
    let turn = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    // The user is told while the turn still waits for the permission.
    std::fs::write(agent.path("connect"), "").unwrap();
    agent.wait_for("the message about the new server", |message| {
        message.to_string().contains("aaa is connected now")
    });
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&turn), "end_turn");
    assert_eq!(agent.turn("more"), "end_turn");
    let last = 2;
    assert_eq!(tools(&agent, 1), tools(&agent, last));
    assert_eq!(agent.server_tools(0), ["mcp__early__b", "mcp__early__a"]);
    assert_eq!(agent.server_tools(last), ["mcp__early__b", "mcp__early__a", "mcp__aaa__late"]);
    let before = tools(&agent, 0);
    assert_eq!(tools(&agent, last)[..before.len()], before[..]);
    // The serialized tools are also a prefix of the later ones.
    let text = |number| agent.model_request(number)["tools"].to_string();
    assert!(text(last).starts_with(text(0).strip_suffix(']').unwrap()));
    assert_eq!(times(&agent, "Not connected yet: aaa."), 1, "{}", agent.thoughts());
    assert_eq!(times(&agent, "aaa is connected now: 1 tools."), 1, "{}", agent.thoughts());
    // What has broken the prefix that the provider had in its cache is shown and logged.
    agent.turn("/context");
    let why = "tools were added: 1 of the MCP server aaa";
    assert!(agent.text().contains(&format!("* Request 2 of 3: {why}")), "{}", agent.text());
    let (_, log) = agent.close();
    let line = log.lines().find(|it| it.contains("the provider has to read the request anew"));
    assert!(line.is_some_and(|it| it.contains(why)), "{log}");
}

#[test]
fn only_the_first_turn_waits_for_servers_and_a_cancel_ends_the_wait() {
    let mut agent = TestAgent::builder()
        .model(json!([says("one"), says("two")]))
        .server("never", &json!({ "start_ms": 600_000 }))
        .start();
    let prompt = agent.prompt("go");
    agent.sync();
    agent.cancel();
    assert_eq!(agent.stop_reason(&prompt), "cancelled");
    assert_eq!(times(&agent, "Not connected yet"), 0, "{}", agent.thoughts());
    // Later turns do not wait, not even after `/clear`, so there is no message.
    assert_eq!(agent.turn("go on"), "end_turn");
    assert_eq!(agent.turn("/clear"), "end_turn");
    assert_eq!(agent.turn("again"), "end_turn");
    assert_eq!(times(&agent, "Not connected yet"), 0, "{}", agent.thoughts());
    assert_eq!(agent.model().requests().len(), 2);
}
