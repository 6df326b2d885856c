//! `move_path` and `delete_path`: the files after a call, and the files that no call moves or
//! deletes.

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

/// Runs one more turn with one call, and returns the result of the call.
fn again(agent: &mut TestAgent, name: &str, arguments: &Value) -> String {
    agent.model().push(calls(name, arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(agent)
}

#[test]
fn a_file_is_moved_and_missing_folders_are_created() {
    let builder = TestAgent::builder().file("a.txt", "x\n");
    let arguments = json!({ "from": "a.txt", "to": "b/c/d.txt" });
    let (agent, result) = cards::run(builder, "move_path", &arguments);
    assert_eq!(result, "Moved a.txt to b/c/d.txt.");
    assert_eq!(agent.read("b/c/d.txt"), "x\n");
    assert!(!agent.path("a.txt").exists());
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["kind"]), (&json!("Move a.txt → b/c/d.txt"), &json!("move")));
    assert_eq!(cards::questions(&agent), 1);
}

#[test]
fn a_move_replaces_nothing() {
    let mut agent = TestAgent::builder()
        .file("a", "a")
        .file("b", "b")
        .file("folder/c", "c")
        .permission("allow_once")
        .start();
    #[cfg(unix)]
    symlink("nowhere", agent.path("dangling")).unwrap();
    #[cfg(windows)]
    fs::write(agent.path("dangling"), "x").unwrap();
    for (from, to, expected) in [
        ("a", "b", "b exists already"),
        ("a", "dangling", "dangling exists already"),
        ("a", "folder", "give the whole new path"),
        ("a", "new/", "new/ names a folder"),
        ("missing", "x", "missing does not exist"),
        ("folder", "folder/below", "cannot be moved into itself"),
        (".", "../elsewhere", "holds the folder of this session"),
        (".git", "x", "holds the history"),
    ] {
        let result = again(&mut agent, "move_path", &json!({ "from": from, "to": to }));
        assert!(result.contains(expected), "{from} → {to}: {result}");
    }
    assert_eq!((agent.read("a").as_str(), agent.read("b").as_str()), ("a", "b"));
    assert_eq!(agent.read("folder/c"), "c");
    let patch = |body: &str| json!({ "patch": format!("*** Begin Patch\n{body}\n*** End Patch") });
    for (name, arguments) in [
        ("write_file", json!({ "path": "new/", "content": "x" })),
        ("apply_patch", patch("*** Add File: new/\n+x")),
        ("apply_patch", patch("*** Update File: a\n*** Move to: new/\n@@\n-a\n+b")),
    ] {
        let result = again(&mut agent, name, &arguments);
        assert!(result.contains("new/ names a folder"), "{name}: {result}");
    }
    assert!(!agent.path("new").exists(), "a file would be in the place of the folder");
}

// Windows lets only administrators make symbolic links, and Wine nobody.
#[cfg(unix)]
#[test]
fn moving_or_deleting_a_link_does_not_affect_its_target() {
    let mut agent = TestAgent::builder().file("real/f", "x").permission("allow_once").start();
    symlink("real", agent.path("link")).unwrap();
    again(&mut agent, "move_path", &json!({ "from": "link", "to": "other" }));
    assert_eq!(fs::read_link(agent.path("other")).unwrap().to_str(), Some("real"));
    let result = again(&mut agent, "delete_path", &json!({ "path": "other", "recursive": true }));
    assert_eq!(result, "Deleted other.");
    assert_eq!(agent.read("real/f"), "x");
    assert!(fs::symlink_metadata(agent.path("other")).is_err());
}

#[test]
fn a_folder_that_is_not_empty_is_deleted_only_with_recursive() {
    let mut agent = TestAgent::builder()
        .file("build/a", "")
        .file("build/b/c", "")
        .file("keep/x", "")
        .permission("allow_once")
        .start();
    #[cfg(unix)]
    symlink(agent.path("keep"), agent.path("build/link")).unwrap();
    #[cfg(windows)]
    fs::write(agent.path("build/link"), "x").unwrap();
    let result = again(&mut agent, "delete_path", &json!({ "path": "build" }));
    assert!(
        result.contains("with 3 files and 1 folders below it. Nothing was deleted."),
        "{result}"
    );
    assert_eq!(cards::questions(&agent), 0);
    let result = again(&mut agent, "delete_path", &json!({ "path": "build", "recursive": true }));
    assert_eq!(result, "Deleted build (a folder with 3 files).");
    assert!(!agent.path("build").exists() && agent.path("keep/x").exists());
    let card = cards::card(&agent, 1);
    assert_eq!(
        (&card["title"], &card["kind"]),
        (&json!("Delete build (3 files)"), &json!("delete"))
    );
    assert!(cards::card_text(&card).contains("build/b/c"), "{card}");
    fs::create_dir(agent.path("empty")).unwrap();
    let result = again(&mut agent, "delete_path", &json!({ "path": "empty" }));
    assert_eq!(result, "Deleted empty (an empty folder).");
}

#[test]
fn folders_that_are_nested_too_deeply_are_left_alone() {
    let mut agent = TestAgent::builder().permission("allow_once").start();
    let path = "a/".repeat(300);
    fs::create_dir_all(agent.path(&path)).unwrap();
    let result = again(&mut agent, "delete_path", &json!({ "path": "a", "recursive": true }));
    assert!(
        result.contains("nested more than 200 deep. Nothing was deleted. Use exec"),
        "{result}"
    );
    assert!(agent.path(&path).exists());
}

#[test]
fn the_project_and_its_history_are_not_deleted() {
    let mut agent =
        TestAgent::builder().file("a", "").file(".git/HEAD", "").permission("allow_once").start();
    let whole = agent.workspace().display().to_string();
    for path in [".", "..", "./a/..", ".git", "/", &whole] {
        let arguments = json!({ "path": path, "recursive": true });
        let result = again(&mut agent, "delete_path", &arguments);
        assert!(result.contains("Nothing was deleted"), "{path}: {result}");
    }
    assert_eq!(cards::questions(&agent), 0);
    assert!(agent.path("a").exists() && agent.path(".git/HEAD").exists());
}

#[test]
fn nothing_outside_the_project_is_revealed_before_permission_is_given() {
    let outside = turnwright_testing::temporary_folder();
    fs::write(outside.path().join("secret-plan"), "x").unwrap();
    let mut agent = TestAgent::builder().permission("reject_once").start();
    let result = again(&mut agent, "delete_path", &json!({ "path": outside.path() }));
    assert!(result.contains("with something below it"), "{result}");
    let missing = outside.path().join("none");
    for workdir in [outside.path(), &missing] {
        let command = json!({ "command": "true", "workdir": workdir });
        let result = again(&mut agent, "exec", &command);
        assert!(result.starts_with("The user rejected this call."), "{result}");
    }
}
