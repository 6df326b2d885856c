//! The arguments of a command. Checks that should err on the side of caution read them as the program may take them.
//! Others split them into options and operands by a table of known options; a command with an option that is not in the
//! table is unknown. Such a table also tells whether a command only reads, and the files that it reads.

#[cfg(test)]
pub(super) mod tests;

use std::path::{Component, Path, PathBuf};

use super::programs::{self, Program, WordList, is_in};
use super::{SimpleCommand, Word};

pub(super) type Args<'a> = &'a [Word];

/// The maximum number of words after a wrapper that are tried as the program, which bounds the time
/// for hostile lines.
const MAX_TRIED: usize = 12;

/// The first result of `find` for the program of a command, or for a program that it may run as a
/// wrapper.
pub(super) fn find_behind_wrappers<T>(
    command: &SimpleCommand,
    find: impl Fn(&Program, Args<'_>) -> Option<T>,
) -> Option<T> {
    let words = command.words.as_slice();
    if command.program() == "command" && words.get(1).is_some_and(|word| is_in("-v -V", &word.text))
    {
        return None;
    }
    for (at, word) in words.iter().enumerate().take(MAX_TRIED) {
        let program = programs::find(package(name(&word.text)));
        if let Some(found) = find(program, &words[at + 1..]) {
            return Some(found);
        }
        // This may be the value of an option, or the program.
        let may_be_value = at > 0 && words[at - 1].text.starts_with('-');
        let may_precede = program.is_searched || may_precede_program(&word.text);
        if !may_precede && !may_be_value || at == 0 && !program.is_searched {
            return None;
        }
    }
    None
}

/// True if the program may follow this word, which is not a program.
fn may_precede_program(text: &str) -> bool {
    ["run", "exec"].contains(&text)
        || text.contains('=')
        || text.starts_with(|char: char| char == '-' || char.is_ascii_digit())
}

/// The name of a program without its folder.
pub(super) fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The name of a package without its source and version: of `nixpkgs#terraform` and `prisma@latest`.
fn package(name: &str) -> &str {
    name.rsplit('#').next().and_then(|rest| rest.split('@').next()).unwrap_or(name)
}

/// True if a word may be this option: the letter, also in a group, or an abbreviation of the name.
pub(super) fn is_option(text: &str, letter: char, name: &str) -> bool {
    match text.strip_prefix("--") {
        Some(_) => {
            let given = text.split('=').next().unwrap_or(text);
            given.len() > 2 && name.starts_with(given)
        }
        None => text.strip_prefix('-').is_some_and(|letters| letters.contains(letter)),
    }
}

/// The value that one of these options, or any long one, has in its own word (`-S'git push'`, `--command='git push'`),
/// or else the word.
pub(super) fn attached_value<'a>(word: &'a str, letters: &[char]) -> &'a str {
    let parts = match word.strip_prefix("--") {
        Some(option) => option.split_once('='),
        None => word.split_once(letters).filter(|_| word.starts_with('-')),
    };
    parts.map_or(word, |parts| parts.1)
}

/// The words that are not options. After `--`, all words.
pub(super) fn operands(words: Args<'_>) -> impl DoubleEndedIterator<Item = &Word> + Clone {
    let (before, after) = split_at_dashes(words);
    before
        .iter()
        .filter(|word| !word.text.starts_with('-') || word.text == "-")
        .chain(after.iter().skip(1))
}

/// The words before `--`, and those from there on.
pub(super) fn split_at_dashes(words: Args<'_>) -> (Args<'_>, Args<'_>) {
    words.split_at(words.iter().position(|word| word.text == "--").unwrap_or(words.len()))
}

/// The first operand; empty if there is none.
pub(super) fn first_operand(words: Args<'_>) -> &str {
    operands(words).next().map_or("", |word| &word.text)
}

