//! Tests of the tracked changes on temporary folders.
#![expect(clippy::disallowed_methods, reason = "a test sets up its files")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::commands::{COMMANDS_WITHOUT_SNAPSHOTS, is_before};
use super::git::FileStat;
use super::observe::{MAX_STORED_BYTES, ObservedState, observe};
use super::snapshot::{SnapshotError, StatChange, StatSnapshot, WatchedFolders};
use super::{CallChanges, ChangeTracker, ExpectedChange, TrackedEdit};
use crate::files::{FileText, Roots, TextEncoding, TextSource};
use turnwright_types::file_change::FileState;

/// A project, and a folder outside of it where commands can write.
struct TrackerFixture(tempfile::TempDir, tempfile::TempDir);

impl TrackerFixture {
    fn new(files: &[(&str, &str)]) -> TrackerFixture {
        let fixture = TrackerFixture(tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (path, text) in files {
            fs::create_dir_all(fixture.path(path).parent().unwrap()).unwrap();
            fs::write(fixture.path(path), text).unwrap();
        }
        fixture
    }

    fn path(&self, path: &str) -> PathBuf {
        crate::real_path(self.0.path()).unwrap().join(path)
    }

    fn roots(&self) -> Roots {
        Roots::new(&self.path("")).unwrap()
    }

    fn outside(&self) -> PathBuf {
        crate::real_path(self.1.path()).unwrap()
    }

    fn tracker(&self) -> ChangeTracker {
        let tracker = ChangeTracker::default();
        let obeyed = super::ObeyedFiles {
            is_obeyed: |path, _| path.ends_with("sub/.settings"),
            may_hold: |_| false,
        };
        let writable = vec![self.outside()];
        tracker.watch(&self.roots(), obeyed, super::GitSettings::default(), writable);
        tracker
    }
}

fn not_cancelled() -> Arc<AtomicBool> {
    Arc::default()
}

/// The changed files by name, with `!` if the old content is unknown.
fn names(changes: &CallChanges) -> Vec<String> {
    let names = changes.files.iter().map(|change| {
        let sign = if matches!(change.before, FileState::Unknown { .. }) { "!" } else { "" };
        format!("{}{sign}", change.path.file_name().unwrap().to_string_lossy())
    });
    names.collect()
}

/// The permissions of a file, which depend on the umask of the tests.
fn mode_of(path: &Path) -> u32 {
    crate::nofollow::permission_bits(&fs::metadata(path).unwrap())
}

#[test]
fn the_state_of_a_path_is_observed() {
    let fixture = TrackerFixture::new(&[("f", "text")]);
    let hash = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1";
    let mode = mode_of(&fixture.path("f"));
    let file = |is_kept| FileState::File { hash: hash.to_owned(), size: 4, mode, is_kept };
    let table = [
        ("f", true, file(true)),
        ("f", false, file(false)),
        ("no", true, FileState::Absent),
        ("f/no", true, FileState::Absent),
    ];
    for (path, keeps, expected) in table {
        assert_eq!(observe(&fixture.path(path), keeps).state, expected, "{path}");
    }
    assert!(matches!(observe(&fixture.path(""), true).state, FileState::Folder { .. }));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nowhere", fixture.path("l")).unwrap();
        let link = FileState::Link { target: "nowhere".into() };
        assert_eq!(observe(&fixture.path("l"), true).state, link);
        assert!(matches!(observe(Path::new("/dev/null"), true).state, FileState::Unknown { .. }));
    }
    let large = ObservedState::file(vec![0; usize::try_from(MAX_STORED_BYTES).unwrap() + 1], 0o644);
    assert!(large.bytes.is_none(), "{:?}", large.state);
}

#[test]
fn two_snapshots_differ_in_added_removed_and_changed_files() {
    let stat = |size, mode| FileStat { size, mtime: (1, 0), ctime: (1, 0), ino: 1, mode };
    let one = stat(1, 0o100_644);
    let two = stat(2, 0o100_644);
    let table = [
        (Some(one), Some(one), false),
        (Some(one), Some(two), true),
        (Some(one), Some(stat(1, 0o100_755)), true),
        (Some(one), None, true),
        (None, Some(one), true),
    ];
    for (before, after, is_other) in table {
        let map = |stat: Option<FileStat>| {
            StatSnapshot::of_folder(Path::new("/d"), stat.map(|found| ("f", found)))
        };
        let change = StatChange { path: "/d/f".into(), before, after };
        let expected: &[StatChange] = if is_other { &[change] } else { &[] };
        assert_eq!(map(before).compare(&map(after)), expected);
    }
}

