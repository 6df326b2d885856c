//! The traits through which a turn reaches the user and their editor. `acp` and `mcp_server` implement
//! them; tests record what they are given.

use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::effect::{CallContent, CallView};
use crate::ids::{CallId, SessionId, TerminalId};
use crate::message::StopReason;
use crate::text;
use crate::update::Update;

/// The user, and the program through which they use the agent.
pub trait Client: Send + Sync + 'static {
    /// Sends an update. Never waits; updates arrive in order.
    fn update(&self, update: Update);

    /// Waits until the client has read enough for more output to be sent. Senders of bulk output
    /// await this first, so that a client that stops reading does not fill our memory.
    fn wait_for_capacity(&self) -> BoxFuture<'_, ()>;

    /// True if the client is told when the turn of a prompt begins, and when the user's words become a
    /// message of the conversation.
    fn follows_prompts(&self) -> bool {
        false
    }

    /// The connection of the client; `None` if it is lost.
    fn connection(&self) -> Option<ClientConnection> {
        Some(ClientConnection { number: 0, is_v2: self.follows_prompts() })
    }

    /// True if the client draws terminals from the output that we send.
    fn draws_terminals(&self) -> bool {
        false
    }

    /// True if the client shows prompts that the user may want to send next.
    fn shows_suggestions(&self) -> bool {
        false
    }

    /// Nothing of the running turn is left but the answers to questions of helpers in the background.
    fn report_open_questions(&self) {}

    /// Asks the user to permit a tool call. Dropping the future withdraws the question.
    fn request_permission(&self, request: PermissionRequest) -> BoxFuture<'_, PermissionAnswer>;

    /// Asks the user a question of the model's, in whatever way the client can show it. Dropping
    /// the future withdraws the question.
    fn ask_user(&self, question: UserQuestion) -> BoxFuture<'_, UserReply>;

    /// Shows the conversation of a helper as a session of its own, below this one, if the client can.
    fn show_helper(&self, _helper: &StartedHelper) -> Option<Box<dyn HelperView>> {
        None
    }

    /// The kinds of questions that [`Client::show_form`] can show.
    fn elicitation_modes(&self) -> ElicitationModes {
        ElicitationModes::default()
    }

    /// Shows a form or the address of a page for an MCP server. Dropping the future withdraws it.
    fn show_form(&self, _form: ServerForm) -> BoxFuture<'_, FormOutcome> {
        Box::pin(std::future::ready(FormOutcome::Declined))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConnection {
    /// Identifies it within this process. Without a listener there is only 0.
    pub number: u64,
    /// True if it speaks version 2 of the protocol.
    pub is_v2: bool,
}

/// A helper that a client may show.
#[derive(Clone, Debug)]
pub struct StartedHelper {
    /// The session that keeps its conversation.
    pub session: SessionId,
    /// Its type, and the task in a few words.
    pub title: String,
    /// The purpose of its type, or the task in a few words.
    pub description: String,
    /// The task as the helper gets it.
    pub task: String,
    /// True if no call waits for it.
    pub in_background: bool,
}

/// The conversation of a helper, as the client shows it.
pub trait HelperView: Send + Sync {
    /// Sends an update of the conversation.
    fn update(&mut self, update: Update);
    /// Shows that the helper waits for the user, or no longer does.
    fn set_waiting(&self, is_waiting: bool);
    /// Shows that the helper has ended, with the answer for the session if there is one, or has failed for this reason.
    /// Nothing follows.
    fn end(&self, end: Result<StopReason, String>, answer: Option<&str>);
}

/// The kinds of an MCP server's questions that a client can show to its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElicitationModes {
    /// A form.
    pub form: bool,
    /// The address of a page that the user may visit.
    pub url: bool,
}

/// A form that an MCP server asks the user to fill in, or a page that it asks them to visit (an elicitation).
#[derive(Clone, Debug, PartialEq)]
pub struct ServerForm {
    /// The call during which the server asks; `None` while it makes the user's prompt.
    pub call: Option<CallId>,
    /// The text above the form, which names the server.
    pub message: String,
    /// The fields, as a flat JSON Schema of an object. There are none for a page.
    pub schema: Value,
    /// The address of the page. It is ASCII, and nobody but the user opens it.
    pub page: Option<String>,
    /// True if it is for a helper in the background, for which no call waits.
    pub in_background: bool,
}

/// The user's response to a [`ServerForm`].
#[derive(Clone, Debug, PartialEq)]
pub enum FormOutcome {
    /// The values as the client sent them, not yet checked against the schema.
    Accepted(Value),
    /// The user declined, or the client cannot show the form.
    Declined,
    /// The form was withdrawn.
    Cancelled,
}

/// The key in the `_meta` of a question to an editor that stands for [`PermissionRequest::is_bounded`].
pub const IS_BOUNDED: &str = "turnwright/bounded";

