//! `turnwright mcp`: logs in to and out of MCP servers. `turnwright mcp-server`: serves the built-in tools over MCP on
//! stdin and stdout.

use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use url::Url;

use crate::mcp_server;
use turnwright_config::Config;
use turnwright_mcp::{LoginStore, ServerLogin, ServerTransport, log_in};
use turnwright_policy::permission::Mode;
use turnwright_rpc::Stdio;
use turnwright_types::error_text::io_error_text;
use turnwright_workspace::real_path;

#[derive(Debug, Subcommand)]
pub(super) enum McpCommand {
    /// Log in to an HTTP server in your browser; all sessions use the login
    #[command(after_help = "Example: turnwright mcp login https://mcp.example.com/mcp\n\
                            Exit status: 0 only if the login succeeded.")]
    Login {
        /// Server name from the settings, or its URL
        server: String,
        /// OAuth client id, if the server requires a registered client
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,
        /// OAuth scope to request instead of the server's default (repeatable)
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
    },
    /// Delete the stored login of a server
    #[command(after_help = "Example: turnwright mcp logout https://mcp.example.com/mcp")]
    Logout {
        /// Server name from the settings, or its URL
        server: String,
    },
}

pub(super) fn run(action: McpCommand, config: &Config) -> ExitCode {
    let done = match action {
        McpCommand::Login { server, client_id, scopes } => {
            login(config, &server, client_id, scopes)
        }
        McpCommand::Logout { server } => logout(config, &server),
    };
    let (text, status) = match done {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(why) => (format!("turnwright mcp: {why}"), ExitCode::FAILURE),
    };
    writeln!(stderr(), "{text}").ok();
    status
}

fn login(
    config: &Config,
    server: &str,
    client_id: Option<String>,
    scopes: Vec<String>,
) -> Result<String, String> {
    super::deny_memory_inspection();
    let login = find_login(config, server)?;
    let runtime = turnwright_terminal::runtime().map_err(|error| error.to_string())?;
    runtime.block_on(log_in(&login, client_id, scopes, |address: &str| {
        super::write_stdout(&format!("Open this URL in your browser:\n\n{address}\n\n")).ok();
    }))?;
    Ok(format!("Logged in to {server}."))
}

fn logout(config: &Config, server: &str) -> Result<String, String> {
    match find_login(config, server)?.remove() {
        Ok(true) => Ok("Logged out.".to_owned()),
        Ok(false) => Ok("There was no stored login.".to_owned()),
        Err(error) => Err(format!("the login could not be removed: {}", io_error_text(&error))),
    }
}

fn find_login(config: &Config, server: &str) -> Result<ServerLogin, String> {
    let url = server_url(config, server)?;
    LoginStore::new(&config.paths.config)
        .login_for(&url)
        .ok_or_else(|| "the login would be sent unencrypted: use an https:// URL".to_owned())
}

/// The URL of a server, given by its name in the settings or by the URL itself.
fn server_url(config: &Config, server: &str) -> Result<Url, String> {
    let transport = if server.contains("://") {
        ServerTransport::http(server, [])?
    } else {
        let mut servers = config.snapshot().mcp_settings().servers.into_iter();
        let unknown =
            || format!("no server `{server}` in the settings. Check the name or give its URL");
        servers.find(|known| known.name == server).ok_or_else(unknown)?.transport
    };
    match transport {
        ServerTransport::Http { url, .. } => Ok(url),
        ServerTransport::Stdio { .. } | ServerTransport::Linked(_) => {
            Err(format!("`{server}` is a local program; only HTTP servers have logins"))
        }
    }
}

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

pub(super) fn serve(args: McpServerCliArgs, config: Config) -> ExitCode {
    super::run_for_program("turnwright mcp-server", TERMINAL_HINT, |stdio| {
        serve_tools(args, config, stdio)
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the client starts the process in the folder to work in"
)]
fn serve_tools(args: McpServerCliArgs, config: Config, stdio: Stdio) -> std::io::Result<()> {
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
