//! Commands of `exec` in the sandbox: which files they can change and read, and which processes end with
//! them. The tests print a note and pass if this machine has no sandbox.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwright_testing::questions::attempt;
use turnwright_testing::{cards, process_waits};

use crate::agent::{TestAgent, TestAgentBuilder, assert_gone, calls, eventually, says};

/// Whether the machine has a sandbox. Prints a note if the test has to skip.
fn has_sandbox(test: &str) -> bool {
    let has = turnwright_sandbox::can_confine();
    if !has {
        eprintln!("SKIPPED: {test}: this machine has no sandbox");
    }
    has
}

/// An agent in `auto` mode. Its client allows what is asked there without mount namespaces.
fn auto() -> TestAgentBuilder {
    TestAgent::builder().variable("TURNWRIGHT_MODE", "auto").permission("allow_once")
}

fn exec(command: &str) -> Value {
    json!({ "command": command })
}

/// Runs a command that must not cause a permission request if the sandbox is complete.
fn unasked(builder: TestAgentBuilder, command: &str) -> (TestAgent, String) {
    let replies = json!([calls("exec", &exec(command)), says("Done.")]);
    let mut agent = builder.model(replies).start();
    let result = cards::turn(&mut agent);
    assert_no_question(&agent);
    (agent, result)
}

/// Without mount namespaces, there may be questions.
fn assert_no_question(agent: &TestAgent) {
    if turnwright_sandbox::namespace_support().mounts {
        assert_eq!(cards::questions(agent), 0);
    }
}

#[test]
fn auto_mode_can_write_only_in_the_project() {
    if !has_sandbox("auto_mode_can_write_only_in_the_project") {
        return;
    }
    let outside = turnwright_testing::temporary_folder();
    let (agent, result) = unasked(auto(), "echo x > a.txt && cat a.txt");
    assert!(result.contains("exit 0") && agent.path("a.txt").exists(), "{result}");
    let command =
        format!("python3 -c 'open(\"{0}/x\", \"w\")' || touch {0}/x", outside.path().display());
    let (agent, result) = unasked(auto(), &command);
    assert!(!outside.path().join("x").exists());
    let denial = format!("[sandbox: {} is not writable", outside.path().display());
    assert!(result.contains(&denial), "{result}");
    assert!(result.contains("\"escalate\""), "{result}");
    // The user reads the same without the advice to the model.
    let shown = cards::card_text(&cards::card(&agent, 0));
    assert!(shown.contains(&denial), "{shown}");
    assert!(!shown.contains("escalate"), "{shown}");
}

#[test]
fn the_protected_file_that_a_command_could_not_write_is_named_with_what_asks_for_it() {
    let name = "the_protected_file_that_a_command_could_not_write_is_named_with_what_asks_for_it";
    if !has_sandbox(name) || !turnwright_sandbox::namespace_support().mounts {
        return;
    }
    for line in [
        "git config user.email a@b.example",
        "git remote add o https://a.example/b.git",
        "git config core.hooksPath .husky",
    ] {
        let mut agent = auto().model(json!([calls("exec", &exec(line)), says("Done.")])).start();
        let mut init = Command::new("git");
        init.args(["init", "-q"]).current_dir(agent.workspace());
        assert!(process_waits::output(&mut init).unwrap().status.success());
        let result = cards::turn(&mut agent);
        assert_no_question(&agent);
        let config = agent.workspace().canonicalize().unwrap().join(".git/config");
        let config = config.display();
        assert!(result.contains(&format!("{config} is protected")), "{line}: {result}");
        assert!(result.contains(&format!("\"escalate\": \"{config}\"")), "{line}: {result}");
        assert!(!result.contains("writes only in"), "{line}: {result}");
    }
    let line = "git remote add o https://a.example/b.git";
    let arguments = json!({ "command": line, "escalate": ".git/config" });
    let mut agent = auto().model(json!([calls("exec", &arguments), says("Done.")])).start();
    let mut init = Command::new("git");
    init.args(["init", "-q"]).current_dir(agent.workspace());
    assert!(process_waits::output(&mut init).unwrap().status.success());
    let result = cards::turn(&mut agent);
    assert_eq!(cards::questions(&agent), 1);
    assert!(agent.read(".git/config").contains("a.example"), "{result}");
}

#[test]
fn a_command_that_the_sandbox_has_stopped_is_not_run_again() {
    if !has_sandbox("a_command_that_the_sandbox_has_stopped_is_not_run_again") {
        return;
    }
    let outside = turnwright_testing::temporary_folder();
    let command = format!("echo run >> runs.txt; touch {}/x", outside.path().display());
    let (agent, result) = unasked(auto(), &command);
    assert!(result.contains("[sandbox: "), "{result}");
    assert_eq!(std::fs::read_to_string(agent.path("runs.txt")).unwrap(), "run\n");
    assert!(!outside.path().join("x").exists());
}

#[test]
fn a_file_of_the_machines_tmp_that_a_line_names_is_copied() {
    if !has_sandbox("a_file_of_the_machines_tmp_that_a_line_names_is_copied") {
        return;
    }
    let outside = turnwright_testing::temporary_folder();
    std::fs::write(outside.path().join("shot.png"), "content").unwrap();
    let (agent, result) = unasked(auto(), &format!("cp {}/shot.png .", outside.path().display()));
    let copied = std::fs::read_to_string(agent.path("shot.png"));
    assert_eq!(copied.ok().as_deref(), Some("content"), "{result}");
}

