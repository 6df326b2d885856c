//! What can go wrong between us and a model, as situations that somebody can act on.

use std::time::Duration;

/// Why there is no answer. Each message names the provider's host and the next step, and never
/// a key.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// No connection.
    #[error("Could not reach {host}. Check the network and OPENAI_BASE_URL")]
    Connect {
        /// The provider's host.
        host: String,
        /// What the system says.
        #[source]
        source: reqwest::Error,
    },
    /// The provider answered with an HTTP error.
    #[error("{host} answered {status}: {message}{}", hint(*.status))]
    Status {
        /// The provider's host.
        host: String,
        /// The HTTP status.
        status: u16,
        /// What it says, without secrets.
        message: String,
        /// How long it wants us to wait.
        retry_after: Option<Duration>,
        /// Whether the account is out of credit, which waiting does not mend.
        exhausted: bool,
    },
    /// An error object inside a stream that had begun well.
    #[error("{host} reported an error while answering: {message}")]
    InStream {
        /// The provider's host.
        host: String,
        /// What it says.
        message: String,
        /// Its code, when it looks like an HTTP status.
        status: Option<u16>,
        /// Whether the account is out of credit, which waiting does not mend.
        exhausted: bool,
    },
    /// The stream stopped before the answer was complete.
    #[error("The answer from {host} broke off before it was complete. Prompt again to go on")]
    Truncated {
        /// The provider's host.
        host: String,
    },
    /// Nothing came for too long.
    #[error("{host} sent nothing for {} s", .limit.as_secs())]
    Silent {
        /// The provider's host.
        host: String,
        /// How long we waited.
        limit: Duration,
    },
    /// The answer is not what an OpenAI-compatible server sends.
    #[error(
        "{host} did not answer like an OpenAI-compatible server: {what}. Check OPENAI_BASE_URL"
    )]
    Malformed {
        /// The provider's host.
        host: String,
        /// What came instead.
        what: String,
    },
    /// A complete answer with nothing in it.
    #[error("{host} sent {what}")]
    Empty {
        /// The provider's host.
        host: String,
        /// What there was, and how it ended.
        what: String,
    },
    /// The configuration cannot be used.
    #[error("{0}")]
    Settings(String),
}

fn hint(status: u16) -> &'static str {
    match status {
        401 | 403 => ". Check OPENAI_API_KEY, or run `turnwright login`",
        404 => ". Check OPENAI_BASE_URL and TURNWRIGHT_MODEL",
        _ => "",
    }
}

impl LlmError {
    /// Whether the same request may succeed a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            LlmError::Connect { .. }
            | LlmError::Truncated { .. }
            | LlmError::Silent { .. }
            | LlmError::Empty { .. } => true,
            LlmError::Status { exhausted: true, .. }
            | LlmError::InStream { exhausted: true, .. } => false,
            LlmError::Status { status, .. } => is_transient_status(*status),
            LlmError::InStream { status, .. } => status.is_some_and(is_transient_status),
            LlmError::Malformed { .. } | LlmError::Settings(_) => false,
        }
    }

    /// How long the provider wants us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            LlmError::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The HTTP status, where there is one.
    pub fn status(&self) -> Option<u16> {
        match self {
            LlmError::Status { status, .. } => Some(*status),
            LlmError::InStream { status, .. } => *status,
            _ => None,
        }
    }

    /// What the provider says.
    pub fn message(&self) -> Option<&str> {
        match self {
            LlmError::Status { message, .. } | LlmError::InStream { message, .. } => Some(message),
            _ => None,
        }
    }

    /// The provider's host, where one was asked.
    pub fn host(&self) -> Option<&str> {
        match self {
            LlmError::Connect { host, .. }
            | LlmError::Status { host, .. }
            | LlmError::InStream { host, .. }
            | LlmError::Truncated { host }
            | LlmError::Silent { host, .. }
            | LlmError::Malformed { host, .. }
            | LlmError::Empty { host, .. } => Some(host),
            LlmError::Settings(_) => None,
        }
    }
}

/// Whether an error's text says that the account is out of credit.
pub(super) fn is_exhausted(text: &str) -> bool {
    text.contains("insufficient_quota") || text.contains("exceeded your current quota")
}

fn is_transient_status(status: u16) -> bool {
    // 501 and 505 are refusals; what Cloudflare says in front of a provider (520–527) is not.
    matches!(status, 408 | 409 | 425 | 429 | 500..=599) && !matches!(status, 501 | 505)
}
