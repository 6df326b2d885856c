//! Tests of the programs in `examples/`: the echo client, the scripted model, and its scenarios.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::command_lines::{then, touch};
use turnwright_testing::example_program;
use turnwright_testing::scripted_model::{Scenario, Server};

use crate::agent::{LIMIT, TestAgent, calls, eventually, says};

/// A running example, and its output so far.
struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: CollectedOutput,
    stderr: CollectedOutput,
    _home: TempDir,
}

/// The output of a program, which a thread collects.
struct CollectedOutput {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

/// The exit code and the output of a program that has ended.
#[derive(Debug)]
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl CollectedOutput {
    fn by(mut source: impl Read + Send + 'static) -> CollectedOutput {
        let text = Arc::<Mutex<String>>::default();
        let sink = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut bytes) {
                sink.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        CollectedOutput { text, reader: Some(reader) }
    }

    fn contains(&self, words: &str) -> bool {
        self.text.lock().unwrap().contains(words)
    }

    fn all(&mut self) -> String {
        let reader = self.reader.take().unwrap();
        eventually("the output ends", || reader.is_finished());
        self.text.lock().unwrap().clone()
    }
}

impl Program {
    fn start(example: &str, arguments: &[&str], model: Option<&Server>) -> Program {
        let home = turnwright_testing::temporary_folder();
        let mut command = Command::new(example_program(example));
        command
            .args(arguments)
            .env_clear()
            .envs(turnwright_testing::basic_variables())
            .env("TURNWRIGHT_HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(model) = model {
            command.env("OPENAI_BASE_URL", model.base_url());
            command.env("OPENAI_API_KEY", "sk-test-0123456789");
            command.env("TURNWRIGHT_MODEL", "scripted");
        }
        let mut child = command.spawn().unwrap();
        Program {
            stdin: child.stdin.take(),
            stdout: CollectedOutput::by(child.stdout.take().unwrap()),
            stderr: CollectedOutput::by(child.stderr.take().unwrap()),
            child,
            _home: home,
        }
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Writes `text` to the program's stdin and closes it.
    fn input(mut self, text: &str) -> Program {
        self.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        self
    }

    fn end(mut self) -> Ended {
        drop(self.stdin.take());
        let end = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < end,
                "the program does not end: {:?}",
                self.stderr.text.lock()
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        let (stdout, stderr) = (self.stdout.all(), self.stderr.all());
        // On a machine without a sandbox the agent's output begins with a notice.
        let stdout = match stdout.strip_prefix("The sandbox is not available here") {
            Some(rest) => rest.split_once("\n\n").map_or("", |it| it.1).to_owned(),
            None => stdout,
        };
        Ended { status: status.code(), stdout, stderr }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // This fails only if the program has already ended.
        self.child.kill().ok();
    }
}

fn model(replies: &Value) -> Server {
    Server::start(Scenario::from_value(json!({ "replies": replies })).unwrap(), 0).unwrap()
}

fn workspace(files: &[(&str, &str)]) -> TempDir {
    let folder = turnwright_testing::temporary_folder();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

/// Starts the echo client with the agent that Cargo has built, in a folder.
fn client(folder: &TempDir, arguments: &[&str], model: Option<&Server>) -> Program {
    let mut all =
        vec!["--agent", env!("CARGO_BIN_EXE_turnwright"), "--cwd", folder.path().to_str().unwrap()];
    all.extend(arguments);
    Program::start("echo_client", &all, model)
}

/// Starts a model server that plays a scenario of the examples.
fn scenario(name: &str) -> Server {
    let path = scenarios().join(name);
    let text = std::fs::read_to_string(path).unwrap();
    Server::start(Scenario::parse(&text).unwrap(), 0).unwrap()
}

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/scenarios")
}

#[test]
fn echo_client_reads_a_file_with_the_offline_model_when_nothing_is_configured() {
    let folder = workspace(&[("notes.txt", "the words of the file\n")]);
    let ended = client(&folder, &["read", "notes.txt"], None).end();
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("the words of the file"), "{ended:?}");
    assert!(ended.stdout.contains("● Read notes.txt  [read]"), "{ended:?}");
    assert!(ended.stdout.contains("completed"), "{ended:?}");
    assert!(ended.stderr.contains("No model is configured"), "{ended:?}");
    assert!(ended.stderr.ends_with("[end_turn]\n"), "{ended:?}");
}

#[test]
fn echo_client_authenticates_with_the_given_method() {
    let folder = workspace(&[("notes.txt", "the words of the file\n")]);
    let ended = client(&folder, &["--auth", "offline", "read notes.txt"], None).end();
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("the words of the file"), "{ended:?}");
    let ended = client(&folder, &["--auth", "nonsense", "read notes.txt"], None).end();
    assert_eq!(ended.status, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("nonsense"), "{ended:?}");
}