#[test]
fn a_name_with_a_process_number_is_no_earlier_commands() {
    let test = "a_name_with_a_process_number_is_no_earlier_commands";
    if !has_sandbox(test) || !turnwright_sandbox::namespace_support().processes {
        return;
    }
    let line = exec("mkdir /tmp/build.$$ && echo made");
    let replies = json!([calls("exec", &line), calls("exec", &line), says("Done.")]);
    let mut agent = auto().model(replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_no_question(&agent);
    for request in [1, 2] {
        let result = agent.model_request(request)["messages"].as_array().unwrap().last().cloned();
        assert!(
            result.as_ref().is_some_and(|text| text.to_string().contains("made")),
            "{result:?}"
        );
    }
}

#[test]
fn the_temporary_folder_is_private_and_deleted_with_the_session() {
    if !has_sandbox("the_temporary_folder_is_private_and_deleted_with_the_session") {
        return;
    }
    let command = "touch \"$TMPDIR/x\" && stat -c '%a %n' \"$TMPDIR\" && mktemp";
    let (mut agent, result) = unasked(auto(), command);
    let line =
        result.lines().find(|it| it.starts_with("700 ")).unwrap_or_else(|| panic!("{result}"));
    let folder = std::path::PathBuf::from(&line["700 ".len()..]);
    assert!(folder.join("x").exists() && !folder.starts_with(agent.workspace()));
    agent.close();
    assert!(!folder.exists());
}

#[test]
fn a_file_is_copied_to_the_tmp_of_the_session_without_a_question_and_not_moved() {
    if !has_sandbox("a_file_is_copied_to_the_tmp_of_the_session_without_a_question_and_not_moved")
        || !turnwright_sandbox::namespace_support().mounts
    {
        return;
    }
    let mut agent = TestAgent::builder()
        .file("a.txt", "content")
        .variable("TURNWRIGHT_MODE", "auto-edit")
        .permission("reject_once")
        .start();
    for (line, questions) in [
        ("cp a.txt /tmp/copy-of-a.txt", 0),
        ("mv a.txt /tmp/", 1),
        ("mv /tmp/copy-of-a.txt b.txt", 0),
    ] {
        let (count, result) = attempt(&mut agent, "exec", &exec(line));
        assert_eq!(count, questions, "{line}: {result}");
    }
    assert!(agent.path("a.txt").exists() && agent.path("b.txt").exists());
}

#[test]
fn what_a_command_leaves_in_tmp_is_found_by_the_next_and_by_file_tools_and_by_nobody_else() {
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!("SKIPPED: a /tmp of the session: this machine has no mount namespaces");
    }
    let name = format!("turnwright-test-{}", std::process::id());
    let users = tempfile::Builder::new().prefix("of-the-user-").tempfile_in("/tmp").unwrap();
    std::fs::write(users.path(), "content of the user").unwrap();
    let users = users.path().display();
    let print = |path: &str| format!("python3 -c 'print(open(\"{path}\").read() * 2)'");
    let other = format!("{name}-2");
    let steps = [
        ("exec", exec(&format!("echo redirected > /tmp/{name}")), "[exit 0"),
        ("exec", exec(&print(&format!("/tmp/{name}"))), "redirected\nredirected\n"),
        ("exec", exec(&format!("cat /tmp/{name}")), "\nredirected"),
        ("exec", exec("mktemp -p /tmp"), "/tmp/tmp."),
        ("exec", exec("ls /tmp"), &name),
        ("read_file", json!({ "path": format!("/tmp/{name}") }), "redirected"),
        ("list_dir", json!({ "path": "/tmp" }), &name),
        ("write_file", json!({ "path": format!("/tmp/{other}"), "content": "of a tool" }), "/tmp/"),
        ("exec", exec(&format!("touch new; cat /tmp/{other} && rm /tmp/{other}")), "of a tool"),
        ("read_file", json!({ "path": format!("/tmp/{other}") }), "does not exist"),
        ("exec", json!({ "command": "pwd; touch x", "workdir": "/tmp" }), "\n/tmp\n"),
        ("exec", exec(&print(&users.to_string())), "content of the usercontent of the user"),
        ("exec", exec("ls -d /tmp/of-the-user-* | wc -l; touch new"), "\n1\n"),
    ];
    let calls_of = |(tool, arguments, _): &(&str, Value, &str)| calls(tool, arguments);
    let replies: Vec<_> = steps.iter().map(calls_of).chain([says("Done.")]).collect();
    let mut agent = auto().model(json!(replies)).start();
    cards::turn(&mut agent);
    assert_eq!(cards::questions(&agent), 0);
    let results = cards::results(&agent, steps.len());
    for ((_, arguments, expected), result) in steps.iter().zip(results) {
        assert!(result.contains(expected), "{arguments}: {result}");
    }
    // Where it is on the machine.
    let held = || {
        let folders = std::fs::read_dir("/tmp").unwrap().flatten().map(|entry| entry.path());
        folders.filter(|folder| folder.join("tmp").join(&name).exists()).count()
    };
    assert!(held() == 1 && !Path::new("/tmp").join(&name).exists());
    agent.close();
    assert_eq!(held(), 0);
}

/// Its words may name any place, and what somebody was asked about before is not open to it either.
#[test]
fn a_command_that_nobody_is_asked_about_reads_nothing_of_the_users_tmp() {
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!("SKIPPED: a /tmp of the session: this machine has no mount namespaces");
    }
    let users = tempfile::Builder::new().prefix("of-the-user-").tempdir_in("/tmp").unwrap();
    for (name, content) in [("other.txt", "text of the user"), (".env", "secret of the user")] {
        std::fs::write(users.path().join(name), content).unwrap();
    }
    let users = users.path().display();
    let search = format!("echo {users}/other.txt {users}/.env; grep -rhs of.the.user /tmp; true");
    let asked = exec(&format!("python3 -c 'print(open(\"{users}/other.txt\").read() * 2)'"));
    let steps = [exec(&search), asked, exec(&search)];
    let calls_of = |arguments: &Value| calls("exec", arguments);
    let replies: Vec<_> = steps.iter().map(calls_of).chain([says("Done.")]).collect();
    let builder = TestAgent::builder().permission("allow_once");
    let mut agent = builder.model(json!(replies)).start();
    cards::turn(&mut agent);
    assert_eq!(cards::questions(&agent), 1);
    let results = cards::results(&agent, steps.len());
    assert!(results[1].contains("text of the usertext of the user"), "{}", results[1]);
    for result in [&results[0], &results[2]] {
        assert!(!result.contains("of the user"), "{result}");
    }
}

