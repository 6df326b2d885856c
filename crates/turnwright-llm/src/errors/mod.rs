//! Errors of a model request, grouped by what can be done about them.

pub(crate) mod error_body;
pub(crate) mod error_kind;
pub(crate) mod refusals;
pub(crate) mod retry_after;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::ErrorKind;
use refusals::is_minute_limit;
use retry_after::MAX_RETRY_WAIT;
use turnwright_http::ConnectionFault;
use turnwright_types::text::has_listed;

/// Why there is no reply. Each message names the provider's host and never contains a key. It says
/// what to do next where that does not depend on whether the request is retried; for the rest there
/// is [`LlmError::next_step`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum LlmError {
    /// The connection failed.
    #[error("{}", unreachable_message(host, fault, proxy.as_deref()))]
    Connect {
        host: String,
        fault: ConnectionFault,
        /// The proxy through which the request went.
        proxy: Option<String>,
        /// True if the server has answered before.
        has_answered: bool,
    },
    /// The provider answered with an HTTP error.
    #[error(
        "{host} answered {status}{}: {}",
        .proxy.as_ref().map(|proxy| format!(" (through the proxy {proxy})")).unwrap_or_default(),
        with_advice(message, *.kind, *.retry_after, .key_advice.as_deref().map(String::as_str))
    )]
    Status {
        // Errors are returned in every result, so they are kept small.
        host: Box<str>,
        status: u16,
        /// The proxy through which the request went; it may be the proxy that answered.
        proxy: Option<Box<String>>,
        /// The provider's message, with secrets redacted.
        message: String,
        /// The delay that the provider asks for.
        retry_after: Option<Duration>,
        kind: ErrorKind,
        /// Advice for a refused key; `None` if nothing is known about the key.
        key_advice: Option<Box<String>>,
        /// The model's output that the server failed to parse (quirk C.1 #23).
        failed_generation: Option<Box<String>>,
    },
    /// An error inside a stream that started successfully.
    #[error(
        "{host} reported an error while answering: {}",
        with_advice(message, *.kind, *.retry_after, .key_advice.as_deref().map(String::as_str))
    )]
    InStream {
        host: String,
        message: String,
        /// The error's code, if it looks like an HTTP status.
        status: Option<u16>,
        /// The delay that the provider asks for.
        retry_after: Option<Duration>,
        kind: ErrorKind,
        /// Advice for a refused key; `None` if nothing is known about the key.
        key_advice: Option<Box<String>>,
    },
    /// The stream ended before the reply was complete.
    #[error(
        "The answer from {host} broke off before it was complete. Send another prompt to \
         continue"
    )]
    Truncated { host: String },
    /// The server did not send its list of models in time.
    #[error(
        "{host} did not send its models within {} s. Check the network and the base URL",
        .limit.as_secs()
    )]
    TimedOut { host: String, limit: Duration },
    /// The model sent nothing for too long. Servers that only keep the connection alive count as silent, too.
    #[error(
        "{host} sent nothing for {} s, so the request was ended. Check the server and prompt again; \
         if the model needs longer, set `silence_seconds` in the settings",
        .limit.as_secs()
    )]
    Silent { host: String, limit: Duration },
    /// The response is not what an OpenAI-compatible server sends.
    #[error("{host} did not answer like an OpenAI-compatible server: {what}. Check the base URL")]
    Malformed { host: String, what: String },
    /// The model repeats itself and would not stop on its own.
    #[error(
        "The model at {host} kept repeating itself and was stopped. Prompt again, or \
         choose another model"
    )]
    EndlessRepetition { host: String },
    /// The reply is complete and contains neither text nor calls.
    #[error("{host} sent {what}")]
    EmptyReply {
        host: String,
        /// Describes what the reply contained instead, and its finish reason.
        what: String,
    },
    /// The configuration is unusable.
    #[error("{0}")]
    Config(String),
}

