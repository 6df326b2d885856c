//! Runs the agent on a thread of the test, with the same settings as in a process.

use std::fs::File;
use std::io;
use std::path::Path;

use turnwright_rpc::Stdio;
use turnwright_testing::{InProcessServer, ThreadAgent};

pub use turnwright_testing::{LIMIT, calls, eventually, prompt, says};

/// The client of an agent that runs on a thread of the test.
pub type TestAgent = turnwright_testing::TestAgent<AgentTransport>;
pub type TestAgentBuilder = turnwright_testing::TestAgentBuilder<AgentTransport>;
pub type AgentTransport = ThreadAgent<Turnwright>;

/// The agent that `turnwright acp` serves.
pub enum Turnwright {}

impl InProcessServer for Turnwright {
    fn serve(
        home: &Path,
        variables: &[(String, String)],
        input: File,
        output: File,
    ) -> io::Result<()> {
        turnwright::internals::serve_acp(home, variables, Stdio { input, output })
    }
}
