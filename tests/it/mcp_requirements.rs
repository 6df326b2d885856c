//! Requirements for MCP servers that no other file tests: loaded sessions, shared servers, the end of busy
//! servers, and requests for input in the protocol revision 2026-07-28.

use serde_json::{Value, json};

use crate::agent::{TestAgent, TestAgentBuilder, assert_gone, calls, eventually, says};
use crate::mcp_config::{section, with};

/// A name that is on the command line of no other process.
fn unique(name: &str) -> String {
    format!("row-{}-{name}", std::process::id())
}

/// The number of processes with `word` on their command line.
fn count(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    lines.filter(|it| String::from_utf8_lossy(it).contains(word)).count()
}

/// An agent whose model calls a tool of this server once.
fn calling(tool: &str, scenario: &Value) -> TestAgentBuilder {
    TestAgent::builder()
        .model(json!([calls(&format!("mcp__s__{tool}"), &json!({})), says("done")]))
        .permission("allow_once")
        .server("s", scenario)
}

/// The result of that call, as the model gets it.
fn call_result(agent: &TestAgent) -> String {
    agent.model_transcript(1).pop().unwrap()
}

fn close(agent: &mut TestAgent, session: &str) {
    agent.call("session/close", &json!({ "sessionId": session }));
}

#[test]
fn r_mcp_6_a_server_runs_in_the_sessions_folder() {
    let scenario =
        json!({ "tools": [{ "name": "look" }], "answers": { "look": [{ "pwd": true }] } });
    let mut agent = calling("look", &scenario).start();
    agent.turn("go");
    let folder = std::fs::canonicalize(agent.workspace()).unwrap().display().to_string();
    let folder = folder.trim_start_matches(r"\\?\");
    assert!(call_result(&agent).ends_with(folder), "{}", call_result(&agent));
}

#[test]
fn r_mcp_8_the_value_of_a_variable_is_in_no_log() {
    let scenario =
        json!({ "tools": [{ "name": "look" }], "answers": { "look": [{ "env": "NOTES_KEY" }] } });
    let mut agent =
        calling("look", &scenario).variable("TURNWRIGHT_LOG", "trace").noisy().initialize();
    agent.servers[0]["env"] = json!([{ "name": "NOTES_KEY", "value": "mellon-9417-key" }]);
    agent.session = agent.new_session();
    agent.turn("go");
    assert!(call_result(&agent).contains("[hidden:"), "{}", call_result(&agent));
    let (_, stderr) = agent.close();
    assert!(stderr.contains("turnwright_mcp"), "the log is empty");
    assert!(!stderr.contains("mellon"), "{stderr}");
}

#[test]
fn r_load_5_and_r_res_2_a_reopened_session_has_the_servers_of_the_request() {
    for method in ["session/load", "session/resume", "session/fork"] {
        let mut agent = TestAgent::builder()
            .model(json!([says("one"), says("two")]))
            .server("then", &json!({ "tools": [{ "name": "t" }] }))
            .start();
        agent.turn("go");
        let session = agent.session.clone();
        close(&mut agent, &session);
        agent.servers[0]["name"] = "now".into();
        let params = json!({
            "sessionId": session, "cwd": agent.workspace(), "mcpServers": agent.servers,
        });
        let answer = agent.call(method, &params);
        let new = answer["result"]["sessionId"].as_str().unwrap_or(&session);
        new.clone_into(&mut agent.session);
        agent.turn("go on");
        assert_eq!(agent.server_tools(0), ["mcp__then__t"]);
        assert_eq!(agent.server_tools(1), ["mcp__now__t"], "{method}: {answer}");
    }
}

#[test]
fn a8_a_server_that_is_not_shared_runs_once_for_each_session() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let word = unique("own");
    let settings = section("s", &json!({ "tools": [{ "name": word }] }), "shared = false");
    let mut agent = with(&settings).model(json!([says("1"), says("2")])).start();
    let first = agent.session.clone();
    agent.turn("go");
    agent.session = agent.new_session();
    agent.turn("go");
    eventually("each session has its server", || count(&word) == 2);
    close(&mut agent, &first);
    eventually("one of them has ended", || count(&word) == 1);
}

#[test]
fn a8_a_new_session_has_the_tools_of_a_connected_server_at_once() {
    let scenario = json!({
        "tools": [{ "name": "t" }], "prompts": [{ "name": "greet" }], "start_ms": 300,
    });
    let settings = format!("[mcp]\nwait_seconds = 0\n{}", section("s", &scenario, ""));
    let mut agent = with(&settings).model(json!([says("1")])).start();
    agent.wait_for("the prompt of the server", |it| it.to_string().contains("s:greet"));
    agent.session = agent.new_session();
    agent.turn("go");
    assert_eq!(agent.server_tools(0), ["mcp__s__t"]);
}

#[test]
fn m_16_a_busy_server_ends_with_its_session() {
    let word = unique("busy");
    let scenario = json!({ "tools": [{ "name": word }], "answers": { &word: [{ "never": true }] },
        "log": "heard" });
    for is_closed in [true, false] {
        let mut agent = calling(&word, &scenario).noisy().start();
        let turn = agent.prompt("go");
        agent.wait_for_status("in_progress");
        let log = agent.path("heard");
        let is_logged = || std::fs::read_to_string(&log).unwrap_or_default().contains("tools/call");
        eventually("the call arrives", is_logged);
        if is_closed {
            let session = agent.session.clone();
            close(&mut agent, &session);
            assert_gone(&word);
            assert_eq!(agent.stop_reason(&turn), "cancelled");
        }
        agent.close();
        assert_gone(&word);
    }
}

