//! Runs a command in the agent's sandbox, attached to the terminal. And the launcher in a terminal of the editor: runs
//! the command that the agent which opened the terminal sends. Its arguments are only the name of the terminal, and are
//! never run.

mod check;

use std::ffi::OsString;
use std::io::{self, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tokio::task::spawn_blocking;

pub(crate) use self::check::check_sandbox;
use turnwright_config::Config;
use turnwright_sandbox::{Network, SandboxProfile};
use turnwright_types::error_text::io_error_text;
use turnwright_workspace::exec::{
    self, Environment, LaunchSource, NONCE_VARIABLE, SOCKET_VARIABLE,
};
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// A command of a person, and what it may do in the sandbox.
#[derive(Debug)]
pub struct SandboxedCommand {
    /// It may write only to its temporary folder.
    pub read_only: bool,
    /// It may use the network.
    pub network: bool,
    /// The other files and folders to which it may write.
    pub write: Vec<PathBuf>,
    /// The program and its arguments.
    pub program: Vec<OsString>,
}

impl SandboxedCommand {
    /// Runs the command. Returns its exit status.
    pub fn run(self, config: &Config) -> io::Result<u8> {
        // Removed when this process ends.
        let folder = PrivateTempFolder::create()?;
        let place = folder.path().canonicalize()?;
        let sandbox = Box::new(self.profile(config, &place)?);
        let names = ["TMPDIR", "TMP", "TEMP"].into_iter();
        let environment =
            names.fold(environment(config), |environment, name| environment.with(name, &place));
        run_in_terminal(LaunchSource::Person { program: self.program, sandbox }, &environment)
    }

    /// The profile of a command that a person starts: it may write below the current folder.
    fn profile(&self, config: &Config, temporary: &Path) -> io::Result<SandboxProfile> {
        let mut write = vec![temporary.to_owned()];
        let mut keep = Vec::new();
        if !self.read_only {
            let here = Path::new(".").canonicalize()?;
            keep = vec![here.join(".git/hooks"), here.join(".git/config")];
            write.push(here);
        }
        for path in &self.write {
            let real = path.canonicalize();
            write.push(
                real.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?,
            );
        }
        let home = config.paths.home.as_deref();
        let mut hide = home.map(turnwright_types::effect::credential_paths).unwrap_or_default();
        hide.extend([config.paths.config.clone(), config.paths.state.clone()]);
        let network = if self.network { Network::Internet } else { Network::Loopback };
        Ok(SandboxProfile {
            writable: write,
            read_only: keep,
            hidden: hide,
            network,
            ..SandboxProfile::default()
        })
    }
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
    match run_in_terminal(agent, &environment(config)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            writeln!(stderr(), "turnwright: {}", io_error_text(&error)).ok();
            ExitCode::from(FAILED)
        }
    }
}

/// The environment of a command that this process runs.
fn environment(config: &Config) -> Environment {
    let values = config.snapshot().secrets();
    let secrets: Vec<_> = values.iter().map(String::as_str).collect();
    Environment::scrubbed(config.inherited.iter().cloned(), &secrets)
}

/// Runs a command and shows its output on stdout. Returns its exit status.
fn run_in_terminal(source: LaunchSource, environment: &Environment) -> io::Result<u8> {
    let runtime = crate::runtime()?;
    let code = runtime.block_on(async {
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
    });
    runtime.shutdown_timeout(Duration::from_millis(50));
    Ok(code)
}