#[test]
fn a_snapshot_has_hidden_files_and_neither_ignored_ones_nor_git() {
    let fixture = TrackerFixture::new(&[
        (".gitignore", "no\n"),
        (".git/HEAD", ""),
        ("no", ""),
        ("d/.hidden", ""),
        ("ours/f", ""),
    ]);
    let watched = WatchedFolders::new(
        &fixture.roots().with_private_folder(&fixture.path("ours")),
        super::ObeyedFiles::default(),
        super::GitSettings::default(),
        Vec::new(),
    );
    let map = StatSnapshot::take(&watched, Duration::from_secs(9), &not_cancelled()).unwrap();
    let entries = map.entries();
    let found: Vec<_> =
        entries.iter().map(|entry| entry.0.strip_prefix(fixture.path("")).unwrap()).collect();
    let expected = [".gitignore", "d", "d/.hidden"].map(Path::new);
    assert_eq!(found, expected);
    assert_eq!(
        StatSnapshot::take(&watched, Duration::ZERO, &not_cancelled()).unwrap_err(),
        SnapshotError::TooLong
    );
}

/// Restored one by one, they would no longer fit together.
#[test]
fn the_own_files_of_other_version_control_are_none_of_the_project() {
    let own = [".hg/store/00changelog.i", "sub/.svn/wc.db", ".jj/tree/.sl/f", "gone/.svn/wc.db"];
    let fixture = TrackerFixture::new(&own.map(|name| (name, "1")));
    for (root, expected) in [("", &["f", "f.hg"][..]), (".jj/tree", &["f"][..])] {
        let tracker = ChangeTracker::default();
        let roots = Roots::new(&fixture.path(root)).unwrap();
        let git = super::GitSettings::default();
        tracker.watch(&roots, super::ObeyedFiles::default(), git, Vec::new());
        let before = tracker.baseline(&not_cancelled()).unwrap();
        for name in own[..3].iter().chain(&[".hg/dirstate", ".jj/tree/f", "f", "f.hg"]) {
            fs::write(fixture.path(name), format!("changed below {root}")).unwrap();
        }
        fs::remove_dir_all(fixture.path("gone/.svn")).ok();
        assert_eq!(names(&tracker.changes_since(&before, false)), expected);
    }
}

#[test]
fn a_renamed_file_needs_no_copy() {
    let fixture =
        TrackerFixture::new(&[("large", &"x".repeat(300_000)), ("other", &"y".repeat(300_000))]);
    let tracker = fixture.tracker();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    fs::rename(fixture.path("large"), fixture.path("moved")).unwrap();
    fs::write(fixture.path("other"), "new").unwrap();
    let changes = tracker.changes_since(&before, false);
    assert_eq!(names(&changes), ["large", "moved", "other!"]);
    let warning = tracker.warning(&changes, &fixture.roots()).unwrap();
    assert!(warning.starts_with("Not restorable by /undo: other (293 KiB)."), "{warning}");
    let again = tracker.warning(&changes, &fixture.roots()).unwrap();
    assert!(!again.contains("gitignore"), "{again}");
}

#[test]
fn a_file_that_was_ignored_is_not_new() {
    let fixture = TrackerFixture::new(&[(".gitignore", "old\n"), ("old", "the user's")]);
    std::thread::sleep(Duration::from_millis(50));
    let tracker = fixture.tracker();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    fs::write(fixture.path(".gitignore"), "new\n").unwrap();
    fs::write(fixture.path("made"), "").unwrap();
    assert_eq!(names(&tracker.changes_since(&before, false)), [".gitignore", "made"]);
    // A file that becomes ignored has not been removed.
    let before = tracker.baseline(&not_cancelled()).unwrap();
    fs::write(fixture.path(".gitignore"), "made\n").unwrap();
    assert_eq!(names(&tracker.changes_since(&before, false)), [".gitignore"]);
    // The old content of a file that was ignored is unknown.
    fs::write(fixture.path(".gitignore"), "old\n").unwrap();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    fs::write(fixture.path(".gitignore"), "\n").unwrap();
    let created = || fs::metadata(fixture.path("old")).unwrap().created().ok();
    let before_change = created();
    fs::write(fixture.path("old"), "changed").unwrap();
    // Wine says of a file that was changed that it was made then.
    let old = if created() == before_change { "old!" } else { "old" };
    assert_eq!(names(&tracker.changes_since(&before, false)), [".gitignore", old]);
}

