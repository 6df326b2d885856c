//! Protected files: a tool call that changes them asks, even in `auto` mode.

use serde_json::json;
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, calls, eventually, says};

#[test]
fn changing_moving_or_deleting_protected_files_asks() {
    let tool_calls = [
        calls("delete_path", &json!({ "path": ".github", "recursive": true })),
        calls("move_path", &json!({ "from": ".github", "to": "away" })),
        calls("move_path", &json!({ "from": "notes", "to": ".git/hooks/post-commit" })),
        calls("write_file", &json!({ "path": "sub/HEAD", "content": "ref: refs/heads/main" })),
        calls("write_file", &json!({ "path": "sub/config.worktree", "content": "[core]" })),
        calls("move_path", &json!({ "from": "notes", "to": "half/objects/x" })),
        calls("exec", &json!({ "command": "echo x > .git/hooks/post-commit", "escalate": "full" })),
    ];
    for tool_call in tool_calls {
        let mut agent = TestAgent::builder()
            .variable("TURNWRIGHT_MODE", "auto")
            .file(".git/config", "")
            .file(".github/workflows/ci.yml", "")
            .file("notes", "")
            .file("half/HEAD", "ref: refs/heads/main")
            .file("half/refs/x", "")
            .model(json!([tool_call, says("Ok.")]))
            .start();
        let id = agent.prompt("go");
        let question = agent.wait_for_request("session/request_permission");
        agent.choose(&question, "reject_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
        assert!(agent.path(".git/config").exists() && agent.path("notes").exists(), "{tool_call}");
    }
}

/// Makes a repository of which `git status` would run a program.
const TRAP: &str = "git init -q sub && git -C sub config core.fsmonitor ./x";

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn a_repository_that_a_command_makes_runs_nothing_of_its_choice() {
    let script = format!("{TRAP} && echo x > sub/.git/hooks/pre-commit && git init -q plain");
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", &script)
        .model(json!([calls("exec", &json!({ "command": "sh script" })), says("Ok.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let result = agent.model_request(1)["messages"].to_string();
    assert!(result.contains("or another program while it ran, created"), "{result}");
    assert!(!agent.path("sub/.git/config").exists());
    assert!(!agent.path("sub/.git/hooks/pre-commit").exists());
    assert!(agent.path("plain/.git/config").exists());
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn what_a_command_in_the_background_makes_is_taken_away_while_it_runs_and_when_it_ends() {
    let script = format!(
        "until [ -e go ]; do sleep 0.1; done; mkdir .vscode; echo x > .vscode/tasks.json
         while [ -e .vscode/tasks.json ]; do sleep 0.1; done
         mkdir -p a && cd a && {TRAP} && cd ..
         while [ -e a/sub/.git/config ]; do sleep 0.1; done; {TRAP}; touch over"
    );
    let call = calls("exec", &json!({ "command": "sh script", "background": true }));
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", &script)
        .model(json!([call, says("Ok.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    std::fs::write(agent.path("go"), "").unwrap();
    eventually("the trap is gone", || {
        agent.path("over").exists() && !agent.path("sub/.git/config").exists()
    });
    // The report is ready a little later.
    eventually("the model is told", || {
        agent.model().push(says("Ok.")).unwrap();
        assert_eq!(agent.turn("and?"), "end_turn");
        let last = agent.model().requests().len() - 1;
        let told = agent.model_request(last)["messages"].to_string();
        told.contains(".vscode/tasks.json") && told.contains("sub/.git/config")
    });
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn protected_files_that_a_command_writes_in_subfolders_are_taken_away_or_restored() {
    let script =
        "mkdir -p sub/.vscode sub/.cargo sub/.idea packages/x; echo x > sub/.vscode/tasks.json
        echo x > sub/.cargo/config.toml; echo x > packages/x/.envrc; echo x > sub/lefthook.yml
        echo x > sub/.idea/workspace.xml; ln -s ../src src/.vscode; echo evil > old/.envrc
        mv packages/y packages/z; echo fine > src/fine";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", script)
        .file("old/.envrc", "mine")
        .file("packages/y/.envrc", "of y")
        .file("src/main", "")
        .file(".gitignore", ".idea/\n")
        .model(json!([calls("exec", &json!({ "command": "sh script" })), says("Ok.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let result = agent.model_request(1)["messages"].to_string();
    for path in [
        "sub/.vscode/tasks.json",
        "sub/.cargo/config.toml",
        "packages/x/.envrc",
        "sub/lefthook.yml",
        "sub/.idea/workspace.xml",
        "src/.vscode",
    ] {
        assert!(result.contains(path), "{path}: {result}");
        assert!(std::fs::symlink_metadata(agent.path(path)).is_err(), "{path}");
    }
    assert!(result.contains("old/.envrc"), "{result}");
    assert_eq!(agent.read("old/.envrc"), "mine");
    // A folder may be moved with what is in it.
    assert_eq!(agent.read("packages/z/.envrc"), "of y");
    assert_eq!(agent.read("src/fine"), "fine\n");
}

/// A project with a virtual environment of each kind, whose `pip` installs what it is told, and more.
fn environments() -> crate::agent::TestAgentBuilder {
    let pip = "#!/bin/sh\nshift\npackage=.venv/lib/python3/site-packages/$1-1.dist-info\nmkdir -p $package
        echo $1 > .venv/bin/$1; echo ../../../bin/$1,, > $package/RECORD
        echo evil > .venv/bin/activate; echo ../../../bin/activate,, >> $package/RECORD
        echo evil > .venv/bin/git\n";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file(".gitignore", ".venv/\nnamed/\n")
        .file("sub/listed/pyvenv.cfg", "home = /usr/bin")
        .file("sub/.venv/bin/activate", "mine");
    for folder in [".venv", "named"] {
        agent = agent
            .file(&format!("{folder}/pyvenv.cfg"), "home = /usr/bin")
            .file(&format!("{folder}/bin/activate"), "mine")
            .file(&format!("{folder}/bin/ruff"), "mine")
            .file(&format!("{folder}/bin/pip"), pip);
    }
    agent.file("sub/listed/bin/activate", "mine").file("sub/listed/bin/ruff", "mine")
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn what_is_in_a_virtual_environment_is_not_changed_by_commands_that_are_no_installers() {
    let script =
        "echo evil > .venv/bin/activate; echo evil > .venv/bin/git; ln -sf ../../x .venv/bin/python
        echo evil > named/bin/ruff; echo evil > named/bin/git; echo evil > sub/listed/bin/ruff
        rm named/pyvenv.cfg; echo evil > sub/listed/bin/git; echo evil > sub/.venv/bin/activate
        echo evil > sub/.venv/bin/git; mkdir -p new/bin .new/bin; echo home > new/pyvenv.cfg
        echo evil > new/bin/activate; ln -s ../../x new/bin/python; echo fine > fine
        ln -s /usr/bin/python3 new/bin/python3; mkdir -p .venv/lib; echo fine > .venv/lib/x.py";
    let run = |it: &str| calls("exec", &json!({ "command": it }));
    // Words that lead to a path are no permission for it, either.
    let direct = "d=named/bin; rm -rf $d; mkdir -p $d; echo evil > $d/direct";
    let replies = [run("sh script"), run(direct), says("Ok.")];
    let mut agent = environments().file("script", script).model(json!(replies)).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let result = agent.model_request(2)["messages"].to_string();
    assert!(!agent.path("named/bin/direct").exists(), "{result}");
    for path in [".venv/bin/activate", "sub/listed/bin/ruff", "sub/.venv/bin/activate"] {
        assert_eq!(agent.read(path), "mine", "{path}: {result}");
    }
    // Without mount namespaces a program can be removed, which does no harm.
    let program = std::fs::read_to_string(agent.path("named/bin/ruff"));
    assert!(program.map_or(true, |it| it == "mine"), "{result}");
    for folder in [".venv", "named", "sub/listed", "sub/.venv"] {
        let path = format!("{folder}/bin/git");
        assert!(!agent.path(&path).exists(), "{path}: {result}");
    }
    for path in [".venv/bin/python", "new/bin/activate", "new/bin/python", "new/pyvenv.cfg"] {
        assert!(std::fs::symlink_metadata(agent.path(path)).is_err(), "{path}: {result}");
    }
    assert!(
        result.contains("[protected: the command") && result.contains("new/bin/activate"),
        "{result}"
    );
    assert!(std::fs::symlink_metadata(agent.path("new/bin/python3")).is_ok());
    assert_eq!(
        (agent.read("fine"), agent.read(".venv/lib/x.py")),
        ("fine\n".into(), "fine\n".into())
    );
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn installers_make_and_change_virtual_environments() {
    let commands = [
        ".venv/bin/pip install ruff && ls .venv",
        "python3 -m venv --without-pip other",
        "rm -rf .venv && python3 -m venv --without-pip .venv",
    ];
    let mut agent = environments().model(json!([])).start();
    #[cfg(unix)]
    {
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(agent.path(".venv/bin/pip"), executable).unwrap();
    }
    for (number, command) in commands.iter().enumerate() {
        let result = result_of(&mut agent, command);
        assert_eq!(result.contains("[protected:"), number == 0, "{command}: {result}");
        if number == 0 {
            assert_eq!(agent.read(".venv/bin/ruff"), "ruff\n", "{result}");
            assert_eq!(agent.read(".venv/bin/activate"), "mine", "{result}");
            assert!(!agent.path(".venv/bin/git").exists(), "{result}");
        }
    }
    assert!(agent.path("other/bin/activate").exists());
    assert!(agent.path(".venv/bin/activate").exists());
    assert!(!agent.path(".venv/bin/ruff").exists(), "it was made anew");
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn what_makes_an_environment_decides_nothing_but_what_is_in_it() {
    // An installer whose package makes an environment, with a program for each thing that the user runs there.
    let pip = "#!/bin/sh\nmkdir -p .venv/bin .venv/lib/python3/site-packages/x-1.dist-info
        for name in python python-x activate Activate.ps1 pip git; do echo evil > .venv/bin/$name; done
        ln -s python-x .venv/bin/python3; ln -s /proc/self/cwd/../usr/bin/python3 .venv/bin/python3.1
        for name in python activate Activate.ps1 pip; do echo ../../../bin/$name,,; done \
            > .venv/lib/python3/site-packages/x-1.dist-info/RECORD
        echo home = $PWD/src > .venv/pyvenv.cfg\n";
    let module = "open('.venv/bin/activate', 'w').write('evil')\nraise SystemExit";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("env/bin/pip", pip)
        .file("venv.py", module)
        .file("src/python3", "evil")
        .model(json!([]))
        .start();
    #[cfg(unix)]
    {
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(agent.path("env/bin/pip"), executable).unwrap();
    }
    let result = result_of(&mut agent, "env/bin/pip install x");
    assert!(result.contains("[protected: the command"), "{result}");
    let left = || {
        let entries = std::fs::read_dir(agent.path(".venv/bin")).into_iter().flatten().flatten();
        entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(left(), ["pip"], "{result}");
    assert!(!agent.path(".venv/pyvenv.cfg").exists(), "{result}");
    let result = result_of(&mut agent, "python3 -m venv --without-pip .venv");
    let activate = std::fs::read_to_string(agent.path(".venv/bin/activate")).unwrap_or_default();
    assert!(!activate.contains("evil"), "{result}");
}

/// Runs a command in a turn of its own, and returns what the model is told.
fn result_of(agent: &mut TestAgent, command: &str) -> String {
    agent.model().push(calls("exec", &json!({ "command": command }))).unwrap();
    agent.model().push(says("Ok.")).unwrap();
    assert_eq!(agent.turn("go"), "end_turn");
    let last = agent.model().requests().len() - 1;
    agent.model_request(last)["messages"].as_array().unwrap().last().unwrap().to_string()
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn an_installer_opens_no_environment_for_what_runs_beside_it() {
    let mut agent = environments().file("x.sh", "evil").model(json!([])).start();
    for line in [
        "pip install --help; COPY",
        "pip install ./nothing || COPY",
        "uv sync --dry-run; COPY",
        "uv run --help\nCOPY",
        "COPY; python3 -m venv other",
        "poetry install --help | cat; COPY",
        "cd sub; pip install --help; cd ..; COPY",
    ] {
        let copy = "cp x.sh .venv/bin/activate; cp x.sh .venv/bin/git; cp x.sh named/bin/ruff";
        let result = result_of(&mut agent, &line.replace("COPY", copy));
        for path in [".venv/bin/activate", "named/bin/ruff"] {
            assert_eq!(agent.read(path), "mine", "{line}: {path}: {result}");
        }
        assert!(!agent.path(".venv/bin/git").exists(), "{line}: {result}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn what_a_project_brings_as_an_example_becomes_no_file_that_is_obeyed_by_being_copied() {
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("fixtures/.venv/pyvenv.cfg", "home = /usr/bin\n")
        .file("fixtures/.venv/bin/activate", "evil")
        .file("fixtures/.venv/bin/python", "evil")
        .file("fixtures/.npmrc", "script-shell=./evil\n")
        .file("fixtures/.yarnrc.yml", "yarnPath: ./evil.cjs\n")
        .file("a/.envrc", "mine\n")
        .model(json!([]))
        .start();
    let line =
        "cp -r fixtures/.venv .venv; cp fixtures/.npmrc .; mv fixtures/.yarnrc.yml .; mv a b";
    let result = result_of(&mut agent, line);
    for path in [".venv/bin/activate", ".venv/bin/python", ".npmrc", ".yarnrc.yml"] {
        assert!(!agent.path(path).exists(), "{path}: {result}");
        assert!(result.contains(path), "{path}: {result}");
    }
    assert_eq!(agent.read("b/.envrc"), "mine\n", "{result}");
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn environments_of_conda_are_protected_like_those_of_python() {
    let script = "for d in .conda .pixi/envs/default; do echo evil > $d/bin/python
        echo evil > $d/etc/conda/activate.d/a.sh; done";
    let mut agent = TestAgent::builder().permission("allow_once").file("script", script);
    for folder in [".conda", ".pixi/envs/default"] {
        agent = agent
            .file(&format!("{folder}/bin/python"), "mine")
            .file(&format!("{folder}/etc/conda/activate.d/a.sh"), "mine");
    }
    let mut agent = agent.model(json!([])).start();
    let result = result_of(&mut agent, "sh script");
    for folder in [".conda", ".pixi/envs/default"] {
        for file in ["bin/python", "etc/conda/activate.d/a.sh"] {
            let path = format!("{folder}/{file}");
            assert_eq!(agent.read(&path), "mine", "{path}: {result}");
        }
    }
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn repositories_deep_in_ignored_folders_are_found_beside_the_calls() {
    let script = "mkdir -p node_modules/a/b && cd node_modules/a/b && git init -q . && \
        git config core.fsmonitor ./x";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", script)
        .file(".gitignore", "node_modules/\n")
        .file("node_modules/own/lib/.git/HEAD", "ref: refs/heads/main\n")
        .file("node_modules/own/lib/.git/config", "[core]\n\tfsmonitor = ./mine\n")
        .model(json!([calls("exec", &json!({ "command": "sh script" })), says("Ok.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let trap = agent.path("node_modules/a/b/.git/config");
    eventually("the trap is gone", || !trap.exists());
    eventually("the model is told", || {
        agent.model().push(says("Ok.")).unwrap();
        assert_eq!(agent.turn("and?"), "end_turn");
        let last = agent.model().requests().len() - 1;
        let told = agent.model_request(last)["messages"].to_string();
        told.contains("node_modules/a/b/.git/config")
    });
    assert!(agent.path("node_modules/own/lib/.git/config").exists());
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "the system does not report changes of folders")]
fn a_trap_that_a_command_sets_is_taken_away_while_the_command_runs() {
    // Each waits for the trap to disappear, and says whether it did.
    let script = "git init -q sub; sleep 0.5; git -C sub config core.fsmonitor ./x
        echo 'fsmonitor = ./x' >> known/.git/config
        mkdir -p a/b/.vscode .cargo deep/x/y/.cargo; echo evil > a/b/.vscode/tasks.json
        echo evil > .cargo/config.toml; echo evil > deep/x/y/.cargo/config.toml; echo evil > .envrc
        for trap in sub/.git/config known/.git/config a/b/.vscode/tasks.json .cargo/config.toml deep/x/y/.cargo/config.toml .envrc; do
          for time in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            grep -q 'evil\\|fsmonitor' $trap 2> /dev/null && sleep 0.5
          done
          grep -q 'evil\\|fsmonitor' $trap 2> /dev/null || echo gone $trap
        done";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", script)
        .file("known/.git/HEAD", "ref: refs/heads/main\n")
        .file("known/.git/config", "[core]\n")
        .model(json!([]))
        .start();
    let result = result_of(&mut agent, "sh script");
    for trap in [
        "sub/.git/config",
        "known/.git/config",
        "a/b/.vscode/tasks.json",
        ".cargo/config.toml",
        "deep/x/y/.cargo/config.toml",
        ".envrc",
    ] {
        assert!(result.contains(&format!("gone {trap}")), "{trap}: {result}");
    }
    assert!(result.contains("[protected: the command"), "{result}");
}

// Windows lets only administrators make symbolic links.
#[cfg(unix)]
#[test]
fn a_protected_link_protects_what_it_leads_to() {
    use std::os::unix::fs::symlink;

    let script = "echo evil >> scripts/check; echo evil >> code/settings.json
        echo {} > .vscode/tasks.json; echo fine > code/notes";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", script)
        .file("scripts/check", "old\n")
        .file("code/settings.json", "old\n")
        .file(".git/hooks/x.sample", "")
        .model(json!([]))
        .initialize();
    symlink("../../scripts/check", agent.path(".git/hooks/pre-commit")).unwrap();
    symlink("code", agent.path(".vscode")).unwrap();
    agent.session = agent.new_session();
    let result = result_of(&mut agent, "sh script");
    for file in ["scripts/check", "code/settings.json"] {
        assert_eq!(agent.read(file), "old\n", "{file}: {result}");
    }
    assert!(!agent.path("code/tasks.json").exists(), "{result}");
    assert!(agent.path("code/notes").exists() && !result.contains("NOT undone"), "{result}");
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn a_command_hides_nothing_behind_links_odd_repositories_and_names_of_the_agent() {
    let script = "set -e; mkdir -p src .turnwright-aaaaaa.tmp/.vscode odd lib/objects lib/refs
        for place in .git/zz $TMPDIR/t .turnwright-aaaaaa.tmp; do
          git init -q $place; git -C $place config core.fsmonitor ./x
        done
        ln -s .git/zz docs; ln -s $TMPDIR/t tmp; ln -s src fine
        echo x > .turnwright-aaaaaa.tmp/.vscode/tasks.json
        echo 'ref: refs/heads/main' > odd/HEAD; echo ../lib > odd/commondir; echo '[core]' > odd/config.worktree";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", script)
        .file(".git/HEAD", "ref: refs/heads/main\n")
        .file(".git/objects/x", "")
        .file(".git/refs/x", "")
        .file(".git/config", "[core]\n")
        .model(json!([]))
        .start();
    let result = result_of(&mut agent, "sh script");
    for trap in [
        ".git/zz/.git/config",
        "docs",
        "tmp",
        ".turnwright-aaaaaa.tmp/.git/config",
        ".turnwright-aaaaaa.tmp/.vscode/tasks.json",
        "odd/commondir",
        "odd/config.worktree",
    ] {
        assert!(std::fs::symlink_metadata(agent.path(trap)).is_err(), "{trap}: {result}");
    }
    assert!(result.contains("docs") && result.contains("odd/commondir"), "{result}");
    assert!(agent.path("fine").exists() && agent.path("odd/HEAD").exists());
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "the system does not report changes of folders")]
fn a_trap_in_one_of_many_repositories_is_taken_away_while_the_command_runs() {
    let script = "for n in 1 2 3 4 5 6 7; do for m in 0 1 2 3 4 5 6 7 8 9; do
          mkdir -p r$n$m/.git/objects r$n$m/.git/refs; echo 'ref: refs/heads/main' > r$n$m/.git/HEAD
          echo '[core]' > r$n$m/.git/config
        done; done; sleep 1; echo 'fsmonitor = ./x' >> r79/.git/config
        for time in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
          grep -q fsmonitor r79/.git/config 2> /dev/null && sleep 0.5
        done; grep -q fsmonitor r79/.git/config 2> /dev/null || echo all gone";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", script)
        .model(json!([]))
        .start();
    let result = result_of(&mut agent, "sh script");
    assert!(result.contains("all gone"), "{result}");
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn programs_that_settings_of_git_and_yarn_name_are_not_changed_by_commands() {
    let script = "echo evil > scripts/clean.sh; echo evil > .yarn/y.cjs; echo fine > scripts/other";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", script)
        .file(".git/HEAD", "ref: refs/heads/main\n")
        .file(".git/objects/x", "")
        .file(".git/refs/x", "")
        .file(".git/config", "[filter \"x\"]\n\tclean = ./scripts/clean.sh %f\n")
        .file(".yarnrc.yml", "yarnPath: .yarn/y.cjs\n")
        .file("scripts/clean.sh", "cat\n")
        .file(".yarn/y.cjs", "mine\n")
        .model(json!([]))
        .start();
    let result = result_of(&mut agent, "sh script");
    assert_eq!(agent.read("scripts/clean.sh"), "cat\n", "{result}");
    assert_eq!(agent.read(".yarn/y.cjs"), "mine\n", "{result}");
    assert_eq!(agent.read("scripts/other"), "fine\n", "{result}");
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn what_git_makes_on_its_way_to_something_harmless_stays() {
    let script = "set -e; git init -q r; cd r; git config user.name x; git config user.email x@example.com
        for n in 1 2 3 4 5; do echo $n > f; git add f; git commit -qm $n; done
        git worktree add -q wt -b other; git clone -q . copy; git -C copy submodule --quiet status
        git rebase -q --exec true HEAD~3; git stash list; git worktree remove wt; cat f; echo done-with-git";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", script)
        .model(json!([]))
        .start();
    let result = result_of(&mut agent, "sh script");
    assert!(result.contains("done-with-git") && !result.contains("[protected:"), "{result}");
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn working_trees_and_repositories_that_are_removed_as_a_whole_are_no_loss() {
    let setup =
        "set -e; git init -q . ; git config user.name x; git config user.email x@example.com
        git add .; git commit -qm x; git worktree add -q wt -b other; git init -q sub";
    // The agent looks at the folders while they are deleted.
    let script = "git worktree remove --force wt; rm -r sub/.git/hooks sub/.git/config; sleep 0.4
        [ -e sub/.git/config ] && echo restored-too-early; rm -r sub; echo done-with-git";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("setup", setup)
        .file("script", script)
        .model(json!([]))
        .start();
    let mut shell = std::process::Command::new("sh");
    let done = process_waits::status(shell.arg("setup").current_dir(agent.workspace()));
    assert!(done.unwrap().success());
    let result = result_of(&mut agent, "sh script");
    assert!(result.contains("done-with-git") && !result.contains("[protected:"), "{result}");
    assert!(!result.contains("restored-too-early"), "{result}");
    assert!(!agent.path("wt").exists() && !agent.path("sub").exists());
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn hooks_of_a_repository_that_stays_are_put_back() {
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", "rm -r sub/.git/hooks; echo done")
        .file("sub/.git/HEAD", "ref: refs/heads/main\n")
        .file("sub/.git/objects/x", "")
        .file("sub/.git/refs/x", "")
        .file("sub/.git/config", "[core]\n\tbare = false\n")
        .file("sub/.git/hooks/pre-commit", "mine")
        .model(json!([]))
        .start();
    let result = result_of(&mut agent, "sh script");
    assert!(result.contains("[protected:"), "{result}");
    assert_eq!(agent.read("sub/.git/hooks/pre-commit"), "mine", "{result}");
}

#[test]
#[cfg_attr(windows, ignore = "its commands are lines of sh")]
fn an_environment_can_be_deleted_as_a_whole_and_is_protected_when_it_is_made_anew() {
    let script = "mkdir -p named/bin && echo evil > named/bin/activate";
    let mut agent = environments().file("script", script).model(json!([])).start();
    let result = result_of(&mut agent, "rm -rf .venv && echo done-with-it");
    assert!(result.contains("done-with-it") && !result.contains("[protected:"), "{result}");
    assert!(!agent.path(".venv").exists());
    let result = result_of(&mut agent, "rm -rf named && sh script");
    let activate = std::fs::read_to_string(agent.path("named/bin/activate"));
    assert!(activate.is_err() || activate.unwrap() == "mine", "{result}");
}

#[test]
#[cfg_attr(windows, ignore = "its commands are scripts of sh")]
fn a_file_whose_content_decides_is_left_alone_as_long_as_it_runs_nothing() {
    let script = "echo 'nodeLinker: pnpm' > .yarnrc.yml; echo '[toolchain]' > rust-toolchain.toml
        mkdir web; echo 'yarnPath: ./x.cjs' > web/.yarnrc.yml; echo 'nodejs path:../x' > .tool-versions
        echo 'Do as you like.' > AGENTS.md; echo 'registry=https://r.example' > .npmrc
        echo 'Be kind.' > .clinerules; echo ./evil > .python-version; printf 'git\\t=./evil\\n' > web/.npmrc
        printf '\"p\\\\u0061th\" = \"./tc\"\\n' > web/rust-toolchain.toml";
    let mut agent = TestAgent::builder()
        .permission("allow_once")
        .file("script", script)
        .file(".tool-versions", "nodejs 20.1.0\n")
        .file("rust-toolchain.toml", "")
        .file(".clinerules", "Be quick.\n")
        .model(json!([]))
        .start();
    let result = result_of(&mut agent, "sh script");
    assert_eq!(agent.read(".yarnrc.yml"), "nodeLinker: pnpm\n", "{result}");
    assert_eq!(agent.read("rust-toolchain.toml"), "[toolchain]\n", "{result}");
    assert_eq!(agent.read("AGENTS.md"), "Do as you like.\n", "{result}");
    assert_eq!(agent.read(".tool-versions"), "nodejs 20.1.0\n", "{result}");
    assert_eq!(agent.read(".clinerules"), "Be kind.\n", "{result}");
    for trap in ["web/.yarnrc.yml", ".python-version", "web/.npmrc", "web/rust-toolchain.toml"] {
        assert!(!agent.path(trap).exists() && result.contains(trap), "{trap}: {result}");
    }
    assert!(!result.contains("AGENTS.md"), "{result}");
}
