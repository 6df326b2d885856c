//! The arguments of a command. Checks that should err on the side of caution read them as the program may take them.
//! Others split them into options and operands by a table of known options; a command with an option that is not in the
//! table is unknown.

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
        let program = programs::find(name(&word.text));
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

/// True if a word may be this option: the letter, also in a group, or an abbreviation of the name.
pub(super) fn is_option(text: &str, letter: char, name: &str) -> bool {
    match text.strip_prefix("--") {
        Some(_) => {
            let given = text.split('=').next().unwrap_or(text);
            given.len() > 3 && name.starts_with(given)
        }
        None => text.strip_prefix('-').is_some_and(|letters| letters.contains(letter)),
    }
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

/// The subcommand of git and its arguments, after the global options.
pub(super) fn git_subcommand(words: Args<'_>) -> Option<(&str, Args<'_>)> {
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
        let (name, value) = match word.text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.text.as_str(), None),
        };
        match (long_value(self.options, name)?, value) {
            (OptionValue::None, Some(_)) => return None,
            (OptionValue::None, None)
            | (OptionValue::Optional, _)
            | (OptionValue::Required, Some(_)) => {}
            (OptionValue::Required, None) => {
                self.take_value()?;
            }
            (OptionValue::File, Some(value)) => self.file_value = Some((word, value)),
            (OptionValue::File, None) => self.file_value = Some(self.take_value()?),
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
            (OptionValue::None | OptionValue::Optional, _) => {}
            (OptionValue::Required, "") => {
                self.take_value()?;
            }
            (OptionValue::Required, _) => {}
            (OptionValue::File, "") => self.file_value = Some(self.take_value()?),
            (OptionValue::File, rest) => {
                self.file_value = self.letters_word.map(|word| (word, rest));
            }
        }
        Some(Argument::Option(option))
    }

    /// Takes the next word as a value. A word that looks like an option is refused, in case this
    /// version of the program takes no value here.
    fn take_value(&mut self) -> Option<(&'a Word, &'a str)> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        let is_harmless = match word.text.strip_prefix('-') {
            Some(rest) => rest.bytes().all(|byte| byte.is_ascii_digit()),
            None => true,
        };
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
