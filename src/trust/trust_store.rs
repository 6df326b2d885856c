//! Stores what the user trusts: one file for each record, which only the user can read, in a folder
//! outside of any project.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::Fingerprint;
use turnwright_types::hash::sha256_hex;
use turnwright_types::private_file;

/// At most this many records are read to list or remove some.
const MAX_RECORDS: usize = 10_000;
/// The largest file that is read.
const MAX_RECORD_BYTES: u64 = 64 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct TrustStore {
    folder: PathBuf,
}

/// A content that the user trusts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct TrustRecord {
    /// The project's folder, a real path.
    pub project: String,
    /// The trusted thing, such as the name of the file.
    pub what: String,
    /// The SHA-256 of the content.
    pub sha256: String,
    /// When it was trusted, as an HTTP date.
    pub since: String,
}

impl TrustStore {
    /// The store below a state folder.
    pub(crate) fn new(state: &Path) -> TrustStore {
        TrustStore { folder: state.join("trust") }
    }

    /// Returns true if the user trusts exactly this content in a project, whose path is a real one.
    pub(crate) fn is_trusted(&self, project: &Path, what: &str, content: &[u8]) -> bool {
        let Some(wanted) = new_record(project, what, content) else { return false };
        load(&self.path(&wanted)).is_some_and(|found| {
            (&found.project, &found.what, &found.sha256)
                == (&wanted.project, &wanted.what, &wanted.sha256)
        })
    }

    /// Trusts exactly this content from now on.
    pub(crate) fn trust(&self, project: &Path, what: &str, content: &[u8]) -> io::Result<()> {
        let record = new_record(project, what, content)
            .ok_or_else(|| io::Error::other("the folder's path is not valid Unicode"))?;
        private_file::write(&self.path(&record), serde_json::to_string_pretty(&record)?.as_bytes())
    }

    /// Removes all records of a project. Returns their number.
    pub(crate) fn forget(&self, project: &Path) -> io::Result<usize> {
        let mut count = 0;
        for record in self.list() {
            if Some(record.project.as_str()) == project.to_str() {
                count += usize::from(private_file::remove(&self.path(&record))?);
            }
        }
        Ok(count)
    }

    /// All records, sorted by project.
    pub(crate) fn list(&self) -> Vec<TrustRecord> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().take(MAX_RECORDS);
        let mut all: Vec<_> = entries.filter_map(|entry| load(&entry.path())).collect();
        all.sort();
        all
    }

    /// The file name is a hash of project, item and content, so a lookup reads only one file.
    fn path(&self, record: &TrustRecord) -> PathBuf {
        let key = format!("{}\0{}\0{}", record.project, record.what, record.sha256);
        let name = sha256_hex(key.as_bytes());
        self.folder.join(format!("{name}.json"))
    }
}

fn new_record(project: &Path, what: &str, content: &[u8]) -> Option<TrustRecord> {
    Some(TrustRecord {
        project: project.to_str()?.to_owned(),
        what: what.to_owned(),
        sha256: Fingerprint::of(content).0,
        since: httpdate::fmt_http_date(SystemTime::now()),
    })
}

fn load(path: &Path) -> Option<TrustRecord> {
    let about = fs::symlink_metadata(path).ok()?;
    if !about.is_file() || about.len() > MAX_RECORD_BYTES {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_for_one_content_of_one_thing_in_one_folder() {
        let state = tempfile::tempdir().unwrap();
        let trust = TrustStore::new(state.path());
        let here = Path::new("/ws");
        let there = Path::new("/other");
        assert!(!trust.is_trusted(here, "a", b"x"));
        trust.trust(here, "a", b"x").unwrap();
        trust.trust(here, "a", b"y").unwrap();
        trust.trust(there, "a", b"x").unwrap();
        // A second store of the same folder sees the records: nothing is cached in memory.
        let trust = TrustStore::new(state.path());
        let table = [
            (here, "a", "x", true),
            (here, "a", "y", true),
            (here, "a", "x ", false),
            (here, "b", "x", false),
            (there, "a", "x", true),
            (there, "a", "y", false),
            (Path::new("/ws/sub"), "a", "x", false),
        ];
        for (project, what, content, expected) in table {
            let is_trusted = trust.is_trusted(project, what, content.as_bytes());
            assert_eq!(is_trusted, expected, "{project:?} {what} {content}");
        }
        assert_eq!(trust.list().len(), 3);
        assert_eq!(trust.forget(here).unwrap(), 2);
        assert_eq!(trust.forget(here).unwrap(), 0);
        assert!(!trust.is_trusted(here, "a", b"x") && trust.is_trusted(there, "a", b"x"));
    }

    #[cfg(unix)]
    #[test]
    fn a_record_is_private_and_an_invalid_one_is_ignored() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().unwrap();
        let trust = TrustStore::new(state.path());
        trust.trust(Path::new("/ws"), "a", b"x").unwrap();
        let path =
            fs::read_dir(state.path().join("trust")).unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for junk in ["", "{}", "{\"project\":\"/ws\"}"] {
            private_file::write(&path, junk.as_bytes()).unwrap();
            assert!(!trust.is_trusted(Path::new("/ws"), "a", b"x"), "{junk}");
        }
        assert_eq!(trust.list(), []);
    }
}
