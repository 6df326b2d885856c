//! `turnwright mcp-server`.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::config::Config;
use crate::mcp_server;
use turnwright_policy::permission::Mode;

const EXPLANATION: &str = "\
turnwright mcp-server offers the built-in tools to a client of the Model Context Protocol (MCP), which
starts it and speaks with it on its standard input and output. There is nothing to type here.

`turnwright mcp-server --help` shows what to put into the client's settings.
";

#[derive(Debug, Args)]
pub(super) struct Options {
    /// A folder that the tools may work in; may be repeated, paths are relative to the first
    /// [default: the client's roots, or else the current folder]
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// How much may be done without asking: plan, ask, auto-edit, auto or full [default: what the
    /// settings say, or else ask]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<Mode>,
}

fn mode(word: &str) -> Result<Mode, String> {
    let known = Mode::ALL.map(Mode::id).join(", ");
    Mode::parse(word).ok_or_else(|| format!("it is none of {known}"))
}

pub(super) fn run(options: Options, config: Config) -> ExitCode {
    if stdin().is_terminal() {
        return match stderr().write_all(EXPLANATION.as_bytes()) {
            Ok(()) => ExitCode::from(2),
            Err(_) => ExitCode::FAILURE,
        };
    }
    match serve(options, config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(stderr(), "turnwright mcp-server could not start: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the client starts it where it is to work")]
fn serve(options: Options, config: Config) -> std::io::Result<()> {
    super::keep_to_ourselves();
    let stdio = turnwright_rpc::claim()?;
    let named = |it: PathBuf| match std::fs::canonicalize(&it) {
        Ok(real) if real.is_dir() => Ok(real),
        Ok(_) => Err(std::io::Error::other(format!("--root {}: no folder", it.display()))),
        Err(error) => Err(std::io::Error::other(format!("--root {}: {error}", it.display()))),
    };
    let roots = options.root.into_iter().map(named).collect::<Result<_, _>>()?;
    let cwd = std::env::current_dir()?;
    let options = mcp_server::Options { roots, cwd, mode: options.mode };
    // One thread is enough to wait for many things; what takes time goes to blocking threads.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(mcp_server::serve(config, options, stdio));
    // A blocking call that hangs, on a dead network disk say, must not keep us.
    runtime.shutdown_timeout(Duration::from_millis(50));
    result
}
