//! Records what the user trusts of a project's files: exactly these bytes, for this folder. Changing one byte makes
//! the file untrusted again. The files of a project are read here without following a link, without blocking on a
//! FIFO, and at most a bounded number of bytes. This module does not interpret the bytes.

mod trust_store;

use std::io::{self, Read};
use std::path::Path;

use turnwright_types::hash::sha256_hex;
use turnwright_types::error_text::io_error_text;
use turnwright_workspace::nofollow;

pub use trust_store::{Pin, PinLookup, PinStore, TrustRecord, TrustStore};

/// The SHA-256 of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// The fingerprint of these bytes.
    pub fn of(content: &[u8]) -> Fingerprint {
        Fingerprint(sha256_hex(content))
    }

    /// The first 8 digits, for a user to type within the process that shows the content and
    /// compares all of it afterwards.
    pub fn short_code(&self) -> &str {
        &self.0[..8]
    }

    /// Enough digits that no other content with the same ones can be constructed.
    pub fn long_code(&self) -> &str {
        &self.0[..32]
    }
}

/// The largest file that is read.
const MAX_PROJECT_FILE_BYTES: u64 = 256 * 1024;

/// Reads a text file of a project, whose folder is a real path; `None` if it does not exist.
/// Blocks: not for the runtime's thread.
///
/// # Errors
/// Why the file is not read, as a phrase that follows its name.
pub fn read_project_file(project: &Path, name: &str) -> Result<Option<String>, String> {
    let file = match nofollow::open_file(&project.join(name)) {
        Ok(file) => file,
        Err(error) if is_not_found(&error) => return Ok(None),
        Err(error) if nofollow::is_link_error(&error) => return Err("is behind a link".to_owned()),
        Err(error) => return Err(format!("cannot be opened ({})", io_error_text(&error))),
    };
    let about =
        file.metadata().map_err(|error| format!("cannot be read ({})", io_error_text(&error)))?;
    if !about.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let count = file
        .take(MAX_PROJECT_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot be read ({})", io_error_text(&error)))?;
    if count as u64 > MAX_PROJECT_FILE_BYTES {
        return Err(format!("is larger than {MAX_PROJECT_FILE_BYTES} bytes"));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| "is not UTF-8".to_owned())
}

fn is_not_found(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use turnwright_workspace::real_path;

    #[test]
    fn only_a_small_regular_file_that_is_no_link_is_read() {
        let base = tempfile::tempdir().unwrap();
        let base = real_path(base.path()).unwrap();
        fs::create_dir(base.join("folder")).unwrap();
        fs::write(base.join("good"), "text").unwrap();
        fs::write(base.join("folder/good"), "text").unwrap();
        fs::write(base.join("binary"), b"\xff").unwrap();
        fs::write(base.join("large"), " ".repeat(300 * 1024)).unwrap();
        symlink("good", base.join("link")).unwrap();
        symlink("folder", base.join("linked")).unwrap();
        let fifo = base.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let table = [
            ("good", Ok(Some("text"))),
            ("folder/good", Ok(Some("text"))),
            ("missing", Ok(None)),
            ("good/below", Ok(None)),
            ("link", Err("link")),
            ("linked/good", Err("link")),
            ("fifo", Err("regular")),
            ("folder", Err("regular")),
            ("large", Err("larger")),
            ("binary", Err("UTF-8")),
        ];
        for (name, expected) in table {
            match (read_project_file(&base, name), expected) {
                (Ok(text), Ok(expected)) => assert_eq!(text.as_deref(), expected, "{name}"),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{name}: {why}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
