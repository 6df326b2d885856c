//! Reads from a git index which files and submodules it lists, in the format of `gitformat-index(5)`. Pure.

use std::path::{Path, PathBuf};

/// The mode of an entry that is a commit of another repository.
const SUBMODULE_MODE: u32 = 0o160_000;
const HEADER_BYTES: usize = 12;
/// Where the mode stands in an entry.
const MODE_OFFSET: usize = 24;
/// The bytes of an entry before the object name.
const STAT_BYTES: usize = 40;
/// The flag of a file that git assumes to be unchanged.
const ASSUME_UNCHANGED: u16 = 0x8000;
/// The same among the further flags, for a file that is not in the working tree.
const SKIP_WORKTREE: u16 = 0x4000;
/// The flag for two more bytes of flags.
const EXTENDED: u16 = 0x4000;
/// The extension for an index whose entries are in another file.
const SPLIT: &[u8] = b"link";

/// The text is no index, or one whose entries are elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GitIndexError;

/// The paths of the submodules, relative to the top of the working tree. `name_bytes` is the length of
/// an object name: 20 for SHA-1, 32 for SHA-256.
pub(super) fn submodules(index: &[u8], name_bytes: usize) -> Result<Vec<PathBuf>, GitIndexError> {
    read(index, name_bytes, |it| it.mode == SUBMODULE_MODE).ok_or(GitIndexError)
}

/// The paths of the files that are wanted, or only those of them that git assumes to be unchanged.
pub(super) fn files(
    index: &[u8],
    name_bytes: usize,
    only_unchanged: bool,
    is_wanted: impl Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, GitIndexError> {
    let is_wanted = |it: &Entry<'_>| {
        it.mode != SUBMODULE_MODE
            && (it.is_unchanged || !only_unchanged)
            && has_path(it, &is_wanted)
    };
    read(index, name_bytes, is_wanted).ok_or(GitIndexError)
}

/// A file or a submodule.
struct Entry<'a> {
    mode: u32,
    /// Whether git takes the file in the working tree for unchanged, or does not look at it.
    is_unchanged: bool,
    path: &'a [u8],
}

fn has_path(entry: &Entry<'_>, is_wanted: impl Fn(&Path) -> bool) -> bool {
    let path = std::str::from_utf8(entry.path);
    path.map_or_else(|_| is_wanted(&to_path(entry.path)), |it| is_wanted(Path::new(it)))
}

/// The paths of the entries that are wanted.
fn read(
    index: &[u8],
    name_bytes: usize,
    is_wanted: impl Fn(&Entry<'_>) -> bool,
) -> Option<Vec<PathBuf>> {
    let (header, mut rest) = index.split_at_checked(HEADER_BYTES)?;
    let version = u32_at(header, 4)?;
    if !header.starts_with(b"DIRC") || !(2..=4).contains(&version) {
        return None;
    }
    let (mut path, mut found) = (Vec::new(), Vec::new());
    for _ in 0..u32_at(header, 8)? {
        let mode = u32_at(rest, MODE_OFFSET)?;
        let flags_at = STAT_BYTES + name_bytes;
        let flags = u16::from_be_bytes(rest.get(flags_at..flags_at + 2)?.try_into().ok()?);
        let mut at = flags_at + if flags & EXTENDED == 0 { 2 } else { 4 };
        let more =
            if flags & EXTENDED == 0 { [0, 0] } else { rest.get(at - 2..at)?.try_into().ok()? };
        let is_skipped = u16::from_be_bytes(more) & SKIP_WORKTREE != 0;
        let is_unchanged = flags & ASSUME_UNCHANGED != 0 || is_skipped;
        if version == 4 {
            let (dropped, length) = variable_length(rest.get(at..)?)?;
            path.truncate(path.len().checked_sub(dropped)?);
            at += length;
        } else {
            path.clear();
        }
        let length = rest.get(at..)?.iter().position(|it| *it == 0)?;
        path.extend_from_slice(&rest[at..at + length]);
        // Up to version 3 an entry is filled up to a multiple of eight bytes, by at least one.
        let end = at + length + 1;
        rest = rest.get(if version == 4 { end } else { end.next_multiple_of(8) }..)?;
        if is_wanted(&Entry { mode, is_unchanged, path: &path }) {
            found.push(to_path(&path));
        }
    }
    (!has_extension(rest, name_bytes, SPLIT)?).then_some(found)
}

/// The number in front of the path in version 4, and the bytes that it takes.
fn variable_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0_usize;
    for (index, byte) in bytes.iter().enumerate() {
        value = value.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
        value += 1;
    }
    None
}

/// Whether there is such an extension between the entries and the final object name.
fn has_extension(mut rest: &[u8], name_bytes: usize, wanted: &[u8]) -> Option<bool> {
    while rest.len() > name_bytes {
        let length = usize::try_from(u32_at(rest, 4)?).ok()?;
        if rest.starts_with(wanted) {
            return Some(true);
        }
        rest = rest.get(length.checked_add(8)?..)?;
    }
    Some(false)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(unix)]
fn to_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).into()
}

/// Git writes UTF-8 there.
#[cfg(not(unix))]
fn to_path(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests compare with git")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;
    use std::process::Command;
    use turnwright_types::effect::is_secret_path;

    fn git(folder: &Path, arguments: &[&str]) -> bool {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b.example"]).args(arguments);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").current_dir(folder);
        command.output().is_ok_and(|it| it.status.success())
    }

    #[test]
    fn the_submodules_and_secrets_of_every_version_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        if !git(top, &["init", "-q"]) {
            eprintln!("NOT TESTED: git is not installed");
            return;
        }
        let commit = "160000,1234567890123456789012345678901234567890,";
        for name in
            ["a", "app/.env", ".env.example", "deep/er/file", "deep/er/filed", "key.pem", "z"]
        {
            std::fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
            std::fs::write(top.join(name), name).unwrap();
        }
        assert!(git(top, &["add", "."]));
        for name in ["deep/er/sub", "zz"] {
            assert!(git(
                top,
                &["update-index", "--add", "--cacheinfo", &format!("{commit}{name}")]
            ));
        }
        // An entry with extended flags.
        assert!(git(top, &["update-index", "--skip-worktree", "a"]));
        let index = || std::fs::read(top.join(".git/index")).unwrap();
        let read = || submodules(&index(), 20);
        for version in ["2", "3", "4"] {
            assert!(git(top, &["update-index", "--index-version", version]));
            assert_eq!(read(), Ok(vec!["deep/er/sub".into(), "zz".into()]), "{version}");
            let found = files(&index(), 20, false, is_secret_path);
            assert_eq!(found, Ok(vec!["app/.env".into(), "key.pem".into()]), "{version}");
        }
        assert_eq!(files(&index(), 20, true, is_secret_path), Ok(Vec::new()));
        assert!(git(top, &["update-index", "--assume-unchanged", "key.pem", "z"]));
        assert_eq!(files(&index(), 20, true, is_secret_path), Ok(vec!["key.pem".into()]));
        assert!(git(top, &["update-index", "--skip-worktree", "app/.env"]));
        let both = vec!["app/.env".into(), "key.pem".into()];
        assert_eq!(files(&index(), 20, true, is_secret_path), Ok(both));
        assert!(git(top, &["update-index", "--split-index"]));
        assert_eq!(read(), Err(GitIndexError));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
            version in 0_u8..6,
        ) {
            if let Some(header) = bytes.first_chunk_mut::<12>() {
                *header = [b'D', b'I', b'R', b'C', 0, 0, 0, version, 0, 0, 0, 9];
            }
            drop(submodules(&bytes, 20));
        }
    }
}
