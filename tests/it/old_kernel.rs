//! A kernel without Landlock: nothing is confined, the user is told so, and commands are asked about. A
//! filter that answers to Landlock's system call as an old kernel does takes the place of one.

use std::collections::BTreeMap;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, calls, says};

/// `landlock_create_ruleset`, which has one number on all processors.
const CREATE_RULESET: i64 = 444;
/// `ENOSYS`: the kernel does not have this system call.
const NO_SUCH_CALL: u32 = 38;
const SENTENCE: &str = "Landlock is not available (it needs Linux 5.19 or newer";

/// Runs this on a thread whose children have no Landlock.
fn without_landlock<R: Send>(test: impl FnOnce() -> R + Send) -> R {
    with_filter(CREATE_RULESET, SeccompAction::Errno(NO_SUCH_CALL), test)
}

/// Runs this on a thread with a filter for a system call, which its children inherit.
fn with_filter<R: Send>(call: i64, action: SeccompAction, test: impl FnOnce() -> R + Send) -> R {
    let filter = SeccompFilter::new(
        BTreeMap::from([(call, Vec::new())]),
        SeccompAction::Allow,
        action,
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program = BpfProgram::try_from(filter.unwrap()).unwrap();
    let on_thread = || {
        seccompiler::apply_filter(&program).unwrap();
        test()
    };
    std::thread::scope(|scope| scope.spawn(on_thread).join().unwrap())
}

#[test]
fn doctor_says_what_the_kernel_lacks() {
    let run = |arguments: &[&str]| {
        let home = turnwright_testing::temporary_folder();
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnwright"));
        command.args(["doctor", "--sandbox"]).args(arguments).env("TURNWRIGHT_HOME", home.path());
        let output = process_waits::output(&mut command).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (status, text) = without_landlock(|| run(&["--json"]));
    let report: Value = serde_json::from_str(&text).unwrap();
    let report = &report["sandbox"];
    assert_eq!(
        (status, &report["holds"], &report["attempts"]),
        (Some(1), &json!(null), &json!([]))
    );
    assert_eq!(report["system"]["landlock"], json!("none"), "{report}");
    assert!(report["missing"][0].as_str().unwrap().starts_with(SENTENCE), "{report}");

    let (_, text) = without_landlock(|| run(&[]));
    assert!(text.contains(SENTENCE), "{text}");
}

/// As in Termux, and in a service of systemd with a filter of system calls.
#[test]
fn doctor_survives_a_filter_that_kills_who_asks_for_landlock() {
    let home = turnwright_testing::temporary_folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwright"));
    command.args(["doctor", "--sandbox"]).env("TURNWRIGHT_HOME", home.path());
    let output = with_filter(CREATE_RULESET, SeccompAction::KillProcess, || {
        process_waits::output(&mut command).unwrap()
    });
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("A filter of system calls ends programs that ask for Landlock"),
        "{text}"
    );
}

#[test]
fn limits_that_a_filter_refuses_to_tell_stop_nothing() {
    let home = turnwright_testing::temporary_folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwright"));
    command.args(["policy", "list"]).current_dir(home.path()).env("TURNWRIGHT_HOME", home.path());
    let refused = SeccompAction::Errno(NO_SUCH_CALL);
    let output =
        with_filter(libc::SYS_prlimit64, refused, || process_waits::output(&mut command).unwrap());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
}

#[test]
fn the_user_is_told_and_asked() {
    without_landlock(|| {
        let builder = TestAgent::builder().variable("TURNWRIGHT_MODE", "auto");
        let mut agent = builder.file("build.sh", "echo quince > made.txt\n").start();
        agent.model().push(calls("exec", &json!({ "command": "sh build.sh" }))).unwrap();
        agent.model().push(says("Done.")).unwrap();
        let id = agent.prompt("go");
        let question = agent.wait_for_request("session/request_permission");
        assert_eq!(agent.told_of_no_sandbox, 1);
        assert!(question.to_string().contains("no sandbox here"), "{question}");
        assert!(!agent.path("made.txt").exists());
        agent.choose(&question, "allow_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
        assert!(agent.path("made.txt").exists());
        cards::check(&agent);
    });
}

#[test]
fn a_session_says_what_the_kernel_lacks() {
    let home = turnwright_testing::temporary_folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwright"));
    command.args(["run", "--model", "offline", "list the files here"]);
    command.current_dir(home.path()).env("TURNWRIGHT_HOME", home.path());
    let output = without_landlock(|| process_waits::output(&mut command).unwrap());
    let [stdout, stderr] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    let told = format!("{stdout}{stderr}");
    assert!(output.status.success() && told.contains(SENTENCE), "{told}");
    assert!(told.contains("In `auto` mode you are asked about commands"), "{told}");
}
