//! `turnwright mcp`: logging in at MCP servers, and out again.

use std::io::{Write, stderr};
use std::process::ExitCode;

use clap::Subcommand;
use url::Url;

use crate::config::{Config, McpReach};
use crate::mcp::{Login, LoginOptions, Logins, Reach, log_in};

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Log in at a server on HTTP with your browser, and keep the login for all sessions
    #[command(after_help = "Example: turnwright mcp login https://mcp.example.com/mcp\n\
                            Exit status: 0 only when you are logged in.")]
    Login {
        /// The server's name in the settings, or its address
        server: String,
        /// Who we are to the server, if it knows its clients beforehand
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,
        /// What to ask for, if not what the server proposes; may be given again
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
    },
    /// Forget the login at a server
    #[command(after_help = "Example: turnwright mcp logout https://mcp.example.com/mcp")]
    Logout {
        /// The server's name in the settings, or its address
        server: String,
    },
}

/// Does it, and says how it went.
pub(super) fn run(action: Action, config: &Config) -> ExitCode {
    let done = match action {
        Action::Login { server, client_id, scopes } => {
            login(config, &server, LoginOptions { client_id, scopes })
        }
        Action::Logout { server } => logout(config, &server),
    };
    let (text, status) = match done {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(why) => (format!("turnwright mcp: {why}"), ExitCode::FAILURE),
    };
    drop(writeln!(stderr(), "{text}"));
    status
}

fn login(config: &Config, server: &str, options: LoginOptions) -> Result<String, String> {
    super::keep_to_ourselves();
    let login = at(config, server)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let show = |address: &str| {
        drop(super::say(&format!("Open this address in your browser:\n\n{address}\n\n")));
    };
    runtime.block_on(log_in(&login, options, show))?;
    Ok(format!("You are logged in at {server}."))
}

fn logout(config: &Config, server: &str) -> Result<String, String> {
    match at(config, server)?.remove() {
        Ok(true) => Ok("The login is forgotten.".to_owned()),
        Ok(false) => Ok("There was no login.".to_owned()),
        Err(error) => Err(format!("the login could not be removed: {error}")),
    }
}

fn at(config: &Config, server: &str) -> Result<Login, String> {
    let url = address(config, server)?;
    Logins::new(&config.paths.config).at(&url).ok_or_else(|| {
        "a login there would go over the network without encryption: the address has to begin \
         with https"
            .to_owned()
    })
}

/// The address of the server that is meant.
fn address(config: &Config, server: &str) -> Result<Url, String> {
    if !server.contains("://") {
        let servers = config.mcp().servers;
        let named = servers.into_iter().find(|it| it.name == server);
        return match named.map(|it| it.reach) {
            Some(McpReach::Address { url, .. }) => Ok(url),
            Some(McpReach::Program { .. }) => {
                Err(format!("`{server}` is a program, and only servers on HTTP have a login"))
            }
            None => Err(format!("no server `{server}` is set up. Give its address instead")),
        };
    }
    match Reach::http(server, [])? {
        Reach::Http { url, .. } => Ok(url),
        Reach::Stdio { .. } => Err("only servers on HTTP have a login".to_owned()),
    }
}
