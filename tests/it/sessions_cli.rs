//! The subcommands `turnwright sessions` and `turnwright history`, which list, show and delete stored
//! sessions and tool calls.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, calls, says, subcommand};

/// The output on stdout and stderr, and the exit status.
fn run(home: &Path, folder: &Path, arguments: &[&str]) -> (String, i32) {
    let output = process_waits::output(&mut command(home, folder, arguments)).unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.code().unwrap())
}

fn command(home: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = subcommand(home, arguments);
    command.stdin(Stdio::null()).current_dir(folder);
    command
}

/// An agent with two stored sessions in one folder.
fn agent() -> TestAgent {
    let mut agent = TestAgent::builder().file("a.txt", "text\n").permission("allow_once").start();
    let mut call = |prompt: &str, name: &str, arguments: &Value| {
        agent.model().push(calls(name, arguments)).unwrap();
        agent.model().push(says("An \u{1b}[31manswer.")).unwrap();
        assert_eq!(agent.turn(prompt), "end_turn");
    };
    call("look \u{1b}]0;x\u{7}there", "read_file", &json!({ "path": "a.txt" }));
    call("and there", "read_file", &json!({ "path": "none.txt" }));
    agent.session = agent.new_session();
    agent.model().push(says("Hello.")).unwrap();
    agent.turn("greet me");
    agent
}

#[test]
fn without_stored_sessions_the_commands_say_so() {
    let home = turnwright_testing::temporary_folder();
    for arguments in [&["history"][..], &["sessions", "list"], &["sessions", "show", "last"]] {
        let (text, status) = run(home.path(), home.path(), arguments);
        assert_eq!((text.as_str(), status), ("No stored sessions.\n", 0), "{arguments:?}");
    }
    assert_eq!(run(home.path(), home.path(), &["history", "--json"]), (String::new(), 0));
}

#[test]
#[cfg(unix)]
fn sessions_that_cannot_be_reached_are_not_said_to_be_absent() {
    let home = turnwright_testing::temporary_folder();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    for arguments in [&["history"][..], &["sessions", "list"], &["stats"]] {
        let (text, status) = run(&file, home.path(), arguments);
        assert!(!text.contains("No stored sessions") && status != 0, "{arguments:?}: {text}");
    }
}

#[test]
fn a_command_that_does_not_exist_is_answered_with_what_the_program_is() {
    let home = turnwright_testing::temporary_folder();
    let (text, status) = run(home.path(), home.path(), &["begin"]);
    assert!(text.contains("an agent for editors that speak ACP"), "{text}");
    assert!(!text.contains("undo") && status == 2, "{text}");
    let (text, _) = run(home.path(), home.path(), &["sesions"]);
    assert!(text.contains("'sessions'") && !text.contains("an agent for editors"), "{text}");
    let (text, _) = run(home.path(), home.path(), &["sessions", "xist"]);
    assert!(!text.contains("similar") && !text.contains("an agent for editors"), "{text}");
}

#[test]
fn options_of_other_agents_and_prompts_without_quotes_are_answered_with_what_to_type() {
    let home = turnwright_testing::temporary_folder();
    for (arguments, expected) in [
        (&["fix the tests"][..], "`turnwright run \"PROMPT\"`"),
        (&["-p", "fix the tests"], "`turnwright run \"PROMPT\"`"),
        (&["run", "--prompt", "fix the tests"], "`turnwright run \"PROMPT\"`"),
        (&["run", "--continue"], "`turnwright run --session last \"PROMPT\"`"),
        (&["run", "--output-format", "json"], "`turnwright run --json`"),
        (&["run", "fix", "the", "tests"], "into quotes"),
        (&["policy", "check", "npm", "install"], "into quotes"),
        (&["run", "--modle", "x"], "'--model'"),
    ] {
        let (text, status) = run(home.path(), home.path(), arguments);
        assert!(text.contains(expected) && status == 2, "{arguments:?}: {text}");
        assert!(!text.contains("as a value") && !text.contains("'--config'"), "{text}");
    }
}

