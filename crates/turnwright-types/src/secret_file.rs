//! The files that secrets of this process, or of another agent of the user, come from, such as the key of a provider or the
//! token of a server.
//! They are kept from tools, commands and MCP servers wherever they are and whatever their names are.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use parking_lot::RwLock;

use crate::file_id::{FileId, file_id};
use crate::private_file;

/// The list, in the state folder of the user's agents.
const SHARED_LIST: &str = "secret-files";
/// At most this many paths of the list, and bytes, are read.
const MAX_SHARED: usize = 200;
const MAX_LIST_BYTES: u64 = 256 * 1024;

/// The places of all these files, with and without links. Locked to look one up, or to add one.
static KNOWN: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// A file that holds a secret of this process. From the moment that this value is made, it is unreadable for
/// commands and servers in the sandbox, and reading it with a tool asks as for any file with secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFile(PathBuf);

impl SecretFile {
    /// Looks the path up: not for the runtime's thread. A path that leads to a folder or a device has no
    /// effect on commands, which may need it.
    pub fn new(path: &Path) -> SecretFile {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let is_other = fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file());
        if !is_other {
            let mut known = KNOWN.write();
            for place in [Some(path.clone()), fs::canonicalize(&path).ok()].into_iter().flatten() {
                if !known.contains(&place) {
                    known.push(place);
                }
            }
        }
        SecretFile(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Tells the other agents of this user, by a list in a folder of theirs, from which files this process has secrets: their
/// commands and servers could use what is in them. Blocks.
///
/// # Errors
/// Those of the system.
pub fn share(folder: &Path) -> io::Result<()> {
    let list = folder.join(SHARED_LIST);
    let shared = read_list(&list);
    // What is gone is a secret no longer.
    let kept = shared.into_iter().filter(|path| path.exists());
    let mut all: Vec<_> = kept.chain(secret_files()).collect();
    all.sort();
    all.dedup();
    let mut bytes = Vec::new();
    for path in all.iter().filter_map(|path| path.to_str()) {
        bytes.extend_from_slice(path.as_bytes());
        bytes.push(0);
    }
    private_file::write(&list, &bytes)
}

/// Makes the files known that the other agents of this user have told of. Blocks.
pub fn learn_shared(folder: &Path) {
    for path in read_list(&folder.join(SHARED_LIST)) {
        if !is_secret_file(&path) {
            KNOWN.write().push(path);
        }
    }
}

/// The paths in a list, each of which ends with a NUL.
fn read_list(list: &Path) -> Vec<PathBuf> {
    let mut text = String::new();
    let read =
        fs::File::open(list).and_then(|file| file.take(MAX_LIST_BYTES).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    text.split_terminator('\0').map(PathBuf::from).take(MAX_SHARED).collect()
}

/// All files that secrets of this process come from.
pub fn secret_files() -> Vec<PathBuf> {
    KNOWN.read().clone()
}

/// Returns true if a secret of this process comes from the file at this path, as far as is known.
pub fn is_secret_file(path: &Path) -> bool {
    KNOWN.read().iter().any(|known| known == path)
}

/// Makes the path known if it is another name (hard link) of such a file. Looks it up if there are any: not for the
/// runtime's thread.
pub fn notice_other_name(path: &Path) {
    if KNOWN.read().is_empty() {
        return;
    }
    let Some((id, 2..)) = file_id(path) else { return };
    if linked_secret_files().contains(&id) && !is_secret_file(path) {
        KNOWN.write().push(path.to_path_buf());
    }
}

/// The files with more than one name (hard link) from which secrets of this process come. Looks them up: not for the
/// runtime's thread.
pub fn linked_secret_files() -> Vec<FileId> {
    let known = secret_files();
    let linked = known.iter().filter_map(|path| file_id(path)).filter(|(_, names)| *names > 1);
    linked.map(|(id, _)| id).collect()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    #[test]
    fn another_agent_learns_which_files_hold_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let [token, gone] = ["token of another", "gone"].map(|name| folder.path().join(name));
        for path in [&token, &gone] {
            fs::write(path, "secret").unwrap();
            let bytes = [path.as_os_str().as_encoded_bytes(), b"\0"].concat();
            private_file::write(&folder.path().join(SHARED_LIST), &bytes).unwrap();
            share(folder.path()).unwrap();
        }
        fs::remove_file(&gone).unwrap();
        share(folder.path()).unwrap();
        let list = read_list(&folder.path().join(SHARED_LIST));
        assert!(!list.contains(&gone));
        private_file::write(&folder.path().join(SHARED_LIST), b"/a/token\0").unwrap();
        assert!(!is_secret_file(Path::new("/a/token")));
        learn_shared(folder.path());
        assert!(is_secret_file(Path::new("/a/token")));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_known_by_its_links_of_both_kinds_and_devices_and_folders_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        fs::write(folder.join("token-1"), "secret").unwrap();
        std::os::unix::fs::symlink("token-1", folder.join("token")).unwrap();
        fs::hard_link(folder.join("token-1"), folder.join("other-name")).unwrap();
        fs::write(folder.join("other"), "no secret").unwrap();
        fs::hard_link(folder.join("other"), folder.join("other-2")).unwrap();
        SecretFile::new(&folder.join("token"));
        SecretFile::new(&folder.join("later"));
        SecretFile::new(&folder);
        SecretFile::new(Path::new("/dev/null"));
        for (path, expected) in [
            (folder.join("token"), true),
            (folder.join("token-1"), true),
            (folder.join("later"), true),
            (folder.join("other-name"), true),
            (folder.join("other"), false),
            (folder.clone(), false),
            ("/dev/null".into(), false),
        ] {
            notice_other_name(&path);
            assert_eq!(is_secret_file(&path), expected, "{}", path.display());
            assert_eq!(secret_files().contains(&path), expected, "{}", path.display());
        }
        assert!(!linked_secret_files().is_empty());
    }
}
