//! Finding files by their names.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use ignore::DirEntry;

use super::content::in_order;
use super::walk::{gather, walker};
use super::{Elsewhere, Scope, Stop};

/// Files of a page.
const PAGE: usize = 200;
/// Files that are found.
const MOST_FILES: usize = 200_000;
/// Names that are suggested.
const MOST_NEAR: usize = 3;
/// Longer than any file's name.
const LONGEST_NAME: usize = 255;
/// From here on, a name resembles another.
const NEAR: f64 = 0.6;

/// What comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By path.
    #[default]
    Path,
    /// What was changed last.
    Recent,
}

/// How to look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// What comes first.
    pub order: Order,
    /// Files that are passed over.
    pub offset: usize,
}

/// Which files there are: a page of them, and how many.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Absolute, in order.
    pub files: Vec<PathBuf>,
    /// All that fit.
    pub count: usize,
    /// Where the next page begins, if there is one.
    pub next: Option<usize>,
    /// Files that were looked at.
    pub seen: usize,
    /// Folders that could not be read.
    pub unreadable: usize,
    /// Whether it was ended early.
    pub is_part: bool,
    /// Hidden and ignored files that fit, when no other does.
    pub elsewhere: Elsewhere,
    /// Files and folders with a name like the one that was asked for.
    pub near: Vec<PathBuf>,
}

/// Finds the files that the scope's glob fits.
pub fn find(scope: &Scope, wanted: Wanted, stop: &Stop) -> Names {
    let search = Search { scope, wanted, stop, near_to: None, files: AtomicUsize::new(0) };
    let mut sum = search.all(scope.hidden);
    let mut names = Names {
        count: sum.hits.len(),
        seen: sum.seen,
        unreadable: sum.unreadable,
        is_part: stop.has_cut(),
        ..Names::default()
    };
    if sum.hits.is_empty() && !names.is_part {
        let soon = &stop.soon();
        let name = scope.glob.as_ref().and_then(|it| it.name());
        let near_to = name.filter(|it| it.len() <= LONGEST_NAME).map(str::to_lowercase);
        let files = AtomicUsize::new(0);
        let second = Search { stop: soon, near_to, files, ..search }.all(true);
        names.elsewhere = Elsewhere { files: second.hits.len(), is_part: soon.has_cut() };
        names.near = second.near.into_iter().map(|it| it.1).collect();
    }
    sum.hits.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| in_order(&a.1, &b.1)));
    names.files = sum.hits.into_iter().skip(wanted.offset).take(PAGE).map(|it| it.1).collect();
    let end = wanted.offset + names.files.len();
    names.next = Some(end).filter(|it| !names.files.is_empty() && *it < names.count);
    names
}

struct Search<'a> {
    scope: &'a Scope,
    wanted: Wanted,
    stop: &'a Stop,
    /// A name, of which those that resemble it are kept too.
    near_to: Option<String>,
    files: AtomicUsize,
}

#[derive(Default)]
struct Tally {
    /// With their time if that is to decide.
    hits: Vec<(Option<SystemTime>, PathBuf)>,
    /// The best first.
    near: Vec<(f64, PathBuf)>,
    seen: usize,
    unreadable: usize,
}

impl Search<'_> {
    fn all(&self, everything: bool) -> Tally {
        let (workers, unreadable) =
            gather(&walker(self.scope, everything), self.stop, Tally::default, |tally, entry| {
                self.visit(tally, entry);
            });
        let mut sum = Tally { unreadable, ..Tally::default() };
        for tally in workers {
            sum.seen += tally.seen;
            sum.hits.extend(tally.hits);
            sum.near.extend(tally.near);
        }
        best(&mut sum.near);
        sum
    }

    fn visit(&self, tally: &mut Tally, entry: DirEntry) {
        let Some(sort) = entry.file_type() else { return };
        if entry.depth() > 0 {
            self.compare(tally, entry.path());
        }
        // The name of a link counts; what it leads to does not.
        if !sort.is_file() && !sort.is_symlink() {
            return;
        }
        tally.seen += 1;
        if !self.scope.wants(entry.path()) {
            return;
        }
        if self.files.fetch_add(1, Ordering::Relaxed) >= MOST_FILES {
            return self.stop.end();
        }
        let is_by_time = self.wanted.order == Order::Recent;
        let time =
            if is_by_time { entry.metadata().ok().and_then(|it| it.modified().ok()) } else { None };
        tally.hits.push((time, entry.into_path()));
    }

    fn compare(&self, tally: &mut Tally, path: &Path) {
        let Some(name) = &self.near_to else { return };
        let other = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let likeness = strsim::normalized_damerau_levenshtein(name, &other);
        if likeness > NEAR {
            tally.near.push((likeness, path.to_path_buf()));
            best(&mut tally.near);
        }
    }
}

fn best(near: &mut Vec<(f64, PathBuf)>) {
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| in_order(&a.1, &b.1)));
    near.truncate(MOST_NEAR);
}
