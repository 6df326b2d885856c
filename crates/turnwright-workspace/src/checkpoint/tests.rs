//! What is found of files, on folders that a test makes.
#![expect(clippy::disallowed_methods, reason = "a test sets up its files")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use super::git::Stat;
use super::look::{Found, MOST_KEPT, look};
use super::map::{Cut, Differs, Ground, Map};
use super::{Changes, Checkpoint, Edit, Foreseen};
use crate::files::{Form, Roots, Source, Text};
use turnwright_types::file_change::{Change, FileState};

struct Bed(tempfile::TempDir);

impl Bed {
    fn new(files: &[(&str, &str)]) -> Bed {
        let bed = Bed(tempfile::tempdir().unwrap());
        for (path, text) in files {
            fs::create_dir_all(bed.path(path).parent().unwrap()).unwrap();
            fs::write(bed.path(path), text).unwrap();
        }
        bed
    }

    fn path(&self, path: &str) -> PathBuf {
        fs::canonicalize(self.0.path()).unwrap().join(path)
    }

    fn roots(&self) -> Roots {
        Roots::new(&self.path("")).unwrap()
    }

    fn checkpoint(&self) -> Checkpoint {
        let checkpoint = Checkpoint::default();
        checkpoint.watch(&self.roots());
        checkpoint
    }
}

fn go_on() -> Arc<AtomicBool> {
    Arc::default()
}

/// The changes by name, `!` where what was before is not known.
fn names(changes: &Changes) -> Vec<String> {
    let name = |it: &Change| {
        let sign = if matches!(it.before, FileState::Unknown { .. }) { "!" } else { "" };
        format!("{}{sign}", it.path.file_name().unwrap().to_string_lossy())
    };
    changes.files.iter().map(name).collect()
}

#[test]
fn a_path_is_what_lies_there() {
    let bed = Bed::new(&[("f", "text")]);
    std::os::unix::fs::symlink("nowhere", bed.path("l")).unwrap();
    let hash = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1";
    let file = |is_kept| FileState::File { hash: hash.to_owned(), size: 4, mode: 0o644, is_kept };
    let link = FileState::Link { target: "nowhere".into() };
    let table = [
        ("f", true, file(true)),
        ("f", false, file(false)),
        ("l", true, link),
        ("no", true, FileState::Absent),
        ("f/no", true, FileState::Absent),
    ];
    for (path, keeps, expected) in table {
        assert_eq!(look(&bed.path(path), keeps).state, expected, "{path}");
    }
    assert!(matches!(look(&bed.path(""), true).state, FileState::Folder { .. }));
    assert!(matches!(look(Path::new("/dev/null"), true).state, FileState::Unknown { .. }));
    let large = Found::file(vec![0; usize::try_from(MOST_KEPT).unwrap() + 1], 0o644);
    assert!(large.bytes.is_none(), "{:?}", large.state);
}

#[test]
fn two_maps_differ_in_what_came_went_or_is_another() {
    let stat = |size, mode| Stat { size, mtime: (1, 0), ctime: (1, 0), ino: 1, mode };
    let map = |all: &[(&str, Stat)]| Map {
        at: SystemTime::now(),
        took: Duration::ZERO,
        entries: all.iter().map(|it| (it.0.into(), it.1)).collect(),
    };
    let (one, two) = (stat(1, 0o100_644), stat(2, 0o100_644));
    let table = [
        (Some(one), Some(one), false),
        (Some(one), Some(two), true),
        (Some(one), Some(stat(1, 0o100_755)), true),
        (Some(one), None, true),
        (None, Some(one), true),
    ];
    for (before, after, is_other) in table {
        let map = |it: Option<Stat>| map(&it.map_or(vec![], |it| vec![("f", it)]));
        let expected = Differs { path: "f".into(), before, after };
        let expected: &[Differs] = if is_other { &[expected] } else { &[] };
        assert_eq!(map(before).compare(&map(after)), expected);
    }
}

#[test]
fn a_map_has_hidden_files_and_neither_ignored_ones_nor_git() {
    let bed = Bed::new(&[
        (".gitignore", "no\n"),
        (".git/HEAD", ""),
        ("no", ""),
        ("d/.hidden", ""),
        ("ours/f", ""),
    ]);
    let ground = Ground::of(&bed.roots().without(&bed.path("ours")));
    let map = Map::draw(&ground, Duration::from_secs(9), &go_on()).unwrap();
    let mut found: Vec<_> =
        map.entries.keys().map(|it| it.strip_prefix(bed.path("")).unwrap()).collect();
    found.sort();
    let expected = [".gitignore", "d", "d/.hidden"].map(Path::new);
    assert_eq!(found, expected);
    assert_eq!(Map::draw(&ground, Duration::ZERO, &go_on()).unwrap_err(), Cut::TooLong);
}

