//! `turnwright run` on a terminal: questions, Ctrl-C, signals, colours, and the conversation.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::process::Command;

use serde_json::{Value, json};
use turnwright_testing::pseudo_terminal::PseudoTerminal;
use turnwright_testing::{calls, process_waits, says};

use crate::run::{Desk, endless, write_file};

impl Desk {
    fn on_terminal(&self, arguments: &[&str]) -> PseudoTerminal {
        PseudoTerminal::start_on_screen(self.command(arguments), 80)
    }
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
        terminal.answer("anything else rejects", answer);
        let (status, shown) = terminal.wait_for_end("Session ");
        assert_eq!((desk.exists("new.txt"), status.code()), (is_allowed, Some(0)), "{shown}");
        assert!(shown.contains("I have seen what you decided."), "{shown}");
    }
}

#[test]
fn a_question_shows_its_command_once() {
    let desk = Desk::new(&json!([
        calls("exec", &json!({ "command": "touch new.txt && rm new.txt" })),
        says("I have seen what you decided."),
    ]));
    let mut terminal = desk.on_terminal(&["Run"]);
    terminal.answer("anything else rejects", "n");
    let (_, shown) = terminal.wait_for_end("Session ");
    let question = shown.split("Allow once").next().unwrap();
    assert_eq!(question.matches("touch new.txt && rm new.txt").count(), 1, "{shown}");
}

#[test]
fn ctrl_c_cancels_the_turn_and_a_second_one_ends_the_program() {
    let desk = Desk::new(&endless());
    let mut terminal = desk.on_terminal(&["Begin"]);
    terminal.wait_for("I begin.");
    terminal.interrupt();
    let (status, shown) = terminal.wait_for_end("Cancelled.");
    assert_eq!(status.code(), Some(130), "{shown}");
    desk.server.as_ref().unwrap().wait_for_hang_ups(1, process_waits::LIMIT).unwrap();

    // The question is withdrawn, and the file is not written.
    let desk = Desk::new(&json!([write_file(Path::new("new.txt"))]));
    let mut terminal = desk.on_terminal(&["Write"]);
    terminal.wait_for("anything else rejects");
    terminal.interrupt();
    let (status, shown) = terminal.wait_for_end("Cancelled.");
    assert_eq!((status.code(), desk.exists("new.txt")), (Some(130), false), "{shown}");

    let desk = Desk::new(&json!([calls("exec", &json!({ "command": "trap '' TERM; sleep 611" }))]));
    let mut terminal = desk.on_terminal(&["--mode", "full", "Run"]);
    terminal.wait_for("sleep 611");
    terminal.interrupt();
    terminal.wait_for("again ends the program");
    // One that follows at once is taken for the first.
    turnwright_testing::eventually("another one to end the command", || {
        terminal.interrupt();
        !turnwright_testing::is_alive("sleep\x00611")
    });
    let (status, shown) = terminal.wait_for_end("\n");
    assert_eq!(status.code(), Some(130), "{shown}");
    turnwright_testing::assert_gone("sleep\x00611");
}

#[test]
fn a_program_that_the_system_ends_takes_its_turn_with_it() {
    let desk = Desk::new(&endless());
    let mut terminal = desk.on_terminal(&["Begin"]);
    terminal.wait_for("I begin.");
    terminal.terminate();
    let (status, shown) = terminal.wait_for_end("\n");
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
    let (status, shown) = terminal.wait_for_end("\n");
    assert_eq!(status.code(), Some(143), "{shown}");
    turnwright_testing::assert_gone("sleep\x00613");
}

#[test]
fn a_conversation_that_the_system_ends_leaves_the_terminal_as_it_was() {
    let desk = Desk::new(&json!([]));
    let mut terminal = desk.on_terminal(&[]);
    terminal.wait_for("leaves.");
    terminal.wait_for("\x1b[?2004h");
    terminal.terminate();
    let (status, shown) = terminal.wait_for_end("\x1b[?2004l");
    assert_eq!(status.code(), Some(143), "{shown}");
}

