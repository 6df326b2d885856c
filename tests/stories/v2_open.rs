//! What version 2 of the protocol leaves open (R-TWO-20): values that the agent does not know are refused, ignored
//! or taken for a no, as the schema says of each place. None is taken for a yes, and none ends the connection.
//!
//! The other places are in `v2.rs`: outcomes of a permission request, cursors of a replay, types of MCP servers and
//! of the values of options. Stop reasons, states, plans, cards and terminals have open values, too, but only the
//! agent sends them.

use serde_json::{Value, json};
use turnwright_testing::hosted_server::{answer_well, hosted_server};
use turnwright_testing::session_requests::{code, result};

use crate::agent::{TestAgent, TestAgentBuilder, calls, prompt, says};

fn v2() -> TestAgentBuilder {
    TestAgent::builder().v2()
}

fn initialize(capabilities: &Value) -> Value {
    json!({
        "protocolVersion": 2, "capabilities": capabilities,
        "info": { "name": "test", "version": "1", "title": 5, "mood": "_good" }, "_color": "red",
    })
}

#[test]
fn v2_open_capabilities_count_only_as_objects_and_unknown_ones_are_ignored() {
    let table = [
        (json!({}), false),
        (json!("all"), false),
        (json!({ "elicitation": true, "auth": true }), false),
        (json!({ "elicitation": { "form": true }, "auth": { "terminal": "yes" } }), false),
        (json!({ "elicitation": { "form": null, "_voice": {} }, "auth": { "_smell": {} } }), false),
        (json!({ "elicitation": [{ "form": {} }], "auth": [{ "terminal": {} }] }), false),
        (
            json!({
                "elicitation": { "form": { "_colors": 16 }, "url": 5, "_voice": {} },
                "auth": { "terminal": { "_kind": "amber" } }, "telepathy": true,
            }),
            true,
        ),
    ];
    for (capabilities, is_supported) in table {
        let mut agent = TestAgent::unconfigured().v2().spawn();
        let answer = result(agent.call("initialize", &initialize(&capabilities)));
        let methods = answer["authMethods"].as_array().unwrap();
        let is_offered = methods.iter().any(|it| it["type"] == "terminal");
        assert_eq!(is_offered, is_supported, "{capabilities}: {methods:?}");

        let ask = calls("ask_user", &json!({ "question": "Which?", "options": ["a", "b"] }));
        let mut agent = v2().model(json!([ask, says("Thanks.")])).spawn();
        result(agent.call("initialize", &initialize(&capabilities)));
        let opened = result(agent.call("session/new", &json!({ "cwd": agent.workspace() })));
        agent.session = opened["sessionId"].as_str().unwrap().to_owned();
        let id = agent.prompt("go");
        if is_supported {
            let request = agent.wait_for_request("elicitation/create");
            agent.respond(&request, &json!({ "action": "decline" }));
        }
        assert_eq!(agent.stop_reason(&id), "end_turn");
        let is_form = |it: &Value| it["method"] == "elicitation/create";
        assert_eq!(agent.log.iter().any(is_form), is_supported, "{capabilities}");
    }
}

#[test]
fn v2_open_what_is_optional_in_a_prompt_may_be_unknown_or_malformed() {
    let odd = json!({ "audience": ["user", "_robot", 5], "priority": "high", "lastModified": 3, "_x": {} });
    let icons = json!([{ "src": "https://a.example/i.png", "theme": "_neon" }, 5]);
    let mut agent = v2().model(json!([says("Hello.")])).start();
    let blocks = json!([
        { "type": "text", "text": "look here", "annotations": odd, "_mood": "good" },
        { "type": "text", "text": "and there", "annotations": 5 },
        { "type": "resource_link", "name": "n", "uri": "file:///n.txt", "title": 5, "description": [],
          "mimeType": 5, "size": "big", "icons": icons, "annotations": odd },
        { "type": "resource_link", "name": "m", "uri": "file:///m.txt", "icons": "many", "size": -1 },
        { "type": "resource", "annotations": "none", "resource":
            { "uri": "file:///r.txt", "text": "of the resource", "mimeType": 5, "_x": 1 } },
    ]);
    let params =
        json!({ "sessionId": agent.session, "prompt": blocks, "_meta": 5, "_speed": "fast" });
    let id = agent.request("session/prompt", &params);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let read = agent.model_transcript(0).join("\n");
    for words in ["look here", "and there", "n.txt", "m.txt", "of the resource"] {
        assert!(read.contains(words), "{words}: {read}");
    }
}

