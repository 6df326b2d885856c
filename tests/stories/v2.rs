//! Version 2 of the protocol (R-TWO-1 to R-TWO-17): what a client of it is told and may ask for. The test client checks every line
//! against the schema of that version.

use serde_json::{Value, json};
use turnwright_testing::session_requests::{code, result};

use crate::agent::{TestAgent, TestAgentBuilder, calls, prompt, says};

fn v2() -> TestAgentBuilder {
    TestAgent::builder().v2()
}

fn initialize(version: u64) -> Value {
    json!({
        "protocolVersion": version, "capabilities": {}, "info": { "name": "test", "version": "1" },
    })
}

fn write(path: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": "new\n" }))
}

/// What the client was told of turns, questions and prompts, a word each.
fn lifecycle(agent: &TestAgent) -> Vec<String> {
    let words = agent.log.iter().filter_map(|message| {
        let update = &message["params"]["update"];
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        match (message["method"].as_str(), update["sessionUpdate"].as_str()) {
            (_, Some("state_update")) => {
                let state = format!("{} {}", text(&update["state"]), text(&update["stopReason"]));
                Some(state.trim_end().to_owned())
            }
            (_, Some("user_message")) => {
                Some(format!("said {}", text(&update["content"][0]["text"])))
            }
            (Some("session/request_permission"), _) => Some("asked".to_owned()),
            (Some("$/cancel_request"), _) => Some("withdrawn".to_owned()),
            (None, _) if message["result"]["messageId"].is_string() => Some("inserted".to_owned()),
            (None, _) if message["error"]["code"].is_number() => {
                Some(format!("error {}", message["error"]["code"]))
            }
            _ => None,
        }
    });
    words.collect()
}

#[test]
fn v2_version_the_highest_version_up_to_the_requested_one_is_the_answer() {
    for (requested, version) in [(1, 1), (2, 2), (3, 2), (65_535, 2)] {
        let mut agent = TestAgent::builder().v2().spawn();
        let answer = agent.call("initialize", &initialize(requested));
        assert_eq!(answer["result"]["protocolVersion"], version, "asked for {requested}");
    }
    let mut agent = v2().spawn();
    let answer = agent.call("initialize", &initialize(0));
    assert_eq!(code(&answer), -32022, "{answer}");
    assert_eq!(answer["error"]["data"], json!({ "requested": 0, "supported": [1, 2] }));
    assert_eq!(code(&agent.call("session/list", &json!({}))), -32600, "it is not initialized");
    assert_eq!(agent.call("initialize", &initialize(2))["result"]["protocolVersion"], 2);
}

