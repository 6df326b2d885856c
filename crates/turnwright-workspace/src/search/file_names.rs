//! Finds files by their names.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use ignore::DirEntry;
use turnwright_types::look_alike::composed;

use super::content::compare_paths;
use super::walk::{walk_builder, walk_parallel};
use super::{HiddenMatches, SearchDeadline, SearchScope};

const PAGE_SIZE: usize = 200;
/// The most files that are collected.
pub const MAX_FILES: usize = 200_000;
/// The most similar names that are suggested.
const MAX_SUGGESTIONS: usize = 3;
/// The longest file name.
const MAX_NAME_BYTES: usize = 255;
/// The similarity above which a name is suggested.
const MIN_SIMILARITY: f64 = 0.6;

/// How to order the results, and where the page begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct FindOptions {
    /// True for the most recently modified files first; otherwise they are ordered by path.
    pub recent_first: bool,
    /// How many files to skip.
    pub offset: usize,
}

/// A page of files, and the totals.
#[derive(Clone, Debug, Default)]
pub struct FileList {
    /// The absolute paths of the page, in order.
    pub files: Vec<PathBuf>,
    /// The number of all matching files.
    pub total: usize,
    /// The offset of the next page, if there is one.
    pub next_offset: Option<usize>,
    /// The number of files that were seen.
    pub files_seen: usize,
    /// The number of folders that could not be read.
    pub unreadable: usize,
    /// True if the search was ended early.
    pub is_incomplete: bool,
    /// Hidden and ignored files that match, if no other does.
    pub hidden: HiddenMatches,
    /// Files and folders with a name similar to the requested one.
    pub similar: Vec<PathBuf>,
}

/// Finds the files that match the glob of the scope.
pub fn find(scope: &SearchScope, options: FindOptions, stop: &SearchDeadline) -> FileList {
    let search = FindWalk { scope, options, stop, similar_to: None, files: AtomicUsize::new(0) };
    let mut sum = search.run(scope.include_hidden);
    let mut names = FileList {
        total: sum.hits.len(),
        files_seen: sum.seen,
        unreadable: sum.unreadable,
        is_incomplete: stop.was_cut_short(),
        ..FileList::default()
    };
    if sum.hits.is_empty() && !names.is_incomplete {
        let second_stop = &stop.for_second_search();
        let name = scope.glob.as_ref().and_then(|glob| glob.literal_name());
        let similar_to = name
            .filter(|name| name.len() <= MAX_NAME_BYTES)
            .map(|name| composed(name).to_lowercase());
        let files = AtomicUsize::new(0);
        let second = FindWalk { stop: second_stop, similar_to, files, ..search }.run(true);
        names.hidden =
            HiddenMatches { files: second.hits.len(), is_incomplete: second_stop.was_cut_short() };
        names.similar = second.similar.into_iter().map(|similar| similar.1).collect();
    }
    sum.hits.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| compare_paths(&a.1, &b.1)));
    names.files =
        sum.hits.into_iter().skip(options.offset).take(PAGE_SIZE).map(|hit| hit.1).collect();
    let end = options.offset + names.files.len();
    names.next_offset = Some(end).filter(|next| !names.files.is_empty() && *next < names.total);
    names
}

/// The files of a scope, whatever its glob says, in order. Returns none if there is no time for all of them.
pub fn all_files(scope: &SearchScope, stop: &SearchDeadline) -> Vec<PathBuf> {
    let stop = &stop.for_second_search();
    let all = &SearchScope { glob: None, ..scope.clone() };
    let options = FindOptions::default();
    let files = AtomicUsize::new(0);
    let search = FindWalk { scope: all, options, stop, similar_to: None, files };
    let hits = search.run(scope.include_hidden).hits;
    if stop.was_cut_short() {
        return Vec::new();
    }
    let mut paths: Vec<_> = hits.into_iter().map(|(_, path)| path).collect();
    paths.sort_unstable_by(|a, b| compare_paths(a, b));
    paths
}

struct FindWalk<'a> {
    scope: &'a SearchScope,
    options: FindOptions,
    stop: &'a SearchDeadline,
    /// A lower-case name; paths with a similar name are collected, too.
    similar_to: Option<String>,
    files: AtomicUsize,
}

#[derive(Default)]
struct FindTally {
    /// The matching files, with their modification time if the order needs it.
    hits: Vec<(Option<SystemTime>, PathBuf)>,
    /// The most similar paths first.
    similar: Vec<(f64, PathBuf)>,
    seen: usize,
    unreadable: usize,
}

impl FindWalk<'_> {
    fn run(&self, include_hidden: bool) -> FindTally {
        let (workers, unreadable) = walk_parallel(
            walk_builder(self.scope, include_hidden),
            self.stop,
            FindTally::default,
            |counts, entry| self.visit(counts, entry),
        );
        let mut sum = FindTally { unreadable, ..FindTally::default() };
        for counts in workers {
            sum.seen += counts.seen;
            sum.hits.extend(counts.hits);
            sum.similar.extend(counts.similar);
        }
        keep_most_similar(&mut sum.similar);
        sum
    }

    fn visit(&self, counts: &mut FindTally, entry: DirEntry) {
        let Some(file_type) = entry.file_type() else { return };
        if entry.depth() > 0 {
            self.compare(counts, entry.path());
        }
        // A link is matched by its own name and never followed.
        if !file_type.is_file() && !file_type.is_symlink() {
            return;
        }
        counts.seen += 1;
        if !self.scope.includes(entry.path()) {
            return;
        }
        if self.files.fetch_add(1, Ordering::Relaxed) >= MAX_FILES {
            return self.stop.stop_early();
        }
        let metadata = self.options.recent_first.then(|| entry.metadata().ok());
        let time = metadata.flatten().and_then(|metadata| metadata.modified().ok());
        counts.hits.push((time, entry.into_path()));
    }

    fn compare(&self, counts: &mut FindTally, path: &Path) {
        let Some(name) = &self.similar_to else { return };
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let other = composed(&file_name).to_lowercase();
        let similarity = strsim::normalized_damerau_levenshtein(name, &other);
        if similarity > MIN_SIMILARITY {
            counts.similar.push((similarity, path.to_path_buf()));
            keep_most_similar(&mut counts.similar);
        }
    }
}

fn keep_most_similar(similar: &mut Vec<(f64, PathBuf)>) {
    similar.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| compare_paths(&a.1, &b.1)));
    similar.truncate(MAX_SUGGESTIONS);
}
