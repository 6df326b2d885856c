//! The command line: parses the arguments and runs the subcommand. A file or folder for each subcommand, or for a few
//! that tell one story.

mod config;
mod doctor;
mod document;
mod eval;
mod hooks;
mod mcp;
mod replay;
mod rules;
mod run;
#[cfg(unix)]
mod sandbox;
mod serve;
#[cfg(unix)]
mod signing_client;
mod stored;

use std::ffi::OsString;
use std::io::{self, Write, stderr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use url::Url;

use crate::log;
use turnwright_config::{Config, Flags, Paths, UserFile, parse_limit};
use turnwright_policy::permission::Mode;
use turnwright_rpc::Stdio;
use turnwright_terminal::{CliError, CliResult, exit_code, prompt, report, write_stdout};
use turnwright_types::error_text::io_error_text;
use turnwright_types::redact;
use turnwright_undo::UndoRequest;

/// How long exiting waits for unwritten log lines, in case nobody reads stderr.
const LOG_FLUSH_TIMEOUT: Duration = Duration::from_millis(100);
/// The status of a Rust program that panics.
const CRASHED: u8 = 101;

/// The licences of this program and of everything that it contains; `turnwright-packages` makes the file.
const LICENSES: &str = include_str!("licenses.txt");

/// The heading of the options that each command has.
const GENERAL: &str = "Options of all commands";

/// A coding agent for editors: speaks the Agent Client Protocol (ACP) over stdin and stdout
#[derive(Debug, Default, Parser)]
#[command(
    name = "turnwright",
    version,
    after_help = "Example: add `turnwright` to your editor's ACP agents, with OPENAI_API_KEY \
                  in its environment.\n\
                  Environment: OPENAI_API_KEY, OPENAI_BASE_URL, TURNWRIGHT_MODEL, \
                  TURNWRIGHT_MODE (plan, ask, auto-edit, auto, full), \
                  TURNWRIGHT_MAX_TURN_REQUESTS, TURNWRIGHT_ALONE, TURNWRIGHT_FIND_CHECKS, \
                  TURNWRIGHT_SURROUNDINGS, TURNWRIGHT_CONTEXT_WINDOW, TURNWRIGHT_CONFIG, \
                  TURNWRIGHT_HOME, TURNWRIGHT_LOG, TURNWRIGHT_RECORD; \
                  and providers' keys, such as DEEPSEEK_API_KEY."
)]
struct CliArgs {
    /// Model, or PROVIDER/MODEL; `offline` is the built-in one [env: TURNWRIGHT_MODEL]
    #[arg(long, global = true, help_heading = GENERAL, value_name = "NAME")]
    model: Option<String>,
    /// Base URL of the OpenAI-compatible API [env: OPENAI_BASE_URL, OPENAI_API_BASE]
    #[arg(long, global = true, help_heading = GENERAL, value_name = "URL")]
    base_url: Option<String>,
    /// Limit of a turn or session, such as session_cost=2.5; repeatable
    #[arg(long, global = true, help_heading = GENERAL, value_name = "NAME=NUMBER", value_parser = parse_limit)]
    budget: Vec<(String, f64)>,
    /// Settings file [env: TURNWRIGHT_CONFIG]
    #[arg(long, global = true, help_heading = GENERAL, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Log debug messages to stderr; -vv for trace [env: TURNWRIGHT_LOG]
    #[arg(short, long, global = true, help_heading = GENERAL, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Option<CliCommand>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Speak ACP on stdin and stdout (the default)
    #[command(after_help = "Example: turnwright acp --model gpt-5.4-mini")]
    Acp,
    /// Serve ACP on a socket, for editors elsewhere
    ///
    /// WebSockets and the HTTP transport of ACP are accepted. All connections share one process. A
    /// session whose connection is lost goes on for a while; the editor takes it up by loading it.
    #[command(after_help = serve::SERVE_AFTER_HELP)]
    Serve(serve::ServeCliArgs),
    /// Connect stdin and stdout with an agent that `turnwright serve` runs
    #[command(after_help = serve::CONNECT_AFTER_HELP)]
    Connect {
        /// Address of the agent, as `turnwright serve` prints it
        #[arg(value_parser = serve::parse_url)]
        url: Url,
        /// File whose first line is the token
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    /// Run a prompt in the terminal, or have a conversation
    #[command(after_help = run::AFTER_HELP)]
    Run(run::RunCliArgs),
    /// Choose a provider and a model, and store the key
    ///
    /// Asks on a terminal. From a pipe, the first line is the key of --provider; without --provider,
    /// the lines are base URL, key and model, as far as flags do not give them.
    #[command(after_help = "Example: turnwright login --provider deepseek\n\
                            turnwright login --base-url https://example.com/v1 --model llama-4\n\
                            turnwright login search\n\
                            Exit status: 0 only if the login was stored.")]
    Login {
        /// Store the key of the service that searches the web, which the settings name
        #[arg(value_parser = ["search"], ignore_case = true, conflicts_with = "provider")]
        what: Option<String>,
        /// Provider to log in to, such as `deepseek`; without it, a list is shown
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
    },
    /// Remove stored API keys
    #[command(after_help = "Example: turnwright logout --provider deepseek")]
    Logout {
        /// Provider to log out of, or the base URL of a server
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
        /// Remove all stored logins
        #[arg(long, conflicts_with = "provider")]
        all: bool,
    },
    /// Check the sandbox and the model
    ///
    /// Tries to break out of the sandbox, sends the model a few short prompts, starts the configured
    /// MCP servers, and remembers what the model can do.
    #[command(after_help = "Examples: turnwright doctor --model ollama/qwen3-coder\n\
                            turnwright doctor --report report.md\n\
                            turnwright doctor --acp -- other-agent --flag\n\
                            Exit status: 0 if the model works, 1 if it doesn't or a command can \
                            escape the sandbox, 2 if the settings are unusable; with --acp, 0 if \
                            there is no fault.")]
    Doctor(doctor::DoctorCliArgs),
    /// Run a command sandboxed: no network, keys or stdin
    ///
    /// The command can write only to this folder and a temporary one, and every process that it
    /// starts ends with it. The agent runs its own commands the same way.
    #[cfg(unix)]
    #[command(after_help = "Example: turnwright sandbox -- make test\n\
                            turnwright sandbox --network --write ~/.cargo/registry -- cargo fetch\n\
                            Exit status: the command's; 128 + N if signal N killed it; 127 if there \
                            is no such program, 126 if it cannot run, 125 if there is no sandbox.")]
    Sandbox(sandbox::SandboxCliArgs),
    /// Run the command that the agent sends; never typed.
    #[cfg(unix)]
    #[command(skip)]
    Launcher,
    /// Review and trust a project's own settings
    #[command(after_help = "Example: turnwright trust .\n\
                            Exit status: 0 if nothing is left to trust, 1 otherwise.")]
    Trust(rules::TrustCliArgs),
    #[cfg(unix)]
    #[command(hide = true)]
    SandboxProbe {
        #[command(subcommand)]
        probe: sandbox::SandboxProbe,
    },
    /// Write the text of the document on stdin as JSON; the agent starts it.
    #[command(hide = true)]
    DocumentText {
        #[arg(long)]
        pages: Option<String>,
    },
    /// Run a recorded session again, and say what has changed
    ///
    /// No model, file or command is touched: all of them are in the recording.
    #[command(after_help = replay::AFTER_HELP)]
    Replay {
        /// The recording, which TURNWRIGHT_RECORD or /record has made
        file: PathBuf,
    },
    /// List, check and change a project's permission rules
    #[command(after_help = "Example: turnwright policy check \"npm install\"")]
    Policy {
        /// Project folder (default: the current folder)
        #[arg(long, global = true, value_name = "FOLDER")]
        dir: Option<PathBuf>,
        #[command(subcommand)]
        action: rules::PolicyCommand,
    },
    /// List, show, export or delete sessions
    #[command(after_help = "Example: turnwright sessions show last")]
    Sessions {
        #[command(subcommand)]
        action: stored::SessionsCommand,
    },
    /// Search the tool calls of all sessions
    #[command(after_help = "Example: turnwright history migration --status error --since 2d\n\
                            turnwright history --session last --json")]
    History(stored::HistoryCliArgs),
    /// Undo the file changes of a closed session
    #[command(after_help = "Example: turnwright undo --turns 2 --dry-run\n\
                            Exit status: 0 if every file was restored, 1 if some were skipped or \
                            failed, 2 if there was nothing to do.")]
    Undo {
        /// Session id (default: the newest session of this folder)
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Number of turns to undo; turns without file changes don't count
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = stored::at_least_one)]
        turns: usize,
        /// Show what would be done without doing it
        #[arg(long)]
        dry_run: bool,
    },
    /// Redo the last undo
    #[command(after_help = "Example: turnwright redo\n\
                            Exit status: as for `turnwright undo`.")]
    Redo {
        /// Session id (default: the newest session of this folder)
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Show what would be done without doing it
        #[arg(long)]
        dry_run: bool,
    },
    /// Show the file changes of a session
    #[command(after_help = "Example: turnwright diff --all\n\
                            Exit status: 0 if there are changes, 2 if not.")]
    Diff(stored::DiffCliArgs),
    /// Measure the agent on tasks of your own
    #[command(
        after_help = "Example: turnwright eval new fix-parser --session last --check \"make test\"\n\
                            turnwright eval run --models gpt-5.4-mini --runs 5"
    )]
    Eval {
        #[command(subcommand)]
        action: eval::EvalCommand,
    },
    /// Count the work of stored sessions by week and model
    #[command(after_help = "Example: turnwright stats --weeks 12")]
    Stats(stored::StatsCliArgs),
    /// List hooks, or try those of an event
    #[command(
        after_help = "Example: turnwright hooks test PreToolUse --tool Bash --input '{\"command\": \"ls\"}'"
    )]
    Hooks {
        #[command(subcommand)]
        action: hooks::HooksCommand,
    },
    /// Log in to or out of MCP servers
    Mcp {
        #[command(subcommand)]
        action: mcp::McpCommand,
    },
    /// Offer the built-in tools to MCP clients over stdin and stdout
    #[command(after_help = "Client settings, for example in .mcp.json:\n\n  \
                            { \"mcpServers\": { \"turnwright\": { \"command\": \"turnwright\",\n      \
                            \"args\": [\"mcp-server\", \"--root\", \"/path/to/project\"] } } }\n\n\
                            Permission rules, protected files and the sandbox apply as in a \
                            session. Questions go to the client (elicitation); a client without it \
                            gets a refusal. There is no undo.\n\
                            Example: turnwright mcp-server --root . --mode auto-edit")]
    McpServer {
        /// Folder the tools may work in (repeatable; paths are relative to the first)
        /// [default: the client's roots, or the current folder]
        #[arg(long, value_name = "DIR")]
        root: Vec<PathBuf>,
        /// Permission mode: plan, ask, auto-edit, auto or full [default: from the settings, or ask]
        #[arg(long, value_name = "MODE", value_parser = mcp::parse_mode)]
        mode: Option<Mode>,
    },
    /// Show, check and change the settings
    Config {
        #[command(subcommand)]
        action: config::ConfigCommand,
    },
    /// Print the licences of everything in this program
    #[command(after_help = "Example: turnwright licenses | less")]
    Licenses,
}

