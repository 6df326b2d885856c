//! `turnwright stats`: what the stored sessions hold, by week and model.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;

use super::{CliResult, report, write_stdout};
use turnwright_config::Config;
use turnwright_eval::counts;
use turnwright_store::Store;
use turnwright_store::stats::count_work;

const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Debug, Args)]
pub(super) struct StatsCliArgs {
    /// Number of weeks to look back
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    weeks: u32,
}

/// Counts the work of all sessions.
pub(super) fn run(args: &StatsCliArgs, config: &Config) -> ExitCode {
    report("stats", show(args, config))
}

fn show(args: &StatsCliArgs, config: &Config) -> CliResult<()> {
    let store = Store::new(&config.paths.state);
    if !store.exists() {
        return Ok(write_stdout("No stored sessions.\n")?);
    }
    let begin = SystemTime::now().checked_sub(WEEK.saturating_mul(args.weeks));
    let since = begin.unwrap_or(SystemTime::UNIX_EPOCH);
    let found = store.read_blocking(|connection| count_work(connection, Some(since)))?;
    Ok(write_stdout(&counts::text(&found))?)
}
