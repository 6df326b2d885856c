//! Commands shown live: in the client's own terminals (R-TERM-1…7, R-TOOL-11), in terminals that
//! it draws from `_meta`, and as text.

use std::collections::HashMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnwright_testing::{cards, process_waits};

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, is_alive, run_mark, says};

/// What the editor does with a terminal.
#[derive(Clone)]
enum Manner {
    /// Runs what it is asked to run.
    Runs,
    /// Never answers anything about terminals.
    Silent,
    /// Refuses to open one, with this code.
    Refuses(i64),
    /// Runs nothing of ours and says this, at `wait_for_exit` and at `output`.
    Says(Value, Value),
    /// Runs it and ends it as soon as it has printed something, as a user does who closes it.
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

    /// With a model that runs these commands, one after the other.
    fn running(manner: Manner, commands: &[&str]) -> Editor {
        let call = |it: &&str| calls("exec", &json!({ "command": it }));
        let mut replies: Vec<_> = commands.iter().map(call).collect();
        replies.push(says("Done."));
        Editor::start(manner, json!(replies))
    }

    /// Plays the editor until the prompt is answered; returns the stop reason.
    fn turn(&mut self) -> String {
        let id = self.agent.prompt("go");
        self.until(|it| it.get("method").is_none() && it["id"] == id);
        self.agent.stop_reason(&id)
    }

    /// Plays the editor until such a message comes, and with it.
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
        if let Manner::Refuses(code) = self.manner {
            return self.agent.refuse(request, code, "no terminal today");
        }
        let canned = match &self.manner {
            Manner::Says(exit, output) => Some((exit.clone(), output.clone())),
            _ => None,
        };
        let answer = match (request["method"].as_str().unwrap(), canned) {
            ("terminal/create", canned) => {
                let id = format!("t{}", self.terminals.len() + 1);
                if canned.is_none() {
                    self.terminals.insert(id.clone(), Terminal::open(params));
                }
                if let Manner::Closes(signal) = self.manner {
                    let terminal = &self.terminals[&id];
                    self.agent.respond(request, &json!({ "terminalId": id }));
                    eventually("it runs", || !terminal.text().is_empty());
                    return terminal.signal(signal);
                }
                json!({ "terminalId": id })
            }
            ("terminal/wait_for_exit", Some((exit, _))) => exit,
            ("terminal/output", Some((_, output))) => output,
            ("terminal/wait_for_exit", None) => self.terminals.get_mut(&id).unwrap().wait(),
            ("terminal/output", None) => {
                let terminal = &self.terminals[&id];
                json!({ "output": terminal.text(), "truncated": false, "exitStatus": terminal.exit })
            }
            (_, Some(_)) => Value::Null,
            (_, None) => {
                let terminal = self.terminals.get_mut(&id).unwrap();
                drop(terminal.child.kill());
                terminal.wait();
                json!({})
            }
        };
        self.agent.respond(request, &answer);
    }

    /// What the model was told of the last call.
    fn result(&self) -> String {
        let last = self.agent.model().requests().len() - 1;
        cards::results(&self.agent, last).pop().unwrap()
    }

    /// Ends the agent and checks what holds for all terminals whatever happens.
    fn close(mut self) {
        let (status, stderr) = self.agent.close();
        assert!(status.success(), "{status}");
        assert_eq!(stderr, "");
        self.check();
        for terminal in self.terminals.values_mut() {
            terminal.wait();
        }
    }

    /// R-TERM-2, R-TERM-3, R-TOOL-11: every terminal is given back once, after it has been in a
    /// card, after the last word of that card, and is not spoken of any more.
    fn check(&self) {
        let log = &self.agent.log;
        for id in self.terminals.keys() {
            let names_it = |it: &Value| it["params"]["terminalId"] == id.as_str();
            let requests: Vec<_> = (0..log.len()).filter(|it| names_it(&log[*it])).collect();
            let releases: Vec<_> =
                requests.iter().filter(|it| log[**it]["method"] == "terminal/release").collect();
            assert_eq!(releases.len(), 1, "{id} is to be given back once");
            assert_eq!(requests.last(), Some(releases[0]), "{id} is used after that");
            let shows = |it: &Value| {
                let content = it["params"]["update"]["content"].as_array();
                content.is_some_and(|all| all.iter().any(|it| it["terminalId"] == id.as_str()))
            };
            let cards: Vec<_> = (0..log.len()).filter(|it| shows(&log[*it])).collect();
            assert!(!cards.is_empty(), "{id} was never in a card");
            assert!(cards.last() < Some(releases[0]), "{id} is shown after it was given back");
        }
    }
}