impl CliArgs {
    /// Parses the arguments, or ends the process with what is wrong with them. In a terminal of the
    /// editor they only name it, whatever they are.
    fn read() -> CliArgs {
        #[cfg(unix)]
        if sandbox::is_launcher() {
            let command = Some(CliCommand::Launcher);
            return CliArgs { command, ..CliArgs::default() };
        }
        // Editors start it like this, and the parser would first describe all commands to itself.
        let words = own_words(std::env::args_os().skip(1));
        if words.is_empty() || words == ["acp"] {
            return CliArgs::default();
        }
        let is_run = words[0] == "run";
        let given = words.into_iter().map(|word| if is_run { as_prompt(word) } else { word });
        let all = std::env::args_os().take(1).chain(given);
        CliArgs::try_parse_from(all).unwrap_or_else(|error| explained(error).exit())
    }
}

/// Leaves out the first words if some clients start any agent with them. This one speaks ACP in any case.
fn own_words(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let known = ["--acp", "--experimental-acp", "--stdio"];
    given.skip_while(|word| known.iter().any(|other| word == other)).collect()
}

/// Puts a space before a prompt that begins with dashes and white space, as a list or a diff does. The parser would take
/// it for an option.
fn as_prompt(word: OsString) -> OsString {
    let text = word.to_string_lossy().into_owned();
    let rest = text.trim_start_matches('-');
    let is_prompt = rest.len() < text.len() && rest.starts_with(char::is_whitespace);
    if is_prompt { format!(" {text}").into() } else { word }
}

