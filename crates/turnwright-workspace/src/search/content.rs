//! Searching in files. Once through all of them for how many matches each has, then through the
//! few that a page is made of: whatever there is to find, little of it is held.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use grep_searcher::{Searcher, Sink, SinkFinish, SinkMatch};
use ignore::DirEntry;

use super::lines::Collector;
use super::pattern::{Pattern, compile};
use super::walk::{gather, walker};
use super::{Elsewhere, Line, Scope, Stop};
use turnwright_types::effect::is_secret;
use crate::pinned;

/// Matches of a page, or files of one.
const PAGE: usize = 100;
/// Bytes of a page.
const MOST_BYTES: usize = 30 * 1024;
/// Matches of one file that are counted.
const MOST_IN_FILE: usize = 1_000;
/// Files with matches.
const MOST_FILES: usize = 100_000;
/// Files of which is known that they were searched.
const MOST_KNOWN: usize = 500_000;
/// Bytes among which a NUL says that the whole file is binary.
const PROBE: u64 = 8 * 1024;
/// Lines around a match.
const MOST_CONTEXT: usize = 20;

/// What to look for.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// A regular expression.
    pub pattern: String,
    /// The pattern means what it says.
    pub literal: bool,
    /// Upper and lower case are the same.
    pub ignore_case: bool,
    /// A match may go over lines, and `.` fits their ends.
    pub multiline: bool,
    /// Lines to show around each match.
    pub context: usize,
    /// Only which files have matches.
    pub files_only: bool,
    /// Matches (or files) that are passed over.
    pub offset: usize,
}

/// What was found: a page of it, and how much there is.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// In the order of their paths.
    pub files: Vec<FileLines>,
    /// All matches.
    pub matches: usize,
    /// The files that have them.
    pub in_files: usize,
    /// Matches (or files) on this page.
    pub shown: usize,
    /// Where the next page begins, if there is one.
    pub next: Option<usize>,
    /// Files that were looked through.
    pub searched: usize,
    /// Files that there are, whether the glob fits or not.
    pub seen: usize,
    /// Files that were left out because they may hold secrets.
    pub secrets: usize,
    /// Files and folders that could not be read.
    pub unreadable: usize,
    /// Files with more matches than are counted.
    pub capped: usize,
    /// Why the pattern was not taken for a regular expression.
    pub as_literal: Option<String>,
    /// Whether it was ended early.
    pub is_part: bool,
    /// What hidden and ignored files have, when nothing else has anything.
    pub elsewhere: Elsewhere,
}

/// What one file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLines {
    /// Absolute.
    pub path: PathBuf,
    /// None if only files were asked for.
    pub lines: Vec<Line>,
}

/// Searches.
///
/// # Errors
/// What is wrong with the pattern.
pub fn grep(scope: &Scope, query: &Query, stop: &Stop) -> Result<Found, String> {
    let pattern = compile(query)?;
    let most = if query.files_only { 1 } else { MOST_IN_FILE };
    let search = Search { scope, pattern: &pattern, most, stop, files: AtomicUsize::new(0) };
    let mut tally = search.all(scope.hidden, &[]);
    let mut found = Found {
        matches: tally.hits.iter().map(|it| it.count).sum(),
        in_files: tally.hits.len(),
        searched: tally.searched,
        seen: tally.seen,
        secrets: tally.secrets,
        unreadable: tally.unreadable,
        capped: tally.hits.iter().filter(|it| it.count == MOST_IN_FILE).count(),
        as_literal: pattern.as_literal.clone(),
        is_part: stop.has_cut(),
        ..Found::default()
    };
    if tally.hits.is_empty() && !scope.hidden && !found.is_part {
        let soon = &stop.soon();
        tally.known.sort_unstable();
        let files = AtomicUsize::new(0);
        let second = Search { most: 1, stop: soon, files, ..search }.all(true, &tally.known);
        found.elsewhere = Elsewhere { files: second.hits.len(), is_part: soon.has_cut() };
    }
    tally.hits.sort_unstable_by(|a, b| in_order(&a.path, &b.path));
    if query.files_only {
        take_files(&mut found, tally.hits, query.offset);
    } else {
        take_lines(&mut found, tally.hits, query, &pattern, stop);
        found.is_part = stop.has_cut();
    }
    Ok(found)
}

/// The order of paths is that of their bytes: quickly compared, and always the same.
pub(super) fn in_order(a: &Path, b: &Path) -> std::cmp::Ordering {
    a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes())
}

/// A file with matches.
#[derive(Debug)]
struct Hit {
    path: PathBuf,
    count: usize,
}

/// One way through all files.
struct Search<'a> {
    scope: &'a Scope,
    pattern: &'a Pattern,
    /// Matches of a file that count.
    most: usize,
    stop: &'a Stop,
    /// Files with matches so far.
    files: AtomicUsize,
}

