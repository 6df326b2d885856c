//! `turnwright mcp`: logs in to and out of MCP servers.

use std::io::{Write, stderr};
use std::process::ExitCode;

use clap::Subcommand;
use url::Url;

use crate::config::Config;
use turnwright_mcp::{LoginOptions, LoginStore, ServerLogin, ServerTransport, log_in};
use turnwright_types::io_error_text::io_error_text;

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
            login(config, &server, LoginOptions { client_id, scopes })
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

fn login(config: &Config, server: &str, options: LoginOptions) -> Result<String, String> {
    super::deny_memory_inspection();
    let login = find_login(config, server)?;
    let runtime = super::runtime().map_err(|error| error.to_string())?;
    runtime.block_on(log_in(&login, options, |address: &str| {
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
