//! Runs a program with write access to one folder, without the network and without access to the
//! credentials in the home folder.
//!
//! ```sh
//! cargo run -p turnwright-sandbox --example confined -- . sh -c 'touch here; touch /tmp/there'
//! ```

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use turnwright_sandbox::SandboxProfile;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().ok_or("usage: confined FOLDER PROGRAM [ARGUMENT…]")?;
    let words: Vec<OsString> = arguments.collect();
    // Writable paths must be real paths: a symlink in one is an error.
    let folder = PathBuf::from(folder).canonicalize()?;
    let home = std::env::home_dir().unwrap_or_default();
    let profile = SandboxProfile {
        writable: vec![folder.clone()],
        hidden: [".ssh", ".aws", ".netrc"].map(|it| home.join(it)).to_vec(),
        ..SandboxProfile::default()
    };
    for limitation in turnwright_sandbox::limitations() {
        report(&limitation);
    }
    run(&profile, words, &folder)
}

/// Starts the program in the sandbox and waits for it.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "an example starts its program directly")]
#[expect(unsafe_code, reason = "`pre_exec` is how a child process enters the sandbox")]
fn run(
    profile: &SandboxProfile,
    words: Vec<OsString>,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::sync::Arc;

    use turnwright_sandbox::{Sandbox, wrap_command};

    let words = wrap_command(Some(profile), words)?;
    let (program, arguments) = words.split_first().ok_or("there is no program to run")?;
    // Kept to explain an error of `spawn`.
    let sandbox = Arc::new(Sandbox::prepare(profile, None)?);
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    let entered = Arc::clone(&sandbox);
    // SAFETY: between `fork` and `exec` a child may only make system calls, and `enter` makes
    // nothing else.
    unsafe { command.pre_exec(move || entered.enter()) };
    let status = command.spawn().map_err(|error| sandbox.explain(error))?.wait()?;
    report(&format!("the program ended with {status}"));
    Ok(())
}

#[cfg(not(unix))]
fn run(_: &SandboxProfile, _: Vec<OsString>, _: &Path) -> Result<(), Box<dyn Error>> {
    Err("there is no sandbox on this system".into())
}

#[expect(clippy::print_stderr, reason = "the standard output is the program's")]
fn report(text: &str) {
    eprintln!("confined: {text}");
}
