//! Small files of our own that only their owner can read.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// Writes the file in one step and with mode 0600; its folder is made if it is not there.
///
/// # Errors
/// When the folder cannot be written.
pub fn store(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // A temporary file has mode 0600 from the start.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Removes the file. Returns whether there was one.
///
/// # Errors
/// When it is there and cannot be removed.
pub fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The text of a file, if it is not larger than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<String> {
    // A pipe would never end, or never begin.
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
