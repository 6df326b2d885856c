//! The folder watch, and its reader, of systems for which there is none yet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ChangedFolders;

#[derive(Debug)]
pub(in crate::checkpoint) enum NoWatch {}

impl NoWatch {
    pub(in crate::checkpoint) fn new(_: &[PathBuf]) -> Option<NoWatch> {
        None
    }

    #[cfg(unix)]
    pub(in crate::checkpoint) fn add(&self, _: &Arc<Path>) {
        match *self {}
    }

    #[cfg(unix)]
    pub(in crate::checkpoint) fn add_ignored(&self, _: &Arc<Path>, _: &Arc<Path>, _: bool) {
        match *self {}
    }

    #[cfg(unix)]
    pub(in crate::checkpoint) fn give_up(&self) {
        match *self {}
    }

    pub(in crate::checkpoint) fn has_failed(&self) -> bool {
        match *self {}
    }

    pub(in crate::checkpoint) fn take_changes(&self) -> Option<ChangedFolders> {
        match *self {}
    }

    pub(in crate::checkpoint) fn of(watch: &Arc<NoWatch>) -> NoWatch {
        match **watch {}
    }

    pub(in crate::checkpoint) fn is_of(&self, _: &Arc<NoWatch>) -> bool {
        match *self {}
    }

    pub(in crate::checkpoint) fn follow_repository(&self, _: &Path, _: &Path) {
        match *self {}
    }

    pub(in crate::checkpoint) async fn changed(&mut self) -> std::io::Result<()> {
        match *self {}
    }
}
