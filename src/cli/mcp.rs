//! `turnwright mcp`: logs in to and out of MCP servers. `turnwright mcp-server`: serves the built-in tools over MCP on
//! stdin and stdout.

use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use url::Url;

use crate::mcp_server;
use crate::runtime;
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
        /// OAuth client id, if the server requires a registered client, or the URL of a metadata document
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,
        /// OAuth scope to request instead of the server's default (repeatable)
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// Redirect address of the registered client, such as http://localhost:3118/callback
        #[arg(long, value_name = "URL")]
        callback: Option<String>,
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
        McpCommand::Login { server, client_id, scopes, callback } => {
            login(config, &server, client_id, scopes, callback.as_deref())
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
    callback: Option<&str>,
) -> Result<String, String> {
    super::deny_memory_inspection();
    let login = find_login(config, server)?;
    let logging_in = log_in(&login, client_id, scopes, callback, |address: &str| {
        super::write_stdout(&format!(
            "Open this URL in your browser:\n\n{address}\n\nIf the browser is on another machine, it ends at an \
             address that it cannot open: run `read -r a; curl -g -- \"$a\"` here, in another terminal, and paste \
             the address.\n"
        ))
        .ok();
    });
    turnwright_terminal::block_on(logging_in).map_err(|error| error.to_string())??;
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

pub(super) fn parse_mode(word: &str) -> Result<Mode, String> {
    let known = Mode::ALL.map(Mode::id).join(", ");
    Mode::parse_lenient(word).ok_or_else(|| format!("expected one of {known}"))
}

pub(super) fn serve(folders: Vec<PathBuf>, mode: Option<Mode>, config: Config) -> ExitCode {
    super::run_for_program("turnwright mcp-server", TERMINAL_HINT, |stdio| {
        serve_tools(folders, mode, config, stdio)
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the client starts the process in the folder to work in"
)]
fn serve_tools(
    folders: Vec<PathBuf>,
    mode: Option<Mode>,
    config: Config,
    stdio: Stdio,
) -> std::io::Result<()> {
    let roots =
        folders.into_iter().map(|folder| canonical_root(&folder)).collect::<Result<_, _>>()?;
    let cwd = std::env::current_dir()?;
    let options = mcp_server::McpServerOptions { roots, cwd, mode };
    runtime::run(mcp_server::serve(config, options, stdio))
}

fn canonical_root(root: &Path) -> std::io::Result<PathBuf> {
    match real_path(root) {
        Ok(real) if real.is_dir() => Ok(real),
        Ok(_) => Err(std::io::Error::other(format!("--root {}: not a folder", root.display()))),
        Err(error) => Err(std::io::Error::other(format!("--root {}: {error}", root.display()))),
    }
}
