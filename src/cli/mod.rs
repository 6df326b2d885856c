//! The command line: what the user types → what the process does. One file a subcommand.

mod acp;
mod login;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::config::{self, Config, Flags, Paths};
use crate::log;

/// How long the end may be put off by a log that nobody reads.
const LOG_LIMIT: Duration = Duration::from_millis(100);

/// An agent that editors drive over stdin and stdout with the Agent Client Protocol.
#[derive(Debug, Parser)]
#[command(
    name = "turnwright",
    version,
    after_help = "Example: put `turnwright` into your editor's list of ACP agents, with \
                  OPENAI_API_KEY in its environment.\n\
                  Environment: OPENAI_API_KEY, OPENAI_BASE_URL, TURNWRIGHT_MODEL, \
                  TURNWRIGHT_MODE (ask, plan), TURNWRIGHT_MAX_TURN_REQUESTS, \
                  TURNWRIGHT_CONTEXT_WINDOW, TURNWRIGHT_HOME, TURNWRIGHT_LOG."
)]
struct Arguments {
    /// The model to use; `offline` is the built-in one [env: TURNWRIGHT_MODEL]
    #[arg(long, global = true, value_name = "NAME")]
    model: Option<String>,
    /// Where the OpenAI-compatible API answers [env: OPENAI_BASE_URL]
    #[arg(long, global = true, value_name = "URL")]
    base_url: Option<String>,
    /// Log to stderr; twice for more [env: TURNWRIGHT_LOG]
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Speak ACP on stdin and stdout (the default)
    #[command(after_help = "Example: turnwright acp --model gpt-5-mini")]
    Acp,
    /// Store a key for OpenAI or a compatible provider
    #[command(after_help = "Example: turnwright login --base-url https://api.deepseek.com/v1 \
                            --model deepseek-chat")]
    Login,
    /// Remove the stored key
    #[command(after_help = "Example: turnwright logout")]
    Logout,
}

/// Does what the command line says. To be called first thing in `main`, while the process has
/// one thread.
pub fn run() -> ExitCode {
    let variables = config::take();
    let arguments = Arguments::parse();
    let paths = Paths::find();
    let wanted = match arguments.verbose {
        0 => variables.log.clone(),
        1 => Some("turnwright=debug".to_owned()),
        _ => Some("trace".to_owned()),
    };
    log::start(wanted.as_deref(), paths.state.clone());
    let flags = Flags { model: arguments.model, base_url: arguments.base_url };
    let status = match arguments.command {
        None | Some(Command::Acp) => acp::run(Config::new(variables, flags, paths)),
        Some(Command::Login) => login::login(&flags, &paths),
        Some(Command::Logout) => login::logout(&paths),
    };
    log::flush(LOG_LIMIT);
    status
}
