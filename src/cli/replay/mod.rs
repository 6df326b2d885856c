//! `turnwright replay`: runs a recorded session again without a network, files or commands, and says where
//! the agent now behaves in another way.

mod difference;
mod driver;
mod model_requests;
mod run_normalizer;
mod observed;
mod other_model;
mod played_agent;

use std::io::{self, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use crate::cli::write_stdout;
use crate::config::Config;
use crate::recording::{RecordedEvent, RecordingError, load_recording};
use difference::Difference;
use driver::{ReplayDriver, ReplaySummary};
use observed::Observer;
use played_agent::PlayedAgent;
use run_normalizer::RunNormalizer;
use turnwright_types::io_error_text::io_error_text;

pub(super) const AFTER_HELP: &str = "\
Example: turnwright replay bug.ndjson
         turnwright replay bug.ndjson --model ollama/qwen3-coder
With --model, the prompts are sent to that model, and its actions are printed instead of compared.
Tool calls that are not in the recording do nothing.
Exit status: 0 if nothing differs, 1 if something does, 2 if the recording cannot be played back or the \
model is not configured.";

/// The arguments of `turnwright replay`.
#[derive(Debug, clap::Args)]
pub(super) struct ReplayCliArgs {
    /// The recording, which TURNWRIGHT_RECORD or /record has made
    file: PathBuf,
}

/// How a replay has ended.
#[derive(Debug)]
enum ReplayOutcome {
    Same(ReplaySummary),
    Different(Difference),
}

pub(super) fn run(args: &ReplayCliArgs, config: Config) -> ExitCode {
    let (head, events) = match load_recording(&args.file) {
        Ok(recording) => recording,
        Err(why) => return report_unplayable(&args.file, &why),
    };
    super::deny_memory_inspection();
    let (text, exit_code) = if config.flags.model.is_some() {
        match other_model::run(config, &head, &events) {
            Ok((report, None)) => (report, ExitCode::SUCCESS),
            Ok((report, Some(why))) => {
                writeln!(stderr(), "turnwright replay: {why}").ok();
                (report, ExitCode::from(2))
            }
            Err(error) => return report_unplayable(&args.file, &error.into()),
        }
    } else {
        match play(&head, &events) {
            Ok(end @ ReplayOutcome::Same(_)) => (describe(&end), ExitCode::SUCCESS),
            Ok(end @ ReplayOutcome::Different(_)) => (describe(&end), ExitCode::FAILURE),
            Err(error) => return report_unplayable(&args.file, &error.into()),
        }
    };
    match write_stdout(&text) {
        Ok(()) => exit_code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Plays a recording back. Returns what is printed, and whether nothing differs.
///
/// # Errors
/// Why it cannot be played back.
pub fn replay(path: &Path) -> Result<(String, bool), String> {
    let (head, events) = load_recording(path).map_err(|error| error.to_string())?;
    let end = play(&head, &events).map_err(|error| io_error_text(&error))?;
    Ok((describe(&end), matches!(end, ReplayOutcome::Same(_))))
}

fn play(head: &Value, events: &[RecordedEvent]) -> io::Result<ReplayOutcome> {
    let home = tempfile::Builder::new().prefix("turnwright-replay-").tempdir()?;
    // The folder for temporary files may be a link, as on macOS, and no project is read behind one.
    let config = Config::of_recording(head, &turnwright_workspace::real_path(home.path())?)?;
    let paths = &config.paths;
    let now = RunNormalizer::new(&paths.config.to_string_lossy(), &paths.state.to_string_lossy());
    let recorded = &head["folders"];
    let then = RunNormalizer::new(
        recorded["config"].as_str().unwrap_or_default(),
        recorded["state"].as_str().unwrap_or_default(),
    );
    let agent = PlayedAgent::start(config, head, events, false)?;
    let driver = ReplayDriver::new(agent, Observer::new(then), Observer::new(now));
    Ok(match driver.run(events) {
        Ok(summary) => ReplayOutcome::Same(summary),
        Err(difference) => ReplayOutcome::Different(difference),
    })
}

fn describe(end: &ReplayOutcome) -> String {
    match end {
        ReplayOutcome::Same(ReplaySummary { lines, turns, is_open }) => {
            let open = match is_open {
                true => " The recording has no end: the agent was killed, or lines are missing.",
                false => "",
            };
            format!("The same: {lines} lines of the agent, turns: {turns}.{open}\n")
        }
        ReplayOutcome::Different(difference) => difference.to_string(),
    }
}

fn report_unplayable(path: &Path, why: &RecordingError) -> ExitCode {
    let text = format!("turnwright replay: {} cannot be played back. {why}.\n", path.display());
    stderr().write_all(text.as_bytes()).ok();
    ExitCode::from(2)
}