/// What a thread has seen.
#[derive(Default)]
struct Tally {
    hits: Vec<Hit>,
    seen: usize,
    searched: usize,
    secrets: usize,
    unreadable: usize,
    known: Vec<u64>,
}

struct Worker {
    pattern: Pattern,
    searcher: Searcher,
    tally: Tally,
}

impl Search<'_> {
    fn all(&self, everything: bool, known: &[u64]) -> Tally {
        let start = || Worker {
            // Each thread has its own: what an expression learns while it runs is not shared.
            pattern: self.pattern.clone(),
            searcher: self.pattern.searcher(None),
            tally: Tally::default(),
        };
        let (workers, errors) =
            gather(&walker(self.scope, everything), self.stop, start, |worker, entry| {
                self.visit(worker, entry, known);
            });
        let mut sum = Tally { unreadable: errors, ..Tally::default() };
        for Worker { tally, .. } in workers {
            sum.hits.extend(tally.hits);
            sum.seen += tally.seen;
            sum.searched += tally.searched;
            sum.secrets += tally.secrets;
            sum.unreadable += tally.unreadable;
            sum.known.extend(tally.known);
        }
        sum
    }

    fn visit(&self, worker: &mut Worker, entry: DirEntry, known: &[u64]) {
        if !entry.file_type().is_some_and(|it| it.is_file()) {
            return;
        }
        let Worker { pattern, searcher, tally } = worker;
        let path = entry.path();
        tally.seen += 1;
        if !self.scope.wants(path) {
            return;
        }
        // A file that is named itself has been judged.
        if entry.depth() > 0 && is_secret(path) {
            tally.secrets += 1;
            return;
        }
        let hash = hash(path);
        if known.binary_search(&hash).is_ok() {
            return;
        }
        let mut count = Count { count: 0, most: self.most, is_binary: false };
        let searched = pinned::file(path).and_then(|file| {
            let text = Watched { file, stop: self.stop };
            searcher.search_reader(&pattern.matcher, text, &mut count)
        });
        if searched.is_err() {
            tally.unreadable += 1;
            return;
        }
        tally.searched += 1;
        if tally.known.len() < MOST_KNOWN {
            tally.known.push(hash);
        }
        if count.count > 0 && !count.is_binary {
            if self.files.fetch_add(1, Ordering::Relaxed) >= MOST_FILES {
                return self.stop.end();
            }
            tally.hits.push(Hit { path: entry.into_path(), count: count.count });
        }
    }
}

fn hash(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.as_os_str().hash(&mut hasher);
    hasher.finish()
}

/// A file that ends when nobody waits for it any more.
struct Watched<'a> {
    file: File,
    stop: &'a Stop,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_over() { Ok(0) } else { self.file.read(buffer) }
    }
}

struct Count {
    count: usize,
    most: usize,
    is_binary: bool,
}

impl Sink for Count {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, _: &SinkMatch<'_>) -> io::Result<bool> {
        self.count += 1;
        Ok(self.count < self.most)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        // A log with a NUL somewhere is still a log up to there.
        self.is_binary = end.binary_byte_offset().is_some_and(|it| it < PROBE);
        Ok(())
    }
}

fn take_files(found: &mut Found, hits: Vec<Hit>, offset: usize) {
    let page = hits.into_iter().skip(offset).take(PAGE);
    found.files = page.map(|it| FileLines { path: it.path, lines: Vec::new() }).collect();
    found.shown = found.files.len();
    found.next = Some(offset + found.shown).filter(|it| found.shown > 0 && *it < found.in_files);
}

fn take_lines(found: &mut Found, hits: Vec<Hit>, query: &Query, pattern: &Pattern, stop: &Stop) {
    let context = query.context.min(MOST_CONTEXT);
    let mut searcher = pattern.searcher(Some(context));
    let mut room = MOST_BYTES;
    let mut passed = 0;
    for Hit { path, count } in hits {
        let skip = query.offset.saturating_sub(passed);
        if skip >= count {
            passed += count;
            continue;
        }
        if found.shown >= PAGE || room == 0 || stop.is_over() {
            found.next = Some(passed.max(query.offset));
            return;
        }
        let mut page = Collector::new(&pattern.matcher);
        page.skip = skip;
        page.most = (PAGE - found.shown).min(count - skip);
        page.room = room;
        page.context = context;
        page.overhead = path.as_os_str().len() / 2 + 10;
        let read = pinned::file(&path).and_then(|file| {
            searcher.search_reader(&pattern.matcher, Watched { file, stop }, &mut page)
        });
        if let Err(error) = read {
            tracing::debug!(%error, "a file with matches could not be read again");
        }
        found.shown += page.shown;
        room = room.saturating_sub(page.used);
        let is_cut = page.is_full && skip + page.shown < count;
        found.files.push(FileLines { path, lines: page.lines });
        if is_cut {
            found.next = Some(passed + skip + page.shown);
            return;
        }
        passed += count;
    }
}
