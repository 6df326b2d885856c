//! Initialization (R-INIT) of a new agent process, and how the capabilities of the client affect a turn
//! with commands.

use std::process::Command;

use serde_json::{Value, json};
use turnwright_testing::command_lines::cat;
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, calls, says};

/// Serves the agent's requests from the disk until the prompt is answered. Returns the methods of the
/// requests.
fn serve(agent: &mut TestAgent, prompt: &Value) -> Vec<String> {
    let mut methods = Vec::new();
    loop {
        let message = agent.wait_for("a request or the answer", |message| {
            let is_answer = message.get("method").is_none() && message["id"] == *prompt;
            is_answer || (message.get("method").is_some() && message.get("id").is_some())
        });
        let Some(method) = message["method"].as_str() else {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            return methods;
        };
        methods.push(method.to_owned());
        let path = message["params"]["path"].as_str().unwrap_or_default();
        match method {
            "fs/read_text_file" => match std::fs::read_to_string(path) {
                Ok(content) => agent.respond(&message, &json!({ "content": content })),
                Err(_) => agent.refuse(&message, -32002, "Resource not found"),
            },
            "fs/write_text_file" => {
                std::fs::write(path, message["params"]["content"].as_str().unwrap()).unwrap();
                agent.respond(&message, &Value::Null);
            }
            "session/request_permission" => agent.choose(&message, "allow_once"),
            other => panic!("{other} was never offered"),
        }
    }
}

/// Model replies for a turn that reads, writes and runs a command. The provider is busy at first, which
/// the user is told.
fn task() -> Value {
    let busy = json!({ "status": 503, "headers": { "Retry-After": "0" }, "body": "busy" });
    json!([
        [busy],
        calls("read_file", &json!({ "path": "a.txt" })),
        calls("write_file", &json!({ "path": "b.txt", "content": "new\n" })),
        calls("exec", &json!({ "command": cat("b.txt") })),
        says("Done.")
    ])
}

#[test]
fn r_init_1_and_2_the_answer_holds_version_capabilities_and_agent_info() {
    let mut agent = TestAgent::builder().spawn();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let result = &answer["result"];
    assert_eq!(result["protocolVersion"], 1);
    assert!(result["agentCapabilities"].is_object(), "{answer}");
    assert_eq!(result["agentInfo"]["name"], "turnwright");
    assert_eq!(result["agentInfo"]["title"], "turnwright");
    let output =
        process_waits::output(Command::new(env!("CARGO_BIN_EXE_turnwright")).arg("--version"))
            .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let version = result["agentInfo"]["version"].as_str().unwrap();
    assert_eq!(printed.trim(), format!("turnwright {version}"));
}

#[test]
fn p0_2_initialize_needs_no_network() {
    let mut agent = TestAgent::builder().initialize();
    agent.sync();
    assert_eq!(agent.model().requests().len(), 0);
    // An endpoint that accepts connections and never answers does not make it slow.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut agent = TestAgent::unconfigured()
        .variable("OPENAI_BASE_URL", &base_url)
        .variable("TURNWRIGHT_MODEL", "silent")
        .initialize();
    let answer = agent.call("authenticate", &json!({ "methodId": "configured" }));
    assert!(answer["result"].is_object(), "{answer}");
    agent.new_session();
}

