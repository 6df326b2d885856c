//! `turnwright run`: a turn in a pipe and in CI. `run_terminal` has what needs a terminal.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::scripted_model::{Scenario, Server};
use turnwright_testing::{calls, process_waits, run_mark, says, schema};

use crate::agent::{eventually, piped, subcommand};

/// A folder to work in, and a model that plays a scenario.
pub struct Desk {
    pub home: TempDir,
    /// With symbolic links resolved.
    project: PathBuf,
    pub server: Option<Server>,
    _folder: TempDir,
}

impl Desk {
    /// No model is configured.
    pub fn bare() -> Desk {
        let (home, folder) =
            (turnwright_testing::temporary_folder(), turnwright_testing::temporary_folder());
        let project = folder.path().canonicalize().unwrap().display().to_string();
        let project = project.trim_start_matches(r"\\?\").into();
        Desk { home, project, server: None, _folder: folder }
    }

    pub fn new(replies: &Value) -> Desk {
        let scenario = Scenario::from_value(json!({ "replies": replies })).unwrap();
        Desk { server: Some(Server::start(scenario, 0).unwrap()), ..Desk::bare() }
    }

    fn url(&self) -> String {
        self.server.as_ref().unwrap().base_url()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = subcommand(self.home.path(), &["run"]);
        command.args(arguments).current_dir(&self.project);
        command.env("TERM", "xterm").envs([run_mark()]);
        if let Some(server) = &self.server {
            command.env("OPENAI_BASE_URL", server.base_url()).env("OPENAI_API_KEY", "sk-test-1234");
            command.env("TURNWRIGHT_MODEL", "scripted");
        }
        command
    }

    /// Runs the command with an empty stdin.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(process_waits::output(&mut self.command(arguments)).unwrap())
    }

    /// Runs the command with `input` in a pipe.
    fn piped(&self, arguments: &[&str], input: &str) -> Ended {
        Ended::of(piped(&mut self.command(arguments), input))
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.project.join(name), text).unwrap();
    }

    pub fn exists(&self, name: &str) -> bool {
        self.project.join(name).exists()
    }

    /// The messages of the request with this number.
    pub fn messages(&self, request: usize) -> String {
        self.server.as_ref().unwrap().request(request).body["messages"].to_string()
    }
}