#[test]
fn with_no_input_a_terminal_is_not_asked() {
    let desk = Desk::new(&json!([write_file(Path::new("new.txt")), says("Not written.")]));
    let (status, shown) = desk.on_terminal(&["--no-input", "Write"]).wait_for_end("Session ");
    assert_eq!((status.code(), desk.exists("new.txt")), (Some(0), false), "{shown}");
}

#[test]
fn neither_a_command_nor_a_question_outlives_the_time_of_a_turn() {
    // A command that ignores what can be ignored is killed.
    let deaf = "trap '' TERM INT HUP; while :; do sleep 617; done";
    let desk = Desk::new(&json!([calls("exec", &json!({ "command": deaf })), says("Unheard.")]));
    let ended = desk.run(&["--mode", "full", "--json", "--max-time", "1s", "Go"]);
    assert_eq!(ended.status, Some(6), "{}", ended.stderr);
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["result"]["stopReason"], "cancelled");
    turnwright_testing::assert_gone("sleep\x00617");

    let desk = Desk::new(&json!([write_file(Path::new("new.txt"))]));
    let mut terminal = desk.on_terminal(&["--max-time", "4s", "Write"]);
    terminal.wait_for("anything else rejects");
    let (status, shown) = terminal.wait_for_end("Stopped before the work was done.");
    assert_eq!((status.code(), desk.exists("new.txt")), (Some(6), false), "{shown}");
}

#[test]
fn the_offline_model_is_offered_and_used_after_a_yes() {
    let desk = Desk::bare();
    let mut terminal = desk.on_terminal(&["list ."]);
    terminal.answer("Use it now? [y/N]", "n");
    assert_eq!(terminal.wait_for_end("\n").0.code(), Some(2));
    let mut terminal = desk.on_terminal(&["list ."]);
    terminal.answer("Use it now? [y/N]", "y");
    let (status, shown) = terminal.wait_for_end("Session ");
    assert_eq!(status.code(), Some(0), "{shown}");
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
    terminal.answer("anything else rejects", "n");
    let (_, shown) = terminal.wait_for_end("Session ");
    let rest = without_own_sequences(&shown);
    let is_control = |it: char| it.is_control() && !['\n', '\r', '\t'].contains(&it);
    assert!(!rest.contains(is_control), "{rest:?}");
    // A carriage return of ours is followed by a line feed or begins a cleared line.
    assert!(shown.contains("Text ␛]0;owned␇"), "{shown}");
}

