//! What a turn needs from the other side. The ACP peer implements it; tests record it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::effect::{CallView, Content};
use crate::ids::{CallId, TerminalId};
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

    /// Asks for words or a choice, in whatever way the client can show. Dropping the future
    /// withdraws the question.
    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, Reply>;

    /// Whether it shows forms that others have made.
    fn has_forms(&self) -> bool {
        false
    }

    /// Shows a form that somebody else has made. Dropping the future withdraws it.
    fn fill(&self, _form: Form) -> BoxFuture<'_, Filled> {
        Box::pin(std::future::ready(Filled::Declined))
    }
}

/// A form of a server, for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    /// The call that the server needs it for.
    pub call: CallId,
    /// What is asked, with who asks.
    pub message: String,
    /// A flat JSON Schema of an object: the fields.
    pub schema: Value,
}

/// What the user has made of a form.
#[derive(Clone, Debug, PartialEq)]
pub enum Filled {
    /// The fields, as the client has sent them. Nobody has checked them yet.
    Accepted(Value),
    /// The user does not want to; or the client cannot show it.
    Declined,
    /// It was withdrawn.
    Cancelled,
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
    /// Yes, and do not ask again for what the name says, in this session.
    AllowSession,
    /// Yes, and do not ask again for what the name says, in any session of this project.
    AllowProject,
    /// No.
    RejectOnce,
    /// No, and do not ask again for exactly this in this session.
    RejectSession,
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

/// A question of the model to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The call that asks.
    pub call: CallId,
    /// What is asked.
    pub question: String,
    /// What can be chosen; empty where words are wanted.
    pub options: Vec<String>,
    /// Whether several may be chosen.
    pub several: bool,
}

/// What the user says to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The words, or what was chosen.
    Said(Vec<String>),
    /// The user does not want to answer.
    Declined,
    /// The question was withdrawn, usually because the turn is being cancelled.
    Cancelled,
    /// The client cannot show such a question, or its answer made no sense: ask in the text.
    Impossible,
}

/// How the client can show what a command prints while it runs.
#[derive(Clone, Default)]
pub enum Display {
    /// As text in the card, a little at a time.
    #[default]
    Text,
    /// In a terminal that it draws from what we send.
    Output,
    /// In a terminal of its own, in which it runs the command.
    Terminals(Arc<dyn Terminals>),
}

impl fmt::Debug for Display {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Display::Text => "Text",
            Display::Output => "Output",
            Display::Terminals(_) => "Terminals",
        })
    }
}

/// The terminals of the client (R-TERM-1…7).
pub trait Terminals: Send + Sync + 'static {
    /// Runs a program in a new terminal.
    fn create(&self, command: TerminalCommand) -> BoxFuture<'_, Result<TerminalId, TerminalError>>;
    /// What it has printed so far, and how it ended if it has.
    fn output(&self, id: TerminalId) -> BoxFuture<'_, Result<TerminalOutput, TerminalError>>;
    /// Waits for its end.
    fn wait(&self, id: TerminalId) -> BoxFuture<'_, Result<TerminalExit, TerminalError>>;
    /// Ends the program; the terminal stays.
    fn kill(&self, id: TerminalId) -> BoxFuture<'_, Result<(), TerminalError>>;
    /// Gives the terminal back without waiting for an answer; what runs in it is ended.
    fn release(&self, id: TerminalId);
}

/// What is to run in a terminal of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables on top of those that the client gives it.
    pub variables: Vec<(String, String)>,
    /// Where, absolute.
    pub workdir: PathBuf,
    /// Bytes of output that the client keeps.
    pub limit: u64,
}

/// What a terminal of the client shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalOutput {
    /// The text, or its end.
    pub text: String,
    /// Whether its beginning is missing.
    pub truncated: bool,
    /// How it ended.
    pub exit: Option<TerminalExit>,
}

/// How a program in a terminal of the client ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalExit {
    /// Its exit code; `None` if a signal ended it, or if the client does not say.
    pub code: Option<u32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

/// Why the client did not do something with a terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the editor's terminal: {0}")]
pub struct TerminalError(pub String);

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
    #[error("the editor refused: {}", .0.chars().take(1_000).collect::<String>())]
    Refused(String),
    /// It did not answer in time.
    #[error("the editor did not answer")]
    Silent,
}
