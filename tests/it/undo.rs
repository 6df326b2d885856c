//! `/undo` and `/redo` of the changes that commands and tools have made to files.

#[cfg(unix)]
use std::collections::BTreeMap;
use std::fs;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
#[cfg(unix)]
use std::process::Command;

use serde_json::json;
use turnwright_testing::command_lines::line_for;
#[cfg(unix)]
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, calls, says};
#[cfg(unix)]
use crate::agent::{runs, writes};

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

/// Windows knows no modes, so none may seem to differ.
#[test]
fn a_folder_that_a_command_removed_comes_back_on_each_system() {
    let line = line_for("rm -r folder", "rd /s /q folder");
    let mut agent = TestAgent::builder()
        .file("folder/below", "1\n")
        .permission("allow_once")
        .model(json!([calls("exec", &json!({ "command": line })), says("Done.")]))
        .start();
    assert_eq!(agent.turn("run it"), "end_turn");
    assert!(!agent.path("folder").exists());
    let answer_text = agent.turn_text("/undo");
    assert!(answer_text.contains("Restored (2)"), "{answer_text}");
    assert_eq!(agent.read("folder/below"), "1\n");
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
            runs("sed -i s/one/two/ sed"),
            runs("git checkout -q HEAD -- checked-out"),
            calls("delete_path", &json!({ "path": "deleted" })),
            runs("rm -r folder"),
            writes("new/file", "n\n"),
            runs("mkdir -p x/y && touch x/y/z"),
            runs("chmod 755 script"),
            runs("echo 2 > users"),
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
            .model(json!([runs(command), says("Done.")]))
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

/// A folder with room for a few files, in the mount namespace of the agent.
#[cfg(unix)]
const SMALL_DISK: &str = "mount -t tmpfs -o size=160k small /mnt";

#[cfg(unix)]
#[test]
fn an_undo_on_a_full_disk_is_repeated_when_there_is_room_again() {
    if !crate::store::can_mount() {
        return;
    }
    let make = "mkdir d; echo filler > .gitignore; for i in 1 2 3 4 5 6 7 8; do \
                head -c 8000 /dev/zero | tr '\\0' $i > d/$i; done";
    let change =
        "for i in 1 2 3 4 5 6 7 8; do echo x > d/$i; done; cat /dev/zero > filler; wc -c d/*";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .model(json!([
            runs(make),
            says("Made."),
            runs(change),
            says("Changed."),
            runs("rm filler"),
            says("Room."),
            runs("cksum d/* | cut -d ' ' -f 1 | sort | uniq | wc -l; wc -c d/8"),
            says("Looked."),
        ]))
        .inside(SMALL_DISK)
        .initialize();
    let params = json!({ "cwd": "/mnt", "mcpServers": agent.servers });
    let session = agent.call("session/new", &params)["result"]["sessionId"].clone();
    agent.session = session.as_str().unwrap().to_owned();
    assert_eq!(agent.turn("make"), "end_turn");
    assert_eq!(agent.turn("change"), "end_turn");
    let full = agent.turn_text("/undo");
    assert!(full.contains("Not restored (") && full.contains("No space left"), "{full}");
    assert!(!full.contains("/proc/self/fd") && full.contains("* `d/"), "{full}");
    assert_eq!(agent.turn("make room"), "end_turn");
    let output = agent.turn_text("/undo");
    assert!(output.contains("Undone: turn 2") && !output.contains("Not restored"), "{output}");
    assert_eq!(agent.turn("look"), "end_turn");
    let result = turnwright_testing::cards::results(&agent, 7).pop().unwrap();
    assert!(result.contains("8\n") && result.contains("8000 d/8"), "{result}");
    assert!(agent.turn_text("/redo").contains("Restored (8)"));
}

#[cfg(unix)]
#[test]
fn a_file_that_a_killed_process_has_left_is_never_seen_and_soon_gone() {
    const LEFT: &str = ".turnwright-aB3xYz.tmp";
    let mut agent = TestAgent::builder()
        .file(LEFT, "needle\n")
        .file("other.txt", "needle\n")
        .permission("allow_once")
        .model(json!([]))
        .start();
    let an_hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3_600);
    let file = fs::File::options().write(true).open(agent.path(LEFT)).unwrap();
    file.set_modified(an_hour_ago).unwrap();
    for (tool, arguments) in [
        ("list_dir", json!({ "hidden": true })),
        ("find_files", json!({ "pattern": "**", "hidden": true })),
        ("grep", json!({ "pattern": "needle", "hidden": true })),
    ] {
        let results = turnwright_testing::cards::run_each(&mut agent, tool, &[arguments]);
        assert!(results[0].contains("other.txt") && !results[0].contains(LEFT), "{results:?}");
    }
    let shown = json!({ "command": "echo x > new; ls -a" });
    let results = turnwright_testing::cards::run_each(&mut agent, "exec", &[shown]);
    assert!(results[0].contains("new") && !results[0].contains(LEFT), "{results:?}");
    assert!(!agent.path(LEFT).exists());
    let diff = agent.turn_text("/diff");
    assert!(!diff.contains(LEFT), "{diff}");
}
