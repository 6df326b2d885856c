//! Which file may be meant by a path that does not exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::search::are_odd;

/// Names that are offered of the same folder, and from elsewhere.
const MOST_NAMES: usize = 3;
/// Entries that are looked at in the folder, and in all the project.
const MOST_BESIDE: usize = 2_000;
const MOST_ANYWHERE: usize = 20_000;
/// How long the project is searched.
const PATIENCE: Duration = Duration::from_millis(200);

/// Names in the same folder that are nearly the missing one, the nearest first, then files of
/// that very name elsewhere below `root`. Blocks.
pub(super) fn near(path: &Path, root: &Path) -> Vec<PathBuf> {
    let mut found = beside(path);
    for other in anywhere(path, root) {
        if !found.contains(&other) {
            found.push(other);
        }
    }
    found
}

fn beside(path: &Path) -> Vec<PathBuf> {
    let lower = |it: &std::ffi::OsStr| it.to_string_lossy().to_lowercase();
    let name = lower(path.file_name().unwrap_or_default());
    let Ok(entries) = fs::read_dir(path.parent().unwrap_or(Path::new("/"))) else {
        return Vec::new();
    };
    let mut near: Vec<(f64, PathBuf)> = entries
        .filter_map(Result::ok)
        .take(MOST_BESIDE)
        .map(|it| {
            let other = lower(&it.file_name());
            (strsim::normalized_damerau_levenshtein(&name, &other), it.path())
        })
        .filter(|(likeness, _)| *likeness > 0.6)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    near.into_iter().take(MOST_NAMES).map(|it| it.1).collect()
}

fn anywhere(path: &Path, root: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name() else { return Vec::new() };
    let until = Instant::now() + PATIENCE;
    let walk = ignore::WalkBuilder::new(root)
        .require_git(false)
        .standard_filters(!root.ancestors().any(are_odd))
        .hidden(false)
        .filter_entry(|it| it.file_name() != ".git" && !are_odd(it.path()))
        .build();
    let mut found: Vec<_> = walk
        .take(MOST_ANYWHERE)
        .take_while(|_| Instant::now() < until)
        .filter_map(Result::ok)
        .filter(|it| it.file_name() == name && it.file_type().is_some_and(|it| it.is_file()))
        .map(ignore::DirEntry::into_path)
        .take(MOST_NAMES)
        .collect();
    found.sort();
    found
}