#[test]
fn r_init_7_the_agent_uses_no_capability_that_the_client_does_not_declare() {
    let declarations = [
        json!({ "protocolVersion": 1 }),
        json!({ "protocolVersion": 1, "clientCapabilities": null }),
        json!({ "protocolVersion": 1, "clientCapabilities": {} }),
        json!({ "protocolVersion": 1, "clientCapabilities": { "fs": null, "terminal": null,
            "session": null, "elicitation": null } }),
        json!({ "protocolVersion": 1, "clientCapabilities": { "fs": {}, "session": {},
            "elicitation": {} } }),
        // R-INIT-6 and R-INIT-14: where version 2 is switched off, capabilities of its clients are ignored.
        json!({ "protocolVersion": 2, "info": { "name": "new", "version": "2" },
            "capabilities": { "fs": { "readTextFile": true, "writeTextFile": true },
                "terminal": true, "session": { "notices": {} } },
            "clientCapabilities": { "terminal": true,
                "fs": { "readTextFile": true, "writeTextFile": true } } }),
    ];
    for params in declarations {
        let mut agent = TestAgent::builder()
            .own_file("config/config.toml", "[acp]\nv2 = false\n")
            .file("a.txt", "a\n")
            .model(task())
            .spawn();
        let answer = agent.call("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], 1, "{params}: {answer}");
        agent.session = agent.new_session();
        let id = agent.prompt("go");
        let methods = serve(&mut agent, &id);
        assert!(
            methods.iter().all(|it| it == "session/request_permission"),
            "{params}: {methods:?}"
        );
        let kinds = [
            "notice",
            "compaction_update",
            "compaction_summary_chunk",
            "plan_update",
            "cursor_update",
        ];
        let is_optional = |it: &Value| kinds.contains(&it["sessionUpdate"].as_str().unwrap());
        assert!(!agent.updates().iter().any(is_optional), "{params}");
        assert_eq!(agent.read("b.txt"), "new\n");
    }
}

#[test]
fn r_init_8_the_task_completes_with_every_combination_of_capabilities() {
    for bits in 0..32_u8 {
        let on = |bit: u8| bits & (1 << bit) != 0;
        let object = |bit: u8| if on(bit) { json!({}) } else { Value::Null };
        let capabilities = json!({
            "fs": { "readTextFile": on(0), "writeTextFile": on(1) },
            "terminal": false,
            "session": { "notices": object(2), "compaction": object(2),
                "configOptions": { "boolean": object(3) } },
            "elicitation": { "form": object(4), "url": object(4) }
        });
        let mut agent = TestAgent::builder()
            .file("a.txt", "a\n")
            .model(task())
            .capabilities(capabilities.clone())
            .start();
        let id = agent.prompt("go");
        let methods = serve(&mut agent, &id);
        let has = |name: &str| methods.iter().any(|it| it == name);
        assert_eq!(has("fs/read_text_file"), on(0), "{capabilities}: {methods:?}");
        assert_eq!(has("fs/write_text_file"), on(1), "{capabilities}: {methods:?}");
        assert_eq!(agent.read("b.txt"), "new\n", "{capabilities}");
        let notice = agent.updates().iter().any(|it| it["sessionUpdate"] == "notice");
        assert_eq!(notice, on(2), "{capabilities}");
        assert_eq!(agent.thoughts().contains("busy"), !on(2), "{capabilities}");
        let transcript = agent.model_transcript(4);
        assert!(transcript.last().unwrap().contains("new"), "{capabilities}: {transcript:?}");
    }
}

#[test]
fn r_ext_4_6_and_7_the_agent_sends_only_standard_methods_and_values() {
    let mut agent = TestAgent::builder().file("a.txt", "a\n").model(task()).start();
    let id = agent.prompt("go");
    serve(&mut agent, &id);
    // The schema leaves these enums open. The agent uses only their documented values.
    let open = [
        ("kind", &["read", "edit", "execute", "think", "other"][..]),
        ("status", &["pending", "in_progress", "completed", "failed"][..]),
    ];
    for update in agent.updates() {
        for (key, values) in open {
            let value = update[key].as_str();
            assert!(value.is_none_or(|it| values.contains(&it)), "{update}");
        }
    }
    for message in &agent.log {
        let method = message["method"].as_str().unwrap_or("_");
        let is_agent_method = method.starts_with('_') || method.starts_with("session/");
        assert!(is_agent_method || method.starts_with("fs/"), "{message}");
    }
}
