//! `turnwright mcp-server`: serves the built-in tools over MCP on stdin and stdout.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::config::Config;
use crate::mcp_server;
use turnwright_policy::permission::Mode;
use turnwright_rpc::Stdio;
use turnwright_workspace::real_path;

const TERMINAL_HINT: &str = "\
turnwright mcp-server offers the built-in tools to a client of the Model
Context Protocol (MCP). The client starts it and talks to it on stdin and
stdout: there is nothing to type here.

`turnwright mcp-server --help` shows the client's settings.
";

#[derive(Debug, Args)]
pub(super) struct McpServerCliArgs {
    /// Folder the tools may work in (repeatable; paths are relative to the first)
    /// [default: the client's roots, or the current folder]
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// Permission mode: plan, ask, auto-edit, auto or full [default: from the settings, or ask]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<Mode>,
}

pub(super) fn parse_mode(word: &str) -> Result<Mode, String> {
    let known = Mode::ALL.map(Mode::id).join(", ");
    Mode::parse(word).ok_or_else(|| format!("expected one of {known}"))
}

pub(super) fn run(args: McpServerCliArgs, config: Config) -> ExitCode {
    super::run_for_program("turnwright mcp-server", TERMINAL_HINT, |stdio| {
        serve(args, config, stdio)
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the client starts the process in the folder to work in"
)]
fn serve(args: McpServerCliArgs, config: Config, stdio: Stdio) -> std::io::Result<()> {
    let roots =
        args.root.into_iter().map(|root| canonical_root(&root)).collect::<Result<_, _>>()?;
    let cwd = std::env::current_dir()?;
    let options = mcp_server::McpServerOptions { roots, cwd, mode: args.mode };
    let runtime = crate::runtime::build()?;
    let result = runtime.block_on(mcp_server::serve(config, options, stdio));
    // A blocking call that hangs, for example on a dead network disk, must not delay the exit.
    runtime.shutdown_timeout(Duration::from_millis(50));
    result
}

fn canonical_root(root: &Path) -> std::io::Result<PathBuf> {
    match real_path(root) {
        Ok(real) if real.is_dir() => Ok(real),
        Ok(_) => Err(std::io::Error::other(format!("--root {}: not a folder", root.display()))),
        Err(error) => Err(std::io::Error::other(format!("--root {}: {error}", root.display()))),
    }
}