#[test]
fn v2_version_a_number_above_ours_in_the_form_of_version_1_is_answered_with_version_1() {
    let declared = json!({ "fs": { "readTextFile": true } });
    for params in [
        json!({ "protocolVersion": 3 }),
        json!({ "protocolVersion": 65_535, "clientInfo": { "name": "editor", "version": "1" } }),
        json!({ "protocolVersion": 7, "clientCapabilities": declared }),
    ] {
        let mut agent = v2().spawn();
        let answer = agent.call("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], 1, "{params}: {answer}");
        assert!(answer["result"]["agentCapabilities"].is_object(), "{params}: {answer}");
    }
}

#[test]
fn v2_version_a_number_above_ours_is_answered_whatever_form_the_information_has() {
    for info in [json!(null), json!("editor"), json!([1]), json!({ "name": { "en": "editor" } })] {
        let mut agent = v2().spawn();
        let params = json!({ "protocolVersion": 3, "info": info, "capabilities": [] });
        let answer = agent.call("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], 2, "{params}: {answer}");
    }
}

#[test]
fn v2_version_the_first_initialize_fixes_it() {
    let mut agent = v2().initialize();
    assert_eq!(code(&agent.call("initialize", &initialize(1))), -32602);
    assert_eq!(agent.call("initialize", &initialize(3))["result"]["protocolVersion"], 2);
    let mut agent = v2().spawn();
    for params in [
        json!({ "protocolVersion": 2 }),
        json!({ "protocolVersion": 2, "info": { "name": "test" } }),
        json!({ "protocolVersion": 65_536, "info": { "name": "test", "version": "1" } }),
    ] {
        assert_eq!(code(&agent.call("initialize", &params)), -32602, "{params}");
    }
    agent.call("initialize", &initialize(2));
    for method in ["session/load", "session/set_mode", "session/set_model", "authenticate"] {
        assert_eq!(code(&agent.call(method, &json!({}))), -32601, "{method}");
    }
    agent.send_line(r#"{"jsonrpc":"2.0","id":null,"method":"session/list","params":{}}"#);
    let answer = agent.wait_for("an error", |it| it["error"]["code"] == -32600);
    assert!(answer["id"].is_null());
}

#[test]
fn v2_initialize_markers_are_objects_and_what_is_offered_is_there() {
    let mut agent = v2().spawn();
    let answer = result(agent.call("initialize", &initialize(2)));
    assert_eq!(answer["info"]["name"], "turnwright");
    assert_eq!(answer["info"]["version"], env!("CARGO_PKG_VERSION"));
    let session = &answer["capabilities"]["session"];
    for (name, value) in session.as_object().unwrap() {
        assert!(value.is_object(), "{name}: {value}");
    }
    assert_eq!(session["mcp"], json!({ "stdio": {}, "http": {}, "acp": {} }));
    let table = [
        ("session/list", true),
        ("session/resume", true),
        ("session/close", true),
        ("session/delete", session["delete"].is_object()),
        ("session/fork", session["fork"].is_object()),
        ("session/archive", session["archive"].is_object()),
        ("session/unarchive", session["archive"].is_object()),
        ("session/status", session["status"].is_object()),
        ("session/set_title", session["title"].is_object()),
        ("session/options", session["options"].is_object()),
        ("auth/login", true),
        ("auth/status", answer.pointer("/capabilities/auth/status").is_some()),
        ("providers/list", answer["capabilities"]["providers"].is_object()),
    ];
    for (method, offered) in table {
        let answer = agent.call(method, &json!([[]]));
        assert_eq!(answer["error"]["code"] != -32601, offered, "{method}: {answer}");
    }
}

#[test]
fn v2_auth_login_and_logout_hold_for_the_sessions_that_follow() {
    let mut agent = TestAgent::unconfigured().v2().spawn();
    let answer = result(agent.call("initialize", &initialize(2)));
    let method = &answer["authMethods"][0];
    assert_eq!((&method["methodId"], &method["type"]), (&json!("offline"), &json!("agent")));
    let new = json!({ "cwd": agent.workspace() });
    assert_eq!(code(&agent.call("session/new", &new)), -32000);
    assert_eq!(code(&agent.call("auth/login", &json!({ "methodId": "login" }))), -32602);
    let login = json!({ "methodId": "offline" });
    assert_eq!(agent.call("auth/login", &login)["result"], json!({}));
    result(agent.call("session/new", &new));
    assert_eq!(agent.call("auth/logout", &json!({}))["result"], json!({}));
    assert_eq!(code(&agent.call("session/new", &new)), -32000);

    let mut agent = v2().start();
    assert_eq!(agent.call("auth/logout", &json!({}))["result"], json!({}));
    let new = json!({ "cwd": agent.workspace() });
    assert_eq!(code(&agent.call("session/new", &new)), -32000, "also with a configured model");
    assert_eq!(agent.turn("hi"), "end_turn", "open sessions stay");
    let login = json!({ "methodId": "configured" });
    assert_eq!(agent.call("auth/login", &login)["result"], json!({}));
    result(agent.call("session/new", &new));
}

#[test]
fn v2_auth_a_terminal_login_is_offered_to_a_client_with_terminals() {
    let mut agent = TestAgent::unconfigured().v2().spawn();
    let mut params = initialize(2);
    params["capabilities"] = json!({ "auth": { "terminal": {} } });
    let answer = result(agent.call("initialize", &params));
    let method = &answer["authMethods"][1];
    assert_eq!((&method["type"], &method["args"]), (&json!("terminal"), &json!(["login"])));
    assert_eq!(method["env"], json!([]));
}

#[test]
fn v2_prompt_is_answered_when_it_is_a_message_and_the_state_tells_the_rest() {
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 });
    let reply = json!([{ "thought": "Hm." }, { "text": "Hello." }, { "usage": usage }]);
    let mut agent = v2().model(json!([reply])).start();
    let id = agent.prompt("hi");
    let answer = result(agent.answer_to(&id));
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(lifecycle(&agent), ["running", "said hi", "inserted", "idle end_turn"]);
    let said = &agent.updates_of("user_message")[0];
    assert_eq!(said["messageId"], answer["messageId"]);
    assert_eq!(said["content"], json!([{ "type": "text", "text": "hi" }]), "nothing of ours");
    let ids: Vec<_> = ["agent_thought_chunk", "agent_message_chunk"]
        .map(|kind| agent.updates_of(kind)[0]["messageId"].clone())
        .into();
    assert!(ids.iter().all(|it| it.is_string() && *it != answer["messageId"]), "{ids:?}");
    let idle = agent.updates_of("state_update").pop().unwrap();
    assert_eq!(
        (&idle["usage"]["inputTokens"], &idle["usage"]["outputTokens"]),
        (&json!(10), &json!(5))
    );
}

#[test]
fn v2_prompt_is_answered_while_the_model_is_silent_and_before_a_compaction() {
    let full = json!([{ "text": "One." }, { "usage": { "prompt_tokens": 22_000 } }]);
    let silent = json!([{ "stall_headers_ms": 600_000 }, { "text": "Never." }]);
    for (script, first) in [(json!([silent]), None), (json!([full, silent]), Some("word "))] {
        let window = v2().variable("TURNWRIGHT_CONTEXT_WINDOW", "32000");
        let mut agent = window.model(script).start();
        if let Some(word) = first {
            assert_eq!(agent.turn(&word.repeat(15_000)), "end_turn");
        }
        let id = agent.prompt("go on");
        result(agent.answer_to(&id));
        if first.is_some() {
            agent.wait_for_update("compaction_update");
        }
        let told = |fits: &dyn Fn(&Value) -> bool| agent.log.iter().position(fits);
        let inserted = told(&|it| it["id"] == id && it["result"]["messageId"].is_string());
        let compacted = told(&|it| it["params"]["update"]["sessionUpdate"] == "compaction_update");
        assert!(compacted.is_none_or(|it| inserted < Some(it)), "{inserted:?} {compacted:?}");
        agent.cancel();
        assert_eq!(agent.stop_reason(&id), "cancelled");
        let words = lifecycle(&agent);
        let last = &words[words.len() - 4..];
        assert_eq!(last, ["running", "said go on", "inserted", "idle cancelled"]);
    }
}

#[test]
fn v2_prompt_of_a_command_is_a_message_too() {
    let mut agent = v2().start();
    let id = agent.prompt("/help");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(lifecycle(&agent), ["running", "said /help", "inserted", "idle end_turn"]);
}

#[test]
fn v2_prompt_behind_a_turn_is_inserted_when_its_own_begins() {
    let mut agent = v2().model(json!([write("x"), says("First."), says("Second.")])).start();
    let first = agent.prompt("first");
    let question = agent.wait_for_request("session/request_permission");
    let second = agent.prompt("second");
    agent.sync();
    assert!(!agent.log.iter().any(|it| it["id"] == second && it.get("method").is_none()));
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&first), "end_turn");
    assert_eq!(agent.stop_reason(&second), "end_turn");
    let expected = [
        "running",
        "said first",
        "inserted",
        "requires_action",
        "asked",
        "error -32601",
        "running",
        "idle end_turn",
        "running",
        "said second",
        "inserted",
        "idle end_turn",
    ];
    assert_eq!(lifecycle(&agent), expected);
}