/// Runs the command line. `main` must call this first, while the process has a single thread:
/// it removes keys from the environment.
pub fn run() -> ExitCode {
    #[cfg(unix)]
    if let Some(exit_code) = signing_client::run() {
        return exit_code;
    }
    let arguments = CliArgs::read();
    #[cfg(unix)]
    if let Some(CliCommand::SandboxProbe { probe }) = &arguments.command {
        return sandbox::run_probe(probe);
    }
    if let Some(CliCommand::DocumentText { pages }) = &arguments.command {
        return document::run(pages.as_deref());
    }
    #[cfg(unix)]
    {
        turnwright_workspace::exec::ignore_file_size_signal();
        turnwright_workspace::exec::raise_file_limit();
        // The agent listens for signals, and its connection makes its streams wait.
        if !matches!(arguments.command, None | Some(CliCommand::Acp)) {
            turnwright_rpc::end_first_process_by_signals();
            turnwright_rpc::make_stdio_blocking();
        }
    }
    let paths = Paths::find();
    let user_file = UserFile::find(arguments.config.clone(), &paths);
    let variables = turnwright_config::take_environment(&user_file.key_variables());
    let log_filter = match arguments.verbose {
        0 => variables.log().map(str::to_owned),
        1 => Some("turnwright=debug".to_owned()),
        _ => Some("trace".to_owned()),
    };
    log::init(log_filter.as_deref(), paths.state.clone());
    let flags = Flags {
        model: arguments.model,
        base_url: arguments.base_url,
        limits: arguments.budget,
        ..Flags::default()
    };
    let state = paths.state.clone();
    let config = Config::new(variables, flags, user_file, paths);
    let secrets = config.snapshot().secrets();
    let exit_code = match redact::register_keys(secrets) {
        Ok(()) => {
            let command = arguments.command.unwrap_or(CliCommand::Acp);
            report_crash(|| run_command(command, config), &state)
        }
        Err(error) => {
            writeln!(stderr(), "turnwright: the settings cannot be used: {error}").ok();
            ExitCode::FAILURE
        }
    };
    log::flush(LOG_FLUSH_TIMEOUT);
    exit_code
}

