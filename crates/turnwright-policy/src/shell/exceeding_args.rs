//! Arguments that make a program run or write something else than its first words say. A permission
//! for the first words of a command does not cover them.

use std::path::Path;

use super::args::is_option;
use super::programs::{self, WordList};
use super::{SimpleCommand, Word, destructive, prefix, ruin};
use turnwright_types::text;

/// True if a command does, or may do, more than its first words say: because of an option, because
/// some of its arguments are unknown, or because it destroys something.
pub(crate) fn exceeds_prefix(command: &SimpleCommand) -> bool {
    command.has_unknown_args
        || glob_may_be_option(command)
        || has_exceeding_option(command)
        || destroys(command)
}

/// Options of task runners that may be followed by a number.
const COUNTS: WordList = "-j -l --jobs --load-average --max-load --parallel";

/// True if a task runner (`make`, `just`) is given more tasks than the first `words` words name.
pub(crate) fn names_more_tasks(command: &SimpleCommand, words: usize) -> bool {
    let program = programs::find(command.program());
    if words < 2 || !program.runs_tasks {
        return false;
    }
    (words..command.words.len()).any(|at| {
        let before = &command.words[at - 1].text;
        let word = &command.words[at].text;
        let is_count =
            programs::is_in(COUNTS, before) && word.bytes().all(|byte| byte.is_ascii_digit());
        let is_value = is_count || programs::is_in(program.task_options_with_value, before);
        !is_value && !word.starts_with('-')
    })
}

/// True if a glob may expand to the name of a file that looks like an option.
fn glob_may_be_option(command: &SimpleCommand) -> bool {
    let before_dashes = &command.words[..words_before_dashes(&command.words)];
    before_dashes
        .iter()
        .any(|word| word.is_glob && word.text.starts_with(['*', '?', '[', '-', '\\']))
}

/// The number of words in front of `--`, after which words belong to the program that cargo runs. An option in front
/// of it may take it for its value.
fn words_before_dashes(words: &[Word]) -> usize {
    let mut all = words.iter().enumerate();
    all.position(|(at, word)| {
        let is_value = at > 0 && words[at - 1].text.starts_with('-');
        word.text == "--" && !is_value
    })
    .unwrap_or(words.len())
}

fn destroys(command: &SimpleCommand) -> bool {
    destructive::danger(command).is_some()
        || ruin::ruin_of_command(command, Path::new(""), None).is_some()
}

fn has_exceeding_option(command: &SimpleCommand) -> bool {
    let Some((program, words)) = command.words.split_first() else { return false };
    let program = programs::find(&program.text);
    let sub = program.subcommand(words.first().map_or("", |word| &word.text));
    let tool = prefix::tool_behind_runner(&command.words).unwrap_or(0);
    let runs = programs::find(command.words.get(tool).map_or("", |word| &word.text));
    (0..words_before_dashes(words)).any(|at| {
        let word = &words[at].text;
        let next = words.get(at + 1).map_or("", |next| &next.text);
        is_listed(program.options_outside_grant, word, next)
            || is_listed(sub.options_outside_grant, word, next)
            || at >= tool && is_listed(runs.options_outside_grant, word, next)
            || at >= tool && runs.runs_files && may_name_outside_path(word)
            || program.takes_variables && sets_variable(word)
    })
}

/// True for `CC=…` and `SHELL=…`, which act like options of `make`.
fn sets_variable(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

fn is_name(text: &str) -> bool {
    let text = text.trim_end_matches([':', '+', '?', '!']);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// True if a word is a path outside of the command's folder, has one as its value, or names a file with further
/// arguments.
fn may_name_outside_path(word: &str) -> bool {
    let value = word.split_once('=').map_or(word, |parts| parts.1);
    word.starts_with('@') || is_outside(value)
}

/// True if a word is one of these options, or its value makes it one. A list consists of the letters
/// of short options, of long options, which may be abbreviated, of options with a final `<`, which
/// count only if their value is a path outside of the command's folder, and of switches with a final `:`,
/// which may begin with a slash.
fn is_listed(options: WordList, word: &str, next: &str) -> bool {
    let (name, value) = word.split_once('=').unwrap_or((word, next));
    word.starts_with(['-', '/'])
        && options.split(' ').any(|option| match option.strip_suffix('<') {
            Some(option) => {
                is_outside(value) && is_named(name, option)
                    || attached(word, option).is_some_and(is_outside)
            }
            None if option.ends_with(':') => is_switch(word, option),
            None if option.starts_with('-') => is_named(name, option),
            None => option.chars().any(|letter| is_option(word, letter, "")),
        })
}

/// True for the name of an option, an abbreviation, and another spelling (`--test-runner`, `--testRunner`).
fn is_named(given: &str, name: &str) -> bool {
    let is_long = given.len() > 2 && name.len() > 2;
    given == name || is_option(given, '\0', name) || is_long && letters(given) == letters(name)
}

fn letters(name: &str) -> String {
    name.chars().filter(|char| !"-_".contains(*char)).collect::<String>().to_lowercase()
}

/// `-p:x`, `/p:x`, `--P:x`.
fn is_switch(word: &str, name: &str) -> bool {
    let word = word.trim_start_matches(['-', '/']);
    text::strip_prefix_ignore_case(word, name).is_some()
}

/// The value that follows an option letter in the same word.
fn attached<'a>(word: &'a str, letter: &str) -> Option<&'a str> {
    (letter.len() == 2 && !word.starts_with("--")).then(|| word.strip_prefix(letter))?
}

fn is_outside(path: &str) -> bool {
    path.starts_with(['/', '~', '$']) || path.split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::super::read_only::tests::simple;
    use super::*;

    #[test]
    fn options_that_run_or_write_something_else_are_known() {
        const LINES: &str = include_str!("../../tests/data/shell/exceeding.txt");
        let (exceeding, covered) = LINES.split_once("\n\n").unwrap();
        let lines = |text: &'static str| text.lines().filter(|line| !line.starts_with("# "));
        let exceeds = |line: &&str| exceeds_prefix(&simple(line));
        let missed: Vec<_> = lines(exceeding).filter(|line| !exceeds(line)).collect();
        let refused: Vec<_> = lines(covered).filter(exceeds).collect();
        assert!(
            missed.is_empty() && refused.is_empty(),
            "missed: {missed:?}, refused: {refused:?}"
        );
        assert!(lines(exceeding).count() > 120 && lines(covered).count() > 25);
        assert!(exceeds_prefix(&SimpleCommand { has_unknown_args: true, ..simple("cargo test") }));
    }

    #[test]
    fn further_tasks_are_not_covered() {
        for (line, words, expected) in [
            ("make test deploy", 2, true),
            ("make test -k -s deploy", 2, true),
            ("just lint deploy", 2, true),
            ("gradle test publish", 2, true),
            ("make test", 2, false),
            ("make test -j 4", 2, false),
            ("make test -k 4", 2, true),
            ("ninja all -k 0", 2, false),
            ("rake test -j 4", 2, false),
            ("make test -k deploy", 2, true),
            ("make test -j deploy", 2, true),
            ("gulp build deploy", 2, true),
            ("mvn test -pl core", 2, false),
            ("mvn test -x deploy", 2, true),
            ("gradle test --tests Foo", 2, false),
            ("make test deploy", 1, false),
            ("cargo test deploy", 2, false),
        ] {
            assert_eq!(names_more_tasks(&simple(line), words), expected, "{line}");
        }
    }
}
