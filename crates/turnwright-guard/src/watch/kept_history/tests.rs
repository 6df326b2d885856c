//! Keeps real repositories, and puts back what was lost when a command, or an agent, has ended.
#![expect(clippy::disallowed_methods, reason = "tests make files")]

use std::process::Command;

use super::*;

struct Project {
    folder: tempfile::TempDir,
    state: tempfile::TempDir,
}

impl Project {
    /// A repository with a packed commit and one that is not packed, and two branches.
    fn new() -> Project {
        let project = Project::with("git init -q -b main");
        project.run("git branch feature && git gc -q && git commit -q --allow-empty -m two");
        project.run("git branch loose");
        project
    }

    fn with(init: &str) -> Project {
        let folder = tempfile::tempdir().unwrap();
        let project = Project { folder, state: tempfile::tempdir().unwrap() };
        fs::create_dir(project.root()).unwrap();
        project.run(&format!("{init} && echo a > a && git add a && git commit -qm one"));
        project
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn git(&self) -> PathBuf {
        self.root().join(".git")
    }

    fn run(&self, script: &str) -> String {
        let script = format!(
            "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com \
             GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com; {script}"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(self.root());
        let output = shell.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text + &String::from_utf8_lossy(&output.stderr)
    }

    fn log(&self) -> String {
        self.run("git fsck --full 2>&1; git log --all --format='%s %D'")
    }

    /// Begins a command of an agent.
    fn begin(&self, agent: &mut HistoryKeeper, may_prune: bool) -> KeptHistory {
        let state = self.state.path();
        let mark = RunningMark::new(&state.join("running")).unwrap();
        let place = state.join("history");
        let flags = (may_prune, true);
        agent.keep(vec![self.git()], &place, flags, Some(mark))
    }

    /// Runs a script as a command, and returns what is told.
    fn script(&self, may_prune: bool, script: &str) -> String {
        let running = self.begin(&mut HistoryKeeper::default(), may_prune);
        self.run(script);
        running.end()
    }
}

impl KeptHistory {
    fn end(self) -> String {
        self.put_back().unwrap_or_default()
    }
}

#[test]
fn nothing_is_lost_when_the_agent_is_killed_while_a_script_deletes_the_history() {
    for script in [
        "rm -rf .git/objects .git/refs .git/logs",
        "rm -rf .git",
        "rm -rf .git/objects/pack",
        "rm -rf .git/objects/??",
    ] {
        let project = Project::new();
        let before = project.log();
        let killed = project.begin(&mut HistoryKeeper::default(), false);
        project.run(script);
        drop(killed);
        let running = project.begin(&mut HistoryKeeper::default(), false);
        assert_eq!(project.log(), before, "{script}");
        let report = running.end();
        assert!(report.contains("before this command began"), "{script}: {report}");
        assert_eq!(project.script(false, "true"), "", "{script}: it is told once");
    }
}

/// Its path is too long for the name of a file.
#[test]
fn a_repository_with_a_long_path_is_kept_like_any_other() {
    let folder = tempfile::Builder::new().prefix(&"long-".repeat(48)).tempdir().unwrap();
    let project = Project { folder, state: tempfile::tempdir().unwrap() };
    fs::create_dir(project.root()).unwrap();
    project.run("git init -q -b main && git commit -q --allow-empty -m one");
    let before = project.log();
    let report = project.script(false, "rm -rf .git/objects");
    assert!(report.contains("It is there again"), "{report}");
    assert_eq!(project.log(), before);
}

#[test]
fn a_command_of_another_agent_forgets_nothing_that_a_running_one_needs() {
    let project = Project::new();
    let before = project.log();
    let first = project.begin(&mut HistoryKeeper::default(), false);
    project.run("rm -rf .git/objects .git/refs .git/logs");
    let second = project.begin(&mut HistoryKeeper::default(), false);
    second.end();
    first.end();
    assert_eq!(project.log(), before);
}

#[test]
fn what_a_server_deletes_between_two_commands_comes_back_but_a_new_repository_stays_new() {
    let project = Project::new();
    let before = project.log();
    let mut agent = HistoryKeeper::default();
    project.begin(&mut agent, false).end();
    project.run("rm -rf .git/objects .git/refs/heads");
    let report = project.begin(&mut agent, false).end();
    assert!(report.contains("before this command began"), "{report}");
    assert_eq!(project.log(), before);
    project.run("rm -rf .git && git init -q -b main");
    assert_eq!(project.begin(&mut agent, false).end(), "");
    assert_eq!(project.run("git branch --all"), "");
}

#[test]
fn a_clone_that_is_deleted_as_a_whole_stays_deleted_and_a_new_one_is_not_the_old_one() {
    for (script, is_there) in [
        ("rm -rf ../project", false),
        ("mv ../project ../moved", false),
        ("rm -rf ../project; cp -r ../copy ../project", true),
    ] {
        let project = Project::new();
        project.run("cp -r . ../copy; git branch extra");
        assert_eq!(project.script(false, script), "", "{script}");
        assert_eq!(project.root().exists(), is_there, "{script}");
        assert!(!is_there || !project.run("git branch").contains("extra"), "{script}");
    }
}

#[test]
fn a_line_that_may_prune_loses_no_commit_of_a_branch() {
    let project = Project::new();
    let before = project.log();
    for script in [
        "rm -rf .git/objects/pack",
        "rm -rf .git/objects/??",
        "git gc -q; rm -rf .git/objects/pack",
    ] {
        let report = project.script(true, script);
        assert!(report.contains("It is there again"), "{script}: {report}");
        assert_eq!(project.log(), before, "{script}");
    }
    assert_eq!(project.script(true, "git gc -q --prune=now"), "");
    let loose = project.run("git count-objects");
    assert!(loose.starts_with("0 objects"), "{loose}");
}

#[test]
fn the_branches_in_tables_are_kept() {
    let project = Project::with("git init -q -b main --ref-format=reftable");
    if !project.git().join("reftable").is_dir() {
        return eprintln!("SKIPPED: this git has no reftables");
    }
    let before = project.log();
    for script in ["rm -rf .git/reftable", "rm .git/reftable/*.ref", "rm .git/reftable/tables.list"]
    {
        let report = project.script(false, script);
        assert!(report.contains("It is there again"), "{script}: {report}");
        assert_eq!(project.log(), before, "{script}");
    }
    assert_eq!(project.script(false, "git branch b && git pack-refs --all"), "");
}

#[test]
fn branches_that_git_deletes_stay_deleted() {
    let project = Project::new();
    for script in [
        "git branch -D loose",
        "git pack-refs --all",
        "git branch -m feature renamed",
        "git checkout -q --orphan new && git branch -D main renamed",
    ] {
        assert_eq!(project.script(false, script), "", "{script}");
    }
    assert_eq!(project.run("git branch --all"), "");
    let first = Project::with("git init -q -b main");
    assert_eq!(first.script(false, "git update-ref -d HEAD"), "");
    assert_eq!(first.run("git branch --all"), "");
}

#[test]
fn branches_that_a_script_deletes_come_back() {
    for script in [
        "rm .git/refs/heads/loose",
        "rm .git/refs/heads/loose; rm -rf .git/logs",
        "rm -rf .git/refs/heads/*",
        "rm -rf .git/refs/heads/* .git/packed-refs .git/logs",
        "rm .git/packed-refs",
    ] {
        let project = Project::new();
        let before = project.log();
        let report = project.script(false, script);
        assert!(report.contains("there again"), "{script}: {report}");
        assert_eq!(project.log(), before, "{script}");
    }
}

#[test]
fn a_branch_that_makes_place_for_a_folder_of_branches_is_kept() {
    let project = Project::new();
    let mut agent = HistoryKeeper::default();
    for script in
        ["git branch a", "git branch -D a; git branch a/b", "git branch -D a/b; git branch a"]
    {
        project.run(script);
        let before = project.log();
        let running = project.begin(&mut agent, false);
        assert_eq!(running.incomplete, [] as [PathBuf; 0], "{script}");
        project.run("rm -rf .git/refs/heads/a .git/logs");
        running.end();
        assert_eq!(project.log(), before, "{script}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_pack_that_is_too_large_for_a_copy_is_told_once_and_keeps_nothing_else_from_it() {
    let mut project = Project::new();
    project.run("rm -f .git/objects/pack/*.rev; truncate -s 65M .git/objects/pack/large.pack");
    let Ok(state) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("SKIPPED: this machine has no second file system");
    };
    fs::write(state.path().join("file"), "").unwrap();
    if fs::hard_link(state.path().join("file"), project.git().join("link")).is_ok() {
        return eprintln!("SKIPPED: this machine has no second file system");
    }
    project.state = state;
    let before = project.log();
    let mut agent = HistoryKeeper::default();
    let running = project.begin(&mut agent, false);
    assert_eq!(running.incomplete, [project.git()]);
    assert_eq!(running.end(), "");
    let running = project.begin(&mut agent, false);
    assert_eq!(running.incomplete, [] as [PathBuf; 0]);
    project.run("find .git/objects .git/refs .git/logs -type f ! -name large.pack -delete");
    let report = running.end();
    assert!(report.contains("It is there again"), "{report}");
    assert_eq!(project.log(), before);
    // Nothing says that all is well when it is not.
    let running = project.begin(&mut agent, false);
    project.run("rm -rf .git/objects .git/refs; touch .git/objects");
    let report = running.end();
    assert!(report.contains("could not be put back"), "{report}");
}
