//! `turnwright sandbox -- PROGRAM …`: a command as the agent runs its own, in somebody's terminal.

use std::ffi::OsString;
use std::io::{Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::config::Config;
use crate::exec::{self, Environment, Launch, Screen};

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
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(super) fn run(options: Options, config: &Config) -> ExitCode {
    match serve(options, config) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            drop(writeln!(stderr(), "turnwright sandbox: {error}"));
            ExitCode::from(125)
        }
    }
}

fn serve(options: Options, config: &Config) -> std::io::Result<u8> {
    super::keep_to_ourselves();
    let secrets = config.secrets();
    let secrets: Vec<_> = secrets.iter().map(String::as_str).collect();
    let launch = Launch {
        program: options.program,
        environment: Environment::scrubbed(config.inherited.iter().cloned(), &secrets),
        takes_input: options.input,
        report: options.report,
    };
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
