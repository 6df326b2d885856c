//! Recordings of sessions, and their replay: each session that is recorded plays back the same, as do the
//! recordings of earlier versions in `tests/data/recordings`. `UPDATE_EXPECT=1` makes those anew.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnwright::internals::replay;
use turnwright_testing::cancellation::{expect_cancelled, hangs};
use turnwright_testing::hosted_server::{answer_well, hosted_server};
use turnwright_testing::mcp_http_stub::McpHttpStub;
use turnwright_testing::session_requests::{open, result, set_mode};
use turnwright_testing::{Transport, cards};

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, prompt, says};
use crate::socket_agent::{PlainClient, SocketAgent};

/// A session that is recorded: its name, and what happens in it.
struct RecordedStory {
    name: &'static str,
    agent: fn() -> TestAgentBuilder,
    acts: fn(&mut TestAgent),
}

fn model(replies: Value) -> TestAgentBuilder {
    TestAgent::builder().model(replies)
}

fn one_turn<T: Transport>(agent: &mut turnwright_testing::TestAgent<T>) {
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
            let replies = json!([
                calls("read_file", &missing),
                calls("grep", &wrong),
                says("Neither works.")
            ]);
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
            let step = |content: &str, status: &str| json!({ "content": content, "status": status, "priority": "medium" });
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
    let mut agent = (story.agent)().variable("TURNWRIGHT_RECORD", path.to_str().unwrap()).start();
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
    let folder = turnwright_testing::temporary_folder();
    for story in &STORIES {
        let path = record(story, folder.path());
        assert_same(&path);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::copy(&path, data_folder().join(path.file_name().unwrap())).unwrap();
        }
    }
}

#[test]
fn a_project_behind_a_link_and_its_other_folder_play_back_the_same() {
    let base = turnwright_testing::temporary_folder();
    let (project, other) = (base.path().join("project"), base.path().join("other"));
    std::fs::create_dir(&other).unwrap();
    // Windows lets only administrators make links.
    #[cfg(unix)]
    std::os::unix::fs::symlink("behind", &project).unwrap();
    let real = if cfg!(unix) { base.path().join("behind") } else { project.clone() };
    std::fs::create_dir(real).unwrap();
    let write = |path: &Path| calls("write_file", &json!({ "path": path, "content": "x\n" }));
    let (inside, also_inside) = (project.join("a.txt"), other.join("b.txt"));
    let path = base.path().join("recording.ndjson");
    let mut agent = model(json!([write(&inside), write(&also_inside), says("Written.")]))
        .variable("TURNWRIGHT_MODE", "auto-edit")
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .initialize();
    let params = json!({ "cwd": project, "mcpServers": [], "additionalDirectories": [other] });
    let opened = result(agent.call("session/new", &params));
    opened["sessionId"].as_str().unwrap().clone_into(&mut agent.session);
    one_turn(&mut agent);
    agent.close();
    assert!(inside.exists() && also_inside.exists());
    assert_same(&path);
    // Where there are no such folders, too.
    std::fs::remove_file(&project).or_else(|_| std::fs::remove_dir_all(&project)).unwrap();
    std::fs::remove_dir_all(&other).unwrap();
    assert_same(&path);
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
    let folder = turnwright_testing::temporary_folder();
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
    let other = changed(&read, "1| hello", "1| hallo");
    let (report, _) = replay(&other).unwrap();
    assert!(report.contains("hallo") && report.contains("hello"), "{report}");
}

