//! Words of a command as its program may take them, for those who would rather be wrong on the
//! side of care.

use super::{Simple, Word};

pub(super) type Words<'a> = &'a [Word];

/// Programs that run the one behind them. Which option takes a value is not known here.
const WRAPPERS: &[&str] = &[
    "sudo", "doas", "su", "pkexec", "env", "nohup", "nice", "ionice", "timeout", "time", "stdbuf",
    "setsid", "command", "exec", "builtin", "xargs", "busybox", "toybox", "chroot", "unshare",
    "npx", "bunx", "pnpx", "uvx", "bundle", "poetry", "uv", "watch", "strace", "parallel",
];

/// How many words behind a wrapper are tried: a bound for lines that are made to be slow.
const TRIED: usize = 12;

/// What is found of the program of a command, or of one that it runs.
pub(super) fn behind_wrappers<T>(
    command: &Simple,
    find: impl Fn(&str, Words<'_>) -> Option<T>,
) -> Option<T> {
    let words = command.words.as_slice();
    for (at, word) in words.iter().enumerate().take(TRIED) {
        if let Some(found) = find(name(&word.text), &words[at + 1..]) {
            return Some(found);
        }
        // The value of an option, or the program.
        let is_doubtful = at > 0 && words[at - 1].text.starts_with('-');
        if !leads_on(&word.text) && !is_doubtful || at == 0 && !is_wrapper(&word.text) {
            return None;
        }
    }
    None
}

fn is_wrapper(text: &str) -> bool {
    WRAPPERS.contains(&name(text))
}

/// Whether the program may stand behind such a word.
fn leads_on(text: &str) -> bool {
    is_wrapper(text)
        || ["run", "exec"].contains(&text)
        || text.contains('=')
        || text.starts_with(|it: char| it == '-' || it.is_ascii_digit())
}

/// The name of a program without its folder.
pub(super) fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a word may be this option: the letter in a bundle, or the beginning of the name.
pub(super) fn is_option(text: &str, letter: char, name: &str) -> bool {
    match text.strip_prefix("--") {
        Some(_) => {
            let given = text.split('=').next().unwrap_or(text);
            given.len() > 3 && name.starts_with(given)
        }
        None => text.strip_prefix('-').is_some_and(|it| it.contains(letter)),
    }
}

/// The words that are no options; behind `--`, all.
pub(super) fn operands(words: Words<'_>) -> impl DoubleEndedIterator<Item = &Word> + Clone {
    let end = words.iter().position(|it| it.text == "--").unwrap_or(words.len());
    let (before, behind) = words.split_at(end);
    let is_operand = |it: &&Word| !it.text.starts_with('-') || it.text == "-";
    before.iter().filter(is_operand).chain(behind.iter().skip(1))
}

/// The subcommand of git, behind the options that stand before it.
pub(super) fn git_subcommand(words: Words<'_>) -> Option<(&str, Words<'_>)> {
    const WITH_VALUE: &[&str] = &[
        "-c",
        "-C",
        "--git-dir",
        "--work-tree",
        "--namespace",
        "--super-prefix",
        "--config-env",
        "--exec-path",
        "--attr-source",
    ];
    let mut rest = words;
    while let Some((word, behind)) = rest.split_first() {
        if !word.text.starts_with('-') {
            return Some((&word.text, behind));
        }
        let has_value = WITH_VALUE.contains(&word.text.as_str()) && word.text != "--exec-path";
        rest = behind.get(usize::from(has_value)..).unwrap_or_default();
    }
    None
}
