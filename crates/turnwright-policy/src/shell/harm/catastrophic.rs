//! Commands that would stop or ruin the whole system, on Windows too. They are never run, whatever the mode and the
//! rules say. The list is short, because a wrong entry cannot be overridden.

use super::super::args::{Args, operands};

use super::super::Word;
use super::super::programs::is_in;

pub(super) const SHUTDOWN: &str = "shuts down the machine";

/// `shutdown`, `reboot` and the like.
pub(in crate::shell) fn shuts_down(words: Args<'_>) -> Option<&'static str> {
    (!asks_help(words)).then_some(SHUTDOWN)
}

/// `init 0`.
pub(in crate::shell) fn ends_run_level(words: Args<'_>) -> Option<&'static str> {
    let mut operands = operands(words);
    let is_end = operands.next().is_some_and(|word| ["0", "6"].contains(&word.text.as_str()));
    (is_end && operands.next().is_none()).then_some(SHUTDOWN)
}

/// `systemctl poweroff`.
pub(in crate::shell) fn stops_system(words: Args<'_>) -> Option<&'static str> {
    let stops = "poweroff reboot halt kexec soft-reboot suspend hibernate";
    let mut operands = operands(words).map(|word| word.text.as_str());
    let isolates = operands.clone().nth(1).and_then(|word| word.strip_suffix(".target"));
    let is_end = operands.next().is_some_and(|word| {
        is_in(stops, word)
            || is_in("isolate start", word) && isolates.is_some_and(|target| is_in(stops, target))
    });
    is_end.then_some(SHUTDOWN)
}

/// Also true for `shutdown -c`, which cancels one.
fn asks_help(words: Args<'_>) -> bool {
    words.first().is_some_and(|word| is_in("--help --version -c", &word.text))
}

/// True for `kill -9 -1`, `kill -s KILL -1` and `kill -- -1`. In `kill -1 7`, `-1` is a signal
/// number.
pub(in crate::shell) fn kills_all_processes(words: Args<'_>) -> Option<&'static str> {
    let mut rest = words.iter().map(|word| word.text.as_str()).peekable();
    let takes_value =
        rest.next_if(|word| word.starts_with('-') && *word != "--").is_some_and(|option| {
            // These take the signal as the next word.
            ["-s", "-n", "--signal"].contains(&option)
        });
    if takes_value {
        rest.next();
    }
    rest.any(|word| word == "-1").then_some("kills every process")
}

/// Folders that hold the system or all files of a user, as `cmd` names them.
const SYSTEM_FOLDERS: &[&str] = &[
    "%HOMEDRIVE%",
    "%PROGRAMFILES%",
    "%SYSTEMDRIVE%",
    "%SYSTEMROOT%",
    "%USERPROFILE%",
    "%WINDIR%",
];
/// Those below the root of a drive.
const SYSTEM_NAMES: &[&str] = &["PROGRAM FILES", "USERS", "WINDOWS"];

/// `rd /s C:\`, `del /s C:\*`.
pub(in crate::shell) fn removes_drive(words: Args<'_>) -> Option<&'static str> {
    let is_recursive = words.iter().any(|word| {
        word.text.starts_with('/')
            && word.text.to_ascii_lowercase().split('/').any(|part| part == "s")
    });
    let removes = is_recursive && words.iter().any(is_system);
    removes.then_some("deletes the system or all of a user's files")
}

/// `format C:`.
pub(in crate::shell) fn formats_drive(words: Args<'_>) -> Option<&'static str> {
    words.iter().any(|word| is_drive(&word.text)).then_some("destroys the content of a disk")
}

fn is_drive(text: &str) -> bool {
    matches!(text.as_bytes(), [letter, b':'] if letter.is_ascii_alphabetic())
}

fn is_system(word: &Word) -> bool {
    let path = word.text.to_ascii_uppercase().replace('/', "\\");
    let everything = ["\\*.*", "\\*", "\\"].iter().find_map(|end| path.strip_suffix(end));
    let folder = everything.unwrap_or(&path);
    let name = folder.get(2..).filter(|_| folder.get(..2).is_some_and(is_drive));
    // `\` is the root of the current drive, but `/` begins an option.
    (everything == Some("") && word.text.starts_with('\\'))
        || name == Some("")
        || name
            .and_then(|name| name.strip_prefix('\\'))
            .is_some_and(|name| SYSTEM_NAMES.contains(&name))
        || SYSTEM_FOLDERS.contains(&folder)
}

#[cfg(test)]
mod tests {
    use turnwright_types::shell_script::ShellDialect;

    use std::path::Path;

    use crate::shell::harm::ruin::{Ruin, ruin_of_command};
    use crate::shell::parse;

    #[test]
    fn a_drive_is_not_deleted_or_formatted() {
        for (line, expected) in [
            (r"rd /s /q C:\", true),
            (r"rd/s/q c:\", true),
            (r"RMDIR /Q /S D:", true),
            (r"del /f /s /q C:\*", true),
            (r"erase /s \*.*", true),
            (r"echo x & rd /s \", true),
            (r"rd /s /q %USERPROFILE%", true),
            (r#"rd /s "C:\Program Files""#, true),
            (r"rd /s C:\Windows\*", true),
            (r"cmd /c rd /s C:/", true),
            ("format c: /q", true),
            (r"rd /s /q C:\project\target", false),
            ("rd /s /q target", false),
            (r"rd C:\", false),
            (r"del C:\*", false),
            (r"dir /s C:\", false),
            (r"rd /s C:\Users\me\project", false),
            ("cargo format c", false),
            ("format", false),
        ] {
            let script = parse(line, ShellDialect::Cmd);
            let is_found = script.commands.iter().any(|command| {
                matches!(ruin_of_command(command, Path::new(""), None), Some(Ruin::Certain(_)))
            });
            assert_eq!(is_found, expected, "{line}");
        }
    }
}
