//! `turnwright sandbox -- …`, the launcher: it runs a command in a terminal of the client, passes on its
//! output and exit code, ends its processes, and reports to the agent.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Output, Stdio};

use turnwright_testing::process_waits;

use crate::agent::{eventually, is_alive, run_mark};

fn sandbox(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwright"));
    command.arg("sandbox").args(arguments).env("TURNWRIGHT_HOME", "/nonexistent");
    command.envs([run_mark()]);
    command
}

fn run(arguments: &[&str]) -> Output {
    process_waits::output(&mut sandbox(arguments)).unwrap()
}

fn shell(command: &str) -> Output {
    run(&["--", "bash", "-c", command])
}

/// Starts a launcher and waits until its command runs `sleep` with the argument `word`.
fn started(arguments: &[&str], word: &str) -> Child {
    let mut command = sandbox(arguments);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    eventually("the command runs", || is_alive(&format!("sleep\0{word}")));
    child
}

fn signal(child: &Child, name: &str) {
    let status =
        process_waits::status(Command::new("kill").args(["-s", name, &child.id().to_string()]));
    assert!(status.unwrap().success());
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    for (command, code) in [("true", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill $$", 143)] {
        assert_eq!(shell(command).status.code(), Some(code), "{command}");
    }
    for (program, code) in [("no-such-program", 127), ("/", 126)] {
        let output = run(&["--", program]);
        assert_eq!(output.status.code(), Some(code), "{program}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(program) && stderr.contains("cannot be started"), "{stderr}");
    }
}

#[test]
fn output_is_passed_on_unchanged() {
    let output = shell("printf 'a\\377\\033[1m'; echo b >&2; seq 1 200000");
    assert!(output.stdout.starts_with(b"a\xff\x1b[1mb\n1\n2\n"));
    assert!(output.stdout.ends_with(b"\n200000\n") && output.stdout.len() > 1_288_894);
    assert!(output.stderr.is_empty());
}

#[test]
fn secrets_and_input_are_not_passed_on() {
    let mut command = sandbox(&["--", "bash", "-c", "cat; env"]);
    let command = command
        .env("GITHUB_TOKEN", "value-1")
        .env("OPENAI_API_KEY", "sk-value-2-of-many")
        .env("INNOCENT", "Bearer sk-value-2-of-many")
        .env("HARMLESS", "kept")
        .stdin(Stdio::piped());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = String::from_utf8(process_waits::wait_with_output(child).stdout).unwrap();
    assert!(stdout.contains("HARMLESS=kept\n") && stdout.contains("TERM=dumb\n"), "{stdout}");
    assert!(!stdout.contains("value-"), "{stdout}");
}

#[test]
fn signals_end_the_launcher_and_all_its_processes() {
    for (name, code, word) in [("TERM", 143, "608.1"), ("INT", 130, "608.2"), ("HUP", 129, "608.3")]
    {
        let command = format!("trap '' {name}; (sleep {word} &); sleep {word}; sleep {word}");
        let mut child = started(&["--", "bash", "-c", &command], word);
        signal(&child, name);
        assert_eq!(process_waits::wait(&mut child).code(), Some(code), "{name}");
        eventually("all processes are gone", || !is_alive(&format!("sleep\0{word}")));
    }
}

#[test]
fn no_process_survives_a_killed_launcher() {
    let mut child = started(&["--", "bash", "-c", "(sleep 608.4 &); sleep 608.4; true"], "608.4");
    process_waits::kill(&mut child);
    eventually("all processes are gone", || !is_alive("sleep\x00608.4"));
}

#[test]
fn a_closed_stdout_ends_the_command() {
    let mut command = sandbox(&["--", "yes", "608.5"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    assert_eq!(process_waits::all_of(stdout.take(8), &child).len(), 8);
    process_waits::wait(&mut child);
    eventually("the command is gone", || !is_alive("yes\x00608.5"));
}

/// With this a launcher proves to its agent which one it is.
const NONCE_VARIABLE: &str = "TURNWRIGHT_LAUNCHER_NONCE";
const NONCE: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn no_command_runs_if_the_agent_cannot_be_reached() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, ran) = (folder.path().join("line"), folder.path().join("ran"));
    let arguments = ["--report", socket.to_str().unwrap(), "--", "touch", ran.to_str().unwrap()];
    let check = |output: Output| {
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("Nothing was run"));
        assert!(!ran.exists());
    };
    check(run(&arguments));
    // This agent closes the connection without sending anything.
    let listener = UnixListener::bind(&socket).unwrap();
    let mut command = sandbox(&arguments);
    command.env(NONCE_VARIABLE, NONCE);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    drop(process_waits::accept(&listener, &child));
    check(process_waits::wait_with_output(child));
}

#[test]
fn the_end_of_the_agent_ends_the_command() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let (socket, ran) = (folder.path().join("line"), folder.path().join("ran"));
    let listener = UnixListener::bind(&socket).unwrap();
    let command = format!("touch {}; sleep 608.6; true", ran.display());
    let arguments = ["--report", socket.to_str().unwrap(), "--", "bash", "-c", &command];
    let mut command = sandbox(&arguments);
    command.env(NONCE_VARIABLE, NONCE);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut agent = process_waits::accept(&listener, &child);
    assert!(!ran.exists(), "the launcher did not wait for the agent");
    agent.write_all(b"r\0\0\0\0").unwrap();
    eventually("the command runs", || ran.exists());
    drop(agent);
    process_waits::wait(&mut child);
    eventually("the command is gone", || !is_alive("sleep\x00608.6"));
}

#[test]
fn output_of_a_background_process_does_not_delay_the_report_of_the_end() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("line");
    let listener = UnixListener::bind(&socket).unwrap();
    // The background process begins to print when the shell has ended.
    let command = "(while kill -0 $$ 2>/dev/null; do :; done; exec yes 608.7) & echo over";
    let arguments = ["--report", socket.to_str().unwrap(), "--", "bash", "-c", command];
    let mut command = sandbox(&arguments);
    command.env(NONCE_VARIABLE, NONCE);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut agent = process_waits::accept(&listener, &child);
    agent.write_all(b"r\0\0\0\0").unwrap();
    let report = process_waits::all_of(agent, &child);
    assert_eq!(process_waits::wait(&mut child).code(), Some(0));
    assert!(
        report.ends_with(b"x\x03\0\0\0c+0"),
        "the end is not in the {} bytes of the report",
        report.len()
    );
    assert!(report.len() < 1024 * 1024, "{} bytes", report.len());
    eventually("the background process is gone", || !is_alive("yes\x00608.7"));
}