/// The arguments of git that are a command to run; `None` if there is none.
pub(super) fn started_by_git(words: Args<'_>) -> Option<Args<'_>> {
    let (sub, words) = git_subcommand(words)?;
    let after = |wanted: &str| {
        let at = words.iter().position(|word| word.text == wanted)?;
        let options = words[at + 1..].iter().take_while(|word| word.text.starts_with('-')).count();
        Some(&words[at + 1 + options..])
    };
    match sub {
        "submodule" => after("foreach"),
        "bisect" => after("run"),
        // The value is a word of its own, or a part of the option.
        "rebase" if words.iter().any(|word| is_option(&word.text, 'x', "--exec")) => Some(words),
        "filter-branch" => Some(words),
        _ => None,
    }
}

/// The subcommand of git and its arguments, after the global options, among the words after `git`.
pub fn git_subcommand(words: Args<'_>) -> Option<(&str, Args<'_>)> {
    const WITH_VALUE: WordList =
        "-c -C --git-dir --work-tree --namespace --super-prefix --config-env --attr-source";
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        if !word.text.starts_with('-') {
            return Some((&word.text, after));
        }
        let has_value = is_in(WITH_VALUE, &word.text);
        rest = after.get(usize::from(has_value)..).unwrap_or_default();
    }
    None
}

/// The options of a program, in words separated by white space. `-ab` are two letters without a value,
/// `-n:` is a letter with a value, `-U?` a letter with an optional value in the same word, `-f<` a
/// letter with the name of a file to read, and `-#` a number after the dash. `--all`, `--lines:`,
/// `--color?` (only with `=`) and `--file<` are the same for long options. Abbreviations are
/// unknown options.
pub(super) type OptionTable = &'static [&'static str];

/// One argument of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument<'a> {
    /// An option: `n`, `--lines`.
    Option(&'a str),
    /// The value of the option before, which names a file to read.
    FileValue(&'a Word, &'a str),
    /// Anything else.
    Operand(&'a Word),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// The value that an option takes.
enum OptionValue {
    None,
    Required,
    Optional,
    File,
}

/// Iterates over the arguments. Yields `None` for one that is not known, and then ends.
pub(super) fn arguments<'a>(options: OptionTable, words: &'a [Word]) -> Arguments<'a> {
    Arguments { options, words, ..Arguments::default() }
}

#[derive(Debug, Default)]
pub(super) struct Arguments<'a> {
    options: OptionTable,
    words: &'a [Word],
    /// The remaining letters of a group of options.
    letters: &'a str,
    letters_word: Option<&'a Word>,
    file_value: Option<(&'a Word, &'a str)>,
    after_dashes: bool,
    is_over: bool,
}

impl<'a> Iterator for Arguments<'a> {
    type Item = Option<Argument<'a>>;

    fn next(&mut self) -> Option<Option<Argument<'a>>> {
        if self.is_over {
            return None;
        }
        let argument = self.next_argument();
        self.is_over = !matches!(argument, Some(Some(_)));
        argument
    }
}

impl<'a> Arguments<'a> {
    fn next_argument(&mut self) -> Option<<Self as Iterator>::Item> {
        if let Some((word, name)) = self.file_value.take() {
            return Some(Some(Argument::FileValue(word, name)));
        }
        if !self.letters.is_empty() {
            return Some(self.next_letter());
        }
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        let text = word.text.as_str();
        if self.after_dashes || text == "-" || !text.starts_with('-') {
            let may_be_option = !self.after_dashes && may_be_option(word);
            return Some((!may_be_option).then_some(Argument::Operand(word)));
        }
        if word.is_glob {
            return Some(self.long_glob(text));
        }
        if text == "--" {
            self.after_dashes = true;
            return self.next_argument();
        }
        if text.starts_with("--") {
            return Some(self.long_option(word));
        }
        if text[1..].bytes().all(|byte| byte.is_ascii_digit()) && has_option(self.options, "-#") {
            return Some(Some(Argument::Option("#")));
        }
        self.letters = &text[1..];
        self.letters_word = Some(word);
        Some(self.next_letter())
    }

