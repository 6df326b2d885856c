//! `turnwright eval` and `stats`: tasks are made and refused, trials are made in trees and homes of their own, and the
//! results are shown. The checks need the sandbox, and `sh` and `git`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_eval::task::read_tasks;
use turnwright_testing::scripted_model::{Scenario, Server};
use turnwright_testing::{eventually, process_waits};

use crate::agent::{calls, run_mark, says, subcommand, writes};
use crate::store::can_mount;

/// The settings of the trials, which ask the model for nothing besides.
const PLAIN: [&str; 6] = ["--models", "scripted", "--set", "verify=off", "--jobs", "1"];
const FIX: &str = "\
[check]
command = 'sh check.sh'
restore = ['check.sh']
";

/// A project with tasks, and a model that plays a scenario.
struct Lab {
    home: TempDir,
    project: PathBuf,
    server: Server,
    _folder: TempDir,
}

/// A command that has ended.
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Lab {
    fn new(replies: &Value) -> Lab {
        let folder = turnwright_testing::temporary_folder();
        let project = folder.path().canonicalize().unwrap().join("project");
        fs::create_dir(&project).unwrap();
        let scenario = Scenario::from_value(json!({ "replies": replies })).unwrap();
        let server = Server::start(scenario, 0).unwrap();
        Lab { home: turnwright_testing::temporary_folder(), project, server, _folder: folder }
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.project.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A task whose check wants "good" in a.txt, which has "bad".
    fn fix_task(&self, name: &str) {
        self.write(&format!("evals/{name}/task.toml"), FIX);
        self.write(&format!("evals/{name}/prompt.md"), "Mend a.txt\n");
        self.write(&format!("evals/{name}/files/a.txt"), "bad\n");
        self.write(&format!("evals/{name}/files/check.sh"), "grep -q good a.txt\n");
        let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-bad\n+good\n";
        self.write(&format!("evals/{name}/solution.patch"), patch);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = subcommand(self.home.path(), arguments);
        command.current_dir(&self.project).envs([run_mark()]);
        command.env("OPENAI_BASE_URL", self.server.base_url());
        command.env("OPENAI_API_KEY", "sk-test-1234567").env("TURNWRIGHT_MODEL", "scripted");
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let output = process_waits::output(&mut self.command(arguments)).unwrap();
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        Ended { status: output.status.code(), stdout, stderr }
    }

    /// Runs the tasks, and returns what is shown and the lines of the results.
    fn eval(&self, arguments: &[&str]) -> (Ended, Vec<Value>) {
        let ended = self.run(&[&["eval", "run", "--out", "out"][..], &PLAIN, arguments].concat());
        (ended, self.lines("out"))
    }

    /// Has the model mend a.txt in a session.
    fn run_session(&self) {
        fs::create_dir_all(self.home.path().join("config")).unwrap();
        fs::write(self.home.path().join("config/config.toml"), "verify = 'off'\n").unwrap();
        let session = self.run(&["run", "--no-input", "--mode", "auto", "Mend a.txt"]);
        assert_eq!(session.status, Some(0), "{}", session.stderr);
    }

    fn lines(&self, out: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.project.join(out).join("trials.jsonl"));
        text.unwrap_or_default().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn git(&self, arguments: &[&str]) {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@localhost"]).args(arguments);
        command.current_dir(&self.project).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = process_waits::output(&mut command).unwrap();
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
    }

    /// Makes the project a repository with one commit.
    fn commit_all(&self, message: &str) {
        if !self.project.join(".git").exists() {
            self.git(&["init", "--quiet", "--initial-branch", "main"]);
        }
        self.git(&["add", "--all", "."]);
        self.git(&["commit", "--quiet", "--message", message]);
    }
}

/// Says if the test has to be left out.
fn cannot_confine() -> bool {
    let cannot = !turnwright_sandbox::can_confine();
    if cannot {
        eprintln!("skipped: commands cannot be confined here");
    }
    cannot
}

fn outcomes(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect()
}

#[test]
fn our_own_tasks_can_be_read() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/tasks");
    let tasks = read_tasks(&place, &[]).unwrap();
    assert_eq!(tasks.len(), 20);
    assert!(tasks.iter().any(|task| !task.name.is_ascii() && !task.prompt.is_ascii()));
}

