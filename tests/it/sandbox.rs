//! `turnwright sandbox -- …`: a command as the agent runs its own, in somebody's terminal.

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

/// A launcher in the middle of this command.
fn started(arguments: &[&str], word: &str) -> Child {
    let mut command = sandbox(arguments);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    eventually("it runs", || is_alive(&format!("sleep\0{word}")));
    child
}

fn signal(child: &Child, name: &str) {
    let status =
        process_waits::status(Command::new("kill").args(["-s", name, &child.id().to_string()]));
    assert!(status.unwrap().success());
}

#[test]
fn it_ends_as_the_command_ends() {
    for (command, code) in [("true", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill $$", 143)] {
        assert_eq!(shell(command).status.code(), Some(code), "{command}");
    }
    for (program, code) in [("no-such-program", 127), ("/", 126)] {
        let output = run(&["--", program]);
        assert_eq!(output.status.code(), Some(code), "{program}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(program) && said.contains("cannot be started"), "{said}");
    }
}

#[test]
fn what_is_printed_comes_out_as_it_is() {
    let output = shell("printf 'a\\377\\033[1m'; echo b >&2; seq 1 200000");
    assert!(output.stdout.starts_with(b"a\xff\x1b[1mb\n1\n2\n"));
    assert!(output.stdout.ends_with(b"\n200000\n") && output.stdout.len() > 1_288_894);
    assert!(output.stderr.is_empty());
}

#[test]
fn it_passes_on_no_secrets_and_no_input() {
    let mut command = sandbox(&["--", "bash", "-c", "cat; env"]);
    let command = command
        .env("GITHUB_TOKEN", "value-1")
        .env("OPENAI_API_KEY", "sk-value-2-of-many")
        .env("INNOCENT", "Bearer sk-value-2-of-many")
        .env("HARMLESS", "kept")
        .stdin(Stdio::piped());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = String::from_utf8(process_waits::wait_with_output(child).stdout).unwrap();
    assert!(said.contains("HARMLESS=kept\n") && said.contains("TERM=dumb\n"), "{said}");
    assert!(!said.contains("value-"), "{said}");
}

#[test]
fn signals_end_it_with_all_that_it_has_started() {
    for (name, code, word) in [("TERM", 143, "608.1"), ("INT", 130, "608.2"), ("HUP", 129, "608.3")]
    {
        let command = format!("trap '' {name}; (sleep {word} &); sleep {word}; sleep {word}");
        let mut child = started(&["--", "bash", "-c", &command], word);
        signal(&child, name);
        assert_eq!(process_waits::wait(&mut child).code(), Some(code), "{name}");
        eventually("all of it is gone", || !is_alive(&format!("sleep\0{word}")));
    }
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing_behind() {
    let mut child = started(&["--", "bash", "-c", "(sleep 608.4 &); sleep 608.4; true"], "608.4");
    process_waits::kill(&mut child);
    eventually("all of it is gone", || !is_alive("sleep\x00608.4"));
}

#[test]
fn a_reader_that_has_gone_ends_it() {
    let mut command = sandbox(&["--", "yes", "608.5"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    assert_eq!(process_waits::all_of(stdout.take(8), &child).len(), 8);
    process_waits::wait(&mut child);
    eventually("it is gone", || !is_alive("yes\x00608.5"));
}

#[test]
fn nothing_is_run_for_an_agent_that_cannot_be_reached() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, ran) = (folder.path().join("line"), folder.path().join("ran"));
    let arguments = ["--report", socket.to_str().unwrap(), "--", "touch", ran.to_str().unwrap()];
    let check = |output: Output| {
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("Nothing was run"));
        assert!(!ran.exists());
    };
    check(run(&arguments));
    // One that hangs up without a word.
    let listener = UnixListener::bind(&socket).unwrap();
    let mut command = sandbox(&arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    drop(process_waits::accept(&listener, &child));
    check(process_waits::wait_with_output(child));
}

#[test]
fn the_end_of_the_agent_ends_it() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let (socket, ran) = (folder.path().join("line"), folder.path().join("ran"));
    let listener = UnixListener::bind(&socket).unwrap();
    let command = format!("touch {}; sleep 608.6; true", ran.display());
    let arguments = ["--report", socket.to_str().unwrap(), "--", "bash", "-c", &command];
    let mut command = sandbox(&arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut agent = process_waits::accept(&listener, &child);
    assert!(!ran.exists(), "it did not wait for the word");
    agent.write_all(b"r\0\0\0\0").unwrap();
    eventually("it runs", || ran.exists());
    drop(agent);
    process_waits::wait(&mut child);
    eventually("it is gone", || !is_alive("sleep\x00608.6"));
}

#[test]
fn what_is_left_behind_and_goes_on_talking_hides_neither_the_end_nor_costs_memory() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("line");
    let listener = UnixListener::bind(&socket).unwrap();
    // It begins when the shell has ended and nobody asks about it any more.
    let command = "(while kill -0 $$ 2>/dev/null; do :; done; exec yes 608.7) & echo over";
    let arguments = ["--report", socket.to_str().unwrap(), "--", "bash", "-c", command];
    let mut command = sandbox(&arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut agent = process_waits::accept(&listener, &child);
    agent.write_all(b"r\0\0\0\0").unwrap();
    let said = process_waits::all_of(agent, &child);
    assert_eq!(process_waits::wait(&mut child).code(), Some(0));
    assert!(said.ends_with(b"x\x03\0\0\0c+0"), "no word of the end in {} bytes", said.len());
    assert!(said.len() < 1024 * 1024, "{} bytes", said.len());
    eventually("it is gone", || !is_alive("yes\x00608.7"));
}
