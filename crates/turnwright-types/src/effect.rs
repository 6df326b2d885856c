//! The effects of a tool call ([`Effect`]) and its presentation by a client ([`CallView`], [`CallContent`]), with
//! helpers that make untrusted text safe to show.

mod moved_places;
mod secrets;

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

pub use moved_places::{MovedPlace, moved_places};
pub use secrets::{
    CONTAINER_SECRETS, build_credential_paths, credential_paths, is_secret_folder, is_secret_path,
    secret_names_may_end_with,
};

use crate::ids::{SessionId, TerminalId};
use crate::message::Media;
use crate::shell_script::Script;
use crate::text;

/// Something a tool call may do outside the conversation. Permission rules judge effects, never tool
/// names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Reads a file or a folder.
    Read(ResolvedPath),
    /// Creates or changes a file.
    Write(ResolvedPath),
    /// Removes a file or a folder.
    Delete(ResolvedPath),
    /// Runs a shell command. Files that it writes by redirection are separate [`Effect::Write`]s.
    Exec(Box<ShellCommand>),
    /// Writes to the stdin of a running command. The effect of that is unknown: the command may be
    /// a shell.
    Input {
        job: String,
        /// True if the command runs outside the sandbox.
        is_unsandboxed: bool,
        /// True if it was started with more access than the sandbox gives.
        has_extra_access: bool,
    },
    /// Sends a signal to a running command.
    Signal { job: String },
    /// Requests a URL. The address alone may already disclose something to the host.
    Fetch {
        /// The host name or address in lower case, with the port if it is not the scheme's default.
        host: String,
    },
    /// Searches the web. The service learns what is searched for.
    Search {
        /// The name of the service.
        backend: String,
    },
    /// Calls a tool of an MCP server. Only the server knows what that does.
    Remote(Box<RemoteCall>),
    /// Changes only state of the session, such as the plan.
    SessionState,
}

impl Effect {
    /// The command that it runs.
    pub fn command(&self) -> Option<&ShellCommand> {
        match self {
            Effect::Exec(command) => Some(command),
            _ => None,
        }
    }

    /// The file that the effect creates or changes, if it is one of writing.
    pub fn written(&self) -> Option<&ResolvedPath> {
        match self {
            Effect::Write(target) => Some(target),
            _ => None,
        }
    }
}

/// A call of an MCP server's tool. Two calls are equal if they are for the same tool with the same
/// definition; `change_since_approval` is not compared.
#[derive(Clone, Debug)]
pub struct RemoteCall {
    /// The name that the user's settings or the editor gave the server.
    pub server: String,
    /// The tool's name on the server.
    pub tool: String,
    /// A digest of the server's program or address.
    pub server_digest: String,
    /// A digest of the tool's current definition.
    pub tool_digest: String,
    /// True if the tool is annotated as read-only. The claim is not verified.
    pub claims_read_only: bool,
    /// The change of the tool's definition since the user approved it. If set, the approval
    /// does not cover the current definition.
    pub change_since_approval: Option<String>,
}

impl RemoteCall {
    fn compared_fields(&self) -> (&str, &str, &str, &str, bool) {
        (&self.server, &self.tool, &self.server_digest, &self.tool_digest, self.claims_read_only)
    }
}

impl PartialEq for RemoteCall {
    fn eq(&self, other: &RemoteCall) -> bool {
        self.compared_fields() == other.compared_fields()
    }
}

impl Eq for RemoteCall {}

impl Hash for RemoteCall {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.compared_fields().hash(state);
    }
}

/// A shell command with everything that decides whether it may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShellCommand {
    /// The whole command line.
    pub line: String,
    /// The same line, parsed.
    pub script: Arc<Script>,
    /// Absolute.
    pub workdir: PathBuf,
    /// The access that it requests beyond the sandbox's.
    pub extra_access: ExtraAccess,
    /// The files that its arguments are known to read.
    pub reads: Vec<ResolvedPath>,
    /// Files at and below the paths in its arguments that it would change or move, as far as rules
    /// restrict that. Redirects are effects of their own.
    pub changes: Vec<ResolvedPath>,
    /// Files of the project that may hold secrets, are not empty, and may be replaced by its redirects.
    pub overwrites: Vec<ResolvedPath>,
    /// True if one of its programs may replace such a file, whose name it is given.
    pub replaces_secret: bool,
    /// The files that it edits or copies, if it does nothing else but read.
    pub edits: Option<Vec<ResolvedPath>>,
    /// True if it runs git in a repository whose remotes are reached with SSH, and needs them.
    pub has_ssh_remote: bool,
    /// Why the command line does not tell everything that the command may do, for example because
    /// a repository's configuration starts programs.
    pub uncertainty: Option<Uncertainty>,
}