#[test]
fn trials_are_made_checked_and_shown() {
    if cannot_confine() {
        return;
    }
    let lab = Lab::new(&json!([writes("a.txt", "good\n"), says("Done."), says("I did nothing.")]));
    lab.fix_task("fix");
    let (ended, lines) = lab.eval(&["--runs", "2"]);
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(outcomes(&lines), ["passed", "failed"], "{lines:?}");
    assert_eq!(
        (&lines[0]["model"], &lines[0]["served"]),
        (&json!("scripted"), &json!(["scripted"]))
    );
    assert_eq!((&lines[0]["requests"], &lines[0]["edits"]), (&json!(2), &json!(1)), "{lines:?}");
    assert_eq!(lines[0]["set"], json!(["verify=off"]));
    assert!(lines[1]["reason"].as_str().unwrap().starts_with("check: exit 1"), "{lines:?}");
    assert!(ended.stdout.lines().any(|line| line.starts_with("fix ") && line.ends_with(" 1/2")));
    let last = "2 of 2 · fix · scripted · 2: failed: check: exit 1";
    assert!(ended.stderr.contains(last), "{}", ended.stderr);
    // It goes on where it stopped: the third trial is the only one.
    let (ended, lines) = lab.eval(&["--runs", "3"]);
    assert_eq!((ended.status, lines.len()), (Some(0), 3), "{}", ended.stderr);
    assert_eq!(lab.server.requests().len(), 4);
    // The same results are the same page.
    for file in ["one.html", "two.html"] {
        assert_eq!(lab.run(&["eval", "show", "out", "--html", file]).status, Some(0));
    }
    let [one, two] = ["one.html", "two.html"].map(|file| fs::read(lab.project.join(file)).unwrap());
    assert_eq!(one, two);
    let shown = lab.run(&["eval", "show", "out", "--json"]);
    let value: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(
        value["columns"][0]["tasks"]["fix"],
        json!({ "passed": 1, "trials": 3, "invalid": 0 })
    );
    let compared = lab.run(&["eval", "compare", "out", "out"]);
    assert!(compared.stdout.contains("Cannot tell: "), "{}", compared.stdout);
}

#[test]
fn the_files_of_the_check_are_put_back() {
    if cannot_confine() {
        return;
    }
    let lab = Lab::new(&json!([writes("check.sh", "exit 0\n"), says("Passed.")]));
    lab.fix_task("fix");
    let (_, lines) = lab.eval(&["--runs", "1"]);
    assert_eq!(outcomes(&lines), ["failed"], "the agent has changed the check, not the file");
}

#[test]
fn a_trial_has_a_home_and_a_tree_of_its_own() {
    if cannot_confine() {
        return;
    }
    let lab = Lab::new(&json!([says("Done.")]));
    lab.write("a.txt", "first\n");
    lab.commit_all("first");
    lab.write("a.txt", "the fix\n");
    lab.commit_all("second");
    let check = "test -z \"$(git remote)\" && test \"$(git log --all --oneline | wc -l)\" -eq 1 && \
                 grep -q first a.txt && test ! -e \"$HOME/mine\" && test -z \"$OPENAI_API_KEY\"";
    fs::write(lab.home.path().join("mine"), "").unwrap();
    lab.write("evals/look/prompt.md", "Look\n");
    lab.write(
        "evals/look/task.toml",
        &format!("[start]\ncommit = 'HEAD~1'\n[check]\ncommand = '''{check}'''\n"),
    );
    let (ended, lines) = lab.eval(&["--runs", "1"]);
    assert_eq!(outcomes(&lines), ["passed"], "{lines:?} {}", ended.stderr);
}

