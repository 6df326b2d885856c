//! `turnwright policy` lists, adds and revokes the rules of a project, checks commands against them, and
//! suggests new rules.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnwright_testing::process_waits;

use crate::agent::subcommand;

struct User {
    home: tempfile::TempDir,
    project: tempfile::TempDir,
}

impl User {
    fn new() -> User {
        User {
            home: turnwright_testing::temporary_folder(),
            project: turnwright_testing::temporary_folder(),
        }
    }

    fn real_project(&self) -> PathBuf {
        let path = self.project.path().canonicalize().unwrap().display().to_string();
        path.trim_start_matches(r"\\?\").into()
    }

    /// The output on stdout and stderr, and the exit status.
    fn policy(&self, arguments: &[&str]) -> (String, i32) {
        self.policy_in(self.project.path(), arguments)
    }

    fn policy_in(&self, folder: &Path, arguments: &[&str]) -> (String, i32) {
        let mut command = subcommand(self.home.path(), &["policy"]);
        let output = process_waits::output(command.args(arguments).current_dir(folder)).unwrap();
        let text = [output.stdout, output.stderr].concat();
        (String::from_utf8(text).unwrap(), output.status.code().unwrap())
    }

    fn list(&self) -> Vec<Value> {
        let (text, status) = self.policy(&["list", "--json"]);
        assert_eq!(status, 0, "{text}");
        let list: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(list["project"], json!(self.real_project()));
        list["rules"].as_array().unwrap().clone()
    }

    /// Adds a permission request and its answer to the audit log, in the agent's format.
    fn note(&self, command: &str, answer: &str) {
        use std::io::Write;
        let line = json!({ "at": "2026-01-01T00:00:00Z", "event": "asked", "session": "s",
            "project": self.real_project(), "mode": "ask", "effects": [], "command": command,
            "verdict": "ask", "by": "", "answer": answer });
        let state = self.home.path().join("state");
        std::fs::create_dir_all(&state).unwrap();
        let mut options = std::fs::File::options();
        let file = options.create(true).append(true).open(state.join("permissions.jsonl"));
        writeln!(file.unwrap(), "{line}").unwrap();
    }
}

#[test]
fn rules_are_added_listed_and_revoked() {
    let user = User::new();
    assert!(user.policy(&["list"]).0.contains("No rules"));
    assert_eq!(user.policy(&["allow", "exec(cargo test)", "edit(/docs/**)"]).1, 0);
    assert_eq!(user.policy(&["deny", "exec(git push)"]).1, 0);
    let rules = user.list();
    let summaries: Vec<_> =
        rules.iter().map(|it| format!("{} {}", it["tier"], it["rule"])).collect();
    let expected = [
        "\"allow\" \"exec(cargo test)\"",
        "\"allow\" \"edit(/docs/**)\"",
        "\"deny\" \"exec(git push)\"",
    ];
    assert_eq!(summaries, expected);
    for rule in &rules {
        assert_eq!(
            (&rule["scope"], &rule["origin"]),
            (&json!("local"), &json!("turnwright policy"))
        );
        assert!(rule["at"].is_string(), "{rule}");
    }
    let id = rules[0]["id"].as_str().unwrap();
    let (text, _) = user.policy(&["list"]);
    assert!(text.contains(id) && text.contains("exec(cargo test)"), "{text}");
    let (text, status) = user.policy(&["revoke", id]);
    assert!(text.contains("exec(cargo test)") && status == 0, "{text}");
    let (text, status) = user.policy(&["revoke", id]);
    assert!(text.contains("no rule") && status == 3, "{text}");
    assert_eq!(user.list().len(), 2);
}

#[cfg(unix)]
#[test]
fn a_rule_applies_to_its_project_under_any_path() {
    let user = User::new();
    let link = user.home.path().join("link");
    std::os::unix::fs::symlink(user.project.path(), &link).unwrap();
    let link = link.display().to_string();
    assert_eq!(user.policy_in(Path::new("/"), &["allow", "exec(make)", "--dir", &link]).1, 0);
    assert_eq!(user.list().len(), 1);
    let other = turnwright_testing::temporary_folder();
    assert!(user.policy_in(other.path(), &["list"]).0.contains("No rules"));
}

#[test]
fn invalid_rules_are_not_stored() {
    let user = User::new();
    for rule in ["exec(", "nonsense", "hologram(x)", ""] {
        let (text, status) = user.policy(&["allow", "exec(make)", rule]);
        assert_eq!(status, 3, "{rule}: {text}");
        assert!(text.contains("invalid rule"), "{text}");
    }
    assert!(user.list().is_empty(), "the valid rule beside the invalid one was stored");
}

#[test]
fn a_command_that_cannot_be_analysed_is_decided_by_the_mode() {
    let user = User::new();
    for (mode, verdict, expected) in [("ask", "ask", 1), ("plan", "deny", 2), ("full", "allow", 0)]
    {
        let (text, status) = user.policy(&["check", "x=$(date); $x", "--mode", mode]);
        assert_eq!(status, expected, "{mode}: {text}");
        assert!(text.starts_with(verdict), "{mode}: {text}");
        let (text, json_status) =
            user.policy(&["check", "x=$(date); $x", "--mode", mode, "--json"]);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["verdict"], json_status), (&json!(verdict), status), "{text}");
        assert!(value["parts"][0]["why"].is_string(), "{text}");
    }
    let (text, status) = user.policy(&["check", "ls", "--mode", "yolo"]);
    assert_eq!(status, 2, "{text}");
}

