//! Commands that only read, and the files that they read.

#[cfg(test)]
pub(super) mod tests;

use std::path::{Component, Path, PathBuf};

use super::args::{self, Argument, OptionTable, arguments};
use super::programs::{self, Program, WordList, is_in};
use super::{SimpleCommand, Word};

/// The glob that takes the place of words that are not known.
pub(super) const UNKNOWN_WORDS: &str = "*";

/// The files that a command reads; `None` if it may do more than read.
pub(super) type FilesRead = Option<Vec<PathBuf>>;

/// The arguments with which a program only reads.
#[derive(Clone, Copy)]
pub(super) enum Reads {
    /// It may always do more.
    Unknown,
    /// These options, and such operands.
    Options(OptionTable, Operands),
    /// Those of which this function returns the files.
    Check(fn(&[Word]) -> FilesRead),
}

/// The meaning of a program's operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operands {
    /// There must be none.
    None,
    /// Words that do not name files.
    Words,
    /// Files to read.
    Files,
    /// Files or folders. Without any, the program reads the folder in which it runs.
    FilesOrHere,
    /// At most one file to read: a second one would be written.
    OneFile,
    /// A format that begins with `+`.
    Format,
    /// Names of something in the folder in which the program runs, such as revisions.
    Any,
    /// At most one such name.
    One,
    /// Such names, if one of these options makes the program list them.
    Listed(WordList),
    /// One of these words first, then anything.
    First(WordList),
    /// The same, or no operand.
    FirstOrNone(WordList),
}

/// The files that a program reads if some of its arguments are unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownArgs {
    /// It may do more than read.
    Refused,
    /// Nothing else, because they do not name files.
    NameNoFiles,
    /// Any file that the sandbox lets it read. It has no harmful option.
    NameFiles,
}

/// The files that a command reads; `None` if it may do more than read.
pub(super) fn reads(command: &SimpleCommand) -> FilesRead {
    let (program, words) = command.words.split_first()?;
    let has_tilde =
        command.words.iter().any(|word| word.text.starts_with('~') || word.text.contains("=~/"));
    if program.is_glob || has_tilde {
        return None;
    }
    let program = programs::find(installed_name(&program.text)?);
    let files = match (program.unknown_args, command.has_unknown_args) {
        (UnknownArgs::Refused, true) => return None,
        (UnknownArgs::NameNoFiles, true) => {
            let known: Vec<Word> = words
                .iter()
                .filter(|word| !word.is_glob || word.text != UNKNOWN_WORDS)
                .cloned()
                .collect();
            program.reads.files(&known)
        }
        (UnknownArgs::NameFiles, _) => program.reads.files(&without_glob_options(words)),
        _ => program.reads.files(words),
    };
    files.or_else(|| asks_version(program, words).then(Vec::new))
}

/// True if a command that only reads may read files that are not among its [`reads`].
pub(super) fn reads_unknown_files(command: &SimpleCommand) -> bool {
    command.has_unknown_args
        && programs::find(args::name(command.program())).unknown_args == UnknownArgs::NameFiles
}

/// The commands that `find` runs with the names of files.
pub(super) fn started_by_find(command: &SimpleCommand) -> Vec<SimpleCommand> {
    if args::name(command.program()) != "find" {
        return Vec::new();
    }
    let execs = command.words.iter().enumerate().filter(|entry| entry.1.text == "-exec");
    let started = execs.filter_map(|(at, _)| command_after_exec(&command.words[at + 1..]));
    started
        .map(|words| SimpleCommand {
            words: words.to_vec(),
            folder: command.folder.clone(),
            wrappers: vec!["find".to_owned()],
            has_unknown_args: true,
            ..SimpleCommand::default()
        })
        .collect()
}

/// The words up to the `;` or `+` that ends the command of `-exec`.
pub(super) fn command_after_exec(words: &[Word]) -> Option<&[Word]> {
    let end = words.iter().position(|word| [";", "+"].contains(&word.text.as_str()))?;
    words.get(..end)
}

fn asks_version(program: &Program, words: &[Word]) -> bool {
    matches!(words, [word] if !word.is_glob && is_in(program.version, &word.text))
}

/// The words, changed so that no glob can be taken for an option.
pub(super) fn without_glob_options(words: &[Word]) -> Vec<Word> {
    let mut words = words.to_vec();
    for word in &mut words {
        if args::may_be_option(word) {
            word.text.insert_str(0, "./");
        }
    }
    words
}

