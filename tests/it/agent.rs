//! The test client for an agent that runs as a process, and re-exports of common test helpers.

use turnwright_testing::{ChildAgent, Program};

pub use turnwright_testing::{
    LIMIT, assert_gone, calls, eventually, is_alive, prompt, run_mark, says,
};

/// A client that talks with an agent process over its stdin and stdout.
pub type TestAgent = turnwright_testing::TestAgent<AgentTransport>;
pub type TestAgentBuilder = turnwright_testing::TestAgentBuilder<AgentTransport>;
pub type AgentTransport = ChildAgent<Turnwright>;

/// The `turnwright` program that Cargo has built for these tests.
pub enum Turnwright {}

impl Program for Turnwright {
    const PATH: &'static str = env!("CARGO_BIN_EXE_turnwright");
}
