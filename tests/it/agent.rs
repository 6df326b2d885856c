//! The test client for an agent that runs as a process, and re-exports of common test helpers.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use turnwright_testing::{ChildAgent, Program, basic_variables, process_waits};

pub use turnwright_testing::{
    LIMIT, assert_gone, calls, eventually, is_alive, prompt, run_mark, runs, says, writes,
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

/// A subcommand with its folders below `home` and no other variables but those that keep it from depending on the
/// machine.
pub fn subcommand(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(Turnwright::PATH);
    command.args(arguments).env_clear().envs(basic_variables()).env("TURNWRIGHT_HOME", home);
    command.env("TURNWRIGHT_SURROUNDINGS", "0").env("TURNWRIGHT_FIND_CHECKS", "0");
    command
}

/// Runs a command with `input` in a pipe.
pub fn piped(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may exit before it has read all of its input.
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    process_waits::wait_with_output(child)
}