#[test]
fn v2_open_a_kind_of_content_that_is_unknown_refuses_the_prompt() {
    let mut agent = v2().model(json!([says("Hello.")])).start();
    for block in [
        json!({ "type": "_hologram", "data": "x" }),
        json!({ "type": "hologram", "text": "as text" }),
        json!({ "type": "_text", "text": "hi" }),
        json!({ "type": 5, "text": "hi" }),
        json!({ "text": "hi" }),
        json!({ "type": "resource", "resource": { "uri": "file:///a", "_scent": "rose" } }),
    ] {
        let text = json!({ "type": "text", "text": "look" });
        let params = json!({ "sessionId": agent.session, "prompt": [text, block] });
        assert_eq!(code(&agent.call("session/prompt", &params)), -32602, "{block}");
    }
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.model().requests().len(), 1);
}

/// What the model is told of an answer to its question.
fn told_of_answer(answer: &Value) -> String {
    let ask = calls("ask_user", &json!({ "question": "Which?", "options": ["a", "b"] }));
    let forms = json!({ "elicitation": { "form": {} } });
    let mut agent = v2().model(json!([ask, says("Well.")])).capabilities(forms).start();
    let id = agent.prompt("go");
    let request = agent.wait_for_request("elicitation/create");
    agent.respond(&request, answer);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(agent.model().requests().len(), 2, "{answer} ends the turn");
    agent.model_transcript(1).pop().unwrap()
}

#[test]
fn v2_open_an_action_of_a_form_that_is_unknown_counts_as_cancel() {
    let cancelled = told_of_answer(&json!({ "action": "cancel" }));
    assert!(!cancelled.contains("The user answers"), "{cancelled}");
    for answer in [
        json!({ "action": "_later", "content": { "answer": "b" } }),
        json!({ "action": "accepted", "content": { "answer": "b" } }),
        json!({ "action": "Accept", "content": { "answer": "b" } }),
    ] {
        assert_eq!(told_of_answer(&answer), cancelled, "{answer}");
    }
    let accepted = json!({ "action": "accept", "content": { "answer": "b", "_x": {} }, "_by": 1 });
    assert!(told_of_answer(&accepted).contains("The user answers: b"));
}

#[test]
fn v2_open_an_mcp_server_is_told_that_its_form_was_cancelled() {
    let table = [
        (json!({ "action": "accept", "content": { "n": 3 } }), "accept"),
        (json!({ "action": "decline" }), "decline"),
        (json!({ "action": "cancel" }), "cancel"),
        (json!({ "action": "_later", "content": { "n": 3 } }), "cancel"),
        (json!({ "action": "submit", "content": { "n": 3 } }), "cancel"),
        // A value that the form does not have is no answer, of whatever type it is.
        (json!({ "action": "accept", "content": { "n": { "_x": 3 } } }), "decline"),
    ];
    for (answer, expected) in table {
        let is_left = |params: &Value| params["method"] == "tools/call";
        let mut agent = v2()
            .server_as(hosted_server("near"))
            .hosting(move |it| if is_left(it) { None } else { answer_well(it, &["echo"]) })
            .capabilities(json!({ "elicitation": { "form": {} } }))
            .model(json!([calls("mcp__near__echo", &json!({})), says("Done.")]))
            .permission("allow_once")
            .start();
        let id = agent.prompt("go");
        let call = agent.wait_for_hosted("tools/call");
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let form = json!({ "mode": "form", "message": "How many?", "requestedSchema": schema });
        let question = json!({ "method": "elicitation/create", "params": form });
        let required = json!({
            "resultType": "input_required", "inputRequests": { "q": question }, "requestState": "s",
        });
        agent.respond(&call, &json!({ "result": required }));
        let form = agent.wait_for_request("elicitation/create");
        agent.respond(&form, &answer);
        let again = agent.wait_for_hosted("tools/call");
        let told = &again["params"]["params"]["inputResponses"]["q"];
        assert_eq!(told["action"], expected, "{answer}: {told}");
        assert_eq!(told["content"].is_object(), expected == "accept", "{answer}: {told}");
        let done = json!({ "content": [{ "type": "text", "text": "ok" }] });
        agent.respond(&again, &json!({ "result": done }));
        assert_eq!(agent.stop_reason(&id), "end_turn");
    }
}