#[test]
fn a_file_whose_time_is_rounded_down_counts_as_new() {
    let whole = SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000);
    let exact = whole + Duration::from_millis(10);
    for (stamp, later, expected) in [
        (whole, 2_010, false),
        (whole, 2_030, true),
        (exact, 0, false),
        (exact, 15, false),
        (exact, 500, true),
    ] {
        let then = stamp + Duration::from_millis(later);
        assert_eq!(is_before(stamp, then), expected, "{later}");
    }
}

/// As a working tree of git that is kept in the project, if both are opened.
#[test]
fn changes_in_a_folder_of_the_session_that_another_one_ignores_are_known() {
    let ignored = ("trees/x/.gitignore", "out\n");
    let fixture = TrackerFixture::new(&[(".gitignore", "/trees\n"), ("trees/x/f", "1"), ignored]);
    let roots = fixture.roots().with_folder(&fixture.path("trees/x")).unwrap();
    let tracker = ChangeTracker::default();
    let obeyed = super::ObeyedFiles::default();
    tracker.watch(&roots, obeyed, super::GitSettings::default(), Vec::new());
    for expected in [["f", "new"], ["f", "newer"]] {
        let before = tracker.baseline(&not_cancelled()).unwrap();
        for name in expected {
            fs::write(fixture.path("trees/x").join(name), expected[1]).unwrap();
        }
        // Other folders stay ignored.
        for folder in ["trees/x/out", "trees/y"] {
            fs::create_dir_all(fixture.path(folder)).unwrap();
            fs::write(fixture.path(folder).join("f"), expected[1]).unwrap();
        }
        assert_eq!(names(&tracker.changes_since(&before, false)), expected);
    }
}

#[test]
fn a_command_cannot_hide_a_new_file_by_ignore_rules() {
    for (rules, text, hidden) in [
        (".gitignore", "*.log\ntrap\n", "trap"),
        (".ignore", "/d/\n", "d/new/trap"),
        (".git/info/exclude", "*\n", "trap"),
        ("sub/.git/info/exclude", "trap\n", "sub/trap"),
        ("sub/.gitignore", "*\n", "sub/trap"),
        ("made/.gitignore", "*\n", "made/trap"),
        ("made/.gitignore", &"x\n".repeat(1_000_000), "made/trap"),
    ] {
        let fixture = TrackerFixture::new(&[
            (".gitignore", "*.log\n"),
            (".git/HEAD", ""),
            (".git/info/exclude", "old\n"),
            ("d/f", ""),
            ("old", ""),
            ("sub/.git/HEAD", ""),
        ]);
        let tracker = fixture.tracker();
        let before = tracker.baseline(&not_cancelled()).unwrap();
        let write = |name: &str, text: &str| {
            fs::create_dir_all(fixture.path(name).parent().unwrap()).unwrap();
            fs::write(fixture.path(name), text).unwrap();
        };
        write(rules, text);
        write(hidden, "payload");
        write("d/x.log", "");
        let changes = tracker.changes_since(&before, false);
        let found = changes.files.iter().find(|change| change.path == fixture.path(hidden));
        let trap = found.unwrap_or_else(|| panic!("{rules}: {:?}", names(&changes)));
        assert_eq!(trap.before, FileState::Absent, "{rules}");
        let has_ignored = changes
            .files
            .iter()
            .any(|change| ["d/x.log", "old"].iter().any(|name| change.path == fixture.path(name)));
        assert!(!has_ignored, "{rules}: {:?}", names(&changes));
    }
}

#[test]
fn a_large_folder_that_brings_its_own_ignore_rules_along_is_only_counted() {
    let fixture = TrackerFixture::new(&[("a", "")]);
    let tracker = fixture.tracker();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    fs::create_dir_all(fixture.path("cache/v")).unwrap();
    fs::write(fixture.path("cache/.gitignore"), "*\n").unwrap();
    for number in 0..300 {
        fs::write(fixture.path(&format!("cache/v/{number}")), "").unwrap();
    }
    let changes = tracker.changes_since(&before, false);
    let below =
        changes.files.iter().filter(|change| change.path.starts_with(fixture.path("cache/v")));
    assert_eq!((below.count(), changes.omitted), (0, 301));
}

