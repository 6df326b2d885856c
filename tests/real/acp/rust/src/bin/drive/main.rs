//! Drives the agent with the official Rust SDK of ACP:
//!
//! ```text
//! drive VERSION PROJECT stdio COMMAND...      starts the agent
//! drive VERSION PROJECT conductor COMMAND...  starts the conductor, with the proxies `greet` and `polyfill`
//! drive VERSION PROJECT connect URL LINES     connects to `turnwright serve`, over HTTP or WebSocket
//! ```
//!
//! VERSION is 1 or 2, PROJECT an empty folder. The model has to play scenario.json. What is sent over HTTP is
//! kept in the folder LINES. Ends with 0 if all was as it should be.

mod client;
mod conversation;
mod echo_server;
mod kept_lines;
mod v1;
mod v2;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use agent_client_protocol::{AcpAgent, AcpAgentConfig, Client, DynConnectTo, Error};
use agent_client_protocol_http::HttpClient;
use reqwest::header::{AUTHORIZATION, HeaderMap};

use client::Setting;
use kept_lines::KeptLines;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match tokio::time::timeout(LIMIT, run(&arguments)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::internal_error().data("the time is up")),
    };
    match outcome {
        Ok(()) => {
            println!("drive: all as it should be");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("drive: {} {:?}", error.message, error.data);
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &[String]) -> Result<(), Error> {
    let [version, project, how, target @ ..] = arguments else {
        return Err(Error::invalid_params().data("usage: drive VERSION PROJECT HOW TARGET..."));
    };
    let setting = Setting::new(PathBuf::from(project), how == "conductor")?;
    let agent = agent(how, target)?;
    match version.as_str() {
        "1" => v1::drive(setting, agent).await,
        _ => v2::drive(setting, agent).await,
    }
}

fn agent(how: &str, target: &[String]) -> Result<DynConnectTo<Client>, Error> {
    let (first, rest) = target.split_first().ok_or_else(Error::invalid_params)?;
    if how != "connect" {
        let config = AcpAgentConfig::new(first).args(rest);
        return Ok(DynConnectTo::new(AcpAgent::new(config)));
    }
    let token = std::env::var("TURNWRIGHT_SERVE_TOKEN").map_err(Error::into_internal_error)?;
    let value = format!("Bearer {token}").parse().map_err(Error::into_internal_error)?;
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    let client = HttpClient::builder_with_endpoint(first)
        .configure_http(|http| http.default_headers(headers).no_proxy())
        .build()
        .map_err(Error::into_internal_error)?;
    let lines = rest.first().ok_or_else(Error::invalid_params)?;
    Ok(DynConnectTo::new(KeptLines::new(client, lines.as_ref())?))
}
