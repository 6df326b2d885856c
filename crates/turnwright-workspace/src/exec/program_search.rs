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
    let mut absolute = folders.filter(|folder| folder.is_absolute());
    absolute.find_map(|folder| program_at(&folder.join(name)))
}

/// Finds the program that this path means. On Windows, the extension may be missing. Blocks.
pub fn program_at(path: &Path) -> Option<PathBuf> {
    let mut files = ENDS.iter().map(|end| {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        PathBuf::from(file)
    });
    files.find(|file| is_program(file).unwrap_or(false))
}

/// Returns true if a file can be run. Blocks.
pub fn is_program(file: &Path) -> io::Result<bool> {
    let found = std::fs::metadata(file)?;
    #[cfg(unix)]
    let may_run = std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o111 != 0;
    // Beside `npx.cmd` lies `npx`, which only other shells can run.
    #[cfg(not(unix))]
    let may_run = file.extension().is_some_and(|end| {
        ["exe", "cmd", "bat", "com"].iter().any(|known| end.eq_ignore_ascii_case(known))
    });
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

#[cfg(all(test, windows))]
mod windows_tests {
    use super::*;

    /// As npm installs its programs.
    #[test]
    fn a_script_for_other_shells_is_no_program() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["npx", "npx.cmd", "only-a-script", "Tool.EXE"] {
            std::fs::File::create(folder.path().join(name)).unwrap();
        }
        for (name, expected) in [
            ("npx", Some("npx.cmd")),
            ("npx.cmd", Some("npx.cmd")),
            ("tool", Some("tool.exe")),
            ("only-a-script", None),
        ] {
            let expected = expected.map(|file| folder.path().join(file));
            let path = folder.path().as_os_str();
            assert_eq!(find_in_path(Path::new(name), Some(path)), expected, "{name}");
            assert_eq!(program_at(&folder.path().join(name)), expected, "{name}");
        }
    }
}
