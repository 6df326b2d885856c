//! Compares the reader with real git: the content of a file that git calls unmodified is found byte
//! for byte, and nothing else is.

#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "a test sets up its repository with git itself")]

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::{FileStat, Repository, index, pack};
use crate::checkpoint::{ChangeTracker, GitSettings, ObeyedFiles};
use crate::files::Roots;
use turnwright_types::file_change::FileState;

struct TestRepository {
    _folder: tempfile::TempDir,
    top: PathBuf,
}

impl TestRepository {
    /// Returns `None` with a note if git is not installed.
    fn new() -> Option<TestRepository> {
        if Command::new("git").arg("--version").output().is_err() {
            eprintln!("SKIPPED: there is no git here");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let top = crate::real_path(folder.path()).unwrap().join("main");
        fs::create_dir(&top).unwrap();
        let repo = TestRepository { _folder: folder, top };
        repo.git("init -q -b main");
        Some(repo)
    }

    fn git(&self, line: &str) {
        git(&self.top, line);
    }

    /// Writes a file with an old modification time, so that it is not racy.
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.top.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }

    fn content(&self, name: &str) -> Option<Vec<u8>> {
        content(&self.top, name)
    }
}

fn git(folder: &Path, line: &str) {
    let done = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgSign=false"])
        .args(line.split(' '))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(done.status.success(), "git {line}: {}", String::from_utf8_lossy(&done.stderr));
}

fn content(top: &Path, name: &str) -> Option<Vec<u8>> {
    let repository = Repository::open(top)?;
    let path = top.join(name);
    let stat = FileStat::new(&rustix::fs::lstat(&path).unwrap());
    repository.read(&path, &stat)
}

/// Lines that differ between seeds.
fn lines(seed: usize, count: usize) -> String {
    let line = |number| format!("line {number} of {}\n", number * 31 + seed * (number % 97 / 96));
    (0..count).map(line).collect::<Vec<_>>().concat()
}

