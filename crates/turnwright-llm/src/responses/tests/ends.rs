//! How replies end, and what may come instead of one.

use expect_test::expect;

use super::{check_body, event, expand, read, receive};

fn document(body: &str, expected: &expect_test::Expect) {
    check_body(body, expected);
}

/// C.1 #35.
#[test]
fn a_server_without_streaming_is_supported() {
    document(
        r#" {"id":"resp_1","object":"response","status":"completed","error":null,"incomplete_details":null,"output":[{"id":"rs","type":"reasoning","summary":[],"encrypted_content":"g"},{"id":"m","type":"message","content":[{"type":"output_text","text":"I l\u00f6ok.\ud83d"}]},{"id":"f","type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"}],"text":{"format":{"type":"text"}},"usage":{"input_tokens":3,"output_tokens":4}}"#,
        &expect![[r#"
            text "I löok.�"
            call 0 f
            args 0 {"x":1}
            complete 3+4 cached 0
              0 "c" "f" {"x":1}
              echo {"type":"reasoning","summary":[],"encrypted_content":"g"}
              echo {"type":"message","start":0,"end":11}
              echo {"type":"function_call","slot":0}
        "#]],
    );
}

#[test]
fn a_document_may_be_truncated_or_an_error() {
    let table = [
        (
            r#"{"object":"response","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}"#,
            expect![[r#"
                length
            "#]],
        ),
        (
            r#"{"object":"response","status":"failed","error":{"code":"server_error","message":"Broken."}}"#,
            expect![[r#"
                in-stream 500, transient: host reported an error while answering: Broken.
            "#]],
        ),
        (
            r#"{"error":{"message":"No such model.","code":"model_not_found"}}"#,
            expect![[r#"
                in-stream: host reported an error while answering: No such model. Check the model name
            "#]],
        ),
        (
            r#"[{"error":{"message":"Bad.","code":400}}]"#,
            expect![[r#"
            in-stream 400: host reported an error while answering: Bad.
        "#]],
        ),
        (
            r#"{"detail":"Not Found"}"#,
            expect![[r#"
            in-stream: host reported an error while answering: Not Found
        "#]],
        ),
        (
            r#"{"object":"response","status":"completed","output":[]}"#,
            expect![[r#"
            empty, transient: host sent an empty answer
        "#]],
        ),
        (
            r#"{"hello":1}"#,
            expect![[r#"
                malformed: host did not answer like an OpenAI-compatible server: the JSON is not a response. Check the base URL
            "#]],
        ),
        (
            r#"{"object":"response","#,
            expect![[r#"
            truncated, transient: The answer from host broke off before it was complete. Send another prompt to continue
        "#]],
        ),
        (
            "{]",
            expect![[r#"
                malformed: host did not answer like an OpenAI-compatible server: the body is neither a stream nor a response. Check the base URL
            "#]],
        ),
        (
            "<html>",
            expect![[r#"
                malformed: host did not answer like an OpenAI-compatible server: it returned an HTML page. Check the base URL
            "#]],
        ),
    ];
    for (body, expected) in table {
        document(body, &expected);
    }
}

/// The type of an event may occur in its `event` line only.
#[test]
fn the_type_may_stand_only_in_the_name() {
    let body = "event: response.output_text.delta\ndata: {\"delta\":\"a\"}\n\n\
                event: response.completed\ndata: {\"response\":{\"status\":\"completed\"}}\n\n";
    expect![[r#"
        text "a"
        complete
    "#]]
    .assert_eq(&read([body.as_bytes()]));
}

/// C.1 #33.
#[test]
fn the_last_event_needs_no_line_end() {
    let body =
        expand("output_text.delta {\"delta\":\"a\"}") + &event("completed", "\"response\":{}");
    check_body(
        body.trim_end(),
        &expect![[r#"
        text "a"
        complete
    "#]],
    );
}

/// C.1 #28b.
#[test]
fn an_answer_that_repeats_a_call_ends_with_the_third_and_has_the_first() {
    let call = |index: usize| {
        let item = r#""type":"function_call","name":"grep","arguments":"{\"pattern\":\"x\"}""#;
        format!("whole {index} {{\"id\":\"f{index}\",\"call_id\":\"c{index}\",{item}}}\n")
    };
    let thought = r#"whole 0 {"id":"r","type":"reasoning","summary":[],"encrypted_content":"g"}"#;
    let calls: Vec<_> = (1..9).map(call).collect();
    check_body(
        &expand(&format!("{thought}\n{}", calls.concat())),
        &expect![[r#"
            call 0 grep
            args 0 {"pattern":"x"}
            call 1 grep
            args 1 {"pattern":"x"}
            call 2 grep
            args 2 {"pattern":"x"}
            complete
              0 "c1" "grep" {"pattern":"x"}
              echo {"type":"reasoning","summary":[],"encrypted_content":"g"}
              echo {"type":"function_call","slot":0}
        "#]],
    );
}

/// hermes-agent#83059: the model says what it is about to do, and does not do it.
#[test]
fn a_comment_without_its_call_is_a_lost_call() {
    let call =
        r#"whole 1 {"id":"f","type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
    for (phase, more, is_lost) in [
        ("commentary", "", true),
        ("commentary", call, false),
        ("final_answer", "", false),
        ("", "", false),
    ] {
        let words = format!(
            r#"whole 0 {{"id":"m","type":"message","phase":"{phase}","content":[{{"type":"output_text","text":"I look."}}]}}"#
        );
        let end = r#"completed {"status":"completed"}"#;
        let body = expand(&format!("{words}\n{more}\n{end}"));
        let reply = receive([body.as_bytes()]).1.unwrap();
        assert_eq!(reply.has_lost_calls, is_lost, "{phase:?} {more}");
    }
}
