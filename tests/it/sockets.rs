//! Sockets of other programs that are made while something of the agent's runs: no job and no MCP server
//! reaches them.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::json;
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, eventually, says};

/// A line of shell that connects to a socket of the project and to one outside as soon as there is a file
/// `go`, and then writes `found`.
fn script(outside: &Path) -> String {
    let probe = format!("{} sandbox-probe socket", env!("CARGO_BIN_EXE_turnwright"));
    format!(
        "until [ -e go ]; do sleep 0.02; done; {{ {probe} own && echo own; \
         {probe} {}/late && echo reached; echo ran; }} > new; mv new found",
        outside.display()
    )
}

/// Makes the sockets and returns what was found.
fn find(agent: &TestAgent, outside: &Path) -> String {
    let _own = UnixListener::bind(agent.path("own")).unwrap();
    let late = UnixListener::bind(outside.join("late")).unwrap();
    late.set_nonblocking(true).unwrap();
    fs::write(agent.path("go"), "").unwrap();
    eventually("the script has run", || agent.path("found").exists());
    assert!(late.accept().is_err());
    agent.read("found")
}

fn has_closed_sockets() -> bool {
    let has = turnwright_sandbox::can_confine() && turnwright_sandbox::namespace_support().sockets;
    if !has {
        eprintln!("SKIPPED: this machine cannot close sockets");
    }
    has
}

#[test]
fn a_job_reaches_no_socket_that_is_made_meanwhile() {
    if !has_closed_sockets() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let job = calls("exec", &json!({ "command": script(outside.path()), "background": true }));
    let mut agent =
        TestAgent::builder().permission("allow_once").model(json!([job, says("Done.")])).start();
    let result = cards::turn(&mut agent);
    assert!(result.starts_with("[running in the background as p1]"), "{result}");
    assert_eq!(find(&agent, outside.path()), "own\nran\n");
}

#[test]
fn an_mcp_server_reaches_no_socket_that_is_made_meanwhile() {
    if !has_closed_sockets() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let line = format!("({}) & exec \"$0\" \"$1\"", script(outside.path()));
    let program = turnwright_testing::example_program("scripted_server");
    let scenario = json!({ "tools": [{ "name": "echo" }] });
    let arguments = json!(["-c", line, program, scenario.to_string()]);
    let server = json!({ "name": "notes", "command": "/bin/sh", "args": arguments, "env": [] });
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .model(json!([calls("mcp__notes__echo", &json!({})), says("Done.")]))
        .server_as(server)
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(find(&agent, outside.path()), "own\nran\n");
}
