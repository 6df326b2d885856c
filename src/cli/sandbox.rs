//! `turnwright sandbox -- PROGRAM …`: a command as the agent runs its own, in somebody's terminal.

use std::ffi::OsString;
use std::io::{self, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::config::Config;
use turnwright_workspace::exec::{self, Environment, Launch, Screen};
use turnwright_sandbox::{Network, Profile};

/// Pieces of output that may wait for the terminal.
const PIECES: usize = 8;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Where the agent listens that wants to know what comes of it
    #[arg(long, value_name = "SOCKET", hide = true)]
    report: Option<PathBuf>,
    /// Whether the agent may give it input
    #[arg(long, hide = true, requires = "report")]
    input: bool,
    /// Let it change nothing here, only its temporary folder
    #[arg(long)]
    read_only: bool,
    /// Let it use the network
    #[arg(long)]
    network: bool,
    /// Let it change this file or folder too
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(super) fn run(options: &Options, config: &Config) -> ExitCode {
    match serve(options, config) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            drop(writeln!(stderr(), "turnwright sandbox: {error}"));
            ExitCode::from(125)
        }
    }
}

/// What a command may do that people start: change what is below the folder that they are in.
fn profile(options: &Options, config: &Config, temporary: &Path) -> io::Result<Profile> {
    let mut write = vec![temporary.to_owned()];
    let mut keep = Vec::new();
    if !options.read_only {
        let here = Path::new(".").canonicalize()?;
        keep = vec![here.join(".git/hooks"), here.join(".git/config")];
        write.push(here);
    }
    for path in &options.write {
        let real = path.canonicalize();
        write.push(real.map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?);
    }
    let home = config.paths.home.as_deref();
    let mut hide = home.map(turnwright_sandbox::secrets_below).unwrap_or_default();
    hide.push(config.paths.config.clone());
    let network = if options.network { Network::On } else { Network::Off };
    Ok(Profile { write, keep, hide, read: None, network })
}

fn serve(options: &Options, config: &Config) -> io::Result<u8> {
    super::keep_to_ourselves();
    let secrets = config.secrets();
    let secrets: Vec<_> = secrets.iter().map(String::as_str).collect();
    let mut launch = Launch {
        environment: Environment::scrubbed(config.inherited.iter().cloned(), &secrets),
        takes_input: options.input,
        report: options.report.clone(),
        jail: None,
        program: options.program.clone(),
    };
    // Gone when we are. An agent has one of its own.
    let mut _temporary = None;
    if options.report.is_none() {
        let folder = tempfile::Builder::new().prefix("turnwright-").tempdir()?;
        let place = folder.path().canonicalize()?;
        launch.jail = Some(profile(options, config, &place)?);
        for name in ["TMPDIR", "TMP", "TEMP"] {
            launch.environment = launch.environment.with(name, &place);
        }
        _temporary = Some(folder);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(async {
        let (out, mut pieces) = tokio::sync::mpsc::channel::<Vec<u8>>(PIECES);
        // A terminal that is not read must not keep us from hearing a signal.
        #[expect(clippy::disallowed_methods, reason = "here is no protocol but a terminal")]
        let shown = tokio::task::spawn_blocking(move || {
            let mut stdout = stdout();
            while let Some(piece) = pieces.blocking_recv() {
                if stdout.write_all(&piece).and_then(|()| stdout.flush()).is_err() {
                    return;
                }
            }
        });
        exec::launch(&launch, Screen { out, shown }).await.unwrap_or_else(|error| {
            drop(writeln!(stderr(), "turnwright sandbox: {error}"));
            error.code()
        })
    });
    runtime.shutdown_timeout(Duration::from_millis(50));
    Ok(code)
}
