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
    let outside = turnwright_testing::temporary_folder();
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
    let outside = turnwright_testing::temporary_folder();
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

/// The kernel allows one supervisor of system calls only, and some containers have one.
#[test]
fn below_another_supervisor_the_check_says_what_is_open() {
    if !has_closed_sockets() || turnwright_sandbox::sandbox_support().landlock_abi >= Some(9) {
        return;
    }
    let script = "import ctypes, os, sys\n\
        class Program(ctypes.Structure):\n  \
        _fields_ = [('length', ctypes.c_ushort), ('filter', ctypes.c_void_p)]\n\
        allow = (ctypes.c_uint64 * 1)(0x7fff_0000_0000_0006)\n\
        program = Program(1, ctypes.addressof(allow)); libc = ctypes.CDLL(None)\n\
        libc.prctl(38, 1, 0, 0, 0); seccomp = {'x86_64': 317, 'aarch64': 277}[os.uname().machine]\n\
        assert libc.syscall(seccomp, 1, 8, ctypes.byref(program)) >= 0\n\
        if os.fork() == 0: os.execv(sys.argv[1], sys.argv[1:])\n\
        os.wait()";
    let home = turnwright_testing::temporary_folder();
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script, env!("CARGO_BIN_EXE_turnwright"), "doctor", "--sandbox"]);
    let output =
        turnwright_testing::process_waits::output(command.env("TURNWRIGHT_HOME", home.path()));
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(text.contains("The sandbox holds."), "{text}");
    assert!(text.contains("those that are moved or made later are open"), "{text}");
    assert!(text.contains("Connections cannot be supervised"), "{text}");
}