/// A question to the user whether a tool call may run.
#[derive(Clone, Debug, PartialEq)]
pub struct PermissionRequest {
    /// The call, which the client has been told of already.
    pub call: CallId,
    /// The tool name.
    pub name: String,
    pub view: CallView,
    /// The real diff, or whatever else helps to decide.
    pub content: Vec<CallContent>,
    /// The arguments of the call.
    pub raw_input: Value,
    /// The first choice allows the call once.
    pub choices: Vec<PermissionChoice>,
    /// True if the mode `auto` would not have asked: the project's folders and the sandbox bound what
    /// the call can do.
    pub is_bounded: bool,
    /// True if a helper in the background asks, for which no call waits.
    pub in_background: bool,
}

/// One possible answer to a [`PermissionRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionChoice {
    pub kind: ChoiceKind,
    /// The label of the button.
    pub name: String,
}

/// The scope and the duration of a permission choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceKind {
    AllowOnce,
    /// Also allows everything that the choice's name describes, for the rest of the session.
    AllowSession,
    /// Like `AllowSession`, but for every command. It gives access and permits no command to run.
    AllowSessionForAll,
    /// Also allows every command that the mode `auto` would run in the sandbox, for the rest of the session.
    AllowAllCommands,
    RejectOnce,
    /// Also rejects exactly the same call for the rest of the session.
    RejectSession,
}

/// The client's answer to a [`PermissionRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionAnswer {
    /// One of the offered choices.
    Chosen(ChoiceKind),
    /// The client withdrew the question, usually because the turn is being cancelled.
    Cancelled,
    /// Anything else: an error, a choice that was not offered, no answer at all. It never counts as
    /// permission (R-PERM-6).
    Unclear(String),
}

/// A question of the model to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserQuestion {
    /// The tool call that asks.
    pub call: CallId,
    pub question: String,
    /// The possible answers; empty if the user is to answer in free text.
    pub options: Vec<String>,
    /// True if the user may choose several options.
    pub allows_multiple: bool,
    /// True if the user may also answer in words of their own, or add some to an option.
    pub allows_text: bool,
}

/// The user's answer to a [`UserQuestion`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserReply {
    /// The chosen options, and the free text last.
    Answered(Vec<String>),
    /// The user does not want to answer.
    Declined,
    /// The question was withdrawn, usually because the turn is being cancelled.
    Cancelled,
    /// The client cannot show such a question, or its answer was malformed. The question is to be
    /// asked in the conversation, so that the next prompt is the answer.
    InConversation,
    /// There is no conversation in which it could be asked.
    Unsupported,
}

/// The client's own terminals, in which it runs commands (R-TERM-1…7).
pub trait ClientTerminals: Send + Sync + 'static {
    /// Runs a program in a new terminal.
    fn create(&self, command: TerminalCommand) -> BoxFuture<'_, Result<TerminalId, TerminalError>>;
    /// Returns the output so far, and the exit status if the program has ended.
    fn output(&self, id: TerminalId) -> BoxFuture<'_, Result<TerminalOutput, TerminalError>>;
    /// Waits for the program to end.
    fn wait(&self, id: TerminalId) -> BoxFuture<'_, Result<TerminalExit, TerminalError>>;
    /// Kills the program; the terminal stays.
    fn kill(&self, id: TerminalId) -> BoxFuture<'_, Result<(), TerminalError>>;
    /// Releases the terminal and kills what runs in it, without waiting for the client's response.
    fn release(&self, id: TerminalId);
}

/// A program to run in one of the client's terminals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalCommand {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Variables to set in addition to the client's own.
    pub env: Vec<(String, String)>,
    /// Absolute.
    pub workdir: PathBuf,
    /// The client keeps only this many bytes at the end of the output.
    pub output_byte_limit: u64,
}

/// The output of a client terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalOutput {
    pub text: String,
    /// True if the beginning of the output is missing.
    pub truncated: bool,
    /// `None` while the program runs.
    pub exit: Option<TerminalExit>,
}

/// How a program in a client terminal ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalExit {
    /// `None` if a signal ended the program, or if the client does not say.
    pub code: Option<u32>,
    /// The signal that ended the program.
    pub signal: Option<String>,
}

/// Why a request about a client terminal failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TerminalError {
    /// The user, or a setting of the client, has refused the command. It must not run elsewhere.
    #[error("the editor refused: {0}")]
    Denied(String),
    #[error("the editor's terminal: {0}")]
    Failed(String),
}

/// The client's files, including the unsaved changes of open ones. `initialize` fixes whether they can
/// be read and written (R-FS-1).
pub trait EditorBuffers: Send + Sync + 'static {
    fn can_read(&self) -> bool;
    fn can_write(&self) -> bool;
    /// Returns the whole text of a file.
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<String, BufferError>>;
    /// Replaces the whole text of a file.
    fn write<'a>(&'a self, path: &'a Path, text: &'a str)
    -> BoxFuture<'a, Result<(), BufferError>>;
}

/// Why the client did not read or write a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BufferError {
    #[error("the editor has no such file")]
    NotFound,
    /// With the client's explanation. What a client refuses is not done in another way.
    #[error("the editor refused: {}", text::first_chars(.0, 1_000))]
    Refused(String),
    /// The client failed, or its answer has no content.
    #[error("the editor failed: {}", text::first_chars(.0, 1_000))]
    Failed(String),
    #[error("the editor did not answer")]
    TimedOut,
}
