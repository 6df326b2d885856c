//! The programs that only read, each with the options and operands with which they do. Whatever is
//! not listed may do anything.

mod files;
mod options;
mod git;
mod scripts;
mod search;
mod special;
mod system;
#[cfg(test)]
pub(super) mod tests;

use std::path::{Component, Path, PathBuf};

use self::options::{Argument, OptionTable, arguments};
use super::{SimpleCommand, Word};

/// The files that a command reads; `None` if it may do more than read.
type ReadFiles = Option<Vec<PathBuf>>;

/// A program that only reads with these options and operands.
struct Program {
    /// Its names, separated by blanks.
    names: &'static str,
    options: OptionTable,
    operands: Operands,
}

/// The meaning of a program's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operands {
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
}

/// The files that a command reads; `None` if it may do more than read.
pub(super) fn reads(command: &SimpleCommand) -> ReadFiles {
    let (program, words) = command.words.split_first()?;
    let has_tilde = |it: &Word| it.text.starts_with('~') || it.text.contains("=~/");
    if program.is_glob || command.words.iter().any(has_tilde) {
        return None;
    }
    let name = installed_name(&program.text)?;
    if command.has_unknown_args {
        return reads_with_unknown_args(name, words);
    }
    match name {
        "git" => git::reads(words),
        "find" => search::find(words),
        "grep" | "egrep" | "fgrep" => search::grep(words),
        "rg" => search::rg(words),
        "fd" | "fdfind" => search::fd(words),
        "jq" => scripts::jq(words),
        "sed" => scripts::sed(words),
        "awk" | "gawk" | "mawk" => scripts::awk(words),
        "test" => special::test(words),
        "[" => special::bracket(words),
        "echo" | "expr" | ":" | "true" | "false" => glob_folders(words),
        "printf" => special::printf(words),
        "cd" => special::cd(words),
        "set" => special::set(words),
        "sleep" => special::sleep(words),
        "ps" => special::ps(words),
        "command" => special::command(words),
        // `@file` names a file with further arguments.
        "strings"
            if words.iter().any(|it| it.text.starts_with('@') || options::may_be_option(it)) =>
        {
            None
        }
        "xxd" => special::xxd(words),
        "tree" if words.iter().any(special::hides_options) => None,
        "env" | "exit" | "hostname" | "wait" | "umask" => words.is_empty().then(Vec::new),
        "go" if words.first().is_some_and(|it| it.text == "env") => special::go_env(&words[1..]),
        name => match program_named(name) {
            Some(program) if HARMLESS_WITH_ANY_OPTION.split(' ').any(|it| it == name) => {
                program.reads(&without_glob_options(words))
            }
            Some(program) => program.reads(words),
            None => special::is_version_query(name, words).then(Vec::new),
        },
    }
}

/// Programs without a harmful option: it does not matter if a glob expands to a file name that
/// looks like an option.
const HARMLESS_WITH_ANY_OPTION: &str = "cat head tail ls nl stat";

/// The words, changed so that no glob can be taken for an option.
fn without_glob_options(words: &[Word]) -> Vec<Word> {
    let prefixed = |word: &Word| {
        let text = if options::may_be_option(word) {
            format!("./{}", word.text)
        } else {
            word.text.clone()
        };
        Word { text, is_glob: word.is_glob }
    };
    words.iter().map(prefixed).collect()
}

/// True for the programs that rustup provides proxies for.
pub(super) fn may_be_rustup(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    ["cargo", "rustc", "rustfmt", "rustdoc", "cargo-clippy", "cargo-fmt"].contains(&name)
}

fn program_named(name: &str) -> Option<&'static Program> {
    let mut all = files::PROGRAMS.iter().chain(system::PROGRAMS);
    all.find(|it| it.names.split(' ').any(|it| it == name))
}

/// The name of a program that is looked up in `PATH` or lies in a system folder. A program
/// elsewhere may be anything.
fn installed_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix("/usr/bin/").or_else(|| text.strip_prefix("/bin/"));
    let name = name.unwrap_or(text);
    (!name.contains('/')).then_some(name)
}

const fn program(names: &'static str, options: OptionTable, operands: Operands) -> Program {
    Program { names, options, operands }
}

