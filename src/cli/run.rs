//! `turnwright run`: the flags, and the session that they name. `turnwright-terminal` does the rest as a client of the
//! agent, which is started here.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::json;

use super::mcp::parse_mode;
use super::{CliError, CliResult};
use crate::acp;
use turnwright_config::Config;
use turnwright_policy::permission::Mode;
use turnwright_store::{Store, read};
use turnwright_terminal::sessions::{current_folder, find_session, real_path_or_same, works_in};
use turnwright_terminal::{RunOptions, SessionPlan, TerminalRun, UNUSABLE};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::timestamp::parse_time_span;

pub(super) const AFTER_HELP: &str = "\
Example: turnwright run \"Why does the test of the parser fail?\"
git diff main | turnwright run --no-input --mode plan --file - \"Review this change\"
Exit status: 0 if the model has finished, 1 if the agent failed, 2 if arguments or settings are unusable or \
there is no model, 3 if the model failed, 4 if it refused, 5 at a limit of tokens, 6 at another limit, 130 \
if cancelled.";

/// The code of JSON-RPC for arguments that cannot be used.
const INVALID_PARAMS: i32 = -32602;

/// ACP is JSON, which has no such paths.
const NOT_UTF_8: &str =
    "the path of this folder is not UTF-8; give its folders other names, or work in another folder";

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
    /// Work until this is proven, as `/goal` does
    #[arg(
        long,
        value_name = "WHAT",
        conflicts_with = "prompt",
        value_parser = NonEmptyStringValueParser::new()
    )]
    goal: Option<String>,
    /// Command that proves the goal
    #[arg(long, value_name = "CMD", requires = "goal")]
    goal_check: Option<String>,
}

pub(super) fn run(args: RunCliArgs, config: Config) -> ExitCode {
    super::deny_memory_inspection();
    super::return_large_buffers();
    let is_json = args.json;
    let started = start(args, config);
    if let Err(error) = &started
        && is_json
    {
        super::write_stdout(&unstarted(error)).ok();
    }
    super::exit_code("run", started, UNUSABLE)
}

/// The response to a prompt for which nothing was started.
fn unstarted(error: &CliError) -> String {
    let message = escape_hidden_line(&error.to_string());
    let body = json!({ "code": INVALID_PARAMS, "message": message });
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": "prompt", "error": body }))
}

fn start(args: RunCliArgs, mut config: Config) -> CliResult<ExitCode> {
    let check = args.goal_check.map(|command| format!(" --check {command}")).unwrap_or_default();
    let goal = args.goal.map(|goal| format!("/goal {goal}{check}"));
    let options = RunOptions {
        prompt: args.prompt.or(goal),
        files: args.file,
        allows_bounded: args.yes,
        asks_nobody: args.no_input,
        max_time: args.max_time,
        is_json: args.json,
    };
    let run = TerminalRun::prepare(options, &config)?;
    config.flags.alone = run.asks_nobody();
    config.flags.one_turn = run.has_one_turn();
    let limits = &mut config.flags.limits;
    limits.extend(args.max_cost.map(|cost| ("turn_cost".to_owned(), cost)));
    limits.extend(args.max_time.map(|time| ("turn_minutes".to_owned(), minutes(time))));
    let plan = session_plan(&config, args.session.as_deref(), args.mode)?;
    Ok(run.start(&plan, move |stdio, stop| {
        acp::serve_blocking(config, stdio, stop.cancelled_owned())
    }))
}

/// Finds the session that the flag names.
///
/// # Errors
/// If there is none.
fn session_plan(config: &Config, name: Option<&str>, mode: Option<Mode>) -> CliResult<SessionPlan> {
    let here = current_folder()?;
    if here.to_str().is_none() {
        return Err(NOT_UTF_8.into());
    }
    let new = SessionPlan { cwd: here.clone(), mode, ..SessionPlan::default() };
    let Some(name) = name else { return Ok(new) };
    let store = Store::new(&config.paths.state);
    let id = find_session(&store, name)?;
    let row = store.read_blocking(|connection| read::session(connection, &id))?;
    let is_here = real_path_or_same(&row.cwd) == real_path_or_same(&here);
    // The link by which it was opened here may lead elsewhere by now.
    let is_gone = !is_here && (works_in(&row, &here) || !row.cwd.exists());
    let place = escape_hidden_line(&row.cwd.to_string_lossy());
    let note = match (is_here, is_gone) {
        (true, _) => None,
        (false, true) => Some(format!("{place} is gone or elsewhere. The session goes on here.")),
        (false, false) => Some(format!("The session works in {place}.")),
    };
    Ok(SessionPlan {
        id: Some(id.to_string()),
        note,
        cwd: if is_gone { here } else { row.cwd },
        folders: row.additional_folders,
        model: config.flags.model.clone(),
        ..new
    })
}

/// Whole minutes if possible, because the limit is told to the user.
fn minutes(time: Duration) -> f64 {
    (time.as_secs_f64() / 60.0 * 100.0).ceil() / 100.0
}

pub(super) fn parse_cost(text: &str) -> Result<f64, String> {
    let amount = text.strip_prefix('$').unwrap_or(text).parse().ok();
    let usable = amount.filter(|amount: &f64| amount.is_finite() && *amount > 0.0);
    usable.ok_or_else(|| "expected an amount above 0, such as 0.5".to_owned())
}

pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    parse_time_span(text).ok_or_else(|| "expected a time such as 90s, 10m or 1h".to_owned())
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
