//! Tests with lists of commands that only read and of others, and properties that hold for all
//! commands.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::super::harm::ruin::ruin_of_command;
use super::super::{SimpleCommand, Word, classify, danger, exceeds_prefix, suggest_prefix};

/// Splits at blanks. Quotes keep words together; outside of them `*`, `?` and `[…]` are globs.
pub(in crate::shell) fn simple(line: &str) -> SimpleCommand {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut is_quoted = false;
    for char in line.chars() {
        match char {
            '\'' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            ' ' if !is_quoted => words.extend(word.take()),
            _ => {
                let word = word.get_or_insert_default();
                word.text.push(char);
                word.is_glob |= !is_quoted && "*?[".contains(char);
            }
        }
    }
    words.extend(word);
    for word in &mut words {
        // `[` alone is a program, and an unclosed bracket is literal.
        word.is_glob &= !word.text.starts_with('[') || word.text.contains(']');
    }
    SimpleCommand { words, folder: Some(PathBuf::from(".")), ..SimpleCommand::default() }
}

fn read_only_lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../../../tests/data/shell/read_only.txt").lines();
    lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" =>"))
}

#[test]
fn commands_that_only_read_are_known_with_what_they_read() {
    let mut wrong = Vec::new();
    for (line, expected) in read_only_lines() {
        let class = classify(&simple(line));
        let reads: Vec<_> = class.reads.iter().map(|path| path.to_string_lossy()).collect();
        let expected: Vec<_> = expected.split_whitespace().collect();
        if !class.is_read_only || reads != expected {
            wrong.push(format!("{line}: {} {reads:?}", class.is_read_only));
        }
        let command = simple(line);
        if danger(&command).is_some() || ruin_of_command(&command, Path::new(""), None).is_some() {
            wrong.push(format!("{line}: {class:?}"));
        }
    }
    assert!(read_only_lines().count() > 200);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_that_may_do_more_than_read_are_not_read_only() {
    let lines = include_str!("../../../tests/data/shell/not_read_only.txt").lines();
    let wrong: Vec<&str> = lines.filter(|line| classify(&simple(line)).is_read_only).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn one_unknown_option_is_enough() {
    // They print their arguments, or take any word for a condition.
    let without_options = ["echo", "expr", ":", "true", "false", "printf", "["];
    for (line, _) in read_only_lines() {
        if without_options.contains(&simple(line).program()) || line.contains(" -- ") {
            continue;
        }
        for option in ["--frobnicate", "--frobnicate=x", "-~", "-\u{e9}", "--"] {
            let mut command = simple(line);
            let at = if option == "--" { command.words.len() } else { 1 };
            let last = if option == "--" { "--frobnicate-" } else { option };
            let is_option = option != "--";
            command.words.insert(at, Word { text: last.to_owned(), is_glob: !is_option });
            let class = classify(&command);
            assert!(!class.is_read_only, "{option} in {line}");
        }
    }
}

#[test]
fn with_unknown_arguments_a_command_may_read_or_do_anything() {
    let reads_unknown_files = |line: &str| {
        let class = classify(&SimpleCommand { has_unknown_args: true, ..simple(line) });
        class.is_read_only.then_some(class.reads_unknown_files)
    };
    for line in ["cat", "wc -l", "head -n 5", "grep -n foo", "ls -la", "stat -c %s", "md5sum"] {
        assert_eq!(reads_unknown_files(line), Some(true), "{line}");
    }
    for line in ["echo", "basename", "dirname --zero"] {
        assert_eq!(reads_unknown_files(line), Some(false), "{line}");
    }
    for line in [
        "sort",
        "uniq",
        "rm",
        "find",
        "rg foo",
        "git log",
        "git diff",
        "tree",
        "sed -n 5p",
        "xxd",
        "date",
        "grep",
        "cat -o",
        "file",
        "printf",
        "test",
        "cd",
        "cargo",
        "jq .",
        "",
    ] {
        assert_eq!(reads_unknown_files(line), None, "{line}");
    }
}

#[test]
fn only_programs_in_system_folders_are_known() {
    for (line, expected) in [("/usr/bin/git status", true), ("/opt/git status", false)] {
        let class = classify(&simple(line));
        assert_eq!((class.is_read_only, class.is_git), (expected, true), "{line}");
    }
    assert!(!classify(&simple("gitk")).is_git);
}

proptest! {
    #[test]
    fn any_words_can_be_classified(
        program in "git|rm|find|sed|awk|jq|rg|xxd|kill|mv|sudo|cargo|[a-z\\[:.~é/-]{0,5}",
        words in prop::collection::vec(("[-a-z0-9=*/.~$é{}'+:,\\[\\]@# \n]{0,8}", any::<bool>()), 0..8),
        has_unknown_args: bool,
    ) {
        let word = |(text, is_glob): (String, bool)| Word { text, is_glob };
        let words = std::iter::once((program, false)).chain(words).map(word).collect();
        let command = SimpleCommand { words, has_unknown_args, ..SimpleCommand::default() };
        let class = classify(&command);
        // What can be granted permanently destroys nothing.
        if suggest_prefix(&command).is_some() {
            prop_assert!(danger(&command).is_none());
            prop_assert!(ruin_of_command(&command, Path::new(""), None).is_none());
            prop_assert!(!exceeds_prefix(&command));
        }
        prop_assert!(class.is_read_only || class.reads.is_empty());
    }
}
