//! `turnwright replay` as a program: what it prints, its exit statuses, and that commands of a recording do
//! not run again.

use std::path::Path;

use serde_json::json;
use turnwright_testing::command_lines::{then, touch};
use turnwright_testing::process_waits;
use turnwright_testing::scripted_model::{Scenario, Server};

use crate::agent::{TestAgent, calls, says, subcommand};
use crate::mcp_elicit::asking;

/// The output on stdout, that on stderr, and the exit status.
fn replay(path: &Path, arguments: &[&str]) -> (String, String, i32) {
    replay_with(path, arguments, &[])
}

fn replay_with(
    path: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> (String, String, i32) {
    let home = turnwright_testing::temporary_folder();
    let output = process_waits::output(
        subcommand(home.path(), &["replay"])
            .arg(path)
            .args(arguments)
            .envs(variables.iter().copied()),
    )
    .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

#[test]
fn commands_are_played_back_and_do_not_run_again() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("commands.ndjson");
    let mark = folder.path().join("mark");
    let command = json!({ "command": then("echo made", &touch(mark.to_str().unwrap())) });
    let mut agent = TestAgent::builder()
        .model(json!([calls("exec", &command), says("Made.")]))
        .variable("TURNWRIGHT_MODE", "full")
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    assert_eq!(agent.turn("make it"), "end_turn");
    agent.close();
    std::fs::remove_file(&mark).unwrap();
    let (report, errors, status) = replay(&path, &[]);
    assert_eq!((status, errors.as_str()), (0, ""), "{report}");
    assert!(report.starts_with("The same: ") && report.ends_with(" turns: 1.\n"), "{report}");

    // Another model is asked the same, and what it would do is not done.
    let (report, errors, status) = replay(&path, &["--model", "offline"]);
    assert_eq!((status, errors.as_str()), (0, ""), "{report}");
    assert!(report.starts_with("> make it\n") && report.contains("[end_turn]"), "{report}");
    assert!(!mark.exists());
    let (report, errors, status) = replay(&path, &["--model", "unknown"]);
    assert_eq!((status, report.as_str()), (2, ""), "{errors}");
    assert!(errors.starts_with("turnwright replay: No provider is configured"), "{errors}");
    let denies = json!([{ "status": 401, "body": { "error": { "message": "bad key" } } }]);
    let scenario = Scenario::from_value(json!({ "replies": [denies] })).unwrap();
    let other = Server::start(scenario, 0).unwrap();
    let url = other.base_url();
    let variables = [("OPENAI_BASE_URL", url.as_str()), ("OPENAI_API_KEY", "sk-test-1234")];
    let (report, errors, status) = replay_with(&path, &["--model", "other"], &variables);
    assert_eq!(status, 2, "{report}{errors}");
    assert!(report.starts_with("> make it\n"), "{report}");
    assert!(errors.starts_with("turnwright replay: "), "{errors}");

    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("Made.\"},\"messageId\"", "Done.\"},\"messageId\""))
        .unwrap();
    let (report, errors, status) = replay(&path, &[]);
    assert_eq!((status, errors.as_str()), (1, ""), "{report}");
    let expected =
        ["Different in turn 1, at line ", ": the text\n", "  recorded: ", "\n  now:      "];
    assert!(expected.iter().all(|it| report.contains(it)), "{report}");

    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    let (report, errors, status) = replay(&path, &[]);
    assert_eq!((status, report.as_str()), (2, ""), "{errors}");
    assert!(errors.starts_with("turnwright replay: ") && errors.contains("is cut off"), "{errors}");
    let (_, errors, status) = replay(Path::new("/missing"), &[]);
    assert_eq!(status, 2);
    let expected = "turnwright replay: /missing cannot be played back. It cannot be read: ";
    assert!(errors.starts_with(expected), "{errors}");
}