#[test]
fn v2_prompt_errors_after_the_insertion_end_the_turn_and_errors_before_it_are_answers() {
    let refuses = json!([{ "status": 400, "body": { "error": { "message": "no such thing" } } }]);
    let mut agent = v2().model(json!([refuses, says("Now.")])).start();
    let id = agent.prompt("hi");
    assert_eq!(agent.stop_reason(&id), "error");
    assert_eq!(lifecycle(&agent), ["running", "said hi", "inserted", "idle error"]);
    let error = agent.updates_of("state_update").pop().unwrap()["error"].take();
    assert_eq!(error["code"], -32603);
    assert!(error["message"].as_str().unwrap().contains("no such thing"), "{error}");
    assert_eq!(agent.turn("again"), "end_turn");

    let before = lifecycle(&agent).len();
    for prompt in [json!([]), json!([{ "type": "hologram" }]), json!([{ "type": "text" }])] {
        let params = json!({ "sessionId": agent.session, "prompt": prompt });
        assert_eq!(code(&agent.call("session/prompt", &params)), -32602, "{params}");
    }
    assert_eq!(code(&agent.call("session/prompt", &prompt("nobody", "hi"))), -32002);
    assert_eq!(
        lifecycle(&agent)[before..],
        ["error -32602", "error -32602", "error -32602", "error -32002"]
    );
}

