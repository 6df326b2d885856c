//! Sessions (R-SESS, R-MCP-5, R-MODE): their working folders, the requests that are refused, and
//! their isolation from each other.

use serde_json::{Value, json};
use turnwright_testing::session_requests::code;

use crate::agent::{TestAgent, calls, prompt, says};

/// Returns the text of the model in one session.
fn session_text(agent: &TestAgent, session: &str) -> String {
    let updates = agent.log.iter().filter(|it| it["params"]["sessionId"] == session);
    let updates = updates.map(|it| &it["params"]["update"]);
    let chunks = updates.filter(|it| it["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|it| it["content"]["text"].as_str()).collect()
}

#[test]
fn r_sess_2_an_unusable_working_folder_is_invalid() {
    let mut agent = TestAgent::builder().file("file.txt", "x").initialize();
    let folder = agent.workspace().to_string_lossy().into_owned();
    #[cfg(unix)]
    std::os::unix::fs::symlink(agent.path("nowhere"), agent.path("dangling")).unwrap();
    let bad = [
        String::new(),
        "..".to_owned(),
        "src".to_owned(),
        "./x".to_owned(),
        "~x".to_owned(),
        format!("file://{folder}"),
        format!("{folder}/nowhere"),
        format!("{folder}/dangling"),
        format!("{folder}/file.txt"),
        format!("{folder}/file.txt/x"),
        format!("{folder}/\u{0}"),
        format!("/{}", "x".repeat(5_000)),
    ];
    for cwd in bad {
        let answer = agent.call("session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        assert_eq!(code(&answer), -32602, "{cwd:?}");
    }
    agent.new_session();
}

#[test]
fn r_sess_4_relative_paths_refer_to_the_working_folder() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "outer\n")
        .file("sub/a.txt", "inner\n")
        .permission("allow_once")
        .model(json!([
            calls("read_file", &json!({ "path": "a.txt" })),
            calls("write_file", &json!({ "path": "b.txt", "content": "new\n" })),
            says("Done.")
        ]))
        .initialize();
    let cwd = agent.path("sub");
    let answer = agent.call("session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
    agent.session = answer["result"]["sessionId"].as_str().expect("a session").to_owned();
    assert_eq!(agent.turn("go"), "end_turn");
    let result = agent.model_transcript(1).pop().unwrap();
    assert!(result.contains("inner") && !result.contains("outer"), "{result}");
    assert_eq!(agent.read("sub/b.txt"), "new\n");
    assert!(!agent.path("b.txt").exists());
}

#[test]
fn r_sess_5_reading_outside_the_folder_requires_permission() {
    let outside = turnwright_testing::temporary_folder();
    let deep = outside.path().join("deep");
    std::fs::create_dir(&deep).unwrap();
    std::fs::write(deep.join("secret.txt"), "the secret\n").unwrap();
    let secret = deep.join("secret.txt").to_string_lossy().into_owned();
    let name = outside.path().file_name().unwrap().to_string_lossy().into_owned();
    let up = format!("../{name}/deep/secret.txt");
    let links = ["link.txt", "folder/secret.txt", "folder/../a"];
    let links = if cfg!(unix) { &links[..] } else { &[] };
    for path in [secret.as_str(), up.as_str()].iter().chain(links) {
        let mut agent = TestAgent::builder()
            .model(json!([calls("read_file", &json!({ "path": path })), says("Well.")]))
            .start();
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&secret, agent.path("link.txt")).unwrap();
            std::os::unix::fs::symlink(&deep, agent.path("folder")).unwrap();
        }
        let id = agent.prompt("read it");
        let question = agent.wait_for_request("session/request_permission");
        agent.choose(&question, "reject_once");
        assert_eq!(agent.stop_reason(&id), "end_turn", "{path}");
        for request in 0..2 {
            let body = agent.model_request(request).to_string();
            assert!(!body.contains("the secret"), "{path}: {body}");
        }
    }
}

#[test]
fn r_sess_6_a_session_goes_on_while_another_one_waits() {
    let mut agent = TestAgent::builder()
        .model(json!([
            { "when": "alpha", "steps": [{ "text": "AAA" }, { "hang": true }] },
            { "when": "beta", "steps": [{ "text": "BBB", "repeat": 20, "every_ms": 2 }] }
        ]))
        .start();
    let alpha = agent.session.clone();
    let beta = agent.new_session();
    assert_ne!(alpha, beta);
    let first = agent.prompt("alpha");
    agent.wait_for_update("agent_message_chunk");
    // The agent serves all other requests while alpha hangs.
    agent.session = beta.clone();
    assert_eq!(agent.turn("beta"), "end_turn");
    let mode = json!({ "sessionId": alpha, "modeId": "plan" });
    assert!(agent.call("session/set_mode", &mode)["result"].is_object());
    agent.new_session();
    // A cancel affects only the session that it names.
    agent.cancel();
    agent.sync();
    assert_eq!(agent.model().hung_up(), 0, "the wrong turn was cancelled");
    agent.session = alpha.clone();
    agent.cancel();
    assert_eq!(agent.stop_reason(&first), "cancelled");
    assert_eq!(session_text(&agent, &alpha), "AAA");
    assert_eq!(session_text(&agent, &beta), "BBB".repeat(20));
    agent.session = beta;
    assert_eq!(agent.turn("beta"), "end_turn");
}

