//! Remembers when file tools and commands make changes of protected paths that the user has allowed, while commands and
//! MCP servers in the sandbox run. All other changes are made by the programs in the sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

/// The clock of file systems may lag behind the system's by this much.
pub(crate) const CLOCK_LAG: Duration = Duration::from_millis(20);
/// At most this many changes are remembered; of more, the oldest are forgotten.
const MAX_CHANGES: usize = 1_000;

/// The changes that others were allowed to make in a session.
#[derive(Debug, Default)]
pub(crate) struct OtherChanges(Mutex<Vec<OtherChange>>);

#[derive(Debug)]
struct OtherChange {
    /// The path that may be changed; `None` for a command without a sandbox, which may change anything.
    path: Option<PathBuf>,
    from: SystemTime,
    /// `None` until it is over.
    until: Option<SystemTime>,
    call: Arc<()>,
}

/// A call that may change protected paths. It is over when this is dropped.
#[derive(Debug)]
pub struct ChangingCall {
    changes: Arc<OtherChanges>,
    call: Arc<()>,
}

impl OtherChanges {
    /// Notes that a call changes these paths from now on, or anything if one is `None`.
    pub(super) fn begin(
        self: &Arc<Self>,
        paths: impl IntoIterator<Item = Option<PathBuf>>,
    ) -> ChangingCall {
        let call = Arc::new(());
        let from = SystemTime::now() - CLOCK_LAG;
        let mut changes = self.0.lock();
        for path in paths {
            changes.push(OtherChange { path, from, until: None, call: Arc::clone(&call) });
        }
        let more = changes.len().saturating_sub(MAX_CHANGES);
        changes.drain(..more);
        ChangingCall { changes: Arc::clone(self), call }
    }

    /// Returns true if a call was allowed to change a path at that time.
    pub(crate) fn are_allowed(&self, path: &Path, time: SystemTime) -> bool {
        self.0.lock().iter().any(|change| {
            change.has(time)
                && change.path.as_ref().is_some_and(|allowed| path.starts_with(allowed))
        })
    }

    /// Returns true if a command without a sandbox is remembered.
    pub(super) fn have_been_unknown(&self) -> bool {
        self.0.lock().iter().any(|change| change.path.is_none())
    }

    /// Returns true if a command without a sandbox was running at that time.
    pub(super) fn are_unknown(&self, time: SystemTime) -> bool {
        self.0.lock().iter().any(|change| change.has(time) && change.path.is_none())
    }
}

impl OtherChange {
    fn has(&self, time: SystemTime) -> bool {
        self.from <= time && self.until.is_none_or(|until| time <= until)
    }
}

impl Drop for ChangingCall {
    fn drop(&mut self) {
        let mut changes = self.changes.0.lock();
        for change in changes.iter_mut().filter(|change| Arc::ptr_eq(&change.call, &self.call)) {
            change.until = Some(SystemTime::now() + CLOCK_LAG);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_may_change_it_may_change_only_while_it_runs() {
        let changes = Arc::new(OtherChanges::default());
        let path = Path::new("/p/.envrc");
        let now = SystemTime::now;
        let before = now() - Duration::from_secs(1);
        let write = changes.begin([Some(path.to_path_buf())]);
        let command = changes.begin([None]);
        assert!(changes.are_allowed(path, now()) && !changes.are_allowed(path, before));
        assert!(!changes.are_allowed(Path::new("/p/.envrc2"), now()));
        assert!(changes.are_unknown(now()) && !changes.are_unknown(before));
        drop(write);
        drop(command);
        let later = now() + CLOCK_LAG * 2;
        assert!(!changes.are_allowed(path, later) && !changes.are_unknown(later));
        assert!(changes.are_allowed(path, now()) && changes.are_unknown(now()));
    }
}
