//! `turnwright sandbox -- PROGRAM …`: runs a command in the agent's sandbox, attached to the terminal.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::{CliError, launcher};
use crate::config::Config;
use turnwright_sandbox::{Network, SandboxProfile};
use turnwright_workspace::exec::{LaunchSource, LaunchSpec};
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
    let environment = launcher::environment(config);
    launcher::run_in_terminal(&LaunchSpec {
        environment: names.fold(environment, |environment, name| environment.with(name, &place)),
        source: LaunchSource::Person {
            program: args.program.clone(),
            sandbox: Box::new(profile(args, config, &place)?),
        },
    })
}
