//! `turnwright sandbox -- PROGRAM …`: runs a command in the agent's sandbox, attached to the terminal.

use std::ffi::OsString;
use std::io::{self, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::config::Config;
use turnwright_sandbox::{Network, SandboxProfile};
use turnwright_types::io_fault::io_fault;
use turnwright_workspace::exec::{self, AgentAddress, DisplayTask, Environment, LaunchSpec};

/// The most chunks of output that may wait to be written to the terminal.
const MAX_PENDING_CHUNKS: usize = 8;

#[derive(Debug, Args)]
pub(super) struct SandboxCliArgs {
    /// Socket on which the agent that started this process receives its reports
    #[arg(long, value_name = "SOCKET", hide = true)]
    report: Option<PathBuf>,
    /// Let the agent send input to the command
    #[arg(long, hide = true, requires = "report")]
    input: bool,
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
    match serve(args, config) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            drop(writeln!(stderr(), "turnwright sandbox: {}", io_fault(&error)));
            ExitCode::from(125)
        }
    }
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
    let network = if args.network { Network::On } else { Network::Off };
    Ok(SandboxProfile {
        writable: write,
        read_only: keep,
        hidden: hide,
        network,
        ..SandboxProfile::default()
    })
}

/// The agent that has had this process started in a terminal of the editor, if one has.
fn agent_address(args: &SandboxCliArgs, config: &Config) -> Option<AgentAddress> {
    let socket = args.report.clone()?;
    let nonce = config.inherited.iter().find(|it| it.0 == exec::NONCE_VARIABLE);
    let nonce = nonce.and_then(|it| it.1.to_str()).unwrap_or_default().to_owned();
    Some(AgentAddress { socket, nonce })
}

fn serve(args: &SandboxCliArgs, config: &Config) -> io::Result<u8> {
    super::deny_memory_inspection();
    let secrets = config.secrets();
    let secrets: Vec<_> = secrets.iter().map(String::as_str).collect();
    let mut launch = LaunchSpec {
        environment: Environment::scrubbed(config.inherited.iter().cloned(), &secrets),
        accepts_input: args.input,
        agent: agent_address(args, config),
        sandbox: None,
        program: args.program.clone(),
    };
    // Removed when this process ends. An agent that started this process provides a folder itself.
    let mut _temporary = None;
    if args.report.is_none() {
        let folder = tempfile::Builder::new().prefix("turnwright-").tempdir()?;
        let place = folder.path().canonicalize()?;
        launch.sandbox = Some(profile(args, config, &place)?);
        for name in ["TMPDIR", "TMP", "TEMP"] {
            launch.environment = launch.environment.with(name, &place);
        }
        _temporary = Some(folder);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(async {
        let (out, mut pieces) = tokio::sync::mpsc::channel::<Vec<u8>>(MAX_PENDING_CHUNKS);
        // Writing happens on a thread, so that a blocked terminal does not delay signal handling.
        #[expect(clippy::disallowed_methods, reason = "stdout is a terminal here, not a protocol")]
        let shown = tokio::task::spawn_blocking(move || {
            let mut stdout = stdout();
            while let Some(piece) = pieces.blocking_recv() {
                if stdout.write_all(&piece).and_then(|()| stdout.flush()).is_err() {
                    return;
                }
            }
        });
        exec::launch(&launch, DisplayTask { output: out, finished: shown }).await.unwrap_or_else(
            |error| {
                drop(writeln!(stderr(), "turnwright sandbox: {error}"));
                error.exit_code()
            },
        )
    });
    runtime.shutdown_timeout(Duration::from_millis(50));
    Ok(code)
}