/// Outside of the temporary folder, nothing else hides the project.
#[test]
fn a_trial_reads_the_objects_of_its_start_and_nothing_else_of_the_project() {
    if cannot_confine() {
        return;
    }
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if place.path().starts_with(std::env::temp_dir()) {
        eprintln!("skipped: the sandbox hides the temporary folder");
        return;
    }
    let mut lab = Lab::new(&json!([says("Done."), says("Done.")]));
    lab.project = place.path().canonicalize().unwrap();
    lab.write("a.txt", "first\n");
    lab.commit_all("first");
    // A key of another provider is not in the places that are hidden from all commands.
    let keys = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let key = keys.path().join("other.key");
    turnwright_types::private_file::write(&key, b"sk-other-1234567\n").unwrap();
    let provider = format!(
        "[providers.other]\nbase_url = 'http://localhost:1/v1'\nkey_file = '{}'\n",
        key.display()
    );
    fs::create_dir_all(lab.home.path().join("config")).unwrap();
    fs::write(lab.home.path().join("config/config.toml"), provider).unwrap();
    let file = lab.project.join("a.txt");
    let check = format!(
        "git show HEAD:a.txt | grep -q first && ! grep -q first '{}' && ! grep -q sk-other '{}'",
        file.display(),
        key.display()
    );
    lab.write("evals/look/prompt.md", "Look\n");
    lab.write(
        "evals/look/task.toml",
        &format!("[start]\ncommit = 'HEAD'\n[check]\ncommand = \"\"\"{check}\"\"\"\n"),
    );
    let (ended, lines) = lab.eval(&["look", "--runs", "1"]);
    assert_eq!(outcomes(&lines), ["passed"], "{lines:?} {}", ended.stderr);
}

#[test]
fn a_model_that_cannot_be_used_ends_the_run_and_the_rest_is_kept() {
    if cannot_confine() {
        return;
    }
    let refusal = json!([{ "status": 401, "body": { "error": { "message": "no such key" } } }]);
    let lab = Lab::new(&json!([says("Nothing."), refusal]));
    lab.fix_task("fix");
    let (ended, lines) = lab.eval(&["--runs", "3"]);
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 of 3 trials are kept in "), "{}", ended.stderr);
    assert_eq!(outcomes(&lines), ["failed"]);
}

#[test]
fn a_run_that_is_stopped_counts_nothing_half_done() {
    if cannot_confine() {
        return;
    }
    let lab = Lab::new(&json!([[{ "hang": true }]]));
    lab.fix_task("fix");
    let arguments = [&["eval", "run", "--out", "out"][..], &PLAIN].concat();
    let mut command = lab.command(&arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("a request", || !lab.server.requests().is_empty());
    let id = child.id().to_string();
    process_waits::output(Command::new("kill").args(["-INT", &id])).unwrap();
    let output = process_waits::wait_with_output(child);
    assert_eq!(output.status.code(), Some(130));
    assert!(lab.lines("out").is_empty(), "a trial that was stopped does not count");
}

#[test]
fn a_run_ends_at_its_cost() {
    if cannot_confine() {
        return;
    }
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110,
        "cost": 0.02 });
    let mut answer = says("Nothing.");
    answer.as_array_mut().unwrap().push(json!({ "usage": usage }));
    let lab = Lab::new(&json!(vec![answer; 3]));
    lab.fix_task("fix");
    let (ended, lines) = lab.eval(&["--runs", "3", "--max-cost", "0.03"]);
    assert_eq!(ended.status, Some(6), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(outcomes(&lines), ["failed", "failed"], "the second one passes the limit");
    assert!(ended.stderr.contains("2 of 3 · $0.04 so far · "), "{}", ended.stderr);
    assert!(ended.stdout.contains("Go on with the same command and --out "), "{}", ended.stdout);
}

#[test]
fn a_check_that_floods_is_cut() {
    if cannot_confine() {
        return;
    }
    let lab = Lab::new(&json!([says("Nothing.")]));
    lab.fix_task("fix");
    let flood = "head -c 20000000 /dev/zero | tr '\\0' x; exit 3";
    lab.write("evals/fix/task.toml", &format!("[check]\ncommand = '''{flood}'''\n"));
    let (ended, lines) = lab.eval(&["--runs", "1"]);
    assert_eq!(outcomes(&lines), ["failed"], "{}", ended.stderr);
    let reason = lines[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("check: exit 3: xxx") && reason.chars().count() <= 201, "{reason}");
}

