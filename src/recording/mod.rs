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

use turnwright_llm::{Exchange, Traffic};
use turnwright_types::ids::SessionId;

pub(crate) use events::{EventKind, RecordedEvent, RecordingError, load_recording};
pub(crate) use playback::{Playback, PlaybackEvent};
pub(crate) use recorder::{RecordedSession, Recorder};
pub(crate) use request_messages::SentMessages;

/// The version of the format.
const FORMAT: u64 = 1;
/// The field of the first line that has the format's version.
const FORMAT_FIELD: &str = "turnwright-recording";

/// Tools that run also in a replay: what they touch is the session and its client, or other calls.
const PLAYED_LIVE: [&str; 4] = ["agent", "ask_user", "exit_plan", "plan"];

tokio::task_local! {
    static SESSION: SessionId;
}

/// Runs the work of a session. What it does is recorded as this session's.
pub(crate) fn in_session<F: Future>(
    session: SessionId,
    work: F,
) -> impl Future<Output = F::Output> {
    SESSION.scope(session, work)
}

/// Runs work on a task of its own as that of the session whose work runs now.
pub(crate) fn in_same_session<F: Future>(work: F) -> impl Future<Output = F::Output> {
    in_session(current_session().unwrap_or_else(|| SessionId::from("")), work)
}

/// The session whose work runs now.
pub(crate) fn current_session() -> Option<SessionId> {
    SESSION.try_with(Clone::clone).ok()
}

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

    /// Returns true if something is recorded or played back, so that nothing may be left to chance.
    pub(crate) fn is_in_use(&self) -> bool {
        self.playback.is_some() || self.recorder.is_on()
    }

    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// The recording that stands in for the outside world, if there is one.
    pub(crate) fn playback(&self) -> Option<&Arc<Playback>> {
        self.playback.as_ref()
    }

    /// The recording that answers the calls of this tool.
    pub(crate) fn playback_of(&self, tool: &str) -> Option<&Arc<Playback>> {
        self.playback.as_ref().filter(|_| !PLAYED_LIVE.contains(&tool))
    }

    /// The recorder, if it records this session's calls of this tool now.
    pub(crate) fn recorder_of(&self, tool: &str) -> Option<&Arc<Recorder>> {
        Some(&self.recorder).filter(|recorder| recorder.is_on() && !PLAYED_LIVE.contains(&tool))
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
