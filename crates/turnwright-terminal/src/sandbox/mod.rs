//! Runs a command in the agent's sandbox, attached to the terminal. And the launcher in a terminal of the editor: runs
//! the command that the agent which opened the terminal sends. Its arguments are only the name of the terminal, and are
//! never run.

mod check;

use std::ffi::OsString;
use std::io::{self, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio::task::spawn_blocking;

pub(crate) use self::check::check_sandbox;
use turnwright_config::Config;
use turnwright_sandbox::{Network, SandboxProfile};
use turnwright_types::error_text::io_error_text;
use turnwright_workspace::exec::{
    self, Environment, LaunchSource, NONCE_VARIABLE, SOCKET_VARIABLE,
};
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// Runs a command of a person, a program with its arguments. It may write to its temporary folder, to the files and
/// folders `added`, and below the current folder unless it `only_reads`. Returns its exit status.
pub fn run_in_sandbox(
    program: Vec<OsString>,
    added: &[PathBuf],
    only_reads: bool,
    network: Network,
    config: &Config,
) -> io::Result<u8> {
    // Removed when this process ends.
    let folder = PrivateTempFolder::create()?;
    let place = folder.path().canonicalize()?;
    let mut writable = vec![place.clone()];
    let mut read_only = Vec::new();
    if !only_reads {
        let here = Path::new(".").canonicalize()?;
        read_only = vec![here.join(".git/hooks"), here.join(".git/config")];
        writable.push(here);
    }
    for path in added {
        let real = path.canonicalize();
        writable
            .push(real.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?);
    }
    let mut hidden = config.snapshot().sandbox_settings().hide;
    hidden.extend(config.private_places());
    let profile =
        SandboxProfile { writable, read_only, hidden, network, ..SandboxProfile::default() };
    let environment = config.snapshot().command_environment().with_temp_folder(&place);
    run_in_terminal(LaunchSource::Person { program, sandbox: Box::new(profile) }, &environment)
}

/// The most chunks of output that may wait to be written to the terminal.
const MAX_PENDING_CHUNKS: usize = 8;
/// The exit status of a launcher that has run nothing.
const FAILED: u8 = 125;

/// Runs the command that the agent sends which had this process started. Returns its exit status.
pub fn run_for_agent(config: &Config) -> ExitCode {
    let value = |name: &str| {
        let found = config.inherited.iter().find(|variable| variable.0 == name);
        found.map(|variable| variable.1.clone()).unwrap_or_default()
    };
    let agent = LaunchSource::Agent {
        socket: value(SOCKET_VARIABLE).into(),
        nonce: value(NONCE_VARIABLE).into_string().unwrap_or_default(),
    };
    match run_in_terminal(agent, &config.snapshot().command_environment()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            writeln!(stderr(), "turnwright: {}", io_error_text(&error)).ok();
            ExitCode::from(FAILED)
        }
    }
}

/// Runs a command and shows its output on stdout. Returns its exit status.
fn run_in_terminal(source: LaunchSource, environment: &Environment) -> io::Result<u8> {
    crate::block_on(async {
        let (out, mut pieces) = tokio::sync::mpsc::channel::<Vec<u8>>(MAX_PENDING_CHUNKS);
        // Writing happens on a thread, so that a blocked terminal does not delay signal handling.
        #[expect(clippy::disallowed_methods, reason = "stdout is a terminal here, not a protocol")]
        let shown = spawn_blocking(move || {
            let mut stdout = stdout();
            while let Some(piece) = pieces.blocking_recv() {
                if stdout.write_all(&piece).and_then(|()| stdout.flush()).is_err() {
                    return;
                }
            }
        });
        exec::launch(source, environment, out, shown).await.unwrap_or_else(|error| {
            writeln!(stderr(), "turnwright: {error}").ok();
            error.exit_code()
        })
    })
}
