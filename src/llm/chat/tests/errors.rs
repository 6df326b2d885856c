//! Errors, wherever they stand (quirks C.1).

use expect_test::expect;

use super::check;
use crate::llm::chat::error_text;

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
        (r#"{"success":false,"errors":[{"code":1,"message":"a"}]}"#, "a"),
        (r#"[{"error":{"code":400,"message":"a"}}]"#, "a"),
        (r#"{"choices":null,"base_resp":{"status_code":1008,"status_msg":"a"}}"#, "a"),
        (r#"{"error":{"message":"a","metadata":{"raw":"b","provider_name":"c"}}}"#, "a: b"),
        (
            r#"{"error":{"message":"a","metadata":{"raw":"{\"error\":\"b\"}"}}}"#,
            "a: {\"error\":\"b\"}",
        ),
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
        assert_eq!(error_text(body), expected, "{body}");
    }
}

#[test]
fn a_long_message_is_shortened() {
    let words = "ä".repeat(100_000);
    let page = format!("<title>{words}</title>");
    let object = serde_json::json!({ "error": { "message": words } }).to_string();
    for body in [words, page, object] {
        let message = error_text(&body);
        assert_eq!(message.chars().count(), 501);
        assert!(message.ends_with('…'));
    }
}

/// C.1 #3.
#[test]
fn an_error_in_the_stream_has_a_status_and_the_provider_s_words() {
    check(
        r#"
        delta {"content":"a"}
        data: {"id":"gen-1","choices":[{"delta":{"content":""},"finish_reason":"error"}],"error":{"code":502,"message":"Provider returned error","metadata":{"provider_name":"X","raw":"upstream connect error"}}}
        "#,
        &expect![[r#"
            text "a"
            in-stream 502, may pass: host reported an error while answering: Provider returned error: upstream connect error
        "#]],
    );
}

/// C.1 #3: the code is a string.
#[test]
fn a_status_may_be_a_string() {
    check(
        r#"
        data: {"choices":[],"error":{"code":"429","message":"slow down"}}
        "#,
        &expect![[r#"
            in-stream 429, may pass: host reported an error while answering: slow down
        "#]],
    );
}

/// C.1 #3: in the choice.
#[test]
fn an_error_may_stand_in_the_choice() {
    check(
        r#"
        data: {"choices":[{"delta":{},"error":{"code":400,"message":"no such tool"},"finish_reason":"error"}]}
        "#,
        &expect![[r#"
            in-stream 400: host reported an error while answering: no such tool
        "#]],
    );
}

/// C.1 #3: nothing but the finish reason.
#[test]
fn an_end_with_error_is_an_error() {
    check(
        r#"
        delta {"content":"a"}
        finish error
        done
        "#,
        &expect![[r#"
            text "a"
            in-stream 503, may pass: host reported an error while answering: it ended with `error`
        "#]],
    );
}

/// C.1 #4.
#[test]
fn an_error_without_a_code_does_not_pass() {
    check(
        r#"
        data: {"error":{"message":"quota exceeded"}}
        "#,
        &expect![[r#"
            in-stream: host reported an error while answering: quota exceeded
        "#]],
    );
}

/// C.1 #4: a code in words.
#[test]
fn codes_in_words_are_understood() {
    check(
        r#"
        data: {"error":{"message":"wait","type":"rate_limit_error"}}
        "#,
        &expect![[r#"
            in-stream 429, may pass: host reported an error while answering: wait
        "#]],
    );
}

/// C.1 #5.
#[test]
fn a_field_named_error_is_an_error() {
    check(
        r#"
        error: {"code":400,"message":"the request exceeds the available context size"}
        data: [DONE]
        "#,
        &expect![[r#"
            in-stream 400: host reported an error while answering: the request exceeds the available context size
        "#]],
    );
}

/// C.1 #9.
#[test]
fn an_event_named_error_is_an_error() {
    check(
        r#"
        event: error
        data: {"error":"Bad","message":"The model crashed","code":500}
        "#,
        &expect![[r#"
            in-stream 500, may pass: host reported an error while answering: The model crashed
        "#]],
    );
}

/// C.1 #9: no JSON.
#[test]
fn an_event_named_error_may_be_text() {
    check(
        r#"
        event: error
        data: the model crashed
        "#,
        &expect![[r#"
            in-stream: host reported an error while answering: the model crashed
        "#]],
    );
}

/// C.1 #19.
#[test]
fn minimax_reports_errors_beside_no_choices() {
    check(
        r#"
        data: {"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}
        "#,
        &expect![[r#"
            in-stream: host reported an error while answering: insufficient balance
        "#]],
    );
}

/// C.1 #19: all is well.
#[test]
fn a_base_resp_of_zero_is_no_error() {
    check(
        r#"
        data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"base_resp":{"status_code":0,"status_msg":""}}
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}

/// C.1 #20: within a stream.
#[test]
fn an_error_in_a_list_is_an_error() {
    check(
        r#"
        data: [{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}]
        "#,
        &expect![[r#"
            in-stream 503, may pass: host reported an error while answering: overloaded
        "#]],
    );
}

/// C.1 #22.
#[test]
fn an_error_without_an_envelope() {
    check(
        r#"
        data: {"object":"error","message":"Invalid model","type":"invalid_request_error","code":"3280"}
        "#,
        &expect![[r#"
            in-stream: host reported an error while answering: Invalid model
        "#]],
    );
}

/// Some servers send it with each chunk.
#[test]
fn an_error_that_says_nothing_is_none() {
    check(
        r#"
        data: {"choices":[{"delta":{"content":"a"},"error":null}],"error":null}

        data: {"choices":[{"delta":{"content":"b"}}],"error":""}

        data: {"choices":[{"delta":{"content":"c"},"finish_reason":"stop"}],"error":{}}
        "#,
        &expect![[r#"
            text "abc"
            complete
        "#]],
    );
}

/// C.1 #35.
#[test]
fn a_server_may_not_stream() {
    check(
        r#"
        {"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello",
        "reasoning":"Hm.","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
        "finish_reason":"tool_calls"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}
        "#,
        &expect![[r#"
            thought "Hm."
            text "Hello"
            call 0 f
            args 0 {"x":1}
            complete 7+2
              0 "a" "f" {"x":1}
        "#]],
    );
}

/// C.1 #35: an error.
#[test]
fn a_document_may_be_an_error() {
    check(
        r#"
        {"error":{"message":"no","code":400}}
        "#,
        &expect![[r#"
            in-stream 400: host reported an error while answering: no
        "#]],
    );
}

/// C.1 #20.
#[test]
fn a_document_may_be_a_list_with_an_error() {
    check(
        r#"
        [{
          "error": {"code": 400, "message": "API key not valid", "status": "INVALID_ARGUMENT"}
        }]
        "#,
        &expect![[r#"
            in-stream 400: host reported an error while answering: API key not valid
        "#]],
    );
}

/// C.1 #22.
#[test]
fn a_document_may_say_detail() {
    check(
        r#"
        {"detail":[{"loc":["body","x"],"msg":"Extra inputs are not permitted"}]}
        "#,
        &expect![[r#"
            in-stream: host reported an error while answering: Extra inputs are not permitted
        "#]],
    );
}

/// C.1 #35: of another sort.
#[test]
fn a_document_may_be_something_else() {
    check(
        r#"
        {"status":"ok"}
        "#,
        &expect![[r#"
            malformed: host did not answer like an OpenAI-compatible server: the JSON is no chat completion. Check OPENAI_BASE_URL
        "#]],
    );
}

/// C.1 #35: cut.
#[test]
fn half_a_document_is_cut() {
    check(
        r#"
        {"choices":[{"message":{"content":"Hel
        "#,
        &expect![[r#"
            truncated, may pass: The answer from host broke off before it was complete. Prompt again to go on
        "#]],
    );
}

/// C.1 #35: several.
#[test]
fn several_documents_are_no_answer() {
    check(
        r#"
        {"choices":[{"delta":{"content":"a"}}]}
        {"choices":[{"delta":{"content":"b"}}]}
        "#,
        &expect![[r#"
            malformed: host did not answer like an OpenAI-compatible server: the body is neither a stream nor a chat completion. Check OPENAI_BASE_URL
        "#]],
    );
}

/// C.1 #35.
#[test]
fn a_page_is_no_answer() {
    check(
        r#"
        <!DOCTYPE html><html><head><title>502 Bad Gateway</title></head></html>
        "#,
        &expect![[r#"
            malformed: host did not answer like an OpenAI-compatible server: an HTML page came. Check OPENAI_BASE_URL
        "#]],
    );
}

/// No body.
#[test]
fn an_empty_body_is_cut() {
    check(
        r#"

        "#,
        &expect![[r#"
            truncated, may pass: The answer from host broke off before it was complete. Prompt again to go on
        "#]],
    );
}

/// Plain text.
#[test]
fn plain_text_is_cut() {
    check(
        r#"
        Internal Server Error
        "#,
        &expect![[r#"
            truncated, may pass: The answer from host broke off before it was complete. Prompt again to go on
        "#]],
    );
}
