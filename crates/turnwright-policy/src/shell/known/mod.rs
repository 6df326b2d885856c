//! Programs that only read, each with the options and operands that keep it so. What is not listed
//! here may do anything.

mod files;
mod flags;
mod git;
mod more;
mod script;
mod search;
mod system;
#[cfg(test)]
pub(super) mod tests;

use std::path::{Component, Path, PathBuf};

use self::flags::{Flags, Part, parts};
use super::{Simple, Word};

/// A program that only reads, whatever it is called with of what is listed here.
struct Program {
    /// Its names, separated by blanks.
    names: &'static str,
    flags: Flags,
    operands: Operands,
}

/// What the operands of a program are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operands {
    /// It has none.
    None,
    /// Words in which no file is named.
    Words,
    /// Files to read.
    Files,
    /// Files or folders; without any, the folder in which it runs.
    FilesOrHere,
    /// One file at most: a second one would be written.
    OneFile,
    /// A format, which begins with a plus sign.
    Format,
}

/// What a command reads, if it does nothing but read.
pub(super) fn reads(command: &Simple) -> Option<Vec<PathBuf>> {
    let (program, words) = command.words.split_first()?;
    let has_tilde = |it: &Word| it.text.starts_with('~') || it.text.contains("=~/");
    if program.is_glob || command.words.iter().any(has_tilde) {
        return None;
    }
    let name = plain_name(&program.text)?;
    if command.is_open {
        return open(name, words);
    }
    match name {
        "git" => git::reads(words),
        "find" => search::find(words),
        "grep" | "egrep" | "fgrep" => search::grep(words),
        "rg" => search::rg(words),
        "fd" | "fdfind" => search::fd(words),
        "jq" => script::jq(words),
        "sed" => script::sed(words),
        "awk" | "gawk" | "mawk" => script::awk(words),
        "test" => more::test(words),
        "[" => more::bracket(words),
        "echo" | "expr" | ":" | "true" | "false" => globs(words),
        "printf" => more::printf(words),
        "cd" => more::cd(words),
        "set" => more::set(words),
        "sleep" => more::sleep(words),
        "ps" => more::ps(words),
        "command" => more::command(words),
        // Such a word names a file with more words.
        "strings" if words.iter().any(|it| it.text.starts_with('@') || flags::may_be_any(it)) => {
            None
        }
        "xxd" => more::xxd(words),
        "tree" if words.iter().any(more::hides_letters) => None,
        "env" | "exit" | "hostname" | "wait" | "umask" => words.is_empty().then(Vec::new),
        "go" if words.first().is_some_and(|it| it.text == "env") => more::go_env(&words[1..]),
        name => match program_named(name) {
            Some(program) if FORGIVING.split(' ').any(|it| it == name) => {
                program.reads(&no_flags(words))
            }
            Some(program) => program.reads(words),
            None => more::is_version(name, words).then(Vec::new),
        },
    }
}

/// Programs of which no option does harm: a pattern may stand for a file that is named like one.
const FORGIVING: &str = "cat head tail ls nl stat";

/// The words as if no pattern could stand for an option.
fn no_flags(words: &[Word]) -> Vec<Word> {
    let named = |word: &Word| {
        let text =
            if flags::may_be_any(word) { format!("./{}", word.text) } else { word.text.clone() };
        Word { text, is_glob: word.is_glob }
    };
    words.iter().map(named).collect()
}

/// Programs that rustup stands in for.
pub(super) fn is_rust(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    ["cargo", "rustc", "rustfmt", "rustdoc", "cargo-clippy", "cargo-fmt"].contains(&name)
}

fn program_named(name: &str) -> Option<&'static Program> {
    let mut all = files::PROGRAMS.iter().chain(system::PROGRAMS);
    all.find(|it| it.names.split(' ').any(|it| it == name))
}

/// The name of a program where it usually lies. What lies elsewhere may be anything.
fn plain_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix("/usr/bin/").or_else(|| text.strip_prefix("/bin/"));
    let name = name.unwrap_or(text);
    (!name.contains('/')).then_some(name)
}

