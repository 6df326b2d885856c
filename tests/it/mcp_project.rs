//! MCP servers that a project declares in `.mcp.json`: none starts before the user trusts exactly this
//! file.

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

/// Opens a session and returns the names of the server tools that its model is offered.
fn offered(agent: &mut TestAgent) -> Vec<String> {
    agent.session = agent.new_session();
    agent.model().push(says("Hello.")).unwrap();
    assert_eq!(agent.turn("hello"), "end_turn");
    let last = agent.model().requests().len() - 1;
    agent.server_tools(last)
}

/// Trusts the files of the project with the code that `/trust` shows.
fn trust(agent: &mut TestAgent) -> String {
    let text = agent.turn_text("/trust");
    let start = text.find("`/trust ").unwrap_or_else(|| panic!("no code in {text}")) + 8;
    let code = text[start..].split('`').next().unwrap().to_owned();
    agent.turn_text(&format!("/trust {code}"))
}

#[test]
fn d_3_a_server_of_a_project_starts_only_while_its_exact_file_is_trusted() {
    let tool = "tool-of-7741";
    let mine = file(&json!({ "notes": entry(&json!({ "tools": [{ "name": tool }] })) }));
    let mut agent = project(&mine).initialize();
    let no_tools: [String; 0] = [];
    assert_eq!(offered(&mut agent), no_tools);
    assert!(!is_alive(tool));
    let notice = agent.thoughts();
    for part in [FILE, "the MCP server notes", "/trust"] {
        assert!(notice.contains(part), "{part}: {notice}");
    }
    let text = agent.turn_text("/trust");
    for part in ["notes runs [\"", "scripted_server", tool, &mine] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(agent.turn_text("/trust 01234567").contains("not the code"));
    assert_eq!(offered(&mut agent), no_tools);

    assert!(trust(&mut agent).contains(".mcp.json is trusted as it is now"));
    assert_eq!(offered(&mut agent), ["mcp__notes__tool-of-7741"]);

    std::fs::write(agent.path(FILE), format!("{mine}\n")).unwrap();
    assert_eq!(offered(&mut agent), no_tools);
    std::fs::write(agent.path(FILE), &mine).unwrap();
    assert_eq!(offered(&mut agent).len(), 1);
    assert!(agent.turn_text("/trust forget").contains("not started"));
    assert_eq!(offered(&mut agent), no_tools);
}

#[test]
fn the_two_files_of_a_project_are_trusted_separately() {
    let mine = file(&json!({ "notes": entry(&json!({ "tools": [{ "name": "echo" }] })) }));
    let mut agent = project(&mine)
        .file(".turnwright/config.toml", "[permissions]\nallow = ['mcp(notes)']\n")
        .start();
    let text = agent.turn_text("/trust");
    let codes: Vec<_> = text.split("`/trust ").skip(1).map(|it| &it[..8]).collect();
    assert_eq!(codes.len(), 2, "{text}");
    assert!(agent.turn_text(&format!("/trust {}", codes[1])).contains(".mcp.json is trusted"));
    assert_eq!(offered(&mut agent), ["mcp__notes__echo"]);
    assert!(agent.turn_text("/trust").contains("1 allow rule"));
}

#[test]
fn the_editors_server_takes_precedence_over_the_projects() {
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
fn servers_of_a_project_get_variables_of_commands_but_no_keys() {
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
    let answer = trust(&mut agent);
    assert!(
        answer.contains("`bad` is not started") && answer.contains("OPENAI_API_KEY is not set"),
        "{answer}"
    );
    assert_eq!(offered(&mut agent), ["mcp__good__tell"]);
    agent.model().push(crate::agent::calls("mcp__good__tell", &json!({}))).unwrap();
    agent.model().push(says("Done.")).unwrap();
    let result = cards::turn(&mut agent);
    assert!(result.contains("<hello>") && result.contains("nothing"), "{result}");
    let question = agent.log.iter().find(|it| it["method"] == "session/request_permission");
    let text = cards::card_text(&question.unwrap()["params"]["toolCall"]);
    assert!(text.contains("(from this project)"), "{text}");
}

#[test]
fn an_invalid_file_is_reported_and_has_no_effect() {
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
        assert!(!agent.turn_text("/trust").contains("`/trust "), "{expected}");
    }
}
