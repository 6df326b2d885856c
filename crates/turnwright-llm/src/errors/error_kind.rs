//! Classifies the errors that servers report, by status, codes and message. Does no I/O. Each rule
//! is a row in the tests, with its number in the list of provider quirks.

use serde_json::Value;

use super::{has_any, has_listed};
use turnwright_types::text;

/// The kind of an error, which determines how to react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The key is rejected.
    Auth,
    /// The account is out of credit or its plan is used up. Retrying won't help.
    Quota,
    /// Too many requests or tokens at a time. Waiting helps.
    RateLimit,
    /// The conversation exceeds the model's context window.
    ContextOverflow {
        /// The size of the window in tokens, if the server reports it.
        limit: Option<u64>,
        /// The size of the request in tokens, if the server reports it.
        used: Option<u64>,
    },
    /// The server rejects the request as invalid.
    BadRequest,
    /// The server failed or is overloaded.
    Unavailable,
    /// The connection failed or broke.
    Network,
    /// The provider refuses to answer this request.
    Refused,
    /// The response is not one that an OpenAI-compatible server sends.
    Malformed,
    /// The reply is complete and contains neither text nor calls.
    EmptyReply,
    /// The server does not have this model.
    ModelNotFound,
    /// There is no such API at this URL.
    UrlNotFound,
    /// The configuration is unusable.
    Config,
}

impl ErrorKind {
    /// A stable identifier for programs.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Auth => "auth",
            ErrorKind::Quota => "quota",
            ErrorKind::RateLimit => "rate_limit",
            ErrorKind::ContextOverflow { .. } => "overflow",
            ErrorKind::BadRequest => "bad_request",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Network => "network",
            ErrorKind::Refused => "refused",
            ErrorKind::Malformed => "malformed",
            ErrorKind::EmptyReply => "empty",
            ErrorKind::ModelNotFound => "model_not_found",
            ErrorKind::UrlNotFound => "url_not_found",
            ErrorKind::Config => "sign_in",
        }
    }

    /// True if the same request may succeed a little later.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            ErrorKind::RateLimit
                | ErrorKind::Unavailable
                | ErrorKind::Network
                | ErrorKind::EmptyReply
        )
    }
}

/// Classifies an error with all codes and types in its body, in lower case, and its complete message. `stated` is the
/// HTTP status, or its equivalent in the body. A response that is a stream has started successfully. The first rule
/// that matches counts.
pub(crate) fn classify(
    body: &Value,
    codes: &[String],
    message: &str,
    stated: Option<u16>,
    is_in_stream: bool,
    has_retry_delay: bool,
) -> ErrorKind {
    let text = format!("{message}\n{}", codes.join("\n")).to_lowercase();
    let is_unreadable = is_in_stream && has_listed(&text, super::UNREADABLE_IN_STREAM);
    if is_unreadable || super::quotes_reply(&text, stated) {
        return ErrorKind::Unavailable;
    }
    if stated == Some(413) || has_listed(&text, OVERFLOW) {
        return super::refusals::parse_overflow(body, &text);
    }
    let kind_by_code = minimax_kind(body).or_else(|| codes.iter().find_map(|code| zai_kind(code)));
    if let Some(kind) = kind_by_code {
        return kind;
    }
    // Gateways report any error of their provider as a server failure, so the text says more.
    let is_vague =
        stated.is_none_or(|code| code == 500 || is_in_stream && (500..600).contains(&code));
    let status = if is_vague { quoted_status(&text) } else { stated };
    if status == Some(402) || is_quota_used_up(&text, has_retry_delay) {
        return ErrorKind::Quota;
    }
    if status == Some(429) {
        return ErrorKind::RateLimit;
    }
    if let Some(kind) = by_text(&text, status, is_vague) {
        return kind;
    }
    // The server has not seen the key, and another attempt often passes.
    if status == Some(403) && super::hint(message) == Some(super::FIREWALL) {
        return ErrorKind::Unavailable;
    }
    match by_status(status.or(stated)) {
        // The cause is unknown, and the request was accepted.
        ErrorKind::BadRequest if is_vague && status.is_none() && !has_listed(&text, INVALID) => {
            ErrorKind::Unavailable
        }
        // The requested path exists.
        ErrorKind::UrlNotFound if is_vague => ErrorKind::BadRequest,
        kind => kind,
    }
}

/// Returns the kind of error that the text describes, if the status does not contradict it.
fn by_text(text: &str, status: Option<u16>, is_vague: bool) -> Option<ErrorKind> {
    let may_be = |statuses: &[u16]| status.is_none_or(|code| statuses.contains(&code));
    // LiteLLM calls the first a violation of the content policy, Bedrock the second a lack of access.
    if has_any(text, &["invalid_encrypted_content", "did not allow prompt caching"]) {
        return Some(ErrorKind::BadRequest);
    }
    if may_be(&[400, 403, 422, 451]) && has_listed(text, REFUSED) {
        return Some(ErrorKind::Refused);
    }
    if has_listed(text, TRY_AGAIN) {
        return Some(ErrorKind::Unavailable);
    }
    if has_listed(text, UNFIT_MODEL) {
        return Some(ErrorKind::BadRequest);
    }
    if may_be(&[400, 403, 404, 422, 503]) && lacks_model(text, is_vague) {
        return Some(ErrorKind::ModelNotFound);
    }
    if may_be(&[400, 422]) && has_listed(text, AUTH) {
        return Some(ErrorKind::Auth);
    }
    (may_be(&[400, 403]) && has_any(text, RATE_LIMIT)).then_some(ErrorKind::RateLimit)
}

