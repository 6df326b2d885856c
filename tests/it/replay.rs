//! `turnwright replay` as a program: what it prints, its exit statuses, and that commands of a recording do
//! not run again.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, calls, says};

/// The output on stdout, that on stderr, and the exit status.
fn replay(path: &Path, arguments: &[&str]) -> (String, String, i32) {
    let home = tempfile::tempdir().unwrap();
    let output = process_waits::output(
        Command::new(env!("CARGO_BIN_EXE_turnwright"))
            .arg("replay")
            .arg(path)
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TURNWRIGHT_HOME", home.path()),
    )
    .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

#[test]
fn commands_are_played_back_and_do_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("commands.ndjson");
    let mark = folder.path().join("mark");
    let command = json!({ "command": format!("echo made; touch {}", mark.display()) });
    let mut agent = TestAgent::builder()
        .model(json!([calls("exec", &command), says("Made.")]))
        .variable("TURNWRIGHT_MODE", "full")
        .variable("TURNWRIGHT_RECORD", path.to_str().unwrap())
        .start();
    assert_eq!(agent.turn("make it"), "end_turn");
    agent.close();
    std::fs::remove_file(&mark).unwrap();
    let (report, errors, status) = replay(&path, &[]);
    assert_eq!((status, errors.as_str()), (0, ""), "{report}");
    assert!(report.starts_with("The same: ") && report.ends_with(" turns: 1.\n"), "{report}");

    // Another model is asked the same, and what it would do is not done.
    let (report, errors, status) = replay(&path, &["--model", "offline"]);
    assert_eq!((status, errors.as_str()), (0, ""), "{report}");
    assert!(report.starts_with("> make it\n") && report.contains("[end_turn]"), "{report}");
    assert!(!mark.exists());

    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("Made.\"},\"messageId\"", "Done.\"},\"messageId\""))
        .unwrap();
    let (report, errors, status) = replay(&path, &[]);
    assert_eq!((status, errors.as_str()), (1, ""), "{report}");
    let expected =
        ["Different in turn 1, at line ", ": the text\n", "  recorded: ", "\n  now:      "];
    assert!(expected.iter().all(|it| report.contains(it)), "{report}");

    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    let (report, errors, status) = replay(&path, &[]);
    assert_eq!((status, report.as_str()), (2, ""), "{errors}");
    assert!(errors.starts_with("turnwright replay: ") && errors.contains("is cut off"), "{errors}");
    let (_, errors, status) = replay(Path::new("/missing"), &[]);
    assert_eq!(status, 2);
    let expected = "turnwright replay: /missing cannot be played back. It cannot be read: ";
    assert!(errors.starts_with(expected), "{errors}");
}