#[test]
fn a_replay_touches_no_file_and_a_call_that_is_not_recorded_does_nothing() {
    let folder = turnwright_testing::temporary_folder();
    let file = |name: &str| folder.path().join(name);
    let path = file("full.ndjson");
    let replies = |path: &Path| {
        let arguments = json!({ "path": path, "content": "x\n" });
        json!([calls("write_file", &arguments), says("Written.")])
    };
    let mut agent = model(replies(&file("planted-a")))
        .variable("TURNWRIGHT_MODE", "full")
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    one_turn(&mut agent);
    agent.close();
    std::fs::remove_file(file("planted-a")).unwrap();
    assert_same(&path);
    assert!(!file("planted-a").exists());
    // The model asks for another file.
    let other = std::fs::read_to_string(&path).unwrap().replace("planted-a\\", "planted-b\\");
    std::fs::write(file("other.ndjson"), other).unwrap();
    let line = line_of(&path, &[r#""status":"in_progress""#]);
    let details = ["the card of", "recorded: ", "planted-b"];
    assert_differs(&file("other.ndjson"), "in turn 1", line, &details);
    assert!(!file("planted-a").exists() && !file("planted-b").exists());
}

#[test]
fn a_recording_that_cannot_be_played_back_is_named_with_its_fault() {
    let folder = turnwright_testing::temporary_folder();
    let path = record_named("text", folder.path());
    let text = std::fs::read_to_string(&path).unwrap();
    let first = text.lines().next().unwrap();
    let head = format!("{first}\n");
    for (content, expected) in [
        (String::new(), "It is empty"),
        ("no recording\n".to_owned(), "It is no recording: its first line does not say so"),
        ("{}\n".to_owned(), "It is no recording: its first line does not say so"),
        (first[..40].to_owned(), "Its first line is cut off, so there is nothing to play back"),
        (text[..text.len() - 10].to_owned(), "is cut off. Remove that line to play back what is"),
        (head.clone(), "It ends before a session was opened"),
        (format!("{head}{{\"n\":1}}\n"), "Line 2 is damaged: it is no event"),
        (format!("{head}garbage\n{text}"), "Line 2 is damaged: "),
        (
            text.replacen("\"turnwright-recording\":1", "\"turnwright-recording\":2", 1),
            "Its format is version 2, and this program reads version 1. Play it back with the version \
             of turnwright that has made it, 0.1.0",
        ),
        (
            text.replacen("\"turnwright-recording\":1", "\"turnwright-recording\":0", 1),
            "Its format is version 0",
        ),
        (
            text.replacen(
                &format!("\"os\":\"{}\"", std::env::consts::FAMILY),
                "\"os\":\"beos\"",
                1,
            ),
            "another kind of system (beos)",
        ),
    ] {
        std::fs::write(&path, &content).unwrap();
        let error = replay(&path).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert!(replay(&folder.path().join("missing")).unwrap_err().contains("cannot be read"));
    // Without the last line, it plays back as far as it goes, and says that something is missing.
    let (most, _) = text.trim_end().rsplit_once('\n').unwrap();
    std::fs::write(&path, format!("{most}\n")).unwrap();
    let (report, is_same) = replay(&path).unwrap();
    assert!(is_same && report.contains("The recording has no end"), "{report}");
}

#[test]
fn record_keeps_what_follows_in_this_session_only() {
    let mut agent =
        model(json!([says("First."), says("Second."), says("Third."), says("Last.")])).start();
    assert!(agent.turn_text("/record stop").starts_with("Nothing is recorded here."));
    one_turn(&mut agent);
    set_mode(&mut agent, "auto-edit");
    agent.turn_text("/clear");
    let refused = agent.turn_text(
        "/record a
/record stop",
    );
    assert!(refused.starts_with("Nothing is recorded: "), "{refused}");
    let started = agent.turn_text("/record kept.ndjson");
    let path = agent.path("kept.ndjson");
    assert!(started.contains(path.to_str().unwrap()), "{started}");
    assert!(agent.turn_text("/record").starts_with("A recording is running already"));
    one_turn(&mut agent);
    // Another session of the same client is not in it.
    let session = std::mem::take(&mut agent.session);
    agent.session = agent.new_session();
    assert_eq!(agent.turn("canary of another session"), "end_turn");
    agent.session = session;
    one_turn(&mut agent);
    let stopped = agent.turn_text("/record stop");
    assert!(stopped.contains("kept.ndjson"), "{stopped}");
    let text = std::fs::read_to_string(&path).unwrap();
    let has = |words: &str| text.contains(words);
    assert!(has("Second.") && has("Last.") && !has("First."), "{text}");
    assert!(!has("canary of another session") && !has("Third."), "{text}");
    assert_same(&path);
    // A second recording does not replace the first.
    agent.turn_text("/clear");
    assert!(agent.turn_text("/record kept.ndjson").contains("kept-2.ndjson"));
    assert!(agent.path("kept-2.ndjson").exists());
}

#[test]
fn what_a_project_says_about_questions_is_played_back() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("project.ndjson");
    let mut agent = writes()
        .file(".turnwright/config.toml", "mode = \"plan\"\n")
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    one_turn(&mut agent);
    assert!(!agent.path("new.txt").exists());
    agent.close();
    assert_same(&path);
    // A rule that was saved before the recording began.
    let mut agent = writes().start();
    agent.turn_text("/permissions allow edit(new.txt)");
    agent.turn_text("/clear");
    agent.turn_text("/record kept.ndjson");
    one_turn(&mut agent);
    assert_eq!(agent.read("new.txt"), "one\ntwo\n");
    assert_eq!(cards::questions(&agent), 0);
    agent.turn_text("/record stop");
    assert_same(&agent.path("kept.ndjson"));
}

#[test]
fn a_project_with_files_that_nobody_trusts_plays_back_the_same() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("untrusted.ndjson");
    let hook = r#"{ "hooks": [{ "type": "command", "command": "true" }] }"#;
    let mut agent = model(json!([says("First.")]))
        .file(".mcp.json", r#"{ "mcpServers": { "a": { "command": "true" } } }"#)
        .file(".lsp.json", "{")
        .file(".turnwright/hooks.json", &format!(r#"{{ "hooks": {{ "PreToolUse": [{hook}] }} }}"#))
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    one_turn(&mut agent);
    agent.close();
    let text = std::fs::read_to_string(&path).unwrap();
    for told in [".mcp.json ignored: ", ".lsp.json is invalid", "hooks.json ignored: 1 hook."] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert_same(&path);
}

/// A session of two turns that is opened again in another process, by `method`, and has one turn more there.
/// Returns the recording of the second process.
fn record_stored(method: &str, folder: &Path) -> PathBuf {
    let path = folder.join("stored.ndjson");
    let canary = "canary-of-an-earlier-turn";
    let read = calls("read_file", &json!({ "path": "notes.txt" }));
    let replies = json!([read, says("One."), says("Two."), says("Three.")]);
    let mut agent = model(replies)
        .file("notes.txt", "a line of the file\n")
        .own_file("config/key", canary)
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    one_turn(&mut agent);
    assert_eq!(agent.turn(&format!("Remember {canary}")), "end_turn");
    // Until now nothing told that this is a key.
    let settings = "[providers.p]\nbase_url = \"http://127.0.0.1:9/v1\"\nkey_file = \"key\"\n";
    std::fs::write(agent.home().join("config/config.toml"), settings).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let only_the_owner = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(agent.home().join("config/key"), only_the_owner).unwrap();
    }
    agent.restart();
    let session = agent.session.clone();
    let answer = open(&mut agent, method, &session);
    if let Some(copy) = answer["result"]["sessionId"].as_str() {
        copy.clone_into(&mut agent.session);
    }
    one_turn(&mut agent);
    agent.close();
    folder.join("stored-2.ndjson")
}

#[test]
fn a_session_of_the_store_is_recorded_with_its_conversation() {
    for method in ["session/load", "session/resume", "session/fork"] {
        let folder = turnwright_testing::temporary_folder();
        let path = record_stored(method, folder.path());
        assert_same(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        let [stored] = text.lines().filter(|it| it.contains("\"stored\":")).collect::<Vec<_>>()[..]
        else {
            panic!("{text}");
        };
        assert!(stored.contains("a line of the file") && stored.contains("One."), "{stored}");
        assert!(text.contains("Remember [hidden:") && !text.contains("canary"), "{text}");

        // A change is found in the turn that was recorded.
        let other = changed(&path, r#""text":"Three.""#, r#""text":"Four.""#);
        let line = line_of(&other, &["agent_message_chunk", "Four."]);
        assert_differs(&other, "in turn 1", line, &[r#"now:      "Three.""#]);

        // What the conversation is made of is needed, and checked.
        let without = text.replacen(stored, "", 1).replace("\n\n", "\n");
        std::fs::write(&other, without).unwrap();
        let (report, is_same) = replay(&other).unwrap_or_else(|it| (it, false));
        assert!(!is_same, "{report}");
        if method == "session/load" {
            let other_words = stored.replace("One.", "Once.");
            std::fs::write(&other, text.replacen(stored, &other_words, 1)).unwrap();
            let line = line_of(&path, &["agent_message_chunk", "One."]);
            assert_differs(&other, "before the first prompt", line, &["Once."]);
        }
    }
}

#[test]
fn record_in_a_conversation_keeps_what_was_before_and_forgets_what_was_allowed() {
    let write = |path: &str| calls("write_file", &json!({ "path": path, "content": "x\n" }));
    let replies = json!([write("a.txt"), says("First."), write("b.txt"), says("Second.")]);
    let mut agent = model(replies).start();
    answer_question(&mut agent, "allow_always");
    agent.turn_text("/record kept.ndjson");
    // It is asked again, because a replay does not know the first answer.
    answer_question(&mut agent, "reject_once");
    agent.turn_text("/record stop");
    let path = agent.path("kept.ndjson");
    assert_same(&path);
    let text = std::fs::read_to_string(&path).unwrap();
    let request = line_of(&path, &[r#""request":"#]);
    let request = text.lines().nth(request - 1).unwrap();
    assert!(request.contains("First.") && request.contains("a.txt"), "{request}");
    let other = changed(&path, "Second.", "Third.");
    assert_differs(&other, "in turn 1", line_of(&path, &["agent_message_chunk"]), &["Second."]);
}

#[test]
fn what_a_recording_cannot_store_is_an_error_and_not_a_difference() {
    let folder = turnwright_testing::temporary_folder();
    let path = record_stored("session/load", folder.path());
    let other = changed(&path, r#""created_at":"#, r#""created":"#);
    let error = replay(&other).unwrap_err();
    assert!(error.starts_with("its conversation is damaged: "), "{error}");
}

/// Waits until a recording is written to its end.
fn wait_for_the_end(path: &Path) {
    eventually("the recording has ended", || {
        std::fs::read_to_string(path).is_ok_and(|it| it.ends_with("\"end\":true}\n"))
    });
}

#[test]
fn what_is_recorded_over_a_socket_plays_back_the_same() {
    let folder = turnwright_testing::temporary_folder();
    for is_v2 in [false, true] {
        let path = folder.path().join(format!("socket-{is_v2}.ndjson"));
        let read = calls("read_file", &json!({ "path": "notes.txt" }));
        let replies = json!([
            { "when": "secret of another", "steps": says("Nobody records this.") },
            read,
            says("It says hello."),
        ]);
        let mut builder = turnwright_testing::TestAgent::<SocketAgent>::builder()
            .model(replies)
            .file("notes.txt", "hello\n")
            .variable("TURNWRIGHT_RECORD", path.to_str().unwrap());
        if is_v2 {
            builder = builder.v2();
        }
        let mut agent = builder.start();
        // Its requests have the same ids.
        let mut other = PlainClient::connect(agent.transport().url(), 1);
        let params = json!({ "cwd": agent.workspace(), "mcpServers": [] });
        let session = other.call("session/new", &params)["sessionId"].clone();
        let text = prompt(session.as_str().unwrap(), "the secret of another");
        other.call("session/prompt", &text);
        assert_eq!(agent.turn("go"), "end_turn");
        other.close();
        agent.close().unwrap();
        wait_for_the_end(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("It says hello.") && !text.contains("another"), "{text}");
        assert_same(&path);
    }
}

#[test]
fn record_over_a_socket_keeps_the_session_until_its_connection_is_lost() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("typed.ndjson");
    let replies =
        json!([says("Before."), says("Recorded."), [{ "text": "half" }, { "hold": true }]]);
    let mut agent = turnwright_testing::TestAgent::<SocketAgent>::builder().model(replies).start();
    one_turn(&mut agent);
    assert_eq!(agent.turn(&format!("/record {}", path.display())), "end_turn");
    one_turn(&mut agent);
    agent.break_off(SocketAgent::lose);
    wait_for_the_end(&path);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("Recorded.") && text.contains("Before."), "{text}");
    assert_same(&path);
}

#[test]
fn instructions_of_the_project_are_played_back_with_what_they_were() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("instructions.ndjson");
    let mut agent =
        model(json!([calls("read_file", &json!({ "path": "sub/a.txt" })), says("Read.")]))
            .file("AGENTS.md", "canary of the project\n")
            .file("sub/AGENTS.md", "canary of the folder\n")
            .file("sub/a.txt", "hello\n")
            .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
            .start();
    one_turn(&mut agent);
    agent.close();
    assert_same(&path);
    let text = std::fs::read_to_string(&path).unwrap();
    for name in ["project", "folder"] {
        let event = format!(r#""answer":"{}"#, "");
        let kept = text
            .lines()
            .find(|it| it.contains(&event) && it.contains(&format!("canary of the {name}")));
        assert!(kept.is_some_and(|it| it.contains(r#""view":"#)), "{text}");
    }
    // What the model is told with a result is compared.
    let told = text.rfind("canary of the folder").unwrap();
    let changed =
        format!("{}nothing{}", &text[..told], &text[told + "canary of the folder".len()..]);
    std::fs::write(&path, changed).unwrap();
    let (report, is_same) = replay(&path).unwrap();
    assert!(!is_same && report.contains("what the model is told"), "{report}");
}

#[test]
fn the_tools_of_servers_are_played_back_without_the_servers() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("servers.ndjson");
    let stub = McpHttpStub::start(|_, _| false);
    let call = calls("mcp__far__echo", &json!({ "text": "hi" }));
    let mut agent = model(json!([call, says("done")]))
        .permission("allow_once")
        .server_as(stub.server("far", &[("X-Token", "canary-of-a-header")]))
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    one_turn(&mut agent);
    agent.close();
    let calls = |stub: &McpHttpStub| stub.requests().len();
    let before = calls(&stub);
    assert_same(&path);
    assert_eq!(calls(&stub), before, "a replay must not reach a server");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("canary"), "{text}");
    std::fs::write(&path, text.replace(r#""name":"echo""#, r#""name":"gone""#)).unwrap();
    let (report, is_same) = replay(&path).unwrap();
    assert!(!is_same && report.starts_with("Different in turn 1"), "{report}");
}

#[test]
fn the_work_of_helpers_is_played_back() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("helpers.ndjson");
    let task =
        json!({ "description": "Look", "prompt": "Look into notes.txt.", "type": "explore" });
    let replies = json!([
        calls("agent", &task),
        calls("read_file", &json!({ "path": "notes.txt" })),
        says("It says hello."),
        says("The helper has found hello."),
    ]);
    let mut agent = model(replies)
        .file("notes.txt", "hello\n")
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    one_turn(&mut agent);
    assert_eq!(agent.text(), "The helper has found hello.");
    agent.close();
    assert_same(&path);
    // What the helper finds reaches the model of the session.
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("\"request\":").count(), 4, "{text}");
}

#[test]
fn a_recording_has_no_key_and_only_its_owner_can_read_it() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("keys.ndjson");
    let canary = "canary-recorded-key-0123456789";
    let (start, end) = canary.split_at(13);
    let replies = json!([
        [{ "text": format!("The key is {canary}.") }, { "text": format!(" Again: {start}") },
         { "delay_ms": 300 }, { "text": end }],
        calls("read_file", &json!({ "path": "key.txt" })),
        says("Read."),
    ]);
    let servers = json!([{
        "name": "files", "command": "/missing/program", "args": ["--token", "canary-of-a-server"],
        "env": [{ "name": "TOKEN", "value": "canary-of-a-variable" }],
    }]);
    let mut agent = model(replies)
        .file("key.txt", &format!("key = {canary}\n"))
        .variable("DEEPSEEK_API_KEY", canary)
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .own_file("config/config.toml", "[mcp.servers.x]\nurl = \"https://canary-of-a-setting/\"\n")
        .initialize();
    let params = json!({ "cwd": agent.workspace(), "mcpServers": servers });
    let session = agent.call("session/new", &params)["result"]["sessionId"].clone();
    agent.session = session.as_str().unwrap().to_owned();
    assert_eq!(agent.turn(&format!("My key is {canary}")), "end_turn");
    one_turn(&mut agent);
    agent.close();
    let text = std::fs::read_to_string(&path).unwrap();
    let is_hidden = |words: &str| text.contains(&format!("{words} is [hidden:"));
    assert!(is_hidden("My key") && is_hidden("The key"), "{text}");
    assert!(!text.contains("canary"), "{text}");
    assert!(!text.contains(end) && text.contains("]."), "{text}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_same(&path);
}

#[test]
fn a_replay_does_without_the_servers_of_the_client() {
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("hosted.ndjson");
    let mut agent =
        model(json!([calls("mcp__near__echo", &json!({ "n": 1 })), says("It echoes.")]))
            .server_as(hosted_server("near"))
            .hosting(|params| answer_well(params, &["echo"]))
            .permission("allow_once")
            .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
            .start();
    one_turn(&mut agent);
    agent.close();
    assert_same(&path);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("mcp__near__echo") && !text.contains("mcp/message"), "{text}");
    // It ends with the client, which is nothing that happened to the session.
    assert!(!text.contains("the connection has ended"), "{text}");
}

#[test]
fn the_recording_of_a_stranger_writes_nothing_and_sets_no_provider() {
    let folder = turnwright_testing::temporary_folder();
    let path = record_named("text", folder.path());
    let target = folder.path().join("made-by-a-stranger");
    let command = json!(format!("/record {}", target.display()));
    let prompt = format!("\"text\":{command}");
    let typed = changed(&path, "\"text\":\"go\"", &prompt);
    replay(&typed).unwrap();
    assert!(!target.exists());

    let text = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once('\n').unwrap();
    let params =
        json!({ "providerId": "default", "apiType": "openai", "baseUrl": "http://127.0.0.1:9/v1" });
    for (method, session) in [
        ("providers/set", json!(null)),
        ("providers/set", json!("x")),
        ("auth/logout", json!(null)),
    ] {
        let mut params = params.clone();
        params["sessionId"] = session;
        let line = json!({ "n": 20, "ms": 0, "in": { "jsonrpc": "2.0", "id": "x", "method": method, "params": params } });
        std::fs::write(&path, format!("{head}\n{line}\n{rest}")).unwrap();
        let why = replay(&path).unwrap_err();
        assert!(why.contains("Line 2 is damaged") && why.contains(method), "{why}");
    }
}

#[test]
fn a_recording_that_cannot_be_made_costs_a_notice_and_nothing_else() {
    let folder = turnwright_testing::temporary_folder();
    let blocked = folder.path().join("file");
    std::fs::write(&blocked, "").unwrap();
    let path = blocked.join("below-a-file.ndjson");
    let mut agent = model(json!([says("Hello.")]))
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    one_turn(&mut agent);
    let told = serde_json::to_string(&agent.updates()).unwrap();
    assert!(told.contains("Nothing is recorded: "), "{told}");
    assert!(told.contains("Hello."), "{told}");
}

// A recording of another kind of system is refused, and these are of Linux.
#[cfg(unix)]
#[test]
fn ten_recordings_play_back_as_they_were_made() {
    for story in &STORIES {
        assert_same(&data_folder().join(format!("{}.ndjson", story.name)));
    }
}
