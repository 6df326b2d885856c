//! Static analysis of shell command lines.
//!
//! [`parse`] splits a line into the simple commands that a shell would run, as far as bash and
//! POSIX shells agree about it. Where the words of a line do not determine what it does (a
//! variable, a here-document, a loop around a command that may write), the [`Script`] has an
//! [`ambiguity`](Script::ambiguity): then its commands are everything that was found at any depth,
//! which is good for denying the line and never for allowing it. [`classify`] says what a simple
//! command does, judging by its words: whether it only reads, or needs the network. [`danger`] says
//! what it destroys, and [`ruin()`] whether that could be more than the project. [`effects_of`] finds the effects of a
//! line, as far as its words say: it runs, it reads files, and the shell opens files for its redirects. [`file_use`]
//! finds out what a command does with the files and folders that its operands name, and with everything below them:
//! rules about files are applied to them, and a folder that is moved takes what a rule denies along. Everything here is
//! pure: no file is read and nothing is run.

mod args;
mod hidden_commands;
mod prefix;
mod programs;
mod project_edits;
mod harm;
mod syntax;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnwright_types::effect::{Effect, ResolvedPath, ShellCommand};
use turnwright_types::shell_script::ShellDialect;
pub use turnwright_types::shell_script::{Redirect, Script, SimpleCommand, Word};

pub use args::git_subcommand;
pub use harm::ruin::{Ruin, find_ruinous_text, is_fork_bomb, ruin};
pub use harm::{danger, stakes};
pub use prefix::{suggest_prefix, suggest_prefix_with_access};
pub use programs::{GitContentQuery, GitProgram, GitUse, is_ssh_address, may_show_any_content};
pub use project_edits::{LookUp, NamedPlace, edited_files, project_edits};

pub(crate) use hidden_commands::{
    all_named_hosts, all_named_paths, hidden_commands, is_in_environment, is_message_option,
};
pub(crate) use prefix::{exceeds_prefix, names_more_tasks};
pub(crate) use programs::{WordList, is_in, is_number};

use args::{Args, operands};
use harm::{Harm, has_option, is_recursive, option_values};
use programs::Program;

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
    /// It fails without the network.
    pub fails_offline: bool,
}

/// The maximum length of a line in bytes. [`parse`] does not look into longer lines, so they must
/// be refused.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// Parses a command line. A line that is too long is ambiguous and has no commands.
pub fn parse(line: &str, dialect: ShellDialect) -> Script {
    parse_in(Path::new(""), line, dialect)
}

/// The same for what follows a `cd` to a folder that does not fail.
pub fn parse_in(folder: &Path, line: &str, dialect: ShellDialect) -> Script {
    tracing::trace!(target: "turnwright::parse", bytes = line.len());
    if line.len() > MAX_LINE_BYTES {
        let ambiguity = Some("it is too long to be parsed".to_owned());
        return Script { ambiguity, ..Script::default() };
    }
    if dialect == ShellDialect::Cmd {
        return syntax::cmd_scanner::scan(line);
    }
    let folders = BTreeSet::from([folder.to_path_buf()]);
    let mut script = match syntax::parser::parse(line, dialect, folders, 0) {
        Ok(commands) => Script { commands, ..Script::default() },
        Err(ambiguity) => {
            Script { ambiguity: Some(ambiguity.to_owned()), ..syntax::command_scanner::scan(line) }
        }
    };
    hidden_commands::note_statements(&mut script);
    script
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
    script.commands.iter().any(programs::fails_offline)
}

/// Returns true if a command uses the network, and each that does so uses a proxy that variables name.
pub fn uses_proxy(command: &ShellCommand) -> bool {
    let mut uses = command.script.commands.iter().filter_map(programs::uses_proxy).peekable();
    !command.has_ssh_remote && uses.peek().is_some() && uses.all(|uses| uses)
}

/// Classifies a simple command by its words.
pub fn classify(command: &SimpleCommand) -> Classification {
    let name = args::name(command.program());
    let reads = args::files_read(command);
    Classification {
        is_read_only: reads.is_some(),
        reads: reads.unwrap_or_default(),
        reads_unknown_files: args::reads_unknown_files(command),
        is_git: name == "git",
        git_folder: programs::git_folder(command),
        leads_elsewhere: programs::leads_elsewhere(command),
        starts_no_other: programs::starts_no_other(command),
        tracks_branches: programs::tracks_branches(command),
        git_content_shown: programs::shown_files(command),
        uses_rustup: programs::find(name).is_rustup_proxy,
        may_be_version_managed: !programs::find(name).version.is_empty(),
        fails_offline: programs::fails_offline(command),
    }
}

