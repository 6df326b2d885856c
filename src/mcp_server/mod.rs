//! `turnwright mcp-server`: serves our tools to other MCP clients. Calls are judged by the same policy as in
//! a session, and permission is asked of the client's user.

mod client_calls;
mod handler;
mod offered_tools;
mod requests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::session::SessionHost;
use handler::McpHandler;
use requests::RequestLoop;
use turnwright_config::Config;
use turnwright_policy::permission::Mode;
use turnwright_rpc::{LineReader, Outbox, Peer, Stdio, stop_signal};
use turnwright_types::redact;

/// How long running calls may take to end after the client has gone.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long the client may take to read the last messages.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// The options of `turnwright mcp-server`.
#[derive(Debug)]
pub(crate) struct McpServerOptions {
    /// The folders that tools may work in. If empty, the client's roots are used.
    pub roots: Vec<PathBuf>,
    /// The folder to work in if neither the options nor the client name one.
    pub cwd: PathBuf,
    /// The permission mode, if it is not to be that of the settings.
    pub mode: Option<Mode>,
}

/// Serves MCP until the client closes its end or the process is told to stop.
pub(crate) async fn serve(
    config: Config,
    options: McpServerOptions,
    stdio: Stdio,
) -> std::io::Result<()> {
    let outbox = Outbox::start_observed(stdio.output, |_, line| redact::bytes(line), None)?;
    let input = LineReader::start(stdio.input)?;
    let stop = CancellationToken::new();
    let host = Arc::new(SessionHost::new(config, stop.clone()));
    let handler = Arc::new(McpHandler::new(Arc::clone(&host), options, outbox.clone()));
    let peer = Peer::with_withdrawal(outbox.clone(), "notifications/cancelled", "requestId");
    let requests = RequestLoop::new(Arc::clone(&handler), outbox.clone(), peer);
    let mut serving = std::pin::pin!(requests.run(input, stop.clone()));
    let has_ended = tokio::select! {
        () = &mut serving => true,
        () = stop_signal() => false,
        () = outbox.closed() => false,
    };
    stop.cancel();
    let ended = async {
        if !has_ended {
            serving.await;
        }
        handler.close().await;
        host.wait_for_sessions().await;
    };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
        tracing::error!("a call did not end in time");
    }
    outbox.close(FLUSH_TIMEOUT);
    Ok(())
}