#[test]
fn a_tree_that_is_too_large_is_unknown_as_a_whole() {
    let fixture = TrackerFixture::new(&[]);
    for number in 0..2_001 {
        fs::create_dir_all(fixture.path("d")).unwrap();
        fs::write(fixture.path("d").join(number.to_string()), "").unwrap();
    }
    let edit = TrackedEdit::begin(&[], vec![fixture.path("d")], &[]);
    let intent = edit.intent();
    assert_eq!(intent.files.len(), 1);
    assert_eq!(
        intent.files[0].before,
        FileState::Unknown { why: "more than 2000 files".to_owned() }
    );
    assert_eq!(intent.files[0].after, Some(FileState::Absent));
}

#[test]
fn the_editors_text_counts_for_a_file_with_unsaved_changes() {
    let fixture = TrackerFixture::new(&[("f", "saved")]);
    let shown = FileText::new("unsaved", TextSource::Editor);
    let path = fixture.path("f");
    let expected = ExpectedChange {
        path: &path,
        before: Some(&shown),
        after: Some(("new", TextEncoding::default())),
    };
    let begin = || TrackedEdit::begin(std::slice::from_ref(&path), Vec::new(), &[expected]);
    let is_of = |state: &FileState, text: &str| {
        let FileState::File { hash, .. } = ObservedState::file(text.into(), 0).state else {
            return false;
        };
        matches!(state, FileState::File { hash: found, .. } if *found == hash)
    };
    let intent = begin().intent();
    assert!(is_of(&intent.files[0].before, "unsaved"));
    assert!(is_of(intent.files[0].after.as_ref().unwrap(), "new"));
    let changes = begin().changes(&fixture.tracker(), [].into());
    assert_eq!(changes.files[0].after.as_ref(), Some(&changes.files[0].before));
    // The editor has accepted the text and not saved it.
    let written = Some(FileText::new("new", TextSource::Editor));
    let changes = begin().changes(&fixture.tracker(), [(path.clone(), written)].into());
    assert!(is_of(changes.files[0].after.as_ref().unwrap(), "new"));
}

#[test]
fn an_old_content_is_known_after_a_command_that_changed_only_the_time() {
    let fixture = TrackerFixture::new(&[("a", "1")]);
    let tracker = fixture.tracker();
    let run = |text: &str| {
        let before = tracker.baseline(&not_cancelled()).unwrap();
        fs::write(fixture.path("a"), text).unwrap();
        names(&tracker.changes_since(&before, false))
    };
    assert_eq!(run("1"), [""; 0]);
    assert_eq!(run("2"), ["a"]);
}