/// Server messages that need an explanation (C.5).
const HINTS: [(&str, &str); 17] = [
    ("does not support tools", "The agent needs tools: choose another model"),
    ("support tool use", "The agent needs tools: choose another model"),
    ("--enable-auto-tool-choice", "Start vLLM with both options"),
    ("--jinja", "Start llama-server with this option"),
    ("requires more system memory", TOO_LARGE),
    ("insufficient system resources", TOO_LARGE),
    // The titles of pages and the codes of Cloudflare.
    ("JSON (Just a moment", FIREWALL),
    ("JSON (Attention Required", FIREWALL),
    ("JSON (Access denied |", FIREWALL),
    ("error code: 1010", FIREWALL),
    ("error code: 1020", FIREWALL),
    // nginx and others answer like this for a wrong key, too.
    ("JSON (403 Forbidden", "Check the key. If it is right, a firewall is in between"),
    ("fewer max_tokens", "Add credit, or set a smaller `max_output` for the model in the settings"),
    (
        "for long context",
        "Set `window = 200000` for the model in the settings, or choose another model",
    ),
    ("oad model", "Look into the log of the server, or choose another model"),
    // z.ai and Zhipu.
    ("no resource package", CODING_PLAN),
    ("无可用资源包", CODING_PLAN),
];

const CODING_PLAN: &str = "If the key is that of a Coding Plan, the base URL must end in `/api/coding/paas/v4`. \
                           Otherwise add credit";

const FIREWALL: &str = "A firewall has answered in place of the server, so this is not about the key: try another \
                        network, or ask who runs the server";

const TOO_LARGE: &str = "Choose a smaller model, or give the server more memory";

/// Messages about an effort that the model does not support (C.4 #3).
const EFFORT_REJECTIONS: &str = include_str!("phrases/effort_rejections.txt");

/// Messages of servers that failed to parse their own model's output (C.1 #8, #23, #26; C.2 #17). Ollama's parser for
/// Qwen's coders reports only the error of its XML.
const UNREADABLE_REPLY: &str = include_str!("phrases/unreadable_reply.txt");

/// The same in words that count only within an answer: a refusal may quote a conversation about such an error.
const UNREADABLE_IN_STREAM: &str = include_str!("phrases/unreadable_in_stream.txt");

/// The beginnings of messages that quote what the model has written: llama.cpp, Ollama.
const QUOTED_REPLY: [&str; 2] = ["failed to parse input at pos", "error parsing tool call"];

/// Why the server could not be reached, and what to check.
fn unreachable_message(host: &str, fault: &ConnectionFault, proxy: Option<&str>) -> String {
    if let Some(proxy) = proxy {
        // The agent itself connects to the proxy only, and looks up no other name.
        let what = match fault {
            ConnectionFault::Refused => format!("Nothing answers at the proxy {proxy}"),
            ConnectionFault::UnknownHost => format!("The proxy {proxy} was not found"),
            ConnectionFault::Certificate(_) => return format!("Could not reach {host}: {fault}"),
            _ => format!("Could not reach {host} through the proxy {proxy}: {fault}"),
        };
        return format!(
            "{what}. Check the proxy variables of the environment, such as https_proxy, or add \
             {host} to no_proxy"
        );
    }
    match fault {
        ConnectionFault::Refused => format!("Nothing answers at {host}. Is the server running?"),
        ConnectionFault::UnknownHost => {
            format!("{host} was not found. Check the base URL and the network")
        }
        ConnectionFault::Tls(_) => format!(
            "Could not reach {host}: {fault}. Check that the base URL should begin with https, and \
             the certificates of this computer"
        ),
        ConnectionFault::Certificate(_) => format!("Could not reach {host}: {fault}"),
        _ => format!("Could not reach {host}: {fault}. Check the network and the base URL"),
    }
}

pub(crate) fn has_any(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| text.contains(phrase))
}

