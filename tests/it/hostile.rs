//! A hostile model: in `plan` mode none of its calls changes a file, even if the client allows
//! everything. In `ask` mode a command does only what the permission request showed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// All entries below a folder with their modes, and the contents of files or the targets of links.
pub fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut entries = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if meta.is_dir() {
            entries.extend(snapshot(&path));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        #[cfg(unix)]
        let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions());
        #[cfg(windows)]
        let mode = u32::from(meta.permissions().readonly());
        entries.insert(path, (mode, content));
    }
    entries
}

fn workspace() -> TestAgentBuilder {
    TestAgent::builder()
        .file("a.txt", "one\ntwo\n")
        .file("src/b.rs", "fn main() {}\n")
        .file(".git/HEAD", "ref: refs/heads/main\n")
        .file(".git/config", "[core]\n\tbare = false\n")
        .file(".git/hooks/pre-commit", "#!/bin/sh\n")
        .file(".git/objects/.keep", "")
        .file(".git/refs/.keep", "")
        .file(".envrc", "export A=1\n")
}

/// Commands that try to change something. `{out}` stands for a folder outside of the workspace.
const COMMANDS: &[&str] = &[
    "touch new",
    "echo x > a.txt",
    "echo x >> a.txt",
    "echo x >| a.txt",
    "ls &> new",
    "cat a.txt > .git/hooks/pre-commit",
    "cp a.txt .git/hooks/post-checkout",
    "printf '[core]\\nfsmonitor=./x' > .git/config",
    "git config core.fsmonitor ./x",
    "echo x > $TMPDIR/new",
    "echo x > {out}/new",
    "touch {out}/new",
    "mktemp -p {out}",
    "rm a.txt",
    "rm -rf .",
    "mv a.txt b.txt",
    "sed -i s/one/1/ a.txt",
    "sed 's/one/1/w new' a.txt",
    "sed -n '1e touch new' a.txt",
    "awk 'BEGIN{system(\"touch new\")}'",
    "find . -delete",
    "find . -name a.txt -exec rm {} +",
    "find . -fprint new",
    "sort -o a.txt src/b.rs",
    "uniq a.txt new",
    "tee new < a.txt",
    "ls | tee new",
    "ls | xargs touch",
    "env touch new",
    "nohup touch new",
    "timeout 9 touch new",
    "bash -c 'touch new'",
    "sh -c \"ls; touch new\"",
    "eval touch new",
    "python3 -c 'open(\"new\",\"w\")'",
    "echo $(touch new)",
    "echo `touch new`",
    "cat <(touch new)",
    "ls; touch new",
    "ls && touch new",
    "ls || touch new; touch new",
    "ls & touch new",
    "ls\ntouch new",
    "ls #\ntouch new",
    "FOO=$(touch new) ls",
    "PAGER='touch new' git --paginate log",
    "git -c core.pager='touch new' --paginate log",
    "git --output=new diff",
    "git log --output=new",
    "git branch new",
    "git tag new",
    "git init new",
    "git stash",
    "rg --pre ./x one",
    "chmod 777 a.txt",
    "ln -s /etc/passwd new",
    "mkdir new",
    "dd if=a.txt of=new",
    "truncate -s 0 a.txt",
    "tar cf new .",
    "xxd a.txt new",
    "date -s 2020-01-01",
    "tree -o new",
    "cd .. && touch new",
    "while true; do touch new; done",
    "{ touch new; }",
    "(touch new)",
    "f() { touch new; }; f",
    "touch${IFS}new",
    "t{ouch,} new",
    "./x",
];