/// Something else fills a small disk after the first trial.
#[test]
fn a_full_disk_keeps_the_finished_trials() {
    if cannot_confine() || !can_mount() {
        return;
    }
    let lab = Lab::new(&json!(vec![says("Nothing."); 12]));
    lab.fix_task("fix");
    let long = "head -c 190 /dev/zero | tr '\\0' x";
    lab.write(
        "evals/fix/files/check.sh",
        &format!("grep -q good a.txt || {{ {long}; exit 1; }}\n"),
    );
    let command = lab.command(&[]);
    let program = command.get_program().to_owned();
    let script = "mount -t tmpfs -o size=12m none /mnt || exit 99; \
                  (until test -s /mnt/out/trials.jsonl; do sleep 0.1; done; cat /dev/zero >/mnt/rest) >/dev/null 2>&1 & \
                  filler=$!; \"$@\"; code=$?; kill $filler 2>/dev/null; cp /mnt/out/trials.jsonl out.jsonl; exit $code";
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "sh", "-c", script, "sh"]).arg(program).current_dir(&lab.project);
    inside.args(["eval", "run", "--out", "/mnt/out", "--runs", "12"]).args(PLAIN);
    inside.env_clear();
    for (name, value) in command.get_envs() {
        inside.env(name, value.unwrap());
    }
    let output = process_waits::output(&mut inside).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let kept = fs::read_to_string(lab.project.join("out.jsonl")).unwrap().lines().count();
    assert!((1..12).contains(&kept), "{kept}: {stderr}");
    let expected = format!("{kept} of 12 trials are kept in /mnt/out. ");
    assert!(stderr.contains(&expected), "{stderr}");
}

/// The first check reads "bad" from the pipe, and the next one "good".
#[test]
fn a_flaky_check_is_refused() {
    if cannot_confine() {
        return;
    }
    let lab = Lab::new(&json!([]));
    lab.write("a.txt", "bad\n");
    lab.commit_all("first");
    let shared = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if shared.path().starts_with(std::env::temp_dir()) {
        eprintln!("skipped: the sandbox hides the temporary folder");
        return;
    }
    let pipe = shared.path().join("pipe");
    assert!(process_waits::status(Command::new("mkfifo").arg(&pipe)).unwrap().success());
    let mut answers = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    answers.write_all(b"bad\ngood\n").unwrap();
    let check = format!("read answer <'{}' && test \"$answer\" = good", pipe.display());
    let ended = lab.run(&["eval", "new", "flaky", "--check", &check]);
    assert_eq!(ended.status, Some(2));
    let told = "The check of flaky gave two answers for the same files (run 1: check: exit 1: , run 2: exit 0).";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
    assert!(!lab.project.join("evals/flaky").exists());
}

