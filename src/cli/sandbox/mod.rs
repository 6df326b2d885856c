//! `turnwright sandbox -- PROGRAM …`: runs a command in the agent's sandbox. And the launcher that an agent has started
//! in a terminal of the editor.

pub(super) mod probe;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::CliError;
use turnwright_config::Config;
use turnwright_terminal::SandboxedCommand;
use turnwright_workspace::exec::SOCKET_VARIABLE;

/// The exit status if the command could not be started.
const NOT_STARTED: u8 = 125;

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

pub(super) fn run(args: SandboxCliArgs, config: &Config) -> ExitCode {
    super::deny_memory_inspection();
    let SandboxCliArgs { read_only, network, write, program } = args;
    let status = SandboxedCommand { read_only, network, write, program }.run(config);
    super::exit_code("sandbox", status.map(ExitCode::from).map_err(CliError::from), NOT_STARTED)
}

/// True if an agent has had this process started. Its arguments must not be parsed then.
pub(super) fn is_launcher() -> bool {
    turnwright_config::has_variable(SOCKET_VARIABLE)
}

pub(super) fn run_for_agent(config: &Config) -> ExitCode {
    super::deny_memory_inspection();
    turnwright_terminal::run_for_agent(config)
}
