//! What is wrong with the store, and what the users of sessions are told about it: each trouble
//! once a session, and once more when it is over.

use std::sync::{Mutex, PoisonError};

use rusqlite::ErrorCode;

use super::StoreError;

/// A trouble that is not of what was to be written, but of where. It may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No space is left.
    Full,
    /// It may not be written, or not even be looked at.
    Forbidden,
    /// Another process does not let go of it.
    Locked,
    /// The disk does not do what it should.
    Disk,
    /// It is no database, or no longer one.
    Corrupt,
}

impl Fault {
    /// What to do.
    pub fn advice(self) -> &'static str {
        match self {
            Fault::Full => "Make space on that disk",
            Fault::Forbidden => "Make that folder and the files in it writable for you",
            Fault::Locked => "End the other program that uses it, a database browser say",
            Fault::Disk => "Look whether that disk is full or broken",
            Fault::Corrupt => "Move that file away",
        }
    }

    fn of(code: ErrorCode) -> Option<Fault> {
        match code {
            ErrorCode::DiskFull => Some(Fault::Full),
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen => {
                Some(Fault::Forbidden)
            }
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed => Some(Fault::Locked),
            ErrorCode::SystemIoFailure => Some(Fault::Disk),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Some(Fault::Corrupt),
            _ => None,
        }
    }
}

impl StoreError {
    /// What is wrong with the place, if it is the place.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            StoreError::Failing { fault, .. } => Some(*fault),
            _ => None,
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        let fault = error.sqlite_error_code().and_then(Fault::of);
        match (error, fault) {
            (rusqlite::Error::QueryReturnedNoRows, _) => StoreError::NoSuchSession,
            (error, Some(fault)) => StoreError::Failing { fault, why: error.to_string() },
            (error, None) => StoreError::Unusable(error.to_string()),
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> StoreError {
        use std::io::ErrorKind as Kind;
        let fault = match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => Fault::Full,
            Kind::PermissionDenied
            | Kind::ReadOnlyFilesystem
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::AlreadyExists
            | Kind::NotFound => Fault::Forbidden,
            _ => Fault::Disk,
        };
        StoreError::Failing { fault, why: error.to_string() }
    }
}

/// How the store is.
// A std mutex: held to copy a few words.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What is wrong now.
    now: Option<StoreError>,
    /// Pieces that were given up so far.
    given_up: u64,
    /// What everybody is told once.
    news: Vec<String>,
}

/// What one session was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    faults: Vec<Fault>,
    is_waiting: bool,
    given_up: u64,
    news: usize,
}

impl Health {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing could be written.
    pub(super) fn fails(&self, error: &StoreError) {
        self.state().now = Some(error.clone());
    }

    /// All is written.
    pub(super) fn works(&self) {
        self.state().now = None;
    }

    /// Why something still waits to be written.
    pub(super) fn now(&self) -> Option<StoreError> {
        self.state().now.clone()
    }

    /// Pieces that waited are not kept.
    pub(super) fn gives_up(&self, count: u64) {
        self.state().given_up += count;
    }

    /// Everybody is to know.
    pub(super) fn say(&self, text: String) {
        tracing::warn!("{text}");
        let news = &mut self.state().news;
        if !news.contains(&text) {
            news.push(text);
        }
    }

    /// What a session has to be told now.
    pub(super) fn tell(&self, told: &mut Told) -> Vec<String> {
        let state = self.state();
        let mut words: Vec<_> = state.news.iter().skip(told.news).cloned().collect();
        told.news = state.news.len();
        match &state.now {
            Some(error) => {
                if let Some(fault) = error.fault().filter(|it| !told.faults.contains(it)) {
                    told.faults.push(fault);
                    told.is_waiting = true;
                    words.push(format!(
                        "This session is not being kept: {error}. It goes on; what is said is held \
                         in memory, and written as soon as that is possible."
                    ));
                }
            }
            None if told.is_waiting => {
                told.is_waiting = false;
                told.faults.clear();
                words.push("Sessions are being kept again, with what has waited.".to_owned());
            }
            None => {}
        }
        if state.given_up > told.given_up {
            told.given_up = state.given_up;
            words.push(
                "More has waited to be kept than memory is used for: the oldest of it was given \
                 up, so a session that was open meanwhile will come back with gaps."
                    .to_owned(),
            );
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(fault: Fault) -> StoreError {
        StoreError::Failing { fault, why: "so it is".to_owned() }
    }

    #[test]
    fn each_trouble_is_told_once_and_its_end_once_more() {
        let (health, mut told) = (Health::default(), Told::default());
        assert_eq!(health.tell(&mut told), Vec::<String>::new());
        health.fails(&failing(Fault::Full));
        let words = health.tell(&mut told);
        assert!(words.len() == 1 && words[0].contains("Make space"), "{words:?}");
        health.fails(&failing(Fault::Full));
        assert_eq!(health.tell(&mut told), Vec::<String>::new());
        health.fails(&failing(Fault::Locked));
        assert_eq!(health.tell(&mut told).len(), 1);
        health.works();
        assert!(health.tell(&mut told)[0].contains("kept again"));
        assert_eq!(health.tell(&mut told), Vec::<String>::new());
        // Somebody who comes later has missed nothing.
        assert_eq!(health.tell(&mut Told::default()), Vec::<String>::new());
    }

    #[test]
    fn what_was_given_up_is_said() {
        let (health, mut told) = (Health::default(), Told::default());
        health.gives_up(3);
        assert!(health.tell(&mut told)[0].contains("gaps"));
        assert_eq!(health.tell(&mut told), Vec::<String>::new());
    }
}
