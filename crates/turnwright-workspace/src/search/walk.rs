//! Walks a folder with several threads, by the ignore rules that apply to it.

use parking_lot::Mutex;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ignore::{DirEntry, WalkBuilder, WalkState};

use super::{SearchDeadline, SearchScope, has_unsafe_ignore_files};
use crate::files::replacement::is_temporary_name;

/// More threads would only wait for the disk.
const MAX_THREADS: usize = 8;

/// Builds a walk by the project's ignore rules, or with `include_hidden` one of all files. Links
/// are never followed, and `.git` is never entered.
pub(super) fn walk_builder(scope: &SearchScope, include_hidden: bool) -> WalkBuilder {
    let mut walk_builder = ignore_rules(&scope.root, include_hidden);
    walk_builder.hidden(!include_hidden);
    let excluded = scope.excluded.clone();
    walk_builder.filter_entry(move |entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        entry.file_name() != OsStr::new(".git")
            && !is_temporary_name(entry.file_name())
            && !excluded.contains(entry.path())
            && (include_hidden || !is_folder || !has_unsafe_ignore_files(entry.path()))
    });
    walk_builder
}

/// Builds a walk with the ignore rules that apply to a folder; without rules if an ignore file
/// above it must not be opened.
pub(super) fn ignore_rules(root: &Path, include_hidden: bool) -> WalkBuilder {
    let include_hidden = include_hidden || root.ancestors().any(has_unsafe_ignore_files);
    let mut walk = base_walk(root, include_hidden);
    walk.parents(!include_hidden && parent_rules_apply(root));
    walk
}

/// The ignore rules that apply below a folder, hidden files not among those that they ignore. Paths are
/// relative to the folder; the rules of each folder are read when the first path in it is matched.
#[cfg(test)]
pub(crate) fn ignore_matcher(root: &Path) -> ignore::IncrementalIgnore {
    let walk = ignore_rules(root, false);
    walk.build_matchers().swap_remove(0)
}

fn base_walk(root: &Path, include_hidden: bool) -> WalkBuilder {
    let mut walk = WalkBuilder::new(root);
    walk.standard_filters(!include_hidden).hidden(false).parents(false).follow_links(false);
    // A `.gitignore` counts without a repository, too.
    walk.require_git(false).current_dir(root);
    walk
}

/// Returns true if the ignore rules of parent folders apply. They do only in a repository, because the
/// `.gitignore` of a home folder may say `*`; and not if they ignore the folder itself, because it
/// was named explicitly.
pub(super) fn parent_rules_apply(root: &Path) -> bool {
    let Some(top) = root.ancestors().find(|folder| folder.join(".git").exists()) else {
        return false;
    };
    let Ok(below) = root.strip_prefix(top) else { return false };
    if below.as_os_str().is_empty() {
        return true;
    }
    let mut matchers = base_walk(top, false).build_matchers();
    !matchers.iter_mut().any(|matcher| matcher.matched(below, true).is_ignore())
}

/// How many threads the system lets this process start now.
fn startable_threads() -> usize {
    let most = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let _closed = gate.lock();
        let started = (0..most).take_while(|_| {
            thread::Builder::new().spawn_scoped(scope, || drop(gate.lock())).is_ok()
        });
        started.count()
    })
}

/// Walks a folder with several threads, or with this one if the system starts no other. `start`
/// creates the state of each thread. Returns all states, and the number of folders that could not
/// be read.
pub(super) fn walk_parallel<T: Send>(
    mut walk_builder: WalkBuilder,
    stop: &SearchDeadline,
    start: impl Fn() -> T,
    visit: impl Fn(&mut T, DirEntry) + Sync,
) -> (Vec<T>, usize) {
    let done = Mutex::new(Vec::new());
    let errors = AtomicUsize::new(0);
    let visitor = || {
        let mut guard = WorkerGuard { worker: Some(start()), finished: &done };
        let visit = &visit;
        let errors = &errors;
        move |entry| {
            if stop.is_expired() {
                return WalkState::Quit;
            }
            match (entry, &mut guard.worker) {
                (Ok(entry), Some(worker)) => visit(worker, entry),
                _ => {
                    errors.fetch_add(1, Ordering::Relaxed);
                }
            }
            WalkState::Continue
        }
    };
    match startable_threads() {
        0 => walk_builder
            .build()
            .map(visitor())
            .take_while(|state| *state != WalkState::Quit)
            .for_each(drop),
        threads => walk_builder.threads(threads).build_parallel().run(|| Box::new(visitor())),
    }
    (done.into_inner(), errors.into_inner())
}

/// Returns the state of a thread when the thread is done.
struct WorkerGuard<'a, T> {
    worker: Option<T>,
    finished: &'a Mutex<Vec<T>>,
}

impl<T> Drop for WorkerGuard<'_, T> {
    fn drop(&mut self) {
        let mut finished = self.finished.lock();
        finished.extend(self.worker.take());
    }
}