#[test]
fn r_sess_6_concurrent_prompts_are_not_mixed() {
    let names = ["alpha", "beta", "gamma", "delta"];
    let reply = |name: &str| {
        let write = json!({ "name": "write_file", "arguments": { "path": name, "content": name } });
        json!({ "when": name, "steps": [
            { "text": name, "repeat": 30, "every_ms": 3 }, { "call": write }
        ] })
    };
    let replies: Vec<_> = names.iter().map(|it| reply(it)).collect();
    // The model answers the tool result with the same reply. The limit of two requests keeps the
    // second call from running.
    let mut agent = TestAgent::builder()
        .variable("TURNWRIGHT_MAX_TURN_REQUESTS", "2")
        .permission("allow_once")
        .model(json!(replies))
        .initialize();
    let sessions: Vec<_> = names.iter().map(|_| agent.new_session()).collect();
    let ids: Vec<_> = names
        .iter()
        .zip(&sessions)
        .map(|(name, session)| agent.request("session/prompt", &prompt(session, name)))
        .collect();
    for id in &ids {
        assert_eq!(agent.stop_reason(id), "max_turn_requests");
    }
    for (name, session) in names.iter().zip(&sessions) {
        let text = session_text(&agent, session);
        let answers = format!("{}The scenario is over.The limit of 2 requests", name.repeat(60));
        assert!(text.starts_with(&answers), "{text}");
        assert_eq!(agent.read(name), *name);
        let of_session = |it: &&Value| it["params"]["sessionId"] == session.as_str();
        for message in agent.log.iter().filter(of_session) {
            let others = names.iter().filter(|it| *it != name);
            let text = message.to_string();
            others.for_each(|it| assert!(!text.contains(it), "{it} in the session of {name}"));
        }
    }
}

#[test]
fn r_sess_6_each_session_has_a_history_of_its_own() {
    let mut agent = TestAgent::builder()
        .model(json!([says("one"), says("two"), says("three"), says("four")]))
        .start();
    let first = agent.session.clone();
    let second = agent.new_session();
    agent.turn("a1");
    agent.session = second;
    agent.turn("b1");
    agent.session = first;
    agent.turn("a2");
    assert_eq!(agent.model_transcript(1), ["user b1"]);
    assert_eq!(agent.model_transcript(2), ["user a1", "assistant one", "user a2"]);
}

#[test]
fn r_mcp_5_a_transport_that_is_not_offered_is_refused() {
    let mut agent = TestAgent::builder().initialize();
    let cwd = agent.workspace().to_path_buf();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let offered = answer["result"]["agentCapabilities"]["mcpCapabilities"].clone();
    let stdio = json!({ "name": "s", "command": "/bin/true", "args": [], "env": [] });
    for kind in ["sse", "websocket"] {
        assert_ne!(offered[kind], true, "the agent offers it now, so this test is out of date");
        let server =
            json!({ "type": kind, "name": "x", "url": "http://127.0.0.1:9/", "headers": [] });
        for servers in [json!([server]), json!([stdio, server])] {
            let answer = agent.call("session/new", &json!({ "cwd": cwd, "mcpServers": servers }));
            assert_eq!(code(&answer), -32602, "{kind}");
        }
    }
    let answer = agent.call("session/new", &json!({ "cwd": cwd, "mcpServers": [stdio] }));
    assert!(answer["result"]["sessionId"].is_string(), "{answer}");
}

#[test]
fn r_mcp_5_a_malformed_server_of_another_type_is_never_started_as_a_program() {
    let mut agent = TestAgent::builder().initialize();
    let cwd = agent.workspace().to_path_buf();
    let program = json!({ "name": "s", "command": "/bin/true", "args": [], "env": [] });
    for kind in ["sse", "http", "acp", "websocket"] {
        let mut server = program.clone();
        server["type"] = kind.into();
        for method in ["session/new", "session/load", "session/resume", "session/fork"] {
            let params = json!({ "cwd": cwd, "mcpServers": [server], "sessionId": "s" });
            assert_eq!(code(&agent.call(method, &params)), -32602, "{method} {kind}");
        }
    }
    let mut typed = program;
    typed["type"] = "stdio".into();
    let answer = agent.call("session/new", &json!({ "cwd": cwd, "mcpServers": [typed] }));
    assert!(answer["result"]["sessionId"].is_string(), "{answer}");
}

