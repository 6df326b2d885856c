//! Recordings of sessions, and their replay: each session that is recorded plays back the same, as do the
//! recordings of earlier versions in `tests/data/recordings`. `UPDATE_EXPECT=1` makes those anew.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnwright::internals::replay;
use turnwright_testing::cancellation::{expect_cancelled, hangs};
use turnwright_testing::cards;
use turnwright_testing::session_requests::set_mode;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// A session that is recorded: its name, and what happens in it.
struct RecordedStory {
    name: &'static str,
    agent: fn() -> TestAgentBuilder,
    acts: fn(&mut TestAgent),
}

fn model(replies: Value) -> TestAgentBuilder {
    TestAgent::builder().model(replies)
}

fn one_turn(agent: &mut TestAgent) {
    assert_eq!(agent.turn("go"), "end_turn");
}

/// Waits for a question and answers it.
fn answer_question(agent: &mut TestAgent, option: &str) {
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    agent.choose(&question, option);
    assert_eq!(agent.stop_reason(&id), "end_turn");
}

fn writes() -> TestAgentBuilder {
    let arguments = json!({ "path": "new.txt", "content": "one\ntwo\n" });
    model(json!([calls("write_file", &arguments), says("Written, or not.")]))
}

const STORIES: [RecordedStory; 10] = [
    RecordedStory {
        name: "text",
        agent: || model(json!([says("Hello, world."), says("And again.")])),
        acts: |agent| {
            one_turn(agent);
            one_turn(agent);
        },
    },
    RecordedStory {
        name: "read-file",
        agent: || {
            let arguments = json!({ "path": "notes.txt" });
            model(json!([calls("read_file", &arguments), says("It says hello.")]))
                .file("notes.txt", "hello\nthere\n")
        },
        acts: one_turn,
    },
    RecordedStory {
        name: "write-allowed",
        agent: writes,
        acts: |agent| {
            answer_question(agent, "allow_once");
            assert_eq!(agent.read("new.txt"), "one\ntwo\n");
        },
    },
    RecordedStory {
        name: "write-refused",
        agent: writes,
        acts: |agent| {
            answer_question(agent, "reject_once");
            assert!(!agent.path("new.txt").exists());
        },
    },
    RecordedStory {
        name: "cancelled",
        agent: || model(json!([hangs(), says("Here again.")])),
        acts: |agent| {
            let id = agent.prompt("think");
            agent.wait_for_update("agent_message_chunk");
            agent.cancel();
            expect_cancelled(agent, &id);
            one_turn(agent);
        },
    },
    RecordedStory {
        name: "tool-error",
        agent: || {
            let missing = json!({ "path": "missing.txt" });
            let wrong = json!({ "pattern": "(" });
            let replies =
                json!([calls("read_file", &missing), calls("grep", &wrong), says("Neither works.")]);
            model(replies)
        },
        acts: one_turn,
    },
    RecordedStory {
        name: "retried-request",
        agent: || {
            let busy = json!({ "error": { "message": "The server is overloaded." } });
            let busy = json!([{ "status": 503, "headers": { "retry-after": "0" }, "body": busy }]);
            model(json!([busy, [{ "refuse": true }], says("Now it works.")]))
        },
        acts: one_turn,
    },
    RecordedStory {
        name: "plan",
        agent: || {
            let step = |content: &str, status: &str| {
                json!({ "content": content, "status": status, "priority": "medium" })
            };
            let entries = json!([step("look", "completed"), step("change", "pending")]);
            let files = cards::call("list_dir", &json!({ "path": "." }));
            let found = cards::call("grep", &json!({ "pattern": "fn" }));
            let plan = cards::call("plan", &json!({ "entries": entries }));
            model(json!([[plan, files, found], says("Planned.")])).file("a.rs", "fn main() {}\n")
        },
        acts: one_turn,
    },
    RecordedStory {
        name: "commands",
        agent: || model(json!([says("Hello.")])),
        acts: |agent| {
            for command in ["/cost", "/status", "/clear", "/mode plan"] {
                assert_eq!(agent.turn(command), "end_turn");
            }
            one_turn(agent);
        },
    },
    RecordedStory {
        name: "mode-change",
        agent: writes,
        acts: |agent| {
            set_mode(agent, "auto-edit");
            one_turn(agent);
            assert_eq!(agent.read("new.txt"), "one\ntwo\n");
        },
    },
];

/// Records a story into this folder.
fn record(story: &RecordedStory, folder: &Path) -> PathBuf {
    let path = folder.join(format!("{}.ndjson", story.name));
    let mut agent =
        (story.agent)().variable("TURNWRIGHT_RECORD", path.to_str().unwrap()).start();
    (story.acts)(&mut agent);
    agent.close();
    path
}

