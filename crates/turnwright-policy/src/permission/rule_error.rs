//! The errors in the text of a rule.

use super::command_words::MAX_WORDS;
use super::rule_parser::{MAX_RULE_BYTES, TOOLS};

/// An error in the text of a rule or a glob. The message stands after the rule and a colon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The rule is too long.
    #[error("it is longer than {MAX_RULE_BYTES} bytes")]
    TooLong,
    /// The bracket after the tool is not closed, or something follows the closing bracket.
    #[error("it does not end with `)`")]
    UnclosedBracket,
    /// There is no such tool.
    #[error("unknown tool; the tools are {}", TOOLS.join(", "))]
    UnknownTool,
    /// The brackets after this tool are empty.
    #[error("the brackets are empty; `{0}` alone means everything")]
    EmptyBrackets(String),
    /// `=` is followed by something other than a complete command.
    #[error("`=` must be followed by all words of the command, without `*`")]
    IncompleteExactCommand,
    /// The first word of a command is empty.
    #[error("the name of the program is empty")]
    EmptyProgram,
    /// This word of a command contains a `*` but is not a lone `*` at the end.
    #[error("`{0}`: `*` must be a separate word at the end; quote it to match it literally")]
    MisplacedStar(String),
    /// A command has too many words, or one of them contains a control character.
    #[error("it has more than {MAX_WORDS} words, or a control character")]
    InvalidWords,
    /// A quote in a command is not closed.
    #[error("a quote is not closed")]
    UnclosedQuote,
    /// A command ends with a backslash that escapes nothing.
    #[error("it ends with a backslash")]
    FinalBackslash,
    /// A rule about hosts does not have the form `fetch(domain:HOST)`.
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
    /// A glob starts with `~`, `!` or, on Windows, a drive.
    #[error(
        "a glob must not start with `~`, `!` or a drive, except for `~/`, the home folder, and `//C:/`"
    )]
    InvalidGlobStart,
    /// A backslash in a glob precedes a letter or digit, as in a Windows path.
    #[error(
        "folders are separated by `/`, also on Windows; `\\` makes a wildcard an ordinary character"
    )]
    Backslash,
    /// A glob is empty.
    #[error("it is empty")]
    EmptyGlob,
    /// A glob can never match, because of one of its parts.
    #[error("a part is empty, `.` or `..`, which never matches")]
    UnmatchablePart,
    /// The wildcards of a glob cannot be parsed. Contains the reason.
    #[error("{0}")]
    InvalidGlob(String),
}
