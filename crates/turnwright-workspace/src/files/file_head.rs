//! Reads the beginning of small text files that the agent needs itself, not for a call: instructions, notes,
//! skills. The reads are bounded, and links in a project cannot lead them outside of it.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use super::encoding::decode_head;
use crate::nofollow;
use crate::real_path;
use turnwright_types::effect::is_secret_path;
use turnwright_types::text;

/// The beginning of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHead {
    /// The path with all links resolved.
    pub(crate) real_path: PathBuf,
    /// The text, at most as long as the limit; empty if there is none.
    pub text: String,
    /// False for a file that is not text, whatever the encoding.
    pub is_text: bool,
    /// True if `text` is the whole file.
    pub is_complete: bool,
    pub modified: Option<SystemTime>,
}

/// Reads the first `limit` bytes of the text of a regular file, in any encoding that can be detected. With
/// `within`, a resolved path, the file must lie below it and must not be one that may hold secrets. Blocks.
pub fn read_head(path: &Path, within: Option<&Path>, limit: usize) -> Option<FileHead> {
    // Most paths have no links, which the kernel finds out while it opens the file.
    if is_plain(path) && within.is_none_or(|folder| path.starts_with(folder)) {
        match nofollow::open_file(path) {
            Ok(file) if is_allowed(path, within) => {
                return read_opened(file, path.to_path_buf(), limit);
            }
            Ok(_) => {}
            Err(error) if nofollow::is_link_error(&error) => {}
            Err(_) => return None,
        }
    }
    let real = real_path(path).ok()?;
    if !is_allowed(&real, within) {
        tracing::info!(path = %path.display(), "not read: a link leads out of the folder, or it may hold secrets");
        return None;
    }
    read_opened(nofollow::open_file(&real).ok()?, real, limit)
}

fn is_allowed(real: &Path, within: Option<&Path>) -> bool {
    within.is_none_or(|folder| real.starts_with(folder) && !is_secret_path(real))
}

/// Returns true if a path that can be opened without following a link is its own resolved path. On other
/// systems, names can be written in more than one way.
fn is_plain(path: &Path) -> bool {
    cfg!(target_os = "linux")
        && path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

fn read_opened(file: File, real: PathBuf, limit: usize) -> Option<FileHead> {
    let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let size = usize::try_from(metadata.len()).unwrap_or(limit);
    // A text in UTF-16 may have twice as many bytes, and a byte order mark.
    let max_bytes = limit.saturating_mul(2).saturating_add(4);
    let mut bytes = Vec::with_capacity(size.min(max_bytes) + 1);
    file.take(max_bytes as u64).read_to_end(&mut bytes).ok()?;
    let is_cut = bytes.len() == max_bytes;
    let decoded = decode_head(&bytes, is_cut);
    let is_text = decoded.is_some();
    let mut text = decoded.unwrap_or_default();
    let end = text::floor(&text, limit);
    let is_complete = !is_cut && end == text.len();
    text.truncate(end);
    Some(FileHead {
        real_path: real,
        text,
        is_text,
        is_complete,
        modified: metadata.modified().ok(),
    })
}

#[cfg(target_os = "linux")]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_the_beginning_of_regular_files_of_the_project_is_seen() {
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        let ws = base.join("ws");
        fs::create_dir_all(ws.join("folder")).unwrap();
        fs::write(base.join("outside"), "x").unwrap();
        fs::write(ws.join(".env"), "x").unwrap();
        fs::write(ws.join("a"), "\u{feff}aé").unwrap();
        symlink("../outside", ws.join("out")).unwrap();
        symlink(".env", ws.join("keys")).unwrap();
        symlink("a", ws.join("in")).unwrap();
        symlink("loop", ws.join("loop")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(ws.join("fifo")).status();
        assert!(made.unwrap().success());
        let seen = |name: &str, limit| {
            read_head(&ws.join(name), Some(&ws), limit).map(|head| (head.text, head.is_complete))
        };
        for name in ["out", "keys", "loop", "fifo", "folder", "missing"] {
            assert_eq!(seen(name, 9), None, "{name}");
        }
        assert_eq!(seen("in", 9), Some(("aé".to_owned(), true)));
        assert_eq!(seen("a", 2), Some(("a".to_owned(), false)));
        assert_eq!(read_head(&ws.join("out"), None, 9).unwrap().text, "x");
    }
}
