//! What calls do to files: each file that one has changed, as it was before and as it is after. A
//! tool that says what it writes is taken at its word; around a command the session's folders are
//! compared. Changes nothing; what is found goes into the store, and undo reads it from there.
//!
//! Not covered: what `.gitignore` names, `.git`, what lies outside of the session's folders, and
//! what a command in the background does after its turn.

mod commands;
mod edits;
mod git;
pub mod inside;
mod known;
mod look;
mod map;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio_util::task::TaskTracker;

use turnwright_types::effect::visible_line;
use crate::files::Roots;
use turnwright_types::ids::CallId;
use turnwright_types::file_change::{Change, FileState};

pub use commands::Before;
pub use edits::{Edit, Foreseen};
pub use look::MOST_KEPT;

use commands::is_kept;
use known::Known;
use look::{Found, in_words};
use map::Ground;

/// What is never covered, for people.
pub const NOT_COVERED: &str = "Files that .gitignore names are not covered.";

/// What the user is told once, where nobody can look at everything.
const UNSEEN: &str = "/undo does not cover what commands change here: there are too many files, or \
                      the disk is too slow.";

/// How often it is tried to look at everything when that takes too long.
const TRIES: u8 = 2;
/// Files that a card names.
const MOST_NAMES: usize = 5;

/// What a session knows of its files between calls. Cloning copies a pointer.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    ground: OnceLock<Ground>,
    // Std mutexes: the first is held to move pointers, the second by blocking threads alone.
    inner: Mutex<Inner>,
    known: Mutex<Known>,
    /// What is still compared after a cancel.
    late: TaskTracker,
}

#[derive(Debug)]
struct Inner {
    /// As the last command of the turn has left it.
    last: Option<Before>,
    tries: u8,
    /// A call whose command goes on.
    going_on: Option<CallId>,
    said_class: bool,
    said_unseen: bool,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner { last: None, tries: TRIES, going_on: None, said_class: false, said_unseen: false }
    }
}

/// What a call has done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The files that are not what they were.
    pub files: Vec<Change>,
    /// Bytes of theirs, to be kept.
    pub bytes: Vec<Arc<[u8]>>,
    /// Changes that are not among them.
    pub more: usize,
    /// Nobody knows what has changed.
    pub is_unseen: bool,
}

impl Checkpoint {
    /// The folders that commands are watched in.
    pub fn watch(&self, roots: &Roots) {
        self.0.ground.get_or_init(|| Ground::of(roots));
    }

    fn ground(&self) -> Option<Ground> {
        self.0.ground.get().cloned()
    }

    /// A tool has changed these, and the store has what they hold; of some it is not what the disk
    /// has.
    fn touched(&self, all: &BTreeMap<PathBuf, Found>, unsaved: &[PathBuf]) {
        let mut inner = lock(&self.0.inner);
        if let Some(last) = &mut inner.last {
            for path in all.keys() {
                last.touched(path);
            }
        }
        drop(inner);
        let mut known = lock(&self.0.known);
        for (path, found) in all {
            match known::now(path) {
                Some(stat) if is_kept(&found.state) && !unsaved.contains(path) => {
                    known.learn(path, stat, found.state.clone().into());
                }
                _ => known.forget(path),
            }
        }
    }

    /// The command of a call goes on after it.
    pub fn goes_on(&self, call: &CallId) {
        lock(&self.0.inner).going_on = Some(call.clone());
    }

    /// The turn ends. If a command of it has gone on, which, and what there was when somebody last
    /// looked.
    pub fn end_turn(&self) -> Option<(CallId, Before)> {
        let mut inner = lock(&self.0.inner);
        let last = inner.last.take();
        inner.going_on.take().zip(last)
    }

    /// The turn is over: what is known of all files costs memory and may be wrong in the next one.
    pub fn forget_map(&self) {
        lock(&self.0.inner).last = None;
    }

    /// Work that may outlive its turn.
    pub fn late(&self) -> &TaskTracker {
        &self.0.late
    }

    /// Waits until all changes of earlier turns are on their way to the store.
    pub async fn rest(&self) {
        self.0.late.close();
        self.0.late.wait().await;
    }

    /// What the user is to know: which of these changes cannot be undone.
    pub fn warning(&self, changes: &Changes, roots: &Roots) -> Option<String> {
        if changes.is_unseen {
            let was_said = std::mem::replace(&mut lock(&self.0.inner).said_unseen, true);
            return (!was_said).then(|| UNSEEN.to_owned());
        }
        let is_lost = |it: &&Change| !is_kept(&it.before) && it.after.as_ref() != Some(&it.before);
        let lost: Vec<_> = changes.files.iter().filter(is_lost).collect();
        let mut names: Vec<_> = lost.iter().take(MOST_NAMES).map(|it| name(it, roots)).collect();
        let more = lost.len() - names.len() + changes.more;
        if more > 0 {
            names.push(format!("{more} more"));
        }
        if names.is_empty() {
            return None;
        }
        let mut text = format!("Not restorable by /undo: {}.", names.join(", "));
        if !std::mem::replace(&mut lock(&self.0.inner).said_class, true) {
            text.push_str(&format!(" {NOT_COVERED}"));
        }
        Some(text)
    }
}

fn name(change: &Change, roots: &Roots) -> String {
    let below = roots.folders().find_map(|it| change.path.strip_prefix(it).ok());
    let path = visible_line(&below.unwrap_or(Path::new(&change.path)).to_string_lossy());
    match &change.before {
        FileState::File { size, .. } => format!("{path} ({})", in_words(*size)),
        FileState::Unknown { why } => format!("{path} ({why})"),
        _ => path,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
