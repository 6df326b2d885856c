//! Keeps a session's outside world in one file: the client's lines, the model's bytes with their times and
//! the results of tools. Played back, it stands in for all of them, so that the session runs again without
//! a network, files or commands.

mod events;
mod held_text;
mod line_filter;
mod playback;
mod recorder;
mod recording_writer;
mod request_messages;
mod scrub;

use std::sync::Arc;

use crate::outside::{KeptAnswers, MachineFacts};
use recorder::Recorder;
use turnwright_llm::{Exchange, Traffic};

pub(crate) use events::{EventKind, RecordedEvent, RecordingError, load_recording};
pub(crate) use playback::{Playback, PlaybackEvent};
pub(crate) use recorder::RecordedSession;
pub(crate) use request_messages::SentMessages;

/// The version of the format.
const FORMAT: u64 = 1;
/// The field of the first line that has the format's version.
const FORMAT_FIELD: &str = "turnwright-recording";

/// Tools that run also in a replay: what they touch is the session and its client, or other calls.
const PLAYED_LIVE: [&str; 4] = ["agent", "ask_user", "exit_plan", "plan"];

/// How this process deals with what comes from outside. The default lets it pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    recorder: Arc<Recorder>,
    playback: Option<Arc<Playback>>,
}

impl Recording {
    /// Plays a recording back.
    pub(crate) fn of(playback: Arc<Playback>) -> Recording {
        Recording { recorder: Arc::default(), playback: Some(playback) }
    }

    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Returns true if a recording is played back.
    pub(crate) fn is_replay(&self) -> bool {
        self.playback.is_some()
    }

    /// The machine that the sessions depend on.
    pub(crate) fn facts(&self) -> Arc<dyn MachineFacts> {
        match self.playback.clone() {
            Some(playback) => playback,
            None => self.recorder.clone(),
        }
    }

    /// The keeper of the tools' answers.
    pub(crate) fn answers(&self) -> Arc<dyn KeptAnswers> {
        match self.playback.clone() {
            Some(playback) => playback,
            None => self.recorder.clone(),
        }
    }
}

impl Traffic for Recording {
    fn begin(&self, path: &str, body: &dyn Fn() -> Vec<u8>) -> Exchange {
        match &self.playback {
            Some(playback) => playback.begin_exchange(body),
            None => self.recorder.begin_exchange(path, body),
        }
    }
}