#[test]
fn servers_are_understood_in_the_forms_of_other_clients_and_a_wrong_field_is_named() {
    let mut agent = TestAgent::builder().model(json!([says("Hello.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let (cwd, session) = (agent.workspace().to_path_buf(), agent.session.clone());
    let good = [Value::Null, json!({ "s": { "command": "/bin/true", "env": { "A": "b" } } })];
    let env = json!({ "A": null });
    let bad = json!([{ "name": "s", "command": "/bin/true", "env": env }]);
    for method in ["session/new", "session/load", "session/resume", "session/fork"] {
        for servers in &good {
            let params = json!({ "cwd": cwd, "mcpServers": servers, "sessionId": session });
            let answer = agent.call(method, &params);
            assert!(answer["result"].is_object(), "{method} {servers}: {answer}");
        }
        let params = json!({ "cwd": cwd, "mcpServers": bad, "sessionId": session });
        let answer = agent.call(method, &params);
        assert_eq!(code(&answer), -32602, "{method}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("`mcpServers[0].env.A` must be text"), "{method}: {message}");
    }
}

#[test]
fn r_sess_7_and_mode_1_modes_are_offered_and_an_unknown_mode_is_invalid() {
    let mut agent = TestAgent::builder().initialize();
    let answer = agent.call_new_session();
    let modes = &answer["result"]["modes"];
    assert_eq!(modes["currentModeId"], "ask");
    let ids: Vec<_> =
        modes["availableModes"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, ["ask", "plan", "auto-edit", "auto", "full"]);
    let session = answer["result"]["sessionId"].as_str().unwrap();
    for mode in ["", "yolo", "Plan", "plan "] {
        let params = json!({ "sessionId": session, "modeId": mode });
        assert_eq!(code(&agent.call("session/set_mode", &params)), -32602, "{mode}");
    }
    for mode in ["plan", "plan", "ask"] {
        let params = json!({ "sessionId": session, "modeId": mode });
        assert_eq!(agent.call("session/set_mode", &params)["result"], json!({}), "{mode}");
    }
}

#[test]
fn r_mode_1_the_environment_selects_the_initial_mode() {
    for (set, expected) in [("plan", "plan"), ("ask", "ask"), ("everything", "ask")] {
        let mut agent = TestAgent::builder().variable("TURNWRIGHT_MODE", set).initialize();
        let answer = agent.call_new_session();
        assert_eq!(answer["result"]["modes"]["currentModeId"], expected, "{set}");
    }
}

#[test]
fn r_mode_1_plan_mode_denies_changes_and_allows_reading() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "readable\n")
        .model(json!([
            calls("write_file", &json!({ "path": "b.txt", "content": "x" })),
            calls("exec", &json!({ "command": "touch c.txt" })),
            calls("read_file", &json!({ "path": "a.txt" })),
            says("So be it."),
            calls("write_file", &json!({ "path": "b.txt", "content": "x" })),
            says("Done.")
        ]))
        .start();
    let session = agent.session.clone();
    let set = |agent: &mut TestAgent, mode: &str| {
        let params = json!({ "sessionId": session, "modeId": mode });
        assert!(agent.call("session/set_mode", &params)["result"].is_object());
    };
    set(&mut agent, "plan");
    assert_eq!(agent.turn("change things"), "end_turn");
    let questions = |agent: &TestAgent| {
        agent.log.iter().filter(|it| it["method"] == "session/request_permission").count()
    };
    assert_eq!(questions(&agent), 0, "a denied call must not request permission");
    assert!(!agent.path("b.txt").exists() && !agent.path("c.txt").exists());
    for request in [1, 2] {
        let result = agent.model_transcript(request).pop().unwrap();
        assert!(result.contains("Plan mode"), "{result}");
    }
    assert!(agent.model_transcript(3).pop().unwrap().contains("readable"));
    set(&mut agent, "ask");
    let id = agent.prompt("now do");
    let question = agent.wait_for_request("session/request_permission");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(agent.read("b.txt"), "x");
}

#[test]
fn r_mode_1_the_mode_can_be_changed_during_a_turn() {
    let write = |name: &str| calls("write_file", &json!({ "path": name, "content": "x" }));
    let mut agent =
        TestAgent::builder().model(json!([write("a"), write("b"), says("Ok.")])).start();
    let id = agent.prompt("write a and b");
    let question = agent.wait_for_request("session/request_permission");
    agent.choose(&question, "allow_once");
    let question = agent.wait_for_request("session/request_permission");
    let params = json!({ "sessionId": agent.session, "modeId": "plan" });
    assert!(agent.call("session/set_mode", &params)["result"].is_object());
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(agent.path("a").exists(), "the first write was allowed before the change");
    assert!(
        !agent.path("b").exists(),
        "plan mode must deny the second write, whatever the client answers"
    );
}