/// The files that a line names if it runs in `workdir`, in order and each once: the path as it is written, joined to
/// the folder in which it is looked up, and true if a redirect writes it; otherwise a redirect or a program reads it. A
/// command whose folder is unknown has none, because its script is ambiguous, and of an ambiguous script only the
/// redirects count.
pub fn named_files(script: &Script, workdir: &Path) -> Vec<(PathBuf, bool)> {
    let mut files = Vec::new();
    for command in &script.commands {
        let Some(folder) = command.folder.as_ref().map(|folder| workdir.join(folder)) else {
            continue;
        };
        let redirects = command.redirects.iter();
        files.extend(redirects.map(|redirect| (folder.join(&redirect.path), redirect.is_write)));
        // A line that is not fully understood needs a question anyway.
        if script.ambiguity.is_none() {
            let reads = args::files_read(command).unwrap_or_default();
            files.extend(reads.iter().map(|path| (folder.join(path), false)));
        }
    }
    let mut seen = HashSet::new();
    files.retain(|(path, is_write)| seen.insert((path.clone().into_os_string(), *is_write)));
    files
}

/// The effects of a command with its [`named_files`], whose symlinks are resolved: it runs and reads
/// files, and each file that it writes is an effect of its own.
pub fn effects_with_files(
    mut command: ShellCommand,
    files: impl IntoIterator<Item = (ResolvedPath, bool)>,
) -> Vec<Effect> {
    let (written, read): (Vec<_>, Vec<_>) = files.into_iter().partition(|(_, is_write)| *is_write);
    command.reads.extend(read.into_iter().map(|(target, _)| target));
    let writes = written.into_iter().map(|(target, _)| Effect::Write(target));
    std::iter::once(Effect::Exec(Box::new(command))).chain(writes).collect()
}

/// The effects of a command. `resolve` resolves the symlinks of an absolute path.
pub fn effects_of(
    command: ShellCommand,
    mut resolve: impl FnMut(&Path) -> ResolvedPath,
) -> Vec<Effect> {
    let named = named_files(&command.script, &command.workdir);
    let files = named.into_iter().map(|(path, is_write)| (resolve(&path), is_write));
    effects_with_files(command, files)
}

/// The use that a program makes of the files that its operands name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OperandUse {
    #[default]
    Unknown,
    /// Changes each of them; what is below only with an option.
    Changes,
    /// Formats each of them, with what is below: with `-w` or `-i` in place.
    Formats,
    /// Deletes, replaces or moves away each of them, with what is below.
    Takes,
    /// Reads each of them, with what is below.
    Reads,
    /// Moves all but the last into the last.
    Moves,
    /// Copies all but the last into the last.
    Copies,
    /// Gives all but the last further names in the last.
    Links,
}

/// The files that a command names, and what it does with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    pub sources: Vec<Word>,
    /// True if the sources are changed or moved away; otherwise they are only read.
    pub is_change: bool,
    /// True if this also concerns everything below them.
    pub is_deep: bool,
    /// Where the sources, or copies of them, come to lie: a folder, or the new path itself.
    pub destination: Option<Word>,
    /// True if it may be the new path itself even if it is a folder: `cp -T`.
    pub is_exact: bool,
}

/// Returns the files that a command names and what it does with them; `None` if nothing is known about the command,
/// or if it is read-only, which [`classify`] finds out.
pub fn file_use(command: &SimpleCommand) -> Option<FileUse> {
    if args::only_reads(command) {
        return None;
    }
    args::find_behind_wrappers(command, |program, words| {
        let subcommand = git_subcommand(words).map(|(name, rest)| (program.subcommand(name), rest));
        let is_known = |program: &Program| program.operand_use != OperandUse::Unknown;
        let (program, words) =
            subcommand.filter(|(sub, _)| is_known(sub)).unwrap_or((program, words));
        let targets = (program.targets)(words);
        if is_known(program) {
            let takes_all = targets.iter().any(|target| target.harm == Harm::RemovesContents);
            return Some(use_of(program.operand_use, words, takes_all));
        }
        let harms = [Harm::Deletes, Harm::Overwrites, Harm::Formats];
        let changed = targets.iter().filter(|target| harms.contains(&target.harm));
        let sources: Vec<_> = changed.map(|target| Word::plain(target.text)).collect();
        let used = FileUse { sources, is_change: true, is_deep: true, ..FileUse::default() };
        (!used.sources.is_empty()).then_some(used)
    })
}

fn use_of(operand_use: OperandUse, words: Args<'_>, takes_all: bool) -> FileUse {
    let mut sources: Vec<Word> = operands(words).cloned().collect();
    let has_destination =
        matches!(operand_use, OperandUse::Moves | OperandUse::Copies | OperandUse::Links);
    let given = option_values(words, 't', "--target-directory").pop();
    let destination = match given.filter(|_| has_destination) {
        Some(folder) => {
            sources.retain(|word| word.text != folder);
            Some(Word::plain(folder))
        }
        None if has_destination && sources.len() > 1 => sources.pop(),
        None => None,
    };
    let is_exact = has_option(words, "T --no-target-directory");
    let is_change = match operand_use {
        OperandUse::Changes | OperandUse::Takes | OperandUse::Moves => true,
        OperandUse::Links => !has_option(words, "s --symbolic"),
        OperandUse::Formats => has_option(words, "w i"),
        OperandUse::Reads | OperandUse::Copies | OperandUse::Unknown => takes_all,
    };
    let is_deep = operand_use != OperandUse::Changes || is_recursive(words);
    FileUse { sources, is_change, is_deep, destination, is_exact }
}