    fn long_option(&mut self, word: &'a Word) -> Option<Argument<'a>> {
        let parts = word.text.split_once('=');
        let name = parts.map_or(word.text.as_str(), |parts| parts.0);
        match (long_value(self.options, name)?, parts) {
            (OptionValue::None, Some(_)) => return None,
            (OptionValue::Required, None) => {
                self.take_value()?;
            }
            (OptionValue::File, Some((_, value))) => self.file_value = Some((word, value)),
            (OptionValue::File, None) => self.file_value = Some(self.take_value()?),
            _ => {}
        }
        Some(Argument::Option(name))
    }

    /// `--include=*.rs`: whatever the glob expands to begins like this, so it is this option.
    fn long_glob(&self, text: &'a str) -> Option<Argument<'a>> {
        let (name, _) = text.split_once('=')?;
        (long_value(self.options, name)? == OptionValue::Required).then_some(Argument::Option(name))
    }

    fn next_letter(&mut self) -> Option<Argument<'a>> {
        let letter = self.letters.chars().next()?;
        let (option, rest) = self.letters.split_at(letter.len_utf8());
        let takes = letter_value(self.options, letter)?;
        self.letters = if takes == OptionValue::None { rest } else { "" };
        match (takes, rest) {
            (OptionValue::Required, "") => {
                self.take_value()?;
            }
            (OptionValue::File, "") => self.file_value = Some(self.take_value()?),
            (OptionValue::File, rest) => {
                self.file_value = self.letters_word.map(|word| (word, rest));
            }
            _ => {}
        }
        Some(Argument::Option(option))
    }

    /// Takes the next word as a value. A word that looks like an option is refused, in case this
    /// version of the program takes no value here.
    fn take_value(&mut self) -> Option<(&'a Word, &'a str)> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        let after_dash = word.text.strip_prefix('-').unwrap_or_default();
        let is_harmless = after_dash.bytes().all(|byte| byte.is_ascii_digit());
        (is_harmless && !word.is_glob).then_some((word, word.text.as_str()))
    }
}

/// True if a word is a glob that may expand to a name that begins with a dash.
pub(super) fn may_be_option(word: &Word) -> bool {
    word.is_glob && word.text.starts_with(['*', '?', '[', '@', '+', '!', '\\'])
}

fn has_option(options: OptionTable, wanted: &str) -> bool {
    options.iter().any(|option| option.split_ascii_whitespace().any(|name| name == wanted))
}

fn long_value(options: OptionTable, name: &str) -> Option<OptionValue> {
    if name.ends_with(VALUE_SUFFIXES) {
        return None;
    }
    options
        .iter()
        .flat_map(|table| table.split_ascii_whitespace())
        .find_map(|option| option.strip_prefix(name).and_then(value_of_suffix))
}

fn letter_value(options: OptionTable, letter: char) -> Option<OptionValue> {
    if !letter.is_ascii_graphic() || "-#:?<".contains(letter) {
        return None;
    }
    options.iter().flat_map(|table| table.split_ascii_whitespace()).find_map(|option| {
        let letters =
            option.strip_prefix('-').filter(|letters| !letters.starts_with(['-', '#']))?;
        let names = letters.trim_end_matches(VALUE_SUFFIXES);
        names.contains(letter).then(|| value_of_suffix(&letters[names.len()..]))?
    })
}

const VALUE_SUFFIXES: [char; 3] = [':', '?', '<'];

fn value_of_suffix(suffix: &str) -> Option<OptionValue> {
    match suffix {
        "" => Some(OptionValue::None),
        ":" => Some(OptionValue::Required),
        "?" => Some(OptionValue::Optional),
        "<" => Some(OptionValue::File),
        _ => None,
    }
}

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
    /// Only with the arguments for which this function returns the files.
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
pub(super) fn files_read(command: &SimpleCommand) -> FilesRead {
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
    let is_version = matches!(words, [word] if !word.is_glob && is_in(program.version, &word.text));
    files.or_else(|| is_version.then(Vec::new))
}

/// Returns true if a command only reads.
pub(super) fn only_reads(command: &SimpleCommand) -> bool {
    files_read(command).is_some()
}

/// True if a command that only reads may read files that are not among its [`files_read`].
pub(super) fn reads_unknown_files(command: &SimpleCommand) -> bool {
    command.has_unknown_args
        && programs::find(name(command.program())).unknown_args == UnknownArgs::NameFiles
}

/// The commands that `find` runs with the names of files.
pub(super) fn started_by_find(command: &SimpleCommand) -> Vec<SimpleCommand> {
    if name(command.program()) != "find" {
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

/// The words, changed so that no glob can be taken for an option.
pub(super) fn without_glob_options(words: &[Word]) -> Vec<Word> {
    let mut words = words.to_vec();
    for word in &mut words {
        if may_be_option(word) {
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
