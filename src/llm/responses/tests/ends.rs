//! How answers end, and what may come instead of one.

use expect_test::expect;

use super::{check, check_body, event, expand, read};

/// The output limit: half a call never runs.
#[test]
fn an_answer_that_hits_the_limit_is_cut() {
    check(
        r#"
        added 0 {"type":"function_call","call_id":"c","name":"f","arguments":""}
        function_call_arguments.delta {"output_index":0,"delta":"{\"x\":1}"}
        incomplete {"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":1,"output_tokens":2}}
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            length 1+2 cached 0
              0 "c" "f" unusable: The answer was cut off at the output limit, the arguments of this call after 7 bytes. Nothing was executed. Send less at once: write the first part with write_file, then append.
        "#]],
    );
}

/// Any other reason may have cut it as well.
#[test]
fn an_answer_that_is_incomplete_for_no_known_reason_is_cut() {
    check(
        r#"
        output_text.delta {"delta":"a"}
        completed {"status":"incomplete","incomplete_details":null}
        "#,
        &expect![[r#"
            text "a"
            length
        "#]],
    );
}

/// C.1 #14.
#[test]
fn a_content_filter_is_a_refusal() {
    check(
        r#"
        output_text.delta {"delta":"a"}
        incomplete {"status":"incomplete","incomplete_details":{"reason":"content_filter"}}
        "#,
        &expect![[r#"
            text "a"
            refused ""
        "#]],
    );
}

/// OpenAI.
#[test]
fn a_refusal_in_words_is_a_refusal() {
    check(
        r#"
        refusal.delta {"output_index":0,"content_index":0,"delta":"I cannot "}
        refusal.delta {"output_index":0,"content_index":0,"delta":"do that."}
        refusal.done {"output_index":0,"content_index":0,"refusal":"I cannot do that."}
        whole 0 {"type":"message","content":[{"type":"refusal","refusal":"I cannot do that."}]}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            refused "I cannot do that."
        "#]],
    );
}

/// The same, all at once.
#[test]
fn a_refusal_may_come_as_a_whole() {
    check(
        r#"
        whole 0 {"type":"message","content":[{"type":"refusal","refusal":"No."}]}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            refused "No."
        "#]],
    );
}

/// OpenAI.
#[test]
fn a_response_that_fails_is_an_error() {
    check(
        r#"
        output_text.delta {"delta":"a"}
        failed {"status":"failed","error":{"code":"server_error","message":"The model had a problem."}}
        "#,
        &expect![[r#"
            text "a"
            in-stream 500, may pass: host reported an error while answering: The model had a problem.
        "#]],
    );
}

/// The account is out of credit.
#[test]
fn a_failure_may_be_final() {
    check(
        r#"
        failed {"status":"failed","error":{"code":"insufficient_quota","message":"You exceeded your current quota."}}
        "#,
        &expect![[r#"
            in-stream: host reported an error while answering: You exceeded your current quota. Waiting does not mend this: check the plan and the credit of the account
        "#]],
    );
}

/// No word of why.
#[test]
fn a_failure_without_an_error_is_one() {
    check(
        r#"
        failed {"status":"failed","error":null}
        "#,
        &expect![[r#"
            in-stream 503, may pass: host reported an error while answering: it ended with `failed`
        "#]],
    );
}

/// OpenAI.
#[test]
fn an_error_event_is_an_error() {
    check(
        r#"
        output_text.delta {"delta":"a"}
        event: error
        data: {"type":"error","code":"rate_limit_exceeded","message":"Slow down.","param":null,"sequence_number":3}
        "#,
        &expect![[r#"
            text "a"
            in-stream 429, may pass: host reported an error while answering: Slow down.
        "#]],
    );
}

/// Without its name and with an object around it.
#[test]
fn an_error_event_may_look_like_that_of_chat() {
    check(
        r#"
        data: {"type":"error","error":{"type":"server_error","message":"Broken."}}
        "#,
        &expect![[r#"
            in-stream 500, may pass: host reported an error while answering: Broken.
        "#]],
    );
}

/// C.1 #4.
#[test]
fn an_error_without_a_type_is_an_error() {
    check(
        r#"
        data: {"error":{"message":"quota exceeded"}}
        "#,
        &expect![[r#"
            in-stream: host reported an error while answering: quota exceeded. Waiting does not mend this: check the plan and the credit of the account
        "#]],
    );
}

/// C.1 #22.
#[test]
fn an_error_without_an_error_is_an_error() {
    check(
        r#"
        data: {"object":"error","message":"Wrong."}
        "#,
        &expect![[r#"
            in-stream: host reported an error while answering: Wrong.
        "#]],
    );
}

/// A connection that breaks.
#[test]
fn an_answer_without_an_end_broke_off() {
    check(
        r#"
        output_text.delta {"delta":"a"}
        whole 0 {"type":"message","content":[{"type":"output_text","text":"a"}]}
        "#,
        &expect![[r#"
            text "a"
            truncated, may pass: The answer from host broke off before it was complete. Prompt again to go on
        "#]],
    );
}

/// C.1 #31: a server that says it is done is believed.
#[test]
fn the_end_mark_alone_ends_an_answer() {
    check(
        r#"
        output_text.delta {"delta":"a"}
        done
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}

/// Nothing.
#[test]
fn an_empty_answer_is_an_error() {
    check(
        r#"
        completed {"status":"completed","output":[]}
        "#,
        &expect![[r#"
            empty, may pass: host sent an empty answer
        "#]],
    );
}

/// C.1 #37.
#[test]
fn reasoning_alone_is_no_answer() {
    check(
        r#"
        reasoning_summary_text.delta {"delta":"Hm."}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            thought "Hm."
            empty, may pass: host sent reasoning but no answer
        "#]],
    );
}

/// C.1 #34.
#[test]
fn half_of_an_event_broke_off() {
    check(
        r#"
        output_text.delta {"delta":"a"}
        data: {"type":"response.output_te
        "#,
        &expect![[r#"
            text "a"
            truncated, may pass: The answer from host broke off before it was complete. Prompt again to go on
        "#]],
    );
}

/// Anything else.
#[test]
fn what_is_no_event_is_named() {
    check(
        r#"
        data: hello
        "#,
        &expect![[r#"
            malformed: host did not answer like an OpenAI-compatible server: the stream has a part that is no event: hello. Check the base URL
        "#]],
    );
}

fn document(body: &str, expected: &expect_test::Expect) {
    check_body(body, expected);
}

/// C.1 #35.
#[test]
fn a_server_may_not_stream() {
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
fn a_document_may_be_cut_or_refused_or_failed() {
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
                in-stream 500, may pass: host reported an error while answering: Broken.
            "#]],
        ),
        (
            r#"{"error":{"message":"No such model.","code":"model_not_found"}}"#,
            expect![[r#"
                in-stream: host reported an error while answering: No such model. Check the name of the model
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
            empty, may pass: host sent an empty answer
        "#]],
        ),
        (
            r#"{"hello":1}"#,
            expect![[r#"
                malformed: host did not answer like an OpenAI-compatible server: the JSON is no response. Check the base URL
            "#]],
        ),
        (
            r#"{"object":"response","#,
            expect![[r#"
            truncated, may pass: The answer from host broke off before it was complete. Prompt again to go on
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
                malformed: host did not answer like an OpenAI-compatible server: an HTML page came. Check the base URL
            "#]],
        ),
    ];
    for (body, expected) in table {
        document(body, &expected);
    }
}

/// The name of an event may stand in its line alone.
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
