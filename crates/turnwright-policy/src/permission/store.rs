//! Files of ours below the state folder that only their owner can read, and that several processes
//! change: written in one step, under a lock. Blocks: not for the runtime's thread.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long another process may hold a lock. It writes one small file.
#[cfg(unix)]
const PATIENCE: Duration = Duration::from_secs(2);

/// The folder in which that is kept which belongs to one project. `project` is a real path.
pub(super) fn folder_of(state: &Path, project: &Path) -> PathBuf {
    let name = project.file_name().map(|it| it.to_string_lossy().to_lowercase());
    let fits = |it: &char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let name: String = name.unwrap_or_default().chars().filter(fits).take(40).collect();
    let hash = fingerprint(project.as_os_str().as_encoded_bytes());
    let name = if name.is_empty() { "project" } else { name.as_str() };
    state.join("projects").join(format!("{name}-{hash:016x}"))
}

/// FNV-1a: tells paths apart, and is the same tomorrow. Whoever reads such a folder checks whose it
/// is.
fn fingerprint(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Makes a folder that only its owner can look into.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(folder)
}

/// The text of a file; `None` if there is none.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Option<String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        // A pipe would never end, or never begin.
        Ok(found) if !found.is_file() => return Err(io::Error::other("it is no regular file")),
        Ok(_) => {}
    }
    let mut text = String::new();
    let count = File::open(path)?.take(limit + 1).read_to_string(&mut text)?;
    if count as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok(Some(text))
}

/// Writes a file in one step.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // A temporary file has mode 0600 from the start.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Adds to the end of a file, in one write where the system allows that.
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

/// Keeps other processes out as long as it lives.
#[derive(Debug)]
pub(super) struct Lock(
    #[cfg(unix)]
    #[expect(dead_code, reason = "closing it unlocks")]
    File,
);

impl Lock {
    /// Waits for whoever else holds it, but not for ever.
    pub(super) fn take(path: &Path) -> io::Result<Lock> {
        #[cfg(unix)]
        {
            use rustix::fs::{FlockOperation, flock};
            use rustix::io::Errno;
            use std::os::unix::fs::OpenOptionsExt;
            let file = File::options().create(true).append(true).mode(0o600).open(path)?;
            let end = std::time::Instant::now() + PATIENCE;
            loop {
                match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => return Ok(Lock(file)),
                    Err(Errno::WOULDBLOCK | Errno::INTR) if std::time::Instant::now() < end => {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        // Elsewhere the file is replaced in one step, which is whole, if not the sum of both.
        #[cfg(not(unix))]
        {
            let _ = path;
            Ok(Lock())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_project_has_a_folder_of_its_own() {
        let folder = |it: &str| folder_of(Path::new("/state"), Path::new(it)).display().to_string();
        assert!(folder("/home/me/App").starts_with("/state/projects/app-"));
        assert!(folder("/").starts_with("/state/projects/project-"));
        assert!(folder("/a/../b").starts_with("/state/projects/b-"));
        assert_ne!(folder("/a/app"), folder("/b/app"));
        assert_eq!(folder("/a/app"), folder("/a/app"));
    }
}
