//! Records what the user trusts of a project's files: exactly these bytes, for this folder. Changing one byte makes
//! the file untrusted again. The files of a project are read here without following a link, without blocking on a
//! FIFO, and at most a bounded number of bytes.
//!
//! The record, and the state in which items (such as MCP servers and tools) were when the user approved them, are
//! stored in one small file for each record, which only the user can read, in a folder that no project or command can
//! write. This module interprets neither the bytes nor the items. Blocks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use turnwright_types::bounded_read::read_at_most;
use turnwright_types::error_text::io_error_text;
use turnwright_types::hash::{sha256, sha256_hex};
use turnwright_types::private_file;
use turnwright_workspace::nofollow;

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
pub(crate) fn read_project_file(project: &Path, name: &str) -> Result<Option<String>, String> {
    read_real_file(&project.join(name))
}

/// The same for a real path that need not be below a project.
pub(crate) fn read_real_file(path: &Path) -> Result<Option<String>, String> {
    let file = match nofollow::open_file(path) {
        Ok(file) => file,
        Err(error) if is_not_found(&error) => return Ok(None),
        Err(error) if nofollow::is_link_error(&error) => return Err("is behind a link".to_owned()),
        Err(error) => return Err(format!("cannot be opened ({})", io_error_text(&error))),
    };
    if !file.metadata().map_err(|error| unreadable(&error))?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let bytes = read_at_most(file, MAX_PROJECT_FILE_BYTES)
        .map_err(|error| unreadable(&error))?
        .ok_or_else(|| format!("is larger than {MAX_PROJECT_FILE_BYTES} bytes"))?;
    String::from_utf8(bytes).map(Some).map_err(|_| "is not UTF-8".to_owned())
}

fn unreadable(error: &io::Error) -> String {
    format!("cannot be read ({})", io_error_text(error))
}

