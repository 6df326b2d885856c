//! `tool_search`: if MCP servers have too many tools to offer all of them, the model searches for those
//! that it needs.

use serde_json::{Value, json};

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// A server with fifty tools.
fn many() -> Value {
    let tool = |it: usize| json!({ "name": format!("tool_{it}"), "description": "Does a thing." });
    let mut tools: Vec<_> = (0..49).map(tool).collect();
    tools.push(json!({
        "name": "send_letter",
        "description": "Sends a letter.",
        "inputSchema": { "type": "object", "properties": { "recipient": { "type": "string" } } },
    }));
    json!({ "tools": tools })
}

fn agent(replies: Value) -> TestAgentBuilder {
    TestAgent::builder().model(replies).permission("allow_once").server("post", &many())
}

/// The server tools and `tool_search`, if a model request offers them. Requests are numbered from 0.
fn offered(agent: &TestAgent, number: usize) -> Vec<String> {
    let names = agent.offered_tools(number).into_iter();
    names.filter(|it| it.starts_with("mcp__") || it == "tool_search").collect()
}

#[test]
fn tools_that_a_search_finds_are_offered_from_the_next_request_on() {
    let search = calls("tool_search", &json!({ "query": "letters" }));
    let call = calls("mcp__post__send_letter", &json!({ "recipient": "Ann" }));
    let mut agent = agent(json!([search, call, says("sent"), says("again")])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(offered(&agent, 0), ["tool_search"]);
    let found = agent.model_transcript(1).pop().unwrap();
    assert!(found.contains("mcp__post__send_letter: Sends a letter."), "{found}");
    assert!(found.contains("recipient"), "{found}");
    for request in 1..3 {
        assert_eq!(offered(&agent, request), ["tool_search", "mcp__post__send_letter"]);
    }
    let result = agent.model_transcript(2).pop().unwrap();
    assert!(result.contains(r#"{"recipient":"Ann"}"#), "{result}");
    // The tool stays offered, and the serialized tools do not change.
    assert_eq!(agent.turn("again"), "end_turn");
    let text = |number| agent.model_request(number)["tools"].to_string();
    assert_eq!(text(3), text(1));
    assert!(text(1).starts_with(text(0).strip_suffix(']').unwrap()));
    let card = agent.updates().into_iter().find(|it| it["title"] == "Search tools: letters");
    assert_eq!(card.unwrap()["kind"], "search");
}

#[test]
fn a_call_of_a_tool_that_was_not_searched_for_runs_and_the_tool_stays_offered_after_a_load() {
    let call = calls("mcp__post__tool_7", &json!({ "a": 1 }));
    let mut agent = agent(json!([call, says("done"), says("again")])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(offered(&agent, 0), ["tool_search"]);
    assert_eq!(offered(&agent, 1), ["tool_search", "mcp__post__tool_7"]);
    let result = agent.model_transcript(1).pop().unwrap();
    assert!(result.contains(r#"{"a":1}"#), "{result}");
    let session = agent.session.clone();
    agent.call("session/close", &json!({ "sessionId": session }));
    agent.load(&session);
    assert_eq!(agent.turn("again"), "end_turn");
    assert_eq!(offered(&agent, 2), ["tool_search", "mcp__post__tool_7"]);
}
