//! Searches for files and in files below one folder, by the project's ignore rules and in a stable
//! order. Takes absolute paths and plain options and does not know the tools. All of it blocks and
//! belongs on a blocking thread.

mod content;
mod glob;
mod file_names;
mod file_search;
mod tree;
mod walk;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use content::{FileMatches, GrepQuery, GrepResult, MAX_FILES as MAX_GREP_FILES, grep};
pub use file_names::{FileList, FindOptions, MAX_FILES as MAX_FOUND_FILES, all_files, find};
pub use file_search::MatchLine;
pub use glob::Glob;
pub use tree::{FolderTree, TreeEntry, TreeEntryKind, list_tree};
pub(crate) use walk::{FolderRules, has_unsafe_ignore_files};

/// How long a search may take before it ends with what it has found.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);

/// How long the second search, in hidden and ignored files, may take. A busy machine needs some of it for the
/// smallest project.
const SECOND_SEARCH_LIMIT: Duration = Duration::from_secs(1);

/// Where a search looks, and which files count.
#[derive(Clone)]
pub struct SearchScope {
    /// The folder or file to search: absolute, without links.
    pub root: PathBuf,
    /// A folder that globs may also be relative to: absolute, without links.
    pub glob_base: PathBuf,
    /// Files and folders that are never searched.
    pub excluded: ExcludedPaths,
    /// True to search hidden and ignored files, too.
    pub include_hidden: bool,
    /// Which files are searched; all if `None`.
    pub glob: Option<Glob>,
}

/// Builds a walk to the files and folders below one that the project's ignore rules do not exclude, hidden ones among
/// them, but nothing below `.git`.
pub(crate) fn unignored(root: &Path) -> ignore::WalkBuilder {
    let mut walk = walk::ignore_rules(root, false);
    walk.filter_entry(|entry| {
        entry.file_name() != ".git" && !has_unsafe_ignore_files(entry.path())
    });
    walk
}

/// Visits the entries of such a walk. Returns false if there are more than `limit`.
pub fn visit_unignored(root: &Path, limit: usize, mut visit: impl FnMut(&Path)) -> bool {
    // Looking for the user's own rules would compile a regular expression in each new session.
    let mut entries = unignored(root).git_global(false).build().flatten();
    entries.by_ref().take(limit).for_each(|entry| visit(entry.path()));
    entries.next().is_none()
}

impl SearchScope {
    fn includes(&self, path: &Path) -> bool {
        let Some(glob) = &self.glob else { return true };
        // Most globs match only names, and taking paths apart is what costs time.
        if glob.matches_only_names() {
            return glob.matches_name(path);
        }
        path == self.root && glob.matches_name(path)
            || matches_below(glob, &self.root, path)
            || self.root != self.glob_base && matches_below(glob, &self.glob_base, path)
    }
}

/// Returns true if a path is in a folder, and the glob matches it relative to that.
fn matches_below(glob: &Glob, folder: &Path, path: &Path) -> bool {
    path.strip_prefix(folder).is_ok_and(|relative| glob.matches(relative))
}

/// Returns true for the files and folders that a search skips, whatever else applies. It is called for every entry, by
/// several threads.
pub type ExcludedPaths = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Ends a search early: when it is cancelled, when its time is over, or when enough was found.
#[derive(Debug)]
pub struct SearchDeadline {
    cancelled: Arc<AtomicBool>,
    deadline: Instant,
    was_cut_short: AtomicBool,
}

impl SearchDeadline {
    /// Ends the search when the flag is set or `limit` has passed.
    pub fn new(cancelled: Arc<AtomicBool>, limit: Duration) -> SearchDeadline {
        SearchDeadline {
            cancelled,
            deadline: Instant::now() + limit,
            was_cut_short: AtomicBool::new(false),
        }
    }

    /// The same flag, with the time of a search for what the first one has not found.
    #[must_use]
    pub fn for_second_search(&self) -> SearchDeadline {
        self.with_limit(SECOND_SEARCH_LIMIT)
    }

    /// The same flag with another time limit.
    fn with_limit(&self, limit: Duration) -> SearchDeadline {
        SearchDeadline::new(Arc::clone(&self.cancelled), limit)
    }

    pub(crate) fn is_expired(&self) -> bool {
        let is_expired = self.was_cut_short.load(Ordering::Relaxed)
            || self.cancelled.load(Ordering::Relaxed)
            || Instant::now() >= self.deadline;
        if is_expired {
            self.was_cut_short.store(true, Ordering::Relaxed);
        }
        is_expired
    }

    /// Ends the search because enough was found.
    pub(crate) fn stop_early(&self) {
        self.was_cut_short.store(true, Ordering::Relaxed);
    }

    /// Returns true if the search was ended early.
    pub(crate) fn was_cut_short(&self) -> bool {
        self.was_cut_short.load(Ordering::Relaxed)
    }
}

/// The matches in hidden and ignored files of a search that found none elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HiddenMatches {
    pub files: usize,
    /// True if not all of those files could be searched.
    pub is_incomplete: bool,
}
