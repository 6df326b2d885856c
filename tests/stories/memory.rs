//! The `memory` tool: notes that later sessions see, and content that must not become a note.

use std::fs;
#[cfg(unix)]
use std::io;
#[cfg(unix)]
use std::os::unix::fs::symlink;
#[cfg(unix)]
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

const BUILD: &str = ".turnwright/memory/build.md";

fn note(action: &str, name: &str, content: &str) -> Value {
    json!({ "action": action, "name": name, "content": content })
}

fn run(builder: TestAgentBuilder, arguments: &Value) -> (TestAgent, String) {
    cards::run(builder, "memory", arguments)
}

#[test]
fn a_note_requires_permission_like_an_edit_and_is_listed_in_the_next_session() {
    let (mut agent, result) =
        run(TestAgent::builder(), &note("write", "build", "# How to build\n\nmake all\n"));
    assert_eq!(result, "Noted: build, 25 bytes.");
    assert_eq!(agent.read(BUILD), "# How to build\n\nmake all\n");
    assert_eq!(cards::questions(&agent), 1);
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["kind"]), (&json!("Remember: build"), &json!("edit")));
    assert_eq!(card["content"][0]["type"], "diff");
    agent.session = agent.new_session();
    agent.model().push(says("Hello.")).unwrap();
    assert_eq!(agent.turn("hi"), "end_turn");
    let messages = agent.model_request(2)["messages"].to_string();
    assert!(messages.contains("project/build – How to build"), "{messages}");
    assert!(messages.contains("count less than the user's words"), "{messages}");
    assert!(
        !messages.contains("make all"),
        "the first prompt must have only the index of the notes: {messages}"
    );
}

#[test]
fn notes_are_read_without_permission_in_both_scopes() {
    let builder = || {
        TestAgent::builder()
            .file(BUILD, "# Build\nmake all\n")
            .own_file("config/memory/taste.md", "likes tabs\n")
    };
    let (agent, result) = run(builder(), &json!({ "action": "read", "name": "build" }));
    assert!(result.ends_with("make all\n") && result.starts_with("Note project/build of "));
    assert_eq!(cards::questions(&agent), 0);
    assert_eq!(cards::card(&agent, 0)["title"], "Recall: build");
    let (agent, result) = run(builder(), &json!({ "action": "read", "name": "taste" }));
    assert!(result.ends_with("likes tabs\n"), "{result}");
    assert_eq!(cards::questions(&agent), 0);
    let (_, result) = run(builder(), &json!({ "action": "list" }));
    assert_eq!(result, "project/build – Build\nuser/taste – likes tabs\n");
    let (_, result) = run(builder(), &json!({ "action": "read", "name": "other" }));
    assert_eq!(result, "There is no note other. There are: build, taste.");
}

/// As on disks of Windows and in archives, where 1601 is the beginning of time.
#[test]
fn a_note_that_is_older_than_the_epoch_is_read() {
    let arguments = json!({ "action": "read", "name": "build" });
    let replies = json!([calls("memory", &arguments), says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).file(BUILD, "make all\n").start();
    let file = fs::File::options().write(true).open(agent.path(BUILD)).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH - Duration::from_secs(86_400)).unwrap();
    let result = cards::turn(&mut agent);
    assert!(result.ends_with("make all\n"), "{result}");
}

#[test]
fn a_note_can_be_appended_to_and_deleted() {
    let (agent, _) =
        run(TestAgent::builder().file(BUILD, "one\n"), &note("append", "build", "two"));
    assert_eq!(agent.read(BUILD), "one\ntwo\n");
    let arguments = json!({ "action": "delete", "name": "build" });
    let (agent, result) = run(TestAgent::builder().file(BUILD, "one\n"), &arguments);
    assert_eq!(result, "Forgotten: build.");
    assert!(!agent.path(BUILD).exists());
    assert_eq!(cards::questions(&agent), 1);
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["kind"]), (&json!("Forget: build"), &json!("delete")));
}

#[test]
fn what_a_note_says_already_is_not_added_again() {
    let arguments = note("append", "build", "two\n");
    let (agent, result) = run(TestAgent::builder().file(BUILD, "one\ntwo\n"), &arguments);
    assert_eq!(result, "The note says this already. Nothing was changed.");
    assert_eq!(agent.read(BUILD), "one\ntwo\n");
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn a_note_of_the_user_requires_permission_as_a_file_outside_the_project() {
    let mut arguments = note("write", "taste", "likes tabs");
    arguments["scope"] = json!("user");
    let (agent, _) = run(TestAgent::builder(), &arguments);
    let text = fs::read_to_string(agent.home().join("config/memory/taste.md")).unwrap();
    assert_eq!(text, "likes tabs\n");
    let request = agent.log.iter().find(|it| it["method"] == "session/request_permission").unwrap();
    assert!(request.to_string().contains("Outside the project"), "{request}");
}

#[test]
fn an_invalid_note_is_refused_without_a_permission_request() {
    let key = format!("the key is sk-{}", "a1".repeat(20));
    let table = [
        (note("write", "../x", "x"), "Call it x."),
        (note("write", "Build Commands", "x"), "Call it build-commands."),
        (note("write", "build", ""), "needs the `content`"),
        (note("write", "", "x"), "needs the `name`"),
        (note("write", "keys", &key), "what looks like an API key"),
        (note("write", "long", &"x".repeat(17_000)), "16384 is the most"),
        (json!({ "action": "delete", "name": "none" }), "There is no note none."),
    ];
    for (arguments, expected) in table {
        let (agent, result) = run(TestAgent::builder(), &arguments);
        assert!(result.contains(expected), "{expected}: {result}");
        assert_eq!(cards::questions(&agent), 0, "{expected}");
        assert!(!agent.path(".turnwright").exists(), "{expected}");
    }
}

// Windows lets only administrators make symbolic links, and Wine nobody.
#[cfg(unix)]
#[test]
fn a_link_does_not_make_another_file_a_note() {
    let kinds: [fn(&Path, &Path) -> io::Result<()>; 2] =
        [|secret, note| symlink(secret, note), |secret, note| fs::hard_link(secret, note)];
    let actions = ["read", "append", "list"];
    for (action, link) in actions.into_iter().flat_map(|action| kinds.map(|link| (action, link))) {
        let arguments = note(action, "trap", "x");
        let replies = json!([calls("memory", &arguments), says("Done.")]);
        let mut agent = TestAgent::builder()
            .model(replies)
            .own_file("config/credentials.md", "# Top secret")
            .permission("allow_once")
            .start();
        fs::create_dir_all(agent.path(".turnwright/memory")).unwrap();
        let secret = agent.home().join("config/credentials.md");
        link(&secret, &agent.path(".turnwright/memory/trap.md")).unwrap();
        let result = cards::turn(&mut agent);
        assert!(!agent.model_request(1).to_string().contains("Top secret"), "{action}");
        let is_told = result.contains("no note") || result.contains("link");
        assert!(is_told || action == "list", "{result}");
        assert_eq!(fs::read_to_string(secret).unwrap(), "# Top secret");
    }
}

#[test]
fn the_memory_command_lists_the_notes() {
    let mut agent = TestAgent::builder().file(BUILD, "# Build\n").start();
    assert_eq!(agent.turn("/memory"), "end_turn");
    assert!(agent.text().contains("* `build` (project) – Build"), "{}", agent.text());
}
