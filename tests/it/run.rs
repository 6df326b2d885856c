//! `turnwright run`: a turn and a conversation in a terminal, in a pipe and in CI.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::pseudo_terminal::PseudoTerminal;
use turnwright_testing::scripted_model::{Scenario, Server};
use turnwright_testing::{calls, process_waits, run_mark, says, schema};

/// A folder to work in, and a model that plays a scenario.
struct Desk {
    home: TempDir,
    /// With symbolic links resolved.
    project: PathBuf,
    server: Option<Server>,
    _folder: TempDir,
}

impl Desk {
    /// No model is configured.
    fn bare() -> Desk {
        let (home, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let project = folder.path().canonicalize().unwrap();
        Desk { home, project, server: None, _folder: folder }
    }

    fn new(replies: &Value) -> Desk {
        let scenario = Scenario::from_value(json!({ "replies": replies })).unwrap();
        Desk { server: Some(Server::start(scenario, 0).unwrap()), ..Desk::bare() }
    }

    fn url(&self) -> String {
        self.server.as_ref().unwrap().base_url()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnwright"));
        command.arg("run").args(arguments).env_clear().current_dir(&self.project);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("TURNWRIGHT_HOME", self.home.path()).env("TERM", "xterm").envs([run_mark()]);
        if let Some(server) = &self.server {
            command.env("OPENAI_BASE_URL", server.base_url()).env("OPENAI_API_KEY", "sk-test-1234");
            command.env("TURNWRIGHT_MODEL", "scripted");
        }
        command
    }

    /// Runs the command with an empty stdin.
    fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(process_waits::output(&mut self.command(arguments)).unwrap())
    }

    /// Runs the command with `input` in a pipe.
    fn piped(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Ended::of(process_waits::wait_with_output(child))
    }

    fn on_terminal(&self, arguments: &[&str]) -> PseudoTerminal {
        PseudoTerminal::start_on_screen(self.command(arguments), 80)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.project.join(name), text).unwrap();
    }

    fn exists(&self, name: &str) -> bool {
        self.project.join(name).exists()
    }

    /// The messages of the request with this number.
    fn messages(&self, request: usize) -> String {
        self.server.as_ref().unwrap().request(request).body["messages"].to_string()
    }
}

/// A program that has ended.
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
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

fn write_file(path: &Path) -> Value {
    calls("write_file", &json!({ "path": path, "content": "new\n" }))
}

/// A model that goes on until the test ends the turn.
fn endless() -> Value {
    json!([[{ "text": "I begin. " }, { "hang": true }]])
}