#[test]
fn no_rule_is_suggested_for_rare_commands() {
    let user = User::new();
    assert!(user.policy(&["suggest"]).0.contains("No suggestions"));
    user.note("npm run build", "allow once");
    assert!(user.policy(&["suggest"]).0.contains("No suggestions"));
}

#[test]
#[cfg_attr(windows, ignore = "a line of cmd is never analysed whole, so no rule allows it")]
fn a_check_names_the_deciding_rule_of_each_command() {
    let user = User::new();
    user.policy(&["allow", "exec(npm run build)"]);
    let (text, status) = user.policy(&["check", "npm run build --flag"]);
    assert!(status == 0 && text.contains("allowed by exec(npm run build)"), "{text}");
    let (text, status) = user.policy(&["check", "npm run build && npm run x", "--json"]);
    assert_eq!(status, 1, "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    let parts = value["parts"].as_array().unwrap();
    assert_eq!(parts[0]["rule"], "exec(npm run build)");
    assert_eq!((&parts[1]["what"], &parts[1]["verdict"]), (&json!("npm run x"), &json!("ask")));
    user.policy(&["deny", "exec(npm run x)"]);
    assert_eq!(user.policy(&["check", "npm run build && npm run x"]).1, 2);
}

#[cfg(unix)]
#[test]
fn a_saved_rule_holds_where_a_link_in_its_path_leads() {
    let user = User::new();
    let project = user.project.path();
    std::fs::create_dir(project.join("real")).unwrap();
    std::fs::write(project.join("real/x"), "x").unwrap();
    std::os::unix::fs::symlink("real", project.join("link")).unwrap();
    user.policy(&["deny", "read(/link/**)"]);
    for line in ["cat link/x", "cat real/x"] {
        let (text, status) = user.policy(&["check", line]);
        assert_eq!(status, 2, "{line}: {text}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "a line of cmd is never analysed whole, so no rule allows it")]
fn a_rule_of_the_project_does_not_apply_outside() {
    let user = User::new();
    user.policy(&["allow", "exec(npm run build)"]);
    std::fs::create_dir(user.project.path().join("sub")).unwrap();
    for (line, expected) in [
        ("cd sub && npm run build", 0),
        ("cd sub; npm run build", 0),
        ("cd / && npm run build", 1),
        ("cd .. && npm run build", 1),
    ] {
        let (text, status) = user.policy(&["check", line]);
        assert_eq!(status, expected, "{text}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "a line of cmd is never analysed whole, so no rule allows it")]
fn rust_programs_ask_if_the_project_selects_a_toolchain() {
    let user = User::new();
    assert_eq!(user.policy(&["check", "rustc --version"]).1, 0);
    let file = user.project.path().join("rust-toolchain.toml");
    std::fs::write(file, "[toolchain]\npath = \"/proc/self/cwd/own\"").unwrap();
    for line in ["rustc --version", "timeout 9 cargo -V"] {
        let (text, status) = user.policy(&["check", line]);
        assert!(status == 1 && text.contains("may select a toolchain"), "{text}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "a line of cmd is never analysed whole, so no rule allows it")]
fn a_rule_is_suggested_for_commands_that_are_often_allowed() {
    let user = User::new();
    for command in ["npm run build", "npm run build --a", "npm run build | npm run lint"] {
        user.note(command, "allow once");
        user.note("npm run clean", "reject");
        user.note("python3 x.py", "allow once");
    }
    let (text, status) = user.policy(&["suggest"]);
    assert_eq!(status, 0);
    assert!(text.contains("when = \"exec(npm run build)\""), "{text}");
    assert!(text.contains("policy allow 'exec(npm run build)'"), "{text}");
    for other in ["lint", "clean", "python"] {
        assert!(!text.contains(&format!("exec(npm run {other})")) && !text.contains("exec(python"));
    }
    user.policy(&["allow", "exec(npm run build)"]);
    assert!(user.policy(&["suggest"]).0.contains("No suggestions"));
}

#[test]
fn auto_edit_lets_a_command_do_what_the_file_tools_do() {
    if !turnwright_sandbox::can_confine() || !turnwright_sandbox::namespace_support().mounts {
        eprintln!("SKIPPED: this machine has no sandbox, or commands can change protected files");
        return;
    }
    let user = User::new();
    let folder = user.project.path();
    std::fs::write(folder.join(".env"), "KEY=x").unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/etc", folder.join("out")).unwrap();
        std::fs::create_dir(folder.join("code")).unwrap();
        std::fs::write(folder.join("code/a.rs"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("code/link")).unwrap();
    }
    let settings = "[permissions]\nask = ['edit(/asked/**)']\n";
    std::fs::create_dir_all(user.home.path().join("config")).unwrap();
    std::fs::write(user.home.path().join("config/config.toml"), settings).unwrap();
    for (command, expected) in [
        ("mkdir -p src/a", "allow"),
        ("touch src/a.rs && mv src/a.rs src/b.rs", "allow"),
        ("cp -r src old", "allow"),
        ("cd src && mkdir x && ls", "allow"),
        ("cd src; mkdir x; ls", "allow"),
        ("cd src; mkdir ../../x", "ask"),
        ("cd src\ntouch ../x", "ask"),
        ("git add -A", "allow"),
        ("git add . && ls", "allow"),
        ("cp code/*.rs src", "allow"),
        ("cp code/* src", "ask"),
        ("chmod +x code/a.rs", "allow"),
        ("chmod +x .envrc", "ask"),
        ("cat a.txt | tee src/b", "allow"),
        ("cat a.txt | tee .vscode/tasks.json", "ask"),
        ("cat a.txt | tee /tmp/b", "ask"),
        ("tar czf a.tgz code", "allow"),
        ("tar czf /tmp/a.tgz code", "ask"),
        ("tar czf a.tgz /etc", "ask"),
        ("tar czf a.tgz .env", "ask"),
        ("gofmt -w .", "allow"),
        ("gofmt -w .. ", "ask"),
        ("touch asked/a", "ask"),
        ("gofmt -w asked/a.go", "ask"),
        ("tar czf asked/a.tgz code", "ask"),
        ("cp a.txt .", "allow"),
        ("cp x/.envrc .", "ask"),
        ("cd .. && git add -A", "ask"),
        ("mkdir sub && mv .git sub", "ask"),
        ("gofmt -w src/a.go", "allow"),
        ("cargo fmt", "ask"),
        ("ruff format", "ask"),
        ("rm src/a.rs", "ask"),
        ("cp .env src/x", "ask"),
        ("cp /etc/passwd x", "ask"),
        ("touch out/x", "ask"),
        ("touch .envrc", "ask"),
        ("mkdir -p .vscode && cp x .vscode/tasks.json", "ask"),
        ("mkdir a; make", "ask"),
    ] {
        for mode in ["auto-edit", "ask"] {
            let (text, _) = user.policy(&["check", command, "--mode", mode]);
            let verdict = text.split_whitespace().next().unwrap_or_default();
            let expected = if mode == "ask" { "ask" } else { expected };
            assert_eq!(verdict, expected, "{command}: {text}");
        }
    }
}

#[test]
#[cfg_attr(windows, ignore = "a line of cmd is never analysed whole")]
fn a_check_says_what_becomes_of_a_command_that_needs_the_network() {
    if !turnwright_sandbox::can_confine() {
        eprintln!("SKIPPED: this machine has no sandbox");
        return;
    }
    let user = User::new();
    for (mode, command, expected, told) in [
        ("auto", "git push", "ask", "with network"),
        ("auto", "git add -A && git commit -m \"$(date)\" && git push", "ask", "with network"),
        ("ask", "git push", "ask", "no network, without which it fails"),
        ("auto", "cargo build", "", "no network\n"),
        ("auto", "docker pull x", "ask", "with network"),
        ("full", "git push", "allow", "no sandbox"),
        ("plan", "git push", "deny", ""),
    ] {
        let (text, _) = user.policy(&["check", command, "--mode", mode]);
        assert!(text.starts_with(expected) && text.contains(told), "{mode}, {command}: {text}");
    }
    if turnwright_sandbox::namespace_support().network {
        let (text, _) = user.policy(&["check", "git fetch", "--mode", "auto"]);
        assert!(text.contains("you are asked about each host that it wants to reach"), "{text}");
    }
    user.policy(&["allow", "exec(docker pull)"]);
    let (text, status) = user.policy(&["check", "docker pull x", "--mode", "auto", "--json"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    let confinement = value["confinement"].as_str().unwrap();
    assert!(status < 2 && confinement.contains("no network, without which it fails"), "{text}");
}
