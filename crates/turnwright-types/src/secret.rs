//! Secrets: a string that must not be shown, such as a key, and the registry of the files that secrets come from, such
//! as the key of a provider or the token of a server. The registry has the secret files of this process and of the
//! user's other agents. Tools, commands and MCP servers cannot read them, wherever they are and whatever their names
//! are.

use std::path::{Path, PathBuf};
use std::{fs, io};

use parking_lot::RwLock;
use secrecy::{ExposeSecret, SecretString};

use crate::effect::is_hidden_char;
use crate::file_id::{FileId, file_id};
use crate::hash::std_hash;
use crate::private_file;

/// A string that `Debug` does not show and that is wiped on drop. It can be compared, to notice that a login has
/// changed.
#[derive(Clone, Debug)]
pub struct Secret(SecretString);

impl Secret {
    /// Returns the key in a text that was typed, pasted or read from a file, without surrounding blanks, invisible
    /// characters and quotes, and without `NAME_API_KEY=` and `Bearer`. Returns `None` if nothing is left.
    pub fn from_copied(text: &str) -> Option<Secret> {
        let whole = text.trim_matches(is_blank);
        // One line of a shell's start file or of `.env`. Of several lines, one may be the key of another provider.
        let assigned = whole.split_once("_API_KEY=").filter(|_| !whole.contains('\n'));
        let value = unquoted(assigned.map_or(whole, |(_, key)| key));
        let key = value.strip_prefix("Bearer ").unwrap_or(value).trim_start_matches(is_blank);
        (!key.is_empty()).then(|| key.into())
    }

