//! What sort of trouble a server reports, told from its status, its codes and its words. Pure;
//! each rule is a row in the tests, with the number it has among the provider quirks.

use serde_json::Value;

/// What a status, a code and a text mean, and so what is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The key is refused.
    Auth,
    /// The account is out of credit or has used up its plan. Waiting does not mend it.
    Quota,
    /// Too much at a time. Waiting mends it.
    RateLimit,
    /// The conversation does not fit into the model's window.
    Overflow {
        /// How many tokens the window holds, if the server has said it.
        limit: Option<u64>,
        /// How many the request had, if the server has said it.
        used: Option<u64>,
    },
    /// The server does not take the request as it is.
    BadRequest,
    /// The server has failed or is busy.
    Unavailable,
    /// No connection, or one that broke.
    Network,
    /// The provider will not answer this.
    Refused,
    /// The answer is none of an OpenAI-compatible server.
    Malformed,
    /// A complete answer with nothing in it.
    Empty,
    /// The server has no such model.
    ModelNotFound,
    /// There is no such API at this URL.
    UrlNotFound,
    /// The configuration cannot be used.
    Settings,
}

impl Kind {
    /// A stable word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Auth => "auth",
            Kind::Quota => "quota",
            Kind::RateLimit => "rate_limit",
            Kind::Overflow { .. } => "overflow",
            Kind::BadRequest => "bad_request",
            Kind::Unavailable => "unavailable",
            Kind::Network => "network",
            Kind::Refused => "refused",
            Kind::Malformed => "malformed",
            Kind::Empty => "empty",
            Kind::ModelNotFound => "model_not_found",
            Kind::UrlNotFound => "url_not_found",
            Kind::Settings => "sign_in",
        }
    }

    /// Whether the same request may succeed a little later.
    pub fn may_pass(self) -> bool {
        matches!(self, Kind::RateLimit | Kind::Unavailable | Kind::Network | Kind::Empty)
    }
}

/// What there is to judge from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clues<'a> {
    /// The HTTP status, or what stands in its place.
    pub(super) status: Option<u16>,
    /// The error's document.
    pub(super) body: &'a Value,
    /// All codes and types in it, in lower case.
    pub(super) codes: &'a [String],
    /// Its whole message.
    pub(super) message: &'a str,
    /// Whether it says when to try again.
    pub(super) says_when: bool,
}

/// The sort of trouble.
pub(super) fn classify(clues: Clues<'_>) -> Kind {
    let words = format!("{}\n{}", clues.message, clues.codes.join("\n")).to_lowercase();
    let has = |phrases: &[&str]| phrases.iter().any(|it| words.contains(it));
    let is = |statuses: &[u16]| clues.status.is_none_or(|it| statuses.contains(&it));
    if clues.status == Some(413) || has(OVERFLOW) {
        return super::overflow::read(clues.body, &words);
    }
    if let Some(kind) = minimax(clues.body).or_else(|| clues.codes.iter().find_map(|it| zai(it))) {
        return kind;
    }
    // Google and Alibaba call every limit a quota.
    let is_lasting = !clues.says_when || has(&["insufficient_quota", "limit: 0", "perday"]);
    if clues.status == Some(402) || has(QUOTA) && is_lasting && !has(&["throttling"]) {
        return Kind::Quota;
    }
    if clues.status == Some(429) {
        return Kind::RateLimit;
    }
    if is(&[400, 403, 422, 451]) && has(REFUSED) {
        return Kind::Refused;
    }
    // The model has made a call that the server cannot read; another try may be better.
    if has(&["tool_use_failed"]) {
        return Kind::Unavailable;
    }
    if has(NO_TOOLS) {
        return Kind::BadRequest;
    }
    if is(&[400, 403, 404, 422, 503]) && (has(NO_MODEL) || names_no_model(&words)) {
        return Kind::ModelNotFound;
    }
    if is(&[400, 403]) && has(&["unsupported_country"]) {
        return Kind::BadRequest;
    }
    if is(&[400, 422]) && has(AUTH) {
        return Kind::Auth;
    }
    if is(&[400, 403]) && has(RATE_LIMIT) {
        return Kind::RateLimit;
    }
    by_status(clues.status)
}

fn by_status(status: Option<u16>) -> Kind {
    match status {
        Some(401 | 403) => Kind::Auth,
        // A redirect is not followed: the key must not travel.
        Some(300..=399 | 404 | 405) => Kind::UrlNotFound,
        Some(429) => Kind::RateLimit,
        Some(501 | 505) => Kind::BadRequest,
        // What Cloudflare says in front of a provider (520–527) passes, too.
        Some(408 | 409 | 425 | 500..=599) => Kind::Unavailable,
        _ => Kind::BadRequest,
    }
}

