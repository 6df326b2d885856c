//! The command line: what the user types → what the process does. One file a subcommand.

mod acp;
mod config;
mod doctor;
mod doctor_servers;
mod export;
mod history;
#[cfg(unix)]
mod jail;
mod login;
mod mcp;
mod mcp_server;
mod policy;
#[cfg(unix)]
mod probe;
#[cfg(unix)]
mod sandbox;
mod sessions;
mod trust;
mod undo;

use std::io::{self, ErrorKind, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::config::{Config, Flags, Paths, UserFile};
use turnwright_store::StoreError;
use crate::log;
use turnwright_types::redact;

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
                  TURNWRIGHT_MODE (plan, ask, auto-edit, auto, full), \
                  TURNWRIGHT_MAX_TURN_REQUESTS, TURNWRIGHT_CONTEXT_WINDOW, TURNWRIGHT_CONFIG, \
                  TURNWRIGHT_HOME, TURNWRIGHT_LOG; \
                  and the keys of providers, such as DEEPSEEK_API_KEY."
)]
struct Arguments {
    /// The model to use, or PROVIDER/MODEL; `offline` is the built-in one [env: TURNWRIGHT_MODEL]
    #[arg(long, global = true, value_name = "NAME")]
    model: Option<String>,
    /// Where the OpenAI-compatible API answers [env: OPENAI_BASE_URL]
    #[arg(long, global = true, value_name = "URL")]
    base_url: Option<String>,
    /// The file with the settings [env: TURNWRIGHT_CONFIG]
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
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
    /// Try to break out of the sandbox, ask the model a few small things, say what held and whether
    /// the agent can work with the model, and remember what it can do
    #[command(after_help = "Example: turnwright doctor --model ollama/qwen3-coder\n\
                            Exit status: 0 if the agent can work with the model, 1 if not or if \
                            the sandbox does not hold, 2 if the settings cannot be used.")]
    Doctor(doctor::Options),
    /// Run a command the way the agent runs its own: kept to this folder and a temporary one, without
    /// network, your keys and input, and ended as a whole with all that it has started
    #[cfg(unix)]
    #[command(after_help = "Example: turnwright sandbox -- make test\n\
                            turnwright sandbox --network --write ~/.cargo/registry -- cargo fetch\n\
                            Exit status: that of the command, 128 and the number of the signal \
                            that has ended it, or 125 if nothing was run.")]
    Sandbox(sandbox::Options),
    /// Show what a project's own settings ask for, and put it in force if you say so
    #[command(after_help = "Example: turnwright trust .\n\
                            Exit status: 0 if nothing waits for your trust any more, 1 if it does.")]
    Trust(trust::Options),
    #[cfg(unix)]
    #[command(hide = true)]
    SandboxProbe {
        #[command(subcommand)]
        what: probe::Probe,
    },
    /// See what is allowed in a project, and change it
    #[command(after_help = "Example: turnwright policy check \"npm install\"")]
    Policy(policy::Options),
    /// See what sessions there are, read one, make a document of it, or have it forgotten
    #[command(after_help = "Example: turnwright sessions show last")]
    Sessions(sessions::Options),
    /// See what the tools have done, in all sessions
    #[command(after_help = "Example: turnwright history migration --status error --since 2d\n\
                            turnwright history --session last --json")]
    History(history::Options),
    /// Put files back as they were before the last turn of a session that is not open
    #[command(after_help = "Example: turnwright undo --turns 2 --dry-run\n\
                            Exit status: 0 if all is as it was, 1 if something was left alone or \
                            could not be restored, 2 if there was nothing to do.")]
    Undo(undo::Undo),
    /// Do again what the last undo took back
    #[command(after_help = "Example: turnwright redo\n\
                            Exit status: as that of `turnwright undo`.")]
    Redo(undo::Redo),
    /// Show what the turns of a session have made of files
    #[command(after_help = "Example: turnwright diff --all\n\
                            Exit status: 0 if something is shown, 2 if there is nothing.")]
    Diff(undo::Diff),
    /// Log in at MCP servers, and out again
    Mcp {
        #[command(subcommand)]
        action: mcp::Action,
    },
    /// Offer the built-in tools to any client of the Model Context Protocol (MCP), over stdin and stdout
    #[command(after_help = "What to put into a client's settings, such as .mcp.json:\n\n  \
                            { \"mcpServers\": { \"turnwright\": { \"command\": \"turnwright\",\n      \
                            \"args\": [\"mcp-server\", \"--root\", \"/path/to/project\"] } } }\n\n\
                            Rules, protected files and the sandbox are those of the settings. What \
                            has to be asked about is asked through the client if it can \
                            (elicitation), and is refused otherwise. There is no undo.\n\
                            Example: turnwright mcp-server --root . --mode auto-edit")]
    McpServer(mcp_server::Options),
    /// Look at the settings
    Config {
        #[command(subcommand)]
        action: config::Action,
    },
}