#[test]
fn v2_open_requests_that_open_a_session_say_what_they_do_not_know() {
    let mut agent = v2().model(json!([says("Hello.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let session = agent.session.clone();
    let cwd = json!(agent.workspace());
    let program = json!({ "type": "stdio", "name": "x", "command": "/bin/true" });
    let with = |name: &str, value: Value| {
        let mut params = json!({ "cwd": cwd, "sessionId": session });
        params[name] = value;
        params
    };
    let text = json!([{ "type": "text", "text": "Be brief." }]);
    let nulls = json!([{ "type": "stdio", "name": "x", "command": "/bin/true", "args": null, "env": null, "_x": 1 }]);
    let object =
        json!([{ "type": "stdio", "name": "x", "command": "/bin/true", "env": { "A": "b" } }]);
    let other = json!([{ "type": "streamable-http", "name": "x", "url": "http://127.0.0.1:1/" }]);
    let far =
        json!([{ "type": "http", "name": "x", "url": "http://127.0.0.1:1/", "headers": null }]);
    for method in ["session/new", "session/fork", "session/resume"] {
        for bad in [
            with(
                "mcpServers",
                json!([program, { "type": "_pigeon", "name": "y", "command": "/bin/true" }]),
            ),
            with("mcpServers", json!([{ "name": "x", "command": "/bin/true" }])),
            with("mcpServers", json!(vec![&program; 257])),
            with("systemPrompt", json!({ "mode": "_prepend", "content": text })),
            with(
                "systemPrompt",
                json!({ "mode": "append", "content": [{ "type": "_x", "text": "a" }] }),
            ),
        ] {
            let before = sessions(&mut agent);
            assert_eq!(code(&agent.call(method, &bad)), -32602, "{method} {bad}");
            assert_eq!(sessions(&mut agent), before, "{method} {bad}");
        }
        for good in [
            with("mcpServers", Value::Null),
            with("additionalDirectories", Value::Null),
            with("mcpServers", nulls.clone()),
            with("mcpServers", far.clone()),
            with("mcpServers", object.clone()),
            with("mcpServers", other.clone()),
            with("mcpServers", json!({})),
            with("_mood", json!("good")),
        ] {
            let answer = agent.call(method, &good);
            assert!(answer["result"].is_object(), "{method} {good}: {answer}");
        }
    }
}

fn sessions(agent: &mut TestAgent) -> usize {
    result(agent.call("session/list", &json!({})))["sessions"].as_array().unwrap().len()
}

#[test]
fn v2_open_a_filter_of_the_list_that_is_unknown_is_refused() {
    let mut agent = v2().model(json!([says("Hello.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    for filter in ["include", "exclude"] {
        let listed = result(agent.call("session/list", &json!({ "archived": filter, "_x": 5 })));
        assert_eq!(listed["sessions"].as_array().unwrap().len(), 1, "{filter}");
    }
    for filter in ["_recent", "all", ""] {
        let answer = agent.call("session/list", &json!({ "archived": filter }));
        assert_eq!(code(&answer), -32602, "{filter}");
    }
}

#[test]
fn v2_open_methods_and_notifications_that_are_unknown_change_nothing() {
    let mut agent = v2()
        .model(json!([json!([{ "text": "Hm " }, { "hold": true }, { "text": "yes." }])]))
        .start();
    let id = agent.prompt("go");
    agent.wait_for_update("agent_message_chunk");
    for method in
        ["session/cancel_all", "_session/cancel", "session/stop", "$/stop", "session/load"]
    {
        agent.notify(method, &json!({ "sessionId": agent.session }));
        let refused = agent.call(method, &json!({ "sessionId": agent.session }));
        assert_eq!(code(&refused), -32601, "{method}");
    }
    agent.notify("session/cancel", &json!({ "sessionId": "nobody", "_x": 1 }));
    agent.notify("$/cancel_request", &json!({ "requestId": { "_x": 1 } }));
    agent.model().release();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let params = prompt(&agent.session, "again");
    result(agent.call("session/prompt", &params));
}
