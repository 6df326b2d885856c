//! What a client asks for in `_meta` when it opens a session: other instructions, fewer tools, fewer
//! requests. It holds in the next process too.

use serde_json::{Value, json};
use turnwright_testing::session_requests::{opening_params, result};

use crate::agent::{TestAgent, calls, says};

/// Opens a session with this `_meta` and returns the answer.
fn open_with(agent: &mut TestAgent, meta: &Value) -> Value {
    let params = json!({ "cwd": agent.workspace(), "mcpServers": [], "_meta": meta });
    let answer = agent.call("session/new", &params);
    answer["result"]["sessionId"].as_str().unwrap_or_default().clone_into(&mut agent.session);
    answer
}

fn body(agent: &TestAgent, number: usize) -> Value {
    agent.model().requests()[number].body.clone()
}

fn system(agent: &TestAgent, number: usize) -> String {
    body(agent, number)["messages"][0]["content"].as_str().unwrap().to_owned()
}

fn tools(agent: &TestAgent, number: usize) -> Vec<String> {
    let tools = body(agent, number)["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|it| it["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn instructions_replace_or_follow_the_usual_ones() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).initialize();
    open_with(&mut agent, &json!({ "systemPrompt": "You are a poet." }));
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(system(&agent, 0), "You are a poet.");
    open_with(&mut agent, &json!({ "systemPrompt": { "append": "Answer in verse." } }));
    assert_eq!(agent.turn("hi"), "end_turn");
    let both = system(&agent, 1);
    assert!(
        both.starts_with("You are turnwright") && both.ends_with("Answer in verse.\n"),
        "{both}"
    );
}

/// Opens a session with this `systemPrompt` of the protocol and returns the answer.
fn open_with_prompt(agent: &mut TestAgent, prompt: &Value) -> Value {
    let params = json!({ "cwd": agent.workspace(), "mcpServers": [], "systemPrompt": prompt });
    let answer = agent.call("session/new", &params);
    answer["result"]["sessionId"].as_str().unwrap_or_default().clone_into(&mut agent.session);
    answer
}

#[test]
fn r_sys_1_the_protocol_s_system_prompt_is_appended_or_replaces_ours_or_is_refused() {
    let mut agent = TestAgent::builder().model(json!([says("One."), says("Two.")])).initialize();
    let text =
        json!([{ "type": "text", "text": "Be brief." }, { "type": "text", "text": "Rhyme." }]);
    open_with_prompt(&mut agent, &json!({ "mode": "append", "content": text }));
    assert_eq!(agent.turn("hi"), "end_turn");
    let both = system(&agent, 0);
    assert!(both.starts_with("You are turnwright") && both.ends_with("\nBe brief.\n\nRhyme.\n"));
    open_with_prompt(&mut agent, &json!({ "mode": "override", "content": text }));
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(system(&agent, 1), "Be brief.\n\nRhyme.");
    let image = json!([{ "type": "image", "mimeType": "image/png", "data": "AAAA" }]);
    for refused in [
        json!({ "mode": "prepend", "content": text }),
        json!({ "mode": "append", "content": [] }),
        json!({ "mode": "append", "content": image }),
        json!({ "content": text }),
    ] {
        let answer = open_with_prompt(&mut agent, &refused);
        assert_eq!(answer["error"]["code"], -32602, "{refused}: {answer}");
    }
}

#[test]
fn s4_1_the_user_s_name_and_instructions_are_in_each_request_and_the_client_s_follow() {
    let file = "[agent]\nname = 'Ada'\nsystem_prompt = 'Answer in verse.'\n";
    let mut agent = TestAgent::builder()
        .own_file("config/config.toml", file)
        .model(json!([says("One."), says("Two.")]))
        .start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let own = system(&agent, 0);
    assert!(
        own.starts_with("You are Ada, a coding agent") && own.ends_with("\nAnswer in verse.\n")
    );
    open_with(&mut agent, &json!({ "systemPrompt": { "append": "Be brief." } }));
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(system(&agent, 1), format!("{own}\nBe brief.\n"));
}

