//! `turnwright eval`: the flags, Ctrl-C, and what is shown of a run. `turnwright-eval` does the rest.

use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use tokio_util::sync::CancellationToken;

use super::run::{parse_cost, parse_time};
use super::stored::at_least_one;
use super::{CliError, exit_code, write_stdout};
use turnwright_config::Config;
use turnwright_eval::make::{TaskSource, make};
use turnwright_eval::results::{new_folder, read_lines};
use turnwright_eval::schedule::{RunEnd, RunPlan};
use turnwright_eval::summary::Summary;
use turnwright_eval::task::{Task, read_tasks};
use turnwright_eval::workplace::Workplace;
use turnwright_eval::{EvalError, EvalResult, harbor, report, schedule, table};
use turnwright_store::Store;
use turnwright_terminal::sessions::{current_folder, find_session};
use turnwright_terminal::{UNUSABLE, block_on_with_stop};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::private_file;
use turnwright_types::timestamp::rfc3339;

const RUN_AFTER_HELP: &str = "\
Example: turnwright eval run --models gpt-5.4-mini,deepseek/deepseek-chat --runs 5
Exit status: 0 if all trials were made, 2 if arguments, settings or tasks are unusable, 6 at a limit of the run, \
130 if stopped.";

/// The exit status at a limit of the run.
const AT_LIMIT: u8 = 6;
const STOPPED: u8 = 130;

