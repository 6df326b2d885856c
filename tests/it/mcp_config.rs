//! MCP servers in the user's settings: they are available in every session, their variables are expanded,
//! and an invalid entry does not affect the others. `config show` and the doctor list them, too.

use serde_json::{Value, json};
use turnwright_testing::example_program;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says, subcommand};

/// The section of the settings for a scripted server, with the lines `more` added.
pub fn section(name: &str, scenario: &Value, more: &str) -> String {
    let program = example_program("scripted_server");
    let program = program.display();
    format!("[mcp.servers.{name}]\ncommand = '{program}'\nargs = ['{scenario}']\n{more}\n")
}

/// An agent with these settings in the user's `config.toml`.
pub fn with(settings: &str) -> TestAgentBuilder {
    TestAgent::builder().own_file("config/config.toml", settings)
}

#[test]
fn a_server_in_the_settings_is_in_every_session_with_its_variables_expanded() {
    let scenario = json!({
        "tools": [{ "name": "read_key" }, { "name": "read_none" }, { "name": "write" }],
        "answers": { "read_key": [{ "env": "NOTES_KEY" }] },
    });
    let more = "env = { NOTES_KEY = 'is ${MY_WORD}${NO:-!}' }\ntools = ['read_*']\n\
                without_tools = ['*_none']";
    let mut agent = with(&section("notes", &scenario, more))
        .variable("MY_WORD", "mellon")
        .permission("allow_once")
        .model(json!([calls("mcp__notes__read_key", &json!({})), says("done"), says("again")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.server_tools(0), ["mcp__notes__read_key"]);
    let result = agent.model_transcript(1).pop().unwrap();
    assert!(result.contains("is mellon!"), "{result}");
    agent.session = agent.new_session();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.server_tools(2), ["mcp__notes__read_key"]);
}

#[test]
fn invalid_entries_are_reported_and_other_servers_work() {
    let scenario = json!({ "tools": [{ "name": "echo" }] });
    let settings = section("good", &scenario, "")
        + &section("off", &scenario, "enabled = false")
        + &section("unset", &scenario, "env = { KEY = '${NOT_THERE}' }")
        + &section("key", &scenario, "env = { KEY = '${OPENAI_API_KEY}' }")
        + "[mcp.servers.both]\ncommand = 'a'\nurl = 'http://localhost/'\n";
    let mut agent = with(&settings).noisy().model(json!([says("done")])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.server_tools(0), ["mcp__good__echo"]);
    let notices_text = agent.thoughts();
    for expected in [
        "unset of the settings is not used: the variable NOT_THERE",
        "OPENAI_API_KEY holds a model's key",
        "both",
    ] {
        assert!(notices_text.contains(expected), "{expected}: {notices_text}");
    }
    assert!(!notices_text.contains("off of the settings"), "{notices_text}");
}

#[test]
fn config_show_prints_names_but_no_values_of_variables_and_headers() {
    let home = turnwright_testing::temporary_folder();
    std::fs::create_dir(home.path().join("config")).unwrap();
    let settings = "[mcp]\nwait_seconds = 7\n[mcp.servers.notes]\ncommand = 'notes'\n\
                    args = ['mellon-1']\nenv = { NOTES_KEY = 'mellon-2' }\n[mcp.servers.web]\n\
                    url = 'https://example.com/mcp?k=mellon-3'\nheaders = { Own = 'mellon-4' }\n";
    std::fs::write(home.path().join("config/config.toml"), settings).unwrap();
    let output = subcommand(home.path(), &["config", "show"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in ["mcp.wait_seconds", "mcp.servers.notes", "NOTES_KEY", "example.com/mcp", "Own"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("mellon"), "{text}");
}

#[test]
fn the_doctor_checks_each_server_and_passes_despite_faulty_ones() {
    let home = turnwright_testing::temporary_folder();
    std::fs::create_dir(home.path().join("config")).unwrap();
    let good = json!({ "name": "good one", "tools": [{ "name": "a" }, { "name": "b" }] });
    let settings = section("good", &good, "")
        + &section("junk", &json!({ "first": ["no JSON"], "revision": "1999-01-01" }), "")
        + &section("dead", &json!({ "exit": 3, "shouts": 3 }), "")
        + "[mcp.servers.gone]\ncommand = '/no/such/program'\n"
        + "[mcp.servers.unset]\ncommand = 'x'\nargs = ['${NOT_THERE}']\n";
    std::fs::write(home.path().join("config/config.toml"), settings).unwrap();
    let doctor = |arguments: &[&str]| {
        let mut command = subcommand(home.path(), &["--model", "offline", "doctor"]);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let output = command.args(arguments).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = doctor(&[]);
    let has =
        |mark: &str, words: &str| text.lines().any(|it| it.starts_with(mark) && it.contains(words));
    assert!(has("ok   mcp", "good: good one 1, revision 2025-11-25, 2 tools"), "{text}");
    assert!(has("FAIL mcp", "gone: "), "{text}");
    assert!(has("FAIL mcp", "dead: it ended (exit 3). It printed: xxx / cannot go on"), "{text}");
    assert!(has("FAIL mcp", "unset: the variable NOT_THERE"), "{text}");
    let report: Value = serde_json::from_str(&doctor(&["--json"])).unwrap();
    let state = |name: &str| {
        let servers = report["servers"].as_array().unwrap();
        servers.iter().find(|it| it["name"] == name).unwrap()["state"].clone()
    };
    assert_eq!((state("good"), state("gone")), ("ok".into(), "no".into()));
}
