//! Errors as servers send them: the message in each shape, and its kind. The numbers refer to the
//! list of provider quirks.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use serde_json::json;

use super::error_body::{self, ErrorReport};
use crate::ErrorKind;

mod chinese;
mod overflows;
mod plain_words;

fn parse(body: &str, status: Option<u16>, header_delay: Option<Duration>) -> ErrorReport {
    error_body::parse(body, status, header_delay, SystemTime::UNIX_EPOCH)
}

#[test]
fn the_message_is_found_in_each_shape() {
    let table = [
        (r#"{"error":{"message":"a","type":"t","code":null}}"#, "a"),
        (r#"{"code":"Client specified an invalid argument","error":"a"}"#, "a"),
        (r#"{"error":"Bad Request","message":"a","statusCode":400}"#, "a"),
        (r#"{"error":{"type":"x"},"message":"a"}"#, "a"),
        (r#"{"error":"","message":"a"}"#, "a"),
        (r#"{"object":"error","message":"a","code":"3280"}"#, "a"),
        (r#"{"message":{"detail":[{"msg":"a"}]}}"#, "a"),
        (r#"{"detail":"a"}"#, "a"),
        (r#"{"detail":[{"loc":["body"],"msg":"a"}]}"#, "a"),
        (r#"{"detail":[{"loc":["body","messages",4,"x"],"msg":"a"}]}"#, "a (messages.4.x)"),
        (r#"{"success":false,"errors":[{"code":1,"message":"a"}]}"#, "a"),
        (r#"[{"error":{"code":400,"message":"a"}}]"#, "a"),
        (r#"{"choices":null,"base_resp":{"status_code":1008,"status_msg":"a"}}"#, "a"),
        (r#"{"error":{"message":"a","metadata":{"raw":"b","provider_name":"c"}}}"#, "a (c): b"),
        (r#"{"error":{"message":"a","metadata":{"raw":"{\"error\":\"b\"}"}}}"#, "a: b"),
        (r#""a""#, "a"),
        (r#"{"code":5}"#, r#"{"code":5}"#),
        ("a\n  b\r\n", "a b"),
        ("", "no explanation"),
        (" \n", "no explanation"),
        ("<html><title>502\nBad Gateway</title>", "an HTML page instead of JSON (502 Bad Gateway)"),
        ("<html><title></title>", "an HTML page instead of JSON (no title)"),
        ("<html><title>cut", "an HTML page instead of JSON (cut)"),
        ("</title><p>x", "an HTML page instead of JSON (no title)"),
    ];
    for (body, expected) in table {
        assert_eq!(parse(body, None, None).message, expected, "{body}");
    }
}

#[test]
fn a_long_message_is_shortened() {
    let words = "ä".repeat(100_000);
    let page = format!("<title>{words}</title>");
    let object = serde_json::json!({ "error": { "message": words } }).to_string();
    for body in [words, page, object] {
        let message = parse(&body, None, None).message;
        assert_eq!(message.chars().count(), 501);
        assert!(message.ends_with('…'));
    }
}

fn kind(status: u16, body: &str) -> ErrorKind {
    // Errors in a stream come with HTTP 200, so the only status is that in the body.
    parse(body, Some(status).filter(|status| *status != 200), None).kind
}

#[track_caller]
fn check(expected: ErrorKind, rows: &[(&str, u16, &str)]) {
    for (source, status, body) in rows {
        assert_eq!(kind(*status, body), expected, "{source}: {status} {body}");
    }
}

/// C.1 #39.
#[test]
fn an_exhausted_quota_is_not_a_rate_limit() {
    let rows = [
        (
            "OpenAI",
            429,
            r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        ),
        (
            "LiteLLM, of its provider",
            429,
            r#"{"error":{"message":"litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota, please check your plan and billing details.","type":"throttling_error","param":null,"code":"429"}}"#,
        ),
        (
            "LiteLLM, of its own budget",
            400,
            r#"{"error":{"message":"Budget has been exceeded! Current cost: 0.02, Max budget: 0.01","type":"budget_exceeded","param":null,"code":"400"}}"#,
        ),
        (
            "LiteLLM, of the user's budget",
            429,
            r#"{"error":{"message":"ExceededBudget: User=u over budget. Spend=0.02, Budget=0.01","type":"throttling_error","code":"429"}}"#,
        ),
        ("402", 402, "Pay."),
        ("C.1 #4", 200, r#"{"error":{"message":"quota exceeded"}}"#),
        (
            "in a stream",
            200,
            r#"{"error":{"code":429,"type":"insufficient_quota","message":"Quota is spent."}}"#,
        ),
        ("DeepSeek", 402, r#"{"error":{"message":"Insufficient Balance","type":"unknown_error"}}"#),
        (
            "DashScope",
            400,
            r#"{"error":{"code":"Arrearage","message":"Access denied, please make sure your account is in good standing.","type":"Arrearage"}}"#,
        ),
        (
            "DashScope",
            403,
            r#"{"code":"AllocationQuota.FreeTierOnly","message":"The free tier of the model has been exhausted."}"#,
        ),
        (
            "OpenRouter",
            402,
            r#"{"error":{"code":402,"message":"This request requires more credits, or fewer max_tokens."}}"#,
        ),
        ("OpenRouter", 200, r#"{"error":{"code":402,"message":"Insufficient credits"}}"#),
        (
            "Moonshot",
            429,
            r#"{"error":{"message":"Your account is suspended, please check your plan and billing details","type":"exceeded_current_quota_error"}}"#,
        ),
        (
            "z.ai",
            429,
            r#"{"error":{"code":"1113","message":"Your account is in arrears, please recharge and try again"}}"#,
        ),
        (
            "z.ai",
            429,
            r#"{"error":{"code":"1308","message":"Limit reached. It will reset at 2026-01-02 03:04:05"}}"#,
        ),
        (
            "MiniMax",
            200,
            r#"{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#,
        ),
        (
            "Anthropic",
            400,
            r#"{"error":{"message":"Your credit balance is too low to access the API."}}"#,
        ),
        (
            "xAI",
            429,
            r#"{"error":"Your team has either used all available credits or reached its monthly spending limit."}"#,
        ),
        ("a gateway", 403, r#"{"error":{"code":"insufficient_user_quota","message":"no"}}"#),
        (
            "Gemini, per day",
            429,
            r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota.\nPlease retry in 58.8s.","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},{"retryDelay":"58s"}]}}]"#,
        ),
        (
            "Gemini, not in the plan",
            429,
            r#"{"error":{"code":429,"message":"You exceeded your current quota. * Quota exceeded for metric: x, limit: 0, model: m\nPlease retry in 45.5s."}}"#,
        ),
    ];
    check(ErrorKind::Quota, &rows);
}

/// Some of them have status 403.
#[test]
fn a_spent_account_is_not_a_wrong_key() {
    let rows = [
        (
            "OpenRouter, of the key's own limit",
            403,
            r#"{"error":{"message":"Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys","code":403}}"#,
        ),
        (
            "xAI",
            403,
            r#"{"code":"The caller does not have permission to execute the specified operation","error":"Your newly created team doesn't have any credits yet. You can purchase credits on https://console.x.ai."}"#,
        ),
        (
            "xAI's free plan",
            429,
            r#"{"code":"subscription:free-usage-exhausted","error":"You've used all the included free usage"}"#,
        ),
        (
            "SiliconFlow",
            403,
            r#"{"code":30001,"message":"Sorry, your account balance is insufficient","data":null}"#,
        ),
        ("sub2api", 403, r#"{"message":"Insufficient account balance"}"#),
        (
            "Ark",
            403,
            r#"{"error":{"code":"AccountOverdueError","message":"The request failed because your account has an overdue balance.","type":"Forbidden"}}"#,
        ),
        (
            "Ark's coding plan",
            429,
            r#"{"error":{"code":"AccountQuotaExceeded","message":"You have exceeded the 5-hour usage quota.","type":"TooManyRequests"}}"#,
        ),
        (
            "Workers AI",
            429,
            r#"{"errors":[{"message":"AiError: you have used up your daily free allocation of 10,000 neurons, please upgrade.","code":4006}]}"#,
        ),
        ("a gateway", 401, r#"{"error":{"type":"CreditsError","message":"Insufficient balance"}}"#),
        (
            "OpenRouter, without its header",
            429,
            r#"{"error":{"message":"Rate limit exceeded: free-models-per-day.","code":429}}"#,
        ),
        (
            "Anthropic, of a plan without the whole window",
            429,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"Extra usage is required for long context requests."}}"#,
        ),
        (
            "the same for some keys",
            400,
            r#"{"error":{"type":"invalid_request_error","message":"The long context beta is not yet available for this subscription."}}"#,
        ),
    ];
    check(ErrorKind::Quota, &rows);
}

#[test]
fn rate_limits_are_recognised() {
    let rows = [
        (
            "OpenAI",
            429,
            r#"{"error":{"message":"Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.","type":"tokens","code":"rate_limit_exceeded"}}"#,
        ),
        ("429", 429, ""),
        (
            "Gemini, per minute",
            429,
            r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota. * Quota exceeded for metric: x, limit: 15\nPlease retry in 34.07s."}}]"#,
        ),
        ("C.1 #4", 200, r#"{"error":{"message":"wait","type":"rate_limit_error"}}"#),
        ("C.1 #3", 200, r#"{"choices":[],"error":{"code":"429","message":"slow down"}}"#),
        (
            "DashScope",
            429,
            r#"{"code":"Throttling.AllocationQuota","message":"Allocated quota exceeded, please increase your quota limit."}"#,
        ),
        (
            "LiteLLM",
            429,
            r#"{"error":{"message":"litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit reached for requests","type":"throttling_error","param":null,"code":"429"}}"#,
        ),
        (
            "DashScope behind LiteLLM",
            429,
            r#"{"error":{"message":"litellm.RateLimitError: DashscopeException - Allocated quota exceeded, please increase your quota limit.","type":"throttling_error","code":"429"}}"#,
        ),
        (
            "Moonshot",
            429,
            r#"{"error":{"message":"request reached organization max RPM: 3, please try again after 1 seconds","type":"rate_limit_reached_error"}}"#,
        ),
        (
            "Mistral",
            429,
            r#"{"object":"error","message":"Requests rate limit exceeded","type":"rate_limited","code":"1300"}"#,
        ),
        (
            "z.ai",
            429,
            r#"{"error":{"code":"1302","message":"High concurrency usage of this API"}}"#,
        ),
        ("MiniMax", 200, r#"{"base_resp":{"status_code":1002,"status_msg":"rate limit"}}"#),
        ("MiniMax", 200, r#"{"base_resp":{"status_code":1039,"status_msg":"token limit"}}"#),
        ("a gateway", 400, r#"{"error":{"message":"litellm.RateLimitError: Too many requests"}}"#),
    ];
    check(ErrorKind::RateLimit, &rows);
}

#[test]
fn the_limits_of_a_minute_are_told_from_those_of_a_plan() {
    let minute = [
        (
            "Cerebras",
            429,
            r#"{"message":"Tokens per minute limit exceeded - too many tokens processed.","type":"too_many_tokens_error","param":"quota","code":"token_quota_exceeded"}"#,
        ),
        (
            "Cerebras",
            429,
            r#"{"message":"Requests per minute limit exceeded - too many requests sent.","type":"too_many_requests_error","param":"quota","code":"request_quota_exceeded"}"#,
        ),
        (
            "Alibaba",
            429,
            r#"{"error":{"message":"concurrency allocated quota exceeded","code":"429"}}"#,
        ),
    ];
    check(ErrorKind::RateLimit, &minute);
    let plan = [
        (
            "Alibaba's coding plan",
            429,
            r#"{"error":{"message":"hour allocated quota exceeded","code":"429"}}"#,
        ),
        (
            "Alibaba's coding plan",
            429,
            r#"{"error":{"message":"week allocated quota exceeded","code":"Throttling.AllocationQuota"}}"#,
        ),
        (
            "Alibaba's token plan",
            429,
            r#"{"error":{"message":"Your token-plan 1-week quota has been exhausted. The quota will reset at 08-14 09:18:00 UTC."}}"#,
        ),
    ];
    check(ErrorKind::Quota, &plan);
}

/// C.1 #14, C.4 #26.
#[test]
fn a_content_filter_is_a_refusal_with_its_categories() {
    let azure = r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"hate":{"filtered":false,"severity":"safe"},"jailbreak":{"filtered":true,"detected":true},"violence":{"filtered":true,"severity":"high"}}}}}"#;
    let rows = [
        ("C.1 #14 Azure", 400, azure),
        (
            "C.4 #26 DashScope",
            400,
            r#"{"error":{"code":"data_inspection_failed","message":"Input data may contain inappropriate content."}}"#,
        ),
        ("C.4 #26 DashScope", 200, r#"{"code":"DataInspectionFailed","message":"no"}"#),
        (
            "C.4 #26 Moonshot",
            400,
            r#"{"error":{"message":"The request was rejected because it was considered high risk","type":"content_filter"}}"#,
        ),
        (
            "DeepSeek",
            400,
            r#"{"error":{"message":"Content Exists Risk","type":"invalid_request_error"}}"#,
        ),
        (
            "z.ai",
            400,
            r#"{"error":{"code":"1301","message":"System detected potentially unsafe or sensitive content in input or generation."}}"#,
        ),
        (
            "MiniMax",
            200,
            r#"{"base_resp":{"status_code":1026,"status_msg":"input new_sensitive"}}"#,
        ),
        (
            "MiniMax",
            200,
            r#"{"base_resp":{"status_code":1027,"status_msg":"output new_sensitive"}}"#,
        ),
        (
            "xAI",
            403,
            r#"{"code":"The caller does not have permission","error":"Content violates usage guidelines."}"#,
        ),
        (
            "OpenRouter",
            403,
            r#"{"error":{"code":403,"message":"Your input was flagged for violence"}}"#,
        ),
    ];
    check(ErrorKind::Refused, &rows);
    let message = parse(azure, Some(400), None).message;
    assert!(
        message.ends_with("content management policy. (jailbreak, violence: high)"),
        "{message}"
    );
}

#[test]
fn a_rejected_key_is_recognised() {
    let rows = [
        ("401", 401, "Unauthorized"),
        ("403", 403, r#"{"error":{"message":"Access denied."}}"#),
        (
            "Gemini",
            400,
            r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#,
        ),
        (
            "LiteLLM without a database",
            400,
            r#"{"error":{"message":"No connected db.","type":"no_db_connection","param":null,"code":"400"}}"#,
        ),
        (
            "LiteLLM",
            400,
            r#"{"error":{"message":"Authentication Error, Expired Key - Got Expired Key=sk-1","type":"expired_key","code":"400"}}"#,
        ),
        ("z.ai", 401, r#"{"error":{"code":"1002","message":"Invalid Authentication Token"}}"#),
        ("z.ai", 200, r#"{"error":{"code":"1004","message":"no"}}"#),
        ("MiniMax", 200, r#"{"base_resp":{"status_code":1004,"status_msg":"login fail"}}"#),
    ];
    check(ErrorKind::Auth, &rows);
}

#[test]
fn an_unknown_model_is_distinguished_from_an_unknown_path() {
    let rows = [
        (
            "OpenAI",
            404,
            r#"{"error":{"message":"The model `m` does not exist or you do not have access to it.","code":"model_not_found"}}"#,
        ),
        (
            "OpenAI",
            403,
            r#"{"error":{"message":"Project p does not have access to model m","code":"model_not_found"}}"#,
        ),
        (
            "C.5 Ollama",
            404,
            r#"{"error":{"message":"model 'm' not found, try pulling it first","type":"api_error"}}"#,
        ),
        ("Ollama", 404, r#"{"error":"model \"m\" not found"}"#),
        (
            "vLLM",
            404,
            r#"{"object":"error","message":"The model `m` does not exist.","type":"NotFoundError","code":404}"#,
        ),
        ("DeepSeek", 400, r#"{"error":{"message":"Model Not Exist"}}"#),
        ("OpenRouter", 400, r#"{"error":{"message":"m is not a valid model ID","code":400}}"#),
        (
            "Mistral",
            400,
            r#"{"object":"error","message":"Invalid model: m","type":"invalid_model","code":"1500"}"#,
        ),
        (
            "Gemini",
            404,
            r#"[{"error":{"code":404,"message":"models/m is not found for API version v1main","status":"NOT_FOUND"}}]"#,
        ),
        (
            "Azure",
            404,
            r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}"#,
        ),
        ("z.ai", 400, r#"{"error":{"code":"1211","message":"Unknown"}}"#),
        (
            "Gemini, of a retired one",
            404,
            r#"[{"error":{"code":404,"message":"This model models/gemini-3-pro-preview is no longer available. Please update your code to use a newer model.","status":"NOT_FOUND"}}]"#,
        ),
        (
            "Gemini, of one that the key may not use",
            404,
            r#"{"error":{"code":404,"message":"Requested entity was not found.","status":"NOT_FOUND"}}"#,
        ),
        (
            "Anthropic",
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-sonnet-4-20250514"}}"#,
        ),
        (
            "Groq",
            400,
            r#"{"error":{"message":"The model `qwen-2.5-32b` has been decommissioned and is no longer supported.","type":"invalid_request_error","code":"model_decommissioned"}}"#,
        ),
    ];
    check(ErrorKind::ModelNotFound, &rows);
    let rows = [
        ("404", 404, "404 page not found"),
        ("405", 405, ""),
        (
            "Anthropic",
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"Not Found"}}"#,
        ),
        ("a redirect", 302, ""),
        ("a page", 404, "<html><title>Not Found</title>"),
    ];
    check(ErrorKind::UrlNotFound, &rows);
}

/// Ollama and LM Studio: no later attempt helps, and the URL is right.
#[test]
fn a_model_that_does_not_fit_into_memory_is_no_wrong_url_and_not_retried() {
    let rows = [
        (
            "Ollama",
            500,
            r#"{"error":{"message":"model requires more system memory (9.3 GiB) than is available (5.9 GiB)","type":"api_error"}}"#,
        ),
        (
            "LM Studio",
            404,
            r#"{"error":{"message":"Failed to load model \"m\". Error: Model loading was stopped due to insufficient system resources.","type":"invalid_request_error"}}"#,
        ),
        ("llama.cpp", 500, r#"{"error":"unable to load model: /models/blobs/sha256-1"}"#),
    ];
    check(ErrorKind::BadRequest, &rows);
}

#[test]
fn server_failures_are_recognised() {
    let rows = [
        ("500", 500, "oops"),
        ("Anthropic", 529, r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#),
        ("Cloudflare", 522, "<html><title>522</title>"),
        ("408", 408, ""),
        ("Gemini", 499, r#"[{"error":{"code":499,"message":"The operation was cancelled."}}]"#),
        ("Gemini", 200, r#"{"error":{"code":499,"message":"The operation was cancelled."}}"#),
        ("a gateway", 500, "Error code: 499 - The operation was cancelled"),
        ("TGI", 424, r#"{"error":"Request failed during generation: Server error: "}"#),
        ("Bedrock", 424, "The system encountered an unexpected error during processing."),
        ("C.1 #3", 200, r#"{"error":{"code":502,"message":"Provider returned error"}}"#),
        (
            "C.1 #20",
            200,
            r#"[{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}]"#,
        ),
        ("z.ai", 200, r#"{"error":{"code":"1234","message":"Network error"}}"#),
        (
            "C.1 #23 Groq",
            400,
            r#"{"error":{"message":"Failed to call a function.","code":"tool_use_failed","failed_generation":"<function=f>"}}"#,
        ),
        ("MiniMax", 200, r#"{"base_resp":{"status_code":1013,"status_msg":"unknown error"}}"#),
        ("Groq", 200, r#"{"error":{"message":"Tool call validation failed: no","code":400}}"#),
        ("vLLM", 200, r#"{"error":{"message":"Unknown role: assistantassistant","code":400}}"#),
        ("vLLM", 200, r#"{"error":{"message":"list index out of range","code":400}}"#),
        ("LM Studio, which loads it then", 400, r#"{"error":"Model is unloaded."}"#),
        (
            "OpenRouter, which has switched between Gemini's servers",
            400,
            r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\n  \"error\": {\n    \"code\": 400,\n    \"message\": \"Corrupted thought signature.\",\n    \"status\": \"INVALID_ARGUMENT\"\n  }\n}\n","provider_name":"Google AI Studio"}},"user_id":"u"}"#,
        ),
        ("a gateway", 200, r#"{"error":"Internal server error"}"#),
        ("a gateway", 200, r#"{"error":{"message":"Overloaded"}}"#),
        ("a gateway", 200, r#"{"error":{"message":"Stream idle timeout"}}"#),
        ("Ollama", 200, r#"{"error":"unexpected EOF"}"#),
        ("Anthropic", 200, r#"{"type":"error","error":{"type":"api_error","message":"No."}}"#),
        ("in a stream", 200, "the model crashed"),
        (
            "a full server",
            200,
            r#"{"error":{"type":"server_error","message":"The model is not available at the moment, try again"}}"#,
        ),
    ];
    check(ErrorKind::Unavailable, &rows);
}

/// Ollama and llama.cpp quote the call that they cannot parse, such as one that writes code for errors.
#[test]
fn the_kind_of_an_error_does_not_depend_on_the_words_of_the_model_in_it() {
    for written in [
        "if code == 'context_length_exceeded' or 'rate_limit' in text:",
        "raise Error('Error code: 401 - invalid_api_key')",
        "assert 'insufficient_quota' in str(error)",
        "refused = 'content_filter'",
        "# the model does not exist",
    ] {
        for message in [
            format!("error parsing tool call: raw='{written}', err=invalid character"),
            format!("Failed to parse input at pos 9: {written}"),
        ] {
            let body = json!({ "error": { "message": message } }).to_string();
            assert_eq!(kind(500, &body), ErrorKind::Unavailable, "{message}");
            assert_eq!(kind(200, &body), ErrorKind::Unavailable, "{message} in a stream");
        }
    }
}

#[test]
fn a_firewall_before_the_server_has_not_refused_the_key() {
    for body in [
        "error code: 1010",
        "error code: 1020",
        "<!DOCTYPE html><html><head><title>Just a moment...</title></head>",
        "<html><title>Attention Required! | Cloudflare</title>",
        "<html><title>Access denied | api.example.com used Cloudflare to restrict access</title>",
    ] {
        let report = parse(body, Some(403), None);
        assert_eq!(report.kind, ErrorKind::Unavailable, "{body}");
        assert!(super::hint(&report.message).unwrap().contains("not about the key"), "{body}");
    }
    // A gateway, or the server itself, may have looked at the key.
    for (status, body) in [
        (401, "<html><title>Just a moment...</title>"),
        (403, "<html>\r\n<head><title>403 Forbidden</title></head>"),
        (403, "<!DOCTYPE html><html lang=en><title>Error 403 (Forbidden)!!1</title>"),
        (403, "<?xml version=\"1.0\"?><Error><Code>InvalidAccessKeyId</Code></Error>"),
        (403, "Request forbidden by administrative rules."),
        (403, ""),
    ] {
        assert_eq!(kind(status, body), ErrorKind::Auth, "{body}");
    }
    let page = parse("<title>403 Forbidden</title>", Some(403), None).message;
    assert!(super::hint(&page).unwrap().contains("Check the key"), "{page}");
}

/// A server that refuses a request may quote the conversation, which is about these errors here.
#[test]
fn a_refusal_that_quotes_the_conversation_keeps_its_kind() {
    let quote = "Ollama says: error parsing tool call: raw='{', err=";
    for (status, message, expected) in [
        (401, "Incorrect API key provided", ErrorKind::Auth),
        (402, "Insufficient credits", ErrorKind::Quota),
        (413, "Too large", ErrorKind::ContextOverflow { limit: None, used: None }),
        (422, "Input should be a valid string", ErrorKind::BadRequest),
        (429, "Slow down", ErrorKind::RateLimit),
    ] {
        let body = json!({ "error": { "message": format!("{message}: {quote}") } }).to_string();
        assert_eq!(kind(status, &body), expected, "{message}");
    }
}

/// Gateways wrap what their provider has answered into an error of their own.
#[test]
fn a_lasting_failure_is_told_by_its_text_within_a_stream() {
    let wrapped = |message: &str| {
        let error = json!({ "code": "server_error", "type": "server_error", "message": message });
        json!({ "error": error }).to_string()
    };
    for (expected, message) in [
        (ErrorKind::Auth, "Incorrect API key provided: sk-x. Find yours at the platform."),
        (ErrorKind::Auth, "Error code: 401 - {'error': {'message': 'No.'}}"),
        (ErrorKind::Auth, "upstream: HTTP 403 Forbidden"),
        (ErrorKind::ModelNotFound, "The model `m` does not exist."),
        (ErrorKind::ModelNotFound, "Error code: 404 - {'detail': \"model 'm' not found\"}"),
        (ErrorKind::Refused, "The response was filtered: content management policy."),
        (ErrorKind::BadRequest, "Error code: 400 - {'error': 'tools[0] is wrong'}"),
        (ErrorKind::BadRequest, "Error code: 404 - {'detail': 'Not Found'}"),
        (ErrorKind::Quota, "Error code: 429 - You exceeded your current quota"),
        (ErrorKind::RateLimit, "Error code: 429 - Slow down."),
        (ErrorKind::Unavailable, "Error code: 503 - Busy."),
        (ErrorKind::Unavailable, "The server had an error while processing your request."),
    ] {
        assert_eq!(kind(200, &wrapped(message)), expected, "{message}");
    }
    // A bare 500 says as little. The other statuses are those of proxies and of full servers.
    assert_eq!(kind(500, &wrapped("Error code: 401")), ErrorKind::Auth);
    assert_eq!(kind(502, &wrapped("Error code: 401")), ErrorKind::Unavailable);
}

#[test]
fn anything_else_is_a_bad_request() {
    let rows = [
        ("400", 400, "No."),
        ("of a conversation or a template", 400, r#"{"message":"list index out of range"}"#),
        (
            "OpenAI, of too many tools",
            400,
            r#"{"error":{"message":"Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 217 instead.","code":"array_above_max_length"}}"#,
        ),
        (
            "C.1 #22",
            422,
            r#"{"detail":[{"loc":["body","x"],"msg":"Extra inputs are not permitted","input":"insufficient_quota, context_length_exceeded"}]}"#,
        ),
        (
            "C.1 #21",
            400,
            r#"{"code":"Client specified an invalid argument","error":"Model m does not support parameter reasoningEffort."}"#,
        ),
        (
            "C.5 Ollama",
            400,
            r#"{"error":{"message":"registry.ollama.ai/library/m does not support tools"}}"#,
        ),
        (
            "C.5 vLLM",
            400,
            r#"{"message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"}"#,
        ),
        ("C.5 llama.cpp", 500, r#"{"error":{"message":"tools param requires --jinja flag"}}"#),
        ("OpenRouter", 404, r#"{"error":{"message":"No endpoints found that support tool use."}}"#),
        (
            "OpenRouter",
            404,
            r#"{"error":{"message":"No endpoints found matching your data policy"}}"#,
        ),
        (
            "OpenRouter",
            404,
            r#"{"error":{"message":"No allowed providers are available for the selected model."}}"#,
        ),
        (
            "OpenRouter, whose newer words name no model",
            404,
            r#"{"error":{"message":"No endpoints available matching your guardrail restrictions and data policy. Configure: https://openrouter.ai/settings/privacy"}}"#,
        ),
        ("MiniMax", 200, r#"{"base_resp":{"status_code":2013,"status_msg":"invalid params"}}"#),
        (
            "OpenAI",
            403,
            r#"{"error":{"code":"unsupported_country_region_territory","message":"no"}}"#,
        ),
        (
            "codex#9045, LiteLLM before Azure",
            400,
            r#"{"error":{"message":"litellm.ContentPolicyViolationError: AzureException - {\"error\": {\"message\": \"The encrypted content gAAA could not be verified.\", \"code\": \"invalid_encrypted_content\"}}. content_policy_fallback=None."}}"#,
        ),
        (
            "litellm PR#39210, Bedrock",
            403,
            r#"{"error":{"message":"BedrockException - {\"message\":\"You invoked an unsupported model or your request did not allow prompt caching. See the documentation for more information.\"}"}}"#,
        ),
        (
            "OpenAI",
            404,
            r#"{"error":{"message":"This model is only supported in v1/responses and not in v1/chat/completions.","type":"invalid_request_error","param":"model","code":null}}"#,
        ),
        (
            "OpenAI",
            404,
            r#"{"error":{"message":"Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'.","param":"reasoning_effort"}}"#,
        ),
        (
            "Azure",
            404,
            r#"{"error":{"message":"The chatCompletion operation does not work with the specified model, codex-mini."}}"#,
        ),
        ("501", 501, ""),
        ("in a stream", 200, r#"{"error":{"type":"invalid_request_error","message":"No."}}"#),
        ("in a stream", 200, r#"{"error":"Unsupported value: 'stop'"}"#),
        ("in a stream", 200, r#"{"detail":"Not Found"}"#),
    ];
    check(ErrorKind::BadRequest, &rows);
}

#[test]
fn a_delay_counts_only_for_statuses_that_may_ask_for_one() {
    let body = r#"{"error":{"message":"Please try again in 20s."}}"#;
    let told = Some(Duration::from_secs(7));
    for (status, headers, expected) in [
        (Some(429), None, Some(20)),
        (Some(429), told, Some(7)),
        (Some(503), told, Some(7)),
        (Some(529), told, Some(7)),
        (Some(500), told, None),
        (Some(400), told, None),
        (None, None, None),
    ] {
        let got = parse(body, status, headers).retry_after;
        assert_eq!(got, expected.map(Duration::from_secs), "{status:?}");
    }
    let in_stream = r#"{"error":{"type":"rate_limit_error","message":"Try again in 5 seconds"}}"#;
    assert_eq!(parse(in_stream, None, None).retry_after, Some(Duration::from_secs(5)));
}

/// C.5.
#[test]
fn errors_name_the_next_step() {
    let table = [
        (400, "m does not support tools", "choose another model"),
        (400, "requires --enable-auto-tool-choice", "Start vLLM with both options"),
        (500, "tools param requires --jinja flag", "Start llama-server with this option"),
        (404, "model 'm' not found, try pulling it first", "Check the model name"),
        (404, "404 page not found", "Check the base URL"),
        (401, "Bad key.", "Bad key. Check the key, or run `turnwright login`"),
        (402, "No.", "check the plan and the credit"),
        (402, "This request requires more credits, or fewer max_tokens.", "a smaller `max_output`"),
        (403, "Key limit exceeded (total limit).", "check the plan and the credit"),
        (429, "Extra usage is required for long context requests.", "Set `window = 200000`"),
        (400, "", "Run `turnwright doctor`"),
        (429, "Too many.", "Wait a minute and prompt again"),
        (500, "No.", "Prompt again later"),
        (503, "", "Prompt again later"),
    ];
    for (status, message, expected) in table {
        let report = parse(&json!({ "error": message }).to_string(), Some(status), None);
        let error = crate::LlmError::Status {
            host: "h".into(),
            status,
            proxy: None,
            message: report.message,
            retry_after: None,
            kind: report.kind,
            key_advice: None,
            failed_generation: None,
        };
        let step = error.next_step().unwrap_or_default();
        assert!(format!("{error} {step}").contains(expected), "{error} {step}");
    }
}

proptest! {
    #[test]
    fn no_body_makes_it_panic(
        text in any::<String>(),
        words in "(maximum context length is |requested | > |prompt is too long: ){0,3}[0-9,_ ]{0,30}",
        status in proptest::option::of(100_u16..700),
    ) {
        for body in [text.clone(), words.clone(), json!({ "error": { "message": text, "code": words } }).to_string()] {
            let report = parse(&body, status, None);
            prop_assert!(report.message.chars().count() <= 501);
            prop_assert!(!report.message.contains('\n'));
        }
    }
}