#[test]
fn v2_cancel_ends_the_turn_withdraws_the_question_and_refuses_what_waits() {
    let mut agent = v2().model(json!([write("x")])).start();
    let first = agent.prompt("first");
    let question = agent.wait_for_request("session/request_permission");
    let waiting = agent.prompt("second");
    agent.sync();
    agent.cancel();
    assert_eq!(agent.stop_reason(&first), "cancelled");
    assert_eq!(code(&agent.answer_to(&waiting)), -32800);
    agent.choose(&question, "allow_once");
    agent.sync();
    let words = lifecycle(&agent);
    assert!(words.contains(&"withdrawn".to_owned()), "{words:?}");
    assert_eq!(words.iter().filter(|it| it.starts_with("idle")).count(), 1, "{words:?}");
    assert!(!agent.path("x").exists(), "a late answer must not count");
    assert_eq!(agent.turn("again"), "end_turn");
}

#[test]
fn v2_cancel_of_a_request_concerns_a_prompt_until_it_is_inserted() {
    let held = json!([{ "text": "Working " }, { "hold": true }]);
    let mut agent = v2().model(json!([held])).start();
    let first = agent.prompt("first");
    agent.wait_for_update("agent_message_chunk");
    let second = agent.prompt("second");
    agent.notify("$/cancel_request", &json!({ "requestId": second }));
    agent.notify("$/cancel_request", &json!({ "requestId": first }));
    assert_eq!(code(&agent.answer_to(&second)), -32800);
    agent.model().release();
    assert_eq!(agent.stop_reason(&first), "end_turn", "its request had been answered");
}

#[test]
fn v2_tool_calls_are_upserts_and_edits_have_changes_and_a_patch() {
    let mut agent = v2()
        .file("a.txt", "old\n")
        .model(json!([write("a.txt"), write("b.txt"), says("Done.")]))
        .permission("allow_once")
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let updates = agent.updates_of("tool_call_update");
    assert!(agent.updates_of("tool_call").is_empty());
    let first = &updates[0];
    assert_eq!((&first["name"], &first["kind"]), (&json!("write_file"), &json!("edit")));
    let mut statuses: Vec<_> = updates.iter().filter_map(|it| it["status"].as_str()).collect();
    statuses.dedup();
    assert_eq!(
        statuses,
        ["pending", "in_progress", "completed", "pending", "in_progress", "completed"]
    );
    let path = |name: &str| agent.path(name).to_str().unwrap().to_owned();
    let last = |name: &str| {
        let is_done = |it: &&Value| it["status"] == "completed" && it.to_string().contains(name);
        updates.iter().find(is_done).unwrap()["content"][0].clone()
    };
    let (edited, added) = (last("a.txt"), last("b.txt"));
    let change = |operation: &str, name: &str| json!([{ "operation": operation, "path": path(name), "fileType": "text" }]);
    assert_eq!(edited["changes"], change("modify", "a.txt"));
    assert_eq!(added["changes"], change("add", "b.txt"));
    // A patch has `/` on Windows, too.
    let file = path("a.txt").replace('\\', "/");
    let patch =
        format!("diff --git {file} {file}\n--- {file}\n+++ {file}\n@@ -1 +1 @@\n-old\n+new\n");
    assert_eq!(edited["patch"], json!({ "format": "git_patch", "text": patch }));
    let text = added["patch"]["text"].as_str().unwrap();
    assert!(text.contains("new file mode") && text.contains("--- /dev/null"), "{text}");
}

#[test]
fn v2_permission_has_a_title_and_a_subject_and_only_a_known_yes_counts() {
    let selected = |id: &str| json!({ "outcome": { "outcome": "selected", "optionId": id } });
    let answers = [
        (selected("allow_once"), true),
        (selected("reject_once"), false),
        (selected("allow_everything"), false),
        // The question was dismissed; only `session/cancel` ends the turn.
        (json!({ "outcome": { "outcome": "cancelled" } }), false),
        (json!({ "outcome": { "outcome": "cancelled", "optionId": "allow_once" } }), false),
        (json!({ "outcome": { "outcome": "_postponed" } }), false),
        (json!({ "outcome": { "outcome": "allowed", "optionId": "allow_once" } }), false),
    ];
    for (answer, is_yes) in answers {
        let mut agent = v2().model(json!([write("x"), says("Done.")])).start();
        let id = agent.prompt("go");
        let question = agent.wait_for_request("session/request_permission");
        let params = &question["params"];
        assert_eq!(params["title"], "Create x");
        let subject = &params["subject"];
        assert_eq!(subject["type"], "tool_call");
        let card = &agent.updates_of("tool_call_update")[0];
        assert_eq!(subject["toolCall"]["toolCallId"], card["toolCallId"]);
        assert_eq!(subject["toolCall"]["content"][0]["changes"][0]["operation"], "add");
        assert_eq!(params["options"][0]["kind"], "allow_once");
        agent.respond(&question, &answer);
        assert_eq!(agent.stop_reason(&id), "end_turn");
        assert_eq!(agent.path("x").exists(), is_yes, "{answer}");
    }
    let mut agent = v2().model(json!([calls("exec", &json!({ "command": "touch x" }))])).start();
    agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    let why = question["params"]["description"].as_str().unwrap();
    assert!(why.contains("touch x"), "{why}");
    agent.cancel();
}

