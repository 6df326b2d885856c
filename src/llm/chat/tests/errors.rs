//! The message in an error's body (quirks C.1).

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
