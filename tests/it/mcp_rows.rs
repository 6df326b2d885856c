//! What is asked of an agent with MCP servers and has no story of its own elsewhere: sessions that come
//! back, who shares a server, the end of one that is busy, and the questions of the newest revision.

use serde_json::{Value, json};

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, is_alive, says};
use crate::mcp_config::{section, with};

/// A word that is on the command line of no other process.
fn unique(name: &str) -> String {
    format!("row-{}-{name}", std::process::id())
}

/// How many processes have it there.
fn count(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    lines.filter(|it| String::from_utf8_lossy(it).contains(word)).count()
}

/// The functions of servers that the n-th request offers.
fn offered(agent: &TestAgent, number: usize) -> Vec<String> {
    let body = agent.model_request(number);
    let name = |it: &Value| it["function"]["name"].as_str().unwrap().to_owned();
    let names = body["tools"].as_array().unwrap().iter().map(name);
    names.filter(|it| it.starts_with("mcp__")).collect()
}

/// An agent whose model calls the tool of this server once.
fn calling(tool: &str, scenario: &Value) -> TestAgentBuilder {
    TestAgent::builder()
        .model(json!([calls(&format!("mcp__s__{tool}"), &json!({})), says("done")]))
        .permission("allow_once")
        .server("s", scenario)
}

/// What the model is told of that call.
fn told(agent: &TestAgent) -> String {
    agent.model_transcript(1).pop().unwrap()
}

fn close(agent: &mut TestAgent, session: &str) {
    agent.call("session/close", &json!({ "sessionId": session }));
}

#[test]
fn r_mcp_4_all_servers_of_the_session_are_connected() {
    let mut agent = TestAgent::builder().model(json!([says("hi")]));
    for name in ["a", "b", "c"] {
        agent = agent.server(name, &json!({ "tools": [{ "name": "t" }] }));
    }
    let mut agent = agent.start();
    agent.turn("go");
    let mut names = offered(&agent, 0);
    names.sort();
    assert_eq!(names, ["mcp__a__t", "mcp__b__t", "mcp__c__t"]);
}

#[test]
fn r_mcp_6_a_server_runs_in_the_sessions_folder() {
    let scenario =
        json!({ "tools": [{ "name": "look" }], "answers": { "look": [{ "pwd": true }] } });
    let mut agent = calling("look", &scenario).start();
    agent.turn("go");
    let folder = std::fs::canonicalize(agent.workspace()).unwrap();
    assert!(told(&agent).ends_with(folder.to_str().unwrap()), "{}", told(&agent));
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
    assert!(told(&agent).contains("[key]"), "{}", told(&agent));
    let (_, stderr) = agent.close();
    assert!(stderr.contains("rmcp"), "nothing was logged");
    assert!(!stderr.contains("mellon"), "{stderr}");
}

#[test]
fn r_load_5_and_r_res_2_who_comes_back_has_the_servers_of_the_request() {
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
        assert_eq!(offered(&agent, 0), ["mcp__then__t"]);
        assert_eq!(offered(&agent, 1), ["mcp__now__t"], "{method}: {answer}");
    }
}

#[test]
fn a8_a_server_that_is_not_to_be_shared_is_there_once_for_each_session() {
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
    assert_eq!(count(&word), 2);
    close(&mut agent, &first);
    assert_eq!(count(&word), 1);
}

#[test]
fn a8_a_session_has_at_once_what_another_has_connected() {
    let scenario = json!({
        "tools": [{ "name": "t" }], "prompts": [{ "name": "greet" }], "start_ms": 300,
    });
    let settings = format!("[mcp]\nwait_seconds = 0\n{}", section("s", &scenario, ""));
    let mut agent = with(&settings).model(json!([says("1")])).start();
    agent.wait_for("the server", |it| it.to_string().contains("s:greet"));
    agent.session = agent.new_session();
    agent.turn("go");
    assert_eq!(offered(&agent, 0), ["mcp__s__t"]);
}