#[test]
fn v2_elicitation_requires_action() {
    let ask = calls("ask_user", &json!({ "question": "Which?", "options": ["a", "b"] }));
    let forms = json!({ "elicitation": { "form": {} } });
    let mut agent = v2().model(json!([ask, says("Thanks.")])).capabilities(forms).start();
    let id = agent.prompt("go");
    let request = agent.wait_for_request("elicitation/create");
    assert_eq!(lifecycle(&agent).last().unwrap(), "requires_action");
    agent.respond(&request, &json!({ "action": "accept", "content": { "answer": "b" } }));
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(lifecycle(&agent)[3..], ["requires_action", "running", "idle end_turn"]);
}

#[test]
fn v2_modes_are_configuration_options() {
    let mut agent = v2().initialize();
    let new = json!({ "cwd": agent.workspace() });
    let opened = result(agent.call("session/new", &new));
    assert!(opened.get("modes").is_none());
    let options = opened["configOptions"].as_array().unwrap();
    let ids: Vec<_> = options.iter().map(|it| it["configId"].as_str().unwrap()).collect();
    assert!(ids.contains(&"mode") && ids.contains(&"model"), "{ids:?}");
    agent.session = opened["sessionId"].as_str().unwrap().to_owned();
    let set = |id: &str, kind: &str, value: Value| json!({ "sessionId": opened["sessionId"], "configId": id, "type": kind, "value": value });
    let changed =
        result(agent.call("session/set_config_option", &set("mode", "id", json!("plan"))));
    let mode = |all: &Value| {
        let all = all["configOptions"].as_array().unwrap();
        all.iter().find(|it| it["configId"] == "mode").unwrap()["currentValue"].clone()
    };
    assert_eq!(mode(&changed), "plan");
    for bad in [
        set("colour", "id", json!("red")),
        set("mode", "id", json!("reckless")),
        set("mode", "boolean", json!(true)),
        set("mode", "_range", json!("plan")),
        json!({ "sessionId": opened["sessionId"], "configId": "mode", "value": "ask" }),
    ] {
        assert_eq!(code(&agent.call("session/set_config_option", &bad)), -32602, "{bad}");
    }
    // A change of another origin is told.
    assert_eq!(agent.turn("/mode ask"), "end_turn");
    agent.sync();
    let told = agent.updates_of("config_option_update");
    assert_eq!(mode(told.last().unwrap()), "ask");
}