/// Returns true if the text of a failure, in lower case, quotes what the model has just written. A refusal of a request
/// (4xx) can only quote the conversation.
fn quotes_reply(text: &str, status: Option<u16>) -> bool {
    status.is_none_or(|code| code >= 500) && has_any(text, &QUOTED_REPLY)
}

/// The hint for a message that needs an explanation.
fn hint(message: &str) -> Option<&'static str> {
    HINTS.iter().find(|(phrase, _)| message.contains(phrase)).map(|(_, hint)| *hint)
}

/// The provider's message, followed by the next step.
fn with_advice(
    message: &str,
    kind: ErrorKind,
    wait: Option<Duration>,
    key_advice: Option<&str>,
) -> String {
    let advice = hint(message).unwrap_or(match kind {
        ErrorKind::Auth => key_advice.unwrap_or("Check the key, or run `turnwright login`"),
        ErrorKind::Quota => "Retrying won't help: check the plan and the credit of the account",
        ErrorKind::ContextOverflow { .. } => {
            "The conversation is too long: `/clear` starts a new one"
        }
        ErrorKind::ModelNotFound => "Check the model name",
        ErrorKind::UrlNotFound => "Check the base URL",
        _ => "",
    });
    let later =
        wait.filter(|wait| *wait > MAX_RETRY_WAIT).map(|wait| match wait.as_secs().div_ceil(60) {
            minutes @ ..120 => format!("Prompt again in {minutes} min"),
            minutes @ ..2880 => format!("Prompt again in {} h", minutes.div_ceil(60)),
            minutes => format!("Prompt again in {} days", (minutes / 1440).min(365)),
        });
    let mut text = message.to_owned();
    let sentences = [advice, later.as_deref().unwrap_or_default()];
    for sentence in sentences.iter().filter(|sentence| !sentence.is_empty()) {
        let start = text.trim_end_matches('.');
        let stop = if start.ends_with(['?', '!']) { "" } else { "." };
        text = format!("{start}{stop} {sentence}");
    }
    text
}

impl LlmError {
    /// An error in an answer that the server has not reported itself.
    pub fn in_stream(host: String, message: String, kind: ErrorKind) -> LlmError {
        let status = None;
        LlmError::InStream { host, message, status, retry_after: None, kind, key_advice: None }
    }

    pub fn kind(&self) -> ErrorKind {
        match self {
            LlmError::Connect { .. }
            | LlmError::Truncated { .. }
            | LlmError::TimedOut { .. }
            | LlmError::Silent { .. } => ErrorKind::Network,
            LlmError::Status { kind, .. } | LlmError::InStream { kind, .. } => *kind,
            LlmError::Malformed { .. } | LlmError::EndlessRepetition { .. } => ErrorKind::Malformed,
            LlmError::EmptyReply { .. } => ErrorKind::EmptyReply,
            LlmError::Config(_) => ErrorKind::Config,
        }
    }

    /// True if the same request may succeed a little later. A silent server does not count: the user has
    /// waited long enough.
    pub fn is_transient(&self) -> bool {
        match self {
            LlmError::Silent { .. } => false,
            LlmError::Connect { fault, .. } => !fault.is_lasting(),
            _ => self.kind().is_transient(),
        }
    }

    /// True if a server that has answered before cannot be reached, or a server still loads its model or is overloaded.
    /// It may be restarting, or the network may be down for a moment.
    pub fn is_outage(&self) -> bool {
        match self {
            LlmError::Connect { fault, has_answered, .. } => {
                *has_answered && !matches!(fault, ConnectionFault::Tls(_))
            }
            // llama.cpp and Hugging Face load, Anthropic answers 529, Gemini and others say it.
            _ => {
                let message = self.message().unwrap_or_default().to_lowercase();
                self.kind() == ErrorKind::Unavailable
                    && (self.status() == Some(529)
                        || self.status() == Some(503) && message.contains("loading")
                        || has_any(&message, &["overload", "high demand", "capacity"]))
            }
        }
    }

