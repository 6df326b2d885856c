//! `turnwright` and `turnwright acp`.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;
use std::time::Duration;

use crate::acp;
use crate::config::Config;

const EXPLANATION: &str = "\
turnwright is an agent for editors: it is started by one and speaks the Agent Client Protocol
(ACP) on its standard input and output. There is nothing to type here.

Tell your editor to run this program, for example in Zed's settings.json:

  \"agent_servers\": {
    \"turnwright\": { \"type\": \"custom\", \"command\": \"turnwright\", \"args\": [] }
  }

`turnwright --help` shows the settings; `turnwright login` stores a key.
";

pub(super) fn run(config: Config) -> ExitCode {
    if stdin().is_terminal() {
        // Somebody who types `turnwright` should not have to wonder what it is waiting for.
        return match stderr().write_all(EXPLANATION.as_bytes()) {
            Ok(()) => ExitCode::from(2),
            Err(_) => ExitCode::FAILURE,
        };
    }
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(stderr(), "turnwright could not start: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(config: Config) -> std::io::Result<()> {
    super::keep_to_ourselves();
    let stdio = turnwright_rpc::claim()?;
    // One thread is enough to wait for many things; what takes time goes to blocking threads.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(acp::serve(config, stdio));
    // A blocking call that hangs, on a dead network disk say, must not keep us.
    runtime.shutdown_timeout(Duration::from_millis(50));
    result
}