#[test]
fn v2_resume_replays_with_the_same_ids_and_tells_the_state() {
    let replies = json!([write("x"), says("Done.")]);
    let mut agent = v2().model(replies).permission("allow_once").start();
    let id = agent.prompt("go");
    let message = result(agent.answer_to(&id))["messageId"].clone();
    agent.stop_reason(&id);
    let session = agent.session.clone();
    let live = agent.updates_of("agent_message_chunk")[0]["messageId"].clone();
    agent.restart();

    let cwd = json!(agent.workspace());
    let resume = |from: Value| json!({ "sessionId": session, "cwd": cwd, "replayFrom": from });
    let (plain, replayed) = (resume(Value::Null), resume(json!({ "type": "start" })));
    for bad in [json!({ "type": "end" }), json!("start"), json!({})] {
        assert_eq!(code(&agent.call("session/resume", &resume(bad))), -32602);
    }
    result(agent.call("session/resume", &plain));
    let kinds = |agent: &TestAgent| -> Vec<String> {
        let updates = agent.updates();
        updates.iter().map(|it| it["sessionUpdate"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&agent), ["available_commands_update", "state_update"]);
    agent.clear_log();
    let answer = result(agent.call("session/resume", &replayed));
    assert!(answer["configOptions"].is_array());
    let at = |kind: &str| kinds(&agent).iter().position(|it| it == kind).unwrap();
    assert!(at("user_message_chunk") < at("tool_call_update"));
    assert!(at("tool_call_update") < at("agent_message_chunk"));
    let ends = ["replay_complete", "available_commands_update", "state_update"];
    assert_eq!(kinds(&agent).last().unwrap(), "state_update", "the last before the answer");
    assert_eq!(
        agent.updates_of("replay_complete"),
        [json!({ "sessionUpdate": "replay_complete" })]
    );
    let after = kinds(&agent).split_off(at("replay_complete"));
    assert!(after.iter().all(|kind| ends.contains(&kind.as_str())), "{after:?}");
    assert_eq!(agent.updates_of("state_update")[0]["state"], "idle");
    assert_eq!(agent.updates_of("user_message_chunk")[0]["messageId"], message);
    assert_eq!(agent.updates_of("agent_message_chunk")[0]["messageId"], live);
    let card = agent.updates_of("tool_call_update").pop().unwrap();
    assert_eq!(card["content"][0]["changes"][0]["operation"], "add");
    assert_eq!(agent.turn("and now?"), "end_turn");
}

#[test]
fn v2_resume_marks_the_end_of_an_empty_replay_and_of_no_replay_that_fails() {
    let mut agent = v2().start();
    let cwd = json!(agent.workspace());
    let start = json!({ "type": "start" });
    let mut params = json!({ "sessionId": agent.session, "cwd": cwd, "replayFrom": start });
    result(agent.call("session/resume", &params));
    assert_eq!(agent.updates_of("replay_complete").len(), 1);
    params["sessionId"] = "00000000-0000-4000-8000-000000000000".into();
    assert_eq!(code(&agent.call("session/resume", &params)), -32002);
    assert_eq!(agent.updates_of("replay_complete").len(), 1);
}

/// A prompt that may be sent again.
fn keyed(session: &str, words: &str, key: impl Into<Value>) -> Value {
    let mut params = prompt(session, words);
    params["idempotencyKey"] = key.into();
    params
}

#[test]
fn v2_prompt_with_a_key_is_run_once() {
    let hangs = json!([{ "text": "Hm" }, { "hang": true }]);
    let mut agent = v2().model(json!([hangs, says("Done.")])).start();
    let params = keyed(&agent.session, "go", "k-1");
    let first = agent.request("session/prompt", &params);
    let message = result(agent.answer_to(&first))["messageId"].clone();
    agent.wait_for_update("agent_message_chunk");
    // While its turn runs, and when it has ended.
    assert_eq!(result(agent.call("session/prompt", &params))["messageId"], message);
    agent.cancel();
    agent.stop_reason(&first);
    assert_eq!(result(agent.call("session/prompt", &params))["messageId"], message);
    let other = agent.call("session/prompt", &keyed(&agent.session, "stop", "k-1"));
    assert_eq!(code(&other), -32602);
    assert!(other["error"]["message"].as_str().unwrap().contains("idempotencyKey"), "{other}");
    // Each session has its own keys, and without a key every prompt is a new one.
    agent.session = agent.new_session();
    let there = agent.request("session/prompt", &keyed(&agent.session.clone(), "stop", "k-1"));
    assert_eq!(agent.stop_reason(&there), "end_turn");
    assert_eq!(agent.model().requests().len(), 2);
    let said =
        agent.log.iter().filter(|it| it["params"]["update"]["sessionUpdate"] == "user_message");
    assert_eq!(said.count(), 2);
}

#[test]
fn v2_prompt_with_a_key_that_waits_answers_each_attempt_or_fails_each() {
    let hangs = json!([{ "text": "Hm" }, { "hang": true }]);
    let mut agent = v2().model(json!([hangs, says("Done.")])).start();
    let running = agent.prompt("go");
    agent.wait_for_update("agent_message_chunk");
    let params = keyed(&agent.session, "and then", "k-2");
    let attempts = [0, 1, 2].map(|_| agent.request("session/prompt", &params));
    agent.sync();
    agent.notify("$/cancel_request", &json!({ "requestId": attempts[0] }));
    for attempt in &attempts {
        assert_eq!(code(&agent.answer_to(attempt)), -32800);
    }
    let attempts = [0, 1].map(|_| agent.request("session/prompt", &params));
    agent.sync();
    agent.cancel();
    agent.stop_reason(&running);
    let [one, other] = attempts.map(|attempt| agent.answer_to(&attempt));
    assert_eq!(one["result"], other["result"]);
    assert_eq!(
        one.get("error").map(|error| &error["code"]),
        other.get("error").map(|error| &error["code"])
    );
}

#[test]
fn v2_prompt_with_a_key_is_known_after_a_restart_and_a_wrong_key_is_refused() {
    let mut agent = v2().model(json!([says("Done.")])).start();
    let key = "ä".repeat(255);
    let params = keyed(&agent.session, "go", key.as_str());
    let first = agent.request("session/prompt", &params);
    let message = result(agent.answer_to(&first))["messageId"].clone();
    agent.stop_reason(&first);
    agent.restart();
    let resume = json!({ "sessionId": agent.session, "cwd": agent.workspace() });
    result(agent.call("session/resume", &resume));
    assert_eq!(result(agent.call("session/prompt", &params))["messageId"], message);
    assert_eq!(agent.model().requests().len(), 1);
    // A copy of the session has its own keys.
    let fork = json!({ "sessionId": agent.session, "cwd": agent.workspace() });
    agent.session =
        result(agent.call("session/fork", &fork))["sessionId"].as_str().unwrap().to_owned();
    let copy = agent.request("session/prompt", &keyed(&agent.session.clone(), "go", key.as_str()));
    assert_ne!(result(agent.answer_to(&copy))["messageId"], message);
    agent.stop_reason(&copy);
    assert_eq!(agent.model().requests().len(), 2);
    let many = "ä".repeat(256);
    for bad in [json!(""), json!(many), json!(7), json!([]), json!({}), json!(true)] {
        let answer = agent.call("session/prompt", &keyed(&agent.session, "go", bad.clone()));
        assert_eq!(code(&answer), -32602, "{bad}");
    }
}

#[test]
fn v2_sessions_are_listed_forked_closed_and_deleted() {
    let mut agent = v2().model(json!([says("Hello.")])).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let listed = result(agent.call("session/list", &json!({})));
    assert_eq!(listed["sessions"][0]["sessionId"], agent.session.as_str());
    assert_eq!(code(&agent.call("session/list", &json!({ "cursor": "nowhere" }))), -32602);
    let (session, cwd) = (json!(agent.session), json!(agent.workspace()));
    let copy = result(agent.call("session/fork", &json!({ "sessionId": session, "cwd": cwd })));
    assert!(copy["sessionId"] != session && copy["configOptions"].is_array());
    for _ in 0..2 {
        let closed = agent.call("session/close", &json!({ "sessionId": session }));
        assert_eq!(closed["result"], json!({}), "closing what is not open succeeds");
    }
    assert_eq!(
        code(&agent.call("session/prompt", &prompt(session.as_str().unwrap(), "hi"))),
        -32002
    );
    result(agent.call("session/delete", &json!({ "sessionId": session })));
    let params = json!({ "sessionId": session, "cwd": cwd });
    assert_eq!(code(&agent.call("session/resume", &params)), -32002);
}

#[test]
fn v2_close_ends_the_turn_before_it_is_answered() {
    let mut agent = v2().model(json!([json!([{ "text": "Hm" }, { "hang": true }])])).start();
    agent.prompt("go");
    agent.wait_for_update("agent_message_chunk");
    let waiting = agent.prompt("next");
    let params = json!({ "sessionId": agent.session });
    let closing = agent.request("session/close", &params);
    agent.answer_to(&closing);
    assert_eq!(code(&agent.answer_to(&waiting)), -32800);
    let place = |fits: &dyn Fn(&Value) -> bool| agent.log.iter().position(fits).unwrap();
    let idle = place(&|it| it["params"]["update"]["stopReason"] == "cancelled");
    assert!(idle < place(&|it| it["id"] == closing && it["result"].is_object()));
}

#[test]
fn v2_mcp_servers_need_a_type_that_was_offered() {
    let mut agent = v2().initialize();
    let stdio = json!({ "name": "x", "command": "/bin/true", "args": [], "env": [] });
    let with = |kind: &str| {
        let mut server = stdio.clone();
        server["type"] = kind.into();
        server
    };
    for bad in [stdio.clone(), with("sse"), with("acp"), with("http"), with("_pigeon"), json!(5)] {
        let params = json!({ "cwd": agent.workspace(), "mcpServers": [bad] });
        assert_eq!(code(&agent.call("session/new", &params)), -32602, "{params}");
    }
    let hosted = json!({ "type": "acp", "name": "x", "serverId": "s" });
    let program = json!({ "type": "stdio", "name": "x", "command": "/bin/true" });
    let far = json!({ "type": "http", "name": "x", "url": "http://127.0.0.1:1/" });
    for good in [json!([]), json!([program]), json!([far]), json!([hosted])] {
        let params = json!({ "cwd": agent.workspace(), "mcpServers": good });
        result(agent.call("session/new", &params));
    }
}

#[test]
fn v2_plans_commands_and_notices_have_their_forms() {
    let entries = json!([{ "content": "look", "status": "pending", "priority": "high" }]);
    let plan = calls("plan", &json!({ "entries": entries }));
    let limited = json!([{ "status": 429, "headers": { "Retry-After": "1" }, "body": {} }]);
    let mut agent = v2().model(json!([plan, limited, says("Done.")])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let shown = agent.updates_of("plan_update");
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0]["plan"], json!({ "type": "items", "planId": "plan", "entries": entries }));
    let commands = agent.updates_of("available_commands_update")[0].clone();
    let steer = commands["availableCommands"].as_array().unwrap();
    let steer = steer.iter().find(|it| it["name"] == "compact").unwrap();
    assert_eq!((&steer["type"], &steer["input"]["type"]), (&json!("command"), &json!("text")));
    let notices = agent.updates_of("notice");
    assert!(notices.iter().any(|it| it["severity"] == "info"), "{notices:?}");
}