/// `$TMPDIR` lies in `/tmp`, where every command that may write has it.
#[test]
fn a_search_of_tmp_that_nobody_is_asked_about_does_not_fail() {
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!("SKIPPED: a /tmp of the session: this machine has no mount namespaces");
    }
    let name = format!("turnwright-test-left-{}", std::process::id());
    let write = format!("touch new; echo left-by-a-command > /tmp/{name}");
    let steps = [write, "grep -r left-by-a-command /tmp".into(), format!("find /tmp -name {name}")];
    let calls_of = |line: &String| calls("exec", &exec(line));
    let replies: Vec<_> = steps.iter().map(calls_of).chain([says("Done.")]).collect();
    let mut agent = auto().model(json!(replies)).start();
    cards::turn(&mut agent);
    assert_eq!(cards::questions(&agent), 0);
    for result in &cards::results(&agent, steps.len())[1..] {
        assert!(result.contains("[exit 0") && result.contains(&name), "{result}");
    }
}

/// In `auto` mode nobody is asked about reading outside of the project.
#[test]
fn with_strict_reading_nothing_outside_is_read_by_naming_it() {
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!("SKIPPED: strict reading: this machine has no mount namespaces");
    }
    let settings = "[sandbox]\nread = \"strict\"\n";
    for place in ["/tmp", "/var/tmp"] {
        let users = tempfile::Builder::new().prefix("of-the-user-").tempdir_in(place).unwrap();
        let file = users.path().join("file");
        std::fs::write(&file, "content of the user").unwrap();
        let file = file.display();
        for line in [
            format!("cat {file}; cat a"),
            format!("python3 -c 'print(open(\"{file}\").read())'; cat a"),
        ] {
            let builder = auto().file("a", "of the project");
            let (_, result) = unasked(builder.own_file("config/config.toml", settings), &line);
            assert!(result.contains("of the project"), "{line}: {result}");
            assert!(!result.contains("content of"), "{line}: {result}");
        }
    }
}

#[test]
fn what_a_command_leaves_in_shared_memory_is_found_by_the_next_and_by_no_other_session() {
    if !turnwright_sandbox::namespace_support().network {
        return eprintln!("SKIPPED: the memory of a session: this machine has no private networks");
    }
    let name = format!("/dev/shm/turnwright-test-{}", std::process::id());
    let write = format!("python3 -c 'open(\"{name}\", \"w\").write(\"left\")'");
    let read = format!("python3 -c 'print(open(\"{name}\").read() * 2)'");
    let steps = [exec(&write), exec(&read), exec(&format!("cat {name}"))];
    let calls_of = |arguments: &Value| calls("exec", arguments);
    let replies: Vec<_> = steps.iter().map(calls_of).chain([says("Done.")]).collect();
    let mut agent = auto().model(json!(replies)).start();
    cards::turn(&mut agent);
    let results = cards::results(&agent, steps.len());
    assert!(results[1].contains("leftleft") && results[2].contains("left"), "{results:?}");
    let (_other, result) = unasked(auto(), &read);
    assert!(result.contains("No such file"), "{result}");
    assert!(!Path::new(&name).exists());
}

#[test]
fn a_redirect_into_shared_memory_makes_nothing_on_the_machine() {
    if !turnwright_sandbox::namespace_support().network {
        return eprintln!("SKIPPED: the memory of a session: this machine has no private networks");
    }
    let name = format!("/dev/shm/turnwright-test-redirect-{}", std::process::id());
    let steps = [format!("echo redirected > {name}"), format!("cat {name}")];
    let calls_of = |line: &String| calls("exec", &exec(line));
    let replies: Vec<_> = steps.iter().map(calls_of).chain([says("Done.")]).collect();
    let mut agent = auto().model(json!(replies)).start();
    cards::turn(&mut agent);
    let results = cards::results(&agent, steps.len());
    assert!(results[1].contains("\nredirected"), "{results:?}");
    assert!(!Path::new(&name).exists());
}

#[test]
fn addresses_of_agents_and_buses_are_not_in_the_environment() {
    if !has_sandbox("addresses_of_agents_and_buses_are_not_in_the_environment") {
        return;
    }
    let builder = auto().variable("SSH_AUTH_SOCK", "/x").variable("DBUS_SESSION_BUS_ADDRESS", "/x");
    let (_, result) = unasked(builder, "env | grep -c -E 'SSH_AUTH|DBUS'; true");
    assert!(result.contains("\n0"), "{result}");
}

#[test]
fn changes_of_protected_files_fail_the_command_and_are_undone() {
    if !has_sandbox("changes_of_protected_files_fail_the_command_and_are_undone") {
        return;
    }
    for (command, file, before) in [
        // The command line does not contain the name of the protected file.
        ("python3 -c \"open('.env'+'rc','w').write('x')\"", ".envrc", Some("old")),
        ("python3 -c \"open('.mcp'+'.json','w').write('x')\"", ".mcp.json", None),
        ("mkdir .husky && cp a .husky/pre-commit", ".husky/pre-commit", None),
        ("mv .git g && mkdir .git && cp a .git/config", ".git/config", Some("[core]\n")),
    ] {
        let builder = auto().file("a", "x").file(".envrc", "old").file(".git/config", "[core]\n");
        let replies = json!([calls("exec", &exec(command)), says("Done.")]);
        let mut agent = builder.model(replies).permission("allow_once").start();
        let result = cards::turn(&mut agent);
        let now = std::fs::read_to_string(agent.path(file)).ok();
        assert_eq!(now.as_deref(), before, "{command}: {result}");
        // If the kernel has refused the change, there is nothing to undo.
        let was_refused = result.contains("[sandbox:");
        assert!(was_refused || result.contains("[protected:"), "{command}: {result}");
        assert_eq!(cards::card(&agent, 0)["status"], "failed", "{command}");
    }
}

