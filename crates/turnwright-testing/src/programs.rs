//! Finds the programs of `examples/`.

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

/// Returns the root of the repository.
fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
