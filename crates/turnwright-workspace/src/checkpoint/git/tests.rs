//! Against the real git: what it calls unchanged is found, byte for byte, and nothing else is.

#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "a test sets up its repository with git itself")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::{Repository, Stat, index, pack, zlib};

/// A repository in a folder of its own.
struct Stage {
    _folder: tempfile::TempDir,
    top: PathBuf,
}

impl Stage {
    /// `None`, and a word about it, where there is no git.
    fn new() -> Option<Stage> {
        if Command::new("git").arg("--version").output().is_err() {
            eprintln!("SKIPPED: there is no git here");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(folder.path()).unwrap().join("main");
        fs::create_dir(&top).unwrap();
        let stage = Stage { _folder: folder, top };
        stage.git("init -q -b main");
        Some(stage)
    }

    fn git(&self, line: &str) {
        git(&self.top, line);
    }

    /// A file that was last changed a while ago, so that no moment is the index's own.
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
    let stat = Stat::of(&fs::symlink_metadata(&path).unwrap());
    repository.read(&repository.clean(&path, &stat)?)
}

/// Lines that no two numbers share.
fn lines(seed: usize, count: usize) -> String {
    let line = |it| format!("line {it} of {}\n", it * 31 + seed * (it % 97 / 96));
    (0..count).map(line).collect::<Vec<_>>().concat()
}

#[test]
fn what_is_unchanged_is_there_and_nothing_else() {
    let Some(stage) = Stage::new() else { return };
    for name in ["same", "dirty", "staged", "touched", "racy", "run", "deep/er/file", "gone"] {
        stage.write(name, format!("the content of {name}"));
    }
    stage.write("empty", "");
    stage.write("ünï cödé", "x");
    fs::set_permissions(stage.top.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("same", stage.top.join("link")).unwrap();
    stage.git("add .");
    stage.git("commit -q -m one");
    stage.write("staged", "more");
    stage.git("add staged");
    stage.write("dirty", "THE CONTENT OF dirty");
    stage.write("announced", "");
    stage.git("add -N announced");
    stage.write("untracked", "x");
    fs::write(stage.top.join("touched"), "the content of touched").unwrap();
    // Changed after the index, and of the same length.
    fs::write(stage.top.join("racy"), "THE CONTENT OF racy").unwrap();
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
        stage.git(&format!("update-index --index-version {version}"));
        for (name, expected) in table {
            let found = stage.content(name);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{name}, index {version}");
        }
    }
    // A folder of the repository is enough.
    let deep = fs::canonicalize(stage.top.join("deep/er")).unwrap();
    assert!(content(&deep, "file").is_some());
    stage.git("update-index --skip-worktree same");
    assert_eq!(stage.content("same"), None);
    // The index has another sort of thing there, whatever else is equal.
    let repository = Repository::open(&stage.top).unwrap();
    let path = stage.top.join("run");
    let mut stat = Stat::of(&fs::symlink_metadata(&path).unwrap());
    stat.mode = stat.mode & 0o7777 | 0o120_000;
    assert_eq!(repository.clean(&path, &stat), None);
}

#[test]
fn a_link_is_where_it_points_to() {
    let Some(stage) = Stage::new() else { return };
    symlink("some/where", stage.top.join("link")).unwrap();
    // The index has to be younger than the link.
    let age = || {
        let index = fs::File::options().write(true).open(stage.top.join(".git/index")).unwrap();
        index.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
    };
    stage.git("add link");
    age();
    assert_eq!(stage.content("link").as_deref(), Some(b"some/where".as_slice()));
}

#[test]
fn what_was_changed_as_the_index_was_written_is_not_taken_for_clean() {
    let Some(stage) = Stage::new() else { return };
    stage.write("file", "x");
    stage.git("add file");
    let index = fs::File::options().write(true).open(stage.top.join(".git/index")).unwrap();
    let moment = fs::metadata(stage.top.join("file")).unwrap().modified().unwrap();
    assert!(stage.content("file").is_some());
    index.set_modified(moment).unwrap();
    assert_eq!(stage.content("file"), None);
}

#[test]
fn packs_with_deltas_give_every_content_back() {
    let Some(stage) = Stage::new() else { return };
    for round in 0..12 {
        for file in 0..8 {
            stage.write(&format!("f{file}"), lines(round * 8 + file, 400 + round));
        }
        stage.git("add .");
        stage.git(&format!("commit -q -m {round}"));
    }
    let before = stage.content("f3").unwrap();
    stage.git("gc -q --aggressive --prune=now");
    for file in 0..8 {
        let expected = lines(11 * 8 + file, 411).into_bytes();
        assert_eq!(stage.content(&format!("f{file}")), Some(expected), "f{file}");
    }
    assert_eq!(stage.content("f3"), Some(before));
    // Bases by their names.
    stage.git("-c repack.useDeltaBaseOffset=false repack -q -a -d -f");
    assert_eq!(stage.content("f7"), Some(lines(95, 411).into_bytes()));
    // Older ones, which lie deeper: each is checked out in its turn.
    for back in [1, 5, 11] {
        stage.git(&format!("checkout -q main~{back}"));
        let index = fs::File::options().write(true).open(stage.top.join(".git/index")).unwrap();
        index.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
        let round = 11 - back;
        let expected = lines(round * 8 + 2, 400 + round).into_bytes();
        assert_eq!(stage.content("f2"), Some(expected), "{back}");
    }
}

#[test]
fn worktrees_and_alternates_are_followed() {
    let Some(stage) = Stage::new() else { return };
    stage.write("file", "x");
    stage.git("add file");
    stage.git("commit -q -m one");
    stage.git("worktree add -q ../tree");
    stage.git("clone -q -s . ../copy");
    for name in ["tree", "copy"] {
        let top = stage.top.parent().unwrap().join(name);
        let path = top.join("file");
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        git(&top, "update-index --refresh");
        assert_eq!(content(&top, "file").as_deref(), Some(b"x".as_slice()), "{name}");
    }
}

#[test]
fn what_a_filter_has_made_of_a_content_is_not_given_back() {
    let Some(stage) = Stage::new() else { return };
    stage.git("config core.autocrlf true");
    stage.write("file", "one\r\ntwo\r\n");
    stage.git("add file");
    let repository = Repository::open(&stage.top).unwrap();
    let path = stage.top.join("file");
    let stat = Stat::of(&fs::symlink_metadata(&path).unwrap());
    let oid = repository.clean(&path, &stat).expect("git calls it unchanged");
    assert_eq!(repository.read(&oid), None);
}

#[test]
fn other_hashes_are_not_understood() {
    let Some(stage) = Stage::new() else { return };
    let other = stage.top.join("other");
    fs::create_dir(&other).unwrap();
    git(&other, "init -q --object-format=sha256");
    fs::write(other.join("file"), "x").unwrap();
    git(&other, "add file");
    assert!(Repository::open(&other).is_none());
}

/// An index, a loose object, a pack and its index as git has made them.
fn real() -> Option<[Vec<u8>; 4]> {
    let stage = Stage::new()?;
    for round in 0..4 {
        stage.write("a/file", lines(round, 120 + round));
        stage.write("a/filter", lines(round + 100, 120 + round));
        stage.git("add .");
        stage.git(&format!("commit -q -m {round}"));
    }
    stage.git("gc -q --aggressive");
    stage.write("loose", lines(7, 20));
    stage.git("add loose");
    stage.git("update-index --index-version 4");
    let git = stage.top.join(".git");
    let found = |folder: PathBuf, end: &str| {
        let mut all = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
        all.find(|it| it.to_string_lossy().ends_with(end)).unwrap()
    };
    let loose = fs::read_dir(git.join("objects")).unwrap().map(|it| it.unwrap().path());
    let loose = loose.filter(|it| it.file_name().unwrap().len() == 2).last().unwrap();
    let packs = || git.join("objects/pack");
    Some([
        fs::read(git.join("index")).unwrap(),
        fs::read(found(loose, "")).unwrap(),
        fs::read(found(packs(), ".pack")).unwrap(),
        fs::read(found(packs(), ".idx")).unwrap(),
    ])
}

/// Some bytes are others, and the end may be missing.
fn damage(bytes: &[u8], changes: &[(usize, u8)], keep: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, byte) in changes {
        let at = at % bytes.len();
        bytes[at] = *byte;
    }
    // The sum of an index would catch it all; zeros say that there is none.
    let end = bytes.len() - 20;
    bytes[end..].fill(0);
    bytes.truncate(bytes.len() - keep % bytes.len().min(200));
    bytes
}

