//! Keeps a session's outside world in one file: the client's lines, the model's bytes with their times and
//! the results of tools. Played back, it stands in for all of them, so that the session runs again without
//! a network, files or commands.
//!
//!   outside              all that a session knows of this: a trait for the facts of the machine and recorded answers
//!   recorder             takes what a session gets from outside, and queues it
//!     recording_writer   writes it into the file, on a thread; of a request only the new messages
//!     line_filter        decides which lines of a connection belong to the session
//!     scrub              removes secrets, also keys that the model or the agent says in pieces
//!   playback             reads the file, and answers from it in place of the outside world
//!   replay               plays the client of an agent, and compares what it does with what it has done
//!
//! The agent of a replay is started by the caller, so that this crate needs nothing of it.

mod line_filter;
pub mod outside;
mod playback;
mod recorder;
mod recording_writer;
mod replay;
mod scrub;

use std::sync::Arc;

use outside::Outside;
use playback::Playback;
use turnwright_llm::{Exchange, Traffic};

pub use playback::{RecordedEvent, RecordingError, load_recording};
pub use recorder::{RecordedSession, Recorder};
pub use replay::{ask_other_model, play_back};

/// The version of the format.
const FORMAT: u64 = 1;
/// The field of the first line that has the format's version.
const FORMAT_FIELD: &str = "turnwright-recording";

/// Tools that run also in a replay: what they touch is the session and its client, or other calls.
const PLAYED_LIVE: [&str; 4] = ["agent", "ask_user", "exit_plan", "plan"];

/// How this process deals with what comes from outside. The default lets it pass.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    recorder: Arc<Recorder>,
    playback: Option<Arc<Playback>>,
}

impl Recording {
    /// Records a session when it is asked to.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Returns true if a recording is played back.
    pub fn is_replay(&self) -> bool {
        self.playback.is_some()
    }

    /// The world outside of the sessions.
    pub fn outside(&self) -> Arc<dyn Outside> {
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