#[test]
fn history_prints_a_table_or_json_lines() {
    let agent = agent();
    let history = |arguments: &[&str]| {
        run(agent.home(), agent.workspace(), &[&["history"], arguments].concat())
    };
    let (text, status) = history(&[]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    let first = text.lines().next().unwrap();
    for part in ["read_file", "error", "none.txt"] {
        assert!(first.contains(part), "the newest call is not the first: {text}");
    }
    assert!(text.contains("success") && text.contains(" ms "), "{text}");
    for (arguments, expected) in [
        (&["--status", "error"][..], 1),
        (&["--tool", "exec"], 0),
        (&["1| TEXT"], 1),
        (&["look", "a.txt"], 1),
        (&["--since", "1h"], 2),
        (&["--until", "1h"], 0),
        (&["--session", "last"], 0),
        (&["--limit", "1"], 1),
    ] {
        let (text, status) = history(&[arguments, &["--json"]].concat());
        assert_eq!((text.lines().count(), status), (expected, 0), "{arguments:?}: {text}");
    }
    let (text, _) = history(&["--json", "--limit", "1"]);
    let row: Value = serde_json::from_str(&text).unwrap();
    let keys: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = [
        "id",
        "session_id",
        "tool_name",
        "arguments",
        "result",
        "error",
        "duration_ms",
        "timestamp",
        "user_message",
        "message_id",
        "spawn_task",
    ];
    expected.sort_unstable();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    assert_eq!(row["arguments"], r#"{"path":"none.txt"}"#);
    assert_eq!((&row["user_message"], &row["result"]), (&json!("and there"), &Value::Null));
    let (text, _) = history(&["--messages", "answer"]);
    assert!(text.lines().count() == 2 && !text.contains('\u{1b}'), "{text:?}");
    let (text, status) = history(&["--since", "yesterday"]);
    assert!(status == 2 && text.contains("2026-11-01"), "{text}");
    assert_eq!(history(&["--session", "nobody"]).1, 1);
}

/// The time in India, whose offset has half an hour.
#[cfg(unix)]
fn indian(utc: &Value) -> String {
    use turnwright_types::timestamp::{parse_user_time, rfc3339};
    let time = parse_user_time(utc.as_str().unwrap(), std::time::SystemTime::now()).unwrap();
    let shifted = rfc3339(time + std::time::Duration::from_secs(330 * 60));
    shifted.replace('T', " ").trim_end_matches('Z').to_owned()
}

// Windows has its time zone from its registry, which a test does not change.
#[cfg(unix)]
#[test]
fn people_see_the_time_of_their_zone_and_programs_utc() {
    let agent = agent();
    let in_india = |arguments: &[&str]| {
        let mut command = command(agent.home(), agent.workspace(), arguments);
        let output = process_waits::output(command.env("TZ", "IST-5:30")).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let rows = |json: &str| -> Vec<Value> {
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (json, _) = run(agent.home(), agent.workspace(), &["sessions", "list", "--json"]);
    assert_eq!(in_india(&["sessions", "list", "--json"]), json);
    let list = in_india(&["sessions", "list"]);
    for session in rows(&json) {
        assert!(list.contains(&indian(&session["updated_at"])), "{json}{list}");
        let shown = in_india(&["sessions", "show", session["session_id"].as_str().unwrap()]);
        assert!(shown.contains(&indian(&session["created_at"])), "{json}{shown}");
    }
    for (kind, field) in
        [(&["history"][..], "timestamp"), (&["history", "--messages"], "created_at")]
    {
        let oldest = rows(&in_india(&[kind, &["--json"]].concat())).pop().unwrap();
        let shown = indian(&oldest[field]);
        let lines = in_india(kind);
        assert!(lines.lines().last().unwrap().starts_with(&shown), "{oldest}{lines}");
        // A time is understood as it is shown.
        assert_eq!(in_india(&[kind, &["--since", &shown]].concat()), lines);
        assert_eq!(in_india(&[kind, &["--until", &shown[..10], "--json"]].concat()), "");
    }
}

#[test]
fn sessions_are_listed_shown_and_deleted() {
    let mut agent = agent();
    // A command of the agent is not a turn that a user would count.
    assert_eq!(agent.turn("/status"), "end_turn");
    let (home, folder) = (agent.home().to_path_buf(), agent.workspace().to_path_buf());
    let sessions = |arguments: &[&str]| run(&home, &folder, &[&["sessions"], arguments].concat());
    let (text, _) = sessions(&["list"]);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let (text, _) = sessions(&["list", "--cwd", "/"]);
    assert!(text.contains("2 elsewhere"), "{text}");
    let (text, _) = sessions(&["list", "--json"]);
    let rows: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!((&rows[0]["session_id"], &rows[0]["turns"]), (&json!(agent.session), &json!(1)));

    let (text, _) = sessions(&["show", "last"]);
    assert!(text.contains("greet me") && text.contains("Hello."), "{text}");
    let old = rows[1]["session_id"].as_str().unwrap();
    let (text, status) = sessions(&["show", &old[..8]]);
    assert_eq!(status, 0, "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    for part in ["look ", "[read_file] success", "[read_file] error", "An ␛[31manswer."] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(sessions(&["show", "nobody"]).1, 1);

    let (text, status) = sessions(&["delete", old]);
    assert!(status == 1 && text.contains("--yes"), "{text}");
    let (text, status) = sessions(&["delete", old, "--yes"]);
    assert!(status == 1 && text.contains(&agent.pid().to_string()), "{text}");
    agent.close();
    assert_eq!(sessions(&["delete", old, "--yes"]).1, 0);
    assert_eq!(sessions(&["list"]).0.lines().count(), 1);
    assert_eq!(sessions(&["show", old]).1, 1);
}

#[test]
fn a_session_that_is_deleted_leaves_no_outputs_behind() {
    let mut agent = agent();
    let home = agent.home().to_path_buf();
    let folder = agent.workspace().to_path_buf();
    let outputs = home.join("state/outputs").join(&agent.session);
    std::fs::create_dir_all(&outputs).unwrap();
    std::fs::write(outputs.join("p1.txt"), "words\n").unwrap();
    agent.close();
    let (text, status) = run(&home, &folder, &["sessions", "delete", "last", "--yes"]);
    assert_eq!(status, 0, "{text}");
    assert!(!outputs.exists(), "{text}");
    let log = std::fs::metadata(home.join("state/sessions.db-wal"));
    assert_eq!(log.map_or(0, |log| log.len()), 0, "the log still has what was deleted");
}

#[test]
fn an_undo_prints_no_key_that_was_loaded_after_it_was_typed() {
    const LATER_KEY: &str = "sk-later-0123456789abcdef0123";
    let write = calls("write_file", &json!({ "path": "new.txt", "content": "new\n" }));
    let replies = json!([write, says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).permission("allow_once").start();
    assert_eq!(agent.turn(&format!("Write with {LATER_KEY}")), "end_turn");
    let home = agent.home().to_path_buf();
    let folder = agent.workspace().to_path_buf();
    agent.close();
    let mut command = command(&home, &folder, &["undo"]);
    let output = process_waits::output(command.env("OPENAI_API_KEY", LATER_KEY)).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("[hidden:") && !text.contains(LATER_KEY), "{text}");
}

#[test]
fn last_never_means_a_session_of_another_folder() {
    let mut agent = agent();
    let (home, folder) = (agent.home().to_path_buf(), agent.workspace().to_path_buf());
    agent.close();
    let elsewhere = turnwright_testing::temporary_folder();
    for arguments in [
        &["undo", "--session", "last"][..],
        &["redo", "--session", "last"],
        &["diff", "--session", "last"],
        &["history", "--session", "last"],
        &["sessions", "show", "last"],
        &["sessions", "export", "last"],
        &["sessions", "delete", "last", "--yes"],
    ] {
        let (text, status) = run(&home, elsewhere.path(), arguments);
        let is_refused = text.contains("no session was held in this folder") && status != 0;
        assert!(is_refused, "{arguments:?}: {text}");
    }
    assert_eq!(run(&home, &folder, &["sessions", "list"]).0.lines().count(), 2);
}

/// It may be on a disk that never answers.
#[cfg(unix)]
#[test]
fn the_folder_of_a_session_is_not_looked_at_to_list_those_of_another() {
    let mut agent = agent();
    let folder = agent.workspace().to_path_buf();
    agent.close();
    let elsewhere = turnwright_testing::temporary_folder();
    std::fs::remove_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &folder).unwrap();
    let (listed, _) = run(agent.home(), elsewhere.path(), &["sessions", "list"]);
    assert!(listed.starts_with("No sessions here, 2 elsewhere"), "{listed}");
    let (shown, status) = run(agent.home(), elsewhere.path(), &["sessions", "show", "last"]);
    let place = format!(" in {}; ", folder.display());
    assert!(shown.contains("the last one is ") && shown.contains(&place) && status != 0, "{shown}");
}

#[test]
fn last_is_no_archived_session_as_lists_leave_them_out() {
    let mut agent = agent();
    let params = json!({ "sessionId": agent.session });
    let archived = agent.call("session/archive", &params);
    assert!(archived["error"].is_null(), "{archived}");
    let sessions = |arguments: &[&str]| {
        run(agent.home(), agent.workspace(), &[&["sessions"], arguments].concat())
    };
    assert!(sessions(&["show", "last"]).0.contains("and there"));
    assert_eq!(sessions(&["list"]).0.lines().count(), 1);
    assert_eq!(sessions(&["list", "--archived"]).0.lines().count(), 2);
}

#[test]
fn a_closed_stdout_is_not_an_error() {
    let agent = agent();
    let mut child = command(agent.home(), agent.workspace(), &["history"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = process_waits::wait_with_output(child);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
