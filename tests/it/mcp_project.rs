//! MCP servers that a project brings along: none starts before the user trusts exactly them.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, TestAgentBuilder, is_alive, says};

const FILE: &str = ".mcp.json";

fn entry(scenario: &Value) -> Value {
    json!({ "command": turnwright_testing::example_program("scripted_server"), "args": [scenario.to_string()] })
}

fn file(servers: &Value) -> String {
    json!({ "mcpServers": servers }).to_string()
}

fn project(file: &str) -> TestAgentBuilder {
    TestAgent::builder().file(FILE, file).permission("allow_once").model(json!([]))
}

fn say(agent: &mut TestAgent, text: &str) -> String {
    let before = agent.text().len();
    assert_eq!(agent.turn(text), "end_turn");
    agent.text()[before..].to_owned()
}

/// Opens a session, and returns the tools of servers that its model is offered.
fn offered(agent: &mut TestAgent) -> Vec<String> {
    agent.session = agent.new_session();
    agent.model().push(says("Hello.")).unwrap();
    assert_eq!(agent.turn("hello"), "end_turn");
    let last = agent.model().requests().len() - 1;
    let body = agent.model_request(last);
    let names = body["tools"].as_array().unwrap().iter();
    let names = names.map(|it| it["function"]["name"].as_str().unwrap().to_owned());
    names.filter(|it| it.starts_with("mcp__")).collect()
}

fn trust(agent: &mut TestAgent) -> String {
    let said = say(agent, "/trust");
    let at = said.find("`/trust ").unwrap_or_else(|| panic!("no code in {said}")) + 8;
    let code = said[at..].split('`').next().unwrap().to_owned();
    say(agent, &format!("/trust {code}"))
}

#[test]
fn d_3_no_server_of_a_project_starts_before_exactly_it_is_trusted() {
    let word = "tool-of-7741";
    let mine = file(&json!({ "notes": entry(&json!({ "tools": [{ "name": word }] })) }));
    let mut agent = project(&mine).initialize();
    let tools: [String; 0] = [];
    assert_eq!(offered(&mut agent), tools);
    assert!(!is_alive(word));
    let notice = agent.thoughts();
    for part in [FILE, "the MCP server notes", "/trust"] {
        assert!(notice.contains(part), "{part}: {notice}");
    }
    let said = say(&mut agent, "/trust");
    for part in ["notes runs [\"", "scripted_server", word, &mine] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(say(&mut agent, "/trust 01234567").contains("not the code"));
    assert_eq!(offered(&mut agent), tools);

    assert!(trust(&mut agent).contains(".mcp.json is trusted as it is now"));
    assert_eq!(offered(&mut agent), ["mcp__notes__tool-of-7741"]);
    let before = agent.thoughts().len();
    assert_eq!(agent.thoughts().len(), before);

    std::fs::write(agent.path(FILE), format!("{mine}\n")).unwrap();
    assert_eq!(offered(&mut agent), tools);
    std::fs::write(agent.path(FILE), &mine).unwrap();
    assert_eq!(offered(&mut agent).len(), 1);
    assert!(say(&mut agent, "/trust forget").contains("not started"));
    assert_eq!(offered(&mut agent), tools);
}

#[test]
fn both_files_of_a_project_are_trusted_one_by_one() {
    let mine = file(&json!({ "notes": entry(&json!({ "tools": [{ "name": "echo" }] })) }));
    let mut agent = project(&mine)
        .file(".turnwright/config.toml", "[permissions]\nallow = ['mcp(notes)']\n")
        .start();
    let said = say(&mut agent, "/trust");
    let codes: Vec<_> = said.split("`/trust ").skip(1).map(|it| &it[..8]).collect();
    assert_eq!(codes.len(), 2, "{said}");
    assert!(say(&mut agent, &format!("/trust {}", codes[1])).contains(".mcp.json is trusted"));
    assert_eq!(offered(&mut agent), ["mcp__notes__echo"]);
    assert!(say(&mut agent, "/trust").contains("1 allow rule"));
}

#[test]
fn the_editors_server_counts_before_the_projects() {
    let mine = file(&json!({
        "notes": entry(&json!({ "tools": [{ "name": "theirs" }] })),
        "more": entry(&json!({ "tools": [{ "name": "theirs" }] })),
    }));
    let mut agent =
        project(&mine).server("notes", &json!({ "tools": [{ "name": "mine" }] })).start();
    trust(&mut agent);
    let mut names = offered(&mut agent);
    names.sort();
    assert_eq!(names, ["mcp__more__theirs", "mcp__notes__mine"]);
}

#[test]
fn variables_come_from_what_commands_get_and_never_the_providers_key() {
    let scenario = json!({
        "tools": [{ "name": "tell" }],
        "answers": { "tell": [{ "env": "FIRST" }, { "env": "SECOND" }] },
    });
    let mut good = entry(&scenario);
    good["env"] = json!({ "FIRST": "<${GREETING}>", "SECOND": "${OPENAI_API_KEY:-nothing}" });
    let mut bad = entry(&scenario);
    bad["env"] = json!({ "FIRST": "${OPENAI_API_KEY}" });
    let mine = file(&json!({ "good": good, "bad": bad }));
    let mut agent = project(&mine).variable("GREETING", "hello").start();
    let said = trust(&mut agent);
    assert!(said.contains("`bad` is not started") && said.contains("`OPENAI_API_KEY`"), "{said}");
    assert_eq!(offered(&mut agent), ["mcp__good__tell"]);
    agent.model().push(crate::agent::calls("mcp__good__tell", &json!({}))).unwrap();
    agent.model().push(says("Done.")).unwrap();
    let told = cards::turn(&mut agent);
    assert!(told.contains("<hello>") && told.contains("nothing"), "{told}");
    let question = agent.log.iter().find(|it| it["method"] == "session/request_permission");
    let text = cards::card_text(&question.unwrap()["params"]["toolCall"]);
    assert!(text.contains("(from this project)"), "{text}");
}

#[test]
fn a_poisoned_file_has_no_effect_and_no_session_fails_of_it() {
    let mut agent = TestAgent::builder().model(json!([])).initialize();
    let deep = format!("{{\"mcpServers\": {}1", "[".repeat(100_000));
    let large = format!("{{}}{}", " ".repeat(300 * 1024));
    for (text, expected) in [
        ("", "is invalid"),
        ("[]", "is invalid"),
        (deep.as_str(), "is invalid"),
        (large.as_str(), "is larger"),
        (r#"{"mcpServers":{"a":{"type":"sse","url":"http://x"}}}"#, "`sse` is not known"),
    ] {
        std::fs::write(agent.path(FILE), text).unwrap();
        assert!(offered(&mut agent).is_empty());
        let notice = agent.thoughts();
        assert!(notice.contains(FILE) && notice.contains(expected), "{expected}: {notice}");
        assert!(!say(&mut agent, "/trust").contains("`/trust "), "{expected}");
    }
}
