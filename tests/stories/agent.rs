//! Runs the agent on a thread of the test, with the same settings as in a process.

use std::fs::File;
use std::io;
use std::path::Path;
#[cfg(unix)]
use std::process::Command;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use turnwright_rpc::Stdio;
#[cfg(unix)]
use turnwright_testing::process_waits;
use turnwright_testing::{InProcessServer, ThreadAgent};

use crate::socket_server::SocketServer;

pub use turnwright_testing::{LIMIT, calls, eventually, prompt, runs, says, writes};

/// The name of a file without links, and without the prefix that the standard library gives it on Windows.
pub fn real_name(path: &Path) -> String {
    path.canonicalize().unwrap().display().to_string().trim_start_matches(r"\\?\").to_owned()
}

/// Makes a FIFO, which Windows does not have.
#[cfg(unix)]
pub fn make_fifo(path: &Path) {
    let made = process_waits::status(Command::new("mkfifo").arg(path));
    assert!(made.unwrap().success());
}

/// The client of an agent that runs on a thread of the test.
pub type TestAgent = turnwright_testing::TestAgent<AgentTransport>;
pub type TestAgentBuilder = turnwright_testing::TestAgentBuilder<AgentTransport>;
pub type AgentTransport = ThreadAgent<Turnwright>;

/// The agent that `turnwright acp` serves. With `TURNWRIGHT_TEST_TRANSPORT=websocket` it is the one that
/// `turnwright serve` serves, behind what `turnwright connect` does.
pub enum Turnwright {}

impl InProcessServer for Turnwright {
    fn serve(
        home: &Path,
        variables: &[(String, String)],
        input: File,
        output: File,
    ) -> io::Result<()> {
        let transport = std::env::var("TURNWRIGHT_TEST_TRANSPORT");
        if transport.is_ok_and(|name| name == "websocket") {
            let server = SocketServer::start(home, variables, Duration::from_secs(60));
            return SocketServer::bridge(&server.url, input, output, &CancellationToken::new());
        }
        turnwright::internals::serve_acp(home, variables, Stdio { input, output })
    }
}
