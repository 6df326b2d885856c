//! Commands of Windows that would ruin the whole system.

use super::Word;
use super::args::Args;

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
pub(super) fn removes_drive(words: Args<'_>) -> Option<&'static str> {
    let is_recursive = words.iter().any(|word| {
        word.text.starts_with('/')
            && word.text.to_ascii_lowercase().split('/').any(|part| part == "s")
    });
    let removes = is_recursive && words.iter().any(is_system);
    removes.then_some("deletes the system or all of a user's files")
}

/// `format C:`.
pub(super) fn formats_drive(words: Args<'_>) -> Option<&'static str> {
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
    use turnwright_types::dialect::ShellDialect;

    use std::path::Path;

    use crate::shell::parse;
    use crate::shell::ruin::{Ruin, ruin_of_command};

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