#[test]
fn in_a_pipe_stdout_has_the_answer_alone_as_the_model_has_written_it() {
    let read = json!([{ "text": "I look." }, calls("read_file", &json!({ "path": "a.txt" }))[0]]);
    let desk = Desk::new(&json!([read, says("It says **one**.\n")]));
    desk.write("a.txt", "one\n");
    let ended = desk.run(&["What does a.txt say?"]);
    assert_eq!(ended.stdout, "I look.\n\nIt says **one**.\n");
    assert_eq!(ended.stderr, "✓ Read a.txt\n");
    assert_eq!(ended.status, Some(0));
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
fn a_question_is_asked_on_the_terminal_and_only_a_clear_yes_allows() {
    for (answer, is_allowed) in
        [("1", true), ("y", true), ("3", false), ("", false), ("maybe", false)]
    {
        let new = Path::new("new.txt");
        let desk = Desk::new(&json!([write_file(new), says("I have seen what you decided.")]));
        let mut terminal = desk.on_terminal(&["Write a file"]);
        terminal.wait_for("? Create new.txt");
        terminal.wait_for("+new");
        terminal.wait_for("Allow once");
        terminal.answer("anything else rejects:", answer);
        let (status, shown) = terminal.end("Session ");
        assert_eq!((desk.exists("new.txt"), status.code()), (is_allowed, Some(0)), "{shown}");
        assert!(shown.contains("I have seen what you decided."), "{shown}");
    }
}

#[test]
fn yes_allows_once_what_the_sandbox_bounds_and_nothing_else() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().canonicalize().unwrap().join("outside.txt");
    let network = json!({ "command": "echo x > net.txt", "escalate": "network" });
    let desk = Desk::new(&json!([
        write_file(Path::new("inside.txt")),
        write_file(&target),
        write_file(Path::new(".git/hooks/pre-commit")),
        calls("exec", &json!({ "command": "echo x > run.txt" })),
        calls("exec", &network),
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
    }
    let desk = Desk::new(&json!([write_file(Path::new("new.txt")), says("Not written.")]));
    let (status, shown) = desk.on_terminal(&["--no-input", "Write"]).end("Session ");
    assert_eq!((status.code(), desk.exists("new.txt")), (Some(0), false), "{shown}");
}

#[test]
fn ctrl_c_cancels_the_turn_and_a_second_one_ends_the_program() {
    let desk = Desk::new(&endless());
    let mut terminal = desk.on_terminal(&["Begin"]);
    terminal.wait_for("I begin.");
    terminal.interrupt();
    let (status, shown) = terminal.end("Cancelled.");
    assert_eq!(status.code(), Some(130), "{shown}");
    desk.server.as_ref().unwrap().wait_for_hang_ups(1, process_waits::LIMIT).unwrap();

    // The question is withdrawn, and the file is not written.
    let desk = Desk::new(&json!([write_file(Path::new("new.txt"))]));
    let mut terminal = desk.on_terminal(&["Write"]);
    terminal.wait_for("anything else rejects:");
    terminal.interrupt();
    let (status, shown) = terminal.end("Cancelled.");
    assert_eq!((status.code(), desk.exists("new.txt")), (Some(130), false), "{shown}");

    let desk = Desk::new(&json!([calls("exec", &json!({ "command": "trap '' TERM; sleep 611" }))]));
    let mut terminal = desk.on_terminal(&["--mode", "full", "Run"]);
    terminal.wait_for("sleep 611");
    terminal.interrupt();
    terminal.wait_for("again ends the program");
    terminal.interrupt();
    let (status, shown) = terminal.end("\n");
    assert_eq!(status.code(), Some(130), "{shown}");
    turnwright_testing::eventually("the command to end", || {
        !turnwright_testing::is_alive("sleep\x00611")
    });
}

#[test]
fn a_program_that_the_system_ends_takes_its_turn_with_it() {
    let desk = Desk::new(&endless());
    let mut terminal = desk.on_terminal(&["Begin"]);
    terminal.wait_for("I begin.");
    terminal.terminate();
    let (status, shown) = terminal.end("\n");
    assert_eq!(status.code(), Some(143), "{shown}");
    desk.server.as_ref().unwrap().wait_for_hang_ups(1, process_waits::LIMIT).unwrap();

    // A command ends too.
    let desk = Desk::new(&json!([calls("exec", &json!({ "command": "sleep 613" }))]));
    let mut terminal = desk.on_terminal(&["--mode", "full", "Run"]);
    terminal.wait_for("sleep 613");
    turnwright_testing::eventually("the command to run", || {
        turnwright_testing::is_alive("sleep\x00613")
    });
    terminal.terminate();
    let (status, shown) = terminal.end("\n");
    assert_eq!(status.code(), Some(143), "{shown}");
    turnwright_testing::eventually("the command to end", || {
        !turnwright_testing::is_alive("sleep\x00613")
    });
}

#[test]
fn a_session_goes_on_in_its_folder() {
    let desk = Desk::new(&json!([says("One."), says("Two."), says("Three."), says("Four.")]));
    desk.run(&["my first words"]);
    let ended = desk.run(&["--session", "last", "my second words"]);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(0), "Two.\n"), "{}", ended.stderr);
    let messages = desk.messages(1);
    assert!(["my first words", "One.", "my second words"].iter().all(|it| messages.contains(it)));

    let listed = process_waits::output(
        Command::new(env!("CARGO_BIN_EXE_turnwright"))
            .args(["sessions", "list", "--all", "--json"])
            .env_clear()
            .env("TURNWRIGHT_HOME", desk.home.path()),
    );
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let session: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let id = session["session_id"].as_str().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
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
}