#[test]
fn only_unmodified_files_are_found() {
    let Some(repo) = TestRepository::new() else { return };
    for name in ["same", "dirty", "staged", "touched", "racy", "run", "deep/er/file", "gone"] {
        repo.write(name, format!("the content of {name}"));
    }
    repo.write("empty", "");
    repo.write("ünï cödé", "x");
    fs::set_permissions(repo.top.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("same", repo.top.join("link")).unwrap();
    repo.git("add .");
    repo.git("commit -q -m one");
    repo.write("staged", "more");
    repo.git("add staged");
    repo.write("dirty", "THE CONTENT OF dirty");
    repo.write("announced", "");
    repo.git("add -N announced");
    repo.write("untracked", "x");
    fs::write(repo.top.join("touched"), "the content of touched").unwrap();
    // Modified after the index was written, and of the same length.
    fs::write(repo.top.join("racy"), "THE CONTENT OF racy").unwrap();
    let table: [(&str, Option<&str>); 11] = [
        ("same", Some("the content of same")),
        ("deep/er/file", Some("the content of deep/er/file")),
        ("run", Some("the content of run")),
        ("empty", Some("")),
        ("ünï cödé", Some("x")),
        ("staged", Some("more")),
        ("dirty", None),
        ("announced", None),
        ("untracked", None),
        ("touched", None),
        ("racy", None),
    ];
    for version in ["2", "3", "4"] {
        repo.git(&format!("update-index --index-version {version}"));
        for (name, expected) in table {
            let found = repo.content(name);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{name}, index {version}");
        }
    }
    // The repository is found from a subfolder.
    let deep = crate::real_path(repo.top.join("deep/er")).unwrap();
    assert!(content(&deep, "file").is_some());
    repo.git("update-index --skip-worktree same");
    assert_eq!(repo.content("same"), None);
    // The index has another file type there, although everything else is equal.
    let repository = Repository::open(&repo.top).unwrap();
    let path = repo.top.join("run");
    let mut stat = FileStat::new(&rustix::fs::lstat(&path).unwrap());
    stat.mode = stat.mode & 0o7777 | 0o120_000;
    assert_eq!(repository.read(&path, &stat), None);
}

#[test]
fn the_content_of_a_link_is_its_target() {
    let Some(repo) = TestRepository::new() else { return };
    symlink("some/where", repo.top.join("link")).unwrap();
    // The index must be newer than the link.
    let age = || {
        let index = fs::File::options().write(true).open(repo.top.join(".git/index")).unwrap();
        index.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
    };
    repo.git("add link");
    age();
    assert_eq!(repo.content("link").as_deref(), Some(b"some/where".as_slice()));
}

#[test]
fn a_racily_modified_file_is_not_clean() {
    let Some(repo) = TestRepository::new() else { return };
    repo.write("file", "x");
    repo.git("add file");
    let index = fs::File::options().write(true).open(repo.top.join(".git/index")).unwrap();
    let moment = fs::metadata(repo.top.join("file")).unwrap().modified().unwrap();
    assert!(repo.content("file").is_some());
    index.set_modified(moment).unwrap();
    assert_eq!(repo.content("file"), None);
}

#[test]
fn contents_are_read_from_packs_with_deltas() {
    let Some(repo) = TestRepository::new() else { return };
    for round in 0..12 {
        for file in 0..8 {
            repo.write(&format!("f{file}"), lines(round * 8 + file, 400 + round));
        }
        repo.git("add .");
        repo.git(&format!("commit -q -m {round}"));
    }
    let before = repo.content("f3").unwrap();
    repo.git("gc -q --aggressive --prune=now");
    for file in 0..8 {
        let expected = lines(11 * 8 + file, 411).into_bytes();
        assert_eq!(repo.content(&format!("f{file}")), Some(expected), "f{file}");
    }
    assert_eq!(repo.content("f3"), Some(before));
    // Deltas with bases by id.
    repo.git("-c repack.useDeltaBaseOffset=false repack -q -a -d -f");
    assert_eq!(repo.content("f7"), Some(lines(95, 411).into_bytes()));
    // Older versions, which are deeper in the delta chains.
    for back in [1, 5, 11] {
        repo.git(&format!("checkout -q main~{back}"));
        let index = fs::File::options().write(true).open(repo.top.join(".git/index")).unwrap();
        index.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
        let round = 11 - back;
        let expected = lines(round * 8 + 2, 400 + round).into_bytes();
        assert_eq!(repo.content("f2"), Some(expected), "{back}");
    }
}

#[test]
fn worktrees_and_alternates_are_followed() {
    let Some(repo) = TestRepository::new() else { return };
    repo.write("file", "x");
    repo.git("add file");
    repo.git("commit -q -m one");
    repo.git("worktree add -q ../tree");
    repo.git("clone -q -s . ../copy");
    for name in ["tree", "copy"] {
        let top = repo.top.parent().unwrap().join(name);
        let path = top.join("file");
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        git(&top, "update-index --refresh");
        assert_eq!(content(&top, "file").as_deref(), Some(b"x".as_slice()), "{name}");
    }
}

/// As submodules are, and projects that somebody keeps in one folder.
#[test]
fn contents_are_read_from_repositories_below_the_folder() {
    let Some(repo) = TestRepository::new() else { return };
    let text = lines(1, 20_000);
    repo.write("too large to be copied", &text);
    repo.git("add .");
    let tracker = ChangeTracker::default();
    let roots = Roots::new(repo.top.parent().unwrap()).unwrap();
    tracker.watch(&roots, ObeyedFiles::default(), GitSettings::default(), Vec::new());
    for _ in 0..2 {
        let before = tracker.baseline(&Arc::default()).unwrap();
        fs::write(repo.top.join("too large to be copied"), "new").unwrap();
        let changes = tracker.changes_since(&before, false);
        let states: Vec<_> = changes.files.iter().map(|change| &change.before).collect();
        let [FileState::File { size, is_kept: true, .. }] = states[..] else {
            panic!("{states:?}");
        };
        assert_eq!(*size, text.len() as u64);
        repo.write("too large to be copied", &text);
        // Within a second, git takes the file for the one that is in its index.
        repo.git("rm -q -r --cached .");
        repo.git("add .");
    }
}

/// A command may delete it with its folder, to clone it anew.
#[test]
fn files_of_a_repository_below_the_folder_are_kept_in_case_it_is_deleted() {
    let Some(repo) = TestRepository::new() else { return };
    repo.write("a.txt", "one");
    repo.git("add .");
    let tracker = ChangeTracker::default();
    let roots = Roots::new(repo.top.parent().unwrap()).unwrap();
    tracker.watch(&roots, ObeyedFiles::default(), GitSettings::default(), Vec::new());
    let before = tracker.baseline(&Arc::default()).unwrap();
    fs::remove_dir_all(&repo.top).unwrap();
    let changes = tracker.changes_since(&before, false);
    let deleted = changes.files.iter().find(|change| change.path.ends_with("a.txt")).unwrap();
    assert!(
        matches!(deleted.before, FileState::File { is_kept: true, .. }),
        "{:?}",
        deleted.before
    );
}

#[test]
fn ends_of_lines_are_those_of_the_file() {
    for setting in ["core.autocrlf true", "core.autocrlf input", "core.eol crlf", "core.eol lf"] {
        let Some(repo) = TestRepository::new() else { return };
        repo.git(&format!("config {setting}"));
        repo.write(".gitattributes", "*.text text\n*.auto text=auto\n*.keep -text\n");
        for end in ["text", "auto", "keep", "plain"] {
            for (name, text) in [
                ("crlf", "one\r\ntwo\r\nthree"),
                ("lf", "one\ntwo\n"),
                ("double", "one\r\r\ntwo\r\r\n"),
                ("none", "one"),
                ("cr", "one\rtwo\r\n"),
            ] {
                repo.write(&format!("{name}.{end}"), text);
            }
            repo.write(&format!("mixed.{end}"), "one\r\ntwo\nthree\n");
        }
        repo.git("add .");
        for end in ["text", "auto", "keep", "plain"] {
            for name in ["crlf", "lf", "double", "none", "cr"] {
                let name = format!("{name}.{end}");
                let file = fs::read(repo.top.join(&name)).unwrap();
                assert_eq!(repo.content(&name), Some(file), "{setting}: {name}");
            }
            // Git does not tell where the CRs were, unless it has kept them.
            let mixed = repo.content(&format!("mixed.{end}"));
            assert!(mixed.is_none_or(|bytes| bytes == b"one\r\ntwo\nthree\n"), "{setting}: {end}");
        }
        // The bytes that git writes, as opposed to those that were added.
        repo.git("commit -q -m one");
        for name in ["crlf.text", "lf.text", "lf.auto", "lf.plain", "double.text"] {
            fs::remove_file(repo.top.join(name)).unwrap();
            repo.git(&format!("checkout -q -- {name}"));
            let index = fs::File::options().write(true).open(repo.top.join(".git/index")).unwrap();
            index.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
            let file = fs::read(repo.top.join(name)).unwrap();
            assert_eq!(repo.content(name), Some(file), "{setting}: {name}");
        }
    }
}

#[test]
fn sha256_repositories_are_not_supported() {
    let Some(repo) = TestRepository::new() else { return };
    let other = repo.top.join("other");
    fs::create_dir(&other).unwrap();
    git(&other, "init -q --object-format=sha256");
    fs::write(other.join("file"), "x").unwrap();
    git(&other, "add file");
    assert!(Repository::open(&other).is_none());
}

/// An index, a loose object, a pack and its index as git wrote them.
fn git_files() -> Option<[Vec<u8>; 4]> {
    let repo = TestRepository::new()?;
    for round in 0..4 {
        repo.write("a/file", lines(round, 120 + round));
        repo.write("a/filter", lines(round + 100, 120 + round));
        repo.git("add .");
        repo.git(&format!("commit -q -m {round}"));
    }
    repo.git("gc -q --aggressive");
    repo.write("loose", lines(7, 20));
    repo.git("add loose");
    repo.git("update-index --index-version 4");
    let git = repo.top.join(".git");
    let found = |folder: PathBuf, end: &str| {
        let mut all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        all.find(|path| path.to_string_lossy().ends_with(end)).unwrap()
    };
    let folders = fs::read_dir(git.join("objects")).unwrap().map(|entry| entry.unwrap().path());
    let loose = folders.filter(|path| path.file_name().unwrap().len() == 2).last().unwrap();
    let packs = git.join("objects/pack");
    Some([
        fs::read(git.join("index")).unwrap(),
        fs::read(found(loose, "")).unwrap(),
        fs::read(found(packs.clone(), ".pack")).unwrap(),
        fs::read(found(packs, ".idx")).unwrap(),
    ])
}

/// Changes some bytes and optionally truncates the end.
fn damage(bytes: &[u8], changes: &[(usize, u8)], keep: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, byte) in changes {
        let at = at % bytes.len();
        bytes[at] = *byte;
    }
    bytes.truncate(bytes.len() - keep % bytes.len().min(200));
    bytes
}