#[test]
fn changes_of_protected_files_by_a_job_are_reported_when_it_ends() {
    if !has_sandbox("changes_of_protected_files_by_a_job_are_reported_when_it_ends") {
        return;
    }
    let command = "sleep 1.2; cp a .envrc";
    let job = json!({ "command": command, "background": true });
    let look = json!({ "id": "p1", "wait": 20, "signal": null });
    let mut agent = auto()
        .file("a", "new")
        .model(json!([
            calls("exec", &job),
            calls("exec_output", &look),
            calls("exec_output", &look),
            says("Done.")
        ]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    let messages = agent.model_request(3)["messages"].to_string();
    assert!(messages.contains("or another program while it ran, created"), "{messages}");
    assert!(!agent.path(".envrc").exists());
}

#[test]
fn a_read_only_command_runs_without_asking_unless_the_repository_has_programs() {
    if !has_sandbox("a_read_only_command_runs_without_asking_unless_the_repository_has_programs") {
        return;
    }
    let builder = || TestAgent::builder().file("a", "x");
    let (_, result) = unasked(builder(), "git status; cat a");
    assert!(result.contains('x'), "{result}");
    let trap = |setting: &str| {
        let config =
            format!("[core]\n\trepositoryformatversion = 0\n{setting} = touch mark; false\n");
        let head = builder().file(".git/HEAD", "ref: refs/heads/m\n").file(".git/config", &config);
        head.file(".git/objects/x", "").file(".git/refs/x", "")
    };
    // One that a command without a question can be kept from is not started.
    let (agent, _) = unasked(trap("\tfsmonitor"), "git status");
    assert!(!agent.path("mark").exists());
    // Other settings of this repository start a program, so the command asks.
    let replies = json!([calls("exec", &exec("git diff")), says("Done.")]);
    let mut agent = trap("[diff]\n\texternal").model(replies).start();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    agent.choose(&question, "reject_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(!agent.path("mark").exists());
}

#[test]
fn an_escalation_always_asks_and_opens_what_it_names() {
    if !has_sandbox("an_escalation_always_asks_and_opens_what_it_names") {
        return;
    }
    let outside = turnwright_testing::temporary_folder();
    let other = turnwright_testing::temporary_folder();
    let command =
        format!("touch {}/x; touch {}/x", outside.path().display(), other.path().display());
    let arguments = json!({ "command": command, "escalate": outside.path() });
    let replies = json!([calls("exec", &arguments), says("Done.")]);
    let mut agent = auto().model(replies).permission("allow_once").start();
    cards::turn(&mut agent);
    assert_eq!(cards::questions(&agent), 1);
    assert!(outside.path().join("x").exists() && !other.path().join("x").exists());
}

#[test]
fn the_sandbox_enforces_deny_rules_for_commands_that_cannot_be_analysed() {
    if !has_sandbox("the_sandbox_enforces_deny_rules_for_commands_that_cannot_be_analysed") {
        return;
    }
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!("SKIPPED: deny rules for commands: this machine has no mount namespaces");
    }
    let rules = "[permissions]\ndeny = ['read(/secret)', 'edit(/ci)']";
    let builder = auto()
        .own_file("config/config.toml", rules)
        .file("secret/key", "hidden")
        .file("ci/a", "old")
        .file("b", "open");
    let command = "$(echo cat) secret/key; $(echo touch) ci/new; $(echo cat) ci/a b; echo end";
    let (agent, result) = unasked(builder, command);
    assert!(result.contains("oldopenend") && !result.contains("hidden"), "{result}");
    assert!(!agent.path("ci/new").exists());
}

#[test]
fn a_secret_below_a_denied_folder_is_hidden_with_it() {
    if !has_sandbox("a_secret_below_a_denied_folder_is_hidden_with_it") {
        return;
    }
    let builder = auto()
        .own_file("config/config.toml", "[permissions]\ndeny = ['read(/closed)']")
        .file("closed/.env", "canary-71")
        .file("closed/key", "canary-71")
        .file("open", "canary-72");
    let (_agent, result) = unasked(builder, "grep -r canary .");
    assert!(result.contains("canary-72") && !result.contains("canary-71"), "{result}");
}

#[test]
fn a_process_in_another_group_with_an_empty_environment_ends_with_the_command() {
    if !has_sandbox("a_process_in_another_group_with_an_empty_environment_ends_with_the_command") {
        return;
    }
    // The command also tries to reset the resource limit that marks its processes.
    let command = "(ulimit -x 5; exec env -i setsid sleep 613.1) >/dev/null 2>&1 & sleep 0.3; true";
    let (_agent, result) = unasked(auto(), command);
    assert!(result.contains("[left running in the background and stopped"), "{result}");
    assert_gone("sleep\x00613.1");
}

#[test]
fn the_users_changes_of_protected_files_during_a_command_are_kept() {
    if !has_sandbox("the_users_changes_of_protected_files_during_a_command_are_kept") {
        return;
    }
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!("SKIPPED: changes by the user: this machine has no mount namespaces");
    }
    let command = "touch begun; until test -e go; do sleep 0.02; done";
    let replies = json!([calls("exec", &json!({ "command": command })), says("Done.")]);
    let builder = auto().file(".git/hooks/pre-commit", "old\n").file(".envrc", "old\n");
    let mut agent = builder.model(replies).start();
    let id = agent.prompt("go");
    eventually("the command runs", || agent.path("begun").exists());
    std::fs::write(agent.path(".git/hooks/pre-commit"), "mine\n").unwrap();
    std::fs::write(agent.path(".envrc"), "mine\n").unwrap();
    std::fs::write(agent.path("go"), "").unwrap();
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert_eq!(agent.read(".git/hooks/pre-commit"), "mine\n");
    assert_eq!(agent.read(".envrc"), "mine\n");
}

#[test]
fn a_command_cannot_read_secret_files_that_it_does_not_name() {
    if !has_sandbox("a_command_cannot_read_secret_files_that_it_does_not_name") {
        return;
    }
    for command in [
        "cat p*v",
        "grep -r hush .",
        "cat ./n*",
        "grep -R hush .",
        "rg --hidden --no-ignore hush",
        "grep -rn hush . ; true",
        "/usr/bin/grep -r hush .",
        "timeout 5 /usr/bin/grep -r hush .",
        "/usr/bin/diff -r . sub",
        "cat other",
    ] {
        let builder = TestAgent::builder()
            .file("prod.env", "KEY=hush-hush\n")
            .file("sub/.env", "KEY=hush-hush\n")
            .file("note", "plain\n");
        let replies = json!([calls("exec", &json!({ "command": command })), says("Done.")]);
        let mut agent = builder.model(replies).permission("reject_once").start();
        std::os::unix::fs::symlink("prod.env", agent.path("next")).unwrap();
        std::fs::hard_link(agent.path("prod.env"), agent.path("other")).unwrap();
        let result = cards::turn(&mut agent);
        assert!(!result.contains("hush-hush"), "{command}: {result}");
        assert_eq!(cards::questions(&agent), 0, "{command}");
        let is_told = result.contains("[sandbox: hidden from this command: ");
        assert!(is_told || command == "cat other", "{command}: {result}");
    }
}

#[test]
fn a_key_file_is_hidden_wherever_it_is_and_whatever_its_name_is() {
    if !has_sandbox("a_key_file_is_hidden_wherever_it_is_and_whatever_its_name_is") {
        return;
    }
    let outside = turnwright_testing::temporary_folder();
    let path = |name: &str| outside.path().join(name);
    std::fs::write(path("mine"), "sk-of-the-second-provider-0\n").unwrap();
    std::fs::write(path("plain"), "hello\n").unwrap();
    std::os::unix::fs::symlink("mine", path("link")).unwrap();
    let settings = format!(
        "[providers.second]\nbase_url = 'http://127.0.0.1:9/v1'\nkey_file = '{}'\n",
        path("link").display()
    );
    let builder = auto().own_file("config/config.toml", &settings);
    let mut agent = builder.model(json!([])).start();
    std::os::unix::fs::symlink(path("mine"), agent.path("third")).unwrap();
    std::fs::hard_link(path("mine"), agent.path("fourth")).unwrap();
    // Without mounts nothing in a folder that a command may write can be hidden, and each command is asked about.
    let is_linked_shown = !turnwright_sandbox::namespace_support().mounts;
    for (path, is_shown) in [
        (path("plain"), true),
        (path("mine"), false),
        (path("link"), false),
        (agent.path("third"), false),
    ] {
        agent.model().push(calls("exec", &exec(&format!("rev < {}", path.display())))).unwrap();
        agent.model().push(says("Done.")).unwrap();
        let result = cards::turn(&mut agent);
        assert_eq!(result.contains("olleh"), is_shown, "{result}");
        assert!(!result.contains("0-redivorp"), "{result}");
    }
    agent.model().push(calls("exec", &exec("rev < fourth"))).unwrap();
    agent.model().push(says("Done.")).unwrap();
    let result = cards::turn(&mut agent);
    assert_eq!(result.contains("0-redivorp"), is_linked_shown, "{result}");
}

#[test]
fn a_secret_behind_many_files_is_hidden_and_with_too_many_secrets_nothing_runs() {
    if !has_sandbox("a_secret_behind_many_files_is_hidden_and_with_too_many_secrets_nothing_runs") {
        return;
    }
    let builder =
        TestAgent::builder().file("zz/deep/.env", "KEY=hush-hush\n").file("aa/note", "KEY=plain\n");
    let mut agent = builder.permission("reject_once").start();
    let folder = agent.path("aa");
    let files = |count: usize, ending: &str| {
        for number in 0..count {
            std::fs::write(folder.join(format!("{number}{ending}")), "").unwrap();
        }
    };
    files(10_100, "");
    let mut run = |command: &str| {
        agent.model().push(calls("exec", &exec(command))).unwrap();
        agent.model().push(says("Done.")).unwrap();
        let result = cards::turn(&mut agent);
        assert_eq!(cards::questions(&agent), 0, "{command}");
        result
    };
    for command in ["grep -r KEY .", "find . -type f -size +0 -exec cat {} +"] {
        let result = run(command);
        assert!(result.contains("KEY=plain") && !result.contains("hush-hush"), "{result}");
    }
    files(4_100, ".pem");
    let result = run("grep -r KEY .");
    assert!(result.contains("Nothing was run") && !result.contains("KEY="), "{result}");
}

#[test]
fn a_hook_cannot_be_changed_through_a_hard_link() {
    if !has_sandbox("a_hook_cannot_be_changed_through_a_hard_link") {
        return;
    }
    let replies =
        json!([calls("exec", &json!({ "command": "$(echo cp) new name" })), says("Done.")]);
    let builder = auto().file(".git/hooks/pre-commit", "old\n").file("new", "evil\n");
    let mut agent = builder.model(replies).start();
    std::fs::hard_link(agent.path(".git/hooks/pre-commit"), agent.path("name")).unwrap();
    let result = cards::turn(&mut agent);
    let has_mounts = turnwright_sandbox::namespace_support().mounts;
    let told = if has_mounts { "Read-only file system" } else { "while it ran, changed" };
    assert!(result.contains(told), "{result}");
    assert_eq!(agent.read(".git/hooks/pre-commit"), "old\n");
}

#[test]
fn a_command_reads_nothing_of_the_agents_state_but_the_output_of_its_session() {
    let test = "a_command_reads_nothing_of_the_agents_state_but_the_output_of_its_session";
    if !has_sandbox(test) {
        return;
    }
    let replies = json!([
        calls("exec", &exec("seq 1 99999")),
        calls("exec", &exec("sh script")),
        says("Done.")
    ]);
    let mut agent = auto()
        .own_file("state/permissions.jsonl", "{}\n")
        .own_file("state/projects/other-1/permissions.json", "{}\n")
        .own_file("state/outputs/other/1.txt", "of another session\n")
        .model(replies)
        .start();
    let state = agent.home().join("state").display().to_string();
    let script = format!(
        "for it in $(find {state} -type f) {state}/permissions.jsonl; do \
             [ -n \"$(head -c 9 $it | tr -d '\\0')\" ] && echo \"read $it\"; \
         done; echo new > {state}/new; tail -qn 1 {state}/outputs/*/*"
    );
    std::fs::write(agent.path("script"), script).unwrap();
    let result = cards::turn(&mut agent);
    assert_no_question(&agent);
    let read: Vec<_> = result.lines().filter(|it| it.starts_with("read ")).collect();
    let session = agent.session.clone();
    assert!(matches!(&read[..], [one] if one.contains(&session)), "{result}");
    assert!(result.contains("99999") && !result.contains("of another session"), "{result}");
    assert!(!agent.home().join("state/new").exists());
}

#[test]
fn a_pattern_of_a_silent_command_leads_nowhere_through_a_link() {
    if !has_sandbox("a_pattern_of_a_silent_command_leads_nowhere_through_a_link") {
        return;
    }
    let outside = turnwright_testing::temporary_folder();
    std::fs::write(outside.path().join("f"), "a file elsewhere").unwrap();
    for mode in ["plan", "ask", "auto"] {
        let builder =
            TestAgent::builder().file("d/f", "a file here").variable("TURNWRIGHT_MODE", mode);
        let replies = json!([calls("exec", &exec("cat ?/f; git --version")), says("Done.")]);
        let mut agent = builder.model(replies).start();
        std::os::unix::fs::symlink(outside.path(), agent.path("r")).unwrap();
        let result = cards::turn(&mut agent);
        assert_eq!(cards::questions(&agent), 0, "{mode}");
        assert!(
            result.contains("a file here") && result.contains("git version"),
            "{mode}: {result}"
        );
        assert!(!result.contains("elsewhere"), "{mode}: {result}");
    }
}

#[test]
fn what_a_silent_command_prints_into_a_file_holds_no_secret_and_nothing_else_is_written() {
    if !has_sandbox(
        "what_a_silent_command_prints_into_a_file_holds_no_secret_and_nothing_else_is_written",
    ) {
        return;
    }
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!("NOT TESTED: without mounts `auto-edit` asks about these commands");
    }
    for command in [
        "grep -r = . > found.txt; cat found.txt",
        "grep -rh = . | tee found.txt",
        "touch new; grep -r = .",
        "cp note copied; cat conf/*",
        "tar cf a.tar conf; cat a.tar",
    ] {
        let builder = TestAgent::builder()
            .file("note", "plain=1\n")
            .file("conf/a", "plain=1\n")
            .file(".env", "KEY=hush-hush\n")
            .file("conf/secrets.json", "{\"a\": \"hush-hush=\"}\n")
            .variable("TURNWRIGHT_MODE", "auto-edit");
        let replies = json!([calls("exec", &exec(command)), says("Done.")]);
        let mut agent = builder.model(replies).permission("reject_once").start();
        let result = cards::turn(&mut agent);
        assert_eq!(cards::questions(&agent), 0, "{command}: {result}");
        assert!(result.contains("plain=1") && !result.contains("hush-hush"), "{command}: {result}");
        let found = std::fs::read_to_string(agent.path("found.txt")).unwrap_or_default();
        assert!(!found.contains("hush-hush"), "{command}: {found}");
        assert_eq!(found.contains("plain=1"), command.contains("found"), "{command}: {found}");
    }
}

