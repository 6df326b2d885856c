//! Finds a program by its name.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The ends that the name of a program's file may have.
const ENDS: &[&str] = if cfg!(windows) { &["", ".exe", ".cmd", ".bat"] } else { &[""] };

/// Finds a program in the folders of `PATH` as a shell does, but skips relative ones: a name must not mean a file of
/// the project. Blocks.
pub fn find_in_path(name: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    let folders = path.map(std::env::split_paths).into_iter().flatten();
    let mut files = folders.filter(|folder| folder.is_absolute()).flat_map(|folder| {
        let plain = folder.join(name).into_os_string();
        ENDS.iter().map(move |end| {
            let mut file = plain.clone();
            file.push(end);
            PathBuf::from(file)
        })
    });
    files.find(|file| is_program(file).unwrap_or(false))
}

/// Returns true if a file can be run. Blocks.
pub fn is_program(file: &Path) -> io::Result<bool> {
    let found = std::fs::metadata(file)?;
    #[cfg(unix)]
    let may_run = std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let may_run = true;
    Ok(found.is_file() && may_run)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_in_absolute_folders() {
        let find = |name: &str, path: &str| find_in_path(Path::new(name), Some(OsStr::new(path)));
        assert!(find("sh", "relative:/bin:/usr/bin").is_some());
        assert!(find("no-such-program", "/bin:/usr/bin").is_none());
        assert!(find("sh", "bin").is_none() && find_in_path(Path::new("sh"), None).is_none());
    }
}