#[test]
fn m_9_a_call_is_cancelled_after_the_configured_time() {
    let scenario = json!({ "tools": [{ "name": "t" }], "answers": { "t": [{ "never": true }] },
        "log": "heard" });
    let mut agent = with(&section("s", &scenario, "call_seconds = 1"))
        .model(json!([calls("mcp__s__t", &json!({})), says("done")]))
        .permission("allow_once")
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(
        call_result(&agent).contains("there was no progress for 1 s"),
        "{}",
        call_result(&agent)
    );
    eventually("the cancellation arrives", || {
        agent.read("heard").contains("notifications/cancelled")
    });
}

#[test]
fn writable_folders_in_the_settings_are_roots_of_the_server() {
    let dir = turnwright_testing::temporary_folder();
    let ask = json!([{ "ask": { "method": "roots/list", "params": {} } }]);
    let scenario = json!({ "tools": [{ "name": "t" }], "answers": { "t": ask } });
    let options = format!("write = ['{}']", dir.path().display());
    let mut agent = with(&section("s", &scenario, &options))
        .model(json!([calls("mcp__s__t", &json!({})), says("done")]))
        .permission("allow_once")
        .start();
    agent.turn("go");
    let folder = std::fs::canonicalize(agent.workspace()).unwrap();
    for folder in [folder.as_path(), dir.path()] {
        let root = if cfg!(windows) {
            let folder = folder.display().to_string();
            format!("file:///{}", folder.trim_start_matches(r"\\?\").replace('\\', "/"))
        } else {
            format!("file://{}", folder.display())
        };
        assert!(call_result(&agent).contains(&root), "{root}: {}", call_result(&agent));
    }
}

/// A server of the newest revision whose tool requests this input before it goes on.
fn needing(requests: &Value, more: &Value) -> Value {
    let mut step = json!({ "needs": { "inputRequests": requests, "requestState": "state-17" } });
    for (key, value) in more.as_object().unwrap() {
        step[key] = value.clone();
    }
    json!({ "modern": true, "tools": [{ "name": "t" }], "answers": { "t": [step] } })
}

fn question() -> Value {
    json!({ "method": "elicitation/create", "params": { "mode": "form", "message": "Who?",
        "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } },
            "required": ["name"] } } })
}

#[test]
fn m_13_in_the_newest_revision_the_call_is_repeated_with_the_users_answer() {
    let needs = json!({ "who": question(), "where": { "method": "roots/list" } });
    let mut agent = calling("t", &needing(&needs, &json!({})))
        .capabilities(json!({ "elicitation": { "form": {} } }))
        .start();
    let turn = agent.prompt("go");
    let question = agent.wait_for_request("elicitation/create");
    assert_eq!(question["params"]["message"], "The MCP server s asks: Who?");
    agent.respond(&question, &json!({ "action": "accept", "content": { "name": "Ada" } }));
    assert_eq!(agent.stop_reason(&turn), "end_turn");
    let text = call_result(&agent);
    for part in [r#""content":{"name":"Ada"}"#, "file:///", "state-17"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn m_13_and_14_in_the_newest_revision_unsupported_input_is_declined_or_ends_the_call() {
    let sampling = json!({ "method": "sampling/createMessage", "params": { "maxTokens": 5,
        "messages": [{ "role": "user", "content": { "type": "text", "text": "hi" } }] } });
    let roots = json!({ "where": { "method": "roots/list" } });
    let table = [
        (json!({ "who": question() }), json!({}), r#"{"who":{"action":"decline"}}"#),
        (json!({ "think": sampling }), json!({}), "asks for something that is not supported"),
        (json!({}), json!({}), r#"[null,"state-17"]"#),
        (roots, json!({ "again": true }), "it kept asking for more input"),
    ];
    for (needs, more, expected) in table {
        let mut agent = calling("t", &needing(&needs, &more)).start();
        assert_eq!(agent.turn("go"), "end_turn");
        assert!(call_result(&agent).contains(expected), "{expected}: {}", call_result(&agent));
    }
}

#[test]
fn m_21_resources_and_prompts_work_in_the_newest_revision() {
    let scenario = json!({
        "modern": true,
        "prompts": [{ "name": "greet" }],
        "resources": [{ "uri": "notes://1", "name": "first" }],
        "got": { "notes://1": { "contents": [{ "uri": "notes://1", "text": "Buy milk" }] } },
    });
    let call = calls("mcp__s__read_resource", &json!({ "uri": "notes://1" }));
    let mut agent = TestAgent::builder()
        .model(json!([call, says("done")]))
        .permission("allow_once")
        .server("s", &scenario)
        .start();
    agent.wait_for("the prompt of the server", |it| it.to_string().contains("s:greet"));
    agent.turn("go");
    assert!(call_result(&agent).contains("Buy milk"), "{}", call_result(&agent));
}
