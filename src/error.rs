//! The errors of requests, the only ones that become wire errors. [`std::fmt::Display`] and
//! [`error_chain`] give the text.

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

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        Error::Store(error)
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