fn record_named(name: &str, folder: &Path) -> PathBuf {
    record(STORIES.iter().find(|it| it.name == name).unwrap(), folder)
}

fn assert_same(path: &Path) {
    let (report, is_same) = replay(path).unwrap();
    assert!(is_same && report.starts_with("The same: "), "{}: {report}", path.display());
}

fn data_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recordings")
}

#[test]
fn what_is_recorded_plays_back_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for story in &STORIES {
        let path = record(story, folder.path());
        assert_same(&path);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::copy(&path, data_folder().join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// Writes a recording with one change into a new file.
fn changed(path: &Path, from: &str, to: &str) -> PathBuf {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    let changed = path.with_extension("changed");
    std::fs::write(&changed, text.replacen(from, to, 1)).unwrap();
    changed
}

/// The line of a recording, from 1, that contains these words.
fn line_of(path: &Path, words: &[&str]) -> usize {
    let text = std::fs::read_to_string(path).unwrap();
    1 + text.lines().position(|it| words.iter().all(|word| it.contains(word))).unwrap()
}

fn assert_differs(path: &Path, turn: &str, line: usize, details: &[&str]) {
    let (report, is_same) = replay(path).unwrap();
    let place = format!("Different {turn}, at line {line} of the recording: ");
    assert!(!is_same && report.starts_with(&place), "{place}\n{report}");
    for detail in details {
        assert!(report.contains(detail), "{detail} is not in\n{report}");
    }
}

#[test]
fn a_change_is_found_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    // The agent now says something else: here, because the recorded words were changed.
    let text = record_named("text", folder.path());
    let other = changed(&text, r#""text":"And again.""#, r#""text":"And never.""#);
    let line = line_of(&other, &["agent_message_chunk", "And never."]);
    let sides = [r#"recorded: "And never.""#, r#"now:      "And again.""#];
    assert_differs(&other, "in turn 2", line, &[&["the text"], &sides[..]].concat());

    // A turn ends otherwise.
    let other = changed(&text, r#"{"stopReason":"end_turn"}"#, r#"{"stopReason":"max_tokens"}"#);
    let line = line_of(&other, &["max_tokens"]);
    assert_differs(&other, "in turn 1", line, &["stopReason", "max_tokens", "end_turn"]);

    // A question that is asked no more: now the mode lets the call run.
    let written = record_named("write-allowed", folder.path());
    let line = line_of(&written, &["session/request_permission"]);
    let other = changed(&written, r#""TURNWRIGHT_MODE":null"#, r#""TURNWRIGHT_MODE":"auto-edit""#);
    assert_differs(&other, "in turn 1", line, &["a request to the client", "now:      nothing"]);

    // The card of a call shows something else, and the model calls something else.
    let read = record_named("read-file", folder.path());
    let other = changed(&read, r#""title":"Read notes.txt""#, r#""title":"Read other.txt""#);
    let line = line_of(&other, &[r#""status":"in_progress""#]);
    assert_differs(&other, "in turn 1", line, &["the card of", "title", "Read notes.txt"]);
    let other = changed(&read, "It says hello.", "It says no.");
    assert_differs(&other, "in turn 1", line_of(&read, &["agent_message_chunk"]), &["the text"]);

    // What a tool's result becomes for the model.
    let told = line_of(&read, &[r#""request":"#, r#""role":"tool""#]);
    let other = changed(&read, "1\thello", "1\thallo");
    let (report, _) = replay(&other).unwrap();
    assert!(report.contains("hallo") && report.contains("hello"), "{report}");
    assert!(told > 0);
}

#[test]
fn a_call_that_the_recording_does_not_have_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = record_named("mode-change", folder.path());
    let target = folder.path().join("planted.txt");
    let planted = target.to_str().unwrap();
    // The recorded model now writes another file.
    let other = changed(&path, r#"\\\"path\\\":\\\"new.txt"#, &format!(r#"\\\"path\\\":\\\"{planted}"#));
    let lines = std::fs::read_to_string(&other).unwrap();
    assert!(lines.contains(planted));
    let error = replay(&other).unwrap_err();
    assert!(error.contains("is damaged"), "{error}");
    assert!(!target.exists());
}

#[cfg(unix)]
#[test]
fn ten_recordings_play_back_as_they_were_made() {
    for story in &STORIES {
        assert_same(&data_folder().join(format!("{}.ndjson", story.name)));
    }
}