    /// The next step for the user after the last retry, unless the message already names one.
    pub fn next_step(&self) -> Option<&'static str> {
        let is_short = self.retry_after().is_none_or(|wait| wait <= MAX_RETRY_WAIT);
        let step = match self.kind() {
            ErrorKind::RateLimit if is_short => {
                "Wait a minute and prompt again, or choose another model"
            }
            ErrorKind::Unavailable | ErrorKind::EmptyReply => {
                "Prompt again later, or choose another model"
            }
            ErrorKind::BadRequest => {
                "Run `turnwright doctor`, which finds out what the server accepts, or choose \
                 another model"
            }
            _ => return None,
        };
        self.message().and_then(hint).is_none().then_some(step)
    }

    /// True if a request has more tokens than may be sent in a minute.
    pub fn exceeds_minute_limit(&self) -> bool {
        matches!(self.kind(), ErrorKind::ContextOverflow { .. })
            && self.message().is_some_and(|message| is_minute_limit(&message.to_lowercase()))
    }

    /// True if the failure depends on what the model generated. If it happens twice, further
    /// attempts will fail as well.
    pub fn is_reply_specific(&self) -> bool {
        let message = self.message().unwrap_or_default().to_lowercase();
        matches!(self, LlmError::EmptyReply { .. })
            || has_listed(&message, UNREADABLE_REPLY)
            || matches!(self, LlmError::InStream { .. })
                && has_listed(&message, UNREADABLE_IN_STREAM)
    }

    /// True if the message quotes what the model has written, which says nothing about the request.
    pub(super) fn quotes_reply(&self) -> bool {
        quotes_reply(&self.message().unwrap_or_default().to_lowercase(), self.status())
    }

    /// True if the model rejects the requested reasoning effort but supports others.
    pub(super) fn is_effort_rejection(&self) -> bool {
        let message = self.message().unwrap_or_default().to_lowercase();
        self.kind() == ErrorKind::BadRequest
            && !message.contains("unknown field")
            && has_any(&message, &["effort", "reasoning", "thinking"])
            && has_listed(&message, EFFORT_REJECTIONS)
    }

    /// True if the model requires a signed thought that the conversation lacks, for example because another
    /// model made the calls, or does not recognise one that it has. Without reasoning it needs none.
    pub(super) fn lacks_thought(&self) -> bool {
        let message = self.message().unwrap_or_default().to_lowercase();
        let phrases =
            ["expected `thinking`", "invalid `signature` in", "message cannot be modified"];
        has_any(&message, &phrases)
    }

    /// The delay that the provider asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            LlmError::Status { retry_after, .. } | LlmError::InStream { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }

    pub fn status(&self) -> Option<u16> {
        match self {
            LlmError::Status { status, .. } => Some(*status),
            LlmError::InStream { status, .. } => *status,
            _ => None,
        }
    }

    /// The provider's own message.
    pub fn message(&self) -> Option<&str> {
        match self {
            LlmError::Status { message, .. } | LlmError::InStream { message, .. } => Some(message),
            _ => None,
        }
    }

    /// The size of the context window in tokens, if the error reports it.
    pub fn context_window(&self) -> Option<u64> {
        let ErrorKind::ContextOverflow { limit, .. } = self.kind() else { return None };
        limit
    }

    pub fn host(&self) -> Option<&str> {
        match self {
            LlmError::Connect { host, .. }
            | LlmError::InStream { host, .. }
            | LlmError::Truncated { host }
            | LlmError::TimedOut { host, .. }
            | LlmError::Silent { host, .. }
            | LlmError::Malformed { host, .. }
            | LlmError::EndlessRepetition { host }
            | LlmError::EmptyReply { host, .. } => Some(host),
            LlmError::Status { host, .. } => Some(host),
            LlmError::Config(_) => None,
        }
    }
}
