//! Small files that only their owner may read.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// Writes a file atomically with mode 0600, and creates its folder with mode 0700 if it is missing. If
/// the path is a link to a file, that file is replaced and the link stays.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let target = crate::real_path(path).ok().filter(|it| it.is_file());
    let path = target.as_deref().unwrap_or(path);
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

#[cfg(test)]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_stays_and_the_file_that_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("dotfiles")).unwrap();
        fs::write(path("dotfiles/login.json"), "old").unwrap();
        symlink("dotfiles/login.json", path("login.json")).unwrap();
        write(&path("login.json"), b"new").unwrap();
        assert!(path("login.json").is_symlink());
        assert_eq!(fs::read_to_string(path("dotfiles/login.json")).unwrap(), "new");
        // A link that leads to no file is replaced.
        for (name, target) in [("dangling", "nothing"), ("device", "/dev/null")] {
            symlink(target, path(name)).unwrap();
            write(&path(name), b"new").unwrap();
            assert!(!path(name).is_symlink());
            assert_eq!(fs::read_to_string(path(name)).unwrap(), "new");
        }
    }
}
