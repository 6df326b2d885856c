//! Static analysis of shell command lines.
//!
//! [`parse`] splits a line into the simple commands that a shell would run, as far as bash and
//! POSIX shells agree about it. Where the words of a line do not determine what it does (a
//! variable, a here-document, a loop around a command that may write), the [`Script`] has an
//! [`ambiguity`](Script::ambiguity): then its commands are everything that was found at any depth,
//! which is good for denying the line and never for allowing it. [`classify`] says what a simple
//! command does, judging by its words: whether it only reads, destroys something, or needs the
//! network. [`ruin()`] says whether it could destroy more than the project. Everything here is pure: no file is read and nothing is run.

mod args;
mod file_use;
mod network;
mod prefix;
mod programs;
mod project_edits;
mod python_environment;
mod read_only;
mod harm;
mod syntax;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use turnwright_types::effect::ShellCommand;
use turnwright_types::shell_script::ShellDialect;
pub use turnwright_types::shell_script::{Redirect, Script, SimpleCommand, Word};

pub use file_use::{FileUse, NamedFile, effects_of, effects_with_files, file_use, named_files};
pub use harm::ruin::{Ruin, find_ruinous_text, is_fork_bomb, ruin};
pub use harm::stakes;
pub use prefix::{SuggestedWords, suggest_prefix, suggest_prefix_with_access};
pub use programs::{GitContentQuery, GitProgram, GitUse, may_show_any_content};
pub use project_edits::{LookUp, NamedPlace, edited_files, project_edits};
pub use python_environment::{EnvironmentUse, environment_use};

pub(crate) use prefix::{exceeds_prefix, names_more_tasks};
pub(crate) use programs::{WordList, is_in};

/// The properties of a simple command, as far as its words tell them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classification {
    /// It only reads, whatever the content of the files that it reads. Its redirects are not
    /// considered.
    pub is_read_only: bool,
    /// The paths that a read-only command reads: absolute, or relative to its folder.
    pub reads: Vec<PathBuf>,
    /// It may read files that its words do not name, which only the sandbox limits.
    pub reads_unknown_files: bool,
    /// It is git, whose behaviour depends on the settings of the repository in which it runs.
    pub is_git: bool,
    /// Where the options `-C` of git lead to from [`SimpleCommand::folder`]; empty without them.
    pub git_folder: PathBuf,
    /// It is git, and its options lead it to another repository or working tree.
    pub leads_elsewhere: bool,
    /// It is git, and its arguments make it start no other program.
    pub starts_no_other: bool,
    /// The same, and it may record which remote branch a branch follows.
    pub tracks_branches: bool,
    /// Which of the content that git has stored the command shows, if it is git and shows any.
    pub git_content_shown: Option<GitContentQuery>,
    /// It may be run by rustup, which selects the toolchain that a file in the folder names.
    pub uses_rustup: bool,
    /// It is a language's program that can print its version. A version manager may run another one for
    /// it, which a file in the folder names.
    pub may_be_version_managed: bool,
    /// Says what it destroys or publishes irrecoverably, which every mode that asks at all asks
    /// about. The text completes a sentence that begins with "it".
    pub danger: Option<&'static str>,
    /// It fails without the network.
    pub fails_offline: bool,
}

/// The maximum length of a line in bytes. [`parse`] does not look into longer lines, so they must
/// be refused.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// Parses a command line. A line that is too long is ambiguous and has no commands.
pub fn parse(line: &str, dialect: ShellDialect) -> Script {
    tracing::trace!(target: "turnwright::parse", bytes = line.len());
    if line.len() > MAX_LINE_BYTES {
        let ambiguity = Some("it is too long to be parsed".to_owned());
        return Script { ambiguity, ..Script::default() };
    }
    if dialect == ShellDialect::Cmd {
        let ambiguity = Some(syntax::cmd_scanner::NOT_UNDERSTOOD.to_owned());
        return Script { commands: syntax::cmd_scanner::scan(line), ambiguity, texts: Vec::new() };
    }
    match syntax::parser::parse(line, dialect, PathBuf::new(), 0) {
        Ok(commands) => Script { commands, ..Script::default() },
        Err(ambiguity) => {
            Script { ambiguity: Some(ambiguity.to_owned()), ..syntax::command_scanner::scan(line) }
        }
    }
}

/// A command of which only its line and its folder are known. The line is parsed here, once: judging
/// the command and asking about it use [`ShellCommand::script`].
pub fn command(
    line: impl Into<String>,
    workdir: impl Into<PathBuf>,
    dialect: ShellDialect,
) -> ShellCommand {
    let line = line.into();
    let script = Arc::new(parse(&line, dialect));
    ShellCommand::new(line, workdir, script)
}

/// Returns true if a command of a line fails without the network.
pub(crate) fn fails_offline(script: &Script) -> bool {
    script.commands.iter().any(network::fails_offline)
}

/// Classifies a simple command by its words.
pub fn classify(command: &SimpleCommand) -> Classification {
    let name = args::name(command.program());
    let reads = read_only::reads(command);
    Classification {
        is_read_only: reads.is_some(),
        reads: reads.unwrap_or_default(),
        reads_unknown_files: read_only::reads_unknown_files(command),
        is_git: name == "git",
        git_folder: programs::git_folder(command),
        leads_elsewhere: programs::leads_elsewhere(command),
        starts_no_other: programs::starts_no_other(command),
        tracks_branches: programs::tracks_branches(command),
        git_content_shown: programs::shown_files(command),
        uses_rustup: programs::find(name).is_rustup_proxy,
        may_be_version_managed: !programs::find(name).version.is_empty(),
        danger: harm::danger(command),
        fails_offline: network::fails_offline(command),
    }
}
