//! Framing, ends, usage and reasoning (quirks C.1 and C.3).

use expect_test::expect;

use super::{check, check_body, read};

#[test]
fn the_last_event_needs_no_line_end() {
    // C.1 #33.
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]";
    check_body(
        body,
        &expect![[r#"
        text "a"
        complete
    "#]],
    );
}

#[test]
fn a_byte_order_mark_and_blank_lines_may_come_first() {
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";
    let plain = read([event.as_bytes()]);
    for start in ["\u{feff}", "\n\n \r\n", " \u{feff}\n"] {
        let body = format!("{start}{event}");
        assert_eq!(read([body.as_bytes()]), plain);
        assert_eq!(read(body.as_bytes().chunks(1)), plain);
    }
}

/// Plain.
#[test]
fn words_and_usage() {
    check(
        r#"
        data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

        delta {"content":"Hä"}
        delta {"content":"llo 😀"}
        finish stop
        data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}

        done
        "#,
        &expect![[r#"
            text "Hällo 😀"
            complete 7+2
        "#]],
    );
}

/// C.1 #1 and #2.
#[test]
fn comments_and_blank_lines_are_skipped() {
    check(
        r#"
        : keep-alive

        : OPENROUTER PROCESSING

        delta {"content":"a"}
        : keep-alive
        delta {"content":"b"}
        finish stop
        done
        "#,
        &expect![[r#"
            text "ab"
            complete
        "#]],
    );
}

/// C.1 #13.
#[test]
fn azure_sends_chunks_without_choices_and_choices_without_delta() {
    check(
        r#"
        data: {"id":"","model":"","choices":[],"prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}

        delta {"content":"a"}
        data: {"choices":[{"index":0,"finish_reason":null,"content_filter_offsets":{"check_offset":1},"content_filter_results":{}}]}

        data: {"choices":[{"delta":null,"finish_reason":"stop"}]}

        data: {"choices":null}

        done
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}

/// C.1 #14.
#[test]
fn a_content_filter_is_a_refusal() {
    check(
        r#"
        delta {"content":"a"}
        finish content_filter
        done
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
        delta {"refusal":"I cannot "}
        delta {"refusal":"do that."}
        finish stop
        done
        "#,
        &expect![[r#"
            refused "I cannot do that."
        "#]],
    );
}

/// C.1 #15 and #17: running totals.
#[test]
fn the_last_usage_counts() {
    check(
        r#"
        data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}

        data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}

        data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}

        done
        "#,
        &expect![[r#"
            text "ab"
            complete 7+3
        "#]],
    );
}

/// C.1 #16.
#[test]
fn usage_may_stand_in_the_choice() {
    check(
        r#"
        data: {"choices":[{"delta":{"content":"a"},"usage":{"prompt_tokens":7,"completion_tokens":1}}]}

        data: {"choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":7,"completion_tokens":2}}]}

        done
        "#,
        &expect![[r#"
            text "a"
            complete 7+2
        "#]],
    );
}

/// C.1 #18.
#[test]
fn empty_and_odd_usage_is_no_usage() {
    check(
        r#"
        data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}

        data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{}}

        data: {"choices":[],"usage":null}

        data: {"choices":[],"usage":[]}

        data: {"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":"5"}}

        done
        "#,
        &expect![[r#"
            text "ab"
            complete 7+1
        "#]],
    );
}

/// A hostile count.
#[test]
fn usage_is_bounded() {
    check(
        r#"
        delta {"content":"a"}
        data: {"choices":[],"usage":{"input_tokens":18446744073709551615,"output_tokens":18446744073709551615}}

        done
        "#,
        &expect![[r#"
            text "a"
            complete 1099511627776+1099511627776
        "#]],
    );
}

/// C.1 #24.
#[test]
fn an_empty_finish_reason_is_none() {
    check(
        r#"
        data: {"choices":[{"delta":{"content":"a"},"finish_reason":""}]}

        data: {"choices":[{"delta":{"content":"b"},"finish_reason":"null"}]}
        "#,
        &expect![[r#"
            text "ab"
            truncated, may pass: The answer from host broke off before it was complete. Prompt again to go on
        "#]],
    );
}

/// C.1 #25.
#[test]
fn an_answer_may_end_twice() {
    check(
        r#"
        delta {"content":"a"}
        finish stop
        finish stop
        data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}

        done
        "#,
        &expect![[r#"
            text "a"
            complete 7+1
        "#]],
    );
}

/// C.1 #25.
#[test]
fn the_second_end_does_not_hide_the_first() {
    check(
        r#"
        delta {"content":"a"}
        finish length
        finish stop
        done
        "#,
        &expect![[r#"
            text "a"
            length
        "#]],
    );
}

/// C.1 #26.
#[test]
fn calls_count_and_not_the_finish_reason() {
    check(
        r#"
        calls {"id":"a","function":{"name":"f","arguments":"{}"}}
        finish STOP
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {}
            complete
              0 "a" "f" {}
        "#]],
    );
}

/// C.1 #26: an older build.
#[test]
fn gemini_spells_the_finish_reason_in_its_own_way() {
    check(
        r#"
        data: {"choices":[{"delta":{"content":"a"},"finish_reason":null,"finishReason":"MAX_TOKENS"}]}
        "#,
        &expect![[r#"
            text "a"
            length
        "#]],
    );
}

/// C.1 #26.
#[test]
fn gemini_refuses_in_capitals() {
    check(
        r#"
        delta {"content":"a"}
        finish PROHIBITED_CONTENT
        "#,
        &expect![[r#"
            text "a"
            refused ""
        "#]],
    );
}

/// C.1 #26: to be asked again.
#[test]
fn a_call_that_the_server_could_not_read_is_an_error() {
    check(
        r#"
        delta {"content":"I will"}
        finish MALFORMED_FUNCTION_CALL
        done
        "#,
        &expect![[r#"
            text "I will"
            in-stream 503, may pass: host reported an error while answering: it ended with `MALFORMED_FUNCTION_CALL`
        "#]],
    );
}

/// C.1 #28.
#[test]
fn sensitive_is_a_refusal() {
    check(
        r#"
        finish sensitive
        done
        "#,
        &expect![[r#"
            refused ""
        "#]],
    );
}

/// C.1 #28.
#[test]
fn a_full_window_is_the_limit_and_no_loop() {
    check(
        r#"
        finish model_context_window_exceeded
        done
        "#,
        &expect![[r#"
            length
        "#]],
    );
}

/// C.1 #28.
#[test]
fn network_error_may_pass() {
    check(
        r#"
        delta {"content":"a"}
        finish network_error
        done
        "#,
        &expect![[r#"
            text "a"
            in-stream 503, may pass: host reported an error while answering: it ended with `network_error`
        "#]],
    );
}

/// C.1 #29.
#[test]
fn insufficient_system_resource_may_pass() {
    check(
        r#"
        finish insufficient_system_resource
        done
        "#,
        &expect![[r#"
            in-stream 503, may pass: host reported an error while answering: it ended with `insufficient_system_resource`
        "#]],
    );
}

/// C.1 #30.
#[test]
fn other_words_for_stop() {
    check(
        r#"
        delta {"content":"a"}
        finish eos_token
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}

/// C.1 #31: the end mark is missing.
#[test]
fn a_finish_reason_is_enough() {
    check(
        r#"
        delta {"content":"a"}
        finish end_turn
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}

/// C.1 #31: nothing but the end mark.
#[test]
fn an_end_mark_is_enough() {
    check(
        r#"
        delta {"content":"a"}
        done
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}

/// C.1 #31: neither.
#[test]
fn without_either_the_answer_is_cut() {
    check(
        r#"
        delta {"content":"a"}
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}
        "#,
        &expect![[r#"
            text "a"
            call 0 f
            args 0 {}
            truncated, may pass: The answer from host broke off before it was complete. Prompt again to go on
        "#]],
    );
}

/// C.1 #32.
#[test]
fn no_space_after_the_colon() {
    check(
        r#"
        data:{"choices":[{"delta":{"content":"a"}}]}

        data:[DONE]
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}

/// After the end mark.
#[test]
fn nothing_counts_after_the_end_mark() {
    check(
        r#"
        delta {"content":"a"}
        done
        delta {"content":"b"}
        data: {"error":"late"}

        data: {oops
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}

/// C.1 #34.
#[test]
fn half_a_chunk_cuts_the_answer() {
    check(
        r#"
        delta {"content":"a"}
        data: {"choices":[{"delta":{"content":"b
        "#,
        &expect![[r#"
            text "a"
            truncated, may pass: The answer from host broke off before it was complete. Prompt again to go on
        "#]],
    );
}

/// C.1 #34: no JSON in the middle.
#[test]
fn a_chunk_that_is_no_json_is_an_error_for_good() {
    check(
        r#"
        delta {"content":"a"}
        data: upstream <b>failed</b>

        delta {"content":"c"}
        finish stop
        done
        "#,
        &expect![[r#"
            text "a"
            malformed: host did not answer like an OpenAI-compatible server: the stream has a part that is no chunk: upstream <b>failed</b>. Check OPENAI_BASE_URL
        "#]],
    );
}

/// C.1 #34: of another shape.
#[test]
fn json_that_is_no_chunk_is_an_error_for_good() {
    check(
        r#"
        delta {"content":"a"}
        data: {"choices":{"delta":[]}}
        "#,
        &expect![[r#"
            text "a"
            malformed: host did not answer like an OpenAI-compatible server: the stream has a part that is no chunk: {"choices":{"delta":[]}}. Check OPENAI_BASE_URL
        "#]],
    );
}

/// C.1 #34: after the end.
#[test]
fn half_a_chunk_after_the_finish_reason_does_no_harm() {
    check(
        r#"
        delta {"content":"a"}
        finish stop
        data: {"choices":[],"usage":{"prompt_to
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}

/// C.1 #11 and #37.
#[test]
fn reasoning_alone_is_no_answer() {
    check(
        r#"
        delta {"reasoning_content":"Hm."}
        data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":0}}

        done
        "#,
        &expect![[r#"
            thought "Hm."
            empty, may pass: host sent reasoning but no answer (finish_reason: stop)
        "#]],
    );
}

/// C.1 #10, #31: nothing at all.
#[test]
fn nothing_before_the_end_mark_is_an_empty_answer() {
    check(
        r#"
        delta {"role":"assistant","content":""}
        done
        "#,
        &expect![[r#"
            empty, may pass: host sent an empty answer
        "#]],
    );
}

/// C.1 #38.
#[test]
fn an_unknown_end_of_nothing_is_shown() {
    check(
        r#"
        finish brand_new_reason
        done
        "#,
        &expect![[r#"
            empty, may pass: host sent an empty answer (finish_reason: brand_new_reason)
        "#]],
    );
}

/// C.1 #11.
#[test]
fn calls_that_were_announced_and_never_came_are_an_empty_answer() {
    check(
        r#"
        finish tool_calls
        done
        "#,
        &expect![[r#"
            empty, may pass: host sent an empty answer (finish_reason: tool_calls)
        "#]],
    );
}

/// C.3 #1 and #2.
#[test]
fn reasoning_has_several_names() {
    check(
        r#"
        delta {"reasoning_content":"a","content":null}
        delta {"reasoning":"b"}
        delta {"reasoning_text":"c"}
        delta {"thinking":"d"}
        delta {"content":"e","reasoning_content":null}
        done
        "#,
        &expect![[r#"
            thought "abcd"
            text "e"
            complete
        "#]],
    );
}

/// C.3 #3.
#[test]
fn reasoning_under_two_names_is_shown_once() {
    check(
        r#"
        delta {"reasoning_content":"a","reasoning":"a"}
        delta {"reasoning_content":"","reasoning":"b","reasoning_details":[{"type":"reasoning.text","text":"b"}]}
        delta {"content":"c"}
        done
        "#,
        &expect![[r#"
            thought "ab"
            text "c"
            complete
        "#]],
    );
}

/// C.3 #4.
#[test]
fn reasoning_may_come_as_details() {
    check(
        r#"
        delta {"reasoning_details":[{"type":"reasoning.text","text":"a","index":0,"format":"x"}]}
        delta {"reasoning_details":[{"type":"reasoning.summary","summary":"b"},{"type":"reasoning.encrypted","data":"c2VjcmV0"}]}
        delta {"content":"c"}
        done
        "#,
        &expect![[r#"
            thought "ab"
            text "c"
            complete
        "#]],
    );
}

/// C.3 #5.
#[test]
fn content_may_come_in_parts() {
    check(
        r#"
        delta {"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"}]}]}
        delta {"content":[{"type":"text","text":"b"},{"type":"reference","reference_ids":[1]},"c"]}
        delta {"content":{"type":"text","text":"d"}}
        delta {"content":"e"}
        done
        "#,
        &expect![[r#"
            thought "a"
            text "bcde"
            complete
        "#]],
    );
}

/// A server that says it all again with each chunk.
#[test]
fn a_message_beside_a_delta_is_not_said_twice() {
    check(
        r#"
        data: {"choices":[{"delta":{"content":"a"},"message":{"content":"a"}}]}

        data: {"choices":[{"delta":{"content":"b"},"message":{"content":"ab"},"finish_reason":"stop"}]}
        "#,
        &expect![[r#"
            text "ab"
            complete
        "#]],
    );
}

/// More than we asked for.
#[test]
fn only_the_first_choice_is_heard() {
    check(
        r#"
        data: {"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}},5]}

        data: {"choices":[null,{"delta":{"content":"c"},"finish_reason":"stop"}]}
        "#,
        &expect![[r#"
            text "ac"
            complete
        "#]],
    );
}

/// Events of other sorts.
#[test]
fn events_without_a_meaning_are_skipped() {
    check(
        r#"
        event: ping
        data: {"type":"ping"}

        event: message
        id: 1
        retry: 10
        data: {"choices":[{"delta":{"content":"a"}}]}

        data:

        done
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}

/// One event on several lines.
#[test]
fn data_may_stand_on_several_lines() {
    check(
        r#"
        data: {"choices":
        data: [{"delta":{"content":"a"}}]}

        done
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}