#[test]
fn a_file_that_a_line_makes_later_or_not_at_all_is_not_there_before() {
    if !has_sandbox("a_file_that_a_line_makes_later_or_not_at_all_is_not_there_before") {
        return;
    }
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!("NOT TESTED: without mounts files are made before the line runs");
    }
    for (command, printed, made) in [
        ("test -e new || echo text > new; cat new", "text", Some("new")),
        ("grep -q none note && echo text > new; ls", "note", None),
        ("cd sub; echo text > new; cat new", "text", Some("sub/new")),
        ("cat note; nohup cat note", "plain", None),
    ] {
        for mode in ["auto-edit", "auto"] {
            let builder = TestAgent::builder()
                .file("note", "plain\n")
                .file("sub/note", "plain\n")
                .variable("TURNWRIGHT_MODE", mode);
            let replies = json!([calls("exec", &exec(command)), says("Done.")]);
            let mut agent = builder.model(replies).permission("reject_once").start();
            let result = cards::turn(&mut agent);
            assert_eq!(cards::questions(&agent), 0, "{mode}, {command}: {result}");
            assert!(result.contains(printed), "{mode}, {command}: {result}");
            for file in ["new", "sub/new", "nohup.out"] {
                assert_eq!(agent.path(file).exists(), made == Some(file), "{mode}, {command}");
            }
        }
    }
}

