//! Paths with every symbolic link resolved, in the form in which people and programs write them.

use std::io;
use std::path::{Path, PathBuf};

/// The longest path that every program of Windows understands without `\\?\`.
const MAX_PLAIN_LENGTH: usize = 259;
/// Names that are a device in every folder of Windows, with any extension.
const DEVICES: [&str; 4] = ["AUX", "CON", "NUL", "PRN"];

/// Resolves every symbolic link of a path, which must exist. On Windows the system answers with `\\?\C:\`
/// at the beginning, which `cmd` and others do not understand; it is left out where that changes nothing.
///
/// # Errors
/// Those of the system.
pub fn real_path(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let real = std::fs::canonicalize(path)?;
    if cfg!(windows)
        && let Some(plain) = real.to_str().and_then(plain_windows_path)
    {
        return Ok(plain.into());
    }
    Ok(real)
}

/// The path without `\\?\`; `None` if it has none, or means something else without it.
fn plain_windows_path(path: &str) -> Option<&str> {
    let plain = path.strip_prefix(r"\\?\")?;
    let mut names = plain.split('\\');
    let drive = names.next()?.as_bytes();
    let is_drive = drive.len() == 2 && drive[0].is_ascii_alphabetic() && drive[1] == b':';
    let fits = is_drive && plain.len() <= MAX_PLAIN_LENGTH && names.all(is_plain_name);
    // `C:` alone is the current folder of the drive.
    (fits && plain.len() > 2).then_some(plain)
}

/// Whether Windows takes a name as it is: it removes dots and blanks at its end, and some names are
/// devices.
fn is_plain_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let numbered = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    let is_port = numbered.is_some_and(|it| it.chars().count() == 1);
    !name.ends_with(['.', ' ']) && !is_port && !DEVICES.contains(&stem.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_form_of_windows_is_left_out_where_that_changes_nothing() {
        let long = format!(r"\\?\C:\{}", "a".repeat(300));
        let table = [
            (r"\\?\C:\Users\me\a b.txt", Some(r"C:\Users\me\a b.txt")),
            (r"\\?\C:\", Some(r"C:\")),
            (r"\\?\z:\console\nully", Some(r"z:\console\nully")),
            (r"C:\Users", None),
            (r"\\?\C:", None),
            (r"\\?\UNC\server\share\a", None),
            (r"\\?\Volume{1}\a", None),
            (r"\\?\C:\a.\b", None),
            (r"\\?\C:\a \b", None),
            (r"\\?\C:\nul.txt", None),
            (r"\\?\C:\a\Com1", None),
            (long.as_str(), None),
        ];
        for (path, expected) in table {
            assert_eq!(plain_windows_path(path), expected, "{path}");
        }
    }
}