#[test]
fn a_session_of_an_earlier_process_is_played_back_and_another_model_is_told_all_of_it() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("stored.ndjson");
    let mut agent = TestAgent::builder()
        .model(json!([says("One."), says("Two."), says("Three.")]))
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    for words in ["first", "second"] {
        assert_eq!(agent.turn(words), "end_turn");
    }
    agent.restart();
    let session = agent.session.clone();
    agent.load(&session);
    assert_eq!(agent.turn("third"), "end_turn");
    agent.close();
    let path = folder.path().join("stored-2.ndjson");
    let (report, errors, status) = replay(&path, &[]);
    assert_eq!((status, errors.as_str()), (0, ""), "{report}");
    assert!(report.ends_with(" turns: 1.\n"), "{report}");

    let scenario = Scenario::from_value(json!({ "replies": [says("Drei.")] })).unwrap();
    let other = Server::start(scenario, 0).unwrap();
    let variables =
        [("OPENAI_BASE_URL", other.base_url()), ("OPENAI_API_KEY", "sk-test-1234".into())];
    let variables = variables.each_ref().map(|it| (it.0, it.1.as_str()));
    let (report, errors, status) = replay_with(&path, &["--model", "other"], &variables);
    assert_eq!((status, errors.as_str()), (0, ""), "{report}");
    assert!(report.starts_with("> third\n") && report.contains("Drei."), "{report}");
    let asked = other.request(0).body["messages"].to_string();
    assert!(
        asked.contains("first") && asked.contains("Two.") && asked.contains("third"),
        "{asked}"
    );
}

#[test]
fn another_model_is_told_the_instructions_of_the_recorded_project() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("instructions.ndjson");
    let mut agent = TestAgent::builder()
        .model(json!([says("Hello.")]))
        .file("AGENTS.md", "Answer in Latin, canary.\n")
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    assert_eq!(agent.turn("greet me"), "end_turn");
    agent.close();
    let look = json!([{ "text": "Spectabo." }, calls("list_dir", &json!({ "path": "." }))[0]]);
    let scenario = Scenario::from_value(json!({ "replies": [look, says("Salve.")] })).unwrap();
    let other = Server::start(scenario, 0).unwrap();
    let url = other.base_url();
    let (report, errors, status) = replay_with(
        &path,
        &["--model", "other"],
        &[("OPENAI_BASE_URL", &url), ("OPENAI_API_KEY", "sk-test-1234")],
    );
    assert_eq!((status, errors.as_str()), (0, ""), "{report}");
    // In the order of the turn.
    assert!(report.starts_with("> greet me\nSpectabo.\n  "), "{report}");
    assert!(report.ends_with("\nSalve.\n[end_turn]\n\n"), "{report}");
    let asked = other.request(0).body["messages"].to_string();
    assert_eq!(asked.matches("Answer in Latin, canary.").count(), 1, "{asked}");
}

#[test]
fn a_form_of_a_server_is_not_shown_again() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("form.ndjson");
    let mut agent = TestAgent::builder()
        .model(json!([calls("mcp__forms__ask", &json!({})), says("Hello, Ada.")]))
        .permission("allow_once")
        .server("forms", &asking(&json!({})))
        .capabilities(json!({ "elicitation": { "form": {} } }))
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    let turn = agent.prompt("go");
    let question = agent.wait_for_request("elicitation/create");
    agent.respond(&question, &json!({ "action": "accept", "content": { "name": "Ada" } }));
    assert_eq!(agent.stop_reason(&turn), "end_turn");
    agent.close();
    let (report, errors, status) = replay(&path, &[]);
    assert_eq!((status, errors.as_str()), (0, ""), "{report}");
}

#[test]
fn a_strangers_recording_gives_the_terminal_no_orders() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("strange.ndjson");
    for head in [
        json!({ "turnwright-recording": 1, "os": "\u{1b}]0;x\u{7}" }),
        json!({ "turnwright-recording": 2, "version": "\u{1b}]0;x\u{7}" }),
    ] {
        std::fs::write(&path, format!("{head}\n")).unwrap();
        let (report, errors, status) = replay(&path, &[]);
        assert_eq!((status, report.as_str()), (2, ""), "{errors}");
        assert!(errors.contains("]0;x") && !errors.contains('\u{1b}'), "{errors:?}");
    }

    let path = folder.path().join("renamed.ndjson");
    let mut agent = TestAgent::builder()
        .model(json!([says("Hello.")]))
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    assert_eq!(agent.turn("greet me"), "end_turn");
    agent.close();
    let text = std::fs::read_to_string(&path).unwrap();
    let field = "\"stopReason\":";
    std::fs::write(&path, text.replace(field, &format!("\"\\u001b]0;x\":1,{field}"))).unwrap();
    let (report, errors, status) = replay(&path, &[]);
    assert_eq!((status, errors.as_str()), (1, ""), "{report}");
    assert!(report.contains("]0;x") && !report.contains('\u{1b}'), "{report:?}");
}