/// Why a command may do more than its words say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uncertainty {
    /// It completes a sentence that begins with "because".
    pub reason: String,
    /// True if all that it may do besides is to run programs, which the sandbox confines like any other.
    pub only_runs_programs: bool,
}

impl From<String> for Uncertainty {
    /// Something that a sandbox does not prevent.
    fn from(reason: String) -> Uncertainty {
        Uncertainty { reason, only_runs_programs: false }
    }
}

impl ShellCommand {
    /// Creates a command about which only its line and folder are known. `script` is the
    /// parsed line.
    pub fn new(
        line: impl Into<String>,
        workdir: impl Into<PathBuf>,
        script: Arc<Script>,
    ) -> ShellCommand {
        ShellCommand {
            line: line.into(),
            script,
            workdir: workdir.into(),
            ..ShellCommand::default()
        }
    }
}

/// Access that a command requests beyond what the sandbox allows. The user is asked about anything that they have not
/// allowed for the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtraAccess {
    /// Using the network.
    pub network: bool,
    /// Writing more files or folders.
    pub writes: Vec<ResolvedPath>,
    /// Tracing and debugging its own processes.
    pub debug: bool,
    /// Having git's commits and tags signed with the user's key.
    pub sign: bool,
    /// Addresses to which it may connect, also on the machine itself.
    pub connects: Vec<SocketAddr>,
    /// Ports of the session that the user's own programs may reach.
    pub publishes: Vec<u16>,
    /// Running without the sandbox, which includes everything else.
    pub unsandboxed: bool,
}

impl ExtraAccess {
    /// The network and nothing else.
    pub fn network() -> ExtraAccess {
        ExtraAccess { network: true, ..ExtraAccess::default() }
    }

    /// No sandbox.
    pub fn unsandboxed() -> ExtraAccess {
        ExtraAccess { unsandboxed: true, ..ExtraAccess::default() }
    }

    /// Signing and nothing else.
    pub fn sign() -> ExtraAccess {
        ExtraAccess { sign: true, ..ExtraAccess::default() }
    }

    /// Returns true if it requests nothing.
    pub fn is_none(&self) -> bool {
        *self == ExtraAccess::default()
    }

    /// The part of it that `allowed` does not include.
    #[must_use]
    pub fn beyond(&self, allowed: &ExtraAccess) -> ExtraAccess {
        ExtraAccess {
            network: self.network && !allowed.network,
            writes: missing_in(&self.writes, &allowed.writes),
            debug: self.debug && !allowed.debug,
            sign: self.sign && !allowed.sign,
            connects: missing_in(&self.connects, &allowed.connects),
            publishes: missing_in(&self.publishes, &allowed.publishes),
            unsandboxed: self.unsandboxed && !allowed.unsandboxed,
        }
    }
}

/// The items that are not among others.
fn missing_in<T: Clone + PartialEq>(items: &[T], others: &[T]) -> Vec<T> {
    items.iter().filter(|item| !others.contains(item)).cloned().collect()
}

/// A path with every symbolic link resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResolvedPath {
    /// The real path, which need not exist.
    pub path: PathBuf,
    pub scope: PathScope,
}

/// Where a path lies in relation to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathScope {
    /// In one of the session's folders.
    Workspace,
    /// In one of the agent's own folders that the session may read, such as the one for long
    /// outputs.
    AgentData,
    /// In the folder that the session's commands have as `/tmp`.
    PrivateTmp {
        /// The number of path components that lead to that folder.
        depth: usize,
    },
    /// Anywhere else.
    Outside,
}