#[test]
fn v2_words_for_a_running_turn_are_messages_of_it() {
    let mut agent = v2().model(json!([write("x"), says("With tabs.")])).start();
    let first = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    let steered = agent.prompt("/steer use tabs");
    let params = prompt(&agent.session, "and no spaces");
    let answer = agent.call("_session/steering", &params);
    assert_eq!(answer["result"], json!({ "outcome": "injected" }));
    agent.choose(&question, "allow_once");
    let message = result(agent.answer_to(&steered))["messageId"].clone();
    assert_eq!(agent.stop_reason(&first), "end_turn");
    let said = agent.updates_of("user_message");
    let texts: Vec<_> = said.iter().map(|it| it["content"][0]["text"].clone()).collect();
    assert_eq!(texts, ["go", "use tabs", "and no spaces"]);
    assert_eq!(said[1]["messageId"], message);
    let words = lifecycle(&agent);
    assert_eq!(words.iter().filter(|it| it.starts_with("idle")).count(), 1, "{words:?}");
    agent.restart();
    let params = json!({
        "sessionId": agent.session, "cwd": agent.workspace(), "replayFrom": { "type": "start" },
    });
    result(agent.call("session/resume", &params));
    assert_eq!(agent.updates_of("user_message_chunk")[1]["messageId"], message);
}

