//! Stored file changes: the agent finds the files that a command has changed, and stores their contents
//! before and after, so that the changes can be undone.

#[cfg(unix)]
use std::os::unix::fs::symlink;

use serde_json::json;
use turnwright_testing::command_lines::{run_on, then};
use turnwright_testing::stored_changes::file_changes;
use turnwright_testing::{cards, process_waits};

use crate::agent::{TestAgent, assert_gone, calls, eventually, says};

/// With the ends of lines that `sh` writes.
fn unix_lines(changes: Vec<String>) -> Vec<String> {
    changes.into_iter().map(|it| it.replace("\\r\\n", "\\n")).collect()
}

#[cfg(unix)]
#[test]
fn file_changes_of_a_command_are_found() {
    let table: &[(&str, &[&str])] = &[
        ("sed -i s/one/two/ a", &[r#"a: "one\n" → "two\n""#]),
        ("echo two >> a", &[r#"a: "one\n" → "one\ntwo\n""#]),
        ("rm -r d", &["d/b: \"b\\n\" → absent", "d/l: link b → absent", "d: folder → absent"]),
        ("mkdir n; echo x > n/.new", &[r#"n/.new: absent → "x\n""#, "n: absent → folder"]),
        ("chmod +x a", &[r#"a: "one\n" → "one\n" 755"#]),
        ("mv a z", &[r#"a: "one\n" → absent"#, r#"z: absent → "one\n""#]),
        ("ln -sf a d/l", &["d/l: link b → link a"]),
        ("rm a; mkdir a", &[r#"a: "one\n" → folder"#]),
        ("echo two > a; echo one > a; touch d; echo x > ignored; rm was-ignored", &[]),
        ("rm .gitignore", &[".gitignore: \"*ignored\\n\" → absent"]),
        (
            "mv d n; ln -s n d",
            &[
                "d/b: \"b\\n\" → absent",
                "d/l: link b → absent",
                "d: folder → link n",
                "n/b: absent → \"b\\n\"",
                "n/l: absent → link b",
                "n: absent → folder",
            ],
        ),
        ("mv was-ignored n", &["n: unknown moved here from an untracked place → \"x\""]),
        ("cat a", &[]),
        ("echo x > .env", &[".env: unknown may hold secrets → lost 2"]),
    ];
    for (command, expected) in table {
        let builder =
            TestAgent::builder().file("a", "one\n").file("d/b", "b\n").file(".env", "K=1");
        let builder = builder.file(".gitignore", "*ignored\n").file("was-ignored", "x");
        let replies = json!([calls("exec", &json!({ "command": command })), says("Done.")]);
        let mut agent = builder.model(replies).permission("allow_once").start();
        symlink("b", agent.path("d/l")).unwrap();
        // Time stamps of a file system lag behind the clock: without the pause the files could look as new as what
        // the command makes.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let result = cards::turn(&mut agent);
        assert_eq!(file_changes(&agent), *expected, "{command}: {result}");
    }
}

#[test]
fn each_change_starts_from_the_state_after_the_previous_call() {
    let write = calls("write_file", &json!({ "path": "a", "content": "two\n" }));
    let exec = |command: &str| calls("exec", &json!({ "command": command }));
    let replies =
        json!([exec("echo x> b"), write, exec(&then("echo y> b", "echo three> a")), says("Done.")]);
    let builder = TestAgent::builder().file("a", "one\n").model(replies);
    let mut agent = builder.permission("allow_once").start();
    cards::turn(&mut agent);
    let expected = [
        r#"a: "one\n" → "two\n""#,
        r#"a: "two\n" → "three\n""#,
        r#"b: "x\n" → "y\n""#,
        r#"b: absent → "x\n""#,
    ];
    assert_eq!(unix_lines(file_changes(&agent)), expected);
}

#[test]
fn the_card_lists_changes_that_cannot_be_undone() {
    let command = then("echo x>> big", "echo y> small");
    let replies = json!([calls("exec", &json!({ "command": command })), says("Done.")]);
    let builder = TestAgent::builder().file("big", &"x".repeat(12 << 20)).file("small", "x");
    let mut agent = builder.model(replies).permission("allow_once").start();
    cards::turn(&mut agent);
    let length = (12 << 20) + if cfg!(windows) { 3 } else { 2 };
    let expected = [&format!("big: unknown 12 MiB → lost {length}"), r#"small: "x" → "y\n""#];
    assert_eq!(unix_lines(file_changes(&agent)), expected);
    let text = cards::card_text(&cards::card(&agent, 0));
    assert!(text.contains("Not restorable by /undo: big (12 MiB). Files that"), "{text}");
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn changes_of_a_git_checkout_are_found() {
    let replies =
        json!([calls("exec", &json!({ "command": "git checkout -q old" })), says("Done.")]);
    let builder = TestAgent::builder().file("a", "one\n").model(replies);
    let mut agent = builder.permission("allow_once").start();
    let git = "git init -q . && git add . && git -c user.name=n -c user.email=e commit -qm 1 && \
               git branch old && echo two > a && echo b > b && git add . && \
               git -c user.name=n -c user.email=e commit -qm 2";
    let mut shell = std::process::Command::new("sh");
    let status = process_waits::status(shell.args(["-c", git]).current_dir(agent.workspace()));
    assert!(status.unwrap().success());
    let result = cards::turn(&mut agent);
    let expected = [r#"a: "two\n" → "one\n""#, r#"b: "b\n" → absent"#];
    assert_eq!(file_changes(&agent), expected, "{result}");
}

/// A filter that keeps the length, settings and attributes at every level.
#[cfg(unix)]
#[test]
fn what_git_has_converted_is_restored_as_it_was() {
    const SETUP: &str = r#"
        set -e
        git config --global core.attributesFile '~/mine'
        git config --global filter.rot.clean 'tr a-z b-za'
        git config --global filter.rot.smudge 'tr b-za a-z'
        echo '*.user filter=rot' > "$HOME/mine"
        git init -q .
        git config core.autocrlf true
        echo '*.info filter=rot' > .git/info/attributes
        mkdir -p sub/deep
        printf '[attr]hide filter=rot\n*.rot hide\n*.sln text eol=crlf\n*.lf text eol=lf\n' > .gitattributes
        printf '*.u16 working-tree-encoding=UTF-16LE\n*.id ident\n' > sub/.gitattributes
        printf 'one\r\none\r\n' | tee a.txt sub/a.sln sub/deep/b.c > /dev/null
        printf 'one\none\n' | tee a.lf a.rot sub/b.rot a.info sub/c.user > /dev/null
        printf 'one $Id: 0123 $\n' > sub/a.id
        printf 'o\0n\0e\0\n\0' > sub/a.u16
        printf 'one\r\none\n' > sub/mixed.sln
        find . -path ./.git -prune -o -type f -exec touch -d '1 hour ago' {} +
        git add . 2> /dev/null
        test -z "$(git status --porcelain --untracked-files=all | grep -v '^A ')"
    "#;
    let home = turnwright_testing::temporary_folder();
    let line = "find . -path ./.git -prune -o -type f -exec sed -i s/o/0/ {} +";
    let mut agent = TestAgent::builder()
        .variable("HOME", home.path().to_str().unwrap())
        .model(json!([calls("exec", &json!({ "command": line })), says("Done.")]))
        .permission("allow_once")
        .start();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", SETUP]).current_dir(agent.workspace()).env("HOME", home.path());
    let status = process_waits::status(shell.env("GIT_CONFIG_NOSYSTEM", "1"));
    assert!(status.unwrap().success());
    let names = [
        "a.txt",
        "sub/a.sln",
        "sub/deep/b.c",
        "a.lf",
        "a.rot",
        "sub/b.rot",
        "a.info",
        "sub/c.user",
        "sub/a.id",
        "sub/a.u16",
        "sub/mixed.sln",
    ];
    let contents = |agent: &TestAgent| names.map(|it| std::fs::read(agent.path(it)).unwrap());
    let before = contents(&agent);
    let result = cards::turn(&mut agent);
    let changed = contents(&agent);
    assert!(before.iter().zip(&changed).all(|(old, new)| old != new), "{result}");
    let text = cards::card_text(&cards::card(&agent, 0));
    assert!(!text.contains("Not restorable"), "{text}");
    let report = agent.turn_text("/undo");
    assert!(!report.contains("Cannot be restored"), "{report}");
    for ((name, old), new) in names.iter().zip(&before).zip(contents(&agent)) {
        assert_eq!(String::from_utf8_lossy(&new), String::from_utf8_lossy(old), "{name}: {report}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn changes_of_a_job_are_found_until_the_turn_ends() {
    let command =
        "echo 1 > a; while [ ! -e go ]; do sleep 0.01; done; echo 2 > b; echo 3 > c; sleep 60";
    let exec = calls("exec", &json!({ "command": command, "background": true }));
    let wait = calls("exec", &json!({ "command": "cat a" }));
    let write = calls("write_file", &json!({ "path": "go", "content": "" }));
    let replies = json!([exec, wait, write, [{ "hold": true }, { "text": "Done." }]]);
    let mut agent = TestAgent::builder().model(replies).permission("allow_once").start();
    let id = agent.prompt("go");
    eventually("the job has made its changes", || {
        // The client answers questions while it reads.
        agent.sync();
        std::fs::read(agent.path("c")).is_ok_and(|it| it == b"3\n")
    });
    agent.model().release();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    let expected = [
        r#"a: absent → "1\n""#,
        r#"b: absent → "2\n""#,
        r#"c: absent → "3\n""#,
        r#"go: absent → """#,
    ];
    assert_eq!(file_changes(&agent), expected);
}

#[test]
fn changes_of_a_cancelled_command_are_found() {
    let exec = calls("exec", &json!({ "command": then("echo x> a", &run_on("60.35")) }));
    let builder = TestAgent::builder().file("b", "").model(json!([exec]));
    let mut agent = builder.permission("allow_once").start();
    let id = agent.prompt("go");
    agent.wait_for_status("in_progress");
    let is_written =
        || std::fs::read_to_string(agent.path("a")).is_ok_and(|it| it.trim_end() == "x");
    eventually("the command has started", is_written);
    agent.cancel();
    assert_eq!(agent.stop_reason(&id), "cancelled");
    let expected = [r#"a: absent → "x\n""#];
    eventually("the change is stored", || unix_lines(file_changes(&agent)) == expected);
    assert_gone("60.35");
}