/// The parameters of all sequences that select colours and attributes.
fn style_parameters(shown: &str) -> BTreeSet<String> {
    let sequences = shown.split("\x1b[").skip(1).filter_map(|it| {
        let end = it.find(|it: char| it.is_ascii_alphabetic())?;
        (it[end..].starts_with('m')).then(|| it[..end].to_owned())
    });
    sequences.flat_map(|it| it.split(';').map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// A background, black, white or a colour by its number would be unreadable on a light or on a dark terminal.
/// Themes choose the shades of red, green and cyan so that they can be read.
#[test]
fn only_colours_that_the_terminal_chooses_are_used() {
    let text = "# Title\n\nSome **bold**, *slanted* and `code`, [a link](https://example.org).\n\n\
                > said\n\n- one\n- two\n\n```rust\nlet x = 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\n";
    let plan = json!({ "entries": [
        { "content": "Look", "status": "completed" },
        { "content": "Write", "status": "in_progress" },
    ] });
    let edit = json!({ "path": "a.txt", "edits": [{ "old_text": "one", "new_text": "two" }] });
    let desk = Desk::new(&json!([
        calls("plan", &plan),
        calls("read_file", &json!({ "path": "missing.txt" })),
        calls("edit_file", &edit),
        says(text),
        // A step of the plan is open, so the model is asked once more.
        says("Nothing can be run here."),
        [{ "status": 400, "body": { "error": { "message": "no" } } }],
    ]));
    desk.write("a.txt", "one\n");
    let mut terminal = desk.on_terminal(&[]);
    terminal.wait_for("> ");
    terminal.type_in("go\r");
    terminal.answer("anything else rejects", "y");
    terminal.wait_for("──┼──");
    terminal.wait_for("Nothing can be run here.");
    terminal.wait_for("> ");
    // Says what the command is for, behind the cursor.
    terminal.type_in("/undo");
    terminal.wait_for("/undo");
    terminal.type_in("\u{3}");
    terminal.wait_for("> ");
    terminal.type_in("again\r");
    terminal.wait_for("error: ");
    terminal.wait_for("> ");
    terminal.type_in("\u{4}");
    let (_, shown) = terminal.wait_for_end("");
    let used = style_parameters(&shown);
    let expected = ["0", "1", "2", "3", "31", "32", "36", "4"].map(str::to_owned);
    assert_eq!(used, BTreeSet::from(expected), "{shown}");
}

#[test]
fn styles_are_shown_where_they_can_be() {
    let reply = json!([says("Some **bold** text.\n")]);
    let shown = |name: &str, value: &str| {
        let desk = Desk::new(&reply);
        let mut command = desk.command(&["Go"]);
        command.env(name, value);
        PseudoTerminal::start_on_screen(command, 80).wait_for_end("Session ").1
    };
    assert!(shown("X", "").contains("Some \x1b[1mbold\x1b[0m text."));
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = shown(name, value);
        assert!(shown.contains("Some **bold** text."), "{name}: {shown:?}");
        assert!(!shown.contains("\x1b["), "{name}: {shown:?}");
    }
}

#[test]
fn a_table_is_aligned_and_fits_into_the_terminal() {
    let table =
        "| Name | What it is |\n|---|---|\n| `a` | a text that is too long for this line |\nEnd.\n";
    let desk = Desk::new(&json!([says(table)]));
    let mut command = desk.command(&["Go"]);
    command.env("NO_COLOR", "1");
    let (_, shown) = PseudoTerminal::start_on_screen(command, 40).wait_for_end("Session ");
    let expected = "Name │ What it is\r\n\
                    ─────┼──────────────────────────────────\r\n\
                    `a`  │ a text that is too long for this\r\n     │ line\r\nEnd.\r\n";
    assert!(shown.contains(expected), "{shown:?}");
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
    // The model is not asked about a mistyped command.
    terminal.type_in("/modee plan\r");
    terminal.wait_for("Did you mean /mode?");
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
    let (status, shown) = terminal.wait_for_end("");
    assert_eq!(status.code(), Some(0), "{shown}");
    assert!(desk.messages(1).contains("first words and more"));
    let history = desk.home.path().join("state/run_history");
    let kept = std::fs::read_to_string(&history).unwrap();
    assert_eq!(
        kept,
        "first words\nfirst words and more\n/help \n/modee plan\ngo on\nand again\n"
            .replace("/help \n", "/help\n")
    );
    assert_eq!(std::fs::metadata(history).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_is_typed_during_a_turn_is_sent_line_by_line_afterwards() {
    let held = [json!({ "text": "I begin. " }), json!({ "hold": true }), json!({ "text": "One." })];
    let desk = Desk::new(&json!([
        held,
        says("Two."),
        [{ "hold": true }, write_file(Path::new("new.txt"))[0]],
        says("Three."),
        says("Four."),
        says("Five."),
    ]));
    let mut terminal = desk.on_terminal(&[]);
    terminal.wait_for("> ");
    terminal.type_in("first\r");
    terminal.wait_for("I begin.");
    terminal.type_in("second\nthird\n");
    desk.server.as_ref().unwrap().release();
    terminal.wait_for("Two.");
    // The third is held; what is typed before a question is no answer to it.
    terminal.wait_for("third");
    terminal.type_in("fourth\nfifth ");
    desk.server.as_ref().unwrap().release();
    terminal.answer("anything else rejects", "n");
    terminal.wait_for("Three.");
    terminal.wait_for("> fourth");
    terminal.wait_for("Four.");
    terminal.wait_for("> fifth");
    terminal.type_in("and more\r");
    terminal.wait_for("Five.");
    terminal.wait_for("> ");
    terminal.type_in("\u{4}");
    let (status, shown) = terminal.wait_for_end("");
    assert_eq!((status.code(), desk.exists("new.txt")), (Some(0), false), "{shown}");
    for (request, words) in [(1, "second"), (2, "third"), (4, "fourth"), (5, "fifth and more")] {
        assert!(desk.messages(request).contains(words), "{words}: {}", desk.messages(request));
    }
}

#[test]
fn lines_that_are_pasted_are_prompts_one_after_the_other() {
    let desk = Desk::new(&json!([says("One."), says("Two."), says("Three.")]));
    let mut terminal = desk.on_terminal(&[]);
    terminal.wait_for("> ");
    terminal.type_in("first\rsecond\rthi");
    terminal.wait_for("Two.");
    terminal.wait_for("> ");
    terminal.type_in("rd\r");
    terminal.wait_for("Three.");
    terminal.wait_for("> ");
    terminal.type_in("\u{4}");
    let (_, shown) = terminal.wait_for_end("");
    for (request, words) in [(0, "first"), (1, "second"), (2, "third")] {
        assert!(desk.messages(request).contains(words), "{words}: {shown}");
    }
}

#[test]
fn prompts_that_were_typed_during_a_turn_are_not_sent_after_it_was_cancelled() {
    let desk = Desk::new(&json!([
        [{ "hold": true }, write_file(Path::new("new.txt"))[0]],
        says("Two."),
    ]));
    let mut terminal = desk.on_terminal(&[]);
    terminal.wait_for("> ");
    terminal.type_in("first\r");
    terminal.wait_for("waiting for the model");
    terminal.type_in("delete all\n");
    desk.server.as_ref().unwrap().release();
    terminal.wait_for("anything else rejects");
    terminal.interrupt();
    terminal.wait_for("Not sent: delete all");
    terminal.wait_for("> ");
    terminal.type_in("go on\r");
    terminal.wait_for("Two.");
    terminal.wait_for("> ");
    terminal.type_in("\u{4}");
    let (_, shown) = terminal.wait_for_end("");
    assert!(!desk.messages(1).contains("delete all"), "{shown}");
}

#[test]
fn words_in_place_of_an_answer_reject_and_are_read_by_the_model() {
    for (answer, is_told) in [("please use better names", true), ("n", false), ("7", false)] {
        let new = Path::new("new.txt");
        let desk = Desk::new(&json!([write_file(new), says("I have read it.")]));
        let mut terminal = desk.on_terminal(&["Write a file"]);
        terminal.answer("anything else rejects", answer);
        let (status, shown) = terminal.wait_for_end("Session ");
        assert_eq!((desk.exists("new.txt"), status.code()), (false, Some(0)), "{shown}");
        let messages: Value = serde_json::from_str(&desk.messages(1)).unwrap();
        let last = messages.as_array().unwrap().last().unwrap();
        assert_eq!(last["role"] == "user", is_told, "{last}");
        assert!(!is_told || last.to_string().contains(answer), "{last}");
        assert_eq!(shown.contains("Your words go to the model."), is_told, "{shown}");
    }
}

#[test]
fn json_needs_a_prompt_on_a_terminal_too() {
    let desk = Desk::new(&json!([]));
    let (status, shown) = desk.on_terminal(&["--json"]).wait_for_end("a prompt is missing");
    assert_eq!(status.code(), Some(2), "{shown}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_in_the_background_of_a_shell_ends_by_itself() {
    let desk = Desk::new(&json!([says("Done.")]));
    let run = desk.command(&["Begin"]);
    let mut command = Command::new("setsid");
    command.env_clear().envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(run.get_current_dir().unwrap());
    let script = "set -m; \"$@\" & wait $!; echo \"ended with $?\"";
    command.args(["--ctty", "sh", "-c", script, "sh"]);
    command.arg(run.get_program()).args(run.get_args());
    let (_, shown) = PseudoTerminal::start_on_screen(command, 80).wait_for_end("ended with ");
    assert!(shown.contains("Done.") && shown.contains("ended with 0"), "{shown}");
}