/// The next baseline may be the last snapshot, for which nothing is copied again.
#[test]
fn the_content_of_a_file_of_which_only_the_time_has_changed_stays_known() {
    let fixture = TrackerFixture::new(&[("a", "1")]);
    let tracker = fixture.tracker();
    let path = fixture.path("a");
    let before = tracker.baseline(&not_cancelled()).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(3_600)).unwrap();
    assert_eq!(names(&tracker.changes_since(&before, false)), [""; 0]);
    let stat = super::lstat(&path).unwrap();
    let known = tracker.contents.lock().get(&path, &stat).cloned().unwrap();
    assert_eq!(known.bytes.as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_file_that_each_command_changes_does_not_fill_the_store() {
    let big = "b".repeat(300 * 1024);
    let fixture = TrackerFixture::new(&[("big", &big), ("small", "1")]);
    let tracker = fixture.tracker();
    let stored = |text: &str| {
        let before = tracker.baseline(&not_cancelled()).unwrap();
        fs::write(fixture.path("big"), format!("{text}{big}")).unwrap();
        fs::write(fixture.path("small"), text).unwrap();
        let changes = tracker.changes_since(&before, false);
        assert_eq!(changes.files.len(), 2);
        changes.contents.iter().map(|bytes| bytes.len()).collect::<Vec<_>>()
    };
    assert_eq!(stored("22"), [300 * 1024 + 2, 1, 2]);
    tracker.kept_bytes.fetch_add(256 * 1024 * 1024, Ordering::Relaxed);
    assert_eq!(stored("333"), [3]);
}

#[test]
fn what_the_user_changes_between_two_turns_is_not_the_commands() {
    let fixture = TrackerFixture::new(&[("a", "1"), ("d/b", "1"), ("d/c", "1")]);
    let tracker = fixture.tracker();
    let run = |path: &str| {
        let before = tracker.baseline(&not_cancelled()).unwrap();
        fs::write(fixture.path(path), "of the command").unwrap();
        tracker.changes_since(&before, false)
    };
    assert_eq!(names(&run("a")), ["a"]);
    assert!(tracker.end_turn().1.is_none());
    tracker.drop_costly_baseline();
    fs::write(fixture.path("d/b"), "of the user").unwrap();
    fs::create_dir(fixture.path("e")).unwrap();
    assert_eq!(names(&run("d/c")), ["c"]);
    let changes = run("d/b");
    let mode = mode_of(&fixture.path("d/b"));
    let before = ObservedState::file(b"of the user".to_vec(), mode).state;
    assert_eq!(changes.files.iter().map(|change| &change.before).collect::<Vec<_>>(), [&before]);
}

#[test]
fn new_repositories_are_found() {
    let fixture = TrackerFixture::new(&[("a/f", ""), (".gitignore", "out\n"), ("out/f", "")]);
    let tracker = fixture.tracker();
    fs::create_dir(fixture.path("a/.git")).unwrap();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    assert_eq!(*tracker.repositories(), [fixture.path("a/.git")].into());
    fs::create_dir_all(fixture.path("new/deep/.git")).unwrap();
    fs::write(fixture.path("new/.git"), "gitdir: deep/.git").unwrap();
    fs::create_dir(fixture.path("out/.git")).unwrap();
    for part in ["bare/HEAD", "bare/objects", "bare/refs", "half/HEAD", "half/refs"] {
        fs::create_dir_all(fixture.path(part)).unwrap();
        fs::create_dir_all(fixture.path("lib/out").join(part.replace("bare/", ""))).unwrap();
    }
    let expected =
        ["bare", "lib/out", "new/.git", "new/deep/.git", "out/.git"].map(|name| fixture.path(name));
    let changes = tracker.changes_since(&before, false);
    assert_eq!(changes.new_repositories, expected);
    assert_eq!(tracker.find_new_repositories(&tracker.repositories()).0, expected);

    let next = tracker.baseline(&not_cancelled()).unwrap();
    fs::write(fixture.path("a/f"), "x").unwrap();
    assert!(tracker.changes_since(&next, false).new_repositories.is_empty());
}

/// Such a folder is followed twice: as one of the project, and for what git runs from it.
#[test]
fn changes_in_a_folder_with_the_layout_of_a_repository_are_known() {
    let fixture = TrackerFixture::new(&[("made/f", "")]);
    for part in ["HEAD", "objects", "refs"] {
        fs::create_dir_all(fixture.path(part)).unwrap();
        fs::create_dir_all(fixture.path("made/inner").join(part)).unwrap();
    }
    let tracker = fixture.tracker();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    let known = tracker.repositories();
    assert_eq!(*known, ["", "made/inner"].map(|path| fixture.path(path)).into());
    let mut live = tracker.live_folders().unwrap();
    assert!(live.find_new(&known).is_empty());
    for folder in ["sub", "made/inner/sub"] {
        fs::create_dir(fixture.path(folder)).unwrap();
        fs::write(fixture.path(folder).join(".settings"), "").unwrap();
    }
    let new = ["made/inner/sub/.settings", "sub/.settings"].map(|path| fixture.path(path));
    assert_eq!(live.find_new(&known), new);
    let changes = tracker.changes_since(&before, false);
    assert_eq!(changes.new_repositories, new);
    assert_eq!(names(&changes), ["sub", ".settings", "sub", ".settings"]);
}

#[test]
fn every_form_of_a_repository_is_found_wherever_it_is() {
    let fixture = TrackerFixture::new(&[(".gitignore", "out\n"), ("hidden/f", "")]);
    let tracker = fixture.tracker();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    // Names of new files of the agent are no hiding place for folders.
    for folder in [".", "sub", "out", "hidden/sub", ".turnwright-aaaaaa.tmp"] {
        fs::create_dir_all(fixture.path(folder)).unwrap();
        for part in ["HEAD", "commondir"] {
            fs::write(fixture.path(folder).join(part), "").unwrap();
        }
    }
    fs::create_dir_all(fixture.path("sub/.turnwright-bbbbbb.tmp/.git")).unwrap();
    #[cfg(unix)]
    for part in ["HEAD", "objects", "refs"] {
        fs::create_dir_all(fixture.path("links")).unwrap();
        std::os::unix::fs::symlink("refs/nowhere", fixture.path("links").join(part)).unwrap();
    }
    fs::write(fixture.path(".ignore"), "/hidden/\n").unwrap();
    let mut expected = vec!["", ".turnwright-aaaaaa.tmp", "hidden/sub", "out", "sub"];
    expected.extend(["sub/.turnwright-bbbbbb.tmp/.git"]);
    expected.extend(cfg!(unix).then_some("links"));
    expected.sort_unstable();
    let changes = tracker.changes_since(&before, false);
    let repositories = changes.new_repositories.iter();
    let found = repositories.map(|path| path.strip_prefix(fixture.path("")).unwrap());
    assert_eq!(found.collect::<Vec<_>>(), expected.iter().map(Path::new).collect::<Vec<_>>());
}

/// A folder of the repository itself, a temporary one and an ignored one become a part of the project by a link.
#[cfg(unix)]
#[test]
fn a_link_to_a_folder_where_nobody_looks_is_found_if_something_there_is_obeyed() {
    use std::os::unix::fs::symlink;
    let fixture = TrackerFixture::new(&[(".gitignore", "out\nignored-link\n"), ("src/f", "")]);
    let git = fixture.path(".git");
    let outside = fixture.outside();
    fs::create_dir(&git).unwrap();
    fs::create_dir_all(outside.join("old")).unwrap();
    symlink(outside.join("old"), fixture.path("old")).unwrap();
    let tracker = fixture.tracker();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    for folder in [
        git.join("zz/.git"),
        git.join("modules/sub/.git"),
        outside.join("old/.git"),
        outside.join("plain"),
        outside.join("settings/sub"),
        fixture.path("out/deep/lib/.git"),
    ] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(outside.join("settings/sub/.settings"), "").unwrap();
    for (link, target) in [
        ("docs", ".git/zz".into()),
        ("ignored-link", ".git/zz".into()),
        ("deep", "out/deep/lib".into()),
        ("plain", outside.join("plain")),
        ("settings", outside.join("settings")),
        ("listed", PathBuf::from("src")),
        ("system", "/usr/share".into()),
        ("nowhere", "nowhere-at-all".into()),
    ] {
        symlink(target, fixture.path(link)).unwrap();
    }
    // One link may lead to the next.
    fs::create_dir(outside.join("chain")).unwrap();
    symlink(git.join("zz"), outside.join("chain/next")).unwrap();
    symlink(outside.join("chain"), fixture.path("src/chain")).unwrap();
    let changes = tracker.changes_since(&before, false);
    let expected = [".git/zz/.git", "deep", "docs", "ignored-link", "old", "settings", "src/chain"];
    assert_eq!(changes.new_repositories, expected.map(|path| fixture.path(path)));

    let next = tracker.baseline(&not_cancelled()).unwrap();
    fs::create_dir_all(outside.join("plain/.git")).unwrap();
    let changes = tracker.changes_since(&next, false);
    assert_eq!(changes.new_repositories, [fixture.path("plain")]);
}

#[test]
fn a_command_cannot_hide_a_new_repository_by_ignoring_it() {
    let fixture = TrackerFixture::new(&[("f", "")]);
    let tracker = fixture.tracker();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    fs::write(fixture.path(".ignore"), "/made/\n").unwrap();
    fs::create_dir_all(fixture.path("made/deep/er/.git")).unwrap();
    let changes = tracker.changes_since(&before, false);
    assert_eq!(changes.new_repositories, [fixture.path("made/deep/er/.git")]);

    let fixture = TrackerFixture::new(&[("src/f", ""), ("old/.git/HEAD", ""), ("old/f", "")]);
    let tracker = fixture.tracker();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    fs::write(fixture.path(".ignore"), "/src/\n/old/\n").unwrap();
    fs::create_dir_all(fixture.path("src/app/.git")).unwrap();
    let changes = tracker.changes_since(&before, false);
    assert_eq!(changes.new_repositories, [fixture.path("src/app/.git")]);

    let before = tracker.baseline(&not_cancelled()).unwrap();
    fs::create_dir_all(fixture.path("src/lib/deep/.git")).unwrap();
    let changes = tracker.changes_since(&before, false);
    assert_eq!(changes.new_repositories, [fixture.path("src/lib/deep/.git")]);
    assert!(!changes.may_have_more_repositories);
}

#[test]
fn a_command_cannot_hide_a_new_repository_beside_an_ignore_file_that_is_not_read() {
    let fixture = TrackerFixture::new(&[]);
    let tracker = fixture.tracker();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    fs::create_dir_all(fixture.path("new/app/.git")).unwrap();
    fs::write(fixture.path("new/.gitignore"), "x\n".repeat(1_000_000)).unwrap();
    let changes = tracker.changes_since(&before, false);
    assert_eq!(changes.new_repositories, [fixture.path("new/app/.git")]);
}

/// A folder that a command makes unreadable can still be entered.
#[cfg(unix)]
#[test]
fn a_folder_that_a_command_makes_unreadable_is_searched_and_one_of_the_user_is_told_once() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = TrackerFixture::new(&[("mine/f", "")]);
    let set_mode = |path: &str, mode| {
        fs::set_permissions(fixture.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    let tracker = fixture.tracker();
    set_mode("mine", 0o311);
    if fs::read_dir(fixture.path("mine")).is_ok() {
        eprintln!("NOT TESTED: root can search every folder");
        return;
    }
    let mut told = Vec::new();
    for name in ["f", "g"] {
        let before = tracker.baseline(&not_cancelled()).unwrap();
        fs::create_dir_all(fixture.path("new/deep").join(name).join(".git")).unwrap();
        for folder in ["new/deep", "new"] {
            set_mode(folder, 0o311);
        }
        let changes = tracker.changes_since(&before, false);
        let expected = fixture.path("new/deep").join(name).join(".git");
        assert_eq!(changes.new_repositories, [expected]);
        told.push(changes.may_have_more_repositories);
    }
    assert_eq!(told, [false, false]);
    assert_eq!(mode_of(&fixture.path("mine")), 0o311);
    set_mode("mine", 0o755);
}

#[test]
fn repositories_are_found_among_too_many_files() {
    let fixture = TrackerFixture::new(&[("f", ""), ("old/.git/HEAD", "")]);
    let tracker = fixture.tracker();
    let before = tracker.baseline(&not_cancelled()).unwrap();
    fs::create_dir(fixture.path("many")).unwrap();
    for number in 0..5_100 {
        fs::File::create(fixture.path("many").join(number.to_string())).unwrap();
    }
    let new = |path: &str| {
        fs::create_dir_all(fixture.path(path).join(".git")).unwrap();
        vec![fixture.path(path).join(".git")]
    };
    let first = new("first");
    let changes = tracker.changes_since(&before, false);
    assert!(changes.is_unknown && !changes.may_have_more_repositories);
    assert_eq!(changes.new_repositories, first);
    // Before the next command everything is known again, though files are not compared any more.
    assert!(tracker.baseline(&not_cancelled()).is_none() && !tracker.compares_files());
    let known = tracker.repositories();
    assert!(known.contains(&first[0]));
    let mut live = tracker.live_folders().unwrap();
    let second = new("second");
    assert_eq!(live.find_new(&known), second);
    assert_eq!(tracker.find_new_repositories(&known), (second, false));
}

#[test]
fn files_are_compared_again_a_while_after_there_were_too_many() {
    let fixture = TrackerFixture::new(&[("f", "")]);
    let tracker = fixture.tracker();
    let many = fixture.path("many");
    fs::create_dir(&many).unwrap();
    for number in 0..5_100 {
        fs::File::create(many.join(number.to_string())).unwrap();
    }
    assert!(tracker.baseline(&not_cancelled()).is_none() && !tracker.compares_files());
    fs::remove_dir_all(&many).unwrap();
    let found = (0..COMMANDS_WITHOUT_SNAPSHOTS).find_map(|_| tracker.baseline(&not_cancelled()));
    assert!(found.is_some() && tracker.compares_files());
}
