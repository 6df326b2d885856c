//! The program of the agent as the test client starts it.

use turnwright_testing::{ChildAgent, Program};

pub use turnwright_testing::{LIMIT, calls, eventually, is_alive, prompt, run_mark, says};

/// A client of a process.
pub type TestAgent = turnwright_testing::TestAgent<AgentTransport>;
pub type TestAgentBuilder = turnwright_testing::TestAgentBuilder<AgentTransport>;
pub type AgentTransport = ChildAgent<Turnwright>;

/// The program that Cargo has built for these tests.
pub enum Turnwright {}

impl Program for Turnwright {
    const PATH: &'static str = env!("CARGO_BIN_EXE_turnwright");
}