fn is_not_found(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// At most this many records are read to list or remove some.
const MAX_RECORDS: usize = 10_000;
/// Maximum size of the file of a record or an approved item.
const MAX_RECORD_BYTES: u64 = 64 * 1024;

/// The contents that the user trusts.
#[derive(Clone, Debug)]
pub struct TrustStore {
    folder: PathBuf,
}

/// A content that the user trusts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrustRecord {
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
    pub fn new(state: &Path) -> TrustStore {
        TrustStore { folder: state.join("trust") }
    }

    /// Returns true if the user trusts exactly this content in a project, whose path is a real one.
    pub fn is_trusted(&self, project: &Path, what: &str, content: &[u8]) -> bool {
        let Some(wanted) = new_record(project, what, content) else { return false };
        load::<TrustRecord>(&self.path(&wanted)).is_some_and(|found| {
            (&found.project, &found.what, &found.sha256)
                == (&wanted.project, &wanted.what, &wanted.sha256)
        })
    }

    /// Trusts exactly this content from now on.
    pub fn trust(&self, project: &Path, what: &str, content: &[u8]) -> io::Result<()> {
        let record = new_record(project, what, content)
            .ok_or_else(|| io::Error::other("the folder's path is not valid Unicode"))?;
        private_file::write(&self.path(&record), serde_json::to_string_pretty(&record)?.as_bytes())
    }

    /// Removes all records of a project. Returns their number.
    pub fn forget(&self, project: &Path) -> io::Result<usize> {
        let mut count = 0;
        for record in self.list() {
            if Some(record.project.as_str()) == project.to_str() {
                count += usize::from(private_file::remove(&self.path(&record))?);
            }
        }
        Ok(count)
    }

    /// All records, sorted by project.
    pub fn list(&self) -> Vec<TrustRecord> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().take(MAX_RECORDS);
        let mut all: Vec<TrustRecord> = entries.filter_map(|entry| load(&entry.path())).collect();
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

fn load<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let about = fs::symlink_metadata(path).ok()?;
    if !about.is_file() || about.len() > MAX_RECORD_BYTES {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// At most this many files are kept; then the oldest quarter is removed.
const MAX_PINS: usize = 8_192;

/// The items that the user approved, each as it was then.
#[derive(Clone, Debug)]
pub struct PinStore {
    folder: PathBuf,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinLookup {
    /// The item was never approved.
    Absent,
    /// The file cannot be understood.
    Damaged,
    /// The approved state.
    Pinned(Pin),
}

/// The state of an item when it was approved.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pin {
    /// A digest of the item.
    #[serde(rename = "print")]
    pub fingerprint: String,
    /// A text about the item to show in a later question.
    #[serde(rename = "shown")]
    pub summary: String,
}

impl PinStore {
    /// The store below a state folder.
    pub fn new(state: &Path) -> PinStore {
        PinStore { folder: state.join("mcp-pins") }
    }

    /// Looks up an item.
    pub fn get(&self, key: &[&str]) -> PinLookup {
        let path = self.path(key);
        let about = fs::symlink_metadata(&path);
        if about.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return PinLookup::Absent;
        }
        let found: Value = load(&path).unwrap_or_default();
        let is_meant = found["key"] == json!(key);
        let pin = serde_json::from_value(found).ok().filter(|_| is_meant);
        pin.map_or(PinLookup::Damaged, PinLookup::Pinned)
    }

    /// Pins an item. The write is atomic: if several processes pin the same item, the last one
    /// wins.
    pub fn put(&self, key: &[&str], pin: Pin) -> io::Result<()> {
        let path = self.path(key);
        if matches!(self.get(key), PinLookup::Damaged) {
            // Kept for someone who investigates the damage.
            fs::rename(&path, path.with_extension("broken")).ok();
        }
        let Pin { fingerprint, summary } = pin;
        let text = format!("{:#}", json!({ "key": key, "print": fingerprint, "shown": summary }));
        if text.len() as u64 > MAX_RECORD_BYTES {
            return Err(io::Error::other("it is too large to be stored"));
        }
        self.make_room();
        private_file::write(&path, text.as_bytes())
    }

    fn path(&self, key: &[&str]) -> PathBuf {
        let parts: Vec<u8> = key.iter().flat_map(|part| sha256(part.as_bytes())).collect();
        self.folder.join(format!("{}.json", sha256_hex(&parts)))
    }

    fn make_room(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
        if files.len() < MAX_PINS {
            return;
        }
        files.sort_by_cached_key(|path| {
            fs::symlink_metadata(path).and_then(|metadata| metadata.modified()).ok()
        });
        for old in &files[..files.len() / 4] {
            fs::remove_file(old).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::fs;
    #[cfg(unix)]
    use std::os::unix::fs::symlink;

    #[cfg(unix)]
    use turnwright_workspace::real_path;

    use super::*;

    #[cfg(unix)]
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
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

    fn pin(fingerprint: &str) -> Pin {
        Pin { fingerprint: fingerprint.to_owned(), summary: "words".to_owned() }
    }

    #[test]
    fn an_item_stays_pinned_until_it_is_pinned_again() {
        let state = tempfile::tempdir().unwrap();
        let pins = PinStore::new(state.path());
        assert_eq!(pins.get(&["a", "b"]), PinLookup::Absent);
        pins.put(&["a", "b"], pin("1")).unwrap();
        pins.put(&["ab", ""], pin("2")).unwrap();
        assert_eq!(PinStore::new(state.path()).get(&["a", "b"]), PinLookup::Pinned(pin("1")));
        pins.put(&["a", "b"], pin("3")).unwrap();
        assert_eq!(pins.get(&["a", "b"]), PinLookup::Pinned(pin("3")));
        assert_eq!(pins.get(&["ab", ""]), PinLookup::Pinned(pin("2")));
        assert_eq!(pins.get(&["", "ab"]), PinLookup::Absent);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_private_and_a_damaged_one_is_set_aside() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().unwrap();
        let pins = PinStore::new(state.path());
        pins.put(&["a"], pin("1")).unwrap();
        let path = pins.path(&["a"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for junk in ["", "{}", r#"{"key":["b"],"print":"1","shown":""}"#] {
            private_file::write(&path, junk.as_bytes()).unwrap();
            assert_eq!(pins.get(&["a"]), PinLookup::Damaged, "{junk}");
            pins.put(&["a"], pin("2")).unwrap();
            assert_eq!(pins.get(&["a"]), PinLookup::Pinned(pin("2")));
            assert_eq!(fs::read(path.with_extension("broken")).unwrap(), junk.as_bytes());
        }
    }

    #[test]
    fn concurrent_writers_lose_no_pin() {
        let state = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let pins = PinStore::new(state.path());
                scope.spawn(move || {
                    for number in 0..10 {
                        pins.put(&[&format!("{thread} {number}")], pin("1")).unwrap();
                        pins.put(&["shared"], pin("1")).unwrap();
                    }
                });
            }
        });
        let pins = PinStore::new(state.path());
        let names = (0..4).flat_map(|name| (0..10).map(move |number| format!("{name} {number}")));
        assert!(names.into_iter().all(|name| pins.get(&[&name]) == PinLookup::Pinned(pin("1"))));
    }
}