#[test]
fn only_allowed_tools_are_offered_and_run() {
    let script = json!([
        calls("exec", &json!({ "command": "touch made" })),
        calls("read_file", &json!({ "path": "a.txt" })),
        says("Done."),
    ]);
    let mut agent = TestAgent::builder().file("a.txt", "content\n").model(script).initialize();
    let options = json!({ "allowedTools": ["Read", "Grep"] });
    open_with(&mut agent, &json!({ "claudeCode": { "options": options } }));
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(tools(&agent, 0), ["grep", "read_file"]);
    let transcript = agent.model_transcript(2).join("\n");
    assert!(
        transcript.contains("The tool \"exec\" is not allowed in this session."),
        "{transcript}"
    );
    assert!(transcript.contains("content"), "{transcript}");
    assert!(!agent.workspace().join("made").exists());
    open_with(&mut agent, &json!({ "claudeCode": { "options": { "allowedTools": [] } } }));
    assert_eq!(agent.turn("go"), "end_turn");
    let told = agent.thoughts();
    assert!(told.contains("The editor allows no tools in this session"), "{told}");
    assert_eq!(tools(&agent, 3), [""; 0]);
}

#[test]
fn the_number_of_requests_in_one_turn_can_be_limited() {
    let read = calls("read_file", &json!({ "path": "a.txt" }));
    let script = json!([read, read, says("Half done."), says("Not asked.")]);
    let mut agent = TestAgent::builder().file("a.txt", "content\n").model(script).initialize();
    open_with(&mut agent, &json!({ "claudeCode": { "options": { "maxTurns": 2 } } }));
    assert_eq!(agent.turn("go"), "max_turn_requests");
    // The third request is for the summary.
    assert_eq!(agent.model().requests().len(), 3);
}

#[test]
fn the_number_of_requests_that_the_user_has_set_cannot_be_raised() {
    let read = calls("read_file", &json!({ "path": "a.txt" }));
    let agent = TestAgent::builder().file("a.txt", "content\n").model(json!([read, says("Done.")]));
    let mut agent = agent.variable("TURNWRIGHT_MAX_TURN_REQUESTS", "1").initialize();
    open_with(&mut agent, &json!({ "claudeCode": { "options": { "maxTurns": 5 } } }));
    assert_eq!(agent.turn("go"), "max_turn_requests");
    assert_eq!(agent.model().requests().len(), 2);
}

#[test]
fn what_was_asked_for_holds_in_the_next_process_and_in_a_copy_until_it_is_asked_for_anew() {
    let mut agent = TestAgent::builder().initialize();
    let options = json!({ "allowedTools": ["read_file"] });
    let meta = json!({ "systemPrompt": "Be brief.", "claudeCode": { "options": options } });
    open_with(&mut agent, &meta);
    agent.restart();
    let session = agent.session.clone();
    let params = opening_params(&agent, &session);
    let id = agent.request("session/resume", &params);
    result(agent.answer_to(&id));
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(
        (system(&agent, 0), tools(&agent, 0)),
        ("Be brief.".to_owned(), vec!["read_file".to_owned()])
    );

    let copy = agent.call("session/fork", &params);
    copy["result"]["sessionId"].as_str().unwrap().clone_into(&mut agent.session);
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(system(&agent, 1), "Be brief.");

    agent.session.clone_from(&session);
    let mut again = params.clone();
    again["_meta"] = json!({ "systemPrompt": "Be long." });
    let id = agent.request("session/load", &again);
    result(agent.answer_to(&id));
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(system(&agent, 2), "Be long.");
    assert_eq!(tools(&agent, 2), ["read_file"]);
}

#[test]
fn a_malformed_option_is_told_and_a_malformed_restriction_allows_nothing() {
    let mut agent = TestAgent::builder().initialize();
    let options = json!({ "allowedTools": "Read" });
    open_with(&mut agent, &json!({ "systemPrompt": 5, "claudeCode": { "options": options } }));
    assert_eq!(agent.turn("hi"), "end_turn");
    let told = agent.thoughts();
    assert!(told.contains("`_meta.systemPrompt` was ignored: it must be a text"), "{told}");
    assert!(told.contains("in a form that is not understood"), "{told}");
    assert!(system(&agent, 0).starts_with("You are turnwright"));
    assert_eq!(tools(&agent, 0), [""; 0]);
}
