//! Words with a meaning: what shells reserve, what changes a shell, what only starts something
//! else, and which variables do no harm.

/// Words that are no commands, where a command could stand.
const RESERVED: &[&str] = &[
    "!", "[[", "]]", "{", "}", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "until", "while",
];

/// Commands that evaluate text, or change what later words mean.
const CHANGES_SHELL: &[&str] = &[
    ".",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "chdir",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "declare",
    "dirs",
    "disown",
    "enable",
    "eval",
    "exec",
    "export",
    "fc",
    "fg",
    "getopts",
    "hash",
    "history",
    "jobs",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "pushd",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "setvar",
    "shift",
    "shopt",
    "source",
    "suspend",
    "times",
    "trap",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "wait",
];

/// Programs that start another one, which is looked for behind their options.
const STARTERS: &[&str] = &[
    "busybox",
    "chroot",
    "chrt",
    "command",
    "doas",
    "env",
    "exec",
    "flock",
    "ionice",
    "ltrace",
    "nice",
    "nohup",
    "nsenter",
    "parallel",
    "pkexec",
    "prlimit",
    "runuser",
    "setarch",
    "setsid",
    "stdbuf",
    "strace",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "toybox",
    "unbuffer",
    "unshare",
    "watch",
    "xargs",
];

/// Programs that take a line for a shell as one of their words.
const SHELLS: &[&str] = &[
    "ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "script", "sh", "su", "tcsh",
    "yash", "zsh",
];

/// Variables that change what is printed and nothing that is run.
const HARMLESS: &[&str] = &[
    "CARGO_TERM_COLOR",
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "DEBUG",
    "FORCE_COLOR",
    "LINES",
    "NODE_ENV",
    "NO_COLOR",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "RUST_LOG",
    "RUST_TEST_THREADS",
];

pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

pub(super) fn changes_shell(program: &str) -> bool {
    CHANGES_SHELL.binary_search(&program).is_ok()
}

pub(super) fn is_starter(program: &str) -> bool {
    STARTERS.binary_search(&name(program)).is_ok()
}

pub(super) fn is_shell(program: &str) -> bool {
    SHELLS.binary_search(&name(program)).is_ok()
}

/// Whether `find` runs a command for what it finds.
pub(super) fn runs_for_each(word: &str) -> bool {
    matches!(word, "-exec" | "-execdir" | "-ok" | "-okdir")
}

/// A program without its folder, unless that is where the line runs: there it may be anything.
pub(super) fn name(program: &str) -> &str {
    match program.strip_prefix("./") {
        Some(rest) if !rest.contains('/') => program,
        _ => program.rsplit('/').next().unwrap_or_default(),
    }
}

/// Whether a variable may have that value without changing what is run.
pub(super) fn is_harmless(variable: &str, value: &str) -> bool {
    match variable {
        "TERM" => matches!(value, "dumb" | "xterm" | "xterm-256color"),
        "LANG" | "LANGUAGE" | "LC_ALL" | "LC_COLLATE" | "LC_CTYPE" | "LC_MESSAGES" => {
            is_locale(value)
        }
        // Anything else may be a file's name.
        "TZ" => {
            let is_odd = |it: char| !it.is_ascii_alphanumeric() && !"_+-/,.".contains(it);
            !value.starts_with('/') && !value.contains("..") && !value.contains(is_odd)
        }
        _ => HARMLESS.binary_search(&variable).is_ok(),
    }
}

fn is_locale(value: &str) -> bool {
    let language = value.strip_suffix(".UTF-8").or_else(|| value.strip_suffix(".utf8"));
    let is_name = |it: &str| it.bytes().all(|it| it.is_ascii_alphabetic() || it == b'_');
    matches!(value, "C" | "POSIX") || language.is_some_and(is_name)
}

/// The name and the value of what sets a variable.
pub(super) fn assignment(word: &str) -> Option<(&str, &str)> {
    let (variable, value) = word.split_once('=')?;
    let is_name = !variable.starts_with(|it: char| it.is_ascii_digit())
        && !variable.is_empty()
        && variable.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
    is_name.then_some((variable, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted() {
        for table in [CHANGES_SHELL, STARTERS, SHELLS, HARMLESS] {
            assert!(table.is_sorted(), "{table:?}");
        }
    }
}