#[test]
fn m_16_nothing_is_left_of_a_server_that_is_busy() {
    let word = unique("busy");
    let scenario = json!({ "tools": [{ "name": word }], "answers": { &word: [{ "never": true }] },
        "log": "heard" });
    for is_closed in [true, false] {
        let mut agent = calling(&word, &scenario).noisy().start();
        let turn = agent.prompt("go");
        agent.wait_for_status("in_progress");
        let heard = agent.path("heard");
        let has_come =
            || std::fs::read_to_string(&heard).unwrap_or_default().contains("tools/call");
        eventually("the call", has_come);
        if is_closed {
            let session = agent.session.clone();
            close(&mut agent, &session);
            assert!(!is_alive(&word), "after session/close");
            assert_eq!(agent.stop_reason(&turn), "cancelled");
        }
        agent.close();
        assert!(!is_alive(&word), "after the end");
    }
}

#[test]
fn m_9_a_call_may_take_as_long_as_the_settings_say_and_the_server_is_told() {
    let scenario = json!({ "tools": [{ "name": "t" }], "answers": { "t": [{ "never": true }] },
        "log": "heard" });
    let mut agent = with(&section("s", &scenario, "call_seconds = 1"))
        .model(json!([calls("mcp__s__t", &json!({})), says("done")]))
        .permission("allow_once")
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(told(&agent).contains("there was no progress for 1 s"), "{}", told(&agent));
    eventually("the word to the server", || {
        agent.read("heard").contains("notifications/cancelled")
    });
}

#[test]
fn s3_8_and_9_who_says_no_is_heard_and_that_is_written_down() {
    let scenario = json!({ "tools": [{ "name": "t" }], "log": "heard" });
    let mut agent = calling("t", &scenario).permission("reject_once").start();
    agent.turn("go");
    assert!(!agent.read("heard").contains("tools/call"));
    let audit = agent.home().join("state/permissions.jsonl");
    agent.close();
    let lines = std::fs::read_to_string(audit).unwrap();
    let line: Value = serde_json::from_str(lines.trim()).unwrap();
    assert_eq!((&line["event"], &line["effects"]), (&json!("asked"), &json!(["call t of s"])));
}

#[test]
fn the_folders_that_the_settings_open_for_a_server_are_among_its_roots() {
    let dir = tempfile::tempdir().unwrap();
    let ask = json!([{ "ask": { "method": "roots/list", "params": {} } }]);
    let scenario = json!({ "tools": [{ "name": "t" }], "answers": { "t": ask } });
    let more = format!("write = ['{}']", dir.path().display());
    let mut agent = with(&section("s", &scenario, &more))
        .model(json!([calls("mcp__s__t", &json!({})), says("done")]))
        .permission("allow_once")
        .start();
    agent.turn("go");
    let folder = std::fs::canonicalize(agent.workspace()).unwrap();
    for folder in [folder.as_path(), dir.path()] {
        let root = format!("file://{}", folder.display());
        assert!(told(&agent).contains(&root), "{root}: {}", told(&agent));
    }
}

/// A server of the newest revision whose tool needs this before it goes on.
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
fn m_13_a_question_of_the_newest_revision_is_the_users_and_the_call_is_made_again_with_the_answer()
{
    let needs = json!({ "who": question(), "where": { "method": "roots/list" } });
    let mut agent = calling("t", &needing(&needs, &json!({})))
        .capabilities(json!({ "elicitation": { "form": {} } }))
        .start();
    let turn = agent.prompt("go");
    let question = agent.wait_for_request("elicitation/create");
    assert_eq!(question["params"]["message"], "The MCP server s asks: Who?");
    agent.respond(&question, &json!({ "action": "accept", "content": { "name": "Ada" } }));
    assert_eq!(agent.stop_reason(&turn), "end_turn");
    let told = told(&agent);
    for part in [r#""content":{"name":"Ada"}"#, "file:///", "state-17"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn m_13_and_14_what_cannot_be_given_to_the_newest_revision_is_declined_or_ends_the_call() {
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
        assert!(told(&agent).contains(expected), "{expected}: {}", told(&agent));
    }
}

#[test]
fn m_21_a_server_of_the_newest_revision_has_resources_and_prompts_too() {
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
    agent.wait_for("its prompt", |it| it.to_string().contains("s:greet"));
    agent.turn("go");
    assert!(told(&agent).contains("Buy milk"), "{}", told(&agent));
}
