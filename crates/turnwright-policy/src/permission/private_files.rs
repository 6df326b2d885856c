//! Files below the state folder that only their owner can read and that several processes change:
//! written atomically, under a lock. All functions block.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for another process that holds the lock. It only writes one small file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The folder for the data of one project. `project` is a path with symlinks resolved.
pub fn project_folder(state: &Path, project: &Path) -> PathBuf {
    let name = project.file_name().map(|it| it.to_string_lossy().to_lowercase());
    let is_allowed = |it: &char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let name: String = name.unwrap_or_default().chars().filter(is_allowed).take(40).collect();
    let hash = stable_hash(project.as_os_str().as_encoded_bytes());
    let name = if name.is_empty() { "project" } else { name.as_str() };
    state.join("projects").join(format!("{name}-{hash:016x}"))
}

/// FNV-1a, which is stable across versions and platforms. Collisions are possible, so files in the
/// folder name their project.
fn stable_hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Creates a folder that only its owner can access.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(folder)
}

/// Reads a file of at most `limit` bytes; `None` if it does not exist.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Option<String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        // Reading a pipe could block forever.
        Ok(found) if !found.is_file() => return Err(io::Error::other("not a regular file")),
        Ok(_) => {}
    }
    let mut text = String::new();
    let count = File::open(path)?.take(limit + 1).read_to_string(&mut text)?;
    if count as u64 > limit {
        return Err(io::Error::other(format!("larger than {limit} bytes")));
    }
    Ok(Some(text))
}

/// Writes a file atomically.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // Temporary files are created with mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    replace(file, path)
}

/// Gives a finished file its name. Windows replaces no file that somebody is reading, so it is tried again
/// for a while there.
fn replace(mut file: tempfile::NamedTempFile, path: &Path) -> io::Result<()> {
    let mut attempts = if cfg!(windows) { 50 } else { 0 };
    loop {
        match file.persist(path) {
            Err(failed)
                if attempts > 0 && failed.error.kind() == io::ErrorKind::PermissionDenied =>
            {
                attempts -= 1;
                file = failed.file;
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result.map(drop).map_err(|it| it.error),
        }
    }
}

/// Appends to a file, in one write if the system allows it.
pub(super) fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut options = File::options();
    options.create(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)?.write_all(text.as_bytes())
}

/// An exclusive lock against other processes, held until it is dropped.
#[derive(Debug)]
pub struct FileLock(#[expect(dead_code, reason = "closing the file releases the lock")] File);

impl FileLock {
    /// Waits for the lock, with a timeout. Creates the file and its folder if they are missing.
    ///
    /// # Errors
    /// If the file cannot be created, or another process holds the lock for too long.
    pub fn acquire(path: &Path) -> io::Result<FileLock> {
        create_folder(path.parent().unwrap_or(Path::new(".")))?;
        let deadline = std::time::Instant::now() + LOCK_TIMEOUT;
        loop {
            match try_lock(path) {
                Ok(file) => return Ok(FileLock(file)),
                Err(error) if is_held(&error) && std::time::Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(unix)]
fn try_lock(path: &Path) -> io::Result<File> {
    use rustix::fs::{FlockOperation, flock};
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().create(true).append(true).mode(0o600).open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

#[cfg(unix)]
fn is_held(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Windows lets one process have a file for itself.
#[cfg(not(unix))]
fn try_lock(path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;
    File::options().create(true).append(true).share_mode(0).open(path)
}

#[cfg(not(unix))]
fn is_held(error: &io::Error) -> bool {
    const SHARING_VIOLATION: i32 = 32;
    error.raw_os_error() == Some(SHARING_VIOLATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_project_has_a_folder_of_its_own() {
        let folder = |it: &str| {
            let folder = project_folder(Path::new("/state"), Path::new(it));
            folder.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/")
        };
        assert!(folder("/home/me/App").starts_with("/state/projects/app-"));
        assert!(folder("/").starts_with("/state/projects/project-"));
        assert!(folder("/a/../b").starts_with("/state/projects/b-"));
        assert_ne!(folder("/a/app"), folder("/b/app"));
        assert_eq!(folder("/a/app"), folder("/a/app"));
    }
}
