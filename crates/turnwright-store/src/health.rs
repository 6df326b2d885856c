//! The faults of the store, and the notices about them: each session is told of a fault once,
//! and once more when it is over.

use rusqlite::{ErrorCode, ffi};

use super::{RetentionLimits, SharedState, StoreError};
use crate::database::journal;
use turnwright_types::error_text::io_error_text;
use turnwright_types::lists::add_new;

/// A fault of the storage rather than of the data to be written. It may pass, so the write is
/// retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageFault {
    /// No space is left.
    Full,
    /// The database may not be written or opened.
    Forbidden,
    /// Another process holds a lock.
    Locked,
    /// The file system lacks locks or shared memory.
    Unsuitable,
    /// Reading or writing the disk fails.
    Disk,
    /// The file is not a database, or it is damaged.
    Corrupt,
    /// The file is a database of another program.
    Foreign,
}

/// The errors of a file system without locks or shared memory.
const UNSUITABLE: [i32; 7] = [
    ffi::SQLITE_PROTOCOL,
    ffi::SQLITE_IOERR_LOCK,
    ffi::SQLITE_IOERR_RDLOCK,
    ffi::SQLITE_IOERR_SHMOPEN,
    ffi::SQLITE_IOERR_SHMSIZE,
    ffi::SQLITE_IOERR_SHMLOCK,
    ffi::SQLITE_IOERR_SHMMAP,
];

impl StorageFault {
    /// Advice to the user about the fault.
    pub fn advice(self) -> &'static str {
        match self {
            StorageFault::Full => "Free some space on that disk",
            StorageFault::Forbidden => "Make the state folder and its files writable",
            StorageFault::Locked => {
                "Close the other program that uses it, such as a database browser"
            }
            StorageFault::Unsuitable => journal::MOVE_ADVICE,
            StorageFault::Disk => "Check whether the disk is full or failing",
            StorageFault::Corrupt => "Opening a session replaces it by what can still be read",
            StorageFault::Foreign => {
                "Move that file to another folder: turnwright keeps its sessions under its name"
            }
        }
    }

    fn from_error(error: ffi::Error) -> Option<StorageFault> {
        if UNSUITABLE.contains(&error.extended_code) {
            return Some(StorageFault::Unsuitable);
        }
        match error.code {
            ErrorCode::DiskFull => Some(StorageFault::Full),
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen => {
                Some(StorageFault::Forbidden)
            }
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Some(StorageFault::Locked),
            ErrorCode::SystemIoFailure => Some(StorageFault::Disk),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Some(StorageFault::Corrupt),
            _ => None,
        }
    }
}

impl StoreError {
    /// The storage fault behind this error, if there is one.
    pub fn fault(&self) -> Option<StorageFault> {
        match self {
            StoreError::Unavailable { fault, .. } => Some(*fault),
            _ => None,
        }
    }

    /// True if the database is damaged, or what was stored in it.
    pub(super) fn is_damage(&self) -> bool {
        self.fault() == Some(StorageFault::Corrupt) || matches!(self, StoreError::Damaged(_))
    }

    /// The error of a write for which there is no room in the queue.
    pub(super) fn queue_full() -> StoreError {
        let reason = "the disk does not keep up".to_owned();
        StoreError::Unavailable { fault: StorageFault::Disk, reason }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        let fault = error.sqlite_error().copied().and_then(StorageFault::from_error);
        match (error, fault) {
            (rusqlite::Error::QueryReturnedNoRows, _) => StoreError::NoSuchSession,
            (error, Some(fault)) => StoreError::Unavailable { fault, reason: error.to_string() },
            // A column holds something else than what was stored.
            (
                error @ (rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::Utf8Error(..)),
                None,
            ) => StoreError::Damaged(error.to_string()),
            (error, None) => StoreError::Unusable(error.to_string()),
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> StoreError {
        use std::io::ErrorKind as Kind;
        let fault = match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => StorageFault::Full,
            Kind::PermissionDenied
            | Kind::ReadOnlyFilesystem
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::AlreadyExists
            | Kind::NotFound => StorageFault::Forbidden,
            _ => StorageFault::Disk,
        };
        StoreError::Unavailable { fault, reason: io_error_text(&error) }
    }
}

/// The state of the store that changes while it is in use.
#[derive(Debug, Default)]
pub(super) struct StoreState {
    /// Why writing fails at the moment.
    current_error: Option<StoreError>,
    /// How many jobs were dropped from the queue and the backlog so far.
    dropped: usize,
    /// Notices for every session, each to be delivered once.
    announcements: Vec<String>,
    /// The limits of the next cleanup.
    pub(super) limits: RetentionLimits,
    /// The name of this process's client, for the locks of its sessions.
    pub(super) client_name: String,
}

/// Which notices one session has received.
#[derive(Debug, Default)]
pub(super) struct DeliveredNotices {
    faults: Vec<StorageFault>,
    is_waiting: bool,
    dropped: usize,
    announcements: usize,
}

impl SharedState {
    /// Records why a write failed, or that everything is written.
    pub(super) fn set_current_error(&self, error: Option<StoreError>) {
        self.state.lock().current_error = error;
    }

