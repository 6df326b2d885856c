//! Traps for other programs that are set while something else happens: again and again, in the project's own repository,
//! or beside a change that the user has allowed.

use std::fs;

use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, eventually, says};

fn runs(command: &str) -> Value {
    calls("exec", &json!({ "command": command, "timeout": 30 }))
}

fn in_background(command: &str) -> Value {
    calls("exec", &json!({ "command": command, "background": true }))
}

/// Waits, in a script, until a file no longer has the word, and says so.
const UNTIL_GONE: &str = "gone() { n=0; while grep -q fsmonitor $1 2> /dev/null && [ $n -lt 40 ]; do sleep 0.2; \
                          n=$((n + 1)); done; grep -q fsmonitor $1 2> /dev/null || echo gone $1; }; ";

fn is_untested() -> bool {
    let is_untested = !turnwright_sandbox::can_confine();
    if is_untested {
        eprintln!("SKIPPED: this machine has no sandbox");
    }
    is_untested
}

#[test]
fn a_command_that_sets_a_trap_again_and_again_is_stopped() {
    if is_untested() {
        return;
    }
    let script = "while :; do echo evil > sub/.envrc; sleep 0.01; done";
    let mut agent = TestAgent::builder()
        .file("script", script)
        .file("sub/file", "")
        .permission("allow_once")
        .model(json!([runs("sh script"), says("Ok.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let result = agent.model_request(1)["messages"].to_string();
    assert!(result.contains("the command was stopped"), "{result}");
    assert!(!agent.path("sub/.envrc").exists());
}

#[test]
fn a_trap_in_the_repository_of_the_project_itself_is_taken_away_while_the_command_runs() {
    if is_untested() {
        return;
    }
    let trap = "printf '[core]\\n\\tfsmonitor = ./x\\n'";
    let script = format!(
        "{UNTIL_GONE}
        if [ -d .git ]; then
            mkdir -p .git/hooks; echo fsmonitor > .git/hooks/pre-commit; gone .git/hooks/pre-commit
            {trap} > .git/config.worktree; gone .git/config.worktree
            {trap} >> .git/modules/sub/config; gone .git/modules/sub/config
        else
            git init -q .; sleep 0.3; {trap} >> .git/config; gone .git/config
        fi; echo done"
    );
    for with_repository in [false, true] {
        let mut agent = TestAgent::builder().file("script", &script).permission("allow_once");
        if with_repository {
            agent = agent
                .file(".git/HEAD", "ref: refs/heads/main\n")
                .file(".git/config", "[core]\n")
                .file(".git/objects/x", "")
                .file(".git/refs/x", "")
                .file(".git/modules/sub/HEAD", "ref: refs/heads/main\n")
                .file(".git/modules/sub/config", "[core]\n");
        }
        let mut agent = agent.model(json!([runs("sh script"), says("Ok.")])).start();
        assert_eq!(agent.turn("go"), "end_turn");
        let result = agent.model_request(1)["messages"].to_string();
        let expected: &[&str] = if with_repository {
            &["hooks/pre-commit", "config.worktree", "modules/sub/config"]
        } else {
            &["config"]
        };
        for name in expected {
            assert!(result.contains(&format!("gone .git/{name}")), "{name}: {result}");
        }
    }
}

/// A job sets a trap when `go` is there, after the user has allowed something else.
fn job_after(call: &Value, trap: &str, check: impl FnOnce(&mut TestAgent)) {
    // What the words of its line named, the user would have allowed.
    let script =
        format!("touch ready; until [ -e go ]; do sleep 0.1; done; sleep 0.2; {trap}; sleep 60");
    let mut agent = TestAgent::builder()
        .file(".envrc", "echo old\n")
        .file("script", &script)
        .permission("allow_once")
        .model(json!([
            in_background("sh script"),
            says("Ok."),
            call,
            says("Ok."),
            calls("write_file", &json!({ "path": "go", "content": "" })),
            says("Ok."),
        ]))
        .start();
    assert_eq!(agent.turn("start it"), "end_turn");
    eventually("the job is ready", || agent.path("ready").exists());
    assert_eq!(agent.turn("allow it"), "end_turn");
    assert_eq!(agent.turn("go"), "end_turn");
    check(&mut agent);
}

#[test]
fn a_command_without_the_sandbox_excuses_a_job_only_while_it_runs() {
    if is_untested() {
        return;
    }
    let full =
        calls("exec", &json!({ "command": "echo of the user > .envrc", "escalate": "full" }));
    let trap =
        "mkdir -p sub/.vscode; echo evil > sub/.vscode/tasks.json; echo evil >> .envrc; touch set";
    job_after(&full, trap, |agent| {
        eventually("the trap was set", || agent.path("set").exists());
        eventually("the trap is gone", || {
            let text = fs::read_to_string(agent.path(".envrc")).unwrap_or_default();
            !agent.path("sub/.vscode/tasks.json").exists() && !text.contains("evil")
        });
    });
}

#[test]
fn a_change_that_was_allowed_once_excuses_no_later_one() {
    if is_untested() {
        return;
    }
    let write = calls("write_file", &json!({ "path": ".envrc", "content": "echo new\n" }));
    job_after(&write, "echo evil >> .envrc; touch set", |agent| {
        eventually("the trap was set", || agent.path("set").exists());
        eventually("the trap is gone", || {
            fs::read_to_string(agent.path(".envrc")).is_ok_and(|text| !text.contains("evil"))
        });
    });
}

#[test]
fn what_has_changed_when_the_agent_was_killed_beside_a_command_is_told_in_the_next_session() {
    if is_untested() || !turnwright_sandbox::namespace_support().mounts {
        return;
    }
    let mut agent = TestAgent::builder()
        .file("script", "touch ready; sleep 60")
        .file("sub/file", "")
        .variable("TURNWRIGHT_MODE", "auto")
        .model(json!([runs("sh script"), says("Ok."), says("Ok."), says("Ok.")]))
        .start();
    agent.prompt("go");
    eventually("the command runs", || agent.path("ready").exists());
    agent.kill();
    agent.restart();
    fs::create_dir_all(agent.path("sub/.vscode")).unwrap();
    fs::write(agent.path("sub/.vscode/tasks.json"), "evil").unwrap();
    for expected in [true, false] {
        agent.session = agent.new_session();
        agent.clear_log();
        assert_eq!(agent.turn("go on"), "end_turn");
        let told = serde_json::to_string(&agent.updates()).unwrap();
        let is_told = told.contains("was killed") && told.contains("sub/.vscode/tasks.json");
        assert_eq!(is_told, expected, "{told}");
    }
}

#[test]
fn where_a_git_file_leads_no_later_command_can_set_a_trap() {
    if is_untested() {
        return;
    }
    let make = |to: &str, git: &str| {
        format!(
            "mkdir -p node_modules {to}; git init -q --bare {git}; git -C {git} config core.bare false
            git -C {git} config core.worktree $PWD/{to}; echo gitdir: $PWD/{git} > {to}/.git"
        )
    };
    let trap = |git: &str| format!("git config -f {git}/config core.fsmonitor ./x");
    let scripts = [
        make("new", "node_modules/r"),
        make("sub", ".git/modules/sub"),
        trap("node_modules/known"),
        // The same while the command runs.
        format!("{UNTIL_GONE} {}; gone node_modules/known/config", trap("node_modules/known")),
        "mkdir -p node_modules/known/hooks; echo x > node_modules/known/hooks/post-merge
        echo gitdir: ../away > known/.git"
            .to_owned(),
    ];
    let mut agent = TestAgent::builder();
    let mut answers = Vec::new();
    for (number, script) in scripts.iter().enumerate() {
        // What the words of a line named, the user would have allowed.
        agent = agent.file(&format!("script{number}"), script);
        answers.push(runs(&format!("sh script{number}")));
    }
    answers.push(says("Ok."));
    let agent = agent
        .permission("allow_once")
        .file(".gitignore", "node_modules/\n")
        .file(".git/HEAD", "ref: refs/heads/main\n")
        .file(".git/config", "[core]\n")
        .file(".git/objects/x", "")
        .file(".git/refs/x", "")
        .file("known/.git", "gitdir: ../node_modules/known\n")
        .file("node_modules/known/HEAD", "ref: refs/heads/main\n")
        .file("node_modules/known/config", "[core]\n\tworktree = ../../known\n")
        .file("node_modules/known/objects/x", "")
        .file("node_modules/known/refs/x", "");
    let mut agent = agent.model(json!(answers)).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(!agent.path("new/.git").exists());
    assert!(agent.path("sub/.git").exists());
    assert!(!agent.read("node_modules/known/config").contains("fsmonitor"));
    let result = agent.model_request(4)["messages"].to_string();
    assert!(result.contains("gone node_modules/known/config"), "{result}");
    let result = agent.model_request(5)["messages"].to_string();
    assert!(result.contains("created") && result.contains("known/hooks/post-merge"), "{result}");
    assert!(!agent.path("node_modules/known/hooks/post-merge").exists());
    assert!(agent.read("known/.git").contains("node_modules/known"));
}

#[test]
fn a_trap_in_a_known_repository_in_an_ignored_folder_is_taken_away() {
    if is_untested() {
        return;
    }
    let git = "node_modules/own/lib/.git";
    let script = format!(
        "git config -f {git}/config core.fsmonitor ./x; echo evil > {git}/hooks/post-merge
        git config -f node_modules/other/lib/.git/config remote.origin.url https://other.example/x"
    );
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", &script)
        .file(".gitignore", "node_modules/\n")
        .file(&format!("{git}/HEAD"), "ref: refs/heads/main\n")
        .file(&format!("{git}/config"), "[remote \"origin\"]\n\turl = https://a.example/x\n")
        .file(&format!("{git}/hooks/pre-commit"), "mine")
        .file("node_modules/other/lib/.git/HEAD", "ref: refs/heads/main\n")
        .file("node_modules/other/lib/.git/config", "[core]\n\tbare = false\n")
        .model(json!([runs("sleep 0.5; true > x"), says("Ok."), runs("sh script"), says("Ok.")]))
        .start();
    assert_eq!(agent.turn("begin"), "end_turn");
    assert_eq!(agent.turn("go"), "end_turn");
    eventually("the trap is gone", || {
        !agent.path(&format!("{git}/hooks/post-merge")).exists()
            && fs::read_to_string(agent.path(&format!("{git}/config")))
                .is_ok_and(|text| !text.contains("fsmonitor"))
    });
    assert!(agent.path(&format!("{git}/hooks/pre-commit")).exists());
    let other = agent.read("node_modules/other/lib/.git/config");
    assert!(other.contains("other.example"), "{other}");
}

#[test]
fn working_trees_and_clones_that_a_command_makes_are_left_alone() {
    if is_untested() {
        return;
    }
    let script = "set -e; git() { command git -c user.name=a -c user.email=a@b.example -c protocol.file.allow=always \"$@\"; }
        git init -q libs/a; git -C libs/a commit -q --allow-empty -m a; git -C libs/a worktree add -q ../b
        git init -q .; git add .gitignore; git commit -q -m a; git worktree add -q tree; git worktree add -q .trees/x
        git clone -q libs/a clone; git submodule --quiet add ./libs/a sub; git worktree remove tree
        git clone -q --bare libs/a p/.bare; git -C p/.bare worktree add -q ../x; echo made";
    let more = "set -e; git -C p/.bare worktree add -q ../y
        git -C .trees/x checkout -q -b y; echo again";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("first", script)
        .file("second", more)
        .file(".gitignore", ".trees/\n")
        .model(json!([runs("sh first"), says("Ok."), runs("sh second"), says("Ok."), says("Ok.")]))
        .start();
    for _ in 0..3 {
        assert_eq!(agent.turn("go"), "end_turn");
    }
    let result = agent.model_request(4)["messages"].to_string();
    assert!(result.contains("made") && result.contains("again"), "{result}");
    assert!(!result.contains("[protected"), "{result}");
}