#[test]
fn damaged_data_is_survived() {
    let Some([index, loose, pack, pack_index]) = git_files() else { return };
    assert_eq!(index::parse(&index).unwrap().entries.len(), 3);
    assert_eq!(pack::parse_loose_blob(&loose), Some(lines(7, 20).into_bytes()));
    let ids = pack_index[8 + 1024..].chunks_exact(20);
    let names: Vec<[u8; 20]> = ids.map(|id| id.try_into().unwrap()).take(20).collect();
    let changes = prop::collection::vec((any::<usize>(), any::<u8>()), 0..6);
    let damages = (changes, prop_oneof![Just(0), any::<usize>()]);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(400));
    let run = runner.run(&(damages, 0..20_usize), |((changes, keep), which)| {
        drop(index::parse(&damage(&index, &changes, keep)));
        drop(pack::parse_loose_blob(&damage(&loose, &changes, keep)));
        let pack_index = damage(&pack_index, &changes, keep);
        let place = pack::find_offset(&mut Cursor::new(pack_index), &names[which % names.len()]);
        let pack = damage(&pack, &changes, keep);
        if let Some((_, bytes)) = pack::read_entry(&mut Cursor::new(&pack), place.unwrap_or(12)) {
            drop(pack::apply_delta(&pack, &bytes));
            drop(pack::apply_delta(
                &bytes,
                &damage(&[bytes.as_slice(), &[0; 20]].concat(), &changes, 0),
            ));
        }
        Ok(())
    });
    run.unwrap();
}

proptest! {
    #[test]
    fn a_delta_produces_exactly_the_announced_size(
        base in prop::collection::vec(any::<u8>(), 0..40),
        orders in prop::collection::vec(any::<u8>(), 0..40),
        length in 0..128_u8,
    ) {
        let head = [u8::try_from(base.len()).unwrap(), length];
        if let Some(made) = pack::apply_delta(&base, &[&head, orders.as_slice()].concat()) {
            prop_assert_eq!(made.len(), usize::from(length));
        }
    }
}