    /// Returns the value of a variable, which may be a whole header, without surrounding blanks, invisible characters
    /// and quotes. Returns `None` if nothing is left.
    pub fn from_variable(text: &str) -> Option<Secret> {
        let value = unquoted(text);
        (!value.is_empty()).then(|| value.into())
    }

    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

fn unquoted(text: &str) -> &str {
    const QUOTES: [(char, char); 4] = [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”')];
    let text = text.trim_matches(is_blank);
    let mut quoted =
        QUOTES.into_iter().filter_map(|(open, close)| text.strip_prefix(open)?.strip_suffix(close));
    quoted.next().unwrap_or(text).trim_matches(is_blank)
}

fn is_blank(char: char) -> bool {
    char.is_whitespace() || is_hidden_char(char)
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Secret {}

impl<T: Into<SecretString>> From<T> for Secret {
    fn from(text: T) -> Secret {
        Secret(text.into())
    }
}

/// The folder in the state folder through which the user's agents tell each other their secret files. Each entry is a
/// file that contains one path, so that agents that start at the same time do not overwrite each other's entries.
const SHARED_FOLDER: &str = "secret-places";
/// The most entries of that folder that are read.
const MAX_SHARED: usize = 1_000;
const MAX_PATH_BYTES: u64 = 16 * 1024;

/// The middle of the warning about a key file that others can read or replace. A replay recognizes the warning by it.
pub const EXPOSED_KEY: &str = "holds a key, and other users can";

/// The paths of all known secret files, both as given and with links resolved. Locked only to look up or add a path.
static KNOWN: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Registers a file that holds a secret of this process, and returns its absolute path. From now on, commands and
/// servers in the sandbox cannot read the file, and a tool asks before reading it, as for any file with secrets. A
/// folder or a device is not registered, because commands may need it. Blocks.
pub fn register_secret_file(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let is_folder_or_device = fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file());
    if !is_folder_or_device {
        let mut known = KNOWN.write();
        for place in [Some(path.clone()), fs::canonicalize(&path).ok()].into_iter().flatten() {
            crate::lists::add_new(&mut known, place);
        }
    }
    path
}

/// Tells the user's other agents which files hold secrets of this process, so that their commands and servers cannot
/// read them either. Blocks.
///
/// # Errors
/// When a file or folder cannot be created or removed.
pub fn share(folder: &Path) -> io::Result<()> {
    let folder = folder.join(SHARED_FOLDER);
    private_file::create_folder(&folder)?;
    for (entry, path) in shared_places(&folder) {
        // A file that is gone holds no secret any more.
        if !path.exists() {
            private_file::remove(&entry)?;
        }
    }
    for path in secret_files() {
        let Some(text) = path.to_str().filter(|_| path.exists()) else { continue };
        let entry = folder.join(format!("{:016x}", std_hash(text)));
        if !entry.exists() {
            private_file::write(&entry, text.as_bytes())?;
        }
    }
    Ok(())
}

/// Registers the secret files of the user's other agents. Blocks.
pub fn learn_shared(folder: &Path) {
    for (_, path) in shared_places(&folder.join(SHARED_FOLDER)) {
        if !is_secret_file(&path) {
            KNOWN.write().push(path);
        }
    }
}

/// Returns the paths that agents have shared, each with the entry that contains it.
fn shared_places(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_SHARED);
    let places = entries.filter_map(|entry| {
        let entry = entry.path();
        let path = private_file::read(&entry, MAX_PATH_BYTES).ok()?;
        Some((entry, PathBuf::from(path)))
    });
    places.collect()
}

/// The paths of all known secret files.
pub fn secret_files() -> Vec<PathBuf> {
    KNOWN.read().clone()
}

/// Returns true if this is the path of a known secret file.
pub fn is_secret_file(path: &Path) -> bool {
    KNOWN.read().iter().any(|known| known == path)
}

/// Registers the path if it is another name (a hard link) of a known secret file. Blocks.
pub fn notice_other_name(path: &Path) {
    if KNOWN.read().is_empty() {
        return;
    }
    let Some((id, 2..)) = file_id(path) else { return };
    if linked_secret_files().contains(&id) && !is_secret_file(path) {
        KNOWN.write().push(path.to_path_buf());
    }
}

/// The known secret files that have more than one name (hard links). Blocks.
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
    fn what_comes_along_when_a_key_is_copied_is_no_part_of_it() {
        for (text, expected) in [
            ("sk-1", Some("sk-1")),
            (" sk-1\r\n", Some("sk-1")),
            ("\u{feff}sk-1\n", Some("sk-1")),
            ("\"sk-1\"", Some("sk-1")),
            (" 'sk-1' ", Some("sk-1")),
            ("\u{feff}\"\u{200b}sk-1 \"\n", Some("sk-1")),
            ("\u{201c}sk-1\u{201d}", Some("sk-1")),
            ("`sk-1`", Some("sk-1")),
            ("\"sk-1", Some("\"sk-1")),
            ("OPENAI_API_KEY=sk-1", Some("sk-1")),
            ("export DEEPSEEK_API_KEY='sk-1=='\n", Some("sk-1==")),
            ("setx XAI_API_KEY=", None),
            ("A_API_KEY=a\nB_API_KEY=b\n", Some("A_API_KEY=a\nB_API_KEY=b")),
            ("Bearer sk-1", Some("sk-1")),
            ("export XAI_API_KEY=\"Bearer  sk-1\"", Some("sk-1")),
            ("", None),
            ("\"\"", None),
        ] {
            let secret = Secret::from_copied(text);
            assert_eq!(secret.as_ref().map(Secret::expose), expected, "{text:?}");
        }
    }

    #[test]
    fn another_agent_learns_which_files_hold_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let told = || -> Vec<_> {
            let places = shared_places(&folder.path().join(SHARED_FOLDER)).into_iter();
            places.map(|(_, path)| path).filter(|path| path.starts_with(folder.path())).collect()
        };
        let [token, gone] = ["token of another", "gone"].map(|name| folder.path().join(name));
        for path in [&token, &gone] {
            fs::write(path, "secret").unwrap();
            register_secret_file(path);
            share(folder.path()).unwrap();
        }
        assert_eq!(told().len(), 2);
        fs::remove_file(&gone).unwrap();
        share(folder.path()).unwrap();
        assert_eq!(told(), [token]);
        let entry = folder.path().join(SHARED_FOLDER).join("of another");
        private_file::write(&entry, b"/a/token").unwrap();
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
        register_secret_file(&folder.join("token"));
        register_secret_file(&folder.join("later"));
        register_secret_file(&folder);
        register_secret_file(Path::new("/dev/null"));
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