fn methods(agent: &TestAgent) -> Vec<String> {
    cards::requests(agent).into_iter().filter(|it| it.starts_with("terminal/")).collect()
}

#[test]
fn r_term_1_nobody_is_asked_for_a_terminal_who_has_not_offered_one() {
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
    let place = std::fs::canonicalize(editor.agent.workspace()).unwrap().display().to_string();
    let result = editor.result();
    assert!(result.starts_with("[exit 3 · "), "{result}");
    assert!(result.contains(&format!("out\nerr\n{place}\n")), "{result}");

    assert_eq!(methods(&editor.agent), ["terminal/create", "terminal/release"]);
    let create = editor.agent.log.iter().find(|it| it["method"] == "terminal/create").unwrap();
    let params = &create["params"];
    assert!(params["command"].as_str().unwrap().starts_with('/'), "{params}");
    let arguments: Vec<_> = params["args"].as_array().unwrap().iter().collect();
    assert_eq!(arguments[..2], [&json!("sandbox"), &json!("--report")]);
    let rest = ["--", "/bin/bash", "--noprofile", "--norc", "-c"].map(|it| json!(it));
    assert_eq!(arguments[3..8], rest.iter().collect::<Vec<_>>());
    assert_eq!(params["cwd"], place);
    assert_eq!(params["outputByteLimit"], 1024 * 1024);
    assert!(
        params["env"].as_array().unwrap().contains(&json!({ "name": "TERM", "value": "dumb" }))
    );

    // The terminal shows it, and so does what those clients show that show no terminals.
    let card = cards::card(&editor.agent, 0);
    assert_eq!(card["status"], "failed");
    assert_eq!(card["content"][0], json!({ "type": "terminal", "terminalId": "t1" }));
    assert!(card["rawOutput"]["output"].as_str().unwrap().starts_with("out\nerr\n"), "{card}");
    let expected = format!("out\nerr\n{place}\n");
    eventually("the terminal shows it", || editor.terminals["t1"].text() == expected);
    cards::check(&editor.agent);
    editor.close();
}

#[test]
fn r_tool_11_the_terminal_is_in_the_card_while_it_runs_and_given_back_after_the_last_word() {
    let mut editor = Editor::running(Manner::Runs, &["echo begun; sleep 0.2; echo over"]);
    editor.turn();
    let log = &editor.agent.log;
    let place = |what: &dyn Fn(&Value) -> bool| log.iter().position(what).unwrap();
    let shown = place(&|it| it["params"]["update"]["content"][0]["terminalId"] == "t1");
    let done = place(&|it| it["params"]["update"]["status"] == "completed");
    let released = place(&|it| it["method"] == "terminal/release");
    assert_eq!(log[shown]["params"]["update"]["status"], "in_progress");
    assert!(shown < done && done < released, "{shown} {done} {released}");
    editor.close();
}

#[test]
fn what_runs_in_the_editors_terminal_sees_no_secrets_and_has_no_input() {
    let command = "env; cat; (: < /dev/tty) 2>/dev/null && echo a terminal; echo end";
    let mut editor = Editor::running(Manner::Runs, &[command]);
    editor.turn();
    let result = editor.result();
    assert!(result.contains("EDITOR_VERSION=seven") && result.contains("TERM=dumb"), "{result}");
    assert!(result.ends_with("\nend\n") && !result.contains("a terminal"), "{result}");
    assert!(!result.contains("of-the-editor") && !result.contains("sk-test"), "{result}");
    editor.close();
}

