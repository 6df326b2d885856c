//! Finds a program by its name, and this program itself.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The ends that the name of a program's file may have.
const ENDS: &[&str] = if cfg!(windows) { &["", ".exe", ".cmd", ".bat"] } else { &[""] };

/// The path of this program, which launches commands in the editor's terminals and reads documents. It is determined
/// once, because the file may be replaced by a new version later.
pub fn launcher_program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(|| std::env::current_exe().ok()).as_deref()
}

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
