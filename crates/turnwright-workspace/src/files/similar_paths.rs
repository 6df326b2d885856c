//! Suggests existing paths for a path that does not exist.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use turnwright_types::look_alike::composed;

use crate::search::has_unsafe_ignore_files;

/// The most suggestions from the same folder, and from elsewhere.
const MAX_SUGGESTIONS: usize = 3;
/// The most entries examined in the folder, and in the whole project.
const MAX_SIBLINGS: usize = 2_000;
const MAX_WALKED: usize = 20_000;
/// How long the project is searched for the name.
const SEARCH_TIME: Duration = Duration::from_secs(1);

/// Returns paths in the same folder with similar names, the most similar first, then files of
/// exactly that name elsewhere below `root`. Blocks.
pub(super) fn similar_paths(path: &Path, root: &Path) -> Vec<PathBuf> {
    let mut found = similar_siblings(path);
    for other in same_name_elsewhere(path, root) {
        if !found.contains(&other) {
            found.push(other);
        }
    }
    found
}

fn similar_siblings(path: &Path) -> Vec<PathBuf> {
    let name = plain_name(path.file_name().unwrap_or_default());
    let Ok(entries) = fs::read_dir(path.parent().unwrap_or(Path::new("/"))) else {
        return Vec::new();
    };
    let mut near: Vec<(f64, PathBuf)> = entries
        .filter_map(Result::ok)
        .take(MAX_SIBLINGS)
        .map(|entry| {
            let other = plain_name(&entry.file_name());
            (strsim::normalized_damerau_levenshtein(&name, &other), entry.path())
        })
        .filter(|(similarity, _)| *similarity > 0.6)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    near.into_iter().take(MAX_SUGGESTIONS).map(|(_, path)| path).collect()
}

/// A name in the form in which names are compared.
fn plain_name(name: &OsStr) -> String {
    composed(&name.to_string_lossy()).to_lowercase()
}

fn same_name_elsewhere(path: &Path, root: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name() else { return Vec::new() };
    let until = Instant::now() + SEARCH_TIME;
    let walk = ignore::WalkBuilder::new(root)
        .require_git(false)
        .standard_filters(!root.ancestors().any(has_unsafe_ignore_files))
        .hidden(false)
        .filter_entry(|entry| entry.file_name() != ".git" && !has_unsafe_ignore_files(entry.path()))
        .build();
    let mut found: Vec<_> = walk
        .take(MAX_WALKED)
        .take_while(|_| Instant::now() < until)
        .filter_map(Result::ok)
        .filter(|entry| {
            entry.file_name() == name && entry.file_type().is_some_and(|kind| kind.is_file())
        })
        .map(ignore::DirEntry::into_path)
        .take(MAX_SUGGESTIONS)
        .collect();
    found.sort();
    found
}