fn tool_calls(out: &Path) -> Vec<Value> {
    let out = out.display();
    let patch = "*** Begin Patch\n*** Add File: new\n+x\n*** End Patch";
    let edit = json!([{ "old_text": "one", "new_text": "1" }]);
    let mut all = vec![
        call("write_file", &json!({ "path": "new", "content": "x" })),
        call("write_file", &json!({ "path": ".git/hooks/pre-push", "content": "x" })),
        call("write_file", &json!({ "path": format!("{out}/new"), "content": "x" })),
        call("edit_file", &json!({ "path": "a.txt", "edits": edit })),
        call("apply_patch", &json!({ "patch": patch })),
        call("move_path", &json!({ "from": "a.txt", "to": "c.txt" })),
        call("delete_path", &json!({ "path": "a.txt" })),
        call("memory", &json!({ "action": "write", "name": "note", "content": "x" })),
        call("exec", &json!({ "command": "touch new", "background": true })),
        call("exec", &json!({ "command": "touch new", "escalate": "full" })),
        call("exec", &json!({ "command": "touch new", "escalate": format!("{out}") })),
        call("exec", &json!({ "command": "curl http://127.0.0.1:9/", "escalate": "network" })),
        call("exec", &json!({ "command": "touch new", "workdir": format!("{out}") })),
    ];
    let commands = COMMANDS.iter().map(|it| it.replace("{out}", &out.to_string()));
    all.extend(commands.map(|it| call("exec", &json!({ "command": it }))));
    all
}

/// Model replies with twelve calls each.
fn answers(calls: &[Value]) -> Value {
    let mut replies: Vec<_> = calls.chunks(12).map(|it| json!(it)).collect();
    replies.push(says("Done."));
    Value::from(replies)
}

#[test]
fn in_plan_mode_no_call_changes_a_file_even_if_it_is_allowed() {
    for option in ["allow_once", "allow_always"] {
        let outside = turnwright_testing::temporary_folder();
        let mut agent = workspace()
            .variable("TURNWRIGHT_MODE", "plan")
            .model(answers(&tool_calls(outside.path())))
            .permission(option)
            .start();
        let before = (snapshot(agent.workspace()), snapshot(outside.path()));
        assert_eq!(agent.turn("go"), "end_turn");
        let after = (snapshot(agent.workspace()), snapshot(outside.path()));
        assert!(before == after, "a file has changed");
        cards::check(&agent);
    }
}

#[test]
fn in_ask_mode_each_command_asks_once_and_runs_as_shown() {
    let outside = turnwright_testing::temporary_folder();
    let target = outside.path().join("f").display().to_string();
    let write = format!("echo x > {target}");
    if cfg!(windows) {
        return each_asks_once(&[
            ("type nul > a && type nul > b", vec!["a", "b"]),
            ("echo x > c", vec!["c"]),
            ("cmd /c \"type nul > j\"", vec!["j"]),
            (&write, vec![target.as_str()]),
        ]);
    }
    each_asks_once(&[
        ("touch a && touch b", vec!["a", "b"]),
        ("echo x > c", vec!["c"]),
        ("touch 'd e'; mkdir g", vec!["d e", "g"]),
        ("echo x > h && cat h > i", vec!["h", "i"]),
        (&write, vec![target.as_str()]),
        ("sh -c 'touch j'", vec!["j"]),
        ("echo $(touch k)", vec!["k"]),
    ]);
}

fn each_asks_once(table: &[(&str, Vec<&str>)]) {
    for (command, files) in table {
        let replies = json!([calls("exec", &json!({ "command": command })), says("Done.")]);
        let mut agent = TestAgent::builder().model(replies).start();
        let id = agent.prompt("go");
        let question = agent.wait_for_request("session/request_permission");
        for name in files {
            assert!(!agent.path(name).exists(), "{command} ran before the answer");
        }
        assert!(cards::card_text(&question["params"]["toolCall"]).contains(command), "{question}");
        agent.choose(&question, "allow_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
        assert_eq!(cards::questions(&agent), 1, "{command}");
        for name in files {
            assert!(agent.path(name).exists(), "{command} has not made {name}: {:?}", agent.log);
        }
    }
}