#[test]
fn echo_client_allows_commands_with_yes_and_rejects_them_with_no() {
    let line = then(&touch("ran"), "echo it did");
    let touch = calls("exec", &json!({ "command": line }));
    for (flag, runs) in [("--yes", true), ("--no", false)] {
        let model = model(&json!([touch, says("Over.")]));
        let folder = workspace(&[]);
        let ended = client(&folder, &[flag, "go"], Some(&model)).end();
        assert_eq!(ended.status, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("Over."), "{ended:?}");
        assert!(ended.stderr.contains(&format!("? {line}")), "{ended:?}");
        assert_eq!(folder.path().join("ran").exists(), runs, "{flag}");
        assert_eq!(ended.stdout.contains("it did\n    ```"), runs, "{ended:?}");
        assert_eq!(ended.stdout.contains("failed"), !runs, "{ended:?}");
    }
}

#[test]
fn echo_client_takes_each_line_of_its_input_as_a_prompt() {
    let model = model(&json!([says("First."), says("Second.")]));
    let folder = workspace(&[]);
    let ended = client(&folder, &[], Some(&model)).input("one\n\n  two  \n").end();
    assert_eq!(ended.status, Some(0), "{ended:?}");
    // Without mount namespaces the user is told once of the gaps of the sandbox.
    let others = ["context: ", "The sandbox has gaps here. "];
    let lines = ended.stdout.lines().filter(|line| !line.is_empty());
    let answers = lines.filter(|line| !others.iter().any(|start| line.starts_with(start)));
    assert_eq!(answers.collect::<Vec<_>>(), ["First.", "Second."]);
    let messages = model.requests()[1].body["messages"].clone();
    assert_eq!(messages.as_array().unwrap().len(), 4, "{messages}");
    assert!(messages[3]["content"].as_str().unwrap().starts_with("two"), "{messages}");
}

#[test]
fn echo_client_maps_the_stop_reason_to_its_exit_status() {
    let text = |reason: &str| json!([{ "text": "Well." }, { "finish": reason }]);
    for (reply, status) in [
        (text("stop"), 0),
        (json!([{ "status": 401, "body": { "error": "No." } }]), 2),
        (text("content_filter"), 4),
        (text("length"), 5),
    ] {
        let model = model(&json!([reply]));
        let ended = client(&workspace(&[]), &["hello"], Some(&model)).end();
        assert_eq!(ended.status, Some(status), "{ended:?}");
    }
}

#[test]
fn echo_client_shows_an_error_and_its_next_step() {
    let model = model(&json!([[{ "status": 401, "body": { "error": "Go away." } }]]));
    let ended = client(&workspace(&[]), &["hello"], Some(&model)).end();
    assert_eq!(ended.status, Some(2), "{ended:?}");
    assert!(ended.stderr.starts_with("error: 127.0.0.1:"), "{ended:?}");
    assert!(ended.stderr.contains("Go away. Check the key"), "{ended:?}");
    assert!(!ended.stderr.contains("sk-test"), "{ended:?}");
}

#[cfg(unix)]
#[test]
fn echo_client_cancels_the_turn_at_the_first_interrupt() {
    let model = model(&json!([[{ "text": "I begin." }, { "hang": true }]]));
    let folder = workspace(&[]);
    let client = client(&folder, &["hello"], Some(&model));
    eventually("the first words are shown", || client.stdout.contains("I begin."));
    client.signal(rustix::process::Signal::INT);
    let ended = client.end();
    assert_eq!(ended.status, Some(3), "{ended:?}");
    assert_eq!(ended.stdout, "I begin.\n");
    assert!(ended.stderr.contains("[cancelled]"), "{ended:?}");
    model.wait_for_hang_ups(1, LIMIT).unwrap();
}

#[cfg(unix)]
#[test]
fn echo_client_ends_at_an_interrupt_between_two_turns() {
    let model = model(&json!([says("Done.")]));
    let folder = workspace(&[]);
    let mut client = client(&folder, &[], Some(&model));
    client.stdin.as_mut().unwrap().write_all(b"hello\n").unwrap();
    eventually("the turn ends", || client.stderr.contains("[end_turn]"));
    client.signal(rustix::process::Signal::INT);
    let stdin = client.stdin.take();
    let ended = client.end();
    drop(stdin);
    assert_eq!(ended.status, Some(130), "{ended:?}");
}