#[test]
fn no_bytes_whatever_break_it() {
    let Some([index, loose, pack, pack_index]) = real() else { return };
    assert_eq!(index::parse(&index).unwrap().len(), 3);
    assert_eq!(zlib::loose(&loose), Some(lines(7, 20).into_bytes()));
    let names = pack_index[8 + 1024..].chunks_exact(20);
    let names: Vec<[u8; 20]> = names.map(|it| it.try_into().unwrap()).take(20).collect();
    let changes = prop::collection::vec((any::<usize>(), any::<u8>()), 0..6);
    let damages = (changes, prop_oneof![Just(0), any::<usize>()]);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(400));
    let run = runner.run(&(damages, 0..20_usize), |((changes, keep), which)| {
        drop(index::parse(&damage(&index, &changes, keep)));
        drop(zlib::loose(&damage(&loose, &changes, keep)));
        let pack_index = damage(&pack_index, &changes, keep);
        let place = pack::offset(&pack_index.as_slice(), &names[which % names.len()]);
        let pack = damage(&pack, &changes, keep);
        if let Some((_, bytes)) = pack::piece(&pack.as_slice(), place.unwrap_or(12)) {
            drop(pack::apply(&pack, &bytes));
            drop(pack::apply(&bytes, &damage(&[bytes.as_slice(), &[0; 20]].concat(), &changes, 0)));
        }
        Ok(())
    });
    run.unwrap();
}

proptest! {
    #[test]
    fn a_delta_never_makes_more_than_it_says(
        base in prop::collection::vec(any::<u8>(), 0..40),
        orders in prop::collection::vec(any::<u8>(), 0..40),
        length in 0..128_u8,
    ) {
        let head = [u8::try_from(base.len()).unwrap(), length];
        if let Some(made) = pack::apply(&base, &[&head, orders.as_slice()].concat()) {
            prop_assert_eq!(made.len(), usize::from(length));
        }
    }
}
