//! Words, reasoning and calls.

use expect_test::expect;

use super::check;

/// OpenAI.
#[test]
fn words_and_usage() {
    check(
        r#"
        created {"id":"resp_1","object":"response","status":"in_progress","output":[],"usage":null}
        in_progress {"id":"resp_1","object":"response","status":"in_progress","output":[],"usage":null}
        added 0 {"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}
        content_part.added {"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}}
        output_text.delta {"sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hä","logprobs":[],"obfuscation":"x7"}
        output_text.delta {"sequence_number":5,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"llo 😀","logprobs":[]}
        output_text.done {"item_id":"msg_1","output_index":0,"content_index":0,"text":"Hällo 😀"}
        content_part.done {"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hällo 😀"}}
        whole 0 {"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hällo 😀"}]}
        completed {"object":"response","status":"completed","output":[{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hällo 😀"}]}],"usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":4},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":9}}
        "#,
        &expect![[r#"
            text "Hällo 😀"
            complete 7+2 cached 4
        "#]],
    );
}

/// OpenAI, with `store: false`: the reasoning comes back without its identifier and state.
#[test]
fn reasoning_before_a_call_is_kept_in_order() {
    check(
        r#"
        added 0 {"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA-early"}
        reasoning_summary_part.added {"item_id":"rs_1","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}
        reasoning_summary_text.delta {"item_id":"rs_1","output_index":0,"summary_index":0,"delta":"**Look** "}
        reasoning_summary_text.delta {"item_id":"rs_1","output_index":0,"summary_index":0,"delta":"first."}
        reasoning_summary_text.done {"item_id":"rs_1","output_index":0,"summary_index":0,"text":"**Look** first."}
        reasoning_summary_part.added {"item_id":"rs_1","output_index":0,"summary_index":1,"part":{"type":"summary_text","text":""}}
        reasoning_summary_text.delta {"item_id":"rs_1","output_index":0,"summary_index":1,"delta":"Then act."}
        whole 0 {"id":"rs_1","type":"reasoning","status":"completed","summary":[{"type":"summary_text","text":"**Look** first."},{"type":"summary_text","text":"Then act."}],"encrypted_content":"gAAA-late"}
        added 1 {"id":"fc_1","type":"function_call","status":"in_progress","arguments":"","call_id":"call_1","name":"read_file"}
        function_call_arguments.delta {"item_id":"fc_1","output_index":1,"delta":"{\"path\":"}
        function_call_arguments.delta {"item_id":"fc_1","output_index":1,"delta":"\"a\"}"}
        function_call_arguments.done {"item_id":"fc_1","output_index":1,"arguments":"{\"path\":\"a\"}"}
        whole 1 {"id":"fc_1","type":"function_call","status":"completed","arguments":"{\"path\":\"a\"}","call_id":"call_1","name":"read_file"}
        completed {"status":"completed","output":[],"usage":{"input_tokens":1,"output_tokens":1}}
        "#,
        &expect![[r#"
            thought "**Look** first.\n\nThen act."
            call 0 read_file
            args 0 {"path":"a"}
            complete 1+1 cached 0
              0 "call_1" "read_file" {"path":"a"}
              echo {"type":"reasoning","summary":[{"type":"summary_text","text":"**Look** first."},{"type":"summary_text","text":"Then act."}],"encrypted_content":"gAAA-late"}
              echo {"type":"function_call","slot":0}
        "#]],
    );
}

/// gpt-5 and later: what a message is for comes back, too.
#[test]
fn phases_of_messages_are_kept() {
    check(
        r#"
        added 0 {"id":"msg_1","type":"message","phase":"commentary","content":[]}
        output_text.delta {"item_id":"msg_1","output_index":0,"delta":"I look."}
        whole 0 {"id":"msg_1","type":"message","phase":"commentary","content":[{"type":"output_text","text":"I look."}]}
        whole 1 {"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"g"}
        output_text.delta {"item_id":"msg_2","output_index":2,"delta":"Done."}
        whole 2 {"id":"msg_2","type":"message","phase":"final_answer","content":[{"type":"output_text","text":"Done."}]}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            text "I look.\n\nDone."
            complete
              echo {"type":"message","start":0,"end":7,"phase":"commentary"}
              echo {"type":"reasoning","summary":[],"encrypted_content":"g"}
              echo {"type":"message","start":9,"end":14,"phase":"final_answer"}
        "#]],
    );
}

/// vLLM and llama.cpp with open models.
#[test]
fn plain_reasoning_is_shown_and_kept() {
    check(
        r#"
        added 0 {"id":"rs_1","type":"reasoning","summary":[],"content":null}
        reasoning_text.delta {"item_id":"rs_1","output_index":0,"content_index":0,"delta":"Hm"}
        reasoning_text.delta {"item_id":"rs_1","output_index":0,"content_index":0,"delta":"m."}
        reasoning_text.done {"item_id":"rs_1","output_index":0,"content_index":0,"text":"Hmm."}
        whole 0 {"id":"rs_1","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hmm."}],"encrypted_content":null}
        output_text.delta {"output_index":1,"delta":"Yes."}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            thought "Hmm."
            text "Yes."
            complete
              echo {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hmm."}]}
              echo {"type":"message","start":0,"end":4}
        "#]],
    );
}

/// OpenRouter sends the same under both names.
#[test]
fn reasoning_under_two_names_is_shown_once() {
    check(
        r#"
        reasoning_summary_text.delta {"output_index":0,"summary_index":0,"delta":"Hm."}
        reasoning_text.delta {"output_index":0,"content_index":0,"delta":"Hm."}
        reasoning_text.done {"output_index":0,"content_index":0,"text":"Hm."}
        output_text.delta {"output_index":1,"delta":"Yes."}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            thought "Hm."
            text "Yes."
            complete
        "#]],
    );
}

/// Servers without deltas.
#[test]
fn what_comes_only_as_a_whole_is_heard_once() {
    check(
        r#"
        reasoning_summary_text.done {"item_id":"r","output_index":0,"summary_index":0,"text":"One."}
        reasoning_summary_text.done {"item_id":"r","output_index":0,"summary_index":1,"text":"Two."}
        output_text.done {"item_id":"m","output_index":1,"content_index":0,"text":"Half, "}
        output_text.done {"item_id":"m","output_index":1,"content_index":1,"text":"whole."}
        whole 1 {"id":"m","type":"message","content":[{"type":"output_text","text":"Half, "},{"type":"output_text","text":"whole."}]}
        function_call_arguments.done {"item_id":"f","output_index":2,"name":"f","arguments":"{\"x\":1}"}
        whole 2 {"id":"f","type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            thought "One.\n\nTwo."
            text "Half, whole."
            args 0 {"x":1}
            call 0 f
            complete
              0 "c" "f" {"x":1}
        "#]],
    );
}

/// Servers that only mark the items.
#[test]
fn items_that_come_only_as_a_whole_are_heard() {
    check(
        r#"
        whole 0 {"id":"m","type":"message","content":[{"type":"output_text","text":"I look."}]}
        whole 1 {"id":"f","type":"function_call","call_id":"c","name":"f","arguments":"{}"}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            text "I look."
            call 0 f
            args 0 {}
            complete
              0 "c" "f" {}
        "#]],
    );
}

/// Servers that say all at the very end.
#[test]
fn an_answer_may_stand_only_in_the_last_event() {
    check(
        r#"
        created {"status":"in_progress"}
        completed {"status":"completed","output":[{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"g"},{"type":"message","id":"m","content":[{"type":"output_text","text":"I look."}]},{"type":"function_call","id":"f","call_id":"c","name":"f","arguments":"{\"x\":1}"}],"usage":{"input_tokens":3,"output_tokens":4}}
        "#,
        &expect![[r#"
            thought "Hm."
            text "I look."
            call 0 f
            args 0 {"x":1}
            complete 3+4 cached 0
              0 "c" "f" {"x":1}
              echo {"type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"g"}
              echo {"type":"message","start":0,"end":7}
              echo {"type":"function_call","slot":0}
        "#]],
    );
}

/// The name streams, the arguments come at the very end.
#[test]
fn a_call_without_deltas_takes_its_arguments_from_the_end() {
    check(
        r#"
        added 0 {"id":"f","type":"function_call","call_id":"c","name":"f","arguments":""}
        completed {"status":"completed","output":[{"type":"function_call","id":"other","call_id":"c","name":"f","arguments":"{\"x\":1}"}]}
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "c" "f" {"x":1}
        "#]],
    );
}

/// Or they came with the name.
#[test]
fn a_call_may_be_whole_when_it_begins() {
    check(
        r#"
        added 0 {"id":"f","type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "c" "f" {"x":1}
        "#]],
    );
}

/// And some send them there, and once more.
#[test]
fn early_arguments_do_not_come_twice() {
    check(
        r#"
        added 0 {"id":"f","type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"}
        function_call_arguments.delta {"item_id":"f","output_index":0,"delta":"{\"x\""}
        function_call_arguments.delta {"item_id":"f","output_index":0,"delta":":1}"}
        whole 0 {"id":"f","type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "c" "f" {"x":1}
        "#]],
    );
}

/// Parallel calls.
#[test]
fn calls_may_be_interleaved_and_out_of_order() {
    check(
        r#"
        added 2 {"id":"f2","type":"function_call","call_id":"c2","name":"g","arguments":""}
        added 1 {"id":"f1","type":"function_call","call_id":"c1","name":"f","arguments":""}
        function_call_arguments.delta {"item_id":"f1","output_index":1,"delta":"{\"x\""}
        function_call_arguments.delta {"item_id":"f2","output_index":2,"delta":"{\"y\""}
        function_call_arguments.delta {"item_id":"f1","output_index":1,"delta":":1}"}
        function_call_arguments.delta {"item_id":"f2","output_index":2,"delta":":2}"}
        whole 0 {"id":"r","type":"reasoning","summary":[],"encrypted_content":"g"}
        whole 1 {"id":"f1","type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\":1}"}
        whole 2 {"id":"f2","type":"function_call","call_id":"c2","name":"g","arguments":"{\"y\":2}"}
        completed {"status":"completed","output":[{"type":"reasoning","id":"r"},{"type":"function_call","id":"f1","call_id":"c1","name":"f","arguments":"{\"x\":1}"},{"type":"function_call","id":"f2","call_id":"c2","name":"g","arguments":"{\"y\":2}"}]}
        "#,
        &expect![[r#"
            call 0 g
            call 1 f
            args 1 {"x"
            args 0 {"y"
            args 1 :1}
            args 0 :2}
            complete
              0 "c2" "g" {"y":2}
              1 "c1" "f" {"x":1}
              echo {"type":"reasoning","summary":[],"encrypted_content":"g"}
              echo {"type":"function_call","slot":1}
              echo {"type":"function_call","slot":0}
        "#]],
    );
}

/// A gateway that gives every item the index 0.
#[test]
fn items_under_one_index_are_told_apart() {
    check(
        r#"
        output_text.delta {"item_id":"m","output_index":0,"delta":"I look."}
        added 0 {"id":"f1","type":"function_call","call_id":"c1","name":"f","arguments":""}
        added 0 {"id":"f2","type":"function_call","call_id":"c2","name":"f","arguments":""}
        function_call_arguments.delta {"item_id":"f1","output_index":0,"delta":"{\"x\":1}"}
        function_call_arguments.delta {"item_id":"f2","output_index":0,"delta":"{\"x\":2}"}
        whole 0 {"id":"f1","type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\":1}"}
        whole 0 {"id":"f2","type":"function_call","call_id":"c2","name":"f","arguments":"{\"x\":2}"}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            text "I look."
            call 0 f
            call 1 f
            args 0 {"x":1}
            args 1 {"x":2}
            complete
              0 "c1" "f" {"x":1}
              1 "c2" "f" {"x":2}
        "#]],
    );
}

/// GitHub's gateway encrypts the identifiers anew in each event.
#[test]
fn identifiers_may_change_under_one_index() {
    check(
        r#"
        added 0 {"id":"a1","type":"message","content":[]}
        output_text.delta {"item_id":"a2","output_index":0,"delta":"I "}
        output_text.delta {"item_id":"a3","output_index":0,"delta":"look."}
        output_text.done {"item_id":"a4","output_index":0,"text":"I look."}
        whole 0 {"id":"a5","type":"message","content":[{"type":"output_text","text":"I look."}]}
        added 1 {"id":"b1","type":"function_call","call_id":"c","name":"f","arguments":""}
        function_call_arguments.delta {"item_id":"b2","output_index":1,"delta":"{\"x\":1}"}
        function_call_arguments.done {"item_id":"b3","output_index":1,"arguments":"{\"x\":1}"}
        whole 1 {"id":"b4","type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"}
        completed {"status":"completed","output":[{"id":"a6","type":"message","content":[{"type":"output_text","text":"I look."}]},{"id":"b5","type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"}]}
        "#,
        &expect![[r#"
            text "I look."
            call 0 f
            args 0 {"x":1}
            complete
              0 "c" "f" {"x":1}
        "#]],
    );
}

/// The smallest servers.
#[test]
fn neither_index_nor_identifier_is_needed() {
    check(
        r#"
        output_text.delta {"delta":"I "}
        output_text.delta {"delta":"look."}
        output_item.added {"item":{"type":"function_call","call_id":"c1","name":"f"}}
        function_call_arguments.delta {"delta":"{\"x\""}
        function_call_arguments.delta {"delta":":1}"}
        output_item.done {"item":{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\":1}"}}
        output_item.added {"item":{"type":"function_call","call_id":"c2","name":"g"}}
        function_call_arguments.delta {"delta":"{}"}
        output_item.done {"item":{"type":"function_call","call_id":"c2","name":"g","arguments":"{}"}}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            text "I look."
            call 0 f
            args 0 {"x":1}
            call 1 g
            args 1 {}
            complete
              0 "c1" "f" {"x":1}
              1 "c2" "g" {}
        "#]],
    );
}

/// A call needs an identifier of its own in the end, but not here.
#[test]
fn a_missing_call_id_falls_back_to_the_item() {
    check(
        r#"
        whole 0 {"id":"fc_1","type":"function_call","name":"f","arguments":"{}"}
        whole 1 {"type":"function_call","name":"g","arguments":"{}"}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            call 0 f
            args 0 {}
            call 1 g
            args 1 {}
            complete
              0 "fc_1" "f" {}
              1 "" "g" {}
        "#]],
    );
}

/// The last word counts: deltas may be lost or come twice.
#[test]
fn arguments_at_the_end_mend_broken_deltas() {
    check(
        r#"
        added 0 {"id":"f","type":"function_call","call_id":"c","name":"f","arguments":""}
        function_call_arguments.delta {"output_index":0,"delta":"{\"x\""}
        function_call_arguments.delta {"output_index":0,"delta":"x\""}
        function_call_arguments.done {"output_index":0,"arguments":"{\"x\":1}"}
        added 1 {"id":"g","type":"function_call","call_id":"d","name":"g","arguments":""}
        function_call_arguments.delta {"output_index":1,"delta":"{\"x\""}
        whole 1 {"id":"g","type":"function_call","call_id":"d","name":"g","arguments":"{\"x\":2}"}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x"x"
            call 1 g
            args 1 {"x":2}
            complete
              0 "c" "f" {"x":1}
              1 "d" "g" {"x":2}
        "#]],
    );
}

/// C.2 #13.
#[test]
fn arguments_may_be_an_object_or_nothing() {
    check(
        r#"
        whole 0 {"type":"function_call","call_id":"a","name":"f","arguments":{"x":1}}
        whole 1 {"type":"function_call","call_id":"b","name":"f","arguments":null}
        whole 2 {"type":"function_call","call_id":"c","name":"f","arguments":""}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            call 1 f
            call 2 f
            complete
              0 "a" "f" {"x":1}
              1 "b" "f" {}
              2 "c" "f" {}
        "#]],
    );
}

/// Two deltas under a done item are a repetition.
#[test]
fn what_follows_a_whole_item_is_ignored() {
    check(
        r#"
        whole 0 {"id":"f","type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"}
        function_call_arguments.delta {"item_id":"f","output_index":0,"delta":"{\"x\":2}"}
        function_call_arguments.done {"item_id":"f","output_index":0,"arguments":"{\"x\":2}"}
        whole 0 {"id":"f","type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":3}"}
        completed {"status":"completed","output":[{"id":"f","type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":4}"}]}
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "c" "f" {"x":1}
        "#]],
    );
}

/// A call that is taken for another one would run twice.
#[test]
fn calls_that_only_the_end_knows_are_not_added_to_those_that_streamed() {
    check(
        r#"
        whole 0 {"id":"f","type":"function_call","call_id":"c","name":"f","arguments":"{}"}
        completed {"status":"completed","output":[{"type":"function_call","call_id":"x","name":"f","arguments":"{}"},{"type":"function_call","call_id":"y","name":"f","arguments":"{}"}]}
        "#,
        &expect![[r#"
            call 0 f
            args 0 {}
            complete
              0 "c" "f" {}
        "#]],
    );
}

/// Tools that the server runs itself, and events from the future.
#[test]
fn unknown_items_and_events_are_ignored() {
    check(
        r#"
        whole 0 {"id":"ws_1","type":"web_search_call","status":"completed"}
        web_search_call.searching {"output_index":0}
        added 1 {"type":"message","content":"not a list"}
        output_text.annotation.added {"output_index":1,"annotation":{"type":"url_citation"}}
        output_text.delta {"output_index":1,"delta":"Yes."}
        something.new {"delta":"?"}
        data: {"type":"keepalive","sequence_number":3}

        data: {}

        added 2 null
        added 3 "text"
        added 4 {"type":null}
        completed {"status":"completed","output":"odd","usage":"odd"}
        "#,
        &expect![[r#"
            text "Yes."
            complete
        "#]],
    );
}

/// C.4 #24.
#[test]
fn half_a_surrogate_pair_does_no_harm() {
    check(
        r#"
        output_text.delta {"output_index":0,"delta":"a\ud83d"}
        whole 1 {"type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":\"\\ud83d\"}"}
        whole 2 {"type":"message","content":[{"type":"output_text","text":"b\ud83d"}]}
        completed {"status":"completed"}
        "#,
        &expect![[r#"
            text "a�"
            call 0 f
            args 0 {"x":"\ud83d"}
            text "\n\nb�"
            complete
              0 "c" "f" {"x":"�"}
        "#]],
    );
}

/// C.1 #2.
#[test]
fn comments_are_skipped_and_the_end_mark_is_no_event() {
    check(
        r#"
        : keep-alive

        output_text.delta {"delta":"a"}
        : keep-alive
        completed {"status":"completed"}
        done
        "#,
        &expect![[r#"
            text "a"
            complete
        "#]],
    );
}

/// The same without the one identifier that stays: a call that is taken for two would run twice.
#[test]
fn a_call_under_one_index_is_one_call_whatever_its_item_is_called() {
    check(
        r#"
        added 0 {"id":"b1","type":"function_call","name":"f","arguments":""}
        function_call_arguments.delta {"item_id":"b2","output_index":0,"delta":"{\"x\":1}"}
        whole 0 {"id":"b3","type":"function_call","name":"f","arguments":"{\"x\":1}"}
        completed {"status":"completed","output":[{"id":"b4","type":"function_call","name":"f","arguments":"{\"x\":1}"}]}
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "b1" "f" {"x":1}
        "#]],
    );
}
