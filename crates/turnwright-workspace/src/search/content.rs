//! Searches the content of files. The first pass counts the matches of each file, the second reads
//! only the few files of the requested page, so memory stays bounded however many matches there
//! are.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use grep_searcher::{Searcher, Sink, SinkMatch};
use ignore::DirEntry;

use super::file_search::{FileSearcher, MatchCollector, SearchPattern, compile};
use super::walk::{walk_builder, walk_parallel};
use super::{HiddenMatches, MatchLine, SearchDeadline, SearchScope};
use crate::files::Charset;
use turnwright_types::effect::is_secret_path;
use turnwright_types::hash::std_hash;
use turnwright_types::secret::notice_other_name;

/// How long the files of a page may be read again, whatever has ended the search for them.
const PAGE_LIMIT: Duration = Duration::from_secs(5);
/// Matches per page, or files if only files are listed.
const PAGE_SIZE: usize = 100;
const MAX_PAGE_BYTES: usize = 30 * 1024;
/// The most matches that are counted in one file.
const MAX_MATCHES_PER_FILE: usize = 1_000;
/// The most files with matches. Tests have fewer files.
pub const MAX_FILES: usize = if cfg!(test) { 150 } else { 100_000 };
/// The most searched files that are remembered, so that the second search can skip them.
const MAX_REMEMBERED: usize = 500_000;
/// The most files of each thread that are known to be decoded only in part, and the most links.
const MAX_NOTED: usize = 100;
/// The most lines shown around a match.
const MAX_CONTEXT: usize = 20;

/// The pattern of a search, and the lines to show.
#[derive(Clone, Debug, Default)]
pub struct GrepQuery {
    /// A regular expression, or plain text if `literal` is set.
    pub pattern: String,
    /// True if the pattern is plain text.
    pub literal: bool,
    pub ignore_case: bool,
    /// True if a match may span lines and `.` matches line endings.
    pub multiline: bool,
    /// How many lines to show around each match.
    pub context: usize,
    /// True to list only the files that match.
    pub files_only: bool,
    /// How many matches (or files) to skip.
    pub offset: usize,
}

/// A page of matches, and the totals.
#[derive(Clone, Debug, Default)]
pub struct GrepResult {
    /// The files of the page, ordered by path.
    pub files: Vec<FileMatches>,
    /// The number of all matches.
    pub matches: usize,
    /// The number of all files with matches.
    pub files_with_matches: usize,
    /// The number of matches (or files) on this page.
    pub shown: usize,
    /// The offset of the next page, if there is one.
    pub next_offset: Option<usize>,
    pub files_searched: usize,
    /// The number of files that were seen, whether the glob matches them or not.
    pub files_seen: usize,
    /// The number of files that were skipped because they may hold secrets.
    pub secret_files: usize,
    /// The number of files that were skipped because they are not text.
    pub binary_files: usize,
    /// The number of files and folders that could not be read.
    pub unreadable: usize,
    /// The number of files with more matches than are counted.
    pub capped_files: usize,
    /// The syntax error of the pattern, if it was searched for as plain text because of that.
    pub regex_error: Option<String>,
    /// Files that were searched as UTF-8 although not all of their bytes are, the first of them.
    pub garbled: Vec<PathBuf>,
    /// Links, which are not followed, the first of them.
    pub links: Vec<PathBuf>,
    /// True if the search was ended early.
    pub is_incomplete: bool,
    /// Matches in hidden and ignored files, if there are no others.
    pub hidden: HiddenMatches,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMatches {
    /// The absolute path.
    pub path: PathBuf,
    /// Empty if only files were requested.
    pub lines: Vec<MatchLine>,
}

/// Searches the files of a scope.
pub fn grep(
    scope: &SearchScope,
    query: &GrepQuery,
    stop: &SearchDeadline,
) -> Result<GrepResult, String> {
    let pattern = compile(query)?;
    let max_matches = if query.files_only { 1 } else { MAX_MATCHES_PER_FILE };
    let files = AtomicUsize::new(0);
    let search = GrepWalk { scope, pattern: &pattern, max_matches, stop, files };
    let mut counts = search.run(scope.include_hidden, &[]);
    let mut found = GrepResult {
        matches: counts.hits.iter().map(|(_, count)| count).sum(),
        files_with_matches: counts.hits.len(),
        capped_files: counts.hits.iter().filter(|hit| hit.1 == MAX_MATCHES_PER_FILE).count(),
        regex_error: pattern.regex_error.clone(),
        is_incomplete: stop.was_cut_short(),
        ..counts.found
    };
    found.garbled.sort_by(|a, b| compare_paths(a, b));
    found.links.sort_by(|a, b| compare_paths(a, b));
    if counts.hits.is_empty() && !scope.include_hidden && !found.is_incomplete {
        let second_stop = &stop.for_second_search();
        counts.already_searched.sort_unstable();
        let files = AtomicUsize::new(0);
        let second = GrepWalk { max_matches: 1, stop: second_stop, files, ..search }
            .run(true, &counts.already_searched);
        found.hidden =
            HiddenMatches { files: second.hits.len(), is_incomplete: second_stop.was_cut_short() };
    }
    counts.hits.sort_by(|a, b| compare_paths(&a.0, &b.0));
    if query.files_only {
        fill_file_page(&mut found, counts.hits, query.offset);
    } else {
        fill_match_page(&mut found, counts.hits, query, &pattern, &stop.with_limit(PAGE_LIMIT));
    }
    Ok(found)
}

/// Compares paths by their bytes, which is fast and stable.
pub(super) fn compare_paths(a: &Path, b: &Path) -> std::cmp::Ordering {
    a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes())
}

