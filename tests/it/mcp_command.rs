//! `/mcp` lists the MCP servers of a session with their states, describes one server, and restarts it.

use serde_json::json;

use crate::agent::{TestAgent, calls, eventually, says};
use crate::mcp_config::{section, with};

#[test]
fn without_servers_the_command_says_so() {
    let mut agent = TestAgent::builder().start();
    assert!(agent.turn_text("/mcp").contains("no MCP servers"));
    assert!(agent.turn_text("/mcp notes").contains("no MCP server `notes`"));
}

#[test]
fn each_server_is_listed_with_its_state_and_its_origin() {
    let good =
        json!({ "name": "nice\u{202e}", "tools": [{ "name": "a" }], "prompts": [{ "name": "p" }] });
    let settings = section("dead", &json!({ "start_ms": 600_000 }), "start_seconds = 1")
        + &section("slow", &json!({ "start_ms": 600_000 }), "start_seconds = 600")
        + &section("off", &good, "enabled = false")
        + &section("unset", &good, "env = { KEY = '${NOT_THERE}' }");
    let mut agent = with(&format!("[mcp]\nwait_seconds = 0\n{settings}"))
        .server("good", &good)
        .model(json!([says("hi")]))
        .start();
    agent.turn("hi");
    let expected = [
        "* `good` (editor) – ready: nice\\\\u{202e} 1, revision 2025-11-25, 1 tool, 1 prompt\n",
        "* `dead` (settings) – failed: it was not ready within 1 s",
        "* `slow` (settings) – starting\n",
        "* `off` (settings) – turned off\n",
        "* `unset` (settings) – not used: the variable NOT_THERE",
    ];
    eventually("all states are as expected", || {
        let text = agent.turn_text("/mcp");
        expected.iter().all(|it| text.contains(it))
    });
}

#[cfg(unix)]
#[test]
fn a_download_that_takes_too_long_can_clean_up_and_the_user_is_told_what_to_do() {
    let tools = turnwright_testing::temporary_folder();
    let npx = tools.path().join("npx");
    let script = "#!/bin/sh\ntrap 'sleep 0.9; echo cleaned >> download; exit 143' TERM\n\
                  echo begun >> download\nwhile :; do sleep 0.05; done\n";
    turnwright_testing::write_program(&npx, script);
    let server = format!(
        "[mcp]\nwait_seconds = 2\n[mcp.servers.far]\ncommand = '{}'\nargs = ['-y', 'pkg', 'sk-1']\n\
         start_seconds = 1\nsandbox = false\n",
        npx.display()
    );
    let mut agent = with(&server).model(json!([says("hi")])).start();
    agent.turn("hi");
    let download = agent.path("download");
    eventually("the download was ended", || {
        let log = std::fs::read_to_string(&download).unwrap_or_default();
        log.contains("begun\ncleaned\n")
    });
    let expected = "it was not ready within 1 s. `npx …` may still have been downloading: run it \
                    once in a terminal, or set a higher `start_seconds` for the server";
    // It is started again a few times.
    eventually("the failure is told", || {
        let text = agent.turn_text("/mcp");
        assert!(!text.contains("sk-1"), "{text}");
        text.replace('\\', "").contains(expected)
    });
}

#[test]
fn one_server_is_described_with_its_tools_and_their_annotations() {
    let tools = json!([
        { "name": "look", "description": "Looks ![i](x).\nAt length.", "annotations": { "readOnlyHint": true } },
        { "name": "break", "description": "", "annotations": { "destructiveHint": true } },
        { "name": "hidden" },
    ]);
    let scenario = json!({ "tools": tools, "prompts": [{ "name": "greet" }] });
    let mut agent = with(&section("notes", &scenario, "without_tools = ['hidden']"))
        .model(json!([says("hi")]))
        .start();
    agent.turn("hi");
    let text = agent.turn_text("/mcp notes");
    for expected in [
        "2 tools of 3",
        "* `mcp(notes/look)` – Looks \\!\\[i\\](x). (says that it only reads)\n",
        "* `mcp(notes/break)` (says that it may destroy something)\n",
        "Prompts: `/notes:greet`.",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("notes/hidden"), "{text}");
}

#[test]
fn a_server_is_restarted_on_request() {
    let scenario = json!({ "tools": [{ "name": "pid" }, { "name": "echo" }], "log": "heard" });
    let mut agent = TestAgent::builder()
        .server("notes", &scenario)
        .permission("allow_once")
        .model(json!([says("one"), calls("mcp__notes__echo", &json!({ "n": 1 })), says("two")]))
        .start();
    agent.turn("hi");
    assert!(agent.turn_text("/mcp restart nobody").contains("no MCP server `nobody`"));
    assert!(agent.turn_text("/mcp restart notes").contains("Restarting notes"));
    eventually("the restarted server is initialized", || {
        agent.read("heard").matches("\"initialize\"").count() == 2
            && agent.turn_text("/mcp").contains("ready: scripted 1, revision 2025-11-25, 2 tools")
    });
    agent.turn("go");
    let result = agent.model_transcript(2).pop().unwrap();
    assert!(result.contains(r#"{"n":1}"#), "{result}");
}
