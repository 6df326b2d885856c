//! Compares refreshed snapshots with new ones after random changes.
#![expect(clippy::disallowed_methods, reason = "a test changes files")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{StatSnapshot, WatchedFolders};
use crate::files::Roots;
use crate::real_path;

/// A change in a folder. Paths may be missing, or of another kind than the change needs.
#[derive(Clone, Debug)]
enum Step {
    Write(&'static str),
    MakeFolder(&'static str),
    Remove(&'static str),
    Rename(&'static str, &'static str),
    LinkTo(&'static str, &'static str),
    HardLink(&'static str, &'static str),
    Mode(&'static str, u32),
    /// Moves a folder with content into the project.
    MoveIn(&'static str),
    /// Moves something out of the project.
    MoveOut(&'static str),
    /// Removes what was moved out.
    RemoveOutside,
}

const PATHS: &[&str] = &[
    "a",
    "b",
    "d",
    "d/a",
    "d/b",
    "d/e",
    "d/e/a",
    "d/e/f",
    "d/e/f/a",
    "g",
    "g/d",
    "g/d/a",
    "x.no",
    "d/x.no",
    "d/.ignore",
    ".gitignore",
];

fn path() -> impl Strategy<Value = &'static str> {
    prop::sample::select(PATHS)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => path().prop_map(Step::Write),
        3 => path().prop_map(Step::MakeFolder),
        2 => path().prop_map(Step::Remove),
        3 => (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (path(), path()).prop_map(|(path, target)| Step::LinkTo(path, target)),
        1 => (path(), prop::sample::select(&[0o755_u32, 0o700, 0o711][..]))
            .prop_map(|(path, mode)| Step::Mode(path, mode)),
        2 => path().prop_map(Step::MoveIn),
        2 => path().prop_map(Step::MoveOut),
        1 => Just(Step::RemoveOutside),
    ]
}

/// Several steps. A hard link is made last, because one that is gone before the next snapshot is not
/// noticed.
fn batch() -> impl Strategy<Value = Vec<Step>> {
    let link = (path(), path()).prop_map(|(from, to)| Step::HardLink(from, to));
    (prop::collection::vec(step(), 1..6), prop::option::weighted(0.2, link))
        .prop_map(|(steps, link)| steps.into_iter().chain(link).collect())
}

/// Some of the changes fail, as those of commands do.
fn apply(step: &Step, project: &Path, outside: &Path, number: usize) {
    let at = |path: &str| project.join(path);
    match step {
        Step::Write(path) => {
            let rules = if path.ends_with("ignore") { "*.no\n" } else { "" };
            fs::write(at(path), format!("{rules}# {number}\n")).ok();
        }
        Step::MakeFolder(path) => drop(fs::create_dir_all(at(path))),
        Step::Remove(path) => {
            if fs::remove_file(at(path)).is_err() {
                fs::remove_dir_all(at(path)).ok();
            }
        }
        Step::Rename(from, to) => drop(fs::rename(at(from), at(to))),
        Step::LinkTo(from, to) => drop(symlink(at(to), at(from))),
        Step::HardLink(from, to) => drop(fs::hard_link(at(from), at(to))),
        Step::Mode(path, mode) => {
            fs::set_permissions(at(path), fs::Permissions::from_mode(*mode)).ok();
        }
        Step::MoveIn(path) => {
            let folder = outside.join(format!("in{number}"));
            fs::create_dir_all(folder.join("deep/deeper")).ok();
            fs::write(folder.join("deep/deeper/file"), "x").ok();
            fs::rename(folder, at(path)).ok();
        }
        Step::RemoveOutside => {
            fs::remove_dir_all(outside).ok();
            fs::create_dir(outside).ok();
        }
        Step::MoveOut(path) => drop(fs::rename(at(path), outside.join(format!("out{number}")))),
    }
}

/// Where a link leads nothing may be watched.
#[test]
fn an_ignore_file_that_is_a_link_may_come_to_lead_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let project = real_path(folder.path()).unwrap();
    let apply = |step: &Step| apply(step, &project, &project, 0);
    apply(&Step::MakeFolder("d/e"));
    apply(&Step::LinkTo("d/.ignore", "d/e/a"));
    let watched = WatchedFolders::new(
        &Roots::new(&project).unwrap(),
        super::ObeyedFiles::default(),
        super::GitSettings::default(),
        Vec::new(),
    );
    let take = || StatSnapshot::take(&watched, Duration::from_secs(9), &Arc::default()).unwrap();
    let before = take();
    apply(&Step::Write("d/.ignore"));
    let refreshed = before.refresh(&watched, Duration::from_secs(9), &Arc::default());
    assert_eq!(refreshed.unwrap_or_else(take).entries(), take().entries());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_refreshed_snapshot_is_like_a_new_one(
        batches in prop::collection::vec(batch(), 1..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let base = real_path(folder.path()).unwrap();
        let project = base.join("project");
        let outside = base.join("outside");
        fs::create_dir(&project).unwrap();
        fs::create_dir(&outside).unwrap();
        let watched = WatchedFolders::new(&Roots::new(&project).unwrap(), super::ObeyedFiles::default(), super::GitSettings::default(), Vec::new());
        let take = || StatSnapshot::take(&watched, Duration::from_secs(9), &Arc::default()).unwrap();
        let mut last = take();
        if last.watch.is_none() {
            return Ok(());
        }
        for (number, batch) in batches.iter().enumerate() {
            for (step, change) in batch.iter().enumerate() {
                apply(change, &project, &outside, number * 10 + step);
            }
            let new = take();
            let refreshed = last.refresh(&watched, Duration::from_secs(9), &Arc::default());
            if let Some(refreshed) = &refreshed {
                prop_assert_eq!(refreshed.entries(), new.entries());
                let difference = last.compare(refreshed);
                prop_assert_eq!(difference, last.compare(&new));
            }
            last = refreshed.unwrap_or(new);
        }
    }
}
