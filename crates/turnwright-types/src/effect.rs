//! What a tool call looks like and what it may touch: the words that tools, permission and the
//! client's cards have in common.

mod secrets;

use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use secrets::is_secret;

use crate::ids::TerminalId;
use crate::message::Media;

/// Something a call may do to the world. Permission judges these, never tool names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Reads a file or a folder.
    Read(Target),
    /// Creates or changes a file.
    Write(Target),
    /// Removes a file or a folder.
    Delete(Target),
    /// Runs a shell command. What it writes by redirecting stands beside it as [`Effect::Write`].
    Exec(Box<Command>),
    /// Gives input to a command that runs already. What it does with it nobody knows: it may be a
    /// shell.
    Input {
        /// The job.
        job: String,
        /// It runs outside of the sandbox.
        is_open: bool,
    },
    /// Sends a signal to a command that runs already.
    Signal {
        /// The job.
        job: String,
    },
    /// Asks a server on the network for something. The address alone tells it something.
    Fetch {
        /// Its name or address, in lower case, with the port if that is not the usual one.
        host: String,
    },
    /// Calls a tool of an MCP server. What that does nobody knows but the server.
    Remote(Box<RemoteCall>),
    /// Changes nothing outside the session, such as the plan.
    Session,
}

/// A call of a tool that somebody else's program offers. Two are the same when they are for the same
/// tool as it is now, whatever was said yes to before.
#[derive(Clone, Debug)]
pub struct RemoteCall {
    /// The server's name, as the user or the editor has given it.
    pub server: String,
    /// The tool's own name.
    pub tool: String,
    /// What stands behind the server's name: a digest of its program or address.
    pub identity: String,
    /// A digest of all that the tool says of itself now.
    pub content: String,
    /// It says of itself that it only reads. Nobody has to believe that.
    pub claims_to_read: bool,
    /// What is different since the user has said yes to it: then that yes was for something else.
    pub change: Option<String>,
}

impl RemoteCall {
    fn what(&self) -> (&str, &str, &str, &str, bool) {
        (&self.server, &self.tool, &self.identity, &self.content, self.claims_to_read)
    }
}

impl PartialEq for RemoteCall {
    fn eq(&self, other: &RemoteCall) -> bool {
        self.what() == other.what()
    }
}

impl Eq for RemoteCall {}

impl Hash for RemoteCall {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.what().hash(state);
    }
}

/// A shell command with all that decides whether it may run. What was judged is what runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    /// The whole command line.
    pub line: String,
    /// The folder it starts in, absolute.
    pub workdir: PathBuf,
    /// What it wants beyond the sandbox.
    pub reach: Reach,
    /// What its words name as something to read, as far as that is known.
    pub reads: Vec<Target>,
    /// Why its words do not tell all: a repository, say, whose settings start programs.
    pub doubt: Option<String>,
}

impl Command {
    /// A command of which nothing is known but its words.
    pub fn new(line: impl Into<String>, workdir: impl Into<PathBuf>) -> Command {
        Command {
            line: line.into(),
            workdir: workdir.into(),
            reach: Reach::Usual,
            reads: Vec::new(),
            doubt: None,
        }
    }
}

/// What a command may reach beyond what the sandbox usually leaves it. More than usual is always
/// asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reach {
    /// No more.
    #[default]
    Usual,
    /// The network.
    Network,
    /// One more file or folder to write.
    Write(Target),
    /// Everything: no sandbox.
    Full,
}

/// A place in the file system, with every symbolic link resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The real path. It need not exist.
    pub path: PathBuf,
    /// Whether it lies in one of the session's folders.
    pub place: Place,
}

/// Where a path lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In one of the session's folders.
    Inside,
    /// In a folder of ours that the session may read, such as the one for its long outputs.
    Ours,
    /// Anywhere else.
    Outside,
}

/// The sort of a tool, which clients show as an icon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Reads.
    Read,
    /// Changes files.
    Edit,
    /// Removes files.
    Delete,
    /// Moves or renames files.
    Move,
    /// Looks for something in many files.
    Search,
    /// Gets something from the network.
    Fetch,
    /// Runs a command.
    Execute,
    /// Works for the model itself.
    Think,
    /// None of these.
    Other,
}

/// How a call looks before it has run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct CallView {
    /// Verb and object in one line; for a command, the whole command.
    pub title: String,
    /// The sort.
    pub kind: Kind,
    /// The files it is about, absolute.
    pub locations: Vec<Location>,
}

