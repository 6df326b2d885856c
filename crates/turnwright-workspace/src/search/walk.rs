//! The way through a folder: which ignore rules count, and several threads that go it.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ignore::{DirEntry, WalkBuilder, WalkState};

use super::{Scope, Stop, are_odd};

/// More threads only wait for the disk.
const MOST_THREADS: usize = 8;

/// A walk by the project's rules, or past them all. Links are never followed, and `.git` is
/// never looked into.
pub(super) fn walker(scope: &Scope, everything: bool) -> WalkBuilder {
    let mut walker = rules(&scope.root, everything);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    walker.threads(threads).hidden(!everything);
    let except = scope.except.clone();
    walker.filter_entry(move |it| {
        let is_folder = it.file_type().is_some_and(|it| it.is_dir());
        it.file_name() != OsStr::new(".git")
            && !except.holds(it.path())
            && (everything || !is_folder || !are_odd(it.path()))
    });
    walker
}

/// The rules that count in a folder; none if some of them must not be opened.
pub(super) fn rules(root: &Path, everything: bool) -> WalkBuilder {
    let everything = everything || root.ancestors().any(are_odd);
    let mut rules = bare(root, everything);
    rules.parents(!everything && do_parents_count(root));
    rules
}

fn bare(root: &Path, everything: bool) -> WalkBuilder {
    let mut rules = WalkBuilder::new(root);
    rules.standard_filters(!everything).hidden(false).parents(false).follow_links(false);
    // A folder that is no repository yet has a `.gitignore` for a reason too.
    rules.require_git(false).current_dir(root);
    rules
}

/// Rules from above the folder count in a repository only: the `.gitignore` of a home folder may
/// say `*`. And they do not count for a folder that they ignore: who names it means it.
fn do_parents_count(root: &Path) -> bool {
    let Some(top) = root.ancestors().find(|it| it.join(".git").exists()) else { return false };
    let Ok(below) = root.strip_prefix(top) else { return false };
    if below.as_os_str().is_empty() {
        return true;
    }
    let mut matchers = bare(top, false).build_matchers();
    !matchers.iter_mut().any(|it| it.matched(below, true).is_ignore())
}

/// Goes through a folder with several threads. Each has a worker; all of them come back, and with
/// them the number of folders that could not be read.
pub(super) fn gather<T: Send>(
    walker: &WalkBuilder,
    stop: &Stop,
    start: impl Fn() -> T,
    visit: impl Fn(&mut T, DirEntry) + Sync,
) -> (Vec<T>, usize) {
    let done = Mutex::new(Vec::new());
    let errors = AtomicUsize::new(0);
    walker.build_parallel().run(|| {
        let mut hand = Hand { worker: Some(start()), back: &done };
        let (visit, errors) = (&visit, &errors);
        Box::new(move |entry| {
            if stop.is_over() {
                return WalkState::Quit;
            }
            match (entry, &mut hand.worker) {
                (Ok(entry), Some(worker)) => visit(worker, entry),
                _ => {
                    errors.fetch_add(1, Ordering::Relaxed);
                }
            }
            WalkState::Continue
        })
    });
    (done.into_inner().unwrap_or_else(PoisonError::into_inner), errors.into_inner())
}

/// Goes through all that the rules do not name, hidden files included if the scope says so, and
/// has each entry looked at. What is returned was found by several threads.
pub fn each<T: Send>(
    scope: &Scope,
    stop: &Stop,
    visit: &(impl Fn(&mut Vec<T>, &Path, &Metadata) + Sync),
) -> Vec<Vec<T>> {
    let mut walker = walker(scope, false);
    walker.hidden(!scope.hidden);
    let look = |found: &mut Vec<T>, entry: DirEntry| {
        if entry.depth() > 0
            && let Ok(metadata) = entry.metadata()
        {
            visit(found, entry.path(), &metadata);
        }
    };
    gather(&walker, stop, Vec::new, look).0
}

/// Gives its worker back when its thread is done.
struct Hand<'a, T> {
    worker: Option<T>,
    back: &'a Mutex<Vec<T>>,
}

impl<T> Drop for Hand<'_, T> {
    fn drop(&mut self) {
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        back.extend(self.worker.take());
    }
}