impl Program {
    fn reads(&self, words: &[Word]) -> ReadFiles {
        let mut reads = ReadPaths::default();
        let mut count = 0;
        for argument in arguments(self.options, words) {
            match argument? {
                // Some versions take an option after the first operand for the second operand.
                Argument::Option(_) if count > 0 && self.operands == Operands::OneFile => {
                    return None;
                }
                Argument::Option(_) => {}
                Argument::FileValue(word, name) => reads.add_value(word, name)?,
                Argument::Operand(word) => {
                    count += 1;
                    self.add_operand(word, count, &mut reads)?;
                }
            }
        }
        if count == 0 && self.operands == Operands::FilesOrHere {
            reads.add_current_folder();
        }
        Some(reads.0)
    }

    fn add_operand(&self, word: &Word, count: usize, reads: &mut ReadPaths) -> Option<()> {
        match self.operands {
            Operands::None => None,
            Operands::Words => (!word.is_glob).then_some(()),
            Operands::Files | Operands::FilesOrHere => reads.add_operand(word),
            Operands::OneFile if count > 1 || word.is_glob => None,
            Operands::OneFile => reads.add_operand(word),
            Operands::Format => (word.text.starts_with('+') && !word.is_glob).then_some(()),
        }
    }
}

/// Programs that only read whatever their further arguments are.
const HARMLESS_WITH_ANY_ARGS: &str = "cat head tail wc ls nl du stat md5sum sha1sum sha256sum";

/// The files that a command with unknown further arguments reads.
fn reads_with_unknown_args(name: &str, words: &[Word]) -> ReadFiles {
    let anything = || Some(vec![PathBuf::from("/")]);
    match name {
        "basename" | "dirname" => program_named(name)?.reads(words),
        "echo" => glob_folders(words),
        "grep" | "egrep" | "fgrep" => {
            search::grep(words)?;
            anything()
        }
        name if HARMLESS_WITH_ANY_ARGS.split(' ').any(|it| it == name) => {
            program_named(name)?.reads(words)?;
            anything()
        }
        _ => None,
    }
}

/// The folders that the shell reads to expand globs among harmless words.
fn glob_folders(words: &[Word]) -> ReadFiles {
    words.iter().filter(|it| it.is_glob).map(|it| glob_folder(&it.text)).collect()
}

/// The literal folder in front of a glob.
fn literal_folder(text: &str) -> PathBuf {
    let literal = |it: &&str| !it.contains(['*', '?', '[', '(', '\\']);
    let length: usize = text.split_inclusive('/').take_while(literal).map(str::len).sum();
    if length == 0 { PathBuf::from(".") } else { PathBuf::from(&text[..length]) }
}

/// Collects the paths that a command reads.
#[derive(Default)]
struct ReadPaths(Vec<PathBuf>);

impl ReadPaths {
    /// Adds the folder in which the command runs.
    fn add_current_folder(&mut self) {
        self.0.push(PathBuf::from("."));
    }

    /// Adds an operand that is a path or a glob.
    fn add_operand(&mut self, word: &Word) -> Option<()> {
        if word.is_glob {
            self.0.push(glob_folder(&word.text)?);
            return Some(());
        }
        self.add_path(&word.text);
        Some(())
    }

    /// Adds the value of an option, which is a path.
    fn add_value(&mut self, word: &Word, name: &str) -> Option<()> {
        (!word.is_glob).then(|| self.add_path(name))
    }

    fn add_path(&mut self, name: &str) {
        let is_no_file = ["", "-", "/dev/null", "/dev/stdin"].contains(&name);
        if !is_no_file {
            self.0.push(PathBuf::from(name));
        }
    }
}

/// The folder that a glob is expanded in. `None` if it could match hidden files, which are better
/// named literally, or files elsewhere.
fn glob_folder(text: &str) -> Option<PathBuf> {
    let folder = literal_folder(text);
    let length = if folder == Path::new(".") { 0 } else { folder.as_os_str().len() };
    let rest = text.get(length..).unwrap_or(text);
    let is_plain = |it: Component<'_>| match it {
        Component::Normal(name) => !name.as_encoded_bytes().starts_with(b"."),
        Component::CurDir => true,
        _ => false,
    };
    let is_plain = !rest.contains('\\') && Path::new(rest).components().all(is_plain);
    is_plain.then_some(folder)
}