/// C.4 #27, C.1 #5, #6, #10.
const OVERFLOW: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "context_window_exceeded",
    "contextwindowexceeded",
    "maximum context length",
    "max context length",
    "maximum prompt length",
    "maximum model length",
    "model's context length",
    "prompt is too long",
    "prompt too long",
    "prompt exceeds max length",
    "input is too long",
    "input length exceeds",
    "range of input length should be",
    "exceed context limit",
    "exceeds the available context size",
    "context size has been exceeded",
    "exceeds the context window",
    "context window exceeds limit",
    "exceeds the maximum number of tokens",
    "greater than the context length",
    "loaded with context length",
    "exceeded model token limit",
    "prompt token count of",
    "`inputs` tokens + `max_new_tokens`",
    "request too large",
    "request_too_large",
];

const QUOTA: &[&str] = &[
    "insufficient_quota",
    "insufficient quota",
    "insufficient_user_quota",
    "exceeded_current_quota",
    "exceeded your current quota",
    "quota exceeded",
    "quota_exceeded",
    "insufficient balance",
    "insufficient_balance",
    "balance is too low",
    "balance is not enough",
    "余额不足",
    "arrearage",
    "in arrears",
    "account is in good standing",
    "insufficient credit",
    "more credits",
    "credit balance",
    "all available credits",
    "out of credit",
    "spending limit",
    "billing details",
    "billing_not_active",
    "billing_hard_limit",
    "payment required",
    "usage limit",
    "freetieronly",
    "free tier of the model has been exhausted",
];

/// C.1 #14, C.4 #26.
const REFUSED: &[&str] = &[
    "content_filter",
    "content management policy",
    "responsibleaipolicyviolation",
    "data_inspection_failed",
    "datainspectionfailed",
    "inappropriate content",
    "high risk",
    "content exists risk",
    "content_policy",
    "usage policy",
    "usage guidelines",
    "input was flagged",
    "sensitive content",
    "unsafe content",
    "prohibited_content",
    "moderation_blocked",
];

/// C.5: Ollama, OpenRouter, vLLM, llama.cpp.
const NO_TOOLS: &[&str] =
    &["does not support tools", "support tool use", "--enable-auto-tool-choice", "--jinja"];

const NO_MODEL: &[&str] = &[
    "model_not_found",
    "model not found",
    "modelnotfound",
    "model not exist",
    "not a valid model",
    "unknown model",
    "invalid model",
    "no such model",
    "try pulling it",
    "no models loaded",
    "deploymentnotfound",
    "invalidendpointormodel",
    "is not found for api version",
    "no endpoints found",
];

const AUTH: &[&str] = &[
    "invalid_api_key",
    "invalid api key",
    "invalid api-key",
    "invalidapikey",
    "incorrect api key",
    "api key not valid",
    "api_key_invalid",
    "invalid x-api-key",
    "authentication_error",
    "invalid authentication",
    "unauthorized",
];

const RATE_LIMIT: &[&str] =
    &["rate_limit", "rate limit", "ratelimit", "too many requests", "throttling"];

/// `The model … does not exist` and the like.
fn names_no_model(words: &str) -> bool {
    let Some(at) = words.find("model") else { return false };
    let after: String = words[at..].chars().take(160).collect();
    ["does not exist", "not found", "is not available"].iter().any(|it| after.contains(it))
}

/// C.1 #19: MiniMax says at HTTP 200 what went wrong.
fn minimax(body: &Value) -> Option<Kind> {
    let code = body.pointer("/base_resp/status_code").and_then(super::failure::number)?;
    Some(match code {
        0 => return None,
        1000 | 1001 | 1013 | 1024 | 1033 => Kind::Unavailable,
        1002 | 1039 | 1041 => Kind::RateLimit,
        1004 | 2049 => Kind::Auth,
        1008 | 2056 => Kind::Quota,
        1026 | 1027 => Kind::Refused,
        _ => Kind::BadRequest,
    })
}

/// z.ai and Zhipu number their errors. 1300 is left out: Mistral uses it for something else.
fn zai(code: &str) -> Option<Kind> {
    Some(match code {
        "1000" | "1001" | "1002" | "1003" | "1004" | "1110" | "1111" | "1112" => Kind::Auth,
        "1113" | "1304" | "1308" | "1309" | "1310" | "1316" => Kind::Quota,
        "1211" => Kind::ModelNotFound,
        "1261" => Kind::Overflow { limit: None, used: None },
        "1301" => Kind::Refused,
        "1302" | "1303" | "1305" => Kind::RateLimit,
        "1230" | "1234" | "1312" => Kind::Unavailable,
        _ => return None,
    })
}
