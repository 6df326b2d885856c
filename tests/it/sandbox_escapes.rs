//! `turnwright doctor --sandbox` attempts to escape from the sandbox and reports the attempts. The
//! control experiment runs the attempts without the sandbox, where they must succeed. On Windows there is no
//! sandbox, and the report says so.

use serde_json::{Value, json};
use turnwright_testing::process_waits;

use crate::agent::subcommand;

fn doctor(arguments: &[&str]) -> (i32, String) {
    let home = turnwright_testing::temporary_folder();
    let mut command = subcommand(home.path(), &["doctor", "--sandbox"]);
    let output = process_waits::output(command.args(arguments)).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

fn sandbox(text: &str) -> Value {
    let report: Value = serde_json::from_str(text).unwrap();
    report["sandbox"].clone()
}

#[cfg(unix)]
fn attempts(sandbox: &Value) -> Vec<(&str, &str)> {
    let all = sandbox["attempts"].as_array().unwrap().iter();
    all.map(|it| (it["name"].as_str().unwrap(), it["verdict"].as_str().unwrap())).collect()
}

#[test]
fn the_sandbox_stops_all_attempts() {
    let (status, text) = doctor(&["--json"]);
    let report = sandbox(&text);
    if report["holds"].is_null() {
        eprintln!("SKIPPED: this system has no sandbox: {}", report["missing"]);
        assert_eq!((status, &report["attempts"]), (1, &json!([])));
        assert!(
            !report["missing"].as_array().unwrap().is_empty(),
            "the report does not say what is missing: {text}"
        );
        return;
    }
    for attempt in report["attempts"].as_array().unwrap() {
        // Attempts that this system has no means to stop are reported as "open".
        assert!(matches!(attempt["verdict"].as_str(), Some("held" | "open")), "{attempt}");
    }
    assert_eq!((status, &report["holds"]), (0, &json!(true)));
    assert!(report["attempts"].as_array().unwrap().len() > 20);
    let (_, text) = doctor(&[]);
    assert!(text.contains("The sandbox holds."), "{text}");
}

/// Whether this process may read the memory of others. Root may, except in containers that have
/// dropped the capability.
#[cfg(unix)]
fn can_read_other_processes() -> bool {
    const CAP_SYS_PTRACE: u32 = 19;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|it| it.strip_prefix("CapEff:"));
    match capabilities.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()) {
        Some(capabilities) => capabilities >> CAP_SYS_PTRACE & 1 == 1,
        None => rustix::process::geteuid().is_root(),
    }
}

#[cfg(unix)]
#[test]
fn without_the_sandbox_the_attempts_succeed() {
    let (status, text) = doctor(&["--json", "--without-sandbox"]);
    let report = sandbox(&text);
    assert_eq!((status, &report["holds"]), (1, &json!(false)));
    let can_read = can_read_other_processes();
    for (name, verdict) in attempts(&report) {
        // The agent protects its memory without the sandbox, too, except from root.
        if name.starts_with("parent-") && !can_read {
            eprintln!("NOT TESTED: {name}, which needs the rights of root");
            continue;
        }
        // The system itself lets only root read a disk.
        if name == "disk" && !rustix::process::geteuid().is_root() {
            eprintln!("NOT TESTED: {name}, which needs the rights of root");
            continue;
        }
        // The sandbox could not stop this attempt either, since the system lacks the means.
        if verdict == "open" && report["missing"] != json!([]) {
            eprintln!("NOT TESTED: {name}, since the system lacks {}", report["missing"]);
            continue;
        }
        // Some systems forbid namespaces to everybody, fleeing processes may be found all the same, and no
        // program may have a terminal.
        if ["namespace", "outlive", "terminal"].contains(&name) {
            continue;
        }
        let expected = if name == "write-inside" { "held" } else { "not held" };
        assert_eq!(verdict, expected, "{name}: {text}");
    }
    let (_, text) = doctor(&["--without-sandbox"]);
    assert!(text.contains("FAIL not held   write a file outside: there is a new file"), "{text}");
    assert!(text.contains("does NOT hold"), "{text}");
}
