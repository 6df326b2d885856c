//! `turnwright` and `turnwright acp`: serves ACP on stdin and stdout.

use std::process::ExitCode;

use crate::acp;
use crate::config::Config;

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
    super::run_for_program("turnwright", EXPLANATION, |stdio| {
        acp::serve_blocking(config, stdio, turnwright_rpc::stop_signal())
    })
}
