//! `turnwright doctor --acp`: this program has no fault, and each fault that a proxy plants into what it
//! says is found by its name.

use std::process::Command;

use turnwright_testing::example_program;
use turnwright_testing::process_waits;

const AGENT: &str = env!("CARGO_BIN_EXE_turnwright");

/// The exit status of the doctor and what it says.
fn doctor(command: &[&str]) -> (i32, String) {
    let home = turnwright_testing::temporary_folder();
    let mut doctor = Command::new(AGENT);
    doctor
        .args(["doctor", "--acp"])
        .args(command)
        .env("TURNWRIGHT_HOME", home.path())
        .env("TURNWRIGHT_MODE", "full")
        .env("OPENAI_API_KEY", "sk-test-0123456789");
    let output = process_waits::output(&mut doctor).unwrap();
    // Nothing of it is in the user's own state.
    let state = home.path().join("state");
    let log = std::fs::read_to_string(state.join("turnwright.log"));
    assert!(!state.exists(), "{log:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), text + &String::from_utf8(output.stderr).unwrap())
}

#[test]
fn this_agent_has_no_fault() {
    let (status, text) = doctor(&[]);
    assert_eq!(status, 0, "{text}");
    let marks: Vec<_> = text.lines().take(16).map(|it| &it[..4]).collect();
    assert_eq!(marks, ["ok  "; 16], "{text}");
    assert!(text.ends_with(" messages of the agent were checked: no fault.\n"), "{text}");
}

#[test]
fn each_planted_fault_is_found_by_its_name() {
    let proxy = example_program("faulty_proxy");
    let run = |fault: &str| doctor(&["--", proxy.to_str().unwrap(), fault, AGENT]);
    let cases = [
        ("none", ""),
        ("no-id", "FAIL json        an answer without an id"),
        ("answered-twice", "FAIL answers     the request 3 was answered twice"),
        ("update-after-end", "FAIL order       agent_message_chunk after the answer to the prompt"),
        ("wrong-enum", "FAIL schema      session/update: update.status: \"finished\" is none of"),
        ("unknown-call", "FAIL calls       an update of the tool call another before it"),
        ("ends-twice", "FAIL calls       the tool call "),
        ("not-json", "FAIL json        not a JSON object: DEBUG: a chunk"),
        ("no-capability", "FAIL offers      the request fs/read_text_file"),
        ("wrong-error", "FAIL errors      session/nonsense {}: -32000 instead of -32601"),
    ];
    // Most of the time is spent with listening for what must not come. Wine starts programs slowly, and an agent
    // that comes too late has another fault.
    for at_once in cases.chunks(if cfg!(windows) { 2 } else { cases.len() }) {
        std::thread::scope(|scope| {
            for (fault, expected) in at_once {
                let run = &run;
                scope.spawn(move || {
                    let (status, text) = run(fault);
                    assert_eq!(status, i32::from(!expected.is_empty()), "{fault}: {text}");
                    assert!(text.lines().any(|it| it.starts_with(expected)), "{fault}: {text}");
                });
            }
        });
    }
}

#[test]
fn what_is_no_agent_fails() {
    let (status, text) = doctor(&["--", "/nowhere/agent"]);
    assert!(status == 1 && text.contains("FAIL initialize  it cannot be started"), "{text}");
    assert!(text.contains("skip load        not tried"), "{text}");
}
