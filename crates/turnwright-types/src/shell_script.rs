//! The shells that run command lines, and a parsed command line. `turnwright-policy` parses and classifies it.
//! A [`Check`] is a line that the settings or the project's files name.

use std::path::PathBuf;

use crate::text;

/// The shell that runs a command line. The dialects differ in how they parse the same line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellDialect {
    Bash,
    /// A POSIX shell such as dash.
    Posix,
    /// The command processor of Windows.
    Cmd,
}

/// The command that a model means: without a fence of Markdown around it, whose backticks a shell would run, and
/// without carriage returns if each of its lines ends with one, the first not within quotes. Its own bare command is
/// the same.
pub fn bare_command(text: &str) -> String {
    let code = text::unfenced(text).map_or(text, str::trim_end);
    let first = code.lines().next().unwrap_or_default();
    let is_in_quotes = ['\'', '"'].into_iter().any(|quote| first.matches(quote).count() % 2 == 1);
    if is_in_quotes || code.replace("\r\n", "").contains(['\r', '\n']) {
        return code.to_owned();
    }
    code.replace("\r\n", "\n")
}

/// A command that checks the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: String,
    pub command: String,
}

/// A parsed command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Script {
    /// The simple commands, in order. A command that may run in several folders, because a `cd` before it
    /// may have failed, is there once for each of them. If the line is ambiguous, these are all commands
    /// that could be found at any depth.
    pub commands: Vec<SimpleCommand>,
    /// Why the line does more than `commands`, or may do so; `None` if `commands` is all that it
    /// does.
    pub ambiguity: Option<String>,
    /// Text of an ambiguous line that a program gets as its input or as the value of a variable. The program
    /// may take it for a command.
    pub texts: Vec<String>,
    /// True if it holds more that could be commands than can be looked at, so that some are missing.
    pub is_cut: bool,
}

/// One program with its arguments. Wrappers in front of it, such as `nohup` or `timeout 9`, are
/// taken off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SimpleCommand {
    /// The program and its arguments, without quotes.
    pub words: Vec<Word>,
    /// The folder in which it runs: absolute, or relative to the folder of the line. `None` if that
    /// is unknown.
    pub folder: Option<PathBuf>,
    /// True if a `cd` before it has gone to the user's home folder, whose path is not in the line.
    pub is_in_home: bool,
    /// The files that the shell opens for it.
    pub redirects: Vec<Redirect>,
    /// True if it opens them only after another command of the line, or perhaps not at all.
    pub opens_later: bool,
    /// The wrappers that were taken off, outermost first.
    pub wrappers: Vec<String>,
    /// True if it gets further arguments that are unknown, because `xargs` runs it.
    pub has_unknown_args: bool,
    /// True if it throws away the changes of a file or folder, as the disk tells and its words do not.
    pub drops_changes: bool,
    /// True if it is a client of a database that may read a statement which deletes data from its input or from a file
    /// that the line makes.
    pub drops_data: bool,
}

/// A word as the program gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Word {
    /// The text without quotes and escapes.
    pub text: String,
    /// True if it is a glob, which the shell replaces by file names. These may begin with a dash.
    pub is_glob: bool,
}

/// A file that the shell opens for a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Redirect {
    /// The path: absolute, or relative to the folder of the command.
    pub path: PathBuf,
    /// True if the file is written; otherwise it is read.
    pub is_write: bool,
    /// True if what is written is appended (`>>`).
    pub only_appends: bool,
}

impl Word {
    /// A word that is no glob.
    pub fn plain(text: impl Into<String>) -> Word {
        Word { text: text.into(), is_glob: false }
    }
}

impl SimpleCommand {
    /// The name of the program; empty if there are no words.
    pub fn program(&self) -> &str {
        self.words.first().map_or("", |word| &word.text)
    }

    /// The program and its arguments.
    pub fn argv(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(|word| word.text.as_str())
    }

    /// Returns true if the shell opens a file for it to write.
    pub fn writes_file(&self) -> bool {
        self.redirects.iter().any(|redirect| redirect.is_write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_and_the_carriage_returns_of_all_lines_are_no_part_of_a_command() {
        for (text, command) in [
            ("```bash\necho hi\n```", "echo hi"),
            ("```\ncd a\nmake\n```\n", "cd a\nmake"),
            ("ls\r\ncat <<EOF\r\nx\r\nEOF\r\n", "ls\ncat <<EOF\nx\nEOF\n"),
            ("```sh\r\nls\r\n```", "ls"),
            ("```sh\r\ncd a\r\nls\r\n```\r\n", "cd a\nls"),
            ("```sh\ncd a\r\nls\n```", "cd a\nls"),
            // Texts with carriage returns, commands in backticks, and a file with fences.
            ("printf 'HEAD /\r\n\r\n' | nc a 80", "printf 'HEAD /\r\n\r\n' | nc a 80"),
            ("a\r\r\nb\r\n", "a\r\r\nb\r\n"),
            ("cat > a <<EOF\nx\r\nEOF\n", "cat > a <<EOF\nx\r\nEOF\n"),
            ("echo `date`", "echo `date`"),
            ("```x y\nls\n```", "```x y\nls\n```"),
            ("```\na\n```\nb\n```\nc\n```", "```\na\n```\nb\n```\nc\n```"),
        ] {
            assert_eq!(bare_command(text), command, "{text:?}");
            assert_eq!(bare_command(command), command);
        }
    }
}
