//! Words that the shell itself knows: reserved words, builtins that change it, and variables.

use crate::shell::programs::{WordList, is_in};

/// Reserved words, which are not commands.
const RESERVED: &[&str] = &[
    "!", "[[", "]]", "{", "}", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "until", "while",
];

/// Builtins that evaluate text or change the meaning of later commands.
const STATEFUL_BUILTINS: WordList = ". alias bg bind break builtin caller chdir compgen complete \
    compopt continue declare dirs disown enable eval exec export fc fg getopts hash history jobs \
    let local logout mapfile read readarray readonly return set setvar shift shopt source suspend \
    times trap typeset ulimit umask unalias unset wait";

/// Variables that only influence output.
const HARMLESS_VARIABLES: WordList = "CARGO_TERM_COLOR CI CLICOLOR CLICOLOR_FORCE COLUMNS DEBUG \
    FORCE_COLOR LINES NODE_ENV NO_COLOR PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED RUST_BACKTRACE \
    RUST_LIB_BACKTRACE RUST_LOG RUST_TEST_THREADS";

/// Variables that hold no secret and have for a command that only reads the same value as for all others.
const PLAIN_VARIABLES: WordList = "CARGO_HOME GOPATH GOROOT HOME JAVA_HOME LANG LOGNAME NVM_DIR \
    PWD RUSTUP_HOME SHELL USER XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME";

/// Returns true if everybody may see the value of this variable.
pub(in crate::shell) fn is_plain_variable(name: &str) -> bool {
    is_in(PLAIN_VARIABLES, name)
}

pub(super) fn is_assignment(word: &str) -> bool {
    assignment(word).is_some()
}

/// Returns true for a word that may stand in front of a command.
pub(super) fn is_prefix(word: &str) -> bool {
    is_reserved(word) || is_assignment(word)
}

pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

pub(super) fn changes_shell(program: &str) -> bool {
    is_in(STATEFUL_BUILTINS, program)
}

/// True for the actions of `find` that run a command for each file.
pub(in crate::shell) fn is_find_exec(word: &str) -> bool {
    matches!(word, "-exec" | "-execdir" | "-ok" | "-okdir")
}

/// The name of a program without its folder. A program in the current folder (`./x`) keeps it,
/// because it may be anything.
pub(in crate::shell) fn name(program: &str) -> &str {
    match program.strip_prefix("./") {
        Some(rest) if !rest.contains('/') => program,
        _ => program.rsplit('/').next().unwrap_or_default(),
    }
}

/// True if this assignment does not change what is run.
pub(in crate::shell) fn is_harmless_variable(variable: &str, value: &str) -> bool {
    match variable {
        "TERM" => matches!(value, "dumb" | "xterm" | "xterm-256color"),
        "LANG" | "LANGUAGE" | "LC_ALL" | "LC_COLLATE" | "LC_CTYPE" | "LC_MESSAGES" => {
            is_locale(value)
        }
        // Anything else may name a file.
        "TZ" => {
            !value.starts_with('/')
                && !value.contains("..")
                && value.chars().all(|char| char.is_ascii_alphanumeric() || "_+-/,.".contains(char))
        }
        _ => is_in(HARMLESS_VARIABLES, variable),
    }
}

/// True for a name that scripts give to a variable of their own, which no program obeys.
pub(super) fn is_own_variable(name: &str) -> bool {
    name.starts_with(|char: char| char.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && !name.contains("proxy")
}

fn is_locale(value: &str) -> bool {
    let language = value.strip_suffix(".UTF-8").or_else(|| value.strip_suffix(".utf8"));
    matches!(value, "C" | "POSIX")
        || language
            .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_'))
}

/// The name and the value of an assignment.
pub(in crate::shell) fn assignment(word: &str) -> Option<(&str, &str)> {
    let (variable, value) = word.split_once('=')?;
    let is_name = !variable.starts_with(|char: char| char.is_ascii_digit())
        && !variable.is_empty()
        && variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((variable, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted() {
        for table in [STATEFUL_BUILTINS, HARMLESS_VARIABLES, PLAIN_VARIABLES] {
            assert!(table.split(' ').is_sorted(), "{table:?}");
        }
    }
}