#[test]
fn the_agent_knows_all_of_an_output_that_the_editor_cuts() {
    let mut editor = Editor::running(Manner::Runs, &["seq 1 200000; sleep 607.3 & echo end"]);
    editor.turn();
    let result = editor.result();
    assert!(result.contains("]\n1\n2\n3\n") && result.contains("\n200000\nend\n"), "{result}");
    assert!(result.contains("left running in the background and stopped"), "{result}");
    assert!(!is_alive("607.3"));
    editor.close();
}

#[test]
fn r_term_2_a_cancelled_command_is_ended_and_its_terminal_given_back() {
    for (word, command) in [
        ("607.11", "echo begun; sleep 607.11"),
        ("607.12", "trap '' TERM; echo begun; while :; do sleep 607.12; done"),
    ] {
        let mut editor = Editor::running(Manner::Runs, &[command]);
        let id = editor.agent.prompt("go");
        editor.until(|it| it["params"]["update"]["content"][0]["terminalId"] == "t1");
        eventually("it runs", || is_alive(word));
        editor.agent.cancel();
        editor.until(|it| it.get("method").is_none() && it["id"] == id);
        assert_eq!(editor.agent.stop_reason(&id), "cancelled");
        assert!(!is_alive(&format!("sleep\0{word}")), "{command}");
        editor.check();
        editor.close();
    }
}

#[test]
fn r_term_2_a_terminal_that_comes_after_the_cancel_is_given_back() {
    let mut editor = Editor::running(Manner::Silent, &["touch ran"]);
    let id = editor.agent.prompt("go");
    let create = editor.agent.wait_for_request("terminal/create");
    editor.agent.cancel();
    assert_eq!(editor.agent.stop_reason(&id), "cancelled");
    // A launcher that comes now finds nobody.
    let mut late = Terminal::open(&create["params"]);
    assert_eq!(late.wait()["exitCode"], 125);
    editor.agent.respond(&create, &json!({ "terminalId": "late" }));
    let release = editor.agent.wait_for_request("terminal/release");
    assert_eq!(release["params"]["terminalId"], "late");
    assert!(!editor.agent.path("ran").exists(), "it ran after the cancel");
    editor.close();
}

#[test]
fn a_client_that_never_opens_a_terminal_costs_the_display_once_and_no_command() {
    let mut editor = Editor::running(Manner::Silent, &["echo one >> ran", "echo two >> ran"]);
    assert_eq!(editor.turn(), "end_turn");
    assert_eq!(editor.agent.read("ran"), "one\ntwo\n");
    assert_eq!(methods(&editor.agent), ["terminal/create"], "it is asked once");
    let create = editor.agent.log.iter().find(|it| it["method"] == "terminal/create").unwrap();
    let create = create.clone();
    editor.agent.respond(&create, &json!({ "terminalId": "late" }));
    let release = editor.agent.wait_for_request("terminal/release");
    assert_eq!(release["params"]["terminalId"], "late");
    cards::check(&editor.agent);
    editor.close();
}

#[test]
fn a_client_that_refuses_a_terminal_costs_the_display_and_not_the_command() {
    for (code, asked) in [(-32601, 1), (-32603, 2)] {
        let mut editor = Editor::running(Manner::Refuses(code), &["echo one", "echo two"]);
        assert_eq!(editor.turn(), "end_turn");
        assert!(editor.result().ends_with("\ntwo\n"));
        assert_eq!(methods(&editor.agent).len(), asked);
        assert!(cards::card_text(&cards::card(&editor.agent, 1)).contains("two"));
        editor.close();
    }
}

