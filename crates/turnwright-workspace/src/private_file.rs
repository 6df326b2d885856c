//! Small files that only their owner may read.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// Writes a file atomically with mode 0600, and creates its folder with mode 0700 if it is missing.
///
/// # Errors
/// If the folder cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut folders = fs::DirBuilder::new();
    folders.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut folders, 0o700);
    folders.create(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
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
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            result => return result.map(drop).map_err(|it| it.error),
        }
    }
}

/// Removes a file. Returns whether it existed.
///
/// # Errors
/// If it exists and cannot be removed.
pub fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads the text of a file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<String> {
    // Reading a FIFO could block for ever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    let count = File::open(path)?.take(limit + 1).read_to_string(&mut text)?;
    if count as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok(text)
}
