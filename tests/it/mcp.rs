//! MCP servers of a session: their tools are offered to the model, its calls reach them, and their
//! processes end with the session.

use serde_json::json;
use turnwright_testing::command_lines::server_with;

use crate::agent::{TestAgent, assert_gone, calls, eventually, is_alive, says};

#[test]
fn r_mcp_1_a_tool_of_a_server_is_offered_asked_about_and_called() {
    let scenario = json!({ "tools": [{ "name": "echo" }] });
    let call = calls("mcp__notes__echo", &json!({ "text": "hi" }));
    let mut agent = TestAgent::builder()
        .model(json!([call, says("done")]))
        .permission("allow_once")
        .server("notes", &scenario)
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(agent.server_tools(0).contains(&"mcp__notes__echo".to_owned()));
    let question = agent.log.iter().find(|it| it["method"] == "session/request_permission");
    assert_eq!(question.unwrap()["params"]["toolCall"]["title"], "notes: echo (hi)");
    let result = agent.model_transcript(1).pop().unwrap();
    assert!(result.contains(r#"{"text":"hi"}"#), "{result}");
}

#[test]
fn a_server_process_ends_with_its_session_and_with_the_agent() {
    let tool = "tool-of-2391";
    let scenario = json!({ "tools": [{ "name": tool }] });
    let (program, scenario) = (server_with(tool), scenario.to_string());
    let server = json!({ "name": "notes", "command": program, "args": [scenario], "env": [] });
    let mut agent = TestAgent::builder().model(json!([says("one")])).server_as(server).start();
    assert_eq!(agent.turn("go"), "end_turn");
    eventually("the server runs", || is_alive(tool));
    let session = agent.session.clone();
    agent.call("session/close", &json!({ "sessionId": session }));
    assert_gone(tool);
    agent.new_session();
    agent.close();
    assert_gone(tool);
}