/// The name of a program that is looked up in `PATH` or lies in a system folder. A program
/// elsewhere may be anything.
fn installed_name(text: &str) -> Option<&str> {
    let name =
        text.strip_prefix("/usr/bin/").or_else(|| text.strip_prefix("/bin/")).unwrap_or(text);
    (!name.contains('/')).then_some(name)
}

impl Reads {
    fn files(self, words: &[Word]) -> FilesRead {
        match self {
            Reads::Unknown => None,
            Reads::Options(options, operands) => operands.files(options, words),
            Reads::Check(check) => check(words),
        }
    }
}

impl Operands {
    /// The files that a program reads with these arguments.
    pub(super) fn files(self, options: OptionTable, words: &[Word]) -> FilesRead {
        let mut reads = Vec::new();
        let mut count = 0;
        let mut is_listing = false;
        for argument in arguments(options, words) {
            match argument? {
                // Some versions take an option after the first operand for the second operand.
                Argument::Option(_) if count > 0 && self == Operands::OneFile => return None,
                Argument::Option(option) => is_listing |= self.is_listing_option(option),
                Argument::FileValue(word, name) => add_value(&mut reads, word, name)?,
                Argument::Operand(word) => {
                    count += 1;
                    self.add(word, count, &mut reads)?;
                }
            }
        }
        if count == 0 && self == Operands::FilesOrHere {
            reads.push(PathBuf::from("."));
        }
        let is_fine = match self {
            Operands::Listed(_) => count == 0 || is_listing,
            // The action must come first: an option before it may mean another action.
            Operands::First(known) => words.first().is_some_and(|word| is_in(known, &word.text)),
            _ => true,
        };
        is_fine.then_some(reads)
    }

    fn is_listing_option(self, option: &str) -> bool {
        matches!(self, Operands::Listed(options) if is_in(options, option))
    }

    fn add(self, word: &Word, count: usize, reads: &mut Vec<PathBuf>) -> Option<()> {
        match self {
            Operands::None => None,
            Operands::Any => Some(()),
            Operands::Files | Operands::FilesOrHere => add_operand(reads, word),
            _ if word.is_glob => None,
            Operands::Words | Operands::Listed(_) => Some(()),
            Operands::OneFile => (count == 1).then(|| add_operand(reads, word))?,
            Operands::Format => word.text.starts_with('+').then_some(()),
            Operands::One => (count == 1).then_some(()),
            Operands::First(known) | Operands::FirstOrNone(known) => {
                (count > 1 || is_in(known, &word.text)).then_some(())
            }
        }
    }
}

/// The folders that the shell reads to expand globs among harmless words.
pub(super) fn glob_folders(words: &[Word]) -> FilesRead {
    words.iter().filter(|word| word.is_glob).map(|word| glob_folder(&word.text)).collect()
}

/// The literal folder in front of a glob.
fn literal_folder(text: &str) -> PathBuf {
    let length: usize = text
        .split_inclusive('/')
        .take_while(|part| !part.contains(['*', '?', '[', '(', '\\']))
        .map(str::len)
        .sum();
    if length == 0 { PathBuf::from(".") } else { PathBuf::from(&text[..length]) }
}

/// Adds an operand that is a path or a glob to the paths that a command reads.
pub(super) fn add_operand(reads: &mut Vec<PathBuf>, word: &Word) -> Option<()> {
    if word.is_glob {
        reads.push(glob_folder(&word.text)?);
        return Some(());
    }
    add_path(reads, &word.text);
    Some(())
}

/// Adds the value of an option, which is a path.
pub(super) fn add_value(reads: &mut Vec<PathBuf>, word: &Word, name: &str) -> Option<()> {
    (!word.is_glob).then(|| add_path(reads, name))
}

pub(super) fn add_path(reads: &mut Vec<PathBuf>, name: &str) {
    let is_no_file = ["", "-", "/dev/null", "/dev/stdin"].contains(&name);
    if !is_no_file {
        reads.push(PathBuf::from(name));
    }
}

/// The folder that a glob is expanded in. `None` if it could match hidden files, which are better
/// named literally, or files elsewhere.
fn glob_folder(text: &str) -> Option<PathBuf> {
    let folder = literal_folder(text);
    let length = if folder == Path::new(".") { 0 } else { folder.as_os_str().len() };
    let rest = text.get(length..).unwrap_or(text);
    let is_plain = !rest.contains('\\')
        && Path::new(rest).components().all(|part| match part {
            Component::Normal(name) => !name.as_encoded_bytes().starts_with(b"."),
            Component::CurDir => true,
            _ => false,
        });
    is_plain.then_some(folder)
}