/// Runs the program, and tells the user if it crashes: the panic itself is only in the log.
fn report_crash(program: impl FnOnce() -> ExitCode, state: &Path) -> ExitCode {
    catch_unwind(AssertUnwindSafe(program)).unwrap_or_else(|_| {
        let log = state.join("turnwright.log");
        let message = "a fault of this program has ended it. Please report it, with the end of";
        writeln!(stderr(), "turnwright: {message} {}", log.display()).ok();
        ExitCode::from(CRASHED)
    })
}

/// The definition of the command line, for completions and manual pages.
pub fn command_line() -> clap::Command {
    CliArgs::command()
}

/// Options of other agents, and advice to those who type them here.
const OPTIONS_ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["-p", "--print", "--prompt", "--message"],
        "a prompt needs no option: `turnwright run \"PROMPT\"`",
    ),
    (
        &["-c", "--continue", "-r", "--resume"],
        "`turnwright run --session last \"PROMPT\"` continues a session",
    ),
    (&["-m"], "`--model NAME` chooses the model"),
    (&["-o", "--output-format", "--format"], "`turnwright run --json` prints JSON"),
    (
        &["-y", "--yolo", "--full-auto", "--permission-mode", "--dangerously-skip-permissions"],
        "`--yes` and `--mode MODE` say what may be done without a question",
    ),
    (&["-C", "--cd", "--cwd", "--dir"], "the current folder is the project: change to it first"),
];