/// A place that a client can follow.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Location {
    /// Absolute.
    #[serde(with = "lossy")]
    pub path: PathBuf,
    /// Counted from 1.
    pub line: Option<u32>,
}

/// What a card shows below its title.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Text.
    Text(String),
    /// A change to one file.
    Diff {
        /// Absolute.
        #[serde(with = "lossy")]
        path: PathBuf,
        /// The content before, `None` for a new file.
        old: Option<String>,
        /// The content after.
        new: String,
    },
    /// A picture.
    Image(Media),
    /// What a command prints, live, in a terminal that the client shows.
    Terminal(TerminalId),
}

/// A path that is only shown: bytes that are no UTF-8 are shown by a mark.
mod lossy {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&path.to_string_lossy())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        String::deserialize(from).map(PathBuf::from)
    }
}

/// Whether a character cannot be seen, or hides what is beside it. Ends of lines and tabs are blanks.
pub fn hides(char: char) -> bool {
    char.is_control() && char != '\n' && char != '\t'
        || matches!(
            char,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{180e}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{3164}'
                | '\u{ffa0}'
                | '\u{e0000}'..='\u{e007f}'
        )
        || matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A command or a path with what could hide a part of it made visible: control characters, and
/// those that change the direction of writing.
pub fn visible(hidden: &str) -> String {
    let mut text = String::with_capacity(hidden.len());
    for char in hidden.chars() {
        if hides(char) {
            text.push_str(&format!("\\u{{{:x}}}", u32::from(char)));
        } else {
            text.push(char);
        }
    }
    text
}

/// The same in one line, for names of files and tools.
pub fn visible_line(name: &str) -> String {
    visible(name).replace('\n', "\\n").replace('\t', "\\t")
}

/// A text of several lines with nothing in it that a terminal would obey: control characters are
/// shown by their pictures (`␛`), lines keep their ends.
pub fn plain(text: String) -> String {
    let obeys = |it: char| it.is_control() && it != '\n' && it != '\t';
    if !text.contains(obeys) {
        return text;
    }
    let mut plain = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            // The end of a line, or of a piece that may have been cut there.
            '\r' if matches!(chars.peek(), Some('\n') | None) => {}
            '\u{7f}' => plain.push('\u{2421}'),
            '\u{80}'..='\u{9f}' => plain.push('\u{fffd}'),
            char if obeys(char) => {
                plain.extend(char::from_u32(u32::from(char) + 0x2400));
            }
            char => plain.push(char),
        }
    }
    plain
}

/// Characters of a title that is no command.
pub const LONGEST_TITLE: usize = 120;

/// A title that is short enough for one line of a card.
pub fn short_title(mut title: String) -> String {
    if let Some((end, _)) = title.char_indices().nth(LONGEST_TITLE) {
        title.truncate(end);
        title.pop();
        title.push('…');
    }
    title
}

/// Text in a fence that it cannot close, so that nothing in it passes for words of ours.
pub fn fenced(text: &str) -> String {
    let longest = text.split(|it| it != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(longest + 1));
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_cannot_be_left_and_a_name_is_one_line() {
        assert_eq!(fenced("a\n```\nb"), "````\na\n```\nb\n````");
        assert_eq!(visible_line("a\n\u{202e}b"), "a\\n\\u{202e}b");
    }

    #[test]
    fn a_terminal_obeys_nothing_in_a_plain_text() {
        let table = [
            ("a\tb\r\nc\n", "a\tb\nc\n"),
            ("\u{1b}]0;title\u{7}\u{1b}[31mred", "␛]0;title␇␛[31mred"),
            ("a\rb\r", "a␍b"),
            ("\u{9b}31m\u{7f}\0", "\u{fffd}31m␡␀"),
            ("👩\u{200d}💻 é", "👩\u{200d}💻 é"),
        ];
        for (text, expected) in table {
            assert_eq!(plain(text.to_owned()), expected);
        }
    }

    #[test]
    fn nothing_in_a_command_can_hide() {
        assert_eq!(visible("ls\n\trm"), "ls\n\trm");
        assert_eq!(visible("a\u{202e}b\r\u{1b}[2Kc"), "a\\u{202e}b\\u{d}\\u{1b}[2Kc");
    }
}