#[test]
fn what_only_has_another_name_or_mode_needs_no_copy() {
    let bed = Bed::new(&[("large", &"x".repeat(300_000)), ("other", &"y".repeat(300_000))]);
    let checkpoint = bed.checkpoint();
    let before = checkpoint.before(&go_on()).unwrap();
    fs::rename(bed.path("large"), bed.path("moved")).unwrap();
    fs::write(bed.path("other"), "new").unwrap();
    let changes = checkpoint.after(&before, false);
    assert_eq!(names(&changes), ["large", "moved", "other!"]);
    let warning = checkpoint.warning(&changes, &bed.roots()).unwrap();
    assert!(warning.starts_with("Not restorable by /undo: other (292 KB)."), "{warning}");
    let again = checkpoint.warning(&changes, &bed.roots()).unwrap();
    assert!(!again.contains("gitignore"), "{again}");
}

#[test]
fn what_was_only_ignored_is_not_new() {
    let bed = Bed::new(&[(".gitignore", "old\n"), ("old", "the user's")]);
    std::thread::sleep(Duration::from_millis(50));
    let checkpoint = bed.checkpoint();
    let before = checkpoint.before(&go_on()).unwrap();
    fs::write(bed.path(".gitignore"), "new\n").unwrap();
    fs::write(bed.path("made"), "").unwrap();
    assert_eq!(names(&checkpoint.after(&before, false)), [".gitignore", "made"]);
    // And what is ignored from now on has not gone.
    let before = checkpoint.before(&go_on()).unwrap();
    fs::write(bed.path(".gitignore"), "made\n").unwrap();
    assert_eq!(names(&checkpoint.after(&before, false)), [".gitignore"]);
    // Nobody knows what was in it.
    fs::write(bed.path(".gitignore"), "old\n").unwrap();
    let before = checkpoint.before(&go_on()).unwrap();
    fs::write(bed.path(".gitignore"), "\n").unwrap();
    fs::write(bed.path("old"), "changed").unwrap();
    assert_eq!(names(&checkpoint.after(&before, false)), [".gitignore", "old!"]);
}

#[test]
fn a_tree_that_is_too_large_is_not_known_and_never_in_part() {
    let bed = Bed::new(&[]);
    for number in 0..2_001 {
        fs::create_dir_all(bed.path("d")).unwrap();
        fs::write(bed.path("d").join(number.to_string()), "").unwrap();
    }
    let edit = Edit::look(&[], vec![bed.path("d")], &[]);
    let intent = edit.intent();
    assert_eq!(intent.files.len(), 1);
    assert_eq!(
        intent.files[0].before,
        FileState::Unknown { why: "more than 2000 files".to_owned() }
    );
    assert_eq!(intent.files[0].after, Some(FileState::Absent));
}

#[test]
fn of_a_file_with_unsaved_changes_the_editors_text_counts() {
    let bed = Bed::new(&[("f", "saved")]);
    let shown = Text::new("unsaved", Source::Editor);
    let path = bed.path("f");
    let foreseen =
        Foreseen { path: &path, before: Some(&shown), after: Some(("new", Form::default())) };
    let look = || Edit::look(std::slice::from_ref(&path), Vec::new(), &[foreseen]);
    let is_of = |state: &FileState, text: &str| {
        let FileState::File { hash, .. } = Found::file(text.into(), 0).state else { return false };
        matches!(state, FileState::File { hash: it, .. } if *it == hash)
    };
    let intent = look().intent();
    assert!(is_of(&intent.files[0].before, "unsaved"));
    assert!(is_of(intent.files[0].after.as_ref().unwrap(), "new"));
    // Nothing was written.
    let changes = look().changes(&bed.checkpoint(), [].into());
    assert_eq!(changes.files[0].after.as_ref(), Some(&changes.files[0].before));
    // The editor has taken it and not saved it.
    let written = Some(Text::new("new", Source::Editor));
    let changes = look().changes(&bed.checkpoint(), [(path.clone(), written)].into());
    assert!(is_of(changes.files[0].after.as_ref().unwrap(), "new"));
}

/// `cargo test --release --lib -- --ignored --nocapture how_long`
#[test]
#[ignore = "prints times"]
fn how_long_it_takes() {
    for count in [500, 50_000] {
        let bed = Bed::new(&[]);
        for number in 0..count {
            let folder = bed.path(&format!("d{}/e{}", number / 1_000, number / 50));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("file{number}.rs")), "x".repeat(2_000)).unwrap();
        }
        let checkpoint = bed.checkpoint();
        for round in 0..4 {
            let begun = std::time::Instant::now();
            let before = checkpoint.before(&go_on()).unwrap();
            let first = begun.elapsed();
            fs::write(bed.path("d0/e0/file0.rs"), round.to_string()).unwrap();
            let begun = std::time::Instant::now();
            let changes = checkpoint.after(&before, false);
            eprintln!(
                "{count} files: before {first:?}, after {:?}, {:?}",
                begun.elapsed(),
                names(&changes)
            );
        }
    }
}