/// Returns advice about an argument that is not known behind the first argument.
fn argument_advice(first: &str, argument: &str) -> Option<&'static str> {
    if !argument.starts_with('-') {
        let takes_text = ["run", "policy"].contains(&first);
        return takes_text.then_some("put words that belong together into quotes");
    }
    let is_run = first == "run" || first.starts_with('-');
    let known = OPTIONS_ELSEWHERE.iter().find(|(names, _)| names.contains(&argument));
    known.filter(|_| is_run).map(|(_, advice)| *advice)
}

/// Says what this program is to somebody who has typed a command that it does not have. Clap suggests
/// any word that is a little similar; only one that begins alike is likely to be what was meant.
fn explained(mut error: clap::Error) -> clap::Error {
    let first = std::env::args_os().nth(1).unwrap_or_default();
    if let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && let Some(advice) = argument_advice(&first.to_string_lossy(), argument)
    {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand).cloned()
    else {
        return error;
    };
    let mut suggested = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(all)) => all,
        Some(ContextValue::String(one)) => vec![one],
        _ => Vec::new(),
    };
    suggested.retain(|suggestion| suggestion.chars().next() == word.chars().next());
    if !suggested.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(suggested));
    } else if first == *word {
        let purpose = "turnwright is an agent for editors that speak ACP. They start it without a \
                       command. In a terminal, `turnwright run \"PROMPT\"` runs a prompt, and \
                       `turnwright doctor` checks that the agent works";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![purpose.into()]));
    }
    error
}

fn run_command(command: CliCommand, config: Config) -> ExitCode {
    match command {
        CliCommand::Acp => serve::serve_stdio(config),
        CliCommand::Serve(args) => report("serve", serve::serve(args, config)),
        CliCommand::Connect { url, token_file } => {
            report("connect", serve::connect(&url, token_file.as_deref(), &config))
        }
        CliCommand::Run(args) => run::run(args, config),
        CliCommand::Login { what: Some(_), .. } => {
            deny_memory_inspection();
            turnwright_terminal::login_search(&config)
        }
        CliCommand::Login { provider, .. } => {
            deny_memory_inspection();
            turnwright_terminal::login(provider.as_deref(), config)
        }
        CliCommand::Logout { provider, all } => {
            turnwright_terminal::logout(provider.as_deref(), all, &config)
        }
        CliCommand::Doctor(args) => doctor::run(&args, config),
        #[cfg(unix)]
        CliCommand::Sandbox(args) => sandbox::run(args, &config),
        #[cfg(unix)]
        CliCommand::Launcher => sandbox::run_for_agent(&config),
        CliCommand::Trust(args) => rules::run_trust(&args, &config),
        #[cfg(unix)]
        CliCommand::SandboxProbe { probe } => sandbox::run_probe(&probe),
        CliCommand::DocumentText { pages } => document::run(pages.as_deref()),
        CliCommand::Replay { file } => replay::run(&file, config),
        CliCommand::Policy { dir, action } => rules::run_policy(dir, action, &config),
        CliCommand::Sessions { action } => stored::run_sessions(action, &config),
        CliCommand::History(args) => stored::run_history(args, &config),
        CliCommand::Undo { session, turns, dry_run } => {
            stored::undo(UndoRequest::Undo(turns), session, dry_run, &config)
        }
        CliCommand::Redo { session, dry_run } => {
            stored::undo(UndoRequest::Redo, session, dry_run, &config)
        }
        CliCommand::Diff(args) => stored::diff(args, &config),
        CliCommand::Eval { action } => eval::run(action, &config),
        CliCommand::Stats(args) => report("stats", stored::stats(&args, &config)),
        CliCommand::Hooks { action } => hooks::run(action, &config),
        CliCommand::Mcp { action } => mcp::run(action, &config),
        CliCommand::McpServer { root, mode } => mcp::serve(root, mode, config),
        CliCommand::Config { action } => config::run(&action, &config),
        CliCommand::Licenses => report("licenses", write_stdout(LICENSES).map_err(CliError::from)),
    }
}

