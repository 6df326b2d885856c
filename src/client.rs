//! What a turn needs from the other side. The ACP peer implements it; tests record it.

use std::path::Path;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::effect::{CallView, Content};
use crate::ids::CallId;
use crate::update::Update;

/// The person, and the editor they sit at.
pub trait Client: Send + Sync + 'static {
    /// Tells something. Never waits; order is kept.
    fn update(&self, update: Update);

    /// Waits until the other side has read enough for more to be said. To be awaited before
    /// anything that can come in bulk, so that a client that stops reading costs no memory.
    fn room(&self) -> BoxFuture<'_, ()>;

    /// Asks for permission. Dropping the future withdraws the question.
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer>;
}

/// A question about one tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The call, which the client has seen already.
    pub call: CallId,
    /// The function's name.
    pub name: String,
    /// How it looks.
    pub view: CallView,
    /// The real diff, or what else helps to decide.
    pub content: Vec<Content>,
    /// The arguments.
    pub raw_input: Value,
    /// What can be answered, the first being the plain yes.
    pub choices: Vec<Choice>,
}

/// One possible answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The sort.
    pub kind: ChoiceKind,
    /// What the button says.
    pub name: String,
}

/// The sorts of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceKind {
    /// Yes, now.
    AllowOnce,
    /// Yes, and do not ask again for exactly this.
    AllowAlways,
    /// No.
    RejectOnce,
    /// No, and never ask again for exactly this.
    RejectAlways,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// One of the offered choices.
    Chosen(ChoiceKind),
    /// The client withdrew the question, usually because the turn is being cancelled.
    Cancelled,
    /// Anything else: an error, an option nobody offered, silence. It is never a yes (R-PERM-6).
    Unclear(String),
}

/// The files that the client has open, with unsaved changes. Which of the two directions may be
/// used is fixed by `initialize` (R-FS-1).
pub trait Buffers: Send + Sync + 'static {
    /// Whether the client offers to read.
    fn can_read(&self) -> bool;
    /// Whether the client offers to write.
    fn can_write(&self) -> bool;
    /// The whole text of a file as the client has it.
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<String, BufferError>>;
    /// Replaces the whole text of a file.
    fn write<'a>(&'a self, path: &'a Path, text: &'a str)
    -> BoxFuture<'a, Result<(), BufferError>>;
}

/// Why the client could not serve a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BufferError {
    /// It says that there is no such file.
    #[error("the editor has no such file")]
    NotFound,
    /// It refused, and said why.
    #[error("the editor refused: {0}")]
    Refused(String),
    /// It did not answer in time.
    #[error("the editor did not answer")]
    Silent,
}