#[test]
fn v2_can_be_switched_off() {
    for requested in [0, 2, 3] {
        let off = TestAgent::builder().own_file("config/config.toml", "[acp]\nv2 = false\n");
        let mut agent = off.spawn();
        let answer = agent.call("initialize", &initialize(requested));
        assert_eq!(answer["result"]["protocolVersion"], 1, "asked for {requested}: {answer}");
        agent.session = agent.new_session();
        assert_eq!(agent.turn("hi"), "end_turn");
    }
}

#[test]
fn v2_content_chunks_show_each_line_of_a_file_once_while_the_model_writes_it() {
    let lines: Vec<_> = (0..400).map(|it| format!("line {it} \"é😀\"\n")).collect();
    let content = lines.concat();
    let arguments = json!({ "path": "a.txt", "content": content });
    let step = json!({ "call": { "name": "write_file", "arguments": arguments, "pieces": 80, "every_ms": 40 } });
    let mut agent = v2().model(json!([[step], says("Done.")])).permission("allow_once").start();
    assert_eq!(agent.turn("go"), "end_turn");
    let updates = agent.updates();
    let first = updates.iter().find_map(|it| it["content"][0]["patch"]["text"].as_str()).unwrap();
    let chunks = agent.updates_of("tool_call_content_chunk");
    assert!(!chunks.is_empty());
    let further = chunks.iter().map(|it| it["content"]["patch"]["text"].as_str().unwrap());
    let mut written = String::new();
    for patch in std::iter::once(first).chain(further) {
        let hunk = patch.lines().find(|it| it.starts_with("@@")).unwrap();
        let next = written.lines().count() + 1;
        assert!(hunk.contains(&format!("+{next},")), "{hunk} after {next} lines");
        let added = patch.lines().filter(|it| it.starts_with('+') && !it.starts_with("+++"));
        written.extend(added.map(|it| format!("{}\n", &it[1..])));
    }
    assert!(content.starts_with(&written), "{written}");
    let last = updates.iter().rfind(|it| it["status"] == "completed").unwrap();
    let patch = last["content"][0]["patch"]["text"].as_str().unwrap();
    assert!(patch.contains("@@ -0,0 +1,400 @@"), "the result is shown as a whole");
}
