//! A look at small text files that we read of our own accord and not for a call: instructions,
//! notes, skills. Bounded, and nothing in a project can make it read what lies elsewhere.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use turnwright_types::effect::is_secret;
use crate::pinned;

/// What was seen of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Where it really lies.
    pub real: PathBuf,
    /// Its beginning.
    pub text: String,
    /// Whether that is all of it.
    pub is_whole: bool,
    /// When it was last changed.
    pub changed: Option<SystemTime>,
}

/// The first `limit` bytes of a regular file. With `within`, a real path, the file has to lie
/// below that and must not be of the sort that holds keys. Not for the runtime's thread.
pub fn glance(path: &Path, within: Option<&Path>, limit: usize) -> Option<Glance> {
    let real = fs::canonicalize(path).ok()?;
    if within.is_some_and(|it| !real.starts_with(it) || is_secret(&real)) {
        tracing::info!(path = %path.display(), "not read: it leads elsewhere");
        return None;
    }
    let file = pinned::file(&real).ok()?;
    let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes).ok()?;
    let is_whole = bytes.len() <= limit;
    if !is_whole {
        bytes.truncate(limit);
        // Not in the middle of a character.
        let broken = std::str::from_utf8(&bytes).err().filter(|it| it.error_len().is_none());
        bytes.truncate(broken.map_or(limit, |it| it.valid_up_to()));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let text = String::from_utf8_lossy(bytes).into_owned();
    Some(Glance { real, text, is_whole, changed: metadata.modified().ok() })
}

#[cfg(target_os = "linux")]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_the_beginning_of_regular_files_of_the_project_is_seen() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        let ws = base.join("ws");
        fs::create_dir_all(ws.join("folder")).unwrap();
        fs::write(base.join("outside"), "x").unwrap();
        fs::write(ws.join(".env"), "x").unwrap();
        fs::write(ws.join("a"), "\u{feff}aé").unwrap();
        symlink("../outside", ws.join("out")).unwrap();
        symlink(".env", ws.join("keys")).unwrap();
        symlink("a", ws.join("in")).unwrap();
        symlink("loop", ws.join("loop")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            ws.join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let seen = |name: &str, limit| {
            glance(&ws.join(name), Some(&ws), limit).map(|it| (it.text, it.is_whole))
        };
        for name in ["out", "keys", "loop", "fifo", "folder", "missing"] {
            assert_eq!(seen(name, 9), None, "{name}");
        }
        assert_eq!(seen("in", 9), Some(("aé".to_owned(), true)));
        assert_eq!(seen("a", 5), Some(("a".to_owned(), false)));
        assert_eq!(glance(&ws.join("out"), None, 9).unwrap().text, "x");
    }
}