    /// Why jobs are still waiting to be written; `None` if all is well.
    pub(super) fn current_error(&self) -> Option<StoreError> {
        self.state.lock().current_error.clone()
    }

    /// Records that jobs were dropped because too many were waiting.
    pub(super) fn add_dropped(&self, count: usize) {
        self.state.lock().dropped += count;
    }

    /// Adds a notice for every session.
    pub(super) fn announce(&self, text: String) {
        tracing::warn!("{text}");
        add_new(&mut self.state.lock().announcements, text);
    }

    /// Returns the notices that this session has not received, and marks them as delivered.
    pub(super) fn undelivered_notices(&self, delivered: &mut DeliveredNotices) -> Vec<String> {
        let state = self.state.lock();
        let mut notices: Vec<_> =
            state.announcements.iter().skip(delivered.announcements).cloned().collect();
        delivered.announcements = state.announcements.len();
        match &state.current_error {
            Some(error) => {
                if let Some(fault) = error.fault().filter(|fault| !delivered.faults.contains(fault))
                {
                    delivered.faults.push(fault);
                    delivered.is_waiting = true;
                    notices.push(format!(
                        "This session is not being saved: {error}. You can go on; new \
                         messages are held in memory and written as soon as possible."
                    ));
                }
            }
            None if delivered.is_waiting => {
                delivered.is_waiting = false;
                delivered.faults.clear();
                notices.push(
                    "Sessions are being saved again, including what was held in memory.".to_owned(),
                );
            }
            None => {}
        }
        if state.dropped > delivered.dropped {
            delivered.dropped = state.dropped;
            notices.push(
                "Too much was waiting to be saved, so a part of it was dropped. Sessions that were \
                 open meanwhile will have gaps when they are loaded."
                    .to_owned(),
            );
        }
        notices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(fault: StorageFault) -> StoreError {
        StoreError::Unavailable { fault, reason: "so it is".to_owned() }
    }

    #[test]
    fn each_fault_is_reported_once_and_its_end_once() {
        let store = SharedState::default();
        let mut delivered = DeliveredNotices::default();
        assert_eq!(store.undelivered_notices(&mut delivered), Vec::<String>::new());
        store.set_current_error(Some(failing(StorageFault::Full)));
        let notices = store.undelivered_notices(&mut delivered);
        assert!(notices.len() == 1 && notices[0].contains("Free some space"), "{notices:?}");
        store.set_current_error(Some(failing(StorageFault::Full)));
        assert_eq!(store.undelivered_notices(&mut delivered), Vec::<String>::new());
        store.set_current_error(Some(failing(StorageFault::Locked)));
        assert_eq!(store.undelivered_notices(&mut delivered).len(), 1);
        store.set_current_error(None);
        assert!(store.undelivered_notices(&mut delivered)[0].contains("being saved again"));
        assert_eq!(store.undelivered_notices(&mut delivered), Vec::<String>::new());
        // A session that is opened later has missed nothing.
        assert_eq!(
            store.undelivered_notices(&mut DeliveredNotices::default()),
            Vec::<String>::new()
        );
    }

    #[test]
    fn dropped_jobs_are_reported() {
        let store = SharedState::default();
        let mut delivered = DeliveredNotices::default();
        store.add_dropped(3);
        assert!(store.undelivered_notices(&mut delivered)[0].contains("gaps"));
        assert_eq!(store.undelivered_notices(&mut delivered), Vec::<String>::new());
    }
}
