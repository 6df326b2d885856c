//! How a client shows the output of running commands: in terminals that it opens itself (R-TERM-1 to
//! R-TERM-7, R-TOOL-11), in terminals that it draws from `_meta`, and as text.

use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use turnwright_testing::{cards, process_waits};

use crate::agent::{
    TestAgent, TestAgentBuilder, assert_gone, calls, eventually, is_alive, run_mark, says,
};

/// How the editor reacts to requests for terminals.
#[derive(Clone)]
enum Manner {
    /// Runs the command.
    Runs,
    /// Answers no request about terminals.
    Silent,
    /// Refuses to open a terminal, with this error code and message.
    Refuses(i64, &'static str),
    /// Runs nothing, and answers `wait_for_exit` and `output` with these values.
    Says(Value, Value),
    /// Runs the command, in another folder than it is told.
    IgnoresFolder,
    /// Runs nothing, and answers `wait_for_exit` with an error.
    FailsToWait(String),
    /// Runs the command after another process has connected to the agent and sent these bytes.
    Outrun(Vec<u8>),
    /// Runs the command and sends it this signal once it has printed something, as when the user
    /// closes the terminal.
    Closes(&'static str),
}

struct Terminal {
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    exit: Option<Value>,
}

impl Terminal {
    fn open(params: &Value) -> Terminal {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut command = Command::new(text(&params["command"]));
        let variables = params["env"].as_array().unwrap().iter();
        command
            .args(params["args"].as_array().unwrap().iter().map(text))
            .current_dir(text(&params["cwd"]))
            .env("EDITOR_SECRET", "of-the-editor")
            .env("EDITOR_VERSION", "seven")
            .envs([run_mark()])
            .envs(variables.map(|it| (text(&it["name"]), text(&it["value"]))))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let (mut pipe, shared) = (child.stdout.take().unwrap(), Arc::clone(&output));
        std::thread::spawn(move || {
            let mut piece = [0; 8 * 1024];
            while let Ok(count @ 1..) = pipe.read(&mut piece) {
                shared.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        Terminal { child, output, exit: None }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    fn signal(&self, name: &str) {
        let status = process_waits::status(Command::new("kill").args([
            "-s",
            name,
            &self.child.id().to_string(),
        ]));
        assert!(status.unwrap().success());
    }

    fn wait(&mut self) -> Value {
        use std::os::unix::process::ExitStatusExt;
        let status = process_waits::wait(&mut self.child);
        let exit = json!({ "exitCode": status.code(), "signal": status.signal().map(|it| it.to_string()) });
        self.exit.insert(exit).clone()
    }
}

/// The agent, and an editor with terminals.
struct Editor {
    agent: TestAgent,
    manner: Manner,
    terminals: HashMap<String, Terminal>,
}

fn builder() -> TestAgentBuilder {
    TestAgent::builder().capabilities(json!({ "terminal": true })).permission("allow_once")
}

impl Editor {
    fn start(manner: Manner, replies: Value) -> Editor {
        Editor { agent: builder().model(replies).start(), manner, terminals: HashMap::new() }
    }

    /// Starts with a model that runs these commands one after the other.
    fn running(manner: Manner, commands: &[&str]) -> Editor {
        let call = |it: &&str| calls("exec", &json!({ "command": it }));
        let mut replies: Vec<_> = commands.iter().map(call).collect();
        replies.push(says("Done."));
        Editor::start(manner, json!(replies))
    }

    /// Serves the agent's requests until the prompt is answered, and returns the stop reason.
    fn turn(&mut self) -> String {
        let id = self.agent.prompt("go");
        self.until(|it| it.get("method").is_none() && it["id"] == id);
        self.agent.stop_reason(&id)
    }

    /// Serves the agent's requests up to the first message that `is_last` accepts, and returns that
    /// message.
    fn until(&mut self, is_last: impl Fn(&Value) -> bool) -> Value {
        loop {
            let is_ours =
                |it: &Value| it["method"].as_str().is_some_and(|it| it.starts_with("terminal/"));
            let message = self.agent.wait_for("a step", |it| is_ours(it) || is_last(it));
            if is_ours(&message) {
                self.serve(&message);
            }
            if is_last(&message) {
                return message;
            }
        }
    }

    fn serve(&mut self, request: &Value) {
        let params = &request["params"];
        let id = params["terminalId"].as_str().unwrap_or_default().to_owned();
        if let Manner::Silent = self.manner {
            return;
        }
        if let Manner::Refuses(code, why) = self.manner {
            return self.agent.refuse(request, code, why);
        }
        if let (Manner::FailsToWait(why), "terminal/wait_for_exit") =
            (self.manner.clone(), request["method"].as_str().unwrap())
        {
            return self.agent.refuse(request, -32603, &why);
        }
        let canned = match &self.manner {
            Manner::Says(exit, output) => Some((exit.clone(), output.clone())),
            _ => None,
        };
        let answer = match (request["method"].as_str().unwrap(), canned) {
            ("terminal/create", canned) => {
                let id = format!("t{}", self.terminals.len() + 1);
                if let Manner::Outrun(bytes) = &self.manner {
                    outrun_launcher(params, bytes);
                }
                if let Manner::IgnoresFolder = self.manner {
                    let elsewhere = json!({ "command": params["command"], "args": params["args"],
                        "env": params["env"], "cwd": "/" });
                    self.terminals.insert(id.clone(), Terminal::open(&elsewhere));
                } else if canned.is_none() && !matches!(self.manner, Manner::FailsToWait(_)) {
                    self.terminals.insert(id.clone(), Terminal::open(params));
                }
                if let Manner::Closes(signal) = self.manner {
                    let terminal = &self.terminals[&id];
                    self.agent.respond(request, &json!({ "terminalId": id }));
                    eventually("the command prints something", || !terminal.text().is_empty());
                    return terminal.signal(signal);
                }
                json!({ "terminalId": id })
            }
            ("terminal/wait_for_exit", Some((exit, _))) => exit,
            ("terminal/output", Some((_, output))) => output,
            ("terminal/wait_for_exit", None) => match self.exit_of(&id, &request["id"]) {
                Some(exit) => exit,
                None => return,
            },
            ("terminal/output", None) => {
                let terminal = &self.terminals[&id];
                json!({ "output": terminal.text(), "truncated": false, "exitStatus": terminal.exit })
            }
            (_, Some(_)) => Value::Null,
            (_, None) if self.terminals.is_empty() => Value::Null,
            (_, None) => {
                let terminal = self.terminals.get_mut(&id).unwrap();
                drop(terminal.child.kill());
                terminal.wait();
                json!({})
            }
        };
        self.agent.respond(request, &answer);
    }

    /// Waits for the end of a terminal's command; `None` once the agent has withdrawn its request. It does
    /// when the launcher comes late, and the command may run on then.
    fn exit_of(&mut self, terminal: &str, request: &Value) -> Option<Value> {
        let is_withdrawn = |it: &Value| {
            it["method"] == "$/cancel_request" && it["params"]["requestId"] == *request
        };
        let terminal = self.terminals.get_mut(terminal).unwrap();
        let mut has_ended = false;
        let agent = &mut self.agent;
        eventually("the end of a command, or of the question about it", || {
            has_ended = terminal.child.try_wait().unwrap().is_some();
            agent.settle(Duration::from_millis(1));
            has_ended || agent.log.iter().any(is_withdrawn)
        });
        has_ended.then(|| terminal.wait())
    }

    /// The result of the last call, as the model gets it.
    fn result(&self) -> String {
        let last = self.agent.model().requests().len() - 1;
        cards::results(&self.agent, last).pop().unwrap()
    }

    /// Ends the agent and checks the terminals.
    fn close(mut self) {
        let (status, stderr) = self.agent.close();
        assert!(status.success(), "{status}");
        assert_eq!(stderr, "");
        self.check();
        for terminal in self.terminals.values_mut() {
            terminal.wait();
        }
    }

    /// R-TERM-2, R-TERM-3, R-TOOL-11: each terminal is shown in a card and released exactly once,
    /// after the last update that shows it, and is not used after that.
    fn check(&self) {
        let log = &self.agent.log;
        for id in self.terminals.keys() {
            let names_it = |it: &Value| it["params"]["terminalId"] == id.as_str();
            let requests: Vec<_> = (0..log.len()).filter(|it| names_it(&log[*it])).collect();
            let releases: Vec<_> =
                requests.iter().filter(|it| log[**it]["method"] == "terminal/release").collect();
            assert_eq!(releases.len(), 1, "{id} was not released exactly once");
            assert_eq!(requests.last(), Some(releases[0]), "{id} is used after its release");
            let shows = |message: &Value| {
                let content = message["params"]["update"]["content"].as_array();
                content.is_some_and(|all| all.iter().any(|it| it["terminalId"] == id.as_str()))
            };
            let cards: Vec<_> = (0..log.len()).filter(|it| shows(&log[*it])).collect();
            assert!(!cards.is_empty(), "{id} was never in a card");
            assert!(cards.last() < Some(releases[0]), "{id} is shown after its release");
        }
    }
}

/// The value of a variable that a terminal is to have.
fn variable(params: &Value, name: &str) -> String {
    let mut variables = params["env"].as_array().unwrap().iter();
    let found = variables.find(|it| it["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    found["value"].as_str().unwrap().to_owned()
}

/// Connects to the agent's socket, as any process of the user can, and stays connected.
fn outrun_launcher(params: &Value, bytes: &[u8]) {
    let mut stream = UnixStream::connect(variable(params, "TURNWRIGHT_LAUNCHER_SOCKET")).unwrap();
    stream.write_all(bytes).unwrap();
    std::thread::spawn(move || while let Ok(1..) = stream.read(&mut [0; 64]) {});
}

fn methods(agent: &TestAgent) -> Vec<String> {
    cards::requests(agent).into_iter().filter(|it| it.starts_with("terminal/")).collect()
}

#[test]
fn r_term_1_a_client_without_terminals_gets_no_terminal_requests() {
    for capabilities in [json!({}), json!({ "terminal": false }), json!({ "terminal": null })] {
        let builder = TestAgent::builder().capabilities(capabilities);
        let (agent, result) = cards::run(builder, "exec", &json!({ "command": "echo here" }));
        assert!(result.ends_with("\nhere\n"), "{result}");
        assert!(methods(&agent).is_empty());
    }
}

#[test]
fn r_term_2_and_4_and_6_a_command_runs_in_the_editors_terminal_through_the_launcher() {
    let mut editor = Editor::running(Manner::Runs, &["echo out; echo err >&2; pwd -P; exit 3"]);
    assert_eq!(editor.turn(), "end_turn");
    let folder = std::fs::canonicalize(editor.agent.workspace()).unwrap().display().to_string();
    let result = editor.result();
    assert!(result.starts_with("[exit 3 · "), "{result}");
    assert!(result.contains(&format!("out\nerr\n{folder}\n")), "{result}");

    let mut requests = methods(&editor.agent);
    // On a busy machine the launcher comes late, and the editor is asked about the terminal as well.
    requests.retain(|it| it != "terminal/wait_for_exit");
    assert_eq!(requests, ["terminal/create", "terminal/release"]);
    let create = editor.agent.log.iter().find(|it| it["method"] == "terminal/create").unwrap();
    let params = &create["params"];
    assert!(params["command"].as_str().unwrap().starts_with('/'), "{params}");
    assert_eq!(params["args"], json!(["echo out； echo err ＞＆2； pwd -P； exit 3"]));
    assert_eq!(params["cwd"], folder);
    assert_eq!(params["outputByteLimit"], 1024 * 1024);
    assert!(
        params["env"].as_array().unwrap().contains(&json!({ "name": "TERM", "value": "dumb" }))
    );

    // The card refers to the terminal, and its raw output has the text for clients that do not
    // show terminals in cards.
    let card = cards::card(&editor.agent, 0);
    assert_eq!(card["status"], "failed");
    assert_eq!(card["content"][0], json!({ "type": "terminal", "terminalId": "t1" }));
    assert!(card["rawOutput"]["output"].as_str().unwrap().starts_with("out\nerr\n"), "{card}");
    let expected = format!("out\nerr\n{folder}\n");
    eventually("the terminal shows the output", || editor.terminals["t1"].text() == expected);
    cards::check(&editor.agent);
    editor.close();
}

#[test]
fn r_tool_11_the_card_shows_the_terminal_while_it_runs_and_it_is_released_after_the_last_update() {
    let mut editor = Editor::running(Manner::Runs, &["echo begun; sleep 0.2; echo over"]);
    editor.turn();
    let log = &editor.agent.log;
    let position = |what: &dyn Fn(&Value) -> bool| log.iter().position(what).unwrap();
    let shown = position(&|it| it["params"]["update"]["content"][0]["terminalId"] == "t1");
    let done = position(&|it| it["params"]["update"]["status"] == "completed");
    let released = position(&|it| it["method"] == "terminal/release");
    assert_eq!(log[shown]["params"]["update"]["status"], "in_progress");
    assert!(shown < done && done < released, "{shown} {done} {released}");
    editor.close();
}

#[test]
fn a_command_in_the_editors_terminal_sees_no_secrets_and_has_no_input() {
    let command = "env; cat; (: < /dev/tty) 2>/dev/null && echo a terminal; echo end";
    let mut editor = Editor::running(Manner::Runs, &[command]);
    editor.turn();
    let result = editor.result();
    assert!(result.contains("EDITOR_VERSION=seven") && result.contains("TERM=dumb"), "{result}");
    assert!(result.ends_with("\nend\n") && !result.contains("a terminal"), "{result}");
    assert!(!result.contains("of-the-editor") && !result.contains("sk-test"), "{result}");
    let create = editor.agent.log.iter().find(|it| it["method"] == "terminal/create").unwrap();
    for name in ["TURNWRIGHT_LAUNCHER_NONCE", "TURNWRIGHT_LAUNCHER_SOCKET"] {
        let value = variable(&create["params"], name);
        assert!(!result.contains(name) && !result.contains(&value), "{name}: {result}");
    }
    editor.close();
}

#[test]
fn a_terminal_is_named_after_its_command_and_the_name_is_not_what_runs() {
    let long = format!("echo {}", "word ".repeat(1_000));
    for (command, name) in [
        ("true --version; echo $((20 + 2))", "true --version； echo ＄（（20 + 2））".to_owned()),
        ("echo one\necho 22 # \u{202e}x", "echo one＼necho 22 ＃ ＼u｛202e｝x".to_owned()),
        (&long, format!("{}…", &long[..200])),
    ] {
        let mut editor = Editor::running(Manner::Runs, &[command]);
        assert_eq!(editor.turn(), "end_turn");
        let create = editor.agent.log.iter().find(|it| it["method"] == "terminal/create").unwrap();
        assert_eq!(create["params"]["args"], json!([name]));
        let result = editor.result();
        let whole = if command.len() > 1_000 { long["echo ".len()..].trim_end() } else { "22" };
        assert!(result.trim_end().ends_with(whole), "{command}: {result}");
        editor.close();
    }
}

#[test]
fn a_process_that_connects_before_the_launcher_cannot_report_for_it() {
    let report =
        b"o\x11\0\0\0all tests passed\nm\x1b\0\0\0{\"Exit\":[{\"Code\":0},false]}".to_vec();
    let after_a_nonce = [b"0".repeat(32), report.clone()].concat();
    for bytes in [report, after_a_nonce, Vec::new()] {
        let mut editor = Editor::running(Manner::Outrun(bytes), &["echo the real one; exit 3"]);
        assert_eq!(editor.turn(), "end_turn");
        let result = editor.result();
        assert!(result.starts_with("[exit 3 · "), "{result}");
        assert!(result.ends_with("\nthe real one\n") && !result.contains("passed"), "{result}");
        let is_shown = || editor.terminals["t1"].text() == "the real one\n";
        eventually("the launcher has run the command", is_shown);
        editor.close();
    }
}

#[test]
fn the_agent_has_the_full_output_even_if_the_editor_truncates_it() {
    let mut editor = Editor::running(Manner::Runs, &["seq 1 200000; sleep 607.3 & echo end"]);
    editor.turn();
    let result = editor.result();
    assert!(result.contains("]\n1\n2\n3\n") && result.contains("\n200000\nend\n"), "{result}");
    assert!(result.contains("left running in the background and stopped"), "{result}");
    assert_gone("sleep\x00607.3");
    editor.close();
}

#[test]
fn r_term_2_a_cancelled_command_is_ended_and_its_terminal_released() {
    for (word, command) in [
        ("607.11", "echo begun; sleep 607.11"),
        ("607.12", "trap '' TERM; echo begun; while :; do sleep 607.12; done"),
    ] {
        let mut editor = Editor::running(Manner::Runs, &[command]);
        let id = editor.agent.prompt("go");
        editor.until(|it| it["params"]["update"]["content"][0]["terminalId"] == "t1");
        // What comes before the sleep has happened then; the time alone is on the shell's command line, too.
        eventually("the command sleeps", || is_alive(&format!("sleep\0{word}")));
        editor.agent.cancel();
        editor.until(|it| it.get("method").is_none() && it["id"] == id);
        assert_eq!(editor.agent.stop_reason(&id), "cancelled");
        assert_gone(&format!("sleep\0{word}"));
        editor.check();
        editor.close();
    }
}

#[test]
fn r_term_2_a_terminal_that_opens_after_the_cancel_is_released() {
    let mut editor = Editor::running(Manner::Silent, &["touch ran"]);
    let id = editor.agent.prompt("go");
    let create = editor.agent.wait_for_request("terminal/create");
    editor.agent.cancel();
    assert_eq!(editor.agent.stop_reason(&id), "cancelled");
    // A launcher that starts now cannot reach the agent any more.
    let mut late = Terminal::open(&create["params"]);
    assert_eq!(late.wait()["exitCode"], 125);
    editor.agent.respond(&create, &json!({ "terminalId": "late" }));
    let release = editor.agent.wait_for_request("terminal/release");
    assert_eq!(release["params"]["terminalId"], "late");
    assert!(!editor.agent.path("ran").exists(), "the command ran after the cancel");
    editor.close();
}

#[test]
fn commands_run_without_a_terminal_until_the_next_prompt_if_the_client_does_not_answer() {
    let mut editor = Editor::running(Manner::Silent, &["echo one >> ran", "echo two >> ran"]);
    assert_eq!(editor.turn(), "end_turn");
    assert_eq!(editor.agent.read("ran"), "one\ntwo\n");
    assert_eq!(methods(&editor.agent), ["terminal/create"], "the agent requested a terminal again");
    let create = editor.agent.log.iter().find(|it| it["method"] == "terminal/create").unwrap();
    let create = create.clone();
    editor.agent.respond(&create, &json!({ "terminalId": "late" }));
    let release = editor.agent.wait_for_request("terminal/release");
    assert_eq!(release["params"]["terminalId"], "late");
    // The editor was only busy.
    editor.manner = Manner::Runs;
    for reply in [calls("exec", &json!({ "command": "echo three >> ran" })), says("Done.")] {
        editor.agent.model().push(reply).unwrap();
    }
    assert_eq!(editor.turn(), "end_turn");
    assert_eq!(editor.agent.read("ran"), "one\ntwo\nthree\n");
    assert_eq!(editor.terminals.len(), 1, "the agent requested no terminal");
    cards::check(&editor.agent);
    editor.close();
}

#[test]
fn commands_run_without_a_terminal_if_the_client_has_none() {
    let spawn = "spawn EACCES: permission denied";
    for (code, why, request_count) in
        [(-32601, "no terminal today", 1), (-32603, "no terminal today", 2), (-32603, spawn, 2)]
    {
        let mut editor = Editor::running(Manner::Refuses(code, why), &["echo one", "echo two"]);
        assert_eq!(editor.turn(), "end_turn");
        assert!(editor.result().ends_with("\ntwo\n"));
        assert_eq!(methods(&editor.agent).len(), request_count);
        assert!(cards::card_text(&cards::card(&editor.agent, 1)).contains("two"));
        editor.close();
    }
}

#[test]
fn a_command_that_the_user_refuses_in_the_editor_is_not_run() {
    let why = "Permission denied for terminal/create";
    let mut editor = Editor::running(Manner::Refuses(-32603, why), &["touch made"]);
    assert_eq!(editor.turn(), "end_turn");
    let card = cards::card(&editor.agent, 0);
    assert_eq!(
        (&card["status"], &card["rawOutput"]),
        (&json!("failed"), &json!({ "message": "Rejected" }))
    );
    assert_eq!(cards::card_text(&card), "Rejected");
    assert!(editor.result().starts_with("The user rejected this call."), "{}", editor.result());
    assert!(!editor.agent.path("made").exists());
    editor.close();
}

#[test]
fn r_term_7_without_a_report_from_the_launcher_the_terminals_answers_count() {
    let output = |text: &str, truncated: bool| json!({ "output": text, "truncated": truncated });
    for (exit, output, expected) in [
        (json!({ "exitCode": 0 }), output("all\n", false), "[exit 0 · |\nall\n"),
        (json!({ "exitCode": 4, "signal": null }), output("", false), "[exit 4 · |\n"),
        (json!({ "exitCode": 0, "signal": "0" }), output("all\n", false), "[exit 0 · |\nall\n"),
        (
            json!({ "exitCode": 0, "signal": "9" }),
            output("all\n", false),
            "[killed by 9 · |\nall\n",
        ),
        (
            json!({ "exitCode": null, "signal": "SIGKILL" }),
            output("end\n", true),
            "[killed by SIGKILL · |[… the editor has dropped the beginning …]\nend\n",
        ),
        (Value::Null, Value::Null, "[ended, exit code unknown · |\n"),
    ] {
        let mut editor = Editor::running(Manner::Says(exit, output), &["touch ran"]);
        assert_eq!(editor.turn(), "end_turn");
        let (start, end) = expected.split_once('|').unwrap();
        let result = editor.result();
        assert!(result.starts_with(start) && result.ends_with(end), "{result}");
        let expected =
            ["terminal/create", "terminal/wait_for_exit", "terminal/output", "terminal/release"];
        assert_eq!(methods(&editor.agent), expected);
        editor.close();
    }
}

#[test]
fn the_agent_runs_the_command_if_the_launcher_has_run_nothing() {
    let message = "turnwright sandbox: the agent cannot be reached at /x: none. Nothing was run.\n";
    let output = json!({ "output": message, "truncated": false });
    let manner = Manner::Says(json!({ "exitCode": 125 }), output);
    let mut editor = Editor::running(manner, &["echo one >> ran; cat ran", "echo two >> ran"]);
    assert_eq!(editor.turn(), "end_turn");
    assert_eq!(editor.agent.read("ran"), "one\ntwo\n");
    assert!(cards::results(&editor.agent, 1)[0].ends_with("\none\n"));
    let creates = methods(&editor.agent).iter().filter(|it| *it == "terminal/create").count();
    assert_eq!(creates, 1, "the agent requested a terminal again");
    let card = cards::card(&editor.agent, 0);
    assert!(
        !card["content"].to_string().contains("terminal"),
        "the card refers to the terminal: {card}"
    );
    assert!(cards::card_text(&card).contains("one"));
    cards::check(&editor.agent);
    editor.close();
}

#[test]
fn the_agent_runs_the_command_if_the_launcher_is_missing() {
    let launcher = env!("CARGO_BIN_EXE_turnwright");
    let said = |code: Option<i64>, message: &str| {
        let message = message.replace("PROGRAM", launcher);
        let output = json!({ "output": message, "truncated": false });
        Manner::Says(json!({ "exitCode": code }), output)
    };
    for manner in [
        said(Some(126), "sh: 1: PROGRAM: not there\n"),
        said(Some(127), "sh: 1: PROGRAM: not there\n"),
        said(Some(127), "sh: turnwright: not found\n"),
        said(Some(127), "sh: 1: /Users/me/Library/Application: not found\n"),
        said(Some(1), "Path to executable \"PROGRAM\" does not exist\n"),
        said(None, "spawn PROGRAM ENOENT"),
        Manner::FailsToWait(format!("spawn {launcher} ENOENT")),
    ] {
        let mut editor = Editor::running(manner, &["echo one >> ran", "echo two >> ran"]);
        assert_eq!(editor.turn(), "end_turn");
        assert_eq!(editor.agent.read("ran"), "one\ntwo\n");
        let creates = methods(&editor.agent).iter().filter(|it| *it == "terminal/create").count();
        assert_eq!(creates, 1, "the agent requested a terminal again");
        editor.close();
    }
}

#[test]
fn a_command_runs_in_its_folder_although_the_editor_opens_the_terminal_elsewhere() {
    let mut editor = Editor::running(Manner::IgnoresFolder, &["echo one > ran; pwd"]);
    assert_eq!(editor.turn(), "end_turn");
    assert_eq!(editor.agent.read("ran"), "one\n");
    assert!(editor.result().contains(&*editor.agent.workspace().to_string_lossy()));
    editor.close();
}

#[test]
fn a_job_whose_launcher_does_not_report_is_killed_through_the_editor() {
    let mut editor = Editor::start(
        Manner::Silent,
        json!([
            calls("exec", &json!({ "command": "true", "timeout": 1 })),
            calls("exec_output", &json!({ "id": "p1", "signal": "kill" })),
            says("Done."),
        ]),
    );
    let id = editor.agent.prompt("go");
    let create = editor.agent.wait_for_request("terminal/create");
    editor.agent.respond(&create, &json!({ "terminalId": "t1" }));
    let wait = editor.agent.wait_for_request("terminal/wait_for_exit");
    let kill = editor.agent.wait_for_request("terminal/kill");
    editor.agent.respond(&kill, &json!({}));
    editor.agent.respond(&wait, &json!({ "exitCode": null, "signal": "SIGKILL" }));
    let output = editor.agent.wait_for_request("terminal/output");
    editor.agent.respond(&output, &json!({ "output": "all\n", "truncated": false }));
    assert_eq!(editor.agent.stop_reason(&id), "end_turn");
    assert!(editor.result().contains("killed by SIGKILL"), "{}", editor.result());
    assert_eq!(methods(&editor.agent).last().unwrap(), "terminal/release");
    editor.close();
}

#[test]
fn r_term_5_a_cancel_kills_a_command_without_a_launcher_through_the_editor() {
    let mut editor = Editor::running(Manner::Silent, &["true"]);
    let id = editor.agent.prompt("go");
    let create = editor.agent.wait_for_request("terminal/create");
    editor.agent.respond(&create, &json!({ "terminalId": "t1" }));
    editor.agent.wait_for_request("terminal/wait_for_exit");
    editor.agent.cancel();
    let kill = editor.agent.wait_for_request("terminal/kill");
    editor.agent.respond(&kill, &json!({}));
    let output = editor.agent.wait_for_request("terminal/output");
    editor.agent.respond(&output, &json!({ "output": "half\n", "truncated": false }));
    assert_eq!(editor.agent.stop_reason(&id), "cancelled");
    let order: Vec<_> = methods(&editor.agent).split_off(2);
    assert_eq!(order, ["terminal/kill", "terminal/output", "terminal/release"]);
    assert_eq!(cards::card(&editor.agent, 0)["rawOutput"]["output"], "half\n");
    editor.close();
}

#[test]
fn the_result_says_that_the_user_closed_the_terminal() {
    for signal in ["HUP", "TERM", "KILL"] {
        let word = format!("607.2{}", signal.len());
        let command = format!("echo begun; sleep {word}");
        let mut editor = Editor::running(Manner::Closes(signal), &[&command]);
        assert_eq!(editor.turn(), "end_turn");
        let result = editor.result();
        assert!(result.contains("the user closed its terminal"), "{signal}: {result}");
        assert!(result.contains("\nbegun\n"), "{signal}: {result}");
        assert_gone(&word);
        editor.close();
    }
}

#[test]
fn r_term_5_a_job_keeps_its_terminal_until_it_ends() {
    let mut editor = Editor::start(
        Manner::Runs,
        json!([
            // Within this time the command has begun on a slow machine, too.
            calls("exec", &json!({ "command": "echo begun; sleep 607.97", "timeout": 5 })),
            calls("exec_output", &json!({ "id": "p1", "signal": "term" })),
            says("Done."),
        ]),
    );
    assert_eq!(editor.turn(), "end_turn");
    let results = cards::results(&editor.agent, 1);
    assert!(results[0].contains("begun"), "{results:?}");
    let card = cards::card(&editor.agent, 0);
    assert_eq!(card["content"][0]["terminalId"], "t1");
    assert_gone("607.97");
    assert!(editor.result().contains("SIGTERM"), "{}", editor.result());
    cards::check(&editor.agent);
    editor.close();
}

#[test]
fn r_term_2_the_end_of_the_agent_ends_commands_and_jobs_in_terminals() {
    // One of the two is a job, the other a command of the running turn.
    let background = json!({ "command": "echo begun; sleep 607.41", "background": true });
    let mut editor = Editor::start(
        Manner::Runs,
        json!([
            calls("exec", &background),
            calls("exec", &json!({ "command": "echo begun; sleep 607.42" })),
        ]),
    );
    editor.agent.prompt("go");
    editor.until(|it| it["params"]["update"]["content"][0]["terminalId"] == "t2");
    eventually("both run", || is_alive("sleep\x00607.41") && is_alive("sleep\x00607.42"));
    editor.close();
    assert_gone("607.41");
    assert_gone("607.42");
}

#[test]
fn no_process_in_a_terminal_survives_a_killed_agent() {
    let mut editor = Editor::running(Manner::Runs, &["echo begun; (sleep 607.51 &); sleep 607.51"]);
    editor.agent.prompt("go");
    editor.until(|it| it["params"]["update"]["content"][0]["terminalId"] == "t1");
    eventually("the command runs", || editor.terminals["t1"].text() == "begun\n");
    editor.agent.kill();
    assert_gone("607.51");
    editor.terminals.get_mut("t1").unwrap().wait();
}

#[test]
fn the_folders_of_a_killed_agent_are_removed_by_the_next_start_and_no_others() {
    let place = turnwright_testing::temporary_folder();
    let replies = json!([calls("exec", &json!({ "command": "true" }))]);
    let start = || {
        let place = place.path().to_str().unwrap();
        builder().variable("TMPDIR", place).model(replies.clone()).start()
    };
    let folders = || {
        let entries = std::fs::read_dir(place.path()).unwrap();
        entries.map(|it| it.unwrap().file_name()).collect::<BTreeSet<_>>()
    };
    let run = |agent: &mut TestAgent| {
        agent.prompt("go");
        agent.wait_for_request("terminal/create");
    };
    let mut living = start();
    run(&mut living);
    let of_the_living = folders();
    assert!(!of_the_living.is_empty());
    let mut killed = start();
    run(&mut killed);
    killed.kill();
    assert!(folders().len() > of_the_living.len());
    let _next = start();
    eventually("the folders are gone", || folders() == of_the_living);
}

/// Runs a command with a client that draws terminals from `_meta`.
fn drawn(command: &str) -> (TestAgent, String) {
    let builder =
        TestAgent::builder().capabilities(json!({ "_meta": { "terminal_output": true } }));
    cards::run(builder, "exec", &json!({ "command": command }))
}

/// All output that the drawn terminal was sent.
fn shown(agent: &TestAgent) -> String {
    let updates = agent.updates();
    updates.iter().filter_map(|it| it["_meta"]["terminal_output"]["data"].as_str()).collect()
}

#[test]
fn a_drawn_terminal_gets_the_meta_fields_that_zed_expects() {
    let (agent, result) = drawn("printf 'a\\033[1mb\\033[0m\\r\\n'; exit 3");
    assert!(!result.contains('\u{1b}'), "{result}");
    let cwd = agent.workspace();
    let updates = agent.updates();
    let card_updates: Vec<_> = updates.iter().filter(|it| it["toolCallId"].is_string()).collect();
    let call = card_updates[0];
    let id = call["toolCallId"].as_str().unwrap();
    assert_eq!(call["sessionUpdate"], "tool_call");
    assert_eq!(call["_meta"], json!({ "terminal_info": { "terminal_id": id, "cwd": cwd } }));
    let content = json!([{ "type": "terminal", "terminalId": id }]);
    // Output and exit come in updates after the first message, and the card shows only the terminal.
    let mut seen = Vec::new();
    for update in &card_updates[1..] {
        assert_eq!(update["sessionUpdate"], "tool_call_update");
        if update["content"].is_array() && update["status"] != "pending" {
            assert_eq!(update["content"], content);
        }
        for (key, value) in update["_meta"].as_object().into_iter().flatten() {
            assert_eq!(value["terminal_id"], id);
            seen.push(key.as_str());
        }
    }
    assert_eq!(seen, ["terminal_output", "terminal_exit"]);
    assert_eq!(shown(&agent), "a\u{1b}[1mb\u{1b}[0m\r\n");
    let exit = card_updates.iter().find_map(|it| it["_meta"].get("terminal_exit")).unwrap();
    assert_eq!(*exit, json!({ "terminal_id": id, "exit_code": 3, "signal": null }));
    let last = card_updates.last().unwrap();
    assert_eq!((&last["status"], &last["content"]), (&json!("failed"), &content));
}

#[test]
fn a_drawn_terminal_gets_the_signals_name_and_whole_characters() {
    let (agent, _) = drawn("printf '\\342\\202'; sleep 0.3; printf '\\254\\n'; kill -9 $$");
    assert_eq!(shown(&agent), "€\n");
    let updates = agent.updates();
    let exit = updates.iter().find_map(|it| it["_meta"].get("terminal_exit")).unwrap();
    assert_eq!((&exit["exit_code"], &exit["signal"]), (&Value::Null, &json!("SIGKILL")));
}

#[test]
fn other_tools_and_other_clients_get_no_terminal() {
    let builder = || TestAgent::builder().file("a", "text\n");
    let draws = json!({ "_meta": { "terminal_output": true } });
    let read = json!({ "path": "a" });
    let (agent, _) = cards::run(builder().capabilities(draws), "read_file", &read);
    assert!(!agent.log.iter().any(|it| it.to_string().contains("terminal_")));
    for meta in [json!({}), json!({ "_meta": { "terminal_output": false } })] {
        let builder = builder().capabilities(meta);
        let (agent, _) = cards::run(builder, "exec", &json!({ "command": "echo a" }));
        assert!(!agent.log.iter().any(|it| it.to_string().contains("\"terminal")));
    }
}

fn displays() -> [Value; 2] {
    [json!({}), json!({ "_meta": { "terminal_output": true } })]
}

/// The number of bytes that the agent has sent to the client.
fn cost(agent: &TestAgent) -> usize {
    agent.log.iter().map(|it| it.to_string().len() + 1).sum()
}

const MAX_COST: usize = 256 * 1024;

#[test]
fn a_million_lines_cost_at_most_256_kib_with_each_kind_of_client() {
    for capabilities in displays() {
        let builder = TestAgent::builder().capabilities(capabilities.clone());
        let (agent, result) =
            cards::run(builder, "exec", &json!({ "command": "seq 1 1000000", "timeout": 60 }));
        assert!(result.starts_with("[exit 0") && result.contains("\n1000000\n["), "{result}");
        assert!(cost(&agent) <= MAX_COST, "{} bytes for {capabilities}", cost(&agent));
        let shown = shown(&agent);
        // The middle may have been omitted.
        assert!(shown.is_empty() || shown.starts_with("1\n2\n") && shown.ends_with("\n1000000\n"));
    }
    let mut editor = Editor::running(Manner::Runs, &["seq 1 1000000"]);
    editor.turn();
    assert!(editor.result().contains("\n1000000\n["));
    assert!(cost(&editor.agent) <= MAX_COST, "{} bytes", cost(&editor.agent));
    let is_whole = || editor.terminals["t1"].text().ends_with("\n1000000\n");
    eventually("the terminal shows the whole output", is_whole);
    editor.close();
}

#[test]
fn a_long_output_updates_the_card_until_the_end() {
    let command = "for it in $(seq 1 25); do seq 1 20000; sleep 0.1; done";
    for capabilities in displays() {
        let builder = TestAgent::builder().capabilities(capabilities.clone());
        let (agent, _) = cards::run(builder, "exec", &json!({ "command": command }));
        assert!(cost(&agent) <= MAX_COST, "{} bytes for {capabilities}", cost(&agent));
        let updates = agent.updates();
        let output_updates = updates.iter().filter(|update| {
            update["status"] == "in_progress"
                && (update["content"].is_array() || update["_meta"]["terminal_output"].is_object())
        });
        // The command takes at least 2.5 s, and the card is updated at least once a second.
        assert!(output_updates.count() >= 3, "{capabilities}");
    }
}