#[test]
fn r_term_7_where_the_launcher_cannot_reach_us_the_terminals_word_counts() {
    let output = |text: &str, truncated: bool| json!({ "output": text, "truncated": truncated });
    for (exit, output, expected) in [
        (json!({ "exitCode": 0 }), output("all\n", false), "[exit 0 · |\nall\n"),
        (json!({ "exitCode": 4, "signal": null }), output("", false), "[exit 4 · |\n"),
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
fn where_the_launcher_says_that_it_has_run_nothing_the_agent_runs_the_command() {
    let said = "turnwright sandbox: the agent cannot be reached at /x: none. Nothing was run.\n";
    let output = json!({ "output": said, "truncated": false });
    let manner = Manner::Says(json!({ "exitCode": 125 }), output);
    let mut editor = Editor::running(manner, &["echo one >> ran; cat ran", "echo two >> ran"]);
    assert_eq!(editor.turn(), "end_turn");
    assert_eq!(editor.agent.read("ran"), "one\ntwo\n");
    assert!(cards::results(&editor.agent, 1)[0].ends_with("\none\n"));
    let creates = methods(&editor.agent).iter().filter(|it| *it == "terminal/create").count();
    assert_eq!(creates, 1, "it is tried once");
    let card = cards::card(&editor.agent, 0);
    assert!(!card["content"].to_string().contains("terminal"), "it says something else: {card}");
    assert!(cards::card_text(&card).contains("one"));
    cards::check(&editor.agent);
    editor.close();
}

#[test]
fn where_there_is_no_launcher_the_agent_runs_the_command() {
    let launcher = env!("CARGO_BIN_EXE_turnwright");
    for code in [126, 127] {
        let said = format!("sh: 1: {launcher}: not there\n");
        let output = json!({ "output": said, "truncated": false });
        let manner = Manner::Says(json!({ "exitCode": code }), output);
        let mut editor = Editor::running(manner, &["echo one >> ran", "echo two >> ran"]);
        assert_eq!(editor.turn(), "end_turn");
        assert_eq!(editor.agent.read("ran"), "one\ntwo\n");
        let creates = methods(&editor.agent).iter().filter(|it| *it == "terminal/create").count();
        assert_eq!(creates, 1, "it is tried once");
        editor.close();
    }
}

#[test]
fn a_job_in_a_terminal_that_only_the_editor_can_reach_is_killed_by_the_editor() {
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
fn r_term_5_a_cancel_kills_a_terminal_that_only_the_editor_can_reach() {
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
fn a_command_whose_terminal_the_user_closes_ends_and_says_so() {
    for signal in ["HUP", "TERM", "KILL"] {
        let word = format!("607.2{}", signal.len());
        let command = format!("echo begun; sleep {word}");
        let mut editor = Editor::running(Manner::Closes(signal), &[&command]);
        assert_eq!(editor.turn(), "end_turn");
        let result = editor.result();
        assert!(result.contains("the user closed its terminal"), "{signal}: {result}");
        assert!(result.contains("\nbegun\n"), "{signal}: {result}");
        eventually("it is gone", || !is_alive(&word));
        editor.close();
    }
}

#[test]
fn r_term_5_a_job_keeps_its_terminal_until_it_ends() {
    let mut editor = Editor::start(
        Manner::Runs,
        json!([
            calls("exec", &json!({ "command": "echo begun; sleep 607.31", "timeout": 1 })),
            calls("exec_output", &json!({ "id": "p1", "signal": "term" })),
            says("Done."),
        ]),
    );
    assert_eq!(editor.turn(), "end_turn");
    let results = cards::results(&editor.agent, 1);
    assert!(results[0].contains("begun"), "{results:?}");
    let card = cards::card(&editor.agent, 0);
    assert_eq!(card["content"][0]["terminalId"], "t1");
    eventually("it is gone", || !is_alive("607.31"));
    assert!(editor.result().contains("SIGTERM"), "{}", editor.result());
    cards::check(&editor.agent);
    editor.close();
}

#[test]
fn r_term_2_the_end_of_the_agent_ends_what_runs_in_terminals() {
    // A job, and a command in the middle of a turn.
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
    eventually("both run", || is_alive("607.41") && is_alive("607.42"));
    editor.close();
    eventually("both are gone", || !is_alive("607.41") && !is_alive("607.42"));
}

#[test]
fn a_killed_agent_leaves_nothing_running_in_a_terminal() {
    let mut editor = Editor::running(Manner::Runs, &["echo begun; (sleep 607.51 &); sleep 607.51"]);
    editor.agent.prompt("go");
    editor.until(|it| it["params"]["update"]["content"][0]["terminalId"] == "t1");
    eventually("it runs", || editor.terminals["t1"].text() == "begun\n");
    editor.agent.kill();
    eventually("it is gone", || !is_alive("607.51"));
    editor.terminals.get_mut("t1").unwrap().wait();
}

/// An agent whose client draws terminals, with a command that has run.
fn drawn(command: &str) -> (TestAgent, String) {
    let builder =
        TestAgent::builder().capabilities(json!({ "_meta": { "terminal_output": true } }));
    cards::run(builder, "exec", &json!({ "command": command }))
}

/// All that a drawn terminal was told to show.
fn shown(agent: &TestAgent) -> String {
    let updates = agent.updates();
    updates.iter().filter_map(|it| it["_meta"]["terminal_output"]["data"].as_str()).collect()
}

#[test]
fn a_drawn_terminal_is_told_what_zed_wants_to_know() {
    let (agent, result) = drawn("printf 'a\\033[1mb\\033[0m\\r\\n'; exit 3");
    assert!(!result.contains('\u{1b}'), "{result}");
    let cwd = agent.workspace();
    let updates = agent.updates();
    let ours: Vec<_> = updates.iter().filter(|it| it["toolCallId"].is_string()).collect();
    let call = ours[0];
    let id = call["toolCallId"].as_str().unwrap();
    assert_eq!(call["sessionUpdate"], "tool_call");
    assert_eq!(call["_meta"], json!({ "terminal_info": { "terminal_id": id, "cwd": cwd } }));
    let content = json!([{ "type": "terminal", "terminalId": id }]);
    // News of a terminal are no part of the first message, and the content is this and no more.
    let mut seen = Vec::new();
    for update in &ours[1..] {
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
    let exit = ours.iter().find_map(|it| it["_meta"].get("terminal_exit")).unwrap();
    assert_eq!(*exit, json!({ "terminal_id": id, "exit_code": 3, "signal": null }));
    let last = ours.last().unwrap();
    assert_eq!((&last["status"], &last["content"]), (&json!("failed"), &content));
}

#[test]
fn a_drawn_terminal_says_which_signal_it_was_and_splits_no_character() {
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

/// The bytes of everything the agent has said since the prompt.
fn cost(agent: &TestAgent) -> usize {
    agent.log.iter().map(|it| it.to_string().len() + 1).sum()
}

const MOST: usize = 256 * 1024;

#[test]
fn a_million_lines_cost_at_most_256_kib_in_each_display() {
    for capabilities in displays() {
        let builder = TestAgent::builder().capabilities(capabilities.clone());
        let (agent, result) =
            cards::run(builder, "exec", &json!({ "command": "seq 1 1000000", "timeout": 60 }));
        assert!(result.starts_with("[exit 0") && result.ends_with("\n1000000\n"), "{result}");
        assert!(cost(&agent) <= MOST, "{} bytes for {capabilities}", cost(&agent));
        let shown = shown(&agent);
        // The middle may be missing, which is said.
        assert!(shown.is_empty() || shown.starts_with("1\n2\n") && shown.ends_with("\n1000000\n"));
    }
    let mut editor = Editor::running(Manner::Runs, &["seq 1 1000000"]);
    editor.turn();
    assert!(editor.result().ends_with("\n1000000\n"));
    assert!(cost(&editor.agent) <= MOST, "{} bytes", cost(&editor.agent));
    let is_whole = || editor.terminals["t1"].text().ends_with("\n1000000\n");
    eventually("all of it is in the terminal", is_whole);
    editor.close();
}

#[test]
fn a_command_that_goes_on_printing_goes_on_showing_that_it_does() {
    let command = "for it in $(seq 1 25); do seq 1 20000; sleep 0.1; done";
    for capabilities in displays() {
        let builder = TestAgent::builder().capabilities(capabilities.clone());
        let (agent, _) = cards::run(builder, "exec", &json!({ "command": command }));
        assert!(cost(&agent) <= MOST, "{} bytes for {capabilities}", cost(&agent));
        let updates = agent.updates();
        let news = updates.iter().filter(|it| {
            it["status"] == "in_progress"
                && (it["content"].is_array() || it["_meta"]["terminal_output"].is_object())
        });
        // 2.5 s at least, and something each second.
        assert!(news.count() >= 3, "{capabilities}");
    }
}
