//! The world outside of a session, as far as it can be recorded and replayed: the facts about the machine that a
//! session depends on, and the answers of its tools. A session is given one implementation of [`Outside`] and does not
//! know which: the real machine, a recorder, or a playback.

use std::fmt::Debug;

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::Value;

use turnwright_types::ids::SessionId;

tokio::task_local! {
    static SESSION: SessionId;
}

/// Runs the work of a session. All that it asks of [`Outside`] counts as asked by this session.
pub fn in_session<F: Future>(session: SessionId, work: F) -> impl Future<Output = F::Output> {
    SESSION.scope(session, work)
}

/// Runs work that gets a task of its own, for the session whose work is running now.
pub fn in_same_session<F: Future>(work: F) -> impl Future<Output = F::Output> {
    in_session(current_session().unwrap_or_else(|| SessionId::from("")), work)
}

/// The session whose work is running now.
pub(crate) fn current_session() -> Option<SessionId> {
    SESSION.try_with(Clone::clone).ok()
}

/// The world outside of a session: the facts about the machine that influence what a session does, other than those
/// that its tools find out, and the recorded answers of tools. The provided methods are those of the real machine,
/// where every tool answers for itself and nothing is recorded.
pub trait Outside: Debug + Send + Sync {
    /// Returns true if the session must not depend on chance, so that a replay can take the same course.
    fn is_deterministic(&self) -> bool {
        false
    }

    /// A number from 0 to 1 that varies the length of a wait. It is random unless the session is deterministic, since
    /// the user is told how long the wait is.
    fn random_fraction(&self) -> f64 {
        if self.is_deterministic() {
            return 0.5;
        }
        f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
    }

    /// Returns true if commands can be confined.
    fn can_confine(&self) -> bool {
        turnwright_sandbox::can_confine()
    }

    /// Names the parts of the system that the sandbox needs and that are missing; empty if commands can be confined.
    fn missing_sandbox(&self) -> String {
        if self.can_confine() {
            return String::new();
        }
        turnwright_sandbox::sandbox_support().missing.join(" ")
    }

    /// Describes the gaps of the sandbox, once they are known.
    fn sandbox_limitation(&self) -> Option<&str> {
        turnwright_sandbox::known_limitation()
    }

    /// The recorded facts about the session's project; `None` if its files are on this machine.
    fn project(&self) -> Option<&Value> {
        None
    }

    /// The recorded facts about the session's MCP servers; `None` if they run on this machine.
    fn servers(&self) -> Option<&[Value]> {
        None
    }

    /// Records the facts about the project of a session that is being opened.
    fn record_project(&self, _session: &SessionId, _project: &dyn Fn() -> Value) {}

    /// Records the known facts about the MCP servers of the session whose work is running now.
    fn record_servers(&self, _servers: &dyn Fn() -> Value) {}

    /// Returns true if the stored conversations of sessions that are being opened are recorded.
    fn records_conversations(&self) -> bool {
        false
    }

    /// Records the stored conversation of a session that is being opened, or why it cannot be read.
    fn record_conversation(&self, _session: &SessionId, _stored: Result<Value, String>) {}

    /// Returns a notice for the user, once.
    fn take_notice(&self) -> Option<String> {
        None
    }

    /// Returns true if a recording answers in place of this tool, which does not run. A file that is read without a
    /// call counts as a tool.
    fn is_played(&self, _tool: &str) -> bool {
        false
    }

    /// The recorded answer to a question about this call; `None` if there is none.
    fn recorded_answer(&self, _kind: AnswerKind, _tool: &str, _arguments: &Value) -> Option<Value> {
        None
    }

    /// Waits until the replay has reached the point where this call's result was recorded. Returns the result, or why
    /// there is none.
    fn recorded_result<'a>(
        &'a self,
        _tool: &'a str,
        _arguments: &'a Value,
    ) -> BoxFuture<'a, Result<Value, &'static str>> {
        std::future::ready(Err("No answers are kept.")).boxed()
    }

    /// Records an answer if those of this tool are recorded.
    fn record_answer(
        &self,
        _kind: AnswerKind,
        _tool: &str,
        _arguments: &Value,
        _answer: &dyn Fn() -> Value,
    ) {
    }
}

/// The machine that this process runs on.
#[derive(Debug)]
pub struct RealMachine;

impl Outside for RealMachine {}

/// The question that a tool has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// The presentation of a call, which may depend on files.
    View,
    /// The changes that a call would make.
    Preview,
    /// The outcome of a call.
    Result,
}