/// Returns true if the server does not have the model. In a vague error, it may only be unavailable for now.
fn lacks_model(text: &str, is_vague: bool) -> bool {
    let is_temporary =
        is_vague && has_any(text, &["try again", "temporar", "currently", "overload"]);
    has_listed(text, NO_MODEL) || !is_temporary && mentions_missing_model(text)
}

/// Returns true if a quota is used up for longer than a moment. Google and Alibaba call every limit a quota.
fn is_quota_used_up(text: &str, has_retry_delay: bool) -> bool {
    let is_lasting = !has_retry_delay
        || has_any(text, &["insufficient_quota", "limit: 0", "perday", "long context"]);
    // Alibaba's limits per minute, Cerebras's, and those of gateways in Chinese. LiteLLM calls everything that it
    // relays a `throttling_error`.
    let is_momentary = has_any(
        text,
        &["throttling.", "allocated quota exceeded", "minute limit exceeded", "每分钟"],
    );
    // The limits of Alibaba's plans.
    let plans = ["hour allocated quota", "week allocated quota", "month allocated quota"];
    has_any(text, &plans) || has_listed(text, QUOTA) && is_lasting && !is_momentary
}

/// The status of an error that the message quotes, as in `Error code: 401 - {…}`.
fn quoted_status(text: &str) -> Option<u16> {
    let phrases = ["error code: ", "status code: ", "status code ", "status: ", "http "];
    let quotes = phrases.iter().flat_map(|phrase| text.split(phrase).skip(1));
    quotes
        .filter_map(|quote| quote.get(..3)?.parse().ok())
        .find(|status| (400..500).contains(status))
}

fn by_status(status: Option<u16>) -> ErrorKind {
    match status {
        Some(401 | 403) => ErrorKind::Auth,
        // Redirects are not followed: the key must not be sent to another host.
        Some(300..=399 | 404 | 405) => ErrorKind::UrlNotFound,
        Some(429) => ErrorKind::RateLimit,
        Some(501 | 505) => ErrorKind::BadRequest,
        // Cloudflare's errors in front of a provider (520–527) are transient, too, and what Gemini drops (499).
        Some(408 | 409 | 425 | 499..=599) => ErrorKind::Unavailable,
        _ => ErrorKind::BadRequest,
    }
}

/// C.4 #27, C.1 #5, #6, #10.
const OVERFLOW: &str = include_str!("phrases/overflow.txt");

const QUOTA: &str = include_str!("phrases/quota.txt");

/// C.1 #14, C.4 #26.
const REFUSED: &str = include_str!("phrases/refused.txt");

/// The server failed to parse the model's call, LM Studio loads the model with the next request, OpenRouter sent
/// Gemini's signature to another of its two servers, which does not know it, Bedrock's or TGI's model failed (424), or
/// OpenAI is overloaded.
const TRY_AGAIN: &str = include_str!("phrases/try_again.txt");

/// The model exists, and cannot take such requests.
const UNFIT_MODEL: &str = include_str!("phrases/unfit_model.txt");

const NO_MODEL: &str = include_str!("phrases/no_model.txt");

const AUTH: &str = include_str!("phrases/auth.txt");

const RATE_LIMIT: &[&str] =
    &["rate_limit", "rate limit", "ratelimit", "too many requests", "throttling"];

/// Phrases that blame the request, for errors without a status.
const INVALID: &str = include_str!("phrases/invalid.txt");

/// True for `The model … does not exist` and similar messages.
fn mentions_missing_model(text: &str) -> bool {
    let after = text.find("model").map_or("", |at| text::first_chars(&text[at..], 160));
    let phrases = ["does not exist", "not found", "not_found", "is not available"];
    // Of models that were taken away: Gemini, Groq.
    has_any(after, &phrases) || has_any(after, &["is no longer available", "decommissioned"])
}

/// C.1 #19: MiniMax reports errors in the body, with HTTP status 200.
fn minimax_kind(body: &Value) -> Option<ErrorKind> {
    let code = body.pointer("/base_resp/status_code").and_then(super::error_body::number)?;
    Some(match code {
        0 => return None,
        1000 | 1001 | 1013 | 1024 | 1033 => ErrorKind::Unavailable,
        1002 | 1039 | 1041 => ErrorKind::RateLimit,
        1004 | 2049 => ErrorKind::Auth,
        1008 | 2056 => ErrorKind::Quota,
        1026 | 1027 => ErrorKind::Refused,
        _ => ErrorKind::BadRequest,
    })
}

/// The error numbers of z.ai and Zhipu. 1300 is left out: Mistral uses it for something else.
fn zai_kind(code: &str) -> Option<ErrorKind> {
    Some(match code {
        "1000" | "1001" | "1002" | "1003" | "1004" | "1110" | "1111" | "1112" => ErrorKind::Auth,
        "1113" | "1304" | "1308" | "1309" | "1310" | "1316" => ErrorKind::Quota,
        "1211" => ErrorKind::ModelNotFound,
        "1261" => ErrorKind::ContextOverflow { limit: None, used: None },
        "1301" => ErrorKind::Refused,
        "1302" | "1303" | "1305" => ErrorKind::RateLimit,
        "1230" | "1234" | "1312" => ErrorKind::Unavailable,
        _ => return None,
    })
}
