//! What can go wrong between us and a model, as situations that somebody can act on.

use std::time::Duration;

use super::Kind;
use super::wait::LONGEST_WAIT;

/// Why there is no answer. Each message names the provider's host and the next step, and never
/// a key.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// No connection.
    #[error("Could not reach {host}. Check the network and the base URL")]
    Connect {
        /// The provider's host.
        host: String,
        /// What the system says.
        #[source]
        source: reqwest::Error,
    },
    /// The provider answered with an HTTP error.
    #[error("{host} answered {status}: {}", advise(message, *.kind, *.retry_after))]
    Status {
        /// The provider's host.
        host: String,
        /// The HTTP status.
        status: u16,
        /// What it says, without secrets.
        message: String,
        /// How long it wants us to wait.
        retry_after: Option<Duration>,
        /// What it means.
        kind: Kind,
        /// The call that the model has made and the server could not read (quirk C.1 #23).
        leaked: Option<Box<String>>,
    },
    /// An error object inside a stream that had begun well.
    #[error("{host} reported an error while answering: {}", advise(message, *.kind, *.retry_after))]
    InStream {
        /// The provider's host.
        host: String,
        /// What it says.
        message: String,
        /// Its code, when it looks like an HTTP status.
        status: Option<u16>,
        /// How long it wants us to wait.
        retry_after: Option<Duration>,
        /// What it means.
        kind: Kind,
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
    #[error("{host} did not answer like an OpenAI-compatible server: {what}. Check the base URL")]
    Malformed {
        /// The provider's host.
        host: String,
        /// What came instead.
        what: String,
    },
    /// The model says the same again and again, which it would not end by itself.
    #[error(
        "The model at {host} repeated itself without an end and was stopped. Prompt again, or \
         choose another model"
    )]
    Stuck {
        /// The provider's host.
        host: String,
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

/// What servers say that cannot do without a word of ours (C.5).
const HINTS: [(&str, &str); 4] = [
    ("does not support tools", "The agent needs tools: choose another model"),
    ("support tool use", "The agent needs tools: choose another model"),
    ("--enable-auto-tool-choice", "Both are options to start vLLM with"),
    ("--jinja", "It is an option to start llama-server with"),
];

/// What servers say of an effort that their model does not have (C.4 #3).
const EFFORTS: [&str; 6] = [
    "supported values",
    "unsupported value",
    "is mandatory",
    "cannot be disabled",
    "must be one of",
    "does not support 'none'",
];

/// What servers say that could not read their own model's answer (C.1 #8, #23; C.2 #17).
const UNREAD: [&str; 5] = [
    "failed to parse input",
    "failed to parse tool call",
    "failed to call a function",
    "tool call validation failed",
    "tool_use_failed",
];

/// The provider's words and the next step.
fn advise(message: &str, kind: Kind, wait: Option<Duration>) -> String {
    let known = HINTS.iter().find(|(words, _)| message.contains(words)).map(|(_, hint)| *hint);
    let advice = known.unwrap_or(match kind {
        Kind::Auth => "Check the key, or run `turnwright login`",
        Kind::Quota => "Waiting does not mend this: check the plan and the credit of the account",
        Kind::Overflow { .. } => "The conversation is too long: `/clear` begins a new one",
        Kind::ModelNotFound => "Check the name of the model",
        Kind::UrlNotFound => "Check the base URL",
        _ => "",
    });
    let later = wait.filter(|it| *it > LONGEST_WAIT).map(|it| match it.as_secs().div_ceil(60) {
        minutes @ ..120 => format!("Prompt again in {minutes} min"),
        minutes @ ..2880 => format!("Prompt again in {} h", minutes.div_ceil(60)),
        minutes => format!("Prompt again in {} days", (minutes / 1440).min(365)),
    });
    let sentences = [advice.to_owned(), later.unwrap_or_default()];
    let sentences: Vec<_> = sentences.iter().filter(|it| !it.is_empty()).collect();
    sentences.iter().fold(message.to_owned(), |text, it| {
        let text = text.trim_end_matches('.');
        let stop = if text.ends_with(['?', '!']) { "" } else { "." };
        format!("{text}{stop} {it}")
    })
}

impl LlmError {
    /// What sort of trouble it is.
    pub fn kind(&self) -> Kind {
        match self {
            LlmError::Connect { .. } | LlmError::Truncated { .. } | LlmError::Silent { .. } => {
                Kind::Network
            }
            LlmError::Status { kind, .. } | LlmError::InStream { kind, .. } => *kind,
            LlmError::Malformed { .. } | LlmError::Stuck { .. } => Kind::Malformed,
            LlmError::Empty { .. } => Kind::Empty,
            LlmError::Settings(_) => Kind::Settings,
        }
    }

    /// Whether the same request may succeed a little later.
    pub fn is_transient(&self) -> bool {
        self.kind().may_pass()
    }

    /// Whether it has to do with this very answer: one that fails so twice will fail so again.
    pub fn is_fragile(&self) -> bool {
        let unread = |it: &str| {
            let it = it.to_lowercase();
            UNREAD.iter().any(|words| it.contains(words))
        };
        matches!(self, LlmError::Empty { .. } | LlmError::Truncated { .. })
            || self.message().is_some_and(unread)
    }

    /// Whether the reasoning effort is one that this model does not have, though it has others.
    pub(super) fn refuses_effort(&self) -> bool {
        let refused = |it: &str| {
            let it = it.to_lowercase();
            let is_about =
                it.contains("effort") || it.contains("reasoning") || it.contains("thinking");
            is_about && EFFORTS.iter().any(|words| it.contains(words))
        };
        matches!(self.kind(), Kind::BadRequest) && self.message().is_some_and(refused)
    }

    /// How long the provider wants us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            LlmError::Status { retry_after, .. } | LlmError::InStream { retry_after, .. } => {
                *retry_after
            }
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

    /// What the provider itself says, where it says something.
    pub fn message(&self) -> Option<&str> {
        match self {
            LlmError::Status { message, .. } | LlmError::InStream { message, .. } => Some(message),
            _ => None,
        }
    }

    /// The call that the server could not read, where it has sent it back.
    pub(super) fn leaked(&self) -> Option<&str> {
        match self {
            LlmError::Status { leaked, .. } => leaked.as_ref().map(|it| it.as_str()),
            _ => None,
        }
    }

    /// How many tokens the model's window holds, if that is what the provider says.
    pub fn window(&self) -> Option<u64> {
        match self.kind() {
            Kind::Overflow { limit, .. } => limit,
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
            | LlmError::Stuck { host }
            | LlmError::Empty { host, .. } => Some(host),
            LlmError::Settings(_) => None,
        }
    }
}
