//! `turnwright run`: a turn, or a conversation, in the terminal. The command is an ACP client of the same
//! agent that an editor starts; [`agent_link`] runs it in this process.
//!
//! [`run_client`] sends requests and handles messages, [`screen`] shows them. The model's text goes through
//! [`markdown`] and [`word_wrap`].

mod agent_link;
mod call_lines;
mod conversation;
mod exit_status;
mod markdown;
mod permission_answer;
mod prompt_content;
mod run_client;
mod screen;
mod session_setup;
mod text_style;
mod word_wrap;

use std::io::{IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use self::agent_link::AgentLink;
pub(super) use self::agent_link::{AgentThread, pipe_file};
use self::conversation::LineEditor;
use self::exit_status::TurnEnd;
use self::permission_answer::{AnswerPolicy, AnswerSource};
use self::prompt_content::STDIN;
use self::run_client::RunClient;
use self::screen::Screen;
use self::session_setup::SessionPlan;
use self::text_style::{TerminalTraits, terminal_width};
use super::mcp::parse_mode;
#[cfg(unix)]
use super::prompt::TerminalMode;
use turnwright_config::Config;
use turnwright_policy::permission::Mode;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::io_error_text::io_error_text;
use turnwright_types::text;

pub(super) const AFTER_HELP: &str = "\
Example: turnwright run \"Why does the test of the parser fail?\"
git diff main | turnwright run --no-input --mode plan --file - \"Review this change\"
Exit status: 0 if the model has finished, 1 if the agent failed, 2 if arguments or settings are unusable or \
there is no model, 3 if the model failed, 4 if it refused, 5 at a limit of tokens, 6 at another limit, 130 \
if cancelled.";

#[derive(Debug, Args)]
pub(super) struct RunCliArgs {
    /// Prompt; `-` reads it from stdin. Without one, a conversation starts
    prompt: Option<String>,
    /// Permission mode: plan, ask, auto-edit, auto or full [default: from the settings, or ask]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<Mode>,
    /// Allow once what mode `auto` would not ask about, and nothing else
    #[arg(long)]
    yes: bool,
    /// Ask nobody: a question is a refusal
    #[arg(long)]
    no_input: bool,
    /// Most that a turn may cost, in US dollars
    #[arg(long, value_name = "USD", value_parser = parse_cost)]
    max_cost: Option<f64>,
    /// Longest time for a turn, such as 90s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    max_time: Option<Duration>,
    /// Print the ACP updates as JSON, one a line, and the answer of the prompt last
    #[arg(long)]
    json: bool,
    /// Go on with a session: its id, a prefix of it, or `last`
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// File to attach; `-` is stdin (repeatable)
    #[arg(long, value_name = "PATH")]
    file: Vec<String>,
}

/// The options of a turn.
#[derive(Debug)]
struct RunOptions {
    max_time: Option<Duration>,
    is_json: bool,
}

/// The work that is to be done.
enum RunTask {
    /// A turn with these blocks, and what the user is told about them.
    Turn(Vec<Value>, Option<String>),
    Conversation(Box<LineEditor>),
}

pub(super) fn run(args: &RunCliArgs, mut config: Config) -> ExitCode {
    super::deny_memory_inspection();
    super::return_large_buffers();
    let traits = TerminalTraits::detect(&config);
    let task = match find_task(args, &config, traits) {
        Ok(task) => task,
        Err(why) => return unusable(&why),
    };
    let limits = &mut config.flags.limits;
    limits.extend(args.max_cost.map(|cost| ("turn_cost".to_owned(), cost)));
    limits.extend(args.max_time.map(|time| ("turn_minutes".to_owned(), minutes(time))));
    let plan = match SessionPlan::find(&config, args.session.as_deref(), args.mode) {
        Ok(plan) => plan,
        Err(why) => return unusable(&why.to_string()),
    };
    let may_ask = !args.no_input && traits.is_stderr_terminal;
    let policy = AnswerPolicy {
        allows_bounded: args.yes,
        asks_on: may_ask.then(|| AnswerSource::open(traits.is_stdin_terminal)).flatten(),
        is_silenced: args.no_input,
    };
    let options = RunOptions { max_time: args.max_time, is_json: args.json };
    match serve(config, &plan, (traits, policy), &options, task) {
        Ok(end) => end.code(),
        Err(error) => {
            writeln!(stderr(), "turnwright run: {}", io_error_text(&error)).ok();
            ExitCode::FAILURE
        }
    }
}

fn unusable(why: &str) -> ExitCode {
    writeln!(stderr(), "turnwright run: {why}").ok();
    TurnEnd::Unusable.code()
}

/// Reads the prompt, or prepares a conversation.
fn find_task(
    args: &RunCliArgs,
    config: &Config,
    traits: TerminalTraits,
) -> Result<RunTask, String> {
    let reads_stdin = args.file.iter().filter(|name| *name == STDIN).count()
        + usize::from(args.prompt.as_deref() == Some(STDIN));
    if reads_stdin > 1 {
        return Err("stdin can be read only once".to_owned());
    }
    let text = match args.prompt.as_deref() {
        Some(STDIN) => prompt_content::read_stdin()?,
        Some(text) => text.to_owned(),
        None if !stdin().is_terminal() && reads_stdin == 0 => prompt_content::read_stdin()?,
        None => {
            let is_possible =
                traits.is_stdin_terminal && traits.is_stdout_terminal && traits.is_stderr_terminal;
            if args.json || args.no_input || !args.file.is_empty() || !is_possible {
                return Err("a prompt is missing".to_owned());
            }
            let editor = LineEditor::open(&config.paths.state, traits.is_styled);
            return editor
                .map(|editor| RunTask::Conversation(Box::new(editor)))
                .map_err(|error| error.to_string());
        }
    };
    if text.trim().is_empty() {
        return Err("the prompt is empty".to_owned());
    }
    let mut blocks = prompt_content::prompt_blocks(text.trim_end(), &args.file)?;
    // Stdin may also have been the prompt.
    let is_beside_prompt = args.prompt.is_some() && reads_stdin == 0 && !stdin().is_terminal();
    let note = if is_beside_prompt { prompt_content::attach_piped(&mut blocks)? } else { None };
    Ok(RunTask::Turn(blocks, note))
}

#[expect(clippy::disallowed_methods, reason = "this subcommand speaks no protocol on stdout")]
fn serve(
    config: Config,
    plan: &SessionPlan,
    (traits, policy): (TerminalTraits, AnswerPolicy),
    options: &RunOptions,
    task: RunTask,
) -> std::io::Result<TurnEnd> {
    let outputs =
        (Box::new(std::io::stdout()) as Box<dyn Write>, Box::new(stderr()) as Box<dyn Write>);
    let screen = Screen::new(traits, plan.cwd.clone(), terminal_width, outputs);
    #[cfg(unix)]
    let _restore = TerminalMode::save().ok();
    let runtime = super::runtime()?;
    let (end, link) = runtime.block_on(async {
        let link = AgentLink::start(config)?;
        let mut client = RunClient::new(link, screen, policy, options.is_json)?;
        if let Some(note) = &plan.note {
            client.screen.note(note);
        }
        let end = match client.open_session(plan).await {
            Err(end) => end,
            Ok(()) => match task {
                RunTask::Turn(blocks, note) => {
                    if let Some(note) = &note {
                        client.screen.note(note);
                    }
                    run_turn(&mut client, blocks, options).await
                }
                RunTask::Conversation(editor) => {
                    conversation::converse(&mut client, *editor, options).await
                }
            },
        };
        Ok::<_, std::io::Error>((end, client.link))
    })?;
    // The thread that reads the terminal may still wait for a line.
    runtime.shutdown_background();
    link.end()?;
    Ok(end)
}

async fn run_turn(client: &mut RunClient, blocks: Vec<Value>, options: &RunOptions) -> TurnEnd {
    for name in prompt_content::linked_names(&blocks) {
        let name = escape_hidden_line(name);
        client.screen.note(&format!("Attached by its name only, not with its content: {name}"));
    }
    let (end, answer) = client.prompt(blocks, options.max_time).await;
    if let Some(answer) = &answer {
        client.write_answer(answer);
    }
    if let Some(Err(error)) = &answer {
        client.report_error(error);
    }
    let end = client.screen.output_end().unwrap_or(end);
    if let Some(note) = end.note() {
        client.screen.note(note);
    }
    match client.take_unasked() {
        0 => {}
        1 => client
            .screen
            .note("One question was answered with a refusal, because nobody was asked."),
        count => client.screen.note(&format!(
            "{count} questions were answered with a refusal, because nobody was asked."
        )),
    }
    if client.screen.traits().is_stderr_terminal {
        let usage = client.screen.usage().map(|text| format!(" · {text}")).unwrap_or_default();
        let id = text::cut(client.session(), 8);
        client.screen.note(&format!("Session {id}{usage}"));
    }
    end
}

/// Whole minutes if possible, because the limit is told to the user.
fn minutes(time: Duration) -> f64 {
    (time.as_secs_f64() / 60.0 * 100.0).ceil() / 100.0
}

fn parse_cost(text: &str) -> Result<f64, String> {
    let amount = text.strip_prefix('$').unwrap_or(text).parse().ok();
    let usable = amount.filter(|amount: &f64| amount.is_finite() && *amount > 0.0);
    usable.ok_or_else(|| "expected an amount above 0, such as 0.5".to_owned())
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let expected = "expected a time such as 90s, 10m or 1h";
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 60 * 60,
        _ => return Err(expected.to_owned()),
    };
    let count = digits.parse::<u64>().ok().filter(|count| (1..=100_000).contains(count));
    let time = count.map(|count| Duration::from_secs(count * factor));
    time.ok_or_else(|| expected.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_people_write_them() {
        for (text, expected) in [
            ("90s", Some(90)),
            ("10m", Some(600)),
            ("2min", Some(120)),
            ("1h", Some(3600)),
            ("0s", None),
            ("10", None),
            ("-1s", None),
            ("1d", None),
            ("", None),
            ("s", None),
        ] {
            assert_eq!(parse_time(text).ok(), expected.map(Duration::from_secs), "{text}");
        }
        for (text, expected) in [("0.5", Some(0.5)), ("$2", Some(2.0)), ("0", None), ("x", None)] {
            assert_eq!(parse_cost(text).ok(), expected, "{text}");
        }
        assert!((minutes(Duration::from_secs(90)) - 1.5).abs() < 1e-9);
        assert!((minutes(Duration::from_secs(100)) - 1.67).abs() < 1e-9);
    }
}
