//! Runs the agent on a thread of the test, served on a socket of this machine.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;
use turnwright_remote::{AccessRules, ListenOptions, bridge};
use turnwright_rpc::Stdio;
use turnwright_testing::LIMIT;

/// The token of every agent.
pub const TOKEN: &str = "token-of-the-stories";

/// An agent that is served on a socket. Dropping it ends the agent.
pub struct SocketServer {
    /// The address for WebSockets.
    pub url: String,
    stop: CancellationToken,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl SocketServer {
    /// Starts an agent. A session whose connection is lost goes on for `keep`.
    pub fn start(home: &Path, variables: &[(String, String)], keep: Duration) -> SocketServer {
        let (home, variables) = (home.to_owned(), variables.to_vec());
        let stop = CancellationToken::new();
        let (sender, address) = channel();
        let stopped = stop.clone();
        let serve = move || {
            let origins = vec!["https://allowed.example".to_owned()];
            let options = ListenOptions {
                address: ([127, 0, 0, 1], 0).into(),
                access: AccessRules::new(TOKEN, origins, Vec::new()),
                tls: None,
            };
            let announce = |url: &str| sender.send(url.to_owned()).unwrap();
            turnwright::internals::serve_acp_remote(
                &home,
                &variables,
                options,
                keep,
                announce,
                stopped.cancelled(),
            )
        };
        let thread = std::thread::Builder::new().stack_size(8 * 1024 * 1024).spawn(serve).unwrap();
        let url = address.recv_timeout(LIMIT).expect("the agent does not listen");
        SocketServer { url, stop, thread: Some(thread) }
    }

    /// Connects these pipes with the agent, until `input` ends. If `lost` is cancelled, the connection
    /// breaks without a word.
    pub fn bridge(
        url: &str,
        input: File,
        output: File,
        lost: &CancellationToken,
    ) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let url = url.parse().unwrap();
        let bridging = bridge(&url, TOKEN, Stdio { input, output }, CancellationToken::new());
        let result = runtime.block_on(lost.run_until_cancelled(bridging));
        runtime.shutdown_background();
        result.unwrap_or(Ok(())).map_err(io::Error::other)
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        self.stop.cancel();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}
