//! `turnwright replay`: runs a recorded session again without a network, files or commands, in an agent in this process
//! that gets its outside world from the recording, and says where the agent now behaves in another way.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use crate::acp;
use crate::cli::{exit_code, write_stdout};
use turnwright_config::Config;
use turnwright_recording::{
    RecordedEvent, Recording, RecordingError, ask_other_model, load_recording, play_back,
};
use turnwright_rpc::AgentThread;
use turnwright_types::effect::escape_hidden;
use turnwright_types::error_text::io_error_text;

pub(super) const AFTER_HELP: &str = "\
Example: turnwright replay bug.ndjson
         turnwright replay bug.ndjson --model ollama/qwen3-coder
With --model, the prompts are sent to that model, and its actions are printed instead of compared.
Tool calls that are not in the recording do nothing.
Exit status: 0 if nothing differs, 1 if something does, 2 if the recording cannot be played back or the \
model is not configured or fails.";

/// The prefix of the names of folders for the agent's own files.
const FOLDER_PREFIX: &str = "turnwright-replay-";

pub(super) fn run(file: &Path, config: Config) -> ExitCode {
    match run_recording(file, config) {
        // The recording may be a stranger's.
        Ok((text, status)) if write_stdout(&escape_hidden(&text)).is_ok() => status,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            let text = format!("{} cannot be played back. {why}.", file.display());
            exit_code("replay", Err(text.into()), 2)
        }
    }
}

/// Runs a recording. Returns what is printed, and the exit status.
fn run_recording(file: &Path, config: Config) -> Result<(String, ExitCode), RecordingError> {
    let (head, events) = load_recording(file)?;
    super::deny_memory_inspection();
    if config.flags.model.is_none() {
        let (report, is_same) = play(&head, &events)?;
        return Ok((report, if is_same { ExitCode::SUCCESS } else { ExitCode::FAILURE }));
    }
    let (report, failure) = ask_model(config, &head, &events)?;
    let result = failure.map_or(Ok(ExitCode::SUCCESS), |why| Err(why.into()));
    Ok((report, exit_code("replay", result, 2)))
}

/// Plays a recording back. Returns what is printed, and whether nothing differs.
///
/// # Errors
/// Why it cannot be played back.
pub fn replay(path: &Path) -> Result<(String, bool), String> {
    let (head, events) = load_recording(path).map_err(|error| error.to_string())?;
    play(&head, &events).map_err(|error| io_error_text(&error))
}

fn play(head: &Value, events: &[RecordedEvent]) -> io::Result<(String, bool)> {
    let home = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir()?;
    // The folder for temporary files may be a link, as on macOS, and no project is read behind one.
    let config = Config::of_recording(head, &turnwright_workspace::real_path(home.path())?)?;
    let settings = config.paths.config.clone();
    let state = config.paths.state.clone();
    play_back(head, events, &settings, &state, |recording| start_agent(config, recording))
}

/// Sends the recorded prompts to the model of the settings. Returns what is printed, and why no more was run.
fn ask_model(
    mut config: Config,
    head: &Value,
    events: &[RecordedEvent],
) -> io::Result<(String, Option<String>)> {
    let folder = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir()?;
    let state = folder.path().join("state");
    config.paths.state.clone_from(&state);
    ask_other_model(head, events, &state, |recording| start_agent(config, recording))
}

/// Starts the agent on a thread of its own.
fn start_agent(config: Config, recording: Recording) -> io::Result<AgentThread> {
    AgentThread::start(move |stdio, stop| {
        acp::serve_as_recorded(config, recording, stdio, stop.cancelled_owned())
    })
}
