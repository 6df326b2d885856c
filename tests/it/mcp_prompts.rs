//! Prompts of MCP servers (M-21) are slash commands: the server expands the command into the prompt
//! that the model gets.

use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, says};

const ANNOUNCEMENT: &str = "available_commands_update";

fn greet() -> Value {
    json!({ "name": "greet", "description": "Greets\u{200b} somebody.\nAt length.", "arguments": [
        { "name": "who", "required": true }, { "name": "how" },
    ] })
}

/// The result of `prompts/get` with one message.
fn got(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] })
}

/// The commands of MCP servers in the last announcement to the client.
fn announced(agent: &TestAgent) -> Vec<Value> {
    let updates = agent.updates();
    let last = updates.iter().rfind(|it| it["sessionUpdate"] == ANNOUNCEMENT);
    let all = last.and_then(|it| it["availableCommands"].as_array()).cloned().unwrap_or_default();
    all.into_iter().filter(|it| it["name"].as_str().unwrap().contains(':')).collect()
}

fn wait_for_command(agent: &mut TestAgent, name: &str) {
    while !announced(agent).iter().any(|it| it["name"] == name) {
        agent.wait_for_update(ANNOUNCEMENT);
    }
}

#[test]
fn m_21_a_prompt_of_a_server_is_a_command_with_a_hint_of_its_arguments() {
    let scenario = json!({ "prompts": [greet(), { "name": "two words" }] });
    let mut agent = TestAgent::builder().server("my notes", &scenario).start();
    wait_for_command(&mut agent, "my_notes:greet");
    let expected = json!([
        { "name": "my_notes:greet", "description": "Greets\\u{200b} somebody.", "input": { "hint": "who [how]" } },
        { "name": "my_notes:two_words", "description": "Prompt from my notes" },
    ]);
    assert_eq!(Value::from(announced(&agent)), expected);
}

#[test]
fn m_21_the_messages_of_the_server_become_the_users_prompt() {
    let folder = turnwright_testing::temporary_folder();
    let log = folder.path().join("log");
    let messages = json!({ "messages": [
        { "role": "user", "content": { "type": "text", "text": "Greet\u{202e} Ada." } },
        { "role": "assistant", "content": { "type": "text", "text": "Dear Ada" } },
        { "role": "user", "content": { "type": "resource", "resource": { "uri": "x://y", "text": "manners" } } },
    ] });
    let scenario = json!({ "prompts": [greet()], "got": { "greet": messages }, "log": log });
    // The log is outside of the session's folders, so a confined server could not write it.
    let settings = crate::mcp_config::section("notes", &scenario, "sandbox = false");
    let mut agent =
        crate::mcp_config::with(&settings).model(json!([says("Hello."), says("Again.")])).start();
    assert_eq!(agent.turn("/notes:greet \"Ada L.\" very  kindly"), "end_turn");
    let request = std::fs::read_to_string(&log).unwrap();
    let request = request.lines().find(|it| it.contains("prompts/get")).unwrap();
    let request: Value = serde_json::from_str(request).unwrap();
    assert_eq!(request["params"]["arguments"], json!({ "who": "Ada L.", "how": "very  kindly" }));
    let transcript = agent.model_transcript(0).join("\n");
    for expected in ["Greet\\u{202e} Ada.", "> Dear Ada", "manners"] {
        assert!(transcript.contains(expected), "{expected}: {transcript}");
    }
    assert!(!transcript.contains("/notes:greet"), "{transcript}");
    assert!(agent.model_request(0).to_string().contains("Working folder"));
    assert_eq!(agent.turn("next"), "end_turn");
    assert_eq!(agent.text(), "Hello.Again.");
}

#[test]
fn m_21_a_prompt_may_be_named_as_in_claude_code() {
    let scenario = json!({ "prompts": [greet()], "got": { "greet": got("Greet her.") } });
    let mut agent =
        TestAgent::builder().server("notes", &scenario).model(json!([says("Hello.")])).start();
    assert_eq!(agent.turn("/mcp__notes__greet Ada"), "end_turn");
    let transcript = agent.model_transcript(0).join("\n");
    assert!(transcript.contains("Greet her."), "{transcript}");
}

#[test]
fn m_21_the_words_behind_a_mentioned_file_are_arguments_and_no_text_of_the_prompt() {
    let scenario = json!({ "prompts": [greet()], "got": { "greet": got("Greet her.") } });
    let mut agent =
        TestAgent::builder().server("notes", &scenario).model(json!([says("Hello.")])).start();
    let prompt = json!([
        { "type": "text", "text": "/notes:greet " },
        { "type": "resource_link", "name": "ada", "uri": "people://ada" },
        { "type": "text", "text": " very kindly" },
    ]);
    let params = json!({ "sessionId": agent.session, "prompt": prompt });
    let id = agent.request("session/prompt", &params);
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let transcript = agent.model_transcript(0).join("\n");
    assert!(transcript.contains("Greet her."), "{transcript}");
    assert!(!transcript.contains("kindly"), "{transcript}");
}