/// Does what the command line says. To be called first thing in `main`, while the process has
/// one thread.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(unix)]
    if let Some(Command::SandboxProbe { what }) = &arguments.command {
        return probe::run(what);
    }
    let paths = Paths::find();
    let file = UserFile::find(arguments.config.clone(), &paths);
    let variables = crate::config::take(&file.key_variables());
    let wanted = match arguments.verbose {
        0 => variables.log.clone(),
        1 => Some("turnwright=debug".to_owned()),
        _ => Some("trace".to_owned()),
    };
    log::start(wanted.as_deref(), paths.state.clone());
    let flags = Flags { model: arguments.model, base_url: arguments.base_url };
    let config = |flags, paths| {
        let config = Config::new(variables, flags, file, paths);
        redact::learn(config.secrets());
        config
    };
    let status = match arguments.command {
        None | Some(Command::Acp) => acp::run(config(flags, paths)),
        Some(Command::Login) => login::login(&flags, &paths),
        Some(Command::Logout) => login::logout(&paths),
        Some(Command::Doctor(options)) => doctor::run(&options, config(flags, paths)),
        #[cfg(unix)]
        Some(Command::Sandbox(options)) => sandbox::run(&options, &config(flags, paths)),
        Some(Command::Trust(options)) => trust::run(&options, &config(flags, paths)),
        #[cfg(unix)]
        Some(Command::SandboxProbe { what }) => probe::run(&what),
        Some(Command::Policy(options)) => policy::run(options, &config(flags, paths)),
        Some(Command::Sessions(options)) => sessions::run(options, &config(flags, paths)),
        Some(Command::History(options)) => history::run(options, &config(flags, paths)),
        Some(Command::Undo(options)) => undo::undo(options, &config(flags, paths)),
        Some(Command::Redo(options)) => undo::redo(options, &config(flags, paths)),
        Some(Command::Diff(options)) => undo::diff(options, &config(flags, paths)),
        Some(Command::Mcp { action }) => mcp::run(action, &config(flags, paths)),
        Some(Command::McpServer(options)) => mcp_server::run(options, config(flags, paths)),
        Some(Command::Config { action }) => config::run(&action, &config(flags, paths)),
    };
    log::flush(LOG_LIMIT);
    status
}

/// Prints what was asked for. Whoever reads it may have had enough: that is no error.
#[expect(clippy::disallowed_methods, reason = "no protocol is spoken here")]
fn say(text: &str) -> io::Result<()> {
    stdout().write_all(text.as_bytes())
}

/// How a command that only prints has ended.
fn ended(command: &str, done: Result<(), Trouble>) -> ExitCode {
    match done {
        Err(Trouble::Io(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(why) => {
            drop(writeln!(stderr(), "turnwright {command}: {why}"));
            ExitCode::FAILURE
        }
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Why a command could not do what was asked for.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Other(String),
}

/// Whether both are the same folder, by whatever name.
fn is_same_folder(one: &Path, other: &Path) -> bool {
    let real = |it: &Path| std::fs::canonicalize(it).unwrap_or_else(|_| it.to_path_buf());
    one == other || real(one) == real(other)
}

/// Keeps other processes of the same user from reading the keys out of our memory.
fn keep_to_ourselves() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::DumpableBehavior;
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    }
}
