//! The world outside of a session, as far as another one can take the place of that around this process: the
//! facts of the machine that a session depends on, and the answers of its tools. The default is the real world.
//! Whoever puts a session together may hand it another one; the session does not know which.

use std::fmt::Debug;

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::Value;

use turnwright_types::ids::SessionId;

tokio::task_local! {
    static SESSION: SessionId;
}

/// Runs the work of a session. What it asks the outside counts as this session's.
pub fn in_session<F: Future>(session: SessionId, work: F) -> impl Future<Output = F::Output> {
    SESSION.scope(session, work)
}

/// Runs work on a task of its own as that of the session whose work runs now.
pub fn in_same_session<F: Future>(work: F) -> impl Future<Output = F::Output> {
    in_session(current_session().unwrap_or_else(|| SessionId::from("")), work)
}

/// The session whose work runs now.
pub(crate) fn current_session() -> Option<SessionId> {
    SESSION.try_with(Clone::clone).ok()
}

/// The world outside of a session: the facts about the machine that decide what a session does, besides those that
/// its tools find out, and the keeper of the tools' answers. The provided methods are those of the real machine, where
/// every tool answers for itself and nobody takes note of it.
pub trait Outside: Debug + Send + Sync {
    /// Returns true if nothing may be left to chance, because the session has to take the same course again.
    fn are_fixed(&self) -> bool {
        false
    }

    /// A number from 0 to 1 for the length of a wait, of which the user is told. It is random unless the facts
    /// are fixed.
    fn chance(&self) -> f64 {
        if self.are_fixed() {
            return 0.5;
        }
        f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
    }

    /// Returns true if commands can be confined.
    fn can_confine(&self) -> bool {
        turnwright_sandbox::can_confine()
    }

    /// Names what the sandbox lacks; empty if it lacks nothing.
    fn missing_sandbox(&self) -> String {
        if self.can_confine() {
            return String::new();
        }
        turnwright_sandbox::sandbox_support().missing.join(" ")
    }

    /// The description of the gaps of the sandbox, once they are known.
    fn sandbox_limitation(&self) -> Option<&str> {
        turnwright_sandbox::known_limitation()
    }

    /// The facts about the session's project if it is on another machine, so that no file of it is here.
    fn project(&self) -> Option<&Value> {
        None
    }

    /// The facts about the session's MCP servers if they run on another machine.
    fn servers(&self) -> Option<&[Value]> {
        None
    }

    /// Takes note of the facts about the project of a session that is being opened.
    fn note_project(&self, _session: &SessionId, _project: &dyn Fn() -> Value) {}

    /// Takes note of the known facts about the MCP servers of the session whose work runs now.
    fn note_servers(&self, _servers: &dyn Fn() -> Value) {}

    /// Returns true if note is taken of the conversations with which sessions are opened.
    fn notes_conversations(&self) -> bool {
        false
    }

    /// Takes note of the stored conversation of a session that is being opened, or of why it cannot be read.
    fn note_conversation(&self, _session: &SessionId, _stored: Result<Value, String>) {}

    /// Something to tell the user, once.
    fn take_notice(&self) -> Option<String> {
        None
    }

    /// The source of this tool's answers. A file that is read without a call counts as a tool.
    fn keeping(&self, _tool: &str) -> Keeping {
        Keeping::Off
    }

    /// The kept answer to a question about this call; `None` if there is none.
    fn given(&self, _kind: AnswerKind, _tool: &str, _arguments: &Value) -> Option<Value> {
        None
    }

    /// The kept result of this call, at the time when it was known, or why there is none.
    fn given_result<'a>(
        &'a self,
        _tool: &'a str,
        _arguments: &'a Value,
    ) -> BoxFuture<'a, Result<Value, &'static str>> {
        std::future::ready(Err("No answers are kept.")).boxed()
    }

    /// Takes note of an answer if those of this tool are kept.
    fn note(
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

/// The kind of question that a tool has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// How a call is shown, which depends on the files that there are.
    View,
    /// The effect that a call would have.
    Preview,
    /// The effect that it had.
    Result,
}

/// The source of a tool's answers, and whether anybody takes note of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// The tool answers.
    Off,
    /// The tool answers, and note is taken of each answer.
    Noted,
    /// Answers that were kept before take the place of the tool, of which nothing runs.
    Given,
}
