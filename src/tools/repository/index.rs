//! Reads the files and submodules that a git index lists. Pure.

use std::path::{Path, PathBuf};

use turnwright_workspace::checkpoint::{StoredEntry, read_entries};

/// The text is no index, or one whose entries are elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GitIndexError;

/// The paths of the submodules, relative to the top of the working tree. `hash_bytes` is the length of
/// an object name: 20 for SHA-1, 32 for SHA-256.
#[expect(clippy::redundant_closure_for_method_calls, reason = "the method is for one lifetime")]
pub(super) fn submodules(index: &[u8], hash_bytes: usize) -> Result<Vec<PathBuf>, GitIndexError> {
    read(index, hash_bytes, |entry| entry.is_submodule())
}

/// The paths of the wanted files, or only the ones that git assumes to be unchanged.
pub(super) fn files(
    index: &[u8],
    hash_bytes: usize,
    only_unchanged: bool,
    is_wanted: impl Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, GitIndexError> {
    read(index, hash_bytes, |entry| {
        !entry.is_submodule()
            && (entry.is_assumed_unchanged() || !only_unchanged)
            && has_path(entry, &is_wanted)
    })
}

fn has_path(entry: &StoredEntry<'_>, is_wanted: impl Fn(&Path) -> bool) -> bool {
    let path = std::str::from_utf8(entry.name);
    path.map_or_else(|_| is_wanted(&to_path(entry.name)), |path| is_wanted(Path::new(path)))
}

/// The paths of the entries that are wanted.
fn read(
    index: &[u8],
    hash_bytes: usize,
    is_wanted: impl Fn(&StoredEntry<'_>) -> bool,
) -> Result<Vec<PathBuf>, GitIndexError> {
    let mut found = Vec::new();
    let is_read = read_entries(index, hash_bytes, &mut |entry| {
        found.extend(is_wanted(entry).then(|| to_path(entry.name)));
        Some(())
    });
    is_read.map(|()| found).ok_or(GitIndexError)
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
        command.output().is_ok_and(|output| output.status.success())
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
            submodules(&bytes, 20).ok();
        }
    }
}
