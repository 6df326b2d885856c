//! Our tools for every other MCP client: `turnwright mcp-server`. The protocol is `rmcp`'s; what a
//! call may do is decided by the same law as in a session, and a question goes to the client's user.

mod desk;
mod handler;
mod limits;
mod offer;
mod reply;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use turnwright_policy::permission::Mode;
use turnwright_types::redact;
use turnwright_rpc::{Input, Outbox, Stdio, stop_signal};
use crate::session::Host;
use handler::Handler;
use wire::Wire;

/// How long everything may take to end after the client has gone.
const SHUTDOWN: Duration = Duration::from_millis(1_500);
/// How long the last words may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What the command line says.
#[derive(Debug)]
pub struct Options {
    /// The folders that tools may work in; empty if the client is to say which.
    pub roots: Vec<PathBuf>,
    /// The folder to work in where nobody says which.
    pub cwd: PathBuf,
    /// How much may be done without asking, if not what the settings say.
    pub mode: Option<Mode>,
}

/// Speaks MCP until the client closes its end or the process is told to stop.
///
/// # Errors
/// When the system cannot give us what we need to begin.
pub async fn serve(config: Config, options: Options, stdio: Stdio) -> std::io::Result<()> {
    let outbox = Outbox::filtered(stdio.output, |_, line| redact::bytes(line))?;
    let input = Input::start(stdio.input)?;
    let stop = CancellationToken::new();
    let host = Arc::new(Host::new(config, stop.clone()));
    let handler = Handler::new(Arc::clone(&host), options, outbox.clone());
    let ending = handler.clone();
    let wire = Wire::new(input, outbox.clone(), stop.clone());
    let serving = async {
        match handler.serve_with_ct(wire, stop.clone()).await {
            Ok(service) => drop(service.waiting().await),
            Err(error) => tracing::info!(%error, "no client has begun"),
        }
    };
    tokio::select! {
        () = serving => {}
        () = stop_signal() => {}
        () = outbox.gone() => {}
    }
    stop.cancel();
    let ended = async {
        ending.close().await;
        host.finished().await;
    };
    if tokio::time::timeout(SHUTDOWN, ended).await.is_err() {
        tracing::error!("something did not end in time");
    }
    outbox.close(LAST_WORDS);
    Ok(())
}
