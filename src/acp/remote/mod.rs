//! `turnwright serve`: ACP for clients that reach the agent over a network. All connections of a listener share one
//! process and host, and a session whose connection is lost goes on for a while, so that its client can come back
//! to it.

mod client;
mod detached;
mod journal;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::acp::connection::{
    BLOCKING_TIMEOUT, Connection, RECORDING_TIMEOUT, SHUTDOWN_TIMEOUT, redact_outgoing,
};
use crate::session::SessionHost;
pub(super) use client::CurrentClient;
pub(super) use detached::{RemoteSession, RemoteSessions};
use turnwright_config::Config;
use turnwright_recording::Recording;
use turnwright_remote::{
    ListenError, ListenOptions, Listener, ObserveConnection, RemoteConnection, ServeConnection,
};

/// How far apart the keys of prompts of two connections are: they must not be equal, since one connection may
/// take over the prompts of another.
const PROMPT_KEYS_PER_CONNECTION: u64 = 1 << 32;

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Serves ACP on a socket until `stop_requested` is ready. `announce` gets the address. A session whose
/// connection is lost goes on for `keep`.
pub(crate) fn serve_remote(
    config: Config,
    options: ListenOptions,
    keep: Duration,
    announce: impl FnOnce(&str),
    stop_requested: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let recording = SessionHost::started_recording(&config);
    let runtime = crate::runtime::build()?;
    let result = runtime.block_on(async {
        let listener = Listener::bind(options)?;
        announce(&listener.url()?);
        serve(config, recording, listener, keep, stop_requested).await;
        Ok(())
    });
    // A blocking call that hangs, for example on a dead network disk, must not delay the exit.
    runtime.shutdown_timeout(BLOCKING_TIMEOUT);
    result
}

async fn serve(
    config: Config,
    recording: Recording,
    listener: Listener,
    keep: Duration,
    stop_requested: impl Future<Output = ()>,
) {
    // The connections end first, and then the sessions.
    let closing = CancellationToken::new();
    let stop = CancellationToken::new();
    let recorder = Arc::clone(recording.recorder());
    let host = Arc::new(SessionHost::with_recording(config, recording, stop.clone()));
    let serve = serve_connections(Arc::clone(&host), keep, closing.clone());
    let observed = Arc::clone(&recorder);
    let observe: ObserveConnection = Arc::new(move |connection| observed.observer(connection));
    let listening = listener.run(serve, redact_outgoing, observe, closing.clone());
    tokio::pin!(listening);
    tokio::select! {
        () = &mut listening => {}
        () = stop_requested => {
            closing.cancel();
            stop.cancel();
            if timeout(SHUTDOWN_TIMEOUT, listening).await.is_err() {
                tracing::error!("a connection did not end in time");
            }
        }
    }
    stop.cancel();
    if timeout(SHUTDOWN_TIMEOUT, host.wait_for_sessions()).await.is_err() {
        tracing::error!("a session did not end in time");
    }
    recorder.stop(RECORDING_TIMEOUT);
}

fn serve_connections(
    host: Arc<SessionHost>,
    keep: Duration,
    closing: CancellationToken,
) -> ServeConnection {
    let known = Arc::default();
    Arc::new(move |remote: RemoteConnection| {
        let RemoteConnection { number, mut input, outbox, end } = remote;
        let first_key = number.wrapping_mul(PROMPT_KEYS_PER_CONNECTION);
        let prompts = first_key..first_key.saturating_add(PROMPT_KEYS_PER_CONNECTION);
        let sessions = RemoteSessions::new(Arc::clone(&known), keep, prompts);
        let mut connection = Connection::new(Arc::clone(&host), outbox.clone());
        connection.make_remote(sessions);
        let host = Arc::clone(&host);
        let closing = closing.clone();
        Box::pin(async move {
            connection.run(&mut input, closing.cancelled()).await;
            let recorder = Arc::clone(host.recording().recorder());
            recorder.leave_out_servers(number);
            connection.leave(end.is_intended());
            // Queued messages still go out.
            outbox.stop_accepting();
            // A recording has the lines of one connection.
            host.tracker()
                .spawn_blocking(move || recorder.end_connection(number, RECORDING_TIMEOUT));
        })
    })
}
