//! The errors of requests, the only ones that become wire errors. [`std::fmt::Display`] and
//! [`error_chain`] give the text; [`ErrorKind`] tells the caller how to react.

use std::path::PathBuf;

use turnwright_llm::LlmError;
use turnwright_store::StoreError;
pub(crate) use turnwright_types::error_text::{as_sentence, error_chain};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The parameters do not fit the method.
    #[error("{0}")]
    InvalidParams(String),
    /// The session does not exist or is closed.
    #[error("Session not found: {0}")]
    SessionNotFound(String),
    /// The working folder of a session cannot be used.
    #[error("{} cannot be used as a working folder: {why}", path.display())]
    InvalidFolder { path: PathBuf, why: String },
    /// There is no model. The text says what to set.
    #[error("{0}")]
    NoModelConfigured(String),
    /// The request is not possible in the current state.
    #[error("{0}")]
    InvalidState(String),
    #[error("The request was cancelled")]
    Cancelled,
    /// The model failed to answer.
    #[error("{}", with_next_step(.0))]
    Llm(#[from] LlmError),
    /// The stored sessions could not be read or written.
    #[error("{}", with_store_advice(.0))]
    Store(StoreError),
    /// A bug in this program.
    #[error("Internal error in {place}. See the log in the state folder")]
    Internal { place: &'static str },
}

/// The category of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    InvalidParams,
    NotFound,
    /// No model is configured.
    AuthRequired,
    InvalidState,
    Cancelled,
    /// An error of the model or its provider.
    Model(turnwright_llm::ErrorKind),
    /// A bug in this program, or a failure of the store.
    Internal,
}

impl ErrorKind {
    /// A stable word for programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ErrorKind::InvalidParams => "params",
            ErrorKind::NotFound => "not_found",
            ErrorKind::AuthRequired => "sign_in",
            ErrorKind::InvalidState => "bad_moment",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Model(kind) => kind.name(),
            ErrorKind::Internal => "internal",
        }
    }

    /// Returns true if signing in, or signing in again, fixes the error.
    pub(crate) fn requires_auth(self) -> bool {
        use turnwright_llm::ErrorKind::{Auth, Config};
        matches!(self, ErrorKind::AuthRequired | ErrorKind::Model(Auth | Config))
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        Error::Store(error)
    }
}

impl Error {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidParams(_) | Error::InvalidFolder { .. } => ErrorKind::InvalidParams,
            Error::SessionNotFound(_) => ErrorKind::NotFound,
            Error::NoModelConfigured(_) => ErrorKind::AuthRequired,
            Error::InvalidState(_) => ErrorKind::InvalidState,
            Error::Cancelled => ErrorKind::Cancelled,
            Error::Llm(error) => ErrorKind::Model(error.kind()),
            Error::Store(StoreError::NoSuchSession) => ErrorKind::NotFound,
            Error::Store(StoreError::SessionLocked(_)) => ErrorKind::InvalidState,
            Error::Store(_) | Error::Internal { .. } => ErrorKind::Internal,
        }
    }
}

/// The message of an error after which the user has to do something.
fn with_next_step(error: &LlmError) -> String {
    let text = error.to_string();
    match error.next_step() {
        Some(step) => format!("{} {step}", as_sentence(text)),
        None => text,
    }
}

/// The message of an error of the store, and what the user can do.
fn with_store_advice(error: &StoreError) -> String {
    match error {
        StoreError::SessionLocked(_) => format!(
            "{error}. Close it there, or fork it: a fork is a copy that goes on here by itself"
        ),
        error => error.to_string(),
    }
}
