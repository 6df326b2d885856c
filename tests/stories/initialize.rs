//! Initialization (R-INIT) and the extension points that belong to it (R-EXT): what the client and
//! the agent announce, and that both act accordingly.

use serde_json::{Value, json};
use turnwright_testing::session_requests::code;

use crate::agent::{TestAgent, prompt, says};

#[test]
fn r_init_3_and_4_version_1_is_the_answer_to_every_version_if_it_is_the_only_one() {
    for version in [1, 0, 2, 3, 65_535] {
        let only = "[acp]\nv2 = false\n";
        let mut agent = TestAgent::builder().own_file("config/config.toml", only).spawn();
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
fn r_init_5_a_client_that_takes_a_text_or_a_fraction_for_the_version_gets_version_1() {
    for version in [json!("1"), json!("1.0"), json!("2024-11-05"), json!(1.0)] {
        let mut agent = TestAgent::builder().spawn();
        let params = json!({ "protocolVersion": version, "capabilities": {} });
        let answer = agent.call("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], 1, "{version}: {answer}");
        let new = json!({ "cwd": agent.workspace(), "mcpServers": [] });
        assert!(agent.call("session/new", &new)["result"].is_object(), "{version}");
    }
}

#[test]
fn r_init_9_offered_methods_are_served_and_the_others_are_not_found() {
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
        ("session/options", "/sessionCapabilities/options"),
        ("logout", "/auth/logout"),
        ("auth/status", "/auth/status"),
        ("providers/list", "/providers"),
    ];
    for (method, place) in table {
        let offer = capabilities.pointer(place).unwrap_or(&Value::Null);
        let offered = offer.is_object() || *offer == json!(true);
        // No method accepts these parameters, so the call has no effect.
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
    let text = agent.model_transcript(0).join("\n");
    let places: Vec<_> = ["Look at this:", "notes.md", "What is it?"]
        .map(|it| text.find(it).unwrap_or_else(|| panic!("no `{it}` in {text}")))
        .into();
    assert!(places.is_sorted(), "not in order: {text}");
    assert!(text.contains(&*link.to_string_lossy()), "the path is missing: {text}");
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
    let text = agent.model_transcript(0).join("\n");
    for word in ["a.rs", "fn answer() {}", "b.bin", "What is it?"] {
        assert!(text.contains(word), "no `{word}` in {text}");
    }
}

#[test]
fn r_init_13_nothing_is_served_before_initialize_and_initialize_may_be_repeated() {
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
    assert_eq!(agent.turn("hi"), "end_turn", "the session must still exist");
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
    // A custom request gets an answer even before `initialize`.
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