/// One pass through all files.
struct GrepWalk<'a> {
    scope: &'a SearchScope,
    pattern: &'a SearchPattern,
    /// The most matches that are counted in a file.
    max_matches: usize,
    stop: &'a SearchDeadline,
    files: AtomicUsize,
}

/// The counts of one thread.
#[derive(Default)]
struct GrepTally {
    /// The files with matches, and how many each has.
    hits: Vec<(PathBuf, usize)>,
    already_searched: Vec<u64>,
    /// Has the numbers of files, and the garbled ones and links.
    found: GrepResult,
}

impl GrepWalk<'_> {
    fn run(&self, include_hidden: bool, already_searched: &[u64]) -> GrepTally {
        let (workers, errors) = walk_parallel(
            walk_builder(self.scope, include_hidden),
            self.stop,
            || (FileSearcher::new(self.pattern, None, self.stop), GrepTally::default()),
            |(searcher, counts), entry| self.visit(searcher, counts, entry, already_searched),
        );
        let mut sum = GrepTally::default();
        sum.found.unreadable = errors;
        for (_, GrepTally { hits, already_searched, found }) in workers {
            sum.hits.extend(hits);
            sum.already_searched.extend(already_searched);
            sum.found.files_seen += found.files_seen;
            sum.found.files_searched += found.files_searched;
            sum.found.binary_files += found.binary_files;
            sum.found.secret_files += found.secret_files;
            sum.found.unreadable += found.unreadable;
            sum.found.garbled.extend(found.garbled);
            sum.found.links.extend(found.links);
        }
        sum
    }

    fn visit(
        &self,
        searcher: &mut FileSearcher<'_>,
        counts: &mut GrepTally,
        entry: DirEntry,
        already_searched: &[u64],
    ) {
        if entry.path_is_symlink() && counts.found.links.len() < MAX_NOTED {
            return counts.found.links.push(entry.into_path());
        }
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            return;
        }
        let path = entry.path();
        counts.found.files_seen += 1;
        if !self.scope.includes(path) {
            return;
        }
        notice_other_name(path);
        // A file that was named explicitly has been permitted.
        if entry.depth() > 0 && is_secret_path(path) {
            counts.found.secret_files += 1;
            return;
        }
        let hash = std_hash(path.as_os_str());
        if already_searched.binary_search(&hash).is_ok() {
            return;
        }
        let mut count = MatchCounter { count: 0, max_matches: self.max_matches };
        let Ok(charset) = searcher.search(path, &mut count) else {
            counts.found.unreadable += 1;
            return;
        };
        match charset {
            Charset::Binary => counts.found.binary_files += 1,
            _ => counts.found.files_searched += 1,
        }
        if charset == Charset::BrokenUtf8 && counts.found.garbled.len() < MAX_NOTED {
            counts.found.garbled.push(path.to_path_buf());
        }
        if counts.already_searched.len() < MAX_REMEMBERED {
            counts.already_searched.push(hash);
        }
        if count.count > 0 {
            if self.files.fetch_add(1, Ordering::Relaxed) >= MAX_FILES {
                return self.stop.stop_early();
            }
            counts.hits.push((entry.into_path(), count.count));
        }
    }
}

struct MatchCounter {
    count: usize,
    max_matches: usize,
}

impl Sink for MatchCounter {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, _: &SinkMatch<'_>) -> io::Result<bool> {
        self.count += 1;
        Ok(self.count < self.max_matches)
    }
}

fn fill_file_page(found: &mut GrepResult, hits: Vec<(PathBuf, usize)>, offset: usize) {
    let page = hits.into_iter().skip(offset).take(PAGE_SIZE);
    found.files = page.map(|(path, _)| FileMatches { path, lines: Vec::new() }).collect();
    found.shown = found.files.len();
    found.next_offset = Some(offset + found.shown)
        .filter(|next| found.shown > 0 && *next < found.files_with_matches);
}

fn fill_match_page(
    found: &mut GrepResult,
    hits: Vec<(PathBuf, usize)>,
    query: &GrepQuery,
    pattern: &SearchPattern,
    stop: &SearchDeadline,
) {
    let context = query.context.min(MAX_CONTEXT);
    let mut searcher = FileSearcher::new(pattern, Some(context), stop);
    let mut room = MAX_PAGE_BYTES;
    let mut skipped = 0;
    for (path, count) in hits {
        let skip = query.offset.saturating_sub(skipped);
        if skip >= count {
            skipped += count;
            continue;
        }
        if found.shown >= PAGE_SIZE || room == 0 || stop.is_expired() {
            found.next_offset = Some(skipped.max(query.offset));
            return;
        }
        let mut page = MatchCollector {
            matcher: Some(&pattern.matcher),
            skip,
            max_matches: (PAGE_SIZE - found.shown).min(count - skip),
            room,
            context,
            overhead: path.as_os_str().len() / 2 + 10,
            ..MatchCollector::default()
        };
        if let Err(error) = searcher.search(&path, &mut page) {
            tracing::debug!(%error, "a file with matches could not be read again");
        }
        found.shown += page.shown;
        room = room.saturating_sub(page.used);
        let is_truncated = page.is_full || stop.is_expired();
        found.files.push(FileMatches { path, lines: page.lines });
        if is_truncated && skip + page.shown < count {
            found.next_offset = Some(skipped + skip + page.shown);
            return;
        }
        skipped += count;
    }
}
