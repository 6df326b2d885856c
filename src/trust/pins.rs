//! What things were when the user said yes to them: a small file for each, which only the user can
//! read and no project or command can write. Knows nothing of what the things are. Blocks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::hex;
use turnwright_workspace::private_file;

/// Files that are kept. Beyond that the oldest go.
const MOST: usize = 8_192;
/// Bytes of one.
const LARGEST: u64 = 64 * 1024;

/// The files.
#[derive(Clone, Debug)]
pub struct Pins {
    folder: PathBuf,
}

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// There is none.
    Nothing,
    /// There is one, and it makes no sense.
    Damaged,
    /// This.
    Known(Pin),
}

/// What a thing was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// What identifies it: a digest.
    pub print: String,
    /// What of it can be shown later.
    pub shown: String,
}

#[derive(Serialize, Deserialize)]
struct Whole {
    key: Vec<String>,
    #[serde(flatten)]
    pin: Pin,
}

impl Pins {
    /// With its files below this folder.
    pub fn new(state: &Path) -> Pins {
        Pins { folder: state.join("mcp-pins") }
    }

    /// What the thing of this name was.
    pub fn get(&self, key: &[&str]) -> Pinned {
        let path = self.path(key);
        let about = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Pinned::Nothing,
            Err(_) => return Pinned::Damaged,
            Ok(about) => about,
        };
        if !about.is_file() || about.len() > LARGEST {
            return Pinned::Damaged;
        }
        let whole = fs::read(&path).ok().and_then(|it| serde_json::from_slice::<Whole>(&it).ok());
        match whole {
            Some(whole) if whole.key == key => Pinned::Known(whole.pin),
            _ => Pinned::Damaged,
        }
    }

    /// From now on it is this. In one step: of several processes that do so the last one wins.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, key: &[&str], pin: Pin) -> io::Result<()> {
        let path = self.path(key);
        if matches!(self.get(key), Pinned::Damaged) {
            // For whoever wants to know what has happened to it.
            drop(fs::rename(&path, path.with_extension("broken")));
        }
        let key = key.iter().map(|it| (*it).to_owned()).collect();
        let bytes = serde_json::to_vec_pretty(&Whole { key, pin })?;
        if bytes.len() as u64 > LARGEST {
            return Err(io::Error::other("it is too large to be kept"));
        }
        self.make_room();
        private_file::store(&path, &bytes)
    }

    fn path(&self, key: &[&str]) -> PathBuf {
        let parts: Vec<u8> =
            key.iter().flat_map(|it| digest(&SHA256, it.as_bytes()).as_ref().to_vec()).collect();
        let name = hex(digest(&SHA256, &parts).as_ref());
        self.folder.join(format!("{name}.json"))
    }

    fn make_room(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.map(|it| it.path()).collect();
        if files.len() < MOST {
            return;
        }
        files.sort_by_cached_key(|it| fs::symlink_metadata(it).and_then(|it| it.modified()).ok());
        for old in &files[..files.len() / 4] {
            drop(fs::remove_file(old));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(print: &str) -> Pin {
        Pin { print: print.to_owned(), shown: "words".to_owned() }
    }

    #[test]
    fn what_was_pinned_is_known_until_it_is_pinned_anew() {
        let state = tempfile::tempdir().unwrap();
        let pins = Pins::new(state.path());
        assert_eq!(pins.get(&["a", "b"]), Pinned::Nothing);
        pins.put(&["a", "b"], pin("1")).unwrap();
        pins.put(&["ab", ""], pin("2")).unwrap();
        assert_eq!(Pins::new(state.path()).get(&["a", "b"]), Pinned::Known(pin("1")));
        pins.put(&["a", "b"], pin("3")).unwrap();
        assert_eq!(pins.get(&["a", "b"]), Pinned::Known(pin("3")));
        assert_eq!(pins.get(&["ab", ""]), Pinned::Known(pin("2")));
        assert_eq!(pins.get(&["", "ab"]), Pinned::Nothing);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_private_and_one_that_makes_no_sense_is_put_aside() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().unwrap();
        let pins = Pins::new(state.path());
        pins.put(&["a"], pin("1")).unwrap();
        let path = pins.path(&["a"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for junk in ["", "{}", r#"{"key":["b"],"print":"1","shown":""}"#] {
            private_file::store(&path, junk.as_bytes()).unwrap();
            assert_eq!(pins.get(&["a"]), Pinned::Damaged, "{junk}");
            pins.put(&["a"], pin("2")).unwrap();
            assert_eq!(pins.get(&["a"]), Pinned::Known(pin("2")));
            assert_eq!(fs::read(path.with_extension("broken")).unwrap(), junk.as_bytes());
        }
    }

    #[test]
    fn of_many_that_pin_at_once_nobody_loses_one() {
        let state = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let pins = Pins::new(state.path());
                scope.spawn(move || {
                    for number in 0..10 {
                        pins.put(&[&format!("{thread} {number}")], pin("1")).unwrap();
                        pins.put(&["shared"], pin("1")).unwrap();
                    }
                });
            }
        });
        let pins = Pins::new(state.path());
        let names = (0..4).flat_map(|it| (0..10).map(move |number| format!("{it} {number}")));
        assert!(names.into_iter().all(|it| pins.get(&[&it]) == Pinned::Known(pin("1"))));
    }
}
