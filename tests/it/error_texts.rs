//! The results of failed tool calls: each must tell the model the cause and what to do next.

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::command_lines::{line_for, run_on, then};

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, is_alive, says};

/// Runs one call in a turn of its own and returns the result that the model gets.
fn call_result(agent: &mut TestAgent, name: &str, arguments: &Value) -> String {
    agent.model().push(calls(name, arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(agent)
}

fn edit(old: &str) -> Value {
    json!({ "path": "src/a.rs", "old_string": old, "new_string": "new" })
}

const SOURCE: &str = "fn a() {\n    return x;\n}\n\nfn b() {\n    return y;\n}\n\nfn c() {\n    \
                      return x;\n}\n";

fn source() -> TestAgentBuilder {
    TestAgent::builder().file("src/a.rs", SOURCE)
}

/// A command that prints more lines than a result has.
fn many_lines() -> String {
    let windows = format!("for /l %i in (1,1,800) do @echo %i {}", "x".repeat(150));
    line_for("seq 1 20000", &windows).to_owned()
}

#[test]
fn each_error_says_what_is_wrong_and_what_to_do() {
    let table: &[(&str, &str, Value, &[&str])] = &[
        (
            "no match",
            "edit_file",
            edit("fn b() {\n\treturn z;\n}\n"),
            &[
                "old_string not found in src/a.rs. Closest: lines 5–7 (",
                "First difference, line 6: file has \"····return y;\" you sent \"→return z;\".",
                "Re-read lines ",
                "or copy exactly",
                "Nothing was written",
            ],
        ),
        (
            "ambiguous",
            "edit_file",
            edit("    return x;\n"),
            &["old_string matches 2 places: lines 2, 10. Add surrounding lines", "set replace_all"],
        ),
        (
            "unknown tool",
            "reed_file",
            json!({ "path": "src/a.rs" }),
            &["No tool \"reed_file\". Did you mean read_file? Available: ", "write_file"],
        ),
        (
            "wrong argument",
            "read_file",
            json!({ "path": "src/a.rs", "start_line": "first" }),
            &[
                "Invalid arguments for read_file: `start_line` must be",
                "not \"first\"",
                "It takes: ",
            ],
        ),
        (
            "missing file",
            "read_file",
            json!({ "path": "src/b.rs" }),
            &["src/b.rs | Error: does not exist", "Similar names: src/a.rs"],
        ),
        (
            "a device",
            "read_file",
            json!({ "path": "/dev/zero" }),
            &["is a device, not a regular file"],
        ),
        (
            "no such command",
            "exec",
            json!({ "command": "no-such-program-here" }),
            if cfg!(windows) { &["[exit ", "ecogni"] } else { &["[exit 127 · ", "not found"] },
        ),
        (
            "timeout",
            "exec",
            json!({ "command": then("echo part", &run_on("651.25")), "timeout": 5 }),
            &[
                "part\nStill",
                "Still running after 5 s as p2 (partial output above), for at most 30 min; \
                 longer only with background=true. Use exec_output id=p2, or signal=\"term\".",
            ],
        ),
        (
            "no such job",
            "exec_output",
            json!({ "id": "p9" }),
            &["no job \"p9\". Jobs: p2 `echo part"],
        ),
        (
            "truncated",
            "exec",
            json!({ "command": many_lines() }),
            &["lines omitted; full output: ", "lines omitted above; full output: "],
        ),
        ("a pattern that is none", "grep", json!({ "pattern": "a(" }), &["fn a() {"]),
        (
            "no public address",
            "web_fetch",
            json!({ "url": "http://169.254.169.254/latest" }),
            &["169.254.169.254 is a link-local address", "in `[web]` of the settings"],
        ),
        (
            "placeholder",
            "write_file",
            json!({ "path": "src/a.rs", "content": "fn a() {}\n// ... rest of file unchanged ...\n" }),
            &["stands for lines that were left out", "Nothing was written"],
        ),
    ];
    let mut agent = source().permission("allow_once").start();
    for (case, name, arguments, expected) in table {
        if cfg!(windows) && *case == "a device" {
            continue;
        }
        let result = call_result(&mut agent, name, arguments);
        for text in *expected {
            assert!(result.contains(text), "{case}: {text:?} is not in {result}");
        }
    }
    assert_eq!(agent.read("src/a.rs"), SOURCE);
}

#[test]
fn the_result_of_a_cancelled_command_has_its_output() {
    let command = then("echo half", &run_on("652.25"));
    let mut agent = source()
        .model(json!([calls("exec", &json!({ "command": command })), says("Stopped.")]))
        .permission("allow_once")
        .start();
    let id = agent.prompt("go");
    agent.wait_for_status("in_progress");
    // The shell comes to this after the output was printed.
    eventually("the command runs", || is_alive("sleep\u{0}652.25"));
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    assert_eq!(agent.turn("and?"), "end_turn");
    let result = cards::results(&agent, 1).remove(0);
    assert!(result.contains("cancelled by the user · ") && result.contains("half"), "{result}");
}
