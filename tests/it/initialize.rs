//! Initialization (R-INIT) and the extension points that it touches (R-EXT): what each side says
//! about itself, and that both are bound by it.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, prompt, says};
use crate::ended;

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("not an error: {answer}"))
}

/// Serves the agent's requests from the disk until the prompt is answered; returns which there
/// were.
fn serve(agent: &mut TestAgent, prompt: &Value) -> Vec<String> {
    let mut asked = Vec::new();
    loop {
        let message = agent.wait_for("a request or the end", |it| {
            let is_answer = it.get("method").is_none() && it["id"] == *prompt;
            is_answer || (it.get("method").is_some() && it.get("id").is_some())
        });
        let Some(method) = message["method"].as_str() else {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            return asked;
        };
        asked.push(method.to_owned());
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

/// A task that has to do with all that a client can offer, and with a provider that is busy at
/// first, which the user is told.
fn task() -> Value {
    let busy = json!({ "status": 503, "headers": { "Retry-After": "0" }, "body": "busy" });
    json!([
        [busy],
        calls("read_file", &json!({ "path": "a.txt" })),
        calls("write_file", &json!({ "path": "b.txt", "content": "new\n" })),
        calls("exec", &json!({ "command": "cat b.txt" })),
        says("Done.")
    ])
}

#[test]
fn r_init_1_and_2_the_answer_holds_version_capabilities_and_who_we_are() {
    let mut agent = TestAgent::builder().spawn();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let result = &answer["result"];
    assert_eq!(result["protocolVersion"], 1);
    assert!(result["agentCapabilities"].is_object(), "{answer}");
    assert_eq!(result["agentInfo"]["name"], "turnwright");
    assert_eq!(result["agentInfo"]["title"], "turnwright");
    let output =
        ended::output(Command::new(env!("CARGO_BIN_EXE_turnwright")).arg("--version")).unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let version = result["agentInfo"]["version"].as_str().unwrap();
    assert_eq!(printed.trim(), format!("turnwright {version}"));
}

#[test]
fn p0_2_initialize_is_quick_and_needs_no_network() {
    let begun = Instant::now();
    let mut agent = TestAgent::builder().initialize();
    // It has to be far below a second; the bound leaves room for a machine that is busy.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    agent.sync();
    assert_eq!(agent.model().requests().len(), 0);
    // Neither does an endpoint that swallows everything make it slow.
    let hole = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}/v1", hole.local_addr().unwrap());
    let mut agent = TestAgent::unconfigured()
        .variable("OPENAI_BASE_URL", &base_url)
        .variable("TURNWRIGHT_MODEL", "silent")
        .initialize();
    let answer = agent.call("authenticate", &json!({ "methodId": "configured" }));
    assert!(answer["result"].is_object(), "{answer}");
    agent.new_session();
}

#[test]
fn p0_2_capabilities_that_are_objects_in_the_schema_are_objects() {
    let mut agent = TestAgent::builder().spawn();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let capabilities = &answer["result"]["agentCapabilities"];
    for group in ["sessionCapabilities", "auth"] {
        for (name, value) in capabilities[group].as_object().into_iter().flatten() {
            assert!(value.is_object() || value.is_null(), "{group}.{name}: {value}");
        }
    }
}

#[test]
fn r_init_3_and_4_version_1_is_the_answer_to_every_version() {
    for version in [1, 0, 2, 3, 65_535] {
        let mut agent = TestAgent::builder().spawn();
        let answer = agent.call("initialize", &json!({ "protocolVersion": version }));
        assert_eq!(answer["result"]["protocolVersion"], 1, "asked for {version}: {answer}");
        agent.new_session();
    }
}

#[test]
fn r_init_5_a_bad_version_is_invalid_and_leaves_the_connection_as_it_was() {
    let mut agent = TestAgent::builder().spawn();
    let new = json!({ "cwd": agent.workspace(), "mcpServers": [] });
    let bad = [
        json!({}),
        json!({ "protocolVersion": null }),
        json!({ "protocolVersion": "1" }),
        json!({ "protocolVersion": "2025-01-01" }),
        json!({ "protocolVersion": -1 }),
        json!({ "protocolVersion": 1.5 }),
        json!({ "protocolVersion": 65_536 }),
        json!({ "protocolVersion": [1] }),
        json!([]),
    ];
    for params in bad {
        assert_eq!(code(&agent.call("initialize", &params)), -32602, "{params}");
        assert_eq!(code(&agent.call("session/new", &new)), -32600, "after {params}");
    }
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
    assert!(agent.call("session/new", &new)["result"].is_object());
}

#[test]
fn r_init_7_nothing_that_was_not_offered_is_asked_of_the_client() {
    let nothing = [
        json!({ "protocolVersion": 1 }),
        json!({ "protocolVersion": 1, "clientCapabilities": null }),
        json!({ "protocolVersion": 1, "clientCapabilities": {} }),
        json!({ "protocolVersion": 1, "clientCapabilities": { "fs": null, "terminal": null,
            "session": null, "elicitation": null } }),
        json!({ "protocolVersion": 1, "clientCapabilities": { "fs": {}, "session": {},
            "elicitation": {} } }),
        // R-INIT-6 and R-INIT-14: of a newer client nothing of this counts, in either place.
        json!({ "protocolVersion": 2, "info": { "name": "new", "version": "2" },
            "capabilities": { "fs": { "readTextFile": true, "writeTextFile": true },
                "terminal": true, "session": { "notices": {} } },
            "clientCapabilities": { "terminal": true,
                "fs": { "readTextFile": true, "writeTextFile": true } } }),
    ];
    for params in nothing {
        let mut agent = TestAgent::builder().file("a.txt", "a\n").model(task()).spawn();
        let answer = agent.call("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], 1, "{params}: {answer}");
        agent.session = agent.new_session();
        let id = agent.prompt("go");
        let asked = serve(&mut agent, &id);
        assert!(asked.iter().all(|it| it == "session/request_permission"), "{params}: {asked:?}");
        let kinds = ["notice", "compaction_update", "compaction_summary_chunk", "plan_update"];
        let offered = |it: &Value| kinds.contains(&it["sessionUpdate"].as_str().unwrap());
        assert!(!agent.updates().iter().any(offered), "{params}");
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
        let asked = serve(&mut agent, &id);
        let has = |name: &str| asked.iter().any(|it| it == name);
        assert_eq!(has("fs/read_text_file"), on(0), "{capabilities}: {asked:?}");
        assert_eq!(has("fs/write_text_file"), on(1), "{capabilities}: {asked:?}");
        assert_eq!(agent.read("b.txt"), "new\n", "{capabilities}");
        let notice = agent.updates().iter().any(|it| it["sessionUpdate"] == "notice");
        assert_eq!(notice, on(2), "{capabilities}");
        assert_eq!(agent.thoughts().contains("busy"), !on(2), "{capabilities}");
        let transcript = agent.model_transcript(4);
        assert!(transcript.last().unwrap().contains("new"), "{capabilities}: {transcript:?}");
    }
}

#[test]
fn r_init_9_what_is_offered_is_served_and_the_rest_is_not_found() {
    let mut agent = TestAgent::builder().spawn();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let capabilities = answer["result"]["agentCapabilities"].clone();
    let table = [
        ("session/load", "/loadSession"),
        ("session/list", "/sessionCapabilities/list"),
        ("session/resume", "/sessionCapabilities/resume"),
        ("session/close", "/sessionCapabilities/close"),
        ("session/delete", "/sessionCapabilities/delete"),
        ("session/fork", "/sessionCapabilities/fork"),
        ("session/archive", "/sessionCapabilities/archive"),
        ("session/unarchive", "/sessionCapabilities/archive"),
        ("session/status", "/sessionCapabilities/status"),
        ("session/set_title", "/sessionCapabilities/title"),
        ("logout", "/auth/logout"),
        ("auth/status", "/auth/status"),
        ("providers/list", "/providers"),
    ];
    for (method, place) in table {
        let offer = capabilities.pointer(place).unwrap_or(&Value::Null);
        let offered = offer.is_object() || *offer == json!(true);
        // Parameters that no method takes, so that nothing happens.
        let answer = agent.call(method, &json!([[]]));
        let found = answer["error"]["code"] != -32601;
        assert_eq!(found, offered, "{method}: {answer}");
    }
    for method in ["initialize", "authenticate", "session/new", "session/prompt"] {
        assert_eq!(code(&agent.call(method, &json!([[]]))), -32602, "{method}");
    }
}

#[test]
fn r_init_11_text_and_links_reach_the_model() {
    let mut agent = TestAgent::builder().model(json!([says("I see.")])).start();
    let link = agent.path("notes.md");
    let params = json!({ "sessionId": agent.session, "prompt": [
        { "type": "text", "text": "Look at this:" },
        { "type": "resource_link", "uri": format!("file://{}", link.display()), "name": "notes.md" },
        { "type": "text", "text": "What is it?" },
    ] });
    let answer = agent.call("session/prompt", &params);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let words = agent.model_transcript(0).join("\n");
    let places: Vec<_> = ["Look at this:", "notes.md", "What is it?"]
        .map(|it| words.find(it).unwrap_or_else(|| panic!("no `{it}` in {words}")))
        .into();
    assert!(places.is_sorted(), "not in order: {words}");
    assert!(words.contains(&*link.to_string_lossy()), "the place is lost: {words}");
}

#[test]
fn r_init_12_embedded_resources_are_offered_and_used() {
    let mut agent = TestAgent::builder().model(json!([says("I see.")])).spawn();
    let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
    let offered = &answer["result"]["agentCapabilities"]["promptCapabilities"]["embeddedContext"];
    assert_eq!(*offered, true);
    agent.session = agent.new_session();
    let params = json!({ "sessionId": agent.session, "prompt": [
        { "type": "resource", "resource": { "uri": "file:///x/a.rs", "text": "fn answer() {}" } },
        { "type": "resource", "resource": { "uri": "file:///x/b.bin", "blob": "AAAA",
            "mimeType": "application/octet-stream" } },
        { "type": "text", "text": "What is it?" },
    ] });
    let answer = agent.call("session/prompt", &params);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let words = agent.model_transcript(0).join("\n");
    for word in ["a.rs", "fn answer() {}", "b.bin", "What is it?"] {
        assert!(words.contains(word), "no `{word}` in {words}");
    }
}

#[test]
fn r_init_13_nothing_is_served_before_initialize_and_initialize_may_come_again() {
    let mut agent = TestAgent::builder().model(json!([says("Hello.")])).spawn();
    let new = json!({ "cwd": agent.workspace(), "mcpServers": [] });
    let early = [
        ("session/new", new),
        ("session/prompt", prompt("x", "hi")),
        ("session/set_mode", json!({ "sessionId": "x", "modeId": "ask" })),
        ("authenticate", json!({ "methodId": "configured" })),
        ("session/new", json!({ "bad": true })),
    ];
    for (method, params) in early {
        assert_eq!(code(&agent.call(method, &params)), -32600, "{method} {params}");
    }
    agent.notify("session/cancel", &json!({ "sessionId": "x" }));
    let version = json!({ "protocolVersion": 1 });
    assert!(agent.call("initialize", &version)["result"].is_object());
    agent.session = agent.new_session();
    assert!(agent.call("initialize", &version)["result"].is_object());
    assert_eq!(agent.turn("hi"), "end_turn", "the session is gone");
}

#[test]
fn r_init_15_and_ext_1_unknown_capabilities_and_any_meta_are_harmless() {
    let meta = json!({
        "traceparent": "00-80e1afed08e019fc1110464cfa66635c-7a085853722dc6d2-01",
        "tracestate": 5, "zed.dev": { "deep": [1, { "x": null }] }, "": "empty"
    });
    let mut agent = TestAgent::builder().model(json!([says("Hello.")])).spawn();
    let params = json!({
        "protocolVersion": 1, "_meta": meta,
        "clientInfo": { "name": "test", "version": "1", "_meta": meta },
        "clientCapabilities": {
            "_meta": meta, "telepathy": true,
            "fs": { "readTextFile": false, "writeTextFile": false, "smell": {}, "_meta": meta }
        }
    });
    assert!(agent.call("initialize", &params)["result"].is_object());
    let auth = json!({ "methodId": "configured", "_meta": meta });
    assert!(agent.call("authenticate", &auth)["result"].is_object());
    let params = json!({ "cwd": agent.workspace(), "mcpServers": [], "_meta": meta });
    let answer = agent.call("session/new", &params);
    agent.session = answer["result"]["sessionId"].as_str().expect("a session").to_owned();
    let mode = json!({ "sessionId": agent.session, "modeId": "ask", "_meta": meta });
    assert!(agent.call("session/set_mode", &mode)["result"].is_object());
    let mut params = prompt(&agent.session, "hi");
    params["_meta"] = meta.clone();
    params["prompt"][0]["_meta"] = meta.clone();
    let answer = agent.call("session/prompt", &params);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    agent.notify("session/cancel", &json!({ "sessionId": agent.session, "_meta": meta }));
    agent.notify("$/cancel_request", &json!({ "requestId": 1, "_meta": meta }));
    agent.sync();
    assert!(!agent.model_request(0).to_string().contains("zed.dev"), "meta went to the model");
}

#[test]
fn r_ext_4_and_5_custom_requests_are_answered_and_custom_notifications_ignored() {
    let mut agent = TestAgent::builder().spawn();
    // Before `initialize` too: whoever waits for an answer gets one.
    let answer = agent.call("_x/y", &json!({}));
    assert_eq!(code(&answer), -32600, "{answer}");
    assert!(agent.call("initialize", &json!({ "protocolVersion": 1 }))["result"].is_object());
    let before = agent.log.len();
    for params in [json!({}), json!([1, 2]), json!({ "_meta": {} })] {
        assert_eq!(code(&agent.call("_x/y", &params)), -32601, "{params}");
        agent.notify("_x/y", &params);
        agent.notify("$/x", &params);
    }
    agent.sync();
    assert_eq!(agent.log.len(), before + 4, "{:?}", &agent.log[before..]);
}

#[test]
fn r_ext_4_6_and_7_all_that_the_agent_says_by_itself_is_in_the_schema() {
    let mut agent = TestAgent::builder().file("a.txt", "a\n").model(task()).start();
    let id = agent.prompt("go");
    serve(&mut agent, &id);
    // The schema lists every method and leaves some enums open; what is used of those is known.
    let open = [
        ("kind", &["read", "edit", "execute", "think", "other"][..]),
        ("status", &["pending", "in_progress", "completed", "failed"][..]),
    ];
    for update in agent.updates() {
        for (key, known) in open {
            let value = update[key].as_str();
            assert!(value.is_none_or(|it| known.contains(&it)), "{update}");
        }
    }
    for message in &agent.log {
        let method = message["method"].as_str().unwrap_or("_");
        let ours = method.starts_with('_') || method.starts_with("session/");
        assert!(ours || method.starts_with("fs/"), "{message}");
    }
}

#[test]
fn p0_8_sloppy_answers_of_the_client_are_understood() {
    let read = calls("read_file", &json!({ "path": "a.txt" }));
    let answers = [json!("from the editor\n"), json!({ "content": "from the editor\n" })];
    for answer in answers {
        let mut agent = TestAgent::builder()
            .file("a.txt", "from the disk\n")
            .model(json!([read, says("Done.")]))
            .capabilities(json!({ "fs": { "readTextFile": true } }))
            .start();
        let id = agent.prompt("read");
        let request = agent.wait_for_request("fs/read_text_file");
        assert_eq!(request["params"]["sessionId"], agent.session.as_str());
        agent.respond(&request, &answer);
        assert_eq!(agent.stop_reason(&id), "end_turn");
        let result = agent.model_transcript(1).pop().unwrap();
        assert!(result.contains("from the editor"), "{answer}: {result}");
    }
}

#[test]
fn p0_8_a_client_that_never_answers_does_not_hold_the_turn_for_ever() {
    let mut agent = TestAgent::builder()
        .file("a.txt", "from the disk\n")
        .model(json!([calls("read_file", &json!({ "path": "a.txt" })), says("Done.")]))
        .capabilities(json!({ "fs": { "readTextFile": true } }))
        .start();
    let id = agent.prompt("read");
    let request = agent.wait_for_request("fs/read_text_file");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    // The request is withdrawn, and an answer that comes after all is ignored.
    let withdrawn = |it: &Value| it["params"]["requestId"] == request["id"];
    assert!(agent.log.iter().any(withdrawn), "{:?}", agent.log);
    agent.respond(&request, &json!({ "content": "late" }));
    agent.sync();
}