#[test]
fn m_21_a_command_that_fails_is_answered_without_a_model_request() {
    let scenario =
        json!({ "prompts": [greet(), { "name": "broken" }], "got": { "greet": got("x") } });
    let mut agent =
        TestAgent::builder().server("notes", &scenario).model(json!([says("Hello.")])).start();
    for (typed, expected) in [
        ("/notes:greet", "Missing arguments: who"),
        ("/notes:broken now", "takes no arguments"),
        ("/notes:broken", "there is no broken"),
    ] {
        let answer = agent.turn_text(typed);
        assert!(answer.contains(expected), "{typed}: {answer}");
    }
    assert_eq!(agent.model().requests().len(), 0);
    // The failed commands were not the first prompt: this one still gets the project's description.
    assert_eq!(agent.turn("hi"), "end_turn");
    assert!(agent.model_request(0).to_string().contains("Working folder"));
    assert_eq!(agent.model_transcript(0), ["user hi"]);
}

#[test]
fn m_25_a_missing_argument_is_answered_with_what_the_server_suggests() {
    let many: Vec<_> = (0..100).map(|number| format!("v{number}")).collect();
    let completion = |values: Value| json!({ "who": { "completion": { "values": values } } });
    let table = [
        (
            completion(json!(["Ada\u{1b}[2J", "Bo\nb"])),
            " The server suggests: “Ada\\\\u{1b}\\[2J”, “Bo”.",
        ),
        (completion(json!(many)), ": “v0”, “v1”, “v2”, “v3”, “v4”, “v5”, “v6”, “v7”, “v8”, “v9”."),
        (completion(json!([])), "\\[how\\]"),
        (completion(json!([3, null])), "\\[how\\]"),
        (completion(json!("Ada")), "\\[how\\]"),
        (json!({ "who": { "completion": 3 } }), "\\[how\\]"),
        (json!({ "who": null }), "\\[how\\]"),
        (json!(null), "\\[how\\]"),
    ];
    for (completions, expected) in table {
        let scenario = json!({
            "prompts": [greet()], "completions": completions, "log": "heard",
        });
        let mut agent =
            TestAgent::builder().server("notes", &scenario).model(json!([says("Hello.")])).start();
        let answer = agent.turn_text("/notes:greet how=kindly");
        assert!(answer.contains("Missing arguments: who. Usage: who \\[how\\]"), "{answer}");
        assert!(answer.trim_end().ends_with(expected), "{completions}: {answer}");
        let heard = agent.read("heard");
        let asked = heard.lines().find(|it| it.contains("completion/complete"));
        assert_eq!(asked.is_some(), completions.is_object(), "{completions}");
        if let Some(asked) = asked {
            let asked: Value = serde_json::from_str(asked).unwrap();
            let params = &asked["params"];
            assert_eq!(params["ref"], json!({ "type": "ref/prompt", "name": "greet" }));
            assert_eq!(params["argument"], json!({ "name": "who", "value": "" }));
            assert_eq!(params["context"]["arguments"], json!({ "how": "kindly" }));
        }
    }
}

#[test]
fn m_21_an_unknown_prompt_name_is_ordinary_text() {
    let mut agent = TestAgent::builder()
        .server("notes", &json!({ "prompts": [greet()] }))
        .model(json!([says("one"), says("two")]))
        .start();
    wait_for_command(&mut agent, "notes:greet");
    for (number, typed) in ["/notes:nothing", "/other:greet"].into_iter().enumerate() {
        assert_eq!(agent.turn(typed), "end_turn");
        assert_eq!(agent.model_transcript(number).pop().unwrap(), format!("user {typed}"));
    }
}

#[test]
fn m_21_a_change_of_the_prompts_is_announced() {
    let scenario = json!({
        "prompts": [greet()],
        "tools": [{ "name": "learn" }],
        "answers": { "learn": [{ "prompts": [{ "name": "part" }] }, { "text": "learnt" }] },
    });
    let mut agent = TestAgent::builder()
        .server("notes", &scenario)
        .permission("allow_once")
        .model(json!([calls("mcp__notes__learn", &json!({})), says("done")]))
        .start();
    wait_for_command(&mut agent, "notes:greet");
    assert_eq!(agent.turn("go"), "end_turn");
    wait_for_command(&mut agent, "notes:part");
    assert_eq!(announced(&agent).len(), 1);
}
