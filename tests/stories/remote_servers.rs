//! MCP servers that the client of a socket hosts (MCP over ACP): what becomes of them when its connection is lost
//! and another client takes over (R-REM-15).

use std::cell::Cell;
use std::rc::Rc;

use serde_json::{Value, json};
use turnwright_testing::hosted_server::{answer_well, hosted_server};
use turnwright_testing::session_requests::{opening_params, result};

use crate::agent::{LIMIT, calls, eventually, says};
use crate::remote::{TestAgent, reconnect, take_over, wait_for_text};
use crate::socket_agent::SocketAgent;

const ECHO: &str = "mcp__near__echo";

fn echo(text: &str) -> Value {
    calls(ECHO, &json!({ "text": text }))
}

/// An agent whose client hosts a server. The client leaves the calls that are `unanswered` to the test.
fn hosting(unanswered: &Rc<Cell<bool>>, replies: &Value) -> TestAgent {
    let unanswered = Rc::clone(unanswered);
    let answer = move |params: &Value| {
        let is_left = unanswered.get() && params["method"] == "tools/call";
        if is_left { None } else { answer_well(params, &["echo"]) }
    };
    TestAgent::builder()
        .server_as(hosted_server("near"))
        .hosting(answer)
        .permission("allow_always")
        .model(replies.clone())
        .start()
}

/// Takes over the session with another connection, whose servers these are.
fn take_over_with(agent: &mut TestAgent, method: &str, servers: Value) {
    let mut params = opening_params(agent, &agent.session.clone());
    params["mcpServers"] = servers;
    take_over(agent, method, &params);
}

fn last_result(agent: &TestAgent, request: usize) -> String {
    agent.model_transcript(request).pop().unwrap()
}

#[test]
fn r_rem_15_a_server_of_the_client_is_that_of_the_client_that_takes_over() {
    for method in ["session/load", "session/resume"] {
        let unanswered = Rc::new(Cell::new(false));
        let waits = json!([{ "hold": true }, { "call": { "name": ECHO, "arguments": { "text": "three" } } }]);
        let replies = json!([echo("one"), echo("two"), waits, says("Done.")]);
        let mut agent = hosting(&unanswered, &replies);
        agent.prompt("go");
        agent.wait_for_hosted("tools/call");
        unanswered.set(true);
        agent.wait_for_hosted("tools/call");
        agent.break_off(SocketAgent::lose);
        // The turn goes on: the call fails, because nobody can answer it any more.
        agent.model().wait_for_requests(3, LIMIT).unwrap();
        assert!(last_result(&agent, 1).contains(r#"{"text":"one"}"#), "{}", last_result(&agent, 1));
        let lost = last_result(&agent, 2);
        assert!(lost.contains("may have been partly executed"), "{lost}");

        agent.restart();
        unanswered.set(false);
        // Its server has another id, as each time an editor starts.
        let server = json!({ "type": "acp", "name": "near", "serverId": "another" });
        take_over_with(&mut agent, method, json!([server]));
        let asked = agent.first_hosted("server/discover");
        assert_eq!(asked["params"]["serverId"], "another");
        let answered = agent.log.iter().position(|it| it["result"]["configOptions"].is_array());
        let asked = agent.log.iter().position(|it| *it == asked);
        assert!(answered < asked, "the session is answered first");
        agent.wait_for_hosted("tools/list");
        agent.model().release();
        wait_for_text(&mut agent, "Done.");
        assert!(
            last_result(&agent, 3).contains(r#"{"text":"three"}"#),
            "{}",
            last_result(&agent, 3)
        );
    }
}

#[test]
fn r_rem_15_a_server_that_the_next_client_does_not_name_is_gone() {
    let unanswered = Rc::new(Cell::new(false));
    let waits = json!([{ "text": "Begun. " }, { "hold": true }, { "text": "Ended." }]);
    let replies = json!([waits, echo("one"), says("Done.")]);
    let mut agent = hosting(&unanswered, &replies);
    eventually("the server is ready", || agent.turn_text("/mcp").contains("ready"));
    agent.prompt("go");
    wait_for_text(&mut agent, "Begun.");
    reconnect(&mut agent);
    let other = json!({ "type": "acp", "name": "far", "serverId": "near" });
    take_over_with(&mut agent, "session/load", json!([other]));
    agent.model().release();
    wait_for_text(&mut agent, "Ended.");
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.hosted_requests("tools/call").len(), 0);
    let failed = last_result(&agent, 2);
    assert!(failed.contains("near"), "{failed}");
    // Opened anew, the session has the servers of its request.
    let params = json!({ "sessionId": agent.session, "cwd": agent.workspace(), "mcpServers": agent.servers });
    result(agent.call("session/load", &params));
    agent.model().push(echo("two")).unwrap();
    agent.model().push(says("Done.")).unwrap();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.hosted_requests("tools/call").len(), 1);
}