pub use replay::replay;

/// Runs a subcommand that another program starts and talks to. On a terminal nothing is run: a user should not
/// wonder what it is waiting for.
fn run_for_program(
    name: &str,
    explanation: &str,
    serve: impl FnOnce(Stdio) -> io::Result<()>,
) -> ExitCode {
    if prompt::is_terminal() {
        return match prompt::say(explanation) {
            Ok(()) => ExitCode::from(2),
            Err(_) => ExitCode::FAILURE,
        };
    }
    deny_memory_inspection();
    return_large_buffers();
    match turnwright_rpc::claim_stdio().and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(stderr(), "{name} could not start: {}", io_error_text(&error)).ok();
            ExitCode::FAILURE
        }
    }
}

/// Keeps other processes of the same user from reading keys out of this process's memory.
fn deny_memory_inspection() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::DumpableBehavior;
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    }
}

/// Gives freed buffers of 256 KiB and more back to the system at once. By default the C library of GNU
/// keeps such memory for itself after the first one was freed, up to 32 MiB a buffer.
fn return_large_buffers() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "sets a number in the allocator before any thread is started")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 * 1024);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_ends_with_the_status_that_it_had() {
        let ended = report_crash(|| panic!("a fault"), Path::new("state"));
        assert_eq!(format!("{ended:?}"), format!("{:?}", ExitCode::from(CRASHED)));
        let ended = report_crash(|| ExitCode::from(3), Path::new("state"));
        assert_eq!(format!("{ended:?}"), format!("{:?}", ExitCode::from(3)));
    }

    #[test]
    fn words_to_choose_from_are_accepted_in_any_case() {
        for line in [
            "run --mode PLAN x",
            "mcp-server --mode Auto-Edit",
            "policy check --mode Plan ls",
            "history --status ERROR",
            "login Search",
            "config editor Zed",
        ] {
            let parsed = CliArgs::try_parse_from(["turnwright"].into_iter().chain(line.split(' ')));
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
        assert!(CliArgs::try_parse_from(["turnwright", "run", "--mode", "plain", "x"]).is_err());
    }

    #[test]
    fn clients_may_start_it_as_they_start_other_agents() {
        for (line, expected) in [
            ("--experimental-acp", ""),
            ("--acp --stdio", ""),
            ("--acp acp --model x", "acp --model x"),
            ("--stdio --model x", "--model x"),
            ("doctor --acp", "doctor --acp"),
            ("run --acp", "run --acp"),
        ] {
            let words = own_words(line.split(' ').map(OsString::from));
            assert_eq!(words.join(std::ffi::OsStr::new(" ")), expected, "{line}");
        }
    }

    #[test]
    fn a_prompt_may_begin_as_an_option_does() {
        for (word, is_prompt) in [
            ("- fix this", true),
            ("--- a/x\n+++ b/x", true),
            ("---\ntitle: x", true),
            ("--json --yes", false),
            ("--", false),
            ("-", false),
            ("fix - this", false),
        ] {
            let given = as_prompt(word.into());
            assert_eq!(given != word, is_prompt, "{word}");
            if is_prompt {
                let parsed = CliArgs::try_parse_from(["turnwright".into(), "run".into(), given]);
                assert!(parsed.is_ok(), "{word}: {parsed:?}");
            }
        }
    }

    #[test]
    fn without_arguments_the_parser_is_not_needed() {
        let parsed = CliArgs::try_parse_from(["turnwright"]).unwrap();
        assert_eq!(format!("{parsed:?}"), format!("{:?}", CliArgs::default()));
        let parsed = CliArgs::try_parse_from(["turnwright", "acp"]).unwrap();
        let default = CliArgs { command: Some(CliCommand::Acp), ..CliArgs::default() };
        assert_eq!(format!("{parsed:?}"), format!("{default:?}"));
    }
}
