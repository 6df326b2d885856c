//! The records: a file for each, which only the user can read, in a folder outside of any project.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{Print, hex};
use turnwright_workspace::private_file;

/// Records that are looked at to list or forget some.
const MOST: usize = 10_000;
/// Bytes of one.
const LARGEST: u64 = 64 * 1024;

/// What the user trusts.
#[derive(Clone, Debug)]
pub struct Trust {
    folder: PathBuf,
}

/// One thing that is trusted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    /// The project's folder, a real path.
    pub project: String,
    /// What it is, such as the name of the file.
    pub what: String,
    /// The SHA-256 of its content.
    pub sha256: String,
    /// When it was trusted.
    pub since: String,
}

impl Trust {
    /// With its records below this folder.
    pub fn new(state: &Path) -> Trust {
        Trust { folder: state.join("trust") }
    }

    /// Whether the user trusts exactly this content of a project, whose path is a real one.
    pub fn is_trusted(&self, project: &Path, what: &str, content: &[u8]) -> bool {
        let Some(wanted) = record(project, what, content) else { return false };
        let is_it = |it: &Record| {
            (&it.project, &it.what, &it.sha256) == (&wanted.project, &wanted.what, &wanted.sha256)
        };
        load(&self.path(&wanted)).is_some_and(|it| is_it(&it))
    }

    /// Trusts exactly this content from now on.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn trust(&self, project: &Path, what: &str, content: &[u8]) -> io::Result<()> {
        let record = record(project, what, content)
            .ok_or_else(|| io::Error::other("the folder's path is not valid Unicode"))?;
        private_file::store(&self.path(&record), serde_json::to_string_pretty(&record)?.as_bytes())
    }

    /// Trusts nothing of a project any more. Returns how much was trusted.
    ///
    /// # Errors
    /// When a record cannot be removed.
    pub fn forget(&self, project: &Path) -> io::Result<usize> {
        let mut count = 0;
        for record in self.list() {
            if Some(record.project.as_str()) == project.to_str() {
                count += usize::from(private_file::remove(&self.path(&record))?);
            }
        }
        Ok(count)
    }

    /// All that is trusted, sorted by project.
    pub fn list(&self) -> Vec<Record> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().take(MOST);
        let mut all: Vec<_> = entries.filter_map(|it| load(&it.path())).collect();
        all.sort();
        all
    }

    /// The name says which project, thing and content: to look for one, none is read that is not it.
    fn path(&self, record: &Record) -> PathBuf {
        let key = format!("{}\0{}\0{}", record.project, record.what, record.sha256);
        let name = hex(ring::digest::digest(&ring::digest::SHA256, key.as_bytes()).as_ref());
        self.folder.join(format!("{name}.json"))
    }
}

fn record(project: &Path, what: &str, content: &[u8]) -> Option<Record> {
    Some(Record {
        project: project.to_str()?.to_owned(),
        what: what.to_owned(),
        sha256: Print::of(content).0,
        since: httpdate::fmt_http_date(SystemTime::now()),
    })
}

fn load(path: &Path) -> Option<Record> {
    let about = fs::symlink_metadata(path).ok()?;
    if !about.is_file() || about.len() > LARGEST {
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
        let trust = Trust::new(state.path());
        let (here, there) = (Path::new("/ws"), Path::new("/other"));
        assert!(!trust.is_trusted(here, "a", b"x"));
        trust.trust(here, "a", b"x").unwrap();
        trust.trust(here, "a", b"y").unwrap();
        trust.trust(there, "a", b"x").unwrap();
        // Another look at the same folder sees it: nothing is kept in memory.
        let trust = Trust::new(state.path());
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
    fn a_record_is_private_and_one_that_is_not_ours_counts_for_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().unwrap();
        let trust = Trust::new(state.path());
        trust.trust(Path::new("/ws"), "a", b"x").unwrap();
        let path =
            fs::read_dir(state.path().join("trust")).unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for junk in ["", "{}", "{\"project\":\"/ws\"}"] {
            private_file::store(&path, junk.as_bytes()).unwrap();
            assert!(!trust.is_trusted(Path::new("/ws"), "a", b"x"), "{junk}");
        }
        assert_eq!(trust.list(), []);
    }
}