/// A program that has ended.
pub struct Ended {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    fn of(output: Output) -> Ended {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended {
            status: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

pub fn write_file(path: &Path) -> Value {
    calls("write_file", &json!({ "path": path, "content": "new\n" }))
}

/// A model that goes on until the test ends the turn.
pub fn endless() -> Value {
    json!([[{ "text": "I begin. " }, { "hang": true }]])
}

#[test]
fn in_a_pipe_stdout_has_the_answer_alone_as_the_model_has_written_it() {
    let read = json!([{ "text": "I look." }, calls("read_file", &json!({ "path": "a.txt" }))[0]]);
    let desk = Desk::new(&json!([read, says("It says **one**.\n")]));
    desk.write("a.txt", "one\n");
    let ended = desk.run(&["What does a.txt say?"]);
    assert_eq!(ended.stdout, "I look.\n\nIt says **one**.\n");
    // Where there is no sandbox, a notice says so before.
    assert!(ended.stderr.ends_with("✓ Read a.txt\n"), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count() == 1, turnwright_sandbox::can_confine());
    assert_eq!(ended.status, Some(0));
}

#[test]
fn a_helper_in_the_background_is_waited_for_where_no_prompt_follows() {
    let task = json!({ "description": "look", "prompt": "the task", "background": true });
    let look = json!({ "when": "the task", "steps": says("The answer is 42.") });
    let desk = Desk::new(&json!([look, calls("agent", &task), says("Done.")]));
    assert_eq!(desk.run(&["go"]).status, Some(0));
    let last = desk.messages(2);
    assert!(last.contains("The answer is 42."), "{last}");
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn the_model_is_told_once_of_a_command_that_would_end_with_its_answer() {
    let run = calls("exec", &json!({ "command": "sleep 658", "background": true }));
    let look = calls("exec_output", &json!({ "id": "p1", "wait": 1 }));
    let forgotten = json!([run, says("The tests run."), says("They are not needed.")]);
    let known = json!([run, look, says("The server works.")]);
    for (replies, is_told) in [(&forgotten, true), (&known, false)] {
        let desk = Desk::new(replies);
        let ended = desk.run(&["--mode", "full", "--no-input", "go"]);
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        assert_eq!(ended.stderr.contains("p1 would end now"), is_told, "{}", ended.stderr);
        let last = desk.messages(2);
        assert_eq!(last.contains("Still running: p1"), is_told, "{last}");
    }
}

#[test]
fn the_prompt_comes_from_the_arguments_or_from_stdin_with_files() {
    let desk = Desk::new(&json!([says("1"), says("2"), says("3"), says("4")]));
    desk.write("notes.txt", "remember this");
    desk.run(&["from the arguments"]);
    desk.piped(&[], "from a pipe");
    desk.piped(&["-"], "from a dash");
    desk.piped(&["--file", "-", "--file", "notes.txt", "Review"], "+ a line of a diff");
    assert!(desk.messages(0).contains("from the arguments"));
    assert!(desk.messages(1).contains("from a pipe"));
    assert!(desk.messages(2).contains("from a dash"));
    let last = desk.messages(3);
    let parts = ["Review", "+ a line of a diff", "notes.txt", "remember this"];
    assert!(parts.iter().all(|it| last.contains(it)), "{last}");
}

#[test]
fn json_also_has_the_reason_why_nothing_was_started() {
    let desk = Desk::new(&json!([]));
    for arguments in [
        &["--json", "--session", "none", "Go"][..],
        &["--json", "--file", "none.txt", "Go"],
        &["--json", " "],
        &["--json"],
    ] {
        let ended = desk.run(arguments);
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((ended.status, &answer["id"]), (Some(2), &json!("prompt")));
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(ended.stderr.contains(message), "{}", ended.stderr);
    }
}

#[test]
fn a_server_that_wants_a_key_where_none_is_set_is_answered_with_where_to_set_it() {
    let desk = Desk::new(&json!([[{ "status": 401, "body": { "error": "Who is there?" } }]]));
    let mut command = desk.command(&["Go"]);
    let ended = Ended::of(process_waits::output(command.env_remove("OPENAI_API_KEY")).unwrap());
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("No key was sent"), "{}", ended.stderr);
}

/// A shell passes `<(git diff)` as the path of a pipe.
#[test]
#[cfg(unix)]
fn a_file_that_is_a_pipe_is_attached() {
    let desk = Desk::new(&json!([says("1")]));
    let ended = desk.piped(&["--file", "/dev/stdin", "Review"], "+ a line of a diff");
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(desk.messages(0).contains("+ a line of a diff"));
}

#[test]
fn a_pipe_beside_a_prompt_is_attached() {
    let replies: Vec<_> = (0..5).map(|number| says(&number.to_string())).collect();
    let desk = Desk::new(&json!(replies));
    let ended = desk.piped(&["Review"], "+ a line of a diff");
    let last = desk.messages(0);
    assert!(last.contains("Review") && last.contains("+ a line of a diff"), "{last}");
    assert!(ended.stderr.contains("Attached: stdin (18 bytes)"), "{}", ended.stderr);

    let ended = desk.piped(&["Review"], "");
    assert_eq!((ended.status, ended.stderr.contains("ttached")), (Some(0), false));
    let ended = desk.piped(&["Review"], "\u{1}\0\u{2}");
    assert!(
        ended.stderr.contains("stdin is no text (3 bytes), and was not attached"),
        "{}",
        ended.stderr
    );
    let ended = desk.piped(&["--json", "Review"], "in json, too");
    assert!(desk.messages(3).contains("in json, too"));
    assert!(ended.stdout.lines().all(|line| line.starts_with('{')), "{}", ended.stdout);
    // Input that comes later than anybody waits is not attached, and that is said.
    let mut command = desk.command(&["Review"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let open = child.stdin.take();
    let ended = Ended::of(process_waits::wait_with_output(child));
    drop(open);
    assert_eq!(ended.status, Some(0));
    assert!(ended.stderr.contains("Nothing has come from stdin"), "{}", ended.stderr);
    let ended = desk.piped(&["Review"], &"x".repeat(9 * 1024 * 1024));
    assert_eq!((ended.status, ended.stderr.contains("longer than 8 MiB")), (Some(2), true));
}

#[test]
fn whoever_waits_for_the_end_of_stdin_is_told_so() {
    use std::io::Write;
    let desk = Desk::new(&json!([says("1"), says("2")]));
    let told = desk.home.path().join("told");
    for arguments in [&["-"][..], &["Review"]] {
        let mut command = desk.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.stderr(std::fs::File::create(&told).unwrap()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"begun").unwrap();
        let note = "Reading stdin until it ends";
        eventually("it is told", || std::fs::read_to_string(&told).unwrap().contains(note));
        assert!(process_waits::wait(&mut child).success());
    }
}

#[test]
fn json_is_the_updates_of_the_protocol_and_the_answer_of_the_prompt() {
    let desk = Desk::new(&json!([
        calls("read_file", &json!({ "path": "a.txt" })),
        says("Done \u{9b}31m."),
    ]));
    desk.write("a.txt", "one\n");
    let ended = desk.run(&["--json", "Read"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(!ended.stdout.contains(|it: char| it.is_control() && it != '\n'), "{}", ended.stdout);
    let frames: Vec<Value> =
        ended.stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let (last, updates) = frames.split_last().unwrap();
    for update in updates {
        schema::check(update, None);
    }
    schema::check(last, Some("session/prompt"));
    assert_eq!(last["result"]["stopReason"], "end_turn");
    let kind = |it: &Value| it["params"]["update"]["sessionUpdate"].as_str().unwrap().to_owned();
    let kinds: Vec<_> = updates.iter().map(kind).collect();
    let expected = ["tool_call", "tool_call_update", "agent_message_chunk", "usage_update"];
    assert!(expected.iter().all(|it| kinds.iter().any(|kind| kind == it)), "{kinds:?}");

    let desk = Desk::new(&json!([[{ "status": 401, "body": { "error": "no" } }]]));
    let ended = desk.run(&["--json", "Hello"]);
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    schema::check(&last, Some("session/prompt"));
    assert_eq!((&last["error"]["data"]["kind"], ended.status), (&json!("auth"), Some(2)));

    let ended = Desk::bare().run(&["--json", "Hello"]);
    let only: Value = serde_json::from_str(&ended.stdout).unwrap();
    schema::check(&only, Some("session/prompt"));
    assert_eq!((&only["error"]["code"], ended.status), (&json!(-32000), Some(2)));
}

#[test]
#[cfg(unix)]
fn json_ends_with_a_response_if_a_signal_ends_the_program() {
    use rustix::process::{Pid, Signal, kill_process};
    let desk = Desk::new(&endless());
    let mut command = desk.command(&["--json", "Begin"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    desk.server.as_ref().unwrap().wait_for_requests(1, process_waits::LIMIT).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = Ended::of(process_waits::wait_with_output(child));
    assert_eq!(ended.status, Some(143), "{}", ended.stderr);
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    let found = (&last["id"], &last["result"]["stopReason"]);
    assert_eq!(found, (&json!("prompt"), &json!("cancelled")));
}

#[test]
fn yes_allows_once_what_the_sandbox_bounds_and_nothing_else() {
    let outside = turnwright_testing::temporary_folder();
    let target = outside.path().canonicalize().unwrap().join("outside.txt");
    let network = json!({ "command": "echo x > net.txt", "escalate": "network" });
    let desk = Desk::new(&json!([
        write_file(Path::new("inside.txt")),
        write_file(&target),
        write_file(Path::new(".git/hooks/pre-commit")),
        calls("exec", &json!({ "command": "echo x > run.txt" })),
        calls("exec", &network),
        says("Done."),
        // Nobody watches, so a proof is asked for.
        says("Done."),
    ]));
    let ended = desk.run(&["--yes", "--no-input", "Try everything"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(desk.exists("inside.txt"), "{}", ended.stderr);
    assert!(!target.exists() && !desk.exists("net.txt") && !desk.exists(".git/hooks/pre-commit"));
    // Where commands cannot be confined, nothing bounds them.
    assert_eq!(desk.exists("run.txt"), turnwright_sandbox::can_confine(), "{}", ended.stderr);
    assert!(ended.stderr.contains("Refused: --yes does not cover it"), "{}", ended.stderr);
}

#[test]
fn without_a_terminal_or_with_no_input_a_question_is_a_refusal() {
    for (flags, why) in [
        (&["Write"][..], "there is no terminal to ask on"),
        (&["--no-input", "Write"], "--no-input asks nobody"),
    ] {
        let desk = Desk::new(&json!([write_file(Path::new("new.txt")), says("Not written.")]));
        let ended = desk.run(flags);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(0), "Not written.\n"));
        assert!(ended.stderr.contains("? Create new.txt"), "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
        assert!(!desk.exists("new.txt"));
        let told = desk.messages(0);
        assert!(told.contains("Nobody can answer: do not ask"), "{flags:?}: {told}");
    }
}

#[test]
#[cfg(unix)]
fn a_folder_that_is_gone_is_said_to_be_gone() {
    let desk = Desk::bare();
    let line = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" \"$@\" </dev/null";
    for arguments in
        [&["run", "hi"][..], &["policy", "list"], &["hooks", "list"], &["trust"], &["diff"]]
    {
        let mut command = Command::new("sh");
        command.args(["-c", line, env!("CARGO_BIN_EXE_turnwright")]).args(arguments);
        command.current_dir(&desk.project);
        command.env_clear().envs(turnwright_testing::basic_variables());
        command.env("TURNWRIGHT_HOME", desk.home.path());
        command.env("TURNWRIGHT_MODEL", "offline").envs([run_mark()]);
        let ended = Ended::of(process_waits::output(&mut command).unwrap());
        assert_ne!(ended.status, Some(0), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("the folder in which this was started is gone"),
            "{arguments:?}: {}",
            ended.stderr
        );
    }
    let mut command = subcommand(desk.home.path(), &["policy", "--dir", "/no/such", "list"]);
    let ended = Ended::of(process_waits::output(&mut command).unwrap());
    assert!(ended.stderr.contains("/no/such: No such file or directory\n"), "{}", ended.stderr);
}

/// The protocol has no such paths.
#[test]
#[cfg(target_os = "linux")]
fn a_folder_whose_path_is_not_utf_8_is_said_to_be_unusable() {
    use std::os::unix::ffi::OsStrExt;
    let desk = Desk::bare();
    let folder = desk.project.join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    std::fs::create_dir(&folder).unwrap();
    let mut command = desk.command(&["--model", "offline", "hi"]);
    let ended = Ended::of(process_waits::output(command.current_dir(&folder)).unwrap());
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("is not UTF-8"), "{}", ended.stderr);
}

#[test]
#[cfg(unix)]
fn the_limit_of_open_files_is_raised() {
    let desk = Desk::new(&json!([
        calls("exec", &json!({ "command": "echo limit=$(ulimit -S -n)" })),
        says("Seen."),
    ]));
    let run = desk.command(&["--mode", "full", "--no-input", "Look"]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 256 && exec \"$0\" \"$@\""]).arg(run.get_program());
    command.args(run.get_args()).current_dir(&desk.project).env_clear();
    command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = Ended::of(process_waits::output(&mut command).unwrap());
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let messages = desk.messages(1);
    assert!(!messages.contains("limit=256"), "{messages}");
    assert!(messages.matches("limit=").count() > 1, "{messages}");
}

/// As some clients start agents. bash would take a path that ends with the current folder.
#[test]
#[cfg(unix)]
fn without_a_path_no_program_of_the_project_runs_unasked() {
    let search = calls("exec", &json!({ "command": "rg x" }));
    let desk = Desk::new(&json!([search, says("Seen."), search, says("Seen.")]));
    turnwright_testing::write_program(&desk.project.join("rg"), "#!/bin/sh\necho planted\n");
    for request in [1, 3] {
        let mut command = desk.command(&["--no-input", "Look"]);
        command.env_remove("PATH");
        if request == 3 {
            command.env("PATH", "");
        }
        let ended = Ended::of(process_waits::output(&mut command).unwrap());
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        let messages = desk.messages(request);
        assert!(!messages.contains("planted"), "{messages}");
    }
}

/// As pipes that Node.js or Go has made.
#[test]
#[cfg(target_os = "linux")]
fn pipes_that_return_at_once_are_waited_for() {
    use std::io::{Read, Write};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{OFlags, fcntl_setfl};
    use rustix::io::ioctl_fionread;
    let long = "x".repeat(200_000);
    let desk = Desk::new(&json!([says(&long)]));
    let (input, mut prompt) = std::io::pipe().unwrap();
    let (mut answer, output) = std::io::pipe().unwrap();
    fcntl_setfl(&input, OFlags::NONBLOCK).unwrap();
    fcntl_setfl(&output, OFlags::NONBLOCK).unwrap();
    let unread = input.try_clone().unwrap();
    let unwritten = output.try_clone().unwrap();
    prompt.write_all(b"Go").unwrap();
    let mut command = desk.command(&[]);
    let child = command.stdin(input).stdout(output).stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    eventually("the prompt is read", || ioctl_fionread(&unread).unwrap() == 0);
    drop(prompt);
    eventually("the pipe is full", || {
        poll(&mut [PollFd::new(&unwritten, PollFlags::OUT)], Some(&Timespec::default())) == Ok(0)
    });
    drop(unwritten);
    let mut shown = String::new();
    answer.read_to_string(&mut shown).unwrap();
    let ended = Ended::of(process_waits::wait_with_output(child));
    assert_eq!((ended.status, shown.trim_end() == long), (Some(0), true), "{}", ended.stderr);
}

/// The agent of an editor reads again while nothing is there to read.
#[test]
#[cfg(target_os = "linux")]
fn an_editor_may_give_pipes_that_return_at_once() {
    use std::io::{BufRead, BufReader, Write};

    use rustix::fs::{OFlags, fcntl_setfl};
    let home = turnwright_testing::temporary_folder();
    let (input, mut requests) = std::io::pipe().unwrap();
    let (answers, output) = std::io::pipe().unwrap();
    fcntl_setfl(&input, OFlags::NONBLOCK).unwrap();
    fcntl_setfl(&output, OFlags::NONBLOCK).unwrap();
    let mut command = subcommand(home.path(), &[]);
    let child = command.stdin(input).stdout(output).stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    let mut answers = BufReader::new(answers).lines().map(Result::unwrap);
    for id in 0..2 {
        let mut request = json!({ "jsonrpc": "2.0", "id": id, "method": "initialize" });
        request["params"] = json!({ "protocolVersion": 1 });
        writeln!(requests, "{request}").unwrap();
        let answer: Value = serde_json::from_str(&answers.next().unwrap()).unwrap();
        assert_eq!((&answer["id"], answer["error"].is_null()), (&json!(id), true), "{answer}");
    }
    drop(requests);
    let ended = Ended::of(process_waits::wait_with_output(child));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
}

/// It waits for its prompt, before anything listens to signals.
#[test]
#[cfg(target_os = "linux")]
fn the_first_process_of_a_container_is_ended_by_signals() {
    use rustix::process::{Pid, Signal, kill_process};
    let inside = ["--user", "--map-root-user", "--pid", "--fork"];
    let tried = process_waits::status(Command::new("unshare").args(inside).arg("true"));
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: there are no namespaces here");
        return;
    }
    let desk = Desk::new(&json!([]));
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let run = desk.command(&[]);
        let mut command = Command::new("unshare");
        command.args(inside).arg(run.get_program()).args(run.get_args());
        command.current_dir(&desk.project).env_clear();
        command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut outer = command.spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", outer.id());
        let mut ended = None;
        eventually("it ends", || {
            let first = std::fs::read_to_string(&children).unwrap_or_default();
            if let Some(first) = first.trim().parse().ok().and_then(Pid::from_raw) {
                kill_process(first, signal).ok();
            }
            ended = outer.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().code(), Some(status));
    }
}

#[test]
fn a_session_goes_on_in_its_folder() {
    let desk = Desk::new(&json!([
        says("One."),
        says("Two."),
        says("Three."),
        says("Four."),
        says("Five.")
    ]));
    desk.run(&["my first words"]);
    let ended = desk.run(&["--session", "last", "my second words"]);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(0), "Two.\n"), "{}", ended.stderr);
    let messages = desk.messages(1);
    assert!(["my first words", "One.", "my second words"].iter().all(|it| messages.contains(it)));

    let words = ["sessions", "list", "--all", "--json"];
    let listed = process_waits::output(&mut subcommand(desk.home.path(), &words));
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let session: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let id = session["session_id"].as_str().unwrap();
    let elsewhere = turnwright_testing::temporary_folder();
    let from_elsewhere = |name: &str| {
        let mut command = desk.command(&["--session", name, "my third words"]);
        Ended::of(process_waits::output(command.current_dir(elsewhere.path())).unwrap())
    };
    let ended = from_elsewhere(&id[..8]);
    assert_eq!(ended.stdout, "Three.\n", "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("The session works in {}", desk.project.display())));
    let ended = from_elsewhere("last");
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("no session was held in this folder"), "{}", ended.stderr);
    assert_eq!(from_elsewhere("no-such-id").status, Some(2));

    // Its folder is renamed.
    std::fs::rename(&desk.project, desk.project.with_extension("renamed")).unwrap();
    let ended = from_elsewhere("last");
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    let last = format!("the last one is {id} in {}", desk.project.display());
    assert!(ended.stderr.contains(&last), "{}", ended.stderr);
    let mut command = desk.command(&["--session", id, "my fourth words"]);
    command.current_dir(desk.project.with_extension("renamed"));
    let ended = Ended::of(process_waits::output(&mut command).unwrap());
    assert_eq!(ended.stdout, "Four.\n", "{}", ended.stderr);
    let place = desk.project.display();
    let gone = format!("{place} is gone or elsewhere. The session goes on here.");
    assert!(ended.stderr.contains(&gone), "{}", ended.stderr);
    assert!(desk.messages(3).contains("my first words"));
    std::fs::remove_dir_all(desk.project.with_extension("renamed")).unwrap();
    let ended = from_elsewhere(&id[..8]);
    assert!(ended.stdout == "Five.\n" && ended.stderr.contains("is gone or"), "{}", ended.stderr);
}

/// Nobody expects `last` to change files elsewhere.
#[cfg(unix)]
#[test]
fn a_session_goes_on_here_when_the_link_by_which_it_was_opened_leads_elsewhere() {
    let desk = Desk::new(&json!([says("One."), says("Two.")]));
    desk.run(&["my first words"]);
    let elsewhere = turnwright_testing::temporary_folder();
    let link = desk.home.path().join("link");
    std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
    let store = rusqlite::Connection::open(desk.home.path().join("state/sessions.db")).unwrap();
    store.execute("UPDATE sessions SET cwd = ?", [link.to_str()]).unwrap();
    let ended = desk.run(&["--session", "last", "my second words"]);
    assert_eq!(ended.stdout, "Two.\n", "{}", ended.stderr);
    let gone = format!("{} is gone or elsewhere. The session goes on here.", link.display());
    assert!(ended.stderr.contains(&gone), "{}", ended.stderr);
}

#[test]
fn the_log_says_which_session_was_deleted_and_why() {
    let desk = Desk::new(&json!([says("One."), says("Two.")]));
    desk.run(&["my first words"]);
    let store = rusqlite::Connection::open(desk.home.path().join("state/sessions.db")).unwrap();
    store
        .execute_batch(
            "UPDATE meta SET value = 100 * 86400000 WHERE name = 'swept_at'; \
             UPDATE sessions SET updated_at = 1",
        )
        .unwrap();
    desk.run(&["my second words"]);
    let count = "SELECT count(*) FROM sessions";
    assert_eq!(store.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    let log = std::fs::read_to_string(desk.home.path().join("state/turnwright.log")).unwrap();
    assert!(log.contains("is deleted because of `sessions.keep_days`"), "{log}");
}

#[test]
fn a_run_of_nothing_but_a_command_is_not_the_last_session() {
    // Nobody watches, so a proof is asked for.
    let replies = json!([write_file(Path::new("made")), says("Made."), says("Made.")]);
    let desk = Desk::new(&replies);
    assert_eq!(desk.run(&["--mode", "auto", "make it"]).status, Some(0));
    assert!(desk.run(&["/undo"]).stdout.starts_with("Nothing to undo"));
    let ended = desk.run(&["--session", "last", "/undo"]);
    assert!(ended.stdout.starts_with("Undone") && !desk.exists("made"), "{}", ended.stdout);
    desk.run(&["/status"]);
    let mut redo = subcommand(desk.home.path(), &["redo"]);
    let ended = process_waits::output(redo.current_dir(&desk.project)).unwrap();
    assert!(ended.status.success() && desk.exists("made"), "{ended:?}");
}

#[test]
fn the_exit_status_says_how_the_turn_has_ended() {
    let finish = |reason: &str| json!([[{ "text": "x" }, { "finish": reason }]]);
    let status =
        |code: u16| json!([[{ "status": code, "body": { "error": { "message": "no" } } }]]);
    let loops = json!([calls("list_dir", &json!({ "path": "." })), says("So far.")]);
    let limit = ["--budget", "max_turn_requests=1", "Go"];
    let table: [(&Value, &[&str], i32); 10] = [
        (&finish("stop"), &["Go"], 0),
        (&finish("content_filter"), &["Go"], 4),
        (&finish("length"), &["Go"], 5),
        (&loops, &limit, 6),
        (&status(400), &["Go"], 3),
        (&status(401), &["Go"], 2),
        (&finish("stop"), &["--mode", "nonsense", "Go"], 2),
        (&finish("stop"), &["--max-time", "soon", "Go"], 2),
        (&finish("stop"), &[" "], 2),
        (&finish("stop"), &["--goal", ""], 2),
    ];
    for (replies, arguments, expected) in table {
        let ended = Desk::new(replies).run(arguments);
        assert_eq!(ended.status, Some(expected), "{replies} {arguments:?}: {}", ended.stderr);
    }
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn a_goal_that_is_not_met_has_a_status_of_its_own() {
    let done = json!([write_file(Path::new("a.txt")), says("Done.")]);
    let vain = json!([says("Done."), says("Done."), says("Done.")]);
    let goal = ["--mode", "auto-edit", "--goal", "Write it.", "--goal-check", "grep new a.txt"];
    for (replies, expected) in [(&done, 0), (&vain, 6)] {
        let ended = Desk::new(replies).run(&goal);
        assert_eq!(ended.status, Some(expected), "{replies}: {}", ended.stderr);
    }
    let refused = Desk::new(&vain).run(&["--mode", "plan", "--goal", "Write it."]);
    assert_eq!(refused.status, Some(6), "{}", refused.stderr);
}

#[test]
fn a_limit_of_cost_or_time_ends_the_turn() {
    let usage = json!({ "usage": { "prompt_tokens": 10_000, "completion_tokens": 1 } });
    let list = calls("list_dir", &json!({ "path": "." }))[0].clone();
    let replies = json!([[list.clone(), usage], says("That was expensive.")]);
    let desk = Desk::new(&replies);
    std::fs::create_dir_all(desk.home.path().join("config")).unwrap();
    let provider = format!("[providers.p]\nbase_url = \"{}\"\nmodels = [\"m\"]\n", desk.url());
    let price = "[providers.p.model.m]\nprice = { input = 200.0, output = 800.0 }\n";
    std::fs::write(desk.home.path().join("config/config.toml"), provider + price).unwrap();
    let ended = desk.run(&["--model", "p/m", "--max-cost", "0.5", "Go"]);
    assert_eq!(ended.status, Some(6), "{}", ended.stderr);
    assert!(ended.stdout.contains("That was expensive."), "{}", ended.stdout);

    let desk = Desk::new(&json!([[{ "delay_ms": 3500 }, list], says("That took long.")]));
    let ended = desk.run(&["--max-time", "3s", "Go"]);
    assert_eq!(ended.status, Some(6), "{}", ended.stderr);
    assert!(ended.stdout.contains("That took long."), "{}", ended.stdout);
}

/// A full disk is no reader that has gone.
#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    for arguments in [&["Go"][..], &["--json", "Go"]] {
        let desk = Desk::new(&json!([says("One."), says("Two.")]));
        let mut command = desk.command(arguments);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        command.stdout(full).stderr(Stdio::piped());
        let ended = Ended::of(process_waits::wait_with_output(command.spawn().unwrap()));
        assert_eq!(ended.status, Some(1), "{}", ended.stderr);
        let why = "error: the answer cannot be written: No space left on device\n";
        assert_eq!(ended.stderr.matches(why).count(), 1, "{}", ended.stderr);
    }
}

#[test]
fn a_turn_that_does_not_heed_its_time_is_cancelled() {
    // A model that never answers has no last word.
    let desk = Desk::new(&endless());
    let ended = desk.run(&["--max-time", "4s", "Go"]);
    assert_eq!(ended.status, Some(6), "{}", ended.stderr);
    assert_eq!(ended.stdout, "I begin. \n");
    for part in ["The limit of time is reached.", "Stopped before the work was done."] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    desk.server.as_ref().unwrap().wait_for_hang_ups(1, process_waits::LIMIT).unwrap();
}

#[test]
fn a_goal_that_cannot_begin_is_no_limit_that_is_reached() {
    let desk = Desk::new(&json!([]));
    let ended = desk.run(&["/goal X --budget"]);
    assert_eq!(ended.status, Some(6), "{}", ended.stderr);
    assert!(ended.stdout.starts_with("Nothing was done: `--budget` takes"), "{}", ended.stdout);
    assert!(ended.stderr.contains("Stopped before the work was done."), "{}", ended.stderr);
    assert!(!ended.stderr.contains("limit is reached"), "{}", ended.stderr);
}

#[test]
fn the_offline_model_is_named_and_never_used_in_silence() {
    let desk = Desk::bare();
    let ended = desk.run(&["list ."]);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("No model is configured"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--model offline"), "{}", ended.stderr);
    assert_eq!(desk.run(&["--model", "offline", "list ."]).status, Some(0));
}

#[test]
fn without_a_prompt_only_a_terminal_starts_a_conversation() {
    let desk = Desk::new(&json!([]));
    for arguments in [&[][..], &["--no-input"], &["--file", "-"]] {
        let ended = desk.run(arguments);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
    }
}

#[test]
fn a_turn_that_is_stopped_because_it_repeats_itself_ends_with_a_status() {
    let read = calls("read_file", &json!({ "path": "a.txt" }));
    for arguments in [&["--yes", "go"][..], &["--json", "--no-input", "go"]] {
        let desk = Desk::new(&json!([read, read, read, read, read, says("Done.")]));
        desk.write("a.txt", "x\n");
        let ended = desk.run(arguments);
        assert_eq!(ended.status, Some(6), "{}", ended.stderr);
        assert!(ended.stdout.contains("the same call 5 times"), "{}", ended.stdout);
    }
}

#[test]
fn the_runner_of_github_obeys_no_line_that_is_shown() {
    let desk = Desk::new(&json!([says("::error::x"), says("::error::x"), says("::error::x")]));
    for arguments in [&["--no-input", "go"][..], &["--no-input", "--json", "go"]] {
        let mut command = desk.command(arguments);
        let ended =
            Ended::of(process_waits::output(command.env("GITHUB_ACTIONS", "true")).unwrap());
        assert_eq!(ended.status, Some(0));
        assert!(ended.stdout.contains("::error::x"), "{}", ended.stdout);
        // Also with JSON, whose questions are shown on stderr as they are.
        let first = ended.stderr.lines().next().unwrap_or_default();
        let word = first.strip_prefix("::stop-commands::").unwrap_or_default();
        assert_eq!(word.len(), 36, "{}", ended.stderr);
        assert!(ended.stderr.ends_with(&format!("::{word}::\n")), "{}", ended.stderr);
    }
    let elsewhere = desk.run(&["--no-input", "go"]);
    assert!(!elsewhere.stderr.contains("stop-commands"), "{}", elsewhere.stderr);
}