impl ResolvedPath {
    /// The path under which commands in the sandbox see it: files in their `/tmp` have another name there.
    pub fn name_for_commands(&self) -> Cow<'_, Path> {
        let PathScope::PrivateTmp { depth } = self.scope else {
            return Cow::Borrowed(&self.path);
        };
        let mut path = PathBuf::from("/tmp");
        path.extend(self.path.components().skip(depth));
        Cow::Owned(path)
    }
}

/// The kind of a tool, which clients show as an icon. The variants are ACP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    /// Moves or renames files.
    Move,
    /// Searches many files.
    Search,
    /// Fetches something from the network.
    Fetch,
    /// Runs a command.
    Execute,
    /// Serves the model's own reasoning, such as a plan.
    Think,
    /// Asks the user for another mode.
    SwitchMode,
    Other,
}

/// The head of a call's card in the client: its title, icon and files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct CallView {
    /// A verb and an object in one line, or a whole command.
    pub title: String,
    pub kind: ToolKind,
    pub locations: Vec<Location>,
}

impl CallView {
    /// The head of a card without files.
    pub fn new(title: impl Into<String>, kind: ToolKind) -> CallView {
        CallView { title: title.into(), kind, locations: Vec::new() }
    }
}

/// A file, or a line in it, that the client can open.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Location {
    /// Absolute.
    #[serde(serialize_with = "lossy_path")]
    pub path: PathBuf,
    /// 1-based.
    pub line: Option<u32>,
}

/// The fate of a file in a change, besides its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFate {
    /// It is written where it is.
    #[default]
    Kept,
    Deleted,
    /// It was at this absolute path before.
    MovedFrom(#[serde(serialize_with = "lossy_path")] PathBuf),
}

impl FileFate {
    fn is_kept(&self) -> bool {
        *self == FileFate::Kept
    }
}

/// Serializes a path that is only displayed: bytes that are not UTF-8 become U+FFFD.
fn lossy_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// Content of a call's card, below its title.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallContent {
    Text(String),
    /// A change to one file.
    Diff {
        /// Absolute.
        #[serde(serialize_with = "lossy_path")]
        path: PathBuf,
        /// The old content; `None` for a new file.
        old: Option<String>,
        /// The new content; empty if there is no file any more.
        new: String,
        #[serde(default, skip_serializing_if = "FileFate::is_kept")]
        fate: FileFate,
    },
    Image(Media),
    /// The live output of a command, in a terminal that the client shows.
    Terminal(TerminalId),
    /// The session of a helper that works for the call. It is not stored.
    Session(SessionId),
}

/// True for characters that are invisible or that hide their neighbours, such as control characters
/// and bidirectional overrides. Line feeds and tabs count as visible.
pub fn is_hidden_char(char: char) -> bool {
    char.is_control() && char != '\n' && char != '\t'
        || matches!(
            char,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{3164}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                // Tags and variation selectors, in which any text can be hidden. Emoji need only the last two selectors.
                | '\u{fe00}'..='\u{fe0d}'
                | '\u{e0000}'..='\u{e0fff}'
        )
        || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Replaces the hidden characters of a command or a path with `\u{…}` escapes, so that no part of it
/// can be concealed from the user.
pub fn escape_hidden(hidden: &str) -> String {
    let mut text = String::with_capacity(hidden.len());
    for char in hidden.chars() {
        if is_hidden_char(char) {
            text.push_str(&format!("\\u{{{:x}}}", u32::from(char)));
        } else {
            text.push(char);
        }
    }
    text
}

/// Like [`escape_hidden`], and also escapes line feeds and tabs. For names of files and tools.
pub fn escape_hidden_line(name: &str) -> String {
    escape_hidden(name).replace('\n', "\\n").replace('\t', "\\t")
}

/// Returns the name that [`escape_hidden_line`] shows as `shown`; `None` if there are no escapes in it.
pub fn unescape_hidden_line(shown: &str) -> Option<String> {
    let mut parts = shown.split('\\');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let code = part.strip_prefix("u{").and_then(|rest| rest.split_once('}'));
        let number = code.and_then(|code| u32::from_str_radix(code.0, 16).ok());
        let (char, rest) =
            match (number.and_then(char::from_u32).zip(code), part.split_at_checked(1)) {
                (Some((char, (_, rest))), _) => (char, rest),
                (None, Some(("n", rest))) => ('\n', rest),
                (None, Some(("t", rest))) => ('\t', rest),
                _ => ('\\', part),
            };
        name.push(char);
        name.push_str(rest);
    }
    (name != shown).then_some(name)
}

