//! Finds the programs of `examples/`, makes programs for tests, and says where Wine runs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process_waits;

/// The longest time that building the examples may take.
const BUILD_LIMIT: Duration = Duration::from_secs(600);

/// Returns the path of an example's program. `cargo test` builds the examples.
/// `cargo test --test it` does not, so this function builds them if they are missing.
pub fn example_program(example: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let profile = own.ancestors().nth(2).unwrap();
    let name = format!("{example}{}", std::env::consts::EXE_SUFFIX);
    let program = profile.join("examples").join(name);
    if !program.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--examples"]).current_dir(repository());
        cargo.env("CARGO_TARGET_DIR", profile.parent().unwrap());
        cargo.args(profile.ends_with("release").then_some("--release"));
        assert!(process_waits::status_within(&mut cargo, BUILD_LIMIT).unwrap().success());
    }
    program
}

/// Whether Wine stands in for Windows. Says what is not tested there.
pub fn lacks_under_wine(what: &str) -> bool {
    let is_wine = cfg!(windows) && Path::new("C:\\windows\\system32\\winecfg.exe").exists();
    if is_wine {
        eprintln!("NOT TESTED: {what}, which Wine lacks");
    }
    is_wine
}

/// Returns the root of the repository.
fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Writes a shell script that can be run at once. Where this process had written it, a child that another
/// test is starting might still have the file open for writing, and to run it would fail (`ETXTBSY`). So
/// another process writes it.
#[cfg(unix)]
pub fn write_program(path: &Path, script: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]).arg(path).arg(script);
    assert!(process_waits::status(&mut shell).unwrap().success(), "{}", path.display());
}

/// Copies a program so that the copy can be run at once, like [`write_program`].
#[cfg(unix)]
pub fn copy_program(from: &Path, to: &Path) {
    let status = process_waits::status(Command::new("cp").arg(from).arg(to));
    assert!(status.unwrap().success(), "{}", to.display());
}
