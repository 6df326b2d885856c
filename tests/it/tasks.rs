//! The tasks for real models in `tests/real/tasks`, without a model.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use turnwright_testing::process_waits;

/// Dozens of checks are run, each of them several processes.
const LIMIT: Duration = Duration::from_secs(300);
/// The exit status of the script if Python is too old for it.
const TOO_OLD: i32 = 3;

#[test]
fn every_task_of_ours_fails_without_its_solution_and_passes_with_it() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/tasks/check_all.py");
    let mut python = Command::new("python3");
    // Its stderr names the tasks that are wrong, and those whose program is missing.
    python.arg("-B").arg(script).arg("--once").stdout(Stdio::null());
    match process_waits::status_within(&mut python, LIMIT) {
        Err(error) => eprintln!("NOT TESTED: python3 cannot be started: {error}"),
        Ok(status) if status.code() == Some(TOO_OLD) => eprintln!("NOT TESTED: python3 is too old"),
        Ok(status) => assert!(status.success(), "{status}, see stderr"),
    }
}
