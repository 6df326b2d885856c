//! `turnwright sandbox -- …` runs a command in a terminal of a person, and the launcher one in a terminal of
//! the client, for the agent. Both pass on its output and exit code and end its processes; the launcher also
//! reports to the agent.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use turnwright_testing::process_waits;

use crate::agent::{assert_gone, eventually, is_alive, run_mark};

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
        assert_gone(&format!("sleep\0{word}"));
    }
}

#[test]
fn no_process_survives_a_killed_launcher() {
    let mut child = started(&["--", "bash", "-c", "(sleep 608.4 &); sleep 608.4; true"], "608.4");
    process_waits::kill(&mut child);
    assert_gone("sleep\x00608.4");
}

#[test]
fn a_closed_stdout_ends_the_command() {
    let mut command = sandbox(&["--", "yes", "608.5"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    assert_eq!(process_waits::all_of(stdout.take(8), &child).len(), 8);
    process_waits::wait(&mut child);
    assert_gone("yes\x00608.5");
}

/// A launcher in a terminal that has the name of this command.
fn launcher(socket: &Path, name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwright"));
    command.arg(name).env("TURNWRIGHT_HOME", "/nonexistent").envs([run_mark()]);
    command.env("TURNWRIGHT_LAUNCHER_SOCKET", socket);
    command.env("TURNWRIGHT_LAUNCHER_NONCE", "0123456789abcdef0123456789abcdef");
    command
}

/// What an agent sends to have a command run without a sandbox.
fn request(command: &str) -> Vec<u8> {
    let program = ["bash", "-c", command];
    let request = serde_json::json!({ "Run": {
        "program": program, "workdir": "/", "accepts_input": false, "sandbox": null,
    } });
    let request = request.to_string();
    let length = u32::try_from(request.len()).unwrap().to_le_bytes();
    // There is no network that it shares with other commands.
    [b"\0m", &length[..], request.as_bytes()].concat()
}

#[test]
fn no_command_runs_if_the_agent_cannot_be_reached() {
    let folder = turnwright_testing::temporary_folder();
    let (socket, ran) = (folder.path().join("line"), folder.path().join("ran"));
    let name = format!("touch {}", ran.display());
    let check = |output: Output| {
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("the agent cannot be reached") && text.contains("Nothing was run"));
        assert!(!ran.exists());
    };
    check(process_waits::output(&mut launcher(&socket, &name)).unwrap());
    // One that was started without the nonce does not even try.
    let listener = UnixListener::bind(&socket).unwrap();
    check(
        process_waits::output(launcher(&socket, &name).env_remove("TURNWRIGHT_LAUNCHER_NONCE"))
            .unwrap(),
    );
    // This agent closes the connection without sending anything.
    let mut command = launcher(&socket, &name);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    drop(process_waits::accept(&listener, &child));
    check(process_waits::wait_with_output(child));
}

#[test]
fn the_end_of_the_agent_ends_the_command() {
    use std::io::Write;
    let folder = turnwright_testing::temporary_folder();
    let (socket, ran) = (folder.path().join("line"), folder.path().join("ran"));
    let listener = UnixListener::bind(&socket).unwrap();
    let command = format!("touch {}; sleep 608.6; true", ran.display());
    let mut launcher = launcher(&socket, "--version");
    let mut child = launcher.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut agent = process_waits::accept(&listener, &child);
    assert!(!ran.exists(), "the launcher did not wait for the agent");
    agent.write_all(&request(&command)).unwrap();
    eventually("the command runs", || ran.exists());
    drop(agent);
    process_waits::wait(&mut child);
    assert_gone("sleep\x00608.6");
}

#[test]
fn output_of_a_background_process_does_not_delay_the_report_of_the_end() {
    use std::io::Write;
    let folder = turnwright_testing::temporary_folder();
    let socket = folder.path().join("line");
    let listener = UnixListener::bind(&socket).unwrap();
    // The background process begins to print when the shell has ended.
    let command = "(while kill -0 $$ 2>/dev/null; do :; done; exec yes 608.7) & echo over";
    let mut launcher = launcher(&socket, "cargo test");
    let mut child = launcher.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut agent = process_waits::accept(&listener, &child);
    agent.write_all(&request(command)).unwrap();
    let report = process_waits::all_of(agent, &child);
    assert_eq!(process_waits::wait(&mut child).code(), Some(0));
    assert!(
        report.ends_with(br#"{"Exit":[{"Code":0},true]}"#),
        "the end is not in the {} bytes of the report",
        report.len()
    );
    assert!(report.len() < 1024 * 1024, "{} bytes", report.len());
    assert_gone("yes\x00608.7");
}
