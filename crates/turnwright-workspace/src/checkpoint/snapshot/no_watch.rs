//! The folder watch, and its reader, of systems for which there is none yet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ChangedFolders;

#[derive(Debug)]
pub(super) enum NoWatch {}

impl NoWatch {
    pub(super) fn new(_: &[PathBuf]) -> Option<NoWatch> {
        None
    }

    #[cfg(unix)]
    pub(super) fn add(&self, _: &Arc<Path>) {
        match *self {}
    }

    #[cfg(unix)]
    pub(super) fn add_ignored(&self, _: &Arc<Path>, _: &Arc<Path>, _: bool) {
        match *self {}
    }

    #[cfg(unix)]
    pub(super) fn give_up(&self) {
        match *self {}
    }

    pub(super) fn has_failed(&self) -> bool {
        match *self {}
    }

    pub(super) fn take_changes(&self) -> Option<ChangedFolders> {
        match *self {}
    }

    pub(super) fn of(watch: &Arc<NoWatch>) -> NoWatch {
        match **watch {}
    }

    pub(super) fn is_of(&self, _: &Arc<NoWatch>) -> bool {
        match *self {}
    }

    pub(super) fn follow_repository(&self, _: &Path, _: &Path) {
        match *self {}
    }

    pub(super) async fn changed(&mut self) -> std::io::Result<()> {
        match *self {}
    }
}