/// A row of a table.
const fn program(
    names: &'static str,
    flags: &'static [&'static str],
    operands: Operands,
) -> Program {
    Program { names, flags, operands }
}

impl Program {
    fn reads(&self, words: &[Word]) -> Option<Vec<PathBuf>> {
        let mut reads = Reads::default();
        let mut count = 0;
        for part in parts(self.flags, words) {
            match part? {
                // Not everywhere may it stand behind an operand: there it would be the second one.
                Part::Flag(_) if count > 0 && self.operands == Operands::OneFile => return None,
                Part::Flag(_) => {}
                Part::File(word, name) => reads.named(word, name)?,
                Part::Operand(word) => {
                    count += 1;
                    self.operand(word, count, &mut reads)?;
                }
            }
        }
        if count == 0 && self.operands == Operands::FilesOrHere {
            reads.here();
        }
        Some(reads.0)
    }

    fn operand(&self, word: &Word, count: usize, reads: &mut Reads) -> Option<()> {
        match self.operands {
            Operands::None => None,
            Operands::Words => (!word.is_glob).then_some(()),
            Operands::Files | Operands::FilesOrHere => reads.operand(word),
            Operands::OneFile if count > 1 || word.is_glob => None,
            Operands::OneFile => reads.operand(word),
            Operands::Format => (word.text.starts_with('+') && !word.is_glob).then_some(()),
        }
    }
}

/// Programs that can do no harm with words that nobody knows, and which may read any file.
const OPEN: &str = "cat head tail wc ls nl du stat md5sum sha1sum sha256sum";

/// What a command reads that gets more words than are known.
fn open(name: &str, words: &[Word]) -> Option<Vec<PathBuf>> {
    let anything = || Some(vec![PathBuf::from("/")]);
    match name {
        "basename" | "dirname" => program_named(name)?.reads(words),
        "echo" => globs(words),
        "grep" | "egrep" | "fgrep" => {
            search::grep(words)?;
            anything()
        }
        name if OPEN.split(' ').any(|it| it == name) => {
            program_named(name)?.reads(words)?;
            anything()
        }
        _ => None,
    }
}

/// The folders that are read for patterns among harmless words.
fn globs(words: &[Word]) -> Option<Vec<PathBuf>> {
    words.iter().filter(|it| it.is_glob).map(|it| pattern_folder(&it.text)).collect()
}

/// The folder in which the names are looked up that a pattern stands for.
fn before_glob(text: &str) -> PathBuf {
    let literal = |it: &&str| !it.contains(['*', '?', '[', '(', '\\']);
    let length: usize = text.split_inclusive('/').take_while(literal).map(str::len).sum();
    if length == 0 { PathBuf::from(".") } else { PathBuf::from(&text[..length]) }
}

/// What is read, as it is found.
#[derive(Default)]
struct Reads(Vec<PathBuf>);

impl Reads {
    /// The folder in which it runs.
    fn here(&mut self) {
        self.0.push(PathBuf::from("."));
    }

    /// An operand that is the name of a file, or a pattern for such names.
    fn operand(&mut self, word: &Word) -> Option<()> {
        if word.is_glob {
            self.0.push(pattern_folder(&word.text)?);
            return Some(());
        }
        self.name(&word.text);
        Some(())
    }

    /// The value of an option, which is the name of a file.
    fn named(&mut self, word: &Word, name: &str) -> Option<()> {
        (!word.is_glob).then(|| self.name(name))
    }

    fn name(&mut self, name: &str) {
        let is_nothing = ["", "-", "/dev/null", "/dev/stdin"].contains(&name);
        if !is_nothing {
            self.0.push(PathBuf::from(name));
        }
    }
}

/// The folder of a pattern; `None` where it could stand for hidden files, which are named if they
/// are meant, or for what lies elsewhere.
fn pattern_folder(text: &str) -> Option<PathBuf> {
    let folder = before_glob(text);
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
