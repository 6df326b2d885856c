//! `turnwright replay`: runs a recorded session again without a network, files or commands, in an agent in this process
//! that gets its outside world from the recording, and says where the agent now behaves in another way.

mod driver;
mod observed;
mod other_model;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use crate::acp;
use crate::cli::run::{AgentThread, pipe_file};
use crate::cli::write_stdout;
use crate::recording::{
    EventKind, Playback, PlaybackEvent, RecordedEvent, Recording, RecordingError, load_recording,
};
use driver::{ReplayDriver, ReplaySummary};
use observed::{Difference, Observer, RunNormalizer};
use tokio_util::sync::CancellationToken;
use turnwright_config::Config;
use turnwright_store::{Store, insert_conversation};
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

/// The capacity of the queue of events.
const MAX_WAITING_EVENTS: usize = 1024;

/// A running agent.
struct PlayedAgent {
    playback: Arc<Playback>,
    input: Option<File>,
    events: Option<Receiver<PlaybackEvent>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl PlayedAgent {
    /// Starts the agent on a thread of its own.
    fn start(
        config: Config,
        head: &Value,
        events: &[RecordedEvent],
        asks_model: bool,
    ) -> io::Result<PlayedAgent> {
        store_conversation(&config, events)?;
        let (sender, receiver) = sync_channel(MAX_WAITING_EVENTS);
        let playback = Arc::new(Playback::new(head, events, asks_model, sender.clone()));
        let recording = Recording::of(Arc::clone(&playback));
        let AgentThread { requests, messages, stop, thread } =
            AgentThread::start(move |stdio, stop| {
                acp::serve_as_recorded(config, recording, stdio, stop.cancelled_owned())
            })?;
        let output = pipe_file(messages);
        thread::Builder::new()
            .name("replay".to_owned())
            .spawn(move || read_messages(output, &sender))?;
        Ok(PlayedAgent {
            playback,
            input: Some(pipe_file(requests)),
            events: Some(receiver),
            stop,
            thread: Some(thread),
        })
    }

    /// Sends a message. If the agent has ended, the message is dropped, and [`PlayedAgent::next_event`] returns
    /// [`PlaybackEvent::Ended`].
    fn send(&mut self, message: &Value) {
        if let Some(input) = &mut self.input {
            input.write_all(format!("{message}\n").as_bytes()).ok();
        }
    }

    /// Waits at most `limit` for the next event.
    fn next_event(&self, limit: Duration) -> Option<PlaybackEvent> {
        self.events.as_ref()?.recv_timeout(limit).ok()
    }

    /// Ends the agent, and waits for it.
    fn end(&mut self) {
        // Neither its messages nor the recorded events are awaited any more.
        self.events = None;
        self.playback.advance(u64::MAX);
        self.stop.cancel();
        self.input = None;
        if let Some(thread) = self.thread.take() {
            // How it ends is no part of the comparison.
            thread.join().ok();
        }
    }
}

/// Puts the conversation that the recording begins with where the agent looks for it.
fn store_conversation(config: &Config, events: &[RecordedEvent]) -> io::Result<()> {
    let stored = events.iter().find_map(|event| match &event.kind {
        EventKind::Stored(stored) => Some(stored.clone()),
        _ => None,
    });
    let Some(stored) = stored else { return Ok(()) };
    let store = Store::new(&config.paths.state);
    let stored = store.write_blocking(move |connection| insert_conversation(connection, &stored));
    stored.map_err(|error| io::Error::other(format!("its conversation is damaged: {error}")))
}

fn read_messages(output: File, sender: &SyncSender<PlaybackEvent>) {
    for line in BufReader::new(output).lines() {
        let Ok(message) = line.map(|line| serde_json::from_str(&line).unwrap_or_default()) else {
            break;
        };
        // The output is read to its end even without a receiver, so that the agent is never blocked.
        sender.send(PlaybackEvent::Message(message)).ok();
    }
    sender.send(PlaybackEvent::Ended).ok();
}