#[test]
fn a_check_that_proves_nothing_is_refused() {
    if cannot_confine() {
        return;
    }
    let lab = Lab::new(&json!([]));
    lab.write("a.txt", "bad\n");
    lab.commit_all("first");
    let ended = lab.run(&["eval", "new", "easy", "--check", "true"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("The check of easy passes at the start"), "{}", ended.stderr);
    assert!(!lab.project.join("evals/easy").exists());
    lab.fix_task("late");
    lab.write("evals/late/task.toml", "[check]\ncommand = 'sleep 60'\ntimeout = 1\n");
    lab.fix_task("fix");
    let ended = lab.run(&["eval", "new", "late"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("the check did not end within 1 s; "), "{}", ended.stderr);
    fs::remove_file(lab.project.join("evals/late/solution.patch")).unwrap();
    let ended = lab.run(&["eval", "new", "late"]);
    let told = "At the start it gives: the check did not end within 1 s; ";
    assert!(ended.stdout.contains(told), "{}{}", ended.stdout, ended.stderr);
    let ended = lab.run(&["eval", "new", "fix"]);
    let proven = "The check of fix fails at the start and passes with the solution.\n";
    assert_eq!((ended.status, &*ended.stdout), (Some(0), proven), "{}", ended.stderr);
    lab.write("evals/fix/task.toml", "[chek]\ncommand = 'true'\n");
    let ended = lab.run(&["eval", "new", "fix"]);
    assert!(
        ended.stderr.contains(
            "Task fix is damaged: task.toml line 1: unknown field `chek`, expected one of "
        ),
        "{}",
        ended.stderr
    );
}

#[test]
fn what_a_check_prints_is_no_escape_sequence_of_the_terminal() {
    if cannot_confine() {
        return;
    }
    let lab = Lab::new(&json!([]));
    lab.fix_task("fix");
    let clears = "[check]\ncommand = 'printf \"\\033[2J\\n\" >&2; exit 1'\n";
    lab.write("evals/fix/task.toml", clears);
    for (status, shown) in [(Some(2), "exit 1: \u{241b}[2J"), (Some(0), "exit 1: \\u{1b}[2J")] {
        let ended = lab.run(&["eval", "new", "fix"]);
        let told = ended.stdout + &ended.stderr;
        assert!(ended.status == status && told.contains(shown), "{told}");
        fs::remove_file(lab.project.join("evals/fix/solution.patch")).ok();
    }
}

#[test]
fn a_task_cannot_ask_for_the_network() {
    let lab = Lab::new(&json!([]));
    lab.fix_task("fix");
    lab.write("evals/fix/task.toml", &format!("{FIX}[run]\nnetwork = true\n"));
    let (ended, lines) = lab.eval(&["--runs", "1"]);
    assert_eq!((ended.status, lines.len()), (Some(2), 0), "{}", ended.stderr);
    assert!(ended.stderr.contains("unknown field `run`"), "{}", ended.stderr);
}

#[test]
fn a_session_becomes_a_task_with_its_start_and_its_solution() {
    if cannot_confine() {
        return;
    }
    let replies =
        json!([writes("a.txt", "good\n"), says("Done."), writes("a.txt", "good\n"), says("Done.")]);
    let lab = Lab::new(&replies);
    lab.write("a.txt", "bad\n");
    lab.write("b.txt", "old\n");
    lab.commit_all("first");
    lab.git(&["config", "diff.noprefix", "true"]);
    lab.write("b.txt", "not committed\n");
    lab.write("c.txt", "new\n");
    lab.run_session();
    let check = "grep -q good a.txt && grep -q 'not committed' b.txt && grep -q new c.txt";
    let made = lab.run(&["eval", "new", "mend", "--session", "last", "--check", check]);
    assert_eq!(made.status, Some(0), "{}{}", made.stdout, made.stderr);
    let task = |name: &str| fs::read_to_string(lab.project.join("evals/mend").join(name)).unwrap();
    assert_eq!(task("prompt.md"), "Mend a.txt\n");
    assert!(
        task("start.patch").contains("+not committed") && task("start.patch").contains("c.txt")
    );
    assert!(task("solution.patch").contains("+good") && !task("solution.patch").contains("c.txt"));
    let (ended, lines) = lab.eval(&["--runs", "1"]);
    assert_eq!(outcomes(&lines), ["passed"], "{lines:?} {}", ended.stderr);
    let stats = lab.run(&["stats"]).stdout;
    let row: Vec<_> = stats.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[1..4], ["scripted", "1", "1"], "{stats}");
}

#[test]
fn the_start_of_a_session_holds_no_secret_that_was_deleted() {
    if cannot_confine() {
        return;
    }
    let lab = Lab::new(&json!([writes("a.txt", "good\n"), says("Done.")]));
    lab.write("conf/.env", "PASSWORD=unlikely-word\n");
    lab.commit_all("first");
    fs::remove_file(lab.project.join("conf/.env")).unwrap();
    lab.run_session();
    let ended = lab.run(&["eval", "new", "mend", "--session", "last", "--check", "true"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("a file that may hold secrets was changed"), "{}", ended.stderr);
}

#[test]
fn tasks_are_exported_in_the_format_of_harbor() {
    let lab = Lab::new(&json!([]));
    lab.fix_task("fix");
    let ended = lab.run(&["eval", "export", "--harbor", "out"]);
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    let read = |name: &str| fs::read_to_string(lab.project.join("out").join(name)).unwrap();
    assert!(read("fix/task.toml").starts_with("schema_version = \"1.4\"\n"));
    assert_eq!(read("fix/instruction.md"), "Mend a.txt\n");
    assert_eq!(read("fix/environment/tree/a.txt"), "bad\n");
    assert_eq!(read("fix/tests/restore/check.sh"), "grep -q good a.txt\n");
    assert!(read("fix/tests/test.sh").contains("/logs/verifier/reward.txt"));
    assert!(read("fix/solution/solution.patch").contains("+good"));
    let entry: Value = serde_json::from_str(&read("turnwright.json")).unwrap();
    assert_eq!(entry["distribution"]["local"]["cmd"], "turnwright");
}

/// The files of a trial are in the temporary folder of the system, and only as long as the trial lasts.
#[test]
fn no_login_is_left_behind() {
    if cannot_confine() {
        return;
    }
    let lab = Lab::new(&json!([says("Nothing.")]));
    lab.fix_task("fix");
    let temporary = turnwright_testing::temporary_folder();
    let arguments = [&["eval", "run", "--runs", "1", "--out", "out"][..], &PLAIN].concat();
    let output = process_waits::output(lab.command(&arguments).env("TMPDIR", temporary.path()));
    assert!(output.unwrap().status.success());
    let left = fs::read_dir(temporary.path()).unwrap().flatten();
    let names: Vec<_> = left.map(|entry| entry.file_name()).collect();
    let mut shown = names.iter().map(|name| name.to_string_lossy());
    assert!(!shown.any(|name| name.starts_with("turnwright-tmp-")), "{names:?}");
    assert!(!holds_key(&lab.project.join("out")));
}

fn holds_key(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().flatten().any(|entry| match entry.path() {
        path if path.is_dir() => holds_key(&path),
        path => fs::read(path)
            .is_ok_and(|bytes| bytes.windows(15).any(|window| window == b"sk-test-1234567")),
    })
}

/// The home of a trial is another one than that of the user, whose secrets stay hidden all the same. So does the
/// project.
#[test]
fn a_trial_reads_neither_the_secrets_of_the_user_nor_the_project_nor_the_solution() {
    if cannot_confine() {
        return;
    }
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!("SKIPPED: without mount namespaces `auto` asks about the command");
    }
    let lab = Lab::new(&json!([calls("exec", &json!({ "command": "sh look.sh" })), says("Done.")]));
    let mine = turnwright_testing::temporary_folder();
    let task = lab.project.join("evals/look");
    fs::create_dir(mine.path().join(".ssh")).unwrap();
    fs::write(mine.path().join(".ssh/id_ed25519"), "secret\n").unwrap();
    fs::create_dir_all(lab.home.path().join("config")).unwrap();
    fs::write(lab.home.path().join("config/config.toml"), "# secret\n").unwrap();
    lab.write("evals/look/check/answer.txt", "secret\n");
    lab.write("evals/look/prompt.md", "Look\n");
    lab.write("fixed.txt", "secret\n");
    let places = "\"$MINE/.ssh/id_ed25519\" \"$TASK/check/answer.txt\" \"$PROJECT/fixed.txt\" \
                  \"$AGENT/config/config.toml\"";
    let script = format!("cat {places} 2>errors.txt >seen.txt\nls >ran.txt\n");
    lab.write("evals/look/files/look.sh", &script);
    let check = format!("test -s ran.txt && test ! -s seen.txt && test -z \"$(cat {places})\"");
    lab.write("evals/look/task.toml", &format!("[check]\ncommand = '''{check}'''\n"));
    let arguments = [&["eval", "run", "--runs", "1", "--out", "out"][..], &PLAIN].concat();
    let mut command = lab.command(&arguments);
    command.env("HOME", mine.path()).env("MINE", mine.path());
    command.env("TASK", task).env("PROJECT", &lab.project).env("AGENT", lab.home.path());
    let output = process_waits::output(&mut command).unwrap();
    let lines = lab.lines("out");
    assert_eq!(outcomes(&lines), ["passed"], "{lines:?} {output:?}");
}
