//! What only reads, and what does not: two lists, and what must hold for all commands.

use std::path::PathBuf;

use proptest::prelude::*;

use super::super::{Simple, Word, nature, pattern, widens};

/// Splits at blanks. Quotes hold words together; outside of them `*`, `?` and `[…]` are patterns.
pub(in crate::shell) fn simple(line: &str) -> Simple {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut is_quoted = false;
    for sign in line.chars() {
        match sign {
            '\'' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            ' ' if !is_quoted => words.extend(word.take()),
            _ => {
                let word = word.get_or_insert_default();
                word.text.push(sign);
                word.is_glob |= !is_quoted && "*?[".contains(sign);
            }
        }
    }
    words.extend(word);
    for word in &mut words {
        // The program of that name, and a bracket that does not close.
        word.is_glob &= !word.text.starts_with('[') || word.text.contains(']');
    }
    Simple { words, folder: Some(PathBuf::from(".")), ..Simple::default() }
}

fn reading() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../../../tests/data/shell/only_reads.txt").lines();
    lines.filter(|it| !it.starts_with('#')).filter_map(|it| it.split_once(" =>"))
}

#[test]
fn commands_that_only_read_are_known_with_what_they_read() {
    let mut wrong = Vec::new();
    for (line, expected) in reading() {
        let nature = nature(&simple(line));
        let reads: Vec<_> = nature.reads.iter().map(|it| it.to_string_lossy()).collect();
        let expected: Vec<_> = expected.split_whitespace().collect();
        if !nature.only_reads || reads != expected {
            wrong.push(format!("{line}: {} {reads:?}", nature.only_reads));
        }
        if nature.danger.is_some() || nature.catastrophe.is_some() {
            wrong.push(format!("{line}: {nature:?}"));
        }
    }
    assert!(reading().count() > 200);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_may_do_more_than_read_is_not_taken_for_reading() {
    let lines = include_str!("../../../tests/data/shell/more_than_reads.txt").lines();
    let wrong: Vec<&str> = lines.filter(|it| nature(&simple(it)).only_reads).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn one_option_that_is_not_known_is_enough() {
    // They print what they are given, or take any word for a condition.
    let talkers = ["echo", "expr", ":", "true", "false", "printf", "["];
    for (line, _) in reading() {
        if talkers.contains(&simple(line).program()) || line.contains(" -- ") {
            continue;
        }
        for option in ["--frobnicate", "--frobnicate=x", "-~", "-\u{e9}", "--"] {
            let mut command = simple(line);
            let at = if option == "--" { command.words.len() } else { 1 };
            let last = if option == "--" { "--frobnicate-" } else { option };
            let is_option = option != "--";
            command.words.insert(at, Word { text: last.to_owned(), is_glob: !is_option });
            let subject = nature(&command);
            assert!(!subject.only_reads, "{option} in {line}");
        }
    }
}

#[test]
fn with_arguments_that_nobody_knows_it_may_read_anything_or_do_anything() {
    let reads = |line: &str| {
        let nature = nature(&Simple { is_open: true, ..simple(line) });
        nature.only_reads.then_some(nature.reads)
    };
    let anything = Some(vec![PathBuf::from("/")]);
    for line in ["cat", "wc -l", "head -n 5", "grep -n foo", "ls -la", "stat -c %s", "md5sum"] {
        assert_eq!(reads(line), anything, "{line}");
    }
    for line in ["echo", "basename", "dirname --zero"] {
        assert_eq!(reads(line), Some(Vec::new()), "{line}");
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
        assert_eq!(reads(line), None, "{line}");
    }
}

#[test]
fn only_what_lies_where_programs_lie_is_known() {
    for (line, expected) in [("/usr/bin/git status", true), ("/opt/git status", false)] {
        let nature = nature(&simple(line));
        assert_eq!((nature.only_reads, nature.is_git), (expected, true), "{line}");
    }
    assert!(!nature(&simple("gitk")).is_git);
}

proptest! {
    #[test]
    fn any_words_can_be_judged(
        program in "git|rm|find|sed|awk|jq|rg|xxd|kill|mv|sudo|cargo|[a-z\\[:.~é/-]{0,5}",
        words in prop::collection::vec(("[-a-z0-9=*/.~$é{}'+:,\\[\\]@# \n]{0,8}", any::<bool>()), 0..8),
        is_open: bool,
    ) {
        let word = |(text, is_glob): (String, bool)| Word { text, is_glob };
        let words = std::iter::once((program, false)).chain(words).map(word).collect();
        let command = Simple { words, is_open, ..Simple::default() };
        let nature = nature(&command);
        // What can be granted for good destroys nothing.
        if pattern(&command).is_some() {
            prop_assert!(nature.danger.is_none() && nature.catastrophe.is_none());
            prop_assert!(!widens(&command));
        }
        prop_assert!(nature.only_reads || nature.reads.is_empty());
    }
}
