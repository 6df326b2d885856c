//! An agent in this process that gets its outside world from a recording.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::acp;
use crate::cli::run::{AgentThread, pipe_file};
use crate::config::Config;
use crate::recording::{EventKind, Playback, PlaybackEvent, RecordedEvent, Recording};
use turnwright_store::{Store, insert_conversation};

/// The capacity of the queue of events.
const MAX_WAITING_EVENTS: usize = 1024;

/// A running agent.
pub(super) struct PlayedAgent {
    pub(super) playback: Arc<Playback>,
    input: Option<File>,
    events: Option<Receiver<PlaybackEvent>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl PlayedAgent {
    /// Starts the agent on a thread of its own.
    pub(super) fn start(
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
    pub(super) fn send(&mut self, message: &Value) {
        if let Some(input) = &mut self.input {
            input.write_all(format!("{message}\n").as_bytes()).ok();
        }
    }

    /// Waits at most `limit` for the next event.
    pub(super) fn next_event(&self, limit: Duration) -> Option<PlaybackEvent> {
        self.events.as_ref()?.recv_timeout(limit).ok()
    }

    /// Ends the agent, and waits for it.
    pub(super) fn end(&mut self) {
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
