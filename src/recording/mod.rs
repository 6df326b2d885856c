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

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::Value;

use crate::outside::{AnswerKind, Keeping, KeptAnswers, MachineFacts, RealMachine};
use recorder::Recorder;
use turnwright_llm::{Exchange, Traffic};
use turnwright_types::ids::SessionId;

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
/// The result of a call that a recording does not have.
const UNRECORDED: &str =
    "This call is not in the recording, and nothing is done while one is played back.";

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
}

impl Traffic for Recording {
    fn begin(&self, path: &str, body: &dyn Fn() -> Vec<u8>) -> Exchange {
        match &self.playback {
            Some(playback) => playback.begin_exchange(body),
            None => self.recorder.begin_exchange(path, body),
        }
    }
}

impl MachineFacts for Recording {
    fn are_fixed(&self) -> bool {
        self.is_replay() || self.recorder.is_on()
    }

    fn chance(&self) -> f64 {
        // The user is told how long a wait is.
        if self.are_fixed() { 0.5 } else { RealMachine.chance() }
    }

    fn can_confine(&self) -> bool {
        match &self.playback {
            Some(playback) => playback.could_confine(),
            None => RealMachine.can_confine(),
        }
    }

    fn missing_sandbox(&self) -> String {
        match &self.playback {
            Some(playback) => playback.missing_sandbox().to_owned(),
            None => RealMachine.missing_sandbox(),
        }
    }

    fn sandbox_limitation(&self) -> Option<&str> {
        match &self.playback {
            Some(playback) => playback.sandbox_limitation(),
            None => turnwright_sandbox::known_limitation(),
        }
    }

    fn project(&self) -> Option<&Value> {
        self.playback.as_ref().map(|playback| playback.project())
    }

    fn servers(&self) -> Option<&[Value]> {
        self.playback.as_ref().map(|playback| playback.servers())
    }

    fn note_project(&self, session: &SessionId, project: &dyn Fn() -> Value) {
        if self.recorder.is_on() {
            self.recorder.record_project(session, project());
        }
    }

    fn note_servers(&self, servers: &dyn Fn() -> Value) {
        if self.recorder.is_on() {
            self.recorder.record_servers(servers());
        }
    }

    fn notes_conversations(&self) -> bool {
        self.recorder.is_on()
    }

    fn note_conversation(&self, session: &SessionId, stored: Result<Value, String>) {
        self.recorder.record_stored(session, stored);
    }

    fn take_notice(&self) -> Option<String> {
        self.recorder.take_notice()
    }
}

impl KeptAnswers for Recording {
    fn keeping(&self, tool: &str) -> Keeping {
        if PLAYED_LIVE.contains(&tool) {
            Keeping::Off
        } else if self.is_replay() {
            Keeping::Given
        } else if self.recorder.is_on() {
            Keeping::Noted
        } else {
            Keeping::Off
        }
    }

    fn given(&self, kind: AnswerKind, tool: &str, arguments: &Value) -> Option<Value> {
        self.playback.as_ref()?.answer(kind, tool, arguments)
    }

    fn given_result<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Value,
    ) -> BoxFuture<'a, Result<Value, &'static str>> {
        async move {
            match &self.playback {
                Some(playback) => playback.result(tool, arguments).await.ok_or(UNRECORDED),
                None => Err(UNRECORDED),
            }
        }
        .boxed()
    }

    fn note(&self, kind: AnswerKind, tool: &str, arguments: &Value, answer: &dyn Fn() -> Value) {
        if self.keeping(tool) == Keeping::Noted {
            self.recorder.record_call(kind, tool, arguments, answer());
        }
    }
}