/// Replaces the control characters of a text with their Unicode control pictures (`␛`), so that a
/// terminal does not interpret them. Line ends and tabs are kept.
pub fn terminal_safe(text: String) -> String {
    // The controls that are not ASCII begin with 0xc2.
    let may_have_controls = text
        .bytes()
        .any(|byte| byte < b' ' && byte != b'\n' && byte != b'\t' || byte == 0x7f || byte == 0xc2);
    if !may_have_controls || !text.contains(is_unsafe_control) {
        return text;
    }
    let mut safe = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            // Part of a CRLF, whose line feed may have been cut off with the rest of the text.
            '\r' if matches!(chars.peek(), Some('\n') | None) => {}
            '\u{7f}' => safe.push('\u{2421}'),
            '\u{80}'..='\u{9f}' => safe.push('\u{fffd}'),
            char if is_unsafe_control(char) => {
                safe.extend(char::from_u32(u32::from(char) + 0x2400));
            }
            char => safe.push(char),
        }
    }
    safe
}

fn is_unsafe_control(char: char) -> bool {
    char.is_control() && char != '\n' && char != '\t'
}

/// Maximum length of a title, except for titles that are commands.
pub const MAX_TITLE_CHARS: usize = 120;

/// Cuts a title that is too long for one line of a card.
pub fn shorten_title(title: String) -> String {
    text::clip_within(title, MAX_TITLE_CHARS)
}

/// Puts text into a Markdown code fence that is too long for the text to close, so that nothing in it
/// can pass for our own words.
pub fn fenced(text: &str) -> String {
    let fence = "`".repeat(text::longest_backtick_run(text).max(2) + 1);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

/// A command in a code fence, for a card. The language keeps a client that shows the title separately
/// from dropping the block as a repetition.
pub fn fenced_command(command: &str) -> String {
    fenced(command).replacen('\n', "console\n", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_close_its_fence_and_an_escaped_name_is_one_line() {
        assert_eq!(fenced("a\n```\nb"), "````\na\n```\nb\n````");
        assert_eq!(fenced("```\n~~~~~~"), "````\n```\n~~~~~~\n````");
        assert_eq!(escape_hidden_line("a\n\u{202e}b"), "a\\n\\u{202e}b");
    }

    #[test]
    fn control_characters_become_pictures() {
        let table = [
            ("a\tb\r\nc\n", "a\tb\nc\n"),
            ("\u{1b}]0;title\u{7}\u{1b}[31mred", "␛]0;title␇␛[31mred"),
            ("a\rb\r", "a␍b"),
            ("\u{9b}31m\u{7f}\0", "\u{fffd}31m␡␀"),
            ("👩\u{200d}💻 é", "👩\u{200d}💻 é"),
        ];
        for (text, expected) in table {
            assert_eq!(terminal_safe(text.to_owned()), expected);
        }
    }

    #[test]
    fn hidden_characters_of_a_command_are_escaped() {
        assert_eq!(escape_hidden("ls\n\trm"), "ls\n\trm");
        assert_eq!(escape_hidden("a\u{202e}b\r\u{1b}[2Kc"), "a\\u{202e}b\\u{d}\\u{1b}[2Kc");
        // Text in variation selectors, which a program decodes and runs.
        for hidden in ["\u{e0100}", "\u{e01ef}", "\u{e0041}", "\u{fe00}", "\u{206a}", "\u{1d173}"] {
            assert!(escape_hidden(&format!("eval(\"{hidden}\")")).contains("\\u{"), "{hidden:?}");
        }
        assert_eq!(escape_hidden("❤\u{fe0f} ☎\u{fe0e}"), "❤\u{fe0f} ☎\u{fe0e}");
    }
}
