//! What the model has seen of each file, so that a change from elsewhere is noticed. Content
//! counts and not the clock: times change without a change, and change without a new time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::text::{Hash, Text};

/// Files that are remembered.
const MOST_FILES: usize = 4_096;

/// What was seen of the files of one session.
#[derive(Debug, Default)]
// A std mutex: held to look into a map.
pub(super) struct Seen(Mutex<HashMap<PathBuf, Hash>>);

/// How what the model knows of a file compares with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It has not read it in this session.
    Unseen,
    /// Nothing has changed since.
    Same,
    /// Somebody else has changed it.
    Changed,
}

impl Seen {
    pub(super) fn note(&self, path: &Path, text: &Text) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MOST_FILES && !seen.contains_key(path) {
            // Forgetting costs a check, not a change.
            seen.clear();
        }
        seen.insert(path.to_path_buf(), text.hash());
    }

    pub(super) fn compare(&self, path: &Path, text: &Text) -> Freshness {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied();
        match known {
            None => Freshness::Unseen,
            Some(hash) if hash == text.hash() => Freshness::Same,
            Some(_) => Freshness::Changed,
        }
    }

    pub(super) fn forget(&self, path: &Path) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }
}
