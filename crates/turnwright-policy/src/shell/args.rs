//! Reads the arguments of a command as its program may take them, for checks that should err on the
//! side of caution.

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