#[test]
fn the_exit_status_says_how_the_turn_has_ended() {
    let finish = |reason: &str| json!([[{ "text": "x" }, { "finish": reason }]]);
    let status =
        |code: u16| json!([[{ "status": code, "body": { "error": { "message": "no" } } }]]);
    let loops = json!([calls("list_dir", &json!({ "path": "." })), says("So far.")]);
    let limit = ["--budget", "max_turn_requests=1", "Go"];
    let table: [(&Value, &[&str], i32); 9] = [
        (&finish("stop"), &["Go"], 0),
        (&finish("content_filter"), &["Go"], 4),
        (&finish("length"), &["Go"], 5),
        (&loops, &limit, 6),
        (&status(400), &["Go"], 3),
        (&status(401), &["Go"], 2),
        (&finish("stop"), &["--mode", "nonsense", "Go"], 2),
        (&finish("stop"), &["--max-time", "soon", "Go"], 2),
        (&finish("stop"), &[" "], 2),
    ];
    for (replies, arguments, expected) in table {
        let ended = Desk::new(replies).run(arguments);
        assert_eq!(ended.status, Some(expected), "{replies} {arguments:?}: {}", ended.stderr);
    }
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

#[test]
fn a_turn_that_does_not_heed_its_time_is_cancelled() {
    // A model that never answers has no last word.
    let desk = Desk::new(&endless());
    let ended = desk.run(&["--max-time", "1s", "Go"]);
    assert_eq!(ended.status, Some(6), "{}", ended.stderr);
    assert_eq!(ended.stdout, "I begin. \n");
    assert!(ended.stderr.contains("Stopped: a limit is reached."), "{}", ended.stderr);
    desk.server.as_ref().unwrap().wait_for_hang_ups(1, process_waits::LIMIT).unwrap();

    // A command that ignores what can be ignored is killed.
    let deaf = "trap '' TERM INT HUP; while :; do sleep 617; done";
    let desk = Desk::new(&json!([calls("exec", &json!({ "command": deaf })), says("Unheard.")]));
    let ended = desk.run(&["--mode", "full", "--json", "--max-time", "1s", "Go"]);
    assert_eq!(ended.status, Some(6), "{}", ended.stderr);
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["result"]["stopReason"], "cancelled");
    turnwright_testing::eventually("the command to end", || {
        !turnwright_testing::is_alive("sleep\x00617")
    });

    // Neither does a question wait longer.
    let desk = Desk::new(&json!([write_file(Path::new("new.txt"))]));
    let mut terminal = desk.on_terminal(&["--max-time", "1s", "Write"]);
    terminal.wait_for("anything else rejects:");
    let (status, shown) = terminal.end("Stopped: a limit is reached.");
    assert_eq!((status.code(), desk.exists("new.txt")), (Some(6), false), "{shown}");
}