#[test]
fn echo_client_shows_every_message_when_asked_to() {
    let model = model(&json!([says("Hello.")]));
    let ended = client(&workspace(&[]), &["--raw", "hello"], Some(&model)).end();
    assert_eq!(ended.status, Some(0), "{ended:?}");
    for method in ["initialize", "session/new", "session/prompt"] {
        let sent = ended.stderr.lines().any(|it| it.starts_with("→ ") && it.contains(method));
        assert!(sent, "{method}: {ended:?}");
    }
    assert!(ended.stderr.contains("\n← {"), "{ended:?}");
}

#[test]
fn echo_client_reports_that_it_cannot_start() {
    let folder = workspace(&[]);
    let folder = folder.path().to_str().unwrap();
    for arguments in [
        ["--agent", "/no/such/agent", "--cwd", folder, "hello"],
        ["--agent", env!("CARGO_BIN_EXE_turnwright"), "--cwd", "/no/such/folder", "hello"],
        ["--agent", env!("CARGO_BIN_EXE_turnwright"), "--yes", "--no", "hello"],
    ] {
        let ended = Program::start("echo_client", &arguments, None).end();
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.stderr.starts_with("error: "), "{ended:?}");
    }
}

#[test]
fn scripted_model_plays_a_file_and_logs_requests() {
    let file = scenarios().join("hello.json");
    let server = Program::start("scripted_model", &[file.to_str().unwrap()], None);
    eventually("the address is printed", || server.stdout.contains("/v1\n"));
    let stdout = server.stdout.text.lock().unwrap().clone();
    let url = stdout.trim().strip_prefix("listening on ").unwrap();
    let mut agent = TestAgent::unconfigured()
        .variable("OPENAI_BASE_URL", url)
        .variable("TURNWRIGHT_MODEL", "scripted")
        .start();
    assert_eq!(agent.turn("hello"), "end_turn");
    assert!(agent.text().starts_with("Hello! I am a *scripted model*"), "{}", agent.text());
    eventually("the request is logged", || {
        server.stderr.contains("request 1: /v1/chat/completions")
    });
}

#[test]
fn scripted_model_refuses_an_invalid_file() {
    let folder = workspace(&[("bad.json", r#"{"replies": [[{"tekst": "a"}]]}"#)]);
    let bad = folder.path().join("bad.json");
    let arguments = [vec![bad.to_str().unwrap()], vec!["/no/such/file"], vec![]];
    for arguments in arguments {
        let ended = Program::start("scripted_model", &arguments, None).end();
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.stderr.starts_with("scripted_model: "), "{ended:?}");
    }
}

#[test]
fn every_scenario_has_a_test() {
    let files = std::fs::read_dir(scenarios()).unwrap();
    let mut names: Vec<_> =
        files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["hello.json", "tools.json", "trouble.json"]);
}

#[test]
fn the_scenario_hello_greets_each_time() {
    let model = scenario("hello.json");
    let ended = client(&workspace(&[]), &[], Some(&model)).input("hi\nhi again\n").end();
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert_eq!(ended.stdout.matches("Hello! I am a *scripted model*").count(), 2, "{ended:?}");
    assert!(ended.stdout.contains("A greeting."), "{ended:?}");
}

#[test]
#[cfg_attr(windows, ignore = "cmd has no ls, which the scenario runs")]
fn the_scenario_tools_reads_edits_and_runs_a_command() {
    let model = scenario("tools.json");
    let folder = workspace(&[("README.md", "# A project\n")]);
    let ended = client(&folder, &["--yes", "show me"], Some(&model)).end();
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert_eq!(std::fs::read_to_string(folder.path().join("notes.txt")).unwrap(), "hello\n");
    assert!(ended.stdout.contains("Done: `notes.txt` stands beside the README."), "{ended:?}");
    for card in ["Read README.md  [read]", "[edit]", "ls -la  [execute]"] {
        assert!(ended.stdout.contains(card), "{card}: {ended:?}");
    }
    assert!(!ended.stdout.contains("failed"), "{ended:?}");
    assert_eq!(model.requests().len(), 4);
}

#[test]
fn the_scenario_trouble_ends_with_an_answer() {
    let model = scenario("trouble.json");
    let ended = client(&workspace(&[]), &[], Some(&model)).input("one\ntwo\nthree\n").end();
    // The exit status is that of the last prompt.
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("this one is answered."), "{ended:?}");
    assert!(ended.stdout.contains("in the middle of a sen\n"), "{ended:?}");
    assert!(ended.stdout.contains("broke off. Continuing from there."), "{ended:?}");
    assert!(ended.stdout.contains("tence and goes on."), "{ended:?}");
    assert!(ended.stdout.contains("all is well again."), "{ended:?}");
    assert_eq!(model.requests().len(), 6);
}
