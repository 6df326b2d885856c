//! The state of a repository as far as it can be told without running git: its branch, its files, and how many of them
//! have changed.

use std::fs;
use std::path::Path;
use std::time::Instant;

use super::index::{IndexEntry, path_of};
use super::{ObjectId, Repository, blob_id, open_regular, read_small};
use crate::checkpoint::snapshot::lstat;
use turnwright_types::bounded_read::read_at_most;

/// The most files that are compared with the index.
const MAX_COMPARED: usize = 20_000;
/// The most bytes of a file whose content is compared.
const MAX_COMPARED_BYTES: u64 = 1024 * 1024;
/// The digits of a commit's name that are shown.
const SHORT_COMMIT: usize = 8;

/// The branch of a repository, and the changes in a folder of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryState {
    /// The name of the branch, or the beginning of the commit's name if there is none.
    pub branch: Option<String>,
    /// The number of tracked files that differ from the index; `None` if there was no time to compare them.
    pub changed: Option<usize>,
}

/// Looks at the repository around a folder, whose path has no links. `visit` gets the path of each tracked file in the
/// folder. Returns `None` if there are none. Blocks, not much longer than `until`.
pub fn repository_state(
    folder: &Path,
    until: Instant,
    mut visit: impl FnMut(&Path),
) -> Option<RepositoryState> {
    let repository = Repository::open(folder)?;
    let below = repository.folder(folder)?;
    if below.entries.is_empty() {
        return None;
    }
    let mut changed = Some(0).filter(|_| below.entries.len() <= MAX_COMPARED);
    for entry in below.entries {
        let name = path_of(repository.index.name(entry));
        visit(&name);
        changed = changed.filter(|_| Instant::now() < until);
        if let Some(count) = &mut changed
            && is_changed(&repository.top.join(name), entry)
        {
            *count += 1;
        }
    }
    let head = read_small(&repository.index_file.with_file_name("HEAD"));
    Some(RepositoryState { branch: head.as_deref().and_then(branch_of), changed })
}

/// The branch that the file `HEAD` names. Anything else that is in the file is not shown.
fn branch_of(head: &str) -> Option<String> {
    let line = head.lines().next()?.trim_end();
    if let Some(branch) = line.strip_prefix("ref: refs/heads/") {
        // A repository with a table of branches names none here.
        return Some(branch.to_owned()).filter(|branch| branch != ".invalid");
    }
    let is_commit = line.len() >= 40 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| format!("none, at commit {}", &line[..SHORT_COMMIT]))
}

/// Returns true if a file is not as the index has it. After a copy of the whole project all stat data are new, and the
/// contents tell.
fn is_changed(path: &Path, entry: &IndexEntry) -> bool {
    let Some(stat) = lstat(path) else { return true };
    if entry.matches(&stat) {
        return false;
    }
    !entry.has_size(&stat) || blob_of(path).is_none_or(|blob| blob != entry.hash)
}

/// The name that git gives to the content of a file, which for a link is its target.
fn blob_of(path: &Path) -> Option<ObjectId> {
    let bytes = match open_regular(path) {
        Some(file) => read_at_most(file, MAX_COMPARED_BYTES).ok()??,
        None => fs::read_link(path).ok()?.into_os_string().into_encoded_bytes(),
    };
    blob_id(&bytes)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its repository with git itself")]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_branch_and_the_changed_files_are_those_of_git() {
        let folder = tempfile::tempdir().unwrap();
        let top = crate::real_path(folder.path()).unwrap().join("main");
        fs::create_dir_all(top.join("src")).unwrap();
        let git = |line: &str| {
            let mut command = Command::new("git");
            command.args(line.split(' ')).current_dir(&top);
            command.env("GIT_CONFIG_GLOBAL", "/dev/null");
            command.output().is_ok_and(|output| output.status.success())
        };
        if !git("init -q -b feature/one") {
            eprintln!("SKIPPED: there is no git here");
            return;
        }
        for name in ["a.rs", "b.rs", "src/c.rs", "gone.md"] {
            fs::write(top.join(name), name).unwrap();
        }
        assert!(git("add ."));
        let state = |folder: &Path, until| {
            let mut names = Vec::new();
            let state = repository_state(folder, until, |path| {
                names.push(path.to_string_lossy().into_owned());
            });
            (state, names)
        };
        let later = Instant::now() + Duration::from_secs(60);
        fs::write(top.join("b.rs"), "changed").unwrap();
        fs::write(top.join("src/c.rs"), "src/d.rs").unwrap();
        fs::remove_file(top.join("gone.md")).unwrap();
        fs::write(top.join("new.rs"), "not tracked").unwrap();
        let branch = Some("feature/one".to_owned());
        let expected = RepositoryState { branch: branch.clone(), changed: Some(3) };
        let (found, names) = state(&top, later);
        assert_eq!(found, Some(expected));
        assert_eq!(names, ["a.rs", "b.rs", "gone.md", "src/c.rs"]);
        assert_eq!(state(&top.join("src"), later).0.unwrap().changed, Some(1));
        // A copy has other stat data, and the same files.
        fs::write(top.join("a.rs"), "a.rs").unwrap();
        assert_eq!(state(&top, later).0.unwrap().changed, Some(3));
        let late = RepositoryState { branch, changed: None };
        assert_eq!(state(&top, Instant::now()).0, Some(late));
        assert_eq!(state(folder.path(), later).0, None);
    }

    #[test]
    fn only_a_branch_or_a_commit_is_shown_of_head() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        for (head, expected) in [
            ("ref: refs/heads/main\n", Some("main")),
            ("ref: refs/heads/a/b\nmore", Some("a/b")),
            (commit, Some("none, at commit 01234567")),
            ("ref: refs/remotes/x", None),
            ("ref: refs/heads/.invalid\n", None),
            ("root:x:0:0", None),
            ("", None),
        ] {
            assert_eq!(branch_of(head).as_deref(), expected, "{head:?}");
        }
    }
}
