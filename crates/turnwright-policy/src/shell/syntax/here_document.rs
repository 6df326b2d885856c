//! Who reads a here-document: a shell, which runs it, or a program for which it is data.

use super::super::harm::ruin::is_shell_with_input;
use super::super::programs::{Starts, WordList, is_in};
use super::super::{SimpleCommand, Word, args, programs};

/// The use that a program makes of a here-document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::shell) enum Reader {
    /// It is text, or a program in another language.
    Data,
    Unknown,
    /// It is run as a shell script.
    Shell,
}

/// Programs that take their input for data or for a program in another language, besides those that only
/// read.
const TAKE_DATA: WordList = "awk bc black cat clang-format curl dd docker-compose gawk gh git glab gofmt gpg \
    iconv jq kubectl mail mapfile mariadb mysql node openssl pandoc patch perl php prettier psql python \
    python2 python3 read readarray ruby rustfmt sed sponge sqlite3 tar tee tr wget yq";

/// The strictest reader among the commands of a line and the commands that it is an argument of.
pub(in crate::shell) fn reader<'a>(
    commands: &[SimpleCommand],
    around: impl Iterator<Item = (&'a [Word], Option<&'a Word>)>,
) -> Reader {
    let by_commands = commands.iter().map(reader_of).max().unwrap_or(Reader::Unknown);
    by_commands
        .max(around.map(|frame| reader_around(frame.0, frame.1)).max().unwrap_or(Reader::Data))
}

/// True for a command that may run text which another one has stored or passed on: a shell, `eval`, or a program
/// whose name is not known.
pub(super) fn runs_text(command: &SimpleCommand) -> bool {
    let name = args::name(command.program());
    let is_unknown = command.program().contains('$') || command.program().is_empty();
    !command.words.is_empty()
        && (name == "eval"
            || is_unknown
            || programs::names_client(command)
            || programs::find(name).starts == Starts::Shell
            || is_shell_with_input(command))
}

/// The text that `$(cat <<'END' …)` prints, and the length of the whole, which `text` begins with. `None` if it is
/// expanded, or if some shell may find another end.
pub(super) fn printed_by_cat(text: &str) -> Option<(&str, usize)> {
    let begin = text.strip_prefix("$(cat <<")?;
    let (head, document) = begin.split_once('\n')?;
    let head = head.trim_matches([' ', '\t']);
    let quoted = unquoted(head);
    let name = quoted.unwrap_or(head);
    let lines = document.split_inclusive('\n').take_while(|line| !line.starts_with(name));
    let (printed, rest) = document.split_at_checked(lines.map(str::len).sum())?;
    let rest = rest.strip_prefix(name)?.strip_prefix('\n')?;
    let rest = rest.trim_start_matches([' ', '\t', '\n']).strip_prefix(')')?;
    let is_expanded = quoted.is_none() && printed.contains(['$', '`', '\\']);
    // Before version 4.3, bash joins such a line with the next one, even with the last.
    let may_join_lines = printed.contains("\\\n");
    // The bash of macOS looks for the bracket in the text, too.
    let may_end_early = cfg!(target_os = "macos")
        && (printed.contains("$[") || printed.contains(['\'', '"', '`', '\\', '(', ')', '{']));
    (is_delimiter(name) && !is_expanded && !may_join_lines && !may_end_early)
        .then(|| (printed.trim_end_matches('\n'), text.len() - rest.len()))
}

/// The delimiter that `text` begins with, of a here-document for which nothing on this line makes it unclear where it
/// begins, and its length with its quotes, if there are any.
pub(super) fn delimiter(text: &str) -> Option<(&str, usize)> {
    let length = text.find([' ', '\t', '\n', ';', '|', '&', '>']).unwrap_or(text.len());
    let (word, rest) = text.split_at(length);
    let name = unquoted(word).unwrap_or(word);
    let is_clear = !rest.split('\n').next()?.contains(['\'', '"', '\\', '`', '$', '(', '<']);
    (is_clear && is_delimiter(name)).then_some((name, length))
}

/// A word without the quotes around it.
fn unquoted(word: &str) -> Option<&str> {
    ['\'', '"'].iter().find_map(|quote| word.strip_prefix(*quote)?.strip_suffix(*quote))
}

fn is_delimiter(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// True for a command for which a here-document is no more than a file that it reads.
pub(super) fn takes_text(command: &SimpleCommand) -> bool {
    args::only_reads(command) || is_in("git tee", command.program())
}

fn reader_of(command: &SimpleCommand) -> Reader {
    let name = args::name(command.program());
    let starts = programs::find(name).starts;
    // The program that this one starts has been found, too.
    let is_starter = starts == Starts::Program && !is_in("xargs parallel", name);
    if is_shell_with_input(command) || starts == Starts::Line {
        Reader::Shell
    } else if is_starter || is_in(TAKE_DATA, name) || args::only_reads(command) {
        Reader::Data
    } else {
        Reader::Unknown
    }
}

/// Finds the use that is made of a substitution that prints a here-document.
fn reader_around(words: &[Word], word: Option<&Word>) -> Reader {
    let is_assigned = word.is_some_and(|word| word.text.contains('='));
    match words {
        [] if is_assigned => Reader::Unknown,
        [] => Reader::Shell,
        words if words.iter().any(|word| runs_its_text(args::name(&word.text))) => Reader::Shell,
        _ => Reader::Data,
    }
}

fn runs_its_text(name: &str) -> bool {
    name == "eval" || matches!(programs::find(name).starts, Starts::Shell | Starts::Line)
}
