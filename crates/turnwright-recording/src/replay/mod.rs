//! Runs a recorded session again, in an agent that gets its outside world from the recording, and says where the
//! agent now behaves in another way. The caller starts the agent, which is at the other end of two pipes.

mod driver;
mod observed;
mod other_model;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use crate::Recording;
use crate::events::{EventKind, RecordedEvent};
use crate::playback::{Playback, PlaybackEvent};
use driver::{ReplayDriver, ReplaySummary};
use observed::{Observer, RunNormalizer};
use tokio_util::sync::CancellationToken;
use turnwright_store::{Store, insert_conversation};

pub use other_model::ask_other_model;

/// The folders of the agent's own files in a replay.
#[derive(Debug)]
pub struct AgentFolders {
    /// The folder of its settings.
    pub config: PathBuf,
    /// The folder of its sessions.
    pub state: PathBuf,
}

/// An agent that serves ACP on a thread, with our ends of its pipes.
#[derive(Debug)]
pub struct StartedAgent {
    /// Takes the client's messages.
    pub input: File,
    /// Has the agent's messages.
    pub output: File,
    /// Ends the agent.
    pub stop: CancellationToken,
    pub thread: JoinHandle<io::Result<()>>,
}

/// Plays a recording back in the agent that `start` starts. Returns a report for people, and true if nothing differs.
///
/// # Errors
/// Those of `start`, or if the conversation that the recording begins with cannot be stored.
pub fn play_back(
    head: &Value,
    events: &[RecordedEvent],
    folders: &AgentFolders,
    start: impl FnOnce(Recording) -> io::Result<StartedAgent>,
) -> io::Result<(String, bool)> {
    let AgentFolders { config, state } = folders;
    let now = RunNormalizer::new(&config.to_string_lossy(), &state.to_string_lossy());
    let recorded = &head["folders"];
    let then = RunNormalizer::new(
        recorded["config"].as_str().unwrap_or_default(),
        recorded["state"].as_str().unwrap_or_default(),
    );
    let agent = PlayedAgent::start(head, events, false, state, start)?;
    let driver = ReplayDriver::new(agent, Observer::new(then), Observer::new(now));
    Ok(match driver.run(events) {
        Ok(ReplaySummary { lines, turns, is_open }) => {
            let open = if is_open {
                " The recording has no end: the agent was killed, or lines are missing."
            } else {
                ""
            };
            (format!("The same: {lines} lines of the agent, turns: {turns}.{open}\n"), true)
        }
        Err(difference) => (difference.to_string(), false),
    })
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
    /// Starts the agent, whose sessions are in the folder `state`, with the recording as its outside world.
    fn start(
        head: &Value,
        events: &[RecordedEvent],
        asks_model: bool,
        state: &Path,
        start: impl FnOnce(Recording) -> io::Result<StartedAgent>,
    ) -> io::Result<PlayedAgent> {
        store_conversation(state, events)?;
        let (sender, receiver) = sync_channel(MAX_WAITING_EVENTS);
        let playback = Arc::new(Playback::new(head, events, asks_model, sender.clone()));
        let recording = Recording::of(Arc::clone(&playback));
        let StartedAgent { input, output, stop, thread } = start(recording)?;
        thread::Builder::new()
            .name("replay".to_owned())
            .spawn(move || read_messages(output, &sender))?;
        Ok(PlayedAgent {
            playback,
            input: Some(input),
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
fn store_conversation(state: &Path, events: &[RecordedEvent]) -> io::Result<()> {
    let stored = events.iter().find_map(|event| match &event.kind {
        EventKind::Stored(stored) => Some(stored.clone()),
        _ => None,
    });
    let Some(stored) = stored else { return Ok(()) };
    let store = Store::new(state);
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
