//! The sum of what can go wrong, for those who must answer somebody. What to say is `Display`
//! and [`chain`]; how to react is [`Kind`].

use std::path::PathBuf;

use turnwright_llm::LlmError;
use turnwright_store::StoreError;

/// Why a request could not be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The parameters do not fit the method.
    #[error("{0}")]
    Params(String),
    /// The session does not exist or is closed.
    #[error("Session not found: {0}")]
    NoSuchSession(String),
    /// A folder that a session should work in cannot be used.
    #[error("{} cannot be used as a working folder: {why}", path.display())]
    BadFolder {
        /// The folder.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// No model is configured.
    #[error(
        "No model is configured. Set OPENAI_API_KEY (for another provider OPENAI_BASE_URL too, \
         and TURNWRIGHT_MODEL), or run `turnwright login`, or choose the built-in offline model"
    )]
    NotSignedIn,
    /// The request makes no sense now.
    #[error("{0}")]
    BadMoment(String),
    /// The request was cancelled before it could be served.
    #[error("The request was cancelled")]
    Cancelled,
    /// The model could not answer.
    #[error(transparent)]
    Llm(#[from] LlmError),
    /// What is kept of sessions could not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The model goes round in circles.
    #[error(
        "The model made the same call again and again, so the turn was stopped. Say what to do \
         differently, or choose another model"
    )]
    Stuck,
    /// We have made a mistake.
    #[error("An internal error in {place}. The log in the state folder says more")]
    Bug {
        /// Where.
        place: &'static str,
    },
}

/// What sort of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The caller's parameters.
    Params,
    /// Something named does not exist.
    NotFound,
    /// A model has to be configured first.
    SignIn,
    /// The caller's timing.
    BadMoment,
    /// Cancelled.
    Cancelled,
    /// The model's.
    Model(turnwright_llm::Kind),
    /// Our own.
    Internal,
}

impl Kind {
    /// A stable word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Params => "params",
            Kind::NotFound => "not_found",
            Kind::SignIn => "sign_in",
            Kind::BadMoment => "bad_moment",
            Kind::Cancelled => "cancelled",
            Kind::Model(kind) => kind.name(),
            Kind::Internal => "internal",
        }
    }

    /// Whether it goes away when the user signs in, or signs in anew.
    pub fn needs_sign_in(self) -> bool {
        matches!(self, Kind::SignIn | Kind::Model(turnwright_llm::Kind::Auth | turnwright_llm::Kind::Settings))
    }
}

impl Error {
    /// The sort of trouble.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Params(_) | Error::BadFolder { .. } => Kind::Params,
            Error::NoSuchSession(_) => Kind::NotFound,
            Error::NotSignedIn => Kind::SignIn,
            Error::BadMoment(_) => Kind::BadMoment,
            Error::Cancelled => Kind::Cancelled,
            Error::Llm(error) => Kind::Model(error.kind()),
            Error::Stuck => Kind::Model(turnwright_llm::Kind::Malformed),
            Error::Store(StoreError::NoSuchSession) => Kind::NotFound,
            Error::Store(StoreError::Held(_)) => Kind::BadMoment,
            Error::Store(_) | Error::Bug { .. } => Kind::Internal,
        }
    }
}

/// An error and its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text.replace(['\n', '\r'], " ")
}
