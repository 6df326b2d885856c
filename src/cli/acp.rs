//! `turnwright` and `turnwright acp`: serves ACP on stdin and stdout.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;

use crate::acp;
use crate::config::Config;
use turnwright_types::io_error_text::io_error_text;

const EXPLANATION: &str = "\
turnwright is a coding agent that your editor starts. It speaks the Agent
Client Protocol (ACP) on stdin and stdout: there is nothing to type here.

Add it to your editor's agents, for example in Zed's settings.json:

  \"agent_servers\": {
    \"turnwright\": { \"type\": \"custom\", \"command\": \"turnwright\", \"args\": [] }
  }

`turnwright run` is a conversation in the terminal, `turnwright login` stores
an API key, and `turnwright --help` lists commands and settings.
";

pub(super) fn run(config: Config) -> ExitCode {
    if stdin().is_terminal() {
        // A user who runs `turnwright` in a terminal should not wonder what it is waiting for.
        return match stderr().write_all(EXPLANATION.as_bytes()) {
            Ok(()) => ExitCode::from(2),
            Err(_) => ExitCode::FAILURE,
        };
    }
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(stderr(), "turnwright could not start: {}", io_error_text(&error)));
            ExitCode::FAILURE
        }
    }
}

fn serve(config: Config) -> std::io::Result<()> {
    super::deny_memory_inspection();
    super::return_large_buffers();
    let stdio = turnwright_rpc::claim_stdio()?;
    let recording = super::started_recording(&config);
    acp::serve_blocking(config, recording, stdio, turnwright_rpc::stop_signal())
}
