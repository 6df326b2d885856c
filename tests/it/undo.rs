//! `/undo` and `/redo` of the changes that commands and tools have made to files.

#[cfg(unix)]
use std::collections::BTreeMap;
use std::fs;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
#[cfg(unix)]
use std::process::Command;

#[cfg(unix)]
use serde_json::Value;
use serde_json::json;
use turnwright_testing::command_lines::line_for;
#[cfg(unix)]
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, calls, says};

#[cfg(unix)]
fn write(path: &str, content: &str) -> Value {
    calls("write_file", &json!({ "path": path, "content": content }))
}

#[test]
fn undo_restores_files_that_a_command_changed() {
    let line = line_for(
        "sed -i s/1/2/ a.txt; rm b.txt; chmod 755 c.sh; echo new > d.txt",
        "(echo 2) > a.txt & del b.txt & (echo 2) > c.sh & echo new > d.txt",
    );
    let mut agent = TestAgent::builder()
        .file("a.txt", "1\n")
        .file("b.txt", "1\n")
        .file("c.sh", "1\n")
        .permission("allow_once")
        .model(json!([calls("exec", &json!({ "command": line })), says("Done.")]))
        .start();
    let mode = |agent: &TestAgent| mode_of(&fs::metadata(agent.path("c.sh")).unwrap()) & 0o777;
    let mode_before = mode(&agent);
    assert_eq!(agent.turn("run it"), "end_turn");
    if cfg!(unix) {
        assert_eq!(mode(&agent), 0o755);
    }
    assert!(!agent.path("b.txt").exists() && agent.path("d.txt").exists());
    let answer_text = agent.turn_text("/undo");
    assert!(answer_text.contains("Restored (3)"), "{answer_text}");
    assert!(answer_text.contains("Removed (1):\n\n* `d.txt`"), "{answer_text}");
    assert_eq!((agent.read("a.txt"), agent.read("b.txt")), ("1\n".into(), "1\n".into()));
    assert_eq!((mode(&agent), agent.read("c.sh")), (mode_before, "1\n".into()));
    assert!(!agent.path("d.txt").exists());
}

#[cfg(unix)]
fn run(command: &str) -> Value {
    calls("exec", &json!({ "command": command }))
}

/// Runs a shell script in the workspace outside of the agent, as the user would.
#[cfg(unix)]
fn by_hand(agent: &TestAgent, script: &str) {
    let mut shell = Command::new("sh");
    let done =
        process_waits::status(shell.args(["-e", "-c", script]).current_dir(agent.workspace()));
    assert!(done.unwrap().success(), "{script}");
}

#[cfg(unix)]
fn mode_of(metadata: &fs::Metadata) -> u32 {
    metadata.permissions().mode()
}

#[cfg(windows)]
fn mode_of(metadata: &fs::Metadata) -> u32 {
    u32::from(metadata.permissions().readonly())
}

/// The entries of the workspace except `.git`: their modes, and the contents of files or the targets
/// of links.
#[cfg(unix)]
fn tree(agent: &TestAgent) -> BTreeMap<String, (u32, Vec<u8>)> {
    let (mut all, mut pending) = (BTreeMap::new(), vec![agent.workspace().to_path_buf()]);
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let bytes = if metadata.is_file() {
                fs::read(&path).unwrap()
            } else {
                fs::read_link(&path).unwrap_or_default().into_os_string().into_encoded_bytes()
            };
            let name = path.strip_prefix(agent.workspace()).unwrap().display().to_string();
            if name != ".git" {
                if metadata.is_dir() {
                    pending.push(path);
                }
                all.insert(name, (mode_of(&metadata), bytes));
            }
        }
    }
    all
}

