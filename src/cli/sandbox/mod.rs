//! `turnwright sandbox -- PROGRAM …`: runs a command in the agent's sandbox, attached to the terminal. And the launcher
//! in a terminal of the editor: runs the command that the agent which opened the terminal sends. Its arguments are
//! only the name of the terminal, and are never run.

pub(super) mod check;
pub(super) mod probe;

use std::ffi::OsString;
use std::io::{self, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::task::spawn_blocking;

use super::CliError;
use turnwright_config::Config;
use turnwright_sandbox::{Network, SandboxProfile};
use turnwright_types::io_error_text::io_error_text;
use turnwright_workspace::exec::{
    self, AgentAddress, DisplayTask, Environment, LaunchSource, LaunchSpec, NONCE_VARIABLE,
    SOCKET_VARIABLE,
};
use turnwright_workspace::temp_folder::PrivateTempFolder;

#[derive(Debug, Args)]
pub(super) struct SandboxCliArgs {
    /// Allow writing only to the temporary folder
    #[arg(long)]
    read_only: bool,
    /// Allow network access
    #[arg(long)]
    network: bool,
    /// Allow writing to this file or folder too (repeatable)
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(super) fn run(args: &SandboxCliArgs, config: &Config) -> ExitCode {
    let status = serve(args, config).map(ExitCode::from);
    super::exit_code("sandbox", status.map_err(CliError::from), 125)
}

/// The profile of a command that a person starts: it may write below the current folder.
fn profile(args: &SandboxCliArgs, config: &Config, temporary: &Path) -> io::Result<SandboxProfile> {
    let mut write = vec![temporary.to_owned()];
    let mut keep = Vec::new();
    if !args.read_only {
        let here = Path::new(".").canonicalize()?;
        keep = vec![here.join(".git/hooks"), here.join(".git/config")];
        write.push(here);
    }
    for path in &args.write {
        let real = path.canonicalize();
        write.push(real.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?);
    }
    let home = config.paths.home.as_deref();
    let mut hide = home.map(turnwright_types::effect::credential_paths).unwrap_or_default();
    hide.extend([config.paths.config.clone(), config.paths.state.clone()]);
    let network = if args.network { Network::Internet } else { Network::Loopback };
    Ok(SandboxProfile {
        writable: write,
        read_only: keep,
        hidden: hide,
        network,
        ..SandboxProfile::default()
    })
}

fn serve(args: &SandboxCliArgs, config: &Config) -> io::Result<u8> {
    super::deny_memory_inspection();
    // Removed when this process ends.
    let folder = PrivateTempFolder::create()?;
    let place = folder.path().canonicalize()?;
    let names = ["TMPDIR", "TMP", "TEMP"].into_iter();
    let environment = environment(config);
    run_in_terminal(&LaunchSpec {
        environment: names.fold(environment, |environment, name| environment.with(name, &place)),
        source: LaunchSource::Person {
            program: args.program.clone(),
            sandbox: Box::new(profile(args, config, &place)?),
        },
    })
}

/// The most chunks of output that may wait to be written to the terminal.
const MAX_PENDING_CHUNKS: usize = 8;
/// The exit status of a launcher that has run nothing.
const FAILED: u8 = 125;

/// True if an agent has had this process started. Its arguments must not be parsed then.
pub(super) fn is_launcher() -> bool {
    turnwright_config::has_variable(SOCKET_VARIABLE)
}

pub(super) fn run_for_agent(config: &Config) -> ExitCode {
    super::deny_memory_inspection();
    let launch = LaunchSpec {
        environment: environment(config),
        source: LaunchSource::Agent(agent_address(config)),
    };
    match run_in_terminal(&launch) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            writeln!(stderr(), "turnwright: {}", io_error_text(&error)).ok();
            ExitCode::from(FAILED)
        }
    }
}

fn agent_address(config: &Config) -> AgentAddress {
    let value = |name: &str| {
        let found = config.inherited.iter().find(|variable| variable.0 == name);
        found.map(|variable| variable.1.clone()).unwrap_or_default()
    };
    AgentAddress {
        socket: value(SOCKET_VARIABLE).into(),
        nonce: value(NONCE_VARIABLE).into_string().unwrap_or_default(),
    }
}

/// The environment of a command that this process runs.
pub(super) fn environment(config: &Config) -> Environment {
    let values = config.snapshot().secrets();
    let secrets: Vec<_> = values.iter().map(String::as_str).collect();
    Environment::scrubbed(config.inherited.iter().cloned(), &secrets)
}

/// Runs a command and shows its output on stdout. Returns its exit status.
fn run_in_terminal(launch: &LaunchSpec) -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
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
        exec::launch(launch, DisplayTask { output: out, finished: shown }).await.unwrap_or_else(
            |error| {
                writeln!(stderr(), "turnwright: {error}").ok();
                error.exit_code()
            },
        )
    });
    runtime.shutdown_timeout(Duration::from_millis(50));
    Ok(code)
}
