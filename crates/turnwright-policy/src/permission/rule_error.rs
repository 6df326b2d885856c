//! The errors in the text of a rule.

use super::command_words::MAX_WORDS;
use super::rule_parser::{MAX_RULE_BYTES, TOOLS};

/// An error in the text of a rule, or of a glob. The text completes a sentence about the rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The rule is very long.
    #[error("it is longer than {MAX_RULE_BYTES} bytes")]
    TooLong,
    /// The bracket after the tool is not closed, or something follows it.
    #[error("it does not end with `)`")]
    UnclosedBracket,
    /// There is no such tool.
    #[error("unknown tool; the tools are {}", TOOLS.join(", "))]
    UnknownTool,
    /// Nothing is in the brackets after this tool.
    #[error("the brackets are empty; `{0}` alone means everything")]
    EmptyBrackets(String),
    /// `=` stands before something else than a complete command.
    #[error("`=` must be followed by all words of the command, without `*`")]
    IncompleteExactCommand,
    /// The first word of a command is empty.
    #[error("the name of the program is empty")]
    EmptyProgram,
    /// This word of a command contains `*`.
    #[error("`{0}`: `*` must be a separate word at the end; quote it to match it literally")]
    MisplacedStar(String),
    /// A command has too many words or a control character.
    #[error("it has more than {MAX_WORDS} words, or a control character")]
    TooManyWords,
    /// A quote in a command has no end.
    #[error("a quote is not closed")]
    UnclosedQuote,
    /// A command ends with a backslash that escapes nothing.
    #[error("it ends with a backslash")]
    FinalBackslash,
    /// A rule about hosts has another form than `fetch(domain:HOST)`.
    #[error("it must have the form `fetch(domain:HOST)`")]
    NoDomain,
    /// The host is not valid.
    #[error("not a valid host")]
    InvalidHost,
    /// The name of a server, tool, skill or agent is not valid.
    #[error("a name is empty or contains `/` or a control character")]
    InvalidName,
    /// A glob contains a control character.
    #[error("it contains a control character")]
    ControlCharacter,
    /// A glob starts with `~` or `!`.
    #[error(
        "a glob must not start with `~`, `!` or a drive, except for `~/`, the home folder, and `//C:/`"
    )]
    InvalidGlobStart,
    /// A backslash in a glob stands before a character that needs none, as between folders of Windows.
    #[error(
        "folders are separated by `/`, also on Windows; `\\` makes a wildcard an ordinary character"
    )]
    Backslash,
    /// A glob is empty.
    #[error("it is empty")]
    EmptyGlob,
    /// A glob can never match because of one of its parts.
    #[error("a part is empty, `.` or `..`, which never matches")]
    UnmatchablePart,
    /// The wildcards of a glob cannot be parsed, for this reason.
    #[error("{0}")]
    InvalidGlob(String),
}