#[test]
fn a_silent_command_cannot_read_a_login_beside_the_programs_in_the_search_path() {
    if !has_sandbox("a_silent_command_cannot_read_a_login_beside_the_programs_in_the_search_path") {
        return;
    }
    let outside = turnwright_testing::temporary_folder();
    std::fs::create_dir(outside.path().join("bin")).unwrap();
    std::fs::write(outside.path().join("credentials.json"), "hush-hush").unwrap();
    let path = format!("{}/bin:{}", outside.path().display(), std::env::var("PATH").unwrap());
    for command in
        ["cat docs/*", "find docs -exec cat {} +", "for f in docs/*; do cat \"$f\"; done"]
    {
        let builder = TestAgent::builder().file("docs/note", "plain\n").variable("PATH", &path);
        let replies = json!([calls("exec", &exec(command)), says("Done.")]);
        let mut agent = builder.model(replies).permission("reject_once").start();
        let login = outside.path().join("credentials.json");
        std::os::unix::fs::symlink(login, agent.path("docs/login")).unwrap();
        let result = cards::turn(&mut agent);
        assert!(result.contains("plain") && !result.contains("hush-hush"), "{command}: {result}");
        assert_eq!(cards::questions(&agent), 0, "{command}");
    }
}

#[test]
fn git_may_change_its_settings_only_if_its_arguments_start_no_other_program() {
    if !turnwright_sandbox::namespace_support().mounts {
        eprintln!("SKIPPED: this machine has no mount namespaces");
        return;
    }
    let head = "ref: refs/heads/main\n";
    for (command, is_written) in [
        ("git -c alias.x='!echo \"; note\" >> .git/config; cp .git/config copy' x", false),
        ("git checkout -q -b x --track origin/main && cp .git/config copy", false),
        ("git branch -q --track x origin/main", true),
    ] {
        let settings = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = a\n\t\
                        fetch = +refs/heads/*:refs/remotes/origin/*\n";
        let builder = auto()
            .file(".git/HEAD", head)
            .file(".git/config", settings)
            .file(".git/objects/x", "")
            .file(".git/refs/heads/x", "");
        let mut agent = builder.start();
        std::fs::remove_file(agent.path(".git/refs/heads/x")).unwrap();
        std::fs::remove_file(agent.path(".git/objects/x")).unwrap();
        let mut setup = Command::new("sh");
        let line = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && \
                    git update-ref refs/remotes/origin/main HEAD";
        setup.args(["-c", line]).current_dir(agent.workspace());
        assert!(process_waits::output(&mut setup).unwrap().status.success());
        agent.model().push(calls("exec", &exec(command))).unwrap();
        agent.model().push(says("Done.")).unwrap();
        let result = cards::turn(&mut agent);
        let copy = std::fs::read_to_string(agent.path("copy")).unwrap_or_default();
        assert!(!copy.contains("note") && !copy.contains("branch"), "{command}: {copy}");
        let is_there = agent.read(".git/config").contains("[branch \"x\"]");
        assert_eq!(is_there, is_written, "{command}: {result}");
    }
}

#[test]
fn npm_does_not_wait_for_answers_or_for_the_network() {
    let test = "npm_does_not_wait_for_answers_or_for_the_network";
    let npm = process_waits::output(Command::new("npm").arg("--version"));
    let has_npm = npm.is_ok_and(|it| it.status.success());
    if !has_sandbox(test) || !has_npm {
        eprintln!("SKIPPED: {test}: there is no npm or no sandbox");
        return;
    }
    // In a new home folder npm is about to look for a newer version, and to try that for a minute.
    let command = "HOME=$TMPDIR npm_config_cache=$TMPDIR/cache npm init";
    let begun = Instant::now();
    let (_, result) = unasked(auto(), command);
    assert!(result.contains("package name"), "{result}");
    assert!(begun.elapsed() < Duration::from_secs(55), "{result}");
}

/// A folder of programs that comes first in `PATH`.
fn with_program(
    builder: TestAgentBuilder,
    folder: &Path,
    name: &str,
    script: &str,
) -> TestAgentBuilder {
    let program = folder.join(name);
    turnwright_testing::write_program(&program, &format!("#!/bin/sh\n{script}"));
    let path = std::env::var("PATH").unwrap_or_default();
    builder.variable("PATH", &format!("{}:{path}", folder.display()))
}

#[test]
fn a_command_that_was_allowed_because_it_only_reads_can_write_nothing() {
    if !has_sandbox("a_command_that_was_allowed_because_it_only_reads_can_write_nothing") {
        return;
    }
    let programs = turnwright_testing::temporary_folder();
    let script = "touch wrote; echo x >a; echo ran";
    let builder =
        with_program(TestAgent::builder().file("a", "old"), programs.path(), "tree", script);
    let (agent, result) = unasked(builder, "tree a");
    assert!(result.contains("ran"), "{result}");
    assert!(!agent.path("wrote").exists() && agent.read("a") == "old", "{result}");
}

#[test]
fn only_a_line_of_ssh_and_the_like_with_network_gets_the_keys_and_the_agent_of_ssh() {
    if !has_sandbox("only_a_line_of_ssh_and_the_like_with_network_gets_the_keys_and_the_agent") {
        return;
    }
    let home = turnwright_testing::temporary_folder();
    std::fs::create_dir(home.path().join(".ssh")).unwrap();
    std::fs::write(home.path().join(".ssh/id"), "a key of ssh\n").unwrap();
    let agent_of_ssh = home.path().join("agent");
    let _listener = std::os::unix::net::UnixListener::bind(&agent_of_ssh).unwrap();
    let script = format!(
        "cat $HOME/.ssh/id; {} sandbox-probe socket \"$SSH_AUTH_SOCK\" && echo reached; echo ran",
        env!("CARGO_BIN_EXE_turnwright")
    );
    for (command, expected) in [("ssh host", true), ("ssh host; make", false)] {
        let arguments = json!({ "command": command, "escalate": "network" });
        let builder = auto()
            .variable("HOME", home.path().to_str().unwrap())
            .variable("SSH_AUTH_SOCK", agent_of_ssh.to_str().unwrap())
            .permission("allow_once")
            .model(json!([calls("exec", &arguments), says("Done.")]));
        let mut agent = with_program(builder, home.path(), "ssh", &script).start();
        let result = cards::turn(&mut agent);
        assert!(result.contains("ran"), "{result}");
        assert_eq!(result.contains("a key of ssh"), expected, "{command}: {result}");
        assert_eq!(result.contains("reached"), expected, "{command}: {result}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn when_memory_runs_out_commands_end_before_the_agent() {
    let (_, result) = unasked(auto(), "$(echo cat) /proc/self/oom_score_adj");
    assert!(result.lines().any(|it| it == "1000"), "{result}");
}

#[test]
fn a_command_that_holds_too_much_memory_is_stopped() {
    if !has_sandbox("memory") {
        return;
    }
    // Also files that are nothing but memory, which no process maps.
    for taken in [
        "x = bytearray(600 << 20)",
        "[os.write(x, bytes(1 << 20)) for x in [os.memfd_create('x')] for _ in range(600)]",
    ] {
        let command = format!("python3 -c \"import os, time; {taken}; time.sleep(600)\"");
        let builder = auto().own_file("config/config.toml", "[sandbox]\nmemory_mb = 300");
        let replies = json!([calls("exec", &exec(&command)), says("Done.")]);
        let mut agent = builder.model(replies).start();
        let result = cards::turn(&mut agent);
        assert!(result.contains("MiB of memory") && result.contains("memory_mb"), "{result}");
    }
}

#[test]
fn passwords_in_urls_are_not_in_the_output_of_commands() {
    let config = "[remote \"origin\"]\n\turl = https://me:glpat-Ab3dEf6hIj@host/x.git\n\
                  [http]\n\textraheader = AUTHORIZATION: basic eDp5Z2hwXzEyMzQ=\n";
    let command = "git config --list; git remote -v; git remote get-url origin; cat .git/config";
    let mut agent = auto()
        .file(".git/config", config)
        .file(".git/HEAD", "ref: refs/heads/main\n")
        .file(".git/objects/x", "")
        .file(".git/refs/x", "")
        .model(json!([calls("exec", &exec(command)), says("Done.")]))
        .start();
    let result = cards::turn(&mut agent);
    assert_eq!(result.matches("https://me:[hidden:").count(), 5, "{result}");
    assert_eq!(result.matches("AUTHORIZATION: basic [hidden:").count(), 2, "{result}");
    let all = format!("{:?}", agent.log);
    assert!(!all.contains("glpat-Ab3") && !all.contains("eDp5Z2hw"), "{all}");
}

#[test]
fn a_password_that_a_command_has_not_shown_is_never_overwritten() {
    let url = "DATABASE_URL: postgres://app:Zk39xQ71vvLm@db/app\n";
    let content = format!("{url}PORT: 80\n");
    let mut agent = auto().file("compose.yml", &content).model(json!([])).start();
    let run = |agent: &mut TestAgent, tool: &str, arguments: &Value| {
        agent.model().push(calls(tool, arguments)).unwrap();
        agent.model().push(says("Done.")).unwrap();
        cards::turn(agent)
    };
    let shown = run(&mut agent, "exec", &exec("cat compose.yml"));
    assert!(!shown.contains("Zk39") && shown.contains("Secrets are hidden"), "{shown}");
    let start = shown.find("DATABASE_URL").unwrap();
    let end = shown.find("PORT: 80\n").unwrap();
    let changed = format!("{}PORT: 81\n", &shown[start..end]);
    for (tool, arguments) in [
        ("write_file", json!({ "path": "compose.yml", "content": changed })),
        ("exec", exec(&format!("cat > compose.yml <<'EOF'\n{changed}EOF"))),
        ("exec", exec(&format!("printf '%s' '{changed}' > compose.yml"))),
        ("exec", exec(&format!("echo {} >> compose.yml", changed.trim_end()))),
    ] {
        let result = run(&mut agent, tool, &arguments);
        assert!(result.starts_with("Nothing was done."), "{result}");
        assert_eq!(agent.read("compose.yml"), content);
    }
    run(&mut agent, "exec", &exec("sed -i 's/PORT: 80/PORT: 81/' compose.yml"));
    assert_eq!(agent.read("compose.yml"), format!("{url}PORT: 81\n"));
    assert!(agent.turn_text("/undo").contains("Restored (1)"));
    assert_eq!(agent.read("compose.yml"), content);
    assert_no_question(&agent);
}

#[test]
fn what_edits_files_without_a_question_is_no_program_of_the_project() {
    let name = "what_edits_files_without_a_question_is_no_program_of_the_project";
    if !has_sandbox(name) || !turnwright_sandbox::namespace_support().mounts {
        return;
    }
    let project = turnwright_testing::temporary_folder();
    let own = project.path().join("bin");
    std::fs::create_dir(&own).unwrap();
    turnwright_testing::write_program(&own.join("touch"), "#!/bin/sh\necho evil > evil\n");
    let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap());
    let mut agent = TestAgent::builder()
        .variable("TURNWRIGHT_MODE", "auto-edit")
        .variable("PATH", &path)
        .model(json!([calls("exec", &exec("touch new")), says("Done.")]))
        .start();
    let folder = json!({ "cwd": project.path(), "mcpServers": [] });
    let session = agent.call("session/new", &folder)["result"]["sessionId"].clone();
    let prompt = json!([{ "type": "text", "text": "go" }]);
    agent.call("session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
    let result = agent.model_request(1)["messages"].to_string();
    assert_eq!(cards::questions(&agent), 0, "{result}");
    assert!(!project.path().join("evil").exists(), "{result}");
    assert!(project.path().join("new").exists(), "{result}");
}