#[derive(Debug, Subcommand)]
pub(super) enum EvalCommand {
    /// Make a task from a commit or a session
    ///
    /// The check is run twice before the work, where it must fail, and twice with the solution, where it
    /// must pass. Otherwise nothing is saved. With the name of a task alone, its check is checked again.
    #[command(
        after_help = "Example: turnwright eval new fix-parser --session last --check \"cargo test parser\""
    )]
    New {
        /// Name of the task
        name: String,
        /// Start where this session began: its id, a prefix of it, or `last`
        #[arg(long, value_name = "ID", conflicts_with = "commit")]
        session: Option<String>,
        /// Start from this commit [default: HEAD]
        #[arg(long, value_name = "COMMIT")]
        commit: Option<String>,
        /// Command that exits with 0 if the task is done; without one, a script to be written is made
        #[arg(long, value_name = "CMD")]
        check: Option<String>,
        /// Folder of the tasks
        #[arg(long, value_name = "DIR", default_value = "evals")]
        tasks: PathBuf,
    },
    /// Run the agent on tasks, again and again
    #[command(after_help = RUN_AFTER_HELP)]
    Run(EvalRunCliArgs),
    /// Show the results of a run, or compare those of two task by task
    #[command(
        visible_alias = "compare",
        after_help = "Example: turnwright eval compare evals/.results/before evals/.results/after"
    )]
    Show(ShowCliArgs),
    /// Write tasks in the format of Harbor
    #[command(after_help = "Example: turnwright eval export --harbor out")]
    Export {
        #[command(flatten)]
        chosen: ChosenTasks,
        /// Folder for the tasks, and for the entry with which Harbor's ACP agent starts turnwright
        #[arg(long, value_name = "DIR")]
        harbor: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(super) struct ChosenTasks {
    /// Names of the tasks (default: all)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Folder of the tasks
    #[arg(long, value_name = "DIR", default_value = "evals")]
    tasks: PathBuf,
}

impl ChosenTasks {
    fn read(&self) -> EvalResult<Vec<Task>> {
        read_tasks(&std::path::absolute(&self.tasks)?, &self.names)
    }
}

#[derive(Debug, Args)]
pub(super) struct EvalRunCliArgs {
    #[command(flatten)]
    chosen: ChosenTasks,
    /// Models, as for --model, with commas between them
    #[arg(long, value_name = "A,B", value_delimiter = ',', required = true)]
    models: Vec<String>,
    /// Trials of each task with each model
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Trials at the same time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    jobs: usize,
    /// Setting for all trials; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder for the results; if it has some, the run goes on where it stopped
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Most that the whole run may cost, in US dollars
    #[arg(long, value_name = "USD", value_parser = parse_cost)]
    max_cost: Option<f64>,
    /// Longest time for the whole run, such as 90s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    max_time: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct ShowCliArgs {
    /// Folder of results
    #[arg(value_name = "A")]
    results: PathBuf,
    /// Another one, to compare with
    #[arg(value_name = "B")]
    other: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn run(command: EvalCommand, config: &Config) -> ExitCode {
    super::deny_memory_inspection();
    let ended = perform(command, config).map_err(|error| CliError::Other(error.to_string()));
    exit_code("eval", ended, UNUSABLE)
}

fn perform(command: EvalCommand, config: &Config) -> EvalResult<ExitCode> {
    match command {
        EvalCommand::Show(args) => show(&args),
        EvalCommand::New { name, session, commit, check, tasks } => {
            wait_for(config, Vec::new(), async |workplace| {
                let of_session = session.map(|name| session_source(&name, config)).transpose()?;
                let source = of_session.or(commit.map(TaskSource::Commit));
                let place = std::path::absolute(tasks)?;
                print(&make(&name, &place, check.as_deref(), source, &workplace).await?)
            })
        }
        EvalCommand::Export { chosen, harbor } => wait_for(config, Vec::new(), async |workplace| {
            let folder = std::path::absolute(harbor)?;
            print(&harbor::export(&chosen.read()?, &folder, &workplace).await?)
        }),
        EvalCommand::Run(args) => start_run(args, config),
    }
}

fn print(lines: &[String]) -> EvalResult<ExitCode> {
    for line in lines {
        write_stdout(&format!("{}\n", escape_hidden_line(line)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Does the work on a runtime, and returns its exit status. Ctrl-C asks the work to stop.
fn wait_for(
    config: &Config,
    changes: Vec<String>,
    work: impl AsyncFnOnce(Workplace) -> EvalResult<ExitCode>,
) -> EvalResult<ExitCode> {
    let project = current_folder().map_err(|error| EvalError::Unusable(error.to_string()))?;
    let stop = CancellationToken::new();
    let workplace = Workplace::new(config, project, changes, stop.clone())?;
    match block_on_with_stop(&stop, work(workplace))? {
        Err(EvalError::Stopped) => Ok(ExitCode::from(STOPPED)),
        ended => ended,
    }
}

fn session_source(name: &str, config: &Config) -> EvalResult<TaskSource> {
    let store = Store::new(&config.paths.state);
    if !store.exists() {
        return Err(EvalError::Unusable("there are no stored sessions".to_owned()));
    }
    let id = find_session(&store, name).map_err(|error| EvalError::Unusable(error.to_string()))?;
    Ok(TaskSource::Session(store, id))
}

fn start_run(args: EvalRunCliArgs, config: &Config) -> EvalResult<ExitCode> {
    let tasks = args.chosen.read()?;
    let out = match args.out {
        Some(out) => out,
        None => new_folder(&args.chosen.tasks, &rfc3339(SystemTime::now())[..10])?,
    };
    let plan = RunPlan {
        tasks,
        models: args.models,
        runs: args.runs,
        jobs: args.jobs,
        out: std::path::absolute(out)?,
        max_cost: args.max_cost,
        max_time: args.max_time,
    };
    wait_for(config, args.set, async |workplace| {
        let end = schedule::run(&plan, &workplace, &mut show_progress).await?;
        let place = plan.out.display();
        write_stdout(&table::text(&Summary::of(&read_lines(&plan.out)?)))?;
        write_stdout(&format!("\nThe results are in {place}.\n"))?;
        if end != RunEnd::Complete {
            write_stdout(&format!("Go on with the same command and --out {place}.\n"))?;
        }
        Ok(match end {
            RunEnd::Complete => ExitCode::SUCCESS,
            RunEnd::Limit => ExitCode::from(AT_LIMIT),
            RunEnd::Stopped => ExitCode::from(STOPPED),
        })
    })
}

fn show_progress(text: &str) {
    writeln!(stderr(), "{}", escape_hidden_line(text)).ok();
}

fn show(args: &ShowCliArgs) -> EvalResult<ExitCode> {
    let lines = read_lines(&args.results)?;
    let summary = match &args.other {
        None => Summary::of(&lines),
        Some(other) => Summary::of_both(&lines, &read_lines(other)?),
    };
    if args.other.is_some() && summary.comparisons.is_empty() {
        return Err(EvalError::Unusable("no model has trials in both of them".to_owned()));
    }
    let shown = if let Some(file) = &args.html {
        private_file::write(file, report::page(&summary).as_bytes())?;
        format!("Wrote {}.\n", file.display())
    } else if args.json {
        format!("{:#}\n", serde_json::to_value(summary).map_err(std::io::Error::from)?)
    } else {
        table::text(&summary)
    };
    write_stdout(&shown)?;
    Ok(ExitCode::SUCCESS)
}
