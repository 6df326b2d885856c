//! What lies in a project and is run by somebody else later, outside of any sandbox: hooks, the
//! tasks of editors, start files. A change to it is a change of what the user's own programs do.

use std::path::{Path, PathBuf};

/// The protected places of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protected {
    /// The session's folders, and the folders of the repository they lie in.
    pub roots: Vec<PathBuf>,
    /// What the user has added, relative to a root.
    pub more: Vec<String>,
}

impl Protected {
    /// Why a change to this real path needs a word of its own, if it does.
    pub fn why(&self, _path: &Path) -> Option<&'static str> {
        None
    }
}