#[test]
fn the_offline_model_is_offered_and_never_used_in_silence() {
    let desk = Desk::bare();
    let ended = desk.run(&["list ."]);
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("No model is configured"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--model offline"), "{}", ended.stderr);

    let mut terminal = desk.on_terminal(&["list ."]);
    terminal.answer("Use it now? [y/N]", "n");
    assert_eq!(terminal.end("\n").0.code(), Some(2));
    let mut terminal = desk.on_terminal(&["list ."]);
    terminal.answer("Use it now? [y/N]", "y");
    let (status, shown) = terminal.end("Session ");
    assert_eq!(status.code(), Some(0), "{shown}");
    assert_eq!(desk.run(&["--model", "offline", "list ."]).status, Some(0));
}

/// What remains of `shown` without the sequences that we write ourselves: colours, attributes, and clearing
/// the line.
fn without_own_sequences(shown: &str) -> String {
    let mut text = shown.replace("\x1b[K", "");
    for number in ["0", "1", "2", "3", "4", "31", "32", "36", "1;4", "1;3", "2;36", "1;36"] {
        text = text.replace(&format!("\x1b[{number}m"), "");
    }
    text
}

#[test]
fn no_escape_sequence_of_a_model_a_file_or_a_command_reaches_the_terminal() {
    const EVIL: &str = "\x1b]0;owned\x07\x1b[2J\u{9b}31m\x1b]52;c;eA==\x07\x08\r";
    let write = calls("write_file", &json!({ "path": "evil.txt", "content": EVIL }));
    let print = calls("exec", &json!({ "command": "printf '\\033[2J\\033]0;x\\007'; false" }));
    let ask =
        calls("exec", &json!({ "command": format!("touch 'a{EVIL}'"), "escalate": "network" }));
    let desk = Desk::new(&json!([
        [{ "text": format!("Text {EVIL} **bold{EVIL}** `{EVIL}`\n```\n{EVIL}\n") }, write[0]],
        print,
        ask,
        calls("read_file", &json!({ "path": format!("no{EVIL}.txt") })),
        [{ "status": 400, "body": { "error": { "message": format!("Bad {EVIL}") } } }],
    ]));
    let mut terminal = desk.on_terminal(&["--mode", "auto", "Be evil"]);
    terminal.answer("anything else rejects:", "n");
    let (_, shown) = terminal.end("Session ");
    let rest = without_own_sequences(&shown);
    let is_control = |it: char| it.is_control() && !['\n', '\r', '\t'].contains(&it);
    assert!(!rest.contains(is_control), "{rest:?}");
    // A carriage return of ours is followed by a line feed or begins a cleared line.
    assert!(shown.contains("Text ␛]0;owned␇"), "{shown}");
}

#[test]
fn styles_are_shown_where_they_can_be() {
    let reply = json!([says("Some **bold** text.\n")]);
    let shown = |name: &str, value: &str| {
        let desk = Desk::new(&reply);
        let mut command = desk.command(&["Go"]);
        command.env(name, value);
        PseudoTerminal::start_on_screen(command, 80).end("Session ").1
    };
    assert!(shown("X", "").contains("Some \x1b[1mbold\x1b[0m text."));
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = shown(name, value);
        assert!(shown.contains("Some **bold** text."), "{name}: {shown:?}");
        assert!(!shown.contains("\x1b["), "{name}: {shown:?}");
    }
}

#[test]
fn lines_are_broken_between_words() {
    let desk = Desk::new(&json!([says("These are words for a terminal that is quite narrow.\n")]));
    let terminal = PseudoTerminal::start_on_screen(desk.command(&["Go"]), 40);
    let (_, shown) = terminal.end("Session ");
    assert!(shown.contains("These are words for a terminal that is\r\nquite narrow."), "{shown:?}");
}

#[test]
fn a_conversation_has_turns_a_history_and_an_end() {
    let desk = Desk::new(
        &json!([says("One."), says("Two."), [{ "text": "I begin. " }, { "hang": true }], says("Four.")]),
    );
    let mut terminal = desk.on_terminal(&[]);
    terminal.wait_for("leaves.");
    terminal.wait_for("> ");
    terminal.type_in("first words\r");
    terminal.wait_for("One.");
    terminal.wait_for("> ");
    // The arrow brings the prompt back.
    terminal.type_in("\x1b[A and more\r");
    terminal.wait_for("Two.");
    terminal.wait_for("> ");
    terminal.type_in("/hel\t\r");
    terminal.wait_for("/undo");
    terminal.wait_for("> ");
    terminal.type_in("go on\r");
    terminal.wait_for("I begin.");
    terminal.interrupt();
    terminal.wait_for("Cancelled.");
    terminal.wait_for("> ");
    terminal.type_in("half a line\u{3}");
    terminal.wait_for("Ctrl-D leaves.");
    terminal.wait_for("> ");
    terminal.type_in("and again\r");
    terminal.wait_for("Four.");
    terminal.wait_for("> ");
    terminal.type_in("\u{4}");
    let (status, shown) = terminal.end("");
    assert_eq!(status.code(), Some(0), "{shown}");
    assert!(desk.messages(1).contains("first words and more"));
    let history = desk.home.path().join("state/run_history");
    let kept = std::fs::read_to_string(&history).unwrap();
    assert_eq!(
        kept,
        "first words\nfirst words and more\n/help \ngo on\nand again\n"
            .replace("/help \n", "/help\n")
    );
    assert_eq!(std::fs::metadata(history).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn without_a_prompt_only_a_terminal_starts_a_conversation() {
    let desk = Desk::new(&json!([]));
    for arguments in [&[][..], &["--json"], &["--no-input"], &["--file", "-"]] {
        let ended = desk.run(arguments);
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
    }
    let (status, shown) = desk.on_terminal(&["--json"]).end("a prompt is missing");
    assert_eq!(status.code(), Some(2), "{shown}");
}