#[cfg(unix)]
#[test]
fn undo_and_redo_handle_all_kinds_of_changes_and_keep_the_users_own() {
    let edit = json!({ "path": "edited", "edits": [{ "old_text": "old", "new_text": "new" }] });
    let mut agent = TestAgent::builder()
        .file("edited", "old\n")
        .file("sed", "one\n")
        .file("checked-out", "first\n")
        .file("deleted", "d\n")
        .file("folder/below", "b\n")
        .file("script", "#!/bin/sh\n")
        .file("users", "1\n")
        .permission("allow_once")
        .model(json!([
            calls("edit_file", &edit),
            run("sed -i s/one/two/ sed"),
            run("git checkout -q HEAD -- checked-out"),
            calls("delete_path", &json!({ "path": "deleted" })),
            run("rm -r folder"),
            write("new/file", "n\n"),
            run("mkdir -p x/y && touch x/y/z"),
            run("chmod 755 script"),
            run("echo 2 > users"),
            says("Done."),
        ]))
        .start();
    let git = "git init -q . && git add . && git -c user.name=n -c user.email=e commit -qm 1";
    by_hand(&agent, &format!("{git}; echo 'not committed' > checked-out"));
    let before = tree(&agent);
    assert_eq!(agent.turn("do it all"), "end_turn");
    assert_eq!((agent.read("sed"), agent.read("checked-out")), ("two\n".into(), "first\n".into()));
    let after = tree(&agent);
    by_hand(&agent, "echo 'my own' > users; echo mine > beside");
    let text = agent.turn_text("/undo");
    assert!(text.contains("Conflicts, left untouched (1):\n\n* `users` – it was changed since"));
    let with_user_changes = |mut tree: BTreeMap<String, (u32, Vec<u8>)>| {
        tree.insert("users".into(), (0o100_644, b"my own\n".to_vec()));
        tree.insert("beside".into(), (0o100_644, b"mine\n".to_vec()));
        tree
    };
    assert_eq!(tree(&agent), with_user_changes(before.clone()), "{text}");
    let text = agent.turn_text("/redo");
    assert_eq!(tree(&agent), with_user_changes(after), "{text}");
    let text = agent.turn_text("/undo");
    assert_eq!(tree(&agent), with_user_changes(before), "{text}");
}

#[cfg(unix)]
#[test]
fn undo_never_destroys_the_only_copy_of_a_file() {
    let table: &[(&str, &str, &str, bool)] = &[
        ("too large to be stored", "head -c 12000000 /dev/urandom > big", "mv big other", false),
        ("made of it", "head -c 12000000 /dev/urandom > big", "gzip big", false),
        ("over another", "head -c 12000000 /dev/urandom > big", "mv big small", false),
        ("was ignored", "echo key > ignored", "mv ignored seen", false),
        ("was ignored, over another", "echo key > ignored", "mv ignored small", false),
        ("secret", "echo key > .env", "mv .env .env.local", true),
        ("other names", "ln one two", "mv one t; mv small one; mv t small", true),
        ("a folder", "mkdir d; echo x > d/x", "mv d e", true),
        ("a folder behind a link", "mkdir d; echo x > d/x", "mv d e; ln -s e d", true),
    ];
    for (name, before, command, is_restored) in table {
        let mut agent = TestAgent::builder()
            .file(".gitignore", "ignored\n")
            .file("small", "small\n")
            .file("one", "one\n")
            .permission("allow_once")
            .model(json!([run(command), says("Done.")]))
            .start();
        by_hand(&agent, before);
        // Time stamps of a file system lag behind the clock: without the pause the files could look as
        // if the turn had created them.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let before = tree(&agent);
        assert_eq!(agent.turn("go"), "end_turn");
        let after = tree(&agent);
        let text = agent.turn_text("/undo");
        let now = tree(&agent);
        if *is_restored {
            assert!(now == before, "{name}: {text}");
            continue;
        }
        let is_there = |bytes: &Vec<u8>| now.values().any(|it| it.1 == *bytes);
        assert!(after.values().all(|it| is_there(&it.1)), "{name}: {text}");
        assert!(text.contains("Cannot be restored"), "{name}: {text}");
    }
}
